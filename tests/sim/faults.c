/* tests/sim/faults.c: one call fails, the nth of its kind: an allocation, a mapping, a new
 * descriptor, an operation of a disk, a transfer over a socket. */
#include "world.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

const char *const WORLD_FAULTS[WORLD_FAULT_COUNT] = {
	"memory", "mapping", "descriptor", "disk", "net"};

static struct {
	enum world_fault_kind kind;
	uint64_t nth; /* 0: none fails */
	uint64_t *seen;
} plan;

void world_fault_plan(enum world_fault_kind kind, uint64_t nth, uint64_t *seen)
{
	plan.kind = kind;
	plan.nth = nth;
	plan.seen = seen;
}

bool world_fault_comes(enum world_fault_kind kind)
{
	if (!plan.seen || plan.kind != kind || ++*plan.seen != plan.nth)
		return false;
	world_trace("fails", kind, plan.nth);
	return true;
}

static bool no_memory(void)
{
	if (!world_fault_comes(WORLD_FAULT_MEMORY))
		return false;
	errno = ENOMEM;
	return true;
}

void *__wrap_malloc(size_t bytes)
{
	return no_memory() ? NULL : malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
	return no_memory() ? NULL : calloc(count, bytes);
}

void *__wrap_realloc(void *memory, size_t bytes)
{
	return no_memory() ? NULL : realloc(memory, bytes);
}

void *__real_aligned_alloc(size_t align, size_t bytes);
void *__wrap_aligned_alloc(size_t align, size_t bytes)
{
	return no_memory() ? NULL : __real_aligned_alloc(align, bytes);
}

int __real_posix_memalign(void **ret_memory, size_t align, size_t bytes);
int __wrap_posix_memalign(void **ret_memory, size_t align, size_t bytes)
{
	return no_memory() ? ENOMEM : __real_posix_memalign(ret_memory, align, bytes);
}

void *__real_mmap64(void *at, size_t bytes, int prot, int flags, int fd, off_t offset);
void *__wrap_mmap64(void *at, size_t bytes, int prot, int flags, int fd, off_t offset)
{
	if (!world_fault_comes(WORLD_FAULT_MAPPING))
		return __real_mmap64(at, bytes, prot, flags, fd, offset);
	errno = ENOMEM;
	return MAP_FAILED;
}

static bool no_descriptor(void)
{
	if (!world_fault_comes(WORLD_FAULT_DESCRIPTOR))
		return false;
	errno = EMFILE;
	return true;
}

int __real_eventfd(unsigned count, int flags);
int __wrap_eventfd(unsigned count, int flags)
{
	return no_descriptor() ? -1 : __real_eventfd(count, flags);
}

int __real_epoll_create1(int flags);
int __wrap_epoll_create1(int flags)
{
	return no_descriptor() ? -1 : __real_epoll_create1(flags);
}

int __real_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags)
{
	return no_descriptor() ? -1 : __real_memfd_create(name, flags);
}

int __real_accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags);
int __wrap_accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
	return no_descriptor() ? -1 : __real_accept4(fd, addr, len, flags);
}
