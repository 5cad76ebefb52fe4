/* s3/object/origin_stream.c: the bytes of an object while it is fetched from its bucket's origin:
 * each part of the fetch's upload is read as soon as it is stored; when the upload is complete, the
 * object. Nothing is held for a slow reader: it reads what is stored, when it wants it. */
#include "s3/object/origin_stream.h"

#include <errno.h>

#include "s3/object/multipart.h"

_Static_assert(S3_ORIGIN_UPLOAD_ID_BYTES == S3_UPLOAD_ID_LEN + 1, "an id fits");

DEFINE_COUNTER(streamed, "nebulaio_origin_streamed_total", NULL,
	"GETs whose answer began before their object was fetched whole.");

struct s3_origin_stream {
	struct flow_source source;
	struct s3_call *call;
	const struct s3_origin_hook *hook;
	const struct s3_origin_told *told;
	const struct s3_sse *sse;
	uint64_t offset, end; /* in the object */
	uint64_t moved;	      /* before the inner source */
	/* The part, or the object, that is read now; get NULL: none. */
	struct store_get *get;
	struct flow_source *inner;
	struct store_crypt_source crypt;
};

/* The object that the key has, if it is the one of the fetch. -ESHUTDOWN: it is not, any more: a
 * client that asks again gets what is there then. */
static int whole_open(struct s3_origin_stream *stream)
{
	const struct s3_call *call = stream->call;
	const struct store_meta *meta;
	bool ignored;
	int ret = store_get_open(call->s3->store, call->bucket, call->key, &stream->get, &ignored);

	if (ret)
		return ret == -ENOENT ? -ESHUTDOWN : ret;
	meta = store_get_meta(stream->get);
	if (slice_eq(s3_meta_hidden(
			     slice_of(meta->headers, meta->headers_len), SLICE(S3_UPLOAD_HEADER)),
		    slice_str(stream->told->upload_id)))
		return 0;
	store_get_close(stream->get);
	stream->get = NULL;
	return -ESHUTDOWN;
}

/* Opens the bytes from offset on: as many as one part has, or all. */
static int stretch_open(struct s3_origin_stream *stream)
{
	const struct s3_call *call = stream->call;
	struct s3_range range = {stream->offset, stream->end - stream->offset};
	struct s3_origin_stretch stretch;
	char name[S3_UPLOAD_NAME_MAX];
	bool ignored;
	int ret;

	ret = stream->hook->ops->follow(
		stream->told->stream, stream->offset, stream->source.deadline_ns, &stretch);
	/* -EPIPE is of a client's body. */
	if (ret)
		return ret == -EPIPE ? -ESHUTDOWN : ret;
	if (stretch.part) {
		ret = store_get_open(call->s3->store, SLICE(S3_UPLOADS_BUCKET),
			s3_upload_name(call->bucket, stream->told->upload_id, stretch.part, name),
			&stream->get, &ignored);
		range.offset -= stretch.offset;
		range.bytes = MIN(range.bytes, stretch.bytes - range.offset);
	}
	/* The upload was completed in this moment. */
	if (!stretch.part || ret == -ENOENT) {
		range = (struct s3_range){stream->offset, stream->end - stream->offset};
		ret = whole_open(stream);
	}
	if (ret)
		return ret;
	stream->moved = stream->offset - (stream->end - stream->source.bytes_total);
	stream->offset += range.bytes;
	ret = s3_sse_source_in(stream->source.core, stream->sse, stream->get, range, &stream->crypt,
		&stream->inner);
	if (ret) {
		store_get_close(stream->get);
		stream->get = NULL;
	}
	return ret;
}

static void stretch_close(struct s3_origin_stream *stream)
{
	if (!stream->get)
		return;
	flow_source_close(stream->inner);
	store_get_close(stream->get);
	stream->get = NULL;
}

static int stream_next(struct flow_source *source, uint32_t bytes_max, struct flow_piece *ret_piece)
{
	struct s3_origin_stream *stream = CONTAINER_OF(source, struct s3_origin_stream, source);
	int ret;

	for (;;) {
		if (stream->get) {
			stream->inner->share = source->share;
			ret = flow_source_next(stream->inner, bytes_max, ret_piece);
			source->arrived_ns = stream->inner->arrived_ns;
			if (ret == 1)
				ret_piece->offset += stream->moved;
			if (ret)
				return ret;
			stretch_close(stream);
		}
		if (stream->offset == stream->end)
			return 0;
		ret = stretch_open(stream);
		if (ret)
			return ret;
	}
}

static void stream_close(struct flow_source *source)
{
	stretch_close(CONTAINER_OF(source, struct s3_origin_stream, source));
}

int s3_origin_stream_source(struct s3_origin_stream *stream, const struct s3_read *read,
	struct flow_source **ret_source)
{
	static const struct flow_source_ops OPS = {
		.name = "origin", .next = stream_next, .close = stream_close};

	stream->source = (struct flow_source){.magic = FLOW_SOURCE_MAGIC,
		.ops = &OPS,
		.core = stream->call->request->core,
		.bytes_total = read->bytes,
		.deadline_ns = DEADLINE_NONE};
	stream->sse = read->sse;
	stream->offset = read->offset;
	stream->end = read->offset + read->bytes;
	counter_add(&streamed, 1);
	*ret_source = &stream->source;
	return 0;
}

/* The object as it will be: the upload's record has its headers. */
static const struct store_meta *meta_of(
	struct s3_call *call, const struct store_meta *record, const struct s3_origin_told *told)
{
	struct store_meta *meta = mem_arena_get(&call->arena, sizeof(*meta));

	if (!meta)
		return NULL;
	*meta = *record;
	meta->bytes = told->object.bytes;
	memcpy(meta->etag, told->object.etag, sizeof(meta->etag));
	meta->checksum_type = CHECKSUM_NONE;
	meta->checksum_len = 0;
	meta->checksum_flags &= (uint8_t)~S3_FLAG_UNASKED;
	return meta;
}

/* A failure can still be answered until the first byte of the answer is stored. */
static const struct s3_error *first_byte(
	struct s3_call *call, const struct s3_origin_stream *stream, const struct s3_read *read)
{
	struct s3_origin_stretch stretch;
	int ret;

	if (!read->bytes)
		return NULL;
	ret = stream->hook->ops->follow(
		stream->told->stream, read->offset, stream->source.deadline_ns, &stretch);
	if (!ret)
		return NULL;
	call->header_count = call->header_base;
	return s3_fail(
		call, ret == -ETIMEDOUT ? S3_E_SLOW_DOWN : S3_E_ORIGIN_FAILED, "%s", stretch.why);
}

static const struct s3_error *read_open(
	struct s3_call *call, struct s3_origin_stream *stream, struct s3_read *read, bool *ret_gone)
{
	char name[S3_UPLOAD_NAME_MAX];
	const struct s3_error *error;
	bool ignored;
	int ret;

	ret = store_get_open(call->s3->store, SLICE(S3_UPLOADS_BUCKET),
		s3_upload_name(call->bucket, stream->told->upload_id, 0, name), &read->get,
		&ignored);
	*ret_gone = ret == -ENOENT;
	if (ret)
		return *ret_gone ? NULL : s3_fail_errno(call, ret);
	read->meta = meta_of(call, store_get_meta(read->get), stream->told);
	if (read->meta)
		error = s3_read_opened(call, read);
	else
		error = s3_error_at(S3_E_SLOW_DOWN);
	if (!read->meta)
		store_get_close(read->get);
	if (error || !read->get)
		return error;
	error = first_byte(call, stream, read);
	if (error)
		store_get_close(read->get);
	return error;
}

const struct s3_error *s3_origin_stream_begin(struct s3_call *call,
	const struct s3_origin_told *told, uint64_t deadline_ns, struct s3_read *ret_read,
	bool *ret_gone)
{
	const struct s3_origin_hook *hook = atomic_load(&call->s3->origin);
	struct s3_origin_stream *stream = mem_arena_get(&call->arena, sizeof(*stream));
	const struct s3_error *error = s3_error_at(S3_E_SLOW_DOWN);

	*ret_gone = false;
	*ret_read = (struct s3_read){.stream = stream};
	if (stream) {
		*stream = (struct s3_origin_stream){.call = call,
			.hook = hook,
			.told = told,
			.source.deadline_ns = deadline_ns};
		error = read_open(call, stream, ret_read, ret_gone);
	}
	if (!error && ret_read->get)
		return NULL;
	ret_read->get = NULL;
	hook->ops->leave(told->stream);
	return error;
}

void s3_origin_stream_close(struct s3_origin_stream *stream)
{
	stream->hook->ops->leave(stream->told->stream);
}
