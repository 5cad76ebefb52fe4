/* bench/anchor.c: the local limits. */
#include "bench/anchor.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base.h"
#include "bench/plan.h"

#define COPY_BYTES_MAX (64 * MIB)
#define LOG_BYTES      (64 * MIB)
#define TCP_BYTES      64
#define STREAM_BYTES   (256 * KIB)
#define BATCH	       1000 /* round trips between looks at the clock */

struct bench_anchors {
	struct bench_cpus cpus;
	uint8_t *from;
	uint8_t *to;
	char log_path[4096];
	int log_fd;
	uint64_t log_offset;
	struct hist hist;
};

static int log_open(struct bench_anchors *anchors, const char *dir)
{
	int ret = 0;

	snprintf(anchors->log_path, sizeof(anchors->log_path), "%s/raw-log", dir);
	anchors->log_fd =
		open(anchors->log_path, O_RDWR | O_CREAT | O_EXCL | O_DIRECT | O_CLOEXEC, 0600);
	if (anchors->log_fd < 0 && errno == EINVAL) /* a file system without O_DIRECT */
		anchors->log_fd =
			open(anchors->log_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (anchors->log_fd < 0)
		return -errno;
	for (uint64_t at = 0; at < LOG_BYTES && !ret; at += MIB) {
		if (pwrite(anchors->log_fd, anchors->from + at, MIB, (off_t)at) != (ssize_t)MIB)
			ret = -EIO;
	}
	if (!ret && fsync(anchors->log_fd))
		ret = -errno;
	return ret;
}

int bench_anchors_open(
	const char *dir, const struct bench_cpus *cpus, struct bench_anchors **ret_anchors)
{
	struct bench_anchors *anchors = calloc(1, sizeof(*anchors));
	struct prng prng;
	uint8_t *memory;
	int ret;

	if (!anchors)
		return -ENOMEM;
	anchors->cpus = *cpus;
	anchors->log_fd = -1;
	memory = mmap(NULL, 2 * COPY_BYTES_MAX, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		-1, 0);
	if (memory == MAP_FAILED) {
		free(anchors);
		return -ENOMEM;
	}
	madvise(memory, 2 * COPY_BYTES_MAX, MADV_HUGEPAGE);
	anchors->from = memory;
	anchors->to = memory + COPY_BYTES_MAX;
	prng_seed(&prng, 1);
	prng_fill(&prng, anchors->from, COPY_BYTES_MAX);
	memset(anchors->to, 1, COPY_BYTES_MAX);
	ret = log_open(anchors, dir);
	if (ret) {
		bench_anchors_close(anchors);
		return ret;
	}
	*ret_anchors = anchors;
	return 0;
}

void bench_anchors_close(struct bench_anchors *anchors)
{
	if (!anchors)
		return;
	if (anchors->log_fd >= 0) {
		close(anchors->log_fd);
		unlink(anchors->log_path);
	}
	munmap(anchors->from, 2 * COPY_BYTES_MAX);
	free(anchors);
}

/* ---- Shared memory. ---- */

#define STOP UINT64_MAX

struct table {
	_Alignas(128) _Atomic uint64_t ball; /* odd: the other side's turn */
	int cpu;
};

static void *pingpong_other(void *arg)
{
	struct table *table = arg;
	uint64_t want = 1, ball;

	bench_cpu_pin(table->cpu);
	while (true) {
		ball = atomic_load_explicit(&table->ball, memory_order_acquire);
		if (ball == want) {
			atomic_store_explicit(&table->ball, want + 1, memory_order_release);
			want += 2;
		} else if (ball == STOP) {
			return NULL;
		}
	}
}

static void pingpong_rounds(struct table *table, uint64_t rounds, uint64_t *ball)
{
	for (uint64_t i = 0; i < rounds; i++) {
		atomic_store_explicit(&table->ball, ++*ball, memory_order_release);
		++*ball;
		while (atomic_load_explicit(&table->ball, memory_order_acquire) != *ball)
			;
	}
}

int bench_anchor_pingpong(struct bench_anchors *anchors, uint64_t budget_ns, double *ret_ns)
{
	struct table table = {.cpu = anchors->cpus.server};
	uint64_t ball = 0, begin_ns, now_ns;
	pthread_t other;
	int ret;

	if (anchors->cpus.server == anchors->cpus.client)
		return -ENODEV; /* two threads spin: one processor would only switch them */
	ret = pthread_create(&other, NULL, pingpong_other, &table);
	if (ret)
		return -ret;
	pingpong_rounds(&table, BATCH, &ball); /* until the other side is there */
	begin_ns = clock_now_ns();
	hist_reset(&anchors->hist);
	do {
		uint64_t before_ns = clock_now_ns();

		pingpong_rounds(&table, BATCH, &ball);
		now_ns = clock_now_ns();
		hist_add(&anchors->hist, now_ns - before_ns);
	} while (now_ns - begin_ns < budget_ns);
	atomic_store(&table.ball, STOP);
	pthread_join(other, NULL);
	*ret_ns = (double)hist_quantile(&anchors->hist, 0.5) / BATCH;
	return 0;
}

/* ---- Memory. ---- */

int bench_anchor_memcpy(
	struct bench_anchors *anchors, uint64_t bytes, uint64_t budget_ns, double *ret_ns)
{
	uint64_t batch = MAX(MIB / bytes, 1), objects = MAX(BENCH_HOT_BYTES / bytes, 1);
	uint64_t begin_ns, now_ns, turn = 0;

	if (!bytes || bytes > COPY_BYTES_MAX || objects * bytes > COPY_BYTES_MAX)
		return -EINVAL;
	for (uint64_t i = 0; i < objects; i++)
		memcpy(anchors->to, anchors->from + i * bytes, bytes);
	hist_reset(&anchors->hist);
	begin_ns = clock_now_ns();
	do {
		uint64_t before_ns = clock_now_ns();

		for (uint64_t i = 0; i < batch; i++) {
			memcpy(anchors->to, anchors->from + turn++ % objects * bytes, bytes);
			__asm__ volatile("" : : "r"(anchors->to) : "memory"); /* keeps each copy */
		}
		now_ns = clock_now_ns();
		hist_add(&anchors->hist, now_ns - before_ns);
	} while (now_ns - begin_ns < budget_ns);
	*ret_ns = (double)hist_quantile(&anchors->hist, 0.5) / (double)batch;
	return 0;
}

/* ---- TCP. ---- */

struct echo {
	int fd;
	int cpu;
	const uint8_t *data; /* of a stream */
};

/* Exactly TCP_BYTES, without ever sleeping. False at the stream's end. */
static bool spin_receive(int fd, char *buf)
{
	size_t have = 0;

	while (have < TCP_BYTES) {
		ssize_t got = recv(fd, buf + have, TCP_BYTES - have, MSG_DONTWAIT);

		if (got > 0)
			have += (size_t)got;
		else if (got == 0 || errno != EAGAIN)
			return false;
	}
	return true;
}

static void *tcp_other(void *arg)
{
	const struct echo *echo = arg;
	char buf[TCP_BYTES];

	bench_cpu_pin(echo->cpu);
	while (spin_receive(echo->fd, buf)) {
		if (send(echo->fd, buf, sizeof(buf), MSG_NOSIGNAL) != sizeof(buf))
			break;
	}
	return NULL;
}

/* Two ends of one connection over the loopback device. */
static int tcp_pair(int ret_fds[2])
{
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1, ret = 0;

	ret_fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ret_fds[1] = -1;
	if (listener < 0 || ret_fds[0] < 0 ||
		bind(listener, (struct sockaddr *)&address, sizeof(address)) ||
		listen(listener, 1) || getsockname(listener, (struct sockaddr *)&address, &len) ||
		connect(ret_fds[0], (struct sockaddr *)&address, sizeof(address)))
		ret = -errno;
	else
		ret_fds[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (!ret && ret_fds[1] < 0)
		ret = -errno;
	for (int i = 0; i < 2 && !ret; i++)
		setsockopt(ret_fds[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (listener >= 0)
		close(listener);
	return ret;
}

static int tcp_rounds(struct bench_anchors *anchors, int fd, uint64_t budget_ns)
{
	uint64_t begin_ns = clock_now_ns(), before_ns = begin_ns, now_ns;
	char buf[TCP_BYTES] = {0};

	hist_reset(&anchors->hist);
	do {
		if (send(fd, buf, sizeof(buf), MSG_NOSIGNAL) != sizeof(buf) ||
			!spin_receive(fd, buf))
			return -EIO;
		now_ns = clock_now_ns();
		hist_add(&anchors->hist, now_ns - before_ns);
		before_ns = now_ns;
	} while (now_ns - begin_ns < budget_ns);
	return 0;
}

/* Receives until the other end closes. */
static void *stream_other(void *arg)
{
	const struct echo *echo = arg;

	bench_cpu_pin(echo->cpu);
	while (send(echo->fd, echo->data, STREAM_BYTES, MSG_NOSIGNAL) > 0)
		;
	return NULL;
}

static int stream_receive(struct bench_anchors *anchors, int fd, uint64_t bytes, uint64_t budget_ns)
{
	uint64_t begin_ns = clock_now_ns(), before_ns = begin_ns, now_ns, have = 0;

	hist_reset(&anchors->hist);
	do {
		ssize_t got = recv(fd, anchors->to, STREAM_BYTES, MSG_DONTWAIT);

		if (got == 0 || (got < 0 && errno != EAGAIN))
			return -EIO;
		have += got > 0 ? (uint64_t)got : 0;
		now_ns = clock_now_ns();
		if (have < bytes)
			continue;
		/* Further bytes belong to the next one. */
		hist_add(&anchors->hist, (now_ns - before_ns) * bytes / have);
		have = 0;
		before_ns = now_ns;
	} while (now_ns - begin_ns < budget_ns || !anchors->hist.count);
	return 0;
}

/* A connection whose other end is served by other, on the server's processor. bytes: of a stream;
 * 0: round trips. */
static int with_tcp_pair(struct bench_anchors *anchors, void *(*other)(void *), uint64_t bytes,
	uint64_t budget_ns, double *ret_ns)
{
	struct echo echo = {.cpu = anchors->cpus.server, .data = anchors->from};
	pthread_t thread;
	int fds[2], ret;

	if (anchors->cpus.server == anchors->cpus.client)
		return -ENODEV;
	ret = tcp_pair(fds);
	echo.fd = fds[1];
	if (!ret)
		ret = -pthread_create(&thread, NULL, other, &echo);
	if (!ret) {
		ret = bytes ? stream_receive(anchors, fds[0], bytes, budget_ns)
			    : tcp_rounds(anchors, fds[0], budget_ns);
		shutdown(fds[0], SHUT_RDWR);
		close(fds[0]);
		fds[0] = -1;
		pthread_join(thread, NULL);
	}
	for (int i = 0; i < 2; i++) {
		if (fds[i] >= 0)
			close(fds[i]);
	}
	if (!ret)
		*ret_ns = (double)hist_quantile(&anchors->hist, 0.5);
	return ret;
}

int bench_anchor_tcp(struct bench_anchors *anchors, uint64_t budget_ns, double *ret_ns)
{
	return with_tcp_pair(anchors, tcp_other, 0, budget_ns, ret_ns);
}

int bench_anchor_stream(
	struct bench_anchors *anchors, uint64_t bytes, uint64_t budget_ns, double *ret_ns)
{
	return bytes ? with_tcp_pair(anchors, stream_other, bytes, budget_ns, ret_ns) : -EINVAL;
}

/* ---- The raw log. ---- */

static int log_commits(struct bench_anchors *anchors, uint64_t bytes, uint64_t budget_ns)
{
	uint64_t begin_ns = clock_now_ns(), now_ns;

	do {
		uint64_t before_ns = clock_now_ns();

		if (anchors->log_offset + bytes > LOG_BYTES)
			anchors->log_offset = 0;
		if (pwrite(anchors->log_fd, anchors->from, bytes, (off_t)anchors->log_offset) !=
			(ssize_t)bytes)
			return -EIO;
		if (fdatasync(anchors->log_fd))
			return -errno;
		anchors->log_offset += bytes;
		now_ns = clock_now_ns();
		hist_add(&anchors->hist, now_ns - before_ns);
	} while (now_ns - begin_ns < budget_ns);
	return 0;
}

/* A disk with one queue interrupts one processor, and wakes a thread of that one sooner. So the raw
 * log is written where the server writes. */
int bench_anchor_log(
	struct bench_anchors *anchors, uint32_t blocks, uint64_t budget_ns, double *ret_ns)
{
	int ret;

	if (!blocks || blocks > BENCH_LOG_BLOCKS_MAX)
		return -EINVAL;
	hist_reset(&anchors->hist);
	bench_cpu_pin(anchors->cpus.server);
	ret = log_commits(anchors, (uint64_t)blocks * BENCH_LOG_BLOCK_BYTES, budget_ns);
	bench_cpu_pin(anchors->cpus.client);
	if (!ret)
		*ret_ns = (double)hist_quantile(&anchors->hist, 0.5);
	return ret;
}
