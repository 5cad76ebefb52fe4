/* s3/s3_priv.h: what the files of s3 share: the call (one request being answered) and its arena,
 * errors, query parameters, names, conditions, ranges, XML in and out, and the operations.
 *
 *   s3_handle ─ route ─ auth ─ authorise ─ op/ ─ answer
 *                 │       └ auth/sigv4.c: pure, on plain buffers
 *                 └ query.c, names.c: pure, on plain buffers
 */
#ifndef S3_S3_PRIV_H
#define S3_S3_PRIV_H

#include "base/mem_arena.h"
#include "s3/s3.h"
#include "s3/auth/sigv4.h"
#include "s3/core/text.h"

#define S3_REPLY_HEADERS_MAX (LIMIT_HTTP_HEADERS_MAX + 28)
#define S3_XML_DEPTH_MAX     16u
#define S3_XML_NODES_MAX     65536u /* 10,000 parts with their checksums */
/* 1,000 entries of a key whose every byte became "&#x1f;", and what stands beside it. */
#define S3_XML_REPLY_BYTES_MAX (1000u * (6u * LIMIT_KEY_LEN_MAX + 1024u))

/* ---- Errors. ---- */
enum s3_error_id {
#define ERROR(id, code, status, message) S3_E_##id,
#include "s3/core/error_table.inc"
#undef ERROR
	S3_E_COUNT
};
const struct s3_error *s3_error_at(enum s3_error_id id);

/* ---- The server's side of s3. ---- */
struct s3_operation;
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
	bool decline_by_draft;
	bool signature_v2;			    /* is accepted */
	bool closed_buckets, encrypted_buckets;	    /* what new ones are */
	char host_id[BASE64_LEN(SHA256_BYTES) + 1]; /* tells this host's errors from another's */
	struct sigv4_keys *keys;
	struct s3_keyring *keyring;
	struct s3_settings_table *settings;
	struct s3_access_log *access_log;
	struct s3_notify *notify;
	struct s3_oidc *oidc;
	struct s3_outbox *outbox; /* NULL: not started */
	struct iam *iam;
	/* What stands above all rooms, by id. */
	const struct s3_operation *operations;
	const struct s3_config_kind *config_kinds;
};
/* ---- One request being answered. ----
 *
 *   made ──────► routed ──────► authenticated ──────► running ──────► answered
 *   s3_handle    s3_route       s3_authenticate       op->run         reply->status != 0
 *
 * A native opcode is routed and authenticated from the start. */
struct iam_session;
#define S3_CALL_MAGIC 0x53ca11edu
struct s3_call {
	uint32_t magic; /* until it is answered */
	struct s3 *s3;
	const struct s3_request *request;
	struct s3_reply *reply;
	const struct s3_operation *operation;
	const char *log_name;  /* what access logs call it behind "REST."; NULL: nothing */
	struct slice declined; /* the parameter that no operation served here takes; or empty */
	struct slice bucket;
	struct slice key; /* decoded */
	struct s3_params params;
	struct s3_settings *settings; /* of the bucket, when something asked for them */
	const struct s3_identity *identity;
	struct iam_principal *principal;   /* a reference; NULL: the server's root, or nobody */
	struct iam_credential *credential; /* a reference, when a key of the table was used */
	const struct iam_session *sts;	   /* the session of STS that asks; or NULL */
	struct slice session_bucket; /* asked by a session of this directory bucket; or empty */
	bool session_read_only;
	struct slice form; /* a body that the signature made be read already */
	bool form_read;
	bool presigned;
	int64_t signed_ms; /* when the request was signed; 0: it was not, or does not say */
	bool version2;	   /* its signature is of Version 2 */
	bool by_acl;	   /* nothing but an access control list let it in */
	bool website;	   /* a page of a bucket's website */
	bool conditional;  /* the policies asked about more than who, what and on what */
	bool whole;	   /* ranges and conditions do not count */
	bool etag_md5;	   /* this client expects an MD5 as ETag */
	const struct s3_sse
		*sse; /* what the body that is being stored is encrypted with; or NULL */
	uint64_t start_ns;
	uint64_t log_start_ns; /* as start_ns, for the bucket's own log */
	uint64_t body_bytes;   /* moved, either way */
	/* What an error says beyond its table entry. */
	const char *message; /* NULL: the table's */
	struct slice detail; /* XML elements for the error document */
	/* The source of a copy, while an error is of it; empty: errors are of the call's own. */
	struct slice blamed_bucket, blamed_key;
	uint32_t header_base; /* of the headers below, those that every answer has */
	uint32_t header_count;
	struct s3_chunk_signing signing;
	char content_sha256[65]; /* S3_PAYLOAD_SHA256: what the body must have */
	struct s3_identity own_identity;
	struct mem_arena arena;
	struct s3_header headers[S3_REPLY_HEADERS_MAX];
};

/* Where an operation, or what it waited for, comes back. */
static inline void s3_call_check(const struct s3_call *call)
{
	CHECK(call->magic == S3_CALL_MAGIC);
	CHECK(call->operation != NULL);
	CHECK(call->header_base <= call->header_count);
	CHECK(call->header_count <= S3_REPLY_HEADERS_MAX);
}

/* Answers wholly, and returns NULL; or sends nothing, and returns the error to answer with. */
typedef const struct s3_error *s3_operation_fn(struct s3_call *call);

enum s3_level { S3_LEVEL_SERVICE, S3_LEVEL_BUCKET, S3_LEVEL_OBJECT };

enum s3_operation_id {
#define OPERATION(id, name, run, action) S3_OPERATION_##id,
#include "s3/s3_operation_table.inc"
#undef OPERATION
	S3_OPERATION_COUNT
};
struct s3_operation {
	enum s3_operation_id id;
	const char *name; /* as S3 names it */
	s3_operation_fn *run;
	/* IAM's name of what it needs ("s3:GetObject"); empty: access_action() or the operation
	 * itself knows. */
	const char *action;
};

/* The value of a request header, empty data when absent. */
struct slice s3_call_header(const struct s3_call *call, struct slice name);
bool s3_call_has_header(const struct s3_call *call, struct slice name);
bool s3_call_param(const struct s3_call *call, struct slice name, struct slice *ret_value);
/* Sets the message of the error to answer with and returns that error. */
const struct s3_error *s3_fail(struct s3_call *call, enum s3_error_id id, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* The same of InvalidArgument, with the name of what was given and its value in the document. */
const struct s3_error *s3_fail_argument(
	struct s3_call *call, const char *name, struct slice value, const char *message);
/* NotImplemented: the call asks for what is not served here, by name. */
const struct s3_error *s3_fail_declined(struct s3_call *call);
/* Adds <name>value</name> to the error document. */
void s3_fail_detail(struct s3_call *call, const char *name, struct slice value);
/* An errno of the store, a bucket or a body. */
const struct s3_error *s3_fail_errno(struct s3_call *call, int error);
/* Whose frames the call's bodies take: the user's, or when nobody signed the address'. The calling
 * fiber joins the same one's group, which shares the processor with others. */
uint16_t s3_call_share(const struct s3_call *call);
/* That alone, as cheaply as each request needs it. */
void s3_call_join(struct s3_call *call);
/* What a client that is told 503 is told besides. */
#define S3_RETRY_AFTER_S "1"
/* Looks the bucket up; NULL when it is there. */
const struct s3_error *s3_call_bucket(struct s3_call *call, struct store_bucket *ret_bucket);

/* ---- Answers. ---- */
/* Value is borrowed until the answer is sent. Past S3_REPLY_HEADERS_MAX nothing is added, which
 * limits on what is stored rule out. */
void s3_answer_header(struct s3_call *call, struct slice name, struct slice value);
void s3_answer_u64(struct s3_call *call, struct slice name, uint64_t value);
/* A header of an ETag with its quotes. */
void s3_answer_etag(struct s3_call *call, const char *etag);
/* Of the call's bucket. */
void s3_answer_bucket_arn(struct s3_call *call);
/* Last-Modified. */
void s3_answer_time(struct s3_call *call, const struct store_meta *meta);
/* Only a head. */
const struct s3_error *s3_answer_empty(struct s3_call *call, uint32_t status);
/* Head and a small body. */
void s3_answer_text(struct s3_call *call, uint32_t status, struct slice type, struct slice text);
/* An XML document, which is freed. */
const struct s3_error *s3_answer_xml(struct s3_call *call, uint32_t status, struct buf *xml);
void s3_answer_error(struct s3_call *call, const struct s3_error *error);
/* Starts a document of the S3 namespace. */
void s3_xml_begin(struct buf *xml, const char *root);
void s3_xml_end(struct buf *xml, const char *root);
void s3_xml_u64(struct buf *xml, const char *name, uint64_t value);
/* To the second, as S3 tells it: what HTTP's dates can hold. */
void s3_xml_time(struct buf *xml, const char *name, uint64_t time_ns);
/* An ETag with its quotes. */
void s3_xml_etag(struct buf *xml, const char *etag);
/* <ChecksumCRC32>…</ChecksumCRC32> and <ChecksumType>, when there is one. */
void s3_xml_checksum(struct buf *xml, const struct store_meta *meta);
/* The same without the number of parts that a composite one has behind it. */
void s3_xml_checksum_bare(struct buf *xml, const struct store_meta *meta);
struct iam_owner;
void s3_xml_owner(struct buf *xml, const char *element, const struct iam_owner *owner);

/* ---- Bodies. ---- */
/* What a body is held against: the sums announced in headers or in its trailer. */
struct s3_sums {
	bool etag_md5;	     /* the ETag is to be an MD5 */
	bool payload_sha256; /* the signature binds the body's SHA-256 */
	bool has_md5;
	uint8_t md5[16]; /* Content-MD5 */
	enum checksum_kind kind;
	bool in_trailer;
	uint8_t digest_bytes;
	uint8_t digest[CHECKSUM_BYTES_MAX];
};
const struct s3_error *s3_sums_parse(struct s3_call *call, struct s3_sums *ret_sums);
/* A body that is stored needs a length, or the chunks of HTTP's own that say where it ends; and is
 * not longer than an upload may be. */
const struct s3_error *s3_check_length(struct s3_call *call);
/* A small body, whole, verified against signature and sums; in the arena. */
const struct s3_error *s3_read_body(
	struct s3_call *call, const struct s3_sums *sums, struct slice *ret_body);
/* Moves the body into put and checks it: fills bytes, etag, checksum and crc64 of meta. The put
 * stays the caller's. */
const struct s3_error *s3_store_body(struct s3_call *call, const struct s3_sums *sums,
	struct store_put *put, struct store_meta *meta);
/* The same of any source, which it closes; meta->bytes says how much must come (UINT64_MAX: any),
 * and an ETag that meta has already is kept. */
const struct s3_error *s3_store_source(struct s3_call *call, const struct s3_sums *sums,
	struct flow_source *source, struct store_put *put, struct store_meta *meta);
/* A PutObject of the call's key, but for its answer: by the request's headers, of the request's
 * body or (source not NULL, which it closes in any case) of another. */
/* What happened to an object. */
enum s3_event_id {
	S3_EVENT_PUT,
	S3_EVENT_POST,
	S3_EVENT_COPY,
	S3_EVENT_COMPLETE,
	S3_EVENT_DELETE,
	S3_EVENT_MARKER,
	S3_EVENT_TAGGING_PUT,
	S3_EVENT_TAGGING_DELETE,
	S3_EVENT_ACL_PUT,
	S3_EVENT_EXPIRATION,
	S3_EVENT_EXPIRATION_MARKER,
	S3_EVENT_TRANSITION,
	S3_EVENT_COUNT,
	S3_EVENT_NONE = S3_EVENT_COUNT
};

struct s3_put_input {
	struct flow_source *source;
	uint64_t bytes; /* of source; UINT64_MAX: not known */
	uint64_t bytes_min;
	bool appendable; /* bodies are to come behind it, and the key must hold nothing */
	enum s3_event_id event;
};
const struct s3_error *s3_put_object(
	struct s3_call *call, const struct s3_put_input *input, struct store_meta *meta);
/* The ETag of an object that was stored without an MD5. */
void s3_etag_of_crc(struct store_meta *meta);
void s3_crc64_digest(uint64_t crc, uint8_t digest[CHECKSUM_BYTES_MAX]);
/* The bytes of a small object (of ours), in the arena. */
const struct s3_error *s3_read_object(
	struct s3_call *call, struct store_get *get, struct slice *ret_text);
#define S3_CHECKSUM_LEN_MAX (CHECKSUM_TEXT_LEN_MAX + 8)
/* Writes the checksum as text without a NUL and returns its length; 0: there is none. */
size_t s3_checksum_format(const struct store_meta *meta, char ret_text[S3_CHECKSUM_LEN_MAX]);
/* The same on the arena: the checksum as text, with "-N" behind it when it is of N parts; empty
 * when there is none. */
struct slice s3_checksum_text(struct s3_call *call, const struct store_meta *meta);
/* The checksum headers of an object (x-amz-checksum-…, -type). */
void s3_answer_checksum(struct s3_call *call, const struct store_meta *meta);
/* The same of one part, where it is known. */
void s3_answer_part_checksum(struct s3_call *call, const struct store_meta *meta, uint32_t number);
/* A part's own, in base64, of an object whose checksum is composite; empty: it is not kept. */
struct slice s3_meta_part_sum(const struct store_meta *meta, uint32_t number);

/* ---- XML in: a small tree in the arena. ---- */
struct s3_xml {
	struct slice name; /* without its prefix */
	struct slice text; /* character data directly inside, as it stands */
	struct s3_xml *child;
	struct s3_xml *next;
};
/* -EINVAL: not well-formed, or a DTD, or too deep, too many, too long; -ENOMEM. */
int s3_xml_parse(struct slice text, struct mem_arena *arena, struct s3_xml **ret_root);
/* The first child of that name, or NULL. */
const struct s3_xml *s3_xml_child(const struct s3_xml *node, const char *name);
/* The text of the first child of that name; empty when absent. */
struct slice s3_xml_text(const struct s3_xml *node, const char *name);

/* ---- Object headers. ---- */
#define S3_META_BYTES_MAX (2u * LIMIT_HTTP_HEAD_BYTES_MAX) /* what the store keeps of them */
/* What s3 keeps in an object's flags: a listing has them, but not the headers. */
#define S3_FLAG_COMPOSITE   1u /* the checksum is one of the parts' checksums */
#define S3_FLAG_ENCRYPTED   2u /* the body is: see sse/sse.h */
#define S3_FLAG_FOREIGN	    4u /* it is not the bucket's owner's: its headers say whose */
#define S3_FLAG_UNASKED	    8u /* of an upload's record: it asked for no checksum, is told none */
#define S3_FLAG_CLASS_SHIFT 4  /* from here on: the storage class */
/* Gathers what is kept with an object: standard headers, user metadata, storage class, lock. */
const struct s3_error *s3_meta_gather(struct s3_call *call, struct store_meta *meta);
/* Refuses request headers that ask for what is not implemented, by name. */
const struct s3_error *s3_check_headers(struct s3_call *call);
/* Adds the stored headers and response-* overrides to the answer. */
const struct s3_error *s3_meta_answer(struct s3_call *call, const struct store_meta *meta);
/* What is kept of an object but shown to nobody as it stands: stored headers of these names, which
 * stand behind all others. What a value holds is its owner's, but never a NUL. */
#define S3_HIDDEN_PREFIX "x-nebulaio-"
/* The next stored header of what rest holds; its name and value are followed by a NUL. False at the
 * end, or where the record is not of that form. */
bool s3_meta_next(struct slice *rest, struct slice *ret_name, struct slice *ret_value);
/* The value of one; data NULL when it is not there. */
struct slice s3_meta_hidden(struct slice headers, struct slice name);
/* The headers with that value for it (data NULL: without it), in the arena. -ENOMEM. */
int s3_meta_set_hidden(struct slice headers, struct slice name, struct slice value,
	struct mem_arena *arena, struct slice *ret_headers);
/* How an object was uploaded: runs of parts of one length, "8388608*7,5242880". */
#define S3_PARTS_HEADER S3_HIDDEN_PREFIX "parts"
/* The checksums of its parts in base64, one after the other, where they fit. */
#define S3_PART_SUMS_HEADER S3_HIDDEN_PREFIX "part-sums"
struct s3_parts {
	uint32_t count;		/* 0: the object was put whole */
	uint64_t offset, bytes; /* of the part asked for; bytes 0: there is none */
};
struct s3_parts s3_meta_parts(const struct store_meta *meta, uint32_t part_number);
/* The length of headers without hidden ones: what a copy takes over. */
uint32_t s3_meta_plain_len(const struct store_meta *meta);
/* "STANDARD" unless the object has another. */
struct slice s3_meta_storage_class(const struct store_meta *meta);
#define S3_STORAGE_CLASS_EXPRESS 6u /* of directory buckets, and only theirs */
/* The number of a storage class in an object's flags; false: it is none that is kept. */
bool s3_storage_class_find(struct slice name, uint8_t *ret_class);
/* Whether objects of that class are archived at S3. Here they can be read like all others. */
bool s3_storage_class_archives(uint8_t class);

/* ---- Conditions. ---- */
struct s3_conditions {
	struct slice if_match, if_none_match, if_modified_since, if_unmodified_since;
};
enum s3_condition_result { S3_CONDITION_HOLDS, S3_CONDITION_NOT_MODIFIED, S3_CONDITION_FAILED };
/* RFC 9110 section 13.2.2 for GET and HEAD. */
enum s3_condition_result s3_conditions_check(
	const struct s3_conditions *conditions, const char *etag, uint64_t mtime_ns);
/* An entity tag without its weakness mark and quotes. */
struct slice s3_etag_bare(struct slice tag);
/* A list of entity tags, or "*", against an ETag without quotes. Weak comparison. */
bool s3_etag_matches(struct slice list, const char *etag);
/* Conditional PUT and DELETE: decided at the commit. */
struct s3_write_condition {
	struct slice if_match, if_none_match;
	bool absent;		 /* an object that is longer than nothing is InvalidWriteOffset */
	enum s3_error_id failed; /* why check refused */
	bool refused;
};
const struct s3_error *s3_write_condition_parse(
	struct s3_call *call, struct s3_write_condition *ret_condition);
bool s3_write_condition_any(const struct s3_write_condition *condition);
store_check_fn s3_write_condition_check;
/* What an -errno of a commit with that check means. */
const struct s3_error *s3_write_failed(
	struct s3_call *call, const struct s3_write_condition *condition, int error);

/* ---- Reading an object. ---- */
/* NULL when it can be a version's id. */
const struct s3_error *s3_version_check(struct s3_call *call, struct slice version_id);
/* Opens the call's object, or another; NULL when it is there. */
const struct s3_error *s3_open_object(
	struct s3_call *call, struct slice bucket, struct slice key, struct store_get **ret_get);
/* Why there is no such object, told as S3 tells it: its key, or its version, is not there; or it is
 * a delete marker, which has nothing that could be read or changed. */
const struct s3_error *s3_no_such_key(struct s3_call *call, struct slice bucket, struct slice key);
const struct s3_error *s3_no_such_version(struct s3_call *call, struct slice version_id);
const struct s3_error *s3_not_of_marker(struct s3_call *call);
/* Opens the call's object in the version that the query names. */
const struct s3_error *s3_open_version(struct s3_call *call, struct store_get **ret_get);
/* Edits the headers of the call's object in the version that the query names; event is told of it.
 */
const struct s3_error *s3_edit_version(
	struct s3_call *call, store_edit_fn *edit, void *arg, enum s3_event_id event);
struct s3_read {
	struct store_get *get; /* NULL: answered already (304) */
	const struct store_meta *meta;
	uint64_t offset, bytes;	  /* what is read of it */
	uint32_t part;		  /* by its number; 0: it is no part that was asked for */
	uint32_t status;	  /* 200 or 206 */
	const struct s3_sse *sse; /* NULL: it lies as it is */
};
/* Opens the call's object, looks at conditions and range, adds the head's headers. On success the
 * caller closes get. */
const struct s3_error *s3_read_begin(struct s3_call *call, struct s3_read *ret_read);
/* Answers with the head and, but for HEAD, what was chosen; closes get. */
const struct s3_error *s3_read_send(struct s3_call *call, const struct s3_read *read);
/* Offers the body for a lease, when it may be leased (object/lease.c). */
void s3_lease_offer(struct s3_call *call, const struct s3_read *read);

/* ---- The source of a copy, as x-amz-copy-source and its conditions say. ---- */
struct s3_copy {
	struct slice bucket, key; /* decoded */
	struct slice version_id;  /* empty: the current one */
	struct store_get *get;
	const struct store_meta *from;
	const struct s3_sse *sse; /* what it lies encrypted with; NULL: nothing */
};
const struct s3_error *s3_copy_parse(struct s3_call *call, struct s3_copy *copy);
/* Opens it and holds it against the conditions; on success the caller closes get. */
const struct s3_error *s3_copy_open(struct s3_call *call, struct s3_copy *copy);

/* ---- Routing, authentication, metrics. ---- */
/* By id (route.c). */
extern const struct s3_operation s3_operations[];
/* Fills operation, bucket, key and params of a call from its method, path, query and headers. */
const struct s3_error *s3_route(struct s3_call *call);
const struct s3_operation *s3_operation_native(enum s3_op op);
const struct s3_operation *s3_operation_at(const struct s3 *s3, enum s3_operation_id id);
/* Fills identity, principal, presigned and signing. */
const struct s3_error *s3_authenticate(struct s3_call *call, int64_t now_ms);
/* What is told of a signature of Version 2 where that is switched off. */
extern const char s3_no_signature_v2[];
/* Of a presigned URL, once it is known to be good: puts the parameters that stand for headers among
 * the request's headers. Before: whether one of that name is there. (auth/presigned.c) */
const struct s3_error *s3_presigned_headers(struct s3_call *call);
bool s3_presigned_has(const struct s3_call *call, struct slice name);
/* Whether the query is a presigned one, and the parameter is of its signature, or stands for one of
 * the headers that are not x-amz-. */
bool s3_presigned_takes(const struct s3_call *call, struct slice name);
/* Of a session: whose key it is now. AccessDenied when the key is gone. */
const struct s3_error *s3_authenticate_session(struct s3_call *call);
void s3_metrics_begin(void);
void s3_metrics_end(const struct s3_call *call);
/* Splits bucket and key of a request from its host and path, decoded, into the arena. */
int s3_split_path(struct s3_call *call, enum s3_level *ret_level);
/* What stands before ".domain" in the request's host; empty: it is another host. */
struct slice s3_host_bucket(const struct s3_call *call, struct slice domain);

/* ---- RDMA tokens (body/token.c). ---- */
/* A request with a token moves its bytes by RDMA, or is declined, or refused. */
const struct s3_error *s3_token_check(struct s3_call *call);
/* The token that this call's bytes move by, or NULL. */
static inline const struct s3_token *s3_token_of(const struct s3_call *call)
{
	const struct s3_token *token = call->request->token;

	return token && token->admitted ? token : NULL;
}
/* The answer to what cannot move by RDMA here. NULL: go on, the body goes by HTTP. */
const struct s3_error *s3_token_decline(struct s3_call *call, const char *why);
/* An errno of a body that was being moved: nothing of an answer has been sent. */
const struct s3_error *s3_body_failed(struct s3_call *call, int error);

/* ---- Operations, one file each: op/. ---- */
#define OPERATION(id, name, run, action) s3_operation_fn run;
#include "s3/s3_operation_table.inc"
#undef OPERATION

#endif
