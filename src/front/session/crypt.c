/* front/session/crypt.c: encrypts and decrypts bodies of encrypted sessions while they move: a
 * client's body is opened in the frames it was READ into; a body for a client is sealed in frames
 * that nobody else reads. One body is one message of AES-256-GCM; its nonce is the request's
 * counter, so a key never uses a nonce twice. docs/spec/wire.md section 7. */
#include "front/session/native_priv.h"

#include <errno.h>
#include <stdlib.h>

DEFINE_COUNTER(opened_bytes, "nebulaio_native_encrypted_bytes_total", "direction=\"in\"",
	"Payload bytes of encrypted sessions, decrypted and encrypted.");
DEFINE_COUNTER(sealed_bytes, "nebulaio_native_encrypted_bytes_total", "direction=\"out\"",
	"Payload bytes of encrypted sessions, decrypted and encrypted.");

/* Of a body that is sealed while it moves: a few of them fit the processor's own cache. */
#define SEAL_STEP_BYTES (64u * KIB)
/* A smaller part costs more to tell than its client gains. */
#define SEAL_PART_BYTES_MIN (16u * KIB)

#define PART_CAPSULE_BYTES (sizeof(struct capsule_response_wire) + CAPSULE_TAG_BYTES)
_Static_assert(PART_CAPSULE_BYTES <= CAPSULE_BYTES_MIN, "it fits every client's receives");
_Static_assert(LIMIT_PUT_BYTES_MAX <= AEAD_MESSAGE_BYTES_MAX, "a client's body is one message");

DEFINE_COUNTER(parts_told, "nebulaio_native_body_parts_total", NULL,
	"Parts of encrypted bodies that clients were told of before the answer.");

struct native_crypt {
	struct native_request *request;
	struct aead_stream *stream;
	struct aead_stream **spare; /* the session's, of this direction */
	uint64_t bytes_left;	    /* source: until the tag must fit */
	/* Sink. */
	uint32_t step_bytes;
	uint64_t part_bytes; /* 0: the client is not told of parts */
	uint64_t pushed;     /* into the inner sink */
	uint64_t told;	     /* so many bytes are there, as the client knows */
	struct flow_source source, *inner_source;
	struct flow_sink sink, *inner_sink;
	struct flow_elsewhere elsewhere; /* of the sink's */
};

static struct native_crypt *crypt_open(struct native_request *request, bool seal)
{
	struct native_session *session = request->session;
	struct native_crypt *crypt = calloc(1, sizeof(*crypt));
	uint8_t nonce[AEAD_NONCE_BYTES];

	if (!crypt)
		return NULL;
	crypt->request = request;
	crypt->spare = seal ? &session->spare_out : &session->spare_in;
	crypt->elsewhere.core = session->front->opts.core;
	capsule_payload_nonce(request->counter, nonce);
	if (aead_stream_take(crypt->spare, seal ? session->payload_out : session->payload_in, nonce,
		    seal, &crypt->stream) == 0)
		return crypt;
	free(crypt);
	return NULL;
}

static void crypt_close(struct native_crypt *crypt)
{
	if (!crypt)
		return;
	flow_elsewhere_close(&crypt->elsewhere);
	aead_stream_keep(crypt->spare, crypt->stream);
	free(crypt);
}

void native_crypt_end(struct native_request *request)
{
	crypt_close(request->opener);
	crypt_close(request->sealer);
	request->opener = NULL;
	request->sealer = NULL;
}

/* ---- In. ---- */

static int refuse_payload(struct native_request *request)
{
	request->reply.status = 400;
	request->refusal = "PayloadTagMismatch";
	request->refusal_message = "The body does not match its authentication tag.";
	return -EBADMSG;
}

static int open_next(struct flow_source *source, uint32_t bytes_max, struct flow_piece *ret_piece)
{
	struct native_crypt *crypt = CONTAINER_OF(source, struct native_crypt, source);
	struct native_request *request = crypt->request;
	uint8_t tag[AEAD_TAG_BYTES];
	int ret;

	crypt->inner_source->share = source->share;
	ret = flow_source_next(crypt->inner_source, bytes_max, ret_piece);
	if (ret <= 0)
		return ret;
	ret = aead_stream_update(crypt->stream, ret_piece->data, ret_piece->data, ret_piece->bytes);
	crypt->bytes_left -= ret_piece->bytes;
	counter_add(&opened_bytes, ret_piece->bytes);
	/* Nothing is committed before the last piece, and the last piece is passed on only after
	 * verification. */
	if (ret == 0 && crypt->bytes_left == 0) {
		memcpy(tag, request->in.payload_tag.data, sizeof(tag));
		ret = aead_stream_end(crypt->stream, tag);
	}
	if (ret == 0)
		return 1;
	flow_piece_end(source->core, ret_piece, OWNER_APP);
	return ret == -EBADMSG ? refuse_payload(request) : ret;
}

static void open_close(struct flow_source *source)
{
	struct native_crypt *crypt = CONTAINER_OF(source, struct native_crypt, source);

	flow_source_close(crypt->inner_source);
}

static const struct flow_source_ops OPEN_OPS = {
	.name = "native-decrypt", .next = open_next, .close = open_close};

int native_crypt_source(struct native_request *request, struct flow_source **source)
{
	struct native_crypt *crypt = crypt_open(request, false);

	if (!crypt)
		return -ENOMEM;
	request->opener = crypt;
	crypt->bytes_left = request->in.body_bytes;
	crypt->inner_source = *source;
	crypt->source = **source;
	crypt->source.ops = &OPEN_OPS;
	*source = &crypt->source;
	return 0;
}

/* ---- Out. ---- */

/* Tells the client how much of the body is there, so that it decrypts that while the rest comes.
 * Small bodies are posted in order; others are there when the device has completed them. */
static int tell_part(struct native_crypt *crypt)
{
	struct native_request *request = crypt->request;
	bool direct = crypt->inner_sink == &request->sink;
	const struct capsule_response response = {
		.request_id = request->in.request_id,
		.server_id = request->server_id,
		.bytes_moved = direct ? crypt->pushed : flow_progress_moved(&request->progress),
		.bytes_total = request->bytes_announced,
		.status = (uint16_t)request->reply.status,
		.flags = CAPSULE_RESPONSE_MORE,
	};
	uint8_t capsule[PART_CAPSULE_BYTES] __attribute__((aligned(8)));
	struct native_out out = {.capsule = capsule, .sealed = true, .wait = true};
	ptrdiff_t bytes;

	if (!crypt->part_bytes || response.bytes_moved < crypt->told + crypt->part_bytes)
		return 0;
	if (sizeof(capsule) > request->session->wr_inline_bytes) {
		/* It can be left out. */
		if (region_lease(request->session->front->region, 1, OWNER_RDMA, &out.span) != 0)
			return 0;
		out.capsule = out.span.data;
	}
	bytes = capsule_response_encode(&response, out.capsule, sizeof(capsule));
	CHECK(bytes == sizeof(capsule));
	crypt->told = response.bytes_moved;
	counter_add(&parts_told, 1);
	return native_send_capsule(request->session, &out);
}

/* Seals the next bytes of the piece into a piece of their own; moved says how many it has already
 * given. Where no frames are free, the rest goes to memory outside the region in one step, because
 * the copy into frames may wait, and the fiber must hold none meanwhile. */
static int seal_step(struct native_crypt *crypt, const struct flow_piece *piece, uint32_t moved,
	struct flow_piece *ret_step)
{
	uint32_t left = piece->bytes - moved;
	int ret;

	*ret_step = *piece;
	ret_step->offset += moved;
	ret_step->bytes = MIN(left, crypt->step_bytes);
	ret = flow_elsewhere(&crypt->elsewhere, ret_step->bytes, ret_step);
	if (ret)
		return ret;
	if (ret_step->hold == FLOW_HOLD_BORROWED)
		ret_step->bytes = left;
	ret = aead_stream_update(
		crypt->stream, piece->data + moved, ret_step->data, ret_step->bytes);
	if (ret)
		flow_piece_end(crypt->elsewhere.core, ret_step, OWNER_APP);
	return ret;
}

/* The frames are the cache's, which others read: sealed elsewhere, step by step, so that the device
 * moves one step while the next one is sealed, and the steps stay in the processor's cache. */
static int seal_cached(struct native_crypt *crypt, struct flow_piece *piece)
{
	struct flow_sink *inner = crypt->inner_sink;
	struct flow_piece step;
	uint32_t moved = 0;
	int ret;

	while ((ret = seal_step(crypt, piece, moved, &step)) == 0) {
		moved += step.bytes;
		crypt->pushed += step.bytes;
		if (moved == piece->bytes)
			break;
		ret = flow_sink_push(inner, &step);
		if (ret)
			break;
		/* The ring starts work between fibers. */
		if (inner == &crypt->request->sink)
			fiber_yield_due();
		else
			fiber_yield();
		ret = tell_part(crypt);
		if (ret)
			break;
	}
	flow_piece_end(inner->core, piece, OWNER_APP);
	if (ret)
		return ret;
	*piece = step;
	return flow_sink_push(inner, piece);
}

static int seal_push(struct flow_sink *sink, struct flow_piece *piece)
{
	struct native_crypt *crypt = CONTAINER_OF(sink, struct native_crypt, sink);
	int ret = tell_part(crypt);

	crypt->inner_sink->share = sink->share;
	crypt->elsewhere.share = sink->share;
	counter_add(&sealed_bytes, piece->bytes);
	if (piece->hold != FLOW_HOLD_LEASE && ret == 0)
		return seal_cached(crypt, piece);
	if (ret == 0)
		ret = aead_stream_update(crypt->stream, piece->data, piece->data, piece->bytes);
	crypt->pushed += piece->bytes;
	if (ret)
		flow_piece_end(sink->core, piece, OWNER_APP);
	return ret ? ret : flow_sink_push(crypt->inner_sink, piece);
}

static int seal_finish(struct flow_sink *sink, bool failed)
{
	struct native_crypt *crypt = CONTAINER_OF(sink, struct native_crypt, sink);
	struct native_request *request = crypt->request;
	int ret = failed ? 0 : aead_stream_end(crypt->stream, request->payload_tag);
	int finished = flow_sink_finish(crypt->inner_sink, failed || ret);

	request->has_payload_tag = !failed && !ret && !finished;
	return ret ? ret : finished;
}

static const struct flow_sink_ops SEAL_OPS = {
	.name = "native-encrypt", .push = seal_push, .finish = seal_finish};

/* At most CAPSULE_PARTS_MAX of whole frames; the last one may be shorter. */
static void parts_plan(struct native_crypt *crypt, uint64_t bytes)
{
	uint64_t part_bytes = (bytes + CAPSULE_PARTS_MAX - 1) / CAPSULE_PARTS_MAX;

	crypt->part_bytes =
		ALIGN_UP(MAX(part_bytes, (uint64_t)SEAL_PART_BYTES_MIN), (uint64_t)FRAME_BYTES);
	crypt->step_bytes = (uint32_t)MIN(crypt->part_bytes, (uint64_t)crypt->step_bytes);
}

int native_crypt_sink(struct native_request *request, struct flow_sink **sink)
{
	struct native_crypt *crypt = crypt_open(request, true);

	if (!crypt)
		return -ENOMEM;
	request->sealer = crypt;
	crypt->step_bytes = SEAL_STEP_BYTES;
	if (request->session->parts && request->in.flags & CAPSULE_REQUEST_PARTS)
		parts_plan(crypt, request->bytes_announced);
	crypt->inner_sink = *sink;
	crypt->sink = **sink;
	crypt->sink.ops = &SEAL_OPS;
	*sink = &crypt->sink;
	return 0;
}
