/* examples/region-network-to-rdma.c: network -> AF_XDP -> shared buffer -> RDMA. The payloads of
 * UDP packets are sent to a peer from the frames that they came in.
 *
 *   region-network-to-rdma INTERFACE UDP-PORT DEVICE ADDRESS PORT PACKETS
 */
#include "example.h"

#define IN_FLIGHT 512u

int main(int argc, char **argv)
{
	const struct neb_rdma_options none = {.timeout_ns = PATIENCE};
	struct neb_region *region = region_new();
	struct neb_work last = {.op = NEB_SEND, .bytes = 1, .imm = LAST};
	uint32_t packets_max, packets = 0, sending = 0;
	uint16_t peer, port;
	uint64_t bytes = 0;

	if (argc != 7)
		return 2;
	port = (uint16_t)atoi(argv[2]);
	packets_max = (uint32_t)atoi(argv[6]);
	check(neb_attach_rdma(region, argv[3]), argv[3]);
	check(neb_rdma_connect(region, argv[4], (uint16_t)atoi(argv[5]), &none, &peer), argv[4]);
	check(neb_attach_xdp(region, argv[1], port, port), argv[1]);
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
			struct neb_work send = {.op = NEB_SEND,
				.target = peer,
				.span = got[i].span,
				.bytes = got[i].payload_bytes};

			packets++;
			if (!got[i].payload || !send.bytes) {
				neb_span_give(region, &got[i].span);
				continue;
			}
			send.at = (uint32_t)((char *)got[i].payload - (char *)got[i].span.data);
			check(neb_work_submit(region, &send), "a send");
			bytes += send.bytes;
			sending++;
		}
		count = sending ? neb_work_reap(region, done, 32, count ? 0 : PATIENCE) : 0;
		for (int i = 0; i < count; i++) {
			check(done[i].result, "a send");
			neb_span_give(region, &done[i].span);
			sending--;
		}
	}
	check(neb_span_lease(region, 1, &last.span), "a span");
	last.target = peer;
	check(neb_work_submit(region, &last), "the last");
	reap_rest(region);
	printf("lost %llu\n", (unsigned long long)neb_xdp_lost(region));
	region_end(region, "forwarded", bytes);
	return 0;
}
