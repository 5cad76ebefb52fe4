/* tests/unit/rdma/test_verbs_gid.c: verbs device names and the choice among GIDs. */
#include "tests/unit/unit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "rdma/verbs/verbs_priv.h"

static void name_is(const char *text, const char *device, uint8_t port, int gid_index)
{
	struct verbs_name name;

	assert_int_equal(verbs_name_parse(text, &name), 0);
	assert_string_equal(name.device, device);
	assert_int_equal(name.port, port);
	assert_int_equal(name.gid_index, gid_index);
}

static void test_names(void **state)
{
	(void)state;
	name_is("mlx5_0", "mlx5_0", 0, -1);
	name_is("mlx5_0:1", "mlx5_0", 1, -1);
	name_is("mlx5_0:2:0", "mlx5_0", 2, 0);
	name_is("rxe0:255:65535", "rxe0", 255, 65535);
}

static void test_wrong_names(void **state)
{
	static const char *const wrong[] = {"", ":", ":1", "mlx5_0:", "mlx5_0:0", "mlx5_0:256",
		"mlx5_0:x", "mlx5_0:1:", "mlx5_0:1:-1", "mlx5_0:1:65536", "mlx5_0:1:3:4",
		"a-device-name-that-is-longer-than-what-the-kernel-allows-for-device-names"};
	struct verbs_name name;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
		assert_int_equal(verbs_name_parse(wrong[i], &name), -EINVAL);
}

static struct ibv_gid_entry entry(const char *address, uint32_t type)
{
	struct ibv_gid_entry made = {.gid_type = type};

	assert_int_equal(inet_pton(AF_INET6, address, made.gid.raw), 1);
	return made;
}

/* Each entry is better than all after it. */
static void test_order(void **state)
{
	const struct {
		const char *address;
		uint32_t type;
		bool link_up, asked_for;
	} order[] = {
		{"::ffff:192.0.2.1", IBV_GID_TYPE_ROCE_V2, true, true},
		{"fe80::1", IBV_GID_TYPE_ROCE_V2, false, true},
		{"::ffff:192.0.2.1", IBV_GID_TYPE_ROCE_V2, true, false},
		{"2001:db8::1", IBV_GID_TYPE_ROCE_V2, true, false},
		{"fe80::1", IBV_GID_TYPE_ROCE_V2, true, false},
		{"::ffff:192.0.2.1", IBV_GID_TYPE_ROCE_V2, false, false},
		{"fe80::1", IBV_GID_TYPE_ROCE_V2, false, false},
		{"::ffff:192.0.2.1", IBV_GID_TYPE_ROCE_V1, true, true},
		{"::ffff:192.0.2.1", IBV_GID_TYPE_ROCE_V1, true, false},
		{"fe80::1", IBV_GID_TYPE_ROCE_V1, true, false},
		{"fe80::1", IBV_GID_TYPE_IB, false, false},
	};

	(void)state;
	for (size_t i = 1; i < ARRAY_LEN(order); i++) {
		struct ibv_gid_entry better = entry(order[i - 1].address, order[i - 1].type);
		struct ibv_gid_entry worse = entry(order[i].address, order[i].type);

		assert_true(verbs_gid_score(&better, order[i - 1].link_up, order[i - 1].asked_for) >
			    verbs_gid_score(&worse, order[i].link_up, order[i].asked_for));
		assert_true(verbs_gid_score(&worse, order[i].link_up, order[i].asked_for) > 0);
	}
}

static void gid_of_is(const char *address, const char *gid)
{
	struct ibv_gid_entry wanted = entry(gid, IBV_GID_TYPE_ROCE_V2);
	union ibv_gid got;

	assert_true(verbs_gid_of(address, &got));
	assert_memory_equal(got.raw, wanted.gid.raw, sizeof(got.raw));
}

static void test_gid_of_an_address(void **state)
{
	static const char *const none[] = {NULL, "", "host.example", "192.0.2.1:9100"};
	union ibv_gid got;

	(void)state;
	gid_of_is("192.0.2.1", "::ffff:192.0.2.1");
	gid_of_is("2001:DB8:0:0::1", "2001:db8::1");
	for (size_t i = 0; i < ARRAY_LEN(none); i++)
		assert_false(verbs_gid_of(none[i], &got));
}

static void test_text(void **state)
{
	struct ibv_gid_entry four = entry("::ffff:192.0.2.7", IBV_GID_TYPE_ROCE_V2);
	struct ibv_gid_entry six = entry("2001:db8::7", IBV_GID_TYPE_ROCE_V2);
	char text[INET6_ADDRSTRLEN];

	(void)state;
	verbs_gid_text(&four.gid, text, sizeof(text));
	assert_string_equal(text, "192.0.2.7");
	verbs_gid_text(&six.gid, text, sizeof(text));
	assert_string_equal(text, "2001:db8::7");
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_wrong_names),
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_gid_of_an_address),
		cmocka_unit_test(test_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
