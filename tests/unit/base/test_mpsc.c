#include "../unit.h"

#include <pthread.h>

#include "base/base.h"

enum { PRODUCERS = 3, PER_PRODUCER = 20000 };

struct item {
	struct mpsc_node node;
	unsigned producer;
	unsigned seq;
};

static struct mpsc queue;
static struct item items[PRODUCERS][PER_PRODUCER];

static void *produce(void *arg)
{
	unsigned producer = (unsigned)(uintptr_t)arg;

	for (unsigned i = 0; i < PER_PRODUCER; i++) {
		items[producer][i].producer = producer;
		items[producer][i].seq = i;
		mpsc_push(&queue, &items[producer][i].node);
	}
	return NULL;
}

static void test_each_producer_stays_in_order(void **state)
{
	pthread_t threads[PRODUCERS];
	unsigned next[PRODUCERS] = {0};
	unsigned got = 0;

	(void)state;
	mpsc_init(&queue);
	assert_true(mpsc_empty(&queue));
	assert_null(mpsc_pop(&queue));
	for (unsigned i = 0; i < PRODUCERS; i++)
		pthread_create(&threads[i], NULL, produce, (void *)(uintptr_t)i);
	while (got < PRODUCERS * PER_PRODUCER) {
		struct mpsc_node *node = mpsc_pop(&queue);
		struct item *item;

		if (!node) {
			clock_relax();
			continue;
		}
		item = CONTAINER_OF(node, struct item, node);
		assert_int_equal(item->seq, next[item->producer]);
		next[item->producer]++;
		got++;
	}
	for (unsigned i = 0; i < PRODUCERS; i++)
		pthread_join(threads[i], NULL);
	assert_true(mpsc_empty(&queue));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_producer_stays_in_order),
	};

	return cmocka_run_group_tests_name("mpsc", tests, NULL, NULL);
}
