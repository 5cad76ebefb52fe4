/* Covers codec/ctr.c: a stream from any offset, compared with libcrypto's own counter mode. */
#include "../unit.h"

#include <openssl/evp.h>

#include "codec/codec.h"

static void reference(
	const uint8_t key[32], uint64_t stream, const uint8_t *src, uint8_t *dst, int len)
{
	EVP_CIPHER_CTX *evp = EVP_CIPHER_CTX_new();
	uint8_t counter[16] = {0};
	int done;

	for (int i = 0; i < 8; i++)
		counter[i] = (uint8_t)(stream >> (56 - 8 * i));
	assert_int_equal(EVP_EncryptInit_ex(evp, EVP_aes_256_ctr(), NULL, key, counter), 1);
	assert_int_equal(EVP_EncryptUpdate(evp, dst, &done, src, len), 1);
	EVP_CIPHER_CTX_free(evp);
}

static void test_any_offset(void **state)
{
	static uint8_t text[1000], sealed[1000], opened[1000];
	uint8_t key[CTR_KEY_BYTES];
	struct ctr *ctr;

	(void)state;
	for (size_t i = 0; i < sizeof(text); i++)
		text[i] = (uint8_t)(i * 7);
	for (size_t i = 0; i < sizeof(key); i++)
		key[i] = (uint8_t)i;
	reference(key, 0x0102030405060708ull, text, sealed, sizeof(text));
	assert_int_equal(ctr_open(key, &ctr), 0);
	for (size_t from = 0; from < sizeof(text); from += 13) {
		for (size_t len = 1; from + len <= sizeof(text); len += 61) {
			assert_int_equal(ctr_apply(ctr, 0x0102030405060708ull, from, sealed + from,
						 opened, len),
				0);
			assert_memory_equal(opened, text + from, len);
		}
	}
	/* In place; and another stream gives another text. */
	memcpy(opened, sealed, sizeof(opened));
	assert_int_equal(
		ctr_apply(ctr, 0x0102030405060708ull, 0, opened, opened, sizeof(opened)), 0);
	assert_memory_equal(opened, text, sizeof(text));
	assert_int_equal(ctr_apply(ctr, 1, 0, sealed, opened, sizeof(opened)), 0);
	assert_memory_not_equal(opened, text, 16);
	ctr_close(ctr);
	ctr_close(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_any_offset)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
