/* rdma/providers.c: the list of the providers. Alone in its file, so that a program with a list of
 * its own takes nothing of this one from the library. */
#include "rdma/provider/provider.h"

const struct rp_ops *const rp_providers[] = {&rp_simulated_ops, &rp_verbs_ops};
const size_t rp_provider_count = ARRAY_LEN(rp_providers);
