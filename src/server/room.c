/* server/room.c: one thread in the process of a store of a cluster: it writes into the map how much
 * the store uses, so that gateways put new buckets where there is room. */
#include "server/room.h"

#include <errno.h>
#include <stdlib.h>

#include "base/ticker.h"

#define LOOK_MS 2000
/* Smaller changes are not worth a write. */
#define CHANGE_BYTES (1 * MIB)

struct room {
	struct room_opts opts;
	struct ticker ticker;
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
	struct cluster_room told = {.used_bytes = UINT64_MAX};

	do {
		struct cluster_room now = {.limit_bytes = room->opts.limit_bytes};
		struct store_usage usage;

		store_usage(room->opts.store, &usage);
		now.used_bytes = usage.used_bytes;
		if (is_news(&told, &now) &&
			cluster_room_put(room->opts.cluster, room->opts.number, &now) == 0)
			told = now;
	} while (ticker_sleep(&room->ticker, LOOK_MS));
	return NULL;
}

int room_begin(const struct room_opts *opts, struct room **ret_room)
{
	struct room *room = calloc(1, sizeof(*room));
	int ret;

	if (!room)
		return -ENOMEM;
	room->opts = *opts;
	ret = ticker_open(&room->ticker);
	if (!ret)
		ret = ticker_start(&room->ticker, run, room);
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
	ticker_stop(&room->ticker);
	ticker_close(&room->ticker);
	free(room);
}
