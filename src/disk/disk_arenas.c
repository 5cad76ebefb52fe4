/* disk/disk_arenas.c: the region's arenas as fixed buffers of a ring. The slot of an extension that
 * is not there is empty. */
#include "disk/disk_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

DEFINE_COUNTER(attach_refused, "nebulaio_disk_fixed_buffers_refused_total", NULL,
	"Reactors whose arenas could not be registered as fixed buffers.");

struct ring_arenas {
	struct region_watch watch;
	struct io_uring *ring;
	const struct region *region;
	uint64_t registered; /* one bit for each arena */
};

static struct iovec arena_iov(const struct region *region, uint32_t arena_idx)
{
	struct region_arena arena;

	if (!region_arena_registers(region, arena_idx))
		return (struct iovec){NULL, 0};
	arena = region_arena(region, arena_idx);
	return (struct iovec){arena.base, arena.bytes};
}

static int slot_set(struct ring_arenas *self, uint32_t arena_idx, struct iovec iov)
{
	int ret = io_uring_register_buffers_update_tag(self->ring, arena_idx, &iov, NULL, 1);

	return ret < 0 ? ret : 0;
}

static int ring_attach(struct region_watch *watch, uint32_t arena_idx)
{
	struct ring_arenas *self = CONTAINER_OF(watch, struct ring_arenas, watch);
	int ret;

	if (self->registered >> arena_idx & 1)
		return 0;
	ret = slot_set(self, arena_idx, arena_iov(self->region, arena_idx));
	if (!ret)
		self->registered |= 1ull << arena_idx;
	return ret;
}

static void ring_detach(struct region_watch *watch, uint32_t arena_idx)
{
	struct ring_arenas *self = CONTAINER_OF(watch, struct ring_arenas, watch);
	int ret;

	if (!(self->registered >> arena_idx & 1))
		return;
	ret = slot_set(self, arena_idx, (struct iovec){NULL, 0});
	CHECK(ret == 0);
	self->registered &= ~(1ull << arena_idx);
}

static void ring_ended(struct region_watch *watch)
{
	free(CONTAINER_OF(watch, struct ring_arenas, watch));
}

/* Before the buffers are registered: an extension that comes in between is then attached twice, and
 * not missed. NULL: no memory. */
static struct ring_arenas *ring_watch(
	struct io_uring *ring, const struct reactor *reactor, struct region *region)
{
	struct ring_arenas *self = (struct ring_arenas *)calloc(1, sizeof(*self));

	if (!self)
		return NULL;
	self->watch = (struct region_watch){
		.attach = ring_attach, .detach = ring_detach, .ended = ring_ended};
	self->ring = ring;
	self->region = region;
	for (uint32_t i = 0; i < region_arena_count(region); i++)
		if (region_arena_registers(region, i))
			self->registered |= 1ull << i;
	region_watch_add(region_ring(region, reactor_core_idx(reactor)), &self->watch);
	return self;
}

static int ring_register(
	struct io_uring *ring, const struct region *region, const struct ring_arenas *self)
{
	struct iovec iov[LIMIT_ARENAS_MAX];
	uint32_t count = region_arena_count(region);

	for (uint32_t i = 0; i < count; i++)
		iov[i] = !self || self->registered >> i & 1 ? arena_iov(region, i)
							    : (struct iovec){NULL, 0};
	return io_uring_register_buffers(ring, iov, count);
}

bool disk_arenas_register(struct io_uring *ring, const struct reactor *reactor,
	struct region *region, struct region_watch **ret_watch)
{
	struct ring_arenas *self = NULL;
	int ret = 0;

	if (region_extension_count(region)) {
		self = ring_watch(ring, reactor, region);
		ret = self ? 0 : -ENOMEM;
	}
	if (!ret)
		ret = ring_register(ring, region, self);
	if (!ret && ret_watch)
		*ret_watch = self ? &self->watch : NULL;
	if (!ret)
		return true;
	disk_arenas_forget(self ? &self->watch : NULL);
	if (ret == -EBUSY) /* a second volume on this reactor */
		return true;
	counter_add(&attach_refused, 1);
	log_warn("disk",
		"core %u: the region cannot be registered with io_uring (%s): using plain "
		"buffers, which costs some processor time; raise the limit of locked memory "
		"(ulimit -l, LimitMEMLOCK= in systemd)",
		reactor_core_idx(reactor), strerror(-ret));
	return false;
}

void disk_arenas_forget(struct region_watch *watch)
{
	if (!watch)
		return;
	region_watch_remove(watch);
	watch->ended(watch);
}
