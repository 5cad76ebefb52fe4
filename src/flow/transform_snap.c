/* flow/transform_snap.c: the first bytes of each packet, as for captures of headers only. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "flow/transform_priv.h"

#define SNAP_BYTES_MAX (64 * KIB)

static int snap_open(const char *options, char *why, size_t why_bytes, void **ret_state)
{
	char *end;
	unsigned long bytes = strtoul(options, &end, 10);
	size_t *state;

	if (*options < '1' || *options > '9' || *end || bytes > SNAP_BYTES_MAX) {
		snprintf(why, why_bytes, "it needs a number of bytes, 1 to %llu: snap:96",
			(unsigned long long)SNAP_BYTES_MAX);
		return -EINVAL;
	}
	state = malloc(sizeof(*state));
	if (!state)
		return -ENOMEM;
	*state = bytes;
	*ret_state = state;
	return 0;
}

static int snap_change(void *state, uint8_t *data, size_t *bytes, size_t capacity)
{
	const size_t *most = state;

	(void)data;
	(void)capacity;
	*bytes = MIN(*bytes, *most);
	return 0;
}

const struct neb_transform FLOW_TRANSFORM_SNAP = {.version = NEB_TRANSFORM_VERSION,
	.flags = NEB_TRANSFORM_PACKETS,
	.name = "snap",
	.open = snap_open,
	.change = snap_change,
	.close = free};
