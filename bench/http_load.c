/* bench/http_load.c: the connections of an HTTP load. */
#include "bench/http_load.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define HEAD_BYTES_MAX	(64 * KIB)
#define HEADS_BYTES_MAX (512 * MIB)
#define ANSWER_NS_MAX	(30 * NS_PER_S)
#define EVENTS_MAX	64
#define ONCE_TIMEOUT_MS 10000
#define READ_BYTES_MAX	(1 * MIB)
#define ASIDE_BYTES	(256 * KIB)
#define SLEEP_MS_MAX	10

/* idle -> (start) -> sending -> (all sent) -> waiting -> (answer whole) -> idle. Every error ends
 * in a new connection. */
struct connection {
	int fd;
	bool writes;				  /* waits for room to send */
	const struct bench_http_request *request; /* NULL: idle */
	uint64_t since_ns;
	size_t sent;
	char *buf;
	size_t got;
	size_t kept; /* of got: the bytes in buf; the rest of a body that is not checked went aside
		      */
	size_t head_len; /* 0: the head is not whole yet */
	bool checks;	 /* the body is to be checked, and so all of it is kept */
	struct bench_http_answer answer;
};

struct bench_http_load {
	const struct bench_http_set *set;
	struct sockaddr_in address;
	int epoll_fd;
	uint32_t count;
	uint32_t idle_count;
	uint32_t *idle;
	struct connection *connections;
	char *memory; /* of all answers */
	char *aside;  /* the memory for bodies that are not checked */
	size_t buf_bytes;
	/* of the run in progress */
	const struct bench_run_opts *opts;
	struct bench_result *result;
	struct bench_pace pace;
	uint64_t turn;
};

/* ---- Sets of requests. ---- */

int bench_http_set_open(struct bench_http_set *set, uint32_t count_max)
{
	*set = (struct bench_http_set){.count_max = count_max, .status = 200};
	buf_init(&set->heads, HEADS_BYTES_MAX);
	set->requests = calloc(count_max, sizeof(set->requests[0]));
	return set->requests ? 0 : -ENOMEM;
}

int bench_http_set_add(struct bench_http_set *set, const struct bench_signer *signer,
	const struct bench_http_line *line, uint64_t object_idx, const void *body)
{
	size_t offset = set->heads.len;

	CHECK(set->count < set->count_max);
	bench_http_put_head(signer, line, &set->heads);
	if (set->heads.failed)
		return -ENOBUFS;
	set->requests[set->count++] = (struct bench_http_request){
		.head_offset = (uint32_t)(offset / 8),
		.head_len = (uint32_t)(set->heads.len - offset),
		.object_idx = object_idx,
		.body = body,
	};
	buf_put(&set->heads, "       ", ALIGN_UP(set->heads.len, 8) - set->heads.len);
	return 0;
}

void bench_http_set_close(struct bench_http_set *set)
{
	buf_free(&set->heads);
	free(set->requests);
	*set = (struct bench_http_set){0};
}

/* ---- Connections. ---- */

static int parse_address(const char *text, struct sockaddr_in *ret_address)
{
	struct slice port = slice_str(text), host = slice_split(&port, ':');
	char name[64];
	uint64_t number;

	*ret_address = (struct sockaddr_in){.sin_family = AF_INET};
	if (slice_copy_str(host, name, sizeof(name)) || slice_to_u64(port, &number) ||
		number > UINT16_MAX || inet_pton(AF_INET, name, &ret_address->sin_addr) != 1)
		return -EINVAL;
	ret_address->sin_port = htons((uint16_t)number);
	return 0;
}

static int connect_to(const struct sockaddr_in *address)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1, ret;

	if (fd < 0)
		return -errno;
	if (connect(fd, (const struct sockaddr *)address, sizeof(*address)) ||
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one))) {
		ret = -errno;
		close(fd);
		return ret;
	}
	return fd;
}

static int connection_open(struct bench_http_load *load, struct connection *connection)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};

	connection->fd = connect_to(&load->address);
	connection->writes = false;
	if (connection->fd < 0)
		return connection->fd;
	return epoll_ctl(load->epoll_fd, EPOLL_CTL_ADD, connection->fd, &event) ? -errno : 0;
}

int bench_http_load_open(const char *address, uint32_t connections,
	const struct bench_http_set *set, struct bench_http_load **ret_load)
{
	struct bench_http_load *load = calloc(1, sizeof(*load));
	int ret = -ENOMEM;

	if (!load)
		return -ENOMEM;
	*load = (struct bench_http_load){.set = set, .count = connections, .epoll_fd = -1};
	load->buf_bytes = ALIGN_UP(HEAD_BYTES_MAX + set->answer_bytes_max, 4096);
	load->idle = calloc(connections, sizeof(load->idle[0]));
	load->connections = calloc(connections, sizeof(load->connections[0]));
	load->aside = malloc(ASIDE_BYTES);
	load->memory = mmap(NULL, load->buf_bytes * connections, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (!load->aside || !load->idle || !load->connections || load->memory == MAP_FAILED)
		goto failed;
	for (uint32_t i = 0; i < connections; i++)
		load->connections[i].fd = -1;
	load->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	ret = load->epoll_fd < 0 ? -errno : parse_address(address, &load->address);
	for (uint32_t i = 0; i < connections && !ret; i++) {
		load->connections[i].buf = load->memory + i * load->buf_bytes;
		load->idle[load->idle_count++] = connections - 1 - i;
		ret = connection_open(load, &load->connections[i]);
	}
	if (ret)
		goto failed;
	*ret_load = load;
	return 0;
failed:
	bench_http_load_close(load);
	return ret;
}

void bench_http_load_close(struct bench_http_load *load)
{
	if (!load)
		return;
	for (uint32_t i = 0; load->connections && i < load->count; i++) {
		if (load->connections[i].fd >= 0)
			close(load->connections[i].fd);
	}
	if (load->epoll_fd >= 0)
		close(load->epoll_fd);
	if (load->memory && load->memory != MAP_FAILED)
		munmap(load->memory, load->buf_bytes * load->count);
	free(load->aside);
	free(load->connections);
	free(load->idle);
	free(load);
}

/* ---- One operation. ---- */

static void finish(struct bench_http_load *load, struct connection *connection)
{
	hist_add(load->result->hist, clock_now_ns() - connection->since_ns);
	load->result->ops++;
	connection->request = NULL;
	load->idle[load->idle_count++] = (uint32_t)(connection - load->connections);
}

/* The connection cannot go on. When the server refuses a new one, this one stays unusable: no fd,
 * not idle. */
static void fail(struct bench_http_load *load, struct connection *connection, const char *why)
{
	bench_result_error(load->result, "%s", why);
	close(connection->fd);
	finish(load, connection);
	if (connection_open(load, connection)) {
		connection->fd = -1;
		load->idle_count--;
	}
}

static void want_writes(struct bench_http_load *load, struct connection *connection, bool writes)
{
	struct epoll_event event = {
		.events = writes ? EPOLLIN | EPOLLOUT : EPOLLIN, .data.ptr = connection};

	if (connection->writes == writes)
		return;
	connection->writes = writes;
	epoll_ctl(load->epoll_fd, EPOLL_CTL_MOD, connection->fd, &event);
}

static void send_more(struct bench_http_load *load, struct connection *connection)
{
	const struct bench_http_request *request = connection->request;
	const char *head = load->set->heads.data + 8 * (size_t)request->head_offset;
	size_t body_bytes = request->body ? load->set->body_bytes : 0;
	size_t all = request->head_len + body_bytes;

	while (connection->sent < all) {
		size_t sent = connection->sent;
		size_t body_sent = sent > request->head_len ? sent - request->head_len : 0;
		struct iovec iov[2] = {
			{(void *)(uintptr_t)(head + MIN(sent, request->head_len)),
				request->head_len - MIN(sent, request->head_len)},
			{body_bytes ? (char *)(uintptr_t)request->body + body_sent : NULL,
				body_bytes - body_sent},
		};
		struct msghdr message = {.msg_iov = iov, .msg_iovlen = body_bytes ? 2 : 1};
		ssize_t done = sendmsg(connection->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (done < 0 && errno == EAGAIN) {
			want_writes(load, connection, true);
			return;
		}
		if (done < 0) {
			fail(load, connection, "the connection broke while a request was sent");
			return;
		}
		connection->sent += (size_t)done;
	}
	want_writes(load, connection, false);
}

static void start(struct bench_http_load *load, uint64_t since_ns)
{
	const struct bench_http_set *set = load->set;
	struct connection *connection = &load->connections[load->idle[--load->idle_count]];
	uint32_t every = load->opts->verify_every;

	connection->checks = set->check && every && load->turn % every == 0;
	connection->request = &set->requests[bench_data_pick(load->turn++, set->count)];
	connection->checks &= !connection->request->body;
	connection->since_ns = since_ns;
	connection->sent = 0;
	connection->got = 0;
	connection->kept = 0;
	connection->head_len = 0;
	send_more(load, connection);
}

/* The answer is whole. */
static void answered(struct bench_http_load *load, struct connection *connection)
{
	const struct bench_http_set *set = load->set;
	const struct bench_http_answer *answer = &connection->answer;
	struct bench_result *result = load->result;
	const char *body = connection->buf + connection->head_len;
	uint64_t body_bytes = connection->got - connection->head_len;
	uint64_t object_idx = connection->request->object_idx;
	bool writes = connection->request->body != NULL;

	if (answer->status != set->status)
		bench_result_error(result, "status %u instead of %u: %.*s", answer->status,
			set->status, (int)MIN(connection->kept - connection->head_len, 100), body);
	else if (!writes && set->answer_bytes != UINT64_MAX &&
		 answer->body_bytes != set->answer_bytes)
		bench_result_error(result, "%llu bytes instead of %llu",
			(unsigned long long)answer->body_bytes,
			(unsigned long long)set->answer_bytes);
	else
		result->bytes += body_bytes + (writes ? set->body_bytes : 0);
	if (answer->closes) {
		fail(load, connection, "the server closed a connection that should stay open");
		return;
	}
	finish(load, connection);
	if (!connection->checks || answer->status != set->status)
		return;
	if (set->check(set->check_arg, object_idx, body, body_bytes)) {
		bench_result_error(result, "wrong bytes in the answer");
	} else {
		result->verified_ops++;
		result->verified_bytes += body_bytes;
	}
}

/* The head, and a body that is to be checked, go to the connection's own memory. Other bodies share
 * one place, which stays in the cache, as it does for a client that reuses its buffers. */
static ssize_t receive(struct bench_http_load *load, struct connection *connection)
{
	size_t room;
	ssize_t got;

	if (connection->head_len && !connection->checks)
		return recv(connection->fd, load->aside, ASIDE_BYTES, MSG_DONTWAIT);
	room = (connection->head_len ? load->buf_bytes : HEAD_BYTES_MAX) - connection->got;
	got = recv(connection->fd, connection->buf + connection->got, MIN(room, READ_BYTES_MAX),
		MSG_DONTWAIT);
	if (got > 0)
		connection->kept += (size_t)got;
	return got;
}

static void read_more(struct bench_http_load *load, struct connection *connection)
{
	ssize_t got = receive(load, connection);
	ptrdiff_t head_len;
	size_t want;

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (got <= 0 || !connection->request) {
		if (connection->request) {
			fail(load, connection, "the connection broke before the answer came");
		} else { /* the server closed an idle connection, or sent bytes without a request */
			close(connection->fd);
			if (connection_open(load, connection))
				connection->fd = -1; /* the next start fails and tries again */
		}
		return;
	}
	connection->got += (size_t)got;
	if (!connection->head_len) {
		head_len =
			bench_http_read_head(connection->buf, connection->got, &connection->answer);
		if (head_len == -EAGAIN && connection->got < HEAD_BYTES_MAX)
			return;
		if (head_len < 0) {
			fail(load, connection, "the answer's head cannot be parsed");
			return;
		}
		connection->head_len = (size_t)head_len;
	}
	want = connection->head_len +
	       (load->set->answers_without_body ? 0 : connection->answer.body_bytes);
	if (want > load->buf_bytes || connection->got > want) {
		fail(load, connection, "the answer is too long");
		return;
	}
	if (connection->got == want)
		answered(load, connection);
}

/* ---- A run. ---- */

/* Ready connections are served. One connection alone is read without asking whether it is ready, by
 * a load that never sleeps. */
static void turn(struct bench_http_load *load)
{
	struct epoll_event events[EVENTS_MAX];
	bool sleeps = load->opts->sleeps;
	int count;

	if (!sleeps && load->count == 1 && load->connections[0].request &&
		!load->connections[0].writes) {
		read_more(load, &load->connections[0]);
		return;
	}
	count = epoll_wait(load->epoll_fd, events, EVENTS_MAX, sleeps ? SLEEP_MS_MAX : 0);
	for (int i = 0; i < count; i++) {
		struct connection *connection = events[i].data.ptr;

		if (events[i].events & EPOLLOUT && connection->request)
			send_more(load, connection);
		if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR) && connection->fd >= 0)
			read_more(load, connection);
	}
}

static uint32_t in_flight(const struct bench_http_load *load)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < load->count; i++)
		count += load->connections[i].request != NULL;
	return count;
}

static void give_up(struct bench_http_load *load)
{
	for (uint32_t i = 0; i < load->count; i++) {
		if (load->connections[i].request)
			fail(load, &load->connections[i], "no answer in 30 s");
	}
}

uint64_t bench_http_load_run(struct bench_http_load *load, const struct bench_run_opts *opts,
	struct bench_result *result)
{
	uint64_t begin_ns = clock_now_ns(), now_ns = begin_ns, since_ns;

	load->opts = opts;
	load->result = result;
	load->turn = opts->turn;
	bench_pace_start(&load->pace, opts, begin_ns);
	while (true) {
		while (load->idle_count && bench_pace_take(&load->pace, clock_now_ns(), &since_ns))
			start(load, since_ns);
		turn(load);
		now_ns = clock_now_ns();
		if (opts->stop && atomic_load_explicit(opts->stop, memory_order_relaxed))
			load->pace.left = 0;
		if (!bench_pace_ended(&load->pace, now_ns))
			continue;
		if (!in_flight(load))
			break;
		if (now_ns > load->pace.end_ns + ANSWER_NS_MAX)
			give_up(load);
	}
	result->elapsed_ns += now_ns - begin_ns;
	return load->turn;
}

/* ---- One request by itself. ---- */

static int once_receive(int fd, char *buf, size_t buf_bytes, size_t *ret_body_bytes)
{
	struct pollfd ready = {.fd = fd, .events = POLLIN};
	struct bench_http_answer answer = {0};
	ptrdiff_t head_len = -EAGAIN;
	size_t len = 0;

	while (head_len < 0 || len < (size_t)head_len + answer.body_bytes) {
		ssize_t got;

		if (len + 1 >= buf_bytes)
			return -EMSGSIZE;
		if (poll(&ready, 1, ONCE_TIMEOUT_MS) != 1)
			return -ETIMEDOUT;
		got = recv(fd, buf + len, buf_bytes - 1 - len, 0);
		if (got <= 0)
			return got ? -errno : -ECONNRESET;
		len += (size_t)got;
		if (head_len < 0)
			head_len = bench_http_read_head(buf, len, &answer);
		if (head_len < 0 && head_len != -EAGAIN)
			return (int)head_len;
	}
	memmove(buf, buf + head_len, answer.body_bytes);
	buf[answer.body_bytes] = '\0';
	*ret_body_bytes = answer.body_bytes;
	return (int)answer.status;
}

int bench_http_once(const char *address, struct slice request, char *buf, size_t buf_bytes,
	size_t *ret_body_bytes)
{
	struct sockaddr_in to;
	int fd, ret = parse_address(address, &to);

	if (ret)
		return ret;
	fd = connect_to(&to);
	if (fd < 0)
		return fd;
	if (send(fd, request.data, request.len, MSG_NOSIGNAL) != (ssize_t)request.len)
		ret = -EIO;
	else
		ret = once_receive(fd, buf, buf_bytes, ret_body_bytes);
	close(fd);
	return ret;
}
