/* cli/transfer_put.c: stores an object from a file descriptor: one request when it is short, else a
 * multipart upload with a window of parts in flight. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "codec/codec.h"
#include "transfer.h"
#include "upload_state.h"

#define ANSWER_BYTES_MAX   8192u
#define COMPLETE_BYTES_MAX (4 * MIB)
#define PART_BYTES_MAX	   (2 * GIB) /* 20 TiB in UPLOAD_PARTS_MAX */

struct part {
	void *data;
	uint32_t number;
	uint32_t bytes;
	bool busy;
	struct neb_iov body;
	uint8_t checksum[CHECKSUM_BYTES_MAX];
	uint64_t crc; /* the checksum as a number */
};

struct upload {
	struct transfer *transfer;
	const char *name;
	int fd;
	uint32_t part_bytes;
	struct part parts[TRANSFER_WINDOW];
	uint32_t window; /* of the parts, how many have memory */
	bool pooled;	 /* it is the client's, not the heap's */
	uint32_t part_count;
	uint32_t in_flight;
	struct upload_state state;
	char answer[ANSWER_BYTES_MAX];
};

/* Reads until the part is full or the file ends. */
static int part_read(struct upload *upload, struct part *part)
{
	part->bytes = 0;
	while (part->bytes < upload->part_bytes) {
		ssize_t n = read(upload->fd, (char *)part->data + part->bytes,
			upload->part_bytes - part->bytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			fprintf(stderr, "nebulaio: cannot read %s: %s\n", remote_text(upload->name),
				strerror(errno));
			return CLI_FAILED;
		}
		if (n == 0)
			break;
		part->bytes += (uint32_t)n;
	}
	return CLI_OK;
}

/* Checked as late as possible: a mirror compares the file's time with the object's, and would take
 * a later change for one that is stored. */
static int check_unchanged(const struct upload *upload)
{
	const struct stat *before = &upload->transfer->file;
	struct stat now;

	if (!S_ISREG(before->st_mode) ||
		(fstat(upload->fd, &now) == 0 && transfer_file_same(before, &now)))
		return CLI_OK;
	fprintf(stderr,
		"nebulaio: %s: it changed while it was read: it is not stored; store it again\n",
		remote_text(upload->name));
	return CLI_FAILED;
}

static int put_whole(struct upload *upload, struct part *part)
{
	struct transfer *transfer = upload->transfer;
	struct neb_iov body = {part->data, part->bytes};
	struct neb_request request = {
		.op = NEB_PUT_OBJECT,
		.bucket = transfer->bucket,
		.key = transfer->key,
		.body = &body,
		.body_count = 1,
		.headers = transfer->headers ? transfer->headers->all : NULL,
		.header_count = transfer->headers ? transfer->headers->count : 0,
		.checksum_kind = transfer->md5 ? NEB_CHECKSUM_MD5 : NEB_CHECKSUM_CRC64NVME,
		.checksum = part->checksum,
	};
	struct neb_result result;
	int ret;

	checksum_of(transfer->md5 ? CHECKSUM_MD5 : CHECKSUM_CRC64NVME, part->data, part->bytes,
		part->checksum);
	ret = check_unchanged(upload);
	if (ret)
		return ret;
	ret = neb_perform(transfer->client, &request, &result);
	transfer->transport = result.transport;
	memcpy(transfer->fallback, result.fallback, sizeof(transfer->fallback));
	if (ret)
		return remote_failed(transfer->key, &result);
	transfer->bytes = part->bytes;
	return CLI_OK;
}

/* The text between <tag> and </tag> of an answer. Not unescaped: upload ids have no markup. */
static int answer_text(const char *answer, size_t len, const char *tag, char *buf, size_t buf_bytes)
{
	char open[64], close[64];
	struct slice text = slice_of(answer, len);
	ptrdiff_t from, to;

	snprintf(open, sizeof(open), "<%s>", tag);
	snprintf(close, sizeof(close), "</%s>", tag);
	from = slice_find(text, slice_str(open));
	if (from < 0)
		return -ENOENT;
	text = slice_from(text, (size_t)from + strlen(open));
	to = slice_find(text, slice_str(close));
	return to < 0 ? -ENOENT : slice_copy_str(slice_to(text, (size_t)to), buf, buf_bytes);
}

static int multipart_create(struct upload *upload)
{
	struct transfer *transfer = upload->transfer;
	struct neb_iov into = {upload->answer, sizeof(upload->answer)};
	struct neb_request request = {
		.op = NEB_CREATE_MULTIPART,
		.bucket = transfer->bucket,
		.key = transfer->key,
		.headers = transfer->headers ? transfer->headers->all : NULL,
		.header_count = transfer->headers ? transfer->headers->count : 0,
		.into = &into,
		.into_count = 1,
	};
	char upload_id[UPLOAD_ID_BYTES_MAX];
	struct neb_result result;
	int ret;

	if (neb_perform(transfer->client, &request, &result))
		return remote_failed(transfer->key, &result);
	if (answer_text(upload->answer, result.bytes, "UploadId", upload_id, sizeof(upload_id))) {
		fprintf(stderr, "nebulaio: %s: the server began an upload but sent no upload id\n",
			remote_text(transfer->key));
		return CLI_FAILED;
	}
	ret = upload_state_begin(&upload->state, upload->part_bytes, upload_id);
	if (ret && transfer->resume)
		fprintf(stderr, "nebulaio: %s: cannot save the state that resumes the upload: %s\n",
			remote_text(upload->name), strerror(-ret));
	return CLI_OK;
}

static void multipart_abort(struct upload *upload)
{
	struct transfer *transfer = upload->transfer;
	struct neb_request request = {
		.op = NEB_ABORT_MULTIPART, .bucket = transfer->bucket, .key = transfer->key};
	struct neb_result result;
	char query[300];

	snprintf(query, sizeof(query), "uploadId=%s", upload->state.upload_id);
	request.query = query;
	if (neb_perform(transfer->client, &request, &result) == 0 || result.status == 404) {
		upload_state_drop(&upload->state);
		return;
	}
	fprintf(stderr,
		"nebulaio: %s: the unfinished upload %s stays on the server: %s; `nebulaio cp` of "
		"the same file aborts it; with --resume it continues it\n",
		remote_text(transfer->key), upload->state.upload_id, result.message);
}

/* Continues the upload of the saved state if possible; else aborts it and begins a new one. */
static int multipart_open(struct upload *upload)
{
	struct transfer *transfer = upload->transfer;
	struct upload_state *state = &upload->state;
	bool same = false;
	int ret;

	if (!state->parts || !upload_state_read(state, &same))
		return multipart_create(upload);
	if (!transfer->resume || !same || state->part_bytes != upload->part_bytes) {
		multipart_abort(upload);
		return multipart_create(upload);
	}
	ret = upload_state_verify(state, transfer->client, transfer->bucket, transfer->key);
	if (ret == CLI_NOT_FOUND)
		return multipart_create(upload);
	if (!ret && upload_state_go_on(state))
		fprintf(stderr, "nebulaio: %s: %s\n", state->path, strerror(errno));
	return ret;
}

static int multipart_complete(struct upload *upload)
{
	struct transfer *transfer = upload->transfer;
	struct neb_iov body, into = {upload->answer, sizeof(upload->answer)};
	struct neb_request request = {
		.op = NEB_COMPLETE_MULTIPART,
		.bucket = transfer->bucket,
		.key = transfer->key,
		.body = &body,
		.body_count = 1,
		.into = &into,
		.into_count = 1,
	};
	struct neb_result result;
	struct buf xml;
	char query[300];
	int ret;

	buf_init(&xml, COMPLETE_BYTES_MAX);
	buf_put_str(&xml, "<CompleteMultipartUpload>");
	for (uint32_t i = 0; i < upload->part_count; i++)
		buf_printf(&xml,
			"<Part><PartNumber>%u</PartNumber><ETag>&quot;%s&quot;</ETag></Part>",
			i + 1, upload->state.parts[i].etag);
	buf_put_str(&xml, "</CompleteMultipartUpload>");
	snprintf(query, sizeof(query), "uploadId=%s", upload->state.upload_id);
	request.query = query;
	body = (struct neb_iov){xml.data, xml.len};
	ret = neb_perform(transfer->client, &request, &result);
	buf_free(&xml);
	return ret ? remote_failed(transfer->key, &result) : CLI_OK;
}

/* True if the server already has a part with these bytes. */
static bool part_there(struct upload *upload, struct part *part)
{
	const struct upload_part *have = &upload->state.parts[part->number - 1];
	struct transfer *transfer = upload->transfer;

	if (!have->have || have->crc != part->crc)
		return false;
	transfer->bytes += part->bytes;
	transfer->bytes_resumed += part->bytes;
	progress_add(&transfer->progress, part->bytes);
	return true;
}

static int part_submit(struct upload *upload, struct part *part)
{
	struct transfer *transfer = upload->transfer;
	struct neb_request request = {
		.op = NEB_UPLOAD_PART,
		.bucket = transfer->bucket,
		.key = transfer->key,
		.body = &part->body,
		.body_count = 1,
		.user_data = part,
		.checksum_kind = NEB_CHECKSUM_CRC64NVME,
		.checksum = part->checksum,
		.timeout_ns = TRANSFER_PART_NS * (upload->part_bytes / TRANSFER_PART_BYTES),
	};
	char query[320];
	uint64_t id;
	int ret;

	if (upload->part_count == UPLOAD_PARTS_MAX) {
		fprintf(stderr, "nebulaio: %s: more than %u parts of %u bytes\n",
			remote_text(upload->name), UPLOAD_PARTS_MAX, upload->part_bytes);
		return CLI_FAILED;
	}
	part->number = ++upload->part_count;
	checksum_of(CHECKSUM_CRC64NVME, part->data, part->bytes, part->checksum);
	part->crc = 0;
	for (unsigned i = 0; i < sizeof(part->crc); i++)
		part->crc = part->crc << 8 | part->checksum[i];
	if (part_there(upload, part))
		return CLI_OK;
	part->body = (struct neb_iov){part->data, part->bytes};
	snprintf(query, sizeof(query), "partNumber=%u&uploadId=%s", part->number,
		upload->state.upload_id);
	request.query = query;
	ret = neb_submit(transfer->client, &request, &id);
	if (ret) {
		fprintf(stderr, "nebulaio: %s: %s\n", remote_text(transfer->key), strerror(-ret));
		return CLI_FAILED;
	}
	part->busy = true;
	upload->in_flight++;
	return CLI_OK;
}

/* Waits for one part. */
static int part_finish(struct upload *upload)
{
	struct transfer *transfer = upload->transfer;
	struct neb_result result;
	struct part *part;

	if (transfer_wait(transfer, &result))
		return CLI_FAILED;
	part = result.user_data;
	part->busy = false;
	upload->in_flight--;
	if (result.error)
		return remote_failed(transfer->key, &result);
	upload_state_part(&upload->state, part->number, part->crc, result.etag);
	transfer->bytes += part->bytes;
	progress_add(&transfer->progress, part->bytes);
	return CLI_OK;
}

static struct part *free_part(struct upload *upload)
{
	for (unsigned i = 0; i < upload->window; i++) {
		if (!upload->parts[i].busy)
			return &upload->parts[i];
	}
	return NULL;
}

/* The first part is read already, and full. */
static int put_parts(struct upload *upload)
{
	struct part *part = &upload->parts[0];
	int ret = multipart_open(upload);

	if (ret)
		return ret;
	while (!ret && part->bytes) {
		ret = part_submit(upload, part);
		while (!ret && (part = free_part(upload)) == NULL)
			ret = part_finish(upload);
		if (!ret)
			ret = part_read(upload, part);
	}
	while (upload->in_flight) {
		int finished = part_finish(upload);

		if (!ret)
			ret = finished;
		if (finished == CLI_FAILED && neb_in_flight(upload->transfer->client) == 0)
			break;
	}
	if (!ret)
		ret = check_unchanged(upload);
	if (!ret)
		ret = multipart_complete(upload);
	if (!ret)
		upload_state_drop(&upload->state);
	else if (upload->transfer->resume && upload->state.path[0])
		fprintf(stderr, "nebulaio: %s: the same command continues from here\n",
			remote_text(upload->name));
	else
		multipart_abort(upload);
	return ret;
}

/* Parts grow with the file, so that it fits the most parts that S3 allows. */
static int part_size(struct upload *upload, uint64_t *ret_total)
{
	const struct stat *st = &upload->transfer->file;
	uint64_t bytes = TRANSFER_PART_BYTES;

	*ret_total = 0;
	if (S_ISREG(st->st_mode)) {
		*ret_total = (uint64_t)st->st_size;
		bytes = MAX(bytes, ALIGN_UP(*ret_total / (UPLOAD_PARTS_MAX - 1) + 1, MIB));
	}
	if (bytes > PART_BYTES_MAX) {
		fprintf(stderr, "nebulaio: %s: a file over 20 TiB does not fit an object\n",
			remote_text(upload->name));
		return CLI_FAILED;
	}
	upload->part_bytes = (uint32_t)bytes;
	return CLI_OK;
}

/* As many parts as the pool has room for, beside the request that completes the upload. A part that
 * alone is too large for the pool is registered for its request. */
static int parts_open(struct upload *upload)
{
	struct neb_client *client = upload->transfer->client;
	void *rest = NULL;

	upload->pooled = neb_buffer_alloc(client, COMPLETE_BYTES_MAX, &rest) == 0;
	while (upload->pooled && upload->window < TRANSFER_WINDOW &&
		neb_buffer_alloc(client, upload->part_bytes, &upload->parts[upload->window].data) ==
			0)
		upload->window++;
	neb_buffer_free(client, rest);
	if (upload->window)
		return 0;
	upload->pooled = false;
	upload->parts[0].data = malloc(upload->part_bytes);
	upload->window = upload->parts[0].data != NULL;
	return upload->window ? 0 : -ENOMEM;
}

static void parts_close(struct upload *upload)
{
	for (unsigned i = 0; i < upload->window; i++) {
		if (upload->pooled)
			neb_buffer_free(upload->transfer->client, upload->parts[i].data);
		else
			free(upload->parts[i].data);
	}
}

/* A pipe cannot be read twice, so it has no saved state. */
static int state_open(struct upload *upload)
{
	const struct stat *st = &upload->transfer->file;

	if (S_ISREG(st->st_mode) && upload->fd != STDIN_FILENO)
		return upload_state_open(&upload->state, upload->transfer, upload->name, st) ==
		       -ENOMEM;
	upload->state.parts = calloc(UPLOAD_PARTS_MAX, sizeof(*upload->state.parts));
	return upload->state.parts == NULL;
}

int transfer_put(struct transfer *transfer, int fd, const char *name)
{
	struct upload *upload = calloc(1, sizeof(*upload));
	uint64_t total = 0;
	int ret = CLI_OK;

	if (!upload)
		goto no_memory;
	upload->transfer = transfer;
	upload->name = name;
	upload->fd = fd;
	if (fstat(fd, &transfer->file))
		transfer->file = (struct stat){0};
	ret = part_size(upload, &total);
	if (ret)
		goto out;
	if (state_open(upload) || parts_open(upload))
		goto no_memory;
	progress_start(&transfer->progress, transfer->key, total);
	transfer->progress.visible &= !transfer->quiet;
	ret = part_read(upload, &upload->parts[0]);
	if (!ret)
		ret = upload->parts[0].bytes < upload->part_bytes
			      ? put_whole(upload, &upload->parts[0])
			      : put_parts(upload);
	progress_end(&transfer->progress);
	goto out;
no_memory:
	fprintf(stderr, "nebulaio: no memory for the transfer\n");
	ret = CLI_FAILED;
out:
	if (upload) {
		parts_close(upload);
		upload_state_close(&upload->state);
	}
	free(upload);
	return ret;
}
