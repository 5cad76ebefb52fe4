#include "../unit.h"

#include <errno.h>
#include <nebulaio/region.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* libnebulaio-region as used by a program outside the project: its functions and its refusals. */

static struct neb_region *region_new(void)
{
	const struct neb_region_options options = {.name = "libtest", .bytes = 16 << 20};
	struct neb_region *region;

	assert_int_equal(neb_region_create(&options, &region), 0);
	return region;
}

static void spans_have_owners(void **state)
{
	struct neb_region *region = region_new();
	struct neb_span span, copy;
	struct neb_usage usage;

	(void)state;
	assert_int_equal(neb_span_lease(region, 0, &span), -EINVAL);
	assert_int_equal(neb_span_lease(region, NEB_SPAN_BYTES_MAX + 1, &span), -EINVAL);
	assert_int_equal(neb_span_lease(region, 5000, &span), 0);
	assert_int_equal(span.bytes, 8192);
	assert_int_equal(neb_span_owner(region, &span), NEB_APP);
	neb_region_usage(region, &usage);
	assert_int_equal(usage.frames_by_owner[NEB_APP], 2);
	assert_int_equal(neb_span_hand(region, &span, NEB_APP, NEB_DISK), -EINVAL);
	assert_int_equal(neb_span_hand(region, &span, NEB_NET, NEB_APP), -EPERM);
	assert_int_equal(neb_span_hand(region, &span, NEB_APP, NEB_NET), 0);
	assert_int_equal(neb_span_give(region, &span), -EPERM);
	assert_int_equal(neb_span_hand(region, &span, NEB_NET, NEB_APP), 0);
	copy = span;
	copy.frame++;
	assert_int_equal(neb_span_give(region, &copy), -ESTALE);
	copy = span;
	copy.frame = UINT32_MAX;
	assert_int_equal(neb_span_give(region, &copy), -ESTALE);
	copy = span;
	copy.bytes = 4096;
	assert_int_equal(neb_span_give(region, &copy), -ESTALE);
	assert_int_equal(neb_span_give(region, &span), 0);
	assert_int_equal(neb_span_give(region, &span), -ESTALE);
	assert_int_equal(neb_span_owner(region, &span), -ESTALE);
	neb_region_destroy(region);
	neb_region_destroy(NULL);
}

static struct neb_done reap(struct neb_region *region)
{
	struct neb_done done;

	assert_int_equal(neb_work_reap(region, &done, 1, 30000000000ull), 1);
	return done;
}

static void disks_keep_what_they_get(void **state)
{
	struct neb_region *region = region_new();
	char path[600];
	struct neb_span span, other;
	struct neb_work work;
	struct neb_done done;
	uint16_t disk = 0, second;

	(void)state;
	snprintf(path, sizeof(path), "%s/nebulaio-region-test-%d",
		getenv("TMPDIR") ? getenv("TMPDIR") : ".", getpid());
	assert_int_equal(neb_attach_disk(region, path, 0, 1 << 20, &disk), -ENOENT);
	assert_int_equal(neb_attach_disk(region, path, NEB_DISK_CREATE, 2 << 20, &disk), 0);
	assert_int_equal(neb_attach_disk(region, path, 0, 2 << 20, &second), -EBUSY);
	assert_int_equal(neb_disk_bytes(region, disk), 2 << 20);
	assert_in_range(neb_disk_align(region, disk), 1, 4096);
	assert_int_equal(neb_disk_bytes(region, 999), 0);
	assert_int_equal(neb_span_lease(region, 1 << 20, &span), 0);
	memset(span.data, 'x', span.bytes);
	work = (struct neb_work){
		.op = NEB_WRITE, .target = disk, .span = span, .offset = 4096, .user_data = 77};
	assert_int_equal(neb_work_submit(region, &work), 0);
	assert_int_equal(neb_work_submit(region, &work), -EPERM); /* the disk owns it */
	assert_int_equal(neb_span_give(region, &span), -EPERM);
	done = reap(region);
	assert_int_equal(done.result, 1 << 20);
	assert_int_equal(done.user_data, 77);
	assert_int_equal(done.op, NEB_WRITE);
	assert_ptr_equal(done.span.data, span.data);
	assert_int_equal(
		neb_work_submit(region, &(struct neb_work){.op = NEB_FLUSH, .target = disk}), 0);
	assert_int_equal(reap(region).result, 0);
	assert_int_equal(neb_span_lease(region, 8192, &other), 0);
	work = (struct neb_work){.op = NEB_READ,
		.target = disk,
		.span = other,
		.at = 4096,
		.bytes = 4096,
		.offset = 4096};
	assert_int_equal(neb_work_submit(region, &work), 0);
	assert_int_equal(reap(region).result, 4096);
	assert_memory_equal((char *)other.data + 4096, span.data, 4096);
	work.offset = 2 << 20; /* past its end */
	assert_int_equal(neb_work_submit(region, &work), 0);
	assert_int_equal(reap(region).result, -ERANGE);
	assert_int_equal(
		neb_work_reap(region, &done, 1, NEB_FOREVER), 0); /* nothing is in flight */
	assert_int_equal(neb_span_give(region, &span), 0);
	assert_int_equal(neb_span_give(region, &other), 0);
	assert_int_equal(neb_region_copied(region), 0);
	neb_region_destroy(region);
	unlink(path);
}

/* Fills the parts one after the other. */
static void fill(struct neb_span *span, char c)
{
	memset(span->data, c, span->bytes);
}

static void scatter_lists_on_disks(void **state)
{
	struct neb_region *region = region_new();
	struct neb_span span[4], whole;
	struct neb_work work;
	struct neb_done done;
	char path[600];
	uint16_t disk;

	(void)state;
	snprintf(path, sizeof(path), "%s/nebulaio-region-parts-%d",
		getenv("TMPDIR") ? getenv("TMPDIR") : ".", getpid());
	assert_int_equal(neb_attach_disk(region, path, NEB_DISK_CREATE, 1 << 20, &disk), 0);
	for (uint32_t i = 0; i < 4; i++) {
		assert_int_equal(neb_span_lease(region, 8192, &span[i]), 0);
		fill(&span[i], (char)('a' + i));
	}
	work = (struct neb_work){.op = NEB_WRITE,
		.target = disk,
		.span = span[0],
		.offset = 4096,
		.user_data = 5,
		.part_count = 3,
		.parts = {{.span = span[1], .at = 4096}, {.span = span[2], .bytes = 4096},
			{.span = span[3]}}};
	work.parts[2].span = span[1]; /* twice */
	assert_int_equal(neb_work_submit(region, &work), -EINVAL);
	work.parts[2].span = span[3];
	work.parts[1].at = 1;
	assert_int_equal(neb_work_submit(region, &work), -EINVAL);
	work.parts[1].at = 0;
	work.part_count = NEB_PARTS_MAX + 1;
	assert_int_equal(neb_work_submit(region, &work), -EINVAL);
	work.part_count = 3;
	assert_int_equal(neb_work_submit(region, &work), 0);
	assert_int_equal(neb_span_give(region, &span[2]), -EPERM);
	done = reap(region);
	assert_int_equal(done.result, 8192 + 4096 + 4096 + 8192);
	assert_int_equal(done.user_data, 5);
	assert_int_equal(done.part_count, 3);
	assert_ptr_equal(done.parts[1].data, span[2].data);
	assert_int_equal(neb_span_owner(region, &span[3]), NEB_APP);
	/* Read back as one span, and into parts, the last of which ends past the disk's end. */
	assert_int_equal(neb_span_lease(region, 6 * 4096, &whole), 0);
	work = (struct neb_work){.op = NEB_READ, .target = disk, .span = whole, .offset = 4096};
	assert_int_equal(neb_work_submit(region, &work), 0);
	assert_int_equal(reap(region).result, 6 * 4096);
	for (uint32_t i = 0; i < 6; i++)
		assert_int_equal(((char *)whole.data)[i * 4096 + 77], "aabcdd"[i]);
	work = (struct neb_work){.op = NEB_READ,
		.target = disk,
		.span = span[3],
		.offset = (1 << 20) - 8192,
		.part_count = 1,
		.parts = {{.span = span[0]}}};
	assert_int_equal(neb_work_submit(region, &work), 0);
	assert_int_equal(reap(region).result, -ERANGE);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(neb_span_give(region, &span[i]), 0);
	assert_int_equal(neb_span_give(region, &whole), 0);
	neb_region_destroy(region);
	unlink(path);
}

/* The other side of the next test: receives one message into two parts, and sends it back
 * unchanged. Its exit code names the failure. */
static int echo_parts(int port_fd)
{
	struct neb_region *region = region_new();
	struct neb_rdma_options options = {.timeout_ns = 120000000000ull};
	struct neb_work work = {.op = NEB_RECV, .part_count = 1};
	struct neb_part recv;
	struct neb_done done;
	uint16_t port = 0, qp;

	if (neb_attach_rdma(region, "simulated") || neb_rdma_listen(region, "127.0.0.1", &port) ||
		write(port_fd, &port, sizeof(port)) != sizeof(port) ||
		neb_rdma_accept(region, &options, &qp))
		return 1;
	work.target = qp;
	if (neb_span_lease(region, 4096, &work.span) ||
		neb_span_lease(region, 16384, &work.parts[0].span) ||
		neb_work_submit(region, &work) ||
		neb_work_reap(region, &done, 1, 120000000000ull) != 1)
		return 2;
	if (done.result != 3000 || done.part_count != 1 || done.parts[0].data == done.span.data)
		return 3;
	recv.span = done.parts[0];
	work = (struct neb_work){.op = NEB_SEND, .target = qp, .span = done.span, .bytes = 3000};
	/* The peer may have received it and be gone before its completion, so the result is not
	 * checked here. */
	if (neb_work_submit(region, &work) || neb_work_reap(region, &done, 1, 120000000000ull) != 1)
		return 4;
	neb_span_give(region, &work.span);
	neb_span_give(region, &recv.span);
	while (neb_rdma_connected(region, qp))
		neb_work_reap(region, &done, 1, 1000000);
	neb_region_destroy(region);
	return 0;
}

static void scatter_lists_over_rdma(void **state)
{
	struct neb_rdma_options options = {
		.receives = 1, .receive_bytes = 8192, .timeout_ns = 120000000000ull};
	struct neb_region *region;
	struct neb_span span[3];
	struct neb_work work = {.op = NEB_SEND, .part_count = 2};
	struct neb_done done, received = {.op = 0};
	bool sent = false;
	uint16_t port = 0;
	int ends[2], status;
	pid_t child;

	(void)state;
	assert_int_equal(pipe(ends), 0);
	child = fork();
	if (child == 0)
		_exit(echo_parts(ends[1]));
	assert_int_equal(read(ends[0], &port, sizeof(port)), sizeof(port));
	region = region_new();
	assert_int_equal(neb_attach_rdma(region, "simulated"), 0);
	assert_int_equal(neb_rdma_connect(region, "127.0.0.1", port, &options, &work.target), 0);
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(neb_span_lease(region, 4096, &span[i]), 0);
		fill(&span[i], (char)('x' + i));
	}
	work.span = span[0];
	work.bytes = 1000;
	work.parts[0] = (struct neb_part){.span = span[1], .at = 5, .bytes = 500};
	work.parts[1] = (struct neb_part){.span = span[2], .bytes = 1500};
	assert_int_equal(neb_work_submit(region, &work), 0);
	assert_int_equal(neb_span_give(region, &span[0]), -EPERM);
	while (!sent || !received.op) {
		done = reap(region);
		if (done.op == NEB_RECV)
			received = done;
		else
			sent = true;
	}
	assert_int_equal(received.result, 3000);
	assert_int_equal(((char *)received.span.data)[999], 'x');
	assert_int_equal(((char *)received.span.data)[1000], 'y');
	assert_int_equal(((char *)received.span.data)[1500], 'z');
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(neb_span_give(region, &span[i]), 0);
	assert_int_equal(neb_span_give(region, &received.span), 0);
	neb_rdma_disconnect(region, work.target);
	neb_region_destroy(region);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(WEXITSTATUS(status), 0);
	close(ends[0]);
	close(ends[1]);
}

static void work_is_checked(void **state)
{
	struct neb_region *region = region_new();
	struct neb_work work = {.op = NEB_WRITE, .target = 9};
	uint32_t rkey;
	uint16_t port = 0, target;
	struct neb_packet packet;

	(void)state;
	assert_int_equal(neb_span_lease(region, 4096, &work.span), 0);
	assert_int_equal(neb_work_submit(region, &work), -ENOENT);
	work.op = 99;
	assert_int_equal(neb_work_submit(region, &work), -EINVAL);
	assert_int_equal(neb_rdma_listen(region, "", &port), -ENODEV);
	assert_int_equal(neb_rdma_expose(region, &work.span, false, &rkey), -ENODEV);
	assert_int_equal(neb_attach_rdma(region, "none0"), -ENODEV);
	assert_int_equal(neb_xdp_receive(region, &packet, 1, 0), -ENODEV);
	assert_string_equal(neb_xdp_mode(region), "");
	assert_int_equal(neb_xdp_lost(region), 0);
	assert_int_equal(neb_xdp_target(region, &target), -ENODEV);
	assert_int_equal(neb_xdp_queue_target(region, UINT32_MAX, 0, &target), -ENODEV);
	assert_string_equal(neb_xdp_interface_mode(region, NEB_INTERFACES_MAX), "");
	assert_int_equal(neb_xdp_interface_lost(region, 0), 0);
	work.op = NEB_PACKET;
	assert_int_equal(neb_work_submit(region, &work), -ENOENT);
	assert_int_equal(neb_attach_rdma(region, "simulated"), 0);
	assert_int_equal(neb_attach_rdma(region, "simulated"), -EEXIST);
	assert_int_equal(neb_rdma_accept(region, &(struct neb_rdma_options){0}, &target), -EINVAL);
	assert_int_equal(
		neb_rdma_connect(region, "127.0.0.1", 1, &(struct neb_rdma_options){0}, &target),
		-ECONNREFUSED);
	assert_int_equal(neb_rdma_listen(region, "127.0.0.1", &port), 0);
	assert_int_not_equal(port, 0);
	assert_int_equal(neb_rdma_listen(region, "127.0.0.1", &port), -EEXIST);
	assert_int_equal(
		neb_rdma_accept(region, &(struct neb_rdma_options){.timeout_ns = 1000000}, &target),
		-ETIMEDOUT);
	assert_int_equal(neb_rdma_expose(region, &work.span, true, &rkey), 0);
	assert_int_equal(neb_rdma_conceal(region, rkey), 0);
	assert_int_equal(neb_rdma_conceal(region, rkey), -ENOENT);
	assert_false(neb_rdma_connected(region, 3));
	assert_int_equal(neb_span_give(region, &work.span), 0);
	neb_region_destroy(region);
}

static void a_region_has_bounds(void **state)
{
	const struct neb_region_options small = {.bytes = 4096},
					odd = {.bytes = 4 << 20, .ring_entries = 3};
	struct neb_region *region;

	(void)state;
	assert_int_equal(neb_region_create(&small, &region), -EINVAL);
	assert_int_equal(neb_region_create(&odd, &region), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(spans_have_owners),
		cmocka_unit_test(disks_keep_what_they_get),
		cmocka_unit_test(scatter_lists_on_disks),
		cmocka_unit_test(scatter_lists_over_rdma),
		cmocka_unit_test(work_is_checked),
		cmocka_unit_test(a_region_has_bounds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
