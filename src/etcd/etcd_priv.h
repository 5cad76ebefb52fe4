/* etcd/etcd_priv.h: shared by the files of etcd. */
#ifndef ETCD_ETCD_PRIV_H
#define ETCD_ETCD_PRIV_H

#include "base/base.h"
#include "base/life.h"
#include "base/process.h"
#include "etcd/etcd.h"

#include <pthread.h>

#define ETCD_ENDPOINTS_MAX  8u
#define ETCD_URL_MAX	    255u
#define ETCD_PREFIX_MAX	    128u
#define ETCD_TEXT_MAX	    512u /* of a key's value */
#define ETCD_ANSWER_MAX	    (64 * KIB)
#define ETCD_CREDENTIAL_MAX 256u

/* ---- answer.c: what etcd says. All of it is outside input. ---- */

/* Of a key: empty text and revision 0 when it is not there. */
struct etcd_value {
	char text[ETCD_TEXT_MAX];
	uint64_t revision; /* of its last change */
};

struct etcd_answer {
	bool succeeded; /* the comparisons of a transaction held */
	struct etcd_value owner, life;
};

/* The JSON answer to a transaction whose keys these are. 0, or -EPROTO. */
int etcd_answer_parse(struct slice text, const char *owner_key, const char *life_key,
	struct etcd_answer *ret_answer);
/* The token in the answer to an authentication. 0, or -EPROTO. */
int etcd_token_parse(struct slice text, char *ret_token, size_t cap);
/* The reason in an answer that is an error; "no reason given" if there is none. */
void etcd_error_parse(struct slice text, char *ret_why, size_t cap);

/* Whether an answer of this status, with this reason, is about the user or its token. */
bool etcd_refuses(long status, const char *why);

/* The owner's record: "1 EPOCH HOST BOOT PIDS PID START COOKIE"; "0 EPOCH": it gave the store up.
 */
struct etcd_record {
	uint64_t epoch;
	bool owned;
	struct process process;
};
/* 0, or -EUCLEAN. */
int etcd_record_parse(const char *text, struct etcd_record *ret_record);
/* The life: "NUMBER MS". */
int etcd_life_parse(const char *text, uint64_t *ret_ms);

/* ---- client.c: calls. ---- */

struct etcd_client {
	struct etcd_opts opts; /* the strings are borrowed while it is opened */
	char endpoints[ETCD_ENDPOINTS_MAX][ETCD_URL_MAX + 1];
	uint32_t endpoint_count, current; /* the one that answered last */
	char user[ETCD_CREDENTIAL_MAX], password[ETCD_CREDENTIAL_MAX], token[1024];
	char ca_file[ETCD_URL_MAX + 1], certificate[ETCD_URL_MAX + 1], key[ETCD_URL_MAX + 1];
	void *curl;
	long timeout_ms; /* of one call to one endpoint */
	char why[1024];	 /* of the last failures, of each endpoint that was asked */
};

int etcd_client_open(const struct etcd_opts *opts, struct etcd_client *client);
void etcd_client_close(struct etcd_client *client);
/* One call to one endpoint; body is JSON. 0: answered with success; -EACCES: etcd refuses this
 * user; -EIO; client->why has the reason, behind those before. */
int etcd_call(struct etcd_client *client, uint32_t endpoint, const char *path, struct slice body,
	struct buf *reply);
void etcd_why_add(struct etcd_client *client, uint32_t endpoint, const char *why);

/* ---- owner.c ---- */

struct etcd {
	struct etcd_opts opts;
	struct etcd_client client;
	char owner_key[ETCD_PREFIX_MAX + 16], life_key[ETCD_PREFIX_MAX + 16];
	char record[ETCD_TEXT_MAX]; /* ours */
	char cookie[33];
	uint64_t epoch, number; /* of the renewal that was tried last */
	struct life life;
	bool life_ended; /* and told */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	bool started, look, end; /* the last two under the lock */
};

#endif
