/* tests/sim/load.h: interface between the files of the load: the clients of one world, their
 * requests and their knowledge. */
#ifndef SIM_LOAD_H
#define SIM_LOAD_H

#include <pthread.h>

#include "world.h"

#include "history.h"
#include "http.h"
#include "nebulaio/nebulaio.h"
#include "remote/remote.h"
#include "server/server.h"
#include "store/local.h"

#define KEYS_PLAIN     10u
#define KEYS_VERSIONED 4u
#define KEYS_APPENDED  2u
#define KEY_VERSIONED  KEYS_PLAIN
#define KEY_APPENDED   (KEY_VERSIONED + KEYS_VERSIONED)
#define KEYS_MEMORY    4u
#define KEY_MEMORY     (KEY_APPENDED + KEYS_APPENDED)
#define KEYS	       (KEY_MEMORY + KEYS_MEMORY)
#define PART_BYTES_MIN (5 * MIB) /* of all parts but the last */
/* Of an upload of two parts: values have one part's bytes at most, and a copied part has a value's.
 */
#define BODY_BYTES_MAX	(2 * PART_BYTES_MIN)
#define CHAIN_BYTES_MAX (4 * MIB) /* of a body that is appended to */
#define BUCKET		"sim"
#define BUCKET_VERSIONS "versions"
#define BUCKET_APPEND	"sim--zone--x-s3"
#define BUCKET_MEMORY	"memory"
#define KNOWN_MAX	64u
#define UPLOADS_KNOWN	128u

/* An upload, as its clients know it. */
struct known_upload {
	uint16_t key;
	bool over;
	char id[HISTORY_NAME_BYTES];
	struct {
		uint32_t value;
		char etag[84];
	} parts[HISTORY_PARTS_MAX];
};

struct world_shared {
	uint64_t seed;
	uint64_t seen; /* calls that may have failed */
	struct history history;
	struct {
		char versions[KNOWN_MAX][HISTORY_NAME_BYTES]; /* the last ones in answers */
		uint32_t version_count;
		uint32_t writes;  /* in all lives */
		uint32_t lost;	  /* in this life */
		uint32_t uploads; /* that may be in progress */
		uint64_t bytes;	  /* last known length, and ETag */
		uint32_t content;
		char etag[84];
	} known[KEYS];
	struct known_upload uploads[UPLOADS_KNOWN];
	uint32_t upload_count;
	bool protected; /* the volumes had the index when power failed */
	bool served;	/* a server of an earlier life, or of this one, started */
};

/* The parameters of one seed's world. */
struct world_opts {
	uint32_t clients, ops;
	uint64_t log_bytes, step_bytes, cache_bytes;
	uint32_t reactors, depth;
	uint32_t inline_bytes;
	bool one_sided;
	bool faulty;	 /* disks fail: the server's refusals are not its faults */
	uint32_t damage; /* one of so many writes */
	bool damaged;	 /* a disk reads or writes wrong bytes */
	bool all_by_http;
	bool all_is_well; /* a GET has no reason to fail */
	bool repairs;	  /* damage gets repaired */
	bool strict;	  /* the library does not retry */
	bool paths;	  /* the library has two paths, and the first goes silent */
	bool versions, uploads, copies;
	uint64_t memory_bytes; /* of a memory bucket; 0: none */
	uint32_t memory_ttl_s;
	bool memory_evicts; /* when it is full */
	uint32_t volumes;   /* one of them parity; 1: no array */
	uint64_t volume_bytes_max;
	uint32_t exported; /* volumes on another host, a bit for each */
	bool peer_fails;   /* that host */
	bool protect;	   /* the volumes hold the index, too */
	bool folder_goes;  /* that of the index, sometimes, when power fails */
	int32_t replaced;  /* a volume that a blank one replaces; -1: none */
	bool changes;	   /* the set of volumes changes */
};
extern struct world_opts opts;
extern struct world_shared *shared;
extern struct server *server;
extern struct store *server_store; /* that the server opened */

struct client {
	pthread_t thread;
	bool by_http;
	struct neb_client *neb;
	struct http_client http;
	struct prng prng;
	uint8_t *body, *scratch;
	uint32_t ops;
	uint64_t listed[KEYS];
};

/* ---- client.c ---- */
void asker_open(struct client *client);
void asker_close(struct client *client);
const char *bucket_of(uint16_t key);
/* Whether writes without a condition may be sent twice. */
bool is_idempotent(uint16_t key);
void name_of_key(uint16_t key, char name[16]);

/* A new value of a key, whose bytes are in client->body. */
uint32_t value_make(struct client *client, uint16_t key, uint32_t bytes);
/* A length, mostly a small one. */
uint32_t value_bytes_draw(struct client *client);
/* The content that client->body has; unknown bytes end the run. */
uint32_t body_content(struct client *client, uint64_t bytes);

struct ask {
	const char *method;
	enum neb_op op; /* NEB_S3: of a bucket, or by its query */
	const char *bucket;
	const char *name;    /* NULL: the bucket */
	const char *version; /* NULL: none */
	const char *query;   /* sorted, encoded, each with '='; NULL: none */
	struct http_header headers[HTTP_HEADERS_MAX];
	const void *body;
	size_t body_bytes;
	size_t send_bytes_max; /* see http.h */
	bool again;	       /* the library may send it twice, and use one-sided reads */
};
/* Sends the request and receives the answer's body in client->body. Returns the status, or 0 if the
 * outcome is unknown. */
int client_ask(struct client *client, const struct ask *ask, struct http_answer *ret_answer);
/* The outcome of a write by its status. */
enum history_outcome outcome_of(int status);
/* Records the outcome of the write `op`. */
void write_ended(uint32_t op, const struct http_answer *answer);
/* The text between <name> and </name> that comes first after *at, which moves past it. */
bool xml_next(const char **at, const char *name, char *into, size_t room);

/* ---- The operations: of plain keys, of versions, of uploads, of copies. ---- */
void plain_put(struct client *client, uint16_t key);
void plain_get(struct client *client, uint16_t key);
void plain_list(struct client *client);
void plain_op(struct client *client);
void vanish(struct client *client, uint16_t key);
void delete_key(struct client *client, uint16_t key);
/* After all other operations: listings with all kinds of prefixes and delimiters. */
void listings_compare(struct client *client);

void versions_begin(struct client *client);
void versions_op(struct client *client);
/* Whether a key may get one more version. */
bool versions_may_write(uint16_t key);
void versions_list(struct client *client);
void versions_get(struct client *client, uint16_t key);

void uploads_op(struct client *client);
void uploads_list(struct client *client);
/* Chooses a current or former upload; NULL: none. */
struct known_upload *upload_draw(struct client *client);
/* Handles an error in an answer that had already begun. */
void late_error(struct client *client, struct http_answer *answer);

void memory_op(struct client *client);
void memory_look(struct client *client);
/* Makes the memory bucket if it does not exist. Returns the status. */
int memory_make(struct client *client);
/* The memory bucket has the bounds that it was made with, and keeps them. */
void memory_check(struct store *store);

void copies_op(struct client *client);
void copies_look(struct client *client);

/* ---- sets.c: the set of volumes changes. ---- */
#define SETS_PATHS 8u
void sets_begin(const char *dir);
/* How many volumes the configuration names. */
uint32_t sets_paths(void);
void sets_op(struct client *client);
/* Waits until a change has ended. */
void sets_await(struct store *store);

/* ---- peer.c: another host, which exports volumes. ---- */
/* From here on it runs and fails by itself. */
void peer_begin(const char *dir, uint32_t life);
/* Takes a peer that was not begun. */
void peer_end(void);
/* The path by which the server reaches a volume of it: snprintf's result. */
int peer_path(uint32_t member, char *path, size_t room);
/* The peer no longer fails; returns when the store of an array has all its volumes again. */
void whole_await(struct store *store);
/* For code that opens the store's volumes without the server. */
struct remote *peer_reach(void);

/* ---- damage.c ---- */
/* The store that the server opened; reads all of it, after all other operations. */
void scrub_check(struct store *store);
/* Called after the server has ended: checks that the store is intact. */
void store_check(const char *dir);

#endif
