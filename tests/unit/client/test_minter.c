/* RDMA tokens that a minter makes, in requests that another client sends: here one of our own, over
 * HTTP, which knows nothing of them but a header. PROGRAM_UNDER_TEST names the program. */
#include "../unit.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "program.h"
#include "rig.h"

#define BUCKET "minted"
#define BYTES  (256u * 1024)

struct bench {
	struct neb_client *sender;
	struct neb_minter *minter;
	uint8_t *memory;
};

static uint32_t errors_logged;

static void count_errors(void *arg, enum neb_log_level level, const char *text)
{
	(void)arg;
	(void)text;
	errors_logged += level >= NEB_LOG_ERROR;
}

static struct neb_options options_of(const char *endpoint)
{
	return (struct neb_options){.endpoints = endpoint,
		.access_key = RIG_ACCESS_KEY,
		.secret_key = RIG_SECRET_KEY,
		.transport = NEB_HTTP,
		.device_name = "simulated",
		.log = count_errors};
}

static struct neb_minter *minter_of(const char *endpoint)
{
	struct neb_options options = options_of(endpoint);
	struct neb_minter *minter = NULL;

	assert_int_equal(neb_minter_open(&options, &minter), 0);
	return minter;
}

static void bench_open(void **state, struct bench *bench)
{
	const struct program *program = *state;
	struct neb_options options = options_of(program->http);

	assert_int_equal(neb_client_open(&options, &bench->sender), 0);
	bench->minter = minter_of(program->http);
	bench->memory = malloc(BYTES);
	assert_non_null(bench->memory);
	neb_bucket_create(bench->sender, BUCKET, NULL);
}

static void bench_close(struct bench *bench)
{
	neb_minter_close(bench->minter);
	neb_client_close(bench->sender);
	free(bench->memory);
}

/* A request without a body that carries the token. */
static struct neb_result send_token(
	struct neb_client *sender, const char *method, const char *path, const char *token)
{
	const struct neb_header header = {"x-amz-rdma-token", token};
	char document[1024];
	const struct neb_iov into = {document, sizeof(document)};
	const struct neb_request request = {.op = NEB_S3,
		.method = method,
		.path = path,
		.headers = &header,
		.header_count = 1,
		.into = &into,
		.into_count = 1,
		.want_headers = true};
	struct neb_result result;

	neb_perform(sender, &request, &result);
	return result;
}

static uint32_t reply_of(const struct neb_result *result)
{
	const char *value;

	if (neb_result_header(result, "x-amz-rdma-reply", &value) < 0)
		return 0;
	return (uint32_t)strtoul(value, NULL, 10);
}

static void token_put(struct bench *bench, const char *path, size_t bytes)
{
	char token[NEB_TOKEN_BYTES];
	struct neb_result result;

	assert_int_equal(
		neb_token_mint(bench->minter, NEB_PUT_OBJECT, bench->memory, bytes, token), 0);
	assert_int_equal(strlen(token), NEB_TOKEN_BYTES - 1);
	result = send_token(bench->sender, "PUT", path, token);
	assert_int_equal(result.status, 200);
	assert_int_equal(reply_of(&result), 200);
	assert_int_equal(neb_token_release(bench->minter, token), 0);
}

static struct neb_result token_get(struct bench *bench, const char *path, size_t bytes)
{
	char token[NEB_TOKEN_BYTES];
	struct neb_result result;

	assert_int_equal(
		neb_token_mint(bench->minter, NEB_GET_OBJECT, bench->memory, bytes, token), 0);
	result = send_token(bench->sender, "GET", path, token);
	assert_int_equal(neb_token_release(bench->minter, token), 0);
	return result;
}

/* ---- Transfers. ---- */

static void test_moves(void **state)
{
	static const size_t SIZES[] = {1, 4096, 65537, BYTES};
	uint8_t *expected = malloc(BYTES);
	struct bench bench;

	bench_open(state, &bench);
	for (uint32_t registered = 0; registered < 2; registered++) {
		if (registered)
			assert_int_equal(neb_minter_register(bench.minter, bench.memory, BYTES), 0);
		for (size_t i = 0; i < ARRAY_LEN(SIZES); i++) {
			struct neb_result result;

			rig_fill(expected, SIZES[i], i + registered);
			memcpy(bench.memory, expected, SIZES[i]);
			token_put(&bench, "/" BUCKET "/moved", SIZES[i]);
			memset(bench.memory, 0xee, BYTES);
			result = token_get(&bench, "/" BUCKET "/moved", SIZES[i]);
			assert_int_equal(result.status, 200);
			assert_int_equal(reply_of(&result), 200);
			assert_memory_equal(bench.memory, expected, SIZES[i]);
			if (SIZES[i] < BYTES)
				assert_int_equal(bench.memory[SIZES[i]], 0xee);
		}
	}
	assert_int_equal(neb_minter_unregister(bench.minter, bench.memory), 0);
	bench_close(&bench);
	free(expected);
}

/* Memory that may only be read can be sent. */
static void test_read_only_memory(void **state)
{
	char token[NEB_TOKEN_BYTES];
	struct neb_result result;
	struct bench bench;
	void *pages = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(pages != MAP_FAILED);
	bench_open(state, &bench);
	assert_int_equal(neb_token_mint(bench.minter, NEB_PUT_OBJECT, pages, 4096, token), 0);
	result = send_token(bench.sender, "PUT", "/" BUCKET "/zeros", token);
	assert_int_equal(result.status, 200);
	assert_int_equal(neb_token_release(bench.minter, token), 0);
	bench_close(&bench);
	munmap(pages, 4096);
}

/* ---- Events that end the server's access. ---- */

/* A token of a PUT gives no right to write, one of a GET none to read. */
static void test_direction(void **state)
{
	char token[NEB_TOKEN_BYTES];
	struct neb_result result;
	struct bench bench;

	bench_open(state, &bench);
	assert_int_equal(neb_minter_register(bench.minter, bench.memory, BYTES), 0);
	memset(bench.memory, 0x11, BYTES);
	token_put(&bench, "/" BUCKET "/one", 4096);
	memset(bench.memory, 0x22, BYTES);
	assert_int_equal(
		neb_token_mint(bench.minter, NEB_PUT_OBJECT, bench.memory, 4096, token), 0);
	result = send_token(bench.sender, "GET", "/" BUCKET "/one", token);
	assert_int_equal(result.status, 500);
	assert_string_equal(result.code, "RDMATransferFailed");
	assert_int_equal(bench.memory[0], 0x22);
	neb_token_release(bench.minter, token);
	assert_int_equal(
		neb_token_mint(bench.minter, NEB_GET_OBJECT, bench.memory, 4096, token), 0);
	result = send_token(bench.sender, "PUT", "/" BUCKET "/two", token);
	assert_int_equal(result.status, 500);
	neb_token_release(bench.minter, token);
	/* The server closed the queue pair each time: the next token names another one. One that
	 * names no operation goes both ways. */
	assert_int_equal(neb_token_mint(bench.minter, NEB_S3, bench.memory, 4096, token), 0);
	result = send_token(bench.sender, "PUT", "/" BUCKET "/one", token);
	assert_int_equal(result.status, 200);
	memset(bench.memory, 0x77, BYTES);
	result = send_token(bench.sender, "GET", "/" BUCKET "/one", token);
	assert_int_equal(result.status, 200);
	assert_int_equal(bench.memory[0], 0x22);
	neb_token_release(bench.minter, token);
	bench_close(&bench);
}

static void test_key_ends(void **state)
{
	char token[NEB_TOKEN_BYTES];
	struct neb_result result;
	struct bench bench;

	bench_open(state, &bench);
	memset(bench.memory, 0x33, BYTES);
	token_put(&bench, "/" BUCKET "/key", BYTES);
	for (uint32_t registered = 0; registered < 2; registered++) {
		if (registered)
			assert_int_equal(neb_minter_register(bench.minter, bench.memory, BYTES), 0);
		memset(bench.memory, 0x44, BYTES);
		assert_int_equal(
			neb_token_mint(bench.minter, NEB_GET_OBJECT, bench.memory, BYTES, token),
			0);
		if (registered)
			assert_int_equal(neb_minter_unregister(bench.minter, bench.memory), 0);
		else
			assert_int_equal(neb_token_release(bench.minter, token), 0);
		result = send_token(bench.sender, "GET", "/" BUCKET "/key", token);
		assert_int_equal(result.status, 500);
		assert_int_equal(bench.memory[0], 0x44);
		assert_int_equal(neb_token_release(bench.minter, token), registered ? 0 : -ENOENT);
	}
	bench_close(&bench);
}

/* The memory stays registered: what ends is the queue pair. */
static void test_failed(void **state)
{
	char token[NEB_TOKEN_BYTES], other[NEB_TOKEN_BYTES];
	struct neb_result result;
	struct bench bench;

	bench_open(state, &bench);
	assert_int_equal(neb_minter_register(bench.minter, bench.memory, BYTES), 0);
	memset(bench.memory, 0x55, BYTES);
	token_put(&bench, "/" BUCKET "/failed", BYTES);
	memset(bench.memory, 0x66, BYTES);
	assert_int_equal(
		neb_token_mint(bench.minter, NEB_GET_OBJECT, bench.memory, BYTES, token), 0);
	assert_int_equal(neb_token_failed(bench.minter, token), 0);
	result = send_token(bench.sender, "GET", "/" BUCKET "/failed", token);
	assert_int_equal(result.status, 501);
	assert_int_equal(reply_of(&result), 501);
	assert_int_equal(bench.memory[0], 0x66);
	/* A second report of it leaves the new queue pair alone. */
	assert_int_equal(
		neb_token_mint(bench.minter, NEB_GET_OBJECT, bench.memory, BYTES, other), 0);
	assert_string_not_equal(other, token);
	assert_int_equal(neb_token_failed(bench.minter, token), 0);
	assert_int_equal(neb_token_release(bench.minter, token), 0);
	result = send_token(bench.sender, "GET", "/" BUCKET "/failed", other);
	assert_int_equal(result.status, 200);
	assert_int_equal(bench.memory[0], 0x55);
	assert_int_equal(neb_token_release(bench.minter, other), 0);
	bench_close(&bench);
}

/* ---- Refusals. ---- */

static void test_refusals(void **state)
{
	const struct program *program = *state;
	static const char *const ENDPOINTS[] = {"", "rdma://127.0.0.1", "nonsense",
		"http://127.0.0.1:1 http://127.0.0.1:2", "http://127.0.0.1:1,rdma://127.0.0.1:2"};
	char token[NEB_TOKEN_BYTES], why[80] = "x";
	struct neb_options options;
	struct neb_minter *minter = NULL;
	uint8_t byte = 0;

	for (size_t i = 0; i < ARRAY_LEN(ENDPOINTS); i++) {
		options = options_of(ENDPOINTS[i]);
		errors_logged = 0;
		assert_int_equal(neb_minter_open(&options, &minter), -EINVAL);
		assert_true(errors_logged > 0);
	}
	options = options_of(program->http);
	options.require_encryption = true;
	errors_logged = 0;
	assert_int_equal(neb_minter_open(&options, &minter), -EINVAL);
	assert_int_equal(errors_logged, 1);
	options = options_of(program->http);
	options.device_name = "no_such_card";
	assert_int_equal(neb_minter_open(&options, &minter), -ENODEV);
	assert_null(minter);
	neb_minter_close(NULL);

	minter = minter_of(program->http);
	assert_int_equal(neb_minter_available(minter, why, sizeof(why)), 0);
	assert_string_equal(why, "");
	assert_int_equal(neb_minter_register(minter, NULL, 1), -EINVAL);
	assert_int_equal(neb_minter_register(minter, &byte, 0), -EINVAL);
	assert_int_equal(neb_minter_register(minter, &byte, SIZE_MAX), -EINVAL);
	assert_int_equal(neb_minter_unregister(minter, &byte), -ENOENT);
	assert_int_equal(neb_minter_register(minter, &byte, 1), 0);
	assert_int_equal(neb_minter_register(minter, &byte, 2), -EEXIST);
	assert_int_equal(neb_minter_register(minter, &byte, 1), 0);
	assert_int_equal(neb_minter_unregister(minter, &byte), 0);
	assert_int_equal(neb_minter_unregister(minter, &byte), 0);
	assert_int_equal(neb_minter_unregister(minter, &byte), -ENOENT);
	assert_int_equal(neb_token_mint(minter, NEB_HEAD_OBJECT, &byte, 1, token), -EINVAL);
	assert_int_equal(neb_token_mint(minter, NEB_GET_OBJECT, &byte, 0, token), -EINVAL);
	assert_int_equal(neb_token_mint(minter, NEB_GET_OBJECT, NULL, 1, token), -EINVAL);
	assert_int_equal(
		neb_token_mint(minter, NEB_GET_OBJECT, &byte, 1ull << 32, token), -EMSGSIZE);
	assert_int_equal(neb_token_release(minter, "0"), -ENOENT);
	assert_int_equal(neb_token_failed(minter, "0"), -ENOENT);
	neb_minter_close(minter);
}

static void test_no_server(void **state)
{
	const struct program *program = *state;
	struct neb_options options = options_of(program->http);
	char token[NEB_TOKEN_BYTES], why[80] = "";
	struct neb_minter *minter = minter_of("http://127.0.0.1:9");
	uint8_t byte = 0;

	assert_int_equal(neb_minter_available(minter, why, sizeof(why)), -ECONNREFUSED);
	assert_non_null(strstr(why, "no queue pair"));
	assert_int_equal(neb_minter_available(minter, NULL, 0), -ECONNREFUSED);
	assert_int_equal(neb_token_mint(minter, NEB_GET_OBJECT, &byte, 1, token), -ECONNREFUSED);
	neb_minter_close(minter);

	options.secret_key = "wrong";
	assert_int_equal(neb_minter_open(&options, &minter), 0);
	assert_int_equal(neb_minter_available(minter, why, sizeof(why)), -EACCES);
	assert_non_null(strstr(why, "SignatureDoesNotMatch"));
	neb_minter_close(minter);
}

/* ---- Limits. ---- */

static void test_many_tokens(void **state)
{
	enum { TOKENS_MAX = 4096 };
	char(*tokens)[NEB_TOKEN_BYTES] = calloc(TOKENS_MAX + 1, NEB_TOKEN_BYTES);
	struct bench bench;

	assert_non_null(tokens);
	bench_open(state, &bench);
	assert_int_equal(neb_minter_register(bench.minter, bench.memory, BYTES), 0);
	for (size_t i = 0; i < TOKENS_MAX; i++)
		assert_int_equal(neb_token_mint(bench.minter, NEB_GET_OBJECT, bench.memory + i, 1,
					 tokens[i]),
			0);
	assert_int_equal(
		neb_token_mint(bench.minter, NEB_GET_OBJECT, bench.memory, 1, tokens[TOKENS_MAX]),
		-ENOSPC);
	assert_int_equal(neb_token_release(bench.minter, tokens[7]), 0);
	assert_int_equal(
		neb_token_mint(bench.minter, NEB_GET_OBJECT, bench.memory, 1, tokens[TOKENS_MAX]),
		0);
	bench_close(&bench); /* with tokens out */
	free(tokens);
}

/* ---- Threads. ---- */

struct worker {
	pthread_t thread;
	struct bench bench;
	uint32_t number, wrong;
};

static void *work(void *arg)
{
	struct worker *worker = arg;
	struct bench *bench = &worker->bench;
	char path[64], token[NEB_TOKEN_BYTES];
	struct neb_result result;

	snprintf(path, sizeof(path), "/" BUCKET "/worker-%u", worker->number);
	for (uint32_t round = 0; round < 20; round++) {
		memset(bench->memory, (int)(worker->number * 20 + round), BYTES);
		worker->wrong += neb_token_mint(bench->minter, NEB_PUT_OBJECT, bench->memory, BYTES,
					 token) != 0;
		result = send_token(bench->sender, "PUT", path, token);
		worker->wrong += result.status != 200;
		worker->wrong += neb_token_release(bench->minter, token) != 0;
		memset(bench->memory, 0, BYTES);
		worker->wrong += neb_token_mint(bench->minter, NEB_GET_OBJECT, bench->memory, BYTES,
					 token) != 0;
		result = send_token(bench->sender, "GET", path, token);
		worker->wrong += result.status != 200;
		worker->wrong += bench->memory[BYTES - 1] != worker->number * 20 + round;
		worker->wrong += neb_token_release(bench->minter, token) != 0;
	}
	return NULL;
}

static void test_threads(void **state)
{
	const struct program *program = *state;
	struct neb_options options = options_of(program->http);
	struct neb_minter *minter = minter_of(program->http);
	struct worker workers[6];
	struct bench bench;

	bench_open(state, &bench);
	for (uint32_t i = 0; i < ARRAY_LEN(workers); i++) {
		struct worker *worker = &workers[i];

		*worker = (struct worker){.number = i, .bench.minter = minter};
		assert_int_equal(neb_client_open(&options, &worker->bench.sender), 0);
		worker->bench.memory = malloc(BYTES);
		assert_int_equal(pthread_create(&worker->thread, NULL, work, worker), 0);
	}
	for (uint32_t i = 0; i < ARRAY_LEN(workers); i++) {
		pthread_join(workers[i].thread, NULL);
		assert_int_equal(workers[i].wrong, 0);
		neb_client_close(workers[i].bench.sender);
		free(workers[i].bench.memory);
	}
	neb_minter_close(minter);
	bench_close(&bench);
}

/* A program that opens a minter and then waits for its signals with sigwait. */
static int signal_wait(const struct program *program)
{
	struct neb_options options = options_of(program->http);
	struct neb_minter *minter;
	char why[200];
	sigset_t set;
	int got;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	/* Its thread has connected the queue pair. */
	if (neb_minter_open(&options, &minter) || neb_minter_available(minter, why, sizeof(why)) ||
		pthread_sigmask(SIG_BLOCK, &set, NULL) || kill(getpid(), SIGTERM) ||
		sigwait(&set, &got))
		return 1;
	neb_minter_close(minter);
	return got == SIGTERM ? 0 : 1;
}

static void test_signals(void **state)
{
	int status;
	pid_t pid = fork();

	if (pid == 0)
		_exit(signal_wait(*state));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_moves),
		cmocka_unit_test(test_read_only_memory),
		cmocka_unit_test(test_direction),
		cmocka_unit_test(test_key_ends),
		cmocka_unit_test(test_failed),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_no_server),
		cmocka_unit_test(test_many_tokens),
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_signals),
	};

	return cmocka_run_group_tests(tests, program_open, program_close);
}
