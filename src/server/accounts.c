/* server/accounts.c: one thread in the process of each store. Store 0's makes up for copies that
 * could not be made; the others read the copies, and say until when they know them. */
#include "server/accounts.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/life.h"
#include "base/process.h"
#include "base/ticker.h"
#include "reactor/reactor.h"

#define LOOK_MS	     1000
#define ACCOUNTS_MAX 1000u
/* A silent watcher is forgotten after it: later than the end of what it knew, although librados
 * reports only each 5 s that it lives. */
#define WATCH_MORE_S 10u

struct known {
	char number[72];
	char version[160];
	bool seen; /* in the list that was read last */
};

struct accounts {
	bool follows;
	uint32_t lease_s;
	struct cluster *cluster;
	struct s3 *s3;
	struct ticker ticker;
	/* Of store 0. */
	pthread_mutex_t lock; /* one change of the copies at a time */
	_Atomic bool started, behind;
	/* Of the others. */
	struct life life;
	uint64_t generation;
	struct known *known;
	uint32_t known_count;
	int told; /* the last error that was logged */
};

/* On a thread of librados. */
static void told(void *arg, struct slice text)
{
	struct accounts *accounts = arg;

	(void)text;
	ticker_wake(&accounts->ticker);
}

int accounts_open(
	bool follows, uint32_t lease_s, struct cluster_opts *opts, struct accounts **ret_accounts)
{
	struct accounts *accounts = calloc(1, sizeof(*accounts));
	int ret;

	if (!accounts)
		return -ENOMEM;
	accounts->follows = follows;
	accounts->lease_s = lease_s;
	pthread_mutex_init(&accounts->lock, NULL);
	ret = ticker_open(&accounts->ticker);
	accounts->known = follows ? calloc(ACCOUNTS_MAX, sizeof(*accounts->known)) : NULL;
	if (follows && !accounts->known)
		ret = -ENOMEM;
	if (ret) {
		accounts_close(accounts);
		return ret;
	}
	if (follows) {
		opts->told = told;
		opts->told_arg = accounts;
		opts->acks = true;
		opts->watch_s = lease_s + WATCH_MORE_S;
	}
	*ret_accounts = accounts;
	return 0;
}

/* ---- Store 0. ---- */

/* Makes the copy of an account as it is now. */
static int copy(struct accounts *accounts, const char *number)
{
	struct buf text;
	int ret;

	buf_init(&text, CLUSTER_ACCOUNT_BYTES_MAX);
	ret = s3_account_text(accounts->s3, number, &text);
	if (ret == -ENOENT)
		ret = cluster_account_put(accounts->cluster, number, SLICE_NONE);
	else if (!ret)
		ret = cluster_account_put(accounts->cluster, number, buf_slice(&text));
	buf_free(&text);
	return ret;
}

int accounts_changed(struct accounts *accounts, const char *number)
{
	int ret;

	/* Until then nothing is answered, and accounts_start copies everything. */
	if (!atomic_load(&accounts->started))
		return 0;
	pthread_mutex_lock(&accounts->lock);
	ret = copy(accounts, number);
	pthread_mutex_unlock(&accounts->lock);
	if (!ret) {
		cluster_accounts_tell(accounts->cluster, accounts->lease_s);
		return 0;
	}
	log_error("server",
		"account %s: the change is kept, but cannot be told to the other stores yet: %s",
		number, strerror(-ret));
	atomic_store(&accounts->behind, true);
	return ret;
}

struct walk {
	struct accounts *accounts;
	int ret;
};

static void copy_visit(void *arg, const char *number)
{
	struct walk *walk = arg;

	if (!walk->ret)
		walk->ret = copy(walk->accounts, number);
}

/* Copies of accounts that have ended go. */
static void stray_visit(void *arg, const char *number, const char *version)
{
	(void)version;
	copy_visit(arg, number);
}

static int copy_all(struct accounts *accounts)
{
	struct walk walk = {.accounts = accounts};
	int ret;

	pthread_mutex_lock(&accounts->lock);
	/* From here on a former owner of the store makes no copy any more. */
	walk.ret = cluster_accounts_claim(accounts->cluster);
	s3_account_each(accounts->s3, copy_visit, &walk);
	ret = walk.ret ? 0 : cluster_accounts_list(accounts->cluster, stray_visit, &walk);
	pthread_mutex_unlock(&accounts->lock);
	ret = walk.ret ? walk.ret : ret;
	if (ret)
		log_error("server", "accounts cannot be copied into the cluster's map: %s",
			strerror(-ret));
	return ret;
}

static void mend(struct accounts *accounts)
{
	if (!atomic_exchange(&accounts->behind, false))
		return;
	if (copy_all(accounts))
		atomic_store(&accounts->behind, true);
	else
		cluster_accounts_tell(accounts->cluster, accounts->lease_s);
}

/* ---- The others. ---- */

static struct known *known_of(struct accounts *accounts, const char *number)
{
	for (uint32_t i = 0; i < accounts->known_count; i++)
		if (strcmp(accounts->known[i].number, number) == 0)
			return &accounts->known[i];
	return NULL;
}

static int take(struct accounts *accounts, const char *number, const char *version)
{
	struct buf text;
	int ret;

	buf_init(&text, CLUSTER_ACCOUNT_BYTES_MAX);
	ret = cluster_account_read(accounts->cluster, version, &text);
	if (!ret)
		ret = s3_account_take(accounts->s3, number, buf_slice(&text));
	buf_free(&text);
	/* The account as it was before is valid no more. */
	if (ret && ret != -ENOENT && ret != -ENOMEM)
		(void)s3_account_take(accounts->s3, number, SLICE_NONE);
	return ret;
}

static void seen_visit(void *arg, const char *number, const char *version)
{
	struct known *known = known_of(arg, number);

	(void)version;
	if (known)
		known->seen = true;
}

/* Accounts that have ended make room for new ones. */
static void unseen_drop(struct accounts *accounts)
{
	for (uint32_t i = accounts->known_count; i-- > 0;) {
		if (accounts->known[i].seen)
			continue;
		(void)s3_account_take(accounts->s3, accounts->known[i].number, SLICE_NONE);
		accounts->known[i] = accounts->known[--accounts->known_count];
	}
}

static void list_visit(void *arg, const char *number, const char *version)
{
	struct walk *walk = arg;
	struct accounts *accounts = walk->accounts;
	struct known *known = known_of(accounts, number);

	if (walk->ret)
		return;
	if (!known &&
		(accounts->known_count == ACCOUNTS_MAX || strlen(number) >= sizeof(known->number) ||
			strlen(version) >= sizeof(known->version))) {
		walk->ret = -EUCLEAN;
		return;
	}
	if (!known || strcmp(known->version, version) != 0)
		walk->ret = take(accounts, number, version);
	if (walk->ret)
		return;
	if (!known)
		known = &accounts->known[accounts->known_count++];
	snprintf(known->number, sizeof(known->number), "%.*s", (int)sizeof(known->number) - 1,
		number);
	snprintf(known->version, sizeof(known->version), "%.*s", (int)sizeof(known->version) - 1,
		version);
}

static int list_read(struct accounts *accounts)
{
	struct walk walk = {.accounts = accounts};
	int ret;

	for (uint32_t i = 0; i < accounts->known_count; i++)
		accounts->known[i].seen = false;
	ret = cluster_accounts_list(accounts->cluster, seen_visit, accounts);
	if (ret)
		return ret;
	unseen_drop(accounts);
	ret = cluster_accounts_list(accounts->cluster, list_visit, &walk);
	return ret ? ret : walk.ret;
}

/* Reads the copies, if they have changed. From the moment when the look began this process may
 * answer for three quarters of a lease; changes are told for a whole one. */
static int look(struct accounts *accounts)
{
	uint64_t begun_ns = clock_boot_ns(), generation;
	uint32_t pending = cluster_pending(accounts->cluster);
	int ret = cluster_watch_check(accounts->cluster);

	if (!ret)
		ret = cluster_accounts_generation(accounts->cluster, &generation);
	if (!ret && generation != accounts->generation)
		ret = list_read(accounts);
	if (!ret) {
		accounts->generation = generation;
		life_renew(&accounts->life, begun_ns + accounts->lease_s * NS_PER_S / 4 * 3);
		cluster_ack(accounts->cluster, pending);
	}
	return ret;
}

static void follow(struct accounts *accounts)
{
	int ret = look(accounts);

	/* A copy was replaced while the list was read; if that lasts, it is gone. */
	if (ret == -ENOENT && life_holds())
		return;
	if (ret == -ENOENT && ret != accounts->told)
		log_error("server",
			"accounts cannot be read from the cluster's map: it names a copy that is "
			"not there; requests get 503 until store 0's process makes the copy again, "
			"as it does when it starts: restart it");
	else if (ret && ret != accounts->told)
		log_error("server",
			"accounts cannot be read from the cluster's map: %s; requests "
			"get 503 when they have not been read for %u s",
			strerror(-ret), accounts->lease_s / 4 * 3);
	accounts->told = ret;
}

/* ---- The thread. ---- */

static void *run(void *arg)
{
	struct accounts *accounts = arg;

	while (ticker_sleep(&accounts->ticker, LOOK_MS)) {
		if (accounts->follows)
			follow(accounts);
		else
			mend(accounts);
	}
	return NULL;
}

/* Store 0 makes the first copies; until then the others wait. */
static void first_run(void *arg)
{
	struct walk *walk = arg;
	bool logged = false;

	if (!walk->accounts->follows) {
		walk->ret = copy_all(walk->accounts);
		return;
	}
	while ((walk->ret = look(walk->accounts)) == -ENOENT) {
		if (!logged)
			log_info("server", "waiting for store 0's copies of the accounts");
		logged = true;
		if (process_asked_to_end()) {
			log_info("server", "a signal ends the wait for them");
			walk->ret = -ECANCELED;
			return;
		}
		if (!ticker_sleep(&walk->accounts->ticker, LOOK_MS / 5))
			return;
	}
}

int accounts_start(struct accounts *accounts, struct cluster *cluster, struct s3 *s3)
{
	struct walk walk = {.accounts = accounts};

	accounts->cluster = cluster;
	accounts->s3 = s3;
	fiber_offload_long(first_run, &walk);
	if (walk.ret)
		return walk.ret;
	atomic_store(&accounts->started, true);
	return ticker_start(&accounts->ticker, run, accounts);
}

void accounts_stop(struct accounts *accounts)
{
	if (!accounts)
		return;
	ticker_stop(&accounts->ticker);
	life_end(&accounts->life);
}

void accounts_close(struct accounts *accounts)
{
	if (!accounts)
		return;
	ticker_close(&accounts->ticker);
	free(accounts->known);
	pthread_mutex_destroy(&accounts->lock);
	free(accounts);
}
