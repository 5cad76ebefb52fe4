/* rados/rados.h: volumes in Ceph RADOS: makes paths `rados://POOL/NAME` volumes of disk.
 * docs/design/rados.md. librados is loaded at the first use of such a path, so a host without it
 * runs everything else. */
#ifndef RADOS_RADOS_H
#define RADOS_RADOS_H

#include "base/base.h"

#define RV_SCHEME	       "rados://"
#define RV_TIMEOUT_S_DEFAULT   20u
#define RV_LEASE_S_DEFAULT     15u
#define RV_FRONT_BYTES_DEFAULT (65 * MIB) /* superblocks and a log of the default size */

struct rv;
struct rv_opts {
	const char *conf_file; /* "": where librados looks: $CEPH_CONF, /etc/ceph/ceph.conf */
	const char *user;      /* of `client.USER`; "": admin */
	uint32_t timeout_s;    /* of one operation; 0: RV_TIMEOUT_S_DEFAULT */
	uint32_t lease_s;      /* of a volume's owner; 0: RV_LEASE_S_DEFAULT */
	/* Of a volume that is made: its bytes below this are in the first pool; 0:
	 * RV_FRONT_BYTES_DEFAULT. */
	uint64_t front_bytes;
	bool standby; /* opening waits without limit until the volume has no other owner */
	/* Another server is the owner of the volume now. Any thread; it may not return. NULL: none.
	 */
	void (*lost)(void *arg);
	void *lost_arg;
};

/* Makes disk_open() accept RV_SCHEME; call it before anything is opened. One at a time. The cluster
 * is reached at the first open. 0, -ENOMEM. */
int rv_open(const struct rv_opts *opts, struct rv **ret_rv);
/* Takes NULL. No volume may be open. */
void rv_close(struct rv *rv);

#endif
