/* region/tables.c: the tables in which devices enter themselves and their memory: targets and
 * memory regions. */
#include "region/region_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

DEFINE_COUNTER_FULL(targets_full, "ring_targets");
DEFINE_COUNTER_FULL(mrs_full, "memory_regions");

int region_target_add(struct region *region, const struct region_device_ops *ops, void *device,
	const char *label, uint16_t *ret_target)
{
	int error = -ENOSPC;

	pthread_mutex_lock(&region->tables_lock);
	/* The search starts behind the last number given out, so that a number stays unused for as
	 * long as possible. */
	for (uint32_t i = 0; i < LIMIT_REGION_TARGETS_MAX && error < 0; i++) {
		uint32_t idx = (region->target_next + i) % LIMIT_REGION_TARGETS_MAX;
		struct region_target *target = &region->targets[idx];
		struct target_slot *slot = &region->target_slots[idx];

		if (atomic_load_explicit(&target->ops, memory_order_relaxed) || target->kept)
			continue;
		snprintf(slot->device, sizeof(slot->device), "%s", ops->name);
		snprintf(slot->label, sizeof(slot->label), "%s", label ? label : "");
		atomic_store_explicit(&slot->used, 1, memory_order_release);
		target->device = device;
		atomic_store_explicit(&target->ops, ops, memory_order_release);
		region->target_next = idx + 1;
		*ret_target = (uint16_t)idx;
		error = 0;
	}
	pthread_mutex_unlock(&region->tables_lock);
	if (error)
		counter_add(&targets_full, 1);
	return error;
}

void region_target_remove(struct region *region, uint16_t target)
{
	CHECK(target < LIMIT_REGION_TARGETS_MAX);
	pthread_mutex_lock(&region->tables_lock);
	CHECK(atomic_load_explicit(&region->targets[target].ops, memory_order_relaxed) != NULL);
	atomic_store_explicit(&region->target_slots[target].used, 0, memory_order_release);
	atomic_store_explicit(&region->targets[target].ops, NULL, memory_order_release);
	pthread_mutex_unlock(&region->tables_lock);
}

void region_target_keep(struct region *region, uint16_t target)
{
	CHECK(target < LIMIT_REGION_TARGETS_MAX);
	pthread_mutex_lock(&region->tables_lock);
	CHECK(atomic_load_explicit(&region->targets[target].ops, memory_order_relaxed) != NULL);
	region->targets[target].kept = true;
	pthread_mutex_unlock(&region->tables_lock);
}

void region_target_free(struct region *region, uint16_t target)
{
	CHECK(target < LIMIT_REGION_TARGETS_MAX);
	pthread_mutex_lock(&region->tables_lock);
	CHECK(region->targets[target].kept);
	region->targets[target].kept = false;
	pthread_mutex_unlock(&region->tables_lock);
}

int region_mr_add(struct region *region, const struct region_mr *mr, uint32_t *ret_mr_idx)
{
	int error = -ENOSPC;

	if (mr->bytes == 0 || mr->addr + mr->bytes < mr->addr ||
		!memchr(mr->device, '\0', sizeof(mr->device)))
		return -EINVAL;
	pthread_mutex_lock(&region->tables_lock);
	for (uint32_t i = 0; i < LIMIT_REGION_MRS_MAX && error < 0; i++) {
		struct mr_slot *slot = &region->mrs[i];

		if (atomic_load_explicit(&slot->used, memory_order_relaxed))
			continue;
		slot->mr = *mr;
		atomic_store_explicit(&slot->used, 1, memory_order_release);
		*ret_mr_idx = i;
		error = 0;
	}
	pthread_mutex_unlock(&region->tables_lock);
	if (error)
		counter_add(&mrs_full, 1);
	return error;
}

void region_mr_remove(struct region *region, uint32_t mr_idx)
{
	CHECK(mr_idx < LIMIT_REGION_MRS_MAX);
	pthread_mutex_lock(&region->tables_lock);
	CHECK(atomic_load_explicit(&region->mrs[mr_idx].used, memory_order_relaxed) == 1);
	atomic_store_explicit(&region->mrs[mr_idx].used, 0, memory_order_release);
	pthread_mutex_unlock(&region->tables_lock);
}
