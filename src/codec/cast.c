/* codec/cast.c: seals and opens the datagrams of a multicast, and writes and reads its grant. */
#include "codec/cast.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "codec/hash.h"
#include "codec/text.h"

uint32_t cast_payload_bytes(uint32_t mtu)
{
	if (mtu < CAST_OVERHEAD + CAST_PAYLOAD_UNIT)
		return 0;
	return (uint32_t)MIN(
		(mtu - CAST_OVERHEAD) / CAST_PAYLOAD_UNIT * CAST_PAYLOAD_UNIT, CAST_PAYLOAD_MAX);
}

static void nonce_of(uint64_t offset, uint8_t ret_nonce[AEAD_NONCE_BYTES])
{
	memset(ret_nonce, 0, AEAD_NONCE_BYTES);
	memcpy(ret_nonce + AEAD_NONCE_BYTES - sizeof(offset), &offset, sizeof(offset));
}

int cast_seal(struct aead *aead, uint64_t stream, uint64_t offset, const void *src, uint32_t bytes,
	uint8_t *datagram)
{
	const struct cast_head head = {.magic = CAST_MAGIC,
		.version = CAST_VERSION,
		.stream = stream,
		.offset = offset,
		.bytes = bytes};
	uint8_t nonce[AEAD_NONCE_BYTES];
	const struct aead_message message = {.nonce = nonce,
		.aad = slice_of(datagram, sizeof(head)),
		.src = src,
		.dst = cast_payload(datagram),
		.len = bytes,
		.tag = cast_payload(datagram) + bytes};

	nonce_of(offset, nonce);
	memcpy(datagram, &head, sizeof(head));
	return aead_seal(aead, &message);
}

bool cast_look(const void *datagram, size_t len, uint64_t stream, struct cast_head *ret_head)
{
	struct cast_head head;

	if (len <= CAST_OVERHEAD)
		return false;
	memcpy(&head, datagram, sizeof(head));
	if (head.magic != CAST_MAGIC || head.version != CAST_VERSION || head.zero ||
		head.zero_too || head.stream != stream || head.bytes != len - CAST_OVERHEAD)
		return false;
	*ret_head = head;
	return true;
}

int cast_unseal(struct aead *aead, const void *datagram, const struct cast_head *head, void *dst)
{
	const uint8_t *payload = (const uint8_t *)datagram + CAST_HEAD_BYTES;
	uint8_t nonce[AEAD_NONCE_BYTES], tag[AEAD_TAG_BYTES];
	const struct aead_message message = {.nonce = nonce,
		.aad = slice_of(datagram, CAST_HEAD_BYTES),
		.src = payload,
		.dst = dst,
		.len = head->bytes,
		.tag = tag};

	nonce_of(head->offset, nonce);
	memcpy(tag, payload + head->bytes, sizeof(tag));
	return aead_unseal(aead, &message);
}

void cast_grant_write(const struct cast_grant *grant, char ret_text[CAST_TEXT_BYTES])
{
	char key[2 * AEAD_KEY_BYTES + 1] = "";

	hex_encode(grant->key, AEAD_KEY_BYTES, key);
	snprintf(ret_text, CAST_TEXT_BYTES, "group=%s; stream=%016llx; key=%s; payload=%u",
		grant->group, (unsigned long long)grant->stream, key, grant->payload_bytes);
	secret_wipe(key, sizeof(key));
}

static int field_read(struct slice name, struct slice value, struct cast_grant *grant)
{
	uint8_t stream[sizeof(grant->stream)];
	uint64_t number = 0;

	if (slice_eq(name, SLICE("group")))
		return slice_copy_str(value, grant->group, sizeof(grant->group));
	if (slice_eq(name, SLICE("key")))
		return hex_decode(value, grant->key, sizeof(grant->key));
	if (slice_eq(name, SLICE("payload"))) {
		if (slice_to_u64(value, &number) || number > CAST_PAYLOAD_MAX)
			return -EINVAL;
		grant->payload_bytes = (uint32_t)number;
		return 0;
	}
	if (!slice_eq(name, SLICE("stream")) || hex_decode(value, stream, sizeof(stream)))
		return -EINVAL;
	for (size_t i = 0; i < sizeof(stream); i++)
		grant->stream = grant->stream << 8 | stream[i];
	return 0;
}

int cast_grant_read(struct slice text, struct cast_grant *ret_grant)
{
	struct cast_grant grant = {.stream = 0};
	int ret = 0;

	while (text.len && !ret) {
		struct slice field = slice_split(&text, ';');
		struct slice name = slice_trim(slice_split(&field, '='));

		ret = field_read(name, slice_trim(field), &grant);
	}
	if (!ret && grant.group[0] && grant.payload_bytes)
		*ret_grant = grant;
	else
		ret = -EINVAL;
	secret_wipe(&grant, sizeof(grant));
	return ret;
}
