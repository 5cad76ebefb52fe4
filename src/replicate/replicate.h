/* replicate/replicate.h: the worker of replication: reads the rows that commits left, and sends
 * what they ask for to the registered targets, in the order of each key, again and again until a
 * target took it (docs/design/replication.md). */
#ifndef REPLICATE_H
#define REPLICATE_H

#include "flow/flow.h"
#include "s3/replication.h"

/* ---- How requests reach a target: the caller's, because clients are no part of the server. ----
 */
#define REPLICATE_RUNS_MAX LIMIT_SGE_MAX
enum replicate_op {
	REPLICATE_PUT_OBJECT,
	REPLICATE_UPLOAD_PART,
	REPLICATE_GET_OBJECT,
	REPLICATE_HEAD_OBJECT,
	REPLICATE_OTHER
};
struct replicate_request {
	enum replicate_op op;
	const char *method;		 /* REPLICATE_OTHER */
	const char *key;		 /* as it is */
	const char *query;		 /* percent-encoded, or NULL */
	const struct s3_header *headers; /* their texts end with a NUL */
	uint32_t header_count;
	const struct slice *runs; /* the body, in at most REPLICATE_RUNS_MAX runs of memory */
	uint32_t run_count;
	char *answer; /* room for the answer's body; REPLICATE_OTHER */
	size_t answer_bytes;
	uint64_t range_offset, range_bytes; /* of a GET; bytes 0: the whole object */
	/* Room for the answer's headers, as lines "name: value\n", and a NUL; or NULL. A
	 * header that does not fit is left out, and "x-nebulaio-cut" is added. */
	char *answer_headers;
	size_t answer_headers_bytes;
};
struct replicate_result {
	int error;	       /* -errno, when no answer came */
	uint32_t status;       /* 0: no answer came */
	const char *transport; /* "rdma", "http"; static */
	char etag[84];
	char version_id[S3_REPLICATE_VERSION_MAX + 1]; /* a longer one: empty */
	char replica_of[65];			       /* the answer's S3_REPLICA_REQUEST */
	char code[64], message[256];
	size_t answer_len;
	uint64_t object_bytes; /* that the answer announced: of a range, the range's */
};
struct replicate_link;
/* All on one thread for each link, and may block; *ending becoming true ends a send soon. The
 * body's runs may be frames that others read, too: a target may read them, and nothing else, until
 * send returns with an answer, or, without one, until close. A sender that copies a body counts
 * that by COPY_REPLICATE. */
struct replicate_sender {
	int (*open)(const struct s3_replicate_place *place, struct replicate_link **ret_link);
	void (*close)(struct replicate_link *link); /* takes NULL */
	void (*send)(struct replicate_link *link, const struct replicate_request *request,
		const _Atomic bool *ending, struct replicate_result *ret_result);
};

#define REPLICATE_BUFFER_BYTES_MIN (32 * MIB)
#define REPLICATE_BUFFER_BYTES_MAX (512 * MIB)
struct replicate_opts {
	struct s3 *s3;
	struct store *store;
	struct flow_core *core;
	const struct replicate_sender *sender;
	const char *dir;	   /* where bodies that are sent wait, when they are long */
	uint64_t buffer_bytes_max; /* of copies of bodies; from MIN on */
};
struct replicate;
/* Fiber calls on the core's reactor: starts the fibers; after s3_start. -ENOMEM, -EAGAIN. */
int replicate_open(const struct replicate_opts *opts, struct replicate **ret_replicate);
/* Ends them; what was not sent waits for the next start. Takes NULL. */
void replicate_close(struct replicate *replicate);

#endif
