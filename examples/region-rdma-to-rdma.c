/* examples/region-rdma-to-rdma.c: RDMA -> shared buffer -> RDMA. Changes one peer's messages in the
 * frames in which they arrived, and sends them on to another peer from there.
 *
 *   region-rdma-to-rdma DEVICE PORT NEXT-ADDRESS NEXT-PORT
 */
#include "example.h"

static void transform(void *data, int32_t bytes)
{
	for (int32_t i = 0; i < bytes; i++)
		((uint8_t *)data)[i] ^= 0x5a;
}

int main(int argc, char **argv)
{
	const struct neb_rdma_options receives = {
		.receives = SPANS, .receive_bytes = SPAN_BYTES, .timeout_ns = PATIENCE};
	const struct neb_rdma_options none = {.timeout_ns = PATIENCE};
	struct neb_region *region = region_new();
	uint16_t from, to, port;
	uint64_t bytes = 0;
	uint32_t sending = 0;
	bool last = false;

	if (argc != 5)
		return 2;
	port = (uint16_t)atoi(argv[2]);
	check(neb_attach_rdma(region, argv[1]), argv[1]);
	check(neb_rdma_connect(region, argv[3], (uint16_t)atoi(argv[4]), &none, &to), argv[3]);
	check(neb_rdma_listen(region, "", &port), "listening");
	printf("ready %u\n", port);
	fflush(stdout);
	check(neb_rdma_accept(region, &receives, &from), "a peer");
	while (!last || sending) {
		struct neb_done done = reap_one(region);
		struct neb_work next = {.span = done.span};

		if (done.op == NEB_RECV) { /* it has arrived: change it, send the same span on */
			next.op = NEB_SEND;
			next.target = to;
			next.bytes = (uint32_t)done.result;
			next.imm = done.imm;
			last = done.imm == LAST;
			if (!last) {
				transform(done.span.data, done.result);
				bytes += next.bytes;
			}
			sending++;
		} else { /* it has been sent: receive into it again */
			next.op = NEB_RECV;
			next.target = from;
			sending--;
			if (last) {
				neb_span_give(region, &done.span);
				continue;
			}
		}
		check(neb_work_submit(region, &next), "work");
	}
	neb_rdma_disconnect(region, from);
	reap_rest(region);
	region_end(region, "passed on", bytes);
	return 0;
}
