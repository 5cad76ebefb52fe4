/* client/crypt.c: bodies of encrypted sessions (docs/spec/wire.md section 7). Sent bodies are
 * encrypted into separate memory, because the caller's memory is read only; received bodies are
 * decrypted where the server wrote them, part by part as the server tells. */
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
	int ret;

	if (call->body_bytes > AEAD_MESSAGE_BYTES_MAX)
		return -EFBIG;
	ret = client_memory_lease(call, MAX(call->body_bytes, call->into_bytes), ret_run);
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

/* The answer's bytes from the offset on, up to the end of their run, in place: in the call's own
 * memory, or in its into. */
static uint64_t answer_span(
	const struct client_call *call, uint64_t offset, uint64_t bytes_left, uint8_t **ret_data)
{
	uint32_t idx = 0;

	if (call->bounce || call->sealed) {
		*ret_data = (uint8_t *)(call->bounce ? call->bounce : call->sealed) + offset;
		return bytes_left;
	}
	while (offset >= call->into[idx].bytes)
		offset -= call->into[idx++].bytes;
	*ret_data = (uint8_t *)call->into[idx].data + offset;
	return MIN(call->into[idx].bytes - offset, bytes_left);
}

int client_part_open(struct client_session *session, struct client_call *call, uint64_t bytes)
{
	uint8_t *data;
	int ret = 0;

	if (!call->opener) {
		call->opened = 0;
		ret = stream_take(session, call->counter, false, &call->opener);
	}
	while (ret == 0 && call->opened < bytes) {
		uint64_t span = answer_span(call, call->opened, bytes - call->opened, &data);

		ret = aead_stream_update(call->opener, data, data, span);
		call->opened += span;
	}
	return ret;
}

void client_opened_drop(struct client_call *call)
{
	uint8_t *data;
	uint64_t span;

	for (uint64_t at = 0; at < call->opened; at += span) {
		span = answer_span(call, at, call->opened - at, &data);
		secret_wipe(data, span);
	}
	aead_stream_keep(&call->session->spare_in, call->opener);
	call->opener = NULL;
}

int client_answer_open(struct client_session *session, struct client_call *call, uint64_t bytes,
	struct slice payload_tag)
{
	uint8_t tag[AEAD_TAG_BYTES];
	int ret;

	if (payload_tag.len != sizeof(tag) || (call->opener && bytes < call->opened))
		return -EBADMSG;
	memcpy(tag, payload_tag.data, sizeof(tag));
	ret = client_part_open(session, call, bytes);
	if (ret == 0)
		ret = aead_stream_end(call->opener, tag);
	if (ret)
		return ret;
	aead_stream_keep(&session->spare_in, call->opener);
	call->opener = NULL;
	return 0;
}
