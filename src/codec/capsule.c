/* codec/capsule.c: encodes and decodes capsules, and computes tags and session keys. Both ends of
 * the native protocol use only this code on bytes from the other. */
#include "codec/capsule.h"

#include <errno.h>
#include <string.h>

#include "base/base.h"
#include "codec/checksum.h"
#include "codec/hash.h"
#include "codec/text.h"

/* Walks a decoded capsule's variable part. The lengths were summed and checked before. */
struct cursor {
	const char *at;
};

static struct slice cursor_take(struct cursor *cursor, size_t len)
{
	struct slice taken = slice_of(cursor->at, len);

	cursor->at += len;
	return taken;
}

/* The same for writing: the room was checked before. */
static uint8_t *put(uint8_t *at, struct slice part)
{
	if (part.len)
		memcpy(at, part.data, part.len);
	return at + part.len;
}

static void head_init(struct capsule_head *head, enum capsule_kind kind, size_t bytes)
{
	*head = (struct capsule_head){.magic = CAPSULE_MAGIC,
		.version = CAPSULE_VERSION,
		.kind = (uint8_t)kind,
		.bytes = (uint32_t)bytes};
}

/* ---- Keys. ---- */

void capsule_transcript(const struct capsule_hello_wire *hello,
	const struct capsule_challenge_wire *challenge, uint8_t ret_transcript[32])
{
	struct sha256 sha256;

	sha256_init(&sha256);
	sha256_update(&sha256, hello, hello->head.bytes);
	sha256_update(&sha256, challenge, challenge->head.bytes);
	sha256_final(&sha256, ret_transcript);
}

void capsule_auth_key(
	struct slice secret_key, const uint8_t transcript[32], uint8_t ret_auth_key[32])
{
	static const char prefix[] = "NEBULA1";
	char secret[sizeof(prefix) - 1 + LIMIT_SECRET_KEY_LEN_MAX];
	size_t len = MIN(secret_key.len, (size_t)LIMIT_SECRET_KEY_LEN_MAX);

	memcpy(secret, prefix, sizeof(prefix) - 1);
	if (len)
		memcpy(secret + sizeof(prefix) - 1, secret_key.data, len);
	hmac_sha256(
		slice_of(secret, sizeof(prefix) - 1 + len), slice_of(transcript, 32), ret_auth_key);
	secret_wipe(secret, sizeof(secret));
}

void capsule_proof(const uint8_t auth_key[32], bool server, uint8_t ret_proof[CAPSULE_PROOF_BYTES])
{
	hmac_sha256(slice_of(auth_key, 32), server ? SLICE("server proof") : SLICE("client proof"),
		ret_proof);
}

void capsule_keys_derive(
	const uint8_t auth_key[32], const uint8_t transcript[32], struct capsule_keys *ret_keys)
{
	int err = hkdf_sha256(slice_of(auth_key, 32), slice_of(transcript, 32),
		SLICE("nebulaio session 1"), ret_keys, sizeof(*ret_keys));

	CHECK(!err);
}

void capsule_payload_nonce(uint64_t counter, uint8_t ret_nonce[AEAD_NONCE_BYTES])
{
	memset(ret_nonce, 0, AEAD_NONCE_BYTES - sizeof(counter));
	memcpy(ret_nonce + AEAD_NONCE_BYTES - sizeof(counter), &counter, sizeof(counter));
}

/* The encrypted part of a capsule: everything between its head and its tag. nonce is filled in. */
static struct aead_message sealed_part(void *capsule, size_t len, uint8_t nonce[AEAD_NONCE_BYTES])
{
	struct capsule_head *head = capsule;
	uint8_t *content = (uint8_t *)(head + 1);

	capsule_payload_nonce(head->counter, nonce);
	return (struct aead_message){.nonce = nonce,
		.aad = slice_of(head, sizeof(*head)),
		.src = content,
		.dst = content,
		.len = len - sizeof(*head) - CAPSULE_TAG_BYTES,
		.tag = (uint8_t *)capsule + len - CAPSULE_TAG_BYTES};
}

static void encrypt(struct capsule_cipher *cipher, void *capsule)
{
	struct capsule_head *head = capsule;
	uint8_t nonce[AEAD_NONCE_BYTES];
	struct aead_message message;
	int err;

	head->flags |= CAPSULE_FLAG_SEALED;
	message = sealed_part(capsule, head->bytes, nonce);
	err = aead_seal(cipher->aead, &message);
	CHECK(!err);
}

void capsule_seal(struct capsule_cipher *cipher, void *capsule)
{
	struct capsule_head *head = capsule;
	uint32_t content_bytes = head->bytes - CAPSULE_TAG_BYTES;

	head->counter = ++cipher->counter;
	if (cipher->aead) {
		encrypt(cipher, capsule);
		return;
	}
	mac_siphash128(cipher->key, capsule, content_bytes, (uint8_t *)capsule + content_bytes);
}

void capsule_seal_undo(struct capsule_cipher *cipher, void *capsule)
{
	struct capsule_head *head = capsule;
	uint8_t nonce[AEAD_NONCE_BYTES];
	struct aead_message message;
	int err;

	CHECK(head->counter == cipher->counter);
	cipher->counter--;
	if (!cipher->aead)
		return;
	message = sealed_part(capsule, head->bytes, nonce);
	err = aead_unseal(cipher->aead, &message);
	CHECK(!err);
	head->flags &= (uint16_t)~CAPSULE_FLAG_SEALED;
}

static int decrypt(struct capsule_cipher *cipher, void *capsule, size_t len)
{
	uint8_t nonce[AEAD_NONCE_BYTES];
	struct aead_message message = sealed_part(capsule, len, nonce);

	if (aead_unseal(cipher->aead, &message))
		return -EPROTO;
	cipher->counter++;
	return 0;
}

int capsule_unseal(struct capsule_cipher *cipher, void *capsule, size_t len)
{
	const struct capsule_head *head = capsule;
	uint8_t tag[CAPSULE_TAG_BYTES];

	if (len < sizeof(*head) + CAPSULE_TAG_BYTES || head->counter != cipher->counter + 1 ||
		head->flags != (cipher->aead ? CAPSULE_FLAG_SEALED : 0))
		return -EPROTO;
	if (cipher->aead)
		return decrypt(cipher, capsule, len);
	mac_siphash128(cipher->key, capsule, len - CAPSULE_TAG_BYTES, tag);
	if (!secret_equal(tag, (const uint8_t *)capsule + len - CAPSULE_TAG_BYTES, sizeof(tag)))
		return -EPROTO;
	cipher->counter++;
	return 0;
}

/* ---- Reading. ---- */

ptrdiff_t capsule_head_check(const void *data, size_t len, size_t bytes_max)
{
	const struct capsule_head *head = data;

	if (len < sizeof(*head))
		return -EAGAIN;
	if (head->magic != CAPSULE_MAGIC || head->version != CAPSULE_VERSION)
		return -EPROTO;
	if (head->kind < CAPSULE_HELLO || head->kind > CAPSULE_PATHS)
		return -EPROTO;
	if ((head->flags & ~CAPSULE_FLAG_SEALED) || head->reserved != 0 ||
		(head->flags && head->kind < CAPSULE_REQUEST))
		return -EPROTO;
	if (head->bytes < sizeof(*head) || head->bytes > bytes_max)
		return -EPROTO;
	if (len < head->bytes)
		return -EAGAIN;
	return (ptrdiff_t)head->bytes;
}

int capsule_hello_decode(const void *capsule, size_t len, struct slice *ret_access_key)
{
	const struct capsule_hello_wire *hello = capsule;

	if (len < sizeof(*hello) || len != sizeof(*hello) + hello->access_key_len)
		return -EPROTO;
	if (hello->access_key_len < 1 || hello->access_key_len > LIMIT_ACCESS_KEY_LEN_MAX)
		return -EPROTO;
	if (hello->version_min > hello->version_max || hello->reserved != 0)
		return -EPROTO;
	if (hello->credits < 1 || hello->credits > LIMIT_SESSION_REQUESTS_MAX)
		return -EPROTO;
	if (hello->capsule_bytes < CAPSULE_BYTES_MIN ||
		hello->inline_bytes > LIMIT_CAPSULE_INLINE_BYTES_MAX)
		return -EPROTO;
	*ret_access_key = slice_of(hello + 1, hello->access_key_len);
	return 0;
}

int capsule_challenge_decode(const void *capsule, size_t len)
{
	const struct capsule_challenge_wire *challenge = capsule;

	if (len != sizeof(*challenge))
		return -EPROTO;
	if (challenge->credits < 1 || challenge->credits > LIMIT_SESSION_REQUESTS_MAX)
		return -EPROTO;
	if (challenge->capsule_bytes < CAPSULE_BYTES_MIN ||
		challenge->capsule_bytes > LIMIT_CAPSULE_BYTES_MAX ||
		challenge->inline_bytes > LIMIT_CAPSULE_INLINE_BYTES_MAX)
		return -EPROTO;
	return 0;
}

int capsule_refuse_decode(const void *capsule, size_t len, uint16_t *ret_status,
	struct slice *ret_code, struct slice *ret_message)
{
	const struct capsule_refuse_wire *refuse = capsule;
	struct cursor cursor;

	if (len < sizeof(*refuse) ||
		len != sizeof(*refuse) + (size_t)refuse->code_len + refuse->message_len)
		return -EPROTO;
	if (refuse->code_len > CAPSULE_CODE_LEN_MAX ||
		refuse->message_len > CAPSULE_MESSAGE_LEN_MAX || refuse->reserved != 0)
		return -EPROTO;
	cursor.at = (const char *)(refuse + 1);
	*ret_status = refuse->status;
	*ret_code = cursor_take(&cursor, refuse->code_len);
	*ret_message = cursor_take(&cursor, refuse->message_len);
	return 0;
}

static bool is_name(struct slice name)
{
	return name.len <= UINT8_MAX && field_name_is_valid(name);
}

static bool is_value(struct slice value)
{
	if (value.len > UINT16_MAX)
		return false;
	for (size_t i = 0; i < value.len; i++)
		if (value.data[i] == '\r' || value.data[i] == '\n' || value.data[i] == '\0')
			return false;
	return true;
}

/* Takes one header by its lengths alone; false when it does not fit in rest. */
static bool header_take(struct slice *rest, struct capsule_header *ret_header)
{
	uint16_t lens[2];
	size_t bytes;

	if (rest->len < sizeof(lens))
		return false;
	memcpy(lens, rest->data, sizeof(lens));
	bytes = sizeof(lens) + (size_t)lens[0] + lens[1];
	if (rest->len < bytes)
		return false;
	ret_header->name = slice_of(rest->data + sizeof(lens), lens[0]);
	ret_header->value = slice_of(rest->data + sizeof(lens) + lens[0], lens[1]);
	*rest = slice_from(*rest, bytes);
	return true;
}

/* Exactly count well-formed headers and nothing behind them. */
static bool headers_fit(struct slice headers, uint32_t count)
{
	struct capsule_header header;

	for (uint32_t i = 0; i < count; i++) {
		if (!header_take(&headers, &header))
			return false;
		if (!is_name(header.name) || !is_value(header.value))
			return false;
	}
	return headers.len == 0;
}

bool capsule_header_next(struct slice *rest, struct capsule_header *ret_header)
{
	return header_take(rest, ret_header);
}

int capsule_header_put(
	uint8_t *buf, size_t buf_bytes, size_t *len, struct slice name, struct slice value)
{
	uint16_t lens[2] = {(uint16_t)name.len, (uint16_t)value.len};
	uint8_t *at = buf + *len;

	if (!is_name(name) || !is_value(value))
		return -EINVAL;
	if (buf_bytes - *len < sizeof(lens) + name.len + value.len)
		return -EMSGSIZE;
	memcpy(at, lens, sizeof(lens));
	put(put(at + sizeof(lens), name), value);
	*len += sizeof(lens) + name.len + value.len;
	return 0;
}

/* All checks of a request's body and checksum fields, in one place. */
static bool request_is_sound(const struct capsule_request_wire *wire)
{
	uint32_t key_len_max =
		wire->opcode == CAPSULE_OP_S3 ? CAPSULE_PATH_LEN_MAX : LIMIT_KEY_LEN_MAX;

	if (wire->key_len > key_len_max || wire->bucket_len > LIMIT_BUCKET_LEN_MAX ||
		wire->version_id_len > CAPSULE_VERSION_ID_LEN_MAX ||
		wire->query_len > CAPSULE_QUERY_LEN_MAX)
		return false;
	if (wire->headers_bytes > CAPSULE_HEADERS_BYTES_MAX ||
		wire->header_count > CAPSULE_HEADERS_MAX || wire->run_count > LIMIT_SGE_MAX)
		return false;
	if (wire->inline_bytes > LIMIT_CAPSULE_INLINE_BYTES_MAX ||
		(wire->flags & ~CAPSULE_REQUEST_FLAGS) != 0)
		return false;
	if (wire->opcode == CAPSULE_OP_S3
			? wire->method < CAPSULE_METHOD_GET || wire->method > CAPSULE_METHOD_DELETE
			: wire->method != CAPSULE_METHOD_NONE)
		return false;
	if (wire->checksum_kind >= CHECKSUM_KIND_COUNT ||
		wire->checksum_len != checksum_bytes((enum checksum_kind)wire->checksum_kind))
		return false;
	if (wire->flags & CAPSULE_REQUEST_RANGE) {
		if (wire->range_bytes < 1 || wire->range_bytes > UINT64_MAX - wire->range_offset)
			return false;
	} else if (wire->range_offset || wire->range_bytes) {
		return false;
	}
	if (wire->flags & (CAPSULE_REQUEST_LEASE | CAPSULE_REQUEST_PARTS) &&
		wire->opcode != CAPSULE_OP_GET)
		return false;
	if (wire->flags & CAPSULE_REQUEST_STREAM && wire->opcode != CAPSULE_OP_LIST)
		return false;
	if (wire->flags & (CAPSULE_REQUEST_REPEAT | CAPSULE_REQUEST_SURE) &&
		!(wire->flags & CAPSULE_REQUEST_ONCE))
		return false;
	/* An inline body is encrypted with its capsule. */
	if (wire->flags & CAPSULE_REQUEST_TAG && (wire->inline_bytes || !wire->body_bytes))
		return false;
	if (wire->inline_bytes)
		return wire->body_bytes == wire->inline_bytes;
	return true;
}

static uint32_t request_tag_bytes(uint32_t flags)
{
	return flags & CAPSULE_REQUEST_TAG ? AEAD_TAG_BYTES : 0;
}

static uint32_t request_once_bytes(uint32_t flags)
{
	return flags & CAPSULE_REQUEST_ONCE ? sizeof(struct capsule_once) : 0;
}

static uint32_t response_tag_bytes(uint32_t flags)
{
	return flags & CAPSULE_RESPONSE_TAG ? AEAD_TAG_BYTES : 0;
}

static uint32_t response_lease_bytes(uint32_t flags)
{
	return flags & CAPSULE_RESPONSE_LEASE ? sizeof(struct capsule_lease) : 0;
}

/* The runs' sum does not overflow, and the runs hold the body unless it is inline. */
static bool runs_are_sound(const struct capsule_request_wire *wire, const struct capsule_run *runs)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < wire->run_count; i++) {
		if (runs[i].reserved != 0 || runs[i].bytes == 0 ||
			runs[i].bytes > UINT64_MAX - runs[i].addr)
			return false;
		if (__builtin_add_overflow(bytes, runs[i].bytes, &bytes))
			return false;
	}
	return wire->inline_bytes || wire->body_bytes <= bytes;
}

int capsule_request_decode(const void *capsule, size_t len, struct capsule_request *ret_request)
{
	const struct capsule_request_wire *wire = capsule;
	struct cursor cursor = {.at = (const char *)(wire + 1)};
	size_t bytes = sizeof(*wire) + CAPSULE_TAG_BYTES;

	if (len < bytes)
		return -EPROTO;
	ret_request->request_id = wire->request_id;
	if (!request_is_sound(wire))
		return -EBADMSG;
	bytes += wire->run_count * sizeof(struct capsule_run) + wire->bucket_len + wire->key_len +
		 wire->version_id_len + wire->query_len + wire->headers_bytes + wire->checksum_len +
		 request_tag_bytes(wire->flags) + request_once_bytes(wire->flags) +
		 wire->inline_bytes;
	if (bytes != len)
		return -EBADMSG;
	ret_request->opcode = wire->opcode;
	ret_request->method = wire->method;
	ret_request->flags = wire->flags;
	ret_request->deadline_ms = wire->deadline_ms;
	ret_request->range_offset = wire->range_offset;
	ret_request->range_bytes = wire->range_bytes;
	ret_request->body_bytes = wire->body_bytes;
	ret_request->runs = (const struct capsule_run *)(wire + 1);
	ret_request->run_count = wire->run_count;
	if (!runs_are_sound(wire, ret_request->runs))
		return -EBADMSG;
	cursor_take(&cursor, wire->run_count * sizeof(struct capsule_run));
	ret_request->bucket = cursor_take(&cursor, wire->bucket_len);
	ret_request->key = cursor_take(&cursor, wire->key_len);
	ret_request->version_id = cursor_take(&cursor, wire->version_id_len);
	ret_request->query = cursor_take(&cursor, wire->query_len);
	ret_request->headers = cursor_take(&cursor, wire->headers_bytes);
	ret_request->header_count = wire->header_count;
	ret_request->checksum_kind = wire->checksum_kind;
	ret_request->checksum = cursor_take(&cursor, wire->checksum_len);
	ret_request->payload_tag = cursor_take(&cursor, request_tag_bytes(wire->flags));
	ret_request->once = cursor_take(&cursor, request_once_bytes(wire->flags));
	ret_request->body = cursor_take(&cursor, wire->inline_bytes);
	return headers_fit(ret_request->headers, ret_request->header_count) ? 0 : -EBADMSG;
}

static bool request_parts_fit(const struct capsule_request *request)
{
	return request->bucket.len <= LIMIT_BUCKET_LEN_MAX &&
	       request->key.len <= CAPSULE_PATH_LEN_MAX &&
	       request->version_id.len <= CAPSULE_VERSION_ID_LEN_MAX &&
	       request->query.len <= CAPSULE_QUERY_LEN_MAX &&
	       request->headers.len <= CAPSULE_HEADERS_BYTES_MAX &&
	       request->header_count <= CAPSULE_HEADERS_MAX &&
	       request->run_count <= LIMIT_SGE_MAX && request->checksum.len <= CHECKSUM_BYTES_MAX &&
	       request->payload_tag.len == request_tag_bytes(request->flags) &&
	       request->once.len == request_once_bytes(request->flags) &&
	       request->body.len <= LIMIT_CAPSULE_INLINE_BYTES_MAX;
}

ptrdiff_t capsule_request_encode(const struct capsule_request *request, void *buf, size_t buf_bytes)
{
	struct capsule_request_wire *wire = buf;
	size_t runs_bytes = request->run_count * sizeof(struct capsule_run);
	uint8_t *at = (uint8_t *)(wire + 1);
	size_t bytes;

	if (!request_parts_fit(request))
		return -EINVAL;
	bytes = sizeof(*wire) + runs_bytes + request->bucket.len + request->key.len +
		request->version_id.len + request->query.len + request->headers.len +
		request->checksum.len + request->payload_tag.len + request->once.len +
		request->body.len + CAPSULE_TAG_BYTES;
	if (bytes > buf_bytes)
		return -EMSGSIZE;
	head_init(&wire->head, CAPSULE_REQUEST, bytes);
	wire->request_id = request->request_id;
	wire->opcode = request->opcode;
	wire->method = request->method;
	wire->flags = request->flags;
	wire->key_len = (uint16_t)request->key.len;
	wire->bucket_len = (uint8_t)request->bucket.len;
	wire->version_id_len = (uint8_t)request->version_id.len;
	wire->query_len = (uint16_t)request->query.len;
	wire->headers_bytes = (uint16_t)request->headers.len;
	wire->header_count = (uint8_t)request->header_count;
	wire->run_count = (uint8_t)request->run_count;
	wire->checksum_kind = request->checksum_kind;
	wire->checksum_len = (uint8_t)request->checksum.len;
	wire->inline_bytes = (uint32_t)request->body.len;
	wire->deadline_ms = request->deadline_ms;
	wire->range_offset = request->range_offset;
	wire->range_bytes = request->range_bytes;
	wire->body_bytes = request->body_bytes;
	if (!request_is_sound(wire))
		return -EINVAL;
	at = put(at, slice_of(request->runs, runs_bytes));
	at = put(put(put(at, request->bucket), request->key), request->version_id);
	at = put(put(put(at, request->query), request->headers), request->checksum);
	put(put(put(at, request->payload_tag), request->once), request->body);
	return (ptrdiff_t)bytes;
}

int capsule_response_decode(const void *capsule, size_t len, struct capsule_response *ret_response)
{
	const struct capsule_response_wire *wire = capsule;
	struct cursor cursor = {.at = (const char *)(wire + 1)};

	if (len < sizeof(*wire) + CAPSULE_TAG_BYTES)
		return -EPROTO;
	if (wire->etag_len > CAPSULE_ETAG_LEN_MAX || wire->code_len > CAPSULE_CODE_LEN_MAX ||
		wire->message_len > CAPSULE_MESSAGE_LEN_MAX ||
		wire->headers_bytes > CAPSULE_HEADERS_BYTES_MAX ||
		wire->header_count > CAPSULE_HEADERS_MAX)
		return -EPROTO;
	if ((wire->flags & ~CAPSULE_RESPONSE_FLAGS) != 0 || wire->reserved != 0 ||
		wire->inline_bytes > LIMIT_CAPSULE_BYTES_MAX)
		return -EPROTO;
	if (len != sizeof(*wire) + wire->etag_len + wire->code_len + wire->message_len +
			   wire->headers_bytes + response_tag_bytes(wire->flags) +
			   response_lease_bytes(wire->flags) + wire->inline_bytes +
			   CAPSULE_TAG_BYTES)
		return -EPROTO;
	ret_response->request_id = wire->request_id;
	ret_response->server_id = wire->server_id;
	ret_response->bytes_moved = wire->bytes_moved;
	ret_response->bytes_total = wire->bytes_total;
	ret_response->status = wire->status;
	ret_response->flags = wire->flags;
	ret_response->etag = cursor_take(&cursor, wire->etag_len);
	ret_response->code = cursor_take(&cursor, wire->code_len);
	ret_response->message = cursor_take(&cursor, wire->message_len);
	ret_response->headers = cursor_take(&cursor, wire->headers_bytes);
	ret_response->header_count = wire->header_count;
	ret_response->payload_tag = cursor_take(&cursor, response_tag_bytes(wire->flags));
	ret_response->lease = cursor_take(&cursor, response_lease_bytes(wire->flags));
	ret_response->body = cursor_take(&cursor, wire->inline_bytes);
	return headers_fit(ret_response->headers, ret_response->header_count) ? 0 : -EPROTO;
}

ptrdiff_t capsule_response_encode(
	const struct capsule_response *response, void *buf, size_t buf_bytes)
{
	struct capsule_response_wire *wire = buf;
	uint8_t *at = (uint8_t *)(wire + 1);
	size_t bytes = sizeof(*wire) + response->etag.len + response->code.len +
		       response->message.len + response->headers.len + response->payload_tag.len +
		       response->lease.len + response->body.len + CAPSULE_TAG_BYTES;

	if (response->etag.len > CAPSULE_ETAG_LEN_MAX ||
		response->code.len > CAPSULE_CODE_LEN_MAX ||
		response->message.len > CAPSULE_MESSAGE_LEN_MAX ||
		response->headers.len > CAPSULE_HEADERS_BYTES_MAX ||
		response->header_count > CAPSULE_HEADERS_MAX ||
		response->payload_tag.len != response_tag_bytes(response->flags) ||
		response->lease.len != response_lease_bytes(response->flags))
		return -EINVAL;
	if (bytes > buf_bytes)
		return -EMSGSIZE;
	head_init(&wire->head, CAPSULE_RESPONSE, bytes);
	wire->request_id = response->request_id;
	wire->server_id = response->server_id;
	wire->bytes_moved = response->bytes_moved;
	wire->bytes_total = response->bytes_total;
	wire->status = response->status;
	wire->flags = response->flags;
	wire->etag_len = (uint8_t)response->etag.len;
	wire->code_len = (uint8_t)response->code.len;
	wire->message_len = (uint16_t)response->message.len;
	wire->headers_bytes = (uint16_t)response->headers.len;
	wire->header_count = (uint8_t)response->header_count;
	wire->reserved = 0;
	wire->inline_bytes = (uint32_t)response->body.len;
	at = put(put(put(at, response->etag), response->code), response->message);
	at = put(put(put(at, response->headers), response->payload_tag), response->lease);
	if (response->body.data)
		put(at, response->body);
	return (ptrdiff_t)bytes;
}

/* ---- Writing set-up capsules. ---- */

size_t capsule_hello_finish(struct capsule_hello_wire *hello, struct slice access_key, void *buf)
{
	size_t bytes = sizeof(*hello) + access_key.len;

	CHECK(access_key.len <= LIMIT_ACCESS_KEY_LEN_MAX);
	head_init(&hello->head, CAPSULE_HELLO, bytes);
	hello->access_key_len = (uint16_t)access_key.len;
	put(put(buf, slice_of(hello, sizeof(*hello))), access_key);
	return bytes;
}

void capsule_challenge_finish(struct capsule_challenge_wire *challenge)
{
	head_init(&challenge->head, CAPSULE_CHALLENGE, sizeof(*challenge));
}

void capsule_proof_finish(struct capsule_proof_wire *proof, enum capsule_kind kind)
{
	head_init(&proof->head, kind, sizeof(*proof));
}

size_t capsule_refuse_encode(
	uint16_t status, struct slice code, struct slice message, void *buf, size_t buf_bytes)
{
	struct capsule_refuse_wire *refuse = buf;
	size_t room = MIN(buf_bytes, (size_t)CAPSULE_BYTES_MIN) - sizeof(*refuse);

	code = slice_to(code, MIN(room, (size_t)CAPSULE_CODE_LEN_MAX));
	message = slice_to(message, MIN(room - code.len, (size_t)CAPSULE_MESSAGE_LEN_MAX));
	head_init(&refuse->head, CAPSULE_REFUSE, sizeof(*refuse) + code.len + message.len);
	refuse->status = status;
	refuse->code_len = (uint16_t)code.len;
	refuse->message_len = (uint16_t)message.len;
	refuse->reserved = 0;
	put(put((uint8_t *)(refuse + 1), code), message);
	return refuse->head.bytes;
}

/* The IPv4 address in it, or NULL. */
static const uint8_t *address_v4(const struct capsule_address *address)
{
	static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};

	return memcmp(address->ip, prefix, sizeof(prefix)) ? NULL : address->ip + sizeof(prefix);
}

bool capsule_address_is_host(const struct capsule_address *address)
{
	static const uint8_t any[16];
	const uint8_t *ip = address->ip, *v4 = address_v4(address);

	if (v4)
		return v4[0] && v4[0] < 224 && !(v4[0] == 169 && v4[1] == 254);
	return memcmp(ip, any, sizeof(any)) && ip[0] != 0xff &&
	       !(ip[0] == 0xfe && (ip[1] & 0xc0) == 0x80);
}

bool capsule_address_is_loopback(const struct capsule_address *address)
{
	static const uint8_t one[16] = {[15] = 1};
	const uint8_t *v4 = address_v4(address);

	return v4 ? v4[0] == 127 : !memcmp(address->ip, one, sizeof(one));
}

int capsule_paths_decode(const void *capsule, size_t len,
	const struct capsule_address **ret_addresses, uint32_t *ret_count)
{
	const struct capsule_paths_wire *paths = capsule;

	if (len < sizeof(*paths) + CAPSULE_TAG_BYTES || paths->count < 1 ||
		paths->count > CAPSULE_ADDRESSES_MAX ||
		len != sizeof(*paths) + paths->count * sizeof(paths->addresses[0]) +
				CAPSULE_TAG_BYTES)
		return -EPROTO;
	if (paths->reserved[0] | paths->reserved[1] | paths->reserved[2])
		return -EPROTO;
	for (uint32_t i = 0; i < paths->count; i++) {
		const struct capsule_address *address = &paths->addresses[i];

		if (!address->port ||
			address->reserved[0] | address->reserved[1] | address->reserved[2])
			return -EPROTO;
	}
	*ret_addresses = paths->addresses;
	*ret_count = paths->count;
	return 0;
}

size_t capsule_paths_encode(const struct capsule_address *addresses, uint32_t count, void *buf)
{
	struct capsule_paths_wire *paths = buf;
	size_t len = sizeof(*paths) + count * sizeof(*addresses) + CAPSULE_TAG_BYTES;

	CHECK(count >= 1 && count <= CAPSULE_ADDRESSES_MAX);
	*paths = (struct capsule_paths_wire){.count = (uint16_t)count};
	head_init(&paths->head, CAPSULE_PATHS, len);
	memcpy(paths->addresses, addresses, count * sizeof(*addresses));
	return len;
}

void capsule_goodbye_finish(
	struct capsule_goodbye_wire *goodbye, enum capsule_goodbye_reason reason)
{
	head_init(&goodbye->head, CAPSULE_GOODBYE, sizeof(*goodbye));
	goodbye->reason = reason;
	goodbye->reserved = 0;
}
