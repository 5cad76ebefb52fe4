/* tests/unit/front/test_hipobj.c: the sessions of hipobj-rc-v2 over a fake device and a fake S3:
 * failures of opening, owners, bounds, and that all resources are given back. */
#include "fiber_rig.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_rdma.h"
#include "fake_s3.h"
#include "front/hipobj/hipobj_priv.h"

#define TOKEN                                          \
	"01640000000000000000000000000000000000000000" \
	"00000000000000000000000000000000000000010700"

static struct front_hipobj *rig_front;
static struct rp_pd *rig_pd;
static const uint32_t rig_lkeys[LIMIT_ARENAS_MAX];

static int rig_setup(void **state)
{
	struct front_hipobj_opts opts = {.core = &rig_core,
		.device = fake_device(),
		.lkeys = rig_lkeys,
		.sessions_max = 6,
		.staging_bytes_max = 64 * KIB,
		.timeout_ns = 600 * NS_PER_S};

	(void)state;
	fake_open();
	fake_s3_reset();
	rig_begin(16);
	assert_int_equal(flow_core_open(rig, rig_region, &rig_core), 0);
	assert_int_equal(rp_pd_open(fake_device(), &rig_pd), 0);
	opts.pd = rig_pd;
	assert_int_equal(front_hipobj_open(&opts, &rig_front), 0);
	return 0;
}

static int rig_teardown(void **state)
{
	(void)state;
	front_hipobj_close(rig_front);
	assert_int_equal(fake.qps_open, 0);
	rp_pd_close(rig_pd);
	flow_core_close(&rig_core);
	rig_end();
	fake_close();
	return 0;
}

/* ---- A control request from HTTP, and the handler of s3. ---- */

static const char *who;
static uint16_t whose_share;
static int read_error;
static bool waits;				 /* READY, for a fan-out */
static enum { SERVES, UNPROVEN, FORBIDS } early; /* what s3 says to READY before its admission */
static struct {
	uint32_t status;
	char code[32], session[33], protocol_status[16];
	char headers[1024]; /* of READY's operation: "name: value\n", … */
} got;

static void sweep_now(void)
{
	rig_front->sweep.fn(&rig_front->sweep, rig_front->sweep.arg);
}

/* The time that a READY waits for a fan-out, as its client asks, is not of the session's. */
static void wait_long(struct s3_token *token)
{
	struct hipobj_session *session =
		CONTAINER_OF(rig_front->sessions.next, struct hipobj_session, link);

	session->deadline_ns = reactor_now_ns(rig);
	token->wait_ns = 600 * NS_PER_S;
	sweep_now();
	assert_false(session->gone);
	token->wait_ns = 0;
	sweep_now();
	assert_true(session->gone);
}

static void note_headers(const struct s3_request *request)
{
	size_t at = 0;

	for (uint32_t i = 0; i < request->header_count; i++)
		at += (size_t)snprintf(got.headers + at, sizeof(got.headers) - at, "%.*s: %.*s\n",
			SLICE_FMT(request->headers[i].name), SLICE_FMT(request->headers[i].value));
}

static void handle(const struct s3_request *request, struct s3_reply *reply)
{
	struct s3_control *control = request->control;
	struct s3_identity identity = {0};

	snprintf(identity.access_key, sizeof(identity.access_key), "%s", who);
	if (control->code) {
		snprintf(got.code, sizeof(got.code), "%s", control->code);
		fake_answer(reply, 400, SLICE("<Error/>"));
	} else if (control->step == S3_CONTROL_CANCEL) {
		assert_null(control->ops->run(control, &identity));
		fake_answer(reply, 204, SLICE_NONE);
	} else if (control->step == S3_CONTROL_PREPARE) {
		control->identity = identity;
		control->share = whose_share;
		fake_answer(reply, 200, SLICE_NONE);
	} else if (early) {
		if (early == FORBIDS)
			control->identity = identity;
		fake_answer(reply, 403, SLICE("<Error/>"));
	} else {
		int ret = request->token->ops->admit(request->token, &identity);

		note_headers(request);
		if (waits)
			wait_long(request->token);
		if (!ret && request->method == S3_GET) {
			read_error = fake_send_bytes(request->core, reply, 4096, 4096, false);
			return;
		}
		fake_answer(reply, ret ? 404 : 200, SLICE_NONE);
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
		if (slice_eq_nocase(headers[i].name, hipobj_header(HIPOBJ_H_STATUS)))
			slice_copy_str(
				headers[i].value, got.protocol_status, sizeof(got.protocol_status));
	}
	return 0;
}

static const struct s3_reply_ops REPLY_OPS = {
	.head = reply_head, .text = fake_no_text, .sink = fake_no_sink};

static void ask(enum hipobj_step step, const struct s3_header *headers, uint32_t count)
{
	const struct s3_request request = {.method = S3_POST,
		.method_text = SLICE("POST"),
		.path = hipobj_path(step),
		.headers = headers,
		.header_count = count,
		.core = &rig_core};
	struct s3_reply reply = {.ops = &REPLY_OPS};

	memset(&got, 0, sizeof(got));
	fake_s3.handle = handle;
	assert_true(front_hipobj_wanted(&request));
	front_hipobj_handle(rig_front, &request, &reply);
	assert_int_equal(reply.broken, read_error != 0);
}

/* With more headers. */
static uint32_t prepare_with(
	const char *op, const char *size, const struct s3_header *more, uint32_t more_count)
{
	struct s3_header headers[16] = {
		{hipobj_header(HIPOBJ_H_PROTOCOL), SLICE(HIPOBJ_PROTOCOL)},
		{hipobj_header(HIPOBJ_H_TOKEN), SLICE(TOKEN)},
		{hipobj_header(HIPOBJ_H_PSN), SLICE("1")},
		{hipobj_header(HIPOBJ_H_COOKIE), SLICE("7")},
		{hipobj_header(HIPOBJ_H_OP), slice_str(op)},
		{hipobj_header(HIPOBJ_H_TARGET), SLICE("/bucket/key")},
		{hipobj_header(HIPOBJ_H_SIZE), slice_str(size)},
	};

	assert_true(7 + more_count <= ARRAY_LEN(headers));
	for (uint32_t i = 0; i < more_count; i++)
		headers[7 + i] = more[i];
	ask(HIPOBJ_PREPARE, headers, 7 + more_count);
	return got.status;
}

static uint32_t prepare(const char *op, const char *size)
{
	return prepare_with(op, size, NULL, 0);
}

/* With one more header, unless its name is empty. */
static uint32_t say_with(enum hipobj_step step, const char *session, struct s3_header more)
{
	const struct s3_header headers[] = {
		{hipobj_header(HIPOBJ_H_PROTOCOL), SLICE(HIPOBJ_PROTOCOL)},
		{hipobj_header(HIPOBJ_H_SESSION), slice_str(session)},
		{hipobj_header(HIPOBJ_H_COOKIE), SLICE("7")},
		{hipobj_header(HIPOBJ_H_ADDR), SLICE("1000")},
		{hipobj_header(HIPOBJ_H_RKEY), SLICE("77")},
		more,
	};

	ask(step, headers, more.name.len ? 6 : 5);
	return got.status;
}

static uint32_t say(enum hipobj_step step, const char *session)
{
	return say_with(step, session, (struct s3_header){SLICE_NONE, SLICE_NONE});
}

static void nothing_held(void)
{
	const struct hipobj_shared *group = rig_front->shared;

	assert_int_equal(rig_front->session_count, 0);
	assert_true(list_empty(&rig_front->sessions));
	assert_int_equal(group->sessions, 0);
	assert_int_equal(group->staged_bytes, 0);
	for (uint32_t i = 0; i < FLOW_SHARES; i++) {
		assert_int_equal(group->share_sessions[i], 0);
		assert_int_equal(group->share_bytes[i], 0);
		assert_int_equal(atomic_load(&fake.loop_blocked), 0);
	}
	for (uint32_t i = 0; i < ARRAY_LEN(rig_front->places); i++)
		assert_null(rig_front->places[i]);
	assert_int_equal(fake.qps_open, 0);
}

/* Alice's session for a PUT. */
static void begin(char session[33])
{
	who = "alice";
	whose_share = 1;
	assert_int_equal(prepare("PUT", "4096"), 200);
	memcpy(session, got.session, sizeof(got.session));
}

static void all_ended(void)
{
	while (rig_front->shared->sessions)
		fiber_yield();
	nothing_held();
}

/* ---- Opening. ---- */

static void fails(int *error, int value, const char *op, bool unsupported)
{
	*error = value;
	prepare(op, "4096");
	*error = 0;
	if (unsupported) {
		assert_int_equal(got.status, 501);
		assert_string_equal(got.protocol_status, HIPOBJ_UNSUPPORTED);
	} else {
		assert_string_equal(got.code, "SlowDown");
	}
	assert_string_equal(got.session, "");
	nothing_held();
}

static void opening_can_fail_anywhere(void *arg)
{
	(void)arg;
	who = "alice";
	whose_share = 1;
	fails(&fake.pd_open_error, -ENOMEM, "PUT", false);
	fails(&fake.mr_open_error, -ENOMEM, "PUT", false);
	fails(&fake.post_recv_error, -ENOMEM, "PUT", false);
	for (int i = 0; i < 2; i++) {
		fails(&fake.qp_open_error, -EMFILE, i ? "GET" : "PUT", false);
		fails(&fake.address_error, -EIO, i ? "GET" : "PUT", false);
		fails(&fake.join_error, -EINVAL, i ? "GET" : "PUT", true);
	}
	fails(&fake.target_error, -ENOSPC, "GET", false);
	assert_int_equal(prepare("GET", "4096"), 200);
	assert_int_equal(strlen(got.session), 32);
	front_hipobj_drain(rig_front);
	nothing_held();
}
RIG_TEST(opening_can_fail_anywhere);

/* A principal has half of the sessions and of the memory. */
static void bounds_hold(void *arg)
{
	(void)arg;
	who = "alice";
	whose_share = 1;
	for (int i = 0; i < 3; i++)
		assert_int_equal(prepare("GET", "4096"), 200);
	prepare("GET", "4096");
	assert_string_equal(got.code, "SlowDown");
	who = "bob";
	whose_share = 2;
	assert_int_equal(prepare("PUT", "32768"), 200);
	prepare("PUT", "1");
	assert_string_equal(got.code, "SlowDown");
	prepare("PUT", "32769");
	assert_string_equal(got.code, "RDMATransferTooLarge");
	assert_int_equal(prepare("GET", "32769"), 200);
	assert_int_equal(rig_front->session_count, 5);
	front_hipobj_drain(rig_front);
	nothing_held();
}
RIG_TEST(bounds_hold);

/* ---- States. ---- */

static void a_session_is_its_owners(void *arg)
{
	char session[33];

	(void)arg;
	begin(session);
	who = "bob";
	assert_int_equal(say(HIPOBJ_READY, session), 404);
	assert_int_equal(say(HIPOBJ_CANCEL, session), 204);
	assert_int_equal(rig_front->session_count, 1);
	who = "alice";
	CONTAINER_OF(rig_front->sessions.next, struct hipobj_session, link)->moving = true;
	say(HIPOBJ_READY, session);
	assert_string_equal(got.code, "RDMASessionConflict");
	CONTAINER_OF(rig_front->sessions.next, struct hipobj_session, link)->moving = false;
	assert_int_equal(say(HIPOBJ_READY, session), 200);
	assert_int_equal(rig_front->session_count, 0);
	say(HIPOBJ_READY, session);
	assert_string_equal(got.code, "NoSuchRDMASession");
	assert_int_equal(prepare("PUT", "4096"), 200);
	memcpy(session, got.session, sizeof(session));
	assert_int_equal(say(HIPOBJ_CANCEL, session), 204);
	assert_int_equal(say(HIPOBJ_CANCEL, session), 204);
	all_ended();
}
RIG_TEST(a_session_is_its_owners);

/* A READY that s3 refuses ends the session, if it was the owner's. */
static void a_refused_ready_ends_it(void *arg)
{
	char session[33];

	(void)arg;
	begin(session);
	early = UNPROVEN;
	assert_int_equal(say(HIPOBJ_READY, session), 403);
	early = FORBIDS;
	who = "bob";
	assert_int_equal(say(HIPOBJ_READY, session), 403);
	who = "alice";
	CONTAINER_OF(rig_front->sessions.next, struct hipobj_session, link)->moving = true;
	say(HIPOBJ_READY, session);
	CONTAINER_OF(rig_front->sessions.next, struct hipobj_session, link)->moving = false;
	assert_int_equal(rig_front->session_count, 1);
	assert_int_equal(say(HIPOBJ_READY, session), 403);
	early = SERVES;
	assert_int_equal(rig_front->session_count, 0);
	all_ended();
}
RIG_TEST(a_refused_ready_ends_it);

/* ---- Headers of the operation. ---- */

#define SIGNED "AWS4-HMAC-SHA256 Credential=a/b, SignedHeaders="

static void headers_go_with_prepare(void *arg)
{
	static const struct s3_header more[] = {
		{SLICE("Authorization"),
			SLICE(SIGNED "content-md5;content-type;host;if-none-match, Signature=0")},
		{SLICE("If-None-Match"), SLICE("*")},
		{SLICE("Content-MD5"), SLICE("md5")},
		{SLICE("Content-Type"), SLICE("text/plain")},
		{SLICE("Cache-Control"), SLICE("no-store")},
		{SLICE("x-amz-meta-color"), SLICE("blue")},
		{SLICE("x-nebulaio-replica"), SLICE("v1")},
		{SLICE("x-nebulaio-fan-out"), SLICE("name; members=2")},
		{SLICE("x-nebulaio-via"), SLICE("a gateway")},
	};
	char session[33];

	(void)arg;
	who = "alice";
	whose_share = 1;
	assert_int_equal(prepare_with("PUT", "4096", more, ARRAY_LEN(more)), 200);
	memcpy(session, got.session, sizeof(session));
	assert_int_equal(say(HIPOBJ_READY, session), 200);
	assert_string_equal(got.headers, "If-None-Match: *\n"
					 "Content-MD5: md5\n"
					 "Content-Type: text/plain\n"
					 "x-amz-meta-color: blue\n"
					 "x-nebulaio-replica: v1\n"
					 "x-nebulaio-fan-out: name; members=2\n");
	all_ended();
}
RIG_TEST(headers_go_with_prepare);

static void a_condition_must_be_signed(void *arg)
{
	static const struct slice names[] = {SLICE("If-Match"), SLICE("if-none-match"),
		SLICE("If-Modified-Since"), SLICE("If-Unmodified-Since"), SLICE("If-Range"),
		SLICE("Content-MD5")};

	(void)arg;
	who = "alice";
	whose_share = 1;
	for (size_t i = 0; i < 2 * ARRAY_LEN(names); i++) {
		const struct s3_header more[] = {
			{SLICE("authorization"), SLICE(SIGNED "date;host;range, Signature=0")},
			{names[i / 2], SLICE("*")}};

		assert_int_equal(prepare_with(i % 2 ? "GET" : "PUT", "4096", more, 2), 400);
		assert_string_equal(got.code, "InvalidRDMARequest");
		nothing_held();
	}
}
RIG_TEST(a_condition_must_be_signed);

/* READY cannot add a condition or a checksum, but may repeat PREPARE's. */
static void ready_adds_no_condition(void *arg)
{
	static const struct s3_header more[] = {
		{SLICE("authorization"), SLICE(SIGNED "if-match, Signature=0")},
		{SLICE("if-match"), SLICE("\"1\"")}};
	static const struct s3_header added[] = {{SLICE("if-match"), SLICE("\"2\"")},
		{SLICE("if-none-match"), SLICE("*")}, {SLICE("content-md5"), SLICE("md5")},
		{SLICE("x-amz-checksum-crc32"), SLICE("AAAAAA==")}};
	char session[33];

	(void)arg;
	who = "alice";
	whose_share = 1;
	assert_int_equal(prepare_with("PUT", "4096", more, 2), 200);
	memcpy(session, got.session, sizeof(session));
	for (size_t i = 0; i < ARRAY_LEN(added); i++) {
		assert_int_equal(say_with(HIPOBJ_READY, session, added[i]), 400);
		assert_string_equal(got.code, "InvalidRDMARequest");
	}
	assert_int_equal(rig_front->session_count, 1);
	assert_int_equal(say_with(HIPOBJ_READY, session, more[1]), 200);
	all_ended();
}
RIG_TEST(ready_adds_no_condition);

/* A session keeps its place while the numbers of others come round. */
static void numbers_come_round(void *arg)
{
	struct hipobj_session *first, *second;

	(void)arg;
	who = "alice";
	whose_share = 1;
	assert_int_equal(prepare("GET", "4096"), 200);
	first = CONTAINER_OF(rig_front->sessions.next, struct hipobj_session, link);
	rig_front->next_serial = first->serial + ARRAY_LEN(rig_front->places) - 1;
	assert_int_equal(prepare("GET", "4096"), 200);
	second = CONTAINER_OF(rig_front->sessions.next, struct hipobj_session, link);
	assert_ptr_not_equal(first, second);
	assert_ptr_equal(rig_front->places[first->serial % ARRAY_LEN(rig_front->places)], first);
	assert_ptr_equal(rig_front->places[second->serial % ARRAY_LEN(rig_front->places)], second);
	front_hipobj_drain(rig_front);
	nothing_held();
}
RIG_TEST(numbers_come_round);

static void the_sweep_ends_what_waits(void *arg)
{
	(void)arg;
	who = "alice";
	whose_share = 1;
	rig_front->opts.timeout_ns = 1;
	assert_int_equal(prepare("PUT", "4096"), 200);
	assert_int_equal(prepare("GET", "4096"), 200);
	all_ended();
}
RIG_TEST(the_sweep_ends_what_waits);

static void a_fan_out_may_wait(void *arg)
{
	char session[33];

	(void)arg;
	begin(session);
	waits = true;
	say(HIPOBJ_READY, session);
	waits = false;
	all_ended();
}
RIG_TEST(a_fan_out_may_wait);

/* RP_FLUSH_NS after the sweep has ended the session. */
static void later(void *arg)
{
	struct hipobj_session *session = arg;

	while (!session->gone)
		fiber_yield();
	assert_int_equal(fake.qps_open, 1);
	session->gone_ns -= RP_FLUSH_NS;
}

/* A read ends also on a device that flushes nothing, and its target's number is free again. */
static void a_device_that_does_not_flush(void *arg)
{
	struct hipobj_session *session;
	char id[33];

	(void)arg;
	who = "alice";
	whose_share = 1;
	assert_int_equal(prepare("GET", "4096"), 200);
	memcpy(id, got.session, sizeof(id));
	session = CONTAINER_OF(rig_front->sessions.next, struct hipobj_session, link);
	fake_state(session->qp, RP_QPS_RTS);
	rig_front->opts.timeout_ns = 1;
	fake.hold_ring = fake.never_flushes = true;
	assert_int_equal(fiber_spawn(rig, "later", later, session), 0);
	read_error = -ETIMEDOUT;
	say(HIPOBJ_READY, id);
	assert_int_equal(read_error, -ETIMEDOUT);
	read_error = 0;
	nothing_held();
}
RIG_TEST(a_device_that_does_not_flush);

#define RIG_UNIT(fn) cmocka_unit_test_setup_teardown(test_##fn, rig_setup, rig_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_UNIT(opening_can_fail_anywhere),
		RIG_UNIT(bounds_hold),
		RIG_UNIT(a_session_is_its_owners),
		RIG_UNIT(a_refused_ready_ends_it),
		RIG_UNIT(headers_go_with_prepare),
		RIG_UNIT(a_condition_must_be_signed),
		RIG_UNIT(ready_adds_no_condition),
		RIG_UNIT(a_fan_out_may_wait),
		RIG_UNIT(numbers_come_round),
		RIG_UNIT(the_sweep_ends_what_waits),
		RIG_UNIT(a_device_that_does_not_flush),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
