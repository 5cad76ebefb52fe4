/* iam/iam.c: the table of identities: loaded at start, looked up by every request, replaced account
 * by account. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "iam/iam_priv.h"

#if !JSON_HAVE_ATOMIC_BUILTINS && !JSON_HAVE_SYNC_BUILTINS
#error "jansson counts references plainly here, and several threads count those of an account"
#endif

#define NAME_PREFIX "i/a/"

static uint64_t secret_mark(const struct iam *iam, struct slice secret)
{
	uint64_t mark;
	int err = hkdf_sha256(secret, slice_of((const char *)iam->key, sizeof(iam->key)),
		SLICE("nebulaio secret mark"), &mark, sizeof(mark));

	CHECK(!err);
	return mark;
}

uint64_t iam_root_mark(const struct iam *iam)
{
	return iam->root_mark;
}

int iam_open(const struct iam_opts *opts, struct iam **ret_iam)
{
	struct iam *iam = calloc(1, sizeof(*iam));
	int err = 0;

	if (!iam)
		return -ENOMEM;
	pthread_rwlock_init(&iam->lock, NULL);
	fiber_mutex_init(&iam->changes);
	for (uint32_t i = 0; i < IAM_TELLS_MAX; i++)
		fiber_mutex_init(&iam->telling[i]);
	iam->store = opts->store;
	if (opts->share)
		iam->share = *opts->share;
	slice_copy_str(slice_str(opts->root_access_key), iam->root_access_key,
		sizeof(iam->root_access_key));
	if (opts->secrets_key)
		memcpy(iam->key, opts->secrets_key, sizeof(iam->key));
	else
		err = hkdf_sha256(slice_str(opts->root_secret_key), SLICE_NONE,
			SLICE("nebulaio secrets"), iam->key, sizeof(iam->key));
	CHECK(!err);
	iam->root_mark = secret_mark(iam, slice_str(opts->root_secret_key));
	*ret_iam = iam;
	return 0;
}

/* All table entries of one document, before they are in the table. */
struct entries {
	struct iam_credential *credentials;
	struct iam_name *names;
};

void iam_credential_put(struct iam_credential *credential)
{
	if (!credential ||
		atomic_fetch_sub_explicit(&credential->references, 1, memory_order_acq_rel) > 1)
		return;
	iam_principal_put(credential->principal);
	secret_wipe(credential, sizeof(*credential));
	free(credential);
}

static void entries_free(struct entries *entries)
{
	while (entries->credentials) {
		struct iam_credential *credential = entries->credentials;

		entries->credentials = credential->next;
		iam_credential_put(credential);
	}
	while (entries->names) {
		struct iam_name *name = entries->names;

		entries->names = name->next;
		free(name);
	}
}

void iam_close(struct iam *iam)
{
	if (!iam)
		return;
	for (uint32_t i = 0; i < iam->account_count; i++)
		json_decref(iam->accounts[i].doc);
	for (uint32_t i = 0; i < IAM_SLOTS; i++) {
		struct entries entries = {iam->credentials[i], iam->names[i]};

		entries_free(&entries);
	}
	fiber_mutex_destroy(&iam->changes);
	for (uint32_t i = 0; i < IAM_TELLS_MAX; i++)
		fiber_mutex_destroy(&iam->telling[i]);
	pthread_rwlock_destroy(&iam->lock);
	secret_wipe(iam, sizeof(*iam));
	free(iam);
}

/* ---- Entries. ---- */

static uint32_t key_slot(struct slice access_key)
{
	return crc32c_update(0, access_key.data, access_key.len) % IAM_SLOTS;
}

static uint32_t name_slot(enum iam_name_kind kind, struct slice text)
{
	return crc32c_update((uint32_t)kind + 1, text.data, text.len) % IAM_SLOTS;
}

static int credential_make(struct iam *iam, const json_t *key, struct iam_principal *principal,
	struct entries *entries)
{
	struct iam_credential *credential = calloc(1, sizeof(*credential));
	struct slice access_key = json_member_text(key, "access_key");
	struct buf secret;
	int ret;

	if (!credential)
		return -ENOMEM;
	credential->references = 1;
	credential->active = json_is_true(json_object_get(key, "active"));
	credential->principal = principal;
	atomic_fetch_add_explicit(&principal->references, 1, memory_order_relaxed);
	credential->next = entries->credentials;
	entries->credentials = credential;
	ret = slice_copy_str(access_key, credential->access_key, sizeof(credential->access_key));
	if (ret)
		return ret;
	buf_init(&secret, LIMIT_SECRET_KEY_LEN_MAX);
	ret = iam_unseal(iam, access_key, json_member_text(key, "sealed"), &secret);
	if (ret == -EBADMSG) {
		log_error("iam",
			"the secret of access key %.*s was encrypted with another key than the "
			"server has now: the access key is refused",
			SLICE_FMT(access_key));
		credential->active = false;
		ret = 0;
	} else if (!ret) {
		ret = slice_copy_str(
			buf_slice(&secret), credential->secret, sizeof(credential->secret));
		credential->secret_mark = secret_mark(iam, buf_slice(&secret));
	}
	if (secret.data)
		secret_wipe(secret.data, secret.len);
	buf_free(&secret);
	return ret;
}

static int name_make(enum iam_name_kind kind, struct slice text, const struct iam_owner *owner,
	struct entries *entries)
{
	struct iam_name *name;

	if (!text.len)
		return 0;
	name = calloc(1, sizeof(*name));
	if (!name)
		return -ENOMEM;
	name->kind = kind;
	name->owner = *owner;
	name->next = entries->names;
	entries->names = name;
	if (slice_copy_str(text, name->text, sizeof(name->text)))
		return -EINVAL;
	if (kind == IAM_EMAIL)
		for (char *at = name->text; *at; at++)
			*at = (char)tolower((unsigned char)*at);
	return 0;
}

/* Makes the entries of an account's root or of a user: names and keys. */
static int identity_make(
	struct iam *iam, const json_t *doc, const json_t *user, struct entries *entries)
{
	const json_t *who = user ? user : doc, *keys = json_object_get(who, "keys");
	struct iam_principal *principal;
	struct iam_owner named;
	int ret = iam_principal_of_user(doc, user, &principal);

	if (ret)
		return ret;
	named = principal->owner;
	if (principal->own) {
		ret = name_make(IAM_OWNER_ID, principal->who.owner, &named, entries);
		if (!ret)
			ret = name_make(IAM_EMAIL, json_member_text(who, "email"), &named, entries);
	}
	if (!ret && !user)
		ret = name_make(IAM_ACCOUNT, principal->who.account, &named, entries);
	if (!ret && user) {
		slice_copy_str(json_member_text(user, "name"), named.name, sizeof(named.name));
		ret = name_make(IAM_USER_ID, principal->who.user_id, &named, entries);
	}
	for (size_t i = 0; !ret && i < json_array_size(keys); i++)
		ret = credential_make(iam, json_array_get(keys, i), principal, entries);
	iam_principal_put(principal);
	return ret;
}

static int entries_make(struct iam *iam, const json_t *doc, struct entries *ret_entries)
{
	struct entries entries = {NULL, NULL};
	const json_t *user;
	const char *name;
	int ret = identity_make(iam, doc, NULL, &entries);

	json_object_foreach(json_object_get(doc, "users"), name, user)
	{
		if (ret)
			break;
		ret = identity_make(iam, doc, user, &entries);
	}
	if (ret)
		entries_free(&entries);
	else
		*ret_entries = entries;
	return ret;
}

/* ---- Look-up. ---- */

struct iam_credential *iam_credential(struct iam *iam, struct slice access_key)
{
	struct iam_credential *at;

	pthread_rwlock_rdlock(&iam->lock);
	for (at = iam->credentials[key_slot(access_key)]; at; at = at->next)
		if (slice_eq(slice_str(at->access_key), access_key))
			break;
	if (at)
		atomic_fetch_add_explicit(&at->references, 1, memory_order_relaxed);
	pthread_rwlock_unlock(&iam->lock);
	return at;
}

static struct iam_name *find_name(const struct iam *iam, enum iam_name_kind kind, struct slice text)
{
	struct iam_name *at;

	for (at = iam->names[name_slot(kind, text)]; at; at = at->next)
		if (at->kind == kind && slice_eq(slice_str(at->text), text))
			return at;
	return NULL;
}

static int owner_of(
	struct iam *iam, enum iam_name_kind kind, struct slice text, struct iam_owner *ret_owner)
{
	const struct iam_name *found;

	pthread_rwlock_rdlock(&iam->lock);
	found = find_name(iam, kind, text);
	if (found)
		*ret_owner = found->owner;
	pthread_rwlock_unlock(&iam->lock);
	return found ? 0 : -ENOENT;
}

int iam_owner(struct iam *iam, struct slice id, struct iam_owner *ret_owner)
{
	if (!slice_eq(id, SLICE(IAM_ROOT_OWNER_ID)))
		return owner_of(iam, IAM_OWNER_ID, id, ret_owner);
	*ret_owner =
		(struct iam_owner){.name = IAM_ROOT_OWNER_NAME, .account = IAM_ACCOUNT_OF_ROOT};
	memcpy(ret_owner->id, IAM_ROOT_OWNER_ID, sizeof(ret_owner->id));
	return 0;
}

void iam_owner_or_id(struct iam *iam, struct slice id, struct iam_owner *ret_owner)
{
	if (iam_owner(iam, id, ret_owner) == 0)
		return;
	*ret_owner = (struct iam_owner){.name = ""};
	slice_copy_str(slice_to(id, IAM_OWNER_LEN_MAX), ret_owner->id, sizeof(ret_owner->id));
}

int iam_owner_by_account(struct iam *iam, struct slice number, struct iam_owner *ret_owner)
{
	if (slice_eq(number, SLICE(IAM_ACCOUNT_OF_ROOT)))
		return iam_owner(iam, SLICE(IAM_ROOT_OWNER_ID), ret_owner);
	return owner_of(iam, IAM_ACCOUNT, number, ret_owner);
}

int iam_owner_by_email(struct iam *iam, struct slice email, struct iam_owner *ret_owner)
{
	char lower[sizeof(((struct iam_name *)NULL)->text)];

	if (!email.len || slice_copy_str(email, lower, sizeof(lower)))
		return -ENOENT;
	for (char *at = lower; *at; at++)
		*at = (char)tolower((unsigned char)*at);
	return owner_of(iam, IAM_EMAIL, slice_str(lower), ret_owner);
}

int iam_owner_by_user(struct iam *iam, struct slice user_id, struct iam_owner *ret_owner)
{
	return owner_of(iam, IAM_USER_ID, user_id, ret_owner);
}

/* ---- Accounts. ---- */

/* The first account whose number is not less; *ret_found: it is that one. */
static uint32_t find_account(const struct iam *iam, struct slice number, bool *ret_found)
{
	uint32_t low = 0, high = iam->account_count;

	while (low < high) {
		uint32_t mid = (low + high) / 2;

		if (slice_cmp(slice_str(iam->accounts[mid].number), number) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	*ret_found =
		low < iam->account_count && slice_eq(slice_str(iam->accounts[low].number), number);
	return low;
}

json_t *iam_account(struct iam *iam, struct slice number)
{
	json_t *doc = NULL;
	uint32_t idx;
	bool found;

	pthread_rwlock_rdlock(&iam->lock);
	idx = find_account(iam, number, &found);
	if (found)
		doc = json_incref(iam->accounts[idx].doc);
	pthread_rwlock_unlock(&iam->lock);
	return doc;
}

/* Like json_decref, but with acquire: json_decref only releases, and on a machine with weak memory
 * order the thread that frees the document must see all that other threads did with it. */
void iam_account_put(json_t *account)
{
	if (account && __atomic_sub_fetch(&account->refcount, 1, __ATOMIC_ACQ_REL) == 0)
		json_delete(account);
}

void iam_visit(struct iam *iam, iam_visit_fn *visit, void *arg)
{
	char number[IAM_ACCOUNT_LEN_MAX + 1] = "";
	bool found = true;

	while (found) {
		json_t *doc = NULL;
		uint32_t idx;
		bool same;

		pthread_rwlock_rdlock(&iam->lock);
		idx = find_account(iam, slice_str(number), &same);
		idx += same ? 1 : 0;
		found = idx < iam->account_count;
		if (found) {
			memcpy(number, iam->accounts[idx].number, sizeof(number));
			doc = json_incref(iam->accounts[idx].doc);
		}
		pthread_rwlock_unlock(&iam->lock);
		if (doc)
			visit(doc, arg);
		iam_account_put(doc);
	}
}

/* Moves all entries of an account from the table to entries. Under the lock. */
static void entries_take(struct iam *iam, struct slice number, struct entries *entries)
{
	for (uint32_t i = 0; i < IAM_SLOTS; i++) {
		for (struct iam_credential **at = &iam->credentials[i]; *at;) {
			struct iam_credential *one = *at;

			if (!slice_eq(one->principal->who.account, number)) {
				at = &one->next;
				continue;
			}
			*at = one->next;
			one->next = entries->credentials;
			entries->credentials = one;
		}
		for (struct iam_name **at = &iam->names[i]; *at;) {
			struct iam_name *one = *at;

			if (!slice_eq(slice_str(one->owner.account), number)) {
				at = &one->next;
				continue;
			}
			*at = one->next;
			one->next = entries->names;
			entries->names = one;
		}
	}
}

static void entries_put(struct iam *iam, struct entries *entries)
{
	while (entries->credentials) {
		struct iam_credential *one = entries->credentials;
		struct iam_credential **slot =
			&iam->credentials[key_slot(slice_str(one->access_key))];

		entries->credentials = one->next;
		one->next = *slot;
		*slot = one;
	}
	while (entries->names) {
		struct iam_name *one = entries->names;
		struct iam_name **slot = &iam->names[name_slot(one->kind, slice_str(one->text))];

		entries->names = one->next;
		one->next = *slot;
		*slot = one;
	}
}

/* Whether another account has an entry of the same name, or one comes twice. Under the lock. */
static bool entries_clash(const struct iam *iam, struct slice number, const struct entries *entries)
{
	for (const struct iam_credential *one = entries->credentials; one; one = one->next) {
		struct slice key = slice_str(one->access_key);

		if (slice_eq(key, slice_str(iam->root_access_key)))
			return true;
		for (const struct iam_credential *at = iam->credentials[key_slot(key)]; at;
			at = at->next)
			if (slice_eq(slice_str(at->access_key), key) &&
				!slice_eq(at->principal->who.account, number))
				return true;
		for (const struct iam_credential *at = one->next; at; at = at->next)
			if (slice_eq(slice_str(at->access_key), key))
				return true;
	}
	for (const struct iam_name *one = entries->names; one; one = one->next) {
		const struct iam_name *at = find_name(iam, one->kind, slice_str(one->text));

		if (at && !slice_eq(slice_str(at->owner.account), number))
			return true;
		if (one->kind == IAM_OWNER_ID && strcmp(one->text, IAM_ROOT_OWNER_ID) == 0 &&
			!slice_eq(number, SLICE(IAM_ACCOUNT_OF_ROOT)))
			return true;
		for (at = one->next; at; at = at->next)
			if (at->kind == one->kind && strcmp(at->text, one->text) == 0)
				return true;
	}
	return false;
}

/* Whether a change may be stored: the table must be able to take it afterwards. That holds
 * until the change is installed, because one is made at a time. -EEXIST; -EUSERS: too many
 * accounts. */
static int may_install(struct iam *iam, struct slice number, const struct entries *entries)
{
	bool found;
	int ret = 0;

	pthread_rwlock_rdlock(&iam->lock);
	find_account(iam, number, &found);
	if (entries_clash(iam, number, entries))
		ret = -EEXIST;
	else if (!found && iam->account_count >= IAM_ACCOUNTS_MAX)
		ret = -EUSERS;
	pthread_rwlock_unlock(&iam->lock);
	return ret;
}

/* Replaces an account's document; takes doc and the entries. -EUSERS: too many accounts. */
static int install(struct iam *iam, json_t *doc, struct entries *entries)
{
	struct slice number = json_member_text(doc, "account_id");
	struct entries old = {NULL, NULL};
	json_t *old_doc = NULL;
	uint32_t idx;
	bool found;
	int ret = 0;

	pthread_rwlock_wrlock(&iam->lock);
	idx = find_account(iam, number, &found);
	if (!found && iam->account_count >= IAM_ACCOUNTS_MAX) {
		ret = -EUSERS;
	} else {
		struct iam_account *account = &iam->accounts[idx];

		if (found)
			old_doc = account->doc;
		else
			memmove(account + 1, account,
				(iam->account_count++ - idx) * sizeof(*account));
		slice_copy_str(number, account->number, sizeof(account->number));
		account->doc = json_incref(doc);
		entries_take(iam, number, &old);
		entries_put(iam, entries);
	}
	pthread_rwlock_unlock(&iam->lock);
	iam_account_put(old_doc);
	iam_account_put(doc);
	entries_free(&old);
	entries_free(entries);
	return ret;
}

/* ---- Changes. ---- */

static struct slice document_name(
	struct slice number, char ret_name[sizeof(NAME_PREFIX) + IAM_ACCOUNT_LEN_MAX])
{
	int len = snprintf(ret_name, sizeof(NAME_PREFIX) + IAM_ACCOUNT_LEN_MAX, NAME_PREFIX "%.*s",
		SLICE_FMT(number));

	return slice_of(ret_name, (size_t)len);
}

static int document_store(
	struct store *store, struct flow_core *core, struct slice number, json_t *doc)
{
	char name[sizeof(NAME_PREFIX) + IAM_ACCOUNT_LEN_MAX];
	char *text = json_dumps(doc, JSON_COMPACT);
	const struct document document = {.text = slice_str(text)};
	int ret;

	if (!text)
		return -ENOMEM;
	ret = document_put(store, core, document_name(number, name), &document, NULL);
	free(text);
	return ret;
}

struct told {
	const struct iam_share *share;
	char number[IAM_ACCOUNT_LEN_MAX + 1];
	int ret;
};

static void told_run(void *arg)
{
	struct told *told = arg;

	told->ret = told->share->changed(told->share->arg, told->number);
}

/* The change is not answered before all stores know it. */
static int tell(struct iam *iam, struct slice number)
{
	struct told told = {.share = &iam->share};
	struct fiber_mutex *turn;

	if (!iam->share.changed)
		return 0;
	slice_copy_str(number, told.number, sizeof(told.number));
	turn = &iam->telling[atomic_fetch_add(&iam->tells, 1) % IAM_TELLS_MAX];
	fiber_mutex_lock(turn);
	fiber_offload_long(told_run, &told);
	fiber_mutex_unlock(turn);
	return told.ret ? -EAGAIN : 0;
}

static int change_locked(struct iam *iam, struct flow_core *core, const struct iam_edit *edit)
{
	json_t *old = iam_account(iam, edit->account), *doc;
	struct entries entries;
	int ret;

	if (!old && !edit->create)
		return -ENOENT;
	doc = old ? json_deep_copy(old) : json_object();
	iam_account_put(old);
	ret = doc ? json_member_set_text(doc, "account_id", edit->account) : -ENOMEM;
	if (!ret)
		ret = edit->change(doc, edit->arg);
	if (!ret)
		ret = entries_make(iam, doc, &entries);
	if (ret) {
		json_decref(doc);
		return ret;
	}
	ret = may_install(iam, edit->account, &entries);
	if (!ret)
		ret = document_store(iam->store, core, edit->account, doc);
	if (!ret) {
		ret = install(iam, doc, &entries);
		store_rights_changed(iam->store);
		return ret;
	}
	entries_free(&entries);
	json_decref(doc);
	return ret;
}

static void changes_begin(struct iam *iam, const struct iam_edit *edit)
{
	if (edit->guard)
		fiber_mutex_lock(edit->guard);
	fiber_mutex_lock(&iam->changes);
}

static void changes_end(struct iam *iam, const struct iam_edit *edit)
{
	fiber_mutex_unlock(&iam->changes);
	if (edit->guard)
		fiber_mutex_unlock(edit->guard);
}

int iam_change(struct iam *iam, struct flow_core *core, const struct iam_edit *edit)
{
	int ret;

	if (!edit->account.len || edit->account.len > IAM_ACCOUNT_LEN_MAX)
		return -ENOENT;
	if (iam->share.follows)
		return -EAGAIN;
	changes_begin(iam, edit);
	ret = change_locked(iam, core, edit);
	changes_end(iam, edit);
	return ret ? ret : tell(iam, edit->account);
}

/* Forgets an account; not its document. */
static void drop(struct iam *iam, struct slice number)
{
	struct entries old = {NULL, NULL};
	json_t *doc = NULL;
	uint32_t idx;
	bool found;

	pthread_rwlock_wrlock(&iam->lock);
	idx = find_account(iam, number, &found);
	if (found) {
		doc = iam->accounts[idx].doc;
		iam->account_count--;
		memmove(&iam->accounts[idx], &iam->accounts[idx + 1],
			(iam->account_count - idx) * sizeof(iam->accounts[0]));
	}
	entries_take(iam, number, &old);
	pthread_rwlock_unlock(&iam->lock);
	iam_account_put(doc);
	entries_free(&old);
	store_rights_changed(iam->store);
}

int iam_delete(struct iam *iam, const struct iam_edit *edit)
{
	struct slice number = edit->account;
	char name[sizeof(NAME_PREFIX) + IAM_ACCOUNT_LEN_MAX];
	json_t *doc;
	int ret = -ENOENT;

	if (iam->share.follows)
		return -EAGAIN;
	changes_begin(iam, edit);
	doc = iam_account(iam, number);
	if (doc)
		ret = edit->change ? edit->change(doc, edit->arg) : 0;
	if (!ret)
		ret = document_delete(iam->store, document_name(number, name));
	iam_account_put(doc);
	if (!ret)
		drop(iam, number);
	changes_end(iam, edit);
	return ret ? ret : tell(iam, number);
}

/* ---- Of another store. ---- */

int iam_take(struct iam *iam, struct slice number, struct slice text)
{
	struct entries entries;
	json_t *doc = NULL;
	int ret;

	if (!text.data) {
		drop(iam, number);
		return 0;
	}
	if (json_is_flat(text, 16))
		doc = json_loadb(text.data, text.len, 0, NULL);
	if (!doc || !slice_eq(json_member_text(doc, "account_id"), number))
		ret = -EBADMSG;
	else
		ret = entries_make(iam, doc, &entries);
	if (ret) {
		json_decref(doc);
		return ret;
	}
	ret = install(iam, doc, &entries);
	store_rights_changed(iam->store);
	return ret;
}

/* ---- Loading. ---- */

struct load {
	struct iam *iam;
	struct flow_core *core;
	int error;
};

static int load_one(struct load *load, struct slice name)
{
	struct document document;
	struct entries entries;
	struct mem_arena arena;
	json_t *doc = NULL;
	int ret;

	mem_arena_init(&arena);
	ret = document_get(load->iam->store, load->core, name, &arena, &document);
	if (!ret && json_is_flat(document.text, 16))
		doc = json_loadb(document.text.data, document.text.len, 0, NULL);
	if (!ret && (!doc || !slice_eq(json_member_text(doc, "account_id"),
				     slice_from(name, strlen(NAME_PREFIX)))))
		ret = -EBADMSG;
	if (!ret)
		ret = entries_make(load->iam, doc, &entries);
	if (!ret)
		ret = install(load->iam, doc, &entries);
	else
		json_decref(doc);
	mem_arena_free(&arena);
	return ret;
}

static bool load_visit(struct slice name, void *arg)
{
	struct load *load = arg;

	load->error = load_one(load, name);
	if (load->error == -EUSERS) {
		log_error("iam",
			"the account %.*s is passed over, and its keys are refused: the server "
			"keeps at most %u accounts; delete others and start it again",
			SLICE_FMT(name), IAM_ACCOUNTS_MAX);
		load->error = 0;
	}
	if (load->error)
		log_error("iam", "the account %.*s cannot be read: %s", SLICE_FMT(name),
			strerror(-load->error));
	return load->error == 0;
}

int iam_start(struct iam *iam, struct flow_core *core, const char *accounts_json)
{
	struct load load = {.iam = iam, .core = core};
	int ret;

	if (iam->share.follows)
		return 0;
	ret = document_list(iam->store, SLICE(NAME_PREFIX), SLICE_NONE, load_visit, &load);

	if (!ret)
		ret = load.error;
	if (!ret && accounts_json)
		ret = iam_seed(iam, core, slice_str(accounts_json));
	return ret;
}
