/* cli/conformance/pair.h: the suite's own queue pairs; see pair.c. */
#ifndef CLI_CONFORMANCE_PAIR_H
#define CLI_CONFORMANCE_PAIR_H

#include "conformance.h"
#include "rdma/rdma.h"

struct conf_pair {
	struct rp_qp *qp;
	struct rp_address ours;
};
/* The target of a write on the other side, and its immediate. */
struct conf_place {
	uint64_t addr;
	uint32_t rkey, immediate;
};

/* Opens conf->device, registers conf->memory and sets conf->progress. -errno, and conf->why. */
int conf_device_open(struct conf *conf);
void conf_device_close(struct conf *conf);
uint32_t conf_device_rkey(const struct conf *conf);

/* -errno, and conf->why has the reason. conf_pair_close closes it in either case. */
int conf_pair_open(struct conf *conf, struct conf_pair *pair);
void conf_pair_close(struct conf_pair *pair);
/* False: they were not joined in time; conf->why has the reason. */
bool conf_pair_join(struct conf *conf, struct conf_pair *pair, struct rp_address *theirs);
/* Posts the one receive, without memory; then waits for the immediate that comes. */
bool conf_pair_receive(struct conf *conf, struct conf_pair *pair);
bool conf_pair_received(struct conf *conf, uint32_t *ret_immediate);
/* Writes the beginning of the window there, with the immediate. Returns whether it arrived. */
bool conf_pair_write(
	struct conf *conf, struct conf_pair *pair, size_t bytes, const struct conf_place *to);

#endif
