/* bench/plan.h: the plan of a run: rows and anchors, in groups whose members take turns. */
#ifndef BENCH_PLAN_H
#define BENCH_PLAN_H

#include "bench/bench.h"
#include "bench/load.h"
#include "bench/cycles.h"
#include "bench/machine.h"
#include "bench/server.h"

enum bench_kind {
	BENCH_ROW, /* an operation of the server */
	BENCH_PINGPONG,
	BENCH_MEMCPY, /* of bytes */
	BENCH_TCP,
	BENCH_STREAM,	/* of bytes */
	BENCH_LOG,	/* depth blocks in a commit */
	BENCH_NGINX,	/* GET of bytes over depth connections */
	BENCH_RECVMMSG, /* packets of bytes */
};
enum bench_op {
	BENCH_EMPTY,
	BENCH_GET,
	BENCH_PUT,
	BENCH_HEAD,
	BENCH_DELETE,
	BENCH_LIST,
	BENCH_MIXED, /* of ten objects seven are read and three written */
	BENCH_FLOW,  /* a stream between two processes of `nebulaio flow`, disk to disk */
	BENCH_INGEST /* packets */
};
/* A flow makes its bytes durable each time that this many have arrived. */
#define BENCH_FLOW_SYNC_BYTES (1 * MIB)
/* Ethernet, IP and UDP heads, and a payload of 1,024 bytes. */
#define BENCH_PAYLOAD_PACKET 1066u
#define BENCH_MIXED_OF	     10u
#define BENCH_MIXED_READS    7u
/* True when a mixed load writes this object, each time; false when it reads it. */
static inline bool bench_mixed_writes(uint64_t object_idx)
{
	return object_idx % BENCH_MIXED_OF >= BENCH_MIXED_READS;
}
enum bench_way {
	BENCH_RDMA,
	BENCH_HTTP,
	BENCH_SEALED,	   /* RDMA, encrypted */
	BENCH_TOKEN,	   /* HTTP, bodies by RDMA tokens */
	BENCH_HIPOBJ,	   /* HTTP, bodies by hipobj-rc-v2 */
	BENCH_XDP,	   /* packets by AF_XDP, without a server */
	BENCH_ONESIDED,	   /* RDMA, read from the server's memory by the client */
	BENCH_MEMORY,	   /* RDMA, objects of a memory bucket */
	BENCH_AT_REST,	   /* HTTP, objects that lie encrypted (SSE-S3) */
	BENCH_UNSIGNED,	   /* HTTP, without signatures, of a bucket that everybody may read */
	BENCH_SESSIONS,	   /* RDMA, over several sessions of one process */
	BENCH_CLIENTS,	   /* RDMA, by several processes that sleep while they wait */
	BENCH_NODES,	   /* the same processes: each reads every object, as nodes load weights */
	BENCH_FAN_OUT,	   /* the same, in step (docs/design/fan-out.md) */
	BENCH_SINGLES,	   /* RDMA, into the memory of BATCH, an object by each call */
	BENCH_BATCH,	   /* RDMA, many objects by each call */
	BENCH_READ,	   /* RDMA, objects of which all bytes, or pages, are looked at */
	BENCH_MAP,	   /* the same by memory that an object is mapped to */
	BENCH_DURABLE,	   /* FLOW, INGEST: until it is durable on the receiver's disk */
	BENCH_PEER,	   /* FLOW: until it is in the receiver's memory */
	BENCH_MANY,	   /* RDMA, of opts->objects objects instead of BENCH_FEW_OBJECTS */
	BENCH_CONNECTIONS, /* HTTP, over few connections and over many */
	BENCH_EACH,	   /* RDMA, a session for each request in flight: few and many */
	BENCH_OTHER,	   /* HTTP, another S3 server */
	BENCH_STRIPED,	   /* RDMA, of a store over six volumes (4+2) of the server's host */
	BENCH_REMOTE,	   /* the same over volumes of six other processes */
	BENCH_QUIET,	   /* HTTP, by a client that sleeps while it waits */
	BENCH_APART,	   /* the same, while a noisy client loads another server of this host */
	BENCH_BESIDE,	   /* the same, while a noisy tenant loads the same server */
	BENCH_WAY_COUNT,
};
/* Whether requests are HTTP with their bodies. */
bool bench_way_is_http(enum bench_way way);
const char *bench_way_word(enum bench_way way); /* "rdma", "http", "sealed", … */
/* The kinds of noise. */
enum bench_noise_kind {
	BENCH_NO_NOISE,
	BENCH_UPLOADS,	 /* PUT of 1 MiB */
	BENCH_DOWNLOADS, /* GET of 8 MiB */
	BENCH_PUTS,	 /* PUT of 4 KiB */
	BENCH_LISTS,	 /* pages of 1,000 keys with a long prefix */
	BENCH_PARTS,	 /* UploadPart of 5 MiB */
	BENCH_NOISE_COUNT,
};
/* "uploads", …; "" for none. */
const char *bench_noise_word(enum bench_noise_kind noise);
enum bench_heat { BENCH_HOT, BENCH_COLD };

#define BENCH_HOT_BYTES	       (2 * MIB)
#define BENCH_COLD_BYTES       (512 * MIB) /* twice our server's cache */
#define BENCH_HUGE_BYTES       (64 * MIB)
#define BENCH_SMALL_BYTES      100u /* of each of few, and of many, objects */
#define BENCH_FEW_OBJECTS      1000u
#define BENCH_DEPTH_MAX	       64u
#define BENCH_NGINX_DEPTH      16u
#define BENCH_CONNECTIONS_MANY 1000u
#define BENCH_SESSION_COUNT    4u /* and of client processes */
#define BENCH_EACH_FEW	       4u
#define BENCH_EACH_MANY	       256u

struct bench_subject {
	enum bench_kind kind;
	enum bench_op op;	     /* rows */
	enum bench_way way;	     /* rows */
	enum bench_heat heat;	     /* rows: GET */
	uint64_t bytes;		     /* rows: of an object; MEMCPY, NGINX, RECVMMSG */
	uint32_t depth;		     /* rows, NGINX: in flight; LOG: blocks */
	enum bench_noise_kind noise; /* APART, BESIDE */
};
bool bench_subject_same(const struct bench_subject *a, const struct bench_subject *b);
#define BENCH_NAME_BYTES 64
/* The name of a set of rows: GET and PUT of 4 KiB and 1 MiB by each dialect of S3 over RDMA, and by
 * HTTP. */
#define BENCH_DIALECTS "dialects"
/* "get 4KiB d1 rdma", "get 1MiB d16 http cold", "memcpy 1MiB", "raw log 16": the text that --only
 * searches. */
const char *bench_subject_name(const struct bench_subject *subject, char buf[BENCH_NAME_BYTES]);

/* The measurements of one slice. */
struct bench_sample {
	double p50_ns;	      /* of an operation */
	double rate;	      /* operations a second */
	double server_cpu_ns; /* of an operation; NAN: unknown */
};

/* A subject with all its measurements. */
struct bench_record {
	struct bench_subject subject;
	struct bench_sample samples[BENCH_REPETITIONS_MAX];
	uint32_t sample_count;
	struct hist hist; /* of all slices; rows and NGINX */
	struct bench_result result;
	struct bench_usage server;
	struct bench_usage client;
	bool server_known;
	struct bench_cycles server_cycles;
	struct bench_cycles client_cycles;
	struct bench_counts counts; /* differences over the slices */
	uint64_t client_copied_bytes;
	uint64_t fallbacks;
	uint64_t noisy_ops; /* operations of the noisy client meanwhile */
	struct bench_noise noise;
	char failed[160]; /* why it was not measured; "" when it was */
};

/* A row's slice is compared with this one of its anchor. */
struct bench_sample bench_record_limit(const struct bench_record *anchor, uint32_t slice_idx);

#define BENCH_GROUP_MAX 12
struct bench_group {
	struct bench_record *members[BENCH_GROUP_MAX];
	uint32_t count;
};

struct bench_plan {
	struct bench_group *groups;
	uint32_t group_count;
};
/* quick: the groups that marks need; only: the rows whose name has it, with their anchors, or
 * BENCH_DIALECTS. Packets
 * only where they can be measured, and with a server of our own. -EINVAL: nothing is left. */
int bench_plan_open(const struct bench_opts *opts, struct bench_plan *ret_plan);
void bench_plan_close(struct bench_plan *plan);

/* The anchor that a row of a group is shown against, or NULL. */
const struct bench_record *bench_group_anchor(
	const struct bench_group *group, const struct bench_record *row);
/* The plain HTTP row of the same operation, beside which a dialect of S3 over RDMA is shown; NULL
 * for other rows, and where it is not in the run. */
const struct bench_record *bench_group_http(
	const struct bench_group *group, const struct bench_record *row);
/* The row of a group over a way, without noise; NULL: none. */
const struct bench_record *bench_group_way(const struct bench_group *group, enum bench_way way);

/* Whether a group is measured on the server of the group before it. That is so for many objects,
 * which take long to store and which no row changes. Other groups have a server and a data folder
 * of their own, so that a row gives the same alone and in a full run. */
bool bench_group_shares_server(const struct bench_group *group, const struct bench_group *before);
/* Whether it needs the servers over several volumes. */
bool bench_group_has_coded(const struct bench_group *group);

#endif
