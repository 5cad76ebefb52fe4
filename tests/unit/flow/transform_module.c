/* Shared objects for the loader, one for each case. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <nebulaio/transform.h>

#ifndef KIND_OTHER_VERSION
#define KIND_OTHER_VERSION 0
#endif
#ifndef KIND_FLAGS
#define KIND_FLAGS 0
#endif
#ifndef KIND_BOTH
#define KIND_BOTH 0
#endif

#ifdef KIND_NO_SYMBOL
extern int something_else;
int something_else;
#else

static int invert(void *state, uint8_t *data, size_t *bytes, size_t capacity)
{
	(void)state;
	(void)capacity;
	for (size_t i = 0; i < *bytes; i++)
		data[i] ^= 0xff;
	return 0;
}

static int convert(void *state, struct neb_transform_in *in, struct neb_transform_out *out)
{
	(void)state;
	(void)out;
	in->taken = in->bytes;
	return 0;
}

static int open_checked(const char *options, char *why, size_t why_bytes, void **ret_state)
{
	(void)ret_state;
	if (!strcmp(options, "good"))
		return 0;
	snprintf(why, why_bytes, "'%s' is not good", options);
	return -EDOM;
}

const struct neb_transform neb_transform = {
	.version = NEB_TRANSFORM_VERSION + KIND_OTHER_VERSION,
	.flags = NEB_TRANSFORM_SAME_LENGTH | KIND_FLAGS,
	.name = "invert",
	.open = open_checked,
	.change = invert,
	.convert = KIND_BOTH ? convert : NULL,
};
#endif
