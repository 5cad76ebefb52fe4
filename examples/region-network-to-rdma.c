/* examples/region-network-to-rdma.c: network -> AF_XDP -> shared buffer -> RDMA. Sends the payloads
 * of UDP packets to a peer, from the frames in which they arrived.
 *
 *   region-network-to-rdma INTERFACE UDP-PORT DEVICE ADDRESS PORT PACKETS
 */
#include "example.h"

static bool send_on(struct forward *forward, const struct neb_packet *packet, struct neb_work *work)
{
	(void)forward;
	if (!packet->payload || !packet->payload_bytes)
		return false;
	work->op = NEB_SEND;
	work->at = payload_at(packet);
	work->bytes = packet->payload_bytes;
	return true;
}

int main(int argc, char **argv)
{
	const struct neb_rdma_options none = {.timeout_ns = PATIENCE};
	struct forward forward = {.region = region_new(), .make = send_on};
	struct neb_region *region = forward.region;
	struct neb_work last = {.op = NEB_SEND, .bytes = 1, .imm = LAST};
	uint16_t port;

	if (argc != 7)
		return 2;
	port = (uint16_t)atoi(argv[2]);
	forward.packets_max = (uint32_t)atoi(argv[6]);
	check(neb_attach_rdma(region, argv[3]), argv[3]);
	check(neb_rdma_connect(region, argv[4], (uint16_t)atoi(argv[5]), &none, &forward.target),
		argv[4]);
	check(neb_attach_xdp(region, argv[1], port, port), argv[1]);
	printf("ready, %s\n", neb_xdp_mode(region));
	fflush(stdout);
	forward_packets(&forward);
	check(neb_span_lease(region, 1, &last.span), "a span");
	last.target = forward.target;
	check(neb_work_submit(region, &last), "the last");
	reap_rest(region);
	printf("lost %llu\n", (unsigned long long)neb_xdp_lost(region));
	region_end(region, "forwarded", forward.bytes);
	return 0;
}
