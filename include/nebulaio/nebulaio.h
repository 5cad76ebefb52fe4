/* nebulaio/nebulaio.h: the C client of NebulaIO, and its manual.
 *
 * A client talks S3 to a server over RDMA where it can, and over HTTP where it must. Objects move
 * between the server's storage and your memory; with memory from neb_buffer_alloc() or given to
 * neb_register() nothing copies them on the way.
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
 * THREADS. A client, with everything that belongs to it, is used by one thread at a time; there is
 * no hidden thread and no lock. Open one client per thread: they are cheap, and each is fastest
 * alone; or let threads lease clients from a neb_pool, which any thread may use. Functions without
 * a client may be called from anywhere. A client does not outlive a fork in the child.
 *
 * ERRORS. Functions return 0 or a negative errno. A request to the server also fills a struct
 * neb_result: S3's status, code, message and request id, and the transport of the request. The
 * errno of an answer: -ENOENT 404, -EACCES 401 and 403, -EEXIST 409, -ERANGE 416, -ESTALE 304 and
 * 412, -EMSGSIZE your memory is smaller than the object, -EINVAL any other 4xx, -EAGAIN 503, -EIO
 * any other 5xx. Without an answer (status 0): -ECONNREFUSED, -ECONNRESET, -ETIMEDOUT,
 * -EHOSTUNREACH, -ENETDOWN; -EXDEV: the endpoint is of another store than the others.
 *
 * MEMORY. Any memory will do. Memory that is neither from the pool nor registered is copied through
 * the pool when it is small, and registered for the one request when it is large, which costs a
 * system call or two. The server reads and writes your memory by itself while a request lasts: do
 * not free it, nor look at it, before the request's result has come.
 *
 * GPU MEMORY. An address of CUDA's device memory is memory like any other. neb_register() makes it
 * known to an RDMA card that can reach it (by dma-buf, or with the module nvidia-peermem), and the
 * bytes move between server and GPU without touching the host. Where the card cannot, or nothing
 * was registered, or by HTTP, they are staged through the pool, which must have room for the whole
 * body; neb_stats counts them. Before a body is sent, what the GPU was told before is waited for;
 * before an answer is received, that is the caller's to do. */
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

/* ---- Which way. ---- */
enum neb_transport {
	NEB_AUTO,   /* RDMA where an endpoint offers it, HTTP while it does not; comes back */
	NEB_RDMA,   /* RDMA only; a lost session is set up anew until the request's time is up, one
		       that never was fails at once */
	NEB_HTTP,   /* HTTP only */
	NEB_STRICT, /* RDMA only, and no second try: what cannot go at once fails */
	NEB_NONE,   /* in a result: it went nowhere */
	NEB_TOKEN,  /* in a result: asked over HTTP, and the body moved by an RDMA token */
};
/* A transport's name in lower case: "rdma", "http", … It lives for ever. */
NEB_API const char *neb_transport_name(enum neb_transport transport);
/* The transport that is meant by "auto", "rdma", "http" or "strict". -EINVAL on anything else. */
NEB_API int neb_transport_parse(const char *name, enum neb_transport *ret_transport);

/* ---- A client. ---- */
enum neb_log_level { NEB_LOG_DEBUG, NEB_LOG_INFO, NEB_LOG_WARN, NEB_LOG_ERROR };
/* Called inside the library's calls; text has no line end and lives for the call. */
typedef void neb_log_fn(void *arg, enum neb_log_level level, const char *text);

/* Zero it, then set what you need: every 0 or NULL is the default in brackets. Strings are copied.
 */
struct neb_options {
	/* Comma or space separated, in order of preference: rdma://HOST:PORT, http://HOST:PORT,
	 * https://HOST:PORT. The port may be left out (9100, 9000, 9443). Needed. The environment's
	 * NEBULAIO_CONNECT_TO, "HOST:PORT=HOST:PORT,…", leads those who say the first to the
	 * second. All must be of one store: the first that answers says which, the others are held
	 * against it, and one of another store does nothing that it is asked. With "?rdma" behind
	 * it, an HTTP endpoint moves the bodies of GetObject, PutObject and UploadPart by RDMA
	 * tokens, over a queue pair that the first of them connects (docs/spec/wire.md, part B);
	 * what lies in several runs of memory, or is declined, goes by HTTP, and the result's
	 * fallback says why. */
	const char *endpoints;
	const char *access_key; /* needed */
	const char *secret_key; /* needed */
	const char *region;	/* ["us-east-1"] */
	enum neb_transport transport;
	/* The RDMA device: "mlx5_0", "mlx5_0:1", "mlx5_0:1:3" (port, GID), "simulated" (same host
	 * only), or "auto": the card whose address packets to the first RDMA endpoint leave from;
	 * "simulated" when a server of this host listens there on it, or no card leads to an
	 * address of this host; else none, and NEB_AUTO goes by HTTP and says so.
	 * neb_client_device() tells the choice. ["auto"] */
	const char *device_name;
	uint64_t pool_bytes;	     /* memory for neb_buffer_alloc [64 MiB] */
	uint32_t requests_max;	     /* in flight at a time, 1 to 256 [64]; more wait their turn */
	uint32_t inline_bytes_max;   /* bodies sent inside a message [256]; UINT32_MAX: none */
	uint64_t connect_timeout_ns; /* of an RDMA session [2 s; 30 s unless NEB_AUTO] */
	uint64_t request_timeout_ns; /* [30 s] */
	/* How often a request that changes nothing by being sent twice is sent again when the
	 * server answers 503, SlowDown and its like, [4]; UINT32_MAX: never. After 50 ms, then
	 * twice as long each time, half of it by chance, while its time lasts. NEB_STRICT: never.
	 */
	uint32_t retries_max;
	/* How long a wait looks for its answer before it sleeps [50 µs]; UINT64_MAX: for ever. A
	 * wait that sleeps costs two context switches more and no processor. */
	uint64_t spin_ns;
	/* Encrypt what goes over RDMA, whether or not the server demands it. */
	bool require_encryption;
	/* Keeps registrations of memory that is used in requests and was not registered, up to so
	 * many bytes [0: off, each such request registers for itself]. With it, tell
	 * neb_memory_forget() before memory that requests have used is freed or unmapped: the
	 * device would go on using the old pages of that address, in silence. */
	uint64_t registration_cache_bytes;
	/* Read small objects that are asked for again and again straight from the server's memory,
	 * by RDMA READ, with no work for its processor: as soon as the object or the rights to it
	 * change, such a read finds that out and the request goes to the server as always, so what
	 * comes is what the key holds. Not on encrypted sessions, and only requests of a whole
	 * object without headers or want_headers. Such reads are not in the server's counters. */
	bool one_sided_reads;
	/* A server that has said nothing for so long, while requests are in flight, is looked after
	 * [5 s; UINT64_MAX: never]: by an empty RDMA WRITE, which its device acknowledges by
	 * itself, however busy the server is. If nothing acknowledges it in as long again, or the
	 * transport's retries are over sooner, the host has vanished: the session is lost, and its
	 * requests go another way at once, or come back with -EHOSTUNREACH. */
	uint64_t keepalive_ns;
	neb_log_fn *log; /* [warnings and errors go to standard error] */
	void *log_arg;
};

/* Opens a client. NEB_STRICT connects here and fails when it cannot; the others connect at the
 * first request. Blocks at most to look host names up. -EINVAL: an option (the log says which);
 * -ENOMEM, -ENODEV: no such RDMA device, and no other way.
 */
NEB_API int neb_client_open(const struct neb_options *options, struct neb_client **ret_client);
/* The RDMA device that the client goes by: "mlx5_0:1", "simulated"; "" without one. It lives as
 * long as the client. */
NEB_API const char *neb_client_device(const struct neb_client *client);
/* Why it is that one, or why there is none: a sentence for people. */
NEB_API const char *neb_client_device_why(const struct neb_client *client);
/* Ends a client; takes NULL. Requests in flight are cut off without a result; buffers and
 * registrations end. */
NEB_API void neb_client_close(struct neb_client *client);

/* ---- Memory the device knows. ---- */
/* Memory from the pool, page-aligned. -ENOMEM: the pool is full. Lives until free or close. */
NEB_API int neb_buffer_alloc(struct neb_client *client, size_t bytes, void **ret_data);
/* Gives memory back to the pool; takes NULL. No request may be using it. */
NEB_API void neb_buffer_free(struct neb_client *client, void *data);
/* Makes memory of yours known to the device; parts of it may then be used in requests. Not for
 * every request: it pins pages. -EEXIST: it overlaps what is registered. */
NEB_API int neb_register(struct neb_client *client, void *data, size_t bytes);
/* Ends a registration: data as given to neb_register; no request may be using it. -ENOENT. */
NEB_API int neb_unregister(struct neb_client *client, void *data);

/* Says that memory which requests have used goes away: whatever the cache of registrations has of
 * it ends. Needed with neb_options.registration_cache_bytes, before free() or munmap(); harmless
 * without. -EBUSY: a request is using it, and has it until it ends. -EINVAL. */
NEB_API int neb_memory_forget(struct neb_client *client, const void *data, size_t bytes);

/* ---- Requests. ---- */
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
#define NEB_HEADERS_MAX 32u

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
/* A request's result, told inside neb_poll or neb_wait in place of being handed out there. It lives
 * for the call, which may submit more to the client and free buffers, nothing else. arg is the
 * request's user_data. */
typedef void neb_done_fn(void *arg, const struct neb_result *result);

/* Zero it, then set what the operation needs. It and the strings it points at are copied by submit;
 * the memory in body and into is used until the result has come. */
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
	/* Why a request that might have gone by RDMA went by HTTP; empty otherwise. */
	char fallback[128];
	bool one_sided; /* read from the server's memory: neb_options.one_sided_reads */
	/* With want_headers: "name: value\n" lines, cut at a line's end; else empty. */
	char headers[2048];
};
/* The value of a header of the result, by name in any case: its length, or -ENOENT. *ret_value
 * points into result and is not terminated. */
NEB_API int neb_result_header(
	const struct neb_result *result, const char *name, const char **ret_value);

/* Starts a request. Blocks at most to look a host name up. Any number may be submitted. -EINVAL: a
 * field is out of bounds; nothing was started. A request that was started has exactly one result.
 */
NEB_API int neb_submit(
	struct neb_client *client, const struct neb_request *request, uint64_t *ret_id);
/* Takes results without waiting: tells those that have a done function, and takes up to max of
 * those that have none, in order of completion. How many it took. */
NEB_API int neb_poll(struct neb_client *client, struct neb_result *results, uint32_t max);
/* Waits for results: as neb_poll, but until at least one is told or taken. 0: nothing is in flight,
 * or all were told; -ETIMEDOUT; -EINTR: neb_wake() was called. Where every request has a done
 * function:
 *	do
 *		neb_wait(client, NULL, 0, timeout_ns);
 *	while (neb_in_flight(client));
 */
NEB_API int neb_wait(
	struct neb_client *client, struct neb_result *results, uint32_t max, uint64_t timeout_ns);
/* Ends the neb_wait() that another thread is in, or the next one: so that a thread which waits for
 * results takes new requests from others. The one call on a client that any thread may make at any
 * time before neb_client_close. */
NEB_API void neb_wake(struct neb_client *client);
/* How many requests have no result yet. */
NEB_API uint32_t neb_in_flight(const struct neb_client *client);
/* Submits a request and waits for it; results of others stay for neb_poll. Returns result->error.
 */
NEB_API int neb_perform(struct neb_client *client, const struct neb_request *request,
	struct neb_result *ret_result);

/* ---- The common ones, at once. All return result->error; ret_result may be NULL. ---- */
/* Fetches an object, whole, into data, which has room for bytes; result.bytes says how long it is.
 * -EMSGSIZE: it is longer, and nothing of data is promised; neb_head() says how long. */
NEB_API int neb_get(struct neb_client *client, const char *bucket, const char *key, void *data,
	size_t bytes, struct neb_result *ret_result);
/* Stores an object: bytes of data, up to 5 GiB. The key's old object is replaced completely or not
 * at all; on success the new one is on disk. */
NEB_API int neb_put(struct neb_client *client, const char *bucket, const char *key,
	const void *data, size_t bytes, struct neb_result *ret_result);
/* Asks for an object's length (result.object_bytes), ETag and headers. */
NEB_API int neb_head(struct neb_client *client, const char *bucket, const char *key,
	struct neb_result *ret_result);
/* Deletes an object. That there is none is no error, as in S3. */
NEB_API int neb_delete(struct neb_client *client, const char *bucket, const char *key,
	struct neb_result *ret_result);
/* Creates a bucket; by a name of the form base--zone--x-s3 a directory bucket of that zone.
 * -EEXIST: somebody has it. */
NEB_API int neb_bucket_create(
	struct neb_client *client, const char *bucket, struct neb_result *ret_result);
/* Deletes a bucket. -EEXIST: there is something in it. */
NEB_API int neb_bucket_delete(
	struct neb_client *client, const char *bucket, struct neb_result *ret_result);
/* Goes to the server and back, and connects where there is no connection yet. */
NEB_API int neb_ping(struct neb_client *client, struct neb_result *ret_result);

/* One entry of a listing: a key, or with a delimiter a common prefix. */
struct neb_entry {
	const char *key;
	bool is_prefix;
	uint64_t bytes;
	const char *etag;	   /* without quotes */
	const char *last_modified; /* 2026-01-02T03:04:05.000Z */
};
/* False ends the listing. The entry lives for the call, which may make no other call on the client.
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
/* Lists the objects of a bucket, all pages: list->visit is called inside for each. */
NEB_API int neb_list(
	struct neb_client *client, const struct neb_list *list, struct neb_result *ret_result);
/* Lists the buckets that the caller may see, as entries whose key is their name. */
NEB_API int neb_list_buckets(
	struct neb_client *client, neb_list_fn *visit, void *arg, struct neb_result *ret_result);

/* ---- Clients for many threads. ---- */
struct neb_pool;
/* Opens a pool of up to clients_max clients (1 to 1,024), opened as they are needed. Each starts at
 * another one of the endpoints that have the same scheme, in turn, and goes to the others when that
 * fails: so that work spreads over several endpoints. -EINVAL, -ENOMEM. */
NEB_API int neb_pool_open(
	const struct neb_options *options, uint32_t clients_max, struct neb_pool **ret_pool);
/* Ends a pool and its clients; takes NULL. All that was leased must have been given back. */
NEB_API void neb_pool_close(struct neb_pool *pool);
/* Leases a client, which is the caller's alone until it is given back: the one used last, a new
 * one, or the first that somebody gives back in time. -ETIMEDOUT, or as neb_client_open. Any
 * thread. */
NEB_API int neb_pool_lease(
	struct neb_pool *pool, uint64_t timeout_ns, struct neb_client **ret_client);
/* Gives a client back; takes NULL. Nothing may be in flight on it; buffers and registrations of it
 * stay. Any thread. */
NEB_API void neb_pool_give(struct neb_pool *pool, struct neb_client *client);

/* ---- Statistics. ---- */
struct neb_stats {
	uint64_t requests_rdma, requests_http; /* answered */
	uint64_t fallbacks;		       /* went by HTTP though RDMA was wanted */
	uint64_t sessions_opened, sessions_lost;
	uint64_t bytes_copied;	/* by the client, between your memory and the pool or a message */
	uint64_t registrations; /* made for single requests */
	uint64_t bytes_staged;	/* of bytes_copied: to and from a GPU's memory */
	uint64_t retries;	/* sent again after a 503 */
	uint64_t sleeps;	/* waits that went to the kernel */
	/* Of the cache of registrations: neb_options.registration_cache_bytes. */
	uint64_t registration_hits, registration_misses, registration_evictions;
	/* neb_options.one_sided_reads: objects leased, read so, and found to have changed. */
	uint64_t leases, one_sided_reads, one_sided_misses;
	uint64_t keepalives; /* posted: neb_options.keepalive_ns */
};
/* Counters since the client was opened. */
NEB_API void neb_client_stats(const struct neb_client *client, struct neb_stats *ret_stats);

#ifdef __cplusplus
}
#endif

#endif
