/* server/paths.h: rdma.paths: further addresses where a server listens for native sessions, and the
 * devices that have them. */
#ifndef SERVER_PATHS_H
#define SERVER_PATHS_H

#include "front/front.h"
#include "server/config.h"

_Static_assert(CONFIG_PATHS_MAX < FRONT_DEVICES_MAX && CONFIG_PATHS_MAX < FRONT_ADDRESSES_MAX,
	"rdma.address and all paths may be on one device, or each on its own");

/* A device beside the server's first one. */
struct path_device {
	char name[CONFIG_TEXT_MAX];
	struct rp_device *rp;
	struct rp_device_attr attr;
	struct front_native *natives[LIMIT_CORES_MAX]; /* one a reactor */
};
struct path {
	char address[CONFIG_PATH_ADDRESS_BYTES];
	struct path_device *device; /* NULL: the server's first one */
};
/* Zeroed: none. */
struct paths {
	uint32_t device_count, count;
	struct path_device devices[CONFIG_PATHS_MAX];
	struct path paths[CONFIG_PATHS_MAX];
};

/* Finds and opens the devices; config has the server's first one by name. The log says which, and
 * why one cannot be had. -EINVAL, -ENODEV, or the device's error. */
int paths_open(const struct config *config, const struct rp_open_opts *opts, struct paths *paths);
/* Opens a reactor's front on each device; opts are those of the first device's front, beside whose
 * first one they are. */
int paths_fronts_open(struct paths *paths, uint32_t core_idx, const struct front_native_opts *opts,
	struct front_native *beside);
/* Listens at rdma.address by first, and at all others, on the same port, and lets clients be told
 * of them (rdma.tell_paths). -EADDRINUSE; the log says where. */
int paths_listen(struct paths *paths, const struct config *config, struct front_native *first);
/* As those of front_native. */
void paths_drain(struct paths *paths, uint32_t core_idx, uint64_t deadline_ns);
void paths_unlisten(struct paths *paths);
void paths_fronts_close(struct paths *paths, uint32_t core_idx);
void paths_close(struct paths *paths);

#endif
