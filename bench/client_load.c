/* bench/client_load.c: requests in flight on one client of libnebulaio. */
#include "bench/client_load.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/plan.h"

#define DEPTH_MAX     256u
#define ANSWER_NS_MAX (30 * NS_PER_S)

_Static_assert(BENCH_QUERY_BYTES >= BENCH_KEY_BYTES, "a name must be a key or a query");

struct slot {
	struct neb_client *client;
	struct neb_iov iov;
	uint64_t since_ns;
	uint64_t object_idx;
};

struct bench_client_load {
	struct bench_client_opts opts;
	uint32_t name_count;
	char (*names)[BENCH_QUERY_BYTES]; /* keys, or queries of a listing */
	uint8_t *pool;			  /* PUT: the contents, in the client's memory */
	struct slot slots[DEPTH_MAX];
	uint32_t idle[DEPTH_MAX];
	uint32_t idle_count;
	struct neb_result results[DEPTH_MAX];
	/* of the run in progress */
	const struct bench_run_opts *run;
	struct bench_result *result;
	uint64_t turn;
};

const char *bench_list_query(
	const struct bench_data *data, uint64_t page, char buf[BENCH_QUERY_BYTES])
{
	char key[BENCH_KEY_BYTES];
	uint64_t before = page * LIMIT_LIST_KEYS_MAX;

	if (before)
		snprintf(buf, BENCH_QUERY_BYTES, "list-type=2&max-keys=%d&prefix=%s&start-after=%s",
			LIMIT_LIST_KEYS_MAX, data->prefix, bench_data_key(data, before - 1, key));
	else
		snprintf(buf, BENCH_QUERY_BYTES, "list-type=2&max-keys=%d&prefix=%s",
			LIMIT_LIST_KEYS_MAX, data->prefix);
	return buf;
}

static int make_names(struct bench_client_load *load)
{
	const struct bench_data *data = load->opts.data;
	bool lists = load->opts.op == NEB_LIST_OBJECTS;

	load->name_count = lists ? MAX(data->count / LIMIT_LIST_KEYS_MAX, 1) : data->count;
	load->names = calloc(load->name_count, sizeof(load->names[0]));
	if (!load->names)
		return -ENOMEM;
	for (uint32_t i = 0; i < load->name_count; i++) {
		if (lists)
			bench_list_query(data, i, load->names[i]);
		else
			bench_data_key(data, i, load->names[i]);
	}
	return 0;
}

static int make_buffers(struct bench_client_load *load)
{
	const struct bench_client_opts *opts = &load->opts;
	size_t pool_bytes = opts->data ? opts->data->bytes + BENCH_CONTENT_SLACK : 0;
	void *data;
	int ret;

	if (opts->op == NEB_PUT_OBJECT || opts->mixed) {
		ret = neb_buffer_alloc(opts->client, pool_bytes, &data);
		if (ret)
			return ret;
		load->pool = data;
		memcpy(load->pool, opts->data->pool, pool_bytes);
	}
	for (uint32_t i = 0; i < opts->depth && opts->answer_bytes_max; i++) {
		ret = neb_buffer_alloc(load->slots[i].client, opts->answer_bytes_max, &data);
		if (ret)
			return ret;
		memset(data, 0, opts->answer_bytes_max); /* so that its pages exist from now on */
		load->slots[i].iov = (struct neb_iov){data, opts->answer_bytes_max};
	}
	return 0;
}

int bench_client_load_open(
	const struct bench_client_opts *opts, struct bench_client_load **ret_load)
{
	struct bench_client_load *load = calloc(1, sizeof(*load));
	int ret;

	CHECK(opts->depth > 0 && opts->depth <= DEPTH_MAX);
	if (!load)
		return -ENOMEM;
	load->opts = *opts;
	load->name_count = 1;
	for (uint32_t i = 0; i < opts->depth; i++)
		load->idle[load->idle_count++] = opts->depth - 1 - i;
	for (uint32_t i = 0; i < opts->depth; i++) {
		uint32_t who = i % (1 + opts->other_count);

		load->slots[i].client = who ? opts->others[who - 1] : opts->client;
	}
	ret = opts->data ? make_names(load) : 0;
	if (!ret)
		ret = make_buffers(load);
	if (ret) {
		bench_client_load_close(load);
		return ret;
	}
	*ret_load = load;
	return 0;
}

void bench_client_load_close(struct bench_client_load *load)
{
	if (!load)
		return;
	for (uint32_t i = 0; i < load->opts.depth && load->opts.answer_bytes_max; i++)
		neb_buffer_free(load->slots[i].client, load->slots[i].iov.data);
	neb_buffer_free(load->opts.client, load->pool);
	free(load->names);
	free(load);
}

/* The group of a turn: the clients are at the same ones. */
static struct neb_header group_header(
	const struct bench_client_load *load, char value[NEB_FAN_OUT_BYTES])
{
	char name[32];
	const struct neb_fan_out fan_out = {.name = name, .members = load->opts.fan_out};
	int ret;

	snprintf(name, sizeof(name), "turn-%llu", (unsigned long long)load->turn);
	ret = neb_fan_out_header(&fan_out, value);
	CHECK(ret == 0);
	return (struct neb_header){NEB_FAN_OUT_HEADER, value};
}

static enum neb_op op_of(const struct bench_client_opts *opts, const struct slot *slot)
{
	if (!opts->mixed)
		return opts->op;
	return bench_mixed_writes(slot->object_idx) ? NEB_PUT_OBJECT : NEB_GET_OBJECT;
}

static void start(struct bench_client_load *load, uint64_t since_ns)
{
	const struct bench_client_opts *opts = &load->opts;
	uint32_t slot_idx = load->idle[--load->idle_count];
	struct slot *slot = &load->slots[slot_idx];
	struct neb_request request = {.op = opts->op, .user_data = slot};
	char value[NEB_FAN_OUT_BYTES];
	struct neb_header header;
	struct neb_iov body;
	uint64_t id;
	int ret;

	if (opts->fan_out) {
		header = group_header(load, value);
		request.headers = &header;
		request.header_count = 1;
	}
	slot->since_ns = since_ns;
	slot->object_idx = bench_data_pick(load->turn++, load->name_count);
	request.op = op_of(opts, slot);
	if (opts->data) {
		request.bucket = opts->bucket;
		if (opts->op == NEB_LIST_OBJECTS)
			request.query = load->names[slot->object_idx];
		else
			request.key = load->names[slot->object_idx];
	}
	if (request.op == NEB_PUT_OBJECT) {
		body = (struct neb_iov){
			load->pool + bench_data_offset(slot->object_idx), opts->data->bytes};
		request.body = &body;
		request.body_count = opts->data->bytes ? 1 : 0;
	} else if (opts->answer_bytes_max) {
		request.into = &slot->iov;
		request.into_count = 1;
	}
	ret = neb_submit(slot->client, &request, &id);
	if (ret) {
		load->result->ops++;
		bench_result_error(load->result, "not submitted: %s", strerror(-ret));
		load->idle[load->idle_count++] = slot_idx;
	}
}

static bool length_is_right(
	const struct bench_client_load *load, enum neb_op op, const struct neb_result *answer)
{
	if (op == NEB_GET_OBJECT)
		return answer->bytes == load->opts.data->bytes;
	if (op == NEB_HEAD_OBJECT)
		return answer->object_bytes == load->opts.data->bytes;
	return true;
}

static void answered(
	struct bench_client_load *load, const struct neb_result *answer, uint64_t now_ns)
{
	const struct bench_client_opts *opts = &load->opts;
	struct slot *slot = answer->user_data;
	struct bench_result *result = load->result;
	uint32_t every = load->run->verify_every;
	enum neb_op op = op_of(opts, slot);

	hist_add(result->hist, now_ns - slot->since_ns);
	result->ops++;
	load->idle[load->idle_count++] = (uint32_t)(slot - load->slots);
	if (answer->error) {
		bench_result_error(result, "%s (status %u %s %s)", strerror(-answer->error),
			answer->status, answer->code, answer->message);
		return;
	}
	if (opts->transport != NEB_AUTO && answer->transport != opts->transport) {
		bench_result_error(result, "by %s: %s", neb_transport_name(answer->transport),
			answer->fallback);
		return;
	}
	if (!length_is_right(load, op, answer)) {
		bench_result_error(result, "wrong length: %llu bytes",
			(unsigned long long)MAX(answer->bytes, answer->object_bytes));
		return;
	}
	result->bytes += op == NEB_PUT_OBJECT ? opts->data->bytes : answer->bytes;
	if (!opts->check || op == NEB_PUT_OBJECT || !every || result->ops % every)
		return;
	if (opts->check(opts->check_arg, slot->object_idx, slot->iov.data, answer->bytes)) {
		bench_result_error(result, "wrong bytes in the answer");
	} else {
		result->verified_ops++;
		result->verified_bytes += answer->bytes;
	}
}

/* Several clients are polled in turn, because a wait for one would delay the others. */
static int answers_take(struct bench_client_load *load)
{
	const struct bench_client_opts *opts = &load->opts;
	int count, more;

	if (!load->run->rate && !opts->other_count)
		return neb_wait(opts->client, load->results, opts->depth, ANSWER_NS_MAX);
	count = neb_poll(opts->client, load->results, opts->depth);
	for (uint32_t i = 0; i < opts->other_count && count >= 0; i++) {
		more = neb_poll(
			opts->others[i], load->results + count, opts->depth - (uint32_t)count);
		count = more < 0 ? more : count + more;
	}
	return count;
}

uint64_t bench_client_load_run(struct bench_client_load *load, const struct bench_run_opts *opts,
	struct bench_result *result)
{
	uint64_t begin_ns = clock_now_ns(), now_ns = begin_ns, since_ns, verified_ops;
	struct bench_pace pace;
	int count;

	load->run = opts;
	load->result = result;
	load->turn = opts->turn;
	bench_pace_start(&pace, opts, begin_ns);
	while (true) {
		while (load->idle_count && bench_pace_take(&pace, now_ns, &since_ns))
			start(load, since_ns);
		count = answers_take(load);
		now_ns = clock_now_ns();
		verified_ops = result->verified_ops;
		for (int i = 0; i < count; i++)
			answered(load, &load->results[i], now_ns);
		if (result->verified_ops != verified_ops)
			now_ns = clock_now_ns(); /* summing belongs to no request's latency */
		if (count < 0) {
			bench_result_error(result, "waiting: %s", strerror(-count));
			break;
		}
		if (load->idle_count == load->opts.depth && bench_pace_ended(&pace, now_ns))
			break;
	}
	result->elapsed_ns += now_ns - begin_ns;
	return load->turn;
}
