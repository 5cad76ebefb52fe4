/* s3/replicate/used.c: finds a bucket whose rules or whose origin name a target, by a walk over the
 * documents of these configurations. */
#include <errno.h>

#include "document/document.h"
#include "s3/origin.h"
#include "s3/replicate/replicate.h"

#define PREFIX "b/"

struct search {
	struct s3 *s3;
	struct flow_core *core;
	struct slice target;
	char *bucket; /* of LIMIT_BUCKET_LEN_MAX + 1 */
	int ret;
};

/* The bucket of a document of these kinds; empty: it is of another. */
static struct slice bucket_of(struct slice name)
{
	static const struct slice SUFFIXES[] = {SLICE("/replication"), SLICE("/origin")};
	struct slice bucket = slice_from(name, strlen(PREFIX));

	for (size_t i = 0; i < ARRAY_LEN(SUFFIXES); i++)
		if (slice_ends(bucket, SUFFIXES[i]))
			return slice_to(bucket, bucket.len - SUFFIXES[i].len);
	return SLICE_NONE;
}

static bool names_target(const struct s3_settings *settings, struct slice target)
{
	const struct s3_replication *replication = settings->parsed[S3_CONFIG_REPLICATION];
	const struct s3_origin *origin = settings->parsed[S3_CONFIG_ORIGIN];
	uint32_t ignored;

	return (replication && s3_replication_target_find(replication, target, &ignored)) ||
	       (origin && slice_eq(origin->target, target));
}

static bool visit(struct slice name, void *arg)
{
	struct search *search = arg;
	struct slice bucket = bucket_of(name);
	struct s3_settings *settings;
	int ret;

	if (!bucket.len)
		return true;
	ret = s3_settings_get(search->s3, search->core, bucket, &settings);
	/* A crash can leave documents of a deleted bucket. */
	if (ret) {
		search->ret = ret;
		return ret == -ENOENT;
	}
	if (names_target(settings, search->target))
		slice_copy_str(bucket, search->bucket, LIMIT_BUCKET_LEN_MAX + 1);
	s3_settings_put(settings);
	return !search->bucket[0];
}

int s3_replicate_used_by(struct s3 *s3, struct flow_core *core, struct slice target,
	char ret_bucket[LIMIT_BUCKET_LEN_MAX + 1])
{
	struct search search = {
		.s3 = s3, .core = core, .target = target, .bucket = ret_bucket, .ret = -ENOENT};
	int ret;

	ret_bucket[0] = '\0';
	ret = document_list(s3->store, SLICE(PREFIX), SLICE_NONE, visit, &search);
	if (ret)
		return ret;
	return ret_bucket[0] ? 0 : search.ret;
}
