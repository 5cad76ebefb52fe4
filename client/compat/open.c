/* client/compat/open.c: opens the minter that the environment names. */
#include "compat.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENDPOINT_BYTES 300

/* The value of the first of two variables that is set and not empty. */
static const char *first_of(const char *a, const char *b)
{
	const char *value = getenv(a);

	if (!value || !*value)
		value = getenv(b);
	return value && *value ? value : NULL;
}

/* The first HTTP endpoint of a list. */
static bool http_find(const char *list, char endpoint[ENDPOINT_BYTES])
{
	while (list && *list) {
		size_t len = strcspn(list, ", ");

		if (len < ENDPOINT_BYTES &&
			(strncmp(list, "http://", 7) == 0 || strncmp(list, "https://", 8) == 0)) {
			memcpy(endpoint, list, len);
			endpoint[len] = '\0';
			return true;
		}
		list += len;
		list += strspn(list, ", ");
	}
	return false;
}

int compat_minter_open(
	const char *device_name, struct neb_minter **ret_minter, char *why, size_t why_bytes)
{
	char endpoint[ENDPOINT_BYTES];
	const struct neb_options options = {.endpoints = endpoint,
		.access_key = first_of("NEBULAIO_ACCESS_KEY", "AWS_ACCESS_KEY_ID"),
		.secret_key = first_of("NEBULAIO_SECRET_KEY", "AWS_SECRET_ACCESS_KEY"),
		.token_bucket = first_of("NEBULAIO_BUCKET", "NEBULAIO_BUCKET"),
		.region = first_of("AWS_REGION", "AWS_DEFAULT_REGION"),
		.device_name = device_name ? device_name
					   : first_of("NEBULAIO_RDMA_DEVICE_NAME",
						     "NEBULAIO_RDMA_DEVICE_NAME")};
	int ret = -EINVAL;

	if (!http_find(getenv("NEBULAIO_ENDPOINT"), endpoint) &&
		!http_find(first_of("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"), endpoint))
		snprintf(why, why_bytes,
			"no endpoint: NEBULAIO_ENDPOINT or AWS_ENDPOINT_URL names the server");
	else if (!options.access_key || !options.secret_key)
		snprintf(why, why_bytes, "no keys: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY");
	else if ((ret = neb_minter_open(&options, ret_minter)) != 0)
		snprintf(why, why_bytes, "no RDMA device for %s: %s", endpoint, strerror(-ret));
	return ret;
}
