/* tests/unit/net/rig.h: a reactor on the test's own thread, and pairs of streams in it. Bounded: a
 * missing event ends in an alarm, not in a hang. */
#ifndef TESTS_UNIT_NET_RIG_H
#define TESTS_UNIT_NET_RIG_H

#include "../unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/net.h"

#define RIG_ALARM_S 600

static struct reactor *rig;

static inline int rig_setup(void **state)
{
	const struct reactor_opts opts = {.cpu = -1};

	(void)state;
	alarm(RIG_ALARM_S);
	assert_int_equal(reactor_open(&opts, &rig), 0);
	return 0;
}

static inline int rig_teardown(void **state)
{
	(void)state;
	reactor_close(rig);
	alarm(0);
	return 0;
}

static inline void rig_spawn(fiber_fn *fn, void *arg)
{
	assert_int_equal(fiber_spawn(rig, "test", fn, arg), 0);
}

/* Runs until every fiber has ended. */
static inline void rig_run(void)
{
	reactor_stop(rig);
	reactor_run(rig);
}

static inline uint64_t in_ms(uint64_t ms)
{
	return clock_now_ns() + ms * NS_PER_MS;
}

/* A connected pair over loopback TCP. In a fiber. */
static inline void rig_pair(struct net_stream **ret_client, struct net_stream **ret_server)
{
	struct net_listener *listener;
	char address[32];

	assert_int_equal(net_listen(rig, "127.0.0.1:0", &listener), 0);
	snprintf(address, sizeof(address), "127.0.0.1:%u", net_listener_port(listener));
	assert_int_equal(net_connect(address, in_ms(60000), ret_client), 0);
	assert_int_equal(net_accept(listener, ret_server), 0);
	net_listener_close(listener);
}

/* Exactly len bytes, or an error; -EPIPE when the peer closed before. */
static inline int rig_recv_all(
	struct net_stream *stream, void *buf, size_t len, uint64_t deadline_ns)
{
	char *at = (char *)buf;
	size_t got;

	while (len) {
		int err = net_recv_full(stream, at, len, deadline_ns, &got);

		if (err || !got)
			return err ? err : -EPIPE;
		at += got;
		len -= got;
	}
	return 0;
}

#define RIG_TEST(fn) cmocka_unit_test_setup_teardown(fn, rig_setup, rig_teardown)

#endif
