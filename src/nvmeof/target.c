/* nvmeof/target.c: exports by the kernel's target, through its configfs.
 *
 * An export is a list of steps: folders, files written, links. They are done in order, shown as
 * commands, or undone in the reverse order. A process holds a lock on each of its subsystems'
 * folders and on its port's folder, so a marked subsystem without a lock was left by a killed
 * process. Nothing without our mark is changed. */
#include "nvmeof/nvmeof_priv.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

#define ROOT "/sys/kernel/config/nvmet"
/* The numbers of our ports, which other tools, counting from 1, do not reach. */
#define PORT_FIRST 19968u
#define PORT_COUNT 256u
#define STEPS_MAX  (NVMEOF_EXPORTS_MAX * (NVMEOF_HOSTS_MAX + 10) + NVMEOF_HOSTS_MAX + 5)
#define TEXT_BYTES 4400u

/* FOLDER_SHARED may exist, and is then not ours. */
enum step_kind { STEP_FOLDER, STEP_FOLDER_SHARED, STEP_WRITE, STEP_LINK };
struct step {
	enum step_kind kind;
	bool done;
	char *path;
	char *value; /* what is written; where the link leads */
};

struct nvmeof_target {
	const char *root;
	struct step *steps;
	uint32_t step_count;
	bool failed; /* no memory, or a text too long */
	int locks[NVMEOF_EXPORTS_MAX + 1];
	uint32_t lock_count;
};

/* ---- The list. ---- */

__attribute__((format(printf, 4, 5))) static void step_add(
	struct nvmeof_target *target, enum step_kind kind, const char *value, const char *fmt, ...)
{
	struct step *step = &target->steps[target->step_count];
	char text[TEXT_BYTES];
	va_list args;
	int len = snprintf(text, sizeof(text), "%s/", target->root);

	va_start(args, fmt);
	len += vsnprintf(text + len, sizeof(text) - (size_t)len, fmt, args);
	va_end(args);
	if (target->step_count == STEPS_MAX || (size_t)len >= sizeof(text)) {
		target->failed = true;
		return;
	}
	*step = (struct step){.kind = kind, .path = strdup(text), .value = strdup(value)};
	target->failed |= !step->path || !step->value;
	target->step_count++;
}

static void export_add(struct nvmeof_target *target, const struct nvmeof_target_opts *opts,
	const struct nvmeof_export *export)
{
	char uuid[NVMEOF_ID_BYTES], serial[21], to[TEXT_BYTES];
	size_t len = 0;

	/* They stay the same at the next start: an initiator that reconnects compares them. */
	nvmeof_uuid_of(SLICE("NVMe name space"), slice_str(export->nqn), uuid);
	for (size_t i = 0; uuid[i] && len < sizeof(serial) - 1; i++)
		if (uuid[i] != '-')
			serial[len++] = uuid[i];
	serial[len] = '\0';
	step_add(target, STEP_FOLDER, "", "subsystems/%s", export->nqn);
	step_add(target, STEP_WRITE, NVMEOF_MODEL, "subsystems/%s/attr_model", export->nqn);
	step_add(target, STEP_WRITE, serial, "subsystems/%s/attr_serial", export->nqn);
	if (opts->allow_any)
		step_add(target, STEP_WRITE, "1", "subsystems/%s/attr_allow_any_host", export->nqn);
	for (uint32_t i = 0; i < opts->host_count; i++) {
		snprintf(to, sizeof(to), "%s/hosts/%s", target->root, opts->hosts[i]);
		step_add(target, STEP_LINK, to, "subsystems/%s/allowed_hosts/%s", export->nqn,
			opts->hosts[i]);
	}
	step_add(target, STEP_FOLDER, "", "subsystems/%s/namespaces/1", export->nqn);
	step_add(target, STEP_WRITE, export->device, "subsystems/%s/namespaces/1/device_path",
		export->nqn);
	step_add(target, STEP_WRITE, uuid, "subsystems/%s/namespaces/1/device_uuid", export->nqn);
	step_add(target, STEP_WRITE, uuid, "subsystems/%s/namespaces/1/device_nguid", export->nqn);
	step_add(target, STEP_WRITE, "1", "subsystems/%s/namespaces/1/enable", export->nqn);
}

static void port_add(
	struct nvmeof_target *target, const struct nvmeof_target_opts *opts, unsigned number)
{
	char to[TEXT_BYTES], service[8];

	snprintf(service, sizeof(service), "%u", opts->port);
	step_add(target, STEP_FOLDER, "", "ports/%u", number);
	step_add(target, STEP_WRITE, nvmeof_transport_name(opts->transport), "ports/%u/addr_trtype",
		number);
	step_add(target, STEP_WRITE, strchr(opts->address, ':') ? "ipv6" : "ipv4",
		"ports/%u/addr_adrfam", number);
	step_add(target, STEP_WRITE, opts->address, "ports/%u/addr_traddr", number);
	step_add(target, STEP_WRITE, service, "ports/%u/addr_trsvcid", number);
	for (uint32_t i = 0; i < opts->export_count; i++) {
		snprintf(to, sizeof(to), "%s/subsystems/%s", target->root, opts->exports[i].nqn);
		step_add(target, STEP_LINK, to, "ports/%u/subsystems/%s", number,
			opts->exports[i].nqn);
	}
}

static unsigned port_free(const char *root)
{
	for (unsigned number = PORT_FIRST; number < PORT_FIRST + PORT_COUNT; number++) {
		char path[PATH_BYTES];

		snprintf(path, sizeof(path), "%s/ports/%u", root, number);
		if (access(path, F_OK))
			return number;
	}
	return 0;
}

static void target_free(struct nvmeof_target *target)
{
	for (uint32_t i = 0; i < target->step_count; i++) {
		free(target->steps[i].path);
		free(target->steps[i].value);
	}
	free(target->steps);
	free(target);
}

static int plan(const struct nvmeof_target_opts *opts, struct nvmeof_target **ret_target)
{
	struct nvmeof_target *target = (struct nvmeof_target *)calloc(1, sizeof(*target));
	unsigned number;

	if (!target)
		return -ENOMEM;
	target->root = opts->root ? opts->root : ROOT;
	target->steps = (struct step *)calloc(STEPS_MAX, sizeof(*target->steps));
	number = port_free(target->root);
	if (target->steps && number) {
		for (uint32_t i = 0; i < opts->host_count; i++)
			step_add(target, STEP_FOLDER_SHARED, "", "hosts/%s", opts->hosts[i]);
		for (uint32_t i = 0; i < opts->export_count; i++)
			export_add(target, opts, &opts->exports[i]);
		port_add(target, opts, number);
	}
	if (!target->steps || !number || target->failed) {
		target_free(target);
		return number ? -ENOMEM : -ENOSPC;
	}
	*ret_target = target;
	return 0;
}

int nvmeof_target_show(const struct nvmeof_target_opts *opts, struct buf *out)
{
	struct nvmeof_target *target;
	int ret = plan(opts, &target);

	if (ret)
		return ret;
	for (uint32_t i = 0; i < target->step_count; i++) {
		const struct step *step = &target->steps[i];

		if (step->kind == STEP_FOLDER)
			buf_printf(out, "mkdir %s\n", step->path);
		else if (step->kind == STEP_FOLDER_SHARED)
			buf_printf(out, "mkdir -p %s\n", step->path);
		else if (step->kind == STEP_WRITE)
			buf_printf(out, "printf '%%s' '%s' > %s\n", step->value, step->path);
		else
			buf_printf(out, "ln -s %s %s\n", step->value, step->path);
	}
	target_free(target);
	return out->failed ? -ENOMEM : 0;
}

/* ---- Doing and undoing. ---- */

static int file_write(const char *path, const char *value)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	int ret = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, value, strlen(value)) < 0)
		ret = -errno;
	close(fd);
	return ret;
}

static int step_do(struct step *step)
{
	int ret;

	switch (step->kind) {
	case STEP_FOLDER:
		ret = mkdir(step->path, 0755) ? -errno : 0;
		break;
	case STEP_FOLDER_SHARED:
		if (mkdir(step->path, 0755) && errno == EEXIST)
			return 0;
		ret = access(step->path, F_OK) ? -errno : 0;
		break;
	case STEP_WRITE:
		ret = file_write(step->path, step->value);
		break;
	default:
		ret = symlink(step->value, step->path) ? -errno : 0;
	}
	step->done = !ret;
	return ret;
}

static void step_undo(struct step *step)
{
	struct slice path = slice_str(step->path);

	if (!step->done)
		return;
	step->done = false;
	if (step->kind == STEP_LINK)
		(void)unlink(step->path);
	else if (step->kind == STEP_WRITE && slice_ends(path, SLICE("/enable")))
		(void)file_write(step->path, "0");
	else if (step->kind != STEP_WRITE && rmdir(step->path) && errno != EBUSY)
		log_warn("nvmeof", "%s: cannot be removed: %s", step->path, strerror(errno));
}

static void step_tell(const struct step *step, int ret)
{
	const char *hint = "the kernel's log says more";

	if (strstr(step->path, "/device_path") || strstr(step->path, "/enable"))
		hint = "is the volume a file or a block device that the kernel can open?";
	else if (ret == -EADDRINUSE)
		hint = "another program listens on this address and port: choose another --listen";
	else if (ret == -EADDRNOTAVAIL || ret == -ENODEV)
		hint = "this host has no such address, or, for rdma, no RDMA device that has it";
	else if (ret == -EINVAL && strstr(step->path, "/ports/"))
		hint = "the kernel lacks the transport (modprobe nvmet-rdma, nvmet-tcp), or the "
		       "address is none of it";
	log_error("nvmeof", "%s %s%s%s: %s; %s",
		step->kind == STEP_WRITE  ? "writing to"
		: step->kind == STEP_LINK ? "linking"
					  : "making",
		step->path, *step->value ? ", " : "", step->value, strerror(-ret), hint);
}

static void undo_all(struct nvmeof_target *target)
{
	for (uint32_t i = 0; i < target->lock_count; i++)
		close(target->locks[i]);
	target->lock_count = 0;
	for (uint32_t i = target->step_count; i > 0; i--)
		step_undo(&target->steps[i - 1]);
}

/* A folder's lock; -EWOULDBLOCK: a living process has it. */
static int folder_lock(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	if (flock(fd, LOCK_EX | LOCK_NB)) {
		close(fd);
		return -EWOULDBLOCK;
	}
	return fd;
}

static int do_all(struct nvmeof_target *target)
{
	int ret = 0;

	for (uint32_t i = 0; i < target->step_count && !ret; i++) {
		struct step *step = &target->steps[i];

		ret = step_do(step);
		if (ret)
			step_tell(step, ret);
		/* The folders of subsystems and of the port. */
		if (!ret && step->kind == STEP_FOLDER && !strstr(step->path, "/namespaces/")) {
			int fd = folder_lock(step->path);

			if (fd >= 0)
				target->locks[target->lock_count++] = fd;
		}
	}
	return ret;
}

/* ---- What a killed process left. ---- */

/* Calls fn for each entry of a folder; the path is complete. */
typedef void entry_fn(const char *path, const char *name, void *arg);
static void entries_walk(const char *folder, entry_fn *fn, void *arg)
{
	struct dirent **entries;
	int count = scandir(folder, &entries, NULL, alphasort);

	for (int i = 0; i < count; i++) {
		char path[2 * PATH_BYTES];

		if (entries[i]->d_name[0] != '.') {
			snprintf(path, sizeof(path), "%s/%s", folder, entries[i]->d_name);
			fn(path, entries[i]->d_name, arg);
		}
		free(entries[i]);
	}
	if (count >= 0)
		free(entries);
}

static void link_remove(const char *path, const char *name, void *arg)
{
	(void)name;
	(void)arg;
	(void)unlink(path);
}

static void port_unlink(const char *path, const char *name, void *arg)
{
	char link[3 * PATH_BYTES];

	(void)name;
	snprintf(link, sizeof(link), "%s/subsystems/%s", path, (const char *)arg);
	(void)unlink(link);
}

static void namespace_remove(const char *path, const char *name, void *arg)
{
	char enable[3 * PATH_BYTES];

	(void)name;
	(void)arg;
	snprintf(enable, sizeof(enable), "%s/enable", path);
	(void)file_write(enable, "0");
	(void)rmdir(path);
}

static void count_entry(const char *path, const char *name, void *arg)
{
	(void)path;
	(void)name;
	(*(uint32_t *)arg)++;
}

/* One of our ports that leads nowhere and that nobody holds. */
static void port_sweep(const char *path, const char *name, void *arg)
{
	char links[3 * PATH_BYTES];
	uint32_t count = 0;
	uint64_t number;
	int fd;

	(void)arg;
	if (slice_to_u64(slice_str(name), &number) || number < PORT_FIRST ||
		number >= PORT_FIRST + PORT_COUNT)
		return;
	snprintf(links, sizeof(links), "%s/subsystems", path);
	entries_walk(links, count_entry, &count);
	fd = count ? -1 : folder_lock(path);
	if (fd < 0)
		return;
	close(fd);
	(void)rmdir(path);
}

/* 0: it is there no more; -EEXIST: it is somebody else's; -EBUSY: a living process has it. */
static int subsystem_clear(const char *root, const char *nqn)
{
	char path[PATH_BYTES], folder[2 * PATH_BYTES], model[64];
	int fd;

	snprintf(path, sizeof(path), "%s/subsystems/%s", root, nqn);
	if (access(path, F_OK))
		return 0;
	snprintf(folder, sizeof(folder), "%s/attr_model", path);
	if (!file_line(folder, model, sizeof(model)) || strcmp(model, NVMEOF_MODEL) != 0)
		return -EEXIST;
	fd = folder_lock(path);
	if (fd < 0)
		return fd == -EWOULDBLOCK ? -EBUSY : fd;
	close(fd);
	snprintf(folder, sizeof(folder), "%s/ports", root);
	entries_walk(folder, port_unlink, (void *)(uintptr_t)nqn);
	snprintf(folder, sizeof(folder), "%s/allowed_hosts", path);
	entries_walk(folder, link_remove, NULL);
	snprintf(folder, sizeof(folder), "%s/namespaces", path);
	entries_walk(folder, namespace_remove, NULL);
	if (rmdir(path))
		return -errno;
	log_info("nvmeof", "removed %s, which a killed process had left", nqn);
	return 0;
}

static void ports_sweep(const char *root)
{
	char folder[PATH_BYTES];

	snprintf(folder, sizeof(folder), "%s/ports", root);
	entries_walk(folder, port_sweep, NULL);
}

static int root_check(const char *root)
{
	char path[PATH_BYTES];

	snprintf(path, sizeof(path), "%s/subsystems", root);
	if (access(path, F_OK)) {
		log_error("nvmeof",
			"%s: this kernel has no target of NVMe over Fabrics now: modprobe nvmet, "
			"and mount -t configfs none /sys/kernel/config if that is not mounted",
			path);
		return -ENODEV;
	}
	if (access(path, W_OK)) {
		log_error("nvmeof", "%s: only root may export volumes by the kernel", path);
		return -EACCES;
	}
	return 0;
}

struct clearing {
	const char *root;
	int count;
};

static void clear_one(const char *path, const char *name, void *arg)
{
	struct clearing *clearing = (struct clearing *)arg;

	(void)path;
	if (subsystem_clear(clearing->root, name) == 0)
		clearing->count++;
}

int nvmeof_target_clear(const char *root)
{
	struct clearing clearing = {.root = root ? root : ROOT};
	char folder[PATH_BYTES];
	int ret = root_check(clearing.root);

	if (ret)
		return ret;
	snprintf(folder, sizeof(folder), "%s/subsystems", clearing.root);
	entries_walk(folder, clear_one, &clearing);
	ports_sweep(clearing.root);
	return clearing.count;
}

/* ---- Opening. ---- */

static int room_make(const struct nvmeof_target_opts *opts, const char *root)
{
	int ret = root_check(root);

	for (uint32_t i = 0; i < opts->export_count && !ret; i++) {
		const char *nqn = opts->exports[i].nqn;

		ret = subsystem_clear(root, nqn);
		if (ret == -EEXIST)
			log_error("nvmeof",
				"%s: the kernel exports a subsystem of this name that is not ours "
				"(%s/subsystems/%s): choose another --nqn",
				nqn, root, nqn);
		else if (ret == -EBUSY)
			log_error("nvmeof", "%s: another process exports it", nqn);
		else if (ret)
			log_error("nvmeof", "%s: what a killed process left cannot be removed: %s",
				nqn, strerror(-ret));
	}
	if (!ret)
		ports_sweep(root);
	return ret;
}

int nvmeof_target_open(const struct nvmeof_target_opts *opts, struct nvmeof_target **ret_target)
{
	struct nvmeof_target *target;
	int ret = room_make(opts, opts->root ? opts->root : ROOT);

	if (!ret)
		ret = plan(opts, &target);
	if (ret)
		return ret;
	ret = do_all(target);
	if (ret) {
		undo_all(target);
		target_free(target);
		return ret;
	}
	*ret_target = target;
	return 0;
}

void nvmeof_target_close(struct nvmeof_target *target)
{
	if (!target)
		return;
	undo_all(target);
	target_free(target);
}
