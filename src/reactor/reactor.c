/* reactor/reactor.c: opens, closes and runs a reactor, and reports its statistics. */
#include "reactor/reactor_priv.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/cgroup.h"

/* Fills in the defaults; -EINVAL when something is out of bounds. */
static int opts_resolve(struct reactor_opts *opts, uint32_t page_bytes)
{
	if (!opts->uring_entries)
		opts->uring_entries = URING_ENTRIES_DEFAULT;
	if (!opts->idle_spin_ns)
		opts->idle_spin_ns = IDLE_SPIN_NS_DEFAULT;
	if (!opts->fiber_stack_bytes)
		opts->fiber_stack_bytes = STACK_BYTES_DEFAULT;
	if (!opts->fibers_max)
		opts->fibers_max = FIBERS_DEFAULT;
	if (opts->uring_entries > URING_ENTRIES_MAX || opts->fibers_max > LIMIT_FIBERS_MAX)
		return -EINVAL;
	if (opts->fiber_stack_bytes < STACK_BYTES_MIN || opts->fiber_stack_bytes > STACK_BYTES_MAX)
		return -EINVAL;
	opts->fiber_stack_bytes = ALIGN_UP(opts->fiber_stack_bytes, page_bytes);
	return 0;
}

static int cpu_check(int cpu)
{
	cpu_set_t allowed;

	if (cpu < 0)
		return 0;
	if (cpu >= CPU_SETSIZE)
		return -EINVAL;
	if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0)
		return -errno;
	if (!CPU_ISSET(cpu, &allowed)) {
		log_error("reactor", "processor %d does not exist or is not allowed here", cpu);
		return -EINVAL;
	}
	return 0;
}

void reactor_pin(struct reactor *reactor)
{
	cpu_set_t set;
	int error;

	if (reactor->opts.cpu < 0)
		return;
	CPU_ZERO(&set);
	CPU_SET(reactor->opts.cpu, &set);
	error = pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
	if (error)
		log_warn("reactor", "core %u is not pinned to processor %d: %s",
			reactor->opts.core_idx, reactor->opts.cpu, strerror(error));
}

/* Event loops that spin on more processors than the quota pays for would be stopped by it. */
static uint32_t cpus_usable(void)
{
	struct cgroup_limits limits;
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set))
		return 1; /* the machine has more processors than a set holds */
	cgroup_limits_read("", &limits);
	return MIN((uint32_t)CPU_COUNT(&set), limits.cpus);
}

int reactor_open(const struct reactor_opts *opts, struct reactor **ret_reactor)
{
	uint32_t page_bytes = (uint32_t)sysconf(_SC_PAGESIZE);
	struct reactor_opts resolved = *opts;
	struct reactor *reactor;
	int error;

	error = opts_resolve(&resolved, page_bytes);
	if (!error)
		error = cpu_check(resolved.cpu);
	if (error)
		return error;
	reactor = aligned_alloc(
		_Alignof(struct reactor), ALIGN_UP(sizeof(*reactor), _Alignof(struct reactor)));
	if (!reactor)
		return -ENOMEM;
	memset(reactor, 0, sizeof(*reactor));
	reactor->opts = resolved;
	reactor->idle_spin_ns = resolved.idle_spin_ns;
	reactor->cpus = cpus_usable();
	atomic_fetch_add(&reactors_open, 1);
	reactor->page_bytes = page_bytes;
	mpsc_init(&reactor->mailbox);
	list_init(&reactor->pollers);
	list_init(&reactor->fibers_idle);
	list_init(&reactor->fibers_all);
	list_init(&reactor->starts_outer);
	list_init(&reactor->starts_innermost);
	reactor->now_ns = clock_now_ns();
	reactor->open_ns = reactor->now_ns;
	reactor->now_ticks = clock_ticks();
	reactor->open_ticks = reactor->now_ticks;
	shares_init(reactor);
	wheel_init(&reactor->wheel, reactor->now_ns);
	reactor->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	error = reactor->wake_fd < 0 ? -errno : uring_open(reactor, 0);
	if (!error)
		error = fibers_keep(reactor);
	if (error) {
		reactor_close(reactor);
		return error;
	}
	*ret_reactor = reactor;
	return 0;
}

void reactor_close(struct reactor *reactor)
{
	if (!reactor)
		return;
	CHECK(reactor->stats.fibers == 0);
	atomic_fetch_sub(&reactors_open, 1);
	/* A helper that woke the last fiber may not have left reactor_post yet. */
	while (atomic_load_explicit(&reactor->helpers, memory_order_acquire))
		sched_yield();
	LIST_FOR_EACH_SAFE (link, &reactor->fibers_all)
		fiber_unmap(CONTAINER_OF(link, struct fiber, all_link));
	if (reactor->ring_open)
		io_uring_queue_exit(&reactor->ring);
	if (reactor->wake_fd >= 0)
		close(reactor->wake_fd);
	free(reactor);
}

/* Uses the counter's speed since the reactor was opened. */
static uint64_t ticks_to_ns(const struct reactor *reactor, uint64_t ticks)
{
	uint64_t ns = clock_now_ns() - reactor->open_ns;
	uint64_t all_ticks = clock_ticks() - reactor->open_ticks;

	return all_ticks ? (uint64_t)((double)ticks * ((double)ns / (double)all_ticks)) : 0;
}

void reactor_stats(const struct reactor *reactor, struct reactor_stats *ret_stats)
{
	const struct reactor_stats *stats = &reactor->stats;

	ret_stats->turns = __atomic_load_n(&stats->turns, __ATOMIC_RELAXED);
	ret_stats->busy_turns = __atomic_load_n(&stats->busy_turns, __ATOMIC_RELAXED);
	ret_stats->sleeps = __atomic_load_n(&stats->sleeps, __ATOMIC_RELAXED);
	ret_stats->fiber_switches = __atomic_load_n(&stats->fiber_switches, __ATOMIC_RELAXED);
	ret_stats->messages = __atomic_load_n(&stats->messages, __ATOMIC_RELAXED);
	ret_stats->uring_submits = __atomic_load_n(&stats->uring_submits, __ATOMIC_RELAXED);
	ret_stats->long_turns = __atomic_load_n(&stats->long_turns, __ATOMIC_RELAXED);
	ret_stats->busy_ns =
		ticks_to_ns(reactor, __atomic_load_n(&reactor->busy_ticks, __ATOMIC_RELAXED));
	ret_stats->idle_spin_ns = __atomic_load_n(&reactor->idle_spin_ns, __ATOMIC_RELAXED);
	ret_stats->spin_changes = __atomic_load_n(&stats->spin_changes, __ATOMIC_RELAXED);
	ret_stats->spin_crowded = __atomic_load_n(&stats->spin_crowded, __ATOMIC_RELAXED);
	ret_stats->fibers = __atomic_load_n(&stats->fibers, __ATOMIC_RELAXED);
}
