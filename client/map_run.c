/* client/map_run.c: a mapper's thread: which bytes are fetched, when, and what is dropped for them.
 * It sleeps in its client's wait, which a touched page ends, too. */
#include "map_priv.h"

#include <errno.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MESSAGES_MAX 16u
/* Rounds of MESSAGES_MAX before requests are looked at again. */
#define ROUNDS_MAX 8u

/* ---- Units. ---- */

static uint64_t unit_bytes(const struct neb_mapper *mapper)
{
	return 1ull << mapper->unit_shift;
}

/* The pages of a run; its last one may reach beyond the object's end. */
static uint64_t run_pages(const struct map_run *run)
{
	uint64_t page_bytes = run->mapper->page_bytes;

	return ((uint64_t)run->bytes + page_bytes - 1) & ~(page_bytes - 1);
}

static void units_set(struct map_run *run, enum map_state state)
{
	uint32_t shift = run->mapper->unit_shift;
	uint64_t end = (run->offset + run->bytes + unit_bytes(run->mapper) - 1) >> shift;

	for (uint64_t unit = run->offset >> shift; unit < end; unit++)
		run->map->states[unit] = (uint8_t)state;
}

/* How many bytes from offset on are absent, up to a limit. */
static uint64_t absent_bytes(const struct neb_map *map, uint64_t offset, uint64_t bytes_max)
{
	uint32_t shift = map->mapper->unit_shift;
	uint64_t end = MIN(map->bytes, offset + MIN(bytes_max, MAP_PIECE_BYTES)), at = offset;

	while (at < end && map->states[at >> shift] == MAP_ABSENT)
		at = ((at >> shift) + 1) << shift;
	return MIN(at, end) - offset;
}

bool map_run_awaited(const struct neb_map *map, uint64_t offset, uint64_t end)
{
	const struct neb_mapper *mapper = map->mapper;

	for (uint32_t i = 0; i < mapper->wish_count; i++)
		if (mapper->wishes[i].map == map && mapper->wishes[i].offset < end &&
			mapper->wishes[i].end > offset)
			return true;
	for (uint64_t unit = offset >> mapper->unit_shift; unit << mapper->unit_shift < end; unit++)
		if (map->states[unit] == MAP_FETCHING)
			return true;
	return false;
}

/* ---- Runs. ---- */

/* Asks for so many bytes; those up to the first unit that is not absent. NULL: none is, or no
 * memory. */
static struct map_run *run_make(struct neb_map *map, uint64_t offset, uint64_t bytes)
{
	struct map_run *run;

	bytes = offset < map->bytes ? absent_bytes(map, offset, bytes) : 0;
	run = bytes ? calloc(1, sizeof(*run)) : NULL;
	if (!run)
		return NULL;
	run->mapper = map->mapper;
	run->map = map;
	run->offset = offset;
	run->bytes = (uint32_t)bytes;
	units_set(run, MAP_FETCHING);
	list_push_back(&map->mapper->queued, &run->link);
	return run;
}

static void run_free(struct map_run *run)
{
	list_remove(&run->link);
	free(run->first_page);
	free(run);
}

static void stage_give(struct map_run *run)
{
	run->mapper->stages[run->mapper->stage_count++] = run->stage;
	run->stage = NULL;
}

/* A thread waits for it: it is not behind those that nobody waits for. */
static void run_touch(struct map_run *run)
{
	run->touched = true;
	if (run->stage)
		return;
	list_remove(&run->link);
	list_push_front(&run->mapper->queued, &run->link);
}

static struct map_run *run_find(struct list *list, const struct neb_map *map, uint64_t offset)
{
	LIST_FOR_EACH (link, list) {
		struct map_run *run = CONTAINER_OF(link, struct map_run, link);

		if (run->map == map && offset - run->offset < run->bytes)
			return run;
	}
	return NULL;
}

/* Drops what came first until so many bytes have room. */
static void room_make(struct neb_mapper *mapper, uint64_t bytes)
{
	struct list *first = mapper->resident.next;

	while (mapper->resident_bytes + bytes > mapper->resident_bytes_max &&
		first != &mapper->resident) {
		struct map_run *run = CONTAINER_OF(first, struct map_run, link);

		madvise(run->map->data + run->offset, run_pages(run), MADV_DONTNEED);
		units_set(run, MAP_ABSENT);
		run->map->stats.bytes_dropped += run->bytes;
		run->map->stats.bytes_resident -= run->bytes;
		mapper->resident_bytes -= run->bytes;
		run_free(run);
		first = mapper->resident.next;
	}
}

/* ---- The end of a map. ---- */

static void runs_end(struct list *list, const struct neb_map *map)
{
	LIST_FOR_EACH_SAFE (link, list) {
		struct map_run *run = CONTAINER_OF(link, struct map_run, link);

		if (run->map != map)
			continue;
		if (list == &map->mapper->resident)
			map->mapper->resident_bytes -= run->bytes;
		if (list == &map->mapper->flying)
			run->map = NULL; /* the server may still write to its stage */
		else
			run_free(run);
	}
}

static void map_end(struct neb_map *map)
{
	struct neb_mapper *mapper = map->mapper;

	map_uffd_bury(mapper->uffd, map->data, map->mapped_bytes);
	runs_end(&mapper->queued, map);
	runs_end(&mapper->flying, map);
	runs_end(&mapper->resident, map);
	for (uint32_t i = 0; i < mapper->wish_count; i++)
		if (mapper->wishes[i].map == map)
			mapper->wishes[i].map = NULL;
	memset(map->states, MAP_ABSENT, map->unit_count);
	map->stats.bytes_resident = 0;
}

/* With the lock, which the program's function is called without. */
static void map_fail(struct neb_map *map, const struct neb_result *result)
{
	struct neb_mapper *mapper = map->mapper;

	if (map->phase != MAP_OPEN)
		return; /* its closer has an order waiting, which ends it */
	map->result = *result;
	map->phase = MAP_ENDED;
	pthread_mutex_unlock(&mapper->lock);
	client_log(mapper->client, NEB_LOG_ERROR,
		"the map of %s/%s ends, touching it raises SIGBUS: %s%s", map->bucket, map->key,
		result->error == -ESTALE || result->error == -ENOENT
			? "the object was replaced or deleted"
		: result->message[0] ? result->message
				     : strerror(-result->error),
		result->status ? "" : " (no answer)");
	if (mapper->failed)
		mapper->failed(mapper->failed_arg, map, result);
	pthread_mutex_lock(&mapper->lock);
	map_end(map);
	pthread_cond_broadcast(&mapper->changed);
}

static void map_fail_of(struct neb_map *map, int error, const char *why)
{
	struct neb_result result;

	client_result_init(&result, 0, NULL);
	result.error = error;
	snprintf(result.message, sizeof(result.message), "%s", why);
	map_fail(map, &result);
}

/* ---- Answers. ---- */

/* The bytes are in the stage: gives them to the mapping. Without the lock; nobody else ends maps.
 */
static int run_copy(struct map_run *run)
{
	const struct neb_mapper *mapper = run->mapper;
	uint64_t bytes = run_pages(run),
		 skip = run->ahead && !run->touched ? mapper->page_bytes : 0;

	memset(run->stage + run->bytes, 0, bytes - run->bytes);
	if (skip)
		run->first_page = malloc(skip);
	if (run->first_page)
		memcpy(run->first_page, run->stage, skip);
	else
		skip = 0;
	if (skip == bytes)
		return 0;
	return map_uffd_copy(
		mapper, run->map->data + run->offset + skip, run->stage + skip, bytes - skip);
}

static void run_land(struct map_run *run, const struct neb_result *result)
{
	struct neb_map *map = run->map;
	struct neb_mapper *mapper = map->mapper;
	int ret;

	map->stats.fetches++;
	map->stats.fetches_rdma += result->transport == NEB_RDMA || result->transport == NEB_TOKEN;
	map->stats.bytes_fetched += run->bytes;
	pthread_mutex_unlock(&mapper->lock);
	ret = run_copy(run);
	pthread_mutex_lock(&mapper->lock);
	stage_give(run);
	units_set(run, MAP_THERE);
	if (run->first_page)
		map->states[run->offset >> mapper->unit_shift] = MAP_MARKED;
	map->stats.bytes_resident += run->bytes;
	list_remove(&run->link);
	list_push_back(&mapper->resident, &run->link);
	if (ret)
		map_fail_of(map, ret, "the kernel did not take its pages");
	pthread_cond_broadcast(&mapper->changed);
}

/* Sends it again later, or ends the map. */
static void run_failed(struct map_run *run, const struct neb_result *result)
{
	struct neb_map *map = run->map;
	struct neb_mapper *mapper = map->mapper;
	uint64_t now_ns = clock_now_ns();
	bool again = (!result->status && result->error != -EINVAL && result->error != -EXDEV) ||
		     result->status >= 500;

	mapper->resident_bytes -= run->bytes;
	stage_give(run);
	if (!run->failed_ns)
		run->failed_ns = now_ns;
	if (!again || now_ns - run->failed_ns >= mapper->patience_ns) {
		run_free(run);
		map_fail(map, result);
		return;
	}
	map->stats.retries++;
	run->backoff_ns =
		run->backoff_ns ? MIN(2 * run->backoff_ns, MAP_BACKOFF_NS_MAX) : MAP_BACKOFF_NS;
	run->retry_ns = now_ns + run->backoff_ns;
	list_remove(&run->link);
	list_push_back(&mapper->queued, &run->link);
	if (run->touched)
		run_touch(run);
}

/* A neb_done_fn. */
static void run_done(void *arg, const struct neb_result *result)
{
	struct map_run *run = (struct map_run *)arg;
	struct neb_mapper *mapper = run->mapper;
	struct neb_result wrong;

	pthread_mutex_lock(&mapper->lock);
	if (!run->map) {
		mapper->resident_bytes -= run->bytes;
		stage_give(run);
		run_free(run);
	} else if (!result->error && result->bytes == run->bytes) {
		run_land(run, result);
	} else if (!result->error) {
		wrong = *result;
		wrong.error = -EPROTO;
		snprintf(wrong.message, sizeof(wrong.message),
			"the server sent %llu bytes instead of %u",
			(unsigned long long)result->bytes, run->bytes);
		run_failed(run, &wrong);
	} else {
		run_failed(run, result);
	}
	pthread_mutex_unlock(&mapper->lock);
}

/* ---- Requests. ---- */

static void run_launch(struct map_run *run)
{
	struct neb_mapper *mapper = run->mapper;
	const struct neb_map *map = run->map;
	const struct neb_header header = {"If-Match", map->if_match};
	const struct neb_iov into = {
		.data = mapper->stages[mapper->stage_count - 1], .bytes = run->bytes};
	const struct neb_request request = {.op = NEB_GET_OBJECT,
		.bucket = map->bucket,
		.key = map->key,
		.version_id = map->version_id,
		.headers = &header,
		.header_count = 1,
		.into = &into,
		.into_count = 1,
		.range_offset = run->offset,
		.range_bytes = run->bytes,
		.user_data = run,
		.done = run_done};
	struct neb_result result;
	int ret;

	room_make(mapper, run->bytes);
	mapper->resident_bytes += run->bytes;
	run->stage = mapper->stages[--mapper->stage_count];
	list_remove(&run->link);
	list_push_back(&mapper->flying, &run->link);
	ret = neb_submit(mapper->client, &request, NULL);
	if (!ret)
		return;
	client_result_init(&result, 0, NULL);
	result.error = ret;
	run_failed(run, &result);
}

/* The next piece of a wish that is absent; NULL: there is none any more. */
static struct map_run *wish_take(struct neb_mapper *mapper)
{
	while (mapper->wish_count) {
		struct map_wish *wish = &mapper->wishes[0];
		struct map_run *run = NULL;

		while (wish->map && wish->offset < wish->end && !run) {
			run = run_make(wish->map, wish->offset, wish->end - wish->offset);
			wish->offset += run ? run->bytes : unit_bytes(mapper);
		}
		if (run)
			return run;
		memmove(wish, wish + 1, --mapper->wish_count * sizeof(*wish));
		pthread_cond_broadcast(&mapper->changed);
	}
	return NULL;
}

/* The first queued run that has a stage and whose time has come; else NULL, and when the next retry
 * is due. */
static struct map_run *run_next(struct neb_mapper *mapper, uint64_t *ret_retry_ns)
{
	uint64_t now_ns = clock_now_ns();

	*ret_retry_ns = UINT64_MAX;
	LIST_FOR_EACH (link, &mapper->queued) {
		struct map_run *run = CONTAINER_OF(link, struct map_run, link);

		if (run->retry_ns > now_ns)
			*ret_retry_ns = MIN(*ret_retry_ns, run->retry_ns);
		else if (mapper->stage_count > (run->touched ? 0 : MAP_STAGES_SPARE))
			return run;
	}
	return NULL;
}

/* Returns when a retry is due. */
static uint64_t runs_launch(struct neb_mapper *mapper)
{
	uint64_t retry_ns;
	struct map_run *run;

	while ((run = run_next(mapper, &retry_ns)) != NULL)
		run_launch(run);
	while (mapper->stage_count > MAP_STAGES_SPARE && (run = wish_take(mapper)) != NULL)
		run_launch(run);
	return retry_ns;
}

/* ---- Faults. ---- */

/* The stream that a touch of absent bytes belongs to; a new one takes the place of the one that was
 * used longest ago. */
static struct map_stream *stream_at(struct neb_map *map, uint64_t offset)
{
	struct map_stream *oldest = &map->streams[0];

	for (uint32_t i = 0; i < MAP_STREAMS; i++) {
		struct map_stream *stream = &map->streams[i];

		if (stream->window && stream->end == offset)
			return stream;
		if (stream->used < oldest->used)
			oldest = stream;
	}
	*oldest = (struct map_stream){.end = offset};
	return oldest;
}

/* Asks for what lies ahead of a thread that has come to offset. */
static void stream_ahead(struct neb_map *map, struct map_stream *stream, uint64_t offset)
{
	while (stream->end < offset + MAP_AHEAD * MAP_PIECE_BYTES) {
		struct map_run *run = run_make(map, stream->end, MAP_PIECE_BYTES);

		if (!run)
			return;
		run->ahead = true;
		stream->end += run->bytes;
	}
}

static void fault_absent(struct neb_map *map, uint64_t offset)
{
	struct map_stream *stream = stream_at(map, offset);
	uint32_t unit = (uint32_t)unit_bytes(map->mapper);
	struct map_run *run;

	stream->used = ++map->turn;
	stream->window =
		stream->window ? MIN(stream->window * MAP_GROWTH, (uint32_t)MAP_PIECE_BYTES) : unit;
	run = run_make(map, offset, stream->window);
	if (!run) {
		map_fail_of(map, -ENOMEM, "no memory for a request");
		return;
	}
	run_touch(run);
	stream->end = offset + run->bytes;
	if (stream->window == MAP_PIECE_BYTES)
		stream_ahead(map, stream, stream->end);
}

/* A thread that reads in order has come to this run. */
static void run_reached(struct map_run *run)
{
	struct neb_map *map = run->map;

	run->ahead = false;
	for (uint32_t i = 0; i < MAP_STREAMS; i++) {
		struct map_stream *stream = &map->streams[i];

		if (!stream->window || stream->end <= run->offset ||
			stream->end > run->offset + (MAP_AHEAD + 1) * MAP_PIECE_BYTES)
			continue;
		stream->used = ++map->turn;
		stream_ahead(map, stream, run->offset + run->bytes);
		return;
	}
}

static void fault_fetching(struct neb_map *map, uint64_t offset)
{
	struct map_run *run = run_find(&map->mapper->queued, map, offset);

	if (!run)
		run = run_find(&map->mapper->flying, map, offset);
	CHECK(run);
	if (run->touched)
		return;
	run_touch(run);
	if (run->ahead)
		run_reached(run);
}

static void fault_marked(struct neb_map *map, uint64_t offset)
{
	struct neb_mapper *mapper = map->mapper;
	struct map_run *run = NULL;
	int ret;

	/* It came not long ago. */
	for (struct list *link = mapper->resident.prev; !run; link = link->prev) {
		CHECK(link != &mapper->resident);
		run = CONTAINER_OF(link, struct map_run, link);
		if (run->map != map || offset - run->offset >= run->bytes)
			run = NULL;
	}
	ret = map_uffd_copy(mapper, map->data + run->offset, run->first_page, mapper->page_bytes);
	free(run->first_page);
	run->first_page = NULL;
	map->states[offset >> mapper->unit_shift] = MAP_THERE;
	if (ret)
		map_fail_of(map, ret, "the kernel did not take a page");
	else
		run_reached(run);
}

static void fault(struct neb_map *map, uint64_t offset)
{
	struct neb_mapper *mapper = map->mapper;
	uint64_t unit = offset >> mapper->unit_shift, start = unit << mapper->unit_shift;

	map->stats.faults++;
	switch ((enum map_state)map->states[unit]) {
	case MAP_ABSENT:
		fault_absent(map, start);
		return;
	case MAP_FETCHING:
		fault_fetching(map, start);
		return;
	case MAP_MARKED:
		fault_marked(map, start);
		break;
	case MAP_THERE:
		break;
	}
	/* Another page of the unit came while the message was on its way. */
	map_uffd_wake(
		mapper->uffd, map->data + (offset & ~(mapper->page_bytes - 1)), mapper->page_bytes);
}

static void fault_at(struct neb_mapper *mapper, uint64_t address)
{
	LIST_FOR_EACH (link, &mapper->maps) {
		struct neb_map *map = CONTAINER_OF(link, struct neb_map, link);
		uint64_t offset = address - (uintptr_t)map->data;

		if (offset >= map->mapped_bytes)
			continue;
		if (map->phase == MAP_OPEN)
			fault(map, offset);
		else /* its mapping was replaced */
			map_uffd_wake(mapper->uffd, map->data, map->mapped_bytes);
		return;
	}
}

static void faults_take(struct neb_mapper *mapper)
{
	struct uffd_msg messages[MESSAGES_MAX];

	for (uint32_t round = 0; round < ROUNDS_MAX; round++) {
		ssize_t bytes = read(mapper->uffd, messages, sizeof(messages));

		if (bytes <= 0)
			return;
		for (size_t i = 0; i < (size_t)bytes / sizeof(messages[0]); i++)
			if (messages[i].event == UFFD_EVENT_PAGEFAULT)
				fault_at(mapper, messages[i].arg.pagefault.address);
	}
}

/* ---- The thread. ---- */

/* A neb_done_fn of the HEAD. */
static void asked_done(void *arg, const struct neb_result *result)
{
	struct neb_map *map = (struct neb_map *)arg;

	pthread_mutex_lock(&map->mapper->lock);
	map->result = *result;
	map->phase = MAP_ASKED;
	pthread_cond_broadcast(&map->mapper->changed);
	pthread_mutex_unlock(&map->mapper->lock);
}

static void ask(struct neb_map *map)
{
	const struct neb_request request = {.op = NEB_HEAD_OBJECT,
		.bucket = map->bucket,
		.key = map->key,
		.version_id = map->version_id,
		.user_data = map,
		.done = asked_done};
	int ret = neb_submit(map->mapper->client, &request, NULL);

	if (!ret)
		return;
	client_result_init(&map->result, 0, NULL);
	map->result.error = ret;
	if (ret == -EINVAL)
		client_request_why(&request, map->result.message, sizeof(map->result.message));
	map->phase = MAP_ASKED;
	pthread_cond_broadcast(&map->mapper->changed);
}

static void orders_take(struct neb_mapper *mapper)
{
	struct list *link;

	while ((link = list_pop(&mapper->orders)) != NULL) {
		struct neb_map *map = CONTAINER_OF(link, struct neb_map, link);

		if (map->phase == MAP_ASKING) {
			ask(map);
			continue;
		}
		map_end(map);
		map->phase = MAP_CLOSED;
		pthread_cond_broadcast(&mapper->changed);
	}
}

/* Until a page is touched, a request has its result, another thread has an order, or that time. */
static void events_await(struct neb_mapper *mapper, uint64_t until_ns)
{
	struct neb_client *client = mapper->client;
	struct pollfd waits[] = {
		{.fd = mapper->uffd, .events = POLLIN}, {.fd = client->wake_fd, .events = POLLIN}};
	uint64_t now_ns = clock_now_ns(), rings;
	uint64_t left_ns = until_ns > now_ns ? until_ns - now_ns : 0;

	if (neb_in_flight(client)) {
		neb_wait(client, NULL, 0, left_ns);
		return;
	}
	poll(waits, ARRAY_LEN(waits), until_ns == UINT64_MAX ? -1 : (int)(left_ns / NS_PER_MS) + 1);
	/* As in client_sleep. */
	while (waits[1].revents && read(client->wake_fd, &rings, sizeof(rings)) < 0 &&
		errno == EINTR)
		continue;
	atomic_exchange(&client->woken, false);
}

void *map_thread(void *arg)
{
	struct neb_mapper *mapper = (struct neb_mapper *)arg;

	pthread_mutex_lock(&mapper->lock);
	while (!mapper->ending) {
		uint64_t retry_ns;

		orders_take(mapper);
		faults_take(mapper);
		retry_ns = runs_launch(mapper);
		pthread_mutex_unlock(&mapper->lock);
		events_await(mapper, retry_ns);
		pthread_mutex_lock(&mapper->lock);
	}
	pthread_mutex_unlock(&mapper->lock);
	return NULL;
}
