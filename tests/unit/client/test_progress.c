/* Tests of client/progress.c: waits that sleep. */
#include "../unit.h"

#include <errno.h>
#include <unistd.h>

#include "../../../client/session_priv.h"
#include "rdma/provider/handles.h"
#include "rig.h"

/* Descriptors of a device that is gone report an error for ever: each ends one sleep, and not
 * all. */
static void test_a_lost_device_ends_one_sleep(void **state)
{
	static uint8_t memory[1000];
	struct neb_iov into = {memory, sizeof(memory)};
	struct neb_request get = {.op = NEB_GET_OBJECT,
		.bucket = "bucket",
		.key = "held-5",
		.into = &into,
		.into_count = 1};
	struct rig *rig = rig_open(&(struct rig_opts){0});
	struct neb_client *client = rig_client(rig, NEB_STRICT);
	struct neb_stats before, after;
	struct neb_result result;
	int ends[2], kept;

	(void)state;
	assert_int_equal(neb_put(client, "bucket", "held-5", into.data, 1000, NULL), 0);
	assert_int_equal(neb_submit(client, &get, NULL), 0);
	assert_int_equal(neb_ping(client, NULL), 0);
	assert_int_equal(pipe(ends), 0);
	close(ends[0]);
	kept = client->devices[0].cq->fd;
	client->devices[0].cq->fd = ends[1];
	neb_client_stats(client, &before);
	assert_int_equal(neb_wait(client, &result, 1, 200 * NS_PER_MS), -ETIMEDOUT);
	neb_client_stats(client, &after);
	rig_release_held(rig);
	/* Completions are still found. */
	assert_int_equal(neb_wait(client, &result, 1, RIG_PATIENCE_NS), 1);
	assert_int_equal(result.error, 0);
	client->devices[0].cq->fd = kept;
	close(ends[1]);
	neb_client_close(client);
	rig_close(rig);
	/* Each lasts 20 ms. */
	assert_in_range(after.sleeps - before.sleeps, 1, 12);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_lost_device_ends_one_sleep),
	};

	return cmocka_run_group_tests_name("client_progress", tests, NULL, NULL);
}
