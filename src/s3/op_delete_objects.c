/* s3/op_delete_objects.c: DeleteObjects: up to 1,000 keys of one bucket in one commit, an outcome
 * for each. */
#include <errno.h>

#include "s3/s3_priv.h"

/* What the document asks for. Keys that cannot be deleted have their error in refused. */
struct deletion {
	struct slice *keys;
	struct slice *version_ids;
	const struct s3_error **refused;
	uint32_t count;
	bool quiet;
};

static const struct s3_error *check_key(const struct s3_xml *object, struct slice key)
{
	struct slice version_id = s3_xml_text(object, "VersionId");

	if (key.len > LIMIT_KEY_LEN_MAX)
		return s3_error_at(S3_E_KEY_TOO_LONG);
	if (version_id.len && !slice_eq(version_id, SLICE("null")))
		return s3_error_at(S3_E_NO_SUCH_VERSION);
	if (s3_xml_child(object, "ETag") || s3_xml_child(object, "LastModifiedTime") ||
		s3_xml_child(object, "Size"))
		return s3_error_at(S3_E_NOT_IMPLEMENTED);
	return NULL;
}

static const struct s3_error *parse_objects(const struct s3_xml *root, struct deletion *deletion)
{
	for (const struct s3_xml *node = root->child; node; node = node->next) {
		struct slice key = s3_xml_text(node, "Key");
		uint32_t idx = deletion->count;

		if (slice_eq(node->name, SLICE("Quiet"))) {
			deletion->quiet = slice_eq_nocase(slice_trim(node->text), SLICE("true"));
			continue;
		}
		if (!slice_eq(node->name, SLICE("Object")) || !key.len ||
			idx == LIMIT_DELETE_KEYS_MAX)
			return s3_error_at(S3_E_MALFORMED_XML);
		deletion->keys[idx] = key;
		deletion->version_ids[idx] = s3_xml_text(node, "VersionId");
		deletion->refused[idx] = check_key(node, key);
		deletion->count++;
	}
	return deletion->count ? NULL : s3_error_at(S3_E_MALFORMED_XML);
}

static const struct s3_error *parse(struct s3_call *call, struct deletion *deletion)
{
	const struct s3_error *error;
	struct s3_sums sums;
	struct s3_xml *root;
	struct slice body;
	int ret;

	error = s3_sums_parse(call, &sums);
	if (!error && !sums.has_md5 && sums.kind == CHECKSUM_NONE)
		error = s3_fail(call, S3_E_INVALID_REQUEST,
			"Missing required header for this request: Content-MD5");
	if (!error)
		error = s3_read_body(call, &sums, &body);
	if (error)
		return error;
	if (!body.len)
		return s3_error_at(S3_E_MISSING_REQUEST_BODY);
	ret = s3_xml_parse(body, &call->arena, &root);
	if (ret == -ENOMEM)
		return s3_error_at(S3_E_SLOW_DOWN);
	if (ret || !slice_eq(root->name, SLICE("Delete")))
		return s3_error_at(S3_E_MALFORMED_XML);
	deletion->keys =
		s3_arena_get(&call->arena, LIMIT_DELETE_KEYS_MAX * sizeof(*deletion->keys));
	deletion->version_ids =
		s3_arena_get(&call->arena, LIMIT_DELETE_KEYS_MAX * sizeof(*deletion->version_ids));
	deletion->refused =
		s3_arena_get(&call->arena, LIMIT_DELETE_KEYS_MAX * sizeof(*deletion->refused));
	if (!deletion->keys || !deletion->version_ids || !deletion->refused)
		return s3_error_at(S3_E_SLOW_DOWN);
	return parse_objects(root, deletion);
}

/* Deletes what is not refused; notes each key's failure in refused. */
static const struct s3_error *run(struct s3_call *call, struct deletion *deletion)
{
	struct slice *keys = s3_arena_get(&call->arena, deletion->count * sizeof(*keys));
	int *results = s3_arena_get(&call->arena, deletion->count * sizeof(*results));
	uint32_t count = 0, next = 0;
	int ret;

	if (!keys || !results)
		return s3_error_at(S3_E_SLOW_DOWN);
	for (uint32_t i = 0; i < deletion->count; i++)
		if (!deletion->refused[i])
			keys[count++] = deletion->keys[i];
	memset(results, 0, count * sizeof(*results));
	ret = store_delete_many(call->s3->store, call->bucket, keys, count, results);
	if (ret == -ENOENT)
		return s3_error_at(S3_E_NO_SUCH_BUCKET);
	if (ret)
		return s3_fail_errno(call, ret);
	for (uint32_t i = 0; i < deletion->count; i++) {
		if (deletion->refused[i])
			continue;
		if (results[next] && results[next] != -ENOENT)
			deletion->refused[i] = s3_fail_errno(call, results[next]);
		next++;
	}
	return NULL;
}

static void put_outcome(const struct deletion *deletion, uint32_t idx, struct buf *xml)
{
	const struct s3_error *error = deletion->refused[idx];

	if (!error && deletion->quiet)
		return;
	buf_put_str(xml, error ? "<Error>" : "<Deleted>");
	xml_element("Key", deletion->keys[idx], xml);
	if (deletion->version_ids[idx].len)
		xml_element("VersionId", deletion->version_ids[idx], xml);
	if (error) {
		xml_element("Code", slice_str(error->code), xml);
		xml_element("Message", slice_str(error->message), xml);
	}
	buf_put_str(xml, error ? "</Error>" : "</Deleted>");
}

const struct s3_error *s3_op_delete_objects(struct s3_call *call)
{
	struct deletion deletion = {0};
	const struct s3_error *error = parse(call, &deletion);
	struct buf xml;

	if (!error)
		error = run(call, &deletion);
	if (error)
		return error;
	s3_xml_begin(&xml, "DeleteResult");
	for (uint32_t i = 0; i < deletion.count; i++)
		put_outcome(&deletion, i, &xml);
	s3_xml_end(&xml, "DeleteResult");
	return s3_answer_xml(call, 200, &xml);
}
