/* store/crypt.c: a source and a sink that wrap others, for encrypted bodies. A piece is changed in
 * its own frames if no one else uses them, otherwise into other frames. The whole 64 KiB around a
 * piece are read, as for checksums: so the tag can be verified before any byte is passed on. Data
 * path. */
#include <errno.h>

#include "store/crypt.h"

DEFINE_COUNTER(crypted_in_place, "nebulaio_flow_crypted_bytes_total", "frames=\"own\"",
	"Bytes encrypted or decrypted in transit, by direction.");
DEFINE_COUNTER(crypted_across, "nebulaio_flow_crypted_bytes_total", "frames=\"other\"",
	"Bytes encrypted or decrypted in transit, by direction.");
DEFINE_COUNTER(not_authentic, "nebulaio_flow_not_authentic_total", NULL,
	"Pieces of encrypted bodies whose tag was missing or wrong.");

static void nonce_make(uint64_t body_number, uint64_t offset, uint8_t nonce[AEAD_NONCE_BYTES])
{
	uint32_t piece = (uint32_t)(offset / STORE_CHECK_BYTES);

	for (int i = 7; i >= 0; i--, body_number >>= 8)
		nonce[i] = (uint8_t)body_number;
	for (int i = 11; i >= 8; i--, piece >>= 8)
		nonce[i] = (uint8_t)piece;
}

static int crypted(struct flow_core *core, struct flow_piece *piece,
	const struct flow_change *change, uint32_t bytes, int ret)
{
	counter_add(change->in_place ? &crypted_in_place : &crypted_across, bytes);
	return flow_change_end(core, piece, change, ret);
}

static int ctr_piece(struct flow_elsewhere *elsewhere, struct ctr *ctr, uint64_t body_number,
	uint64_t offset, struct flow_piece *piece)
{
	struct flow_change change;
	int ret = flow_change_begin(elsewhere, piece, piece->bytes, &change);

	if (ret)
		return ret;
	ret = ctr_apply(ctr, body_number, offset, piece->data, change.piece.data, piece->bytes);
	return crypted(elsewhere->core, piece, &change, piece->bytes, ret);
}

/* ---- The source. ---- */

static __attribute__((noinline, cold)) int refused(uint64_t body_number, uint64_t offset, int error)
{
	if (error != -EBADMSG && error != -ENOENT)
		return error;
	counter_add(&not_authentic, 1);
	log_error("flow",
		"object data %llu: the piece at %llu is %s: the data on the volume, or its "
		"record, was changed",
		(unsigned long long)body_number, (unsigned long long)offset,
		error == -ENOENT ? "without its tag" : "not the data that was encrypted");
	return -EIO;
}

/* The 64 KiB units that hold a piece of a stretch: from the start of the first to the end of the
 * last. */
struct whole {
	uint64_t start; /* of the stretch */
	uint64_t body_number;
	uint64_t from, to;
	const uint8_t *data;
};

static struct whole whole_of(
	struct store_crypt_source *self, uint64_t at, const struct flow_piece *piece)
{
	struct store_stretch stretch;
	struct whole whole;
	uint64_t chunk;

	store_get_stretch(self->get, at, &stretch);
	whole.start = stretch.start;
	whole.body_number = stretch.body_number;
	whole.from = whole.start + ALIGN_DOWN(at - whole.start, (uint64_t)STORE_CHECK_BYTES);
	whole.to = MIN(whole.start + ALIGN_UP(at + piece->bytes - whole.start,
					     (uint64_t)STORE_CHECK_BYTES),
		whole.start + stretch.bytes);
	chunk = whole.start + ALIGN_DOWN(at - whole.start, (uint64_t)STORE_CHUNK_BYTES);
	/* Pieces are cut as a store's source cuts them. */
	if (piece->hold == FLOW_HOLD_BORROWED)
		whole.data = piece->data - (at - whole.from);
	else if (piece->hold == FLOW_HOLD_CACHE)
		whole.data = piece->span.data + (whole.from - chunk);
	else
		whole.data = piece->span.data;
	return whole;
}

static int unseal(struct store_crypt_source *self, const struct whole *whole, uint8_t *out)
{
	uint8_t nonce[AEAD_NONCE_BYTES], tag[STORE_TAG_BYTES];

	for (uint64_t at = whole->from; at < whole->to; at += STORE_CHECK_BYTES) {
		struct aead_message message = {.nonce = nonce,
			.src = whole->data + (at - whole->from),
			.dst = out + (at - whole->from),
			.len = MIN(whole->to - at, (uint64_t)STORE_CHECK_BYTES),
			.tag = tag};
		int ret = store_get_tag(self->get, at, tag);

		nonce_make(whole->body_number, at - whole->start, nonce);
		if (!ret)
			ret = aead_unseal(self->aead, &message);
		if (__builtin_expect(ret != 0, 0))
			return refused(whole->body_number, at - whole->start, ret);
	}
	return 0;
}

static int aead_piece(struct store_crypt_source *self, uint64_t at, struct flow_piece *piece)
{
	struct whole whole = whole_of(self, at, piece);
	uint32_t bytes = (uint32_t)(whole.to - whole.from);
	struct flow_change change;
	int ret = flow_change_begin(&self->elsewhere, piece, bytes, &change);

	if (ret)
		return ret;
	ret = unseal(self, &whole, change.room);
	change.piece.data = change.room + (at - whole.from);
	return crypted(self->source.core, piece, &change, bytes, ret);
}

static int source_next(struct flow_source *source, uint32_t bytes_max, struct flow_piece *ret_piece)
{
	struct store_crypt_source *self = CONTAINER_OF(source, struct store_crypt_source, source);
	struct flow_piece piece;
	struct store_stretch stretch;
	uint64_t at;
	int ret;

	self->inner->share = source->share;
	self->elsewhere.share = source->share;
	ret = flow_source_next(self->inner, bytes_max, &piece);

	if (ret <= 0)
		return ret;
	at = self->start + piece.offset;
	if (self->aead) {
		ret = aead_piece(self, at, &piece);
	} else {
		/* Pieces end with their stretch, because each stretch was written as a body of its
		 * own. */
		store_get_stretch(self->get, at, &stretch);
		ret = ctr_piece(&self->elsewhere, self->ctr, stretch.body_number,
			at - stretch.start, &piece);
	}
	if (ret)
		return ret;
	*ret_piece = piece;
	return 1;
}

static void source_close(struct flow_source *source)
{
	struct store_crypt_source *self = CONTAINER_OF(source, struct store_crypt_source, source);

	flow_source_close(self->inner);
	flow_elsewhere_close(&self->elsewhere);
	ctr_close(self->ctr);
	aead_close(self->aead);
}

static const struct flow_source_ops SOURCE_OPS = {
	.name = "crypt",
	.next = source_next,
	.close = source_close,
};

int store_crypt_source_init(struct store_crypt_source *self, struct store_crypt_key key,
	struct store_get *get, uint64_t offset, struct flow_source *inner)
{
	int ret;

	*self = (struct store_crypt_source){
		.source = {.magic = FLOW_SOURCE_MAGIC,
			.ops = &SOURCE_OPS,
			.core = inner->core,
			.bytes_total = inner->bytes_total,
			.deadline_ns = inner->deadline_ns},
		.inner = inner,
		.get = get,
		.start = offset,
		.elsewhere = {.core = inner->core},
	};
	ret = key.authenticated ? aead_open(key.key, &self->aead) : ctr_open(key.key, &self->ctr);
	return ret;
}

/* ---- The sink. ---- */

static int message_begin(struct store_crypt_sink *self)
{
	uint8_t nonce[AEAD_NONCE_BYTES];

	nonce_make(self->body_number, self->offset, nonce);
	return aead_stream_restart(self->aead, nonce);
}

/* The message that ends at self->offset. */
static int message_end(struct store_crypt_sink *self)
{
	uint64_t from = ALIGN_DOWN(self->offset - 1, (uint64_t)STORE_CHECK_BYTES);
	uint8_t tag[STORE_TAG_BYTES];
	int ret = aead_stream_end(self->aead, tag);

	return ret ? ret : store_put_tagged(self->put, from, tag);
}

/* Pieces have any length: a message continues from one piece to the next. */
static int seal(struct store_crypt_sink *self, const uint8_t *src, uint8_t *dst, uint32_t bytes)
{
	int ret = 0;

	while (bytes && !ret) {
		uint32_t into = (uint32_t)(self->offset % STORE_CHECK_BYTES);
		uint32_t step = MIN(bytes, STORE_CHECK_BYTES - into);

		if (!into)
			ret = message_begin(self);
		if (!ret)
			ret = aead_stream_update(self->aead, src, dst, step);
		self->offset += step;
		if (!ret && self->offset % STORE_CHECK_BYTES == 0)
			ret = message_end(self);
		src += step;
		dst += step;
		bytes -= step;
	}
	return ret;
}

static int seal_piece(struct store_crypt_sink *self, struct flow_piece *piece)
{
	struct flow_change change;
	int ret = flow_change_begin(&self->elsewhere, piece, piece->bytes, &change);

	if (ret)
		return ret;
	CHECK(piece->offset == self->offset);
	ret = seal(self, piece->data, change.piece.data, piece->bytes);
	return crypted(self->sink.core, piece, &change, piece->bytes, ret);
}

static int sink_push(struct flow_sink *sink, struct flow_piece *piece)
{
	struct store_crypt_sink *self = CONTAINER_OF(sink, struct store_crypt_sink, sink);
	int ret;

	self->inner->share = sink->share;
	self->elsewhere.share = sink->share;
	ret = self->aead ? seal_piece(self, piece)
			 : ctr_piece(&self->elsewhere, self->ctr, self->body_number, piece->offset,
				   piece);

	return ret ? ret : flow_sink_push(self->inner, piece);
}

static int sink_finish(struct flow_sink *sink, bool failed)
{
	struct store_crypt_sink *self = CONTAINER_OF(sink, struct store_crypt_sink, sink);
	int ret = 0, inner;

	if (self->aead && !failed && self->offset % STORE_CHECK_BYTES)
		ret = message_end(self);
	flow_elsewhere_close(&self->elsewhere);
	ctr_close(self->ctr);
	aead_stream_close(self->aead);
	inner = flow_sink_finish(self->inner, failed || ret);
	return ret ? ret : inner;
}

static const struct flow_sink_ops SINK_OPS = {
	.name = "crypt",
	.push = sink_push,
	.finish = sink_finish,
};

int store_crypt_sink_init(struct store_crypt_sink *self, struct store_crypt_key key,
	struct store_put *put, struct flow_sink *inner)
{
	static const uint8_t none[AEAD_NONCE_BYTES]; /* each message has its own */
	int ret;

	*self = (struct store_crypt_sink){
		.sink = {.magic = FLOW_SINK_MAGIC,
			.ops = &SINK_OPS,
			.core = inner->core,
			.deadline_ns = inner->deadline_ns},
		.inner = inner,
		.put = put,
		.body_number = store_put_body_number(put),
		.elsewhere = {.core = inner->core},
	};
	ret = key.authenticated ? aead_stream_open(key.key, none, true, &self->aead)
				: ctr_open(key.key, &self->ctr);
	return ret;
}
