/* nbd/serve_dp.c: requests of a chosen export: payload between the stream and the volume, by the
 * region's frames, several requests at a time, answered in the order in which they end. */
#include "nbd/nbd_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Zeros and discards have no payload and may be long: a piece at a time. */
#define RUN_BYTES_MAX (256 * MIB)
/* The source of written zeros. */
#define ZERO_BYTES_MAX (1 * MIB)

struct request {
	struct nbd_connection *connection;
	uint16_t flags, type;
	uint64_t cookie_be;
	uint64_t offset;
	uint32_t bytes;
	struct region_span span; /* data NULL: no payload */
	enum region_owner owner; /* of the span */
	uint32_t frames;	 /* of the span */
	int error;		 /* 0 or -errno */
};

/* ---- Frames. ---- */

static bool lasts(uint64_t since_ns, uint64_t ns)
{
	return since_ns && clock_now_ns() - since_ns >= ns;
}

/* Cuts off the connection that holds most frames of those whose client is slow to take or to send
 * one payload. */
static void slow_one_end(struct nbd *nbd)
{
	struct nbd_connection *worst = NULL;

	LIST_FOR_EACH (link, &nbd->connections) {
		struct nbd_connection *connection = CONTAINER_OF(link, struct nbd_connection, link);
		bool slow = lasts(connection->sends_since_ns, nbd->starved_ns) ||
			    lasts(connection->takes_since_ns, nbd->starved_ns);

		if (slow && (!worst || connection->frames_held > worst->frames_held))
			worst = connection;
	}
	if (!worst)
		return;
	log_warn("nbd", "%s: %s is cut off: it is slow, and others wait for its memory",
		worst->export->name, net_peer(worst->stream));
	worst->sends_since_ns = worst->takes_since_ns = 0;
	net_shutdown(worst->stream);
}

/* Waits until it is this fiber's turn and there are frames. It holds none meanwhile, so the
 * requests that do will end. */
static int frames_lease(struct request *request)
{
	struct nbd *nbd = request->connection->nbd;
	struct nbd_wait wait = {.fiber = fiber_self()};
	uint32_t frames = region_frames_for(request->bytes);
	int ret = -ENOBUFS;

	if (list_empty(&nbd->starved))
		ret = region_lease(nbd->opts.region, frames, OWNER_NET, &request->span);
	if (ret == -ENOBUFS) {
		list_push_back(&nbd->starved, &wait.link);
		while (ret == -ENOBUFS) {
			if (nbd->starved.next == &wait.link)
				ret = region_lease(
					nbd->opts.region, frames, OWNER_NET, &request->span);
			if (ret == -ENOBUFS &&
				fiber_park_until(clock_now_ns() + nbd->starved_ns) == -ETIMEDOUT &&
				nbd->starved.next == &wait.link)
				slow_one_end(nbd);
		}
		list_remove(&wait.link);
		if (!list_empty(&nbd->starved))
			fiber_wake(CONTAINER_OF(nbd->starved.next, struct nbd_wait, link)->fiber);
	}
	request->owner = OWNER_NET;
	request->frames = frames;
	request->connection->frames_held += ret ? 0 : frames;
	return ret;
}

static void frames_switch(struct request *request, enum region_owner to)
{
	region_switch(request->connection->nbd->opts.region, request->span, request->owner, to);
	request->owner = to;
}

static void frames_give(struct request *request)
{
	struct nbd *nbd = request->connection->nbd;

	if (!request->span.data)
		return;
	region_give(nbd->opts.region, request->span, request->owner);
	request->span.data = NULL;
	request->connection->frames_held -= request->frames;
	if (!list_empty(&nbd->starved))
		fiber_wake(CONTAINER_OF(nbd->starved.next, struct nbd_wait, link)->fiber);
}

/* ---- Answers: one fiber at a time sends. ---- */

static void send_begin(struct nbd_connection *connection)
{
	struct nbd_wait wait = {.fiber = fiber_self()};

	if (connection->sending) {
		list_push_back(&connection->senders, &wait.link);
		while (!wait.called)
			fiber_park();
	}
	connection->sending = true;
}

/* Hands the stream on to the next fiber directly, so that no other fiber gets it first. */
static void send_end(struct nbd_connection *connection)
{
	struct list *first = list_pop(&connection->senders);
	struct nbd_wait *next;

	if (!first) {
		connection->sending = false;
		return;
	}
	next = CONTAINER_OF(first, struct nbd_wait, link);
	next->called = true;
	fiber_wake(next->fiber);
}

static uint32_t wire_error(int error)
{
	switch (error) {
	case 0:
		return 0;
	case -EPERM:
	case -EROFS:
		return NBD_EPERM;
	case -ENOMEM:
		return NBD_ENOMEM;
	case -EINVAL:
		return NBD_EINVAL;
	case -ENOSPC:
		return NBD_ENOSPC;
	case -EOPNOTSUPP:
		return NBD_ENOTSUP;
	case -ESHUTDOWN:
		return NBD_ESHUTDOWN;
	default:
		return NBD_EIO;
	}
}

static void answer(struct request *request)
{
	struct nbd_connection *connection = request->connection;
	struct nbd_answer_wire head = {
		htobe32(NBD_ANSWER_MAGIC), htobe32(wire_error(request->error)), request->cookie_be};
	bool data = request->type == NBD_CMD_READ && !request->error;
	struct iovec iov[2] = {{&head, sizeof(head)}, {request->span.data, request->bytes}};

	send_begin(connection);
	connection->sends_since_ns = data ? clock_now_ns() : 0;
	if (net_sendv_stall(connection->stream, iov, data ? 2 : 1, NBD_STALL_NS, DEADLINE_NONE))
		net_shutdown(connection->stream);
	else if (data)
		connection->read_bytes += request->bytes;
	connection->sends_since_ns = 0;
	send_end(connection);
}

/* ---- The volume. ---- */

static int volume_run(struct request *request, enum disk_op op)
{
	struct iovec iov = {request->span.data, request->bytes};
	struct disk_io io = {.op = op, .iov = &iov, .iov_count = 1, .offset = request->offset};
	int32_t ret;

	frames_switch(request, OWNER_DISK);
	ret = disk_run(request->connection->export->disk, &io);
	frames_switch(request, OWNER_NET);
	if (ret >= 0 && (uint32_t)ret != request->bytes)
		ret = -EIO;
	return MIN(ret, 0);
}

static int volume_run_long(struct request *request, enum disk_op op)
{
	uint64_t at = request->offset, end = at + request->bytes;
	int32_t ret = 0;

	while (at < end && ret >= 0) {
		struct disk_io io = {.op = op, .offset = at, .bytes = MIN(RUN_BYTES_MAX, end - at)};

		at += io.bytes;
		ret = disk_run(request->connection->export->disk, &io);
	}
	return MIN(ret, 0);
}

/* For media that cannot make zeros: writes them. */
static int volume_zero(struct request *request)
{
	uint64_t at = request->offset, end = at + request->bytes;
	uint32_t whole = request->bytes;
	int ret;

	request->bytes = (uint32_t)MIN(ZERO_BYTES_MAX, whole);
	ret = frames_lease(request);
	if (!ret)
		memset(request->span.data, 0, request->bytes);
	for (; at < end && !ret; at += request->bytes) {
		request->offset = at;
		request->bytes = (uint32_t)MIN(request->bytes, end - at);
		ret = volume_run(request, DISK_WRITE);
	}
	frames_give(request);
	request->bytes = whole;
	return ret;
}

/* The medium may have lost writes that were answered, and no later flush would tell: a file system
 * reports once that it could not write a page. A volume whose host is away fails by itself. */
static __attribute__((noinline, cold)) void flush_failed(struct disk *disk, int error)
{
	if (error != -ENOTCONN && error != -EHOSTDOWN && error != -ENOMEM)
		disk_fence(disk);
}

static int volume_flush(struct request *request)
{
	struct disk *disk = request->connection->export->disk;
	struct disk_io io = {.op = DISK_FLUSH};
	int ret = MIN(disk_run(disk, &io), 0);

	if (ret)
		flush_failed(disk, ret);
	return ret;
}

static int volume_serve(struct request *request)
{
	int ret;

	switch (request->type) {
	case NBD_CMD_READ:
		return volume_run(request, DISK_READ);
	case NBD_CMD_WRITE:
		ret = volume_run(request, DISK_WRITE);
		break;
	case NBD_CMD_TRIM:
		ret = volume_run_long(request, DISK_DISCARD);
		break;
	case NBD_CMD_WRITE_ZEROES:
		ret = volume_run_long(request, DISK_ZERO);
		if (ret == -EOPNOTSUPP)
			ret = volume_zero(request);
		break;
	default:
		return volume_flush(request);
	}
	if (!ret && request->flags & NBD_CMD_FLAG_FUA)
		ret = volume_flush(request);
	return ret;
}

/* ---- Requests. ---- */

/* Logs a failing volume once for each connection, and no mistakes of clients. */
static void complain(struct request *request)
{
	struct nbd_connection *connection = request->connection;

	if (connection->complained)
		return;
	connection->complained = true;
	log_warn("nbd", "%s: requests of %s fail, first of %u bytes at %llu: %s",
		connection->export->name, net_peer(connection->stream), request->bytes,
		(unsigned long long)request->offset, strerror(-request->error));
}

static void request_main(void *arg)
{
	struct request *request = arg;
	struct nbd_connection *connection = request->connection;

	if (!request->error) {
		request->error = volume_serve(request);
		if (request->error)
			complain(request);
	}
	answer(request);
	frames_give(request);
	free(request);
	connection->requests--;
	if (connection->receiver)
		fiber_wake(connection->receiver);
	if (connection->nbd->drainer)
		fiber_wake(connection->nbd->drainer);
}

/* 0, or why the request cannot be done. */
static int request_check(const struct request *request)
{
	const struct nbd_export *export = request->connection->export;
	uint32_t allowed = NBD_CMD_FLAG_FUA;
	bool writes = true;

	switch (request->type) {
	case NBD_CMD_READ:
		writes = false;
		break;
	case NBD_CMD_WRITE:
		break;
	case NBD_CMD_WRITE_ZEROES:
		allowed |= NBD_CMD_FLAG_NO_HOLE;
		break;
	case NBD_CMD_TRIM:
		if (!disk_can_discard(export->disk))
			return -EOPNOTSUPP;
		break;
	case NBD_CMD_FLUSH:
		return request->flags & ~allowed || request->offset || request->bytes ? -EINVAL : 0;
	default:
		return -EINVAL;
	}
	if (request->connection->nbd->draining)
		return -ESHUTDOWN;
	if (writes && export->read_only)
		return -EPERM;
	if (request->flags & ~allowed || !request->bytes ||
		(request->offset | request->bytes) % disk_align(export->disk))
		return -EINVAL;
	if (!disk_in_range(export->disk, request->offset, request->bytes))
		return writes ? -ENOSPC : -EINVAL;
	return 0;
}

/* Reads and drops the payload of a refused write. */
static int payload_skip(struct request *request)
{
	uint32_t left = request->bytes;
	uint8_t waste[4096];
	size_t got;
	int ret = 0;

	while (left && !ret) {
		ret = net_recv(request->connection->stream, waste, MIN(left, sizeof(waste)),
			clock_now_ns() + NBD_STALL_NS, &got);
		if (!ret && !got)
			ret = -ECONNRESET;
		left -= ret ? 0 : (uint32_t)got;
	}
	return ret;
}

static int payload_take(struct request *request)
{
	struct nbd_connection *connection = request->connection;
	uint32_t at = 0;
	size_t got;
	int ret = 0;

	connection->takes_since_ns = clock_now_ns();
	while (at < request->bytes && !ret) {
		ret = net_recv_full(connection->stream, request->span.data + at,
			request->bytes - at, clock_now_ns() + NBD_STALL_NS, &got);
		if (!ret && !got)
			ret = -ECONNRESET;
		at += ret ? 0 : (uint32_t)got;
	}
	connection->takes_since_ns = 0;
	connection->written_bytes += at;
	return ret;
}

/* Takes the payload, and leases the frames. An error of the stream ends the connection. */
static int request_prepare(struct request *request)
{
	bool payload = request->type == NBD_CMD_READ || request->type == NBD_CMD_WRITE;
	bool incoming = request->type == NBD_CMD_WRITE;

	request->error = request_check(request);
	if (!request->error && payload && request->bytes > NBD_PAYLOAD_BYTES_MAX)
		request->error = -EINVAL;
	if (!request->error && payload)
		request->error = frames_lease(request);
	if (!incoming)
		return 0;
	return request->error ? payload_skip(request) : payload_take(request);
}

/* 0; 1: the client leaves in order; -errno: the connection can no longer be used. */
static int head_take(struct request *request)
{
	struct net_stream *stream = request->connection->stream;
	struct nbd_request_wire head;
	size_t got;
	int ret = net_wait_readable(stream, DEADLINE_NONE);

	if (!ret)
		ret = net_recv_full(
			stream, &head, sizeof(head), clock_now_ns() + NBD_STALL_NS, &got);
	if (ret)
		return ret;
	if (!got)
		return 1;
	if (got != sizeof(head))
		return -ECONNRESET;
	if (head.magic != htobe32(NBD_REQUEST_MAGIC))
		return -EPROTO;
	request->flags = be16toh(head.flags);
	request->type = be16toh(head.type);
	request->cookie_be = head.cookie;
	request->offset = be64toh(head.offset);
	request->bytes = be32toh(head.bytes);
	return request->type == NBD_CMD_DISC;
}

static void requests_wait(struct nbd_connection *connection, uint32_t below)
{
	connection->receiver = fiber_self();
	while (connection->requests >= below)
		fiber_park();
	connection->receiver = NULL;
}

static int request_take(struct nbd_connection *connection)
{
	struct request *request;
	int ret;

	requests_wait(connection, NBD_REQUESTS_MAX);
	request = calloc(1, sizeof(*request));
	if (!request)
		return -ENOMEM;
	request->connection = connection;
	ret = head_take(request);
	if (!ret)
		ret = request_prepare(request);
	if (ret) {
		frames_give(request);
		free(request);
		return ret;
	}
	connection->requests++;
	if (fiber_spawn(connection->nbd->opts.reactor, "nbd request", request_main, request))
		request_main(request);
	return 0;
}

void nbd_serve(struct nbd_connection *connection)
{
	int ret = 0;

	while (!ret)
		ret = request_take(connection);
	if (ret < 0 && ret != -ECANCELED && ret != -ECONNRESET)
		log_warn("nbd", "%s: %s is cut off: %s", connection->export->name,
			net_peer(connection->stream), strerror(-ret));
	requests_wait(connection, 1);
}
