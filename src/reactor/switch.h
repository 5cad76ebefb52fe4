/* reactor/switch.h: changing stacks: our own assembly on x86_64 and aarch64, ucontext elsewhere (or
 * with REACTOR_UCONTEXT, which costs two system calls a switch). */
#ifndef REACTOR_SWITCH_H
#define REACTOR_SWITCH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef void switch_entry_fn(void *arg);

#if (defined(__x86_64__) || defined(__aarch64__)) && !defined(REACTOR_UCONTEXT)

struct switch_ctx {
	void *sp; /* of a suspended side: where its registers lie */
};

/* In switch_<machine>.S. */
void reactor_switch(void **save_sp, void *load_sp);
void reactor_switch_start(void);

/* Saves the running side in save, goes on in load; returns when another side loads save again. */
static inline void switch_to(struct switch_ctx *save, const struct switch_ctx *load)
{
	reactor_switch(&save->sp, load->sp);
}

/* Makes ctx start entry(arg) on an empty stack at the first switch to it. entry never returns. */
static inline void switch_prepare(
	struct switch_ctx *ctx, void *stack, size_t stack_bytes, switch_entry_fn *entry, void *arg)
{
	uintptr_t top = ((uintptr_t)stack + stack_bytes) & ~(uintptr_t)15;
#if defined(__x86_64__)
	uint64_t *frame = (uint64_t *)(top - 64);
	uint32_t mxcsr;
	uint16_t fpcw;

	__asm__ volatile("stmxcsr %0" : "=m"(mxcsr));
	__asm__ volatile("fnstcw %0" : "=m"(fpcw));
	memset(frame, 0, 64);
	frame[0] = mxcsr | (uint64_t)fpcw << 32;
	frame[3] = (uintptr_t)arg;   /* r13 */
	frame[4] = (uintptr_t)entry; /* r12 */
	frame[7] = (uintptr_t)reactor_switch_start;
#else
	uint64_t *frame = (uint64_t *)(top - 176);
	uint64_t fpcr;

	__asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
	memset(frame, 0, 176);
	frame[8] = (uintptr_t)entry; /* x19 */
	frame[9] = (uintptr_t)arg;   /* x20 */
	frame[19] = (uintptr_t)reactor_switch_start;
	frame[20] = fpcr;
#endif
	ctx->sp = frame;
}

#else

#include <ucontext.h>

struct switch_ctx {
	ucontext_t uc;
};

/* In switch_ucontext.c. */
void switch_to(struct switch_ctx *save, const struct switch_ctx *load);
void switch_prepare(
	struct switch_ctx *ctx, void *stack, size_t stack_bytes, switch_entry_fn *entry, void *arg);

#endif
#endif
