/* iam/policy_text.c: the comparisons of a policy's operators: texts with wildcards, numbers, dates,
 * addresses. */
#include <arpa/inet.h>
#include <ctype.h>
#include <math.h>
#include <stdlib.h>

#include "iam/policy_priv.h"

static bool same_byte(char a, char b, bool nocase)
{
	return a == b || (nocase && tolower((unsigned char)a) == tolower((unsigned char)b));
}

bool policy_spend(uint64_t *left, uint64_t steps)
{
	*left -= MIN(*left, steps);
	return *left > 0;
}

/* Whether a part without "*" matches the text's beginning, which is as long. */
static bool part_fits(struct slice part, const char *text, bool nocase)
{
	if (!part.len || memcmp(part.data, text, part.len) == 0)
		return true;
	for (size_t i = 0; i < part.len; i++)
		if (part.data[i] != PATTERN_ONE && !same_byte(part.data[i], text[i], nocase))
			return false;
	return true;
}

/* Where a part without "*" matches first; -1: nowhere, or not within the steps that are left. */
static ptrdiff_t part_find(struct slice part, struct slice text, bool nocase, uint64_t *left)
{
	const char *at;

	if (!part.len)
		return 0;
	if (text.len < part.len)
		return -1;
	if (!nocase && !memchr(part.data, PATTERN_ONE, part.len)) {
		/* libc's search is linear for parts of more than 256 bytes. For shorter ones it may
		 * compare them at each place, many bytes at a time. */
		if (!policy_spend(left, text.len + text.len / 64 * MIN(part.len, 256)))
			return -1;
		at = memmem(text.data, text.len, part.data, part.len);
		return at ? at - text.data : -1;
	}
	for (size_t i = 0; i + part.len <= text.len && policy_spend(left, part.len); i++)
		if (part_fits(part, text.data + i, nocase))
			return (ptrdiff_t)i;
	return -1;
}

/* Takes the pattern's next byte, which is not "*"; whether the text's byte matches it. */
static bool take_byte(struct slice *pattern, char byte, bool nocase)
{
	bool literal = pattern->data[0] == PATTERN_LITERAL && pattern->len > 1;
	char wanted = pattern->data[literal];

	*pattern = slice_from(*pattern, literal ? 2 : 1);
	return (!literal && wanted == PATTERN_ONE) || same_byte(wanted, byte, nocase);
}

/* policy_glob for a pattern with literal bytes, one byte after the other: where the rest does not
 * match, the last "*" takes one more byte of the text. */
static bool glob_literal(struct slice pattern, struct slice text, bool nocase, uint64_t *left)
{
	struct slice behind = SLICE_NONE, retry = SLICE_NONE; /* of the last "*" */

	/* Each takes about as long as a plain comparison of so many bytes. */
	while (policy_spend(left, 4)) {
		if (pattern.len && pattern.data[0] == PATTERN_ANY) {
			behind = pattern = slice_from(pattern, 1);
			retry = text;
		} else if (pattern.len && text.len && take_byte(&pattern, text.data[0], nocase)) {
			text = slice_from(text, 1);
		} else if (!pattern.len && !text.len) {
			return true;
		} else if (!retry.len) {
			return false;
		} else {
			retry = text = slice_from(retry, 1);
			pattern = behind;
		}
	}
	return false;
}

bool policy_glob(struct slice pattern, struct slice text, bool nocase, uint64_t *left)
{
	struct slice part;
	ptrdiff_t at;

	if (pattern.len && memchr(pattern.data, PATTERN_LITERAL, pattern.len))
		return glob_literal(pattern, text, nocase, left);
	part = slice_split(&pattern, PATTERN_ANY);
	if (text.len < part.len || !policy_spend(left, part.len + 1) ||
		!part_fits(part, text.data, nocase))
		return false;
	text = slice_from(text, part.len);
	if (!pattern.data)
		return text.len == 0;
	while (true) {
		part = slice_split(&pattern, PATTERN_ANY);
		if (!pattern.data)
			return text.len >= part.len && policy_spend(left, part.len + 1) &&
			       part_fits(part, slice_from(text, text.len - part.len).data, nocase);
		at = part_find(part, text, nocase, left);
		if (at < 0)
			return false;
		text = slice_from(text, (size_t)at + part.len);
	}
}

static bool parse_number(struct slice text, double *ret_number)
{
	char copy[40], *end;

	text = slice_trim(text);
	if (!text.len || slice_copy_str(text, copy, sizeof(copy)))
		return false;
	for (size_t i = 0; i < text.len; i++)
		if (!strchr("0123456789+-.eE", copy[i]))
			return false;
	*ret_number = strtod(copy, &end);
	return *end == '\0' && isfinite(*ret_number);
}

/* Parses an ISO 8601 date, with or without a time of day, or seconds since 1970. */
static bool parse_date(struct slice text, double *ret_ms)
{
	char whole[32];
	int64_t ms;

	text = slice_trim(text);
	if (date_iso_parse(text, &ms) == 0) {
		*ret_ms = (double)ms;
		return true;
	}
	if (text.len == 10 && slice_copy_str(text, whole, sizeof(whole)) == 0) {
		memcpy(whole + 10, "T00:00:00Z", sizeof("T00:00:00Z"));
		if (date_iso_parse(slice_str(whole), &ms) == 0) {
			*ret_ms = (double)ms;
			return true;
		}
	}
	if (!parse_number(text, ret_ms))
		return false;
	*ret_ms *= 1000;
	return true;
}

bool policy_range_parse(struct slice text, struct policy_range *ret_range)
{
	struct slice rest = text, host = slice_split(&rest, '/');
	char copy[INET6_ADDRSTRLEN];
	uint64_t prefix;

	if (slice_copy_str(host, copy, sizeof(copy)))
		return false;
	if (inet_pton(AF_INET, copy, ret_range->bytes) == 1)
		ret_range->bits = 32;
	else if (inet_pton(AF_INET6, copy, ret_range->bytes) == 1)
		ret_range->bits = 128;
	else
		return false;
	ret_range->prefix = ret_range->bits;
	if (!rest.data)
		return true;
	if (slice_to_u64(rest, &prefix) || prefix > ret_range->bits)
		return false;
	ret_range->prefix = (uint32_t)prefix;
	return true;
}

bool policy_range_within(const struct policy_range *network, const struct policy_range *range)
{
	if (network->bits != range->bits || network->prefix > range->prefix)
		return false;
	for (uint32_t bit = 0; bit < network->prefix; bit++)
		if ((network->bytes[bit / 8] ^ range->bytes[bit / 8]) >> (7 - bit % 8) & 1)
			return false;
	return true;
}

/* Converts an IPv4 address that is mapped into IPv6, as an IPv6 socket reports it, to IPv4. */
static void unmap_address(struct policy_range *address)
{
	static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

	if (address->bits != 128 || memcmp(address->bytes, mapped, sizeof(mapped)) != 0)
		return;
	memmove(address->bytes, address->bytes + 12, 4);
	address->bits = 32;
}

static bool address_within(struct slice network_text, struct slice address_text)
{
	struct policy_range network, address;

	if (!policy_range_parse(network_text, &network) ||
		!policy_range_parse(address_text, &address))
		return false;
	unmap_address(&address);
	return policy_range_within(&network, &address);
}

/* Compares ARNs part by part, so that a "*" does not match a colon, except in the last part. */
static bool arn_like(struct slice pattern, struct slice arn, uint64_t *left)
{
	for (int part = 0; part < 5; part++) {
		if (!pattern.data || !arn.data)
			return false;
		if (!policy_glob(slice_split(&pattern, ':'), slice_split(&arn, ':'), false, left))
			return false;
	}
	return pattern.data && arn.data && policy_glob(pattern, arn, false, left);
}

static bool compare_numbers(enum policy_operator op, double wanted, double value)
{
	switch (op) {
	case OP_NUMERIC_LESS:
	case OP_DATE_LESS:
		return value < wanted;
	case OP_NUMERIC_LESS_EQUALS:
	case OP_DATE_LESS_EQUALS:
		return value <= wanted;
	case OP_NUMERIC_GREATER:
	case OP_DATE_GREATER:
		return value > wanted;
	case OP_NUMERIC_GREATER_EQUALS:
	case OP_DATE_GREATER_EQUALS:
		return value >= wanted;
	default:
		/* Equal, without a comparison of floats for equality. */
		return !(value < wanted) && !(value > wanted);
	}
}

static bool is_numeric(enum policy_operator op)
{
	return op >= OP_NUMERIC_EQUALS && op <= OP_NUMERIC_GREATER_EQUALS;
}

static bool is_date(enum policy_operator op)
{
	return op >= OP_DATE_EQUALS && op <= OP_DATE_GREATER_EQUALS;
}

bool policy_compare(
	enum policy_operator op, struct slice wanted, struct slice value, uint64_t *left)
{
	double a, b;

	/* Parsing takes about as long as a comparison of so many bytes. */
	if (!policy_spend(left, is_numeric(op) || is_date(op) || op == OP_IP_ADDRESS ? 64 : 1))
		return false;
	if (is_numeric(op))
		return parse_number(wanted, &a) && parse_number(value, &b) &&
		       compare_numbers(op, a, b);
	if (is_date(op))
		return parse_date(wanted, &a) && parse_date(value, &b) && compare_numbers(op, a, b);
	switch (op) {
	case OP_STRING_EQUALS_NOCASE:
	case OP_BOOL:
		return slice_eq_nocase(wanted, value);
	case OP_STRING_LIKE:
		return policy_glob(wanted, value, false, left);
	case OP_IP_ADDRESS:
		return address_within(wanted, value);
	case OP_ARN_LIKE:
		return arn_like(wanted, value, left);
	default:
		return slice_eq(wanted, value);
	}
}

bool policy_value_valid(enum policy_operator op, struct slice wanted)
{
	struct policy_range address;
	double number;

	if (is_numeric(op))
		return parse_number(wanted, &number);
	if (is_date(op))
		return parse_date(wanted, &number);
	if (op == OP_IP_ADDRESS)
		return policy_range_parse(wanted, &address);
	if (op == OP_BOOL || op == OP_NULL)
		return slice_eq_nocase(wanted, SLICE("true")) ||
		       slice_eq_nocase(wanted, SLICE("false"));
	return true;
}
