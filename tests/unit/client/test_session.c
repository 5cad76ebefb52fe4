/* Round trips between libnebulaio and the native front, by simulated RDMA. */
#include "../unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "rig.h"

static int setup(void **state)
{
	*state = rig_open(NULL);
	return 0;
}

static int teardown(void **state)
{
	rig_close(*state);
	return 0;
}

static void test_ping(void **state)
{
	struct neb_client *client = rig_client(*state, NEB_STRICT);
	struct neb_result result;

	assert_int_equal(neb_ping(client, &result), 0);
	assert_int_equal(result.status, 200);
	assert_int_equal(result.transport, NEB_RDMA);
	assert_int_equal(strlen(result.request_id), 16);
	neb_client_close(client);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_ping, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
