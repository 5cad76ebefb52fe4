/* flow/transform_priv.h: interface between the files of transforms. */
#ifndef FLOW_TRANSFORM_PRIV_H
#define FLOW_TRANSFORM_PRIV_H

#include "flow/transform.h"

#define FLOW_TRANSFORM_NAME_BYTES 64u

struct flow_transform_item {
	const struct neb_transform *ops;
	void *state;
	void *library; /* NULL: built in */
	char name[FLOW_TRANSFORM_NAME_BYTES];
};

/* A converting transform and those after it that change its output in the same buffer. The first
 * segment has no converting transform: its buffer is the piece. */
struct flow_segment {
	uint32_t first, end;   /* items */
	uint32_t flushing;     /* the item whose flush is next, once input is over */
	bool more;	       /* the last convert has more output */
	struct flow_run input; /* the rest of its input */
	uint8_t *buffer;       /* of the input, if it is not the piece; NULL until needed */
};

#define FLOW_TRANSFORMS_MAGIC 0xf10972a5u
struct flow_transforms {
	uint32_t magic;
	struct flow_transform_item items[FLOW_TRANSFORMS_MAX + 1]; /* and FLOW_TRANSFORM_GATHER */
	uint32_t count;
	struct flow_segment segments[FLOW_TRANSFORMS_MAX + 2];
	uint32_t segment_count; /* 0: not begun */
	bool input_over;
	char why[FLOW_TRANSFORM_WHY_BYTES];
};

static inline void flow_transforms_check(const struct flow_transforms *self)
{
	CHECK(self->magic == FLOW_TRANSFORMS_MAGIC);
	CHECK(self->count <= FLOW_TRANSFORMS_MAX + 1);
}

/* Built in. */
extern const struct neb_transform FLOW_TRANSFORM_CTR;	     /* aes256ctr */
extern const struct neb_transform FLOW_TRANSFORM_SEAL;	     /* aes256gcm */
extern const struct neb_transform FLOW_TRANSFORM_UNSEAL;     /* aes256gcm-decrypt */
extern const struct neb_transform FLOW_TRANSFORM_COMPRESS;   /* zstd */
extern const struct neb_transform FLOW_TRANSFORM_DECOMPRESS; /* unzstd */
extern const struct neb_transform FLOW_TRANSFORM_FILTER;     /* filter */
extern const struct neb_transform FLOW_TRANSFORM_SNAP;	     /* snap */
/* Copies: for the end of a chain that changes bytes in place, but not always with the same
 * length. */
extern const struct neb_transform FLOW_TRANSFORM_GATHER;

/* Reads a key file that holds exactly so many bytes. -errno, with the reason. */
int flow_transform_key(
	const char *path, uint8_t *ret_key, size_t key_bytes, char *why, size_t why_bytes);

#endif
