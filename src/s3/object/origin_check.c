/* s3/object/origin_check.c: asks the origin whether a copy is still the object there, before it is
 * read: once in the seconds that the bucket says. A copy that is not is deleted, so that the read
 * fetches the new one. */
#include "s3/object/origin_check.h"

#include <errno.h>

#include "s3/core/settings.h"
#include "s3/core/stored.h"
#include "s3/object/origin.h"

DEFINE_COUNTER(same, "nebulaio_origin_checks_total", "end=\"same\"",
	"Copies that were compared with their origin, by how that ended.");
DEFINE_COUNTER(changed, "nebulaio_origin_checks_total", "end=\"changed\"",
	"Copies that were compared with their origin, by how that ended.");
DEFINE_COUNTER(failed, "nebulaio_origin_checks_total", "end=\"failed\"",
	"Copies that were compared with their origin, by how that ended.");

/* When a copy was fetched; -1: it is none. */
static int64_t fetched_s(const struct store_meta *meta)
{
	struct slice note =
		s3_meta_hidden(slice_of(meta->headers, meta->headers_len), SLICE(S3_ORIGIN_HEADER));
	int64_t ms;

	if (!slice_starts(note, SLICE("fetched=")))
		return -1;
	note = slice_from(slice_split(&note, ';'), strlen("fetched="));
	return date_iso_parse(note, &ms) ? -1 : ms / 1000;
}

/* -EBUSY: it is another object by now. */
static int check_copy(const struct store_meta *current, void *arg)
{
	const char *etag = arg;

	return current && s3_origin_is_copy(current) && strcmp(current->etag, etag) == 0 ? 0
											 : -EBUSY;
}

static void delete_copy(const struct s3_call *call, char *etag)
{
	int ret = store_delete(call->s3->store, call->bucket, call->key, check_copy, etag);

	if (ret && ret != -EBUSY && ret != -ENOENT)
		log_warn("s3",
			"%.*s: an object has changed at its origin, and its copy here cannot be "
			"deleted: %s; readers get the copy",
			SLICE_FMT(call->bucket), strerror(-ret));
}

static void compare(struct s3_call *call, const struct s3_origin_ask *ask, char *etag)
{
	const struct s3_origin_hook *hook = atomic_load(&call->s3->origin);
	struct s3_origin_told *told = mem_arena_get(&call->arena, sizeof(*told));
	bool known;

	if (!hook || !told) {
		s3_origin_check_forget(call->bucket, call->key);
		return;
	}
	hook->ops->head(hook->arg, ask, told);
	s3_call_check(call);
	known = told->end == S3_ORIGIN_GIVEN || told->end == S3_ORIGIN_ABSENT;
	if (!known) {
		counter_add(&failed, 1);
		/* The origin was not asked. */
		if (told->end == S3_ORIGIN_BUSY)
			s3_origin_check_forget(call->bucket, call->key);
	} else if (told->end == S3_ORIGIN_GIVEN &&
		   (!told->object.etag[0] || strcmp(told->object.etag, etag) == 0)) {
		counter_add(&same, 1);
	} else {
		counter_add(&changed, 1);
		delete_copy(call, etag);
	}
}

void s3_origin_check(struct s3_call *call)
{
	int64_t now_s = (int64_t)(clock_real_ns() / NS_PER_S), fetched, checked, last;
	char etag[sizeof(((struct store_meta *)NULL)->etag)];
	struct s3_origin_ask ask;
	struct store_get *get;
	bool ignored;

	if (!s3_origin_ask_of(call, &ask) || !ask.origin->revalidate_s || !ask.via[0] ||
		store_get_open(call->s3->store, call->bucket, call->key, &get, &ignored))
		return;
	fetched = fetched_s(store_get_meta(get));
	memcpy(etag, store_get_meta(get)->etag, sizeof(etag));
	store_get_close(get);
	if (fetched < 0)
		return;
	checked = (int64_t)s3_origin_checked_s(call->bucket, call->key);
	/* A time of a clock that was ahead says nothing. */
	last = MAX(fetched <= now_s ? fetched : 0, checked <= now_s ? checked : 0);
	if (now_s < last + (int64_t)ask.origin->revalidate_s)
		return;
	/* Meanwhile others read what is here. */
	s3_origin_check_note(call->bucket, call->key);
	compare(call, &ask, etag);
}
