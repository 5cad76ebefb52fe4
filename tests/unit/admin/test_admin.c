#include "../unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "s3/replication.h"
#include "server/admin/admin.h"

static struct region *region;
static struct reactor *reactor;
static _Atomic bool draining;
static struct admin_opts opts;

/* ---- The store and the administration's interface. ---- */

static const char *not_writable; /* why */
static uint32_t volume_count;
static uint32_t admin_calls;

bool store_writable(const struct store *store, char *ret_why, size_t why_cap)
{
	(void)store;
	if (not_writable)
		snprintf(ret_why, why_cap, "%s", not_writable);
	return !not_writable;
}

void store_usage(struct store *store, struct store_usage *ret_usage)
{
	(void)store;
	*ret_usage = (struct store_usage){.volume_bytes = 1000,
		.used_bytes = 600,
		.free_bytes = 400,
		.objects = 7,
		.buckets = 2};
}

uint32_t store_volumes(struct store *store, struct store_volume *ret_volumes, uint32_t max)
{
	(void)store;
	assert_true(volume_count <= max);
	for (uint32_t i = 0; i < volume_count; i++)
		ret_volumes[i] = (struct store_volume){
			.number = i, .state = i ? DISK_MEMBER_MISSING : DISK_MEMBER_GOOD};
	return volume_count;
}

void store_volumes_status(struct store *store, struct store_set_status *ret_status)
{
	(void)store;
	*ret_status = (struct store_set_status){0};
}

static int protection = -1;

int store_protected(const struct store *store)
{
	(void)store;
	return protection;
}

uint64_t store_list_bytes(const struct store *store)
{
	(void)store;
	return 170;
}

uint64_t store_index_jobs(const struct store *store)
{
	(void)store;
	return 5;
}

void s3_admin_handle(struct s3 *s3, const struct s3_request *request, struct s3_reply *reply,
	s3_admin_tell_fn *tell, void *tell_arg)
{
	(void)s3;
	(void)tell;
	(void)tell_arg;
	(void)request;
	reply->status = 299;
	admin_calls++;
}

static bool bearer_good;
static uint32_t bearer_calls;

void s3_bearer_handle(struct s3 *s3, const struct s3_request *request, struct s3_reply *reply,
	s3_page_fn *page, void *arg)
{
	(void)s3;
	bearer_calls++;
	if (bearer_good)
		page(arg, request, reply);
	else
		reply->status = 403;
}

/* One target, whose oldest row has waited for an hour. */
uint32_t s3_replicate_list(
	struct s3 *s3, struct s3_replicate_told ret_list[S3_REPLICATE_TARGETS_MAX])
{
	(void)s3;
	ret_list[0] = (struct s3_replicate_told){.place = {.name = "far"},
		.state = {.refused = 2, .oldest_ns = clock_real_ns() - 3600 * NS_PER_S},
		.counts = {[S3_REPLICATE_PENDING] = 5, [S3_REPLICATE_FAILED] = 1}};
	return 1;
}

/* One rule, whose id has all that a label must not have as it is. */
uint32_t s3_replicate_rules(
	struct s3 *s3, struct s3_replicate_rule_told ret_list[S3_REPLICATE_RULES_MAX])
{
	(void)s3;
	ret_list[0] = (struct s3_replicate_rule_told){.bucket = "photos",
		.target = "far",
		.rule = "a\"b\\c\nd",
		.pending = 3,
		.pending_bytes = 7,
		.missed = 2,
		.sent_ns = 1500 * NS_PER_MS};
	return 1;
}

int store_bucket_usage(struct store *store, struct slice name, struct store_quota *ret_used)
{
	(void)store;
	*ret_used = (struct store_quota){.bytes = name.len, .objects = 1};
	return 0;
}

int store_bucket_list(
	struct store *store, struct slice after, store_bucket_visit_fn *visit, void *arg)
{
	(void)store;
	assert_int_equal(after.len, 0);
	return visit(&(struct store_bucket){.name = ".config"}, arg) &&
			       visit(&(struct store_bucket){.name = "photos"}, arg) &&
			       visit(&(struct store_bucket){.name = "tables"}, arg)
		       ? 0
		       : -1;
}

/* ---- A request and its answer. ---- */

static struct {
	uint32_t status;
	uint64_t announced;
	char type[128];
	struct buf text;
	bool has_text;
	int head_error;
} got;

static int reply_head(struct s3_reply *reply, uint32_t status, const struct s3_header *headers,
	uint32_t header_count, uint64_t bytes)
{
	if (got.head_error)
		return got.head_error;
	reply->status = got.status = status;
	got.announced = bytes;
	for (uint32_t i = 0; i < header_count; i++)
		if (slice_eq_nocase(headers[i].name, SLICE("content-type")))
			slice_copy_str(headers[i].value, got.type, sizeof(got.type));
	return 0;
}

static int reply_text(struct s3_reply *reply, struct slice text)
{
	(void)reply;
	got.has_text = true;
	buf_put_slice(&got.text, text);
	return 0;
}

static int reply_sink(struct s3_reply *reply, struct flow_sink **ret_sink)
{
	(void)reply;
	(void)ret_sink;
	fail();
	return -1;
}

static const struct s3_reply_ops REPLY_OPS = {
	.head = reply_head, .text = reply_text, .sink = reply_sink};

static uint32_t ask(enum s3_method method, const char *path)
{
	struct s3_request request = {.method = method, .path = slice_str(path)};
	struct s3_reply reply = {.ops = &REPLY_OPS};
	int head_error = got.head_error;

	buf_free(&got.text);
	memset(&got, 0, sizeof(got));
	got.head_error = head_error;
	buf_init(&got.text, 8 * MIB);
	admin_handle(&opts, &request, &reply);
	return reply.status;
}

static bool has(const char *text)
{
	return slice_find(buf_slice(&got.text), slice_str(text)) >= 0;
}

static int setup(void **state)
{
	const struct region_opts region_opts = {.bytes = 16 * MIB, .core_count = 1};
	const struct reactor_opts reactor_opts = {.cpu = -1};

	(void)state;
	assert_int_equal(region_open(&region_opts, &region), 0);
	assert_int_equal(reactor_open(&reactor_opts, &reactor), 0);
	draining = false;
	not_writable = NULL;
	volume_count = 0;
	admin_calls = 0;
	got.head_error = 0;
	opts = (struct admin_opts){
		.region = region, .reactors = &reactor, .reactor_count = 1, .draining = &draining};
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	buf_free(&got.text);
	memset(&got, 0, sizeof(got));
	reactor_close(reactor);
	region_close(region);
	return 0;
}

/* ---- Paths. ---- */

static void test_paths(void **state)
{
	(void)state;
	assert_int_equal(ask(S3_GET, "/health/live"), 200);
	assert_true(has("live\n"));
	assert_int_equal(got.announced, got.text.len);
	assert_int_equal(ask(S3_GET, "/nothing"), 404);
	assert_true(has("/metrics"));
	assert_int_equal(ask(S3_GET, "/metrics/"), 404);
	assert_int_equal(ask(S3_GET, "/"), 404);
	assert_int_equal(ask(S3_POST, "/metrics"), 405);
	assert_int_equal(ask(S3_DELETE, "/health/live"), 405);
	assert_int_equal(ask(S3_PUT, "/nothing"), 405);
	/* Paths below /admin/v1/ are s3's, whatever the method: they need a signature. */
	assert_int_equal(ask(S3_POST, "/admin/v1/scrub"), 299);
	assert_int_equal(ask(S3_GET, "/admin/v1/"), 299);
	assert_int_equal(admin_calls, 2);
	assert_int_equal(ask(S3_GET, "/admin/v1"), 404);
	assert_int_equal(admin_calls, 2);
}

/* HEAD has the head of GET's answer. */
static void test_head(void **state)
{
	(void)state;
	assert_int_equal(ask(S3_HEAD, "/health/live"), 200);
	assert_int_equal(got.announced, 5);
	assert_false(got.has_text);
	assert_int_equal(ask(S3_HEAD, "/metrics"), 200);
	assert_true(got.announced > 1000);
	assert_false(got.has_text);
	/* After a lost connection, nothing more is sent. */
	got.head_error = -32;
	assert_int_equal(ask(S3_GET, "/health/live"), 0);
	assert_false(got.has_text);
}

static void test_ready(void **state)
{
	(void)state;
	assert_int_equal(ask(S3_GET, "/health/ready"), 200);
	assert_true(has("ready\n"));
	not_writable = "The volume is full.";
	assert_int_equal(ask(S3_GET, "/health/ready"), 503);
	assert_true(has("The volume is full.\n"));
	/* Still alive: a restart would not help. */
	assert_int_equal(ask(S3_GET, "/health/live"), 200);
	draining = true;
	assert_int_equal(ask(S3_GET, "/health/ready"), 503);
	assert_true(has("shutting down\n"));
	assert_int_equal(ask(S3_GET, "/health/live"), 200);
}

/* ---- Metrics. ---- */

DEFINE_COUNTER(first_kind, "nebulaio_test_things_total", "kind=\"first\"", "Things of the test.");
DEFINE_COUNTER(between, "nebulaio_test_between", NULL, "Between them.");
DEFINE_COUNTER(second_kind, "nebulaio_test_things_total", "kind=\"second\"", "Things of the test.");

static void test_counters_of_one_metric_stand_together(void **state)
{
	(void)state;
	counter_add(&first_kind, 3);
	counter_add(&second_kind, 4);
	counter_add(&between, 5);
	assert_int_equal(ask(S3_GET, "/metrics"), 200);
	assert_string_equal(got.type, "text/plain; version=0.0.4; charset=utf-8");
	assert_true(has("# HELP nebulaio_test_between Between them.\n"
			"# TYPE nebulaio_test_between gauge\nnebulaio_test_between 5\n"));
	assert_true(has("# HELP nebulaio_test_things_total Things of the test.\n"
			"# TYPE nebulaio_test_things_total counter\n"
			"nebulaio_test_things_total{kind=\"first\"} 3\n"
			"nebulaio_test_things_total{kind=\"second\"} 4\n") ||
		    has("# HELP nebulaio_test_things_total Things of the test.\n"
			"# TYPE nebulaio_test_things_total counter\n"
			"nebulaio_test_things_total{kind=\"second\"} 4\n"
			"nebulaio_test_things_total{kind=\"first\"} 3\n"));
}

/* The format: a metric has one head, and all its lines follow it. */
static void test_every_metric_has_one_head(void **state)
{
	struct slice rest, line, current = SLICE_NONE;
	uint32_t heads = 0, lines = 0;

	(void)state;
	volume_count = 2;
	assert_int_equal(ask(S3_GET, "/metrics"), 200);
	rest = buf_slice(&got.text);
	assert_int_equal(rest.data[rest.len - 1], '\n');
	while (rest.len) {
		line = slice_split(&rest, '\n');
		if (slice_starts(line, SLICE("# TYPE "))) {
			char head[256];

			line = slice_from(line, strlen("# TYPE "));
			current = slice_split(&line, ' ');
			snprintf(
				head, sizeof(head), "# TYPE %.*s ", (int)current.len, current.data);
			assert_true(slice_find(rest, slice_str(head)) < 0);
			heads++;
		} else if (!slice_starts(line, SLICE("#"))) {
			assert_true(slice_starts(line, current));
			lines++;
		}
	}
	assert_true(heads > 10 && lines > heads);
}

#define MANY 2000u
/* Every metric is written, whatever their number. */
static void test_no_metric_is_left_out(void **state)
{
	static struct counter many[MANY];
	static char names[MANY][48];
	char line[80];

	(void)state;
	for (uint32_t i = 0; i < ARRAY_LEN(many); i++) {
		snprintf(names[i], sizeof(names[i]), "nebulaio_test_many_%u_total", i);
		many[i] = (struct counter){.name = names[i], .help = "One of many."};
		counter_register(&many[i]);
		counter_add(&many[i], i);
	}
	assert_int_equal(ask(S3_GET, "/metrics"), 200);
	for (uint32_t i = 0; i < ARRAY_LEN(many); i++) {
		snprintf(line, sizeof(line), "\nnebulaio_test_many_%u_total %u\n", i, i);
		assert_true(has(line));
	}
}

static void test_metrics_of_the_parts(void **state)
{
	struct region_span span;

	(void)state;
	assert_int_equal(region_lease(region, 3, OWNER_DISK, &span), 0);
	assert_int_equal(ask(S3_GET, "/metrics"), 200);
	assert_true(has("nebulaio_region_frames{owner=\"disk\"} 3\n"));
	assert_true(has("nebulaio_store_volume_bytes 1000\n"));
	assert_true(has("nebulaio_store_used_bytes 600\n"));
	assert_true(has("nebulaio_store_objects 7\n"));
	assert_true(has("nebulaio_reactor_turns_total{core=\"0\"} "));
	assert_true(
		has("nebulaio_ring_latency_seconds_bucket{ring=\"base\",core=\"0\",le=\"+Inf\"} "
		    "0\n"));
	assert_true(has("nebulaio_ring_latency_seconds_count{ring=\"rdma\",core=\"0\"} 0\n"));
	assert_true(has("nebulaio_replication_pending_objects{target=\"far\"} 5\n"));
	assert_true(has("nebulaio_replication_failed_total{target=\"far\"} 1\n"));
	assert_true(has("nebulaio_replication_refused{target=\"far\"} 2\n"));
	assert_true(has("nebulaio_replication_oldest_age_seconds{target=\"far\"} 36"));
#define RULE "{bucket=\"photos\",target=\"far\",rule=\"a\\\"b\\\\c\\nd\"} "
	assert_true(has("nebulaio_replication_rule_pending_objects" RULE "3\n"));
	assert_true(has("nebulaio_replication_rule_pending_bytes" RULE "7\n"));
	assert_true(has("nebulaio_replication_rule_missed_total" RULE "2\n"));
	assert_true(has("nebulaio_replication_rule_seconds_total" RULE "1.500\n"));
	assert_false(has("nebulaio_store_volume_state"));
	assert_true(has("nebulaio_store_index_protected 0\n"));
	assert_true(has("nebulaio_store_index_jobs 5\n"));
	assert_true(has("nebulaio_store_list_table_bytes 170\n"));
	volume_count = 2;
	protection = 1;
	assert_int_equal(ask(S3_GET, "/metrics"), 200);
	assert_true(has("nebulaio_store_index_protected 1\n"));
	assert_true(has("nebulaio_store_volume_state{volume=\"0\",state=\"good\"} 1\n"));
	assert_true(has("nebulaio_store_volume_state{volume=\"1\",state=\"good\"} 0\n"));
	assert_true(has("nebulaio_store_volume_state{volume=\"1\",state=\"missing\"} 1\n"));
	region_give(region, span, OWNER_DISK);
}

/* ---- MinIO's paths. ---- */

DEFINE_COUNTER(parts_good, "nebulaio_s3_requests_total", "operation=\"UploadPart\",status=\"2xx\"",
	"S3 requests.");
DEFINE_COUNTER(parts_bad, "nebulaio_s3_requests_total", "operation=\"UploadPart\",status=\"4xx\"",
	"S3 requests.");
DEFINE_COUNTER(parts_worse, "nebulaio_s3_requests_total", "operation=\"UploadPart\",status=\"5xx\"",
	"S3 requests.");
DEFINE_COUNTER(lists_none, "nebulaio_s3_requests_total",
	"operation=\"ListObjectsV2\",status=\"2xx\"", "S3 requests.");
DEFINE_COUNTER(
	received, "nebulaio_s3_body_bytes_total", "direction=\"in\",transport=\"http\"", "Bytes.");
DEFINE_COUNTER(received_by_rdma, "nebulaio_s3_body_bytes_total",
	"direction=\"in\",transport=\"rdma\"", "Bytes.");
DEFINE_COUNTER(
	sent, "nebulaio_s3_body_bytes_total", "direction=\"out\",transport=\"http\"", "Bytes.");

/* 0: not one of these paths. */
static uint32_t ask_minio(enum s3_method method, const char *path, const char *authorization)
{
	const struct s3_header header = {
		SLICE("Authorization"), slice_str(authorization ? authorization : "")};
	struct s3_request request = {.method = method,
		.path = slice_str(path),
		.headers = &header,
		.header_count = authorization != NULL};
	struct s3_reply reply = {.ops = &REPLY_OPS};

	buf_free(&got.text);
	memset(&got, 0, sizeof(got));
	buf_init(&got.text, 8 * MIB);
	return admin_minio_handle(&opts, &request, &reply) ? reply.status : 0;
}

static void test_minio_paths(void **state)
{
	(void)state;
	bearer_good = false;
	assert_int_equal(ask_minio(S3_GET, "/minio/v2/metrics/cluster", "Bearer x"), 403);
	assert_int_equal(ask_minio(S3_GET, "/minio/v2/metrics/cluster", NULL), 403);
	assert_int_equal(bearer_calls, 2);
	bearer_good = true;
	assert_int_equal(ask_minio(S3_GET, "/minio/v2/metrics/cluster", "Bearer x"), 200);
	assert_int_equal(ask_minio(S3_GET, "/minio/v2/metrics/node", "Bearer x"), 200);
	assert_int_equal(ask_minio(S3_HEAD, "/minio/v2/metrics/node", "Bearer x"), 200);
	assert_false(got.has_text);
	assert_int_equal(bearer_calls, 5);
	/* Objects of a bucket "minio", and an unknown path. */
	assert_int_equal(ask_minio(S3_GET, "/minio/v2/metrics/cluster", "AWS4-HMAC-SHA256 x"), 0);
	assert_int_equal(ask_minio(S3_PUT, "/minio/v2/metrics/cluster", "Bearer x"), 0);
	assert_int_equal(ask_minio(S3_GET, "/minio/v2/metrics/resource", "Bearer x"), 0);
	assert_int_equal(ask_minio(S3_GET, "/minio/v2/metrics/", "Bearer x"), 0);
	assert_int_equal(ask_minio(S3_GET, "/minio/v2/metrics/cluster/", "Bearer x"), 0);
	assert_int_equal(ask_minio(S3_GET, "/minio/", NULL), 0);
	assert_int_equal(bearer_calls, 5);
	opts.minio_public = true;
	assert_int_equal(ask_minio(S3_GET, "/minio/v2/metrics/cluster", NULL), 200);
	assert_int_equal(bearer_calls, 5);
}

/* Whether the output has this line, with the label of the server. */
static bool has_value(const char *name, const char *labels, const char *value)
{
	char host[65] = "", line[512];

	gethostname(host, sizeof(host) - 1);
	snprintf(line, sizeof(line), "\n%s{%sserver=\"%s\"} %s\n", name, labels, host, value);
	return has(line);
}

static void test_minio_names(void **state)
{
	(void)state;
	opts.minio_public = true;
	counter_add(&parts_good, 5);
	counter_add(&parts_bad, 2);
	counter_add(&parts_worse, 1);
	counter_add(&received, 100);
	counter_add(&received_by_rdma, 11);
	counter_add(&sent, 7);
	counter_add(&lists_none, 0);
	assert_int_equal(ask_minio(S3_GET, "/minio/v2/metrics/cluster", NULL), 200);
	assert_true(has_value("minio_s3_requests_total", "api=\"putobjectpart\",", "8"));
	assert_true(has_value("minio_s3_requests_errors_total", "api=\"putobjectpart\",", "3"));
	assert_true(has_value("minio_s3_requests_4xx_errors_total", "api=\"putobjectpart\",", "2"));
	assert_true(has_value("minio_s3_requests_5xx_errors_total", "api=\"putobjectpart\",", "1"));
	assert_false(has("listobjectsv2"));
	assert_true(has_value("minio_s3_traffic_received_bytes", "", "111"));
	assert_true(has_value("minio_s3_traffic_sent_bytes", "", "7"));
	assert_true(has_value("minio_cluster_bucket_total", "", "2"));
	assert_true(has_value("minio_cluster_health_status", "", "1"));
	/* A store of one volume. */
	assert_true(has_value("minio_cluster_drive_online_total", "", "1"));
	volume_count = 3;
	not_writable = "Too many volumes are gone.";
	assert_int_equal(ask_minio(S3_GET, "/minio/v2/metrics/cluster", NULL), 200);
	assert_true(has_value("minio_cluster_health_status", "", "0"));
	assert_true(has_value("minio_cluster_drive_total", "", "3"));
	assert_true(has_value("minio_cluster_drive_online_total", "", "1"));
	assert_true(has_value("minio_node_drive_offline_total", "", "2"));
	/* A node's metrics contain none of the cluster. */
	assert_int_equal(ask_minio(S3_GET, "/minio/v2/metrics/node", NULL), 200);
	assert_false(has("minio_cluster_"));
	assert_true(has("# TYPE minio_node_process_uptime_seconds gauge\n"));
	/* Buckets have a page of their own. */
	assert_int_equal(ask_minio(S3_GET, "/minio/v2/metrics/bucket", NULL), 200);
	assert_false(has("minio_node_") || has("minio_cluster_"));
	assert_true(has("# TYPE minio_bucket_usage_total_bytes gauge\n"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_paths, setup, teardown),
		cmocka_unit_test_setup_teardown(test_head, setup, teardown),
		cmocka_unit_test_setup_teardown(test_ready, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_counters_of_one_metric_stand_together, setup, teardown),
		cmocka_unit_test_setup_teardown(test_every_metric_has_one_head, setup, teardown),
		cmocka_unit_test_setup_teardown(test_metrics_of_the_parts, setup, teardown),
		cmocka_unit_test_setup_teardown(test_no_metric_is_left_out, setup, teardown),
		cmocka_unit_test_setup_teardown(test_minio_paths, setup, teardown),
		cmocka_unit_test_setup_teardown(test_minio_names, setup, teardown),
	};

	return cmocka_run_group_tests_name("admin", tests, NULL, NULL);
}
