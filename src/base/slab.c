/* base/slab.c: slabs of 2 MiB, each with structs of one size. */
#include "base/slab.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/base.h"
#include "base/sanitizer.h"

#define SLAB_BYTES  (2 * MIB)
#define STEP_BYTES  32u
#define CLASS_COUNT (SLAB_STRUCT_BYTES_MAX / STEP_BYTES)
#define HEAD_BYTES  64u

_Static_assert(SLAB_STRUCT_BYTES_MAX % STEP_BYTES == 0, "the last class is whole");

/* A free struct holds the address of the next one. */
struct slab_hole {
	struct slab_hole *next;
};

/* The head of a slab. It is in its class's list while it has room. */
struct slab {
	struct list room;
	struct slab_hole *holes;
	uint32_t used;	/* structs */
	uint32_t fresh; /* structs from here on were never used, and are zero */
	uint32_t count;
};
_Static_assert(sizeof(struct slab) <= HEAD_BYTES, "the head fits before the first struct");

struct slab_class {
	_Alignas(64) pthread_mutex_t lock;
	struct list room; /* next is NULL before the first slab */
	uint32_t slab_count;
};

static struct slab_class classes[CLASS_COUNT] = {
	[0 ... CLASS_COUNT - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER}};
static _Atomic bool huge_pages = true;

void slab_huge_pages(bool huge)
{
	atomic_store(&huge_pages, huge);
}

static struct slab *slab_of(void *memory)
{
	return (struct slab *)((uintptr_t)memory & ~(uintptr_t)(SLAB_BYTES - 1));
}

static void *struct_at(struct slab *slab, uint32_t idx, size_t struct_bytes)
{
	return (char *)slab + HEAD_BYTES + idx * struct_bytes;
}

/* A stretch of 2 MiB at a multiple of 2 MiB. */
static void *map_aligned(void)
{
	char *at = (char *)mmap(NULL, 2 * SLAB_BYTES, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char *aligned;

	if (at == MAP_FAILED)
		return NULL;
	aligned = (char *)ALIGN_UP((uintptr_t)at, (uintptr_t)SLAB_BYTES);
	if (aligned > at)
		munmap(at, (size_t)(aligned - at));
	if (at + SLAB_BYTES > aligned)
		munmap(aligned + SLAB_BYTES, (size_t)(at + SLAB_BYTES - aligned));
	return aligned;
}

/* The class is locked. */
static struct slab *slab_open(struct slab_class *class, size_t struct_bytes)
{
	struct slab *slab = (struct slab *)map_aligned();

	if (!slab)
		return NULL;
	/* A process with few structs keeps to small pages. */
	if (class->slab_count && atomic_load_explicit(&huge_pages, memory_order_relaxed))
		madvise(slab, SLAB_BYTES, MADV_HUGEPAGE);
	slab->count = (uint32_t)((SLAB_BYTES - HEAD_BYTES) / struct_bytes);
	list_push_front(&class->room, &slab->room);
	class->slab_count++;
	return slab;
}

static void *class_alloc(struct slab_class *class, size_t struct_bytes, bool *ret_zero)
{
	struct slab *slab = NULL;
	void *memory;

	if (!class->room.next)
		list_init(&class->room);
	if (!list_empty(&class->room))
		slab = CONTAINER_OF(class->room.next, struct slab, room);
	else
		slab = slab_open(class, struct_bytes);
	if (!slab)
		return NULL;
	*ret_zero = !slab->holes;
	if (slab->holes) {
		memory = slab->holes;
		slab->holes = slab->holes->next;
	} else {
		memory = struct_at(slab, slab->fresh++, struct_bytes);
	}
	if (++slab->used == slab->count)
		list_remove(&slab->room);
	return memory;
}

void *slab_alloc(size_t bytes)
{
	size_t idx = bytes ? (bytes - 1) / STEP_BYTES : 0;
	struct slab_class *class;
	bool zero = true;
	void *memory;

	if (SANITIZER_ADDRESS || idx >= CLASS_COUNT)
		return calloc(1, bytes);
	class = &classes[idx];
	pthread_mutex_lock(&class->lock);
	memory = class_alloc(class, (idx + 1) * STEP_BYTES, &zero);
	pthread_mutex_unlock(&class->lock);
	if (memory && !zero)
		memset(memory, 0, bytes);
	return memory;
}

void slab_free(void *memory, size_t bytes)
{
	size_t idx = bytes ? (bytes - 1) / STEP_BYTES : 0;
	struct slab_class *class;
	struct slab_hole *hole = (struct slab_hole *)memory;
	struct slab *slab, *empty = NULL;

	if (!memory || SANITIZER_ADDRESS || idx >= CLASS_COUNT) {
		free(memory);
		return;
	}
	class = &classes[idx];
	slab = slab_of(memory);
	pthread_mutex_lock(&class->lock);
	CHECK(slab->used > 0 &&
		slab->count == (SLAB_BYTES - HEAD_BYTES) / ((idx + 1) * STEP_BYTES));
	hole->next = slab->holes;
	slab->holes = hole;
	if (slab->used-- == slab->count)
		list_push_back(&class->room, &slab->room);
	/* The last slab with room stays for the next struct. */
	if (!slab->used && class->room.next != class->room.prev) {
		list_remove(&slab->room);
		class->slab_count--;
		empty = slab;
	}
	pthread_mutex_unlock(&class->lock);
	if (empty)
		munmap(empty, SLAB_BYTES);
}
