/* tests/unit/s3/fake.h: a reactor and a store, so that whole requests can be answered in a unit
 * test; and a front that keeps its answers. STORE_ENGINE selects the store's engine: "memory" or
 * "local". */
#ifndef TESTS_FAKE_H
#define TESTS_FAKE_H

#include "s3/core/call.h"

/* The whole program: runs the tests on a fiber and returns their result. */
int fake_main(int (*tests)(void));

struct store *fake_store_open(void);
void fake_store_close(struct store *store);
/* The store and the S3 of a test, from open to close. */
extern struct store *fake_store;
extern struct s3 *fake_s3;
/* Opens both, with the root's keys "test" and "secret"; opts: the other options, or NULL. */
int fake_open_with(const struct s3_opts *opts);
/* A setup and a teardown of cmocka. The teardown fails if a get, a put or a source is open. */
int fake_open(void **state);
int fake_close(void **state);
/* Each opening of an object, put, commit or read fails with this -errno; 0: none. */
extern int fake_get_error, fake_put_error, fake_commit_error, fake_read_error;
extern uint32_t fake_read_fails; /* so many reads fail; 0: all, while there is an error */
/* The same of edits of this key. */
#define FAKE_BAD_KEY "bad"
extern int fake_edit_error;
/* The second byte of the outbox row that the last edit left: of replication its kind; 0: none. */
extern char fake_edit_kind;
extern uint32_t fake_delete_fails; /* so many deletions fail with -EIO */
extern void (*fake_deleted)(void); /* runs once objects are deleted; or NULL */
extern int fake_bucket_error;	   /* no bucket is made, and the caller gets this -errno; 0: none */
/* Runs before a bucket is made; or NULL. */
extern void (*fake_bucket_making)(void);
/* Run once a bucket's deletion or a put is committed, before its caller goes on; or NULL. */
extern void (*fake_bucket_deleted)(void), (*fake_put_committed)(void);
/* Run once an object is opened, and once it is closed or was not found; or NULL. */
extern void (*fake_get_opened)(void), (*fake_get_ended)(void);
/* The numbers of gets, puts and sources that are open. */
extern int fake_open_gets, fake_open_puts, fake_open_sources;

/* A request and its answer. */
struct fake_call {
	struct s3_request request;
	struct s3_header headers[40];
	struct s3_body body;
	struct slice body_text;
	struct slice trailer;		 /* answers every name */
	int body_error;			 /* after the text */
	void (*awaited)(void);		 /* runs while the body is awaited; or NULL */
	struct s3_chunk_signing signing; /* the parameters of the body's open */
	bool counts;			 /* says so of small bodies, in both directions */
	struct s3_reply reply;
	struct buf reply_head; /* "name: value\n" with lower-case names */
	struct buf reply_body;
	uint64_t reply_bytes;
	int heads;
};
void fake_call_init(
	struct fake_call *call, const char *method, const char *path, const char *query);
void fake_call_header(struct fake_call *call, const char *name, const char *value);
void fake_call_body(struct fake_call *call, struct slice text);
/* Runs the request; as the root's session unless the request is signed or anonymous. */
void fake_call_run(struct s3 *s3, struct fake_call *call);
void fake_call_free(struct fake_call *call);
/* A header of the answer; empty when absent. */
struct slice fake_reply_header(const struct fake_call *call, const char *name);
bool fake_reply_has(const struct fake_call *call, const char *text);

/* Fibers that S3 starts for later work do not run: they are refused, or (kept) left to the test,
 * which runs them one after the other. */
extern bool fake_later_kept;
extern uint32_t fake_later_count;
void fake_later_run(void);

extern const struct s3_identity fake_root;

extern struct flow_core fake_core; /* without a budget */
extern bool fake_walks_refused;	   /* the principal has its maximum of listings in progress */
extern uint32_t fake_walks;	   /* listings begun and not ended */
extern uint32_t fake_joins;	   /* times that a request's fiber joined its principal's share */

#endif
