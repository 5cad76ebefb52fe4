/* s3/core/call.c: the call: one request in progress: its memory, its headers and parameters, its
 * errors. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "iam/iam.h"
#include "s3/core/call.h"
#include "s3/core/settings.h"
#include "s3/core/text.h"

/* Size of the elements that an error adds to its document. */
#define DETAIL_BYTES_MAX (32u * LIMIT_HTTP_HEAD_BYTES_MAX)

/* One of 64 marks for a name, by its length and its last character without case. A call looks for
 * twenty headers, and most requests have none of them: no mark, no header. */
static uint64_t mark_of(struct slice name)
{
	return name.len ? 1ull << ((name.len + 5u * (name.data[name.len - 1] | 0x20u)) & 63) : 0;
}

void s3_call_request(struct s3_call *call, const struct s3_request *request)
{
	call->request = request;
	call->header_marks = 0;
	for (uint32_t i = 0; i < request->header_count; i++)
		call->header_marks |= mark_of(request->headers[i].name);
}

static const struct s3_header *find_header(const struct s3_call *call, struct slice name)
{
	const struct s3_request *request = call->request;

	s3_call_check(call);
	if (!(call->header_marks & mark_of(name)))
		return NULL;
	for (uint32_t i = 0; i < request->header_count; i++)
		if (slice_eq_nocase(request->headers[i].name, name))
			return &request->headers[i];
	return NULL;
}

struct slice s3_call_header(const struct s3_call *call, struct slice name)
{
	const struct s3_header *header = find_header(call, name);

	return header ? header->value : SLICE_NONE;
}

bool s3_call_has_header(const struct s3_call *call, struct slice name)
{
	return find_header(call, name) != NULL;
}

bool s3_call_param(const struct s3_call *call, struct slice name, struct slice *ret_value)
{
	const struct s3_param *param = s3_query_find(&call->params, name);

	if (param && ret_value)
		*ret_value = param->value;
	return param != NULL;
}

const struct s3_error *s3_fail(struct s3_call *call, enum s3_error_id id, const char *fmt, ...)
{
	char text[512];
	va_list args;
	int len;

	s3_call_check(call);
	va_start(args, fmt);
	len = vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	if (len > 0)
		call->message = mem_arena_copy(&call->arena, slice_str(text)).data;
	return s3_error_at(id);
}

void s3_fail_detail(struct s3_call *call, const char *name, struct slice value)
{
	struct slice grown;
	struct buf xml;

	if (!utf8_is_valid(value))
		return;
	buf_init(&xml, DETAIL_BYTES_MAX);
	buf_put_slice(&xml, call->detail);
	xml_element(name, value, &xml);
	if (!xml.failed) {
		grown = mem_arena_copy(&call->arena, buf_slice(&xml));
		if (grown.data)
			call->detail = grown;
	}
	buf_free(&xml);
}

const struct s3_error *s3_fail_argument(
	struct s3_call *call, const char *name, struct slice value, const char *message)
{
	s3_fail_detail(call, "ArgumentName", slice_str(name));
	s3_fail_detail(call, "ArgumentValue", value);
	return s3_fail(call, S3_E_INVALID_ARGUMENT, "%s", message);
}

const struct s3_error *s3_fail_errno(struct s3_call *call, int error)
{
	const struct s3_error *found = s3_error_of(error);

	s3_call_check(call);
	if (found->status == 500)
		log_error("s3", "%s %.*s/%.*s failed: %s", call->operation->name,
			SLICE_FMT(call->bucket), SLICE_FMT(call->key), strerror(-error));
	return found;
}

uint16_t s3_call_share(const struct s3_call *call)
{
	const struct flow_budget *budget = call->request->core->budget;
	const struct s3_identity *identity = call->identity;
	/* A claim that is not proven yet must not take from the share of who it names. */
	const struct iam_principal *principal =
		identity && !identity->anonymous ? call->principal : NULL;
	struct slice name = slice_str(identity ? identity->access_key : "");
	char text[IAM_OWNER_LEN_MAX + IAM_NAME_LEN_MAX + 2], room[FLOW_PEER_BYTES];
	uint16_t share;

	s3_call_check(call);
	if (principal) {
		/* Sessions of roles have no user name: all those of one account have a common
		 * share. */
		name = slice_of(
			text, (size_t)snprintf(text, sizeof(text), "%s/%.*s", principal->owner.id,
				      SLICE_FMT(slice_to(principal->user_name, IAM_NAME_LEN_MAX))));
	} else if (!name.len && call->request->peer) {
		/* An anonymous caller uses the share of its address. */
		name = flow_peer_name(slice_str(call->request->peer), room);
	}
	share = flow_share_of(budget, name);
	fiber_share_set(share);
	return share;
}

/* Caches the last keys' shares, because each request needs its share. If another user gets the key
 * meanwhile, the requests use the former user's share until it is computed again; that does no
 * harm. */
#define SEEN_KEYS	   64u
#define SEEN_KEY_BYTES_MAX 40u

void s3_call_join(struct s3_call *call)
{
	static _Thread_local struct {
		const struct flow_budget *budget;
		char key[SEEN_KEY_BYTES_MAX];
		uint16_t share;
	} seen[SEEN_KEYS];
	const struct flow_budget *budget = call->request->core->budget;
	struct slice key = slice_str(call->identity ? call->identity->access_key : "");
	size_t idx;

	if (key.len < 2 || key.len >= SEEN_KEY_BYTES_MAX) {
		s3_call_share(call);
		return;
	}
	idx = ((uint8_t)key.data[key.len - 1] + 31u * (uint8_t)key.data[key.len - 2]) % SEEN_KEYS;
	if (seen[idx].budget != budget || strcmp(seen[idx].key, key.data) != 0) {
		seen[idx].budget = budget;
		memcpy(seen[idx].key, key.data, key.len + 1);
		seen[idx].share = s3_call_share(call);
	}
	fiber_share_set(seen[idx].share);
}

uint64_t s3_call_age_ns(const struct s3_call *call)
{
	uint64_t now_ns = reactor_fine_ns(call->request->core->reactor);

	return now_ns - MIN(now_ns, call->start_ns);
}

const struct s3_error *s3_call_bucket(struct s3_call *call, struct store_bucket *ret_bucket)
{
	int ret;

	s3_call_check(call);
	ret = store_bucket_get(call->s3->store, call->bucket, ret_bucket);
	if (!ret && s3_call_bucket_id(call) && s3_call_bucket_id(call) != ret_bucket->id)
		ret = -ENOENT;
	if (ret == -ENOENT)
		return s3_error_at(S3_E_NO_SUCH_BUCKET);
	return ret ? s3_fail_errno(call, ret) : NULL;
}

struct bucket_edit {
	uint64_t id;
	store_bucket_edit_fn *edit;
	void *arg;
};

static int edit_of(struct store_bucket *bucket, void *arg)
{
	const struct bucket_edit *edit = arg;

	return edit->id && edit->id != bucket->id ? -ENOENT : edit->edit(bucket, edit->arg);
}

int s3_call_bucket_edit(struct s3_call *call, store_bucket_edit_fn *edit, void *arg)
{
	struct bucket_edit of = {.id = s3_call_bucket_id(call), .edit = edit, .arg = arg};
	int ret = store_bucket_edit(call->s3->store, call->bucket, edit_of, &of);

	if (!ret)
		s3_settings_changed(call->s3, call->bucket);
	return ret;
}

struct slice s3_host_bucket(const struct s3_call *call, struct slice domain)
{
	struct slice host, rest;

	if (!domain.len)
		return SLICE_NONE;
	rest = s3_call_header(call, SLICE("host"));
	host = slice_split(&rest, ':');
	if (host.len < domain.len + 2 ||
		!slice_eq_nocase(slice_from(host, host.len - domain.len), domain) ||
		host.data[host.len - domain.len - 1] != '.')
		return SLICE_NONE;
	return slice_to(host, host.len - domain.len - 1);
}

#define DECLINED_NAME_MAX 128u

const struct s3_error *s3_fail_declined(struct s3_call *call)
{
	struct slice method = call->request->method_text;

	/* A Lambda function's answer for an access point has a path that could also be a bucket's.
	 */
	if (!call->declined.len)
		return s3_fail(call, S3_E_NOT_IMPLEMENTED,
			"WriteGetObjectResponse is not implemented by this server.");
	/* The name can contain any bytes. */
	if (call->declined.len > DECLINED_NAME_MAX || !utf8_is_valid(call->declined))
		return s3_error_at(S3_E_NOT_IMPLEMENTED);
	return s3_fail(call, S3_E_NOT_IMPLEMENTED,
		"%.*s with the parameter %.*s is not implemented by this server.",
		SLICE_FMT(method), SLICE_FMT(call->declined));
}
