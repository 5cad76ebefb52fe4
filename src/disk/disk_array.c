/* disk/disk_array.c: arrays, several volumes as one: the state of the members, attaching, growing,
 * and operations from rings, each on its own fiber. */
#include "disk/disk_array.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

DEFINE_COUNTER(members_failed, "nebulaio_array_members_failed_total", NULL,
	"Volumes that the server stopped using because a write to them failed.");

static void array_close(struct disk *disk)
{
	if (!disk->array)
		return;
	for (uint32_t i = 0; i < DISK_MEMBERS_MAX; i++)
		disk_close(disk->array->members[i].disk);
	for (uint32_t i = 0; i < disk->array->retired_count; i++)
		disk_close(disk->array->retired[i]);
	free(disk->array);
}

/* ---- Geometries. ---- */

uint64_t disk_geometry_mask(const struct disk_geometry *geometry)
{
	uint64_t mask = 0;

	for (uint32_t i = 0; i < (uint32_t)geometry->data + geometry->parity; i++)
		mask |= 1ull << geometry->order[i];
	return mask;
}

/* Members of its log, one bit for each. */
static uint64_t geometry_log(const struct disk_geometry *geometry)
{
	uint64_t mask = 0;

	for (uint32_t i = 0; geometry->data && i <= geometry->parity; i++)
		mask |= 1ull << geometry->order[i];
	return mask;
}

bool disk_geometry_valid(const struct disk_geometry *geometry)
{
	uint32_t count = (uint32_t)geometry->data + geometry->parity;

	if (geometry->parity >= geometry->data || !geometry->parity || count > DISK_MEMBERS_MAX ||
		geometry->data > EC_DATA_MAX || geometry->parity > EC_PARITY_MAX)
		return false;
	for (uint32_t i = 0; i < count; i++)
		if (geometry->order[i] >= DISK_MEMBERS_MAX)
			return false;
	return (uint32_t)__builtin_popcountll(disk_geometry_mask(geometry)) == count;
}

static uint64_t mask_of(const struct array *array)
{
	uint64_t mask = 0;

	for (uint32_t g = 0; g < DISK_GEOMETRIES; g++)
		if (atomic_load_explicit(&array->geometries[g].used, memory_order_acquire))
			mask |= array->geometries[g].members;
	return mask;
}

static void log_update(struct array *array)
{
	uint64_t log = 0;

	for (uint32_t g = 0; g < DISK_GEOMETRIES; g++)
		if (atomic_load(&array->geometries[g].used))
			log |= geometry_log(&array->geometries[g].numbers);
	atomic_store(&array->log, log);
}

static void what_update(struct disk *disk)
{
	const struct array *array = disk->array;
	const struct array_geometry *geometry = &array->geometries[atomic_load(&array->current)];

	snprintf(disk->what, sizeof(disk->what), "%u volumes, erasure coded %u+%u",
		(uint32_t)__builtin_popcountll(mask_of(array)), geometry->data, geometry->parity);
}

static int geometry_use(struct array *array, uint32_t slot, const struct disk_geometry *numbers)
{
	struct array_geometry *geometry = &array->geometries[slot];

	if (!disk_geometry_valid(numbers))
		return -EINVAL;
	if (atomic_load(&geometry->used))
		return -EBUSY;
	if (ec_init(&geometry->ec, numbers->data, numbers->parity))
		return -EINVAL;
	geometry->numbers = *numbers;
	geometry->data = numbers->data;
	geometry->parity = numbers->parity;
	geometry->count = geometry->data + geometry->parity;
	geometry->members = disk_geometry_mask(numbers);
	atomic_store_explicit(&geometry->used, true, memory_order_release);
	log_update(array);
	return 0;
}

int disk_array_geometry_add(struct disk *disk, uint32_t slot, const struct disk_geometry *geometry)
{
	int ret = geometry_use(disk->array, slot, geometry);

	if (!ret)
		atomic_fetch_add(&disk->array->changes, 1);
	return ret;
}

void disk_array_geometry_end(struct disk *disk, uint32_t slot)
{
	struct array *array = disk->array;
	uint64_t before = mask_of(array);

	atomic_store(&array->geometries[slot].used, false);
	log_update(array);
	/* Their disks stay, because operations on them may still run. */
	for (uint64_t left = before & ~mask_of(array); left; left &= left - 1)
		atomic_store(&array->members[__builtin_ctzll(left)].state, DISK_MEMBER_MISSING);
	atomic_fetch_add(&array->changes, 1);
	what_update(disk);
}

void disk_array_current(struct disk *disk, uint32_t slot)
{
	atomic_store(&disk->array->current, slot);
	what_update(disk);
}

uint32_t disk_array_geometry_data(const struct disk *disk, uint32_t slot)
{
	const struct array *array = disk->array;

	return array && atomic_load(&array->geometries[slot].used) ? array->geometries[slot].data
								   : 0;
}

static void limit_tell(struct disk *disk)
{
	if (!atomic_exchange(&disk->array->limit_told, true))
		log_warn("disk",
			"%s: the store uses %llu TiB of each volume, and no more: for more space, "
			"add volumes",
			disk->path, (unsigned long long)(DISK_ARRAY_BYTES_MAX / TIB));
}

/* Takes the size that all good members have, up to the limit. */
static void bytes_take(struct disk *disk)
{
	const struct array *array = disk->array;
	uint64_t bytes = UINT64_MAX;

	for (uint64_t left = mask_of(array); left; left &= left - 1) {
		uint32_t i = (uint32_t)__builtin_ctzll(left);

		if (array_readable(array, i))
			bytes = MIN(bytes, disk_bytes(array->members[i].disk));
	}
	if (bytes == UINT64_MAX)
		bytes = 0;
	if (bytes > DISK_ARRAY_BYTES_MAX)
		limit_tell(disk);
	atomic_store_explicit(&disk->bytes, MIN(bytes, DISK_ARRAY_BYTES_MAX), memory_order_release);
}

static int array_init(struct disk *disk, const struct disk_array_opts *opts)
{
	struct array *array = disk->array;
	struct disk_geometry plain = {.data = (uint8_t)opts->data, .parity = (uint8_t)opts->parity};
	int ret = 0;

	for (uint32_t i = 0; i < DISK_MEMBERS_MAX; i++)
		plain.order[i] = (uint8_t)i;
	for (uint32_t i = 0; i < DISK_MEMBERS_MAX; i++)
		atomic_store(&array->members[i].state,
			opts->members[i] ? opts->states[i] : DISK_MEMBER_MISSING);
	if (opts->data > EC_DATA_MAX || opts->parity > EC_PARITY_MAX)
		return -EINVAL;
	if (opts->data || !opts->geometries[opts->current].data)
		ret = geometry_use(array, 0, &plain);
	for (uint32_t g = 0; g < DISK_GEOMETRIES && !ret; g++)
		if (opts->geometries[g].data)
			ret = geometry_use(array, g, &opts->geometries[g]);
	if (ret)
		return ret;
	atomic_store(&array->current, opts->current);
	bytes_take(disk);
	what_update(disk);
	return 0;
}

int disk_array_open(const struct disk_array_opts *opts, struct disk **ret_disk)
{
	struct disk *disk = disk_alloc(opts->name, 0);
	struct array *array = (struct array *)calloc(1, sizeof(*array));
	int ret;

	if (!disk || !array) {
		free(array);
		disk_close(disk);
		for (uint32_t i = 0; i < DISK_MEMBERS_MAX; i++)
			disk_close(opts->members[i]);
		return -ENOMEM;
	}
	disk->kind = DISK_ARRAY;
	disk->ops = &DISK_ARRAY_OPS;
	disk->array = array;
	for (uint32_t i = 0; i < DISK_MEMBERS_MAX; i++) {
		array->members[i].disk = opts->members[i];
		if (opts->members[i])
			opts->members[i]->member = true;
	}
	ret = array_init(disk, opts);
	if (ret) {
		disk_close(disk);
		return ret;
	}
	*ret_disk = disk;
	return 0;
}

static int array_open(struct disk *disk, const struct disk_opts *opts)
{
	(void)disk;
	(void)opts;
	return -EINVAL;
}

uint64_t disk_array_mask(const struct disk *disk)
{
	return disk->array ? mask_of(disk->array) : 0;
}

uint32_t disk_array_members(const struct disk *disk)
{
	uint64_t mask = disk_array_mask(disk);

	return mask ? 64 - (uint32_t)__builtin_clzll(mask) : 0;
}

uint32_t disk_array_data(const struct disk *disk)
{
	return disk->array ? disk->array->geometries[atomic_load(&disk->array->current)].data : 0;
}

struct disk *disk_array_member(const struct disk *disk, uint32_t member)
{
	return disk->array->members[member].disk;
}

enum disk_member_state disk_array_state(const struct disk *disk, uint32_t member)
{
	return (enum disk_member_state)atomic_load(&disk->array->members[member].state);
}

uint64_t disk_array_lost(const struct disk *disk)
{
	uint64_t lost = 0;

	for (uint64_t left = mask_of(disk->array); left; left &= left - 1) {
		uint32_t i = (uint32_t)__builtin_ctzll(left);

		if (!array_readable(disk->array, i))
			lost |= 1ull << i;
	}
	return lost;
}

bool disk_array_enough(const struct disk *disk, uint64_t lost)
{
	const struct array *array = disk->array;

	for (uint32_t g = 0; g < DISK_GEOMETRIES; g++) {
		const struct array_geometry *geometry = &array->geometries[g];

		if (atomic_load_explicit(&geometry->used, memory_order_acquire) &&
			(uint32_t)__builtin_popcountll(geometry->members & lost) > geometry->parity)
			return false;
	}
	return true;
}

bool disk_array_quorum(const struct disk *disk)
{
	return disk_array_enough(disk, disk_array_lost(disk));
}

bool array_can_discard(const struct array *array)
{
	for (uint32_t i = 0; i < DISK_MEMBERS_MAX; i++)
		if (array_writable(array, i) && disk_can_discard(array->members[i].disk))
			return true;
	return false;
}

uint64_t disk_array_changes(const struct disk *disk)
{
	return disk->array ? atomic_load(&disk->array->changes) : 0;
}

void array_member_fail(struct disk *disk, uint32_t member, int error)
{
	struct array_member *at = &disk->array->members[member];
	uint32_t lost, count;

	if (atomic_exchange(&at->state, DISK_MEMBER_MISSING) == DISK_MEMBER_MISSING)
		return;
	atomic_fetch_add(&disk->array->changes, 1);
	if (error == -ESTALE)
		return; /* replaced by an administrator, who knows it */
	counter_add(&members_failed, 1);
	lost = (uint32_t)__builtin_popcountll(disk_array_lost(disk));
	count = (uint32_t)__builtin_popcountll(mask_of(disk->array));
	log_error("disk",
		"volume %u (%s) %s (%s) and is not used any more: %u of %u are left, %u are "
		"needed; %s",
		member, at->disk ? at->disk->path : "?",
		error == -ENOTCONN ? "is lost" : "failed a write", strerror(-error), count - lost,
		count, disk_array_data(disk),
		error == -ENOTCONN ? "the server rebuilds it when it can be reached again"
				   : "replace it (nebulaio admin volume-replace)");
}

void disk_array_fail(struct disk *disk, uint32_t member, int error)
{
	array_member_fail(disk, member, error);
}

static int retire(struct array *array, struct disk *disk)
{
	if (array->retired_count == ARRAY_RETIRED_MAX)
		return -ENOSPC;
	array->retired[array->retired_count++] = disk;
	return 0;
}

void disk_array_refuse(struct disk *disk, struct disk *other)
{
	if (other && disk_attached(other) && !retire(disk->array, other))
		return;
	if (!other || !disk_attached(other))
		disk_close(other);
	else
		log_warn("disk", "%s: it stays open until the server ends", other->path);
}

int disk_array_return(struct disk *disk, uint32_t member, struct disk *with)
{
	struct array *array = disk->array;
	struct array_member *at = &array->members[member];
	struct disk *before = atomic_load(&at->disk);

	if (atomic_load(&at->state) != DISK_MEMBER_MISSING)
		return -EBUSY;
	if (disk_bytes(with) < disk_bytes(disk))
		return -ERANGE;
	if (before && before != with && retire(array, before))
		return -ENOSPC;
	with->member = true;
	atomic_store(&at->disk, with);
	atomic_store(&at->state, DISK_MEMBER_REBUILDING);
	atomic_fetch_add(&array->changes, 1);
	return 0;
}

void disk_array_heal(struct disk *disk, uint32_t member)
{
	uint32_t rebuilding = DISK_MEMBER_REBUILDING;

	atomic_compare_exchange_strong(
		&disk->array->members[member].state, &rebuilding, DISK_MEMBER_GOOD);
}

void disk_array_regain(struct disk *disk, uint64_t members)
{
	struct array *array = disk->array;

	for (uint32_t i = 0; i < DISK_MEMBERS_MAX; i++) {
		uint32_t missing = DISK_MEMBER_MISSING;

		if (members >> i & 1)
			atomic_compare_exchange_strong(
				&array->members[i].state, &missing, DISK_MEMBER_GOOD);
	}
	atomic_fetch_add(&array->changes, 1);
	bytes_take(disk);
}

static int array_attach(struct disk *disk, struct disk_core *core)
{
	int ret = 0;

	for (uint32_t i = 0; i < DISK_MEMBERS_MAX && !ret; i++)
		if (disk->array->members[i].disk)
			ret = disk_attach(
				disk->array->members[i].disk, core->reactor, core->region);
	return ret;
}

static int array_grow(struct disk *disk, uint64_t bytes_total)
{
	struct array *array = disk->array;
	int ret = 0;

	if (bytes_total > DISK_ARRAY_BYTES_MAX) {
		limit_tell(disk);
		return -ENOSPC;
	}
	for (uint32_t i = 0; i < DISK_MEMBERS_MAX && !ret; i++) {
		if (!array_writable(array, i))
			continue;
		ret = disk_grow(array->members[i].disk, bytes_total);
		if (ret == -ENOTCONN) {
			array_member_fail(disk, i, ret);
			ret = disk_array_quorum(disk) ? 0 : -EHOSTDOWN;
		}
	}
	if (!ret)
		bytes_take(disk);
	return ret;
}

/* ---- Operations: each runs on a fiber. ---- */

static int32_t op_run(struct disk_io *io)
{
	struct disk *disk = io->disk;
	uint8_t *data = io->iov_count ? (uint8_t *)io->iov->iov_base : NULL;
	int ret;

	if (io->fault)
		return io->fault;
	if (io->op == DISK_FLUSH)
		return array_flush(disk);
	if (io->op == DISK_DISCARD)
		return array_discard(disk, io->bytes, io->offset);
	if ((io->op != DISK_READ && io->op != DISK_WRITE) || io->iov_count != 1)
		return -EOPNOTSUPP;
	if (io->op == DISK_READ)
		ret = array_read(disk, data, io->bytes, io->offset, (struct array_sources){0});
	else
		ret = array_write(disk, data, io->bytes, io->offset);
	io->moved = io->bytes;
	return ret ? ret : (int32_t)io->bytes;
}

static void op_fiber(void *arg)
{
	struct disk_io *io = (struct disk_io *)arg;
	int32_t result = op_run(io);

	/* The members have counted the bytes that they moved. */
	if (result < 0)
		disk_io_finish(io, result);
	else
		io->done(io, result);
}

/* An operation that no fiber is left for waits for one: it must not look like a failed medium. A
 * member's operations may need fibers, too. */
static void array_issue(struct disk_io *io, const struct disk_core *core)
{
	io->start = (struct fiber_start){.name = "array", .fn = op_fiber, .arg = io};
	fiber_start_surely(core->reactor, &io->start, false);
}

/* ---- Blocking. ---- */

static int array_read_now(struct disk *disk, void *data, uint64_t bytes, uint64_t offset)
{
	return array_read(disk, (uint8_t *)data, bytes, offset, (struct array_sources){0});
}

static int array_write_now(struct disk *disk, const void *data, uint64_t bytes, uint64_t offset)
{
	/* A write only reads the data. */
	return array_write(disk, (uint8_t *)(uintptr_t)data, bytes, offset);
}

static int array_flush_now(struct disk *disk)
{
	return array_flush(disk);
}

static int array_zero_now(struct disk *disk, uint64_t bytes, uint64_t offset)
{
	(void)disk;
	(void)bytes;
	(void)offset;
	return -EOPNOTSUPP;
}

/* The member that has that copy of mirrored ranges; DISK_MEMBERS_MAX: none. */
static uint32_t copy_member(const struct array *array, uint32_t copy)
{
	for (uint64_t log = atomic_load(&array->log); log; log &= log - 1) {
		uint32_t member = (uint32_t)__builtin_ctzll(log);

		if (array_readable(array, member) && copy-- == 0)
			return member;
	}
	return DISK_MEMBERS_MAX;
}

int disk_copy_read_now(
	struct disk *disk, uint32_t copy, void *data, uint64_t bytes, uint64_t offset)
{
	struct array *array = disk->array;
	uint32_t member;
	int ret;

	if (!array)
		return copy ? -ENOENT : disk_read_now(disk, data, bytes, offset);
	while ((member = copy_member(array, copy)) < DISK_MEMBERS_MAX) {
		ret = disk_read_now(array->members[member].disk, data, bytes, offset);
		if (ret != -ENOTCONN)
			return ret;
		array_member_fail(disk, member, ret);
	}
	return copy_member(array, 0) < DISK_MEMBERS_MAX ? -ENOENT : -EHOSTDOWN;
}

bool disk_in_range(const struct disk *disk, uint64_t offset, uint64_t bytes)
{
	uint64_t block = offset / DISK_ALIGN_BYTES;
	struct stripe stripe;

	if (!disk_stripe_is(block))
		return offset + bytes >= offset && offset + bytes <= disk_bytes(disk);
	if (!disk->array || !disk_array_geometry_data(disk, disk_stripe_slot(block)))
		return false;
	stripe = array_stripe(disk->array, block);
	return (stripe.first + stripe.width) * DISK_ALIGN_BYTES <= disk_bytes(disk) &&
	       offset % MIB + bytes <= (uint64_t)stripe.blocks * DISK_ALIGN_BYTES;
}

const struct disk_ops DISK_ARRAY_OPS = {
	.name = "array",
	.open = array_open,
	.close = array_close,
	.attach = array_attach,
	.detach = disk_detach_plain,
	.issue = array_issue,
	.grow = array_grow,
	.read_now = array_read_now,
	.write_now = array_write_now,
	.flush_now = array_flush_now,
	.zero_now = array_zero_now,
	.can_grow = true,
};
