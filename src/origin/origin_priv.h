/* origin/origin_priv.h: shared by the files of this folder.
 *
 *   origin.c  open and close
 *   ask.c     requests that wait for a fetch, or follow it; heads
 *   direct.c  pieces for readers of ranges, and lists: not stored
 *   fetch.c   a fetch: its pieces in order, how it ends
 *   evict.c   deletes the copies that were read longest ago, when a bucket is beyond its bound
 *   pool.c    threads that block in requests to origins, one piece each, shared by principals
 *   answer.c  what an origin's answer says
 *   inner.c   requests of the server to itself: they store what came */
#ifndef ORIGIN_ORIGIN_PRIV_H
#define ORIGIN_ORIGIN_PRIV_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/base.h"
#include "origin/origin.h"
#include "reactor/reactor.h"

#define FETCHES_MAX	256u /* of all principals; one may have half */
#define THREADS_MAX	32u
#define PIECE_BYTES	(8 * MIB) /* of an object that has at most PIECES_MAX of them */
#define PIECE_BYTES_MAX (64 * MIB)
#define PIECES_MAX	10000u /* parts of an upload */
#define PIECES_AHEAD	2u
#define DIRECT_MAX	64u /* readers of ranges, of all principals; one may have half */
_Static_assert(PIECE_BYTES_MAX <= ORIGIN_BUFFER_BYTES_MIN, "each piece can come");
_Static_assert(PIECE_BYTES_MAX <= LIMIT_PUT_BYTES_MAX, "a piece is a part");

/* A principal's share of what is scarce. */
struct share_use {
	uint32_t running; /* fetches and heads */
	uint32_t busy;	  /* threads */
	uint32_t direct;  /* readers of ranges */
	uint64_t buffer_bytes;
};
/* Where the next eviction of a bucket goes on: behind that key. */
struct evict_cursor {
	uint32_t len;
	char key[LIMIT_KEY_LEN_MAX];
};
struct origin {
	struct origin_opts opts;
	struct s3_origin_hook hook;
	_Atomic bool ending;  /* threads read it */
	pthread_mutex_t lock; /* of all that follows, and of fetches */
	struct list fetches;
	uint32_t running; /* fetches and heads */
	struct share_use uses[FLOW_SHARES];
	uint32_t direct;  /* readers of ranges */
	uint32_t waiting; /* requests that wait for fetches, or follow them */
	/* The pool. */
	pthread_cond_t work;
	struct list jobs; /* in the order in which they came; a share's begin in this order */
	pthread_t threads[THREADS_MAX];
	uint32_t thread_count, idle, busy, queued;
	uint64_t buffer_bytes;
	bool leaving;
	/* Under evicting. */
	_Atomic bool evicting;
	struct evict_cursor cursors[16]; /* of buckets, by their ids */
	_Atomic bool swept;		 /* the fiber that deletes leftovers has ended */
};

/* ---- pool.c ---- */
/* A request to an origin, on a thread of the pool. In the memory of a fiber, from begin to free. */
struct job {
	struct list link;
	struct origin *origin;
	uint16_t share; /* of the principal */
	const char *target;
	const char *key;	/* there */
	const char *query;	/* of a list; or NULL */
	const char *if_match;	/* an ETag with quotes; or NULL */
	const char *via;	/* the ask's */
	const char *owner;	/* the same */
	uint64_t offset, bytes; /* bytes 0: a HEAD */
	struct fiber *fiber;
	struct reactor *reactor;
	struct reactor_msg msg;
	bool done; /* on the fiber's reactor */
	/* Then: */
	struct replicate_result result;
	uint8_t *body; /* NULL: none came; of bytes */
	char headers[S3_ORIGIN_HEADERS_BYTES];
};
/* Fiber calls. The answer, or an error in its result, comes in any case. */
void job_begin(struct origin *origin, const struct s3_origin_ask *ask, struct job *job);
void job_wait(struct job *job);
void job_do(struct origin *origin, const struct s3_origin_ask *ask, struct job *job); /* both */
void job_free(struct job *job); /* after the wait */
void pool_close(struct origin *origin);

/* ---- answer.c ---- */
/* An object as an answer describes it. */
struct answer {
	struct s3_origin_object object;
	bool partial;		    /* a 206 */
	struct slice sum_name, sum; /* checksum of the whole object; empty: none */
};
/* Reads the headers of an answer to a GET of bytes from 0 on, or to a HEAD, "name: value" lines;
 * length: of the body, as announced. -EPROTO: it has no ETag, so it is not S3's; -EBADMSG: they
 * contradict each other; -EOVERFLOW: more headers than fit. */
int answer_read(
	const struct replicate_result *result, struct slice headers, struct answer *ret_answer);
/* Whether a further piece is this one of the same object: of those bytes, out of so many. */
bool answer_is_piece(struct slice headers, uint64_t offset, uint64_t bytes, uint64_t total);

/* ---- fetch.c ---- */
#define ORIGIN_KEY_BYTES  (S3_ORIGIN_PREFIX_MAX + LIMIT_KEY_LEN_MAX + 1)
#define FETCH_NOTE_BYTES  (sizeof("fetched=; last-modified=") + 2 * DATE_ISO_LEN)
#define FETCH_HEADERS_MAX LIMIT_HTTP_HEADERS_MAX
/* A fetch of one object; all requests for its key wait for it, or follow it:
 *
 *   running ─ the first of several pieces is stored ─► followed: requests read what is stored
 *      └────────────────┬───────────────────────────────────┘
 *                       └─ stored, absent or failed ─► done ─ the last reference ─► freed */
struct fetch {
	struct list link; /* of the origin's fetches, until it is done */
	struct origin *origin;
	/* Under the lock: */
	uint32_t references;
	struct list waiters;
	uint32_t stored; /* pieces of an upload */
	bool done;	 /* end and why are set */
	enum s3_origin_end end;
	char why[S3_ORIGIN_WHY_BYTES];
	/* From its start on: */
	struct s3_origin_ask ask;
	struct s3_origin origin_of; /* the ask's */
	char key[ORIGIN_KEY_BYTES]; /* there */
	char request_id[17];
	char *texts; /* of bucket, key, target and prefix */
	/* The fiber's; others read these three when pieces are stored. */
	struct answer answer;
	uint64_t piece_bytes; /* of all but the first and the last */
	char upload_id[S3_ORIGIN_UPLOAD_ID_BYTES];
	struct s3_header headers[FETCH_HEADERS_MAX];
	uint32_t header_count;
	char note[FETCH_NOTE_BYTES];
	struct s3_fetched fetched;
	char if_match[72];
};
/* The fiber of a fetch; ends one of its references. */
void fetch_main(void *arg);
/* Of one that has stored a piece of an upload. */
uint64_t fetch_piece_offset(const struct fetch *fetch, uint32_t idx);
uint64_t fetch_piece_length(const struct fetch *fetch, uint32_t idx);
void origin_tell(struct s3_origin_told *told, enum s3_origin_end end, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* False: the answer is one of an object. Readers learn the status and the code, the log the
 * origin's words, too. */
bool origin_is_refusal(
	const struct s3_origin_ask *ask, const struct job *job, struct s3_origin_told *told);

/* ---- direct.c: as in struct s3_origin_ops. ---- */
bool origin_direct_begin(void *arg, const struct s3_origin_ask *ask);
void origin_direct_end(void *arg, const struct s3_origin_ask *ask);
void origin_direct_piece(void *arg, const struct s3_origin_ask *ask,
	const struct s3_origin_object *object, struct s3_origin_piece *piece,
	struct s3_origin_told *told);
void origin_direct_free(struct s3_origin_piece *piece);
void origin_list(void *arg, const struct s3_origin_ask *ask, const char *query, uint32_t keys_max,
	struct s3_origin_piece *piece, struct s3_origin_told *told);

/* ---- ask.c ---- */
/* Counts a request that an origin will be asked for, until give. False: there are too many. */
bool origin_take(struct origin *origin, uint16_t share, struct s3_origin_told *told);
void origin_give(struct origin *origin, uint16_t share);
/* The key at the origin; false: it would be too long. */
bool origin_key_of(const struct s3_origin_ask *ask, char ret_key[ORIGIN_KEY_BYTES]);
extern const struct s3_origin_ops origin_ops;
/* Under the lock: wakes the requests whose pieces are stored; all of them when it is done. */
void fetch_wake(struct fetch *fetch);
/* Under the lock: ends a reference. */
void fetch_put(struct fetch *fetch);

/* ---- evict.c ---- */
/* Fiber call: deletes copies until the bucket holds fewer bytes; nothing when it does, or when
 * another eviction runs. */
void origin_evict(
	struct origin *origin, struct slice bucket, uint64_t bucket_id, uint64_t bytes_max);

/* ---- inner.c ---- */
struct inner_ask {
	enum s3_method method;
	const char *query; /* percent-encoded, or NULL */
	struct slice bucket, key;
	const struct s3_header *headers;
	uint32_t header_count;
	struct slice body;
	const struct s3_fetched *fetched;
	struct flow_core *core;
	const char *request_id;
};
struct inner_answer {
	uint32_t status;
	char etag[84];	 /* with quotes */
	char text[1024]; /* its document's beginning */
};
/* Fiber call: as the server's root. */
void inner_request(struct s3 *s3, const struct inner_ask *ask, struct inner_answer *ret_answer);

#endif
