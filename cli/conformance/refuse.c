/* cli/conformance/refuse.c: rules 4xx and 5xx: tokens that are refused, and tokens that are
 * declined. In neither case does a byte move or is an object stored. */
#include "conformance.h"

#include <stdio.h>
#include <string.h>

#define KEPT "kept"

/* The verdict of a case that must leave the object KEPT as it was. */
static enum conf_verdict kept_check(struct conf *conf, enum conf_verdict verdict)
{
	if (verdict == CONF_PASS && !conf_object_is(conf, KEPT, (const uint8_t *)"kept", 4))
		return CONF_FAIL;
	return verdict;
}

/* Sends a GET of an object and a PUT over it with that token; checks the answers, the memory and
 * the object. */
static enum conf_verdict both_try(
	struct conf *conf, const struct conf_request *like, const struct conf_want *want)
{
	static const char *const METHODS[] = {"GET", "PUT"};
	struct conf_request request = *like;
	enum conf_verdict verdict = CONF_PASS;

	if (!conf_object_put(conf, KEPT, "kept", 4))
		return CONF_ERROR;
	request.key = KEPT;
	conf_memory_clear(conf);
	for (size_t i = 0; i < ARRAY_LEN(METHODS) && verdict == CONF_PASS; i++) {
		request.method = METHODS[i];
		verdict = conf_ask(conf, &request, want, NULL);
	}
	if (verdict == CONF_PASS && !conf_memory_holds(conf, conf->object, 0))
		verdict = CONF_FAIL;
	return kept_check(conf, verdict);
}

/* ---- Refused. ---- */

static enum conf_verdict malformed(struct conf *conf)
{
	const struct conf_want want = {
		.status = 400, .code = "InvalidRDMAToken", .reply = "", .no_etag = true};
	const char *good = conf_window(conf, NEB_PUT_OBJECT, 100);
	char bad[9][NEB_TOKEN_BYTES];
	enum conf_verdict verdict = CONF_PASS;

	if (!good)
		return CONF_ERROR;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		memcpy(bad[i], good, NEB_TOKEN_BYTES);
	bad[0][NEB_TOKEN_BYTES - 2] = '\0'; /* too short */
	bad[1][0] = 'A';		    /* upper case */
	bad[2][0] = 'g';		    /* no hex */
	bad[3][15] = ':';		    /* a shifted colon */
	bad[3][16] = '0';
	bad[4][46] = '2';	 /* neither 0 nor 1 */
	bad[5][0] = '\0';	 /* empty */
	memset(bad[6], 'f', 16); /* past the end of the address space */
	bad[7][20] = '-';
	bad[8][33] = ' ';
	for (size_t i = 0; i < ARRAY_LEN(bad) && verdict == CONF_PASS; i++) {
		const struct conf_request request = {.token = bad[i]};
		char why[CONF_WHY_BYTES];

		verdict = both_try(conf, &request, &want);
		memcpy(why, conf->why, sizeof(why));
		if (verdict == CONF_FAIL)
			conf_fail(conf, "token \"%s\": %.280s", bad[i], why);
	}
	return verdict;
}

static enum conf_verdict not_signed(struct conf *conf)
{
	const struct conf_want want = {
		.status = 403, .code = "AccessDenied", .reply = "", .no_etag = true};
	const struct conf_request request = {
		.token = conf_window(conf, NEB_PUT_OBJECT, 100), .token_unsigned = true};

	return request.token ? both_try(conf, &request, &want) : CONF_ERROR;
}

static enum conf_verdict anonymous(struct conf *conf)
{
	const struct conf_want want = {.status = 403, .reply = "", .no_etag = true};
	const struct conf_request request = {
		.token = conf_window(conf, NEB_PUT_OBJECT, 100), .anonymous = true};

	return request.token ? both_try(conf, &request, &want) : CONF_ERROR;
}

static enum conf_verdict small_window(struct conf *conf)
{
	const struct conf_want want = {
		.status = 400, .code = "InvalidRDMAToken", .reply = "", .moved = ""};
	struct conf_request request = {.method = "GET", .key = "object"};

	request.token = conf_window(conf, NEB_GET_OBJECT, CONF_OBJECT_BYTES - 1);
	return conf_ask_for_nothing(conf, &request, &want);
}

/* Sends a PUT over an object, which must keep its bytes. */
static enum conf_verdict put_refused(
	struct conf *conf, const struct conf_request *like, const struct conf_want *want)
{
	struct conf_request request = *like;
	enum conf_verdict verdict;

	if (!conf_object_put(conf, KEPT, "kept", 4))
		return CONF_ERROR;
	request.method = "PUT";
	request.key = KEPT;
	verdict = conf_ask(conf, &request, want, NULL);
	return kept_check(conf, verdict);
}

static enum conf_verdict empty_window(struct conf *conf)
{
	const struct conf_want want = {
		.status = 400, .code = "InvalidRDMAToken", .reply = "", .no_etag = true};
	const char *token = conf_window(conf, NEB_PUT_OBJECT, 1);
	struct conf_request request = {0};

	if (!token)
		return CONF_ERROR;
	request.token = conf_bent(token, CONF_SIZE, 1);
	return put_refused(conf, &request, &want);
}

static enum conf_verdict token_and_body(struct conf *conf)
{
	const struct conf_want want = {.status = 400, .reply = "", .no_etag = true};
	const struct conf_request request = {
		.token = conf_window(conf, NEB_PUT_OBJECT, 4), .body = "body", .body_bytes = 4};

	return request.token ? put_refused(conf, &request, &want) : CONF_ERROR;
}

/* A PUT that signs the digest of an empty body for a body that is not empty. */
static enum conf_verdict signed_payload(struct conf *conf)
{
	const struct conf_want want = {.status = 400, .reply = "", .no_etag = true};
	const struct conf_request request = {.token = conf_window(conf, NEB_PUT_OBJECT, 4),
		.content_sha256 =
			"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"};

	return request.token ? put_refused(conf, &request, &want) : CONF_ERROR;
}

static enum conf_verdict other_operations(struct conf *conf)
{
	static const char *const METHODS[] = {"DELETE", "HEAD"};
	const struct conf_want want = {.status = 501, .or_status = 400, .no_etag = true};
	struct conf_request request = {.key = KEPT};
	enum conf_verdict verdict = CONF_PASS;

	if (!conf_object_put(conf, KEPT, "kept", 4))
		return CONF_ERROR;
	for (size_t i = 0; i < ARRAY_LEN(METHODS) && verdict == CONF_PASS; i++) {
		request.method = METHODS[i];
		request.token = conf_window(conf, NEB_GET_OBJECT, 100);
		if (!request.token)
			return CONF_ERROR;
		verdict = conf_ask(conf, &request, &want, NULL);
	}
	return kept_check(conf, verdict);
}

const struct conf_case CONF_REFUSE[] = {
	{401, "A malformed token is refused with 400 InvalidRDMAToken.", malformed},
	{402, "A token that the signature does not cover is refused with 403 AccessDenied.",
		not_signed},
	{403, "A token of a request without a signature is refused with 403.", anonymous},
	{404,
		"A window that is smaller than the bytes asked for is refused with 400 "
		"InvalidRDMAToken before a byte is written.",
		small_window},
	{405, "A PUT of a window of 0 bytes is refused with 400 InvalidRDMAToken.", empty_window},
	{406, "A PUT with a token and a body is refused with 400.", token_and_body},
	{407, "A PUT with a token that signs the digest of an empty body is refused with 400.",
		signed_payload},
	{408, "Operations that move no body refuse a token with 501, and do nothing.",
		other_operations},
	{0},
};

/* ---- Declined: the endpoint cannot reach the queue pair. ---- */

/* A token whose queue pair the server does not know. */
static const char *unreachable(struct conf *conf, enum neb_op op, size_t bytes)
{
	const char *token = conf_window(conf, op, bytes);

	return token ? conf_bent(token, CONF_QPN, 0x800000) : NULL;
}

/* Either dialect: an error with reply 501, or for a GET the object in the body. */
static enum conf_verdict declined_get(struct conf *conf)
{
	const struct conf_request request = {.method = "GET",
		.key = "object",
		.token = unreachable(conf, NEB_GET_OBJECT, CONF_OBJECT_BYTES)};
	const struct conf_want want = {
		.status = 501, .or_status = 200, .reply = "501", .moved = ""};
	struct conf_answer answer;
	enum conf_verdict verdict;

	if (!request.token)
		return CONF_ERROR;
	conf_memory_clear(conf);
	verdict = conf_ask(conf, &request, &want, &answer);
	if (verdict == CONF_PASS && answer.status == 200 &&
		(answer.body.len != CONF_OBJECT_BYTES ||
			memcmp(answer.body.data, conf->object, CONF_OBJECT_BYTES) != 0))
		verdict = conf_fail(conf, "declined with 200, but the object is not in the body");
	conf_answer_free(&answer);
	if (verdict == CONF_PASS && !conf_memory_holds(conf, conf->object, 0))
		verdict = CONF_FAIL;
	return verdict;
}

static enum conf_verdict declined_put(struct conf *conf, const char *key, const char *query)
{
	const struct conf_request request = {.method = "PUT",
		.key = key,
		.query = query,
		.token = unreachable(conf, NEB_PUT_OBJECT, 5000)};
	const struct conf_want want = {
		.status = 501, .or_status = 200, .reply = "501", .no_etag = true};
	struct conf_answer answer;
	enum conf_verdict verdict;

	if (!request.token)
		return CONF_ERROR;
	verdict = conf_ask(conf, &request, &want, &answer);
	if (verdict == CONF_PASS && !conf_element(&answer, "Code")[0])
		verdict = conf_fail(conf, "declined without an error document");
	conf_answer_free(&answer);
	return verdict;
}

static enum conf_verdict declined_new(struct conf *conf)
{
	enum conf_verdict verdict = declined_put(conf, "declined", NULL);

	/* Checked for any answer: a server that overlooks the token would store an empty object. */
	if (!conf_object_is(conf, "declined", NULL, 0))
		return CONF_FAIL;
	return verdict;
}

static enum conf_verdict declined_over(struct conf *conf)
{
	enum conf_verdict verdict;

	if (!conf_object_put(conf, KEPT, "kept", 4))
		return CONF_ERROR;
	verdict = declined_put(conf, KEPT, NULL);
	if (!conf_object_is(conf, KEPT, (const uint8_t *)"kept", 4))
		return CONF_FAIL;
	return verdict;
}

static enum conf_verdict declined_part(struct conf *conf)
{
	const struct conf_request begin = {
		.method = "POST", .key = "declined-parts", .query = "uploads="};
	const struct conf_want begun = {.status = 200};
	struct conf_request rest = {.key = "declined-parts"};
	struct conf_answer answer;
	enum conf_verdict verdict = conf_ask(conf, &begin, &begun, &answer);
	char part[300], upload[280];
	bool has_part;

	snprintf(upload, sizeof(upload), "uploadId=%s", conf_element(&answer, "UploadId"));
	conf_answer_free(&answer);
	if (verdict != CONF_PASS)
		return CONF_ERROR;
	snprintf(part, sizeof(part), "partNumber=1&%s", upload);
	verdict = declined_put(conf, "declined-parts", part);
	rest.method = "GET";
	rest.query = upload;
	if (!conf_send(conf, &rest, &answer))
		verdict = CONF_ERROR;
	has_part = conf_element(&answer, "PartNumber")[0] != '\0';
	conf_answer_free(&answer);
	rest.method = "DELETE";
	if (conf_send(conf, &rest, &answer) && has_part)
		verdict = conf_fail(conf, "a part was stored of a token that was declined");
	conf_answer_free(&answer);
	return verdict;
}

static enum conf_verdict declined_to_other(struct conf *conf)
{
	struct conf_request request = {.method = "GET", .key = "object", .by_other = true};
	const struct conf_want want = {
		.status = 501, .or_status = 200, .reply = "501", .moved = ""};

	if (!conf->opts->other.access)
		return conf_unsupported(conf, "not tried: it needs --other-access-key");
	request.token = conf_window(conf, NEB_GET_OBJECT, CONF_OBJECT_BYTES);
	return conf_ask_for_nothing(conf, &request, &want);
}

const struct conf_case CONF_DECLINE[] = {
	{501,
		"A GET that cannot move by RDMA is answered with reply 501: "
		"an error, or the object in "
		"the body.",
		declined_get},
	{502,
		"A PUT that cannot move by RDMA stores nothing: reply 501, "
		"an error document, no ETag.",
		declined_new},
	{503, "A PUT that is declined leaves an object of that key as it was.", declined_over},
	{504, "A part that is declined is not stored.", declined_part},
	{505, "A token of a queue pair that another access key connected is declined.",
		declined_to_other},
	{0},
};
