/* cli/transfer.h: moves whole objects to and from file descriptors, in parts with a window in
 * flight, and shows progress. */
#ifndef CLI_TRANSFER_H
#define CLI_TRANSFER_H

#include <stdint.h>
#include <sys/stat.h>

#include "remote.h"

#define TRANSFER_PART_BYTES (8u << 20)
/* How long a part of that length may take: parts share a line that may be slow. */
#define TRANSFER_PART_NS (120 * NS_PER_S)
#define TRANSFER_WINDOW	 4u

/* A line on standard error, redrawn a few times a second if that is a terminal and the transfer is
 * long. */
struct progress {
	const char *what;
	uint64_t total; /* 0: unknown */
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

struct written;
struct transfer {
	struct neb_client *client;
	const struct remote_opts *opts;
	const char *bucket;
	const char *key;
	uint64_t bytes;		      /* out: moved */
	enum neb_transport transport; /* out: of the last part */
	char fallback[128];	      /* out */
	struct progress progress;
	bool quiet; /* shows no progress: one of many transfers */
	/* Headers of the stored object; NULL: none. A file's modification time is added. */
	const struct transfer_headers *headers;
	bool md5;    /* an object stored by one request gets its MD5 as ETag over RDMA, too */
	bool resume; /* continues an interrupted upload; keeps one that fails */
	uint64_t bytes_resumed; /* out: how many of bytes the server had already */
	/* A download is one of several clients': the value of NEB_FAN_OUT_HEADER; NULL: it is not.
	 */
	const char *fan_out;
	/* The same as a group, when it is to come by multicast; NULL: it is not. */
	const struct neb_fan_out *multicast;
	/* out: the server's answer to that, of the last part, and how much came by multicast or why
	 * nothing did; or empty */
	char fan_out_role[160];
	struct written *written; /* a download is one of a run's: its files; NULL: it is not */
	bool move;		 /* the source is to be deleted: transfer_source_delete() */
	char etag[84];		 /* out, with move: the source's, of an object */
	struct stat file;	 /* out: the source's, of a file, before it was read */
};

/* Writes the object to fd, in order. An object that is replaced meanwhile is an error, never a
 * mixture. Exit code. */
int transfer_get(struct transfer *transfer, int fd);
/* The server's words about the fan-out, for people; "" without one. */
const char *transfer_fan_out_text(const struct transfer *transfer);
/* Stores what fd yields until its end: in one request when it is short, else as a multipart upload,
 * which is aborted when it fails, or kept with resume. A file that changes meanwhile is an error.
 * If neither is possible, the saved state stays (upload_state.h), and the next upload of this file
 * to this key continues or aborts it. name: the file's name, or a name for messages. Exit code. */
int transfer_put(struct transfer *transfer, int fd, const char *name);

/* Writes the object to target: "-", a special file, or a file, which gets its name when it is
 * complete, and is durable with `move`. A folder is an error, and so is a file of the same run.
 * Exit code. */
int transfer_to_file(struct transfer *transfer, const char *target);
/* Stores source, or standard input for "-", as the object. Exit code. */
int transfer_from_file(struct transfer *transfer, const char *source);
/* Copies another object to the object, inside the server. Exit code. */
int transfer_copy(struct transfer *transfer, const char *from_bucket, const char *from_key);
/* Deletes the source of a transfer with `move` that succeeded: an object, or without a bucket a
 * file. A source that is no longer what was copied stays, which is an error. Exit code. */
int transfer_source_delete(struct transfer *transfer, const char *from_bucket, const char *from);
/* Waits for the next result of the transfer's parts, and records its transport. CLI_OK for any
 * result; CLI_FAILED, prints why: there will be no result. */
int transfer_wait(struct transfer *transfer, struct neb_result *ret_result);
/* Whether a file is the same as before, and has not been written to. */
bool transfer_file_same(const struct stat *before, const struct stat *now);
/* The part after the last '/'. */
const char *transfer_base_name(const char *path);

#endif
