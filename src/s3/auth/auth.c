/* s3/auth/auth.c: authenticates the caller: signatures in headers or in the query, session
 * identities, anonymous callers. */
#include <errno.h>
#include <stdio.h>

#include "s3/auth/access.h"
#include "s3/auth/access_priv.h"
#include "s3/auth/auth.h"
#include "s3/auth/form.h"
#include "s3/auth/sigv2.h"
#include "s3/auth/sigv4.h"
#include "s3/body/body.h"
#include "s3/core/call.h"
#include "s3/core/stored.h"

static const struct s3_error *refused(struct s3_call *call, const struct sigv4_refusal *refusal)
{
	const struct s3_error *error = s3_error_named(refusal->code);

	CHECK(error);
	call->message = refusal->message;
	return error;
}

const char s3_no_signature_v2[] = "The authorization mechanism you have provided is not supported. "
				  "Please use AWS4-HMAC-SHA256.";

const char s3_one_mechanism[] =
	"Only one auth mechanism allowed; only the X-Amz-Algorithm query parameter, Signature "
	"query string parameter or the Authorization header should be specified";

static const struct s3_error *check_skew(
	struct s3_call *call, const struct sigv4_claim *claim, int64_t now_ms)
{
	char now_text[DATE_ISO_LEN];

	if (claim->time_ms - now_ms <= SIGV4_SKEW_MS_MAX &&
		now_ms - claim->time_ms <= SIGV4_SKEW_MS_MAX)
		return NULL;
	date_iso_format(now_ms, now_text);
	s3_fail_detail(call, "RequestTime", claim->timestamp);
	s3_fail_detail(call, "ServerTime", slice_of(now_text, sizeof(now_text)));
	s3_fail_detail(call, "MaxAllowedSkewMilliseconds", SLICE("900000"));
	return s3_error_at(S3_E_REQUEST_TIME_TOO_SKEWED);
}

static const struct s3_error *check_expiry(
	struct s3_call *call, const struct sigv4_claim *claim, int64_t now_ms)
{
	int64_t end_ms = claim->time_ms + (int64_t)claim->expires_s * 1000;
	char now_text[DATE_ISO_LEN], end_text[DATE_ISO_LEN];

	if (claim->time_ms - now_ms > SIGV4_SKEW_MS_MAX)
		return s3_fail(call, S3_E_ACCESS_DENIED, "Request is not valid yet");
	if (now_ms < end_ms)
		return NULL;
	date_iso_format(now_ms, now_text);
	date_iso_format(end_ms < DATE_MS_MAX ? end_ms : DATE_MS_MAX, end_text);
	s3_fail_detail(call, "Expires", slice_of(end_text, sizeof(end_text)));
	s3_fail_detail(call, "ServerTime", slice_of(now_text, sizeof(now_text)));
	return s3_fail(call, S3_E_ACCESS_DENIED, "Request has expired");
}

static bool must_be_signed(struct slice name)
{
	return slice_eq_nocase(slice_to(name, 6), SLICE("x-amz-")) ||
	       slice_eq_nocase(slice_to(name, 16), SLICE("x-nebulaio-rdma-")) ||
	       slice_eq_nocase(name, SLICE("x-nebulaio-memory")) ||
	       slice_eq_nocase(name, SLICE(S3_REPLICA_REQUEST));
}

static bool is_signed(const struct sigv4_claim *claim, struct slice name)
{
	if (claim->version2)
		return slice_eq_nocase(slice_to(name, 6), SLICE("x-amz-"));
	return slice_eq_nocase(name, SLICE("x-amz-content-sha256")) || sigv4_is_signed(claim, name);
}

/* The message that was signed, and its parameters: the request, unless that stands for a control
 * message. */
static struct s3_request signed_message(const struct s3_call *call, struct s3_params *ret_params)
{
	const struct s3_control *control = call->request->control;
	struct s3_request message = *call->request;

	*ret_params = call->params;
	if (!control || !control->stands_for)
		return message;
	*ret_params = (struct s3_params){0};
	message.method_text = control->method_text;
	message.path = control->path;
	message.headers = control->headers;
	message.header_count = control->header_count;
	message.body = NULL; /* the operation's; s3_control_check refuses one of the message */
	return message;
}

/* A header of S3's own changes a request's meaning, so it must be signed. Other headers need not
 * be. */
static const struct s3_error *check_signed_headers(
	struct s3_call *call, const struct sigv4_claim *claim)
{
	struct s3_params params;
	const struct s3_request message = signed_message(call, &params);

	for (uint32_t i = 0; i < message.header_count; i++) {
		struct slice name = message.headers[i].name;

		if (!must_be_signed(name) || is_signed(claim, name))
			continue;
		s3_fail_detail(call, "HeadersNotSigned", name);
		return s3_fail(call, S3_E_ACCESS_DENIED,
			"There were headers present in the request which were not signed");
	}
	return NULL;
}

/* Adds <name>41 57 53</name>: the bytes of text in hex, in which a client can see white space and
 * encodings. */
static void fail_bytes(struct s3_call *call, const char *name, struct slice text)
{
	char *hex = mem_arena_get(&call->arena, 3 * text.len + 1);

	if (!hex)
		return;
	for (size_t i = 0; i < text.len; i++) {
		hex_encode(text.data + i, 1, hex + 3 * i);
		hex[3 * i + 2] = ' ';
	}
	s3_fail_detail(call, name, slice_trim(slice_of(hex, 3 * text.len)));
}

/* The string that the client should have signed, for the error document; Version 2 has no canonical
 * request. */
static const struct s3_error *mismatch(struct s3_call *call, const struct sigv4_claim *claim,
	struct slice canonical, struct slice string_to_sign)
{
	s3_fail_detail(call, "AWSAccessKeyId", claim->access_key);
	s3_fail_detail(call, "StringToSign", string_to_sign);
	s3_fail_detail(call, "SignatureProvided", claim->signature);
	fail_bytes(call, "StringToSignBytes", string_to_sign);
	if (!claim->version2) {
		s3_fail_detail(call, "CanonicalRequest", canonical);
		fail_bytes(call, "CanonicalRequestBytes", canonical);
	}
	return s3_error_at(S3_E_SIGNATURE_DOES_NOT_MATCH);
}

static const struct s3_error *check_signature(
	struct s3_call *call, const struct sigv4_claim *claim, const char *secret)
{
	const struct s3_error *error = NULL;
	char signature[SIGNING_SIGNATURE_LEN];
	struct buf canonical, string;
	struct s3_params params;
	const struct s3_request message = signed_message(call, &params);
	struct sigv4_key key;

	buf_init(&canonical, SIGV4_CANONICAL_BYTES_MAX);
	buf_init(&string, SIGV4_CANONICAL_BYTES_MAX);
	sigv4_canonical(&message, &params, claim, &canonical);
	signing_string(claim->timestamp, claim->scope_text, buf_slice(&canonical), &string);
	sigv4_keys_get(call->s3->keys, claim, slice_str(secret), &key);
	memcpy(call->signing.signing_key, key.bytes, sizeof(key.bytes));
	if (canonical.failed || string.failed) {
		error = s3_error_at(S3_E_INVALID_URI);
	} else {
		signing_sign(&key.prepared, buf_slice(&string), signature);
		if (!secret_equal(signature, claim->signature.data, sizeof(signature)))
			error = mismatch(call, claim, buf_slice(&canonical), buf_slice(&string));
	}
	secret_wipe(&key, sizeof(key));
	buf_free(&canonical);
	buf_free(&string);
	return error;
}

/* Version 2 signs only the parameters that it knows. An unsigned parameter added to a signed URL
 * could choose another operation. */
static const struct s3_error *check_covered_v2(
	struct s3_call *call, const struct sigv4_claim *claim)
{
	struct slice name;

	for (enum sigv2_dialect dialect = 0; dialect < SIGV2_DIALECTS; dialect++)
		if (sigv2_covers(&call->params, claim, dialect, &name))
			return NULL;
	return s3_fail(call, S3_E_INVALID_REQUEST,
		"Signature Version 2 does not sign the parameter %.*s. Please use "
		"AWS4-HMAC-SHA256.",
		SLICE_FMT(slice_to(name, 64)));
}

/* Tries the dialects that sign the whole query; string holds the first dialect's string to sign,
 * for the error document. */
static bool signs_v2(struct s3_call *call, const struct sigv4_claim *claim,
	const struct s3_request *request, const char *secret, struct buf *string)
{
	struct slice bucket = s3_host_bucket(call, slice_str(call->s3->host_domain));
	struct slice ignored;
	bool signs = false;

	for (enum sigv2_dialect dialect = 0; !signs && dialect < SIGV2_DIALECTS; dialect++) {
		struct buf other;
		struct buf *text = dialect == SIGV2_AWS ? string : &other;

		buf_init(&other, SIGV4_CANONICAL_BYTES_MAX);
		sigv2_string_to_sign(request, &call->params, claim, bucket, dialect, text);
		signs = !text->failed && sigv2_covers(&call->params, claim, dialect, &ignored) &&
			sigv2_verify(slice_str(secret), buf_slice(text), claim->signature);
		buf_free(&other);
	}
	return signs;
}

/* Some clients sign a bucket's path with a trailing slash that they do not send. */
static const struct s3_error *check_signature_v2(
	struct s3_call *call, const struct sigv4_claim *claim, const char *secret)
{
	struct slice path = call->request->path;
	struct s3_request slashed = *call->request;
	const struct s3_error *error = check_covered_v2(call, claim);
	struct buf string, other;
	char *memory = NULL;

	if (error)
		return error;
	if (path.len && !call->key.len && path.data[path.len - 1] != '/')
		memory = mem_arena_get(&call->arena, path.len + 1);
	if (memory) {
		memcpy(memory, path.data, path.len);
		memory[path.len] = '/';
		slashed.path = slice_of(memory, path.len + 1);
	}
	buf_init(&string, SIGV4_CANONICAL_BYTES_MAX);
	buf_init(&other, SIGV4_CANONICAL_BYTES_MAX);
	if (!signs_v2(call, claim, call->request, secret, &string) &&
		!(memory && signs_v2(call, claim, &slashed, secret, &other)))
		error = string.failed ? s3_error_at(S3_E_INVALID_URI)
				      : mismatch(call, claim, SLICE_NONE, buf_slice(&string));
	buf_free(&string);
	buf_free(&other);
	return error;
}

/* The data from which the body's chunk signatures continue the request's signature. */
static void start_signing(struct s3_call *call, const struct sigv4_claim *claim)
{
	struct s3_chunk_signing *signing = &call->signing;

	signing->payload = claim->payload;
	if (claim->payload == S3_PAYLOAD_SHA256)
		slice_copy_str(
			claim->payload_hash, call->content_sha256, sizeof(call->content_sha256));
	if (claim->version2)
		return;
	/* Lengths were checked when the claim was parsed. */
	slice_copy_str(claim->signature, signing->seed_signature, sizeof(signing->seed_signature));
	slice_copy_str(claim->timestamp, signing->timestamp, sizeof(signing->timestamp));
	slice_copy_str(claim->scope_text, signing->scope, sizeof(signing->scope));
}

/* A session token beside a key, and the kind of token that the request claims. */
struct s3_auth_token {
	struct slice text; /* empty: none */
	bool express;
};

static const struct iam_session *copy_session(
	struct s3_call *call, const struct iam_session *session)
{
	struct iam_session *copy = mem_arena_get(&call->arena, sizeof(*copy));

	if (copy)
		*copy = *session;
	return copy;
}

void s3_session_bind(struct s3_call *call, struct iam_session *session)
{
	const struct s3_identity *identity = call->identity;

	if (call->sts || (!identity->root && !call->credential))
		return;
	session->key = slice_str(identity->access_key);
	session->secret_mark =
		identity->root ? iam_root_mark(call->s3->iam) : call->credential->secret_mark;
}

/* Whether the key that asked for a session still stands for the session's user or root. */
static bool key_stands(const struct s3_call *call, const struct iam_session *session, bool root)
{
	struct s3 *s3 = call->s3;
	struct iam_credential *credential;
	bool stands;

	if (slice_eq(session->key, slice_str(s3->root_access_key)))
		return root && session->secret_mark == iam_root_mark(s3->iam);
	credential = iam_credential(s3->iam, session->key);
	stands = !root && credential && credential->active &&
		 credential->secret_mark == session->secret_mark &&
		 slice_eq(credential->principal->who.account, session->account) &&
		 slice_eq(credential->principal->user_name, session->user);
	iam_credential_put(credential);
	return stands;
}

/* Fills in the session from its token, after the token is verified and not expired. */
static const struct s3_error *find_session(struct s3_call *call, struct slice access_key,
	struct s3_auth_token token, struct s3_secret *ret_secret)
{
	int64_t now_ms = (int64_t)(clock_real_ns() / NS_PER_MS);
	struct iam_token opened;
	int ret = iam_token_open(call->s3->iam, token.text, &call->arena, &opened);
	bool root;

	/* A session of a bucket is not an STS session, and the reverse. */
	if (ret == -EBADMSG || (!ret && (!slice_eq(opened.access_key, access_key) ||
						(opened.bucket.len > 0) != token.express)))
		return s3_error_at(S3_E_INVALID_TOKEN);
	if (ret)
		return s3_fail_errno(call, ret);
	if (now_ms >= opened.expires_ms)
		return s3_error_at(S3_E_EXPIRED_TOKEN);
	call->session_bucket = opened.bucket;
	call->session_store_id = opened.store_id;
	call->session_bucket_id = opened.bucket_id;
	call->session_read_only = opened.read_only;
	call->sts = copy_session(call, &opened.session);
	if (!call->sts)
		return s3_error_at(S3_E_SLOW_DOWN);
	root = slice_eq(opened.session.account, SLICE(IAM_ACCOUNT_OF_ROOT)) &&
	       !opened.session.user.len && !opened.session.role.len;
	if (!opened.session.role.len && !key_stands(call, &opened.session, root))
		return s3_error_at(S3_E_INVALID_TOKEN);
	if (root) {
		ret_secret->root = true;
		ret = 0;
	} else {
		ret = iam_principal_of_session(call->s3->iam, &opened.session, &call->principal);
	}
	if (ret == -ENOENT)
		return s3_error_at(S3_E_INVALID_TOKEN);
	if (ret)
		return s3_fail_errno(call, ret);
	return slice_copy_str(opened.secret, ret_secret->text, sizeof(ret_secret->text))
		       ? s3_error_at(S3_E_INVALID_TOKEN)
		       : NULL;
}

/* Finds the owner and the secret of a key: of the server's root, a session, or a principal. */
static const struct s3_error *find_secret(struct s3_call *call, struct slice access_key,
	struct s3_auth_token token, struct s3_secret *ret_secret)
{
	struct s3 *s3 = call->s3;

	CHECK(!call->principal);
	ret_secret->root = false;
	if (token.text.len)
		return find_session(call, access_key, token, ret_secret);
	if (slice_eq(access_key, slice_str(s3->root_access_key))) {
		ret_secret->root = true;
		memcpy(ret_secret->text, s3->root_secret_key, sizeof(s3->root_secret_key));
		return NULL;
	}
	call->credential = iam_credential(s3->iam, access_key);
	if (!call->credential || !call->credential->active) {
		s3_fail_detail(call, "AWSAccessKeyId", access_key);
		return s3_error_at(S3_E_INVALID_ACCESS_KEY_ID);
	}
	call->principal = call->credential->principal;
	atomic_fetch_add_explicit(&call->principal->references, 1, memory_order_relaxed);
	memcpy(ret_secret->text, call->credential->secret, sizeof(call->credential->secret));
	return NULL;
}

/* The signature by the key's secret holds: until now the caller was anonymous. */
static void identify(struct s3_call *call, struct slice access_key, const struct s3_secret *secret)
{
	struct s3_identity *own = &call->own_identity;

	own->root = secret->root;
	own->anonymous = false;
	slice_copy_str(access_key, own->access_key, sizeof(own->access_key));
}

static struct s3_auth_token find_token(const struct s3_call *call, const struct sigv4_claim *claim)
{
	struct s3_auth_token token = {
		SLICE_NONE, slice_eq(claim->scope.service, SLICE("s3express"))};

	if (token.express && claim->presigned)
		s3_call_param(call, SLICE("X-Amz-S3session-Token"), &token.text);
	else if (token.express)
		token.text = s3_call_header(call, SLICE("x-amz-s3session-token"));
	if (token.text.len)
		return token;
	/* Calls that sessions cannot make are still signed with a key. */
	token.express = false;
	if (claim->presigned)
		s3_call_param(call,
			claim->version2 ? SLICE("x-amz-security-token")
					: SLICE("X-Amz-Security-Token"),
			&token.text);
	else
		token.text = s3_call_header(call, SLICE("x-amz-security-token"));
	return token;
}

/* The service s3express is for directory buckets, and lists those instead of the others. */
static const struct s3_error *check_express(struct s3_call *call)
{
	if (call->operation->id == S3_OPERATION_LIST_BUCKETS)
		call->operation = s3_operation_at(S3_OPERATION_LIST_DIRECTORY_BUCKETS);
	if (call->operation->id == S3_OPERATION_LIST_DIRECTORY_BUCKETS || s3_express_bucket(call))
		return NULL;
	return s3_fail(call, S3_E_AUTHORIZATION_HEADER_MALFORMED,
		"incorrect service in the Credential. This bucket belongs to \"s3\".");
}

/* Only requests to the service itself have a service other than s3. They sign their form without a
 * header for its digest, so the form is read first. */
static const struct s3_error *check_service(struct s3_call *call, struct sigv4_claim *claim)
{
	const struct s3_sums sums = {.kind = CHECKSUM_NONE};
	const struct s3_error *error;
	uint8_t digest[SHA256_BYTES];
	char *hex;

	if (slice_eq(claim->scope.service, SLICE("s3")))
		return NULL;
	if (slice_eq(claim->scope.service, SLICE("s3express")))
		return check_express(call);
	if (call->operation->id != S3_OPERATION_SERVICE)
		return s3_fail(call, S3_E_AUTHORIZATION_HEADER_MALFORMED,
			"incorrect service in the Credential. This endpoint belongs to \"s3\".");
	if (claim->presigned || s3_call_has_header(call, SLICE("x-amz-content-sha256")))
		return NULL;
	error = s3_call_read(call, &sums, &call->form);
	if (error)
		return error;
	hex = mem_arena_get(&call->arena, 2 * sizeof(digest));
	if (!hex)
		return s3_error_at(S3_E_SLOW_DOWN);
	sha256_of(call->form.data, call->form.len, digest);
	hex_encode(digest, sizeof(digest), hex);
	claim->payload_hash = slice_of(hex, 2 * sizeof(digest));
	return NULL;
}

static const struct s3_error *rights_changed(struct s3_call *call)
{
	return s3_fail(call, S3_E_SLOW_DOWN,
		"The rights of the caller changed while the request was read. Please try again.");
}

/* Whether the caller's key or session holds, with the rights that it had. */
static const struct s3_error *caller_stands(struct s3_call *call)
{
	const struct s3_error *error = NULL;
	struct iam_credential *now;

	/* The principal of a session is made anew for each call, so it cannot be compared. */
	if (call->sts && !call->sts->role.len && !key_stands(call, call->sts, !call->principal))
		return s3_error_at(S3_E_INVALID_TOKEN);
	if (call->sts && call->principal)
		return rights_changed(call);
	if (!call->credential)
		return NULL;
	now = iam_credential(call->s3->iam, slice_str(call->credential->access_key));
	if (!now || !now->active || now->secret_mark != call->credential->secret_mark)
		error = s3_error_at(S3_E_INVALID_ACCESS_KEY_ID);
	else if (now->principal != call->principal)
		error = rights_changed(call);
	iam_credential_put(now);
	return error;
}

const struct s3_error *s3_call_read(
	struct s3_call *call, const struct s3_sums *sums, struct slice *ret_body)
{
	const struct s3_error *error;

	if (call->form_read) {
		*ret_body = call->form;
		return NULL;
	}
	error = s3_read_body(call, sums, ret_body);
	if (error)
		return error;
	call->form = *ret_body;
	call->form_read = true;
	if (call->rights_epoch == store_rights_epoch(call->s3->store))
		return NULL;
	error = caller_stands(call);
	return error ? error : s3_call_authorize(call);
}

static const struct s3_error *authenticate_claim(
	struct s3_call *call, struct sigv4_claim *claim, int64_t now_ms)
{
	struct s3_secret secret;
	const struct s3_error *error =
		find_secret(call, claim->access_key, find_token(call, claim), &secret);

	if (!error)
		error = check_service(call, claim);
	if (!error)
		error = claim->presigned ? check_expiry(call, claim, now_ms)
					 : check_skew(call, claim, now_ms);
	if (!error)
		error = check_signed_headers(call, claim);
	if (!error)
		error = claim->version2 ? check_signature_v2(call, claim, secret.text)
					: check_signature(call, claim, secret.text);
	if (!error)
		identify(call, claim->access_key, &secret);
	secret_wipe(&secret, sizeof(secret));
	if (error)
		return error;
	start_signing(call, claim);
	call->presigned = claim->presigned;
	call->signed_ms = claim->time_ms;
	call->version2 = claim->version2;
	return s3_presigned_headers(call);
}

static const struct s3_error *authenticate_anonymous(struct s3_call *call)
{
	struct slice payload = s3_call_header(call, SLICE("x-amz-content-sha256"));
	struct sigv4_refusal refusal = {0};
	struct sigv4_claim claim = {0};

	if (!sigv4_parse_payload(payload, &claim, &refusal))
		return refused(call, &refusal);
	/* Chunks of an anonymous request cannot be signed. */
	if (claim.payload == S3_PAYLOAD_STREAMING_SIGNED ||
		claim.payload == S3_PAYLOAD_STREAMING_SIGNED_TRAILER)
		return s3_error_at(S3_E_ACCESS_DENIED);
	start_signing(call, &claim);
	return NULL;
}

/* An anonymous body may have chunks with a trailer, but no signatures. */
static bool parse_v2(struct s3_call *call, struct slice authorization, struct sigv4_claim *claim,
	struct sigv4_refusal *refusal)
{
	bool parsed = authorization.len
			      ? sigv2_parse_header(authorization, call->request, claim, refusal)
			      : sigv2_parse_query(&call->params, claim, refusal);

	parsed = parsed && sigv4_parse_payload(s3_call_header(call, SLICE("x-amz-content-sha256")),
				   claim, refusal);
	if (!parsed || (claim->payload != S3_PAYLOAD_STREAMING_SIGNED &&
			       claim->payload != S3_PAYLOAD_STREAMING_SIGNED_TRAILER))
		return parsed;
	*refusal = (struct sigv4_refusal){
		"InvalidRequest", "A body in signed chunks needs Signature Version 4."};
	return false;
}

static bool parse_v4(struct s3_call *call, struct slice authorization, struct sigv4_claim *claim,
	struct sigv4_refusal *refusal)
{
	struct s3_params params;
	const struct s3_request message = signed_message(call, &params);

	if (authorization.len)
		return sigv4_parse_header(authorization, claim, refusal) &&
		       sigv4_parse_times(&message, claim, refusal);
	if (!sigv4_parse_query(&call->params, claim, refusal))
		return false;
	return !sigv4_is_signed(claim, SLICE("x-amz-content-sha256")) ||
	       sigv4_parse_payload(
		       s3_call_header(call, SLICE("x-amz-content-sha256")), claim, refusal);
}

const struct s3_error *s3_authenticate(struct s3_call *call, int64_t now_ms)
{
	struct slice authorization = s3_call_header(call, SLICE("authorization"));
	bool in_query = s3_call_param(call, SLICE("X-Amz-Algorithm"), NULL) ||
			s3_call_param(call, SLICE("X-Amz-Signature"), NULL);
	bool version2 = authorization.len ? sigv2_is_header(authorization)
					  : !in_query && sigv2_is_query(&call->params);
	struct sigv4_refusal refusal = {0};
	struct sigv4_claim claim;

	if (authorization.len && in_query)
		return s3_fail(call, S3_E_INVALID_ARGUMENT, "%s", s3_one_mechanism);
	call->identity = &call->own_identity;
	if (!authorization.len && !in_query && !version2)
		return authenticate_anonymous(call);
	/* Version 2 signs another path than a control message stands for. */
	if (version2 && (!call->s3->signature_v2 || call->request->control))
		return s3_fail(call, S3_E_INVALID_REQUEST, "%s", s3_no_signature_v2);
	if (!(version2 ? parse_v2(call, authorization, &claim, &refusal)
		       : parse_v4(call, authorization, &claim, &refusal)))
		return refused(call, &refusal);
	return authenticate_claim(call, &claim, now_ms);
}

static const struct s3_error *session_stands(struct s3_call *call)
{
	const struct s3_identity *identity = call->identity;

	if (identity->root || identity->anonymous)
		return NULL;
	/* The key may be deleted by now, or have another secret, maybe as another principal's: a
	 * session ends with what it has proven. */
	call->credential = iam_credential(call->s3->iam, slice_str(identity->access_key));
	if (!call->credential || !call->credential->active ||
		call->credential->secret_mark != identity->secret_mark)
		return s3_error_at(S3_E_INVALID_ACCESS_KEY_ID);
	call->principal = call->credential->principal;
	atomic_fetch_add_explicit(&call->principal->references, 1, memory_order_relaxed);
	return NULL;
}

/* A request of a session is not signed, but its body may have a digest as over HTTP. */
static const struct s3_error *session_payload(struct s3_call *call)
{
	struct slice payload = s3_call_header(call, SLICE("x-amz-content-sha256"));
	struct sigv4_refusal refusal = {0};
	struct sigv4_claim claim = {0};

	if (!payload.len)
		return NULL;
	if (!sigv4_parse_payload(payload, &claim, &refusal))
		return refused(call, &refusal);
	if (claim.payload != S3_PAYLOAD_UNSIGNED && claim.payload != S3_PAYLOAD_SHA256)
		return s3_fail(call, S3_E_INVALID_REQUEST, "A body of a session has no chunks.");
	start_signing(call, &claim);
	return NULL;
}

const struct s3_error *s3_authenticate_session(struct s3_call *call)
{
	const struct s3_error *error = session_stands(call);

	return error || !call->request->header_count ? error : session_payload(call);
}

void s3_identity_arn(
	struct s3 *s3, const struct s3_identity *identity, char *ret_arn, size_t arn_bytes)
{
	struct iam_credential *credential =
		identity->root || !identity->access_key[0]
			? NULL
			: iam_credential(s3->iam, slice_str(identity->access_key));

	snprintf(ret_arn, arn_bytes, "%s", identity->root ? "arn:aws:iam::000000000000:root" : "");
	if (credential && credential->secret_mark == identity->secret_mark)
		slice_copy_str(slice_to(credential->principal->who.arn, arn_bytes - 1), ret_arn,
			arn_bytes);
	iam_credential_put(credential);
}

static void derive(struct slice secret, struct slice context, uint8_t ret_key[32])
{
	char start[7 + LIMIT_SECRET_KEY_LEN_MAX] = "NEBULA1";

	memcpy(start + 7, secret.data, secret.len);
	hmac_sha256(slice_of(start, 7 + secret.len), context, ret_key);
	secret_wipe(start, sizeof(start));
}

int s3_session_key(struct s3 *s3, struct slice access_key, struct slice context,
	uint8_t ret_key[32], struct s3_identity *ret_identity)
{
	bool root = slice_eq(access_key, slice_str(s3->root_access_key));
	struct iam_credential *credential = root ? NULL : iam_credential(s3->iam, access_key);
	int ret;

	if (!root && (!credential || !credential->active)) {
		iam_credential_put(credential);
		return -ENOENT;
	}
	*ret_identity = (struct s3_identity){
		.root = root, .secret_mark = root ? 0 : credential->secret_mark};
	ret = slice_copy_str(
		access_key, ret_identity->access_key, sizeof(ret_identity->access_key));
	if (!ret)
		derive(slice_str(root ? s3->root_secret_key : credential->secret), context,
			ret_key);
	iam_credential_put(credential);
	return ret;
}

const struct s3_error *s3_form_secret(struct s3_call *call, struct slice access_key,
	struct slice token, struct s3_secret *ret_secret)
{
	return find_secret(call, access_key, (struct s3_auth_token){token, false}, ret_secret);
}

void s3_form_identify(struct s3_call *call, struct slice access_key, const struct s3_secret *secret)
{
	identify(call, access_key, secret);
}

const struct s3_error *s3_form_authorize(struct s3_call *call)
{
	const struct s3_error *error = s3_call_may(call, "s3:PutObject", call->key);

	if (error || call->identity->root)
		return error;
	return access_headers(call);
}
