/* cli/conformance/conformance.h: the rules of the RDMA token contract (docs/spec/token.md) and of
 * hipobj-rc-v2 (docs/spec/hipobj.md), each a case that asks any endpoint. The suite does not depend
 * on our server: libcurl sends the requests, which are signed here, and libnebulaio mints the
 * tokens.
 *
 *   suite.c    the table, the bucket, one case after the other
 *   send.c     one request
 *   expect.c   common parts of cases: objects, windows, expected answers
 *   connect.c  rules 1xx: queue pairs
 *   move.c     rules 2xx and 3xx: GET, PUT and parts
 *   refuse.c   rules 4xx and 5xx: tokens that are refused or declined
 *   fail.c     rules 6xx: transfers that fail
 *
 *   pair.c             hipobj-rc-v2: the suite's own queue pairs
 *   hipobj.c           one transfer
 *   hipobj_prepare.c   rules 7xx: control requests
 *   hipobj_move.c      rules 8xx: GET, PUT and parts
 *   hipobj_session.c   rules 9xx: a session's owner and duration, and its key's memory */
#ifndef CLI_CONFORMANCE_CONFORMANCE_H
#define CLI_CONFORMANCE_CONFORMANCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "nebulaio/nebulaio.h"

enum conf_verdict {
	CONF_PASS,
	CONF_FAIL,
	CONF_UNSUPPORTED, /* the endpoint says that it does not support this, which is no fault */
	CONF_ERROR,	  /* the case could not be tried: no answer, or no memory */
};

struct conf_keys {
	const char *access, *secret; /* NULL: none */
};

struct conf_opts {
	const char *endpoint; /* http://HOST:PORT or https://HOST:PORT */
	struct conf_keys keys;
	struct conf_keys other; /* of another user who may write to the bucket, too; or none */
	const char *region;
	const char *device_name;
	const char *bucket; /* NULL: a bucket is made and removed */
	bool hipobj;	    /* hipobj-rc-v2; false: RDMA tokens */
	const char *only;   /* runs the cases whose number begins with this; NULL: all */
};

/* The memory that contains the windows. All of it is registered; its first and last part belong to
 * no window. */
#define CONF_MEMORY_BYTES (256u * 1024)
#define CONF_WINDOW_AT	  (16u * 1024)
#define CONF_OBJECT_BYTES 70001u
#define CONF_WHY_BYTES	  400u

struct conf_sender;
struct conf_device;
struct conf {
	const struct conf_opts *opts;
	struct conf_sender *sender;
	struct neb_minter *minter;  /* RDMA tokens */
	struct conf_device *device; /* hipobj-rc-v2 */
	/* Called while the suite waits for an answer; NULL: there is nothing to do. */
	void (*progress)(struct conf *conf);
	uint8_t *memory;
	uint8_t *object; /* the bytes of the key "object" */
	char bucket[64];
	char prefix[24];	     /* of keys */
	char token[NEB_TOKEN_BYTES]; /* the minted token; empty: none */
	char why[CONF_WHY_BYTES];
};

struct conf_case {
	uint16_t number;
	const char *rule; /* a sentence */
	enum conf_verdict (*run)(struct conf *conf);
};

/* ---- send.c ---- */

#define CONF_HEADERS_MAX 12u
struct conf_request {
	const char *method;
	const char *key;  /* in the bucket, without the prefix; "": the bucket; NULL: the service */
	const char *path; /* of a message that names no key; or NULL */
	const char *query; /* percent-encoded, in order, each with '='; or NULL */
	struct neb_header headers[CONF_HEADERS_MAX]; /* ended by one without a name */
	const char *token;
	const void *body;
	size_t body_bytes;
	const char *content_sha256; /* NULL: UNSIGNED-PAYLOAD */
	bool token_unsigned;
	bool anonymous;
	bool by_other; /* with the other keys */
};
struct conf_answer {
	uint32_t status;
	struct buf headers; /* "name: value" lines with lower-case names, each ended by a NUL */
	struct buf body;
};
int conf_sender_open(const struct conf_opts *opts, struct conf_sender **ret_sender);
void conf_sender_close(struct conf_sender *sender); /* takes NULL */
/* False: no answer came, and conf->why has the reason. The caller frees the answer in both cases.
 */
bool conf_send(struct conf *conf, const struct conf_request *request, struct conf_answer *answer);
void conf_answer_free(struct conf_answer *answer);
/* The value of a header, or NULL. */
const char *conf_header(const struct conf_answer *answer, const char *name);
/* The text of an element of the answer's document, or "". Lives until the next call. */
const char *conf_element(const struct conf_answer *answer, const char *name);

/* ---- expect.c ---- */

/* Sets conf->why. */
enum conf_verdict conf_fail(struct conf *conf, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
enum conf_verdict conf_unsupported(struct conf *conf, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* Mints a token of `bytes` of the window for one request of the case. NULL: it cannot; conf->why
 * has the reason. The next call, or the case's end, releases it. */
const char *conf_window(struct conf *conf, enum neb_op op, size_t bytes);
/* The same token with a field XORed; fields are numbered from 0. Lives until the next call. */
const char *conf_bent(const char *token, uint32_t field, uint64_t bits);
enum conf_field { CONF_ADDR, CONF_SIZE, CONF_RKEY, CONF_LID, CONF_QPN, CONF_HAS_GID, CONF_GID };
/* Ends the queue pair of the minted token, as after a request without an answer. */
void conf_token_failed(struct conf *conf);

uint8_t *conf_window_data(struct conf *conf);
/* Fills all memory with one byte value that no object contains. */
void conf_memory_clear(struct conf *conf);
/* Whether the window begins with the `bytes` at `data`, and nothing else was written. */
bool conf_memory_holds(struct conf *conf, const uint8_t *data, size_t bytes);

/* By plain HTTP. */
bool conf_object_put(struct conf *conf, const char *key, const void *data, size_t bytes);
/* Whether the object has exactly these bytes; data NULL: whether it does not exist. If not,
 * conf->why has the reason. */
bool conf_object_is(struct conf *conf, const char *key, const void *data, size_t bytes);

/* The expected answer of a request; members that are 0 or NULL are not checked. */
struct conf_want {
	uint32_t status;
	uint32_t or_status;
	const char *code;  /* of the error document */
	const char *reply; /* x-amz-rdma-reply; "": must be absent */
	const char *moved; /* x-amz-rdma-bytes-transferred */
	bool no_etag;
	bool empty; /* no body, Content-Length: 0 */
};
/* Sends a request and checks its answer. CONF_UNSUPPORTED: a success was expected, and the endpoint
 * declined. ret_answer may be NULL. */
enum conf_verdict conf_ask(struct conf *conf, const struct conf_request *request,
	const struct conf_want *want, struct conf_answer *ret_answer);
/* The same for a GET that must move nothing: checks the window, too. CONF_ERROR without a token. */
enum conf_verdict conf_ask_for_nothing(
	struct conf *conf, const struct conf_request *request, const struct conf_want *want);

/* ---- the cases ---- */
extern const struct conf_case CONF_CONNECT[], CONF_MOVE[], CONF_STORE[], CONF_REFUSE[],
	CONF_DECLINE[], CONF_FAIL_CASES[];

/* ---- suite.c ---- */

/* Called for each case in turn. */
typedef void conf_report_fn(
	void *arg, const struct conf_case *one, enum conf_verdict verdict, const char *why);
struct conf_totals {
	uint32_t passed, failed, unsupported, errors;
};
/* Runs the cases. 0; -EOPNOTSUPP: the endpoint does not support the dialect; -EACCES, -ECONNREFUSED
 * and similar: no case could be tried. On an error ret_why has the reason. */
int conf_run(const struct conf_opts *opts, conf_report_fn *report, void *arg,
	struct conf_totals *ret_totals, char ret_why[CONF_WHY_BYTES]);
/* Each case of a dialect; NULL behind the last. */
const struct conf_case *conf_case_at(bool hipobj, uint32_t idx);

#endif
