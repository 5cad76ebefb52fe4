/* s3/auth/access_values.c: values of condition keys for a request: its headers, parameters, peer,
 * time, identity, its tags and those of the existing object. */
#include <errno.h>
#include <stdio.h>

#include "s3/auth/access.h"
#include "s3/auth/access_priv.h"
#include "s3/auth/acl.h"
#include "s3/core/call.h"
#include "s3/core/conditions.h"
#include "s3/core/judged.h"
#include "s3/core/named.h"
#include "s3/core/stored.h"
#include "s3/core/tags.h"
#include "s3/core/text.h"

#define MS_PER_DAY 86400000ll

/* ---- The existing object. ---- */

static struct store_name object_name(const struct access *access)
{
	return (struct store_name){
		.bucket = access->bucket, .key = access->key, .version_id = access->version_id};
}

/* An error of this open is not the client's answer yet. */
static const struct s3_error *open_object(struct access *access, struct store_get **ret_get)
{
	struct s3_call *call = access->call;
	struct store_name name = object_name(access);
	uint32_t header_count = call->header_count;
	const char *message = call->message;
	struct slice detail = call->detail;
	const struct s3_error *error = NULL;

	if (name.version_id.data)
		error = s3_version_check(call, name.version_id);
	if (!error)
		error = s3_open_named(call, &name, ret_get);
	call->header_count = header_count;
	call->message = message;
	call->detail = detail;
	return error;
}

/* Reads its stored headers, once. */
static void find_object(struct access *access)
{
	const struct store_meta *meta;
	const struct s3_error *error;
	struct store_get *get;

	if (access->object_known)
		return;
	access->object_known = true;
	error = access->key.len ? open_object(access, &get) : s3_error_at(S3_E_NO_SUCH_KEY);
	if (error) {
		access->object_missing = error->status == 404 || error->status == 405;
		if (error->status >= 500)
			access->error = error;
		return;
	}
	meta = store_get_meta(get);
	access->object_headers =
		mem_arena_copy(&access->call->arena, slice_of(meta->headers, meta->headers_len));
	if (!access->object_headers.data)
		access->error = s3_error_at(S3_E_SLOW_DOWN);
	store_get_close(get);
}

/* The decision depends on this header of the object, which is opened later. */
static void depend(struct access *access, struct slice header)
{
	struct store_name name = object_name(access);

	if (!access->error && s3_judged_note(access->call, &name, access->object_headers, header))
		access->error = s3_error_at(S3_E_SLOW_DOWN);
}

int access_object_acl(struct access *access, struct s3_acl *ret_acl)
{
	find_object(access);
	depend(access, SLICE(S3_OWNER_HEADER));
	depend(access, SLICE(S3_ACL_HEADER));
	if (access->object_missing || access->error)
		return -ENOENT;
	return s3_acl_of_object(access->object_headers, slice_str(access->settings->bucket.owner),
		&access->call->arena, ret_acl);
}

static const struct s3_tags NO_TAGS;

static const struct s3_tags *object_tags(struct access *access)
{
	struct s3_tags *tags;
	int ret;

	if (access->tags)
		return access->tags;
	access->tags = &NO_TAGS;
	find_object(access);
	depend(access, SLICE(S3_TAGS_HEADER));
	if (access->object_missing || access->error)
		return access->tags;
	tags = mem_arena_get(&access->call->arena, sizeof(*tags));
	ret = tags ? s3_tags_decode(s3_meta_hidden(access->object_headers, SLICE(S3_TAGS_HEADER)),
			     &access->call->arena, tags)
		   : -ENOMEM;
	if (ret)
		access->error = s3_error_at(ret == -ENOMEM ? S3_E_SLOW_DOWN : S3_E_INTERNAL);
	else
		access->tags = tags;
	return access->tags;
}

/* A copy that takes its source's tags ignores the header. */
static struct slice tagging_header(const struct s3_call *call)
{
	if (call->operation->id == S3_OPERATION_COPY_OBJECT &&
		!slice_eq(s3_call_header(call, SLICE("x-amz-tagging-directive")), SLICE("REPLACE")))
		return SLICE_NONE;
	return s3_call_header(call, SLICE("x-amz-tagging"));
}

static const struct s3_tags *request_tags(struct access *access)
{
	struct slice header = tagging_header(access->call);
	const struct s3_error *error;
	struct s3_tags *tags;

	if (access->given && access->given->tags)
		return access->given->tags;
	if (access->request_tags)
		return access->request_tags;
	access->request_tags = &NO_TAGS;
	if (!header.len)
		return access->request_tags;
	tags = mem_arena_get(&access->call->arena, sizeof(*tags));
	error = tags ? s3_tags_of_header(access->call, header, tags) : s3_error_at(S3_E_SLOW_DOWN);
	/* A malformed header is refused later, by the code that uses it. */
	if (!error)
		access->request_tags = tags;
	else if (error->status >= 500)
		access->error = error;
	return access->request_tags;
}

/* ---- Values. ---- */

static uint32_t one(struct slice value, struct slice *ret_values)
{
	if (!value.data)
		return 0;
	ret_values[0] = value;
	return 1;
}

static char *small_text(struct access *access)
{
	return access->small[access->small_count++ % ARRAY_LEN(access->small)];
}

static struct slice time_text(struct access *access, bool epoch)
{
	int64_t ms = (int64_t)(clock_real_ns() / NS_PER_MS);
	char *text = small_text(access);

	if (epoch)
		return slice_of(text, (size_t)snprintf(text, sizeof(access->small[0]), "%lld",
					      (long long)(ms / 1000)));
	date_iso_format(ms, text);
	return slice_of(text, DATE_ISO_LEN);
}

static struct slice principal_type(const struct iam_principal *principal)
{
	if (principal->who.anonymous)
		return SLICE("Anonymous");
	if (principal->who.role.len)
		return SLICE("AssumedRole");
	return principal->user_name.len ? SLICE("User") : SLICE("Account");
}

static struct slice resource_account(struct access *access)
{
	char *text;
	struct iam_owner owner;

	if (!access->settings ||
		iam_owner(access->call->s3->iam, slice_str(access->settings->bucket.owner), &owner))
		return SLICE_NONE;
	text = mem_arena_get(&access->call->arena, sizeof(owner.account));
	if (!text) {
		access->error = s3_error_at(S3_E_SLOW_DOWN);
		return SLICE_NONE;
	}
	memcpy(text, owner.account, sizeof(owner.account));
	return slice_str(text);
}

static struct slice given(struct slice text)
{
	return text.len ? text : SLICE_NONE;
}

/* IAM compares tag keys without case. */
static uint32_t principal_tag(
	const struct iam_principal *principal, struct slice key, struct slice *ret_values)
{
	for (uint32_t i = 0; i < principal->tag_count; i++)
		if (slice_eq_nocase(principal->tags[i].key, key)) {
			ret_values[0] = principal->tags[i].value;
			return 1;
		}
	return 0;
}

/* "aws:…" */
static uint32_t global_values(struct access *access, struct slice name, struct slice *ret_values)
{
	static const struct slice tagged = SLICE("principaltag/");
	const struct iam_principal *principal = access->principal;
	const struct s3_request *request = access->call->request;

	if (slice_eq_nocase(name, SLICE("sourceip")))
		return one(given(s3_peer_address(request->peer)), ret_values);
	if (slice_eq_nocase(name, SLICE("securetransport")))
		return one(
			strcmp(request->transport, "https") == 0 ? SLICE("true") : SLICE("false"),
			ret_values);
	if (slice_eq_nocase(name, SLICE("useragent")))
		return one(s3_call_header(access->call, SLICE("user-agent")), ret_values);
	if (slice_eq_nocase(name, SLICE("referer")))
		return one(s3_call_header(access->call, SLICE("referer")), ret_values);
	if (slice_eq_nocase(name, SLICE("currenttime")))
		return one(time_text(access, false), ret_values);
	if (slice_eq_nocase(name, SLICE("epochtime")))
		return one(time_text(access, true), ret_values);
	if (slice_eq_nocase(slice_to(name, tagged.len), tagged))
		return principal_tag(principal, slice_from(name, tagged.len), ret_values);
	if (slice_eq_nocase(name, SLICE("username")))
		return one(given(principal->user_name), ret_values);
	if (slice_eq_nocase(name, SLICE("userid")))
		return one(given(principal->who.user_id), ret_values);
	if (slice_eq_nocase(name, SLICE("principalarn")))
		return one(
			given(principal->who.role.len ? principal->who.role : principal->who.arn),
			ret_values);
	if (slice_eq_nocase(name, SLICE("principalaccount")))
		return one(given(principal->who.account), ret_values);
	if (slice_eq_nocase(name, SLICE("principaltype")))
		return one(principal_type(principal), ret_values);
	if (slice_eq_nocase(name, SLICE("resourceaccount")))
		return one(resource_account(access), ret_values);
	if (slice_eq_nocase(name, SLICE("requestedregion")))
		return one(slice_str(access->call->s3->region), ret_values);
	return 0;
}

static uint32_t tag_values(const struct s3_tags *tags, struct slice key, struct slice *ret_values)
{
	const struct s3_tag *tag = s3_tags_find(tags, key);

	return tag ? one(tag->value.data ? tag->value : SLICE(""), ret_values) : 0;
}

static uint32_t tag_keys(const struct s3_tags *tags, struct slice *ret_values, uint32_t max)
{
	for (uint32_t i = 0; i < tags->count && i < max; i++)
		ret_values[i] = tags->items[i].key;
	return tags->count;
}

/* "bucket/key" of a copy's source, as the copy reads the header, which names one in many ways. The
 * source's version is for the action on the source. Only copies have a source. */
static struct slice copy_source(struct access *access)
{
	struct s3_call *call = access->call;
	const char *message = call->message;
	struct slice detail = call->detail, arn = SLICE_NONE;
	const struct s3_error *error;
	struct s3_copy copy = {0};

	if (!slice_eq(call->operation->route.header, SLICE("x-amz-copy-source")))
		return SLICE_NONE;
	error = s3_copy_parse(call, &copy);
	call->message = message;
	call->detail = detail;
	if (!error) {
		arn = access_resource(call, copy.bucket, copy.key);
		error = arn.data ? NULL : s3_error_at(S3_E_SLOW_DOWN);
	}
	/* A source that cannot be parsed is refused later, by the code that copies. */
	if (error && error->status >= 500)
		access->error = error;
	return error ? SLICE_NONE : slice_from(arn, strlen("arn:aws:s3:::"));
}

static struct slice param(const struct s3_call *call, struct slice name)
{
	struct slice value;

	if (!s3_call_param(call, name, &value))
		return SLICE_NONE;
	return value.data ? value : SLICE("");
}

static uint32_t header_values(struct access *access, struct slice name, struct slice *ret_values)
{
	if (slice_eq_nocase(name, SLICE("x-amz-copy-source")))
		return one(copy_source(access), ret_values);
	/* A missing storage class means STANDARD. */
	if (slice_eq_nocase(name, SLICE("x-amz-storage-class")) &&
		!s3_call_has_header(access->call, name))
		return one(SLICE("STANDARD"), ret_values);
	if (slice_eq_nocase(name, SLICE("x-amz-server-side-encryption-aws-kms-key-id")))
		return one(
			given(policy_kms_key_id(s3_call_header(access->call, name))), ret_values);
	return one(given(s3_call_header(access->call, name)), ret_values);
}

/* The request's lock values: from its document, otherwise from its headers. */
static struct slice lock_value(struct access *access, struct slice header)
{
	const struct s3_given *given = access->given;

	if (!given)
		return s3_call_header(access->call, header);
	if (slice_eq(header, SLICE("x-amz-object-lock-mode")))
		return given->lock_mode;
	return slice_eq(header, SLICE("x-amz-object-lock-retain-until-date")) ? given->lock_until
									      : given->hold;
}

/* The number of days that the new object would be retained; a started day counts. */
static struct slice retention_days(struct access *access)
{
	struct slice until = lock_value(access, SLICE("x-amz-object-lock-retain-until-date"));
	int64_t now_ms = (int64_t)(clock_real_ns() / NS_PER_MS), until_ms;
	char *text = small_text(access);

	if (!until.len || date_iso_parse(until, &until_ms))
		return SLICE_NONE;
	return slice_of(
		text, (size_t)snprintf(text, sizeof(access->small[0]), "%lld",
			      (long long)((until_ms - now_ms + MS_PER_DAY - 1) / MS_PER_DAY)));
}

/* The age of the request's signature, in milliseconds. */
static struct slice signature_age(struct access *access)
{
	int64_t now_ms = (int64_t)(clock_real_ns() / NS_PER_MS);
	char *text = small_text(access);

	if (!access->call->signed_ms)
		return SLICE_NONE;
	return slice_of(text, (size_t)snprintf(text, sizeof(access->small[0]), "%lld",
				      (long long)MAX(now_ms - access->call->signed_ms, 0)));
}

/* Creating an upload, and putting its parts, happens before the object exists. */
static struct slice creates_object(const struct s3_call *call)
{
	return call->operation->creates_object ? SLICE("true") : SLICE("false");
}

/* Values computed from a request, besides its parameters and headers. */
static struct slice made_value(struct access *access, struct slice name)
{
	if (slice_eq_nocase(name, SLICE("resourceaccount")))
		return resource_account(access);
	if (slice_eq_nocase(name, SLICE("object-lock-remaining-retention-days")))
		return retention_days(access);
	if (slice_eq_nocase(name, SLICE("objectcreationoperation")))
		return creates_object(access->call);
	if (access->principal->who.anonymous)
		return SLICE_NONE;
	if (slice_eq_nocase(name, SLICE("authtype")))
		return access->call->form_signed ? SLICE("POST")
		       : access->call->presigned ? SLICE("REST-QUERY-STRING")
						 : SLICE("REST-HEADER");
	if (slice_eq_nocase(name, SLICE("signatureversion")))
		return access->call->version2 ? SLICE("AWS") : SLICE("AWS4-HMAC-SHA256");
	if (slice_eq_nocase(name, SLICE("signatureage")))
		return signature_age(access);
	return SLICE_NONE;
}

/* The tags of a condition of the request. DeleteObjects has it beside each key, not in a header. A
 * policy that wants If-None-Match of a write means that nothing is overwritten, which only "*"
 * achieves; and one that wants If-Match, that the writer knows what is overwritten. */
static struct slice condition_value(const struct access *access, struct slice name)
{
	const struct s3_operation *operation = access->call->operation;
	bool none_match = slice_eq_nocase(name, SLICE("if-none-match"));
	struct slice tags = s3_call_header(access->call, name);

	if (operation->id == S3_OPERATION_DELETE_OBJECTS)
		return access->given && !none_match ? access->given->if_match : SLICE_NONE;
	if (!operation->creates_object && operation->id != S3_OPERATION_RENAME_OBJECT)
		return tags;
	if (none_match)
		return s3_etag_any(tags) ? SLICE("*") : SLICE_NONE;
	return s3_etag_any(tags) ? SLICE_NONE : tags;
}

/* "s3:…" */
static uint32_t s3_values(
	struct access *access, struct slice name, struct slice *ret_values, uint32_t max)
{
	static const struct {
		struct slice key, param;
	} params[] = {
		{SLICE("prefix"), SLICE("prefix")},
		{SLICE("delimiter"), SLICE("delimiter")},
		{SLICE("max-keys"), SLICE("max-keys")},
	};
	static const struct {
		struct slice key, header;
	} locks[] = {
		{SLICE("object-lock-mode"), SLICE("x-amz-object-lock-mode")},
		{SLICE("object-lock-retain-until-date"),
			SLICE("x-amz-object-lock-retain-until-date")},
		{SLICE("object-lock-legal-hold"), SLICE("x-amz-object-lock-legal-hold")},
	};
	struct slice rest = name, first = slice_split(&rest, '/');

	if (slice_starts(name, SLICE("x-amz-")))
		return header_values(access, name, ret_values);
	if (slice_eq_nocase(first, SLICE("existingobjecttag")) && rest.data)
		return tag_values(object_tags(access), rest, ret_values);
	if (slice_eq_nocase(first, SLICE("requestobjecttag")) && rest.data)
		return tag_values(request_tags(access), rest, ret_values);
	if (slice_eq_nocase(name, SLICE("requestobjecttagkeys")))
		return tag_keys(request_tags(access), ret_values, max);
	if (access->listed.len && slice_eq_nocase(name, SLICE("prefix")))
		return one(access->listed, ret_values);
	if (slice_eq_nocase(name, SLICE("versionid")))
		return one(access->version_id, ret_values);
	for (size_t i = 0; i < ARRAY_LEN(params); i++)
		if (slice_eq_nocase(name, params[i].key))
			return one(param(access->call, params[i].param), ret_values);
	for (size_t i = 0; i < ARRAY_LEN(locks); i++)
		if (slice_eq_nocase(name, locks[i].key))
			return one(given(lock_value(access, locks[i].header)), ret_values);
	if (slice_eq_nocase(name, SLICE("if-match")) ||
		slice_eq_nocase(name, SLICE("if-none-match")))
		return one(given(condition_value(access, name)), ret_values);
	return one(made_value(access, name), ret_values);
}

/* "s3express:…": values for sessions of a bucket; otherwise the values of "s3:". */
static uint32_t express_values(
	struct access *access, struct slice name, struct slice *ret_values, uint32_t max)
{
	struct slice mode;

	if (!slice_eq_nocase(name, SLICE("sessionmode")))
		return s3_values(access, name, ret_values, max);
	mode = s3_call_header(access->call, SLICE("x-amz-create-session-mode"));
	return one(mode.len ? mode : SLICE("ReadWrite"), ret_values);
}

/* "sts:…": whether the keys belong to a session, for policies that allow only sessions. */
static uint32_t sts_values(const struct access *access, struct slice name, struct slice *ret_values)
{
	if (!slice_eq_nocase(name, SLICE("authentication")))
		return 0;
	return one(
		access->principal->session_name.data ? SLICE("true") : SLICE("false"), ret_values);
}

uint32_t access_values(void *arg, struct slice key, struct slice *ret_values, uint32_t max)
{
	struct access *access = arg;
	struct slice name = key, service = slice_split(&name, ':');

	uint32_t count;

	access->call->conditional = true;

	if (!max)
		return 0;
	count = access->more ? access->more(access->more_arg, key, ret_values, max) : 0;
	if (count)
		return count;
	if (slice_eq_nocase(service, SLICE("aws")))
		return global_values(access, name, ret_values);
	if (slice_eq_nocase(service, SLICE("s3")))
		return s3_values(access, name, ret_values, max);
	if (slice_eq_nocase(service, SLICE("s3express")))
		return express_values(access, name, ret_values, max);
	if (slice_eq_nocase(service, SLICE("sts")))
		return sts_values(access, name, ret_values);
	return 0;
}
