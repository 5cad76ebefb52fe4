/* examples/region-network-to-network.c: network -> AF_XDP -> shared buffer -> AF_XDP -> network.
 * UDP packets return to their senders, in the frames in which they arrived.
 *
 *   region-network-to-network INTERFACE UDP-PORT PACKETS
 */
#include "example.h"

static void swap(uint8_t *a, uint8_t *b, uint32_t bytes)
{
	for (uint32_t i = 0; i < bytes; i++) {
		uint8_t x = a[i];

		a[i] = b[i];
		b[i] = x;
	}
}

/* Swaps the addresses, which keeps the checksums valid. */
static void turn_round(uint8_t *packet)
{
	swap(packet, packet + 6, 6);
	swap(packet + 26, packet + 30, 4);
	swap(packet + 34, packet + 36, 2);
}

static bool send_back(
	struct forward *forward, const struct neb_packet *packet, struct neb_work *work)
{
	(void)forward;
	if (!packet->payload)
		return false; /* no packet to answer */
	turn_round(packet->data);
	work->op = NEB_PACKET;
	work->at = (uint32_t)((char *)packet->data - (char *)packet->span.data);
	work->bytes = packet->bytes;
	return true;
}

int main(int argc, char **argv)
{
	struct forward forward = {.region = region_new(), .make = send_back};
	uint16_t port;

	if (argc != 4)
		return 2;
	port = (uint16_t)atoi(argv[2]);
	forward.packets_max = (uint32_t)atoi(argv[3]);
	check(neb_attach_xdp(forward.region, argv[1], port, port), argv[1]);
	check(neb_xdp_target(forward.region, &forward.target), argv[1]);
	printf("ready, %s\n", neb_xdp_mode(forward.region));
	fflush(stdout);
	forward_packets(&forward);
	region_end(forward.region, "sent back", forward.bytes);
	return 0;
}
