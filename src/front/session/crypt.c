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

struct native_crypt {
	struct native_request *request;
	struct aead_stream *stream;
	struct aead_stream **spare; /* the session's, of this direction */
	uint64_t bytes_left;	    /* source: until the tag must fit */
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

static int seal_push(struct flow_sink *sink, struct flow_piece *piece)
{
	struct native_crypt *crypt = CONTAINER_OF(sink, struct native_crypt, sink);
	uint32_t bytes = piece->bytes;
	struct flow_change change;
	int ret;

	crypt->inner_sink->share = sink->share;
	crypt->elsewhere.share = sink->share;
	counter_add(&sealed_bytes, bytes);
	ret = flow_change_begin(&crypt->elsewhere, piece, bytes, &change);
	if (ret)
		return ret;
	ret = aead_stream_update(crypt->stream, piece->data, change.piece.data, bytes);
	ret = flow_change_end(sink->core, piece, &change, ret);
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

int native_crypt_sink(struct native_request *request, struct flow_sink **sink)
{
	struct native_crypt *crypt = crypt_open(request, true);

	if (!crypt)
		return -ENOMEM;
	request->sealer = crypt;
	crypt->inner_sink = *sink;
	crypt->sink = **sink;
	crypt->sink.ops = &SEAL_OPS;
	*sink = &crypt->sink;
	return 0;
}
