/* client/compat/kvikio.c: libkvikio_cuobj_shim.so: five functions that KvikIO finds by name when
 * KVIKIO_REMOTE_RDMA is on. It sends the S3 requests itself; the process has one minter, which
 * opens when it is first needed. Any thread may call them. */
#include "compat.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

COMPAT_API int kvikio_cuobj_available(void);
COMPAT_API int kvikio_cuobj_register_buffer(void *data, size_t bytes);
COMPAT_API int kvikio_cuobj_deregister_buffer(void *data);
COMPAT_API const char *kvikio_cuobj_get_rdma_token(
	void *data, size_t bytes, size_t offset, int is_put);
COMPAT_API int kvikio_cuobj_put_rdma_token(const char *token);

/* The text of minted tokens: KvikIO has pointers to it. Tokens of one window on one queue pair have
 * the same text, by which KvikIO puts them back: the text stays until the last one is put back. */
struct text {
	struct text *next;
	uint32_t tokens;
	char token[NEB_TOKEN_BYTES];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct neb_minter *minter;
static struct text *texts;

static struct neb_minter *minter_get(void)
{
	struct neb_minter *ours;
	char why[200] = "";

	pthread_mutex_lock(&lock);
	if (!minter && compat_minter_open(NULL, &minter, why, sizeof(why)))
		fprintf(stderr, "nebulaio: no RDMA for KvikIO: %s\n", why);
	ours = minter;
	pthread_mutex_unlock(&lock);
	return ours;
}

int kvikio_cuobj_available(void)
{
	struct neb_minter *ours = minter_get();
	char why[200];

	if (!ours)
		return 0;
	if (neb_minter_available(ours, why, sizeof(why)) == 0)
		return 1;
	fprintf(stderr, "nebulaio: no RDMA for KvikIO: %s\n", why);
	return 0;
}

int kvikio_cuobj_register_buffer(void *data, size_t bytes)
{
	struct neb_minter *ours = minter_get();

	return ours && neb_minter_register(ours, data, bytes) == 0 ? 0 : -1;
}

int kvikio_cuobj_deregister_buffer(void *data)
{
	struct neb_minter *ours = minter_get();

	return ours && neb_minter_unregister(ours, data) == 0 ? 0 : -1;
}

/* The lock is held. */
static struct text **text_at(const char *token)
{
	struct text **at = &texts;

	while (*at && strcmp((*at)->token, token) != 0)
		at = &(*at)->next;
	return at;
}

const char *kvikio_cuobj_get_rdma_token(void *data, size_t bytes, size_t offset, int is_put)
{
	struct neb_minter *ours = minter_get();
	struct text *text = ours ? calloc(1, sizeof(*text)) : NULL, *same;

	if (!text)
		return NULL;
	if (neb_token_mint(ours, is_put ? NEB_PUT_OBJECT : NEB_GET_OBJECT, (char *)data + offset,
		    bytes, text->token)) {
		free(text);
		return NULL;
	}
	pthread_mutex_lock(&lock);
	same = *text_at(text->token);
	if (same) {
		free(text);
		text = same;
	} else {
		text->next = texts;
		texts = text;
	}
	text->tokens++;
	pthread_mutex_unlock(&lock);
	return text->token;
}

/* The text identifies the token. An unknown token, or one that was put already, is no error. */
int kvikio_cuobj_put_rdma_token(const char *token)
{
	struct text **at, *found;
	bool is_last = false;

	if (!token)
		return -1;
	pthread_mutex_lock(&lock);
	at = text_at(token);
	found = *at;
	if (found) {
		neb_token_release(minter, found->token);
		is_last = --found->tokens == 0;
	}
	if (is_last)
		*at = found->next;
	pthread_mutex_unlock(&lock);
	if (is_last)
		free(found);
	return 0;
}
