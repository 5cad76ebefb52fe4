/* origin/ask.c: what requests ask of origins: a fetch, which they join, wait for and follow while
 * its pieces are stored; or a HEAD. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "origin/origin_priv.h"

#define NEAR_BYTES (64 * MIB) /* a range that begins so near behind what is stored waits for it */
#define LATE_TEXT \
	"The object is still being fetched from the bucket's origin: ask again in some seconds."

DEFINE_COUNTER(misses, "nebulaio_origin_misses_total", NULL,
	"GETs that waited until their object came from its bucket's origin, or not.");
DEFINE_COUNTER(late, "nebulaio_origin_late_total", NULL,
	"GETs that were told to ask again, because their bytes did not come within the wait that "
	"their bucket allows.");
DEFINE_COUNTER_FULL(full_fetches, "origin_fetches");

/* ---- Waiting. ---- */

struct waiter {
	struct list link; /* of the fetch's waiters, until it is posted; under the lock */
	bool posted;
	uint32_t need; /* pieces */
	struct reactor *reactor;
	struct fiber *fiber;
	struct reactor_msg msg;
	bool arrived;
};

static void waiter_arrived(struct reactor_msg *msg)
{
	struct waiter *waiter = CONTAINER_OF(msg, struct waiter, msg);

	waiter->arrived = true;
	fiber_wake(waiter->fiber);
}

static bool is_due(const struct fetch *fetch, uint32_t need)
{
	return fetch->done || fetch->stored >= need;
}

void fetch_wake(struct fetch *fetch)
{
	struct list *link = fetch->waiters.next;

	while (link != &fetch->waiters) {
		struct waiter *waiter = CONTAINER_OF(link, struct waiter, link);

		link = link->next;
		if (!is_due(fetch, waiter->need))
			continue;
		list_remove(&waiter->link);
		waiter->posted = true;
		reactor_post(waiter->reactor, &waiter->msg);
	}
}

void fetch_put(struct fetch *fetch)
{
	if (--fetch->references)
		return;
	free(fetch->texts);
	free(fetch);
}

/* False: it is posted, so its message will come. */
static bool waiter_withdraw(struct fetch *fetch, struct waiter *waiter)
{
	bool waits;

	pthread_mutex_lock(&fetch->origin->lock);
	waits = !waiter->posted;
	if (waits)
		list_remove(&waiter->link);
	pthread_mutex_unlock(&fetch->origin->lock);
	return waits;
}

/* Until so many pieces are stored, or it is done. -ETIMEDOUT. */
static int fetch_await(struct fetch *fetch, uint32_t need, uint64_t deadline_ns)
{
	struct waiter waiter = {.need = need,
		.reactor = reactor_self(),
		.fiber = fiber_self(),
		.msg.fn = waiter_arrived};
	bool due;

	pthread_mutex_lock(&fetch->origin->lock);
	due = is_due(fetch, need);
	if (!due)
		list_push_back(&fetch->waiters, &waiter.link);
	pthread_mutex_unlock(&fetch->origin->lock);
	while (!due && !waiter.arrived) {
		if (fiber_park_until(deadline_ns) != -ETIMEDOUT || waiter.arrived)
			continue;
		if (waiter_withdraw(fetch, &waiter))
			return -ETIMEDOUT;
		deadline_ns = DEADLINE_NONE;
	}
	return 0;
}

/* ---- Joining a fetch. ---- */

static bool is_same(const struct fetch *fetch, const struct s3_origin_ask *ask)
{
	return fetch->ask.bucket_id == ask->bucket_id && slice_eq(fetch->ask.key, ask->key) &&
	       slice_eq(fetch->ask.bucket, ask->bucket) &&
	       slice_eq(fetch->ask.origin->target, ask->origin->target) &&
	       slice_eq(fetch->ask.origin->prefix, ask->origin->prefix);
}

/* Under the lock. */
static bool has_room(const struct origin *origin, uint16_t share)
{
	return origin->running < FETCHES_MAX && origin->uses[share].running < FETCHES_MAX / 2 &&
	       !atomic_load(&origin->ending);
}

static struct slice text_add(char **at, struct slice text)
{
	char *to = *at;

	slice_copy(text, to);
	to[text.len] = '\0';
	*at = to + text.len + 1;
	return slice_of(to, text.len);
}

bool origin_key_of(const struct s3_origin_ask *ask, char ret_key[ORIGIN_KEY_BYTES])
{
	snprintf(ret_key, ORIGIN_KEY_BYTES, "%.*s%.*s", SLICE_FMT(ask->origin->prefix),
		SLICE_FMT(ask->key));
	return ask->origin->prefix.len + ask->key.len <= LIMIT_KEY_LEN_MAX;
}

/* Its fiber has one reference, the caller the other. */
static struct fetch *fetch_make(struct origin *origin, const struct s3_origin_ask *ask)
{
	size_t bytes = ask->bucket.len + ask->key.len + ask->origin->target.len +
		       ask->origin->prefix.len + 4;
	struct fetch *fetch = calloc(1, sizeof(*fetch));
	char *at = fetch ? malloc(bytes) : NULL;

	if (!at) {
		free(fetch);
		return NULL;
	}
	fetch->origin = origin;
	fetch->references = 2;
	fetch->texts = at;
	fetch->ask = *ask;
	fetch->ask.bucket = text_add(&at, ask->bucket);
	fetch->ask.key = text_add(&at, ask->key);
	fetch->origin_of.bytes_max = ask->origin->bytes_max;
	fetch->origin_of.target = text_add(&at, ask->origin->target);
	fetch->origin_of.prefix = text_add(&at, ask->origin->prefix);
	fetch->ask.origin = &fetch->origin_of;
	(void)origin_key_of(ask, fetch->key);
	slice_copy_str(slice_str(ask->request_id), fetch->request_id, sizeof(fetch->request_id));
	fetch->ask.request_id = fetch->request_id;
	list_init(&fetch->waiters);
	return fetch;
}

/* Under the lock: the fetch that runs, with a reference, or a new one. NULL: there is no room. */
static struct fetch *fetch_get(struct origin *origin, const struct s3_origin_ask *ask)
{
	struct fetch *fetch = NULL;

	LIST_FOR_EACH (link, &origin->fetches) {
		fetch = CONTAINER_OF(link, struct fetch, link);
		if (is_same(fetch, ask)) {
			fetch->references++;
			return fetch;
		}
	}
	fetch = has_room(origin, ask->share) ? fetch_make(origin, ask) : NULL;
	if (!fetch)
		return NULL;
	if (fiber_spawn(ask->core->reactor, "origin fetch", fetch_main, fetch)) {
		fetch->references = 1;
		fetch_put(fetch);
		return NULL;
	}
	list_push_back(&origin->fetches, &fetch->link);
	origin->running++;
	origin->uses[ask->share].running++;
	return fetch;
}

static bool key_fits(const struct s3_origin_ask *ask, struct s3_origin_told *told)
{
	char key[ORIGIN_KEY_BYTES];

	/* No object of the origin can have it. */
	told->end = S3_ORIGIN_ABSENT;
	told->why[0] = '\0';
	return origin_key_of(ask, key);
}

static void full(struct s3_origin_told *told)
{
	counter_add(&full_fetches, 1);
	origin_tell(told, S3_ORIGIN_BUSY,
		"Too many objects are being fetched from origins: ask again in some seconds.");
}

/* Takes the reference of a fetch. */
static void fetch_leave(struct fetch *fetch)
{
	struct origin *origin = fetch->origin;

	pthread_mutex_lock(&origin->lock);
	fetch_put(fetch);
	origin->waiting--;
	pthread_mutex_unlock(&origin->lock);
}

static void told_of(struct fetch *fetch, int waited, struct s3_origin_told *told)
{
	bool done;

	pthread_mutex_lock(&fetch->origin->lock);
	done = fetch->done;
	pthread_mutex_unlock(&fetch->origin->lock);
	if (done) {
		told->end = fetch->end;
		memcpy(told->why, fetch->why, sizeof(told->why));
	} else if (waited) {
		counter_add(&late, 1);
		origin_tell(told, S3_ORIGIN_LATE, LATE_TEXT);
	} else {
		told->end = S3_ORIGIN_COMING;
		told->stream = fetch;
		memcpy(told->upload_id, fetch->upload_id, sizeof(told->upload_id));
		told->object = fetch->answer.object;
	}
}

static void origin_fetch(void *arg, const struct s3_origin_ask *ask, struct s3_origin_told *told)
{
	struct origin *origin = arg;
	struct fetch *fetch;
	int ret;

	counter_add(&misses, 1);
	if (!key_fits(ask, told))
		return;
	pthread_mutex_lock(&origin->lock);
	fetch = fetch_get(origin, ask);
	origin->waiting += fetch != NULL;
	pthread_mutex_unlock(&origin->lock);
	if (!fetch) {
		full(told);
		return;
	}
	ret = fetch_await(fetch, ask->follows ? 1 : UINT32_MAX, ask->deadline_ns);
	told_of(fetch, ret, told);
	if (told->end != S3_ORIGIN_COMING)
		fetch_leave(fetch);
}

/* ---- Following it. ---- */

static uint32_t piece_of(const struct fetch *fetch, uint64_t offset)
{
	if (offset < PIECE_BYTES)
		return 0;
	return 1 + (uint32_t)((offset - PIECE_BYTES) / fetch->piece_bytes);
}

static int origin_follow(
	void *stream, uint64_t offset, uint64_t deadline_ns, struct s3_origin_stretch *ret_stretch)
{
	struct fetch *fetch = stream;
	uint32_t idx = piece_of(fetch, offset);
	int ret = fetch_await(fetch, idx + 1, deadline_ns);

	*ret_stretch = (struct s3_origin_stretch){.part = idx + 1,
		.offset = fetch_piece_offset(fetch, idx),
		.bytes = fetch_piece_length(fetch, idx)};
	pthread_mutex_lock(&fetch->origin->lock);
	if (fetch->done) {
		ret_stretch->part = 0;
		ret_stretch->why = fetch->why;
		ret = fetch->end == S3_ORIGIN_GIVEN ? 0 : -EPIPE;
	}
	pthread_mutex_unlock(&fetch->origin->lock);
	if (ret == -ETIMEDOUT) {
		counter_add(&late, 1);
		ret_stretch->why = LATE_TEXT;
	}
	return ret;
}

static bool origin_near(void *stream, uint64_t offset)
{
	struct fetch *fetch = stream;
	bool near;

	pthread_mutex_lock(&fetch->origin->lock);
	near = fetch->done || piece_of(fetch, offset) < fetch->stored ||
	       offset - fetch_piece_offset(fetch, fetch->stored) < NEAR_BYTES;
	pthread_mutex_unlock(&fetch->origin->lock);
	return near;
}

static void origin_leave(void *stream)
{
	fetch_leave(stream);
}

/* ---- HEAD. ---- */

bool origin_take(struct origin *origin, uint16_t share, struct s3_origin_told *told)
{
	bool room;

	pthread_mutex_lock(&origin->lock);
	room = has_room(origin, share);
	origin->running += room;
	origin->uses[share].running += room;
	pthread_mutex_unlock(&origin->lock);
	if (!room)
		full(told);
	return room;
}

void origin_give(struct origin *origin, uint16_t share)
{
	pthread_mutex_lock(&origin->lock);
	origin->running--;
	origin->uses[share].running--;
	pthread_mutex_unlock(&origin->lock);
}

/* The answer to a HEAD has no body, so a 404 does not say whether the key is missing, the bucket
 * is, or a proxy knows nothing of either. The answer to a GET of one byte does. Copies are deleted
 * by what it says. */
static void confirm_absence(struct origin *origin, const struct s3_origin_ask *ask, struct job *job,
	struct s3_origin_told *told)
{
	*job = (struct job){.target = job->target, .key = job->key, .bytes = 1};
	job_do(origin, ask, job);
	job_free(job);
	/* 416: an empty object is there. */
	if (job->result.status == 416 || !origin_is_refusal(ask, job, told))
		origin_tell(told, S3_ORIGIN_FAILED,
			"The bucket's origin, the target %s, answered 404 to HEAD, and has the "
			"object: ask again.",
			job->target);
}

static void origin_head(void *arg, const struct s3_origin_ask *ask, struct s3_origin_told *told)
{
	struct origin *origin = arg;
	char target[S3_REPLICATE_NAME_MAX + 1], key[ORIGIN_KEY_BYTES];
	struct job job = {.target = target, .key = key};
	struct answer answer;

	if (!key_fits(ask, told) || slice_copy_str(ask->origin->target, target, sizeof(target)))
		return;
	(void)origin_key_of(ask, key);
	if (!origin_take(origin, ask->share, told))
		return;
	job_do(origin, ask, &job);
	job_free(&job);
	if (job.result.status == 404) {
		confirm_absence(origin, ask, &job, told);
	} else if (!origin_is_refusal(ask, &job, told)) {
		told->end = S3_ORIGIN_GIVEN;
		if (answer_read(&job.result, slice_str(job.headers), &answer))
			origin_tell(told, S3_ORIGIN_FAILED,
				"The bucket's origin, the target %s, gave an answer that cannot be "
				"read.",
				target);
		told->object = answer.object;
	}
	origin_give(origin, ask->share);
}

const struct s3_origin_ops origin_ops = {.fetch = origin_fetch,
	.follow = origin_follow,
	.near = origin_near,
	.leave = origin_leave,
	.direct_begin = origin_direct_begin,
	.direct_end = origin_direct_end,
	.direct_piece = origin_direct_piece,
	.direct_free = origin_direct_free,
	.head = origin_head,
	.list = origin_list};
