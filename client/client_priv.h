/* client/client_priv.h: what the files of libnebulaio share.
 *
 *   client.c      options, open and close, log
 *   endpoint.c    where to go
 *   device.c      by which RDMA device
 *   memory.c      the pool, registrations, what the device may touch for one request
 *   gpu.c         memory of a GPU
 *   call.c        a request's life: copied, routed, tried again, finished; submit, poll, wait
 *   session.c     an RDMA session's life: connect, prove, fail
 *   session_dp.c  capsules out and in: the way of the microsecond
 *   lease_dp.c    objects read from the server's memory
 *   crypt.c       bodies of encrypted sessions
 *   http.c        the same requests over HTTP, by libcurl
 *   token.c       bodies by RDMA tokens in HTTP requests
 *   sigv4.c       signing them
 *   ops.c         the calls for the common operations; listings
 *   pool.c        clients for many threads
 *
 * One thread at a time uses a client with all that belongs to it. */
#ifndef CLIENT_CLIENT_PRIV_H
#define CLIENT_CLIENT_PRIV_H

#include <curl/curl.h>

#include "base/base.h"
#include "codec/capsule.h"
#include "codec/codec.h"
#include "codec/token.h"
#include "nebulaio/nebulaio.h"
#include "rdma/rdma.h"

#define CLIENT_ENDPOINTS_MAX	 16u
#define CLIENT_HOST_LEN_MAX	 255u
#define CLIENT_ADDRESS_BYTES	 64u /* an address in digits, with its scope */
#define CLIENT_CAPSULE_BYTES	 8192u
#define CLIENT_REGISTRATIONS_MAX 256u
/* Unregistered bodies up to here go through the pool by copy, larger ones are registered. */
#define CLIENT_BOUNCE_BYTES_MAX	 (64 * KIB)
#define CLIENT_BACKOFF_NS_MIN	 (100 * NS_PER_MS)
#define CLIENT_BACKOFF_NS_MAX	 (10 * NS_PER_S)
#define CLIENT_ATTEMPTS_MAX	 4u
#define CLIENT_BUSY_NS_MIN	 (50 * NS_PER_MS) /* after a 503, the first time */
#define CLIENT_POOL_CLIENTS_MAX	 1024u
#define CLIENT_GRACE_NS		 (1 * NS_PER_S) /* past a deadline that the server knows, too */
#define CLIENT_CONNECT_NS	 (2 * NS_PER_S)
#define CLIENT_CONNECT_ALONE_NS	 (30 * NS_PER_S) /* where there is no other way to go */
#define CLIENT_KEEPALIVE_NS	 (5 * NS_PER_S)
#define CLIENT_LATE_NS		 (300 * NS_PER_MS) /* between two looks: we did not run */
#define CLIENT_CM_POLL_NS	 (1 * NS_PER_MS)
#define CLIENT_WC_BATCH		 16u
#define CLIENT_TEXT_BYTES	 512u
#define CLIENT_SEND_INLINE_BYTES 512u
#define CLIENT_EASIES_MAX	 64u
/* Pages of a list that the server may be ahead; a receive for each beside the credits'. */
#define CLIENT_LIST_PAGES 4u

enum client_scheme { CLIENT_RDMA, CLIENT_HTTP, CLIENT_HTTPS };

struct client_endpoint {
	enum client_scheme scheme;
	uint16_t port;
	char host[CLIENT_HOST_LEN_MAX + 1];
	uint64_t retry_ns;   /* not tried again before this */
	uint64_t backoff_ns; /* 0: it was well the last time */
	bool warned;	     /* of this outage */
	bool token;	     /* bodies move by RDMA tokens */
	struct client_token *tokens;
	int error;     /* and */
	char why[128]; /* it could not be had */
};

struct client_registration {
	uint8_t *data;
	uint64_t bytes;
	struct rp_mr *mr;
};

/* The pool: one memfd, first fit in whole pages, free runs joined at once. */
struct client_pool {
	uint8_t *base;
	uint64_t bytes;
	int fd;
	struct rp_mr *mr;
	uint32_t page_count;
	uint32_t hint;	/* where to begin looking */
	uint32_t *runs; /* of pages: at a run's first page its length, with CLIENT_RUN_USED */
};
#define CLIENT_RUN_USED 0x80000000u

/* The life of a call:
 *
 *   QUEUED   wants a way            -> RDMA with a slot of an open session, HTTP, or DONE
 *   RDMA     capsule sent           -> DONE by its response; QUEUED when the session is lost
 *   HTTP     with libcurl           -> DONE; QUEUED when the connection is lost
 *   DONE     has its result         -> free, once the result is taken */
enum client_phase { CLIENT_QUEUED, CLIENT_ON_RDMA, CLIENT_ON_HTTP, CLIENT_DONE };

/* A list's pages, as they come: each in the into that its number says; the last one comes with the
 * result. */
struct client_pages {
	void (*page)(void *arg, const void *data, uint64_t bytes);
	void *arg;
	uint32_t count; /* that came before the last */
};

struct client_session;
struct client_lease;
struct reg_cache;
struct reg_entry;
struct client_call {
	struct list link; /* the client's list of its phase */
	struct neb_client *client;
	enum client_phase phase;
	uint8_t op; /* enum neb_op */
	uint8_t method;
	bool want_headers;
	bool idempotent;
	uint8_t attempts;
	uint32_t retries;      /* after a 503 */
	uint64_t not_again_ns; /* before: 0 but for those */
	neb_done_fn *done;
	struct client_pages *pages; /* NULL: it has one answer */
	uint64_t begun_ns, deadline_ns;
	struct slice bucket, key, version_id, query; /* key: NEB_S3's path */
	struct slice headers;			     /* encoded as in a capsule */
	uint32_t header_count;
	uint32_t body_count, into_count;
	struct neb_iov body[NEB_IOV_MAX], into[NEB_IOV_MAX];
	uint64_t body_bytes, into_bytes;
	uint64_t range_offset, range_bytes;
	uint8_t checksum_kind;
	uint8_t checksum[CHECKSUM_BYTES_MAX];
	/* Over RDMA. */
	struct client_session *session;
	uint32_t slot_idx;
	void *bounce; /* of the pool, for body or into */
	void *sealed; /* an encrypted body that the pool did not hold */
	uint64_t sealed_bytes;
	uint64_t counter;	    /* of the request's capsule */
	struct client_lease *lease; /* it reads by, or would like to have */
	struct capsule_lease grant; /* as it was when the read began */
	uint64_t landing_bytes;
	void *landing;	   /* where the bytes come to lie */
	uint32_t mr_count; /* made for this call */
	struct rp_mr *mrs[NEB_IOV_MAX];
	uint32_t cached_count; /* in use by this call */
	struct reg_entry *cached[NEB_IOV_MAX];
	/* Over HTTP. */
	CURL *easy;
	struct client_endpoint *endpoint;
	bool other_store; /* the endpoint is of another one */
	bool by_token;	  /* of this try: the body moves by RDMA */
	uint8_t declines; /* of its tokens */
	void (*internal)(struct client_call
			*call); /* the library's own: takes its result; NULL: the caller's */
	uint32_t token_reply;	/* x-amz-rdma-reply; 0: none */
	uint64_t token_moved;
	char token[TOKEN_LEN + 1];
	struct curl_slist *curl_headers;
	struct buf answer_error; /* an error document */
	uint64_t moved;		 /* of body or into */
	struct neb_result result;
	char *more_text; /* from the heap, when text does not hold it */
	char text[CLIENT_TEXT_BYTES];
};

/* A posted receive. */
struct client_recv {
	struct client_session *session;
	uint8_t *data;
};

/* A work request's wr_id: the session's serial number, what it was, and for a receive its index. A
 * completion that outlives its session names none. */
#define CLIENT_WR_SEND 0x80000000u
#define CLIENT_WR_READ 0x40000000u /* with the slot's index */
#define CLIENT_WR_KEEP 0x20000000u /* a keepalive */

struct client_slot {
	struct client_call *call; /* NULL: free */
	uint32_t generation;
	uint8_t *data; /* the capsule being sent: ours again when the response has come */
};

/* The life of a session:
 *
 *   CONNECTING  -> GREETING by ESTABLISHED: HELLO is sent
 *   GREETING    -> PROVING by CHALLENGE: PROOF is sent
 *   PROVING     -> OPEN by a WELCOME that holds
 *   OPEN        -> LEAVING by the server's GOODBYE: no new calls
 *   any         -> LOST; freed when no completion can name it any more */
enum session_phase {
	SESSION_CONNECTING,
	SESSION_GREETING,
	SESSION_PROVING,
	SESSION_OPEN,
	SESSION_LEAVING,
	SESSION_LOST,
};

struct client_session {
	struct list link;
	struct neb_client *client;
	struct client_endpoint *endpoint;
	uint32_t serial;
	enum session_phase phase;
	struct rp_qp *qp;
	struct rp_mr *mr; /* of the capsules: local only */
	uint8_t *memory;
	uint64_t memory_bytes;
	uint64_t deadline_ns; /* of set-up */
	struct capsule_lane in, out;
	bool encrypted;
	bool leases;  /* may be asked for */
	bool streams; /* of lists may be asked for */
	uint8_t payload_in[AEAD_KEY_BYTES], payload_out[AEAD_KEY_BYTES];
	uint32_t lkey;
	uint32_t wr_inline_bytes;
	uint32_t capsule_bytes, inline_bytes; /* negotiated */
	uint64_t transfer_bytes_max;
	uint64_t store_id;
	uint32_t recv_count, slot_count, free_count;
	uint32_t sends_quiet, quiet_max;
	uint64_t heard, heard_ns; /* of in.counter: what it was when it last moved, and when */
	bool keeping;		  /* a keepalive is on its way */
	uint16_t free_slots[LIMIT_SESSION_REQUESTS_MAX];
	struct client_recv
		recvs[LIMIT_SESSION_REQUESTS_MAX + CAPSULE_SPARE_RECEIVES + CLIENT_LIST_PAGES];
	struct client_slot slots[LIMIT_SESSION_REQUESTS_MAX];
	uint8_t transcript[32];
	uint8_t auth_key[32];
	char hello[CAPSULE_HELLO_BYTES_MAX] __attribute__((aligned(8)));
};

struct neb_client {
	enum neb_transport transport;
	char access_key[LIMIT_ACCESS_KEY_LEN_MAX + 1];
	char secret_key[LIMIT_SECRET_KEY_LEN_MAX + 1];
	char region[64];
	uint32_t requests_max, inline_bytes_max, retries_max;
	uint64_t connect_timeout_ns, request_timeout_ns, spin_ns, keepalive_ns;
	bool require_encryption;
	neb_log_fn *log;
	void *log_arg;
	uint32_t endpoint_count, rdma_count, http_count, token_count;
	struct client_endpoint endpoints[CLIENT_ENDPOINTS_MAX];
	struct prng prng;
	/* Which store the endpoints are of; 0: none has said yet. Its own, or its pool's. */
	_Atomic uint64_t *store_id, own_store_id;
	/* RDMA; all NULL without an RDMA endpoint. */
	struct rp_device *device;
	struct rp_pd *pd;
	struct rp_cq *cq;
	struct client_session *session; /* for new calls; NULL: none, or being set up */
	struct list sessions, lost_sessions;
	uint32_t next_serial;
	bool gpu_failed;    /* a copy to or from a GPU did */
	int rdma_error;	    /* of the last outage */
	int wake_fd;	    /* an eventfd: what neb_wake rings */
	_Atomic bool woken; /* and what a wait that spins looks at */
	bool simulated;	    /* the device is */
	char device_name[sizeof(((struct rp_found *)0)->device_name)];
	char device_why[sizeof(((struct rp_found *)0)->why)]; /* it is that one, or none */
	uint64_t kept_ns; /* when sessions were last looked after */
	uint64_t cm_polled_ns;
	uint32_t idle_rounds; /* since the clock was last looked at */
	bool kick;
	struct client_pool pool;
	struct reg_cache *reg_cache; /* NULL: off */
	uint32_t registration_count;
	struct client_registration registrations[CLIENT_REGISTRATIONS_MAX]; /* by address */
	/* HTTP. */
	CURLM *multi;
	uint32_t easy_count;
	CURL *easies[CLIENT_EASIES_MAX];
	uint32_t http_running;
	/* Calls by phase. */
	struct list queued, running, done, idle_calls;
	uint32_t call_count; /* without a result taken */
	uint32_t undone_count;
	uint64_t next_id;
	struct client_lease *leases; /* NULL: off */
	struct neb_stats stats;
};

/* ---- log.c ---- */
void client_log(struct neb_client *client, enum neb_log_level level, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* ---- endpoint.c ---- */
/* An outage of an endpoint: when to try again, and a warning once. */
void client_endpoint_failed(
	struct neb_client *client, struct client_endpoint *endpoint, int error, const char *why);
/* Those of the text that the transport has a use for; -EINVAL, which is logged. */
int client_endpoints_parse(struct neb_client *client, const char *endpoints);

/* The endpoint says which store it is of: 0, or -EXDEV, and the endpoint's why: not the one that
 * the others are of. */
int client_store_learn(
	struct neb_client *client, struct client_endpoint *endpoint, uint64_t store_id);
/* The header that tells an endpoint which store is meant: its name, and its value for now. */
#define CLIENT_STORE_HEADER "x-nebulaio-store"
void client_store_text(const struct neb_client *client, char text[17]);

/* ---- device.c ---- */
/* Opens the named device, or with NULL, "" or "auto" the one that leads to an endpoint; logged, and
 * client->device_why says why. */
int client_device_open(struct neb_client *client, const char *wanted);
void client_device_close(struct neb_client *client);
/* The host's address in digits, which is what a connection manager takes. May ask a name server.
 * -EHOSTUNREACH, with why. */
int client_resolve(const char *host, char *ret_address, size_t address_bytes, const char **ret_why);

/* ---- memory.c ---- */
int client_pool_open(struct neb_client *client, uint64_t bytes);
void client_pool_close(struct neb_client *client);
void *client_pool_get(struct neb_client *client, uint64_t bytes);
void client_pool_put(struct neb_client *client, void *data);
/* The runs for a call's into, or with body for its body (and for its into: the same runs then
 * serve one after the other). Known memory is named as it is; other memory is copied through the
 * pool or registered for the call. */
int client_runs(
	struct client_call *call, bool body, struct capsule_run *ret_runs, uint32_t *ret_run_count);
/* All of the call's into lies in memory that the device knows. */
bool client_memory_known(const struct client_call *call);
/* Ends what client_runs did; moved: bytes of into that came through the pool. */
void client_runs_end(struct client_call *call, uint64_t moved);
/* 0 bytes, or no device: none. */
int client_reg_cache_open(struct neb_client *client, uint64_t bytes);
void client_registrations_close(struct neb_client *client);
/* Copies into the call's into, or out of its body, from an offset on; counted. */
void client_scatter(struct client_call *call, uint64_t offset, const void *data, uint64_t bytes);
void client_gather(struct client_call *call, uint64_t offset, void *data, uint64_t bytes);
/* theirs is to or from, and may be a GPU's. */
void client_piece_copy(
	struct neb_client *client, void *to, const void *from, uint64_t bytes, const void *theirs);

/* The local key of memory that the device knows; false: it does not, or the processor cannot read
 * it. */
bool client_memory_lkey(
	const struct neb_client *client, const void *data, uint64_t bytes, uint32_t *ret_lkey);
/* Any memory that the device knows for the call: of the pool, or mapped and registered for it. */
int client_memory_lease(struct client_call *call, uint64_t bytes, struct capsule_run *ret_run);

/* ---- crypt.c ---- */
/* Encrypts the call's body into memory of its own, which the run names, for the session's next
 * capsule; what comes back from the server may land there, too. */
int client_body_seal(struct client_session *session, struct client_call *call,
	struct capsule_run *ret_run, uint8_t ret_tag[AEAD_TAG_BYTES]);
/* Decrypts what the server wrote, where it lies. -EBADMSG: it is not what the server sent, and has
 * been wiped. */
int client_answer_open(struct client_session *session, struct client_call *call, uint64_t bytes,
	struct slice payload_tag);

/* ---- gpu.c ---- */
/* Whether the program has loaded CUDA by now; cheap, and any thread may ask. */
void client_gpu_look(void);
/* The address is a GPU's: the processor cannot reach it. */
bool client_gpu_owns(const void *data);
/* Waits until the GPU has done what it was told before, so that its memory is what the program
 * means. -EIO. */
int client_gpu_settle(const void *data);
/* Between a GPU's memory and ours, or two of a GPU's. -EIO. */
int client_gpu_copy(void *to, const void *from, uint64_t bytes);
/* -EOPNOTSUPP, or as rp_mr_open: the card cannot reach it. */
int client_gpu_register(struct neb_client *client, void *data, uint64_t bytes, uint32_t access,
	struct rp_mr **ret_mr);

/* ---- call.c ---- */
/* A queued call with a copy of all that the request names but its body and into. -EINVAL, -ENOMEM,
 * -EIO. */
int client_call_make(struct neb_client *client, const struct neb_request *request,
	struct client_call **ret_call);
/* The call is over and its result handed out. */
void client_call_give(struct client_call *call);
void client_result_init(struct neb_result *result, uint64_t id, void *user_data);
/* Copies the result; its pointers lead into the copy. */
void client_result_copy(struct neb_result *to, const struct neb_result *from);
/* Its way was lost before an answer: another try, another way, or the end. */
void client_call_retry(struct client_call *call, int error, const char *why);
/* With the result's answer filled in, or error when there is none. */
void client_call_finish(struct client_call *call, int error);
/* Queues a request of the library's own, which goes to the endpoint over HTTP; internal takes its
 * result. */
int client_call_internal(struct neb_client *client, const struct neb_request *request,
	struct client_endpoint *endpoint, void (*internal)(struct client_call *call));
/* The errno of an S3 status. */
int client_status_error(uint32_t status);
/* Has queued calls routed in the next round: a session opened, was lost, or a slot came free. */
static inline void client_calls_kick(struct neb_client *client)
{
	client->kick = true;
}
/* What an opcode is over HTTP; NULL: no operation of ours. */
struct client_op {
	const char *method;
	const char *query; /* the parameter that selects it, or NULL */
	bool idempotent;
};
const struct client_op *client_op_of(const struct client_call *call);

/* ---- session_post_dp.c ---- */
int client_recv_post(struct client_recv *recv);
int client_send(struct client_session *session, const void *capsule, uint8_t *registered);
/* Asks the server's device whether it is there. */
void client_keepalive_send(struct client_session *session) __attribute__((cold));

/* ---- session.c ---- */
/* A session that is open or on its way, begun if one is due; NULL: none can be had now. */
struct client_session *client_session_want(struct neb_client *client);
void client_session_lose(struct client_session *session, int error, const char *why)
	__attribute__((cold));
void client_sessions_bury(struct neb_client *client);
/* Connection events, and set-ups that take too long. */
void client_cm_progress(struct neb_client *client, uint64_t now_ns);
/* Looks after servers that have been silent for long. */
void client_sessions_keep(struct neb_client *client, uint64_t now_ns);
/* Work on the session's queue pair ended so. */
void client_session_broken(struct client_session *session, enum rp_status status)
	__attribute__((cold));
/* A set-up capsule came. */
void client_session_setup(struct client_session *session, const void *capsule, uint32_t bytes);

/* ---- session_dp.c ---- */
/* 0; -EAGAIN: no free slot; else this call cannot go. */
int client_session_start(struct client_session *session, struct client_call *call);
/* Handles completions; returns how many. */
uint32_t client_cq_progress(struct neb_client *client);

/* ---- lease_dp.c ---- */
int client_leases_open(struct neb_client *client);
void client_leases_close(struct neb_client *client);
/* Reads the call's object from the server's memory, if there is a lease on it: true, it is on its
 * way. Else call->lease says whether to ask for one. */
bool client_lease_read(struct client_session *session, struct client_call *call);
/* An answer may have brought a lease. */
void client_lease_take(struct client_session *session, struct client_call *call,
	const struct capsule_response *response);
/* A read has ended. */
void client_lease_landed(struct client_session *session, uint32_t slot_idx, const struct rp_wc *wc);

/* ---- http.c ---- */
int client_http_start(struct client_call *call, struct client_endpoint *endpoint);
void client_http_progress(struct neb_client *client);
void client_http_close(struct neb_client *client);

/* ---- token.c ---- */
/* Readies the call for its way by token: 0: call->token is set, or it goes without one; -EAGAIN:
 * the queue pair is being connected, the call stays queued. */
int client_token_prepare(struct client_call *call, struct client_endpoint *endpoint);
/* Its answer, or its end without one, has come: true when it was declined and must be asked again.
 */
bool client_token_finish(struct client_call *call, bool answered);
/* Takes a header of its answer. */
void client_token_header(struct client_call *call, struct slice name, struct slice value);
void client_tokens_close(struct neb_client *client);

/* ---- progress.c ---- */
/* One round of everything that does not sleep. */
void client_progress(struct neb_client *client);
/* neb_perform, with pages told as they come. */
int client_perform(struct neb_client *client, const struct neb_request *request,
	struct client_pages *pages, struct neb_result *ret_result);

/* ---- client.c ---- */
/* neb_client_open, of a pool's: with the id that its clients share. */
int client_open(const struct neb_options *options, _Atomic uint64_t *store_id,
	struct neb_client **ret_client);

/* ---- sigv4.c ---- */
/* Adds the signed headers of a request to list; NULL when memory ran out (list is freed then). */
struct client_signing {
	const char *method;
	struct slice host;
	struct slice path;  /* percent-encoded */
	struct slice query; /* percent-encoded */
	int64_t now_ms;
};
struct curl_slist *client_sign(
	struct client_call *call, const struct client_signing *signing, struct curl_slist *list);

#endif
