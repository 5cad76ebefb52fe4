/* Fuzzes elbencho's dialect: its tokens, and the headers of its two requests in lines "NAME:
 * VALUE". An accepted request has the headers that its step needs, and a window that does not wrap.
 */
#include <stdlib.h>

#include "base/base.h"
#include "codec/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_token(struct slice text)
{
	struct elbencho_token token;
	const char *why = NULL;

	if (elbencho_token_parse(text, &token, &why)) {
		CHECK(why != NULL);
		return;
	}
	CHECK(elbencho_is_token(text));
	CHECK(token.bytes <= UINT32_MAX && token.bytes <= UINT64_MAX - token.addr);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct hipobj_request request = {0};
	enum elbencho_step step;
	struct slice rest;
	char *copy;

	if (size > 16384)
		return 0;
	/* Of its own length: reading past the text shows. */
	copy = malloc(size ? size : 1);
	if (!copy)
		return 0;
	if (size)
		memcpy(copy, data, size);
	rest = slice_of(copy, size);
	check_token(rest);
	elbencho_step_of(rest, &step);
	while (rest.len) {
		struct slice value = slice_split(&rest, '\n');
		struct slice name = slice_split(&value, ':');

		check_token(slice_trim(value));
		hipobj_take(&request, name, slice_trim(value));
	}
	if (!elbencho_check(&request, ELBENCHO_CONNECT)) {
		CHECK(request.psn && request.psn <= HIPOBJ_NUMBER_MAX);
		CHECK(request.token.qpn && request.token.qpn <= HIPOBJ_NUMBER_MAX);
	}
	if (!elbencho_check(&request, ELBENCHO_DISCONNECT))
		CHECK(request.seen & 1u << HIPOBJ_H_SESSION);
	free(copy);
	return 0;
}
