/* s3/op/object_lock.c: Get- and PutObjectRetention, Get- and PutObjectLegalHold: protection of one
 * version from deletion. The mode of a retention in force limits changes to it; the check uses the
 * version's headers at the time of the edit. */
#include <errno.h>

#include "s3/auth/access.h"
#include "s3/auth/auth.h"
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/core/named.h"
#include "s3/core/settings.h"
#include "s3/core/stored.h"
#include "s3/core/xml_in.h"
#include "s3/event/notification.h"
#include "s3/object/lock.h"
#include "s3/object/versions.h"
#include "s3/operation.h"

static const struct s3_error *read_config(
	struct s3_call *call, const char *root, struct s3_xml **ret_tree)
{
	const struct s3_error *error = s3_lock_check_bucket(call);
	struct s3_sums sums;
	struct slice body;

	if (!error)
		error = s3_sums_parse(call, &sums);
	if (!error)
		error = s3_call_read(call, &sums, &body);
	return error ? error : s3_config_xml(call, body, root, ret_tree);
}

/* The hidden header of the version, copied; data NULL when it has none. */
static const struct s3_error *read_hidden(
	struct s3_call *call, const struct slice *names, size_t count, struct slice *ret_values)
{
	const struct s3_error *error = s3_lock_check_bucket(call);
	const struct store_meta *meta;
	struct store_get *get;

	if (!error)
		error = s3_open_version(call, &get);
	if (error)
		return error;
	meta = store_get_meta(get);
	for (size_t i = 0; i < count; i++) {
		struct slice value =
			s3_meta_hidden(slice_of(meta->headers, meta->headers_len), names[i]);

		ret_values[i] = value.data ? mem_arena_copy(&call->arena, value) : SLICE_NONE;
	}
	store_get_close(get);
	return ret_values[0].data ? NULL : s3_error_at(S3_E_NO_SUCH_OBJECT_LOCK);
}

/* ---- Retention. ---- */

struct retention {
	struct s3_call *call;
	struct slice mode, until; /* empty: remove it */
	int64_t until_ms;
	bool bypass;
};

static bool may_change(const struct retention *retention, struct slice headers)
{
	int64_t until_ms, now_ms = (int64_t)(clock_real_ns() / NS_PER_MS);
	struct slice until = s3_meta_hidden(headers, SLICE(S3_LOCK_UNTIL_HEADER));
	struct slice mode = s3_meta_hidden(headers, SLICE(S3_LOCK_MODE_HEADER));

	if (!until.len || date_iso_parse(until, &until_ms) || until_ms <= now_ms)
		return true;
	if (slice_eq(mode, retention->mode) && retention->until_ms >= until_ms)
		return true;
	return slice_eq(mode, SLICE("GOVERNANCE")) && retention->bypass;
}

static int edit_retention(const struct store_meta *current, struct slice *ret_headers, void *arg)
{
	struct retention *retention = arg;
	struct slice headers = slice_of(current->headers, current->headers_len);
	struct mem_arena *arena = &retention->call->arena;
	int ret;

	if (current->delete_marker)
		return -EISDIR;
	if (!may_change(retention, headers))
		return -ECANCELED;
	ret = s3_meta_set_hidden(
		headers, SLICE(S3_LOCK_MODE_HEADER), retention->mode, arena, &headers);
	if (!ret)
		ret = s3_meta_set_hidden(
			headers, SLICE(S3_LOCK_UNTIL_HEADER), retention->until, arena, ret_headers);
	return ret;
}

static const struct s3_error *parse_retention(
	struct s3_call *call, const struct s3_xml *tree, struct retention *retention)
{
	struct slice until = s3_xml_text(tree, "RetainUntilDate");
	char *text = mem_arena_get(&call->arena, DATE_ISO_LEN);

	retention->mode = s3_xml_text(tree, "Mode");
	if (!retention->mode.len && !until.len) {
		retention->mode = SLICE_NONE;
		return NULL;
	}
	if (!slice_eq(retention->mode, SLICE("GOVERNANCE")) &&
		!slice_eq(retention->mode, SLICE("COMPLIANCE")))
		return s3_error_at(S3_E_MALFORMED_XML);
	if (date_iso_parse(until, &retention->until_ms))
		return s3_error_at(S3_E_MALFORMED_XML);
	if (retention->until_ms <= (int64_t)(clock_real_ns() / NS_PER_MS))
		return s3_fail(call, S3_E_INVALID_ARGUMENT,
			"The retain until date must be in the future!");
	if (!text)
		return s3_error_at(S3_E_SLOW_DOWN);
	date_iso_format(retention->until_ms, text);
	retention->until = slice_of(text, DATE_ISO_LEN);
	return NULL;
}

const struct s3_error *s3_op_put_object_retention(struct s3_call *call)
{
	struct retention retention = {.call = call, .bypass = s3_lock_bypass(call)};
	const struct s3_error *error;
	struct s3_xml *tree;

	error = read_config(call, "Retention", &tree);
	if (!error)
		error = parse_retention(call, tree, &retention);
	if (!error)
		error = s3_call_may_given(call, &(struct s3_given){.lock_mode = retention.mode,
							.lock_until = retention.until});
	if (!error)
		error = s3_edit_version(call, edit_retention, &retention, S3_EVENT_NONE);
	return error ? error : s3_answer_empty(call, 200);
}

const struct s3_error *s3_op_get_object_retention(struct s3_call *call)
{
	static const struct slice names[] = {
		SLICE(S3_LOCK_MODE_HEADER), SLICE(S3_LOCK_UNTIL_HEADER)};
	const struct s3_error *error;
	struct slice values[2];
	struct buf xml;

	error = read_hidden(call, names, 2, values);
	if (error)
		return error;
	s3_xml_begin(&xml, "Retention");
	xml_element("Mode", values[0], &xml);
	xml_element("RetainUntilDate", values[1], &xml);
	s3_xml_end(&xml, "Retention");
	return s3_answer_xml(call, 200, &xml);
}

/* ---- Legal hold. ---- */

struct hold {
	struct s3_call *call;
	struct slice status;
};

static int edit_hold(const struct store_meta *current, struct slice *ret_headers, void *arg)
{
	const struct hold *hold = arg;

	if (current->delete_marker)
		return -EISDIR;
	return s3_meta_set_hidden(slice_of(current->headers, current->headers_len),
		SLICE(S3_LOCK_HOLD_HEADER), hold->status, &hold->call->arena, ret_headers);
}

const struct s3_error *s3_op_put_object_legal_hold(struct s3_call *call)
{
	struct hold hold = {.call = call};
	const struct s3_error *error;
	struct s3_xml *tree;

	error = read_config(call, "LegalHold", &tree);
	if (error)
		return error;
	hold.status = s3_xml_text(tree, "Status");
	if (!slice_eq(hold.status, SLICE("ON")) && !slice_eq(hold.status, SLICE("OFF")))
		return s3_error_at(S3_E_MALFORMED_XML);
	error = s3_call_may_given(call, &(struct s3_given){.hold = hold.status});
	if (error)
		return error;
	error = s3_edit_version(call, edit_hold, &hold, S3_EVENT_NONE);
	return error ? error : s3_answer_empty(call, 200);
}

const struct s3_error *s3_op_get_object_legal_hold(struct s3_call *call)
{
	static const struct slice name = SLICE(S3_LOCK_HOLD_HEADER);
	const struct s3_error *error;
	struct slice status;
	struct buf xml;

	error = read_hidden(call, &name, 1, &status);
	if (error)
		return error;
	s3_xml_begin(&xml, "LegalHold");
	xml_element("Status", status, &xml);
	s3_xml_end(&xml, "LegalHold");
	return s3_answer_xml(call, 200, &xml);
}
