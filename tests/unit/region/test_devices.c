/* The arenas can be registered with the kernel's interfaces unchanged: io_uring's fixed buffers,
 * AF_XDP's UMEM. */
#include "region_test.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <linux/if_xdp.h>
#include <sys/resource.h>
#include <sys/socket.h>

static void raise_memlock(void)
{
	const struct rlimit all = {.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};

	/* Works for root; for others, the registration reports the reason of the refusal. */
	if (setrlimit(RLIMIT_MEMLOCK, &all) != 0)
		print_message("the locked-memory limit stays: %s\n", strerror(errno));
}

static int fixed_io(struct io_uring *uring, bool write, int fd, struct region_span span)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(uring);
	struct io_uring_cqe *cqe;
	int result;

	assert_non_null(sqe);
	if (write)
		io_uring_prep_write_fixed(sqe, fd, span.data, region_span_bytes(span), 0, 0);
	else
		io_uring_prep_read_fixed(sqe, fd, span.data, region_span_bytes(span), 0, 0);
	assert_int_equal(io_uring_submit(uring), 1);
	assert_int_equal(io_uring_wait_cqe(uring, &cqe), 0);
	result = cqe->res;
	io_uring_cqe_seen(uring, cqe);
	return result;
}

static void test_io_uring_fixed_buffers(void **state)
{
	char path[] = "/tmp/region-fixed-XXXXXX";
	struct region *region = region_test_open(4 * MIB);
	struct region_arena arena = region_arena(region, 0);
	const struct iovec iov = {.iov_base = arena.base, .iov_len = arena.bytes};
	struct region_span from, to;
	struct io_uring uring;
	struct prng prng;
	int fd = mkstemp(path);
	int ret;

	(void)state;
	raise_memlock();
	assert_true(fd >= 0);
	unlink(path);
	ret = io_uring_queue_init(4, &uring, 0);
	if (ret == 0) {
		ret = io_uring_register_buffers(&uring, &iov, 1);
		if (ret != 0)
			io_uring_queue_exit(&uring);
	}
	if (ret == -ENOMEM || ret == -EPERM || ret == -ENOSYS) {
		print_message("skipped: io_uring or its fixed buffers: %s\n", strerror(-ret));
		close(fd);
		region_close(region);
		skip();
	}
	assert_int_equal(ret, 0);
	assert_int_equal(region_lease(region, 16, OWNER_DISK, &from), 0);
	assert_int_equal(region_lease(region, 16, OWNER_DISK, &to), 0);
	prng_seed(&prng, 3);
	prng_fill(&prng, from.data, region_span_bytes(from));
	memset(to.data, 0, region_span_bytes(to));
	assert_int_equal(fixed_io(&uring, true, fd, from), region_span_bytes(from));
	assert_int_equal(fixed_io(&uring, false, fd, to), region_span_bytes(to));
	assert_memory_equal(from.data, to.data, region_span_bytes(from));
	region_give(region, from, OWNER_DISK);
	region_give(region, to, OWNER_DISK);
	io_uring_queue_exit(&uring);
	close(fd);
	region_close(region);
}

static void test_af_xdp_umem(void **state)
{
	struct region *region = region_test_open(4 * MIB);
	struct region_arena arena = region_arena(region, 0);
	const struct xdp_umem_reg reg = {
		.addr = (uintptr_t)arena.base, .len = arena.bytes, .chunk_size = FRAME_BYTES};
	const int entries = 64;
	int fd = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);

	(void)state;
	raise_memlock();
	if (fd < 0 && (errno == EPERM || errno == EAFNOSUPPORT)) {
		print_message("skipped: AF_XDP sockets: %s\n", strerror(errno));
		region_close(region);
		skip();
	}
	assert_true(fd >= 0);
	if (setsockopt(fd, SOL_XDP, XDP_UMEM_REG, &reg, sizeof(reg)) != 0) {
		if (errno != ENOBUFS && errno != EPERM)
			fail_msg("XDP_UMEM_REG: %s", strerror(errno));
		print_message("skipped: registering a UMEM: %s\n", strerror(errno));
		close(fd);
		region_close(region);
		skip();
	}
	/* The rings of a UMEM exist only after the UMEM is registered. */
	assert_int_equal(setsockopt(fd, SOL_XDP, XDP_UMEM_FILL_RING, &entries, sizeof(entries)), 0);
	assert_int_equal(
		setsockopt(fd, SOL_XDP, XDP_UMEM_COMPLETION_RING, &entries, sizeof(entries)), 0);
	close(fd);
	region_close(region);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_io_uring_fixed_buffers),
		cmocka_unit_test(test_af_xdp_umem),
	};

	return cmocka_run_group_tests_name("devices", tests, NULL, NULL);
}
