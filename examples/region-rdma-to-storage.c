/* examples/region-rdma-to-storage.c: RDMA -> shared buffer -> NVMe. Writes a peer's messages to a
 * disk, from the frames in which they arrived.
 *
 *   region-rdma-to-storage DEVICE PORT FILE
 */
#include "example.h"

int main(int argc, char **argv)
{
	const struct neb_rdma_options receives = {
		.receives = SPANS, .receive_bytes = SPAN_BYTES, .timeout_ns = PATIENCE};
	struct neb_region *region = region_new();
	uint16_t disk, peer, port;
	uint64_t offset = 0;
	uint32_t writing = 0;
	bool last = false, flushed = false;

	if (argc != 4)
		return 2;
	port = (uint16_t)atoi(argv[2]);
	check(neb_attach_disk(region, argv[3], NEB_DISK_CREATE, 64 << 20, &disk), argv[3]);
	check(neb_attach_rdma(region, argv[1]), argv[1]);
	check(neb_rdma_listen(region, "", &port), "listening");
	printf("ready %u\n", port);
	fflush(stdout);
	check(neb_rdma_accept(region, &receives, &peer), "a peer");
	while (!last || writing) {
		struct neb_done done = reap_one(region);
		struct neb_work next = {.span = done.span};

		if (done.op == NEB_RECV && done.imm == LAST) {
			last = true;
			neb_span_give(region, &done.span);
			continue;
		}
		if (done.op == NEB_RECV) { /* it has arrived: the disk takes the same span */
			next.op = NEB_WRITE;
			next.target = disk;
			next.bytes = (uint32_t)done.result;
			next.offset = offset;
			offset += next.bytes;
			writing++;
		} else { /* it is written: receive into it again */
			next.op = NEB_RECV;
			next.target = peer;
			writing--;
		}
		check(neb_work_submit(region, &next), "work");
	}
	check(neb_work_submit(region, &(struct neb_work){.op = NEB_FLUSH, .target = disk}),
		"flush");
	while (!flushed) {
		struct neb_done done = reap_one(region);

		flushed = done.op == NEB_FLUSH;
		if (done.span.data)
			neb_span_give(region, &done.span);
	}
	neb_rdma_disconnect(region, peer);
	reap_rest(region);
	region_end(region, "stored", offset);
	return 0;
}
