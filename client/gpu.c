/* client/gpu.c: memory of a GPU. This file is not linked against CUDA: a program with such memory
 * has loaded CUDA's driver library, and only then this file uses it. The card reads and writes the
 * memory that it can reach; other memory is copied through the pool. */
#include "client_priv.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

/* The part of the CUDA driver API that this file calls; the values are part of its ABI. */
#define CUDA_SUCCESS		     0
#define CUDA_ATTRIBUTE_CONTEXT	     1
#define CUDA_ATTRIBUTE_MEMORY_TYPE   2
#define CUDA_MEMORY_TYPE_DEVICE	     2u
#define CUDA_RANGE_HANDLE_DMA_BUF_FD 1
#define GPU_PAGE_BYTES		     (64 * KIB)

struct cuda {
	void *library;
	int (*pointer_attribute)(void *data, int attribute, uint64_t address);
	int (*copy)(uint64_t to, uint64_t from, size_t bytes);
	int (*context_push)(void *context);
	int (*context_pop)(void **ret_context);
	int (*synchronize)(void);
	int (*stream_synchronize)(void *stream); /* NULL: the stream of copy */
	/* Since CUDA 11.7; else NULL. */
	int (*range_handle)(
		void *handle, uint64_t address, size_t bytes, int type, unsigned long long flags);
};

/* Loaded once, by the first thread that finds it; never unloaded. */
static struct cuda cuda;
static atomic_bool cuda_ready;
static pthread_mutex_t cuda_loading = PTHREAD_MUTEX_INITIALIZER;
/* The count of libraries when CUDA was looked for: until it changes, CUDA is not there. */
static _Atomic unsigned long long looked_at;

static bool symbol(const char *name, void *ret_function)
{
	void *address = dlsym(cuda.library, name);

	memcpy(ret_function, &address, sizeof(address));
	return address != NULL;
}

/* Under the lock. */
static void cuda_load(void)
{
	cuda.library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	if (cuda.library && symbol("cuPointerGetAttribute", &cuda.pointer_attribute) &&
		symbol("cuMemcpy", &cuda.copy) &&
		symbol("cuCtxPushCurrent_v2", &cuda.context_push) &&
		symbol("cuCtxPopCurrent_v2", &cuda.context_pop) &&
		symbol("cuCtxSynchronize", &cuda.synchronize) &&
		symbol("cuStreamSynchronize", &cuda.stream_synchronize)) {
		symbol("cuMemGetHandleForAddressRange", &cuda.range_handle);
		atomic_store(&cuda_ready, true);
		return;
	}
	if (cuda.library)
		dlclose(cuda.library);
	cuda.library = NULL;
}

static int loads_of(struct dl_phdr_info *info, size_t bytes, void *arg)
{
	(void)bytes;
	*(unsigned long long *)arg = info->dlpi_adds;
	return 1;
}

/* dlopen searches the file system when it does not find the library among the loaded ones. */
void client_gpu_look(void)
{
	unsigned long long loads = 0;

	if (atomic_load_explicit(&cuda_ready, memory_order_acquire))
		return;
	dl_iterate_phdr(loads_of, &loads);
	if (loads == looked_at)
		return;
	pthread_mutex_lock(&cuda_loading);
	if (!cuda_ready)
		cuda_load();
	looked_at = loads;
	pthread_mutex_unlock(&cuda_loading);
}

bool client_gpu_owns(const void *data)
{
	unsigned type = 0;

	return atomic_load_explicit(&cuda_ready, memory_order_acquire) &&
	       cuda.pointer_attribute(&type, CUDA_ATTRIBUTE_MEMORY_TYPE,
		       (uint64_t)(uintptr_t)data) == CUDA_SUCCESS &&
	       type == CUDA_MEMORY_TYPE_DEVICE;
}

static bool context_enter(const void *data)
{
	void *context = NULL;

	return cuda.pointer_attribute(&context, CUDA_ATTRIBUTE_CONTEXT,
		       (uint64_t)(uintptr_t)data) == CUDA_SUCCESS &&
	       cuda.context_push(context) == CUDA_SUCCESS;
}

static void context_leave(void)
{
	void *context;

	cuda.context_pop(&context);
}

int client_gpu_settle(const void *data)
{
	int ret;

	if (!context_enter(data))
		return -EIO;
	ret = cuda.synchronize();
	context_leave();
	return ret == CUDA_SUCCESS ? 0 : -EIO;
}

int client_gpu_copy(void *to, const void *from, uint64_t bytes)
{
	int ret;

	if (!context_enter(client_gpu_owns(to) ? to : from))
		return -EIO;
	ret = cuda.copy((uint64_t)(uintptr_t)to, (uint64_t)(uintptr_t)from, bytes);
	context_leave();
	return ret == CUDA_SUCCESS ? 0 : -EIO;
}

int client_gpu_land(const void *data)
{
	int ret;

	if (!context_enter(data))
		return -EIO;
	ret = cuda.stream_synchronize(NULL);
	context_leave();
	return ret == CUDA_SUCCESS ? 0 : -EIO;
}

/* Registers by a dma-buf, which needs no kernel module if driver and kernel support it. */
static int dma_buf_register(
	struct rp_pd *pd, uint8_t *data, uint64_t bytes, uint32_t access, struct rp_mr **ret_mr)
{
	uint64_t start = (uint64_t)(uintptr_t)data & ~(GPU_PAGE_BYTES - 1);
	uint64_t before = (uint64_t)(uintptr_t)data - start;
	uint64_t range = ALIGN_UP(before + bytes, GPU_PAGE_BYTES);
	struct rp_mr_opts opts = {.addr = data,
		.bytes = bytes,
		.access = access,
		.fd = -1,
		.fd_offset = before,
		.dma_buf = true};
	int ret;

	if (!cuda.range_handle || !context_enter(data))
		return -EOPNOTSUPP;
	ret = cuda.range_handle(&opts.fd, start, range, CUDA_RANGE_HANDLE_DMA_BUF_FD, 0);
	context_leave();
	if (ret != CUDA_SUCCESS)
		return -EOPNOTSUPP;
	ret = rp_mr_open(pd, &opts, ret_mr);
	close(opts.fd);
	return ret;
}

int client_gpu_register(const struct client_domain *domain, void *data, uint64_t bytes,
	uint32_t access, struct rp_mr **ret_mr)
{
	struct rp_mr_opts opts = {.addr = data, .bytes = bytes, .access = access, .fd = -1};
	struct rp_device_attr device;
	int ret;

	if (!domain->pd)
		return -EOPNOTSUPP;
	rp_device_attr(domain->device, &device);
	if (device.simulated)
		return -EOPNOTSUPP; /* it copies by the processor, which cannot reach these */
	ret = dma_buf_register(domain->pd, data, bytes, access, ret_mr);
	/* With nvidia-peermem the kernel knows that the address is a GPU's. */
	return ret ? rp_mr_open(domain->pd, &opts, ret_mr) : 0;
}
