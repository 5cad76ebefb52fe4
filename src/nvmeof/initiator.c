/* nvmeof/initiator.c: has the kernel's initiator connect a volume's paths, and disconnects at the
 * process's end the ones that are ours.
 *
 * A path that this program connected has a mark, a file in /run with the controller's name. Each
 * process that uses the path holds a shared lock on the mark; the last one, which alone can lock
 * it exclusively, disconnects the path. A killed process leaves a mark without a lock: the next
 * process takes the path over with it. */
#include "nvmeof/nvmeof_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/file.h"
#include "codec/hash.h"

/* The kernel examines name spaces after it has answered that a path is connected; a path that was
 * there may be about to reconnect. */
#define APPEAR_NS      (20 * NS_PER_S)
#define PATHS_OURS_MAX 128u
#define COMMAND_BYTES  2048u
#define SECRET_BYTES   256u

struct nvmeof {
	struct nvmeof_name name;
	struct nvmeof_place place;
	char path[1024];
	char node[NVMEOF_NODE_BYTES];
	char what[512];
	bool quiet;
};

/* The paths of this process that are disconnected at its end. */
struct own_path {
	char controller[CONTROLLER_NAME_BYTES];
	char nqn[NVMEOF_NQN_BYTES];
	char address[64]; /* numeric */
	uint16_t port;
	struct nvmeof_place place;
	int mark; /* -1: it could not be made */
};
static pthread_mutex_t own_lock = PTHREAD_MUTEX_INITIALIZER;
static struct own_path own_paths[PATHS_OURS_MAX];
static uint32_t own_count;
static bool own_registered;

/* ---- Ending paths. ---- */

static void mark_path(const struct nvmeof_place *place, const char *controller, char *ret_path)
{
	snprintf(ret_path, PATH_BYTES, "%s/nebulaio-nvmeof.%s", place_run(place), controller);
}

static bool in_use(const char *name, void *arg)
{
	const struct nvmeof_place *place = (const struct nvmeof_place *)arg;
	char node[PATH_BYTES];
	int fd;

	snprintf(node, sizeof(node), "%s/%s", place_dev(place), name);
	fd = open(node, O_RDONLY | O_EXCL | O_CLOEXEC);
	if (fd >= 0)
		close(fd);
	return fd < 0 && errno == EBUSY;
}

static void controller_delete(const struct nvmeof_place *place, const char *controller)
{
	char path[PATH_BYTES];
	int fd;

	snprintf(path, sizeof(path), "%s/class/nvme/%s/delete_controller", place_sys(place),
		controller);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	if (write(fd, "1", 1) != 1)
		log_warn("nvmeof", "%s: cannot be written: %s", path, strerror(errno));
	close(fd);
}

static bool is_own(const struct controller *controller, void *arg)
{
	const struct own_path *own = (const struct own_path *)arg;

	return strcmp(controller->name, own->controller) == 0 &&
	       strcmp(controller->nqn, own->nqn) == 0 &&
	       controller_is_at(controller, own->address, own->port);
}

static void own_end(struct own_path *own)
{
	char path[PATH_BYTES];

	if (own->mark >= 0 && flock(own->mark, LOCK_EX | LOCK_NB))
		goto out; /* another process of this program uses it, and ends it */
	mark_path(&own->place, own->controller, path);
	/* The kernel gives the number of a path that was removed to the next one, of anybody. */
	if (!controllers_walk(place_sys(&own->place), is_own, own)) {
		log_info("nvmeof", "%s does not lead to %s any more: it was disconnected before",
			own->controller, own->nqn);
		if (own->mark >= 0)
			(void)unlink(path);
		goto out;
	}
	if (namespaces_walk(place_sys(&own->place), own->nqn, 0, in_use, &own->place)) {
		log_info("nvmeof", "%s stays connected to %s: somebody else uses it",
			own->controller, own->nqn);
		goto out;
	}
	controller_delete(&own->place, own->controller);
	log_info("nvmeof", "%s: disconnected from %s", own->controller, own->nqn);
	(void)unlink(path);
out:
	if (own->mark >= 0)
		close(own->mark);
}

static void own_end_all(void)
{
	pthread_mutex_lock(&own_lock);
	for (uint32_t i = 0; i < own_count; i++)
		own_end(&own_paths[i]);
	own_count = 0;
	pthread_mutex_unlock(&own_lock);
}

/* With own_lock held. */
static bool own_has(const char *controller)
{
	for (uint32_t i = 0; i < own_count; i++)
		if (strcmp(own_paths[i].controller, controller) == 0)
			return true;
	return false;
}

/* A path of a volume, and the controller that is it. */
struct found {
	struct nvmeof *link;
	const char *address;
	uint16_t port;
	char controller[CONTROLLER_NAME_BYTES];
};

static void own_add(const struct found *found, int mark)
{
	struct own_path *own = &own_paths[own_count % PATHS_OURS_MAX];

	if (own_count == PATHS_OURS_MAX) {
		if (mark >= 0)
			close(mark);
		return;
	}
	if (!own_registered)
		atexit(own_end_all);
	own_registered = true;
	own_count++;
	*own = (struct own_path){.place = found->link->place, .port = found->port, .mark = mark};
	snprintf(own->controller, sizeof(own->controller), "%s", found->controller);
	snprintf(own->nqn, sizeof(own->nqn), "%s", found->link->name.nqn);
	snprintf(own->address, sizeof(own->address), "%s", found->address);
}

/* A path that we have just connected. */
static void own_make(const struct found *found)
{
	const struct nvmeof *link = found->link;
	char path[PATH_BYTES];
	int fd;

	mark_path(&link->place, found->controller, path);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0 || flock(fd, LOCK_SH | LOCK_NB) ||
		write(fd, link->name.nqn, strlen(link->name.nqn)) < 0)
		log_warn("nvmeof",
			"%s: cannot be written and locked (%s): after a kill -9 the path stays "
			"connected",
			path, strerror(errno));
	own_add(found, fd);
}

/* A path that was there before: ours when it has a mark. */
static void own_adopt(const struct found *found)
{
	const struct nvmeof *link = found->link;
	char path[PATH_BYTES], nqn[NVMEOF_NQN_BYTES];
	int fd;

	if (own_has(found->controller))
		return;
	mark_path(&link->place, found->controller, path);
	fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return;
	if (!file_line(path, nqn, sizeof(nqn)) || strcmp(nqn, link->name.nqn) != 0 ||
		flock(fd, LOCK_SH | LOCK_NB)) {
		close(fd);
		return;
	}
	own_add(found, fd);
}

/* ---- Connecting. ---- */

static bool is_path(const struct controller *controller, void *arg)
{
	struct found *found = (struct found *)arg;
	const struct nvmeof_name *name = &found->link->name;

	if (strcmp(controller->nqn, name->nqn) != 0 ||
		strcmp(controller->transport, nvmeof_transport_name(name->transport)) != 0 ||
		!controller_is_at(controller, found->address, found->port))
		return false;
	snprintf(found->controller, sizeof(found->controller), "%s", controller->name);
	return true;
}

static int resolve(const struct nvmeof_address *address, char ret_numeric[64])
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
	struct addrinfo *list;
	int err = getaddrinfo(address->host, NULL, &hints, &list);

	/* A host without a configured interface still has its own addresses. */
	if (err)
		err = getaddrinfo(
			address->host, NULL, &(struct addrinfo){.ai_socktype = SOCK_STREAM}, &list);
	if (err)
		return -EHOSTUNREACH;
	err = getnameinfo(
		list->ai_addr, list->ai_addrlen, ret_numeric, 64, NULL, 0, NI_NUMERICHOST);
	freeaddrinfo(list);
	return err ? -EHOSTUNREACH : 0;
}

/* The kernel takes its options as one line, and answers "instance=3,cntlid=1". An unknown option
 * is -EINVAL, as everything is that it refuses before it connects. */
static int fabrics_write(
	const struct nvmeof_place *place, const char *command, char ret_controller[])
{
	char path[PATH_BYTES], answer[128];
	unsigned instance;
	ssize_t len;
	int ret = 0;
	int fd;

	snprintf(path, sizeof(path), "%s/nvme-fabrics", place_dev(place));
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT || errno == ENXIO ? -ENODEV : -errno;
	if (write(fd, command, strlen(command)) < 0) {
		/* The target's refusals are EIO. */
		ret = errno == EIO ? -EPERM : errno == EACCES ? -EPERM : -errno;
	} else {
		len = read(fd, answer, sizeof(answer) - 1);
		answer[MAX(len, 0)] = '\0';
		if (sscanf(answer, "instance=%u", &instance) != 1)
			ret = -EPROTO;
		else
			snprintf(ret_controller, CONTROLLER_NAME_BYTES, "nvme%u", instance);
	}
	close(fd);
	return ret;
}

static const char *reason(int ret)
{
	switch (ret) {
	case -ENODEV:
		return "this kernel has no initiator of NVMe over Fabrics now: modprobe "
		       "nvme-fabrics (as root)";
	case -EACCES:
		return "/dev/nvme-fabrics may only be used by root";
	case -ECONNREFUSED:
	case -ECONNRESET:
		return "the host refuses the connection: nothing listens there, or for another "
		       "transport (transport=rdma, transport=tcp)";
	case -EPERM:
		return "the target refuses it: it has no such NQN, or does not allow this host's "
		       "NQN (the kernel's log says which)";
	case -ETIMEDOUT:
		return "the host does not answer";
	case -EINVAL:
		return "the kernel refuses the options: it lacks the transport (modprobe "
		       "nvme-rdma, nvme-tcp) or one of them; its log says which";
	case -EHOSTUNREACH:
		return "the address cannot be found or reached";
	default:
		return strerror(-ret);
	}
}

/* "DHHC-1:…", as `nvme gen-dhchap-key` writes it. */
static int secret_read(const char *path, char ret_secret[SECRET_BYTES])
{
	char line[SECRET_BYTES];
	struct slice text;

	if (!file_line(path, line, sizeof(line))) {
		log_error("nvmeof", "%s: no secret can be read from it", path);
		return -EACCES;
	}
	text = slice_trim(slice_str(line));
	if (!slice_starts(text, SLICE("DHHC-1:")) || memchr(text.data, ',', text.len)) {
		log_error("nvmeof",
			"%s: not a secret of the form DHHC-1:…; `nvme gen-dhchap-key` makes one",
			path);
		secret_wipe(line, sizeof(line));
		return -EINVAL;
	}
	slice_copy_str(text, ret_secret, SECRET_BYTES);
	secret_wipe(line, sizeof(line));
	return 0;
}

/* Since Linux 5.17 a fresh /dev/nvme-fabrics reads as the list of the options that it knows. */
static bool kernel_takes(const struct nvmeof_place *place, const char *option)
{
	char path[PATH_BYTES], text[1024];
	ssize_t len;
	int fd;

	snprintf(path, sizeof(path), "%s/nvme-fabrics", place_dev(place));
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return true; /* the write says why */
	len = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[MAX(len, 0)] = '\0';
	return len <= 0 || strstr(text, option);
}

static void unauthentic_tell(const struct nvmeof *link)
{
	log_error("nvmeof",
		"%s: this kernel was built without DH-HMAC-CHAP (CONFIG_NVME_AUTH, "
		"CONFIG_NVME_HOST_AUTH): leave dhchap_secret_file out, or use another kernel",
		link->path);
}

/* A kernel without DH-HMAC-CHAP may take a secret and pass it over; its controllers then lack this
 * file. */
static int secrets_check(const struct nvmeof *link, const char *controller)
{
	char path[PATH_BYTES];

	snprintf(path, sizeof(path), "%s/class/nvme/%s/dhchap_secret", place_sys(&link->place),
		controller);
	if (!link->name.secret_file[0] || access(path, F_OK) == 0)
		return 0;
	controller_delete(&link->place, controller);
	unauthentic_tell(link);
	return -EOPNOTSUPP;
}

static int secrets_add(const struct nvmeof *link, char *command, size_t cap)
{
	const char *const FILES[] = {link->name.secret_file, link->name.controller_secret_file};
	const char *const OPTIONS[] = {"dhchap_secret", "dhchap_ctrl_secret"};
	char secret[SECRET_BYTES];

	for (uint32_t i = 0; i < ARRAY_LEN(FILES); i++) {
		size_t len = strlen(command);
		int ret;

		if (!FILES[i][0])
			continue;
		if (!kernel_takes(&link->place, OPTIONS[i])) {
			unauthentic_tell(link);
			return -EOPNOTSUPP;
		}
		ret = secret_read(FILES[i], secret);
		if (ret)
			return ret;
		snprintf(command + len, cap - len, ",%s=%s", OPTIONS[i], secret);
		secret_wipe(secret, sizeof(secret));
	}
	return 0;
}

static int command_make(
	const struct nvmeof *link, const char *numeric, uint16_t port, char command[COMMAND_BYTES])
{
	const struct nvmeof_name *name = &link->name;
	struct nvmeof_host host;
	size_t len;
	int ret = nvmeof_host_find(&link->place, &host);

	if (name->host_nqn[0]) {
		snprintf(host.nqn, sizeof(host.nqn), "%s", name->host_nqn);
		if (name->host_id[0])
			snprintf(host.id, sizeof(host.id), "%s", name->host_id);
		else
			nvmeof_uuid_of(SLICE("NVMe host"), slice_str(host.nqn), host.id);
	} else if (ret) {
		log_error("nvmeof", "%s: this host has no NQN: write one into /etc/nvme/hostnqn",
			link->path);
		return ret;
	}
	snprintf(command, COMMAND_BYTES,
		"nqn=%s,transport=%s,traddr=%s,trsvcid=%u,hostnqn=%s,hostid=%s,reconnect_delay=%u,"
		"ctrl_loss_tmo=%d,fast_io_fail_tmo=%u,keep_alive_tmo=%u",
		name->nqn, nvmeof_transport_name(name->transport), numeric, port, host.nqn, host.id,
		(unsigned)name->reconnect_delay, (int)name->ctrl_loss_tmo,
		(unsigned)name->fast_io_fail_tmo, (unsigned)name->keep_alive_tmo);
	len = strlen(command);
	if (name->queue_size)
		len += (size_t)snprintf(command + len, COMMAND_BYTES - len, ",queue_size=%u",
			(unsigned)name->queue_size);
	if (name->nr_io_queues)
		snprintf(command + len, COMMAND_BYTES - len, ",nr_io_queues=%u",
			(unsigned)name->nr_io_queues);
	return secrets_add(link, command, COMMAND_BYTES);
}

/* With own_lock held. */
static int path_connect(struct nvmeof *link, const struct nvmeof_address *address)
{
	struct found found = {.link = link, .port = address->port};
	char numeric[64], command[COMMAND_BYTES];
	int ret = resolve(address, numeric);
	int err;

	found.address = numeric;
	if (!ret && controllers_walk(place_sys(&link->place), is_path, &found)) {
		log_info("nvmeof", "%s: %s is connected to it already, and is used", link->path,
			found.controller);
		own_adopt(&found);
		return 0;
	}
	if (!ret && (err = command_make(link, numeric, address->port, command)))
		return err;
	if (!ret)
		ret = fabrics_write(&link->place, command, found.controller);
	secret_wipe(command, sizeof(command));
	if (ret == -EALREADY)
		return 0;
	if (ret) {
		if (!link->quiet)
			log_error("nvmeof", "%s: cannot connect to %s:%u by %s: %s", link->path,
				address->host, address->port,
				nvmeof_transport_name(link->name.transport), reason(ret));
		return ret;
	}
	ret = secrets_check(link, found.controller);
	if (ret)
		return ret;
	own_make(&found);
	log_info("nvmeof", "%s: connected to %s:%u by %s, as %s", link->path, address->host,
		address->port, nvmeof_transport_name(link->name.transport), found.controller);
	return 0;
}

static int paths_connect(struct nvmeof *link)
{
	const struct nvmeof_name *name = &link->name;
	uint32_t reached = 0;
	int ret = 0;

	if (name->address_count > 1 && access(place_dev(&link->place), F_OK) == 0 &&
		!controllers_multipath(place_sys(&link->place))) {
		log_error("nvmeof",
			"%s: several paths need the kernel's multipath: load the module nvme_core "
			"with multipath=Y",
			link->path);
		return -EOPNOTSUPP;
	}
	pthread_mutex_lock(&own_lock);
	for (uint32_t i = 0; i < name->address_count; i++) {
		int err = path_connect(link, &name->addresses[i]);

		reached += !err;
		ret = ret ? ret : err;
	}
	pthread_mutex_unlock(&own_lock);
	if (reached && ret && !link->quiet)
		log_warn("nvmeof",
			"%s: %u of %u paths are connected; the others are tried again "
			"at the next start",
			link->path, reached, name->address_count);
	return reached ? 0 : ret;
}

/* ---- The name space. ---- */

static bool node_take(const char *name, void *arg)
{
	struct nvmeof *link = (struct nvmeof *)arg;

	snprintf(link->node, sizeof(link->node), "%s/%s", place_dev(&link->place), name);
	return access(link->node, F_OK) == 0;
}

static int namespace_await(struct nvmeof *link)
{
	uint64_t deadline_ns = clock_now_ns() + APPEAR_NS;
	char state[24];
	bool live, found;

	do {
		live = controllers_live(place_sys(&link->place), link->name.nqn, state);
		found = live && namespaces_walk(place_sys(&link->place), link->name.nqn,
					link->name.nsid, node_take, link);
	} while (!found && clock_rest(deadline_ns));
	if (found)
		return 0;
	if (!link->quiet && live)
		log_error("nvmeof", "%s: the subsystem has no name space %llu for this host",
			link->path, (unsigned long long)link->name.nsid);
	else if (!link->quiet)
		log_error("nvmeof",
			"%s: no path is live after %llu s (the kernel says: %s); is the target "
			"running?",
			link->path, (unsigned long long)(APPEAR_NS / NS_PER_S),
			state[0] ? state : "none");
	return live ? -ENOENT : -ETIMEDOUT;
}

static void describe(struct nvmeof *link)
{
	const struct nvmeof_name *name = &link->name;
	size_t len = (size_t)snprintf(link->what, sizeof(link->what), "NVMe over %s from",
		name->transport == NVMEOF_RDMA ? "RDMA" : "TCP");

	for (uint32_t i = 0; i < name->address_count && len < sizeof(link->what); i++)
		len += (size_t)snprintf(link->what + len, sizeof(link->what) - len, "%s %s:%u",
			i ? "," : "", name->addresses[i].host, name->addresses[i].port);
}

int nvmeof_open(
	const char *path, const struct nvmeof_place *place, bool quiet, struct nvmeof **ret_link)
{
	struct nvmeof *link = (struct nvmeof *)calloc(1, sizeof(*link));
	char why[512];
	int ret;

	if (!link)
		return -ENOMEM;
	link->quiet = quiet;
	if (place)
		link->place = *place;
	ret = nvmeof_name_parse(path, &link->name, why, sizeof(why));
	if (ret)
		log_error("nvmeof", "%s: %s", path, why);
	if (!ret)
		ret = slice_copy_str(slice_str(path), link->path, sizeof(link->path));
	if (!ret)
		ret = paths_connect(link);
	if (!ret)
		ret = namespace_await(link);
	if (ret) {
		free(link);
		return ret;
	}
	describe(link);
	*ret_link = link;
	return 0;
}

void nvmeof_close(struct nvmeof *link)
{
	free(link);
}

const char *nvmeof_node(const struct nvmeof *link)
{
	return link->node;
}

const char *nvmeof_describe(const struct nvmeof *link)
{
	return link->what;
}

bool nvmeof_live(const struct nvmeof *link)
{
	char state[24];

	return controllers_live(place_sys(&link->place), link->name.nqn, state);
}
