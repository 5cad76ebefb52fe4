/* s3/auth/sign.c: signs requests that a front makes for its client, by credentials that the front
 * keeps. The signature is checked like everybody's. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "s3/auth/sigv4.h"

#define REGION "us-east-1" /* any is accepted */

/* The claim that the signature will make, as its verifier reads it. */
struct signing {
	struct sigv4_claim claim;
	struct signing_scope scope;
	char timestamp[DATE_BASIC_LEN];
	struct s3_params params;
	struct s3_param *items;
	char *memory; /* of the decoded query */
};

static void signing_free(struct signing *signing)
{
	free(signing->items);
	free(signing->memory);
}

static int signing_init(struct signing *signing, const char *service, struct slice query)
{
	uint32_t count = s3_query_count(query);

	*signing = (struct signing){.scope = {.region = SLICE(REGION)}};
	date_basic_format((int64_t)(clock_real_ns() / NS_PER_MS), signing->timestamp);
	signing->claim.timestamp = slice_of(signing->timestamp, sizeof(signing->timestamp));
	signing->scope.date = slice_to(signing->claim.timestamp, DATE_DAY_LEN);
	signing->scope.service = slice_str(service);
	signing->claim.payload_hash = SLICE("UNSIGNED-PAYLOAD");
	if (count > S3_PARAMS_MAX)
		return -EINVAL;
	signing->items = calloc(count + 1, sizeof(*signing->items));
	signing->memory = malloc(query.len + 1);
	if (!signing->items || !signing->memory)
		return -ENOMEM;
	return s3_query_parse(query, signing->items, signing->memory, &signing->params);
}

static int signing_end(struct signing *signing, const struct s3_request *request,
	struct slice secret, char ret_signature[SIGNING_SIGNATURE_LEN + 1])
{
	uint8_t key[SHA256_BYTES];
	struct buf canonical;
	int ret = 0;

	if (secret.len > LIMIT_SECRET_KEY_LEN_MAX)
		return -EINVAL;
	buf_init(&canonical, SIGV4_CANONICAL_BYTES_MAX);
	sigv4_canonical(request, &signing->params, &signing->claim, &canonical);
	if (canonical.failed) {
		ret = -EINVAL;
	} else {
		signing_key(&signing->scope, secret, key);
		signing_signature(key, &signing->scope, signing->claim.timestamp,
			buf_slice(&canonical), ret_signature);
		secret_wipe(key, sizeof(key));
	}
	buf_free(&canonical);
	return ret;
}

static bool is_to_sign(struct slice name)
{
	return slice_eq_nocase(name, SLICE("host")) ||
	       slice_eq_nocase(slice_to(name, 6), SLICE("x-amz-"));
}

/* "host;x-amz-date;…": as the headers come, which is good enough for our own verifier. */
static void put_names(const struct s3_request *request, struct buf *out)
{
	for (uint32_t i = 0; i < request->header_count; i++)
		if (is_to_sign(request->headers[i].name))
			buf_printf(out, "%s%.*s", out->len ? ";" : "",
				SLICE_FMT(request->headers[i].name));
}

static void add(struct s3_signed *signed_by, const char *name, struct slice value)
{
	signed_by->headers[signed_by->header_count++] =
		(struct s3_header){.name = slice_str(name), .value = value};
}

void s3_sign_begin(struct s3_signed *ret_signed, const struct s3_signer *signer)
{
	memset(ret_signed, 0, offsetof(struct s3_signed, headers));
	add(ret_signed, "x-amz-content-sha256", SLICE("UNSIGNED-PAYLOAD"));
	if (signer->token.len)
		add(ret_signed, "x-amz-security-token", signer->token);
}

bool s3_sign_header(struct s3_signed *signed_by, const struct s3_header *header)
{
	if (signed_by->header_count >= LIMIT_HTTP_HEADERS_MAX - 2)
		return false;
	signed_by->headers[signed_by->header_count++] = *header;
	return true;
}

int s3_sign_end(
	struct s3_request *request, const struct s3_signer *signer, struct s3_signed *signed_by)
{
	char signature[SIGNING_SIGNATURE_LEN + 1];
	struct signing signing;
	struct buf names;
	int ret = signing_init(&signing, signer->service, request->query);

	memcpy(signed_by->date, signing.timestamp, sizeof(signed_by->date));
	add(signed_by, "x-amz-date", slice_of(signed_by->date, sizeof(signed_by->date)));
	request->headers = signed_by->headers;
	request->header_count = signed_by->header_count;
	buf_init(&names, LIMIT_HTTP_HEAD_BYTES_MAX);
	put_names(request, &names);
	signing.claim.signed_headers = buf_slice(&names);
	if (!ret && names.failed)
		ret = -EINVAL;
	if (!ret)
		ret = signing_end(&signing, request, signer->secret, signature);
	buf_init(&signed_by->authorization, 2 * LIMIT_HTTP_HEAD_BYTES_MAX);
	if (!ret) {
		buf_printf(&signed_by->authorization, SIGNING_ALGORITHM " Credential=%.*s/",
			SLICE_FMT(signer->access_key));
		signing_scope_put(&signing.scope, &signed_by->authorization);
		buf_printf(&signed_by->authorization, ", SignedHeaders=%.*s, Signature=%s",
			SLICE_FMT(buf_slice(&names)), signature);
		add(signed_by, "authorization", buf_slice(&signed_by->authorization));
		request->header_count = signed_by->header_count;
		ret = signed_by->authorization.failed ? -ENOMEM : 0;
	}
	buf_free(&names);
	signing_free(&signing);
	return ret;
}

void s3_sign_free(struct s3_signed *signed_by)
{
	buf_free(&signed_by->authorization);
}

static void put_param(struct buf *out, const char *name, struct slice value)
{
	buf_printf(out, "%s%s=", out->len ? "&" : "", name);
	uri_encode(value, 0, out);
}

int s3_presign(const struct s3_request *request, const struct s3_signer *signer, uint32_t expires_s,
	struct buf *ret_query)
{
	char signature[SIGNING_SIGNATURE_LEN + 1], expires[SLICE_U64_MAX];
	struct s3_request presigned = *request;
	struct signing signing;
	struct buf credential;
	int ret = signing_init(&signing, signer->service, SLICE_NONE);

	buf_init(&credential, KIB);
	buf_printf(&credential, "%.*s/", SLICE_FMT(signer->access_key));
	signing_scope_put(&signing.scope, &credential);
	buf_put_slice(ret_query, request->query);
	put_param(ret_query, "X-Amz-Algorithm", SLICE(SIGNING_ALGORITHM));
	put_param(ret_query, "X-Amz-Credential", buf_slice(&credential));
	put_param(ret_query, "X-Amz-Date", signing.claim.timestamp);
	put_param(ret_query, "X-Amz-Expires", slice_of_u64(expires_s, expires));
	if (signer->token.len)
		put_param(ret_query, "X-Amz-Security-Token", signer->token);
	put_param(ret_query, "X-Amz-SignedHeaders", SLICE("host"));
	signing_free(&signing);
	if (!ret)
		ret = ret_query->failed || credential.failed ? -ENOMEM : 0;
	buf_free(&credential);
	if (ret)
		return ret;
	presigned.query = buf_slice(ret_query);
	ret = signing_init(&signing, signer->service, presigned.query);
	signing.claim.presigned = true;
	signing.claim.signed_headers = SLICE("host");
	if (!ret)
		ret = signing_end(&signing, &presigned, signer->secret, signature);
	if (!ret)
		put_param(ret_query, "X-Amz-Signature", slice_str(signature));
	signing_free(&signing);
	return ret ? ret : ret_query->failed ? -ENOMEM : 0;
}
