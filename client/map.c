/* client/map.c: the calls of objects as memory: opening and closing a mapper and its maps. Beside
 * its thread, any thread may be in them; the mapper's lock guards what they share. */
#include "map_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* ---- A mapper. ---- */

static int options_take(struct neb_mapper *mapper, const struct neb_mapper_options *more)
{
	static const struct neb_mapper_options NONE;
	uint64_t unit;

	if (!more)
		more = &NONE;
	unit = more->fault_bytes ? more->fault_bytes : MAX(MAP_FAULT_BYTES, mapper->page_bytes);
	if (unit < mapper->page_bytes || unit > MAP_PIECE_BYTES || (unit & (unit - 1)) ||
		(more->resident_bytes_max && more->resident_bytes_max < MAP_RESIDENT_MIN)) {
		client_log(mapper->client, NEB_LOG_ERROR,
			"a mapper needs resident_bytes_max of 32 MiB or more, and fault_bytes that "
			"are a power of two from a page to 2 MiB");
		return -EINVAL;
	}
	mapper->unit_shift = (uint32_t)__builtin_ctzll(unit);
	mapper->resident_bytes_max =
		more->resident_bytes_max ? more->resident_bytes_max : UINT64_MAX / 2;
	mapper->patience_ns = more->patience_ns ? more->patience_ns : MAP_PATIENCE_NS;
	mapper->failed = more->failed;
	mapper->failed_arg = more->arg;
	return 0;
}

static int uffd_open(struct neb_mapper *mapper)
{
	const char *why;
	int ret = map_uffd_open(&mapper->uffd, &mapper->kernel_faults, &why);

	if (ret)
		client_log(mapper->client, NEB_LOG_ERROR, "objects cannot be mapped: %s (%s)", why,
			strerror(-ret));
	else
		mapper->client->watch_fd = mapper->uffd;
	return ret;
}

static int stages_open(struct neb_mapper *mapper)
{
	for (uint32_t i = 0; i < MAP_STAGES; i++) {
		void *stage;
		int ret = neb_buffer_alloc(mapper->client, MAP_PIECE_BYTES, &stage);

		if (ret)
			return ret;
		mapper->stages[mapper->stage_count++] = stage;
	}
	return 0;
}

static void lock_open(struct neb_mapper *mapper)
{
	pthread_condattr_t attr;

	pthread_mutex_init(&mapper->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&mapper->changed, &attr);
	pthread_condattr_destroy(&attr);
}

int neb_mapper_open(const struct neb_options *options, const struct neb_mapper_options *more,
	struct neb_mapper **ret_mapper)
{
	struct neb_options own = *options;
	struct neb_mapper *mapper = calloc(1, sizeof(*mapper));
	int ret;

	if (!mapper)
		return -ENOMEM;
	own.pool_bytes = MAX(own.pool_bytes, MAP_POOL_BYTES);
	mapper->uffd = -1;
	mapper->page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
	list_init(&mapper->maps);
	list_init(&mapper->orders);
	list_init(&mapper->queued);
	list_init(&mapper->flying);
	list_init(&mapper->resident);
	lock_open(mapper);
	ret = neb_client_open(&own, &mapper->client);
	if (!ret)
		ret = options_take(mapper, more);
	if (!ret)
		ret = uffd_open(mapper);
	if (!ret)
		ret = stages_open(mapper);
	if (!ret)
		ret = client_thread_start(&mapper->thread, map_thread, mapper);
	mapper->has_thread = ret == 0;
	if (ret) {
		neb_mapper_close(mapper);
		return ret;
	}
	*ret_mapper = mapper;
	return 0;
}

void neb_mapper_close(struct neb_mapper *mapper)
{
	if (!mapper)
		return;
	while (!list_empty(&mapper->maps))
		neb_unmap(CONTAINER_OF(mapper->maps.next, struct neb_map, link));
	if (mapper->has_thread) {
		pthread_mutex_lock(&mapper->lock);
		mapper->ending = true;
		pthread_mutex_unlock(&mapper->lock);
		neb_wake(mapper->client);
		pthread_join(mapper->thread, NULL);
	}
	/* The requests of maps that ended. */
	neb_client_close(mapper->client);
	while (!list_empty(&mapper->flying))
		free(CONTAINER_OF(list_pop(&mapper->flying), struct map_run, link));
	if (mapper->uffd >= 0)
		close(mapper->uffd);
	pthread_cond_destroy(&mapper->changed);
	pthread_mutex_destroy(&mapper->lock);
	free(mapper);
}

bool neb_mapper_kernel_faults(const struct neb_mapper *mapper)
{
	return mapper->kernel_faults;
}

/* ---- A map. ---- */

/* Has the thread do what the map's phase says, and waits until the phase is another. With the lock.
 */
static void order(struct neb_map *map, enum map_phase phase)
{
	struct neb_mapper *mapper = map->mapper;

	map->phase = phase;
	list_remove(&map->link);
	list_push_back(&mapper->orders, &map->link);
	neb_wake(mapper->client);
	while (map->phase == phase)
		pthread_cond_wait(&mapper->changed, &mapper->lock);
}

static void map_free(struct neb_map *map)
{
	if (map->data)
		munmap(map->data, map->mapped_bytes);
	free(map->states);
	free(map->bucket);
	free(map->key);
	free(map->version_id);
	free(map);
}

static struct neb_map *map_make(
	struct neb_mapper *mapper, const char *bucket, const char *key, const char *version_id)
{
	struct neb_map *map = calloc(1, sizeof(*map));

	if (!map)
		return NULL;
	map->mapper = mapper;
	list_init(&map->link);
	map->bucket = strdup(bucket);
	map->key = strdup(key);
	map->version_id = version_id ? strdup(version_id) : NULL;
	if (map->bucket && map->key && (map->version_id || !version_id))
		return map;
	map_free(map);
	return NULL;
}

/* Its length and version are known. An empty object has one page of zeros. */
static int map_reserve(struct neb_map *map)
{
	struct neb_mapper *mapper = map->mapper;
	uint64_t page_bytes = mapper->page_bytes, unit = 1ull << mapper->unit_shift;
	uint64_t bytes = map->result.object_bytes;

	/* A proxy whose server is away answers 200, too. */
	if (!map->result.etag[0] || bytes > INT64_MAX - MAP_PIECE_BYTES) {
		snprintf(map->result.message, sizeof(map->result.message), "%s",
			map->result.etag[0] ? "the object is too long"
					    : "the answer has no ETag: it is not S3's");
		return -EPROTO;
	}
	memcpy(map->etag, map->result.etag, sizeof(map->etag));
	snprintf(map->if_match, sizeof(map->if_match), "\"%s\"", map->etag);
	map->bytes = bytes;
	map->mapped_bytes = MAX((bytes + page_bytes - 1) & ~(page_bytes - 1), page_bytes);
	map->unit_count = MAX((bytes + unit - 1) >> mapper->unit_shift, 1);
	map->states = calloc(map->unit_count, 1);
	if (!map->states)
		return -ENOMEM;
	return map_uffd_reserve(bytes ? mapper->uffd : -1, map->mapped_bytes, &map->data);
}

int neb_map(struct neb_mapper *mapper, const char *bucket, const char *key, const char *version_id,
	struct neb_map **ret_map, struct neb_result *ret_result)
{
	struct neb_map *map = bucket && key ? map_make(mapper, bucket, key, version_id) : NULL;
	int ret;

	if (!map) {
		ret = bucket && key ? -ENOMEM : -EINVAL;
		if (ret_result)
			client_result_init(ret_result, 0, NULL);
		if (ret_result)
			ret_result->error = ret;
		return ret;
	}
	pthread_mutex_lock(&mapper->lock);
	order(map, MAP_ASKING);
	pthread_mutex_unlock(&mapper->lock);
	if (!map->result.error)
		map->result.error = map_reserve(map);
	if (ret_result)
		client_result_copy(ret_result, &map->result);
	ret = map->result.error;
	if (ret) {
		map_free(map);
		return ret;
	}
	pthread_mutex_lock(&mapper->lock);
	map->phase = MAP_OPEN;
	list_push_back(&mapper->maps, &map->link);
	pthread_mutex_unlock(&mapper->lock);
	*ret_map = map;
	return 0;
}

void neb_unmap(struct neb_map *map)
{
	if (!map)
		return;
	pthread_mutex_lock(&map->mapper->lock);
	order(map, MAP_CLOSING);
	pthread_mutex_unlock(&map->mapper->lock);
	map_free(map);
}

const void *neb_map_data(const struct neb_map *map)
{
	return map->data;
}

uint64_t neb_map_bytes(const struct neb_map *map)
{
	return map->bytes;
}

const char *neb_map_etag(const struct neb_map *map)
{
	return map->etag;
}

/* ---- Of a map. ---- */

static struct timespec timespec_of(uint64_t ns)
{
	return (struct timespec){
		.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
}

/* With the lock. */
static int wish(struct neb_map *map, uint64_t offset, uint64_t end)
{
	struct neb_mapper *mapper = map->mapper;

	if (map->phase != MAP_OPEN)
		return map->result.error;
	if (mapper->wish_count == MAP_WISHES_MAX)
		return -EAGAIN;
	mapper->wishes[mapper->wish_count++] =
		(struct map_wish){.map = map, .offset = offset, .end = end};
	neb_wake(mapper->client);
	return 0;
}

int neb_map_prefetch(struct neb_map *map, uint64_t offset, uint64_t bytes, uint64_t timeout_ns)
{
	struct neb_mapper *mapper = map->mapper;
	uint64_t unit = 1ull << mapper->unit_shift, now_ns = clock_now_ns(), end;
	const struct timespec until =
		timespec_of(now_ns + MIN(timeout_ns, (uint64_t)INT64_MAX - now_ns));
	int ret;

	if (offset > map->bytes || bytes > map->bytes - offset)
		return -ERANGE;
	end = bytes ? offset + bytes : map->bytes;
	offset &= ~(unit - 1);
	end = MIN((end + unit - 1) & ~(unit - 1), map->bytes);
	end = MIN(end, offset + ((mapper->resident_bytes_max / 2) & ~(unit - 1)));
	pthread_mutex_lock(&mapper->lock);
	ret = wish(map, offset, end);
	while (!ret && timeout_ns && map_run_awaited(map, offset, end))
		ret = -pthread_cond_timedwait(&mapper->changed, &mapper->lock, &until);
	if (!ret && map->phase != MAP_OPEN)
		ret = map->result.error;
	pthread_mutex_unlock(&mapper->lock);
	return ret;
}

int neb_map_error(struct neb_map *map, struct neb_result *ret_result)
{
	int ret;

	pthread_mutex_lock(&map->mapper->lock);
	ret = map->phase == MAP_ENDED ? map->result.error : 0;
	if (ret_result)
		client_result_copy(ret_result, &map->result);
	pthread_mutex_unlock(&map->mapper->lock);
	return ret;
}

void neb_map_stats(struct neb_map *map, struct neb_map_stats *ret_stats)
{
	pthread_mutex_lock(&map->mapper->lock);
	*ret_stats = map->stats;
	pthread_mutex_unlock(&map->mapper->lock);
}
