/* tests/unit/client/program.c: see program.h. */
#include "program.h"

#include "../unit.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../own.h"
#include "base/base.h"
#include "rig.h"

uint16_t program_port_free(void)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct prng prng;
	int bound = -1;

	prng_seed(&prng, clock_now_ns() ^ (uint64_t)getpid());
	while (bound) {
		int fd = socket(AF_INET, SOCK_STREAM, 0);

		assert_true(fd >= 0);
		address.sin_port = htons((uint16_t)(10000 + prng_below(&prng, 22000)));
		bound = bind(fd, (struct sockaddr *)&address, sizeof(address));
		close(fd);
	}
	return ntohs(address.sin_port);
}

static void program_exec(const struct program *child, int out)
{
	const char *program = getenv("PROGRAM_UNDER_TEST");
	char multicast[64];

	snprintf(multicast, sizeof(multicast), "fan_out.multicast=%s", child->multicast);
	dup2(out, STDOUT_FILENO);
	setenv("NEBULAIO_ROOT_USER", RIG_ACCESS_KEY, 1);
	setenv("NEBULAIO_ROOT_PASSWORD", RIG_SECRET_KEY, 1);
	execl(program, program, "serve", "--data", child->dir, "--http", child->http + 7, "--rdma",
		child->rdma + 7, "--set", "admin.address=", "--set", "console.address=", "--set",
		multicast, "--set", "fan_out.patience_s=60", NULL);
	_exit(127);
}

int program_open(void **state)
{
	struct program *child = calloc(1, sizeof(*child));
	char text[4096] = "";
	size_t len = 0;
	int out[2];

	if (!getenv("PROGRAM_UNDER_TEST"))
		return -1;
	snprintf(child->dir, sizeof(child->dir), "/tmp/nebulaio-client-XXXXXX");
	assert_non_null(mkdtemp(child->dir));
	snprintf(child->rdma, sizeof(child->rdma), "rdma://127.0.0.1:%u", program_port_free());
	snprintf(child->http, sizeof(child->http), "http://127.0.0.1:%u", program_port_free());
	own_group(0, child->multicast);
	snprintf(child->both, sizeof(child->both), "%s,%s", child->rdma, child->http);
	assert_int_equal(pipe(out), 0);
	fflush(NULL);
	child->pid = fork();
	if (child->pid == 0)
		program_exec(child, out[1]);
	close(out[1]);
	while (!strstr(text, "ready ")) {
		ssize_t got = read(out[0], text + len, sizeof(text) - 1 - len);

		assert_true(got > 0);
		len += (size_t)got;
	}
	close(out[0]);
	*state = child;
	return 0;
}

int program_close(void **state)
{
	struct program *child = *state;
	char command[128];
	int status;

	assert_int_equal(kill(child->pid, SIGTERM), 0);
	assert_int_equal(waitpid(child->pid, &status, 0), child->pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	snprintf(command, sizeof(command), "rm -rf %s", child->dir);
	assert_int_equal(system(command), 0);
	free(child);
	return 0;
}

void program_stop(const struct program *child)
{
	int status;

	assert_int_equal(kill(child->pid, SIGSTOP), 0);
	assert_int_equal(waitpid(child->pid, &status, WUNTRACED), child->pid);
	assert_true(WIFSTOPPED(status));
}

void program_go_on(const struct program *child)
{
	assert_int_equal(kill(child->pid, SIGCONT), 0);
}
