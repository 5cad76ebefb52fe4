#include "../own.h"
#include "../unit.h"

#include <errno.h>
#include <nebulaio/region.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A program that gives libnebulaio-region every wrong number it can: targets that are none, spans
 * that are out of date, shifted, too long or in use, parts that overlap, keys that nobody made. The
 * library refuses or completes all of it, and every frame comes back. */

#define PATIENCE_NS 120000000000ull
#define STEPS	    200000u
#define HELD_MAX    64u

struct world {
	struct neb_region *region;
	uint16_t disk, group, raw;
	struct neb_span held[HELD_MAX]; /* ours */
	uint32_t held_count;
	struct neb_span old[HELD_MAX]; /* were ours once */
	uint32_t old_count;
	uint64_t submitted, done, refused;
};

static uint32_t below(uint32_t bound)
{
	return (uint32_t)((uint64_t)lrand48() * bound >> 31);
}

static void hold(struct world *self, struct neb_span span)
{
	if (self->held_count == HELD_MAX)
		assert_int_equal(neb_span_give(self->region, &span), 0);
	else
		self->held[self->held_count++] = span;
}

static void forget(struct world *self, uint32_t i)
{
	self->old[self->old_count++ % HELD_MAX] = self->held[i];
	self->held[i] = self->held[--self->held_count];
}

static void lease(struct world *self)
{
	static const uint32_t BYTES[] = {0, 1, 4096, 4097, 65536, NEB_SPAN_BYTES_MAX, UINT32_MAX};
	uint32_t bytes = BYTES[below(7)];
	struct neb_span span;
	int ret = neb_span_lease(self->region, bytes, &span);

	if (bytes == 0 || bytes > NEB_SPAN_BYTES_MAX)
		assert_int_equal(ret, -EINVAL);
	else if (ret)
		assert_int_equal(ret, -ENOBUFS);
	else
		hold(self, span);
}

/* One of ours, an old one, or a mutation of either. */
static struct neb_span any_span(struct world *self)
{
	struct neb_span span = {0};

	if (self->held_count && below(8))
		span = self->held[below(self->held_count)];
	else if (self->old_count)
		span = self->old[below(self->old_count < HELD_MAX ? self->old_count : HELD_MAX)];
	switch (below(16)) {
	case 0:
		span.bytes += 1 + below(8191);
		break;
	case 1:
		span.frame += below(3) - 1;
		break;
	case 2:
		span.generation++;
		break;
	case 3:
		span.data = (void *)((uintptr_t)span.data + below(8192));
		break;
	default:
		break;
	}
	return span;
}

static uint16_t any_target(struct world *self)
{
	const uint16_t targets[] = {self->disk, self->group, self->raw, (uint16_t)below(65536)};

	return targets[below(4)];
}

static uint32_t any_number(void)
{
	static const uint32_t NUMBERS[] = {
		0, 0, 0, 1, 512, 4095, 4096, 8192, INT32_MAX, UINT32_MAX};

	return NUMBERS[below(10)];
}

static bool is_held(const struct world *self, const struct neb_span *span)
{
	for (uint32_t i = 0; i < self->held_count; i++) {
		const struct neb_span *held = &self->held[i];

		if (held->data == span->data && held->bytes == span->bytes &&
			held->frame == span->frame && held->generation == span->generation)
			return true;
	}
	return false;
}

static void taken(struct world *self, const struct neb_span *span)
{
	for (uint32_t i = 0; i < self->held_count; i++) {
		if (self->held[i].frame == span->frame) {
			forget(self, i);
			return;
		}
	}
	fail_msg("work took a span that was not ours");
}

static void submit(struct world *self)
{
	struct neb_work work = {.op = (enum neb_work_op)below(11),
		.target = any_target(self),
		.span = any_span(self),
		.at = any_number(),
		.bytes = any_number(),
		.offset = below(4) ? (uint64_t)below(512) * 4096
				   : (uint64_t)mrand48() << 32 ^ (uint64_t)mrand48(),
		.remote_addr = (uint64_t)mrand48() << 32 ^ (uint64_t)mrand48(),
		.rkey = (uint32_t)mrand48(),
		.imm = any_number(),
		.part_count = below(4) ? 0 : below(6)};
	bool spanless = work.op == NEB_FLUSH || work.op == NEB_DISCARD;
	int ret;

	for (uint32_t i = 0; i < NEB_PARTS_MAX; i++)
		work.parts[i] = (struct neb_part){any_span(self), any_number(), any_number()};
	ret = neb_work_submit(self->region, &work);
	if (ret) {
		assert_true(ret == -EAGAIN || ret == -EINVAL || ret == -ENOENT || ret == -EPERM ||
			    ret == -ESTALE || ret == -EMSGSIZE);
		self->refused++;
		return;
	}
	self->submitted++;
	if (spanless)
		return;
	assert_true(is_held(self, &work.span));
	taken(self, &work.span);
	for (uint32_t i = 0; i < work.part_count; i++) {
		assert_true(is_held(self, &work.parts[i].span));
		taken(self, &work.parts[i].span);
	}
}

static int reap(struct world *self, uint64_t timeout_ns)
{
	struct neb_done dones[8];
	int count = neb_work_reap(self->region, dones, 8, timeout_ns);

	for (int i = 0; i < count; i++) {
		self->done++;
		if (!dones[i].span.data)
			continue;
		hold(self, dones[i].span);
		for (uint32_t k = 0; k < dones[i].part_count; k++)
			hold(self, dones[i].parts[k]);
	}
	return count;
}

static void give(struct world *self)
{
	struct neb_span span = any_span(self);
	bool ours = is_held(self, &span);
	int ret = neb_span_give(self->region, &span);

	assert_int_equal(ret == 0, ours);
	if (ours)
		taken(self, &span);
}

static void connect_again(struct world *self)
{
	const struct neb_rdma_options options = {
		.receives = 2, .receive_bytes = 4096, .timeout_ns = PATIENCE_NS};
	const struct neb_rdma_frames take = {.everything = true};
	char group[OWN_GROUP_BYTES];

	neb_rdma_disconnect(self->region, self->group);
	neb_rdma_disconnect(self->region, self->raw);
	neb_rdma_disconnect(self->region, (uint16_t)below(65536));
	/* Either may find no frames for its receives. */
	if (neb_rdma_join(self->region, own_group(0, group), &options, &self->group))
		self->group = UINT16_MAX;
	if (neb_rdma_raw(self->region, &take, &options, &self->raw))
		self->raw = UINT16_MAX;
}

static void expose(struct world *self)
{
	struct neb_span span = any_span(self);
	uint32_t rkey;

	if (neb_rdma_expose(self->region, &span, below(2), &rkey) == 0) {
		assert_true(is_held(self, &span));
		assert_int_equal(neb_span_give(self->region, &span), -EBUSY);
		assert_int_equal(neb_rdma_conceal(self->region, rkey), 0);
		assert_int_equal(neb_rdma_conceal(self->region, rkey), -ENOENT);
	}
}

static void step(struct world *self)
{
	switch (below(12)) {
	case 0:
	case 1:
		lease(self);
		break;
	case 2:
		give(self);
		break;
	case 3:
		expose(self);
		break;
	case 4:
	case 5:
		reap(self, 0);
		break;
	case 6:
		if (below(100) == 0)
			connect_again(self);
		break;
	default:
		submit(self);
		break;
	}
}

static void wrong_numbers(void **state)
{
	const struct neb_region_options options = {.name = "random", .bytes = 16 << 20};
	char path[] = "/tmp/nebulaio-random-XXXXXX";
	struct world self = {.group = UINT16_MAX, .raw = UINT16_MAX};
	struct neb_usage usage;
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	srand48(7);
	assert_int_equal(neb_region_create(&options, &self.region), 0);
	assert_int_equal(neb_attach_rdma(self.region, "simulated"), 0);
	assert_int_equal(
		neb_attach_disk(self.region, path, NEB_DISK_OVERWRITE, 2 << 20, &self.disk), 0);
	connect_again(&self);
	assert_int_not_equal(self.group, UINT16_MAX);
	assert_int_not_equal(self.raw, UINT16_MAX);
	for (uint32_t i = 0; i < STEPS; i++)
		step(&self);
	neb_rdma_disconnect(self.region, self.group);
	neb_rdma_disconnect(self.region, self.raw);
	while (reap(&self, PATIENCE_NS)) {
	}
	while (self.held_count)
		assert_int_equal(neb_span_give(self.region, &self.held[--self.held_count]), 0);
	neb_region_usage(self.region, &usage);
	printf("# %lu submitted, %lu done, %lu refused\n", self.submitted, self.done, self.refused);
	assert_int_equal(usage.frames_by_owner[NEB_FREE], usage.frames);
	neb_region_destroy(self.region);
	close(fd);
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(wrong_numbers)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
