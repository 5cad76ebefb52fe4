/* examples/region-network-to-network.c: network -> AF_XDP -> shared buffer -> AF_XDP -> network.
 * UDP packets go back to where they came from, in the frames that they came in.
 *
 *   region-network-to-network INTERFACE UDP-PORT PACKETS
 */
#include "example.h"

#define IN_FLIGHT 512u

static void swap(uint8_t *a, uint8_t *b, uint32_t bytes)
{
	for (uint32_t i = 0; i < bytes; i++) {
		uint8_t x = a[i];

		a[i] = b[i];
		b[i] = x;
	}
}

/* Addresses change places, which leaves the checksums right. */
static void turn_round(uint8_t *packet)
{
	swap(packet, packet + 6, 6);
	swap(packet + 26, packet + 30, 4);
	swap(packet + 34, packet + 36, 2);
}

int main(int argc, char **argv)
{
	struct neb_region *region = region_new();
	uint32_t packets_max, packets = 0, sending = 0;
	uint64_t bytes = 0;
	uint16_t port, wire;

	if (argc != 4)
		return 2;
	port = (uint16_t)atoi(argv[2]);
	packets_max = (uint32_t)atoi(argv[3]);
	check(neb_attach_xdp(region, argv[1], port, port), argv[1]);
	check(neb_xdp_target(region, &wire), argv[1]);
	printf("ready, %s\n", neb_xdp_mode(region));
	fflush(stdout);
	while (packets < packets_max || sending) {
		struct neb_packet got[32];
		struct neb_done done[32];
		int count = 0;

		if (packets < packets_max && sending < IN_FLIGHT)
			count = neb_xdp_receive(region, got, 32, sending ? 0 : PATIENCE);
		check(count || sending ? count : -ETIMEDOUT, "no packets");
		for (int i = 0; i < count; i++) {
			struct neb_work send = {.op = NEB_PACKET,
				.target = wire,
				.span = got[i].span,
				.bytes = got[i].bytes};

			packets++;
			send.at = (uint32_t)((char *)got[i].data - (char *)got[i].span.data);
			if (!got[i].payload) {
				neb_span_give(region, &got[i].span); /* not one to answer */
				continue;
			}
			turn_round(got[i].data);
			check(neb_work_submit(region, &send), "a packet");
			sending++;
		}
		count = sending ? neb_work_reap(region, done, 32, count ? 0 : PATIENCE) : 0;
		for (int i = 0; i < count; i++) {
			check(done[i].result, "a packet");
			bytes += (uint32_t)done[i].result;
			neb_span_give(region, &done[i].span);
			sending--;
		}
	}
	region_end(region, "sent back", bytes);
	return 0;
}
