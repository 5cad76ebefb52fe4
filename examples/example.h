/* examples/example.h: shared by the examples: errors, waiting, and the report at the end. */
#ifndef EXAMPLES_EXAMPLE_H
#define EXAMPLES_EXAMPLE_H

#include <errno.h>
#include <nebulaio/region.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SPAN_BYTES (1u << 20)
#define SPANS	   8u
#define LAST	   1u /* marks the last message of a stream */
#define PATIENCE   (30ull * 1000000000ull)
#define IN_FLIGHT  512u

static inline void check(int ret, const char *what)
{
	if (ret >= 0)
		return;
	fprintf(stderr, "%s: %s\n", what, strerror(-ret));
	exit(1);
}

/* Returns one completion; a failed device ends the program. A receive without a message ends with
 * the connection: this gives its span back and waits for another completion. */
static inline struct neb_done reap_one(struct neb_region *region)
{
	struct neb_done done = {0};

	for (;;) {
		if (neb_work_reap(region, &done, 1, PATIENCE) != 1)
			check(-ETIMEDOUT, "nothing happens");
		if (done.op != NEB_RECV || done.result != -ECANCELED)
			break;
		neb_span_give(region, &done.span);
	}
	check(done.result, "a device");
	return done;
}

/* Waits for the work still at a device, and gives the spans back. */
static inline void reap_rest(struct neb_region *region)
{
	struct neb_done done;

	while (neb_work_reap(region, &done, 1, PATIENCE) == 1) {
		if (done.span.data)
			neb_span_give(region, &done.span);
	}
}

static inline struct neb_region *region_new(void)
{
	const struct neb_region_options options = {.name = "example", .bytes = 64 << 20};
	struct neb_region *region;

	check(neb_region_create(&options, &region), "the region");
	return region;
}

/* Forwards packets as work for a device, each in the frame in which it arrived. */
struct forward {
	struct neb_region *region;
	uint32_t packets_max;
	/* Decides what to do with a packet: fills in work, which has its span. False: no work, and
	 * the span is given back. */
	bool (*make)(
		struct forward *forward, const struct neb_packet *packet, struct neb_work *work);
	uint16_t target;
	uint64_t bytes; /* forwarded */
};

/* Returns how many packets came in; adds the number of forwarded ones to *sending. */
static inline uint32_t forward_some(struct forward *forward, uint64_t timeout_ns, uint32_t *sending)
{
	struct neb_packet got[32];
	int count = neb_xdp_receive(forward->region, got, 32, timeout_ns);

	check(count, "receiving");
	for (int i = 0; i < count; i++) {
		struct neb_work work = {.target = forward->target, .span = got[i].span};

		if (!forward->make(forward, &got[i], &work)) {
			neb_span_give(forward->region, &got[i].span);
			continue;
		}
		check(neb_work_submit(forward->region, &work), "a packet");
		forward->bytes += work.bytes;
		++*sending;
	}
	return (uint32_t)count;
}

static inline void forward_packets(struct forward *forward)
{
	uint32_t packets = 0, sending = 0;

	while (packets < forward->packets_max || sending) {
		struct neb_done done[32];
		uint32_t came = 0;
		int count;

		if (packets < forward->packets_max && sending < IN_FLIGHT)
			came = forward_some(forward, sending ? 0 : PATIENCE, &sending);
		packets += came;
		if (!sending) {
			check(came ? 0 : -ETIMEDOUT, "no packets");
			continue;
		}
		count = neb_work_reap(forward->region, done, 32, came ? 0 : PATIENCE);
		for (int i = 0; i < count; i++) {
			check(done[i].result, "a packet");
			neb_span_give(forward->region, &done[i].span);
			sending--;
		}
	}
}

/* The offset of a packet's payload in its span. */
static inline uint32_t payload_at(const struct neb_packet *packet)
{
	return (uint32_t)((char *)packet->payload - (char *)packet->span.data);
}

static inline void region_end(struct neb_region *region, const char *what, uint64_t bytes)
{
	printf("%s: %llu bytes, %llu copied\n", what, (unsigned long long)bytes,
		(unsigned long long)neb_region_copied(region));
	neb_region_destroy(region);
}

#endif
