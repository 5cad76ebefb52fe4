/* s3/identity/admin.c: accounts and their entities: reads them without secrets, creates them as the
 * accounts file would, and deletes them. */
#include "s3/identity/admin.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "s3/auth/auth.h"
#include "s3/core/call.h"
#include "s3/core/text.h"
#include "s3/replicate/replicate.h"
#include "store/local.h"

#define PARTS_MAX  8u
#define BODY_DEPTH 24u

/* /admin/v1/accounts/NUMBER/users/NAME/keys/KEY, in parts after "v1". */
struct admin {
	struct s3_call *call;
	struct slice parts[PARTS_MAX];
	uint32_t count;
	json_t *body; /* an object; NULL when there was none */
	struct admin_answer *answer;
	struct iam_new_key key;
	char why[IAM_ARN_LEN_MAX + 64]; /* of a failed change: the reason; otherwise empty */
};

static void fail(struct admin *admin, uint32_t status, const char *code, const char *why)
{
	admin->answer->status = status;
	admin->answer->code = code;
	snprintf(admin->answer->why, sizeof(admin->answer->why), "%s", why);
}

static void fail_errno(struct admin *admin, int error, const char *why)
{
	switch (error) {
	case -ENOENT:
		fail(admin, 404, "NotFound", why ? why : "no such name");
		break;
	case -EEXIST:
		fail(admin, 409, "Conflict",
			why ? why : "an access key, an id or an e-mail is already in use");
		break;
	case -EBUSY:
	case -EUSERS:
		fail(admin, 409, "Conflict", why);
		break;
	case -EINVAL:
	case -EDQUOT:
	case -EFBIG:
		fail(admin, 400, "Invalid", why ? why : strerror(-error));
		break;
	default:
		fail(admin, 503, "Busy", strerror(-error));
	}
}

static void done(struct admin *admin, json_t *json)
{
	admin->answer->status = json ? 200 : 204;
	admin->answer->json = json;
}

static bool is_part(const struct admin *admin, uint32_t idx, const char *text)
{
	return idx < admin->count && slice_eq(admin->parts[idx], slice_str(text));
}

static struct slice account_of(const struct admin *admin)
{
	return is_part(admin, 1, "root") ? SLICE(IAM_ACCOUNT_OF_ROOT) : admin->parts[1];
}

/* ---- Reading. ---- */

/* Copies an entity: its keys without secrets, and its entities as lists. */
static json_t *without_secrets(const json_t *entity)
{
	json_t *copy = json_deep_copy(entity), *key;
	size_t idx;

	json_array_foreach(json_object_get(copy, "keys"), idx, key) json_object_del(key, "sealed");
	if (json_object_get(copy, "attached")) {
		json_object_set(copy, "policies", json_object_get(copy, "attached"));
		json_object_del(copy, "attached");
	}
	return copy;
}

static json_t *account_json(const json_t *account)
{
	static const char *const members[] = {"users", "groups", "roles"};
	json_t *copy = without_secrets(account), *entity;
	const char *name;

	for (size_t i = 0; i < ARRAY_LEN(members); i++) {
		json_t *list = json_array();

		json_object_foreach(json_object_get(account, members[i]), name, entity)
			json_array_append_new(list, without_secrets(entity));
		json_object_set_new(copy, members[i], list);
	}
	if (json_object_get(account, "policies")) {
		json_t *list = json_array();

		json_object_foreach(json_object_get(account, "policies"), name, entity)
			json_array_append_new(list, without_secrets(entity));
		json_object_set_new(copy, "policies", list);
	}
	return copy;
}

static void visit_account(const json_t *account, void *arg)
{
	json_array_append_new(
		arg, json_pack("{s:O?, s:O?, s:O?, s:O?, s:I}", "account_id",
			     json_object_get(account, "account_id"), "id",
			     json_object_get(account, "id"), "display_name",
			     json_object_get(account, "display_name"), "email",
			     json_object_get(account, "email"), "users",
			     (json_int_t)json_object_size(json_object_get(account, "users"))));
}

static void tell_accounts(struct admin *admin)
{
	json_t *list = json_array();

	iam_visit(admin->call->s3->iam, visit_account, list);
	done(admin, json_pack("{s:o}", "accounts", list));
}

static void tell_account(struct admin *admin)
{
	json_t *account = iam_account(admin->call->s3->iam, account_of(admin));

	if (account)
		done(admin, account_json(account));
	else
		fail_errno(admin, -ENOENT, "no such account");
	iam_account_put(account);
}

static void tell_entity(struct admin *admin)
{
	json_t *account = iam_account(admin->call->s3->iam, account_of(admin));
	const json_t *entity = iam_entity(account, admin->parts[2].data, admin->parts[3]);

	if (entity)
		done(admin, without_secrets(entity));
	else
		fail_errno(admin, -ENOENT, NULL);
	iam_account_put(account);
}

static void count_account(const json_t *account, void *arg)
{
	(void)account;
	++*(json_int_t *)arg;
}

/* A store of one volume cannot run without it, so its volume is reported as good. */
static json_t *volumes_json(struct store *store, const struct store_usage *usage)
{
	static const char *const STATES[] = {"good", "missing", "rebuilding"};
	struct store_volume volumes[DISK_MEMBERS_MAX];
	uint32_t count = store_volumes(store, volumes, DISK_MEMBERS_MAX);
	json_t *list = json_array();

	for (uint32_t i = 0; i < count; i++)
		json_array_append_new(
			list, json_pack("{s:I, s:s, s:I}", "number", (json_int_t)volumes[i].number,
				      "state", STATES[volumes[i].state], "bytes",
				      (json_int_t)volumes[i].bytes));
	if (!count)
		json_array_append_new(
			list, json_pack("{s:I, s:s, s:I}", "number", (json_int_t)0, "state",
				      STATES[0], "bytes", (json_int_t)usage->volume_bytes));
	return list;
}

static void tell_info(struct admin *admin)
{
	struct store_usage usage;
	json_int_t accounts = 0;

	iam_visit(admin->call->s3->iam, count_account, &accounts);
	store_usage(admin->call->s3->store, &usage);
	done(admin,
		json_pack("{s:I, s:o, s:{s:I, s:I, s:I, s:I, s:I, s:I, s:I}}", "accounts", accounts,
			"volumes", volumes_json(admin->call->s3->store, &usage), "store",
			"volume_bytes", (json_int_t)usage.volume_bytes, "used_bytes",
			(json_int_t)usage.used_bytes, "free_bytes", (json_int_t)usage.free_bytes,
			"objects", (json_int_t)usage.objects, "buckets", (json_int_t)usage.buckets,
			"cache_bytes", (json_int_t)usage.cache_bytes, "log_bytes",
			(json_int_t)usage.log_bytes));
}

static void tell_scrub(struct admin *admin)
{
	struct store_scrub scrub;

	store_scrub_status(admin->call->s3->store, &scrub);
	done(admin, json_pack("{s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "running", scrub.running,
			    "done_bytes", (json_int_t)scrub.done_bytes, "all_bytes",
			    (json_int_t)scrub.all_bytes, "runs", (json_int_t)scrub.runs, "bytes",
			    (json_int_t)scrub.bytes, "damaged", (json_int_t)scrub.damaged, "mended",
			    (json_int_t)scrub.mended, "parity_mended",
			    (json_int_t)scrub.parity_mended));
}

/* ---- Changing. ---- */

/* {"path": PATH} */
static void replace_volume(struct admin *admin)
{
	const char *path = json_string_value(json_object_get(admin->body, "path"));
	char what[64];
	uint64_t member;
	int ret = slice_to_u64(admin->parts[1], &member) || member > UINT32_MAX ? -ENOENT : 0;

	if (!ret)
		ret = path ? store_volume_replace(admin->call->s3->store, (uint32_t)member, path)
			   : -EINVAL;
	if (ret == -ENOENT)
		fail(admin, 404, "NotFound", "no such volume");
	else if (ret == -EINVAL)
		fail(admin, 400, "Invalid",
			"a path is wanted, without blanks at its ends: absolute, or "
			"rdma://HOST:PORT/NAME");
	else if (ret == -EEXIST)
		fail(admin, 409, "Conflict", "this is already one of the store's volumes");
	else if (ret == -EALREADY)
		fail(admin, 409, "Conflict", "another volume waits to be replaced");
	else if (ret == -EBUSY)
		fail(admin, 409, "Conflict",
			"too many other volumes are missing: this one cannot be replaced now");
	else if (ret)
		fail_errno(admin, ret, NULL);
	if (ret)
		return;
	snprintf(what, sizeof(what), "replaces volume %u: ", (uint32_t)member);
	s3_admin_audit(admin->call, what, admin->body);
	tell_info(admin);
}

static void begin_scrub(struct admin *admin)
{
	int ret = store_scrub_ask(admin->call->s3->store);

	if (ret == -EALREADY)
		fail(admin, 409, "Conflict", "a scrub is already running");
	else if (ret)
		fail_errno(admin, ret, NULL);
	else
		tell_scrub(admin);
}

static bool put(struct admin *admin, const json_t *description)
{
	struct buf why;
	int ret;

	buf_init(&why, 512);
	ret = iam_put(admin->call->s3->iam, admin->call->request->core, description, &why);
	if (ret) {
		buf_put(&why, "", 1);
		fail_errno(admin, ret, why.failed ? NULL : why.data);
	}
	buf_free(&why);
	return ret == 0;
}

/* The body, with the name from the path. */
static json_t *named(struct admin *admin, const char *member, struct slice name)
{
	json_t *copy = admin->body ? json_copy(admin->body) : json_object();

	json_member_set_text(copy, member, name);
	return copy;
}

static void put_account(struct admin *admin)
{
	json_t *description = named(admin, "account_id", account_of(admin));

	if (put(admin, description))
		tell_account(admin);
	json_decref(description);
}

static void put_entity(struct admin *admin)
{
	json_t *account = iam_account(admin->call->s3->iam, account_of(admin));
	json_t *description =
		json_pack("{s:[o]}", admin->parts[2].data, named(admin, "name", admin->parts[3]));

	json_member_set_text(description, "account_id", account_of(admin));
	if (!account && !is_part(admin, 1, "root"))
		fail_errno(admin, -ENOENT, "no such account");
	else if (put(admin, description))
		tell_entity(admin);
	iam_account_put(account);
	json_decref(description);
}

/* -EBUSY, with the reason: the account or the user owns buckets, or may. */
static int check_owner(struct admin *admin, const json_t *who)
{
	struct s3 *s3 = admin->call->s3;
	int ret = s3_owns_bucket(s3, json_member_text(who, "id"));

	if (ret > 0)
		snprintf(admin->why, sizeof(admin->why), "the %s owns buckets",
			is_part(admin, 2, "users") ? "user" : "account");
	if (ret)
		return ret > 0 ? -EBUSY : ret;
	if (!s3->names.claim || json_is_true(json_object_get(admin->body, "force")))
		return 0;
	snprintf(admin->why, sizeof(admin->why),
		"the %s may own buckets in other stores, which this one does not know: list them "
		"by a gateway, delete them, and repeat this with {\"force\": true} "
		"(account-remove NUMBER force)",
		is_part(admin, 2, "users") ? "user" : "account");
	return -EBUSY;
}

static int check_owners(json_t *account, void *arg)
{
	struct admin *admin = arg;
	int ret = check_owner(admin, account);
	const char *name;
	json_t *user;

	json_object_foreach(json_object_get(account, "users"), name, user)
	{
		if (!ret && json_object_get(user, "id"))
			ret = check_owner(admin, user);
	}
	return ret;
}

static void delete_account(struct admin *admin)
{
	struct s3 *s3 = admin->call->s3;
	/* A bucket that is being made is there before the check, or is not made. */
	const struct iam_edit edit = {.account = account_of(admin),
		.change = check_owners,
		.arg = admin,
		.guard = &s3->owning};
	int ret = iam_delete(s3->iam, &edit);

	if (ret)
		fail_errno(admin, ret, ret == -EBUSY ? admin->why : "no such account");
	else
		done(admin, NULL);
}

/* The entity in an account whose keys change: a user, or the account itself. */
static json_t *whose_keys(const struct admin *admin, json_t *account)
{
	return is_part(admin, 2, "users") ? iam_entity(account, "users", admin->parts[3]) : account;
}

/* As IAM's calls: what a deleted group or policy gave, a later one of its name must not give. */
static int check_holders(struct admin *admin, const json_t *account, const json_t *entity)
{
	const bool group = is_part(admin, 2, "groups");
	struct iam_holder holder;

	if ((!group && !is_part(admin, 2, "policies")) ||
		!iam_holder_find(account, admin->parts[2].data, entity, &holder))
		return 0;
	snprintf(admin->why, sizeof(admin->why),
		group ? "the %.*s %.*s is a member: take it out of the group first"
		      : "the %.*s %.*s has the policy: detach it first",
		(int)(strlen(holder.kind) - 1), holder.kind, SLICE_FMT(holder.name));
	return -EBUSY;
}

static int change_entity_delete(json_t *account, void *arg)
{
	struct admin *admin = arg;
	char lower[IAM_NAME_LEN_MAX + 1];
	json_t *entity = iam_entity(account, admin->parts[2].data, admin->parts[3]);
	int ret = 0;

	if (!entity || iam_lower(admin->parts[3], lower))
		return -ENOENT;
	/* A user that is an owner of its own. */
	if (is_part(admin, 2, "users") && json_object_get(entity, "id"))
		ret = check_owner(admin, entity);
	if (!ret)
		ret = check_holders(admin, account, entity);
	if (ret)
		return ret;
	json_object_del(json_object_get(account, admin->parts[2].data), lower);
	return 0;
}

static int change_key_add(json_t *account, void *arg)
{
	struct admin *admin = arg;
	json_t *who = whose_keys(admin, account);

	admin->key = (struct iam_new_key){.active = true,
		.access_key = json_member_text(admin->body, "access_key"),
		.secret = json_member_text(admin->body, "secret_key")};
	/* A second create of a key would change its secret while clients use it. */
	if (who && admin->key.access_key.len &&
		iam_key_find(json_object_get(who, "keys"), admin->key.access_key, NULL))
		return -EEXIST;
	return who ? iam_key_add(admin->call->s3->iam, json_member_list(who, "keys"), &admin->key)
		   : -ENOENT;
}

static int change_key(json_t *account, void *arg)
{
	struct admin *admin = arg;
	json_t *keys = json_object_get(whose_keys(admin, account), "keys");
	const json_t *active = json_object_get(admin->body, "active");
	size_t idx;

	if (!iam_key_find(keys, admin->parts[admin->count - 1], &idx))
		return -ENOENT;
	if (admin->call->request->method == S3_DELETE)
		return json_array_remove(keys, idx) ? -EINVAL : 0;
	if (!json_is_boolean(active))
		return -EINVAL;
	return json_object_set_new(
		       json_array_get(keys, idx), "active", json_boolean(json_is_true(active)))
		       ? -ENOMEM
		       : 0;
}

/* Applies the body's list to the entity. */
static int change_attached(struct admin *admin, json_t *account, const char *member,
	int (*change)(json_t *account, json_t *entity, struct slice arn))
{
	json_t *entity = iam_entity(account, admin->parts[2].data, admin->parts[3]);
	const json_t *list = json_object_get(admin->body, member), *arn;
	size_t idx;
	int ret;

	if (!entity)
		return -ENOENT;
	if (list && !json_is_array(list))
		return -EINVAL;
	json_array_foreach(list, idx, arn)
	{
		if (!json_is_string(arn))
			return -EINVAL;
		ret = change(account, entity, slice_str(json_string_value(arn)));
		if (!ret)
			continue;
		snprintf(admin->why, sizeof(admin->why),
			ret == -ENOENT && change == iam_attach ? "no policy %s"
			: ret == -ENOENT		       ? "%s is not attached"
							       : "%s: too many are attached",
			json_string_value(arn));
		return ret;
	}
	return 0;
}

static int change_policies(json_t *account, void *arg)
{
	struct admin *admin = arg;
	int ret = change_attached(admin, account, "attach", iam_attach);

	if (!json_object_get(admin->body, "attach") && !json_object_get(admin->body, "detach"))
		ret = -EINVAL;
	return ret ? ret : change_attached(admin, account, "detach", iam_detach);
}

static bool edit_guarded(struct admin *admin, iam_change_fn *change, struct fiber_mutex *guard)
{
	const struct iam_edit edit = {
		.account = account_of(admin), .change = change, .arg = admin, .guard = guard};
	int ret = iam_change(admin->call->s3->iam, admin->call->request->core, &edit);

	if (ret)
		fail_errno(admin, ret,
			admin->why[0]	 ? admin->why
			: ret == -EDQUOT ? "one identity has at most 4 keys"
			: ret == -EINVAL ? "the body names no change"
					 : NULL);
	else
		done(admin, NULL);
	return ret == 0;
}

static bool edit(struct admin *admin, iam_change_fn *change)
{
	return edit_guarded(admin, change, NULL);
}

static void add_key(struct admin *admin)
{
	if (!edit(admin, change_key_add))
		return;
	done(admin, json_pack("{s:s%, s:s%, s:b}", "access_key", admin->key.access_key.data,
			    admin->key.access_key.len, "secret_key", admin->key.secret.data,
			    admin->key.secret.len, "active", 1));
	secret_wipe(&admin->key, sizeof(admin->key));
}

static void delete_entity(struct admin *admin)
{
	/* As in delete_account. */
	edit_guarded(admin, change_entity_delete, &admin->call->s3->owning);
}

/* ---- Paths. ---- */

static void not_allowed(struct admin *admin)
{
	fail(admin, 405, "MethodNotAllowed", "this path does not support the method");
}

static void run_keys(struct admin *admin, uint32_t idx)
{
	enum s3_method method = admin->call->request->method;

	if (admin->count == idx + 1 && method == S3_POST)
		add_key(admin);
	else if (admin->count == idx + 2 && (method == S3_PUT || method == S3_DELETE))
		edit(admin, change_key);
	else
		not_allowed(admin);
}

static void run_entity(struct admin *admin)
{
	enum s3_method method = admin->call->request->method;

	if (method == S3_GET)
		tell_entity(admin);
	else if (method == S3_PUT)
		put_entity(admin);
	else if (method == S3_DELETE)
		delete_entity(admin);
	else
		not_allowed(admin);
}

static void run_attached(struct admin *admin)
{
	if (admin->call->request->method != S3_POST)
		not_allowed(admin);
	else if (edit(admin, change_policies))
		tell_entity(admin);
}

static void run_account(struct admin *admin)
{
	enum s3_method method = admin->call->request->method;

	if (method == S3_GET)
		tell_account(admin);
	else if (method == S3_PUT)
		put_account(admin);
	else if (method == S3_DELETE)
		delete_account(admin);
	else
		not_allowed(admin);
}

static void run_below(struct admin *admin,
	void (*run_path)(struct s3_call *, const struct admin_path *, struct admin_answer *))
{
	const struct admin_path path = {
		.parts = admin->parts + 1, .count = admin->count - 1, .body = admin->body};

	run_path(admin->call, &path, admin->answer);
}

static void run_replication(struct admin *admin)
{
	struct s3_replicate_answer answer = {.status = 0};

	s3_replicate_admin(admin->call, admin->parts + 1, admin->count - 1, admin->body, &answer);
	if (answer.code) {
		fail(admin, answer.status, answer.code, answer.why);
		return;
	}
	admin->answer->status = answer.status;
	admin->answer->json = answer.json;
}

static void run(struct admin *admin)
{
	bool get = admin->call->request->method == S3_GET;
	bool entity = is_part(admin, 2, "users") || is_part(admin, 2, "groups") ||
		      is_part(admin, 2, "roles") || is_part(admin, 2, "policies");

	if (admin->count == 1 && is_part(admin, 0, "info") && get)
		tell_info(admin);
	else if (admin->count == 2 && is_part(admin, 0, "volumes") &&
		 admin->call->request->method == S3_PUT)
		replace_volume(admin);
	else if (admin->count == 1 && is_part(admin, 0, "scrub") && get)
		tell_scrub(admin);
	else if (admin->count == 1 && is_part(admin, 0, "scrub") &&
		 admin->call->request->method == S3_POST)
		begin_scrub(admin);
	else if (is_part(admin, 0, "buckets"))
		run_below(admin, s3_admin_buckets);
	else if (is_part(admin, 0, "volumes"))
		run_below(admin, s3_admin_volumes);
	else if (is_part(admin, 0, "replication"))
		run_replication(admin);
	else if (admin->count == 1 && is_part(admin, 0, "accounts") && get)
		tell_accounts(admin);
	else if (!is_part(admin, 0, "accounts"))
		fail_errno(admin, -ENOENT,
			"no such path; valid: info, buckets, backups, replication, scrub, volumes, "
			"accounts, sessions and doctor");
	else if (admin->count == 2)
		run_account(admin);
	else if (is_part(admin, 2, "keys"))
		run_keys(admin, 2);
	else if (entity && admin->count == 4)
		run_entity(admin);
	else if (is_part(admin, 2, "users") && is_part(admin, 4, "keys"))
		run_keys(admin, 4);
	else if (entity && !is_part(admin, 2, "policies") && admin->count == 5 &&
		 is_part(admin, 4, "policies"))
		run_attached(admin);
	else
		fail_errno(admin, -ENOENT, "no such path");
}

/* Splits the path after /admin/v1/ into decoded parts, each with a NUL at its end. */
static bool split(struct admin *admin)
{
	struct slice rest = slice_from(admin->call->request->path, strlen("/admin/v1/"));
	char text[LIMIT_KEY_LEN_MAX];
	size_t len;

	while (rest.len) {
		struct slice part = slice_split(&rest, '/');

		if (admin->count == PARTS_MAX || !part.len ||
			uri_decode(part, 0, text, sizeof(text), &len) || memchr(text, 0, len))
			return false;
		admin->parts[admin->count] =
			mem_arena_copy(&admin->call->arena, slice_of(text, len));
		if (!admin->parts[admin->count++].data)
			return false;
	}
	return admin->count > 0;
}

void s3_admin_run(struct s3_call *call, struct admin_answer *ret_answer)
{
	const struct s3_sums sums = {.kind = CHECKSUM_NONE};
	struct admin admin = {.call = call, .answer = ret_answer};
	const struct s3_error *error;
	struct slice body;

	error = s3_call_read(call, &sums, &body);
	if (error) {
		fail(&admin, error->status, error->code, error->message);
		return;
	}
	if (body.len && json_is_flat(body, BODY_DEPTH))
		admin.body = json_loadb(body.data, body.len, JSON_REJECT_DUPLICATES, NULL);
	if (body.len && !json_is_object(admin.body))
		fail(&admin, 400, "Invalid", "the body must be a JSON object");
	else if (!split(&admin))
		fail_errno(&admin, -ENOENT, "no such path");
	else
		run(&admin);
	json_decref(admin.body);
}
