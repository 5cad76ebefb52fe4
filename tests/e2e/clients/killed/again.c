/* Stores 64 MiB, or fetches them, again and again until it is killed: again put|get. */
#include <nebulaio/nebulaio.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES (64u << 20)

int main(int argc, char **argv)
{
	struct neb_options options = {.endpoints = getenv("NEBULAIO_ENDPOINT"),
		.access_key = getenv("NEBULAIO_ACCESS_KEY"),
		.secret_key = getenv("NEBULAIO_SECRET_KEY"),
		.pool_bytes = 2 * BYTES};
	struct neb_client *client;
	struct neb_result result;
	void *data;
	int ret = argc == 2 ? 0 : -1;

	if (ret || neb_client_open(&options, &client) || neb_buffer_alloc(client, BYTES, &data))
		return 2;
	while (ret == 0)
		ret = strcmp(argv[1], "put") == 0
			      ? neb_put(client, "killed", "object", data, BYTES, &result)
			      : neb_get(client, "killed", "object", data, BYTES, &result);
	fprintf(stderr, "%s: %s\n", strerror(-ret), result.message);
	return 1;
}
