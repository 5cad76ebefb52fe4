/* bench/nginx.c: writes nginx's files and configuration, and runs it. */
#include "bench/nginx.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define START_MS_MAX 5000
#define TRY_MS	     10

static const char CONFIG[] =
	"worker_processes 1;\n"
	"daemon off;\n"
	"master_process off;\n"
	"error_log %1$s/nginx.log warn;\n"
	"pid %1$s/nginx.pid;\n"
	"events { worker_connections 1024; use epoll; }\n"
	"http {\n"
	"	access_log off;\n"
	"	sendfile off;\n"
	"	output_buffers 2 512k;\n"
	"	open_file_cache max=4096 inactive=3600s;\n"
	"	open_file_cache_valid 3600s;\n"
	"	keepalive_timeout 3600s;\n"
	"	keepalive_requests 1000000000;\n"
	"	client_body_temp_path %1$s/t1; proxy_temp_path %1$s/t2;\n"
	"	fastcgi_temp_path %1$s/t3; uwsgi_temp_path %1$s/t4; scgi_temp_path %1$s/t5;\n"
	"	server { listen %2$s; root %1$s/files; }\n"
	"}\n";

static int write_file(const char *path, const void *data, size_t bytes)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	int ret = fd < 0 ? -errno : 0;

	if (!ret && write(fd, data, bytes) != (ssize_t)bytes)
		ret = -EIO;
	if (fd >= 0)
		close(fd);
	return ret;
}

static int write_files(
	const char *folder, const struct bench_data *sets[], size_t set_count, const char *address)
{
	char path[4352], key[BENCH_KEY_BYTES], config[16 * KIB];
	int len, ret;

	snprintf(path, sizeof(path), "%s/files", folder);
	if (mkdir(folder, 0755) || mkdir(path, 0755))
		return -errno;
	for (size_t s = 0; s < set_count; s++) {
		for (uint32_t i = 0; i < sets[s]->count; i++) {
			snprintf(path, sizeof(path), "%s/files/%s", folder,
				bench_data_key(sets[s], i, key));
			ret = write_file(
				path, sets[s]->pool + bench_data_offset(i), sets[s]->bytes);
			if (ret)
				return ret;
		}
	}
	len = snprintf(config, sizeof(config), CONFIG, folder, address);
	if (len < 0 || (size_t)len >= sizeof(config))
		return -ENAMETOOLONG;
	snprintf(path, sizeof(path), "%s/nginx.conf", folder);
	return write_file(path, config, (size_t)len);
}

/* nginx prints nothing when it listens, so it is polled until it answers or has ended. */
static int await(struct bench_nginx *nginx, uint16_t port)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
		.sin_port = htons(port)};
	struct pollfd ended = {.events = POLLIN};
	int ret = -ETIMEDOUT;

	ended.fd = (int)syscall(SYS_pidfd_open, nginx->child.pid, 0);
	for (int ms = 0; ms < START_MS_MAX && ret == -ETIMEDOUT; ms += TRY_MS) {
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

		if (fd >= 0 && !connect(fd, (struct sockaddr *)&address, sizeof(address)))
			ret = 0;
		else if (poll(&ended, 1, TRY_MS) == 1)
			ret = -ENOENT;
		if (fd >= 0)
			close(fd);
	}
	if (ended.fd >= 0)
		close(ended.fd);
	return ret;
}

int bench_nginx_open(const char *folder, const struct bench_cpus *cpus,
	const struct bench_data *sets[], size_t set_count, struct bench_nginx *ret_nginx)
{
	struct bench_nginx nginx = {0};
	char config[4352], log[4352];
	const char *program = access("/usr/sbin/nginx", X_OK) ? "nginx" : "/usr/sbin/nginx";
	const char *argv[] = {program, "-c", config, "-p", folder, NULL};
	const struct bench_child_opts child = {.argv = argv, .cpu = cpus->server, .log_path = log};
	int port = bench_port_find(), ret;

	if (port < 0)
		return port;
	snprintf(nginx.address, sizeof(nginx.address), "127.0.0.1:%d", port);
	snprintf(config, sizeof(config), "%s/nginx.conf", folder);
	snprintf(log, sizeof(log), "%s/nginx.err", folder);
	ret = write_files(folder, sets, set_count, nginx.address);
	if (!ret)
		ret = bench_child_start(&child, &nginx.child);
	if (!ret)
		ret = await(&nginx, (uint16_t)port);
	if (ret) {
		bench_child_stop(&nginx.child);
		return ret;
	}
	*ret_nginx = nginx;
	return 0;
}

void bench_nginx_close(struct bench_nginx *nginx)
{
	bench_child_stop(&nginx->child);
}
