/* client/minter_token.c: memory of a minter's caller, and the tokens of windows of it. The server
 * can access the memory until the key ends, that of the registration or of the single token, or
 * until the queue pair ends. */
#include "minter_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Memory. ---- */

static void memory_free(struct neb_minter *minter, struct minter_memory *memory)
{
	for (uint32_t way = 0; way < MINTER_WAY_COUNT; way++)
		if (memory->mrs[way])
			rp_mr_close(memory->mrs[way]);
	list_remove(&memory->link);
	minter->memory_count--;
	free(memory);
}

/* The registered memory that covers the window; with 0 bytes: the one that begins at data. */
static struct minter_memory *memory_find(
	struct neb_minter *minter, const uint8_t *data, uint64_t bytes)
{
	LIST_FOR_EACH (link, &minter->memories) {
		struct minter_memory *memory = CONTAINER_OF(link, struct minter_memory, link);

		if (memory->once)
			continue;
		if (bytes ? data >= memory->data &&
					(uint64_t)(data - memory->data) < memory->bytes &&
					bytes <= memory->bytes - (uint64_t)(data - memory->data)
			  : data == memory->data)
			return memory;
	}
	return NULL;
}

static struct minter_memory *memory_make(
	struct neb_minter *minter, const void *data, uint64_t bytes, bool once)
{
	struct minter_memory *memory;

	if (minter->memory_count == MINTER_REGISTRATIONS_MAX + MINTER_TOKENS_MAX)
		return NULL;
	memory = calloc(1, sizeof(*memory));
	if (!memory)
		return NULL;
	memory->data = (uint8_t *)(uintptr_t)data;
	memory->bytes = bytes;
	memory->refs = 1;
	memory->once = once;
	list_push_front(&minter->memories, &memory->link);
	minter->memory_count++;
	return memory;
}

static int memory_key(struct neb_minter *minter, struct minter_memory *memory, enum minter_way way,
	uint32_t *ret_rkey)
{
	static const uint32_t ACCESS[MINTER_WAY_COUNT] = {
		[MINTER_WRITE] = RP_ACCESS_LOCAL_WRITE | RP_ACCESS_REMOTE_WRITE,
		[MINTER_READ] = RP_ACCESS_REMOTE_READ,
		[MINTER_EITHER] =
			RP_ACCESS_LOCAL_WRITE | RP_ACCESS_REMOTE_WRITE | RP_ACCESS_REMOTE_READ,
	};
	const struct rp_mr_opts opts = {
		.addr = memory->data, .bytes = memory->bytes, .access = ACCESS[way], .fd = -1};
	int ret = 0;

	if (!memory->mrs[way]) {
		client_gpu_look();
		ret = client_gpu_owns(memory->data)
			      ? client_gpu_register(&minter->domain, memory->data, memory->bytes,
					ACCESS[way], &memory->mrs[way])
			      : rp_mr_open(minter->domain.pd, &opts, &memory->mrs[way]);
	}
	if (ret == 0)
		*ret_rkey = rp_mr_rkey(memory->mrs[way]);
	return ret;
}

static bool is_window(const void *data, size_t bytes)
{
	return data && bytes && bytes <= UINTPTR_MAX - (uintptr_t)data;
}

int neb_minter_register(struct neb_minter *minter, void *data, size_t bytes)
{
	struct minter_memory *memory;
	int ret = 0;

	if (!is_window(data, bytes))
		return -EINVAL;
	pthread_mutex_lock(&minter->lock);
	memory = memory_find(minter, data, 0);
	if (memory && memory->bytes == bytes)
		memory->refs++;
	else if (memory)
		ret = -EEXIST;
	else if (!memory_make(minter, data, bytes, false))
		ret = -ENOSPC;
	pthread_mutex_unlock(&minter->lock);
	return ret;
}

int neb_minter_unregister(struct neb_minter *minter, void *data)
{
	struct minter_memory *memory;

	pthread_mutex_lock(&minter->lock);
	memory = memory_find(minter, data, 0);
	if (memory && --memory->refs == 0)
		memory_free(minter, memory);
	pthread_mutex_unlock(&minter->lock);
	return memory ? 0 : -ENOENT;
}

/* ---- Tokens. ---- */

static struct minter_token *token_find(struct neb_minter *minter, const char *text)
{
	LIST_FOR_EACH (link, &minter->tokens) {
		struct minter_token *token = CONTAINER_OF(link, struct minter_token, link);

		if (strcmp(token->text, text) == 0)
			return token;
	}
	return NULL;
}

static int token_way(enum neb_op op, enum minter_way *ret_way)
{
	switch (op) {
	case NEB_GET_OBJECT:
		*ret_way = MINTER_WRITE;
		return 0;
	case NEB_PUT_OBJECT:
	case NEB_UPLOAD_PART:
		*ret_way = MINTER_READ;
		return 0;
	case NEB_S3:
		*ret_way = MINTER_EITHER;
		return 0;
	default:
		return -EINVAL;
	}
}

static void token_write(struct minter_token *token, const struct minter_qp *mqp, const void *data,
	size_t bytes, uint32_t rkey)
{
	struct token fields;

	client_token_of(&mqp->ours, &fields);
	fields.addr = (uint64_t)(uintptr_t)data;
	fields.bytes = bytes;
	fields.rkey = rkey;
	token_format(&fields, token->text);
}

/* The key of registered memory, or of memory that this registers for the token. */
static int token_key(struct neb_minter *minter, struct minter_token *token, const void *data,
	size_t bytes, enum minter_way way, uint32_t *ret_rkey)
{
	struct minter_memory *memory = memory_find(minter, data, bytes);
	int ret;

	if (!memory)
		memory = token->memory = memory_make(minter, data, bytes, true);
	if (!memory)
		return -ENOSPC;
	ret = memory_key(minter, memory, way, ret_rkey);
	if (ret && token->memory)
		memory_free(minter, token->memory);
	if (ret)
		client_log(minter->control, NEB_LOG_ERROR,
			"%zu bytes cannot be registered for an RDMA token: %s%s", bytes,
			strerror(-ret),
			ret == -ENOMEM ? " (raise the limit of locked memory, ulimit -l)" : "");
	return ret;
}

static int token_mint(struct neb_minter *minter, struct minter_token *token, const void *data,
	size_t bytes, enum minter_way way)
{
	struct minter_qp *mqp;
	uint32_t rkey;
	int ret;

	if (minter->token_count == MINTER_TOKENS_MAX)
		return -ENOSPC;
	ret = minter_qp_take(minter, &mqp);
	if (ret == 0)
		ret = token_key(minter, token, data, bytes, way, &rkey);
	if (ret)
		return ret;
	token_write(token, mqp, data, bytes, rkey);
	token->mqp = mqp;
	token->life = mqp->life;
	mqp->token_count++;
	minter->token_count++;
	list_push_back(&minter->tokens, &token->link);
	return 0;
}

int neb_minter_available(struct neb_minter *minter, char *ret_why, size_t why_bytes)
{
	struct minter_qp *mqp;
	int ret;

	pthread_mutex_lock(&minter->lock);
	ret = minter_qp_take(minter, &mqp);
	if (why_bytes)
		snprintf(ret_why, why_bytes, "%s", ret ? minter->why : "");
	pthread_mutex_unlock(&minter->lock);
	return ret;
}

int neb_token_mint(struct neb_minter *minter, enum neb_op op, const void *data, size_t bytes,
	char ret_token[NEB_TOKEN_BYTES])
{
	struct minter_token *token;
	enum minter_way way;
	int ret = token_way(op, &way);

	if (ret || !is_window(data, bytes))
		return -EINVAL;
	if (bytes > UINT32_MAX)
		return -EMSGSIZE;
	client_gpu_look();
	if (way != MINTER_WRITE && client_gpu_owns(data) && client_gpu_settle(data))
		return -EIO;
	token = calloc(1, sizeof(*token));
	if (!token)
		return -ENOMEM;
	pthread_mutex_lock(&minter->lock);
	ret = token_mint(minter, token, data, bytes, way);
	if (ret == 0)
		memcpy(ret_token, token->text, NEB_TOKEN_BYTES);
	pthread_mutex_unlock(&minter->lock);
	if (ret)
		free(token);
	return ret;
}

static void token_end(struct neb_minter *minter, struct minter_token *token)
{
	list_remove(&token->link);
	minter->token_count--;
	if (token->mqp->life == token->life)
		token->mqp->token_count--;
	if (token->memory)
		memory_free(minter, token->memory);
	free(token);
}

int neb_token_release(struct neb_minter *minter, const char *text)
{
	struct minter_token *token;

	pthread_mutex_lock(&minter->lock);
	token = token_find(minter, text);
	if (token)
		token_end(minter, token);
	pthread_mutex_unlock(&minter->lock);
	return token ? 0 : -ENOENT;
}

int neb_token_failed(struct neb_minter *minter, const char *text)
{
	struct minter_token *token;

	pthread_mutex_lock(&minter->lock);
	token = token_find(minter, text);
	if (token && token->mqp->life == token->life)
		minter_qp_close(minter, token->mqp);
	pthread_mutex_unlock(&minter->lock);
	return token ? 0 : -ENOENT;
}

void minter_memory_close(struct neb_minter *minter)
{
	LIST_FOR_EACH_SAFE (link, &minter->tokens)
		token_end(minter, CONTAINER_OF(link, struct minter_token, link));
	LIST_FOR_EACH_SAFE (link, &minter->memories)
		memory_free(minter, CONTAINER_OF(link, struct minter_memory, link));
}
