/* nvmeof/controller.c: what sysfs tells about NVMe controllers and name spaces. */
#include "nvmeof/nvmeof_priv.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

static bool attribute(const char *sys, const char *folder, const char *name, const char *attribute,
	char *ret_text, size_t cap)
{
	char path[PATH_BYTES];

	return (size_t)snprintf(path, sizeof(path), "%s/%s/%s/%s", sys, folder, name, attribute) <
		       sizeof(path) &&
	       file_line(path, ret_text, cap);
}

bool controllers_walk(const char *sys, controller_fn *fn, void *arg)
{
	char path[PATH_BYTES];
	struct dirent *entry;
	bool ended = false;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/class/nvme", sys);
	dir = opendir(path);
	while (dir && !ended && (entry = readdir(dir))) {
		struct controller controller;
		const char *name = entry->d_name;

		/* A controller that goes away meanwhile lacks some of its files. */
		if (slice_copy_str(slice_str(name), controller.name, sizeof(controller.name)) ||
			!attribute(sys, "class/nvme", name, "subsysnqn", controller.nqn,
				sizeof(controller.nqn)) ||
			!attribute(sys, "class/nvme", name, "transport", controller.transport,
				sizeof(controller.transport)) ||
			!attribute(sys, "class/nvme", name, "state", controller.state,
				sizeof(controller.state)))
			continue;
		(void)attribute(sys, "class/nvme", name, "address", controller.address,
			sizeof(controller.address));
		ended = fn(&controller, arg);
	}
	if (dir)
		closedir(dir);
	return ended;
}

bool controller_is_at(const struct controller *controller, const char *address, uint16_t port)
{
	struct slice rest = slice_str(controller->address);
	bool at_address = false, at_port = false;
	char digits[SLICE_U64_MAX];
	struct slice number = slice_of_u64(port, digits);

	while (rest.data) {
		struct slice value = slice_split(&rest, ',');
		struct slice key = slice_split(&value, '=');

		at_address |= slice_eq(key, SLICE("traddr")) && slice_eq(value, slice_str(address));
		at_port |= slice_eq(key, SLICE("trsvcid")) && slice_eq(value, number);
	}
	return at_address && at_port;
}

struct liveness {
	const char *nqn;
	char *state;
};

static bool is_live(const struct controller *controller, void *arg)
{
	struct liveness *liveness = (struct liveness *)arg;

	if (strcmp(controller->nqn, liveness->nqn) != 0)
		return false;
	snprintf(liveness->state, 24, "%s", controller->state);
	return strcmp(controller->state, "live") == 0;
}

bool controllers_live(const char *sys, const char *nqn, char ret_state[24])
{
	struct liveness liveness = {.nqn = nqn, .state = ret_state};

	ret_state[0] = '\0';
	return controllers_walk(sys, is_live, &liveness);
}

/* "nvme1n1", and neither a path of a name space, "nvme1c2n1", nor a partition. */
static bool is_namespace(const char *name)
{
	unsigned controller, space;
	int end = 0;

	return sscanf(name, "nvme%un%u%n", &controller, &space, &end) == 2 && !name[end];
}

bool namespaces_walk(const char *sys, const char *nqn, uint64_t nsid, namespace_fn *fn, void *arg)
{
	char path[PATH_BYTES], text[NVMEOF_NQN_BYTES];
	struct dirent *entry;
	bool ended = false;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/block", sys);
	dir = opendir(path);
	while (dir && !ended && (entry = readdir(dir))) {
		uint64_t number;

		/* The device is the subsystem, or its only controller. */
		if (!is_namespace(entry->d_name) ||
			!attribute(sys, "block", entry->d_name, "device/subsysnqn", text,
				sizeof(text)) ||
			strcmp(text, nqn) != 0 ||
			!attribute(sys, "block", entry->d_name, "nsid", text, sizeof(text)) ||
			slice_to_u64(slice_str(text), &number) || (nsid && number != nsid))
			continue;
		ended = fn(entry->d_name, arg);
	}
	if (dir)
		closedir(dir);
	return ended;
}

bool controllers_multipath(const char *sys)
{
	char text[8];

	return attribute(sys, "module", "nvme_core/parameters", "multipath", text, sizeof(text)) &&
	       text[0] == 'Y';
}
