/* client/minter_priv.h: RDMA tokens for S3 requests that another library sends.
 *
 *   minter.c        open and close, the device, the thread of the simulated device
 *   minter_qp.c     its queue pairs: connected by ?rdma-connect, checked, closed
 *   minter_token.c  memory, and the tokens of windows of it
 *
 * A minter has its own S3 client, which sends only ?rdma-connect, and separately a device with
 * queue pairs. Any thread may use a minter: `lock` guards all of it. A thread that connects a queue
 * pair sets `connecting`, is the only user of the S3 client, and releases the lock while it waits
 * for the server. */
#ifndef CLIENT_MINTER_PRIV_H
#define CLIENT_MINTER_PRIV_H

#include <pthread.h>

#include "http_priv.h"

/* A failed transfer ends its queue pair and all transfers on it, so parallel requests use
 * several. */
#define MINTER_QPS_MAX		 4u
#define MINTER_TOKENS_MAX	 4096u
#define MINTER_REGISTRATIONS_MAX 1024u
#define MINTER_WHY_BYTES	 160u

_Static_assert(NEB_TOKEN_BYTES == TOKEN_LEN + 1, "a token with its NUL");

/*   CLOSED  -> ASKED   POST /?rdma-connect is on its way
 *   ASKED   -> UP      both ends are ready
 *   any     -> CLOSED  refused, broken, or a token of it failed */
enum minter_phase { MINTER_CLOSED, MINTER_ASKED, MINTER_UP };

struct minter_qp {
	enum minter_phase phase;
	struct rp_qp *qp;
	uint32_t life;	      /* how many times it was closed */
	uint32_t token_count; /* of this life */
	struct rp_address ours;
};

/* The server's operation on the window. */
enum minter_way { MINTER_WRITE, MINTER_READ, MINTER_EITHER, MINTER_WAY_COUNT };

/* Memory of the caller. It is registered with the first token of each direction, so that a GET's
 * token has a key that can only write, and a PUT's one that can only read. */
struct minter_memory {
	struct list link;
	uint8_t *data;
	uint64_t bytes;
	uint32_t refs; /* how many times it is registered; once: 1 */
	bool once;     /* belongs to one token */
	struct rp_mr *mrs[MINTER_WAY_COUNT];
};

struct minter_token {
	struct list link;
	struct minter_memory *memory; /* once: freed with the token; else NULL */
	struct minter_qp *mqp;
	uint32_t life; /* mqp's life when the token was minted */
	char text[NEB_TOKEN_BYTES];
};

struct neb_minter {
	struct neb_client *control;
	struct client_domain domain;
	struct rp_device *device;
	struct rp_cq *cq;
	char bucket[LIMIT_BUCKET_LEN_MAX + 1]; /* of the requests; "": any */
	bool simulated;
	bool has_thread;
	pthread_t thread; /* simulated: moves bytes that the peer cannot access, and notices the
			     peer's end */
	pthread_mutex_t lock;
	pthread_cond_t changed; /* a queue pair's state, or the end of connecting */
	bool ending;
	int wake_fd;
	bool connecting;
	uint32_t attempts;   /* ended attempts to connect */
	int attempt_error;   /* of the last one */
	uint64_t crowded_ns; /* the minter asks the server for no more queue pairs before this */
	char why[MINTER_WHY_BYTES]; /* why the last attempt failed */
	struct minter_qp qps[MINTER_QPS_MAX];
	uint32_t token_count, memory_count;
	struct list tokens, memories;
};

/* ---- minter_qp.c: all with the lock held. ---- */
/* Returns the connected queue pair with the fewest tokens; connects one if there is none, or if
 * another one spreads the load. May release the lock meanwhile. The errno of the attempt, and
 * why. */
int minter_qp_take(struct neb_minter *minter, struct minter_qp **ret_mqp);
/* After the call the server's end can no longer access the caller's memory. */
void minter_qp_close(struct neb_minter *minter, struct minter_qp *mqp);
/* Closes all queue pairs, and disconnects them at the server. Releases the lock meanwhile. */
void minter_qps_end(struct neb_minter *minter);
/* Handles the device's events and completions. */
void minter_progress(struct neb_minter *minter);

/* ---- minter_token.c ---- */
void minter_memory_close(struct neb_minter *minter);

#endif
