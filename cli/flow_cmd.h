/* cli/flow_cmd.h: shared by the files of `nebulaio flow`: the command line, the text forms of
 * sources and targets, names of bodies, the parts of a job, and the ends that need a client. */
#ifndef CLI_FLOW_CMD_H
#define CLI_FLOW_CMD_H

#include "flow/file.h"
#include "flow/ingest.h"
#include "flow/latency.h"
#include "flow/link.h"
#include "flow/transform.h"
#include "remote.h"

#define FLOW_WHY_BYTES 256u

/* ---- Texts. ---- */

/* "xdp:IFACE,option,…". */
struct flow_spec {
	char interface[64];
	struct xp_opts port; /* its interface is the one above */
	struct xp_rule rules[FILTER_RULES_MAX];
	uint32_t rule_count;
	bool kernel_time,
		hardware_time; /* that clock and no other; both false: the best there is */
};
/* False with the reason. */
bool flow_spec_parse(const char *text, struct flow_spec *ret_spec, char why[FLOW_WHY_BYTES]);
/* A file with a rule a line: count, drop, pass or redirect, then what it matches. */
bool flow_rules_load(const char *path, struct flow_spec *spec, char why[FLOW_WHY_BYTES]);

/* Any other end: "rdma:HOST:PORT,option,…", "disk:PATH", "s3://BUCKET/KEY", "null:", a path. */
enum flow_kind { FLOW_XDP, FLOW_RDMA, FLOW_DISK, FLOW_FILE, FLOW_S3, FLOW_NULL };
struct flow_end_spec {
	enum flow_kind kind;
	char path[2048];	/* or the bucket */
	char key[1025];		/* S3 */
	uint64_t offset, bytes; /* a disk to read from: which run; 0 bytes: to the end */
	char address[64];	/* RDMA; "" when listening: any */
	uint16_t port;
	bool listen;
	char device[96]; /* "": --device */
	uint32_t record_bytes;
	uint64_t timeout_ns, wait_ns;
};
/* is_source: options of what is read are known. False with the reason. */
bool flow_end_parse(
	const char *text, bool is_source, struct flow_end_spec *ret_end, char why[FLOW_WHY_BYTES]);
/* A decimal number, with K, M or G. */
bool flow_amount_parse(const char *text, uint64_t *ret_amount);
/* The name of a body that begins now: strftime's conversions in UTC, %t for 20260102T030405Z, %n
 * for the number of the body. False: too long. */
bool flow_name(const char *pattern, uint64_t real_ns, uint32_t number, char *out, size_t out_bytes);

/* ---- The command line. ---- */
enum flow_form { FLOW_FORM_PRESET, FLOW_FORM_PCAPNG, FLOW_FORM_PAYLOAD };
struct flow_args {
	const struct cli_command *command;
	struct remote_opts remote;
	struct flow_spec xdp; /* from.kind is FLOW_XDP */
	struct flow_end_spec from, to;
	const char *transforms[FLOW_TRANSFORMS_MAX]; /* texts */
	uint32_t transform_count;
	const char *from_text, *to_text, *rules_path;
	enum flow_form form;
	uint64_t count, seconds, roll_bytes, roll_seconds, memory_mib;
	uint64_t sync_bytes; /* of files and devices, and so of what a peer is told */
	bool force, quiet, json;
	int status_fd; /* 0: none */
};
/* Reads a command line and starts nothing. CLI_OK; CLI_USAGE, said why. */
int flow_args_take(
	const struct cli_command *command, struct flow_args *args, int argc, char **argv);
/* The same for a command line of `nebulaio flow` that somebody else wrote. */
int flow_args_check(int argc, char **argv);
/* The counters on --status-fd, a line each second and one at the end, in this order. */
enum flow_count {
	FLOW_BYTES,
	FLOW_PACKETS,
	FLOW_LOST,
	FLOW_BODIES,
	FLOW_RING_FULL, /* these of AF_XDP, as in struct xp_stats */
	FLOW_FILL_EMPTY,
	FLOW_DROPPED,
	FLOW_INVALID,
	FLOW_STAMPED,
	FLOW_MATCHED, /* packets, by all rules */
	FLOW_COUNT_COUNT
};
struct flow_counts {
	uint64_t of[FLOW_COUNT_COUNT];
};
/* Behind the counts, how long bytes took: the places of a histogram (base/counter.h) for each. */
enum flow_took { FLOW_TOOK_DURABLE, FLOW_TOOK_PEER, FLOW_TOOK_COUNT };
#define FLOW_STATUS_NUMBERS    (FLOW_COUNT_COUNT + FLOW_TOOK_COUNT * COUNTER_HIST_PLACES)
#define FLOW_STATUS_LINE_BYTES (FLOW_STATUS_NUMBERS * 21 + 1)
struct flow_base;
void flow_status(const struct flow_base *base, const struct flow_counts *counts);
/* Packets into bodies; any other source into any sink. An exit code. */
int flow_capture_run(struct flow_args *args);
int flow_move_run(struct flow_args *args);

/* ---- The parts that every job has. ---- */
struct flow_s3;
struct flow_base {
	struct flow_args *args;
	struct region *region;
	struct reactor *reactor;
	struct flow_core core;
	struct flow_fabric *fabric_from, *fabric_to; /* may be one */
	struct flow_s3 *client;
	struct flow_volume volume_from, volume_to; /* disk NULL: that end is no device */
	bool fixed;
	/* Called on the reactor's thread by signals. */
	struct {
		void (*end)(void *arg);	   /* SIGINT, SIGTERM */
		void (*reload)(void *arg); /* SIGHUP */
		void (*report)(void *arg); /* SIGUSR1 */
		void *arg;
	} on;
	struct reactor_poller signals;
	uint64_t start_ns;
	double start_cpu_seconds;
	struct flow_latency took[FLOW_TOOK_COUNT];
};
/* "durable", "peer". */
const char *flow_took_name(enum flow_took took);
/* A member of the summary's object, with a comma behind it; a line each. */
void flow_took_json(const struct flow_base *base);
void flow_took_lines(const struct flow_base *base);
/* extra_bytes: of the region, beside --memory. An exit code; said why. */
int flow_base_open(struct flow_base *base, struct flow_args *args, uint64_t extra_bytes,
	uint64_t idle_spin_ns);
/* From here on signals call base->on. 0 or -errno. */
int flow_base_signals(struct flow_base *base);
void flow_base_end(struct flow_base *base); /* inside a fiber, before the reactor stops */
void flow_base_close(struct flow_base *base);
double flow_cpu_seconds(void);
/* Connects or listens as the end says, and says so. Inside a fiber. listener: where it can be
 * cancelled while it waits; NULL at the end. */
int flow_link_for(struct flow_fabric *fabric, const struct flow_end_spec *end,
	const struct flow_link_opts *opts, struct flow_listener **listener,
	struct flow_link **ret_link);

/* ---- A client of libnebulaio on a thread of its own, to which the region is registered. ---- */
/* An exit code; said why. */
int flow_s3_open(
	const struct remote_opts *opts, struct region *region, struct flow_s3 **ret_uploads);
void flow_s3_close(struct flow_s3 *uploads); /* takes NULL; no end open */
/* An object: one request when it is short, else a multipart upload of parts taken from the pieces'
 * own frames, aborted when the flow fails. */
int flow_s3_sink_open(struct flow_s3 *uploads, struct flow_core *core, const char *bucket,
	const char *key, struct flow_sink **ret_sink);
/* An object's bytes, written by the server into the region's frames. */
int flow_s3_source_open(struct flow_s3 *client, struct flow_core *core, const char *bucket,
	const char *key, struct flow_source **ret_source);
/* How requests went: rdma or http; bytes that the client copied. */
const char *flow_s3_transport(const struct flow_s3 *uploads);
uint64_t flow_s3_copied(const struct flow_s3 *uploads);

extern const struct cli_command CLI_FLOW;

#endif
