/* cli/flow_cmd.h: shared by the files of `nebulaio flow`: the command line, the text forms of
 * sources and targets, names of bodies, the parts of a job, and the ends that need a client. */
#ifndef CLI_FLOW_CMD_H
#define CLI_FLOW_CMD_H

#include "flow/datagram.h"
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
	struct xp_opts port; /* its interface points to the one above */
	struct xp_rule rules[FILTER_RULES_MAX];
	uint32_t rule_count;
	bool kernel_time,
		hardware_time; /* require that clock; both false: the best available one */
};
/* False with the reason. */
bool flow_spec_parse(const char *text, struct flow_spec *ret_spec, char why[FLOW_WHY_BYTES]);
/* Reads a file with a rule on each line: count, drop, pass or redirect, then the match. */
bool flow_rules_load(const char *path, struct flow_spec *spec, char why[FLOW_WHY_BYTES]);

/* Any other end: "rdma:HOST:PORT,option,…", "ud:GROUP,option,…", "raw:MAC,option,…", "disk:PATH",
 * "s3://BUCKET/KEY", "null:", a path. */
enum flow_kind { FLOW_XDP, FLOW_RDMA, FLOW_DISK, FLOW_FILE, FLOW_S3, FLOW_NULL, FLOW_UD, FLOW_RAW };
struct flow_end_spec {
	enum flow_kind kind;
	char path[2048];	/* or the bucket */
	char key[1025];		/* S3 */
	uint64_t offset, bytes; /* of a disk that is read; 0 bytes: to the end */
	char address[64];	/* RDMA; "" for a listener: any address */
	uint16_t port;
	bool listen;
	char device[96]; /* "": --device */
	uint32_t record_bytes;
	uint64_t timeout_ns, wait_ns;
	/* UD: the group or queue pair in path, "": any. */
	uint64_t rate;
	bool accept_loss;
	uint8_t mac[6], priority; /* raw */
	uint16_t ether_type, vlan;
};
/* Sent and received by an RDMA device. */
static inline bool flow_end_is_datagrams(const struct flow_end_spec *end)
{
	return end->kind == FLOW_UD || end->kind == FLOW_RAW;
}
static inline bool flow_end_has_fabric(const struct flow_end_spec *end)
{
	return end->kind == FLOW_RDMA || flow_end_is_datagrams(end);
}
/* is_source: accepts the options of a source. False with the reason. */
bool flow_end_parse(
	const char *text, bool is_source, struct flow_end_spec *ret_end, char why[FLOW_WHY_BYTES]);
/* A decimal number, with K, M or G. */
bool flow_amount_parse(const char *text, uint64_t *ret_amount);
/* The name of a body that begins now: strftime's conversions in UTC, %t for 20260102T030405Z, %n
 * for the number of the body. False: too long. */
bool flow_name(const char *pattern, uint64_t real_ns, uint32_t number, char *out, size_t out_bytes);
/* Whether the pattern has %n. */
bool flow_name_counts(const char *pattern);
/* A number from `number` on whose name is not taken: the first where the taken ones have no gap.
 * Asks few times, however many are taken. */
typedef bool flow_number_taken_fn(void *arg, uint32_t number);
uint32_t flow_number_free(uint32_t number, flow_number_taken_fn *taken, void *arg);

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
	uint64_t sync_bytes; /* how often files and devices are flushed, and so how often a peer
				gets an acknowledgement */
	bool force, quiet, json;
	int status_fd; /* 0: none */
};
/* Parses a command line and starts nothing. CLI_OK; CLI_USAGE, prints why. */
int flow_args_take(
	const struct cli_command *command, struct flow_args *args, int argc, char **argv);
/* The same for a command line from the server's configuration. */
int flow_args_check(int argc, char **argv);
/* Whether a transform uses a key and a counter that serve one body only. */
bool flow_args_have_counter(const struct flow_args *args);
/* The counters on --status-fd in this order: a line each second and one at the end. */
enum flow_count {
	FLOW_BYTES,
	FLOW_PACKETS,
	FLOW_LOST,
	FLOW_BODIES,
	FLOW_RING_FULL, /* from here on of AF_XDP, as in struct xp_stats */
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
/* After the counters, the buckets of a latency histogram (base/counter.h) for each of these. */
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
	struct flow_fabric *fabric_from, *fabric_to; /* may be the same */
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
/* Prints a member of the summary's JSON object and a comma; or the same as lines. */
void flow_took_json(const struct flow_base *base);
void flow_took_lines(const struct flow_base *base);
/* extra_bytes: memory of the region beyond --memory. An exit code; prints why. */
int flow_base_open(struct flow_base *base, struct flow_args *args, uint64_t extra_bytes,
	uint64_t idle_spin_ns);
/* After this call signals call base->on. 0 or -errno. */
int flow_base_signals(struct flow_base *base);
void flow_base_end(struct flow_base *base); /* in a fiber, before the reactor stops */
void flow_base_close(struct flow_base *base);
double flow_cpu_seconds(void);
/* Connects or listens as the end says, and prints that. In a fiber. *listener can be cancelled
 * while this call waits; NULL when it returns. */
int flow_link_for(struct flow_fabric *fabric, const struct flow_end_spec *end,
	const struct flow_link_opts *opts, struct flow_listener **listener,
	struct flow_link **ret_link);

/* Joins and prints that. In a fiber. */
int flow_datagram_for(struct flow_fabric *fabric, const struct flow_end_spec *end,
	const struct flow_datagram_opts *opts, struct flow_datagram **ret_datagram);

/* ---- A client of libnebulaio on a thread of its own, to which the region is registered. ---- */
/* An exit code; prints why. */
int flow_s3_open(
	const struct remote_opts *opts, struct region *region, struct flow_s3 **ret_uploads);
void flow_s3_close(struct flow_s3 *uploads); /* takes NULL; no end open */
struct flow_s3_target {
	const char *bucket, *key;
	bool replace; /* the object that is there */
	bool look;    /* whether there is one, before a byte is taken */
};
/* Writes an object: by one request when it is short, else by a multipart upload, whose parts the
 * server reads from the pieces' own frames. A flow that fails aborts the upload. In a fiber.
 * Without replace: -EEXIST, from here or at the end, when another client wrote it meanwhile. */
int flow_s3_sink_open(struct flow_s3 *uploads, struct flow_core *core,
	const struct flow_s3_target *target, struct flow_sink **ret_sink);
/* Whether an object is there; false if that cannot be known. In a fiber. */
bool flow_s3_taken(
	struct flow_s3 *uploads, struct flow_core *core, const char *bucket, const char *key);
/* Reads an object: the server writes its bytes to the region's frames. */
int flow_s3_source_open(struct flow_s3 *client, struct flow_core *core, const char *bucket,
	const char *key, struct flow_source **ret_source);
/* The transport of the requests, rdma or http; the bytes that the client copied. */
const char *flow_s3_transport(const struct flow_s3 *uploads);
uint64_t flow_s3_copied(const struct flow_s3 *uploads);

extern const struct cli_command CLI_FLOW;

#endif
