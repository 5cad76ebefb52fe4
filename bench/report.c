/* bench/report.c: the tables. */
#include "bench/report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

static const char *const OP_NAMES[] = {
	"empty", "GET", "PUT", "HEAD", "DELETE", "LIST", "mixed", "flow", "ingest"};

const char *bench_way_name(const struct bench_rig *rig, const struct bench_subject *row)
{
	bool simulated = rig->simulated;

	if (row->way == BENCH_HTTP)
		return "http";
	if (row->way == BENCH_MANY)
		return simulated ? "many (simul.)" : "rdma many";
	if (row->way == BENCH_CONNECTIONS)
		return "http connections";
	if (row->way == BENCH_OTHER)
		return "http other";
	if (row->way == BENCH_XDP)
		return "af_xdp";
	if (row->way == BENCH_SEALED)
		return simulated ? "sealed (simul.)" : "rdma sealed";
	if (row->way == BENCH_AT_REST)
		return "http at rest";
	if (row->way == BENCH_UNSIGNED)
		return "http unsigned";
	if (row->way == BENCH_QUIET)
		return "http quiet";
	if (row->way == BENCH_APART)
		return "http apart";
	if (row->way == BENCH_BESIDE)
		return "http beside";
	if (row->way == BENCH_TOKEN)
		return simulated ? "token (simul.)" : "token";
	if (row->way == BENCH_HIPOBJ)
		return simulated ? "hipobj (simul.)" : "hipobj";
	if (row->way == BENCH_ONESIDED)
		return simulated ? "1-sided (simul.)" : "rdma one-sided";
	if (row->way == BENCH_MEMORY)
		return simulated ? "memory (simul.)" : "rdma memory";
	if (row->way == BENCH_SESSIONS)
		return simulated ? "sessions (sim.)" : "rdma sessions";
	if (row->way == BENCH_EACH)
		return simulated ? "each (simul.)" : "rdma each";
	if (row->way == BENCH_CLIENTS)
		return simulated ? "clients (simul.)" : "rdma clients";
	if (row->way == BENCH_NODES)
		return simulated ? "nodes (simul.)" : "rdma nodes";
	if (row->way == BENCH_FAN_OUT)
		return simulated ? "fan-out (simul.)" : "rdma fan-out";
	if (row->way == BENCH_SINGLES)
		return simulated ? "singles (sim.)" : "rdma singles";
	if (row->way == BENCH_BATCH)
		return simulated ? "batch (simul.)" : "rdma batch";
	if (row->way == BENCH_READ)
		return simulated ? "read (simul.)" : "rdma read";
	if (row->way == BENCH_MAP)
		return simulated ? "map (simul.)" : "rdma map";
	if (row->way == BENCH_DURABLE)
		return row->op == BENCH_FLOW ? "stream to disk" : "packets to disk";
	if (row->way == BENCH_PEER)
		return "disk to memory";
	if (row->way == BENCH_STRIPED)
		return "4+2 (simul.)"; /* its server always runs on the simulated device */
	if (row->way == BENCH_REMOTE)
		return "4+2 remote (s.)";
	return rig->simulated ? "rdma (simulated)" : "rdma";
}

double bench_kernel_copies(const struct bench_subject *row)
{
	bool has_body = row->op == BENCH_GET || row->op == BENCH_PUT || row->op == BENCH_LIST ||
			row->op == BENCH_MIXED;

	/* A socket copies once on its way in and once on its way out. RDMA memory, and the disk by
	 * O_DIRECT, are reached without a copy by the kernel. */
	if (row->way == BENCH_XDP) /* veth has no zero-copy mode: into our frame */
		return 1;
	return bench_way_is_http(row->way) && has_body ? 2 : 0;
}

struct span bench_share(const struct bench_record *row, const struct bench_record *anchor)
{
	double shares[BENCH_REPETITIONS_MAX];
	uint32_t count = anchor ? MIN(row->sample_count, anchor->sample_count) : 0;
	double unit = 1;

	if (anchor && anchor->subject.kind == BENCH_LOG)
		unit = (double)row->subject.bytes / BENCH_LOG_BLOCK_BYTES;
	if (row->subject.op == BENCH_MIXED)
		unit *= (double)(BENCH_MIXED_OF - BENCH_MIXED_READS) / BENCH_MIXED_OF;
	for (uint32_t i = 0; i < count; i++)
		shares[i] = row->samples[i].rate * unit / bench_record_limit(anchor, i).rate;
	return bench_span_of(shares, count);
}

static void print_rule(char c, int columns)
{
	for (int i = 0; i < columns; i++)
		putchar(c);
	putchar('\n');
}

static void print_model(void)
{
	char text[16 * KIB];
	const char *at = NULL;
	struct utsname name;

	if (bench_file_read("/proc/cpuinfo", text, sizeof(text)) > 0)
		at = strstr(text, "model name");
	if (at)
		at = strchr(at, ':');
	uname(&name);
	printf("  machine     %.*s, %s %s\n", at ? (int)strcspn(at + 2, "\n") : 7,
		at ? at + 2 : "unknown", name.sysname, name.release);
}

#define SIMULATED_TEXT "SIMULATED: shared memory of this host; nothing here is an RDMA latency"

static void print_cycles(const struct bench_rig *rig)
{
	int error = rig->cycles_error ? rig->cycles_error : rig->server_cycles_error;

	printf("  cycles      %s%s\n",
		!error		    ? "counted by the processor, in the kernel too"
		: rig->cycles_error ? "not counted: "
				    : "the server's are not counted: ",
		error ? bench_counter_why(error) : "");
}

void bench_report_head(const struct bench_rig *rig)
{
	const struct bench_opts *opts = rig->opts;
	const struct bench_server *server = &rig->target.server;

	printf("nebulaio bench\n");
	print_model();
	if (server->child.pid)
		printf("  server      started by bench%s, one reactor, on processor %d; data in "
		       "%s%s\n",
			opts->compare ? "" : " for each group of rows", rig->cpus.server,
			rig->folder,
			rig->folder_is_tmpfs ? "  ** a tmpfs: nothing here is durable **" : "");
	else
		printf("  server      %s, already running\n", server->endpoints);
	printf("  client      one thread that never sleeps, on processor %d%s\n", rig->cpus.client,
		rig->cpus.client == rig->cpus.server
			? "  ** the server runs there too: only one processor is available **"
			: "");
	printf("  rdma        %s\n", !rig->target.client	 ? rig->target.client_failed
				     : server->rdma_is_simulated ? SIMULATED_TEXT
								 : server->device_name);
	if (rig->idle_fd >= 0)
		printf("  idle        poll: idle processors stay awake (cpu_dma_latency 0)\n");
	else
		printf("  idle        default: idle processors sleep, waits are longer (%s)\n",
			opts->idle_default ? "as requested" : strerror(-rig->idle_fd));
	printf("  priority    %s%s\n",
		rig->priority_error ? "normal: other processes disturb: "
				    : "the measured programs run before other processes",
		!rig->priority_error	? ""
		: opts->priority_normal ? "as requested"
					: strerror(-rig->priority_error));
	print_cycles(rig);
	printf("  method      %u repetitions, members of a group take turns, %llu ms a slice, %s",
		opts->repetitions, (unsigned long long)(opts->slice_ns / NS_PER_MS),
		opts->rate ? "open loop: " : "closed loop\n");
	if (opts->rate)
		printf("%llu starts a second, latency counts from the moment when an operation "
		       "was due\n",
			(unsigned long long)opts->rate);
	printf("  checked     CRC-64 of every %uth answer; every stored object is read back\n",
		opts->verify_every);
	printf("  working set hot: %s, cold: %s; a listing of %u keys\n\n", "2 MiB", "512 MiB",
		opts->list_keys);
	fflush(stdout);
}

/* ---- Speeds. ---- */

#define SPEED_COLUMNS 176
#define COST_COLUMNS  234

void bench_report_speeds_head(void)
{
	printf("%-7s %-7s %5s %-16s %-4s %9s %9s %9s %9s %9s %9s %9s %8s %6s %10s  %s\n", "op",
		"size", "depth", "transport", "set", "n", "p50", "p90", "p99", "p99.9", "max",
		"ops/s", "GB/s", "errors", "verified", "of the anchor's speed (min-max)");
	print_rule('-', SPEED_COLUMNS);
}

static const char *time_at(const struct hist *hist, double quantile, char buf[BENCH_TEXT_BYTES])
{
	if (hist->count == 0)
		return "-";
	return bench_text_time((double)hist_quantile(hist, quantile), buf);
}

static struct span rate_span(const struct bench_record *record)
{
	double rates[BENCH_REPETITIONS_MAX];

	for (uint32_t i = 0; i < record->sample_count; i++)
		rates[i] = record->samples[i].rate;
	return bench_span_of(rates, record->sample_count);
}

static struct span p50_span(const struct bench_record *record)
{
	double times[BENCH_REPETITIONS_MAX];

	for (uint32_t i = 0; i < record->sample_count; i++)
		times[i] = record->samples[i].p50_ns;
	return bench_span_of(times, record->sample_count);
}

static const char *noise_text(const struct bench_rig *rig, const struct bench_record *record)
{
	return bench_noise_is_noisy(&record->noise, rig->cpu_count) ? "  noisy" : "";
}

static void print_anchor(const struct bench_rig *rig, const struct bench_record *record)
{
	char name[BENCH_NAME_BYTES], t[3][BENCH_TEXT_BYTES], rate[BENCH_TEXT_BYTES];
	struct span times = p50_span(record);

	bench_subject_name(&record->subject, name);
	if (record->failed[0] || !times.count) {
		printf("  anchor: %-20s not measured: %s\n", name, record->failed);
		return;
	}
	printf("  anchor: %-20s %s (%s - %s), %s/s%s", name, bench_text_time(times.median, t[0]),
		bench_text_time(times.min, t[1]), bench_text_time(times.max, t[2]),
		bench_text_number(rate_span(record).median, rate), noise_text(rig, record));
	if (record->subject.bytes)
		printf(", %.2f GB/s",
			(double)record->subject.bytes * rate_span(record).median / 1e9);
	if (record->result.errors)
		printf(", %llu ERRORS: %s", (unsigned long long)record->result.errors,
			record->result.first_error);
	printf("\n");
}

static double p99_share(const struct bench_record *record, const struct bench_record *anchor)
{
	return (double)hist_quantile(&record->hist, 0.99) /
	       (double)hist_quantile(&anchor->hist, 0.99);
}

/* The cost of a noisy client for a quiet one, and the server's part of it. */
static void print_tenants(const struct bench_group *group, const struct bench_record *record,
	const struct bench_record *anchor)
{
	const struct bench_record *alone = anchor;

	if (!record->subject.noise || !anchor || !anchor->sample_count)
		return;
	printf("        %s beside: %llu; p99 %.2f", bench_noise_word(record->subject.noise),
		(unsigned long long)record->noisy_ops, p99_share(record, anchor));
	if (record->subject.way == BENCH_BESIDE) {
		alone = bench_group_anchor(group, anchor);
		printf(" of that with them on another server, %.2f", p99_share(record, alone));
	}
	printf(" of that alone\n");
}

static void print_row(const struct bench_rig *rig, const struct bench_group *group,
	const struct bench_record *record)
{
	const struct bench_subject *subject = &record->subject;
	const struct bench_result *result = &record->result;
	const struct bench_record *anchor = bench_group_anchor(group, record);
	const struct bench_record *http = bench_group_http(group, record);
	struct span share = bench_share(record, anchor), of_http = bench_share(record, http);
	char t[6][BENCH_TEXT_BYTES], n[BENCH_TEXT_BYTES], size[BENCH_TEXT_BYTES];
	char verified[BENCH_TEXT_BYTES], name[BENCH_NAME_BYTES];

	printf("%-7s %-7s %5u %-16s %-4s ", OP_NAMES[subject->op],
		subject->bytes ? bench_text_bytes(subject->bytes, size) : "-", subject->depth,
		bench_way_name(rig, subject), subject->heat == BENCH_COLD ? "cold" : "hot");
	if (record->failed[0] || !record->sample_count) {
		printf("not measured: %s\n", record->failed);
		return;
	}
	printf("%9llu %9s %9s %9s %9s %9s %9s %8.3f %6llu %10s  ", (unsigned long long)result->ops,
		time_at(&record->hist, 0.5, t[0]), time_at(&record->hist, 0.9, t[1]),
		time_at(&record->hist, 0.99, t[2]), time_at(&record->hist, 0.999, t[3]),
		time_at(&record->hist, 1, t[4]), bench_text_number(rate_span(record).median, n),
		(double)result->bytes / (double)result->elapsed_ns,
		(unsigned long long)result->errors,
		bench_text_number((double)result->verified_bytes, verified));
	if (rig->opts->rate)
		printf("paced");
	else if (share.count)
		printf("%.3f (%.3f-%.3f) of %s", share.median, share.min, share.max,
			bench_subject_name(&anchor->subject, name));
	if (!rig->opts->rate && http != anchor && of_http.count)
		printf(", %.3f (%.3f-%.3f) of %s", of_http.median, of_http.min, of_http.max,
			bench_subject_name(&http->subject, name));
	printf("%s\n", noise_text(rig, record));
	print_tenants(group, record, anchor);
	if (result->errors)
		printf("        ERRORS: %s\n", result->first_error);
}

void bench_report_speeds(const struct bench_rig *rig, const struct bench_group *group)
{
	for (uint32_t m = 0; m < group->count; m++) {
		if (group->members[m]->subject.kind == BENCH_ROW)
			print_row(rig, group, group->members[m]);
		else
			print_anchor(rig, group->members[m]);
	}
	fflush(stdout);
}

/* ---- Costs. ---- */

/* "-" for an unknown value. */
static const char *per(double sum, double count, bool known, char buf[BENCH_TEXT_BYTES])
{
	if (!known || !(count > 0))
		snprintf(buf, BENCH_TEXT_BYTES, "-");
	else
		snprintf(buf, BENCH_TEXT_BYTES, sum / count < 100 ? "%.3f" : "%.1f", sum / count);
	return buf;
}

/* Cycles and instructions, of the server and of the client. */
static void print_cycles_per_op(const struct bench_record *record)
{
	const struct bench_cycles *sides[] = {&record->server_cycles, &record->client_cycles};
	char text[BENCH_TEXT_BYTES];

	for (int what = 0; what < BENCH_COUNTED; what++) {
		for (size_t i = 0; i < ARRAY_LEN(sides); i++)
			printf("%9s ", sides[i]->ops
					       ? bench_text_number(sides[i]->sums[what] /
									   (double)sides[i]->ops,
							 text)
					       : "-");
	}
}

static void print_costs(const struct bench_rig *rig, const struct bench_record *record)
{
	const struct bench_subject *subject = &record->subject;
	double ops = (double)record->result.ops, bytes = (double)record->result.bytes;
	bool known = record->server_known, counted = record->counts.known;
	bool row = subject->kind == BENCH_ROW, rdma = row && subject->way == BENCH_RDMA;
	char t[13][BENCH_TEXT_BYTES], size[BENCH_TEXT_BYTES];

	printf("%-7s %-7s %5u %-16s %-4s ", row ? OP_NAMES[subject->op] : "GET",
		subject->bytes ? bench_text_bytes(subject->bytes, size) : "-", subject->depth,
		row ? bench_way_name(rig, subject) : "nginx",
		subject->heat == BENCH_COLD ? "cold" : "hot");
	print_cycles_per_op(record);
	printf("%9s %9s %8s %8s %9s %9s %8s %8s %8s %8.0f %9s %9s %9s %9s %6.2f %6.3f%s\n",
		per((double)record->server.cpu_ns / 1e3, ops, known, t[0]),
		per((double)record->client.cpu_ns / 1e3, ops, true, t[1]),
		per((double)record->server.cpu_ns, bytes, known, t[11]),
		per((double)record->client.cpu_ns, bytes, true, t[12]),
		per((double)record->server.switches, ops, known, t[2]),
		per((double)record->client.switches, ops, true, t[3]),
		per(record->counts.copied_bytes, bytes, counted, t[4]),
		per((double)record->client_copied_bytes, bytes, rdma || subject->way == BENCH_MAP,
			t[5]),
		per(record->counts.wire_bytes, bytes, counted && rdma && rig->simulated, t[6]),
		row ? bench_kernel_copies(subject) : 2.0,
		per(record->counts.flushes, ops, counted, t[7]),
		per((double)record->server.disk_write_bytes, bytes,
			known && row && subject->op == BENCH_PUT, t[8]),
		per(record->counts.disk_read_bytes, bytes,
			counted && row && subject->op == BENCH_GET, t[9]),
		per((double)record->fallbacks, 1, rdma, t[10]), bench_noise_cores(&record->noise),
		bench_noise_steal(&record->noise, rig->cpu_count), noise_text(rig, record));
}

void bench_report_costs(const struct bench_rig *rig, const struct bench_plan *plan)
{
	printf("\n%-42s  %19s %19s %19s %17s %19s %35s %9s %19s %9s %13s\n", "", "cycles/op",
		"instructions/op", "CPU us/op", "CPU s/GB", "switches/op", "copies of each byte",
		"", "disk bytes/byte", "", "others");
	printf("%-7s %-7s %5s %-16s %-4s %9s %9s %9s %9s %9s %9s %8s %8s %9s %9s %8s %8s %8s "
	       "%8s %9s %9s %9s %9s %6s %6s\n",
		"op", "size", "depth", "transport", "set", "server", "client", "server", "client",
		"server", "client", "server", "client", "server", "client", "server", "client",
		"wire", "kernel", "fsync/op", "written", "read", "fallback", "cores", "steal");
	print_rule('-', COST_COLUMNS);
	for (uint32_t g = 0; g < plan->group_count; g++) {
		const struct bench_group *group = &plan->groups[g];

		for (uint32_t m = 0; m < group->count; m++) {
			enum bench_kind kind = group->members[m]->subject.kind;

			if ((kind == BENCH_ROW || kind == BENCH_NGINX) &&
				group->members[m]->sample_count)
				print_costs(rig, group->members[m]);
		}
	}
}

/* ---- Marks. ---- */

static const char *verdict_text(enum bench_verdict verdict, double limit, bool less, char buf[24])
{
	char number[BENCH_TEXT_BYTES];

	if (verdict == BENCH_NO_MARK)
		return "-";
	snprintf(buf, 24, "%s%s %s", less ? "<=" : ">=", bench_text_number(limit, number),
		verdict == BENCH_REACHED ? "yes" : "NO");
	return buf;
}

bool bench_report_judge(const struct bench_rig *rig, const struct bench_plan *plan,
	const struct bench_mark *mark, struct bench_mark_result *ret_result)
{
	if ((mark->row.way == BENCH_RDMA || mark->row.way == BENCH_MANY) && !rig->simulated)
		return false;
	return bench_mark_judge(mark, plan, ret_result);
}

static void print_mark(
	const struct bench_rig *rig, const struct bench_mark *mark, const struct bench_plan *plan)
{
	bool rates = mark->measure == BENCH_RATE_SHARE || mark->measure == BENCH_RATE;
	struct bench_mark_result result;
	char t[5][BENCH_TEXT_BYTES], v[3][24], range[64] = "", figure[64] = "";

	if (!bench_report_judge(rig, plan, mark, &result)) {
		if (!rig->opts->only)
			printf("%-68s not measured\n", mark->title);
		return;
	}
	if (result.value.count > 1)
		snprintf(range, sizeof(range), "(%s-%s)", bench_text_number(result.value.min, t[0]),
			bench_text_number(result.value.max, t[1]));
	if (result.anchor.count)
		snprintf(figure, sizeof(figure), "%s to %s",
			rates ? bench_text_number(result.figure.median, t[2])
			      : bench_text_time(result.figure.median, t[2]),
			rates ? bench_text_number(result.anchor.median, t[3])
			      : bench_text_time(result.anchor.median, t[3]));
	else if (result.figure.count)
		snprintf(figure, sizeof(figure), "%s",
			rates ? bench_text_number(result.figure.median, t[2])
			      : bench_text_time(result.figure.median, t[2]));
	printf("%-68s %8s %-17s %-22s %-14s %-14s %-14s\n", mark->title,
		bench_text_number(result.value.median, t[4]), range, figure,
		verdict_text(result.first, mark->first, mark->less_is_better, v[0]),
		verdict_text(result.must, mark->must, mark->less_is_better, v[1]),
		verdict_text(result.aim, mark->aim, mark->less_is_better, v[2]));
}

void bench_report_marks(const struct bench_rig *rig, const struct bench_plan *plan)
{
	printf("\n%-68s %8s %-17s %-22s %-14s %-14s %-14s\n", "mark", "value", "(min-max)",
		"figure to anchor", "first", "must", "aim");
	print_rule('-', SPEED_COLUMNS);
	for (size_t i = 0; i < BENCH_MARK_COUNT; i++)
		print_mark(rig, &BENCH_MARKS[i], plan);
	fflush(stdout);
}
