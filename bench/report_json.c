/* bench/report_json.c: everything that was measured, as one JSON object (docs/guide/bench.md names
 * its members). */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "bench/report.h"
#include "codec/codec.h"

#define JSON_BYTES_MAX (16 * MIB)

/* Members are written one after the other; the caller opens and closes objects and lists. */
struct json {
	struct buf out;
	bool first; /* of the object or list that is open */
};

static void put_string(struct json *json, const char *text)
{
	buf_put(&json->out, "\"", 1);
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			buf_printf(&json->out, "\\%c", *text);
		else if ((unsigned char)*text < ' ')
			buf_printf(&json->out, "\\u%04x", (unsigned char)*text);
		else
			buf_put(&json->out, text, 1);
	}
	buf_put(&json->out, "\"", 1);
}

static void put_name(struct json *json, const char *name)
{
	if (!json->first)
		buf_put(&json->out, ",\n", 2);
	json->first = false;
	if (!name)
		return;
	put_string(json, name);
	buf_put(&json->out, ": ", 2);
}

static void put_open(struct json *json, const char *name, char bracket)
{
	put_name(json, name);
	buf_put(&json->out, &bracket, 1);
	json->first = true;
}

static void put_close(struct json *json, char bracket)
{
	buf_put(&json->out, &bracket, 1);
	json->first = false;
}

static void put_text(struct json *json, const char *name, const char *text)
{
	put_name(json, name);
	put_string(json, text);
}

/* Unknown values are null. */
static void put_number(struct json *json, const char *name, double value)
{
	put_name(json, name);
	if (isfinite(value))
		buf_printf(&json->out, "%.9g", value);
	else
		buf_put_str(&json->out, "null");
}

static void put_flag(struct json *json, const char *name, bool value)
{
	put_name(json, name);
	buf_put_str(&json->out, value ? "true" : "false");
}

static void put_span(struct json *json, const char *name, const struct span *span)
{
	put_open(json, name, '{');
	put_number(json, "median", span->count ? span->median : NAN);
	put_number(json, "min", span->count ? span->min : NAN);
	put_number(json, "max", span->count ? span->max : NAN);
	put_number(json, "repetitions", span->count);
	put_close(json, '}');
}

static double ratio(double sum, double count, bool known)
{
	return known && count > 0 ? sum / count : NAN;
}

static void put_settings(const struct bench_rig *rig, struct json *json)
{
	const struct bench_opts *opts = rig->opts;
	char when[DATE_ISO_LEN + 1];

	date_iso_format((int64_t)(clock_real_ns() / NS_PER_MS), when);
	when[DATE_ISO_LEN] = '\0';
	put_text(json, "time", when);
	put_open(json, "settings", '{');
	put_number(json, "repetitions", opts->repetitions);
	put_number(json, "slice_ms", (double)opts->slice_ns / NS_PER_MS);
	put_number(json, "rate", opts->rate ? (double)opts->rate : NAN);
	put_number(json, "verify_every", opts->verify_every);
	put_number(json, "list_keys", opts->list_keys);
	put_number(json, "objects", opts->objects);
	put_number(json, "server_cpu", rig->cpus.server);
	put_number(json, "client_cpu", rig->cpus.client);
	put_flag(json, "own_server", !rig->opts->endpoints);
	put_flag(json, "rdma_simulated", rig->simulated);
	put_flag(json, "idle_poll", rig->idle_fd >= 0);
	put_flag(json, "priority_raised", rig->priority_error == 0);
	if (opts->compare)
		put_text(json, "compared_with", opts->compare);
	put_flag(json, "cycles_counted", rig->cycles_error == 0);
	if (rig->cycles_error || rig->server_cycles_error)
		put_text(json, "cycles_not_counted",
			bench_counter_why(
				rig->cycles_error ? rig->cycles_error : rig->server_cycles_error));
	put_flag(json, "data_on_tmpfs", rig->folder_is_tmpfs);
	put_close(json, '}');
}

static void put_samples(struct json *json, const struct bench_record *record)
{
	double times[BENCH_REPETITIONS_MAX], rates[BENCH_REPETITIONS_MAX];
	struct span span;

	for (uint32_t i = 0; i < record->sample_count; i++) {
		times[i] = record->samples[i].p50_ns;
		rates[i] = record->samples[i].rate;
	}
	span = bench_span_of(times, record->sample_count);
	put_span(json, "p50_ns_of_slices", &span);
	span = bench_span_of(rates, record->sample_count);
	put_span(json, "per_second", &span);
}

static void put_noise(
	const struct bench_rig *rig, struct json *json, const struct bench_record *record)
{
	put_number(json, "others_cores", bench_noise_cores(&record->noise));
	put_number(json, "steal", bench_noise_steal(&record->noise, rig->cpu_count));
	put_flag(json, "noisy", bench_noise_is_noisy(&record->noise, rig->cpu_count));
	if (record->failed[0])
		put_text(json, "not_measured", record->failed);
}

static void put_cycles(struct json *json, const char *cycles, const char *instructions,
	const struct bench_cycles *of)
{
	put_number(json, cycles, ratio(of->sums[BENCH_CYCLES], (double)of->ops, true));
	put_number(json, instructions, ratio(of->sums[BENCH_INSTRUCTIONS], (double)of->ops, true));
}

static void put_result(struct json *json, const struct bench_record *record)
{
	static const struct {
		const char *name;
		double quantile;
	} QUANTILES[] = {{"p50_ns", 0.5}, {"p90_ns", 0.9}, {"p99_ns", 0.99}, {"p999_ns", 0.999}};
	const struct bench_result *result = &record->result;
	double ops = (double)result->ops;

	put_number(json, "n", ops);
	for (size_t i = 0; i < ARRAY_LEN(QUANTILES); i++)
		put_number(json, QUANTILES[i].name,
			record->hist.count
				? (double)hist_quantile(&record->hist, QUANTILES[i].quantile)
				: NAN);
	put_number(json, "max_ns", record->hist.count ? (double)record->hist.max : NAN);
	put_number(json, "gb_per_second",
		ratio((double)result->bytes, (double)result->elapsed_ns, true));
	put_number(json, "errors", (double)result->errors);
	if (result->errors)
		put_text(json, "first_error", result->first_error);
	put_number(json, "verified_ops", (double)result->verified_ops);
	put_number(json, "verified_bytes", (double)result->verified_bytes);
	put_number(json, "server_cpu_us_per_op",
		ratio((double)record->server.cpu_ns / 1e3, ops, record->server_known));
	put_number(json, "client_cpu_us_per_op",
		ratio((double)record->client.cpu_ns / 1e3, ops, true));
	put_number(json, "server_cpu_s_per_gb",
		ratio((double)record->server.cpu_ns, (double)result->bytes, record->server_known));
	put_number(json, "client_cpu_s_per_gb",
		ratio((double)record->client.cpu_ns, (double)result->bytes, true));
	put_cycles(
		json, "server_cycles_per_op", "server_instructions_per_op", &record->server_cycles);
	put_cycles(
		json, "client_cycles_per_op", "client_instructions_per_op", &record->client_cycles);
	put_number(json, "server_switches_per_op",
		ratio((double)record->server.switches, ops, record->server_known));
	put_number(
		json, "client_switches_per_op", ratio((double)record->client.switches, ops, true));
}

static void put_row(const struct bench_rig *rig, struct json *json, const struct bench_group *group,
	const struct bench_record *record)
{
	const struct bench_record *anchor = bench_group_anchor(group, record);
	const struct bench_subject *subject = &record->subject;
	const struct bench_counts *counts = &record->counts;
	double ops = (double)record->result.ops, bytes = (double)record->result.bytes;
	const struct bench_record *http = bench_group_http(group, record);
	struct span share = bench_share(record, anchor), of_http = bench_share(record, http);
	const struct bench_record *other = bench_group_way(group, BENCH_OTHER);
	struct span of_other = bench_share(record, other);
	char name[BENCH_NAME_BYTES];

	put_open(json, NULL, '{');
	put_text(json, "name", bench_subject_name(subject, name));
	put_text(json, "transport", bench_way_name(rig, subject));
	put_flag(json, "cold", subject->heat == BENCH_COLD);
	put_number(json, "bytes", (double)subject->bytes);
	put_number(json, "depth", subject->depth);
	put_samples(json, record);
	put_result(json, record);
	put_number(
		json, "server_copies_per_byte", ratio(counts->copied_bytes, bytes, counts->known));
	put_number(json, "client_copies_per_byte",
		ratio((double)record->client_copied_bytes, bytes,
			subject->way == BENCH_RDMA || subject->way == BENCH_MAP));
	put_number(json, "simulated_wire_per_byte",
		ratio(counts->wire_bytes, bytes,
			counts->known && subject->way == BENCH_RDMA && rig->simulated));
	put_number(json, "kernel_copies_per_byte", bench_kernel_copies(subject));
	put_number(json, "fsyncs_per_op", ratio(counts->flushes, ops, counts->known));
	put_number(json, "disk_written_per_byte",
		ratio((double)record->server.disk_write_bytes, bytes, record->server_known));
	put_number(
		json, "disk_read_per_byte", ratio(counts->disk_read_bytes, bytes, counts->known));
	put_number(json, "fallbacks", (double)record->fallbacks);
	if (anchor) {
		put_text(json, "anchor", bench_subject_name(&anchor->subject, name));
		put_span(json, "share_of_anchor", &share);
	}
	if (http)
		put_span(json, "share_of_http", &of_http);
	if (subject->way == BENCH_HTTP && other)
		put_span(json, "share_of_other", &of_other);
	put_noise(rig, json, record);
	put_close(json, '}');
}

static void put_anchor(
	const struct bench_rig *rig, struct json *json, const struct bench_record *record)
{
	char name[BENCH_NAME_BYTES];

	put_open(json, NULL, '{');
	put_text(json, "name", bench_subject_name(&record->subject, name));
	put_samples(json, record);
	if (record->subject.kind == BENCH_NGINX)
		put_result(json, record);
	put_noise(rig, json, record);
	put_close(json, '}');
}

static void put_groups(
	const struct bench_rig *rig, struct json *json, const struct bench_plan *plan)
{
	put_open(json, "groups", '[');
	for (uint32_t g = 0; g < plan->group_count; g++) {
		const struct bench_group *group = &plan->groups[g];

		put_open(json, NULL, '{');
		put_open(json, "anchors", '[');
		for (uint32_t m = 0; m < group->count; m++) {
			if (group->members[m]->subject.kind != BENCH_ROW)
				put_anchor(rig, json, group->members[m]);
		}
		put_close(json, ']');
		put_open(json, "rows", '[');
		for (uint32_t m = 0; m < group->count; m++) {
			if (group->members[m]->subject.kind == BENCH_ROW)
				put_row(rig, json, group, group->members[m]);
		}
		put_close(json, ']');
		put_close(json, '}');
	}
	put_close(json, ']');
}

static void put_verdict(
	struct json *json, const char *name, double limit, enum bench_verdict verdict)
{
	if (verdict == BENCH_NO_MARK)
		return;
	put_open(json, name, '{');
	put_number(json, "limit", limit);
	put_flag(json, "reached", verdict == BENCH_REACHED);
	put_close(json, '}');
}

static void put_marks(const struct bench_rig *rig, struct json *json, const struct bench_plan *plan)
{
	put_open(json, "marks", '[');
	for (size_t i = 0; i < BENCH_MARK_COUNT; i++) {
		const struct bench_mark *mark = &BENCH_MARKS[i];
		struct bench_mark_result result;

		if (!bench_report_judge(rig, plan, mark, &result))
			continue;
		put_open(json, NULL, '{');
		put_text(json, "title", mark->title);
		put_span(json, "value", &result.value);
		put_span(json, "figure", &result.figure);
		put_span(json, "anchor", &result.anchor);
		put_verdict(json, "first", mark->first, result.first);
		put_verdict(json, "must", mark->must, result.must);
		put_verdict(json, "aim", mark->aim, result.aim);
		put_close(json, '}');
	}
	put_close(json, ']');
}

int bench_report_json(const struct bench_rig *rig, const struct bench_plan *plan, const char *path)
{
	struct json json = {.first = true};
	int fd, ret = 0;

	buf_init(&json.out, JSON_BYTES_MAX);
	put_open(&json, NULL, '{');
	put_settings(rig, &json);
	put_groups(rig, &json, plan);
	put_marks(rig, &json, plan);
	put_close(&json, '}');
	buf_put(&json.out, "\n", 1);
	if (json.out.failed) {
		buf_free(&json.out);
		return -ENOMEM;
	}
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0 || write(fd, json.out.data, json.out.len) != (ssize_t)json.out.len)
		ret = errno ? -errno : -EIO;
	if (fd >= 0 && close(fd) && !ret)
		ret = -errno;
	buf_free(&json.out);
	return ret;
}
