/* client/crypt.c: bodies of encrypted sessions (docs/spec/wire.md section 7). Sent bodies are
 * encrypted into separate memory, because the caller's memory is read only; received bodies are
 * decrypted where the server wrote them. */
#include "session_priv.h"

#include <errno.h>
#include <string.h>

/* One call at a time seals or opens on a session, so its spare is nearly always there. */
static int stream_take(struct client_session *session, uint64_t counter, bool seal,
	struct aead_stream **ret_stream)
{
	uint8_t nonce[AEAD_NONCE_BYTES];

	capsule_payload_nonce(counter, nonce);
	return aead_stream_take(seal ? &session->spare_out : &session->spare_in,
		seal ? session->payload_out : session->payload_in, nonce, seal, ret_stream);
}

int client_body_seal(struct client_session *session, struct client_call *call,
	struct capsule_run *ret_run, uint8_t ret_tag[AEAD_TAG_BYTES])
{
	struct aead_stream *stream;
	uint8_t *at;
	int ret = client_memory_lease(call, MAX(call->body_bytes, call->into_bytes), ret_run);

	if (ret)
		return ret;
	at = (uint8_t *)(uintptr_t)ret_run->addr;
	ret = stream_take(session, call->counter, true, &stream);
	if (ret)
		return ret;
	for (uint32_t i = 0; ret == 0 && i < call->body_count; i++) {
		const void *from = call->body[i].data;

		if (client_gpu_owns(from)) {
			client_piece_copy(call->client, at, from, call->body[i].bytes, from);
			from = at;
		}
		ret = aead_stream_update(stream, from, at, call->body[i].bytes);
		at += call->body[i].bytes;
	}
	if (ret == 0)
		ret = aead_stream_end(stream, ret_tag);
	aead_stream_keep(&session->spare_out, stream);
	return ret;
}

/* The bytes of the answer, run by run, in place: in the call's own memory, or in its into. */
static uint64_t answer_run(
	const struct client_call *call, uint32_t idx, uint64_t bytes_left, uint8_t **ret_data)
{
	if (call->bounce || call->sealed) {
		*ret_data = call->bounce ? call->bounce : call->sealed;
		return bytes_left;
	}
	*ret_data = call->into[idx].data;
	return MIN(call->into[idx].bytes, bytes_left);
}

int client_answer_open(struct client_session *session, struct client_call *call, uint64_t bytes,
	struct slice payload_tag)
{
	uint8_t tag[AEAD_TAG_BYTES], *data;
	struct aead_stream *stream = NULL;
	uint64_t left = bytes, run;
	int ret;

	if (payload_tag.len != sizeof(tag))
		return -EBADMSG;
	memcpy(tag, payload_tag.data, sizeof(tag));
	ret = stream_take(session, call->counter, false, &stream);
	for (uint32_t i = 0; ret == 0 && left; i++, left -= run) {
		run = answer_run(call, i, left, &data);
		ret = aead_stream_update(stream, data, data, run);
	}
	if (ret == 0)
		ret = aead_stream_end(stream, tag);
	aead_stream_keep(&session->spare_in, stream);
	left = ret ? bytes : 0;
	for (uint32_t i = 0; left; i++, left -= run) {
		run = answer_run(call, i, left, &data);
		if (run)
			secret_wipe(data, run);
	}
	return ret;
}
