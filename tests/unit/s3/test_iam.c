/* Covers iam/iam.c: the limit of accounts, changes whose store fails, and several at once; and
 * calls of IAM by a user, about itself; sessions of roles; and accounts that own buckets. */
#include "../unit.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "fake.h"
#include "iam/iam.h"
#include "s3/identity/admin.h"

static int set_name(json_t *account, void *arg)
{
	return json_member_set_text(account, "display_name", slice_str(arg));
}

static int change(const char *number, char *name)
{
	const struct iam_edit edit = {
		.account = slice_str(number), .create = true, .change = set_name, .arg = name};

	return iam_change(fake_s3->iam, &fake_core, &edit);
}

static bool has(const char *number, const char *name)
{
	json_t *account = iam_account(fake_s3->iam, slice_str(number));
	bool same = account && slice_eq(json_member_text(account, "display_name"), slice_str(name));

	iam_account_put(account);
	return same;
}

/* Fills the table up to so many accounts, not the store. */
static void fill(uint32_t count)
{
	char number[16], text[64];

	for (uint32_t i = 0; i < count; i++) {
		snprintf(number, sizeof(number), "a%u", i);
		snprintf(text, sizeof(text), "{\"account_id\":\"%s\"}", number);
		assert_int_equal(iam_take(fake_s3->iam, slice_str(number), slice_str(text)), 0);
	}
}

static void document_named(const char *name, const char *text)
{
	const struct document document = {.text = slice_str(text)};

	assert_int_equal(document_put(fake_store, &fake_core, slice_str(name), &document, NULL), 0);
}

/* A refused account is not stored, or the next start would find it. */
static void test_an_account_too_many_is_not_stored(void **state)
{
	struct document document;
	struct mem_arena arena;

	(void)state;
	mem_arena_init(&arena);
	fill(IAM_ACCOUNTS_MAX - 1);
	fake_commit_error = -EIO;
	assert_int_equal(change("b", "one"), -EIO);
	fake_commit_error = 0;
	/* Its place is free again. */
	assert_int_equal(change("b", "one"), 0);
	assert_int_equal(change("c", "two"), -EUSERS);
	assert_false(has("c", "two"));
	assert_int_equal(
		document_get(fake_store, &fake_core, SLICE("i/a/c"), &arena, &document), -ENOENT);
	assert_int_equal(change("b", "three"), 0);
	assert_int_equal(iam_delete(fake_s3->iam, &(struct iam_edit){.account = SLICE("b")}), 0);
	assert_int_equal(change("c", "two"), 0);
	assert_true(has("c", "two"));
	mem_arena_free(&arena);
}

static void test_a_start_passes_over_an_account_too_many(void **state)
{
	(void)state;
	document_named("i/a/b", "{\"account_id\":\"b\",\"display_name\":\"b\"}");
	document_named("i/a/c", "{\"account_id\":\"c\",\"display_name\":\"c\"}");
	fill(IAM_ACCOUNTS_MAX - 1);
	assert_int_equal(iam_start(fake_s3->iam, &fake_core, NULL), 0);
	assert_true(has("b", "b"));
	assert_false(has("c", "c"));
}

/* A change that is stored is in the table, also if nothing can be read meanwhile. */
static void test_a_change_reads_nothing_back(void **state)
{
	(void)state;
	fake_get_error = fake_read_error = -EIO;
	assert_int_equal(change("a", "one"), 0);
	assert_true(has("a", "one"));
	assert_int_equal(change("a", "two"), 0);
	assert_true(has("a", "two"));
	fake_get_error = fake_read_error = 0;
	assert_int_equal(change("a", "three"), 0);
}

/* ---- Other stores that do not answer. ---- */

#define CHANGES 9u /* more than there are helpers for long calls */
static pthread_mutex_t others_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t others_answer = PTHREAD_COND_INITIALIZER;
static bool others_answered;
static _Atomic uint32_t others_asked, changes_ended;

static int others_told(void *arg, const char *number)
{
	(void)arg;
	(void)number;
	atomic_fetch_add(&others_asked, 1);
	pthread_mutex_lock(&others_lock);
	while (!others_answered)
		pthread_cond_wait(&others_answer, &others_lock);
	pthread_mutex_unlock(&others_lock);
	return 0;
}

static void others_answer_now(void)
{
	pthread_mutex_lock(&others_lock);
	others_answered = true;
	pthread_cond_broadcast(&others_answer);
	pthread_mutex_unlock(&others_lock);
}

static int open_sharing(void **state)
{
	const struct s3_names names = {.account_changed = others_told};

	(void)state;
	return fake_open_with(&(struct s3_opts){.names = &names});
}

static void change_one(void *arg)
{
	assert_int_equal(change((const char *)arg, "name"), 0);
	atomic_fetch_add(&changes_ended, 1);
}

static void long_call(void *arg)
{
	(void)arg;
}

static void long_fiber(void *arg)
{
	fiber_offload_long(long_call, NULL);
	*(bool *)arg = true;
}

/* Changes that wait for other stores leave helpers to the others who need them. */
static void test_changes_leave_helpers(void **state)
{
	static char numbers[CHANGES][4];
	bool served = false;

	(void)state;
	for (uint32_t i = 0; i < CHANGES; i++) {
		snprintf(numbers[i], sizeof(numbers[i]), "t%u", i);
		assert_int_equal(fiber_spawn(reactor_self(), "change", change_one, numbers[i]), 0);
	}
	for (uint32_t i = 0; i < CHANGES; i++)
		while (!has(numbers[i], "name"))
			fiber_yield();
	assert_int_equal(fiber_spawn(reactor_self(), "long call", long_fiber, &served), 0);
	while (!served && atomic_load(&others_asked) <= 2)
		fiber_yield();
	assert_true(atomic_load(&others_asked) <= 2);
	others_answer_now();
	while (atomic_load(&changes_ended) < CHANGES)
		fiber_yield();
	assert_true(served);
	assert_int_equal(atomic_load(&others_asked), CHANGES);
}

static void change_guarded(void *arg)
{
	static char name[] = "name";
	const struct iam_edit edit = {.account = SLICE("g"),
		.create = true,
		.change = set_name,
		.arg = name,
		.guard = arg};

	assert_int_equal(iam_change(fake_s3->iam, &fake_core, &edit), 0);
	atomic_fetch_add(&changes_ended, 1);
}

static void delete_guarded(void *arg)
{
	const struct iam_edit edit = {.account = SLICE("g"), .guard = arg};

	assert_int_equal(iam_delete(fake_s3->iam, &edit), 0);
	atomic_fetch_add(&changes_ended, 1);
}

static bool guard_passed;

static void pass_guard(void *arg)
{
	fiber_mutex_lock(arg);
	guard_passed = true;
	fiber_mutex_unlock(arg);
}

/* A change that waits for other stores holds nobody up who needs what it looked at. */
static void test_a_guard_ends_with_the_commit(void **state)
{
	static fiber_fn *const CHANGES_GUARDED[] = {change_guarded, delete_guarded};
	struct fiber_mutex guard;

	(void)state;
	fiber_mutex_init(&guard);
	for (uint32_t i = 0; i < ARRAY_LEN(CHANGES_GUARDED); i++) {
		others_answered = guard_passed = false;
		others_asked = changes_ended = 0;
		assert_int_equal(
			fiber_spawn(reactor_self(), "change", CHANGES_GUARDED[i], &guard), 0);
		while (atomic_load(&others_asked) == 0)
			fiber_yield();
		assert_int_equal(fiber_spawn(reactor_self(), "waiter", pass_guard, &guard), 0);
		for (int turn = 0; turn < 100 && !guard_passed; turn++)
			fiber_yield();
		assert_true(guard_passed);
		others_answer_now();
		while (atomic_load(&changes_ended) == 0)
			fiber_yield();
	}
	fiber_mutex_destroy(&guard);
	others_answered = false;
	others_asked = changes_ended = 0;
}

/* ---- A second change, begun when the first one is stored and not yet in the table. ---- */

static int second_result;
static bool second_done;
static fiber_fn *second;

static int set_email(json_t *account, void *arg)
{
	return json_member_set_text(account, "email", slice_str(arg));
}

static int change_email(const char *number, char *email)
{
	const struct iam_edit edit = {
		.account = slice_str(number), .create = true, .change = set_email, .arg = email};

	return iam_change(fake_s3->iam, &fake_core, &edit);
}

static void take_email(void *arg)
{
	(void)arg;
	second_result = change_email("b", "One@example.com");
	second_done = true;
}

static void delete_first(void *arg)
{
	(void)arg;
	second_result = iam_delete(fake_s3->iam, &(struct iam_edit){.account = SLICE("a")});
	second_done = true;
}

/* Lets the second change go as far as it can beside the first. */
static void begin_second(void)
{
	fake_put_committed = NULL;
	assert_int_equal(fiber_spawn(reactor_self(), "second change", second, NULL), 0);
	for (int i = 0; i < 100 && !second_done; i++)
		fiber_yield();
}

static int first_and_second(fiber_fn *fn)
{
	int ret;

	second = fn;
	second_done = false;
	fake_put_committed = begin_second;
	ret = change_email("a", "one@example.com");
	while (!second_done)
		fiber_yield();
	return ret;
}

static void test_one_email_has_one_account(void **state)
{
	struct iam_owner owner;

	(void)state;
	assert_int_equal(change("a", "one"), 0);
	assert_int_equal(first_and_second(take_email), 0);
	assert_int_equal(second_result, -EEXIST);
	assert_int_equal(iam_owner_by_email(fake_s3->iam, SLICE("one@example.com"), &owner), 0);
	assert_string_equal(owner.account, "a");
}

/* An account that is changed and deleted at once does not come back. */
static void test_a_deleted_account_stays_deleted(void **state)
{
	struct document document;
	struct mem_arena arena;

	(void)state;
	mem_arena_init(&arena);
	assert_int_equal(change("a", "one"), 0);
	assert_int_equal(first_and_second(delete_first), 0);
	assert_int_equal(second_result, 0);
	assert_null(iam_account(fake_s3->iam, SLICE("a")));
	assert_int_equal(
		document_get(fake_store, &fake_core, SLICE("i/a/a"), &arena, &document), -ENOENT);
	mem_arena_free(&arena);
}

/* ---- Calls of a user about itself. ---- */

#define ALICE(policy)                                                                           \
	"{\"account_id\":\"a\",\"users\":[{\"name\":\"alice\",\"path\":\"/p/\",\"access_key\":" \
	"\"ALICEKEY\",\"secret_key\":\"secret-of-alice\",\"inline\":{\"own\":{\"Version\":"     \
	"\"2012-10-17\",\"Statement\":[" policy "]}}}]}"
#define STATEMENT(effect, action, resource) \
	"{\"Effect\":\"" effect "\",\"Action\":\"" action "\",\"Resource\":\"" resource "\"}"

static void account_made(const char *description)
{
	json_t *in = json_loads(description, 0, NULL);
	struct buf why;

	assert_non_null(in);
	buf_init(&why, 1024);
	assert_int_equal(iam_put(fake_s3->iam, &fake_core, in, &why), 0);
	buf_free(&why);
	json_decref(in);
}

/* The status of the call as alice; 0: its answer has not the text. */
static uint32_t as_alice(const char *form, const char *text)
{
	struct s3_identity alice;
	struct fake_call call;
	uint8_t key[32];
	uint32_t status;

	assert_int_equal(s3_session_key(fake_s3, SLICE("ALICEKEY"), SLICE("test"), key, &alice), 0);
	fake_call_init(&call, "POST", "/", "");
	call.request.session = &alice;
	fake_call_body(&call, slice_str(form));
	fake_call_run(fake_s3, &call);
	status = fake_reply_has(&call, text) ? call.reply.status : 0;
	fake_call_free(&call);
	return status;
}

static void make_key(void *arg)
{
	(void)arg;
	second_result = (int)as_alice("Action=CreateAccessKey", "InvalidClientTokenId");
	second_done = true;
}

/* Alice asks for a key while the change is stored. */
static void key_during(iam_change_fn *other)
{
	const struct iam_edit edit = {.account = SLICE("a"), .change = other};
	json_t *account;

	account_made(ALICE(STATEMENT("Allow", "iam:*", "*")));
	second = make_key;
	second_done = false;
	fake_put_committed = begin_second;
	assert_int_equal(iam_change(fake_s3->iam, &fake_core, &edit), 0);
	while (!second_done)
		fiber_yield();
	assert_int_equal(second_result, 403);
	account = iam_account(fake_s3->iam, SLICE("a"));
	assert_int_equal(json_array_size(json_object_get(account, "keys")), 0);
	assert_int_equal(json_array_size(json_object_get(
				 iam_entity(account, "users", SLICE("alice")), "keys")),
		0);
	iam_account_put(account);
}

static int forget_alice(json_t *account, void *arg)
{
	(void)arg;
	return json_object_del(json_object_get(account, "users"), "alice");
}

/* The account's root is not the heir of its users. */
static void test_a_deleted_user_makes_no_key(void **state)
{
	(void)state;
	key_during(forget_alice);
}

static int other_alice(json_t *account, void *arg)
{
	json_t *user =
		json_pack("{s:s, s:s, s:s}", "name", "alice", "user_id", "AIDA2", "path", "/");

	(void)arg;
	return json_object_set_new(json_object_get(account, "users"), "alice", user);
}

static void test_a_user_makes_no_key_of_another_of_its_name(void **state)
{
	(void)state;
	key_during(other_alice);
}

/* A call that names no user is judged as if it named the caller. */
static void test_rights_to_oneself(void **state)
{
	static const char *const forms[] = {"Action=CreateAccessKey", "Action=ListAccessKeys",
		"Action=GetUser", "Action=UpdateAccessKey&AccessKeyId=ALICEKEY&Status=Active",
		"Action=DeleteAccessKey&AccessKeyId=ALICEKEY"};

	(void)state;
	account_made(ALICE(STATEMENT("Allow", "iam:*", "*") "," STATEMENT(
		"Deny", "iam:*", "arn:aws:iam::a:user/p/alice")));
	for (size_t i = 0; i < ARRAY_LEN(forms); i++)
		assert_int_equal(as_alice(forms[i], "AccessDenied"), 403);
	assert_int_equal(as_alice("Action=ListUsers", "<UserName>alice</UserName>"), 200);
	account_made(ALICE(STATEMENT("Allow", "iam:*", "arn:aws:iam::*:user/p/${aws:username}")));
	for (size_t i = 0; i < ARRAY_LEN(forms); i++)
		assert_int_equal(as_alice(forms[i], "Response"), 200);
}

/* ---- Sessions of a role. ---- */

static int make_role(json_t *account, void *arg)
{
	json_t *role = json_pack("{s:s, s:s}", "name", "guest", "role_id", arg);

	return json_object_set_new(json_member_object(account, "roles"), "guest", role);
}

/* A session with that id of a role, from its token: 0 if the account as it is has this role. */
static int enter(const char *role_id)
{
	const struct iam_token made = {.secret = SLICE("secret"),
		.session = {.account = SLICE("a"),
			.role = SLICE("guest"),
			.role_id = slice_str(role_id),
			.name = SLICE("visit")}};
	struct iam_principal *principal = NULL;
	struct iam_token opened;
	struct mem_arena arena;
	struct buf text;
	int ret;

	mem_arena_init(&arena);
	buf_init(&text, IAM_TOKEN_LEN_MAX);
	assert_int_equal(iam_token_make(fake_s3->iam, &made, &text), 0);
	assert_int_equal(iam_token_open(fake_s3->iam, buf_slice(&text), &arena, &opened), 0);
	ret = iam_principal_of_session(fake_s3->iam, &opened.session, &principal);
	iam_principal_put(principal);
	buf_free(&text);
	mem_arena_free(&arena);
	return ret;
}

static void test_a_session_belongs_to_its_role_alone(void **state)
{
	static char first[] = "AROA1", second_id[] = "AROA2";
	struct iam_edit edit = {
		.account = SLICE("a"), .create = true, .change = make_role, .arg = first};

	(void)state;
	assert_int_equal(iam_change(fake_s3->iam, &fake_core, &edit), 0);
	assert_int_equal(enter("AROA1"), 0);
	assert_int_equal(enter(""), -ENOENT);
	edit.arg = second_id;
	assert_int_equal(iam_change(fake_s3->iam, &fake_core, &edit), 0);
	assert_int_equal(enter("AROA1"), -ENOENT);
	assert_int_equal(enter("AROA2"), 0);
}

/* ---- Accounts that own buckets. ---- */

static struct s3_identity owner;

static void make_owner(void)
{
	json_t *account = json_pack("{s:s, s:s, s:s, s:s}", "account_id", "777", "id", "owner",
		"access_key", "OWNERKEY", "secret_key", "the-secret");
	uint8_t key[32];
	struct buf why;

	buf_init(&why, KIB);
	assert_int_equal(iam_put(fake_s3->iam, &fake_core, account, &why), 0);
	buf_free(&why);
	json_decref(account);
	assert_int_equal(
		s3_session_key(fake_s3, SLICE("OWNERKEY"), SLICE("context"), key, &owner), 0);
}

/* Of the server's root. */
static uint32_t admin(const char *method, const char *path, const char *text)
{
	struct admin_answer answer = {0};
	struct fake_call asked;
	struct s3_call call = {.magic = S3_CALL_MAGIC,
		.s3 = fake_s3,
		.request = &asked.request,
		.reply = &asked.reply,
		.operation = s3_operation_at(S3_OPERATION_SERVICE),
		.identity = &fake_root};
	char *told;

	fake_call_init(&asked, method, path, "");
	mem_arena_init(&call.arena);
	s3_admin_run(&call, &answer);
	told = answer.json ? json_dumps(answer.json, JSON_COMPACT) : strdup(answer.why);
	if (!strstr(told, text))
		fail_msg("%s: %u %s", path, answer.status, told);
	free(told);
	json_decref(answer.json);
	mem_arena_free(&call.arena);
	fake_call_free(&asked);
	return answer.status;
}

/* The account's. */
static uint32_t make_bucket(const char *path, void (*awaited)(void))
{
	struct fake_call call;
	uint32_t status;

	fake_call_init(&call, "PUT", path, "");
	call.request.session = &owner;
	call.awaited = awaited;
	fake_call_body(&call, SLICE("<CreateBucketConfiguration/>"));
	fake_call_run(fake_s3, &call);
	status = call.reply.status;
	fake_call_free(&call);
	return status;
}

static void test_an_owner_of_buckets_stays(void **state)
{
	static const char *const names[] = {"plain", "base--zone--x-s3"};
	struct store_bucket bucket = {.owner = "owner"};

	(void)state;
	make_owner();
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		slice_copy_str(slice_str(names[i]), bucket.name, sizeof(bucket.name));
		assert_int_equal(store_bucket_create(fake_store, &bucket), 0);
		assert_int_equal(admin("DELETE", "/admin/v1/accounts/777", "owns buckets"), 409);
		assert_int_equal(admin("GET", "/admin/v1/buckets", names[i]), 200);
		assert_int_equal(store_bucket_delete(fake_store, slice_str(names[i]), 0), 0);
	}
	/* Not the server's own buckets. */
	slice_copy_str(SLICE(".hidden"), bucket.name, sizeof(bucket.name));
	assert_int_equal(store_bucket_create(fake_store, &bucket), 0);
	assert_int_equal(admin("DELETE", "/admin/v1/accounts/777", ""), 204);
}

/* By the account's root, by IAM. As as_alice. */
static uint32_t delete_user(const char *text)
{
	struct fake_call call;
	uint32_t status;

	fake_call_init(&call, "POST", "/", "");
	call.request.session = &owner;
	fake_call_body(&call, SLICE("Action=DeleteUser&UserName=ann"));
	fake_call_run(fake_s3, &call);
	status = fake_reply_has(&call, text) ? call.reply.status : 0;
	fake_call_free(&call);
	return status;
}

/* Users whose own canonical id owns buckets, by both ways to delete them. */
static void test_a_user_that_owns_buckets_stays(void **state)
{
	json_t *account = json_pack("{s:s, s:s, s:[{s:s, s:s}]}", "account_id", "777", "id",
		"owner", "users", "name", "ann", "id", "ann-herself");
	struct store_bucket bucket = {.name = "anns", .owner = "ann-herself"};
	struct buf why;

	(void)state;
	make_owner();
	for (int way = 0; way < 2; way++) {
		buf_init(&why, KIB);
		assert_int_equal(iam_put(fake_s3->iam, &fake_core, account, &why), 0);
		buf_free(&why);
		assert_int_equal(store_bucket_create(fake_store, &bucket), 0);
		if (way)
			assert_int_equal(delete_user("DeleteConflict"), 409);
		else
			assert_int_equal(admin("DELETE", "/admin/v1/accounts/777/users/ann",
						 "user owns buckets"),
				409);
		assert_int_equal(store_bucket_delete(fake_store, SLICE("anns"), 0), 0);
		if (way)
			assert_int_equal(delete_user("DeleteUserResponse"), 200);
		else
			assert_int_equal(
				admin("DELETE", "/admin/v1/accounts/777/users/ann", ""), 204);
	}
	json_decref(account);
}

#define DOCUMENT                                                                \
	"{\"Version\": \"2012-10-17\", \"Statement\": [{\"Effect\": \"Allow\"," \
	" \"Action\": \"*\", \"Resource\": \"*\"}]}"
#define HOLDING                                                                               \
	"{\"account_id\": \"777\", \"policies\": [{\"name\": \"own\", \"document\":" DOCUMENT \
	"}], \"groups\": [{\"name\": \"Editors\", \"policies\":"                              \
	" [\"arn:aws:iam::777:policy/own\"]}],"                                               \
	" \"users\": [{\"name\": \"ann\", \"groups\": [\"Editors\"]}]}"
#define FREE_OF                                                                              \
	"{\"account_id\": \"777\", \"groups\": [{\"name\": \"Editors\", \"policies\": []}]," \
	" \"users\": [{\"name\": \"ann\", \"groups\": []}]}"

/* A later group or policy of the name would give its rights to those who had the first one's. */
static void test_what_is_held_stays(void **state)
{
	static const char *const PATHS[] = {
		"/admin/v1/accounts/777/groups/Editors", "/admin/v1/accounts/777/policies/own"};
	static const char *const HELD[] = {
		"the user ann is a member", "the group Editors has the policy"};
	json_t *held = json_loads(HOLDING, 0, NULL), *free_of = json_loads(FREE_OF, 0, NULL);
	struct buf why;

	(void)state;
	make_owner();
	buf_init(&why, KIB);
	assert_int_equal(iam_put(fake_s3->iam, &fake_core, held, &why), 0);
	for (size_t i = 0; i < ARRAY_LEN(PATHS); i++)
		assert_int_equal(admin("DELETE", PATHS[i], HELD[i]), 409);
	assert_int_equal(iam_put(fake_s3->iam, &fake_core, free_of, &why), 0);
	for (size_t i = 0; i < ARRAY_LEN(PATHS); i++)
		assert_int_equal(admin("DELETE", PATHS[i], ""), 204);
	buf_free(&why);
	json_decref(held);
	json_decref(free_of);
}

static void delete_owner(void)
{
	assert_int_equal(admin("DELETE", "/admin/v1/accounts/777", ""), 204);
}

static void test_a_deleted_owner_gets_no_bucket(void **state)
{
	struct store_bucket bucket;

	(void)state;
	make_owner();
	assert_int_equal(make_bucket("/before", NULL), 200);
	assert_int_equal(store_bucket_delete(fake_store, SLICE("before"), 0), 0);
	assert_int_equal(make_bucket("/late", delete_owner), 403);
	assert_int_equal(store_bucket_get(fake_store, SLICE("late"), &bucket), -ENOENT);
}

static void ask_deletion(void *arg)
{
	(void)arg;
	second_result = (int)admin("DELETE", "/admin/v1/accounts/777", "");
	second_done = true;
}

static void begin_deletion(void)
{
	fake_bucket_making = NULL;
	assert_int_equal(fiber_spawn(reactor_self(), "deletion", ask_deletion, NULL), 0);
	for (int i = 0; i < 100 && !second_done; i++)
		fiber_yield();
}

/* The deletion begins when the bucket is as good as made. */
static void test_an_owner_to_be_stays(void **state)
{
	(void)state;
	make_owner();
	second_done = false;
	fake_bucket_making = begin_deletion;
	assert_int_equal(make_bucket("/made", NULL), 200);
	while (!second_done)
		fiber_yield();
	assert_int_equal(second_result, 409);
}

static int tests_run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			test_an_account_too_many_is_not_stored, fake_open, fake_close),
		cmocka_unit_test_setup_teardown(
			test_a_start_passes_over_an_account_too_many, fake_open, fake_close),
		cmocka_unit_test_setup_teardown(
			test_a_change_reads_nothing_back, fake_open, fake_close),
		cmocka_unit_test_setup_teardown(
			test_a_guard_ends_with_the_commit, open_sharing, fake_close),
		cmocka_unit_test_setup_teardown(
			test_changes_leave_helpers, open_sharing, fake_close),
		cmocka_unit_test_setup_teardown(
			test_one_email_has_one_account, fake_open, fake_close),
		cmocka_unit_test_setup_teardown(
			test_a_deleted_account_stays_deleted, fake_open, fake_close),
		cmocka_unit_test_setup_teardown(
			test_a_deleted_user_makes_no_key, fake_open, fake_close),
		cmocka_unit_test_setup_teardown(
			test_a_user_makes_no_key_of_another_of_its_name, fake_open, fake_close),
		cmocka_unit_test_setup_teardown(test_rights_to_oneself, fake_open, fake_close),
		cmocka_unit_test_setup_teardown(
			test_a_session_belongs_to_its_role_alone, fake_open, fake_close),
		cmocka_unit_test_setup_teardown(
			test_an_owner_of_buckets_stays, fake_open, fake_close),
		cmocka_unit_test_setup_teardown(
			test_a_user_that_owns_buckets_stays, fake_open, fake_close),
		cmocka_unit_test_setup_teardown(test_what_is_held_stays, fake_open, fake_close),
		cmocka_unit_test_setup_teardown(
			test_a_deleted_owner_gets_no_bucket, fake_open, fake_close),
		cmocka_unit_test_setup_teardown(test_an_owner_to_be_stays, fake_open, fake_close),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
	return fake_main(tests_run);
}
