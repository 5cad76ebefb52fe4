/* server/hardware.h: what the configuration asks of this host's hardware and network, held against
 * what is there: the NUMA node, GPUDirect, the DPU, flow control, ECN, the MTU. The server says it
 * at start, `nebulaio doctor --config` at any time. */
#ifndef SERVER_HARDWARE_H
#define SERVER_HARDWARE_H

#include <stdbool.h>

#include "server/config.h"

struct hardware_finding {
	const char *key; /* of the configuration that asked */
	bool met;
	char what[256];
	char fix[256]; /* a command or a setting; may be empty */
	/* Of a command that changes an interface, and how that is taken back; else empty. */
	char interface[64];
	char undo[256];
};
/* The finding lives for the call. */
typedef void hardware_fn(void *arg, const struct hardware_finding *finding);

/* One finding or more for each key that asks for something; none for those that do not. sysfs is
 * "/sys", or a test's own folder. Any thread; reads files and asks the kernel by netlink. */
void hardware_check(const struct config *config, const char *sysfs, hardware_fn *fn, void *arg);

/* Data center bridging (IEEE 802.1Qaz), as the kernel tells it of a network interface. */
#define HARDWARE_PRIORITIES 8u
#define HARDWARE_DSCPS	    64u
struct hardware_dcb {
	bool pfc_told;		/* else the driver says nothing of flow control */
	uint8_t pfc_priorities; /* that are lossless, one bit each */
	uint64_t pfc_sent[HARDWARE_PRIORITIES], pfc_received[HARDWARE_PRIORITIES]; /* frames */
	uint32_t dscp_count;
	int8_t dscp_priority[HARDWARE_DSCPS]; /* -1: the DSCP decides nothing */
};
/* By RTM_GETDCB. -EOPNOTSUPP: the driver does not tell; -ENODEV. */
int hardware_dcb(const char *interface, struct hardware_dcb *ret_dcb);
/* The answer to that question, parsed: src/server/hardware_dcb.c. -EBADMSG: malformed. */
int hardware_dcb_parse(const void *answer, size_t bytes, struct hardware_dcb *ret_dcb);

#endif
