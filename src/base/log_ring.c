/* base/log_ring.c: lines in a ring of bytes, each behind its length. */
#include "base/log_ring.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

/* Positions only grow; a byte's place is its position modulo the size. The lines of the ids first
 * to next - 1 lie from `head` to `tail`. */
static struct {
	pthread_mutex_t lock;
	char *data; /* NULL: closed */
	uint64_t head, tail;
	uint64_t first, next;
} ring = {.lock = PTHREAD_MUTEX_INITIALIZER, .first = 1, .next = 1};

#define HEAD_BYTES sizeof(uint16_t)

_Static_assert(LOG_RING_LINE_BYTES <= UINT16_MAX, "a line's length fits in its head");
_Static_assert((LOG_RING_BYTES & (LOG_RING_BYTES - 1)) == 0, "places are cut from positions");

bool log_ring_open(void)
{
	if (!ring.data)
		ring.data = malloc(LOG_RING_BYTES);
	return ring.data != NULL;
}

bool log_ring_is_open(void)
{
	return ring.data != NULL;
}

static void copy_in(uint64_t at, const void *from, size_t len)
{
	size_t place = at % LOG_RING_BYTES;
	size_t begin = LOG_RING_BYTES - place < len ? LOG_RING_BYTES - place : len;

	memcpy(ring.data + place, from, begin);
	memcpy(ring.data, (const char *)from + begin, len - begin);
}

static void copy_out(uint64_t at, void *to, size_t len)
{
	size_t place = at % LOG_RING_BYTES;
	size_t begin = LOG_RING_BYTES - place < len ? LOG_RING_BYTES - place : len;

	memcpy(to, ring.data + place, begin);
	memcpy((char *)to + begin, ring.data, len - begin);
}

static uint16_t len_at(uint64_t at)
{
	uint16_t len;

	copy_out(at, &len, sizeof(len));
	return len;
}

void log_ring_put(const char *object, size_t len)
{
	uint16_t head = (uint16_t)len;

	CHECK(len >= 2 && len <= LOG_RING_LINE_BYTES);
	pthread_mutex_lock(&ring.lock);
	while (ring.tail + HEAD_BYTES + len - ring.head > LOG_RING_BYTES) {
		ring.head += HEAD_BYTES + len_at(ring.head);
		ring.first++;
	}
	copy_in(ring.tail, &head, HEAD_BYTES);
	copy_in(ring.tail + HEAD_BYTES, object, len);
	ring.tail += HEAD_BYTES + len;
	ring.next++;
	pthread_mutex_unlock(&ring.lock);
}

void log_ring_read(
	uint64_t after, uint32_t lines_max, struct buf *out, struct log_ring_page *ret_page)
{
	char line[LOG_RING_LINE_BYTES];
	uint64_t id, at;

	*ret_page = (struct log_ring_page){0};
	pthread_mutex_lock(&ring.lock);
	if (after >= ring.next)
		after = ring.next - ring.first > lines_max ? ring.next - lines_max - 1
							   : ring.first - 1;
	if (after + 1 < ring.first && after)
		ret_page->lost = ring.first - after - 1;
	ret_page->last = ring.next - 1;
	for (id = ring.first, at = ring.head; id < ring.next && ret_page->count < lines_max; id++) {
		uint16_t len = len_at(at);

		if (id > after) {
			copy_out(at + HEAD_BYTES, line, len);
			buf_printf(out, "%s{\"id\":%llu,", ret_page->count ? "," : "",
				(unsigned long long)id);
			buf_put(out, line + 1, len - 1u);
			ret_page->count++;
			ret_page->last = id;
		}
		at += HEAD_BYTES + len;
	}
	ret_page->more = id < ring.next;
	pthread_mutex_unlock(&ring.lock);
}
