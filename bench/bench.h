/* bench/bench.h: `nebulaio bench`: measures a server against the limits of its machine.
 *
 * Everything is measured in groups: an operation and the local limits that it is compared with.
 * Each member runs for a slice in turn, again and again, so that other work of the machine affects
 * all of them alike. */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include <stdbool.h>
#include <stdint.h>

#define BENCH_REPETITIONS_MAX 64u
#define BENCH_SERVER_SETS_MAX 16u

/* Strings are borrowed until bench_run returns. */
struct bench_opts {
	/* A running server, as the client library takes it, with the address of its metrics and its
	 * process (both may be missing; their figures are then missing too). NULL: the run starts
	 * and ends its own server. */
	const char *endpoints;
	const char *metrics_address; /* "HOST:PORT" */
	int server_pid;
	const char *access_key; /* of the running server */
	const char *secret_key;
	const char *region;
	const char *device_name;

	const char *program; /* the program to run as `PROGRAM serve`; NULL: this program */
	const char *dir;     /* our server's data and the raw log; NULL: chosen, see bench.md */
	const char *server_sets[BENCH_SERVER_SETS_MAX]; /* "KEY=VALUE" for our server */
	uint32_t server_set_count;

	/* Another S3 server, "HOST:PORT", whose HTTP rows take turns with ours; NULL: none. Without
	 * keys its requests are not signed. */
	const char *compare;
	const char *compare_access_key;
	const char *compare_secret_key;
	int compare_pid; /* its process; 0: unknown */

	const char *only;      /* part of a row's name, or NULL */
	const char *json_path; /* NULL: none */
	bool quick;	       /* the marks' rows only */
	bool idle_default;     /* do not keep idle processors awake */
	bool priority_normal;  /* keep normal priority instead of a higher one */
	uint32_t repetitions;
	uint64_t slice_ns; /* one measurement of one row */
	uint64_t rate;	   /* open loop: operations started a second; 0: closed loop */
	uint32_t verify_every;
	uint32_t list_keys;
	uint32_t objects; /* of the rows of many objects */
	bool list_rows;	  /* print the names of the rows and measure nothing */
};

void bench_defaults(struct bench_opts *opts);

/* The outcome of a run. */
struct bench_outcome {
	uint32_t rows;
	uint32_t rows_failed; /* not measured, or with failed operations */
	uint32_t marks;
	uint32_t marks_missed; /* of the first marks */
};
/* Prints to standard output during the run. -EINVAL: nothing matches `only`; other errors: nothing
 * could be measured, and standard error has the reason. Blocks; SIGINT and SIGTERM end the run
 * early and in order (-EINTR). */
int bench_run(const struct bench_opts *opts, struct bench_outcome *ret_outcome);

#endif
