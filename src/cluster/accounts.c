/* cluster/accounts.c: copies of store 0's accounts, for the processes of the other stores. A copy
 * is an object that is made once; the account's entry names it, and a counter is changed with each
 * entry. */
#include "cluster/cluster_priv.h"
#include "codec/codec.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define COUNTER	     "accounts"
#define PREFIX	     "a/"
#define NUMBER_BYTES 65u

static int counter_get(
	struct cluster *cluster, char ret_text[RV_TABLE_VALUE_BYTES], uint64_t *ret_value)
{
	int ret = rv_table_get(cluster->table, COUNTER, ret_text);

	if (!ret && slice_to_u64(slice_str(ret_text), ret_value))
		ret = -EUCLEAN;
	return ret;
}

int cluster_accounts_generation(struct cluster *cluster, uint64_t *ret_generation)
{
	char text[RV_TABLE_VALUE_BYTES];

	return counter_get(cluster, text, ret_generation);
}

/* Changes the counter, and with it one entry: key NULL: none, value NULL: it goes. */
static int count(struct cluster *cluster, const char *key, const char *value)
{
	char was[RV_TABLE_VALUE_BYTES], next[24];
	struct rv_table_entry expected = {COUNTER, was};
	struct rv_table_entry changes[] = {{COUNTER, next}, {key, value}};
	uint64_t generation = 0;
	int ret = counter_get(cluster, was, &generation);

	if (ret == -ENOENT)
		expected.value = NULL;
	else if (ret)
		return ret;
	snprintf(next, sizeof(next), "%llu", (unsigned long long)generation + 1);
	return rv_table_change(cluster->table, &expected, 1, changes, key ? 2 : 1);
}

int cluster_accounts_claim(struct cluster *cluster)
{
	return count(cluster, NULL, NULL);
}

struct listing {
	cluster_account_fn *visit;
	void *arg;
};

static void entry_visit(void *arg, const char *key, const char *value)
{
	const struct listing *listing = arg;

	listing->visit(listing->arg, key + strlen(PREFIX), value);
}

int cluster_accounts_list(struct cluster *cluster, cluster_account_fn *visit, void *arg)
{
	struct listing listing = {visit, arg};

	return rv_table_list(cluster->table, PREFIX, entry_visit, &listing);
}

/* "OBJECT DIGEST" */
static int object_of(const char *version, char ret_name[RV_TABLE_KEY_BYTES])
{
	struct slice rest = slice_str(version);

	return slice_copy_str(slice_split(&rest, ' '), ret_name, RV_TABLE_KEY_BYTES);
}

int cluster_account_read(struct cluster *cluster, const char *version, struct buf *out)
{
	char name[RV_TABLE_KEY_BYTES];
	int ret = object_of(version, name);

	return ret ? -EUCLEAN : rv_table_blob_get(cluster->table, name, out);
}

static void digest_of(struct slice text, char ret_hex[2 * SHA256_BYTES + 1])
{
	uint8_t digest[SHA256_BYTES];

	sha256_of(text.data, text.len, digest);
	hex_encode(digest, sizeof(digest), ret_hex);
	ret_hex[2 * SHA256_BYTES] = '\0';
}

/* A new object with the text; its name and the text's digest are the version. */
static int copy_make(struct cluster *cluster, struct slice text, const char *digest,
	char ret_version[RV_TABLE_VALUE_BYTES])
{
	uint8_t id[16];
	char hex[2 * sizeof(id) + 1] = "", name[RV_TABLE_KEY_BYTES];

	random_fill(id, sizeof(id));
	hex_encode(id, sizeof(id), hex);
	snprintf(name, sizeof(name), "account.%s", hex);
	snprintf(ret_version, RV_TABLE_VALUE_BYTES, "%s %s", name, digest);
	return rv_table_blob_put(cluster->table, name, text);
}

static void copy_remove(struct cluster *cluster, const char *version)
{
	char name[RV_TABLE_KEY_BYTES];

	if (!object_of(version, name))
		(void)rv_table_blob_remove(cluster->table, name);
}

/* 1: the copy with this version has this text, and is there; 0; or -errno. */
static int copy_is(struct cluster *cluster, const char *version, const char *digest)
{
	struct buf text;
	int ret;

	if (!slice_ends(slice_str(version), slice_str(digest)))
		return 0;
	buf_init(&text, CLUSTER_ACCOUNT_BYTES_MAX);
	ret = cluster_account_read(cluster, version, &text);
	buf_free(&text);
	return ret == -ENOENT ? 0 : ret ? ret : 1;
}

int cluster_account_put(struct cluster *cluster, const char *number, struct slice text)
{
	char key[RV_TABLE_KEY_BYTES], was[RV_TABLE_VALUE_BYTES], version[RV_TABLE_VALUE_BYTES];
	char digest[2 * SHA256_BYTES + 1] = "";
	bool there;
	int ret;

	if (strlen(number) >= NUMBER_BYTES || text.len > CLUSTER_ACCOUNT_BYTES_MAX)
		return -EMSGSIZE;
	snprintf(key, sizeof(key), PREFIX "%s", number);
	ret = rv_table_get(cluster->table, key, was);
	there = !ret;
	if (ret && ret != -ENOENT)
		return ret;
	if (!text.data && !there)
		return 0;
	if (text.data) {
		digest_of(text, digest);
		ret = there ? copy_is(cluster, was, digest) : 0;
		if (ret)
			return ret == 1 ? 0 : ret;
		ret = copy_make(cluster, text, digest, version);
		if (ret)
			return ret;
	}
	ret = count(cluster, key, text.data ? version : NULL);
	/* With other errors the entry may name the copy, now or later: it stays. */
	if (ret == -ECANCELED && text.data)
		copy_remove(cluster, version);
	else if (!ret && there)
		copy_remove(cluster, was);
	return ret;
}

/* A process that has not taken the changes by then knows that it does not know: see the design. */
void cluster_accounts_tell(struct cluster *cluster, uint32_t seconds)
{
	uint64_t begun_ns = clock_now_ns(), all_ns = seconds * NS_PER_S, gone_ns;

	if (!rv_table_tell(cluster->table, COUNTER, seconds))
		return;
	gone_ns = clock_now_ns() - begun_ns;
	if (gone_ns < all_ns)
		nanosleep(&(struct timespec){.tv_sec = (time_t)((all_ns - gone_ns) / NS_PER_S),
				  .tv_nsec = (long)((all_ns - gone_ns) % NS_PER_S)},
			NULL);
}

uint32_t cluster_pending(struct cluster *cluster)
{
	return rv_table_pending(cluster->table);
}

void cluster_ack(struct cluster *cluster, uint32_t count_done)
{
	rv_table_ack(cluster->table, count_done);
}
