/* Covers codec/checksum.c. */
#include "../unit.h"

#include <errno.h>

#include "base/base.h"
#include "codec/codec.h"
#include "vectors.h"

/* Checksums of "123456789" in S3's base64. */
static const struct {
	enum checksum_kind kind;
	const char *name;
	const char *header;
	const char *digest;
} expected[] = {
	{CHECKSUM_CRC32, "CRC32", "x-amz-checksum-crc32", "cbf43926"},
	{CHECKSUM_CRC32C, "CRC32C", "x-amz-checksum-crc32c", "e3069283"},
	{CHECKSUM_CRC64NVME, "CRC64NVME", "x-amz-checksum-crc64nvme", "ae8b14860a799888"},
	{CHECKSUM_SHA1, "SHA1", "x-amz-checksum-sha1", "f7c3bc1d808e04732adf679965ccc34ca7ae3441"},
	{CHECKSUM_SHA256, "SHA256", "x-amz-checksum-sha256",
		"15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225"},
	{CHECKSUM_SHA512, "SHA512", "x-amz-checksum-sha512",
		"d9e6762dd1c8eaf6d61b3c6192fc408d4d6d5f1176d0c29169bc24e71c3f274a"
		"d27fcd5811b313d681f7e55ec02d73d499c95455b6b5bb503acf574fba8ffe85"},
	{CHECKSUM_XXHASH64, "XXHASH64", "x-amz-checksum-xxhash64", "8cb841db40e6ae83"},
	{CHECKSUM_XXHASH3, "XXHASH3", "x-amz-checksum-xxhash3", "72dcb18b67a17dff"},
	{CHECKSUM_XXHASH128, "XXHASH128", "x-amz-checksum-xxhash128",
		"33119477ede5dcd5e9716427681d5860"},
	{CHECKSUM_MD5, "MD5", "x-amz-checksum-md5", "25f9e794323b453885f5181f1b624d0b"},
	{CHECKSUM_NONE, "NONE", "", ""},
};

static void test_every_kind(void **state)
{
	uint8_t digest[CHECKSUM_BYTES_MAX];
	struct checksum sum;

	(void)state;
	assert_int_equal(ARRAY_LEN(expected), CHECKSUM_KIND_COUNT);
	for (unsigned i = 0; i < ARRAY_LEN(expected); i++) {
		enum checksum_kind kind = expected[i].kind;
		size_t bytes = strlen(expected[i].digest) / 2;

		assert_true(slice_eq(checksum_name(kind), slice_str(expected[i].name)));
		assert_true(slice_eq(checksum_header(kind), slice_str(expected[i].header)));
		assert_int_equal(checksum_bytes(kind), bytes);
		assert_int_equal(checksum_of(kind, "123456789", 9, digest), bytes);
		assert_bytes_are(digest, expected[i].digest);
		checksum_init(&sum, kind);
		for (const char *c = "123456789"; *c; c++)
			checksum_update(&sum, c, 1);
		assert_int_equal(checksum_final(&sum, digest), bytes);
		assert_bytes_are(digest, expected[i].digest);
	}
}

static void test_names_and_headers_are_found_in_any_case(void **state)
{
	enum checksum_kind kind;

	(void)state;
	for (unsigned i = 0; i < ARRAY_LEN(expected); i++) {
		if (!*expected[i].header)
			continue;
		assert_int_equal(checksum_kind_of_name(slice_str(expected[i].name), &kind), 0);
		assert_int_equal(kind, expected[i].kind);
		assert_int_equal(checksum_kind_of_header(slice_str(expected[i].header), &kind), 0);
		assert_int_equal(kind, expected[i].kind);
	}
	assert_int_equal(checksum_kind_of_name(SLICE("sha256"), &kind), 0);
	assert_int_equal(kind, CHECKSUM_SHA256);
	assert_int_equal(checksum_kind_of_header(SLICE("X-Amz-Checksum-Crc64nvme"), &kind), 0);
	assert_int_equal(kind, CHECKSUM_CRC64NVME);
}

static void test_unknown_names_are_refused(void **state)
{
	enum checksum_kind kind = CHECKSUM_SHA1;

	(void)state;
	assert_int_equal(checksum_kind_of_name(SLICE("SHA3"), &kind), -EINVAL);
	assert_int_equal(checksum_kind_of_name(SLICE("NONE"), &kind), -EINVAL);
	assert_int_equal(checksum_kind_of_name(SLICE_NONE, &kind), -EINVAL);
	assert_int_equal(checksum_kind_of_name(SLICE("CRC32X"), &kind), -EINVAL);
	assert_int_equal(checksum_kind_of_header(SLICE_NONE, &kind), -EINVAL);
	assert_int_equal(checksum_kind_of_header(SLICE("x-amz-checksum-type"), &kind), -EINVAL);
	assert_int_equal(kind, CHECKSUM_SHA1);
}

static void test_join(void **state)
{
	uint8_t a[CHECKSUM_BYTES_MAX], b[CHECKSUM_BYTES_MAX];

	(void)state;
	for (unsigned i = 0; i < ARRAY_LEN(expected); i++) {
		enum checksum_kind kind = expected[i].kind;

		checksum_of(kind, "1234", 4, a);
		checksum_of(kind, "56789", 5, b);
		if (kind <= CHECKSUM_CRC64NVME && kind != CHECKSUM_NONE) {
			assert_true(checksum_can_join(kind));
			assert_int_equal(checksum_join(kind, a, b, 5), 0);
			assert_bytes_are(a, expected[i].digest);
		} else {
			assert_false(checksum_can_join(kind));
			assert_int_equal(checksum_join(kind, a, b, 5), -EINVAL);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_kind),
		cmocka_unit_test(test_names_and_headers_are_found_in_any_case),
		cmocka_unit_test(test_unknown_names_are_refused),
		cmocka_unit_test(test_join),
	};

	return cmocka_run_group_tests_name("checksum", tests, NULL, NULL);
}
