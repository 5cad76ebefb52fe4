/* iam/policy_kms.c: compares names of KMS keys: a key's id, and the ARNs of it. */
#include <stdio.h>

#include "iam/policy_priv.h"

#define KEY		":key/" /* stands before the id in a key's ARN */
#define ARN		SLICE("arn:")
#define DIGITS		SLICE("0123456789")
#define REGION_CHARS	SLICE("abcdefghijklmnopqrstuvwxyz0123456789-")
#define FIELD_BYTES_MAX 64u

bool policy_is_kms_key(struct slice key)
{
	return slice_ends(key, SLICE(":x-amz-server-side-encryption-aws-kms-key-id"));
}

struct slice policy_kms_pattern(struct slice text)
{
	ptrdiff_t at = slice_find(text, SLICE(KEY));

	return at < 0 ? text : slice_from(text, (size_t)at + strlen(KEY));
}

struct slice policy_kms_key_id(struct slice name)
{
	return slice_starts(name, ARN) ? policy_kms_pattern(name) : name;
}

/* The text that a pattern's field begins with, up to its "*", with a character for each "?".
 * Empty: it has another character than these. */
static struct slice field_begin(struct slice field, struct slice chars, char *buffer)
{
	size_t len = 0;

	while (len < field.len && len < FIELD_BYTES_MAX && field.data[len] != PATTERN_ANY) {
		char c = field.data[len] == PATTERN_ONE ? chars.data[0] : field.data[len];

		if (!memchr(chars.data, c, chars.len))
			return SLICE_NONE;
		buffer[len++] = c;
	}
	return slice_of(buffer, len);
}

struct slice policy_kms_arn(struct slice pattern, struct slice id, char *buffer, size_t size)
{
	char texts[3][FIELD_BYTES_MAX];
	struct slice rest = pattern, partition, region = SLICE_NONE, account = SLICE_NONE;
	int len;

	if (!slice_starts(pattern, ARN))
		return id;
	slice_split(&rest, ':');
	partition = field_begin(slice_split(&rest, ':'), REGION_CHARS, texts[0]);
	/* A "*" can span several fields: the first that can be an account is it. */
	while (rest.len && !account.len) {
		struct slice field = slice_split(&rest, ':');

		account = field_begin(field, DIGITS, texts[1]);
		if (!account.len && !region.len && !slice_eq(field, SLICE("kms")))
			region = field_begin(field, REGION_CHARS, texts[2]);
	}
	len = snprintf(buffer, size, "arn:%.*s:kms:%.*s:%.*s" KEY "%.*s", SLICE_FMT(partition),
		SLICE_FMT(region), SLICE_FMT(account), SLICE_FMT(id));
	return len >= 0 && (size_t)len < size ? slice_of(buffer, (size_t)len) : id;
}
