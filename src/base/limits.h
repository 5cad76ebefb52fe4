/* base/limits.h: every maximum of the project, in one place, so that nothing that crosses a trust
 * boundary is unbounded. A limit names its unit and ends in _max; kin are tied by _Static_assert.
 */
#ifndef BASE_LIMITS_H
#define BASE_LIMITS_H

#define KIB (1024ull)
#define MIB (1024ull * KIB)
#define GIB (1024ull * MIB)
#define TIB (1024ull * GIB)

/* S3 names and bodies (S3 API reference, "Creating object key names", "Bucket naming rules"). */
#define LIMIT_BUCKET_LEN_MIN	      3
#define LIMIT_BUCKET_LEN_MAX	      63
#define LIMIT_KEY_LEN_MAX	      1024
#define LIMIT_USER_METADATA_BYTES_MAX (2 * KIB)
#define LIMIT_OBJECT_BYTES_MAX	      (5 * TIB)
#define LIMIT_PUT_BYTES_MAX	      (5 * GIB)
#define LIMIT_LIST_KEYS_MAX	      1000
#define LIMIT_DELETE_KEYS_MAX	      1000
/* How many times an operation starts again because others changed the object; after that it
 * answers "slow down".
 */
#define LIMIT_COMMIT_TURNS_MAX	 256u
#define LIMIT_XML_BODY_BYTES_MAX (3 * MIB)
#define LIMIT_ACCESS_KEY_LEN_MAX 128
#define LIMIT_SECRET_KEY_LEN_MAX 128

/* HTTP/1.1. The head is the request line and all headers together. */
#define LIMIT_HTTP_HEAD_BYTES_MAX	(16 * KIB)
#define LIMIT_HTTP_HEADERS_MAX		100
#define LIMIT_HTTP_CHUNK_HEAD_BYTES_MAX (1 * KIB)
#define LIMIT_HTTP_TRAILER_BYTES_MAX	(4 * KIB)

/* Frames of the unified region. A frame is one page, which is also the largest AF_XDP chunk. A span
 * is a run of frames that one lease gives out; devices see a span as one contiguous buffer. */
#define FRAME_BYTES	      4096u
#define FRAME_SHIFT	      12u
#define LIMIT_SPAN_FRAMES_MAX 1024u /* 4 MiB */
#define LIMIT_ARENA_BYTES_MAX (1 * GIB)
#define LIMIT_ARENAS_MAX      64u
/* One arena is for the tables. */
#define LIMIT_REGION_BYTES_MAX	 ((LIMIT_ARENAS_MAX - 1) * LIMIT_ARENA_BYTES_MAX)
#define LIMIT_REGION_MRS_MAX	 1024u
#define LIMIT_REGION_TARGETS_MAX 4096u
#define LIMIT_CORES_MAX		 64u
#define LIMIT_RING_ENTRIES_MAX	 4096u

/* Native capsules (docs/spec/wire.md). */
#define LIMIT_CAPSULE_BYTES_MAX	       (16 * KIB)
#define LIMIT_CAPSULE_INLINE_BYTES_MAX (8 * KIB)
#define LIMIT_SESSION_REQUESTS_MAX     256u
#define LIMIT_SGE_MAX		       16u

/* Server-wide. */
#define LIMIT_HTTP_CONNECTIONS_MAX  16384u
#define LIMIT_RDMA_SESSIONS_MAX	    4096u
#define LIMIT_TOKEN_QUEUE_PAIRS_MAX 2048u
#define LIMIT_HIPOBJ_SESSIONS_MAX   1024u
#define LIMIT_FIBERS_MAX	    65536u
#define LIMIT_FIBERS_KEPT	    32u
#define LIMIT_METRIC_BUCKETS_MAX    200u

_Static_assert(LIMIT_SPAN_FRAMES_MAX *FRAME_BYTES <= LIMIT_ARENA_BYTES_MAX, "a span fits an arena");
_Static_assert(FRAME_BYTES == 1u << FRAME_SHIFT, "the frame shift matches the frame size");
_Static_assert(LIMIT_CAPSULE_INLINE_BYTES_MAX < LIMIT_CAPSULE_BYTES_MAX, "inline fits a capsule");

#endif
