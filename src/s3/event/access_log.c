/* s3/event/access_log.c: server access logging: makes log lines and puts them as objects. Lines
 * with one target are collected together, from all buckets, until one of a few fibers puts them. */
#include "s3/event/access_log.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "document/document.h"
#include "s3/auth/acl.h"
#include "s3/core/call.h"
#include "s3/core/settings.h"
#include "s3/core/stored.h"
#include "s3/core/text.h"

DEFINE_COUNTER_FULL(lines_full, "access_log");

#define LOOK_NS (100 * NS_PER_MS) /* a waiting writer checks this often for the server's end */
#define DAY_NS	(86400 * NS_PER_S)

DEFINE_COUNTER(dropped, "nebulaio_s3_access_log_dropped_total", NULL,
	"Access log lines that were lost: too many wait, or the log object could not be written.");

#define SLOTS	    1024u
#define WRITERS_MAX 8u
#define OWNERS	    4096u /* places for owners' uses; those with the same hash share one */

/* The bucket and the keys that lines are for, and the bucket's id when it let them in: another
 * bucket that gets its name does not get the lines. */
struct place {
	const struct s3_logging *logging;
	uint64_t bucket_id;
};
/* The lines that wait for one target: created with the first line, freed after the put. */
struct source {
	struct list link;    /* of the log, the oldest first */
	struct source *next; /* of its slot */
	uint64_t hash;
	uint64_t due_ns;
	uint16_t share; /* of the first line's request */
	struct s3 *s3;
	struct store_bucket from;	       /* of the first line */
	char bucket[LIMIT_BUCKET_LEN_MAX + 1]; /* the target */
	uint64_t bucket_id;
	char prefix[S3_LOG_PREFIX_MAX + 1];
	enum s3_log_keys keys; /* unless simple, all lines are of one source bucket */
	uint64_t day; /* the day since 1970, if S3_LOG_BY_EVENT: all lines are of that day */
	struct buf grants;
	struct buf lines;
	uint32_t line_count;
};
/* The lines that wait, of an owner of source buckets or of all. */
struct use {
	uint32_t batches;
	uint64_t bytes;
};
struct s3_access_log {
	pthread_mutex_t lock; /* of all that follows */
	uint64_t flush_ns;
	uint64_t seed[2];
	uint32_t writers; /* fibers; at least one as long as there are sources */
	uint32_t putting; /* of the writers: those that put lines now */
	uint64_t stop_ns; /* 0: not yet; else all lines are due, and put until then */
	struct waiter *stopper;
	struct list sources;
	struct source *slots[SLOTS];
	struct use all, uses[OWNERS];
};

static void free_source(struct source *source)
{
	buf_free(&source->grants);
	buf_free(&source->lines);
	free(source);
}

int s3_access_log_open(uint32_t flush_s, struct s3_access_log **ret_log)
{
	struct s3_access_log *log = calloc(1, sizeof(*log));

	if (!log)
		return -ENOMEM;
	pthread_mutex_init(&log->lock, NULL);
	log->flush_ns = (flush_s ? flush_s : S3_ACCESS_LOG_FLUSH_S_DEFAULT) * NS_PER_S;
	random_fill((uint8_t *)log->seed, sizeof(log->seed));
	list_init(&log->sources);
	*ret_log = log;
	return 0;
}

void s3_access_log_close(struct s3_access_log *log)
{
	if (!log)
		return;
	LIST_FOR_EACH_SAFE (link, &log->sources)
		free_source(CONTAINER_OF(link, struct source, link));
	pthread_mutex_destroy(&log->lock);
	free(log);
}

/* ---- Putting. ---- */

/* A key with the event's date has only lines of that day. */
static void make_key(const struct source *source, struct buf *key)
{
	char iso[DATE_ISO_LEN], hex[16];
	uint8_t random[8];

	date_iso_format(source->keys == S3_LOG_BY_EVENT
				? (int64_t)(source->day * (DAY_NS / NS_PER_MS))
				: (int64_t)(clock_real_ns() / NS_PER_MS),
		iso);
	random_fill(random, sizeof(random));
	hex_encode(random, sizeof(random), hex);
	buf_put_str(key, source->prefix);
	if (source->keys != S3_LOG_SIMPLE)
		buf_printf(key, "%s/%s/%s/%.4s/%.2s/%.2s/", source->from.owner, source->from.region,
			source->from.name, iso, iso + 5, iso + 8);
	buf_printf(key, "%.10s-%.2s-%.2s-%.2s-%.16s", iso, iso + 11, iso + 14, iso + 17, hex);
}

/* The access control list of the log object, as a stored header: full control for the owner of its
 * bucket, and the configured grants. */
static int make_list(const struct source *source, struct buf *headers)
{
	struct store_bucket to;
	int ret;

	if (!source->grants.len)
		return 0;
	ret = store_bucket_get(source->s3->store, slice_str(source->bucket), &to);
	if (ret)
		return ret;
	if (to.id != source->bucket_id)
		return -ENOENT;
	buf_put(headers, S3_ACL_HEADER, sizeof(S3_ACL_HEADER));
	buf_printf(headers, "Fi%s,", to.owner);
	buf_put_slice(headers, buf_slice(&source->grants));
	buf_put(headers, "", 1);
	return headers->failed ? -ENOMEM : 0;
}

static void put_lines(struct source *source)
{
	struct buf key, headers;
	int ret;

	buf_init(&key, LIMIT_KEY_LEN_MAX);
	buf_init(&headers, S3_META_BYTES_MAX);
	make_key(source, &key);
	ret = key.failed ? -ENAMETOOLONG : make_list(source, &headers);
	if (source->lines.failed)
		ret = -ENOMEM;
	if (!ret) {
		const struct document_text put = {slice_str(source->bucket), buf_slice(&key),
			buf_slice(&source->lines), buf_slice(&headers), source->bucket_id};

		ret = document_put_text(source->s3->store, flow_core_self(), &put);
	}
	if (ret) {
		counter_add(&dropped, source->line_count);
		log_warn("s3", "cannot write an access log of %s into %s: %s", source->from.name,
			source->bucket, strerror(-ret));
	}
	buf_free(&key);
	buf_free(&headers);
}

static struct use *use_of(struct s3_access_log *log, const char *owner)
{
	return &log->uses[slice_hash(slice_str(owner), 0, log->seed) % OWNERS];
}

/* So that no one adds lines to it any more. */
static void unlink_source(struct s3_access_log *log, struct source *source)
{
	struct source **at = &log->slots[source->hash % SLOTS];
	struct use *use = use_of(log, source->from.owner);

	while (*at != source)
		at = &(*at)->next;
	*at = source->next;
	list_remove(&source->link);
	use->batches--;
	use->bytes -= source->lines.len;
	log->all.batches--;
	log->all.bytes -= source->lines.len;
}

/* The oldest source, if it is due; or all are. */
static struct source *find_due(const struct s3_access_log *log, bool all)
{
	struct source *source;

	if (list_empty(&log->sources))
		return NULL;
	source = CONTAINER_OF(log->sources.next, struct source, link);
	return all || clock_now_ns() >= source->due_ns ? source : NULL;
}

static fiber_fn writer;

/* For a writer, which has another one beside it while more is due. NULL: nothing is due before
 * *ret_due_ns; 0: another writer waits for that, or there is nothing, so this one has ended. */
static struct source *take_due(struct s3_access_log *log, uint64_t *ret_due_ns)
{
	struct source *source;
	bool all, late;

	pthread_mutex_lock(&log->lock);
	all = log->stop_ns || reactor_stopping(reactor_self());
	late = log->stop_ns && clock_now_ns() >= log->stop_ns;
	source = late ? NULL : find_due(log, all);
	*ret_due_ns = 0;
	if (source) {
		unlink_source(log, source);
		log->putting++;
		if (find_due(log, all) && log->writers < WRITERS_MAX &&
			!fiber_spawn(reactor_self(), "access log", writer, log))
			log->writers++;
	} else if (late || list_empty(&log->sources) || log->writers > 1) {
		log->writers--;
	} else {
		*ret_due_ns = CONTAINER_OF(log->sources.next, struct source, link)->due_ns;
	}
	pthread_mutex_unlock(&log->lock);
	return source;
}

static void put_ended(struct s3_access_log *log)
{
	pthread_mutex_lock(&log->lock);
	log->putting--;
	if (!log->putting && log->stopper) {
		waiter_wake(log->stopper);
		log->stopper = NULL;
	}
	pthread_mutex_unlock(&log->lock);
}

/* Puts each target's lines as one object when they are due. */
static void writer(void *arg)
{
	struct s3_access_log *log = arg;
	uint64_t now_ns, due_ns;

	/* The lines are of many requests. */
	fiber_request_set("");
	for (;;) {
		struct source *source = take_due(log, &due_ns);

		fiber_share_set(source ? source->share : 0);
		if (source) {
			put_lines(source);
			free_source(source);
			put_ended(log);
			continue;
		}
		if (!due_ns)
			return;
		now_ns = clock_now_ns();
		if (now_ns < due_ns)
			fiber_sleep_ns(MIN(LOOK_NS, due_ns - now_ns));
	}
}

static void count_lost(struct s3_access_log *log)
{
	uint32_t lost = 0;

	LIST_FOR_EACH_SAFE (link, &log->sources)
		lost += CONTAINER_OF(link, struct source, link)->line_count;
	counter_add(&dropped, lost);
	if (lost)
		log_warn("s3",
			"%u lines of access logs are lost: they were not put before the server's "
			"end",
			lost);
}

void s3_access_log_stop(struct s3 *s3, uint64_t deadline_ns)
{
	struct s3_access_log *log = s3->access_log;
	struct waiter waiter;
	bool waits;

	waiter_init(&waiter);
	pthread_mutex_lock(&log->lock);
	log->stop_ns = MAX(deadline_ns, 1u);
	log->writers++;
	pthread_mutex_unlock(&log->lock);
	writer(log);
	pthread_mutex_lock(&log->lock);
	count_lost(log);
	waits = log->putting;
	log->stopper = waits ? &waiter : NULL;
	pthread_mutex_unlock(&log->lock);
	if (waits)
		waiter_wait(&waiter);
}

/* ---- Lines. ---- */

static const char *operation_name(const struct s3_call *call, char *buf, size_t buf_bytes)
{
	const char *name = call->log_name;

	if (name)
		snprintf(buf, buf_bytes, "%s%s", call->website ? "" : "REST.", name);
	else
		snprintf(buf, buf_bytes, "REST.%.*s.UNKNOWN",
			SLICE_FMT(slice_to(call->request->method_text, 16)));
	return buf;
}

/* Text from a client, escaped so that it cannot end its quotes or the line. */
static void put_quoted(struct slice text, struct buf *line)
{
	if (!text.len) {
		buf_put_str(line, "\"-\" ");
		return;
	}
	buf_put_str(line, "\"");
	for (size_t i = 0; i < text.len; i++) {
		uint8_t byte = (uint8_t)text.data[i];

		if (byte < 0x20 || byte >= 0x7f || byte == '"')
			buf_printf(line, "%%%02X", byte);
		else
			buf_put(line, &text.data[i], 1);
	}
	buf_put_str(line, "\" ");
}

static void put_time(struct buf *line)
{
	char text[DATE_HTTP_LEN];

	/* "Sun, 06 Nov 1994 08:49:37 GMT" as "[06/Nov/1994:08:49:37 +0000]" */
	date_http_format((int64_t)(clock_real_ns() / NS_PER_MS), text);
	buf_printf(line, "[%.2s/%.3s/%.4s:%.8s +0000] ", text + 5, text + 8, text + 12, text + 17);
}

static void put_request(const struct s3_call *call, struct buf *line)
{
	struct slice path = call->request->path, query = call->request->query;
	struct buf uri;

	buf_init(&uri, 2 * LIMIT_HTTP_HEAD_BYTES_MAX);
	buf_printf(&uri, "%.*s %.*s%s%.*s HTTP/1.1", SLICE_FMT(call->request->method_text),
		SLICE_FMT(path), query.len ? "?" : "", SLICE_FMT(query));
	put_quoted(uri.failed ? SLICE_NONE : buf_slice(&uri), line);
	buf_free(&uri);
}

/* The start of every line, up to the key. */
static void put_head(
	const struct s3_call *call, const char *operation, struct slice key, struct buf *line)
{
	struct slice address = s3_peer_address(call->request->peer);
	bool anonymous = !call->identity || call->identity->anonymous;

	buf_printf(line, "%s %s ", call->settings->bucket.owner, call->settings->bucket.name);
	put_time(line);
	buf_put_slice(line, address.len ? address : SLICE("-"));
	buf_printf(line, " %s %s %s ", anonymous ? "-" : call->identity->access_key,
		call->request->request_id, operation);
	if (key.len)
		uri_encode(key, URI_KEEP_SLASH, line);
	else
		buf_put_str(line, "-");
	buf_put_str(line, " ");
}

/* The end of every line, from the version on. */
static void put_tail(const struct s3_call *call, struct slice version_id, struct buf *line)
{
	bool anonymous = !call->identity || call->identity->anonymous;

	buf_put_slice(line, store_version_id_valid(version_id) ? version_id : SLICE("-"));
	buf_printf(line, " %s %s - %s ", call->s3->host_id,
		anonymous	 ? "-"
		: call->version2 ? "SigV2"
				 : "SigV4",
		anonymous	  ? "-"
		: call->presigned ? "QueryString"
				  : "AuthHeader");
	put_quoted(s3_call_header(call, SLICE("host")), line);
	buf_printf(line, "- - %s\n", call->by_acl ? "Yes" : "-");
}

static void put_line(const struct s3_call *call, const struct s3_error *error, struct buf *line)
{
	struct slice version_id = SLICE_NONE;
	char name[64];

	put_head(call, operation_name(call, name, sizeof(name)), call->key, line);
	put_request(call, line);
	buf_printf(line, "%u %s %llu - %llu - ", call->reply->status, error ? error->code : "-",
		(unsigned long long)call->body_bytes,
		(unsigned long long)((clock_now_ns() - call->log_start_ns) / NS_PER_MS));
	put_quoted(s3_call_header(call, SLICE("referer")), line);
	put_quoted(s3_call_header(call, SLICE("user-agent")), line);
	s3_call_param(call, SLICE("versionId"), &version_id);
	put_tail(call, version_id, line);
}

/* Whether lines of the bucket, on that day, belong to the source. */
static bool gathers(const struct source *source, const struct place *place,
	const struct store_bucket *from, uint64_t day)
{
	const struct s3_logging *logging = place->logging;

	return source->bucket_id == place->bucket_id &&
	       slice_eq(slice_str(source->bucket), logging->bucket) &&
	       slice_eq(slice_str(source->prefix), logging->prefix) &&
	       slice_eq(buf_slice(&source->grants), logging->grants) &&
	       source->keys == logging->keys &&
	       (source->keys == S3_LOG_SIMPLE || strcmp(source->from.name, from->name) == 0) &&
	       (source->keys != S3_LOG_BY_EVENT || source->day == day);
}

static uint64_t hash_of(const struct s3_access_log *log, const struct s3_logging *logging,
	const struct store_bucket *from)
{
	uint64_t hash = slice_hash(logging->bucket, logging->keys, log->seed);

	hash = slice_hash(logging->prefix, hash, log->seed);
	hash = slice_hash(logging->grants, hash, log->seed);
	return logging->keys == S3_LOG_SIMPLE ? hash
					      : slice_hash(slice_str(from->name), hash, log->seed);
}

/* An owner has at most half. */
static bool has_room(const struct s3_access_log *log, const struct use *use, size_t bytes, bool new)
{
	return use->batches + new <= S3_ACCESS_LOG_BATCHES_MAX / 2 &&
	       log->all.batches + new <= S3_ACCESS_LOG_BATCHES_MAX &&
	       use->bytes + bytes <= S3_ACCESS_LOG_ALL_BYTES_MAX / 2 &&
	       log->all.bytes + bytes <= S3_ACCESS_LOG_ALL_BYTES_MAX;
}

static struct source *make_source(
	struct s3_access_log *log, const struct s3_call *call, const struct place *place)
{
	const struct s3_logging *logging = place->logging;
	struct source *source = calloc(1, sizeof(*source));

	if (!source)
		return NULL;
	buf_init(&source->lines, S3_ACCESS_LOG_BYTES_MAX);
	buf_init(&source->grants, S3_META_BYTES_MAX);
	buf_put_slice(&source->grants, logging->grants);
	if (!source->grants.failed && !log->writers)
		log->writers = !fiber_spawn(reactor_self(), "access log", writer, log);
	if (source->grants.failed || !log->writers) {
		free_source(source);
		return NULL;
	}
	source->s3 = call->s3;
	source->share = fiber_share();
	source->from = call->settings->bucket;
	source->keys = logging->keys;
	slice_copy_str(logging->bucket, source->bucket, sizeof(source->bucket));
	source->bucket_id = place->bucket_id;
	slice_copy_str(logging->prefix, source->prefix, sizeof(source->prefix));
	source->due_ns = clock_now_ns() + log->flush_ns;
	return source;
}

/* Adds the line to the batch of its target, which it begins if there is none. Holds the lock. */
static bool add_line(struct s3_access_log *log, const struct s3_call *call,
	const struct place *place, struct slice line)
{
	const struct store_bucket *from = &call->settings->bucket;
	uint64_t day = clock_real_ns() / DAY_NS, hash = hash_of(log, place->logging, from);
	struct source **slot = &log->slots[hash % SLOTS], *source = *slot;
	struct use *use;

	while (source && !gathers(source, place, from, day))
		source = source->next;
	use = use_of(log, source ? source->from.owner : from->owner);
	if (!has_room(log, use, line.len, !source) ||
		(source && source->lines.len + line.len > S3_ACCESS_LOG_BYTES_MAX)) {
		counter_add(&lines_full, 1);
		return false;
	}
	if (!source) {
		source = make_source(log, call, place);
		if (!source)
			return false;
		source->day = day;
		source->hash = hash;
		source->next = *slot;
		*slot = source;
		list_push_back(&log->sources, &source->link);
		use->batches++;
		log->all.batches++;
	}
	buf_put_slice(&source->lines, line);
	if (source->lines.failed)
		return false;
	source->line_count++;
	use->bytes += line.len;
	log->all.bytes += line.len;
	return true;
}

/* Counts the line as dropped if it cannot be kept. */
static void gather(struct s3_call *call, const struct place *place, const struct buf *line)
{
	struct s3_access_log *log = call->s3->access_log;
	bool kept;

	pthread_mutex_lock(&log->lock);
	kept = !line->failed && add_line(log, call, place, buf_slice(line));
	pthread_mutex_unlock(&log->lock);
	if (!kept)
		counter_add(&dropped, 1);
}

static const struct s3_logging *logging_of(const struct s3_call *call)
{
	return call->settings ? call->settings->parsed[S3_CONFIG_LOGGING] : NULL;
}

/* The place of the call's lines, if the bucket there allows them. */
static bool has_place(struct s3_call *call, struct place *ret_place)
{
	const struct s3_logging *logging = logging_of(call);

	if (!logging)
		return false;
	*ret_place = (struct place){logging, s3_log_let_in(call, logging)};
	if (ret_place->bucket_id)
		return true;
	counter_add(&dropped, 1);
	log_debug("s3", "%.*s refuses the access log of %s", SLICE_FMT(logging->bucket),
		call->settings->bucket.name);
	return false;
}

void s3_access_log_request(struct s3_call *call, const struct s3_error *error)
{
	struct place place;
	struct buf line;

	if (!has_place(call, &place))
		return;
	buf_init(&line, 8 * LIMIT_HTTP_HEAD_BYTES_MAX);
	put_line(call, error, &line);
	gather(call, &place, &line);
	buf_free(&line);
}

void s3_access_log_deletion(struct s3_call *call, struct slice key, struct slice version_id,
	const struct s3_error *error)
{
	struct place place;
	struct buf line;

	if (!has_place(call, &place))
		return;
	buf_init(&line, 8 * LIMIT_HTTP_HEAD_BYTES_MAX);
	put_head(call, "BATCH.DELETE.OBJECT", key, &line);
	buf_printf(&line, "- %u %s - - - - - - ", error ? error->status : 204,
		error ? error->code : "-");
	put_tail(call, version_id, &line);
	gather(call, &place, &line);
	buf_free(&line);
}
