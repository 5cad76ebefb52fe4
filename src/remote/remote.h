/* remote/remote.h: volumes of other hosts over RDMA: docs/spec/wire.md, "Volumes". The initiator
 * makes paths `rdma://HOST:PORT/NAME` volumes of disk; the target exports this host's volumes. Data
 * moves by RDMA READ and WRITE that the target issues between its frames and the initiator's; no
 * processor copies the data. */
#ifndef REMOTE_REMOTE_H
#define REMOTE_REMOTE_H

#include "base/base.h"
#include "rdma/rdma.h"
#include "reactor/reactor.h"
#include "region/region.h"

#define REMOTE_SCHEME	    "rdma://"
#define REMOTE_PORT	    9110u
#define REMOTE_VOLUMES_MAX  64u /* that a target exports */
#define REMOTE_SECRET_BYTES 257u

/* The shared secret: a file's text without the white space around it, 16 to 256 bytes. -ENOENT,
 * -EACCES, -EINVAL; the log has the reason. */
int remote_secret_read(const char *path, char ret_secret[REMOTE_SECRET_BYTES]);

/* ---- Initiator. ---- */
struct remote;
struct remote_opts {
	struct rp_open_opts device;
	const char *secret; /* copied */
	/* Of the store's owner: a target that has heard of a later one refuses this process, and
	 * ends the connections of earlier ones before it answers (docs/design/cluster.md). 0:
	 * ownership is not by epochs. */
	uint64_t epoch;
	/* A target refused us as an earlier owner. Any thread; may be NULL. A target says so before
	 * it has proven the secret, so it is a reason to look, not a fact. */
	void (*stale)(void *arg);
	void *stale_arg;
	uint64_t setup_ns; /* how long the set-up of a connection may take; 0: 3 s */
};
/* Makes disk_open() accept REMOTE_SCHEME; call it before anything is opened. One at a time. */
int remote_initiator_open(const struct remote_opts *opts, struct remote **ret_remote);
/* Takes NULL. No remote volume may be open. */
void remote_initiator_close(struct remote *remote);

/* ---- Target. ---- */
struct remote_target;
struct remote_export {
	const char *name;  /* 1 to 63 characters */
	struct disk *disk; /* attached to the reactor; borrowed */
	/* The file with the epoch of the volume's last owner; borrowed. NULL: none can be stored,
	 * and owners with an epoch are refused. */
	const char *epoch_path;
};
struct remote_target_opts {
	struct rp_open_opts device;
	struct reactor *reactor;
	struct region *region;
	const char *secret;
	const char *address;
	uint16_t port; /* 0: a free one */
	const struct remote_export *exports;
	uint32_t export_count;
	/* Volumes that are files leave so much free on their file systems when they grow. */
	uint64_t reserve_bytes;
	uint64_t setup_ns; /* how long the set-up of a connection may take; 0: 3 s */
	/* The device has failed, and nobody can connect any more. On the reactor; may be NULL. */
	void (*failed)(void *arg);
	void *failed_arg;
};
/* Before the reactor's first turn. rp_listen's errors; the log says why. */
int remote_target_open(const struct remote_target_opts *opts, struct remote_target **ret_target);
uint16_t remote_target_port(const struct remote_target *target);
const struct rp_device_attr *remote_target_device(const struct remote_target *target);
/* In a fiber of the reactor: accepts no more connections, ends the existing ones, and waits for
 * their operations on the volumes. */
void remote_target_drain(struct remote_target *target);
/* Takes NULL. The reactor has stopped. */
void remote_target_close(struct remote_target *target);

#endif
