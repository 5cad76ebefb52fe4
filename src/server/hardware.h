/* server/hardware.h: what the configuration asks of this host's hardware and network, held against
 * what is there: GPUDirect, the DPU, flow control, ECN, the MTU. The server says it at start,
 * `nebulaio doctor --config` at any time. */
#ifndef SERVER_HARDWARE_H
#define SERVER_HARDWARE_H

#include <stdbool.h>

#include "server/config.h"

struct hardware_finding {
	const char *key; /* of the configuration that asked */
	bool met;
	char what[256];
	char fix[256]; /* a command or a setting; may be empty */
};
/* The finding lives for the call. */
typedef void hardware_fn(void *arg, const struct hardware_finding *finding);

/* One finding or more for each key that asks for something; none for those that do not. sysfs is
 * "/sys", or a test's own folder. Any thread; reads files and asks the kernel by netlink. */
void hardware_check(const struct config *config, const char *sysfs, hardware_fn *fn, void *arg);

/* Priorities that have priority flow control, one bit each, as the kernel tells it of a network
 * interface (IEEE 802.1Qaz, by RTM_GETDCB). -EOPNOTSUPP: the driver does not tell. */
int hardware_pfc(const char *interface, uint8_t *ret_priorities);
/* The answer to that question, parsed: src/server/hardware_pfc.c. -EBADMSG: malformed. */
int hardware_pfc_parse(const void *answer, size_t bytes, uint8_t *ret_priorities);

#endif
