/* bench/wire_missing.c: replaces wire.c in a build without AF_XDP. */
#include "bench/wire.h"

#include <errno.h>

const char *bench_wire_refused(void)
{
	return "built without AF_XDP";
}

int bench_wire_open(
	const char *program, const struct bench_cpus *cpus, struct bench_wire **ret_wire)
{
	(void)program, (void)cpus, (void)ret_wire;
	return -EOPNOTSUPP;
}

void bench_wire_close(struct bench_wire *wire)
{
	(void)wire;
}

int bench_wire_ingest(struct bench_wire *wire, const char *path, uint32_t bytes, uint64_t budget_ns,
	struct bench_wire_result *ret_result)
{
	(void)wire, (void)path, (void)bytes, (void)budget_ns, (void)ret_result;
	return -EOPNOTSUPP;
}

int bench_wire_recvmmsg(struct bench_wire *wire, uint32_t bytes, uint64_t budget_ns,
	struct bench_wire_result *ret_result)
{
	(void)wire, (void)bytes, (void)budget_ns, (void)ret_result;
	return -EOPNOTSUPP;
}
