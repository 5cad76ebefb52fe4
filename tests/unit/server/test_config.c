#include "../unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/config.h"

static struct config config;
static struct config_error error;

static int load(const char *yaml)
{
	char path[] = "/tmp/nebulaio-config-XXXXXX";
	int fd = mkstemp(path);
	int ret;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, yaml, strlen(yaml)), strlen(yaml));
	close(fd);
	config_defaults(&config);
	error.text[0] = '\0';
	ret = config_load_file(&config, path, &error);
	unlink(path);
	return ret;
}

static void assert_says(const char *part)
{
	if (!strstr(error.text, part))
		fail_msg("the error says \"%s\", not \"%s\"", error.text, part);
}

static void test_the_documents_blocks_load(void **state)
{
	(void)state;
	assert_int_equal(load("rdma:\n"
			      "  enabled: true\n"
			      "  port: 9100\n"
			      "  device_name: mlx5_0\n"
			      "  ib_port: 1                    # InfiniBand port\n"
			      "  gid_index: 0                  # GID table index (for RoCE)\n"
			      "  enable_zero_copy: true\n"
			      "  max_send_wr: 256\n"
			      "  max_recv_wr: 64\n"
			      "  max_sge: 4\n"
			      "  cq_size: 512\n"
			      "log_level: debug\n"
			      "gpudirect:\n"
			      "  enabled: true\n"
			      "dpu:\n"
			      "  enabled: true\n"
			      "  enable_rdma: true\n"
			      "  enable_crypto: true\n"
			      "network:\n"
			      "  pfc:\n"
			      "    enabled: true\n"
			      "    priority: 3\n"
			      "  ecn:\n"
			      "    enabled: true\n"
			      "    threshold: 100  # packets\n"
			      "  dscp: 26  # AF31\n"
			      "  mtu: 9000\n"),
		0);
	assert_true(config.gpudirect.enabled && config.dpu.enable_crypto);
	assert_int_equal(config.network.mtu, 9000);
	assert_true(config.rdma.enabled);
	assert_string_equal(config.rdma.device_name, "mlx5_0");
	assert_int_equal(config.rdma.max_send_wr, 256);
	assert_int_equal(config.rdma.max_recv_wr, 64);
	assert_int_equal(config.rdma.cq_size, 512);
	assert_int_equal(config.rdma.gid_index, 0);
	assert_string_equal(config.log_level, "debug");
}

static void test_defaults(void **state)
{
	(void)state;
	config_defaults(&config);
	assert_false(config.rdma.enabled);
	assert_int_equal(config.rdma.port, 9100);
	assert_int_equal(config.rdma.gid_index, -1);
	assert_int_equal(config.data.reserve_bytes, 256 * MIB);
	assert_string_equal(config.http.address, "127.0.0.1:9000");
}

static void test_refusals_name_their_line(void **state)
{
	(void)state;
	assert_int_equal(load("rdma:\n  enabled: true\n  cq_szie: 4\n"), -EINVAL);
	assert_says(":3: no key 'rdma.cq_szie'");
	assert_int_equal(
		load("rdma:\n  port: 1\nhttp:\n  address: a:1\nrdma:\n  port: 2\n"), -EINVAL);
	assert_says(":6: rdma.port appears twice in the file");
	assert_true(CONFIG_KEY_COUNT <= 512);
	assert_int_equal(load("rdma:\n  cq_size: many\n"), -EINVAL);
	assert_says(":2: rdma.cq_size: 'many' is not a number");
	assert_int_equal(load("rdma:\n  cq_size: 1\n"), -EINVAL);
	assert_says("out of range; it takes 16 to");
	assert_int_equal(load("rdma: [1, 2]\n"), -EINVAL);
	assert_says("lists and aliases");
	assert_int_equal(load("rdma:\n\tenabled: true\n"), -EINVAL);
	assert_says("not YAML");
	assert_int_equal(load("just text\n"), -EINVAL);
	assert_says("expected 'key: value'");
	assert_int_equal(load("log_level: loud\n"), -EINVAL);
	assert_says("'loud' is not one of trace|debug");
	assert_int_equal(load("http:\n  idle_timeout_s: -1\n"), -EINVAL);
	assert_int_equal(load("network:\n  mtu: 90000\n"), -EINVAL);
	assert_int_equal(load("rdma:\n  enable_zero_copy: false\n"), -EINVAL);
	assert_says("nothing to switch off");
	assert_int_equal(load("a: {b: {c: {d: {e: {f: {g: {h: {i: 1}}}}}}}}\n"), -EINVAL);
	assert_says("nested too deeply");
	assert_int_equal(config_load_file(&config, "/nonexistent/file", &error), -ENOENT);
	assert_says("cannot be read");
}

/* The development keys are public, whether they are configured or defaults. */
static void test_known_keys_stay_on_loopback(void **state)
{
	static const char *const FAR[] = {"0.0.0.0:9001", ":9001", "[::]:9001", "10.0.0.1:9001",
		"127.0.0.1.example.com:9001", "localhost.example.com:9001"};
	static const char *const NEAR[] = {
		"127.0.0.1:9001", "127.8.7.6:1", "[::1]:9001", "localhost:9001", ""};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(FAR); i++) {
		config_defaults(&config);
		strcpy(config.admin.address, FAR[i]);
		assert_int_equal(config_check(&config, true, &error), -EINVAL);
		assert_says("loopback only");
		assert_says("admin.address");
		strcpy(config.auth.root_user, "minioadmin");
		strcpy(config.auth.root_password, "minioadmin");
		assert_int_equal(config_check(&config, false, &error), -EINVAL);
		assert_says("loopback only");
		strcpy(config.auth.root_password, "minioadmin2");
		assert_int_equal(config_check(&config, false, &error), 0);
	}
	for (size_t i = 0; i < ARRAY_LEN(NEAR); i++) {
		config_defaults(&config);
		strcpy(config.admin.address, NEAR[i]);
		assert_int_equal(config_check(&config, true, &error), 0);
	}
}

/* All reasons are reported, so that an operator can fix them in one step. */
static void test_an_owner_in_etcd_needs_volumes_of_other_hosts(void **state)
{
	(void)state;
	config_defaults(&config);
	strcpy(config.cluster.etcd, "http://a:2379, https://b:2379/");
	strcpy(config.storage.volumes, "rdma://h/a, rdma://i/b");
	config.storage.protect_index = true;
	assert_int_equal(config_check(&config, true, &error), 0);
	config.storage.protect_index = false;
	config.cluster.enabled = true;
	strcpy(config.cluster.etcd, "a:2379");
	strcpy(config.cluster.etcd_key, "/key");
	strcpy(config.storage.volumes, "rdma://h/a,/b");
	assert_int_equal(config_check(&config, true, &error), -EINVAL);
	assert_says("is not a list of at most 8 endpoints");
	assert_says("cluster.etcd and cluster.enabled are both set");
	assert_says("all volumes must be of other hosts");
	assert_says("storage.protect_index");
	assert_says("cluster.etcd_certificate and cluster.etcd_key");
}

static void test_all_reasons_are_told_at_once(void **state)
{
	(void)state;
	config_defaults(&config);
	strcpy(config.http.address, "0.0.0.0:9000");
	strcpy(config.admin.address, "0.0.0.0:9001");
	config.rdma.enabled = true;
	config.memory.cache_bytes = config.memory.bytes;
	config.storage.erasure.parity = config.storage.erasure.data;
	strcpy(config.numa.node, "x");
	strcpy(config.storage.volumes, "/a,rados://pool/b");
	strcpy(config.numa.memory_node, "1x");
	strcpy(config.storage.log, "dax0.0");
	assert_int_equal(config_check(&config, true, &error), -EINVAL);
	assert_says("storage.log and storage.volumes are both set");
	assert_says("storage.log: 'dax0.0' is no whole path");
	assert_says("numa.memory_node: '1x'");
	assert_says("a volume rados://… cannot be a member of an array");
	assert_says("http.address '0.0.0.0:9000'");
	assert_says("admin.address '0.0.0.0:9001'");
	assert_says("rdma.address ''");
	assert_says("three quarters");
	assert_says("storage.erasure.parity");
	assert_says("numa.node: 'x'");
}

static void test_the_console_at_a_provider(void **state)
{
	(void)state;
	config_defaults(&config);
	assert_int_equal(
		load("console:\n  openid:\n    issuer: id.example.com\nauth:\n  root_user: "
		     "nebula\n  root_password: long-enough\n"),
		0);
	assert_int_equal(config_check(&config, false, &error), -EINVAL);
	assert_says("'id.example.com' is not a URL");
	assert_says("console.openid.client_id");
	assert_says("console.openid.role_claim, and not both");
	strcpy(config.console.openid.client_id, "console");
	strcpy(config.console.openid.role, "arn:aws:iam::111122223333:role/console");
	strcpy(config.console.openid.issuer, "http://id.example.com");
	assert_int_equal(config_check(&config, false, &error), -EINVAL);
	assert_says("auth.web_identity is public");
	strcpy(config.console.openid.issuer, "https://id.example.com");
	assert_int_equal(config_check(&config, false, &error), 0);
	strcpy(config.console.openid.role_claim, "roles");
	strcpy(config.console.openid.client_secret, "secret");
	strcpy(config.console.openid.client_secret_file, "secret");
	assert_int_equal(config_check(&config, false, &error), -EINVAL);
	assert_says("and not both");
	assert_says("set only one of them");
	config.console.openid.role_claim[0] = config.console.openid.client_secret_file[0] = '\0';
	strcpy(config.auth.web_identity, "none");
	assert_int_equal(config_check(&config, false, &error), -EINVAL);
	assert_says("auth.web_identity is none");
}

/* Names of the operator's that are as long as they may be fill the text. */
static void test_more_reasons_than_fit(void **state)
{
	static struct {
		struct config_error error;
		char behind[sizeof(error.text)];
	} full;

	(void)state;
	memset(full.behind, '#', sizeof(full.behind));
	config_defaults(&config);
	memset(config.cluster.etcd, 'x', sizeof(config.cluster.etcd) - 1);
	assert_int_equal(config_check(&config, true, &full.error), -EINVAL);
	assert_int_equal(strlen(full.error.text), sizeof(full.error.text) - 1);
	for (size_t i = 0; i < sizeof(full.behind); i++)
		assert_int_equal(full.behind[i], '#');
}

static void test_the_console(void **state)
{
	(void)state;
	config_defaults(&config);
	assert_string_equal(config.console.address, "127.0.0.1:9002");
	assert_int_equal(load("console:\n  session_s: 899\n"), -EINVAL);
	assert_int_equal(load("console:\n  session_s: 43201\n"), -EINVAL);
	config_defaults(&config);
	assert_int_equal(
		load("console:\n  https: true\n  s3_url: s3.example.com\nauth:\n  root_user: "
		     "abc\n  root_password: abcdefgh\n"),
		0);
	assert_int_equal(config_check(&config, false, &error), -EINVAL);
	assert_says("console.https");
	assert_says("console.s3_url");
	strcpy(config.https.certificate, "a");
	strcpy(config.https.key, "b");
	strcpy(config.console.s3_url, "https://s3.example.com");
	assert_int_equal(config_check(&config, false, &error), 0);
	strcpy(config.auth.root_user, CONFIG_DEVELOPMENT_KEY);
	strcpy(config.auth.root_password, CONFIG_DEVELOPMENT_KEY);
	strcpy(config.console.address, "0.0.0.0:9002");
	assert_int_equal(config_check(&config, false, &error), -EINVAL);
	assert_says("console.address '0.0.0.0:9002'");
}

static void test_the_cache_follows_the_memory(void **state)
{
	(void)state;
	assert_int_equal(load("memory:\n  bytes: 64MiB\n"), 0);
	assert_int_equal(config_check(&config, true, &error), 0);
	assert_true(config_cache_bytes(&config) == 32 * MIB);
	assert_int_equal(load("memory:\n  bytes: 64MiB\n  cache_bytes: 60MiB\n"), 0);
	assert_int_equal(config_check(&config, true, &error), -EINVAL);
	assert_says("lower it to 48MiB");
	assert_int_equal(load("memory:\n  bytes: 64MiB\n  buckets_bytes: 16MiB\n"), 0);
	assert_true(config_cache_bytes(&config) == 24 * MIB);
	assert_int_equal(config_check(&config, true, &error), 0);
	assert_int_equal(load("memory:\n  bytes: 64MiB\n  buckets_bytes: 40MiB\n"), 0);
	assert_int_equal(config_check(&config, true, &error), -EINVAL);
	assert_says("memory.buckets_bytes and the cache together");
	assert_int_equal(load("memory:\n  cache_bytes: 0\n"), 0);
	assert_true(config_cache_bytes(&config) == 0);
	assert_int_equal(load("memory:\n  bytes: auto\n"), -EINVAL);
}

static void test_a_session_fits_its_queue_pair(void **state)
{
	(void)state;
	config_defaults(&config);
	assert_int_equal(config_session_requests(&config), 64);
	assert_int_equal(load("rdma:\n  max_recv_wr: 32768\n"), 0);
	assert_int_equal(config_session_requests(&config), LIMIT_SESSION_REQUESTS_MAX);
	assert_int_equal(load("rdma:\n  max_recv_wr: 8\n  session_requests: 6\n"), 0);
	assert_int_equal(config_session_requests(&config), 6);
	assert_int_equal(config_check(&config, true, &error), 0);
	assert_int_equal(load("rdma:\n  max_recv_wr: 8\n  session_requests: 7\n"), 0);
	assert_int_equal(config_check(&config, true, &error), -EINVAL);
	assert_says("lower it to 6, or raise rdma.max_recv_wr to 9");
}

static void test_sizes(void **state)
{
	(void)state;
	assert_int_equal(load("memory:\n  bytes: 2 GiB\n  cache_bytes: 512mib\n"), 0);
	assert_true(config.memory.bytes == 2 * GIB);
	assert_true(config.memory.cache_bytes == 512 * MIB);
	assert_int_equal(load("memory:\n  bytes: 64MB\n"), -EINVAL);
	assert_says("is not a size");
	assert_int_equal(load("memory:\n  bytes: 99999999999999999999GiB\n"), -EINVAL);
}

static void test_environment(void **state)
{
	char *good[] = {"NEBULAIO_RDMA_ENABLED=true", "NEBULAIO_RDMA_PORT=9200",
		"NEBULAIO_RDMA_DEVICE_NAME=simulated", "NEBULAIO_ROOT_USER=someone",
		"NEBULAIO_ENDPOINT=http://x", "NEBULAIO_ADMIN_ENDPOINT=http://y",
		"NEBULAIO_REQUEST_TIMEOUT_S=9", "NEBULAIO_CONNECT_TIMEOUT_S=9",
		"NEBULAIO_TARGET_REGION=eu-central-1", "NEBULAIO_TARGET_SECRET_KEY=s",
		"NEBULAIO_COMPARE_ACCESS_KEY=a", "NEBULAIO_CONNECT_TO=a:1=b:2", "PATH=/bin", NULL};
	char *unknown[] = {"NEBULAIO_RDMA_PROT=9200", NULL};
	char *bad[] = {"NEBULAIO_RDMA_PORT=nine", NULL};

	(void)state;
	config_defaults(&config);
	assert_int_equal(config_load_env(&config, good, &error), 0);
	assert_true(config.rdma.enabled);
	assert_int_equal(config.rdma.port, 9200);
	assert_string_equal(config.rdma.device_name, "simulated");
	assert_string_equal(config.auth.root_user, "someone");
	assert_int_equal(config_load_env(&config, unknown, &error), -EINVAL);
	assert_says("NEBULAIO_RDMA_PROT: no such configuration key");
	assert_int_equal(config_load_env(&config, bad, &error), -EINVAL);
	assert_says("NEBULAIO_RDMA_PORT: rdma.port: 'nine' is not a number");
}

static void test_rules_of_the_whole(void **state)
{
	(void)state;
	config_defaults(&config);
	assert_int_equal(config_check(&config, true, &error), 0);
	assert_int_equal(config_check(&config, false, &error), -EINVAL);
	assert_says("auth.root_user needs");
	strcpy(config.auth.root_user, "admin");
	strcpy(config.auth.root_password, "longenough");
	assert_int_equal(config_check(&config, false, &error), 0);
	strcpy(config.http.address, "0.0.0.0:9000");
	assert_int_equal(config_check(&config, false, &error), 0);
	assert_int_equal(config_check(&config, true, &error), -EINVAL);
	assert_says("loopback only");
	strcpy(config.http.address, "");
	assert_int_equal(config_check(&config, false, &error), -EINVAL);
	assert_says("would listen nowhere");
	config_defaults(&config);
	config.memory.cache_bytes = config.memory.bytes;
	assert_int_equal(config_check(&config, true, &error), -EINVAL);
	assert_says("three quarters");
}

/* Settings of queue pairs. */
static void test_rdma_keys(void **state)
{
	static const struct {
		const char *key, *value, *says; /* NULL: accepted */
	} cases[] = {
		{"rdma.path_mtu", "2048", NULL},
		{"rdma.path_mtu", "4097", "rdma.path_mtu"},
		{"rdma.service_level", "15", NULL},
		{"rdma.service_level", "16", "rdma.service_level"},
		{"rdma.traffic_class", "106", NULL},
		{"rdma.traffic_class", "-1", NULL},
		{"rdma.traffic_class", "256", "rdma.traffic_class"},
		{"rdma.retry_count", "0", NULL},
		{"rdma.retry_count", "8", "rdma.retry_count"},
		{"rdma.rnr_retry", "8", "rdma.rnr_retry"},
		{"rdma.timeout", "24", NULL},
		{"rdma.timeout", "0", "rdma.timeout"},
		{"rdma.max_sge", "0", "rdma.max_sge"},
		{"rdma.ib_port", "255", "rdma.ib_port"},
		{"rdma.gid_index", "-2", "rdma.gid_index"},
		{"rdma.max_inline_data", "512", NULL},
		{"rdma.max_inline_data", "513", "rdma.max_inline_data"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		config_defaults(&config);
		assert_int_equal(config_set(&config, cases[i].key, cases[i].value, "--set", &error),
			cases[i].says ? -EINVAL : 0);
		if (cases[i].says)
			assert_says(cases[i].says);
		else
			assert_int_equal(config_check(&config, true, &error), 0);
	}
	config_defaults(&config);
	config.rdma.path_mtu = 1000;
	assert_int_equal(config_check(&config, true, &error), -EINVAL);
	assert_says("rdma.path_mtu: 1000 is not an RDMA MTU");
}

/* HTTPS is on by default only if the server may make its own certificate, and the configuration
 * does not say otherwise. */
static void test_https(void **state)
{
	(void)state;
	config_defaults(&config);
	assert_string_equal(config.https.address, "");
	config_embed(&config, false);
	assert_string_equal(config.https.address, "");
	assert_false(config.rdma.enabled); /* as documented in its key's help */
	config_embed(&config, true);
	assert_string_equal(config.https.address, "127.0.0.1:9443");
	assert_true(config.rdma.enabled);
	assert_int_equal(config_check(&config, true, &error), 0);
	strcpy(config.https.address, "0.0.0.0:9443");
	assert_int_equal(config_check(&config, true, &error), -EINVAL);
	assert_says("https.address '0.0.0.0:9443'");
	strcpy(config.auth.root_user, "admin");
	strcpy(config.auth.root_password, "longenough");
	assert_int_equal(config_check(&config, false, &error), -EINVAL);
	assert_says("https.certificate and https.key");
	strcpy(config.https.key, "key.pem");
	assert_int_equal(config_check(&config, false, &error), -EINVAL);
	assert_says("https.key is set, but https.certificate is not");
	strcpy(config.https.certificate, "certificate.pem");
	assert_int_equal(config_check(&config, false, &error), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_documents_blocks_load),
		cmocka_unit_test(test_defaults),
		cmocka_unit_test(test_refusals_name_their_line),
		cmocka_unit_test(test_a_session_fits_its_queue_pair),
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_known_keys_stay_on_loopback),
		cmocka_unit_test(test_an_owner_in_etcd_needs_volumes_of_other_hosts),
		cmocka_unit_test(test_all_reasons_are_told_at_once),
		cmocka_unit_test(test_more_reasons_than_fit),
		cmocka_unit_test(test_the_console),
		cmocka_unit_test(test_the_console_at_a_provider),
		cmocka_unit_test(test_the_cache_follows_the_memory),
		cmocka_unit_test(test_environment),
		cmocka_unit_test(test_rules_of_the_whole),
		cmocka_unit_test(test_rdma_keys),
		cmocka_unit_test(test_https),
	};

	return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
