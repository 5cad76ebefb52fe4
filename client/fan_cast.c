/* client/fan_cast.c: an object by multicast, as one member of a group. It enters the group and gets
 * the address and the key, joins, and asks for part after part, a few at a time, each with receives
 * posted for it. A datagram is decrypted from its receive to its place. When the server has sent a
 * part, its answer comes over the session; what is missing then is read from there. */
#include "call_priv.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/cast.h"
#include "rdma/datagram.h"

#define PARTS	      4u
#define READS_MAX     4u /* of a part, at a time */
#define GAP_MAX	      8u /* so many datagrams between two missing ones are read again */
#define BAD_PARTS_MAX 8u /* in a row, more than half lost: the network does not bring them */
#define JOIN_NS	      (10 * NS_PER_S)
#define PATIENCE_NS   (60 * NS_PER_S) /* the longest that a server waits for a slow member */
#define CHECK_NS      (50 * NS_PER_MS)
#define WCS	      32

enum part_phase { PART_IDLE, PART_ASKED, PART_READING, PART_DONE };

struct part {
	enum part_phase phase;
	uint64_t offset, bytes;
	uint8_t *data;
	uint32_t count; /* of datagrams */
	uint32_t next;	/* all before it are there, or are being read */
	uint32_t reads; /* in flight */
	bool in_step;	/* reads go by the group's pace */
	uint64_t here[CAST_PART_DATAGRAMS_MAX / 64];
};

struct cast {
	const struct client_cast *own;
	struct neb_client *client;
	struct neb_multicast *told;
	struct cast_grant grant;
	struct aead *aead;
	struct rp_member member;
	bool joined;
	bool deaf;     /* the member's descriptor reports an error */
	uint64_t full; /* bytes of a part, but the last */
	struct part parts[PARTS];
	uint8_t *ring;	      /* the parts' memory, when the bytes go to a function */
	uint64_t next, taken; /* begin with that offset; have all before it */
	uint64_t crc, crc_wanted;
	bool has_crc;
	struct list ended;
	uint32_t flying;
	uint64_t lost; /* since the last question */
	uint32_t bad_parts;
	bool off;
	int error;
};

static void off(struct cast *cast, const char *why)
{
	if (cast->off)
		return;
	cast->off = true;
	snprintf(cast->told->why, sizeof(cast->told->why), "%s", why);
}

/* ---- Datagrams. ---- */

static bool is_here(const struct part *part, uint32_t number)
{
	return part->here[number / 64] >> (number % 64) & 1;
}

static void mark(struct part *part, uint32_t number)
{
	part->here[number / 64] |= 1ull << (number % 64);
}

/* Of the part's datagram with that number. */
static uint32_t payload_of(const struct cast *cast, const struct part *part, uint32_t number)
{
	uint64_t before = (uint64_t)number * cast->grant.payload_bytes;

	return (uint32_t)MIN(part->bytes - before, cast->grant.payload_bytes);
}

/* The part that waits for the datagram; NULL: none. */
static struct part *part_of(struct cast *cast, const struct cast_head *head, uint32_t *ret_number)
{
	struct part *part = &cast->parts[head->offset / cast->full % PARTS];
	uint64_t within = head->offset % cast->full;

	*ret_number = (uint32_t)(within / cast->grant.payload_bytes);
	if (part->phase != PART_ASKED || part->offset != head->offset - within ||
		within % cast->grant.payload_bytes || *ret_number >= part->count)
		return NULL;
	return part;
}

/* A datagram that is there already is not looked at: one that is forged cannot spoil it. */
static void datagram_take(struct cast *cast, const uint8_t *datagram, size_t len)
{
	struct neb_multicast *told = cast->told;
	struct cast_head head;
	struct part *part;
	uint32_t number;

	if (!cast_look(datagram, len, cast->grant.stream, &head)) {
		told->strange++;
		return;
	}
	part = part_of(cast, &head, &number);
	if (!part || is_here(part, number)) {
		told->repeated++;
		return;
	}
	if (head.bytes != payload_of(cast, part, number) ||
		cast_unseal(cast->aead, datagram, &head,
			part->data + (uint64_t)number * cast->grant.payload_bytes)) {
		told->strange++;
		return;
	}
	mark(part, number);
	told->used = true;
	told->datagrams++;
	told->bytes += head.bytes;
}

static uint32_t datagrams_take(struct cast *cast)
{
	struct rp_wc wcs[WCS];
	uint32_t all = 0;
	int count;

	if (!cast->joined)
		return 0;
	while ((count = rp_cq_poll(cast->member.cq, wcs, WCS)) > 0) {
		for (int i = 0; i < count; i++) {
			if (wcs[i].status == RP_WC_SUCCESS && wcs[i].byte_len > RP_GRH_BYTES)
				datagram_take(cast,
					rp_member_in(&cast->member, wcs[i].wr_id) + RP_GRH_BYTES,
					wcs[i].byte_len - RP_GRH_BYTES);
			if (wcs[i].status != RP_WC_SUCCESS ||
				rp_member_post(&cast->member, wcs[i].wr_id))
				off(cast, "the device failed");
		}
		all += (uint32_t)count;
	}
	if (count < 0)
		off(cast, "the device failed");
	return all;
}

/* ---- Requests. ---- */

/* The part's own request, of these bytes of it. */
static void request_send(struct cast *cast, struct part *part, const char *value, uint64_t at,
	uint64_t bytes, bool ask)
{
	const struct neb_header headers[] = {
		{"If-Match", cast->own->if_match}, {NEB_FAN_OUT_HEADER, value}};
	const struct neb_iov into = {.data = part->data + at, .bytes = bytes};
	const struct neb_request request = {.op = ask ? NEB_HEAD_OBJECT : NEB_GET_OBJECT,
		.bucket = cast->own->fan_out->bucket,
		.key = cast->own->fan_out->key,
		.into = &into,
		.into_count = ask ? 0 : 1,
		.range_offset = part->offset + at,
		.range_bytes = bytes,
		.headers = headers,
		.header_count = value ? 2 : 1,
		.want_headers = true,
		.timeout_ns = cast->client->request_timeout_ns + PATIENCE_NS +
			      cast->own->fan_out->wait_ns,
		.user_data = part};
	int ret = client_submit(cast->client, &request, &cast->ended);

	if (ret && !cast->error)
		cast->error = ret;
	if (!ret)
		cast->flying++;
	if (!ret && !ask)
		part->reads++;
}

static void part_ask(struct cast *cast, struct part *part)
{
	char value[NEB_FAN_OUT_BYTES + 64];

	snprintf(value, sizeof(value), "%s; multicast=part; lost=%llu", cast->own->value,
		(unsigned long long)cast->lost);
	cast->lost = 0;
	part->phase = PART_ASKED;
	request_send(cast, part, value, 0, part->bytes, true);
}

/* Reads the next missing datagrams, and those between them. */
static bool part_read_next(struct cast *cast, struct part *part)
{
	const uint64_t payload = cast->grant.payload_bytes;
	uint32_t first = part->next, end, i;

	while (first < part->count && is_here(part, first))
		first++;
	for (end = i = first; i < part->count && i <= end + GAP_MAX; i++)
		if (!is_here(part, i))
			end = i + 1;
	part->next = end;
	if (first == part->count)
		return false;
	request_send(cast, part, part->in_step ? cast->own->value : NULL, first * payload,
		MIN(end * payload, part->bytes) - first * payload, false);
	return true;
}

static void part_read(struct cast *cast, struct part *part)
{
	part->phase = PART_READING;
	while (!cast->error && part->reads < READS_MAX && part_read_next(cast, part))
		;
	if (!part->reads && part->next == part->count)
		part->phase = PART_DONE;
}

static void parts_begin(struct cast *cast)
{
	while (!cast->error && cast->next < cast->own->object_bytes &&
		cast->next - cast->taken < PARTS * cast->full) {
		uint32_t idx = (uint32_t)(cast->next / cast->full % PARTS);
		struct part *part = &cast->parts[idx];
		const struct neb_fan_out *fan_out = cast->own->fan_out;

		*part = (struct part){.offset = cast->next,
			.bytes = cast_part_bytes(
				cast->own->object_bytes, cast->next, cast->grant.payload_bytes),
			.data = cast->ring ? cast->ring + idx * cast->full
					   : (uint8_t *)fan_out->data + cast->next,
			.in_step = cast->off};
		part->count = cast_part_datagrams(part->bytes, cast->grant.payload_bytes);
		cast->next += part->bytes;
		if (cast->off)
			part_read(cast, part);
		else
			part_ask(cast, part);
	}
}

/* Takes all parts that are next and have all their bytes. */
static void parts_take(struct cast *cast)
{
	const struct neb_fan_out *fan_out = cast->own->fan_out;
	struct part *part = &cast->parts[cast->taken / cast->full % PARTS];

	while (!cast->error && cast->taken < cast->next && part->phase == PART_DONE) {
		cast->crc = crc64nvme_update(cast->crc, part->data, part->bytes);
		if (cast->told->take)
			cast->error = cast->told->take(
				fan_out->arg, part->offset, part->data, part->bytes);
		cast->taken += part->bytes;
		part->phase = PART_IDLE;
		part = &cast->parts[cast->taken / cast->full % PARTS];
	}
}

/* ---- Answers. ---- */

static bool header_has(const struct neb_result *result, const char *word)
{
	const char *value;
	int len = neb_result_header(result, NEB_FAN_OUT_HEADER, &value);

	return len > 0 && memmem(value, (size_t)len, word, strlen(word));
}

static void loss_count(struct cast *cast, const struct part *part)
{
	uint32_t lost = part->count;

	for (uint32_t i = 0; i < ARRAY_LEN(part->here); i++)
		lost -= (uint32_t)__builtin_popcountll(part->here[i]);
	cast->lost += lost;
	cast->bad_parts = 2 * lost > part->count ? cast->bad_parts + 1 : 0;
	if (cast->bad_parts == BAD_PARTS_MAX)
		off(cast, "the network loses more than half of the datagrams");
}

/* The part went out, or will not. */
static void asked_end(struct cast *cast, struct part *part, const struct neb_result *result)
{
	/* The datagrams that the network brought before the answer. */
	datagrams_take(cast);
	if (header_has(result, "part=sent"))
		loss_count(cast, part);
	else if (!header_has(result, "part=past"))
		off(cast, result->error ? "the server did not answer in time"
					: "the server ended it");
	part_read(cast, part);
}

static bool is_fatal(const struct part *part, int error)
{
	return error && (part->phase != PART_ASKED || error != -ETIMEDOUT);
}

static void call_ended(struct cast *cast, const struct neb_result *result)
{
	struct part *part = (struct part *)result->user_data;

	cast->flying--;
	/* Reads for what was lost say nothing about the group. */
	if (!cast->error && (part->phase == PART_ASKED || part->in_step || result->error))
		*cast->own->result = *result;
	if (is_fatal(part, result->error) && !cast->error)
		cast->error = result->error;
	if (part->phase != PART_ASKED) {
		part->reads--;
		cast->told->bytes_read += result->bytes;
	}
	if (cast->error)
		return;
	if (part->phase == PART_ASKED)
		asked_end(cast, part, result);
	else
		part_read(cast, part);
}

static uint32_t calls_take(struct cast *cast)
{
	struct list *link;
	uint32_t count = 0;

	while ((link = list_pop(&cast->ended)) != NULL) {
		struct client_call *call = CONTAINER_OF(link, struct client_call, link);

		list_init(&call->link);
		call_ended(cast, &call->result);
		client_call_give(call);
		count++;
	}
	return count;
}

/* ---- The run. ---- */

/* Sleeps until datagrams or answers may have come. */
static void sleep_short(struct cast *cast)
{
	struct neb_client *client = cast->client;
	int watch_fd = client->watch_fd;

	if (cast->joined && !rp_cq_arm(cast->member.cq))
		return;
	if (cast->joined && watch_fd < 0 && !cast->deaf) {
		client->watch_fd = rp_cq_fd(cast->member.cq);
		client->watch_quiet = true;
	}
	client_sleep(client, clock_now_ns() + CHECK_NS);
	cast->deaf |= client->watch_lost && client->watch_quiet;
	client->watch_fd = watch_fd;
	client->watch_quiet = false;
	if (cast->joined)
		rp_cq_disarm(cast->member.cq);
}

static void check(struct cast *cast)
{
	const struct neb_fan_out *fan_out = cast->own->fan_out;
	bool woken = cast->client->woken && atomic_exchange(&cast->client->woken, false);

	if (!cast->error && (woken || (fan_out->keep_on && !fan_out->keep_on(fan_out->arg))))
		cast->error = -ECANCELED;
}

static void run(struct cast *cast)
{
	uint64_t check_ns = 0, spin_ns = 0, now_ns;

	while (cast->flying || (!cast->error && cast->taken < cast->own->object_bytes)) {
		uint32_t done;

		parts_begin(cast);
		done = datagrams_take(cast);
		client_progress(cast->client);
		done += calls_take(cast);
		parts_take(cast);
		now_ns = clock_now_ns();
		if (now_ns >= check_ns || cast->client->woken) {
			check(cast);
			check_ns = now_ns + CHECK_NS;
		}
		if (done || !spin_ns)
			spin_ns = now_ns + cast->client->spin_ns;
		else if (now_ns >= spin_ns)
			sleep_short(cast);
	}
	if (!cast->error && cast->has_crc && cast->crc != cast->crc_wanted) {
		cast->error = -EBADMSG;
		snprintf(cast->own->result->message, sizeof(cast->own->result->message),
			"the bytes do not match the object's CRC-64/NVME");
	}
	cast->told->verified = !cast->error && cast->has_crc;
}

/* ---- Entering. ---- */

/* A checksum of parts' checksums is none of the bytes. */
static void crc_take(struct cast *cast, const struct neb_result *result)
{
	const char *type, *value;
	int type_len = neb_result_header(result, "x-amz-checksum-type", &type);
	int len = neb_result_header(result, "x-amz-checksum-crc64nvme", &value);
	uint8_t bytes[sizeof(uint64_t)];
	size_t got = 0;

	if (len <= 0 || type_len != 11 || memcmp(type, "FULL_OBJECT", 11) ||
		base64_decode(slice_of(value, (size_t)len), bytes, sizeof(bytes), &got) ||
		got != sizeof(bytes))
		return;
	for (size_t i = 0; i < sizeof(bytes); i++)
		cast->crc_wanted = cast->crc_wanted << 8 | bytes[i];
	cast->has_crc = true;
}

static int enter(struct cast *cast)
{
	char value[NEB_FAN_OUT_BYTES + 32];
	const struct neb_header headers[] = {{"If-Match", cast->own->if_match},
		{NEB_FAN_OUT_HEADER, value}, {"x-amz-checksum-mode", "ENABLED"}};
	const struct neb_request request = {.op = NEB_HEAD_OBJECT,
		.bucket = cast->own->fan_out->bucket,
		.key = cast->own->fan_out->key,
		.headers = headers,
		.header_count = ARRAY_LEN(headers),
		.want_headers = true};
	struct neb_result *result = cast->own->result;
	const char *grant, *role;
	int len, ret;

	snprintf(value, sizeof(value), "%s; multicast=enter", cast->own->value);
	ret = neb_perform(cast->client, &request, result);
	if (ret)
		return ret;
	crc_take(cast, result);
	len = neb_result_header(result, CAST_HEADER, &grant);
	if (len > 0 && !cast_grant_read(slice_of(grant, (size_t)len), &cast->grant))
		return 0;
	if (len > 4 && !memcmp(grant, "no; ", 4)) {
		snprintf(cast->told->why, sizeof(cast->told->why), "%.*s", len - 4, grant + 4);
		return -EOPNOTSUPP;
	}
	len = neb_result_header(result, NEB_FAN_OUT_HEADER, &role);
	if (len > 0)
		snprintf(cast->told->why, sizeof(cast->told->why), "%.*s", len, role);
	else
		off(cast, "the server does not know it");
	return -EOPNOTSUPP;
}

static const char *join_wait(struct cast *cast)
{
	uint64_t deadline_ns = clock_now_ns() + JOIN_NS;
	struct pollfd wait = {rp_cm_fd(cast->member.device), POLLIN, 0};

	while (clock_now_ns() < deadline_ns) {
		int joined = rp_member_joined(&cast->member);

		if (joined == 1)
			return NULL;
		if (joined == -ENETUNREACH)
			return "the network refuses the group";
		poll(&wait, 1, 10);
		if (client_fd_lost(&wait))
			return "the device is gone";
	}
	return "the network does not answer";
}

/* Of packets to the server by the client's first device: its GID is that of the sessions. */
static void source_of(const struct neb_client *client, char ret_source[RP_ADDRESS_TEXT_BYTES])
{
	ret_source[0] = '\0';
	for (uint32_t i = 0; i < client->endpoint_count && !*ret_source; i++)
		if (client->endpoints[i].scheme == CLIENT_RDMA && !client->endpoints[i].device_idx)
			client_source(&client->endpoints[i], ret_source);
}

static int join(struct cast *cast)
{
	char source[RP_ADDRESS_TEXT_BYTES];
	const struct rp_member_opts opts = {.device = {.device_name = cast->client->devices[0].name,
						    .gid_index = -1,
						    .address = source},
		.group = cast->grant.group,
		.slot_count = PARTS * cast_part_datagrams(cast->full, cast->grant.payload_bytes),
		.bytes = cast->grant.payload_bytes + CAST_OVERHEAD};
	struct rp_device_attr attr;
	const char *why = NULL;

	source_of(cast->client, source);
	if (!cast->client->device_count || rp_member_open(&opts, &cast->member)) {
		off(cast, "the device cannot join the group");
		return -EOPNOTSUPP;
	}
	cast->joined = true;
	rp_device_attr(cast->member.device, &attr);
	if (attr.active_mtu < opts.bytes)
		why = "the port's MTU is smaller than the server's";
	else
		why = join_wait(cast);
	if (why)
		off(cast, why);
	return why ? -EOPNOTSUPP : 0;
}

static int begin(struct cast *cast)
{
	int ret;

	/* The processor decrypts to the place. */
	client_gpu_look();
	if (!cast->told->take && client_gpu_owns(cast->own->fan_out->data)) {
		off(cast, "the memory is a GPU's");
		return -EOPNOTSUPP;
	}
	ret = enter(cast);
	if (ret)
		return ret;
	cast->full = cast_part_full(cast->grant.payload_bytes);
	ret = aead_open(cast->grant.key, &cast->aead);
	if (!ret && cast->told->take) {
		cast->ring = (uint8_t *)malloc(PARTS * cast->full);
		ret = cast->ring ? 0 : -ENOMEM;
	}
	return ret ? ret : join(cast);
}

int client_cast_get(struct neb_client *client, const struct client_cast *own)
{
	struct cast *cast = (struct cast *)calloc(1, sizeof(*cast));
	int ret;

	if (!cast)
		return -ENOMEM;
	cast->own = own;
	cast->client = client;
	cast->told = own->told;
	list_init(&cast->ended);
	ret = begin(cast);
	if (!ret) {
		run(cast);
		ret = cast->error == -EOPNOTSUPP ? -EIO : cast->error;
	}
	rp_member_close(&cast->member);
	aead_close(cast->aead);
	secret_wipe(&cast->grant, sizeof(cast->grant));
	free(cast->ring);
	free(cast);
	return ret;
}
