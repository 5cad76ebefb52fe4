/* server/paths.c: further addresses for native sessions, and their devices. A client that knows
 * several of a server's addresses has a session by each, and goes on when one of them is lost. */
#include "server/paths.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "rdma/rdma.h"

/* The device of that name: the server's first one, a former path's, or opened for this path. */
static int device_take(const struct config *config, const struct rp_open_opts *opts,
	struct paths *paths, const char *name, struct path *path)
{
	struct path_device *device = &paths->devices[paths->device_count];
	struct rp_open_opts other = *opts;
	int ret;

	path->device = NULL;
	if (strcmp(name, config->rdma.device_name) == 0)
		return 0;
	for (uint32_t i = 0; i < paths->device_count; i++) {
		path->device = &paths->devices[i];
		if (strcmp(name, paths->devices[i].name) == 0)
			return 0;
	}
	/* Port and GID of the configuration are those of the first device. */
	other.device_name = name;
	other.ib_port = 0;
	other.gid_index = -1;
	other.address = path->address;
	ret = rp_open(&other, &device->rp);
	if (ret)
		return ret;
	rp_device_attr(device->rp, &device->attr);
	snprintf(device->name, sizeof(device->name), "%s", name);
	paths->device_count++;
	path->device = device;
	return 0;
}

static int path_open(const struct config *config, const struct rp_open_opts *opts,
	struct paths *paths, struct slice address, struct slice wanted)
{
	struct path *path = &paths->paths[paths->count];
	struct rp_found found = {.why = "as configured"};
	char name[CONFIG_TEXT_MAX];
	int ret = slice_copy_str(address, path->address, sizeof(path->address));

	if (ret == 0 && wanted.len) {
		ret = slice_copy_str(wanted, name, sizeof(name));
	} else if (ret == 0) {
		ret = rp_find_listening(path->address, &found);
		snprintf(name, sizeof(name), "%s", found.device_name);
	}
	if (ret == 0)
		ret = device_take(config, opts, paths, name, path);
	if (ret) {
		log_error("server",
			"rdma.paths: %.*s: no RDMA device can be used: %s; name it as "
			"ADDRESS=DEVICE, or leave the address out",
			SLICE_FMT(address), found.device_name[0] ? strerror(-ret) : found.why);
		return ret;
	}
	log_info("server", "rdma.paths: %s: device %s: %s", path->address, name, found.why);
	paths->count++;
	return 0;
}

int paths_open(const struct config *config, const struct rp_open_opts *opts, struct paths *paths)
{
	struct slice rest = slice_str(config->rdma.paths), address, device;
	int ret = 0;

	while (!ret && paths->count < CONFIG_PATHS_MAX &&
		config_path_next(&rest, &address, &device))
		ret = path_open(config, opts, paths, address, device);
	return ret;
}

int paths_fronts_open(struct paths *paths, uint32_t core_idx, const struct front_native_opts *opts,
	struct front_native *beside)
{
	int ret = 0;

	for (uint32_t i = 0; !ret && i < paths->device_count; i++) {
		struct path_device *device = &paths->devices[i];
		struct front_native_opts own = *opts;

		own.device = device->rp;
		own.first = core_idx ? device->natives[0] : NULL;
		own.beside = core_idx ? NULL : beside;
		ret = front_native_open(&own, &device->natives[core_idx]);
		if (ret)
			log_error("server", "RDMA sessions cannot be served on %s: %s",
				device->name, strerror(-ret));
	}
	return ret;
}

/* A text that is no host's address, as 0.0.0.0, cannot be told. */
static void addresses_tell(
	const struct paths *paths, const struct config *config, struct front_native *first)
{
	uint16_t port = front_native_port(first);

	if (!paths->count || !config->rdma.tell_paths)
		return;
	if (front_native_announce(first, config->rdma.address, port))
		log_info("server", "rdma.address: clients are not told of '%s'",
			config->rdma.address);
	for (uint32_t i = 0; i < paths->count; i++)
		if (front_native_announce(first, paths->paths[i].address, port))
			log_info("server", "rdma.paths: clients are not told of '%s'",
				paths->paths[i].address);
}

int paths_listen(struct paths *paths, const struct config *config, struct front_native *first)
{
	int ret = front_native_listen(first, config->rdma.address, (uint16_t)config->rdma.port);

	if (ret) {
		log_error("server", "RDMA cannot listen on '%s' port %llu: %s%s",
			config->rdma.address, (unsigned long long)config->rdma.port, strerror(-ret),
			ret == -EADDRINUSE
				? ": stop the server that uses it, or use another, --rdma "
				  "ADDR:PORT (make run ARGS=\"--rdma ...\")"
				: "");
		return ret;
	}
	for (uint32_t i = 0; !ret && i < paths->count; i++) {
		const struct path *path = &paths->paths[i];

		ret = front_native_listen(path->device ? path->device->natives[0] : first,
			path->address, front_native_port(first));
		if (ret)
			log_error("server", "rdma.paths: RDMA cannot listen on '%s' port %u: %s",
				path->address, front_native_port(first), strerror(-ret));
	}
	if (!ret)
		addresses_tell(paths, config, first);
	return ret;
}

void paths_drain(struct paths *paths, uint32_t core_idx, uint64_t deadline_ns)
{
	for (uint32_t i = 0; i < paths->device_count; i++)
		if (paths->devices[i].natives[core_idx])
			front_native_drain(paths->devices[i].natives[core_idx], deadline_ns);
}

void paths_unlisten(struct paths *paths)
{
	for (uint32_t i = 0; i < paths->device_count; i++)
		if (paths->devices[i].natives[0])
			front_native_unlisten(paths->devices[i].natives[0]);
}

void paths_fronts_close(struct paths *paths, uint32_t core_idx)
{
	for (uint32_t i = 0; i < paths->device_count; i++)
		front_native_close(paths->devices[i].natives[core_idx]);
}

void paths_close(struct paths *paths)
{
	while (paths->device_count)
		rp_close(paths->devices[--paths->device_count].rp);
}
