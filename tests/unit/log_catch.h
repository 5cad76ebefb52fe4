/* tests/unit/log_catch.h: the lines that the log writes between two calls. */
#ifndef TESTS_UNIT_LOG_CATCH_H
#define TESTS_UNIT_LOG_CATCH_H

#include "unit.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int log_was = -1;

static inline void log_catch(void)
{
	int fd = memfd_create("log", MFD_CLOEXEC);

	fflush(stderr);
	log_was = dup(STDERR_FILENO);
	assert_true(fd >= 0 && log_was >= 0 && dup2(fd, STDERR_FILENO) >= 0);
	close(fd);
}

/* Ends the catch; returns the text, valid until the next. */
static inline const char *log_caught(void)
{
	static char text[4096];
	ssize_t len;

	fflush(stderr);
	len = pread(STDERR_FILENO, text, sizeof(text) - 1, 0);
	assert_true(dup2(log_was, STDERR_FILENO) >= 0);
	close(log_was);
	assert_true(len >= 0);
	text[len] = '\0';
	return text;
}

/* How many times the text has the words. */
static inline uint32_t log_count(const char *text, const char *words)
{
	uint32_t count = 0;

	for (; (text = strstr(text, words)); text++)
		count++;
	return count;
}

#endif
