/* bench/runner.h: the target of a bench (a server, a bucket in it, the objects there), and one load
 * on it, over either transport. */
#ifndef BENCH_RUNNER_H
#define BENCH_RUNNER_H

#include "bench/anchor.h"
#include "bench/batch_load.h"
#include "bench/client_load.h"
#include "bench/clients.h"
#include "bench/http_load.h"
#include "bench/map_load.h"
#include "bench/nginx.h"
#include "bench/plan.h"

#define BENCH_DATA_SETS_MAX 64

struct bench_target {
	const struct bench_opts *opts;
	struct bench_server server;
	char bucket[32];
	char memory_bucket[40];	   /* empty until a row first asks for it */
	struct neb_client *client; /* NULL: no RDMA, and client_failed says why */
	char client_failed[160];
	struct neb_client *sealed, *token, *hipobj, *one_sided; /* opened when a row first asks */
	struct neb_client *sessions[BENCH_SESSION_COUNT - 1];	/* beside client; the same */
	struct bench_data data[BENCH_DATA_SETS_MAX];
	uint32_t data_count;
};
/* Starts or finds the server, connects, and makes the bucket. folder: for the data of a server of
 * our own. Says on standard error why it failed. */
int bench_target_open(struct bench_target *target, const struct bench_opts *opts,
	const struct bench_cpus *cpus, const char *folder);
/* Ends our own server, or removes the data that the run made on another one. Accepts a zeroed
 * one. */
void bench_target_close(struct bench_target *target);
/* Returns the objects that a row works on. They are made at the first request; GET's, HEAD's and
 * LIST's are stored then. On failure standard error has the reason. */
int bench_target_data(struct bench_target *target, const struct bench_subject *subject,
	const struct bench_data **ret_data);

/* ---- A load. ---- */
struct bench_runner {
	struct bench_client_load *client;
	struct neb_client *each[BENCH_EACH_MANY - 1]; /* beside the target's client */
	struct bench_clients *clients;
	struct bench_batch_load *batch;
	struct bench_map_load *map;
	struct bench_http_load *http;
	struct bench_http_set set;
	uint64_t turn;
	uint32_t page_keys; /* of a whole page of a listing */
};
struct bench_load_opts {
	enum bench_op op;
	enum bench_way way;
	const struct bench_data *data; /* NULL: BENCH_EMPTY */
	uint64_t bytes;		       /* of a read of BENCH_READ and BENCH_MAP */
	uint32_t depth;
};
int bench_runner_open(struct bench_target *target, const struct bench_load_opts *opts,
	struct bench_runner *ret_runner);
/* The same objects as files of a plain HTTP server: GET without keys. */
int bench_runner_open_plain(const char *address, const struct bench_data *data, uint32_t depth,
	struct bench_runner *ret_runner);
void bench_runner_run(struct bench_runner *runner, const struct bench_run_opts *opts,
	struct bench_result *result);
void bench_runner_close(struct bench_runner *runner); /* takes a zeroed one */

/* Processes every object of data once: stores it, reads and compares it, or deletes it. -EIO: not
 * all of them; standard error has the reason. */
int bench_target_pass(struct bench_target *target, const struct bench_data *data, enum bench_op op,
	struct bench_result *ret_result);

#endif
