#include "../unit.h"

#include <arpa/inet.h>
#include <errno.h>

#include "net/net_priv.h"

static void check_name(const char *text, const char *host, uint16_t port)
{
	struct net_name name;

	assert_int_equal(net_name_parse(text, &name), 0);
	assert_string_equal(name.host, host);
	assert_int_equal(name.port, port);
}

static void test_names(void **state)
{
	static const char *const bad[] = {"", "9000", "1.2.3.4", "1.2.3.4:", ":", "a:65536", "a:-1",
		"a:+1", "a: 1", "a:1 ", "a:1:2", "[::1]", "[::1]9000", "[]:1", "[::1:1",
		"a:99999999999999999999"};
	struct net_name name;
	char longest[NET_HOST_LEN_MAX + 8];

	(void)state;
	check_name("127.0.0.1:9000", "127.0.0.1", 9000);
	check_name(":0", "", 0);
	check_name("host.example.com:65535", "host.example.com", 65535);
	check_name("[2001:db8::1]:80", "2001:db8::1", 80);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(net_name_parse(bad[i], &name), -EINVAL);
	memset(longest, 'a', sizeof(longest));
	memcpy(longest + NET_HOST_LEN_MAX, ":1", 3);
	check_name(longest, strndupa(longest, NET_HOST_LEN_MAX), 1);
	memset(longest, 'a', sizeof(longest));
	memcpy(longest + NET_HOST_LEN_MAX + 1, ":1", 3);
	assert_int_equal(net_name_parse(longest, &name), -EINVAL);
}

static void check_print(const char *host, const char *text)
{
	struct net_name name = {.port = 81};
	union net_addr addr;
	socklen_t len;
	char out[NET_PEER_LEN_MAX + 1];

	strcpy(name.host, host);
	assert_int_equal(net_addr_numeric(&name, &addr, &len), 0);
	assert_int_equal(len, net_addr_len(&addr));
	net_addr_print(&addr, out, sizeof(out));
	assert_string_equal(out, text);
}

static void test_numeric(void **state)
{
	struct net_name name = {.host = "host.example.com", .port = 1};
	union net_addr addr;
	socklen_t len;

	(void)state;
	check_print("192.0.2.1", "192.0.2.1:81");
	check_print("localhost", "127.0.0.1:81");
	check_print("2001:db8::1", "[2001:db8::1]:81");
	check_print("", "[::]:81");
	/* The form of an IPv4 peer at a listener on both families. */
	check_print("::ffff:192.0.2.7", "192.0.2.7:81");
	assert_int_equal(net_addr_numeric(&name, &addr, &len), -EINVAL);
}

static void test_resolve(void **state)
{
	struct net_name name = {.host = "127.0.0.1", .port = 7};
	union net_addr addrs[NET_ADDRESSES_MAX];
	uint32_t count = 0;

	(void)state;
	assert_int_equal(net_addr_resolve(&name, addrs, &count), 0);
	assert_int_equal(count, 1);
	assert_int_equal(addrs[0].v4.sin_port, htons(7));
	/* A name with an empty label cannot be looked up. */
	strcpy(name.host, "no..such..host");
	assert_int_equal(net_addr_resolve(&name, addrs, &count), -EHOSTUNREACH);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_numeric),
		cmocka_unit_test(test_resolve),
	};

	return cmocka_run_group_tests_name("net_addr", tests, NULL, NULL);
}
