/* tests/unit/server/test_names.c: covers server/names.c, over a made-up map and store: a store that
 * takes no writes gives no name back, because the bucket may be there at its next start. */
#include "../unit.h"

#include <errno.h>
#include <stdio.h>

#include "cluster/cluster.h"
#include "rados/rados.h"
#include "server/accounts.h"
#include "server/names.h"
#include "server/room.h"
#include "server/tenure.h"
#include "server/volumes.h"
#include "store/local.h"

static bool cut_off;
static uint32_t released;

/* ---- The store. ---- */

bool store_cut_off(const struct store *store)
{
	assert_ptr_equal(store, &cut_off);
	return cut_off;
}

/* ---- The map. ---- */

int cluster_open(const struct cluster_opts *opts, struct cluster **ret_cluster)
{
	(void)opts;
	*ret_cluster = (struct cluster *)&released;
	return 0;
}

void cluster_close(struct cluster *cluster)
{
	(void)cluster;
}

const uint8_t *cluster_secret(const struct cluster *cluster)
{
	(void)cluster;
	return NULL;
}

void cluster_volume_name(const char *cluster, uint32_t number, char ret_name[64])
{
	snprintf(ret_name, 64, "%s-%u", cluster, number);
}

int cluster_bucket_claim(struct cluster *cluster, const char *bucket, uint32_t store)
{
	(void)cluster;
	(void)bucket;
	(void)store;
	return 0;
}

int cluster_bucket_release(struct cluster *cluster, const char *bucket, uint32_t store)
{
	(void)cluster;
	assert_string_equal(bucket, "box");
	assert_int_equal(store, 1);
	released++;
	return 0;
}

/* ---- What else a store of a cluster has. ---- */

int volumes_rados_open(const struct config *config, struct rv **ret_rados)
{
	(void)config;
	*ret_rados = NULL;
	return 0;
}

void rv_close(struct rv *rv)
{
	(void)rv;
}

int accounts_open(
	bool follows, uint32_t lease_s, struct cluster_opts *opts, struct accounts **ret_accounts)
{
	(void)follows;
	(void)lease_s;
	(void)opts;
	*ret_accounts = NULL;
	return 0;
}

int accounts_start(struct accounts *accounts, struct cluster *cluster, struct s3 *s3)
{
	(void)accounts;
	(void)cluster;
	(void)s3;
	return 0;
}

int accounts_changed(struct accounts *accounts, const char *number)
{
	(void)accounts;
	(void)number;
	return 0;
}

void accounts_stop(struct accounts *accounts)
{
	(void)accounts;
}

void accounts_close(struct accounts *accounts)
{
	(void)accounts;
}

int room_begin(const struct room_opts *opts, struct room **ret_room)
{
	(void)opts;
	*ret_room = NULL;
	return 0;
}

void room_end(struct room *room)
{
	(void)room;
}

int tenure_begin(struct cluster *cluster, uint32_t store, const char *gateway, int end_ms,
	struct tenure **ret_tenure)
{
	(void)cluster;
	(void)store;
	(void)gateway;
	(void)end_ms;
	*ret_tenure = NULL;
	return 0;
}

void tenure_end(struct tenure *tenure)
{
	(void)tenure;
}

bool tenure_lost(const struct tenure *tenure)
{
	(void)tenure;
	return false;
}

/* ---- Tests. ---- */

static void test_a_fenced_store_gives_no_name_back(void **state)
{
	static struct config config = {.cluster = {.store = 2}};
	const struct s3_names *calls;
	struct names *names;
	struct rv *rados;

	(void)state;
	assert_int_equal(names_open(&config, &rados, &names), 0);
	assert_int_equal(names_start(names, NULL, (struct store *)&cut_off), 0);
	calls = names_of(names);
	cut_off = true;
	assert_int_equal(calls->release(calls->arg, "box"), -EROFS);
	assert_int_equal(released, 0);
	cut_off = false;
	assert_int_equal(calls->release(calls->arg, "box"), 0);
	assert_int_equal(released, 1);
	names_stop(names);
	names_close(names, rados);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_fenced_store_gives_no_name_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
