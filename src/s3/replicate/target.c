/* s3/replicate/target.c: the replication targets that operators registered: a table in memory, one
 * document for each ("r/NAME"), whose secret key is sealed; and operators' requests about them. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "document/json.h"
#include "iam/iam.h"
#include "s3/replicate/replicate.h"

#define NAME_PREFIX  "r/"
#define ACCOUNTS_MAX 64u
#define EVERYBODY    "*" /* in place of an account: all of them */

struct target {
	struct s3_replicate_place place;
	struct s3_replicate_state state;
	bool damaged;	  /* its document cannot be read: nothing is known but its name */
	json_t *accounts; /* whose buckets may name it; never changed; NULL: damaged */
	_Atomic uint64_t counts[S3_REPLICATE_COUNTS];
};
struct s3_replicate {
	struct s3_replicate_ledger *ledger;
	pthread_rwlock_t lock; /* of the table and the callback */
	struct target targets[S3_REPLICATE_TARGETS_MAX];
	uint32_t count;
	uint64_t generation;
	void (*work)(void *arg);
	void *work_arg;
};

int s3_replicate_registry_open(struct s3_replicate **ret_replicate)
{
	struct s3_replicate *replicate = calloc(1, sizeof(*replicate));

	if (!replicate || s3_replicate_ledger_open(&replicate->ledger)) {
		free(replicate);
		return -ENOMEM;
	}
	pthread_rwlock_init(&replicate->lock, NULL);
	*ret_replicate = replicate;
	return 0;
}

static void target_wipe(struct target *target)
{
	json_decref(target->accounts);
	secret_wipe(&target->place, sizeof(target->place));
	target->accounts = NULL;
}

void s3_replicate_registry_close(struct s3_replicate *replicate)
{
	if (!replicate)
		return;
	for (uint32_t i = 0; i < replicate->count; i++)
		target_wipe(&replicate->targets[i]);
	pthread_rwlock_destroy(&replicate->lock);
	s3_replicate_ledger_close(replicate->ledger);
	free(replicate);
}

struct s3_replicate_ledger *s3_replicate_ledger_of(struct s3 *s3)
{
	return s3->replicate->ledger;
}

/* The lock is held. */
static struct target *find(struct s3_replicate *replicate, struct slice name)
{
	for (uint32_t i = 0; i < replicate->count; i++)
		if (slice_eq(name, slice_str(replicate->targets[i].place.name)))
			return &replicate->targets[i];
	return NULL;
}

/* ---- For the worker and for rules. ---- */

int s3_replicate_place(struct s3 *s3, struct slice name, struct s3_replicate_place *ret_place)
{
	const struct target *target;
	int ret = -ENOENT;

	pthread_rwlock_rdlock(&s3->replicate->lock);
	target = find(s3->replicate, name);
	if (target) {
		*ret_place = target->place;
		ret = target->damaged ? -EBADMSG : 0;
	}
	pthread_rwlock_unlock(&s3->replicate->lock);
	return ret;
}

bool s3_replicate_registered(struct s3 *s3, struct slice name)
{
	bool registered;

	pthread_rwlock_rdlock(&s3->replicate->lock);
	registered = find(s3->replicate, name) != NULL;
	pthread_rwlock_unlock(&s3->replicate->lock);
	return registered;
}

bool s3_replicate_allowed(struct s3 *s3, struct slice name, const char *owner)
{
	struct iam_owner of;
	const struct target *target;
	bool allowed = false;
	size_t ignored;

	iam_owner_or_id(s3->iam, slice_str(owner), &of);
	pthread_rwlock_rdlock(&s3->replicate->lock);
	target = find(s3->replicate, name);
	/* Its rows wait until it is known again. */
	if (target)
		allowed = target->damaged ||
			  json_list_find_text(target->accounts, SLICE(EVERYBODY), &ignored) ||
			  (of.account[0] && json_list_find_text(target->accounts,
						    slice_str(of.account), &ignored));
	pthread_rwlock_unlock(&s3->replicate->lock);
	return allowed;
}

static void told(const struct target *target, struct s3_replicate_told *ret_told)
{
	ret_told->place = target->place;
	ret_told->state = target->state;
	secret_wipe(ret_told->place.secret_key, sizeof(ret_told->place.secret_key));
	for (uint32_t i = 0; i < S3_REPLICATE_COUNTS; i++) {
		int64_t count = (int64_t)atomic_load(&target->counts[i]);

		/* Rows of a target that was removed and registered again were counted before. */
		ret_told->counts[i] = (uint64_t)MAX(count, 0);
	}
	if (target->damaged)
		snprintf(ret_told->state.error, sizeof(ret_told->state.error),
			"it cannot be read: register it again");
}

uint32_t s3_replicate_list(
	struct s3 *s3, struct s3_replicate_told ret_list[S3_REPLICATE_TARGETS_MAX])
{
	uint32_t count;

	pthread_rwlock_rdlock(&s3->replicate->lock);
	count = s3->replicate->count;
	for (uint32_t i = 0; i < count; i++)
		told(&s3->replicate->targets[i], &ret_list[i]);
	pthread_rwlock_unlock(&s3->replicate->lock);
	return count;
}

void s3_replicate_tell(struct s3 *s3, struct slice name, const struct s3_replicate_state *state)
{
	struct target *target;

	pthread_rwlock_wrlock(&s3->replicate->lock);
	target = find(s3->replicate, name);
	if (target)
		target->state = *state;
	pthread_rwlock_unlock(&s3->replicate->lock);
}

void s3_replicate_add(struct s3 *s3, struct slice name, enum s3_replicate_count count, int64_t more)
{
	struct target *target;

	pthread_rwlock_rdlock(&s3->replicate->lock);
	target = find(s3->replicate, name);
	if (target)
		atomic_fetch_add(&target->counts[count], (uint64_t)more);
	pthread_rwlock_unlock(&s3->replicate->lock);
}

void s3_replicate_on_work(struct s3 *s3, void (*fn)(void *arg), void *arg)
{
	pthread_rwlock_wrlock(&s3->replicate->lock);
	s3->replicate->work = fn;
	s3->replicate->work_arg = arg;
	pthread_rwlock_unlock(&s3->replicate->lock);
}

void s3_replicate_poke(struct s3 *s3)
{
	pthread_rwlock_rdlock(&s3->replicate->lock);
	if (s3->replicate->work)
		s3->replicate->work(s3->replicate->work_arg);
	pthread_rwlock_unlock(&s3->replicate->lock);
}

/* ---- Documents. ---- */

static struct slice document_name(struct slice name, char text[S3_REPLICATE_NAME_MAX + 8])
{
	int len = snprintf(text, S3_REPLICATE_NAME_MAX + 8, NAME_PREFIX "%.*s",
		(int)MIN(name.len, S3_REPLICATE_NAME_MAX), name.data);

	return slice_of(text, (size_t)len);
}

static bool name_valid(struct slice name)
{
	for (size_t i = 0; i < name.len; i++) {
		char c = name.data[i];

		if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '-' && c != '.')
			return false;
	}
	return name.len && name.len <= S3_REPLICATE_NAME_MAX;
}

/* Endpoints of the client's own forms; no other scheme, and no option behind them. */
static bool endpoints_valid(struct slice endpoints)
{
	while (endpoints.len) {
		struct slice one = slice_trim(slice_split(&endpoints, ','));
		struct slice host = slice_starts(one, SLICE("rdma://"))	   ? slice_from(one, 7)
				    : slice_starts(one, SLICE("http://"))  ? slice_from(one, 7)
				    : slice_starts(one, SLICE("https://")) ? slice_from(one, 8)
									   : SLICE_NONE;

		if (!host.len || slice_find(host, SLICE("/")) >= 0 ||
			slice_find(host, SLICE("?")) >= 0 || slice_find(host, SLICE("@")) >= 0)
			return false;
	}
	return true;
}

/* Takes the members of a description, whose secret is clear. NULL, or what is wrong. */
static const char *place_read(
	const json_t *json, struct slice name, struct s3_replicate_place *place)
{
	struct slice endpoint = json_member_text(json, "endpoint");
	struct slice region = json_member_text(json, "region");

	*place = (struct s3_replicate_place){.region = "us-east-1"};
	if (!name_valid(name) || slice_copy_str(name, place->name, sizeof(place->name)))
		return "a name is 1 to 63 of a-z, 0-9, '-' and '.'";
	if (!endpoint.len || !endpoints_valid(endpoint) ||
		slice_copy_str(endpoint, place->endpoints, sizeof(place->endpoints)))
		return "endpoint: rdma://HOST:PORT, http://HOST:PORT or https://HOST:PORT, or "
		       "several of one server, separated by commas";
	if (!s3_bucket_name_valid(json_member_text(json, "bucket")) ||
		slice_copy_str(
			json_member_text(json, "bucket"), place->bucket, sizeof(place->bucket)))
		return "bucket: the name of the target's bucket";
	if (!json_member_text(json, "access_key").len ||
		slice_copy_str(json_member_text(json, "access_key"), place->access_key,
			sizeof(place->access_key)))
		return "access_key: the target's";
	if (region.len && slice_copy_str(region, place->region, sizeof(place->region)))
		return "region: at most 32 characters";
	return NULL;
}

/* NULL: the server's own account alone; or what is wrong. */
static const char *accounts_read(const json_t *json, json_t **ret_accounts)
{
	json_t *list = json_object_get(json, "accounts"), *item;
	size_t idx;

	if (!list) {
		*ret_accounts = json_pack("[s]", IAM_ACCOUNT_OF_ROOT);
		return *ret_accounts ? NULL : "no memory";
	}
	if (!json_is_array(list) || json_array_size(list) > ACCOUNTS_MAX)
		return "accounts: a list of at most 64 account numbers, or of \"*\"";
	json_array_foreach(list, idx, item)
	{
		if (!json_is_string(item) || !json_string_length(item) ||
			json_string_length(item) > IAM_ACCOUNT_LEN_MAX)
			return "accounts: a list of at most 64 account numbers, or of \"*\"";
	}
	*ret_accounts = json_deep_copy(list);
	return *ret_accounts ? NULL : "no memory";
}

static struct slice seal_about(const struct s3_replicate_place *place, char text[96])
{
	return slice_of(text, (size_t)snprintf(text, 96, "replication target %s", place->name));
}

/* In the place of the target of that name, or behind all. accounts NULL: it is damaged. -EDQUOT:
 * there are too many. */
static int table_put(
	struct s3_replicate *replicate, const struct s3_replicate_place *place, json_t *accounts)
{
	struct target *target;

	pthread_rwlock_wrlock(&replicate->lock);
	target = find(replicate, slice_str(place->name));
	if (!target && replicate->count == S3_REPLICATE_TARGETS_MAX) {
		pthread_rwlock_unlock(&replicate->lock);
		return -EDQUOT;
	}
	if (!target) {
		target = &replicate->targets[replicate->count++];
		memset(target, 0, sizeof(*target));
	}
	json_decref(target->accounts);
	target->accounts = accounts;
	target->damaged = !accounts;
	target->place = *place;
	target->place.generation = ++replicate->generation;
	if (!target->state.word)
		target->state.word = "idle";
	pthread_rwlock_unlock(&replicate->lock);
	return 0;
}

static int document_take(struct s3 *s3, struct slice name, const json_t *json)
{
	struct s3_replicate_place place;
	const char *why = place_read(json, name, &place);
	json_t *accounts = NULL;
	struct buf secret;
	char about[96];
	int ret = why || accounts_read(json, &accounts) ? -EBADMSG : 0;

	buf_init(&secret, LIMIT_SECRET_KEY_LEN_MAX);
	if (!ret)
		ret = iam_unseal(s3->iam, seal_about(&place, about),
			json_member_text(json, "sealed"), &secret);
	if (!ret)
		ret = slice_copy_str(
			buf_slice(&secret), place.secret_key, sizeof(place.secret_key));
	if (!ret)
		ret = table_put(s3->replicate, &place, accounts);
	if (ret)
		json_decref(accounts);
	if (secret.data)
		secret_wipe(secret.data, secret.len);
	buf_free(&secret);
	secret_wipe(&place, sizeof(place));
	return ret;
}

struct load {
	struct s3 *s3;
	struct flow_core *core;
};

/* Its rows wait, and do not fail as those of a target that was removed. */
static void damaged_take(struct s3 *s3, struct slice name)
{
	struct s3_replicate_place place = {.region = ""};

	if (!slice_copy_str(name, place.name, sizeof(place.name)))
		(void)table_put(s3->replicate, &place, NULL);
}

/* A target that cannot be read must not stop the server. */
static bool load_visit(struct slice name, void *arg)
{
	struct load *load = arg;
	struct document document;
	struct mem_arena arena;
	json_t *json = NULL;
	int ret;

	mem_arena_init(&arena);
	ret = document_get(load->s3->store, load->core, name, &arena, &document);
	if (!ret) {
		json = json_loadb(document.text.data, document.text.len, 0, NULL);
		ret = json ? document_take(load->s3, slice_from(name, strlen(NAME_PREFIX)), json)
			   : -EBADMSG;
	}
	if (ret) {
		log_error("s3",
			"the replication target %.*s cannot be read: %s; register it again by "
			"`nebulaio admin target-put`",
			SLICE_FMT(name), strerror(-ret));
		damaged_take(load->s3, slice_from(name, strlen(NAME_PREFIX)));
	}
	json_decref(json);
	mem_arena_free(&arena);
	return true;
}

int s3_replicate_registry_load(struct s3 *s3, struct flow_core *core)
{
	struct load load = {s3, core};

	return document_list(s3->store, SLICE(NAME_PREFIX), SLICE_NONE, load_visit, &load);
}

/* ---- Operators' requests. ---- */

static void fail(
	struct s3_replicate_answer *answer, uint32_t status, const char *code, const char *why)
{
	answer->status = status;
	answer->code = code;
	snprintf(answer->why, sizeof(answer->why), "%s", why);
}

static json_t *target_json(const struct s3_replicate_told *told, const json_t *accounts)
{
	uint64_t now_ns = clock_real_ns();
	int64_t oldest_ms = 0;
	json_t *json;

	if (told->state.oldest_ns)
		oldest_ms = (int64_t)((now_ns - MIN(now_ns, told->state.oldest_ns)) / NS_PER_MS);
	json = json_pack("{s:s, s:s, s:s, s:s, s:s, s:O, s:s, s:s, s:s}", "name", told->place.name,
		"endpoint", told->place.endpoints, "bucket", told->place.bucket, "region",
		told->place.region, "access_key", told->place.access_key, "accounts", accounts,
		"state", told->state.word, "transport",
		told->state.transport ? told->state.transport : "none", "error", told->state.error);
	if (json)
		json_object_update_new(json,
			json_pack("{s:I, s:I, s:I, s:i, s:I, s:I, s:I}", "pending",
				(json_int_t)told->counts[S3_REPLICATE_PENDING], "pending_bytes",
				(json_int_t)told->counts[S3_REPLICATE_PENDING_BYTES],
				"oldest_age_ms", (json_int_t)oldest_ms, "refused",
				(int)told->state.refused, "sent",
				(json_int_t)told->counts[S3_REPLICATE_SENT], "sent_bytes",
				(json_int_t)told->counts[S3_REPLICATE_SENT_BYTES], "failed",
				(json_int_t)told->counts[S3_REPLICATE_FAILED]));
	return json;
}

static void tell_targets(struct s3 *s3, struct slice name, struct s3_replicate_answer *answer)
{
	json_t *list = json_array(), *one = NULL, *no_accounts = json_array();
	struct s3_replicate_told told_of;

	pthread_rwlock_rdlock(&s3->replicate->lock);
	for (uint32_t i = 0; i < s3->replicate->count; i++) {
		const struct target *target = &s3->replicate->targets[i];
		json_t *json;

		if (name.len && !slice_eq(name, slice_str(target->place.name)))
			continue;
		told(target, &told_of);
		json = target_json(&told_of, target->accounts ? target->accounts : no_accounts);
		if (name.len)
			one = json;
		else
			json_array_append_new(list, json);
	}
	pthread_rwlock_unlock(&s3->replicate->lock);
	json_decref(no_accounts);
	if (name.len && !one) {
		json_decref(list);
		fail(answer, 404, "NotFound", "no such target");
		return;
	}
	answer->status = 200;
	answer->json = name.len ? one : json_pack("{s:o}", "targets", list);
	if (name.len)
		json_decref(list);
}

/* Without a secret in the body the target keeps the one that it has. */
static int secret_take(struct s3 *s3, const json_t *body, struct s3_replicate_place *place)
{
	struct slice secret = json_member_text(body, "secret_key");
	struct s3_replicate_place before;
	int ret;

	if (secret.len)
		return slice_copy_str(secret, place->secret_key, sizeof(place->secret_key));
	ret = s3_replicate_place(s3, slice_str(place->name), &before);
	if (!ret)
		memcpy(place->secret_key, before.secret_key, sizeof(place->secret_key));
	secret_wipe(&before, sizeof(before));
	return ret;
}

static int document_write(struct s3 *s3, struct flow_core *core,
	const struct s3_replicate_place *place, const json_t *accounts)
{
	char name[S3_REPLICATE_NAME_MAX + 8], about[96], *text = NULL;
	struct document document = {.owner = 0};
	struct buf sealed;
	json_t *json;
	int ret;

	buf_init(&sealed, IAM_SEALED_LEN(LIMIT_SECRET_KEY_LEN_MAX) + 8);
	ret = iam_seal(s3->iam, seal_about(place, about), slice_str(place->secret_key), &sealed);
	if (!ret) {
		json = json_pack("{s:s, s:s, s:s, s:s, s:s%, s:O}", "endpoint", place->endpoints,
			"bucket", place->bucket, "region", place->region, "access_key",
			place->access_key, "sealed", sealed.data, sealed.len, "accounts", accounts);
		text = json ? json_dumps(json, JSON_COMPACT) : NULL;
		json_decref(json);
		document.text = slice_str(text);
		ret = text ? document_put(s3->store, core,
				     document_name(slice_str(place->name), name), &document, NULL)
			   : -ENOMEM;
	}
	free(text);
	buf_free(&sealed);
	return ret;
}

static void put_target(struct s3_call *call, struct slice name, const json_t *body,
	struct s3_replicate_answer *answer)
{
	struct s3_replicate_place place;
	const char *why = place_read(body, name, &place);
	json_t *accounts = NULL;
	int ret = 0;

	if (!why)
		why = accounts_read(body, &accounts);
	if (!why && secret_take(call->s3, body, &place))
		why = "secret_key: the target's";
	if (!why) {
		pthread_rwlock_rdlock(&call->s3->replicate->lock);
		if (!find(call->s3->replicate, name) &&
			call->s3->replicate->count == S3_REPLICATE_TARGETS_MAX)
			why = "there are 16 targets already, which is the most";
		pthread_rwlock_unlock(&call->s3->replicate->lock);
	}
	if (!why)
		ret = document_write(call->s3, call->request->core, &place, accounts);
	if (!why && !ret) {
		ret = table_put(call->s3->replicate, &place, accounts);
		accounts = ret ? accounts : NULL;
	}
	json_decref(accounts);
	secret_wipe(&place, sizeof(place));
	if (why)
		fail(answer, 400, "Invalid", why);
	else if (ret)
		fail(answer, 503, "Busy", strerror(-ret));
	else {
		log_info("s3", "the replication target %.*s is registered", SLICE_FMT(name));
		tell_targets(call->s3, name, answer);
		s3_replicate_poke(call->s3);
	}
}

/* A bucket whose rules name the target would replicate to nowhere. True: it may go. */
static bool check_unused(
	struct s3_call *call, struct slice name, struct s3_replicate_answer *answer)
{
	char bucket[LIMIT_BUCKET_LEN_MAX + 1], why[256];
	int ret = s3_replicate_used_by(call->s3, call->request->core, name, bucket);

	if (ret == -ENOENT)
		return true;
	if (ret) {
		fail(answer, 503, "Busy", strerror(-ret));
		return false;
	}
	snprintf(why, sizeof(why),
		"the rules or the origin of bucket %s name the target: change them first, or "
		"remove it by force: what waits for it then says FAILED",
		bucket);
	fail(answer, 409, "Conflict", why);
	return false;
}

/* {"force": true}, or no body. */
static void delete_target(struct s3_call *call, struct slice name, const json_t *body,
	struct s3_replicate_answer *answer)
{
	char text[S3_REPLICATE_NAME_MAX + 8];
	struct s3_replicate *replicate = call->s3->replicate;
	struct target *target;
	int ret;

	if (!name_valid(name)) {
		fail(answer, 404, "NotFound", "no such target");
		return;
	}
	if (!json_is_true(json_object_get(body, "force")) && !check_unused(call, name, answer))
		return;
	ret = document_delete(call->s3->store, document_name(name, text));
	if (ret) {
		fail(answer, 503, "Busy", strerror(-ret));
		return;
	}
	pthread_rwlock_wrlock(&replicate->lock);
	target = find(replicate, name);
	if (target) {
		size_t behind = (size_t)(&replicate->targets[--replicate->count] - target);

		target_wipe(target);
		memmove(target, target + 1, behind * sizeof(*target));
		memset(&replicate->targets[replicate->count], 0, sizeof(*target));
	}
	pthread_rwlock_unlock(&replicate->lock);
	log_info("s3", "the replication target %.*s is no longer registered", SLICE_FMT(name));
	answer->status = 204;
	s3_replicate_poke(call->s3);
}

/* {"bucket": NAME, "again": true or false} */
static void resync(struct s3_call *call, const json_t *body, struct s3_replicate_answer *answer)
{
	struct slice bucket = json_member_text(body, "bucket");
	struct s3_settings *settings;
	bool configured;
	int ret;

	if (!s3_bucket_name_valid(bucket) ||
		s3_settings_get(call->s3, call->request->core, bucket, &settings)) {
		fail(answer, 404, "NotFound", "no such bucket");
		return;
	}
	configured = settings->parsed[S3_CONFIG_REPLICATION] != NULL;
	s3_settings_put(settings);
	if (!configured) {
		fail(answer, 409, "Conflict", "the bucket has no replication configuration");
		return;
	}
	ret = s3_replicate_resync_ask(call->s3, call->request->core, bucket,
		json_is_true(json_object_get(body, "again")) ? S3_REPLICATE_RESYNC_ALL
							     : S3_REPLICATE_RESYNC_NEW,
		SLICE_NONE);
	if (ret)
		fail(answer, 503, "Busy", strerror(-ret));
	else
		answer->status = 204;
}

void s3_replicate_admin(struct s3_call *call, const struct slice *parts, uint32_t count,
	const json_t *body, struct s3_replicate_answer *ret_answer)
{
	enum s3_method method = call->request->method;
	bool targets = count && slice_eq(parts[0], SLICE("targets"));

	if (targets && count == 1 && method == S3_GET)
		tell_targets(call->s3, SLICE_NONE, ret_answer);
	else if (targets && count == 2 && method == S3_GET)
		tell_targets(call->s3, parts[1], ret_answer);
	else if (targets && count == 2 && method == S3_PUT)
		put_target(call, parts[1], body, ret_answer);
	else if (targets && count == 2 && method == S3_DELETE)
		delete_target(call, parts[1], body, ret_answer);
	else if (count == 1 && slice_eq(parts[0], SLICE("resync")) && method == S3_POST)
		resync(call, body, ret_answer);
	else
		fail(ret_answer, 404, "NotFound",
			"no such path; valid: targets, targets/NAME, resync");
}
