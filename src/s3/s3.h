/* s3/s3.h: the S3 protocol, transport-blind. A front (HTTP, RDMA token, native capsules) turns
 * bytes into a struct s3_request and implements struct s3_reply. s3_handle() does the rest on the
 * calling fiber: routes, authenticates, authorises, runs the operation, answers exactly once. One
 * file per operation: op/put_object.c, … */
#ifndef S3_S3_H
#define S3_S3_H

#include "base/base.h"
#include "codec/codec.h"
#include "flow/flow.h"
#include "store/lifecycle.h"

struct s3;

struct flow_cast_opts;
struct s3_vault_opts;

/* Names of buckets that several stores share. On a helper thread; both may block. */
struct s3_names {
	/* Before a bucket is made: 0: the name is this store's; -EEXIST: another has it. */
	int (*claim)(void *arg, const char *bucket);
	/* After it was deleted: 0 when everybody knows. */
	int (*release)(void *arg, const char *bucket);
	/* Accounts are the same in all stores (iam/iam.h, struct iam_share): after one was changed;
	 * NULL: nobody is told. */
	int (*account_changed)(void *arg, const char *number);
	bool follows; /* accounts come from another store, by s3_account_take */
	void *arg;
};
struct s3_opts {
	const char *root_access_key;
	const char *root_secret_key;
	const char *region; /* "us-east-1" when NULL; a signature with any region in its scope is
			       accepted */
	const char
		*host_domain; /* for virtual-host style: "s3.example.com"; NULL: path style only */
	const char *website_domain; /* pages of buckets' websites: "bucket.DOMAIN"; NULL: none */
	/* Master keys of encryption at rest, lines of "ID BASE64"; NULL: one derived
	 * from the root's secret, for tests. Names of KMS keys, separated by commas, and the
	 * default for writes that name none; NULL: none. */
	const char *encryption_keys, *kms_keys, *kms_default_key;
	const struct s3_names *names;	   /* copied; NULL: all names are this store's */
	uint64_t store_id;		   /* a request that names another store's id is refused */
	const struct s3_vault_opts *vault; /* a key service; NULL, or an empty address: none */
	uint32_t access_log_flush_s;	   /* how long access log lines are buffered; 0: a minute */
	/* Targets and limits of event delivery, as in s3_notify_opts; 0 and NULL: its defaults. */
	const char *notify_targets, *notify_log_file;
	uint32_t notify_queue_events, notify_retry_s;
	uint64_t fan_out_patience_ns; /* 0: FLOW_FAN_PATIENCE_NS */
	/* Of fan-outs (flow/fan_out.h); the strings live as long as s3; NULL: none. */
	const struct flow_cast_opts *multicast;
	uint64_t notify_queue_bytes;
	/* "none", "public" or "any", as in enum s3_notify_topics. NULL: none */
	const char *notify_topics;
	/* Which OpenID Connect issuers the server may connect to: the same words. NULL: none */
	const char *web_identity;
	bool express;	     /* directory buckets (base--zone--x-s3) can be created and used */
	bool anonymous_read; /* off by default */
	/* How a request whose bytes cannot move by RDMA is declined: an S3 error, or, as in AWS's
	 * draft, HTTP 200 with the bytes or with an error document. */
	bool decline_by_draft;
	bool signature_v2; /* Signature Version 2 is accepted; off by default */
	/* New buckets block public access; new buckets encrypt by default. */
	bool closed_buckets, encrypted_buckets;
	const uint8_t *secrets_key; /* 32 bytes that seal secrets in the store; NULL: derived from
				       the root's secret, for tests */
	uint32_t lifecycle_day_s;   /* how long a day of a lifecycle rule is; 0: 86,400 s */
	uint32_t replication_minute_s; /* how long a minute of an EventThreshold is; 0: 60 s */
};
int s3_open(const struct s3_opts *opts, struct store *store, struct s3 **ret_s3);
/* The id of this host in its answers: x-amz-id-2, and HostId of errors and of events. */
#define S3_HOST_ID_LEN 44u
void s3_host_id(char ret_id[S3_HOST_ID_LEN + 1]);
void s3_close(struct s3 *s3);
/* Fiber call on a reactor with this flow core, once, before requests come: reads the identities
 * from the store, then adds those of the accounts file (JSON; NULL: none). -EINVAL: the file is
 * invalid; the log says why. */
int s3_start(struct s3 *s3, struct flow_core *core, const char *accounts_json);
/* ---- Accounts that several stores share. Any thread. ---- */
/* The account's document; -ENOENT. */
int s3_account_text(struct s3 *s3, const char *number, struct buf *out);
typedef void s3_account_fn(void *arg, const char *number);
void s3_account_each(struct s3 *s3, s3_account_fn *visit, void *arg);
/* The account's document as another store has it, or (data NULL) the account's end. -EBADMSG. */
int s3_account_take(struct s3 *s3, const char *number, struct slice text);
/* Fiber call, after s3_start and before requests come: starts fibers on this reactor that send the
 * events an earlier run left unsent. -ENOMEM, -EAGAIN. */
int s3_outbox_start(struct s3 *s3);
/* Fiber call on the same reactor, when no request runs any more and before the store quiesces:
 * gives unsent events a last moment. Does nothing if s3_outbox_start was not called. */
void s3_outbox_stop(struct s3 *s3);
/* Fiber call, when no request runs any more and before the store quiesces: puts the lines of access
 * logs that wait. Begins no put after the deadline: the lines that are left are lost, as the log
 * says. */
void s3_access_log_stop(struct s3 *s3, uint64_t deadline_ns);
/* From now on no GetObject waits for other clients (docs/design/fan-out.md). Any thread. */
void s3_fan_out_stop(struct s3 *s3);

enum s3_method { S3_GET, S3_HEAD, S3_PUT, S3_POST, S3_DELETE, S3_OPTIONS, S3_METHOD_OTHER };
/* Whether no request of the method changes anything, so that a second one does no harm. */
static inline bool s3_method_harmless(enum s3_method method)
{
	return method == S3_GET || method == S3_HEAD || method == S3_OPTIONS;
}

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
	/* Set by open, of a session's body: its frames count in the share, also when it is small,
	 * because the client delays others. */
	bool counts;
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
	uint64_t secret_mark; /* of a session: iam_credential's; 0: root */
	bool root;
	bool anonymous;
};

/* ---- Requests whose body moves by RDMA, on memory that the client names in a token. ---- */
struct s3_token;
/* One end of a queue pair; addr, bytes and rkey of the token are not used. */
struct s3_token_end {
	struct token token;
	uint32_t psn, mtu;
};
struct s3_token_ops {
	/* Called when the caller is known and its request is allowed: 0 when the bytes can move,
	 * -EOPNOTSUPP when they cannot; -ENOENT: the session is not the caller's; -EBUSY: its bytes
	 * move already. */
	int (*admit)(struct s3_token *token, const struct s3_identity *identity);
	/* Joins a queue pair to the one of the request: *end is the client's end on entry and ours
	 * on return. -EINVAL: it cannot be joined; -ENOSPC: the maximum is reached; -EOPNOTSUPP. */
	int (*connect)(struct s3_token *token, const struct s3_identity *identity,
		struct s3_token_end *end);
	/* -ENOENT: this identity has no such queue pair. */
	int (*disconnect)(struct s3_token *token, const struct s3_identity *identity);
};
struct s3_token {
	uint16_t share; /* of the principal that connects, or is to be admitted */
	const struct s3_token_ops *ops;
	struct token window;
	const char *bad; /* why the header's text is not a token, or NULL */
	bool has_body;	 /* the message itself has a body */
	bool admitted;	 /* the bytes go by RDMA */
	bool failed;	 /* not all of the bytes could be moved */
	/* Waits for a fan-out, as the client has asked: not part of the time that its bytes have.
	 */
	uint64_t wait_ns;
};

/* ---- Signed messages that stand for an operation on an object, whose bytes move by RDMA
 * (docs/spec/hipobj.md). ---- */
enum s3_control_step {
	S3_CONTROL_PREPARE, /* may it be done? A read is asked as HeadObject; a write is not run */
	S3_CONTROL_READY,   /* the operation itself */
	S3_CONTROL_CANCEL,
	/* Unsigned: nobody is known yet (docs/spec/elbencho.md). */
	S3_CONTROL_CONNECT,
	S3_CONTROL_DISCONNECT,
};
struct s3_control;
struct s3_control_ops {
	/* Does what a message asks for that stands for no operation: cancels, connects or
	 * disconnects. NULL, or the code of the error. */
	const char *(*run)(struct s3_control *control, const struct s3_identity *identity);
};
struct s3_control {
	const struct s3_control_ops *ops;
	enum s3_control_step step;
	/* The request's method, path and query are those of the operation, and its headers those
	 * that count for it. The signature is of the message: these, with an empty query. False:
	 * the request is the message itself, and is answered with the error below. */
	bool stands_for;
	struct slice method_text, path;
	const struct s3_header *headers;
	uint32_t header_count;
	bool has_body;	  /* the message has a body */
	const char *code; /* the error of the message; NULL: none */
	const char *why;  /* or NULL */
	uint64_t bytes;	  /* that the client asks for: a read that has others is refused */
	struct s3_identity identity; /* of the message, as soon as its signature is proven */
	uint16_t share;		     /* of the principal; PREPARE, answered without an error */
};

/* The two ends of a copy between stores of a cluster (docs/spec/via.md). */
enum s3_carry {
	S3_CARRY_NONE,
	S3_CARRY_GIVE, /* answer the source of the copy, nothing else */
	S3_CARRY_TAKE  /* the source comes as the request's body */
};

/* The part of an object at its bucket's origin that the copy keeps. */
struct s3_fetched {
	const char *etag;  /* without quotes; empty: the object gets one as others do */
	struct slice note; /* for S3_ORIGIN_HEADER */
};

struct s3_request {
	/* 0: method, path and query select the operation. Otherwise a direct opcode of the native
	 * protocol (s3_native): bucket and key are set and decoded, and path is ignored (query is
	 * still read, for a list). Headers may be given as usual (range, conditions, metadata).
	 * This is the fast path: no parsing, no malloc. */
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
	struct s3_token *token;		   /* of x-amz-rdma-token; NULL: declined */
	struct s3_control *control;	   /* of such a message; or NULL */
	const char *declined;		   /* the reason; NULL: RDMA is switched off */
	const char *transport;		   /* "http", "https", "rdma-token", "rdma" */
	const char *peer;
	char request_id[17]; /* 16 hex digits, set by the front */
	struct flow_core *core;
	/* If the request succeeds, the front sends only status, length and ETag: no other header is
	 * needed. */
	bool etag_only;
	struct s3_lease *lease; /* of a native GET; NULL: not wanted */
	enum s3_carry carry;	/* of a copy that a gateway passes on */
	/* Of a put by the server itself of an object that came from the bucket's origin; or NULL.
	 */
	const struct s3_fetched *fetched;
	/* Whether nobody waits for the answer any more; NULL: not known. The thread that handles
	 * the request asks, which may be another one than its connection's. */
	bool (*left)(const void *arg);
	const void *left_arg;
};

/* A client's wish to read an object again without the server (docs/design/lease.md). The body is
 * offered once, if the request had no conditions or options and the caller may read the object
 * under any conditions.
 */
struct s3_lease {
	uint64_t epoch;	    /* s3_lease_epoch, before the request is handled */
	uint64_t bytes_max; /* longer bodies are not offered */
	/* Copies the body to memory that the client may read, until the watch ends; NULL: no
	 * room. */
	struct store_object_watch *(*copy)(struct s3_lease *lease, struct slice body);
	/* The copy is no longer the key's object: revoke it. */
	void (*stale)(struct s3_lease *lease);
};
uint64_t s3_lease_epoch(const struct s3 *s3);
void s3_lease_end(struct s3 *s3, struct store_object_watch *watch);

/* The answer, implemented by the front. head, with at most so many headers, then (unless bytes is 0
 * or the method is HEAD) the body. */
#define S3_REPLY_HEADERS_MAX (LIMIT_HTTP_HEADERS_MAX + 28)
struct s3_reply;
struct s3_reply_ops {
	/* bytes: the body's length. For HEAD the length is announced and no body follows. Adds
	 * Date, Server, request id itself. */
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
	/* Set by sink: the body's frames count in the share, also when it is small, because the
	 * client does not take others. */
	bool counts;
	/* The answer is about this process, not about its store: it is given also when another
	 * process may have the store (base/life.h). */
	bool of_process;
	/* Set to true once the caller may do what it asks for; NULL: nobody wants to know. Until
	 * then, it may be anybody who is slow to send a form. */
	bool *ret_proven;
};

/* Any fiber of an attached reactor. Always answers through reply unless the transport broke. */
void s3_handle(struct s3 *s3, const struct s3_request *request, struct s3_reply *reply);

/* ---- The native protocol. ---- */
/* The operation of an opcode (docs/spec/wire.md, section 5), as an HTTP request. */
struct s3_native {
	enum s3_method method;
	const char *method_text;
	const char *query; /* the query parameter that the opcode implies; empty: none */
	bool direct;	   /* may be the opcode of struct s3_request */
};
/* False: no operation has this opcode. Any thread. */
bool s3_native(uint8_t opcode, struct s3_native *ret_native);
/* Session set-up: the derived key of an access key for authenticating a transport session:
 * HMAC-SHA256("NEBULA1" + secret, context). -ENOENT: no such key. */
int s3_session_key(struct s3 *s3, struct slice access_key, struct slice context,
	uint8_t ret_key[32], struct s3_identity *ret_identity);

/* ---- Requests that a front makes for its client, by credentials that it keeps (auth/sign.c). ----
 */
struct s3_signer {
	struct slice access_key, secret;
	struct slice token;  /* of temporary credentials; empty: none */
	const char *service; /* "s3", "iam" or "sts" */
};
struct s3_signed {
	char date[16];
	struct buf authorization;
	uint32_t header_count;
	struct s3_header headers[LIMIT_HTTP_HEADERS_MAX];
};
/* Begin; add the headers that go along (false: too many), which must have a Host, none of those
 * that begin adds (x-amz-content-sha256, x-amz-security-token), and neither x-amz-date nor
 * Authorization; end. Then the request, whose method, path and query are set, has the headers and
 * their signature. They live until free, which takes one that has begun; signer, header and query
 * are borrowed until then. -EINVAL: the query or the path cannot be decoded; -ENOMEM. */
void s3_sign_begin(struct s3_signed *ret_signed, const struct s3_signer *signer);
bool s3_sign_header(struct s3_signed *signed_by, const struct s3_header *header);
int s3_sign_end(
	struct s3_request *request, const struct s3_signer *signer, struct s3_signed *signed_by);
void s3_sign_free(struct s3_signed *signed_by);
/* Appends the query of a presigned URL for method, path and query of a request; its headers are the
 * URL's Host. The errors are those of s3_sign_end. */
int s3_presign(const struct s3_request *request, const struct s3_signer *signer, uint32_t expires_s,
	struct buf *ret_query);
/* Lets page answer a signed request of the server's root, or of a principal of its account who may
 * "admin:Prometheus"; answers the refusal otherwise. In a fiber. */
typedef void s3_page_fn(void *arg, const struct s3_request *request, struct s3_reply *reply);
void s3_page_handle(struct s3 *s3, const struct s3_request *request, struct s3_reply *reply,
	s3_page_fn *page, void *arg);

/* Answers an allowed request of a path that belongs to the server's other parts: writes JSON.
 * path is the part behind /admin/v1/. -ENOENT: not a path of theirs; -EINVAL: it cannot be done,
 * and out has the reason as text; -EAGAIN: requested too often; -ENOMEM. Fiber call. */
typedef int s3_admin_tell_fn(void *arg, enum s3_method method, struct slice path, struct buf *out);
/* Answers a request below /admin/v1/ with JSON (docs/spec/admin.md), signed by the server's root;
 * users of its account who may "admin:ConsoleLog" may read the log, those who may "admin:Backup"
 * may make backups, those who may "admin:Region" may change the size of the memory region. tell may
 * be NULL. In a fiber of the first reactor. */
void s3_admin_handle(struct s3 *s3, const struct s3_request *request, struct s3_reply *reply,
	s3_admin_tell_fn *tell, void *tell_arg);
/* The ARN of who proved that identity, now; empty: its key is gone, or has another secret. */
void s3_identity_arn(
	struct s3 *s3, const struct s3_identity *identity, char *ret_arn, size_t arn_bytes);

/* Lets page answer a request whose bearer token (a JWT, like Prometheus's token for MinIO) names
 * the server's root or an identity of its account that may do "admin:Prometheus"; otherwise answers
 * AccessDenied. Fiber call. */
void s3_bearer_handle(struct s3 *s3, const struct s3_request *request, struct s3_reply *reply,
	s3_page_fn *page, void *arg);

/* An S3 error as in the table of core/error.c. */
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
/* Takes the rules as they are now, if they changed: before each decision. Errors as of open; then
 * the rules are those of before. */
int s3_lifecycle_renew(struct s3_lifecycle *lifecycle);
/* Whether the rules are still those that renew took. Any thread, never blocks. */
bool s3_lifecycle_is_current(const struct s3_lifecycle *lifecycle);
enum store_lifecycle_verdict s3_lifecycle_judge(const struct s3_lifecycle *lifecycle,
	const struct store_lifecycle_version *version, struct store_flags *ret_flags);
/* Whether no lock protects the version. Any thread, never blocks. */
bool s3_lifecycle_may_delete(const struct store_meta *version);
/* Begins and ends the event of one action: the commit writes the outbox row with it; NULL: no rule
 * wants the event. One action at a time, between the two calls. */
struct store_outbox_row *s3_lifecycle_tell_begin(
	struct s3_lifecycle *lifecycle, const struct store_lifecycle_action *action);
void s3_lifecycle_tell_end(struct s3_lifecycle *lifecycle, const struct store_outcome *outcome);
/* Aborts the bucket's uploads that its rules call abandoned. */
int s3_lifecycle_abort_uploads(struct s3_lifecycle *lifecycle, uint32_t *ret_count);

bool s3_bucket_name_valid(struct slice name);
/* 1 to 1,024 bytes of UTF-8, none of them zero: C's strings would name another object. */
bool s3_key_valid(struct slice key);

/* How long STS lets a session of the role last, in seconds; the ARN names the role's account. 0:
 * there is no such role. Any thread. */
uint64_t s3_role_seconds(struct s3 *s3, struct slice role_arn);

/* ---- OpenID Connect's authorization code flow, for the web console: the server is a client at one
 * issuer. Source: OpenID Connect Core 1.0, section 3.1; RFC 7636. ---- */
#define S3_OPENID_URL_MAX 2048u
struct s3_openid;
struct s3_openid_opts {
	const char *issuer, *client_id;
	const char *client_secret; /* "": a public client */
	const char *ca_file;	   /* authorities to trust in place of the system's; "": none */
};
/* The strings are copied. -ENOMEM. */
int s3_openid_open(struct s3 *s3, const struct s3_openid_opts *opts, struct s3_openid **ret_openid);
void s3_openid_close(struct s3_openid *openid); /* takes NULL */
/* The URL at which a browser begins: the issuer's authorization endpoint, from its discovery
 * document, which is kept for an hour. Fiber call, always of the same reactor, as the next. -EIO,
 * -ETIMEDOUT: the issuer does not answer, or not as it should (logged, and for some seconds not
 * tried again). */
int s3_openid_begin(struct s3_openid *openid, char ret_url[S3_OPENID_URL_MAX + 1]);
struct s3_openid_code {
	struct slice code, verifier, redirect_uri;
};
/* Exchanges a code for an ID token, which nobody has verified yet. -EACCES: the issuer refuses the
 * code; -EAGAIN: too many exchanges at a time; -EIO, -ETIMEDOUT, -ENOMEM. */
int s3_openid_redeem(
	struct s3_openid *openid, const struct s3_openid_code *code, struct buf *ret_token);

#endif
