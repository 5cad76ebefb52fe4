/* base/log.h: one line per event on standard error, with time, level and a tag that names the part
 * ("rdma", "store", …). Thread-safe; a line is written by one write(2). Not for data paths above
 * TRACE. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdbool.h>

enum log_level { LOG_TRACE, LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

void log_set_level(enum log_level level);
/* "trace", "debug", "info", "warn" or "error"; false when name is none of them. */
bool log_level_parse(const char *name, enum log_level *ret_level);
extern enum log_level log_level_now;

void log_line(enum log_level level, const char *tag, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

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

#endif
