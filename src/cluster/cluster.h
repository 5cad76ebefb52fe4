/* cluster/cluster.h: the map of a cluster: which gateway owns which store, where its process
 * listens, and which store has which bucket. It is one table in RADOS (docs/spec/disk.md, "The map
 * of a cluster"); docs/design/cluster.md says who changes what, and when. */
#ifndef CLUSTER_CLUSTER_H
#define CLUSTER_CLUSTER_H

#include "base/base.h"
#include "rados/table.h"

#define CLUSTER_STORES_MAX    64u
#define CLUSTER_GATEWAYS_MAX  64u
#define CLUSTER_NAME_LEN_MAX  48u /* of a cluster and of a gateway */
#define CLUSTER_ADDR_BYTES    80u
#define CLUSTER_SECRET_BYTES  32u
#define CLUSTER_MESSAGE_BYTES (RV_TABLE_KEY_BYTES + RV_TABLE_VALUE_BYTES)

/*   FREE → OPENING → SERVING → LEAVING → OPENING (of the next owner), or FREE
 * OPENING: its owner starts a process. SERVING: the process answers at http. LEAVING: gateways send
 * it nothing new; the process finishes what runs. */
enum cluster_state { CLUSTER_FREE, CLUSTER_OPENING, CLUSTER_SERVING, CLUSTER_LEAVING };
const char *cluster_state_name(enum cluster_state state);

struct cluster_store {
	uint32_t number;
	uint64_t generation; /* counts its changes */
	enum cluster_state state;
	bool pinned;			      /* moved by hand: spreading leaves it there */
	char owner[CLUSTER_NAME_LEN_MAX + 1]; /* empty when it is free */
	char next[CLUSTER_NAME_LEN_MAX + 1];  /* the gateway that shall have it; or empty */
	/* Of its process, "ADDR:PORT"; empty: none. */
	char http[CLUSTER_ADDR_BYTES], rdma[CLUSTER_ADDR_BYTES];
};
/* The value of a store's entry. -EINVAL: not of this form. number is not part of it. */
int cluster_store_parse(struct slice text, struct cluster_store *ret_store);
void cluster_store_text(const struct cluster_store *store, char ret_text[RV_TABLE_VALUE_BYTES]);
/* Whether it can be a gateway's or a cluster's name: letters, digits, '.', '_', '-'. */
bool cluster_name_valid(struct slice name);

struct cluster_gateway {
	char name[CLUSTER_NAME_LEN_MAX + 1];
	char admin[CLUSTER_ADDR_BYTES]; /* of its pages for operators */
	bool leaving;			/* hands its stores over, and takes none */
	bool alive;
};

struct cluster_view {
	uint32_t store_count; /* stores are numbered from 0 */
	uint32_t gateway_count;
	struct cluster_store stores[CLUSTER_STORES_MAX];
	struct cluster_gateway gateways[CLUSTER_GATEWAYS_MAX]; /* in the order of their names */
};

struct cluster;
struct cluster_opts {
	struct rv *rv;
	const char *pool;
	const char *name;
	/* A store or a bucket has another entry; the text is for cluster_told. On a foreign thread:
	 * it may not wait. NULL: not wanted. */
	void (*told)(void *arg, struct slice text);
	void *told_arg;
	bool acks; /* news are acknowledged by cluster_ack */
	uint32_t watch_s;
};
/* The calls block, unless they say otherwise. Makes the map when there is none. Errors are logged.
 */
int cluster_open(const struct cluster_opts *opts, struct cluster **ret_cluster);
void cluster_close(struct cluster *cluster); /* takes NULL */
/* By which gateways and the stores' processes know each other. */
const uint8_t *cluster_secret(const struct cluster *cluster);
/* Compares a digest with the map's, which the first caller sets. -EPERM: it is another one. */
int cluster_agree(struct cluster *cluster, const char *what, const char *digest);
/* Makes entries of the stores from 0 to count - 1 that are missing. */
int cluster_stores_make(struct cluster *cluster, uint32_t count);
/* All stores, and the gateways that live; of the others as many as there is room for: the entries
 * of the rest are removed. */
int cluster_view(struct cluster *cluster, struct cluster_view *ret_view);
/* One store's entry. -ENOENT, -EUCLEAN: it cannot be read. */
int cluster_store(struct cluster *cluster, uint32_t number, struct cluster_store *ret_store);
/* Watches again if the cluster ended the watch. */
int cluster_watch_check(struct cluster *cluster);

/* Puts the store's new entry in the place of the one that was read, with the next generation, which
 * *store has on return, and tells all gateways. That a store is leaving, each of them has heard
 * when this returns, but those that do not answer for some seconds. -ECANCELED: it has changed
 * since. */
int cluster_store_change(
	struct cluster *cluster, const struct cluster_store *was, struct cluster_store *store);
/* Asks the owner to hand the store over. -ENOENT: no such store, -EHOSTUNREACH: no such gateway, or
 * it does not live, or leaves; -EALREADY: it is there; -EBUSY: it has no owner that could, or
 * moves. */
int cluster_store_move(struct cluster *cluster, uint32_t number, const char *gateway);

/* A gateway says that it lives, for so many seconds, and whether it leaves. -EBUSY: another process
 * has this name. */
int cluster_live(struct cluster *cluster, const struct cluster_gateway *gateway, uint32_t seconds);
/* It ends: its lease, and its entry. */
void cluster_leave(struct cluster *cluster, const char *gateway);
/* Compares how this gateway speaks with stores' processes with what the map says, or, while
 * no other gateway lives, makes the map say so. -EPERM: other gateways do it the other way. */
int cluster_links_agree(struct cluster *cluster, const char *gateway, bool tls);

/* The store that has a bucket. -ENOENT. */
int cluster_bucket(struct cluster *cluster, const char *bucket, uint32_t *ret_store);
/* Writes that the bucket is of this store. -EEXIST: another store has it. */
int cluster_bucket_claim(struct cluster *cluster, const char *bucket, uint32_t store);
/* The bucket is gone; when this returns no gateway believes that it is there. */
int cluster_bucket_release(struct cluster *cluster, const char *bucket, uint32_t store);
/* ---- Accounts (accounts.c): store 0 has them; the map has copies for the others. ---- */
#define CLUSTER_ACCOUNT_BYTES_MAX (2 * MIB)
/* Counts the changes of the copies. -ENOENT: store 0 has not made them yet. */
int cluster_accounts_generation(struct cluster *cluster, uint64_t *ret_generation);
/* Calls visit with each account's number and the version of its copy, in order. */
typedef void cluster_account_fn(void *arg, const char *number, const char *version);
int cluster_accounts_list(struct cluster *cluster, cluster_account_fn *visit, void *arg);
/* The text of a version; -ENOENT: it has been replaced since. */
int cluster_account_read(struct cluster *cluster, const char *version, struct buf *out);
/* Makes text the account's copy, or removes the copy (data NULL). One at a time, by store 0's
 * process only. -ECANCELED: another process does that, too. */
int cluster_account_put(struct cluster *cluster, const char *number, struct slice text);
/* Counts one change, so that a former owner of store 0 cannot make another, and removes the copies
 * that no account names. */
int cluster_accounts_claim(struct cluster *cluster);
/* Returns when each process has taken the changes, or after `seconds`. */
void cluster_accounts_tell(struct cluster *cluster, uint32_t seconds);
/* News that came before a look may be acknowledged after it. */
uint32_t cluster_pending(struct cluster *cluster);
void cluster_ack(struct cluster *cluster, uint32_t count);

/* ---- Room. ---- */
struct cluster_room {
	uint64_t used_bytes;
	uint64_t limit_bytes; /* of its volume; 0: it may take what the pool has */
};
/* The text of a store's room. -EINVAL. */
int cluster_room_parse(struct slice text, struct cluster_room *ret_room);
int cluster_room_put(struct cluster *cluster, uint32_t number, const struct cluster_room *room);
/* Of all stores; of one that has not said anything yet zeroes. */
int cluster_rooms(struct cluster *cluster, struct cluster_room ret_rooms[CLUSTER_STORES_MAX]);

/* The bytes of a store's volume in RADOS. */
int cluster_store_bytes(struct cluster *cluster, uint32_t number, uint64_t *ret_bytes);
/* The name of a store's volume. */
void cluster_volume_name(const char *cluster, uint32_t number, char ret_name[64]);

/* The meaning of a text of `told`. Never waits. */
enum cluster_news {
	CLUSTER_NEWS_ALL,
	CLUSTER_NEWS_STORE,
	CLUSTER_NEWS_BUCKET,
	CLUSTER_NEWS_ACCOUNTS
};
enum cluster_news cluster_told(
	struct slice text, struct cluster_store *ret_store, struct slice *ret_bucket);

#endif
