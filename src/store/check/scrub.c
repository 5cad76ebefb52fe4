/* store/check/scrub.c: reads all bodies, and the volumes' copy of the index, periodically, at a
 * limited rate, and compares them with their checksums, and over several volumes also parity with
 * data. Damage that other volumes can repair is written again; other damage is reported. */
#include "store/check/check.h"
#include "store/commit/body.h"
#include "store/image/image.h"
#include "store/index/index.h"
#include "store/log/key.h"
#include "store/object/object.h"
#include "store/object/record.h"
#include "store/space/space.h"
#include "store/state/state.h"
#include "store/volume/volume.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

DEFINE_COUNTER(runs, "nebulaio_store_scrub_runs_total", NULL, "Completed scrubs.");
DEFINE_COUNTER(read_bytes, "nebulaio_store_scrub_bytes_total", NULL, "Bytes of bodies scrubbed.");
DEFINE_COUNTER(damaged, "nebulaio_store_scrub_damaged_total", NULL,
	"Places (of at most 1 MiB) that a scrub found damaged and could not repair.");
DEFINE_COUNTER(mended, "nebulaio_store_scrub_mended_total", NULL,
	"Pieces of data that a scrub found wrong on a volume and repaired from the others.");
DEFINE_COUNTER(parity_mended, "nebulaio_store_scrub_parity_mended_total", NULL,
	"Shards of parity that a scrub found wrong and computed again.");

static const struct slice KINDS[] = {SLICE("O"), SLICE("V"), SLICE("N")};

/* A run, and its position: a row, one of its segments, a chunk of that. */
struct scrub {
	struct store *store;
	const struct store_scrub_opts *opts;
	uint64_t next_ns; /* when the next chunk may be read */
	uint64_t damaged, mended, parity;
	uint32_t kind;
	struct key key; /* len 0: none of the kind yet */
	uint64_t data_id;
	uint32_t segment_count, segment_idx;
	bool in_image; /* in the volumes' copy of the index, at this place */
	struct image_place image;
	/* On a helper thread. */
	struct object *object;
	struct segment *segment;
	uint64_t segment_bytes, at, to;
	uint64_t read_bytes; /* by the step */
	uint8_t *piece;
	int ret;
};

/* ---- Steps on a helper thread. ---- */

static void row_note(struct scrub *scrub, struct slice value)
{
	struct object *object;

	scrub->segment_count = 0;
	if (record_parse(value, &object))
		return; /* its record is damaged, which fsck reports */
	scrub->data_id = object->data_id;
	scrub->segment_count = object->segment_count;
	object_put(scrub->store, object);
}

/* The next row of the kind. -ENOENT: there is none. */
static void row_next(void *arg)
{
	struct scrub *scrub = (struct scrub *)arg;
	struct slice kind = KINDS[scrub->kind], key, value;
	struct slice from = scrub->key.len ? slice_of(scrub->key.bytes, scrub->key.len) : kind;
	struct index_walk *walk;

	scrub->ret = index_walk_open(scrub->store->index, from, SLICE_NONE, &walk);
	if (scrub->ret)
		return;
	scrub->ret = -ENOENT;
	while (scrub->ret == -ENOENT && index_walk_get(walk, &key, &value) &&
		slice_starts(key, kind)) {
		if (!scrub->key.len || !slice_eq(key, from)) {
			row_note(scrub, value);
			scrub->key.len = (uint32_t)key.len;
			memcpy(scrub->key.bytes, key.data, key.len);
			scrub->ret = 0;
			break;
		}
		index_walk_next(walk);
	}
	if (scrub->ret == -ENOENT && index_walk_error(walk))
		scrub->ret = index_walk_error(walk);
	index_walk_close(walk);
}

/* Reads the row again, with its blocks held. -ENOENT: the row changed. */
static void segment_open_run(void *arg)
{
	struct scrub *scrub = (struct scrub *)arg;
	uint64_t from;
	char *value;
	size_t len;
	int ret = index_get(scrub->store->index, &scrub->key, true, &value, &len);

	scrub->ret = ret < 0 ? ret : -ENOENT;
	if (ret <= 0)
		return;
	scrub->ret = record_parse(slice_of(value, len), &scrub->object);
	free(value);
	if (scrub->ret) {
		scrub->object = NULL;
		return;
	}
	scrub->ret = -ENOENT;
	if (scrub->object->data_id != scrub->data_id ||
		scrub->segment_idx >= scrub->object->segment_count)
		return;
	scrub->ret = object_segment_load(
		scrub->store, scrub->object, scrub->segment_idx, &scrub->segment);
	object_segment_range(scrub->object, scrub->segment_idx, &from, &scrub->segment_bytes);
}

/* The next segment of the volumes' copy of the index, with its blocks held. -ENOENT: no more. */
static void image_open_run(void *arg)
{
	struct scrub *scrub = (struct scrub *)arg;

	scrub->ret = image_segment(scrub->store->image, &scrub->image, &scrub->segment,
			     &scrub->segment_bytes)
			     ? 0
			     : -ENOENT;
	scrub->segment_idx = scrub->image.segment_idx;
}

/* Whether the row still names this body: a deletion meanwhile is not damage. */
static bool row_stands(struct scrub *scrub)
{
	struct object *object;
	bool stands = false;
	char *value;
	size_t len;

	if (scrub->in_image)
		return image_has(scrub->store->image, scrub->image.number);
	if (index_get(scrub->store->index, &scrub->key, true, &value, &len) <= 0)
		return false;
	if (record_parse(slice_of(value, len), &object) == 0) {
		stands = object->data_id == scrub->data_id;
		object_put(scrub->store, object);
	}
	free(value);
	return stands;
}

/* A place of the segment with damage that stays. */
static void damage_tell(struct scrub *scrub, const char *why)
{
	scrub->damaged++;
	counter_add(&damaged, 1);
	log_error("store", "scrub: %.*s: bytes %llu to %llu of segment %u are damaged: %s",
		scrub->in_image	     ? 21
		: scrub->key.len > 9 ? (int)MIN(scrub->key.len - 9, 200u)
				     : 0,
		scrub->in_image ? "the copy of the index" : (const char *)scrub->key.bytes + 9,
		(unsigned long long)scrub->at, (unsigned long long)scrub->to - 1,
		scrub->segment_idx, why);
}

static void chunk_run(void *arg)
{
	struct scrub *scrub = (struct scrub *)arg;
	struct volume *volume = &scrub->store->volume;
	const struct recover_range range = {.from = scrub->at, .to = scrub->to, .amend = true};
	uint64_t mended_before = volume->mended, unmended_before = volume->unmended;
	int ret = recover_range_verify(volume, scrub->segment, &range, scrub->piece);

	scrub->mended += volume->mended - mended_before;
	counter_add(&mended, volume->mended - mended_before);
	counter_add(&read_bytes, scrub->to - scrub->at);
	scrub->read_bytes = scrub->to - scrub->at;
	atomic_fetch_add(&scrub->store->scrub_done_bytes, scrub->read_bytes);
	/* Unreachable data is not damaged; another run checks it. */
	if (ret == -ENOTCONN || ret == -EHOSTDOWN || (ret && stripe_lacking(scrub->store)))
		scrub->ret = -EHOSTDOWN;
	if (!ret && volume->unmended != unmended_before)
		damage_tell(scrub,
			"a volume has wrong bytes and takes no right ones, which the others have");
	if (!ret || scrub->ret || !row_stands(scrub))
		return;
	damage_tell(scrub, ret == -EUCLEAN ? "a checksum is wrong, and no volume has the right data"
					   : strerror(-ret));
}

/* Of the stripes that begin in the chunk. */
static void parity_run(void *arg)
{
	struct scrub *scrub = (struct scrub *)arg;
	const struct recover_range range = {.from = scrub->at, .to = scrub->to};
	struct recover_parity parity = {.bytes = scrub->segment_bytes};
	int ret = recover_range_parity(
		&scrub->store->volume, scrub->segment, &range, scrub->piece, &parity);

	scrub->parity += parity.wrong;
	scrub->read_bytes = parity.read_bytes;
	counter_add(&parity_mended, parity.wrong);
	if (ret == -EIO)
		damage_tell(scrub, "a volume has wrong parity and takes no right one");
}

/* ---- A run. ---- */

/* Keeps to the rate; false: the store is quiescing. */
static bool pace(struct scrub *scrub)
{
	struct store *store = scrub->store;
	uint64_t now_ns = clock_now_ns();

	scrub->next_ns =
		MAX(scrub->next_ns, now_ns) +
		(uint64_t)((double)scrub->read_bytes * NS_PER_S / (double)scrub->opts->bytes_per_s);
	while (!atomic_load(&store->quiescing) && clock_now_ns() < scrub->next_ns)
		(void)fiber_park_until(scrub->next_ns);
	return !atomic_load(&store->quiescing);
}

/* Does a step for each chunk of the segment; false: the run ends. */
static bool chunks_run(struct scrub *scrub, void (*step)(void *))
{
	bool go_on = true;

	for (scrub->at = 0; !scrub->ret && go_on && scrub->at < scrub->segment_bytes;
		scrub->at = scrub->to) {
		scrub->to = MIN(scrub->at + STORE_CHUNK_BYTES, scrub->segment_bytes);
		fiber_offload_long(step, scrub);
		go_on = pace(scrub);
	}
	return go_on;
}

/* Its blocks are not reused while they are checked, which takes no longer than one segment. */
static bool segment_run(struct scrub *scrub, void (*open)(void *))
{
	bool go_on;
	struct segment *segment; /* with a reference; NULL: the object has it */

	scrub->object = NULL;
	space_hold(scrub->store->space);
	fiber_offload_long(open, scrub);
	segment = scrub->in_image && !scrub->ret ? scrub->segment : NULL;
	go_on = chunks_run(scrub, chunk_run);
	if (go_on && scrub->store->volume.set_count)
		go_on = chunks_run(scrub, parity_run);
	space_let_go_long(scrub->store->space);
	if (scrub->object)
		object_put(scrub->store, scrub->object);
	segment_close(segment);
	if (scrub->ret == -EHOSTDOWN) {
		log_warn("store",
			"scrub: broken off: the volume, or too many of several, cannot be reached");
		return false;
	}
	return go_on;
}

static bool kind_run(struct scrub *scrub)
{
	scrub->key.len = 0;
	for (;;) {
		fiber_offload_long(row_next, scrub);
		if (scrub->ret == -ENOENT)
			return true;
		if (scrub->ret) {
			log_error(
				"store", "scrub: cannot read the index: %s", strerror(-scrub->ret));
			return false;
		}
		for (scrub->segment_idx = 0; scrub->segment_idx < scrub->segment_count;
			scrub->segment_idx++)
			if (!segment_run(scrub, segment_open_run))
				return false;
		if (atomic_load(&scrub->store->quiescing))
			return false;
	}
}

static bool image_run(struct scrub *scrub)
{
	scrub->in_image = true;
	while (segment_run(scrub, image_open_run)) {
		if (scrub->ret == -ENOENT)
			return true;
		if (atomic_load(&scrub->store->quiescing))
			break;
		scrub->image.segment_idx++;
	}
	return false;
}

/* Returns whether it came to its end. */
static bool scrub_run(struct store *store, const struct store_scrub_opts *opts)
{
	struct scrub *scrub = (struct scrub *)calloc(1, sizeof(*scrub));
	struct store_usage usage;
	bool whole = scrub != NULL;
	void *piece = NULL;

	if (!scrub || posix_memalign(&piece, BLOCK_BYTES, STORE_CHECK_BYTES)) {
		log_error("store", "scrub: no memory");
		free(scrub);
		return false;
	}
	scrub->store = store;
	scrub->opts = opts;
	scrub->piece = (uint8_t *)piece;
	local_usage(store, &usage);
	atomic_store(&store->scrub_done_bytes, 0);
	atomic_store(&store->scrub_all_bytes, MAX(usage.used_bytes, 1u));
	log_info("store", "scrub: begins, about %llu MiB",
		(unsigned long long)(usage.used_bytes / MIB));
	for (; whole && scrub->kind < ARRAY_LEN(KINDS); scrub->kind++)
		whole = kind_run(scrub);
	if (whole)
		whole = image_run(scrub);
	if (whole) {
		counter_add(&runs, 1);
		log_info("store",
			"scrub: ended: %llu MiB read, repaired %llu pieces and %llu shards of "
			"parity, %llu places damaged",
			(unsigned long long)(atomic_load(&store->scrub_done_bytes) / MIB),
			(unsigned long long)scrub->mended, (unsigned long long)scrub->parity,
			(unsigned long long)scrub->damaged);
	}
	atomic_store(&store->scrub_all_bytes, 0);
	free(piece);
	free(scrub);
	return whole;
}

/* ---- The time from which the interval counts, over restarts, too: the data folder's file
 * "scrubbed" was changed then. ---- */

struct since {
	const struct store *store;
	uint64_t ns; /* real time; 0: not known */
};

static void since_path(const struct since *since, char path[4096])
{
	snprintf(path, 4096, "%s/scrubbed", since->store->dir);
}

static void since_read(void *arg)
{
	struct since *since = (struct since *)arg;
	char path[4096];
	struct stat info;

	since_path(since, path);
	if (stat(path, &info) == 0 && info.st_mtim.tv_sec > 0)
		since->ns =
			(uint64_t)info.st_mtim.tv_sec * NS_PER_S + (uint64_t)info.st_mtim.tv_nsec;
}

static void since_write(void *arg)
{
	const struct since *since = (const struct since *)arg;
	const struct timespec at = {
		.tv_sec = (time_t)(since->ns / NS_PER_S), .tv_nsec = (long)(since->ns % NS_PER_S)};
	char path[4096];
	int fd, ret;

	since_path(since, path);
	fd = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	ret = fd < 0 || futimens(fd, (const struct timespec[]){at, at}) || fsync(fd) ? -errno : 0;
	if (fd >= 0)
		close(fd);
	if (!ret)
		ret = file_dir_sync(since->store->dir);
	if (ret)
		log_warn("store", "%s: %s: after a restart the next scrub is late", path,
			strerror(-ret));
}

static void since_now(const struct store *store)
{
	struct since since = {.store = store, .ns = clock_real_ns()};

	fiber_offload_long(since_write, &since);
}

/* How long the first scrub of this process waits. A time in the future is of a clock that was
 * wrong. */
static uint64_t first_wait_ns(const struct store *store, uint64_t interval_ns)
{
	struct since since = {.store = store};
	uint64_t now_ns = clock_real_ns();

	fiber_offload_long(since_read, &since);
	if (!since.ns || since.ns > now_ns) {
		since_now(store);
		return interval_ns;
	}
	return interval_ns - MIN(interval_ns, now_ns - since.ns);
}

/* ---- The schedule. ---- */

void store_scrub_run(struct store *store, const struct store_scrub_opts *opts)
{
	uint64_t due_ns = DEADLINE_NONE;

	store->scrubber = fiber_self();
	if (opts->interval_ns)
		due_ns = clock_now_ns() + first_wait_ns(store, opts->interval_ns);
	while (!atomic_load(&store->quiescing)) {
		while (!atomic_load(&store->quiescing) && !atomic_load(&store->scrub_asked) &&
			clock_now_ns() < due_ns)
			(void)fiber_park_until(MIN(due_ns, clock_now_ns() + NS_PER_S));
		if (atomic_load(&store->quiescing))
			break;
		if (scrub_run(store, opts))
			since_now(store);
		atomic_store(&store->scrub_asked, false);
		if (opts->interval_ns)
			due_ns = clock_now_ns() + opts->interval_ns;
	}
	store->scrubber = NULL;
}

int store_scrub_ask(struct store *store)
{
	if (!store->head.engine->local)
		return -ENOTSUP;
	if (atomic_load(&store->scrub_all_bytes) || atomic_exchange(&store->scrub_asked, true))
		return -EALREADY;
	return 0;
}

void store_scrub_status(struct store *store, struct store_scrub *ret_status)
{
	*ret_status = (struct store_scrub){0};
	if (!store->head.engine->local)
		return;
	*ret_status = (struct store_scrub){
		.running = atomic_load(&store->scrub_all_bytes) || atomic_load(&store->scrub_asked),
		.done_bytes = atomic_load(&store->scrub_done_bytes),
		.all_bytes = atomic_load(&store->scrub_all_bytes),
		.runs = counter_read(&runs),
		.bytes = counter_read(&read_bytes),
		.damaged = counter_read(&damaged),
		.mended = counter_read(&mended),
		.parity_mended = counter_read(&parity_mended),
	};
}
