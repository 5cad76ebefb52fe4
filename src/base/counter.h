/* base/counter.h: named counters and gauges that any part registers once and metrics read from any
 * thread. A thread that counts often has a shard: its own share of every counter. It adds to the
 * shard without a locked instruction, which would wait for all earlier stores to leave the
 * processor. Names follow the Prometheus conventions. */
#ifndef BASE_COUNTER_H
#define BASE_COUNTER_H

#include <stdatomic.h>
#include <stdint.h>

struct counter {
	const char *name;   /* "nebulaio_store_puts_total" */
	const char *labels; /* "op=\"get\"" or NULL */
	const char *help;
	_Atomic uint64_t value; /* from threads without a shard, and from closed shards */
	uint32_t number;	/* from 1, in order of registration; 0: not registered */
	struct counter *next;	/* the registry's chain */
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

/* Counts how often a bounded resource was full: one metric, labelled by resource. The code that
 * finds it full counts it every time, whether it then waits, refuses or makes room. */
#define COUNTER_FULL	  "nebulaio_full_total"
#define COUNTER_FULL_HELP "Times that something bounded was found full, by what it is."
#define DEFINE_COUNTER_FULL(var, what) \
	DEFINE_COUNTER(var, COUNTER_FULL, "what=\"" what "\"", COUNTER_FULL_HELP)

/* For queues: the entries in it at each time that it was full, summed up. Divided by the above it
 * is the mean depth, which shows whether a bound of ours or an earlier one of the device was met.
 */
#define COUNTER_FULL_DEPTH	"nebulaio_full_depth_total"
#define COUNTER_FULL_DEPTH_HELP "Entries in a queue at the times it was found full, summed up."
#define DEFINE_COUNTER_FULL_DEPTH(var, what) \
	DEFINE_COUNTER(var, COUNTER_FULL_DEPTH, "what=\"" what "\"", COUNTER_FULL_DEPTH_HELP)

void counter_register(struct counter *counter);
/* Calls fn for every counter, in order of registration. Any thread. */
typedef void counter_visit_fn(const struct counter *counter, void *arg);
void counter_visit(counter_visit_fn *fn, void *arg);

/* ---- Histograms of durations, on the same shards. ---- */
/* Upper bounds of the buckets; the last bucket has none. */
#define COUNTER_HIST_BOUNDS                                                                       \
	{                                                                                         \
		10000, 25000, 50000, 100000, 250000, 500000, 1000000, 2500000, 5000000, 10000000, \
			25000000, 50000000, 100000000, 250000000, 500000000, 1000000000,          \
			2500000000, 5000000000, 10000000000, 30000000000                          \
	}
#define COUNTER_HIST_BUCKETS 21u
#define COUNTER_HIST_SUM     COUNTER_HIST_BUCKETS /* the place of the sum, in nanoseconds */
#define COUNTER_HIST_PLACES  (COUNTER_HIST_BUCKETS + 1u)
extern const uint64_t counter_hist_bounds_ns[COUNTER_HIST_BUCKETS - 1];

struct counter_hist {
	const char *name;   /* "nebulaio_s3_request_duration_seconds" */
	const char *labels; /* or NULL */
	const char *help;
	_Atomic uint64_t values[COUNTER_HIST_PLACES]; /* as a counter's value */
	uint32_t number;			      /* of its first place; the others follow */
	struct counter_hist *next;
};
void counter_hist_register(struct counter_hist *hist);
/* Adds one duration: two additions to the thread's shard. */
void counter_hist_add(struct counter_hist *hist, uint64_t duration_ns);
/* Adds the values of another process's histogram, in the form that counter_hist_read gives. */
void counter_hist_add_values(struct counter_hist *hist, const uint64_t values[COUNTER_HIST_PLACES]);
/* Reads the count of each bucket (not cumulative) and the sum. */
void counter_hist_read(const struct counter_hist *hist, uint64_t ret_values[COUNTER_HIST_PLACES]);
/* In order of registration. Any thread. */
typedef void counter_hist_visit_fn(const struct counter_hist *hist, void *arg);
void counter_hist_visit(counter_hist_visit_fn *fn, void *arg);

/* Gives the calling thread a shard for the counters registered so far, until the thread closes it.
 * When there is no memory for a shard, and for counters registered later, the thread adds as
 * threads without a shard do. */
void counter_shard_open(void);
void counter_shard_close(void);
/* Exact once the threads that added have been joined or otherwise synchronized with. Any thread. */
uint64_t counter_read(const struct counter *counter);

struct counter_shard {
	struct counter_shard *next;
	uint32_t count;
	_Atomic uint64_t shares[]; /* only the shard's thread writes */
};
extern _Thread_local struct counter_shard *counter_shard;

static inline void counter_add_at(uint32_t idx, _Atomic uint64_t *value, uint64_t n)
{
	struct counter_shard *shard = counter_shard;

	if (shard && idx < shard->count)
		atomic_store_explicit(&shard->shares[idx],
			atomic_load_explicit(&shard->shares[idx], memory_order_relaxed) + n,
			memory_order_relaxed);
	else
		atomic_fetch_add_explicit(value, n, memory_order_relaxed);
}

static inline void counter_add(struct counter *counter, uint64_t n)
{
	counter_add_at(counter->number - 1, &counter->value, n);
}

static inline void counter_sub(struct counter *counter, uint64_t n)
{
	counter_add(counter, -n);
}

#endif
