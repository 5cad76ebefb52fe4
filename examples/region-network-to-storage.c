/* examples/region-network-to-storage.c: network -> AF_XDP -> shared buffer -> NVMe. The payloads of
 * UDP packets are written to a disk from the frames that they came in.
 *
 *   region-network-to-storage INTERFACE UDP-PORT FILE PACKETS
 */
#include "example.h"

#define IN_FLIGHT 512u

int main(int argc, char **argv)
{
	struct neb_region *region = region_new();
	uint32_t packets_max, packets = 0, writing = 0;
	uint64_t offset = 0;
	uint16_t disk, port;

	if (argc != 5)
		return 2;
	port = (uint16_t)atoi(argv[2]);
	packets_max = (uint32_t)atoi(argv[4]);
	check(neb_attach_disk(region, argv[3], NEB_DISK_CREATE, 64 << 20, &disk), argv[3]);
	check(neb_attach_xdp(region, argv[1], port, port), argv[1]);
	printf("ready, %s\n", neb_xdp_mode(region));
	fflush(stdout);
	while (packets < packets_max || writing) {
		struct neb_packet got[32];
		struct neb_done done[32];
		int count = 0;

		if (packets < packets_max && writing < IN_FLIGHT)
			count = neb_xdp_receive(region, got, 32, writing ? 0 : PATIENCE);
		check(count || writing ? count : -ETIMEDOUT, "no packets");
		for (int i = 0; i < count; i++) {
			struct neb_work write = {.op = NEB_WRITE,
				.target = disk,
				.span = got[i].span,
				.bytes = got[i].payload_bytes,
				.offset = offset};

			packets++;
			write.at = (uint32_t)((char *)got[i].payload - (char *)got[i].span.data);
			if (!got[i].payload || !write.bytes ||
				(write.bytes | write.at) % neb_disk_align(region, disk)) {
				neb_span_give(region, &got[i].span); /* not for a disk */
				continue;
			}
			check(neb_work_submit(region, &write), "a write");
			offset += write.bytes;
			writing++;
		}
		count = writing ? neb_work_reap(region, done, 32, count ? 0 : PATIENCE) : 0;
		for (int i = 0; i < count; i++) {
			check(done[i].result, "a write");
			neb_span_give(region, &done[i].span);
			writing--;
		}
	}
	check(neb_work_submit(region, &(struct neb_work){.op = NEB_FLUSH, .target = disk}),
		"flush");
	reap_one(region);
	printf("lost %llu\n", (unsigned long long)neb_xdp_lost(region));
	region_end(region, "stored", offset);
	return 0;
}
