/* origin/fetch.c: fetches an object from a bucket's origin: a fiber asks for its pieces, two ahead,
 * and stores them in order, as one PUT or as the parts of an upload, so that nothing half is ever
 * read. All requests for the key wait for the one fetch.
 *
 *   running ─ stored, absent or failed ─► done ─ the last waiter has read it ─► freed */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "codec/codec.h"
#include "origin/origin_priv.h"

#define NOTE_BYTES    (sizeof("fetched=; last-modified=") + 2 * DATE_ISO_LEN)
#define KEY_BYTES     (S3_ORIGIN_PREFIX_MAX + LIMIT_KEY_LEN_MAX + 1)
#define HEADERS_MAX   LIMIT_HTTP_HEADERS_MAX
#define UPLOAD_ID_MAX 64u

DEFINE_COUNTER(misses, "nebulaio_origin_misses_total", NULL,
	"GETs that waited until their object came from its bucket's origin, or not.");
DEFINE_COUNTER(stored, "nebulaio_origin_fetches_total", "end=\"stored\"",
	"Fetches of objects from origins, by how they ended.");
DEFINE_COUNTER(absent, "nebulaio_origin_fetches_total", "end=\"absent\"",
	"Fetches of objects from origins, by how they ended.");
DEFINE_COUNTER(failed, "nebulaio_origin_fetches_total", "end=\"failed\"",
	"Fetches of objects from origins, by how they ended.");
DEFINE_COUNTER(fetched_bytes, "nebulaio_origin_fetched_bytes_total", NULL,
	"Bytes that came from origins.");
DEFINE_COUNTER(fetching, "nebulaio_origin_fetching", NULL, "Fetches that run.");
DEFINE_COUNTER_FULL(full_fetches, "origin_fetches");

struct fetch {
	struct list link; /* of the origin's fetches, until it is done */
	struct origin *origin;
	uint32_t references; /* under the lock, as waiters and the end */
	struct list waiters;
	struct s3_origin_ask ask;
	struct s3_origin origin_of; /* the ask's */
	char key[KEY_BYTES];	    /* there */
	char request_id[17];
	enum s3_origin_end end;
	char why[S3_ORIGIN_WHY_BYTES];
	/* The fiber's. */
	struct answer answer;
	struct s3_header headers[HEADERS_MAX];
	uint32_t header_count;
	char note[NOTE_BYTES];
	struct s3_fetched fetched;
	char if_match[72];
	char *texts; /* of bucket, key, target and prefix */
};

struct waiter {
	struct list link;
	struct reactor *reactor;
	struct fiber *fiber;
	struct reactor_msg msg;
	bool arrived;
};

/* ---- How it ends. ---- */

static void end_with(struct s3_origin_told *told, enum s3_origin_end end, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static void end_with(struct s3_origin_told *told, enum s3_origin_end end, const char *fmt, ...)
{
	va_list args;

	told->end = end;
	va_start(args, fmt);
	vsnprintf(told->why, sizeof(told->why), fmt, args);
	va_end(args);
}

/* False: the answer is one of an object. Readers learn the status and the code, the log the
 * origin's words, too. */
static bool is_refusal(
	const struct s3_origin_ask *ask, const struct job *job, struct s3_origin_told *told)
{
	const struct replicate_result *result = &job->result;
	const char *target = ask->origin->target.data;

	if ((result->status == 200 || result->status == 206) && !result->error)
		return false;
	/* A HEAD has no code; a 404 without one is of a proxy. */
	if (result->status == 404 && (!job->bytes || strcmp(result->code, "NoSuchKey") == 0)) {
		told->end = S3_ORIGIN_ABSENT;
		return true;
	}
	if (!result->status && result->error == -ECANCELED)
		end_with(told, S3_ORIGIN_FAILED, "The server is stopping: ask again.");
	else if (!result->status && result->error == -ENOENT)
		end_with(told, S3_ORIGIN_FAILED,
			"The bucket's origin, the target %s, is no longer registered.", target);
	else if (!result->status || result->status < 300)
		end_with(told, S3_ORIGIN_FAILED,
			"The bucket's origin, the target %s, did not give the object: %s.", target,
			result->error == -EMSGSIZE ? "it does not answer ranges"
						   : strerror(-result->error));
	else
		end_with(told, S3_ORIGIN_FAILED,
			"The bucket's origin, the target %s, answered %u%s%s.", target,
			result->status, result->code[0] ? " " : "", result->code);
	log_warn("origin", "%.*s/%.*s: %s %s", SLICE_FMT(ask->bucket), SLICE_FMT(ask->key),
		told->why, result->status >= 300 ? result->message : "");
	return true;
}

static void fail(struct fetch *fetch, const char *why)
{
	struct s3_origin_told told;

	end_with(&told, S3_ORIGIN_FAILED, "The bucket's origin, the target %.*s: %s.",
		SLICE_FMT(fetch->ask.origin->target), why);
	log_warn("origin", "%.*s/%.*s: %s", SLICE_FMT(fetch->ask.bucket), SLICE_FMT(fetch->ask.key),
		told.why);
	fetch->end = S3_ORIGIN_FAILED;
	memcpy(fetch->why, told.why, sizeof(fetch->why));
}

static bool refused(struct fetch *fetch, const struct job *job)
{
	struct s3_origin_told told = {.why = ""};

	if (!is_refusal(&fetch->ask, job, &told))
		return false;
	fetch->end = told.end;
	memcpy(fetch->why, told.why, sizeof(fetch->why));
	return true;
}

/* ---- Storing. ---- */

static struct inner_ask inner_of(
	const struct fetch *fetch, enum s3_method method, const char *query)
{
	return (struct inner_ask){.method = method,
		.query = query,
		.bucket = fetch->ask.bucket,
		.key = fetch->ask.key,
		.fetched = &fetch->fetched,
		.core = fetch->ask.core,
		.request_id = fetch->request_id};
}

/* An object that a client stored meanwhile stays. */
static void end_of(struct fetch *fetch, const struct inner_answer *answer)
{
	char why[200];

	if (answer->status == 200 || answer->status == 412) {
		fetch->end = S3_ORIGIN_GIVEN;
		return;
	}
	snprintf(why, sizeof(why), "the object came, but it cannot be stored here: %u %.*s",
		answer->status, SLICE_FMT(xml_text(slice_str(answer->text), "Code")));
	fail(fetch, why);
}

static bool still_wanted(struct fetch *fetch)
{
	const struct s3_origin_ask *ask = &fetch->ask;

	if (s3_origin_is_still(
		    fetch->origin->opts.s3, ask->core, ask->bucket, ask->bucket_id, ask->origin))
		return true;
	fail(fetch, "the bucket or its origin was changed while the object came");
	return false;
}

static void header_add(struct fetch *fetch, struct slice name, struct slice value)
{
	if (fetch->header_count < HEADERS_MAX)
		fetch->headers[fetch->header_count++] = (struct s3_header){name, value};
}

static void note_write(struct fetch *fetch)
{
	const struct s3_origin_object *object = &fetch->answer.object;
	char now[DATE_ISO_LEN], changed[DATE_ISO_LEN];

	date_iso_format((int64_t)(clock_real_ns() / NS_PER_MS), now);
	date_iso_format((int64_t)(object->mtime_ns / NS_PER_MS), changed);
	if (object->mtime_ns)
		snprintf(fetch->note, sizeof(fetch->note), "fetched=%.*s; last-modified=%.*s",
			(int)DATE_ISO_LEN, now, (int)DATE_ISO_LEN, changed);
	else
		snprintf(fetch->note, sizeof(fetch->note), "fetched=%.*s", (int)DATE_ISO_LEN, now);
	fetch->fetched = (struct s3_fetched){.etag = object->etag, .note = slice_str(fetch->note)};
}

/* The headers of the PUT, or of the upload. */
static void headers_gather(struct fetch *fetch)
{
	const struct s3_origin_object *object = &fetch->answer.object;
	struct slice rest = slice_of(object->headers, object->headers_len);

	while (rest.len) {
		struct slice name = slice_split(&rest, '\0');

		header_add(fetch, name, slice_split(&rest, '\0'));
	}
}

static const struct s3_header NOT_OVER = {SLICE("if-none-match"), SLICE("*")};

static void put_whole(struct fetch *fetch, const struct job *job)
{
	struct inner_ask ask = inner_of(fetch, S3_PUT, NULL);
	struct inner_answer answer;

	header_add(fetch, NOT_OVER.name, NOT_OVER.value);
	if (fetch->answer.sum.len)
		header_add(fetch, fetch->answer.sum_name, fetch->answer.sum);
	ask.headers = fetch->headers;
	ask.header_count = fetch->header_count;
	ask.body = slice_of(job->body, fetch->answer.object.bytes);
	if (!still_wanted(fetch))
		return;
	inner_request(fetch->origin->opts.s3, &ask, &answer);
	end_of(fetch, &answer);
}

/* ---- In pieces: an upload. ---- */

struct upload {
	struct fetch *fetch;
	char id[UPLOAD_ID_MAX];
	uint64_t piece_bytes; /* of all but the first and the last */
	uint32_t count, begun;
	struct job *first;
	struct job jobs[PIECES_AHEAD];
	struct buf list; /* for the completion */
};

static uint64_t piece_offset(const struct upload *upload, uint32_t idx)
{
	return idx ? PIECE_BYTES + (uint64_t)(idx - 1) * upload->piece_bytes : 0;
}

static uint64_t piece_length(const struct upload *upload, uint32_t idx)
{
	uint64_t left = upload->fetch->answer.object.bytes - piece_offset(upload, idx);

	return MIN(left, idx ? upload->piece_bytes : PIECE_BYTES);
}

static void piece_begin(struct upload *upload)
{
	uint32_t idx = upload->begun++;
	struct job *job = &upload->jobs[idx % PIECES_AHEAD];
	struct fetch *fetch = upload->fetch;

	*job = (struct job){.target = fetch->ask.origin->target.data,
		.key = fetch->key,
		.if_match = fetch->if_match,
		.offset = piece_offset(upload, idx),
		.bytes = piece_length(upload, idx)};
	job_begin(fetch->origin, job);
}

/* False: the fetch has failed. */
static bool piece_check(struct upload *upload, const struct job *job)
{
	struct fetch *fetch = upload->fetch;

	if (job->result.status == 412) {
		fail(fetch, "the object was replaced there while it came: ask again");
		return false;
	}
	if (refused(fetch, job)) {
		if (fetch->end == S3_ORIGIN_ABSENT)
			fail(fetch, "the object was deleted there while it came");
		return false;
	}
	if (job->result.status == 206 && job->result.answer_len == job->bytes &&
		answer_is_piece(slice_str(job->headers), job->offset, job->bytes,
			fetch->answer.object.bytes))
		return true;
	fail(fetch, "it sent other bytes than it was asked for");
	return false;
}

static bool piece_store(struct upload *upload, uint32_t idx, const uint8_t *body)
{
	struct inner_answer answer;
	struct inner_ask ask;
	char query[120];

	snprintf(query, sizeof(query), "partNumber=%u&uploadId=%s", idx + 1, upload->id);
	ask = inner_of(upload->fetch, S3_PUT, query);
	ask.body = slice_of(body, piece_length(upload, idx));
	inner_request(upload->fetch->origin->opts.s3, &ask, &answer);
	if (answer.status != 200) {
		end_of(upload->fetch, &answer);
		return false;
	}
	buf_printf(&upload->list, "<Part><PartNumber>%u</PartNumber><ETag>%s</ETag></Part>",
		idx + 1, answer.etag);
	counter_add(&fetched_bytes, ask.body.len);
	return true;
}

/* All pieces, in order; those that were asked for are always waited for. */
static bool pieces_move(struct upload *upload)
{
	bool good = piece_store(upload, 0, upload->first->body);

	job_free(upload->first);
	upload->first = NULL;
	upload->begun = 1;
	for (uint32_t i = 1; i < upload->count && good; i++) {
		struct job *job = &upload->jobs[i % PIECES_AHEAD];

		while (upload->begun < upload->count && upload->begun < i + PIECES_AHEAD)
			piece_begin(upload);
		job_wait(job);
		good = piece_check(upload, job) && piece_store(upload, i, job->body);
		job_free(job);
		job->origin = NULL;
	}
	for (uint32_t i = 0; i < PIECES_AHEAD; i++) {
		if (!upload->jobs[i].origin)
			continue;
		job_wait(&upload->jobs[i]);
		job_free(&upload->jobs[i]);
	}
	return good;
}

static bool upload_begin(struct upload *upload)
{
	struct inner_ask ask = inner_of(upload->fetch, S3_POST, "uploads=");
	struct inner_answer answer;

	ask.headers = upload->fetch->headers;
	ask.header_count = upload->fetch->header_count;
	inner_request(upload->fetch->origin->opts.s3, &ask, &answer);
	if (answer.status == 200 && !slice_copy_str(xml_text(slice_str(answer.text), "UploadId"),
					    upload->id, sizeof(upload->id)))
		return true;
	end_of(upload->fetch, &answer);
	return false;
}

static void upload_end(struct upload *upload, bool good)
{
	struct fetch *fetch = upload->fetch;
	struct inner_answer answer;
	struct inner_ask ask;
	char query[100];

	snprintf(query, sizeof(query), "uploadId=%s", upload->id);
	good = good && still_wanted(fetch);
	if (good) {
		buf_put_str(&upload->list, "</CompleteMultipartUpload>");
		ask = inner_of(fetch, S3_POST, query);
		ask.headers = &NOT_OVER;
		ask.header_count = 1;
		ask.body = buf_slice(&upload->list);
		inner_request(fetch->origin->opts.s3, &ask, &answer);
		end_of(fetch, &answer);
		good = answer.status == 200;
	}
	if (good)
		return;
	ask = inner_of(fetch, S3_DELETE, query);
	inner_request(fetch->origin->opts.s3, &ask, &answer);
}

/* Takes the first piece. */
static void put_pieces(struct fetch *fetch, struct job *first)
{
	uint64_t rest = fetch->answer.object.bytes - PIECE_BYTES;
	uint64_t bytes = (rest + PIECES_MAX - 2) / (PIECES_MAX - 1);
	struct upload *upload = calloc(1, sizeof(*upload));

	if (!upload || !fetch->answer.object.etag[0] || MAX(bytes, PIECE_BYTES) > PIECE_BYTES_MAX) {
		fail(fetch, !upload ? "there is no memory for the fetch"
			    : !fetch->answer.object.etag[0]
				    ? "an object of several pieces needs an ETag"
				    : "the object is too large to be fetched");
		free(upload);
		job_free(first);
		return;
	}
	bytes = (MAX(bytes, PIECE_BYTES) + MIB - 1) / MIB * MIB;
	*upload = (struct upload){.fetch = fetch,
		.piece_bytes = bytes,
		.count = 1 + (uint32_t)((rest + bytes - 1) / bytes),
		.first = first};
	snprintf(fetch->if_match, sizeof(fetch->if_match), "\"%s\"", fetch->answer.object.etag);
	buf_init(&upload->list, 64 * PIECES_MAX + 256 * KIB);
	buf_put_str(&upload->list, "<CompleteMultipartUpload>");
	if (upload_begin(upload))
		upload_end(upload, pieces_move(upload));
	if (upload->first)
		job_free(first);
	buf_free(&upload->list);
	free(upload);
}

/* ---- The fiber. ---- */

/* An empty object has no range: 416. */
static void fetch_empty(struct fetch *fetch)
{
	struct job job = {.target = fetch->ask.origin->target.data, .key = fetch->key};

	job_begin(fetch->origin, &job);
	job_wait(&job);
	job_free(&job);
	if (refused(fetch, &job))
		return;
	if (answer_read(&job.result, slice_str(job.headers), &fetch->answer) ||
		fetch->answer.object.bytes) {
		fail(fetch, "it contradicts itself about the object's length");
		return;
	}
	note_write(fetch);
	headers_gather(fetch);
	put_whole(fetch, &job);
}

/* Takes the answer to the first piece, and its job. */
static void fetch_answered(struct fetch *fetch, struct job *job)
{
	uint64_t bytes = fetch->answer.object.bytes;
	uint64_t expected = MIN(bytes, PIECE_BYTES);

	note_write(fetch);
	headers_gather(fetch);
	if (job->result.answer_len != expected || (!fetch->answer.partial && bytes > expected)) {
		fail(fetch, "it sent other bytes than it was asked for");
	} else if (fetch->origin_of.bytes_max && bytes > fetch->origin_of.bytes_max) {
		fail(fetch, "the object is larger than the bucket's bound");
	} else if (bytes > PIECE_BYTES) {
		put_pieces(fetch, job);
		return;
	} else {
		put_whole(fetch, job);
		counter_add(&fetched_bytes, bytes);
	}
	job_free(job);
}

static void fetch_run(struct fetch *fetch)
{
	struct job job = {
		.target = fetch->ask.origin->target.data, .key = fetch->key, .bytes = PIECE_BYTES};
	int ret;

	job_begin(fetch->origin, &job);
	job_wait(&job);
	if (job.result.status == 416) {
		job_free(&job);
		fetch_empty(fetch);
		return;
	}
	if (refused(fetch, &job)) {
		job_free(&job);
		return;
	}
	ret = answer_read(&job.result, slice_str(job.headers), &fetch->answer);
	if (!ret) {
		fetch_answered(fetch, &job);
		return;
	}
	fail(fetch, ret == -EOVERFLOW ? "the object has more headers than a fetch takes"
		    : ret == -EPROTO  ? "its answer has no ETag: it is not S3's"
				      : "its answer contradicts itself");
	job_free(&job);
}

static void waiter_arrived(struct reactor_msg *msg)
{
	struct waiter *waiter = CONTAINER_OF(msg, struct waiter, msg);

	waiter->arrived = true;
	fiber_wake(waiter->fiber);
}

/* Under the lock. */
static void fetch_put(struct fetch *fetch)
{
	if (--fetch->references)
		return;
	free(fetch->texts);
	free(fetch);
}

static void fetch_main(void *arg)
{
	struct fetch *fetch = arg;
	struct origin *origin = fetch->origin;

	counter_add(&fetching, 1);
	fiber_request_set(fetch->request_id);
	fetch->end = S3_ORIGIN_FAILED;
	fetch_run(fetch);
	counter_sub(&fetching, 1);
	counter_add(fetch->end == S3_ORIGIN_GIVEN    ? &stored
		    : fetch->end == S3_ORIGIN_ABSENT ? &absent
						     : &failed,
		1);
	pthread_mutex_lock(&origin->lock);
	list_remove(&fetch->link);
	while (!list_empty(&fetch->waiters)) {
		struct waiter *waiter =
			CONTAINER_OF(list_pop(&fetch->waiters), struct waiter, link);

		reactor_post(waiter->reactor, &waiter->msg);
	}
	pthread_mutex_unlock(&origin->lock);
	if (fetch->end == S3_ORIGIN_GIVEN && fetch->origin_of.bytes_max)
		origin_evict(origin, fetch->ask.bucket, fetch->ask.bucket_id,
			fetch->origin_of.bytes_max);
	pthread_mutex_lock(&origin->lock);
	origin->running--;
	fetch_put(fetch);
	pthread_mutex_unlock(&origin->lock);
}

/* ---- Requests. ---- */

static bool is_same(const struct fetch *fetch, const struct s3_origin_ask *ask)
{
	return fetch->ask.bucket_id == ask->bucket_id && slice_eq(fetch->ask.key, ask->key) &&
	       slice_eq(fetch->ask.bucket, ask->bucket) &&
	       slice_eq(fetch->ask.origin->target, ask->origin->target) &&
	       slice_eq(fetch->ask.origin->prefix, ask->origin->prefix);
}

/* Under the lock. NULL: there are too many. *ret_own: those of the share. */
static bool has_room(const struct origin *origin, uint16_t share)
{
	uint32_t own = 0;

	LIST_FOR_EACH (link, &origin->fetches)
		own += CONTAINER_OF(link, struct fetch, link)->ask.share == share;
	return origin->running < FETCHES_MAX && own < FETCHES_MAX / 2 &&
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

/* The key at the origin; false: it would be too long. */
static bool key_of(const struct s3_origin_ask *ask, char ret_key[KEY_BYTES])
{
	snprintf(ret_key, KEY_BYTES, "%.*s%.*s", SLICE_FMT(ask->origin->prefix),
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
	(void)key_of(ask, fetch->key);
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
	return fetch;
}

static bool key_fits(const struct s3_origin_ask *ask, struct s3_origin_told *told)
{
	char key[KEY_BYTES];

	/* No object of the origin can have it. */
	told->end = S3_ORIGIN_ABSENT;
	told->why[0] = '\0';
	return key_of(ask, key);
}

static void full(struct s3_origin_told *told)
{
	counter_add(&full_fetches, 1);
	end_with(told, S3_ORIGIN_BUSY,
		"Too many objects are being fetched from origins: ask again in some seconds.");
}

static void origin_fetch(void *arg, const struct s3_origin_ask *ask, struct s3_origin_told *told)
{
	struct waiter waiter = {
		.reactor = reactor_self(), .fiber = fiber_self(), .msg.fn = waiter_arrived};
	struct origin *origin = arg;
	struct fetch *fetch;

	counter_add(&misses, 1);
	if (!key_fits(ask, told))
		return;
	pthread_mutex_lock(&origin->lock);
	fetch = fetch_get(origin, ask);
	if (fetch)
		list_push_back(&fetch->waiters, &waiter.link);
	origin->waiting += fetch != NULL;
	pthread_mutex_unlock(&origin->lock);
	if (!fetch) {
		full(told);
		return;
	}
	while (!waiter.arrived)
		fiber_park();
	told->end = fetch->end;
	memcpy(told->why, fetch->why, sizeof(told->why));
	pthread_mutex_lock(&origin->lock);
	fetch_put(fetch);
	origin->waiting--;
	pthread_mutex_unlock(&origin->lock);
}

static void origin_head(void *arg, const struct s3_origin_ask *ask, struct s3_origin_told *told)
{
	struct origin *origin = arg;
	char target[S3_REPLICATE_NAME_MAX + 1], key[KEY_BYTES];
	struct s3_origin of = {
		.target = slice_of(target, ask->origin->target.len), .prefix = ask->origin->prefix};
	struct s3_origin_ask own = *ask;
	struct job job = {.target = target, .key = key};
	struct answer answer;
	bool room;

	if (!key_fits(ask, told) || slice_copy_str(ask->origin->target, target, sizeof(target)))
		return;
	(void)key_of(ask, key);
	own.origin = &of;
	pthread_mutex_lock(&origin->lock);
	room = has_room(origin, ask->share);
	origin->running += room;
	pthread_mutex_unlock(&origin->lock);
	if (!room) {
		full(told);
		return;
	}
	job_begin(origin, &job);
	job_wait(&job);
	job_free(&job);
	if (!is_refusal(&own, &job, told)) {
		told->end = S3_ORIGIN_GIVEN;
		if (answer_read(&job.result, slice_str(job.headers), &answer))
			end_with(told, S3_ORIGIN_FAILED,
				"The bucket's origin, the target %s, gave an answer that cannot be "
				"read.",
				target);
		told->object = answer.object;
	}
	pthread_mutex_lock(&origin->lock);
	origin->running--;
	pthread_mutex_unlock(&origin->lock);
}

/* ---- Open, close. ---- */

static void sweep_main(void *arg)
{
	struct origin *origin = arg;
	int ret = s3_origin_sweep(origin->opts.s3, &origin->ending);

	if (ret)
		log_warn("origin",
			"cannot delete what an earlier run left of fetches: %s; the next start "
			"tries again",
			strerror(-ret));
	atomic_store(&origin->swept, true);
}

int origin_open(const struct origin_opts *opts, struct origin **ret_origin)
{
	static const struct s3_origin_ops OPS = {.fetch = origin_fetch, .head = origin_head};
	struct origin *origin = calloc(1, sizeof(*origin));
	int ret;

	if (!origin)
		return -ENOMEM;
	origin->opts = *opts;
	origin->hook = (struct s3_origin_hook){&OPS, origin};
	pthread_mutex_init(&origin->lock, NULL);
	pthread_cond_init(&origin->work, NULL);
	list_init(&origin->fetches);
	list_init(&origin->jobs);
	ret = fiber_spawn(opts->core->reactor, "origin sweep", sweep_main, origin);
	if (ret) {
		free(origin);
		return ret;
	}
	s3_origin_on(opts->s3, &origin->hook);
	*ret_origin = origin;
	return 0;
}

void origin_stop(struct origin *origin)
{
	if (origin)
		atomic_store(&origin->ending, true);
}

static bool is_idle(struct origin *origin)
{
	bool idle;

	pthread_mutex_lock(&origin->lock);
	idle = !origin->running && !origin->waiting && atomic_load(&origin->swept);
	pthread_mutex_unlock(&origin->lock);
	return idle;
}

void origin_close(struct origin *origin)
{
	if (!origin)
		return;
	s3_origin_on(origin->opts.s3, NULL);
	origin_stop(origin);
	while (!is_idle(origin))
		fiber_sleep_ns(10 * NS_PER_MS);
	pool_close(origin);
	pthread_cond_destroy(&origin->work);
	pthread_mutex_destroy(&origin->lock);
	free(origin);
}
