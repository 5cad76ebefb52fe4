/* tests/fuzz/fuzz_http_chunked.c: the four chunked codings. The first byte chooses the coding, the
 * rest is the stream. Any division of the bytes must give the same outcome. Signatures use a key of
 * zeros, so that the seeds' signatures are valid. */
#include <stdlib.h>

#include "front/http/http_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define OUT_BYTES_MAX (64 * KIB)

struct feed {
	struct slice rest;
	size_t step;
	struct http_in in;
	char window[2 * LIMIT_HTTP_CHUNK_HEAD_BYTES_MAX];
};

struct outcome {
	int err;
	size_t bytes;
	size_t left;
	uint64_t trailers;
	char out[OUT_BYTES_MAX];
};

static int feed_recv(void *arg, void *dst, size_t len, enum http_want want, size_t *ret_bytes)
{
	struct feed *feed = arg;

	(void)want;
	len = MIN(MIN(len, feed->step), feed->rest.len);
	if (len)
		memcpy(dst, feed->rest.data, len);
	feed->rest = slice_from(feed->rest, len);
	*ret_bytes = len;
	return 0;
}

static void decode(enum http_coding coding, struct slice bytes, size_t step, size_t piece,
	struct outcome *ret_outcome)
{
	static struct http_chunked chunked;
	static struct feed feed;
	struct s3_chunk_signing signing = {
		.timestamp = "20130524T000000Z", .scope = "20130524/us-east-1/s3/aws4_request"};
	size_t got;

	memset(signing.seed_signature, '0', sizeof(signing.seed_signature) - 1);
	feed = (struct feed){.rest = bytes, .step = step};
	feed.in = (struct http_in){.data = feed.window,
		.bytes_max = sizeof(feed.window),
		.recv = feed_recv,
		.arg = &feed};
	http_chunked_init(&chunked, coding, &feed.in, &signing, OUT_BYTES_MAX);
	ret_outcome->bytes = 0;
	do {
		size_t room = OUT_BYTES_MAX - ret_outcome->bytes;

		got = 0;
		ret_outcome->err =
			http_chunked_read(&chunked, ret_outcome->out + ret_outcome->bytes,
				MAX(MIN(room, piece), 1), HTTP_PAYLOAD, &got);
		CHECK(got <= room);
		ret_outcome->bytes += got;
	} while (!ret_outcome->err && got);
	ret_outcome->left = feed.rest.len + feed.in.end - feed.in.start;
	ret_outcome->trailers = chunked.trailer_bytes;
	/* A stream that has ended without error stays ended. */
	if (!ret_outcome->err)
		CHECK(!http_chunked_read(&chunked, &(char){0}, 1, HTTP_PAYLOAD, &got) && !got);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct outcome whole, bytewise;
	enum http_coding coding;

	if (!size)
		return 0;
	coding = (enum http_coding)(data[0] & 3);
	decode(coding, slice_of(data + 1, size - 1), SIZE_MAX, OUT_BYTES_MAX, &whole);
	decode(coding, slice_of(data + 1, size - 1), 1, 3, &bytewise);
	CHECK(whole.err == bytewise.err);
	if (whole.err)
		return 0;
	CHECK(whole.bytes == bytewise.bytes);
	CHECK(!memcmp(whole.out, bytewise.out, whole.bytes));
	CHECK(whole.left == bytewise.left);
	CHECK(whole.trailers == bytewise.trailers);
	return 0;
}
