/* Fuzzes the parser of RDMA tokens: the writer must give back a token that it accepts without an
 * override.
 */
#include <stdlib.h>

#include "base/base.h"
#include "codec/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char text[TOKEN_LEN], *copy;
	const char *why;
	struct token token, again;

	if (!size || size > 4096)
		return 0;
	/* A copy of exactly this length: the sanitizer sees reads past it. */
	copy = malloc(size - 1 ? size - 1 : 1);
	if (!copy)
		return 0;
	memcpy(copy, data + 1, size - 1);
	if (token_parse(slice_of(copy, size - 1), data[0] & 1, &token, &why) == 0) {
		CHECK(token.bytes <= UINT64_MAX - token.addr && token.qpn < 1u << 24);
		if (token.bytes <= UINT32_MAX) {
			token_format(&token, text);
			CHECK(token_parse(slice_of(text, sizeof(text)), true, &again, &why) == 0);
			CHECK(token_same_peer(&token, &again) && token.addr == again.addr &&
				token.bytes == again.bytes && token.rkey == again.rkey);
		}
	}
	free(copy);
	return 0;
}
