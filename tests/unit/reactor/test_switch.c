/* tests/unit/reactor/test_switch.c: the context switch by itself: registers, alignment, argument,
 * and an end to the backtrace. Built twice: over the assembly and over ucontext. */
#include "../unit.h"

#include <execinfo.h>
#include <time.h>

#include "base/clock.h"
#include "reactor/switch.h"

#define STACK_BYTES 262144u
#define ROUNDS	    1000u

static _Alignas(64) char stacks[2][STACK_BYTES];
static struct switch_ctx loop, sides[2];
static uint64_t sums[2];
static double products[2];
static int frames;

/* More live values than callee-saved registers, integer and floating point. */
static void churn(void *arg)
{
	size_t side = (size_t)(uintptr_t)arg;
	uint64_t a = side + 1, b = a * 3, c = a * 5, d = a * 7, e = a * 11, f = a * 13, g = a * 17;
	double u = (double)a, v = u * 0.5, w = u * 0.25, x = u * 0.125;
	_Alignas(16) volatile char aligned[16];

	assert_int_equal((uintptr_t)aligned % 16, 0);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		switch_to(&sides[side], &loop);
		a += b ^ c;
		b += c ^ d;
		c += d ^ e;
		d += e ^ f;
		e += f ^ g;
		f += g ^ a;
		g += a ^ b;
		u = u * 0.5 + v;
		v = v * 0.5 + w;
		w = w * 0.5 + x;
		x = x * 0.5 + u;
	}
	sums[side] = a + b + c + d + e + f + g;
	products[side] = u + v + w + x;
	switch_to(&sides[side], &loop);
}

/* The same without a switch. */
static void expect(size_t side, uint64_t *ret_sum, double *ret_product)
{
	uint64_t a = side + 1, b = a * 3, c = a * 5, d = a * 7, e = a * 11, f = a * 13, g = a * 17;
	double u = (double)a, v = u * 0.5, w = u * 0.25, x = u * 0.125;

	for (uint32_t i = 0; i < ROUNDS; i++) {
		a += b ^ c;
		b += c ^ d;
		c += d ^ e;
		d += e ^ f;
		e += f ^ g;
		f += g ^ a;
		g += a ^ b;
		u = u * 0.5 + v;
		v = v * 0.5 + w;
		w = w * 0.5 + x;
		x = x * 0.5 + u;
	}
	*ret_sum = a + b + c + d + e + f + g;
	*ret_product = u + v + w + x;
}

static void test_registers_survive(void **state)
{
	(void)state;
	for (uintptr_t side = 0; side < 2; side++)
		switch_prepare(&sides[side], stacks[side], STACK_BYTES, churn, (void *)side);
	for (uint32_t i = 0; i <= ROUNDS; i++) {
		switch_to(&loop, &sides[0]);
		switch_to(&loop, &sides[1]);
	}
	for (size_t side = 0; side < 2; side++) {
		uint64_t sum;
		double product;

		expect(side, &sum, &product);
		assert_int_equal(sums[side], sum);
		assert_true(products[side] == product);
	}
}

static void count_frames(void *arg)
{
	void *addresses[64];

	frames = backtrace(addresses, 64);
	switch_to(&sides[0], arg);
}

static void test_the_backtrace_ends(void **state)
{
	(void)state;
	switch_prepare(&sides[0], stacks[0], STACK_BYTES, count_frames, &loop);
	switch_to(&loop, &sides[0]);
	/* This function, and where a new stack starts. */
	assert_in_range(frames, 1, 4);
}

static void bounces(void *arg)
{
	(void)arg;
	for (;;)
		switch_to(&sides[0], &loop);
}

/* By this thread. */
static uint64_t used_ns(void)
{
	struct timespec now;

	assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now), 0);
	return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static void test_measure_switches(void **state)
{
	uint32_t count = 100000;
	uint64_t begin_ns, end_ns;

	(void)state;
	switch_prepare(&sides[0], stacks[0], STACK_BYTES, bounces, NULL);
	begin_ns = used_ns();
	for (uint32_t i = 0; i < count; i++)
		switch_to(&loop, &sides[0]);
	end_ns = used_ns();
	print_message("# %.1f ns per switch\n", (double)(end_ns - begin_ns) / (2.0 * count));
	/* A time near this limit means that a switch makes a system call, apart from ucontext's
	 * two. */
	assert_true(end_ns - begin_ns < 2ull * count * 20 * NS_PER_US);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_registers_survive),
		cmocka_unit_test(test_the_backtrace_ends),
		cmocka_unit_test(test_measure_switches),
	};

	return cmocka_run_group_tests_name("switch", tests, NULL, NULL);
}
