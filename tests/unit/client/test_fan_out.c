/* neb_get_fan_out and neb_fan_out_header: one object for several clients of one server, which is
 * the program itself, by RDMA and by HTTP. */
#include "../unit.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "program.h"
#include "rig.h"

#define BUCKET	"fan"
#define BYTES	(40 * MIB + 4097)
#define CLIENTS 3u

static struct neb_client *client_of(const struct program *child, enum neb_transport transport)
{
	const struct neb_options options = {.endpoints = child->both,
		.access_key = RIG_ACCESS_KEY,
		.secret_key = RIG_SECRET_KEY,
		.transport = transport,
		.request_timeout_ns = RIG_PATIENCE_NS,
		.pool_bytes = 16 * MIB};
	struct neb_client *client = NULL;

	assert_int_equal(neb_client_open(&options, &client), 0);
	return client;
}

static bool role_is(const struct neb_result *result, const char *role)
{
	const char *value;
	int len = neb_result_header(result, NEB_FAN_OUT_HEADER, &value);

	return len == (int)strlen(role) && memcmp(value, role, (size_t)len) == 0;
}

static void object_put(struct neb_client *client, const char *key, uint8_t *data, uint64_t seed)
{
	rig_fill(data, BYTES, seed);
	assert_int_equal(neb_put(client, BUCKET, key, data, BYTES, NULL), 0);
}

struct member {
	const struct program *child;
	enum neb_transport transport;
	uint8_t *data;
	struct neb_result result;
	int ret;
};

static void *member_main(void *arg)
{
	struct member *member = (struct member *)arg;
	const struct neb_fan_out fan_out = {.name = "job-1",
		.members = CLIENTS,
		.wait_ns = 60 * NS_PER_S,
		.bucket = BUCKET,
		.key = "weights",
		.data = member->data,
		.data_bytes = BYTES};
	struct neb_client *client = client_of(member->child, member->transport);

	member->ret = neb_get_fan_out(client, &fan_out, &member->result);
	neb_client_close(client);
	return NULL;
}

static void test_members(void **state)
{
	const struct program *child = *state;
	struct neb_client *client = client_of(child, NEB_STRICT);
	struct member members[CLIENTS] = {0};
	uint8_t *data = malloc(BYTES);
	pthread_t threads[CLIENTS];

	assert_int_equal(neb_bucket_create(client, BUCKET, NULL), 0);
	object_put(client, "weights", data, 1);
	for (uint32_t i = 0; i < CLIENTS; i++) {
		members[i].child = child;
		members[i].transport = i ? NEB_STRICT : NEB_HTTP;
		members[i].data = malloc(BYTES);
		assert_int_equal(pthread_create(&threads[i], NULL, member_main, &members[i]), 0);
	}
	for (uint32_t i = 0; i < CLIENTS; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(members[i].ret, 0);
		assert_int_equal(members[i].result.error, 0);
		assert_int_equal(members[i].result.bytes, BYTES);
		assert_int_equal(members[i].result.object_bytes, BYTES);
		assert_int_equal(members[i].result.transport, i ? NEB_RDMA : NEB_HTTP);
		assert_true(role_is(&members[i].result, "member; members=3"));
		assert_memory_equal(members[i].data, data, BYTES);
		free(members[i].data);
	}
	free(data);
	neb_client_close(client);
}

static void test_small_objects(void **state)
{
	static const size_t SIZES[] = {0, 1, 8 * MIB, 8 * MIB + 1};
	struct neb_client *client = client_of(*state, NEB_STRICT);
	uint8_t *out = malloc(BYTES), *in = malloc(BYTES);
	const struct neb_fan_out fan_out = {.name = "small",
		.members = 9,
		.bucket = BUCKET,
		.key = "small",
		.data = in,
		.data_bytes = BYTES};
	struct neb_result result;

	rig_fill(out, BYTES, 2);
	for (size_t i = 0; i < ARRAY_LEN(SIZES); i++) {
		assert_int_equal(neb_put(client, BUCKET, "small", out, SIZES[i], NULL), 0);
		memset(in, 0, BYTES);
		assert_int_equal(neb_get_fan_out(client, &fan_out, &result), 0);
		assert_int_equal(result.bytes, SIZES[i]);
		assert_memory_equal(in, out, SIZES[i]);
		assert_true(!SIZES[i] || role_is(&result, "small"));
	}
	free(out);
	free(in);
	neb_client_close(client);
}

static bool never_on(void *arg)
{
	++*(uint32_t *)arg;
	return false;
}

/* It waits for a second member when the program says that it is enough. */
static void test_ended(void **state)
{
	struct neb_client *client = client_of(*state, NEB_STRICT);
	uint8_t *data = malloc(BYTES);
	uint32_t asked_count = 0;
	const struct neb_fan_out fan_out = {.name = "ended",
		.members = 2,
		.wait_ns = NS_PER_S,
		.bucket = BUCKET,
		.key = "weights",
		.data = data,
		.data_bytes = BYTES,
		.keep_on = never_on,
		.arg = &asked_count};
	struct neb_result result;

	assert_int_equal(neb_get_fan_out(client, &fan_out, &result), -ECANCELED);
	assert_int_equal(result.error, -ECANCELED);
	assert_true(asked_count >= 1);
	assert_int_equal(neb_in_flight(client), 0);
	free(data);
	neb_client_close(client);
}

static void test_refused(void **state)
{
	static const struct neb_fan_out BAD[] = {{.members = 2}, {.name = "", .members = 2},
		{.name = "a/b", .members = 2}, {.name = "a;b", .members = 2}, {.name = "a"},
		{.name = "a", .members = 1025},
		{.name = "a", .members = 2, .wait_ns = 60 * NS_PER_S + 1},
		{.name = "01234567890123456789012345678901234567890123456789012345678901234",
			.members = 2}};
	struct neb_client *client = client_of(*state, NEB_STRICT);
	uint8_t *data = malloc(BYTES);
	struct neb_fan_out asked;
	char text[NEB_FAN_OUT_BYTES], drawn[2][NEB_FAN_OUT_BYTES];
	struct neb_result result;

	for (size_t i = 0; i < ARRAY_LEN(BAD); i++) {
		asked = BAD[i];
		asked.bucket = BUCKET;
		asked.key = "weights";
		asked.data = data;
		asked.data_bytes = BYTES;
		assert_int_equal(neb_fan_out_header(&asked, text), -EINVAL);
		assert_int_equal(neb_get_fan_out(client, &asked, &result), -EINVAL);
		assert_int_equal(result.error, -EINVAL);
	}
	asked.name = "one";
	asked.members = 1;
	asked.data_bytes = BYTES - 1;
	assert_int_equal(neb_get_fan_out(client, &asked, &result), -EMSGSIZE);
	assert_int_equal(result.error, -EMSGSIZE);
	asked.data_bytes = BYTES;
	assert_int_equal(neb_get_fan_out(client, &asked, NULL), 0);
	asked.key = "none";
	assert_int_equal(neb_get_fan_out(client, &asked, NULL), -ENOENT);
	asked.key = NULL;
	assert_int_equal(neb_get_fan_out(client, &asked, NULL), -EINVAL);
	neb_fan_out_header(
		&(struct neb_fan_out){
			.name = "job_2", .members = 7, .wait_ns = 1500 * NS_PER_MS, .member = 5},
		text);
	assert_string_equal(text, "job_2; members=7; wait=1500; member=5");
	for (uint32_t i = 0; i < 2; i++)
		assert_int_equal(
			neb_fan_out_header(
				&(struct neb_fan_out){.name = "a", .members = 1}, drawn[i]),
			0);
	assert_string_not_equal(drawn[0], drawn[1]);
	free(data);
	neb_client_close(client);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_members),
		cmocka_unit_test(test_small_objects),
		cmocka_unit_test(test_ended),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, program_open, program_close);
}
