/* disk/disk_dax_guard.c: a copy from or to a mapping whose medium may fail. The kernel reports a
 * page that it cannot provide (an uncorrectable error, a file that was cut, a device that is gone)
 * by SIGBUS in the thread that touches it. The handler goes back to the copy, which then ends in
 * -EIO, if the address is in a mapping and the thread is in such a copy; all other signals go to
 * the handler that was there before. */
#include "disk/disk_dax.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>

/* A store has up to DISK_MEMBERS_MAX volumes, and a process rarely two stores. */
#define MAPPINGS_MAX 64u

struct mapping {
	_Atomic(uint8_t *) from;
	_Atomic uint64_t bytes;
};

static struct mapping mappings[MAPPINGS_MAX];
static pthread_mutex_t mappings_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction before;
/* Set while the thread copies. */
static _Thread_local sigjmp_buf *volatile way_out;
static _Thread_local bool unblocked;

static bool is_mapped(const uint8_t *address)
{
	for (uint32_t i = 0; i < MAPPINGS_MAX; i++) {
		uint8_t *from = atomic_load(&mappings[i].from);

		if (from && address >= from && address < from + atomic_load(&mappings[i].bytes))
			return true;
	}
	return false;
}

static void on_bus_error(int number, siginfo_t *info, void *context)
{
	bool ours = is_mapped((const uint8_t *)info->si_addr);
	sigjmp_buf *out = way_out;

	(void)context;
	/* The kernel's warning of a page that this thread is not touching. */
	if (ours && info->si_code == BUS_MCEERR_AO)
		return;
	if (ours && out) {
		way_out = NULL;
		siglongjmp(*out, 1);
	}
	/* Comes again on return. */
	sigaction(number, &before, NULL);
	if (info->si_code <= 0)
		raise(number);
}

void dax_guard_install(void)
{
	struct sigaction action, now;

	memset(&action, 0, sizeof(action));
	action.sa_sigaction = on_bus_error;
	/* The handler may not return, so that the signal must not stay blocked. */
	action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
	pthread_mutex_lock(&mappings_lock);
	if (!sigaction(SIGBUS, NULL, &now) && now.sa_sigaction != on_bus_error) {
		before = now;
		sigaction(SIGBUS, &action, NULL);
	}
	pthread_mutex_unlock(&mappings_lock);
}

bool dax_guard_add(const struct dax *dax)
{
	bool added = false;

	pthread_mutex_lock(&mappings_lock);
	for (uint32_t i = 0; i < MAPPINGS_MAX && !added; i++) {
		if (atomic_load(&mappings[i].from))
			continue;
		atomic_store(&mappings[i].bytes, dax->reserved);
		atomic_store(&mappings[i].from, dax->base);
		added = true;
	}
	pthread_mutex_unlock(&mappings_lock);
	return added;
}

void dax_guard_remove(const struct dax *dax)
{
	pthread_mutex_lock(&mappings_lock);
	for (uint32_t i = 0; i < MAPPINGS_MAX; i++)
		if (atomic_load(&mappings[i].from) == dax->base)
			atomic_store(&mappings[i].from, NULL);
	pthread_mutex_unlock(&mappings_lock);
}

/* Helper threads block all signals; a blocked one that the processor raises ends the process. */
static __attribute__((noinline, cold)) void unblock(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGBUS);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	unblocked = true;
}

int dax_guarded(struct disk *disk, void (*copy)(struct disk *disk, void *arg), void *arg)
{
	sigjmp_buf out;

	if (__builtin_expect(!unblocked, 0))
		unblock();
	if (sigsetjmp(out, 0))
		return -EIO;
	way_out = &out;
	copy(disk, arg);
	way_out = NULL;
	return 0;
}
