/* flow/transform.h: transforms of a flow's bytes, in a chain: built-in ones, and shared objects by
 * the interface of nebulaio/transform.h. The chain itself is bytes to bytes, without frames or
 * fibers; a source around another moves frames through it.
 *
 * 	text → flow_transforms_open → piece, pull … → over, pull … → close
 */
#ifndef FLOW_TRANSFORM_H
#define FLOW_TRANSFORM_H

#include "flow/flow.h"
#include "nebulaio/transform.h"

#define FLOW_TRANSFORMS_MAX	 8u
#define FLOW_TRANSFORM_WHY_BYTES 256u

_Static_assert(
	NEB_TRANSFORM_ROOM <= FLOW_PIECE_BYTES_MAX / 2, "a piece has room for several calls");

struct flow_transforms;

/* Whether the text, "NAME[:OPTIONS]" or "PATH[:OPTIONS]", is valid: a built-in transform is opened
 * and closed; for a path, a file must exist. Nothing is loaded. False with the reason. */
bool flow_transform_check(const char *text, char why[FLOW_TRANSFORM_WHY_BYTES]);
/* Opens the transforms in this order; shared objects are loaded and their constructors run.
 * -EINVAL: a text or a shared object is wrong; -ENOMEM; what a transform's own open returned. why
 * has the reason. Any thread. */
/* All of them work on packets, or all on bytes. */
int flow_transforms_open(const char *const *texts, uint32_t count, struct flow_transforms **ret,
	char why[FLOW_TRANSFORM_WHY_BYTES]);
/* The same with a given transform, for tests. Its name is for messages. */
int flow_transforms_open_one(const struct neb_transform *transform, const char *options,
	struct flow_transforms **ret, char why[FLOW_TRANSFORM_WHY_BYTES]);
/* Adds one after the last, before the first piece. -E2BIG, or the errors of open. */
int flow_transforms_add(struct flow_transforms *self, const struct neb_transform *transform,
	const char *options, char why[FLOW_TRANSFORM_WHY_BYTES]);
void flow_transforms_close(struct flow_transforms *self); /* takes NULL */
/* Whether the transform of this text works on packets. A shared object is loaded for this, and its
 * constructors run. -EINVAL: it is wrong, with the reason. */
int flow_transform_of_packets(
	const char *text, bool *ret_packets, char why[FLOW_TRANSFORM_WHY_BYTES]);
/* The same of a chain; false if it is empty. Its pieces are whole packets, and only
 * flow_transforms_piece is called. */
bool flow_transforms_of_packets(const struct flow_transforms *self);
/* Whether every piece is changed in place and keeps its length. */
bool flow_transforms_same_length(const struct flow_transforms *self);
/* After an error: the transform and its message. "" before. */
const char *flow_transforms_why(const struct flow_transforms *self);

/* ---- The chain. One thread at a time; none of these waits. ---- */

/* A run of a buffer: bytes [from, to) of data are in use. */
struct flow_run {
	uint8_t *data;
	size_t from, to, capacity;
};
/* Passes the next bytes of the stream. They remain the caller's, and are changed until pull is
 * hungry again or, if lengths stay, until the call returns. Only when the chain has no input left.
 * -EPROTO: a transform returned an impossible value; or its own errors. */
int flow_transforms_piece(struct flow_transforms *self, struct flow_run *piece);
/* No piece follows. If lengths stay, nothing needs to be pulled: 0 or an error. */
int flow_transforms_over(struct flow_transforms *self);

enum flow_pull {
	FLOW_PULL_HUNGRY, /* all input is taken: give the next piece */
	FLOW_PULL_FULL,	  /* out has less than NEB_TRANSFORM_ROOM left */
	FLOW_PULL_OVER	  /* nothing follows */
};
/* Appends the chain's output to out, if lengths do not stay. enum flow_pull, or -errno. */
int flow_transforms_pull(struct flow_transforms *self, struct flow_run *out);

/* ---- As a source. ---- */
struct flow_transform_opts {
	/* They read the pieces of the inner source before the change. Borrowed, like the chain.
	 */
	struct flow_stage *const *stages;
	uint32_t stage_count;
	/* Pieces but the last are multiples of it, if lengths do not stay; FRAME_BYTES at most.
	 */
	uint32_t unit;
	/* A full unit is passed on before waiting for the next piece; otherwise pieces are filled
	 * first. */
	bool prompt;
};
/* Takes inner over, also on an error: -ENOMEM. The chain is borrowed until the source is closed; it
 * works on a helper thread. next: -EROFS: a piece of the inner source is not a lease. */
int flow_transform_source_open(struct flow_source *inner, struct flow_transforms *transforms,
	const struct flow_transform_opts *opts, struct flow_source **ret_source);

#endif
