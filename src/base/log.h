/* base/log.h: one line per event on standard error, with time, level and a tag that names the part
 * ("rdma", "store", …), as text or as a JSON object. A line has the id of the request being served,
 * when there is one. Thread-safe; each line is one write(2), which never waits: a line that
 * standard error has no room for is left out and counted, and the next one that goes out follows
 * the count. Not for data paths above TRACE. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_TRACE, LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };
enum log_format { LOG_FORMAT_TEXT, LOG_FORMAT_JSON };

void log_set_level(enum log_level level);
/* "trace", "debug", "info", "warn" or "error"; false when name is none of them. */
bool log_level_parse(const char *name, enum log_level *ret_level);
extern enum log_level log_level_now;

/* Called at start, before there are other threads. In JSON, lines that this program itself prints
 * to the stream stderr also become log entries, with the tag. Output that libraries write to the
 * descriptor does not. */
void log_set_format(enum log_format format, const char *stderr_tag);
/* "text" or "json"; false when name is neither. */
bool log_format_parse(const char *name, enum log_format *ret_format);
/* Returns the id of the request that the calling thread serves now, or NULL or "". Set at start. */
typedef const char *log_request_fn(void);
void log_set_request(log_request_fn *fn);

/* A value of the line for programs to read: a separate member in JSON, nothing in text. */
struct log_field {
	const char *name;
	const char *text; /* NULL: the number */
	uint64_t number;
};
struct log_fields {
	const struct log_field *list;
	uint32_t count;
};

void log_line(enum log_level level, const char *tag, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void log_line_with(enum log_level level, const char *tag, struct log_fields fields, const char *fmt,
	...) __attribute__((format(printf, 4, 5)));

#define LOG(level, tag, ...)                                       \
	do {                                                       \
		if (__builtin_expect((level) >= log_level_now, 0)) \
			log_line(level, tag, __VA_ARGS__);         \
	} while (0)
#define log_trace(tag, ...) LOG(LOG_TRACE, tag, __VA_ARGS__)
#define log_debug(tag, ...) LOG(LOG_DEBUG, tag, __VA_ARGS__)
#define log_info(tag, ...)  LOG(LOG_INFO, tag, __VA_ARGS__)
#define log_warn(tag, ...)  LOG(LOG_WARN, tag, __VA_ARGS__)
#define log_error(tag, ...) LOG(LOG_ERROR, tag, __VA_ARGS__)

/* The lines that a call site has left. Starts as zeroes. */
struct log_limit {
	_Atomic uint64_t spent_ns;
	_Atomic uint32_t left_out;
};
#define LOG_LIMITED_BURST 100u
void log_line_limited(struct log_limit *limit, enum log_level level, const char *tag,
	const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* For what anybody who reaches a port can cause as often as he likes: LOG_LIMITED_BURST lines of
 * each call site at once, then one a second. A line tells how many were left out before it. */
#define log_limited(level, tag, ...)                                          \
	do {                                                                  \
		static struct log_limit log_limit_here;                       \
		log_limited_by(&log_limit_here, (level), (tag), __VA_ARGS__); \
	} while (0)
/* The same with a limit of the caller's: for what one of several can cause without the others. */
#define log_limited_by(limit, level, tag, ...)                            \
	do {                                                              \
		if (__builtin_expect((level) >= log_level_now, 0))        \
			log_line_limited(limit, level, tag, __VA_ARGS__); \
	} while (0)

#endif
