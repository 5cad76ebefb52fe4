/* bench/child.c: starting, awaiting and ending the programs under measurement. */
#include "bench/child.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "bench/machine.h"

#define START_MS_MAX 60000
#define STOP_MS_MAX  40000
#define ENV_MAX	     1024
#define OWN_PREFIX   "NEBULAIO_"

int bench_port_find(void)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), ret;

	if (fd < 0)
		return -errno;
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) ||
		getsockname(fd, (struct sockaddr *)&address, &len))
		ret = -errno;
	else
		ret = ntohs(address.sin_port);
	close(fd);
	return ret;
}

/* Between fork and exec. Does not return. */
static void become(const struct bench_child_opts *opts, char *const *env, int out_fd, pid_t parent)
{
	int log_fd = opts->log_path
			     ? open(opts->log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)
			     : out_fd;
	int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	setpgid(0, 0); /* Ctrl-C reaches only the bench, which passes it on */
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent || log_fd < 0 || null_fd < 0 || bench_cpu_pin(opts->cpu))
		_exit(127);
	dup2(null_fd, STDIN_FILENO);
	dup2(out_fd, STDOUT_FILENO);
	dup2(log_fd, STDERR_FILENO);
	execvpe(opts->argv[0], (char *const *)(uintptr_t)opts->argv, env);
	_exit(127);
}

int bench_child_start(const struct bench_child_opts *opts, struct bench_child *ret_child)
{
	const char *env[ENV_MAX + 1];
	pid_t parent = getpid(), pid;
	size_t count = 0;
	int fds[2];

	for (char **at = environ; *at && count < ENV_MAX; at++) {
		if (strncmp(*at, OWN_PREFIX, sizeof(OWN_PREFIX) - 1))
			env[count++] = *at;
	}
	for (const char *const *at = opts->env; at && *at && count < ENV_MAX; at++)
		env[count++] = *at;
	env[count] = NULL;
	if (pipe2(fds, O_CLOEXEC))
		return -errno;
	pid = fork();
	if (pid == 0)
		become(opts, (char *const *)(uintptr_t)env, fds[1], parent);
	close(fds[1]);
	if (pid < 0) {
		close(fds[0]);
		return -EAGAIN;
	}
	*ret_child = (struct bench_child){.pid = pid, .out_fd = fds[0]};
	return 0;
}

int bench_child_await(struct bench_child *child, const char *word, char *line, size_t line_bytes)
{
	uint64_t end_ns = clock_now_ns() + START_MS_MAX * NS_PER_MS;
	struct pollfd ready = {.fd = child->out_fd, .events = POLLIN};
	size_t len = 0;

	line[0] = '\0';
	while (true) {
		uint64_t now_ns = clock_now_ns();
		ssize_t got;

		if (now_ns >= end_ns ||
			poll(&ready, 1, (int)((end_ns - now_ns) / NS_PER_MS) + 1) == 0)
			return -ETIMEDOUT;
		if (len + 1 >= line_bytes)
			return -EMSGSIZE;
		got = read(child->out_fd, line + len, 1);
		if (got < 0 && errno == EINTR)
			return -EINTR;
		if (got <= 0) {
			if (len)
				line[len] = '\0';
			return -ECHILD;
		}
		if (line[len] != '\n') {
			len++;
			continue;
		}
		line[len] = '\0';
		if (!strncmp(line, word, strlen(word)))
			return 0;
		len = 0;
	}
}

bool bench_child_ended(const struct bench_child *child, char *how, size_t how_bytes)
{
	siginfo_t info = {0};

	if (!child->pid || waitid(P_PID, (id_t)child->pid, &info, WEXITED | WNOHANG | WNOWAIT) ||
		!info.si_pid)
		return false;
	snprintf(how, how_bytes, "%s %d", info.si_code == CLD_EXITED ? "exit code" : "signal",
		info.si_status);
	return true;
}

void bench_child_stop(struct bench_child *child)
{
	struct pollfd ended = {.events = POLLIN};

	if (!child->pid)
		return;
	ended.fd = (int)syscall(SYS_pidfd_open, child->pid, 0);
	kill(child->pid, SIGTERM);
	if (ended.fd < 0 || poll(&ended, 1, STOP_MS_MAX) != 1)
		kill(child->pid, SIGKILL);
	waitpid(child->pid, NULL, 0);
	if (ended.fd >= 0)
		close(ended.fd);
	close(child->out_fd);
	*child = (struct bench_child){0};
}
