/* deploy/wheels/glibc.c: functions that Debian's static libraries take from the C library, but that
 * older C libraries lack. Linked into what must run on those. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>

/* Of glibc 2.36; Debian's libraries take seeds from them. */
#define HERE __attribute__((visibility("hidden")))
HERE void arc4random_buf(void *data, size_t bytes);
HERE uint32_t arc4random(void);

void arc4random_buf(void *data, size_t bytes)
{
	char *at = data;

	while (bytes) {
		ssize_t got = getrandom(at, bytes < 256 ? bytes : 256, 0);

		if (got < 0)
			abort();
		at += got;
		bytes -= (size_t)got;
	}
}

uint32_t arc4random(void)
{
	uint32_t value;

	arc4random_buf(&value, sizeof(value));
	return value;
}
