/* s3/event/notify.c: the queues of events and the threads that send them. */
#include "s3/event/notify.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "s3/event/notify_send.h"
#include "s3/event/topic.h"

DEFINE_COUNTER_FULL(queue_full, "notification_queue");

#define IDLE_NS (30 * NS_PER_S)
/* Pauses start at the minimum and double: for an unreachable target; for a target that refused an
 * event, before it gets another; for the refused event. */
#define PAUSE_NS_MIN   (100 * NS_PER_MS)
#define AWAY_NS_MAX    (10 * NS_PER_S)
#define REFUSED_NS_MAX (1 * NS_PER_S)
#define ASIDE_NS_MAX   (60 * NS_PER_S)
#define CLOSE_NS       (3 * NS_PER_S) /* time for targets when the server ends */
#define GONE	       "the topic, or its endpoint, is gone"

DEFINE_COUNTER(
	sent, "nebulaio_notification_sent_total", NULL, "Events that their target accepted.");
DEFINE_COUNTER(failed_tries, "nebulaio_notification_failed_tries_total", NULL,
	"Times that a target did not accept an event.");
DEFINE_COUNTER(dropped, "nebulaio_notification_dropped_total", NULL,
	"Events that were dropped: the queue was full, or the target silent or gone.");
DEFINE_COUNTER(waiting, "nebulaio_notification_waiting", NULL, "Events in the queues.");
DEFINE_COUNTER(waiting_bytes, "nebulaio_notification_waiting_bytes", NULL,
	"Bytes of the events in the queues.");

/* reserved → queued ⇄ on its way → sent or given up → done, when it is kept (until the store heard
 * of it) refused ⇅ aside */
struct s3_notice {
	struct list link; /* in the target's list, or in the list of completed ones */
	struct target *target;
	uint64_t number;
	uint64_t queued_ns;
	uint64_t pause_ns, again_ns; /* set after it was refused */
	bool kept;
	size_t bytes; /* reserved */
	size_t len;
	char text[];
};
struct target {
	struct s3_notify *notify;
	char name[S3_TOPIC_ARN_BYTES];
	struct s3_notify_way way; /* of a topic: changes with its endpoint */
	pthread_t thread;
	pthread_cond_t changed;
	struct list queue;		  /* queued: struct s3_notice, by number */
	struct list aside;		  /* refused: by again_ns */
	uint32_t count;			  /* including reserved ones and the one being sent */
	uint64_t bytes;			  /* bytes of the same */
	uint64_t pause_ns, rest_until_ns; /* 0: it has not failed since it last took an event */
	bool aside_next;		  /* queued and refused events take turns */
	bool moved;			  /* the way changed since the last try began */
	bool dropping;			  /* logged once, until an event is sent again */
	/* Of a topic: its thread ends after it was idle for a while. */
	bool used, ended;
	size_t account_len; /* of its name: "ACCOUNT:NAME" */
};
struct s3_notify {
	pthread_mutex_t lock;
	bool closing, stopped;
	uint64_t close_ns; /* end of the last moment */
	uint32_t queue_events;
	uint64_t queue_bytes, bytes; /* of all targets */
	uint64_t topic_bytes;	     /* the part that all topics may have */
	uint64_t retry_ns;
	struct list done;
	void (*on_room)(void *arg);
	void *on_room_arg;
	uint32_t started;
	uint32_t count;
	struct target targets[S3_TARGETS_MAX];
	enum s3_notify_topics takes;
	struct target topics[S3_NOTIFY_TOPICS_ACTIVE_MAX];
};

/* ---- Names and addresses. ---- */

static bool name_valid(struct slice name)
{
	return name.len > 0 && name.len <= S3_TARGET_NAME_MAX && slice_is_word(name, "-_");
}

static struct target *find(const struct s3_notify *notify, struct slice name)
{
	for (uint32_t i = 0; i < notify->count; i++)
		if (slice_eq(slice_str(notify->targets[i].name), name))
			return (struct target *)&notify->targets[i];
	return NULL;
}

static int add(struct s3_notify *notify, struct slice name, struct slice url, bool is_log)
{
	struct target *target = &notify->targets[notify->count];

	if (notify->count == S3_TARGETS_MAX || !name_valid(name) || find(notify, name) ||
		slice_copy_str(url, target->way.url, sizeof(target->way.url)))
		return -EINVAL;
	slice_copy_str(name, target->name, sizeof(target->name));
	target->way.is_log = is_log;
	target->notify = notify;
	list_init(&target->queue);
	list_init(&target->aside);
	notify->count++;
	return 0;
}

static int add_webhook(struct s3_notify *notify, struct slice text)
{
	ptrdiff_t at = slice_find(text, SLICE("="));
	struct slice url = at < 0 ? SLICE_NONE : slice_from(text, (size_t)at + 1);

	if (at < 0 ||
		(!slice_starts(url, SLICE("http://")) && !slice_starts(url, SLICE("https://"))))
		return -EINVAL;
	return add(notify, slice_to(text, (size_t)at), url, false);
}

static int add_all(struct s3_notify *notify, const struct s3_notify_opts *opts)
{
	struct slice rest = slice_str(opts->targets ? opts->targets : "");
	int ret = 0;

	if (opts->log_file && opts->log_file[0])
		ret = add(notify, SLICE(S3_TARGET_LOG), slice_str(opts->log_file), true);
	while (!ret && rest.len)
		ret = add_webhook(notify, slice_trim(slice_split(&rest, ',')));
	if (ret)
		log_error("s3", "notification.targets: NAME=URL,… with names of letters, digits, "
				"'-' and '_', each once (log is the log file's), and http:// or "
				"https://");
	return ret;
}

/* ---- A target's thread. It holds the lock except during the try itself. ---- */

static void drop(struct target *target, const char *why)
{
	counter_add(&dropped, 1);
	if (!target->dropping)
		log_warn("s3", "events for the notification target %s are dropped: %s",
			target->name, why);
	target->dropping = true;
}

static struct s3_notice *first_of(const struct list *list)
{
	return list_empty(list) ? NULL : CONTAINER_OF(list->next, struct s3_notice, link);
}

/* Inserts by number, because commits on other cores may have been faster. */
static void enqueue(struct target *target, struct s3_notice *notice)
{
	struct list *at = &target->queue;

	while (notice->number && at->prev != &target->queue &&
		CONTAINER_OF(at->prev, struct s3_notice, link)->number > notice->number)
		at = at->prev;
	list_push_back(at, &notice->link);
}

static void step_aside(struct target *target, struct s3_notice *notice)
{
	struct list *at = &target->aside;

	while (at->prev != &target->aside &&
		CONTAINER_OF(at->prev, struct s3_notice, link)->again_ns > notice->again_ns)
		at = at->prev;
	list_push_back(at, &notice->link);
}

/* The event to try now; NULL: none before *ret_until_ns. */
static struct s3_notice *pick(struct target *target, uint64_t now_ns, uint64_t *ret_until_ns)
{
	struct s3_notice *queued = first_of(&target->queue), *aside = first_of(&target->aside);
	bool due = aside && aside->again_ns <= now_ns;

	*ret_until_ns = target->rest_until_ns;
	if ((!queued && !aside) || now_ns < target->rest_until_ns)
		return NULL;
	if (due && (!queued || target->aside_next))
		return aside;
	if (!queued)
		*ret_until_ns = aside->again_ns;
	return queued;
}

static void wait_until(struct target *target, uint64_t until_ns)
{
	const struct timespec until = {
		.tv_sec = (time_t)(until_ns / NS_PER_S), .tv_nsec = (long)(until_ns % NS_PER_S)};

	pthread_cond_timedwait(&target->changed, &target->notify->lock, &until);
}

/* Waits for an event to try and takes it out of its list; NULL: the server ends, or a topic was
 * idle for long. */
static struct s3_notice *next(struct target *target)
{
	const struct s3_notify *notify = target->notify;
	const uint64_t idle_ns = clock_now_ns() + IDLE_NS;

	for (;;) {
		uint64_t now_ns = clock_now_ns(), until_ns;
		struct s3_notice *notice = pick(target, now_ns, &until_ns);

		if (notify->closing && (!notice || target->pause_ns || now_ns >= notify->close_ns))
			return NULL;
		if (notice) {
			target->aside_next = !notice->again_ns;
			list_remove(&notice->link);
			return notice;
		}
		if (!list_empty(&target->queue) || !list_empty(&target->aside))
			wait_until(target, until_ns);
		else if (!target->way.is_topic || target->count) /* a place is reserved */
			pthread_cond_wait(&target->changed, &target->notify->lock);
		else if (now_ns < idle_ns)
			wait_until(target, idle_ns);
		else
			return NULL;
	}
}

/* Leaves the place in the queue. */
static void leave(struct s3_notice *notice)
{
	struct s3_notify *notify = notice->target->notify;

	notice->target->count--;
	notice->target->bytes -= notice->bytes;
	notify->bytes -= notice->bytes;
	counter_sub(&waiting, 1);
	counter_sub(&waiting_bytes, notice->bytes);
	if (notify->on_room)
		notify->on_room(notify->on_room_arg);
}

/* Its event is in no list: it was sent or given up. */
static void forget(struct s3_notice *notice)
{
	struct s3_notify *notify = notice->target->notify;

	leave(notice);
	if (notice->kept)
		list_push_back(&notify->done, &notice->link);
	else
		free(notice);
}

static void drop_all(struct target *target, const char *why)
{
	struct list *link;

	while ((link = list_pop(&target->queue)) || (link = list_pop(&target->aside))) {
		drop(target, why);
		forget(CONTAINER_OF(link, struct s3_notice, link));
	}
}

/* The server ends: stored events wait for the next start. */
static void abandon(struct target *target)
{
	struct list *link;
	uint32_t kept = 0;

	while ((link = list_pop(&target->queue)) || (link = list_pop(&target->aside))) {
		struct s3_notice *notice = CONTAINER_OF(link, struct s3_notice, link);

		if (notice->kept)
			kept++;
		else
			drop(target, "the server is stopping");
		notice->kept = false;
		forget(notice);
	}
	if (kept)
		log_info("s3",
			"%u events for the notification target %s remain in the store until the "
			"next start",
			kept, target->name);
}

static uint64_t longer(uint64_t pause_ns, uint64_t max_ns)
{
	return MIN(MAX(2 * pause_ns, PAUSE_NS_MIN), max_ns);
}

/* An unreachable target keeps its order; events after a refused one may overtake it. */
static void failed(struct target *target, struct s3_notice *notice, bool refused)
{
	const struct s3_notify *notify = target->notify;
	uint64_t now_ns = clock_now_ns(), again_ns;

	target->pause_ns = longer(target->pause_ns, refused ? REFUSED_NS_MAX : AWAY_NS_MAX);
	target->rest_until_ns = again_ns = now_ns + target->pause_ns;
	if (refused) {
		notice->pause_ns = longer(notice->pause_ns, ASIDE_NS_MAX);
		again_ns = now_ns + notice->pause_ns;
	}
	if (!notify->closing && again_ns >= notice->queued_ns + notify->retry_ns) {
		drop(target, "it does not accept them");
		forget(notice);
	} else if (refused || notice->again_ns) {
		notice->again_ns = again_ns;
		step_aside(target, notice);
	} else {
		list_push_front(&target->queue, &notice->link);
	}
}

static bool give_up(void *arg)
{
	struct target *target = arg;
	struct s3_notify *notify = target->notify;
	bool over;

	pthread_mutex_lock(&notify->lock);
	over = target->moved || (notify->closing && clock_now_ns() >= notify->close_ns);
	pthread_mutex_unlock(&notify->lock);
	return over;
}

static void try_one(struct target *target, struct s3_notice *notice, CURL *curl)
{
	const struct s3_notify_way way = target->way;
	enum s3_notify_result result;

	target->moved = false;
	pthread_mutex_unlock(&target->notify->lock);
	result = s3_notify_send(&way, slice_of(notice->text, notice->len), curl, give_up, target);
	pthread_mutex_lock(&target->notify->lock);
	if (result == S3_NOTIFY_TAKEN) {
		counter_add(&sent, 1);
		target->dropping = false;
		target->pause_ns = 0;
		forget(notice);
		return;
	}
	counter_add(&failed_tries, 1);
	if (!target->moved) {
		failed(target, notice, result == S3_NOTIFY_REFUSED);
	} else if (target->way.url[0]) {
		notice->pause_ns = notice->again_ns = 0;
		enqueue(target, notice);
	} else {
		drop(target, GONE);
		forget(notice);
	}
}

static void *target_main(void *arg)
{
	struct target *target = arg;
	pthread_mutex_t *lock = &target->notify->lock;
	CURL *curl = target->way.is_log ? NULL : curl_easy_init();
	struct s3_notice *notice;

	pthread_mutex_lock(lock);
	while ((notice = next(target)))
		try_one(target, notice, curl);
	abandon(target);
	target->ended = true;
	pthread_mutex_unlock(lock);
	curl_easy_cleanup(curl);
	return NULL;
}

/* ---- The interface. ---- */

static int start(struct target *target)
{
	pthread_condattr_t attr;
	int ret;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&target->changed, &attr);
	pthread_condattr_destroy(&attr);
	ret = -pthread_create(&target->thread, NULL, target_main, target);
	if (ret)
		pthread_cond_destroy(&target->changed);
	return ret;
}

/* Its thread has ended, or was told to end. */
static void topic_end(struct target *topic)
{
	if (!topic->used)
		return;
	pthread_join(topic->thread, NULL);
	pthread_cond_destroy(&topic->changed);
	topic->used = false;
}

int s3_notify_open(const struct s3_notify_opts *opts, struct s3_notify **ret_notify)
{
	struct s3_notify *notify = calloc(1, sizeof(*notify));
	int ret;

	if (!notify)
		return -ENOMEM;
	pthread_mutex_init(&notify->lock, NULL);
	notify->queue_events = opts->queue_events ? opts->queue_events : S3_NOTIFY_EVENTS_DEFAULT;
	notify->queue_bytes = opts->queue_bytes ? opts->queue_bytes : S3_NOTIFY_BYTES_DEFAULT;
	list_init(&notify->done);
	notify->retry_ns = (opts->retry_s ? opts->retry_s : S3_NOTIFY_RETRY_S_DEFAULT) * NS_PER_S;
	notify->takes = opts->topics;
	ret = add_all(notify, opts);
	notify->topic_bytes = notify->count ? notify->queue_bytes / 2 : notify->queue_bytes;
	if (!ret && (notify->count || notify->takes) && curl_global_init(CURL_GLOBAL_DEFAULT))
		ret = -ENOMEM;
	while (!ret && notify->started < notify->count) {
		ret = start(&notify->targets[notify->started]);
		notify->started += !ret;
	}
	if (ret) {
		s3_notify_close(notify);
		return ret;
	}
	*ret_notify = notify;
	return 0;
}

void s3_notify_stop(struct s3_notify *notify)
{
	if (notify->stopped)
		return;
	pthread_mutex_lock(&notify->lock);
	notify->closing = true;
	notify->close_ns = clock_now_ns() + CLOSE_NS;
	for (uint32_t i = 0; i < notify->started; i++)
		pthread_cond_broadcast(&notify->targets[i].changed);
	for (uint32_t i = 0; i < ARRAY_LEN(notify->topics); i++)
		if (notify->topics[i].used)
			pthread_cond_broadcast(&notify->topics[i].changed);
	pthread_mutex_unlock(&notify->lock);
	for (uint32_t i = 0; i < ARRAY_LEN(notify->topics); i++)
		topic_end(&notify->topics[i]);
	for (uint32_t i = 0; i < notify->started; i++) {
		pthread_join(notify->targets[i].thread, NULL);
		pthread_cond_destroy(&notify->targets[i].changed);
	}
	notify->stopped = true;
}

void s3_notify_close(struct s3_notify *notify)
{
	struct list *link;

	if (!notify)
		return;
	s3_notify_stop(notify);
	while ((link = list_pop(&notify->done)))
		free(CONTAINER_OF(link, struct s3_notice, link));
	pthread_mutex_destroy(&notify->lock);
	free(notify);
}

bool s3_notify_has(const struct s3_notify *notify, struct slice target)
{
	return find(notify, target) != NULL;
}

bool s3_notify_takes_topics(const struct s3_notify *notify)
{
	return notify->takes != S3_TOPICS_NOWHERE;
}

/* ---- Topics: clients choose and change their endpoints. These functions hold the lock. ---- */

static struct target *topic_find(struct s3_notify *notify, struct slice name)
{
	for (uint32_t i = 0; i < ARRAY_LEN(notify->topics); i++) {
		struct target *topic = &notify->topics[i];

		if (topic->used && !topic->ended && slice_eq(slice_str(topic->name), name))
			return topic;
	}
	return NULL;
}

/* Waiting events use the new endpoint at once. -EINVAL: the URL is too long. */
static int topic_move(struct target *topic, const struct s3_notify_endpoint *endpoint)
{
	struct list *link;

	if (slice_eq(slice_str(topic->way.url), endpoint->url) &&
		topic->way.any_certificate == endpoint->any_certificate)
		return 0;
	if (slice_copy_str(endpoint->url, topic->way.url, sizeof(topic->way.url)))
		return -EINVAL;
	topic->way.any_certificate = endpoint->any_certificate;
	topic->moved = true;
	topic->pause_ns = topic->rest_until_ns = 0;
	while ((link = list_pop(&topic->aside))) {
		struct s3_notice *notice = CONTAINER_OF(link, struct s3_notice, link);

		notice->pause_ns = notice->again_ns = 0;
		enqueue(topic, notice);
	}
	if (!endpoint->url.len)
		drop_all(topic, GONE);
	pthread_cond_signal(&topic->changed);
	return 0;
}

static struct slice account_of(struct slice topic_name)
{
	return slice_to(topic_name, (size_t)MAX(slice_find(topic_name, SLICE(":")), 0));
}

/* The places and bytes that the topics of an account hold, and those of all. */
struct hold {
	uint32_t places, all_places;
	uint64_t bytes, all_bytes;
};

static struct hold hold_of(const struct s3_notify *notify, struct slice account)
{
	struct hold hold = {.places = 0};

	for (uint32_t i = 0; i < ARRAY_LEN(notify->topics); i++) {
		const struct target *topic = &notify->topics[i];

		if (!topic->used || topic->ended)
			continue;
		hold.all_places++;
		hold.all_bytes += topic->bytes;
		if (slice_eq(slice_of(topic->name, topic->account_len), account)) {
			hold.places++;
			hold.bytes += topic->bytes;
		}
	}
	return hold;
}

/* Puts it in a free place; NULL: no place is free, or its account has more than are left. */
static struct target *topic_start(
	struct s3_notify *notify, const struct s3_notify_endpoint *endpoint)
{
	struct slice account = account_of(endpoint->name);
	struct hold hold = hold_of(notify, account);
	struct target *vacant = NULL;

	if (hold.places > ARRAY_LEN(notify->topics) - hold.all_places)
		return NULL;
	for (uint32_t i = 0; i < ARRAY_LEN(notify->topics) && !vacant; i++)
		if (!notify->topics[i].used || notify->topics[i].ended)
			vacant = &notify->topics[i];
	if (!vacant || notify->closing)
		return NULL;
	/* An ended thread holds the lock only for its last line. */
	if (vacant->used) {
		pthread_detach(vacant->thread);
		pthread_cond_destroy(&vacant->changed);
	}
	*vacant = (struct target){.notify = notify,
		.account_len = account.len,
		.way = {.is_topic = true,
			.any_certificate = endpoint->any_certificate,
			.only_public = notify->takes == S3_TOPICS_PUBLIC}};
	list_init(&vacant->queue);
	list_init(&vacant->aside);
	if (slice_copy_str(endpoint->name, vacant->name, sizeof(vacant->name)) ||
		slice_copy_str(endpoint->url, vacant->way.url, sizeof(vacant->way.url)) ||
		start(vacant))
		return NULL;
	vacant->used = true;
	return vacant;
}

static struct target *topic_lease(
	struct s3_notify *notify, const struct s3_notify_endpoint *endpoint)
{
	struct target *topic = topic_find(notify, endpoint->name);

	if (!topic)
		return topic_start(notify, endpoint);
	return topic_move(topic, endpoint) ? NULL : topic;
}

void s3_notify_move(struct s3_notify *notify, const struct s3_notify_endpoint *endpoint)
{
	struct target *topic;

	pthread_mutex_lock(&notify->lock);
	topic = topic_find(notify, endpoint->name);
	if (topic)
		(void)topic_move(topic, endpoint);
	pthread_mutex_unlock(&notify->lock);
}

/* ---- Places. ---- */

/* Whether a holder of `own` bytes may have more: as many as it then leaves to others, so that there
 * is room for one more holder, however many are unreachable. */
static bool may_hold(uint64_t own, uint64_t bytes, uint64_t left)
{
	return bytes <= left && (!own || own + bytes <= left - bytes);
}

/* A configured target shares the bytes with all others; an account shares the topics' part with
 * other accounts, and its topics share what the account may still have. */
static bool has_room(const struct target *target, uint64_t bytes)
{
	const struct s3_notify *notify = target->notify;
	uint64_t left = notify->queue_bytes - notify->bytes;

	if (target->way.is_topic) {
		struct hold hold = hold_of(notify, slice_of(target->name, target->account_len));

		left = MIN(left, notify->topic_bytes - hold.all_bytes);
		if (!may_hold(hold.bytes, bytes, left))
			return false;
		if (hold.bytes)
			left = (left - hold.bytes) / 2;
	}
	return may_hold(target->bytes, bytes, left);
}

/* Takes a place. Holds the lock. */
static int take_place(struct target *target, struct s3_notice *notice)
{
	struct s3_notify *notify = target->notify;

	if (notify->closing || target->count >= notify->queue_events ||
		!has_room(target, notice->bytes)) {
		counter_add(&queue_full, 1);
		return -ENOBUFS;
	}
	target->count++;
	target->bytes += notice->bytes;
	notify->bytes += notice->bytes;
	counter_add(&waiting, 1);
	counter_add(&waiting_bytes, notice->bytes);
	notice->target = target;
	return 0;
}

int s3_notify_reserve(struct s3_notify *notify, const struct s3_notify_endpoint *endpoint,
	size_t bytes, struct s3_notice **ret_notice)
{
	struct target *target = endpoint->url.data ? NULL : find(notify, endpoint->name);
	struct s3_notice *notice;
	int ret;

	if (endpoint->url.data ? !notify->takes : !target)
		return -ENOENT;
	notice = malloc(sizeof(*notice) + bytes + 1);
	if (!notice)
		return -ENOMEM;
	*notice = (struct s3_notice){.bytes = bytes};
	pthread_mutex_lock(&notify->lock);
	if (endpoint->url.data)
		target = topic_lease(notify, endpoint);
	ret = target ? take_place(target, notice) : -EBUSY;
	pthread_mutex_unlock(&notify->lock);
	if (ret)
		free(notice);
	else
		*ret_notice = notice;
	return ret;
}

void s3_notify_queue(struct s3_notice *notice, struct slice text, uint64_t number, bool kept)
{
	struct target *target = notice->target;
	struct s3_notify *notify = target->notify;

	CHECK(text.len <= notice->bytes);
	memcpy(notice->text, text.data, text.len);
	notice->len = text.len;
	if (target->way.is_log)
		notice->text[notice->len++] = '\n';
	notice->number = number;
	notice->kept = kept;
	notice->queued_ns = clock_now_ns();
	pthread_mutex_lock(&notify->lock);
	enqueue(target, notice);
	if (target->ended)
		abandon(target);
	else if (target->way.is_topic && !target->way.url[0])
		drop_all(target, GONE);
	else
		pthread_cond_signal(&target->changed);
	pthread_mutex_unlock(&notify->lock);
}

void s3_notify_cancel(struct s3_notice *notice)
{
	struct s3_notify *notify;

	if (!notice)
		return;
	notify = notice->target->notify;
	pthread_mutex_lock(&notify->lock);
	leave(notice);
	/* A topic may be waiting for the place. */
	if (!notice->target->ended)
		pthread_cond_signal(&notice->target->changed);
	pthread_mutex_unlock(&notify->lock);
	free(notice);
}

void s3_notify_refused(
	struct s3_notify *notify, const struct s3_notify_endpoint *endpoint, int error)
{
	struct target *target = NULL;

	pthread_mutex_lock(&notify->lock);
	if (error == -ENOBUFS)
		target = endpoint->url.data ? topic_lease(notify, endpoint)
					    : find(notify, endpoint->name);
	if (target)
		drop(target, target->count < notify->queue_events ? "the queues are full"
								  : "its queue is full");
	else
		counter_add(&dropped, 1);
	pthread_mutex_unlock(&notify->lock);
	if (!target)
		log_warn("s3", "an event for the notification target %.*s is dropped: %s",
			SLICE_FMT(endpoint->name),
			error == -EBUSY	   ? "too many topics, or too many of its account, have "
					     "events at the same time"
			: error == -ENOENT ? "no such target, or notification.topics is none"
					   : strerror(-error));
}

uint32_t s3_notify_take_done(struct s3_notify *notify, uint64_t *numbers, uint32_t max)
{
	uint32_t count = 0;
	struct list *link;

	pthread_mutex_lock(&notify->lock);
	while (count < max && (link = list_pop(&notify->done))) {
		struct s3_notice *notice = CONTAINER_OF(link, struct s3_notice, link);

		numbers[count++] = notice->number;
		free(notice);
	}
	pthread_mutex_unlock(&notify->lock);
	return count;
}

void s3_notify_on_room(struct s3_notify *notify, void (*fn)(void *arg), void *arg)
{
	pthread_mutex_lock(&notify->lock);
	notify->on_room = fn;
	notify->on_room_arg = arg;
	pthread_mutex_unlock(&notify->lock);
}
