/* server/admin/minio.c: the answers of MinIO's scrape paths, on the S3 port: a metric that means
 * the same here has MinIO's name (its metrics, version 2); others are left out. */
#include "server/admin/admin_priv.h"

#include <inttypes.h>
#include <unistd.h>

#define BEGIN SLICE("/minio/v2/metrics/")

/* ---- Requests, by operation. ---- */

/* The operations whose name in MinIO is not S3's in lower case. */
static const struct {
	struct slice ours, theirs;
} NAMES[] = {
	{SLICE("CreateBucket"), SLICE("putbucket")},
	{SLICE("CreateMultipartUpload"), SLICE("newmultipartupload")},
	{SLICE("DeleteObjects"), SLICE("deletemultipleobjects")},
	{SLICE("ListObjects"), SLICE("listobjectsv1")},
	{SLICE("ListParts"), SLICE("listobjectparts")},
	{SLICE("PostObject"), SLICE("postpolicybucket")},
	{SLICE("RestoreObject"), SLICE("postrestoreobject")},
	{SLICE("UploadPart"), SLICE("putobjectpart")},
	{SLICE("UploadPartCopy"), SLICE("copyobjectpart")},
};

static void put_api(struct buf *out, struct slice operation)
{
	for (size_t i = 0; i < ARRAY_LEN(NAMES); i++)
		if (slice_eq(NAMES[i].ours, operation)) {
			buf_put_slice(out, NAMES[i].theirs);
			return;
		}
	for (size_t i = 0; i < operation.len; i++) {
		char c = operation.data[i];

		if (c >= 'A' && c <= 'Z')
			c = (char)(c - 'A' + 'a');
		buf_put(out, &c, 1);
	}
}

/* The value of a label, which has no quotes in it. */
static struct slice label(const struct counter *counter, struct slice name)
{
	struct slice rest = slice_str(counter->labels ? counter->labels : "");
	ptrdiff_t at = slice_find(rest, name);

	if (at < 0)
		return SLICE_NONE;
	rest = slice_from(rest, (size_t)at + name.len);
	slice_split(&rest, '"');
	return slice_split(&rest, '"');
}

#define OPERATIONS_MAX 128u
struct operations {
	uint32_t count;
	struct {
		struct slice name;
		uint64_t by_class[6]; /* 2 to 5 */
	} items[OPERATIONS_MAX];
	uint64_t in_flight, received, sent;
};

/* Counters of one operation are registered together. */
static void count_requests(struct operations *operations, const struct counter *counter)
{
	struct slice name = label(counter, SLICE("operation="));
	struct slice status = label(counter, SLICE("status="));
	uint32_t last = operations->count - 1;

	if (!status.len || status.data[0] < '2' || status.data[0] > '5')
		return;
	if (!operations->count || !slice_eq(operations->items[last].name, name)) {
		if (operations->count == OPERATIONS_MAX)
			return;
		last = operations->count++;
		operations->items[last].name = name;
	}
	operations->items[last].by_class[status.data[0] - '0'] = counter_read(counter);
}

static void count(const struct counter *counter, void *arg)
{
	struct operations *operations = arg;
	struct slice name = slice_str(counter->name);

	if (slice_eq(name, SLICE("nebulaio_s3_requests_total")))
		count_requests(operations, counter);
	else if (slice_eq(name, SLICE("nebulaio_s3_requests_in_flight")))
		operations->in_flight = counter_read(counter);
	else if (!slice_eq(name, SLICE("nebulaio_s3_body_bytes_total")))
		return;
	else if (slice_eq(label(counter, SLICE("direction=")), SLICE("in")))
		operations->received += counter_read(counter);
	else
		operations->sent += counter_read(counter);
}

/* ---- Lines. ---- */

/* Each line has the label that identifies one of MinIO's servers. */
struct minio {
	struct buf *out;
	char server[65];
};

static void minio_init(struct minio *minio, struct buf *out)
{
	*minio = (struct minio){.out = out};
	if (gethostname(minio->server, sizeof(minio->server) - 1))
		minio->server[0] = '\0';
	for (char *c = minio->server; *c; c++)
		if (*c == '"' || *c == '\\' || *c < ' ')
			*c = '_';
}

static void put_head(
	const struct minio *minio, const char *name, const char *type, const char *help)
{
	buf_printf(minio->out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void put_gauge(const struct minio *minio, const char *name, const char *help, uint64_t value)
{
	put_head(minio, name, "gauge", help);
	buf_printf(minio->out, "%s{server=\"%s\"} %" PRIu64 "\n", name, minio->server, value);
}

static void put_counter(
	const struct minio *minio, const char *name, const char *help, uint64_t value)
{
	put_head(minio, name, "counter", help);
	buf_printf(minio->out, "%s{server=\"%s\"} %" PRIu64 "\n", name, minio->server, value);
}

static void put_seconds(const struct minio *minio, const char *name, const char *type,
	const char *help, double value)
{
	put_head(minio, name, type, help);
	buf_printf(minio->out, "%s{server=\"%s\"} %.6f\n", name, minio->server, value);
}

/* Writes, for each operation with answers, how many have a status class from first to last. */
static void put_requests(const struct minio *minio, const struct operations *operations,
	const char *name, const char *help, uint32_t first, uint32_t last)
{
	put_head(minio, name, "counter", help);
	for (uint32_t i = 0; i < operations->count; i++) {
		uint64_t sum = 0;

		for (uint32_t class = first; class <= last; class ++)
			sum += operations->items[i].by_class[class];
		if (!sum)
			continue;
		buf_printf(minio->out, "%s{api=\"", name);
		put_api(minio->out, operations->items[i].name);
		buf_printf(minio->out, "\",server=\"%s\"} %" PRIu64 "\n", minio->server, sum);
	}
}

static void put_s3(const struct minio *minio)
{
	struct operations operations = {0};

	counter_visit(count, &operations);
	put_requests(minio, &operations, "minio_s3_requests_total", "S3 requests answered.", 2, 5);
	put_requests(minio, &operations, "minio_s3_requests_errors_total",
		"S3 requests answered 4xx or 5xx.", 4, 5);
	put_requests(minio, &operations, "minio_s3_requests_4xx_errors_total",
		"S3 requests answered 4xx.", 4, 4);
	put_requests(minio, &operations, "minio_s3_requests_5xx_errors_total",
		"S3 requests answered 5xx.", 5, 5);
	put_gauge(minio, "minio_s3_requests_inflight_total",
		"S3 requests in flight now, of all operations.", operations.in_flight);
	put_counter(minio, "minio_s3_traffic_received_bytes",
		"Bytes of bodies from S3 clients, without heads.", operations.received);
	put_counter(minio, "minio_s3_traffic_sent_bytes",
		"Bytes of bodies to S3 clients, without heads.", operations.sent);
}

/* ---- Volumes, which MinIO calls drives. ---- */

static void drives(const struct admin_opts *opts, uint64_t *ret_total, uint64_t *ret_offline)
{
	struct store_volume volumes[DISK_MEMBERS_MAX];
	uint32_t total = store_volumes(opts->store, volumes, DISK_MEMBERS_MAX);

	*ret_offline = 0;
	for (uint32_t i = 0; i < total; i++)
		*ret_offline += volumes[i].state == DISK_MEMBER_MISSING;
	*ret_total =
		MAX(total, 1u); /* a store of one volume lists none; an open store has its volume */
}

static void put_drives(const struct minio *minio, const struct admin_opts *opts)
{
	uint64_t total, offline;

	drives(opts, &total, &offline);
	put_gauge(minio, "minio_node_drive_total", "Volumes.", total);
	put_gauge(minio, "minio_node_drive_online_total",
		"Volumes that are there, those being rebuilt included.", total - offline);
	put_gauge(minio, "minio_node_drive_offline_total", "Volumes that are missing.", offline);
}

/* ---- Buckets. ---- */

static void put_bucket(
	const struct minio *minio, const char *name, const char *bucket, uint64_t value)
{
	buf_printf(minio->out, "%s{bucket=\"%s\",server=\"%s\"} %" PRIu64 "\n", name, bucket,
		minio->server, value);
}

static void bucket_make(const struct admin_opts *opts, struct buf *out)
{
	static const char BYTES[] = "minio_bucket_usage_total_bytes";
	static const char OBJECTS[] = "minio_bucket_usage_object_total";
	static const char QUOTA[] = "minio_bucket_quota_total_bytes";
	struct admin_buckets buckets;
	struct minio minio;

	minio_init(&minio, out);
	out->failed |= admin_buckets_read(opts, &buckets) != 0;
	put_head(&minio, BYTES, "gauge",
		"Bytes of a bucket's objects, of their noncurrent versions, too.");
	for (uint32_t i = 0; i < buckets.count; i++)
		put_bucket(&minio, BYTES, buckets.list[i].name, buckets.list[i].used.bytes);
	/* With versions, the server's own count would mean something else. */
	put_head(&minio, OBJECTS, "gauge", "Objects of a bucket that never had versions.");
	for (uint32_t i = 0; i < buckets.count; i++)
		if (!buckets.list[i].versions)
			put_bucket(&minio, OBJECTS, buckets.list[i].name,
				buckets.list[i].used.objects);
	put_head(&minio, QUOTA, "gauge",
		"The most bytes that a bucket holds, where there is a limit.");
	for (uint32_t i = 0; i < buckets.count; i++)
		if (buckets.list[i].quota.bytes)
			put_bucket(
				&minio, QUOTA, buckets.list[i].name, buckets.list[i].quota.bytes);
	admin_buckets_free(&buckets);
}

/* ---- The paths. ---- */

static void put_process(const struct minio *minio)
{
	struct admin_process process;

	admin_process_read(&process);
	put_seconds(minio, "minio_node_process_cpu_total_seconds", "counter",
		"Processor time of all threads.", process.cpu_s);
	put_seconds(minio, "minio_node_process_starttime_seconds", "gauge",
		"When the process began, in seconds since 1970.", process.started_s);
	put_seconds(minio, "minio_node_process_uptime_seconds", "gauge",
		"How long the process has run.",
		(double)clock_real_ns() / (double)NS_PER_S - process.started_s);
	put_gauge(minio, "minio_node_process_resident_memory_bytes", "Memory that is in use.",
		process.resident_bytes);
	put_gauge(minio, "minio_node_file_descriptor_open_total", "File descriptors that are open.",
		process.descriptors);
	put_gauge(minio, "minio_node_file_descriptor_limit_total",
		"File descriptors that may be open.", process.descriptors_max);
}

static void node_make(const struct admin_opts *opts, struct buf *out)
{
	struct minio minio;

	minio_init(&minio, out);
	put_s3(&minio);
	put_drives(&minio, opts);
	put_process(&minio);
}

static bool count_bucket(const struct store_bucket *bucket, void *arg)
{
	uint64_t *buckets = arg;

	*buckets += bucket->name[0] != '.'; /* not the server's own */
	return true;
}

static void cluster_make(const struct admin_opts *opts, struct buf *out)
{
	uint64_t total, offline, buckets = 0;
	struct minio minio;
	char why[256];

	minio_init(&minio, out);
	drives(opts, &total, &offline);
	put_gauge(&minio, "minio_cluster_nodes_online_total", "Servers: this one.", 1);
	put_gauge(&minio, "minio_cluster_nodes_offline_total", "Other servers: there are none.", 0);
	put_gauge(&minio, "minio_cluster_health_status",
		"1 unless a failed or missing volume or a full data folder forbids writes.",
		store_writable(opts->store, why, sizeof(why)));
	put_gauge(&minio, "minio_cluster_drive_total", "Volumes.", total);
	put_gauge(&minio, "minio_cluster_drive_online_total",
		"Volumes that are there, those being rebuilt included.", total - offline);
	put_gauge(
		&minio, "minio_cluster_drive_offline_total", "Volumes that are missing.", offline);
	if (store_bucket_list(opts->store, SLICE_NONE, count_bucket, &buckets) == 0)
		put_gauge(&minio, "minio_cluster_bucket_total", "Buckets.", buckets);
	node_make(opts, out);
}

static admin_make_fn *find_page(struct slice path)
{
	struct slice name = slice_from(path, BEGIN.len);

	if (!slice_starts(path, BEGIN))
		return NULL;
	return slice_eq(name, SLICE("cluster"))	 ? cluster_make
	       : slice_eq(name, SLICE("node"))	 ? node_make
	       : slice_eq(name, SLICE("bucket")) ? bucket_make
						 : NULL;
}

static void page(void *arg, const struct s3_request *request, struct s3_reply *reply)
{
	admin_answer_metrics(arg, request, reply, find_page(request->path));
}

bool admin_minio_handle(void *arg, const struct s3_request *request, struct s3_reply *reply)
{
	const struct admin_opts *opts = arg;
	struct slice signed_by = SLICE_NONE;

	if (!find_page(request->path) || request->query.len ||
		(request->method != S3_GET && request->method != S3_HEAD))
		return false;
	for (uint32_t i = 0; i < request->header_count; i++)
		if (slice_eq_nocase(request->headers[i].name, SLICE("authorization")))
			signed_by = request->headers[i].value;
	/* A signed request means an object in a bucket of this name. */
	if (signed_by.len && !slice_starts(signed_by, SLICE("Bearer ")))
		return false;
	if (opts->minio_public)
		page(arg, request, reply);
	else
		s3_bearer_handle(opts->s3, request, reply, page, arg);
	return true;
}
