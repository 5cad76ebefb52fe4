/* reactor/uring.c: opens the ring with the features that the kernel offers, and handles its rare
 * failures.
 *
 * The ring is created disabled, so that open may be called on another thread than run: the first
 * turn enables it, and with SINGLE_ISSUER that thread is then its only user. Registering buffers
 * works before that, too. */
#include "reactor/reactor_priv.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/file.h"

/* Best first. DEFER_TASKRUN (Linux 6.1) keeps the kernel from interrupting the loop: completions
 * are made when we ask, and TASKRUN_FLAG says when asking is worth while. */
static const uint32_t FEATURES[URING_FEATURE_SETS] = {
	IORING_SETUP_SUBMIT_ALL | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
		IORING_SETUP_TASKRUN_FLAG,
	IORING_SETUP_SUBMIT_ALL | IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
	0,
};

bool reactor_uring_disabled(const char *root)
{
	char path[4096], line[16];

	snprintf(path, sizeof(path), "%s/proc/sys/kernel/io_uring_disabled", root);
	return file_line(path, line, sizeof(line)) && strcmp(line, "0") != 0;
}

static void explain(int error)
{
	if (error == -EPERM && reactor_uring_disabled(""))
		log_error("reactor", "the kernel does not permit io_uring: set "
				     "kernel.io_uring_disabled=0 with sysctl on the host");
	else if (error == -EPERM)
		log_error("reactor", "a seccomp profile forbids io_uring, as the default profile "
				     "of container runtimes does: use one that allows "
				     "io_uring_setup, io_uring_enter and io_uring_register "
				     "(deploy/kubernetes/seccomp.json), or Unconfined");
	else if (error == -ENOSYS)
		log_error("reactor", "this kernel has no io_uring, or a seccomp profile hides it: "
				     "Linux 5.13 or later is needed, 6.1 or later is better");
	else if (error == -ENOMEM)
		log_error("reactor", "no memory for an io_uring: raise the limit of locked memory "
				     "(ulimit -l, LimitMEMLOCK= in systemd)");
	else if (error == -EINVAL)
		log_error("reactor", "this kernel's io_uring is too old: Linux 5.13 or later is "
				     "needed, 5.19 or later for NVMe passthrough");
	else
		log_error("reactor", "io_uring_setup failed: %s", strerror(-error));
}

int uring_open(struct reactor *reactor, uint32_t feature_set)
{
	uint32_t fixed_flags = IORING_SETUP_R_DISABLED | IORING_SETUP_CQSIZE;
	int error = -EINVAL;

	if (reactor->opts.uring_big)
		fixed_flags |= IORING_SETUP_SQE128 | IORING_SETUP_CQE32;
	for (uint32_t i = feature_set; i < URING_FEATURE_SETS && error == -EINVAL; i++) {
		struct io_uring_params params = {
			.flags = FEATURES[i] | fixed_flags,
			.cq_entries = reactor->opts.uring_entries * 4,
		};

		error = io_uring_queue_init_params(
			reactor->opts.uring_entries, &reactor->ring, &params);
	}
	if (error) {
		explain(error);
		return error;
	}
	reactor->ring_open = true;
	log_debug("reactor", "core %u: io_uring flags 0x%x", reactor->opts.core_idx,
		reactor->ring.flags);
	return 0;
}

/* One multishot poll stays in the kernel. Every write to the eventfd makes a completion, and the
 * eventfd need not be read. */
static void watch_mailbox(struct reactor *reactor);

static void wake_seen(struct uring_op *op, int result, uint32_t cqe_flags)
{
	struct reactor *reactor = op->arg;
	uint64_t count;

	(void)result;
	if (cqe_flags & IORING_CQE_F_MORE)
		return;
	/* The kernel dropped the poll (it may when completions overflow). The eventfd is emptied,
	 * or else a new poll would fire at once. */
	if (read(reactor->wake_fd, &count, sizeof(count)) < 0)
		CHECK(errno == EAGAIN);
	watch_mailbox(reactor);
}

static void watch_mailbox(struct reactor *reactor)
{
	reactor->wake_op = (struct uring_op){.done = wake_seen, .arg = reactor};
	io_uring_prep_poll_multishot(
		reactor_sqe(reactor, &reactor->wake_op), reactor->wake_fd, POLLIN);
}

void uring_bind(struct reactor *reactor)
{
	long err;

	CHECK(!reactor->bound);
	reactor->owner = pthread_self();
	reactor->bound = true;
	/* The system call itself: liburing 2.3 declares io_uring_enable_rings but does not export
	 * it. */
	err = syscall(__NR_io_uring_register, reactor->ring.ring_fd, IORING_REGISTER_ENABLE_RINGS,
		NULL, 0);
	CHECK(err == 0);
	watch_mailbox(reactor);
}

void uring_flush_stuck(struct reactor *reactor, int error)
{
	for (uint32_t tries = 0; tries < URING_SUBMIT_TRIES; tries++) {
		if (error != -EINTR && error != -EAGAIN && error != -EBUSY)
			break;
		/* The kernel is short of memory, or wants to finish something first. */
		io_uring_get_events(&reactor->ring);
		sched_yield();
		error = io_uring_submit(&reactor->ring);
		if (error >= 0)
			return;
	}
	log_error("reactor", "io_uring takes no submissions: %s", strerror(-error));
	CHECK_FAIL("io_uring takes no submissions");
}
