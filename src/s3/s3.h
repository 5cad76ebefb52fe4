/* s3/s3.h: the S3 protocol, transport-blind. A front (HTTP, RDMA token, native capsules) turns
 * bytes into a struct s3_request and implements struct s3_reply; s3_handle() does the rest on the
 * calling fiber: routes, authenticates, authorises, runs the operation, answers exactly once. One
 * file per operation: op/put_object.c, … */
#ifndef S3_S3_H
#define S3_S3_H

#include "base/base.h"
#include "codec/codec.h"
#include "flow/flow.h"
#include "store/lifecycle.h"

struct s3;

struct s3_vault_opts;
struct s3_opts {
	const char *root_access_key;
	const char *root_secret_key;
	const char *region; /* "us-east-1" when NULL; a signature with any region in its scope is
			       accepted */
	const char
		*host_domain; /* for virtual-host style: "s3.example.com"; NULL: path style only */
	const char *website_domain; /* pages of buckets' websites: "bucket.DOMAIN"; NULL: none */
	/* Master keys of encryption at rest, as s3_keyring_parse takes them; NULL: one made of the
	 * root's secret, for tests. Names of KMS keys, separated by commas, and the one for writes
	 * that name none; NULL: none. */
	const char *encryption_keys, *kms_keys, *kms_default_key;
	uint64_t store_id; /* that requests may name, so that they are done in no other store */
	const struct s3_vault_opts *vault; /* a key service; NULL, or an empty address: none */
	uint32_t access_log_flush_s;	   /* how long access log lines gather; 0: a minute */
	/* Where events may go, as s3_notify_opts has it; 0 and NULL: its defaults. */
	const char *notify_targets, *notify_log_file;
	uint32_t notify_queue_events, notify_retry_s;
	uint64_t notify_queue_bytes;
	/* "none", "public", "any": as enum s3_notify_topics. NULL: none */
	const char *notify_topics;
	/* Which OpenID Connect issuers may be asked: the same words. NULL: none */
	const char *web_identity;
	bool express;	     /* directory buckets (base--zone--x-s3) can be made and used */
	bool anonymous_read; /* off by default */
	/* How a request whose bytes cannot move by RDMA is declined: an S3 error, or the way of
	 * AWS's draft, HTTP 200 with the bytes, or with an error document. */
	bool decline_by_draft;
	bool signature_v2; /* Signature Version 2 is accepted; off by default */
	/* New buckets let nobody in but by policies that are not public; and encrypt. */
	bool closed_buckets, encrypted_buckets;
	const uint8_t *secrets_key; /* 32 bytes that seal what is secret in the store; NULL: made of
				       the root's secret, for tests */
	uint32_t lifecycle_day_s;   /* how long a day of a lifecycle rule is; 0: 86,400 s */
};
int s3_open(const struct s3_opts *opts, struct store *store, struct s3 **ret_s3);
/* The id of this host in its answers: x-amz-id-2, and HostId of errors and of events. */
#define S3_HOST_ID_LEN 44u
void s3_host_id(char ret_id[S3_HOST_ID_LEN + 1]);
void s3_close(struct s3 *s3);
/* In a fiber of a reactor with this flow core, once, before requests come: reads who there is from
 * the store; then puts in what an accounts' file (as JSON; NULL: none) says. -EINVAL: the file; the
 * log says why. */
int s3_start(struct s3 *s3, struct flow_core *core, const char *accounts_json);
/* Fiber call, after that and before requests come: events that an earlier start left are sent, by
 * fibers of this reactor. -ENOMEM, -EAGAIN. */
int s3_outbox_start(struct s3 *s3);
/* Fiber call on the same reactor, when no request runs any more and before the store quiesces:
 * gives events a last moment. Harmless when it was not started. */
void s3_outbox_stop(struct s3 *s3);

enum s3_method { S3_GET, S3_HEAD, S3_PUT, S3_POST, S3_DELETE, S3_OPTIONS, S3_METHOD_OTHER };

struct s3_header {
	struct slice name;  /* as received; compare without case */
	struct slice value; /* trimmed */
};

/* How the payload is bound to the signature (x-amz-content-sha256). */
enum s3_payload {
	S3_PAYLOAD_UNSIGNED,
	S3_PAYLOAD_SHA256,	     /* the body must have this digest */
	S3_PAYLOAD_STREAMING_SIGNED, /* aws-chunked, each chunk signed */
	S3_PAYLOAD_STREAMING_SIGNED_TRAILER,
	S3_PAYLOAD_STREAMING_UNSIGNED_TRAILER,
};

/* The data that a body needs to verify chunk signatures; s3 provides it once the request is
 * authenticated. */
struct s3_chunk_signing {
	enum s3_payload payload;
	uint8_t signing_key[32];
	char seed_signature[65];
	char timestamp[17]; /* 20260101T000000Z */
	char scope[128];    /* 20260101/us-east-1/s3/aws4_request */
};

/* The request's body, implemented by the front. */
struct s3_body;
struct s3_body_ops {
	/* Starts it: sends "100 Continue" if it is awaited, sets up aws-chunked decoding per
	 * signing, then yields a source of the decoded bytes. bytes_total is the decoded length
	 * when known. Called at most once. */
	int (*open)(struct s3_body *body, const struct s3_chunk_signing *signing,
		struct flow_source **ret_source);
	/* Trailing header of the decoded stream by lower-case name, after its end; empty when
	 * absent. */
	struct slice (*trailer)(struct s3_body *body, const char *name);
};
struct s3_body {
	const struct s3_body_ops *ops;
	uint64_t bytes; /* decoded length if announced, else UINT64_MAX; 0: no body */
};
/* trailer of bodies that have none. */
static inline struct slice s3_body_no_trailer(struct s3_body *body, const char *name)
{
	(void)body;
	(void)name;
	return SLICE_NONE;
}

/* The caller, as a session keeps it. Secrets never leave s3/. */
struct s3_identity {
	char access_key[LIMIT_ACCESS_KEY_LEN_MAX + 1];
	bool root;
	bool anonymous;
};

/* ---- Requests whose body moves by RDMA, on memory that the client names in a token. ---- */
struct s3_token;
/* The two ends of a queue pair, of which addr, bytes and rkey say nothing. */
struct s3_token_end {
	struct token token;
	uint32_t psn, mtu;
};
struct s3_token_ops {
	/* Called when the caller is known and its request is allowed: 0 when the bytes can move,
	 * -EOPNOTSUPP when they cannot. */
	int (*admit)(struct s3_token *token, const struct s3_identity *identity);
	/* Joins a queue pair to the one of the request: *end is theirs, and then ours. -EINVAL: it
	 * cannot be joined; -ENOSPC: there are as many as are allowed; -EOPNOTSUPP. */
	int (*connect)(struct s3_token *token, const struct s3_identity *identity,
		struct s3_token_end *end);
	/* -ENOENT: this identity has no such queue pair. */
	int (*disconnect)(struct s3_token *token, const struct s3_identity *identity);
};
struct s3_token {
	const struct s3_token_ops *ops;
	struct token window;
	const char *bad; /* why the header's text is no token, or NULL */
	bool has_body;	 /* the message has one of its own */
	bool admitted;	 /* the bytes go by RDMA */
	bool failed;	 /* not all of the bytes could be moved */
};

struct s3_request {
	/* 0: method, path and query say what is asked for. Else an opcode of the native protocol
	 * that is direct (s3_native): bucket and key are set, decoded, and path is not looked at
	 * (query still is, for a list). Headers may be given as usual (range, conditions,
	 * metadata). This is the way of the microsecond: no parsing, no malloc. */
	uint8_t opcode;
	struct slice bucket;
	struct slice key;
	enum s3_method method;
	struct slice method_text;
	struct slice path;  /* percent-encoded, starts with '/' */
	struct slice query; /* percent-encoded, without '?' */
	const struct s3_header *headers;
	uint32_t header_count;
	struct s3_body *body;
	const struct s3_identity *session; /* authenticated by the transport (native); NULL: by the
					      request's signature */
	struct s3_token *token;		   /* of x-amz-rdma-token; NULL: it is declined */
	const char *declined;		   /* why; NULL: RDMA is switched off */
	const char *transport;		   /* "http", "https", "rdma-token", "rdma" */
	const char *peer;
	char request_id[17]; /* 16 hex digits, set by the front */
	struct flow_core *core;
	/* Of a success the front passes on nothing but status, length and ETag: no other header
	 * need be made. */
	bool etag_only;
	struct s3_lease *lease; /* of a native GET; NULL: none is wanted */
};

/* An object that the client would like to read again by itself (docs/design/lease.md): its body is
 * offered, once, when nothing but who asks was asked for, and he may have it whatever else holds.
 */
struct s3_lease {
	uint64_t epoch;	    /* s3_lease_epoch, before the request is handled */
	uint64_t bytes_max; /* longer ones are not offered */
	/* Copies the body to where the client may read it, until the watch ends; NULL: no room. */
	struct store_object_watch *(*copy)(struct s3_lease *lease, struct slice body);
	/* The copy is no longer the key's object: revoke it. */
	void (*stale)(struct s3_lease *lease);
};
uint64_t s3_lease_epoch(const struct s3 *s3);
void s3_lease_end(struct s3 *s3, struct store_object_watch *watch);

/* The answer, implemented by the front. head, then (unless bytes is 0 or the method is HEAD) the
 * body. */
struct s3_reply;
struct s3_reply_ops {
	/* bytes: the body's length. For HEAD it is announced and no body follows. Adds Date,
	 * Server, request id itself. */
	int (*head)(struct s3_reply *reply, uint32_t status, const struct s3_header *headers,
		uint32_t header_count, uint64_t bytes);
	/* A small body (XML) at once. Borrowed for the call. */
	int (*text)(struct s3_reply *reply, struct slice body);
	/* A sink for exactly the announced bytes: socket, RDMA WRITE or inline capsule. */
	int (*sink)(struct s3_reply *reply, struct flow_sink **ret_sink);
};
struct s3_reply {
	const struct s3_reply_ops *ops;
	uint32_t status; /* set by head; 0: nothing sent yet */
	bool broken; /* the body could not be finished: the front must end the connection or fail
			the transfer */
	int error;   /* the error of the body's source or sink: -errno; 0: unknown */
};

/* Any fiber of an attached reactor. Always answers through reply unless the transport broke. */
void s3_handle(struct s3 *s3, const struct s3_request *request, struct s3_reply *reply);

/* ---- The native protocol. ---- */
/* The operation of an opcode (docs/spec/wire.md, section 5), in the terms of HTTP. */
struct s3_native {
	enum s3_method method;
	const char *method_text;
	const char *query; /* the parameter that the opcode stands for; empty: none */
	bool direct;	   /* may be a request's opcode */
};
/* False: no operation has this opcode. Any thread. */
bool s3_native(uint8_t opcode, struct s3_native *ret_native);
/* Session set-up: the derived key of an access key for authenticating a transport session:
 * HMAC-SHA256("NEBULA1" + secret, context). -ENOENT: no such key. */
int s3_session_key(struct s3 *s3, struct slice access_key, struct slice context,
	uint8_t ret_key[32], struct s3_identity *ret_identity);

/* Answers a request below /admin/v1/ with JSON (docs/spec/admin.md), signed by the server's root.
 * In a fiber. */
void s3_admin_handle(struct s3 *s3, const struct s3_request *request, struct s3_reply *reply);

/* Lets page answer a request whose bearer token says who asks (a JWT, as Prometheus is given one
 * for MinIO), when that one is the server's root or may "admin:Prometheus"; else answers
 * AccessDenied. In a fiber. */
typedef void s3_page_fn(void *arg, const struct s3_request *request, struct s3_reply *reply);
void s3_bearer_handle(struct s3 *s3, const struct s3_request *request, struct s3_reply *reply,
	s3_page_fn *page, void *arg);

/* An S3 error as the table in core/error.c has it. */
struct s3_error {
	const char *code;    /* "NoSuchKey" */
	uint32_t status;     /* 404 */
	const char *message; /* never empty */
};
/* The one place where errno becomes an S3 code. */
const struct s3_error *s3_error_of(int error);
const struct s3_error *s3_error_named(const char *code);

/* ---- Lifecycle: the rules of one bucket, for a job that walks its versions. ---- */
struct s3_lifecycle;
/* Fiber calls, all on one reactor. -ENOENT: no such bucket, or it has no rules. */
int s3_lifecycle_open(struct s3 *s3, struct flow_core *core, struct slice bucket,
	struct s3_lifecycle **ret_lifecycle);
void s3_lifecycle_close(struct s3_lifecycle *lifecycle); /* takes NULL */
enum store_lifecycle_verdict s3_lifecycle_judge(const struct s3_lifecycle *lifecycle,
	const struct store_lifecycle_version *version, struct store_flags *ret_flags);
/* Whether no lock keeps the version. Any thread, never blocks. */
bool s3_lifecycle_may_delete(const struct store_meta *version);
/* Events of what is about to be done: the commit takes the outbox row along; NULL: nobody is told.
 * One at a time, between the two. */
struct store_outbox_row *s3_lifecycle_tell_begin(
	struct s3_lifecycle *lifecycle, const struct store_lifecycle_action *action);
void s3_lifecycle_tell_end(struct s3_lifecycle *lifecycle, const struct store_outcome *outcome);
/* Ends uploads of the bucket that rules say were left. */
int s3_lifecycle_abort_uploads(struct s3_lifecycle *lifecycle, uint32_t *ret_count);

bool s3_bucket_name_valid(struct slice name);
bool s3_key_valid(struct slice key); /* 1 to 1,024 bytes of UTF-8 */

#endif
