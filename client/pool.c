/* client/pool.c: leases clients to threads; each client starts at another endpoint. */
#include "client_priv.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct neb_pool {
	pthread_mutex_t lock;
	pthread_cond_t given;
	struct neb_options options; /* the pool owns its strings */
	uint32_t clients_max, opened;
	_Atomic uint64_t store_id; /* of the endpoints; 0: no endpoint has named it yet */
	uint32_t next_start;	   /* index of the endpoint that the next client tries first */
	uint32_t idle_count;
	struct neb_client *idle[CLIENT_POOL_CLIENTS_MAX]; /* the last one was used most recently */
};

static int text_take(const char **text)
{
	if (*text)
		*text = strdup(*text);
	return *text ? 0 : -ENOMEM;
}

/* Copies the strings; a string that could not be copied is NULL. */
static int options_take(struct neb_pool *pool, const struct neb_options *options)
{
	struct neb_options *ours = &pool->options;
	int ret;

	*ours = *options;
	if (!options->endpoints || !options->access_key || !options->secret_key)
		return -EINVAL;
	ret = text_take(&ours->endpoints);
	ret |= text_take(&ours->access_key);
	ret |= text_take(&ours->secret_key);
	if (options->region)
		ret |= text_take(&ours->region);
	if (options->device_name)
		ret |= text_take(&ours->device_name);
	if (options->session_token)
		ret |= text_take(&ours->session_token);
	ours->token_bucket = NULL; /* of minters only */
	return ret ? -ENOMEM : 0;
}

static void options_free(struct neb_options *ours)
{
	if (ours->secret_key)
		secret_wipe((char *)(uintptr_t)ours->secret_key, strlen(ours->secret_key));
	free((char *)(uintptr_t)ours->endpoints);
	free((char *)(uintptr_t)ours->access_key);
	free((char *)(uintptr_t)ours->secret_key);
	free((char *)(uintptr_t)ours->region);
	free((char *)(uintptr_t)ours->device_name);
	free((char *)(uintptr_t)ours->session_token);
}

int neb_pool_open(
	const struct neb_options *options, uint32_t clients_max, struct neb_pool **ret_pool)
{
	struct neb_pool *pool;
	pthread_condattr_t attr;
	int ret;

	if (!clients_max || clients_max > CLIENT_POOL_CLIENTS_MAX || !options->endpoints ||
		!options->access_key || !options->secret_key)
		return -EINVAL;
	pool = calloc(1, sizeof(*pool));
	if (!pool)
		return -ENOMEM;
	pool->clients_max = clients_max;
	pthread_mutex_init(&pool->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&pool->given, &attr);
	pthread_condattr_destroy(&attr);
	ret = options_take(pool, options);
	if (ret) {
		neb_pool_close(pool);
		return ret;
	}
	*ret_pool = pool;
	return 0;
}

void neb_pool_close(struct neb_pool *pool)
{
	if (!pool)
		return;
	CHECK(pool->idle_count == pool->opened);
	while (pool->idle_count)
		neb_client_close(pool->idle[--pool->idle_count]);
	options_free(&pool->options);
	pthread_cond_destroy(&pool->given);
	pthread_mutex_destroy(&pool->lock);
	free(pool);
}

/* The next endpoint in the text with all its paths; false: there is none. */
static bool endpoint_skip(const char **at)
{
	bool found = false;

	for (;;) {
		const char *word = *at + strspn(*at, ", ");
		size_t len = strcspn(word, ", ");

		if (!len || (found && memmem(word, len, "://", 3)))
			return found;
		found = true;
		*at = word + len;
	}
}

/* Moves the first `start` endpoints to the end. The client itself sorts by scheme, RDMA before
 * HTTP. */
static char *endpoints_from(const char *endpoints, uint32_t start)
{
	size_t len = strlen(endpoints), skip;
	uint32_t count = 0;
	const char *at = endpoints;
	char *text;

	while (endpoint_skip(&at))
		count++;
	text = malloc(2 * len + 2);
	if (!text)
		return NULL;
	at = endpoints;
	for (uint32_t i = 0; count && i < start % count; i++)
		endpoint_skip(&at);
	skip = (size_t)(at - endpoints);
	memcpy(text, at, len - skip);
	text[len - skip] = ',';
	memcpy(text + len - skip + 1, endpoints, skip);
	text[len + 1] = '\0';
	return text;
}

static int client_make(struct neb_pool *pool, uint32_t start, struct neb_client **ret_client)
{
	struct neb_options options = pool->options;
	char *endpoints = endpoints_from(options.endpoints, start);
	int ret;

	if (!endpoints)
		return -ENOMEM;
	options.endpoints = endpoints;
	ret = client_open(&options, &pool->store_id, ret_client);
	free(endpoints);
	return ret;
}

static int given_await(struct neb_pool *pool, const struct timespec *until)
{
	int ret = 0;

	while (!pool->idle_count && pool->opened == pool->clients_max && ret == 0)
		ret = -pthread_cond_timedwait(&pool->given, &pool->lock, until);
	return pool->idle_count || pool->opened < pool->clients_max ? 0 : ret;
}

int neb_pool_lease(struct neb_pool *pool, uint64_t timeout_ns, struct neb_client **ret_client)
{
	uint64_t now_ns = clock_now_ns();
	uint64_t until_ns = now_ns + MIN(timeout_ns, INT64_MAX - now_ns);
	const struct timespec until = {
		.tv_sec = (time_t)(until_ns / NS_PER_S), .tv_nsec = (long)(until_ns % NS_PER_S)};
	uint32_t start;
	int ret;

	pthread_mutex_lock(&pool->lock);
	ret = given_await(pool, &until);
	if (ret || pool->idle_count) {
		if (ret == 0)
			*ret_client = pool->idle[--pool->idle_count];
		pthread_mutex_unlock(&pool->lock);
		return ret;
	}
	pool->opened++;
	start = pool->next_start++;
	pthread_mutex_unlock(&pool->lock);
	ret = client_make(pool, start, ret_client);
	if (ret == 0)
		return 0;
	pthread_mutex_lock(&pool->lock);
	pool->opened--;
	pthread_cond_signal(&pool->given);
	pthread_mutex_unlock(&pool->lock);
	return ret;
}

void neb_pool_give(struct neb_pool *pool, struct neb_client *client)
{
	if (!client)
		return;
	pthread_mutex_lock(&pool->lock);
	CHECK(pool->idle_count < pool->opened);
	pool->idle[pool->idle_count++] = client;
	pthread_cond_signal(&pool->given);
	pthread_mutex_unlock(&pool->lock);
}
