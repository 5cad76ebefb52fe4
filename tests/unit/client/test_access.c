/* tests/unit/client/test_access.c: memory that is registered for one request: what the server may
 * do with it, and for how long. */
#include "../unit.h"

#include <stdlib.h>

#include "rdma/rdma.h"
#include "rig.h"

#define BODY_BYTES (1 * MIB)

static const uint8_t *watched;
static uint32_t access_seen, opened, closed;
static struct rp_mr *seen;

int __real_rp_mr_open(struct rp_pd *pd, const struct rp_mr_opts *opts, struct rp_mr **ret_mr);
int __wrap_rp_mr_open(struct rp_pd *pd, const struct rp_mr_opts *opts, struct rp_mr **ret_mr);
void __real_rp_mr_close(struct rp_mr *mr);
void __wrap_rp_mr_close(struct rp_mr *mr);

int __wrap_rp_mr_open(struct rp_pd *pd, const struct rp_mr_opts *opts, struct rp_mr **ret_mr)
{
	int ret = __real_rp_mr_open(pd, opts, ret_mr);

	if (!ret && watched && opts->addr == watched) {
		assert_int_equal(opts->bytes, BODY_BYTES);
		access_seen = opts->access;
		seen = *ret_mr;
		opened++;
	}
	return ret;
}

void __wrap_rp_mr_close(struct rp_mr *mr)
{
	closed += mr == seen;
	__real_rp_mr_close(mr);
}

static int setup(void **state)
{
	*state = rig_open(&(struct rig_opts){.credits = 4});
	return 0;
}

static int teardown(void **state)
{
	rig_close(*state);
	return 0;
}

static void test_body_is_only_read(void **state)
{
	struct neb_client *client = rig_client(*state, NEB_STRICT);
	uint8_t *data = malloc(2 * BODY_BYTES), *in = data + BODY_BYTES;
	struct neb_result result;

	rig_fill(data, BODY_BYTES, 7);
	watched = data;
	assert_int_equal(neb_put(client, "bucket", "object", data, BODY_BYTES, &result), 0);
	assert_int_equal(opened, 1);
	assert_int_equal(access_seen, RP_ACCESS_REMOTE_READ);
	assert_int_equal(closed, 1);
	watched = in;
	assert_int_equal(neb_get(client, "bucket", "object", in, BODY_BYTES, &result), 0);
	assert_int_equal(opened, 2);
	assert_true(access_seen & RP_ACCESS_REMOTE_WRITE);
	assert_int_equal(closed, 2);
	assert_memory_equal(data, in, BODY_BYTES);
	watched = NULL;
	neb_client_close(client);
	free(data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_body_is_only_read, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
