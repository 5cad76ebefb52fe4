/* remote/wire.c: capsules of volumes: proofs, tags, checks. */
#include "remote/wire.h"

#include <errno.h>
#include <string.h>

static const uint16_t BYTES_OF[] = {
	[WIRE_HELLO] = sizeof(struct wire_hello),
	[WIRE_CHALLENGE] = sizeof(struct wire_challenge),
	[WIRE_PROOF] = sizeof(struct wire_proof),
	[WIRE_WELCOME] = sizeof(struct wire_welcome),
	[WIRE_REFUSE] = sizeof(struct wire_refuse),
	[WIRE_COMMAND] = sizeof(struct wire_command),
	[WIRE_RESPONSE] = sizeof(struct wire_response),
};

/* ---- Proofs. ---- */

void wire_keys_make(struct wire_keys *keys, struct slice secret, const struct wire_hello *hello,
	const struct wire_challenge *challenge)
{
	static const char PREFIX[] = "NBV1";
	uint8_t prefixed[sizeof(PREFIX) - 1 + WIRE_SECRET_MAX];
	uint8_t transcript[SHA256_BYTES];
	uint8_t tags[2 * SIPHASH_BYTES];
	struct sha256 sha256;
	int err;

	CHECK(secret.len <= WIRE_SECRET_MAX);
	sha256_init(&sha256);
	sha256_update(&sha256, hello, sizeof(*hello));
	sha256_update(&sha256, challenge, sizeof(*challenge));
	sha256_final(&sha256, transcript);
	memcpy(prefixed, PREFIX, sizeof(PREFIX) - 1);
	memcpy(prefixed + sizeof(PREFIX) - 1, secret.data, secret.len);
	hmac_sha256(slice_of(prefixed, sizeof(PREFIX) - 1 + secret.len),
		slice_of(transcript, sizeof(transcript)), keys->key);
	err = hkdf_sha256(slice_of(keys->key, sizeof(keys->key)),
		slice_of(transcript, sizeof(transcript)), SLICE("nebulaio volume 1"), tags,
		sizeof(tags));
	CHECK(!err);
	memcpy(keys->initiator, tags, SIPHASH_BYTES);
	memcpy(keys->target, tags + SIPHASH_BYTES, SIPHASH_BYTES);
	secret_wipe(tags, sizeof(tags));
	secret_wipe(prefixed, sizeof(prefixed));
}

void wire_proof_make(const struct wire_keys *keys, uint8_t ret_proof[SHA256_BYTES])
{
	hmac_sha256(slice_of(keys->key, sizeof(keys->key)), SLICE("initiator proof"), ret_proof);
}

void wire_welcome_make(const struct wire_keys *keys, const struct wire_identity *identity,
	uint8_t ret_proof[SHA256_BYTES])
{
	static const char PREFIX[] = "target proof";
	uint8_t message[sizeof(PREFIX) - 1 + sizeof(*identity)];

	memcpy(message, PREFIX, sizeof(PREFIX) - 1);
	memcpy(message + sizeof(PREFIX) - 1, identity, sizeof(*identity));
	hmac_sha256(slice_of(keys->key, sizeof(keys->key)), slice_of(message, sizeof(message)),
		ret_proof);
}

/* ---- Capsules. ---- */

void wire_head_fill(struct wire_head *head, enum wire_kind kind, uint16_t bytes, uint64_t counter)
{
	*head = (struct wire_head){.magic = WIRE_MAGIC,
		.version = WIRE_VERSION,
		.kind = (uint8_t)kind,
		.bytes = bytes,
		.counter = counter};
}

void wire_seal(void *capsule, const uint8_t key[SIPHASH_BYTES])
{
	const struct wire_head *head = (const struct wire_head *)capsule;
	uint32_t before = head->bytes - SIPHASH_BYTES;

	mac_siphash128(key, capsule, before, (uint8_t *)capsule + before);
}

void wire_epoch_set(struct wire_hello *hello, uint64_t epoch)
{
	if (!epoch)
		return;
	hello->flags |= WIRE_HELLO_EPOCH;
	memcpy(hello->holder + WIRE_HOLDER_BYTES / 2, &epoch, sizeof(epoch));
}

uint64_t wire_epoch(const struct wire_hello *hello)
{
	uint64_t epoch = 0;

	if (hello->flags & WIRE_HELLO_EPOCH)
		memcpy(&epoch, hello->holder + WIRE_HOLDER_BYTES / 2, sizeof(epoch));
	return epoch;
}

static bool epoch_fits(const struct wire_hello *hello)
{
	uint64_t epoch = wire_epoch(hello);

	return !(hello->flags & WIRE_HELLO_EPOCH) || (epoch >= 1 && epoch <= INT64_MAX);
}

static bool hello_fits(const struct wire_hello *hello)
{
	return !(hello->flags & ~(WIRE_HELLO_READ_ONLY | WIRE_HELLO_EPOCH)) && epoch_fits(hello) &&
	       hello->depth >= 1 && hello->depth <= WIRE_DEPTH_MAX &&
	       hello->lane <= LIMIT_CORES_MAX && hello->name[0] &&
	       memchr(hello->name, '\0', sizeof(hello->name));
}

static bool identity_fits(const struct wire_identity *identity)
{
	uint32_t align = identity->align;

	return align >= 1 && align <= FRAME_BYTES && !(align & (align - 1)) &&
	       !(identity->flags & ~(WIRE_CAN_GROW | WIRE_CAN_DISCARD)) &&
	       identity->bytes <= INT64_MAX && identity->medium_bytes <= INT64_MAX &&
	       memchr(identity->what, '\0', sizeof(identity->what));
}

static bool command_fits(const struct wire_command *command)
{
	bool moves = command->op == WIRE_READ || command->op == WIRE_WRITE;

	if (command->op < WIRE_READ || command->op >= WIRE_OP_END || command->reserved0 ||
		command->slot >= WIRE_DEPTH_MAX || command->offset > INT64_MAX ||
		command->bytes > INT64_MAX)
		return false;
	return !moves || (command->bytes && command->bytes <= WIRE_TRANSFER_MAX);
}

int wire_check(const union wire_capsule *capsule, uint32_t bytes, enum wire_kind kind)
{
	const struct wire_head *head = &capsule->head;
	bool fits = true;

	if (bytes != BYTES_OF[kind] || head->magic != WIRE_MAGIC || head->version != WIRE_VERSION ||
		head->kind != kind || head->bytes != bytes ||
		(kind < WIRE_COMMAND && head->counter))
		return -EPROTO;
	if (kind == WIRE_HELLO)
		fits = hello_fits(&capsule->hello);
	else if (kind == WIRE_CHALLENGE)
		fits = capsule->challenge.depth >= 1 && !capsule->challenge.reserved &&
		       capsule->challenge.transfer_max >= FRAME_BYTES;
	else if (kind == WIRE_WELCOME)
		fits = identity_fits(&capsule->welcome.identity);
	else if (kind == WIRE_REFUSE)
		fits = !capsule->refuse.reserved;
	else if (kind == WIRE_COMMAND)
		fits = command_fits(&capsule->command);
	else if (kind == WIRE_RESPONSE)
		fits = capsule->response.slot < WIRE_DEPTH_MAX &&
		       capsule->response.status < WIRE_STATUS_END && !capsule->response.reserved &&
		       capsule->response.bytes <= INT64_MAX;
	return fits ? 0 : -EPROTO;
}

int wire_check_sealed(const union wire_capsule *capsule, uint32_t bytes, enum wire_kind kind,
	uint64_t counter, const uint8_t key[SIPHASH_BYTES])
{
	uint8_t tag[SIPHASH_BYTES];
	int ret = wire_check(capsule, bytes, kind);

	if (ret || capsule->head.counter != counter)
		return -EPROTO;
	mac_siphash128(key, capsule, bytes - SIPHASH_BYTES, tag);
	return secret_equal(tag, capsule->room + bytes - SIPHASH_BYTES, SIPHASH_BYTES) ? 0
										       : -EPROTO;
}

const char *wire_reason_text(uint32_t reason)
{
	switch (reason) {
	case WIRE_MALFORMED:
		return "it did not understand the hello message";
	case WIRE_NO_VOLUME:
		return "it has no volume of that name";
	case WIRE_WRONG_SECRET:
		return "the secrets differ";
	case WIRE_BUSY:
		return "the volume is in use by another server, or by an earlier connection of "
		       "this one";
	case WIRE_FULL:
		return "its maximum number of connections is reached";
	case WIRE_STALE:
		return "a later owner of the store has the volume";
	case WIRE_UNKEPT:
		return "it cannot store the owner's epoch: its log says why";
	default:
		return "for a reason that this version does not know";
	}
}

uint16_t wire_status_of(int error)
{
	switch (error) {
	case 0:
		return WIRE_OK;
	case -ENOSPC:
	case -EDQUOT:
	case -EFBIG:
		return WIRE_NO_SPACE;
	case -ERANGE:
		return WIRE_OUT_OF_RANGE;
	case -EINVAL:
		return WIRE_INVALID;
	case -EOPNOTSUPP:
		return WIRE_UNSUPPORTED;
	case -EROFS:
		return WIRE_READ_ONLY;
	default:
		return WIRE_IO_ERROR;
	}
}

int wire_status_errno(uint16_t status)
{
	static const int ERRNOS[] = {[WIRE_OK] = 0,
		[WIRE_IO_ERROR] = -EIO,
		[WIRE_NO_SPACE] = -ENOSPC,
		[WIRE_OUT_OF_RANGE] = -ERANGE,
		[WIRE_INVALID] = -EINVAL,
		[WIRE_UNSUPPORTED] = -EOPNOTSUPP,
		[WIRE_READ_ONLY] = -EROFS};

	return status < WIRE_STATUS_END ? ERRNOS[status] : -EIO;
}
