/* server/accounts.h: the accounts that the stores of a cluster share. Store 0 keeps them; each
 * change is copied into the cluster's map and told to the processes of the other stores before it
 * is answered. A process that does not know the newest copies answers nothing:
 * docs/design/cluster.md. */
#ifndef SERVER_ACCOUNTS_H
#define SERVER_ACCOUNTS_H

#include "cluster/cluster.h"
#include "s3/s3.h"

struct accounts;
/* follows: of another store than 0; then opts get what the cluster is opened with. */
int accounts_open(
	bool follows, uint32_t lease_s, struct cluster_opts *opts, struct accounts **ret_accounts);
/* On a fiber. -ECANCELED: a signal ended the wait for store 0. */
int accounts_start(struct accounts *accounts, struct cluster *cluster, struct s3 *s3);
/* On a helper thread, of store 0: 0 when all stores know the account as it is now. */
int accounts_changed(struct accounts *accounts, const char *number);
void accounts_stop(struct accounts *accounts);	/* takes NULL; may be called again */
void accounts_close(struct accounts *accounts); /* takes NULL; after the cluster is closed */

#endif
