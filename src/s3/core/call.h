/* s3/core/call.h: the server state of s3, and the call: one request in progress, with its arena,
 * its errors, its headers and parameters.
 *
 *   s3_handle ─ route ─ auth ─ authorise ─ op/ ─ answer */
#ifndef S3_CORE_CALL_H
#define S3_CORE_CALL_H

#include "base/mem_arena.h"
#include "reactor/waiter.h"
#include "s3/core/operation.h"
#include "s3/core/text.h"
#include "s3/s3.h"

/* ---- Errors. ---- */
enum s3_error_id {
#define ERROR(id, code, status, message) S3_E_##id,
#include "s3/core/error_table.inc"
#undef ERROR
	S3_E_COUNT
};
const struct s3_error *s3_error_at(enum s3_error_id id);

/* ---- The server state of s3. ---- */
struct s3_config_kind;
struct s3 {
	struct store *store;
	uint64_t store_id;
	char root_access_key[LIMIT_ACCESS_KEY_LEN_MAX + 1];
	char root_secret_key[LIMIT_SECRET_KEY_LEN_MAX + 1];
	char region[33];
	char host_domain[254];
	char website_domain[254];
	bool anonymous_read;
	bool express; /* there are directory buckets */
	int64_t lifecycle_day_s;
	uint64_t replication_minute_s;
	bool decline_by_draft;
	bool signature_v2;			/* Signature Version 2 is accepted */
	bool closed_buckets, encrypted_buckets; /* flags of new buckets */
	char host_id[BASE64_LEN(SHA256_BYTES) +
		     1]; /* distinguishes this host's errors from another's */
	struct sigv4_keys *keys;
	struct s3_keyring *keyring;
	struct s3_settings_table *settings;
	struct s3_access_log *access_log;
	struct s3_notify *notify;
	struct s3_oidc *oidc;
	struct s3_outbox *outbox; /* NULL: not started */
	struct s3_replicate *replicate;
	_Atomic(const struct s3_origin_hook *) origin; /* NULL: nothing is fetched */
	struct flow_fans *fans;
	struct iam *iam;
	struct s3_names names; /* claim NULL: they are this store's alone */
	_Atomic bool naming;   /* a bucket is being made or deleted, with names */
	/* A bucket and its documents are being made, an account deleted, or a document without its
	 * bucket. */
	struct fiber_mutex owning;
	/* A configuration of a bucket that excludes others is being checked and stored. Its holder
	 * waits for the store only. */
	struct fiber_mutex excluding;
	const struct s3_config_kind *config_kinds; /* by id: the handlers are in a higher layer */
};
/* ---- One request in progress. ----
 *
 *   made ──────► routed ──────► authenticated ──────► running ──────► answered
 *   s3_handle    s3_route       s3_authenticate       its handler     reply->status != 0
 *
 * A native opcode is routed and authenticated from the start. */
struct iam_session;
#define S3_CALL_MAGIC 0x53ca11edu
struct s3_call {
	uint32_t magic; /* until it is answered */
	struct s3 *s3;
	const struct s3_request *request; /* set by s3_call_request */
	uint64_t header_marks;		  /* of its headers' names */
	struct s3_reply *reply;
	const struct s3_operation *operation;
	const char *log_name;  /* its name in access logs after "REST."; NULL: none */
	struct slice declined; /* a parameter that no served operation takes; or empty */
	struct slice bucket;
	struct slice key; /* decoded */
	struct s3_params params;
	struct s3_settings *settings;	    /* of the bucket, if they were needed */
	struct s3_former *former;	    /* settings that it had before; or NULL */
	const struct s3_identity *identity; /* anonymous until a signature is proven */
	struct iam_principal *principal;    /* a reference; NULL: the server's root, or an anonymous
					       caller; only claimed while that is anonymous */
	struct iam_credential *credential;  /* a reference, when a key of the table was used */
	const struct iam_session *sts;	    /* the caller's STS session; or NULL */
	struct slice session_bucket;	    /* directory bucket of the caller's session; or empty */
	uint64_t session_store_id, session_bucket_id;
	bool session_read_only;
	struct slice form; /* the document or form, once s3_call_read has read it */
	bool form_read;
	bool presigned;
	int64_t signed_ms; /* when the request was signed; 0: unsigned, or unknown */
	bool version2;	   /* its signature is of Version 2 */
	bool form_signed;  /* its signature is a field of a form */
	bool by_acl;	   /* allowed only by an access control list */
	bool website;	   /* a page of a bucket's website */
	bool conditional;  /* the policies' decision depended on more than caller, action and
			      resource */
	/* Its rights depend on these values of objects: core/judged.h. */
	struct s3_judged *judged;
	uint64_t rights_epoch;	  /* of the store, before the caller was looked up */
	bool whole;		  /* ranges and conditions are ignored */
	bool etag_md5;		  /* this client expects an MD5 as ETag */
	const struct s3_sse *sse; /* encryption of the body that is being stored; or NULL */
	uint64_t start_ns;
	uint64_t log_start_ns; /* as start_ns, for the bucket's own log */
	uint64_t body_bytes;   /* bytes moved, either way; also a copy's, which its client does not
				  see */
	uint64_t received_bytes, sent_bytes; /* part of these, from and to the client */
	/* Details of an error beyond its table entry. */
	const char *message; /* NULL: the table's */
	struct slice detail; /* XML elements for the error document */
	/* The source of a copy, while an error is about it; empty: errors are about the call's own
	 * object. */
	struct slice blamed_bucket, blamed_key;
	uint32_t header_base; /* how many of the headers below every answer has */
	uint32_t header_count;
	struct s3_chunk_signing signing;
	char content_sha256[65]; /* S3_PAYLOAD_SHA256: the required digest of the body */
	struct s3_identity own_identity;
	struct mem_arena arena;
	struct s3_header headers[S3_REPLY_HEADERS_MAX];
};

/* Checks a call when it enters an operation, and after it waited. */
static inline void s3_call_check(const struct s3_call *call)
{
	CHECK(call->magic == S3_CALL_MAGIC);
	CHECK(call->operation != NULL);
	CHECK(call->header_base <= call->header_count);
	CHECK(call->header_count <= S3_REPLY_HEADERS_MAX);
}

/* Either sends the whole answer and returns NULL; or sends nothing and returns the error to answer
 * with. */
typedef const struct s3_error *s3_operation_fn(struct s3_call *call);

/* The caller may do what it asks for. */
static inline void s3_call_proven(const struct s3_call *call)
{
	if (call->reply->ret_proven)
		*call->reply->ret_proven = true;
}

/* The request that the call is about: at its begin, and when it gets more headers. */
void s3_call_request(struct s3_call *call, const struct s3_request *request);
/* The value of a request header, empty data when absent. */
struct slice s3_call_header(const struct s3_call *call, struct slice name);
bool s3_call_has_header(const struct s3_call *call, struct slice name);
bool s3_call_param(const struct s3_call *call, struct slice name, struct slice *ret_value);
/* Sets the message of the error to answer with and returns that error. */
const struct s3_error *s3_fail(struct s3_call *call, enum s3_error_id id, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Returns InvalidArgument with a message, and with the argument's name and value in the document.
 */
const struct s3_error *s3_fail_argument(
	struct s3_call *call, const char *name, struct slice value, const char *message);
/* NotImplemented: names the feature that is not served. */
const struct s3_error *s3_fail_declined(struct s3_call *call);
/* Adds <name>value</name> to the error document. */
void s3_fail_detail(struct s3_call *call, const char *name, struct slice value);
/* The S3 error for an errno of the store, a bucket or a body. */
const struct s3_error *s3_fail_errno(struct s3_call *call, int error);
/* The share whose frames the call's bodies use: the user's, or for an anonymous caller, and until
 * the signature is proven, the address's. From now on the calling fiber runs in that share, too. */
uint16_t s3_call_share(const struct s3_call *call);
/* Only the share, cheap enough for every request. */
void s3_call_join(struct s3_call *call);
/* The Retry-After of a 503. */
#define S3_RETRY_AFTER_S "1"
/* Looks the bucket up; NULL: it exists, and is the one by whose settings the rights were decided.
 */
const struct s3_error *s3_call_bucket(struct s3_call *call, struct store_bucket *ret_bucket);
/* store_bucket_edit of that bucket, whose settings have then changed. */
int s3_call_bucket_edit(struct s3_call *call, store_bucket_edit_fn *edit, void *arg);

/* The part before ".domain" in the request's host; empty: another host. */
struct slice s3_host_bucket(const struct s3_call *call, struct slice domain);
/* How long ago the call began. */
uint64_t s3_call_age_ns(const struct s3_call *call);
/* Requests in progress, and their results. */
void s3_metrics_begin(void);
void s3_metrics_end(const struct s3_call *call);

/* ---- Directory buckets. ---- */
/* Checks only the end of the name, for names that were validated; text.h has s3_express_zone. */
static inline bool s3_express_bucket(const struct s3_call *call)
{
	return slice_ends(call->bucket, SLICE("--x-s3"));
}

#endif
