/* store/state/fence.c: stops writes when the medium failed or too few volumes are left, and reports
 * damage of a medium. */
#include "store/state/state.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

DEFINE_COUNTER(suspensions, "nebulaio_store_suspensions_total", NULL,
	"Times that too few volumes were left to accept writes, or the only one accepted none.");

DEFINE_COUNTER_FULL(folder_full, "data_folder");

int store_folder_full(void)
{
	counter_add(&folder_full, 1);
	return -ENOSPC;
}

void stripe_suspend(struct store *store)
{
	disk_suspend(store->volume.disk);
	if (atomic_exchange(&store->suspended, true))
		return;
	counter_add(&suspensions, 1);
	if (!store->volume.set_count) {
		log_error("store",
			"%s: the volume takes no writes now: the store accepts none, and continues "
			"by itself when the volume does",
			store->dir);
		return;
	}
	if (disk_array_quorum(store->volume.disk)) {
		log_error("store",
			"%s: the volumes are there, but could not do an operation now: the store "
			"accepts no writes, and continues by itself",
			store->dir);
		return;
	}
	log_error("store",
		"%s: too few volumes are left: the store accepts no writes, and reads only data "
		"that the other volumes hold. It continues by itself when enough volumes can be "
		"reached again. A volume that failed a write is used again only after the next "
		"start",
		store->dir);
}

bool stripe_suspended(const struct store *store)
{
	return atomic_load_explicit(&store->suspended, memory_order_relaxed);
}

void store_fence(struct store *store, const char *what, int error)
{
	if (error == -EHOSTDOWN) {
		stripe_suspend(store);
		return;
	}
	if (atomic_exchange(&store->fenced, true))
		return;
	log_error("store",
		"%s: %s failed (%s): the store accepts no more writes; stored data can still be "
		"read",
		store->dir, what, strerror(-error));
	disk_fence(store->volume.disk);
}

void store_find(const struct store *store, const char *fmt, ...)
{
	char text[2048 + 3 * sizeof(store->dir)];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	if (store->findings)
		buf_printf(store->findings, "%s\n", text);
	else
		log_error("store", "%s", text);
}
