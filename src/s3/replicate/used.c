/* s3/replicate/used.c: finds a bucket whose rules name a target, by a walk over the documents of
 * replication configurations. */
#include <errno.h>

#include "document/document.h"
#include "s3/replicate/replicate.h"

#define PREFIX "b/"
#define SUFFIX "/replication"

struct search {
	struct s3 *s3;
	struct flow_core *core;
	struct slice target;
	char *bucket; /* of LIMIT_BUCKET_LEN_MAX + 1 */
	int ret;
};

static bool visit(struct slice name, void *arg)
{
	struct search *search = arg;
	struct slice bucket = slice_from(name, strlen(PREFIX));
	const struct s3_replication *replication;
	struct s3_settings *settings;
	uint32_t ignored;
	int ret;

	if (!slice_ends(bucket, SLICE(SUFFIX)))
		return true;
	bucket = slice_to(bucket, bucket.len - strlen(SUFFIX));
	ret = s3_settings_get(search->s3, search->core, bucket, &settings);
	/* A crash can leave documents of a deleted bucket. */
	if (ret) {
		search->ret = ret;
		return ret == -ENOENT;
	}
	replication = settings->parsed[S3_CONFIG_REPLICATION];
	if (replication && s3_replication_target_find(replication, search->target, &ignored))
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
