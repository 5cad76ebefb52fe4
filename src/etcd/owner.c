/* etcd/owner.c: a store has one owner, whose record is a key in etcd that is changed only by
 * transactions that compare. A second key, the life, is written by each renewal. A server that
 * wants the store watches the life; when it has not changed for the owner's lease by the watcher's
 * own clock, the owner answers nothing any more, and the watcher puts its record in the place of
 * that one, with the next epoch. docs/design/cluster.md has the argument. */
#include "etcd/etcd_priv.h"

#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "codec/codec.h"

/* The lease ends for its holder this part earlier than for those who watch it. */
#define MARGIN_PART 4u
#define REST_NS	    (200 * NS_PER_MS)
#define PATIENCE_NS (30 * NS_PER_S) /* of a start that is no standby */

static uint64_t lease_ns(const struct etcd *etcd)
{
	return (uint64_t)etcd->opts.lease_s * NS_PER_S;
}

/* ---- Transactions. ---- */

/* A new reference; NULL: no memory. */
static json_t *text64(const char *text)
{
	char encoded[BASE64_LEN(ETCD_TEXT_MAX) + 1];

	CHECK(strlen(text) < ETCD_TEXT_MAX);
	encoded[base64_encode(text, strlen(text), encoded)] = '\0';
	return json_string(encoded);
}

static json_t *put_op(const char *key, const char *value)
{
	return json_pack("{s{soso}}", "request_put", "key", text64(key), "value", text64(value));
}

static json_t *get_op(const char *key)
{
	return json_pack("{s{so}}", "request_range", "key", text64(key));
}

static json_t *same_revision(const char *key, uint64_t revision)
{
	return json_pack("{sosssssI}", "key", text64(key), "target", "MOD", "result", "EQUAL",
		"mod_revision", (json_int_t)revision);
}

static json_t *same_value(const char *key, const char *value)
{
	return json_pack("{sossssso}", "key", text64(key), "target", "VALUE", "result", "EQUAL",
		"value", text64(value));
}

/* Asks one endpoint; takes both lists. */
static int transact_at(struct etcd *etcd, uint32_t endpoint, json_t *compare, json_t *success,
	struct etcd_answer *ret_answer)
{
	json_t *json = json_pack("{soso}", "compare", compare, "success", success);
	char *body = json ? json_dumps(json, JSON_COMPACT) : NULL;
	struct buf reply;
	int ret = -ENOMEM;

	buf_init(&reply, ETCD_ANSWER_MAX);
	if (body)
		ret = etcd_call(&etcd->client, endpoint, "/v3/kv/txn", slice_str(body), &reply);
	if (!ret)
		ret = etcd_answer_parse(
			buf_slice(&reply), etcd->owner_key, etcd->life_key, ret_answer);
	if (ret == -EPROTO)
		etcd_why_add(&etcd->client, endpoint, "its answer is not etcd's");
	buf_free(&reply);
	free(body);
	json_decref(json);
	return ret;
}

/* The nth to ask: the one that answered last comes first. */
static uint32_t endpoint_of(const struct etcd *etcd, uint32_t n)
{
	return (etcd->client.current + n) % etcd->client.endpoint_count;
}

/* Both keys at one moment. */
static int keys_read(struct etcd *etcd, struct etcd_answer *ret_answer)
{
	int ret = -EIO;

	etcd->client.why[0] = '\0';
	for (uint32_t n = 0; n < etcd->client.endpoint_count && ret; n++) {
		uint32_t endpoint = endpoint_of(etcd, n);

		ret = transact_at(etcd, endpoint, json_array(),
			json_pack("[oo]", get_op(etcd->owner_key), get_op(etcd->life_key)),
			ret_answer);
		if (!ret)
			etcd->client.current = endpoint;
	}
	return ret;
}

/* Each attempt writes a number of its own: a text that is seen again was written once. The life
 * counts from when the attempt was sent. -ECANCELED: another record is there. */
static int renew(struct etcd *etcd)
{
	int ret = -EIO;

	etcd->client.why[0] = '\0';
	for (uint32_t n = 0; n < etcd->client.endpoint_count && ret; n++) {
		uint32_t endpoint = endpoint_of(etcd, n);
		uint64_t begun_ns = clock_boot_ns();
		struct etcd_answer answer;
		char life[64];

		snprintf(life, sizeof(life), "%llu %llu", (unsigned long long)++etcd->number,
			(unsigned long long)(lease_ns(etcd) / NS_PER_MS));
		ret = transact_at(etcd, endpoint,
			json_pack("[o]", same_value(etcd->owner_key, etcd->record)),
			json_pack("[o]", put_op(etcd->life_key, life)), &answer);
		if (ret)
			continue;
		etcd->client.current = endpoint;
		if (!answer.succeeded)
			return -ECANCELED;
		life_renew(&etcd->life, begun_ns + lease_ns(etcd) - lease_ns(etcd) / MARGIN_PART);
		etcd->life_ended = false;
	}
	return ret;
}

/* ---- Taking. ---- */

/* The keys as they are now, and when they were first seen so. */
struct seen {
	struct etcd_answer keys;
	struct etcd_record record;
	uint64_t since_ns, begun_ns;
	bool told;
	bool silent; /* etcd does not answer, and that was told */
};

static int seen_read(struct etcd *etcd, struct seen *seen)
{
	struct etcd_answer now;
	int ret = keys_read(etcd, &now);

	if (ret)
		return ret;
	seen->silent = false;
	if (!seen->since_ns || now.owner.revision != seen->keys.owner.revision ||
		now.life.revision != seen->keys.life.revision)
		seen->since_ns = clock_boot_ns();
	seen->keys = now;
	seen->record = (struct etcd_record){.epoch = 0};
	if (!now.owner.revision)
		return 0;
	ret = etcd_record_parse(now.owner.text, &seen->record);
	if (ret)
		log_error("etcd",
			"the key %s has '%.200s', which is not an owner's record: choose "
			"another cluster.etcd_prefix",
			etcd->owner_key, now.owner.text);
	return ret;
}

/* From when on the owner that is seen answers nothing. */
static int seen_until(const struct etcd *etcd, const struct seen *seen, uint64_t *ret_until_ns)
{
	uint64_t ms = lease_ns(etcd) / NS_PER_MS;

	*ret_until_ns = 0;
	if (!seen->record.owned || process_dead(&seen->record.process))
		return 0;
	if (seen->keys.life.revision && etcd_life_parse(seen->keys.life.text, &ms)) {
		log_error("etcd", "the key %s has '%.200s', which is not a life", etcd->life_key,
			seen->keys.life.text);
		return -EUCLEAN;
	}
	*ret_until_ns = seen->since_ns + ms * NS_PER_MS;
	return 0;
}

static void record_make(struct etcd *etcd, uint64_t epoch)
{
	struct process self;
	int len;

	process_self(&self);
	etcd->epoch = epoch;
	len = snprintf(etcd->record, sizeof(etcd->record), "1 %llu %s %s %s %llu %llu %s",
		(unsigned long long)epoch, self.host[0] ? self.host : "-",
		self.boot[0] ? self.boot : "-", self.pids[0] ? self.pids : "-", self.pid,
		self.start, etcd->cookie);
	CHECK(len > 0 && (size_t)len < sizeof(etcd->record));
}

/* -ECANCELED: the keys have changed. A lost answer is found by the next reading. */
static int take_once(struct etcd *etcd, const struct seen *seen)
{
	struct etcd_answer answer;
	int ret;

	etcd->client.why[0] = '\0';
	record_make(etcd, seen->record.epoch + 1);
	ret = transact_at(etcd, endpoint_of(etcd, 0),
		json_pack("[oo]", same_revision(etcd->owner_key, seen->keys.owner.revision),
			same_revision(etcd->life_key, seen->keys.life.revision)),
		json_pack("[o]", put_op(etcd->owner_key, etcd->record)), &answer);
	if (ret)
		return ret;
	return answer.succeeded ? 0 : -ECANCELED;
}

static int rest(const struct etcd *etcd, const struct seen *seen, bool busy)
{
	const struct process *owner = &seen->record.process;

	if (process_asked_to_end()) {
		log_info("etcd", "a signal ends the wait for the store");
		return -ECANCELED;
	}
	if (!etcd->opts.standby && clock_boot_ns() >= seen->begun_ns + PATIENCE_NS) {
		if (busy)
			log_error("etcd",
				"%s (process %llu) owns the store of %s: stop that server, or "
				"start this one with cluster.standby: true, and it waits",
				owner->host, owner->pid, etcd->owner_key);
		else
			log_error("etcd", "no endpoint of cluster.etcd answers: %s",
				etcd->client.why);
		return busy ? -EBUSY : -EIO;
	}
	nanosleep(&(struct timespec){.tv_nsec = (long)REST_NS}, NULL);
	return 0;
}

static int wait_more(struct etcd *etcd, struct seen *seen)
{
	const struct process *owner = &seen->record.process;

	if (!seen->told)
		log_info("etcd", "%s (process %llu) owns the store of %s; %s", owner->host,
			owner->pid, etcd->owner_key,
			etcd->opts.standby ? "standing by until it has no owner"
					   : "waiting for the end of its lease");
	seen->told = true;
	return rest(etcd, seen, true);
}

static int wait_for_etcd(struct etcd *etcd, struct seen *seen)
{
	if (!seen->silent)
		log_warn("etcd", "no endpoint of cluster.etcd answers: %s", etcd->client.why);
	seen->silent = true;
	return rest(etcd, seen, false);
}

/* One look at the keys. *ret_done: the store is ours, and the life has begun. */
static int own_step(struct etcd *etcd, struct seen *seen, bool *ret_done)
{
	uint64_t until_ns;
	int ret = seen_read(etcd, seen);

	if (ret == -EUCLEAN)
		return ret;
	if (ret)
		return wait_for_etcd(etcd, seen);
	if (!etcd->epoch || strcmp(seen->keys.owner.text, etcd->record) != 0) {
		ret = seen_until(etcd, seen, &until_ns);
		if (ret || clock_boot_ns() < until_ns)
			return ret ? ret : wait_more(etcd, seen);
		ret = take_once(etcd, seen);
	}
	if (!ret)
		ret = renew(etcd);
	*ret_done = !ret;
	return !ret || ret == -ECANCELED ? 0 : wait_for_etcd(etcd, seen);
}

/* ---- Renewing. ---- */

static void lost(struct etcd *etcd)
{
	life_renew(&etcd->life, 0);
	log_error("etcd",
		"another server owns the store of %s now, because this one did not renew its "
		"lease: nothing more is answered or written from here",
		etcd->owner_key);
	etcd->opts.lost(etcd->opts.lost_arg);
}

static void unrenewed(struct etcd *etcd, bool *told)
{
	if (!*told)
		log_warn("etcd", "the owner's lease cannot be renewed: %s", etcd->client.why);
	*told = true;
	if (!etcd->life_ended && clock_boot_ns() >= etcd->life.until_ns) {
		log_error("etcd",
			"the owner's lease is over, and etcd does not answer: requests get "
			"503 SlowDown until it does: %s",
			etcd->client.why);
		etcd->life_ended = true;
	}
}

static void renew_wait(struct etcd *etcd, uint64_t pause_ns)
{
	uint64_t at_ns = clock_now_ns() + pause_ns;
	const struct timespec at = {
		.tv_sec = (time_t)(at_ns / NS_PER_S), .tv_nsec = (long)(at_ns % NS_PER_S)};

	while (!etcd->end && !etcd->look)
		if (pthread_cond_timedwait(&etcd->wake, &etcd->lock, &at) == ETIMEDOUT)
			break;
	etcd->look = false;
}

static void *renew_main(void *arg)
{
	struct etcd *etcd = (struct etcd *)arg;
	uint64_t pause_ns = lease_ns(etcd) / 3;
	bool told = false;

	pthread_mutex_lock(&etcd->lock);
	for (renew_wait(etcd, pause_ns); !etcd->end; renew_wait(etcd, pause_ns)) {
		int ret;

		pthread_mutex_unlock(&etcd->lock);
		ret = renew(etcd);
		if (ret == -ECANCELED)
			lost(etcd);
		else if (ret)
			unrenewed(etcd, &told);
		else if (told)
			log_info("etcd", "the owner's lease is renewed again");
		told = told && ret;
		pause_ns = lease_ns(etcd) / (ret ? 12 : 3);
		pthread_mutex_lock(&etcd->lock);
		if (ret == -ECANCELED)
			break;
	}
	pthread_mutex_unlock(&etcd->lock);
	return NULL;
}

void etcd_look(void *arg)
{
	struct etcd *etcd = (struct etcd *)arg;

	pthread_mutex_lock(&etcd->lock);
	etcd->look = true;
	pthread_cond_signal(&etcd->wake);
	pthread_mutex_unlock(&etcd->lock);
}

/* ---- Opening and closing. ---- */

static int keys_name(struct etcd *etcd)
{
	const char *prefix = etcd->opts.prefix;

	if (strlen(prefix) > ETCD_PREFIX_MAX)
		return -ENAMETOOLONG;
	snprintf(etcd->owner_key, sizeof(etcd->owner_key), "%sowner", prefix);
	snprintf(etcd->life_key, sizeof(etcd->life_key), "%slife", prefix);
	return 0;
}

static void cookie_draw(struct etcd *etcd)
{
	uint8_t id[16];

	random_fill(id, sizeof(id));
	hex_encode(id, sizeof(id), etcd->cookie);
	etcd->cookie[2 * sizeof(id)] = '\0';
}

int etcd_own(const struct etcd_opts *opts, struct etcd **ret_etcd)
{
	struct etcd *etcd = (struct etcd *)calloc(1, sizeof(*etcd));
	struct seen seen = {.begun_ns = clock_boot_ns()};
	pthread_condattr_t monotonic;
	bool done = false;
	int ret;

	if (!etcd)
		return -ENOMEM;
	etcd->opts = *opts;
	pthread_mutex_init(&etcd->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&etcd->wake, &monotonic);
	pthread_condattr_destroy(&monotonic);
	cookie_draw(etcd);
	ret = keys_name(etcd);
	if (!ret)
		ret = etcd_client_open(opts, &etcd->client);
	while (!ret && !done)
		ret = own_step(etcd, &seen, &done);
	if (!ret)
		ret = -pthread_create(&etcd->thread, NULL, renew_main, etcd);
	etcd->started = !ret;
	if (ret) {
		etcd_close(etcd);
		return ret;
	}
	log_info("etcd", "this server owns the store of %s, with epoch %llu", etcd->owner_key,
		(unsigned long long)etcd->epoch);
	*ret_etcd = etcd;
	return 0;
}

uint64_t etcd_epoch(const struct etcd *etcd)
{
	return etcd->epoch;
}

/* If the record is still ours. */
static void give_up(struct etcd *etcd)
{
	char text[64];
	struct etcd_answer answer;
	int ret = -EIO;

	life_renew(&etcd->life, 0);
	etcd->client.why[0] = '\0';
	snprintf(text, sizeof(text), "0 %llu", (unsigned long long)etcd->epoch);
	for (uint32_t n = 0; n < etcd->client.endpoint_count && ret; n++)
		ret = transact_at(etcd, endpoint_of(etcd, n),
			json_pack("[o]", same_value(etcd->owner_key, etcd->record)),
			json_pack("[o]", put_op(etcd->owner_key, text)), &answer);
	if (ret)
		log_warn("etcd",
			"the store could not be given up (%s): the next owner waits until the "
			"lease is over",
			etcd->client.why);
}

void etcd_close(struct etcd *etcd)
{
	if (!etcd)
		return;
	if (etcd->started) {
		pthread_mutex_lock(&etcd->lock);
		etcd->end = true;
		pthread_cond_signal(&etcd->wake);
		pthread_mutex_unlock(&etcd->lock);
		pthread_join(etcd->thread, NULL);
		give_up(etcd);
	}
	life_end(&etcd->life);
	etcd_client_close(&etcd->client);
	pthread_mutex_destroy(&etcd->lock);
	pthread_cond_destroy(&etcd->wake);
	free(etcd);
}
