/* tests/e2e/token/shim_user.c: a program that mints its RDMA tokens by a drop-in, bound as its
 * consumer binds it: KvikIO's by dlopen() of the path in KVIKIO_CUOBJ_SHIM, and libs3rdma by the
 * linker (-DSHIM_S3RDMA). Its requests are its parent's, which sees its memory, a file.
 *
 *   shim_user_NAME FILE
 *
 * Orders come by standard input, one a line; each is answered by one line, "ok …" or "error …":
 *
 *   ready                      → ok 0 or ok 1
 *   register, deregister
 *   token BYTES OFFSET IS_PUT  → ok TOKEN
 *   failed TOKEN               libs3rdma's only
 *   put TOKEN
 *   type                       → ok NUMBER, of the memory; libs3rdma's only
 *   together                   → ok 1: a text stays while a token of it is out; KvikIO's only
 *   end                        frees the client; libs3rdma's only */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

static char *memory;
static size_t memory_bytes;

#ifdef SHIM_S3RDMA

/* As the SDKs declare them. */
void *s3rdma_client_init(const char *device, char *err_buf, size_t err_buf_len);
void s3rdma_client_free(void *handle);
int s3rdma_client_ready(void *handle);
int s3rdma_client_report_token_failure(void *handle, const char *token);
int s3rdma_client_register(void *handle, void *ptr, size_t size);
int s3rdma_client_deregister(void *handle, void *ptr);
int s3rdma_client_get_token(void *handle, void *ptr, size_t size, size_t offset, char **token_out);
void s3rdma_client_free_token(char *token);
int s3rdma_client_memory_type(const void *ptr);

static void *client;
static char *token;

static void bind_shim(void)
{
	char why[200] = "";

	client = s3rdma_client_init(NULL, why, sizeof(why));
	if (!client)
		fprintf(stderr, "shim_user: %s\n", why);
}

static int ready(void)
{
	return s3rdma_client_ready(client);
}

static int registered(int begins)
{
	return begins ? s3rdma_client_register(client, memory, memory_bytes)
		      : s3rdma_client_deregister(client, memory);
}

static const char *token_get(size_t bytes, size_t offset, int is_put)
{
	(void)is_put;
	return s3rdma_client_get_token(client, memory, bytes, offset, &token) ? NULL : token;
}

static int token_put(const char *text)
{
	if (!token || strcmp(text, token) != 0)
		return -1;
	s3rdma_client_free_token(token);
	token = NULL;
	return 0;
}

static int other_order(const char *order, const char *text)
{
	if (strcmp(order, "failed") == 0)
		return s3rdma_client_report_token_failure(client, text) ? -1 : 0;
	if (strcmp(order, "type") == 0)
		return s3rdma_client_memory_type(memory);
	if (strcmp(order, "end") != 0)
		return -1;
	s3rdma_client_free(client);
	s3rdma_client_free(client); /* twice is no harm */
	return s3rdma_client_ready(client);
}

#else

static struct {
	int (*available)(void);
	int (*register_buffer)(void *, size_t);
	int (*deregister_buffer)(void *);
	const char *(*get_rdma_token)(void *, size_t, size_t, int);
	int (*put_rdma_token)(const char *);
} shim;

static void find(void *library, void *function, const char *name)
{
	*(void **)function = dlsym(library, name);
	if (!*(void **)function) {
		fprintf(stderr, "shim_user: %s\n", dlerror());
		exit(1);
	}
}

static void bind_shim(void)
{
	void *library = dlopen(getenv("KVIKIO_CUOBJ_SHIM"), RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);

	if (!library) {
		fprintf(stderr, "shim_user: %s\n", dlerror());
		exit(1);
	}
	find(library, &shim.available, "kvikio_cuobj_available");
	find(library, &shim.register_buffer, "kvikio_cuobj_register_buffer");
	find(library, &shim.deregister_buffer, "kvikio_cuobj_deregister_buffer");
	find(library, &shim.get_rdma_token, "kvikio_cuobj_get_rdma_token");
	find(library, &shim.put_rdma_token, "kvikio_cuobj_put_rdma_token");
}

static int ready(void)
{
	return shim.available();
}

static int registered(int begins)
{
	return begins ? shim.register_buffer(memory, memory_bytes) : shim.deregister_buffer(memory);
}

static const char *token_get(size_t bytes, size_t offset, int is_put)
{
	return shim.get_rdma_token(memory, bytes, offset, is_put);
}

static int token_put(const char *text)
{
	return shim.put_rdma_token(text);
}

/* Tokens of the same window, as several threads have them. Those of one queue pair have the same
 * text, by which KvikIO puts them back: a text stays as long as one of them is out. */
static int together(void)
{
	const char *tokens[16];
	char first[200];
	int same = 0, kept = 1;

	for (int i = 0; i < 16; i++) {
		tokens[i] = token_get(4096, 0, 0);
		if (!tokens[i])
			return -1;
	}
	snprintf(first, sizeof(first), "%s", tokens[0]);
	for (int i = 1; i < 16; i++) {
		int is_same = strcmp(tokens[i], first) == 0;

		same += is_same;
		kept = kept && is_same == (tokens[i] == tokens[0]);
	}
	token_put(first);
	kept = kept && strcmp(tokens[0], first) == 0;
	for (int i = 0; i < same; i++)
		token_put(first);
	for (int i = 1; i < 16; i++)
		if (tokens[i] != tokens[0])
			token_put(tokens[i]);
	return same && kept;
}

static int other_order(const char *order, const char *text)
{
	(void)text;
	return strcmp(order, "together") == 0 ? together() : -1;
}

#endif

static void answer(int ret)
{
	printf(ret < 0 ? "error\n" : "ok %d\n", ret);
}

static void obey(const char *order, const char *rest)
{
	const char *text;
	size_t bytes, offset;
	int is_put;

	if (strcmp(order, "ready") == 0) {
		answer(ready());
	} else if (strcmp(order, "register") == 0 || strcmp(order, "deregister") == 0) {
		answer(registered(order[0] == 'r'));
	} else if (strcmp(order, "put") == 0) {
		answer(token_put(rest));
	} else if (strcmp(order, "token") == 0 &&
		   sscanf(rest, "%zu %zu %d", &bytes, &offset, &is_put) == 3) {
		text = token_get(bytes, offset, is_put);
		printf(text ? "ok %s\n" : "error\n", text);
	} else {
		answer(other_order(order, rest));
	}
	fflush(stdout);
}

int main(int argc, char **argv)
{
	char line[256], order[16], rest[200];
	struct stat st;
	int fd = argc == 2 ? open(argv[1], O_RDWR) : -1;

	if (fd < 0 || fstat(fd, &st) != 0) {
		fprintf(stderr, "usage: shim_user FILE\n");
		return 2;
	}
	memory_bytes = (size_t)st.st_size;
	memory = mmap(NULL, memory_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED)
		return 1;
	bind_shim();
	while (fgets(line, sizeof(line), stdin)) {
		rest[0] = '\0';
		if (sscanf(line, "%15s %199[^\n]", order, rest) >= 1)
			obey(order, rest);
	}
	return 0;
}
