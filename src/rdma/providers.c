/* rdma/providers.c: the list of the providers. It has its own file, so that a program with another
 * list links nothing of this one from the library. */
#include "rdma/provider/provider.h"

const struct rp_ops *const rp_providers[] = {&rp_simulated_ops, &rp_verbs_ops};
const size_t rp_provider_count = ARRAY_LEN(rp_providers);
