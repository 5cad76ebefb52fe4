/* server/admin/pages.c: the admin listener's paths. */
#include "server/admin/admin_priv.h"
#include "s3/page.h"

#include <errno.h>
#include <stdio.h>

#define HOST_LEN_MAX 255u

struct metrics_job {
	const struct admin_opts *opts;
	admin_make_fn *make;
};

static void metrics_make(void *arg, struct buf *out)
{
	const struct metrics_job *job = arg;

	job->make(job->opts, out);
}

void admin_answer_metrics(const struct admin_opts *opts, const struct s3_request *request,
	struct s3_reply *reply, admin_make_fn *make)
{
	s3_page_metrics(request, reply, metrics_make, &(struct metrics_job){opts, make});
}

/* Says whether a failed medium, missing volumes or a full data folder forbid writes, which load
 * balancers must know. With full volumes the store is ready: it still reads and deletes. */
static void answer_ready(
	const struct admin_opts *opts, const struct s3_request *request, struct s3_reply *reply)
{
	char why[256], line[sizeof(why) + 2];

	if (*opts->draining) {
		s3_page_text(request, reply, 503, "shutting down\n");
	} else if (store_writable(opts->store, why, sizeof(why))) {
		s3_page_text(request, reply, 200, "ready\n");
	} else {
		snprintf(line, sizeof(line), "%s\n", why);
		s3_page_text(request, reply, 503, line);
	}
}

static struct slice header(const struct s3_request *request, struct slice name)
{
	for (uint32_t i = 0; i < request->header_count; i++)
		if (slice_eq_nocase(request->headers[i].name, name))
			return request->headers[i].value;
	return SLICE_NONE;
}

/* The host that the browser asked, without its port; empty: it is none. */
static struct slice host_of(const struct s3_request *request)
{
	struct slice host = header(request, SLICE("host"));
	const char *colon = host.len ? memrchr(host.data, ':', host.len) : NULL;

	/* A colon inside brackets belongs to an IPv6 address. */
	if (colon && !memchr(colon, ']', host.len - (size_t)(colon - host.data)))
		host = slice_to(host, (size_t)(colon - host.data));
	return slice_is_word(host, ".-:[]") && host.len <= HOST_LEN_MAX ? host : SLICE_NONE;
}

/* Users of MinIO open a console at this port. False: answered otherwise. */
static bool answer_browser(
	const struct admin_opts *opts, const struct s3_request *request, struct s3_reply *reply)
{
	struct slice host = host_of(request);
	char url[HOST_LEN_MAX + 32];
	struct s3_header location = {SLICE("Location"), SLICE_NONE};

	if (!opts->console_port || !host.len || !slice_eq(request->path, SLICE("/")) ||
		slice_find(header(request, SLICE("accept")), SLICE("text/html")) < 0)
		return false;
	snprintf(url, sizeof(url), "%s://%.*s:%u/", opts->console_https ? "https" : "http",
		SLICE_FMT(host), opts->console_port);
	location.value = slice_str(url);
	reply->ops->head(reply, 303, &location, 1, 0);
	return true;
}

void admin_handle(void *arg, const struct s3_request *request, struct s3_reply *reply)
{
	const struct admin_opts *opts = arg;

	reply->of_process = !slice_starts(request->path, SLICE("/admin/v1/"));
	if (!reply->of_process)
		s3_admin_handle(opts->s3, request, reply, opts->tell, opts->tell_arg);
	else if (request->method != S3_GET && request->method != S3_HEAD)
		s3_page_text(request, reply, 405, "only GET and HEAD here\n");
	else if (answer_browser(opts, request, reply))
		return;
	else if (slice_eq(request->path, SLICE("/metrics")))
		admin_answer_metrics(opts, request, reply, admin_metrics);
	else if (slice_eq(request->path, SLICE("/health/live")))
		s3_page_text(request, reply, 200, "live\n");
	else if (slice_eq(request->path, SLICE("/health/ready")))
		answer_ready(opts, request, reply);
	else
		s3_page_text(request, reply, 404,
			"there are /metrics, /health/live, /health/ready and /admin/v1/\n");
}
