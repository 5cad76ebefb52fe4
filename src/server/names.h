/* server/names.h: a store's part in its cluster: names of buckets, and the gateways' secret. */
#ifndef SERVER_NAMES_H
#define SERVER_NAMES_H

#include "s3/s3.h"
#include "server/config.h"

struct rv;
struct names;
/* Opens RADOS, too. *ret_names is NULL where the configuration has no store of a cluster. */
int names_open(const struct config *config, struct rv **ret_rados, struct names **ret_names);
/* On a fiber, after s3_start: accounts are shared from now on. It returns when they are known here.
 * Stop before s3 is closed. Both take NULL. */
int names_start(struct names *names, struct s3 *s3, struct store *store);
void names_stop(struct names *names);
void names_close(struct names *names, struct rv *rados); /* takes NULL, both */
/* NULL: there is no cluster, in all three. */
const struct s3_names *names_of(const struct names *names);
const uint8_t *names_secret(const struct names *names);
const char *names_store(const struct names *names);
/* Another gateway has the store: this process has been asked to end, and waits for no slow client.
 * Takes NULL. */
bool names_lost(const struct names *names);

#endif
