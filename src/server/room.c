/* server/room.c: one thread in the process of a store of a cluster: it writes into the map how much
 * the store uses, so that gateways put new buckets where there is room. */
#include "server/room.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define LOOK_MS 2000
/* Smaller changes are not worth a write. */
#define CHANGE_BYTES (1 * MIB)

struct room {
	struct room_opts opts;
	int end_fd;
	pthread_t thread;
	bool running;
};

static bool is_news(const struct cluster_room *told, const struct cluster_room *now)
{
	uint64_t less = MIN(told->used_bytes, now->used_bytes);

	return MAX(told->used_bytes, now->used_bytes) - less >= CHANGE_BYTES;
}

/* The next look tries again to write the news that cannot be written now. */
static void *run(void *arg)
{
	struct room *room = arg;
	struct pollfd end = {.fd = room->end_fd, .events = POLLIN};
	struct cluster_room told = {.used_bytes = UINT64_MAX};

	do {
		struct cluster_room now = {.limit_bytes = room->opts.limit_bytes};
		struct store_usage usage;

		store_usage(room->opts.store, &usage);
		now.used_bytes = usage.used_bytes;
		if (is_news(&told, &now) &&
			cluster_room_put(room->opts.cluster, room->opts.number, &now) == 0)
			told = now;
	} while (poll(&end, 1, LOOK_MS) <= 0);
	return NULL;
}

int room_begin(const struct room_opts *opts, struct room **ret_room)
{
	struct room *room = calloc(1, sizeof(*room));
	int ret;

	if (!room)
		return -ENOMEM;
	room->opts = *opts;
	room->end_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	ret = room->end_fd < 0 ? -errno : -pthread_create(&room->thread, NULL, run, room);
	room->running = !ret;
	if (ret) {
		room_end(room);
		return ret;
	}
	*ret_room = room;
	return 0;
}

void room_end(struct room *room)
{
	if (!room)
		return;
	if (room->running) {
		(void)eventfd_write(room->end_fd, 1);
		pthread_join(room->thread, NULL);
	}
	if (room->end_fd >= 0)
		close(room->end_fd);
	free(room);
}
