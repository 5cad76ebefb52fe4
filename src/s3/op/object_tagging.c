/* s3/op/object_tagging.c: GetObjectTagging, PutObjectTagging, DeleteObjectTagging: an object's tags
 * change in place; its bytes, ETag and time stay. */
#include <errno.h>

#include "s3/auth/access.h"
#include "s3/auth/auth.h"
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/core/named.h"
#include "s3/core/settings.h"
#include "s3/core/stored.h"
#include "s3/core/tags.h"
#include "s3/core/xml_in.h"
#include "s3/event/notification.h"
#include "s3/object/versions.h"
#include "s3/operation.h"

/* Answers the version of the tags. */
static void answer_version(struct s3_call *call, const struct store_meta *of)
{
	struct store_meta *meta = mem_arena_get(&call->arena, sizeof(*meta));

	if (!meta)
		return;
	*meta = *of;
	s3_answer_version(call, meta);
}

const struct s3_error *s3_op_get_object_tagging(struct s3_call *call)
{
	const struct s3_error *error;
	struct store_get *get;
	struct s3_tags tags;
	int ret;

	error = s3_marker_error(call, s3_open_version(call, &get));
	if (error)
		return error;
	ret = s3_tags_decode(s3_tags_of_object(store_get_meta(get)), &call->arena, &tags);
	answer_version(call, store_get_meta(get));
	store_get_close(get);
	return ret ? s3_fail_errno(call, ret == -EINVAL ? -EIO : ret) : s3_tags_answer(call, &tags);
}

struct edit {
	struct s3_call *call;
	struct slice encoded;	    /* data NULL: remove them */
	struct store_meta *changed; /* only its version id is set */
};

/* The call's fiber waits meanwhile, so this function may use its arena. */
static int edit_tags(const struct store_meta *current, struct slice *ret_headers, void *arg)
{
	struct edit *edit = arg;

	if (current->delete_marker)
		return -EISDIR;
	memcpy(edit->changed->version_id, current->version_id, sizeof(current->version_id));
	return s3_meta_set_hidden(slice_of(current->headers, current->headers_len),
		SLICE(S3_TAGS_HEADER), edit->encoded, &edit->call->arena, ret_headers);
}

static const struct s3_error *set_tags(struct s3_call *call, struct slice encoded, uint32_t status)
{
	struct store_meta changed = {.version_id = ""};
	struct edit edit = {.call = call, .encoded = encoded, .changed = &changed};
	const struct s3_error *error = s3_edit_version(call, edit_tags, &edit,
		status == 204 ? S3_EVENT_TAGGING_DELETE : S3_EVENT_TAGGING_PUT);

	if (error)
		return error;
	s3_answer_version(call, &changed);
	return s3_answer_empty(call, status);
}

const struct s3_error *s3_op_put_object_tagging(struct s3_call *call)
{
	const struct s3_error *error;
	struct slice body, encoded;
	struct s3_tags tags;
	struct s3_sums sums;
	struct s3_xml *root;

	error = s3_sums_parse(call, &sums);
	if (!error)
		error = s3_call_read(call, &sums, &body);
	if (!error)
		error = s3_config_xml(call, body, "Tagging", &root);
	if (!error)
		error = s3_tags_of_xml(call, root, S3_TAGS_OBJECT_MAX, &tags);
	if (!error)
		error = s3_call_may_given(call, &(struct s3_given){.tags = &tags});
	if (error)
		return error;
	encoded = s3_tags_encode(&tags, &call->arena);
	if (tags.count && !encoded.data)
		return s3_error_at(S3_E_SLOW_DOWN);
	return set_tags(call, encoded, 200);
}

const struct s3_error *s3_op_delete_object_tagging(struct s3_call *call)
{
	return set_tags(call, SLICE_NONE, 204);
}
