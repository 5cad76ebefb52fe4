/* The multicast of a group, by the simulated device: whose turn it is, members that are late, slow,
 * gone or wrong, a sender that fails, and what stands in the datagrams. */
#include "rig.h"

#include "../own.h"
#include "flow/fan_out.h"
#include "rdma/datagram.h"
#include "store/ends/ends.h"

#include <errno.h>
#include <stdio.h>

#define BYTES	 (5 * MIB + 4097)
#define PATIENCE (500 * NS_PER_MS) /* a group ends after a silence of 30 */
#define LONG_NS	 (3600 * NS_PER_S) /* too long for this test */
#define MEMBERS	 3u
#define SLOTS	 CAST_PART_DATAGRAMS_MAX

static struct flow_fans *fans;
static uint32_t done_count, sent_count, past_count, off_count;
static char first_group[OWN_GROUP_BYTES];

struct member {
	struct flow_fan_ask ask;
	uint64_t parts_max; /* then it asks no more; 0: never */
	uint64_t stands_at; /* before it asks for that part, until released; 0: never */
	bool released;
	bool bad_source; /* its source ends too early */
	uint64_t asked;	 /* parts that have an answer */
	struct cast_grant grant;
	const char *why;
	enum flow_fan_role role;
	struct rp_member rp;
	struct aead *aead;
	bool drains, drained;
	uint32_t datagrams, forged;
	bool done;
};

static struct member members[MEMBERS];

/* ---- Receiving. ---- */

static void datagram_check(struct member *member, const struct rp_wc *wc)
{
	const uint8_t *datagram = rp_member_in(&member->rp, wc->wr_id) + RP_GRH_BYTES;
	uint8_t payload[CAST_PAYLOAD_MAX];
	struct cast_head head;

	assert_int_equal(wc->status, RP_WC_SUCCESS);
	if (!cast_look(datagram, wc->byte_len - RP_GRH_BYTES, member->grant.stream, &head)) {
		member->forged++;
	} else {
		assert_int_equal(cast_unseal(member->aead, datagram, &head, payload), 0);
		assert_memory_equal(payload, content + head.offset, head.bytes);
		member->datagrams++;
	}
	assert_int_equal(rp_member_post(&member->rp, wc->wr_id), 0);
}

static void drain_main(void *arg)
{
	struct member *member = (struct member *)arg;
	struct rp_wc wc;

	while (member->drains) {
		if (rp_cq_poll(member->rp.cq, &wc, 1) > 0)
			datagram_check(member, &wc);
		else
			fiber_yield();
	}
	member->drained = true;
}

static void join(struct member *member)
{
	const struct rp_member_opts opts = {.device = {.device_name = "simulated", .gid_index = -1},
		.group = member->grant.group,
		.slot_count = SLOTS,
		.bytes = member->grant.payload_bytes + CAST_OVERHEAD};
	struct rp_cm_event event = {.type = RP_CM_ESTABLISHED};

	assert_int_equal(aead_open(member->grant.key, &member->aead), 0);
	assert_int_equal(rp_member_open(&opts, &member->rp), 0);
	while (event.type != RP_CM_GROUP_JOINED)
		if (rp_cm_poll(member->rp.device, &event) <= 0)
			fiber_sleep_ns(NS_PER_MS);
	member->drains = true;
	assert_int_equal(fiber_spawn(reactor, "drain", drain_main, member), 0);
}

static void leave(struct member *member)
{
	if (!member->drains)
		return;
	member->drains = false;
	while (!member->drained)
		fiber_yield();
	rp_member_close(&member->rp);
	aead_close(member->aead);
}

/* ---- Asking. ---- */

static enum flow_cast_part part_ask(struct member *member, uint64_t offset)
{
	struct flow_fan_ask ask = member->ask;
	struct flow_source *source;
	enum flow_cast_part part;
	struct flow_fan_read read;
	uint64_t bytes;

	ask.offset = offset;
	ask.bytes = bytes = cast_part_bytes(ask.object_bytes, offset, member->grant.payload_bytes);
	member->role = flow_cast_ask(fans, &ask, 0, &read, &part);
	if (member->role == FLOW_FAN_MEMBER && part == FLOW_CAST_SEND) {
		if (member->bad_source)
			bytes -= 4096;
		assert_int_equal(
			local_get_source(fake_get(&fake), &core, offset, bytes, &source), 0);
		if (flow_cast_send(&read, source))
			part = FLOW_CAST_OFF;
	}
	if (member->role == FLOW_FAN_MEMBER)
		flow_fan_end(&read, true);
	return part;
}

static void member_main(void *arg)
{
	struct member *member = (struct member *)arg;
	uint64_t full;

	member->role = flow_cast_enter(fans, &member->ask, &member->grant, &member->why);
	if (member->role == FLOW_FAN_MEMBER && !member->why) {
		join(member);
		full = cast_part_full(member->grant.payload_bytes);
		for (uint64_t at = 0; at < member->ask.object_bytes; at += full) {
			enum flow_cast_part part;

			if (member->parts_max && at == member->parts_max * full)
				break;
			while (member->stands_at && at >= member->stands_at * full &&
				!member->released)
				fiber_sleep_ns(NS_PER_MS);
			part = part_ask(member, at);
			if (member->role != FLOW_FAN_MEMBER)
				break;
			member->asked++;
			sent_count += part == FLOW_CAST_SEND;
			past_count += part == FLOW_CAST_PAST;
			off_count += part == FLOW_CAST_OFF;
		}
		leave(member);
	}
	member->done = true;
	done_count++;
}

static void fans_begin(uint64_t patience_ns)
{
	struct flow_fans_opts opts = {.window_bytes = 32 * MIB, .patience_ns = patience_ns};

	own_group(0, first_group);
	opts.cast = (struct flow_cast_opts){.device = {.device_name = "simulated", .gid_index = -1},
		.group = first_group,
		.rate = 2 * GIB};
	assert_int_equal(flow_fans_open(&opts, &fans), 0);
	fake_store_fill(&fake, content, 6 * MIB);
	memset(members, 0, sizeof(members));
	done_count = sent_count = past_count = off_count = 0;
	for (uint32_t i = 0; i < MEMBERS; i++)
		members[i].ask = (struct flow_fan_ask){.object = SLICE("bucket/weights 1"),
			.name = SLICE("job-7"),
			.object_bytes = BYTES,
			.member = i + 1,
			.count = MEMBERS,
			.wait_ns = LONG_NS,
			.casts = true};
}

static void fans_end(void)
{
	flow_fans_close(fans);
}

static void member_start(uint32_t idx)
{
	assert_int_equal(fiber_spawn(reactor, "member", member_main, &members[idx]), 0);
}

static void members_wait(uint32_t count)
{
	while (done_count < count)
		fiber_sleep_ns(NS_PER_MS);
}

static uint64_t parts_of(const struct member *member)
{
	uint64_t full = cast_part_full(member->grant.payload_bytes);

	return (BYTES + full - 1) / full;
}

/* ---- All is well. ---- */

/* Each part goes out once, and brings the same bytes to all, under one key. */
static void parts_go_out_once(void)
{
	fans_begin(LONG_NS);
	for (uint32_t i = 0; i < MEMBERS; i++)
		member_start(i);
	members_wait(MEMBERS);
	assert_int_equal(sent_count, parts_of(&members[0]));
	assert_int_equal(past_count + off_count, 0);
	for (uint32_t i = 0; i < MEMBERS; i++) {
		assert_int_equal(members[i].role, FLOW_FAN_MEMBER);
		assert_int_equal(members[i].asked, parts_of(&members[i]));
		assert_true(members[i].datagrams > 0);
		assert_int_equal(members[i].forged, 0);
		assert_memory_equal(
			&members[i].grant, &members[0].grant, sizeof(struct cast_grant));
	}
	fans_end();
}

/* Nothing goes out before all have asked. */
static void parts_wait_for_all(void)
{
	fans_begin(LONG_NS);
	members[2].stands_at = 2;
	for (uint32_t i = 0; i < MEMBERS; i++)
		member_start(i);
	while (members[0].asked < 2 || members[1].asked < 2)
		fiber_sleep_ns(NS_PER_MS);
	for (uint32_t i = 0; i < 50; i++)
		fiber_sleep_ns(NS_PER_MS);
	assert_int_equal(members[0].asked, 2);
	assert_int_equal(sent_count, 2);
	members[2].released = true;
	members_wait(MEMBERS);
	assert_int_equal(sent_count, parts_of(&members[0]));
	assert_int_equal(past_count, 0);
	fans_end();
}

/* ---- Members that are not as they should be. ---- */

/* One that stands is waited for as long as the patience is; then it reads by itself what went out.
 */
static void slow_one_is_left_behind(void)
{
	fans_begin(PATIENCE);
	members[2].stands_at = 1;
	for (uint32_t i = 0; i < MEMBERS; i++)
		member_start(i);
	members_wait(MEMBERS - 1);
	assert_false(members[2].done);
	assert_int_equal(sent_count, parts_of(&members[0]));
	members[2].released = true;
	members_wait(MEMBERS);
	/* Those of the others are more if this process did not run for the patience. */
	assert_in_range(past_count, parts_of(&members[0]) - 1, UINT32_MAX);
	assert_int_equal(sent_count, parts_of(&members[0]));
	fans_end();
}

/* One that reads by itself is not waited for at all. */
static void one_that_leaves_holds_nobody(void)
{
	struct flow_fan_read read;
	struct flow_fan_ask ask;

	fans_begin(LONG_NS);
	members[2].parts_max = 1;
	for (uint32_t i = 0; i < MEMBERS; i++)
		member_start(i);
	while (!members[2].done)
		fiber_sleep_ns(NS_PER_MS);
	ask = members[2].ask;
	/* The object is smaller than a window: without this it would be none of the group. */
	ask.casts = true;
	assert_int_equal(flow_fan_begin(fans, &ask, &read), FLOW_FAN_MEMBER);
	members_wait(MEMBERS);
	flow_fan_end(&read, true);
	assert_int_equal(sent_count, parts_of(&members[0]));
	fans_end();
}

static bool gone(const void *arg)
{
	const struct member *member = (const struct member *)arg;

	return member->asked >= 1;
}

/* One whose client dies while it waits for its turn leaves. */
static void dead_one_holds_nobody(void)
{
	fans_begin(LONG_NS);
	members[0].ask.left = gone;
	members[0].ask.arg = &members[0];
	members[2].stands_at = 1;
	for (uint32_t i = 0; i < MEMBERS; i++)
		member_start(i);
	/* It waits for the third, and goes. */
	while (!members[0].done)
		fiber_sleep_ns(NS_PER_MS);
	assert_int_equal(members[0].role, FLOW_FAN_APART);
	members[2].released = true;
	members_wait(MEMBERS);
	assert_int_equal(members[1].asked, parts_of(&members[1]));
	assert_int_equal(members[2].asked, parts_of(&members[2]));
	fans_end();
}

/* One that comes late reads what went out, and has the rest by multicast. */
static void late_one_catches_up(void)
{
	fans_begin(LONG_NS);
	members[0].ask.count = members[1].ask.count = 2;
	members[0].stands_at = members[1].stands_at = 2;
	member_start(0);
	member_start(1);
	while (members[0].asked < 2 || members[1].asked < 2)
		fiber_sleep_ns(NS_PER_MS);
	member_start(2);
	while (members[2].asked < 2)
		fiber_sleep_ns(NS_PER_MS);
	assert_int_equal(past_count, 2);
	members[0].released = members[1].released = true;
	members_wait(MEMBERS);
	assert_int_equal(past_count, 2);
	assert_int_equal(sent_count, parts_of(&members[0]));
	assert_true(members[2].datagrams > 0);
	fans_end();
}

/* A part that nobody asks for is not waited for without end; it can go out later. Meanwhile another
 * member's read keeps the group, which would end after a silence as long as that wait. */
static void a_gap_in_the_order_has_an_end(void)
{
	struct member *member = &members[0];
	struct flow_fan_read read;

	fans_begin(20 * NS_PER_MS);
	member->ask.count = members[1].ask.count = 1;
	assert_int_equal(flow_fan_begin(fans, &members[1].ask, &read), FLOW_FAN_MEMBER);
	assert_int_equal(
		flow_cast_enter(fans, &member->ask, &member->grant, &member->why), FLOW_FAN_MEMBER);
	assert_null(member->why);
	assert_int_equal(
		part_ask(member, cast_part_full(member->grant.payload_bytes)), FLOW_CAST_OFF);
	assert_int_equal(member->role, FLOW_FAN_MEMBER);
	assert_int_equal(part_ask(member, 0), FLOW_CAST_SEND);
	flow_fan_end(&read, true);
	fans_end();
}

static void wrong_ranges_are_no_parts(void)
{
	struct flow_fan_read read;
	enum flow_cast_part part;
	struct flow_fan_ask ask;

	fans_begin(LONG_NS);
	ask = members[0].ask;
	ask.count = 1;
	assert_int_equal(
		flow_cast_enter(fans, &ask, &members[0].grant, &members[0].why), FLOW_FAN_MEMBER);
	assert_null(members[0].why);
	for (uint64_t bytes = 1; bytes < BYTES; bytes += MIB) {
		ask.bytes = bytes;
		assert_int_equal(flow_cast_ask(fans, &ask, 0, &read, &part), FLOW_FAN_MEMBER);
		assert_int_equal(part, FLOW_CAST_OFF);
		flow_fan_end(&read, true);
	}
	fans_end();
}

/* ---- The end of a multicast. ---- */

static void failed_source_ends_it_for_all(void)
{
	fans_begin(LONG_NS);
	for (uint32_t i = 0; i < MEMBERS; i++)
		members[i].bad_source = true;
	for (uint32_t i = 0; i < MEMBERS; i++)
		member_start(i);
	members_wait(MEMBERS);
	assert_int_equal(sent_count + past_count, 0);
	assert_int_equal(off_count, MEMBERS * parts_of(&members[0]));
	fans_end();
}

static void stop_ends_all_waits(void)
{
	fans_begin(LONG_NS);
	members[2].stands_at = 1;
	for (uint32_t i = 0; i < MEMBERS; i++)
		member_start(i);
	while (members[0].asked < 1 || members[1].asked < 1)
		fiber_sleep_ns(NS_PER_MS);
	flow_fans_stop(fans);
	members_wait(MEMBERS - 1);
	assert_true(off_count > 0);
	members[2].released = true;
	members_wait(MEMBERS);
	fans_end();
}

/* ---- Entering. ---- */

static void other_bytes_have_another_key(void)
{
	struct cast_grant grants[2];
	struct flow_fan_ask ask;
	const char *why;

	fans_begin(LONG_NS);
	ask = members[0].ask;
	assert_int_equal(flow_cast_enter(fans, &ask, &grants[0], &why), FLOW_FAN_MEMBER);
	ask.object = SLICE("bucket/weights 2");
	assert_int_equal(flow_cast_enter(fans, &ask, &grants[1], &why), FLOW_FAN_MEMBER);
	assert_null(why);
	assert_true(grants[0].stream != grants[1].stream);
	assert_memory_not_equal(grants[0].key, grants[1].key, AEAD_KEY_BYTES);
	assert_string_not_equal(grants[0].group, grants[1].group);
	fans_end();
}

/* And one principal has half of them at most. */
static void groups_are_bounded(void)
{
	struct cast_grant grant;
	struct flow_fan_ask ask;
	const char *why;
	char name[16];

	fans_begin(LONG_NS);
	ask = members[0].ask;
	/* The first principal gets half, the second the rest, and the third nothing. */
	for (uint32_t i = 0; i < 3 * (FLOW_CAST_GROUPS_MAX / 2 + 1); i++) {
		snprintf(name, sizeof(name), "group-%u", i);
		ask.name = slice_str(name);
		ask.share = (uint16_t)(1 + i / (FLOW_CAST_GROUPS_MAX / 2 + 1));
		assert_int_equal(flow_cast_enter(fans, &ask, &grant, &why), FLOW_FAN_MEMBER);
		if (ask.share < 3 && i % (FLOW_CAST_GROUPS_MAX / 2 + 1) < FLOW_CAST_GROUPS_MAX / 2)
			assert_null(why);
		else
			assert_string_equal(why, "too many groups");
	}
	fans_end();
}

/* It is a member as any other, whatever lacks, and is told why. */
static void what_lacks_is_told(void)
{
	static const struct flow_cast_opts LACKING[] = {{.group = NULL}, {.group = ""},
		{.device = {.device_name = "none such", .gid_index = -1},
			.group = "239.1.2.3",
			.rate = GIB}};
	struct flow_fans_opts opts = {.window_bytes = 32 * MIB, .patience_ns = LONG_NS};
	struct cast_grant grant;
	const char *why;

	for (size_t i = 0; i < ARRAY_LEN(LACKING); i++) {
		fans_begin(LONG_NS);
		fans_end();
		opts.cast = LACKING[i];
		assert_int_equal(flow_fans_open(&opts, &fans), 0);
		assert_int_equal(
			flow_cast_enter(fans, &members[0].ask, &grant, &why), FLOW_FAN_MEMBER);
		assert_non_null(why);
		fans_end();
	}
}

static void run(body_fn *fn)
{
	rig_run(64 * MIB, true, fn);
}

static void test_parts(void **state)
{
	(void)state;
	run(parts_go_out_once);
	run(parts_wait_for_all);
}

static void test_members(void **state)
{
	(void)state;
	run(slow_one_is_left_behind);
	run(one_that_leaves_holds_nobody);
	run(dead_one_holds_nobody);
	run(late_one_catches_up);
	run(a_gap_in_the_order_has_an_end);
	run(wrong_ranges_are_no_parts);
}

static void test_ends(void **state)
{
	(void)state;
	run(failed_source_ends_it_for_all);
	run(stop_ends_all_waits);
}

static void test_entering(void **state)
{
	(void)state;
	run(other_bytes_have_another_key);
	run(groups_are_bounded);
	run(what_lacks_is_told);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parts),
		cmocka_unit_test(test_members),
		cmocka_unit_test(test_ends),
		cmocka_unit_test(test_entering),
	};

	return rig_main("fan_cast", tests, ARRAY_LEN(tests));
}
