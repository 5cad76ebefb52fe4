/* server/admin/pages.c: the admin listener's paths. */
#include "server/admin/admin_priv.h"

#include <errno.h>
#include <stdio.h>

static void answer(const struct s3_request *request, struct s3_reply *reply, uint32_t status,
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

static void answer_text(
	const struct s3_request *request, struct s3_reply *reply, uint32_t status, const char *text)
{
	answer(request, reply, status, SLICE("text/plain; charset=utf-8"), slice_str(text));
}

struct metrics_job {
	const struct admin_opts *opts;
	admin_make_fn *make;
	struct buf *out;
};

static void metrics_make(void *arg)
{
	const struct metrics_job *job = arg;

	job->make(job->opts, job->out);
}

void admin_answer_metrics(const struct admin_opts *opts, const struct s3_request *request,
	struct s3_reply *reply, admin_make_fn *make)
{
	struct buf out;

	buf_init(&out, ADMIN_METRICS_BYTES_MAX);
	/* On a helper thread, so that requests of this core do not wait. */
	if (fiber_self())
		fiber_offload(metrics_make,
			&(struct metrics_job){.opts = opts, .make = make, .out = &out});
	else
		make(opts, &out);
	if (out.failed)
		answer_text(request, reply, 500, "the metrics do not fit in memory\n");
	else
		answer(request, reply, 200, SLICE("text/plain; version=0.0.4; charset=utf-8"),
			buf_slice(&out));
	buf_free(&out);
}

/* Says whether the server would accept a write, which load balancers must know. */
static void answer_ready(
	const struct admin_opts *opts, const struct s3_request *request, struct s3_reply *reply)
{
	char why[256], line[sizeof(why) + 2];

	if (*opts->draining) {
		answer_text(request, reply, 503, "shutting down\n");
	} else if (store_writable(opts->store, why, sizeof(why))) {
		answer_text(request, reply, 200, "ready\n");
	} else {
		snprintf(line, sizeof(line), "%s\n", why);
		answer_text(request, reply, 503, line);
	}
}

void admin_handle(void *arg, const struct s3_request *request, struct s3_reply *reply)
{
	const struct admin_opts *opts = arg;

	reply->of_process = !slice_starts(request->path, SLICE("/admin/v1/"));
	if (!reply->of_process)
		s3_admin_handle(opts->s3, request, reply, opts->tell, opts->tell_arg);
	else if (request->method != S3_GET && request->method != S3_HEAD)
		answer_text(request, reply, 405, "only GET and HEAD here\n");
	else if (slice_eq(request->path, SLICE("/metrics")))
		admin_answer_metrics(opts, request, reply, admin_metrics);
	else if (slice_eq(request->path, SLICE("/health/live")))
		answer_text(request, reply, 200, "live\n");
	else if (slice_eq(request->path, SLICE("/health/ready")))
		answer_ready(opts, request, reply);
	else
		answer_text(request, reply, 404,
			"there are /metrics, /health/live, /health/ready and /admin/v1/\n");
}
