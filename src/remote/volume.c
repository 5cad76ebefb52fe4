/* remote/volume.c: the disk driver for remote volumes: opening by a path, blocking calls, and
 * losing a volume. Blocking calls run on a reactor of their own, so that commands have one
 * implementation. */
#include "remote/remote_priv.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define OWN_REGION_BYTES (16 * MIB)

/* ---- The secret. ---- */

int remote_secret_read(const char *path, char ret_secret[REMOTE_SECRET_BYTES])
{
	char text[WIRE_SECRET_MAX + 32];
	struct slice secret;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof(text));
	int ret = len < 0 ? -errno : 0;

	if (fd >= 0)
		close(fd);
	if (ret) {
		log_error(
			"remote", "%s: cannot read the volumes' secret: %s", path, strerror(-ret));
		return ret;
	}
	/* The line end that an editor or a shell adds is not part of it. */
	secret = slice_trim(slice_of(text, (size_t)len));
	while (secret.len && memchr(" \t\r\n", secret.data[secret.len - 1], 4))
		secret.len--;
	if (secret.len < WIRE_SECRET_MIN || secret.len > WIRE_SECRET_MAX ||
		memchr(secret.data, '\0', secret.len)) {
		log_error("remote",
			"%s: the secret must have %u to %u characters: make one with `openssl "
			"rand -hex 32`",
			path, WIRE_SECRET_MIN, WIRE_SECRET_MAX);
		ret = -EINVAL;
	} else {
		slice_copy_str(secret, ret_secret, REMOTE_SECRET_BYTES);
	}
	secret_wipe(text, sizeof(text));
	return ret;
}

/* ---- Ports, and our own reactor. ---- */

static int port_get(
	struct remote *remote, struct reactor *reactor, struct region *region, uint32_t number)
{
	struct remote_port *port = remote->ports[number];
	int ret;

	if (port)
		return port->reactor == reactor && port->region == region ? 0 : -EEXIST;
	port = calloc(1, sizeof(*port));
	if (!port)
		return -ENOMEM;
	*port = (struct remote_port){
		.remote = remote, .reactor = reactor, .region = region, .number = number};
	const struct rp_port_opts opts = {
		.device = remote->opts.device,
		.reactor = reactor,
		.region = region,
		.access = RP_ACCESS_LOCAL_WRITE | RP_ACCESS_REMOTE_READ | RP_ACCESS_REMOTE_WRITE,
		.cqe_count = REMOTE_CQES,
		.name = "remote volumes",
		.on_wc = remote_wc,
		.on_event = remote_event,
		.arg = port,
	};
	ret = region_lease_lasting(region, REMOTE_SPARE_FRAMES, OWNER_RDMA, &port->spare);
	if (ret) {
		free(port);
		return ret;
	}
	ret = rp_port_open(&opts, &port->port);
	if (ret) {
		log_error("remote", "cannot open the RDMA device '%s': %s", remote->device_name,
			strerror(-ret));
		region_give(region, port->spare, OWNER_RDMA);
		free(port);
		return ret;
	}
	port->lanes_max =
		MIN(REMOTE_LANES_MAX, rp_port_attr(port->port)->max_cqe / REMOTE_LANE_CQES);
	remote->ports[number] = port;
	return 0;
}

static void port_put(struct remote *remote, uint32_t number)
{
	struct remote_port *port = remote->ports[number];

	if (!port || port->lane_count)
		return;
	remote->ports[number] = NULL;
	rp_port_close(port->port);
	region_give(port->region, port->spare, OWNER_RDMA);
	free(port);
}

static void *own_main(void *arg)
{
	reactor_run(((struct remote *)arg)->reactor);
	return NULL;
}

static int own_start(struct remote *remote)
{
	const struct region_opts region = {
		.name = "nebulaio-remote", .bytes = OWN_REGION_BYTES, .core_count = 1};
	const struct reactor_opts reactor = {.cpu = -1, .uring_entries = 64, .fibers_max = 16};
	int ret = 0;

	pthread_mutex_lock(&remote->lock);
	if (!remote->started) {
		ret = region_open(&region, &remote->region);
		if (!ret)
			ret = reactor_open(&reactor, &remote->reactor);
		if (!ret)
			ret = port_get(remote, remote->reactor, remote->region, 0);
		if (!ret)
			ret = -pthread_create(&remote->thread, NULL, own_main, remote);
		remote->started = !ret;
		if (ret) {
			port_put(remote, 0);
			reactor_close(remote->reactor);
			region_close(remote->region);
			remote->reactor = NULL;
			remote->region = NULL;
		}
	}
	pthread_mutex_unlock(&remote->lock);
	return ret;
}

/* ---- Calls that block. ---- */

void remote_call_done(struct disk_io *io, int32_t result)
{
	struct remote_call *call = CONTAINER_OF(io, struct remote_call, io);

	call->result = result;
	sem_post(&call->done);
}

static void call_start(struct reactor_msg *msg)
{
	struct remote_call *call = CONTAINER_OF(msg, struct remote_call, msg);

	if (atomic_load(&call->volume->gone))
		remote_call_done(&call->io, -ENOTCONN);
	else
		remote_start(call->volume->lanes[0], &call->io);
}

static int call_run(struct remote_volume *volume, struct remote_call *call)
{
	call->volume = volume;
	call->msg.fn = call_start;
	call->io.done = remote_call_done;
	sem_init(&call->done, 0, 0);
	reactor_post(volume->remote->reactor, &call->msg);
	while (sem_wait(&call->done))
		;
	sem_destroy(&call->done);
	return call->result < 0 ? call->result : 0;
}

static int volume_now(void *arg, enum disk_op op, void *data, uint64_t bytes, uint64_t offset)
{
	struct remote_call call = {.iov = {data, bytes}};

	call.op = op == DISK_READ    ? WIRE_READ
		  : op == DISK_WRITE ? WIRE_WRITE
		  : op == DISK_FLUSH ? WIRE_FLUSH
				     : WIRE_ZERO;
	call.io.offset = offset;
	call.io.bytes = bytes;
	call.io.iov = &call.iov;
	call.io.iov_count = op == DISK_READ || op == DISK_WRITE ? 1 : 0;
	return call_run((struct remote_volume *)arg, &call);
}

/* ---- Identity. ---- */

static void identity_say(struct remote_volume *volume, struct disk_identity *ret_identity)
{
	const struct wire_identity *identity = &volume->identity;

	pthread_mutex_lock(&volume->lock);
	*ret_identity = (struct disk_identity){
		.bytes = identity->bytes,
		.medium_bytes = identity->medium_bytes,
		.align = identity->align,
		.can_grow = identity->flags & WIRE_CAN_GROW,
		.can_discard = identity->flags & WIRE_CAN_DISCARD,
	};
	snprintf(ret_identity->what, sizeof(ret_identity->what), "of another host: %s",
		identity->what);
	pthread_mutex_unlock(&volume->lock);
}

static int volume_grow(void *arg, uint64_t bytes_total, struct disk_identity *ret_identity)
{
	struct remote_volume *volume = (struct remote_volume *)arg;
	struct remote_call call = {.op = WIRE_GROW};
	int ret;

	call.io.bytes = bytes_total;
	ret = call_run(volume, &call);
	if (!ret)
		identity_say(volume, ret_identity);
	return ret;
}

/* ---- Losing a volume. ---- */

void remote_volume_opened(struct remote_lane *lane, const struct wire_identity *identity)
{
	struct remote_volume *volume = lane->volume;

	atomic_fetch_add(&volume->lanes_open, 1);
	pthread_mutex_lock(&volume->lock);
	volume->identity = *identity;
	if (lane->port->number == 0) {
		volume->tries++;
		volume->try_error = 0;
		pthread_cond_broadcast(&volume->changed);
	}
	pthread_mutex_unlock(&volume->lock);
	log_info("remote", "%s, core %d: connected", volume->path, (int)lane->port->number - 1);
}

__attribute__((noinline, cold)) void remote_volume_grown(
	struct remote_volume *volume, const struct wire_response *response)
{
	pthread_mutex_lock(&volume->lock);
	volume->identity.bytes = response->bytes;
	volume->identity.medium_bytes = response->medium_bytes;
	pthread_mutex_unlock(&volume->lock);
}

void remote_volume_lost(struct remote_lane *lane, bool was_open)
{
	struct remote_volume *volume = lane->volume;

	if (was_open)
		atomic_fetch_sub(&volume->lanes_open, 1);
	atomic_store(&volume->gone, true);
	if (lane->port->number)
		return;
	pthread_mutex_lock(&volume->lock);
	volume->tries++;
	volume->try_error = lane->error;
	pthread_cond_broadcast(&volume->changed);
	pthread_mutex_unlock(&volume->lock);
}

static bool volume_gone(void *arg)
{
	return atomic_load(&((struct remote_volume *)arg)->gone);
}

/* The lanes must be open on all reactors, before and after `gone` is cleared. */
static int volume_revive(void *arg, struct disk_identity *ret_identity)
{
	struct remote_volume *volume = (struct remote_volume *)arg;

	if (atomic_load(&volume->lanes_open) != atomic_load(&volume->lanes_all))
		return -ENOTCONN;
	atomic_store(&volume->gone, false);
	if (atomic_load(&volume->lanes_open) != atomic_load(&volume->lanes_all)) {
		atomic_store(&volume->gone, true);
		return -ENOTCONN;
	}
	identity_say(volume, ret_identity);
	return 0;
}

/* ---- Opening. ---- */

/* "rdma://HOST[:PORT]/NAME", HOST in brackets when it has colons. */
static int path_parse(struct remote_volume *volume, const char *path)
{
	struct slice rest = slice_from(slice_str(path), sizeof(REMOTE_SCHEME) - 1);
	ptrdiff_t slash = slice_find(rest, SLICE("/"));
	struct slice host = slice_to(rest, slash < 0 ? rest.len : (size_t)slash);
	struct slice name = slice_from(rest, slash < 0 ? rest.len : (size_t)slash + 1);
	struct slice bracket = host;
	uint64_t port = REMOTE_PORT;
	ptrdiff_t colon;

	if (slice_starts(host, SLICE("["))) {
		if (slice_find(host, SLICE("]")) < 0)
			host = SLICE("[]:"); /* refused below */
		bracket = slice_from(slice_split(&host, ']'), 1);
		colon = slice_starts(host, SLICE(":")) ? 0 : -1;
	} else {
		colon = slice_find(host, SLICE(":"));
		bracket = slice_to(host, colon < 0 ? host.len : (size_t)colon);
	}
	if ((colon >= 0 && (slice_to_u64(slice_from(host, (size_t)colon + 1), &port) || port < 1 ||
				   port > 65535)) ||
		!bracket.len || !name.len || memchr(name.data, '/', name.len) ||
		slice_copy_str(slice_str(path), volume->path, sizeof(volume->path)) ||
		slice_copy_str(bracket, volume->host, sizeof(volume->host)) ||
		slice_copy_str(name, volume->name, sizeof(volume->name))) {
		log_error("remote", "%s: not of the form rdma://HOST:PORT/NAME", path);
		return -EINVAL;
	}
	volume->port = (uint16_t)port;
	return 0;
}

/* RDMA devices take numeric addresses only. A name is looked up here, where a call may block, and
 * once: the lanes of a volume connect to one host. */
static int host_resolve(struct remote_volume *volume)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
	unsigned char binary[sizeof(struct in6_addr)];
	char numeric[INET6_ADDRSTRLEN + IF_NAMESIZE];
	struct addrinfo *found;
	int error;

	if (inet_pton(AF_INET, volume->host, binary) == 1 || strchr(volume->host, ':'))
		return 0;
	if (strcmp(volume->host, "localhost") == 0) {
		snprintf(volume->host, sizeof(volume->host), "127.0.0.1");
		return 0;
	}
	error = getaddrinfo(volume->host, NULL, &hints, &found);
	if (!error) {
		error = getnameinfo(found->ai_addr, found->ai_addrlen, numeric, sizeof(numeric),
			NULL, 0, NI_NUMERICHOST);
		freeaddrinfo(found);
	}
	if (error) {
		if (!volume->quiet)
			log_error("remote", "%s: no address of the host is found: %s", volume->path,
				gai_strerror(error));
		return -EHOSTUNREACH;
	}
	snprintf(volume->host, sizeof(volume->host), "%s", numeric);
	return 0;
}

struct lane_change {
	struct reactor_msg msg;
	struct remote_volume *volume;
	int ret;
	sem_t done;
};

static void lane_begin(struct reactor_msg *msg)
{
	struct lane_change *change = CONTAINER_OF(msg, struct lane_change, msg);

	change->ret = remote_lane_add(change->volume->remote->ports[0], change->volume);
	sem_post(&change->done);
}

static void lane_end(struct reactor_msg *msg)
{
	struct lane_change *change = CONTAINER_OF(msg, struct lane_change, msg);
	struct remote_lane *lane = change->volume->lanes[0];

	if (lane)
		remote_lane_remove(lane);
	sem_post(&change->done);
}

/* On our own reactor, waited for. */
static int lane_change(struct remote_volume *volume, reactor_msg_fn *fn)
{
	struct lane_change change = {.msg = {.fn = fn}, .volume = volume};

	sem_init(&change.done, 0, 0);
	reactor_post(volume->remote->reactor, &change.msg);
	while (sem_wait(&change.done))
		;
	sem_destroy(&change.done);
	return change.ret;
}

/* Waits for the first lane. The previous user of the volume may need a moment to release it. */
static int volume_await(struct remote_volume *volume, uint64_t wait_ns)
{
	uint64_t deadline_ns = clock_now_ns() + wait_ns;
	uint32_t seen = 0;
	int ret = -EBUSY;

	pthread_mutex_lock(&volume->lock);
	while (ret == -EBUSY && (seen == 0 || clock_now_ns() < deadline_ns)) {
		while (volume->tries == seen)
			pthread_cond_wait(&volume->changed, &volume->lock);
		seen = volume->tries;
		ret = volume->try_error;
	}
	pthread_mutex_unlock(&volume->lock);
	return ret;
}

static void volume_close(void *arg)
{
	struct remote_volume *volume = (struct remote_volume *)arg;

	if (volume->remote->reactor)
		lane_change(volume, lane_end);
	for (uint32_t i = 1; i <= LIMIT_CORES_MAX; i++)
		if (volume->lanes[i]) {
			remote_lane_remove(volume->lanes[i]);
			port_put(volume->remote, i);
		}
	pthread_mutex_destroy(&volume->lock);
	pthread_cond_destroy(&volume->changed);
	free(volume);
}

static int volume_open(void *arg, const struct disk_opts *opts, struct disk_identity *ret_identity,
	void **ret_volume)
{
	struct remote *remote = (struct remote *)arg;
	struct remote_volume *volume = calloc(1, sizeof(*volume));
	int ret;

	if (!volume)
		return -ENOMEM;
	volume->remote = remote;
	volume->read_only = opts->read_only;
	volume->quiet = opts->probe;
	pthread_mutex_init(&volume->lock, NULL);
	pthread_cond_init(&volume->changed, NULL);
	ret = path_parse(volume, opts->path);
	if (!ret)
		ret = host_resolve(volume);
	if (!ret)
		ret = own_start(remote);
	if (!ret)
		ret = lane_change(volume, lane_begin);
	if (!ret)
		ret = volume_await(volume, opts->lock_wait_ns);
	if (!ret) {
		atomic_store(&volume->gone, false);
		ret = volume_revive(volume, ret_identity);
	}
	if (ret) {
		volume_close(volume);
		return ret;
	}
	*ret_volume = volume;
	return 0;
}

static int volume_attach(void *arg, struct reactor *reactor, struct region *region)
{
	struct remote_volume *volume = (struct remote_volume *)arg;
	uint32_t number = reactor_core_idx(reactor) + 1;
	int ret = port_get(volume->remote, reactor, region, number);

	return ret ? ret : remote_lane_add(volume->remote->ports[number], volume);
}

static void volume_start(void *arg, struct disk_io *io)
{
	struct remote_volume *volume = (struct remote_volume *)arg;

	remote_start(volume->lanes[reactor_core_idx(reactor_self()) + 1], io);
}

/* ---- The initiator of this process. ---- */

int remote_initiator_open(const struct remote_opts *opts, struct remote **ret_remote)
{
	struct remote *remote = calloc(1, sizeof(*remote));

	if (!remote)
		return -ENOMEM;
	remote->opts = *opts;
	remote->opts.setup_ns = opts->setup_ns ? opts->setup_ns : REMOTE_SETUP_NS;
	snprintf(remote->secret, sizeof(remote->secret), "%s", opts->secret);
	snprintf(remote->device_name, sizeof(remote->device_name), "%s", opts->device.device_name);
	remote->opts.secret = remote->secret;
	remote->opts.device.device_name = remote->device_name;
	random_fill(remote->holder, sizeof(remote->holder));
	pthread_mutex_init(&remote->lock, NULL);
	remote->driver = (struct disk_driver){
		.scheme = REMOTE_SCHEME,
		.name = "remote volume",
		.arg = remote,
		.open = volume_open,
		.close = volume_close,
		.attach = volume_attach,
		.start = volume_start,
		.now = volume_now,
		.grow = volume_grow,
		.revive = volume_revive,
		.gone = volume_gone,
	};
	disk_driver_add(&remote->driver);
	*ret_remote = remote;
	return 0;
}

void remote_initiator_close(struct remote *remote)
{
	if (!remote)
		return;
	disk_driver_remove(&remote->driver);
	if (remote->started) {
		reactor_stop(remote->reactor);
		pthread_join(remote->thread, NULL);
		port_put(remote, 0);
		reactor_close(remote->reactor);
		region_close(remote->region);
	}
	secret_wipe(remote->secret, sizeof(remote->secret));
	pthread_mutex_destroy(&remote->lock);
	free(remote);
}
