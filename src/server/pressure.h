/* server/pressure.h: when the region should grow or shrink: the kernel's figures about memory, and
 * the rules. */
#ifndef SERVER_PRESSURE_H
#define SERVER_PRESSURE_H

#include "base/base.h"

/* The kernel's figures. */
struct pressure_sample {
	/* Hundredths of a percent of the last 10 s in which some task waited for memory: the host's
	 * or a control group's, the higher. */
	uint32_t stalled_centi;
	/* Of the host or a control group (memory.max, memory.high), the less, and the whole of it.
	 */
	uint64_t free_bytes, all_bytes;
};
/* Below root ("" for this host). A figure that cannot be read counts as no pressure, or as no
 * limit. Reads files of /proc and /sys: some microseconds. */
void pressure_read(const char *root, struct pressure_sample *ret_sample);

/* The rules' memory, all zeroes at first. */
struct pressure {
	uint64_t pressed_since_ns;    /* 0: not pressed */
	uint64_t calm_since_ns;	      /* 0: not calm, or nothing needs memory */
	uint64_t shrunk_ns, grown_ns; /* of the last change for these rules; 0: never */
	uint64_t grow_wait_ns;	      /* from a shrink to the next growth; 0: the least */
};
enum pressure_verdict { PRESSURE_STAY, PRESSURE_GROW, PRESSURE_SHRINK };
/* One step of one extension at a time. wanted: the region's users could use more memory. */
enum pressure_verdict pressure_judge(struct pressure *pressure,
	const struct pressure_sample *sample, uint64_t extension_bytes, bool wanted,
	uint64_t now_ns);
/* The region was changed after a verdict. */
void pressure_changed(struct pressure *pressure, enum pressure_verdict verdict, uint64_t now_ns);

#endif
