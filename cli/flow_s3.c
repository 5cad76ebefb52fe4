/* cli/flow_s3.c: the client of `nebulaio flow` and its sink that uploads. libnebulaio waits for its
 * server, a reactor must not: so the client runs on its own thread, which takes pieces in order and
 * sends the reactor a message when it has finished one. The server reads an RDMA part directly from
 * the frames that the flow filled. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "codec/codec.h"
#include "flow_s3.h"

#define PART_PIECES   8u
#define PARTS_MAX     10000u
#define WINDOW_PIECES 32u /* handed to the thread and not yet uploaded */
#define POOL_BYTES    (4 * MIB)
#define COMMITS_MAX   4u /* tries of a request that makes an object */
/* Metadata of an object that must not replace another: tells it from another client's. */
#define MARK_HEADER "x-amz-meta-nebulaio-flow"
#define MARK_BYTES  16u

_Static_assert(PART_PIECES <= NEB_IOV_MAX, "a part is one request");
_Static_assert(PART_PIECES *FLOW_PIECE_BYTES_MAX >= 5 * MIB, "S3 needs parts of at least 5 MiB");

struct s3_sink;

/* A piece or the end of an object, on its way to the thread and back. */
struct s3_job {
	struct flow_s3_work work;
	struct s3_sink *sink;
	struct flow_piece piece;
	bool is_end, failed;
};

struct s3_sink {
	struct flow_sink sink;
	struct flow_s3 *uploads;
	char bucket[64];
	char key[LIMIT_KEY_LEN_MAX + 1];
	bool replace;
	char mark[2 * MARK_BYTES + 1];
	/* Used by the reactor. */
	uint32_t pieces_out;
	bool ended;
	struct fiber *waiter;
	struct s3_job end;
	struct flow_piece staging; /* pieces too short for a part; data NULL: none */
	/* Used by the thread. */
	struct s3_job *part[PART_PIECES];
	uint32_t part_pieces;
	uint32_t part_count;
	char upload_id[256];
	char (*etags)[84];
	_Atomic int error;
};

/* ---- The thread. ---- */

static void job_return(struct s3_job *job)
{
	reactor_post(job->sink->sink.core->reactor, &job->work.done);
}

static void part_return(struct s3_sink *self)
{
	for (uint32_t i = 0; i < self->part_pieces; i++)
		job_return(self->part[i]);
	self->part_pieces = 0;
}

static int perform(
	struct s3_sink *self, const struct neb_request *request, struct neb_result *ret_result)
{
	int ret = neb_perform(self->uploads->client, request, ret_result);

	atomic_store(&self->uploads->transport, (int)ret_result->transport);
	if (ret)
		remote_failed(self->key, ret_result);
	return ret;
}

/* Looks what is at the key now: 0 for nothing, 1 for the sink's own object, -EEXIST for another's,
 * or another -errno, because it cannot be known. */
static int key_look(struct s3_sink *self)
{
	struct neb_result result;
	const char *mark;
	int ret = neb_head(self->uploads->client, self->bucket, self->key, &result);

	if (ret)
		return result.status == 404 ? 0 : ret;
	ret = neb_result_header(&result, MARK_HEADER, &mark);
	return ret > 0 && ret == (int)strlen(self->mark) && !memcmp(mark, self->mark, (size_t)ret)
		       ? 1
		       : -EEXIST;
}

/* Whether the answer is a refused condition, or one that the server does not know, or none. */
static bool must_look(const struct neb_result *result)
{
	return !result->status || result->status == 409 || result->status == 412 ||
	       result->status == 501 || !strcmp(result->code, "OutcomeUnknown");
}

/* Performs the request that makes the object, which has room for one more header, so that it
 * replaces no other. The client repeats no request with a condition whose answer was lost: this
 * looks, then repeats it. -EEXIST, prints nothing: another object is there. */
static int commit(struct s3_sink *self, struct neb_request *request, struct neb_header *condition,
	struct neb_result *ret_result)
{
	bool conditional = true;
	int ret, found = 0;

	if (self->replace)
		return perform(self, request, ret_result);
	*condition = (struct neb_header){"if-none-match", "*"};
	request->header_count++;
	for (uint32_t try = 1;; try++) {
		ret = neb_perform(self->uploads->client, request, ret_result);
		atomic_store(&self->uploads->transport, (int)ret_result->transport);
		if (!ret || !must_look(ret_result))
			break;
		found = key_look(self);
		if (found == 1)
			return 0;
		if (found || try == COMMITS_MAX || (ret_result->status == 501 && !conditional))
			break;
		/* A server that knows no condition gets none, now that nothing is there. */
		if (ret_result->status == 501) {
			conditional = false;
			request->header_count--;
		}
	}
	if (ret && (found == -EEXIST || ret_result->status == 412))
		return -EEXIST;
	if (ret)
		remote_failed(self->key, ret_result);
	return ret == -EEXIST ? -EIO : ret;
}

/* The text of <UploadId>, which has no markup in it. */
static int upload_id_of(const char *answer, size_t bytes, char *out, size_t out_bytes)
{
	static const char OPEN[] = "<UploadId>", CLOSE[] = "</UploadId>";
	struct slice text = slice_of(answer, bytes);
	ptrdiff_t from = slice_find(text, slice_str(OPEN)), to;

	if (from < 0)
		return -EPROTO;
	text = slice_from(text, (size_t)from + sizeof(OPEN) - 1);
	to = slice_find(text, slice_str(CLOSE));
	return to < 0 ? -EPROTO : slice_copy_str(slice_to(text, (size_t)to), out, out_bytes);
}

static int upload_create(struct s3_sink *self)
{
	struct neb_iov into = {self->uploads->answer, sizeof(self->uploads->answer)};
	const struct neb_header mark = {MARK_HEADER, self->mark};
	const struct neb_request request = {.op = NEB_CREATE_MULTIPART,
		.bucket = self->bucket,
		.key = self->key,
		.headers = &mark,
		.header_count = !self->replace,
		.into = &into,
		.into_count = 1};
	struct neb_result result;
	int ret = perform(self, &request, &result);

	if (ret)
		return ret;
	self->etags = calloc(PARTS_MAX, sizeof(*self->etags));
	if (!self->etags)
		return -ENOMEM;
	return upload_id_of(
		self->uploads->answer, result.bytes, self->upload_id, sizeof(self->upload_id));
}

/* Sends the pieces' bytes as one request of op; an empty object has no piece. */
static int pieces_send(struct s3_sink *self, enum neb_op op, const char *query, char etag[84])
{
	struct neb_header headers[2] = {{MARK_HEADER, self->mark}};
	struct neb_iov body[PART_PIECES];
	struct neb_request request = {.op = op,
		.bucket = self->bucket,
		.key = self->key,
		.headers = headers,
		.query = query,
		.body = body,
		.body_count = self->part_pieces};
	uint8_t digest[CHECKSUM_BYTES_MAX];
	struct neb_result result;
	struct checksum sum;
	int ret;

	checksum_init(&sum, CHECKSUM_CRC64NVME);
	for (uint32_t i = 0; i < self->part_pieces; i++) {
		const struct flow_piece *piece = &self->part[i]->piece;

		body[i] = (struct neb_iov){piece->data, piece->bytes};
		checksum_update(&sum, piece->data, piece->bytes);
	}
	checksum_final(&sum, digest);
	if (op == NEB_PUT_OBJECT) {
		request.checksum_kind = NEB_CHECKSUM_CRC64NVME;
		request.checksum = digest;
		request.header_count = !self->replace;
		ret = commit(self, &request, &headers[1], &result);
	} else {
		ret = perform(self, &request, &result);
	}
	if (!ret && etag)
		memcpy(etag, result.etag, sizeof(result.etag));
	return ret;
}

static int part_send(struct s3_sink *self)
{
	char query[320];
	int ret = 0;

	if (self->part_count == PARTS_MAX) {
		fprintf(stderr, "nebulaio flow: %s: more than %u parts; roll sooner\n", self->key,
			PARTS_MAX);
		return -EFBIG;
	}
	if (self->part_count == 0)
		ret = upload_create(self);
	if (ret)
		return ret;
	snprintf(query, sizeof(query), "partNumber=%u&uploadId=%s", self->part_count + 1,
		self->upload_id);
	ret = pieces_send(self, NEB_UPLOAD_PART, query, self->etags[self->part_count]);
	if (!ret)
		self->part_count++;
	return ret;
}

static int upload_complete(struct s3_sink *self)
{
	struct neb_iov body, into = {self->uploads->answer, sizeof(self->uploads->answer)};
	struct neb_header condition;
	struct neb_request request = {.op = NEB_COMPLETE_MULTIPART,
		.bucket = self->bucket,
		.key = self->key,
		.headers = &condition,
		.body = &body,
		.body_count = 1,
		.into = &into,
		.into_count = 1};
	struct neb_result result;
	struct buf xml;
	char query[300];
	int ret;

	buf_init(&xml, 4 * MIB);
	buf_put_str(&xml, "<CompleteMultipartUpload>");
	for (uint32_t i = 0; i < self->part_count; i++)
		buf_printf(&xml,
			"<Part><PartNumber>%u</PartNumber><ETag>&quot;%s&quot;</ETag></Part>",
			i + 1, self->etags[i]);
	buf_put_str(&xml, "</CompleteMultipartUpload>");
	snprintf(query, sizeof(query), "uploadId=%s", self->upload_id);
	request.query = query;
	body = (struct neb_iov){xml.data, xml.len};
	ret = commit(self, &request, &condition, &result);
	buf_free(&xml);
	return ret;
}

static void upload_abort(struct s3_sink *self)
{
	struct neb_request request = {
		.op = NEB_ABORT_MULTIPART, .bucket = self->bucket, .key = self->key};
	struct neb_result result;
	char query[300];

	snprintf(query, sizeof(query), "uploadId=%s", self->upload_id);
	request.query = query;
	perform(self, &request, &result);
}

static void object_end(struct s3_sink *self, bool failed)
{
	int ret = atomic_load(&self->error);

	if (!ret && !failed && self->part_count == 0)
		ret = pieces_send(self, NEB_PUT_OBJECT, NULL, NULL);
	else if (!ret && !failed) {
		ret = self->part_pieces ? part_send(self) : 0;
		if (!ret)
			ret = upload_complete(self);
	}
	if ((ret || failed) && self->upload_id[0])
		upload_abort(self);
	part_return(self);
	atomic_store(&self->error, ret);
}

static void job_run(struct flow_s3_work *work)
{
	struct s3_job *job = CONTAINER_OF(work, struct s3_job, work);
	struct s3_sink *self = job->sink;

	if (job->is_end) {
		object_end(self, job->failed);
		job_return(job);
		return;
	}
	self->part[self->part_pieces++] = job;
	if (atomic_load(&self->error)) {
		part_return(self);
	} else if (self->part_pieces == PART_PIECES) {
		atomic_store(&self->error, part_send(self));
		part_return(self);
	}
}

static void *upload_thread(void *arg)
{
	struct flow_s3 *uploads = arg;

	pthread_mutex_lock(&uploads->lock);
	for (;;) {
		struct list *link = list_pop(&uploads->jobs);
		struct flow_s3_work *work;

		if (!link && uploads->stop)
			break;
		if (!link) {
			pthread_cond_wait(&uploads->wake, &uploads->lock);
			continue;
		}
		pthread_mutex_unlock(&uploads->lock);
		work = CONTAINER_OF(link, struct flow_s3_work, link);
		work->run(work);
		pthread_mutex_lock(&uploads->lock);
	}
	pthread_mutex_unlock(&uploads->lock);
	return NULL;
}

/* ---- The reactor's side. ---- */

void flow_s3_submit(struct flow_s3 *uploads, struct flow_s3_work *work)
{
	pthread_mutex_lock(&uploads->lock);
	list_push_back(&uploads->jobs, &work->link);
	pthread_cond_signal(&uploads->wake);
	pthread_mutex_unlock(&uploads->lock);
}

static void job_done(struct reactor_msg *msg)
{
	struct s3_job *job = CONTAINER_OF(msg, struct s3_job, work.done);
	struct s3_sink *self = job->sink;

	if (job->is_end) {
		self->ended = true;
	} else {
		flow_piece_end(self->sink.core, &job->piece, OWNER_RDMA);
		self->pieces_out--;
		free(job);
	}
	if (self->waiter)
		fiber_wake(self->waiter);
}

/* Hands a piece to the thread; ends it on an error. */
static int piece_submit(struct s3_sink *self, struct flow_piece *piece)
{
	struct flow_core *core = self->sink.core;
	int error = atomic_load(&self->error);
	struct s3_job *job = error ? NULL : calloc(1, sizeof(*job));

	if (!job) {
		flow_piece_end(core, piece, OWNER_APP);
		return error ? error : -ENOMEM;
	}
	self->waiter = fiber_self();
	while (self->pieces_out >= WINDOW_PIECES)
		fiber_park();
	self->waiter = NULL;
	region_switch(core->region, piece->span, OWNER_APP, OWNER_RDMA);
	*job = (struct s3_job){
		.work = {.done = {.fn = job_done}, .run = job_run}, .sink = self, .piece = *piece};
	self->pieces_out++;
	flow_s3_submit(self->uploads, &job->work);
	return 0;
}

static int staging_flush(struct s3_sink *self)
{
	struct flow_piece piece = self->staging;

	self->staging.data = NULL;
	return piece_submit(self, &piece);
}

#define STAGING_WAIT_NS (30 * NS_PER_S)

/* The flow holds a piece while this waits for frames. That is safe: only this process uses the
 * region, and parts in flight give their frames back without this fiber. */
static int staging_open(struct flow_core *core, struct flow_piece *staging)
{
	const struct flow_want want = {
		.frame_count = FLOW_PIECE_BYTES_MAX / FRAME_BYTES, .owner = OWNER_APP};
	uint64_t deadline_ns = clock_now_ns() + STAGING_WAIT_NS;
	int ret;

	*staging = (struct flow_piece){.data = NULL};
	while ((ret = flow_piece_lease_now(core, &want, staging)) == -ENOBUFS &&
		clock_now_ns() < deadline_ns)
		fiber_sleep_ns(NS_PER_MS);
	return ret;
}

/* A part has few pieces, so this joins short ones by a counted copy. Ends the piece. */
static int staging_fill(struct s3_sink *self, struct flow_piece *piece)
{
	struct flow_core *core = self->sink.core;
	struct flow_piece *staging = &self->staging;
	uint32_t at = 0;
	int ret = 0;

	while (at < piece->bytes && !ret) {
		uint32_t bytes;

		if (!staging->data) {
			ret = staging_open(core, staging);
			if (ret)
				break;
		}
		bytes = MIN(piece->bytes - at, FLOW_PIECE_BYTES_MAX - staging->bytes);
		region_copy(staging->data + staging->bytes, piece->data + at, bytes, COPY_GATHER);
		staging->bytes += bytes;
		at += bytes;
		if (staging->bytes == FLOW_PIECE_BYTES_MAX)
			ret = staging_flush(self);
	}
	flow_piece_end(core, piece, OWNER_APP);
	return ret;
}

static int s3_push(struct flow_sink *sink, struct flow_piece *piece)
{
	struct s3_sink *self = CONTAINER_OF(sink, struct s3_sink, sink);

	if (piece->bytes < FLOW_PIECE_BYTES_MAX || self->staging.data)
		return staging_fill(self, piece);
	return piece_submit(self, piece);
}

static int s3_finish(struct flow_sink *sink, bool failed)
{
	struct s3_sink *self = CONTAINER_OF(sink, struct s3_sink, sink);
	int ret;

	if (self->staging.data)
		staging_flush(self);
	self->end = (struct s3_job){.work = {.done = {.fn = job_done}, .run = job_run},
		.sink = self,
		.is_end = true,
		.failed = failed};
	self->waiter = fiber_self();
	flow_s3_submit(self->uploads, &self->end.work);
	while (!self->ended || self->pieces_out)
		fiber_park();
	ret = atomic_load(&self->error);
	free(self->etags);
	free(self);
	return ret;
}

static const struct flow_sink_ops S3_OPS = {
	.name = "s3",
	.push = s3_push,
	.finish = s3_finish,
};

/* A look at a key, by the thread. */
struct s3_look {
	struct flow_s3_work work;
	struct s3_sink *sink;
	struct fiber *waiter;
	bool done;
	int found;
};

static void look_run(struct flow_s3_work *work)
{
	struct s3_look *look = CONTAINER_OF(work, struct s3_look, work);

	look->found = key_look(look->sink);
	reactor_post(look->sink->sink.core->reactor, &look->work.done);
}

static void look_done(struct reactor_msg *msg)
{
	struct s3_look *look = CONTAINER_OF(msg, struct s3_look, work.done);

	look->done = true;
	fiber_wake(look->waiter);
}

/* 0 or -EEXIST. A key of which nothing can be known may be free: the server decides in the end. */
static int key_free(struct s3_sink *self)
{
	struct s3_look look = {.work = {.done = {.fn = look_done}, .run = look_run},
		.sink = self,
		.waiter = fiber_self()};

	flow_s3_submit(self->uploads, &look.work);
	while (!look.done)
		fiber_park();
	return look.found == -EEXIST ? -EEXIST : 0;
}

bool flow_s3_taken(
	struct flow_s3 *uploads, struct flow_core *core, const char *bucket, const char *key)
{
	struct s3_sink self = {.sink.core = core, .uploads = uploads};

	return slice_copy_str(slice_str(bucket), self.bucket, sizeof(self.bucket)) == 0 &&
	       slice_copy_str(slice_str(key), self.key, sizeof(self.key)) == 0 &&
	       key_free(&self) == -EEXIST;
}

int flow_s3_sink_open(struct flow_s3 *uploads, struct flow_core *core,
	const struct flow_s3_target *target, struct flow_sink **ret_sink)
{
	struct s3_sink *self = calloc(1, sizeof(*self));
	uint8_t mark[MARK_BYTES];
	int ret = 0;

	if (!self)
		return -ENOMEM;
	if (strlen(target->bucket) >= sizeof(self->bucket) ||
		strlen(target->key) >= sizeof(self->key)) {
		free(self);
		return -ENAMETOOLONG;
	}
	self->sink = (struct flow_sink){.magic = FLOW_SINK_MAGIC,
		.ops = &S3_OPS,
		.core = core,
		.deadline_ns = DEADLINE_NONE};
	self->uploads = uploads;
	self->replace = target->replace;
	random_fill(mark, sizeof(mark));
	hex_encode(mark, sizeof(mark), self->mark);
	snprintf(self->bucket, sizeof(self->bucket), "%s", target->bucket);
	snprintf(self->key, sizeof(self->key), "%s", target->key);
	if (target->look && !self->replace)
		ret = key_free(self);
	if (ret)
		free(self);
	else
		*ret_sink = &self->sink;
	return ret;
}

/* ---- Opening and closing. ---- */

static void memory_register(struct flow_s3 *uploads)
{
	for (uint32_t i = 0; i < region_arena_count(uploads->region); i++) {
		const struct region_arena arena = region_arena(uploads->region, i);
		int ret = neb_register(uploads->client, arena.base, arena.bytes);

		if (ret)
			log_warn("flow",
				"cannot register the region's memory with the client: %s; each "
				"part is copied or registered on its own",
				strerror(-ret));
	}
}

int flow_s3_open(
	const struct remote_opts *opts, struct region *region, struct flow_s3 **ret_uploads)
{
	struct flow_s3 *uploads = calloc(1, sizeof(*uploads));
	int ret;

	if (!uploads) {
		fprintf(stderr, "nebulaio flow: no memory\n");
		return CLI_FAILED;
	}
	uploads->opts = opts;
	uploads->region = region;
	atomic_store(&uploads->transport, NEB_NONE);
	ret = remote_open(opts, &uploads->client);
	if (ret) {
		free(uploads);
		return ret;
	}
	memory_register(uploads);
	list_init(&uploads->jobs);
	pthread_mutex_init(&uploads->lock, NULL);
	pthread_cond_init(&uploads->wake, NULL);
	ret = pthread_create(&uploads->thread, NULL, upload_thread, uploads);
	if (ret) {
		fprintf(stderr, "nebulaio flow: no thread for uploads: %s\n", strerror(ret));
		neb_client_close(uploads->client);
		free(uploads);
		return CLI_FAILED;
	}
	*ret_uploads = uploads;
	return CLI_OK;
}

void flow_s3_close(struct flow_s3 *uploads)
{
	if (!uploads)
		return;
	pthread_mutex_lock(&uploads->lock);
	uploads->stop = true;
	pthread_cond_signal(&uploads->wake);
	pthread_mutex_unlock(&uploads->lock);
	pthread_join(uploads->thread, NULL);
	neb_client_close(uploads->client);
	pthread_cond_destroy(&uploads->wake);
	pthread_mutex_destroy(&uploads->lock);
	free(uploads);
}

const char *flow_s3_transport(const struct flow_s3 *uploads)
{
	return neb_transport_name((enum neb_transport)atomic_load(&uploads->transport));
}

uint64_t flow_s3_copied(const struct flow_s3 *uploads)
{
	struct neb_stats stats;

	neb_client_stats(uploads->client, &stats);
	return stats.bytes_copied;
}
