/* A transform for `nebulaio flow` that thins out market data (nebulaio/transform.h):
 *
 *	nebulaio flow --from disk:day.quotes --to s3://quotes/second.quotes
 *		--transform ./transform-downsample.so:interval=1000
 *
 * Options: every=N keeps the first of every N quotes; interval=MS keeps the last quote of each
 * symbol in each interval of so many milliseconds, counted from 1970.
 *
 * This example has its own format. A quote has 32 bytes, numbers are little-endian:
 *
 *	offset 0, 8 bytes	symbol: ASCII, filled up with zeroes; the first byte is not 0
 *	8, 8 bytes		time: nanoseconds since 1970
 *	16, 4 bytes		bid price, in hundredths of a cent
 *	20, 4 bytes		ask price, in hundredths of a cent
 *	24, 4 bytes		bid size
 *	28, 4 bytes		ask size
 *
 * Quotes of one symbol come in the order of their times. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <nebulaio/transform.h>

#define QUOTE_BYTES  32u
#define SYMBOL_BYTES 8u
#define SYMBOLS_MAX  4096u /* in a stream */

struct symbol {
	uint8_t last[QUOTE_BYTES]; /* first byte 0: no symbol here */
};

struct downsample {
	uint64_t every;	      /* 0: by interval */
	uint64_t interval_ns; /* 0: by number */
	uint64_t seen;
	uint8_t part[QUOTE_BYTES]; /* the first bytes of an incomplete quote */
	size_t part_bytes;
	uint32_t flushed; /* places of the table whose last quote has been given */
	char why[96];
	struct symbol symbols[SYMBOLS_MAX];
};

static uint64_t number_of(const uint8_t *bytes, unsigned count)
{
	uint64_t number = 0;

	while (count--)
		number = number << 8 | bytes[count];
	return number;
}

static int downsample_open(const char *options, char *why, size_t why_bytes, void **ret_state)
{
	struct downsample *self = calloc(1, sizeof(*self));
	unsigned long long number;
	char rest;

	if (!self)
		return -ENOMEM;
	if (sscanf(options, "every=%9llu%c", &number, &rest) == 1)
		self->every = number;
	else if (sscanf(options, "interval=%9llu%c", &number, &rest) == 1)
		self->interval_ns = number * 1000000;
	if (!self->every && !self->interval_ns) {
		snprintf(why, why_bytes, "'%s' is neither every=N nor interval=MS", options);
		free(self);
		return -EINVAL;
	}
	*ret_state = self;
	return 0;
}

static void give(struct neb_transform_out *out, const uint8_t *quote)
{
	memcpy(out->data + out->bytes, quote, QUOTE_BYTES);
	out->bytes += QUOTE_BYTES;
}

/* The place of the symbol's last quote; NULL: too many symbols. */
static struct symbol *symbol_of(struct downsample *self, const uint8_t *quote)
{
	uint64_t hash = number_of(quote, SYMBOL_BYTES) * 0x9e3779b97f4a7c15ull;

	for (uint32_t i = 0; i < SYMBOLS_MAX; i++) {
		struct symbol *symbol = &self->symbols[((hash >> 40) + i) % SYMBOLS_MAX];

		if (!symbol->last[0] || !memcmp(symbol->last, quote, SYMBOL_BYTES))
			return symbol;
	}
	return NULL;
}

/* Gives one quote or none. */
static int quote_take(struct downsample *self, const uint8_t *quote, struct neb_transform_out *out)
{
	struct symbol *symbol;

	if (!quote[0]) {
		snprintf(self->why, sizeof(self->why), "quote %llu has no symbol",
			(unsigned long long)self->seen);
		return -EBADMSG;
	}
	if (self->every) {
		if (self->seen++ % self->every == 0)
			give(out, quote);
		return 0;
	}
	self->seen++;
	symbol = symbol_of(self, quote);
	if (!symbol) {
		snprintf(self->why, sizeof(self->why), "there are more than %u symbols",
			SYMBOLS_MAX);
		return -E2BIG;
	}
	if (symbol->last[0] && number_of(symbol->last + 8, 8) / self->interval_ns !=
				       number_of(quote + 8, 8) / self->interval_ns)
		give(out, symbol->last);
	memcpy(symbol->last, quote, QUOTE_BYTES);
	return 0;
}

/* A quote may begin in one piece and end in the next. */
static int downsample_convert(
	void *state, struct neb_transform_in *in, struct neb_transform_out *out)
{
	struct downsample *self = state;
	int ret = 0;

	while (!ret && in->taken < in->bytes && out->capacity - out->bytes >= QUOTE_BYTES) {
		const uint8_t *data = in->data + in->taken;
		size_t left = in->bytes - in->taken, bytes = QUOTE_BYTES - self->part_bytes;

		if (!self->part_bytes && left >= QUOTE_BYTES) {
			ret = quote_take(self, data, out);
			in->taken += QUOTE_BYTES;
			continue;
		}
		bytes = left < bytes ? left : bytes;
		memcpy(self->part + self->part_bytes, data, bytes);
		in->taken += bytes;
		self->part_bytes += bytes;
		if (self->part_bytes == QUOTE_BYTES) {
			self->part_bytes = 0;
			ret = quote_take(self, self->part, out);
		}
	}
	return ret;
}

/* Gives the last quotes of the last intervals. */
static int downsample_flush(void *state, struct neb_transform_out *out)
{
	struct downsample *self = state;

	if (self->part_bytes) {
		snprintf(self->why, sizeof(self->why), "the last quote has %zu bytes of %u",
			self->part_bytes, QUOTE_BYTES);
		return -EBADMSG;
	}
	for (; self->flushed < SYMBOLS_MAX; self->flushed++) {
		if (!self->symbols[self->flushed].last[0])
			continue;
		if (out->capacity - out->bytes < QUOTE_BYTES)
			return NEB_TRANSFORM_MORE;
		give(out, self->symbols[self->flushed].last);
	}
	return 0;
}

static const char *downsample_why(void *state)
{
	const struct downsample *self = state;

	return self->why;
}

const struct neb_transform neb_transform = {
	.version = NEB_TRANSFORM_VERSION,
	.name = "downsample",
	.open = downsample_open,
	.convert = downsample_convert,
	.flush = downsample_flush,
	.why = downsample_why,
	.close = free,
};
