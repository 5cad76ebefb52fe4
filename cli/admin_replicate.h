/* cli/admin_replicate.h: the verbs of `nebulaio admin` about replication. */
#ifndef CLI_ADMIN_REPLICATE_H
#define CLI_ADMIN_REPLICATE_H

#include "admin_call.h"

int admin_targets(struct admin *admin, int count, char **arguments);
int admin_target_put(struct admin *admin, int count, char **arguments);
int admin_target_remove(struct admin *admin, int count, char **arguments);
int admin_resync(struct admin *admin, int count, char **arguments);

#endif
