/* tests/unit/rdma/test_verbs_load.c: the RDMA libraries, loaded at run time: where they are, and on
 * a host without them. */
#include "tests/unit/unit.h"

#include <dlfcn.h>
#include <errno.h>
#include <rdma/rdma_cma.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rdma/rdma.h"

/* Libraries whose name begins so do not exist. */
static const char *absent;

void *__real_dlopen(const char *name, int flags);
void *__wrap_dlopen(const char *name, int flags);
void *__wrap_dlopen(const char *name, int flags)
{
	if (absent && !strncmp(name, absent, strlen(absent)))
		name = "libdoesnotexist.so.1";
	return __real_dlopen(name, flags);
}

/* Each case is a process of its own, because the libraries are loaded once. */
static void in_child(const char *missing, bool (*holds)(void))
{
	int status;
	pid_t child = fork();

	assert_true(child >= 0);
	if (child == 0) {
		absent = missing;
		_exit(holds() ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

static bool works(void)
{
	return !rp_lacking() && !strcmp(ibv_wc_status_str(IBV_WC_SUCCESS), "success") &&
	       !strcmp(rdma_event_str(RDMA_CM_EVENT_ESTABLISHED), "RDMA_CM_EVENT_ESTABLISHED");
}

static bool refuses(void)
{
	struct rp_open_opts opts = {.device_name = "mlx5_0"};
	struct rp_device *device;
	struct rdma_cm_id *id;
	int count = 0;

	errno = 0;
	return !ibv_get_device_list(&count) && errno == ENOSYS && count == 0 &&
	       rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) == -1 && errno == ENOSYS &&
	       !rdma_create_event_channel() && ibv_destroy_qp(NULL) == ENOSYS &&
	       !strcmp(ibv_wc_status_str(IBV_WC_SUCCESS), "?") &&
	       strstr(rp_lacking(), "libdoesnotexist.so.1") && rp_open(&opts, &device) == -ENODEV;
}

static bool simulated_opens(void)
{
	struct rp_open_opts opts = {.device_name = "simulated"};
	struct rp_device *device = NULL;
	bool well = rp_open(&opts, &device) == 0;

	rp_close(device);
	return well;
}

static bool lacks_the_manager(void)
{
	return rp_lacking() && !rdma_create_event_channel() &&
	       !strcmp(ibv_wc_status_str(IBV_WC_SUCCESS), "success");
}

static bool lacks_a_driver(void)
{
	return !rp_lacking() && works();
}

static void test_there(void **state)
{
	(void)state;
	in_child(NULL, works);
}

static void test_absent(void **state)
{
	(void)state;
	in_child("lib", refuses);
	in_child("lib", simulated_opens);
}

static void test_some_absent(void **state)
{
	(void)state;
	in_child("librdmacm", lacks_the_manager);
	in_child("libmlx5", lacks_a_driver);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_there),
		cmocka_unit_test(test_absent),
		cmocka_unit_test(test_some_absent),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
