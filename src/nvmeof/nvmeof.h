/* nvmeof/nvmeof.h: NVMe over Fabrics by the standard, as Linux speaks it: the kernel's initiator
 * connects a volume `nvmeof://HOST:PORT/NQN` and shows it as a block device; the kernel's target
 * exports files and block devices of this host. This folder only tells the kernel what to do:
 * /dev/nvme-fabrics, /sys/class/nvme (Documentation/ABI/testing/sysfs-nvme, nvme-cli's
 * nvme-connect(1)) and configfs. docs/guide/nvme-of.md. */
#ifndef NVMEOF_NVMEOF_H
#define NVMEOF_NVMEOF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"

#define NVMEOF_SCHEME	  "nvmeof://"
#define NVMEOF_PORT	  4420u
#define NVMEOF_PATHS_MAX  4u
#define NVMEOF_NQN_BYTES  224u /* 223, and the end: NVM Express Base Specification, 4.7 */
#define NVMEOF_ID_BYTES	  37u  /* a UUID's text */
#define NVMEOF_NODE_BYTES 64u

/* Where the kernel's files are; NULL: where they belong. For tests. */
struct nvmeof_place {
	const char *sys; /* /sys */
	const char *dev; /* /dev */
	const char *run; /* /run */
	const char *etc; /* /etc */
};

/* ---- Names. ---- */
enum nvmeof_transport { NVMEOF_RDMA, NVMEOF_TCP };
const char *nvmeof_transport_name(enum nvmeof_transport transport);
/* -EINVAL. */
int nvmeof_transport_parse(struct slice text, enum nvmeof_transport *ret_transport);

struct nvmeof_address {
	char host[254];
	uint16_t port;
};
struct nvmeof_name {
	struct nvmeof_address addresses[NVMEOF_PATHS_MAX];
	uint32_t address_count;
	enum nvmeof_transport transport;
	char nqn[NVMEOF_NQN_BYTES];
	char host_nqn[NVMEOF_NQN_BYTES];		    /* "": this host's */
	char host_id[NVMEOF_ID_BYTES];			    /* "": of the host NQN */
	char secret_file[512], controller_secret_file[512]; /* "": none */
	uint64_t nsid;
	/* As the kernel's options of the same names; seconds, or counts. */
	int64_t ctrl_loss_tmo; /* -1: it reconnects without end */
	uint64_t fast_io_fail_tmo, reconnect_delay, keep_alive_tmo;
	uint64_t queue_size, nr_io_queues; /* 0: the kernel's choice */
};
/* "nvmeof://HOST[:PORT][,HOST[:PORT]…]/NQN[?OPTION=VALUE[&…]]"; "+" also separates hosts. -EINVAL;
 * ret_why then names the wrong part. */
int nvmeof_name_parse(
	const char *path, struct nvmeof_name *ret_name, char *ret_why, size_t why_cap);
/* True for a qualified name that the kernel's files accept as one word. */
bool nvmeof_nqn_valid(struct slice nqn);

/* ---- This host's name. ---- */
struct nvmeof_host {
	char nqn[NVMEOF_NQN_BYTES];
	char id[NVMEOF_ID_BYTES];
	bool derived; /* from /etc/machine-id, because there is no /etc/nvme/hostnqn */
};
/* -ENOENT: this host has neither /etc/nvme/hostnqn nor /etc/machine-id; -EINVAL: hostnqn holds no
 * NQN. */
int nvmeof_host_find(const struct nvmeof_place *place, struct nvmeof_host *ret_host);
/* A UUID that depends on the words alone. */
void nvmeof_uuid_of(struct slice a, struct slice b, char ret_id[NVMEOF_ID_BYTES]);

/* ---- The initiator. ---- */
struct nvmeof;
/* Connects the paths that are not connected yet, and waits until one of them is live and its name
 * space has a block device. At least one path must be reached. Every path that this process
 * connected, or that a killed process of this program left, is disconnected when the process ends,
 * unless another process uses it. quiet: failures are not logged. Blocks for seconds. -EINVAL,
 * -ENODEV (no such module), -EACCES, -ECONNREFUSED, -EPERM (the target refuses this host or the
 * NQN), -ENOENT (no such name space), -ETIMEDOUT and other network errors; the log says which path
 * and why. */
int nvmeof_open(
	const char *path, const struct nvmeof_place *place, bool quiet, struct nvmeof **ret_link);
/* Takes NULL. */
void nvmeof_close(struct nvmeof *link);
/* The block device's node. */
const char *nvmeof_node(const struct nvmeof *link);
/* One line: transport, addresses, subsystem. */
const char *nvmeof_describe(const struct nvmeof *link);
/* Whether the kernel has a live path to the subsystem now. Reads sysfs. Any thread. */
bool nvmeof_live(const struct nvmeof *link);

/* ---- The target. ---- */
#define NVMEOF_EXPORTS_MAX 64u
#define NVMEOF_HOSTS_MAX   64u
#define NVMEOF_MODEL	   "NebulaIO volume" /* of our subsystems; it marks them */
struct nvmeof_export {
	char nqn[NVMEOF_NQN_BYTES];
	char device[4096]; /* of a file or block device, absolute */
};
struct nvmeof_target_opts {
	const char *root; /* NULL: /sys/kernel/config/nvmet */
	enum nvmeof_transport transport;
	const char *address; /* a numeric one */
	uint16_t port;
	const struct nvmeof_export *exports;
	uint32_t export_count;
	const char *const *hosts; /* their NQNs */
	uint32_t host_count;
	bool allow_any;
};
struct nvmeof_target;
/* Writes, as shell commands, how the exports are made: with the port's number as it would be now.
 */
int nvmeof_target_show(const struct nvmeof_target_opts *opts, struct buf *out);
/* Removes what a killed process of this program left under the same NQNs or port, then makes the
 * exports; undoes everything when a step fails. -ENODEV (no nvmet), -EACCES, -EBUSY (another
 * process exports it), -EEXIST (a subsystem of somebody else), -EADDRINUSE; the log says why. */
int nvmeof_target_open(const struct nvmeof_target_opts *opts, struct nvmeof_target **ret_target);
/* Takes NULL. Ends the exports. */
void nvmeof_target_close(struct nvmeof_target *target);
/* Removes all exports that killed processes left. Their number, or -errno. */
int nvmeof_target_clear(const char *root);

#endif
