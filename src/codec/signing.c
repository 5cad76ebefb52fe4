/* codec/signing.c: AWS Signature Version 4: scope, key, string to sign, signature. */
#include "codec/signing.h"

#include <stdlib.h>
#include <string.h>

#include "codec/text.h"

void signing_scope_put(const struct signing_scope *scope, struct buf *out)
{
	buf_put_slice(out, slice_to(scope->date, DATE_DAY_LEN));
	buf_put(out, "/", 1);
	buf_put_slice(out, scope->region);
	buf_put(out, "/", 1);
	buf_put_slice(out, scope->service);
	buf_put_str(out, "/" SIGNING_TERMINAL);
}

void signing_key(
	const struct signing_scope *scope, struct slice secret, uint8_t ret_key[SHA256_BYTES])
{
	char start[4 + LIMIT_SECRET_KEY_LEN_MAX] = "AWS4";
	struct slice key = slice_of(ret_key, SHA256_BYTES);

	CHECK(secret.len <= LIMIT_SECRET_KEY_LEN_MAX);
	memcpy(start + 4, secret.data, secret.len);
	hmac_sha256(slice_of(start, 4 + secret.len), slice_to(scope->date, DATE_DAY_LEN), ret_key);
	hmac_sha256(key, scope->region, ret_key);
	hmac_sha256(key, scope->service, ret_key);
	hmac_sha256(key, SLICE(SIGNING_TERMINAL), ret_key);
	secret_wipe(start, sizeof(start));
}

void signing_value_put(struct slice value, struct buf *out)
{
	value = slice_trim(value);
	if (!value.len ||
		(!memchr(value.data, ' ', value.len) && !memchr(value.data, '\t', value.len))) {
		buf_put_slice(out, value);
		return;
	}
	while (value.len) {
		size_t run = 0;

		while (run < value.len && value.data[run] != ' ' && value.data[run] != '\t')
			run++;
		buf_put_slice(out, slice_to(value, run));
		value = slice_from(value, run);
		if (!value.len)
			break;
		buf_put(out, " ", 1);
		while (value.len && (value.data[0] == ' ' || value.data[0] == '\t'))
			value = slice_from(value, 1);
	}
}

void signing_name_put(struct slice name, struct buf *out)
{
	char *to = buf_room(out, name.len);

	if (!to)
		return;
	text_lower(name, to);
	out->len += name.len;
}

void signing_string(
	struct slice timestamp, struct slice scope, struct slice canonical, struct buf *out)
{
	uint8_t digest[SHA256_BYTES];
	char hex[2 * SHA256_BYTES];

	sha256_of(canonical.data, canonical.len, digest);
	hex_encode(digest, sizeof(digest), hex);
	buf_put_str(out, SIGNING_ALGORITHM "\n");
	buf_put_slice(out, timestamp);
	buf_put_byte(out, '\n');
	buf_put_slice(out, scope);
	buf_put_byte(out, '\n');
	buf_put(out, hex, sizeof(hex));
}

void signing_sign(const struct hmac_key *key, struct slice string_to_sign,
	char ret_signature[SIGNING_SIGNATURE_LEN])
{
	uint8_t mac[SHA256_BYTES];

	hmac_by_key(key, string_to_sign, mac);
	hex_encode(mac, sizeof(mac), ret_signature);
}

void signing_signature(const uint8_t key[SHA256_BYTES], const struct signing_scope *scope,
	struct slice timestamp, struct slice canonical,
	char ret_signature[SIGNING_SIGNATURE_LEN + 1])
{
	struct buf text, string;
	struct hmac_key prepared;

	buf_init(&text, 4 * KIB);
	buf_init(&string, 4 * KIB);
	signing_scope_put(scope, &text);
	signing_string(timestamp, buf_slice(&text), canonical, &string);
	hmac_key_init(&prepared, key, SHA256_BYTES);
	signing_sign(&prepared, buf_slice(&string), ret_signature);
	ret_signature[SIGNING_SIGNATURE_LEN] = '\0';
	secret_wipe(&prepared, sizeof(prepared));
	buf_free(&text);
	buf_free(&string);
}

const char *signing_session_token(const char *access_key)
{
	static const char *const PAIRS[][2] = {{"NEBULAIO_ACCESS_KEY", "NEBULAIO_SESSION_TOKEN"},
		{"AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN"}};

	for (size_t i = 0; i < ARRAY_LEN(PAIRS); i++) {
		const char *key = getenv(PAIRS[i][0]), *token = getenv(PAIRS[i][1]);

		if (key && token && *token && strcmp(key, access_key) == 0)
			return token;
	}
	return NULL;
}
