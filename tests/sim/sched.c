/* tests/sim/sched.c: threads of which one runs at a time, a clock that moves only when no thread
 * can run, and random numbers from one seed; and the server's calls of pthreads and of time.
 *
 * A thread gives up its turn where it would block, and by chance at each of the calls below. Locks
 * are the real ones: a thread tries them, and if it does not get one it waits here until the lock
 * is released. */
#include "world.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define THREADS_MAX	256u
#define EVENTS_MAX	65536u
#define WATCHES_MAX	4096u
#define ONCES_MAX	64u
#define TIMERS_MAX	64u
#define CLOCK_STEP_NS	40u		 /* duration of a call for the time */
#define QUANTUM_NS	(20 * NS_PER_US) /* of a thread that asks for the time again and again */
#define WATCH_EACH	8u /* turns between looks at descriptors while threads can run */
#define YIELD_ONE_OF	16u
#define SPURIOUS_ONE_OF 64u
#define TURNS_MAX	200000000ull
#define BEGIN_NS	(1000 * NS_PER_S)
#define REAL_OFFSET_NS	(1764000000ull * NS_PER_S)

enum thread_state { THREAD_RUNNABLE, THREAD_BLOCKED, THREAD_ENDED };

struct thread {
	pthread_t id;
	uint32_t go; /* futex: it has the turn */
	enum thread_state state;
	const void *on;
	uint64_t deadline_ns;
	bool woken;
	bool used, detached;
	uint32_t end_rounds;
	uint64_t quantum_until_ns;
	void *(*main)(void *arg);
	void *arg, *result;
	char name[16];
};

struct timer {
	int fd;
	struct world_event event;
	uint64_t interval_ns;
};

bool world_trace_wanted, world_hash_wanted;

static struct {
	bool on;
	struct thread threads[THREADS_MAX];
	uint32_t thread_count;
	struct thread *current;
	pthread_key_t ending;
	uint64_t now_ns, offset_ns;
	uint64_t turns, order;
	struct prng prng, load_prng;
	struct world_event *heap[EVENTS_MAX];
	uint32_t heap_count;
	struct list watches;
	struct pollfd polls[WATCHES_MAX];
	struct world_watch *polled[WATCHES_MAX];
	struct {
		pthread_once_t *once;
		int state; /* 0: not started, 1: in progress, 2: done */
	} onces[ONCES_MAX];
	struct timer timers[TIMERS_MAX];
	uint64_t hash, traced;
} world;

long __real_syscall(long number, ...);
int __real_pthread_create(
	pthread_t *thread, const pthread_attr_t *attr, void *(*main)(void *), void *arg);
int __real_pthread_join(pthread_t thread, void **result);
int __real_pthread_mutex_unlock(pthread_mutex_t *mutex);
int __real_pthread_mutex_lock(pthread_mutex_t *mutex);
int __real_pthread_rwlock_unlock(pthread_rwlock_t *lock);
int __real_sem_post(sem_t *sem);
ssize_t __real_write(int fd, const void *data, size_t bytes);

/* ---- Chance and trace. ---- */

uint64_t world_below(uint64_t bound)
{
	return prng_below(&world.prng, bound);
}

bool world_chance(uint32_t one_of)
{
	return one_of && prng_below(&world.prng, one_of) == 0;
}

struct prng *world_prng(void)
{
	return &world.load_prng;
}

void world_trace(const char *what, uint64_t a, uint64_t b)
{
	const uint64_t words[] = {world.now_ns, a, b, (uint64_t)(world.current - world.threads)};

	for (const char *at = what; *at; at++)
		world.hash = (world.hash ^ (uint8_t)*at) * 0x100000001b3ull;
	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		world.hash = (world.hash ^ words[i]) * 0x9e3779b97f4a7c15ull + (world.hash >> 29);
	world.traced++;
	if (world_trace_wanted)
		fprintf(stderr, "%llu.%09llu %-12s %s %llu %llu\n",
			(unsigned long long)(world.now_ns / NS_PER_S),
			(unsigned long long)(world.now_ns % NS_PER_S), world.current->name, what,
			(unsigned long long)a, (unsigned long long)b);
}

void world_end(enum world_end how)
{
	if (world_hash_wanted)
		printf("# %016llx of %llu events\n", (unsigned long long)world.hash,
			(unsigned long long)world.traced);
	fflush(stdout);
	_exit(how);
}

void world_fault(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fputs("sim: ", stderr);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	fprintf(stderr, "sim: at %llu ms of virtual time\n",
		(unsigned long long)((world.now_ns - BEGIN_NS) / NS_PER_MS));
	for (uint32_t i = 0; i < world.thread_count; i++)
		if (world.threads[i].used && world.threads[i].state != THREAD_ENDED)
			fprintf(stderr, "sim: thread %u %s: %s\n", i, world.threads[i].name,
				world.threads[i].state == THREAD_BLOCKED ? "waits" : "can run");
	fflush(stderr);
	_exit(WORLD_END_FAULT);
}

/* ---- Events: a heap by time, then by order of planning. ---- */

static bool earlier(const struct world_event *a, const struct world_event *b)
{
	return a->due_ns != b->due_ns ? a->due_ns < b->due_ns : a->order < b->order;
}

static void heap_put(uint32_t at, struct world_event *event)
{
	world.heap[at] = event;
	event->heap_idx = at;
}

static void heap_settle(uint32_t at)
{
	struct world_event *event = world.heap[at];

	while (at > 1 && earlier(event, world.heap[at / 2])) {
		heap_put(at, world.heap[at / 2]);
		at /= 2;
	}
	for (;;) {
		uint32_t child = 2 * at;

		if (child < world.heap_count && earlier(world.heap[child + 1], world.heap[child]))
			child++;
		if (child > world.heap_count || !earlier(world.heap[child], event))
			break;
		heap_put(at, world.heap[child]);
		at = child;
	}
	heap_put(at, event);
}

void world_event_cancel(struct world_event *event)
{
	uint32_t at = event->heap_idx;

	if (!at)
		return;
	event->heap_idx = 0;
	if (at != world.heap_count) {
		heap_put(at, world.heap[world.heap_count]);
		world.heap_count--;
		heap_settle(at);
	} else {
		world.heap_count--;
	}
}

void world_event_set(struct world_event *event, uint64_t due_ns)
{
	world_event_cancel(event);
	CHECK(world.heap_count + 2 < EVENTS_MAX);
	event->due_ns = due_ns;
	event->order = world.order++;
	world.heap_count++;
	heap_put(world.heap_count, event);
	heap_settle(world.heap_count);
}

static bool events_run(void)
{
	bool any = false;

	while (world.heap_count && world.heap[1]->due_ns <= world.now_ns) {
		struct world_event *event = world.heap[1];

		world_event_cancel(event);
		event->fn(event->arg);
		any = true;
	}
	return any;
}

/* ---- Descriptors of the kernel's. ---- */

static struct world_watch removed; /* represents a removed watch */

void world_watch_add(struct world_watch *watch)
{
	list_push_back(&world.watches, &watch->link);
}

void world_watch_remove(struct world_watch *watch)
{
	list_remove(&watch->link);
	/* Its turn may be about to come. */
	for (uint32_t i = 0; i < WATCHES_MAX && world.polled[i]; i++)
		if (world.polled[i] == watch)
			world.polled[i] = &removed;
}

static bool watches_look(void)
{
	uint32_t count = 0;
	bool any = false;

	LIST_FOR_EACH_SAFE (link, &world.watches) {
		struct world_watch *watch = CONTAINER_OF(link, struct world_watch, link);

		CHECK(count + 1 < WATCHES_MAX);
		world.polls[count] = (struct pollfd){.fd = watch->fd, .events = watch->events};
		world.polled[count++] = watch;
	}
	if (count && __real_syscall(SYS_poll, world.polls, (unsigned long)count, 0) > 0) {
		world.polled[count] = NULL;
		for (uint32_t i = 0; i < count; i++) {
			struct world_watch *watch = world.polled[i];

			if (!world.polls[i].revents || watch == &removed)
				continue;
			watch->fn(watch, world.polls[i].revents);
			any = true;
		}
	}
	world.polled[0] = NULL;
	return any;
}

struct fd_wait {
	struct world_watch watch;
	short ready;
};

static void fd_ready(struct world_watch *watch, short ready)
{
	struct fd_wait *wait = CONTAINER_OF(watch, struct fd_wait, watch);

	wait->ready = ready;
	world_wake(wait);
}

short world_wait_fd(int fd, short events, uint64_t deadline_ns)
{
	struct fd_wait wait = {.watch = {.fd = fd, .events = events, .fn = fd_ready}};

	world_watch_add(&wait.watch);
	while (!wait.ready && world_block(&wait, deadline_ns))
		;
	world_watch_remove(&wait.watch);
	return wait.ready;
}

/* ---- Turns. ---- */

static void futex_sleep(struct thread *self)
{
	while (!__atomic_load_n(&self->go, __ATOMIC_ACQUIRE))
		__real_syscall(SYS_futex, &self->go, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
	__atomic_store_n(&self->go, 0, __ATOMIC_RELAXED);
}

static bool deadlines_pass(void)
{
	bool any = false;

	for (uint32_t i = 0; i < world.thread_count; i++) {
		struct thread *thread = &world.threads[i];

		if (thread->used && thread->state == THREAD_BLOCKED &&
			thread->deadline_ns <= world.now_ns) {
			thread->state = THREAD_RUNNABLE;
			any = true;
		}
	}
	return any;
}

/* No thread can run: moves the clock to the next event. */
static void time_pass(void)
{
	uint64_t next_ns = world.heap_count ? world.heap[1]->due_ns : UINT64_MAX;

	for (uint32_t i = 0; i < world.thread_count; i++) {
		const struct thread *thread = &world.threads[i];

		if (thread->used && thread->state == THREAD_BLOCKED)
			next_ns = MIN(next_ns, thread->deadline_ns);
	}
	if (next_ns == UINT64_MAX)
		world_fault("nothing can happen any more: everybody waits");
	world.now_ns = MAX(world.now_ns, next_ns);
}

static struct thread *runnable_choose(void)
{
	struct thread *choice[THREADS_MAX];
	uint32_t count = 0;

	for (uint32_t i = 0; i < world.thread_count; i++)
		if (world.threads[i].used && world.threads[i].state == THREAD_RUNNABLE)
			choice[count++] = &world.threads[i];
	return count ? choice[count == 1 ? 0 : world_below(count)] : NULL;
}

static struct thread *next_choose(void)
{
	for (;;) {
		struct thread *thread;

		if (++world.turns > TURNS_MAX)
			world_fault("%llu turns, and no end", TURNS_MAX);
		events_run();
		deadlines_pass();
		if (world.turns % WATCH_EACH == 0)
			watches_look();
		thread = runnable_choose();
		if (thread)
			return thread;
		if (!watches_look())
			time_pass();
	}
}

static void turn_give(void)
{
	struct thread *self = world.current;
	struct thread *next = next_choose();
	/* Read now, because the next thread may create a new one in the place of one that ended. */
	bool ended = self->state == THREAD_ENDED;

	next->quantum_until_ns = world.now_ns + QUANTUM_NS + world_below(QUANTUM_NS);
	if (next == self)
		return;
	world.current = next;
	__atomic_store_n(&next->go, 1, __ATOMIC_RELEASE);
	__real_syscall(SYS_futex, &next->go, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	if (ended)
		return;
	futex_sleep(self);
}

bool world_block(const void *on, uint64_t deadline_ns)
{
	struct thread *self = world.current;

	self->on = on;
	self->deadline_ns = deadline_ns;
	self->woken = false;
	self->state = THREAD_BLOCKED;
	turn_give();
	self->on = NULL;
	return self->woken;
}

void world_wake(const void *on)
{
	for (uint32_t i = 0; i < world.thread_count; i++) {
		struct thread *thread = &world.threads[i];

		if (thread->used && thread->state == THREAD_BLOCKED && thread->on == on) {
			thread->woken = true;
			thread->state = THREAD_RUNNABLE;
		}
	}
}

static void wake_one(const void *on)
{
	struct thread *choice[THREADS_MAX];
	uint32_t count = 0;
	struct thread *thread;

	for (uint32_t i = 0; i < world.thread_count; i++)
		if (world.threads[i].used && world.threads[i].state == THREAD_BLOCKED &&
			world.threads[i].on == on)
			choice[count++] = &world.threads[i];
	if (!count)
		return;
	thread = choice[count == 1 ? 0 : world_below(count)];
	thread->woken = true;
	thread->state = THREAD_RUNNABLE;
}

void world_yield(void)
{
	if (world.on)
		turn_give();
}

void world_maybe_yield(void)
{
	if (world.on && world_chance(YIELD_ONE_OF))
		turn_give();
}

void world_thread_name(const char *name)
{
	snprintf(world.current->name, sizeof(world.current->name), "%s", name);
}

static void thread_end(void *arg);

void world_begin(uint64_t seed)
{
	struct thread *self = &world.threads[0];

	CHECK(pthread_key_create(&world.ending, thread_end) == 0);
	prng_seed(&world.prng, seed);
	prng_seed(&world.load_prng, ~seed);
	world.now_ns = BEGIN_NS;
	world.offset_ns = REAL_OFFSET_NS;
	list_init(&world.watches);
	self->id = pthread_self();
	self->used = true;
	self->state = THREAD_RUNNABLE;
	self->quantum_until_ns = UINT64_MAX;
	snprintf(self->name, sizeof(self->name), "main");
	world.thread_count = 1;
	world.current = self;
	world.on = true;
}

/* ---- pthreads: life. ---- */

static void *thread_main(void *arg)
{
	struct thread *self = (struct thread *)arg;

	futex_sleep(self);
	self->result = self->main(self->arg);
	CHECK(pthread_setspecific(world.ending, self) == 0);
	return self->result;
}

/* Called as the destructor of a thread-specific value, in every round: in the last round all other
 * destructors have run, in this thread's turn. */
static void thread_end(void *arg)
{
	struct thread *self = (struct thread *)arg;

	if (++self->end_rounds < PTHREAD_DESTRUCTOR_ITERATIONS) {
		CHECK(pthread_setspecific(world.ending, self) == 0);
		return;
	}
	self->state = THREAD_ENDED;
	self->used = !self->detached;
	world_wake(self);
	turn_give();
}

int __wrap_pthread_create(
	pthread_t *id, const pthread_attr_t *attr, void *(*main)(void *), void *arg)
{
	struct thread *thread = NULL;
	int error, detached = 0;

	if (!world.on)
		return __real_pthread_create(id, attr, main, arg);
	for (uint32_t i = 0; i < THREADS_MAX && !thread; i++)
		if (!world.threads[i].used)
			thread = &world.threads[i];
	CHECK(thread != NULL);
	if (attr)
		pthread_attr_getdetachstate(attr, &detached);
	*thread = (struct thread){.main = main, .arg = arg, .state = THREAD_RUNNABLE, .used = true};
	thread->detached = detached == PTHREAD_CREATE_DETACHED;
	world.thread_count = MAX(world.thread_count, (uint32_t)(thread - world.threads) + 1);
	snprintf(thread->name, sizeof(thread->name), "thread");
	error = __real_pthread_create(&thread->id, attr, thread_main, thread);
	if (error) {
		thread->used = false;
		return error;
	}
	*id = thread->id;
	world_maybe_yield();
	return 0;
}

static struct thread *thread_of(pthread_t id)
{
	for (uint32_t i = 0; i < world.thread_count; i++)
		if (world.threads[i].used && pthread_equal(world.threads[i].id, id))
			return &world.threads[i];
	return NULL;
}

int __wrap_pthread_join(pthread_t id, void **result)
{
	struct thread *thread = world.on ? thread_of(id) : NULL;

	if (thread) {
		while (thread->state != THREAD_ENDED)
			world_block(thread, UINT64_MAX);
		thread->used = false;
	}
	return __real_pthread_join(id, result);
}

int __wrap_pthread_detach(pthread_t id)
{
	struct thread *thread = thread_of(id);

	if (thread)
		thread->detached = true;
	return 0;
}

int __wrap_pthread_setname_np(pthread_t id, const char *name)
{
	struct thread *thread = thread_of(id);

	if (thread)
		snprintf(thread->name, sizeof(thread->name), "%s", name);
	return 0;
}

int __wrap_pthread_setaffinity_np(pthread_t id, size_t bytes, const void *set)
{
	(void)id;
	(void)bytes;
	(void)set;
	return 0;
}

int __wrap_pthread_once(pthread_once_t *once, void (*fn)(void))
{
	uint32_t i;

	for (i = 0; world.onces[i].once && world.onces[i].once != once; i++)
		CHECK(i + 1 < ONCES_MAX);
	world.onces[i].once = once;
	if (world.onces[i].state == 0) {
		world.onces[i].state = 1;
		fn();
		world.onces[i].state = 2;
		world_wake(once);
	}
	while (world.onces[i].state != 2)
		world_block(once, UINT64_MAX);
	return 0;
}

/* ---- pthreads: locks. ---- */

int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
	int error;

	if (!world.on)
		return __real_pthread_mutex_lock(mutex);
	world_maybe_yield();
	while ((error = pthread_mutex_trylock(mutex)) == EBUSY)
		world_block(mutex, UINT64_MAX);
	return error;
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex)
{
	int error = __real_pthread_mutex_unlock(mutex);

	if (world.on) {
		world_wake(mutex);
		world_maybe_yield();
	}
	return error;
}

int __wrap_pthread_rwlock_rdlock(pthread_rwlock_t *lock)
{
	int error;

	world_maybe_yield();
	while ((error = pthread_rwlock_tryrdlock(lock)) == EBUSY)
		world_block(lock, UINT64_MAX);
	return error;
}

int __wrap_pthread_rwlock_wrlock(pthread_rwlock_t *lock)
{
	int error;

	world_maybe_yield();
	while ((error = pthread_rwlock_trywrlock(lock)) == EBUSY)
		world_block(lock, UINT64_MAX);
	return error;
}

int __wrap_pthread_rwlock_unlock(pthread_rwlock_t *lock)
{
	int error = __real_pthread_rwlock_unlock(lock);

	world_wake(lock);
	world_maybe_yield();
	return error;
}

static int cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, uint64_t deadline_ns)
{
	bool woken;

	__real_pthread_mutex_unlock(mutex);
	world_wake(mutex);
	if (world_chance(SPURIOUS_ONE_OF)) {
		world_yield();
		woken = true;
	} else {
		woken = world_block(cond, deadline_ns);
	}
	while (pthread_mutex_trylock(mutex) == EBUSY)
		world_block(mutex, UINT64_MAX);
	return woken ? 0 : ETIMEDOUT;
}

/* A time of the monotonic clock, or of the real one, which is decades ahead of it. */
static uint64_t deadline_of(const struct timespec *until)
{
	uint64_t ns = (uint64_t)until->tv_sec * NS_PER_S + (uint64_t)until->tv_nsec;

	return ns >= world.offset_ns / 2 ? ns - world.offset_ns : ns;
}

int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
{
	return cond_wait(cond, mutex, UINT64_MAX);
}

int __wrap_pthread_cond_timedwait(
	pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until)
{
	return cond_wait(cond, mutex, deadline_of(until));
}

int __wrap_pthread_cond_clockwait(
	pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t clock, const struct timespec *until)
{
	(void)clock;
	return cond_wait(cond, mutex, deadline_of(until));
}

int __wrap_pthread_cond_signal(pthread_cond_t *cond)
{
	wake_one(cond);
	world_maybe_yield();
	return 0;
}

int __wrap_pthread_cond_broadcast(pthread_cond_t *cond)
{
	world_wake(cond);
	world_maybe_yield();
	return 0;
}

static long futex_error(int error)
{
	errno = error;
	return -1;
}

/* The two operations that base/wake.c uses. */
long world_futex(
	_Atomic uint32_t *word, long operation, uint32_t value, const struct timespec *until)
{
	if (operation == FUTEX_WAKE_PRIVATE) {
		CHECK(value == 1);
		wake_one(word);
		world_maybe_yield();
		return 0;
	}
	CHECK(operation == FUTEX_WAIT_BITSET_PRIVATE);
	world_maybe_yield();
	if (atomic_load(word) != value)
		return futex_error(EAGAIN);
	if (world_chance(SPURIOUS_ONE_OF))
		return futex_error(EINTR);
	if (!world_block(word, until ? deadline_of(until) : UINT64_MAX))
		return futex_error(ETIMEDOUT);
	return 0;
}

int __wrap_sem_post(sem_t *sem)
{
	int ret = __real_sem_post(sem);

	world_wake(sem);
	world_maybe_yield();
	return ret;
}

int __wrap_sem_wait(sem_t *sem)
{
	while (sem_trywait(sem))
		world_block(sem, UINT64_MAX);
	return 0;
}

/* ---- Time. ---- */

uint64_t world_now_ns(void)
{
	return world.now_ns;
}

void world_clock_jump(int64_t ns)
{
	world.offset_ns += (uint64_t)ns;
}

int __real_clock_gettime(clockid_t clock, struct timespec *ret_time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_time)
{
	uint64_t ns;

	if (!world.on)
		return __real_clock_gettime(clock, ret_time);
	world.now_ns += CLOCK_STEP_NS;
	if (world.now_ns > world.current->quantum_until_ns)
		turn_give();
	ns = world.now_ns;
	if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)
		ns += world.offset_ns;
	ret_time->tv_sec = (time_t)(ns / NS_PER_S);
	ret_time->tv_nsec = (long)(ns % NS_PER_S);
	return 0;
}

time_t __wrap_time(time_t *ret_time)
{
	time_t now = (time_t)((world.now_ns + world.offset_ns) / NS_PER_S);

	if (ret_time)
		*ret_time = now;
	return now;
}

int __real_nanosleep(const struct timespec *span, struct timespec *left);
int __wrap_nanosleep(const struct timespec *span, struct timespec *left)
{
	if (!world.on)
		return __real_nanosleep(span, left);
	world_block(
		span, world.now_ns + (uint64_t)span->tv_sec * NS_PER_S + (uint64_t)span->tv_nsec);
	return 0;
}

int __wrap_sched_yield(void)
{
	world_yield();
	return 0;
}

ssize_t __wrap_getrandom(void *data, size_t bytes, unsigned flags)
{
	(void)flags;
	prng_fill(&world.prng, data, bytes);
	return (ssize_t)bytes;
}

/* ---- Timer descriptors: an eventfd that is written when the time has come. ---- */

static void timer_due(void *arg)
{
	struct timer *timer = (struct timer *)arg;
	const uint64_t one = 1;

	CHECK(__real_write(timer->fd, &one, sizeof(one)) == sizeof(one));
	if (timer->interval_ns)
		world_event_set(&timer->event, world.now_ns + timer->interval_ns);
}

int eventfd(unsigned count, int flags);
int __wrap_timerfd_create(int clock, int flags)
{
	/* The flags of both are those of open(2). */
	int fd = eventfd(0, flags);

	(void)clock;
	for (uint32_t i = 0; fd >= 0 && i < TIMERS_MAX; i++)
		if (!world.timers[i].fd || world.timers[i].fd == fd) {
			world_event_cancel(&world.timers[i].event);
			world.timers[i] = (struct timer){
				.fd = fd, .event = {.fn = timer_due, .arg = &world.timers[i]}};
			return fd;
		}
	return fd;
}

int __wrap_timerfd_settime(
	int fd, int flags, const struct itimerspec *spec, struct itimerspec *ret_before)
{
	uint64_t ns = (uint64_t)spec->it_value.tv_sec * NS_PER_S + (uint64_t)spec->it_value.tv_nsec;
	uint64_t count;

	(void)ret_before;
	for (uint32_t i = 0; i < TIMERS_MAX; i++) {
		struct timer *timer = &world.timers[i];

		if (timer->fd != fd)
			continue;
		timer->interval_ns = (uint64_t)spec->it_interval.tv_sec * NS_PER_S +
				     (uint64_t)spec->it_interval.tv_nsec;
		world_event_cancel(&timer->event);
		/* A new setting discards earlier expirations. */
		if (__real_syscall(SYS_read, fd, &count, sizeof(count)) < 0)
			CHECK(errno == EAGAIN);
		if (ns)
			world_event_set(
				&timer->event, flags & TFD_TIMER_ABSTIME ? ns : world.now_ns + ns);
		return 0;
	}
	errno = EBADF;
	return -1;
}

ssize_t __wrap_write(int fd, const void *data, size_t bytes)
{
	ssize_t done = __real_write(fd, data, bytes);

	if (world.on && bytes == sizeof(uint64_t))
		world_uring_rung(fd);
	return done;
}

int __real_poll(struct pollfd *fds, nfds_t count, int timeout_ms);
int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
	uint64_t deadline_ns =
		timeout_ms < 0 ? UINT64_MAX : world.now_ns + (uint64_t)timeout_ms * NS_PER_MS;

	if (!world.on || timeout_ms == 0)
		return __real_poll(fds, count, timeout_ms);
	for (;;) {
		int ready = __real_poll(fds, count, 0);

		if (ready || world.now_ns >= deadline_ns)
			return ready;
		if (count == 1)
			world_wait_fd(fds[0].fd, fds[0].events, deadline_ns);
		else
			world_block(fds, MIN(deadline_ns, world.now_ns + NS_PER_MS));
	}
}
