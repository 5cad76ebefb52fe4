/* tests/sim/uring.c: io_uring, as far as the server uses it: rings in plain memory, operations that
 * complete after a random time.
 *
 * Sockets and eventfds are the kernel's own, which are deterministic when one thread runs: an
 * operation waits until its descriptor is ready, and then moves as much as chance allows.
 * Operations on volumes go to disk.c. */
#include "world.h"

#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define RINGS_MAX  64u
#define NET_NS_MAX (50 * NS_PER_US)
#define OP_NS_MAX  (5 * NS_PER_US)

struct ring {
	struct io_uring *uring;
	struct list ops; /* operations that wait for a descriptor */
	struct list overflow;
};

/* An operation that was submitted. Ends once, or when its multishot is over. */
struct op {
	struct list link;
	struct ring *ring;
	struct io_uring_sqe sqe;
	struct world_watch watch;
	struct world_event event; /* it happens */
	bool watching, ended;
	int result;
	size_t moved;
};

struct late { /* a completion while the queue was full */
	struct list link;
	struct io_uring_cqe cqe;
};

static struct ring rings[RINGS_MAX];

/* ---- Completions. ---- */

static bool cq_full(const struct io_uring *uring)
{
	return *uring->cq.ktail - *uring->cq.khead == uring->cq.ring_entries;
}

static void cq_push(struct io_uring *uring, const struct io_uring_cqe *cqe)
{
	struct io_uring_cqe *to = &uring->cq.cqes[*uring->cq.ktail & uring->cq.ring_mask];

	to->user_data = cqe->user_data;
	to->res = cqe->res;
	to->flags = cqe->flags;
	(*uring->cq.ktail)++;
}

static void complete(struct ring *ring, uint64_t user_data, int result, uint32_t flags)
{
	const struct io_uring_cqe cqe = {.user_data = user_data, .res = result, .flags = flags};

	world_trace("completion", (uint64_t)(ring - rings), (uint64_t)(uint32_t)result);
	if (cq_full(ring->uring) || !list_empty(&ring->overflow)) {
		struct late *late = (struct late *)calloc(1, sizeof(*late));

		CHECK(late != NULL);
		late->cqe = cqe;
		list_push_back(&ring->overflow, &late->link);
		*ring->uring->sq.kflags |= IORING_SQ_CQ_OVERFLOW;
	} else {
		cq_push(ring->uring, &cqe);
	}
	world_wake(ring->uring);
}

static void overflow_flush(struct ring *ring)
{
	while (!list_empty(&ring->overflow) && !cq_full(ring->uring)) {
		struct late *late = CONTAINER_OF(list_pop(&ring->overflow), struct late, link);

		cq_push(ring->uring, &late->cqe);
		free(late);
	}
	if (list_empty(&ring->overflow))
		*ring->uring->sq.kflags &= ~IORING_SQ_CQ_OVERFLOW;
}

static void op_end(struct op *op, int result, uint32_t flags)
{
	struct ring *ring = op->ring;
	uint64_t user_data = op->sqe.user_data;

	if (op->watching)
		world_watch_remove(&op->watch);
	world_event_cancel(&op->event);
	list_remove(&op->link);
	free(op);
	complete(ring, user_data, result, flags);
}

/* ---- Operations whose descriptor is ready. ---- */

static void op_watch(struct op *op, short events);

/* The rest of a message that has not been moved. */
static struct iovec piece(const struct op *op)
{
	const struct msghdr *msg = (const struct msghdr *)(uintptr_t)op->sqe.addr;
	size_t skip = op->moved;

	if (op->sqe.opcode != IORING_OP_SENDMSG)
		return (struct iovec){(char *)(uintptr_t)op->sqe.addr + skip, op->sqe.len - skip};
	for (size_t i = 0; i < msg->msg_iovlen; i++) {
		if (skip < msg->msg_iov[i].iov_len)
			return (struct iovec){(char *)msg->msg_iov[i].iov_base + skip,
				msg->msg_iov[i].iov_len - skip};
		skip -= msg->msg_iov[i].iov_len;
	}
	return (struct iovec){NULL, 0};
}

static void op_transfer(struct op *op)
{
	bool sends = op->sqe.opcode != IORING_OP_RECV;
	struct iovec part = piece(op);
	ssize_t done;

	if (sends)
		done = send(op->sqe.fd, part.iov_base, part.iov_len, MSG_DONTWAIT | MSG_NOSIGNAL);
	else
		done = recv(op->sqe.fd, part.iov_base, part.iov_len, MSG_DONTWAIT);
	if (done < 0 && errno == EAGAIN) {
		op_watch(op, sends ? POLLOUT : POLLIN);
		return;
	}
	if (done < 0) {
		op_end(op, op->moved ? (int)op->moved : -errno, 0);
		return;
	}
	op->moved += (size_t)done;
	if (done > 0 && (op->sqe.msg_flags & MSG_WAITALL) && piece(op).iov_len) {
		op_watch(op, sends ? POLLOUT : POLLIN);
		return;
	}
	op_end(op, (int)op->moved, 0);
}

static void op_accept(struct op *op)
{
	int fd = accept4(op->sqe.fd, NULL, NULL, SOCK_CLOEXEC);

	if (fd < 0 && errno != EAGAIN) {
		op_end(op, -errno, 0);
		return;
	}
	if (fd >= 0)
		world_net_opened(fd);
	if (fd >= 0 && !(op->sqe.ioprio & IORING_ACCEPT_MULTISHOT)) {
		op_end(op, fd, 0);
		return;
	}
	if (fd >= 0)
		complete(op->ring, op->sqe.user_data, fd, IORING_CQE_F_MORE);
	op_watch(op, POLLIN);
}

static void op_ready(struct world_watch *watch, short ready)
{
	struct op *op = CONTAINER_OF(watch, struct op, watch);

	world_watch_remove(watch);
	op->watching = false;
	if (op->sqe.opcode == IORING_OP_POLL_ADD) {
		op_end(op, ready, 0);
		return;
	}
	world_event_set(&op->event, world_now_ns() + world_below(NET_NS_MAX));
}

static void op_watch(struct op *op, short events)
{
	op->watch = (struct world_watch){.fd = op->sqe.fd, .events = events, .fn = op_ready};
	op->watching = true;
	world_watch_add(&op->watch);
}

/* ---- Submissions. ---- */

static void disk_done(void *arg, int result)
{
	op_end((struct op *)arg, result, 0);
}

static void disk_begin(struct op *op)
{
	const struct io_uring_sqe *sqe = &op->sqe;
	struct iovec one = {(void *)(uintptr_t)sqe->addr, sqe->len};
	struct world_disk_io io = {.iov = &one, .iov_count = 1, .offset = sqe->off};

	switch (sqe->opcode) {
	case IORING_OP_READV:
	case IORING_OP_WRITEV:
		io.iov = (const struct iovec *)(uintptr_t)sqe->addr;
		io.iov_count = sqe->len;
		io.op = sqe->opcode == IORING_OP_READV ? WORLD_READ : WORLD_WRITE;
		break;
	case IORING_OP_READ:
	case IORING_OP_READ_FIXED:
		io.op = WORLD_READ;
		break;
	case IORING_OP_WRITE:
	case IORING_OP_WRITE_FIXED:
		io.op = WORLD_WRITE;
		break;
	case IORING_OP_FSYNC:
		io.op = WORLD_FLUSH;
		io.iov_count = 0;
		break;
	default:
		/* fallocate(2): the mode is in len, the length in addr. */
		io.op = sqe->len & 0x10 ? WORLD_ZERO : WORLD_PUNCH;
		io.bytes = sqe->addr;
		io.iov_count = 0;
		break;
	}
	CHECK(world_disk_is(sqe->fd));
	world_disk_start(sqe->fd, &io, disk_done, op);
}

static bool cancels(const struct io_uring_sqe *by, const struct op *op)
{
	if (by->cancel_flags & IORING_ASYNC_CANCEL_FD)
		return op->sqe.fd == by->fd;
	return op->sqe.user_data == by->addr;
}

/* Only operations that wait for a descriptor can be cancelled. */
static int cancel(struct ring *ring, const struct io_uring_sqe *by)
{
	int count = 0;

	LIST_FOR_EACH_SAFE (link, &ring->ops) {
		struct op *op = CONTAINER_OF(link, struct op, link);

		if (!cancels(by, op) || op->sqe.opcode == IORING_OP_NOP ||
			(!op->watching && !op->event.heap_idx))
			continue;
		op_end(op, op->moved ? (int)op->moved : -ECANCELED, 0);
		count++;
		if (!(by->cancel_flags & IORING_ASYNC_CANCEL_ALL))
			break;
	}
	if (by->cancel_flags & IORING_ASYNC_CANCEL_ALL)
		return count;
	return count ? 0 : -ENOENT;
}

static void op_connect(struct op *op)
{
	int ret = connect(op->sqe.fd, (const struct sockaddr *)(uintptr_t)op->sqe.addr,
		(socklen_t)op->sqe.off);

	op_end(op, ret ? -errno : 0, 0);
}

/* Runs an operation after its delay. */
static void op_happen(void *arg)
{
	struct op *op = (struct op *)arg;

	switch (op->sqe.opcode) {
	case IORING_OP_NOP:
		op_end(op, 0, 0);
		break;
	case IORING_OP_ACCEPT:
		op_accept(op);
		break;
	case IORING_OP_CONNECT:
		op_connect(op);
		break;
	default:
		op_transfer(op);
		break;
	}
}

static void op_begin(struct ring *ring, const struct io_uring_sqe *sqe)
{
	struct op *op = (struct op *)calloc(1, sizeof(*op));

	CHECK(op != NULL);
	op->ring = ring;
	op->sqe = *sqe;
	op->event.fn = op_happen;
	op->event.arg = op;
	list_push_back(&ring->ops, &op->link);
	world_trace("submission", sqe->opcode, (uint64_t)(ring - rings));
	switch (sqe->opcode) {
	case IORING_OP_NOP:
	case IORING_OP_CONNECT:
		world_event_set(&op->event, world_now_ns() + world_below(OP_NS_MAX));
		break;
	case IORING_OP_POLL_ADD:
		/* A multishot never ends: world_uring_rung reports its events. */
		if (!(sqe->len & IORING_POLL_ADD_MULTI))
			op_watch(op, (short)sqe->poll32_events);
		break;
	case IORING_OP_ACCEPT:
	case IORING_OP_RECV:
		op_watch(op, POLLIN);
		break;
	case IORING_OP_SENDMSG:
		op_watch(op, POLLOUT);
		break;
	case IORING_OP_ASYNC_CANCEL:
		op_end(op, cancel(ring, sqe), 0);
		break;
	case IORING_OP_READ:
	case IORING_OP_READV:
	case IORING_OP_READ_FIXED:
	case IORING_OP_WRITE:
	case IORING_OP_WRITEV:
	case IORING_OP_WRITE_FIXED:
	case IORING_OP_FSYNC:
	case IORING_OP_FALLOCATE:
		disk_begin(op);
		break;
	default:
		world_fault("io_uring operation %u is unknown here", sqe->opcode);
	}
}

void world_uring_rung(int fd)
{
	for (uint32_t i = 0; i < RINGS_MAX && rings[i].uring; i++)
		LIST_FOR_EACH_SAFE (link, &rings[i].ops) {
			struct op *op = CONTAINER_OF(link, struct op, link);

			if (op->sqe.opcode == IORING_OP_POLL_ADD && op->sqe.fd == fd &&
				(op->sqe.len & IORING_POLL_ADD_MULTI))
				complete(op->ring, op->sqe.user_data, POLLIN, IORING_CQE_F_MORE);
		}
}

/* ---- liburing's calls. ---- */

static struct ring *ring_of(struct io_uring *uring)
{
	for (uint32_t i = 0; i < RINGS_MAX; i++)
		if (rings[i].uring == uring)
			return &rings[i];
	world_fault("a ring that was never set up");
}

static void *zeroed(size_t count, size_t bytes)
{
	void *memory = calloc(count, bytes);

	CHECK(memory != NULL);
	return memory;
}

int __wrap_io_uring_queue_init_params(
	unsigned entries, struct io_uring *uring, struct io_uring_params *params)
{
	uint32_t cq_entries = params->cq_entries ? params->cq_entries : 2 * entries;
	uint32_t i;

	CHECK(!(params->flags & (IORING_SETUP_SQE128 | IORING_SETUP_CQE32)));
	CHECK((entries & (entries - 1)) == 0 && (cq_entries & (cq_entries - 1)) == 0);
	for (i = 0; rings[i].uring && rings[i].uring != uring; i++)
		CHECK(i + 1 < RINGS_MAX);
	rings[i].uring = uring;
	list_init(&rings[i].ops);
	list_init(&rings[i].overflow);
	memset(uring, 0, sizeof(*uring));
	uring->sq.khead = (unsigned *)zeroed(4, sizeof(unsigned));
	uring->sq.ktail = uring->sq.khead + 1;
	uring->sq.kflags = uring->sq.khead + 2;
	uring->sq.kdropped = uring->sq.khead + 3;
	uring->sq.sqes = (struct io_uring_sqe *)zeroed(entries, sizeof(struct io_uring_sqe));
	uring->sq.ring_entries = entries;
	uring->sq.ring_mask = entries - 1;
	uring->cq.khead = (unsigned *)zeroed(2, sizeof(unsigned));
	uring->cq.ktail = uring->cq.khead + 1;
	uring->cq.cqes = (struct io_uring_cqe *)zeroed(cq_entries, sizeof(struct io_uring_cqe));
	uring->cq.ring_entries = cq_entries;
	uring->cq.ring_mask = cq_entries - 1;
	uring->flags = params->flags;
	uring->ring_fd = eventfd(0, EFD_CLOEXEC);
	return uring->ring_fd < 0 ? -errno : 0;
}

void __wrap_io_uring_queue_exit(struct io_uring *uring)
{
	struct ring *ring = ring_of(uring);

	LIST_FOR_EACH_SAFE (link, &ring->ops) {
		struct op *op = CONTAINER_OF(link, struct op, link);

		if (op->watching)
			world_watch_remove(&op->watch);
		world_event_cancel(&op->event);
		list_remove(&op->link);
		free(op);
	}
	while (!list_empty(&ring->overflow))
		free(CONTAINER_OF(list_pop(&ring->overflow), struct late, link));
	free(uring->sq.khead);
	free(uring->sq.sqes);
	free(uring->cq.khead);
	free(uring->cq.cqes);
	close(uring->ring_fd);
	/* The slot stays in use: rings are few, and the search ends at the first free slot. */
	ring->uring = (struct io_uring *)ring;
}

int __wrap_io_uring_submit(struct io_uring *uring)
{
	struct ring *ring = ring_of(uring);
	int count = 0;

	while (uring->sq.sqe_head != uring->sq.sqe_tail) {
		/* A copy, because a completion may submit again. */
		struct io_uring_sqe sqe = uring->sq.sqes[uring->sq.sqe_head & uring->sq.ring_mask];

		uring->sq.sqe_head++;
		*uring->sq.khead = uring->sq.sqe_head;
		op_begin(ring, &sqe);
		count++;
	}
	return count;
}

int __wrap_io_uring_get_events(struct io_uring *uring)
{
	overflow_flush(ring_of(uring));
	return 0;
}

int __wrap_io_uring_submit_and_wait_timeout(struct io_uring *uring, struct io_uring_cqe **ret_cqe,
	unsigned wait, struct __kernel_timespec *span, sigset_t *mask)
{
	uint64_t deadline_ns =
		span ? world_now_ns() + (uint64_t)span->tv_sec * NS_PER_S + (uint64_t)span->tv_nsec
		     : UINT64_MAX;
	int count = __wrap_io_uring_submit(uring);

	(void)wait;
	(void)mask;
	overflow_flush(ring_of(uring));
	while (*uring->cq.ktail == *uring->cq.khead)
		if (!world_block(uring, deadline_ns))
			return -ETIME;
	*ret_cqe = &uring->cq.cqes[*uring->cq.khead & uring->cq.ring_mask];
	return count;
}

int __wrap_io_uring_register_buffers(
	struct io_uring *uring, const struct iovec *iov, unsigned count)
{
	(void)uring;
	(void)iov;
	(void)count;
	return 0;
}

long __real_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, ...)
{
	long args[6];
	va_list list;

	va_start(list, number);
	for (int i = 0; i < 6; i++)
		args[i] = va_arg(list, long);
	va_end(list);
	if (number == __NR_io_uring_register)
		return 0;
	if (number == __NR_futex)
		return world_futex((_Atomic uint32_t *)args[0], args[1], (uint32_t)args[2],
			(const struct timespec *)args[3]);
	return __real_syscall(number, args[0], args[1], args[2], args[3], args[4], args[5]);
}

/* ---- Memory: allocating it ahead gains nothing here. ---- */

int __wrap_mlock(const void *memory, size_t bytes)
{
	(void)memory;
	(void)bytes;
	return 0;
}

int __wrap_madvise(void *memory, size_t bytes, int advice)
{
	(void)memory;
	(void)bytes;
	(void)advice;
	return 0;
}
