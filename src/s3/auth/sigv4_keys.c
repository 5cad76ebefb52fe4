/* s3/auth/sigv4_keys.c: caches signing keys by access key, day and region, so that verifying a
 * signature does not derive its key again. A slot that another thread holds counts as a miss: no
 * thread waits. */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "s3/auth/sigv4.h"

#define SLOT_COUNT 256u

struct slot {
	_Alignas(64) atomic_flag busy;
	bool full;
	struct sigv4_key key;
	char date[DATE_DAY_LEN];
	uint8_t access_key_len, region_len, service_len, secret_len;
	char region[32];
	char service[12];
	char access_key[LIMIT_ACCESS_KEY_LEN_MAX];
	char secret[LIMIT_SECRET_KEY_LEN_MAX]; /* a new secret makes another key */
};

struct sigv4_keys {
	struct slot slots[SLOT_COUNT];
};

int sigv4_keys_open(struct sigv4_keys **ret_keys)
{
	struct sigv4_keys *keys = aligned_alloc(64, sizeof(*keys));

	if (!keys)
		return -ENOMEM;
	memset(keys, 0, sizeof(*keys));
	for (uint32_t i = 0; i < SLOT_COUNT; i++)
		atomic_flag_clear(&keys->slots[i].busy);
	*ret_keys = keys;
	return 0;
}

void sigv4_keys_close(struct sigv4_keys *keys)
{
	if (!keys)
		return;
	secret_wipe(keys, sizeof(*keys));
	free(keys);
}

static bool holds(const struct slot *slot, const struct sigv4_claim *claim, struct slice secret)
{
	return slot->full && slice_eq(slice_of(slot->date, DATE_DAY_LEN), claim->scope.date) &&
	       slice_eq(slice_of(slot->access_key, slot->access_key_len), claim->access_key) &&
	       slice_eq(slice_of(slot->region, slot->region_len), claim->scope.region) &&
	       slice_eq(slice_of(slot->service, slot->service_len), claim->scope.service) &&
	       slot->secret_len == secret.len &&
	       secret_equal(slot->secret, secret.data, secret.len);
}

static void fill(struct slot *slot, const struct sigv4_claim *claim, struct slice secret)
{
	memcpy(slot->date, claim->scope.date.data, DATE_DAY_LEN);
	memcpy(slot->access_key, claim->access_key.data, claim->access_key.len);
	slice_copy(claim->scope.region, slot->region);
	slice_copy(claim->scope.service, slot->service);
	memcpy(slot->secret, secret.data, secret.len);
	slot->access_key_len = (uint8_t)claim->access_key.len;
	slot->region_len = (uint8_t)claim->scope.region.len;
	slot->service_len = (uint8_t)claim->scope.service.len;
	slot->secret_len = (uint8_t)secret.len;
	slot->full = true;
}

static void derive(const struct sigv4_claim *claim, struct slice secret, struct sigv4_key *ret_key)
{
	signing_key(&claim->scope, secret, ret_key->bytes);
	hmac_key_init(&ret_key->prepared, ret_key->bytes, sizeof(ret_key->bytes));
}

void sigv4_keys_get(struct sigv4_keys *keys, const struct sigv4_claim *claim, struct slice secret,
	struct sigv4_key *ret_key)
{
	uint32_t hash = crc32c_update(0, claim->access_key.data, claim->access_key.len);
	struct slot *slot;

	hash = crc32c_update(hash, claim->scope.date.data, claim->scope.date.len);
	hash = crc32c_update(hash, claim->scope.region.data, claim->scope.region.len);
	slot = &keys->slots[hash % SLOT_COUNT];
	if (claim->scope.region.len > sizeof(slot->region) ||
		claim->scope.service.len > sizeof(slot->service) ||
		atomic_flag_test_and_set_explicit(&slot->busy, memory_order_acquire)) {
		derive(claim, secret, ret_key);
		return;
	}
	if (!holds(slot, claim, secret)) {
		derive(claim, secret, &slot->key);
		fill(slot, claim, secret);
	}
	*ret_key = slot->key;
	atomic_flag_clear_explicit(&slot->busy, memory_order_release);
}
