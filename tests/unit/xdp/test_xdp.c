/* tests/unit/xdp/test_xdp.c: a port on one end of a veth pair in a network namespace of its own,
 * raw packets from and to the other end. Skipped where namespaces or XDP are not permitted. */
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "xdp/xdp.h"

#define REGION_BYTES (16 * MIB)
#define ENTRIES	     1024u
#define WAIT_NS	     (60 * NS_PER_S)
#define PORT_MATCHED 9999
#define PORT_OTHER   7777
#define UDP_OFFSET   42u

static const char *refusal; /* why everything is skipped */

struct setting {
	struct region *region;
	struct reactor *reactor;
	struct xp_port *port;
	int wire; /* raw socket on the other end */
};

static int command(const char *text)
{
	return system(text);
}

static int group_setup(void **state)
{
	(void)state;
	log_set_level(LOG_ERROR);
	if (unshare(CLONE_NEWNET))
		refusal = "no network namespace of our own: run as root";
	/* So that only this test sends packets. */
	else if (command("echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6"))
		refusal = "no IPv6 to turn off";
	else if (command("ip link add xdp0 type veth peer name xdp1") ||
		 command("ip link set lo up") || command("ip link set xdp0 up") ||
		 command("ip link set xdp1 up"))
		refusal = "no veth pair";
	if (refusal)
		print_message("# skipped: %s\n", refusal);
	return 0;
}

static int wire_open(void)
{
	struct sockaddr_ll at = {.sll_family = AF_PACKET,
		.sll_protocol = htons(ETH_P_ALL),
		.sll_ifindex = (int)if_nametoindex("xdp1")};
	int fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, htons(ETH_P_ALL));
	const int buffer_bytes = 8 << 20;

	assert_true(fd >= 0);
	assert_int_equal(
		setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer_bytes, sizeof(buffer_bytes)), 0);
	assert_int_equal(bind(fd, (const struct sockaddr *)&at, sizeof(at)), 0);
	return fd;
}

static int setup(void **state)
{
	const struct region_opts region_opts = {.bytes = REGION_BYTES, .core_count = 1};
	const struct reactor_opts reactor_opts = {.cpu = -1};
	const struct xp_opts opts = {
		.interface = "xdp0", .ring_entries = ENTRIES, .mode_best = XP_ZEROCOPY};
	struct setting *setting = calloc(1, sizeof(*setting));
	int ret;

	*state = setting;
	if (refusal)
		return 0;
	assert_int_equal(region_open(&region_opts, &setting->region), 0);
	assert_int_equal(reactor_open(&reactor_opts, &setting->reactor), 0);
	ret = xp_open(setting->region, &opts, &setting->port);
	if (ret == -EPERM || ret == -EOPNOTSUPP) {
		refusal = "the kernel does not permit AF_XDP here";
		print_message("# skipped: %s\n", refusal);
		return 0;
	}
	assert_int_equal(ret, 0);
	setting->wire = wire_open();
	return 0;
}

static int teardown(void **state)
{
	struct setting *setting = *state;

	if (setting->port) {
		struct region_usage usage;

		xp_close(setting->port);
		region_usage(setting->region, &usage);
		assert_int_equal(usage.frames_by_owner[OWNER_XDP], 0);
		assert_int_equal(usage.frames_by_owner[OWNER_APP], 0);
		close(setting->wire);
	}
	reactor_close(setting->reactor);
	region_close(setting->region);
	free(setting);
	return 0;
}

#define NEEDS_XDP()             \
	do {                    \
		if (refusal)    \
			skip(); \
	} while (0)

/* Builds an untagged IPv4 UDP packet whose number determines its payload; returns its length. */
static uint32_t packet_build(
	uint8_t *packet, uint16_t port, uint32_t number, uint32_t payload_bytes)
{
	static const uint8_t HEAD[UDP_OFFSET] = {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0,
		0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1, 0x12, 0x34};

	memcpy(packet, HEAD, sizeof(HEAD));
	packet[16] = (uint8_t)((payload_bytes + 28) >> 8);
	packet[17] = (uint8_t)(payload_bytes + 28);
	packet[36] = (uint8_t)(port >> 8);
	packet[37] = (uint8_t)port;
	packet[38] = (uint8_t)((payload_bytes + 8) >> 8);
	packet[39] = (uint8_t)(payload_bytes + 8);
	for (uint32_t i = 0; i < payload_bytes; i++)
		packet[UDP_OFFSET + i] = (uint8_t)(number * 31 + i);
	return UDP_OFFSET + payload_bytes;
}

static void packet_send(const struct setting *setting, uint16_t port, uint32_t number, uint32_t len)
{
	uint8_t packet[2048];
	uint32_t bytes = packet_build(packet, port, number, len);

	assert_int_equal(send(setting->wire, packet, bytes, 0), bytes);
}

static struct xp_rule rule_udp(enum filter_action action, uint16_t port)
{
	return (struct xp_rule){
		.action = action, .protocol = IPPROTO_UDP, .port_min = port, .port_max = port};
}

struct waiting {
	struct setting *setting;
	uint64_t wait_ns;
	int result;
	bool done;
};

static void wait_fiber(void *arg)
{
	struct waiting *waiting = arg;

	waiting->result = xp_wait(waiting->setting->port, waiting->setting->reactor,
		clock_now_ns() + waiting->wait_ns);
	waiting->done = true;
}

/* Waits like a fiber; the reactor sleeps meanwhile. */
static int port_wait(struct setting *setting, uint64_t wait_ns)
{
	struct waiting waiting = {.setting = setting, .wait_ns = wait_ns};

	assert_int_equal(fiber_spawn(setting->reactor, "wait", wait_fiber, &waiting), 0);
	while (!waiting.done)
		reactor_turn_wait(setting->reactor, DEADLINE_NONE);
	return waiting.result;
}

static void packet_check(const struct xp_packet *packet, uint32_t number, uint32_t len)
{
	uint8_t expected[2048];

	assert_int_equal(packet->bytes, packet_build(expected, PORT_MATCHED, number, len));
	assert_memory_equal(packet->data, expected, packet->bytes);
	assert_false(packet->more);
	assert_int_equal(packet->data + UDP_OFFSET - packet->span.data, XP_PAYLOAD_OFFSET);
	assert_true(clock_now_ns() - packet->received_ns < WAIT_NS);
}

static void test_receive(void **state)
{
	struct setting *setting = *state;
	struct xp_rule rule = rule_udp(FILTER_REDIRECT, PORT_MATCHED);
	struct xp_packet packets[32];
	struct xp_stats stats;
	struct filter_count count;
	const uint32_t total = 5 * ENTRIES; /* several times round */
	uint32_t got = 0, sent = 0;

	NEEDS_XDP();
	assert_int_equal(xp_rules_set(setting->port, &rule, 1), 0);
	while (got < total) {
		uint32_t n;

		for (; sent < total && sent - got < ENTRIES / 2; sent++)
			packet_send(setting, PORT_MATCHED, sent, 22 + sent % 1451);
		assert_int_equal(port_wait(setting, WAIT_NS), 0);
		n = xp_receive(xp_queue(setting->port, 0), packets, ARRAY_LEN(packets));
		for (uint32_t i = 0; i < n; i++, got++) {
			packet_check(&packets[i], got, 22 + got % 1451);
			if (got % 3)
				xp_recycle(xp_queue(setting->port, 0), packets[i].span);
			else
				region_give(setting->region, packets[i].span, OWNER_APP);
		}
	}
	xp_stats(setting->port, &stats);
	assert_int_equal(stats.received, total);
	assert_int_equal(stats.dropped + stats.ring_full + stats.invalid_rx, 0);
	assert_int_equal(stats.unmarked, 0);
	assert_int_equal(xp_rule_count(setting->port, 0, &count), 0);
	assert_int_equal(count.packets, total);
	assert_int_equal(count.bytes, stats.received_bytes);
	assert_true(xp_mode(setting->port) == XP_NATIVE || xp_mode(setting->port) == XP_GENERIC);
	assert_int_equal(stats.stamped, 0); /* a veth has no clock */
	print_message("# %s, packets of several frames: %s, the driver is asked for times: %s\n",
		xp_mode_name(xp_mode(setting->port)), xp_multi_buffer(setting->port) ? "yes" : "no",
		xp_asks_hardware_time(setting->port) ? "yes" : "no");
}

/* Sends one packet to each of two ports and returns the number that the socket receives: at least
 * those expected, which the kernel may handle late, and any others that come soon. */
static uint32_t probe(struct setting *setting, uint32_t expected)
{
	struct xp_packet packets[4];
	uint32_t count = 0;

	packet_send(setting, PORT_MATCHED, 1, 64);
	packet_send(setting, PORT_OTHER, 1, 64);
	while (port_wait(setting, count < expected ? WAIT_NS : 200 * NS_PER_MS) == 0) {
		uint32_t n = xp_receive(xp_queue(setting->port, 0), packets, ARRAY_LEN(packets));

		for (uint32_t i = 0; i < n; i++)
			region_give(setting->region, packets[i].span, OWNER_APP);
		count += n;
	}
	return count;
}

static void test_rules(void **state)
{
	struct setting *setting = *state;
	struct filter_count count;
	struct xp_rule rules[3];

	NEEDS_XDP();
	assert_int_equal(probe(setting, 0), 0); /* no rule: all to the kernel */
	rules[0] = rule_udp(FILTER_COUNT, PORT_MATCHED);
	rules[1] = (struct xp_rule){.action = FILTER_REDIRECT,
		.family = 4,
		.source = {10, 0, 0, 0},
		.source_bits = 30,
		.dest = {10, 0, 0, 1},
		.dest_bits = 32};
	assert_int_equal(xp_rules_set(setting->port, rules, 2), 0);
	assert_int_equal(probe(setting, 2), 2);
	assert_int_equal(xp_rule_count(setting->port, 0, &count), 0);
	assert_int_equal(count.packets, 1);
	assert_int_equal(xp_rule_count(setting->port, 1, &count), 0);
	assert_int_equal(count.packets, 2);
	assert_int_equal(xp_rule_count(setting->port, 2, &count), -ENOENT);

	rules[1].source_bits = 31; /* 10.0.0.0 and .1 only; the packets are from .2 */
	assert_int_equal(xp_rules_set(setting->port, rules, 2), 0);
	assert_int_equal(probe(setting, 0), 0);

	rules[0] = rule_udp(FILTER_DROP, PORT_MATCHED);
	rules[1] = rule_udp(FILTER_PASS, PORT_OTHER);
	rules[2] = (struct xp_rule){.action = FILTER_REDIRECT};
	assert_int_equal(xp_rules_set(setting->port, rules, 3), 0);
	assert_int_equal(probe(setting, 0), 0);
	rules[2].vlan_set = true;
	rules[2].vlan = FILTER_VLAN_NONE;
	assert_int_equal(xp_rules_set(setting->port, &rules[2], 1), 0);
	assert_int_equal(probe(setting, 2), 2);
	rules[2].vlan = 7;
	assert_int_equal(xp_rules_set(setting->port, &rules[2], 1), 0);
	assert_int_equal(probe(setting, 0), 0);
}

static void test_rules_refused(void **state)
{
	struct setting *setting = *state;
	struct xp_rule good = rule_udp(FILTER_REDIRECT, PORT_MATCHED);
	struct xp_rule bad[FILTER_RULES_MAX + 1] = {{.family = 5}};

	NEEDS_XDP();
	assert_int_equal(xp_rules_set(setting->port, &good, 1), 0);
	assert_int_equal(xp_rules_set(setting->port, bad, 1), -EINVAL);
	bad[0] = (struct xp_rule){.dest_bits = 8}; /* family missing */
	assert_int_equal(xp_rules_set(setting->port, bad, 1), -EINVAL);
	bad[0] = (struct xp_rule){.family = 4, .dest_bits = 33};
	assert_int_equal(xp_rules_set(setting->port, bad, 1), -EINVAL);
	bad[0] = (struct xp_rule){.port_min = 9, .port_max = 8};
	assert_int_equal(xp_rules_set(setting->port, bad, 1), -EINVAL);
	bad[0] = (struct xp_rule){.vlan_set = true, .vlan = 5000};
	assert_int_equal(xp_rules_set(setting->port, bad, 1), -EINVAL);
	bad[0] = (struct xp_rule){.action = (enum filter_action)9};
	assert_int_equal(xp_rules_set(setting->port, bad, 1), -EINVAL);
	bad[0] = good;
	assert_int_equal(xp_rules_set(setting->port, bad, FILTER_RULES_MAX + 1), -EINVAL);
	assert_int_equal(probe(setting, 1), 1); /* the good rule is still in place */
	assert_int_equal(xp_rules_set(setting->port, bad, FILTER_RULES_MAX), 0);
}

/* No packets are taken: those that do not fit are counted, and later ones arrive again. */
static void test_overrun(void **state)
{
	struct setting *setting = *state;
	struct xp_rule rule = rule_udp(FILTER_REDIRECT, PORT_MATCHED);
	struct xp_packet packets[32];
	struct xp_stats stats;
	uint64_t deadline_ns = clock_now_ns() + WAIT_NS;
	uint32_t got = 0;

	NEEDS_XDP();
	assert_int_equal(xp_rules_set(setting->port, &rule, 1), 0);
	for (uint32_t i = 0; i < ENTRIES + 100; i++)
		packet_send(setting, PORT_MATCHED, i, 100);
	/* Until the kernel has handled the last. */
	do
		xp_stats(setting->port, &stats);
	while (stats.dropped + stats.ring_full < 100 && clock_now_ns() < deadline_ns);
	while (port_wait(setting, 300 * NS_PER_MS) == 0) {
		uint32_t n = xp_receive(xp_queue(setting->port, 0), packets, ARRAY_LEN(packets));

		for (uint32_t i = 0; i < n; i++)
			xp_recycle(xp_queue(setting->port, 0), packets[i].span);
		got += n;
	}
	xp_stats(setting->port, &stats);
	assert_int_equal(got, ENTRIES);
	assert_int_equal(stats.received, ENTRIES);
	assert_int_equal(stats.dropped + stats.ring_full, 100);
	assert_int_equal(probe(setting, 1), 1);
}

static void test_idle(void **state)
{
	struct setting *setting = *state;
	struct reactor_stats before, after;
	struct rusage usage, usage_after;

	NEEDS_XDP();
	reactor_stats(setting->reactor, &before);
	getrusage(RUSAGE_THREAD, &usage);
	assert_int_equal(port_wait(setting, 300 * NS_PER_MS), -ETIMEDOUT);
	getrusage(RUSAGE_THREAD, &usage_after);
	reactor_stats(setting->reactor, &after);
	assert_true(after.sleeps > before.sleeps);
	assert_true((usage_after.ru_utime.tv_sec - usage.ru_utime.tv_sec) * 1000000 +
			    usage_after.ru_utime.tv_usec - usage.ru_utime.tv_usec <
		    100000);
}

static void wire_drain(int wire)
{
	uint8_t packet[2048];

	while (recv(wire, packet, sizeof(packet), 0) > 0)
		;
}

static void test_send(void **state)
{
	struct setting *setting = *state;
	struct region_ring *ring;
	const uint32_t total = 300;
	uint32_t done = 0, seen = 0;
	struct region_span spans[300];
	struct region_cqe cqes[32];
	uint64_t deadline_ns = clock_now_ns() + WAIT_NS;
	uint16_t target;

	NEEDS_XDP();
	ring = region_ring(setting->region, 0);
	assert_int_equal(xp_target(xp_queue(setting->port, 0), setting->reactor, &target), 0);
	wire_drain(setting->wire);
	for (uint32_t i = 0; i < total; i++) {
		struct region_sqe sqe = {
			.opcode = REGION_OP_PACKET_TX, .target = target, .user_data = i};

		assert_int_equal(region_lease(setting->region, 1, OWNER_XDP, &spans[i]), 0);
		sqe.len = packet_build(spans[i].data + 64, PORT_MATCHED, i, 18 + i * 4);
		sqe.addr = (uintptr_t)spans[i].data + 64;
		assert_int_equal(region_submit(ring, &sqe), 0);
	}
	while ((done < total || seen < total) && clock_now_ns() < deadline_ns) {
		uint8_t packet[2048], expected[2048];
		uint32_t n;
		ssize_t len;

		region_ring_turn(ring);
		reactor_turn(setting->reactor);
		n = region_reap(ring, cqes, ARRAY_LEN(cqes));
		for (uint32_t i = 0; i < n; i++) {
			assert_int_equal(cqes[i].result, 0);
			region_give(setting->region, spans[cqes[i].user_data], OWNER_XDP);
		}
		done += n;
		while ((len = recv(setting->wire, packet, sizeof(packet), 0)) > 0) {
			if (packet[12] != 8 || packet[37] != (PORT_MATCHED & 0xff))
				continue; /* the stack's own */
			assert_int_equal(
				len, packet_build(expected, PORT_MATCHED, seen, 18 + seen * 4));
			assert_memory_equal(packet, expected, (size_t)len);
			seen++;
		}
	}
	assert_int_equal(done, total);
	assert_int_equal(seen, total);
}

static void test_send_refused(void **state)
{
	struct setting *setting = *state;
	struct region_sqe sqe = {.opcode = REGION_OP_PACKET_TX};
	struct region_ring *ring;
	struct region_span span;
	struct region_cqe cqe;

	NEEDS_XDP();
	ring = region_ring(setting->region, 0);
	assert_int_equal(xp_target(xp_queue(setting->port, 0), setting->reactor, &sqe.target), 0);
	assert_int_equal(region_lease(setting->region, 2, OWNER_XDP, &span), 0);
	sqe.addr = (uintptr_t)span.data + FRAME_BYTES - 10;
	sqe.len = 60; /* over the frame's end */
	assert_int_equal(region_submit(ring, &sqe), 0);
	region_ring_turn(ring);
	assert_int_equal(region_reap(ring, &cqe, 1), 1);
	assert_int_equal(cqe.result, -EMSGSIZE);
	sqe.addr = (uintptr_t)span.data;
	sqe.opcode = REGION_OP_WRITE;
	assert_int_equal(region_submit(ring, &sqe), 0);
	region_ring_turn(ring);
	assert_int_equal(region_reap(ring, &cqe, 1), 1);
	assert_int_equal(cqe.result, -EOPNOTSUPP);
	region_give(setting->region, span, OWNER_XDP);
}

static void test_open_refused(void **state)
{
	struct setting *setting = *state;
	struct xp_opts opts = {.interface = "none0"};
	struct xp_port *port = NULL;

	NEEDS_XDP();
	log_set_level(LOG_ERROR + 1);
	assert_int_equal(xp_open(setting->region, &opts, &port), -ENODEV);
	opts.interface = "a name too long for one";
	assert_int_equal(xp_open(setting->region, &opts, &port), -EINVAL);
	opts.interface = "xdp0";
	assert_int_equal(xp_open(setting->region, &opts, &port), -EBUSY);
	opts.interface = "xdp1";
	opts.ring_entries = 1000;
	assert_int_equal(xp_open(setting->region, &opts, &port), -EINVAL);
	opts.ring_entries = 8192; /* the region has 4096 frames */
	assert_int_equal(xp_open(setting->region, &opts, &port), -ENOBUFS);
	opts.ring_entries = 64;
	opts.queue_first = 5;
	assert_int_equal(xp_open(setting->region, &opts, &port), -EINVAL);
	opts.queue_first = 0;
	opts.mode_only = true; /* zero-copy, which veth does not have */
	assert_int_equal(xp_open(setting->region, &opts, &port), -EOPNOTSUPP);
	opts.mode_best = XP_GENERIC;
	assert_int_equal(xp_open(setting->region, &opts, &port), 0);
	assert_int_equal(xp_mode(port), XP_GENERIC);
	xp_close(port);
	log_set_level(LOG_ERROR);
}

/* The last test: it removes the interface. */
static void test_interface_gone(void **state)
{
	struct setting *setting = *state;
	uint64_t start_ns;

	NEEDS_XDP();
	assert_int_equal(command("ip link del xdp0 &"), 0); /* mostly during the wait */
	start_ns = clock_now_ns();
	assert_int_equal(port_wait(setting, WAIT_NS), -ENODEV);
	assert_true(clock_now_ns() - start_ns < WAIT_NS / 2); /* reported, not timed out */
	assert_int_equal(port_wait(setting, WAIT_NS), -ENODEV);
}

static void test_names(void **state)
{
	(void)state;
	assert_string_equal(xp_mode_name(XP_ZEROCOPY), "zero-copy");
	assert_string_equal(xp_mode_name(XP_NATIVE), "native copy");
	assert_string_equal(xp_mode_name(XP_GENERIC), "generic");
	assert_string_equal(xp_mode_name(XP_MODE_COUNT), "unknown");
}

#define WITH_PORT(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		WITH_PORT(test_receive),
		WITH_PORT(test_rules),
		WITH_PORT(test_rules_refused),
		WITH_PORT(test_overrun),
		WITH_PORT(test_idle),
		WITH_PORT(test_send),
		WITH_PORT(test_send_refused),
		WITH_PORT(test_open_refused),
		WITH_PORT(test_interface_gone),
	};

	return cmocka_run_group_tests_name("xdp", tests, group_setup, NULL);
}
