/* front/session/types.h: the native front, its sessions, their receives and sends, and a request
 * while it is being answered; and the limits of all of them. */
#ifndef FRONT_SESSION_TYPES_H
#define FRONT_SESSION_TYPES_H

#include <pthread.h>
#include <stdatomic.h>

#include "codec/capsule.h"
#include "front/front.h"
#include "rdma/port.h"
#include "reactor/reactor.h"

#define NATIVE_SETUP_NS	      (5 * NS_PER_S)
#define NATIVE_SWEEP_LATE_NS  (300 * NS_PER_MS) /* between sweeps; longer: we did not run */
#define NATIVE_SWEEP_NS	      (100 * NS_PER_MS)
#define NATIVE_SWEEP_WIPE_MAX (64 * MIB)
/* A session without proof after this time yields its place when no other place is free. At most
 * this many sessions of a front may be closing for that reason, beyond its maximum of sessions. */
#define NATIVE_YIELD_NS	    (500 * NS_PER_MS)
#define NATIVE_YIELDING_MAX 8u
/* Of so many parts of the places, a key gets one of the last part only while it has no more
 * sessions than there are places left: so each key leaves half of these to the others. */
#define NATIVE_LAST_PARTS      8u
#define NATIVE_SEND_WRS_MIN    8u
#define NATIVE_CQ_ENTRIES_MAX  (1u << 20)
#define NATIVE_SEND_PIECES_MAX 4u
/* The fiber writes bodies up to this size directly, before their response, without waiting. Larger
 * ones go through flow's window. */
#define NATIVE_DIRECT_BYTES_MAX (256 * KIB)
/* The same of an encrypted body: the device moves each step while the next one is encrypted, which
 * a window does not do before it is full. */
#define NATIVE_DIRECT_SEALED_BYTES_MAX MIB
#define NATIVE_POLL_ROUNDS_MAX	       8u
/* No share counts small bodies and answers while those that a session's client has not taken yet
 * need at most so many frames: as long as they come and go, they cost other cores nothing. */
#define NATIVE_UNCOUNTED_FRAMES_MAX 64u

/* The kind of a work request's wr_id, in its two lowest bits: a pointer to a receive or a send, or
 * a session's number. */
enum native_tag { NATIVE_TAG_RECV = 0, NATIVE_TAG_SEND = 1, NATIVE_TAG_SESSION = 2 };
#define NATIVE_TAG_MASK 3u

/* Receives may hold at most this part of the region. */
#define NATIVE_RECV_PARTS 2u

/* Limits that depend on each other. */
_Static_assert(NATIVE_INLINE_WR_BYTES <= CAPSULE_BYTES_MIN,
	"what goes inside a work request fits every client's receives");
_Static_assert(sizeof(struct capsule_response_wire) + CAPSULE_TAG_BYTES + 128 <= CAPSULE_BYTES_MIN,
	"a refusal fits every client's receives");
_Static_assert(LIMIT_CAPSULE_BYTES_MAX % FRAME_BYTES == 0, "receives are whole frames");
_Static_assert(2 * LIMIT_CAPSULE_INLINE_BYTES_MAX <= LIMIT_CAPSULE_BYTES_MAX,
	"the largest inline body leaves half a capsule to the rest");
_Static_assert(LIMIT_SESSION_REQUESTS_MAX + CAPSULE_SPARE_RECEIVES + NATIVE_SEND_WRS_MIN <=
		       NATIVE_CQ_ENTRIES_MAX,
	"a session fits a completion queue");
/* At least one of so many sends is signaled; its completion frees its place in the send queue and
 * those before it. */
#define NATIVE_UNSIGNALED_PART 4u
_Static_assert(NATIVE_SEND_WRS_MIN / NATIVE_UNSIGNALED_PART + NATIVE_SEND_PIECES_MAX + 1 <=
		       NATIVE_SEND_WRS_MIN,
	"a send queue that is full has a signaled send in it");
_Static_assert(NATIVE_UNCOUNTED_FRAMES_MAX >= FLOW_FRAMES_SMALL &&
		       NATIVE_UNCOUNTED_FRAMES_MAX >= LIMIT_CAPSULE_BYTES_MAX / FRAME_BYTES,
	"a session's only request is not counted");
_Static_assert(LIMIT_SESSION_REQUESTS_MAX <= UINT16_MAX, "credits are 16 bits on the wire");
_Static_assert(NATIVE_DIRECT_BYTES_MAX <= NATIVE_DIRECT_SEALED_BYTES_MAX &&
		       NATIVE_DIRECT_SEALED_BYTES_MAX <= LIMIT_SPAN_FRAMES_MAX * FRAME_BYTES,
	"a small body outside the region fits one span");

struct native_session;
struct native_once;
struct once_entry;
struct native_lease_pool;
struct native_stream;
struct front_native;

/* A posted receive, or the request that came in it. */
struct native_recv {
	struct native_session *session;
	struct region_span span; /* OWNER_RDMA as long as the session lives */
	uint32_t bytes;		 /* of the capsule in it */
};

/* A signaled send and what it holds until its completion: then all writes posted before it on this
 * queue pair are done too. Pooled per front. */
struct native_send {
	struct list link; /* in the front's idle list, or in its session's list of posted sends */
	struct native_session *session;
	struct region_span capsule; /* data NULL: sent inline */
	uint16_t capsule_share;	    /* that counts the capsule's frames */
	uint32_t uncounted_frames;  /* of the posted ones, those that no share counts */
	struct flow_piece pieces[NATIVE_SEND_PIECES_MAX];
	uint32_t piece_count;
};

/* The life of a session:
 *
 *   ACCEPTED     two receives posted        -> PROVING by HELLO
 *   PROVING      CHALLENGE sent             -> OPEN by a valid PROOF
 *   OPEN         takes requests             -> DRAINING by GOODBYE of either side, or idleness
 *   DRAINING     requests in flight finish  -> FAILED when the last answer is out
 *   FAILED       queue pair in error, flushing; ends when nothing refers to it any more
 *
 * Any phase goes to FAILED when the peer breaks the protocol, goes away or takes too long. */
enum native_phase {
	NATIVE_ACCEPTED,
	NATIVE_PROVING,
	NATIVE_OPEN,
	NATIVE_DRAINING,
	NATIVE_FAILED,
};

#define NATIVE_SESSION_MAGIC 0x5e551011u
struct native_session {
	uint32_t magic;	     /* until it is freed */
	struct list link;    /* the front's */
	struct list closing; /* on the front's list once nothing refers to it */
	struct front_native *front;
	struct rp_qp *qp;
	uint16_t target;
	bool abandoned; /* its queue pair is closed, but its target's number is kept */
	enum native_phase phase;
	bool proven;	       /* once; counted so */
	uint16_t share;	       /* proven: of its key */
	bool proof_running;    /* its fiber refers to the session */
	uint32_t goodbye_owed; /* for this reason: the send queue was full when it was due; or 0 */
	uint64_t failed_ns;    /* time of FAILED */
	struct capsule_cipher in, out;
	bool encrypted;
	uint8_t payload_in[AEAD_KEY_BYTES], payload_out[AEAD_KEY_BYTES];
	struct aead_stream *spare_in, *spare_out; /* of bodies' ciphers; or NULL */
	uint32_t inline_bytes;			  /* negotiated */
	uint32_t capsule_bytes;			  /* maximum that the client can receive */
	bool streams;				  /* its client supports them */
	bool parts;				  /* its client may ask for them */
	bool leases;				  /* its client may ask for them */
	bool looks; /* its client looks at its clock after each read by a lease */
	struct native_lease_pool *lease_pool; /* NULL until one was granted */
	uint64_t transfer_bytes_max;
	uint32_t credits;
	uint32_t in_flight; /* requests whose answer is not posted yet; each keeps the session */
	uint32_t recvs_posted;
	uint32_t sends_signaled;   /* without their completion */
	uint32_t sends_unsignaled; /* since the last signaled one */
	uint32_t uncounted_frames; /* of small bodies and answers, until the client has them */
	uint32_t unsignaled_max;
	uint32_t wr_inline_bytes; /* maximum of inline data in a work request */
	struct list requests;	  /* those with a transfer, for their deadlines */
	uint64_t accepted_ns;
	uint64_t last_ns;  /* of a capsule */
	uint64_t kept_ns;  /* of the last keepalive */
	bool keeping;	   /* a keepalive is outstanding, ahead of all signaled sends */
	uint64_t sent_ns;  /* last completion of a signaled send, or the post of the first */
	uint64_t moved_ns; /* last progress of a body */
	uint64_t id;
	struct s3_identity identity;
	/* Statistics for operators: answered requests, answers of 4xx or 5xx among them, and bytes
	 * of bodies. */
	uint64_t answered, errors, bytes_in, bytes_out;
	/* Sends that the device has, until their completion; a send that was posted only in part
	 * has no completion, and stays until the queue pair closes. */
	struct list sends;
	struct native_recv *recvs;
	uint32_t recv_count;
	char peer[64];
	char hello[CAPSULE_HELLO_BYTES_MAX] __attribute__((aligned(8)));
	struct capsule_challenge_wire challenge;
};

/* Checks a session that comes from a completion, a fiber or another file. */
static inline void native_session_check(const struct native_session *session)
{
	CHECK(session->magic == NATIVE_SESSION_MAGIC);
}

/* Shared by the ports of all devices of a server, so that a client with sessions on several of them
 * counts as one. Ports come and go only while no reactor runs. */
struct native_places {
	struct native_port *ports[FRONT_DEVICES_MAX];
	uint32_t port_count;
	_Atomic uint64_t next_id; /* of sessions */
	_Atomic uint32_t share_sessions[FLOW_SHARES];
	/* Frames of all sessions' receives. They are held as long as a session lives, so the other
	 * part of the region is kept for bodies. */
	_Atomic uint32_t recv_frames;
	uint32_t recv_frames_max;
	struct native_once *once;
	/* The addresses that proven clients are told; fixed before there is a session. */
	uint32_t address_count;
	struct capsule_address addresses[CAPSULE_ADDRESSES_MAX];
};

/* Shared by the fronts of all reactors: the device has one registration of the region, and one
 * listener accepts connections. The first front's reactor takes its events and sends them to the
 * session's reactor. */
struct native_port {
	struct rp_pd *pd;
	struct rp_arenas arenas;
	struct front_native *fronts[LIMIT_CORES_MAX];
	uint32_t front_count;
	struct native_places *places;
	uint32_t listener_count;
	struct rp_listener *listeners[FRONT_ADDRESSES_MAX];
	struct rp_events events;
	/* Held while an event with a queue pair is read, and while a queue pair closes, so that a
	 * named queue pair exists. */
	pthread_mutex_t lock;
};

struct front_native {
	struct front_native_opts opts;
	struct region *region;
	struct reactor *reactor;
	struct rp_device_attr attr;
	struct native_port *port;
	struct rp_cq *cq;
	struct reactor_poller poller;
	bool poller_added;
	bool drained; /* takes no more sessions */
	struct reactor_timer sweep;
	uint64_t swept_ns;	  /* time of the last sweep */
	uint64_t wipe_bytes_left; /* rest of what one sweep may wipe of ended leases */
	struct list sessions;
	struct list closing;
	struct list idle_sends;
	struct list send_waiters; /* fibers whose capsule waits for a full send queue */
	/* Includes sessions on their way to this core: the port increments, sessions decrement.
	 */
	_Atomic uint32_t session_count;
	_Atomic uint32_t unproven_count; /* those without proof of a key */
	uint32_t sessions_max;		 /* here */
	uint32_t capsule_bytes;		 /* of our receives */
	uint32_t send_wrs;
	struct prng prng;
	struct fiber *drain_waiter;
};

/* A request while its fiber runs; lives on the fiber's stack. */
#define NATIVE_REQUEST_MAGIC 0x4e410ca1u
struct native_request {
	uint32_t magic; /* until it is answered */
	struct native_session *session;
	struct native_recv *recv;
	struct capsule_request in;
	struct s3_request s3;
	struct s3_reply reply;
	struct s3_body body;
	struct native_stream *stream; /* NULL: not a stream */
	struct once_entry *once;      /* of a numbered write while it runs; or NULL */
	struct s3_lease ask;
	bool has_lease;
	struct capsule_lease lease; /* granted */
	struct flow_peer peer;
	struct flow_remote runs[LIMIT_SGE_MAX];
	struct list link;	       /* session->requests once it has a transfer */
	uint64_t deadline_ns;	       /* the client's; DEADLINE_NONE: none */
	struct flow_progress progress; /* of the transfer, if one runs */
	uint64_t progress_done;	       /* value at the last sweep */
	uint64_t progress_ns;	       /* last time that it did not wait for the device */
	uint32_t progress_pending;     /* work requests that the device had not completed */
	/* The answer. */
	uint64_t server_id;
	uint64_t bytes_announced, bytes_moved;
	const char *refusal; /* a protocol error code that replaces the answer */
	const char *refusal_message;
	struct native_send *send;
	struct flow_sink sink; /* small bodies: inline or direct */
	/* An encrypted session's bodies in the runs. */
	uint64_t counter; /* of the request's capsule */
	struct native_crypt *opener, *sealer;
	bool has_payload_tag;
	uint8_t payload_tag[AEAD_TAG_BYTES]; /* of the sent bytes */
	uint64_t direct_offset;		     /* in the run, of the pieces in send */
	struct region_span span;   /* the response, when it needs more room than small; OWNER_APP */
	uint16_t span_share;	   /* that counts it */
	uint32_t uncounted_frames; /* of this request, until its answer is posted */
	uint8_t *inline_at;	   /* end of the inline body so far */
	uint32_t inline_bytes;	   /* announced */
	size_t headers_bytes;
	uint32_t header_count;
	uint8_t etag_len, code_len;
	uint16_t message_len;
	char etag[CAPSULE_ETAG_LEN_MAX];
	char code[CAPSULE_CODE_LEN_MAX];
	char message[256];
	uint8_t small[NATIVE_INLINE_WR_BYTES] __attribute__((aligned(8)));
	uint8_t headers[CAPSULE_HEADERS_BYTES_MAX];
};

/* Checks a request where s3 calls back: its body, its answer. */
static inline void native_request_check(const struct native_request *request)
{
	CHECK(request->magic == NATIVE_REQUEST_MAGIC);
	native_session_check(request->session);
}

#endif
