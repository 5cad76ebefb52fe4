/* examples/region-storage-to-rdma.c: NVMe -> shared buffer -> RDMA. Sends blocks of a disk from the
 * frames into which they were read.
 *
 *   region-storage-to-rdma FILE BYTES DEVICE ADDRESS PORT
 */
#include "example.h"

static struct neb_region *region;
static uint16_t disk, peer;
static uint64_t offset, bytes;
static uint32_t busy;

static void read_next(const struct neb_span *span)
{
	struct neb_work work = {.op = NEB_READ, .target = disk, .span = *span, .offset = offset};

	if (offset == bytes) {
		neb_span_give(region, span);
		return;
	}
	work.bytes = bytes - offset < SPAN_BYTES ? (uint32_t)(bytes - offset) : SPAN_BYTES;
	check(neb_work_submit(region, &work), "a read");
	offset += work.bytes;
	busy++;
}

int main(int argc, char **argv)
{
	const struct neb_rdma_options none = {.timeout_ns = PATIENCE};
	struct neb_work last = {.op = NEB_SEND, .bytes = 1, .imm = LAST};
	struct neb_span span;

	if (argc != 6)
		return 2;
	region = region_new();
	bytes = strtoull(argv[2], NULL, 10);
	check(neb_attach_disk(region, argv[1], NEB_DISK_READ_ONLY, bytes, &disk), argv[1]);
	check(neb_attach_rdma(region, argv[3]), argv[3]);
	check(neb_rdma_connect(region, argv[4], (uint16_t)atoi(argv[5]), &none, &peer), argv[4]);
	/* One block at a time keeps the order; a server would number its messages. */
	check(neb_span_lease(region, SPAN_BYTES, &span), "a span");
	read_next(&span);
	while (busy) {
		struct neb_done done = reap_one(region);
		struct neb_work send = {.op = NEB_SEND,
			.target = peer,
			.span = done.span,
			.bytes = (uint32_t)done.result};

		busy--;
		if (done.op == NEB_SEND) {
			read_next(&done.span);
			continue;
		}
		check(neb_work_submit(region, &send), "a send");
		busy++;
	}
	check(neb_span_lease(region, 1, &last.span), "a span");
	last.target = peer;
	check(neb_work_submit(region, &last), "the last");
	reap_rest(region);
	region_end(region, "served", offset);
	return 0;
}
