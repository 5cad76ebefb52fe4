/* server/config.h: the server's configuration, from defaults, then the YAML file, then environment
 * variables, then the command line; later sources win. Every key is in one table (config_table.c)
 * with its type, bounds and help text. */
#ifndef SERVER_CONFIG_H
#define SERVER_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"

#define CONFIG_TEXT_MAX 256
#define CONFIG_LIST_MAX 4000

#define CONFIG_FLOWS_MAX 16u

#define CONFIG_PATHS_MAX	  3u /* beside rdma.address */
#define CONFIG_PATH_ADDRESS_BYTES 64u

/* A flow that runs with the server: `nebulaio flow --from … --to … options`. */
#define CONFIG_FLOW_OPTIONS_BYTES 1024u
struct config_flow {
	char name[32];
	char from[512], to[512];
	char options[CONFIG_FLOW_OPTIONS_BYTES]; /* "--roll-bytes=1G\n--force\n" */
	bool always;				 /* restarted after success, too */
};

struct config {
	char log_level[16];
	char log_format[8];
	char tuning[8];
	struct config_flow flows[CONFIG_FLOWS_MAX];
	uint32_t flow_count;
	struct {
		char dir[CONFIG_TEXT_MAX];
		uint64_t reserve_bytes;
		uint64_t volume_bytes_max;
		uint64_t log_bytes; /* CONFIG_AUTO: the store's default */
		uint64_t inline_bytes_max;
	} data;
	struct {
		char volume[CONFIG_LIST_MAX];  /* "": a file in data.dir */
		char volumes[CONFIG_LIST_MAX]; /* several, separated by commas */
		char log[CONFIG_TEXT_MAX];     /* "": in the volume */
		bool format;
		struct {
			uint64_t data;
			uint64_t parity;
		} erasure;
		struct {
			char secret_file[CONFIG_TEXT_MAX];
			char device_name[CONFIG_TEXT_MAX]; /* "": rdma.device_name */
		} remote;
		struct {
			uint64_t interval_s; /* 0: only when asked */
			uint64_t bytes_per_s;
		} scrub;
		struct {
			uint64_t bytes_per_s;
		} move;
		struct {
			uint64_t bytes_per_s; /* 0: none */
			bool files;
		} discard;
		struct {
			char conf_file[CONFIG_TEXT_MAX];
			char user[CONFIG_TEXT_MAX];
			uint64_t timeout_s;
			uint64_t lease_s;
		} rados;
		bool protect_index;
		char recovery_key_file[CONFIG_TEXT_MAX];
	} storage;
	struct {
		bool standby;
		char etcd[CONFIG_LIST_MAX]; /* endpoints, separated by commas; "": none */
		char etcd_prefix[CONFIG_TEXT_MAX];
		char etcd_user_file[CONFIG_TEXT_MAX];
		char etcd_ca_file[CONFIG_TEXT_MAX];
		char etcd_certificate[CONFIG_TEXT_MAX], etcd_key[CONFIG_TEXT_MAX];
		uint64_t lease_s; /* of the owner in etcd */
		bool enabled;
		char pool[CONFIG_TEXT_MAX], data_pool[CONFIG_TEXT_MAX];
		char name[CONFIG_TEXT_MAX];
		char gateway[CONFIG_TEXT_MAX]; /* "": the host's name */
		char address[CONFIG_TEXT_MAX]; /* where processes of stores listen */
		uint64_t stores;
		uint64_t wait_s;
		uint64_t memory_bytes; /* of the gateway itself */
		bool tls;	       /* between gateways and stores' processes */
		bool spread;
		uint64_t store; /* of a store's own process: its number and 1; 0: not one */
	} cluster;
	struct {
		char address[CONFIG_TEXT_MAX]; /* "ADDR:PORT"; "" switches it off */
		uint64_t idle_timeout_s;
		uint64_t head_timeout_s;
		uint64_t stall_timeout_s;
	} http;
	struct {
		char address[CONFIG_TEXT_MAX];	   /* "ADDR:PORT"; "" switches it off */
		char certificate[CONFIG_TEXT_MAX]; /* "": self-signed, development only */
		char key[CONFIG_TEXT_MAX];
		char client_ca[CONFIG_TEXT_MAX]; /* "": clients need no certificate */
		char groups[CONFIG_TEXT_MAX];
		bool kernel_tls;
	} https;
	struct {
		char address[CONFIG_TEXT_MAX]; /* metrics and health; "" switches it off */
		char minio_metrics[8];	       /* "token", "public", "off" */
	} admin;
	struct {
		char address[CONFIG_TEXT_MAX]; /* "ADDR:PORT"; "" switches it off */
		bool https;
		uint64_t session_s;
		uint64_t idle_timeout_s;
		char s3_url[CONFIG_TEXT_MAX]; /* "": made of the host that the browser asked */
		struct {
			char issuer[CONFIG_TEXT_MAX]; /* "": off */
			char name[64];
			char client_id[CONFIG_TEXT_MAX];
			char client_secret[CONFIG_TEXT_MAX];
			char client_secret_file[CONFIG_TEXT_MAX];
			char scopes[CONFIG_TEXT_MAX];
			char role[CONFIG_TEXT_MAX];
			char role_claim[64];
			char ca_file[CONFIG_TEXT_MAX];
			char redirect_url[CONFIG_TEXT_MAX];
		} openid;
	} console;
	struct {
		char root_user[LIMIT_ACCESS_KEY_LEN_MAX + 1];
		char root_password[LIMIT_SECRET_KEY_LEN_MAX + 1];
		char accounts_file[CONFIG_TEXT_MAX];	/* "": none */
		char secrets_key_file[CONFIG_TEXT_MAX]; /* "": secrets.key in the data folder */
		char web_identity[16];
	} auth;
	struct {
		char region[64];
		char domain[CONFIG_TEXT_MAX];
		char website_domain[CONFIG_TEXT_MAX];
		bool signature_v2;
		char new_buckets[16], new_bucket_encryption[16];
	} s3;
	struct {
		uint64_t flush_seconds;
	} logging;
	struct {
		uint64_t patience_s;
		char multicast[64];
		uint64_t multicast_rate;
	} fan_out;
	struct {
		char targets[CONFIG_TEXT_MAX];
		char log_file[CONFIG_TEXT_MAX];
		uint64_t queue_events, queue_bytes, retry_seconds;
		char topics[16];
	} notification;
	struct {
		char key_file[CONFIG_TEXT_MAX];
		struct {
			char keys[CONFIG_TEXT_MAX];
			char default_key[CONFIG_TEXT_MAX];
			struct {
				char address[CONFIG_TEXT_MAX];
				char token_file[CONFIG_TEXT_MAX];
				char mount[128];
				char keys[CONFIG_TEXT_MAX];
				char ca_file[CONFIG_TEXT_MAX];
				uint64_t cache_seconds;
			} vault;
		} kms;
	} encryption;
	struct {
		uint64_t day_seconds;
	} lifecycle;
	struct {
		uint64_t minute_seconds;
	} replication;
	struct {
		uint64_t bytes;
		uint64_t bytes_max; /* 0: the region keeps its size */
		bool adapt;
		uint64_t cache_bytes;
		uint64_t buckets_bytes; /* 0: no memory buckets */
		uint64_t records_bytes, index_cache_bytes, list_bytes;
		bool huge_pages;
	} memory;
	struct {
		uint64_t reactors; /* 0: one per processor, less one */
		bool pin;
		uint64_t idle_spin_us; /* CONFIG_AUTO: config_idle_spin_ns */
	} cpu;
	struct {
		char node[16];	      /* "auto", "none", or its number */
		char memory_node[16]; /* "": where node says */
		bool memory_only;
	} numa;
	struct {
		bool enabled;
		char address[CONFIG_TEXT_MAX]; /* without port; "" is any */
		char paths[CONFIG_TEXT_MAX];   /* further ones: "ADDRESS,ADDRESS=DEVICE" */
		bool tell_paths;
		uint64_t port;
		char device_name[CONFIG_TEXT_MAX];
		uint64_t ib_port;
		int64_t gid_index; /* -1: choose */
		bool enable_zero_copy;
		uint64_t max_send_wr;
		uint64_t max_recv_wr;
		uint64_t max_sge;
		uint64_t cq_size;
		uint64_t max_inline_data;
		uint64_t path_mtu;
		uint64_t service_level;
		int64_t traffic_class;
		uint64_t retry_count;
		uint64_t rnr_retry;
		uint64_t timeout;
		uint64_t sessions_max;
		uint64_t session_requests; /* 0: half of max_recv_wr */
		uint64_t idle_timeout_s;
		uint64_t keepalive_s;
		uint64_t request_timeout_s;
		char encryption[16]; /* "off", "required" */
		uint64_t lease_bytes;
		uint64_t lease_seconds;
		bool strict_token;
		char decline[16]; /* "s3-error", "aws-draft" */
		uint64_t token_queue_pairs;
		uint64_t token_timeout_s;
		char token_checksum[8]; /* "always", "asked", "off" */
		bool token_elbencho;
		uint64_t dc_key;
		bool hipobj;
		uint64_t hipobj_sessions;
		uint64_t hipobj_bytes;
		uint64_t hipobj_timeout_s;
		bool discovery;
		char discovery_group[64];
		char zone[64];
		char note[128];
	} rdma;
	struct {
		bool enabled;
	} gpudirect;
	struct {
		bool enabled;
		bool enable_rdma;
		bool enable_crypto;
	} dpu;
	struct {
		bool enabled;
	} s3_express;
	struct {
		struct {
			bool enabled;
			uint64_t priority;
		} pfc;
		struct {
			bool enabled;
			uint64_t threshold;
		} ecn;
		uint64_t dscp;
		uint64_t mtu;
	} network;
};

enum config_type {
	CONFIG_BOOL,
	CONFIG_U64, /* plain number */
	CONFIG_I64,
	CONFIG_BYTES, /* number with an optional KiB, MiB, GiB, TiB */
	CONFIG_TEXT
};

struct config_key {
	const char *path; /* "rdma.cq_size" */
	enum config_type type;
	size_t offset; /* in struct config */
	size_t size;   /* of a text's array */
	int64_t min;
	uint64_t max;
	const char *preset; /* as text: the default */
	const char *help;
	const char *not_yet; /* set: any value but the default is refused with this reason */
	const char *choices; /* texts: "off|required" or NULL */
	bool may_be_auto;    /* a number: "auto" is CONFIG_AUTO */
};
extern const struct config_key CONFIG_KEYS[];
extern const size_t CONFIG_KEY_COUNT;

/* Why a configuration was refused: one sentence for a person, with file and line where there are.
 */
struct config_error {
	char text[4096];
};

/* The value of a number that may be "auto"; the server then computes it. */
#define CONFIG_AUTO UINT64_MAX
/* The access key and the secret key of a server that was configured without them. */
#define CONFIG_DEVELOPMENT_KEY "minioadmin"

void config_defaults(struct config *config);
/* -ENOENT and other errors of opening the file; -EINVAL: wrong content. The error text is filled
 * in. */
int config_load_file(struct config *config, const char *path, struct config_error *ret_error);
/* NEBULAIO_<SECTION>_<KEY> for each key, and NEBULAIO_ROOT_USER, NEBULAIO_ROOT_PASSWORD. A variable
 * with our prefix that names no key is an error. */
int config_load_env(struct config *config, char *const *env, struct config_error *ret_error);
/* Sets one key by its path; where names the source for messages ("--set", "file.yaml:12"). */
int config_set(struct config *config, const char *path, const char *value, const char *where,
	struct config_error *ret_error);
/* The embedded configuration of a server that was started without a file; environment and command
 * line override it. The development profile turns RDMA and HTTPS on. */
void config_embed(struct config *config, bool development);
/* The next of rdma.paths: ADDRESS or ADDRESS=DEVICE. False: the end. */
bool config_path_next(struct slice *rest, struct slice *ret_address, struct slice *ret_device);
/* True when only processes of this host can reach the address. */
bool config_is_loopback(const char *address);
/* memory.cache_bytes, also when it is "auto". */
uint64_t config_cache_bytes(const struct config *config);
/* cpu.idle_spin_us in nanoseconds, not 0; where an event loop begins, when it is "auto". */
uint64_t config_idle_spin_ns(const struct config *config);
/* Whether that, and the cache's size, follow the load. */
bool config_tunes_spin(const struct config *config);
bool config_tunes_cache(const struct config *config);
/* Whether new buckets encrypt by default: unless told, only with a key that the operator chose,
 * because he has a copy of it. A key that the server made beside the data protects little, and
 * encryption would cost the RDMA path its freedom from copies. */
bool config_encrypts_new_buckets(const struct config *config);
/* How many requests a session may have in flight. */
uint32_t config_session_requests(const struct config *config);
/* Checks that need all keys together: profile rules, sums that must fit. The error text has one
 * line for each problem. */
int config_check(const struct config *config, bool development, struct config_error *ret_error);

#endif
