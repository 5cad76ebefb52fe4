/* tests/unit/gateway/test_places.c: covers gateway/places.c: the key and the address that a request
 * counts for; none of them gets all places, whatever keys its requests claim. */
#include "../unit.h"

#include <stdio.h>
#include <string.h>

#include "gateway/gateway_priv.h"

static struct gw_places places;

static int setup(void **state)
{
	(void)state;
	places = (struct gw_places){.max = 1024};
	return 0;
}

static struct gw_client client_of(const char *authorization, const char *query, const char *peer)
{
	const struct s3_header header = {SLICE("Authorization"), slice_str(authorization)};
	const struct s3_request request = {.headers = &header,
		.header_count = authorization[0] != '\0',
		.query = slice_str(query),
		.peer = peer};

	return gw_client_of(&request);
}

static void test_who(void **state)
{
	struct gw_client one =
		client_of("AWS4-HMAC-SHA256 Credential=KEY/20260101/r/s3/aws4_request", "",
			"192.0.2.1:40001");
	struct gw_client other =
		client_of("", "X-Amz-Credential=KEY%2F20260101%2Fr", "192.0.2.2:40001");
	struct gw_client nobody = client_of("", "list-type=2", "192.0.2.1:7");

	(void)state;
	assert_true(one.has_key && other.has_key && !nobody.has_key);
	assert_int_equal(one.key, other.key);
	assert_int_not_equal(one.address, other.address);
	assert_int_equal(one.address, nobody.address);
}

static uint32_t taken(const struct gw_client *client)
{
	uint32_t count = 0;

	while (gw_place_take(&places, client))
		count++;
	return count;
}

static void test_a_key_has_half(void **state)
{
	struct gw_client one = {.key = 1, .has_key = true}, two = {.key = 2, .has_key = true};

	(void)state;
	assert_int_equal(taken(&one), 512);
	/* Others behind the same proxy. */
	assert_int_equal(taken(&two), 256);
	gw_place_give(&places, &one);
	assert_true(gw_place_take(&places, &two));
	two.key = 3;
	assert_true(gw_place_take(&places, &two));
}

/* Each request claims another key, also where the store sees none. */
static void test_an_address_leaves_some(void **state)
{
	struct gw_client other = {.key = 5, .address = 5, .has_key = true};
	uint32_t got = 0;

	(void)state;
	for (uint32_t i = 0; i < 2048; i++) {
		char text[96];
		struct gw_client client;

		snprintf(text, sizeof(text), "AWS4-HMAC-SHA256 X=Credential=K%u/, Credential=KEY/",
			i);
		client = i % 2 ? client_of(text, "", "192.0.2.1:1")
			       : client_of("", strchr(text, 'C'), "192.0.2.1:2");
		client.address = 4;
		got += gw_place_take(&places, &client);
	}
	assert_int_equal(got, 896);
	assert_true(gw_place_take(&places, &other));
	assert_int_equal(1 + taken(&other), 64);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_who, setup),
		cmocka_unit_test_setup(test_a_key_has_half, setup),
		cmocka_unit_test_setup(test_an_address_leaves_some, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
