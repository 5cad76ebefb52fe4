/* iam/jwt.c: JWTs and JWK sets. A key fits a token only by its id, its type and, if the key has
 * one, its algorithm: a token cannot choose how it is verified. */
#include "iam/jwt.h"

#include <errno.h>
#include <openssl/core_names.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/param_build.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "codec/codec.h"
#include "document/json.h"

#define JSON_DEPTH_MAX 16u
#define RSA_BITS_MIN   2048
#define RSA_BITS_MAX   4096
#define EXPONENT_MAX   8u /* bytes */

static const struct algorithm {
	struct slice name;
	const EVP_MD *(*digest)(void);
	const char *curve; /* NULL: RSA */
	size_t half_bytes; /* of an ECDSA signature: r and s */
	const char *jwk_curve;
} algorithms[] = {
	[JWT_RS256] = {SLICE("RS256"), EVP_sha256, NULL, 0, NULL},
	[JWT_RS384] = {SLICE("RS384"), EVP_sha384, NULL, 0, NULL},
	[JWT_RS512] = {SLICE("RS512"), EVP_sha512, NULL, 0, NULL},
	[JWT_ES256] = {SLICE("ES256"), EVP_sha256, "prime256v1", 32, "P-256"},
	[JWT_ES384] = {SLICE("ES384"), EVP_sha384, "secp384r1", 48, "P-384"},
};

struct jwt_key {
	char id[JWT_KEY_ID_MAX + 1];
	const char *curve; /* NULL: RSA */
	int algorithm;	   /* -1: any algorithm of its type */
	EVP_PKEY *key;
};
struct jwt_keys {
	_Atomic uint32_t references;
	uint32_t count;
	struct jwt_key items[JWT_KEYS_MAX];
};

/* ---- Texts. ---- */

/* base64url without padding (RFC 7515, 2). */
static int decode(struct slice text, void *ret_data, size_t bytes_max, size_t *ret_len)
{
	char *plain;
	int ret;

	if (text.len > JWT_LEN_MAX || text.len % 4 == 1)
		return -EBADMSG;
	plain = malloc(text.len + 4);
	if (!plain)
		return -ENOMEM;
	ret = 0;
	for (size_t i = 0; i < text.len; i++) {
		char c = text.data[i];

		if (c == '+' || c == '/' || c == '=')
			ret = -EBADMSG;
		plain[i] = c == '-' ? '+' : c == '_' ? '/' : c;
	}
	memset(plain + text.len, '=', 3);
	if (!ret && base64_decode(
			    slice_of(plain, (text.len + 3) / 4 * 4), ret_data, bytes_max, ret_len))
		ret = -EBADMSG;
	free(plain);
	return ret;
}

/* Refuses duplicate names: two parsers could read such a token differently. */
static json_t *load(struct slice text)
{
	json_t *json = json_is_flat(text, JSON_DEPTH_MAX)
			       ? json_loadb(text.data, text.len, JSON_REJECT_DUPLICATES, NULL)
			       : NULL;

	if (json_is_object(json))
		return json;
	json_decref(json);
	return NULL;
}

static int decode_json(struct slice text, json_t **ret_json)
{
	char *plain = malloc(JWT_LEN_MAX);
	size_t len;
	int ret;

	if (!plain)
		return -ENOMEM;
	ret = decode(text, plain, JWT_LEN_MAX, &len);
	if (!ret) {
		*ret_json = load(slice_of(plain, len));
		ret = *ret_json ? 0 : -EBADMSG;
	}
	free(plain);
	return ret;
}

static int find_algorithm(struct slice name)
{
	for (size_t i = 0; i < ARRAY_LEN(algorithms); i++)
		if (slice_eq(algorithms[i].name, name))
			return (int)i;
	return -1;
}

/* ---- Tokens. ---- */

static int read_header(const json_t *header, struct jwt *jwt)
{
	int algorithm = find_algorithm(json_member_text(header, "alg"));

	/* Critical extensions are not supported. */
	if (algorithm < 0 || json_object_get(header, "crit") ||
		slice_copy_str(json_member_text(header, "kid"), jwt->key_id, sizeof(jwt->key_id)))
		return -EBADMSG;
	jwt->algorithm = (enum jwt_algorithm)algorithm;
	return 0;
}

static int read_shared_header(const json_t *header, struct jwt *jwt)
{
	bool known = slice_eq(json_member_text(header, "alg"), SLICE("HS512"));

	return known && !json_object_get(header, "crit") && jwt->signature_len == SHA512_BYTES
		       ? 0
		       : -EBADMSG;
}

typedef int read_header_fn(const json_t *header, struct jwt *jwt);
static int parse(struct slice text, read_header_fn *read, struct jwt *ret_jwt)
{
	struct slice rest = text, header_text, claims_text;
	json_t *header = NULL;
	int ret;

	*ret_jwt = (struct jwt){.claims = NULL};
	if (text.len > JWT_LEN_MAX)
		return -EBADMSG;
	header_text = slice_split(&rest, '.');
	claims_text = slice_split(&rest, '.');
	if (!rest.data || !rest.len)
		return -EBADMSG;
	ret = decode(rest, ret_jwt->signature, sizeof(ret_jwt->signature), &ret_jwt->signature_len);
	if (!ret)
		ret = decode_json(header_text, &header);
	if (!ret)
		ret = read(header, ret_jwt);
	json_decref(header);
	if (!ret)
		ret = decode_json(claims_text, &ret_jwt->claims);
	ret_jwt->signed_text = slice_to(text, header_text.len + 1 + claims_text.len);
	return ret;
}

int jwt_parse(struct slice text, struct jwt *ret_jwt)
{
	return parse(text, read_header, ret_jwt);
}

int jwt_shared_parse(struct slice text, struct jwt *ret_jwt)
{
	return parse(text, read_shared_header, ret_jwt);
}

bool jwt_shared_verify(const struct jwt *jwt, struct slice secret)
{
	uint8_t mac[EVP_MAX_MD_SIZE];
	unsigned len = 0;

	return HMAC(EVP_sha512(), secret.data, (int)secret.len,
		       (const uint8_t *)jwt->signed_text.data, jwt->signed_text.len, mac, &len) &&
	       len == jwt->signature_len && secret_equal(mac, jwt->signature, len);
}

void jwt_free(struct jwt *jwt)
{
	json_decref(jwt->claims);
	jwt->claims = NULL;
}

/* ---- Keys. ---- */

static EVP_PKEY *key_make(const char *type, OSSL_PARAM_BLD *build)
{
	OSSL_PARAM *params = OSSL_PARAM_BLD_to_param(build);
	EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_from_name(NULL, type, NULL);
	EVP_PKEY *key = NULL;

	/* OpenSSL checks the point: one that is not on its curve is no key. */
	if (!params || !context || EVP_PKEY_fromdata_init(context) <= 0 ||
		EVP_PKEY_fromdata(context, &key, EVP_PKEY_PUBLIC_KEY, params) <= 0)
		key = NULL;
	EVP_PKEY_CTX_free(context);
	OSSL_PARAM_free(params);
	if (key) {
		context = EVP_PKEY_CTX_new_from_pkey(NULL, key, NULL);
		if (!context || EVP_PKEY_public_check(context) <= 0) {
			EVP_PKEY_free(key);
			key = NULL;
		}
		EVP_PKEY_CTX_free(context);
	}
	return key;
}

static EVP_PKEY *rsa_make(const json_t *jwk)
{
	uint8_t modulus[RSA_BITS_MAX / 8], exponent[EXPONENT_MAX];
	size_t modulus_len, exponent_len;
	BIGNUM *n, *e;
	OSSL_PARAM_BLD *build;
	EVP_PKEY *key = NULL;

	if (decode(json_member_text(jwk, "n"), modulus, sizeof(modulus), &modulus_len) ||
		decode(json_member_text(jwk, "e"), exponent, sizeof(exponent), &exponent_len))
		return NULL;
	n = BN_bin2bn(modulus, (int)modulus_len, NULL);
	e = BN_bin2bn(exponent, (int)exponent_len, NULL);
	build = OSSL_PARAM_BLD_new();
	if (n && e && build && BN_num_bits(n) >= RSA_BITS_MIN && BN_is_odd(n) && BN_is_odd(e) &&
		!BN_is_one(e) && OSSL_PARAM_BLD_push_BN(build, OSSL_PKEY_PARAM_RSA_N, n) &&
		OSSL_PARAM_BLD_push_BN(build, OSSL_PKEY_PARAM_RSA_E, e))
		key = key_make("RSA", build);
	OSSL_PARAM_BLD_free(build);
	BN_free(n);
	BN_free(e);
	return key;
}

static EVP_PKEY *ec_make(const json_t *jwk, const struct algorithm *algorithm)
{
	uint8_t point[1 + 2 * 48] = {0x04}; /* uncompressed */
	size_t half = algorithm->half_bytes, x_len, y_len;
	OSSL_PARAM_BLD *build;
	EVP_PKEY *key = NULL;

	if (decode(json_member_text(jwk, "x"), point + 1, half, &x_len) || x_len != half ||
		decode(json_member_text(jwk, "y"), point + 1 + half, half, &y_len) || y_len != half)
		return NULL;
	build = OSSL_PARAM_BLD_new();
	if (build &&
		OSSL_PARAM_BLD_push_utf8_string(
			build, OSSL_PKEY_PARAM_GROUP_NAME, algorithm->curve, 0) &&
		OSSL_PARAM_BLD_push_octet_string(
			build, OSSL_PKEY_PARAM_PUB_KEY, point, 1 + 2 * half))
		key = key_make("EC", build);
	OSSL_PARAM_BLD_free(build);
	return key;
}

static void key_add(struct jwt_keys *keys, const json_t *jwk)
{
	struct jwt_key *item = &keys->items[keys->count];
	struct slice type = json_member_text(jwk, "kty"), use = json_member_text(jwk, "use");
	struct slice name = json_member_text(jwk, "alg");

	*item = (struct jwt_key){.algorithm = find_algorithm(name)};
	if ((use.len && !slice_eq(use, SLICE("sig"))) || (name.len && item->algorithm < 0) ||
		slice_copy_str(json_member_text(jwk, "kid"), item->id, sizeof(item->id)))
		return;
	if (slice_eq(type, SLICE("RSA")))
		item->key = rsa_make(jwk);
	for (int i = JWT_ES256; i <= JWT_ES384 && slice_eq(type, SLICE("EC")); i++)
		if (slice_eq(json_member_text(jwk, "crv"), slice_str(algorithms[i].jwk_curve))) {
			item->curve = algorithms[i].curve;
			item->key = ec_make(jwk, &algorithms[i]);
		}
	keys->count += item->key != NULL;
}

int jwt_keys_parse(struct slice text, struct jwt_keys **ret_keys)
{
	json_t *set = text.len <= JWT_KEYS_LEN_MAX ? load(text) : NULL;
	const json_t *list = json_object_get(set, "keys");
	struct jwt_keys *keys = json_is_array(list) ? calloc(1, sizeof(*keys)) : NULL;
	int ret = keys ? 0 : json_is_array(list) ? -ENOMEM : -EBADMSG;

	if (keys) {
		keys->references = 1;
		for (size_t i = 0; i < json_array_size(list) && keys->count < JWT_KEYS_MAX; i++)
			key_add(keys, json_array_get(list, i));
		*ret_keys = keys;
	}
	json_decref(set);
	return ret;
}

struct jwt_keys *jwt_keys_get(struct jwt_keys *keys)
{
	atomic_fetch_add_explicit(&keys->references, 1, memory_order_relaxed);
	return keys;
}

void jwt_keys_put(struct jwt_keys *keys)
{
	if (!keys || atomic_fetch_sub_explicit(&keys->references, 1, memory_order_acq_rel) > 1)
		return;
	for (uint32_t i = 0; i < keys->count; i++)
		EVP_PKEY_free(keys->items[i].key);
	free(keys);
}

uint32_t jwt_keys_count(const struct jwt_keys *keys)
{
	return keys->count;
}

/* ---- Signatures. ---- */

/* Converts an ECDSA signature to the DER that OpenSSL takes, from r and s side by side. */
static int ecdsa_encode(const struct jwt *jwt, size_t half, uint8_t **ret_der, size_t *ret_len)
{
	ECDSA_SIG *signature;
	BIGNUM *r, *s;
	int len = -1;

	if (jwt->signature_len != 2 * half)
		return -EBADMSG;
	signature = ECDSA_SIG_new();
	r = BN_bin2bn(jwt->signature, (int)half, NULL);
	s = BN_bin2bn(jwt->signature + half, (int)half, NULL);
	if (signature && r && s && ECDSA_SIG_set0(signature, r, s)) {
		*ret_der = NULL;
		len = i2d_ECDSA_SIG(signature, ret_der);
	} else {
		BN_free(r);
		BN_free(s);
	}
	ECDSA_SIG_free(signature);
	*ret_len = (size_t)len;
	return len > 0 ? 0 : -ENOMEM;
}

static int check(const struct jwt *jwt, const struct jwt_key *key)
{
	const struct algorithm *algorithm = &algorithms[jwt->algorithm];
	const uint8_t *signature = jwt->signature;
	size_t len = jwt->signature_len;
	uint8_t *der = NULL;
	EVP_MD_CTX *context;
	int ret = 0;

	if (algorithm->curve)
		ret = ecdsa_encode(jwt, algorithm->half_bytes, &der, &len);
	if (ret)
		return ret;
	context = EVP_MD_CTX_new();
	if (!context ||
		EVP_DigestVerifyInit(context, NULL, algorithm->digest(), NULL, key->key) <= 0)
		ret = -ENOMEM;
	else if (EVP_DigestVerify(context, der ? der : signature, len,
			 (const uint8_t *)jwt->signed_text.data, jwt->signed_text.len) != 1)
		ret = -EBADMSG;
	EVP_MD_CTX_free(context);
	OPENSSL_free(der);
	return ret;
}

static bool key_fits(const struct jwt_key *key, const struct jwt *jwt)
{
	/* Compares pointers: each curve's name is one text of the table. */
	return key->curve == algorithms[jwt->algorithm].curve &&
	       (key->algorithm < 0 || key->algorithm == (int)jwt->algorithm);
}

int jwt_verify(const struct jwt *jwt, const struct jwt_keys *keys)
{
	int ret = -ENOKEY;

	if (!jwt->key_id[0])
		return keys->count == 1 && key_fits(&keys->items[0], jwt)
			       ? check(jwt, &keys->items[0])
			       : -ENOKEY;
	/* Ids need not be unique: keys of different types may share one. */
	for (uint32_t i = 0; i < keys->count && ret == -ENOKEY; i++)
		if (strcmp(keys->items[i].id, jwt->key_id) == 0 && key_fits(&keys->items[i], jwt))
			ret = check(jwt, &keys->items[i]);
	return ret;
}
