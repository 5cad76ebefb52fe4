/* reactor/switch_ucontext.c: the context switch for machines we have no assembly for. */
#include "reactor/switch.h"

#include "base/base.h"

#if (defined(__x86_64__) || defined(__aarch64__)) && !defined(REACTOR_UCONTEXT)

/* ISO C wants something in every file. */
_Static_assert(sizeof(struct switch_ctx) == sizeof(void *), "a context is its stack pointer");

#else

/* makecontext passes ints only, so the two pointers travel as halves. */
static void start(unsigned entry_high, unsigned entry_low, unsigned arg_high, unsigned arg_low)
{
	uintptr_t entry = (uintptr_t)((uint64_t)entry_high << 32 | entry_low);
	uintptr_t arg = (uintptr_t)((uint64_t)arg_high << 32 | arg_low);

	((switch_entry_fn *)entry)((void *)arg);
}

void switch_to(struct switch_ctx *save, const struct switch_ctx *load)
{
	int err = swapcontext(&save->uc, &load->uc);

	CHECK(err == 0);
}

void switch_prepare(
	struct switch_ctx *ctx, void *stack, size_t stack_bytes, switch_entry_fn *entry, void *arg)
{
	uint64_t entry_bits = (uintptr_t)entry;
	uint64_t arg_bits = (uintptr_t)arg;
	int err = getcontext(&ctx->uc);

	CHECK(err == 0);
	ctx->uc.uc_stack.ss_sp = stack;
	ctx->uc.uc_stack.ss_size = stack_bytes;
	ctx->uc.uc_link = NULL;
	makecontext(&ctx->uc, (void (*)(void))start, 4, (unsigned)(entry_bits >> 32),
		(unsigned)entry_bits, (unsigned)(arg_bits >> 32), (unsigned)arg_bits);
}

#endif
