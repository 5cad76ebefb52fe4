/* client/call_priv.h: a request's life, over RDMA or HTTP. */
#ifndef CLIENT_CALL_PRIV_H
#define CLIENT_CALL_PRIV_H

#include "client_priv.h"

#define CLIENT_ATTEMPTS_MAX 4u
#define CLIENT_BUSY_NS_MIN  (50 * NS_PER_MS) /* after a 503, the first time */
#define CLIENT_GRACE_NS	    (1 * NS_PER_S)   /* past a deadline that the server knows, too */
#define CLIENT_TEXT_BYTES   512u
/* libcurl counts milliseconds in an int; no sum with the time of day overflows. */
#define CLIENT_TIMEOUT_NS_MAX (20 * 86400 * NS_PER_S)

/* The life of a call:
 *
 *   QUEUED   wants a way            -> RDMA with a slot of an open session, HTTP, or DONE
 *   RDMA     capsule sent           -> DONE by its response; QUEUED when the session is lost
 *   HTTP     with libcurl           -> DONE; QUEUED when the connection is lost
 *   HIPOBJ   its control requests   -> DONE; HTTP when the server does not support it
 *   DONE     has its result         -> free, once the result is taken */
enum client_phase { CLIENT_QUEUED, CLIENT_ON_RDMA, CLIENT_ON_HTTP, CLIENT_ON_HIPOBJ, CLIENT_DONE };

/* The pages of a list as they arrive: each goes into the `into` with its number; the last one comes
 * with the result. */
struct client_pages {
	void (*page)(void *arg, const void *data, uint64_t bytes);
	void *arg;
	uint32_t count; /* that came before the last */
};

struct client_session;
struct client_lease;
struct client_token;
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
	bool writes;
	bool sure;   /* to do it twice is not the same: it is not idempotent, or has a condition */
	bool fresh;  /* over HTTP it gets a new connection */
	bool repeat; /* a session was lost that had it, so it may be done already */
	uint64_t number; /* 0: it has none */
	struct list numbered;
	uint8_t attempts;
	uint32_t retries;	      /* after a 503 */
	uint64_t not_again_ns;	      /* not tried again before this; 0 unless it was retried */
	uint32_t device_idx;	      /* of the try that runs */
	struct client_endpoint *left; /* where its last session was lost; NULL: none was */
	neb_done_fn *done;
	struct list *ended; /* the list for it when it is DONE: the client's, or a batch's */
	struct client_pages *pages; /* NULL: it has one answer */
	uint64_t begun_ns, deadline_ns;
	uint64_t lease_asked_ns;		     /* CLOCK_BOOTTIME; for leases */
	struct slice bucket, key, version_id, query; /* key: NEB_S3's path */
	struct slice headers;			     /* encoded as in a capsule */
	uint32_t header_count;
	uint32_t body_count, into_count;
	struct neb_iov body[NEB_IOV_MAX], into[NEB_IOV_MAX];
	uint64_t body_bytes, into_bytes;
	uint64_t range_offset, range_bytes;
	uint8_t checksum_kind;
	uint8_t checksum[CHECKSUM_BYTES_MAX];
	bool gpu_landing; /* what was copied into a GPU's memory may be on its way there */
	/* Over RDMA. */
	struct client_session *session;
	uint32_t slot_idx;
	void *bounce; /* of the pool, for body or into */
	void *sealed; /* an encrypted body that the pool did not hold */
	uint64_t sealed_bytes;
	uint64_t counter;	    /* of the request's capsule */
	struct aead_stream *opener; /* of an encrypted body that is half decrypted; or NULL */
	uint64_t opened;	    /* so many bytes of it */
	struct client_lease *lease; /* the lease that it reads by, or wants to get */
	struct capsule_lease grant; /* as it was when the read began … */
	uint64_t grant_until_ns;    /* … and its end */
	uint64_t landing_bytes;
	void *landing;	   /* the address where the received bytes land */
	uint32_t mr_count; /* made for this call */
	struct rp_mr *mrs[NEB_IOV_MAX];
	uint32_t cached_count; /* in use by this call */
	struct reg_entry *cached[NEB_IOV_MAX];
	/* Over HTTP. */
	CURL *easy;
	struct client_endpoint *endpoint;
	bool other_store;	     /* the endpoint belongs to another store */
	bool by_token;		     /* in this try, the body moves by RDMA */
	struct client_token *tokens; /* by_token: of this queue pair */
	uint8_t declines;	     /* of its tokens */
	void (*internal)(struct client_call
			*call); /* the library's own: takes its result; NULL: the caller's */
	uint32_t token_reply;	/* x-amz-rdma-reply; 0: none */
	uint64_t token_moved;
	char token[TOKEN_LEN + 1];
	struct client_hipobj *hipobj; /* CLIENT_ON_HIPOBJ: its transfer */
	struct curl_slist *curl_headers;
	struct buf answer_error; /* an error document */
	uint64_t moved;		 /* of body or into */
	struct neb_result result;
	char *more_text; /* from the heap, when text does not hold it */
	char text[CLIENT_TEXT_BYTES];
};

/* ---- call.c ---- */
/* Makes a queued call with a copy of everything that the request names, except its body and into.
 * -EINVAL, -ENOMEM, -EIO. */
int client_call_make(struct neb_client *client, const struct neb_request *request,
	struct client_call **ret_call);
/* Writes why client_call_make returns -EINVAL for the request. */
void client_request_why(const struct neb_request *request, char *text, size_t bytes);
/* Frees a call that has ended and whose result was taken. */
void client_call_give(struct client_call *call);
void client_result_init(struct neb_result *result, uint64_t id, void *user_data);
/* Copies the result; its pointers point into the copy. */
void client_result_copy(struct neb_result *to, const struct neb_result *from);
/* The connection was lost before an answer: tries again, tries the other transport, or ends the
 * call. */
void client_call_retry(struct client_call *call, int error, const char *why);
/* The same where certainly no byte of the request left this host in this try: it may be sent to the
 * next endpoint, whatever it does. */
void client_call_unsent(struct client_call *call, int error, const char *why);
/* Ends the call, with the result's answer filled in, or with error when there is none. */
void client_call_finish(struct client_call *call, int error);
/* It is sent on a session again, after it lost one. */
void client_call_moved(struct client_call *call, const struct client_endpoint *to)
	__attribute__((cold));
/* Whether it may be done already and only its server knows: it waits for a session with it. */
static inline bool client_call_bound(const struct client_call *call)
{
	return call->repeat && call->sure;
}
/* Gives a write its number, unless it has one, and returns what its capsule says about it. */
void client_call_number(struct client_call *call, struct capsule_once *ret_once);
/* Queues a request of the library itself, which goes to the endpoint over HTTP; internal takes its
 * result. fresh: it must not arrive twice. */
int client_call_internal(struct neb_client *client, const struct neb_request *request,
	struct client_endpoint *endpoint, bool fresh, void (*internal)(struct client_call *call));
/* The errno of an S3 status. */
int client_status_error(uint32_t status);
/* Routes queued calls in the next round: a session opened or was lost, or a slot came free. */
static inline void client_calls_kick(struct neb_client *client)
{
	client->kick = true;
}
/* The HTTP form of an opcode; NULL: not one of our operations. */
struct client_op {
	const char *method;
	const char *query; /* the parameter that selects it, or NULL */
	bool idempotent;
	enum client_of { /* what it is done to, whose names the request must have, and no others */
		CLIENT_OF_SERVICE,
		CLIENT_OF_BUCKET,
		CLIENT_OF_OBJECT,
		CLIENT_OF_PATH, /* NEB_S3: the path says it */
	} of;
};
const struct client_op *client_op_of(const struct client_call *call);

/* ---- bucket.c ---- */
#define CLIENT_OWNER_HEADER	"x-nebulaio-owner"
#define CLIENT_OWNER_ADDR_BYTES 80u
struct client_bucket {
	char name[LIMIT_BUCKET_LEN_MAX + 1];
	char owner[CLIENT_OWNER_ADDR_BYTES]; /* "ADDR:PORT"; empty: not known */
	uint64_t told;			     /* number of the answer that told it */
};
int client_buckets_open(struct neb_client *client);
void client_buckets_close(struct neb_client *client); /* takes one that was not opened */
/* Where the owner of the bucket's store is; NULL: not known. */
const struct client_bucket *client_bucket_find(const struct neb_client *client, struct slice name);
/* Takes the owner that an answer to the call names. */
void client_bucket_told(struct client_call *call, struct slice address);
/* How many times owners were told. */
uint64_t client_buckets_told(const struct neb_client *client);
/* Looks at an answer, and forgets the bucket when its owner cannot serve it now. True: it does not
 * have the bucket (any more), and a gateway is to be asked. */
bool client_bucket_gone(const struct client_call *call);

/* Notes in a result's headers, once, that one did not fit: they always leave room for it. */
#define CLIENT_CUT "x-nebulaio-cut: 1\n"
void client_headers_cut(struct neb_result *result);

/* ---- owner.c ---- */
int client_owners_open(struct neb_client *client);
void client_owners_close(struct neb_client *client);
/* Routes the call to the owner of its bucket: true, it is on its way or waits for the session.
 * False: it uses HTTP; *ret_why says why although the owner is known, or stays as it is. */
bool client_owner_route(struct client_call *call, const char **ret_why);

/* ---- progress.c ---- */
/* One round of all the work that does not sleep. */
void client_progress(struct neb_client *client);

/* Sleeps until something may have come, or until that time. */
void client_sleep(struct neb_client *client, uint64_t until_ns);
/* As neb_submit, but the call goes to this list when it is DONE. */
int client_submit(struct neb_client *client, const struct neb_request *request, struct list *ended);
/* Makes progress until that list has a call, neb_wake is called, or the time is over. */
void client_wait_list(struct neb_client *client, const struct list *ended, uint64_t until_ns);
/* Options that neb_batch lacks. With headers, each request has them and wants those of the answer.
 */
struct client_batch_more {
	const struct neb_header *headers;
	uint32_t header_count;
	uint64_t request_timeout_ns; /* [the client's] */
	int stopped; /* out: the error of items that were not sent, even if there were none; or 0 */
};
/* As neb_get_batch. more: NULL, nothing. batch.c. */
int client_get_batch(
	struct neb_client *client, const struct neb_batch *batch, struct client_batch_more *more);
/* As neb_perform, and reports pages as they arrive. */
int client_perform(struct neb_client *client, const struct neb_request *request,
	struct client_pages *pages, struct neb_result *ret_result);

/* ---- fan_cast.c ---- */
/* A download by multicast. */
struct client_cast {
	const struct neb_fan_out *fan_out;
	struct neb_multicast *told;
	const char *value;    /* of NEB_FAN_OUT_HEADER */
	const char *if_match; /* the version */
	uint64_t object_bytes;
	struct neb_result *result; /* of the last answer, or of the one that failed */
};
/* Reads the object. -EOPNOTSUPP: not by multicast, told has the reason, and nothing was read; other
 * errors are the download's. */
int client_cast_get(struct neb_client *client, const struct client_cast *cast);

#endif
