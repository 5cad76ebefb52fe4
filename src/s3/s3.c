/* s3/s3.c: opens and closes the S3 layer, and answers each request once, on the calling fiber. */
#include "s3/s3.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "flow/fan_out.h"
#include "s3/auth/access.h"
#include "s3/auth/auth.h"
#include "s3/auth/express.h"
#include "s3/auth/sigv4.h"
#include "s3/body/body.h"
#include "s3/bucket/bucket.h"
#include "s3/bucket/cors.h"
#include "s3/bucket/website.h"
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/core/settings.h"
#include "s3/core/text.h"
#include "s3/event/access_log.h"
#include "s3/event/notify.h"
#include "s3/identity/admin.h"
#include "s3/identity/oidc.h"
#include "s3/object/carry.h"
#include "s3/object/object.h"
#include "s3/operation.h"
#include "s3/replicate/replicate.h"
#include "s3/s3_priv.h"
#include "s3/sse/sse.h"

#define S3_STORE_ID_BYTES 17

static int copy_option(const char *value, const char *fallback, char *buf, size_t buf_bytes)
{
	return slice_copy_str(slice_str(value ? value : fallback), buf, buf_bytes);
}

static int copy_options(const struct s3_opts *opts, struct s3 *s3)
{
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
	if (!ret)
		ret = copy_option(
			opts->website_domain, "", s3->website_domain, sizeof(s3->website_domain));
	s3->express = opts->express;
	s3->anonymous_read = opts->anonymous_read;
	s3->decline_by_draft = opts->decline_by_draft;
	s3->signature_v2 = opts->signature_v2;
	s3->closed_buckets = opts->closed_buckets;
	s3->encrypted_buckets = opts->encrypted_buckets;
	s3_host_id(s3->host_id);
	return ret;
}

static int open_notify(const struct s3_opts *opts, struct s3 *s3)
{
	const struct s3_notify_opts notify = {.targets = opts->notify_targets,
		.log_file = opts->notify_log_file,
		.queue_events = opts->notify_queue_events,
		.queue_bytes = opts->notify_queue_bytes,
		.topics = !opts->notify_topics			       ? S3_TOPICS_NOWHERE
			  : strcmp(opts->notify_topics, "any") == 0    ? S3_TOPICS_ANYWHERE
			  : strcmp(opts->notify_topics, "public") == 0 ? S3_TOPICS_PUBLIC
								       : S3_TOPICS_NOWHERE,
		.retry_s = opts->notify_retry_s};

	return s3_notify_open(&notify, &s3->notify);
}

static int open_oidc(const struct s3_opts *opts, struct s3 *s3)
{
	const char *word = opts->web_identity ? opts->web_identity : "none";

	return s3_oidc_open(strcmp(word, "any") == 0	  ? S3_OIDC_ANY
			    : strcmp(word, "public") == 0 ? S3_OIDC_PUBLIC
							  : S3_OIDC_NONE,
		&s3->oidc);
}

static int open_fans(const struct s3_opts *opts, struct s3 *s3)
{
	const struct flow_cast_opts none = {.group = NULL};
	const struct flow_fans_opts fans = {.cast = opts->multicast ? *opts->multicast : none,
		.window_bytes = FLOW_FAN_WINDOW_BYTES,
		.patience_ns = opts->fan_out_patience_ns ? opts->fan_out_patience_ns
							 : FLOW_FAN_PATIENCE_NS};

	return flow_fans_open(&fans, &s3->fans);
}

int s3_open(const struct s3_opts *opts, struct store *store, struct s3 **ret_s3)
{
	struct s3 *s3 = calloc(1, sizeof(*s3));
	struct iam_share share;
	int ret;

	if (!s3)
		return -ENOMEM;
	fiber_mutex_init(&s3->owning);
	fiber_mutex_init(&s3->excluding);
	s3->store = store;
	s3->config_kinds = s3_config_kinds;
	s3->store_id = opts->store_id;
	if (opts->names)
		s3->names = *opts->names;
	s3->replication_minute_s = opts->replication_minute_s ? opts->replication_minute_s : 60;
	s3->lifecycle_day_s = opts->lifecycle_day_s ? opts->lifecycle_day_s : 86400;
	ret = copy_options(opts, s3);
	if (!ret)
		ret = sigv4_keys_open(&s3->keys);
	if (!ret)
		ret = s3_keyring_open(opts, &s3->keyring);
	if (!ret)
		ret = s3_settings_open(&s3->settings);
	if (!ret)
		ret = s3_access_log_open(opts->access_log_flush_s, &s3->access_log);
	if (!ret)
		ret = open_notify(opts, s3);
	if (!ret)
		ret = open_oidc(opts, s3);
	if (!ret)
		ret = s3_replicate_registry_open(&s3->replicate);
	if (!ret)
		ret = open_fans(opts, s3);
	share = (struct iam_share){.changed = s3->names.account_changed,
		.arg = s3->names.arg,
		.follows = s3->names.follows};
	if (!ret)
		ret = iam_open(&(struct iam_opts){.store = store,
				       .share = &share,
				       .root_access_key = opts->root_access_key,
				       .root_secret_key = opts->root_secret_key,
				       .secrets_key = opts->secrets_key},
			&s3->iam);
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
	s3_settings_close(s3->settings);
	iam_close(s3->iam);
	s3_keyring_close(s3->keyring);
	s3_access_log_close(s3->access_log);
	s3_notify_close(s3->notify);
	s3_oidc_close(s3->oidc);
	s3_replicate_registry_close(s3->replicate);
	flow_fans_close(s3->fans);
	fiber_mutex_destroy(&s3->excluding);
	fiber_mutex_destroy(&s3->owning);
	secret_wipe(s3, sizeof(*s3));
	free(s3);
}

int s3_start(struct s3 *s3, struct flow_core *core, const char *accounts_json)
{
	int ret = iam_start(s3->iam, core, accounts_json);

	return ret ? ret : s3_replicate_registry_load(s3, core);
}

/* ---- Accounts of several stores. ---- */

int s3_account_text(struct s3 *s3, const char *number, struct buf *out)
{
	json_t *account = iam_account(s3->iam, slice_str(number));
	char *text;

	if (!account)
		return -ENOENT;
	text = json_dumps(account, JSON_COMPACT);
	iam_account_put(account);
	if (text)
		buf_put_str(out, text);
	free(text);
	return text && !out->failed ? 0 : -ENOMEM;
}

struct each {
	s3_account_fn *visit;
	void *arg;
};

static void each_visit(const json_t *account, void *arg)
{
	const struct each *each = arg;

	each->visit(each->arg, json_string_value(json_object_get(account, "account_id")));
}

void s3_account_each(struct s3 *s3, s3_account_fn *visit, void *arg)
{
	struct each each = {visit, arg};

	iam_visit(s3->iam, each_visit, &each);
}

int s3_account_take(struct s3 *s3, const char *number, struct slice text)
{
	int ret = iam_take(s3->iam, slice_str(number), text);

	/* Also a block of public access. */
	if (!ret)
		s3_settings_all_changed(s3);
	return ret;
}

/* Sets everything but the large arrays, which need no initial value. */
static void call_begin(struct s3_call *call, struct s3 *s3, const struct s3_request *request,
	struct s3_reply *reply)
{
	CHECK(request->core && reply->ops);
	CHECK(!reply->status);
	s3_metrics_begin();
	fiber_request_set(request->request_id);
	call->magic = S3_CALL_MAGIC;
	call->s3 = s3;
	s3_call_request(call, request);
	call->reply = reply;
	call->operation = s3_operation_at(S3_OPERATION_UNKNOWN);
	call->log_name = NULL;
	call->declined = SLICE_NONE;
	call->bucket = SLICE_NONE;
	call->key = SLICE_NONE;
	call->params = (struct s3_params){0};
	call->settings = NULL;
	call->former = NULL;
	call->identity = request->session;
	/* Until a signature is proven. */
	call->own_identity.root = false;
	call->own_identity.anonymous = true;
	call->own_identity.access_key[0] = '\0';
	call->principal = NULL;
	call->credential = NULL;
	call->sts = NULL;
	call->session_bucket = SLICE_NONE;
	call->session_read_only = false;
	call->form_read = false;
	call->presigned = false;
	call->signed_ms = 0;
	call->version2 = false;
	call->form_signed = false;
	call->by_acl = false;
	call->sse = NULL;
	call->website = false;
	call->whole = false;
	call->conditional = false;
	call->judged = NULL;
	call->rights_epoch = store_rights_epoch(s3->store);
	call->etag_md5 = strncmp(request->transport, "http", 4) == 0;
	call->start_ns = reactor_fine_ns(request->core->reactor);
	call->log_start_ns = 0;
	call->body_bytes = 0;
	call->received_bytes = 0;
	call->sent_bytes = 0;
	call->message = NULL;
	call->detail = SLICE_NONE;
	call->blamed_bucket = SLICE_NONE;
	call->blamed_key = SLICE_NONE;
	call->header_base = call->header_count = 0;
	call->signing.payload = S3_PAYLOAD_UNSIGNED;
	call->content_sha256[0] = '\0';
	mem_arena_init(&call->arena);
}

/* A client with several endpoints names the store that it means, or asks for the store's id with
 * "?". A request for another store is refused. */
static const struct s3_error *store_check(struct s3_call *call)
{
	static const struct slice NAME = SLICE("x-nebulaio-store");
	struct slice meant = s3_call_header(call, NAME);
	char *id = meant.len ? mem_arena_get(&call->arena, S3_STORE_ID_BYTES) : NULL;

	if (!id)
		return NULL;
	snprintf(id, S3_STORE_ID_BYTES, "%016llx", (unsigned long long)call->s3->store_id);
	s3_answer_header(call, NAME, slice_str(id));
	if (slice_eq(meant, SLICE("?")) || slice_eq(meant, slice_str(id)))
		return NULL;
	return s3_fail(call, S3_E_WRONG_STORE,
		"The request is for the store %.*s, but this endpoint serves the store %s: use "
		"endpoints of one store.",
		(int)MIN(meant.len, S3_STORE_ID_BYTES), meant.data, id);
}

static const struct s3_error *run_handler(struct s3_call *call)
{
	static s3_operation_fn *const handlers[S3_OPERATION_COUNT] = {
#define OPERATION(id, name, handler, ...) [S3_OPERATION_##id] = handler,
#include "s3/s3_operation_table.inc"
	};

	return handlers[call->operation->id](call);
}

/* A principal with many listings is refused (503) before it occupies all helpers. */
static const struct s3_error *call_operate(struct s3_call *call)
{
	struct flow_budget *budget = call->request->core->budget;
	const struct s3_error *error;
	uint16_t share;

	if (__builtin_expect(!call->operation->walks_index, 1))
		return run_handler(call);
	share = s3_call_share(call);
	if (!flow_walk_begin(budget, share))
		return s3_error_at(S3_E_SLOW_DOWN);
	error = run_handler(call);
	flow_walk_end(budget, share);
	return error;
}

/* A caller who may read an object, but not list the bucket, does not learn that it is missing. */
static const struct s3_error *hide_absence(struct s3_call *call, const struct s3_error *error)
{
	bool version = error == s3_error_at(S3_E_NO_SUCH_VERSION);
	bool reads = call->request->method == S3_GET || call->request->method == S3_HEAD;
	const struct s3_error *refused;

	if ((error != s3_error_at(S3_E_NO_SUCH_KEY) && !version) || !reads || !call->key.len)
		return error;
	refused = s3_call_may_know(call, version);
	if (!refused)
		return error;
	/* The answer's headers and message must not reveal it, either. */
	call->header_count = call->header_base;
	call->message = NULL;
	call->detail = SLICE_NONE;
	return refused;
}

static const struct s3_error *call_run(struct s3_call *call)
{
	const struct s3_error *error = s3_route(call), *refused;

	/* Browsers do not sign preflight requests. A browser must be able to read any answer, so
	 * CORS headers are added before the signature is checked. */
	if (!error && call->request->method == S3_OPTIONS)
		return run_handler(call);
	/* The bucket of a request that only gives a copy's source is in another store. */
	if (!error && call->request->carry != S3_CARRY_GIVE)
		error = s3_cors_answer(call);
	if (!error && !call->identity)
		error = store_check(call);
	call->header_base = call->header_count;
	if (!error && call->website) {
		s3_call_proven(call);
		return run_handler(call);
	}
	if (call->website)
		return error;
	/* A caller without the right does not learn the error of its request. */
	refused = call->identity ? s3_authenticate_session(call)
				 : s3_authenticate(call, (int64_t)(clock_real_ns() / NS_PER_MS));
	if (!refused && call->request->control)
		call->request->control->identity = *call->identity;
	if (refused || error)
		return refused ? refused : error;
	/* A session's fiber ends with its request; a request with a body joins its group when the
	 * body starts. */
	if (!call->request->session)
		s3_call_join(call);
	error = s3_express_check(call);
	if (error)
		return error;
	if (call->request->carry == S3_CARRY_GIVE) {
		s3_call_proven(call);
		return s3_carry_give(call);
	}
	/* A form has the caller and the key in its fields. */
	if (call->operation->authorize == S3_AUTHORIZE_FORM)
		return run_handler(call);
	error = s3_call_authorize(call);
	/* Anybody may send the document by which a handler decides itself. */
	if (!error && !(call->identity->anonymous &&
			      call->operation->authorize == S3_AUTHORIZE_BY_ITSELF))
		s3_call_proven(call);
	if (!error)
		error = s3_payer_check(call);
	if (!error)
		error = s3_check_headers(call);
	if (!error && s3_control_holds(call))
		return s3_control_allow(call);
	return error ? error : hide_absence(call, call_operate(call));
}

/* One line; names are percent-encoded, so that no key can forge a line. */
static void log_access(const struct s3_call *call)
{
	const struct s3_request *request = call->request;
	struct buf name;

	buf_init(&name, 4 * LIMIT_HTTP_HEAD_BYTES_MAX);
	uri_encode(call->bucket, 0, &name);
	buf_put(&name, "/", 1);
	uri_encode(call->key, URI_KEEP_SLASH, &name);
	buf_put(&name, "", 1);
	const char *path = name.failed ? "/" : name.data;
	const char *peer = request->peer ? request->peer : "-";
	uint64_t duration_us = s3_call_age_ns(call) / NS_PER_US;
	const struct log_field fields[] = {
		{"operation", call->operation->name, 0},
		{"path", path, 0},
		{"status", NULL, call->reply->status},
		{"bytes", NULL, call->body_bytes},
		{"duration_us", NULL, duration_us},
		{"transport", request->transport, 0},
		{"peer", peer, 0},
	};

	log_line_with(LOG_DEBUG, "s3", (struct log_fields){fields, ARRAY_LEN(fields)},
		"%s %s %u, %llu bytes, %llu us, %s %s", call->operation->name, path,
		call->reply->status, (unsigned long long)call->body_bytes,
		(unsigned long long)duration_us, request->transport, peer);
	buf_free(&name);
}

static void call_end(struct s3_call *call, const struct s3_error *error)
{
	s3_call_check(call);
	s3_metrics_end(call);
	if (log_level_now <= LOG_DEBUG)
		log_access(call);
	if (!call->request->session)
		secret_wipe(&call->signing, sizeof(call->signing));
	s3_access_log_request(call, error);
	s3_call_settings_end(call);
	iam_principal_put(call->principal);
	iam_credential_put(call->credential);
	mem_arena_free(&call->arena);
	magic_clear(&call->magic);
}

void s3_handle(struct s3 *s3, const struct s3_request *request, struct s3_reply *reply)
{
	const struct s3_error *error;
	struct s3_call call;

	call_begin(&call, s3, request, reply);
	error = call_run(&call);
	/* Overload is temporary: tells the client when to retry. */
	if (error && error->status == 503)
		s3_answer_header(&call, SLICE("Retry-After"), SLICE(S3_RETRY_AFTER_S));
	if (error && reply->status)
		reply->broken = true;
	else if (error && call.website)
		s3_website_answer_error(&call, error);
	else if (error)
		s3_answer_error(&call, error);
	call_end(&call, error);
}

/* ---- Operators. ---- */

static void answer_admin(struct s3_call *call, struct admin_answer *answer)
{
	const struct s3_header headers[] = {
		{SLICE("Content-Type"), SLICE("application/json")},
		{SLICE("Cache-Control"), SLICE("no-store")},
	};
	struct s3_reply *reply = call->reply;
	char *text = NULL;
	size_t len;

	if (!answer->json && answer->status >= 300)
		answer->json = json_pack("{s:s, s:s}", "error", answer->why, "code", answer->code);
	if (answer->json)
		text = json_dumps(answer->json, JSON_COMPACT | JSON_SORT_KEYS);
	len = text ? strlen(text) : 0;
	if (reply->ops->head(reply, answer->status, headers, ARRAY_LEN(headers), len) ||
		(len && reply->ops->text(reply, slice_of(text, len))))
		reply->broken = true;
	if (text)
		secret_wipe(text, len);
	free(text);
	json_decref(answer->json);
}

#define TOLD_BYTES_MAX (1 * MIB)

/* False: the path is s3's own. */
static bool admin_told(const struct s3_request *request, s3_admin_tell_fn *tell, void *tell_arg,
	struct admin_answer *answer)
{
	struct buf text;
	int ret;

	if (!tell)
		return false;
	buf_init(&text, TOLD_BYTES_MAX);
	ret = tell(
		tell_arg, request->method, slice_from(request->path, strlen("/admin/v1/")), &text);
	if (!ret && !text.failed)
		answer->json = json_loadb(text.data, text.len, 0, NULL);
	answer->status = answer->json ? 200 : ret == -EINVAL ? 409 : 503;
	answer->code = ret == -EINVAL ? "Conflict" : "Busy";
	snprintf(answer->why, sizeof(answer->why), "%s",
		ret == -EAGAIN ? "it is being found out: ask again in some seconds"
			       : "out of memory");
	if (ret == -EINVAL)
		snprintf(answer->why, sizeof(answer->why), "%.*s", (int)text.len, text.data);
	buf_free(&text);
	return ret != -ENOENT;
}

static void audit_told(const struct s3_call *call, const struct admin_answer *answer)
{
	char what[128];

	if (call->request->method == S3_GET || answer->status != 200)
		return;
	snprintf(what, sizeof(what), "asked for %.*s",
		SLICE_FMT(slice_to(call->request->path, 100)));
	s3_admin_audit(call, what, NULL);
}

/* The path of a request about backups, behind its name. */
static bool is_backup(const struct s3_request *request, struct slice *ret_path)
{
	static const struct slice NAME = SLICE("/admin/v1/backups");
	struct slice rest;

	if (!slice_starts(request->path, NAME))
		return false;
	rest = slice_from(request->path, NAME.len);
	*ret_path = rest.len ? slice_from(rest, 1) : rest;
	return !rest.len || rest.data[0] == '/';
}

/* Root may everything; others may do what has an action of its own. */
static const struct s3_error *may_admin(struct s3_call *call)
{
	struct slice path = slice_from(call->request->path, strlen("/admin/v1/")), rest;

	if (call->identity->root)
		return NULL;
	if (is_backup(call->request, &rest))
		return s3_call_may_operate(call, "admin:Backup");
	if (slice_eq(path, SLICE("volumes")) || slice_starts(path, SLICE("volumes/")))
		return s3_call_may_operate(call, "admin:Volumes");
	if (call->request->method == S3_GET &&
		(slice_eq(path, SLICE("log")) || slice_starts(path, SLICE("log/"))))
		return s3_call_may_operate(call, "admin:ConsoleLog");
	if (slice_eq(path, SLICE("region")) || slice_starts(path, SLICE("region/")))
		return s3_call_may_operate(call, "admin:Region");
	return s3_error_at(S3_E_ACCESS_DENIED);
}

void s3_admin_handle(struct s3 *s3, const struct s3_request *request, struct s3_reply *reply,
	s3_admin_tell_fn *tell, void *tell_arg)
{
	struct admin_answer answer = {0};
	const struct s3_error *error;
	struct s3_call call;
	struct slice path;
	bool sent = false;

	call_begin(&call, s3, request, reply);
	call.operation = s3_operation_at(S3_OPERATION_SERVICE);
	error = request->query.len ? s3_error_at(S3_E_INVALID_URI)
				   : s3_authenticate(&call, (int64_t)(clock_real_ns() / NS_PER_MS));
	if (!error)
		error = may_admin(&call);
	if (error) {
		answer.status = error->status;
		answer.code = error->code;
		snprintf(answer.why, sizeof(answer.why), "%s",
			call.message ? call.message : error->message);
	} else if (admin_told(request, tell, tell_arg, &answer)) {
		audit_told(&call, &answer);
	} else if (is_backup(request, &path)) {
		sent = s3_admin_backup(&call, path, &answer);
	} else {
		s3_admin_run(&call, &answer);
	}
	if (!sent)
		answer_admin(&call, &answer);
	call_end(&call, NULL);
}

/* Lets page answer for a principal that was found and may see how the server does. */
static void page_run(
	struct s3_call *call, const struct s3_error *error, s3_page_fn *page, void *arg)
{
	if (!error)
		error = s3_call_may_operate(call, "admin:Prometheus");
	if (error)
		s3_answer_error(call, error);
	else
		page(arg, call->request, call->reply);
	call_end(call, error);
}

void s3_bearer_handle(struct s3 *s3, const struct s3_request *request, struct s3_reply *reply,
	s3_page_fn *page, void *arg)
{
	struct s3_call call;

	call_begin(&call, s3, request, reply);
	call.operation = s3_operation_at(S3_OPERATION_SERVICE);
	page_run(&call, s3_authenticate_bearer(&call, (int64_t)(clock_real_ns() / NS_PER_S)), page,
		arg);
}

void s3_page_handle(struct s3 *s3, const struct s3_request *request, struct s3_reply *reply,
	s3_page_fn *page, void *arg)
{
	struct s3_call call;

	call_begin(&call, s3, request, reply);
	call.operation = s3_operation_at(S3_OPERATION_SERVICE);
	page_run(&call, s3_authenticate(&call, (int64_t)(clock_real_ns() / NS_PER_MS)), page, arg);
}
