#include "../own.h"
#include "../unit.h"

#include <errno.h>
#include <nebulaio/region.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* libnebulaio-region's unreliable connections, its groups and its raw queue pairs, as a program
 * outside the project uses them. */

#define PATIENCE_NS 120000000000ull
#define AGAIN_NS    1000000000ull
#define MESSAGES    8u

static struct neb_region *region_new(void)
{
	const struct neb_region_options options = {.name = "unreliable", .bytes = 16 << 20};
	struct neb_region *region;

	if (neb_region_create(&options, &region) || neb_attach_rdma(region, "simulated"))
		return NULL;
	return region;
}

static struct neb_done reap(struct neb_region *region)
{
	struct neb_done done;

	assert_int_equal(neb_work_reap(region, &done, 1, PATIENCE_NS), 1);
	return done;
}

static void send(struct neb_region *region, uint16_t target, const void *data, uint32_t bytes)
{
	struct neb_work work = {.op = NEB_SEND, .target = target, .bytes = bytes};

	assert_int_equal(neb_span_lease(region, 4096, &work.span), 0);
	memcpy(work.span.data, data, bytes);
	assert_int_equal(neb_work_submit(region, &work), 0);
}

/* ---- Connections. ---- */

/* The listening end: refuses one peer of the other type, takes one of its own, and expects numbered
 * messages, of which some may be lost, and then the last. Its exit code names the failure. */
static int listening(int port_fd)
{
	struct neb_region *region = region_new();
	struct neb_rdma_options options = {.type = NEB_UC,
		.receives = MESSAGES + 1,
		.receive_bytes = 4096,
		.timeout_ns = PATIENCE_NS};
	uint32_t seen = 0;
	uint16_t port = 0, qp;
	struct neb_done done;

	if (!region || neb_rdma_listen(region, "127.0.0.1", &port) ||
		write(port_fd, &port, sizeof(port)) != sizeof(port))
		return 1;
	if (neb_rdma_accept(region, &options, &qp) == 0)
		return 2;
	if (neb_rdma_accept(region, &options, &qp))
		return 3;
	do {
		if (neb_work_reap(region, &done, 1, PATIENCE_NS) != 1)
			return 4;
		if (done.result != -ECANCELED) { /* receives for the peer that was refused */
			if (done.result != 100 || *(char *)done.span.data != 'u')
				return 5;
			seen++;
		}
		neb_span_give(region, &done.span);
	} while (done.imm != MESSAGES);
	neb_region_destroy(region);
	return seen <= MESSAGES ? 0 : 6;
}

static void unreliable_connections(void **state)
{
	struct neb_rdma_options options = {.timeout_ns = PATIENCE_NS};
	struct neb_work work = {.op = NEB_RDMA_READ};
	struct neb_region *region;
	int ends[2], status;
	uint16_t port = 0, qp;
	char text[100];
	pid_t child;

	(void)state;
	assert_int_equal(pipe(ends), 0);
	child = fork();
	if (child == 0)
		_exit(listening(ends[1]));
	assert_int_equal(read(ends[0], &port, sizeof(port)), sizeof(port));
	region = region_new();
	assert_non_null(region);
	assert_int_equal(neb_rdma_connect(region, "127.0.0.1", port, &options, &qp), -ECONNREFUSED);
	options.type = NEB_UC;
	assert_int_equal(neb_rdma_connect(region, "127.0.0.1", port, &options, &qp), 0);
	assert_true(neb_rdma_connected(region, qp));
	/* Nothing is acknowledged, so nothing can be read. */
	work.target = qp;
	assert_int_equal(neb_span_lease(region, 4096, &work.span), 0);
	assert_int_equal(neb_work_submit(region, &work), 0);
	assert_int_equal(reap(region).result, -EINVAL);
	memset(text, 'u', sizeof(text));
	for (uint32_t i = 1; i <= MESSAGES; i++) {
		struct neb_work message = {
			.op = NEB_SEND, .target = qp, .bytes = sizeof(text), .imm = i};

		assert_int_equal(neb_span_lease(region, 4096, &message.span), 0);
		memcpy(message.span.data, text, sizeof(text));
		assert_int_equal(neb_work_submit(region, &message), 0);
		assert_int_equal(reap(region).result, sizeof(text));
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(WEXITSTATUS(status), 0);
	neb_region_destroy(region);
	close(ends[0]);
	close(ends[1]);
}

/* ---- Groups. ---- */

static const struct neb_rdma_options listens = {
	.receives = 4, .receive_bytes = 4096, .timeout_ns = PATIENCE_NS};

static void groups(void **state)
{
	struct neb_region *one = region_new(), *two = region_new();
	char text[4096] = "to all of you", group[OWN_GROUP_BYTES];
	uint16_t from, to;
	struct neb_done done;

	(void)state;
	assert_non_null(one);
	assert_non_null(two);
	assert_in_range(neb_rdma_datagram_bytes(one), 256, 4096);
	assert_int_equal(neb_rdma_join(one, "192.0.2.1", &listens, &from), -EINVAL);
	assert_int_equal(neb_rdma_join(one, own_group(0, group), &listens, &from), 0);
	assert_int_equal(neb_rdma_join(two, group, &listens, &to), 0);
	send(one, from, text, 14);
	do
		done = reap(one);
	while (done.op != NEB_SEND);
	assert_int_equal(done.result, 14);
	done = reap(two);
	assert_int_equal(done.op, NEB_RECV);
	assert_int_equal(done.result, NEB_DATAGRAM_HEAD + 14);
	assert_string_equal((char *)done.span.data + NEB_DATAGRAM_HEAD, "to all of you");
	neb_rdma_disconnect(two, to);
	assert_false(neb_rdma_connected(two, to));
	neb_region_destroy(one);
	neb_region_destroy(two);
}

/* ---- Frames. ---- */

static void frames(void **state)
{
	struct neb_rdma_frames first = {.ether_type = 0}, second = {.ether_type = 0x88b5};
	uint8_t frame[64] = {[12] = 0x88, 0xb6};
	struct neb_region *one = region_new(), *two = region_new();
	uint16_t from, to;
	struct neb_done done;

	(void)state;
	own_mac(1, first.mac);
	own_mac(2, second.mac);
	memcpy(frame, second.mac, 6);
	memcpy(frame + 6, first.mac, 6);
	assert_non_null(one);
	assert_non_null(two);
	assert_int_equal(neb_rdma_raw(one, &first, &listens, &from), 0);
	assert_int_equal(neb_rdma_raw(two, &second, &listens, &to), 0);
	send(one, from, frame, sizeof(frame)); /* of a type that nobody takes */
	assert_int_equal(reap(one).result, sizeof(frame));
	frame[13] = 0xb5;
	frame[63] = 77;
	/* Again where it is lost: the frames of all others on the switch fill its queue, too. */
	do {
		send(one, from, frame, sizeof(frame));
		assert_int_equal(reap(one).result, sizeof(frame));
	} while (neb_work_reap(two, &done, 1, AGAIN_NS) == 0);
	assert_int_equal(done.op, NEB_RECV);
	assert_int_equal(done.result, sizeof(frame));
	assert_memory_equal(done.span.data, frame, sizeof(frame));
	neb_region_destroy(one);
	neb_region_destroy(two);
}

static void a_device_is_needed(void **state)
{
	const struct neb_region_options options = {.bytes = 16 << 20};
	const struct neb_rdma_frames all = {.everything = true};
	struct neb_region *region;
	uint16_t target;

	(void)state;
	assert_int_equal(neb_region_create(&options, &region), 0);
	assert_int_equal(neb_rdma_datagram_bytes(region), 0);
	assert_int_equal(neb_rdma_join(region, "239.7.7.7", &listens, &target), -ENODEV);
	assert_int_equal(neb_rdma_raw(region, &all, &listens, &target), -ENODEV);
	neb_region_destroy(region);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(unreliable_connections),
		cmocka_unit_test(groups),
		cmocka_unit_test(frames),
		cmocka_unit_test(a_device_is_needed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
