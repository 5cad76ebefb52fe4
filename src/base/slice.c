/* base/slice.c: the longer operations on borrowed runs of bytes. */
#include "base/limits.h"
#include "base/slice.h"

#include <errno.h>

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

bool slice_is_word(struct slice s, const char *more)
{
	for (size_t i = 0; i < s.len; i++) {
		char c = s.data[i];

		if (!(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && !(c >= '0' && c <= '9') &&
			(!c || !strchr(more, c)))
			return false;
	}
	return true;
}

struct slice slice_trim(struct slice s)
{
	while (s.len && is_blank(s.data[0])) {
		s.data++;
		s.len--;
	}
	while (s.len && is_blank(s.data[s.len - 1]))
		s.len--;
	return s;
}

struct slice slice_split(struct slice *rest, char byte)
{
	const char *at = rest->len ? memchr(rest->data, byte, rest->len) : NULL;
	struct slice head = *rest;

	if (!at) {
		*rest = SLICE_NONE;
		return head;
	}
	head.len = (size_t)(at - rest->data);
	*rest = slice_of(at + 1, rest->len - head.len - 1);
	return head;
}

ptrdiff_t slice_find(struct slice s, struct slice needle)
{
	const char *at;

	if (needle.len == 0)
		return 0;
	if (s.len < needle.len)
		return -1;
	at = memmem(s.data, s.len, needle.data, needle.len);
	return at ? at - s.data : -1;
}

int slice_to_u64(struct slice s, uint64_t *ret_value)
{
	uint64_t value = 0;

	if (s.len == 0)
		return -EINVAL;
	for (size_t i = 0; i < s.len; i++) {
		if (s.data[i] < '0' || s.data[i] > '9')
			return -EINVAL;
		if (__builtin_mul_overflow(value, 10u, &value) ||
			__builtin_add_overflow(value, (uint64_t)(s.data[i] - '0'), &value))
			return -ERANGE;
	}
	*ret_value = value;
	return 0;
}

int slice_to_bytes(struct slice s, uint64_t *ret_bytes)
{
	static const struct {
		const char *name;
		uint64_t bytes;
	} UNITS[] = {{"", 1}, {"B", 1}, {"KiB", KIB}, {"MiB", MIB}, {"GiB", GIB}, {"TiB", TIB}};
	size_t digits = 0;
	struct slice unit;
	uint64_t number;
	int ret;

	while (digits < s.len && s.data[digits] >= '0' && s.data[digits] <= '9')
		digits++;
	ret = slice_to_u64(slice_to(s, digits), &number);
	if (ret)
		return ret;
	for (unit = slice_from(s, digits); unit.len && unit.data[0] == ' ';)
		unit = slice_from(unit, 1);
	for (size_t i = 0; i < sizeof(UNITS) / sizeof(UNITS[0]); i++) {
		if (!slice_eq_nocase(unit, slice_str(UNITS[i].name)))
			continue;
		if (__builtin_mul_overflow(number, UNITS[i].bytes, &number))
			return -ERANGE;
		*ret_bytes = number;
		return 0;
	}
	return -EINVAL;
}

int slice_copy_str(struct slice s, char *buf, size_t buf_bytes)
{
	if (s.len >= buf_bytes)
		return -ENAMETOOLONG;
	if (s.len)
		memcpy(buf, s.data, s.len);
	buf[s.len] = '\0';
	return 0;
}

bool slice_among(struct slice s, const struct slice *names, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (slice_eq_nocase(s, names[i]))
			return true;
	return false;
}

struct slice slice_of_u64(uint64_t value, char text[SLICE_U64_MAX])
{
	size_t first = SLICE_U64_MAX;

	do {
		text[--first] = (char)('0' + value % 10);
		value /= 10;
	} while (value);
	return slice_of(text + first, SLICE_U64_MAX - first);
}
