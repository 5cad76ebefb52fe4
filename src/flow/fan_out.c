/* flow/fan_out.c: groups of reads of one object: their start, and their waits for each other.
 *
 *   gathering ─ all members are there, or the first has waited long enough ─► running ─► over
 *
 * The floor is where the slowest member is. A read waits while its next byte is a window or more
 * above the floor. When the floor stands for too long, those who stand on it fall out: they are
 * served on, and nobody waits for them any more. A group is over when no read of it is open, and
 * all members have everything, have left, or are silent. */
#include "flow/fan_out_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BUDGET_PART 4u
_Static_assert(FLOW_FAN_WAITS_MAX / 2 >= FLOW_FAN_MEMBERS_MAX, "one principal can fill a group");

DEFINE_COUNTER(groups_begun, "nebulaio_fan_out_groups_total", NULL,
	"Groups of clients that began to read an object in step.");
DEFINE_COUNTER(members_joined, "nebulaio_fan_out_members_total", NULL, "Their members.");
DEFINE_COUNTER(waiting, "nebulaio_fan_out_waiting", NULL,
	"Requests that wait for the other members of their group.");
DEFINE_COUNTER(members_late, "nebulaio_fan_out_alone_total", "why=\"late\"",
	"Requests that asked for a group and are served alone.");
DEFINE_COUNTER(members_slow, "nebulaio_fan_out_alone_total", "why=\"slow\"",
	"Requests that asked for a group and are served alone.");
DEFINE_COUNTER(members_apart, "nebulaio_fan_out_alone_total", "why=\"apart\"",
	"Requests that asked for a group and are served alone.");
DEFINE_COUNTER(members_full, "nebulaio_fan_out_alone_total", "why=\"full\"",
	"Requests that asked for a group and are served alone.");

/* A fiber that waits: for the start, or for the floor. */
struct fan_waiter {
	struct list link;
	struct reactor *reactor;
	struct fiber *fiber;
	struct reactor_msg msg;
	uint64_t offset;
	bool listed;  /* under the lock */
	bool arrived; /* on the fiber's own reactor */
};

/* ---- Waiting. ---- */

static void woken(struct reactor_msg *msg)
{
	struct fan_waiter *waiter = CONTAINER_OF(msg, struct fan_waiter, msg);

	waiter->arrived = true;
	fiber_wake(waiter->fiber);
}

/* Under the lock, which is given up meanwhile. */
void fan_wait(struct flow_fans *fans, struct fan_group *group, uint64_t offset, uint64_t until_ns)
{
	struct fan_waiter waiter = {.reactor = reactor_self(),
		.fiber = fiber_self(),
		.msg.fn = woken,
		.offset = offset,
		.listed = true};

	list_push_back(&group->waiters, &waiter.link);
	pthread_mutex_unlock(&fans->lock);
	while (!waiter.arrived && fiber_park_until(until_ns) == 0)
		;
	pthread_mutex_lock(&fans->lock);
	if (waiter.listed) {
		list_remove(&waiter.link);
		return;
	}
	pthread_mutex_unlock(&fans->lock);
	while (!waiter.arrived)
		fiber_park();
	pthread_mutex_lock(&fans->lock);
}

static bool above(const struct flow_fans *fans, const struct fan_group *group, uint64_t offset)
{
	return group->floor != UINT64_MAX && offset >= group->floor + fans->opts.window_bytes;
}

/* Wakes those that need not wait any more. */
void fan_wake(struct flow_fans *fans, struct fan_group *group)
{
	LIST_FOR_EACH_SAFE (link, &group->waiters) {
		struct fan_waiter *waiter = CONTAINER_OF(link, struct fan_waiter, link);

		if (group->running && !fans->stopped && above(fans, group, waiter->offset))
			continue;
		list_remove(&waiter->link);
		waiter->listed = false;
		reactor_post(waiter->reactor, &waiter->msg);
	}
}

/* ---- Members. ---- */

static void floor_find(struct flow_fans *fans, struct fan_group *group, uint64_t now_ns)
{
	uint64_t floor = UINT64_MAX;

	LIST_FOR_EACH (link, &group->members) {
		const struct fan_member *member = CONTAINER_OF(link, struct fan_member, link);

		if (member->counts)
			floor = MIN(floor, member->reached);
	}
	if (floor == group->floor)
		return;
	group->floor = floor;
	group->stood_ns = now_ns;
	fan_wake(fans, group);
}

static void member_forget(
	struct flow_fans *fans, struct fan_group *group, struct fan_member *member, uint64_t now_ns)
{
	if (!member->counts)
		return;
	member->counts = false;
	floor_find(fans, group, now_ns);
}

/* One whose read failed, and that tries again. */
static void member_return(
	struct flow_fans *fans, struct fan_group *group, struct fan_member *member, uint64_t now_ns)
{
	if (member->counts || member->reached >= group->object_bytes)
		return;
	member->counts = true;
	member->moved_ns = now_ns;
	floor_find(fans, group, now_ns);
}

static void member_reach(struct flow_fans *fans, struct fan_group *group, struct fan_member *member,
	uint64_t offset, uint64_t now_ns)
{
	bool lowest = member->counts && member->reached == group->floor;

	if (offset <= member->reached)
		return;
	member->reached = offset;
	member->moved_ns = now_ns;
	group->top = MAX(group->top, offset);
	if (lowest)
		floor_find(fans, group, now_ns);
}

/* How long the group's reads may still wait, of all that they may wait in all. */
static uint64_t budget_left_ns(
	const struct flow_fans *fans, const struct fan_group *group, uint64_t now_ns)
{
	uint64_t budget_ns = fans->opts.patience_ns + (now_ns - group->start_ns) / BUDGET_PART;
	uint64_t used_ns = group->waited_ns + (now_ns - group->wait_ns);

	return budget_ns > used_ns ? budget_ns - used_ns : 0;
}

/* Those at the floor fall out, and those in the way of offset who have not moved for as long; when
 * the budget is used up, all in the way: else each of many that crawl would cost a patience. */
static void slow_drop(
	struct flow_fans *fans, struct fan_group *group, uint64_t offset, uint64_t now_ns)
{
	bool used_up = !budget_left_ns(fans, group, now_ns);

	LIST_FOR_EACH (link, &group->members) {
		struct fan_member *member = CONTAINER_OF(link, struct fan_member, link);
		bool in_way = offset >= member->reached + fans->opts.window_bytes;
		bool stands = now_ns - member->moved_ns >= fans->opts.patience_ns;

		if (!member->counts ||
			(member->reached != group->floor && !(in_way && (stands || used_up))))
			continue;
		member->counts = false;
		member->slow = true;
		counter_add(&members_slow, 1);
	}
	floor_find(fans, group, now_ns);
}

/* Until when a read waits now, before the slowest fall out. */
static uint64_t patience_until_ns(
	const struct flow_fans *fans, const struct fan_group *group, uint64_t now_ns)
{
	return MIN(now_ns + budget_left_ns(fans, group, now_ns),
		group->stood_ns + fans->opts.patience_ns);
}

/* Waits until the next byte is within the window. Under the lock. */
static void pace(struct flow_fans *fans, struct flow_fan_read *read)
{
	struct fan_group *group = read->group;
	uint64_t now_ns = clock_now_ns();

	member_reach(fans, group, read->member, read->offset, now_ns);
	if (!read->member->counts || !above(fans, group, read->offset))
		return;
	if (group->pacing++ == 0) {
		group->wait_ns = now_ns;
		group->stood_ns = now_ns;
	}
	while (read->member->counts && !fans->stopped && above(fans, group, read->offset)) {
		uint64_t until_ns = patience_until_ns(fans, group, now_ns);

		if (until_ns <= now_ns)
			slow_drop(fans, group, read->offset, now_ns);
		else
			fan_wait(fans, group, read->offset, until_ns);
		now_ns = clock_now_ns();
	}
	if (--group->pacing == 0)
		group->waited_ns += now_ns - group->wait_ns;
}

static struct fan_member *member_find(const struct fan_group *group, uint64_t number)
{
	LIST_FOR_EACH (link, &group->members) {
		struct fan_member *member = CONTAINER_OF(link, struct fan_member, link);

		if (number && member->number == number)
			return member;
	}
	return NULL;
}

static void start(struct flow_fans *fans, struct fan_group *group, uint64_t now_ns)
{
	group->running = true;
	group->start_ns = now_ns;
	counter_add(&groups_begun, 1);
	counter_add(&members_joined, group->member_count);
	fan_wake(fans, group);
}

static struct fan_member *member_add(
	struct flow_fans *fans, struct fan_group *group, uint64_t number, uint64_t now_ns)
{
	struct fan_member *member;

	if (group->member_count == FLOW_FAN_MEMBERS_MAX)
		return NULL;
	member = (struct fan_member *)calloc(1, sizeof(*member));
	if (!member)
		return NULL;
	member->number = number;
	member->counts = true;
	member->moved_ns = now_ns;
	list_push_back(&group->members, &member->link);
	group->member_count++;
	group->floor = 0;
	if (group->running)
		counter_add(&members_joined, 1);
	else if (group->member_count >= group->count)
		start(fans, group, now_ns);
	return member;
}

/* ---- Groups. ---- */

static void group_free(struct flow_fans *fans, struct fan_group *group)
{
	CHECK(group->reads == 0);
	CHECK(list_empty(&group->waiters));
	while (!list_empty(&group->members)) {
		struct fan_member *member =
			CONTAINER_OF(list_pop(&group->members), struct fan_member, link);

		free(member);
	}
	list_remove(&group->link);
	fans->group_count--;
	fan_cast_drop(fans, group);
	free(group);
}

static bool silent(const struct flow_fans *fans, const struct fan_group *group, uint64_t now_ns,
	uint32_t patiences)
{
	return !group->reads && now_ns - group->idle_ns >= patiences * fans->opts.patience_ns;
}

/* No read of the group is open, and none will come, as far as is known. */
static bool over(const struct fan_group *group)
{
	LIST_FOR_EACH (link, &group->members) {
		const struct fan_member *member = CONTAINER_OF(link, struct fan_member, link);

		if (member->counts ||
			(member->slow && member->number && member->reached < group->object_bytes))
			return false;
	}
	return !group->reads;
}

void fan_groups_tidy(struct flow_fans *fans, uint64_t now_ns)
{
	LIST_FOR_EACH_SAFE (link, &fans->groups) {
		struct fan_group *group = CONTAINER_OF(link, struct fan_group, link);

		if (over(group) || silent(fans, group, now_ns, FAN_SILENT_MAX))
			group_free(fans, group);
	}
}

static struct fan_group *group_find(struct flow_fans *fans, const struct flow_fan_ask *ask)
{
	LIST_FOR_EACH (link, &fans->groups) {
		struct fan_group *group = CONTAINER_OF(link, struct fan_group, link);

		if (slice_eq(group->object, ask->object) && slice_eq(group->name, ask->name))
			return group;
	}
	return NULL;
}

static uint32_t groups_of(const struct flow_fans *fans, uint16_t share)
{
	uint32_t count = 0;

	LIST_FOR_EACH (link, &fans->groups)
		count += CONTAINER_OF(link, struct fan_group, link)->share == share;
	return count;
}

static struct fan_group *group_add(
	struct flow_fans *fans, const struct flow_fan_ask *ask, uint64_t now_ns)
{
	struct fan_group *group;

	if (fans->group_count == FLOW_FAN_GROUPS_MAX ||
		groups_of(fans, ask->share) == FLOW_FAN_GROUPS_MAX / 2)
		return NULL;
	group = (struct fan_group *)calloc(1, sizeof(*group) + ask->object.len + ask->name.len);
	if (!group)
		return NULL;
	slice_copy(ask->object, group->texts);
	slice_copy(ask->name, group->texts + ask->object.len);
	group->object = slice_of(group->texts, ask->object.len);
	group->name = slice_of(group->texts + ask->object.len, ask->name.len);
	group->object_bytes = ask->object_bytes;
	group->count = ask->count;
	group->share = ask->share;
	group->start_by_ns = now_ns + ask->wait_ns;
	group->idle_ns = now_ns;
	group->floor = UINT64_MAX;
	list_init(&group->members);
	list_init(&group->waiters);
	list_push_back(&fans->groups, &group->link);
	fans->group_count++;
	return group;
}

/* Whether one more request of the principal may wait for a start: one principal has half of the
 * waits at most, as many as a group has members, and of the last eighth no more than are left. */
static bool may_gather(const struct flow_fans *fans, uint16_t share)
{
	uint32_t own = fans->gathering_of[share], left = FLOW_FAN_WAITS_MAX - fans->gathering;

	return own < FLOW_FAN_WAITS_MAX / 2 && left &&
	       (left > FLOW_FAN_WAITS_MAX / 8 || own < left);
}

/* The member of the read, which becomes one when it begins at the start. */
enum flow_fan_role fan_join(struct flow_fans *fans, const struct flow_fan_ask *ask, uint64_t now_ns,
	struct flow_fan_read *read)
{
	struct fan_group *group = group_find(fans, ask);
	struct fan_member *member = group ? member_find(group, ask->member) : NULL;

	if (ask->object_bytes <= fans->opts.window_bytes && !ask->casts)
		return FLOW_FAN_SMALL;
	if (!member && ask->offset)
		return FLOW_FAN_APART;
	if (group && !member && silent(fans, group, now_ns, 1)) {
		group_free(fans, group);
		group = NULL;
	}
	if (!group)
		group = group_add(fans, ask, now_ns);
	if (!group || (!group->running && !may_gather(fans, ask->share)))
		return FLOW_FAN_FULL;
	if (!member && group->running && group->top > fans->opts.window_bytes)
		return FLOW_FAN_LATE;
	if (!member)
		member = member_add(fans, group, ask->member, now_ns);
	if (!member)
		return FLOW_FAN_FULL;
	/* Nobody waits for the start longer than it asked for, whoever came first. */
	group->start_by_ns = MIN(group->start_by_ns, now_ns + ask->wait_ns);
	if (member->slow)
		return FLOW_FAN_SLOW;
	if (ask->offset >= member->reached + fans->opts.window_bytes)
		return FLOW_FAN_APART;
	member_return(fans, group, member, now_ns);
	member->reads++;
	group->reads++;
	read->group = group;
	read->member = member;
	return FLOW_FAN_MEMBER;
}

bool fan_client_left(struct flow_fans *fans, const struct flow_fan_ask *ask)
{
	bool left;

	if (!ask->left)
		return false;
	pthread_mutex_unlock(&fans->lock);
	left = ask->left(ask->arg);
	pthread_mutex_lock(&fans->lock);
	return left;
}

/* Waits for the start. Under the lock, which is given up meanwhile. False: the client has left. */
bool fan_gather(struct flow_fans *fans, const struct flow_fan_ask *ask, struct fan_group *group)
{
	bool left = false;

	fans->gathering++;
	fans->gathering_of[ask->share]++;
	counter_add(&waiting, 1);
	while (!group->running && !left) {
		uint64_t now_ns = clock_now_ns();

		if (now_ns >= group->start_by_ns || fans->stopped) {
			start(fans, group, now_ns);
		} else {
			fan_wait(fans, group, 0, MIN(group->start_by_ns, now_ns + FAN_LOOK_NS));
			left = !group->running && fan_client_left(fans, ask);
		}
	}
	fans->gathering--;
	fans->gathering_of[ask->share]--;
	counter_sub(&waiting, 1);
	return !left;
}

static struct counter *alone_counter(enum flow_fan_role role)
{
	switch (role) {
	case FLOW_FAN_LATE:
		return &members_late;
	case FLOW_FAN_APART:
		return &members_apart;
	case FLOW_FAN_FULL:
		return &members_full;
	case FLOW_FAN_MEMBER:
	case FLOW_FAN_SMALL:
	case FLOW_FAN_SLOW: /* counted when it fell out */
		break;
	}
	return NULL;
}

/* Ends the read. Under the lock. */
void fan_leave(struct flow_fans *fans, struct flow_fan_read *read, bool all)
{
	struct fan_group *group = read->group;
	struct fan_member *member = read->member;
	uint64_t now_ns = clock_now_ns();

	CHECK(member->reads > 0 && group->reads > 0);
	member_reach(fans, group, member, read->offset, now_ns);
	member->reads--;
	group->reads--;
	group->idle_ns = now_ns;
	if (!all || !member->number || member->reached >= group->object_bytes)
		member_forget(fans, group, member, now_ns);
	if (!all)
		fan_cast_leave(fans, group, member);
	/* One that left before the start makes room for another. */
	if (!group->running && !member->counts && !member->reads) {
		list_remove(&member->link);
		free(member);
		group->member_count--;
	}
	fan_groups_tidy(fans, now_ns);
	read->group = NULL;
}

/* ---- The calls. ---- */

int flow_fans_open(const struct flow_fans_opts *opts, struct flow_fans **ret_fans)
{
	struct flow_fans *fans = (struct flow_fans *)calloc(1, sizeof(*fans));

	if (!fans)
		return -ENOMEM;
	fans->opts = *opts;
	pthread_mutex_init(&fans->lock, NULL);
	list_init(&fans->groups);
	list_init(&fans->dead);
	*ret_fans = fans;
	return 0;
}

void flow_fans_close(struct flow_fans *fans)
{
	if (!fans)
		return;
	LIST_FOR_EACH_SAFE (link, &fans->groups)
		group_free(fans, CONTAINER_OF(link, struct fan_group, link));
	fan_casts_close(fans);
	pthread_mutex_destroy(&fans->lock);
	free(fans);
}

void flow_fans_stop(struct flow_fans *fans)
{
	pthread_mutex_lock(&fans->lock);
	fans->stopped = true;
	LIST_FOR_EACH (link, &fans->groups)
		fan_wake(fans, CONTAINER_OF(link, struct fan_group, link));
	pthread_mutex_unlock(&fans->lock);
}

enum flow_fan_role flow_fan_begin(
	struct flow_fans *fans, const struct flow_fan_ask *ask, struct flow_fan_read *ret_read)
{
	uint64_t now_ns = clock_now_ns();
	enum flow_fan_role role;

	CHECK(ask->count >= 1);
	*ret_read = (struct flow_fan_read){.fans = fans, .offset = ask->offset};
	pthread_mutex_lock(&fans->lock);
	fan_groups_tidy(fans, now_ns);
	role = fan_join(fans, ask, now_ns, ret_read);
	if (role == FLOW_FAN_MEMBER && !fan_gather(fans, ask, ret_read->group)) {
		fan_leave(fans, ret_read, false);
		role = FLOW_FAN_APART;
	}
	if (role == FLOW_FAN_MEMBER) {
		/* It reads by itself. */
		fan_cast_leave(fans, ret_read->group, ret_read->member);
		ret_read->members = ret_read->group->member_count;
	}
	pthread_mutex_unlock(&fans->lock);
	fan_casts_bury(fans);
	if (alone_counter(role))
		counter_add(alone_counter(role), 1);
	return role;
}

static int fan_next(struct flow_source *source, uint32_t bytes_max, struct flow_piece *ret_piece)
{
	struct flow_fan_read *read = CONTAINER_OF(source, struct flow_fan_read, source);
	int ret;

	pthread_mutex_lock(&read->fans->lock);
	pace(read->fans, read);
	pthread_mutex_unlock(&read->fans->lock);
	read->inner->share = source->share;
	ret = flow_source_next(read->inner, bytes_max, ret_piece);
	source->arrived_ns = read->inner->arrived_ns;
	if (ret == 1)
		read->offset += ret_piece->bytes;
	return ret;
}

static void fan_close(struct flow_source *source)
{
	flow_source_close(CONTAINER_OF(source, struct flow_fan_read, source)->inner);
}

static const struct flow_source_ops FAN_SOURCE_OPS = {
	.name = "fan-out",
	.next = fan_next,
	.close = fan_close,
};

struct flow_source *flow_fan_source(struct flow_fan_read *read, struct flow_source *inner)
{
	CHECK(read->group != NULL);
	read->source = *inner;
	read->source.ops = &FAN_SOURCE_OPS;
	read->inner = inner;
	return &read->source;
}

void flow_fan_end(struct flow_fan_read *read, bool all)
{
	pthread_mutex_lock(&read->fans->lock);
	fan_leave(read->fans, read, all);
	pthread_mutex_unlock(&read->fans->lock);
	fan_casts_bury(read->fans);
}
