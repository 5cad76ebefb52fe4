/* cli/transfer.h: whole objects to and from file descriptors, in parts with a window in flight,
 * with progress. */
#ifndef CLI_TRANSFER_H
#define CLI_TRANSFER_H

#include <stdint.h>

#include "remote.h"

#define TRANSFER_PART_BYTES (8u << 20)
/* A part's time: it shares a line that may be slow with others. */
#define TRANSFER_PART_NS (120 * NS_PER_S)
#define TRANSFER_WINDOW	 4u

/* A line on standard error, redrawn a few times a second while it is a terminal and the transfer is
 * long. */
struct progress {
	const char *what;
	uint64_t total; /* 0: not known */
	uint64_t done;
	uint64_t start_ns;
	uint64_t shown_ns;
	bool visible;
};
void progress_start(struct progress *progress, const char *what, uint64_t total);
void progress_add(struct progress *progress, uint64_t bytes);
void progress_end(struct progress *progress);

/* An object's properties beside its bytes, as headers of the request that stores it. */
#define TRANSFER_HEADERS_MAX 24u
struct transfer_headers {
	struct neb_header all[TRANSFER_HEADERS_MAX];
	uint32_t count;
};

struct transfer {
	struct neb_client *client;
	const struct remote_opts *opts;
	const char *bucket;
	const char *key;
	uint64_t bytes;		      /* moved, out */
	enum neb_transport transport; /* of the last part, out */
	char fallback[128];	      /* out */
	struct progress progress;
	bool quiet; /* no progress of its own: one of many */
	/* Of what is stored; NULL: none. A file's time of change is added. */
	const struct transfer_headers *headers;
	bool md5;		/* an object of one request gets its MD5 for ETag over RDMA, too */
	bool resume;		/* goes on with an upload that was cut off; keeps one that fails */
	uint64_t bytes_resumed; /* of bytes, were there already; out */
};

/* Writes the object to fd, in order. An object that is replaced meanwhile is an error, never a
 * mixture. Exit code. */
int transfer_get(struct transfer *transfer, int fd);
/* Stores what fd yields until its end: in one request when it is short, else as a multipart upload,
 * which is aborted when it fails, or kept with resume. Where it can be neither, what is written
 * down of it stays (upload_state.h), and the next one of this file to this key goes on with it or
 * aborts it. name is the file's, or for messages. Exit code. */
int transfer_put(struct transfer *transfer, int fd, const char *name);

/* The object to target: "-", a folder, a special file, or a file, which gets its name when it is
 * whole. Exit code. */
int transfer_to_file(struct transfer *transfer, const char *target);
/* source, or standard input for "-", to the object. Exit code. */
int transfer_from_file(struct transfer *transfer, const char *source);
/* Another object to the object, inside the server. Exit code. */
int transfer_copy(struct transfer *transfer, const char *from_bucket, const char *from_key);
/* Waits for the next result of the transfer's parts, whose transport is told. CLI_OK, whatever the
 * result is; CLI_FAILED, said why: there will be none. */
int transfer_wait(struct transfer *transfer, struct neb_result *ret_result);
/* The part after the last '/'. */
const char *transfer_base_name(const char *path);

#endif
