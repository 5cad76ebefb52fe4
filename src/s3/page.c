/* s3/page.c: an operator's page as an answer. */
#include "s3/page.h"

#include "reactor/reactor.h"

#define METRICS_BYTES_MAX (4 * MIB)

void s3_page_answer(const struct s3_request *request, struct s3_reply *reply, uint32_t status,
	struct slice type, struct slice body)
{
	const struct s3_header headers[] = {
		{SLICE("Content-Type"), type},
		{SLICE("Cache-Control"), SLICE("no-store")},
	};

	if (reply->ops->head(reply, status, headers, ARRAY_LEN(headers), body.len) ||
		request->method == S3_HEAD)
		return;
	reply->ops->text(reply, body);
}

void s3_page_text(
	const struct s3_request *request, struct s3_reply *reply, uint32_t status, const char *text)
{
	s3_page_answer(request, reply, status, SLICE("text/plain; charset=utf-8"), slice_str(text));
}

struct metrics_job {
	s3_page_make_fn *make;
	void *arg;
	struct buf *out;
};

static void metrics_make(void *arg)
{
	const struct metrics_job *job = arg;

	job->make(job->arg, job->out);
}

void s3_page_metrics(
	const struct s3_request *request, struct s3_reply *reply, s3_page_make_fn *make, void *arg)
{
	struct buf out;

	buf_init(&out, METRICS_BYTES_MAX);
	if (fiber_self())
		fiber_offload(metrics_make, &(struct metrics_job){make, arg, &out});
	else
		make(arg, &out);
	if (out.failed)
		s3_page_text(request, reply, 500, "the metrics do not fit in memory\n");
	else
		s3_page_answer(request, reply, 200,
			SLICE("text/plain; version=0.0.4; charset=utf-8"), buf_slice(&out));
	buf_free(&out);
}
