/* s3/op/website.c: a page of a bucket's website: an object, a redirect, or an error as a page. */
#include "s3/auth/access.h"
#include "s3/bucket/bucket.h"
#include "s3/bucket/website.h"
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/core/settings.h"
#include "s3/core/stored.h"
#include "s3/object/object.h"
#include "s3/operation.h"

struct slice s3_website_bucket(const struct s3_call *call)
{
	return s3_host_bucket(call, slice_str(call->s3->website_domain));
}

/* ---- Redirects. ---- */

static const struct s3_error *redirect(struct s3_call *call, uint32_t status, struct slice location)
{
	call->header_count = call->header_base;
	s3_answer_header(call, SLICE("Location"), location);
	return s3_answer_empty(call, status);
}

struct target {
	struct slice protocol, host; /* empty: the request's own */
	struct slice key;	     /* not percent-encoded */
	struct slice query;
	bool encoded; /* the key is already percent-encoded */
};

static const struct s3_error *redirect_to(
	struct s3_call *call, uint32_t status, const struct target *target)
{
	bool https = strcmp(call->request->transport, "https") == 0;
	struct slice location;
	struct buf url;

	buf_init(&url, 4 * LIMIT_HTTP_HEAD_BYTES_MAX);
	if (target->protocol.len)
		buf_put_slice(&url, target->protocol);
	else
		buf_put_str(&url, https ? "https" : "http");
	buf_put_str(&url, "://");
	buf_put_slice(&url, target->host.len ? target->host : s3_call_header(call, SLICE("host")));
	if (!target->encoded) {
		buf_put_str(&url, "/");
		uri_encode(target->key, URI_KEEP_SLASH, &url);
	} else {
		buf_put_slice(&url, target->key);
	}
	if (target->query.len) {
		buf_put_str(&url, "?");
		buf_put_slice(&url, target->query);
	}
	location = url.failed ? SLICE_NONE : mem_arena_copy(&call->arena, buf_slice(&url));
	buf_free(&url);
	return location.data ? redirect(call, status, location) : s3_error_at(S3_E_SLOW_DOWN);
}

static const struct s3_error *redirect_by(
	struct s3_call *call, const struct s3_website_rule *rule, struct slice key)
{
	struct target target = {.protocol = rule->protocol, .host = rule->host, .key = key};
	char *joined;
	size_t len;

	if (rule->replace_key.data) {
		target.key = rule->replace_key;
	} else if (rule->replace_prefix.data) {
		key = slice_from(key, rule->prefix.len);
		len = rule->replace_prefix.len + key.len;
		joined = mem_arena_get(&call->arena, len + 1);
		if (!joined)
			return s3_error_at(S3_E_SLOW_DOWN);
		memcpy(joined, rule->replace_prefix.data, rule->replace_prefix.len);
		if (key.len)
			memcpy(joined + rule->replace_prefix.len, key.data, key.len);
		target.key = slice_of(joined, len);
	}
	return redirect_to(call, rule->status, &target);
}

static const struct s3_website_rule *find_rule(
	const struct s3_website *website, struct slice key, uint32_t error)
{
	const struct s3_website_rule *rule = website->rules;

	while (rule && (rule->error != error || !slice_starts(key, rule->prefix)))
		rule = rule->next;
	return rule;
}

/* ---- Pages. ---- */

/* A caller without the right to list does not learn whether a key exists. */
static const struct s3_error *missing(struct s3_call *call)
{
	const struct s3_error *error = s3_call_may(call, "s3:ListBucket", SLICE_NONE);

	return error ? error : s3_error_at(S3_E_NO_SUCH_KEY);
}

/* Opens the page of a key for an anonymous caller. */
static const struct s3_error *open_page(
	struct s3_call *call, struct slice key, struct s3_read *ret_read)
{
	const struct s3_error *error;

	call->key = key;
	call->header_count = call->header_base;
	error = s3_call_may(call, "s3:GetObject", call->key);
	if (!error)
		error = s3_read_begin(call, ret_read);
	return error == s3_error_at(S3_E_NO_SUCH_KEY) ? missing(call) : error;
}

static const struct s3_error *serve(struct s3_call *call, struct slice key)
{
	const struct s3_error *error;
	struct slice location;
	struct s3_read read;

	error = open_page(call, key, &read);
	if (error || !read.get)
		return error;
	location = s3_meta_hidden(
		slice_of(read.meta->headers, read.meta->headers_len), SLICE(S3_REDIRECT_HEADER));
	if (location.len) {
		error = redirect(call, 301, location);
		store_get_close(read.get);
		return error;
	}
	return s3_read_send(call, &read);
}

static struct slice with_suffix(
	struct s3_call *call, struct slice key, const char *between, struct slice suffix)
{
	struct slice joined = SLICE_NONE;
	struct buf text;

	buf_init(&text, 2 * LIMIT_KEY_LEN_MAX + 2);
	buf_put_slice(&text, key);
	buf_put_str(&text, between);
	buf_put_slice(&text, suffix);
	if (!text.failed)
		joined = mem_arena_copy(&call->arena, buf_slice(&text));
	buf_free(&text);
	return joined.len <= LIMIT_KEY_LEN_MAX ? joined : SLICE_NONE;
}

/* "docs" does not exist, but "docs/index.html" does: the answer redirects to "docs/". */
static bool is_folder(struct s3_call *call, struct slice key, struct slice index)
{
	struct slice page = with_suffix(call, key, "/", index);
	struct s3_read read;

	if (!page.len || open_page(call, page, &read))
		return false;
	if (read.get)
		store_get_close(read.get);
	return true;
}

static const struct s3_error *fail(struct s3_call *call, const struct s3_website *website,
	struct slice key, const struct s3_error *why)
{
	const struct s3_website_rule *rule = find_rule(website, key, why->status);
	struct s3_read read;

	if (rule)
		return redirect_by(call, rule, key);
	if (!website->error_key.len || why->status >= 500 || why->status < 400)
		return why;
	/* The error page is sent whole, even if the request has a range. */
	call->whole = true;
	if (open_page(call, website->error_key, &read) || !read.get)
		return why;
	read.status = why->status;
	s3_answer_header(call, SLICE("x-amz-error-code"), slice_str(why->code));
	s3_answer_header(call, SLICE("x-amz-error-message"),
		slice_str(call->message ? call->message : why->message));
	return s3_read_send(call, &read);
}

static const struct s3_error *answer(struct s3_call *call, const struct s3_website *website)
{
	struct slice asked = call->key, key = asked;
	const struct s3_website_rule *rule;
	const struct s3_error *error;

	if (website->all_host.len) {
		const struct target all = {website->all_protocol, website->all_host,
			call->request->path, call->request->query, true};

		return redirect_to(call, 301, &all);
	}
	rule = find_rule(website, asked, 0);
	if (rule)
		return redirect_by(call, rule, asked);
	if (!asked.len || asked.data[asked.len - 1] == '/')
		key = with_suffix(call, asked, "", website->index);
	if (!key.len)
		return s3_error_at(S3_E_KEY_TOO_LONG);
	error = serve(call, key);
	if (error == s3_error_at(S3_E_NO_SUCH_KEY) && slice_eq(key, asked) &&
		is_folder(call, asked, website->index)) {
		struct slice path = with_suffix(call, call->request->path, "/", SLICE_NONE);

		return redirect(call, 302, path);
	}
	return error ? fail(call, website, asked, error) : NULL;
}

const struct s3_error *s3_op_website(struct s3_call *call)
{
	const struct s3_settings *settings;
	const struct s3_error *error;

	call->identity = &call->own_identity;
	if (call->request->method != S3_GET && call->request->method != S3_HEAD)
		return s3_op_method_not_allowed(call);
	error = s3_call_settings(call, &settings);
	if (error)
		return error;
	if (!settings)
		return s3_error_at(S3_E_NO_SUCH_BUCKET);
	if (!settings->parsed[S3_CONFIG_WEBSITE])
		return s3_error_at(S3_E_WEBSITE_MISSING);
	error = s3_payer_check(call);
	return error ? error : answer(call, settings->parsed[S3_CONFIG_WEBSITE]);
}

/* ---- Errors. ---- */

static void put_item(struct buf *html, const char *name, struct slice value)
{
	if (!value.len || !utf8_is_valid(value))
		return;
	buf_printf(html, "<li>%s: ", name);
	xml_escape(value, html);
	buf_put_str(html, "</li>\n");
}

void s3_website_answer_error(struct s3_call *call, const struct s3_error *error)
{
	struct slice message = slice_str(call->message ? call->message : error->message);
	struct buf html;

	call->header_count = call->header_base;
	buf_init(&html, 8 * LIMIT_HTTP_HEAD_BYTES_MAX);
	buf_printf(&html,
		"<html>\n<head><title>%u %s</title></head>\n<body>\n<h1>%u %s</h1>\n<ul>\n",
		error->status, error->code, error->status, error->code);
	put_item(&html, "Code", slice_str(error->code));
	put_item(&html, "Message", message);
	put_item(&html, "BucketName", call->bucket);
	put_item(&html, "Key", call->key);
	put_item(&html, "RequestId", slice_str(call->request->request_id));
	put_item(&html, "HostId", slice_str(call->s3->host_id));
	buf_put_str(&html, "</ul>\n</body>\n</html>\n");
	s3_answer_header(call, SLICE("x-amz-error-code"), slice_str(error->code));
	s3_answer_header(call, SLICE("x-amz-error-message"), message);
	s3_answer_text(call, error->status, SLICE("text/html; charset=utf-8"),
		html.failed ? SLICE_NONE : buf_slice(&html));
	buf_free(&html);
}
