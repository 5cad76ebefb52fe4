/* s3/object/origin_stream.c: the bytes of an object that is not whole here: while it is fetched
 * from its bucket's origin each part of the fetch's upload is read as soon as it is stored, and the
 * object when the upload is complete. Nothing is held for a slow reader: it reads what is stored,
 * when it wants it. Ranges come directly from the origin where the bucket says so. */
#include "s3/object/origin_stream.h"

#include <errno.h>

#include "s3/object/multipart.h"

_Static_assert(S3_ORIGIN_UPLOAD_ID_BYTES == S3_UPLOAD_ID_LEN + 1, "an id fits");

DEFINE_COUNTER(streamed, "nebulaio_origin_streamed_total", NULL,
	"GETs whose answer began before their object was fetched whole.");
DEFINE_COUNTER(alone, "nebulaio_origin_ranges_total", NULL,
	"Ranges that came from origins, while the rest of their objects was not fetched.");

struct s3_origin_stream {
	struct flow_source source;
	struct s3_call *call;
	const struct s3_origin_hook *hook;
	const struct s3_origin_ask *ask;
	struct s3_origin_told *told; /* its stream NULL: nothing is fetched */
	bool direct;		     /* it is counted, and may ask for pieces */
	const struct s3_sse *sse;
	uint64_t offset, end; /* in the object */
	uint64_t moved;	      /* before the inner source */
	/* The part, or the object, that is read now; get NULL: none. */
	struct store_get *get;
	struct flow_source *inner;
	struct store_crypt_source crypt;
	struct s3_origin_piece piece; /* that came directly; data NULL: none */
	uint64_t piece_used;
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

static void stretch_begins(struct s3_origin_stream *stream, uint64_t bytes)
{
	stream->moved = stream->offset - (stream->end - stream->source.bytes_total);
	stream->offset += bytes;
}

static bool is_direct(const struct s3_origin_stream *stream)
{
	return stream->direct &&
	       !(stream->told->stream &&
		       stream->hook->ops->near(stream->told->stream, stream->offset));
}

static int piece_open(struct s3_origin_stream *stream)
{
	stream->piece = (struct s3_origin_piece){.offset = stream->offset,
		.bytes = MIN(stream->end - stream->offset, S3_ORIGIN_DIRECT_BYTES)};
	stream->piece_used = 0;
	stream->hook->ops->direct_piece(stream->hook->arg, stream->ask, &stream->told->object,
		&stream->piece, stream->told);
	if (!stream->piece.data)
		return -ESHUTDOWN;
	stretch_begins(stream, stream->piece.bytes);
	return 0;
}

static void piece_close(struct s3_origin_stream *stream)
{
	if (stream->piece.data)
		stream->hook->ops->direct_free(&stream->piece);
}

/* Frames, because sinks hold pieces longer than the origin's bytes are held. */
static int piece_next(
	struct s3_origin_stream *stream, uint32_t bytes_max, struct flow_piece *ret_piece)
{
	uint64_t left = stream->piece.bytes - stream->piece_used;
	uint32_t bytes = (uint32_t)MIN(left, (uint64_t)bytes_max);
	const struct flow_want want = {.frame_count = region_frames_for(bytes),
		.owner = OWNER_APP,
		.share = stream->source.share,
		.begun = true,
		.deadline_ns = stream->source.deadline_ns};
	int ret;

	*ret_piece = (struct flow_piece){.bytes = bytes,
		.offset = stream->moved + stream->piece_used,
		.hold = FLOW_HOLD_LEASE};
	ret = flow_piece_lease(stream->source.core, &want, ret_piece);
	if (ret)
		return ret;
	region_copy(ret_piece->data, stream->piece.data + stream->piece_used, bytes, COPY_CLIENT);
	stream->piece_used += bytes;
	if (stream->piece_used == stream->piece.bytes)
		piece_close(stream);
	return 1;
}

/* Opens the bytes from offset on: as many as one part has, or all. */
static int stored_open(struct s3_origin_stream *stream)
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
	stretch_begins(stream, range.bytes);
	ret = s3_sse_source_in(stream->source.core, stream->sse, stream->get, range, &stream->crypt,
		&stream->inner);
	if (ret) {
		store_get_close(stream->get);
		stream->get = NULL;
	}
	return ret;
}

static int stretch_open(struct s3_origin_stream *stream)
{
	return is_direct(stream) ? piece_open(stream) : stored_open(stream);
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
		if (stream->piece.data)
			return piece_next(stream, bytes_max, ret_piece);
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
	struct s3_origin_stream *stream = CONTAINER_OF(source, struct s3_origin_stream, source);

	stretch_close(stream);
	piece_close(stream);
}

int s3_origin_stream_source(struct s3_origin_stream *stream, struct flow_source **ret_source)
{
	counter_add(stream->told->stream ? &streamed : &alone, 1);
	stream->source.deadline_ns = DEADLINE_NONE;
	*ret_source = &stream->source;
	return 0;
}

static void source_init(struct s3_origin_stream *stream, const struct s3_read *read)
{
	static const struct flow_source_ops OPS = {
		.name = "origin", .next = stream_next, .close = stream_close};

	stream->source = (struct flow_source){.magic = FLOW_SOURCE_MAGIC,
		.ops = &OPS,
		.core = stream->call->request->core,
		.bytes_total = read->bytes,
		.deadline_ns = stream->ask->deadline_ns};
	stream->sse = read->sse;
	stream->offset = read->offset;
	stream->end = read->offset + read->bytes;
}

/* A failure can still be answered until the first bytes of the answer are here. */
static const struct s3_error *first_bytes(struct s3_origin_stream *stream)
{
	struct s3_origin_stretch stretch = {.why = stream->told->why};
	struct s3_call *call = stream->call;
	int ret;

	if (stream->offset == stream->end)
		return NULL;
	if (is_direct(stream))
		ret = piece_open(stream);
	else
		ret = stream->hook->ops->follow(
			stream->told->stream, stream->offset, stream->source.deadline_ns, &stretch);
	if (!ret)
		return NULL;
	call->header_count = call->header_base;
	return s3_fail(
		call, ret == -ETIMEDOUT ? S3_E_SLOW_DOWN : S3_E_ORIGIN_FAILED, "%s", stretch.why);
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

static bool may_direct(const struct s3_origin_stream *stream, const struct s3_read *read)
{
	return read->status == 206 && read->bytes && stream->told->object.etag[0] &&
	       stream->ask->origin->ranges != S3_ORIGIN_FOLLOW;
}

/* Of a read with its meta, and get, if it has one: conditions, range and first bytes. */
static const struct s3_error *stream_begin(struct s3_origin_stream *stream, struct s3_read *read)
{
	const struct s3_error *error = s3_read_opened(stream->call, read);

	if (error || !s3_read_is_open(read))
		return error;
	source_init(stream, read);
	if (may_direct(stream, read))
		stream->direct = stream->hook->ops->direct_begin(stream->hook->arg, stream->ask);
	/* A reader who asked for the range alone has nothing to follow. */
	if (!stream->direct && !stream->told->stream)
		error = s3_fail(stream->call, S3_E_SLOW_DOWN,
			"Too many ranges are being fetched from origins: ask again in some "
			"seconds.");
	if (!error)
		error = first_bytes(stream);
	if (error)
		store_get_close(read->get);
	return error;
}

static struct s3_origin_stream *stream_make(
	struct s3_call *call, const struct s3_origin_ask *ask, struct s3_origin_told *told)
{
	struct s3_origin_stream *stream = mem_arena_get(&call->arena, sizeof(*stream));

	if (stream)
		*stream = (struct s3_origin_stream){.call = call,
			.hook = atomic_load(&call->s3->origin),
			.ask = ask,
			.told = told};
	return stream;
}

const struct s3_error *s3_origin_stream_failed(struct s3_call *call, int error)
{
	if (error != -ESHUTDOWN)
		return s3_fail_errno(call, error);
	return s3_fail(call, S3_E_SLOW_DOWN,
		"The object came from the bucket's origin, and was deleted or replaced, or it did "
		"not come whole: ask again.");
}

void s3_origin_stream_close(struct s3_origin_stream *stream)
{
	piece_close(stream);
	if (stream->direct)
		stream->hook->ops->direct_end(stream->hook->arg, stream->ask);
	if (stream->told->stream)
		stream->hook->ops->leave(stream->told->stream);
}

static const struct s3_error *begun(
	struct s3_origin_stream *stream, struct s3_read *read, const struct s3_error *error)
{
	if (!error && s3_read_is_open(read))
		return NULL;
	read->get = NULL;
	read->stream = NULL;
	s3_origin_stream_close(stream);
	return error;
}

const struct s3_error *s3_origin_stream_begin(struct s3_call *call, const struct s3_origin_ask *ask,
	struct s3_origin_told *told, struct s3_read *ret_read, bool *ret_gone)
{
	const struct s3_origin_hook *hook = atomic_load(&call->s3->origin);
	struct s3_origin_stream *stream = stream_make(call, ask, told);
	const struct s3_error *error = NULL;
	char name[S3_UPLOAD_NAME_MAX];
	bool ignored;
	int ret = -ENOMEM;

	*ret_gone = false;
	*ret_read = (struct s3_read){.stream = stream};
	if (stream)
		ret = store_get_open(call->s3->store, SLICE(S3_UPLOADS_BUCKET),
			s3_upload_name(call->bucket, told->upload_id, 0, name), &ret_read->get,
			&ignored);
	if (ret) {
		ret_read->stream = NULL;
		hook->ops->leave(told->stream);
		*ret_gone = ret == -ENOENT;
		return *ret_gone ? NULL : s3_fail_errno(call, ret);
	}
	ret_read->meta = meta_of(call, store_get_meta(ret_read->get), told);
	if (ret_read->meta) {
		error = stream_begin(stream, ret_read);
	} else {
		store_get_close(ret_read->get);
		error = s3_error_at(S3_E_SLOW_DOWN);
	}
	return begun(stream, ret_read, error);
}

const struct s3_error *s3_origin_range_begin(struct s3_call *call, const struct s3_origin_ask *ask,
	struct s3_origin_told *told, const struct store_meta *meta, struct s3_read *ret_read)
{
	struct s3_origin_stream *stream = stream_make(call, ask, told);

	if (!stream)
		return s3_error_at(S3_E_SLOW_DOWN);
	told->stream = NULL;
	*ret_read = (struct s3_read){.stream = stream, .meta = meta};
	return begun(stream, ret_read, stream_begin(stream, ret_read));
}
