/* examples/region-network-bridge.c: several queues of one interface -> shared buffer -> the queues
 * of another. UDP packets to a port leave unchanged, each from the frame in which it arrived, by
 * the queue of the same number.
 *
 *   region-network-bridge FROM TO QUEUES UDP-PORT PACKETS
 */
#include "example.h"

struct bridge {
	struct forward forward;
	uint32_t from, to, queue_count;
	uint16_t wires[NEB_QUEUES_MAX];
	uint64_t packets[NEB_QUEUES_MAX];
};

static void attach(struct bridge *bridge, const char *from, const char *to, uint16_t port)
{
	struct neb_xdp_options options = {
		.port_min = port, .port_max = port, .queue_count = bridge->queue_count};

	check(neb_attach_xdp_queues(bridge->forward.region, from, &options, &bridge->from), from);
	options.port_min = options.port_max = 0;
	check(neb_attach_xdp_queues(bridge->forward.region, to, &options, &bridge->to), to);
	for (uint32_t i = 0; i < bridge->queue_count; i++)
		check(neb_xdp_queue_target(
			      bridge->forward.region, bridge->to, i, &bridge->wires[i]),
			to);
	printf("ready, %s to %s\n", neb_xdp_interface_mode(bridge->forward.region, bridge->from),
		neb_xdp_interface_mode(bridge->forward.region, bridge->to));
	fflush(stdout);
}

static bool hand_on(struct forward *forward, const struct neb_packet *packet, struct neb_work *work)
{
	struct bridge *bridge = (struct bridge *)(void *)forward; /* its first member */

	work->op = NEB_PACKET;
	work->target = bridge->wires[packet->queue];
	work->at = (uint32_t)((char *)packet->data - (char *)packet->span.data);
	work->bytes = packet->bytes;
	bridge->packets[packet->queue]++;
	return true;
}

int main(int argc, char **argv)
{
	struct bridge bridge = {.forward = {.region = region_new(), .make = hand_on}};
	struct neb_region *region = bridge.forward.region;

	if (argc != 6)
		return 2;
	bridge.queue_count = (uint32_t)atoi(argv[3]);
	bridge.forward.packets_max = (uint32_t)atoi(argv[5]);
	if (!bridge.queue_count || bridge.queue_count > NEB_QUEUES_MAX)
		return 2;
	attach(&bridge, argv[1], argv[2], (uint16_t)atoi(argv[4]));
	forward_packets(&bridge.forward);
	for (uint32_t i = 0; i < bridge.queue_count; i++)
		printf("queue %u: %llu packets\n", i, (unsigned long long)bridge.packets[i]);
	printf("lost: %llu\n", (unsigned long long)neb_xdp_lost(region));
	region_end(region, "handed on", bridge.forward.bytes);
	return 0;
}
