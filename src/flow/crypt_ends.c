/* flow/crypt_ends.c: a source and a sink around others, for bodies that lie encrypted: what passes
 * is changed in its own frames where those are the piece's alone, else into others. Data path. */
#include <errno.h>

#include "flow/flow.h"

/* How long an end waits for frames while the one that it stands around may hold some. */
#define LEASE_WAIT_NS (10 * NS_PER_S)

DEFINE_COUNTER(crypted_in_place, "nebulaio_flow_crypted_bytes_total", "frames=\"own\"",
	"Bytes encrypted or decrypted on their way, by where they went.");
DEFINE_COUNTER(crypted_across, "nebulaio_flow_crypted_bytes_total", "frames=\"other\"",
	"Bytes encrypted or decrypted on their way, by where they went.");

/* Ends the piece when it fails. */
static int apply(struct flow_core *core, const struct flow_crypt *crypt, uint64_t stream,
	uint64_t offset, struct flow_piece *piece)
{
	enum region_owner owner = piece->hold == FLOW_HOLD_CACHE ? OWNER_CACHE : OWNER_APP;
	struct flow_piece other = *piece;
	int ret;

	if (piece->hold != FLOW_HOLD_LEASE) {
		ret = flow_lease(core, region_frames_for(piece->bytes), OWNER_APP,
			clock_now_ns() + LEASE_WAIT_NS, &other.span);
		if (ret) {
			flow_piece_end(core, piece, owner);
			return ret;
		}
		other.data = other.span.data;
		other.hold = FLOW_HOLD_LEASE;
	}
	ret = ctr_apply(crypt->ctr, stream, offset, piece->data, other.data, piece->bytes);
	counter_add(
		piece->hold == FLOW_HOLD_LEASE ? &crypted_in_place : &crypted_across, piece->bytes);
	if (piece->hold != FLOW_HOLD_LEASE)
		flow_piece_end(core, piece, owner);
	*piece = other;
	if (ret)
		flow_piece_end(core, piece, OWNER_APP);
	return ret;
}

static int source_next(struct flow_source *source, uint32_t bytes_max, struct flow_piece *ret_piece)
{
	struct flow_crypt_source *self = CONTAINER_OF(source, struct flow_crypt_source, source);
	struct flow_piece piece;
	uint64_t at, start, bytes;
	int ret = self->inner->ops->next(self->inner, bytes_max, &piece);

	if (ret <= 0)
		return ret;
	/* Pieces end with their stretch, and each stretch was written as a body of its own. */
	at = self->start + piece.offset;
	store_get_stretch(self->get, at, &start, &bytes);
	ret = apply(
		source->core, &self->crypt, store_get_stream(self->get, at), at - start, &piece);
	if (ret)
		return ret;
	*ret_piece = piece;
	return 1;
}

static void source_close(struct flow_source *source)
{
	struct flow_crypt_source *self = CONTAINER_OF(source, struct flow_crypt_source, source);

	self->inner->ops->close(self->inner);
	ctr_close(self->crypt.ctr);
}

static const struct flow_source_ops SOURCE_OPS = {
	.name = "crypt",
	.next = source_next,
	.close = source_close,
};

int flow_crypt_source_init(struct flow_crypt_source *self, const uint8_t key[CTR_KEY_BYTES],
	struct store_get *get, uint64_t offset, struct flow_source *inner)
{
	int ret = ctr_open(key, &self->crypt.ctr);

	if (ret)
		return ret;
	self->source = (struct flow_source){.ops = &SOURCE_OPS,
		.core = inner->core,
		.bytes_total = inner->bytes_total,
		.deadline_ns = inner->deadline_ns};
	self->inner = inner;
	self->get = get;
	self->start = offset;
	return 0;
}

static int sink_push(struct flow_sink *sink, struct flow_piece *piece)
{
	struct flow_crypt_sink *self = CONTAINER_OF(sink, struct flow_crypt_sink, sink);
	int ret = apply(sink->core, &self->crypt, self->stream, piece->offset, piece);

	return ret ? ret : self->inner->ops->push(self->inner, piece);
}

static int sink_finish(struct flow_sink *sink, bool failed)
{
	struct flow_crypt_sink *self = CONTAINER_OF(sink, struct flow_crypt_sink, sink);

	ctr_close(self->crypt.ctr);
	return self->inner->ops->finish(self->inner, failed);
}

static const struct flow_sink_ops SINK_OPS = {
	.name = "crypt",
	.push = sink_push,
	.finish = sink_finish,
};

int flow_crypt_sink_init(struct flow_crypt_sink *self, const uint8_t key[CTR_KEY_BYTES],
	const struct store_put *put, struct flow_sink *inner)
{
	int ret = ctr_open(key, &self->crypt.ctr);

	if (ret)
		return ret;
	self->sink = (struct flow_sink){
		.ops = &SINK_OPS, .core = inner->core, .deadline_ns = inner->deadline_ns};
	self->inner = inner;
	self->stream = store_put_stream(put);
	return 0;
}
