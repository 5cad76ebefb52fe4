/* flow/fan_cast.c: the multicast of a group of reads: its opening, its members, and whose turn it
 * is to send. A part goes out once all members that keep up have asked for it: each has receives
 * posted for what it asked for, so only the network loses datagrams. One that does not ask in time
 * is not waited for until it has caught up. */
#include "flow/fan_out_priv.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JOIN_NS	     (10 * NS_PER_S)
#define JOIN_LOOK_NS NS_PER_MS
#define BUDGET_PART  4u
#define LOSS_PART    16u /* of a part: more lost datagrams slow the group down */
#define RATE_BEGIN   8u	 /* begins with this part of the rate */
/* Does not fall below this one: what is lost then comes faster by the members' own reads. */
#define RATE_LOW 16u

DEFINE_COUNTER(casts_begun, "nebulaio_multicast_groups_total", NULL,
	"Groups of clients that an object was sent to by multicast.");
DEFINE_COUNTER(casts_failed, "nebulaio_multicast_failures_total", NULL,
	"Multicasts that could not be begun, or ended early.");
DEFINE_COUNTER(cast_lost, "nebulaio_multicast_lost_datagrams_total", NULL,
	"Datagrams that clients reported as lost.");
DEFINE_COUNTER(cast_behind, "nebulaio_multicast_behind_total", NULL,
	"Members that a multicast stopped to wait for.");

/* ---- Opening and closing. ---- */

static void address_write(const struct flow_cast_opts *opts, uint32_t number, char *ret_text)
{
	struct in_addr address = {0};
	int ret = inet_pton(AF_INET, opts->group, &address);

	CHECK(ret == 1); /* the configuration was checked */
	address.s_addr = htonl(ntohl(address.s_addr) + number);
	inet_ntop(AF_INET, &address, ret_text, CAST_GROUP_BYTES);
}

static void cast_free(struct fan_cast *cast)
{
	rp_member_close(&cast->member);
	aead_close(cast->aead);
	secret_wipe(&cast->grant, sizeof(cast->grant));
	free(cast);
}

/* A fiber_fn for a helper thread. */
static void open_offloaded(void *arg)
{
	struct fan_cast *cast = (struct fan_cast *)arg;
	const struct rp_member_opts opts = {.device = cast->opts->device,
		.group = cast->grant.group,
		.slot_count = CAST_BATCH,
		.bytes = CAST_PAYLOAD_MAX + CAST_OVERHEAD};
	int ret = rp_member_open(&opts, &cast->member);

	if (ret) {
		log_warn("flow", "multicast: %s on %s: %s", cast->grant.group,
			cast->opts->device.device_name, strerror(-ret));
		cast->off = ret == -EOPNOTSUPP ? "the device has no datagrams"
					       : "the device cannot be opened for it";
	}
}

/* Waits until the network has the sender in the group. */
static const char *join_wait(struct fan_cast *cast)
{
	uint64_t deadline_ns = clock_now_ns() + JOIN_NS;

	while (clock_now_ns() < deadline_ns) {
		int joined = rp_member_joined(&cast->member);

		if (joined == 1)
			return NULL;
		if (joined == -ENETUNREACH)
			return "the network refuses the group";
		fiber_sleep_ns(JOIN_LOOK_NS);
	}
	return "the network does not answer";
}

/* Without the lock. */
static void cast_open(struct fan_cast *cast)
{
	struct rp_device_attr attr;

	random_fill(&cast->grant.stream, sizeof(cast->grant.stream));
	random_fill(cast->grant.key, sizeof(cast->grant.key));
	if (aead_open(cast->grant.key, &cast->aead))
		cast->off = "no memory";
	else
		fiber_offload(open_offloaded, cast);
	if (!cast->off)
		cast->off = join_wait(cast);
	if (!cast->off) {
		rp_device_attr(cast->member.device, &attr);
		cast->grant.payload_bytes = cast_payload_bytes(attr.active_mtu);
	}
	if (!cast->off && !cast->grant.payload_bytes)
		cast->off = "the port's MTU is too small";
	counter_add(cast->off ? &casts_failed : &casts_begun, 1);
}

void fan_cast_drop(struct flow_fans *fans, struct fan_group *group)
{
	struct fan_cast *cast = group->cast;

	if (!cast)
		return;
	CHECK(!cast->opening && !cast->sending);
	fans->casts &= ~(1u << cast->address);
	list_push_back(&fans->dead, &cast->link);
	group->cast = NULL;
}

void fan_cast_leave(struct flow_fans *fans, struct fan_group *group, struct fan_member *member)
{
	member->casts = false;
	if (!group->cast || group->cast->lagging != member)
		return;
	group->cast->lagging = NULL;
	fan_wake(fans, group);
}

void fan_casts_close(struct flow_fans *fans)
{
	while (!list_empty(&fans->dead))
		cast_free(CONTAINER_OF(list_pop(&fans->dead), struct fan_cast, link));
}

/* A fiber_fn for a helper thread. */
static void free_offloaded(void *arg)
{
	cast_free((struct fan_cast *)arg);
}

void fan_casts_bury(struct flow_fans *fans)
{
	for (;;) {
		struct list *link;

		pthread_mutex_lock(&fans->lock);
		link = list_pop(&fans->dead);
		pthread_mutex_unlock(&fans->lock);
		if (!link)
			return;
		fiber_offload(free_offloaded, CONTAINER_OF(link, struct fan_cast, link));
	}
}

/* ---- Entering. ---- */

static uint32_t casts_of(const struct flow_fans *fans, uint16_t share)
{
	uint32_t count = 0;

	LIST_FOR_EACH (link, &fans->groups) {
		const struct fan_group *group = CONTAINER_OF(link, struct fan_group, link);

		count += group->cast && group->share == share;
	}
	return count;
}

static struct fan_cast *cast_add(struct flow_fans *fans, struct fan_group *group)
{
	struct fan_cast *cast;
	uint32_t address = 0;

	if (casts_of(fans, group->share) == FLOW_CAST_GROUPS_MAX / 2)
		return NULL;
	while (address < FLOW_CAST_GROUPS_MAX && fans->casts & 1u << address)
		address++;
	if (address == FLOW_CAST_GROUPS_MAX)
		return NULL;
	cast = (struct fan_cast *)calloc(1, sizeof(*cast));
	if (!cast)
		return NULL;
	list_init(&cast->link);
	cast->opts = &fans->opts.cast;
	cast->address = address;
	cast->rate = cast->opts->rate / RATE_BEGIN;
	cast->opening = true;
	address_write(cast->opts, address, cast->grant.group);
	fans->casts |= 1u << address;
	group->cast = cast;
	return cast;
}

/* NULL, or why the group has no multicast. Under the lock, which is given up meanwhile. */
static const char *cast_have(struct flow_fans *fans, struct fan_group *group)
{
	if (!fans->opts.cast.group || !fans->opts.cast.group[0])
		return "the server's fan_out.multicast names no address";
	if (!group->cast) {
		struct fan_cast *cast = cast_add(fans, group);

		if (!cast)
			return "too many groups";
		pthread_mutex_unlock(&fans->lock);
		cast_open(cast);
		pthread_mutex_lock(&fans->lock);
		cast->opening = false;
		fan_wake(fans, group);
	}
	while (group->cast->opening)
		fan_wait(fans, group, 0, clock_now_ns() + FAN_LOOK_NS);
	return group->cast->off;
}

enum flow_fan_role flow_cast_enter(struct flow_fans *fans, const struct flow_fan_ask *ask,
	struct cast_grant *ret_grant, const char **ret_why)
{
	struct flow_fan_read read = {.fans = fans};
	enum flow_fan_role role;

	CHECK(ask->casts && ask->member && !ask->offset);
	*ret_why = NULL;
	pthread_mutex_lock(&fans->lock);
	fan_groups_tidy(fans, clock_now_ns());
	role = fan_join(fans, ask, clock_now_ns(), &read);
	if (role == FLOW_FAN_MEMBER) {
		/* From now on: the others may begin while this one waits for the opening. */
		read.member->casts = !read.group->cast || !read.group->cast->sent;
		*ret_why = cast_have(fans, read.group);
		if (*ret_why)
			fan_cast_leave(fans, read.group, read.member);
		else
			*ret_grant = read.group->cast->grant;
		fan_leave(fans, &read, true);
	}
	pthread_mutex_unlock(&fans->lock);
	fan_casts_bury(fans);
	return role;
}

/* ---- Turns. ---- */

/* The pace follows the member that loses most: half of it, once for what it has seen. */
static void pace_heed(struct fan_cast *cast, uint64_t lost)
{
	counter_add(&cast_lost, lost);
	if (lost <= CAST_PART_DATAGRAMS / LOSS_PART || cast->sent <= cast->slowed_at)
		return;
	cast->rate = MAX(cast->rate / 2, cast->opts->rate / RATE_LOW);
	/* The parts that are asked for by now were sent at the old pace. */
	cast->slowed_at = cast->sent + 4 * cast_part_full(cast->grant.payload_bytes);
}

static bool lags(const struct fan_member *member, uint64_t end)
{
	return member->casts && member->asked < end;
}

/* Whether a member has not asked for the next part, which ends there. */
static bool lag_find(const struct fan_group *group, uint64_t end)
{
	struct fan_cast *cast = group->cast;

	if (cast->lagging && lags(cast->lagging, end))
		return true;
	cast->lagging = NULL;
	LIST_FOR_EACH (link, &group->members) {
		const struct fan_member *member = CONTAINER_OF(link, struct fan_member, link);

		if (!lags(member, end))
			continue;
		cast->lagging = member;
		return true;
	}
	return false;
}

static void lag_drop(struct fan_group *group, uint64_t end)
{
	LIST_FOR_EACH (link, &group->members) {
		struct fan_member *member = CONTAINER_OF(link, struct fan_member, link);

		if (!lags(member, end))
			continue;
		member->casts = false;
		counter_add(&cast_behind, 1);
	}
}

/* Until when the next part waits for members: for each a patience, for all in all that and a
 * quarter of the time. */
static uint64_t lag_until_ns(
	const struct flow_fans *fans, const struct fan_group *group, uint64_t now_ns)
{
	const struct fan_cast *cast = group->cast;
	uint64_t patience_ns = fans->opts.patience_ns;
	uint64_t budget_ns = patience_ns + (now_ns - group->start_ns) / BUDGET_PART;
	uint64_t left_ns = budget_ns > cast->waited_ns ? budget_ns - cast->waited_ns : 0;

	return cast->blocked_ns + MIN(patience_ns, left_ns);
}

/* Whether the part is the next, and goes out now. *ret_until_ns: when to look again. */
static bool turn_take(struct flow_fans *fans, const struct flow_fan_read *read, uint64_t now_ns,
	uint64_t *ret_until_ns)
{
	struct fan_group *group = read->group;
	struct fan_cast *cast = group->cast;

	*ret_until_ns = now_ns + FAN_LOOK_NS;
	if (read->offset != cast->sent || cast->sending)
		return false;
	if (lag_find(group, read->end)) {
		uint64_t until_ns;

		if (!cast->blocked_ns)
			cast->blocked_ns = now_ns;
		until_ns = lag_until_ns(fans, group, now_ns);
		if (now_ns < until_ns) {
			*ret_until_ns = MIN(*ret_until_ns, until_ns);
			return false;
		}
		lag_drop(group, read->end);
	}
	if (cast->blocked_ns)
		cast->waited_ns += now_ns - cast->blocked_ns;
	cast->blocked_ns = 0;
	cast->sending = true;
	return true;
}

/* Until when the part waits for those before it, which nobody might ask for. */
static uint64_t order_until_ns(
	const struct flow_fans *fans, const struct flow_fan_read *read, uint64_t asked_ns)
{
	const struct fan_cast *cast = read->group->cast;

	if (read->offset == cast->sent)
		return DEADLINE_NONE;
	return MAX(asked_ns, cast->sent_ns) + FAN_SILENT_MAX * fans->opts.patience_ns;
}

/* False: the client has left. */
static bool turn_wait(struct flow_fans *fans, const struct flow_fan_ask *ask,
	struct flow_fan_read *read, enum flow_cast_part *ret_part)
{
	struct fan_cast *cast = read->group->cast;
	const uint64_t asked_ns = clock_now_ns();
	uint64_t now_ns = asked_ns, look_ns = now_ns + FAN_LOOK_NS, until_ns, order_ns;
	enum flow_cast_part sent = FLOW_CAST_PAST;

	for (;; sent = FLOW_CAST_SENT) {
		*ret_part = cast->off || fans->stopped ? FLOW_CAST_OFF
			    : read->end <= cast->sent  ? sent
						       : FLOW_CAST_SEND;
		if (*ret_part != FLOW_CAST_SEND || turn_take(fans, read, now_ns, &until_ns))
			return true;
		order_ns = order_until_ns(fans, read, asked_ns);
		if (now_ns >= order_ns) {
			fan_cast_leave(fans, read->group, read->member);
			*ret_part = FLOW_CAST_OFF;
			return true;
		}
		fan_wait(fans, read->group, 0, MIN(until_ns, order_ns));
		now_ns = clock_now_ns();
		if (now_ns < look_ns)
			continue;
		if (fan_client_left(fans, ask))
			return false;
		look_ns = now_ns + FAN_LOOK_NS;
	}
}

/* The member has receives for all before the part's end. */
static void asked(struct flow_fans *fans, struct flow_fan_read *read)
{
	struct fan_cast *cast = read->group->cast;
	struct fan_member *member = read->member;

	member->asked = MAX(member->asked, read->end);
	if (read->offset >= cast->sent)
		member->casts = true;
	/* The others wait for this one, or for one more. */
	if (cast->lagging == member)
		fan_wake(fans, read->group);
}

static bool is_part(const struct fan_group *group, const struct flow_fan_ask *ask)
{
	uint64_t full;

	if (!group->cast || group->cast->opening || group->cast->off)
		return false;
	full = cast_part_full(group->cast->grant.payload_bytes);
	return ask->offset % full == 0 && ask->offset < group->object_bytes &&
	       ask->bytes == cast_part_bytes(group->object_bytes, ask->offset,
				     group->cast->grant.payload_bytes);
}

enum flow_fan_role flow_cast_ask(struct flow_fans *fans, const struct flow_fan_ask *ask,
	uint64_t lost, struct flow_fan_read *ret_read, enum flow_cast_part *ret_part)
{
	enum flow_fan_role role;

	CHECK(ask->casts && ask->member);
	*ret_read = (struct flow_fan_read){
		.fans = fans, .offset = ask->offset, .end = ask->offset + ask->bytes};
	*ret_part = FLOW_CAST_OFF;
	pthread_mutex_lock(&fans->lock);
	fan_groups_tidy(fans, clock_now_ns());
	role = fan_join(fans, ask, clock_now_ns(), ret_read);
	if (role == FLOW_FAN_MEMBER && !fan_gather(fans, ask, ret_read->group)) {
		fan_leave(fans, ret_read, false);
		role = FLOW_FAN_APART;
	}
	if (role == FLOW_FAN_MEMBER && is_part(ret_read->group, ask)) {
		pace_heed(ret_read->group->cast, MIN(lost, 4 * CAST_PART_DATAGRAMS_MAX));
		asked(fans, ret_read);
		if (!turn_wait(fans, ask, ret_read, ret_part)) {
			fan_leave(fans, ret_read, false);
			role = FLOW_FAN_APART;
		} else if (*ret_part == FLOW_CAST_SENT || *ret_part == FLOW_CAST_PAST) {
			ret_read->offset = ret_read->end;
		}
	}
	if (role == FLOW_FAN_MEMBER)
		ret_read->members = ret_read->group->member_count;
	pthread_mutex_unlock(&fans->lock);
	fan_casts_bury(fans);
	return role;
}

/* ---- Sending. ---- */

static void part_end(struct flow_fan_read *read, const char *off)
{
	struct flow_fans *fans = read->fans;
	struct fan_cast *cast = read->group->cast;

	pthread_mutex_lock(&fans->lock);
	CHECK(cast->sending);
	cast->sending = false;
	cast->off = off;
	if (!off) {
		cast->sent = read->end;
		cast->sent_ns = clock_now_ns();
		read->offset = read->end;
		cast->rate =
			MIN(cast->rate + cast->opts->rate / (4 * RATE_BEGIN), cast->opts->rate);
	}
	fan_wake(fans, read->group);
	pthread_mutex_unlock(&fans->lock);
}

void flow_cast_fail(struct flow_fan_read *read, int error)
{
	log_warn("flow", "multicast: %s ends at byte %llu: %s: its members read on by themselves",
		read->group->cast->grant.group, (unsigned long long)read->offset, strerror(-error));
	counter_add(&casts_failed, 1);
	part_end(read, "it failed");
}

int flow_cast_send(struct flow_fan_read *read, struct flow_source *source)
{
	int ret = fan_cast_run(read->group->cast, source, read->offset, read->end);

	if (ret)
		flow_cast_fail(read, ret);
	else
		part_end(read, NULL);
	return ret;
}
