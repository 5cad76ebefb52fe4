/* s3/core/names.c: asks the keeper of the names before a bucket is made, and tells it after one was
 * deleted. */
#include "s3/core/names.h"

#include <errno.h>

#define LOOK_NS	    (2 * NS_PER_MS)
#define WAIT_NS_MAX (20 * NS_PER_S)

const struct s3_error *s3_names_begin(struct s3_call *call)
{
	uint64_t deadline_ns = clock_now_ns() + WAIT_NS_MAX;

	if (!call->s3->names.claim)
		return NULL;
	while (atomic_exchange(&call->s3->naming, true)) {
		if (clock_now_ns() > deadline_ns)
			return s3_error_at(S3_E_SLOW_DOWN);
		fiber_sleep_ns(LOOK_NS);
	}
	return NULL;
}

void s3_names_end(struct s3_call *call)
{
	if (call->s3->names.claim)
		atomic_store(&call->s3->naming, false);
}

struct job {
	const struct s3_names *names;
	char bucket[LIMIT_BUCKET_LEN_MAX + 1];
	bool claim;
	int ret;
};

static void job_run(void *arg)
{
	struct job *job = arg;

	job->ret = job->claim ? job->names->claim(job->names->arg, job->bucket)
			      : job->names->release(job->names->arg, job->bucket);
}

static int run(struct s3_call *call, bool claim)
{
	struct job job = {.names = &call->s3->names, .claim = claim};

	slice_copy_str(call->bucket, job.bucket, sizeof(job.bucket));
	/* It asks other hosts. */
	fiber_offload_long(job_run, &job);
	return job.ret;
}

const struct s3_error *s3_names_claim(struct s3_call *call)
{
	int ret = call->s3->names.claim ? run(call, true) : 0;

	if (ret == -EEXIST)
		return s3_error_at(S3_E_BUCKET_ALREADY_EXISTS);
	if (ret)
		log_error("s3", "bucket %.*s: the cluster's map does not take its name: %s",
			SLICE_FMT(call->bucket), strerror(-ret));
	return ret ? s3_error_at(S3_E_SLOW_DOWN) : NULL;
}

const struct s3_error *s3_names_release(struct s3_call *call)
{
	int ret = call->s3->names.claim ? run(call, false) : 0;

	if (ret)
		log_error("s3", "bucket %.*s: the cluster's map keeps its name for now: %s",
			SLICE_FMT(call->bucket), strerror(-ret));
	return ret ? s3_error_at(S3_E_SLOW_DOWN) : NULL;
}
