/* server/pressure.c: reads how scarce memory is, and decides whether the region should change.
 *
 * Hysteresis: memory is given back after some seconds of pressure, and taken after a longer time
 * without any, when something needs it. After each shrink the next growth waits longer, so that a
 * region that causes the pressure itself does not swing. */
#include "server/pressure.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/cgroup.h"
#include "base/file.h"

#define STALLED_HIGH_CENTI 1000u /* 10 % */
#define STALLED_LOW_CENTI  100u	 /* 1 % */
#define FREE_LOW_PART	   32u	 /* of all memory: less free is pressure */
#define FREE_HIGH_PART	   8u	 /* what must be free beside a new extension */
#define PRESSED_NS	   (3 * NS_PER_S)
#define CALM_NS		   (10 * NS_PER_S)
/* The kernel's average must fall before it says something new. */
#define STEP_NS		 (10 * NS_PER_S)
#define GROW_WAIT_NS_MIN (60 * NS_PER_S)
#define GROW_WAIT_NS_MAX (3600 * NS_PER_S)

/* ---- Reading. ---- */

/* The first line of a pressure file: "some avg10=1.23 avg60=…". */
static void stalled_count(struct pressure_sample *sample, const char *path)
{
	char line[128], whole[4], part[3];

	if (file_line(path, line, sizeof(line)) &&
		sscanf(line, "some avg10=%3[0-9].%2[0-9]", whole, part) == 2)
		sample->stalled_centi = MAX(sample->stalled_centi,
			(uint32_t)(strtoul(whole, NULL, 10) * 100 + strtoul(part, NULL, 10)));
}

static void room_count(struct pressure_sample *sample, uint64_t all_bytes, uint64_t free_bytes)
{
	if (free_bytes >= sample->free_bytes)
		return;
	sample->free_bytes = free_bytes;
	sample->all_bytes = all_bytes;
}

static bool number_read(const char *group, const char *name, uint64_t *ret_number)
{
	char path[4096 + 32], line[64], *end;

	snprintf(path, sizeof(path), "%s/%s", group, name);
	if (!file_line(path, line, sizeof(line)))
		return false;
	*ret_number = strtoull(line, &end, 10);
	return end != line; /* "max" is no number */
}

static void group_count(void *arg, const char *group, bool version_2)
{
	struct pressure_sample *sample = arg;
	char path[4096 + 32];
	uint64_t high, used;

	if (!version_2)
		return;
	snprintf(path, sizeof(path), "%s/memory.pressure", group);
	stalled_count(sample, path);
	/* Above memory.high the kernel slows the group down, once it has dropped page cache, which
	 * otherwise fills all that is below. */
	if (number_read(group, "memory.high", &high) && cgroup_memory_used(group, true, &used))
		room_count(sample, high, high - MIN(high, used));
}

static void host_count(struct pressure_sample *sample, const char *root)
{
	uint64_t all_kib = 0, free_kib = UINT64_MAX / KIB, value;
	char path[4096], line[128];
	FILE *file;

	snprintf(path, sizeof(path), "%s/proc/meminfo", root);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "MemTotal: %" SCNu64, &value) == 1)
			all_kib = value;
		else if (sscanf(line, "MemAvailable: %" SCNu64, &value) == 1)
			free_kib = value;
	}
	if (file)
		fclose(file);
	room_count(sample, all_kib * KIB, free_kib * KIB);
}

void pressure_read(const char *root, struct pressure_sample *ret_sample)
{
	struct pressure_sample sample = {.free_bytes = UINT64_MAX};
	struct cgroup_limits limits;
	char path[4096];

	snprintf(path, sizeof(path), "%s/proc/pressure/memory", root);
	stalled_count(&sample, path);
	host_count(&sample, root);
	cgroup_limits_read(root, &limits);
	room_count(&sample, limits.memory_bytes, limits.memory_free);
	cgroup_visit(root, "memory", group_count, &sample);
	*ret_sample = sample;
}

/* ---- The rules. ---- */

static bool is_pressed(const struct pressure_sample *sample)
{
	return sample->stalled_centi >= STALLED_HIGH_CENTI ||
	       sample->free_bytes < sample->all_bytes / FREE_LOW_PART;
}

static bool is_calm(const struct pressure_sample *sample, uint64_t extension_bytes)
{
	return sample->stalled_centi < STALLED_LOW_CENTI && sample->free_bytes > extension_bytes &&
	       sample->free_bytes - extension_bytes >= sample->all_bytes / FREE_HIGH_PART;
}

static void since(uint64_t *since_ns, bool holds, uint64_t now_ns)
{
	if (!holds)
		*since_ns = 0;
	else if (!*since_ns)
		*since_ns = now_ns;
}

static bool lasts(uint64_t since_ns, uint64_t ns, uint64_t now_ns)
{
	return since_ns && now_ns - since_ns >= ns;
}

static bool rests(uint64_t last_ns, uint64_t ns, uint64_t now_ns)
{
	return last_ns && now_ns - last_ns < ns;
}

enum pressure_verdict pressure_judge(struct pressure *pressure,
	const struct pressure_sample *sample, uint64_t extension_bytes, bool wanted,
	uint64_t now_ns)
{
	since(&pressure->pressed_since_ns, is_pressed(sample), now_ns);
	since(&pressure->calm_since_ns, wanted && is_calm(sample, extension_bytes), now_ns);
	if (lasts(pressure->pressed_since_ns, PRESSED_NS, now_ns) &&
		!rests(pressure->shrunk_ns, STEP_NS, now_ns))
		return PRESSURE_SHRINK;
	if (lasts(pressure->calm_since_ns, CALM_NS, now_ns) &&
		!rests(pressure->grown_ns, STEP_NS, now_ns) &&
		!rests(pressure->shrunk_ns, MAX(pressure->grow_wait_ns, GROW_WAIT_NS_MIN), now_ns))
		return PRESSURE_GROW;
	return PRESSURE_STAY;
}

void pressure_changed(struct pressure *pressure, enum pressure_verdict verdict, uint64_t now_ns)
{
	if (verdict == PRESSURE_GROW) {
		pressure->grown_ns = now_ns;
		return;
	}
	/* Shrinks of one and the same shortage count as one. */
	if (!rests(pressure->shrunk_ns, GROW_WAIT_NS_MIN, now_ns))
		pressure->grow_wait_ns = rests(pressure->shrunk_ns, 2 * GROW_WAIT_NS_MAX, now_ns)
						 ? MIN(2 * pressure->grow_wait_ns, GROW_WAIT_NS_MAX)
						 : GROW_WAIT_NS_MIN;
	pressure->shrunk_ns = now_ns;
}
