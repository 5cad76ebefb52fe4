/* tests/unit/client/fake_cuda.c: a libcuda.so.1 whose device memory the processor cannot touch:
 * pages without access rights, mapped a second time for the "driver" only. As the real driver may,
 * it returns from a copy into device memory before the bytes are there; they come when the program
 * synchronizes, or with the next copy out of device memory. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define DEVICE_BYTES (8u << 20)
#define COPIES_MAX   1024u

static uint8_t *device, *shadow;
static int depth, fail_copies, fail_landing;
static unsigned synchronized;
/* The driver's copies of what was copied into device memory, in their order. */
static struct {
	void *to, *from;
	size_t bytes;
} flying[COPIES_MAX];
static unsigned flying_count;

int cuPointerGetAttribute(void *data, int attribute, uint64_t address);
int cuMemcpy(uint64_t to, uint64_t from, size_t bytes);
int cuCtxPushCurrent_v2(void *context);
int cuCtxPopCurrent_v2(void **ret_context);
int cuCtxSynchronize(void);
int cuStreamSynchronize(void *stream);
int cuMemGetHandleForAddressRange(
	void *handle, uint64_t address, size_t bytes, int type, unsigned long long flags);
void *fake_device_memory(void);
uint8_t *fake_device_shadow(void);
void fake_copies_fail(int fail);
void fake_landing_fails(int fails);
unsigned fake_copies_flying(void);
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

static void land(void)
{
	for (unsigned i = 0; i < flying_count; i++) {
		memcpy(flying[i].to, flying[i].from, flying[i].bytes);
		free(flying[i].from);
	}
	flying_count = 0;
}

int cuMemcpy(uint64_t to, uint64_t from, size_t bytes)
{
	if (depth < 1 || fail_copies)
		return 700;
	if (!inside(to) || inside(from) || flying_count == COPIES_MAX)
		land();
	if (!inside(to) || inside(from)) {
		memcpy(reach(to), reach(from), bytes);
		return 0;
	}
	flying[flying_count].to = reach(to);
	flying[flying_count].from = malloc(bytes + 1);
	flying[flying_count].bytes = bytes;
	if (!flying[flying_count].from)
		abort();
	memcpy(flying[flying_count++].from, reach(from), bytes);
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
	land();
	return depth < 1;
}

int cuStreamSynchronize(void *stream)
{
	if (depth < 1 || stream || fail_landing)
		return 700;
	land();
	return 0;
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

void fake_landing_fails(int fails)
{
	fail_landing = fails;
}

unsigned fake_copies_flying(void)
{
	return flying_count;
}

unsigned fake_synchronized(void)
{
	return synchronized;
}
