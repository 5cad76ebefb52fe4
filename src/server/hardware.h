/* server/hardware.h: checks whether this host's hardware and network have what the configuration
 * asks for: the NUMA node, GPUDirect, the DPU, flow control, ECN, the MTU. The server reports it at
 * start, `nebulaio doctor --config` at any time. */
#ifndef SERVER_HARDWARE_H
#define SERVER_HARDWARE_H

#include <stdbool.h>

#include "server/config.h"

struct hardware_finding {
	const char *key; /* the configuration key that asked */
	bool met;
	char what[256];
	char fix[256]; /* a command or a setting; may be empty */
	/* For a command that changes an interface: the interface, and the command that undoes it;
	 * else empty. */
	char interface[64];
	char undo[256];
};
/* The finding is valid during the call only. */
typedef void hardware_fn(void *arg, const struct hardware_finding *finding);

/* Reports one finding or more for each key that asks for something. sysfs is "/sys", or a test's
 * own folder. Any thread; reads files and asks the kernel by netlink. */
void hardware_check(const struct config *config, const char *sysfs, hardware_fn *fn, void *arg);

/* Data center bridging (IEEE 802.1Qaz) of a network interface, as the kernel reports it. */
#define HARDWARE_PRIORITIES 8u
#define HARDWARE_DSCPS	    64u
struct hardware_dcb {
	bool pfc_told;		/* else the driver reports nothing about flow control */
	uint8_t pfc_priorities; /* lossless priorities, one bit each */
	uint64_t pfc_sent[HARDWARE_PRIORITIES], pfc_received[HARDWARE_PRIORITIES]; /* frames */
	uint32_t dscp_count;
	int8_t dscp_priority[HARDWARE_DSCPS]; /* -1: the DSCP has no priority */
};
/* Asks by RTM_GETDCB. -EOPNOTSUPP: the driver does not report it; -ENODEV. */
int hardware_dcb(const char *interface, struct hardware_dcb *ret_dcb);
/* The answer to that question, parsed: src/server/hardware_dcb.c. -EBADMSG: malformed. */
int hardware_dcb_parse(const void *answer, size_t bytes, struct hardware_dcb *ret_dcb);

#endif
