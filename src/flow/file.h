/* flow/file.h: files and block devices as ends of a transfer, by io_uring: directly between the
 * file and the region's frames, without the page cache if the file system supports that, with
 * several operations in flight. All calls inside fibers of the core's reactor, unless stated
 * otherwise. */
#ifndef FLOW_FILE_H
#define FLOW_FILE_H

#include "disk/disk.h"
#include "flow/flow.h"

struct flow_file_opts {
	const char *path;
	bool replace;  /* may replace an existing file or the data on a block device; otherwise
			  -EEXIST */
	bool fixed;    /* flow_file_register() succeeded */
	uint32_t unit; /* unit of the pieces' lengths and addresses, a power of two, 512 or more */
	/* Called once, when a write has failed, so that a fiber that waits for a source can stop
	 * waiting. */
	void (*failed)(void *arg);
	/* Makes the written bytes durable after each this many bytes, and calls durable: all bytes
	 * before `bytes` are durable. 0: only at the end. */
	uint64_t sync_bytes;
	void (*durable)(void *arg, uint64_t bytes);
	void *arg;
};
/* Registers the region with the reactor's io_uring as fixed buffers; before the first turn. False
 * when the locked-memory limit forbids it: operations are then a little slower. */
bool flow_file_register(struct reactor *reactor, struct region *region);
/* A sink that writes pieces to the file in order, from their own frames, gathered into writes of up
 * to a chunk. finish makes file and name durable. The length of each piece but the last is a
 * multiple of the unit; a last piece of odd length must be in whole frames of its own. -EEXIST;
 * -EINVAL: the medium's unit is larger; open(2)'s errors. Blocks for a moment, to open the file. */
int flow_file_sink_open(
	struct flow_core *core, const struct flow_file_opts *opts, struct flow_sink **ret_sink);

struct flow_file_range {
	const char *path;
	bool fixed;
	uint64_t offset; /* a multiple of FRAME_BYTES */
	uint64_t bytes;	 /* 0: to the end */
};
/* -EINVAL: neither a file nor a block device, or an odd offset; -ERANGE: the file is shorter. next:
 * -EPIPE when the file became shorter meanwhile. */
int flow_file_source_open(struct flow_core *core, const struct flow_file_range *range,
	struct flow_source **ret_source);

/* ---- Volumes: devices, NVMe passthrough among them, through the unified rings. ---- */
struct flow_volume {
	struct disk *disk; /* attached to the core's reactor */
	uint16_t target;   /* disk_target() */
	uint64_t offset;   /* a multiple of FRAME_BYTES */
	uint64_t bytes;	   /* limit, 0: to the end */
	/* For the sink, as in flow_file_opts; durable is called at the end, too. All may be NULL.
	 */
	void (*failed)(void *arg);
	uint64_t sync_bytes;
	void (*durable)(void *arg, uint64_t bytes);
	void *arg;
};
/* Each piece is a lease at an address that is a multiple of disk_align(); so is the length of each
 * piece but the last. push: -EINVAL otherwise, -ENOSPC past the end. open: -EINVAL, -ERANGE. */
int flow_volume_sink_open(
	struct flow_core *core, const struct flow_volume *volume, struct flow_sink **ret_sink);
int flow_volume_source_open(
	struct flow_core *core, const struct flow_volume *volume, struct flow_source **ret_source);

#endif
