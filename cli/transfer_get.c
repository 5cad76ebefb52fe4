/* cli/transfer_get.c: reads an object into a file descriptor: ranged requests, a window of them in
 * flight, written in order. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "transfer.h"

struct part {
	void *data;
	uint64_t offset;
	uint32_t bytes;
	bool done;
	struct neb_iov into;
};

struct download {
	struct transfer *transfer;
	struct part parts[TRANSFER_WINDOW];
	uint64_t started; /* parts submitted */
	uint64_t written; /* parts written */
	uint64_t bytes_total;
	char if_match[96];
};

static int write_all(int fd, const char *data, size_t len)
{
	while (len) {
		ssize_t n = write(fd, data, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			fprintf(stderr, "nebulaio: cannot write the output: %s\n", strerror(errno));
			return CLI_FAILED;
		}
		data += n;
		len -= (size_t)n;
	}
	return CLI_OK;
}

static int part_start(struct download *download)
{
	struct transfer *transfer = download->transfer;
	struct part *part = &download->parts[download->started % TRANSFER_WINDOW];
	struct neb_header headers[2] = {
		{"If-Match", download->if_match}, {NEB_FAN_OUT_HEADER, transfer->fan_out}};
	struct neb_request request = {
		.op = NEB_GET_OBJECT,
		.timeout_ns = TRANSFER_PART_NS,
		.bucket = transfer->bucket,
		.key = transfer->key,
		.headers = headers,
		.header_count = transfer->fan_out ? 2 : 1,
		.want_headers = transfer->fan_out != NULL,
		.into = &part->into,
		.into_count = 1,
		.user_data = part,
	};
	uint64_t id;
	int ret;

	part->offset = download->started * TRANSFER_PART_BYTES;
	part->bytes =
		(uint32_t)MIN(download->bytes_total - part->offset, (uint64_t)TRANSFER_PART_BYTES);
	part->done = false;
	part->into = (struct neb_iov){part->data, part->bytes};
	request.range_offset = part->offset;
	request.range_bytes = part->bytes;
	ret = neb_submit(transfer->client, &request, &id);
	if (ret) {
		fprintf(stderr, "nebulaio: %s: %s\n", remote_text(transfer->key), strerror(-ret));
		return CLI_FAILED;
	}
	download->started++;
	return CLI_OK;
}

/* Keeps what the server says of the fan-out. */
static void role_keep(struct transfer *transfer, const struct neb_result *result)
{
	const char *value, *part;
	int len = neb_result_header(result, NEB_FAN_OUT_HEADER, &value);

	/* A part that comes late may find its group over: it tells nothing new. */
	if (!transfer->fan_out ||
		(len == 5 && !memcmp(value, "apart", 5) && transfer->fan_out_role[0]))
		return;
	part = len > 0 ? memmem(value, (size_t)len, "; part=", 7) : NULL;
	if (part)
		len = (int)(part - value);
	snprintf(transfer->fan_out_role, sizeof(transfer->fan_out_role), "%.*s", len > 0 ? len : 0,
		len > 0 ? value : "");
}

/* Adds to that how it went by multicast. */
static void multicast_keep(struct transfer *transfer, const struct neb_multicast *told)
{
	size_t len = strlen(transfer->fan_out_role);
	char *end = transfer->fan_out_role + len;
	uint64_t all = told->bytes + told->bytes_read;

	if (told->used)
		snprintf(end, sizeof(transfer->fan_out_role) - len, "; multicast=%u%%%s%s",
			(unsigned)(told->bytes * 100 / MAX(all, 1)), told->why[0] ? ": " : "",
			told->why);
	else if (len)
		snprintf(
			end, sizeof(transfer->fan_out_role) - len, "; no multicast: %s", told->why);
}

const char *transfer_fan_out_text(const struct transfer *transfer)
{
	if (!transfer->fan_out)
		return "";
	return transfer->fan_out_role[0] ? remote_text(transfer->fan_out_role)
					 : "the server does not know it";
}

/* Waits for a result and writes all parts that are next in order. */
static int part_finish(struct download *download, int fd)
{
	struct transfer *transfer = download->transfer;
	struct neb_result result;
	struct part *part;

	if (transfer_wait(transfer, &result))
		return CLI_FAILED;
	part = result.user_data;
	if (result.error)
		return remote_failed(transfer->key, &result);
	if (result.bytes != part->bytes) {
		fprintf(stderr, "nebulaio: %s: received %llu bytes instead of %u\n",
			remote_text(transfer->key), (unsigned long long)result.bytes, part->bytes);
		return CLI_FAILED;
	}
	role_keep(transfer, &result);
	part->done = true;
	while (download->written < download->started &&
		download->parts[download->written % TRANSFER_WINDOW].done) {
		struct part *next = &download->parts[download->written % TRANSFER_WINDOW];

		if (write_all(fd, next->data, next->bytes))
			return CLI_FAILED;
		next->done = false;
		transfer->bytes += next->bytes;
		progress_add(&transfer->progress, next->bytes);
		download->written++;
	}
	return CLI_OK;
}

/* The first part of a fan-out waits for the other clients; so the rest need not. */
static uint64_t window_of(const struct download *download)
{
	return download->transfer->fan_out && !download->written ? 1 : TRANSFER_WINDOW;
}

static int download_parts(struct download *download, int fd)
{
	uint64_t count = (download->bytes_total + TRANSFER_PART_BYTES - 1) / TRANSFER_PART_BYTES;
	int ret = CLI_OK;

	while (!ret && download->written < count) {
		while (!ret && download->started < count &&
			download->started - download->written < window_of(download))
			ret = part_start(download);
		if (!ret)
			ret = part_finish(download, fd);
	}
	while (neb_in_flight(download->transfer->client)) {
		struct neb_result dropped;

		if (neb_wait(download->transfer->client, &dropped, 1, UINT64_MAX) < 0)
			break;
	}
	return ret;
}

/* ---- By multicast. ---- */

struct taking {
	struct transfer *transfer;
	int fd;
};

/* The take of struct neb_multicast. */
static int bytes_take(void *arg, uint64_t offset, const void *data, uint64_t bytes)
{
	struct taking *taking = (struct taking *)arg;

	(void)offset;
	if (write_all(taking->fd, (const char *)data, bytes))
		return -EIO;
	taking->transfer->bytes += bytes;
	progress_add(&taking->transfer->progress, bytes);
	return 0;
}

/* True: it is over, with *ret_code. False: there is no multicast, and nothing was read. */
static bool multicast_get(
	struct transfer *transfer, struct neb_multicast *told, int fd, int *ret_code)
{
	struct taking taking = {transfer, fd};
	struct neb_fan_out fan_out;
	struct neb_result result;
	int ret;

	if (!transfer->multicast)
		return false;
	fan_out = *transfer->multicast;
	*told = (struct neb_multicast){.only = true, .take = bytes_take};
	fan_out.bucket = transfer->bucket;
	fan_out.key = transfer->key;
	fan_out.arg = &taking;
	fan_out.multicast = told;
	ret = neb_get_fan_out(transfer->client, &fan_out, &result);
	if (ret == -EOPNOTSUPP)
		return false;
	transfer->transport = result.transport;
	role_keep(transfer, &result);
	multicast_keep(transfer, told);
	*ret_code = ret ? remote_failed(transfer->key, &result) : CLI_OK;
	return true;
}

int transfer_get(struct transfer *transfer, int fd)
{
	struct download download = {.transfer = transfer};
	struct neb_multicast told = {.used = false};
	struct neb_result head;
	int ret = CLI_OK;

	if (neb_head(transfer->client, transfer->bucket, transfer->key, &head))
		return remote_failed(transfer->key, &head);
	transfer->transport = head.transport;
	download.bytes_total = head.object_bytes;
	snprintf(download.if_match, sizeof(download.if_match), "\"%s\"", head.etag);
	memcpy(transfer->etag, head.etag, sizeof(transfer->etag));
	progress_start(&transfer->progress, transfer->key, download.bytes_total);
	transfer->progress.visible &= !transfer->quiet;
	if (download.bytes_total && multicast_get(transfer, &told, fd, &ret)) {
		progress_end(&transfer->progress);
		return ret;
	}
	for (unsigned i = 0; i < TRANSFER_WINDOW &&
			     i * (uint64_t)TRANSFER_PART_BYTES < download.bytes_total && !ret;
		i++) {
		uint64_t bytes = MIN(download.bytes_total, (uint64_t)TRANSFER_PART_BYTES);

		if (neb_buffer_alloc(transfer->client, bytes, &download.parts[i].data)) {
			fprintf(stderr, "nebulaio: no memory for the transfer\n");
			ret = CLI_FAILED;
		}
	}
	if (!ret)
		ret = download_parts(&download, fd);
	if (told.why[0])
		multicast_keep(transfer, &told);
	progress_end(&transfer->progress);
	for (unsigned i = 0; i < TRANSFER_WINDOW; i++)
		neb_buffer_free(transfer->client, download.parts[i].data);
	return ret;
}
