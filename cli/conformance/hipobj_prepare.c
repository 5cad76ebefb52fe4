/* cli/conformance/hipobj_prepare.c: rules 7xx: the control requests of hipobj-rc-v2, and the fields
 * of a PREPARE. */
#include "hipobj.h"

#include <stdio.h>
#include <string.h>

#define EMPTY_SHA256 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

/* A GET of the object whose PREPARE has one header changed; token: its own. */
static enum conf_verdict changed(
	struct conf *conf, const char *name, const char *value, const struct conf_want *want)
{
	enum conf_verdict verdict = CONF_ERROR;
	struct hip hip;

	if (hip_begin(&hip, conf, "GET", "object", CONF_OBJECT_BYTES)) {
		hip_header(&hip.prepare, name, value);
		verdict = hip_prepare(&hip, want);
	}
	hip_end(&hip);
	return verdict;
}

static const struct conf_want BAD = {.status = 400, .code = "InvalidRDMARequest", .no_etag = true};
static const struct conf_want GOOD = {.status = 200};

static enum conf_verdict prepares(struct conf *conf, const char *op)
{
	enum conf_verdict verdict = CONF_ERROR;
	struct hip hip;

	if (hip_begin(&hip, conf, op, "object", CONF_OBJECT_BYTES))
		verdict = hip_open(&hip);
	if (verdict == CONF_PASS && strcmp(op, "PUT") == 0 && (!hip.addr || !hip.rkey))
		verdict = conf_fail(conf, "no x-amz-rdma-mr-addr and x-amz-rdma-mr-rkey");
	hip_end(&hip);
	return verdict;
}

static enum conf_verdict get_prepared(struct conf *conf)
{
	return prepares(conf, "GET");
}

static enum conf_verdict put_prepared(struct conf *conf)
{
	return prepares(conf, "PUT");
}

static enum conf_verdict other_protocol(struct conf *conf)
{
	static const char *const VALUES[] = {"hipobj-rc-v3", NULL};
	const struct conf_want want = {.status = 501};

	for (size_t i = 0; i < ARRAY_LEN(VALUES); i++) {
		enum conf_verdict verdict = CONF_ERROR;
		struct conf_answer answer;
		struct hip hip;
		const char *told;

		if (!hip_begin(&hip, conf, "GET", "object", CONF_OBJECT_BYTES))
			return verdict;
		hip_header(&hip.prepare, "x-amz-rdma-protocol", VALUES[i]);
		verdict = conf_ask(conf, &hip.prepare, &want, &answer);
		told = conf_header(&answer, "x-amz-rdma-protocol-status");
		if (verdict == CONF_PASS && (!told || strcmp(told, "unsupported") != 0))
			verdict = conf_fail(conf, "no x-amz-rdma-protocol-status: unsupported");
		conf_answer_free(&answer);
		hip_end(&hip);
		if (verdict != CONF_PASS)
			return verdict;
	}
	return CONF_PASS;
}

static enum conf_verdict needs_signature(struct conf *conf)
{
	const struct conf_want want = {.status = 403};
	enum conf_verdict verdict = CONF_ERROR;
	struct hip hip;

	if (hip_begin(&hip, conf, "GET", "object", CONF_OBJECT_BYTES)) {
		hip.prepare.anonymous = true;
		verdict = hip_prepare(&hip, &want);
	}
	hip_end(&hip);
	return verdict;
}

static enum conf_verdict all_signed(struct conf *conf)
{
	const struct conf_want want = {.status = 403, .code = "AccessDenied"};
	enum conf_verdict verdict = CONF_ERROR;
	struct hip hip;

	if (hip_begin(&hip, conf, "GET", "object", CONF_OBJECT_BYTES)) {
		hip.prepare.token_unsigned = true;
		verdict = hip_prepare(&hip, &want);
	}
	hip_end(&hip);
	return verdict;
}

static enum conf_verdict no_body(struct conf *conf)
{
	enum conf_verdict verdict = CONF_ERROR;
	struct hip hip;

	if (hip_begin(&hip, conf, "GET", "object", CONF_OBJECT_BYTES)) {
		hip.prepare.body = "body";
		hip.prepare.body_bytes = 4;
		verdict = hip_prepare(&hip, &BAD);
	}
	hip_end(&hip);
	return verdict;
}

static enum conf_verdict digest_of_nothing(struct conf *conf)
{
	enum conf_verdict verdict = CONF_ERROR;
	struct hip hip;

	if (hip_begin(&hip, conf, "GET", "object", CONF_OBJECT_BYTES)) {
		hip.prepare.content_sha256 = EMPTY_SHA256;
		verdict = hip_open(&hip);
	}
	hip_end(&hip);
	return verdict;
}

static enum conf_verdict hex_forms(struct conf *conf)
{
	enum conf_verdict verdict = CONF_ERROR;
	char token[HIPOBJ_TOKEN_LEN + 1];
	struct hip hip;

	if (hip_begin(&hip, conf, "GET", "object", CONF_OBJECT_BYTES)) {
		for (size_t i = 0; i <= HIPOBJ_TOKEN_LEN; i++)
			token[i] = (char)(hip.token[i] >= 'a' ? hip.token[i] - 32 : hip.token[i]);
		hip_header(&hip.prepare, "x-amz-rdma-token", token);
		snprintf(hip.psn, sizeof(hip.psn), "%X", hip.pair.ours.psn);
		snprintf(hip.cookie_hex, sizeof(hip.cookie_hex), "%X", hip.cookie);
		verdict = hip_open(&hip);
	}
	hip_end(&hip);
	return verdict;
}

static enum conf_verdict suffix(struct conf *conf)
{
	char token[HIPOBJ_TOKEN_LEN + 32];
	enum conf_verdict verdict = CONF_ERROR;
	struct hip hip;

	if (hip_begin(&hip, conf, "GET", "object", CONF_OBJECT_BYTES)) {
		snprintf(token, sizeof(token), "%s:7f00:1000", hip.token);
		hip_header(&hip.prepare, "x-amz-rdma-token", token);
		verdict = hip_open(&hip);
	}
	hip_end(&hip);
	return verdict;
}

/* Tries each of these header values in a PREPARE that is otherwise valid. */
static enum conf_verdict each_bad(struct conf *conf, const char *const (*pairs)[2], size_t count)
{
	enum conf_verdict verdict = CONF_PASS;
	char why[CONF_WHY_BYTES];

	for (size_t i = 0; i < count && verdict == CONF_PASS; i++) {
		verdict = changed(conf, pairs[i][0], pairs[i][1], &BAD);
		if (verdict == CONF_PASS)
			continue;
		memcpy(why, conf->why, sizeof(why));
		conf_fail(conf, "%s: %.30s: %.300s", pairs[i][0],
			pairs[i][1] ? pairs[i][1] : "absent", why);
	}
	return verdict;
}

static enum conf_verdict missing(struct conf *conf)
{
	static const char *const PAIRS[][2] = {{"x-amz-rdma-token", NULL}, {"x-amz-rdma-psn", NULL},
		{"x-amz-rdma-cookie", NULL}, {"x-amz-rdma-op", NULL}, {"x-amz-rdma-target", NULL},
		{"x-amz-rdma-size", NULL}};

	return each_bad(conf, PAIRS, ARRAY_LEN(PAIRS));
}

static enum conf_verdict malformed(struct conf *conf)
{
	static const char *const PAIRS[][2] = {{"x-amz-rdma-token", "0102"},
		{"x-amz-rdma-psn", "1000000"}, {"x-amz-rdma-psn", "xyz"},
		{"x-amz-rdma-cookie", "100000000"}, {"x-amz-rdma-op", "DELETE"},
		{"x-amz-rdma-target", "nothing"}, {"x-amz-rdma-size", "1a"},
		{"x-amz-rdma-offset", "-1"}};

	return each_bad(conf, PAIRS, ARRAY_LEN(PAIRS));
}

static enum conf_verdict zero(struct conf *conf)
{
	static const char *const PAIRS[][2] = {{"x-amz-rdma-psn", "000000"},
		{"x-amz-rdma-cookie", "00000000"}, {"x-amz-rdma-size", "0"}};

	return each_bad(conf, PAIRS, ARRAY_LEN(PAIRS));
}

static enum conf_verdict only_rc(struct conf *conf)
{
	char token[HIPOBJ_TOKEN_LEN + 1];
	enum conf_verdict verdict = CONF_ERROR;
	struct hip hip;

	if (hip_begin(&hip, conf, "GET", "object", CONF_OBJECT_BYTES)) {
		memcpy(token, hip.token, sizeof(token));
		token[1] = '0';
		hip_header(&hip.prepare, "x-amz-rdma-token", token);
		verdict = hip_prepare(&hip, &BAD);
	}
	hip_end(&hip);
	return verdict;
}

static enum conf_verdict other_query(struct conf *conf)
{
	enum conf_verdict verdict = CONF_ERROR;
	struct hip hip;

	if (hip_begin(&hip, conf, "GET", "object", CONF_OBJECT_BYTES)) {
		hip_query(&hip, "acl=");
		verdict = hip_prepare(&hip, &BAD);
	}
	hip_end(&hip);
	return verdict;
}

static enum conf_verdict put_offset(struct conf *conf)
{
	enum conf_verdict verdict = CONF_ERROR;
	struct hip hip;

	if (hip_begin(&hip, conf, "PUT", "put", 4096)) {
		hip_header(&hip.prepare, "x-amz-rdma-offset", "1");
		verdict = hip_prepare(&hip, &BAD);
	}
	hip_end(&hip);
	return verdict;
}

static enum conf_verdict too_large(struct conf *conf)
{
	const struct conf_want want = {.status = 413, .code = "RDMATransferTooLarge"};

	return changed(conf, "x-amz-rdma-size", "2147483648", &want);
}

static enum conf_verdict absent(struct conf *conf)
{
	const struct conf_want want = {.status = 404, .code = "NoSuchKey"};
	enum conf_verdict verdict = CONF_ERROR;
	struct hip hip;

	if (hip_begin(&hip, conf, "GET", "absent", 4096))
		verdict = hip_prepare(&hip, &want);
	hip_end(&hip);
	return verdict;
}

static enum conf_verdict no_bucket(struct conf *conf)
{
	const struct conf_want want = {.status = 404, .code = "NoSuchBucket"};
	enum conf_verdict verdict = CONF_ERROR;
	struct hip hip;

	if (hip_begin(&hip, conf, "PUT", "put", 4096)) {
		snprintf(hip.target, sizeof(hip.target), "/no-%.48s/put", conf->prefix);
		hip.target[strcspn(hip.target + 1, "/")] = '0';
		verdict = hip_prepare(&hip, &want);
	}
	hip_end(&hip);
	return verdict;
}

static enum conf_verdict precondition(struct conf *conf)
{
	const struct conf_want want = {.status = 412, .code = "PreconditionFailed"};

	return changed(conf, "if-match", "\"0\"", &want);
}

static enum conf_verdict behind_the_end(struct conf *conf)
{
	const struct conf_want want = {.status = 416};
	char size[24];

	snprintf(size, sizeof(size), "%u", CONF_OBJECT_BYTES + 1);
	return changed(conf, "x-amz-rdma-size", size, &want);
}

static enum conf_verdict explicit_zero(struct conf *conf)
{
	return changed(conf, "x-amz-rdma-offset", "0", &GOOD);
}

const struct conf_case CONF_HIP_PREPARE[] = {
	{701,
		"A PREPARE of a GET is answered 200 with the protocol, a session, and the server's "
		"queue pair with its first packet number.",
		get_prepared},
	{702, "A PREPARE of a PUT is answered with the address and key of staging memory, too.",
		put_prepared},
	{703,
		"A control request that names no or another protocol is answered 501 with "
		"x-amz-rdma-protocol-status: unsupported.",
		other_protocol},
	{704, "A control request must be signed: else 403.", needs_signature},
	{705, "All x-amz- headers of a control request must be signed: else 403 AccessDenied.",
		all_signed},
	{706, "A control request with a body is refused with 400 InvalidRDMARequest.", no_body},
	{707, "A control request may sign the empty body's digest.", digest_of_nothing},
	{708, "Hexadecimal numbers have either case, with or without leading zeros.", hex_forms},
	{709, "An address and a length behind the token are read over.", suffix},
	{710, "A PREPARE without a header that it needs is refused with 400 InvalidRDMARequest.",
		missing},
	{711, "A malformed header is refused with 400 InvalidRDMARequest.", malformed},
	{712,
		"A first packet number, a cookie or a size of 0 is refused with 400 "
		"InvalidRDMARequest.",
		zero},
	{713, "A token of another transport than RC is refused with 400 InvalidRDMARequest.",
		only_rc},
	{714,
		"A target's query that is neither of a part nor of a version is refused with 400 "
		"InvalidRDMARequest.",
		other_query},
	{715, "A PUT with an offset is refused with 400 InvalidRDMARequest.", put_offset},
	{716, "A size above 2147483647 is refused with 413 RDMATransferTooLarge.", too_large},
	{717, "A PREPARE of an absent key is answered 404 NoSuchKey.", absent},
	{718, "A PREPARE of a PUT to an absent bucket is answered 404 NoSuchBucket.", no_bucket},
	{719, "A precondition that fails is told at PREPARE: 412.", precondition},
	{720, "A GET of more bytes than there are is told at PREPARE: 416.", behind_the_end},
	{721, "An offset of 0 is the same as none.", explicit_zero},
	{0},
};
