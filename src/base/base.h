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
#define MIN(a, b)    ((a) < (b) ? (a) : (b))
#define MAX(a, b)    ((a) > (b) ? (a) : (b))
/* align must be a power of two. */
#define ALIGN_UP(n, align)   (((n) + ((align)-1)) & ~((__typeof__(n))(align)-1))
#define ALIGN_DOWN(n, align) ((n) & ~((__typeof__(n))(align)-1))

#endif
