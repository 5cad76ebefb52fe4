/* client/compat/s3rdma.c: the client half of libs3rdma.so.0, which MinIO's SDKs link: they pin a
 * buffer, mint a token and send the S3 request themselves. A client is a number that is never used
 * twice: a call with the number of a freed or unknown client is refused. Any thread may call them.
 * A token of theirs does not say which way its bytes go, so its key allows both. */
#include "compat.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

COMPAT_API const char *s3rdma_version(void);
COMPAT_API int s3rdma_check_rdma(char *err_buf, size_t err_buf_len);
COMPAT_API size_t s3rdma_last_error(char *buf, size_t len);
COMPAT_API void *s3rdma_client_init(const char *device, char *err_buf, size_t err_buf_len);
COMPAT_API void s3rdma_client_free(void *handle);
COMPAT_API int s3rdma_client_ready(void *handle);
COMPAT_API int s3rdma_client_nic_count(void *handle);
COMPAT_API int s3rdma_client_healthy_nic_count(void *handle);
COMPAT_API int s3rdma_client_report_token_failure(void *handle, const char *token);
COMPAT_API int s3rdma_client_register(void *handle, void *data, size_t bytes);
COMPAT_API int s3rdma_client_deregister(void *handle, void *data);
COMPAT_API int s3rdma_client_get_token(
	void *handle, void *data, size_t bytes, size_t offset, char **token_out);
COMPAT_API void s3rdma_client_free_token(char *token);
COMPAT_API int s3rdma_client_memory_type(const void *data);

#define WHY_BYTES 200

struct client {
	struct client *next;
	uintptr_t id;
	uint32_t users; /* threads inside, and the list while it is not freed */
	struct neb_minter *minter;
};

/* A minted token: the caller has a pointer to its text, which is first. */
struct token {
	char text[NEB_TOKEN_BYTES];
	uintptr_t id; /* of its client */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct client *clients;
static uintptr_t id_last;
static _Thread_local char last_error[WHY_BYTES];

/* ---- Clients. ---- */

static struct client *client_get(uintptr_t id)
{
	struct client *client;

	pthread_mutex_lock(&lock);
	for (client = clients; client && client->id != id;)
		client = client->next;
	if (client)
		client->users++;
	pthread_mutex_unlock(&lock);
	if (!client)
		snprintf(last_error, sizeof(last_error), "no such client");
	return client;
}

static void client_put(struct client *client)
{
	bool is_last;

	pthread_mutex_lock(&lock);
	is_last = --client->users == 0;
	pthread_mutex_unlock(&lock);
	if (!is_last)
		return;
	neb_minter_close(client->minter);
	free(client);
}

/* 0 or -1, the results of all these functions. */
static int error_say(int ret, const char *what)
{
	if (ret)
		snprintf(last_error, sizeof(last_error), "%s: %s", what, strerror(-ret));
	return ret ? -1 : 0;
}

void *s3rdma_client_init(const char *device, char *err_buf, size_t err_buf_len)
{
	struct client *client = calloc(1, sizeof(*client));
	int ret = -ENOMEM;

	/* The first name of a list of devices. */
	if (!device || !*device)
		device = getenv("S3RDMA_DEVICE");
	if (client) {
		char name[64] = "";

		snprintf(name, sizeof(name), "%.*s", device ? (int)strcspn(device, ",") : 0,
			device ? device : "");
		ret = compat_minter_open(
			*name ? name : NULL, &client->minter, last_error, sizeof(last_error));
	}
	if (ret) {
		free(client);
		if (err_buf && err_buf_len)
			snprintf(err_buf, err_buf_len, "%s", last_error);
		return NULL;
	}
	client->users = 1;
	pthread_mutex_lock(&lock);
	client->id = ++id_last;
	client->next = clients;
	clients = client;
	pthread_mutex_unlock(&lock);
	return (void *)client->id;
}

void s3rdma_client_free(void *handle)
{
	struct client **at, *found;

	pthread_mutex_lock(&lock);
	for (at = &clients; *at && (*at)->id != (uintptr_t)handle;)
		at = &(*at)->next;
	found = *at;
	if (found)
		*at = found->next;
	pthread_mutex_unlock(&lock);
	if (found)
		client_put(found);
}

int s3rdma_client_ready(void *handle)
{
	struct client *client = client_get((uintptr_t)handle);
	bool ready;

	if (!client)
		return 0;
	ready = neb_minter_available(client->minter, last_error, sizeof(last_error)) == 0;
	client_put(client);
	return ready;
}

int s3rdma_client_nic_count(void *handle)
{
	struct client *client = client_get((uintptr_t)handle);

	if (client)
		client_put(client);
	return client != NULL;
}

int s3rdma_client_healthy_nic_count(void *handle)
{
	return s3rdma_client_ready(handle);
}

/* ---- Memory and tokens. ---- */

int s3rdma_client_register(void *handle, void *data, size_t bytes)
{
	struct client *client = client_get((uintptr_t)handle);
	int ret;

	if (!client)
		return -1;
	ret = error_say(neb_minter_register(client->minter, data, bytes), "the memory");
	client_put(client);
	return ret;
}

int s3rdma_client_deregister(void *handle, void *data)
{
	struct client *client = client_get((uintptr_t)handle);
	int ret;

	if (!client)
		return -1;
	ret = error_say(neb_minter_unregister(client->minter, data), "the memory");
	client_put(client);
	return ret;
}

int s3rdma_client_get_token(void *handle, void *data, size_t bytes, size_t offset, char **token_out)
{
	struct client *client = client_get((uintptr_t)handle);
	struct token *token = client ? calloc(1, sizeof(*token)) : NULL;
	int ret = -1;

	*token_out = NULL;
	if (token) {
		token->id = client->id;
		ret = error_say(neb_token_mint(client->minter, NEB_S3, (char *)data + offset, bytes,
					token->text),
			"no token");
	}
	if (ret)
		free(token);
	else
		*token_out = token->text;
	if (client)
		client_put(client);
	return ret;
}

void s3rdma_client_free_token(char *text)
{
	struct token *token = (struct token *)(void *)text;
	struct client *client = token ? client_get(token->id) : NULL;

	if (client) {
		neb_token_release(client->minter, token->text);
		client_put(client);
	}
	free(token);
}

/* Closes the token's queue pair: the server can no longer access the memory, and the next token
 * uses another queue pair. */
int s3rdma_client_report_token_failure(void *handle, const char *token)
{
	struct client *client = client_get((uintptr_t)handle);
	int ret;

	if (!client)
		return -1;
	ret = error_say(neb_token_failed(client->minter, token), "the token");
	client_put(client);
	return ret;
}

/* ---- The rest. ---- */

const char *s3rdma_version(void)
{
	return "0.1.0-nebulaio";
}

int s3rdma_check_rdma(char *err_buf, size_t err_buf_len)
{
	void *handle = s3rdma_client_init(NULL, err_buf, err_buf_len);

	s3rdma_client_free(handle);
	return handle != NULL;
}

size_t s3rdma_last_error(char *buf, size_t len)
{
	if (!buf || !len)
		return 0;
	snprintf(buf, len, "%s", last_error);
	return strlen(buf);
}

int s3rdma_client_memory_type(const void *data)
{
	return compat_memory_type(data);
}
