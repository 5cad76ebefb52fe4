/* nebulaio/nebulaio.h: the C client of NebulaIO, and its manual.
 *
 * A client sends S3 requests to a server over RDMA if possible, else over HTTP. Objects move
 * between the server's storage and your memory; if that memory is from neb_buffer_alloc() or
 * registered by neb_register(), nothing copies them.
 *
 *	struct neb_options options = {
 *		.endpoints = "rdma://127.0.0.1:9100,http://127.0.0.1:9000",
 *		.access_key = "minioadmin",
 *		.secret_key = "minioadmin",
 *	};
 *	struct neb_client *client;
 *	struct neb_result result;
 *	char text[64];
 *
 *	if (neb_client_open(&options, &client))
 *		return 1;
 *	neb_put(client, "photos", "hello", "hi there", 8, &result);
 *	if (neb_get(client, "photos", "hello", text, sizeof(text), &result) == 0)
 *		printf("%.*s, by %s\n", (int)result.bytes, text,
 *			neb_transport_name(result.transport));
 *	neb_client_close(client);
 *
 * Build with `pkg-config --cflags --libs nebulaio`.
 *
 * THREADS. A client, with everything that belongs to it, is used by one thread at a time; it has no
 * hidden thread and no lock. (A neb_mapper has both, with a client of its own; a neb_minter has a
 * lock, and on the simulated device a thread.) Open one client per thread, which is cheap and
 * fastest; or let threads lease clients from a neb_pool, which any thread may use. Any thread may
 * call functions without a client. A child process cannot use a client after a fork.
 *
 * ERRORS. Functions return 0 or a negative errno. A request to the server also fills a struct
 * neb_result: S3's status, code, message and request id, and the transport of the request. The
 * errno of an answer: -ENOENT 404, -EACCES 401 and 403, -EEXIST 409, -ERANGE 416, -ESTALE 304 and
 * 412, -EMSGSIZE your memory is smaller than the object, -EINVAL any other 4xx, -EAGAIN 503, -EIO
 * any other 5xx, and a 200 to NEB_COPY_OBJECT or NEB_COMPLETE_MULTIPART with an error in its body.
 * Without an answer (status 0): -ECONNREFUSED, -ECONNRESET, -ETIMEDOUT, -EHOSTUNREACH, -ENETDOWN;
 * -EXDEV: the endpoint serves another store than the others.
 *
 * MEMORY. Any memory works. Memory that is neither from the pool nor registered is copied through
 * the pool when it is small, and registered for the one request when it is large, which costs a
 * system call or two. The server reads and writes your memory directly during a request: do not
 * free or read it before the request's result has arrived.
 *
 * GPU MEMORY. An address of CUDA's device memory is memory like any other. neb_register() registers
 * it with an RDMA card that can reach it (by dma-buf, or with the module nvidia-peermem), and the
 * bytes move between server and GPU without touching the host. If the card cannot, or the memory is
 * not registered, or over HTTP, the bytes are staged through the pool, which must have room for the
 * whole body; neb_stats counts them. Before the client sends a body, it waits for the GPU's earlier
 * work; before an answer is received, the caller must do that. */
#ifndef NEBULAIO_NEBULAIO_H
#define NEBULAIO_NEBULAIO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(NEB_BUILDING) && defined(__GNUC__)
#define NEB_API __attribute__((visibility("default")))
#else
#define NEB_API
#endif

#define NEB_VERSION_MAJOR 0
#define NEB_VERSION_MINOR 1

struct neb_client;

/* ---- Transports. ---- */
enum neb_transport {
	NEB_AUTO, /* RDMA if an endpoint offers it, else HTTP; returns to RDMA */
	NEB_RDMA, /* RDMA only; a lost session is set up again until the request's timeout; a first
		     connection that fails is an error at once */
	NEB_HTTP, /* HTTP only */
	NEB_STRICT, /* RDMA only, and no retry but by another path: a request that cannot be sent at
		       once fails */
	NEB_NONE,   /* in a result: the request was not sent */
	NEB_TOKEN,  /* in a result: the request used HTTP, and an RDMA token moved the body */
};
/* A transport's name in lower case: "rdma", "http", … The string is static. */
NEB_API const char *neb_transport_name(enum neb_transport transport);
/* The transport that is meant by "auto", "rdma", "http" or "strict". -EINVAL on anything else. */
NEB_API int neb_transport_parse(const char *name, enum neb_transport *ret_transport);

/* ---- A client. ---- */
enum neb_log_level { NEB_LOG_DEBUG, NEB_LOG_INFO, NEB_LOG_WARN, NEB_LOG_ERROR };
/* Called inside the library's functions; text has no line end and is valid during the call. */
typedef void neb_log_fn(void *arg, enum neb_log_level level, const char *text);

/* Zero it, then set what you need: every 0 or NULL is the default in brackets. Strings are copied.
 */
struct neb_options {
	/* Comma or space separated, in order of preference: rdma://HOST:PORT, http://HOST:PORT,
	 * https://HOST:PORT. The port may be left out (9100, 9000, 9443). Needed.
	 * Further addresses of the same server follow an RDMA endpoint without a scheme:
	 * "rdma://192.0.2.1,198.51.100.1" are two paths to one server, up to 8. The client has a
	 * session by each, through the device that leads there, and spreads its requests; those of
	 * a path that is lost go on by another one at once, and the path is tried again. A write
	 * whose answer was lost is done once: the server remembers its answer (docs/spec/wire.md,
	 * section 9). A server tells a proven client its other addresses, which are then paths,
	 * too; "?paths=given" at the end of an RDMA endpoint keeps to those in this text. The
	 * environment's NEBULAIO_CONNECT_TO, "HOST:PORT=HOST:PORT,…", redirects connections from
	 * the first address to the second. All endpoints must serve one store: the first that
	 * answers determines it, and requests to an endpoint of another store fail without effect.
	 * With "?rdma" at its end, an HTTP endpoint moves the bodies of GetObject, PutObject and
	 * UploadPart by RDMA tokens, over a queue pair that the first such request connects
	 * (docs/spec/token.md); a body in several runs of memory, or a declined token, uses HTTP,
	 * and the result's fallback has the reason. "?rdma=hipobj" does the same by hipobj-rc-v2
	 * (docs/spec/hipobj.md), with a session for each body. With "?rdma=owner" the endpoint is a
	 * gateway of a cluster: the first request for a bucket uses HTTP, and its answer tells
	 * where the bucket's owner listens; later ones use a session with the owner, at most 8 at a
	 * time, or HTTP through the gateway when there is none. NEB_AUTO only, and not together
	 * with rdma:// (docs/spec/wire.md, "Owners"). */
	const char *endpoints;
	const char *access_key; /* needed */
	const char *secret_key; /* needed */
	const char *region;	/* ["us-east-1"] */
	enum neb_transport transport;
	/* The RDMA device: "mlx5_0", "mlx5_0:1", "mlx5_0:1:3" (port, GID), "simulated" (same host
	 * only), or "auto": the card that has the source address of packets to the first RDMA
	 * endpoint; "simulated" when a server of this host listens there on it, or no card has that
	 * address of this host; else none, and NEB_AUTO uses HTTP and logs it. neb_client_device()
	 * returns the choice. Several names, separated by spaces, are for the RDMA endpoints and
	 * paths in their order, and the last one for all further ones; "auto" chooses for each.
	 * Four devices at most. ["auto"] */
	const char *device_name;
	uint64_t pool_bytes;	   /* memory for neb_buffer_alloc [64 MiB] */
	uint32_t requests_max;	   /* in flight at a time, 1 to 256 [64]; more wait their turn */
	uint32_t inline_bytes_max; /* bodies sent inside a message [256]; UINT32_MAX: none */
	/* of a session or a connection [NEBULAIO_CONNECT_TIMEOUT_S in the environment; 2 s; as a
	 * request's unless NEB_AUTO] */
	uint64_t connect_timeout_ns;
	/* [NEBULAIO_REQUEST_TIMEOUT_S in the environment; 30 s]; each timeout is 20 days at most */
	uint64_t request_timeout_ns;
	/* How many times an idempotent request is sent again when the server answers 503 (SlowDown
	 * and similar) [4]; UINT32_MAX: never. The first retry comes after 50 ms; the wait doubles
	 * each time, half of it random, within the request's timeout. NEB_STRICT: never.
	 */
	uint32_t retries_max;
	/* How long a wait polls for its answer before it sleeps [50 µs]; UINT64_MAX: without limit.
	 * A wait that sleeps costs two more context switches and no processor time. */
	uint64_t spin_ns;
	/* Encrypt all data over RDMA, even if the server does not require it. Bodies that "?rdma"
	 * and "?rdma=hipobj" move are not encrypted: such an endpoint then uses HTTP alone, which
	 * is logged, and the result's fallback says so. A minter does not open. */
	bool require_encryption;
	/* Keeps registrations of unregistered memory that requests use, up to this many bytes [0:
	 * off, each such request makes its own registration]. With it, call neb_memory_forget()
	 * before you free or unmap memory that requests have used: otherwise the device continues
	 * to use the old pages of that address, without an error. */
	uint64_t registration_cache_bytes;
	/* Read small objects that are requested often directly from the server's memory, by RDMA
	 * READ, without work for its processor. When the object or the rights to it change, such a
	 * read detects that and the request goes to the server as usual, so the data is always the
	 * key's current object. Not on encrypted sessions, and only requests of a whole object
	 * without headers or want_headers. Such reads are not in the server's counters. */
	bool one_sided_reads;
	/* When a server has been silent for this time while requests are in flight, the client
	 * checks that it still answers [5 s; UINT64_MAX: never]: by an empty RDMA WRITE, which the
	 * server's device acknowledges by itself, even if the server is busy. If no acknowledgement
	 * comes in the same time again, or the transport's retries are used up, the host is gone:
	 * the session is lost, and its requests use another endpoint at once, or fail with
	 * -EHOSTUNREACH. */
	uint64_t keepalive_ns;
	neb_log_fn *log; /* [warnings and errors go to standard error] */
	void *log_arg;
	/* Of a minter whose endpoint is a gateway of a cluster: the bucket of the requests with its
	 * tokens. A token is valid for one store, which this bucket names (docs/spec/token.md). */
	const char *token_bucket;
	/* Of temporary credentials (AWS STS) [the environment: NEBULAIO_SESSION_TOKEN when
	 * access_key is NEBULAIO_ACCESS_KEY's, else AWS_SESSION_TOKEN when it is
	 * AWS_ACCESS_KEY_ID's; "": none]. Such credentials sign requests over HTTP, also those
	 * whose bodies move by "?rdma" and
	 * "?rdma=hipobj". Sessions over RDMA do not take them: NEB_AUTO uses HTTP, and the result's
	 * fallback says so; without an HTTP endpoint -EOPNOTSUPP. */
	const char *session_token;
};

/* Opens a client. NEB_STRICT connects here and fails when it cannot; the others connect at the
 * first request. Blocks only to resolve host names. -EINVAL: an option (the log names it); -ENOMEM;
 * -ENODEV: no such RDMA device, and no other transport.
 */
NEB_API int neb_client_open(const struct neb_options *options, struct neb_client **ret_client);
/* The client's RDMA device: "mlx5_0:1", "simulated"; several, separated by spaces; "" without one.
 * The string lives as long as the client. */
NEB_API const char *neb_client_device(const struct neb_client *client);
/* The reason for this device, or for none: a sentence for people. */
NEB_API const char *neb_client_device_why(const struct neb_client *client);
/* Ends a client; takes NULL. Requests in flight are cut off without a result; buffers and
 * registrations end. */
NEB_API void neb_client_close(struct neb_client *client);

/* ---- Registered memory. ---- */
/* Memory from the pool, page-aligned. -ENOMEM: the pool is full. Lives until free or close. */
NEB_API int neb_buffer_alloc(struct neb_client *client, size_t bytes, void **ret_data);
/* Gives memory back to the pool; takes NULL. No request may be using it. */
NEB_API void neb_buffer_free(struct neb_client *client, void *data);
/* Registers your memory with the device; requests may then use parts of it. Do not do this for
 * every request: it pins pages. -EEXIST: it overlaps registered memory. */
NEB_API int neb_register(struct neb_client *client, void *data, size_t bytes);
/* Ends a registration: data as given to neb_register; no request may be using it. -ENOENT. */
NEB_API int neb_unregister(struct neb_client *client, void *data);

/* Announces that memory which requests have used will be freed: its registrations in the cache end.
 * Needed with neb_options.registration_cache_bytes, before free() or munmap(); harmless without.
 * -EBUSY: a request is using it until that request ends. -EINVAL. */
NEB_API int neb_memory_forget(struct neb_client *client, const void *data, size_t bytes);

/* ---- Requests. ---- */
/* An operation on an object needs bucket and key, one on a bucket needs the bucket and no key;
 * LIST_BUCKETS and PING need neither. Other names, also empty ones, are -EINVAL, and nothing is
 * sent. */
enum neb_op {
	NEB_GET_OBJECT = 1,
	NEB_PUT_OBJECT = 2,
	NEB_DELETE_OBJECT = 3,
	NEB_HEAD_OBJECT = 4,
	NEB_LIST_OBJECTS = 5, /* version 2; query: prefix=…&delimiter=… */
	NEB_CREATE_MULTIPART = 6,
	NEB_UPLOAD_PART = 7, /* query: partNumber=…&uploadId=… */
	NEB_COMPLETE_MULTIPART = 8,
	NEB_ABORT_MULTIPART = 9,
	NEB_COPY_OBJECT = 10, /* header: x-amz-copy-source */
	NEB_DELETE_OBJECTS = 11,
	NEB_LIST_MULTIPART = 12,
	NEB_LIST_PARTS = 13,
	NEB_LIST_VERSIONS = 14,
	NEB_GET_TAGGING = 15,
	NEB_PUT_TAGGING = 16,
	NEB_DELETE_TAGGING = 17,
	NEB_LIST_BUCKETS = 18,
	NEB_CREATE_BUCKET = 19,
	NEB_DELETE_BUCKET = 20,
	NEB_HEAD_BUCKET = 21,
	NEB_GET_BUCKET_LOCATION = 22,
	NEB_S3 = 32, /* anything: method, path, query, headers, body */
	NEB_PING =
		48, /* nothing, there and back; over HTTP a ListBuckets whose answer is dropped */
};

struct neb_header {
	const char *name;
	const char *value;
};

struct neb_iov {
	void *data; /* read only for a request's body */
	size_t bytes;
};
#define NEB_IOV_MAX	16u
#define NEB_HEADERS_MAX 80u

enum neb_checksum {
	NEB_CHECKSUM_NONE = 0,
	NEB_CHECKSUM_CRC32 = 1,
	NEB_CHECKSUM_CRC32C = 2,
	NEB_CHECKSUM_CRC64NVME = 3,
	NEB_CHECKSUM_SHA1 = 4,
	NEB_CHECKSUM_SHA256 = 5,
	NEB_CHECKSUM_MD5 = 6,
	NEB_CHECKSUM_SHA512 = 7,
	NEB_CHECKSUM_XXHASH64 = 8,
	NEB_CHECKSUM_XXHASH3 = 9,
	NEB_CHECKSUM_XXHASH128 = 10,
};

struct neb_result;
/* Receives a request's result inside neb_poll or neb_wait, which then do not return it. The result
 * is valid during the call, which may submit requests to the client and free buffers, nothing else.
 * arg is the request's user_data. */
typedef void neb_done_fn(void *arg, const struct neb_result *result);

/* Zero it, then set what the operation needs. It and the strings it points at are copied by submit;
 * the memory in body and into is used until the result has arrived. */
struct neb_request {
	enum neb_op op;
	const char *bucket;
	const char *key;	/* as it is, not encoded; up to 1,024 bytes of UTF-8 */
	const char *version_id; /* or NULL */
	const char *query;	/* percent-encoded, without '?'; or NULL */
	const char *method;	/* NEB_S3: "GET", "HEAD", "PUT", "POST", "DELETE" */
	const char *path;	/* NEB_S3: percent-encoded, from '/' */
	const struct neb_header *headers;
	uint32_t header_count;
	const struct neb_iov *body; /* what is sent */
	uint32_t body_count;
	const struct neb_iov *into; /* where the answer's body goes */
	uint32_t into_count;
	uint64_t range_offset; /* GET: with range_bytes above 0 */
	uint64_t range_bytes;
	enum neb_checksum checksum_kind; /* PUT: the body's digest, which the server verifies */
	const uint8_t *checksum;	 /* 4, 4, 8, 20, 32, 16, 64, 8, 8 or 16 bytes */
	uint64_t timeout_ns;		 /* [the client's] */
	/* Ask for all headers of the answer: see neb_result_header(). Costs a little. HEAD has
	 * them always. */
	bool want_headers;
	void *user_data;   /* comes back in the result */
	neb_done_fn *done; /* or NULL; not for neb_perform */
};

struct neb_result {
	int error;		      /* as in ERRORS above */
	uint32_t status;	      /* S3's HTTP status; 0: no answer came */
	enum neb_transport transport; /* NEB_RDMA, NEB_HTTP or NEB_NONE */
	uint64_t bytes;		      /* of the answer's body, in your memory */
	uint64_t object_bytes;	      /* length that the answer announced: HEAD's object */
	uint64_t id;		      /* from neb_submit */
	void *user_data;
	char etag[84]; /* without quotes; may be empty */
	char code[64]; /* "NoSuchKey"; empty on success */
	char message[256];
	char request_id[33]; /* the server's */
	/* The reason why a request that could use RDMA used HTTP; else empty. */
	char fallback[128];
	bool one_sided; /* read from the server's memory: neb_options.one_sided_reads */
	/* With want_headers: "name: value\n" lines; else empty. Headers that do not fit are left
	 * out, and a line "x-nebulaio-cut: 1" says so. */
	char headers[2048];
};
/* The value of a header of the result, by name in any case: its length, or -ENOENT. *ret_value
 * points into result and is not terminated. */
NEB_API int neb_result_header(
	const struct neb_result *result, const char *name, const char **ret_value);

/* Starts a request. Blocks only to resolve a host name. Any number may be submitted. -EINVAL: a
 * field is out of bounds, or a name is missing; nothing was started. A started request has exactly
 * one result. */
NEB_API int neb_submit(
	struct neb_client *client, const struct neb_request *request, uint64_t *ret_id);
/* Takes results without waiting: calls the done functions of requests that have one, and returns up
 * to max results of the others, in order of completion. Returns how many. */
NEB_API int neb_poll(struct neb_client *client, struct neb_result *results, uint32_t max);
/* Waits for results: as neb_poll, but until at least one is delivered or returned. 0: nothing is in
 * flight, or all were delivered; -ETIMEDOUT; -EINTR: neb_wake() was called. If every request has a
 * done function:
 *	do
 *		neb_wait(client, NULL, 0, timeout_ns);
 *	while (neb_in_flight(client));
 */
NEB_API int neb_wait(
	struct neb_client *client, struct neb_result *results, uint32_t max, uint64_t timeout_ns);
/* Ends the neb_wait() that another thread is in, or the next one: so that a thread which waits for
 * results can take new requests from other threads. This is the only call on a client that any
 * thread may make at any time before neb_client_close. */
NEB_API void neb_wake(struct neb_client *client);
/* How many requests have no result yet. */
NEB_API uint32_t neb_in_flight(const struct neb_client *client);
/* Submits a request and waits for it; results of others stay for neb_poll. Returns result->error.
 */
NEB_API int neb_perform(struct neb_client *client, const struct neb_request *request,
	struct neb_result *ret_result);

/* ---- Many reads by one call. ---- */
/* One object, or a range of one. Zero it, then set what is read and the memory; neb_get_batch fills
 * in the rest. Strings and memory are used until neb_get_batch returns. */
struct neb_batch_item {
	const char *bucket; /* NULL: the batch's */
	const char *key;
	const char *version_id; /* or NULL */
	uint64_t range_offset;	/* with range_bytes above 0 */
	uint64_t range_bytes;
	void *data; /* memory for the bytes */
	size_t data_bytes;
	/* The result. */
	int error; /* as in ERRORS above; -ECANCELED: the batch was ended before it was sent */
	uint32_t status; /* S3's HTTP status; 0: no answer came */
	enum neb_transport transport;
	bool one_sided;
	uint64_t bytes_read;   /* in data */
	uint64_t object_bytes; /* length that the answer announced: of a range, the range's */
	char etag[84];	       /* without quotes; may be empty */
};
/* Receives an item that has its result, inside neb_get_batch, in the order in which they end; it
 * may make no call on the client. result is valid during the call, and has code and message. False
 * ends the batch: items that were not sent get -ECANCELED. */
typedef bool neb_batch_done_fn(
	void *arg, struct neb_batch_item *item, const struct neb_result *result);
/* Called about every 50 ms inside neb_get_batch. False ends the batch. */
typedef bool neb_batch_keep_fn(void *arg);
#define NEB_BATCH_WINDOW_MAX 1024u
struct neb_batch {
	const char *bucket; /* of items that name none */
	struct neb_batch_item *items;
	uint64_t item_count;	 /* any number */
	uint32_t window;	 /* in flight at a time, 1 to 1,024 [the client's requests_max] */
	uint64_t timeout_ns;	 /* of all of it [none]; each request has the client's */
	neb_batch_done_fn *done; /* or NULL */
	neb_batch_keep_fn *keep_on; /* or NULL */
	void *arg;
};
/* Reads many small objects, or ranges: the requests follow each other without a wait for answers,
 * and each item's bytes go to its memory. The client uses memory for a window of requests, whatever
 * the number of items. Each item falls back to HTTP as a single request would, and is sent again
 * after a lost connection or a 503. When as many items as the window has get no answer one after
 * the other, the rest are not sent, and get the same error. neb_wake() of another thread ends a
 * batch. However it ends, the requests in flight are waited for, because the server may still write
 * to their memory; every item has its result when this returns. For 0 copies the memory is from
 * neb_buffer_alloc() or registered; other memory is registered, or copied, item by item.
 *
 * 0 if every item was read; else the error of the first item in the array that was not. -EINVAL:
 * window, or no items. */
NEB_API int neb_get_batch(struct neb_client *client, const struct neb_batch *batch);

/* ---- One object to many clients. ---- */
/* Clients that need one large object at the same time, such as a model's weights on every node, may
 * read it as a group: the server lets them begin together and keeps them in step, and reads each
 * part of the object once from its volumes for all of them. Each client has its own request, rights
 * and transport. A client that is late, too slow or gone does not hold up the others; it is then
 * served alone (docs/design/fan-out.md). Zero it, then set name and members. */
struct neb_multicast;
struct neb_fan_out {
	/* The same for all clients of the group: 1 to 64 letters, digits, '.', '_' and '-'. */
	const char *name;
	uint32_t members; /* how many clients the group waits for, 1 to 1,024 */
	uint64_t wait_ns; /* how long the first one waits for the others, at most 60 s [10 s] */
	/* A number of this client's own, the same in all its requests for the object [drawn at
	 * random for each call]. */
	uint64_t member;
	const char *bucket; /* this and the rest only for neb_get_fan_out */
	const char *key;
	void *data; /* memory for the object */
	size_t data_bytes;
	neb_batch_keep_fn *keep_on; /* or NULL; as of a batch */
	void *arg;
	/* Not NULL: the bytes come by multicast where that is possible. */
	struct neb_multicast *multicast;
};
/* Multicast: the server sends each part of the object once, as UD datagrams to a group of the
 * network, and each client reads what it did not get over its own RDMA session. It needs a session,
 * a device with UD queue pairs and multicast, and fan_out.multicast in the server's configuration;
 * without them, and for the part of the object that is left when it fails, the group is served as
 * without multicast. Datagrams are sealed under a key that the session hands out, so sealed
 * sessions use it, too; each is decrypted from its receive into your memory, which is the one copy.
 * Zero it. */
struct neb_multicast {
	/* In: without multicast from the start, return -EOPNOTSUPP, and read nothing. */
	bool only;
	/* In, with only: gets the object's bytes in order, in place of neb_fan_out.data. Not 0: it
	 * is the call's error. */
	int (*take)(void *arg, uint64_t offset, const void *data, uint64_t bytes);
	/* Out. */
	bool used;	     /* some bytes came by multicast */
	bool verified;	     /* all bytes match the object's CRC-64/NVME */
	uint64_t bytes;	     /* that came by multicast */
	uint64_t bytes_read; /* over the session */
	uint64_t datagrams;  /* that were taken */
	uint64_t repeated;   /* that came twice or too late */
	uint64_t strange;    /* that were not of the group's sender */
	char why[96];	     /* why it was not used, or ended early; else empty */
};
/* Fetches a whole object as one client of a group, in requests of 8 MiB, 4 at a time. result is the
 * last request's that told it, with the object's bytes, and the headers of its answer:
 * "x-nebulaio-fan-out" is "member; members=COUNT", or the reason why it was not in step: "late",
 * "slow", "full" or "small"; absent when the server does not know it. ret_result may be NULL.
 * -EINVAL: a field of fan_out; -EMSGSIZE: the object is longer; -ESTALE: it was replaced meanwhile;
 * ended by neb_wake() of another thread or by keep_on: -ECANCELED, once the requests in flight have
 * their results; the first of them has it when the group begins. After an error the contents of
 * data are undefined. */
NEB_API int neb_get_fan_out(struct neb_client *client, const struct neb_fan_out *fan_out,
	struct neb_result *ret_result);
#define NEB_FAN_OUT_HEADER "x-nebulaio-fan-out"
#define NEB_FAN_OUT_BYTES  160u
/* For requests of your own: writes the value of the header NEB_FAN_OUT_HEADER of each request
 * NEB_GET_OBJECT for the object. Those of one client need the same member: use one value for all of
 * them. The first must begin at the object's first byte, and its timeout must be
 * longer than wait_ns. -EINVAL: a field of fan_out. Any thread. */
NEB_API int neb_fan_out_header(
	const struct neb_fan_out *fan_out, char ret_value[NEB_FAN_OUT_BYTES]);

/* ---- Objects as memory. ---- */
/* A mapper makes objects readable as memory, like mmap() of a file: the bytes of a page come from
 * the server when a thread first touches it. An object may be larger than this host's memory.
 *
 *	struct neb_mapper *mapper;
 *	struct neb_map *map;
 *
 *	neb_mapper_open(&options, NULL, &mapper);
 *	neb_map(mapper, "models", "llm.safetensors", NULL, &map, NULL);
 *	sum = add(neb_map_data(map), neb_map_bytes(map));
 *	neb_unmap(map);
 *	neb_mapper_close(mapper);
 *
 * A mapper has a client and a thread of its own. A touch out of order brings fault_bytes; a thread
 * that reads in order gets pieces of up to 2 MiB, with 8 MiB on the way ahead of it. Each fetch
 * lands in registered memory, from which the kernel copies it into the pages: one copy, which
 * neb_map_stats counts as bytes_fetched.
 *
 * ONE VERSION. Each fetch has If-Match with the ETag that neb_map() was told. When the object was
 * replaced or deleted the map ends with -ESTALE or -ENOENT, so that a program never sees a mixture
 * of two objects. A fetch that gets no answer, or an answer 5xx, is tried again for patience_ns,
 * while threads wait; any other error ends the map at once.
 *
 * THE END OF A MAP. From then on each touch of it raises SIGBUS in the thread that touches, also in
 * those that wait, and also of pages that were there. Before that the log has the reason and
 * neb_mapper_options.failed is called; afterwards neb_map_error() returns it.
 *
 * THE KERNEL'S PART is userfaultfd(2), which needs Linux 5.11, or vm.unprivileged_userfaultfd=1.
 * Pages that a system call or a device touches (write() from the map, or neb_register() of it) come
 * only if the program has CAP_SYS_PTRACE, may open /dev/userfaultfd, or vm.unprivileged_userfaultfd
 * is 1: neb_mapper_kernel_faults(). Otherwise such a call fails with -EFAULT where a page is not
 * there yet; neb_map_prefetch() with a timeout brings them first. A seccomp filter, as that of most
 * containers, may refuse all of it: then neb_mapper_open() fails with -EPERM or -ENOSYS, and the
 *log says what to change.
 *
 * FORK. A child process has no mappings: its touch raises SIGSEGV. It cannot use the mapper. */
struct neb_mapper;
struct neb_map;
/* Called in the mapper's thread when a map ends because a fetch failed. It may not touch maps of
 * the mapper, nor call functions of it or of them but neb_map_data and neb_map_bytes. */
typedef void neb_map_failed_fn(
	void *arg, const struct neb_map *map, const struct neb_result *result);
/* Zero it, then set what you need. */
struct neb_mapper_options {
	/* The most bytes of all maps that are in memory [no limit]; 32 MiB at least. Beyond it, the
	 * pieces that came first are dropped, and come again when they are touched. */
	uint64_t resident_bytes_max;
	/* Bytes that a touch out of order brings: a power of two from a page to 2 MiB [64 KiB]. */
	uint32_t fault_bytes;
	uint64_t patience_ns;	   /* [60 s] */
	neb_map_failed_fn *failed; /* or NULL */
	void *arg;
};
/* Opens a mapper, whose client has these options; its pool has 32 MiB at least. more may be NULL.
 * As neb_client_open; -EPERM, -ENOSYS: see above; -EINVAL: a field of more. */
NEB_API int neb_mapper_open(const struct neb_options *options,
	const struct neb_mapper_options *more, struct neb_mapper **ret_mapper);
/* Ends a mapper with all its maps; takes NULL. No other thread may be in one of its functions. */
NEB_API void neb_mapper_close(struct neb_mapper *mapper);
/* Whether pages come that a system call touches. Any thread. */
NEB_API bool neb_mapper_kernel_faults(const struct neb_mapper *mapper);
/* Maps an object, or a version of it (version_id, or NULL). Asks for its length and waits for the
 * answer. Any thread. Returns result->error; ret_result may be NULL. -ENOMEM: no room in the
 * address space. */
NEB_API int neb_map(struct neb_mapper *mapper, const char *bucket, const char *key,
	const char *version_id, struct neb_map **ret_map, struct neb_result *ret_result);
/* Ends a map; takes NULL. A thread that touches it gets SIGBUS or SIGSEGV. Any thread. */
NEB_API void neb_unmap(struct neb_map *map);
/* The object's bytes, page-aligned and read-only, until neb_unmap. Any thread. */
NEB_API const void *neb_map_data(const struct neb_map *map);
/* How many they are. Any thread. */
NEB_API uint64_t neb_map_bytes(const struct neb_map *map);
/* The ETag of the version that is mapped, without quotes; lives as long as the map. Any thread. */
NEB_API const char *neb_map_etag(const struct neb_map *map);
/* Brings a range (0 bytes: up to the end) before it is touched, at most half of resident_bytes_max
 * of it, behind what threads wait for. With timeout_ns 0 it returns at once; else when the bytes
 * are there. Any thread. -EAGAIN: 64 ranges wait already; -ERANGE; -ETIMEDOUT; the map's error. */
NEB_API int neb_map_prefetch(
	struct neb_map *map, uint64_t offset, uint64_t bytes, uint64_t timeout_ns);
/* 0, or the error that ended the map, with the result of its last request; ret_result may be NULL.
 * Any thread. */
NEB_API int neb_map_error(struct neb_map *map, struct neb_result *ret_result);
struct neb_map_stats {
	uint64_t faults;	/* touches that waited */
	uint64_t fetches;	/* requests that brought bytes */
	uint64_t bytes_fetched; /* each was copied once, into its page */
	uint64_t bytes_dropped; /* for resident_bytes_max */
	uint64_t bytes_resident;
	uint64_t retries;
	uint64_t fetches_rdma; /* of fetches */
};
/* Counters since the map was made. Any thread. */
NEB_API void neb_map_stats(struct neb_map *map, struct neb_map_stats *ret_stats);

/* ---- Common requests, synchronous. All return result->error; ret_result may be NULL. ---- */
/* Fetches a whole object into data, which has room for bytes; result.bytes is its length.
 * -EMSGSIZE: it is longer, and the contents of data are undefined; neb_head() returns the
 * length. */
NEB_API int neb_get(struct neb_client *client, const char *bucket, const char *key, void *data,
	size_t bytes, struct neb_result *ret_result);
/* Stores an object: bytes of data, up to 5 GiB. The key's old object is replaced completely or not
 * at all; on success the new one is on disk. */
NEB_API int neb_put(struct neb_client *client, const char *bucket, const char *key,
	const void *data, size_t bytes, struct neb_result *ret_result);
/* Asks for an object's length (result.object_bytes), ETag and headers. */
NEB_API int neb_head(struct neb_client *client, const char *bucket, const char *key,
	struct neb_result *ret_result);
/* Deletes an object. A missing object is no error, as in S3. */
NEB_API int neb_delete(struct neb_client *client, const char *bucket, const char *key,
	struct neb_result *ret_result);
/* Creates a bucket; by a name of the form base--zone--x-s3 a directory bucket of that zone.
 * -EEXIST: the bucket exists. */
NEB_API int neb_bucket_create(
	struct neb_client *client, const char *bucket, struct neb_result *ret_result);
/* Deletes a bucket. -EEXIST: it is not empty. */
NEB_API int neb_bucket_delete(
	struct neb_client *client, const char *bucket, struct neb_result *ret_result);
/* Sends an empty request to the server, and connects if there is no connection yet. */
NEB_API int neb_ping(struct neb_client *client, struct neb_result *ret_result);

/* One entry of a listing: a key, or with a delimiter a common prefix. */
struct neb_entry {
	const char *key;
	bool is_prefix;
	uint64_t bytes;
	const char *etag;	   /* without quotes */
	const char *last_modified; /* 2026-01-02T03:04:05.000Z */
};
/* False ends the listing. The entry is valid during the call, which may make no other call on the
 * client.
 */
typedef bool neb_list_fn(void *arg, const struct neb_entry *entry);
/* Selects the keys to list: every key that starts with prefix, in order. prefix, delimiter and
 * after may be NULL.
 */
struct neb_list {
	const char *bucket;
	const char *prefix;
	const char *delimiter;
	const char *after; /* exclusive */
	neb_list_fn *visit;
	void *arg;
	uint32_t page_keys; /* keys in a page [1,000, which is the most]; fewer bring the first
			       sooner */
};
/* Lists the objects of a bucket, all pages: list->visit is called inside for each. -EILSEQ: a key
 * has a zero byte, so that a C string would name another object. */
NEB_API int neb_list(
	struct neb_client *client, const struct neb_list *list, struct neb_result *ret_result);
/* Lists the buckets that the caller may see, as entries whose key is their name. */
NEB_API int neb_list_buckets(
	struct neb_client *client, neb_list_fn *visit, void *arg, struct neb_result *ret_result);

/* ---- Clients for many threads. ---- */
struct neb_pool;
/* Opens a pool of up to clients_max clients (1 to 1,024), opened as they are needed. The clients
 * start at the endpoints of the same scheme in turn, and use the others when theirs fails: so work
 * is spread over several endpoints. -EINVAL, -ENOMEM. */
NEB_API int neb_pool_open(
	const struct neb_options *options, uint32_t clients_max, struct neb_pool **ret_pool);
/* Ends a pool and its clients; takes NULL. All that was leased must have been given back. */
NEB_API void neb_pool_close(struct neb_pool *pool);
/* Leases a client, which only the caller may use until it is given back: the one used last, a new
 * one, or the first that another thread gives back in time. -ETIMEDOUT, or as neb_client_open. Any
 * thread. */
NEB_API int neb_pool_lease(
	struct neb_pool *pool, uint64_t timeout_ns, struct neb_client **ret_client);
/* Gives a client back; takes NULL. Nothing may be in flight on it; buffers and registrations of it
 * stay. Any thread. */
NEB_API void neb_pool_give(struct neb_pool *pool, struct neb_client *client);

/* ---- RDMA tokens for other S3 clients. ---- */
/* A program that sends its S3 requests with another library lets the server move the body of a
 * GetObject, PutObject or UploadPart by RDMA: it mints a token of a window of its memory, sends the
 * token as the signed header x-amz-rdma-token of a request without a body, and reads
 * x-amz-rdma-reply of the answer (docs/spec/token.md):
 *
 *	neb_token_mint(minter, NEB_GET_OBJECT, buffer, sizeof(buffer), token);
 *	...send GET /photos/hello with x-amz-rdma-token: token, and wait for the answer...
 *	if (!answered)
 *		neb_token_failed(minter, token);
 *	neb_token_release(minter, token);
 *
 * A minter may be used by any thread at any time before neb_minter_close, and its functions may
 * block for as long as a connection takes. On the simulated device, and there only, a minter has a
 * thread of its own. A child process cannot use a minter after a fork. */
struct neb_minter;
/* A token's text with the NUL at its end. */
#define NEB_TOKEN_BYTES 82u
/* Opens a minter of tokens that one server can use: options->endpoints is one endpoint of HTTP or
 * HTTPS. Connects nothing yet. transport and pool_bytes are ignored; log may be called from any
 * thread that uses the minter. -EINVAL: an option (the log names it); -ENODEV: no RDMA device leads
 * to the endpoint; -ENOMEM. */
NEB_API int neb_minter_open(const struct neb_options *options, struct neb_minter **ret_minter);
/* Ends a minter with its tokens and registrations; takes NULL. Then the server reaches none of the
 * memory any more. No other thread may be in one of its functions. */
NEB_API void neb_minter_close(struct neb_minter *minter);
/* Whether tokens can be minted now: connects a queue pair to the server if there is none. 0, or the
 * reason: -EOPNOTSUPP the endpoint connects none, -EACCES the keys, -EAGAIN it is too busy,
 * -ECONNREFUSED, -ETIMEDOUT and similar. Writes the reason as text, or an empty text, cut to
 * why_bytes. */
NEB_API int neb_minter_available(struct neb_minter *minter, char *ret_why, size_t why_bytes);
/* Registers memory for many tokens, which is faster than a registration for each. The key in a
 * token then covers all of the registered memory, for the token's direction, until the registration
 * ends. The device learns of the memory with the first token of a direction. The same memory may be
 * registered several times. -EEXIST: registered from the same address with another length;
 * -ENOSPC. */
NEB_API int neb_minter_register(struct neb_minter *minter, void *data, size_t bytes);
/* Ends a registration: data as given to neb_minter_register. With the last one of this memory the
 * server's access ends, also that of tokens which are not released yet: a transfer that still runs
 * fails at the server. -ENOENT. */
NEB_API int neb_minter_unregister(struct neb_minter *minter, void *data);
/* Mints a token for one request: op is NEB_GET_OBJECT, whose bytes the server writes to the window,
 * NEB_PUT_OBJECT or NEB_UPLOAD_PART, whose bytes it reads from there, or NEB_S3 if the caller does
 * not know: the key then allows both. Memory that is not registered
 * is registered for this token alone: the key then covers only the window, and ends with
 * neb_token_release. Do not free or change the window before the token has been released. A retry
 * of a request needs a token of its own. -EMSGSIZE: more than 4 GiB - 1; -ENOSPC: too many tokens;
 * -ENOMEM: the memory cannot be registered; errors of neb_minter_available. */
NEB_API int neb_token_mint(struct neb_minter *minter, enum neb_op op, const void *data,
	size_t bytes, char ret_token[NEB_TOKEN_BYTES]);
/* Releases a token once its request has been answered, whatever the answer was. -ENOENT. */
NEB_API int neb_token_release(struct neb_minter *minter, const char *token);
/* Reports that a token's request got no answer, or an answer with x-amz-rdma-reply: 501 from a
 * server that moved bytes before: its queue pair is closed, and when this returns the server can
 * neither write to the window nor read from it. Other requests whose tokens name the same queue
 * pair fail with it; the next token connects another one. The token must still be released.
 * -ENOENT. */
NEB_API int neb_token_failed(struct neb_minter *minter, const char *token);

/* ---- Statistics. ---- */
struct neb_stats {
	uint64_t requests_rdma, requests_http; /* answered */
	uint64_t fallbacks;		       /* used HTTP although RDMA was wanted */
	uint64_t sessions_opened, sessions_lost;
	uint64_t bytes_copied;	/* by the client, between your memory and the pool or a message */
	uint64_t registrations; /* made for single requests */
	uint64_t bytes_staged;	/* of bytes_copied: to and from a GPU's memory */
	uint64_t retries;	/* sent again after a 503 */
	uint64_t sleeps;	/* waits that slept in the kernel */
	/* Of the cache of registrations: neb_options.registration_cache_bytes. */
	uint64_t registration_hits, registration_misses, registration_evictions;
	/* neb_options.one_sided_reads: objects leased, read so, and found to have changed. */
	uint64_t leases, one_sided_reads, one_sided_misses;
	uint64_t keepalives; /* posted: neb_options.keepalive_ns */
	/* The paths to the server in use (neb_options.endpoints): all, those with a session now,
	 * and requests that lost their session and were sent again on another path. */
	uint64_t paths, paths_up, requests_moved;
};
/* Counters since the client was opened. */
NEB_API void neb_client_stats(const struct neb_client *client, struct neb_stats *ret_stats);

#ifdef __cplusplus
}
#endif

#endif
