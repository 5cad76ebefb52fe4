/* s3/auth/bearer.c: authenticates by Prometheus' bearer token: a JWT that names an access key and
 * is signed with that key's secret, as `mc admin prometheus generate` makes it. */
#include "codec/codec.h"
#include "document/json.h"
#include "iam/iam.h"
#include "iam/jwt.h"
#include "s3/auth/auth.h"

#define ISSUER "prometheus"

/* Reads the claims before the signature is checked; they are trusted only after that. */
static bool claims_hold(const json_t *claims, int64_t now_s)
{
	const json_t *expires = json_object_get(claims, "exp");
	const json_t *begins = json_object_get(claims, "nbf");

	return slice_eq(json_member_text(claims, "iss"), SLICE(ISSUER)) &&
	       json_is_number(expires) && json_number_value(expires) > (double)now_s &&
	       (!begins || (json_is_number(begins) && json_number_value(begins) <= (double)now_s));
}

/* The owner of the key that the token names, if that key's secret signed it. */
static bool identify(struct s3_call *call, const struct jwt *jwt)
{
	struct slice access_key = json_member_text(jwt->claims, "sub");
	struct s3_identity *own = &call->own_identity;
	struct s3 *s3 = call->s3;

	*own = (struct s3_identity){.root = slice_eq(access_key, slice_str(s3->root_access_key))};
	if (slice_copy_str(access_key, own->access_key, sizeof(own->access_key)))
		return false;
	if (own->root)
		return jwt_shared_verify(jwt, slice_str(s3->root_secret_key));
	call->credential = iam_credential(s3->iam, access_key);
	if (!call->credential || !call->credential->active ||
		!jwt_shared_verify(jwt, slice_str(call->credential->secret)))
		return false;
	call->principal = call->credential->principal;
	atomic_fetch_add_explicit(&call->principal->references, 1, memory_order_relaxed);
	return true;
}

const struct s3_error *s3_authenticate_bearer(struct s3_call *call, int64_t now_s)
{
	struct slice token = s3_call_header(call, SLICE("authorization"));
	struct jwt jwt = {.claims = NULL};
	bool good;

	if (!slice_starts(token, SLICE("Bearer ")))
		return s3_fail(call, S3_E_ACCESS_DENIED,
			"A bearer token is needed: a JWT that an access key's secret signed.");
	token = slice_trim(slice_from(token, sizeof("Bearer ") - 1));
	good = jwt_shared_parse(token, &jwt) == 0 && claims_hold(jwt.claims, now_s) &&
	       identify(call, &jwt);
	jwt_free(&jwt);
	if (!good)
		return s3_fail(call, S3_E_ACCESS_DENIED,
			"The bearer token is no JWT by HS512 of the issuer \"" ISSUER
			"\", has run out, or was not signed by the secret of the key in sub.");
	call->identity = &call->own_identity;
	return NULL;
}
