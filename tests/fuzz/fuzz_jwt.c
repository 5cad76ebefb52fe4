/* Fuzzes tokens and key sets: the first line is a token, the rest a JWK set. A token that parses
 * must have claims, is verified with the keys, and gives the same result twice. */
#include "iam/jwt.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct slice rest = slice_of(data, size), text = slice_split(&rest, '\n');
	struct jwt_keys *keys = NULL;
	struct jwt jwt;
	int ret = jwt_parse(text, &jwt);

	if (!ret)
		CHECK(json_is_object(jwt.claims));
	if (jwt_keys_parse(rest, &keys) == 0) {
		CHECK(jwt_keys_count(keys) <= JWT_KEYS_MAX);
		if (!ret)
			CHECK(jwt_verify(&jwt, keys) == jwt_verify(&jwt, keys));
		jwt_keys_put(keys);
	}
	jwt_free(&jwt);
	return 0;
}
