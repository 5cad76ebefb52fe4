/* origin/direct.c: what an origin answers goes to the request without being stored: single pieces
 * of objects, and lists. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "origin/origin_priv.h"

DEFINE_COUNTER(direct_bytes, "nebulaio_origin_direct_bytes_total", NULL,
	"Bytes of ranges that came from origins and were not stored.");

/* An answer that a request holds. */
struct direct {
	struct job job;
	char target[S3_REPLICATE_NAME_MAX + 1];
	char key[ORIGIN_KEY_BYTES];
	char if_match[sizeof(((struct s3_origin_object *)NULL)->etag) + 2];
};

/* Readers that are slow leave half of the buffers to fetches. */
static uint32_t readers_max(const struct origin *origin)
{
	return (uint32_t)MIN(
		DIRECT_MAX, origin->opts.buffer_bytes_max / 2 / S3_ORIGIN_DIRECT_BYTES);
}

static void direct_free(struct direct *direct)
{
	job_free(&direct->job);
	free(direct);
}

bool origin_direct_begin(void *arg, const struct s3_origin_ask *ask)
{
	struct origin *origin = arg;
	bool room;

	pthread_mutex_lock(&origin->lock);
	room = origin->direct < readers_max(origin) &&
	       origin->uses[ask->share].direct < readers_max(origin) / 2 &&
	       !atomic_load(&origin->ending);
	origin->direct += room;
	origin->uses[ask->share].direct += room;
	pthread_mutex_unlock(&origin->lock);
	return room;
}

void origin_direct_end(void *arg, const struct s3_origin_ask *ask)
{
	struct origin *origin = arg;

	pthread_mutex_lock(&origin->lock);
	CHECK(origin->direct > 0);
	origin->direct--;
	origin->uses[ask->share].direct--;
	pthread_mutex_unlock(&origin->lock);
}

static bool is_good(const struct s3_origin_ask *ask, const struct direct *direct,
	const struct s3_origin_object *object, struct s3_origin_told *told)
{
	const struct job *job = &direct->job;

	if (job->result.status == 412) {
		origin_tell(told, S3_ORIGIN_FAILED,
			"The bucket's origin, the target %s, has another object by now: ask again.",
			direct->target);
		return false;
	}
	if (origin_is_refusal(ask, job, told))
		return false;
	told->end = S3_ORIGIN_GIVEN;
	if (job->result.status == 206 && job->result.answer_len == job->bytes &&
		answer_is_piece(slice_str(job->headers), job->offset, job->bytes, object->bytes))
		return true;
	origin_tell(told, S3_ORIGIN_FAILED,
		"The bucket's origin, the target %s, sent other bytes than it was asked for.",
		direct->target);
	return false;
}

void origin_direct_piece(void *arg, const struct s3_origin_ask *ask,
	const struct s3_origin_object *object, struct s3_origin_piece *piece,
	struct s3_origin_told *told)
{
	struct direct *direct = calloc(1, sizeof(*direct));

	piece->data = NULL;
	if (!direct) {
		origin_tell(told, S3_ORIGIN_BUSY, "There is no memory for the range: ask again.");
		return;
	}
	slice_copy_str(ask->origin->target, direct->target, sizeof(direct->target));
	origin_key_of(ask, direct->key);
	snprintf(direct->if_match, sizeof(direct->if_match), "\"%s\"", object->etag);
	direct->job = (struct job){.target = direct->target,
		.key = direct->key,
		.if_match = direct->if_match,
		.offset = piece->offset,
		.bytes = piece->bytes};
	job_do(arg, ask, &direct->job);
	if (is_good(ask, direct, object, told)) {
		counter_add(&direct_bytes, piece->bytes);
		piece->data = direct->job.body;
		piece->held = direct;
		return;
	}
	direct_free(direct);
}

void origin_direct_free(struct s3_origin_piece *piece)
{
	direct_free(piece->held);
	piece->data = NULL;
}

/* ---- Lists. ---- */

#define LIST_KEYS_FEW 200u /* the longest keys and ETags fit, whatever encodes them */

static struct direct *list_ask(struct origin *origin, const struct s3_origin_ask *ask,
	const char *query, uint32_t keys_max)
{
	struct direct *direct = calloc(1, sizeof(*direct));
	char text[S3_ORIGIN_QUERY_BYTES + 24];

	if (!direct)
		return NULL;
	snprintf(text, sizeof(text), "%s&max-keys=%u", query, keys_max);
	slice_copy_str(ask->origin->target, direct->target, sizeof(direct->target));
	direct->job = (struct job){.target = direct->target,
		.key = "",
		.query = text,
		.bytes = LIMIT_XML_BODY_BYTES_MAX};
	job_do(origin, ask, &direct->job);
	direct->job.query = "";
	return direct;
}

static bool is_too_long(const struct direct *direct)
{
	return direct->job.result.error == -EMSGSIZE;
}

void origin_list(void *arg, const struct s3_origin_ask *ask, const char *query, uint32_t keys_max,
	struct s3_origin_piece *piece, struct s3_origin_told *told)
{
	struct origin *origin = arg;
	struct direct *direct;

	piece->data = NULL;
	if (!origin_take(origin, ask->share, told))
		return;
	direct = list_ask(origin, ask, query, keys_max);
	if (direct && is_too_long(direct) && keys_max > LIST_KEYS_FEW) {
		direct_free(direct);
		direct = list_ask(origin, ask, query, LIST_KEYS_FEW);
	}
	origin_give(origin, ask->share);
	if (!direct) {
		origin_tell(told, S3_ORIGIN_BUSY, "There is no memory for the list: ask again.");
	} else if (origin_is_refusal(ask, &direct->job, told)) {
		direct_free(direct);
	} else {
		told->end = S3_ORIGIN_GIVEN;
		piece->held = direct;
		piece->data = direct->job.body;
		piece->bytes = direct->job.result.answer_len;
	}
}
