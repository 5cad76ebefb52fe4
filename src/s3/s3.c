/* s3/s3.c: opens and closes the S3 part, and answers requests: each on the calling fiber, once. */
#include "s3/s3.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "s3/s3_priv.h"

static int copy_option(const char *value, const char *fallback, char *buf, size_t buf_bytes)
{
	return slice_copy_str(slice_str(value ? value : fallback), buf, buf_bytes);
}

static int copy_options(const struct s3_opts *opts, struct s3 *s3)
{
	char host[256] = "";
	uint8_t digest[SHA256_BYTES];
	int ret;

	if (!opts->root_access_key || !opts->root_access_key[0] || !opts->root_secret_key ||
		!opts->root_secret_key[0])
		return -EINVAL;
	ret = copy_option(
		opts->root_access_key, "", s3->root_access_key, sizeof(s3->root_access_key));
	if (!ret)
		ret = copy_option(opts->root_secret_key, "", s3->root_secret_key,
			sizeof(s3->root_secret_key));
	if (!ret)
		ret = copy_option(opts->region, "us-east-1", s3->region, sizeof(s3->region));
	if (!ret)
		ret = copy_option(opts->host_domain, "", s3->host_domain, sizeof(s3->host_domain));
	s3->anonymous_read = opts->anonymous_read;
	gethostname(host, sizeof(host) - 1);
	sha256_of(host, strlen(host), digest);
	s3->host_id[base64_encode(digest, sizeof(digest), s3->host_id)] = '\0';
	return ret;
}

int s3_open(const struct s3_opts *opts, struct store *store, struct s3 **ret_s3)
{
	struct s3 *s3 = calloc(1, sizeof(*s3));
	int ret;

	if (!s3)
		return -ENOMEM;
	s3->store = store;
	ret = copy_options(opts, s3);
	if (!ret)
		ret = sigv4_keys_open(&s3->keys);
	if (ret) {
		s3_close(s3);
		return ret;
	}
	*ret_s3 = s3;
	return 0;
}

void s3_close(struct s3 *s3)
{
	if (!s3)
		return;
	sigv4_keys_close(s3->keys);
	secret_wipe(s3, sizeof(*s3));
	free(s3);
}

/* All but the large arrays, which need no start. */
static void call_begin(struct s3_call *call, struct s3 *s3, const struct s3_request *request,
	struct s3_reply *reply)
{
	call->s3 = s3;
	call->request = request;
	call->reply = reply;
	call->operation = s3_operation_native(S3_OP_ROUTE);
	call->bucket = SLICE_NONE;
	call->key = SLICE_NONE;
	call->params = (struct s3_params){0};
	call->identity = request->session;
	call->presigned = false;
	call->etag_md5 = strncmp(request->transport, "http", 4) == 0;
	call->start_ns = log_level_now <= LOG_DEBUG ? clock_now_ns() : 0;
	call->body_bytes = 0;
	call->message = NULL;
	call->detail = SLICE_NONE;
	call->header_count = 0;
	call->signing.payload = S3_PAYLOAD_UNSIGNED;
	call->content_sha256[0] = '\0';
	s3_arena_init(&call->arena);
}

static const struct s3_error *call_run(struct s3_call *call)
{
	const struct s3_error *error = s3_route(call);

	/* Who may not ask is not told what was wrong with the question. */
	if (!call->identity) {
		const struct s3_error *refused =
			s3_authenticate(call, (int64_t)(clock_real_ns() / NS_PER_MS));

		if (refused)
			return refused;
	}
	if (error)
		return error;
	error = s3_authorize(
		call->s3, call->identity, call->operation->action, call->bucket, call->key);
	if (!error)
		error = s3_check_headers(call);
	return error ? error : call->operation->run(call);
}

/* One line; names are percent-encoded, so that no key can forge a line of its own. */
static void log_access(const struct s3_call *call)
{
	const struct s3_request *request = call->request;
	struct buf name;

	buf_init(&name, 4 * LIMIT_HTTP_HEAD_BYTES_MAX);
	uri_encode(call->bucket, 0, &name);
	buf_put(&name, "/", 1);
	uri_encode(call->key, URI_KEEP_SLASH, &name);
	log_debug("s3", "%s %s %.*s %u, %llu bytes, %llu us, %s %s", request->request_id,
		call->operation->name, name.failed ? 0 : (int)name.len, name.data,
		call->reply->status, (unsigned long long)call->body_bytes,
		(unsigned long long)((clock_now_ns() - call->start_ns) / NS_PER_US),
		request->transport, request->peer ? request->peer : "-");
	buf_free(&name);
}

static void call_end(struct s3_call *call)
{
	s3_metrics_count(call->operation->id, call->reply->status);
	if (call->start_ns)
		log_access(call);
	if (!call->request->session)
		secret_wipe(&call->signing, sizeof(call->signing));
	s3_arena_free(&call->arena);
}

void s3_handle(struct s3 *s3, const struct s3_request *request, struct s3_reply *reply)
{
	const struct s3_error *error;
	struct s3_call call;

	call_begin(&call, s3, request, reply);
	error = call_run(&call);
	if (error && reply->status)
		reply->broken = true;
	else if (error)
		s3_answer_error(&call, error);
	call_end(&call);
}
