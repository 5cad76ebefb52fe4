/* tests/unit/client/test_bent.c: a server that proves itself and then sends answers that no server
 * should: the encoder of responses is wrapped, and changes one of them before it is signed. The
 * client gives up the session, and nothing that was not verified stays in its caller's memory. */
#include "../unit.h"

#include <errno.h>
#include <stdlib.h>

#include "codec/capsule.h"
#include "rig.h"

#define BODY_BYTES (600 * KIB)

/* Changes the part with that number, from 1 on, or the answer (0). */
typedef void bend_fn(struct capsule_response *response);
static struct {
	_Atomic(bend_fn *) bend;
	uint32_t at, parts;
	uint64_t told; /* by the part before */
} bender;

ptrdiff_t __real_capsule_response_encode(
	const struct capsule_response *response, void *buf, size_t buf_bytes);
ptrdiff_t __wrap_capsule_response_encode(
	const struct capsule_response *response, void *buf, size_t buf_bytes);

/* On the server's thread. */
ptrdiff_t __wrap_capsule_response_encode(
	const struct capsule_response *response, void *buf, size_t buf_bytes)
{
	struct capsule_response copy = *response;
	bool part = response->flags & CAPSULE_RESPONSE_MORE;
	bend_fn *bend = atomic_load(&bender.bend);

	bender.parts += part;
	if (bend && bender.at == (part ? bender.parts : 0)) {
		bend(&copy);
		atomic_store(&bender.bend, NULL); /* it is bent */
	}
	bender.told = part ? response->bytes_moved : 0;
	return __real_capsule_response_encode(&copy, buf, buf_bytes);
}

static void beyond_the_window(struct capsule_response *response)
{
	response->bytes_moved = BODY_BYTES + 1;
}

static void of_nothing(struct capsule_response *response)
{
	response->bytes_moved = 0;
}

static void told_twice(struct capsule_response *response)
{
	response->bytes_moved = bender.told;
}

static void backwards(struct capsule_response *response)
{
	response->bytes_moved = bender.told - 1;
}

static void of_an_error(struct capsule_response *response)
{
	response->status = 404;
}

static void of_another_call(struct capsule_response *response)
{
	response->request_id++;
}

static void more_follows(struct capsule_response *response)
{
	response->flags |= CAPSULE_RESPONSE_MORE;
}

static void less_than_told(struct capsule_response *response)
{
	response->bytes_moved = 1;
}

static void without_tag(struct capsule_response *response)
{
	response->flags &= (uint16_t)~CAPSULE_RESPONSE_TAG;
	response->payload_tag = SLICE_NONE;
}

static void another_tag(struct capsule_response *response)
{
	static uint8_t tag[CAPSULE_TAG_BYTES];

	response->payload_tag.data = (const char *)tag;
}

static const struct {
	const char *name;
	bool encrypted;
	uint32_t at;
	bend_fn *bend;
	int error;
} CASES[] = {
	{"a part beyond the window", true, 1, beyond_the_window, -EPROTO},
	{"a part of nothing", true, 1, of_nothing, -EPROTO},
	{"a part that was told", true, 2, told_twice, -EPROTO},
	{"a part before the last one", true, 2, backwards, -EPROTO},
	{"a part of an error", true, 2, of_an_error, -EPROTO},
	{"a part of another call", true, 1, of_another_call, -EPROTO},
	{"an end that is none", true, 0, more_follows, -ETIMEDOUT},
	{"an end before its parts", true, 0, less_than_told, -EPROTO},
	{"an end without a tag", true, 0, without_tag, -EPROTO},
	{"an end with another tag", true, 0, another_tag, -EPROTO},
	{"a part of a plain body", false, 0, more_follows, -EPROTO},
	{"a plain body beyond the window", false, 0, beyond_the_window, -EPROTO},
};

#define BLOCK_BYTES 64u

static bool has_plain(const uint8_t *back, const uint8_t *data)
{
	for (size_t at = 0; at + BLOCK_BYTES <= BODY_BYTES; at += BLOCK_BYTES)
		if (memcmp(back + at, data + at, BLOCK_BYTES) == 0)
			return true;
	return false;
}

/* Performs the request, whose answer is bent. A server that has not answered within the timeout is
 * asked again, with a longer one. */
static int perform_bent(struct rig *rig, struct neb_client *client, struct neb_request *request,
	uint32_t idx, struct neb_stats *ret_before)
{
	struct neb_result result;

	for (;; request->timeout_ns *= 2) {
		int ret;

		neb_client_stats(client, ret_before);
		bender.at = CASES[idx].at;
		bender.parts = 0;
		atomic_store(&bender.bend, CASES[idx].bend);
		ret = neb_perform(client, request, &result);
		if (!atomic_load(&bender.bend) || ret != -ETIMEDOUT ||
			request->timeout_ns >= RIG_PATIENCE_NS)
			return ret;
		/* Until then it may bend an answer that nobody awaits. */
		assert_true(rig_sessions_become(rig, 0));
	}
}

static void check_case(
	struct rig *rig, struct neb_client *client, const uint8_t *data, uint32_t idx)
{
	uint8_t *back = calloc(1, BODY_BYTES);
	struct neb_iov into = {back, BODY_BYTES};
	struct neb_request request = {.op = NEB_GET_OBJECT,
		.bucket = "bucket",
		.key = "key",
		.into = &into,
		.into_count = 1,
		.timeout_ns = CASES[idx].error == -ETIMEDOUT ? NS_PER_S : RIG_PATIENCE_NS};
	struct neb_stats before, after;
	struct neb_result result;
	int ret;

	assert_non_null(back);
	print_message("# %s\n", CASES[idx].name);
	ret = perform_bent(rig, client, &request, idx, &before);
	neb_client_stats(client, &after);
	assert_null(atomic_load(&bender.bend));
	assert_int_equal(after.sessions_lost, before.sessions_lost + 1);
	assert_int_equal(ret, CASES[idx].error);
	if (CASES[idx].encrypted)
		assert_false(has_plain(back, data));
	assert_int_equal(neb_get(client, "bucket", "key", back, BODY_BYTES, &result), 0);
	assert_memory_equal(back, data, BODY_BYTES);
	free(back);
}

static void check_all(bool encrypted)
{
	struct rig *rig = rig_open(&(struct rig_opts){.encrypted = encrypted});
	struct neb_client *client = rig_client(rig, NEB_STRICT);
	uint8_t *data = malloc(BODY_BYTES);

	assert_non_null(data);
	rig_fill(data, BODY_BYTES, 3);
	assert_int_equal(neb_put(client, "bucket", "key", data, BODY_BYTES, NULL), 0);
	for (uint32_t i = 0; i < ARRAY_LEN(CASES); i++)
		if (CASES[i].encrypted == encrypted)
			check_case(rig, client, data, i);
	free(data);
	neb_client_close(client);
	rig_close(rig);
}

static void test_encrypted(void **state)
{
	(void)state;
	check_all(true);
}

static void test_plain(void **state)
{
	(void)state;
	check_all(false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_encrypted),
		cmocka_unit_test(test_plain),
	};

	return cmocka_run_group_tests_name("bent", tests, NULL, NULL);
}
