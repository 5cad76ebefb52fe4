/* s3/identity/admin_bucket.c: buckets in the admin API: what each holds, and its quota. */
#include "s3/identity/admin.h"

#include <errno.h>
#include <stdio.h>

#include "iam/iam.h"
#include "s3/core/text.h"
#include "store/api.h"

struct listing {
	struct s3_call *call;
	json_t *list;
};

static void fail(struct admin_answer *answer, uint32_t status, const char *code, const char *why)
{
	answer->status = status;
	answer->code = code;
	snprintf(answer->why, sizeof(answer->why), "%s", why);
}

static void fail_errno(struct admin_answer *answer, int error)
{
	if (error == -ENOENT)
		fail(answer, 404, "NotFound", "no such bucket");
	else
		fail(answer, 503, "Busy", strerror(-error));
}

static json_t *counts_json(const struct store_quota *counts)
{
	return json_pack("{s:I, s:I}", "bytes", (json_int_t)counts->bytes, "objects",
		(json_int_t)counts->objects);
}

/* Of a memory bucket. */
static json_t *memory_json(const struct store_memory *memory)
{
	return json_pack("{s:I, s:I, s:I, s:s}", "bytes", (json_int_t)memory->bytes, "objects",
		(json_int_t)memory->objects, "ttl_s", (json_int_t)memory->ttl_s, "full",
		memory->refuses ? "refuse" : "evict");
}

/* NULL: the bucket was deleted meanwhile. */
static json_t *bucket_json(struct s3_call *call, const struct store_bucket *bucket)
{
	struct iam_owner owner;
	struct store_quota used;
	json_t *json;

	if (store_bucket_usage(call->s3->store, slice_str(bucket->name), &used))
		return NULL;
	iam_owner_or_id(call->s3->iam, slice_str(bucket->owner), &owner);
	json = json_pack("{s:s, s:s, s:s, s:I, s:s, s:I, s:I, s:o}", "name", bucket->name, "owner",
		bucket->owner, "account_id", owner.account, "created",
		(json_int_t)(bucket->created_ns / NS_PER_MS), "region", bucket->region, "bytes",
		(json_int_t)used.bytes, "objects", (json_int_t)used.objects, "quota",
		counts_json(&bucket->quota));
	if (json && bucket->flags & STORE_BUCKET_MEMORY)
		json_object_set_new(json, "memory", memory_json(&bucket->memory));
	return json;
}

static bool visit_bucket(const struct store_bucket *bucket, void *arg)
{
	struct listing *listing = arg;
	json_t *json;

	if (!s3_bucket_name_any(slice_str(bucket->name)))
		return true;
	json = bucket_json(listing->call, bucket);
	if (json)
		json_array_append_new(listing->list, json);
	return true;
}

static void tell_buckets(struct s3_call *call, struct admin_answer *answer)
{
	struct listing listing = {.call = call, .list = json_array()};
	int ret = store_bucket_list(call->s3->store, SLICE_NONE, visit_bucket, &listing);

	if (ret) {
		json_decref(listing.list);
		fail_errno(answer, ret);
		return;
	}
	answer->status = 200;
	answer->json = json_pack("{s:o}", "buckets", listing.list);
}

static void tell_bucket(struct s3_call *call, struct slice name, struct admin_answer *answer)
{
	struct store_bucket bucket;
	int ret = store_bucket_get(call->s3->store, name, &bucket);

	answer->json = ret ? NULL : bucket_json(call, &bucket);
	if (answer->json)
		answer->status = 200;
	else
		fail_errno(answer, ret ? ret : -ENOENT);
}

/* ---- The quota. ---- */

static int set_quota(struct store_bucket *bucket, void *arg)
{
	bucket->quota = *(const struct store_quota *)arg;
	return 0;
}

/* A limit; 0 or absent: none. */
static bool take_limit(const json_t *body, const char *name, uint64_t *ret_limit)
{
	const json_t *value = json_object_get(body, name);

	*ret_limit = 0;
	if (!value)
		return true;
	*ret_limit = (uint64_t)json_integer_value(value);
	return json_is_integer(value) && json_integer_value(value) >= 0;
}

static void put_quota(
	struct s3_call *call, struct slice name, const json_t *body, struct admin_answer *answer)
{
	static const char *const known[] = {"bytes", "objects"};
	struct store_quota quota;
	size_t members = 0;
	int ret;

	for (size_t i = 0; i < ARRAY_LEN(known); i++)
		members += json_object_get(body, known[i]) != NULL;
	if (!take_limit(body, "bytes", &quota.bytes) ||
		!take_limit(body, "objects", &quota.objects) || !members ||
		members != json_object_size(body)) {
		fail(answer, 400, "Invalid",
			"the body must be {\"bytes\": N, \"objects\": N}, one of them or both, "
			"whole numbers from 0 on; 0 is no limit");
		return;
	}
	ret = store_bucket_edit(call->s3->store, name, set_quota, &quota);
	if (ret) {
		fail_errno(answer, ret);
		return;
	}
	log_info("s3", "the quota of bucket %.*s is now %llu bytes, %llu objects (0: no limit)",
		SLICE_FMT(name), (unsigned long long)quota.bytes,
		(unsigned long long)quota.objects);
	tell_bucket(call, name, answer);
}

static void delete_quota(struct s3_call *call, struct slice name, struct admin_answer *answer)
{
	struct store_quota none = {0};
	int ret = store_bucket_edit(call->s3->store, name, set_quota, &none);

	if (ret)
		fail_errno(answer, ret);
	else
		answer->status = 204;
}

struct owning {
	char owner[IAM_OWNER_LEN_MAX + 1];
	bool found;
};

/* Not the server's own buckets. */
static bool is_owned(const struct store_bucket *bucket, void *arg)
{
	struct owning *owning = arg;

	owning->found |= s3_bucket_name_any(slice_str(bucket->name)) &&
			 strcmp(bucket->owner, owning->owner) == 0;
	return !owning->found;
}

int s3_owns_bucket(struct s3 *s3, struct slice owner)
{
	struct owning owning = {.found = false};
	int ret = slice_copy_str(owner, owning.owner, sizeof(owning.owner));

	if (!ret)
		ret = store_bucket_list(s3->store, SLICE_NONE, is_owned, &owning);
	return ret ? ret : owning.found;
}

void s3_admin_buckets(
	struct s3_call *call, const struct admin_path *path, struct admin_answer *ret_answer)
{
	enum s3_method method = call->request->method;
	bool quota = path->count == 2 && slice_eq(path->parts[1], SLICE("quota"));

	if (path->count && !s3_bucket_name_any(path->parts[0]))
		fail_errno(ret_answer, -ENOENT);
	else if (path->count == 0 && method == S3_GET)
		tell_buckets(call, ret_answer);
	else if (path->count == 1 && method == S3_GET)
		tell_bucket(call, path->parts[0], ret_answer);
	else if (quota && method == S3_PUT)
		put_quota(call, path->parts[0], path->body, ret_answer);
	else if (quota && method == S3_DELETE)
		delete_quota(call, path->parts[0], ret_answer);
	else if (path->count < 2 || quota)
		fail(ret_answer, 405, "MethodNotAllowed", "the path does not take this method");
	else
		fail(ret_answer, 404, "NotFound", "no such path");
}
