/* iam/jwt.h: signed tokens of OpenID Connect providers (JWT), and the providers' public keys (JWK
 * sets). Tokens signed with a shared secret have functions of their own. Pure: no clock, no
 * network. Tokens without a signature are not supported.
 *
 * Source: RFC 7515 (JWS, compact serialization), RFC 7517 (JWK), RFC 7518 (algorithms), RFC 7519.
 */
#ifndef IAM_JWT_H
#define IAM_JWT_H

#include <jansson.h>

#include "base/base.h"

#define JWT_LEN_MAX	  20000u /* STS's limit */
#define JWT_KEYS_LEN_MAX  (256 * KIB)
#define JWT_KEYS_MAX	  64u
#define JWT_KEY_ID_MAX	  256u
#define JWT_SIGNATURE_MAX 512u /* RSA with 4,096 bits */

enum jwt_algorithm { JWT_RS256, JWT_RS384, JWT_RS512, JWT_ES256, JWT_ES384 };

/* A parsed token. Nothing in it is trusted before jwt_verify. */
struct jwt {
	enum jwt_algorithm algorithm;
	char key_id[JWT_KEY_ID_MAX + 1]; /* empty: the token names none */
	struct slice signed_text;	 /* in the text it was parsed from */
	uint8_t signature[JWT_SIGNATURE_MAX];
	size_t signature_len;
	json_t *claims; /* an object */
};
/* text must outlive it. -EBADMSG: not a token of a known algorithm; -ENOMEM. */
int jwt_parse(struct slice text, struct jwt *ret_jwt);
void jwt_free(struct jwt *jwt); /* takes an empty one */

/* Public keys. Shared, never changed after they were made: any thread. */
struct jwt_keys;
/* Keys of other kinds, or too weak, are left out. -EBADMSG: not a JWK set; -ENOMEM. */
int jwt_keys_parse(struct slice text, struct jwt_keys **ret_keys);
struct jwt_keys *jwt_keys_get(struct jwt_keys *keys); /* one reference more */
void jwt_keys_put(struct jwt_keys *keys);	      /* takes NULL */
uint32_t jwt_keys_count(const struct jwt_keys *keys);

/* -ENOKEY: no key has that id, or the token names none and there are several; -EBADMSG: the key did
 * not sign this; -ENOMEM. */
int jwt_verify(const struct jwt *jwt, const struct jwt_keys *keys);

/* Parses a token that is signed with a shared secret (HS512). A separate function, so that no token
 * can choose to be checked this way. As jwt_parse. */
int jwt_shared_parse(struct slice text, struct jwt *ret_jwt);
/* Whether this secret signed it. */
bool jwt_shared_verify(const struct jwt *jwt, struct slice secret);

#endif
