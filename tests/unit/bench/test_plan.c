#include "../unit.h"

#include <errno.h>
#include <string.h>

#include "bench/map_load.h"
#include "bench/plan.h"
#include "bench/wire.h"

static uint32_t rows_of(const struct bench_plan *plan)
{
	uint32_t rows = 0;

	for (uint32_t g = 0; g < plan->group_count; g++) {
		for (uint32_t m = 0; m < plan->groups[g].count; m++)
			rows += plan->groups[g].members[m]->subject.kind == BENCH_ROW;
	}
	return rows;
}

static void test_names_are_unique(void **state)
{
	static char names[256][BENCH_NAME_BYTES];
	struct bench_opts opts;
	struct bench_plan plan;
	uint32_t count = 0;

	(void)state;
	bench_defaults(&opts);
	assert_int_equal(bench_plan_open(&opts, &plan), 0);
	for (uint32_t g = 0; g < plan.group_count; g++) {
		for (uint32_t m = 0; m < plan.groups[g].count; m++) {
			const struct bench_subject *subject = &plan.groups[g].members[m]->subject;

			if (subject->kind != BENCH_ROW)
				continue;
			bench_subject_name(subject, names[count]);
			for (uint32_t i = 0; i < count; i++)
				assert_string_not_equal(names[i], names[count]);
			count++;
		}
	}
	assert_true(count > 60);
	bench_plan_close(&plan);
}

static void test_packets_are_held_against_recvmmsg(void **state)
{
	struct bench_record row = {.subject = {.kind = BENCH_ROW,
					   .op = BENCH_INGEST,
					   .way = BENCH_XDP,
					   .bytes = 1500,
					   .depth = 1}};
	struct bench_record anchor = {.subject = {.kind = BENCH_RECVMMSG, .bytes = 1500}};
	const struct bench_group group = {.members = {&anchor, &row}, .count = 2};
	struct bench_opts opts;
	struct bench_plan plan;
	char name[BENCH_NAME_BYTES];

	(void)state;
	assert_string_equal(bench_subject_name(&row.subject, name), "ingest 1500B d1 xdp");
	assert_string_equal(bench_subject_name(&anchor.subject, name), "recvmmsg 1500B");
	assert_ptr_equal(bench_group_anchor(&group, &row), &anchor);
	/* A server on another host accepts no packets of ours. */
	bench_defaults(&opts);
	opts.only = "ingest";
	opts.endpoints = "http://127.0.0.1:1";
	assert_int_equal(bench_plan_open(&opts, &plan), -EINVAL);
	opts.endpoints = NULL;
	if (bench_wire_refused()) {
		assert_int_equal(bench_plan_open(&opts, &plan), -EINVAL);
		return;
	}
	assert_int_equal(bench_plan_open(&opts, &plan), 0);
	/* 64 and 1,500 bytes, and the packets whose way to the disk is timed. */
	assert_int_equal(rows_of(&plan), 3);
	bench_plan_close(&plan);
}

static const struct bench_record *find(const struct bench_group *group, enum bench_way way)
{
	for (uint32_t m = 0; m < group->count; m++) {
		if (group->members[m]->subject.kind == BENCH_ROW &&
			group->members[m]->subject.way == way)
			return group->members[m];
	}
	return NULL;
}

/* Each row of a small group has its anchor in the same run, in a quick run, too. */
static void test_quick_rows_have_anchors(void **state)
{
	static const struct {
		enum bench_op op;
		enum bench_way way;
		enum bench_kind kind;
		enum bench_way anchor; /* kind is BENCH_ROW */
	} WANTED[] = {
		{BENCH_GET, BENCH_SESSIONS, BENCH_ROW, BENCH_RDMA},
		{BENCH_GET, BENCH_BATCH, BENCH_ROW, BENCH_SINGLES},
		{BENCH_GET, BENCH_CLIENTS, BENCH_ROW, BENCH_RDMA},
		{BENCH_MIXED, BENCH_RDMA, BENCH_LOG, BENCH_RDMA},
		{BENCH_MIXED, BENCH_HTTP, BENCH_LOG, BENCH_RDMA},
		{BENCH_FLOW, BENCH_DURABLE, BENCH_LOG, BENCH_RDMA},
		{BENCH_FLOW, BENCH_PEER, BENCH_LOG, BENCH_RDMA},
		{BENCH_GET, BENCH_BESIDE, BENCH_ROW, BENCH_APART},
		{BENCH_GET, BENCH_APART, BENCH_ROW, BENCH_QUIET},
	};
	struct bench_opts opts;
	struct bench_plan plan;

	(void)state;
	bench_defaults(&opts);
	opts.quick = true;
	assert_int_equal(bench_plan_open(&opts, &plan), 0);
	for (size_t i = 0; i < ARRAY_LEN(WANTED); i++) {
		uint32_t found = 0;

		for (uint32_t g = 0; g < plan.group_count; g++) {
			const struct bench_record *row = find(&plan.groups[g], WANTED[i].way);
			const struct bench_record *anchor;

			if (!row || row->subject.op != WANTED[i].op)
				continue;
			found++;
			anchor = bench_group_anchor(&plan.groups[g], row);
			assert_non_null(anchor);
			assert_int_equal(anchor->subject.kind, WANTED[i].kind);
			if (anchor->subject.kind == BENCH_ROW)
				assert_int_equal(anchor->subject.way, WANTED[i].anchor);
		}
		assert_in_range(found, 1, 2);
	}
	bench_plan_close(&plan);
	/* Their anchors are included. */
	opts.quick = false;
	opts.only = "get 4KiB d16 clients";
	assert_int_equal(bench_plan_open(&opts, &plan), 0);
	assert_int_equal(rows_of(&plan), 2);
	bench_plan_close(&plan);
}

static void test_only_picks(void **state)
{
	struct bench_opts opts;
	struct bench_plan plan;

	(void)state;
	bench_defaults(&opts);
	opts.only = "get 4KiB d1 rdma"; /* a whole name: not the cold one that starts with it */
	assert_int_equal(bench_plan_open(&opts, &plan), 0);
	assert_int_equal(rows_of(&plan), 1);
	bench_plan_close(&plan);
	opts.only = "get 4KiB d1 ";
	assert_int_equal(bench_plan_open(&opts, &plan), 0);
	/* Hot: plain, sealed, token, hipobj, one-sided, singles, batch, at rest; cold: plain; a
	 * quiet tenant, and five kinds of noise apart and beside; where this process may, pages of
	 * an object by GETs and by a map. */
	assert_int_equal(rows_of(&plan), 9 + 2 + 11 + (bench_map_refused() ? 0 : 2));
	bench_plan_close(&plan);
	opts.only = "no such row";
	assert_int_equal(bench_plan_open(&opts, &plan), -EINVAL);
}

/* Many connections are compared with few, which are measured, too. */
static void test_connections(void **state)
{
	const struct bench_group *group;
	struct bench_opts opts;
	struct bench_plan plan;

	(void)state;
	bench_defaults(&opts);
	opts.only = "connections";
	assert_int_equal(bench_plan_open(&opts, &plan), 0);
	assert_int_equal(rows_of(&plan), 3);
	bench_plan_close(&plan);
	opts.only = "get 4KiB d1000 connections";
	assert_int_equal(bench_plan_open(&opts, &plan), 0);
	assert_int_equal(rows_of(&plan), 2);
	group = &plan.groups[0];
	assert_int_equal(group->members[0]->subject.depth, 16);
	assert_null(bench_group_anchor(group, group->members[0]));
	assert_ptr_equal(bench_group_anchor(group, group->members[1]), group->members[0]);
	bench_plan_close(&plan);
}

/* So are many sessions with few. A running server may not take so many of one key. */
static void test_each(void **state)
{
	const struct bench_group *group;
	struct bench_opts opts;
	struct bench_plan plan;

	(void)state;
	bench_defaults(&opts);
	opts.quick = true;
	opts.only = "get 4KiB d256 each";
	assert_int_equal(bench_plan_open(&opts, &plan), 0);
	assert_int_equal(rows_of(&plan), 2);
	group = &plan.groups[0];
	assert_int_equal(group->members[0]->subject.depth, 4);
	assert_null(bench_group_anchor(group, group->members[0]));
	assert_ptr_equal(bench_group_anchor(group, group->members[1]), group->members[0]);
	bench_plan_close(&plan);
	opts.endpoints = "rdma://127.0.0.1:1";
	assert_int_equal(bench_plan_open(&opts, &plan), -EINVAL);
}

/* The shortest time of the ping-pong counts for all slices; other anchors' count slice by slice. */
static void test_limits_of_slices(void **state)
{
	struct bench_record record = {.subject.kind = BENCH_PINGPONG, .sample_count = 2};

	(void)state;
	record.samples[0] = (struct bench_sample){.p50_ns = 180, .rate = 1e9 / 180};
	record.samples[1] = (struct bench_sample){.p50_ns = 120, .rate = 1e9 / 120};
	assert_true(bench_record_limit(&record, 0).p50_ns < 121);
	assert_true(bench_record_limit(&record, 0).rate > 8e6);
	record.subject.kind = BENCH_MEMCPY;
	assert_true(bench_record_limit(&record, 0).p50_ns > 179);
}

static void test_rows_have_the_closest_anchor(void **state)
{
	static const struct {
		const char *only;
		enum bench_kind rdma, http;
	} CASES[] = {
		{"get 4KiB d16 ", BENCH_PINGPONG, BENCH_NGINX},
		{"get 1MiB d1 ", BENCH_MEMCPY, BENCH_STREAM},
		{"get 1MiB d16 ", BENCH_MEMCPY, BENCH_NGINX},
		{"put 4KiB d64 ", BENCH_LOG, BENCH_LOG},
		{"empty d1 ", BENCH_PINGPONG, BENCH_TCP},
	};
	struct bench_opts opts;
	struct bench_plan plan;

	(void)state;
	bench_defaults(&opts);
	for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
		const struct bench_group *group;

		opts.only = CASES[i].only;
		assert_int_equal(bench_plan_open(&opts, &plan), 0);
		group = &plan.groups[0];
		assert_int_equal(bench_group_anchor(group, find(group, BENCH_RDMA))->subject.kind,
			CASES[i].rdma);
		assert_int_equal(bench_group_anchor(group, find(group, BENCH_HTTP))->subject.kind,
			CASES[i].http);
		bench_plan_close(&plan);
	}
}

/* Encryption is compared with plain RDMA, tokens with plain HTTP, and both are included. */
static void test_rows_beside_the_plain_ones(void **state)
{
	const struct bench_group *group;
	struct bench_opts opts;
	struct bench_plan plan;

	(void)state;
	bench_defaults(&opts);
	opts.only = "put 1MiB d1 sealed";
	assert_int_equal(bench_plan_open(&opts, &plan), 0);
	assert_int_equal(plan.group_count, 1);
	group = &plan.groups[0];
	assert_ptr_equal(
		bench_group_anchor(group, find(group, BENCH_SEALED)), find(group, BENCH_RDMA));
	assert_null(find(group, BENCH_TOKEN));
	bench_plan_close(&plan);
	opts.only = "get 4KiB d16 onesided";
	assert_int_equal(bench_plan_open(&opts, &plan), 0);
	group = &plan.groups[0];
	assert_ptr_equal(
		bench_group_anchor(group, find(group, BENCH_ONESIDED)), find(group, BENCH_RDMA));
	bench_plan_close(&plan);
	opts.only = "put 4KiB d16 memory";
	assert_int_equal(bench_plan_open(&opts, &plan), 0);
	group = &plan.groups[0];
	assert_ptr_equal(
		bench_group_anchor(group, find(group, BENCH_MEMORY)), find(group, BENCH_RDMA));
	bench_plan_close(&plan);
	opts.only = "get 100KiB d1 batch";
	assert_int_equal(bench_plan_open(&opts, &plan), 0);
	group = &plan.groups[0];
	assert_ptr_equal(
		bench_group_anchor(group, find(group, BENCH_BATCH)), find(group, BENCH_SINGLES));
	bench_plan_close(&plan);
	opts.only = "get 4KiB d1 token";
	assert_int_equal(bench_plan_open(&opts, &plan), 0);
	group = &plan.groups[0];
	assert_ptr_equal(
		bench_group_anchor(group, find(group, BENCH_TOKEN)), find(group, BENCH_HTTP));
	bench_plan_close(&plan);
	opts.only = "get 1MiB d1 atrest";
	assert_int_equal(bench_plan_open(&opts, &plan), 0);
	group = &plan.groups[0];
	assert_ptr_equal(
		bench_group_anchor(group, find(group, BENCH_AT_REST)), find(group, BENCH_HTTP));
	bench_plan_close(&plan);
	opts.only = "put 1MiB d16 remote";
	assert_int_equal(bench_plan_open(&opts, &plan), 0);
	group = &plan.groups[0];
	assert_int_equal(group->count, 2);
	assert_ptr_equal(
		bench_group_anchor(group, find(group, BENCH_REMOTE)), find(group, BENCH_STRIPED));
	assert_null(bench_group_anchor(group, find(group, BENCH_STRIPED)));
	bench_plan_close(&plan);
	/* A server that is already running has no such known volumes. */
	opts.endpoints = "http://127.0.0.1:1";
	assert_int_equal(bench_plan_open(&opts, &plan), -EINVAL);
	opts.endpoints = NULL;
	opts.only = "get 64KiB d1 token";
	assert_int_equal(bench_plan_open(&opts, &plan), -EINVAL);
}

/* One name picks every dialect of S3 over RDMA, each beside HTTP in the same group. */
static void test_dialects(void **state)
{
	static const enum bench_way WAYS[] = {BENCH_RDMA, BENCH_TOKEN, BENCH_HIPOBJ};
	struct bench_opts opts;
	struct bench_plan plan;

	(void)state;
	bench_defaults(&opts);
	opts.only = BENCH_DIALECTS;
	assert_int_equal(bench_plan_open(&opts, &plan), 0);
	assert_int_equal(plan.group_count, 8); /* GET and PUT, 4 KiB and 1 MiB, 1 and 16 deep */
	assert_int_equal(rows_of(&plan), 8 * 4);
	for (uint32_t g = 0; g < plan.group_count; g++) {
		const struct bench_group *group = &plan.groups[g];
		const struct bench_record *http = find(group, BENCH_HTTP);

		assert_non_null(http);
		assert_null(bench_group_http(group, http));
		for (size_t i = 0; i < ARRAY_LEN(WAYS); i++) {
			assert_non_null(find(group, WAYS[i]));
			assert_ptr_equal(bench_group_http(group, find(group, WAYS[i])), http);
		}
		assert_ptr_equal(bench_group_anchor(group, find(group, BENCH_HIPOBJ)), http);
	}
	bench_plan_close(&plan);
	/* A row alone has nothing beside it. */
	opts.only = "get 4KiB d1 rdma";
	assert_int_equal(bench_plan_open(&opts, &plan), 0);
	assert_null(bench_group_http(&plan.groups[0], find(&plan.groups[0], BENCH_RDMA)));
	bench_plan_close(&plan);
	opts.only = "put 1MiB d16 hipobj";
	assert_int_equal(bench_plan_open(&opts, &plan), 0);
	assert_int_equal(rows_of(&plan), 2);
	bench_plan_close(&plan);
}

/* A noisy tenant on the same server is compared with the same one on another server, and that one
 * with none. */
static void test_noisy_tenants(void **state)
{
	const struct bench_record *beside, *apart;
	const struct bench_group *group;
	struct bench_opts opts;
	struct bench_plan plan;

	(void)state;
	bench_defaults(&opts);
	opts.only = "put 4KiB d1 beside lists";
	assert_int_equal(bench_plan_open(&opts, &plan), 0);
	assert_int_equal(plan.group_count, 1);
	group = &plan.groups[0];
	assert_int_equal(group->count, 3);
	beside = find(group, BENCH_BESIDE);
	apart = bench_group_anchor(group, beside);
	assert_ptr_equal(apart, find(group, BENCH_APART));
	assert_int_equal(apart->subject.noise, BENCH_LISTS);
	assert_ptr_equal(bench_group_anchor(group, apart), find(group, BENCH_QUIET));
	assert_null(bench_group_anchor(group, find(group, BENCH_QUIET)));
	bench_plan_close(&plan);
	opts.only = "get 4KiB d1 beside";
	assert_int_equal(bench_plan_open(&opts, &plan), 0);
	group = &plan.groups[0];
	assert_int_equal(group->count, 1 + 2 * (BENCH_NOISE_COUNT - 1));
	for (uint32_t i = 0; i < group->count; i++) {
		const struct bench_record *row = group->members[i];

		if (row->subject.way == BENCH_BESIDE)
			assert_int_equal(
				bench_group_anchor(group, row)->subject.noise, row->subject.noise);
	}
	bench_plan_close(&plan);
	/* A server that is already running has no such tenant. */
	opts.endpoints = "http://127.0.0.1:1";
	assert_int_equal(bench_plan_open(&opts, &plan), -EINVAL);
}

/* Beside another server there are the HTTP rows, each of both, and no others. */
static void test_another_server(void **state)
{
	struct bench_opts opts;
	struct bench_plan plan;

	(void)state;
	bench_defaults(&opts);
	opts.only = "get 4KiB d16 other";
	assert_int_equal(bench_plan_open(&opts, &plan), -EINVAL);
	opts.compare = "127.0.0.1:1";
	assert_int_equal(bench_plan_open(&opts, &plan), 0);
	assert_int_equal(rows_of(&plan), 2);
	assert_ptr_equal(bench_group_anchor(&plan.groups[0], find(&plan.groups[0], BENCH_OTHER)),
		find(&plan.groups[0], BENCH_HTTP));
	bench_plan_close(&plan);
	opts.only = NULL;
	assert_int_equal(bench_plan_open(&opts, &plan), 0);
	for (uint32_t g = 0; g < plan.group_count; g++) {
		uint32_t rows = 0;

		for (uint32_t m = 0; m < plan.groups[g].count; m++)
			rows += plan.groups[g].members[m]->subject.kind == BENCH_ROW;
		assert_int_equal(rows, 2);
		assert_non_null(bench_group_way(&plan.groups[g], BENCH_HTTP));
		assert_non_null(bench_group_way(&plan.groups[g], BENCH_OTHER));
	}
	bench_plan_close(&plan);
}

/* Several clients of the same objects: in step beside ordinary GETs. */
static void test_fan_out_is_beside_nodes(void **state)
{
	struct bench_opts opts;
	struct bench_plan plan;

	(void)state;
	bench_defaults(&opts);
	opts.only = "fan-out";
	assert_int_equal(bench_plan_open(&opts, &plan), 0);
	assert_int_equal(rows_of(&plan), 4);
	for (uint32_t g = 0; g < plan.group_count; g++) {
		const struct bench_record *row = find(&plan.groups[g], BENCH_FAN_OUT);
		const struct bench_record *anchor;

		assert_non_null(row);
		anchor = bench_group_anchor(&plan.groups[g], row);
		assert_non_null(anchor);
		assert_int_equal(anchor->subject.way, BENCH_NODES);
		assert_int_equal(anchor->subject.heat, row->subject.heat);
	}
	bench_plan_close(&plan);
}

/* A map is compared with GETs of the same bytes, and those with a copy, or the ping-pong. */
static void test_maps(void **state)
{
	const struct bench_group *group;
	struct bench_opts opts;
	struct bench_plan plan;

	(void)state;
	if (bench_map_refused())
		skip();
	bench_defaults(&opts);
	opts.only = "d1 map";
	assert_int_equal(bench_plan_open(&opts, &plan), 0);
	assert_int_equal(plan.group_count, 2);
	for (uint32_t g = 0; g < plan.group_count; g++) {
		const struct bench_record *row, *limit;

		group = &plan.groups[g];
		row = find(group, BENCH_READ);
		assert_ptr_equal(bench_group_anchor(group, find(group, BENCH_MAP)), row);
		limit = bench_group_anchor(group, row);
		assert_int_equal(limit->subject.kind,
			row->subject.bytes > MIB ? BENCH_MEMCPY : BENCH_PINGPONG);
		assert_null(find(group, BENCH_RDMA));
	}
	bench_plan_close(&plan);
	opts.compare = "127.0.0.1:1";
	assert_int_equal(bench_plan_open(&opts, &plan), -EINVAL);
}

/* Only the groups of many objects, which no row changes, share a server, and follow each other. */
static void test_servers_of_groups(void **state)
{
	uint32_t sharing = 0, many = 0;
	struct bench_opts opts;
	struct bench_plan plan;

	(void)state;
	bench_defaults(&opts);
	assert_int_equal(bench_plan_open(&opts, &plan), 0);
	for (uint32_t g = 0; g < plan.group_count; g++) {
		const struct bench_group *group = &plan.groups[g];

		many += find(group, BENCH_MANY) != NULL;
		if (!g || !bench_group_shares_server(group, group - 1))
			continue;
		sharing++;
		assert_non_null(find(group, BENCH_MANY));
		assert_in_range(find(group, BENCH_MANY)->subject.op, BENCH_GET, BENCH_HEAD);
		assert_int_not_equal(find(group, BENCH_MANY)->subject.op, BENCH_PUT);
	}
	assert_int_equal(many, 4);
	assert_int_equal(sharing, many - 1);
	bench_plan_close(&plan);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fan_out_is_beside_nodes),
		cmocka_unit_test(test_names_are_unique),
		cmocka_unit_test(test_only_picks),
		cmocka_unit_test(test_packets_are_held_against_recvmmsg),
		cmocka_unit_test(test_quick_rows_have_anchors),
		cmocka_unit_test(test_connections),
		cmocka_unit_test(test_each),
		cmocka_unit_test(test_limits_of_slices),
		cmocka_unit_test(test_rows_have_the_closest_anchor),
		cmocka_unit_test(test_rows_beside_the_plain_ones),
		cmocka_unit_test(test_dialects),
		cmocka_unit_test(test_noisy_tenants),
		cmocka_unit_test(test_another_server),
		cmocka_unit_test(test_servers_of_groups),
		cmocka_unit_test(test_maps),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
