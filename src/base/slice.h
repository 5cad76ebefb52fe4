/* base/slice.h: a borrowed run of bytes with its length; never NUL-terminated, never owned. */
#ifndef BASE_SLICE_H
#define BASE_SLICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

struct slice {
	const char *data; /* may be NULL when len is 0 */
	size_t len;
};

#define SLICE(literal) ((struct slice){"" literal, sizeof(literal) - 1})
#define SLICE_NONE     ((struct slice){NULL, 0})
/* For printf: printf("%.*s", SLICE_FMT(s)). */
#define SLICE_FMT(s) (int)(s).len, (s).data

static inline struct slice slice_of(const void *data, size_t len)
{
	return (struct slice){(const char *)data, len};
}

static inline struct slice slice_str(const char *str)
{
	return (struct slice){str, str ? strlen(str) : 0};
}

static inline bool slice_eq(struct slice a, struct slice b)
{
	return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

static inline bool slice_eq_nocase(struct slice a, struct slice b)
{
	/* The first letters are compared before the rest, ignoring case (the cases of a letter
	 * differ in one bit). This tells most slices of equal length apart. */
	return a.len == b.len && (a.len == 0 || (((a.data[0] ^ b.data[0]) & ~0x20) == 0 &&
							strncasecmp(a.data, b.data, a.len) == 0));
}

/* memcmp order, then the shorter first: the order of S3 keys. */
static inline int slice_cmp(struct slice a, struct slice b)
{
	size_t len = a.len < b.len ? a.len : b.len;
	int order = len ? memcmp(a.data, b.data, len) : 0;

	if (order)
		return order;
	return a.len < b.len ? -1 : a.len > b.len;
}

static inline uint64_t slice_hash_fold(uint64_t a, uint64_t b)
{
	__uint128_t product = (__uint128_t)a * b;

	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* For tables in memory: a multiply-and-fold hash, eight bytes a step. salt is more that the name
 * depends on. With a seed drawn at start nobody can choose names that collide. */
static inline uint64_t slice_hash(struct slice s, uint64_t salt, const uint64_t seed[2])
{
	uint64_t hash = slice_hash_fold(salt ^ seed[0], s.len ^ seed[1]);
	uint64_t word = 0;
	size_t at = 0;

	for (; at + sizeof(word) <= s.len; at += sizeof(word)) {
		memcpy(&word, s.data + at, sizeof(word));
		hash = slice_hash_fold(hash ^ word, seed[1]);
	}
	word = 0;
	if (at < s.len)
		memcpy(&word, s.data + at, s.len - at);
	return slice_hash_fold(hash ^ word, seed[0] | 1);
}

/* The same with a fixed seed, for tables where names that collide only share a place. */
static inline uint64_t slice_hash_fixed(struct slice s, uint64_t salt)
{
	static const uint64_t seed[2] = {0x9e3779b97f4a7c15ull, 0xd1342543de82ef95ull};

	return slice_hash(s, salt, seed);
}

static inline bool slice_starts(struct slice s, struct slice prefix)
{
	return s.len >= prefix.len &&
	       (prefix.len == 0 || memcmp(s.data, prefix.data, prefix.len) == 0);
}

static inline bool slice_ends(struct slice s, struct slice suffix)
{
	return s.len >= suffix.len && (suffix.len == 0 || memcmp(s.data + s.len - suffix.len,
								  suffix.data, suffix.len) == 0);
}

static inline struct slice slice_from(struct slice s, size_t offset)
{
	return offset >= s.len ? SLICE_NONE : slice_of(s.data + offset, s.len - offset);
}

static inline struct slice slice_to(struct slice s, size_t len)
{
	return slice_of(s.data, len < s.len ? len : s.len);
}

/* True when each byte is an ASCII letter, a digit or one of more; so is an empty slice. */
bool slice_is_word(struct slice s, const char *more);

/* Cuts leading and trailing spaces and tabs (HTTP optional white space). */
struct slice slice_trim(struct slice s);

/* Splits *rest at the first byte: returns what stands before it and moves *rest past it. When the
 * byte is absent, returns all of *rest and leaves *rest empty with a NULL pointer. */
struct slice slice_split(struct slice *rest, char byte);

/* Index of the first occurrence, or -1. */
ptrdiff_t slice_find(struct slice s, struct slice needle);

/* Parses all of s as an unsigned decimal; -EINVAL on anything else, -ERANGE past UINT64_MAX. */
int slice_to_u64(struct slice s, uint64_t *ret_value);
/* A size: "256MiB", "4 GiB", "65536". -EINVAL; -ERANGE. */
int slice_to_bytes(struct slice s, uint64_t *ret_bytes);
/* In decimal digits, which lie in text. */
#define SLICE_U64_MAX 20u
struct slice slice_of_u64(uint64_t value, char text[SLICE_U64_MAX]);

/* Copies to a caller's memory; an empty slice may have no address. */
static inline void slice_copy(struct slice s, void *to)
{
	if (s.len)
		memcpy(to, s.data, s.len);
}

/* Copies to a caller's buffer and terminates it; -ENAMETOOLONG when it does not fit. */
int slice_copy_str(struct slice s, char *buf, size_t buf_bytes);
/* True when one of count names equals s, without case. */
bool slice_among(struct slice s, const struct slice *names, size_t count);

#endif
