/* s3/sse/sse.c: encryption at rest: the parameters of requests, data keys and the keys that seal
 * them. */
#include "s3/sse/sse.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "iam/policy.h"
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/core/settings.h"
#include "s3/core/stored.h"

#define SEALED_BYTES (AEAD_NONCE_BYTES + S3_SSE_KEY_BYTES + AEAD_TAG_BYTES)
#define SEALED_LEN   BASE64_LEN(SEALED_BYTES)
#define PREFIX	     "x-amz-server-side-encryption"

/* ---- Keys. ---- */

/* Lines of "ID BASE64", '#' starts a comment. -EINVAL: a malformed line, or no key. */
static int keyring_parse(struct slice text, struct s3_keyring *keyring)
{
	keyring->master_count = 0;
	while (text.len) {
		struct slice key = slice_trim(slice_split(&text, '\n'));
		struct slice id;
		size_t len;

		if (!key.len || key.data[0] == '#')
			continue;
		id = slice_split(&key, ' ');
		key = slice_trim(key);
		if (keyring->master_count == S3_SSE_MASTERS_MAX || !id.len ||
			slice_copy_str(id, keyring->masters[keyring->master_count].id,
				sizeof(keyring->masters[0].id)) ||
			base64_decode(key, keyring->masters[keyring->master_count].key,
				S3_SSE_KEY_BYTES, &len) ||
			len != S3_SSE_KEY_BYTES)
			return -EINVAL;
		keyring->master_count++;
	}
	return keyring->master_count ? 0 : -EINVAL;
}

/* A one-line key ring, for a server without a key file: tests. */
static int keyring_of_secret(const char *secret, struct s3_keyring *keyring)
{
	keyring->master_count = 1;
	memcpy(keyring->masters[0].id, "root", sizeof("root"));
	return hkdf_sha256(slice_str(secret), SLICE("nebulaio sse"), SLICE("master"),
		keyring->masters[0].key, S3_SSE_KEY_BYTES);
}

int s3_keyring_open(const struct s3_opts *opts, struct s3_keyring **ret_keyring)
{
	struct s3_keyring *keyring = calloc(1, sizeof(*keyring));
	int ret;

	if (!keyring)
		return -ENOMEM;
	ret = slice_copy_str(
		slice_str(opts->kms_keys), keyring->kms_names, sizeof(keyring->kms_names));
	if (!ret)
		ret = slice_copy_str(slice_str(opts->kms_default_key), keyring->kms_default,
			sizeof(keyring->kms_default));
	if (!ret)
		ret = opts->encryption_keys
			      ? keyring_parse(slice_str(opts->encryption_keys), keyring)
			      : keyring_of_secret(opts->root_secret_key, keyring);
	/* s3_vault_open also refuses keys without an address. */
	if (!ret && opts->vault && (opts->vault->address[0] || opts->vault->keys[0]))
		ret = s3_vault_open(opts->vault, &keyring->vault);
	if (ret)
		s3_keyring_close(keyring);
	else
		*ret_keyring = keyring;
	return ret;
}

void s3_keyring_close(struct s3_keyring *keyring)
{
	if (!keyring)
		return;
	s3_vault_close(keyring->vault);
	secret_wipe(keyring, sizeof(*keyring));
	free(keyring);
}

static const uint8_t *master_of(const struct s3_keyring *keyring, struct slice id)
{
	for (uint32_t i = 0; i < keyring->master_count; i++)
		if (slice_eq(slice_str(keyring->masters[i].id), id))
			return keyring->masters[i].key;
	return NULL;
}

/* The key that seals data keys: one for SSE-S3, and one for each KMS key name. */
static int sealing_key(
	const uint8_t *master, const struct s3_sse *sse, uint8_t ret_key[S3_SSE_KEY_BYTES])
{
	char info[S3_SSE_KMS_NAME_MAX + 8];
	int len = snprintf(info, sizeof(info), "%s%.*s", sse->kind == S3_SSE_KMS ? "kms:" : "s3",
		SLICE_FMT(sse->kms_key));

	if (len < 0 || len >= (int)sizeof(info))
		return -EINVAL;
	return hkdf_sha256(slice_of(master, S3_SSE_KEY_BYTES), SLICE("nebulaio sse"),
		slice_of(info, (size_t)len), ret_key, S3_SSE_KEY_BYTES);
}

/* A data key is sealed together with its purpose: a record with another purpose cannot open it. */
#define SEALED_FOR_GCM "gcm"

static int seal(const uint8_t *key, const uint8_t *data_key, char ret_text[SEALED_LEN])
{
	uint8_t sealed[SEALED_BYTES];
	struct aead_message message = {.nonce = sealed,
		.aad = SLICE(SEALED_FOR_GCM),
		.src = data_key,
		.dst = sealed + AEAD_NONCE_BYTES,
		.len = S3_SSE_KEY_BYTES,
		.tag = sealed + AEAD_NONCE_BYTES + S3_SSE_KEY_BYTES};
	struct aead *aead;
	int ret = aead_open(key, &aead);

	if (ret)
		return ret;
	random_fill(sealed, AEAD_NONCE_BYTES);
	ret = aead_seal(aead, &message);
	aead_close(aead);
	base64_encode(sealed, sizeof(sealed), ret_text);
	return ret;
}

/* -EBADMSG: not sealed by this key. */
static int unseal(const uint8_t *key, struct slice text, struct s3_sse *sse)
{
	uint8_t sealed[SEALED_BYTES];
	struct aead_message message = {.nonce = sealed,
		.aad = sse->authenticated ? SLICE(SEALED_FOR_GCM) : SLICE_NONE,
		.src = sealed + AEAD_NONCE_BYTES,
		.dst = sse->key,
		.len = S3_SSE_KEY_BYTES,
		.tag = sealed + AEAD_NONCE_BYTES + S3_SSE_KEY_BYTES};
	struct aead *aead;
	size_t len;
	int ret;

	if (base64_decode(text, sealed, sizeof(sealed), &len) || len != sizeof(sealed))
		return -EINVAL;
	ret = aead_open(key, &aead);
	if (ret)
		return ret;
	ret = aead_unseal(aead, &message);
	aead_close(aead);
	return ret;
}

/* ---- Parameters of requests. ---- */

const struct s3_sse_names s3_sse_names = {.algorithm = SLICE(S3_SSE_CLIENT "algorithm"),
	.key = SLICE(S3_SSE_CLIENT "key"),
	.md5 = SLICE(S3_SSE_CLIENT "key-md5")};
const struct s3_sse_names s3_sse_copy_names = {.algorithm = SLICE(S3_SSE_COPY_CLIENT "algorithm"),
	.key = SLICE(S3_SSE_COPY_CLIENT "key"),
	.md5 = SLICE(S3_SSE_COPY_CLIENT "key-md5")};

/* Reads the client's own key from three headers. *ret_given false: the request has none of them. */
static const struct s3_error *customer_key(struct s3_call *call, const struct s3_sse_names *names,
	uint8_t ret_key[S3_SSE_KEY_BYTES], struct slice *ret_md5, bool *ret_given)
{
	struct slice algorithm = s3_call_header(call, names->algorithm);
	struct slice key = s3_call_header(call, names->key);
	struct slice md5 = s3_call_header(call, names->md5);
	char digest_text[BASE64_LEN(MD5_BYTES)];
	uint8_t digest[MD5_BYTES];
	size_t len;

	*ret_given = algorithm.len || key.len || md5.len;
	if (!*ret_given)
		return NULL;
	if (!algorithm.len)
		return s3_fail(call, S3_E_INVALID_ARGUMENT,
			"Requests specifying Server Side Encryption with Customer provided keys "
			"must provide a valid encryption algorithm.");
	if (!slice_eq(algorithm, SLICE("AES256")))
		return s3_error_at(S3_E_INVALID_ENCRYPTION_ALGORITHM);
	if (!key.len)
		return s3_fail(call, S3_E_INVALID_ARGUMENT,
			"Requests specifying Server Side Encryption with Customer provided keys "
			"must provide an appropriate secret key.");
	if (!md5.len)
		return s3_fail(call, S3_E_INVALID_ARGUMENT,
			"Requests specifying Server Side Encryption with Customer provided keys "
			"must provide the client calculated MD5 of the secret key.");
	if (base64_decode(key, ret_key, S3_SSE_KEY_BYTES, &len) || len != S3_SSE_KEY_BYTES)
		return s3_fail(call, S3_E_INVALID_ARGUMENT,
			"The secret key was invalid for the specified algorithm.");
	md5_of(ret_key, S3_SSE_KEY_BYTES, digest);
	base64_encode(digest, sizeof(digest), digest_text);
	if (!slice_eq(md5, slice_of(digest_text, sizeof(digest_text))))
		return s3_fail(call, S3_E_INVALID_ARGUMENT,
			"The calculated MD5 hash of the key did not match the hash that was "
			"provided.");
	*ret_md5 = md5;
	return NULL;
}

static bool has_kms_key(const struct s3_keyring *keyring, struct slice name)
{
	struct slice rest = slice_str(keyring->kms_names);

	while (rest.len)
		if (slice_eq(slice_trim(slice_split(&rest, ',')), name))
			return true;
	return s3_vault_has(keyring->vault, name);
}

static const struct s3_error *choose_kms_key(
	struct s3_call *call, struct slice name, struct slice *ret_name)
{
	const struct s3_keyring *keyring = call->s3->keyring;

	if (!keyring->kms_names[0] && !keyring->vault)
		return s3_fail(call, S3_E_NOT_IMPLEMENTED,
			"This server has no KMS keys (encryption.kms.keys, "
			"encryption.kms.vault.keys).");
	name = policy_kms_key_id(name);
	if (!name.len)
		name = slice_str(keyring->kms_default);
	if (!name.len)
		return s3_fail(call, S3_E_INVALID_ARGUMENT,
			"Server Side Encryption with AWS KMS managed key requires a key id, and "
			"this server has no default one.");
	if (name.len > S3_SSE_KMS_NAME_MAX || !has_kms_key(keyring, name)) {
		return s3_fail(call, S3_E_KMS_NOT_FOUND, "Key '%.*s' does not exist",
			SLICE_FMT(slice_to(name, 100)));
	}
	*ret_name = name;
	return NULL;
}

static const struct s3_error *choose_default(struct s3_call *call, struct s3_sse *sse)
{
	const struct s3_sse_default *preset;
	const struct s3_settings *settings;
	const struct s3_error *error = s3_call_settings(call, &settings);

	if (error || !settings)
		return error;
	preset = settings->parsed[S3_CONFIG_ENCRYPTION];
	if (!preset)
		return NULL;
	sse->kind = preset->kms ? S3_SSE_KMS : S3_SSE_S3;
	sse->bucket_key = preset->bucket_key;
	return preset->kms ? choose_kms_key(call, preset->kms_key, &sse->kms_key) : NULL;
}

static const struct s3_error *choose_server_side(
	struct s3_call *call, struct slice algorithm, struct s3_sse *sse)
{
	struct slice key_id = s3_call_header(call, SLICE(PREFIX "-aws-kms-key-id"));
	struct slice bucket_key = s3_call_header(call, SLICE(PREFIX "-bucket-key-enabled"));

	sse->bucket_key = slice_eq_nocase(bucket_key, SLICE("true"));
	if (slice_eq(algorithm, SLICE("AES256"))) {
		sse->kind = S3_SSE_S3;
		return key_id.len ? s3_fail(call, S3_E_INVALID_ARGUMENT,
					    "Server Side Encryption with AES256 takes no KMS key "
					    "id.")
				  : NULL;
	}
	if (slice_eq(algorithm, SLICE("aws:kms:dsse")))
		return s3_fail(call, S3_E_NOT_IMPLEMENTED,
			"Encryption in two layers (aws:kms:dsse) is not implemented.");
	if (!slice_eq(algorithm, SLICE("aws:kms")))
		return s3_fail_argument(call, PREFIX, algorithm,
			"The encryption method specified is not supported");
	sse->kind = S3_SSE_KMS;
	return choose_kms_key(call, key_id, &sse->kms_key);
}

static const struct s3_error *vault_failed(struct s3_call *call, int error)
{
	if (error == -EACCES)
		return s3_fail(call, S3_E_KMS_NOT_FOUND,
			"The key service refuses the key; the server's log has the reason.");
	return s3_fail(call, S3_E_SERVICE_UNAVAILABLE,
		"The key service cannot be reached. Try again; the server's log has the reason.");
}

/* The key that encrypts the data key: *ret_id is its id, in the arena. */
static const struct s3_error *master_choose(struct s3_call *call, struct s3_sse *sse,
	uint8_t ret_key[S3_SSE_KEY_BYTES], struct slice *ret_id)
{
	const struct s3_keyring *keyring = call->s3->keyring;
	char text[S3_VAULT_TEXT_MAX + 1];
	int ret;

	sse->vault = sse->kind == S3_SSE_KMS && s3_vault_has(keyring->vault, sse->kms_key);
	if (!sse->vault) {
		memcpy(ret_key, keyring->masters[0].key, S3_SSE_KEY_BYTES);
		*ret_id = slice_str(keyring->masters[0].id);
		return NULL;
	}
	ret = s3_vault_current(keyring->vault, sse->kms_key, ret_key, text);
	if (ret)
		return vault_failed(call, ret);
	*ret_id = mem_arena_copy(&call->arena, slice_str(text));
	return ret_id->data ? NULL : s3_error_at(S3_E_SLOW_DOWN);
}

static const struct s3_error *make_record(
	struct s3_call *call, struct s3_sse *sse, const uint8_t *customer, struct slice *ret_record)
{
	char sealed[SEALED_LEN], text[SEALED_LEN + S3_SSE_KMS_NAME_MAX + S3_VAULT_TEXT_MAX + 64];
	uint8_t key[S3_SSE_KEY_BYTES], master[S3_SSE_KEY_BYTES];
	const struct s3_error *error = NULL;
	struct slice id = SLICE_NONE;
	int ret = 0, len;

	random_fill(sse->key, sizeof(sse->key));
	sse->authenticated = true;
	if (customer)
		memcpy(key, customer, sizeof(key));
	else
		error = master_choose(call, sse, master, &id);
	if (!error && !customer)
		ret = sealing_key(master, sse, key);
	if (!error && !ret)
		ret = seal(key, sse->key, sealed);
	secret_wipe(key, sizeof(key));
	secret_wipe(master, sizeof(master));
	if (error)
		return error;
	if (ret)
		return s3_fail_errno(call, ret);
	if (sse->kind == S3_SSE_CUSTOMER)
		len = snprintf(text, sizeof(text), "c+ %.*s %.*s", (int)SEALED_LEN, sealed,
			SLICE_FMT(sse->customer_md5));
	else
		len = snprintf(text, sizeof(text), "%s %.*s %.*s %d %.*s",
			sse->vault		  ? "vault+"
			: sse->kind == S3_SSE_KMS ? "kms+"
						  : "s3+",
			(int)SEALED_LEN, sealed, SLICE_FMT(id), sse->bucket_key,
			SLICE_FMT(sse->kms_key));
	CHECK(len > 0 && len < (int)sizeof(text));
	*ret_record = mem_arena_copy(&call->arena, slice_of(text, (size_t)len));
	return ret_record->data ? NULL : s3_error_at(S3_E_SLOW_DOWN);
}

static const struct s3_error *begin(
	struct s3_call *call, bool at_least, struct s3_sse *ret_sse, struct slice *ret_record)
{
	struct slice algorithm = s3_call_header(call, SLICE(PREFIX));
	struct slice key_id = s3_call_header(call, SLICE(PREFIX "-aws-kms-key-id"));
	uint8_t customer[S3_SSE_KEY_BYTES];
	const struct s3_error *error;
	bool given;

	*ret_sse = (struct s3_sse){.kind = S3_SSE_NONE};
	*ret_record = SLICE_NONE;
	error = customer_key(call, &s3_sse_names, customer, &ret_sse->customer_md5, &given);
	if (error)
		return error;
	if (given && (algorithm.len || key_id.len))
		return s3_fail(call, S3_E_INVALID_ARGUMENT,
			"Server Side Encryption with Customer provided key is incompatible with "
			"the encryption method specified");
	if (!algorithm.len && key_id.len)
		return s3_fail(call, S3_E_INVALID_ARGUMENT,
			"A KMS key id needs the header x-amz-server-side-encryption: aws:kms");
	if (given)
		ret_sse->kind = S3_SSE_CUSTOMER;
	else if (algorithm.len)
		error = choose_server_side(call, algorithm, ret_sse);
	else
		error = choose_default(call, ret_sse);
	if (!error && at_least && ret_sse->kind == S3_SSE_NONE)
		ret_sse->kind = S3_SSE_S3;
	if (!error && ret_sse->kind != S3_SSE_NONE)
		error = make_record(call, ret_sse, given ? customer : NULL, ret_record);
	secret_wipe(customer, sizeof(customer));
	return error;
}

const struct s3_error *s3_sse_begin(
	struct s3_call *call, struct s3_sse *ret_sse, struct slice *ret_record)
{
	return begin(call, false, ret_sse, ret_record);
}

const struct s3_error *s3_sse_begin_copy(
	struct s3_call *call, bool encrypted, struct s3_sse *ret_sse, struct slice *ret_record)
{
	return begin(call, encrypted, ret_sse, ret_record);
}

/* ---- Stored encryption data. ---- */

static const struct s3_error *open_customer(struct s3_call *call, struct slice sealed,
	const struct s3_sse_names *names, struct s3_sse *sse)
{
	uint8_t customer[S3_SSE_KEY_BYTES];
	struct slice md5;
	const struct s3_error *error;
	bool given;
	int ret;

	error = customer_key(call, names, customer, &md5, &given);
	if (!error && !given)
		error = s3_fail(call, S3_E_INVALID_REQUEST,
			"The object was stored using a form of Server Side Encryption. The correct "
			"parameters must be provided to retrieve the object.");
	if (error)
		return error;
	ret = unseal(customer, sealed, sse);
	secret_wipe(customer, sizeof(customer));
	if (ret == -EBADMSG)
		return s3_fail(call, S3_E_ACCESS_DENIED,
			"The provided encryption parameters did not match the ones used "
			"originally.");
	return ret ? s3_fail_errno(call, ret == -EINVAL ? -EIO : ret) : NULL;
}

static const struct s3_error *open_server_side(
	struct s3_call *call, struct slice sealed, struct slice id, struct s3_sse *sse)
{
	const struct s3_keyring *keyring = call->s3->keyring;
	const uint8_t *master = sse->vault ? NULL : master_of(keyring, id);
	uint8_t key[S3_SSE_KEY_BYTES], held[S3_SSE_KEY_BYTES];
	int ret;

	if (sse->vault && keyring->vault) {
		ret = s3_vault_key_of(keyring->vault, sse->kms_key, id, held);
		if (ret)
			return vault_failed(call, ret);
		master = held;
	}
	if (!master && sse->vault) {
		log_error("s3",
			"an object is encrypted under the key service's key %.*s, and "
			"encryption.kms.vault.address is not set",
			SLICE_FMT(sse->kms_key));
		return s3_error_at(S3_E_INTERNAL);
	}
	if (!master) {
		log_error("s3",
			"an object is encrypted under the master key %.*s, which is not "
			"among the server's keys (encryption.key_file)",
			SLICE_FMT(id));
		return s3_error_at(S3_E_INTERNAL);
	}
	ret = sealing_key(master, sse, key);
	if (!ret)
		ret = unseal(key, sealed, sse);
	secret_wipe(key, sizeof(key));
	secret_wipe(held, sizeof(held));
	return ret ? s3_fail_errno(call, -EIO) : NULL;
}

/* "c SEALED MD5", or "s3 SEALED MASTER BUCKET-KEY" and the KMS key's name; the first word ends with
 * a plus if the body is authenticated. "vault" is a KMS key of the key service; MASTER is then the
 * sealing key as the service encrypted it. */
static void parse_record(
	struct slice headers, struct s3_sse *sse, struct slice *ret_sealed, struct slice *ret_id)
{
	struct slice rest = s3_meta_hidden(headers, SLICE(S3_SSE_HEADER)), kind;

	*sse = (struct s3_sse){.kind = S3_SSE_NONE};
	kind = slice_split(&rest, ' ');
	sse->authenticated = slice_ends(kind, SLICE("+"));
	if (sse->authenticated)
		kind.len--;
	*ret_sealed = slice_split(&rest, ' ');
	if (slice_eq(kind, SLICE("c"))) {
		sse->kind = S3_SSE_CUSTOMER;
		sse->customer_md5 = rest;
	} else if (kind.len) {
		sse->vault = slice_eq(kind, SLICE("vault"));
		sse->kind = sse->vault || slice_eq(kind, SLICE("kms")) ? S3_SSE_KMS : S3_SSE_S3;
		*ret_id = slice_split(&rest, ' ');
		sse->bucket_key = slice_eq(slice_split(&rest, ' '), SLICE("1"));
		sse->kms_key = rest;
	}
}

void s3_sse_describe(struct slice headers, struct s3_sse *ret_sse)
{
	struct slice sealed, id;

	parse_record(headers, ret_sse, &sealed, &id);
}

const struct s3_error *s3_sse_open(struct s3_call *call, struct slice headers,
	const struct s3_sse_names *names, struct s3_sse *ret_sse)
{
	bool given =
		s3_call_header(call, names->algorithm).len || s3_call_header(call, names->key).len;
	struct slice sealed, id;

	parse_record(headers, ret_sse, &sealed, &id);
	if (ret_sse->kind == S3_SSE_CUSTOMER)
		return open_customer(call, sealed, names, ret_sse);
	if (given)
		return s3_fail(call, S3_E_INVALID_REQUEST,
			"The encryption parameters are not applicable to this object.");
	return ret_sse->kind == S3_SSE_NONE ? NULL : open_server_side(call, sealed, id, ret_sse);
}

bool s3_sse_asked(const struct s3_call *call)
{
	const struct s3_request *request = call->request;

	for (uint32_t i = 0; i < request->header_count; i++)
		if (slice_eq_nocase(
			    slice_to(request->headers[i].name, strlen(PREFIX)), SLICE(PREFIX)))
			return true;
	return false;
}

const struct s3_error *s3_sse_of_read(
	struct s3_call *call, const struct store_meta *meta, const struct s3_sse **ret_sse)
{
	struct slice headers = slice_of(meta->headers, meta->headers_len);
	bool encrypted = meta->checksum_flags & S3_FLAG_ENCRYPTED;
	const struct s3_error *error;
	struct s3_sse *sse;

	*ret_sse = NULL;
	if (s3_call_has_header(call, SLICE(PREFIX)))
		return s3_fail(call, S3_E_INVALID_ARGUMENT,
			"x-amz-server-side-encryption header is not supported for this operation.");
	sse = mem_arena_get(&call->arena, sizeof(*sse));
	if (!sse)
		return s3_error_at(S3_E_SLOW_DOWN);
	error = s3_sse_open(call, headers, &s3_sse_names, sse);
	if (error || !encrypted)
		return error;
	*ret_sse = sse;
	s3_sse_answer(call, sse);
	return NULL;
}

const struct s3_error *s3_sse_keep(
	struct s3_call *call, struct slice record, struct store_meta *meta)
{
	struct slice headers = slice_of(meta->headers, meta->headers_len);

	if (!record.data)
		return NULL;
	if (s3_meta_set_hidden(headers, SLICE(S3_SSE_HEADER), record, &call->arena, &headers))
		return s3_error_at(S3_E_SLOW_DOWN);
	meta->headers = headers.data;
	meta->headers_len = (uint32_t)headers.len;
	meta->checksum_flags |= S3_FLAG_ENCRYPTED;
	return NULL;
}

/* ---- Answers and bytes. ---- */

/* Where the value came from may be gone when the head is sent. */
static void answer_copy(struct s3_call *call, struct slice name, struct slice value)
{
	struct slice copy = mem_arena_copy(&call->arena, value);

	if (copy.data)
		s3_answer_header(call, name, copy);
}

void s3_sse_answer(struct s3_call *call, const struct s3_sse *sse)
{
	switch (sse->kind) {
	case S3_SSE_NONE:
		break;
	case S3_SSE_S3:
		s3_answer_header(call, SLICE(PREFIX), SLICE("AES256"));
		break;
	case S3_SSE_KMS:
		s3_answer_header(call, SLICE(PREFIX), SLICE("aws:kms"));
		answer_copy(call, SLICE(PREFIX "-aws-kms-key-id"), sse->kms_key);
		if (sse->bucket_key)
			s3_answer_header(call, SLICE(PREFIX "-bucket-key-enabled"), SLICE("true"));
		break;
	case S3_SSE_CUSTOMER:
		s3_answer_header(call, SLICE(S3_SSE_CLIENT "algorithm"), SLICE("AES256"));
		answer_copy(call, SLICE(S3_SSE_CLIENT "key-MD5"), sse->customer_md5);
		break;
	}
}

void s3_sse_etag(const struct s3_sse *sse, char etag[2 * MD5_BYTES + 1])
{
	uint8_t mac[SHA256_BYTES];

	if (sse->kind != S3_SSE_KMS && sse->kind != S3_SSE_CUSTOMER)
		return;
	hmac_sha256(slice_of(sse->key, sizeof(sse->key)), slice_str(etag), mac);
	hex_encode(mac, MD5_BYTES, etag);
}

static bool is_encrypted(const struct s3_sse *sse)
{
	return sse && sse->kind != S3_SSE_NONE;
}

int s3_sse_source_in(struct flow_core *core, const struct s3_sse *sse, struct store_get *get,
	struct s3_range range, struct store_crypt_source *crypt, struct flow_source **ret_source)
{
	struct flow_source *inner;
	int ret = store_get_source(get, core, range.offset, range.bytes, &inner);

	if (ret || !is_encrypted(sse)) {
		if (!ret)
			*ret_source = inner;
		return ret;
	}
	ret = crypt ? store_crypt_source_init(crypt, s3_sse_key(sse), get, range.offset, inner)
		    : -ENOMEM;
	if (ret)
		flow_source_close(inner);
	else
		*ret_source = &crypt->source;
	return ret;
}

int s3_sse_source(struct s3_call *call, const struct s3_sse *sse, struct store_get *get,
	uint64_t offset, uint64_t bytes, struct flow_source **ret_source)
{
	struct store_crypt_source *crypt = NULL;

	if (is_encrypted(sse))
		crypt = mem_arena_get(&call->arena, sizeof(*crypt));
	return s3_sse_source_in(
		call->request->core, sse, get, (struct s3_range){offset, bytes}, crypt, ret_source);
}
