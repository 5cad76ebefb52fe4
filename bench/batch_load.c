/* bench/batch_load.c: GETs by neb_get_batch, into memory that the device knows. */
#include "bench/batch_load.h"

#include <errno.h>
#include <stdlib.h>

struct bench_batch_load {
	struct bench_client_opts opts;
	bool singles;
	uint8_t *memory;
	char (*keys)[BENCH_KEY_BYTES];
	uint64_t objects[BENCH_BATCH_ITEMS];
	struct neb_batch_item items[BENCH_BATCH_ITEMS];
};

int bench_batch_load_open(
	const struct bench_client_opts *opts, bool singles, struct bench_batch_load **ret_load)
{
	struct bench_batch_load *load = calloc(1, sizeof(*load));
	size_t bytes = BENCH_BATCH_ITEMS * opts->answer_bytes_max;
	void *memory;
	int ret = -ENOMEM;

	if (!load)
		return ret;
	load->opts = *opts;
	load->singles = singles;
	load->keys = calloc(opts->data->count, sizeof(load->keys[0]));
	if (load->keys)
		ret = neb_buffer_alloc(opts->client, bytes, &memory);
	if (ret) {
		bench_batch_load_close(load);
		return ret;
	}
	load->memory = memory;
	memset(memory, 0, bytes); /* so that its pages exist from now on */
	for (uint32_t i = 0; i < opts->data->count; i++)
		bench_data_key(opts->data, i, load->keys[i]);
	*ret_load = load;
	return 0;
}

void bench_batch_load_close(struct bench_batch_load *load)
{
	if (!load)
		return;
	neb_buffer_free(load->opts.client, load->memory);
	free(load->keys);
	free(load);
}

/* The requests of a program without batches. */
static void get_singly(const struct bench_client_opts *opts, struct neb_batch_item *item)
{
	struct neb_result result;

	item->error = neb_get(
		opts->client, opts->bucket, item->key, item->data, item->data_bytes, &result);
	item->status = result.status;
	item->bytes_read = result.bytes;
}

static void landed(struct bench_batch_load *load, uint32_t idx, uint32_t verify_every,
	struct bench_result *result)
{
	const struct bench_client_opts *opts = &load->opts;
	const struct neb_batch_item *item = &load->items[idx];

	result->ops++;
	if (item->error || item->bytes_read != opts->data->bytes) {
		bench_result_error(result, "%s (status %u, %llu bytes)", strerror(-item->error),
			item->status, (unsigned long long)item->bytes_read);
		return;
	}
	result->bytes += item->bytes_read;
	if (!opts->check || !verify_every || result->ops % verify_every)
		return;
	if (opts->check(opts->check_arg, load->objects[idx], item->data, item->bytes_read)) {
		bench_result_error(result, "wrong bytes in the answer");
	} else {
		result->verified_ops++;
		result->verified_bytes += item->bytes_read;
	}
}

uint64_t bench_batch_load_run(struct bench_batch_load *load, const struct bench_run_opts *opts,
	struct bench_result *result)
{
	const struct bench_client_opts *client = &load->opts;
	struct neb_batch batch = {.bucket = client->bucket, .items = load->items};
	uint64_t begin_ns = clock_now_ns(), now_ns = begin_ns, since_ns, turn = opts->turn;
	struct bench_pace pace;

	bench_pace_start(&pace, opts, begin_ns);
	while (!bench_pace_ended(&pace, now_ns)) {
		uint32_t count = 0;

		for (; count < BENCH_BATCH_ITEMS && bench_pace_take(&pace, now_ns, &since_ns);
			count++) {
			load->objects[count] = bench_data_pick(turn++, client->data->count);
			load->items[count] =
				(struct neb_batch_item){.key = load->keys[load->objects[count]],
					.data = load->memory + count * client->answer_bytes_max,
					.data_bytes = client->answer_bytes_max};
		}
		batch.item_count = load->singles ? 0 : count;
		since_ns = clock_now_ns();
		for (uint32_t i = 0; i < count && load->singles; i++)
			get_singly(client, &load->items[i]);
		(void)neb_get_batch(client->client, &batch); /* the items have the errors */
		now_ns = clock_now_ns();
		for (uint32_t i = 0; i < count; i++) {
			hist_add(result->hist, (now_ns - since_ns) / count);
			landed(load, i, opts->verify_every, result);
		}
		now_ns = clock_now_ns();
	}
	result->elapsed_ns += now_ns - begin_ns;
	return turn;
}
