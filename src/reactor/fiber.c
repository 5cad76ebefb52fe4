/* reactor/fiber.c: creates fibers. Their mappings (guard page, stack, structure) are made on
 * demand, cached when a fiber ends, and unmapped with the reactor. */
#include "reactor/reactor_priv.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#if SANITIZER_ADDRESS
#include <sanitizer/asan_interface.h>
#endif

DEFINE_COUNTER_FULL(fibers_full, "fibers");

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102 /* Linux 6.13 */
#endif

/* Equal offsets in page-aligned stacks would make all fibers compete for the same few cache sets,
 * so each starts a few lines lower than the one before. */
#define COLOUR_BYTES 64u
#define COLOURS	     32u

_Static_assert(COLOUR_BYTES *COLOURS + sizeof(struct fiber) < STACK_BYTES_MIN / 4,
	"most of the smallest stack is stack");

/* The kernel bounds the number of mappings (vm.max_map_count). A guard by madvise leaves
 * neighbouring stacks one mapping. A guard by mprotect works everywhere. */
static int guard(char *map, size_t bytes)
{
	if (madvise(map, bytes, MADV_GUARD_INSTALL) == 0)
		return 0;
	return mprotect(map, bytes, PROT_NONE) ? -errno : 0;
}

static _Thread_local struct fiber *helped;

void fiber_request_set(const char *id)
{
	struct fiber *fiber = fiber_self();

	size_t len = strnlen(id, sizeof(fiber->request) - 1);

	if (!fiber)
		return;
	memcpy(fiber->request, id, len);
	fiber->request[len] = '\0';
}

const char *fiber_request(void)
{
	struct fiber *fiber = fiber_self();

	return fiber ? fiber->request : helped ? helped->request : NULL;
}

void fiber_helped_set(struct fiber *fiber)
{
	helped = fiber;
}

static struct fiber *fiber_map(struct reactor *reactor)
{
	uint32_t page_bytes = reactor->page_bytes;
	size_t map_bytes = page_bytes + reactor->opts.fiber_stack_bytes;
	size_t colour = reactor->fibers_mapped % COLOURS * COLOUR_BYTES;
	struct fiber *fiber;
	char *map;

	map = mmap(NULL, map_bytes, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
	if (map == MAP_FAILED)
		return NULL;
	if (guard(map, page_bytes) != 0) {
		munmap(map, map_bytes);
		return NULL;
	}
	fiber = (struct fiber *)(void *)(map + map_bytes - ALIGN_UP(sizeof(*fiber), 64) - colour);
	fiber->reactor = reactor;
	fiber->map = map;
	fiber->stack = map + page_bytes;
	fiber->stack_bytes = (size_t)((char *)fiber - fiber->stack);
	fiber->state = FIBER_IDLE;
	fiber->remote_msg.fn = fiber_remote_arrived;
	atomic_init(&fiber->remote_posted, false);
	list_init(&fiber->place.link);
	list_push_back(&reactor->fibers_all, &fiber->all_link);
	reactor->fibers_mapped++;
	return fiber;
}

void fiber_unmap(struct fiber *fiber)
{
	struct reactor *reactor = fiber->reactor;
	int err;

	CHECK(fiber->state == FIBER_IDLE);
#if SANITIZER_ADDRESS
	ASAN_UNPOISON_MEMORY_REGION(fiber->stack, fiber->stack_bytes);
#endif
	list_remove(&fiber->all_link);
	reactor->fibers_mapped--;
	err = munmap(fiber->map, reactor->page_bytes + reactor->opts.fiber_stack_bytes);
	CHECK(err == 0);
}

static int idle_add(struct reactor *reactor)
{
	struct fiber *fiber = fiber_map(reactor);

	if (!fiber)
		return -ENOMEM;
	list_push_back(&reactor->fibers_idle, &fiber->place.link);
	return 0;
}

int fibers_keep(struct reactor *reactor)
{
	int ret = 0;

	while (!ret && reactor->fibers_mapped < LIMIT_FIBERS_KEPT)
		ret = idle_add(reactor);
	return ret;
}

static void fibers_count(struct reactor *reactor)
{
	__atomic_store_n(&reactor->stats.fibers, reactor->stats.fibers + 1, __ATOMIC_RELAXED);
}

/* A fiber within the limit. The kept ones stay mapped beyond it. */
static int reserve(struct reactor *reactor)
{
	uint32_t kept = LIMIT_FIBERS_KEPT - reactor->kept_used;

	check_thread(reactor);
	if (reactor->stats.fibers - reactor->kept_used >= reactor->opts.fibers_max)
		return -EAGAIN;
	if (reactor->stats.fibers + kept == reactor->fibers_mapped && idle_add(reactor))
		return -ENOMEM;
	fibers_count(reactor);
	return 0;
}

/* Makes sure of a fiber for a later fiber_begin. */
static int fiber_reserve(struct reactor *reactor)
{
	int ret = reserve(reactor);

	if (ret == -EAGAIN)
		counter_add(&fibers_full, 1);
	return ret;
}

/* Of the kept ones. The last FIBERS_KEPT_INNERMOST are for innermost starts alone: so when all are
 * in use, at least that many run a function that waits for no other start, and will end. */
static int reserve_kept(struct reactor *reactor, bool innermost)
{
	uint32_t max = LIMIT_FIBERS_KEPT - (innermost ? 0 : FIBERS_KEPT_INNERMOST);

	if (reactor->kept_used >= max)
		return -EAGAIN;
	CHECK(reactor->stats.fibers < reactor->fibers_mapped);
	reactor->kept_used++;
	fibers_count(reactor);
	return 0;
}

struct fiber *fiber_begin(struct reactor *reactor, const struct fiber_start *start)
{
	struct fiber *fiber =
		CONTAINER_OF(list_pop(&reactor->fibers_idle), struct fiber, place.link);

	CHECK(fiber->state == FIBER_IDLE);
#if SANITIZER_ADDRESS
	/* The function that ran here last never returned from its outermost frame. */
	ASAN_UNPOISON_MEMORY_REGION(fiber->stack, fiber->stack_bytes);
#endif
#if SANITIZER_THREAD
	fiber->sanitizer = __tsan_create_fiber(0);
#else
	fiber->sanitizer = NULL;
#endif
	fiber->name = start->name;
	memcpy(fiber->request, reactor->running ? reactor->running->request : "",
		reactor->running ? sizeof(fiber->request) : 1);
	fiber->fn = start->fn;
	fiber->arg = start->arg;
	fiber->cause = CAUSE_OTHER;
	fiber->wake_pending = false;
	switch_prepare(&fiber->ctx, fiber->stack, fiber->stack_bytes, fiber_main, fiber);
	fiber->state = FIBER_RUNNABLE;
	fiber->place.share = start->place.share;
	return fiber;
}

int fiber_start_in(struct reactor *reactor, uint16_t share, struct fiber_start *start)
{
	int ret = fiber_reserve(reactor);

	CHECK(share < REACTOR_SHARES);
	if (ret)
		return ret;
	start->place.share = share;
	start->place.is_start = true;
	share_push(reactor, &start->place);
	return 0;
}

static void starts_serve(struct reactor *reactor, struct list *starts, bool innermost)
{
	while (!list_empty(starts) && (!reserve(reactor) || !reserve_kept(reactor, innermost)))
		share_push(reactor, CONTAINER_OF(list_pop(starts), struct fiber_place, link));
}

void fiber_starts_serve(struct reactor *reactor)
{
	reactor->kept_used--;
	starts_serve(reactor, &reactor->starts_innermost, true);
	starts_serve(reactor, &reactor->starts_outer, false);
}

void fiber_start_surely(struct reactor *reactor, struct fiber_start *start, bool innermost)
{
	struct list *starts = innermost ? &reactor->starts_innermost : &reactor->starts_outer;

	start->place.share = reactor->running ? reactor->running->place.share : 0;
	if (list_empty(starts) && !reserve(reactor)) {
		share_push(reactor, &fiber_begin(reactor, start)->place);
		return;
	}
	start->place.is_start = true;
	list_push_back(starts, &start->place.link);
	starts_serve(reactor, starts, innermost);
}

int fiber_spawn(struct reactor *reactor, const char *name, fiber_fn *fn, void *arg)
{
	const struct fiber_start start = {
		.place.share = reactor->running ? reactor->running->place.share : 0,
		.name = name,
		.fn = fn,
		.arg = arg};
	int ret = fiber_reserve(reactor);

	if (!ret)
		share_push(reactor, &fiber_begin(reactor, &start)->place);
	return ret;
}
