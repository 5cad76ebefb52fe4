/* bench/measure.c: slices of rows and anchors, with what they cost on both sides. */
#include "bench/measure.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "bench/flows.h"

#define ANCHOR_NS     (20 * NS_PER_MS)
#define ANCHOR_TCP_NS (50 * NS_PER_MS)
#define ANCHOR_LOG_NS (100 * NS_PER_MS)
/* Packets: a longer slice, since starting their generator takes some of it. */
#define PACKET_SLICES 3u
/* Waits because of a noisy tenant are long and rare: a longer slice sees more of them. */
#define TENANT_SLICES	3u
#define NODES_READS_MIN 8u
#define NODES_NS_MAX	(600 * NS_PER_S)
/* Warming up: every object once, but no longer than this. */
#define WARM_NS (2 * NS_PER_S)

/* The open resources of a member of the group between its slices. */
struct member {
	struct bench_record *record;
	const struct bench_data *data;
	struct bench_runner runner;
};

__attribute__((format(printf, 2, 3))) static void failed(
	struct bench_record *record, const char *fmt, ...)
{
	va_list args;

	if (record->failed[0])
		return;
	va_start(args, fmt);
	vsnprintf(record->failed, sizeof(record->failed), fmt, args);
	va_end(args);
}

/* Where a row is measured: the server, one over several volumes, or the other one. */
static struct bench_target *target_of(struct bench_rig *rig, const struct bench_subject *subject)
{
	if (subject->way == BENCH_OTHER)
		return &rig->other;
	if (rig->coded && subject->way == BENCH_STRIPED)
		return &rig->coded->local.target;
	return rig->coded && subject->way == BENCH_REMOTE ? &rig->coded->remote.target
							  : &rig->target;
}

/* ---- Opening. ---- */

static int coded_error(const struct bench_rig *rig, enum bench_way way)
{
	if (way != BENCH_STRIPED && way != BENCH_REMOTE)
		return 0;
	if (!rig->coded)
		return rig->coded_error;
	return way == BENCH_STRIPED ? rig->coded->local.error : rig->coded->remote.error;
}

static void open_nginx(struct bench_rig *rig, struct member *member)
{
	const struct bench_subject *subject = &member->record->subject;
	size_t which = subject->bytes == MIB;
	int ret = rig->nginx_error;

	if (ret) {
		failed(member->record, "%s", ret == -ENOENT ? "not installed" : strerror(-ret));
		return;
	}
	ret = bench_runner_open_plain(
		rig->nginx.address, &rig->nginx_data[which], subject->depth, &member->runner);
	if (ret)
		failed(member->record, "%s", strerror(-ret));
}

static struct bench_noisy **noisy_of(struct bench_rig *rig, const struct bench_subject *subject)
{
	return &rig->noisy[subject->way == BENCH_BESIDE][subject->noise];
}

static int open_noise(struct bench_rig *rig, const struct bench_subject *subject)
{
	bool beside = subject->way == BENCH_BESIDE;
	char folder[sizeof(rig->folder) + 8];
	int ret = 0;

	if (!subject->noise || *noisy_of(rig, subject))
		return 0;
	if (!beside && !rig->apart.child.pid) {
		snprintf(folder, sizeof(folder), "%s/apart", rig->folder);
		ret = bench_folder_renew(folder);
		if (!ret)
			ret = bench_server_open(rig->opts, &rig->cpus, folder, &rig->apart);
	}
	if (!ret)
		ret = bench_noisy_open(beside ? &rig->target.server : &rig->apart, subject->noise,
			noisy_of(rig, subject));
	return ret;
}

/* Opens a row's client or connections. Only rows that need no client go on without one. */
static void open_row(struct bench_rig *rig, struct member *member)
{
	const struct bench_subject *subject = &member->record->subject;
	struct bench_load_opts opts = {.op = subject->op,
		.way = subject->way,
		.bytes = subject->bytes,
		.depth = subject->depth};
	struct bench_target *target = target_of(rig, subject);
	int ret = coded_error(rig, subject->way);

	if (ret) {
		failed(member->record, "%s", strerror(-ret));
		return;
	}
	if (!target->client && (subject->way == BENCH_RDMA || subject->way == BENCH_READ ||
				       subject->way == BENCH_MAP || subject->way == BENCH_STRIPED ||
				       subject->way == BENCH_REMOTE)) {
		failed(member->record, "%s", target->client_failed);
		return;
	}
	if (subject->op != BENCH_EMPTY)
		ret = bench_target_data(target, subject, &member->data);
	opts.data = member->data;
	if (!ret)
		ret = open_noise(rig, subject);
	if (!ret)
		ret = bench_runner_open(target, &opts, &member->runner);
	if (ret)
		failed(member->record, "%s", ret == -ENODEV ? "no such endpoint" : strerror(-ret));
}

static void warm(struct bench_rig *rig, struct member *member)
{
	const struct bench_subject *subject = &member->record->subject;
	const struct bench_run_opts run = {.duration_ns = WARM_NS,
		.ops_max = member->data ? member->data->count : BENCH_DEPTH_MAX};
	struct bench_result result = {.hist = &rig->slice};

	if (subject->heat == BENCH_COLD || subject->op == BENCH_DELETE || subject->op == BENCH_LIST)
		return;
	bench_runner_run(&member->runner, &run, &result);
	if (result.errors)
		failed(member->record, "%s", result.first_error);
}

/* Packets and flows need no server. */
static bool uses_server(const struct bench_subject *subject)
{
	return subject->op != BENCH_INGEST && subject->op != BENCH_FLOW;
}

/* Otherwise the row has failed, for this reason: it would wait for answers that never come. */
static bool server_is_there(struct bench_rig *rig, struct member *member)
{
	const struct bench_subject *subject = &member->record->subject;
	const bool is_nginx = subject->kind == BENCH_NGINX;
	char how[32];

	if (!is_nginx && (subject->kind != BENCH_ROW || !uses_server(subject)))
		return true;
	if (!bench_child_ended(
		    is_nginx ? &rig->nginx.child : &target_of(rig, subject)->server.child, how,
		    sizeof(how)))
		return true;
	member->record->failed[0] = '\0';
	failed(member->record, "the %s that bench started has ended: %s",
		is_nginx ? "nginx" : "server", how);
	return false;
}

static void open_member(struct bench_rig *rig, struct member *member)
{
	if (!uses_server(&member->record->subject) || !server_is_there(rig, member))
		return;
	if (member->record->subject.kind == BENCH_NGINX)
		open_nginx(rig, member);
	else if (member->record->subject.kind == BENCH_ROW)
		open_row(rig, member);
	else
		return;
	if (!member->record->failed[0])
		warm(rig, member);
}

/* ---- A slice of an anchor. ---- */

static int measure_anchor(
	struct bench_rig *rig, const struct bench_subject *subject, double *ret_ns)
{
	switch (subject->kind) {
	case BENCH_PINGPONG:
		return bench_anchor_pingpong(rig->anchors, ANCHOR_NS, ret_ns);
	case BENCH_MEMCPY:
		return bench_anchor_memcpy(rig->anchors, subject->bytes, ANCHOR_NS, ret_ns);
	case BENCH_TCP:
		return bench_anchor_tcp(rig->anchors, ANCHOR_TCP_NS, ret_ns);
	case BENCH_STREAM:
		return bench_anchor_stream(rig->anchors, subject->bytes, ANCHOR_TCP_NS, ret_ns);
	default:
		return bench_anchor_log(rig->anchors, subject->depth, ANCHOR_LOG_NS, ret_ns);
	}
}

static void slice_of_anchor(struct bench_rig *rig, struct bench_record *record)
{
	struct bench_usage before, after, used = {0};
	struct bench_ticks begin, end;
	double ns;
	int ret;

	bench_usage_self(&before);
	bench_ticks_now(&begin);
	ret = measure_anchor(rig, &record->subject, &ns);
	bench_ticks_now(&end);
	bench_usage_self(&after);
	bench_usage_add(&used, &after, &before);
	bench_noise_add(&record->noise, &begin, &end, used.cpu_ns);
	if (ret) {
		failed(record, "%s", strerror(-ret));
		return;
	}
	record->samples[record->sample_count++] = (struct bench_sample){
		.p50_ns = ns,
		.rate = (record->subject.kind == BENCH_LOG ? record->subject.depth : 1) * 1e9 / ns,
		.server_cpu_ns = NAN,
	};
}

/* ---- A slice of a row, or of nginx. ---- */

/* Everything that is read before a slice and again after it. */
struct readings {
	struct bench_counts counts;
	struct neb_stats stats;
	struct bench_usage server;
	bool server_known;
	struct bench_usage client;
	struct bench_ticks ticks;
};

static void read_slow(struct bench_rig *rig, const struct member *member, struct readings *readings)
{
	const struct bench_target *target = target_of(rig, &member->record->subject);

	if (member->record->subject.kind == BENCH_ROW)
		bench_server_counts(&target->server, &readings->counts);
	if (member->runner.client)
		neb_client_stats(target->client, &readings->stats);
	if (member->runner.map)
		readings->stats.bytes_copied = bench_map_load_copied(member->runner.map);
}

/* The server that a slice is about; 0: it is not known. */
static pid_t server_pid(struct bench_rig *rig, const struct bench_subject *subject)
{
	return subject->kind == BENCH_NGINX ? rig->nginx.child.pid
					    : target_of(rig, subject)->server.pid;
}

static void count_open(struct bench_rig *rig, const struct member *member)
{
	pid_t pid = server_pid(rig, &member->record->subject);

	if (rig->cycles_error)
		return;
	if (pid)
		bench_counter_add(&rig->server_counter, pid, BENCH_PROCESSOR_EVENTS);
	bench_counter_add(&rig->client_counter, 0, BENCH_PROCESSOR_EVENTS);
	if (member->runner.clients)
		bench_clients_count(member->runner.clients, &rig->client_counter);
}

static void count_start(struct bench_rig *rig)
{
	bench_counter_start(&rig->server_counter);
	bench_counter_start(&rig->client_counter);
}

static void count_stop(struct bench_rig *rig)
{
	bench_counter_stop(&rig->server_counter);
	bench_counter_stop(&rig->client_counter);
}

static void count_end(struct bench_rig *rig, struct bench_record *record, uint64_t ops)
{
	bench_counter_end(&rig->server_counter, ops, &record->server_cycles);
	bench_counter_end(&rig->client_counter, ops, &record->client_cycles);
}

static void read_fast(struct bench_rig *rig, const struct member *member, struct readings *readings)
{
	pid_t pid = server_pid(rig, &member->record->subject);

	readings->server_known = pid && bench_usage_of(pid, &readings->server) == 0;
	bench_usage_self(&readings->client);
	if (member->runner.clients) {
		struct bench_usage theirs, none = {0};

		bench_clients_usage(member->runner.clients, &theirs);
		bench_usage_add(&readings->client, &theirs, &none);
	}
	bench_ticks_now(&readings->ticks);
}

static void add_readings(
	struct bench_record *record, const struct readings *before, const struct readings *after)
{
	struct bench_usage client = {0}, server = {0};
	struct bench_counts *counts = &record->counts;

	bench_usage_add(&client, &after->client, &before->client);
	bench_usage_add(&record->client, &after->client, &before->client);
	record->server_known = before->server_known && after->server_known;
	if (record->server_known) {
		bench_usage_add(&server, &after->server, &before->server);
		bench_usage_add(&record->server, &after->server, &before->server);
	}
	bench_noise_add(
		&record->noise, &before->ticks, &after->ticks, client.cpu_ns + server.cpu_ns);
	counts->known = before->counts.known && after->counts.known;
	counts->copied_bytes += after->counts.copied_bytes - before->counts.copied_bytes;
	counts->wire_bytes += after->counts.wire_bytes - before->counts.wire_bytes;
	counts->flushes += after->counts.flushes - before->counts.flushes;
	counts->disk_read_bytes += after->counts.disk_read_bytes - before->counts.disk_read_bytes;
	record->client_copied_bytes += after->stats.bytes_copied - before->stats.bytes_copied;
	record->fallbacks += after->stats.fallbacks - before->stats.fallbacks;
}

/* Adds the slice's own figures: the differences that it made to the record. */
static void add_sample(
	struct bench_rig *rig, struct bench_record *record, const struct bench_record *before)
{
	const struct bench_result *now = &record->result, *then = &before->result;
	double ops = (double)(now->ops - then->ops);
	double elapsed_ns = (double)(now->elapsed_ns - then->elapsed_ns);

	if (!(ops > 0))
		return;
	record->samples[record->sample_count++] = (struct bench_sample){
		.p50_ns = (double)hist_quantile(&rig->slice, 0.5),
		.rate = ops * 1e9 / elapsed_ns,
		.server_cpu_ns =
			record->server_known
				? (double)(record->server.cpu_ns - before->server.cpu_ns) / ops
				: NAN,
	};
	hist_merge(&record->hist, &rig->slice);
}

static void end_noise(struct bench_rig *rig, struct bench_record *record)
{
	struct bench_noisy *noisy = *noisy_of(rig, &record->subject);

	record->noisy_ops += bench_noisy_end(noisy);
	if (bench_noisy_error(noisy)[0])
		failed(record, "the noisy tenant: %s", bench_noisy_error(noisy));
}

/* Each process reads every object; but a short one several times. No process stops by the clock, or
 * the others would wait for it. */
static uint64_t nodes_ops(const struct member *member)
{
	return (uint64_t)MAX(member->data->count, NODES_READS_MIN) * BENCH_SESSION_COUNT;
}

static void slice_of_load(struct bench_rig *rig, struct member *member)
{
	struct bench_record *record = member->record, before = *record;
	bool deletes = record->subject.op == BENCH_DELETE && record->subject.kind == BENCH_ROW;
	bool tenants = record->subject.way >= BENCH_QUIET;
	bool nodes = record->subject.way == BENCH_NODES || record->subject.way == BENCH_FAN_OUT;
	const struct bench_run_opts run = {
		.duration_ns =
			nodes ? NODES_NS_MAX : rig->opts->slice_ns * (tenants ? TENANT_SLICES : 1),
		.ops_max = nodes     ? nodes_ops(member)
			   : deletes ? member->data->count
				     : 0,
		.rate = rig->opts->rate,
		.verify_every = rig->opts->verify_every,
		.sleeps = tenants,
	};
	struct readings begin = {0}, end = {0};
	struct bench_result result;

	if (deletes && bench_target_pass(target_of(rig, &record->subject), member->data, BENCH_PUT,
			       &result)) {
		failed(record, "could not store the objects that the row deletes");
		return;
	}
	if (record->subject.heat == BENCH_COLD)
		member->runner.turn = rig->cold_turn;
	if (record->subject.noise)
		bench_noisy_begin(*noisy_of(rig, &record->subject));
	hist_reset(&rig->slice);
	record->result.hist = &rig->slice;
	read_slow(rig, member, &begin);
	count_open(rig, member);
	read_fast(rig, member, &begin);
	count_start(rig);
	bench_runner_run(&member->runner, &run, &record->result);
	count_stop(rig);
	read_fast(rig, member, &end);
	count_end(rig, record, record->result.ops - before.result.ops);
	read_slow(rig, member, &end);
	if (record->subject.noise)
		end_noise(rig, record);
	record->result.hist = &record->hist;
	if (record->subject.heat == BENCH_COLD)
		rig->cold_turn = member->runner.turn;
	add_readings(record, &begin, &end);
	add_sample(rig, record, &before);
}

/* ---- A slice of packets, or of a stream. ---- */

/* Starts processes for the slice, and takes the latencies that they report. */
static void add_told(struct bench_record *record, struct hist *took,
	const struct bench_wire_result *got, const struct bench_usage *used)
{
	record->client.cpu_ns += used->cpu_ns;
	record->client.switches += used->switches;
	record->server.cpu_ns += got->cpu_ns;
	record->server_known = record->counts.known = true;
	record->counts.copied_bytes += (double)got->copied_bytes;
	record->result.ops += got->received;
	record->result.bytes += got->received * record->subject.bytes;
	record->result.elapsed_ns += got->elapsed_ns;
	if (took)
		hist_merge(&record->hist, took);
}

/* Runs a stream of the subject's bytes, with a result like that of packets. */
static int stream_run(
	struct bench_rig *rig, const struct bench_subject *subject, struct bench_wire_result *got)
{
	struct bench_flow_result result = {.took = got->took};
	int ret = bench_flow_run(
		rig->opts->program, &rig->cpus, rig->folder, subject->way == BENCH_PEER, &result);

	got->received = result.bytes / subject->bytes;
	got->elapsed_ns = result.elapsed_ns;
	got->cpu_ns = result.cpu_ns;
	return ret;
}

static int packets_run(
	struct bench_rig *rig, const struct bench_subject *subject, struct bench_wire_result *got)
{
	char path[sizeof(rig->folder) + 16];

	if (rig->wire_error)
		return rig->wire_error;
	if (subject->kind == BENCH_RECVMMSG)
		return bench_wire_recvmmsg(rig->wire, (uint32_t)subject->bytes,
			rig->opts->slice_ns * PACKET_SLICES, got);
	if (subject->way != BENCH_DURABLE)
		return bench_wire_ingest(rig->wire, NULL, (uint32_t)subject->bytes,
			rig->opts->slice_ns * PACKET_SLICES, got);
	snprintf(path, sizeof(path), "%s/packets", rig->folder);
	return bench_wire_ingest(
		rig->wire, path, (uint32_t)subject->bytes, rig->opts->slice_ns, got);
}

static void slice_of_packets(struct bench_rig *rig, struct bench_record *record)
{
	const struct bench_subject *subject = &record->subject;
	bool row = subject->kind == BENCH_ROW;
	bool told = subject->way == BENCH_DURABLE || subject->way == BENCH_PEER;
	struct bench_wire_result got = {.took = &rig->slice};
	struct bench_usage before, after, used = {0};
	struct bench_ticks begin, end;
	int ret;

	hist_reset(&rig->slice);
	bench_usage_self(&before);
	bench_ticks_now(&begin);
	ret = subject->op == BENCH_FLOW ? stream_run(rig, subject, &got)
					: packets_run(rig, subject, &got);
	bench_ticks_now(&end);
	bench_usage_self(&after);
	if (ret || !got.received || (told && !rig->slice.count)) {
		failed(record, "%s", ret ? strerror(-ret) : "nothing was received");
		return;
	}
	bench_usage_add(&used, &after, &before);
	if (row)
		add_told(record, told ? &rig->slice : NULL, &got, &used);
	bench_noise_add(&record->noise, &begin, &end, used.cpu_ns + (row ? got.cpu_ns : 0));
	record->samples[record->sample_count++] = (struct bench_sample){
		.p50_ns = told ? (double)hist_quantile(&rig->slice, 0.5)
			       : (double)got.elapsed_ns / (double)got.received,
		.rate = (double)got.received * 1e9 / (double)got.elapsed_ns,
		.server_cpu_ns = (double)got.cpu_ns / (double)got.received,
	};
}

/* ---- A group. ---- */

static void slice(struct bench_rig *rig, struct member *member)
{
	enum bench_kind kind = member->record->subject.kind;

	if (!server_is_there(rig, member) || member->record->failed[0])
		return;
	if (kind == BENCH_RECVMMSG || (kind == BENCH_ROW && !uses_server(&member->record->subject)))
		slice_of_packets(rig, member->record);
	else if (kind == BENCH_ROW || kind == BENCH_NGINX)
		slice_of_load(rig, member);
	else
		slice_of_anchor(rig, member->record);
}

/* Every object that PUT stored is read back. */
static void verify_puts(struct bench_rig *rig, struct member *member)
{
	struct bench_record *record = member->record;
	struct bench_result result;

	if (record->failed[0] || record->subject.kind != BENCH_ROW ||
		(record->subject.op != BENCH_PUT && record->subject.op != BENCH_MIXED) ||
		!server_is_there(rig, member))
		return;
	if (bench_target_pass(target_of(rig, &record->subject), member->data, BENCH_GET, &result))
		bench_result_error(&record->result, "read back: %s", result.first_error);
	record->result.verified_ops += result.verified_ops;
	record->result.verified_bytes += result.verified_bytes;
}

void bench_measure_group(
	struct bench_rig *rig, struct bench_group *group, const volatile sig_atomic_t *stop)
{
	struct member members[BENCH_GROUP_MAX] = {0};

	for (uint32_t m = 0; m < group->count; m++) {
		members[m].record = group->members[m];
		open_member(rig, &members[m]);
	}
	for (uint32_t r = 0; r < rig->opts->repetitions && !*stop; r++) {
		/* Every other turn goes backwards: no row comes after the same one each time. */
		for (uint32_t m = 0; m < group->count && !*stop; m++)
			slice(rig, &members[r % 2 ? group->count - 1 - m : m]);
	}
	for (uint32_t m = 0; m < group->count; m++) {
		bench_runner_close(&members[m].runner);
		if (!*stop)
			verify_puts(rig, &members[m]);
	}
}
