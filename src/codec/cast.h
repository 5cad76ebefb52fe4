/* codec/cast.h: the datagrams that bring an object to a multicast group, byte for byte, and the
 * header that hands out what a member needs: docs/spec/wire.md, "Multicast of objects".
 *
 * Everybody on a network can join a group and send to it. So each datagram is sealed by AES-256-GCM
 * under a key of this group, object version and start, which only its members get. A datagram's
 * offset is its nonce: one offset always has the same bytes. */
#ifndef CODEC_CAST_H
#define CODEC_CAST_H

#include "base/base.h"
#include "codec/aead.h"

#define CAST_MAGIC	  0x314d424eu /* "NBM1" */
#define CAST_VERSION	  1u
#define CAST_HEAD_BYTES	  32u
#define CAST_OVERHEAD	  (CAST_HEAD_BYTES + AEAD_TAG_BYTES)
#define CAST_PAYLOAD_UNIT 64u
#define CAST_PAYLOAD_MAX  4032u
/* A member asks for a part at a time. A part begins where a chunk of the store may begin: its size
 * is the power of two that holds so many full datagrams, and is less than twice them. */
#define CAST_PART_DATAGRAMS	256u
#define CAST_PART_DATAGRAMS_MAX (2 * CAST_PART_DATAGRAMS)
#define CAST_GROUP_BYTES	64u
#define CAST_HEADER		"x-nebulaio-multicast"
#define CAST_TEXT_BYTES		224u

struct cast_head {
	uint32_t magic;
	uint16_t version;
	uint16_t zero;
	uint64_t stream; /* a random number: this group, object version and start */
	uint64_t offset; /* of the payload, in the object */
	uint32_t bytes;	 /* of the payload */
	uint32_t zero_too;
};
_Static_assert(sizeof(struct cast_head) == CAST_HEAD_BYTES, "as specified");

/* A member gets the group's address, and all that it needs to read its datagrams. */
struct cast_grant {
	char group[CAST_GROUP_BYTES];
	uint64_t stream;
	uint8_t key[AEAD_KEY_BYTES];
	uint32_t payload_bytes; /* of each datagram but a part's last */
};

/* The payload of a datagram that a packet of this many bytes has room for; 0: none. */
uint32_t cast_payload_bytes(uint32_t mtu);
/* The bytes of a part that is not the object's last. */
static inline uint64_t cast_part_full(uint32_t payload_bytes)
{
	uint64_t bytes = CAST_PART_DATAGRAMS;

	while (bytes < (uint64_t)CAST_PART_DATAGRAMS * payload_bytes)
		bytes *= 2;
	return bytes;
}
/* The bytes of the part that begins there, and the datagrams that bring so many. */
static inline uint64_t cast_part_bytes(
	uint64_t object_bytes, uint64_t offset, uint32_t payload_bytes)
{
	return MIN(object_bytes - offset, cast_part_full(payload_bytes));
}
static inline uint32_t cast_part_datagrams(uint64_t part_bytes, uint32_t payload_bytes)
{
	return (uint32_t)((part_bytes + payload_bytes - 1) / payload_bytes);
}
/* Fills the datagram, which has CAST_OVERHEAD bytes more than the payload. src may be the
 * datagram's own place for the payload. -EIO. */
int cast_seal(struct aead *aead, uint64_t stream, uint64_t offset, const void *src, uint32_t bytes,
	uint8_t *datagram);
/* Where the payload of a datagram stands. */
static inline uint8_t *cast_payload(uint8_t *datagram)
{
	return datagram + CAST_HEAD_BYTES;
}
/* Whether it looks like a datagram of the stream; nothing of it is known to be true yet. */
bool cast_look(const void *datagram, size_t len, uint64_t stream, struct cast_head *ret_head);
/* The payload of a datagram that cast_look accepted goes to dst. -EBADMSG: it is not of the group's
 * sender; dst is zeroed. */
int cast_unseal(struct aead *aead, const void *datagram, const struct cast_head *head, void *dst);

/* The value of CAST_HEADER: "group=239.192.78.3; stream=HEX; key=HEX; payload=4032". */
void cast_grant_write(const struct cast_grant *grant, char ret_text[CAST_TEXT_BYTES]);
/* -EINVAL. */
int cast_grant_read(struct slice text, struct cast_grant *ret_grant);

#endif
