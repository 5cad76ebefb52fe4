/* tests/unit/front/test_session.c: sessions that unsigned requests connect, over a fake device and
 * a fake S3: failures of connecting, owners, and that unproven sessions give way. */
#include "fiber_rig.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_rdma.h"
#include "fake_s3.h"
#include "front/token/token_priv.h"

#define PEER                                           \
	"01640000000000000000000000000000000000000000" \
	"00000000000000000000000000000000000000010700"

#define ALICE_SHARE 5u

static struct front_token *rig_front;
static struct rp_pd *rig_pd;
static const uint32_t rig_lkeys[LIMIT_ARENAS_MAX];

static int rig_setup(void **state)
{
	struct front_token_opts opts = {.core = &rig_core,
		.device = fake_device(),
		.lkeys = rig_lkeys,
		.queue_pairs_max = 8,
		.elbencho = true,
		.transfer_timeout_ns = 60 * NS_PER_S};

	(void)state;
	fake_open();
	fake_s3_reset();
	rig_begin(8);
	assert_int_equal(flow_core_open(rig, rig_region, &rig_core), 0);
	assert_int_equal(rp_pd_open(fake_device(), &rig_pd), 0);
	opts.pd = rig_pd;
	assert_int_equal(front_token_open(&opts, &rig_front), 0);
	return 0;
}

static int rig_teardown(void **state)
{
	(void)state;
	front_token_close(rig_front);
	assert_int_equal(fake.qps_open, 0);
	rp_pd_close(rig_pd);
	flow_core_close(&rig_core);
	rig_end();
	fake_close();
	return 0;
}

/* ---- A request from HTTP, and the handler of s3. ---- */

static struct {
	uint32_t status;
	char code[32], session[33], reply[96], psn[8];
} got;

static void handle(const struct s3_request *request, struct s3_reply *reply)
{
	static const struct s3_identity nobody = {.anonymous = true};
	struct s3_control *control = request->control;
	const char *code = control->code;

	if (!code)
		code = control->ops->run(control, &nobody);
	if (code) {
		snprintf(got.code, sizeof(got.code), "%s", code);
		fake_answer(reply, 400, SLICE("<Error/>"));
	} else {
		fake_answer(reply, control->step == S3_CONTROL_CONNECT ? 200 : 204, SLICE_NONE);
	}
}

static int reply_head(struct s3_reply *reply, uint32_t status, const struct s3_header *headers,
	uint32_t header_count, uint64_t bytes)
{
	(void)bytes;
	reply->status = got.status = status;
	for (uint32_t i = 0; i < header_count; i++) {
		if (slice_eq_nocase(headers[i].name, hipobj_header(HIPOBJ_H_SESSION)))
			slice_copy_str(headers[i].value, got.session, sizeof(got.session));
		if (slice_eq_nocase(headers[i].name, hipobj_header(HIPOBJ_H_REPLY)))
			slice_copy_str(headers[i].value, got.reply, sizeof(got.reply));
		if (slice_eq_nocase(headers[i].name, hipobj_header(HIPOBJ_H_PSN)))
			slice_copy_str(headers[i].value, got.psn, sizeof(got.psn));
	}
	return 0;
}

static const struct s3_reply_ops REPLY_OPS = {
	.head = reply_head, .text = fake_no_text, .sink = fake_no_sink};

static void ask(enum elbencho_step step, const struct s3_header *headers, uint32_t count)
{
	const struct s3_request request = {.method = S3_POST,
		.method_text = SLICE("POST"),
		.path = elbencho_path(step),
		.headers = headers,
		.header_count = count,
		.core = &rig_core};
	struct s3_reply reply = {.ops = &REPLY_OPS};

	memset(&got, 0, sizeof(got));
	fake_s3.handle = handle;
	assert_true(front_token_session_wanted(&request));
	front_token_session_handle(rig_front, NULL, &request, &reply);
	assert_false(reply.broken);
}

static uint32_t connect_it(void)
{
	const struct s3_header headers[] = {
		{hipobj_header(HIPOBJ_H_TOKEN), SLICE(PEER)},
		{hipobj_header(HIPOBJ_H_PSN), SLICE("1")},
	};

	ask(ELBENCHO_CONNECT, headers, ARRAY_LEN(headers));
	return got.status;
}

static uint32_t disconnect_it(const char *session)
{
	const struct s3_header headers[] = {{hipobj_header(HIPOBJ_H_SESSION), slice_str(session)}};

	ask(ELBENCHO_DISCONNECT, headers, ARRAY_LEN(headers));
	return got.status;
}

static struct token_qp *claim(const char *session, const char *access_key)
{
	uint8_t id[HIPOBJ_SESSION_BYTES];

	assert_int_equal(hex_decode(slice_str(session), id, sizeof(id)), 0);
	return token_session_claim(rig_front, id, access_key, ALICE_SHARE);
}

static void nothing_held(void)
{
	assert_int_equal(rig_front->qp_count, 0);
	assert_int_equal(rig_front->unproven_count, 0);
	assert_int_equal(rig_front->shared->qp_count, 0);
	assert_int_equal(fake.qps_open, 0);
	assert_int_equal(atomic_load(&fake.loop_blocked), 0);
}

/* ---- Cases. ---- */

static void fails(int *error, int value, const char *code)
{
	*error = value;
	connect_it();
	*error = 0;
	assert_string_equal(got.code, code);
	assert_string_equal(got.session, "");
	nothing_held();
}

static void connecting_can_fail_anywhere(void *arg)
{
	char session[33];

	(void)arg;
	fails(&fake.qp_open_error, -ENOMEM, "SlowDown");
	fails(&fake.target_error, -ENOSPC, "SlowDown");
	fails(&fake.address_error, -EIO, "InvalidRDMAToken");
	fails(&fake.join_error, -EINVAL, "InvalidRDMAToken");
	assert_int_equal(connect_it(), 200);
	assert_int_equal(strlen(got.session), 32);
	assert_int_equal(strlen(got.reply), 4 + HIPOBJ_TOKEN_LEN);
	assert_int_equal(strlen(got.psn), 6);
	assert_int_equal(rig_front->unproven_count, 1);
	memcpy(session, got.session, sizeof(session));
	assert_int_equal(disconnect_it(session), 204);
	nothing_held();
	assert_int_equal(disconnect_it("00000000000000000000000000000000"), 204);
	ask(ELBENCHO_DISCONNECT, NULL, 0);
	assert_string_equal(got.code, "InvalidRDMARequest");
	rig_front->opts.elbencho = false;
	connect_it();
	assert_string_equal(got.code, "NotImplemented");
	nothing_held();
}
RIG_TEST(connecting_can_fail_anywhere);

static void the_first_that_names_it_owns_it(void *arg)
{
	char session[33];
	struct token_qp *qp;

	(void)arg;
	assert_int_equal(connect_it(), 200);
	memcpy(session, got.session, sizeof(session));
	qp = claim(session, "alice");
	assert_non_null(qp);
	assert_int_equal(rig_front->unproven_count, 0);
	/* It counts for the principal, not for the key: a principal may have many. */
	assert_int_equal(qp->share, ALICE_SHARE);
	assert_int_equal(rig_front->shared->share_qps[ALICE_SHARE], 1);
	assert_null(claim(session, "bob"));
	assert_ptr_equal(claim(session, "alice"), qp);
	/* The contract's tokens do not find it, by whatever number. */
	assert_null(token_qp_find(rig_front, &qp->peer, "alice"));
	/* While it moves bytes it stays open, but serves no more requests. */
	qp->in_flight = 1;
	assert_int_equal(disconnect_it(session), 204);
	assert_null(claim(session, "alice"));
	assert_int_equal(fake.qps_open, 1);
	token_qp_release(qp);
	nothing_held();
}
RIG_TEST(the_first_that_names_it_owns_it);

static void the_unproven_give_way(void *arg)
{
	struct s3_token_end end = {.token = {.lid = 7, .qpn = 100}, .psn = 1, .mtu = 1024};
	const struct s3_identity alice = {.access_key = "alice"};
	char oldest[33], newer[33];

	(void)arg;
	/* A quarter of eight. */
	assert_int_equal(connect_it(), 200);
	memcpy(oldest, got.session, sizeof(oldest));
	assert_int_equal(connect_it(), 200);
	memcpy(newer, got.session, sizeof(newer));
	assert_int_equal(connect_it(), 200);
	assert_int_equal(rig_front->unproven_count, 2);
	assert_null(claim(oldest, "alice"));
	assert_non_null(claim(newer, "alice"));
	/* And to any other queue pair, when all places are taken. */
	for (uint32_t i = 0; i < 7; i++) {
		end.token.qpn = 200 + i;
		end.mtu = 1024;
		assert_int_equal(token_qp_join(rig_front, &alice, FLOW_SHARE_OWN, &end), 0);
	}
	assert_int_equal(rig_front->unproven_count, 0);
	assert_int_equal(rig_front->qp_count, 8);
	connect_it();
	assert_string_equal(got.code, "SlowDown");
	assert_non_null(claim(newer, "alice"));
	front_token_drain(rig_front);
	nothing_held();
}
RIG_TEST(the_unproven_give_way);

static uint32_t connected;

static void connect_slowly(void *arg)
{
	(void)arg;
	assert_int_equal(connect_it(), 200);
	connected++;
}

/* Those whose peers are still looked for count, too. */
static void the_unproven_are_bounded_while_they_connect(void *arg)
{
	(void)arg;
	connected = 0;
	atomic_store(&fake.hold_joins, true);
	for (uint32_t i = 0; i < 2; i++)
		assert_int_equal(fiber_spawn(rig, "slow", connect_slowly, NULL), 0);
	while (atomic_load(&fake.joins_held) < 2 && !connected)
		fiber_yield();
	assert_int_equal(rig_front->unproven_count, 2);
	connect_it();
	assert_string_equal(got.code, "SlowDown");
	fake_joins_go();
	while (connected < 2)
		fiber_yield();
	assert_int_equal(rig_front->unproven_count, 2);
	assert_int_equal(connect_it(), 200);
	assert_int_equal(rig_front->unproven_count, 2);
	front_token_drain(rig_front);
	nothing_held();
}
RIG_TEST(the_unproven_are_bounded_while_they_connect);

/* Time is the reactor's: the session is made older than its time. */
static void the_unproven_end(void *arg)
{
	struct token_qp *qp;

	(void)arg;
	assert_int_equal(connect_it(), 200);
	assert_int_equal(connect_it(), 200);
	assert_non_null(claim(got.session, "alice"));
	LIST_FOR_EACH (link, &rig_front->qps) {
		qp = CONTAINER_OF(link, struct token_qp, link);
		qp->last_ns -= TOKEN_UNPROVEN_NS;
	}
	while (rig_front->unproven_count)
		fiber_yield();
	assert_int_equal(rig_front->qp_count, 1);
	assert_non_null(claim(got.session, "alice"));
	front_token_drain(rig_front);
	nothing_held();
}
RIG_TEST(the_unproven_end);

#define RIG_UNIT(fn) cmocka_unit_test_setup_teardown(test_##fn, rig_setup, rig_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_UNIT(connecting_can_fail_anywhere),
		RIG_UNIT(the_first_that_names_it_owns_it),
		RIG_UNIT(the_unproven_give_way),
		RIG_UNIT(the_unproven_are_bounded_while_they_connect),
		RIG_UNIT(the_unproven_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
