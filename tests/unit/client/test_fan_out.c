/* neb_get_fan_out and neb_fan_out_header: one object for several clients of one server, which is
 * the program itself, by RDMA and by HTTP. */
#include "../unit.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "codec/cast.h"
#include "program.h"
#include "rdma/datagram.h"
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
	struct neb_multicast *multicast;
	const char *name;
	struct neb_result result;
	int ret;
};

static void *member_main(void *arg)
{
	struct member *member = (struct member *)arg;
	const struct neb_fan_out fan_out = {.name = member->name ? member->name : "job-1",
		.multicast = member->multicast,
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

/* A member that is too far for a newcomer keeps its group: the newcomer's first part says that it
 * is late, and its further parts, of which the server knows no group, do not replace that. */
static void test_late(void **state)
{
	struct neb_client *client = client_of(*state, NEB_HTTP);
	uint8_t *data = malloc(BYTES);
	char value[NEB_FAN_OUT_BYTES];
	struct neb_fan_out fan_out = {.name = "job-late",
		.members = 1,
		.bucket = BUCKET,
		.key = "weights",
		.data = data,
		.data_bytes = BYTES};
	const struct neb_header header = {NEB_FAN_OUT_HEADER, value};
	const struct neb_iov into = {.data = data, .bytes = BYTES};
	const struct neb_request request = {.op = NEB_GET_OBJECT,
		.bucket = BUCKET,
		.key = "weights",
		.headers = &header,
		.header_count = 1,
		.into = &into,
		.into_count = 1,
		.range_bytes = 36 * MIB,
		.want_headers = true};
	struct neb_result result;

	assert_int_equal(neb_fan_out_header(&fan_out, value), 0);
	assert_int_equal(neb_perform(client, &request, &result), 0);
	assert_true(role_is(&result, "member; members=1"));
	assert_int_equal(neb_get_fan_out(client, &fan_out, &result), 0);
	assert_true(role_is(&result, "late"));
	assert_int_equal(result.bytes, BYTES);
	free(data);
	neb_client_close(client);
}

/* ---- By multicast. ---- */

static void members_run(const struct program *child, struct member *members,
	struct neb_multicast *told, const char *name)
{
	pthread_t threads[CLIENTS];

	for (uint32_t i = 0; i < CLIENTS; i++) {
		uint8_t *data = members[i].data ? members[i].data : malloc(BYTES);

		memset(data, 0xee, BYTES);
		members[i] = (struct member){.child = child,
			.transport = i ? NEB_STRICT : NEB_HTTP,
			.data = data,
			.multicast = &told[i],
			.name = name};
		told[i] = (struct neb_multicast){.used = false};
		assert_int_equal(pthread_create(&threads[i], NULL, member_main, &members[i]), 0);
	}
	for (uint32_t i = 0; i < CLIENTS; i++)
		pthread_join(threads[i], NULL);
}

static void members_check(
	const struct member *members, const struct neb_multicast *told, const uint8_t *data)
{
	for (uint32_t i = 0; i < CLIENTS; i++) {
		assert_int_equal(members[i].ret, 0);
		assert_int_equal(members[i].result.bytes, BYTES);
		assert_memory_equal(members[i].data, data, BYTES);
		if (!i)
			continue;
		assert_true(told[i].used && told[i].verified);
		assert_true(told[i].bytes + told[i].bytes_read >= BYTES);
		assert_true(told[i].datagrams > 0);
	}
	/* By HTTP there is none. */
	assert_false(told[0].used);
	assert_non_null(strstr(told[0].why, "RDMA session"));
}

static void members_free(struct member *members)
{
	for (uint32_t i = 0; i < CLIENTS; i++)
		free(members[i].data);
}

static void test_multicast(void **state)
{
	struct neb_client *client = client_of(*state, NEB_STRICT);
	struct member members[CLIENTS] = {0};
	struct neb_multicast told[CLIENTS];
	uint8_t *data = malloc(BYTES);

	object_put(client, "weights", data, 3);
	members_run(*state, members, told, "cast");
	members_check(members, told, data);
	members_free(members);
	free(data);
	neb_client_close(client);
}

/* A neighbour in the group who knows all but the key: he sends each datagram again as he got it,
 * again with a changed byte, and one in the name of the next. */
struct neighbour {
	struct rp_member rp;
	_Atomic bool stop;
	pthread_t thread;
};

static void neighbour_send(struct neighbour *self, const uint8_t *datagram, uint32_t len)
{
	uint64_t slot = self->rp.slot_count;
	struct rp_wc wc;

	memcpy(rp_member_out(&self->rp, slot), datagram, len);
	assert_int_equal(rp_member_tell(&self->rp, slot, len), 0);
	while (rp_cq_poll(self->rp.cq, &wc, 1) <= 0 || wc.opcode == RP_RECV)
		;
}

static void *neighbour_main(void *arg)
{
	struct neighbour *self = (struct neighbour *)arg;
	uint8_t datagram[CAST_PAYLOAD_MAX + CAST_OVERHEAD];
	struct cast_head head;
	struct rp_wc wc;

	while (!atomic_load(&self->stop)) {
		uint32_t len;

		if (rp_cq_poll(self->rp.cq, &wc, 1) <= 0 || wc.opcode != RP_RECV)
			continue;
		len = wc.byte_len - RP_GRH_BYTES;
		memcpy(datagram, rp_member_in(&self->rp, wc.wr_id) + RP_GRH_BYTES, len);
		rp_member_post(&self->rp, wc.wr_id);
		neighbour_send(self, datagram, len);
		datagram[CAST_HEAD_BYTES + 5] ^= 1;
		neighbour_send(self, datagram, len);
		memcpy(&head, datagram, sizeof(head));
		for (uint32_t i = 0; i < 3; i++) {
			head.offset += head.bytes;
			memcpy(datagram, &head, sizeof(head));
			neighbour_send(self, datagram, len);
		}
	}
	return NULL;
}

static void neighbour_open(struct neighbour *self, const char *group)
{
	const struct rp_member_opts opts = {.device = {.device_name = "simulated", .gid_index = -1},
		.group = group,
		.slot_count = 256,
		.bytes = CAST_PAYLOAD_MAX + CAST_OVERHEAD};
	struct rp_cm_event event = {.type = RP_CM_ESTABLISHED};

	assert_int_equal(rp_member_open(&opts, &self->rp), 0);
	while (event.type != RP_CM_GROUP_JOINED)
		rp_cm_poll(self->rp.device, &event);
	atomic_store(&self->stop, false);
	assert_int_equal(pthread_create(&self->thread, NULL, neighbour_main, self), 0);
}

static void neighbour_close(struct neighbour *self)
{
	atomic_store(&self->stop, true);
	pthread_join(self->thread, NULL);
	rp_member_close(&self->rp);
}

static void test_neighbour(void **state)
{
	const struct program *child = *state;
	struct neb_client *client = client_of(child, NEB_STRICT);
	struct member members[CLIENTS] = {0};
	struct neb_multicast told[CLIENTS];
	struct neighbour neighbour;
	uint8_t *data = malloc(BYTES);
	uint64_t strange = 0, repeated = 0, until_ns = clock_now_ns() + RIG_PATIENCE_NS;
	char name[24];

	object_put(client, "weights", data, 4);
	neighbour_open(&neighbour, child->multicast);
	for (uint32_t i = 0; (!strange || !repeated) && clock_now_ns() < until_ns; i++) {
		snprintf(name, sizeof(name), "neighbour-%u", i);
		members_run(child, members, told, name);
		members_check(members, told, data);
		for (uint32_t m = 1; m < CLIENTS; m++) {
			strange += told[m].strange;
			repeated += told[m].repeated;
		}
	}
	assert_true(strange && repeated);
	neighbour_close(&neighbour);
	members_free(members);
	free(data);
	neb_client_close(client);
}

struct taken {
	const uint8_t *data;
	uint64_t bytes, end_at;
};

static int bytes_take(void *arg, uint64_t offset, const void *data, uint64_t bytes)
{
	struct taken *taken = (struct taken *)arg;

	assert_int_equal(offset, taken->bytes);
	assert_memory_equal(data, taken->data + offset, bytes);
	taken->bytes += bytes;
	return taken->end_at && taken->bytes >= taken->end_at ? -ENOSPC : 0;
}

/* In order, to a function, also small objects; and when the function has enough. */
static void test_taken(void **state)
{
	static const size_t SIZES[] = {1, 4032, 4033, 8 * MIB, BYTES};
	struct neb_client *client = client_of(*state, NEB_STRICT);
	struct neb_multicast told = {.only = true, .take = bytes_take};
	uint8_t *data = malloc(BYTES);
	struct taken taken;
	const struct neb_fan_out fan_out = {.name = "taken",
		.members = 1,
		.bucket = BUCKET,
		.key = "taken",
		.arg = &taken,
		.multicast = &told};
	struct neb_result result;

	rig_fill(data, BYTES, 5);
	for (size_t i = 0; i < ARRAY_LEN(SIZES); i++) {
		assert_int_equal(neb_put(client, BUCKET, "taken", data, SIZES[i], NULL), 0);
		taken = (struct taken){.data = data};
		assert_int_equal(neb_get_fan_out(client, &fan_out, &result), 0);
		assert_int_equal(taken.bytes, SIZES[i]);
		assert_int_equal(result.bytes, SIZES[i]);
	}
	taken = (struct taken){.data = data, .end_at = MIB};
	assert_int_equal(neb_get_fan_out(client, &fan_out, &result), -ENOSPC);
	assert_int_equal(neb_in_flight(client), 0);
	free(data);
	neb_client_close(client);
}

/* Without a session nothing is read. */
static void test_multicast_only(void **state)
{
	struct neb_client *client = client_of(*state, NEB_HTTP);
	struct neb_multicast told = {.only = true};
	uint8_t *data = calloc(1, BYTES);
	const struct neb_fan_out fan_out = {.name = "only",
		.members = 2,
		.bucket = BUCKET,
		.key = "weights",
		.data = data,
		.data_bytes = BYTES,
		.multicast = &told};

	assert_int_equal(neb_get_fan_out(client, &fan_out, NULL), -EOPNOTSUPP);
	assert_string_equal(told.why, "it needs an RDMA session");
	for (uint32_t i = 0; i < BYTES; i += 4096)
		assert_int_equal(data[i], 0);
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
		cmocka_unit_test(test_late),
		cmocka_unit_test(test_multicast),
		cmocka_unit_test(test_neighbour),
		cmocka_unit_test(test_taken),
		cmocka_unit_test(test_multicast_only),
		cmocka_unit_test(test_small_objects),
		cmocka_unit_test(test_ended),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, program_open, program_close);
}
