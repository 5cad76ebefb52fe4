#include "../unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "front/http/http_priv.h"

/* A receiver over bytes in memory that gives at most `step` of them at a time. */
struct feed {
	struct slice rest;
	size_t step;
	int error; /* instead of the end */
	struct http_in in;
	char window[2 * LIMIT_HTTP_CHUNK_HEAD_BYTES_MAX];
};

static int feed_recv(void *arg, void *dst, size_t len, enum http_want want, size_t *ret_bytes)
{
	struct feed *feed = arg;

	(void)want;
	len = MIN(MIN(len, feed->step), feed->rest.len);
	if (!len && feed->error)
		return feed->error;
	if (len)
		memcpy(dst, feed->rest.data, len);
	feed->rest = slice_from(feed->rest, len);
	*ret_bytes = len;
	return 0;
}

static void feed_init(struct feed *feed, struct slice bytes, size_t step)
{
	*feed = (struct feed){.rest = bytes, .step = step};
	feed->in = (struct http_in){.data = feed->window,
		.bytes_max = sizeof(feed->window),
		.recv = feed_recv,
		.arg = feed};
}

static struct http_chunked chunked;
static struct s3_chunk_signing signing;
static uint64_t decoded_bytes_max = LIMIT_PUT_BYTES_MAX;

/* Decodes everything in reads of `piece` bytes; 0 or the error. *ret_left: the number of bytes not
 * consumed. */
static int decode(struct slice bytes, enum http_coding coding, size_t step, size_t piece,
	struct buf *out, size_t *ret_left)
{
	struct feed *feed = malloc(sizeof(*feed));
	char dst[8192];
	size_t got;
	int err;

	assert_non_null(feed);
	assert_true(piece <= sizeof(dst));
	feed_init(feed, bytes, step);
	http_chunked_init(&chunked, coding, &feed->in, &signing, decoded_bytes_max);
	buf_reset(out);
	do {
		err = http_chunked_read(&chunked, dst, piece, HTTP_PAYLOAD, &got);
		if (!err)
			buf_put(out, dst, got);
	} while (!err && got);
	*ret_left = feed->rest.len + feed->in.end - feed->in.start;
	free(feed);
	return err;
}

static void check_good(struct slice bytes, enum http_coding coding, struct slice want, size_t left)
{
	static const size_t steps[] = {1, 2, 3, 7, 63, 64, 65, 1000, SIZE_MAX};
	static const size_t pieces[] = {1, 5, 8192};
	struct buf out;
	size_t got_left;

	buf_init(&out, 1 * MIB);
	for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
		for (size_t j = 0; j < ARRAY_LEN(pieces); j++) {
			assert_int_equal(
				decode(bytes, coding, steps[i], pieces[j], &out, &got_left), 0);
			assert_true(slice_eq(buf_slice(&out), want));
			assert_int_equal(got_left, left);
		}
	}
	buf_free(&out);
}

static void check_bad(struct slice bytes, enum http_coding coding, int want)
{
	struct buf out;
	size_t left;

	buf_init(&out, 1 * MIB);
	assert_int_equal(decode(bytes, coding, SIZE_MAX, 8192, &out, &left), want);
	assert_int_equal(decode(bytes, coding, 1, 1, &out, &left), want);
	buf_free(&out);
}

/* Every proper prefix of a valid stream is a truncated body. */
static void check_short(struct slice bytes, enum http_coding coding)
{
	struct buf out;
	size_t left;

	buf_init(&out, 1 * MIB);
	for (size_t len = 0; len < bytes.len; len++)
		assert_int_equal(
			decode(slice_to(bytes, len), coding, SIZE_MAX, 8192, &out, &left), -EPIPE);
	buf_free(&out);
}

/* ---- HTTP's own. ---- */

static void test_transfer(void **state)
{
	const struct slice good = SLICE("5\r\nhello\r\n"
					"00006;name=\"value\";x\r\n world\r\n"
					"A\r\n0123456789\r\n"
					"0;end\r\nTrailer: x\r\nOther:\r\n\r\n");

	(void)state;
	check_good(good, HTTP_CODING_TRANSFER, SLICE("hello world0123456789"), 0);
	check_short(good, HTTP_CODING_TRANSFER);
	check_good(SLICE("0\r\n\r\n"), HTTP_CODING_TRANSFER, SLICE(""), 0);
	/* The following bytes belong to the next request. */
	check_good(SLICE("1\r\nx\r\n0\r\n\r\nGET /"), HTTP_CODING_TRANSFER, SLICE("x"), 5);
}

/* A string with NULs in it, as an initialiser. */
#define BYTES(literal)                       \
	{                                    \
		literal, sizeof(literal) - 1 \
	}

static void test_transfer_bad(void **state)
{
	static const struct slice bad[] = {
		BYTES("\r\n"),
		BYTES("g\r\n"),
		BYTES(" 5\r\nhello\r\n0\r\n\r\n"),
		BYTES("5 \r\nhello\r\n0\r\n\r\n"),
		BYTES("0x5\r\nhello\r\n0\r\n\r\n"),
		BYTES("-5\r\nhello\r\n0\r\n\r\n"),
		BYTES("+5\r\nhello\r\n0\r\n\r\n"),
		BYTES("5\nhello\r\n0\r\n\r\n"),
		BYTES("5\r\nhello\n0\r\n\r\n"),
		BYTES("5\r\nhello0\r\n\r\n"),
		BYTES("5\r\nhellox\r\n0\r\n\r\n"),
		BYTES("5;a\0b\r\nhello\r\n0\r\n\r\n"),
		BYTES("5;a\rb\r\nhello\r\n0\r\n\r\n"),
		BYTES("00000000000000005\r\nhello\r\n0\r\n\r\n"),
		BYTES("0\r\nno colon\r\n\r\n"),
		BYTES("0\r\n: no name\r\n\r\n"),
		BYTES("0\r\nsp ace: x\r\n\r\n"),
		BYTES("0\r\na: b\n\r\n"),
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		check_bad(bad[i], HTTP_CODING_TRANSFER, -EPROTO);
	check_bad(SLICE("ffffffffffffffff\r\nx"), HTTP_CODING_TRANSFER, -EFBIG);
	decoded_bytes_max = 9;
	check_good(SLICE("4\r\nabcd\r\n5\r\nefghi\r\n0\r\n\r\n"), HTTP_CODING_TRANSFER,
		SLICE("abcdefghi"), 0);
	check_bad(SLICE("4\r\nabcd\r\n6\r\nefghij\r\n0\r\n\r\n"), HTTP_CODING_TRANSFER, -EFBIG);
	decoded_bytes_max = LIMIT_PUT_BYTES_MAX;
}

static void test_transfer_limits(void **state)
{
	struct buf text;

	(void)state;
	buf_init(&text, 64 * KIB);
	for (size_t len = LIMIT_HTTP_CHUNK_HEAD_BYTES_MAX;
		len <= LIMIT_HTTP_CHUNK_HEAD_BYTES_MAX + 1; len++) {
		buf_reset(&text);
		buf_put_str(&text, "1;");
		while (text.len < len)
			buf_put_str(&text, "e");
		buf_put_str(&text, "\r\nx\r\n0\r\n\r\n");
		if (len == LIMIT_HTTP_CHUNK_HEAD_BYTES_MAX)
			check_good(buf_slice(&text), HTTP_CODING_TRANSFER, SLICE("x"), 0);
		else
			check_bad(buf_slice(&text), HTTP_CODING_TRANSFER, -EPROTO);
	}
	for (uint32_t count = HTTP_TRAILERS_MAX; count <= HTTP_TRAILERS_MAX + 1; count++) {
		buf_reset(&text);
		buf_put_str(&text, "0\r\n");
		for (uint32_t i = 0; i < count; i++)
			buf_put_str(&text, "a: b\r\n");
		buf_put_str(&text, "\r\n");
		if (count == HTTP_TRAILERS_MAX)
			check_good(buf_slice(&text), HTTP_CODING_TRANSFER, SLICE(""), 0);
		else
			check_bad(buf_slice(&text), HTTP_CODING_TRANSFER, -EPROTO);
	}
	buf_reset(&text);
	buf_put_str(&text, "0\r\n");
	while (text.len < LIMIT_HTTP_TRAILER_BYTES_MAX)
		buf_printf(&text, "a: %0900d\r\n", 0);
	buf_put_str(&text, "\r\n");
	check_bad(buf_slice(&text), HTTP_CODING_TRANSFER, -EPROTO);
	buf_free(&text);
}

static void test_receiver_error(void **state)
{
	struct feed feed;
	char dst[8];
	size_t got;

	(void)state;
	feed_init(&feed, SLICE("5\r\nhel"), 2);
	feed.error = -ETIMEDOUT;
	http_chunked_init(&chunked, HTTP_CODING_TRANSFER, &feed.in, NULL, LIMIT_PUT_BYTES_MAX);
	for (size_t have = 0; have < 3; have += got)
		assert_int_equal(
			http_chunked_read(&chunked, dst, sizeof(dst), HTTP_PAYLOAD, &got), 0);
	assert_int_equal(
		http_chunked_read(&chunked, dst, sizeof(dst), HTTP_PAYLOAD, &got), -ETIMEDOUT);
}

/* ---- aws-chunked. The examples of the AWS documentation: 65 KiB of 'a'. ---- */

#define EXAMPLE_BYTES (65u * 1024)

static void sign_with(const char *secret, const char *seed)
{
	static const struct slice parts[] = {
		{"20130524", 8}, {"us-east-1", 9}, {"s3", 2}, {"aws4_request", 12}};
	char first[128];
	int len = snprintf(first, sizeof(first), "AWS4%s", secret);
	uint8_t key[SHA256_BYTES];

	hmac_sha256(slice_of(first, (size_t)len), parts[0], key);
	for (size_t i = 1; i < ARRAY_LEN(parts); i++)
		hmac_sha256(slice_of(key, sizeof(key)), parts[i], key);
	memset(&signing, 0, sizeof(signing));
	memcpy(signing.signing_key, key, sizeof(key));
	strcpy(signing.seed_signature, seed);
	strcpy(signing.timestamp, "20130524T000000Z");
	strcpy(signing.scope, "20130524/us-east-1/s3/aws4_request");
}

static void put_a(struct buf *text, size_t count)
{
	static const char block[1024] = {[0 ... 1023] = 'a'};

	for (; count; count -= MIN(count, sizeof(block)))
		buf_put(text, block, MIN(count, sizeof(block)));
}

static void put_example(struct buf *text, const char *first, const char *second, const char *last)
{
	buf_printf(text, "10000;chunk-signature=%s\r\n", first);
	put_a(text, 65536);
	buf_printf(text, "\r\n400;chunk-signature=%s\r\n", second);
	put_a(text, 1024);
	buf_printf(text, "\r\n0;chunk-signature=%s\r\n", last);
}

static void test_aws_example(void **state)
{
	struct buf text, want;

	(void)state;
	buf_init(&text, 1 * MIB);
	buf_init(&want, 1 * MIB);
	put_a(&want, EXAMPLE_BYTES);
	sign_with("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
		"4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9");
	put_example(&text, "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
		"0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
		"b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9");
	buf_put_str(&text, "\r\n");
	check_good(buf_slice(&text), HTTP_CODING_AWS_SIGNED, buf_slice(&want), 0);
	/* One bit anywhere in the data, and another key. */
	text.data[66000] ^= 1;
	check_bad(buf_slice(&text), HTTP_CODING_AWS_SIGNED, -EBADMSG);
	text.data[66000] ^= 1;
	signing.signing_key[31] ^= 1;
	check_bad(buf_slice(&text), HTTP_CODING_AWS_SIGNED, -EBADMSG);
	buf_free(&text);
	buf_free(&want);
}

static void test_aws_trailer_example(void **state)
{
	struct buf text, want;

	(void)state;
	buf_init(&text, 1 * MIB);
	buf_init(&want, 1 * MIB);
	put_a(&want, EXAMPLE_BYTES);
	sign_with("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
		"106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e");
	put_example(&text, "b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2",
		"1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7",
		"2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992");
	buf_put_str(&text,
		"x-amz-checksum-crc32c:sOO8/Q==\r\n"
		"x-amz-trailer-signature:"
		"d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435\r\n\r\n");
	check_good(buf_slice(&text), HTTP_CODING_AWS_SIGNED_TRAILER, buf_slice(&want), 0);
	assert_true(slice_eq(
		http_chunked_trailer(&chunked, SLICE("x-amz-checksum-crc32c")), SLICE("sOO8/Q==")));
	assert_int_equal(http_chunked_trailer(&chunked, SLICE("x-amz-checksum-crc32")).len, 0);
	buf_free(&text);
	buf_free(&want);
}

/* ---- Generated streams: the test's own signer, written from the document. ---- */

struct signer {
	char previous[65];
};

static void sign_next(
	struct signer *signer, const char *kind, const char *middle, const void *data, size_t len)
{
	char text[1024], digest_text[65] = "";
	uint8_t digest[SHA256_BYTES];
	int text_len;

	sha256_of(data, len, digest);
	hex_encode(digest, sizeof(digest), digest_text);
	text_len = snprintf(text, sizeof(text), "%s\n%s\n%s\n%s\n%s%s", kind, signing.timestamp,
		signing.scope, signer->previous, middle, digest_text);
	assert_true(text_len > 0 && (size_t)text_len < sizeof(text));
	hmac_sha256(slice_of(signing.signing_key, 32), slice_of(text, (size_t)text_len), digest);
	hex_encode(digest, sizeof(digest), signer->previous);
}

#define EMPTY_LINE "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\n"

static void put_signed(struct buf *text, struct signer *signer, const void *data, size_t len)
{
	sign_next(signer, "AWS4-HMAC-SHA256-PAYLOAD", EMPTY_LINE, data, len);
	buf_printf(text, "%zx;chunk-signature=%s\r\n", len, signer->previous);
	buf_put(text, data, len);
	if (len)
		buf_put_str(text, "\r\n");
}

static void generate(struct buf *text, struct buf *want, enum http_coding coding, uint64_t seed)
{
	struct signer signer;
	struct prng prng;
	char data[700];

	prng_seed(&prng, seed);
	strcpy(signer.previous, signing.seed_signature);
	for (uint64_t chunks = prng_below(&prng, 6); chunks; chunks--) {
		size_t len = 1 + prng_below(&prng, sizeof(data));

		prng_fill(&prng, data, len);
		buf_put(want, data, len);
		if (coding == HTTP_CODING_AWS_UNSIGNED_TRAILER) {
			buf_printf(text, "%zX\r\n", len);
			buf_put(text, data, len);
			buf_put_str(text, "\r\n");
		} else {
			put_signed(text, &signer, data, len);
		}
	}
	if (coding == HTTP_CODING_AWS_UNSIGNED_TRAILER) {
		buf_put_str(text, "0\r\nx-amz-checksum-crc32:AAAAAA==\r\n");
	} else {
		put_signed(text, &signer, NULL, 0);
	}
	if (coding == HTTP_CODING_AWS_SIGNED_TRAILER) {
		static const char trailers[] = "x-amz-checksum-crc32:AAAAAA==\nx-amz-meta-t:1\n";

		sign_next(&signer, "AWS4-HMAC-SHA256-TRAILER", "", trailers, sizeof(trailers) - 1);
		buf_printf(text,
			"X-Amz-Checksum-Crc32: AAAAAA== \r\nx-amz-meta-t:1\r\n"
			"x-amz-trailer-signature:%s\r\n",
			signer.previous);
	}
	buf_put_str(text, "\r\n");
}

static const enum http_coding aws_codings[] = {
	HTTP_CODING_AWS_SIGNED, HTTP_CODING_AWS_SIGNED_TRAILER, HTTP_CODING_AWS_UNSIGNED_TRAILER};

static void test_aws_generated(void **state)
{
	struct buf text, want;

	(void)state;
	buf_init(&text, 1 * MIB);
	buf_init(&want, 1 * MIB);
	sign_with("secret", "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff");
	for (uint64_t seed = 0; seed < 24; seed++) {
		enum http_coding coding = aws_codings[seed % ARRAY_LEN(aws_codings)];

		buf_reset(&text);
		buf_reset(&want);
		generate(&text, &want, coding, seed);
		check_good(buf_slice(&text), coding, buf_slice(&want), 0);
		check_short(buf_slice(&text), coding);
		assert_true(coding == HTTP_CODING_AWS_SIGNED ||
			    slice_eq(http_chunked_trailer(&chunked, SLICE("x-amz-checksum-crc32")),
				    SLICE("AAAAAA==")) ||
			    chunked.state != HTTP_CHUNK_END);
	}
	buf_free(&text);
	buf_free(&want);
}

/* Any changed byte of a signed stream is detected. */
static void test_aws_tampered(void **state)
{
	struct buf text, want, out;
	size_t left;

	(void)state;
	buf_init(&text, 1 * MIB);
	buf_init(&want, 1 * MIB);
	buf_init(&out, 1 * MIB);
	sign_with("secret", "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff");
	generate(&text, &want, HTTP_CODING_AWS_SIGNED_TRAILER, 1);
	assert_true(text.len > 500);
	for (size_t i = 0; i < text.len; i++) {
		int err;

		text.data[i] ^= 0x10;
		err = decode(buf_slice(&text), HTTP_CODING_AWS_SIGNED_TRAILER, SIZE_MAX, 8192, &out,
			&left);
		text.data[i] ^= 0x10;
		assert_true(err < 0);
	}
	buf_free(&text);
	buf_free(&want);
	buf_free(&out);
}

static void test_aws_bad(void **state)
{
	struct signer signer;
	struct buf text;
	size_t head_len;

	(void)state;
	buf_init(&text, 1 * MIB);
	sign_with("secret", "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff");
	/* A stream without signatures, and signatures where none are expected. */
	check_bad(SLICE("1\r\nx\r\n0\r\n\r\n"), HTTP_CODING_AWS_SIGNED, -EPROTO);
	check_bad(SLICE("1;chunk-signature=ab\r\nx\r\n"), HTTP_CODING_AWS_SIGNED, -EPROTO);
	check_bad(SLICE("1;x=y\r\nx\r\n"), HTTP_CODING_AWS_UNSIGNED_TRAILER, -EPROTO);
	check_bad(SLICE("1;\r\nx\r\n"), HTTP_CODING_AWS_UNSIGNED_TRAILER, -EPROTO);
	/* Trailers that were not announced. */
	strcpy(signer.previous, signing.seed_signature);
	put_signed(&text, &signer, NULL, 0);
	head_len = text.len;
	buf_put_str(&text, "x-amz-checksum-crc32:AAAAAA==\r\n\r\n");
	check_bad(buf_slice(&text), HTTP_CODING_AWS_SIGNED, -EPROTO);
	/* Announced, but not signed. */
	check_bad(buf_slice(&text), HTTP_CODING_AWS_SIGNED_TRAILER, -EBADMSG);
	text.len = head_len;
	buf_put_str(&text, "\r\n");
	check_bad(buf_slice(&text), HTTP_CODING_AWS_SIGNED_TRAILER, -EBADMSG);
	/* A trailer after the signature. */
	text.len = head_len;
	sign_next(&signer, "AWS4-HMAC-SHA256-TRAILER", "", "", 0);
	buf_printf(&text, "x-amz-trailer-signature:%s\r\n", signer.previous);
	head_len = text.len;
	buf_put_str(&text, "\r\n");
	check_good(buf_slice(&text), HTTP_CODING_AWS_SIGNED_TRAILER, SLICE(""), 0);
	text.len = head_len;
	buf_put_str(&text, "x-amz-checksum-crc32:AAAAAA==\r\n\r\n");
	check_bad(buf_slice(&text), HTTP_CODING_AWS_SIGNED_TRAILER, -EPROTO);
	buf_free(&text);
}

/* One family of clients ends trailers in "\n\r\n", which is also what it signs. */
static void test_aws_lone_lf(void **state)
{
	(void)state;
	check_good(SLICE("1\r\nx\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\nb:c\n\r\n\r\n"),
		HTTP_CODING_AWS_UNSIGNED_TRAILER, SLICE("x"), 0);
	assert_true(slice_eq(
		http_chunked_trailer(&chunked, SLICE("x-amz-checksum-crc32")), SLICE("AAAAAA==")));
	assert_true(slice_eq(http_chunked_trailer(&chunked, SLICE("b")), SLICE("c")));
	check_bad(SLICE("1\r\nx\r\n0\r\na:b\n\nc:d\n\r\n\r\n"), HTTP_CODING_AWS_UNSIGNED_TRAILER,
		-EPROTO);
	check_bad(SLICE("1\nx\r\n0\r\n\r\n"), HTTP_CODING_AWS_UNSIGNED_TRAILER, -EPROTO);
}

/* Payload copied out of the window is counted; framing is not. */
static void test_copies(void **state)
{
	uint64_t before = region_copy_bytes(COPY_INLINE_IN);
	struct buf out;
	size_t left;

	(void)state;
	buf_init(&out, 1 * MIB);
	/* The read of the head includes the whole payload. */
	assert_int_equal(decode(SLICE("5\r\nhello\r\n0\r\n\r\n"), HTTP_CODING_TRANSFER, SIZE_MAX,
				 8192, &out, &left),
		0);
	assert_int_equal(region_copy_bytes(COPY_INLINE_IN) - before, 5);
	/* Byte by byte, no payload is read ahead. */
	before = region_copy_bytes(COPY_INLINE_IN);
	assert_int_equal(decode(SLICE("5\r\nhello\r\n0\r\n\r\n"), HTTP_CODING_TRANSFER, 1, 8192,
				 &out, &left),
		0);
	assert_int_equal(region_copy_bytes(COPY_INLINE_IN) - before, 0);
	buf_free(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_transfer),
		cmocka_unit_test(test_transfer_bad),
		cmocka_unit_test(test_transfer_limits),
		cmocka_unit_test(test_receiver_error),
		cmocka_unit_test(test_aws_example),
		cmocka_unit_test(test_aws_trailer_example),
		cmocka_unit_test(test_aws_generated),
		cmocka_unit_test(test_aws_tampered),
		cmocka_unit_test(test_aws_bad),
		cmocka_unit_test(test_aws_lone_lf),
		cmocka_unit_test(test_copies),
	};

	return cmocka_run_group_tests_name("http_chunked", tests, NULL, NULL);
}
