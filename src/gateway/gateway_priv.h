/* gateway/gateway_priv.h: shared by the files of gateway.
 *
 *   gateway.c  opens and closes
 *   keeper.c   the thread that lives, takes, moves and gives stores
 *   child.c    the process of a store
 *   route.c    which store a request is for, and where that is
 *   places.c   what one client may take of what all share
 *   link.c     a connection to a store's process: one exchange of heads
 *   pass.c     a request that is passed on
 *   copy.c     a copy between two stores
 *   lists.c    ListBuckets over all stores
 *   rdma.c     which store a set-up of RDMA is for
 *   pages.c    pages for operators */
#ifndef GATEWAY_GATEWAY_PRIV_H
#define GATEWAY_GATEWAY_PRIV_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "base/ticker.h"
#include "cluster/cluster.h"
#include "codec/carry.h"
#include "codec/via.h"
#include "flow/flow.h"
#include "front/front.h"
#include "gateway/gateway.h"
#include "listen/listen.h"
#include "net/net.h"
#include "reactor/eventual.h"
#include "reactor/thread.h"
#include "s3/s3.h"
#include "server/https.h"
#include "server/resources.h"

#define GW_TICK_NS	  (500 * NS_PER_MS)
#define GW_BUCKETS_CACHED 4096u
#define GW_BUCKET_NS	  (5 * NS_PER_S)  /* how long a bucket's store is believed */
#define GW_ROOM_BYTES	  (64 * MIB)	  /* stores whose room differs by less are equal */
#define GW_LINKS_MAX	  1024u		  /* of one reactor to one store */
#define GW_LISTS_MAX	  128u		  /* lists of all stores' buckets, of one reactor */
#define GW_CLIENTS	  1024u		  /* keys, and addresses, that are told apart */
#define GW_IDLE_NS	  (30 * NS_PER_S) /* an unused connection is not used any more */
#define GW_CONNECT_NS	  (5 * NS_PER_S)
#define GW_HEAD_BYTES	  (LIMIT_HTTP_HEAD_BYTES_MAX + 4 * KIB)
#define GW_LOOK_NS	  (20 * NS_PER_MS)
#define GW_FILL_NS	  NS_PER_S /* the longest that frames wait for the rest of their bytes */
/* An object's own headers, which may be as many as a request's, and those that S3 adds. */
#define GW_ANSWER_HEADERS_MAX (LIMIT_HTTP_HEADERS_MAX + 32u)
/* The longest that a store's process may work before it answers, while its host is heard. */
#define GW_ANSWER_NS (900 * NS_PER_S)
/* A store's host that acknowledges nothing for twice this time is gone, or the network to it is
 * cut. The kernel acknowledges for a process that is slow or stopped, too. */
#define GW_KEEPALIVE_S 5u
#define GW_SILENT_NS   (2 * GW_KEEPALIVE_S * NS_PER_S)

struct gw_core;
struct gateway;

/* ---- places.c ---- */
/* Clients share these: each has a place for each thing that it uses at a time. A client has the key
 * that it claims, and an address; what it claims is not proven here. */
struct gw_client {
	uint16_t key, address; /* numbers from 0 to GW_CLIENTS - 1 */
	bool has_key;
};
struct gw_places {
	uint32_t max, busy;
	uint16_t of_key[GW_CLIENTS], of_address[GW_CLIENTS];
};
struct gw_client gw_client_of(const struct s3_request *request);
/* False: they are all taken; or the key has as many as are left for all others, or the address has
 * all but an eighth. */
bool gw_place_take(struct gw_places *places, const struct gw_client *client);
void gw_place_give(struct gw_places *places, const struct gw_client *client);

/* ---- link.c ---- */
struct gw_answer {
	uint32_t status;
	uint64_t bytes; /* of the body that follows */
	bool close;
	uint32_t header_count;
	struct s3_header headers[GW_ANSWER_HEADERS_MAX];
};
/* Parses a whole head of an answer, with its empty line. -EPROTO: not one that our processes
 * send. */
int gw_answer_parse(struct slice head, struct gw_answer *ret_answer);

struct gw_link {
	struct list link; /* idle ones, by store */
	struct net_stream *stream;
	struct gw_core *core;
	uint32_t store;
	char addr[CLUSTER_ADDR_BYTES];
	char rdma[CLUSTER_ADDR_BYTES]; /* as the answer tells it */
	uint64_t idle_since_ns;
	struct gw_client client; /* that uses it */
	const struct s3_request *request;
	uint64_t left; /* bytes of the answer's body that have not been read */
	uint16_t share;
	bool chunked;	     /* the request's body */
	bool owed;	     /* a part of the request's body: its process waits for it */
	uint32_t start, end; /* bytes received and not used */
	struct gw_answer answer;
	struct flow_source source;
	struct flow_sink sink;
	char in[GW_HEAD_BYTES];
	char out[GW_HEAD_BYTES];
};
/* One that waits for work, or a new one, for this client. -ENOBUFS: it has its part of them in use;
 * -EAGAIN: the most are in use; errors of connect. */
int gw_link_open(struct gw_core *core, const struct cluster_store *store,
	const struct gw_client *client, struct gw_link **ret);
/* Keeps it for another request, or closes it. */
void gw_link_end(struct gw_link *link, bool keep);
void gw_links_close(struct gw_core *core);
/* Sends the head. -EMSGSIZE: too long. */
int gw_link_ask(struct gw_link *link, const struct s3_request *request, enum via_kind kind,
	bool has_body, uint64_t stall_ns);
/* Waits for the next head, 100 Continue included. -ESTALE: the store has another owner by now;
 * -ECONNABORTED: the client has left; -ETIMEDOUT, or what the kernel says: the process's host is
 * not heard any more. */
int gw_link_hear(struct gw_link *link);
/* The request's body goes into it, the answer's comes out of it. */
struct flow_sink *gw_link_sink(struct gw_link *link, bool chunked);
struct flow_source *gw_link_source(struct gw_link *link);

/* ---- route.c ---- */
struct gw_bucket {
	char name[LIMIT_BUCKET_LEN_MAX + 1];
	uint32_t store;
	uint64_t until_ns;
};
struct gw_routes {
	pthread_rwlock_t lock; /* of the view */
	struct cluster_view view;
	bool known; /* the view has been read */
	/* Where the processes of this gateway's stores have their pages for operators: on
	 * this host. */
	char admins[CLUSTER_STORES_MAX][CLUSTER_ADDR_BYTES];
	pthread_mutex_t buckets_lock;
	uint64_t forgets; /* counts news about buckets */
	struct gw_bucket buckets[GW_BUCKETS_CACHED];
	_Atomic uint64_t roomy;			    /* the stores for new buckets, a bit for each */
	_Atomic uint32_t turn;			    /* counts new buckets */
	_Atomic uint64_t bytes[CLUSTER_STORES_MAX]; /* of the volumes */
	_Atomic uint64_t used[CLUSTER_STORES_MAX];  /* in them */
};
void gw_routes_init(struct gw_routes *routes);
void gw_routes_told(void *arg, struct slice text); /* arg is the gateway */
void gw_routes_set(struct gateway *gateway, const struct cluster_view *view);
/* By the keeper, who has the processes. */
void gw_admins_set(struct gateway *gateway);
uint32_t gw_stores(struct gateway *gateway);
bool gw_store(struct gateway *gateway, uint32_t number, struct cluster_store *ret_store);
/* The part of its Host that names a bucket, or its website; empty: none. */
struct slice gw_host_bucket(const struct gateway *gateway, const struct s3_request *request);
/* The bucket that a request names, decoded; empty: none. */
struct slice gw_bucket_of(const struct gateway *gateway, const struct s3_request *request,
	char ret_text[LIMIT_BUCKET_LEN_MAX + 1], bool *ret_has_key);
/* A call of S3 Control: about an account, whatever bucket its target looks like. */
bool gw_of_account(const struct s3_request *request);
/* The store of a bucket; on a fiber. -ENOENT, or an error of the cluster. */
int gw_bucket_store(struct gateway *gateway, const char *bucket, uint32_t *ret_store);
/* The store of the bucket in "bucket/key", "/bucket/key" or a URL with such a path, which may be
 * percent-encoded; *store as it is without one. -errno: the map cannot be read. */
int gw_store_of_path(struct gateway *gateway, struct slice path, uint32_t *store);
/* The same of a copy's source, which the header x-amz-copy-source names or, in a presigned URL, the
 * parameter. */
int gw_copy_store(struct gateway *gateway, const struct s3_request *request, uint32_t *store);
/* Chooses the stores for new buckets: those that serve and have the most room. */
void gw_rooms_set(struct gw_routes *routes, const struct cluster_view *view,
	const struct cluster_room rooms[CLUSTER_STORES_MAX]);
/* The store for a new bucket: of those, each in turn. */
uint32_t gw_roomy_store(struct gateway *gateway);
/* Waits until the store serves. -ETIMEDOUT. */
int gw_store_await(struct gateway *gateway, uint32_t number, uint64_t deadline_ns,
	struct cluster_store *ret_store);
struct slice gw_header(const struct s3_request *request, struct slice name);

/* ---- pass.c ---- */
void gw_handle(void *arg, const struct s3_request *request, struct s3_reply *reply);
void gw_refuse(const struct s3_request *request, struct s3_reply *reply, uint32_t status,
	const char *code, const char *message);
/* Sends the request to the store and waits for the head of its answer. When this returns 0 the
 * link is the caller's. Otherwise the caller answers by gw_gone(). */
int gw_exchange(struct gw_core *core, const struct s3_request *request, uint32_t store,
	enum via_kind kind, struct gw_link **ret_link);
/* Gives the store's answer to the client, and ends the link. */
void gw_relay(struct gw_link *link, const struct s3_request *request, struct s3_reply *reply);
/* No process answered, or not to the end: 503. error -EINPROGRESS: one may have done the request,
 * so a write is not to be repeated unseen. */
void gw_gone(const struct s3_request *request, struct s3_reply *reply, int error);

/* ---- copy.c ---- */
void gw_copy(struct gw_core *core, const struct s3_request *request, struct s3_reply *reply,
	uint32_t target, uint32_t source);

/* ---- rdma.c ---- */
/* The store that a set-up is for. -ENODATA: the request is none; or an error of the cluster. */
int gw_rdma_store(struct gateway *gateway, const struct s3_request *request, uint32_t *ret_store);
/* The bucket of a set-up that is valid for its store only; NULL: the request is none, or valid for
 * all buckets. */
struct slice gw_rdma_bucket(struct gateway *gateway, const struct s3_request *request);

/* ---- lists.c ---- */
bool gw_lists_buckets(const struct s3_request *request);
void gw_list_buckets(
	struct gw_core *core, const struct s3_request *request, struct s3_reply *reply);

/* ---- pages.c ---- */
void gw_page(void *arg, const struct s3_request *request, struct s3_reply *reply);

/* ---- child.c ---- */
#define GW_LINE_BYTES 1024u
/*   none (pid 0) → starting (no address yet) → ready → ending (told to) → none */
struct gw_child {
	pid_t pid;
	int out; /* the read end of its output */
	bool ready, ending;
	uint64_t begun_ns, killed_ns;
	uint64_t wait_until_ns; /* of the next start, after a failure */
	uint64_t back_off_ns;
	char line[GW_LINE_BYTES];
	size_t line_len;
	char http[CLUSTER_ADDR_BYTES], rdma[CLUSTER_ADDR_BYTES], admin[CLUSTER_ADDR_BYTES];
};
int gw_child_start(struct gateway *gateway, uint32_t store);
/* Reads what it says, and sees whether it has ended. */
void gw_child_look(struct gateway *gateway, uint32_t store);
void gw_child_end(struct gw_child *child); /* asks it to end; kills it after some time */

/* ---- keeper.c ---- */
void *gw_keeper_main(void *arg);
void *gw_pulse_main(void *arg);
/* By the pulse, and by the keeper before each change. -EBUSY: another process has the name; until
 * it has not, the keeper has no stores. */
int gw_live(struct gateway *gateway);
void gw_keeper_wake(struct gateway *gateway);

/* ---- gateway.c ---- */
struct gw_core {
	struct gateway *gateway;
	struct reactor *reactor;
	struct flow_core flow;
	struct listen *http, *https, *admin;
	struct reactor_thread thread;
	struct list idle[CLUSTER_STORES_MAX];
	uint32_t links[CLUSTER_STORES_MAX];	   /* idle ones, too */
	struct gw_places busy[CLUSTER_STORES_MAX]; /* links that are not idle */
	struct gw_places lists;
	struct reactor_msg drain_msg;
	struct eventual drain;
};

struct gateway {
	struct gateway_opts opts;
	const struct config *config;
	char name[CLUSTER_NAME_LEN_MAX + 1];
	struct rv *rados;
	struct cluster *cluster;
	struct region *region;
	struct flow_budget *budget;
	struct store *store; /* empty: s3 needs one */
	struct s3 *s3;	     /* knows the root, for the pages */
	struct https *https;
	struct gw_routes routes;
	struct gw_core cores[LIMIT_CORES_MAX];
	struct reactor *reactors[LIMIT_CORES_MAX];
	uint32_t core_count;
	struct resources_files files;
	/* Since when it drains; 0: it does not. After 3/4 of http.stall_timeout_s readers that wait
	 * for an answer are told to ask again; at its end all connections are cut. */
	_Atomic uint64_t draining_ns;
	_Atomic uint32_t cores_draining;
	char secrets_file[2 * CONFIG_TEXT_MAX];
	char link_file[2 * CONFIG_TEXT_MAX]; /* key and certificate of the links; cluster.tls */
	struct net_tls *link_tls;	     /* NULL: links are plain */
	/* The keeper's. */
	struct gw_child children[CLUSTER_STORES_MAX];
	struct ticker pulse; /* stops when the keeper has ended */
	pthread_t keeper;
	bool keeping;
	int wake_fd;
	_Atomic bool leaving;	   /* hands its stores over, then the keeper ends */
	_Atomic bool displaced;	   /* another process has its name, and so its stores */
	_Atomic uint64_t heard_ns; /* when the cluster last answered the keeper */
};

/* ---- secrets.c ---- */
/* Writes a key that only this user may read. Access that others had to the file of before is
 * removed, with a warning; a link, and a file of another user, are refused (-ELOOP, -EPERM). Logs
 * failures. */
int gw_secrets_save(const char *path, const void *key, size_t bytes);

#endif
