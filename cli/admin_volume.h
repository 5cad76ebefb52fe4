/* cli/admin_volume.h: the verb `volume` of `nebulaio admin`. */
#ifndef CLI_ADMIN_VOLUME_H
#define CLI_ADMIN_VOLUME_H

#include "admin_call.h"

/* add PATH… [DATA+PARITY], remove NUMBER… [DATA+PARITY], erasure DATA+PARITY, cancel, list or
 * status. Returns an exit code. */
int admin_volume(struct admin *admin, int count, char **arguments);

#endif
