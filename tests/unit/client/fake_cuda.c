/* tests/unit/client/fake_cuda.c: a libcuda.so.1 whose device memory the processor cannot touch:
 * pages without access rights, mapped a second time for the "driver" only. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define DEVICE_BYTES (8u << 20)

static uint8_t *device, *shadow;
static int depth, fail_copies;
static unsigned synchronized;

int cuPointerGetAttribute(void *data, int attribute, uint64_t address);
int cuMemcpy(uint64_t to, uint64_t from, size_t bytes);
int cuCtxPushCurrent_v2(void *context);
int cuCtxPopCurrent_v2(void **ret_context);
int cuCtxSynchronize(void);
int cuMemGetHandleForAddressRange(
	void *handle, uint64_t address, size_t bytes, int type, unsigned long long flags);
void *fake_device_memory(void);
uint8_t *fake_device_shadow(void);
void fake_copies_fail(int fail);
unsigned fake_synchronized(void);

static int inside(uint64_t address)
{
	return device && address - (uint64_t)(uintptr_t)device < DEVICE_BYTES;
}

static void *reach(uint64_t address)
{
	return inside(address) ? shadow + (address - (uint64_t)(uintptr_t)device)
			       : (void *)(uintptr_t)address;
}

int cuPointerGetAttribute(void *data, int attribute, uint64_t address)
{
	void *context = shadow;

	if (!inside(address))
		return 1;
	if (attribute == 1)
		memcpy(data, &context, sizeof(context));
	else
		*(unsigned *)data = 2;
	return 0;
}

int cuMemcpy(uint64_t to, uint64_t from, size_t bytes)
{
	if (depth < 1 || fail_copies)
		return 700;
	memcpy(reach(to), reach(from), bytes);
	return 0;
}

int cuCtxPushCurrent_v2(void *context)
{
	depth += context == shadow;
	return context == shadow ? 0 : 201;
}

int cuCtxPopCurrent_v2(void **ret_context)
{
	depth--;
	*ret_context = shadow;
	return 0;
}

int cuCtxSynchronize(void)
{
	synchronized++;
	return depth < 1;
}

int cuMemGetHandleForAddressRange(
	void *handle, uint64_t address, size_t bytes, int type, unsigned long long flags)
{
	(void)handle;
	(void)address;
	(void)bytes;
	(void)type;
	(void)flags;
	return 801; /* not supported */
}

void *fake_device_memory(void)
{
	int fd = memfd_create("device", MFD_CLOEXEC);

	if (device)
		return device;
	if (fd < 0 || ftruncate(fd, DEVICE_BYTES))
		abort();
	shadow = mmap(NULL, DEVICE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	device = mmap(NULL, DEVICE_BYTES, PROT_NONE, MAP_SHARED, fd, 0);
	if (shadow == MAP_FAILED || device == MAP_FAILED)
		abort();
	close(fd);
	return device;
}

uint8_t *fake_device_shadow(void)
{
	return shadow;
}

void fake_copies_fail(int fail)
{
	fail_copies = fail;
}

unsigned fake_synchronized(void)
{
	return synchronized;
}
