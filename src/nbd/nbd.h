/* nbd/nbd.h: volumes as block devices of other systems, by the protocol of network block devices
 * (NBD, "fixed newstyle"): the kernel's nbd driver, QEMU and libnbd speak it. A volume may lie on
 * this host or, behind RDMA, on another. Payload is received into the region's frames and written
 * from them, and the other way; the processor copies none of it.
 *
 * One reactor. Source: the protocol's public specification (doc/proto.md of the NBD project). */
#ifndef NBD_NBD_H
#define NBD_NBD_H

#include "base/base.h"
#include "disk/disk.h"
#include "net/net.h"
#include "reactor/reactor.h"
#include "region/region.h"

#define NBD_PORT	    10809u
#define NBD_UNIX_SCHEME	    "unix:" /* of an address that is a socket of the file system */
#define NBD_EXPORTS_MAX	    64u
#define NBD_NAME_LEN_MAX    63u
#define NBD_CONNECTIONS_MAX 64u
/* Requests in progress of one connection. A client that sends more waits. */
#define NBD_REQUESTS_MAX 64u
/* The payload of one request: one span of frames. */
#define NBD_PAYLOAD_BYTES_MAX (4 * MIB)
/* The region's frames must hold two payloads at least. */
#define NBD_MEMORY_BYTES_MIN (16 * MIB)

struct nbd;

struct nbd_export {
	const char *name;  /* 1 to NBD_NAME_LEN_MAX characters */
	struct disk *disk; /* attached to the reactor; borrowed */
	bool read_only;
};

struct nbd_opts {
	struct reactor *reactor; /* with fibers for all requests of all connections */
	struct region *region;	 /* used by nothing else */
	/* Clients must begin TLS before anything else; NULL: there is no TLS. Borrowed. */
	struct net_tls *tls;
	const struct nbd_export *exports; /* copied; the names are borrowed */
	uint32_t export_count;		  /* at least 1 */
};

/* Listens at "unix:PATH" (the socket belongs to this user alone) or "ADDR:PORT". Before the
 * reactor's first turn. The errors of net_listen and net_listen_unix; -ENOMEM. */
int nbd_open(const struct nbd_opts *opts, const char *address, struct nbd **ret_nbd);
uint16_t nbd_port(const struct nbd *nbd); /* 0: a socket of the file system */
/* In a fiber of the reactor: accepts no more connections, refuses new requests with ESHUTDOWN, and
 * waits until those in progress have their answers, for some seconds at most. */
void nbd_drain(struct nbd *nbd);
/* Takes NULL. The reactor has stopped, or never ran. */
void nbd_close(struct nbd *nbd);

#endif
