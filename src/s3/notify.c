/* s3/notify.c: the queues of events and the threads that send what is in them. */
#include "s3/notify.h"

#include "s3/topic.h"

#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#define TRY_MS_MAX   10000L
#define IDLE_NS	     (30 * NS_PER_S)
#define PAUSE_NS_MIN (100 * NS_PER_MS)
#define PAUSE_NS_MAX (10 * NS_PER_S)
#define CLOSE_NS     (3 * NS_PER_S) /* what targets have when the server ends */

DEFINE_COUNTER(
	sent, "nebulaio_notification_sent_total", NULL, "Events that their target has taken.");
DEFINE_COUNTER(failed_tries, "nebulaio_notification_failed_tries_total", NULL,
	"Times that a target did not take an event.");
DEFINE_COUNTER(dropped, "nebulaio_notification_dropped_total", NULL,
	"Events that were given up: the queue full, the target silent or gone.");
DEFINE_COUNTER(waiting, "nebulaio_notification_waiting", NULL, "Events in the queues.");
DEFINE_COUNTER(waiting_bytes, "nebulaio_notification_waiting_bytes", NULL,
	"Bytes of the events in the queues.");

/* reserved → queued → sent or given up → done, when it is kept (until the store heard of it) */
struct s3_notice {
	struct list link; /* of its target's, or of those done */
	struct target *target;
	uint64_t number;
	uint64_t queued_ns;
	bool kept;
	size_t bytes; /* reserved */
	size_t len;
	char text[];
};
struct target {
	struct s3_notify *notify;
	char name[S3_TOPIC_ARN_BYTES];
	char url[S3_TARGET_URL_MAX + 1]; /* of a log: its file */
	bool is_log;
	pthread_t thread;
	pthread_cond_t changed;
	struct list queue; /* of struct s3_notice */
	uint32_t count;	   /* with those that are reserved */
	bool busy;	   /* with the first */
	bool dropping;	   /* told once, until something is sent again */
	/* Of a topic: its thread ends when there was nothing to do for a while. */
	bool topic, any_certificate;
	bool used, ended;
};
struct s3_notify {
	pthread_mutex_t lock;
	bool closing, stopped;
	uint64_t close_ns; /* when the last moment is over */
	uint32_t queue_events;
	uint64_t queue_bytes, bytes; /* of all */
	uint64_t retry_ns;
	struct list done;
	void (*watch)(void *arg);
	void *watch_arg;
	uint32_t started;
	uint32_t count;
	struct target targets[S3_TARGETS_MAX];
	enum s3_notify_topics takes;
	struct target topics[S3_NOTIFY_TOPICS_ACTIVE_MAX];
};

/* ---- Names and addresses. ---- */

static bool name_valid(struct slice name)
{
	for (size_t i = 0; i < name.len; i++) {
		char c = name.data[i];

		if (!(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && !(c >= '0' && c <= '9') &&
			c != '-' && c != '_')
			return false;
	}
	return name.len > 0 && name.len <= S3_TARGET_NAME_MAX;
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
		slice_copy_str(url, target->url, sizeof(target->url)))
		return -EINVAL;
	slice_copy_str(name, target->name, sizeof(target->name));
	target->is_log = is_log;
	target->notify = notify;
	list_init(&target->queue);
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

/* ---- One try. ---- */

static int append_line(const struct target *target, const struct s3_notice *event)
{
	int fd = open(target->url, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
	off_t end = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
	ssize_t done;
	int ret;

	if (fd < 0)
		return -errno;
	done = write(fd, event->text, event->len);
	ret = done < 0 ? -errno : (size_t)done < event->len ? -ENOSPC : 0;
	/* A line is whole or not there. */
	if (ret && end >= 0 && ftruncate(fd, end))
		log_warn("s3", "a torn line stays in %s: %s", target->url, strerror(errno));
	close(fd);
	return ret;
}

/* What a target answers is of no use. */
static size_t take_nothing(char *data, size_t size, size_t count, void *arg)
{
	(void)data;
	(void)arg;
	return size * count;
}

/* Not 0: the server ends and cannot wait any longer. */
static int look(void *arg, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
	struct s3_notify *notify = arg;
	bool over;

	(void)a;
	(void)b;
	(void)c;
	(void)d;
	pthread_mutex_lock(&notify->lock);
	over = notify->closing && clock_now_ns() >= notify->close_ns;
	pthread_mutex_unlock(&notify->lock);
	return over;
}

/* ---- Whom clients may have asked. ---- */

static bool v4_is_public(uint32_t address)
{
	/* RFC 6890: what is not globally reachable, and multicast. */
	static const struct {
		uint32_t net, bits;
	} nets[] = {{0x00000000, 8}, {0x0a000000, 8}, {0x64400000, 10}, {0x7f000000, 8},
		{0xa9fe0000, 16}, {0xac100000, 12}, {0xc0000000, 24}, {0xc0000200, 24},
		{0xc0586300, 24}, {0xc0a80000, 16}, {0xc6120000, 15}, {0xc6336400, 24},
		{0xcb007100, 24}, {0xe0000000, 3}};

	for (size_t i = 0; i < ARRAY_LEN(nets); i++)
		if ((address ^ nets[i].net) >> (32 - nets[i].bits) == 0)
			return false;
	return true;
}

bool s3_address_is_public(const struct sockaddr *address)
{
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)address;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)address;
	const uint8_t *bytes;
	uint32_t inside;

	if (address->sa_family == AF_INET)
		return v4_is_public(ntohl(v4->sin_addr.s_addr));
	if (address->sa_family != AF_INET6)
		return false;
	bytes = v6->sin6_addr.s6_addr;
	if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
		memcpy(&inside, bytes + 12, sizeof(inside));
		return v4_is_public(ntohl(inside));
	}
	/* 2000::/3 is what is given out; not 2001::/23, documentation, 6to4. */
	return bytes[0] >> 5 == 1 &&
	       !(bytes[0] == 0x20 && bytes[1] == 0x01 &&
		       ((bytes[2] & 0xfe) == 0 || (bytes[2] == 0x0d && bytes[3] == 0xb8))) &&
	       !(bytes[0] == 0x20 && bytes[1] == 0x02);
}

/* curl asks for a socket to an address that it found, whatever the name was. */
static curl_socket_t open_public(void *arg, curlsocktype purpose, struct curl_sockaddr *address)
{
	(void)arg;
	if (purpose != CURLSOCKTYPE_IPCXN || !s3_address_is_public(&address->addr))
		return CURL_SOCKET_BAD;
	return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

static void restrict_topic(const struct target *target, CURL *curl)
{
	long verify = !target->any_certificate;

	curl_easy_setopt(curl, CURLOPT_SSL_VERIFYPEER, verify);
	curl_easy_setopt(curl, CURLOPT_SSL_VERIFYHOST, verify ? 2L : 0L);
	curl_easy_setopt(curl, CURLOPT_PROXY, "");
	if (target->notify->takes == S3_TOPICS_PUBLIC)
		curl_easy_setopt(curl, CURLOPT_OPENSOCKETFUNCTION, open_public);
}

static bool post(const struct target *target, const struct s3_notice *event, CURL *curl)
{
	const char *text = event->text;
	struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/json");
	long status = 0;
	CURLcode ret;

	curl_easy_setopt(curl, CURLOPT_URL, target->url);
	curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, TRY_MS_MAX);
	curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(curl, CURLOPT_USERAGENT, "nebulaio");
	curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)event->len);
	curl_easy_setopt(curl, CURLOPT_POSTFIELDS, text);
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_nothing);
	curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
	curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, look);
	curl_easy_setopt(curl, CURLOPT_XFERINFODATA, target->notify);
	if (target->topic)
		restrict_topic(target, curl);
	ret = headers ? curl_easy_perform(curl) : CURLE_OUT_OF_MEMORY;
	curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
	curl_slist_free_all(headers);
	return ret == CURLE_OK && status >= 200 && status < 300;
}

/* ---- A target's thread. ---- */

/* Until then, or until the server ends: false. Holds the lock. */
static bool rest_until(struct target *target, uint64_t until_ns)
{
	const struct timespec until = {
		.tv_sec = (time_t)(until_ns / NS_PER_S), .tv_nsec = (long)(until_ns % NS_PER_S)};

	while (!target->notify->closing && clock_now_ns() < until_ns)
		pthread_cond_timedwait(&target->changed, &target->notify->lock, &until);
	return !target->notify->closing;
}

static bool deliver(struct target *target, const struct s3_notice *event, CURL *curl)
{
	struct s3_notify *notify = target->notify;
	uint64_t pause_ns = PAUSE_NS_MIN;
	bool again = true;

	while (again) {
		if (target->is_log ? append_line(target, event) == 0 : post(target, event, curl))
			return true;
		counter_add(&failed_tries, 1);
		pthread_mutex_lock(&notify->lock);
		again = clock_now_ns() + pause_ns < event->queued_ns + notify->retry_ns &&
			rest_until(target, clock_now_ns() + pause_ns);
		pthread_mutex_unlock(&notify->lock);
		pause_ns = MIN(2 * pause_ns, PAUSE_NS_MAX);
	}
	return false;
}

/* Holds the lock. */
static void drop(struct target *target, const char *why)
{
	counter_add(&dropped, 1);
	if (!target->dropping)
		log_warn("s3", "events for the notification target %s are dropped: %s",
			target->name, why);
	target->dropping = true;
}

static struct s3_notice *first_of(struct target *target)
{
	return list_empty(&target->queue)
		       ? NULL
		       : CONTAINER_OF(target->queue.next, struct s3_notice, link);
}

/* The oldest, once there is one; NULL: the server ends, or a topic has had none for long. Holds the
 * lock. */
static struct s3_notice *next(struct target *target)
{
	const struct s3_notify *notify = target->notify;
	const uint64_t until_ns = clock_now_ns() + IDLE_NS;
	const struct timespec until = {
		.tv_sec = (time_t)(until_ns / NS_PER_S), .tv_nsec = (long)(until_ns % NS_PER_S)};

	/* A place that is reserved keeps a topic. */
	while (list_empty(&target->queue) && !notify->closing) {
		if (!target->topic || target->count)
			pthread_cond_wait(&target->changed, &target->notify->lock);
		else if (clock_now_ns() < until_ns)
			pthread_cond_timedwait(&target->changed, &target->notify->lock, &until);
		else
			break;
	}
	if (notify->closing && clock_now_ns() >= notify->close_ns)
		return NULL;
	return first_of(target);
}

/* Leaves the place in the queue. Holds the lock. */
static void leave(struct s3_notice *notice)
{
	struct s3_notify *notify = notice->target->notify;

	notice->target->count--;
	notify->bytes -= notice->bytes;
	counter_sub(&waiting, 1);
	counter_sub(&waiting_bytes, notice->bytes);
	if (notify->watch)
		notify->watch(notify->watch_arg);
}

/* The first was sent or given up. Holds the lock. */
static void forget(struct s3_notice *notice)
{
	struct s3_notify *notify = notice->target->notify;

	list_remove(&notice->link);
	leave(notice);
	if (notice->kept)
		list_push_back(&notify->done, &notice->link);
	else
		free(notice);
}

/* The server ends: what is kept waits for the next start. Holds the lock. */
static void abandon(struct target *target)
{
	struct s3_notice *notice;
	uint32_t kept = 0;

	while ((notice = first_of(target))) {
		if (notice->kept)
			kept++;
		else
			drop(target, "the server ends");
		notice->kept = false;
		forget(notice);
	}
	if (kept)
		log_info("s3", "%u events for the notification target %s wait for the next start",
			kept, target->name);
}

static void *target_main(void *arg)
{
	struct target *target = arg;
	pthread_mutex_t *lock = &target->notify->lock;
	CURL *curl = curl_easy_init();
	struct s3_notice *notice;
	bool taken;

	pthread_mutex_lock(lock);
	while ((notice = next(target))) {
		target->busy = true;
		pthread_mutex_unlock(lock);
		taken = (curl || target->is_log) && deliver(target, notice, curl);
		pthread_mutex_lock(lock);
		target->busy = false;
		if (!taken && target->notify->closing)
			break;
		if (taken) {
			counter_add(&sent, 1);
			target->dropping = false;
		} else {
			drop(target, "it does not take them");
		}
		forget(notice);
	}
	abandon(target);
	target->ended = true;
	pthread_mutex_unlock(lock);
	curl_easy_cleanup(curl);
	return NULL;
}

/* ---- What others call. ---- */

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

/* Its thread has ended, or is told to. */
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

/* The one that sends there already, or a new one in a free place; NULL: there is none. Holds the
 * lock. */
static struct target *topic_lease(
	struct s3_notify *notify, const struct s3_notify_endpoint *endpoint)
{
	struct target *vacant = NULL;

	for (uint32_t i = 0; i < ARRAY_LEN(notify->topics); i++) {
		struct target *topic = &notify->topics[i];

		if (topic->used && !topic->ended &&
			slice_eq(slice_str(topic->name), endpoint->name) &&
			slice_eq(slice_str(topic->url), endpoint->url) &&
			topic->any_certificate == endpoint->any_certificate)
			return topic;
		if (!vacant && (!topic->used || topic->ended))
			vacant = topic;
	}
	if (!vacant || notify->closing)
		return NULL;
	/* An ended thread holds no lock any more but for its last line. */
	if (vacant->used) {
		pthread_detach(vacant->thread);
		pthread_cond_destroy(&vacant->changed);
	}
	*vacant = (struct target){
		.notify = notify, .topic = true, .any_certificate = endpoint->any_certificate};
	list_init(&vacant->queue);
	if (slice_copy_str(endpoint->name, vacant->name, sizeof(vacant->name)) ||
		slice_copy_str(endpoint->url, vacant->url, sizeof(vacant->url)) || start(vacant))
		return NULL;
	vacant->used = true;
	return vacant;
}

/* Takes the place. Holds the lock. */
static int take_place(struct target *target, struct s3_notice *notice)
{
	struct s3_notify *notify = target->notify;

	if (notify->closing || target->count >= notify->queue_events ||
		notify->queue_bytes - MIN(notify->bytes, notify->queue_bytes) < notice->bytes)
		return -ENOBUFS;
	target->count++;
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
	struct list *at;

	CHECK(text.len <= notice->bytes);
	memcpy(notice->text, text.data, text.len);
	notice->len = text.len;
	if (target->is_log)
		notice->text[notice->len++] = '\n';
	notice->number = number;
	notice->kept = kept;
	notice->queued_ns = clock_now_ns();
	pthread_mutex_lock(&notify->lock);
	/* Commits of other cores may have been faster to come here; one that is on its way stays
	 * the first. */
	at = &target->queue;
	while (number && at->prev != &target->queue &&
		!(target->busy && at->prev == target->queue.next) &&
		CONTAINER_OF(at->prev, struct s3_notice, link)->number > number)
		at = at->prev;
	list_push_back(at, &notice->link);
	if (target->ended)
		abandon(target);
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
	/* A topic may have waited for it. */
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
			error == -EBUSY ? "too many topics have events at once"
			: error == -ENOENT
				? "there is no such target, or notification.topics is none"
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

void s3_notify_watch(struct s3_notify *notify, void (*fn)(void *arg), void *arg)
{
	pthread_mutex_lock(&notify->lock);
	notify->watch = fn;
	notify->watch_arg = arg;
	pthread_mutex_unlock(&notify->lock);
}
