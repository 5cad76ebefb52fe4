/* examples/example.h: what the examples share: how they fail, and how they say what they did. */
#ifndef EXAMPLES_EXAMPLE_H
#define EXAMPLES_EXAMPLE_H

#include <errno.h>
#include <nebulaio/region.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SPAN_BYTES (1u << 20)
#define SPANS	   8u
#define LAST	   1u /* goes with the last message of a stream */
#define PATIENCE   (30ull * 1000000000ull)

static inline void check(int ret, const char *what)
{
	if (ret >= 0)
		return;
	fprintf(stderr, "%s: %s\n", what, strerror(-ret));
	exit(1);
}

/* One completion; a device that failed ends the program. Receives that nothing came for end with
 * the connection: their spans are given back here, and something else is waited for. */
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

/* Gives back what is still at a device, and a work's span with it. */
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

static inline void region_end(struct neb_region *region, const char *what, uint64_t bytes)
{
	printf("%s: %llu bytes, %llu copied\n", what, (unsigned long long)bytes,
		(unsigned long long)neb_region_copied(region));
	neb_region_destroy(region);
}

#endif
