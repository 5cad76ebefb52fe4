/* tests/unit/rados/test_missing.c: a program that was built without librados refuses its volumes,
 * and only those. */
#include "../unit.h"

#include <errno.h>

#include "disk/disk.h"
#include "rados/rados.h"

static void test_refuses(void **state)
{
	const struct rv_opts opts = {.conf_file = "", .user = ""};
	const struct disk_opts disk_opts = {.path = "rados://pool/name", .create = true};
	const struct disk_opts other = {.path = "other://pool/name", .create = true};
	struct disk *disk;
	struct rv *rv;

	(void)state;
	assert_int_equal(rv_open(&opts, &rv), 0);
	assert_int_equal(disk_open(&disk_opts, &disk), -EOPNOTSUPP);
	assert_int_equal(disk_open(&other, &disk), -EINVAL);
	rv_close(rv);
	/* No driver is left. */
	assert_int_equal(disk_open(&disk_opts, &disk), -EINVAL);
	rv_close(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refuses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
