/* flow/lease.c: leases frames to fibers that can wait for them: first the share's limit, then the
 * region; when either is exhausted, the fiber waits in its share's queue. docs/design/flow.md
 * explains why no fiber waits for ever.
 *
 * The fiber that serves the queues gives a waiter its frames: the waiter does not race for them. It
 * serves the queues in the turn after this core's frames are given back, and periodically for
 * frames of other cores, which are given back without a notice to this core. */
#include <errno.h>
#include <stdlib.h>

#include "flow/flow_priv.h"

DEFINE_COUNTER_FULL(queue_full, "transfer_queue");

#define SERVE_NS (1 * NS_PER_MS)
/* Longest wait: after it the server answers that it is overloaded. */
#define WAIT_NS_MAX (30 * NS_PER_S)
/* A transfer that has not begun waits as long as its queue moves. When the queue has not moved for
 * this time, waiters that have not begun are refused, and new ones are refused at once. */
#define PATIENCE_NS (5 * NS_PER_S)
/* This core looks at the queues with waiters every SERVE_NS. When it did not for longer than this,
 * the process was stopped or its processor was taken. Nobody could give frames back in the gap, so
 * only this much of it counts as waiting. */
#define GAP_NS	  (500 * NS_PER_MS)
#define QUEUE_MAX 256u /* waiters of one share; more are refused at once */
#define SERVE_MAX 256u /* grants at a time: the others are served in the next turn */

DEFINE_COUNTER(waits_total, "nebulaio_flow_frame_waits_total", NULL,
	"Times that a transfer had to wait for frames.");
DEFINE_COUNTER(refused_total, "nebulaio_flow_frame_refusals_total", NULL,
	"Times that a transfer was refused because no frames were free.");
DEFINE_COUNTER(called_in_total, "nebulaio_flow_loans_called_in_total", NULL,
	"Times that idle frames of a transfer were reclaimed for others.");

/* Small leases and large ones never wait behind each other. */
enum size { SIZE_SMALL, SIZE_LARGE, SIZE_COUNT };

struct queue {
	struct list link; /* in active while the queue has waiters */
	struct list waiters;
	uint32_t count;
	/* By worked_ns(): the time of the last grant, or of the first waiter's arrival. */
	uint64_t moved_ns;
	uint64_t stood_ns; /* time of the last refusal; 0: none since the last grant */
};

struct flow_waiting {
	struct flow_core *core;
	struct reactor_timer timer;
	uint64_t pressed_ns;		/* the turn of the last call for loans */
	uint64_t looked_ns, gaps_ns;	/* of worked_ns() */
	bool out_of[SIZE_COUNT];	/* the region had none of this size at the last request */
	struct list active[SIZE_COUNT]; /* queues, by turns */
	struct queue queues[SIZE_COUNT][FLOW_SHARES];
	uint32_t asides[FLOW_SHARES]; /* flow_elsewhere's memory outside the region */
};

struct waiter {
	struct list link;
	struct fiber *fiber;
	const struct flow_want *want;
	struct region_span span;
	bool granted;
};

/* The clock, less what the gaps had beyond GAP_NS: waiting is measured by it. */
static uint64_t worked_ns(struct flow_waiting *waiting)
{
	uint64_t now_ns = clock_now_ns(), gap_ns = now_ns - waiting->looked_ns;

	if (gap_ns > GAP_NS)
		waiting->gaps_ns += gap_ns - GAP_NS;
	waiting->looked_ns = now_ns;
	return now_ns - waiting->gaps_ns;
}

static enum size size_of(const struct flow_want *want)
{
	return want->frame_count > FLOW_FRAMES_SMALL ? SIZE_LARGE : SIZE_SMALL;
}

static bool counts(const struct flow_core *core, uint16_t share)
{
	return core->budget && share != FLOW_SHARE_OWN;
}

/* -EDQUOT: above the share's limit; -ENOBUFS: the region has none. */
static int take(struct flow_core *core, const struct flow_want *want, struct region_span *ret_span)
{
	int ret;

	if (counts(core, want->share) && !flow_budget_take(core->budget, want->share,
						 want->frame_count, reactor_now_ns(core->reactor)))
		return -EDQUOT;
	if (want->count_only)
		return 0;
	if (__builtin_expect(want->lasting, 0))
		ret = region_lease_lasting(core->region, want->frame_count, want->owner, ret_span);
	else
		ret = region_lease(core->region, want->frame_count, want->owner, ret_span);
	if (ret && counts(core, want->share))
		flow_budget_give(core->budget, want->share, want->frame_count);
	return ret;
}

void flow_loans_call_in(struct flow_core *core)
{
	LIST_FOR_EACH_SAFE (link, &core->lenders) {
		struct flow_lender *lender = CONTAINER_OF(link, struct flow_lender, link);

		lender->call_in(lender);
	}
}

/* Idle loans are called in once a turn at most. */
static void press(struct flow_core *core, const struct flow_want *want, int why)
{
	struct flow_waiting *waiting = core->waiting;
	uint64_t now_ns = reactor_now_ns(core->reactor);

	if (why == -ENOBUFS && core->reclaim)
		core->reclaim(core->reclaim_arg, want->frame_count, want->lasting);
	if (waiting->pressed_ns == now_ns)
		return;
	waiting->pressed_ns = now_ns;
	flow_loans_call_in(core);
	counter_add(&called_in_total, 1);
}

static int take_pressing(
	struct flow_core *core, const struct flow_want *want, struct region_span *ret_span)
{
	int ret = take(core, want, ret_span);

	if (ret != -EDQUOT && ret != -ENOBUFS)
		return ret;
	press(core, want, ret);
	return take(core, want, ret_span);
}

/* ---- Queues. ---- */

static void queue_leave(struct flow_core *core, struct queue *queue, struct waiter *waiter)
{
	list_remove(&waiter->link);
	core->waiters--;
	if (--queue->count == 0)
		list_remove(&queue->link);
}

static void queue_join(
	struct flow_core *core, enum size size, struct queue *queue, struct waiter *waiter)
{
	struct flow_waiting *waiting = core->waiting;

	if (queue->count++ == 0) {
		queue->moved_ns = worked_ns(waiting);
		list_push_back(&waiting->active[size], &queue->link);
	}
	list_push_back(&queue->waiters, &waiter->link);
	core->waiters++;
	if (!waiting->timer.armed)
		reactor_timer_set(
			core->reactor, &waiting->timer, reactor_now_ns(core->reactor) + SERVE_NS);
}

/* One round: serves the first waiter of each queue while the region has frames. Returns how many
 * were served. */
static uint32_t serve_round(struct flow_core *core, enum size size, uint32_t max)
{
	struct flow_waiting *waiting = core->waiting;
	struct list *last = waiting->active[size].prev;
	uint32_t served = 0;

	while (!list_empty(&waiting->active[size]) && served < max) {
		struct queue *queue = CONTAINER_OF(waiting->active[size].next, struct queue, link);
		struct waiter *waiter = CONTAINER_OF(queue->waiters.next, struct waiter, link);
		bool end = &queue->link == last;
		int ret = take_pressing(core, waiter->want, &waiter->span);

		list_remove(&queue->link);
		list_push_back(&waiting->active[size], &queue->link);
		waiting->out_of[size] = ret == -ENOBUFS;
		if (ret == 0) {
			queue->moved_ns = worked_ns(waiting);
			queue->stood_ns = 0;
			waiter->granted = true;
			queue_leave(core, queue, waiter);
			fiber_wake(waiter->fiber);
			served++;
		}
		if (ret == -ENOBUFS || end)
			break;
	}
	return served;
}

void flow_waiting_serve(struct flow_core *core)
{
	for (enum size size = SIZE_SMALL; size < SIZE_COUNT; size++) {
		uint32_t left = SERVE_MAX, served;

		do {
			served = serve_round(core, size, left);
			left -= served;
		} while (served && left);
	}
}

static void serve_timer(struct reactor_timer *timer, void *arg)
{
	struct flow_core *core = arg;

	(void)worked_ns(core->waiting);
	flow_waiting_serve(core);
	if (core->waiters)
		reactor_timer_set(core->reactor, timer, reactor_now_ns(core->reactor) + SERVE_NS);
}

int flow_waiting_open(struct flow_core *core)
{
	struct flow_waiting *waiting = calloc(1, sizeof(*waiting));

	if (!waiting)
		return -ENOMEM;
	waiting->core = core;
	waiting->timer = (struct reactor_timer){.fn = serve_timer, .arg = core};
	for (enum size size = SIZE_SMALL; size < SIZE_COUNT; size++) {
		list_init(&waiting->active[size]);
		for (uint32_t i = 0; i < FLOW_SHARES; i++)
			list_init(&waiting->queues[size][i].waiters);
	}
	core->waiting = waiting;
	return 0;
}

void flow_waiting_close(struct flow_core *core)
{
	if (!core->waiting)
		return;
	CHECK(core->waiters == 0);
	reactor_timer_cancel(core->reactor, &core->waiting->timer);
	free(core->waiting);
	core->waiting = NULL;
}

/* ---- Leases. ---- */

/* Whether the calling fiber's transfer is working on a piece that has frames: only this fiber could
 * give them back. */
static bool holds_piece(const struct flow_core *core)
{
	LIST_FOR_EACH (link, &core->runs) {
		const struct flow_running *running = CONTAINER_OF(link, struct flow_running, link);

		flow_running_check(running);
		if (running->fiber == fiber_self() && running->in_hand && running->in_hand->data &&
			running->in_hand->hold != FLOW_HOLD_BORROWED)
			return true;
	}
	return false;
}

/* The time at which a waiter without a grant gives up, by worked_ns(). */
static uint64_t patience_ends(
	const struct flow_want *want, const struct queue *queue, uint64_t came_ns)
{
	uint64_t end_ns = came_ns + WAIT_NS_MAX;

	if (!want->begun)
		end_ns = MIN(end_ns, queue->moved_ns + PATIENCE_NS);
	return end_ns;
}

/* Whether waiting in it is useless: the queue does not move, or a waiter was refused a moment
 * ago. */
static bool stands(struct flow_waiting *waiting, const struct queue *queue)
{
	return (queue->count && worked_ns(waiting) - queue->moved_ns > PATIENCE_NS) ||
	       (queue->stood_ns && clock_now_ns() - queue->stood_ns < PATIENCE_NS);
}

static int wait_granted(struct flow_waiting *waiting, struct queue *queue, struct waiter *waiter)
{
	uint64_t came_ns = worked_ns(waiting);

	for (;;) {
		uint64_t end_ns = patience_ends(waiter->want, queue, came_ns) + waiting->gaps_ns;

		fiber_park_until(MIN(end_ns, waiter->want->deadline_ns));
		if (waiter->granted)
			return 0;
		if (clock_now_ns() >= waiter->want->deadline_ns)
			return -ETIMEDOUT;
		if (worked_ns(waiting) >= patience_ends(waiter->want, queue, came_ns))
			return -ENOBUFS;
	}
}

static __attribute__((noinline, cold)) int lease_wait(
	struct flow_core *core, const struct flow_want *want, struct region_span *ret_span)
{
	enum size size = size_of(want);
	struct queue *queue = &core->waiting->queues[size][want->share];
	struct waiter waiter = {.fiber = fiber_self(), .want = want};
	int ret = -ENOBUFS;

	CHECK(waiter.fiber);
	CHECK(!holds_piece(core));
	if (!queue->count && !core->waiting->out_of[size]) {
		ret = take_pressing(core, want, ret_span);
		if (ret != -EDQUOT && ret != -ENOBUFS) {
			queue->stood_ns = 0;
			return ret;
		}
	}
	if (queue->count >= QUEUE_MAX)
		counter_add(&queue_full, 1);
	if (queue->count >= QUEUE_MAX || (!want->begun && stands(core->waiting, queue))) {
		counter_add(&refused_total, 1);
		return -ENOBUFS;
	}
	counter_add(&waits_total, 1);
	queue_join(core, size, queue, &waiter);
	ret = wait_granted(core->waiting, queue, &waiter);
	if (ret == 0) {
		*ret_span = waiter.span;
		return 0;
	}
	queue_leave(core, queue, &waiter);
	if (ret == -ENOBUFS)
		queue->stood_ns = clock_now_ns();
	counter_add(&refused_total, 1);
	return ret;
}

int flow_lease(struct flow_core *core, const struct flow_want *want, struct region_span *ret_span)
{
	if (__builtin_expect(!core->waiters, 1)) {
		int ret = take(core, want, ret_span);

		if (__builtin_expect(ret != -EDQUOT && ret != -ENOBUFS, 1))
			return ret;
		core->waiting->out_of[size_of(want)] = false;
	}
	return lease_wait(core, want, ret_span);
}

int flow_lease_now(
	struct flow_core *core, const struct flow_want *want, struct region_span *ret_span)
{
	int ret = take_pressing(core, want, ret_span);

	return ret == -EDQUOT ? -ENOBUFS : ret;
}

int flow_lease_spare(
	struct flow_core *core, const struct flow_want *want, struct region_span *ret_span)
{
	int ret = core->waiters ? -ENOBUFS : take(core, want, ret_span);

	return ret == -EDQUOT ? -ENOBUFS : ret;
}

int flow_lease_lasting(struct flow_core *core, uint32_t frame_count, enum region_owner owner,
	struct region_span *ret_span)
{
	int ret = region_lease_lasting(core->region, frame_count, owner, ret_span);

	if (ret != -ENOBUFS || !core->reclaim)
		return ret;
	core->reclaim(core->reclaim_arg, frame_count, true);
	return region_lease_lasting(core->region, frame_count, owner, ret_span);
}

void flow_share_give(struct flow_core *core, uint16_t share, uint32_t frame_count)
{
	if (counts(core, share))
		flow_budget_give(core->budget, share, frame_count);
	core->frames_came = core->waiters != 0;
}

void flow_lender_add(struct flow_core *core, struct flow_lender *lender,
	void (*call_in)(struct flow_lender *lender))
{
	lender->call_in = call_in;
	list_push_back(&core->lenders, &lender->link);
}

void flow_lender_remove(struct flow_lender *lender)
{
	list_remove(&lender->link);
}

/* ---- Pieces. ---- */

static void piece_leased(
	struct flow_piece *piece, const struct flow_want *want, struct region_span span)
{
	piece->span = span;
	piece->data = span.data;
	piece->hold = FLOW_HOLD_LEASE;
	piece->share = want->share;
}

int flow_piece_lease(struct flow_core *core, const struct flow_want *want, struct flow_piece *piece)
{
	struct region_span span;
	int ret = flow_lease(core, want, &span);

	if (ret == 0)
		piece_leased(piece, want, span);
	return ret;
}

int flow_piece_lease_now(
	struct flow_core *core, const struct flow_want *want, struct flow_piece *piece)
{
	struct region_span span;
	int ret = flow_lease_now(core, want, &span);

	if (ret == 0)
		piece_leased(piece, want, span);
	return ret;
}

/* Without a limit, a principal whose share is at its limit would take the host's memory. */
static int aside_open(struct flow_elsewhere *elsewhere)
{
	uint32_t *asides = &elsewhere->core->waiting->asides[elsewhere->share];

	if (elsewhere->share != FLOW_SHARE_OWN && *asides == FLOW_SHARE_ASIDES) {
		counter_add(&refused_total, 1);
		return -ENOBUFS;
	}
	elsewhere->aside = malloc(FLOW_PIECE_BYTES_MAX);
	if (!elsewhere->aside)
		return -ENOMEM;
	elsewhere->aside_share = elsewhere->share;
	++*asides;
	return 0;
}

int flow_elsewhere(struct flow_elsewhere *elsewhere, uint32_t bytes, struct flow_piece *ret_piece)
{
	const struct flow_want want = {.frame_count = region_frames_for(bytes),
		.owner = OWNER_APP,
		.share = elsewhere->share};

	CHECK(bytes <= FLOW_PIECE_BYTES_MAX);
	if (flow_piece_lease_now(elsewhere->core, &want, ret_piece) == 0)
		return 0;
	if (!elsewhere->aside) {
		int ret = aside_open(elsewhere);

		if (ret)
			return ret;
	}
	ret_piece->span = (struct region_span){.data = NULL};
	ret_piece->data = elsewhere->aside;
	ret_piece->hold = FLOW_HOLD_BORROWED;
	ret_piece->share = FLOW_SHARE_OWN;
	return 0;
}

void flow_elsewhere_close(struct flow_elsewhere *elsewhere)
{
	if (!elsewhere->aside)
		return;
	elsewhere->core->waiting->asides[elsewhere->aside_share]--;
	free(elsewhere->aside);
	elsewhere->aside = NULL;
}

void flow_piece_pass(struct flow_core *core, struct flow_piece *piece)
{
	if (piece->share != FLOW_SHARE_OWN)
		flow_share_give(core, piece->share, piece->span.frame_count);
	else
		core->frames_came = core->waiters != 0;
	piece->data = NULL;
}

uint32_t flow_piece_append(
	struct flow_piece *to, uint32_t full, const struct flow_piece *from, uint32_t at)
{
	uint32_t room = MIN((uint32_t)region_span_bytes(to->span), full) - to->bytes;
	uint32_t bytes = MIN(from->bytes - at, room);

	region_copy(to->data + to->bytes, from->data + at, bytes,
		from->hold == FLOW_HOLD_BORROWED ? COPY_INLINE_IN : COPY_ALIGN);
	to->bytes += bytes;
	return bytes;
}
