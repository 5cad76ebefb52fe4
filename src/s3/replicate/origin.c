/* s3/replicate/origin.c: a bucket's origin configuration: the target that its objects come from,
 * and the prefix of their keys there. Checked, stored and loaded as other configurations are. */
#include "s3/origin.h"

#include <errno.h>

#include "s3/core/answer.h"
#include "s3/replicate/replicate.h"

#define ROOT "OriginConfiguration"

static _Atomic bool any_revalidates;

bool s3_origin_any_revalidates(void)
{
	return atomic_load_explicit(&any_revalidates, memory_order_relaxed);
}

/* An absent one is unchanged. */
static bool number_read(
	const struct s3_xml *root, const char *name, uint64_t max, uint64_t *ret_number)
{
	return !s3_xml_child(root, name) || (!slice_to_u64(s3_xml_text(root, name), ret_number) &&
						    *ret_number >= 1 && *ret_number <= max);
}

static bool ranges_read(const struct s3_xml *root, enum s3_origin_ranges *ret_ranges)
{
	static const struct slice WORDS[] = {[S3_ORIGIN_FOLLOW] = SLICE("Follow"),
		[S3_ORIGIN_AHEAD] = SLICE("Ahead"),
		[S3_ORIGIN_ALONE] = SLICE("Alone")};
	struct slice word = s3_xml_text(root, "Ranges");

	for (size_t i = 0; i < ARRAY_LEN(WORDS); i++) {
		if (!slice_eq(word, WORDS[i]))
			continue;
		*ret_ranges = (enum s3_origin_ranges)i;
		return true;
	}
	return !s3_xml_child(root, "Ranges");
}

static bool parse(const struct s3_xml *root, struct s3_origin *ret_origin)
{
	static const struct slice NAMES[] = {SLICE("Target"), SLICE("Prefix"), SLICE("Bytes"),
		SLICE("WaitSeconds"), SLICE("Ranges"), SLICE("RevalidateSeconds")};
	struct s3_origin origin = {.target = s3_xml_text(root, "Target"),
		.prefix = s3_xml_text(root, "Prefix"),
		.wait_s = S3_ORIGIN_WAIT_S};
	struct slice bytes = s3_xml_text(root, "Bytes");

	for (const struct s3_xml *node = root->child; node; node = node->next)
		if (!slice_among(node->name, NAMES, ARRAY_LEN(NAMES)))
			return false;
	if (s3_xml_child(root, "Bytes") &&
		(slice_to_bytes(bytes, &origin.bytes_max) || !origin.bytes_max))
		return false;
	if (!number_read(root, "WaitSeconds", S3_ORIGIN_WAIT_S_MAX, &origin.wait_s) ||
		!ranges_read(root, &origin.ranges) ||
		!number_read(root, "RevalidateSeconds", S3_ORIGIN_REVALIDATE_S_MAX,
			&origin.revalidate_s))
		return false;
	*ret_origin = origin;
	return origin.target.len && origin.prefix.len <= S3_ORIGIN_PREFIX_MAX &&
	       utf8_is_valid(origin.prefix);
}

static const struct s3_error *check_bucket(struct s3_call *call, const struct store_bucket *bucket)
{
	if (bucket->flags & STORE_BUCKET_MEMORY)
		return s3_fail(call, S3_E_INVALID_BUCKET_STATE,
			"A memory bucket cannot have an origin: objects come from there in parts.");
	if (bucket->versioning != STORE_VERSIONING_NEVER || bucket->flags & STORE_BUCKET_LOCK)
		return s3_fail(call, S3_E_INVALID_BUCKET_STATE,
			"A bucket that keeps or kept versions, or has object lock, cannot have an "
			"origin.");
	return NULL;
}

/* A target that the caller may not name is answered as one that does not exist. */
static const struct s3_error *check(
	struct s3_call *call, struct slice body, struct slice *ret_document)
{
	const struct s3_settings *settings;
	const struct s3_error *error;
	struct s3_origin origin;
	struct s3_xml *root;

	error = s3_config_xml(call, body, ROOT, &root);
	if (!error && !parse(root, &origin))
		error = s3_error_at(S3_E_MALFORMED_XML);
	if (!error)
		error = s3_call_settings(call, &settings);
	if (error)
		return error;
	if (!settings)
		return s3_error_at(S3_E_NO_SUCH_BUCKET);
	error = check_bucket(call, &settings->bucket);
	if (error)
		return error;
	if (!s3_replicate_allowed(call->s3, origin.target, settings->bucket.owner))
		return s3_fail(call, S3_E_INVALID_REQUEST,
			"The origin must be a target that this server's operator has registered "
			"for the bucket's account.");
	return s3_config_xml_text(call, root, ret_document);
}

static int load(struct slice document, struct mem_arena *arena, const void **ret_parsed)
{
	struct s3_origin *origin = mem_arena_get(arena, sizeof(*origin));
	struct s3_xml *root;
	int ret = origin ? s3_xml_parse(document, arena, &root) : -ENOMEM;

	if (!ret && !parse(root, origin))
		ret = -EINVAL;
	if (!ret && origin->revalidate_s)
		atomic_store(&any_revalidates, true);
	*ret_parsed = ret ? NULL : origin;
	return ret;
}

const struct s3_config_ops s3_config_origin = {
	.check = check, .load = load, .answer = s3_config_answer_xml, .put_status = 200};

const struct s3_error *s3_origin_refuses_config(struct s3_call *call, enum s3_config_id id)
{
	const struct s3_settings *settings;
	const struct s3_error *error;

	if (id != S3_CONFIG_VERSIONING && id != S3_CONFIG_OBJECT_LOCK)
		return NULL;
	error = s3_call_settings(call, &settings);
	if (error || !settings || !settings->parsed[S3_CONFIG_ORIGIN])
		return error;
	return s3_fail(call, S3_E_INVALID_BUCKET_STATE,
		"%.*s has an origin, so it has no versions and no object lock.",
		SLICE_FMT(call->bucket));
}

bool s3_origin_is_still(struct s3 *s3, struct flow_core *core, struct slice bucket,
	uint64_t bucket_id, const struct s3_origin *origin)
{
	const struct s3_origin *now;
	struct s3_settings *settings;
	bool same;

	if (s3_settings_get(s3, core, bucket, &settings))
		return false;
	now = settings->parsed[S3_CONFIG_ORIGIN];
	same = now && settings->bucket.id == bucket_id && slice_eq(now->target, origin->target) &&
	       slice_eq(now->prefix, origin->prefix) &&
	       s3_replicate_allowed(s3, origin->target, settings->bucket.owner);
	s3_settings_put(settings);
	return same;
}
