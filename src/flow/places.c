/* flow/places.c: fibers that wait for a place in a core's rings. A peer that completes nothing
 * holds no more than its part of a ring (region_ring_parts). The fibers that have more work for it
 * stand in a line of its own, and do not delay those of other targets. */
#include "flow/flow_priv.h"

#include <errno.h>
#include <stdlib.h>

/* Lies on its fiber's stack. */
struct place_waiter {
	struct list link;
	const struct flow_entry *entry;
	struct fiber *fiber;
	bool begun;
};

struct place_line {
	struct list link;    /* the core's lines, while somebody waits */
	struct list waiters; /* next NULL: nobody ever waited */
};

struct flow_places {
	struct list lines;
	struct place_line of[LIMIT_REGION_TARGETS_MAX]; /* by target */
};

int flow_places_open(struct flow_core *core)
{
	struct flow_places *places = calloc(1, sizeof(*places));

	if (!places)
		return -ENOMEM;
	list_init(&places->lines);
	core->places = places;
	region_ring_parts(core->ring, FLOW_BASE_PART, FLOW_RDMA_PART);
	return 0;
}

void flow_places_close(struct flow_core *core)
{
	if (!core->places)
		return;
	CHECK(core->lines == 0);
	region_ring_parts(core->ring, 0, 0);
	free(core->places);
	core->places = NULL;
}

static struct place_line *line_of(const struct flow_core *core, uint16_t target)
{
	CHECK(target < LIMIT_REGION_TARGETS_MAX);
	return &core->places->of[target];
}

bool flow_place_awaited(const struct flow_core *core, uint16_t target)
{
	const struct place_line *line = line_of(core, target);

	return line->waiters.next && !list_empty(&line->waiters);
}

void flow_place_wait(struct flow_core *core, const struct flow_entry *entry)
{
	struct place_line *line =
		line_of(core, entry->sqe ? entry->sqe->target : entry->wr->target);
	struct place_waiter waiter = {.entry = entry, .fiber = fiber_self()};

	CHECK(waiter.fiber != NULL);
	if (!line->waiters.next)
		list_init(&line->waiters);
	if (list_empty(&line->waiters)) {
		list_push_back(&core->places->lines, &line->link);
		core->lines++;
	}
	list_push_back(&line->waiters, &waiter.link);
	while (!waiter.begun)
		fiber_park();
}

/* Begins the first waiter's entry on its behalf, so that fibers do not race for the place. False:
 * there is none for this target. */
static bool line_serve(struct flow_core *core, struct place_line *line)
{
	struct place_waiter *waiter = CONTAINER_OF(line->waiters.next, struct place_waiter, link);
	const struct flow_entry *entry = waiter->entry;
	int ret;

	if (!(entry->sqe ? region_admits(core->ring, entry->sqe)
			 : region_admits_wr(core->ring, entry->wr)))
		return false;
	ret = flow_entry_begin(core, entry);
	CHECK(ret == 0);
	list_remove(&waiter->link);
	waiter->begun = true;
	fiber_wake(waiter->fiber);
	return true;
}

/* Bounded: each round but the last takes a place. */
void flow_places_serve(struct flow_core *core)
{
	struct list *lines = &core->places->lines;
	bool served;

	do {
		served = false;
		for (uint32_t left = core->lines; left; left--) {
			struct place_line *line =
				CONTAINER_OF(list_pop(lines), struct place_line, link);

			served |= line_serve(core, line);
			if (list_empty(&line->waiters))
				core->lines--;
			else
				list_push_back(lines, &line->link);
		}
	} while (served && core->lines);
}
