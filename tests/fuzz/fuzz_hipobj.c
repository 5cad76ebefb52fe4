/* Fuzzes the control headers of hipobj-rc-v2: lines "NAME: VALUE" of a request of one step, and
 * tokens and replies by themselves. An accepted request has the headers that its step needs. */
#include <stdlib.h>

#include "base/base.h"
#include "codec/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void tokens(struct slice text)
{
	char again[HIPOBJ_TOKEN_LEN];
	struct hipobj_token token, same;

	if (hipobj_reply_parse(text, &token) == 0)
		CHECK(text.len == 4 + HIPOBJ_TOKEN_LEN);
	if (hipobj_token_parse(text, &token))
		return;
	hipobj_token_format(&token, again);
	CHECK(hipobj_token_parse(slice_of(again, sizeof(again)), &same) == 0);
	CHECK(token.qpn == same.qpn && token.addr == same.addr && token.bytes == same.bytes &&
		token.rkey == same.rkey && token.lid == same.lid && token.port == same.port &&
		memcmp(token.gid, same.gid, sizeof(token.gid)) == 0);
}

static void check_good(const struct hipobj_request *request, enum hipobj_step step)
{
	if (step != HIPOBJ_PREPARE) {
		CHECK(request->seen & 1u << HIPOBJ_H_SESSION);
		return;
	}
	CHECK(request->size >= 1 && request->size <= HIPOBJ_SIZE_MAX);
	CHECK(request->offset <= INT64_MAX - request->size);
	CHECK(request->psn && request->psn <= HIPOBJ_NUMBER_MAX && request->cookie);
	CHECK(request->token.qpn && request->token.qpn <= HIPOBJ_NUMBER_MAX);
	CHECK(request->path.len >= 4 && request->path.data[0] == '/');
	CHECK(!request->put || !request->offset);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct hipobj_request request = {0};
	struct slice rest;
	const char *why;
	char *copy;

	if (!size || size > 16384)
		return 0;
	/* Of its own length: reading past the text shows. */
	copy = malloc(size - 1 ? size - 1 : 1);
	if (!copy)
		return 0;
	memcpy(copy, data + 1, size - 1);
	rest = slice_of(copy, size - 1);
	tokens(rest);
	while (rest.len) {
		struct slice value = slice_split(&rest, '\n');
		struct slice name = slice_split(&value, ':');

		tokens(slice_trim(value));
		hipobj_take(&request, name, slice_trim(value));
	}
	for (int step = 0; step < HIPOBJ_STEPS; step++) {
		enum hipobj_verdict verdict = hipobj_check(&request, (enum hipobj_step)step, &why);

		CHECK((verdict == HIPOBJ_BAD) == (why != NULL));
		if (verdict == HIPOBJ_GOOD)
			check_good(&request, (enum hipobj_step)step);
	}
	free(copy);
	return 0;
}
