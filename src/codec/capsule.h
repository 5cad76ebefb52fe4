/* codec/capsule.h: the native protocol's capsules as both ends compile them. docs/spec/wire.md
 * describes the same format and has the same numbers.
 *
 * Pure bytes to bytes: no heap, every length checked before it is used. A capsule buffer is 8-byte
 * aligned. Slices of a decoded capsule point into its buffer. */
#ifndef CODEC_CAPSULE_H
#define CODEC_CAPSULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"
#include "base/slice.h"
#include "codec/aead.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the wire is read in place");

#define CAPSULE_MAGIC		   0x3143424eu /* "NBC1" */
#define CAPSULE_VERSION		   1u
#define CAPSULE_TAG_BYTES	   16u
#define CAPSULE_NONCE_BYTES	   32u
#define CAPSULE_PROOF_BYTES	   32u
#define CAPSULE_BYTES_MIN	   1024u /* the least capsule size a session may have */
#define CAPSULE_PATH_LEN_MAX	   4096u
#define CAPSULE_QUERY_LEN_MAX	   4096u
#define CAPSULE_HEADERS_BYTES_MAX  8192u
#define CAPSULE_HEADERS_MAX	   64u
#define CAPSULE_VERSION_ID_LEN_MAX 64u
#define CAPSULE_ETAG_LEN_MAX	   80u
#define CAPSULE_CODE_LEN_MAX	   64u
#define CAPSULE_MESSAGE_LEN_MAX	   1024u
/* An encrypted body comes in at most so many parts, the last one with the answer. */
#define CAPSULE_PARTS_MAX 8u
/* Beyond one receive per credit: for PATHS and GOODBYE. */
#define CAPSULE_SPARE_RECEIVES 2u
/* Addresses that a server tells. */
#define CAPSULE_ADDRESSES_MAX 8u

enum capsule_kind {
	CAPSULE_HELLO = 1,
	CAPSULE_CHALLENGE = 2,
	CAPSULE_PROOF = 3,
	CAPSULE_WELCOME = 4,
	CAPSULE_REFUSE = 5,
	CAPSULE_REQUEST = 6,
	CAPSULE_RESPONSE = 7,
	CAPSULE_GOODBYE = 8,
	CAPSULE_PATHS = 9,
};

enum capsule_opcode {
	CAPSULE_OP_GET = 1,
	CAPSULE_OP_PUT = 2,
	CAPSULE_OP_DELETE = 3,
	CAPSULE_OP_HEAD = 4,
	CAPSULE_OP_LIST = 5,
	CAPSULE_OP_CREATE_MULTIPART = 6,
	CAPSULE_OP_UPLOAD_PART = 7,
	CAPSULE_OP_COMPLETE_MULTIPART = 8,
	CAPSULE_OP_ABORT_MULTIPART = 9,
	CAPSULE_OP_COPY = 10,
	CAPSULE_OP_DELETE_MANY = 11,
	CAPSULE_OP_LIST_MULTIPART = 12,
	CAPSULE_OP_LIST_PARTS = 13,
	CAPSULE_OP_LIST_VERSIONS = 14,
	CAPSULE_OP_GET_TAGGING = 15,
	CAPSULE_OP_PUT_TAGGING = 16,
	CAPSULE_OP_DELETE_TAGGING = 17,
	CAPSULE_OP_LIST_BUCKETS = 18,
	CAPSULE_OP_CREATE_BUCKET = 19,
	CAPSULE_OP_DELETE_BUCKET = 20,
	CAPSULE_OP_HEAD_BUCKET = 21,
	CAPSULE_OP_GET_BUCKET_LOCATION = 22,
	CAPSULE_OP_S3 = 32,
	CAPSULE_OP_PING = 48,
	CAPSULE_OP_STATISTICS = 49, /* reserved */
};

enum capsule_method {
	CAPSULE_METHOD_NONE = 0,
	CAPSULE_METHOD_GET = 1,
	CAPSULE_METHOD_HEAD = 2,
	CAPSULE_METHOD_PUT = 3,
	CAPSULE_METHOD_POST = 4,
	CAPSULE_METHOD_DELETE = 5,
};

enum capsule_goodbye_reason {
	CAPSULE_BYE_DRAINING = 1,
	CAPSULE_BYE_IDLE = 2,
	CAPSULE_BYE_PROTOCOL = 3,
	CAPSULE_BYE_CLIENT = 4,
};

#define CAPSULE_FLAG_SEALED 1u /* head */

#define CAPSULE_FEATURE_ENCRYPTION 1u  /* HELLO: can encrypt; CHALLENGE: this session does */
#define CAPSULE_FEATURE_DEMAND	   2u  /* HELLO: refuses a session without encryption */
#define CAPSULE_FEATURE_STREAMS	   8u  /* HELLO: knows them; CHALLENGE: the client may use them */
#define CAPSULE_FEATURE_STORE	   16u /* HELLO: asks for the store's id */
#define CAPSULE_FEATURE_LEASES	   4u  /* HELLO: wants them; CHALLENGE: the client may use them */

#define CAPSULE_FEATURE_CLOCK 32u /* HELLO: looks at its clock after each one-sided read */
#define CAPSULE_FEATURE_ONCE  64u /* HELLO: would number; CHALLENGE: the server remembers */
/* HELLO: knows parts of encrypted bodies; CHALLENGE: the client may ask for them */
#define CAPSULE_FEATURE_PARTS 128u
#define CAPSULE_FEATURE_PATHS 256u /* HELLO: wants to know them; CHALLENGE: PATHS will follow */

#define CAPSULE_REQUEST_RANGE	1u
#define CAPSULE_REQUEST_HEADERS 2u
#define CAPSULE_REQUEST_INLINE	4u
#define CAPSULE_REQUEST_TAG	8u   /* of an encrypted body in the runs */
#define CAPSULE_REQUEST_LEASE	16u  /* of a GET: a lease is welcome */
#define CAPSULE_REQUEST_STREAM	32u  /* of a LIST: pages one by one, each into its own run */
#define CAPSULE_REQUEST_ONCE	64u  /* a write with a number, struct capsule_once */
#define CAPSULE_REQUEST_REPEAT	128u /* ONCE: it was sent before, on a session that was lost */
#define CAPSULE_REQUEST_SURE	256u /* ONCE: refuse it rather than do it a second time */
#define CAPSULE_REQUEST_PARTS	512u /* of a GET: tell which part of an encrypted body is there */
#define CAPSULE_REQUEST_FLAGS	1023u

#define CAPSULE_RESPONSE_INLINE 1u
#define CAPSULE_RESPONSE_TAG	2u
#define CAPSULE_RESPONSE_LEASE	4u
#define CAPSULE_RESPONSE_MORE	8u /* another page of a stream, or part of a body, follows */
#define CAPSULE_RESPONSE_FLAGS	15u

/* ---- As they lie on the wire. ---- */
struct capsule_private { /* the connection manager's private data, both ways */
	uint32_t magic;
	uint16_t version_max;
	uint16_t flags;
};
/* The client has another session with this server, and can do without this one. */
#define CAPSULE_PRIVATE_FURTHER 1u
_Static_assert(sizeof(struct capsule_private) == 8, "wire.md section 1");

struct capsule_head {
	uint32_t magic;
	uint8_t version;
	uint8_t kind;
	uint16_t flags;
	uint32_t bytes;
	uint32_t reserved;
	uint64_t counter;
};
_Static_assert(sizeof(struct capsule_head) == 24, "wire.md section 2");

struct capsule_hello_wire {
	struct capsule_head head;
	uint16_t version_min;
	uint16_t version_max;
	uint16_t credits;
	uint16_t access_key_len;
	uint32_t capsule_bytes;
	uint32_t inline_bytes;
	uint32_t features;
	uint32_t reserved;
	uint64_t transfer_bytes_max;
	uint8_t nonce[CAPSULE_NONCE_BYTES];
	/* access key */
};
_Static_assert(sizeof(struct capsule_hello_wire) == 88, "wire.md section 3");
#define CAPSULE_HELLO_BYTES_MAX (sizeof(struct capsule_hello_wire) + LIMIT_ACCESS_KEY_LEN_MAX)

struct capsule_challenge_wire {
	struct capsule_head head;
	uint16_t version;
	uint16_t credits;
	uint32_t capsule_bytes;
	uint32_t inline_bytes;
	uint32_t features;
	uint64_t transfer_bytes_max;
	uint64_t session_id;
	uint8_t nonce[CAPSULE_NONCE_BYTES];
	uint64_t store_id; /* 0: it was not asked for */
};
_Static_assert(sizeof(struct capsule_challenge_wire) == 96, "wire.md section 3");

struct capsule_proof_wire { /* PROOF and WELCOME */
	struct capsule_head head;
	uint8_t proof[CAPSULE_PROOF_BYTES];
};
_Static_assert(sizeof(struct capsule_proof_wire) == 56, "wire.md section 3");

struct capsule_refuse_wire {
	struct capsule_head head;
	uint16_t status;
	uint16_t code_len;
	uint16_t message_len;
	uint16_t reserved;
	/* code, message */
};
_Static_assert(sizeof(struct capsule_refuse_wire) == 32, "wire.md section 3");

/* A run of the client's memory. */
struct capsule_run {
	uint64_t addr;
	uint64_t bytes;
	uint32_t rkey;
	uint32_t reserved;
};
_Static_assert(sizeof(struct capsule_run) == 24, "wire.md section 4");

struct capsule_request_wire {
	struct capsule_head head;
	uint64_t request_id;
	uint8_t opcode;
	uint8_t method;
	uint16_t flags;
	uint16_t key_len;
	uint8_t bucket_len;
	uint8_t version_id_len;
	uint16_t query_len;
	uint16_t headers_bytes;
	uint8_t header_count;
	uint8_t run_count;
	uint8_t checksum_kind;
	uint8_t checksum_len;
	uint32_t inline_bytes;
	uint32_t deadline_ms;
	uint64_t range_offset;
	uint64_t range_bytes;
	uint64_t body_bytes;
	/* runs, bucket, key, version id, query, headers, checksum, payload tag, number, inline
	 * body, tag */
};
_Static_assert(sizeof(struct capsule_request_wire) == 80, "wire.md section 4");

/* The number of a write (section 9). Unaligned in a capsule. */
struct capsule_once {
	uint64_t client;     /* drawn once by the client */
	uint64_t number;     /* from 1 on */
	uint64_t done_below; /* all lower numbers have their answers */
	uint64_t issued;     /* the highest number so far */
};
_Static_assert(sizeof(struct capsule_once) == 32, "wire.md section 9");

struct capsule_response_wire {
	struct capsule_head head;
	uint64_t request_id;
	uint64_t server_id;
	uint64_t bytes_moved;
	uint64_t bytes_total;
	uint16_t status;
	uint16_t flags;
	uint8_t etag_len;
	uint8_t code_len;
	uint16_t message_len;
	uint16_t headers_bytes;
	uint8_t header_count;
	uint8_t reserved;
	uint32_t inline_bytes;
	/* etag, code, message, headers, payload tag, lease, inline body, tag */
};
_Static_assert(sizeof(struct capsule_response_wire) == 72, "wire.md section 6");

struct capsule_goodbye_wire {
	struct capsule_head head;
	uint32_t reason;
	uint32_t reserved;
	uint8_t tag[CAPSULE_TAG_BYTES];
};
_Static_assert(sizeof(struct capsule_goodbye_wire) == 48, "wire.md section 6");

/* An address where the server listens for sessions (section 3). */
struct capsule_address {
	uint8_t ip[16]; /* IPv6; IPv4 as ::ffff:a.b.c.d */
	uint16_t port;
	uint16_t reserved[3];
};
_Static_assert(sizeof(struct capsule_address) == 24, "wire.md section 3");
struct capsule_paths_wire {
	struct capsule_head head;
	uint16_t count;
	uint16_t reserved[3];
	struct capsule_address addresses[]; /* and the tag */
};
_Static_assert(sizeof(struct capsule_paths_wire) == 32, "wire.md section 3");
#define CAPSULE_PATHS_BYTES_MAX              \
	(sizeof(struct capsule_paths_wire) + \
		CAPSULE_ADDRESSES_MAX * sizeof(struct capsule_address) + CAPSULE_TAG_BYTES)
_Static_assert(CAPSULE_PATHS_BYTES_MAX <= CAPSULE_BYTES_MIN, "every client can receive it");

/* Memory that a client may read by itself (section 8): a slot in the server's memory that holds a
 * body of bytes_total bytes. */
struct capsule_lease {
	uint64_t addr; /* of the slot */
	uint64_t generation;
	uint64_t crc64nvme; /* of the body */
	uint32_t rkey;
	uint32_t lease_ms;
};
_Static_assert(sizeof(struct capsule_lease) == 32, "wire.md section 8");
struct capsule_slot {
	uint64_t generation; /* when the slot has another one, the lease has ended */
	uint64_t reserved;
	/* body */
};
_Static_assert(sizeof(struct capsule_slot) == 16, "wire.md section 8");

/* ---- Session keys (section 3). ---- */
struct capsule_keys {
	uint8_t client_tag[16];
	uint8_t server_tag[16];
	uint8_t client_capsule[32];
	uint8_t server_capsule[32];
	uint8_t client_payload[32];
	uint8_t server_payload[32];
};
_Static_assert(sizeof(struct capsule_keys) == 160, "wire.md section 3");

/* SHA-256 over both set-up capsules, as sent. */
void capsule_transcript(const struct capsule_hello_wire *hello,
	const struct capsule_challenge_wire *challenge, uint8_t ret_transcript[32]);
/* K, for a side that knows the secret itself; the server gets the same value from
 * s3_session_key(). */
void capsule_auth_key(
	struct slice secret_key, const uint8_t transcript[32], uint8_t ret_auth_key[32]);
/* The proof of one side. */
void capsule_proof(const uint8_t auth_key[32], bool server, uint8_t ret_proof[CAPSULE_PROOF_BYTES]);
/* Secret: pass it to secret_wipe when the session ends. */
void capsule_keys_derive(
	const uint8_t auth_key[32], const uint8_t transcript[32], struct capsule_keys *ret_keys);

/* One direction's tag key and the counter of its last capsule. With aead, which the owner of this
 * struct closes, capsules are encrypted (section 7) and aead makes the tag. */
struct capsule_cipher {
	uint8_t key[16];
	uint64_t counter;
	struct aead *aead;
};
/* Writes the next counter and the tag into the capsule and encrypts it in place. Its head.bytes
 * already counts the tag. */
void capsule_seal(struct capsule_cipher *cipher, void *capsule);
/* Undoes the last seal of a capsule that was not sent, so that it may be sealed again. */
void capsule_seal_undo(struct capsule_cipher *cipher, void *capsule);
/* 0, or -EPROTO: the tag or the counter is wrong and the session must close. len is the message's
 * length, which capsule_head_check has compared with head.bytes. Decrypts in place. */
int capsule_unseal(struct capsule_cipher *cipher, void *capsule, size_t len);
/* The nonce of a payload that goes with the request of this counter. */
void capsule_payload_nonce(uint64_t counter, uint8_t ret_nonce[AEAD_NONCE_BYTES]);

/* ---- Reading. ---- */
/* Three results: the capsule's length, when it is complete; -EAGAIN while [data, data + len) is
 * only its beginning; -EPROTO when it is no capsule, or longer than bytes_max. */
ptrdiff_t capsule_head_check(const void *data, size_t len, size_t bytes_max);

/* The set-up capsules: 0, or -EPROTO. len is what capsule_head_check returned, and the kind is the
 * expected one. */
int capsule_hello_decode(const void *capsule, size_t len, struct slice *ret_access_key);
int capsule_challenge_decode(const void *capsule, size_t len);
int capsule_refuse_decode(const void *capsule, size_t len, uint16_t *ret_status,
	struct slice *ret_code, struct slice *ret_message);

struct capsule_header {
	struct slice name;
	struct slice value;
};

struct capsule_request {
	uint64_t request_id;
	uint8_t opcode; /* enum capsule_opcode; any number when decoded */
	uint8_t method; /* enum capsule_method */
	uint16_t flags;
	uint32_t deadline_ms;
	uint64_t range_offset;
	uint64_t range_bytes;
	uint64_t body_bytes;
	struct slice bucket;
	struct slice key; /* CAPSULE_OP_S3: the path */
	struct slice version_id;
	struct slice query;
	struct slice headers; /* encoded: capsule_header_put, capsule_header_next */
	uint32_t header_count;
	uint32_t run_count;
	const struct capsule_run *runs;
	uint8_t checksum_kind; /* enum checksum_kind */
	struct slice checksum;
	struct slice payload_tag; /* with CAPSULE_REQUEST_TAG */
	struct slice once;	  /* struct capsule_once; with CAPSULE_REQUEST_ONCE */
	struct slice body;	  /* inline */
};
/* 0; -EBADMSG: the request is malformed and only ret->request_id is valid, answer it with
 * MalformedCapsule; -EPROTO: not even the id is valid, close the session. The tag must have been
 * verified. */
int capsule_request_decode(const void *capsule, size_t len, struct capsule_request *ret_request);
/* Returns the length, room for the tag included; -EMSGSIZE when it does not fit buf_bytes, or
 * -EINVAL when a part is over its limit. capsule_seal writes the tag. */
ptrdiff_t capsule_request_encode(
	const struct capsule_request *request, void *buf, size_t buf_bytes);

struct capsule_response {
	uint64_t request_id;
	uint64_t server_id;
	uint64_t bytes_moved;
	uint64_t bytes_total;
	uint16_t status;
	uint16_t flags;
	struct slice etag;
	struct slice code;
	struct slice message;
	struct slice headers;
	uint32_t header_count;
	struct slice payload_tag; /* with CAPSULE_RESPONSE_TAG */
	struct slice lease;	  /* struct capsule_lease, unaligned; with CAPSULE_RESPONSE_LEASE */
	struct slice body;	  /* encode: data NULL leaves room, see capsule_response_body */
};
/* 0 or -EPROTO. The tag must have been verified. */
int capsule_response_decode(const void *capsule, size_t len, struct capsule_response *ret_response);
ptrdiff_t capsule_response_encode(
	const struct capsule_response *response, void *buf, size_t buf_bytes);
/* Whether the address may be one host's, from others' view: not "any", a group's, or of one link.
 */
bool capsule_address_is_host(const struct capsule_address *address);
bool capsule_address_is_loopback(const struct capsule_address *address);
/* 0 or -EPROTO: the addresses of a PATHS capsule, which point into it. The tag must have been
 * verified. */
int capsule_paths_decode(const void *capsule, size_t len,
	const struct capsule_address **ret_addresses, uint32_t *ret_count);
/* Returns the length, as capsule_request_encode; buf has CAPSULE_PATHS_BYTES_MAX, count is 1 to
 * CAPSULE_ADDRESSES_MAX. */
size_t capsule_paths_encode(const struct capsule_address *addresses, uint32_t count, void *buf);
/* Where the inline body of an encoded response lies. */
static inline uint8_t *capsule_response_body(void *capsule)
{
	struct capsule_response_wire *wire = capsule;

	return (uint8_t *)capsule + wire->head.bytes - CAPSULE_TAG_BYTES - wire->inline_bytes;
}

/* Appends one header at buf + *len. -EMSGSIZE: no room; -EINVAL: not a header. */
int capsule_header_put(
	uint8_t *buf, size_t buf_bytes, size_t *len, struct slice name, struct slice value);
/* Takes the next header off the front of *rest, which a decoder has checked. False at the end. */
bool capsule_header_next(struct slice *rest, struct capsule_header *ret_header);

/* ---- Writing set-up capsules. All fill in the head and return the length. ---- */
size_t capsule_hello_finish(struct capsule_hello_wire *hello, struct slice access_key, void *buf);
void capsule_challenge_finish(struct capsule_challenge_wire *challenge);
void capsule_proof_finish(struct capsule_proof_wire *proof, enum capsule_kind kind);
/* Texts are cut to what a set-up receive holds (CAPSULE_BYTES_MIN). */
size_t capsule_refuse_encode(
	uint16_t status, struct slice code, struct slice message, void *buf, size_t buf_bytes);
/* capsule_seal writes the tag. */
void capsule_goodbye_finish(
	struct capsule_goodbye_wire *goodbye, enum capsule_goodbye_reason reason);

#endif
