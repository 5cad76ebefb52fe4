/* region/copy_dp.c: the only permitted copy of payload, counted by reason in the calling thread.
 * Readers sum the counts of live threads and of threads that have ended. */
#include "region/region_priv.h"

#include <string.h>

struct copy_counts {
	_Atomic uint64_t bytes[COPY_WHY_COUNT];
	struct list link;
	bool listed;
};

static const char *const why_names[COPY_WHY_COUNT] = {
	[COPY_INLINE_IN] = "inline-in",
	[COPY_INLINE_OUT] = "inline-out",
	[COPY_INDEX] = "index",
	[COPY_ALIGN] = "align",
	[COPY_DECODE] = "decode",
	[COPY_CLIENT] = "client",
	[COPY_GATHER] = "gather",
	[COPY_LEASE] = "lease",
	[COPY_DAX] = "dax",
	[COPY_REPLICATE] = "replicate",
	[COPY_CAST] = "multicast",
};
static _Thread_local struct copy_counts counts_own;
static struct list threads = {.next = &threads, .prev = &threads};
static uint64_t bytes_ended[COPY_WHY_COUNT];
static pthread_mutex_t threads_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_key_t thread_key;
static pthread_once_t thread_key_once = PTHREAD_ONCE_INIT;

static void thread_ends(void *arg)
{
	struct copy_counts *counts = arg;

	pthread_mutex_lock(&threads_lock);
	list_remove(&counts->link);
	counts->listed = false;
	for (uint32_t why = 0; why < COPY_WHY_COUNT; why++)
		bytes_ended[why] +=
			atomic_exchange_explicit(&counts->bytes[why], 0, memory_order_relaxed);
	pthread_mutex_unlock(&threads_lock);
}

static void thread_key_create(void)
{
	int err = pthread_key_create(&thread_key, thread_ends);

	CHECK(err == 0);
}

static __attribute__((noinline, cold)) void thread_begins(struct copy_counts *counts)
{
	int err;

	pthread_once(&thread_key_once, thread_key_create);
	/* A thread outside the list would lose its counts, and its memory must leave the list when
	 * it ends. */
	err = pthread_setspecific(thread_key, counts);
	CHECK(err == 0);
	pthread_mutex_lock(&threads_lock);
	list_push_back(&threads, &counts->link);
	pthread_mutex_unlock(&threads_lock);
	counts->listed = true;
}

void region_copy_count(size_t bytes, enum region_copy_why why)
{
	struct copy_counts *counts = &counts_own;

	CHECK((uint32_t)why < COPY_WHY_COUNT);
	if (__builtin_expect(!counts->listed, 0))
		thread_begins(counts);
	atomic_store_explicit(&counts->bytes[why],
		atomic_load_explicit(&counts->bytes[why], memory_order_relaxed) + bytes,
		memory_order_relaxed);
}

void region_copy(void *dst, const void *src, size_t bytes, enum region_copy_why why)
{
	region_copy_count(bytes, why);
	memcpy(dst, src, bytes);
}

uint64_t region_copy_bytes(enum region_copy_why why)
{
	uint64_t bytes;

	CHECK((uint32_t)why < COPY_WHY_COUNT);
	pthread_mutex_lock(&threads_lock);
	bytes = bytes_ended[why];
	LIST_FOR_EACH (it, &threads) {
		struct copy_counts *counts = CONTAINER_OF(it, struct copy_counts, link);

		bytes += atomic_load_explicit(&counts->bytes[why], memory_order_relaxed);
	}
	pthread_mutex_unlock(&threads_lock);
	return bytes;
}

uint64_t region_copy_bytes_all(void)
{
	uint64_t bytes = 0;

	for (uint32_t why = 0; why < COPY_WHY_COUNT; why++)
		bytes += region_copy_bytes(why);
	return bytes;
}

const char *region_copy_why_name(enum region_copy_why why)
{
	return (uint32_t)why < COPY_WHY_COUNT ? why_names[why] : "unknown";
}
