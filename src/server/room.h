/* server/room.h: tells the gateways of a cluster how much room a store has. */
#ifndef SERVER_ROOM_H
#define SERVER_ROOM_H

#include "cluster/cluster.h"
#include "store/api.h"

struct room;
struct room_opts {
	struct cluster *cluster;
	struct store *store;
	uint32_t number;      /* of the store */
	uint64_t limit_bytes; /* of its volume; 0: the pool's room is its own */
};
int room_begin(const struct room_opts *opts, struct room **ret_room);
void room_end(struct room *room); /* before the store closes; takes NULL */

#endif
