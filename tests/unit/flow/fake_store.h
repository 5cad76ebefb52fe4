/* tests/unit/flow/fake_store.h: a store of one object over a volume in memory, to test flow without
 * a disk: with runs as short and failures where a test wants them. It keeps everything that flow
 * gave the store, for checks. */
#ifndef TESTS_FLOW_FAKE_STORE_H
#define TESTS_FLOW_FAKE_STORE_H

#include "store/call/call.h"

#define FAKE_VOLUME_BYTES (16u * 1024u * 1024u)
#define FAKE_CHECKS_MAX	  (FAKE_VOLUME_BYTES / STORE_CHECK_BYTES)
#define FAKE_CHUNKS_MAX	  (FAKE_VOLUME_BYTES / STORE_CHUNK_BYTES)

/* A stretch starts at a chunk of the volume. */
struct fake_stretch {
	uint64_t start, bytes;
	uint32_t chunk;
};

struct fake_store {
	struct store_get_head head; /* makes it a get */
	struct region *region;
	uint16_t target;
	uint8_t *volume; /* byte n of a stretch is at n from its chunk: runs are short, but in order
			  */
	uint32_t stretch_count; /* 0: the object is one stretch */
	uint64_t stretches[FAKE_CHUNKS_MAX];
	uint32_t run_bytes_max;
	uint32_t checks[FAKE_CHECKS_MAX];
	uint32_t check_count;
	uint8_t tags[FAKE_CHECKS_MAX][STORE_TAG_BYTES];
	uint32_t tag_count;
	uint64_t body_number;
	bool grouped; /* the body came in its frames */
	uint32_t grouped_bytes;
	uint32_t cache_takes, cache_offers;
	struct region_span cached[FAKE_CHUNKS_MAX];
	struct cache *flights; /* of reads that gets share; NULL: each reads for itself */
	struct slice inline_body;
	struct store_meta meta;
	/* Failures. */
	int64_t fail_write_at, fail_read_at; /* volume offset, or -1 */
	int fail_space;
	uint32_t reads, writes;
};

/* Adds its volume to the region as a target. */
void fake_store_open(struct fake_store *fake, struct region *region);
/* Sets the object to read; set the stretches before. */
void fake_store_fill(struct fake_store *fake, const uint8_t *content, uint64_t bytes);
/* Gives the cache's frames back. */
void fake_store_close(struct fake_store *fake);

static inline struct store_put *fake_put(struct fake_store *fake)
{
	return (struct store_put *)fake;
}

static inline struct store_get *fake_get(struct fake_store *fake)
{
	return (struct store_get *)fake;
}

#endif
