/* bench/plan.c: the list of rows, and the anchors of each. */
#include "bench/plan.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/map_load.h"
#include "bench/wire.h"

enum row_set {
	ROWS_FULL,
	ROWS_QUICK,	  /* a mark needs them */
	ROWS_MANY,	  /* of few objects and of many */
	ROWS_MAPS,	  /* of objects that are memory alone */
	ROWS_CONNECTIONS, /* over few connections and many alone */
	ROWS_EACH,	  /* over few sessions and many alone */
	ROWS_CODED,	  /* over several volumes alone */
	ROWS_TENANTS,	  /* a quiet tenant beside a noisy one alone */
	ROWS_NODES,	  /* each of several processes reads every object */
};

/* One group: an operation over both transports, and its anchors. */
struct row_group {
	enum bench_op op;
	enum bench_heat heat;
	uint64_t bytes;
	uint32_t depth;
	enum row_set set;
};

static const struct row_group GROUPS[] = {
	{BENCH_EMPTY, BENCH_HOT, 0, 1, ROWS_QUICK},
	{BENCH_EMPTY, BENCH_HOT, 0, 4, ROWS_FULL},
	{BENCH_EMPTY, BENCH_HOT, 0, 16, ROWS_FULL},
	{BENCH_EMPTY, BENCH_HOT, 0, 64, ROWS_FULL},
	{BENCH_GET, BENCH_HOT, 4 * KIB, 1, ROWS_QUICK},
	{BENCH_GET, BENCH_HOT, 4 * KIB, 4, ROWS_FULL},
	{BENCH_GET, BENCH_HOT, 4 * KIB, 16, ROWS_QUICK},
	{BENCH_GET, BENCH_HOT, 4 * KIB, 64, ROWS_FULL},
	{BENCH_GET, BENCH_HOT, 64 * KIB, 1, ROWS_FULL},
	{BENCH_GET, BENCH_HOT, 64 * KIB, 4, ROWS_FULL},
	{BENCH_GET, BENCH_HOT, 64 * KIB, 16, ROWS_FULL},
	{BENCH_GET, BENCH_HOT, 64 * KIB, 64, ROWS_FULL},
	{BENCH_GET, BENCH_HOT, 100 * KIB, 1, ROWS_FULL},
	{BENCH_GET, BENCH_HOT, 1 * MIB, 1, ROWS_QUICK},
	{BENCH_GET, BENCH_HOT, 1 * MIB, 4, ROWS_FULL},
	{BENCH_GET, BENCH_HOT, 1 * MIB, 16, ROWS_QUICK},
	{BENCH_GET, BENCH_HOT, BENCH_HUGE_BYTES, 1, ROWS_FULL},
	{BENCH_GET, BENCH_HOT, BENCH_HUGE_BYTES, 4, ROWS_FULL},
	{BENCH_GET, BENCH_HOT, BENCH_HUGE_BYTES, 1, ROWS_MAPS},
	{BENCH_GET, BENCH_HOT, 4 * KIB, 1, ROWS_MAPS},
	{BENCH_GET, BENCH_COLD, 4 * KIB, 1, ROWS_FULL},
	{BENCH_GET, BENCH_COLD, 4 * KIB, 16, ROWS_FULL},
	{BENCH_GET, BENCH_COLD, 1 * MIB, 1, ROWS_FULL},
	{BENCH_GET, BENCH_COLD, 1 * MIB, 16, ROWS_FULL},
	{BENCH_GET, BENCH_HOT, BENCH_SMALL_BYTES, 1, ROWS_MANY},
	{BENCH_GET, BENCH_HOT, BENCH_SMALL_BYTES, 16, ROWS_MANY},
	{BENCH_HEAD, BENCH_HOT, BENCH_SMALL_BYTES, 1, ROWS_MANY},
	{BENCH_HEAD, BENCH_HOT, BENCH_SMALL_BYTES, 16, ROWS_MANY},
	{BENCH_GET, BENCH_HOT, 4 * KIB, 16, ROWS_CONNECTIONS},
	{BENCH_GET, BENCH_HOT, 4 * KIB, BENCH_EACH_FEW, ROWS_EACH},
	{BENCH_PUT, BENCH_HOT, 4 * KIB, 1, ROWS_QUICK},
	{BENCH_PUT, BENCH_HOT, 4 * KIB, 4, ROWS_FULL},
	{BENCH_PUT, BENCH_HOT, 4 * KIB, 16, ROWS_QUICK},
	{BENCH_PUT, BENCH_HOT, 4 * KIB, 64, ROWS_QUICK},
	{BENCH_PUT, BENCH_HOT, 64 * KIB, 1, ROWS_FULL},
	{BENCH_PUT, BENCH_HOT, 64 * KIB, 16, ROWS_FULL},
	{BENCH_PUT, BENCH_HOT, 1 * MIB, 1, ROWS_FULL},
	{BENCH_PUT, BENCH_HOT, 1 * MIB, 4, ROWS_FULL},
	{BENCH_PUT, BENCH_HOT, 1 * MIB, 16, ROWS_QUICK},
	{BENCH_PUT, BENCH_HOT, BENCH_HUGE_BYTES, 1, ROWS_FULL},
	{BENCH_PUT, BENCH_HOT, BENCH_HUGE_BYTES, 4, ROWS_FULL},
	{BENCH_HEAD, BENCH_HOT, 4 * KIB, 1, ROWS_FULL},
	{BENCH_HEAD, BENCH_HOT, 4 * KIB, 16, ROWS_FULL},
	{BENCH_HEAD, BENCH_HOT, 4 * KIB, 64, ROWS_FULL},
	{BENCH_LIST, BENCH_HOT, 0, 1, ROWS_QUICK},
	{BENCH_LIST, BENCH_HOT, 0, 4, ROWS_FULL},
	{BENCH_LIST, BENCH_HOT, 0, 16, ROWS_FULL},
	{BENCH_MIXED, BENCH_HOT, 4 * KIB, 1, ROWS_FULL},
	{BENCH_MIXED, BENCH_HOT, 4 * KIB, 16, ROWS_QUICK},
	{BENCH_MIXED, BENCH_HOT, 1 * MIB, 4, ROWS_FULL},
	{BENCH_DELETE, BENCH_HOT, 4 * KIB, 1, ROWS_FULL},
	{BENCH_DELETE, BENCH_HOT, 4 * KIB, 16, ROWS_FULL},
	{BENCH_DELETE, BENCH_HOT, 4 * KIB, 64, ROWS_FULL},
	{BENCH_GET, BENCH_HOT, 1 * MIB, 1, ROWS_CODED},
	{BENCH_GET, BENCH_HOT, 1 * MIB, 16, ROWS_CODED},
	{BENCH_PUT, BENCH_HOT, 1 * MIB, 1, ROWS_CODED},
	{BENCH_PUT, BENCH_HOT, 1 * MIB, 16, ROWS_CODED},
	{BENCH_GET, BENCH_HOT, BENCH_HUGE_BYTES, BENCH_SESSION_COUNT, ROWS_NODES},
	{BENCH_GET, BENCH_COLD, BENCH_HUGE_BYTES, BENCH_SESSION_COUNT, ROWS_NODES},
	{BENCH_GET, BENCH_HOT, 4 * KIB, 1, ROWS_TENANTS},
	{BENCH_PUT, BENCH_HOT, 4 * KIB, 1, ROWS_TENANTS},
	{BENCH_FLOW, BENCH_HOT, 1 * MIB, 1, ROWS_QUICK},
	{BENCH_INGEST, BENCH_HOT, 64, 1, ROWS_FULL},
	{BENCH_INGEST, BENCH_HOT, 1500, 1, ROWS_QUICK},
	{BENCH_INGEST, BENCH_HOT, BENCH_PAYLOAD_PACKET, 1, ROWS_QUICK},
};

/* Rows that differ only in the number of connections or sessions; the others are compared with the
 * first. */
#define COUNTS_MAX 3u
struct counted_rows {
	enum bench_way way;
	uint32_t counts[COUNTS_MAX]; /* 0: no more */
};
static const struct counted_rows CONNECTIONS = {
	BENCH_CONNECTIONS, {16, 256, BENCH_CONNECTIONS_MANY}};
static const struct counted_rows EACH = {BENCH_EACH, {BENCH_EACH_FEW, BENCH_EACH_MANY}};

/* NULL: a group of another kind. */
static const struct counted_rows *counted_of(const struct row_group *from)
{
	return from->set == ROWS_CONNECTIONS ? &CONNECTIONS : from->set == ROWS_EACH ? &EACH : NULL;
}

static const char *const WAY_WORDS[BENCH_WAY_COUNT] = {
	[BENCH_RDMA] = "rdma",
	[BENCH_HTTP] = "http",
	[BENCH_SEALED] = "sealed",
	[BENCH_TOKEN] = "token",
	[BENCH_HIPOBJ] = "hipobj",
	[BENCH_AT_REST] = "atrest",
	[BENCH_UNSIGNED] = "unsigned",
	[BENCH_SESSIONS] = "sessions",
	[BENCH_CLIENTS] = "clients",
	[BENCH_NODES] = "nodes",
	[BENCH_FAN_OUT] = "fan-out",
	[BENCH_SINGLES] = "singles",
	[BENCH_BATCH] = "batch",
	[BENCH_READ] = "read",
	[BENCH_MAP] = "map",
	[BENCH_DURABLE] = "durable",
	[BENCH_PEER] = "peer",
	[BENCH_MANY] = "many",
	[BENCH_CONNECTIONS] = "connections",
	[BENCH_EACH] = "each",
	[BENCH_OTHER] = "other",
	[BENCH_XDP] = "xdp",
	[BENCH_ONESIDED] = "onesided",
	[BENCH_MEMORY] = "memory",
	[BENCH_STRIPED] = "striped",
	[BENCH_REMOTE] = "remote",
	[BENCH_QUIET] = "quiet",
	[BENCH_APART] = "apart",
	[BENCH_BESIDE] = "beside",
};

static const char *const NOISE_WORDS[BENCH_NOISE_COUNT] = {
	[BENCH_NO_NOISE] = "",
	[BENCH_UPLOADS] = "uploads",
	[BENCH_DOWNLOADS] = "downloads",
	[BENCH_PUTS] = "puts",
	[BENCH_LISTS] = "lists",
	[BENCH_PARTS] = "parts",
};

bool bench_way_is_http(enum bench_way way)
{
	return way == BENCH_HTTP || way == BENCH_AT_REST || way == BENCH_UNSIGNED ||
	       way == BENCH_CONNECTIONS || way == BENCH_OTHER || way >= BENCH_QUIET;
}

const char *bench_way_word(enum bench_way way)
{
	return WAY_WORDS[way];
}

const char *bench_noise_word(enum bench_noise_kind noise)
{
	return NOISE_WORDS[noise];
}

static const char *const OP_NAMES[] = {
	"empty", "get", "put", "head", "delete", "list", "mixed", "flow", "ingest"};

bool bench_subject_same(const struct bench_subject *a, const struct bench_subject *b)
{
	return a->kind == b->kind && a->op == b->op && a->way == b->way && a->heat == b->heat &&
	       a->bytes == b->bytes && a->depth == b->depth && a->noise == b->noise;
}

const char *bench_subject_name(const struct bench_subject *subject, char buf[BENCH_NAME_BYTES])
{
	bool mebi = subject->bytes >= MIB;
	char size[24] = "";

	if (subject->bytes)
		snprintf(size, sizeof(size), " %u%s",
			(unsigned)(subject->bytes / (mebi ? MIB : KIB)), mebi ? "MiB" : "KiB");
	if (subject->bytes % KIB)
		snprintf(size, sizeof(size), " %uB", (unsigned)subject->bytes);
	switch (subject->kind) {
	case BENCH_ROW:
		snprintf(buf, BENCH_NAME_BYTES, "%s%s d%u %s%s%s%s", OP_NAMES[subject->op], size,
			subject->depth, WAY_WORDS[subject->way], subject->noise ? " " : "",
			NOISE_WORDS[subject->noise], subject->heat == BENCH_COLD ? " cold" : "");
		break;
	case BENCH_PINGPONG:
		snprintf(buf, BENCH_NAME_BYTES, "ping-pong");
		break;
	case BENCH_MEMCPY:
		snprintf(buf, BENCH_NAME_BYTES, "memcpy%s", size);
		break;
	case BENCH_TCP:
		snprintf(buf, BENCH_NAME_BYTES, "tcp round trip");
		break;
	case BENCH_STREAM:
		snprintf(buf, BENCH_NAME_BYTES, "tcp stream%s", size);
		break;
	case BENCH_LOG:
		snprintf(buf, BENCH_NAME_BYTES, "raw log %u", subject->depth);
		break;
	case BENCH_NGINX:
		snprintf(buf, BENCH_NAME_BYTES, "nginx%s d%u", size, subject->depth);
		break;
	case BENCH_RECVMMSG:
		snprintf(buf, BENCH_NAME_BYTES, "recvmmsg%s", size);
		break;
	}
	return buf;
}

/* ---- Making the groups. ---- */

static int add(struct bench_group *group, const struct bench_subject *subject)
{
	struct bench_record *record = calloc(1, sizeof(*record));

	if (!record)
		return -ENOMEM;
	CHECK(group->count < BENCH_GROUP_MAX);
	record->subject = *subject;
	hist_reset(&record->hist);
	record->result.hist = &record->hist;
	group->members[group->count++] = record;
	return 0;
}

static bool is_dialect(enum bench_way way)
{
	return way == BENCH_RDMA || way == BENCH_TOKEN || way == BENCH_HIPOBJ;
}

/* Where the dialects are compared with each other. */
static bool has_dialects(enum bench_op op, enum bench_heat heat, uint64_t bytes, uint32_t depth)
{
	return (op == BENCH_GET || op == BENCH_PUT) && heat == BENCH_HOT &&
	       (bytes == 4 * KIB || bytes == MIB) && (depth == 1 || depth == 16);
}

/* A whole name picks its row alone; anything else picks every row that has it in its name. */
static bool wanted(const struct bench_opts *opts, const struct bench_subject *subject, bool whole)
{
	char name[BENCH_NAME_BYTES];

	if (!opts->only)
		return true;
	if (!strcmp(opts->only, BENCH_DIALECTS))
		return (is_dialect(subject->way) || subject->way == BENCH_HTTP) &&
		       has_dialects(subject->op, subject->heat, subject->bytes, subject->depth);
	bench_subject_name(subject, name);
	return whole ? !strcmp(name, opts->only) : strstr(name, opts->only) != NULL;
}

static struct bench_subject row_of(const struct row_group *from, enum bench_way way)
{
	return (struct bench_subject){.kind = BENCH_ROW,
		.op = from->op,
		.way = way,
		.heat = from->heat,
		.bytes = from->bytes,
		.depth = from->depth};
}

/* A HEAD over RDMA is measured in turns with the GET that it is compared with. */
static bool is_beside_get(enum bench_op op, const struct row_group *from)
{
	return from->op == op && from->set < ROWS_MANY && from->heat == BENCH_HOT &&
	       from->bytes == 4 * KIB && from->depth == 1;
}

/* Encryption is compared with the plain transport where nothing else limits it.
 * One-sided reads are compared for small, hot objects, because they are made for those. */
static bool has_way(const struct row_group *from, enum bench_way way)
{
	if (from->set == ROWS_MANY || way == BENCH_MANY)
		return from->set == ROWS_MANY && (way == BENCH_MANY || way == BENCH_RDMA);
	if (from->set == ROWS_MAPS || way == BENCH_READ || way == BENCH_MAP)
		return from->set == ROWS_MAPS && (way == BENCH_READ || way == BENCH_MAP);
	if (from->set == ROWS_CONNECTIONS || way == BENCH_CONNECTIONS)
		return from->set == ROWS_CONNECTIONS && way == BENCH_CONNECTIONS;
	if (from->set == ROWS_EACH || way == BENCH_EACH)
		return from->set == ROWS_EACH && way == BENCH_EACH;
	if (from->set == ROWS_NODES || way == BENCH_NODES || way == BENCH_FAN_OUT)
		return from->set == ROWS_NODES && (way == BENCH_NODES || way == BENCH_FAN_OUT);
	if (from->set == ROWS_CODED || way == BENCH_STRIPED || way == BENCH_REMOTE)
		return from->set == ROWS_CODED && (way == BENCH_STRIPED || way == BENCH_REMOTE);
	if (from->set == ROWS_TENANTS || way >= BENCH_QUIET)
		return from->set == ROWS_TENANTS && way >= BENCH_QUIET;
	/* Packets of less than 512 bytes have no payload that a disk can write from its place. */
	if (way == BENCH_DURABLE)
		return from->op == BENCH_FLOW ||
		       (from->op == BENCH_INGEST && from->bytes == BENCH_PAYLOAD_PACKET);
	if (from->op == BENCH_FLOW || way == BENCH_PEER)
		return from->op == BENCH_FLOW && way == BENCH_PEER;
	if (from->op == BENCH_INGEST || way == BENCH_XDP)
		return from->op == BENCH_INGEST && way == BENCH_XDP &&
		       from->bytes != BENCH_PAYLOAD_PACKET;
	if (way == BENCH_RDMA && is_beside_get(BENCH_HEAD, from))
		return false;
	if (way == BENCH_RDMA || way == BENCH_HTTP || way == BENCH_OTHER)
		return true;
	if (way == BENCH_SESSIONS || way == BENCH_CLIENTS)
		return from->op == BENCH_GET && from->heat == BENCH_HOT && from->depth == 16 &&
		       (from->bytes == 4 * KIB || from->bytes == MIB);
	if (way == BENCH_BATCH || way == BENCH_SINGLES)
		return from->op == BENCH_GET && from->heat == BENCH_HOT && from->depth == 1 &&
		       (from->bytes == 4 * KIB || from->bytes == 100 * KIB);
	if (way == BENCH_ONESIDED)
		return from->op == BENCH_GET && from->heat == BENCH_HOT && from->bytes == 4 * KIB;
	if (way == BENCH_MEMORY)
		return from->op == BENCH_PUT && from->bytes == 4 * KIB;
	if (way == BENCH_UNSIGNED)
		return from->op == BENCH_GET && from->heat == BENCH_HOT &&
		       from->depth == BENCH_NGINX_DEPTH && from->bytes == 4 * KIB;
	if (way == BENCH_TOKEN || way == BENCH_HIPOBJ)
		return has_dialects(from->op, from->heat, from->bytes, from->depth);
	return (from->op == BENCH_GET || from->op == BENCH_PUT) && from->heat == BENCH_HOT &&
	       from->depth == 1 && from->bytes <= MIB;
}

static bool is_whole_counted(const struct bench_opts *opts, const struct row_group *from)
{
	const struct counted_rows *counted = counted_of(from);
	struct bench_subject row = row_of(from, counted->way);

	for (size_t i = 0; i < COUNTS_MAX && counted->counts[i]; i++) {
		row.depth = counted->counts[i];
		if (wanted(opts, &row, true))
			return true;
	}
	return false;
}

static bool is_whole_name(const struct bench_opts *opts)
{
	for (size_t i = 0; i < ARRAY_LEN(GROUPS) && opts->only; i++) {
		if (counted_of(&GROUPS[i]) && is_whole_counted(opts, &GROUPS[i]))
			return true;
		for (int way = 0; way < BENCH_WAY_COUNT; way++) {
			struct bench_subject row = row_of(&GROUPS[i], (enum bench_way)way);

			row.noise = way > BENCH_QUIET ? BENCH_UPLOADS : BENCH_NO_NOISE;
			for (; row.noise < BENCH_NOISE_COUNT; row.noise++) {
				if (has_way(&GROUPS[i], (enum bench_way)way) &&
					wanted(opts, &row, true))
					return true;
				if (way <= BENCH_QUIET)
					break;
			}
		}
	}
	return false;
}

/* Adds the limits of an operation: for RDMA the ping-pong of the two cores, a copy, or the disk;
 * for HTTP a TCP round trip or stream, or nginx where that does the same. */
static int add_anchors(
	const struct row_group *from, bool has_rdma, bool has_http, struct bench_group *group)
{
	bool large = from->op == BENCH_GET && from->bytes >= 64 * KIB;
	bool writes = from->op == BENCH_PUT || from->op == BENCH_MIXED;
	uint64_t log_blocks = MIN(from->bytes * from->depth / (4 * KIB), (uint64_t)4096);
	int ret = 0;

	if (from->set == ROWS_CODED || from->set == ROWS_TENANTS || from->set == ROWS_NODES)
		return 0;
	if (from->op == BENCH_FLOW ||
		(from->op == BENCH_INGEST && from->bytes == BENCH_PAYLOAD_PACKET))
		return add(group, &(struct bench_subject){.kind = BENCH_LOG,
					  .depth = BENCH_FLOW_SYNC_BYTES / (4 * KIB)});
	if (from->op == BENCH_INGEST)
		return add(group,
			&(struct bench_subject){.kind = BENCH_RECVMMSG, .bytes = from->bytes});
	if (from->op == BENCH_MIXED)
		log_blocks = MAX(log_blocks * (BENCH_MIXED_OF - BENCH_MIXED_READS) / BENCH_MIXED_OF,
			(uint64_t)1);
	if (writes)
		ret = add(group,
			&(struct bench_subject){.kind = BENCH_LOG, .depth = (uint32_t)log_blocks});
	if (has_rdma && !ret && !writes)
		ret = add(group, &(struct bench_subject){.kind = BENCH_PINGPONG});
	if (has_rdma && !ret && large)
		ret = add(
			group, &(struct bench_subject){.kind = BENCH_MEMCPY, .bytes = from->bytes});
	if (has_http && !ret && !writes)
		ret = add(group, &(struct bench_subject){.kind = large ? BENCH_STREAM : BENCH_TCP,
					 .bytes = large ? from->bytes : 0});
	if (has_http && !ret && from->op == BENCH_GET && from->heat == BENCH_HOT &&
		from->depth == BENCH_NGINX_DEPTH && (from->bytes == 4 * KIB || from->bytes == MIB))
		ret = add(group,
			&(struct bench_subject){
				.kind = BENCH_NGINX, .bytes = from->bytes, .depth = from->depth});
	return ret;
}

/* Beside another server there are the HTTP rows alone, of both. Returns whether a row is left. */
static bool choose_compared(const struct bench_opts *opts, bool has[BENCH_WAY_COUNT])
{
	bool http = has[BENCH_HTTP] || has[BENCH_OTHER], any = false;

	if (opts->compare) {
		memset(has, 0, BENCH_WAY_COUNT * sizeof(has[0]));
		has[BENCH_HTTP] = http;
	}
	has[BENCH_OTHER] = opts->compare && http;
	for (int way = 0; way < BENCH_WAY_COUNT; way++)
		any = any || has[way];
	return any;
}

/* No mark needs the others. */
static bool is_quick_way(const struct row_group *from, enum bench_way way)
{
	return way != BENCH_TOKEN && way != BENCH_HIPOBJ && way != BENCH_AT_REST &&
	       (way != BENCH_SEALED || from->op == BENCH_GET);
}

static int make_group(const struct bench_opts *opts, const struct row_group *from, bool whole,
	struct bench_group *group)
{
	struct bench_subject head = row_of(from, BENCH_RDMA);
	bool has[BENCH_WAY_COUNT], has_head;
	int ret;

	head.op = BENCH_HEAD;
	has_head = is_beside_get(BENCH_GET, from) && !opts->compare && wanted(opts, &head, whole);

	for (int way = 0; way < BENCH_WAY_COUNT; way++) {
		struct bench_subject row = row_of(from, (enum bench_way)way);

		has[way] = has_way(from, (enum bench_way)way) && wanted(opts, &row, whole);
	}
	/* Nobody's bucket but our own is made public. */
	has[BENCH_UNSIGNED] &= !opts->endpoints;
	if (!choose_compared(opts, has) && !has_head)
		return 0;
	/* The row that it is compared with is measured, too. */
	has[BENCH_SINGLES] |= has[BENCH_BATCH];
	has[BENCH_NODES] |= has[BENCH_FAN_OUT];
	has[BENCH_READ] |= has[BENCH_MAP];
	has[BENCH_RDMA] |= has[BENCH_SEALED] || has[BENCH_ONESIDED] || has[BENCH_MEMORY] ||
			   has[BENCH_SESSIONS] || has[BENCH_CLIENTS] || has[BENCH_SINGLES] ||
			   has[BENCH_MANY] || has_head;
	has[BENCH_HTTP] |=
		has[BENCH_TOKEN] || has[BENCH_HIPOBJ] || has[BENCH_AT_REST] || has[BENCH_UNSIGNED];
	has[BENCH_STRIPED] |= has[BENCH_REMOTE];
	ret = add_anchors(from, has[BENCH_RDMA] || has[BENCH_READ], has[BENCH_HTTP], group);
	if (has[BENCH_MEMORY] && !ret)
		ret = add(
			group, &(struct bench_subject){.kind = BENCH_MEMCPY, .bytes = from->bytes});
	for (int way = 0; way < BENCH_WAY_COUNT && !ret; way++) {
		struct bench_subject row = row_of(from, (enum bench_way)way);

		if (has[way] && !(opts->quick && !is_quick_way(from, (enum bench_way)way)))
			ret = add(group, &row);
	}
	return has_head && !ret ? add(group, &head) : ret;
}

/* The quiet tenant alone, and for each kind of noise beside it: on another server, on the same. */
static int make_tenants(const struct bench_opts *opts, const struct row_group *from, bool whole,
	struct bench_group *group)
{
	struct bench_subject quiet = row_of(from, BENCH_QUIET);
	struct bench_subject apart = row_of(from, BENCH_APART);
	struct bench_subject beside = row_of(from, BENCH_BESIDE);
	int end = opts->quick ? BENCH_UPLOADS + 1 : BENCH_NOISE_COUNT;
	int ret = wanted(opts, &quiet, whole) ? add(group, &quiet) : 0;

	for (int noise = BENCH_UPLOADS; noise < end && !ret; noise++) {
		apart.noise = beside.noise = (enum bench_noise_kind)noise;
		if (!wanted(opts, &apart, whole) && !wanted(opts, &beside, whole))
			continue;
		/* The row that it is compared with is measured, too. */
		if (!group->count)
			ret = add(group, &quiet);
		if (!ret)
			ret = add(group, &apart);
		if (!ret && wanted(opts, &beside, whole))
			ret = add(group, &beside);
	}
	return ret;
}

static int make_counted(const struct bench_opts *opts, const struct row_group *from, bool whole,
	struct bench_group *group)
{
	const struct counted_rows *counted = counted_of(from);
	struct bench_subject first = row_of(from, counted->way), row = first;
	int ret = 0;

	for (size_t i = 0; i < COUNTS_MAX && counted->counts[i] && !ret; i++) {
		row.depth = counted->counts[i];
		if (!wanted(opts, &row, whole))
			continue;
		/* The row that it is compared with is measured, too. */
		if (!group->count && i)
			ret = add(group, &first);
		if (!ret)
			ret = add(group, &row);
	}
	return ret;
}

/* True when a mark needs it, or no other row is like it: of the tenants, the reads beside
 * uploads. */
static bool is_quick(const struct row_group *from)
{
	return from->set == ROWS_QUICK || counted_of(from) ||
	       (from->set == ROWS_TENANTS && from->op == BENCH_GET);
}

int bench_plan_open(const struct bench_opts *opts, struct bench_plan *ret_plan)
{
	struct bench_plan plan = {.groups = calloc(ARRAY_LEN(GROUPS), sizeof(plan.groups[0]))};
	bool whole = is_whole_name(opts);
	bool packets = !opts->endpoints && !opts->compare && !bench_wire_refused();
	int ret = plan.groups ? 0 : -ENOMEM;

	for (size_t i = 0; i < ARRAY_LEN(GROUPS) && !ret; i++) {
		if (opts->quick && !is_quick(&GROUPS[i]))
			continue;
		if (GROUPS[i].op == BENCH_INGEST && !packets)
			continue;
		if (GROUPS[i].op == BENCH_FLOW && (opts->endpoints || opts->compare))
			continue;
		if (GROUPS[i].set == ROWS_CONNECTIONS && opts->compare)
			continue;
		if (GROUPS[i].set == ROWS_MAPS && bench_map_refused())
			continue;
		/* They need servers of our own, or one that takes many sessions of one key. */
		if (GROUPS[i].set >= ROWS_EACH && (opts->endpoints || opts->compare))
			continue;
		ret = (GROUPS[i].set == ROWS_TENANTS ? make_tenants
			: counted_of(&GROUPS[i])     ? make_counted
						     : make_group)(
			opts, &GROUPS[i], whole, &plan.groups[plan.group_count]);
		plan.group_count += plan.groups[plan.group_count].count > 0;
	}
	if (!ret && !plan.group_count)
		ret = -EINVAL;
	if (ret) {
		bench_plan_close(&plan);
		return ret;
	}
	*ret_plan = plan;
	return 0;
}

void bench_plan_close(struct bench_plan *plan)
{
	for (uint32_t i = 0; plan->groups && i < ARRAY_LEN(GROUPS); i++) {
		for (uint32_t m = 0; m < plan->groups[i].count; m++)
			free(plan->groups[i].members[m]);
	}
	free(plan->groups);
	*plan = (struct bench_plan){0};
}

/* Two processors pass a word in one of two times, each of which may last for a whole run: about 120
 * and 180 ns on some machines. The shorter one is the limit, and so counts for all slices. */
struct bench_sample bench_record_limit(const struct bench_record *anchor, uint32_t slice_idx)
{
	struct bench_sample limit = anchor->samples[slice_idx];

	for (uint32_t i = 0; anchor->subject.kind == BENCH_PINGPONG && i < anchor->sample_count;
		i++)
		if (anchor->samples[i].p50_ns < limit.p50_ns)
			limit = anchor->samples[i];
	return limit;
}

const struct bench_record *bench_group_anchor(
	const struct bench_group *group, const struct bench_record *row)
{
	const struct bench_record *found = NULL;
	bool by_http = row->subject.way == BENCH_TOKEN || row->subject.way == BENCH_HIPOBJ ||
		       row->subject.way == BENCH_AT_REST || row->subject.way == BENCH_OTHER;
	enum bench_way plain = by_http				       ? BENCH_HTTP
			       : row->subject.way == BENCH_REMOTE      ? BENCH_STRIPED
			       : row->subject.way == BENCH_CONNECTIONS ? BENCH_CONNECTIONS
			       : row->subject.way == BENCH_EACH	       ? BENCH_EACH
			       : row->subject.way == BENCH_BATCH       ? BENCH_SINGLES
			       : row->subject.way == BENCH_FAN_OUT     ? BENCH_NODES
			       : row->subject.way == BENCH_MAP	       ? BENCH_READ
			       : row->subject.way == BENCH_APART       ? BENCH_QUIET
			       : row->subject.way == BENCH_BESIDE      ? BENCH_APART
								       : BENCH_RDMA;

	bool by_row = row->subject.way > BENCH_HTTP && row->subject.way != BENCH_UNSIGNED;

	for (uint32_t i = 0; i < group->count && by_row; i++) {
		const struct bench_subject *subject = &group->members[i]->subject;

		if (subject->kind == BENCH_ROW && subject->way == plain &&
			((plain != BENCH_CONNECTIONS && plain != BENCH_EACH) ||
				subject->depth < row->subject.depth) &&
			(plain != BENCH_APART || subject->noise == row->subject.noise))
			return group->members[i];
	}
	/* The last anchor that fits is the closest: memcpy before ping-pong, nginx before TCP. */
	for (uint32_t i = 0; i < group->count; i++) {
		enum bench_kind kind = group->members[i]->subject.kind;
		bool rdma = row->subject.way == BENCH_RDMA || row->subject.way == BENCH_READ;
		/* A copy is beside the row of a memory bucket, and no limit of a durable one. */
		bool is_put = row->subject.op == BENCH_PUT;

		if (kind == BENCH_LOG || kind == BENCH_RECVMMSG ||
			(rdma && (kind == BENCH_PINGPONG || (kind == BENCH_MEMCPY && !is_put))) ||
			(!rdma &&
				(kind == BENCH_TCP || kind == BENCH_STREAM || kind == BENCH_NGINX)))
			found = group->members[i];
	}
	return found;
}

bool bench_group_shares_server(const struct bench_group *group, const struct bench_group *before)
{
	return bench_group_way(group, BENCH_MANY) && bench_group_way(before, BENCH_MANY);
}

bool bench_group_has_coded(const struct bench_group *group)
{
	return bench_group_way(group, BENCH_STRIPED);
}

const struct bench_record *bench_group_http(
	const struct bench_group *group, const struct bench_record *row)
{
	const struct bench_subject *of = &row->subject;

	if (of->kind != BENCH_ROW || !is_dialect(of->way) ||
		!has_dialects(of->op, of->heat, of->bytes, of->depth))
		return NULL;
	return bench_group_way(group, BENCH_HTTP);
}

const struct bench_record *bench_group_way(const struct bench_group *group, enum bench_way way)
{
	for (uint32_t i = 0; i < group->count; i++) {
		const struct bench_subject *subject = &group->members[i]->subject;

		if (subject->kind == BENCH_ROW && subject->way == way && !subject->noise)
			return group->members[i];
	}
	return NULL;
}
