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
	uint64_t timeout_ns; /* of the first part, which waits for the group */
	uint64_t bytes;
	struct neb_result *result; /* the last answer, or the first error */
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

	if (!fan_out->name || !name_good(fan_out->name) || !fan_out->members ||
		fan_out->members > MEMBERS_MAX || wait_ns > WAIT_NS_MAX)
		return -EINVAL;
	snprintf(ret_value, NEB_FAN_OUT_BYTES, "%s; members=%u; wait=%llu; member=%llu",
		fan_out->name, fan_out->members, (unsigned long long)(wait_ns / NS_PER_MS),
		(unsigned long long)fan_out->member);
	return 0;
}

/* A neb_batch_done_fn. */
static bool part_done(void *arg, struct neb_batch_item *item, const struct neb_result *result)
{
	struct fan *fan = (struct fan *)arg;

	(void)item;
	if (!fan->result->error)
		*fan->result = *result;
	return !result->error;
}

static int read_rest(struct neb_client *client, struct fan *fan)
{
	uint8_t *data = (uint8_t *)fan->own.data;
	uint64_t count = (fan->bytes + PART_BYTES - 1) / PART_BYTES - 1;
	struct neb_batch batch = {.bucket = fan->own.bucket,
		.item_count = count,
		.window = WINDOW,
		.done = part_done,
		.arg = fan};
	int ret;

	if (!count)
		return 0;
	batch.items = calloc(count, sizeof(*batch.items));
	if (!batch.items)
		return -ENOMEM;
	for (uint64_t i = 0; i < count; i++) {
		uint64_t offset = (i + 1) * PART_BYTES;

		batch.items[i] = (struct neb_batch_item){.key = fan->own.key,
			.range_offset = offset,
			.range_bytes = MIN(PART_BYTES, fan->bytes - offset),
			.data = data + offset,
			.data_bytes = MIN(PART_BYTES, fan->bytes - offset)};
	}
	ret = client_get_batch(client, &batch, fan->headers, ARRAY_LEN(fan->headers));
	free(batch.items);
	return ret && fan->result->error ? fan->result->error : ret;
}

static int read_first(struct neb_client *client, struct fan *fan)
{
	const struct neb_iov into = {.data = fan->own.data, .bytes = MIN(PART_BYTES, fan->bytes)};
	const struct neb_request request = {.op = NEB_GET_OBJECT,
		.bucket = fan->own.bucket,
		.key = fan->own.key,
		.headers = fan->headers,
		.header_count = ARRAY_LEN(fan->headers),
		.into = &into,
		.into_count = 1,
		.range_bytes = into.bytes,
		.timeout_ns = fan->timeout_ns,
		.want_headers = true};

	return neb_perform(client, &request, fan->result);
}

int neb_get_fan_out(
	struct neb_client *client, const struct neb_fan_out *fan_out, struct neb_result *ret_result)
{
	struct neb_result result;
	struct fan fan = {.own = *fan_out, .result = ret_result ? ret_result : &result};
	int ret;

	client_result_init(fan.result, 0, NULL);
	while (!fan.own.member)
		random_fill(&fan.own.member, sizeof(fan.own.member));
	ret = fan.own.bucket && fan.own.key ? neb_fan_out_header(&fan.own, fan.value) : -EINVAL;
	if (!ret)
		ret = neb_head(client, fan.own.bucket, fan.own.key, fan.result);
	if (!ret && fan.result->object_bytes > fan.own.data_bytes)
		ret = -EMSGSIZE;
	if (ret || !fan.result->object_bytes) {
		fan.result->error = ret;
		return ret;
	}
	fan.bytes = fan.result->object_bytes;
	fan.timeout_ns = (fan.own.wait_ns ? fan.own.wait_ns : WAIT_NS) + client->request_timeout_ns;
	snprintf(fan.if_match, sizeof(fan.if_match), "\"%s\"", fan.result->etag);
	fan.headers[0] = (struct neb_header){NEB_FAN_OUT_HEADER, fan.value};
	fan.headers[1] = (struct neb_header){"If-Match", fan.if_match};
	ret = read_first(client, &fan);
	if (!ret)
		ret = read_rest(client, &fan);
	fan.result->error = ret;
	fan.result->bytes = fan.result->object_bytes = fan.bytes;
	return ret;
}
