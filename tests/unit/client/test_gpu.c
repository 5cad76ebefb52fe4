/* Bodies in a GPU's memory, which the processor cannot touch: staged where no card can reach it.
 * The driver is fake_cuda.c, loaded like the real one. FAKE_CUDA names it. */
#include "../unit.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "rig.h"

#define B	     "bucket"
#define DEVICE_BYTES (8 * MIB)

static struct {
	void *(*memory)(void);
	uint8_t *(*shadow)(void);
	void (*copies_fail)(int fail);
	void (*landing_fails)(int fails);
	unsigned (*copies_flying)(void);
	unsigned (*synchronized)(void);
} fake;

static void find(void *library, const char *name, void *ret_function)
{
	void *address = dlsym(library, name);

	assert_non_null(address);
	memcpy(ret_function, &address, sizeof(address));
}

static void library_load(void)
{
	void *library = dlopen(getenv("FAKE_CUDA"), RTLD_NOW | RTLD_GLOBAL);

	assert_non_null(library);
	find(library, "fake_device_memory", &fake.memory);
	find(library, "fake_device_shadow", &fake.shadow);
	find(library, "fake_copies_fail", &fake.copies_fail);
	find(library, "fake_landing_fails", &fake.landing_fails);
	find(library, "fake_copies_flying", &fake.copies_flying);
	find(library, "fake_synchronized", &fake.synchronized);
}

static int setup_unloaded(void **state)
{
	*state = rig_open(NULL);
	return 0;
}

static int setup(void **state)
{
	library_load();
	return setup_unloaded(state);
}

static int teardown(void **state)
{
	rig_close(*state);
	return 0;
}

static uint64_t staged(const struct neb_client *client)
{
	struct neb_stats stats;

	neb_client_stats(client, &stats);
	return stats.bytes_staged;
}

/* The program loads CUDA while its clients are open. This test is the first: no other has loaded
 * it.
 */
static void test_loaded_later(void **state)
{
	static const size_t SIZES[] = {100, 70000};
	struct neb_client *client = rig_client(*state, NEB_STRICT);
	uint8_t *device, *shadow, *host = malloc(DEVICE_BYTES);

	assert_int_equal(neb_put(client, B, "host", host, 100, NULL), 0);
	library_load();
	device = fake.memory();
	shadow = fake.shadow();
	for (size_t i = 0; i < ARRAY_LEN(SIZES); i++) {
		rig_fill(shadow, SIZES[i], i);
		assert_int_equal(neb_put(client, B, "gpu", device, SIZES[i], NULL), 0);
		assert_int_equal(neb_get(client, B, "gpu", host, SIZES[i], NULL), 0);
		assert_memory_equal(host, shadow, SIZES[i]);
		memset(shadow, 0, SIZES[i]);
		assert_int_equal(neb_get(client, B, "gpu", device, SIZES[i], NULL), 0);
		assert_memory_equal(host, shadow, SIZES[i]);
	}
	neb_client_close(client);
	free(host);
}

/* Inline, small and large; with and without registered memory. */
static void test_staged(void **state)
{
	static const size_t SIZES[] = {1, 100, 5000, 70000, 3 * MIB};
	struct neb_client *client = rig_client(*state, NEB_STRICT);
	uint8_t *device = fake.memory(), *shadow = fake.shadow(), *host = malloc(DEVICE_BYTES);
	struct neb_result result;

	for (int registered = 0; registered < 2; registered++) {
		if (registered)
			assert_int_equal(neb_register(client, device, DEVICE_BYTES), 0);
		for (size_t i = 0; i < ARRAY_LEN(SIZES); i++) {
			uint64_t before = staged(client);
			unsigned waits = fake.synchronized();

			rig_fill(shadow, SIZES[i], i);
			assert_int_equal(neb_put(client, B, "gpu", device, SIZES[i], NULL), 0);
			assert_true(fake.synchronized() > waits);
			assert_int_equal(neb_get(client, B, "gpu", host, SIZES[i], &result), 0);
			assert_memory_equal(host, shadow, SIZES[i]);
			memset(shadow, 0, SIZES[i]);
			assert_int_equal(neb_get(client, B, "gpu", device, SIZES[i], &result), 0);
			assert_int_equal(result.bytes, SIZES[i]);
			assert_memory_equal(host, shadow, SIZES[i]);
			assert_int_equal(staged(client) - before, 2 * SIZES[i]);
		}
		if (registered)
			assert_int_equal(neb_unregister(client, device), 0);
	}
	free(host);
	neb_client_close(client);
}

/* A copy into the GPU's memory returns before the bytes are there: the result waits for them. The
 * wait is for the copies alone, not for all that the GPU does. */
static void test_landed(void **state)
{
	struct neb_client *client = rig_client(*state, NEB_STRICT);
	uint8_t *device = fake.memory(), *shadow = fake.shadow(), *host = malloc(MIB);
	struct neb_request get = {.op = NEB_GET_OBJECT,
		.bucket = B,
		.key = "landed",
		.into = (struct neb_iov[]){{host, 1000}, {device, MIB - 1000}},
		.into_count = 2};
	struct neb_result result;
	unsigned waits;

	rig_fill(host, MIB, 3);
	assert_int_equal(neb_put(client, B, "landed", host, MIB, NULL), 0);
	waits = fake.synchronized();
	memset(shadow, 0, MIB);
	assert_int_equal(neb_submit(client, &get, NULL), 0);
	assert_int_equal(neb_wait(client, &result, 1, RIG_PATIENCE_NS), 1);
	assert_int_equal(result.error, 0);
	assert_int_equal(fake.copies_flying(), 0);
	assert_memory_equal(shadow, host + 1000, MIB - 1000);
	assert_int_equal(fake.synchronized(), waits); /* kernels in other streams go on */
	fake.landing_fails(1);
	assert_int_equal(neb_get(client, B, "landed", device, MIB, &result), -EIO);
	assert_string_equal(result.message, "copying to or from the GPU failed");
	assert_int_equal(neb_get(client, B, "landed", host, MIB, &result), 0);
	fake.landing_fails(0);
	assert_int_equal(neb_get(client, B, "landed", device, MIB, &result), 0);
	assert_memory_equal(shadow, host, MIB);
	free(host);
	neb_client_close(client);
}

/* One body of both kinds of memory. */
static void test_mixed(void **state)
{
	struct neb_client *client = rig_client(*state, NEB_STRICT);
	uint8_t *device = fake.memory(), *shadow = fake.shadow(), *host = malloc(2 * MIB);
	struct neb_iov body[] = {{host, 1000}, {device, MIB}, {host + 1000, 24}};
	struct neb_request put = {
		.op = NEB_PUT_OBJECT, .bucket = B, .key = "mixed", .body = body, .body_count = 3};

	rig_fill(host, 1024, 1);
	rig_fill(shadow, MIB, 2);
	assert_int_equal(neb_perform(client, &put, NULL), 0);
	assert_int_equal(staged(client), MIB);
	assert_int_equal(neb_get(client, B, "mixed", host, 2 * MIB, NULL), 0);
	assert_memory_equal(host + 1000, shadow, MIB);
	free(host);
	neb_client_close(client);
}

/* An encrypted session: the processor needs the plain text, which the card must not see. */
static void test_encrypted(void **state)
{
	struct neb_options options = {.endpoints = rig_endpoint(*state),
		.access_key = RIG_ACCESS_KEY,
		.secret_key = RIG_SECRET_KEY,
		.transport = NEB_STRICT,
		.require_encryption = true};
	uint8_t *device = fake.memory(), *shadow = fake.shadow(), *host = malloc(MIB);
	struct neb_client *client;

	assert_int_equal(neb_client_open(&options, &client), 0);
	rig_fill(shadow, MIB, 7);
	memcpy(host, shadow, MIB);
	assert_int_equal(neb_put(client, B, "sealed", device, MIB, NULL), 0);
	memset(shadow, 0, MIB);
	assert_int_equal(neb_get(client, B, "sealed", device, MIB, NULL), 0);
	assert_memory_equal(host, shadow, MIB);
	assert_int_equal(staged(client), 2 * MIB);
	free(host);
	neb_client_close(client);
}

/* A multicast's datagrams are decrypted by the processor: the group is served without it. */
static void test_fan_out(void **state)
{
	struct neb_client *client = rig_client(*state, NEB_STRICT);
	uint8_t *device = fake.memory(), *shadow = fake.shadow(), *host = malloc(MIB);
	struct neb_multicast told = {0};
	const struct neb_fan_out fan_out = {.name = "gpu",
		.members = 1,
		.bucket = B,
		.key = "fan",
		.data = device,
		.data_bytes = MIB,
		.multicast = &told};

	rig_fill(host, MIB, 9);
	assert_int_equal(neb_put(client, B, "fan", host, MIB, NULL), 0);
	assert_int_equal(neb_get_fan_out(client, &fan_out, NULL), 0);
	assert_memory_equal(shadow, host, MIB);
	assert_false(told.used);
	assert_string_equal(told.why, "the memory is a GPU's");
	free(host);
	neb_client_close(client);
}

/* No room for staging, and a failing GPU. */
static void test_failures(void **state)
{
	struct neb_options options = {.endpoints = rig_endpoint(*state),
		.access_key = RIG_ACCESS_KEY,
		.secret_key = RIG_SECRET_KEY,
		.transport = NEB_STRICT,
		.pool_bytes = MIB};
	struct neb_client *client;
	struct neb_result result;

	assert_int_equal(neb_client_open(&options, &client), 0);
	assert_int_equal(neb_put(client, B, "large", fake.memory(), 2 * MIB, &result), -ENOMEM);
	fake.copies_fail(1);
	assert_int_equal(neb_put(client, B, "failed", fake.memory(), 70000, &result), -EIO);
	assert_string_equal(result.message, "copying to or from the GPU failed");
	fake.copies_fail(0);
	assert_int_equal(neb_put(client, B, "works", fake.memory(), 70000, &result), 0);
	neb_client_close(client);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_loaded_later, setup_unloaded, teardown),
		cmocka_unit_test_setup_teardown(test_staged, setup, teardown),
		cmocka_unit_test_setup_teardown(test_landed, setup, teardown),
		cmocka_unit_test_setup_teardown(test_mixed, setup, teardown),
		cmocka_unit_test_setup_teardown(test_encrypted, setup, teardown),
		cmocka_unit_test_setup_teardown(test_fan_out, setup, teardown),
		cmocka_unit_test_setup_teardown(test_failures, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
