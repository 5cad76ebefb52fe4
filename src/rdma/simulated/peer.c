/* rdma/simulated/peer.c: the simulated provider's mappings of other devices, and the files of its
 * own that it shares. All of it under the device's lock; the data path reads mappings through
 * atomics.
 *
 * A peer's file is mapped only when it is sealed against shrinking, so that reading it can never
 * fault, and never beyond its real size. */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rdma/simulated/packet.h"
#include "rdma/simulated/simulated_priv.h"

#define TABLE_BYTES (SIM_MRS_MAX * sizeof(struct sim_entry))
#define BELLS_BYTES (SIM_CQS_MAX * sizeof(struct sim_bell))

/* ---- Peers. ---- */

static void *map_checked(int fd, uint64_t bytes, int prot)
{
	void *base;

	if (sim_shared_check(fd, bytes))
		return NULL;
	base = mmap(NULL, bytes, prot, MAP_SHARED, fd, 0);
	return base == MAP_FAILED ? NULL : base;
}

/* Whether the kernel lets us look into processes of other users, too. */
static bool may_look_anywhere(void)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {{0}};

	return syscall(SYS_capget, &head, data) ||
	       data[CAP_TO_INDEX(CAP_SYS_PTRACE)].effective & CAP_TO_MASK(CAP_SYS_PTRACE);
}

static bool witness_seen(int mem_fd, const struct sim_packet *hello)
{
	uint8_t seen[SIM_WITNESS_BYTES];

	return pread(mem_fd, seen, sizeof(seen), (off_t)hello->witness_addr) == sizeof(seen) &&
	       !memcmp(seen, hello->witness, sizeof(seen));
}

/* The descriptor stands for the memory that the process has now, not for the process: when the
 * process executes another program or ends, nothing is left to read or write. The kernel decides
 * whether we may, by its rules for debuggers. A process with a capability above those rules does
 * not use it, except root, whose peers are root. docs/design/simulated-provider.md says why no race
 * is left. */
static int memory_open(pid_t pid, const struct sim_packet *hello)
{
	char path[32];
	int fd;

	if (pid <= 0 || (geteuid() != 0 && may_look_anywhere()))
		return -1;
	snprintf(path, sizeof(path), "/proc/%d/mem", (int)pid);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd >= 0 && witness_seen(fd, hello))
		return fd;
	log_debug("rdma",
		"simulated: cannot access the memory of pid %d: that process must copy itself",
		(int)pid);
	if (fd >= 0)
		close(fd);
	return -1;
}

/* A new process may have the pid and the device of a process that ended. */
static bool peer_is(const struct sim_peer *peer, const struct stat *table, pid_t pid,
	const struct sim_packet *hello)
{
	return peer->dev == table->st_dev && peer->ino == table->st_ino && peer->pid == pid &&
	       (peer->mem_fd < 0 || witness_seen(peer->mem_fd, hello));
}

int sim_peer_get(struct sim_device *device, const struct sim_packet *hello, const int *fds,
	pid_t pid, struct sim_peer **ret_peer)
{
	struct sim_peer *peer;
	struct stat st;

	if (fstat(fds[1], &st))
		return -errno;
	LIST_FOR_EACH (link, &device->peers) {
		peer = CONTAINER_OF(link, struct sim_peer, link);
		CHECK(peer->refs > 0);
		if (peer_is(peer, &st, pid, hello)) {
			peer->refs++;
			*ret_peer = peer;
			return 0;
		}
	}
	peer = calloc(1, sizeof(*peer));
	if (!peer)
		return -ENOMEM;
	peer->refs = 1;
	peer->dev = st.st_dev;
	peer->ino = st.st_ino;
	peer->pid = pid;
	peer->same_process = pid == getpid();
	peer->pidfd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
	peer->mem_fd = peer->same_process ? -1 : memory_open(pid, hello);
	peer->table = map_checked(fds[1], TABLE_BYTES, PROT_READ);
	peer->bells = map_checked(fds[0], BELLS_BYTES, PROT_READ | PROT_WRITE);
	list_push_back(&device->peers, &peer->link);
	if (!peer->table || !peer->bells) {
		sim_peer_put(peer);
		return -EPROTO;
	}
	*ret_peer = peer;
	return 0;
}

static void mapping_drop(struct sim_mapping *mapping)
{
	uint8_t *base = atomic_exchange(&mapping->base, NULL);

	if (base)
		munmap(base, mapping->bytes);
}

void sim_peer_put(struct sim_peer *peer)
{
	if (!peer)
		return;
	CHECK(peer->refs > 0);
	if (--peer->refs)
		return;
	for (uint32_t i = 0; i < SIM_BACKINGS_MAX; i++)
		mapping_drop(&peer->mappings[i]);
	if (peer->table)
		munmap((void *)(uintptr_t)peer->table, TABLE_BYTES);
	if (peer->bells)
		munmap(peer->bells, BELLS_BYTES);
	sim_fds_close(&peer->pidfd, 1);
	sim_fds_close(&peer->mem_fd, 1);
	list_remove(&peer->link);
	free(peer);
}

bool sim_peer_alive(const struct sim_peer *peer)
{
	struct pollfd wait = {.fd = peer->pidfd, .events = POLLIN};

	return peer->pidfd < 0 || poll(&wait, 1, 0) == 0;
}

/* Unmaps once none of our own queue pairs can be copying: each announces that it is about to,
 * before it looks. The number stays, so that late messages about this file or older ones are known
 * as such. */
static void mapping_retire(
	struct sim_device *device, struct sim_peer *peer, struct sim_mapping *mapping)
{
	uint8_t *base = atomic_exchange(&mapping->base, NULL);

	if (!base)
		return;
	LIST_FOR_EACH (link, &device->conns) {
		struct sim_conn *conn = CONTAINER_OF(link, struct sim_conn, link);

		if (conn->peer != peer || !conn->qp)
			continue;
		while (atomic_load(&conn->qp->moving))
			clock_relax();
	}
	munmap(base, mapping->bytes);
}

int sim_peer_backing_add(
	struct sim_device *device, struct sim_peer *peer, const struct sim_packet *packet, int fd)
{
	int prot = PROT_READ | (packet->writable ? PROT_WRITE : 0);
	struct sim_mapping *mapping = &peer->mappings[packet->backing % SIM_BACKINGS_MAX];
	void *base;

	/* Several connections to one device bring the same file several times, and a message about
	 * an older one may come late. */
	if (!packet->backing || peer->same_process ||
		(mapping->backing && (int32_t)(packet->backing - mapping->backing) <= 0))
		return 0;
	if (sim_shared_check(fd, packet->bytes) || !packet->bytes)
		return -EPROTO;
	base = mmap(NULL, packet->bytes, prot, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED) {
		log_warn("rdma", "cannot map a peer's memory (%s): copying through the kernel",
			strerror(errno));
		return 0;
	}
	mapping_retire(device, peer, mapping);
	mapping->backing = packet->backing;
	mapping->bytes = packet->bytes;
	mapping->writable = packet->writable;
	atomic_store_explicit(&mapping->base, base, memory_order_release);
	return 0;
}

void sim_peer_backing_remove(
	struct sim_device *device, struct sim_peer *peer, const struct sim_packet *packet)
{
	struct sim_mapping *mapping = &peer->mappings[packet->backing % SIM_BACKINGS_MAX];

	if (mapping->backing == packet->backing)
		mapping_retire(device, peer, mapping);
}

/* ---- Our own files. ---- */

static struct sim_backing *backing_slot(struct sim_device *device, const struct stat *st,
	bool writable, const struct sim_entry *entry)
{
	struct sim_backing *unused = NULL;

	for (uint32_t i = 0; i < SIM_BACKINGS_MAX; i++) {
		struct sim_backing *backing = &device->backings[i];

		if (!backing->refs) {
			unused = unused ? unused : backing;
			continue;
		}
		if (backing->dev == st->st_dev && backing->ino == st->st_ino &&
			backing->writable == writable && backing->pd == entry->pd &&
			backing->qpn == entry->qpn)
			return backing;
	}
	return unused;
}

void sim_backing_get(
	struct sim_device *device, const struct rp_mr_opts *opts, struct sim_entry *entry)
{
	bool writable = opts->access & (RP_ACCESS_REMOTE_WRITE | RP_ACCESS_REMOTE_ATOMIC);
	struct sim_backing *backing;
	char path[48];
	struct stat st;

	if (fstat(opts->fd, &st) || sim_shared_check(opts->fd, opts->fd_offset + opts->bytes) ||
		opts->fd_offset > UINT64_MAX - opts->bytes) {
		log_debug("rdma", "memory region: the file is not sealed against shrinking, so "
				  "peers copy through the kernel");
		return;
	}
	backing = backing_slot(device, &st, writable, entry);
	if (!backing)
		return;
	if (!backing->refs) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", opts->fd);
		/* A file of its own, so that a reader's copy does not grant writing. */
		backing->fd = open(path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC);
		if (backing->fd < 0)
			return;
		backing->dev = st.st_dev;
		backing->ino = st.st_ino;
		backing->writable = writable;
		backing->pd = entry->pd;
		backing->qpn = entry->qpn;
		backing->bytes = (uint64_t)st.st_size;
		/* Numbers of one slot grow, so that peers can tell old messages from new. */
		backing->generation++;
		backing->num = backing->generation * SIM_BACKINGS_MAX +
			       (uint32_t)(backing - device->backings);
		backing->refs = 1;
		sim_cm_tell_backing(device, backing, false);
	} else {
		backing->refs++;
	}
	entry->backing = backing->num;
}

void sim_backing_put(struct sim_device *device, uint32_t backing_num)
{
	struct sim_backing *backing = &device->backings[backing_num % SIM_BACKINGS_MAX];

	CHECK(backing->refs > 0);
	CHECK(backing->num == backing_num);
	if (backing->refs > 1) {
		backing->refs--;
		return;
	}
	sim_cm_tell_backing(device, backing, true);
	close(backing->fd);
	*backing = (struct sim_backing){.generation = backing->generation};
}
