/* client/fan_out.c: one object to many clients: this client's part of a group that the server keeps
 * in step. The first request waits for the group; the rest follow as a batch of ranges. */
#include "call_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PART_BYTES   (8 * MIB)
#define WINDOW	     4u
#define WAIT_NS	     (10 * NS_PER_S)
#define WAIT_NS_MAX  (60 * NS_PER_S)
#define NAME_MAX_LEN 64u
#define MEMBERS_MAX  1024u

/* A download; all its parts use it. */
struct fan {
	struct neb_fan_out own;
	struct neb_header headers[2];
	uint64_t bytes;
	/* Of the part furthest in the object that told how the group went, or the first error. */
	struct neb_result *result;
	uint64_t result_offset;
	int stopped; /* of the last batch: the program wants no more */
	char value[NEB_FAN_OUT_BYTES];
	char if_match[96];
};

static bool name_good(const char *name)
{
	size_t len = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				  "0123456789._-");

	return len >= 1 && len <= NAME_MAX_LEN && !name[len];
}

int neb_fan_out_header(const struct neb_fan_out *fan_out, char ret_value[NEB_FAN_OUT_BYTES])
{
	uint64_t wait_ns = fan_out->wait_ns ? fan_out->wait_ns : WAIT_NS;
	uint64_t member = fan_out->member;

	if (!fan_out->name || !name_good(fan_out->name) || !fan_out->members ||
		fan_out->members > MEMBERS_MAX || wait_ns > WAIT_NS_MAX)
		return -EINVAL;
	while (!member)
		random_fill(&member, sizeof(member));
	snprintf(ret_value, NEB_FAN_OUT_BYTES, "%s; members=%u; wait=%llu; member=%llu",
		fan_out->name, fan_out->members, (unsigned long long)(wait_ns / NS_PER_MS),
		(unsigned long long)member);
	return 0;
}

/* The server knows of no group, as always when the first part was served alone, or no more: parts
 * overtake each other and are sent again, and the last of all may find its group over. */
static bool is_apart(const struct neb_result *result)
{
	const char *role;
	int len = neb_result_header(result, NEB_FAN_OUT_HEADER, &role);

	return len > 0 && slice_eq(slice_of(role, (size_t)len), SLICE("apart"));
}

/* A neb_batch_done_fn. */
static bool part_done(void *arg, struct neb_batch_item *item, const struct neb_result *result)
{
	struct fan *fan = (struct fan *)arg;
	bool tells = item->range_offset >= fan->result_offset &&
		     (item->range_offset == 0 || !is_apart(result));

	if (!fan->result->error && (result->error || tells)) {
		*fan->result = *result;
		fan->result_offset = item->range_offset;
	}
	return !result->error;
}

/* A neb_batch_keep_fn. */
static bool keep_on(void *arg)
{
	struct fan *fan = (struct fan *)arg;

	return fan->own.keep_on(fan->own.arg);
}

/* Reads parts as ranges of the version that the ETag names, a window of them in flight. */
static int read_parts(struct neb_client *client, struct fan *fan, uint64_t first, uint64_t count,
	uint64_t request_timeout_ns)
{
	struct client_batch_more more = {.headers = fan->headers,
		.header_count = ARRAY_LEN(fan->headers),
		.request_timeout_ns = request_timeout_ns};
	struct neb_batch batch = {.bucket = fan->own.bucket,
		.item_count = count,
		.window = WINDOW,
		.done = part_done,
		.keep_on = fan->own.keep_on ? keep_on : NULL,
		.arg = fan};
	int ret;

	batch.items = calloc(count, sizeof(*batch.items));
	if (!batch.items)
		return -ENOMEM;
	for (uint64_t i = 0; i < count; i++) {
		uint64_t offset = (first + i) * PART_BYTES;

		batch.items[i] = (struct neb_batch_item){.key = fan->own.key,
			.range_offset = offset,
			.range_bytes = MIN(PART_BYTES, fan->bytes - offset),
			.data = (uint8_t *)fan->own.data + offset,
			.data_bytes = MIN(PART_BYTES, fan->bytes - offset)};
	}
	ret = client_get_batch(client, &batch, &more);
	free(batch.items);
	fan->stopped = more.stopped;
	return ret && fan->result->error ? fan->result->error : ret;
}

static int end(struct fan *fan, int ret)
{
	fan->result->error = ret;
	fan->result->bytes = fan->result->object_bytes = fan->bytes;
	return ret;
}

/* By multicast alone the bytes may go to a function. */
static bool has_place(const struct neb_fan_out *own, uint64_t bytes)
{
	return bytes <= own->data_bytes ||
	       (own->multicast && own->multicast->only && own->multicast->take);
}

int neb_get_fan_out(
	struct neb_client *client, const struct neb_fan_out *fan_out, struct neb_result *ret_result)
{
	struct neb_result result;
	struct fan fan = {.own = *fan_out, .result = ret_result ? ret_result : &result};
	int ret;

	client_result_init(fan.result, 0, NULL);
	ret = fan.own.bucket && fan.own.key ? neb_fan_out_header(&fan.own, fan.value) : -EINVAL;
	if (!ret)
		ret = neb_head(client, fan.own.bucket, fan.own.key, fan.result);
	if (!ret && !has_place(&fan.own, fan.result->object_bytes))
		ret = -EMSGSIZE;
	if (ret || !fan.result->object_bytes) {
		fan.result->error = ret;
		return ret;
	}
	fan.bytes = fan.result->object_bytes;
	snprintf(fan.if_match, sizeof(fan.if_match), "\"%s\"", fan.result->etag);
	fan.headers[0] = (struct neb_header){NEB_FAN_OUT_HEADER, fan.value};
	fan.headers[1] = (struct neb_header){"If-Match", fan.if_match};
	if (fan.own.multicast) {
		ret = client_cast_get(client, &(struct client_cast){.fan_out = &fan.own,
						      .told = fan.own.multicast,
						      .value = fan.value,
						      .if_match = fan.if_match,
						      .object_bytes = fan.bytes,
						      .result = fan.result});
		if (ret != -EOPNOTSUPP || fan.own.multicast->only)
			return end(&fan, ret);
	}
	/* The first part waits for the group. */
	ret = read_parts(client, &fan, 0, 1,
		(fan.own.wait_ns ? fan.own.wait_ns : WAIT_NS) + client->request_timeout_ns);
	/* It may have been told to end while the part that is there was on its way. */
	if (!ret && fan.bytes > PART_BYTES)
		ret = fan.stopped ? fan.stopped
				  : read_parts(client, &fan, 1, (fan.bytes - 1) / PART_BYTES, 0);
	return end(&fan, ret);
}
