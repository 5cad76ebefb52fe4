/* s3/origin.h: buckets that stand in front of a bucket of another S3 server, their origin, for the
 * fetcher (src/origin): what a request asks of it, and what it answers (docs/design/origin.md).
 * An origin is one of the targets that operators registered (s3/replication.h). */
#ifndef S3_ORIGIN_H
#define S3_ORIGIN_H

#include "s3/s3.h"
#include "store/api.h"

#define S3_ORIGIN_PREFIX_MAX 512u
/* Where a range of an object comes from that is not here. */
enum s3_origin_ranges {
	S3_ORIGIN_FOLLOW, /* from the fetch of the whole object */
	S3_ORIGIN_AHEAD,  /* directly, when the fetch, which goes on, is far from it */
	S3_ORIGIN_ALONE	  /* directly, and the rest of the object is not fetched */
};
/* A bucket's. Texts are those of its settings. */
struct s3_origin {
	struct slice target; /* by name */
	struct slice prefix; /* of its keys there; or empty */
	uint64_t bytes_max;  /* that the bucket holds before copies are evicted; 0: no bound */
	uint64_t wait_s;     /* that a GET waits for its first bytes */
	enum s3_origin_ranges ranges;
	uint64_t revalidate_s; /* after that a copy is compared with the origin; 0: never */
};
#define S3_ORIGIN_REVALIDATE_S_MAX (366u * 86400u)
/* False: no bucket's origin wants that, since the server's start. Any thread. */
bool s3_origin_any_revalidates(void);
#define S3_ORIGIN_WAIT_S     60u /* unless the bucket says otherwise */
#define S3_ORIGIN_WAIT_S_MAX 3600u
/* The bucket's origin, as it is configured now, compared with what it was: whether an object that
 * was fetched meanwhile still belongs there. Fiber call. */
bool s3_origin_is_still(struct s3 *s3, struct flow_core *core, struct slice bucket,
	uint64_t bucket_id, const struct s3_origin *origin);

/* Deletes what an earlier run left of uploads: those of fetches, those of deleted buckets, and
 * parts of uploads that ended. *ending becoming true ends it early. Fiber call. */
int s3_uploads_sweep(struct s3 *s3, struct flow_core *core, const _Atomic bool *ending);
/* Deletes configurations that an earlier run left without their buckets. As s3_uploads_sweep. */
int s3_configs_sweep(struct s3 *s3, const _Atomic bool *ending);

/* Whether an object came from its bucket's origin. */
bool s3_origin_is_copy(const struct store_meta *meta);
/* When a copy was read last, in seconds of real time, as far as this start knows; 0: not known. */
uint64_t s3_origin_used_s(struct slice bucket, struct slice key);

/* A chain of origins has so many buckets at most; each is named by its store's id and its own. */
#define S3_ORIGIN_VIA_MAX   8u
#define S3_ORIGIN_VIA_BYTES (S3_ORIGIN_VIA_MAX * sizeof("0123456789abcdef-0123456789abcdef,"))
#define S3_ORIGIN_VIA	    "x-nebulaio-origin-via"
struct s3_origin_ask {
	struct slice bucket, key;
	uint64_t bucket_id;
	/* The bucket's: each request asks anew whether its account may use the target. */
	char owner[sizeof(((struct store_bucket *)NULL)->owner)];
	const struct s3_origin *origin;
	uint16_t share; /* of the principal */
	struct flow_core *core;
	const char *request_id;
	uint64_t deadline_ns; /* of a fetch */
	bool follows;	      /* of a fetch: COMING is understood */
	/* The buckets whose origins this request came through, and this one; empty: this one is
	 * among them already, or there are too many. The origin is told, so that a circle ends. */
	char via[S3_ORIGIN_VIA_BYTES];
};
enum s3_origin_end {
	S3_ORIGIN_GIVEN,  /* fetch: the object is stored; head: it is told */
	S3_ORIGIN_COMING, /* fetch: its first bytes are stored */
	S3_ORIGIN_ABSENT, /* the origin does not have it */
	S3_ORIGIN_BUSY,	  /* too much is being fetched */
	S3_ORIGIN_LATE,	  /* the deadline has passed; the fetch goes on */
	S3_ORIGIN_FAILED
};
#define S3_ORIGIN_WHY_BYTES	320u
#define S3_ORIGIN_HEADERS_BYTES 2048u
struct s3_origin_object {
	uint64_t bytes;
	uint64_t mtime_ns; /* real time; 0: not told */
	char etag[68];	   /* without quotes; empty: none that can be kept */
	/* "name\0value\0" pairs as they are stored. */
	char headers[S3_ORIGIN_HEADERS_BYTES];
	uint32_t headers_len;
};
#define S3_ORIGIN_UPLOAD_ID_BYTES 41u
struct s3_origin_told {
	enum s3_origin_end end;
	char why[S3_ORIGIN_WHY_BYTES];	/* of BUSY, LATE and FAILED, for people */
	struct s3_origin_object object; /* of a head, and of COMING */
	/* Of COMING: */
	void *stream;				   /* until leave */
	char upload_id[S3_ORIGIN_UPLOAD_ID_BYTES]; /* of the upload whose parts hold the bytes */
};
/* Where bytes of an object that is coming are. */
struct s3_origin_stretch {
	uint32_t part; /* of the upload, with these bytes of the object; 0: the object is whole */
	uint64_t offset, bytes;
	const char *why; /* of an error; until leave */
};
/* Percent-encoded: a prefix, and a delimiter and a marker. */
#define S3_ORIGIN_QUERY_BYTES (3 * (S3_ORIGIN_PREFIX_MAX * 2 + LIMIT_KEY_LEN_MAX * 3) + 128)
/* Bytes of an object that are not stored. */
#define S3_ORIGIN_DIRECT_BYTES (4 * MIB)
struct s3_origin_piece {
	uint64_t offset, bytes;
	const uint8_t *data; /* NULL: none */
	void *held;
};
/* Fiber calls of any reactor, which wait. */
struct s3_origin_ops {
	/* Until the whole object is stored, or (follows) its first bytes are: one fetch for all
	 * that ask for the key meanwhile. */
	void (*fetch)(void *arg, const struct s3_origin_ask *ask, struct s3_origin_told *ret_told);
	/* Until the byte at offset, which the object has, is stored. -EPIPE: it will not be;
	 * -ETIMEDOUT. */
	int (*follow)(void *stream, uint64_t offset, uint64_t deadline_ns,
		struct s3_origin_stretch *ret_stretch);
	/* Whether the byte at offset is stored, or will soon be. */
	bool (*near)(void *stream, uint64_t offset);
	void (*leave)(void *stream);
	/* A reader that gets pieces directly, from begin to end. False: there are too many. */
	bool (*direct_begin)(void *arg, const struct s3_origin_ask *ask);
	void (*direct_end)(void *arg, const struct s3_origin_ask *ask);
	/* Asks the origin for up to S3_ORIGIN_DIRECT_BYTES of the object, which has an ETag. GIVEN:
	 * the piece has data, until free. */
	void (*direct_piece)(void *arg, const struct s3_origin_ask *ask,
		const struct s3_origin_object *object, struct s3_origin_piece *piece,
		struct s3_origin_told *ret_told);
	void (*direct_free)(struct s3_origin_piece *piece);
	/* A page of so many of the origin's keys, as its XML, until direct_free; query has
	 * everything else, percent-encoded. GIVEN: the piece has the text. */
	void (*list)(void *arg, const struct s3_origin_ask *ask, const char *query,
		uint32_t keys_max, struct s3_origin_piece *ret_piece,
		struct s3_origin_told *ret_told);
	/* Asks the origin alone. */
	void (*head)(void *arg, const struct s3_origin_ask *ask, struct s3_origin_told *ret_told);
};
/* From now on requests use it; it must live until no request runs, or another is set. NULL: none.
 * Any thread. */
struct s3_origin_hook {
	const struct s3_origin_ops *ops;
	void *arg;
};
void s3_origin_on(struct s3 *s3, const struct s3_origin_hook *hook);

#endif
