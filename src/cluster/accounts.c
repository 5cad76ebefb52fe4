/* cluster/accounts.c: copies of store 0's accounts, for the processes of the other stores. A copy
 * is an object that is made once; the account's entry names it, and a counter is changed with each
 * entry. A copy that no account names, not yet or no more, has an entry of its own, so that the
 * next owner of store 0 can remove it. */
#include "cluster/cluster_priv.h"
#include "codec/codec.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define COUNTER	     "accounts"
#define PREFIX	     "a/"
#define UNNAMED	     "c/" /* copies that no account names */
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

/* Changes the counter, and other entries with it. */
static int count(struct cluster *cluster, const struct rv_table_entry *others, uint32_t other_count)
{
	char was[RV_TABLE_VALUE_BYTES], next[24];
	struct rv_table_entry expected = {COUNTER, was};
	struct rv_table_entry changes[RV_TABLE_CHANGES_MAX] = {{COUNTER, next}};
	uint64_t generation = 0;
	int ret = counter_get(cluster, was, &generation);

	CHECK(other_count < RV_TABLE_CHANGES_MAX);
	for (uint32_t i = 0; i < other_count; i++)
		changes[1 + i] = others[i];
	if (ret == -ENOENT)
		expected.value = NULL;
	else if (ret)
		return ret;
	snprintf(next, sizeof(next), "%llu", (unsigned long long)generation + 1);
	return rv_table_change(cluster->table, &expected, 1, changes, 1 + other_count);
}

/* Removes a copy "c/OBJECT" that no account names, and then its entry, which stays when the object
 * does. */
static void unnamed_remove(struct cluster *cluster, const char *key)
{
	const struct rv_table_entry change = {key, NULL};
	int ret = rv_table_blob_remove(cluster->table, key + strlen(UNNAMED));

	if (!ret || ret == -ENOENT)
		(void)rv_table_change(cluster->table, NULL, 0, &change, 1);
}

static void unnamed_visit(void *arg, const char *key, const char *value)
{
	(void)value;
	unnamed_remove(arg, key);
}

int cluster_accounts_claim(struct cluster *cluster)
{
	int ret = count(cluster, NULL, 0);

	/* From here on no change of a former owner names one of them. */
	return ret ? ret : rv_table_list(cluster->table, UNNAMED, unnamed_visit, cluster);
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
	char hex[2 * sizeof(id) + 1] = "", key[RV_TABLE_KEY_BYTES];
	const struct rv_table_entry unnamed = {key, "-"};
	int ret;

	random_fill(id, sizeof(id));
	hex_encode(id, sizeof(id), hex);
	snprintf(key, sizeof(key), UNNAMED "account.%s", hex);
	snprintf(ret_version, RV_TABLE_VALUE_BYTES, "account.%s %s", hex, digest);
	ret = rv_table_change(cluster->table, NULL, 0, &unnamed, 1);
	return ret ? ret : rv_table_blob_put(cluster->table, key + strlen(UNNAMED), text);
}

/* The key of a version's entry while no account names it. */
static int unnamed_key(const char *version, char ret_key[RV_TABLE_KEY_BYTES])
{
	char name[RV_TABLE_KEY_BYTES];

	if (object_of(version, name) || strlen(name) + sizeof(UNNAMED) > RV_TABLE_KEY_BYTES)
		return -EUCLEAN;
	snprintf(ret_key, RV_TABLE_KEY_BYTES, UNNAMED "%.*s",
		(int)(RV_TABLE_KEY_BYTES - sizeof(UNNAMED)), name);
	return 0;
}

/* Makes the account name another copy than it did; a version NULL: none. */
static int copy_name(struct cluster *cluster, const char *key, const char *version, const char *was)
{
	char made[RV_TABLE_KEY_BYTES], left[RV_TABLE_KEY_BYTES];
	struct rv_table_entry changes[3] = {{key, version}};
	bool makes = version && !unnamed_key(version, made);
	bool leaves = was && !unnamed_key(was, left);
	uint32_t change_count = 1;
	int ret;

	if (makes)
		changes[change_count++] = (struct rv_table_entry){made, NULL};
	if (leaves)
		changes[change_count++] = (struct rv_table_entry){left, "-"};
	ret = count(cluster, changes, change_count);
	/* With other errors the entry may name the copy, now or later: it stays. */
	if (ret == -ECANCELED && makes)
		unnamed_remove(cluster, made);
	else if (!ret && leaves)
		unnamed_remove(cluster, left);
	return ret;
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
	return copy_name(cluster, key, text.data ? version : NULL, there ? was : NULL);
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
