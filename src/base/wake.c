/* base/wake.c: threads that wait for work, woken one by one. */
#include "base/wake.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"

/* On the stack of its thread. */
struct sleeper {
	struct list link;
	_Atomic uint32_t called;
};

/* 0 or ETIMEDOUT; may end early. */
static int word_wait(_Atomic uint32_t *word, const struct timespec *until)
{
	long ret = syscall(
		SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, 0, until, NULL, FUTEX_BITSET_MATCH_ANY);

	return ret < 0 && errno == ETIMEDOUT ? ETIMEDOUT : 0;
}

/* The thread may be gone from the word: then this wakes nobody, or whoever waits there now and
 * looks at its own word again. */
static void word_wake(_Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

int wake_wait(struct list *sleepers, pthread_mutex_t *lock, const struct timespec *until)
{
	struct sleeper sleeper = {.called = 0};
	int error = 0;

	list_push_front(sleepers, &sleeper.link);
	while (!atomic_load(&sleeper.called) && !error) {
		pthread_mutex_unlock(lock);
		error = word_wait(&sleeper.called, until);
		pthread_mutex_lock(lock);
	}
	if (atomic_load(&sleeper.called))
		return 0;
	list_remove(&sleeper.link);
	return error;
}

/* The word of the thread that slept last; NULL: none sleeps. */
static _Atomic uint32_t *sleeper_call(struct list *sleepers)
{
	struct list *link = list_pop(sleepers);
	struct sleeper *sleeper;

	if (!link)
		return NULL;
	sleeper = CONTAINER_OF(link, struct sleeper, link);
	atomic_store(&sleeper->called, 1);
	return &sleeper->called;
}

void wake_unlock(struct list *sleepers, pthread_mutex_t *lock, uint32_t count)
{
	_Atomic uint32_t *words[WAKE_MAX];
	uint32_t called = 0;

	CHECK(count <= WAKE_MAX);
	while (called < count && (words[called] = sleeper_call(sleepers)))
		called++;
	pthread_mutex_unlock(lock);
	for (uint32_t i = 0; i < called; i++)
		word_wake(words[i]);
}

void wake_all_unlock(struct list *sleepers, pthread_mutex_t *lock)
{
	while (!list_empty(sleepers)) {
		wake_unlock(sleepers, lock, WAKE_MAX);
		pthread_mutex_lock(lock);
	}
	pthread_mutex_unlock(lock);
}
