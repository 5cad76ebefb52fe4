/* Requests between libnebulaio and the native front, by simulated RDMA: sizes, kinds of memory,
 * errors, many in flight, lost sessions. */
#include "../unit.h"
#include "../counted.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "rig.h"

#define B "bucket"

/* Room for bodies of 64 MiB. */
static int setup(void **state)
{
	const struct rig_opts opts = {.region_bytes = 192 * MIB};

	*state = rig_open(&opts);
	return 0;
}

/* The same server, which refuses clients without encryption. */
static int setup_encrypted(void **state)
{
	const struct rig_opts opts = {.encrypted = true, .region_bytes = 192 * MIB};

	*state = rig_open(&opts);
	return 0;
}

static int teardown(void **state)
{
	rig_close(*state);
	return 0;
}

static void test_ping(void **state)
{
	struct neb_client *client = rig_client(*state, NEB_STRICT);
	struct neb_result result;

	assert_int_equal(neb_ping(client, &result), 0);
	assert_int_equal(result.status, 200);
	assert_int_equal(result.transport, NEB_RDMA);
	assert_int_equal(strlen(result.request_id), 16);
	neb_client_close(client);
}

/* ---- Sizes and memory. ---- */

enum memory { POOL, REGISTERED, HEAP };

static uint8_t *memory_get(struct neb_client *client, enum memory kind, size_t bytes)
{
	void *data = NULL;

	if (kind == POOL) {
		assert_int_equal(neb_buffer_alloc(client, bytes ? bytes : 1, &data), 0);
		return data;
	}
	data = malloc(bytes ? bytes : 1);
	assert_non_null(data);
	if (kind == REGISTERED && bytes)
		assert_int_equal(neb_register(client, data, bytes), 0);
	return data;
}

static void memory_put(struct neb_client *client, enum memory kind, size_t bytes, void *data)
{
	if (kind == POOL) {
		neb_buffer_free(client, data);
		return;
	}
	if (kind == REGISTERED && bytes)
		assert_int_equal(neb_unregister(client, data), 0);
	free(data);
}

static void round_trip(struct neb_client *client, enum memory kind, size_t bytes)
{
	uint8_t *out = memory_get(client, kind, bytes), *in = memory_get(client, kind, bytes);
	uint64_t copied = region_copy_bytes_all();
	struct neb_stats before, after;
	struct neb_result put, got;

	rig_fill(out, bytes, bytes + 1);
	memset(in, 0, bytes);
	neb_client_stats(client, &before);
	assert_int_equal(neb_put(client, B, "object", out, bytes, &put), 0);
	assert_int_equal(put.transport, NEB_RDMA);
	assert_int_equal(strlen(put.etag), 16);
	assert_int_equal(neb_get(client, B, "object", in, bytes, &got), 0);
	assert_int_equal(got.status, 200);
	assert_int_equal(got.bytes, bytes);
	assert_int_equal(got.object_bytes, bytes);
	assert_string_equal(got.etag, put.etag);
	assert_memory_equal(in, out, bytes);
	neb_client_stats(client, &after);
	if (bytes > 4096) /* neither inline nor a record: no copy on either side */
		assert_int_equal(region_copy_bytes_all(), copied);
	if (kind != HEAP && bytes > 4096)
		assert_int_equal(after.bytes_copied, before.bytes_copied);
	if (kind != HEAP)
		assert_int_equal(after.registrations, before.registrations);
	memory_put(client, kind, bytes, out);
	memory_put(client, kind, bytes, in);
}

static void test_sizes(void **state)
{
	static const size_t sizes[] = {0, 1, 511, 512, 513, 1024, 1025, 4095, 4096, 4097, 65535,
		65536, 65537, 262144, 262145, MIB - 1, MIB, MIB + 1, 64 * MIB};
	struct neb_client *client = rig_client(*state, NEB_STRICT);

	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		round_trip(client, POOL, sizes[i]);
		round_trip(client, REGISTERED, sizes[i]);
		round_trip(client, HEAP, sizes[i]);
	}
	neb_client_close(client);
}

/* The same memory again: registered once, found in the cache afterwards, and registered again after
 * its removal. */
static void test_registration_cache(void **state)
{
	struct neb_options options = {.endpoints = rig_endpoint(*state),
		.access_key = RIG_ACCESS_KEY,
		.secret_key = RIG_SECRET_KEY,
		.transport = NEB_STRICT,
		.registration_cache_bytes = 16 * MIB};
	uint8_t *out = malloc(2 * MIB), *in = out + MIB;
	struct neb_client *client;
	struct neb_result result;
	struct neb_stats stats;

	assert_int_equal(neb_client_open(&options, &client), 0);
	rig_fill(out, MIB, 3);
	for (int i = 0; i < 5; i++) {
		assert_int_equal(neb_put(client, B, "object", out, MIB, &result), 0);
		assert_int_equal(neb_get(client, B, "object", in, MIB, &result), 0);
		assert_memory_equal(in, out, MIB);
	}
	neb_client_stats(client, &stats);
	assert_int_equal(stats.registrations, 0);
	assert_int_equal(stats.registration_misses, 2);
	assert_int_equal(stats.registration_hits, 8);
	assert_int_equal(neb_memory_forget(client, out, 2 * MIB), 0);
	assert_int_equal(neb_memory_forget(client, NULL, 1), -EINVAL);
	assert_int_equal(neb_get(client, B, "object", in, MIB, &result), 0);
	assert_memory_equal(in, out, MIB);
	neb_client_stats(client, &stats);
	assert_int_equal(stats.bytes_copied, 0);
	assert_int_equal(stats.registration_misses, 3);
	assert_int_equal(neb_memory_forget(client, out, 2 * MIB), 0);
	free(out);
	neb_client_close(client);
}

static void test_inline_thresholds(void **state)
{
	static const uint32_t limits[] = {1, 100, 4096, UINT32_MAX};
	struct rig *rig = *state;

	for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
		struct neb_options options = {.endpoints = rig_endpoint(rig),
			.access_key = RIG_ACCESS_KEY,
			.secret_key = RIG_SECRET_KEY,
			.transport = NEB_STRICT,
			.inline_bytes_max = limits[i]};
		struct neb_client *client;

		assert_int_equal(neb_client_open(&options, &client), 0);
		for (size_t bytes = 0; bytes <= 5000; bytes += bytes < 200 ? 1 : 401)
			round_trip(client, HEAP, bytes);
		round_trip(client, POOL, limits[i] == UINT32_MAX ? 7 : limits[i] - 1);
		round_trip(client, POOL, limits[i] == UINT32_MAX ? 8 : limits[i]);
		round_trip(client, POOL, limits[i] == UINT32_MAX ? 9 : limits[i] + 1);
		neb_client_close(client);
	}
}

static void test_scatter(void **state)
{
	struct neb_client *client = rig_client(*state, NEB_STRICT);
	const size_t bytes = 3 * MIB + 12345;
	uint8_t *out = memory_get(client, POOL, bytes), *in = memory_get(client, POOL, bytes);
	struct neb_iov body[3] = {{out, 7}, {out + 7, MIB}, {out + 7 + MIB, bytes - MIB - 7}};
	struct neb_iov into[4] = {{in, 2 * MIB}, {in + 2 * MIB, 0}, {in + 2 * MIB, 1},
		{in + 2 * MIB + 1, MIB + 20000}};
	struct neb_request put = {.op = NEB_PUT_OBJECT,
		.bucket = B,
		.key = "scattered",
		.body = body,
		.body_count = 3};
	struct neb_request get = {.op = NEB_GET_OBJECT,
		.bucket = B,
		.key = "scattered",
		.into = into,
		.into_count = 4};
	struct neb_result result;

	into[3].bytes = bytes - 2 * MIB - 1;
	rig_fill(out, bytes, 5);
	assert_int_equal(neb_perform(client, &put, NULL), 0);
	assert_int_equal(neb_perform(client, &get, &result), 0);
	assert_int_equal(result.bytes, bytes);
	assert_memory_equal(in, out, bytes);
	neb_client_close(client);
}

/* ---- Operations and errors. ---- */

static void test_range(void **state)
{
	struct neb_client *client = rig_client(*state, NEB_STRICT);
	const size_t bytes = 2 * MIB + 100;
	uint8_t *out = memory_get(client, POOL, bytes), *in = memory_get(client, POOL, bytes);
	struct neb_iov into = {in, bytes};
	struct neb_request get = {
		.op = NEB_GET_OBJECT, .bucket = B, .key = "r", .into = &into, .into_count = 1};
	struct neb_result result;

	rig_fill(out, bytes, 6);
	assert_int_equal(neb_put(client, B, "r", out, bytes, NULL), 0);
	get.range_offset = MIB - 50;
	get.range_bytes = 100; /* over the border of two chunks */
	assert_int_equal(neb_perform(client, &get, &result), 0);
	assert_int_equal(result.status, 206);
	assert_int_equal(result.bytes, 100);
	assert_memory_equal(in, out + MIB - 50, 100);
	get.range_offset = bytes - 10;
	get.range_bytes = 1000; /* cut at the end */
	assert_int_equal(neb_perform(client, &get, &result), 0);
	assert_int_equal(result.bytes, 10);
	assert_memory_equal(in, out + bytes - 10, 10);
	get.range_offset = bytes;
	assert_int_equal(neb_perform(client, &get, &result), -ERANGE);
	assert_string_equal(result.code, "InvalidRange");
	get.range_bytes = UINT64_MAX;
	assert_int_equal(neb_perform(client, &get, &result), -EINVAL);
	neb_client_close(client);
}

static void test_head_delete(void **state)
{
	struct neb_client *client = rig_client(*state, NEB_STRICT);
	struct neb_result result;
	const char *value;

	assert_int_equal(neb_put(client, B, "k\xc3\xa4se/\xf0\x9f\xa7\x80", "12345", 5, NULL), 0);
	assert_int_equal(neb_head(client, B, "k\xc3\xa4se/\xf0\x9f\xa7\x80", &result), 0);
	assert_int_equal(result.object_bytes, 5);
	assert_int_equal(result.bytes, 0);
	assert_int_equal(neb_result_header(&result, "X-Amz-Meta-Colour", &value), 4);
	assert_memory_equal(value, "blue", 4);
	assert_int_equal(neb_result_header(&result, "absent", &value), -ENOENT);
	assert_int_equal(neb_delete(client, B, "k\xc3\xa4se/\xf0\x9f\xa7\x80", &result), 0);
	assert_int_equal(result.status, 204);
	assert_int_equal(neb_head(client, B, "k\xc3\xa4se/\xf0\x9f\xa7\x80", &result), -ENOENT);
	neb_client_close(client);
}

static void test_errors(void **state)
{
	struct neb_client *client = rig_client(*state, NEB_STRICT);
	char data[3000];
	char long_key[LIMIT_KEY_LEN_MAX + 2];
	struct neb_result result;

	assert_int_equal(neb_get(client, B, "nothing", data, sizeof(data), &result), -ENOENT);
	assert_int_equal(result.status, 404);
	assert_string_equal(result.code, "NoSuchKey");
	assert_string_equal(result.message, "It's NoSuchKey & so on");
	assert_int_equal(neb_put(client, B, "big", data, sizeof(data), NULL), 0);
	assert_int_equal(neb_get(client, B, "big", data, sizeof(data) - 1, &result), -EMSGSIZE);
	assert_string_equal(result.code, "BufferTooSmall");
	assert_int_equal(result.object_bytes, sizeof(data));
	assert_int_equal(neb_get(client, B, "big", data, 10, &result), -EMSGSIZE);
	assert_int_equal(neb_put(client, B, "small", data, 5, NULL), 0);
	assert_int_equal(neb_get(client, B, "small", data, 4, &result), -EMSGSIZE); /* inline */
	assert_string_equal(result.code, "BufferTooSmall");
	assert_int_equal(result.object_bytes, 5);
	assert_int_equal(neb_get(client, B, "small", data, 5, &result), 0);
	assert_int_equal(neb_put(client, B, "broken-1", data, sizeof(data), NULL), 0);
	assert_int_equal(neb_get(client, B, "broken-1", data, sizeof(data), &result), -EIO);
	assert_string_equal(result.code, "RDMATransferFailed");
	memset(long_key, 'k', sizeof(long_key));
	long_key[LIMIT_KEY_LEN_MAX + 1] = '\0';
	assert_int_equal(neb_head(client, B, long_key, &result), -EINVAL);
	assert_int_equal(result.status, 0);
	long_key[LIMIT_KEY_LEN_MAX] = '\0';
	assert_int_equal(neb_head(client, B, long_key, &result), -ENOENT);
	neb_client_close(client);
}

struct listing {
	uint32_t count;
	uint64_t bytes;
	uint32_t stop_at;
};

static bool on_entry(void *arg, const struct neb_entry *entry)
{
	struct listing *listing = arg;

	assert_true(strncmp(entry->key, "list/<&", 7) == 0);
	assert_int_equal(strlen(entry->etag), 16);
	listing->bytes += entry->bytes;
	return ++listing->count != listing->stop_at;
}

static void test_list(void **state)
{
	struct neb_client *client = rig_client(*state, NEB_STRICT);
	struct listing listing = {0};
	struct neb_list list = {
		.bucket = B, .prefix = "list/<&", .visit = on_entry, .arg = &listing};
	char key[64];

	assert_int_equal(neb_put(client, B, "other", "x", 1, NULL), 0);
	for (uint32_t i = 0; i < 300; i++) {
		snprintf(key, sizeof(key), "list/<&%03u", i);
		assert_int_equal(neb_put(client, B, key, key, i % 50, NULL), 0);
	}
	/* The fake compares the encoded prefix, so this one needs no encoding. */
	list.prefix = "list/";
	assert_int_equal(neb_list(client, &list, NULL), 0);
	assert_int_equal(listing.count, 0);
	list.prefix = "list";
	assert_int_equal(neb_list(client, &list, NULL), 0);
	assert_int_equal(listing.count, 300);
	assert_int_equal(listing.bytes, 6 * 1225);
	listing = (struct listing){.stop_at = 7};
	assert_int_equal(neb_list(client, &list, NULL), 0);
	assert_int_equal(listing.count, 7);
	neb_client_close(client);
}

static void routed(struct neb_client *client, struct neb_request *request, const char *expected)
{
	char text[512];
	struct neb_iov into = {text, sizeof(text)};
	struct neb_result result;

	request->into = &into;
	request->into_count = 1;
	assert_int_equal(neb_perform(client, request, &result), 0);
	assert_int_equal(result.bytes, strlen(expected));
	assert_memory_equal(text, expected, strlen(expected));
}

/* An operation without an opcode of its own is sent in the form of HTTP. */
static void test_routed(void **state)
{
	struct neb_client *client = rig_client(*state, NEB_STRICT);
	struct neb_request request = {.op = NEB_GET_TAGGING, .bucket = B, .key = "a b/\xc3\xa4"};

	routed(client, &request, "GET /bucket/a%20b/%C3%A4?tagging");
	request = (struct neb_request){
		.op = NEB_GET_OBJECT, .bucket = B, .key = "k", .version_id = "v/1"};
	routed(client, &request, "GET /bucket/k?versionId=v%2F1");
	request = (struct neb_request){
		.op = NEB_UPLOAD_PART, .bucket = B, .key = "k", .query = "partNumber=2&uploadId=x"};
	routed(client, &request, "PUT /bucket/k?partNumber=2&uploadId=x");
	request = (struct neb_request){.op = NEB_LIST_MULTIPART, .bucket = B, .query = "prefix=a"};
	routed(client, &request, "GET /bucket?uploads&prefix=a");
	request = (struct neb_request){
		.op = NEB_S3, .method = "POST", .path = "/b/k%20", .query = "restore"};
	routed(client, &request, "POST /b/k%20?restore");
	request = (struct neb_request){.op = NEB_LIST_BUCKETS};
	routed(client, &request, "GET /?");
	request = (struct neb_request){.op = NEB_S3, .method = "BREW", .path = "/"};
	assert_int_equal(neb_perform(client, &request, NULL), -EINVAL);
	request = (struct neb_request){.op = (enum neb_op)33};
	assert_int_equal(neb_perform(client, &request, NULL), -EINVAL);
	neb_client_close(client);
}

static void test_header_of_ours(void **state)
{
	struct neb_client *client = rig_client(*state, NEB_STRICT);
	struct neb_header header = {"Content-Length", "5"};
	struct neb_request request = {.op = NEB_HEAD_OBJECT,
		.bucket = B,
		.key = "k",
		.headers = &header,
		.header_count = 1};
	struct neb_result result;

	assert_int_equal(neb_perform(client, &request, &result), -EINVAL);
	assert_string_equal(result.code, "MalformedCapsule");
	header.name = "bad name";
	assert_int_equal(neb_perform(client, &request, &result), -EINVAL);
	assert_int_equal(result.status, 0);
	assert_int_equal(neb_ping(client, NULL), 0); /* the session continues */
	neb_client_close(client);
}

/* ---- Many at a time. ---- */

static void test_out_of_order(void **state)
{
	struct rig *rig = *state;
	struct neb_client *client = rig_client(rig, NEB_STRICT);
	struct neb_result results[64];
	uint8_t *data = memory_get(client, POOL, 64 * 8192);
	uint32_t early = 0, late = 0;
	int count;

	rig_fill(data, 8192, 9);
	assert_int_equal(neb_put(client, B, "held-1", data, 8192, NULL), 0);
	assert_int_equal(neb_put(client, B, "free-1", data, 8192, NULL), 0);
	for (uintptr_t i = 0; i < 64; i++) {
		struct neb_iov into = {data + i * 8192, 8192};
		struct neb_request get = {.op = NEB_GET_OBJECT,
			.bucket = B,
			.key = i % 2 ? "free-1" : "held-1",
			.into = &into,
			.into_count = 1,
			.user_data = (void *)i};

		assert_int_equal(neb_submit(client, &get, NULL), 0);
	}
	while (early < 32) {
		count = neb_wait(client, results, 64, 60 * NS_PER_S);
		assert_true(count > 0);
		for (int i = 0; i < count; i++) {
			assert_int_equal(results[i].error, 0);
			assert_int_equal((uintptr_t)results[i].user_data % 2, 1);
		}
		early += (uint32_t)count;
	}
	assert_int_equal(neb_in_flight(client), 32);
	assert_int_equal(neb_wait(client, results, 64, NS_PER_MS), -ETIMEDOUT);
	rig_release_held(rig);
	while (late < 32) {
		count = neb_wait(client, results, 64, 60 * NS_PER_S);
		assert_true(count > 0);
		for (int i = 0; i < count; i++)
			assert_int_equal((uintptr_t)results[i].user_data % 2, 0);
		late += (uint32_t)count;
	}
	assert_int_equal(neb_in_flight(client), 0);
	assert_int_equal(neb_wait(client, results, 64, NS_PER_S), 0);
	for (uint32_t i = 1; i < 64; i++)
		assert_memory_equal(data, data + i * 8192, 8192);
	neb_client_close(client);
}

static void test_more_than_credits(void **state)
{
	struct neb_client *client = rig_client(*state, NEB_STRICT);
	uint8_t *data = memory_get(client, POOL, 1000);
	struct neb_iov body = {data, 1000};
	struct neb_result results[16];
	uint32_t done = 0;
	char key[32];

	rig_fill(data, 1000, 4);
	for (uint32_t i = 0; i < 500; i++) {
		struct neb_request put = {.op = NEB_PUT_OBJECT,
			.bucket = B,
			.key = key,
			.body = &body,
			.body_count = 1};

		snprintf(key, sizeof(key), "many-%u", i);
		assert_int_equal(neb_submit(client, &put, NULL), 0);
	}
	while (done < 500) {
		int count = neb_wait(client, results, 16, 60 * NS_PER_S);

		assert_true(count > 0);
		for (int i = 0; i < count; i++)
			assert_int_equal(results[i].error, 0);
		done += (uint32_t)count;
	}
	neb_client_close(client);
}

/* ---- Sessions that are not established, or end. ---- */

static char last_log[512];

static void keep_log(void *arg, enum neb_log_level level, const char *text)
{
	(void)arg;
	if (level >= NEB_LOG_WARN)
		snprintf(last_log, sizeof(last_log), "%s", text);
}

static int open_with(struct rig *rig, const char *access_key, const char *secret_key)
{
	struct neb_options options = {.endpoints = rig_endpoint(rig),
		.access_key = access_key,
		.secret_key = secret_key,
		.transport = NEB_STRICT,
		.log = keep_log};
	struct neb_client *client = NULL;
	int ret = neb_client_open(&options, &client);

	last_log[sizeof(last_log) - 1] = '\0';
	if (ret == 0)
		neb_client_close(client);
	return ret;
}

static void test_wrong_keys(void **state)
{
	struct rig *rig = *state;

	assert_int_equal(open_with(rig, RIG_ACCESS_KEY, "wrong"), -EACCES);
	assert_non_null(strstr(last_log, "SignatureDoesNotMatch"));
	assert_int_equal(open_with(rig, "nobody", RIG_SECRET_KEY), -EACCES);
	assert_non_null(strstr(last_log, "InvalidAccessKeyId"));
	assert_int_equal(open_with(rig, RIG_ACCESS_KEY, RIG_SECRET_KEY), 0);
	assert_true(rig_sessions_become(rig, 0));
	assert_int_equal(rig_frames_used(rig), 0);
}

static void test_no_listener(void **state)
{
	struct neb_options options = {.endpoints = "rdma://127.0.0.1:1",
		.access_key = "a",
		.secret_key = "s",
		.transport = NEB_STRICT,
		.log = keep_log};
	struct neb_client *client = NULL;
	struct neb_result result;

	(void)state;
	assert_int_equal(neb_client_open(&options, &client), -ECONNREFUSED);
	/* The client does not wait for a server that never existed. */
	options.transport = NEB_RDMA;
	assert_int_equal(neb_client_open(&options, &client), 0);
	assert_int_equal(neb_ping(client, &result), -ECONNREFUSED);
	assert_int_equal(result.transport, NEB_NONE);
	neb_client_close(client);
	options.endpoints = "rdma//nonsense";
	assert_int_equal(neb_client_open(&options, &client), -EINVAL);
	options.endpoints = "http://127.0.0.1:9000";
	assert_int_equal(neb_client_open(&options, &client), -EINVAL);
}

static void test_drain(void **state)
{
	struct rig *rig = *state;
	struct neb_client *client = rig_client(rig, NEB_STRICT);
	struct neb_result result;

	assert_int_equal(neb_ping(client, &result), 0);
	rig_drain(rig);
	/* STRICT does not retry: the request fails with the ended session. */
	assert_true(neb_ping(client, &result) < 0);
	assert_int_equal(result.status, 0);
	neb_client_close(client);
}

static void *drain_main(void *rig)
{
	rig_drain(rig);
	return NULL;
}

static void *wake_main(void *arg)
{
	neb_wake(arg);
	return NULL;
}

/* Another thread can end a wait once, whether it sleeps or has not started yet. */
static void test_wake(void **state)
{
	struct rig *rig = *state;
	struct neb_client *client = rig_client(rig, NEB_STRICT);
	uint8_t *data = memory_get(client, POOL, 50000);
	struct neb_iov into = {data, 50000};
	struct neb_request get = {
		.op = NEB_GET_OBJECT, .bucket = B, .key = "held-4", .into = &into, .into_count = 1};
	struct neb_result result;
	pthread_t thread;

	rig_fill(data, 50000, 3);
	assert_int_equal(neb_put(client, B, "held-4", data, 50000, NULL), 0);
	assert_int_equal(neb_submit(client, &get, NULL), 0);
	neb_wake(client);
	neb_wake(client);
	assert_int_equal(neb_ping(client, NULL), 0);
	assert_int_equal(neb_wait(client, &result, 1, 60 * NS_PER_S), -EINTR);
	assert_int_equal(neb_wait(client, &result, 1, NS_PER_MS), -ETIMEDOUT);
	for (int i = 0; i < 20; i++) {
		assert_int_equal(pthread_create(&thread, NULL, wake_main, client), 0);
		assert_int_equal(neb_wait(client, &result, 1, 60 * NS_PER_S), -EINTR);
		assert_int_equal(pthread_join(thread, NULL), 0);
	}
	rig_release_held(rig);
	assert_int_equal(neb_wait(client, &result, 1, 60 * NS_PER_S), 1);
	assert_int_equal(result.error, 0);
	neb_client_close(client);
}

/* Requests in flight when the server began to stop are still answered. */
static void test_drain_in_flight(void **state)
{
	struct rig *rig = *state;
	struct neb_client *client = rig_client(rig, NEB_STRICT);
	uint8_t *data = memory_get(client, POOL, 50000);
	struct neb_iov into = {data, 50000};
	struct neb_request get = {
		.op = NEB_GET_OBJECT, .bucket = B, .key = "held-3", .into = &into, .into_count = 1};
	struct neb_result result;
	pthread_t thread;

	rig_fill(data, 50000, 3);
	assert_int_equal(neb_put(client, B, "held-3", data, 50000, NULL), 0);
	memset(data, 0, 50000);
	assert_int_equal(neb_submit(client, &get, NULL), 0);
	assert_int_equal(neb_ping(client, NULL), 0);
	assert_int_equal(pthread_create(&thread, NULL, drain_main, rig), 0);
	while (neb_ping(client, &result) == 0)
		continue;
	assert_int_equal(neb_in_flight(client), 1);
	rig_release_held(rig);
	assert_int_equal(neb_wait(client, &result, 1, 60 * NS_PER_S), 1);
	assert_int_equal(result.error, 0);
	assert_int_equal(result.bytes, 50000);
	assert_int_equal(pthread_join(thread, NULL), 0);
	neb_client_close(client);
}

/* A client that closes with requests in flight leaves nothing allocated in the server. */
static void test_close_in_flight(void **state)
{
	struct rig *rig = *state;
	struct neb_client *client = rig_client(rig, NEB_RDMA);
	uint8_t *data = memory_get(client, HEAP, 200000);
	struct neb_iov into = {data, 200000};
	struct neb_request get = {
		.op = NEB_GET_OBJECT, .bucket = B, .key = "held-4", .into = &into, .into_count = 1};

	assert_int_equal(neb_put(client, B, "held-4", data, 200000, NULL), 0);
	for (uint32_t i = 0; i < 100; i++) /* more than the session's credits */
		assert_int_equal(neb_submit(client, &get, NULL), 0);
	assert_int_equal(neb_in_flight(client), 100);
	neb_client_close(client);
	rig_release_held(rig);
	assert_true(rig_sessions_become(rig, 0));
	free(data);
}

static void test_idle_session(void **state)
{
	struct rig_opts opts = {.idle_timeout_ns = NS_PER_S};
	struct rig *rig = rig_open(&opts);
	struct neb_client *client = rig_client(rig, NEB_RDMA);
	struct neb_result result;
	struct neb_stats stats;

	(void)state;
	assert_int_equal(neb_ping(client, &result), 0);
	assert_true(rig_sessions_become(rig, 0));
	assert_int_equal(rig_frames_used(rig), 0);
	/* The next request sets up a new session. */
	assert_int_equal(neb_ping(client, &result), 0);
	neb_client_stats(client, &stats);
	/* More than two where this thread stood for longer than the limit before a ping. */
	assert_true(stats.sessions_opened >= 2);
	neb_client_close(client);
	rig_close(rig);
}

/* A server that does not answer in time: the session is given up, and with it its claim on our
 * memory. */
static void test_deadline(void **state)
{
	struct rig *rig = *state;
	struct neb_client *client = rig_client(rig, NEB_STRICT);
	uint8_t *data = memory_get(client, POOL, 100000);
	struct neb_iov into = {data, 100000};
	struct neb_request get = {.op = NEB_GET_OBJECT,
		.bucket = B,
		.key = "held-2",
		.into = &into,
		.into_count = 1,
		.timeout_ns = 50 * NS_PER_MS};
	struct neb_result result;

	assert_int_equal(neb_put(client, B, "held-2", data, 100000, NULL), 0);
	assert_int_equal(neb_perform(client, &get, &result), -ETIMEDOUT);
	rig_release_held(rig);
	assert_true(rig_sessions_become(rig, 0));
	neb_client_close(client);
}

/* ---- A bad fabric. ---- */

/* The transport handles lost and delayed messages and receivers that are not ready. */
static void test_faults_that_heal(void **state)
{
	struct rig_opts opts = {.device_name = "simulated:seed=5,drop=0.02,rnr=0.02"};
	struct rig *rig = rig_open(&opts);
	struct neb_client *client = rig_client(rig, NEB_STRICT);
	struct prng prng;

	(void)state;
	prng_seed(&prng, 11);
	for (uint32_t i = 0; i < 200; i++)
		round_trip(client, i % 2 ? POOL : HEAP, prng_below(&prng, i % 10 ? 9000 : MIB));
	neb_client_close(client);
	rig_close(rig);
}

#define STAND_NS (9 * NS_PER_S / 2)

/* A server that did not run does not treat the client's silence as a failure. */
static void test_standing_still(void **state)
{
	struct rig_opts opts = {.idle_timeout_ns = 4 * NS_PER_S};
	struct rig *rig = rig_open(&opts);
	struct neb_client *client = rig_client(rig, NEB_RDMA);
	uint64_t idle_ns = clock_now_ns() + STAND_NS + opts.idle_timeout_ns; /* it may end then */
	struct neb_stats stats;

	(void)state;
	assert_int_equal(neb_ping(client, NULL), 0);
	rig_stand_still(rig, STAND_NS);
	/* As many turns of its event loop, if time permits: late timers fire one by one. */
	for (uint32_t i = 0; i < 2000 && clock_now_ns() < idle_ns - 2 * NS_PER_S; i++)
		assert_true(rig_sessions(rig) == 1 || clock_now_ns() >= idle_ns);
	assert_int_equal(neb_ping(client, NULL), 0);
	neb_client_stats(client, &stats);
	assert_true(stats.sessions_opened == 1 || clock_now_ns() >= idle_ns);
	neb_client_close(client);
	rig_close(rig);
}

#define QUEUED 40u

/* The device takes a tenth of a second for each operation, so the last of many bodies does not move
 * for twice the time limit of a transfer; but those before it move. */
static void test_queued_transfers(void **state)
{
	struct rig_opts opts = {
		.device_name = "simulated:delay_us=100000", .request_timeout_ns = 2 * NS_PER_S};
	struct rig *rig = rig_open(&opts);
	struct neb_client *client = rig_client(rig, NEB_STRICT);
	struct neb_iov body = {memory_get(client, POOL, 20000), 20000};
	struct neb_request put = {
		.op = NEB_PUT_OBJECT, .bucket = B, .key = "k", .body = &body, .body_count = 1};
	struct neb_result result;

	(void)state;
	rig_fill(body.data, 20000, 1);
	for (uint32_t i = 0; i < QUEUED; i++)
		assert_int_equal(neb_submit(client, &put, NULL), 0);
	for (uint32_t i = 0; i < QUEUED; i++) {
		assert_int_equal(neb_wait(client, &result, 1, 60 * NS_PER_S), 1);
		assert_int_equal(result.error, 0);
	}
	neb_client_close(client);
	rig_close(rig);
}

/* A queue pair that breaks costs its session; repeatable requests are repeated on the next one.
 * Successful requests have right results, failed ones an error, and nothing stays leased. */
static void test_broken_queue_pairs(void **state)
{
	struct rig_opts opts = {.device_name = "simulated:seed=6,qp_error=0.01,bad_rkey=0.01"};
	struct rig *rig = rig_open(&opts);
	struct neb_client *client = rig_client(rig, NEB_RDMA);
	uint8_t *out = memory_get(client, POOL, 20000), *in = memory_get(client, POOL, 20000);
	uint32_t succeeded = 0;
	struct neb_stats stats;
	struct neb_result result;

	(void)state;
	for (uint32_t i = 0; i < 300; i++) {
		rig_fill(out, 20000, i);
		if (neb_put(client, B, "k", out, 20000, &result) != 0)
			continue;
		memset(in, 0, 20000);
		if (neb_get(client, B, "k", in, 20000, &result) != 0)
			continue;
		assert_memory_equal(in, out, 20000);
		succeeded++;
	}
	neb_client_stats(client, &stats);
	assert_true(stats.sessions_lost > 0);
	assert_true(succeeded > 250);
	neb_client_close(client);
	rig_close(rig);
}

/* ---- A client that vanishes. ---- */

static void child_main(int commands, int events)
{
	struct neb_options options = {.access_key = RIG_ACCESS_KEY,
		.secret_key = RIG_SECRET_KEY,
		.transport = NEB_STRICT,
		.pool_bytes = 128 * MIB};
	struct neb_client *client;
	char endpoint[64] = "";
	void *data;

	if (read(commands, endpoint, sizeof(endpoint)) <= 0)
		_exit(2);
	options.endpoints = endpoint;
	if (neb_client_open(&options, &client) || neb_buffer_alloc(client, 32 * MIB, &data))
		_exit(3);
	memset(data, 7, 32 * MIB);
	for (;;) {
		struct neb_iov iov = {data, 32 * MIB};
		struct neb_request put = {.op = NEB_PUT_OBJECT,
			.bucket = B,
			.key = "vanish",
			.body = &iov,
			.body_count = 1};
		struct neb_result result;

		for (int i = 0; i < 4; i++)
			if (neb_submit(client, &put, NULL))
				_exit(4);
		if (neb_wait(client, &result, 1, 60 * NS_PER_S) < 0 || result.error) {
			fprintf(stderr, "child: %d %s %s\n", result.error, result.code,
				result.message);
			_exit(5);
		}
		if (write(events, "x", 1) != 1)
			_exit(6);
		while (neb_in_flight(client))
			neb_wait(client, &result, 1, 60 * NS_PER_S);
	}
}

static void test_client_vanishes(void **state)
{
	int commands[2], events[2];
	struct neb_client *client;
	struct rig *rig;
	uint64_t used;
	char byte;
	pid_t pid;

	(void)state;
	assert_int_equal(pipe(commands), 0);
	assert_int_equal(pipe(events), 0);
	fflush(NULL);
	pid = fork(); /* before there are threads */
	assert_true(pid >= 0);
	if (pid == 0)
		child_main(commands[0], events[1]);
	close(events[1]);
	rig = rig_open(&(struct rig_opts){.region_bytes = 192 * MIB});
	assert_true(write(commands[1], rig_endpoint(rig), 64) > 0);
	assert_int_equal(read(events[0], &byte, 1), 1); /* other requests are in flight now */
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_true(rig_sessions_become(rig, 0));
	/* At most one object was stored completely: deletes it and checks that nothing else is
	 * left. */
	client = rig_client(rig, NEB_STRICT);
	assert_int_equal(neb_delete(client, B, "vanish", NULL), 0);
	neb_client_close(client);
	assert_true(rig_sessions_become(rig, 0));
	used = rig_frames_used(rig);
	assert_int_equal(used, 0);
	rig_close(rig);
	close(commands[0]);
	close(commands[1]);
	close(events[0]);
}

static uint64_t encrypted_bytes(void)
{
	return counted("nebulaio_native_encrypted_bytes_total");
}

/* A server that does not require encryption encrypts only for clients that require it. */
static void test_encryption_demanded(void **state)
{
	struct neb_options options = {.endpoints = rig_endpoint(*state),
		.access_key = RIG_ACCESS_KEY,
		.secret_key = RIG_SECRET_KEY,
		.require_encryption = true,
		.transport = NEB_STRICT};
	uint8_t data[64 * KIB], back[64 * KIB];
	struct neb_client *client = NULL;
	uint64_t before = encrypted_bytes();

	rig_fill(data, sizeof(data), 3);
	assert_int_equal(neb_client_open(&options, &client), 0);
	assert_int_equal(neb_put(client, B, "key", data, sizeof(data), NULL), 0);
	assert_int_equal(neb_get(client, B, "key", back, sizeof(back), NULL), 0);
	assert_memory_equal(data, back, sizeof(data));
	assert_int_equal(encrypted_bytes() - before, 2 * sizeof(data));
	neb_client_close(client);
	client = rig_client(*state, NEB_STRICT);
	assert_int_equal(neb_get(client, B, "key", back, sizeof(back), NULL), 0);
	assert_int_equal(encrypted_bytes() - before, 2 * sizeof(data));
	neb_client_close(client);
}

/* Larger than the pool: encrypted into memory that is mapped for the request. */
static void test_encrypted_past_the_pool(void **state)
{
	struct neb_options options = {.endpoints = rig_endpoint(*state),
		.access_key = RIG_ACCESS_KEY,
		.secret_key = RIG_SECRET_KEY,
		.transport = NEB_STRICT,
		.pool_bytes = 64 * KIB};
	size_t bytes = 3 * MIB + 5;
	uint8_t *data = malloc(bytes), *back = malloc(bytes);
	struct neb_client *client = NULL;

	assert_non_null(data);
	assert_non_null(back);
	rig_fill(data, bytes, 9);
	assert_int_equal(neb_client_open(&options, &client), 0);
	assert_int_equal(neb_put(client, B, "large", data, bytes, NULL), 0);
	assert_int_equal(neb_get(client, B, "large", back, bytes, NULL), 0);
	assert_memory_equal(data, back, bytes);
	neb_client_close(client);
	free(data);
	free(back);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_client_vanishes),
		cmocka_unit_test_setup_teardown(test_ping, setup, teardown),
		cmocka_unit_test_setup_teardown(test_sizes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_registration_cache, setup, teardown),
		cmocka_unit_test_setup_teardown(test_inline_thresholds, setup, teardown),
		cmocka_unit_test_setup_teardown(test_scatter, setup, teardown),
		cmocka_unit_test_setup_teardown(test_range, setup, teardown),
		cmocka_unit_test_setup_teardown(test_head_delete, setup, teardown),
		cmocka_unit_test_setup_teardown(test_errors, setup, teardown),
		cmocka_unit_test_setup_teardown(test_list, setup, teardown),
		cmocka_unit_test_setup_teardown(test_routed, setup, teardown),
		cmocka_unit_test_setup_teardown(test_header_of_ours, setup, teardown),
		cmocka_unit_test_setup_teardown(test_out_of_order, setup, teardown),
		cmocka_unit_test_setup_teardown(test_more_than_credits, setup, teardown),
		cmocka_unit_test_setup_teardown(test_wrong_keys, setup, teardown),
		cmocka_unit_test(test_no_listener),
		cmocka_unit_test_setup_teardown(test_drain, setup, teardown),
		cmocka_unit_test_setup_teardown(test_drain_in_flight, setup, teardown),
		cmocka_unit_test_setup_teardown(test_close_in_flight, setup, teardown),
		cmocka_unit_test(test_idle_session),
		cmocka_unit_test_setup_teardown(test_deadline, setup, teardown),
		cmocka_unit_test_setup_teardown(test_wake, setup, teardown),
		cmocka_unit_test(test_faults_that_heal),
		cmocka_unit_test(test_standing_still),
		cmocka_unit_test(test_queued_transfers),
		cmocka_unit_test(test_broken_queue_pairs),
	};

	const struct CMUnitTest encrypted[] = {
		cmocka_unit_test_setup_teardown(test_ping, setup_encrypted, teardown),
		cmocka_unit_test_setup_teardown(test_sizes, setup_encrypted, teardown),
		cmocka_unit_test_setup_teardown(test_inline_thresholds, setup_encrypted, teardown),
		cmocka_unit_test_setup_teardown(test_scatter, setup_encrypted, teardown),
		cmocka_unit_test_setup_teardown(test_range, setup_encrypted, teardown),
		cmocka_unit_test_setup_teardown(test_head_delete, setup_encrypted, teardown),
		cmocka_unit_test_setup_teardown(test_errors, setup_encrypted, teardown),
		cmocka_unit_test_setup_teardown(test_list, setup_encrypted, teardown),
		cmocka_unit_test_setup_teardown(test_routed, setup_encrypted, teardown),
		cmocka_unit_test_setup_teardown(test_header_of_ours, setup_encrypted, teardown),
		cmocka_unit_test_setup_teardown(test_out_of_order, setup_encrypted, teardown),
		cmocka_unit_test_setup_teardown(test_more_than_credits, setup_encrypted, teardown),
		cmocka_unit_test_setup_teardown(test_wrong_keys, setup_encrypted, teardown),
		cmocka_unit_test_setup_teardown(test_drain_in_flight, setup_encrypted, teardown),
		cmocka_unit_test_setup_teardown(test_close_in_flight, setup_encrypted, teardown),
		cmocka_unit_test_setup_teardown(test_deadline, setup_encrypted, teardown),
		cmocka_unit_test_setup_teardown(
			test_encrypted_past_the_pool, setup_encrypted, teardown),
		cmocka_unit_test_setup_teardown(test_encryption_demanded, setup, teardown),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);

	return failed + cmocka_run_group_tests(encrypted, NULL, NULL);
}
