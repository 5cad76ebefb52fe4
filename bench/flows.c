/* bench/flows.c: two processes of `nebulaio flow` with a stream between them. */
#include "bench/flows.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "bench/child.h"
#include "bench/plan.h"

#define SUMMARY_BYTES (64 * KIB)
#define PATH_BYTES    4200

/* Random bytes, once. */
static int source_make(const char *path)
{
	uint8_t *chunk;
	int fd, ret = 0;

	if (access(path, F_OK) == 0)
		return 0;
	chunk = malloc(MIB);
	if (!chunk)
		return -ENOMEM;
	random_fill(chunk, MIB);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		ret = -errno;
	for (uint64_t at = 0; at < BENCH_FLOW_BYTES && !ret; at += MIB) {
		if (write(fd, chunk, MIB) != (ssize_t)MIB)
			ret = errno ? -errno : -ENOSPC;
	}
	if (fd >= 0)
		close(fd);
	free(chunk);
	return ret;
}

int bench_flow_took(const char *summary, const char *what, struct hist *took)
{
	char name[40];
	const char *at;
	char *end;

	snprintf(name, sizeof(name), "\"%s\":{", what);
	at = strstr(summary, name);
	at = at ? strstr(at, "\"histogram_ns\":[") : NULL;
	if (!at)
		return -EPROTO;
	for (at += strlen("\"histogram_ns\":["); *at == '[' || *at == ','; at = end + 1) {
		uint64_t value;

		at += *at == ',';
		value = strtoull(at + 1, &end, 10);
		if (*end != ',')
			return -EPROTO;
		hist_add_many(took, value, (uint32_t)strtoul(end + 1, &end, 10));
		if (*end != ']')
			return -EPROTO;
	}
	return 0;
}

static double number_of(const char *summary, const char *name)
{
	const char *at = strstr(summary, name);

	return at ? strtod(at + strlen(name), NULL) : 0;
}

static int flow_start(const char *program, const char *from, const char *to, int cpu,
	struct bench_child *ret_child)
{
	char sync[40];
	const char *argv[] = {program, "flow", "--from", from, "--to", to, "--quiet", "--json",
		"--device", "simulated", "--force", strncmp(to, "disk:", 5) ? NULL : sync, NULL};
	const struct bench_child_opts opts = {.argv = argv, .cpu = cpu};

	snprintf(
		sync, sizeof(sync), "--sync-bytes=%llu", (unsigned long long)BENCH_FLOW_SYNC_BYTES);
	return bench_child_start(&opts, ret_child);
}

/* Waits for both processes and reads their summaries. */
static int flows_await(struct bench_child *receiver, struct bench_child *sender, bool peer,
	struct bench_flow_result *result)
{
	char *summary = malloc(SUMMARY_BYTES);
	uint64_t bytes = 0;
	int ret = summary ? 0 : -ENOMEM;

	if (!ret)
		ret = bench_child_await(sender, "{", summary, SUMMARY_BYTES);
	if (!ret && peer)
		ret = bench_flow_took(summary, "peer", result->took);
	if (!ret)
		ret = bench_child_await(receiver, "{", summary, SUMMARY_BYTES);
	if (!ret && !peer)
		ret = bench_flow_took(summary, "durable", result->took);
	if (!ret) {
		bytes = (uint64_t)number_of(summary, "\"acknowledged\":");
		ret = bytes == BENCH_FLOW_BYTES ? 0 : -EIO;
	}
	if (!ret) {
		result->bytes += bytes;
		result->elapsed_ns += (uint64_t)(number_of(summary, "\"seconds\":") * 1e9);
		result->cpu_ns += (uint64_t)(number_of(summary, "\"cpu_seconds\":") * 1e9);
	}
	free(summary);
	return ret;
}

int bench_flow_run(const char *program, const struct bench_cpus *cpus, const char *folder,
	bool peer, struct bench_flow_result *result)
{
	char source[PATH_BYTES], from[PATH_BYTES + 8], to[PATH_BYTES + 8], line[256], *port;
	struct bench_child receiver = {0}, sender = {0};
	int ret;

	program = program ? program : "/proc/self/exe";
	snprintf(source, sizeof(source), "%s/flow-in", folder);
	snprintf(from, sizeof(from), "disk:%s", source);
	snprintf(to, sizeof(to), "disk:%s/flow-out", folder);
	ret = source_make(source);
	if (!ret)
		ret = flow_start(program, "rdma:127.0.0.1:0,listen", to, cpus->server, &receiver);
	if (!ret)
		ret = bench_child_await(&receiver, "listening on", line, sizeof(line));
	if (!ret) {
		port = strrchr(line, ':');
		snprintf(to, sizeof(to), "rdma:127.0.0.1:%d", port ? atoi(port + 1) : 0);
		ret = flow_start(program, from, to, cpus->client, &sender);
	}
	if (!ret)
		ret = flows_await(&receiver, &sender, peer, result);
	bench_child_stop(&sender);
	bench_child_stop(&receiver);
	return ret;
}
