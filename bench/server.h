/* bench/server.h: the server under measurement: our own, or one that runs already; and its
 * counters. */
#ifndef BENCH_SERVER_H
#define BENCH_SERVER_H

#include "bench/bench.h"
#include "bench/child.h"
#include "bench/machine.h"

struct bench_server {
	struct bench_child child; /* our own; pid 0: it runs by itself */
	pid_t pid;		  /* 0: unknown */
	char endpoints[256];	  /* for libnebulaio */
	char http_address[64];	  /* "" where there is none */
	char rdma_address[64];
	char metrics_address[64];
	char access_key[32];
	char secret_key[64];
	char noisy_access_key[32]; /* of our own's second tenant; "" where there is none */
	char noisy_secret_key[64];
	const char *use_access_key; /* the ones above, or the options' */
	const char *use_secret_key;
	const char *region;
	const char *device_name;
	char found_name[64]; /* the device that leads to the server, when the options name none */
	bool rdma_is_simulated;
};
/* On failure, standard error has the reason. folder: for its data and its log, when it is our
 * own. */
int bench_server_open(const struct bench_opts *opts, const struct bench_cpus *cpus,
	const char *folder, struct bench_server *ret_server);
void bench_server_close(struct bench_server *server);

/* The server's metrics, as running sums. */
struct bench_counts {
	bool known;
	double copied_bytes;
	double wire_bytes; /* copied by the simulated provider in place of a wire */
	double flushes;
	double disk_read_bytes;
};
/* Asks the server: a request of its own, which costs it some tens of microseconds. */
void bench_server_counts(const struct bench_server *server, struct bench_counts *ret_counts);
/* Waits until the server's index is merged, so far as it wants to be: storing many objects leaves
 * work behind. At once where the server does not tell. -ETIMEDOUT. */
int bench_server_settle(const struct bench_server *server);
/* The sum over all labels of a metric in Prometheus' text; false when it is not there. */
bool bench_metric_sum(const char *text, const char *name, double *ret_sum);

#endif
