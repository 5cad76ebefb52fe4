/* tests/unit/cluster/test_map.c: covers the gateways of cluster/map.c and the copies of
 * cluster/accounts.c, over a made-up table: those that live are seen, however many have been there
 * before, and the copy that an entry names is there. */
#include "../unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/cluster.h"

#define ENTRIES_MAX 128u
#define BLOBS_MAX   8u

/* In the order of their keys, as in RADOS. */
static struct entry {
	char key[RV_TABLE_KEY_BYTES], value[RV_TABLE_VALUE_BYTES];
} entries[ENTRIES_MAX];
static uint32_t entry_count;
static char leases[ENTRIES_MAX][CLUSTER_NAME_LEN_MAX + 1];
static uint32_t lease_count;
static const char *taken; /* the lease of another process */
static int leased_error;
static int changed_error; /* of a change that was made, after a comparison */
static int removed_error; /* of an object that is not removed */
static bool refused;	  /* no change is made */
static struct blob {
	char name[RV_TABLE_KEY_BYTES], text[64];
} blobs[BLOBS_MAX];
static uint32_t blob_count;

static struct entry *entry_find(const char *key)
{
	for (uint32_t i = 0; i < entry_count; i++)
		if (strcmp(entries[i].key, key) == 0)
			return &entries[i];
	return NULL;
}

static int by_key(const void *a, const void *b)
{
	return strcmp(((const struct entry *)a)->key, ((const struct entry *)b)->key);
}

static void entry_set(const char *key, const char *value)
{
	struct entry *entry = entry_find(key);

	if (!value) {
		if (entry)
			*entry = entries[--entry_count];
	} else {
		if (!entry)
			entry = &entries[entry_count++];
		snprintf(entry->key, sizeof(entry->key), "%s", key);
		snprintf(entry->value, sizeof(entry->value), "%s", value);
	}
	qsort(entries, entry_count, sizeof(entries[0]), by_key);
}

int rv_table_open(const struct rv_table_opts *opts, struct rv_table **ret_table)
{
	(void)opts;
	*ret_table = NULL;
	return 0;
}

void rv_table_close(struct rv_table *table)
{
	(void)table;
}

int rv_table_get(struct rv_table *table, const char *key, char ret_value[RV_TABLE_VALUE_BYTES])
{
	struct entry *entry = entry_find(key);

	(void)table;
	if (!entry)
		return -ENOENT;
	memcpy(ret_value, entry->value, sizeof(entry->value));
	return 0;
}

/* Of a copy: what is removed meanwhile has been read. */
int rv_table_list(struct rv_table *table, const char *prefix, rv_table_visit_fn *visit, void *arg)
{
	static struct entry page[ENTRIES_MAX];
	uint32_t count = entry_count;

	(void)table;
	memcpy(page, entries, sizeof(page));
	for (uint32_t i = 0; i < count; i++)
		if (strncmp(page[i].key, prefix, strlen(prefix)) == 0)
			visit(arg, page[i].key, page[i].value);
	return 0;
}

int rv_table_change(struct rv_table *table, const struct rv_table_entry *expected,
	uint32_t expected_count, const struct rv_table_entry *changes, uint32_t change_count)
{
	(void)table;
	for (uint32_t i = 0; i < expected_count; i++) {
		const struct entry *entry = entry_find(expected[i].key);
		const char *value = expected[i].value ? expected[i].value : "";

		if (refused || strcmp(entry ? entry->value : "", value) != 0)
			return -ECANCELED;
	}
	for (uint32_t i = 0; i < change_count; i++)
		entry_set(changes[i].key, changes[i].value);
	return expected_count ? changed_error : 0;
}

static struct blob *blob_find(const char *name)
{
	for (uint32_t i = 0; i < blob_count; i++)
		if (strcmp(blobs[i].name, name) == 0)
			return &blobs[i];
	return NULL;
}

int rv_table_blob_put(struct rv_table *table, const char *name, struct slice bytes)
{
	struct blob *blob = &blobs[blob_count];

	(void)table;
	assert_true(blob_count < BLOBS_MAX);
	if (blob_find(name))
		return -EEXIST;
	snprintf(blob->name, sizeof(blob->name), "%s", name);
	slice_copy_str(bytes, blob->text, sizeof(blob->text));
	blob_count++;
	return 0;
}

int rv_table_blob_get(struct rv_table *table, const char *name, struct buf *out)
{
	struct blob *blob = blob_find(name);

	(void)table;
	if (!blob)
		return -ENOENT;
	buf_put(out, blob->text, strlen(blob->text));
	return 0;
}

int rv_table_blob_remove(struct rv_table *table, const char *name)
{
	struct blob *blob = blob_find(name);

	(void)table;
	if (!blob || removed_error)
		return blob ? removed_error : -ENOENT;
	*blob = blobs[--blob_count];
	return 0;
}

uint32_t rv_table_pending(struct rv_table *table)
{
	(void)table;
	return 0;
}

void rv_table_ack(struct rv_table *table, uint32_t count)
{
	(void)table;
	(void)count;
}

int rv_table_lease(struct rv_table *table, const char *name, uint32_t seconds)
{
	(void)seconds;
	if (taken && strcmp(taken, name) == 0)
		return -EBUSY;
	if (!rv_table_leased(table, name))
		snprintf(leases[lease_count++], sizeof(leases[0]), "%s", name);
	return 0;
}

void rv_table_lease_end(struct rv_table *table, const char *name)
{
	(void)table;
	for (uint32_t i = 0; i < lease_count; i++)
		if (strcmp(leases[i], name) == 0)
			memcpy(leases[i], leases[--lease_count], sizeof(leases[0]));
}

int rv_table_leased(struct rv_table *table, const char *name)
{
	(void)table;
	if (leased_error)
		return leased_error;
	for (uint32_t i = 0; i < lease_count; i++)
		if (strcmp(leases[i], name) == 0)
			return 1;
	return 0;
}

int rv_table_tell(struct rv_table *table, const char *text, uint32_t timeout_s)
{
	(void)table;
	(void)text;
	(void)timeout_s;
	return 0;
}

int rv_table_watch_check(struct rv_table *table)
{
	(void)table;
	return 0;
}

int rv_table_volume_bytes(struct rv_table *table, const char *name, uint64_t *ret_bytes)
{
	(void)table;
	(void)name;
	(void)ret_bytes;
	return -ENOENT;
}

static struct cluster *cluster;
static struct cluster_view view;

static int setup(void **state)
{
	const struct cluster_opts opts = {.pool = "index", .name = "nebulaio"};

	(void)state;
	entry_count = lease_count = blob_count = 0;
	taken = NULL;
	leased_error = changed_error = removed_error = 0;
	refused = false;
	return cluster_open(&opts, &cluster);
}

static int teardown(void **state)
{
	(void)state;
	cluster_close(cluster);
	return 0;
}

static void live(const char *name)
{
	struct cluster_gateway self = {.admin = "127.0.0.1:9001"};

	snprintf(self.name, sizeof(self.name), "%s", name);
	assert_int_equal(cluster_live(cluster, &self, 15), 0);
}

/* Gateways that were killed: their entries stay. */
static void killed(uint32_t count)
{
	char name[CLUSTER_NAME_LEN_MAX + 1];

	for (uint32_t i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "pod-%03u", i);
		live(name);
		rv_table_lease_end(NULL, name);
	}
}

static uint32_t living(void)
{
	uint32_t count = 0;

	assert_int_equal(cluster_view(cluster, &view), 0);
	for (uint32_t i = 0; i < view.gateway_count; i++) {
		assert_true(i == 0 || strcmp(view.gateways[i - 1].name, view.gateways[i].name) < 0);
		count += view.gateways[i].alive;
	}
	return count;
}

static void test_those_that_live_are_seen(void **state)
{
	(void)state;
	killed(CLUSTER_GATEWAYS_MAX);
	live("west");
	assert_int_equal(living(), 1);
	assert_int_equal(view.gateway_count, CLUSTER_GATEWAYS_MAX);
	assert_string_equal(view.gateways[CLUSTER_GATEWAYS_MAX - 1].name, "west");
	/* The entry that had to make room is gone. */
	assert_null(entry_find("g/pod-000"));
	live("east");
	killed(8);
	assert_int_equal(living(), 2);
	assert_string_equal(view.gateways[0].name, "east");
	assert_int_equal(view.gateway_count, CLUSTER_GATEWAYS_MAX);
	assert_int_equal(living(), 2);
	assert_int_equal(view.gateway_count, CLUSTER_GATEWAYS_MAX);
}

static void test_a_killed_one_is_shown(void **state)
{
	(void)state;
	killed(2);
	live("west");
	assert_int_equal(living(), 1);
	assert_int_equal(view.gateway_count, 3);
}

static void test_who_leaves_is_forgotten(void **state)
{
	(void)state;
	live("east");
	live("west");
	cluster_leave(cluster, "west");
	assert_int_equal(living(), 1);
	assert_int_equal(view.gateway_count, 1);
	assert_string_equal(view.gateways[0].name, "east");
}

/* A gateway that hands its stores over gets none, and makes room like others once it is dead. */
static void test_one_that_leaves_is_marked(void **state)
{
	struct cluster_gateway self = {.name = "west", .leaving = true};

	(void)state;
	live("east");
	live("west");
	assert_int_equal(living(), 2);
	assert_false(view.gateways[1].leaving);
	assert_int_equal(cluster_stores_make(cluster, 1), 0);
	assert_int_equal(cluster_store_move(cluster, 0, "west"), -EBUSY);
	assert_int_equal(cluster_live(cluster, &self, 15), 0);
	assert_int_equal(living(), 2);
	assert_true(view.gateways[1].leaving);
	assert_string_equal(view.gateways[1].admin, "-");
	assert_false(view.gateways[0].leaving);
	assert_int_equal(cluster_store_move(cluster, 0, "west"), -EHOSTUNREACH);
	rv_table_lease_end(NULL, "west");
	killed(CLUSTER_GATEWAYS_MAX);
	live("north");
	assert_int_equal(living(), 2);
	live("west");
	assert_int_equal(living(), 3);
	assert_false(view.gateways[view.gateway_count - 1].leaving);
	cluster_leave(cluster, "west");
	assert_null(entry_find("g/west"));
}

static void test_who_has_lost_its_name_leaves_it(void **state)
{
	(void)state;
	live("east");
	taken = "east";
	cluster_leave(cluster, "east");
	assert_non_null(entry_find("g/east"));
}

static void test_a_lease_that_cannot_be_read(void **state)
{
	(void)state;
	live("east");
	leased_error = -ETIMEDOUT;
	assert_int_equal(cluster_view(cluster, &view), -ETIMEDOUT);
}

static void assert_copy(const char *text)
{
	const struct entry *entry = entry_find("a/1");
	struct buf copy;

	assert_non_null(entry);
	buf_init(&copy, CLUSTER_ACCOUNT_BYTES_MAX);
	assert_int_equal(cluster_account_read(cluster, entry->value, &copy), 0);
	assert_true(slice_eq(buf_slice(&copy), slice_str(text)));
	buf_free(&copy);
}

/* A change that was made, although its answer did not come. */
static void test_a_copy_whose_change_timed_out(void **state)
{
	(void)state;
	assert_int_equal(cluster_account_put(cluster, "1", SLICE("before")), 0);
	assert_copy("before");
	changed_error = -ETIMEDOUT;
	assert_int_equal(cluster_account_put(cluster, "1", SLICE("now")), -ETIMEDOUT);
	assert_copy("now");
	changed_error = 0;
	assert_int_equal(cluster_account_put(cluster, "1", SLICE("now")), 0);
	assert_copy("now");
}

static void test_a_copy_that_is_gone_is_made_again(void **state)
{
	(void)state;
	assert_int_equal(cluster_account_put(cluster, "1", SLICE("now")), 0);
	blob_count = 0;
	assert_int_equal(cluster_account_put(cluster, "1", SLICE("now")), 0);
	assert_copy("now");
	/* Nothing to do. */
	assert_int_equal(cluster_account_put(cluster, "1", SLICE("now")), 0);
	assert_int_equal(blob_count, 1);
	assert_string_equal(entry_find("accounts")->value, "2");
}

/* Somebody else changed the counter: the entry does not name the new copy, and never will. */
static void test_a_copy_whose_change_was_refused(void **state)
{
	(void)state;
	assert_int_equal(cluster_account_put(cluster, "1", SLICE("now")), 0);
	refused = true;
	assert_int_equal(cluster_account_put(cluster, "1", SLICE("later")), -ECANCELED);
	assert_int_equal(blob_count, 1);
	assert_copy("now");
}

static uint32_t unnamed(void)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < entry_count; i++)
		count += strncmp(entries[i].key, "c/", 2) == 0;
	return count;
}

/* Old copies hold secrets: one that stays is removed by the next owner of store 0. */
static void test_no_copy_stays(void **state)
{
	(void)state;
	/* Not removed. */
	assert_int_equal(cluster_account_put(cluster, "1", SLICE("before")), 0);
	assert_int_equal(unnamed(), 0);
	removed_error = -ETIMEDOUT;
	assert_int_equal(cluster_account_put(cluster, "1", SLICE("now")), 0);
	assert_int_equal(cluster_accounts_claim(cluster), 0);
	assert_int_equal(blob_count, 2);
	removed_error = 0;
	assert_int_equal(cluster_accounts_claim(cluster), 0);
	assert_int_equal(blob_count, 1);
	assert_int_equal(unnamed(), 0);
	/* Named, although the answer did not come. */
	changed_error = -ETIMEDOUT;
	assert_int_equal(cluster_account_put(cluster, "1", SLICE("later")), -ETIMEDOUT);
	assert_int_equal(blob_count, 2);
	changed_error = 0;
	assert_int_equal(cluster_accounts_claim(cluster), 0);
	assert_int_equal(blob_count, 1);
	assert_copy("later");
	/* Made, and the process died before it was named. */
	refused = true;
	removed_error = -ETIMEDOUT;
	assert_int_equal(cluster_account_put(cluster, "1", SLICE("never")), -ECANCELED);
	assert_int_equal(blob_count, 2);
	refused = false;
	removed_error = 0;
	assert_int_equal(cluster_accounts_claim(cluster), 0);
	assert_int_equal(blob_count, 1);
	assert_copy("later");
	/* With the account all of it goes. */
	removed_error = -ETIMEDOUT;
	assert_int_equal(cluster_account_put(cluster, "1", SLICE_NONE), 0);
	removed_error = 0;
	assert_int_equal(cluster_accounts_claim(cluster), 0);
	assert_int_equal(blob_count, 0);
	assert_int_equal(unnamed(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_those_that_live_are_seen, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_killed_one_is_shown, setup, teardown),
		cmocka_unit_test_setup_teardown(test_who_leaves_is_forgotten, setup, teardown),
		cmocka_unit_test_setup_teardown(test_one_that_leaves_is_marked, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_who_has_lost_its_name_leaves_it, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_lease_that_cannot_be_read, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_a_copy_whose_change_timed_out, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_a_copy_that_is_gone_is_made_again, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_a_copy_whose_change_was_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(test_no_copy_stays, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
