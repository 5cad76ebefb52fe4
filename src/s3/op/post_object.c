/* s3/op/post_object.c: POST Object: an upload by a browser's form. Its fields take the place of
 * PutObject's headers and of its credentials. Its policy limits the values of the fields. */
#include <errno.h>

#include "document/json.h"
#include "iam/policy.h"
#include "s3/auth/auth.h"
#include "s3/auth/form.h"
#include "s3/auth/sigv2.h"
#include "s3/auth/sigv4.h"
#include "s3/bucket/bucket.h"
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/core/named.h"
#include "s3/core/settings.h"
#include "s3/core/stored.h"
#include "s3/core/tags.h"
#include "s3/core/xml_in.h"
#include "s3/event/notification.h"
#include "s3/object/object.h"
#include "s3/operation.h"

#define FETCH_BYTES (64u * 1024u)

struct post {
	struct s3_form form;
	struct buf
		text; /* the form up to the file's first bytes, and the bytes received with them */
	struct slice boundary;
	struct flow_source *body; /* NULL: closed, or the form source's */
	struct s3_form_source file;
	struct s3_form_limits limits;
	struct s3_request request; /* the form as a PutObject request */
};

static struct slice field(const struct post *post, const char *name)
{
	return s3_form_field(&post->form, slice_str(name));
}

/* ---- The fields. ---- */

static const struct s3_error *read_fields(struct s3_call *call, struct post *post)
{
	struct s3_body *body = call->request->body;
	struct flow_piece piece;
	int ret = -EINVAL;

	if (!s3_form_boundary(s3_call_header(call, SLICE("content-type")), &post->boundary)) {
		s3_fail_detail(call, "Condition",
			SLICE("Bucket POST must be of the enclosure-type multipart/form-data"));
		return s3_error_at(S3_E_PRECONDITION_FAILED);
	}
	if (body)
		ret = body->ops->open(body, &call->signing, &post->body);
	if (!ret)
		post->body->share = s3_call_share(call);
	if (ret)
		return body ? s3_fail_errno(call, ret) : s3_error_at(S3_E_MALFORMED_POST);
	while ((ret = s3_form_parse(buf_slice(&post->text), post->boundary, &post->form)) ==
		-EAGAIN) {
		if (post->text.len > S3_FORM_BYTES_MAX)
			return s3_error_at(S3_E_POST_PRE_DATA);
		ret = flow_source_next(post->body, FETCH_BYTES, &piece);
		if (ret < 0)
			return s3_fail_errno(call, ret);
		if (ret == 0)
			return s3_error_at(S3_E_MALFORMED_POST);
		buf_put(&post->text, piece.data, piece.bytes);
		flow_piece_end(call->request->core, &piece,
			piece.hold == FLOW_HOLD_CACHE ? OWNER_CACHE : OWNER_APP);
		if (post->text.failed)
			return s3_error_at(S3_E_POST_PRE_DATA);
	}
	if (ret)
		return s3_error_at(S3_E_MALFORMED_POST);
	return post->form.file_at > S3_FORM_BYTES_MAX ? s3_error_at(S3_E_POST_PRE_DATA) : NULL;
}

static const struct s3_error *no_field(struct s3_call *call, const char *name)
{
	s3_fail_detail(call, "ArgumentName", slice_str(name));
	s3_fail_detail(call, "ArgumentValue", SLICE_NONE);
	return s3_fail(call, S3_E_INVALID_ARGUMENT,
		"Bucket POST must contain a field named '%s'.  If it is specified, please check "
		"the order of the fields.",
		name);
}

/* "${filename}" in the key is replaced by the browser's name of the file without folders; it stays
 * if the file has no name. */
static const struct s3_error *take_key(struct s3_call *call, const struct post *post)
{
	struct slice key = field(post, "key"), name = post->form.file_name;
	const struct slice variable = SLICE("${filename}");
	ptrdiff_t at = name.data ? slice_find(key, variable) : -1;
	struct buf text;

	if (!key.len)
		return no_field(call, "key");
	for (size_t i = 0; i < name.len; i++)
		if (name.data[i] == '/' || name.data[i] == '\\') {
			name = slice_from(name, i + 1);
			i = (size_t)-1;
		}
	buf_init(&text, 4 * LIMIT_KEY_LEN_MAX);
	buf_put_slice(&text, at < 0 ? key : slice_to(key, (size_t)at));
	if (at >= 0) {
		buf_put_slice(&text, name);
		buf_put_slice(&text, slice_from(key, (size_t)at + variable.len));
	}
	call->key = text.failed ? SLICE_NONE : mem_arena_copy(&call->arena, buf_slice(&text));
	buf_free(&text);
	if (call->key.len > LIMIT_KEY_LEN_MAX || !call->key.data)
		return s3_error_at(S3_E_KEY_TOO_LONG);
	return s3_key_valid(call->key) ? NULL
				       : s3_fail(call, S3_E_INVALID_ARGUMENT,
						 "The key is not valid UTF-8, or has a zero byte.");
}

/* ---- Authentication. ---- */

static bool signed_v4(struct s3_call *call, const struct sigv4_claim *claim, struct slice secret,
	struct slice policy)
{
	char signature[SIGNING_SIGNATURE_LEN];
	struct sigv4_key key;

	sigv4_keys_get(call->s3->keys, claim, secret, &key);
	signing_sign(&key.prepared, policy, signature);
	secret_wipe(&key, sizeof(key));
	return claim->signature.len == sizeof(signature) &&
	       secret_equal(signature, claim->signature.data, sizeof(signature));
}

/* "KEY/20260101/us-east-1/s3/aws4_request" */
static bool parse_credential(struct slice text, struct sigv4_claim *claim)
{
	claim->access_key = slice_split(&text, '/');
	claim->scope.date = slice_split(&text, '/');
	claim->scope.region = slice_split(&text, '/');
	claim->scope.service = SLICE("s3");
	return claim->access_key.len && claim->scope.date.len == DATE_DAY_LEN &&
	       claim->scope.region.len && claim->scope.region.len <= 64 &&
	       slice_eq(text, SLICE("s3/aws4_request"));
}

/* Checks the fields of a signature: field is the name in the form's table, called the name in
 * errors. */
static const struct s3_error *check_fields(
	struct s3_call *call, const struct post *post, bool version4)
{
	static const struct {
		const char *field, *called;
		bool old, new;
	} all[] = {
		{"policy", "policy", true, true},
		{"awsaccesskeyid", "AWSAccessKeyId", true, false},
		{"signature", "Signature", true, false},
		{"x-amz-algorithm", "X-Amz-Algorithm", false, true},
		{"x-amz-credential", "X-Amz-Credential", false, true},
		{"x-amz-date", "X-Amz-Date", false, true},
		{"x-amz-signature", "X-Amz-Signature", false, true},
	};

	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		if ((version4 ? all[i].new : all[i].old) && !field(post, all[i].field).len)
			return no_field(call, all[i].called);
	return NULL;
}

static const struct s3_error *authenticate(struct s3_call *call, const struct post *post)
{
	struct slice policy = field(post, "policy"), old_key = field(post, "awsaccesskeyid");
	bool v4 = field(post, "x-amz-signature").data || field(post, "x-amz-credential").data;
	struct sigv4_claim claim = {.access_key = old_key,
		.signature = field(post, v4 ? "x-amz-signature" : "signature")};
	const struct s3_error *error;
	struct s3_secret secret;
	bool good;

	if (!policy.data && !old_key.data && !v4)
		return NULL;
	/* The caller would be found a second time. */
	if (!call->identity->anonymous)
		return s3_fail(call, S3_E_INVALID_ARGUMENT, "%s", s3_one_mechanism);
	error = check_fields(call, post, v4);
	if (error)
		return error;
	if (v4 && (!parse_credential(field(post, "x-amz-credential"), &claim) ||
			  date_basic_parse(field(post, "x-amz-date"), &claim.time_ms) ||
			  !slice_eq(field(post, "x-amz-algorithm"), SLICE("AWS4-HMAC-SHA256"))))
		return s3_fail(call, S3_E_INVALID_ARGUMENT,
			"Bucket POST must contain the fields 'policy', 'x-amz-algorithm', "
			"'x-amz-credential', 'x-amz-date' and 'x-amz-signature', or 'policy', "
			"'AWSAccessKeyId' and 'signature', or none of them.");
	if (!v4 && !call->s3->signature_v2)
		return s3_fail(call, S3_E_INVALID_REQUEST, "%s", s3_no_signature_v2);
	error = s3_form_secret(
		call, claim.access_key, field(post, "x-amz-security-token"), &secret);
	if (error)
		return error;
	good = v4 ? signed_v4(call, &claim, slice_str(secret.text), policy)
		  : sigv2_verify(slice_str(secret.text), policy, claim.signature);
	if (good) {
		s3_form_identify(call, claim.access_key, &secret);
		call->form_signed = true;
		call->version2 = !v4;
		call->signed_ms = claim.time_ms;
	}
	secret_wipe(&secret, sizeof(secret));
	if (good)
		return NULL;
	s3_fail_detail(call, "AWSAccessKeyId", claim.access_key);
	s3_fail_detail(call, "StringToSign", policy);
	s3_fail_detail(call, "SignatureProvided", claim.signature);
	return s3_error_at(S3_E_SIGNATURE_DOES_NOT_MATCH);
}

static const struct s3_error *check_policy(struct s3_call *call, struct post *post)
{
	struct slice encoded = field(post, "policy");
	struct s3_form_refusal refusal;
	struct s3_form_target target;
	size_t len;
	char *text;

	post->limits = (struct s3_form_limits){.bytes_max = LIMIT_PUT_BYTES_MAX};
	if (!encoded.data)
		return NULL;
	text = mem_arena_get(&call->arena, encoded.len + 1);
	if (!text)
		return s3_error_at(S3_E_SLOW_DOWN);
	if (base64_decode(encoded, text, encoded.len, &len))
		return s3_fail(
			call, S3_E_INVALID_POLICY_DOCUMENT, "Invalid Policy: Invalid Base64.");
	if (!json_is_flat(slice_of(text, len), S3_FORM_POLICY_DEPTH_MAX))
		return s3_fail(call, S3_E_INVALID_POLICY_DOCUMENT, "Invalid Policy: Invalid JSON.");
	target = (struct s3_form_target){.bucket = call->bucket,
		.key = call->key,
		.now_ms = (int64_t)(clock_real_ns() / NS_PER_MS)};
	if (s3_form_check(slice_of(text, len), &post->form, &target, &post->limits, &refusal))
		return NULL;
	return s3_fail(call, refusal.malformed ? S3_E_INVALID_POLICY_DOCUMENT : S3_E_ACCESS_DENIED,
		"%s%s%s", refusal.why, refusal.condition[0] ? ": " : "", refusal.condition);
}

/* ---- The form as PutObject. ---- */

/* Converts the field's XML to the text of x-amz-tagging. */
static const struct s3_error *tags_header(
	struct s3_call *call, struct slice xml, struct slice *ret_value)
{
	const struct s3_error *error;
	struct s3_tags tags;
	struct s3_xml *root;
	struct buf text;

	if (s3_xml_parse(xml, &call->arena, &root) || !slice_eq(root->name, SLICE("Tagging")))
		return s3_error_at(S3_E_MALFORMED_XML);
	error = s3_tags_of_xml(call, root, S3_TAGS_OBJECT_MAX, &tags);
	if (error)
		return error;
	buf_init(&text, S3_FORM_BYTES_MAX);
	for (uint32_t i = 0; i < tags.count; i++) {
		buf_put_str(&text, i ? "&" : "");
		uri_encode(tags.items[i].key, 0, &text);
		buf_put_str(&text, "=");
		uri_encode(tags.items[i].value, 0, &text);
	}
	*ret_value = text.failed ? SLICE_NONE : mem_arena_copy(&call->arena, buf_slice(&text));
	buf_free(&text);
	return ret_value->data ? NULL : s3_error_at(S3_E_SLOW_DOWN);
}

/* The header that a field sets; empty: the field is not a header. */
static struct slice header_of(struct slice name)
{
	static const struct slice plain[] = {SLICE("cache-control"), SLICE("content-type"),
		SLICE("content-disposition"), SLICE("content-encoding"), SLICE("content-language"),
		SLICE("expires")};
	static const struct slice own[] = {SLICE("x-amz-signature"), SLICE("x-amz-credential"),
		SLICE("x-amz-algorithm"), SLICE("x-amz-date"), SLICE("x-amz-security-token")};

	if (slice_eq_nocase(name, SLICE("acl")))
		return SLICE("x-amz-acl");
	if (slice_eq_nocase(name, SLICE("tagging")))
		return SLICE("x-amz-tagging");
	if (slice_among(name, plain, sizeof(plain) / sizeof(plain[0])) ||
		(slice_eq_nocase(slice_to(name, 6), SLICE("x-amz-")) &&
			!slice_among(name, own, sizeof(own) / sizeof(own[0]))))
		return name;
	return SLICE_NONE;
}

/* Only these of the browser's own headers concern an upload. */
static const struct slice passed[] = {SLICE("host"), SLICE("origin"), SLICE("referer"),
	SLICE("user-agent"), SLICE("x-amz-request-payer")};

static bool has_header(const struct s3_header *headers, uint32_t count, struct slice name)
{
	for (uint32_t i = 0; i < count; i++)
		if (slice_eq_nocase(headers[i].name, name))
			return true;
	return false;
}

static const struct s3_error *make_request(struct s3_call *call, struct post *post)
{
	struct s3_header *headers = mem_arena_get(&call->arena,
		(post->form.count + call->request->header_count + 1) * sizeof(*headers));
	uint32_t count = 0;

	if (!headers)
		return s3_error_at(S3_E_SLOW_DOWN);
	for (uint32_t i = 0; i < call->request->header_count; i++)
		if (slice_among(call->request->headers[i].name, passed,
			    sizeof(passed) / sizeof(passed[0])))
			headers[count++] = call->request->headers[i];
	for (uint32_t i = 0; i < post->form.count; i++) {
		const struct s3_form_field *from = &post->form.fields[i];
		struct s3_header header = {header_of(from->name), slice_trim(from->value)};
		const struct s3_error *error = NULL;

		if (slice_eq_nocase(from->name, SLICE("tagging")))
			error = tags_header(call, from->value, &header.value);
		if (error)
			return error;
		/* "acl" and "x-amz-acl" mean the same: if a form has both, one would be ignored. */
		if (header.name.len && has_header(headers, count, header.name))
			return s3_fail(call, S3_E_INVALID_ARGUMENT,
				"The form has the field %.*s more than once.",
				SLICE_FMT(slice_to(from->name, 100)));
		if (header.name.len)
			headers[count++] = header;
	}
	post->request = *call->request;
	post->request.headers = headers;
	post->request.header_count = count;
	s3_call_request(call, &post->request);
	return NULL;
}

/* ---- The answer. ---- */

static const struct s3_error *answer_redirect(
	struct s3_call *call, struct slice target, const struct store_meta *meta)
{
	struct slice location;
	struct buf url;

	buf_init(&url, 4 * LIMIT_HTTP_HEAD_BYTES_MAX);
	buf_put_slice(&url, target);
	buf_put_str(&url, slice_find(target, SLICE("?")) < 0 ? "?bucket=" : "&bucket=");
	uri_encode(call->bucket, 0, &url);
	buf_put_str(&url, "&key=");
	uri_encode(call->key, 0, &url);
	buf_printf(&url, "&etag=%%22%s%%22", meta->etag);
	location = url.failed ? SLICE_NONE : mem_arena_copy(&call->arena, buf_slice(&url));
	buf_free(&url);
	if (!location.data)
		return s3_error_at(S3_E_SLOW_DOWN);
	s3_answer_header(call, SLICE("Location"), location);
	return s3_answer_empty(call, 303);
}

static bool is_url(struct slice text)
{
	return slice_starts(text, SLICE("http://")) || slice_starts(text, SLICE("https://"));
}

static const struct s3_error *answer(
	struct s3_call *call, const struct post *post, const struct store_meta *meta)
{
	struct slice status = field(post, "success_action_status"), location;
	struct slice target = field(post, "success_action_redirect");
	struct buf url, xml;

	if (!target.data)
		target = field(post, "redirect");
	s3_answer_version(call, meta);
	s3_answer_etag(call, meta->etag);
	s3_answer_checksum(call, meta);
	if (is_url(target))
		return answer_redirect(call, target, meta);
	buf_init(&url, 4 * LIMIT_HTTP_HEAD_BYTES_MAX);
	buf_put_str(&url, strcmp(call->request->transport, "https") == 0 ? "https://" : "http://");
	buf_put_slice(&url, s3_call_header(call, SLICE("host")));
	buf_printf(&url, "/%.*s/", SLICE_FMT(call->bucket));
	uri_encode(call->key, URI_KEEP_SLASH, &url);
	location = url.failed ? SLICE_NONE : mem_arena_copy(&call->arena, buf_slice(&url));
	buf_free(&url);
	s3_answer_header(call, SLICE("Location"), location);
	if (slice_eq(status, SLICE("200")))
		return s3_answer_empty(call, 200);
	if (!slice_eq(status, SLICE("201")))
		return s3_answer_empty(call, 204);
	buf_init(&xml, S3_XML_REPLY_BYTES_MAX);
	buf_put_str(&xml, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<PostResponse>");
	xml_element("Location", location, &xml);
	xml_element("Bucket", call->bucket, &xml);
	xml_element("Key", call->key, &xml);
	s3_xml_etag(&xml, meta->etag);
	buf_put_str(&xml, "</PostResponse>");
	return s3_answer_xml(call, 201, &xml);
}

static const struct s3_error *post_run(struct s3_call *call, struct post *post)
{
	struct s3_put_input input = {
		.source = &post->file.source, .bytes = UINT64_MAX, .event = S3_EVENT_POST};
	struct store_meta meta = {0};
	const struct s3_error *error;

	error = read_fields(call, post);
	if (!error)
		error = take_key(call, post);
	if (!error)
		error = authenticate(call, post);
	if (!error)
		error = check_policy(call, post);
	if (!error)
		error = make_request(call, post);
	if (!error)
		error = s3_form_authorize(call);
	if (!error)
		error = s3_payer_check(call);
	if (!error)
		error = s3_check_headers(call);
	if (error)
		return error;
	s3_call_proven(call);
	s3_form_source_init(&post->file, post->body, post->boundary,
		slice_from(buf_slice(&post->text), post->form.file_at), post->limits.bytes_max);
	post->body = NULL;
	input.bytes_min = post->limits.bytes_min;
	error = s3_put_object(call, &input, &meta);
	if (error)
		return error;
	return answer(call, post, &meta);
}

const struct s3_error *s3_op_post_object(struct s3_call *call)
{
	struct post *post = mem_arena_get(&call->arena, sizeof(*post));
	const struct s3_request *request = call->request;
	const struct s3_error *error;

	if (!post)
		return s3_error_at(S3_E_SLOW_DOWN);
	post->body = NULL;
	post->form.count = 0;
	buf_init(&post->text, S3_FORM_BYTES_MAX + FETCH_BYTES + STORE_CHUNK_BYTES);
	error = post_run(call, post);
	if (post->body)
		flow_source_close(post->body);
	/* The headers built above point into the text. */
	s3_call_request(call, request);
	buf_free(&post->text);
	return error;
}
