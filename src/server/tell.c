/* server/tell.c: GET /admin/v1/sessions and GET /admin/v1/log, page by page, GET /admin/v1/doctor
 * and GET /admin/v1/tuning, and hands on what is below /admin/v1/region. */
#include "server/tell.h"
#include "server/admin/admin.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>

#include "base/log_ring.h"
#include "codec/codec.h"

#define PAGE_SESSIONS	   200u
#define PAGE_LINES	   200u
#define FINDINGS_KEEP_NS   (10 * NS_PER_S)
#define FINDINGS_BYTES_MAX (1 * MIB)
#define ARN_BYTES	   2048u

/* ---- Sessions. ---- */

/* A session and its device. */
struct told {
	struct front_session session;
	const struct rp_device_attr *device;
};

struct page {
	const struct front_native *front;
	uint64_t after;
	struct front_session *sessions;
	uint32_t count;
};

static void page_fill(void *arg)
{
	struct page *page = arg;

	page->count = front_native_tell(page->front, page->after, page->sessions, PAGE_SESSIONS);
}

static int by_id(const void *one, const void *other)
{
	uint64_t a = ((const struct told *)one)->session.id;
	uint64_t b = ((const struct told *)other)->session.id;

	return (a > b) - (a < b);
}

static json_t *session_json(const struct tell *tell, const struct told *told)
{
	const struct front_session *session = &told->session;
	char arn[ARN_BYTES];
	json_t *json;

	s3_identity_arn(tell->s3, &session->identity, arn, sizeof(arn));
	json = json_pack("{s:I, s:s, s:s, s:s, s:s, s:s, s:s, s:b}", "id", (json_int_t)session->id,
		"peer", session->peer, "principal", arn, "access_key", session->identity.access_key,
		"device", told->device->name, "transport", told->device->transport, "state",
		session->phase, "encrypted", session->encrypted);
	if (json)
		json_object_update_new(
			json, json_pack("{s:I, s:I, s:i, s:i, s:I, s:I, s:I, s:I}", "age_ms",
				      (json_int_t)(session->age_ns / NS_PER_MS), "idle_ms",
				      (json_int_t)(session->idle_ns / NS_PER_MS), "in_flight",
				      (int)session->in_flight, "credits", (int)session->credits,
				      "requests", (json_int_t)session->requests, "errors",
				      (json_int_t)session->errors, "bytes_in",
				      (json_int_t)session->bytes_in, "bytes_out",
				      (json_int_t)session->bytes_out));
	return json;
}

static int put_json(json_t *json, struct buf *out)
{
	char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;

	json_decref(json);
	if (!text)
		return -ENOMEM;
	buf_put_str(out, text);
	free(text);
	return out->failed ? -ENOMEM : 0;
}

/* The front with this number: those of the first device, then those of the others. */
static int front_take(const struct tell *tell, uint32_t number, uint64_t after, struct told *all,
	uint32_t *count, uint32_t *total)
{
	uint32_t core = number % tell->count, device = number / tell->count;
	const struct path_device *other = device ? &tell->paths->devices[device - 1] : NULL;
	struct page page = {.front = other ? other->natives[core] : tell->fronts[core],
		.after = after,
		.sessions = calloc(PAGE_SESSIONS, sizeof(*page.sessions))};
	int ret = page.sessions
			  ? fiber_run_on(tell->reactors[core], "tell-sessions", page_fill, &page)
			  : -ENOMEM;

	for (uint32_t i = 0; !ret && i < page.count; i++)
		all[(*count)++] = (struct told){
			.session = page.sessions[i], .device = other ? &other->attr : tell->device};
	if (!ret)
		*total += front_native_sessions(page.front);
	free(page.sessions);
	return ret;
}

/* Merges the fronts' pages: each front returns its sessions with the lowest ids, and the lowest ids
 * of all are the page. */
static int tell_sessions(const struct tell *tell, uint64_t after, struct buf *out)
{
	uint32_t cores = tell->fronts[0] ? tell->count : 0;
	uint32_t fronts = cores * (1 + tell->paths->device_count), count = 0, total = 0, shown;
	struct told *all = calloc((size_t)fronts * PAGE_SESSIONS + 1, sizeof(*all));
	json_t *list = json_array();
	json_t *json;
	int ret = all && list ? 0 : -ENOMEM;

	for (uint32_t i = 0; !ret && i < fronts; i++)
		ret = front_take(tell, i, after, all, &count, &total);
	shown = MIN(count, PAGE_SESSIONS);
	if (!ret)
		qsort(all, count, sizeof(*all), by_id);
	for (uint32_t i = 0; !ret && i < shown; i++)
		if (json_array_append_new(list, session_json(tell, &all[i])))
			ret = -ENOMEM;
	json = ret ? NULL : json_pack("{s:O, s:i}", "sessions", list, "total", (int)total);
	if (json && count > shown)
		json_object_set_new(
			json, "next", json_integer((json_int_t)all[shown - 1].session.id));
	json_decref(list);
	free(all);
	return ret ? ret : put_json(json, out);
}

/* ---- The doctor's findings. ---- */

static void doctor_run(void *arg)
{
	struct tell *tell = arg;

	tell->doctor(tell->config, &tell->findings);
}

static int tell_doctor(struct tell *tell, struct buf *out)
{
	if (!tell->doctor)
		return -ENOENT;
	if (tell->busy)
		return -EAGAIN;
	if (!tell->findings.len || clock_now_ns() - tell->found_ns >= FINDINGS_KEEP_NS) {
		tell->busy = true;
		buf_free(&tell->findings);
		buf_init(&tell->findings, FINDINGS_BYTES_MAX);
		fiber_offload_long(doctor_run, tell);
		tell->found_ns = clock_now_ns();
		tell->busy = false;
	}
	if (tell->findings.failed || !tell->findings.len)
		return -ENOMEM;
	buf_put_slice(out, buf_slice(&tell->findings));
	return out->failed ? -ENOMEM : 0;
}

/* ---- What follows the load. ---- */

static int tell_tuning(const struct tell *tell, struct buf *out)
{
	const struct config *config = tell->config;
	json_t *spins = json_array();
	json_t *json;

	for (uint32_t i = 0; i < tell->count; i++) {
		struct reactor_stats stats;

		reactor_stats(tell->reactors[i], &stats);
		json_array_append_new(spins,
			json_pack("{s:I, s:I, s:I}", "idle_spin_ns", (json_int_t)stats.idle_spin_ns,
				"changes", (json_int_t)stats.spin_changes, "crowded",
				(json_int_t)stats.spin_crowded));
	}
	json = json_pack("{s:s, s:{s:b, s:I, s:o}, s:{s:b, s:I, s:I}}", "mode", config->tuning,
		"spin", "follows", config_tunes_spin(config), "preset_ns",
		(json_int_t)config_idle_spin_ns(config), "cores", spins, "cache", "follows",
		config_tunes_cache(config), "preset_bytes", (json_int_t)config_cache_bytes(config),
		"bytes_max", (json_int_t)memory_cache_bytes(tell->memory));
	return put_json(json, out);
}

/* ---- The log. ---- */

static int tell_log(uint64_t after, struct buf *out)
{
	struct log_ring_page page;

	buf_put_str(out, "{\"lines\":[");
	log_ring_read(after, PAGE_LINES, out, &page);
	buf_printf(out, "],\"last\":%llu,\"lost\":%llu,\"more\":%s}", (unsigned long long)page.last,
		(unsigned long long)page.lost, page.more ? "true" : "false");
	return out->failed ? -ENOMEM : 0;
}

/* "NAME" or "NAME/AFTER"; leaves *ret_after as it is without AFTER. */
static bool is_page(struct slice path, struct slice name, uint64_t *ret_after)
{
	if (slice_eq(path, name))
		return true;
	return slice_starts(path, name) && path.len > name.len && path.data[name.len] == '/' &&
	       slice_to_u64(slice_from(path, name.len + 1), ret_after) == 0;
}

int tell_run(void *arg, enum s3_method method, struct slice path, struct buf *out)
{
	struct tell *tell = arg;
	uint64_t after = 0, line = LOG_RING_LATEST;

	if (method == S3_GET && is_page(path, SLICE("log"), &line))
		return tell_log(line, out);
	if (slice_starts(path, SLICE("region")))
		return *tell->draining ? -EAGAIN : memory_tell(tell->memory, method, path, out);
	if (method != S3_GET)
		return -ENOENT;
	if (*tell->draining)
		return -EAGAIN;
	if (slice_eq(path, SLICE("tuning")))
		return tell_tuning(tell, out);
	if (slice_eq(path, SLICE("doctor")))
		return tell_doctor(tell, out);
	if (is_page(path, SLICE("sessions"), &after))
		return tell_sessions(tell, after, out);
	return -ENOENT;
}

void tell_counters(struct buf *out)
{
	admin_counters(out);
}

void tell_reactors(struct reactor *const *reactors, uint32_t count, struct buf *out)
{
	admin_reactors(reactors, count, out);
}

void tell_free(struct tell *tell)
{
	buf_free(&tell->findings);
}
