/* etcd/etcd.h: the owner of a store whose volumes are on other hosts. Its record and its lease lie
 * in etcd, as two keys below a prefix; docs/design/cluster.md has the argument. Blocks: not for
 * reactors. */
#ifndef ETCD_ETCD_H
#define ETCD_ETCD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ETCD_LEASE_S_MIN 3u

struct etcd;
struct etcd_opts {
	const char *endpoints;	       /* "http://A:2379,https://B:2379" */
	const char *prefix;	       /* one store has it: "nebulaio/" */
	const char *user_file;	       /* "USER:PASSWORD"; "": without a user */
	const char *ca_file;	       /* PEM: authorities of https:// endpoints; "": the host's */
	const char *certificate, *key; /* PEM: of this host, if etcd demands one; "": none */
	uint32_t lease_s;
	bool standby; /* wait without limit while another server is the owner */
	/* Another server is the owner now: called once, on a thread of etcd's. It must not return
	 * to work that answers for the store. */
	void (*lost)(void *arg);
	void *lost_arg;
};

/* Whether the text is a list of endpoints: of etcd_opts. */
bool etcd_endpoints_valid(const char *text);

/* Becomes the owner, and renews that on a thread until it is closed. From its return on this
 * process's life (base/life.h) lasts as long as the lease. -EBUSY: another server is the owner;
 * -ECANCELED: a signal that ends the process is pending; -EINVAL, -EACCES, -ENOENT: a file cannot
 * be used; -EIO: no endpoint answers; the log says why. */
int etcd_own(const struct etcd_opts *opts, struct etcd **ret_etcd);
/* Greater than the epochs of all owners before. */
uint64_t etcd_epoch(const struct etcd *etcd);
/* Renews now, because another owner seems to be there. Any thread. */
void etcd_look(void *etcd);
/* This process answers nothing for the store any more, and its writes have ended: the next owner
 * need not wait. Takes NULL. */
void etcd_close(struct etcd *etcd);

#endif
