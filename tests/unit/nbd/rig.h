/* tests/unit/nbd/rig.h: a server's connection over a socket pair, on the test's own thread, without
 * a listener. Its volume is a file in memory. */
#ifndef TESTS_UNIT_NBD_RIG_H
#define TESTS_UNIT_NBD_RIG_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "nbd/nbd_priv.h"

#define RIG_VOLUME_BYTES (512 * KIB)

struct rig {
	struct reactor *reactor;
	struct region *region;
	struct disk *disk;
	struct nbd nbd;
	bool serving;
	int handshake; /* its result */
};

static inline void rig_open(struct rig *rig, const char *faults)
{
	const struct reactor_opts reactor = {.cpu = -1};
	const struct region_opts region = {.bytes = NBD_MEMORY_BYTES_MIN, .core_count = 1};
	char path[64];
	struct disk_opts disk = {.kind = DISK_FILE,
		.path = path,
		.step_bytes = FRAME_BYTES,
		.bytes_min = RIG_VOLUME_BYTES,
		.discard_files = true,
		.faults = faults};
	int fd = memfd_create("volume", 0);

	*rig = (struct rig){0};
	CHECK(fd >= 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	CHECK(!disk_open(&disk, &rig->disk));
	close(fd);
	CHECK(!reactor_open(&reactor, &rig->reactor));
	CHECK(!region_open(&region, &rig->region));
	CHECK(!disk_attach(rig->disk, rig->reactor, rig->region));
	rig->nbd.exports[0] = (struct nbd_export){"volume", rig->disk, false};
	rig->nbd.opts = (struct nbd_opts){
		.reactor = rig->reactor, .region = rig->region, .export_count = 1};
	rig->nbd.starved_ns = NBD_STARVED_NS;
	list_init(&rig->nbd.starved);
	list_init(&rig->nbd.connections);
}

static inline void rig_close(struct rig *rig)
{
	disk_close(rig->disk);
	reactor_close(rig->reactor);
	region_close(rig->region);
}

struct rig_connection {
	struct rig *rig;
	struct net_stream *stream;
};

static inline void rig_serve(void *arg)
{
	struct rig_connection *from = arg;
	struct nbd_connection connection = {
		.magic = NBD_CONNECTION_MAGIC, .nbd = &from->rig->nbd, .stream = from->stream};

	list_init(&connection.senders);
	list_push_back(&from->rig->nbd.connections, &connection.link);
	from->rig->handshake = nbd_handshake(&connection);
	if (!from->rig->handshake)
		nbd_serve(&connection);
	CHECK(!connection.requests && list_empty(&connection.senders));
	list_remove(&connection.link);
	net_close(connection.stream);
	from->rig->serving = false;
}

/* A client that sends these bytes, step at a time, and then ends its side. Its answers go to out;
 * returns how many bytes there were. Every frame must be given back. */
static inline size_t rig_talk(
	struct rig *rig, struct slice bytes, size_t step, uint8_t *out, size_t out_cap)
{
	struct rig_connection connection = {.rig = rig};
	struct region_usage usage;
	uint8_t waste[4096];
	size_t count = 0;
	ssize_t got;
	int fds[2];

	CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds));
	CHECK(!net_stream_take(rig->reactor, fds[1], &connection.stream));
	rig->serving = true;
	CHECK(!fiber_spawn(rig->reactor, "serve", rig_serve, &connection));
	while (rig->serving) {
		struct slice part = slice_to(bytes, step);
		ssize_t sent = part.len ? send(fds[0], part.data, part.len, MSG_NOSIGNAL) : 0;

		if (sent > 0)
			bytes = slice_from(bytes, (size_t)sent);
		if (!bytes.len)
			shutdown(fds[0], SHUT_WR);
		reactor_turn(rig->reactor);
		while ((got = recv(fds[0], waste, sizeof(waste), 0)) > 0)
			for (ssize_t i = 0; i < got; i++)
				if (count < out_cap)
					out[count++] = waste[i];
	}
	while ((got = recv(fds[0], waste, sizeof(waste), 0)) > 0)
		for (ssize_t i = 0; i < got; i++)
			if (count < out_cap)
				out[count++] = waste[i];
	close(fds[0]);
	region_usage(rig->region, &usage);
	CHECK(usage.frames_by_owner[OWNER_FREE] == usage.frames_total);
	return count;
}

#endif
