/* flow/file.h: files and block devices as ends of a transfer, by io_uring: from and into the
 * region's frames, past the page cache where the file system can do that, several operations in
 * flight. All calls inside fibers of the core's reactor, unless it says otherwise. */
#ifndef FLOW_FILE_H
#define FLOW_FILE_H

#include "disk/disk.h"
#include "flow/flow.h"

struct flow_file_opts {
	const char *path;
	bool replace;  /* an existing file, or what lies on a block device; else -EEXIST */
	bool fixed;    /* flow_file_register() succeeded */
	uint32_t unit; /* of the pieces' lengths and addresses, a power of two, 512 or more */
	/* Called once, when a write has failed: a fiber that waits for a source need not wait any
	 * longer. */
	void (*failed)(void *arg);
	/* Makes what is written durable each time so many bytes more are, and tells durable that
	 * everything before bytes is; 0: only at the end. */
	uint64_t sync_bytes;
	void (*durable)(void *arg, uint64_t bytes);
	void *arg;
};
/* Makes the region known to the reactor's io_uring as fixed buffers; before the first turn. False
 * when the locked-memory limit forbids it: operations then cost a little more. */
bool flow_file_register(struct reactor *reactor, struct region *region);
/* Pieces go to the file in order, gathered into writes of up to a chunk, from their own frames.
 * finish makes file and name durable. Each piece but the last is a multiple of the unit long; a
 * last one of odd length lies in whole frames of its own. -EEXIST; -EINVAL: the medium's unit is
 * larger; open(2)'s errors. Blocks a moment, to open the file. */
int flow_file_sink_open(
	struct flow_core *core, const struct flow_file_opts *opts, struct flow_sink **ret_sink);

struct flow_file_range {
	const char *path;
	bool fixed;
	uint64_t offset; /* a multiple of FRAME_BYTES */
	uint64_t bytes;	 /* 0: to the end */
};
/* -EINVAL: neither a file nor a block device, or an odd offset; -ERANGE: it is shorter. next:
 * -EPIPE when the file became shorter meanwhile. */
int flow_file_source_open(struct flow_core *core, const struct flow_file_range *range,
	struct flow_source **ret_source);

/* ---- Volumes: devices, NVMe passthrough among them, through the unified rings. ---- */
struct flow_volume {
	struct disk *disk; /* attached to the core's reactor */
	uint16_t target;   /* disk_target() */
	uint64_t offset;   /* a multiple of FRAME_BYTES */
	uint64_t bytes;	   /* at most so many, 0: to the end */
	/* Sink, as in flow_file_opts; durable is told at the end, too. All may be NULL. */
	void (*failed)(void *arg);
	uint64_t sync_bytes;
	void (*durable)(void *arg, uint64_t bytes);
	void *arg;
};
/* Each piece is a lease at an address that is a multiple of disk_align(), and all but the last are
 * so long, too; push: -EINVAL otherwise, -ENOSPC past the end. open: -EINVAL, -ERANGE. */
int flow_volume_sink_open(
	struct flow_core *core, const struct flow_volume *volume, struct flow_sink **ret_sink);
int flow_volume_source_open(
	struct flow_core *core, const struct flow_volume *volume, struct flow_source **ret_source);

#endif
