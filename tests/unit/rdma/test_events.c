/* tests/unit/rdma/test_events.c: connection events on a reactor: all are taken, and whoever makes
 * them without end does not keep the rest of the reactor waiting. */
#include "tests/unit/unit.h"

#include "rdma/port.h"

#define CONNECTS 100u
#define TOO_MANY 100000u

struct rig {
	struct reactor *reactor;
	struct rp_device *device;
	struct rp_listener *listener;
	struct rp_events events;
	struct reactor_timer timer;
	uint32_t taken;
};

static void end_main(void *arg)
{
	struct rig *rig = arg;

	rp_events_end(&rig->events);
	reactor_stop(rig->reactor);
}

static void on_timer(struct reactor_timer *timer, void *arg)
{
	struct rig *rig = arg;

	(void)timer;
	fiber_spawn(rig->reactor, "end", end_main, rig);
}

static void rig_open(struct rig *rig, bool (*take)(void *arg))
{
	const struct rp_open_opts opts = {.device_name = "simulated", .gid_index = -1};
	const struct reactor_opts reactor = {.cpu = -1};

	assert_int_equal(reactor_open(&reactor, &rig->reactor), 0);
	assert_int_equal(rp_open(&opts, &rig->device), 0);
	assert_int_equal(rp_listen(rig->device, "127.0.0.1", 0, NULL, &rig->listener), 0);
	rig->events = (struct rp_events){
		.reactor = rig->reactor, .device = rig->device, .take = take, .arg = rig};
	rig->timer = (struct reactor_timer){.fn = on_timer, .arg = rig};
	rp_events_begin(&rig->events);
}

static void rig_close(struct rig *rig)
{
	rp_listener_close(rig->listener);
	rp_close(rig->device);
	reactor_close(rig->reactor);
}

struct caller {
	struct rp_device *device;
	struct rp_pd *pd;
	struct rp_cq *cq;
	struct rp_qp *qps[CONNECTS];
};

static void call(struct caller *caller, const struct rig *rig, uint32_t count)
{
	const struct rp_open_opts opts = {.device_name = "simulated", .gid_index = -1};
	struct rp_qp_attr attr = {.type = RP_QP_RC,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};

	assert_int_equal(rp_open(&opts, &caller->device), 0);
	assert_int_equal(rp_pd_open(caller->device, &caller->pd), 0);
	assert_int_equal(rp_cq_open(caller->device, 64, &caller->cq), 0);
	attr.send_cq = attr.recv_cq = caller->cq;
	for (uint32_t i = 0; i < count; i++) {
		assert_int_equal(rp_qp_open(caller->pd, &attr, &caller->qps[i]), 0);
		assert_int_equal(rp_connect(caller->qps[i], "127.0.0.1",
					 rp_listener_port(rig->listener), NULL, 0, DEADLINE_NONE),
			0);
	}
}

static void call_end(struct caller *caller, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		rp_qp_close(caller->qps[i]);
	rp_cq_close(caller->cq);
	rp_pd_close(caller->pd);
	rp_close(caller->device);
}

static bool take_never_ends(void *arg)
{
	struct rig *rig = arg;

	assert_true(++rig->taken < TOO_MANY);
	return true;
}

/* The request stays where it is: the descriptor is always readable, and there is always one more.
 */
static void test_a_flood_leaves_the_timers_their_turn(void **state)
{
	struct rig rig = {.taken = 0};
	struct caller caller;

	(void)state;
	rig_open(&rig, take_never_ends);
	call(&caller, &rig, 1);
	reactor_timer_set(rig.reactor, &rig.timer, 0);
	reactor_run(rig.reactor);
	assert_true(rig.taken > 0);
	call_end(&caller, 1);
	rig_close(&rig);
}

static bool take_request(void *arg)
{
	struct rig *rig = arg;
	struct rp_cm_event event;

	if (rp_cm_poll(rig->device, &event) <= 0)
		return false;
	if (event.type != RP_CM_CONNECT_REQUEST)
		return true;
	rp_reject(event.request, NULL, 0);
	if (++rig->taken == CONNECTS)
		reactor_timer_set(rig->reactor, &rig->timer, 0);
	return true;
}

/* More than one turn takes are there before the first of them, and nothing comes after. */
static void test_all_are_taken(void **state)
{
	struct rig rig = {.taken = 0};
	struct caller caller;

	(void)state;
	rig_open(&rig, take_request);
	call(&caller, &rig, CONNECTS);
	reactor_run(rig.reactor);
	assert_int_equal(rig.taken, CONNECTS);
	call_end(&caller, CONNECTS);
	rig_close(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_flood_leaves_the_timers_their_turn),
		cmocka_unit_test(test_all_are_taken),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
