/* cli/conformance/connect.c: rules 1xx: how queue pairs are connected and ended. */
#include "conformance.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONNECT	 "rdma-connect="
#define PSN_NAME "x-nebulaio-rdma-psn"
#define MTU_NAME "x-nebulaio-rdma-mtu"

/* A token of a queue pair that does not exist, on our device. A server can connect to it all the
 * same, because connecting sends no packet. Lives until the next call. */
static const char *stranger(struct conf *conf, uint64_t bits)
{
	const char *token = conf_window(conf, NEB_GET_OBJECT, 1);

	return token ? conf_bent(token, CONF_QPN, bits) : NULL;
}

static struct conf_request request_of(const char *method, const char *token, const char *mtu)
{
	return (struct conf_request){.method = method,
		.query = CONNECT,
		.token = token,
		.headers = {{PSN_NAME, "1193046"}, {MTU_NAME, mtu}}};
}

/* Disconnects the queue pair; another case checks the answer. */
static void disconnect(struct conf *conf, const char *token)
{
	const struct conf_request request = {.method = "DELETE", .query = CONNECT, .token = token};
	struct conf_answer answer;
	char why[CONF_WHY_BYTES];

	memcpy(why, conf->why, sizeof(why));
	conf_send(conf, &request, &answer);
	conf_answer_free(&answer);
	memcpy(conf->why, why, sizeof(why));
}

static bool is_number(const char *text, unsigned long max)
{
	return text && strspn(text, "0123456789") == strlen(text) && *text &&
	       strtoul(text, NULL, 10) <= max;
}

static bool is_token(const char *text)
{
	static const uint8_t WIDTHS[] = {16, 8, 8, 4, 6, 1, 32};

	for (size_t i = 0; text && i < ARRAY_LEN(WIDTHS); i++) {
		if (strspn(text, "0123456789abcdef") != WIDTHS[i])
			return false;
		text += WIDTHS[i];
		if (i + 1 < ARRAY_LEN(WIDTHS) && *text++ != ':')
			return false;
	}
	return text && !*text;
}

static enum conf_verdict answer_check(struct conf *conf, const struct conf_answer *answer)
{
	const char *token = conf_header(answer, "x-amz-rdma-token");
	const char *psn = conf_header(answer, PSN_NAME), *mtu = conf_header(answer, MTU_NAME);

	if (!is_token(token))
		return conf_fail(conf, "x-amz-rdma-token names no queue pair: %.90s",
			token ? token : "absent");
	if (!is_number(psn, 0xffffff))
		return conf_fail(conf, PSN_NAME " is not of 24 bits: %.20s", psn ? psn : "absent");
	if (!is_number(mtu, 4096))
		return conf_fail(conf, MTU_NAME " is no path MTU: %.20s", mtu ? mtu : "absent");
	return CONF_PASS;
}

static enum conf_verdict connects(struct conf *conf)
{
	const char *token = stranger(conf, 0x400000);
	const struct conf_request request = request_of("POST", token, "4096");
	const struct conf_want want = {.status = 200};
	struct conf_answer answer;
	enum conf_verdict verdict;

	if (!token)
		return CONF_ERROR;
	verdict = conf_ask(conf, &request, &want, &answer);
	if (verdict == CONF_PASS)
		verdict = answer_check(conf, &answer);
	conf_answer_free(&answer);
	disconnect(conf, token);
	return verdict;
}

static enum conf_verdict smaller_mtu(struct conf *conf)
{
	const char *token = stranger(conf, 0x400001);
	const struct conf_request request = request_of("POST", token, "512");
	const struct conf_want want = {.status = 200};
	struct conf_answer answer;
	enum conf_verdict verdict;
	const char *mtu;

	if (!token)
		return CONF_ERROR;
	verdict = conf_ask(conf, &request, &want, &answer);
	mtu = conf_header(&answer, MTU_NAME);
	if (verdict == CONF_PASS && (!mtu || (strcmp(mtu, "512") && strcmp(mtu, "256"))))
		verdict =
			conf_fail(conf, "asked for 512, the answer has %.20s", mtu ? mtu : "none");
	conf_answer_free(&answer);
	disconnect(conf, token);
	return verdict;
}

static enum conf_verdict again(struct conf *conf)
{
	const char *token = stranger(conf, 0x400002);
	const struct conf_request request = request_of("POST", token, "1024");
	const struct conf_want want = {.status = 200};
	enum conf_verdict verdict = CONF_ERROR;

	for (uint32_t i = 0; i < 2 && token; i++) {
		verdict = conf_ask(conf, &request, &want, NULL);
		if (verdict != CONF_PASS)
			break;
	}
	if (token)
		disconnect(conf, token);
	return verdict;
}

static enum conf_verdict needs_signature(struct conf *conf)
{
	const char *token = stranger(conf, 0x400003);
	struct conf_request request = request_of("POST", token, "4096");
	const struct conf_want want = {.status = 403, .code = "AccessDenied", .reply = ""};
	enum conf_verdict verdict;

	if (!token)
		return CONF_ERROR;
	request.anonymous = true;
	verdict = conf_ask(conf, &request, &want, NULL);
	if (verdict != CONF_PASS)
		return verdict;
	request.anonymous = false;
	request.token_unsigned = true;
	return conf_ask(conf, &request, &want, NULL);
}

static enum conf_verdict malformed(struct conf *conf)
{
	const struct conf_request request = request_of("POST", "0102:03", "4096");
	const struct conf_want want = {.status = 400, .code = "InvalidRDMAToken", .reply = ""};

	return conf_ask(conf, &request, &want, NULL);
}

static enum conf_verdict unknown_end(struct conf *conf)
{
	const char *token = stranger(conf, 0x400004);
	const struct conf_request request = {.method = "DELETE", .query = CONNECT, .token = token};
	const struct conf_want want = {.status = 404, .code = "NoSuchRDMAConnection"};

	return token ? conf_ask(conf, &request, &want, NULL) : CONF_ERROR;
}

static enum conf_verdict ends(struct conf *conf)
{
	const char *token = stranger(conf, 0x400005);
	const struct conf_request begin = request_of("POST", token, "4096");
	const struct conf_request end = {.method = "DELETE", .query = CONNECT, .token = token};
	const struct conf_want begun = {.status = 200}, ended = {.status = 204},
			       gone = {.status = 404};
	enum conf_verdict verdict;

	if (!token)
		return CONF_ERROR;
	verdict = conf_ask(conf, &begin, &begun, NULL);
	if (verdict == CONF_PASS)
		verdict = conf_ask(conf, &end, &ended, NULL);
	return verdict == CONF_PASS ? conf_ask(conf, &end, &gone, NULL) : verdict;
}

/* Another key may not end it, nor use it (rule 406). */
static enum conf_verdict not_anothers(struct conf *conf)
{
	const char *token = conf_window(conf, NEB_GET_OBJECT, 1);
	const struct conf_request end = {
		.method = "DELETE", .query = CONNECT, .token = token, .by_other = true};
	const struct conf_want want = {.status = 404};

	if (!conf->opts->other.access)
		return conf_unsupported(conf, "not tried: it needs --other-access-key");
	return token ? conf_ask(conf, &end, &want, NULL) : CONF_ERROR;
}

const struct conf_case CONF_CONNECT[] = {
	{101,
		"A signed POST /?rdma-connect is answered 200 with the "
		"server's queue pair, first packet "
		"number and MTU.",
		connects},
	{102, "The MTU of the answer is not above the client's.", smaller_mtu},
	{103, "A client that connects the same queue pair again gets a new one.", again},
	{104, "Connecting needs a signature, which covers the token: else 403 AccessDenied.",
		needs_signature},
	{105, "A malformed token is refused with 400 InvalidRDMAToken.", malformed},
	{106, "Ending a queue pair that is not connected is answered 404 NoSuchRDMAConnection.",
		unknown_end},
	{107, "DELETE /?rdma-connect ends a queue pair and is answered 204.", ends},
	{108, "A queue pair belongs to the access key that connected it.", not_anothers},
	{0},
};
