#include "../unit.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/flow_cmd.h"

/* The text forms of `nebulaio flow`: their meaning, and the texts of refusals. */

int cli_usage_error(const struct cli_command *command, const char *fmt, ...)
{
	(void)command;
	(void)fmt;
	return CLI_USAGE;
}

static char why[FLOW_WHY_BYTES];

static void packets_are_named(void **state)
{
	struct flow_spec spec;
	const struct xp_rule *rule = &spec.rules[0];

	(void)state;
	assert_true(flow_spec_parse("xdp:eth0,udp=9000-9010,src=10.0.0.0/8,vlan=7,queue=2,queues=3,"
				    "ring=1024,mode=generic",
		&spec, why));
	assert_string_equal(spec.interface, "eth0");
	assert_int_equal(spec.rule_count, 1);
	assert_int_equal(rule->action, FILTER_REDIRECT);
	assert_int_equal(rule->protocol, IPPROTO_UDP);
	assert_int_equal(rule->port_min, 9000);
	assert_int_equal(rule->port_max, 9010);
	assert_int_equal(rule->family, 4);
	assert_int_equal(rule->source_bits, 8);
	assert_int_equal(rule->source[0], 10);
	assert_true(rule->vlan_set);
	assert_int_equal(rule->vlan, 7);
	assert_int_equal(spec.port.queue_first, 2);
	assert_int_equal(spec.port.queue_count, 3);
	assert_int_equal(spec.port.ring_entries, 1024);
	assert_int_equal(spec.port.mode_best, XP_GENERIC);
	assert_true(spec.port.mode_only);
	assert_true(flow_spec_parse("xdp:e,tcp=any,dst=2001:db8::/32,vlan=none", &spec, why));
	assert_int_equal(rule->family, 6);
	assert_int_equal(rule->port_max, 0);
	assert_int_equal(rule->vlan, FILTER_VLAN_NONE);
	assert_true(flow_spec_parse("xdp:e,all", &spec, why));
	assert_int_equal(spec.rule_count, 1);
	assert_true(flow_spec_parse("xdp:e,queue=1", &spec, why));
	assert_int_equal(spec.rule_count, 0); /* the rule does not say which packets to take */
}

static void packets_are_refused(void **state)
{
	static const struct {
		const char *text, *words;
	} cases[] = {{"eth0,all", "not of the form xdp:"}, {"xdp:,all", "no interface name"},
		{"xdp:a-name-that-is-too-long,all", "no interface name"},
		{"xdp:e,udp", "not of the form name=value"}, {"xdp:e,udp=", "no such value"},
		{"xdp:e,udp=0", "no such value"}, {"xdp:e,udp=65536", "no such value"},
		{"xdp:e,udp=9-8", "no such value"}, {"xdp:e,udp=-1", "no such value"},
		{"xdp:e,proto=0", "no such value"}, {"xdp:e,proto=256", "no such value"},
		{"xdp:e,src=1.2.3", "no such value"}, {"xdp:e,src=1.2.3.4/33", "no such value"},
		{"xdp:e,src=1.2.3.4,dst=::1", "no such value"},
		{"xdp:e,vlan=4095", "no such value"}, {"xdp:e,ring=1000", "no such value"},
		{"xdp:e,ring=32", "no such value"}, {"xdp:e,queues=0", "no such value"},
		{"xdp:e,mode=fast", "no such value"}, {"xdp:e,colour=red", "no such option"}};
	struct flow_spec spec;

	(void)state;
	for (uint32_t i = 0; i < ARRAY_LEN(cases); i++) {
		assert_false(flow_spec_parse(cases[i].text, &spec, why));
		if (!strstr(why, cases[i].words))
			fail_msg("%s: %s", cases[i].text, why);
	}
}

static bool rules_of(const char *text, struct flow_spec *spec)
{
	char path[600];
	FILE *file;
	bool good;

	snprintf(path, sizeof(path), "%s/nebulaio-rules-%d",
		getenv("TMPDIR") ? getenv("TMPDIR") : ".", getpid());
	file = fopen(path, "w");
	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
	good = flow_rules_load(path, spec, why);
	unlink(path);
	return good;
}

static void rules_come_in_files(void **state)
{
	struct flow_spec spec = {0};

	(void)state;
	assert_true(rules_of("# all of these\n\ndrop udp=53\n pass\tsrc=10.0.0.1 # but not him\n"
			     "count tcp=any\nredirect vlan=3,udp=1-5\n",
		&spec));
	assert_int_equal(spec.rule_count, 4);
	assert_int_equal(spec.rules[0].action, FILTER_DROP);
	assert_int_equal(spec.rules[1].action, FILTER_PASS);
	assert_int_equal(spec.rules[2].action, FILTER_COUNT);
	assert_int_equal(spec.rules[3].vlan, 3);
	assert_int_equal(spec.rules[3].port_max, 5);
	assert_false(rules_of("drop udp=53\ntake udp=5\n", &spec));
	assert_non_null(strstr(why, ":2: "));
	assert_int_equal(spec.rule_count, 4); /* a bad file changes nothing */
	assert_false(rules_of("drop colour=red\n", &spec));
	assert_non_null(strstr(why, "no such match"));
	assert_false(rules_of("drop udp\n", &spec));
	assert_false(flow_rules_load("/nonexistent/rules", &spec, why));
	assert_non_null(strstr(why, "No such file"));
}

static void names_have_times(void **state)
{
	const uint64_t time_ns = 1767323045ull * NS_PER_S; /* 2026-01-02 03:04:05 UTC */
	char name[64];

	(void)state;
	assert_true(flow_name("feed-%t-%n.pcapng", time_ns, 12, name, sizeof(name)));
	assert_string_equal(name, "feed-20260102T030405Z-12.pcapng");
	assert_true(flow_name("%Y/%j%%", time_ns, 1, name, sizeof(name)));
	assert_string_equal(name, "2026/002%");
	assert_false(flow_name("", time_ns, 1, name, sizeof(name)));
	assert_false(flow_name("%t%t%t%t%t", time_ns, 1, name, sizeof(name)));
}

static void ends_are_named(void **state)
{
	struct flow_end_spec end;

	(void)state;
	assert_true(
		flow_end_parse("rdma:192.0.2.1:9200,record=64K,wait=5,timeout=7,device=mlx5_0:1",
			true, &end, why));
	assert_int_equal(end.kind, FLOW_RDMA);
	assert_string_equal(end.address, "192.0.2.1");
	assert_int_equal(end.port, 9200);
	assert_false(end.listen);
	assert_int_equal(end.record_bytes, 65536);
	assert_int_equal(end.wait_ns, 5 * NS_PER_S);
	assert_int_equal(end.timeout_ns, 7 * NS_PER_S);
	assert_string_equal(end.device, "mlx5_0:1");
	assert_true(flow_end_parse("rdma::0", false, &end, why));
	assert_true(end.listen);
	assert_true(flow_end_parse("rdma:[2001:db8::1]:9200,listen", false, &end, why));
	assert_string_equal(end.address, "2001:db8::1");
	assert_true(end.listen);
	assert_true(flow_end_parse("disk:/dev/sda,offset=8K,bytes=3M", true, &end, why));
	assert_string_equal(end.path, "/dev/sda");
	assert_int_equal(end.offset, 8192);
	assert_int_equal(end.bytes, 3 * MIB);
	assert_true(flow_end_parse("nvme:/dev/ng0n1", false, &end, why));
	assert_int_equal(end.kind, FLOW_DISK);
	assert_true(flow_end_parse("disk:a,b", false, &end, why));
	assert_string_equal(end.path, "a,b");
	assert_true(flow_end_parse("s3://bucket/a/key", true, &end, why));
	assert_string_equal(end.path, "bucket");
	assert_string_equal(end.key, "a/key");
	assert_true(flow_end_parse("null:", false, &end, why));
	assert_int_equal(end.kind, FLOW_NULL);
	assert_true(flow_end_parse("some/file", true, &end, why));
	assert_int_equal(end.kind, FLOW_FILE);
}

static void ends_are_refused(void **state)
{
	static const char *const texts[] = {"rdma:", "rdma:host", "rdma:host:0", "rdma:host:65536",
		"rdma:host:x", "rdma:a:b:1", "rdma:h:1,record=5000", "rdma:h:1,record=2M",
		"rdma:h:1,record=0", "rdma:h:1,wait=-1", "rdma:h:1,timeout=0",
		"rdma:h:1,device=", "rdma:h:1,colour=red", "rdma:h:1,colour",
		"disk:", "disk:x,offset=100", "disk:x,bytes=0", "disk:x,bytes=3T", "disk:x,what",
		"s3://bucket", "s3://bucket/", "", "s3s://bucket/key", "rmda:host:1",
		"dsk:/dev/sda", "http://host/x", "nul:"};
	struct flow_end_spec end = {.port = 42};
	char long_text[4000];

	(void)state;
	for (uint32_t i = 0; i < ARRAY_LEN(texts); i++) {
		if (flow_end_parse(texts[i], true, &end, why))
			fail_msg("'%s' was taken", texts[i]);
	}
	/* A file may still have such a name. */
	assert_true(flow_end_parse("./rmda:host:1", true, &end, why));
	assert_true(flow_end_parse("/tmp/a:b", true, &end, why));
	end.port = 42;
	memset(long_text, 'x', sizeof(long_text) - 1);
	long_text[sizeof(long_text) - 1] = '\0';
	assert_false(flow_end_parse(long_text, true, &end, why));
	memcpy(long_text, "rdma:", 5);
	long_text[1000] = '\0';
	assert_false(flow_end_parse(long_text, true, &end, why));
	assert_int_equal(end.port, 42);
}

static void amounts_have_bounds(void **state)
{
	uint64_t amount = 0;

	(void)state;
	assert_true(flow_amount_parse("17179869183G", &amount));
	assert_false(flow_amount_parse("17179869184G", &amount));
	assert_false(flow_amount_parse("18446744073709551616", &amount));
	assert_false(flow_amount_parse("1KB", &amount));
	assert_false(flow_amount_parse("-1", &amount));
	assert_false(flow_amount_parse("+1", &amount));
	assert_false(flow_amount_parse("", &amount));
	assert_true(flow_amount_parse("0", &amount));
	assert_int_equal(amount, 0);
}

static uint32_t asked;

/* Those up to *arg are taken, and 7. */
static bool taken(void *arg, uint32_t number)
{
	asked++;
	return number <= *(uint32_t *)arg || number == 7;
}

static void numbers_that_are_taken(void **state)
{
	const uint32_t LAST[] = {0, 1, 2, 3, 4, 8, 1000, 4000000000u};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(LAST); i++) {
		uint32_t last = LAST[i], number;

		asked = 0;
		number = flow_number_free(1, taken, &last);
		assert_true(number > last && number != 7);
		assert_int_equal(number, last + 1);
		assert_true(asked <= 70);
		assert_int_equal(flow_number_free(last + 9, taken, &last), last + 9);
	}
	assert_int_equal(flow_number_free(7, taken, &(uint32_t){0}), 8);
	assert_true(flow_name_counts("feed-%n.pcapng"));
	assert_true(flow_name_counts("%t%%%n"));
	assert_false(flow_name_counts("feed-%t%%n-%d"));
	assert_false(flow_name_counts("n%"));
	assert_false(flow_name_counts(""));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(packets_are_named),
		cmocka_unit_test(packets_are_refused),
		cmocka_unit_test(rules_come_in_files),
		cmocka_unit_test(names_have_times),
		cmocka_unit_test(ends_are_named),
		cmocka_unit_test(ends_are_refused),
		cmocka_unit_test(amounts_have_bounds),
		cmocka_unit_test(numbers_that_are_taken),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
