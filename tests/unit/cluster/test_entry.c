/* tests/unit/cluster/test_entry.c: covers cluster/entry.c: entries of stores there and back, and
 * what is none. */
#include "../unit.h"

#include <errno.h>
#include <string.h>

#include "cluster/cluster.h"

static void test_there_and_back(void **state)
{
	static const char *const texts[] = {
		"1 1 free - - - - -",
		"1 7 opening - east - - -",
		"1 8 serving - east west 10.0.0.1:4711 10.0.0.1:4712",
		"1 18446744073709551615 leaving pinned a.b_c-d - [2001:db8::1]:80 -",
	};
	char text[RV_TABLE_VALUE_BYTES];
	struct cluster_store store;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		assert_int_equal(cluster_store_parse(slice_str(texts[i]), &store), 0);
		cluster_store_text(&store, text);
		assert_string_equal(text, texts[i]);
	}
	assert_int_equal(store.state, CLUSTER_LEAVING);
	assert_true(store.pinned);
	assert_string_equal(store.owner, "a.b_c-d");
	assert_string_equal(store.http, "[2001:db8::1]:80");
}

static void test_wrong(void **state)
{
	static const char *const texts[] = {
		"",
		"2 1 free - - - - -",
		"1 x free - - - - -",
		"1 1 gone - - - - -",
		"1 1 free yes - - - -",
		"1 1 free - east - - -",
		"1 1 opening - - - - -",
		"1 1 serving - east - - -",
		"1 1 opening - ea/st - - -",
		"1 1 serving - east - 10.0.0.1 -",
		"1 1 serving - east - 10.0.0.1:0 -",
		"1 1 serving - east - 10.0.0.1:65536 -",
		"1 1 serving - east - \"x\":80 -",
		"1 1 opening - east - -",
		"1 1 opening - east - - - -",
		"1 1 opening - 1234567890123456789012345678901234567890123456789 - - -",
	};
	struct cluster_store store;
	char big[RV_TABLE_VALUE_BYTES + 1];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		assert_int_equal(cluster_store_parse(slice_str(texts[i]), &store), -EINVAL);
	memset(big, '1', sizeof(big));
	assert_int_equal(cluster_store_parse(slice_of(big, sizeof(big)), &store), -EINVAL);
}

static void test_news(void **state)
{
	struct cluster_store store;
	struct slice bucket;

	(void)state;
	assert_int_equal(cluster_told(SLICE("b/photos"), &store, &bucket), CLUSTER_NEWS_BUCKET);
	assert_true(slice_eq(bucket, SLICE("photos")));
	assert_int_equal(cluster_told(SLICE("s/3 1 7 opening - east - - -"), &store, &bucket),
		CLUSTER_NEWS_STORE);
	assert_int_equal(store.number, 3);
	assert_int_equal(store.generation, 7);
	/* All else means: look at everything. */
	assert_int_equal(cluster_told(SLICE("s/64 1 7 opening - east - - -"), &store, &bucket),
		CLUSTER_NEWS_ALL);
	assert_int_equal(cluster_told(SLICE("s/3 nonsense"), &store, &bucket), CLUSTER_NEWS_ALL);
	assert_int_equal(cluster_told(SLICE_NONE, &store, &bucket), CLUSTER_NEWS_ALL);
}

static void test_room(void **state)
{
	static const char *const bad[] = {"", "1", "1 ", "1 x", "-1 0", "1 2 3"};
	struct cluster_room room = {7, 7};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(cluster_room_parse(slice_str(bad[i]), &room), -EINVAL);
	assert_int_equal(room.used_bytes, 7);
	assert_int_equal(cluster_room_parse(SLICE("4096 18446744073709551615"), &room), 0);
	assert_int_equal(room.used_bytes, 4096);
	assert_int_equal(room.limit_bytes, UINT64_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_there_and_back),
		cmocka_unit_test(test_wrong),
		cmocka_unit_test(test_news),
		cmocka_unit_test(test_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
