/* bench/bench.c: a whole run: folder, server, anchors, groups, reports. */
#include "bench/bench.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench/compare.h"
#include "bench/report.h"

static volatile sig_atomic_t stopped;

void bench_defaults(struct bench_opts *opts)
{
	*opts = (struct bench_opts){
		.repetitions = 5,
		.slice_ns = 200 * NS_PER_MS,
		.verify_every = 64,
		.list_keys = 100000,
		.objects = 1000000,
	};
}

static void on_signal(int number)
{
	(void)number;
	stopped = 1;
}

static void catch_signals(void)
{
	const struct sigaction action = {.sa_handler = on_signal};

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGPIPE, &action, NULL); /* the reader of our output is gone: end, and clean up */
}

/* ---- Where data goes: a real disk, unless the options say otherwise. ---- */

/* The folder of the options; else the first of ./build, TMPDIR and the current folder that exists
 * and is no tmpfs. */
static const char *choose_parent(const struct bench_opts *opts)
{
	const char *candidates[] = {"build", getenv("TMPDIR"), "."};

	if (opts->dir)
		return opts->dir;
	for (size_t i = 0; i < ARRAY_LEN(candidates); i++) {
		struct stat st;

		if (candidates[i] && candidates[i][0] && !stat(candidates[i], &st) &&
			S_ISDIR(st.st_mode) && !access(candidates[i], W_OK) &&
			!bench_path_is_tmpfs(candidates[i]))
			return candidates[i];
	}
	return NULL;
}

static int make_folder(struct bench_rig *rig)
{
	const char *parent = choose_parent(rig->opts);
	char *full;

	if (!parent) {
		fprintf(stderr, "nebulaio bench: found no writable folder on a disk; name one with "
				"--dir\n");
		return -EROFS;
	}
	full = realpath(parent, NULL);
	if (!full ||
		snprintf(rig->folder, sizeof(rig->folder), "%s/nebulaio-bench-XXXXXX", full) >=
			(int)sizeof(rig->folder) ||
		!mkdtemp(rig->folder)) {
		fprintf(stderr, "nebulaio bench: %s: %s\n", parent, strerror(errno));
		free(full);
		rig->folder[0] = '\0';
		return -EROFS;
	}
	free(full);
	chmod(rig->folder, 0755);
	rig->folder_is_tmpfs = bench_path_is_tmpfs(rig->folder);
	if (rig->folder_is_tmpfs)
		fprintf(stderr,
			"nebulaio bench: %s is a tmpfs: the results say nothing about a disk, and "
			"nothing is durable\n",
			rig->folder);
	return 0;
}

/* ---- The rig. ---- */

static bool plan_has(const struct bench_plan *plan, enum bench_kind kind)
{
	for (uint32_t g = 0; g < plan->group_count; g++) {
		for (uint32_t m = 0; m < plan->groups[g].count; m++) {
			if (plan->groups[g].members[m]->subject.kind == kind)
				return true;
		}
	}
	return false;
}

static bool plan_has_packets(const struct bench_plan *plan)
{
	for (uint32_t g = 0; g < plan->group_count; g++)
		for (uint32_t m = 0; m < plan->groups[g].count; m++)
			if (plan->groups[g].members[m]->subject.op == BENCH_INGEST)
				return true;
	return plan_has(plan, BENCH_RECVMMSG);
}

static void open_nginx(struct bench_rig *rig)
{
	const uint64_t sizes[] = {4 * KIB, MIB};
	const struct bench_data *sets[] = {&rig->nginx_data[0], &rig->nginx_data[1]};
	char folder[4096 + 16], prefix[40];

	snprintf(folder, sizeof(folder), "%s/nginx", rig->folder);
	rig->nginx_error = 0;
	for (size_t i = 0; i < ARRAY_LEN(sizes) && !rig->nginx_error; i++) {
		snprintf(prefix, sizeof(prefix), "hot-%llu-", (unsigned long long)sizes[i]);
		rig->nginx_error = bench_data_open(&rig->nginx_data[i], prefix, sizes[i],
			(uint32_t)(BENCH_HOT_BYTES / sizes[i]));
	}
	if (!rig->nginx_error)
		rig->nginx_error =
			bench_nginx_open(folder, &rig->cpus, sets, ARRAY_LEN(sets), &rig->nginx);
}

/* ---- The servers of a group. ---- */

#define PATH_BYTES (sizeof(((struct bench_rig *)NULL)->folder) + 16)

static int target_open(struct bench_rig *rig)
{
	char path[PATH_BYTES];
	int ret;

	snprintf(path, sizeof(path), "%s/server", rig->folder);
	ret = bench_folder_renew(path);
	if (ret) {
		fprintf(stderr, "nebulaio bench: %s: %s\n", path, strerror(-ret));
		return ret;
	}
	return bench_target_open(&rig->target, rig->opts, &rig->cpus, path);
}

/* A server that runs already, and one beside another, stay as they are. */
static int group_open(struct bench_rig *rig, const struct bench_plan *plan, uint32_t group_idx)
{
	const struct bench_group *group = &plan->groups[group_idx];
	char path[PATH_BYTES];
	int ret = 0;

	if (group_idx && !rig->opts->endpoints && !rig->opts->compare &&
		!bench_group_shares_server(group, group - 1)) {
		bench_target_close(&rig->target);
		ret = target_open(rig);
	}
	if (!ret && bench_group_has_coded(group)) {
		snprintf(path, sizeof(path), "%s/coded", rig->folder);
		rig->coded_error = bench_folder_renew(path);
		if (!rig->coded_error)
			rig->coded_error =
				bench_coded_open(rig->opts, &rig->cpus, path, &rig->coded);
	}
	return ret;
}

static void group_close(struct bench_rig *rig)
{
	for (int noise = 0; noise < BENCH_NOISE_COUNT; noise++) {
		bench_noisy_close(rig->noisy[0][noise]);
		bench_noisy_close(rig->noisy[1][noise]);
		rig->noisy[0][noise] = rig->noisy[1][noise] = NULL;
	}
	bench_server_close(&rig->apart);
	bench_coded_close(rig->coded);
	rig->coded = NULL;
}

static void rig_close(struct bench_rig *rig)
{
	bench_nginx_close(&rig->nginx);
	for (size_t i = 0; i < ARRAY_LEN(rig->nginx_data); i++)
		bench_data_close(&rig->nginx_data[i]);
	bench_target_close(&rig->other);
	bench_target_close(&rig->target);
	bench_anchors_close(rig->anchors);
	bench_wire_close(rig->wire);
	bench_priority_restore(rig->session_nice);
	if (rig->idle_fd >= 0)
		close(rig->idle_fd);
	if (rig->folder[0])
		bench_folder_remove(rig->folder);
	free(rig);
}

static int rig_open(
	const struct bench_opts *opts, const struct bench_plan *plan, struct bench_rig **ret_rig)
{
	struct bench_rig *rig = calloc(1, sizeof(*rig));
	int ret;

	if (!rig)
		return -ENOMEM;
	rig->opts = opts;
	rig->idle_fd = opts->idle_default ? -ECANCELED : bench_idle_poll();
	rig->session_nice = BENCH_NO_SESSION;
	rig->priority_error =
		opts->priority_normal ? -ECANCELED : bench_priority_raise(&rig->session_nice);
	rig->cpu_count = (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
	rig->nginx_error = -ENOENT;
	rig->cycles_error = bench_counter_try(0, BENCH_PROCESSOR_EVENTS);
	ret = bench_cpus_find(&rig->cpus);
	if (!ret)
		ret = make_folder(rig);
	if (!ret)
		ret = target_open(rig);
	if (!ret && opts->compare)
		ret = bench_compare_open(rig);
	if (!ret) {
		ret = bench_anchors_open(rig->folder, &rig->cpus, &rig->anchors);
		if (ret)
			fprintf(stderr, "nebulaio bench: the raw log in %s: %s\n", rig->folder,
				strerror(-ret));
	}
	if (ret) {
		rig_close(rig);
		return ret;
	}
	rig->simulated = rig->target.server.rdma_is_simulated;
	if (rig->target.server.pid)
		rig->server_cycles_error =
			bench_counter_try(rig->target.server.pid, BENCH_PROCESSOR_EVENTS);
	if (plan_has(plan, BENCH_NGINX))
		open_nginx(rig);
	if (plan_has_packets(plan))
		rig->wire_error = bench_wire_open(opts->program, &rig->cpus, &rig->wire);
	bench_cpu_pin(rig->cpus.client);
	*ret_rig = rig;
	return 0;
}

/* ---- The run. ---- */

static void count_outcome(
	const struct bench_rig *rig, const struct bench_plan *plan, struct bench_outcome *outcome)
{
	struct bench_mark_result result;

	*outcome = (struct bench_outcome){0};
	for (uint32_t g = 0; g < plan->group_count; g++) {
		for (uint32_t m = 0; m < plan->groups[g].count; m++) {
			const struct bench_record *record = plan->groups[g].members[m];

			if (record->subject.kind != BENCH_ROW)
				continue;
			outcome->rows++;
			outcome->rows_failed +=
				record->failed[0] || !record->sample_count || record->result.errors;
		}
	}
	for (size_t i = 0; i < BENCH_MARK_COUNT; i++) {
		if (!bench_report_judge(rig, plan, &BENCH_MARKS[i], &result) ||
			result.first == BENCH_NO_MARK)
			continue;
		outcome->marks++;
		outcome->marks_missed += result.first == BENCH_MISSED;
	}
}

static void print_names(const struct bench_plan *plan)
{
	char name[BENCH_NAME_BYTES];

	for (uint32_t g = 0; g < plan->group_count; g++) {
		for (uint32_t m = 0; m < plan->groups[g].count; m++) {
			const struct bench_subject *subject = &plan->groups[g].members[m]->subject;

			if (subject->kind == BENCH_ROW)
				printf("%s\n", bench_subject_name(subject, name));
		}
	}
}

static int run(struct bench_rig *rig, struct bench_plan *plan)
{
	int ret = 0, written;

	bench_report_head(rig);
	bench_report_speeds_head();
	for (uint32_t g = 0; g < plan->group_count && !stopped && !ret; g++) {
		ret = group_open(rig, plan, g);
		if (!ret) {
			bench_measure_group(rig, &plan->groups[g], &stopped);
			bench_report_speeds(rig, &plan->groups[g]);
		}
		group_close(rig);
	}
	bench_report_costs(rig, plan);
	bench_report_marks(rig, plan);
	if (rig->opts->compare)
		bench_compare_report(rig, plan);
	if (!rig->opts->json_path)
		return ret;
	written = bench_report_json(rig, plan, rig->opts->json_path);
	if (written)
		fprintf(stderr, "nebulaio bench: %s: %s\n", rig->opts->json_path,
			strerror(-written));
	return ret ? ret : written;
}

/* Each connection is a descriptor. Where the hard limit is too low, the row says so. */
static void files_raise(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= limit.rlim_max)
		return;
	limit.rlim_cur = limit.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &limit);
}

int bench_run(const struct bench_opts *opts, struct bench_outcome *ret_outcome)
{
	struct bench_plan plan;
	struct bench_rig *rig;
	int ret;

	*ret_outcome = (struct bench_outcome){0};
	ret = bench_plan_open(opts, &plan);
	if (ret) {
		fprintf(stderr,
			"nebulaio bench: no row has \"%s\" in its name; --list prints the names\n",
			opts->only ? opts->only : "");
		return ret;
	}
	if (opts->list_rows) {
		print_names(&plan);
		bench_plan_close(&plan);
		return 0;
	}
	catch_signals();
	files_raise();
	ret = rig_open(opts, &plan, &rig);
	if (!ret) {
		ret = run(rig, &plan);
		count_outcome(rig, &plan, ret_outcome);
		rig_close(rig);
	}
	bench_plan_close(&plan);
	return !ret && stopped ? -EINTR : ret;
}
