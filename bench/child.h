/* bench/child.h: other programs under measurement: our own server, and nginx beside it. */
#ifndef BENCH_CHILD_H
#define BENCH_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Returns a port of 127.0.0.1 that is free at the moment, or -errno. */
int bench_port_find(void);

struct bench_child {
	pid_t pid;  /* 0: none */
	int out_fd; /* its standard output */
};
struct bench_child_opts {
	const char *const *argv; /* argv[0] is searched in PATH; ends with NULL */
	const char *const
		*env;	      /* "NAME=VALUE", on top of ours without NEBULAIO_*; ends with NULL */
	int cpu;	      /* it and all that it starts run there */
	const char *log_path; /* its standard error; NULL: goes where its standard output goes */
};
int bench_child_start(const struct bench_child_opts *opts, struct bench_child *ret_child);
/* Reads standard output until a line starts with word, and returns the line without its end.
 * -ETIMEDOUT, -EMSGSIZE, -ECHILD: the program ended before; line then has what it said last. */
int bench_child_await(struct bench_child *child, const char *word, char *line, size_t line_bytes);
/* Whether it ended by itself, and how; a zeroed one did not. */
bool bench_child_ended(const struct bench_child *child, char *how, size_t how_bytes);
/* Sends SIGTERM, then SIGKILL if the program does not end; accepts a zeroed one. */
void bench_child_stop(struct bench_child *child);

#endif
