/* base/log.c: formats a line, as text or as a JSON object, and writes it whole. */
#include "base/log.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log_ring.h"

#define LINE_BYTES    1024
#define MESSAGE_BYTES 960
/* A control character takes six bytes. Text that does not fit is cut, so that the object is always
 * complete. */
#define JSON_BYTES 4096
_Static_assert(JSON_BYTES <= LOG_RING_LINE_BYTES, "a line fits into the ring");
#define JSON_TAIL_BYTES 4 /* a quote, a brace, the line's end */

enum log_level log_level_now = LOG_INFO;
static enum log_format format_now;
static log_request_fn *request_now;

static const char *const LEVEL_NAMES[] = {"trace", "debug", "info", "warn", "error"};

void log_set_level(enum log_level level)
{
	log_level_now = level;
}

bool log_level_parse(const char *name, enum log_level *ret_level)
{
	for (unsigned i = 0; i < sizeof(LEVEL_NAMES) / sizeof(LEVEL_NAMES[0]); i++) {
		if (strcmp(name, LEVEL_NAMES[i]) == 0) {
			*ret_level = (enum log_level)i;
			return true;
		}
	}
	return false;
}

bool log_format_parse(const char *name, enum log_format *ret_format)
{
	bool json = strcmp(name, "json") == 0;

	if (!json && strcmp(name, "text") != 0)
		return false;
	*ret_format = json ? LOG_FORMAT_JSON : LOG_FORMAT_TEXT;
	return true;
}

void log_set_request(log_request_fn *fn)
{
	request_now = fn;
}

/* RFC 3339, UTC, microseconds. */
static void time_put(char *text, size_t size)
{
	struct timespec ts;
	struct tm tm;
	size_t len;

	clock_gettime(CLOCK_REALTIME, &ts);
	gmtime_r(&ts.tv_sec, &tm);
	len = strftime(text, size, "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(text + len, size - len, ".%06ldZ", ts.tv_nsec / 1000);
}

/* Lines that stderr had no room for since the last one that went out. */
static _Atomic uint32_t lines_lost;
static pthread_mutex_t stderr_lock = PTHREAD_MUTEX_INITIALIZER;

/* Whether stderr takes a line at once. A pipe that is ready takes PIPE_BUF bytes (POSIX, write()).
 * A regular file is always ready. */
static bool stderr_ready(void)
{
	struct pollfd fd = {.fd = STDERR_FILENO, .events = POLLOUT};

	return poll(&fd, 1, 0) > 0;
}

/* Leaves the line out when nobody reads stderr, because every event loop writes lines: the loop
 * goes on. `stands_for` is how many lines are lost with it. */
static void line_write(const char *line, size_t len, uint32_t stands_for)
{
	int kept = errno; /* callers log before they return it */
	ssize_t written = -1;

	errno = EAGAIN;
	/* Two threads that both found room for one line would wait. */
	pthread_mutex_lock(&stderr_lock);
	if (stderr_ready())
		written = write(STDERR_FILENO, line, len);
	pthread_mutex_unlock(&stderr_lock);
	/* After another error there is nowhere left to report to. */
	if (written < 0 && errno == EAGAIN)
		atomic_fetch_add(&lines_lost, stands_for);
	errno = kept;
}

/* ---- JSON. ---- */

struct json {
	char text[JSON_BYTES];
	size_t len;
};

static size_t json_room(const struct json *json)
{
	const size_t max = JSON_BYTES - JSON_TAIL_BYTES;

	return json->len < max ? max - json->len : 0;
}

static bool json_put(struct json *json, const char *text, size_t len)
{
	if (len > json_room(json))
		return false;
	memcpy(json->text + json->len, text, len);
	json->len += len;
	return true;
}

/* Returns the length of the UTF-8 character that begins at `at`; 0 when none does (RFC 3629). */
static size_t utf8_len(const unsigned char *at)
{
	size_t len = at[0] < 0xc2 ? 0 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : at[0] < 0xf5 ? 4 : 0;

	for (size_t i = 1; i < len; i++)
		if ((at[i] & 0xc0) != 0x80)
			return 0;
	if ((at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xed && at[1] > 0x9f) ||
		(at[0] == 0xf0 && at[1] < 0x90) || (at[0] == 0xf4 && at[1] > 0x8f))
		return 0;
	return len;
}

/* Writes one character, or a replacement when the bytes are no valid one. Returns how many bytes of
 * the text it took. */
static size_t json_put_char(struct json *json, const unsigned char *at)
{
	char escaped[8];
	size_t len;

	if (*at == '"' || *at == '\\') {
		const char pair[] = {'\\', (char)*at};

		return json_put(json, pair, 2) ? 1 : 0;
	}
	if (*at < 0x20 || *at == 0x7f) {
		snprintf(escaped, sizeof(escaped), "\\u%04x", *at);
		return json_put(json, escaped, 6) ? 1 : 0;
	}
	if (*at < 0x80)
		return json_put(json, (const char *)at, 1) ? 1 : 0;
	len = utf8_len(at);
	if (len)
		return json_put(json, (const char *)at, len) ? len : 0;
	return json_put(json, "\xef\xbf\xbd", 3) ? 1 : 0;
}

/* Always writes the closing quote, however little room there is. */
static void json_put_text(struct json *json, const char *text)
{
	const unsigned char *at = (const unsigned char *)text;
	size_t took = 1;

	while (*at && took) {
		took = json_put_char(json, at);
		at += took;
	}
	json->text[json->len++] = '"';
}

/* A member is left out when not even its name fits. */
static void json_put_member(struct json *json, const struct log_field *field)
{
	char head[64], number[24];
	int len = snprintf(head, sizeof(head), ",\"%s\":%s", field->name, field->text ? "\"" : "");
	int digits = snprintf(number, sizeof(number), "%llu", (unsigned long long)field->number);

	if (len >= (int)sizeof(head) || (size_t)(len + digits) >= json_room(json))
		return;
	json_put(json, head, (size_t)len);
	if (field->text)
		json_put_text(json, field->text);
	else
		json_put(json, number, (size_t)digits);
}

/* One line, before it is written in any format. */
struct line {
	enum log_level level;
	const char *tag, *message, *request; /* request may be NULL */
	uint32_t stands_for;		     /* lines, if it is lost */
	char time[40];
};

static void json_line(const struct line *line, struct log_fields fields)
{
	struct json json = {.len = 0};

	json.len = (size_t)snprintf(json.text, sizeof(json.text),
		"{\"time\":\"%s\",\"level\":\"%s\"", line->time, LEVEL_NAMES[line->level]);
	json_put_member(&json, &(struct log_field){"component", line->tag, 0});
	if (line->request)
		json_put_member(&json, &(struct log_field){"request_id", line->request, 0});
	json_put_member(&json, &(struct log_field){"message", line->message, 0});
	for (uint32_t i = 0; i < fields.count; i++)
		json_put_member(&json, &fields.list[i]);
	json.text[json.len++] = '}';
	if (log_ring_is_open())
		log_ring_put(json.text, json.len);
	json.text[json.len++] = '\n';
	if (format_now == LOG_FORMAT_JSON)
		line_write(json.text, json.len, line->stands_for);
}

/* ---- Text. ---- */

static void text_line(const struct line *line)
{
	const char *request = line->request ? line->request : "";
	char text[LINE_BYTES + 2];
	size_t len = (size_t)snprintf(text, LINE_BYTES, "%s %-5s %s: %s%s%s%s", line->time,
		LEVEL_NAMES[line->level], line->tag, request[0] ? "[" : "", request,
		request[0] ? "] " : "", line->message);

	if (len > LINE_BYTES - 1)
		len = LINE_BYTES - 1;
	text[len++] = '\n';
	line_write(text, len, line->stands_for);
}

static void line_put(struct line *line, struct log_fields fields)
{
	time_put(line->time, sizeof(line->time));
	if (format_now == LOG_FORMAT_TEXT)
		text_line(line);
	if (format_now == LOG_FORMAT_JSON || log_ring_is_open())
		json_line(line, fields);
}

/* Tells what is missing before the line that goes out next. */
static void lost_tell(void)
{
	struct line line = {.level = LOG_WARN, .tag = "log"};
	char message[120];

	if (!atomic_load(&lines_lost) || !stderr_ready())
		return;
	line.stands_for = atomic_exchange(&lines_lost, 0);
	if (!line.stands_for)
		return;
	snprintf(message, sizeof(message),
		"%u lines were left out here, because nobody read the standard error in time",
		line.stands_for);
	line.message = message;
	line_put(&line, (struct log_fields){0});
}

static void line_make(enum log_level level, const char *tag, struct log_fields fields,
	const char *fmt, va_list args)
{
	const char *request = request_now ? request_now() : NULL;
	char message[MESSAGE_BYTES];
	struct line line = {.level = level, .tag = tag, .message = message, .stands_for = 1};

	if (vsnprintf(message, sizeof(message), fmt, args) < 0)
		return;
	lost_tell();
	line.request = request && request[0] ? request : NULL;
	line_put(&line, fields);
}

void log_line(enum log_level level, const char *tag, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	line_make(level, tag, (struct log_fields){0}, fmt, args);
	va_end(args);
}

/* True when the site has a line left: it fills up again by one a second. */
static bool limit_take(struct log_limit *limit)
{
	uint64_t now_ns = clock_now_ns(), spent_ns = atomic_load(&limit->spent_ns), from_ns;

	do {
		from_ns = spent_ns > now_ns ? spent_ns : now_ns;
		if (from_ns - now_ns >= LOG_LIMITED_BURST * NS_PER_S)
			return false;
	} while (!atomic_compare_exchange_weak(&limit->spent_ns, &spent_ns, from_ns + NS_PER_S));
	return true;
}

void log_line_limited(
	struct log_limit *limit, enum log_level level, const char *tag, const char *fmt, ...)
{
	uint32_t left_out;
	va_list args;

	if (!limit_take(limit)) {
		atomic_fetch_add(&limit->left_out, 1);
		return;
	}
	left_out = atomic_exchange(&limit->left_out, 0);
	if (left_out)
		log_line(level, tag, "%u lines like the next were left out", left_out);
	va_start(args, fmt);
	line_make(level, tag, (struct log_fields){0}, fmt, args);
	va_end(args);
}

void log_line_with(
	enum log_level level, const char *tag, struct log_fields fields, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	line_make(level, tag, fields, fmt, args);
	va_end(args);
}

/* ---- Lines printed to stderr. ---- */

/* The stream is line-buffered, so each write is a whole line. Error messages of this program begin
 * with its name. */
static ssize_t stream_write(void *cookie, const char *data, size_t len)
{
	const char *at = data, *end = data + len;

	while (at < end) {
		const char *stop = memchr(at, '\n', (size_t)(end - at));
		size_t bytes = (size_t)((stop ? stop : end) - at);
		bool failed = bytes > 8 && memcmp(at, "nebulaio", 8) == 0;

		if (bytes)
			log_line(failed ? LOG_ERROR : LOG_INFO, cookie, "%.*s", (int)bytes, at);
		at += bytes + (stop != NULL);
	}
	return (ssize_t)len;
}

void log_set_format(enum log_format format, const char *stderr_tag)
{
	static FILE *stream;
	const cookie_io_functions_t io = {.write = stream_write};

	format_now = format;
	if (format != LOG_FORMAT_JSON || stream)
		return;
	stream = fopencookie((void *)(uintptr_t)stderr_tag, "w", io);
	if (!stream)
		return;
	setvbuf(stream, NULL, _IOLBF, 1024);
	stderr = stream;
}
