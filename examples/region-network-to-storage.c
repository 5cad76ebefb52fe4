/* examples/region-network-to-storage.c: network -> AF_XDP -> shared buffer -> NVMe. Writes the
 * payloads of UDP packets to a disk, from the frames in which they arrived.
 *
 *   region-network-to-storage INTERFACE UDP-PORT FILE PACKETS
 */
#include "example.h"

static bool write_behind(
	struct forward *forward, const struct neb_packet *packet, struct neb_work *work)
{
	if (!packet->payload || !packet->payload_bytes)
		return false;
	work->op = NEB_WRITE;
	work->at = payload_at(packet);
	work->bytes = packet->payload_bytes;
	work->offset = forward->bytes;
	/* A disk takes only whole aligned blocks. */
	return (work->bytes | work->at) % neb_disk_align(forward->region, forward->target) == 0;
}

int main(int argc, char **argv)
{
	struct forward forward = {.region = region_new(), .make = write_behind};
	struct neb_region *region = forward.region;
	uint16_t port;

	if (argc != 5)
		return 2;
	port = (uint16_t)atoi(argv[2]);
	forward.packets_max = (uint32_t)atoi(argv[4]);
	check(neb_attach_disk(region, argv[3], NEB_DISK_CREATE, 64 << 20, &forward.target),
		argv[3]);
	check(neb_attach_xdp(region, argv[1], port, port), argv[1]);
	printf("ready, %s\n", neb_xdp_mode(region));
	fflush(stdout);
	forward_packets(&forward);
	check(neb_work_submit(
		      region, &(struct neb_work){.op = NEB_FLUSH, .target = forward.target}),
		"flush");
	reap_one(region);
	printf("lost %llu\n", (unsigned long long)neb_xdp_lost(region));
	region_end(region, "stored", forward.bytes);
	return 0;
}
