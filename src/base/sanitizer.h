/* base/sanitizer.h: which of the compiler's sanitizers watches this build, and what the thread
 * sanitizer must be told. The thread sanitizer identifies an atomic by its address and sees only
 * this process's accesses. So it reports races for memory that is mapped twice, and for copies
 * whose reader checks afterwards whether they were overwritten. In other builds the calls are
 * empty. */
#ifndef BASE_SANITIZER_H
#define BASE_SANITIZER_H

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZER_ADDRESS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZER_ADDRESS 1
#endif
#endif
#ifndef SANITIZER_ADDRESS
#define SANITIZER_ADDRESS 0
#endif

#if defined(__SANITIZE_THREAD__)
#define SANITIZER_THREAD 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SANITIZER_THREAD 1
#endif
#endif
#ifndef SANITIZER_THREAD
#define SANITIZER_THREAD 0
#endif

#if SANITIZER_THREAD
#include <sanitizer/tsan_interface.h>
/* The runtime has these, and no header declares them. */
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);
#endif

/* The accesses of a thread before release(word) happen before those of another thread after
 * acquire(word), as with a release store and the acquire load that reads it. For pairs of atomics
 * that have one address each. */
static inline void sanitizer_release(void *word)
{
#if SANITIZER_THREAD
	__tsan_release(word);
#else
	(void)word;
#endif
}

static inline void sanitizer_acquire(void *word)
{
#if SANITIZER_THREAD
	__tsan_acquire(word);
#else
	(void)word;
#endif
}

/* Between the two calls, writes may race with reads that check afterwards whether they read old
 * bytes. */
static inline void sanitizer_overtaken_begin(void)
{
#if SANITIZER_THREAD
	AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
#endif
}

static inline void sanitizer_overtaken_end(void)
{
#if SANITIZER_THREAD
	AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
#endif
}

#endif
