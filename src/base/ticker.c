/* base/ticker.c: a thread that looks at something again and again, and sleeps in between. */
#include "base/ticker.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/base.h"

int ticker_open(struct ticker *ticker)
{
	ticker->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	ticker->open = ticker->wake_fd >= 0;
	return ticker->open ? 0 : -errno;
}

int ticker_start(struct ticker *ticker, void *(*run)(void *), void *arg)
{
	int ret = -pthread_create(&ticker->thread, NULL, run, arg);

	ticker->running = !ret;
	return ret;
}

bool ticker_sleep(struct ticker *ticker, int timeout_ms)
{
	struct pollfd wake = {.fd = ticker->wake_fd, .events = POLLIN};
	eventfd_t value;

	if (!atomic_load(&ticker->ending) && poll(&wake, 1, timeout_ms) > 0)
		(void)eventfd_read(ticker->wake_fd, &value);
	return !atomic_load(&ticker->ending);
}

void ticker_wake(struct ticker *ticker)
{
	(void)eventfd_write(ticker->wake_fd, 1);
}

void ticker_stop(struct ticker *ticker)
{
	if (!ticker->open)
		return;
	atomic_store(&ticker->ending, true);
	ticker_wake(ticker);
	if (ticker->running)
		pthread_join(ticker->thread, NULL);
	ticker->running = false;
}

void ticker_close(struct ticker *ticker)
{
	CHECK(!ticker->running);
	if (ticker->open)
		close(ticker->wake_fd);
	ticker->open = false;
}
