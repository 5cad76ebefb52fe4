/* client/memory_priv.h: memory that the device may touch: the pool, registrations, a GPU's. */
#ifndef CLIENT_MEMORY_PRIV_H
#define CLIENT_MEMORY_PRIV_H

#include "codec/capsule.h"
#include "rdma/rdma.h"

#define CLIENT_REGISTRATIONS_MAX 256u
/* Unregistered bodies up to this size are copied through the pool; larger ones are registered. */
#define CLIENT_BOUNCE_BYTES_MAX (64 * KIB)
#define CLIENT_DEVICES_MAX	4u

struct neb_client;
struct client_call;

/* Memory has a registration, and so keys, for each of the client's devices. */
struct client_registration {
	uint8_t *data;
	uint64_t bytes;
	struct rp_mr *mrs[CLIENT_DEVICES_MAX];
};

/* The pool: one memfd, first fit in whole pages, free runs joined at once. */
struct client_pool {
	uint8_t *base;
	uint64_t bytes;
	int fd;
	struct rp_mr *mrs[CLIENT_DEVICES_MAX];
	uint32_t page_count;
	uint32_t hint;	/* where to begin looking */
	uint32_t *runs; /* of pages: at a run's first page its length, with CLIENT_RUN_USED */
};
#define CLIENT_RUN_USED 0x80000000u

/* ---- memory.c ---- */
int client_pool_open(struct neb_client *client, uint64_t bytes);
void client_pool_close(struct neb_client *client);
void *client_pool_get(struct neb_client *client, uint64_t bytes);
void client_pool_put(struct neb_client *client, void *data);
/* The runs for a call's into, or with body for its body (and for its into: the same runs then
 * serve one after the other). Known memory is named as it is; other memory is copied through the
 * pool or registered for the call. */
int client_runs(
	struct client_call *call, bool body, struct capsule_run *ret_runs, uint32_t *ret_run_count);
/* All of the call's into lies in memory that the device knows. */
bool client_memory_known(const struct client_call *call);
/* Checks for CUDA, unless all of the call's memory is from the pool or registered. */
void client_memory_look(const struct client_call *call);
/* Undoes client_runs; moved: bytes of into that came through the pool. */
void client_runs_end(struct client_call *call, uint64_t moved);
/* The local key of a run that client_runs made for the call. */
uint32_t client_run_lkey(const struct client_call *call, const struct capsule_run *run);
/* For each device, if the options want it. */
int client_reg_cache_open(struct neb_client *client);
void client_registrations_close(struct neb_client *client);
/* Lets the last of the client's devices know the pool and what is registered. Errors of rp_mr_open;
 * then it knows nothing. */
int client_memory_join(struct neb_client *client);
/* Copies into the call's into, or out of its body, from an offset on. The copy is counted. */
void client_scatter(struct client_call *call, uint64_t offset, const void *data, uint64_t bytes);
void client_gather(struct client_call *call, uint64_t offset, void *data, uint64_t bytes);
/* Waits until what client_scatter copied into memory of a GPU is there. A failure is in the
 * client's gpu_failed. */
void client_scatter_land(struct client_call *call);
/* `theirs` is to or from, and may be memory of a GPU. True: it is. */
bool client_piece_copy(
	struct neb_client *client, void *to, const void *from, uint64_t bytes, const void *theirs);

/* The call's device's local key of registered memory; false: it is not registered, or the processor
 * cannot read it. */
bool client_memory_lkey(
	const struct client_call *call, const void *data, uint64_t bytes, uint32_t *ret_lkey);
/* Any registered memory for the call: from the pool, or mapped and registered for it. */
int client_memory_lease(struct client_call *call, uint64_t bytes, struct capsule_run *ret_run);

/* ---- gpu.c ---- */
/* Checks whether the program has loaded CUDA by now. Cheap; any thread. */
void client_gpu_look(void);
/* True when the address is a GPU's, which the processor cannot read. */
bool client_gpu_owns(const void *data);
/* Waits until the GPU has finished its earlier work, so that its memory is up to date. -EIO. */
int client_gpu_settle(const void *data);
/* Copies between a GPU's memory and ours, or within GPU memory. The bytes for a GPU's memory have
 * been taken from ours then, but arrive there later (CUDA driver API, "API synchronization
 * behavior"). -EIO. */
int client_gpu_copy(void *to, const void *from, uint64_t bytes);
/* Waits until the copies into the GPU that has this memory have arrived. The program's kernels in
 * streams that do not wait for the default stream are not waited for. -EIO. */
int client_gpu_land(const void *data);
/* -EOPNOTSUPP: the card cannot reach the memory; other errors as rp_mr_open. */
struct client_domain {
	const struct rp_device *device; /* NULL, and pd too: none */
	struct rp_pd *pd;
};
int client_gpu_register(const struct client_domain *domain, void *data, uint64_t bytes,
	uint32_t access, struct rp_mr **ret_mr);

#endif
