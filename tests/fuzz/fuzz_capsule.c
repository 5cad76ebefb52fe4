/* Fuzzes the messages of both ends of the native protocol: head, tag, each kind's content. A
 * message that decodes must encode to the same bytes. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "codec/capsule.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static uint8_t capsule[LIMIT_CAPSULE_BYTES_MAX] __attribute__((aligned(8)));
static uint8_t again[LIMIT_CAPSULE_BYTES_MAX] __attribute__((aligned(8)));

/* Reads every byte of a slice. */
static void touch(struct slice slice)
{
	static volatile uint8_t sum;

	for (size_t i = 0; i < slice.len; i++)
		sum = (uint8_t)(sum + (uint8_t)slice.data[i]);
}

static void touch_headers(struct slice headers, uint32_t count)
{
	struct capsule_header header;

	while (capsule_header_next(&headers, &header)) {
		touch(header.name);
		touch(header.value);
		count--;
	}
	CHECK(count == 0);
	CHECK(headers.len == 0);
}

static void try_request(size_t len)
{
	struct capsule_request request;
	ptrdiff_t bytes;

	if (capsule_request_decode(capsule, len, &request) != 0)
		return;
	touch(request.bucket);
	touch(request.key);
	touch(request.version_id);
	touch(request.query);
	touch(request.checksum);
	touch(request.body);
	touch_headers(request.headers, request.header_count);
	bytes = capsule_request_encode(&request, again, sizeof(again));
	CHECK(bytes == (ptrdiff_t)len);
	CHECK(memcmp(capsule + sizeof(struct capsule_head), again + sizeof(struct capsule_head),
		      len - sizeof(struct capsule_head) - CAPSULE_TAG_BYTES) == 0);
}

static void try_response(size_t len)
{
	struct capsule_response response;
	ptrdiff_t bytes;

	if (capsule_response_decode(capsule, len, &response) != 0)
		return;
	touch(response.etag);
	touch(response.code);
	touch(response.message);
	touch(response.body);
	touch_headers(response.headers, response.header_count);
	bytes = capsule_response_encode(&response, again, sizeof(again));
	CHECK(bytes == (ptrdiff_t)len);
	CHECK(memcmp(capsule + sizeof(struct capsule_head), again + sizeof(struct capsule_head),
		      len - sizeof(struct capsule_head) - CAPSULE_TAG_BYTES) == 0);
}

static void try_paths(size_t len)
{
	const struct capsule_address *addresses;
	uint32_t count;

	if (capsule_paths_decode(capsule, len, &addresses, &count) != 0)
		return;
	for (uint32_t i = 0; i < count; i++)
		(void)(capsule_address_is_host(&addresses[i]) &&
			capsule_address_is_loopback(&addresses[i]));
	CHECK(capsule_paths_encode(addresses, count, again) == len);
	CHECK(memcmp(capsule + sizeof(struct capsule_head), again + sizeof(struct capsule_head),
		      len - sizeof(struct capsule_head) - CAPSULE_TAG_BYTES) == 0);
}

static void try_setup(size_t len)
{
	struct slice access_key, code, message;
	uint16_t status;

	if (capsule_hello_decode(capsule, len, &access_key) == 0)
		touch(access_key);
	(void)capsule_challenge_decode(capsule, len);
	if (capsule_refuse_decode(capsule, len, &status, &code, &message) == 0) {
		touch(code);
		touch(message);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct capsule_cipher cipher = {.key = {1}};
	ptrdiff_t bytes;

	if (len > sizeof(capsule))
		return 0;
	memcpy(capsule, data, len);
	bytes = capsule_head_check(capsule, len, sizeof(capsule));
	CHECK(bytes <= (ptrdiff_t)len);
	if (bytes > 0)
		(void)capsule_unseal(&cipher, capsule, (size_t)bytes);
	/* As after a valid tag: tries all contents, whatever the head's kind. */
	try_setup(len);
	if (len < sizeof(struct capsule_head) + CAPSULE_TAG_BYTES)
		return 0;
	try_request(len);
	try_response(len);
	try_paths(len);
	return 0;
}
