/* tests/unit/gateway/test_route.c: covers gateway/route.c and gateway/pass.c: which bucket a
 * request names, and requests that no single store may answer. */
#include "../unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/gateway_priv.h"

static struct gateway *gateway;
static struct config config;

static int setup(void **state)
{
	(void)state;
	gateway = calloc(1, sizeof(*gateway));
	assert_non_null(gateway);
	config = (struct config){.flow_count = 0};
	gateway->config = &config;
	gw_routes_init(&gateway->routes);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	free(gateway);
	return 0;
}

static void stores_set(uint32_t count)
{
	struct cluster_view *view = calloc(1, sizeof(*view));

	assert_non_null(view);
	view->store_count = count;
	for (uint32_t i = 0; i < count; i++)
		view->stores[i] = (struct cluster_store){.number = i, .generation = 1};
	gw_routes_set(gateway, view);
	free(view);
}

/* ---- Which bucket. ---- */

static void assert_bucket(const char *host, const char *path, const char *bucket, bool has_key)
{
	const struct s3_header header = {SLICE("Host"), slice_str(host)};
	const struct s3_request request = {
		.path = slice_str(path), .headers = &header, .header_count = 1};
	char text[LIMIT_BUCKET_LEN_MAX + 1];
	bool key;

	assert_string_equal(gw_bucket_of(gateway, &request, text, &key).len ? text : "", bucket);
	assert_int_equal(key, has_key);
}

static void test_bucket(void **state)
{
	(void)state;
	assert_bucket("h:9000", "/", "", false);
	assert_bucket("h:9000", "/b%75cket/key", "bucket", true);
	assert_bucket("h:9000", "//bucket/key", "", true);
	snprintf(config.s3.domain, sizeof(config.s3.domain), "%s", "example.net");
	snprintf(config.s3.website_domain, sizeof(config.s3.website_domain), "%s",
		"web.example.net");
	assert_bucket("a.b.Example.net:9000", "/key", "a.b", true);
	assert_bucket("example.net", "/c/key", "c", true);
	/* As s3 has it: the domain of websites first. */
	assert_bucket("a.web.example.net", "/", "a", false);
	config.s3.domain[0] = '\0';
	snprintf(config.s3.domain, sizeof(config.s3.domain), "%s", "s3.web.example.net");
	assert_bucket("a.s3.web.example.net", "/", "a.s3", false);
}

/* ---- Requests for all stores. ---- */

static uint32_t status_seen;

static int head_see(struct s3_reply *reply, uint32_t status, const struct s3_header *headers,
	uint32_t header_count, uint64_t bytes)
{
	(void)reply;
	(void)headers;
	(void)header_count;
	(void)bytes;
	status_seen = status;
	return 0;
}

static int text_see(struct s3_reply *reply, struct slice text)
{
	(void)reply;
	(void)text;
	return 0;
}

static void test_all_stores(void **state)
{
	static const struct s3_reply_ops OPS = {.head = head_see, .text = text_see};
	static const struct s3_header HEADERS[] = {
		{SLICE("host"), SLICE("h")}, {SLICE("X-Amz-Account-Id"), SLICE("1")}};
	struct s3_request request = {.method = S3_PUT,
		.path = SLICE("/v20180820/configuration/publicAccessBlock"),
		.headers = HEADERS,
		.header_count = ARRAY_LEN(HEADERS),
		.peer = "127.0.0.1:1"};
	struct s3_reply reply = {.ops = &OPS};
	struct gw_core core = {.gateway = gateway};

	(void)state;
	stores_set(2);
	gw_handle(&core, &request, &reply);
	/* Store 0's to answer, which has no process here. */
	assert_true(gw_of_account(&request));
	assert_int_equal(status_seen, 503);
	/* Accounts: a query does not make it another request. */
	request = (struct s3_request){.method = S3_POST,
		.path = SLICE("/"),
		.query = SLICE("Action=CreateUser"),
		.headers = HEADERS,
		.header_count = 1,
		.peer = "127.0.0.1:1"};
	status_seen = 0;
	gw_handle(&core, &request, &reply);
	assert_int_equal(status_seen, 503);
	/* Without the header it is an object of a bucket. */
	request.path = SLICE("/v20180820/configuration/publicAccessBlock");
	assert_false(gw_of_account(&request));
}

static void test_roomy(void **state)
{
	uint32_t seen[4];

	(void)state;
	atomic_store(&gateway->routes.roomy, 0);
	assert_int_equal(gw_roomy_store(gateway), 0);
	atomic_store(&gateway->routes.roomy, 1ull << 2 | 1ull << 63 | 1);
	for (size_t i = 0; i < ARRAY_LEN(seen); i++)
		seen[i] = gw_roomy_store(gateway);
	assert_true(seen[0] != seen[1] && seen[1] != seen[2] && seen[0] != seen[2]);
	assert_true(seen[0] == seen[3] && (seen[0] ^ seen[1] ^ seen[2]) == (2 ^ 63));
}

static void assert_roomy(
	const struct cluster_view *view, const struct cluster_room *rooms, uint64_t roomy)
{
	struct cluster_room all[CLUSTER_STORES_MAX] = {0};

	memcpy(all, rooms, view->store_count * sizeof(*rooms));
	gw_rooms_set(&gateway->routes, view, all);
	assert_int_equal(atomic_load(&gateway->routes.roomy), roomy);
}

static void test_rooms(void **state)
{
	/* The third is full; the last two have no limit of their own. */
	static const struct cluster_room SAME[] = {{100 * MIB, 0}, {163 * MIB, 0}, {164 * MIB, 0}};
	static const struct cluster_room LIMITS[] = {
		{900 * MIB, 1000 * MIB}, {100 * MIB, 300 * MIB}, {200 * MIB, 100 * MIB}};
	static const struct cluster_room MIXED[] = {
		{0, 1000 * MIB}, {5000 * MIB, 0}, {1000 * MIB, 0}};
	struct cluster_view *view = calloc(1, sizeof(*view));

	(void)state;
	assert_non_null(view);
	view->store_count = 3;
	for (uint32_t i = 0; i < 3; i++)
		view->stores[i].state = CLUSTER_SERVING;
	assert_roomy(view, SAME, 3);
	assert_roomy(view, LIMITS, 2);
	assert_roomy(view, MIXED, 4);
	view->stores[2].state = CLUSTER_OPENING;
	assert_roomy(view, MIXED, 2);
	assert_int_equal(atomic_load(&gateway->routes.used[1]), 5000 * MIB);
	free(view);
}

/* ---- Set-ups of RDMA. ---- */

static void bucket_know(const char *name, uint32_t store)
{
	struct gw_bucket *slot =
		&gateway->routes.buckets[crc32c_update(0, name, strlen(name)) % GW_BUCKETS_CACHED];

	snprintf(slot->name, sizeof(slot->name), "%s", name);
	slot->store = store;
	slot->until_ns = UINT64_MAX;
}

static void assert_rdma(const char *path, const char *query, const char *header, const char *value,
	int ret, uint32_t store)
{
	const struct s3_header headers[] = {{slice_str(header), slice_str(value)}};
	const struct s3_request request = {.method = S3_POST,
		.path = slice_str(path),
		.query = slice_str(query),
		.headers = headers,
		.header_count = 1};
	uint32_t found = 99;

	assert_int_equal(gw_rdma_store(gateway, &request, &found), ret);
	if (!ret)
		assert_int_equal(found, store);
}

static void test_rdma(void **state)
{
	static const char connect[] = "rdma-connect=", named[] = "x-nebulaio-rdma-bucket";
	static const char ready[] = "/.hipobj-rc/ready", prepare[] = "/.hipobj-rc/prepare";
	static const char session[] = "x-amz-rdma-session", target[] = "x-amz-rdma-target";
	const struct s3_header headers[] = {{slice_str(named), SLICE("third")}};
	struct s3_request request = {.path = SLICE("/"),
		.query = SLICE("rdma-connect"),
		.headers = headers,
		.header_count = 1};

	(void)state;
	stores_set(3);
	bucket_know("third", 2);
	assert_rdma("/", connect, named, "third", 0, 2);
	assert_rdma("/", "rdma-connect", named, "third", 0, 2);
	assert_rdma("/", connect, "x-other", "third", 0, 0);
	assert_rdma("/", connect, named, "No Bucket", 0, 0);
	assert_rdma("/", "rdma-connected", named, "third", -ENODATA, 0);
	assert_rdma("/third", connect, named, "third", -ENODATA, 0);
	assert_rdma(prepare, "", target, "/th%69rd/a/b?partNumber=1", 0, 2);
	assert_rdma(prepare, "", target, "/", 0, 0);
	assert_rdma(ready, "", session, "00020000000000000000000000000000", 0, 2);
	assert_rdma(ready, "", session, "02010000000000000000000000000000", 0, 1);
	assert_rdma(ready, "", session, "00030000000000000000000000000000", 0, 0);
	assert_rdma(ready, "", session, "0002", 0, 0);
	/* A queue pair is for one store, if there are several. */
	assert_true(slice_eq(gw_rdma_bucket(gateway, &request), SLICE("third")));
	request.query = SLICE("location");
	assert_null(gw_rdma_bucket(gateway, &request).data);
	teardown(NULL);
	setup(NULL);
	stores_set(1);
	request.query = SLICE("rdma-connect");
	assert_null(gw_rdma_bucket(gateway, &request).data);
}

/* ---- Copies. ---- */

static void assert_source(const char *query, const char *header, const char *value, uint32_t store)
{
	const struct s3_header headers[] = {{slice_str(header), slice_str(value)}};
	const struct s3_request request = {.method = S3_PUT,
		.path = SLICE("/first/key"),
		.query = slice_str(query),
		.headers = headers,
		.header_count = 1};
	uint32_t found = 1;

	assert_int_equal(gw_copy_store(gateway, &request, &found), 0);
	assert_int_equal(found, store);
}

static void test_copy_source(void **state)
{
	static const char source[] = "x-amz-copy-source";
	static const char query[] = "X-Amz-Copy-Source=%2Fthird%2Fa&X-Amz-Signature=1";

	(void)state;
	stores_set(3);
	bucket_know("third", 2);
	bucket_know("second", 1);
	assert_source("", "x-other", "", 1);
	assert_source("", source, "third/a", 2);
	/* Presigned. */
	assert_source(query, "x-other", "", 2);
	assert_source(
		"uploadId=1&x-amz-copy-source=th%2569rd/a&X-Amz-Signature=1", "x-other", "", 2);
	assert_source("x-amz-copy-source=third/a&Signature=1&AWSAccessKeyId=1", "x-other", "", 2);
	assert_source("x-amz-copy-source=%zz&X-Amz-Signature=1", "x-other", "", 1);
	assert_source("x-amz-copy-source&X-Amz-Signature=1", "x-other", "", 1);
	/* The store takes the header, and no parameter of a request that is not presigned. */
	assert_source(query, source, "second/a", 1);
	assert_source(query, "authorization", "", 1);
	assert_source("x-amz-copy-source=third/a", "x-other", "", 1);
	assert_source("x-amz-copy-source=third/a&x-amz-signature=1", "x-other", "", 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_bucket, setup, teardown),
		cmocka_unit_test_setup_teardown(test_all_stores, setup, teardown),
		cmocka_unit_test_setup_teardown(test_roomy, setup, teardown),
		cmocka_unit_test_setup_teardown(test_rooms, setup, teardown),
		cmocka_unit_test_setup_teardown(test_rdma, setup, teardown),
		cmocka_unit_test_setup_teardown(test_copy_source, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
