/* Tests of client/crypt.c: encrypted bodies that arrive in parts. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../../../client/session_priv.h"
#include "../counted.h"
#include "rig.h"

#define BODY_BYTES (100 * KIB)

struct parted {
	struct client_session *session;
	struct client_call *call;
	uint8_t *plain, *into;
	uint8_t tag[AEAD_TAG_BYTES];
};

/* A call whose sealed answer lies in three runs, one of them empty. */
static int setup(void **state)
{
	struct parted *parted = calloc(1, sizeof(*parted));
	uint8_t nonce[AEAD_NONCE_BYTES];
	struct aead_stream *stream;

	assert_non_null(parted);
	parted->session = calloc(1, sizeof(*parted->session));
	parted->call = calloc(1, sizeof(*parted->call));
	parted->plain = malloc(BODY_BYTES);
	parted->into = malloc(BODY_BYTES);
	assert_true(parted->session && parted->call && parted->plain && parted->into);
	for (size_t i = 0; i < BODY_BYTES; i++)
		parted->plain[i] = (uint8_t)(i * 7 + i / 251);
	memset(parted->session->payload_in, 0x5a, sizeof(parted->session->payload_in));
	parted->call->session = parted->session;
	parted->call->counter = 9;
	parted->call->into[0] = (struct neb_iov){parted->into, 1000};
	parted->call->into[1] = (struct neb_iov){parted->into, 0};
	parted->call->into[2] = (struct neb_iov){parted->into + 1000, BODY_BYTES - 1000};
	parted->call->into_count = 3;
	capsule_payload_nonce(9, nonce);
	assert_int_equal(aead_stream_open(parted->session->payload_in, nonce, true, &stream), 0);
	assert_int_equal(aead_stream_update(stream, parted->plain, parted->into, BODY_BYTES), 0);
	assert_int_equal(aead_stream_end(stream, parted->tag), 0);
	aead_stream_close(stream);
	*state = parted;
	return 0;
}

static int teardown(void **state)
{
	struct parted *parted = *state;

	assert_null(parted->call->opener);
	aead_stream_close(parted->session->spare_in);
	free(parted->into);
	free(parted->plain);
	free(parted->call);
	free(parted->session);
	free(parted);
	return 0;
}

static bool is_zero(const uint8_t *data, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		if (data[i])
			return false;
	return true;
}

static void test_parts(void **state)
{
	struct parted *parted = *state;
	static const uint64_t ends[] = {1, 999, 1000, 1001, 64 * KIB};
	uint8_t *behind = malloc(BODY_BYTES);

	assert_non_null(behind);
	memcpy(behind, parted->into, BODY_BYTES);
	for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
		assert_int_equal(client_part_open(parted->session, parted->call, ends[i]), 0);
		assert_memory_equal(parted->into, parted->plain, ends[i]);
		/* The bytes behind it, which may not be there yet, are not touched. */
		assert_memory_equal(parted->into + ends[i], behind + ends[i], BODY_BYTES - ends[i]);
	}
	assert_int_equal(client_answer_open(parted->session, parted->call, BODY_BYTES,
				 slice_of(parted->tag, sizeof(parted->tag))),
		0);
	assert_memory_equal(parted->into, parted->plain, BODY_BYTES);
	assert_null(parted->call->opener);
	free(behind);
}

/* Nothing that was not verified is left in the caller's memory. */
static void test_changed_on_the_way(void **state)
{
	struct parted *parted = *state;

	parted->into[80 * KIB] ^= 1;
	assert_int_equal(client_part_open(parted->session, parted->call, 64 * KIB), 0);
	assert_int_equal(client_answer_open(parted->session, parted->call, BODY_BYTES,
				 slice_of(parted->tag, sizeof(parted->tag))),
		-EBADMSG);
	client_opened_drop(parted->call);
	assert_true(is_zero(parted->into, BODY_BYTES));
}

static void test_ended_half_way(void **state)
{
	struct parted *parted = *state;
	struct slice tag = slice_of(parted->tag, sizeof(parted->tag));

	assert_int_equal(client_part_open(parted->session, parted->call, 5000), 0);
	/* An answer of fewer bytes than were told, and one without a tag. */
	assert_int_equal(client_answer_open(parted->session, parted->call, 4999, tag), -EBADMSG);
	assert_int_equal(client_answer_open(parted->session, parted->call, BODY_BYTES, SLICE_NONE),
		-EBADMSG);
	client_opened_drop(parted->call);
	assert_true(is_zero(parted->into, 5000));
}

/* A body that one message cannot hold is refused before memory is taken for it. */
static void test_too_large(void **state)
{
	struct parted *parted = *state;
	struct capsule_run run = {0};
	uint8_t tag[AEAD_TAG_BYTES];

	parted->call->body[0] = (struct neb_iov){parted->plain, AEAD_MESSAGE_BYTES_MAX + 1};
	parted->call->body_count = 1;
	parted->call->body_bytes = AEAD_MESSAGE_BYTES_MAX + 1;
	assert_int_equal(client_body_seal(parted->session, parted->call, &run, tag), -EFBIG);
	assert_null(parted->session->spare_out);
	assert_int_equal(run.bytes, 0);
}

static uint64_t parts_told(void)
{
	return counted("nebulaio_native_body_parts_total");
}

/* With a server: several calls at a time, of which one comes in parts, and calls that fail. */
static void test_over_a_session(void **state)
{
	static uint8_t data[700 * KIB + 1], back[3][sizeof(data)];
	struct rig *rig = rig_open(&(struct rig_opts){.encrypted = true});
	struct neb_client *client = rig_client(rig, NEB_STRICT);
	uint64_t told = parts_told();

	(void)state;
	rig_fill(data, sizeof(data), 4);
	assert_int_equal(neb_put(client, "bucket", "key", data, sizeof(data), NULL), 0);
	for (uint32_t turn = 0; turn < 4; turn++) {
		struct neb_request request = {
			.op = NEB_GET_OBJECT, .bucket = "bucket", .key = "key", .into_count = 1};
		struct neb_iov into[3];
		struct neb_result result;

		memset(back, 0, sizeof(back));
		for (uint32_t i = 0; i < 3; i++) {
			into[i] = (struct neb_iov){back[i], sizeof(back[i])};
			request.into = &into[i];
			assert_int_equal(neb_submit(client, &request, NULL), 0);
		}
		for (uint32_t i = 0; i < 3; i++) {
			assert_int_equal(neb_wait(client, &result, 1, 30 * NS_PER_S), 1);
			assert_int_equal(result.error, 0);
		}
		for (uint32_t i = 0; i < 3; i++)
			assert_memory_equal(back[i], data, sizeof(data));
		assert_int_equal(
			neb_get(client, "bucket", "none", back[0], sizeof(back[0]), NULL), -ENOENT);
	}
	assert_in_range(parts_told(), told + 4, told + 4 * 3 * 7);
	neb_client_close(client);
	rig_close(rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_parts, setup, teardown),
		cmocka_unit_test_setup_teardown(test_changed_on_the_way, setup, teardown),
		cmocka_unit_test_setup_teardown(test_ended_half_way, setup, teardown),
		cmocka_unit_test_setup_teardown(test_too_large, setup, teardown),
		cmocka_unit_test(test_over_a_session),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
