/* bench/server.c: starts the server under measurement and reads its counters. */
#include "bench/server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "nebulaio/nebulaio.h"
#include "bench/http_load.h"
#include "codec/codec.h"

#define METRICS_BYTES_MAX (1 * MIB)
#define ARGS_MAX	  (32 + 2 * BENCH_SERVER_SETS_MAX)
#define DEFAULT_REGION	  "us-east-1"
#define SETTLE_NS_MAX	  (600 * NS_PER_S)
#define SETTLE_POLL_NS	  (50 * NS_PER_MS)
#define SIMULATED	  "simulated"

static void random_text(char *text, size_t bytes)
{
	uint8_t random[32];

	random_fill(random, sizeof(random));
	hex_encode(random, MIN(sizeof(random), (bytes - 1) / 2), text);
	text[(bytes - 1) / 2 * 2] = '\0';
}

/* The text behind " name=" in the ready line. */
static void ready_field(const char *line, const char *name, char *buf, size_t buf_bytes)
{
	const char *at = strstr(line, name);

	buf[0] = '\0';
	if (at)
		snprintf(buf, buf_bytes, "%.*s", (int)strcspn(at + strlen(name), " "),
			at + strlen(name));
}

/* The last lines of a log, which say why a program did not start. */
static void print_log_end(const char *path)
{
	char text[64 * KIB];
	int len = bench_file_read(path, text, sizeof(text));

	if (len > 0)
		fprintf(stderr, "%s", len > 2000 ? text + len - 2000 : text);
}

/* A second tenant beside the root. */
static int write_accounts(const char *path, struct bench_server *server)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0)
		return -errno;
	random_text(server->noisy_access_key, sizeof(server->noisy_access_key));
	random_text(server->noisy_secret_key, sizeof(server->noisy_secret_key));
	dprintf(fd,
		"accounts:\n"
		"  - {account_id: \"111111111111\", id: bench-noisy, display_name: Noisy,\n"
		"     email: noisy@example.com, access_key: %s, secret_key: %s}\n",
		server->noisy_access_key, server->noisy_secret_key);
	return close(fd) ? -errno : 0;
}

static int start_own(const struct bench_opts *opts, const struct bench_cpus *cpus,
	const char *folder, struct bench_server *server)
{
	char data[4096], log[4096], accounts[4096], rdma[32], admin[96], user[64], password[96],
		line[1024];
	const char *argv[ARGS_MAX + 1] = {opts->program ? opts->program : "/proc/self/exe", "serve",
		"--data", data, "--http", "127.0.0.1:0", "--rdma", rdma, "--log-level", "warn",
		"--set", "rdma.device_name=" SIMULATED, "--set", "cpu.reactors=1", "--set", admin,
		"--set", "console.address=", "--set", "memory.buckets_bytes=16MiB", "--accounts",
		accounts, "--set", "rdma.sessions_max=1024"};
	const char *env[] = {user, password, NULL};
	const struct bench_child_opts child = {
		.argv = argv, .env = env, .cpu = cpus->server, .log_path = log};
	size_t count = 24;
	int ret;

	snprintf(data, sizeof(data), "%s/data", folder);
	snprintf(log, sizeof(log), "%s/server.log", folder);
	snprintf(accounts, sizeof(accounts), "%s/accounts.yaml", folder);
	ret = write_accounts(accounts, server);
	if (ret) {
		fprintf(stderr, "nebulaio bench: %s: %s\n", accounts, strerror(-ret));
		return ret;
	}
	snprintf(rdma, sizeof(rdma), "127.0.0.1:%d", bench_port_find());
	snprintf(server->metrics_address, sizeof(server->metrics_address), "127.0.0.1:%d",
		bench_port_find());
	snprintf(admin, sizeof(admin), "admin.address=%s", server->metrics_address);
	random_text(server->access_key, sizeof(server->access_key));
	random_text(server->secret_key, sizeof(server->secret_key));
	snprintf(user, sizeof(user), "NEBULAIO_ROOT_USER=%s", server->access_key);
	snprintf(password, sizeof(password), "NEBULAIO_ROOT_PASSWORD=%s", server->secret_key);
	for (uint32_t i = 0; i < opts->server_set_count; i++) {
		argv[count++] = "--set";
		argv[count++] = opts->server_sets[i];
	}
	ret = bench_child_start(&child, &server->child);
	if (!ret)
		ret = bench_child_await(&server->child, "ready", line, sizeof(line));
	if (ret) {
		fprintf(stderr, "nebulaio bench: the server did not start: %s\n", strerror(-ret));
		print_log_end(log);
		return ret;
	}
	ready_field(line, " http=", server->http_address, sizeof(server->http_address));
	ready_field(line, " rdma=", server->rdma_address, sizeof(server->rdma_address));
	server->pid = server->child.pid;
	server->use_access_key = server->access_key;
	server->use_secret_key = server->secret_key;
	server->device_name = SIMULATED;
	snprintf(server->endpoints, sizeof(server->endpoints), "%s%s http://%s",
		server->rdma_address[0] ? "rdma://" : "", server->rdma_address,
		server->http_address);
	return 0;
}

/* "rdma://a:1,http://b:2": the first of each kind. */
static void split_endpoints(const char *endpoints, struct bench_server *server)
{
	struct slice rest = slice_str(endpoints);

	while (rest.len) {
		struct slice one = slice_trim(slice_split(&rest, ','));

		while (one.len && one.data[one.len - 1] == '/')
			one.len--;
		if (slice_starts(one, SLICE("rdma://")) && !server->rdma_address[0])
			slice_copy_str(slice_from(one, 7), server->rdma_address,
				sizeof(server->rdma_address));
		if (slice_starts(one, SLICE("http://")) && !server->http_address[0])
			slice_copy_str(slice_from(one, 7), server->http_address,
				sizeof(server->http_address));
	}
}

/* The device that a client would choose; without one, the RDMA rows report the reason. */
static void find_device(struct bench_server *server)
{
	const struct neb_options options = {.endpoints = server->endpoints,
		.access_key = server->use_access_key ? server->use_access_key : "",
		.secret_key = server->use_secret_key ? server->use_secret_key : "",
		.pool_bytes = MIB};
	struct neb_client *client = NULL;

	server->device_name = SIMULATED;
	if (neb_client_open(&options, &client))
		return;
	snprintf(server->found_name, sizeof(server->found_name), "%s", neb_client_device(client));
	if (server->found_name[0])
		server->device_name = server->found_name;
	neb_client_close(client);
}

int bench_server_open(const struct bench_opts *opts, const struct bench_cpus *cpus,
	const char *folder, struct bench_server *ret_server)
{
	struct bench_server *server = ret_server;
	int ret = 0;

	*server = (struct bench_server){
		.region = opts->region ? opts->region : DEFAULT_REGION,
		.use_access_key = opts->access_key,
		.use_secret_key = opts->secret_key,
		.device_name = opts->device_name,
		.pid = opts->server_pid,
	};
	if (!opts->endpoints) {
		ret = start_own(opts, cpus, folder, server);
	} else {
		snprintf(server->endpoints, sizeof(server->endpoints), "%s", opts->endpoints);
		split_endpoints(opts->endpoints, server);
		if (opts->metrics_address)
			snprintf(server->metrics_address, sizeof(server->metrics_address), "%s",
				opts->metrics_address);
		if (!server->device_name)
			find_device(server);
	}
	server->rdma_is_simulated = !strcmp(server->device_name, SIMULATED);
	if (ret)
		bench_server_close(server);
	return ret;
}

void bench_server_close(struct bench_server *server)
{
	bench_child_stop(&server->child);
	secret_wipe(server->secret_key, sizeof(server->secret_key));
}

bool bench_metric_sum(const char *text, const char *name, double *ret_sum)
{
	size_t len = strlen(name);
	bool found = false;
	double sum = 0;

	for (const char *line = text; line && *line; line = strchr(line, '\n')) {
		if (*line == '\n' && !*++line)
			break;
		if (strncmp(line, name, len) || (line[len] != ' ' && line[len] != '{'))
			continue;
		line += len;
		if (*line == '{')
			line += strcspn(line, "}\n");
		line += *line == '}';
		sum += strtod(line, NULL);
		found = true;
	}
	if (found)
		*ret_sum = sum;
	return found;
}

/* The text of the server's metrics; NULL: it has none, or does not answer. */
static const char *metrics_read(const struct bench_server *server)
{
	static char text[METRICS_BYTES_MAX];
	char request[256];
	size_t bytes;
	int len;

	if (!server->metrics_address[0])
		return NULL;
	len = snprintf(request, sizeof(request),
		"GET /metrics HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n",
		server->metrics_address);
	return bench_http_once(server->metrics_address, slice_of(request, (size_t)len), text,
		       sizeof(text), &bytes) == 200
		       ? text
		       : NULL;
}

int bench_server_settle(const struct bench_server *server)
{
	const uint64_t until_ns = clock_now_ns() + SETTLE_NS_MAX;
	double jobs = 0;

	while (bench_metric_sum(metrics_read(server), "nebulaio_store_index_jobs", &jobs) &&
		jobs > 0) {
		if (clock_now_ns() >= until_ns)
			return -ETIMEDOUT;
		nanosleep(&(struct timespec){.tv_nsec = SETTLE_POLL_NS}, NULL);
	}
	return 0;
}

void bench_server_counts(const struct bench_server *server, struct bench_counts *ret_counts)
{
	const char *text = metrics_read(server);
	struct bench_counts counts = {0};

	*ret_counts = counts;
	if (!text)
		return;
	counts.known =
		bench_metric_sum(text, "nebulaio_copied_bytes_total", &counts.copied_bytes) &&
		bench_metric_sum(text, "nebulaio_disk_flushes_total", &counts.flushes);
	bench_metric_sum(text, "nebulaio_rdma_simulated_wire_bytes_total", &counts.wire_bytes);
	bench_metric_sum(text, "nebulaio_disk_read_bytes_total", &counts.disk_read_bytes);
	*ret_counts = counts;
}
