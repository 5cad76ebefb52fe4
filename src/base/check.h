/* base/check.h: assertions that find our own bugs. They stay on in production and are never used on
 * outside input. */
#ifndef BASE_CHECK_H
#define BASE_CHECK_H

#include <stdint.h>

/* Logs the failed fact and aborts. Declared cold so that the compiler moves it off the hot path. */
void check_failed(const char *file, int line, const char *func, const char *fact)
	__attribute__((noreturn, cold));

/* One fact each, no side effects: no assignment, no ++, no call but of functions that change
 * nothing (scripts/tidy). Example: CHECK(span->owner == OWNER_APP).
 *
 * Call, then check: a call that fails only by a bug of ours, such as one on a descriptor that is
 * there, stands by itself, and the CHECK has its result:
 *
 *	int ret = setns(home, CLONE_NEWNET);
 *
 *	CHECK(ret == 0); */
#define CHECK(fact)                                                        \
	do {                                                               \
		if (__builtin_expect(!(fact), 0))                          \
			check_failed(__FILE__, __LINE__, __func__, #fact); \
	} while (0)

#define CHECK_FAIL(why) check_failed(__FILE__, __LINE__, __func__, why)

/* Ends a struct's magic. Before free() a plain store is dead, and the compiler leaves it out. */
static inline void magic_clear(uint32_t *magic)
{
	*(volatile uint32_t *)magic = 0;
}

#endif
