/* flow/transform_filter.c: keeps or drops the records of a flow: records of one length by the bytes
 * at an offset, lines by a text in them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flow/transform_priv.h"

#define RECORD_BYTES_MAX (64 * KIB) /* and of a line */
#define WANTED_BYTES_MAX 256u

_Static_assert(NEB_TRANSFORM_ROOM >= RECORD_BYTES_MAX, "a record has room");

struct filter {
	size_t record; /* 0: lines */
	size_t offset;
	uint8_t wanted[WANTED_BYTES_MAX];
	size_t wanted_bytes;
	bool without; /* keep the records without the text */
	bool set;
	/* The first part of a record. */
	uint8_t held[RECORD_BYTES_MAX];
	size_t held_bytes;
	const char *why;
};

/* ---- Options. ---- */

static bool number_parse(const char *text, size_t max, size_t *ret_number)
{
	char *end;
	unsigned long long number = strtoull(text, &end, 10);

	if (*text < '0' || *text > '9' || *end || number > max)
		return false;
	*ret_number = (size_t)number;
	return true;
}

static int digit_of(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool hex_parse(const char *text, struct filter *self)
{
	size_t len = strlen(text);

	if (!len || len % 2 || len / 2 > sizeof(self->wanted))
		return false;
	for (size_t i = 0; i < len / 2; i++) {
		int high = digit_of(text[2 * i]), low = digit_of(text[2 * i + 1]);

		if (high < 0 || low < 0)
			return false;
		self->wanted[i] = (uint8_t)(high << 4 | low);
	}
	self->wanted_bytes = len / 2;
	return true;
}

static bool text_take(const char *text, struct filter *self)
{
	self->wanted_bytes = strlen(text);
	if (!self->wanted_bytes || self->wanted_bytes > sizeof(self->wanted))
		return false;
	memcpy(self->wanted, text, self->wanted_bytes);
	return true;
}

static bool value_parse(const char *word, const char *value, struct filter *self)
{
	const bool is = !strcmp(word, "is"), has = !strcmp(word, "has");

	if (self->record && !strcmp(word, "offset"))
		return number_parse(value, self->record - 1, &self->offset);
	if (self->set)
		return false;
	self->set = true;
	if (self->record && (is || !strcmp(word, "not"))) {
		self->without = !is;
		return hex_parse(value, self);
	}
	if (!self->record && (has || !strcmp(word, "lacks"))) {
		self->without = !has;
		return text_take(value, self);
	}
	return false;
}

/* "lines,has=TEXT", "lines,lacks=TEXT", "record=N,offset=M,is=HEX", "record=N,offset=M,not=HEX". A
 * text is the last option, and may hold commas. */
static bool options_parse(char *rest, struct filter *self)
{
	char *word = strsep(&rest, ","), *value;

	if (!strncmp(word, "record=", 7)) {
		if (!number_parse(word + 7, RECORD_BYTES_MAX, &self->record) || !self->record)
			return false;
	} else if (strcmp(word, "lines")) {
		return false;
	}
	while (rest) {
		word = rest;
		value = strchr(word, '=');
		if (!value)
			return false;
		*value++ = '\0';
		rest = self->record ? strchr(value, ',') : NULL;
		if (rest)
			*rest++ = '\0';
		if (!value_parse(word, value, self))
			return false;
	}
	return self->set && (!self->record || self->offset + self->wanted_bytes <= self->record);
}

static int filter_open(const char *options, char *why, size_t why_bytes, void **ret_state)
{
	struct filter *self = calloc(1, sizeof(*self));
	char *copy = strdup(options);
	bool good = self && copy && options_parse(copy, self);

	if (good) {
		*ret_state = self;
	} else {
		snprintf(why, why_bytes,
			"'%.40s' is not of the form lines,has=TEXT or lines,lacks=TEXT or "
			"record=N,offset=M,is=HEX or …,not=HEX",
			options);
		free(self);
	}
	free(copy);
	return good ? 0 : -EINVAL;
}

/* ---- Records. ---- */

static bool stays(const struct filter *self, const uint8_t *record, size_t bytes)
{
	bool found;

	if (self->record)
		found = !memcmp(record + self->offset, self->wanted, self->wanted_bytes);
	else
		found = memmem(record, bytes, self->wanted, self->wanted_bytes) != NULL;
	return found != self->without;
}

/* The number of bytes at data that complete the held record, or form a record; 0: its end has not
 * arrived. */
static size_t record_end(const struct filter *self, const uint8_t *data, size_t bytes)
{
	const uint8_t *end;

	if (self->record)
		return bytes >= self->record - self->held_bytes ? self->record - self->held_bytes
								: 0;
	end = memchr(data, '\n', bytes);
	return end ? (size_t)(end - data) + 1 : 0;
}

static int hold(struct filter *self, const uint8_t *data, size_t bytes)
{
	if (bytes > sizeof(self->held) - self->held_bytes) {
		self->why = "a line is longer than 64 KiB";
		return -EMSGSIZE;
	}
	memcpy(self->held + self->held_bytes, data, bytes);
	self->held_bytes += bytes;
	return 0;
}

static void give(struct neb_transform_out *out, const uint8_t *record, size_t bytes)
{
	memcpy(out->data + out->bytes, record, bytes);
	out->bytes += bytes;
}

static int filter_convert(void *state, struct neb_transform_in *in, struct neb_transform_out *out)
{
	struct filter *self = state;
	int ret;

	while (in->taken < in->bytes && out->capacity - out->bytes >= RECORD_BYTES_MAX) {
		const uint8_t *data = in->data + in->taken;
		size_t left = in->bytes - in->taken;
		size_t bytes = record_end(self, data, left);

		if (!bytes || self->held_bytes || bytes > RECORD_BYTES_MAX) {
			ret = hold(self, data, bytes ? bytes : left);
			if (ret)
				return ret;
			in->taken += bytes ? bytes : left;
			if (bytes && stays(self, self->held, self->held_bytes))
				give(out, self->held, self->held_bytes);
			self->held_bytes = bytes ? 0 : self->held_bytes;
			continue;
		}
		in->taken += bytes;
		if (stays(self, data, bytes))
			give(out, data, bytes);
	}
	return 0;
}

/* The last line needs no line end. */
static int filter_flush(void *state, struct neb_transform_out *out)
{
	struct filter *self = state;

	if (self->held_bytes && self->record) {
		self->why = "the last record is cut off";
		return -EBADMSG;
	}
	if (self->held_bytes && stays(self, self->held, self->held_bytes))
		give(out, self->held, self->held_bytes);
	self->held_bytes = 0;
	return 0;
}

static const char *filter_why(void *state)
{
	const struct filter *self = state;

	return self->why;
}

const struct neb_transform FLOW_TRANSFORM_FILTER = {.version = NEB_TRANSFORM_VERSION,
	.name = "filter",
	.open = filter_open,
	.convert = filter_convert,
	.flush = filter_flush,
	.why = filter_why,
	.close = free};
