/* cli/conformance/fail.c: rules 6xx: transfers that fail. Once the answer has come, whether success
 * or error, the client may use its memory again. */
#include "conformance.h"

#include <stdio.h>
#include <string.h>

static const struct conf_want FAILED = {
	.status = 500, .code = "RDMATransferFailed", .reply = "", .moved = "", .no_etag = true};

/* A GET by a token with another key. */
static enum conf_verdict get_wrong_key(struct conf *conf)
{
	const char *token = conf_window(conf, NEB_GET_OBJECT, CONF_OBJECT_BYTES);
	const struct conf_request request = {.method = "GET",
		.key = "object",
		.token = token ? conf_bent(token, CONF_RKEY, 0x40000000) : NULL};

	return conf_ask_for_nothing(conf, &request, &FAILED);
}

static enum conf_verdict put_wrong_key(struct conf *conf)
{
	const char *token = conf_window(conf, NEB_PUT_OBJECT, 5000);
	struct conf_request request = {.method = "PUT", .key = "kept"};
	enum conf_verdict verdict;

	if (!token || !conf_object_put(conf, "kept", "kept", 4))
		return CONF_ERROR;
	request.token = conf_bent(token, CONF_RKEY, 0x40000000);
	verdict = conf_ask(conf, &request, &FAILED, NULL);
	if (verdict == CONF_PASS && !conf_object_is(conf, "kept", (const uint8_t *)"kept", 4))
		verdict = CONF_FAIL;
	return verdict;
}

/* After a failed transfer, the same token with its right key must move nothing: the server must
 * have dropped the queue pair that it names. */
static enum conf_verdict fenced(struct conf *conf)
{
	const struct conf_want want = {
		.status = 501, .or_status = 200, .reply = "501", .moved = ""};
	const char *token = conf_window(conf, NEB_GET_OBJECT, CONF_OBJECT_BYTES);
	struct conf_request request = {.method = "GET", .key = "object"};
	enum conf_verdict verdict;

	if (!token)
		return CONF_ERROR;
	request.token = conf_bent(token, CONF_RKEY, 0x40000000);
	verdict = conf_ask(conf, &request, &FAILED, NULL);
	request.token = token;
	return verdict == CONF_PASS ? conf_ask_for_nothing(conf, &request, &want) : verdict;
}

static enum conf_verdict goes_on(struct conf *conf)
{
	const struct conf_want want = {.status = 200, .reply = "200"};
	enum conf_verdict verdict = get_wrong_key(conf);
	struct conf_request request = {.method = "GET", .key = "object"};

	if (verdict != CONF_PASS)
		return verdict;
	request.token = conf_window(conf, NEB_GET_OBJECT, CONF_OBJECT_BYTES);
	if (!request.token)
		return CONF_ERROR;
	conf_memory_clear(conf);
	verdict = conf_ask(conf, &request, &want, NULL);
	/* The endpoint moved bytes before the failure, so it must not decline now. */
	if (verdict == CONF_UNSUPPORTED)
		verdict = CONF_FAIL;
	if (verdict == CONF_PASS && !conf_memory_holds(conf, conf->object, CONF_OBJECT_BYTES))
		verdict = CONF_FAIL;
	return verdict;
}

/* Memory that the server may only read. */
static enum conf_verdict wrong_direction(struct conf *conf)
{
	const struct conf_request request = {.method = "GET",
		.key = "object",
		.token = conf_window(conf, NEB_PUT_OBJECT, CONF_OBJECT_BYTES)};

	return conf_ask_for_nothing(conf, &request, &FAILED);
}

/* The client's end of the queue pair is gone, as after its own time is up. */
static enum conf_verdict client_gone(struct conf *conf)
{
	struct conf_request request = {.method = "GET",
		.key = "object",
		.token = conf_window(conf, NEB_GET_OBJECT, CONF_OBJECT_BYTES)};
	const struct conf_want want = {.moved = ""};
	struct conf_answer answer;
	const char *reply;
	enum conf_verdict verdict;

	if (!request.token)
		return CONF_ERROR;
	conf_memory_clear(conf);
	conf_token_failed(conf);
	verdict = conf_ask(conf, &request, &want, &answer);
	reply = conf_header(&answer, "x-amz-rdma-reply");
	if (verdict == CONF_PASS && answer.status != 500 && (!reply || strcmp(reply, "501") != 0))
		verdict = conf_fail(conf, "neither declined nor failed: status %u", answer.status);
	conf_answer_free(&answer);
	if (verdict == CONF_PASS && !conf_memory_holds(conf, conf->object, 0))
		verdict = CONF_FAIL;
	return verdict;
}

const struct conf_case CONF_FAIL_CASES[] = {
	{601,
		"A GET whose transfer fails is answered 500 RDMATransferFailed, without a count of "
		"bytes.",
		get_wrong_key},
	{602,
		"A PUT whose transfer fails is answered 500 "
		"RDMATransferFailed, and the object stays as "
		"it was.",
		put_wrong_key},
	{603, "After a failed transfer its queue pair is closed: later tokens of it are declined.",
		fenced},
	{604, "After a failed transfer a new queue pair connects and moves bytes.", goes_on},
	{605, "A key without the right to write fails a GET, and nothing is written.",
		wrong_direction},
	{606, "A queue pair whose client closed it moves nothing: reply 501, or status 500.",
		client_gone},
	{0},
};
