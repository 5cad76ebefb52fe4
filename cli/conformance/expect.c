/* cli/conformance/expect.c: common parts of the cases: windows, objects, and answers. */
#include "conformance.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLEAR 0xa5

static void why_set(struct conf *conf, const char *fmt, va_list args)
{
	vsnprintf(conf->why, sizeof(conf->why), fmt, args);
}

enum conf_verdict conf_fail(struct conf *conf, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	why_set(conf, fmt, args);
	va_end(args);
	return CONF_FAIL;
}

enum conf_verdict conf_unsupported(struct conf *conf, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	why_set(conf, fmt, args);
	va_end(args);
	return CONF_UNSUPPORTED;
}

/* ---- Windows. ---- */

const char *conf_window(struct conf *conf, enum neb_op op, size_t bytes)
{
	int ret;

	if (conf->token[0])
		neb_token_release(conf->minter, conf->token);
	conf->token[0] = '\0';
	ret = neb_token_mint(conf->minter, op, conf_window_data(conf), bytes, conf->token);
	if (ret == 0)
		return conf->token;
	neb_minter_available(conf->minter, conf->why, sizeof(conf->why));
	if (!conf->why[0])
		conf_fail(conf, "no token: %s", strerror(-ret));
	return NULL;
}

void conf_token_failed(struct conf *conf)
{
	if (conf->token[0])
		neb_token_failed(conf->minter, conf->token);
}

const char *conf_bent(const char *token, uint32_t field, uint64_t bits)
{
	static char text[NEB_TOKEN_BYTES];
	char *at = text, digits[17];
	size_t width;

	snprintf(text, sizeof(text), "%s", token);
	while (field-- && strchr(at, ':'))
		at = strchr(at, ':') + 1;
	width = MIN(strcspn(at, ":"), sizeof(digits) - 1);
	memcpy(digits, at, width);
	digits[width] = '\0';
	snprintf(digits, sizeof(digits), "%0*llx", (int)width, strtoull(digits, NULL, 16) ^ bits);
	memcpy(at, digits, width);
	return text;
}

uint8_t *conf_window_data(struct conf *conf)
{
	return conf->memory + CONF_WINDOW_AT;
}

void conf_memory_clear(struct conf *conf)
{
	memset(conf->memory, CLEAR, CONF_MEMORY_BYTES);
}

bool conf_memory_holds(struct conf *conf, const uint8_t *data, size_t bytes)
{
	for (size_t i = 0; i < CONF_MEMORY_BYTES; i++) {
		bool in_window = i >= CONF_WINDOW_AT && i < CONF_WINDOW_AT + bytes;
		uint8_t want = in_window ? data[i - CONF_WINDOW_AT] : CLEAR;

		if (conf->memory[i] == want)
			continue;
		if (in_window)
			conf_fail(conf, "byte %zu of the window is not the object's",
				i - CONF_WINDOW_AT);
		else
			conf_fail(conf, "the server wrote outside of the %zu bytes: at %+lld",
				bytes, (long long)i - (long long)CONF_WINDOW_AT);
		return false;
	}
	return true;
}

/* ---- Objects, by plain HTTP. ---- */

bool conf_object_put(struct conf *conf, const char *key, const void *data, size_t bytes)
{
	const struct conf_request request = {
		.method = "PUT", .key = key, .body = data, .body_bytes = bytes};
	struct conf_answer answer;
	bool done = conf_send(conf, &request, &answer) && answer.status == 200;

	if (!done && answer.status)
		conf_fail(conf, "plain PUT of %s: status %u %s", key, answer.status,
			conf_element(&answer, "Code"));
	conf_answer_free(&answer);
	return done;
}

bool conf_object_is(struct conf *conf, const char *key, const void *data, size_t bytes)
{
	const struct conf_request request = {.method = "GET", .key = key};
	struct conf_answer answer;
	bool is = conf_send(conf, &request, &answer);

	if (is && data)
		is = answer.status == 200 && answer.body.len == bytes &&
		     memcmp(answer.body.data, data, bytes) == 0;
	else if (is)
		is = answer.status == 404;
	if (!is && answer.status)
		conf_fail(conf,
			data ? "the object has not the %zu bytes that it should have: "
			       "status %u, %zu bytes"
			     : "an object was stored: expected %zu bytes, status %u, %zu bytes",
			bytes, answer.status, answer.body.len);
	conf_answer_free(&answer);
	return is;
}

/* ---- Answers. ---- */

static enum conf_verdict check_status(
	struct conf *conf, const struct conf_want *want, const struct conf_answer *answer)
{
	const char *reply = conf_header(answer, "x-amz-rdma-reply");
	const char *etag = conf_header(answer, "etag");
	const char *unsupported = conf_header(answer, "x-amz-rdma-protocol-status");

	if (!want->status || answer->status == want->status ||
		(want->or_status && answer->status == want->or_status))
		return CONF_PASS;
	if (want->status < 300 && unsupported && strcmp(unsupported, "unsupported") == 0)
		return conf_unsupported(conf, "told to go by HTTP: status %u", answer->status);
	if (want->status < 300 && reply && strcmp(reply, "501") == 0) {
		if (etag && answer->status == 200 && !answer->body.len)
			return conf_fail(conf, "declined (reply 501) with an ETag");
		return conf_unsupported(conf, "declined: status %u, reply 501", answer->status);
	}
	return conf_fail(conf, "status %u %s and not %u", answer->status,
		conf_element(answer, "Code"), want->status);
}

static enum conf_verdict check_header(
	struct conf *conf, const struct conf_answer *answer, const char *name, const char *wanted)
{
	const char *value = conf_header(answer, name);

	if (!wanted || (!*wanted && !value) || (value && *wanted && strcmp(value, wanted) == 0))
		return CONF_PASS;
	if (!value)
		return conf_fail(conf, "no %s, which should be %s", name, wanted);
	return conf_fail(
		conf, "%s is %.60s and should be %s", name, value, *wanted ? wanted : "absent");
}

static enum conf_verdict check_rest(
	struct conf *conf, const struct conf_want *want, const struct conf_answer *answer)
{
	enum conf_verdict verdict = check_header(conf, answer, "x-amz-rdma-reply", want->reply);

	if (verdict == CONF_PASS)
		verdict = check_header(conf, answer, "x-amz-rdma-bytes-transferred", want->moved);
	if (verdict == CONF_PASS && want->empty)
		verdict = check_header(conf, answer, "content-length", "0");
	if (verdict != CONF_PASS)
		return verdict;
	if (want->code && strcmp(conf_element(answer, "Code"), want->code) != 0)
		return conf_fail(conf, "the error's code is \"%s\" and not %s",
			conf_element(answer, "Code"), want->code);
	if (want->no_etag && conf_header(answer, "etag"))
		return conf_fail(conf, "the answer has an ETag");
	if (want->empty && answer->body.len)
		return conf_fail(conf, "the answer has a body of %zu bytes", answer->body.len);
	return CONF_PASS;
}

enum conf_verdict conf_ask(struct conf *conf, const struct conf_request *request,
	const struct conf_want *want, struct conf_answer *ret_answer)
{
	struct conf_answer answer;
	enum conf_verdict verdict = CONF_ERROR;

	if (conf_send(conf, request, &answer)) {
		verdict = check_status(conf, want, &answer);
		if (verdict == CONF_PASS)
			verdict = check_rest(conf, want, &answer);
	}
	if (ret_answer)
		*ret_answer = answer;
	else
		conf_answer_free(&answer);
	return verdict;
}

enum conf_verdict conf_ask_for_nothing(
	struct conf *conf, const struct conf_request *request, const struct conf_want *want)
{
	enum conf_verdict verdict;

	if (!request->token)
		return CONF_ERROR;
	conf_memory_clear(conf);
	verdict = conf_ask(conf, request, want, NULL);
	if (verdict == CONF_PASS && !conf_memory_holds(conf, conf->object, 0))
		verdict = CONF_FAIL;
	return verdict;
}
