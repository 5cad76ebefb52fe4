/* origin/fetch.c: fetches an object from a bucket's origin: a fiber asks for its pieces, two ahead,
 * and stores them in order, as one PUT or as the parts of an upload, so that the key never has a
 * half object. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "codec/codec.h"
#include "origin/origin_priv.h"
#include "store/api.h"

DEFINE_COUNTER(stored, "nebulaio_origin_fetches_total", "end=\"stored\"",
	"Fetches of objects from origins, by how they ended.");
DEFINE_COUNTER(absent, "nebulaio_origin_fetches_total", "end=\"absent\"",
	"Fetches of objects from origins, by how they ended.");
DEFINE_COUNTER(failed, "nebulaio_origin_fetches_total", "end=\"failed\"",
	"Fetches of objects from origins, by how they ended.");
DEFINE_COUNTER(fetched_bytes, "nebulaio_origin_fetched_bytes_total", NULL,
	"Bytes that came from origins.");
DEFINE_COUNTER(fetching, "nebulaio_origin_fetching", NULL, "Fetches that run.");

/* ---- How it ends. ---- */

void origin_tell(struct s3_origin_told *told, enum s3_origin_end end, const char *fmt, ...)
{
	va_list args;

	told->end = end;
	va_start(args, fmt);
	vsnprintf(told->why, sizeof(told->why), fmt, args);
	va_end(args);
}

bool origin_is_refusal(
	const struct s3_origin_ask *ask, const struct job *job, struct s3_origin_told *told)
{
	const struct replicate_result *result = &job->result;
	const char *target = job->target;

	if ((result->status == 200 || result->status == 206) && !result->error)
		return false;
	/* A 404 with another code, or none, is of a proxy, or says that the bucket is gone. */
	if (result->status == 404 && strcmp(result->code, "NoSuchKey") == 0) {
		told->end = S3_ORIGIN_ABSENT;
		return true;
	}
	if (!result->status && result->error == -ECANCELED)
		origin_tell(told, S3_ORIGIN_FAILED, "The server is stopping: ask again.");
	else if (!result->status && result->error == -ENOENT)
		origin_tell(told, S3_ORIGIN_FAILED,
			"The bucket's origin, the target %s, is no longer registered.", target);
	else if (!result->status && result->error == -EKEYREVOKED)
		origin_tell(told, S3_ORIGIN_FAILED,
			"The bucket's account may no longer use the bucket's origin, the target "
			"%s. The server's operator decides that.",
			target);
	else if (!result->status || result->status < 300)
		origin_tell(told, S3_ORIGIN_FAILED,
			"The bucket's origin, the target %s, did not give the object: %s.", target,
			result->error == -EMSGSIZE ? "it does not answer ranges"
						   : strerror(-result->error));
	else
		origin_tell(told, S3_ORIGIN_FAILED,
			"The bucket's origin, the target %s, answered %u%s%s.", target,
			result->status, result->code[0] ? " " : "", result->code);
	log_warn("origin", "%.*s/%.*s: %s %s", SLICE_FMT(ask->bucket), SLICE_FMT(ask->key),
		told->why, result->status >= 300 ? result->message : "");
	return true;
}

static void fail(struct fetch *fetch, const char *why)
{
	struct s3_origin_told told;

	origin_tell(&told, S3_ORIGIN_FAILED, "The bucket's origin, the target %.*s: %s.",
		SLICE_FMT(fetch->ask.origin->target), why);
	log_warn("origin", "%.*s/%.*s: %s", SLICE_FMT(fetch->ask.bucket), SLICE_FMT(fetch->ask.key),
		told.why);
	fetch->end = S3_ORIGIN_FAILED;
	memcpy(fetch->why, told.why, sizeof(fetch->why));
}

static bool refused(struct fetch *fetch, const struct job *job)
{
	struct s3_origin_told told = {.why = ""};

	if (!origin_is_refusal(&fetch->ask, job, &told))
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
	if (fetch->header_count < FETCH_HEADERS_MAX)
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
	uint32_t count, begun;
	struct job *first;
	struct job jobs[PIECES_AHEAD];
	struct buf list; /* for the completion */
};

uint64_t fetch_piece_offset(const struct fetch *fetch, uint32_t idx)
{
	return idx ? PIECE_BYTES + (uint64_t)(idx - 1) * fetch->piece_bytes : 0;
}

uint64_t fetch_piece_length(const struct fetch *fetch, uint32_t idx)
{
	uint64_t left = fetch->answer.object.bytes - fetch_piece_offset(fetch, idx);

	return MIN(left, idx ? fetch->piece_bytes : PIECE_BYTES);
}

static void piece_begin(struct upload *upload)
{
	uint32_t idx = upload->begun++;
	struct job *job = &upload->jobs[idx % PIECES_AHEAD];
	struct fetch *fetch = upload->fetch;

	*job = (struct job){.target = fetch->ask.origin->target.data,
		.key = fetch->key,
		.if_match = fetch->if_match,
		.offset = fetch_piece_offset(fetch, idx),
		.bytes = fetch_piece_length(fetch, idx)};
	job_begin(fetch->origin, &fetch->ask, job);
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

/* Requests that follow the fetch can read the pieces up to here. */
static void piece_tell(struct fetch *fetch, uint32_t count)
{
	pthread_mutex_lock(&fetch->origin->lock);
	fetch->stored = count;
	fetch_wake(fetch);
	pthread_mutex_unlock(&fetch->origin->lock);
}

static bool piece_store(struct upload *upload, uint32_t idx, const uint8_t *body)
{
	struct fetch *fetch = upload->fetch;
	struct inner_answer answer;
	struct inner_ask ask;
	char query[120];

	if (!still_wanted(fetch))
		return false;
	snprintf(query, sizeof(query), "partNumber=%u&uploadId=%s", idx + 1, fetch->upload_id);
	ask = inner_of(fetch, S3_PUT, query);
	ask.body = slice_of(body, fetch_piece_length(fetch, idx));
	inner_request(fetch->origin->opts.s3, &ask, &answer);
	if (answer.status != 200) {
		end_of(fetch, &answer);
		return false;
	}
	piece_tell(fetch, idx + 1);
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
	struct fetch *fetch = upload->fetch;
	struct inner_ask ask = inner_of(fetch, S3_POST, "uploads=");
	struct inner_answer answer;

	ask.headers = fetch->headers;
	ask.header_count = fetch->header_count;
	inner_request(fetch->origin->opts.s3, &ask, &answer);
	if (answer.status == 200 && !slice_copy_str(xml_text(slice_str(answer.text), "UploadId"),
					    fetch->upload_id, sizeof(fetch->upload_id)))
		return true;
	end_of(fetch, &answer);
	return false;
}

static void upload_end(struct upload *upload, bool good)
{
	struct fetch *fetch = upload->fetch;
	struct inner_answer answer;
	struct inner_ask ask;
	char query[100];

	snprintf(query, sizeof(query), "uploadId=%s", fetch->upload_id);
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
	fetch->piece_bytes = bytes;
	*upload = (struct upload){.fetch = fetch,
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

	job_do(fetch->origin, &fetch->ask, &job);
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
	} else if (store_bucket_room(fetch->origin->opts.store, fetch->ask.bucket, fetch->ask.key,
			   bytes) == -EDQUOT) {
		fail(fetch, "the bucket's quota has no room for the object");
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

	job_do(fetch->origin, &fetch->ask, &job);
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

void fetch_main(void *arg)
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
	fetch->done = true;
	fetch_wake(fetch);
	pthread_mutex_unlock(&origin->lock);
	if (fetch->end == S3_ORIGIN_GIVEN && fetch->origin_of.bytes_max)
		origin_evict(origin, fetch->ask.bucket, fetch->ask.bucket_id,
			fetch->origin_of.bytes_max);
	pthread_mutex_lock(&origin->lock);
	origin->running--;
	origin->uses[fetch->ask.share].running--;
	fetch_put(fetch);
	pthread_mutex_unlock(&origin->lock);
}
