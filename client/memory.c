/* client/memory.c: the pool of registered memory, the user's registrations, and the memory that the
 * device may access for one call. */
#include "session_priv.h"

#include "reg_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define REMOTE_ACCESS (RP_ACCESS_LOCAL_WRITE | RP_ACCESS_REMOTE_WRITE | RP_ACCESS_REMOTE_READ)

static int mr_open(const struct client_device *device, void *data, uint64_t bytes, int fd,
	struct rp_mr **ret_mr)
{
	struct rp_mr_opts opts = {.addr = data, .bytes = bytes, .access = REMOTE_ACCESS, .fd = fd};

	return rp_mr_open(device->pd, &opts, ret_mr);
}

/* A body that is registered for its request is only read, and may lie in memory that cannot be
 * written. */
static int body_mr_open(
	const struct client_device *device, void *data, uint64_t bytes, struct rp_mr **ret_mr)
{
	struct rp_mr_opts opts = {
		.addr = data, .bytes = bytes, .access = RP_ACCESS_REMOTE_READ, .fd = -1};

	return rp_mr_open(device->pd, &opts, ret_mr);
}

static void mr_close(struct rp_mr **mr)
{
	if (*mr)
		rp_mr_close(*mr);
	*mr = NULL;
}

static void mrs_close(struct rp_mr *mrs[CLIENT_DEVICES_MAX])
{
	for (uint32_t i = 0; i < CLIENT_DEVICES_MAX; i++)
		mr_close(&mrs[i]);
}

/* With every device. Errors of rp_mr_open; then with none. */
static int mrs_open(struct neb_client *client, void *data, uint64_t bytes, int fd,
	struct rp_mr *ret_mrs[CLIENT_DEVICES_MAX])
{
	int ret = 0;

	for (uint32_t i = 0; ret == 0 && i < client->device_count; i++)
		ret = mr_open(&client->devices[i], data, bytes, fd, &ret_mrs[i]);
	if (ret)
		mrs_close(ret_mrs);
	return ret;
}

static const struct client_device *device_of(const struct client_call *call)
{
	return &call->client->devices[call->device_idx];
}

/* ---- The pool. ---- */

int client_pool_open(struct neb_client *client, uint64_t bytes)
{
	struct client_pool *pool = &client->pool;
	int ret;

	bytes = ALIGN_UP(bytes, FRAME_BYTES);
	if (bytes >> FRAME_SHIFT >= CLIENT_RUN_USED)
		return -EINVAL;
	pool->fd = memfd_create("nebulaio-client", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (pool->fd < 0 || ftruncate(pool->fd, (off_t)bytes) != 0)
		return -errno;
	/* The peer of a simulated device maps only a file that cannot shrink while it reads.
	 */
	if (fcntl(pool->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW))
		return -errno;
	pool->base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, pool->fd, 0);
	if (pool->base == MAP_FAILED) {
		pool->base = NULL;
		return -ENOMEM;
	}
	pool->bytes = bytes;
	pool->page_count = (uint32_t)(bytes >> FRAME_SHIFT);
	pool->runs = calloc(pool->page_count, sizeof(*pool->runs));
	if (!pool->runs)
		return -ENOMEM;
	pool->runs[0] = pool->page_count;
	ret = mrs_open(client, pool->base, bytes, pool->fd, pool->mrs);
	if (ret)
		client_log(client, NEB_LOG_ERROR,
			"the pool of %llu bytes cannot be registered: %s (raise the limit of "
			"locked memory, ulimit -l)",
			(unsigned long long)bytes, strerror(-ret));
	return ret;
}

void client_pool_close(struct neb_client *client)
{
	struct client_pool *pool = &client->pool;

	mrs_close(pool->mrs);
	if (pool->base)
		munmap(pool->base, pool->bytes);
	if (pool->fd >= 0)
		close(pool->fd);
	free(pool->runs);
}

/* Searches once round, from the hint on. Joins free neighbours on the way, but never across the
 * hint, so that the hint is always a run's first page. */
static void *pool_search(struct client_pool *pool, uint32_t want)
{
	uint32_t at = pool->hint;
	uint32_t looked = 0;

	while (looked < pool->page_count) {
		uint32_t run = pool->runs[at] & ~CLIENT_RUN_USED;
		bool used = pool->runs[at] & CLIENT_RUN_USED;

		while (!used && at + run < pool->page_count && at + run != pool->hint &&
			!(pool->runs[at + run] & CLIENT_RUN_USED))
			run += pool->runs[at + run];
		if (!used && run >= want) {
			if (run > want)
				pool->runs[at + want] = run - want;
			pool->runs[at] = want | CLIENT_RUN_USED;
			pool->hint = at;
			return pool->base + ((uint64_t)at << FRAME_SHIFT);
		}
		if (!used)
			pool->runs[at] = run;
		looked += run;
		at = at + run == pool->page_count ? 0 : at + run;
	}
	return NULL;
}

void *client_pool_get(struct neb_client *client, uint64_t bytes)
{
	struct client_pool *pool = &client->pool;
	uint64_t want = MAX((bytes + FRAME_BYTES - 1) >> FRAME_SHIFT, 1);
	void *data = NULL;

	if (want <= pool->page_count)
		data = pool_search(pool, (uint32_t)want);
	if (!data && want <= pool->page_count && pool->hint) {
		pool->hint = 0;
		data = pool_search(pool, (uint32_t)want);
	}
	return data;
}

void client_pool_put(struct neb_client *client, void *data)
{
	struct client_pool *pool = &client->pool;
	uint64_t offset = (uint64_t)((uint8_t *)data - pool->base);
	uint32_t at = (uint32_t)(offset >> FRAME_SHIFT);

	CHECK(offset < pool->bytes && (offset & (FRAME_BYTES - 1)) == 0);
	CHECK(pool->runs[at] & CLIENT_RUN_USED);
	pool->runs[at] &= ~CLIENT_RUN_USED;
	/* Low memory first: what was used lately is in the caches and has its pages. */
	pool->hint = MIN(pool->hint, at);
}

int neb_buffer_alloc(struct neb_client *client, size_t bytes, void **ret_data)
{
	void *data = client_pool_get(client, bytes);

	if (!data)
		return -ENOMEM;
	*ret_data = data;
	return 0;
}

void neb_buffer_free(struct neb_client *client, void *data)
{
	if (data)
		client_pool_put(client, data);
}

/* ---- Registrations. ---- */

/* The index of the first registration that ends past data. */
static uint32_t registration_find(const struct neb_client *client, const uint8_t *data)
{
	uint32_t low = 0, high = client->registration_count;

	while (low < high) {
		uint32_t middle = (low + high) / 2;
		const struct client_registration *reg = &client->registrations[middle];

		if (reg->data + reg->bytes > data)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

/* A device that cannot reach a GPU's memory has no key for it: its requests are staged. */
static void gpu_mr_open(
	struct neb_client *client, uint32_t device_idx, struct client_registration *reg)
{
	const struct client_domain domain = {
		.device = client->devices[device_idx].rp, .pd = client->devices[device_idx].pd};
	int ret = client_gpu_register(
		&domain, reg->data, reg->bytes, REMOTE_ACCESS, &reg->mrs[device_idx]);

	if (ret)
		client_log(client, NEB_LOG_WARN,
			"%llu bytes of GPU memory are staged through host memory: the RDMA "
			"device cannot reach them: %s",
			(unsigned long long)reg->bytes, strerror(-ret));
}

int neb_register(struct neb_client *client, void *data, size_t bytes)
{
	struct client_registration *regs = client->registrations;
	uint32_t at = registration_find(client, data);
	struct client_registration reg = {.data = data, .bytes = bytes};
	int ret = 0;

	if (!data || !bytes)
		return -EINVAL;
	if (at < client->registration_count && regs[at].data < (uint8_t *)data + bytes)
		return -EEXIST;
	if (client->registration_count == CLIENT_REGISTRATIONS_MAX)
		return -ENOSPC;
	client_gpu_look();
	if (client_gpu_owns(data))
		for (uint32_t i = 0; i < client->device_count; i++)
			gpu_mr_open(client, i, &reg);
	else
		ret = mrs_open(client, data, bytes, -1, reg.mrs);
	if (ret)
		return ret;
	memmove(&regs[at + 1], &regs[at], (client->registration_count - at) * sizeof(*regs));
	regs[at] = reg;
	client->registration_count++;
	return 0;
}

int neb_unregister(struct neb_client *client, void *data)
{
	struct client_registration *regs = client->registrations;
	uint32_t at = registration_find(client, data);

	if (at == client->registration_count || regs[at].data != data)
		return -ENOENT;
	mrs_close(regs[at].mrs);
	client->registration_count--;
	memmove(&regs[at], &regs[at + 1], (client->registration_count - at) * sizeof(*regs));
	return 0;
}

int neb_memory_forget(struct neb_client *client, const void *data, size_t bytes)
{
	int ret = 0;

	if (!data || !bytes || bytes > UINTPTR_MAX - (uintptr_t)data)
		return -EINVAL;
	for (uint32_t i = 0; i < client->device_count; i++)
		if (client->devices[i].reg_cache &&
			reg_cache_forget(client->devices[i].reg_cache, data, bytes))
			ret = -EBUSY;
	return ret;
}

static int device_cache_open(const struct neb_client *client, struct client_device *device)
{
	return client->reg_cache_bytes ? reg_cache_open(device->pd, client->reg_cache_bytes,
						 REMOTE_ACCESS, &device->reg_cache)
				       : 0;
}

int client_reg_cache_open(struct neb_client *client)
{
	int ret = 0;

	for (uint32_t i = 0; ret == 0 && i < client->device_count; i++)
		ret = device_cache_open(client, &client->devices[i]);
	return ret;
}

int client_memory_join(struct neb_client *client)
{
	uint32_t idx = client->device_count - 1;
	struct client_device *device = &client->devices[idx];
	struct client_pool *pool = &client->pool;
	int ret = mr_open(device, pool->base, pool->bytes, pool->fd, &pool->mrs[idx]);

	for (uint32_t i = 0; ret == 0 && i < client->registration_count; i++) {
		struct client_registration *reg = &client->registrations[i];

		if (client_gpu_owns(reg->data))
			gpu_mr_open(client, idx, reg);
		else
			ret = mr_open(device, reg->data, reg->bytes, -1, &reg->mrs[idx]);
	}
	if (ret == 0)
		ret = device_cache_open(client, device);
	if (ret == 0)
		return 0;
	for (uint32_t i = 0; i < client->registration_count; i++)
		mr_close(&client->registrations[i].mrs[idx]);
	mr_close(&pool->mrs[idx]);
	return ret;
}

void client_registrations_close(struct neb_client *client)
{
	for (uint32_t i = 0; i < client->device_count; i++)
		reg_cache_close(client->devices[i].reg_cache);
	while (client->registration_count)
		neb_unregister(client, client->registrations[0].data);
}

/* The registration with the call's device that contains the memory; NULL: none. */
static const struct rp_mr *mr_of(const struct client_call *call, const uint8_t *data, size_t bytes)
{
	const struct neb_client *client = call->client;
	const struct client_pool *pool = &client->pool;
	uint32_t at;

	if (data >= pool->base && data + bytes <= pool->base + pool->bytes)
		return pool->mrs[call->device_idx];
	at = registration_find(client, data);
	if (at < client->registration_count && client->registrations[at].data <= data &&
		data + bytes <= client->registrations[at].data + client->registrations[at].bytes)
		return client->registrations[at].mrs[call->device_idx];
	return NULL;
}

/* ---- One call's memory. ---- */

/* A GPU that fails loses all that the program has on it, so no request can continue. */
bool client_piece_copy(
	struct neb_client *client, void *to, const void *from, uint64_t bytes, const void *theirs)
{
	if (!client_gpu_owns(theirs)) {
		memcpy(to, from, bytes);
		return false;
	}
	client->stats.bytes_staged += bytes;
	if (client_gpu_copy(to, from, bytes))
		client->gpu_failed = true;
	return true;
}

static void iov_copy(
	struct client_call *call, bool gather, uint64_t offset, uint8_t *data, uint64_t bytes)
{
	const struct neb_iov *iov = gather ? call->body : call->into;
	uint32_t count = gather ? call->body_count : call->into_count;

	for (uint32_t i = 0; i < count && bytes; i++) {
		uint64_t run;
		uint8_t *at;

		if (offset >= iov[i].bytes) {
			offset -= iov[i].bytes;
			continue;
		}
		run = MIN(iov[i].bytes - offset, bytes);
		at = (uint8_t *)iov[i].data + offset;
		if (client_piece_copy(
			    call->client, gather ? data : at, gather ? at : data, run, at) &&
			!gather)
			call->gpu_landing = true;
		data += run;
		bytes -= run;
		offset = 0;
	}
}

void client_scatter(struct client_call *call, uint64_t offset, const void *data, uint64_t bytes)
{
	call->client->stats.bytes_copied += bytes;
	iov_copy(call, false, offset, (uint8_t *)(uintptr_t)data, bytes);
}

/* Once for a call, not for each copy: over HTTP a body has thousands of them. */
void client_scatter_land(struct client_call *call)
{
	call->gpu_landing = false;
	for (uint32_t i = 0; i < call->into_count; i++)
		if (client_gpu_owns(call->into[i].data) && client_gpu_land(call->into[i].data))
			call->client->gpu_failed = true;
}

void client_gather(struct client_call *call, uint64_t offset, void *data, uint64_t bytes)
{
	call->client->stats.bytes_copied += bytes;
	iov_copy(call, true, offset, data, bytes);
}

static void run_set(struct capsule_run *run, const void *data, uint64_t bytes, uint32_t rkey)
{
	*run = (struct capsule_run){
		.addr = (uint64_t)(uintptr_t)data, .bytes = bytes, .rkey = rkey};
}

static int bounce(struct client_call *call, bool body, uint64_t bytes, struct capsule_run *ret_runs,
	uint32_t *ret_run_count)
{
	struct neb_client *client = call->client;

	call->bounce = client_pool_get(client, bytes);
	if (!call->bounce)
		return -ENOMEM;
	if (body)
		client_gather(call, 0, call->bounce, call->body_bytes);
	run_set(&ret_runs[0], call->bounce, bytes, rp_mr_rkey(client->pool.mrs[call->device_idx]));
	*ret_run_count = 1;
	return 0;
}

bool client_memory_lkey(
	const struct client_call *call, const void *data, uint64_t bytes, uint32_t *ret_lkey)
{
	const struct rp_mr *mr = mr_of(call, data, bytes);

	if (!mr || client_gpu_owns(data))
		return false;
	*ret_lkey = rp_mr_lkey(mr);
	return true;
}

uint32_t client_run_lkey(const struct client_call *call, const struct capsule_run *run)
{
	const struct rp_mr *mr = mr_of(call, (const uint8_t *)(uintptr_t)run->addr, run->bytes);

	if (call->mr_count)
		return rp_mr_lkey(call->mrs[0]);
	if (call->cached_count)
		return reg_entry_lkey(call->cached[0]);
	return mr ? rp_mr_lkey(mr) : 0;
}

int client_memory_lease(struct client_call *call, uint64_t bytes, struct capsule_run *ret_run)
{
	struct neb_client *client = call->client;
	int ret;

	call->bounce = client_pool_get(client, bytes);
	if (call->bounce) {
		run_set(ret_run, call->bounce, bytes,
			rp_mr_rkey(client->pool.mrs[call->device_idx]));
		return 0;
	}
	call->sealed =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (call->sealed == MAP_FAILED) {
		call->sealed = NULL;
		return -ENOMEM;
	}
	call->sealed_bytes = bytes;
	ret = mr_open(device_of(call), call->sealed, bytes, -1, &call->mrs[0]);
	if (ret) {
		client_runs_end(call, 0);
		return ret;
	}
	client->stats.registrations++;
	call->mr_count = 1;
	run_set(ret_run, call->sealed, bytes, rp_mr_rkey(call->mrs[0]));
	return 0;
}

/* The key of unregistered memory: from the cache, or of a registration for this call. */
static int key_for_call(
	struct client_call *call, bool body, const struct neb_iov *iov, uint32_t *ret_rkey)
{
	struct neb_client *client = call->client;
	const struct client_device *device = device_of(call);
	struct reg_entry *entry;
	struct rp_mr *mr;
	int ret = -ENOSPC;

	if (device->reg_cache)
		ret = reg_cache_get(device->reg_cache, iov->data, iov->bytes, &entry);
	if (ret == 0) {
		call->cached[call->cached_count++] = entry;
		*ret_rkey = reg_entry_rkey(entry);
		return 0;
	}
	ret = body ? body_mr_open(device, iov->data, iov->bytes, &mr)
		   : mr_open(device, iov->data, iov->bytes, -1, &mr);
	if (ret)
		return ret;
	client->stats.registrations++;
	call->mrs[call->mr_count++] = mr;
	*ret_rkey = rp_mr_rkey(mr);
	return 0;
}

/* Names each run of the list, and registers unregistered memory. */
static int runs_name(
	struct client_call *call, bool body, struct capsule_run *ret_runs, uint32_t *ret_run_count)
{
	const struct neb_iov *iov = body ? call->body : call->into;
	uint32_t count = body ? call->body_count : call->into_count;
	uint32_t run_count = 0;

	for (uint32_t i = 0; i < count; i++) {
		const struct rp_mr *mr = mr_of(call, iov[i].data, iov[i].bytes);
		uint32_t rkey = mr ? rp_mr_rkey(mr) : 0;
		int ret;

		if (!iov[i].bytes)
			continue;
		ret = mr ? 0 : key_for_call(call, body, &iov[i], &rkey);
		if (ret) {
			client_runs_end(call, 0);
			return ret;
		}
		run_set(&ret_runs[run_count++], iov[i].data, iov[i].bytes, rkey);
	}
	*ret_run_count = run_count;
	return 0;
}

static bool iov_known(const struct client_call *call, const struct neb_iov *iov, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (iov[i].bytes && !mr_of(call, iov[i].data, iov[i].bytes))
			return false;
	return true;
}

/* True when some of it is a GPU's that the card cannot reach, or that the processor must
 * decrypt. */
static bool iov_staged(const struct client_call *call, const struct neb_iov *iov, uint32_t count)
{
	const struct client_session *session = call->session;

	for (uint32_t i = 0; i < count; i++)
		if (iov[i].bytes && client_gpu_owns(iov[i].data) &&
			((session && session->encrypted) ||
				!mr_of(call, iov[i].data, iov[i].bytes)))
			return true;
	return false;
}

bool client_memory_known(const struct client_call *call)
{
	return iov_known(call, call->into, call->into_count);
}

void client_memory_look(const struct client_call *call)
{
	if (!iov_known(call, call->body, call->body_count) || !client_memory_known(call))
		client_gpu_look();
}

int client_runs(
	struct client_call *call, bool body, struct capsule_run *ret_runs, uint32_t *ret_run_count)
{
	const struct neb_iov *iov = body ? call->body : call->into;
	uint32_t count = body ? call->body_count : call->into_count;

	if (body && call->into_bytes)
		return bounce(call, body, MAX(call->body_bytes, call->into_bytes), ret_runs,
			ret_run_count);
	if (iov_staged(call, iov, count))
		return bounce(call, body, body ? call->body_bytes : call->into_bytes, ret_runs,
			ret_run_count);
	if (!iov_known(call, iov, count) &&
		(body ? call->body_bytes : call->into_bytes) <= CLIENT_BOUNCE_BYTES_MAX &&
		bounce(call, body, body ? call->body_bytes : call->into_bytes, ret_runs,
			ret_run_count) == 0)
		return 0;
	return runs_name(call, body, ret_runs, ret_run_count);
}

void client_runs_end(struct client_call *call, uint64_t moved)
{
	if (call->bounce) {
		if (moved)
			client_scatter(call, 0, call->bounce, moved);
		client_pool_put(call->client, call->bounce);
		call->bounce = NULL;
	}
	while (call->mr_count)
		rp_mr_close(call->mrs[--call->mr_count]);
	if (call->sealed) {
		if (moved)
			client_scatter(call, 0, call->sealed, moved);
		munmap(call->sealed, call->sealed_bytes);
		call->sealed = NULL;
	}
	while (call->cached_count)
		reg_cache_put(device_of(call)->reg_cache, call->cached[--call->cached_count]);
}
