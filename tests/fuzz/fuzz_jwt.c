/* Fuzzes tokens and key sets: up to the first line's end a token, behind it a JWK set. What can be
 * read must have claims, is held against the keys, and says the same twice. */
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
