/* reactor/fiber_on.c: runs a function in a fiber of another reactor, while the caller's fiber
 * waits. */
#include "reactor/reactor_priv.h"

/* One call: the message goes to the other reactor and back. Lies on the caller's stack. */
struct errand {
	struct reactor_msg msg;
	struct reactor *home;
	struct fiber *waiter;
	const char *name;
	fiber_fn *fn;
	void *arg;
	int ret;
	bool done;
};

static void errand_back(struct reactor_msg *msg)
{
	struct errand *errand = CONTAINER_OF(msg, struct errand, msg);

	errand->done = true;
	fiber_wake(errand->waiter);
}

static void errand_return(struct errand *errand)
{
	errand->msg.fn = errand_back;
	reactor_post(errand->home, &errand->msg);
}

static void errand_main(void *arg)
{
	struct errand *errand = (struct errand *)arg;

	errand->fn(errand->arg);
	errand_return(errand);
}

static void errand_arrive(struct reactor_msg *msg)
{
	struct errand *errand = CONTAINER_OF(msg, struct errand, msg);
	int ret;

	ret = fiber_run(reactor_self(), errand->name, errand_main, errand);
	/* The fiber may have ended, and its caller, whose stack has the errand, may have returned.
	 */
	if (!ret)
		return;
	errand->ret = ret;
	errand_return(errand);
}

int fiber_run_on(struct reactor *reactor, const char *name, fiber_fn *fn, void *arg)
{
	struct errand errand = {.msg.fn = errand_arrive,
		.home = reactor_self(),
		.waiter = fiber_self(),
		.name = name,
		.fn = fn,
		.arg = arg};

	if (reactor == errand.home) {
		fn(arg);
		return 0;
	}
	CHECK(errand.waiter);
	reactor_post(reactor, &errand.msg);
	while (!errand.done)
		fiber_park();
	return errand.ret;
}
