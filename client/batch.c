/* client/batch.c: many reads by one call: a window of requests in flight on the client's session,
 * refilled as answers come. The calls end on a list of the batch, so that results of other requests
 * stay where they are. */
#include "call_priv.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define KEEP_ON_NS (50 * NS_PER_MS)

struct client_batch {
	struct neb_client *client;
	const struct neb_batch *asked;
	struct client_batch_more more;
	struct list landed; /* calls that have their result */
	uint64_t until_ns;
	uint64_t next, ended; /* items that were started, and that have their result */
	uint32_t window, flying;
	uint32_t silent; /* items without an answer, since the last answer */
	int stopped;	 /* the error of the items that are not sent any more; 0: all are sent */
	struct neb_result unsent;
};

/* ---- Items. ---- */

static void item_end(
	struct client_batch *run, struct neb_batch_item *item, const struct neb_result *result)
{
	item->error = result->error;
	item->status = result->status;
	item->transport = result->transport;
	item->one_sided = result->one_sided;
	item->bytes_read = result->bytes;
	item->object_bytes = result->object_bytes;
	memcpy(item->etag, result->etag, strlen(result->etag) + 1);
	run->ended++;
	if (run->asked->done && !run->asked->done(run->asked->arg, item, result) && !run->stopped)
		run->stopped = -ECANCELED;
}

static struct neb_request item_request(const struct client_batch *run, struct neb_batch_item *item)
{
	return (struct neb_request){
		.op = NEB_GET_OBJECT,
		.bucket = item->bucket ? item->bucket : run->asked->bucket,
		.key = item->key,
		.version_id = item->version_id,
		.range_offset = item->range_offset,
		.range_bytes = item->range_bytes,
		.headers = run->more.headers,
		.header_count = run->more.header_count,
		.want_headers = run->more.header_count > 0,
		.user_data = item,
	};
}

static void item_unsent(struct client_batch *run, struct neb_batch_item *item, int error)
{
	const struct neb_request request = item_request(run, item);

	client_result_init(&run->unsent, 0, item);
	run->unsent.error = error;
	if (error == -EINVAL)
		client_request_why(&request, run->unsent.message, sizeof(run->unsent.message));
	item_end(run, item, &run->unsent);
}

/* The time that an item's request may take: never longer than the batch. */
static uint64_t item_timeout_ns(const struct client_batch *run, uint64_t now_ns)
{
	uint64_t left_ns = run->until_ns > now_ns ? run->until_ns - now_ns : 1;

	return MIN(left_ns, run->more.request_timeout_ns);
}

static int item_start(struct client_batch *run, struct neb_batch_item *item, uint64_t timeout_ns)
{
	const struct neb_iov into = {.data = item->data, .bytes = item->data_bytes};
	struct neb_request request = item_request(run, item);

	request.into = &into;
	request.into_count = 1;
	request.timeout_ns = timeout_ns;
	return client_submit(run->client, &request, &run->landed);
}

/* ---- The window. ---- */

static void batch_fill(struct client_batch *run)
{
	const struct neb_batch *asked = run->asked;
	uint64_t timeout_ns = 0;

	while (run->next < asked->item_count && (run->stopped || run->flying < run->window)) {
		struct neb_batch_item *item = &asked->items[run->next];
		int ret = run->stopped;

		if (!ret) {
			/* Once for the items of a round: reading the clock for each costs more. */
			if (!timeout_ns)
				timeout_ns = item_timeout_ns(run, clock_now_ns());
			ret = item_start(run, item, timeout_ns);
		}
		/* The calls in flight give their memory back. */
		if (ret == -ENOMEM && run->flying)
			return;
		run->next++;
		if (ret)
			item_unsent(run, item, ret);
		else
			run->flying++;
	}
}

/* When a whole window of items got no answer, one after the other, the server is gone: each of the
 * other items would only add its own timeout. */
static void answer_count(struct client_batch *run, const struct neb_result *result)
{
	if (result->status || !result->error) {
		run->silent = 0;
	} else if (++run->silent >= run->window && !run->stopped) {
		run->stopped = result->error;
	}
}

static void batch_land(struct client_batch *run)
{
	struct list *link;

	while ((link = list_pop(&run->landed)) != NULL) {
		struct client_call *call = CONTAINER_OF(link, struct client_call, link);

		list_init(&call->link);
		run->flying--;
		answer_count(run, &call->result);
		item_end(run, call->result.user_data, &call->result);
		client_call_give(call);
	}
}

/* Checks for everything that ends a batch early. */
static void batch_check(struct client_batch *run)
{
	bool woken = run->client->woken && atomic_exchange(&run->client->woken, false);

	if (run->stopped)
		return;
	if (woken)
		run->stopped = -ECANCELED;
	else if (run->asked->keep_on && !run->asked->keep_on(run->asked->arg))
		run->stopped = -ECANCELED;
	else if (clock_now_ns() >= run->until_ns)
		run->stopped = -ETIMEDOUT;
}

static void batch_run(struct client_batch *run)
{
	uint64_t check_ns = clock_now_ns() + KEEP_ON_NS, now_ns;

	while (run->ended < run->asked->item_count) {
		batch_fill(run);
		if (run->flying)
			client_wait_list(run->client, &run->landed, check_ns);
		batch_land(run);
		now_ns = clock_now_ns();
		if (now_ns < check_ns && !run->client->woken)
			continue;
		batch_check(run);
		check_ns = now_ns + KEEP_ON_NS;
	}
}

int client_get_batch(
	struct neb_client *client, const struct neb_batch *batch, struct client_batch_more *more)
{
	struct client_batch run = {.client = client, .asked = batch};
	uint64_t now_ns = clock_now_ns();

	if ((batch->item_count && !batch->items) || batch->window > NEB_BATCH_WINDOW_MAX)
		return -EINVAL;
	list_init(&run.landed);
	if (more)
		run.more = *more;
	if (!run.more.request_timeout_ns)
		run.more.request_timeout_ns = client->request_timeout_ns;
	run.window = batch->window ? batch->window : client->requests_max;
	run.until_ns = UINT64_MAX;
	if (batch->timeout_ns && batch->timeout_ns < UINT64_MAX - now_ns)
		run.until_ns = now_ns + batch->timeout_ns;
	batch_run(&run);
	if (more)
		more->stopped = run.stopped;
	for (uint64_t i = 0; i < batch->item_count; i++)
		if (batch->items[i].error)
			return batch->items[i].error;
	return 0;
}

int neb_get_batch(struct neb_client *client, const struct neb_batch *batch)
{
	return client_get_batch(client, batch, NULL);
}
