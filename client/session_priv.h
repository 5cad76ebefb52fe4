/* client/session_priv.h: RDMA sessions: set-up, capsules, encrypted bodies, reads by lease. */
#ifndef CLIENT_SESSION_PRIV_H
#define CLIENT_SESSION_PRIV_H

#include "call_priv.h"

#define CLIENT_CAPSULE_BYTES	 8192u
#define CLIENT_SECONDS_MAX	 3600u /* of a time in the environment */
#define CLIENT_REQUEST_NS	 (30 * NS_PER_S)
#define CLIENT_CONNECT_NS	 (2 * NS_PER_S)
#define CLIENT_KEEPALIVE_NS	 (5 * NS_PER_S)
#define CLIENT_KEEPALIVE_PARTS	 4u		   /* one of these, where there is another path */
#define CLIENT_LATE_NS		 (300 * NS_PER_MS) /* between two looks: we did not run */
#define CLIENT_CM_POLL_NS	 (1 * NS_PER_MS)
#define CLIENT_WC_BATCH		 16u
#define CLIENT_SEND_INLINE_BYTES 512u
/* How many pages of a list the server may send ahead; each needs a receive besides those of the
 * credits. */
#define CLIENT_LIST_PAGES 4u
/* Receives for these, or for the parts of one encrypted body: a session has one or the other. */
#define CLIENT_MORE_RECEIVES (CAPSULE_PARTS_MAX - 1)
_Static_assert(CLIENT_LIST_PAGES <= CLIENT_MORE_RECEIVES, "a receive for each page");
/* A body in parts: shorter ones are decrypted sooner in one go. */
#define CLIENT_PARTED_BYTES_MIN (32 * KIB)

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
	uint8_t *data; /* the capsule being sent; free again when the response has come */
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
	struct client_device *device;
	struct client_session **home; /* where new calls find it: a path, or an owner's */
	uint32_t serial;
	enum session_phase phase;
	struct rp_qp *qp;
	struct rp_mr *mr; /* of the capsules: local only */
	uint8_t *memory;
	uint64_t memory_bytes;
	uint64_t deadline_ns; /* of set-up */
	struct capsule_cipher in, out;
	bool encrypted;
	bool leases;  /* may be asked for */
	bool once;    /* the server remembers what it did for numbered requests */
	bool streams; /* of lists may be asked for */
	bool parts;   /* of encrypted bodies may be asked for */
	bool paths;   /* the server will tell its addresses */
	/* The call whose body comes in parts: for one there are receives. Or NULL. */
	const struct client_call *parted;
	uint8_t payload_in[AEAD_KEY_BYTES], payload_out[AEAD_KEY_BYTES];
	struct aead_stream *spare_in, *spare_out; /* of bodies' ciphers; or NULL */
	uint32_t lkey;
	uint32_t wr_inline_bytes;
	uint32_t capsule_bytes, inline_bytes; /* negotiated */
	uint64_t transfer_bytes_max;
	uint64_t store_id;
	uint32_t recv_count, slot_count, free_count;
	uint32_t sends_unsignaled, unsignaled_max;
	uint64_t heard, heard_ns; /* the last value of in.counter, and when it changed */
	bool keeping;		  /* a keepalive is on its way */
	uint16_t free_slots[LIMIT_SESSION_REQUESTS_MAX];
	struct client_recv
		recvs[LIMIT_SESSION_REQUESTS_MAX + CAPSULE_SPARE_RECEIVES + CLIENT_MORE_RECEIVES];
	struct client_slot slots[LIMIT_SESSION_REQUESTS_MAX];
	uint8_t transcript[32];
	uint8_t auth_key[32];
	char hello[CAPSULE_HELLO_BYTES_MAX] __attribute__((aligned(8)));
};

/* ---- crypt.c ---- */
/* Encrypts the call's body into separate memory, which the run names, for the session's next
 * capsule. The server's answer may land there, too. -EFBIG: beyond AEAD_MESSAGE_BYTES_MAX. */
int client_body_seal(struct client_session *session, struct client_call *call,
	struct capsule_run *ret_run, uint8_t ret_tag[AEAD_TAG_BYTES]);
/* Decrypts in place what the server has written so far, in all bytes; nobody may use it yet. */
int client_part_open(struct client_session *session, struct client_call *call, uint64_t bytes);
/* Decrypts the rest in place. -EBADMSG: the bytes were changed on the way. The session must then be
 * lost, and the end of the call's try wipes them. */
int client_answer_open(struct client_session *session, struct client_call *call, uint64_t bytes,
	struct slice payload_tag);
/* The try ends before the body was verified: wipes what was decrypted. */
void client_opened_drop(struct client_call *call) __attribute__((cold));

/* ---- session_post_dp.c ---- */
int client_recv_post(struct client_recv *recv);
int client_send(struct client_session *session, const void *capsule, uint8_t *registered);
/* Checks that the server's device still answers. */
void client_keepalive_send(struct client_session *session) __attribute__((cold));

/* ---- session.c ---- */
/* Returns the session for a new call: of the open ones the one with most room, else one being set
 * up; begins them if they are due. NULL: none is possible now. */
struct client_session *client_session_want(struct neb_client *client);
/* The same, without beginning any. */
struct client_session *client_path_best(const struct neb_client *client);
/* The session with this number; NULL: it has ended. */
struct client_session *client_session_of(const struct neb_client *client, uint32_t serial);
/* Begins sessions on the paths that have none while others have one, when they are due. */
void client_paths_probe(struct neb_client *client, uint64_t now_ns);
/* The paths of the group in use, without those that are told no more. */
uint32_t client_paths_now(const struct neb_client *client);
/* The session's server has told addresses: sessions begin there, if its group is the one in use. */
void client_paths_told(struct client_session *session);
/* Begins one. It is put into *home, and taken out when it takes no new calls. */
void client_session_begin(
	struct neb_client *client, struct client_endpoint *endpoint, struct client_session **home);
void client_session_lose(struct client_session *session, int error, const char *why)
	__attribute__((cold));
void client_sessions_reap(struct neb_client *client);
/* Handles connection events, and set-ups that take too long. */
void client_cm_progress(struct neb_client *client, uint64_t now_ns);
/* Checks servers that have been silent for long. */
void client_sessions_keep(struct neb_client *client, uint64_t now_ns);
/* The session's queue pair failed with this status. */
void client_session_broken(struct client_session *session, enum rp_status status)
	__attribute__((cold));
/* A set-up capsule came. */
void client_session_setup(struct client_session *session, const void *capsule, uint32_t bytes);

/* ---- told.c ---- */
/* Whether the session's server is asked for its further addresses. */
bool client_wants_told(const struct client_session *session);
/* The server of this group tells no addresses. */
void client_told_none(struct neb_client *client, uint32_t group);
/* A verified PATHS came: its addresses become endpoints. -EPROTO: malformed, or not asked for. */
int client_told(struct client_session *session, const void *capsule, uint32_t bytes)
	__attribute__((cold));

/* ---- session_dp.c ---- */
/* 0; -EAGAIN: no free slot; other errors: this call cannot be sent. */
int client_session_start(struct client_session *session, struct client_call *call);
/* Handles completions; returns how many. */
uint32_t client_cq_progress(struct neb_client *client);

/* ---- lease_dp.c ---- */
int client_leases_open(struct neb_client *client);
void client_leases_close(struct neb_client *client);
/* Reads the call's object from the server's memory if there is a lease on it, of this session or of
 * another path's: true, the read has started. Otherwise call->lease says whether to ask for a
 * lease. */
bool client_lease_read(struct client_session *session, struct client_call *call);
/* Takes the lease that an answer may have brought. */
void client_lease_take(struct client_session *session, struct client_call *call,
	const struct capsule_response *response);
/* Handles the end of such a read. */
void client_lease_landed(struct client_session *session, uint32_t slot_idx, const struct rp_wc *wc);

#endif
