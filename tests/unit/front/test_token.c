#include "fiber_rig.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fake_rdma.h"
#include "fake_s3.h"
#include "front/token/token_priv.h"

static struct front_token *rig_front;
static struct front_token_opts rig_opts;
static struct rp_pd *rig_pd;
static const uint32_t rig_lkeys[LIMIT_ARENAS_MAX];

static uint8_t client_memory[MIB];
static const struct s3_identity alice = {.access_key = "alice"}, bob = {.access_key = "bob"};

static int rig_setup(void **state)
{
	fake_open();
	fake_s3_reset();
	if (*state)
		fake.attr.qp_types |= 1u << RP_QP_DCI;
	rig_begin(8);
	assert_int_equal(flow_core_open(rig, rig_region, &rig_core), 0);
	assert_int_equal(rp_pd_open(fake_device(), &rig_pd), 0);
	rig_opts = (struct front_token_opts){.core = &rig_core,
		.device = fake_device(),
		.pd = rig_pd,
		.lkeys = rig_lkeys,
		.queue_pairs_max = 3,
		.transfer_timeout_ns = 60 * NS_PER_S};
	assert_int_equal(front_token_open(&rig_opts, &rig_front), 0);
	memset(client_memory, 0, sizeof(client_memory));
	return 0;
}

static int rig_teardown(void **state)
{
	(void)state;
	front_token_close(rig_front);
	assert_int_equal(fake.qps_open, 0);
	assert_int_equal(fake.ahs_open, 0);
	rp_pd_close(rig_pd);
	flow_core_close(&rig_core);
	rig_end();
	fake_close();
	return 0;
}

#define RIG_UNIT(fn) cmocka_unit_test_setup_teardown(test_##fn, rig_setup, rig_teardown)
#define RIG_UNIT_DC(fn) \
	cmocka_unit_test_prestate_setup_teardown(test_##fn, rig_setup, rig_teardown, &rig)

/* ---- A request from HTTP, and the handler of s3. ---- */

static struct {
	char why_bad[128], declined[128];
	bool has_token;
	int admitted, opened;
	int64_t came;
} seen;
static const struct s3_identity *who;
static uint64_t answer_bytes;
static uint8_t body[MIB];

static void handle(const struct s3_request *request, struct s3_reply *reply)
{
	struct s3_token *token = request->token;

	memset(&seen, 0, sizeof(seen));
	seen.has_token = token != NULL;
	if (request->declined)
		strncpy(seen.declined, request->declined, sizeof(seen.declined) - 1);
	if (!token) {
		fake_answer(reply, 501, SLICE("<Error/>"));
		return;
	}
	if (token->bad) {
		strncpy(seen.why_bad, token->bad, sizeof(seen.why_bad) - 1);
		fake_answer(reply, 400, SLICE("<Error/>"));
		return;
	}
	seen.admitted = token->ops->admit(token, who);
	if (seen.admitted)
		return;
	token->admitted = true;
	if (request->method == S3_PUT) {
		seen.came = fake_body(request, body, sizeof(body));
		fake_answer(reply, seen.came < 0 ? 500 : 200, SLICE_NONE);
	} else {
		seen.opened = fake_send_bytes(request->core, reply, answer_bytes, 64 * KIB, false);
	}
}

static struct {
	uint32_t status;
	char headers[1024];
	char text[256];
	bool broken;
} got;

static int reply_head(struct s3_reply *reply, uint32_t status, const struct s3_header *headers,
	uint32_t header_count, uint64_t bytes)
{
	(void)bytes;
	reply->status = got.status = status;
	for (uint32_t i = 0; i < header_count; i++) {
		size_t len = strlen(got.headers);

		snprintf(got.headers + len, sizeof(got.headers) - len, "%.*s: %.*s\n",
			(int)headers[i].name.len, headers[i].name.data, (int)headers[i].value.len,
			headers[i].value.data);
	}
	return 0;
}

static int reply_text(struct s3_reply *reply, struct slice text)
{
	(void)reply;
	return slice_copy_str(text, got.text, sizeof(got.text));
}

static const struct s3_reply_ops REPLY_OPS = {
	.head = reply_head, .text = reply_text, .sink = fake_no_sink};

static struct token token_of(uint32_t qpn, uint64_t bytes)
{
	return (struct token){.addr = (uint64_t)(uintptr_t)client_memory,
		.bytes = bytes,
		.rkey = FAKE_RKEY,
		.lid = 7,
		.qpn = qpn};
}

static void ask_text(enum s3_method method, struct slice text, uint32_t copies)
{
	const struct s3_header headers[2] = {
		{token_header(TOKEN_HEADER_TOKEN), text}, {token_header(TOKEN_HEADER_TOKEN), text}};
	struct s3_body none = {.bytes = 0};
	struct s3_request request = {.method = method,
		.headers = headers,
		.header_count = copies,
		.body = &none,
		.core = &rig_core};
	struct s3_reply reply = {.ops = &REPLY_OPS};

	memset(&got, 0, sizeof(got));
	assert_true(front_token_wanted(&request));
	front_token_handle(rig_front, &request, &reply);
	got.broken = reply.broken;
}

static void ask(enum s3_method method, const struct token *token)
{
	char text[TOKEN_LEN];

	token_format(token, text);
	fake_s3.handle = handle;
	ask_text(method, slice_of(text, sizeof(text)), 1);
}

/* The newest queue pair. */
static struct rp_qp *newest(void)
{
	return CONTAINER_OF(rig_front->qps.prev, struct token_qp, link)->qp;
}

static int join_in(uint16_t share, const struct s3_identity *identity, uint32_t qpn)
{
	struct s3_token_end end = {.token = token_of(qpn, 0), .psn = 1, .mtu = 1024};
	int ret = token_qp_join(rig_front, identity, share, &end);

	if (!ret) {
		assert_int_not_equal(end.token.qpn, qpn);
		assert_int_equal(end.mtu, 1024);
	}
	return ret;
}

static int join(const struct s3_identity *identity, uint32_t qpn)
{
	return join_in(FLOW_SHARE_OWN, identity, qpn);
}

/* ---- Moving. ---- */

static void bytes_move(void *arg)
{
	struct token token = token_of(100, 300 * KIB);

	(void)arg;
	who = &alice;
	assert_int_equal(join(&alice, 100), 0);
	answer_bytes = 200 * KIB;
	ask(S3_GET, &token);
	assert_int_equal(got.status, 200);
	assert_non_null(strstr(got.headers, "x-amz-rdma-reply: 200\n"));
	assert_non_null(strstr(got.headers, "x-amz-rdma-bytes-transferred: 204800\n"));
	assert_non_null(strstr(got.headers, "x-amz-checksum-crc64nvme: "));
	for (uint64_t i = 0; i < answer_bytes; i++)
		assert_int_equal(client_memory[i], fake_byte(i));
	assert_int_equal(client_memory[answer_bytes], 0);
	ask(S3_PUT, &token);
	assert_int_equal(got.status, 200);
	assert_int_equal(seen.came, 300 * KIB);
	assert_memory_equal(body, client_memory, 300 * KIB);
	front_token_drain(rig_front);
}
RIG_TEST(bytes_move);

/* A query of a queue pair's state costs a system call: successive requests make at most one. */
static void a_request_asks_the_device_for_nothing(void *arg)
{
	struct token token = token_of(100, 64 * KIB);
	struct token_qp *qp;

	(void)arg;
	who = &alice;
	assert_int_equal(join(&alice, 100), 0);
	answer_bytes = 64 * KIB;
	ask(S3_GET, &token);
	qp = CONTAINER_OF(rig_front->qps.next, struct token_qp, link);
	for (int i = 0; i < 100; i++) {
		/* At any time: the queue pair has just moved bytes. */
		uint32_t asked = fake.state_asked;

		qp->proven_ns = reactor_now_ns(rig);
		ask(S3_GET, &token);
		assert_int_equal(got.status, 200);
		assert_int_equal(fake.state_asked, asked);
	}
	/* One that has been unused for a while is queried; if it has died, the token is declined
	 * and the request does not fail. */
	assert_true(qp->proven_ns > 0);
	qp->proven_ns -= TOKEN_PROVEN_NS;
	fake_state(qp->qp, RP_QPS_ERR);
	ask(S3_GET, &token);
	assert_int_equal(got.status, 501);
	assert_int_equal(rig_front->qp_count, 0);
	front_token_drain(rig_front);
}
RIG_TEST(a_request_asks_the_device_for_nothing);

/* If a query is free, each request makes one, so a queue pair that its client closed is never
 * used. */
static void where_asking_is_free(void *arg)
{
	struct token token = token_of(100, 64 * KIB);

	(void)arg;
	who = &alice;
	rig_front->state_is_free = true;
	assert_int_equal(join(&alice, 100), 0);
	answer_bytes = 64 * KIB;
	ask(S3_GET, &token);
	assert_int_equal(got.status, 200);
	fake_state(newest(), RP_QPS_ERR);
	ask(S3_GET, &token);
	assert_int_equal(got.status, 501);
	front_token_drain(rig_front);
}
RIG_TEST(where_asking_is_free);

/* If a queue pair dies just after it worked, the transfer detects it. */
static void a_queue_pair_that_just_died(void *arg)
{
	struct token token = token_of(100, 64 * KIB);

	(void)arg;
	who = &alice;
	assert_int_equal(join(&alice, 100), 0);
	answer_bytes = 64 * KIB;
	ask(S3_GET, &token);
	assert_int_equal(got.status, 200);
	CONTAINER_OF(rig_front->qps.next, struct token_qp, link)->proven_ns = reactor_now_ns(rig);
	fake_state(newest(), RP_QPS_ERR);
	ask(S3_GET, &token);
	assert_true(got.broken);
	assert_int_equal(seen.admitted, 0);
	assert_int_equal(rig_front->qp_count, 0);
	ask(S3_GET, &token);
	assert_int_equal(got.status, 501);
	front_token_drain(rig_front);
}
RIG_TEST(a_queue_pair_that_just_died);

/* ---- Refusals. ---- */

static void tokens_that_are_none(void *arg)
{
	struct token token = token_of(100, 10);
	char text[TOKEN_LEN];

	(void)arg;
	fake_s3.handle = handle;
	ask_text(S3_GET, SLICE("not a token"), 1);
	assert_int_equal(got.status, 400);
	assert_true(seen.why_bad[0]);
	ask_text(S3_GET, SLICE_NONE, 1);
	assert_int_equal(got.status, 400);
	token_format(&token, text);
	ask_text(S3_GET, slice_of(text, sizeof(text)), 2);
	assert_int_equal(got.status, 400);
	assert_string_equal(seen.why_bad, "There is more than one RDMA token.");
	front_token_drain(rig_front);
}
RIG_TEST(tokens_that_are_none);

/* Only the access key that connected a queue pair can use it. A token without a queue pair is
 * declined, and the request runs without it. */
static void tokens_of_others_are_declined(void *arg)
{
	struct token token = token_of(100, 64 * KIB), other = token_of(101, 64 * KIB);

	(void)arg;
	assert_int_equal(join(&alice, 100), 0);
	who = &bob;
	ask(S3_GET, &token);
	assert_int_equal(got.status, 501);
	assert_false(seen.has_token);
	assert_string_equal(
		seen.declined, "The token's queue pair is not connected to this server.");
	who = &alice;
	ask(S3_GET, &other);
	assert_int_equal(got.status, 501);
	other = token;
	other.lid++;
	ask(S3_GET, &other);
	assert_int_equal(got.status, 501);
	other = token;
	other.has_gid = true;
	ask(S3_GET, &other);
	assert_int_equal(got.status, 501);
	/* Nor a queue pair that its client has not made ready. */
	fake_state(newest(), RP_QPS_RTR);
	ask(S3_GET, &token);
	assert_int_equal(got.status, 501);
	assert_int_equal(rig_front->qp_count, 1);
	front_token_drain(rig_front);
}
RIG_TEST(tokens_of_others_are_declined);

/* An answer larger than the window moves no bytes, and does no harm. */
static void windows_that_are_too_small(void *arg)
{
	struct token token = token_of(100, 64 * KIB);

	(void)arg;
	who = &alice;
	assert_int_equal(join(&alice, 100), 0);
	answer_bytes = 64 * KIB + 1;
	ask(S3_GET, &token);
	assert_true(got.broken);
	assert_int_equal(client_memory[64 * KIB], 0);
	front_token_drain(rig_front);
}
RIG_TEST(windows_that_are_too_small);

/* An invalid rkey ends the queue pair, in both directions. */
static void memory_that_is_not_lent(void *arg)
{
	struct token token = token_of(100, 64 * KIB);

	(void)arg;
	who = &alice;
	token.rkey++;
	answer_bytes = 10;
	for (int put = 0; put < 2; put++) {
		assert_int_equal(join(&alice, 100), 0);
		ask(put ? S3_PUT : S3_GET, &token);
		if (put)
			assert_int_equal(seen.came, -EACCES);
		else
			assert_true(got.broken);
		assert_int_equal(rig_front->qp_count, 0);
	}
	front_token_drain(rig_front);
}
RIG_TEST(memory_that_is_not_lent);

/* A transfer that exceeds its time limit ends, and its client's memory is no longer accessed. */
static void transfers_that_take_too_long(void *arg)
{
	struct token token = token_of(100, 64 * KIB);

	(void)arg;
	who = &alice;
	rig_front->opts.transfer_timeout_ns = 1;
	assert_int_equal(join(&alice, 100), 0);
	fake.hold_ring = true;
	ask(S3_PUT, &token);
	assert_int_equal(got.status, 500);
	assert_int_equal(seen.came, -ECANCELED);
	assert_int_equal(rig_front->qp_count, 0);
	front_token_drain(rig_front);
}
RIG_TEST(transfers_that_take_too_long);

static struct token_qp *retired;

/* RP_FLUSH_NS later. */
static void later(void *arg)
{
	(void)arg;
	while (!retired->gone)
		fiber_yield();
	assert_int_equal(fake.qps_open, 1);
	retired->gone_ns -= RP_FLUSH_NS;
}

/* Also on a device that flushes nothing: the queue pair is closed, and its target's number is free
 * with the last request. */
static void devices_that_do_not_flush(void *arg)
{
	struct token token = token_of(100, 64 * KIB);

	(void)arg;
	who = &alice;
	answer_bytes = 64 * KIB;
	rig_front->opts.transfer_timeout_ns = 1;
	fake.hold_ring = fake.never_flushes = true;
	for (int put = 0; put < 2; put++) {
		assert_int_equal(join(&alice, 100), 0);
		retired = CONTAINER_OF(rig_front->qps.next, struct token_qp, link);
		assert_int_equal(fiber_spawn(rig, "later", later, NULL), 0);
		ask(put ? S3_PUT : S3_GET, &token);
		assert_true(put ? seen.came == -ECANCELED : got.broken);
		assert_int_equal(rig_front->qp_count, 0);
		assert_int_equal(fake.qps_open, 0);
	}
	front_token_drain(rig_front);
}
RIG_TEST(devices_that_do_not_flush);

static void handle_late(const struct s3_request *request, struct s3_reply *reply)
{
	struct token_qp *qp = CONTAINER_OF(rig_front->qps.next, struct token_qp, link);

	request->token->wait_ns = 60 * NS_PER_S;
	assert_int_equal(request->token->ops->admit(request->token, who), 0);
	request->token->admitted = true;
	/* A sweep ends requests that take too long, then asks for the state of those that are idle.
	 */
	for (uint32_t asked = fake.state_asked; fake.state_asked == asked;)
		fiber_yield();
	assert_false(qp->gone);
	fake_send_bytes(request->core, reply, answer_bytes, 64 * KIB, false);
}

/* The wait that its client asked for is no part of that time. */
static void a_wait_is_no_transfer(void *arg)
{
	struct token token = token_of(100, 64 * KIB);
	char text[TOKEN_LEN];

	(void)arg;
	who = &alice;
	answer_bytes = 64 * KIB;
	rig_front->opts.transfer_timeout_ns = 1;
	assert_int_equal(join(&bob, 101), 0);
	assert_int_equal(join(&alice, 100), 0);
	assert_non_null(token_qp_find(rig_front, &token, "alice"));
	token_format(&token, text);
	fake_s3.handle = handle_late;
	ask_text(S3_GET, slice_of(text, sizeof(text)), 1);
	assert_int_equal(got.status, 200);
	assert_false(got.broken);
	assert_int_equal(rig_front->qp_count, 2);
	front_token_drain(rig_front);
}
RIG_TEST(a_wait_is_no_transfer);

/* ---- Connecting. ---- */

static void join_fails(int *error, int with)
{
	*error = with;
	assert_int_equal(join(&alice, 100), with);
	assert_int_equal(rig_front->qp_count, 0);
	assert_int_equal(rig_front->shared->qp_count, 0);
	assert_int_equal(fake.qps_open, 0);
}

static void joining_can_fail_anywhere(void *arg)
{
	(void)arg;
	join_fails(&fake.qp_open_error, -EMFILE);
	join_fails(&fake.target_error, -ENOSPC);
	join_fails(&fake.address_error, -EIO);
	join_fails(&fake.join_error, -EINVAL);
	/* The maximum number; one that is connected again replaces the old one. */
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(join(&alice, 100 + i), 0);
	assert_int_equal(join(&alice, 103), -ENOSPC);
	assert_int_equal(join(&alice, 101), 0);
	assert_int_equal(join(&bob, 101), -ENOSPC);
	assert_int_equal(rig_front->qp_count, 3);
	front_token_drain(rig_front);
	assert_int_equal(rig_front->shared->qp_count, 0);
}
RIG_TEST(joining_can_fail_anywhere);

/* One principal does not keep the others out: when all places are taken, the queue pair that has
 * been idle for longest of the principal with the most goes, and none that is in use. */
static void the_one_with_the_most_gives_way(void *arg)
{
	const struct token oldest = token_of(101, 0), busy = token_of(100, 0);
	struct token_qp *used;

	(void)arg;
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(join_in(1, &alice, 100 + i), 0);
		CONTAINER_OF(rig_front->qps.prev, struct token_qp, link)->last_ns -= 10 - i;
	}
	used = token_qp_find(rig_front, &busy, "alice");
	used->in_flight++;
	/* Not to one who has as many. */
	assert_int_equal(join_in(1, &alice, 103), -ENOSPC);
	assert_int_equal(join_in(2, &bob, 200), 0);
	assert_int_equal(rig_front->qp_count, 3);
	assert_false(used->gone);
	assert_null(token_qp_find(rig_front, &oldest, "alice"));
	/* One to two is even enough. */
	assert_int_equal(join_in(2, &bob, 201), -ENOSPC);
	assert_int_equal(join_in(1, &alice, 103), -ENOSPC);
	token_qp_release(used);
	front_token_drain(rig_front);
	for (uint32_t i = 0; i < FLOW_SHARES; i++)
		assert_int_equal(rig_front->shared->share_qps[i], 0);
}
RIG_TEST(the_one_with_the_most_gives_way);

/* Also when its queue pairs are all on another event loop, or an unproven session is. */
static void it_gives_way_on_any_loop(void *arg)
{
	struct front_token_opts opts = rig_opts;
	struct s3_token_end end;
	struct front_token *other;
	struct token_qp *session;

	(void)arg;
	opts.first = rig_front;
	assert_int_equal(front_token_open(&opts, &other), 0);
	for (uint32_t i = 0; i < 3; i++) {
		end = (struct s3_token_end){.token = token_of(100 + i, 0), .mtu = 1024};
		assert_int_equal(token_qp_join(other, &alice, 1, &end), 0);
	}
	assert_int_equal(join_in(1, &alice, 103), -ENOSPC);
	assert_int_equal(join_in(2, &bob, 200), 0);
	assert_int_equal(other->qp_count, 2);
	assert_int_equal(rig_front->qp_count, 1);
	assert_int_equal(join_in(2, &bob, 201), -ENOSPC);
	front_token_drain(other);
	assert_int_equal(join_in(2, &bob, 201), 0);
	end = (struct s3_token_end){.token = token_of(102, 0), .mtu = 1024};
	assert_int_equal(token_qp_join_session(other, &end, &session), 0);
	other->unproven_count++;
	assert_int_equal(join_in(2, &bob, 202), 0);
	assert_int_equal(other->qp_count, 0);
	front_token_drain(rig_front);
	front_token_close(other);
}
RIG_TEST(it_gives_way_on_any_loop);

/* All of the one with the most are in use: nothing is broken off. */
static void what_is_in_use_stays(void *arg)
{
	(void)arg;
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(join_in(1, &alice, 100 + i), 0);
	LIST_FOR_EACH (link, &rig_front->qps)
		CONTAINER_OF(link, struct token_qp, link)->in_flight++;
	assert_int_equal(join_in(2, &bob, 200), -ENOSPC);
	LIST_FOR_EACH_SAFE (link, &rig_front->qps)
		token_qp_release(CONTAINER_OF(link, struct token_qp, link));
	assert_int_equal(rig_front->qp_count, 3);
	front_token_drain(rig_front);
}
RIG_TEST(what_is_in_use_stays);

static int slow_ret[2];
static uint32_t slow_count;

static void join_slowly(void *arg)
{
	int *ret = arg;

	*ret = join(&alice, 100);
	slow_count++;
}

/* A card's driver looks for a peer's address on the network: the event loop goes on meanwhile, and
 * what is connected meanwhile has its place. */
static void a_peer_that_is_not_found_holds_up_no_loop(void *arg)
{
	const struct token token = token_of(100, 0);
	struct token_qp *qp;

	(void)arg;
	slow_count = 0;
	rig_front->queue_pairs_max = 2;
	atomic_store(&fake.hold_joins, true);
	for (uint32_t i = 0; i < 2; i++)
		assert_int_equal(fiber_spawn(rig, "slow", join_slowly, &slow_ret[i]), 0);
	while (atomic_load(&fake.joins_held) + atomic_load(&fake.loop_blocked) < 2)
		fiber_yield();
	assert_int_equal(atomic_load(&fake.loop_blocked), 0);
	/* Both places of this front's completion queue are taken. */
	assert_int_equal(join(&bob, 200), -ENOSPC);
	assert_int_equal(rig_front->qp_count, 0);
	fake_joins_go();
	while (slow_count < 2)
		fiber_yield();
	assert_int_equal(slow_ret[0], 0);
	assert_int_equal(slow_ret[1], 0);
	/* The later one of the two with the same number replaced the other. */
	assert_int_equal(rig_front->qp_count, 1);
	assert_int_equal(fake.qps_open, 1);
	qp = token_qp_find(rig_front, &token, "alice");
	assert_non_null(qp);
	assert_int_equal(rig_front->joining, 0);
	assert_int_equal(rig_front->shared->qp_count, 1);
	front_token_drain(rig_front);
	assert_int_equal(rig_front->shared->qp_count, 0);
}
RIG_TEST(a_peer_that_is_not_found_holds_up_no_loop);

static void disconnects(void *arg)
{
	struct s3_token token = {.window = token_of(100, 0)};
	struct token_qp *qp;

	(void)arg;
	(void)token;
	assert_int_equal(join(&alice, 100), 0);
	assert_null(token_qp_find(rig_front, &token.window, "bob"));
	qp = token_qp_find(rig_front, &token.window, "alice");
	assert_non_null(qp);
	/* While it moves bytes it stays open, but takes no new requests. */
	qp->in_flight = 1;
	token_qp_retire(qp, "the test says so");
	assert_null(token_qp_find(rig_front, &token.window, "alice"));
	assert_int_equal(fake.qps_open, 1);
	token_qp_release(qp);
	assert_int_equal(fake.qps_open, 0);
	front_token_drain(rig_front);
}
RIG_TEST(disconnects);

/* The sweep queries a few queue pairs each time, and over time all of them. */
static void the_sweep_finds_the_dead(void *arg)
{
	(void)arg;
	rig_front->opts.queue_pairs_max = rig_front->queue_pairs_max = 3 * TOKEN_LOOKS_MAX;
	for (uint32_t i = 0; i < 3 * TOKEN_LOOKS_MAX; i++)
		assert_int_equal(join(&alice, 100 + i), 0);
	LIST_FOR_EACH (link, &rig_front->qps) {
		struct token_qp *qp = CONTAINER_OF(link, struct token_qp, link);

		if (qp->peer.qpn % 2)
			fake_state(qp->qp, RP_QPS_ERR);
	}
	while (rig_front->qp_count > 3 * TOKEN_LOOKS_MAX / 2)
		fiber_yield();
	LIST_FOR_EACH (link, &rig_front->qps)
		assert_int_equal(CONTAINER_OF(link, struct token_qp, link)->peer.qpn % 2, 0);
	/* Idle ones end, too. */
	rig_front->opts.idle_timeout_ns = 1;
	while (rig_front->qp_count)
		fiber_yield();
	front_token_drain(rig_front);
}
RIG_TEST(the_sweep_finds_the_dead);

/* ---- Targets without a connection. ---- */

static void initiators_are_aimed(void *arg)
{
	struct token token = token_of(100, 64 * KIB);

	(void)arg;
	who = &alice;
	answer_bytes = 64 * KIB;
	for (int i = 0; i < 3; i++) {
		ask(S3_GET, &token);
		assert_int_equal(got.status, 200);
		assert_int_equal(fake.ahs_open, 0);
		assert_int_equal(rig_front->qp_count, 1);
	}
	assert_int_equal(atomic_load(&fake.loop_blocked), 0);
	fake.ah_error = -EINVAL;
	ask(S3_GET, &token);
	assert_int_equal(got.status, 501);
	fake.aim_error = -EINVAL;
	ask(S3_GET, &token);
	assert_int_equal(got.status, 501);
	assert_int_equal(fake.ahs_open, 0);
	/* An error ends an initiator; another one is opened if a place is free. */
	token.rkey++;
	ask(S3_GET, &token);
	assert_true(got.broken);
	assert_int_equal(rig_front->qp_count, 0);
	token.rkey--;
	fake.qp_open_error = -EMFILE;
	ask(S3_GET, &token);
	assert_int_equal(got.status, 501);
	assert_int_equal(rig_front->shared->qp_count, 0);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(join(&bob, 200 + i), 0);
	ask(S3_GET, &token);
	assert_int_equal(got.status, 501);
	front_token_drain(rig_front);
}
RIG_TEST(initiators_are_aimed);

/* Initiators that were opened for many requests at once do not keep principals out. */
static void idle_initiators_give_way(void *arg)
{
	const struct token target = token_of(7, 0);
	struct front_token_opts opts = rig_opts;
	struct token_qp *leased[3];
	struct front_token *other;

	(void)arg;
	opts.first = rig_front;
	assert_int_equal(front_token_open(&opts, &other), 0);
	for (uint32_t i = 0; i < 3; i++) {
		leased[i] = token_dci_lease(i < 2 ? rig_front : other, &target);
		assert_non_null(leased[i]);
	}
	assert_null(token_dci_lease(rig_front, &target));
	/* None that is in use. */
	assert_int_equal(join_in(1, &alice, 100), -ENOSPC);
	for (uint32_t i = 0; i < 3; i++)
		token_qp_release(leased[i]);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(join_in(1, &alice, 100 + i), 0);
	assert_int_equal(join_in(1, &alice, 103), -ENOSPC);
	assert_int_equal(rig_front->qp_count, 3);
	assert_int_equal(other->qp_count, 0);
	front_token_drain(rig_front);
	front_token_drain(other);
	front_token_close(other);
}
RIG_TEST(idle_initiators_give_way);

/* ---- Opening. ---- */

static void opening_can_fail_anywhere(void *arg)
{
	struct front_token_opts bad = rig_opts;
	struct front_token *front;

	(void)arg;
	bad.queue_pairs_max = 0;
	assert_int_equal(front_token_open(&bad, &front), -EINVAL);
	bad.queue_pairs_max = LIMIT_TOKEN_QUEUE_PAIRS_MAX + 1;
	assert_int_equal(front_token_open(&bad, &front), -EINVAL);
	fake.cq_open_error = -ENOMEM;
	assert_int_equal(front_token_open(&rig_opts, &front), -ENOMEM);
	/* A small completion queue allows fewer queue pairs. */
	fake.attr.max_cqe = 2 * (TOKEN_SEND_WRS + 1);
	assert_int_equal(front_token_open(&rig_opts, &front), 0);
	assert_int_equal(front->queue_pairs_max, 2);
	front_token_drain(front);
	front_token_close(front);
	front_token_drain(rig_front);
}
RIG_TEST(opening_can_fail_anywhere);

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_UNIT(bytes_move),
		RIG_UNIT(a_request_asks_the_device_for_nothing),
		RIG_UNIT(where_asking_is_free),
		RIG_UNIT(a_queue_pair_that_just_died),
		RIG_UNIT(tokens_that_are_none),
		RIG_UNIT(tokens_of_others_are_declined),
		RIG_UNIT(windows_that_are_too_small),
		RIG_UNIT(memory_that_is_not_lent),
		RIG_UNIT(transfers_that_take_too_long),
		RIG_UNIT(devices_that_do_not_flush),
		RIG_UNIT(a_wait_is_no_transfer),
		RIG_UNIT(joining_can_fail_anywhere),
		RIG_UNIT(the_one_with_the_most_gives_way),
		RIG_UNIT(it_gives_way_on_any_loop),
		RIG_UNIT(what_is_in_use_stays),
		RIG_UNIT(a_peer_that_is_not_found_holds_up_no_loop),
		RIG_UNIT(disconnects),
		RIG_UNIT(the_sweep_finds_the_dead),
		RIG_UNIT_DC(initiators_are_aimed),
		RIG_UNIT_DC(idle_initiators_give_way),
		RIG_UNIT(opening_can_fail_anywhere),
	};

	return cmocka_run_group_tests_name("token", tests, NULL, NULL);
}
