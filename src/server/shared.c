/* server/shared.c: opens what all cores share: the place on the host, the RDMA device, the region,
 * the store with its keys, and S3. */
#include <errno.h>
#include <string.h>

#include "flow/fan_out.h"
#include "s3/vault.h"
#include "server/identities.h"
#include "server/keys.h"
#include "server/recovery.h"
#include "server/resources.h"
#include "server/server_priv.h"
#include "server/volumes.h"
#include "store/local.h"

/* Chooses the server's NUMA node and the number of event loops. */
int server_place(struct server *server)
{
	const struct config *config = &server->config;
	struct numa_plan *numa = &server->numa;
	int ret = numa_plan(config, "/sys", numa);
	uint32_t cpus;

	cgroup_limits_read("", &server->limits);
	resources_share(&server->config, &server->limits, resources_host_memory());
	cpus = MIN(numa->cpu_count, server->limits.cpus);
	if (cpus < numa->cpu_count)
		log_info("server",
			"the control group's quota is %u of %u processors: event loops and their "
			"spinning keep to it",
			cpus, numa->cpu_count);
	server->core_count = MIN(MAX(cpus, 2u) - 1, LIMIT_CORES_MAX);
	if (config->cpu.reactors)
		server->core_count = (uint32_t)config->cpu.reactors;
	if (ret) {
		log_error("server", "numa: %s", numa->why);
		return ret;
	}
	if (config->cpu.pin && server->core_count > numa->cpu_count) {
		log_error("server",
			"cpu.pin: %u event loops, but only %u processors are allowed: lower "
			"cpu.reactors or set cpu.pin: false",
			server->core_count, numa->cpu_count);
		return -EINVAL;
	}
	if (strcmp(config->numa.node, "auto") == 0) /* hardware_check reported a named node */
		log_info("server", "numa.node: %s", numa->why);
	numa_apply(numa);
	return 0;
}

struct rp_open_opts server_device_opts(const struct config *config)
{
	return (struct rp_open_opts){
		.device_name = config->rdma.device_name,
		.ib_port = (uint8_t)config->rdma.ib_port,
		.gid_index = (int)config->rdma.gid_index,
		.address = config->rdma.address,
		.traffic_class = (uint8_t)(config->rdma.traffic_class < 0
						   ? (int64_t)config->network.dscp << 2
						   : config->rdma.traffic_class),
		.service_level = (uint8_t)config->rdma.service_level,
		.path_mtu = (uint32_t)config->rdma.path_mtu,
	};
}

int server_open_device(struct server *server)
{
	const struct config *config = &server->config;
	const struct rp_open_opts opts = server_device_opts(config);
	int ret;

	if (!config->rdma.enabled)
		return 0;
	ret = rp_open(&opts, &server->device);
	if (ret) {
		log_error("server",
			"rdma.device_name: cannot open '%s': %s; name an existing device, or "
			"`simulated` to try without hardware, or set rdma.enabled: false",
			config->rdma.device_name, strerror(-ret));
		return ret;
	}
	rp_device_attr(server->device, &server->device_attr);
	return paths_open(config, &opts, &server->paths);
}

int server_open_store(struct server *server)
{
	const struct config *config = &server->config;
	const struct region_opts region_opts = {
		.name = "nebulaio",
		.bytes = config->memory.bytes,
		.bytes_max = config->memory.bytes_max,
		.core_count = server->core_count,
		.huge_pages = config->memory.huge_pages,
		.numa_bind = server->numa.memory_node >= 0,
		.numa_node = (uint32_t)MAX(server->numa.memory_node, 0),
		.numa_only = config->numa.memory_only,
	};
	struct store_opts store_opts;
	int ret = region_open(&region_opts, &server->region);

	if (ret) {
		log_error("server", "no memory region of %llu MiB: %s; lower memory.bytes",
			(unsigned long long)(config->memory.bytes / MIB), strerror(-ret));
		return ret;
	}
	resources_compare(&server->config, &server->limits);
	ret = flow_budget_open(server->region, &server->budget);
	if (ret)
		return ret;
	volumes_store_opts(config, &store_opts);
	store_opts.index_files_max = server->files.index;
	ret = store_open(&store_opts, server->region, &server->store);
	if (ret)
		log_error("server", "cannot open the store in %s: %s", config->data.dir,
			strerror(-ret));
	memory_init(&server->memory, &(struct memory_opts){.config = config,
					     .region = server->region,
					     .store = server->store,
					     .draining = &server->draining,
					     .root = ""});
	return ret;
}

/* The key files: made for a fresh store, or made again from their sealed copies. */
static int open_keys(const struct config *config, struct store *store,
	uint8_t ret_secrets_key[IDENTITIES_KEY_BYTES], char ret_keys[KEYS_BYTES_MAX])
{
	struct recovery_paths paths;
	struct config_error error;
	struct store_usage usage;
	bool fresh;
	int ret;

	recovery_paths(config, &paths);
	store_usage(store, &usage);
	fresh = !usage.buckets && !usage.objects;
	ret = recovery_restore(config, store, paths.files, ARRAY_LEN(paths.files));
	if (ret)
		return ret;
	ret = identities_key(paths.secrets, fresh, ret_secrets_key, &error);
	if (ret) {
		log_error("server", "%s", error.text);
		return ret;
	}
	ret = keys_read(config, fresh, ret_keys);
	return ret ? ret : recovery_keep(config, store, paths.files, ARRAY_LEN(paths.files));
}

static struct flow_cast_opts multicast_opts(const struct config *config)
{
	return (struct flow_cast_opts){
		.device = server_device_opts(config),
		.group = config->rdma.enabled ? config->fan_out.multicast : "",
		.rate = config->fan_out.multicast_rate,
	};
}

int server_open_s3(struct server *server)
{
	const struct config *config = &server->config;
	uint8_t secrets_key[IDENTITIES_KEY_BYTES];
	char keys[KEYS_BYTES_MAX];
	struct config_error error;
	int ret;
	const struct s3_vault_opts vault = {
		.address = config->encryption.kms.vault.address,
		.token_file = config->encryption.kms.vault.token_file,
		.mount = config->encryption.kms.vault.mount,
		.keys = config->encryption.kms.vault.keys,
		.ca_file = config->encryption.kms.vault.ca_file,
		.cache_s = (uint32_t)config->encryption.kms.vault.cache_seconds,
	};
	const struct flow_cast_opts multicast = multicast_opts(config);
	const struct s3_opts opts = {
		.store_id = store_id(server->store),
		.names = names_of(server->names),
		.vault = &vault,
		.secrets_key = secrets_key,
		.root_access_key = config->auth.root_user,
		.root_secret_key = config->auth.root_password,
		.region = config->s3.region,
		.express = config->s3_express.enabled,
		.host_domain = config->s3.domain[0] ? config->s3.domain : NULL,
		.website_domain = config->s3.website_domain,
		.access_log_flush_s = (uint32_t)config->logging.flush_seconds,
		.notify_targets = config->notification.targets,
		.notify_topics = config->notification.topics,
		.web_identity = config->auth.web_identity,
		.notify_log_file = config->notification.log_file,
		.notify_queue_events = (uint32_t)config->notification.queue_events,
		.notify_queue_bytes = config->notification.queue_bytes,
		.notify_retry_s = (uint32_t)config->notification.retry_seconds,
		.fan_out_patience_ns = config->fan_out.patience_s * NS_PER_S,
		.multicast = &multicast,
		.encryption_keys = keys,
		.kms_keys = config->encryption.kms.keys,
		.kms_default_key = config->encryption.kms.default_key,
		.replication_minute_s = (uint32_t)config->replication.minute_seconds,
		.lifecycle_day_s = (uint32_t)config->lifecycle.day_seconds,
		.signature_v2 = config->s3.signature_v2,
		.closed_buckets = strcmp(config->s3.new_buckets, "closed") == 0,
		.encrypted_buckets = config_encrypts_new_buckets(config),
		.decline_by_draft = strcmp(config->rdma.decline, "aws-draft") == 0,
	};

	ret = open_keys(config, server->store, secrets_key, keys);
	if (!ret && config->auth.accounts_file[0]) {
		ret = identities_load(config->auth.accounts_file, &server->accounts_json, &error);
		if (ret)
			log_error("server", "%s", error.text);
	}
	if (ret) {
		secret_wipe(keys, sizeof(keys));
		secret_wipe(secrets_key, sizeof(secrets_key));
		return ret;
	}
	ret = s3_open(&opts, server->store, &server->s3);
	if (ret == -EINVAL)
		log_error("server",
			"encryption: the key file or the names of KMS keys cannot be used");
	secret_wipe(keys, sizeof(keys));
	secret_wipe(secrets_key, sizeof(secrets_key));
	return ret;
}
