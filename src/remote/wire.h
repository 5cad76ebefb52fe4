/* remote/wire.h: docs/spec/wire.md, "Volumes", in C: the messages between a host and a volume on
 * another host. All of it is outside input: decoding checks every field. */
#ifndef REMOTE_WIRE_H
#define REMOTE_WIRE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "codec/hash.h"

#define WIRE_MAGIC	  0x3156424eu
#define WIRE_VERSION	  1u
#define WIRE_BYTES_MAX	  160u /* of a capsule */
#define WIRE_RECV_BYTES	  192u
#define WIRE_DEPTH_MAX	  128u
#define WIRE_TRANSFER_MAX (1u << 20)
#define WIRE_NAME_MAX	  63u
#define WIRE_SECRET_MIN	  16u
#define WIRE_SECRET_MAX	  256u
#define WIRE_NONCE_BYTES  32u
#define WIRE_HOLDER_BYTES 16u

_Static_assert(WIRE_TRANSFER_MAX <= LIMIT_SPAN_FRAMES_MAX * FRAME_BYTES, "a transfer is a span");

enum wire_kind {
	WIRE_HELLO = 1,
	WIRE_CHALLENGE,
	WIRE_PROOF,
	WIRE_WELCOME,
	WIRE_REFUSE,
	WIRE_COMMAND,
	WIRE_RESPONSE,
};

struct wire_head {
	uint32_t magic;
	uint8_t version;
	uint8_t kind;
	uint16_t bytes;
	uint64_t counter; /* 0 in set-up; then 1, 2, 3 … in each direction */
};

struct wire_hello {
	struct wire_head head;
	uint16_t flags;
	uint16_t depth;
	uint32_t lane;
	/* With WIRE_HELLO_EPOCH its second half is the owner's epoch. */
	uint8_t holder[WIRE_HOLDER_BYTES];
	uint8_t nonce[WIRE_NONCE_BYTES];
	char name[WIRE_NAME_MAX + 1];
};
#define WIRE_HELLO_READ_ONLY 1u
#define WIRE_HELLO_EPOCH     2u

struct wire_challenge {
	struct wire_head head;
	uint16_t depth;
	uint16_t reserved;
	uint32_t transfer_max;
	uint8_t nonce[WIRE_NONCE_BYTES];
};

struct wire_proof {
	struct wire_head head;
	uint8_t proof[SHA256_BYTES];
};

/* The identity of the volume, protected by the proof. */
struct wire_identity {
	uint64_t bytes;
	uint64_t medium_bytes;
	uint32_t align;
	uint32_t flags;
	char what[64];
};
#define WIRE_CAN_GROW	 1u
#define WIRE_CAN_DISCARD 2u

struct wire_welcome {
	struct wire_head head;
	uint8_t proof[SHA256_BYTES];
	struct wire_identity identity;
};

enum wire_reason {
	WIRE_MALFORMED = 1,
	WIRE_NO_VOLUME,
	WIRE_WRONG_SECRET,
	WIRE_BUSY,
	WIRE_FULL,
	WIRE_STALE,
	WIRE_UNKEPT,
};
struct wire_refuse {
	struct wire_head head;
	uint32_t reason;
	uint32_t reserved;
};

enum wire_op {
	WIRE_READ = 1,
	WIRE_WRITE,
	WIRE_FLUSH,
	WIRE_IDENTIFY,
	WIRE_DEALLOCATE,
	WIRE_ZERO,
	WIRE_GROW,
	WIRE_OP_END,
};
struct wire_command {
	struct wire_head head;
	uint8_t op;
	uint8_t reserved0;
	uint16_t slot;
	uint32_t rkey;
	uint64_t offset;
	uint64_t bytes;
	uint64_t addr;
	uint8_t tag[SIPHASH_BYTES];
};

enum wire_status {
	WIRE_OK,
	WIRE_IO_ERROR,
	WIRE_NO_SPACE,
	WIRE_OUT_OF_RANGE,
	WIRE_INVALID,
	WIRE_UNSUPPORTED,
	WIRE_READ_ONLY,
	WIRE_STATUS_END,
};
struct wire_response {
	struct wire_head head;
	uint16_t slot;
	uint16_t status;
	uint32_t reserved;
	uint64_t bytes; /* the volume's, now */
	uint64_t medium_bytes;
	uint8_t tag[SIPHASH_BYTES];
};

_Static_assert(sizeof(struct wire_head) == 16, "as specified");
_Static_assert(sizeof(struct wire_hello) == 136, "as specified");
_Static_assert(sizeof(struct wire_challenge) == 56, "as specified");
_Static_assert(sizeof(struct wire_proof) == 48, "as specified");
_Static_assert(sizeof(struct wire_welcome) == 136, "as specified");
_Static_assert(sizeof(struct wire_refuse) == 24, "as specified");
_Static_assert(sizeof(struct wire_command) == 64, "as specified");
_Static_assert(sizeof(struct wire_response) == 56, "as specified");
_Static_assert(sizeof(struct wire_hello) <= WIRE_BYTES_MAX, "a capsule fits its receive");

/* Any capsule, in its receive. */
union wire_capsule {
	struct wire_head head;
	struct wire_hello hello;
	struct wire_challenge challenge;
	struct wire_proof proof;
	struct wire_welcome welcome;
	struct wire_refuse refuse;
	struct wire_command command;
	struct wire_response response;
	uint8_t room[WIRE_RECV_BYTES];
};

/* The keys that both ends derive from the secret and the set-up. Holds secrets: secret_wipe. */
struct wire_keys {
	uint8_t key[SHA256_BYTES];
	uint8_t initiator[SIPHASH_BYTES]; /* of tags */
	uint8_t target[SIPHASH_BYTES];
};
void wire_keys_make(struct wire_keys *keys, struct slice secret, const struct wire_hello *hello,
	const struct wire_challenge *challenge);
void wire_proof_make(const struct wire_keys *keys, uint8_t ret_proof[SHA256_BYTES]);
void wire_welcome_make(const struct wire_keys *keys, const struct wire_identity *identity,
	uint8_t ret_proof[SHA256_BYTES]);

/* The owner's epoch: 1 to INT64_MAX; 0: the initiator has none. */
void wire_epoch_set(struct wire_hello *hello, uint64_t epoch);
uint64_t wire_epoch(const struct wire_hello *hello);

void wire_head_fill(struct wire_head *head, enum wire_kind kind, uint16_t bytes, uint64_t counter);
/* The tag is the capsule's end. */
void wire_seal(void *capsule, const uint8_t key[SIPHASH_BYTES]);
/* 0, or -EPROTO: not a capsule of that kind, or a field is invalid; for commands and responses, the
 * tag and the counter are checked too. */
int wire_check(const union wire_capsule *capsule, uint32_t bytes, enum wire_kind kind);
int wire_check_sealed(const union wire_capsule *capsule, uint32_t bytes, enum wire_kind kind,
	uint64_t counter, const uint8_t key[SIPHASH_BYTES]);

/* "it has no volume of that name". Static; for any number. */
const char *wire_reason_text(uint32_t reason);
uint16_t wire_status_of(int error);
int wire_status_errno(uint16_t status);

#endif
