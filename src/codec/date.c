/* codec/date.c: one parser and one formatter for all forms of dates, driven by patterns.
 *
 * In a pattern a lower-case letter is a field and anything else stands for itself. A run of y, o,
 * d, h, m, s or f is a number of that many digits (year, month, day, hour, minute, second,
 * millisecond); p is a day's first digit, which may be a space; w and l are a weekday's short and
 * long name, n a month's. */
#include "codec/date.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/base.h"

#define PATTERN_IMF	"w, dd n yyyy hh:mm:ss GMT"
#define PATTERN_RFC850	"l, dd-n-yy hh:mm:ss GMT"
#define PATTERN_ASCTIME "w n pd hh:mm:ss yyyy"
#define PATTERN_ISO	"yyyy-oo-ddThh:mm:ss.fffZ"
#define PATTERN_SECONDS "yyyy-oo-ddThh:mm:ss"
#define PATTERN_OFFSET	"hh:mm"
#define PATTERN_MAIL	"dd n yyyy hh:mm:ss"
#define PATTERN_AHEAD	"hhmm"
#define PATTERN_BASIC	"yyyyooddThhmmssZ"

#define SECONDS_PER_DAY	       86400
#define FRACTION_DIGITS_MAX    9u
#define LEN_OF_PATTERN_SECONDS (sizeof(PATTERN_SECONDS) - 1)
#define LEN_OF_PATTERN_OFFSET  (sizeof(PATTERN_OFFSET) - 1)

struct fields {
	int year, month, day; /* month and day from 1 */
	int hour, minute, second, millisecond;
	int weekday; /* 0 Sunday; -1 when the text does not say */
};

static const char *const weekdays[] = {
	"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
static const char *const months[] = {
	"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
static const int month_days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
/* Days of a year without a leap day before its months. */
static const int month_begins[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};

static bool is_leap(int year)
{
	return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
}

static int days_in_month(int year, int month)
{
	return month_days[month - 1] + (month == 2 && is_leap(year));
}

/* Days from 1970-01-01 to January 1 of a year from 1970 on: 365 each, and the leap days between. */
static int64_t days_before_year(int year)
{
	int last = year - 1;

	return 365ll * (year - 1970) + (last / 4 - last / 100 + last / 400) -
	       (1969 / 4 - 1969 / 100 + 1969 / 400);
}

static int days_before_month(int year, int month)
{
	return month_begins[month - 1] + (month > 2 && is_leap(year));
}

/* 1970-01-01 was a Thursday. */
static int weekday_of(int64_t days)
{
	return (int)((days + 4) % 7);
}

static int *number_field(struct fields *fields, char letter)
{
	switch (letter) {
	case 'y':
		return &fields->year;
	case 'o':
		return &fields->month;
	case 'd':
		return &fields->day;
	case 'h':
		return &fields->hour;
	case 'm':
		return &fields->minute;
	case 's':
		return &fields->second;
	case 'f':
		return &fields->millisecond;
	default:
		return NULL;
	}
}

/* Index of the name (cut to name_len unless 0) that *text starts with, and moves *text past it;
 * -1 when none. */
static int take_name(struct slice *text, const char *const *names, int count, size_t name_len)
{
	for (int i = 0; i < count; i++) {
		struct slice name = slice_of(names[i], name_len ? name_len : strlen(names[i]));

		if (slice_starts(*text, name)) {
			*text = slice_from(*text, name.len);
			return i;
		}
	}
	return -1;
}

/* One letter or literal of a pattern. */
static int take_one(struct slice *text, char letter, struct fields *fields)
{
	int *number = number_field(fields, letter), *name = NULL;
	char c;

	if (letter == 'w' || letter == 'l') {
		name = &fields->weekday;
		*name = take_name(text, weekdays, ARRAY_LEN(weekdays), letter == 'w' ? 3 : 0);
	} else if (letter == 'n') {
		name = &fields->month;
		*name = take_name(text, months, ARRAY_LEN(months), 3) + 1;
	}
	if (name)
		return *name < (letter == 'n') ? -EINVAL : 0;
	if (!text->len)
		return -EINVAL;
	c = text->data[0];
	*text = slice_from(*text, 1);
	if (letter == 'p' && c == ' ')
		return 0;
	if (letter == 'p')
		number = &fields->day;
	if (!number)
		return c == letter ? 0 : -EINVAL;
	if (c < '0' || c > '9')
		return -EINVAL;
	*number = *number * 10 + (c - '0');
	return 0;
}

static int parse(struct slice text, const char *pattern, struct fields *ret_fields)
{
	struct fields fields = {.weekday = -1};

	for (; *pattern; pattern++) {
		if (take_one(&text, *pattern, &fields))
			return -EINVAL;
	}
	if (text.len)
		return -EINVAL;
	*ret_fields = fields;
	return 0;
}

static int to_ms(const struct fields *fields, int64_t *ret_ms)
{
	int64_t days;

	if (fields->year < 1970 || fields->year > 9999 || fields->month < 1 || fields->month > 12 ||
		fields->day < 1 || fields->day > days_in_month(fields->year, fields->month) ||
		fields->hour < 0 || fields->hour > 23 || fields->minute < 0 ||
		fields->minute > 59 || fields->second < 0 || fields->second > 59)
		return -EINVAL;
	days = days_before_year(fields->year) + days_before_month(fields->year, fields->month) +
	       fields->day - 1;
	if (fields->weekday >= 0 && fields->weekday != weekday_of(days))
		return -EINVAL;
	*ret_ms = (days * SECONDS_PER_DAY + fields->hour * 3600 + fields->minute * 60 +
			  fields->second) *
			  1000 +
		  fields->millisecond;
	return 0;
}

static struct fields of_ms(int64_t ms)
{
	int64_t seconds = ms / 1000, days = seconds / SECONDS_PER_DAY;
	int second_of_day = (int)(seconds % SECONDS_PER_DAY);
	struct fields fields = {
		.hour = second_of_day / 3600,
		.minute = second_of_day / 60 % 60,
		.second = second_of_day % 60,
		.millisecond = (int)(ms % 1000),
		.weekday = weekday_of(days),
	};

	CHECK(ms >= 0);
	CHECK(ms <= DATE_MS_MAX);
	/* Begins with a year that is up to one too late, because no year is shorter than 365 days,
	 * then goes back. */
	fields.year = 1970 + (int)(days / 365);
	while (days_before_year(fields.year) > days)
		fields.year--;
	days -= days_before_year(fields.year);
	/* The month begun when all would have 32 days: the right one, or the one before. */
	fields.month = (int)(days / 32) + 1;
	if (fields.month < 12 && days >= days_before_month(fields.year, fields.month + 1))
		fields.month++;
	fields.day = (int)days - days_before_month(fields.year, fields.month) + 1;
	return fields;
}

static void format(int64_t ms, const char *pattern, char *ret_text)
{
	struct fields fields = of_ms(ms);

	while (*pattern) {
		const int *number = number_field(&fields, *pattern);

		if (number) {
			unsigned value = (unsigned)*number;
			size_t len = 1;

			while (pattern[len] == *pattern)
				len++;
			for (size_t i = len; i > 0; i--, value /= 10)
				ret_text[i - 1] = (char)('0' + value % 10);
			ret_text += len;
			pattern += len;
			continue;
		}
		if (*pattern == 'w' || *pattern == 'n') {
			memcpy(ret_text,
				*pattern == 'w' ? weekdays[fields.weekday]
						: months[fields.month - 1],
				3);
			ret_text += 3;
		} else {
			*ret_text++ = *pattern;
		}
		pattern++;
	}
}

static void put_two(char *at, int value)
{
	at[0] = (char)('0' + value / 10);
	at[1] = (char)('0' + value % 10);
}

/* Each answer about an object has one: without a pattern. */
void date_http_format(int64_t ms, char ret_text[DATE_HTTP_LEN])
{
	struct fields fields = of_ms(ms);

	memcpy(ret_text, "Thu, 01 Jan 1970 00:00:00 GMT", DATE_HTTP_LEN);
	memcpy(ret_text, weekdays[fields.weekday], 3);
	put_two(ret_text + 5, fields.day);
	memcpy(ret_text + 8, months[fields.month - 1], 3);
	put_two(ret_text + 12, fields.year / 100);
	put_two(ret_text + 14, fields.year % 100);
	put_two(ret_text + 17, fields.hour);
	put_two(ret_text + 20, fields.minute);
	put_two(ret_text + 23, fields.second);
}

int date_http_parse(struct slice text, int64_t *ret_ms)
{
	struct fields fields;

	if (parse(text, PATTERN_RFC850, &fields) == 0)
		fields.year += fields.year < 70 ? 2000 : 1900;
	else if (parse(text, PATTERN_IMF, &fields) && parse(text, PATTERN_ASCTIME, &fields))
		return -EINVAL;
	return to_ms(&fields, ret_ms);
}

void date_iso_format(int64_t ms, char ret_text[DATE_ISO_LEN])
{
	format(ms, PATTERN_ISO, ret_text);
}

/* ".123": one to nine digits after a point, cut to milliseconds; none when *text has no point. */
static int take_fraction(struct slice *text, int *ret_ms)
{
	size_t digits = 0;
	int ms = 0;

	if (!slice_starts(*text, SLICE("."))) {
		*ret_ms = 0;
		return 0;
	}
	*text = slice_from(*text, 1);
	for (; digits < text->len && text->data[digits] >= '0' && text->data[digits] <= '9';
		digits++) {
		if (digits < 3)
			ms = ms * 10 + (text->data[digits] - '0');
	}
	if (digits < 1 || digits > FRACTION_DIGITS_MAX)
		return -EINVAL;
	for (size_t i = digits; i < 3; i++)
		ms *= 10;
	*text = slice_from(*text, digits);
	*ret_ms = ms;
	return 0;
}

/* "Z", or "+hh:mm" and "-hh:mm": how far the text's clock is ahead of UTC. */
static int parse_zone(struct slice text, int64_t *ret_ahead_ms)
{
	struct fields fields;

	if (slice_eq(text, SLICE("Z"))) {
		*ret_ahead_ms = 0;
		return 0;
	}
	if (text.len != 1 + LEN_OF_PATTERN_OFFSET || (text.data[0] != '+' && text.data[0] != '-'))
		return -EINVAL;
	if (parse(slice_from(text, 1), PATTERN_OFFSET, &fields) || fields.hour > 23 ||
		fields.minute > 59)
		return -EINVAL;
	*ret_ahead_ms = (fields.hour * 60 + fields.minute) * 60000ll;
	if (text.data[0] == '-')
		*ret_ahead_ms = -*ret_ahead_ms;
	return 0;
}

int date_iso_parse(struct slice text, int64_t *ret_ms)
{
	struct slice rest = slice_from(text, LEN_OF_PATTERN_SECONDS);
	struct fields fields;
	int64_t ms, ahead_ms;

	if (parse(slice_to(text, LEN_OF_PATTERN_SECONDS), PATTERN_SECONDS, &fields))
		return -EINVAL;
	if (take_fraction(&rest, &fields.millisecond) || parse_zone(rest, &ahead_ms))
		return -EINVAL;
	if (to_ms(&fields, &ms))
		return -EINVAL;
	ms -= ahead_ms;
	if (ms < 0 || ms > DATE_MS_MAX)
		return -EINVAL;
	*ret_ms = ms;
	return 0;
}

/* "GMT", or "+hhmm" and "-hhmm". */
static int parse_mail_zone(struct slice text, int64_t *ret_ahead_ms)
{
	struct fields fields;

	*ret_ahead_ms = 0;
	if (slice_eq(text, SLICE("GMT")) || slice_eq(text, SLICE("UTC")) ||
		slice_eq(text, SLICE("UT")) || slice_eq(text, SLICE("Z")))
		return 0;
	if (!text.len || (text.data[0] != '+' && text.data[0] != '-') ||
		parse(slice_from(text, 1), PATTERN_AHEAD, &fields) || fields.hour > 23 ||
		fields.minute > 59)
		return -EINVAL;
	*ret_ahead_ms = (fields.hour * 60 + fields.minute) * 60000ll;
	if (text.data[0] == '-')
		*ret_ahead_ms = -*ret_ahead_ms;
	return 0;
}

int date_mail_parse(struct slice text, int64_t *ret_ms)
{
	const char *pattern = PATTERN_MAIL;
	struct slice rest = text, weekday = slice_split(&rest, ',');
	struct fields fields;
	int64_t ms, ahead_ms;
	size_t len;

	if (rest.data) {
		if (take_name(&weekday, weekdays, ARRAY_LEN(weekdays), 3) < 0 || weekday.len)
			return -EINVAL;
		text = slice_trim(rest);
	}
	if (text.len > 1 && text.data[1] == ' ')
		pattern++;
	len = strlen(pattern) + 2; /* a month has three letters */
	if (text.len < len + 2 || text.data[len] != ' ' ||
		parse(slice_to(text, len), pattern, &fields) ||
		parse_mail_zone(slice_from(text, len + 1), &ahead_ms) || to_ms(&fields, &ms))
		return -EINVAL;
	ms -= ahead_ms;
	if (ms < 0 || ms > DATE_MS_MAX)
		return -EINVAL;
	*ret_ms = ms;
	return 0;
}

void date_basic_format(int64_t ms, char ret_text[DATE_BASIC_LEN])
{
	format(ms, PATTERN_BASIC, ret_text);
}

/* The number of a run of digits; below 0 when one of them is none. */
static int take_digits(const char *at, size_t count)
{
	int value = 0;
	bool wrong = false;

	for (size_t i = 0; i < count; i++) {
		unsigned digit = (unsigned char)at[i] - (unsigned)'0';

		wrong |= digit > 9;
		value = value * 10 + (int)(digit & 15);
	}
	return wrong ? -1 : value;
}

/* yyyymmdd. A run that is no number is below its range: to_ms refuses it. */
static struct fields day_at(const char *at)
{
	return (struct fields){.year = take_digits(at, 4),
		.month = take_digits(at + 4, 2),
		.day = take_digits(at + 6, 2),
		.weekday = -1};
}

/* Each signed request has both, so they are read without a pattern. */
int date_basic_parse(struct slice text, int64_t *ret_ms)
{
	struct fields fields;

	if (text.len != DATE_BASIC_LEN || text.data[8] != 'T' || text.data[15] != 'Z')
		return -EINVAL;
	fields = day_at(text.data);
	fields.hour = take_digits(text.data + 9, 2);
	fields.minute = take_digits(text.data + 11, 2);
	fields.second = take_digits(text.data + 13, 2);
	return to_ms(&fields, ret_ms);
}

int date_day_parse(struct slice text, int64_t *ret_ms)
{
	struct fields fields;

	if (text.len != DATE_DAY_LEN)
		return -EINVAL;
	fields = day_at(text.data);
	return to_ms(&fields, ret_ms);
}
