/* s3/object/carry.c: the two ends of a copy between stores. The source's process runs the checks on
 * the source that a copy within one store runs, on the client's own signed request. */
#include <errno.h>

#include "codec/carry.h"
#include "s3/auth/access.h"
#include "s3/body/body.h"
#include "s3/core/answer.h"
#include "s3/core/stored.h"
#include "s3/core/tags.h"
#include "s3/object/carry.h"

_Static_assert(CARRY_ETAG_BYTES == sizeof(((struct store_meta *)NULL)->etag), "an ETag fits");
_Static_assert(CARRY_VERSION_BYTES == sizeof(((struct store_meta *)NULL)->version_id),
	"a version id fits");
_Static_assert(CARRY_RECORD_BYTES > S3_META_BYTES_MAX + 320, "the headers fit");

/* Two sources, one after the other; the offsets of the second one's pieces are moved. */
struct joined {
	struct flow_source source;
	struct flow_source *first, *second; /* first NULL: it is over */
	int64_t shift;
};

static int joined_next(struct flow_source *source, uint32_t bytes_max, struct flow_piece *ret_piece)
{
	struct joined *joined = CONTAINER_OF(source, struct joined, source);
	int ret;

	if (joined->first) {
		ret = flow_source_next(joined->first, bytes_max, ret_piece);
		if (ret)
			return ret;
		flow_source_close(joined->first);
		joined->first = NULL;
	}
	joined->second->share = source->share;
	joined->second->deadline_ns = MIN(joined->second->deadline_ns, source->deadline_ns);
	ret = flow_source_next(joined->second, bytes_max, ret_piece);
	if (ret == 1)
		ret_piece->offset = (uint64_t)((int64_t)ret_piece->offset + joined->shift);
	return ret;
}

static void joined_close(struct flow_source *source)
{
	struct joined *joined = CONTAINER_OF(source, struct joined, source);

	if (joined->first)
		flow_source_close(joined->first);
	flow_source_close(joined->second);
}

static const struct flow_source_ops joined_ops = {
	.name = "carry",
	.next = joined_next,
	.close = joined_close,
};

static void joined_init(struct joined *joined, struct flow_source *first,
	struct flow_source *second, uint64_t bytes)
{
	*joined = (struct joined){.first = first, .second = second};
	joined->source = (struct flow_source){.magic = FLOW_SOURCE_MAGIC,
		.ops = &joined_ops,
		.core = second->core,
		.bytes_total = bytes,
		.deadline_ns = DEADLINE_NONE};
}

/* ---- Giving. ---- */

/* The headers that a copy may take, with the tags if it wants them and the caller may read them. */
static const struct s3_error *headers_of(
	struct s3_call *call, const struct s3_copy *copy, struct slice *ret_headers)
{
	struct slice plain = slice_of(copy->from->headers, s3_meta_plain_len(copy->from));
	struct slice tags = s3_tags_of_object(copy->from);
	bool part = call->operation->id == S3_OPERATION_UPLOAD_PART_COPY;

	*ret_headers = SLICE("");
	if (part)
		return NULL;
	if (slice_eq(s3_call_header(call, SLICE("x-amz-tagging-directive")), SLICE("REPLACE")))
		tags = SLICE_NONE;
	if (tags.len) {
		const struct s3_error *error = s3_call_may_read_tags(call, copy);

		if (error)
			return error;
	}
	if (s3_meta_set_hidden(plain, SLICE(S3_TAGS_HEADER), tags, &call->arena, ret_headers))
		return s3_error_at(S3_E_SLOW_DOWN);
	return NULL;
}

static const struct s3_error *send_all(
	struct s3_call *call, struct flow_source *source, struct slice record, uint64_t bytes)
{
	const struct s3_header header = {SLICE(CARRY_HEADER), SLICE("1")};
	struct s3_reply *reply = call->reply;
	struct flow_source *first;
	struct joined joined;
	struct flow_sink *sink;
	uint64_t moved = 0;
	int ret = flow_memory_source_open(call->request->core, record, &first);

	if (ret) {
		flow_source_close(source);
		return s3_fail_errno(call, ret);
	}
	joined_init(&joined, first, source, record.len + bytes);
	joined.shift = (int64_t)record.len;
	if (reply->ops->head(reply, 200, &header, 1, record.len + bytes) ||
		reply->ops->sink(reply, &sink)) {
		flow_source_close(&joined.source);
		reply->broken = true;
		return NULL;
	}
	joined.source.share = s3_call_share(call);
	ret = flow_run(&joined.source, NULL, 0, sink, &moved);
	call->body_bytes += moved;
	if (ret || moved != record.len + bytes) {
		reply->broken = true;
		reply->error = ret;
	}
	return NULL;
}

static const struct s3_error *give(
	struct s3_call *call, struct s3_copy *copy, struct s3_range range)
{
	struct carry carry = {.offset = range.offset,
		.bytes = range.bytes,
		.object_bytes = copy->from->bytes,
		.mtime_ns = copy->from->mtime_ns,
		.checksum_type = copy->from->checksum_type,
		.flags = copy->from->checksum_flags,
		.encrypted = copy->sse != NULL,
		.charged = s3_answer_is_charged(call),
		.etag = slice_str(copy->from->etag),
		.version_id = slice_str(copy->from->version_id)};
	const struct s3_error *error = headers_of(call, copy, &carry.headers);
	struct flow_source *source;
	struct buf record;
	int ret;

	if (error)
		return error;
	buf_init(&record, CARRY_FRONT_BYTES + CARRY_RECORD_BYTES);
	ret = carry_write(&carry, &record);
	if (!ret)
		ret = s3_copy_source(call, copy, range, &source);
	error = ret ? s3_fail_errno(call, ret)
		    : send_all(call, source, buf_slice(&record), range.bytes);
	buf_free(&record);
	return error;
}

const struct s3_error *s3_carry_give(struct s3_call *call)
{
	enum s3_operation_id id = call->operation->id;
	const struct s3_error *error;
	struct s3_range range = {0};
	struct s3_copy copy = {0};

	if (id != S3_OPERATION_COPY_OBJECT && id != S3_OPERATION_UPLOAD_PART_COPY)
		return s3_error_at(S3_E_NOT_IMPLEMENTED);
	error = s3_copy_parse(call, &copy);
	if (!error)
		error = s3_copy_open(call, &copy);
	if (error)
		return error;
	range.bytes = copy.from->bytes;
	if (id == S3_OPERATION_UPLOAD_PART_COPY)
		error = s3_copy_range(call, &copy, &range);
	/* The target refuses it by the record; the bytes are not wanted. */
	else if (range.bytes > LIMIT_PUT_BYTES_MAX)
		range.bytes = 0;
	if (!error)
		error = give(call, &copy, range);
	s3_copy_close(&copy);
	return error;
}

/* ---- Taking. ---- */

/* Exactly so many bytes, and none of those after them. */
static int read_all(struct flow_source *source, char *to, uint32_t bytes)
{
	while (bytes) {
		struct flow_piece piece = {.data = NULL};
		int ret = flow_source_next(source, MIN(bytes, FLOW_PIECE_BYTES_MAX), &piece);

		if (ret <= 0)
			return ret ? ret : -EPIPE;
		to = mempcpy(to, piece.data, piece.bytes);
		bytes -= piece.bytes;
		flow_piece_end(source->core, &piece, OWNER_APP);
	}
	return 0;
}

static int record_read(struct s3_call *call, struct flow_source *source, struct carry *ret_carry,
	uint64_t *ret_bytes)
{
	char front[CARRY_FRONT_BYTES], *record;
	uint32_t bytes;
	int ret = read_all(source, front, sizeof(front));

	if (!ret)
		ret = carry_front_read(front, &bytes);
	if (ret)
		return ret;
	record = mem_arena_get(&call->arena, bytes);
	if (!record)
		return -ENOMEM;
	ret = read_all(source, record, bytes);
	*ret_bytes = sizeof(front) + bytes;
	return ret ? ret : carry_read(slice_of(record, bytes), ret_carry);
}

static int taken(struct s3_call *call, const struct carry *carry, struct s3_copy *copy)
{
	struct store_meta *from = mem_arena_get(&call->arena, sizeof(*from));

	if (!from)
		return -ENOMEM;
	*from = (struct store_meta){.bytes = carry->object_bytes,
		.mtime_ns = carry->mtime_ns,
		.checksum_type = carry->checksum_type,
		.checksum_flags = carry->flags,
		.headers = carry->headers.data,
		.headers_len = (uint32_t)carry->headers.len};
	if (carry->checksum_type >= CHECKSUM_KIND_COUNT ||
		slice_copy_str(carry->etag, from->etag, sizeof(from->etag)) ||
		slice_copy_str(carry->version_id, from->version_id, sizeof(from->version_id)))
		return -EINVAL;
	copy->from = from;
	copy->encrypted = carry->encrypted;
	if (carry->charged)
		s3_answer_charged(call);
	copy->far_range = (struct s3_range){carry->offset, carry->bytes};
	return 0;
}

const struct s3_error *s3_carry_take(struct s3_call *call, struct s3_copy *copy)
{
	struct joined *joined = mem_arena_get(&call->arena, sizeof(*joined));
	struct s3_body *body = call->request->body;
	struct flow_source *source = NULL;
	struct carry carry;
	uint64_t skip = 0;
	int ret = joined && body ? body->ops->open(body, NULL, &source) : -ENOMEM;

	if (ret)
		return s3_fail_errno(call, ret);
	source->share = s3_call_share(call);
	ret = record_read(call, source, &carry, &skip);
	if (!ret)
		ret = taken(call, &carry, copy);
	if (ret) {
		flow_source_close(source);
		return ret == -EINVAL ? s3_error_at(S3_E_INVALID_REQUEST)
				      : s3_body_failed(call, ret);
	}
	joined_init(joined, NULL, source, carry.bytes);
	joined->shift = -(int64_t)skip;
	copy->far = &joined->source;
	return NULL;
}
