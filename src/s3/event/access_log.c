/* s3/event/access_log.c: server access logging: makes log lines and puts them as objects. Lines
 * with one target are collected together, from all buckets. */
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
	"Access log lines that were lost: no memory, or the log object could not be written.");

/* The lines that wait for one target: created with the first line, freed after the put. */
struct source {
	struct source *next;
	struct s3 *s3;
	struct store_bucket from;	       /* of the first line */
	char bucket[LIMIT_BUCKET_LEN_MAX + 1]; /* the target */
	char prefix[S3_LOG_PREFIX_MAX + 1];
	enum s3_log_keys keys; /* unless simple, all lines are of one source bucket */
	uint64_t day; /* the day since 1970, if S3_LOG_BY_EVENT: all lines are of that day */
	struct buf grants;
	struct buf lines;
};
struct s3_access_log {
	pthread_mutex_t lock;
	uint64_t flush_ns;
	struct source *sources;
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
	*ret_log = log;
	return 0;
}

void s3_access_log_close(struct s3_access_log *log)
{
	if (!log)
		return;
	while (log->sources) {
		struct source *source = log->sources;

		log->sources = source->next;
		free_source(source);
	}
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
	if (!ret) {
		const struct document_text put = {slice_str(source->bucket), buf_slice(&key),
			buf_slice(&source->lines), buf_slice(&headers)};

		ret = document_put_text(source->s3->store, flow_core_self(), &put);
	}
	if (ret) {
		counter_add(&dropped, 1);
		log_warn("s3", "cannot write an access log of %s into %s: %s", source->from.name,
			source->bucket, strerror(-ret));
	}
	buf_free(&key);
	buf_free(&headers);
}

/* Takes it out of the list, so that no one adds lines to it any more. */
static void unlink_source(struct s3_access_log *log, struct source *source)
{
	struct source **at = &log->sources;

	pthread_mutex_lock(&log->lock);
	while (*at != source)
		at = &(*at)->next;
	*at = source->next;
	pthread_mutex_unlock(&log->lock);
}

/* Puts the lines that have gathered as one object. */
static void writer(void *arg)
{
	struct source *source = arg;
	struct s3_access_log *log = source->s3->access_log;
	uint64_t now_ns, until_ns = clock_now_ns() + log->flush_ns;

	fiber_request_set(""); /* the lines are of many requests */
	while ((now_ns = clock_now_ns()) < until_ns && !reactor_stopping(reactor_self()))
		fiber_sleep_ns(MIN(LOOK_NS, until_ns - now_ns));
	unlink_source(log, source);
	put_lines(source);
	free_source(source);
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

static bool gathers(const struct source *source, const struct s3_logging *logging,
	const struct store_bucket *from, uint64_t day)
{
	return slice_eq(slice_str(source->bucket), logging->bucket) &&
	       slice_eq(slice_str(source->prefix), logging->prefix) &&
	       slice_eq(buf_slice(&source->grants), logging->grants) &&
	       source->keys == logging->keys &&
	       (source->keys == S3_LOG_SIMPLE || strcmp(source->from.name, from->name) == 0) &&
	       (source->keys != S3_LOG_BY_EVENT || source->day == day);
}

/* The batch of the target; or a new one, and *ret_new is set. Holds the lock. */
static struct source *find_source(struct s3_access_log *log, const struct s3_call *call,
	const struct s3_logging *logging, bool *ret_new)
{
	const struct store_bucket *from = &call->settings->bucket;
	uint64_t day = clock_real_ns() / DAY_NS;
	struct source *source = log->sources;

	while (source && !gathers(source, logging, from, day))
		source = source->next;
	if (source)
		return source;
	source = calloc(1, sizeof(*source));
	if (!source)
		return NULL;
	buf_init(&source->lines, S3_ACCESS_LOG_BYTES_MAX);
	buf_init(&source->grants, S3_META_BYTES_MAX);
	buf_put_slice(&source->grants, logging->grants);
	if (source->grants.failed) {
		free_source(source);
		return NULL;
	}
	source->s3 = call->s3;
	source->from = *from;
	source->keys = logging->keys;
	source->day = day;
	slice_copy_str(logging->bucket, source->bucket, sizeof(source->bucket));
	slice_copy_str(logging->prefix, source->prefix, sizeof(source->prefix));
	source->next = log->sources;
	log->sources = source;
	*ret_new = true;
	return source;
}

/* Adds the line to the batch of its target; counts it as dropped if that is impossible. */
static void gather(struct s3_call *call, const struct s3_logging *logging, const struct buf *line)
{
	struct s3_access_log *log = call->s3->access_log;
	struct source *source;
	bool kept = false, start = false;

	pthread_mutex_lock(&log->lock);
	source = line->failed ? NULL : find_source(log, call, logging, &start);
	if (source && source->lines.len + line->len <= S3_ACCESS_LOG_BYTES_MAX) {
		buf_put_slice(&source->lines, buf_slice(line));
		kept = !source->lines.failed;
		if (!kept)
			counter_add(&lines_full, 1);
	}
	pthread_mutex_unlock(&log->lock);
	if (start && fiber_spawn(reactor_self(), "access log", writer, source)) {
		unlink_source(log, source);
		free_source(source);
		kept = false;
	}
	if (!kept)
		counter_add(&dropped, 1);
}

static const struct s3_logging *logging_of(const struct s3_call *call)
{
	return call->settings ? call->settings->parsed[S3_CONFIG_LOGGING] : NULL;
}

/* The target of the call's lines, if the bucket there allows them; NULL: none. */
static const struct s3_logging *place_of(struct s3_call *call)
{
	const struct s3_logging *logging = logging_of(call);

	if (!logging || s3_log_is_let_in(call, logging))
		return logging;
	counter_add(&dropped, 1);
	log_debug("s3", "%.*s refuses the access log of %s", SLICE_FMT(logging->bucket),
		call->settings->bucket.name);
	return NULL;
}

void s3_access_log_request(struct s3_call *call, const struct s3_error *error)
{
	const struct s3_logging *logging = place_of(call);
	struct buf line;

	if (!logging)
		return;
	buf_init(&line, 8 * LIMIT_HTTP_HEAD_BYTES_MAX);
	put_line(call, error, &line);
	gather(call, logging, &line);
	buf_free(&line);
}

void s3_access_log_deletion(struct s3_call *call, struct slice key, struct slice version_id,
	const struct s3_error *error)
{
	const struct s3_logging *logging = place_of(call);
	struct buf line;

	if (!logging)
		return;
	buf_init(&line, 8 * LIMIT_HTTP_HEAD_BYTES_MAX);
	put_head(call, "BATCH.DELETE.OBJECT", key, &line);
	buf_printf(&line, "- %u %s - - - - - - ", error ? error->status : 204,
		error ? error->code : "-");
	put_tail(call, version_id, &line);
	gather(call, logging, &line);
	buf_free(&line);
}
