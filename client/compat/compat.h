/* client/compat/compat.h: interface between the drop-ins. A drop-in is a shared object with the
 * interface of another vendor's library, for programs that mint their RDMA tokens or read objects
 * by it; each stands alone over libnebulaio's public functions.
 *
 *   kvikio.c   libkvikio_cuobj_shim.so, which KvikIO opens by the path in KVIKIO_CUOBJ_SHIM
 *   s3rdma.c   libs3rdma.so.0, its client half, which MinIO's SDKs link
 *   cuobj.c    libcuobjclient.so.1, NVIDIA's cuObject client, which NIXL links
 *   open.c     the minter that the environment names
 *   runai.c    libstreamers3.so, by which runai-model-streamer reads models (runai.h)
 *   memory.c   the type of memory
 *
 * Those interfaces have no endpoints and keys, so the environment names them:
 *
 *   NEBULAIO_ENDPOINT (its first HTTP endpoint), else AWS_ENDPOINT_URL_S3, else AWS_ENDPOINT_URL
 *   NEBULAIO_ACCESS_KEY and NEBULAIO_SECRET_KEY, else AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY
 *   AWS_REGION, else AWS_DEFAULT_REGION
 *   NEBULAIO_RDMA_DEVICE_NAME, where the program names no device */
#ifndef CLIENT_COMPAT_COMPAT_H
#define CLIENT_COMPAT_COMPAT_H

#include <stddef.h>

#include "nebulaio/nebulaio.h"

#define COMPAT_API __attribute__((visibility("default")))

/* device_name NULL: the environment's, or the one that leads to the endpoint. On an error a
 * sentence is in why. */
int compat_minter_open(
	const char *device_name, struct neb_minter **ret_minter, char *why, size_t why_bytes);

/* 0 the host's, 1 CUDA's managed, 2 a GPU's: the numbers of both libraries. */
int compat_memory_type(const void *data);

#endif
