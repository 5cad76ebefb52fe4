/* origin/pool.c: threads that block in requests to origins, one each; jobs begin in the order in
 * which they came, as long as there is memory for their pieces. No principal whose origin is slow
 * has all threads, or all memory. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>

#include "origin/origin_priv.h"

#define TRIES 2u /* a connection that was idle may be closed: the next one is new */

/* A thread's link between jobs. */
struct held {
	struct replicate_link *link;
	char target[S3_REPLICATE_NAME_MAX + 1];
	uint64_t generation;
};

static void held_drop(struct origin *origin, struct held *held)
{
	origin->opts.sender->close(held->link);
	held->link = NULL;
}

/* The link to the job's target, as it is registered now. -EKEYREVOKED: no longer for the bucket's
 * account. */
static int held_get(struct origin *origin, struct held *held, const struct job *job)
{
	struct s3_replicate_place place;
	int ret = s3_replicate_place(origin->opts.s3, slice_str(job->target), &place);

	if (!ret && !s3_replicate_allowed(origin->opts.s3, slice_str(job->target), job->owner)) {
		secret_wipe(&place, sizeof(place));
		return -EKEYREVOKED;
	}
	if (!ret && held->link && held->generation == place.generation &&
		strcmp(held->target, job->target) == 0) {
		secret_wipe(&place, sizeof(place));
		return 0;
	}
	held_drop(origin, held);
	if (!ret)
		ret = origin->opts.sender->open(&place, &held->link);
	if (!ret) {
		held->generation = place.generation;
		slice_copy_str(slice_str(job->target), held->target, sizeof(held->target));
	}
	secret_wipe(&place, sizeof(place));
	return ret;
}

static void job_send(struct origin *origin, struct held *held, struct job *job)
{
	const struct s3_header header[] = {{SLICE("x-amz-checksum-mode"), SLICE("ENABLED")},
		{SLICE(S3_ORIGIN_VIA), slice_str(job->via)},
		{SLICE("if-match"), slice_str(job->if_match ? job->if_match : "")}};
	const struct replicate_request request = {.op = job->query   ? REPLICATE_OTHER
							: job->bytes ? REPLICATE_GET_OBJECT
								     : REPLICATE_HEAD_OBJECT,
		.method = "GET",
		.key = job->key,
		.query = job->query,
		.headers = header,
		.header_count = job->if_match ? 3 : 2,
		.range_offset = job->offset,
		.range_bytes = job->query ? 0 : job->bytes,
		.answer = (char *)job->body,
		.answer_bytes = job->bytes,
		.answer_headers = job->headers,
		.answer_headers_bytes = sizeof(job->headers)};

	job->result = (struct replicate_result){.error = 0};
	job->headers[0] = '\0';
	origin->opts.sender->send(held->link, &request, &origin->ending, &job->result);
}

static void job_run(struct origin *origin, struct held *held, struct job *job)
{
	int ret = atomic_load(&origin->ending) ? -ECANCELED : 0;

	if (!ret && job->bytes) {
		job->body = malloc(job->bytes);
		ret = job->body ? 0 : -ENOMEM;
	}
	for (uint32_t i = 0; i < TRIES && !ret; i++) {
		ret = held_get(origin, held, job);
		if (ret)
			break;
		job_send(origin, held, job);
		if (job->result.status)
			return;
		/* Until then the origin may write to the body. */
		held_drop(origin, held);
		if (job->result.error == -ECANCELED || job->result.error == -ETIMEDOUT)
			return;
	}
	if (ret)
		job->result = (struct replicate_result){.error = ret};
}

/* Of the last eighth, a share gets some only while it has no more than are left. */
static bool may_have(uint64_t own, uint64_t wanted, uint64_t left, uint64_t all)
{
	return wanted + all / 8 <= left || own <= left;
}

static bool share_may(const struct origin *origin, const struct job *job)
{
	const struct share_use *use = &origin->uses[job->share];
	uint64_t bytes_max = origin->opts.buffer_bytes_max;

	return may_have(use->busy, 1, THREADS_MAX - origin->busy, THREADS_MAX) &&
	       may_have(use->buffer_bytes, job->bytes, bytes_max - origin->buffer_bytes, bytes_max);
}

static void bytes_take(struct origin *origin, const struct job *job)
{
	origin->buffer_bytes += job->bytes;
	origin->uses[job->share].buffer_bytes += job->bytes;
}

/* The first job whose share may have more, when there is room for its piece. A share's own order
 * stays: else the bytes of a later job could keep the one that its fiber waits for from beginning.
 * Under the lock. */
static struct job *job_next(struct origin *origin)
{
	bool waits[FLOW_SHARES] = {false};

	LIST_FOR_EACH (link, &origin->jobs) {
		struct job *job = CONTAINER_OF(link, struct job, link);

		if (waits[job->share] || !share_may(origin, job)) {
			waits[job->share] = true;
			continue;
		}
		if (origin->buffer_bytes + job->bytes > origin->opts.buffer_bytes_max)
			return NULL;
		list_remove(&job->link);
		origin->queued--;
		bytes_take(origin, job);
		return job;
	}
	return NULL;
}

/* A thread has a job of the share, or no longer has it. Under the lock. */
static void busy_add(struct origin *origin, uint16_t share, int32_t change)
{
	origin->busy += (uint32_t)change;
	origin->uses[share].busy += (uint32_t)change;
}

static void *thread_main(void *arg)
{
	struct origin *origin = arg;
	struct held held = {.link = NULL};
	struct job *job;
	uint16_t share;

	pthread_setname_np(pthread_self(), "origin");
	pthread_mutex_lock(&origin->lock);
	for (;;) {
		job = job_next(origin);
		if (!job && origin->leaving)
			break;
		if (!job) {
			origin->idle++;
			pthread_cond_wait(&origin->work, &origin->lock);
			origin->idle--;
			continue;
		}
		share = job->share;
		busy_add(origin, share, 1);
		pthread_mutex_unlock(&origin->lock);
		job_run(origin, &held, job);
		/* Then it may be gone. */
		reactor_help_end(job->reactor, &job->msg);
		pthread_mutex_lock(&origin->lock);
		busy_add(origin, share, -1);
	}
	pthread_mutex_unlock(&origin->lock);
	held_drop(origin, &held);
	return NULL;
}

/* Under the lock. Fewer threads do, too. */
static int thread_add(struct origin *origin)
{
	sigset_t all, before;
	int error;

	/* Signals are for the threads that expect them. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&origin->threads[origin->thread_count], NULL, thread_main, origin);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	origin->thread_count += !error;
	return origin->thread_count ? 0 : -error;
}

static void job_done(struct reactor_msg *msg)
{
	struct job *job = CONTAINER_OF(msg, struct job, msg);

	job->done = true;
	fiber_wake(job->fiber);
}

void job_begin(struct origin *origin, const struct s3_origin_ask *ask, struct job *job)
{
	int ret = 0;

	job->origin = origin;
	job->share = ask->share;
	job->via = ask->via;
	job->owner = ask->owner;
	job->fiber = fiber_self();
	job->reactor = reactor_self();
	job->msg.fn = job_done;
	job->done = false;
	job->body = NULL;
	reactor_help_begin(job->reactor);
	pthread_mutex_lock(&origin->lock);
	list_push_back(&origin->jobs, &job->link);
	if (++origin->queued > origin->idle && origin->thread_count < THREADS_MAX)
		ret = thread_add(origin);
	if (ret) {
		list_remove(&job->link);
		origin->queued--;
		bytes_take(origin, job);
	}
	pthread_cond_signal(&origin->work);
	pthread_mutex_unlock(&origin->lock);
	if (!ret)
		return;
	job->result = (struct replicate_result){.error = ret};
	reactor_help_end(job->reactor, &job->msg);
}

void job_wait(struct job *job)
{
	while (!job->done)
		fiber_park();
}

void job_do(struct origin *origin, const struct s3_origin_ask *ask, struct job *job)
{
	job_begin(origin, ask, job);
	job_wait(job);
}

void job_free(struct job *job)
{
	struct origin *origin = job->origin;

	free(job->body);
	job->body = NULL;
	pthread_mutex_lock(&origin->lock);
	origin->buffer_bytes -= job->bytes;
	origin->uses[job->share].buffer_bytes -= job->bytes;
	pthread_cond_broadcast(&origin->work);
	pthread_mutex_unlock(&origin->lock);
}

void pool_close(struct origin *origin)
{
	pthread_mutex_lock(&origin->lock);
	CHECK(list_empty(&origin->jobs));
	origin->leaving = true;
	pthread_cond_broadcast(&origin->work);
	pthread_mutex_unlock(&origin->lock);
	for (uint32_t i = 0; i < origin->thread_count; i++)
		pthread_join(origin->threads[i], NULL);
	CHECK(!origin->buffer_bytes);
}
