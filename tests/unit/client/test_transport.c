/* Both transports to one server: the program itself, run as a child, over HTTP and over simulated
 * RDMA; and the behaviour of a client while one of them is unavailable. PROGRAM_UNDER_TEST names
 * the program. */
#include "../unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "program.h"
#include "rig.h"

static uint32_t warnings;

static void count_warnings(void *arg, enum neb_log_level level, const char *text)
{
	(void)arg;
	(void)text;
	warnings += level >= NEB_LOG_WARN;
}

static struct neb_client *client_of(const char *endpoints, enum neb_transport transport)
{
	struct neb_options options = {.endpoints = endpoints,
		.access_key = RIG_ACCESS_KEY,
		.secret_key = RIG_SECRET_KEY,
		.transport = transport,
		.pool_bytes = 96 * MIB,
		.log = count_warnings};
	struct neb_client *client = NULL;

	assert_int_equal(neb_client_open(&options, &client), 0);
	return client;
}

/* A body that was put by one transport is read by the other, byte for byte, with the same ETag. */
static void test_both_ways(void **state)
{
	static const size_t sizes[] = {0, 1, 256, 257, 4096, 65536, 65537, MIB, MIB + 1, 64 * MIB};
	const struct program *child = *state;
	struct neb_client *clients[2] = {
		client_of(child->both, NEB_STRICT), client_of(child->both, NEB_HTTP)};
	static const enum neb_transport ways[2] = {NEB_RDMA, NEB_HTTP};
	struct neb_result put, got;
	uint8_t *out = malloc(64 * MIB), *in = malloc(64 * MIB);

	assert_int_equal(neb_bucket_create(clients[0], "ways", NULL), 0);
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		for (uint32_t way = 0; way < 2; way++) {
			rig_fill(out, sizes[i], 2 * i + way);
			assert_int_equal(neb_put(clients[way], "ways", "a b/\xc3\xa4+%", out,
						 sizes[i], &put),
				0);
			assert_int_equal(put.transport, ways[way]);
			memset(in, 0, sizes[i]);
			assert_int_equal(neb_get(clients[!way], "ways", "a b/\xc3\xa4+%", in,
						 sizes[i], &got),
				0);
			assert_int_equal(got.transport, ways[!way]);
			assert_int_equal(got.bytes, sizes[i]);
			assert_string_equal(got.etag, put.etag);
			assert_memory_equal(in, out, sizes[i]);
		}
	}
	free(out);
	free(in);
	neb_client_close(clients[0]);
	neb_client_close(clients[1]);
}

/* As long as it takes. */
static void test_timeouts_without_end(void **state)
{
	static const enum neb_transport ways[2] = {NEB_STRICT, NEB_HTTP};
	const struct program *child = *state;
	struct neb_options options = {.endpoints = child->both,
		.access_key = RIG_ACCESS_KEY,
		.secret_key = RIG_SECRET_KEY,
		.connect_timeout_ns = UINT64_MAX,
		.request_timeout_ns = UINT64_MAX};
	struct neb_request head = {.op = NEB_HEAD_OBJECT, .bucket = "ways", .key = "k"};
	struct neb_client *client;
	struct neb_result result;

	for (uint32_t way = 0; way < 2; way++) {
		options.transport = ways[way];
		assert_int_equal(neb_client_open(&options, &client), 0);
		assert_int_equal(neb_put(client, "ways", "k", "bytes", 5, NULL), 0);
		head.timeout_ns = way ? 0 : UINT64_MAX;
		assert_int_equal(neb_perform(client, &head, &result), 0);
		assert_int_equal(result.object_bytes, 5);
		neb_client_close(client);
	}
}

static void put_with_metadata(struct neb_client *client, const char *value)
{
	const struct neb_header header = {"x-amz-meta-text", value};
	const struct neb_request put = {.op = NEB_PUT_OBJECT,
		.bucket = "told",
		.key = "k",
		.headers = &header,
		.header_count = 1};
	struct neb_result result;

	assert_int_equal(neb_perform(client, &put, &result), 0);
}

static struct neb_result head_of(struct neb_client *client)
{
	const struct neb_request head = {
		.op = NEB_HEAD_OBJECT, .bucket = "told", .key = "k", .want_headers = true};
	struct neb_result result;

	assert_int_equal(neb_perform(client, &head, &result), 0);
	return result;
}

/* Headers beyond the result's room: wherever it ends, the result is whole lines, and says so. */
static void test_headers_that_do_not_fit(void **state)
{
	const struct program *child = *state;
	struct neb_client *clients[2] = {
		client_of(child->both, NEB_STRICT), client_of(child->both, NEB_HTTP)};
	char value[2000];
	const char *told;

	neb_bucket_create(clients[0], "told", NULL);
	for (size_t len = 1500; len < sizeof(value); len += 7) {
		memset(value, 'v', len);
		value[len] = '\0';
		put_with_metadata(clients[0], value);
		for (uint32_t way = 0; way < 2; way++) {
			struct neb_result result = head_of(clients[way]);

			assert_int_equal(result.headers[strlen(result.headers) - 1], '\n');
			if (len >= 1990)
				assert_int_equal(
					neb_result_header(&result, "x-nebulaio-cut", &told), 1);
		}
	}
	neb_client_close(clients[0]);
	neb_client_close(clients[1]);
}

/* Metadata whose encoded form has a line's end would be another header to the caller. */
static void test_metadata_is_one_header(void **state)
{
	static const char FORGED[] = "=?UTF-8?B?YQpmb3JnZWQ6IGI=?="; /* "a\nforged: b" */
	const struct program *child = *state;
	struct neb_client *client = client_of(child->both, NEB_HTTP);
	struct neb_result result;
	const char *told;

	neb_bucket_create(client, "told", NULL);
	put_with_metadata(client, FORGED);
	result = head_of(client);
	assert_int_equal(neb_result_header(&result, "forged", &told), -ENOENT);
	assert_int_equal(neb_result_header(&result, "x-amz-meta-text", &told), strlen(FORGED));
	neb_client_close(client);
}

/* Headers that a signature has in another form than a request: both ways store the same. */
static void test_headers_are_signed(void **state)
{
#define LONG                                                                        \
	"x-amz-meta-a-name-that-is-longer-than-most-are-and-so-long-that-it-would-" \
	"not-fit-into-memory-for-an-ordinary-one-of-a-hundred-and-twenty-seven-bytes"
	static const struct neb_header headers[] = {{"X-Amz-Meta-Twice", "b"}, {LONG, "x"},
		{"x-amz-meta-twice", "a"}, {"x-amz-meta-gaps", "a  b \t c"}};
	static const struct neb_header stored[] = {
		{"x-amz-meta-twice", "b,a"}, {LONG, "x"}, {"x-amz-meta-gaps", "a  b \t c"}};
	const struct neb_request put = {.op = NEB_PUT_OBJECT,
		.bucket = "told",
		.key = "k",
		.headers = headers,
		.header_count = ARRAY_LEN(headers)};
	const struct program *child = *state;
	struct neb_client *clients[2] = {
		client_of(child->both, NEB_STRICT), client_of(child->both, NEB_HTTP)};

	neb_bucket_create(clients[0], "told", NULL);
	for (uint32_t way = 0; way < 2; way++) {
		struct neb_result result;
		const char *told;

		assert_int_equal(neb_perform(clients[way], &put, &result), 0);
		result = head_of(clients[way]);
		for (size_t i = 0; i < ARRAY_LEN(stored); i++) {
			int len = neb_result_header(&result, stored[i].name, &told);

			assert_int_equal(len, strlen(stored[i].value));
			assert_memory_equal(told, stored[i].value, (size_t)len);
		}
		neb_client_close(clients[way]);
	}
#undef LONG
}

/* The same of a query: other ways to encode it than S3's, another order, parts left out. */
static void test_queries_are_signed(void **state)
{
	static const struct {
		const char *query, *prefix;
	} asked[] = {
		{"list-type=2&prefix=a%2fb", "<Prefix>a/b<"},
		{"list-type=2&prefix=a+b%7e*", "<Prefix>a b~*<"},
		{"prefix=%C3%A4&&list-type=2&fetch-owner", "<Prefix>\xc3\xa4<"},
		{"list-type=2&prefix=a&a=2&a-b=1&a=1&a%2e=1", "<Prefix>a<"},
	};
	const struct program *child = *state;
	struct neb_client *clients[2] = {
		client_of(child->both, NEB_STRICT), client_of(child->both, NEB_HTTP)};
	char answer[4096];
	const struct neb_iov into = {answer, sizeof(answer) - 1};

	neb_bucket_create(clients[0], "told", NULL);
	for (uint32_t way = 0; way < 2; way++) {
		for (size_t i = 0; i < ARRAY_LEN(asked); i++) {
			const struct neb_request request = {.op = NEB_S3,
				.method = "GET",
				.path = "/told",
				.query = asked[i].query,
				.into = &into,
				.into_count = 1};
			struct neb_result result;

			assert_int_equal(neb_perform(clients[way], &request, &result), 0);
			answer[result.bytes] = '\0';
			assert_non_null(strstr(answer, asked[i].prefix));
		}
		neb_client_close(clients[way]);
	}
}

/* An endpoint of the document's network, redirected to this one. */
static void test_connect_to(void **state)
{
	static const char *const NONSENSE[] = {
		"node1", "=x:1", "node1:9100=", "a:1=b:0", "a:1=b:c"};
	const struct program *child = *state;
	struct neb_options options = {.endpoints = "rdma://node1,rdma://[fe80::1]:7,http://node2/",
		.access_key = RIG_ACCESS_KEY,
		.secret_key = RIG_SECRET_KEY,
		.log = count_warnings};
	struct neb_client *client;
	struct neb_result result;
	char map[256];

	snprintf(map, sizeof(map), "elsewhere:1=x:2, node1:9100=%s ,[fe80::1]:7=%s,,node2:9000=%s",
		child->rdma + 7, child->rdma + 7, child->http + 7);
	assert_int_equal(setenv("NEBULAIO_CONNECT_TO", map, 1), 0);
	client = client_of(options.endpoints, NEB_STRICT);
	assert_int_equal(neb_ping(client, &result), 0);
	assert_int_equal(result.transport, NEB_RDMA);
	neb_client_close(client);
	client = client_of(options.endpoints, NEB_HTTP);
	assert_int_equal(neb_ping(client, &result), 0);
	neb_client_close(client);
	for (size_t i = 0; i < ARRAY_LEN(NONSENSE); i++) {
		setenv("NEBULAIO_CONNECT_TO", NONSENSE[i], 1);
		assert_int_equal(neb_client_open(&options, &client), -EINVAL);
	}
	unsetenv("NEBULAIO_CONNECT_TO");
}

/* The device is found by the address and reported; without a device, the reason is reported. */
static void test_device_is_found(void **state)
{
	const struct program *child = *state;
	struct neb_client *client = client_of(child->both, NEB_STRICT);
	struct neb_options nowhere = {.endpoints = "rdma://host.invalid",
		.access_key = RIG_ACCESS_KEY,
		.secret_key = RIG_SECRET_KEY,
		.transport = NEB_STRICT,
		.log = count_warnings};
	struct neb_result result;
	char endpoints[160];

	assert_string_equal(neb_client_device(client), "simulated");
	assert_non_null(strstr(neb_client_device_why(client), "127.0.0.1"));
	neb_client_close(client);
	/* The reason is available before the first request, and with each. */
	snprintf(endpoints, sizeof(endpoints), "rdma://host.invalid,%s", child->http);
	warnings = 0;
	client = client_of(endpoints, NEB_AUTO);
	assert_string_equal(neb_client_device(client), "");
	assert_non_null(strstr(neb_client_device_why(client), "host.invalid"));
	assert_int_equal(warnings, 1);
	assert_int_equal(neb_ping(client, &result), 0);
	assert_int_equal(result.transport, NEB_HTTP);
	assert_non_null(strstr(result.fallback, "host.invalid"));
	neb_client_close(client);
	/* Alone, it is an error at once. */
	assert_int_equal(neb_client_open(&nowhere, &client), -EHOSTUNREACH);
	nowhere.transport = NEB_RDMA;
	assert_int_equal(neb_client_open(&nowhere, &client), -EHOSTUNREACH);
	assert_int_equal(warnings, 3);
	/* A given name is preferred to the found device. */
	nowhere.endpoints = child->rdma;
	nowhere.device_name = "no-such-device";
	assert_int_equal(neb_client_open(&nowhere, &client), -ENODEV);
}

/* The second endpoint is of another store: it neither answers 404 in place of the first one, nor
 * accepts objects meant for it. */
static void test_two_stores(void **state)
{
	void *first, *second;
	struct neb_client *client, *direct;
	struct neb_result result;
	char endpoints[160];

	(void)state;
	assert_int_equal(program_open(&first) + program_open(&second), 0);
	snprintf(endpoints, sizeof(endpoints), "%s,%s", ((struct program *)first)->http,
		((struct program *)second)->http);
	client = client_of(endpoints, NEB_HTTP);
	direct = client_of(((struct program *)second)->http, NEB_HTTP);
	assert_int_equal(neb_bucket_create(client, "two", &result), 0);
	assert_int_equal(neb_put(client, "two", "key", "one", 3, &result), 0);
	assert_int_equal(neb_bucket_create(direct, "two", &result), 0);
	assert_int_equal(program_close(&first), 0);
	assert_int_equal(neb_head(client, "two", "key", &result), -EXDEV);
	assert_int_equal(result.status, 0);
	assert_non_null(strstr(result.message, "another store"));
	assert_int_equal(neb_put(client, "two", "key", "two", 3, &result), -EXDEV);
	assert_int_equal(neb_head(direct, "two", "key", &result), -ENOENT);
	neb_client_close(direct);
	neb_client_close(client);
	assert_int_equal(program_close(&second), 0);
}

/* A client that never had a session gets the error at once. */
static void test_no_server(void **state)
{
	struct neb_options options = {.access_key = RIG_ACCESS_KEY,
		.secret_key = RIG_SECRET_KEY,
		.transport = NEB_RDMA,
		.request_timeout_ns = 3600 * NS_PER_S,
		.log = count_warnings};
	struct neb_client *client;
	struct neb_result result;
	char endpoint[64];

	(void)state;
	snprintf(endpoint, sizeof(endpoint), "rdma://127.0.0.1:%u", program_port_free());
	options.endpoints = endpoint;
	options.device_name = "simulated";
	assert_int_equal(neb_client_open(&options, &client), 0);
	assert_int_equal(neb_ping(client, &result), -ECONNREFUSED);
	assert_non_null(strstr(result.message, "server listens there"));
	neb_client_close(client);
}

/* A server that stands still is not taken for none. */
static void test_silent_server(void **state)
{
	const struct rp_open_opts device_opts = {.device_name = "simulated", .gid_index = -1};
	struct neb_options options = {.access_key = RIG_ACCESS_KEY,
		.secret_key = RIG_SECRET_KEY,
		.transport = NEB_RDMA,
		.device_name = "simulated",
		.connect_timeout_ns = 100 * NS_PER_MS,
		.request_timeout_ns = 3600 * NS_PER_S,
		.log = count_warnings};
	struct rp_listener *listener;
	struct rp_device *device;
	struct neb_client *client;
	struct neb_result result;
	char endpoint[64];

	(void)state;
	assert_int_equal(rp_open(&device_opts, &device), 0);
	assert_int_equal(rp_listen(device, "127.0.0.1", 0, NULL, &listener), 0);
	snprintf(endpoint, sizeof(endpoint), "rdma://127.0.0.1:%u", rp_listener_port(listener));
	options.endpoints = endpoint;
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(neb_client_open(&options, &client), 0);
		assert_int_equal(neb_ping(client, &result), -ETIMEDOUT);
		assert_non_null(strstr(result.message, "no server answered there in time"));
		neb_client_close(client);
		options.connect_timeout_ns = 0;
		setenv("NEBULAIO_CONNECT_TIMEOUT_S", "1", 1);
	}
	setenv("NEBULAIO_CONNECT_TIMEOUT_S", "1s", 1);
	assert_int_equal(neb_client_open(&options, &client), -EINVAL);
	unsetenv("NEBULAIO_CONNECT_TIMEOUT_S");
	rp_listener_close(listener);
	rp_close(device);
}

static bool count_entry(void *arg, const struct neb_entry *entry)
{
	(void)entry;
	++*(uint32_t *)arg;
	return true;
}

static void same_answers(struct neb_client *client, enum neb_transport way)
{
	uint32_t count = 0;
	struct neb_list list = {
		.bucket = "answers", .prefix = "l/", .visit = count_entry, .arg = &count};
	struct neb_header header = {"x-amz-meta-colour", "blue as \xc3\xa4"};
	struct neb_iov body = {(void *)(uintptr_t) "12345", 5};
	struct neb_request put = {.op = NEB_PUT_OBJECT,
		.bucket = "answers",
		.key = "meta",
		.body = &body,
		.body_count = 1,
		.headers = &header,
		.header_count = 1};
	struct neb_result result;
	const char *value;
	char data[8];

	assert_int_equal(neb_list(client, &list, &result), 0);
	assert_int_equal(result.transport, way);
	assert_int_equal(count, 1100);
	count = 0;
	list.delimiter = "/";
	assert_int_equal(neb_list(client, &list, NULL), 0);
	assert_int_equal(count, 11);
	count = 0;
	assert_int_equal(neb_list_buckets(client, count_entry, &count, NULL), 0);
	assert_true(count >= 1);
	assert_int_equal(neb_perform(client, &put, NULL), 0);
	assert_int_equal(neb_head(client, "answers", "meta", &result), 0);
	assert_int_equal(result.object_bytes, 5);
	assert_int_equal(neb_result_header(&result, "x-amz-meta-colour", &value), 10);
	assert_memory_equal(value, "blue as \xc3\xa4", 10);
	assert_int_equal(neb_get(client, "answers", "meta", data, 4, &result), -EMSGSIZE);
	assert_int_equal(neb_get(client, "answers", "none", data, 8, &result), -ENOENT);
	assert_string_equal(result.code, "NoSuchKey");
	assert_string_equal(result.message, "The specified key does not exist.");
	assert_int_equal(strlen(result.request_id), 16);
	assert_int_equal(neb_get(client, "no-such-bucket", "none", data, 8, &result), -ENOENT);
	assert_string_equal(result.code, "NoSuchBucket");
	assert_int_equal(neb_bucket_delete(client, "answers", &result), -EEXIST);
	assert_string_equal(result.code, "BucketNotEmpty");
	assert_int_equal(neb_delete(client, "answers", "meta", &result), 0);
	assert_int_equal(neb_delete(client, "answers", "meta", &result), 0);
	assert_int_equal(neb_ping(client, &result), 0);
	assert_int_equal(result.transport, way);
}

static void test_same_answers(void **state)
{
	const struct program *child = *state;
	struct neb_client *rdma = client_of(child->rdma, NEB_STRICT);
	struct neb_client *http = client_of(child->http, NEB_HTTP);
	struct neb_result results[64];
	char key[32];

	assert_int_equal(neb_bucket_create(http, "answers", NULL), 0);
	for (uint32_t i = 0; i < 1100; i++) {
		struct neb_request put = {.op = NEB_PUT_OBJECT, .bucket = "answers", .key = key};

		snprintf(key, sizeof(key), "l/%u/%u", i % 11, i);
		assert_int_equal(neb_submit(rdma, &put, NULL), 0);
	}
	while (neb_in_flight(rdma)) {
		int count = neb_wait(rdma, results, 64, 60 * NS_PER_S);

		assert_true(count > 0);
		for (int i = 0; i < count; i++)
			assert_int_equal(results[i].error, 0);
	}
	while (neb_poll(rdma, results, 64) > 0)
		continue;
	same_answers(rdma, NEB_RDMA);
	same_answers(http, NEB_HTTP);
	neb_client_close(rdma);
	neb_client_close(http);
}

/* RDMA is unavailable: HTTP, with the reason and one warning. RDMA is back: RDMA again. Unavailable
 * again: HTTP. */
static void test_fall_back_and_come_back(void **state)
{
	const struct program *child = *state;
	struct rig_opts opts = {.port = program_port_free()};
	char endpoints[160];
	struct neb_client *client;
	struct neb_result result;
	struct neb_stats stats;
	struct rig *rig;
	uint64_t deadline_ns;

	snprintf(endpoints, sizeof(endpoints), "rdma://127.0.0.1:%u %s", opts.port, child->http);
	client = client_of(endpoints, NEB_AUTO);
	warnings = 0;
	for (uint32_t i = 0; i < 20; i++) {
		assert_int_equal(neb_ping(client, &result), 0);
		assert_int_equal(result.transport, NEB_HTTP);
		assert_true(strlen(result.fallback) > 0);
	}
	assert_int_equal(warnings, 1);
	neb_client_stats(client, &stats);
	assert_int_equal(stats.fallbacks, 20);
	rig = rig_open(&opts);
	deadline_ns = clock_now_ns() + 60 * NS_PER_S;
	do {
		assert_true(clock_now_ns() < deadline_ns);
		assert_int_equal(neb_ping(client, &result), 0);
	} while (result.transport != NEB_RDMA);
	assert_string_equal(result.fallback, "");
	rig_close(rig);
	assert_int_equal(neb_ping(client, &result), 0);
	assert_int_equal(result.transport, NEB_HTTP);
	assert_true(strlen(result.fallback) > 0);
	neb_client_close(client);
}

/* A batch goes by HTTP item by item, with the same results as over RDMA. */
static void test_batch_falls_back(void **state)
{
	enum { COUNT = 300, ROOM = 8192 };
	const struct program *child = *state;
	static struct neb_batch_item items[2][COUNT];
	struct neb_batch batch = {.bucket = "batch", .item_count = COUNT, .window = 16};
	struct neb_client *clients[2] = {client_of(child->both, NEB_STRICT)};
	char endpoints[160], (*keys)[16] = calloc(COUNT, sizeof(*keys));
	uint8_t *room = calloc(2 * COUNT, ROOM), *body = malloc(ROOM);

	snprintf(endpoints, sizeof(endpoints), "rdma://127.0.0.1:%u %s", program_port_free(),
		child->http);
	clients[1] = client_of(endpoints, NEB_AUTO);
	assert_int_equal(neb_bucket_create(clients[0], batch.bucket, NULL), 0);
	for (uint32_t i = 0; i < COUNT; i++) {
		snprintf(keys[i], sizeof(keys[i]), "%u", i);
		rig_fill(body, ROOM, i);
		if (i % 7)
			assert_int_equal(
				neb_put(clients[0], batch.bucket, keys[i], body, 1 + 27 * i, NULL),
				0);
		for (uint32_t way = 0; way < 2; way++)
			items[way][i] = (struct neb_batch_item){.key = keys[i],
				.data = room + (2 * i + way) * ROOM,
				.data_bytes = i % 11 ? ROOM : 100,
				.range_offset = 5,
				.range_bytes = i % 5 ? 0 : 50};
	}
	for (uint32_t way = 0; way < 2; way++) {
		batch.items = items[way];
		assert_int_equal(neb_get_batch(clients[way], &batch), -ENOENT);
	}
	for (uint32_t i = 0; i < COUNT; i++) {
		assert_int_equal(items[1][i].error, items[0][i].error);
		assert_int_equal(items[1][i].bytes_read, items[0][i].bytes_read);
		assert_int_equal(items[0][i].transport, NEB_RDMA);
		assert_int_equal(items[1][i].transport, NEB_HTTP);
		if (items[0][i].error)
			continue;
		assert_string_equal(items[1][i].etag, items[0][i].etag);
		rig_fill(body, ROOM, i);
		for (uint32_t way = 0; way < 2; way++)
			assert_memory_equal(items[way][i].data, body + (i % 5 ? 0 : 5),
				items[way][i].bytes_read);
	}
	assert_int_equal(items[0][0].status, 404);
	assert_int_equal(items[0][5].bytes_read, 50);
	assert_int_equal(items[0][11].error, -EMSGSIZE);
	for (uint32_t way = 0; way < 2; way++)
		neb_client_close(clients[way]);
	free(room);
	free(body);
	free(keys);
}

static void test_wrong_key_by_http(void **state)
{
	const struct program *child = *state;
	struct neb_options options = {.endpoints = child->http,
		.access_key = RIG_ACCESS_KEY,
		.secret_key = "wrong",
		.transport = NEB_HTTP};
	struct neb_client *client;
	struct neb_result result;

	assert_int_equal(neb_client_open(&options, &client), 0);
	assert_int_equal(neb_ping(client, &result), -EACCES);
	assert_string_equal(result.code, "SignatureDoesNotMatch");
	neb_client_close(client);
}

/* ---- Tokens. ---- */

static void token_round_trip(struct neb_client *client, size_t bytes, bool pool)
{
	uint8_t *data = malloc(bytes), *back = malloc(bytes);
	struct neb_result result;
	void *memory = NULL;

	assert_non_null(data);
	assert_non_null(back);
	for (size_t i = 0; i < bytes; i++)
		data[i] = (uint8_t)(i * 31 + bytes);
	if (pool)
		assert_int_equal(neb_buffer_alloc(client, bytes, &memory), 0);
	else
		memory = back;
	assert_int_equal(neb_put(client, "tokens", "key", data, bytes, &result), 0);
	assert_int_equal(result.transport, NEB_TOKEN);
	assert_true(result.etag[0]);
	assert_string_equal(result.fallback, "");
	assert_int_equal(neb_get(client, "tokens", "key", memory, bytes, &result), 0);
	assert_int_equal(result.transport, NEB_TOKEN);
	assert_int_equal(result.bytes, bytes);
	assert_memory_equal(memory, data, bytes);
	if (pool)
		neb_buffer_free(client, memory);
	free(data);
	free(back);
}

static void test_tokens(void **state)
{
	const struct program *child = *state;
	char endpoint[80], text[8];
	struct neb_client *client;
	struct neb_result result;
	struct neb_iov runs[2] = {{text, 4}, {text + 4, 4}};
	struct neb_request request = {.op = NEB_GET_OBJECT,
		.bucket = "tokens",
		.key = "key",
		.into = runs,
		.into_count = 2,
		.range_bytes = 8};

	snprintf(endpoint, sizeof(endpoint), "%s?rdma", child->http);
	client = client_of(endpoint, NEB_HTTP);
	assert_int_equal(neb_bucket_create(client, "tokens", &result), 0);
	assert_int_equal(result.transport, NEB_HTTP);
	token_round_trip(client, 1, false);
	token_round_trip(client, 4096, true);
	token_round_trip(client, 5 * MIB + 7, false);
	token_round_trip(client, 5 * MIB + 7, true);
	/* Two runs: by HTTP, which is reported. */
	assert_int_equal(neb_perform(client, &request, &result), 0);
	assert_int_equal(result.transport, NEB_HTTP);
	assert_true(result.fallback[0]);
	/* An error is the server's own. */
	assert_int_equal(neb_get(client, "tokens", "none", text, sizeof(text), &result), -ENOENT);
	assert_string_equal(result.code, "NoSuchKey");
	/* Too small a window ends as by HTTP. */
	assert_int_equal(neb_get(client, "tokens", "key", text, 4, &result), -EMSGSIZE);
	assert_string_equal(result.code, "BufferTooSmall");
	token_round_trip(client, 100, false);
	neb_client_close(client);
}

/* Neither tokens nor hipobj-rc-v2 encrypt what they move. */
static void not_in_the_clear(
	const struct program *child, const char *query, enum neb_transport transport)
{
	char endpoint[80], back[4096];
	struct neb_options options = {.endpoints = endpoint,
		.access_key = RIG_ACCESS_KEY,
		.secret_key = RIG_SECRET_KEY,
		.transport = transport,
		.require_encryption = true,
		.log = count_warnings};
	struct neb_client *client = NULL;
	struct neb_result result;
	struct neb_stats stats;
	char data[4096];

	snprintf(endpoint, sizeof(endpoint), "%s%s", child->http, query);
	rig_fill(data, sizeof(data), 5);
	warnings = 0;
	assert_int_equal(neb_client_open(&options, &client), 0);
	assert_int_equal(warnings, 1);
	assert_int_equal(neb_put(client, "tokens", "clear", data, sizeof(data), &result), 0);
	assert_int_equal(result.transport, NEB_HTTP);
	assert_non_null(strstr(result.fallback, "encryption is required"));
	assert_int_equal(neb_get(client, "tokens", "clear", back, sizeof(back), &result), 0);
	assert_int_equal(result.transport, NEB_HTTP);
	assert_non_null(strstr(result.fallback, "encryption is required"));
	assert_memory_equal(back, data, sizeof(data));
	neb_client_stats(client, &stats);
	assert_int_equal(stats.fallbacks, 2);
	assert_string_equal(neb_client_device(client), "");
	neb_client_close(client);
}

static void test_not_in_the_clear(void **state)
{
	struct neb_client *client = client_of(((const struct program *)*state)->http, NEB_HTTP);

	(void)neb_bucket_create(client, "tokens", NULL);
	neb_client_close(client);
	not_in_the_clear(*state, "?rdma", NEB_AUTO);
	not_in_the_clear(*state, "?rdma", NEB_HTTP);
	not_in_the_clear(*state, "?rdma=hipobj", NEB_AUTO);
	not_in_the_clear(*state, "?rdma=hipobj", NEB_HTTP);
}

/* A scheme without tokens, and an unknown word. */
static void test_token_endpoints(void **state)
{
	struct neb_options options = {.access_key = RIG_ACCESS_KEY,
		.secret_key = RIG_SECRET_KEY,
		.log = count_warnings,
		.endpoints = "rdma://127.0.0.1:9100?rdma"};
	struct neb_client *client;

	(void)state;
	assert_int_equal(neb_client_open(&options, &client), -EINVAL);
	options.endpoints = "http://127.0.0.1:9000?tdma";
	assert_int_equal(neb_client_open(&options, &client), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_connect_to),
		cmocka_unit_test(test_device_is_found),
		cmocka_unit_test(test_two_stores),
		cmocka_unit_test(test_no_server),
		cmocka_unit_test(test_silent_server),
		cmocka_unit_test(test_both_ways),
		cmocka_unit_test(test_timeouts_without_end),
		cmocka_unit_test(test_same_answers),
		cmocka_unit_test(test_headers_that_do_not_fit),
		cmocka_unit_test(test_metadata_is_one_header),
		cmocka_unit_test(test_headers_are_signed),
		cmocka_unit_test(test_queries_are_signed),
		cmocka_unit_test(test_fall_back_and_come_back),
		cmocka_unit_test(test_batch_falls_back),
		cmocka_unit_test(test_wrong_key_by_http),
		cmocka_unit_test(test_tokens),
		cmocka_unit_test(test_not_in_the_clear),
		cmocka_unit_test(test_token_endpoints),
	};

	return cmocka_run_group_tests(tests, program_open, program_close);
}
