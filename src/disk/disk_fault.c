/* disk/disk_fault.c: faults of a simulated volume, drawn from a seed so that a run can be
 * replayed. */
#include "disk/disk_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CHANCE_ONE 4294967296.0

/* "0.25" as a chance in units of 2^-32; -EINVAL outside 0 to 1. */
static int parse_chance(struct slice text, uint64_t *ret_chance)
{
	char copy[32];
	char *end;
	double value;

	if (slice_copy_str(text, copy, sizeof(copy)) || text.len == 0)
		return -EINVAL;
	value = strtod(copy, &end);
	if (*end || !(value >= 0 && value <= 1))
		return -EINVAL;
	*ret_chance = (uint64_t)(value * CHANCE_ONE);
	return 0;
}

static int parse_one(struct disk_faults *faults, struct slice name, struct slice value)
{
	uint64_t seed;
	int ret;

	if (slice_eq(name, SLICE("eio")))
		return parse_chance(value, &faults->eio_chance);
	if (slice_eq(name, SLICE("torn")))
		return parse_chance(value, &faults->torn_chance);
	if (slice_eq(name, SLICE("enospc_at")))
		return slice_to_u64(value, &faults->enospc_at);
	if (slice_eq(name, SLICE("eio_after")))
		return slice_to_u64(value, &faults->eio_after);
	if (!slice_eq(name, SLICE("seed")))
		return -EINVAL;
	ret = slice_to_u64(value, &seed);
	if (!ret)
		prng_seed(&faults->prng, seed);
	return ret;
}

int disk_faults_parse(struct disk_faults *faults, const char *text)
{
	struct slice rest = slice_str(text);

	prng_seed(&faults->prng, 1);
	while (rest.len) {
		struct slice value = slice_split(&rest, ',');
		struct slice name = slice_split(&value, '=');

		if (parse_one(faults, slice_trim(name), slice_trim(value))) {
			log_error("disk",
				"bad faults \"%s\": wanted name=value of seed, eio, torn, "
				"enospc_at, eio_after, comma separated",
				text);
			return -EINVAL;
		}
	}
	return 0;
}

enum disk_fault disk_faults_next(struct disk_faults *faults, enum disk_op op)
{
	enum disk_fault fault = DISK_FAULT_NONE;
	uint64_t eio, torn;

	pthread_mutex_lock(&faults->lock);
	faults->ops++;
	eio = prng_next(&faults->prng) >> 32;
	torn = prng_next(&faults->prng) >> 32;
	if (op == DISK_WRITE && torn < faults->torn_chance)
		fault = DISK_FAULT_TORN;
	if (eio < faults->eio_chance || (faults->eio_after && faults->ops > faults->eio_after))
		fault = DISK_FAULT_EIO;
	pthread_mutex_unlock(&faults->lock);
	return fault;
}
