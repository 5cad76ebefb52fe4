/* client/compat/cuobj.c: libcuobjclient.so.1: the class cuObjClient of NVIDIA's cuObject, for
 * programs that were linked with it, or find its functions by name. Its binary interface is that
 * of functions whose first argument is the object (Itanium C++ ABI: no virtual functions, and
 * static ones without an object), so that they are written in C under the names of C++. The object
 * is the caller's memory: only its first pointer is used. include/nebulaio/compat/cuobjclient.h
 * has the class as C++ sees it. Any thread may call a client.
 *
 * A token stays valid after it was put back, until its buffer is deregistered: NIXL puts it back,
 * or returns from the callback, before it sends the request. */
#include "compat.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#define REGISTER_BYTES_MAX ((4ull << 30) - (64ull << 10))

enum { CU_OBJ_SUCCESS, CU_OBJ_FAIL };
enum { CUOBJ_GET, CUOBJ_PUT };
enum { CUOBJ_MEMORY_MANAGED = 1, CUOBJ_MEMORY_INVALID = 4 };

/* The argument of a callback: the token, and its length with the NUL. */
struct rdma_info {
	int version;
	int desc_len;
	const char *desc_str;
};

typedef ssize_t io_fn(
	const void *handle, void *data, size_t bytes, loff_t offset, const struct rdma_info *info);

struct ops {
	io_fn *get;
	io_fn *put;
};

/* Memory that is registered. */
struct memory {
	struct memory *next;
	uint8_t *data;
	size_t bytes;
	uint32_t refs;
};

/* A minted token: the caller has a pointer to its text. */
struct token {
	struct token *next;
	char text[NEB_TOKEN_BYTES];
};

struct client {
	struct ops ops;
	struct neb_minter *minter; /* NULL: there is none */
	pthread_mutex_t lock;	   /* guards the lists */
	struct memory *memories;
	struct token *tokens;
	bool told; /* the log has said why it is not connected */
};

struct object {
	struct client *client; /* NULL: no memory */
};

/* The argument of getCtx. */
struct handle {
	void *ctx;
};

#define METHOD(name) __asm__("_ZN11cuObjClient" name)

COMPAT_API void cuobj_open(struct object *object, const struct ops *ops, int proto)
	METHOD("C1ER10CUObjIOOps15cuObjProto_enum");
COMPAT_API void cuobj_open_base(struct object *object, const struct ops *ops, int proto)
	METHOD("C2ER10CUObjIOOps15cuObjProto_enum");
COMPAT_API void cuobj_close(struct object *object) METHOD("D1Ev");
COMPAT_API void cuobj_close_base(struct object *object) METHOD("D2Ev");
COMPAT_API bool cuobj_connected(struct object *object) METHOD("11isConnectedEv");
COMPAT_API int cuobj_register(struct object *object, void *data, size_t bytes)
	METHOD("21cuMemObjGetDescriptorEPvm");
COMPAT_API int cuobj_deregister(struct object *object, void *data)
	METHOD("21cuMemObjPutDescriptorEPv");
COMPAT_API ssize_t cuobj_bytes_max(struct object *object, void *data)
	METHOD("33cuMemObjGetMaxRequestCallbackSizeEPv");
COMPAT_API int cuobj_token(struct object *object, void *data, size_t bytes, size_t offset, int op,
	char **token_out) METHOD("20cuMemObjGetRDMATokenEPvmm16cuObjOpType_enumPPc");
COMPAT_API int cuobj_token_put(struct object *object, char *text)
	METHOD("20cuMemObjPutRDMATokenEPc");
COMPAT_API int cuobj_token_put_error(struct object *object, char *text, int error)
	METHOD("20cuMemObjPutRDMATokenEPci");
COMPAT_API ssize_t cuobj_get(struct object *object, void *ctx, void *data, size_t bytes,
	loff_t offset, loff_t data_offset) METHOD("8cuObjGetEPvS0_mll");
COMPAT_API ssize_t cuobj_put(struct object *object, void *ctx, void *data, size_t bytes,
	loff_t offset, loff_t data_offset) METHOD("8cuObjPutEPvS0_mll");
COMPAT_API void *cuobj_ctx(const struct handle *handle) METHOD("6getCtxEPKv");
COMPAT_API int cuobj_memory_type(const void *data) METHOD("13getMemoryTypeEPKv");
COMPAT_API void cuobj_telemetry(bool otel, void *stream) METHOD("14setupTelemetryEbPSo");
COMPAT_API void cuobj_telemetry_end(void) METHOD("17shutdownTelemetryEv");
COMPAT_API void cuobj_telemetry_flags(unsigned flags) METHOD("13setTelemFlagsEj");
COMPAT_API void cuobj_telemetry_flags_op(unsigned flags, unsigned op_flags)
	METHOD("13setTelemFlagsEjj");
COMPAT_API void cuobj_telemetry_rate(unsigned get, unsigned put) METHOD("9setOpFreqEjj");

/* ---- Clients. ---- */

void cuobj_open(struct object *object, const struct ops *ops, int proto)
{
	struct client *client = calloc(1, sizeof(*client));
	char why[200];

	(void)proto; /* NVIDIA's asks for DC; ours uses the transports that the device has */
	object->client = client;
	if (!client)
		return;
	client->ops = *ops;
	pthread_mutex_init(&client->lock, NULL);
	if (compat_minter_open(NULL, &client->minter, why, sizeof(why))) {
		fprintf(stderr, "nebulaio: no RDMA for cuObject: %s\n", why);
		client->told = true;
	}
}

void cuobj_open_base(struct object *object, const struct ops *ops, int proto)
{
	cuobj_open(object, ops, proto);
}

void cuobj_close(struct object *object)
{
	struct client *client = object->client;

	if (!client)
		return;
	neb_minter_close(client->minter);
	while (client->memories) {
		struct memory *memory = client->memories;

		client->memories = memory->next;
		free(memory);
	}
	while (client->tokens) {
		struct token *token = client->tokens;

		client->tokens = token->next;
		free(token);
	}
	pthread_mutex_destroy(&client->lock);
	free(client);
	object->client = NULL;
}

void cuobj_close_base(struct object *object)
{
	cuobj_close(object);
}

bool cuobj_connected(struct object *object)
{
	struct client *client = object->client;
	char why[200];
	bool tell;

	if (!client || !client->minter)
		return false;
	if (neb_minter_available(client->minter, why, sizeof(why)) == 0)
		return true;
	pthread_mutex_lock(&client->lock);
	tell = !client->told;
	client->told = true;
	pthread_mutex_unlock(&client->lock);
	if (tell)
		fprintf(stderr, "nebulaio: no RDMA for cuObject: %s\n", why);
	return false;
}

/* ---- Memory, with the lock held. ---- */

/* The registered memory that contains the byte; *ret_left: its bytes from there on. */
static struct memory *memory_find(struct client *client, const uint8_t *data, size_t *ret_left)
{
	struct memory *memory = client->memories;

	while (memory && (data < memory->data || (size_t)(data - memory->data) >= memory->bytes))
		memory = memory->next;
	if (memory)
		*ret_left = memory->bytes - (size_t)(data - memory->data);
	return memory;
}

static struct memory **memory_at(struct client *client, const uint8_t *data)
{
	struct memory **at = &client->memories;

	while (*at && (*at)->data != data)
		at = &(*at)->next;
	return at;
}

static int memory_add(struct client *client, uint8_t *data, size_t bytes)
{
	struct memory *memory = *memory_at(client, data);
	struct memory *fresh = memory ? NULL : calloc(1, sizeof(*fresh));
	int ret = memory || fresh ? neb_minter_register(client->minter, data, bytes) : -ENOMEM;

	if (ret) {
		free(fresh);
		return ret;
	}
	if (fresh) {
		*fresh = (struct memory){.next = client->memories, .data = data, .bytes = bytes};
		client->memories = memory = fresh;
	}
	memory->refs++;
	return 0;
}

static void memory_remove(struct client *client, uint8_t *data)
{
	struct memory **at = memory_at(client, data), *memory = *at;

	if (!memory)
		return;
	neb_minter_unregister(client->minter, data);
	if (--memory->refs)
		return;
	*at = memory->next;
	free(memory);
}

int cuobj_register(struct object *object, void *data, size_t bytes)
{
	struct client *client = object->client;
	int ret;

	if (!client || !client->minter || !data || !bytes || bytes > REGISTER_BYTES_MAX ||
		cuobj_memory_type(data) == CUOBJ_MEMORY_MANAGED)
		return CU_OBJ_FAIL;
	pthread_mutex_lock(&client->lock);
	ret = memory_add(client, data, bytes);
	pthread_mutex_unlock(&client->lock);
	return ret ? CU_OBJ_FAIL : CU_OBJ_SUCCESS;
}

int cuobj_deregister(struct object *object, void *data)
{
	struct client *client = object->client;

	if (!client || !client->minter || !data)
		return CU_OBJ_SUCCESS;
	pthread_mutex_lock(&client->lock);
	memory_remove(client, data);
	pthread_mutex_unlock(&client->lock);
	return CU_OBJ_SUCCESS;
}

ssize_t cuobj_bytes_max(struct object *object, void *data)
{
	struct client *client = object->client;
	bool found;
	size_t left;

	if (!client || !data)
		return -1;
	pthread_mutex_lock(&client->lock);
	found = memory_find(client, data, &left) != NULL;
	pthread_mutex_unlock(&client->lock);
	return found ? (ssize_t)left : -1;
}

/* ---- Tokens. ---- */

/* Mints a token of registered memory. */
static int mint(
	struct client *client, uint8_t *data, size_t bytes, int op, char text[NEB_TOKEN_BYTES])
{
	bool fits;
	size_t left;

	if (!client || !client->minter)
		return -ENETDOWN;
	pthread_mutex_lock(&client->lock);
	fits = memory_find(client, data, &left) && bytes <= left;
	pthread_mutex_unlock(&client->lock);
	if (!bytes || !fits)
		return -EINVAL;
	return neb_token_mint(client->minter, op == CUOBJ_PUT ? NEB_PUT_OBJECT : NEB_GET_OBJECT,
		data, bytes, text);
}

int cuobj_token(
	struct object *object, void *data, size_t bytes, size_t offset, int op, char **token_out)
{
	struct client *client = object->client;
	struct token *token;

	if (!data || !token_out || (op != CUOBJ_GET && op != CUOBJ_PUT) ||
		offset > UINTPTR_MAX - (uintptr_t)data)
		return CU_OBJ_FAIL;
	token = calloc(1, sizeof(*token));
	if (!token || mint(client, (uint8_t *)data + offset, bytes, op, token->text)) {
		free(token);
		return CU_OBJ_FAIL;
	}
	pthread_mutex_lock(&client->lock);
	token->next = client->tokens;
	client->tokens = token;
	pthread_mutex_unlock(&client->lock);
	*token_out = token->text;
	return CU_OBJ_SUCCESS;
}

/* A request that failed may still run at the server, so its queue pair is closed. */
int cuobj_token_put_error(struct object *object, char *text, int error)
{
	struct client *client = object->client;
	struct token **at, *found;

	if (!client)
		return CU_OBJ_FAIL;
	pthread_mutex_lock(&client->lock);
	for (at = &client->tokens; *at && (*at)->text != text;)
		at = &(*at)->next;
	found = *at;
	if (found)
		*at = found->next;
	pthread_mutex_unlock(&client->lock);
	if (!found)
		return CU_OBJ_FAIL;
	if (error)
		neb_token_failed(client->minter, found->text);
	neb_token_release(client->minter, found->text);
	free(found);
	return CU_OBJ_SUCCESS;
}

int cuobj_token_put(struct object *object, char *text)
{
	return cuobj_token_put_error(object, text, 0);
}

/* ---- Transfers, which the program's own callbacks send. ---- */

struct io {
	void *ctx;
	uint8_t *data;
	size_t bytes;
	loff_t offset;
	int op;
};

static ssize_t io_run(struct client *client, io_fn *call, const struct io *io)
{
	char text[NEB_TOKEN_BYTES];
	const struct handle handle = {io->ctx};
	const struct rdma_info info = {.version = 1, .desc_len = NEB_TOKEN_BYTES, .desc_str = text};
	ssize_t done;
	int ret;

	if (!call)
		return -EINVAL;
	ret = mint(client, io->data, io->bytes, io->op, text);
	if (ret)
		return ret;
	done = call(&handle, io->data, io->bytes, io->offset, &info);
	if (done < 0)
		neb_token_failed(client->minter, text);
	neb_token_release(client->minter, text);
	return done;
}

static bool io_is_sound(const struct object *object, const struct io *io, loff_t data_offset)
{
	return object->client && io->ctx && io->data && io->bytes && io->offset >= 0 &&
	       data_offset >= 0 && (uint64_t)data_offset <= UINTPTR_MAX - (uintptr_t)io->data;
}

ssize_t cuobj_get(struct object *object, void *ctx, void *data, size_t bytes, loff_t offset,
	loff_t data_offset)
{
	struct io io = {ctx, data, bytes, offset, CUOBJ_GET};

	if (!io_is_sound(object, &io, data_offset))
		return CU_OBJ_FAIL;
	io.data += data_offset;
	return io_run(object->client, object->client->ops.get, &io);
}

ssize_t cuobj_put(struct object *object, void *ctx, void *data, size_t bytes, loff_t offset,
	loff_t data_offset)
{
	struct io io = {ctx, data, bytes, offset, CUOBJ_PUT};

	if (!io_is_sound(object, &io, data_offset))
		return CU_OBJ_FAIL;
	io.data += data_offset;
	return io_run(object->client, object->client->ops.put, &io);
}

void *cuobj_ctx(const struct handle *handle)
{
	return handle ? handle->ctx : NULL;
}

/* ---- The rest. ---- */

int cuobj_memory_type(const void *data)
{
	return data ? compat_memory_type(data) : CUOBJ_MEMORY_INVALID;
}

/* Errors go to standard error; there is no telemetry. */
void cuobj_telemetry(bool otel, void *stream)
{
	(void)otel;
	(void)stream;
}

void cuobj_telemetry_end(void)
{
}

void cuobj_telemetry_flags(unsigned flags)
{
	(void)flags;
}

void cuobj_telemetry_flags_op(unsigned flags, unsigned op_flags)
{
	(void)flags;
	(void)op_flags;
}

void cuobj_telemetry_rate(unsigned get, unsigned put)
{
	(void)get;
	(void)put;
}
