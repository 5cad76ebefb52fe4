/* nbd/nbd_priv.h: shared by the files of src/nbd. */
#ifndef NBD_NBD_PRIV_H
#define NBD_NBD_PRIV_H

#include <endian.h>

#include "nbd/nbd.h"

/* ---- The wire; numbers are big-endian. ---- */
#define NBD_MAGIC	  0x4e42444d41474943ull /* "NBDMAGIC" */
#define NBD_OPTION_MAGIC  0x49484156454f5054ull /* "IHAVEOPT" */
#define NBD_REPLY_MAGIC	  0x0003e889045565a9ull
#define NBD_REQUEST_MAGIC 0x25609513u
#define NBD_ANSWER_MAGIC  0x67446698u

#define NBD_FIXED_NEWSTYLE (1u << 0)
#define NBD_NO_ZEROES	   (1u << 1)

enum nbd_option {
	NBD_OPT_EXPORT_NAME = 1,
	NBD_OPT_ABORT = 2,
	NBD_OPT_LIST = 3,
	NBD_OPT_STARTTLS = 5,
	NBD_OPT_INFO = 6,
	NBD_OPT_GO = 7,
};

#define NBD_REP_ERROR (1u << 31)
enum nbd_reply {
	NBD_REP_ACK = 1,
	NBD_REP_SERVER = 2,
	NBD_REP_INFO = 3,
};
/* With NBD_REP_ERROR. */
enum nbd_refusal {
	NBD_ERR_UNSUPPORTED = 1,
	NBD_ERR_INVALID = 3,
	NBD_ERR_TLS_REQUIRED = 5,
	NBD_ERR_UNKNOWN = 6,
	NBD_ERR_TOO_BIG = 9,
};
enum nbd_info { NBD_INFO_EXPORT = 0, NBD_INFO_NAME = 1, NBD_INFO_BLOCK_SIZE = 3 };

enum nbd_transmission {
	NBD_HAS_FLAGS = 1u << 0,
	NBD_READ_ONLY = 1u << 1,
	NBD_SEND_FLUSH = 1u << 2,
	NBD_SEND_FUA = 1u << 3,
	NBD_SEND_TRIM = 1u << 5,
	NBD_SEND_WRITE_ZEROES = 1u << 6,
	NBD_CAN_MULTI_CONN = 1u << 8,
};

enum nbd_command {
	NBD_CMD_READ = 0,
	NBD_CMD_WRITE = 1,
	NBD_CMD_DISC = 2,
	NBD_CMD_FLUSH = 3,
	NBD_CMD_TRIM = 4,
	NBD_CMD_WRITE_ZEROES = 6,
};
#define NBD_CMD_FLAG_FUA     (1u << 0)
#define NBD_CMD_FLAG_NO_HOLE (1u << 1)

/* Numbers of errors on the wire. */
enum nbd_errno {
	NBD_EPERM = 1,
	NBD_EIO = 5,
	NBD_ENOMEM = 12,
	NBD_EINVAL = 22,
	NBD_ENOSPC = 28,
	NBD_ENOTSUP = 95,
	NBD_ESHUTDOWN = 108,
};

struct nbd_request_wire {
	uint32_t magic;
	uint16_t flags, type;
	uint64_t cookie;
	uint64_t offset;
	uint32_t bytes;
} __attribute__((packed));
_Static_assert(sizeof(struct nbd_request_wire) == 28, "as the protocol has it");

struct nbd_answer_wire {
	uint32_t magic, error;
	uint64_t cookie;
} __attribute__((packed));
_Static_assert(sizeof(struct nbd_answer_wire) == 16, "as the protocol has it");

/* ---- A server. ---- */

/* A client that stops for this long in the middle of a message is cut off, because it holds frames.
 * Between requests a client may be silent for ever. */
#define NBD_STALL_NS (30 * NS_PER_S)
/* Nor may it take one byte now and then, when another client's request has waited this long for
 * frames. */
#define NBD_STARVED_NS (30 * NS_PER_S)
/* A client that lost its power, or its network, says no word. Its place is free after twice that.
 */
#define NBD_KEEPALIVE_S 60u
/* From the connection to the choice of an export. */
#define NBD_HANDSHAKE_NS (30 * NS_PER_S)

/* Every payload lies in one span and fits a share of the region. So a fiber that waits for frames
 * holds none, and gets them when the requests before it have ended. */
_Static_assert(NBD_PAYLOAD_BYTES_MAX <= LIMIT_SPAN_FRAMES_MAX * (uint64_t)FRAME_BYTES, "one span");
_Static_assert(2 * NBD_PAYLOAD_BYTES_MAX <= NBD_MEMORY_BYTES_MIN, "two payloads fit");

struct nbd {
	struct nbd_opts opts;
	struct nbd_export exports[NBD_EXPORTS_MAX];
	struct net_listener *listener;
	struct list connections;
	uint32_t connection_count;
	struct list starved; /* struct nbd_wait: fibers that wait for frames, the first first */
	uint64_t starved_ns; /* NBD_STARVED_NS, but in tests */
	bool draining, accepting;
	struct fiber *acceptor; /* waits for room */
	struct fiber *drainer;
};

/* A fiber in a queue. */
struct nbd_wait {
	struct list link;
	struct fiber *fiber;
	bool called;
};

#define NBD_CONNECTION_MAGIC 0x6bd0c04eu
struct nbd_connection {
	uint32_t magic; /* until it has ended */
	struct list link;
	struct nbd *nbd;
	struct net_stream *stream;
	const struct nbd_export *export; /* NULL: none chosen yet */
	bool secure;			 /* TLS has begun */
	bool no_zeroes;
	bool evicted;
	bool complained;
	uint32_t requests;
	uint64_t frames_held;			 /* by its requests */
	uint64_t sends_since_ns, takes_since_ns; /* one payload; 0: none */
	struct fiber *receiver;			 /* waits for the end of a request */
	bool sending;
	struct list senders; /* struct nbd_wait */
	uint64_t read_bytes, written_bytes;
};

/* handshake.c: speaks with the client until it has chosen an export. 0; -errno: the connection is
 * to be closed, and the log has the reason, unless the client itself ended it (-ECONNABORTED). */
int nbd_handshake(struct nbd_connection *connection);

/* serve_dp.c: serves requests until the client leaves, and waits for those in progress. */
void nbd_serve(struct nbd_connection *connection);

#endif
