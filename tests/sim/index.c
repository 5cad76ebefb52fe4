/* tests/sim/index.c: the index as an ordered map in memory, in place of store/index/index.c:
 * no seed controls RocksDB's threads.
 *
 * Every change makes a new state: a sorted array of rows that states share. Walks keep the state
 * that they were opened on. When power fails, the "medium" has some state between the last flush
 * and now, like RocksDB, which may write a memtable at any time. */
#include "world.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/store_priv.h"

#define STATES_MAX	   65536u
#define WORK_NS_MAX	   (200 * NS_PER_US)
#define PASSED_OVER_ONE_OF 50u

struct row {
	uint32_t refs;
	uint32_t key_len, value_len;
	char bytes[]; /* key, value */
};

struct map {
	uint32_t refs;
	uint32_t count, cap;
	struct row **rows;
};

struct index {
	char dir[4096];
	struct map *states[STATES_MAX]; /* since the last flush; the last one is now */
	uint32_t state_count;
};

struct index_walk {
	struct map *map;
	uint32_t at;
	struct row *bound; /* its key; NULL: to the end */
};

static struct index *the_index;

/* ---- Rows and maps. ---- */

static struct slice row_key(const struct row *row)
{
	return slice_of(row->bytes, row->key_len);
}

static struct slice row_value(const struct row *row)
{
	return slice_of(row->bytes + row->key_len, row->value_len);
}

static struct row *row_new(struct slice key, struct slice value)
{
	struct row *row = (struct row *)malloc(sizeof(*row) + key.len + value.len + 1);

	CHECK(row != NULL);
	row->refs = 1;
	row->key_len = (uint32_t)key.len;
	row->value_len = (uint32_t)value.len;
	memcpy(row->bytes, key.data, key.len);
	if (value.len)
		memcpy(row->bytes + key.len, value.data, value.len);
	return row;
}

static void row_put(struct row *row)
{
	if (row && --row->refs == 0)
		free(row);
}

static void map_put(struct map *map)
{
	if (--map->refs)
		return;
	for (uint32_t i = 0; i < map->count; i++)
		row_put(map->rows[i]);
	free(map->rows);
	free(map);
}

static struct map *map_copy(const struct map *from)
{
	struct map *map = (struct map *)calloc(1, sizeof(*map));

	CHECK(map != NULL);
	map->refs = 1;
	map->count = from ? from->count : 0;
	map->cap = map->count + 64;
	map->rows = (struct row **)calloc(map->cap, sizeof(struct row *));
	CHECK(map->rows != NULL);
	for (uint32_t i = 0; i < map->count; i++) {
		map->rows[i] = from->rows[i];
		map->rows[i]->refs++;
	}
	return map;
}

/* The first row that is not below the key. */
static uint32_t map_find(const struct map *map, struct slice key)
{
	uint32_t low = 0, high = map->count;

	while (low < high) {
		uint32_t mid = (low + high) / 2;

		if (slice_cmp(row_key(map->rows[mid]), key) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static bool map_has(const struct map *map, uint32_t at, struct slice key)
{
	return at < map->count && slice_eq(row_key(map->rows[at]), key);
}

static void map_set(struct map *map, struct slice key, struct slice value)
{
	uint32_t at = map_find(map, key);

	if (map_has(map, at, key)) {
		row_put(map->rows[at]);
	} else {
		if (map->count == map->cap) {
			map->cap *= 2;
			map->rows =
				(struct row **)realloc(map->rows, map->cap * sizeof(struct row *));
			CHECK(map->rows != NULL);
		}
		memmove(&map->rows[at + 1], &map->rows[at],
			(map->count - at) * sizeof(struct row *));
		map->count++;
	}
	map->rows[at] = row_new(key, value);
}

static void map_remove(struct map *map, struct slice key)
{
	uint32_t at = map_find(map, key);

	if (!map_has(map, at, key))
		return;
	row_put(map->rows[at]);
	map->count--;
	memmove(&map->rows[at], &map->rows[at + 1], (map->count - at) * sizeof(struct row *));
}

static void map_remove_prefix(struct map *map, struct slice prefix)
{
	uint32_t at = map_find(map, prefix);

	while (at < map->count && slice_starts(row_key(map->rows[at]), prefix))
		map_remove(map, row_key(map->rows[at]));
}

/* ---- The file that represents the medium. ---- */

static void map_save(const struct map *map, const char *dir)
{
	char path[4200];
	FILE *file;

	snprintf(path, sizeof(path), "%s/CURRENT", dir);
	file = fopen(path, "w");
	CHECK(file != NULL);
	for (uint32_t i = 0; i < map->count; i++) {
		const struct row *row = map->rows[i];
		size_t bytes = row->key_len + (size_t)row->value_len;

		CHECK(fwrite(&row->key_len, sizeof(uint32_t), 2, file) == 2);
		CHECK(fwrite(row->bytes, 1, bytes, file) == bytes);
	}
	CHECK(fclose(file) == 0);
}

static int map_load(struct map *map, const char *dir)
{
	char path[4200], bytes[256 * 1024];
	uint32_t lens[2];
	FILE *file;

	snprintf(path, sizeof(path), "%s/CURRENT", dir);
	file = fopen(path, "r");
	if (!file)
		return -EUCLEAN;
	while (fread(lens, sizeof(uint32_t), 2, file) == 2) {
		size_t len = lens[0] + (size_t)lens[1];

		CHECK(len <= sizeof(bytes));
		CHECK(fread(bytes, 1, len, file) == len);
		map_set(map, slice_of(bytes, lens[0]), slice_of(bytes + lens[0], lens[1]));
	}
	fclose(file);
	return 0;
}

/* ---- The index. ---- */

/* A blocking call takes time, in which other fibers run. */
static void work(void)
{
	int here;

	world_block(&here, world_now_ns() + world_below(WORK_NS_MAX));
}

static struct map *now(const struct index *index)
{
	return index->states[index->state_count - 1];
}

static void state_push(struct index *index, struct map *map)
{
	CHECK(index->state_count < STATES_MAX);
	index->states[index->state_count++] = map;
}

int index_open(const struct index_opts *opts, struct index **ret_index)
{
	struct index *index = (struct index *)calloc(1, sizeof(*index));
	int ret = 0;

	CHECK(index != NULL && !the_index);
	snprintf(index->dir, sizeof(index->dir), "%s", opts->dir);
	state_push(index, map_copy(NULL));
	if (opts->create)
		mkdir(opts->dir, 0700);
	else
		ret = map_load(now(index), opts->dir);
	if (ret) {
		map_put(now(index));
		free(index);
		return ret;
	}
	the_index = index;
	*ret_index = index;
	return 0;
}

void index_close(struct index *index)
{
	if (!index)
		return;
	/* A close without a flush loses the changes. */
	map_save(index->states[0], index->dir);
	for (uint32_t i = 0; i < index->state_count; i++)
		map_put(index->states[i]);
	the_index = NULL;
	free(index);
}

void world_index_power_lost(void)
{
	if (the_index)
		map_save(the_index->states[world_below(the_index->state_count)], the_index->dir);
}

int index_checkpoint(struct index *index, const char *dir)
{
	work();
	mkdir(dir, 0700);
	map_save(index->states[0], dir);
	return 0;
}

int index_destroy(const char *dir)
{
	char path[4200];

	snprintf(path, sizeof(path), "%s/CURRENT", dir);
	unlink(path);
	rmdir(dir);
	return 0;
}

int index_get(struct index *index, const struct key *key, bool may_block, char **ret_value,
	size_t *ret_len)
{
	struct slice name = slice_of(key->bytes, key->len);
	struct slice value;
	uint32_t at;

	if (!may_block && world_chance(4))
		return -EAGAIN;
	if (may_block)
		work();
	at = map_find(now(index), name);
	if (!map_has(now(index), at, name))
		return 0;
	value = row_value(now(index)->rows[at]);
	*ret_value = (char *)malloc(value.len + 1);
	CHECK(*ret_value != NULL);
	memcpy(*ret_value, value.data, value.len);
	*ret_len = value.len;
	return 1;
}

static void change(struct map *map, const struct mutation *mutation)
{
	if (mutation->op == MUTATION_PUT && world_row_is_lost(mutation->key))
		return;
	if (mutation->op == MUTATION_PUT)
		map_set(map, mutation->key, mutation->value);
	else if (mutation->op == MUTATION_DELETE_PREFIX)
		map_remove_prefix(map, mutation->key);
	else
		map_remove(map, mutation->key);
}

static int commit(struct index *index, struct map *map, const struct state_record *state)
{
	struct key key;

	key_state(&key);
	map_set(map, slice_of(key.bytes, key.len), slice_of(state, sizeof(*state)));
	state_push(index, map);
	return 0;
}

int index_state_write(struct index *index, const struct state_record *state)
{
	return commit(index, map_copy(now(index)), state);
}

int index_write_group(struct index *index, struct slice group, const struct state_record *state)
{
	struct mutation mutation;
	struct map *map;
	size_t at = 0;
	int ret;

	work();
	map = map_copy(now(index));
	while ((ret = group_next(group, &at, &mutation)) == 1)
		change(map, &mutation);
	if (!ret)
		return commit(index, map, state);
	map_put(map);
	return ret;
}

int index_write_merged(
	struct index *index, const struct index_merge *merge, const struct state_record *state)
{
	struct map *map;

	work();
	map = map_copy(now(index));
	for (uint32_t i = 0; i < merge->settled_count; i++)
		change(map, merge->order[i]);
	return commit(index, map, state);
}

int index_flush(struct index *index)
{
	uint32_t count = index->state_count;

	if (world_checkpoint_is_early())
		return 0;
	work();
	/* Changes applied while it ran may or may not be part of it. */
	for (uint32_t i = 0; i + 1 < count; i++)
		map_put(index->states[i]);
	memmove(index->states, index->states + count - 1,
		(index->state_count - count + 1) * sizeof(struct map *));
	index->state_count -= count - 1;
	return 0;
}

/* ---- Walks. ---- */

int index_walk_open(
	struct index *index, struct slice from, struct slice to, struct index_walk **ret_walk)
{
	struct index_walk *walk = (struct index_walk *)calloc(1, sizeof(*walk));

	CHECK(walk != NULL);
	work();
	walk->map = now(index);
	walk->map->refs++;
	walk->at = map_find(walk->map, from);
	walk->bound = to.len ? row_new(to, SLICE_NONE) : NULL;
	*ret_walk = walk;
	return 0;
}

int index_walks_open(struct index *index, const struct index_range *ranges, uint32_t count,
	struct index_walk **ret_walks)
{
	struct map *map;

	work();
	map = now(index);
	for (uint32_t i = 0; i < count; i++) {
		struct index_walk *walk = (struct index_walk *)calloc(1, sizeof(*walk));

		CHECK(walk != NULL);
		walk->map = map;
		map->refs++;
		walk->at = map_find(map, ranges[i].from);
		walk->bound = ranges[i].to.len ? row_new(ranges[i].to, SLICE_NONE) : NULL;
		ret_walks[i] = walk;
	}
	return 0;
}

/* No entry hides another here; by chance a list asks for a checkpoint nevertheless. */
uint64_t index_jobs(const struct index *index)
{
	(void)index;
	return 0;
}

uint64_t index_passed_over(const struct index *index)
{
	(void)index;
	return world_chance(PASSED_OVER_ONE_OF) ? UINT64_MAX : 0;
}

void index_tidy(struct index *index)
{
	(void)index;
}

void index_walk_close(struct index_walk *walk)
{
	map_put(walk->map);
	row_put(walk->bound);
	free(walk);
}

bool index_walk_get(struct index_walk *walk, struct slice *ret_key, struct slice *ret_value)
{
	const struct row *row;

	if (walk->at >= walk->map->count)
		return false;
	row = walk->map->rows[walk->at];
	if (walk->bound && slice_cmp(row_key(row), row_key(walk->bound)) >= 0)
		return false;
	*ret_key = row_key(row);
	*ret_value = row_value(row);
	return true;
}

void index_walk_next(struct index_walk *walk)
{
	walk->at++;
}

void index_walk_seek(struct index_walk *walk, struct slice key)
{
	walk->at = map_find(walk->map, key);
}

int index_walk_error(struct index_walk *walk)
{
	(void)walk;
	return 0;
}
