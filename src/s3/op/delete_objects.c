/* s3/op/delete_objects.c: DeleteObjects: up to 1,000 keys or versions of one bucket in one commit,
 * an outcome for each. */
#include <errno.h>

#include "s3/auth/access.h"
#include "s3/auth/auth.h"
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/core/settings.h"
#include "s3/core/stored.h"
#include "s3/core/xml_in.h"
#include "s3/event/access_log.h"
#include "s3/event/notification.h"
#include "s3/object/lock.h"
#include "s3/object/versions.h"
#include "s3/operation.h"

/* The deletions of the document. refused has the errors of keys that cannot be deleted. */
struct deletion {
	struct store_deletion *list;
	struct s3_deletion_check *checks;
	const struct s3_error **refused;
	uint32_t count;
	bool quiet;
};

static const struct s3_error *parse_object(struct s3_call *call, const struct s3_xml *object,
	struct store_deletion *deletion, struct s3_deletion_check *check)
{
	const struct s3_error *error;

	*deletion = (struct store_deletion){.key = s3_xml_text(object, "Key"),
		.version_id = s3_xml_text(object, "VersionId"),
		.check = s3_deletion_check,
		.arg = check};
	*check = (struct s3_deletion_check){.if_match = s3_xml_text(object, "ETag"),
		.by_version = deletion->version_id.len > 0,
		.bypass = s3_lock_bypass(call),
		.now_ms = (int64_t)(clock_real_ns() / NS_PER_MS)};
	if (deletion->key.len > LIMIT_KEY_LEN_MAX)
		return s3_error_at(S3_E_KEY_TOO_LONG);
	if (deletion->version_id.len && !store_version_id_valid(deletion->version_id))
		return s3_error_at(S3_E_NO_SUCH_VERSION);
	error = s3_deletion_time_parse(call, s3_xml_text(object, "LastModifiedTime"), check);
	if (!error)
		error = s3_deletion_size_parse(call, s3_xml_text(object, "Size"), check);
	return error;
}

static const struct s3_error *parse_objects(
	struct s3_call *call, const struct s3_xml *root, struct deletion *deletion)
{
	for (const struct s3_xml *node = root->child; node; node = node->next) {
		uint32_t idx = deletion->count;

		if (slice_eq(node->name, SLICE("Quiet"))) {
			deletion->quiet = slice_eq_nocase(slice_trim(node->text), SLICE("true"));
			continue;
		}
		if (!slice_eq(node->name, SLICE("Object")) || !s3_xml_text(node, "Key").len ||
			idx == LIMIT_DELETE_KEYS_MAX)
			return s3_error_at(S3_E_MALFORMED_XML);
		deletion->refused[idx] =
			parse_object(call, node, &deletion->list[idx], &deletion->checks[idx]);
		deletion->count++;
	}
	return deletion->count ? NULL : s3_error_at(S3_E_MALFORMED_XML);
}

static const struct s3_error *read_tree(struct s3_call *call, struct s3_xml **ret_root)
{
	const struct s3_error *error;
	struct s3_sums sums;
	struct slice body;
	int ret;

	error = s3_sums_parse(call, &sums);
	if (!error && !sums.has_md5 && sums.kind == CHECKSUM_NONE)
		error = s3_fail(call, S3_E_INVALID_REQUEST,
			"Missing required header for this request: Content-MD5");
	if (!error)
		error = s3_call_read(call, &sums, &body);
	if (error)
		return error;
	if (!body.len)
		return s3_error_at(S3_E_MISSING_REQUEST_BODY);
	ret = s3_xml_parse(body, &call->arena, ret_root);
	if (ret == -ENOMEM)
		return s3_error_at(S3_E_SLOW_DOWN);
	if (ret || !slice_eq((*ret_root)->name, SLICE("Delete")))
		return s3_error_at(S3_E_MALFORMED_XML);
	return NULL;
}

static const struct s3_error *parse(struct s3_call *call, struct deletion *deletion)
{
	struct s3_xml *root;
	const struct s3_error *error = read_tree(call, &root);

	if (error)
		return error;
	deletion->list =
		mem_arena_get(&call->arena, LIMIT_DELETE_KEYS_MAX * sizeof(*deletion->list));
	deletion->checks =
		mem_arena_get(&call->arena, LIMIT_DELETE_KEYS_MAX * sizeof(*deletion->checks));
	deletion->refused =
		mem_arena_get(&call->arena, LIMIT_DELETE_KEYS_MAX * sizeof(*deletion->refused));
	if (!deletion->list || !deletion->checks || !deletion->refused)
		return s3_error_at(S3_E_SLOW_DOWN);
	return parse_objects(call, root, deletion);
}

/* Each key is authorized by itself, in its version. */
static const struct s3_error *may_delete(struct s3_call *call,
	const struct store_deletion *deletion, struct s3_deletion_check *check)
{
	bool by_version = deletion->version_id.len > 0;
	const struct store_name name = {.bucket = call->bucket,
		.key = deletion->key,
		.version_id = by_version ? deletion->version_id : SLICE_NONE};
	const struct s3_given given = {.if_match = check->if_match};
	const struct s3_error *error;

	call->judged = NULL;
	error = s3_call_may_version(
		call, by_version ? "s3:DeleteObjectVersion" : "s3:DeleteObject", &name, &given);
	if (!error && s3_deletion_compares(check))
		error = s3_call_may_version(
			call, by_version ? "s3:GetObjectVersion" : "s3:GetObject", &name, &given);
	if (!error && s3_lock_bypass(call))
		error = s3_call_may_version(call, "s3:BypassGovernanceRetention", &name, &given);
	if (!error && s3_call_has_header(call, SLICE(S3_REPLICA_REQUEST)))
		error = s3_call_may_version(call, "s3:ReplicateDelete", &name, &given);
	check->name = name;
	check->judged = call->judged;
	return error;
}

/* Deletes the keys that are not refused; stores each failure in refused. */
static const struct s3_error *run(struct s3_call *call, struct deletion *deletion)
{
	struct store_deletion *list = mem_arena_get(&call->arena, deletion->count * sizeof(*list));
	struct s3_telling *tellings =
		mem_arena_get(&call->arena, deletion->count * sizeof(*tellings));
	uint32_t count = 0, next = 0;
	int ret;

	if (!list || !tellings)
		return s3_error_at(S3_E_SLOW_DOWN);
	for (uint32_t i = 0; i < deletion->count; i++) {
		if (!deletion->refused[i])
			deletion->refused[i] =
				may_delete(call, &deletion->list[i], &deletion->checks[i]);
		if (deletion->refused[i])
			continue;
		s3_deletion_find_marker(call, deletion->list[i].key, &deletion->checks[i]);
		list[count] = deletion->list[i];
		s3_event_delete_begin(call, &list[count], &tellings[count]);
		count++;
	}
	ret = store_delete_each(
		call->s3->store, call->bucket, s3_call_bucket_id(call), list, count);
	for (uint32_t i = 0; i < count; i++)
		s3_event_delete_end(&list[i], &tellings[i], ret ? ret : list[i].result);
	if (ret == -ENOENT)
		return s3_error_at(S3_E_NO_SUCH_BUCKET);
	if (ret)
		return s3_fail_errno(call, ret);
	for (uint32_t i = 0; i < deletion->count; i++) {
		if (deletion->refused[i])
			continue;
		deletion->list[i] = list[next++];
		ret = deletion->list[i].result;
		if (ret == -ECANCELED)
			deletion->refused[i] = deletion->checks[i].refused;
		else if (ret == -EAGAIN)
			deletion->refused[i] = s3_error_at(S3_E_SLOW_DOWN);
		else if (ret && ret != -ENOENT)
			deletion->refused[i] = s3_fail_errno(call, ret);
	}
	return NULL;
}

static void put_outcome(const struct deletion *deletion, uint32_t idx, struct buf *xml)
{
	const struct store_deletion *object = &deletion->list[idx];
	const struct s3_error *error = deletion->refused[idx];
	const char *element = error ? "Error" : "Deleted";

	if (!error && deletion->quiet)
		return;
	buf_printf(xml, "<%s>", element);
	xml_element("Key", object->key, xml);
	if (object->version_id.len)
		xml_element("VersionId", object->version_id, xml);
	if (error) {
		xml_element("Code", slice_str(error->code), xml);
		xml_element("Message", slice_str(error->message), xml);
	} else if (object->delete_marker) {
		buf_put_str(xml, "<DeleteMarker>true</DeleteMarker>");
		xml_element("DeleteMarkerVersionId", slice_str(object->version_id_out), xml);
	}
	buf_printf(xml, "</%s>", element);
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
	for (uint32_t i = 0; i < deletion.count; i++) {
		put_outcome(&deletion, i, &xml);
		s3_access_log_deletion(call, deletion.list[i].key, deletion.list[i].version_id,
			deletion.refused[i]);
	}
	s3_xml_end(&xml, "DeleteResult");
	return s3_answer_xml(call, 200, &xml);
}
