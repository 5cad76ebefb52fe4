/* base/base.h: includes every header of base. */
#ifndef BASE_BASE_H
#define BASE_BASE_H

#include "base/buf.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/counter.h"
#include "base/hist.h"
#include "base/limits.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mpsc.h"
#include "base/prng.h"
#include "base/slab.h"
#include "base/slice.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
/* Each argument is evaluated once: between two readings, a device or another thread may change it.
 * Only in functions. */
#define MIN(a, b)	       PICK(a, <, b, __COUNTER__)
#define MAX(a, b)	       PICK(a, >, b, __COUNTER__)
#define PICK(a, op, b, number) PICK_NAMED(a, op, b, number)
/* A name of its own for each use, because uses nest. */
#define PICK_NAMED(a, op, b, number)                                                          \
	__extension__({                                                                       \
		const __typeof__(1 ? (a) : (b)) pick_a_##number = (a), pick_b_##number = (b); \
		pick_a_##number op pick_b_##number ? pick_a_##number : pick_b_##number;       \
	})
/* align must be a power of two. */
#define ALIGN_UP(n, align)   (((n) + ((align)-1)) & ~((__typeof__(n))(align)-1))
#define ALIGN_DOWN(n, align) ((n) & ~((__typeof__(n))(align)-1))

#endif
