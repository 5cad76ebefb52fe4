/* bench/runner.c: loads on a target, over libnebulaio or HTTP, as a row asks. */
#include "bench/runner.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/codec.h"

#define PASS_NS_MAX	(600 * NS_PER_S)
#define PAGE_BYTES_MAX	(1 * MIB)
#define EMPTY_BYTES_MAX (64 * KIB)
#define DELETE_OBJECTS	2048u
#define HUGE_OBJECTS	4u
/* Of each of many sessions: room for the one request in flight. */
#define EACH_POOL_BYTES	  (1 * MIB)
#define EACH_REQUESTS_MAX 1u

static const struct {
	const char *method;
	enum neb_op op;
	unsigned status; /* of HTTP's answer */
} OPS[] = {
	[BENCH_EMPTY] = {"GET", NEB_PING, 200},
	[BENCH_GET] = {"GET", NEB_GET_OBJECT, 200},
	[BENCH_PUT] = {"PUT", NEB_PUT_OBJECT, 200},
	[BENCH_HEAD] = {"HEAD", NEB_HEAD_OBJECT, 200},
	[BENCH_DELETE] = {"DELETE", NEB_DELETE_OBJECT, 204},
	[BENCH_LIST] = {"GET", NEB_LIST_OBJECTS, 200},
	[BENCH_MIXED] = {"GET", NEB_GET_OBJECT, 200}, /* and PUT */
};

/* ---- A load. ---- */

static uint64_t answer_bytes_max(const struct bench_load_opts *opts)
{
	if (opts->op == BENCH_GET || opts->op == BENCH_MIXED)
		return opts->data->bytes;
	if (opts->op == BENCH_LIST)
		return PAGE_BYTES_MAX;
	return 0;
}

static bool reads_objects(enum bench_op op)
{
	return op == BENCH_GET || op == BENCH_MIXED;
}

static void client_log(void *arg, enum neb_log_level level, const char *text)
{
	struct bench_target *target = arg;

	if (level >= NEB_LOG_WARN && !target->client_failed[0])
		snprintf(target->client_failed, sizeof(target->client_failed), "%s", text);
}

/* Bodies by RDMA, beside requests by HTTP. */
static bool is_token(enum bench_way way)
{
	return way == BENCH_TOKEN || way == BENCH_HIPOBJ;
}

#define ENDPOINT_BYTES 96u

static struct neb_options options_of(
	struct bench_target *target, enum bench_way way, char endpoint[ENDPOINT_BYTES])
{
	const struct bench_server *server = &target->server;
	const struct neb_options options = {
		.endpoints = endpoint,
		.access_key = server->use_access_key,
		.secret_key = server->use_secret_key,
		.region = server->region,
		.transport = is_token(way) ? NEB_HTTP : NEB_RDMA,
		.require_encryption = way == BENCH_SEALED,
		.one_sided_reads = way == BENCH_ONESIDED,
		.device_name = server->device_name,
		.pool_bytes = way == BENCH_EACH				? EACH_POOL_BYTES
			      : way == BENCH_NODES			? 2 * BENCH_HUGE_BYTES
			      : target->opts->quick || way > BENCH_HTTP ? 64 * MIB
									: 6 * BENCH_HUGE_BYTES,
		.requests_max = way == BENCH_EACH ? EACH_REQUESTS_MAX : BENCH_DEPTH_MAX,
		/* A mapper's thread is on the processor of the thread that reads. */
		.spin_ns = way == BENCH_CLIENTS || way == BENCH_NODES || way == BENCH_MAP
				   ? 1
				   : UINT64_MAX,
		.log = client_log,
		.log_arg = target,
	};

	if (is_token(way))
		snprintf(endpoint, ENDPOINT_BYTES, "http://%s?rdma%s", server->http_address,
			way == BENCH_HIPOBJ ? "=hipobj" : "");
	else
		snprintf(endpoint, ENDPOINT_BYTES, "rdma://%s", server->rdma_address);
	return options;
}

static int client_open(
	struct bench_target *target, enum bench_way way, struct neb_client **ret_client)
{
	char endpoint[ENDPOINT_BYTES];
	const struct neb_options options = options_of(target, way, endpoint);

	return neb_client_open(&options, ret_client);
}

static int map_load_open(struct bench_target *target, const struct bench_load_opts *opts,
	struct bench_map_load **ret_load)
{
	char endpoint[ENDPOINT_BYTES];
	const struct neb_options options = options_of(target, BENCH_MAP, endpoint);
	const struct bench_map_opts map = {.mapper = opts->way == BENCH_MAP ? &options : NULL,
		.client = target->client,
		.bucket = target->bucket,
		.data = opts->data,
		.bytes = opts->bytes};

	return bench_map_load_open(&map, ret_load);
}

/* In a process of its own: a client for that process alone. */
static int client_of_child(void *arg, struct neb_client **ret_client)
{
	return client_open(arg, BENCH_CLIENTS, ret_client);
}

static int client_of_node(void *arg, struct neb_client **ret_client)
{
	return client_open(arg, BENCH_NODES, ret_client);
}

#define MEMORY_PREFIX "put-memory-"
#define MEMORY_BOUNDS "bytes=8MiB, full=refuse"

/* The bucket that has these objects. */
static const char *bucket_of(const struct bench_target *target, const struct bench_data *data)
{
	return data && slice_starts(slice_str(data->prefix), SLICE(MEMORY_PREFIX))
		       ? target->memory_bucket
		       : target->bucket;
}

/* A memory bucket beside the bucket. False: the server has none. */
static bool memory_bucket_made(struct bench_target *target)
{
	const struct neb_header header = {.name = "x-nebulaio-memory", .value = MEMORY_BOUNDS};
	const struct neb_request request = {.op = NEB_CREATE_BUCKET,
		.bucket = target->memory_bucket,
		.headers = &header,
		.header_count = 1};
	struct neb_result result;

	if (target->memory_bucket[0] || !target->client)
		return target->client != NULL;
	snprintf(target->memory_bucket, sizeof(target->memory_bucket), "%s-memory", target->bucket);
	if (!neb_perform(target->client, &request, &result))
		return true;
	fprintf(stderr, "nebulaio bench: no memory bucket: %s\n", result.message);
	target->memory_bucket[0] = '\0';
	return false;
}

/* NULL: this way is not possible. */
static struct neb_client *client_of(struct bench_target *target, enum bench_way way)
{
	struct neb_client **client = way == BENCH_SEALED     ? &target->sealed
				     : way == BENCH_TOKEN    ? &target->token
				     : way == BENCH_HIPOBJ   ? &target->hipobj
				     : way == BENCH_ONESIDED ? &target->one_sided
							     : &target->client;

	if (way == BENCH_MEMORY && !memory_bucket_made(target))
		return NULL;
	if (!*client && way > BENCH_HTTP && target->client && target->server.http_address[0] &&
		client_open(target, way, client))
		*client = NULL;
	return *client;
}

static int sessions_open(struct bench_target *target)
{
	int ret = 0;

	for (uint32_t i = 0; i < ARRAY_LEN(target->sessions) && !ret; i++) {
		if (!target->sessions[i])
			ret = client_open(target, BENCH_SESSIONS, &target->sessions[i]);
	}
	return ret;
}

/* They go with the load: a server with many sessions looks for work in another way. */
static int each_open(struct bench_target *target, uint32_t count, struct bench_runner *runner)
{
	int ret = 0;

	CHECK(count <= ARRAY_LEN(runner->each));
	for (uint32_t i = 0; i < count && !ret; i++)
		ret = client_open(target, BENCH_EACH, &runner->each[i]);
	return ret;
}

static int open_client(struct bench_target *target, const struct bench_load_opts *opts,
	struct bench_runner *runner)
{
	const bool sessions = opts->way == BENCH_SESSIONS, each = opts->way == BENCH_EACH;
	const struct bench_client_opts client = {
		.client = client_of(target, opts->way),
		.others = each ? runner->each : target->sessions,
		.other_count = each	  ? opts->depth - 1
			       : sessions ? ARRAY_LEN(target->sessions)
					  : 0,
		.transport = is_token(opts->way) ? NEB_TOKEN : NEB_AUTO,
		.op = OPS[opts->op].op,
		.bucket = bucket_of(target, opts->data),
		.data = opts->data,
		.depth = opts->depth,
		.answer_bytes_max = answer_bytes_max(opts),
		.mixed = opts->op == BENCH_MIXED,
		.fan_out = opts->way == BENCH_FAN_OUT ? BENCH_SESSION_COUNT : 0,
		.check = reads_objects(opts->op)  ? bench_check_object
			 : opts->op == BENCH_LIST ? bench_check_page
						  : NULL,
		.check_arg = opts->op == BENCH_LIST ? (const void *)&runner->page_keys
						    : (const void *)opts->data,
	};

	int ret = client.client ? 0 : -ENODEV;

	if (!ret && opts->way == BENCH_CLIENTS)
		return bench_clients_open(&client, client_of_child, target, &runner->clients);
	if (!ret && (opts->way == BENCH_NODES || opts->way == BENCH_FAN_OUT))
		return bench_clients_open(&client, client_of_node, target, &runner->clients);
	if (!ret && (opts->way == BENCH_READ || opts->way == BENCH_MAP))
		return map_load_open(target, opts, &runner->map);
	if (!ret && (opts->way == BENCH_BATCH || opts->way == BENCH_SINGLES))
		return bench_batch_load_open(&client, opts->way == BENCH_SINGLES, &runner->batch);
	if (!ret && sessions)
		ret = sessions_open(target);
	if (!ret && each)
		ret = each_open(target, opts->depth - 1, runner);
	return ret ? ret : bench_client_load_open(&client, &runner->client);
}

/* The requests of one operation on all objects, or all pages. */
static int make_requests(struct bench_target *target, const struct bench_load_opts *opts,
	const struct bench_signer *signer, struct bench_http_set *set)
{
	char path[BENCH_KEY_BYTES + 64], key[BENCH_KEY_BYTES], query[BENCH_QUERY_BYTES];
	struct bench_http_line line = {.method = OPS[opts->op].method, .path = path, .query = ""};
	int ret = 0;

	snprintf(path, sizeof(path), opts->data ? "/%s" : "/", bucket_of(target, opts->data));
	for (uint32_t i = 0; i < set->count_max && !ret; i++) {
		if (opts->op == BENCH_LIST)
			line.query = bench_list_query(opts->data, i, query);
		else if (opts->data)
			snprintf(path, sizeof(path), "/%s/%s", bucket_of(target, opts->data),
				bench_data_key(opts->data, i, key));
		line.has_body =
			opts->op == BENCH_PUT || (opts->op == BENCH_MIXED && bench_mixed_writes(i));
		line.method = line.has_body ? "PUT" : OPS[opts->op].method;
		line.encrypted = line.has_body && opts->way == BENCH_AT_REST;
		line.body_bytes = line.has_body ? opts->data->bytes : 0;
		ret = bench_http_set_add(set, signer, &line, i,
			line.has_body ? opts->data->pool + bench_data_offset(i) : NULL);
	}
	return ret;
}

/* One signed request, over HTTP. */
static int ask_http(
	struct bench_target *target, const char *method, const char *query, const char *body)
{
	const struct bench_server *server = &target->server;
	char path[64], answer[16 * KIB];
	const struct bench_http_line line = {.method = method,
		.path = path,
		.query = query,
		.has_body = body != NULL,
		.body_bytes = body ? strlen(body) : 0};
	struct bench_signer signer;
	struct buf request;
	size_t bytes = 0;
	int ret;

	snprintf(path, sizeof(path), "/%s", target->bucket);
	bench_signer_init(&signer, server->use_access_key, server->use_secret_key, server->region,
		server->http_address);
	buf_init(&request, 4 * KIB);
	bench_http_put_head(&signer, &line, &request);
	if (body)
		buf_put_str(&request, body);
	ret = bench_http_once(
		server->http_address, buf_slice(&request), answer, sizeof(answer), &bytes);
	buf_free(&request);
	if (ret >= 200 && ret < 300)
		return 0;
	if (ret > 0)
		fprintf(stderr, "nebulaio bench: the bucket: status %d: %.200s\n", ret, answer);
	return ret < 0 ? ret : -EIO;
}

/* Lets everybody read the bucket of a server that bench started. */
static int publish(struct bench_target *target)
{
	char policy[256];
	int ret = ask_http(target, "DELETE", "publicAccessBlock=", NULL);

	snprintf(policy, sizeof(policy),
		"{\"Version\":\"2012-10-17\",\"Statement\":[{\"Effect\":\"Allow\","
		"\"Principal\":\"*\",\"Action\":\"s3:GetObject\","
		"\"Resource\":\"arn:aws:s3:::%s/*\"}]}",
		target->bucket);
	return ret ? ret : ask_http(target, "PUT", "policy=", policy);
}

static int open_http(struct bench_target *target, const struct bench_load_opts *opts,
	struct bench_runner *runner)
{
	const struct bench_server *server = &target->server;
	struct bench_http_set *set = &runner->set;
	uint32_t count = !opts->data ? 1 : opts->data->count;
	struct bench_signer signer;
	int ret;

	if (!server->http_address[0])
		return -ENODEV;
	if (opts->op == BENCH_LIST)
		count = MAX(count / LIMIT_LIST_KEYS_MAX, 1u);
	ret = opts->way == BENCH_UNSIGNED ? publish(target) : 0;
	if (!ret)
		ret = bench_http_set_open(set, count);
	if (ret)
		return ret;
	bench_signer_init(&signer, opts->way == BENCH_UNSIGNED ? NULL : server->use_access_key,
		server->use_secret_key, server->region, server->http_address);
	ret = make_requests(target, opts, &signer, set);
	secret_wipe(&signer, sizeof(signer));
	set->status = OPS[opts->op].status;
	set->answers_without_body = opts->op == BENCH_HEAD;
	set->body_bytes = opts->op == BENCH_PUT || opts->op == BENCH_MIXED ? opts->data->bytes : 0;
	set->answer_bytes =
		reads_objects(opts->op) || opts->op == BENCH_HEAD ? opts->data->bytes : UINT64_MAX;
	set->answer_bytes_max = MAX(answer_bytes_max(opts), (uint64_t)EMPTY_BYTES_MAX);
	set->check = reads_objects(opts->op)  ? bench_check_object
		     : opts->op == BENCH_LIST ? bench_check_page
					      : NULL;
	set->check_arg = opts->op == BENCH_LIST ? (const void *)&runner->page_keys
						: (const void *)opts->data;
	if (!ret)
		ret = bench_http_load_open(server->http_address, opts->depth, set, &runner->http);
	return ret;
}

int bench_runner_open(struct bench_target *target, const struct bench_load_opts *opts,
	struct bench_runner *ret_runner)
{
	int ret;

	*ret_runner = (struct bench_runner){0};
	if (opts->op == BENCH_LIST)
		ret_runner->page_keys = MIN(opts->data->count, (uint32_t)LIMIT_LIST_KEYS_MAX);
	ret = (bench_way_is_http(opts->way) ? open_http : open_client)(target, opts, ret_runner);
	if (ret)
		bench_runner_close(ret_runner);
	return ret;
}

int bench_runner_open_plain(const char *address, const struct bench_data *data, uint32_t depth,
	struct bench_runner *ret_runner)
{
	struct bench_http_set *set = &ret_runner->set;
	char path[BENCH_KEY_BYTES + 1], key[BENCH_KEY_BYTES];
	struct bench_http_line line = {.method = "GET", .path = path, .query = ""};
	struct bench_signer nobody;
	int ret;

	*ret_runner = (struct bench_runner){0};
	bench_signer_init(&nobody, NULL, NULL, NULL, address);
	ret = bench_http_set_open(set, data->count);
	for (uint32_t i = 0; i < data->count && !ret; i++) {
		snprintf(path, sizeof(path), "/%s", bench_data_key(data, i, key));
		ret = bench_http_set_add(set, &nobody, &line, i, NULL);
	}
	set->answer_bytes = data->bytes;
	set->answer_bytes_max = data->bytes;
	set->check = bench_check_object;
	set->check_arg = data;
	if (!ret)
		ret = bench_http_load_open(address, depth, set, &ret_runner->http);
	if (ret)
		bench_runner_close(ret_runner);
	return ret;
}

void bench_runner_run(
	struct bench_runner *runner, const struct bench_run_opts *opts, struct bench_result *result)
{
	struct bench_run_opts run = *opts;

	run.turn = runner->turn;
	if (runner->clients)
		runner->turn = bench_clients_run(runner->clients, &run, result);
	else if (runner->batch)
		runner->turn = bench_batch_load_run(runner->batch, &run, result);
	else if (runner->map)
		runner->turn = bench_map_load_run(runner->map, &run, result);
	else if (runner->client)
		runner->turn = bench_client_load_run(runner->client, &run, result);
	else
		runner->turn = bench_http_load_run(runner->http, &run, result);
}

void bench_runner_close(struct bench_runner *runner)
{
	bench_clients_close(runner->clients);
	bench_batch_load_close(runner->batch);
	bench_map_load_close(runner->map);
	bench_client_load_close(runner->client);
	for (uint32_t i = 0; i < ARRAY_LEN(runner->each); i++)
		neb_client_close(runner->each[i]);
	bench_http_load_close(runner->http);
	bench_http_set_close(&runner->set);
	*runner = (struct bench_runner){0};
}

/* ---- Objects. ---- */

#define AT_REST_PREFIX "atrest-" /* of objects that are put encrypted */

int bench_target_pass(struct bench_target *target, const struct bench_data *data, enum bench_op op,
	struct bench_result *ret_result)
{
	const struct bench_load_opts opts = {.op = op,
		.way = !strncmp(data->prefix, AT_REST_PREFIX, strlen(AT_REST_PREFIX))
			       ? BENCH_AT_REST
		       : target->client ? BENCH_RDMA
					: BENCH_HTTP,
		.data = data,
		.depth =
			data->bytes > MIB ? 1 : BENCH_DEPTH_MAX / (data->bytes > 64 * KIB ? 4 : 1)};
	const struct bench_run_opts run = {
		.duration_ns = PASS_NS_MAX, .ops_max = data->count, .verify_every = 1};
	struct bench_result result = {0};
	struct bench_runner runner;
	struct hist *hist = malloc(sizeof(*hist));
	int ret;

	if (!hist)
		return -ENOMEM;
	hist_reset(hist);
	result.hist = hist;
	ret = bench_runner_open(target, &opts, &runner);
	if (!ret) {
		bench_runner_run(&runner, &run, &result);
		bench_runner_close(&runner);
		if (result.errors)
			ret = -EIO;
	}
	if (ret)
		fprintf(stderr, "nebulaio bench: %s %s*: %s\n", OPS[op].method, data->prefix,
			result.errors ? result.first_error : strerror(-ret));
	result.hist = NULL;
	*ret_result = result;
	free(hist);
	return ret;
}

/* One large object is read by pieces. */
static uint64_t object_bytes(const struct bench_subject *subject)
{
	return subject->way == BENCH_READ || subject->way == BENCH_MAP ? BENCH_HUGE_BYTES
								       : subject->bytes;
}

/* Keys of one row's objects, and how many there are. */
static uint32_t name_data(
	const struct bench_target *target, const struct bench_subject *subject, char prefix[40])
{
	unsigned long long bytes = object_bytes(subject);

	if (subject->bytes == BENCH_SMALL_BYTES) {
		bool many = subject->way == BENCH_MANY;

		snprintf(prefix, 40, many ? "many-" : "few-");
		return many ? target->opts->objects : BENCH_FEW_OBJECTS;
	}
	switch (subject->op) {
	case BENCH_PUT:
		snprintf(prefix, 40, "put-%s-%llu-", bench_way_word(subject->way), bytes);
		if (bytes >= BENCH_HUGE_BYTES)
			return HUGE_OBJECTS;
		return (uint32_t)MAX(BENCH_HOT_BYTES / bytes, (uint64_t)BENCH_DEPTH_MAX);
	case BENCH_MIXED:
		snprintf(prefix, 40, "mixed-%s-%llu-", bench_way_word(subject->way), bytes);
		return (uint32_t)MAX(BENCH_HOT_BYTES / bytes, (uint64_t)BENCH_DEPTH_MAX);
	case BENCH_DELETE:
		snprintf(prefix, 40, "delete-%s-%llu-", bench_way_word(subject->way), bytes);
		return DELETE_OBJECTS;
	case BENCH_LIST:
		snprintf(prefix, 40, "list-");
		return target->opts->list_keys;
	default:
		if (subject->heat == BENCH_COLD) {
			snprintf(prefix, 40, "cold-%llu-", bytes);
			return (uint32_t)(BENCH_COLD_BYTES / bytes);
		}
		snprintf(prefix, 40, "%s%llu-",
			subject->way == BENCH_AT_REST ? AT_REST_PREFIX : "hot-", bytes);
		return (uint32_t)MAX(BENCH_HOT_BYTES / bytes, 1ull);
	}
}

int bench_target_data(struct bench_target *target, const struct bench_subject *subject,
	const struct bench_data **ret_data)
{
	struct bench_data *data = &target->data[target->data_count];
	struct bench_result result;
	char prefix[40];
	uint32_t count = name_data(target, subject, prefix);
	uint64_t bytes = object_bytes(subject);
	int ret;

	for (uint32_t i = 0; i < target->data_count; i++) {
		*ret_data = &target->data[i];
		if (!strcmp(target->data[i].prefix, prefix))
			return 0;
	}
	CHECK(target->data_count < BENCH_DATA_SETS_MAX);
	ret = bench_data_open(data, prefix, bytes, count);
	if (ret)
		return ret;
	target->data_count++;
	*ret_data = data;
	/* Its first objects are put below. */
	if (subject->way == BENCH_MEMORY && !client_of(target, BENCH_MEMORY))
		return -ENODEV;
	/* DELETE's objects are stored before each slice. */
	if (subject->op == BENCH_DELETE)
		return 0;
	ret = bench_target_pass(target, data, BENCH_PUT, &result);
	return ret ? ret : bench_server_settle(&target->server);
}

/* ---- The target. ---- */

static void connect_rdma(struct bench_target *target)
{
	struct neb_result result;
	int ret;

	if (!target->server.rdma_address[0]) {
		snprintf(target->client_failed, sizeof(target->client_failed), "no RDMA endpoint");
		return;
	}
	ret = client_open(target, BENCH_RDMA, &target->client);
	if (!ret)
		ret = neb_ping(target->client, &result);
	if (!ret)
		return;
	neb_client_close(target->client);
	target->client = NULL;
	if (!target->client_failed[0])
		snprintf(target->client_failed, sizeof(target->client_failed), "rdma://%s: %s",
			target->server.rdma_address, strerror(-ret));
}

/* Makes or removes the bucket, over either transport. */
static int ask_bucket(struct bench_target *target, bool make)
{
	struct neb_result result;

	if (!target->client)
		return make ? ask_http(target, "PUT", "", "")
			    : ask_http(target, "DELETE", "", NULL);
	return make ? neb_bucket_create(target->client, target->bucket, &result)
		    : neb_bucket_delete(target->client, target->bucket, &result);
}

int bench_target_open(struct bench_target *target, const struct bench_opts *opts,
	const struct bench_cpus *cpus, const char *folder)
{
	uint32_t random;
	int ret;

	*target = (struct bench_target){.opts = opts};
	ret = bench_server_open(opts, cpus, folder, &target->server);
	if (ret)
		return ret;
	connect_rdma(target);
	if (!target->client && !target->server.http_address[0]) {
		fprintf(stderr, "nebulaio bench: cannot reach the server: %s\n",
			target->client_failed);
		bench_target_close(target);
		return -EHOSTUNREACH;
	}
	random_fill(&random, sizeof(random));
	snprintf(target->bucket, sizeof(target->bucket), "nebulaio-bench-%08x", random);
	ret = ask_bucket(target, true);
	if (ret) {
		fprintf(stderr, "nebulaio bench: cannot make a bucket: %s\n", strerror(-ret));
		target->bucket[0] = '\0';
		bench_target_close(target);
	}
	return ret;
}

void bench_target_close(struct bench_target *target)
{
	bool lives_on = !target->server.child.pid;
	struct neb_result ended;
	struct bench_result result;

	for (uint32_t i = 0; i < target->data_count; i++) {
		if (lives_on)
			bench_target_pass(target, &target->data[i], BENCH_DELETE, &result);
		bench_data_close(&target->data[i]);
	}
	if (lives_on && target->memory_bucket[0])
		neb_bucket_delete(target->client, target->memory_bucket, &ended);
	if (lives_on && target->bucket[0])
		ask_bucket(target, false);
	neb_client_close(target->sealed);
	neb_client_close(target->token);
	neb_client_close(target->hipobj);
	neb_client_close(target->one_sided);
	for (uint32_t i = 0; i < ARRAY_LEN(target->sessions); i++)
		neb_client_close(target->sessions[i]);
	neb_client_close(target->client);
	bench_server_close(&target->server);
	*target = (struct bench_target){0};
}
