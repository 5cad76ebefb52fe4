/* bench/coded.c: see coded.h. */
#include "bench/coded.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "codec/codec.h"

/* Behind the "=" of its set. */
static const char *secret_path(const struct bench_coded *coded)
{
	return strchr(coded->secret_set, '=') + 1;
}

static int secret_write(const char *path)
{
	char text[2 * 32 + 1];
	uint8_t random[32];
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	int ret = fd < 0 ? -errno : 0;

	random_fill(random, sizeof(random));
	hex_encode(random, sizeof(random), text);
	if (!ret && write(fd, text, sizeof(text) - 1) != (ssize_t)sizeof(text) - 1)
		ret = -EIO;
	if (fd >= 0)
		close(fd);
	secret_wipe(text, sizeof(text));
	return ret;
}

/* One process that exports one volume, as a host of its own would. */
static int export_start(
	struct bench_coded *coded, const struct bench_cpus *cpus, const char *folder, uint32_t idx)
{
	const char *program = coded->remote.opts.program;
	char address[32], volume[4400], log[4400], line[512];
	const char *argv[] = {program ? program : "/proc/self/exe", "volume", "serve",
		"--log-level", "warn", "--secret-file", secret_path(coded), "--listen", address,
		volume, NULL};
	const char *env[] = {NULL};
	const struct bench_child_opts child = {
		.argv = argv, .env = env, .cpu = cpus->server, .log_path = log};
	char *volumes = coded->remote.volumes;
	size_t len = strlen(volumes);
	int ret;

	snprintf(address, sizeof(address), "127.0.0.1:%d", bench_port_find());
	snprintf(volume, sizeof(volume), "v=%s/export%u", folder, idx);
	snprintf(log, sizeof(log), "%s/export%u.log", folder, idx);
	ret = bench_child_start(&child, &coded->exports[idx]);
	if (!ret)
		ret = bench_child_await(&coded->exports[idx], "ready", line, sizeof(line));
	snprintf(volumes + len, sizeof(coded->remote.volumes) - len, "%srdma://%s/v",
		len ? "," : "storage.volumes=", address);
	return ret;
}

/* Opens the store with its own sets and those of the options. */
static void store_open(struct bench_coded_store *store, const struct bench_cpus *cpus,
	const char *folder, const char *name)
{
	struct bench_opts *opts = &store->opts;
	char path[4400];

	opts->server_sets[opts->server_set_count++] = "storage.erasure.data=4";
	opts->server_sets[opts->server_set_count++] = "storage.erasure.parity=2";
	opts->server_sets[opts->server_set_count++] = "memory.cache_bytes=0";
	opts->server_sets[opts->server_set_count++] = store->volumes;
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	store->error =
		mkdir(path, 0755) ? -errno : bench_target_open(&store->target, opts, cpus, path);
}

int bench_coded_open(const struct bench_opts *opts, const struct bench_cpus *cpus,
	const char *folder, struct bench_coded **ret_coded)
{
	struct bench_coded *coded = calloc(1, sizeof(*coded));
	char *local;
	int ret;

	if (!coded)
		return -ENOMEM;
	*ret_coded = coded;
	coded->local.opts = coded->remote.opts = *opts;
	if (opts->server_set_count + BENCH_CODED_SETS > BENCH_SERVER_SETS_MAX) {
		coded->local.error = coded->remote.error = -E2BIG;
		return 0;
	}
	local = coded->local.volumes;
	for (uint32_t i = 0; i < BENCH_CODED_VOLUMES; i++) {
		size_t len = strlen(local);

		snprintf(local + len, sizeof(coded->local.volumes) - len, "%s%s/local%u",
			len ? "," : "storage.volumes=", folder, i);
	}
	store_open(&coded->local, cpus, folder, "coded-local");
	snprintf(coded->secret_set, sizeof(coded->secret_set),
		"storage.remote.secret_file=%s/secret", folder);
	ret = secret_write(secret_path(coded));
	for (uint32_t i = 0; i < BENCH_CODED_VOLUMES && !ret; i++)
		ret = export_start(coded, cpus, folder, i);
	coded->remote.error = ret;
	if (ret)
		return 0;
	coded->remote.opts.server_sets[coded->remote.opts.server_set_count++] = coded->secret_set;
	store_open(&coded->remote, cpus, folder, "coded-remote");
	return 0;
}

void bench_coded_close(struct bench_coded *coded)
{
	if (!coded)
		return;
	bench_target_close(&coded->local.target);
	bench_target_close(&coded->remote.target);
	for (uint32_t i = 0; i < BENCH_CODED_VOLUMES; i++)
		bench_child_stop(&coded->exports[i]);
	free(coded);
}
