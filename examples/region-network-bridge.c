/* examples/region-network-bridge.c: several queues of one interface -> shared buffer -> the queues
 * of another. UDP packets to a port go out as they came, each from the frame that it came in, by
 * the queue of the same number.
 *
 *   region-network-bridge FROM TO QUEUES UDP-PORT PACKETS
 */
#include "example.h"

#define IN_FLIGHT 512u

struct bridge {
	struct neb_region *region;
	uint32_t from, to, queue_count, sending;
	uint16_t wires[NEB_QUEUES_MAX];
	uint64_t packets[NEB_QUEUES_MAX];
	uint64_t bytes;
};

static void attach(struct bridge *bridge, const char *from, const char *to, uint16_t port)
{
	struct neb_xdp_options options = {
		.port_min = port, .port_max = port, .queue_count = bridge->queue_count};

	check(neb_attach_xdp_queues(bridge->region, from, &options, &bridge->from), from);
	options.port_min = options.port_max = 0;
	check(neb_attach_xdp_queues(bridge->region, to, &options, &bridge->to), to);
	for (uint32_t i = 0; i < bridge->queue_count; i++)
		check(neb_xdp_queue_target(bridge->region, bridge->to, i, &bridge->wires[i]), to);
	printf("ready, %s to %s\n", neb_xdp_interface_mode(bridge->region, bridge->from),
		neb_xdp_interface_mode(bridge->region, bridge->to));
	fflush(stdout);
}

/* Hands on what there is; how many packets. */
static uint32_t forward(struct bridge *bridge, uint64_t timeout_ns)
{
	struct neb_packet got[32];
	int count = neb_xdp_receive(bridge->region, got, 32, timeout_ns);

	check(count, "receiving");
	for (int i = 0; i < count; i++) {
		const struct neb_work send = {.op = NEB_PACKET,
			.target = bridge->wires[got[i].queue],
			.span = got[i].span,
			.at = (uint32_t)((char *)got[i].data - (char *)got[i].span.data),
			.bytes = got[i].bytes};

		check(neb_work_submit(bridge->region, &send), "a packet");
		bridge->packets[got[i].queue]++;
		bridge->sending++;
	}
	return (uint32_t)count;
}

static void reap(struct bridge *bridge, uint64_t timeout_ns)
{
	struct neb_done done[32];
	int count = neb_work_reap(bridge->region, done, 32, timeout_ns);

	for (int i = 0; i < count; i++) {
		check(done[i].result, "a packet");
		bridge->bytes += (uint32_t)done[i].result;
		neb_span_give(bridge->region, &done[i].span);
		bridge->sending--;
	}
}

int main(int argc, char **argv)
{
	struct bridge bridge = {.region = region_new()};
	uint32_t packets_max, packets = 0;

	if (argc != 6)
		return 2;
	bridge.queue_count = (uint32_t)atoi(argv[3]);
	packets_max = (uint32_t)atoi(argv[5]);
	if (!bridge.queue_count || bridge.queue_count > NEB_QUEUES_MAX)
		return 2;
	attach(&bridge, argv[1], argv[2], (uint16_t)atoi(argv[4]));
	while (packets < packets_max || bridge.sending) {
		uint32_t count = 0;

		if (packets < packets_max && bridge.sending < IN_FLIGHT)
			count = forward(&bridge, bridge.sending ? 0 : PATIENCE);
		check(count || bridge.sending ? 0 : -ETIMEDOUT, "no packets");
		packets += count;
		if (bridge.sending)
			reap(&bridge, count ? 0 : PATIENCE);
	}
	for (uint32_t i = 0; i < bridge.queue_count; i++)
		printf("queue %u: %llu packets\n", i, (unsigned long long)bridge.packets[i]);
	printf("lost: %llu\n", (unsigned long long)neb_xdp_lost(bridge.region));
	region_end(bridge.region, "handed on", bridge.bytes);
	return 0;
}
