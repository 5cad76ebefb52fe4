/* bench/clients.c: processes that load a server side by side. Their results lie in memory that they
 * share with the process that started them. A byte through a socket pair starts a slice, and a byte
 * back reports its end. */
#include "bench/clients.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/plan.h"

struct shared {
	struct bench_run_opts run; /* of the slice */
	struct bench_result result;
	struct hist hist;
	struct bench_usage usage;
	uint64_t turn; /* after it */
	int error;     /* of opening */
};

struct bench_clients {
	struct shared *shared; /* of each */
	pid_t pids[BENCH_SESSION_COUNT];
	int sockets[BENCH_SESSION_COUNT];
	uint32_t count;
};

/* ---- A process. ---- */

struct child {
	struct shared *shared;
	int socket;
	struct bench_client_opts opts;
	struct bench_client_load *load;
};

static void child_slices(struct child *child)
{
	struct shared *shared = child->shared;
	char byte = 0;

	while (write(child->socket, &byte, 1) == 1 && read(child->socket, &byte, 1) == 1) {
		hist_reset(&shared->hist);
		shared->result = (struct bench_result){.hist = &shared->hist};
		shared->turn = bench_client_load_run(child->load, &shared->run, &shared->result);
		bench_usage_self(&shared->usage);
	}
}

/* Ends by _exit, so that it does not close what the other process has open. */
static _Noreturn void child_main(struct child *child,
	int (*client_open)(void *arg, struct neb_client **ret_client), void *arg, pid_t parent)
{
	int ret = prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent ? -ESRCH : 0;

	if (!ret)
		ret = client_open(arg, &child->opts.client);
	if (!ret)
		ret = bench_client_load_open(&child->opts, &child->load);
	child->shared->error = ret;
	if (ret)
		fprintf(stderr, "nebulaio bench: a client process: %s\n", strerror(-ret));
	else
		child_slices(child);
	bench_client_load_close(child->load);
	neb_client_close(child->opts.client);
	_exit(ret != 0);
}

/* ---- The one that starts them. ---- */

static int child_start(struct bench_clients *clients, const struct bench_client_opts *opts,
	int (*client_open)(void *arg, struct neb_client **ret_client), void *arg)
{
	const uint32_t idx = clients->count;
	struct child child = {.shared = &clients->shared[idx], .opts = *opts};
	pid_t parent = getpid();
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
		return -errno;
	child.opts.client = NULL;
	child.opts.depth = opts->depth / BENCH_SESSION_COUNT;
	child.socket = ends[1];
	fflush(NULL);
	clients->pids[idx] = fork();
	if (clients->pids[idx] == 0) {
		close(ends[0]);
		child_main(&child, client_open, arg, parent);
	}
	close(ends[1]);
	if (clients->pids[idx] < 0) {
		close(ends[0]);
		return -errno;
	}
	clients->sockets[idx] = ends[0];
	clients->count++;
	return 0;
}

/* False: it has ended. */
static bool child_await(const struct bench_clients *clients, uint32_t idx)
{
	char byte;
	ssize_t got;

	do
		got = read(clients->sockets[idx], &byte, 1);
	while (got < 0 && errno == EINTR);
	return got == 1;
}

int bench_clients_open(const struct bench_client_opts *opts,
	int (*client_open)(void *arg, struct neb_client **ret_client), void *arg,
	struct bench_clients **ret_clients)
{
	struct bench_clients *clients = calloc(1, sizeof(*clients));
	int ret = 0;

	CHECK(opts->depth >= BENCH_SESSION_COUNT);
	if (!clients)
		return -ENOMEM;
	clients->shared = mmap(NULL, BENCH_SESSION_COUNT * sizeof(*clients->shared),
		PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (clients->shared == MAP_FAILED) {
		free(clients);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < BENCH_SESSION_COUNT && !ret; i++)
		ret = child_start(clients, opts, client_open, arg);
	for (uint32_t i = 0; i < clients->count; i++) {
		if (!child_await(clients, i) && !ret)
			ret = clients->shared[i].error ? clients->shared[i].error : -EIO;
	}
	if (ret) {
		bench_clients_close(clients);
		return ret;
	}
	*ret_clients = clients;
	return 0;
}

static void result_add(struct bench_result *into, const struct bench_result *from)
{
	hist_merge(into->hist, from->hist);
	into->ops += from->ops;
	into->bytes += from->bytes;
	into->verified_ops += from->verified_ops;
	into->verified_bytes += from->verified_bytes;
	if (from->errors && !into->errors)
		memcpy(into->first_error, from->first_error, sizeof(into->first_error));
	into->errors += from->errors;
}

uint64_t bench_clients_run(struct bench_clients *clients, const struct bench_run_opts *opts,
	struct bench_result *result)
{
	uint64_t begin_ns = clock_now_ns(), turn = opts->turn;

	for (uint32_t i = 0; i < clients->count; i++) {
		clients->shared[i].run = *opts;
		clients->shared[i].run.rate = opts->rate / clients->count;
		clients->shared[i].run.ops_max =
			opts->ops_max ? MAX(opts->ops_max / clients->count, 1u) : 0;
		if (write(clients->sockets[i], "", 1) != 1)
			bench_result_error(result, "a client process has ended");
	}
	for (uint32_t i = 0; i < clients->count; i++) {
		if (child_await(clients, i)) {
			result_add(result, &clients->shared[i].result);
			turn = MAX(turn, clients->shared[i].turn);
		} else {
			bench_result_error(result, "a client process has ended");
		}
	}
	result->elapsed_ns += clock_now_ns() - begin_ns;
	return turn;
}

void bench_clients_usage(const struct bench_clients *clients, struct bench_usage *ret_usage)
{
	*ret_usage = (struct bench_usage){0};
	for (uint32_t i = 0; i < clients->count; i++) {
		ret_usage->cpu_ns += clients->shared[i].usage.cpu_ns;
		ret_usage->switches += clients->shared[i].usage.switches;
	}
}

void bench_clients_count(const struct bench_clients *clients, struct bench_counter *counter)
{
	for (uint32_t i = 0; i < clients->count; i++)
		bench_counter_add(counter, clients->pids[i], BENCH_PROCESSOR_EVENTS);
}

void bench_clients_close(struct bench_clients *clients)
{
	if (!clients)
		return;
	/* Processes that were started later have these sockets, too: closing them ends nothing. */
	for (uint32_t i = 0; i < clients->count; i++) {
		shutdown(clients->sockets[i], SHUT_RDWR);
		close(clients->sockets[i]);
	}
	for (uint32_t i = 0; i < clients->count; i++) {
		while (waitpid(clients->pids[i], NULL, 0) < 0 && errno == EINTR)
			;
	}
	munmap(clients->shared, BENCH_SESSION_COUNT * sizeof(*clients->shared));
	free(clients);
}
