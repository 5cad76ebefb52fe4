/* base/counter.h: named counters and gauges that any part registers once and metrics read from any
 * thread. Adding is one relaxed atomic; a name follows the Prometheus conventions. */
#ifndef BASE_COUNTER_H
#define BASE_COUNTER_H

#include <stdatomic.h>
#include <stdint.h>

struct counter {
	const char *name;   /* "nebulaio_store_puts_total" */
	const char *labels; /* "op=\"get\"" or NULL */
	const char *help;
	_Atomic uint64_t value;
	struct counter *next; /* the registry's chain */
};

/* Static counters: DEFINE_COUNTER(puts, "nebulaio_store_puts_total", NULL, "Objects stored."). They
 * join the registry before main(). */
#define DEFINE_COUNTER(var, metric, label_text, help_text)                                     \
	static struct counter var = {.name = metric, .labels = label_text, .help = help_text}; \
	__attribute__((constructor)) static void var##_register(void)                          \
	{                                                                                      \
		counter_register(&var);                                                        \
	}                                                                                      \
	_Static_assert(1, "")

void counter_register(struct counter *counter);
/* Calls fn for every counter, in order of registration. Any thread. */
typedef void counter_visit_fn(const struct counter *counter, void *arg);
void counter_visit(counter_visit_fn *fn, void *arg);

static inline void counter_add(struct counter *counter, uint64_t n)
{
	atomic_fetch_add_explicit(&counter->value, n, memory_order_relaxed);
}

static inline void counter_sub(struct counter *counter, uint64_t n)
{
	atomic_fetch_sub_explicit(&counter->value, n, memory_order_relaxed);
}

static inline uint64_t counter_read(const struct counter *counter)
{
	return atomic_load_explicit(
		&((struct counter *)(uintptr_t)counter)->value, memory_order_relaxed);
}

#endif
