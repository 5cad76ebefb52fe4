/* tests/sim/damage.c: wrong bytes on the medium: a scrub finds and repairs them where possible, and
 * fsck finds a closed store intact. */
#include "load.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SCRUB_WAIT_NS (100 * NS_PER_MS)
#define SCRUB_NS_MAX  (600 * NS_PER_S)

static void scrub_run(struct store *store, struct store_scrub *ret_status)
{
	uint64_t deadline_ns = world_now_ns() + SCRUB_NS_MAX;
	int ret = store_scrub_ask(store);

	if (ret)
		world_fault("no scrub begins: %s", strerror(-ret));
	do {
		world_block(store, world_now_ns() + SCRUB_WAIT_NS);
		store_scrub_status(store, ret_status);
		if (world_now_ns() > deadline_ns)
			world_fault("a scrub does not end");
	} while (ret_status->running);
	world_trace("scrub", ret_status->damaged, ret_status->mended);
}

void scrub_check(struct store *store)
{
	struct store_scrub first, second;

	world_disk_chances.damage = 0;
	scrub_run(store, &first);
	if (opts.faulty)
		return;
	if (first.damaged && !opts.damaged)
		world_fault("a scrub finds %llu damaged places, and nobody damaged any",
			(unsigned long long)first.damaged);
	/* The only volume may be unreachable. */
	if (opts.volumes == 1 && opts.peer_fails)
		return;
	if (first.runs != 1)
		world_fault("a scrub that comes to no end");
	if (first.damaged && opts.all_is_well)
		world_fault("a scrub finds %llu places that nothing mends",
			(unsigned long long)first.damaged);
	/* Acknowledged data is on each volume that is marked good. */
	if (!opts.damaged && (first.mended || first.parity_mended))
		world_fault("a scrub mends %llu pieces and %llu shards of parity, and nobody "
			    "damaged any",
			(unsigned long long)first.mended, (unsigned long long)first.parity_mended);
	scrub_run(store, &second);
	if (second.mended != first.mended || second.parity_mended != first.parity_mended)
		world_fault("a scrub finds %llu pieces and %llu shards of parity that the one "
			    "before it did not mend",
			(unsigned long long)(second.mended - first.mended),
			(unsigned long long)(second.parity_mended - first.parity_mended));
}

void store_check(const char *dir)
{
	struct store_fsck_report report = {0};
	struct remote *remote = opts.exported ? peer_reach() : NULL;
	struct buf out;
	int ret;

	buf_init(&out, MIB);
	ret = store_fsck(dir, true, &report, &out);
	remote_initiator_close(remote);
	if (ret == 0 || (ret == -EUCLEAN && opts.damaged && !opts.repairs && report.opened &&
				!report.bad_records && !report.overlaps && !report.lost_bytes)) {
		buf_free(&out);
		return;
	}
	world_fault("fsck: %s: %.*s", strerror(-ret), (int)MIN(out.len, 400), out.data);
}
