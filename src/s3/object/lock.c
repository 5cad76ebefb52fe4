/* s3/object/lock.c: object lock of new objects, and checks of existing locks. */
#include "s3/object/lock.h"

#include <errno.h>

#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/core/settings.h"
#include "s3/core/stored.h"
#include "s3/core/xml_in.h"

#define MS_PER_DAY 86400000ll

static const struct slice modes[] = {SLICE("GOVERNANCE"), SLICE("COMPLIANCE")};
static const struct slice holds[] = {SLICE("ON"), SLICE("OFF")};
static const struct slice hidden[] = {
	SLICE(S3_LOCK_MODE_HEADER), SLICE(S3_LOCK_UNTIL_HEADER), SLICE(S3_LOCK_HOLD_HEADER)};

static const struct s3_error *not_lockable(struct s3_call *call)
{
	return s3_fail(call, S3_E_INVALID_REQUEST, "Bucket is missing Object Lock Configuration");
}

const struct s3_error *s3_lock_check_bucket(struct s3_call *call)
{
	struct store_bucket bucket;
	const struct s3_error *error = s3_call_bucket(call, &bucket);

	if (error)
		return error;
	return bucket.flags & STORE_BUCKET_LOCK ? NULL : not_lockable(call);
}

bool s3_lock_holds(struct slice headers, int64_t now_ms, bool bypass)
{
	struct slice until = s3_meta_hidden(headers, SLICE(S3_LOCK_UNTIL_HEADER));
	int64_t until_ms;

	if (slice_eq(s3_meta_hidden(headers, SLICE(S3_LOCK_HOLD_HEADER)), SLICE("ON")))
		return true;
	if (!until.len || date_iso_parse(until, &until_ms) || until_ms <= now_ms)
		return false;
	return !bypass || !slice_eq(s3_meta_hidden(headers, SLICE(S3_LOCK_MODE_HEADER)), modes[0]);
}

int s3_lock_carry(struct slice from, struct mem_arena *arena, struct slice *headers)
{
	int ret = 0;

	for (size_t i = 0; i < sizeof(hidden) / sizeof(hidden[0]) && !ret; i++) {
		struct slice value = s3_meta_hidden(from, hidden[i]);

		if (value.data)
			ret = s3_meta_set_hidden(*headers, hidden[i], value, arena, headers);
	}
	return ret;
}

bool s3_lock_answer(struct s3_call *call, struct slice name, struct slice value)
{
	static const struct slice told[] = {SLICE("x-amz-object-lock-mode"),
		SLICE("x-amz-object-lock-retain-until-date"),
		SLICE("x-amz-object-lock-legal-hold")};

	for (size_t i = 0; i < sizeof(hidden) / sizeof(hidden[0]); i++)
		if (slice_eq(name, hidden[i])) {
			s3_answer_header(call, told[i], value);
			return true;
		}
	return false;
}

/* ---- New objects. ---- */

static const struct s3_error *check_request(struct s3_call *call, struct slice values[3])
{
	int64_t until_ms, now_ms = (int64_t)(clock_real_ns() / NS_PER_MS);
	char *text = mem_arena_get(&call->arena, DATE_ISO_LEN);

	if (!values[0].len != !values[1].len)
		return s3_fail(call, S3_E_INVALID_ARGUMENT,
			"x-amz-object-lock-retain-until-date and x-amz-object-lock-mode must both "
			"be supplied");
	if (values[2].len && !slice_among(values[2], holds, 2))
		return s3_fail(
			call, S3_E_INVALID_ARGUMENT, "Legal Hold must be either of 'ON' or 'OFF'");
	if (!values[0].len)
		return NULL;
	if (!slice_among(values[0], modes, 2))
		return s3_fail(call, S3_E_INVALID_ARGUMENT, "Unknown wormMode directive.");
	if (date_iso_parse(values[1], &until_ms))
		return s3_fail(call, S3_E_INVALID_ARGUMENT,
			"The retain until date must be provided in ISO 8601 format");
	if (until_ms <= now_ms)
		return s3_fail(call, S3_E_INVALID_ARGUMENT,
			"The retain until date must be in the future!");
	if (!text)
		return s3_error_at(S3_E_SLOW_DOWN);
	date_iso_format(until_ms, text);
	values[1] = slice_of(text, DATE_ISO_LEN);
	return NULL;
}

/* The bucket's default for objects without a retention of their own. */
static const struct s3_error *fill_default(
	struct s3_call *call, const struct s3_settings *settings, struct slice values[3])
{
	const struct s3_lock_default *by_default = settings->parsed[S3_CONFIG_OBJECT_LOCK];
	char *text;

	if (values[0].len || !by_default || !by_default->mode.len)
		return NULL;
	text = mem_arena_get(&call->arena, DATE_ISO_LEN);
	if (!text)
		return s3_error_at(S3_E_SLOW_DOWN);
	date_iso_format(
		(int64_t)(clock_real_ns() / NS_PER_MS) + by_default->days * MS_PER_DAY, text);
	values[0] = by_default->mode;
	values[1] = slice_of(text, DATE_ISO_LEN);
	return NULL;
}

const struct s3_error *s3_lock_gather(struct s3_call *call, struct store_meta *meta)
{
	struct slice values[3] = {s3_call_header(call, SLICE("x-amz-object-lock-mode")),
		s3_call_header(call, SLICE("x-amz-object-lock-retain-until-date")),
		s3_call_header(call, SLICE("x-amz-object-lock-legal-hold"))};
	struct slice headers = slice_of(meta->headers, meta->headers_len);
	bool asked = values[0].len || values[1].len || values[2].len;
	const struct s3_settings *settings;
	const struct s3_error *error = s3_call_settings(call, &settings);

	if (error || !settings)
		return error;
	if (!(settings->bucket.flags & STORE_BUCKET_LOCK))
		return asked ? not_lockable(call) : NULL;
	error = check_request(call, values);
	if (!error)
		error = fill_default(call, settings, values);
	for (size_t i = 0; i < 3 && !error; i++)
		if (values[i].len &&
			s3_meta_set_hidden(headers, hidden[i], values[i], &call->arena, &headers))
			error = s3_error_at(S3_E_SLOW_DOWN);
	meta->headers = headers.data;
	meta->headers_len = (uint32_t)headers.len;
	return error;
}

/* ---- The bucket's default. ---- */

static int parse_default(
	const struct s3_xml *root, struct s3_lock_default *by_default, enum s3_error_id *ret_wrong)
{
	const struct s3_xml *rule = s3_xml_child(root, "Rule"), *retention;
	struct slice days, years, mode;
	uint64_t count;
	bool in_years;

	*by_default = (struct s3_lock_default){.mode = SLICE_NONE};
	*ret_wrong = S3_E_MALFORMED_XML;
	if (!slice_eq(s3_xml_text(root, "ObjectLockEnabled"), SLICE("Enabled")))
		return -EINVAL;
	if (!rule)
		return 0;
	retention = s3_xml_child(rule, "DefaultRetention");
	if (!retention)
		return -EINVAL;
	mode = s3_xml_text(retention, "Mode");
	days = s3_xml_text(retention, "Days");
	years = s3_xml_text(retention, "Years");
	in_years = years.len > 0;
	if ((!slice_eq(mode, modes[0]) && !slice_eq(mode, modes[1])) || !days.len == !years.len)
		return -EINVAL;
	if (slice_to_u64(in_years ? years : days, &count) || !count ||
		count > (in_years ? S3_LOCK_YEARS_MAX : S3_LOCK_DAYS_MAX)) {
		*ret_wrong = S3_E_INVALID_RETENTION_PERIOD;
		return -EINVAL;
	}
	by_default->mode = mode;
	by_default->days = (uint32_t)(in_years ? count * 365 : count);
	return 0;
}

static int enable_lock(struct store_bucket *bucket, void *arg)
{
	(void)arg;
	if (bucket->versioning != STORE_VERSIONING_ENABLED)
		return -EPERM;
	bucket->flags |= STORE_BUCKET_LOCK;
	return 0;
}

static const struct s3_error *lock_check(
	struct s3_call *call, struct slice body, struct slice *ret_document)
{
	struct s3_lock_default by_default;
	const struct s3_error *error;
	enum s3_error_id wrong;
	struct s3_xml *tree;
	int ret;

	error = s3_config_xml(call, body, "ObjectLockConfiguration", &tree);
	if (error)
		return error;
	if (parse_default(tree, &by_default, &wrong))
		return s3_error_at(wrong);
	ret = s3_call_bucket_edit(call, enable_lock, NULL);
	if (ret == -EPERM)
		return s3_fail(call, S3_E_INVALID_BUCKET_STATE,
			"Versioning must be 'Enabled' on the bucket to apply a Object Lock "
			"configuration");
	if (ret)
		return ret == -ENOENT ? s3_error_at(S3_E_NO_SUCH_BUCKET) : s3_fail_errno(call, ret);
	return s3_config_xml_text(call, tree, ret_document);
}

static int lock_load(struct slice document, struct mem_arena *arena, const void **ret_parsed)
{
	struct s3_lock_default *by_default = mem_arena_get(arena, sizeof(*by_default));
	enum s3_error_id wrong;
	struct s3_xml *tree;
	int ret;

	if (!by_default)
		return -ENOMEM;
	ret = s3_xml_parse(document, arena, &tree);
	if (!ret)
		ret = parse_default(tree, by_default, &wrong);
	*ret_parsed = by_default;
	return ret;
}

const struct s3_config_ops s3_config_object_lock = {
	.check = lock_check,
	.load = lock_load,
	.answer = s3_config_answer_xml,
	.put_status = 200,
};
