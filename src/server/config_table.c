/* server/config_table.c: every key of the configuration, once: its type, bounds, default and
 * meaning. */
#include "codec/discovery.h"
#include "flow/fan_out.h"
#include "front/front.h"
#include "server/config.h"
#include "store/local.h"

#define FLAG(p, f, d, h)                                                             \
	{                                                                            \
		.path = p, .type = CONFIG_BOOL, CONFIG_AT(f), .preset = d, .help = h \
	}
#define CONFIG_AT(field) \
	.offset = offsetof(struct config, field), .size = sizeof(((struct config *)0)->field)
#define NUMBER(p, f, lo, hi, d, h)                                                              \
	{                                                                                       \
		.path = p, .type = CONFIG_U64, CONFIG_AT(f), .min = lo, .max = hi, .preset = d, \
		.help = h                                                                       \
	}
#define BYTES(p, f, lo, hi, d, h)                                                                 \
	{                                                                                         \
		.path = p, .type = CONFIG_BYTES, CONFIG_AT(f), .min = lo, .max = hi, .preset = d, \
		.help = h                                                                         \
	}
#define BYTES_OR_AUTO(p, f, lo, hi, h)                                               \
	{                                                                            \
		.path = p, .type = CONFIG_BYTES, CONFIG_AT(f), .min = lo, .max = hi, \
		.preset = "auto", .may_be_auto = true, .help = h                     \
	}
#define NUMBER_OR_AUTO(p, f, lo, hi, h)                                            \
	{                                                                          \
		.path = p, .type = CONFIG_U64, CONFIG_AT(f), .min = lo, .max = hi, \
		.preset = "auto", .may_be_auto = true, .help = h                   \
	}
#define TEXT(p, f, d, h)                                                             \
	{                                                                            \
		.path = p, .type = CONFIG_TEXT, CONFIG_AT(f), .preset = d, .help = h \
	}
#define CHOICE(p, f, d, c, h)                                                                      \
	{                                                                                          \
		.path = p, .type = CONFIG_TEXT, CONFIG_AT(f), .preset = d, .choices = c, .help = h \
	}
#define LATER(p, f, d, h, why)                                                        \
	{                                                                             \
		.path = p, .type = CONFIG_BOOL, CONFIG_AT(f), .preset = d, .help = h, \
		.not_yet = why                                                        \
	}

const struct config_key CONFIG_KEYS[] = {
	CHOICE("log_level", log_level, "info", "trace|debug|info|warn|error",
		"The least serious level that is logged"),
	CHOICE("log_format", log_format, "text", "text|json",
		"Log lines as text, or as one JSON object each"),
	CHOICE("tuning", tuning, "auto", "auto|off",
		"auto: cpu.idle_spin_us and memory.cache_bytes, where they are auto, follow the "
		"load (docs/guide/tuning.md); off: they keep what they have at the start"),

	TEXT("data.dir", data.dir, "./data", "Folder that holds the volume, its log and its index"),
	BYTES("data.reserve_bytes", data.reserve_bytes, 16 * MIB, TIB, "256MiB",
		"Free space to keep on the file systems of the data folder and of volumes that "
		"are files; when less is free on the data folder's, new objects fail with the "
		"answer that the disk is full, and a file does not grow into its own"),
	BYTES("data.volume_bytes_max", data.volume_bytes_max, 0, 1024 * TIB, "0",
		"Maximum size of the volume, but the log and a first step of the file are always "
		"made; 0: as large as the file system allows"),
	BYTES_OR_AUTO("data.log_bytes", data.log_bytes, 1 * MIB, 1 * GIB,
		"Size of the log when a new store is made; auto: 64MiB. The changes of one "
		"commit must fit half of it, so it limits how many parts an upload may have, and "
		"below 4MiB how large an encrypted object may be"),
	BYTES("data.inline_bytes_max", data.inline_bytes_max, 0, STORE_INLINE_BYTES_MAX, "2KiB",
		"Objects up to this size are stored in their index record; 0: none"),

	TEXT("storage.volume", storage.volume, "",
		"Where objects are stored: a file, a block device, an NVMe passthrough device "
		"(/dev/ng0n1), a volume of another host (rdma://HOST:PORT/NAME, or by NVMe over "
		"Fabrics nvmeof://HOST:PORT/NQN), or one in Ceph "
		"RADOS (rados://POOL/NAME, rados://POOL/NAME?data=POOL); empty: the volume of an "
		"earlier start, else a file in data.dir"),
	TEXT("storage.log", storage.log, "",
		"Where the log of the one volume is kept, apart from the bodies: a device of "
		"persistent memory (/dev/dax0.0), a file on a file system in persistent memory "
		"(dax:///mnt/pmem/log), or another device or file, all by their whole path; "
		"empty: in the volume"),
	TEXT("storage.volumes", storage.volumes, "",
		"Several volumes instead of one, with erasure coding over them: a list, or "
		"their paths separated by commas"),
	NUMBER("storage.erasure.data", storage.erasure.data, 2, 16, "10",
		"Data shards of each body; each shard is on its own volume"),
	NUMBER("storage.erasure.parity", storage.erasure.parity, 1, 8, "4",
		"Parity shards of each body: how many volumes may be lost; must be less than "
		"data"),
	TEXT("storage.remote.secret_file", storage.remote.secret_file, "",
		"File with the secret that `nebulaio volume serve` on the other hosts also "
		"has; needed for volumes rdma://HOST:PORT/NAME"),
	TEXT("storage.remote.device_name", storage.remote.device_name, "",
		"RDMA device that reaches the volumes of other hosts; empty: rdma.device_name"),
	TEXT("storage.rados.conf_file", storage.rados.conf_file, "",
		"ceph.conf of the cluster with the volume rados://…; empty: $CEPH_CONF, else "
		"/etc/ceph/ceph.conf"),
	TEXT("storage.rados.user", storage.rados.user, "admin",
		"Ceph user, without `client.`; its keyring is found as ceph.conf says"),
	NUMBER("storage.rados.timeout_s", storage.rados.timeout_s, 1, 300, "20",
		"An operation that Ceph does not do in this time fails, and its request gets 503 "
		"SlowDown"),
	NUMBER("storage.rados.lease_s", storage.rados.lease_s, 3, 3600, "15",
		"The server renews its ownership of the volume three times in this time; another "
		"server can take the volume when it did not"),
	FLAG("cluster.standby", cluster.standby, "false",
		"A start waits, without limit, while another server owns the volume rados://… or "
		"the store of cluster.etcd; without it, the start fails after 30 seconds"),
	TEXT("cluster.etcd", cluster.etcd, "",
		"Endpoints of an etcd, http://A:2379,http://B:2379, that has the owner's lease of "
		"a store with volumes rdma://…: several servers can be started for it, and one "
		"at a time owns it (docs/guide/cluster.md)"),
	TEXT("cluster.etcd_prefix", cluster.etcd_prefix, "nebulaio/",
		"What the keys in etcd begin with; each store needs its own"),
	TEXT("cluster.etcd_user_file", cluster.etcd_user_file, "",
		"File with USER:PASSWORD for etcd; empty: without a user"),
	TEXT("cluster.etcd_ca_file", cluster.etcd_ca_file, "",
		"PEM file with the authorities of https:// endpoints; empty: the host's"),
	TEXT("cluster.etcd_certificate", cluster.etcd_certificate, "",
		"PEM file with this host's certificate for etcd; empty: none"),
	TEXT("cluster.etcd_key", cluster.etcd_key, "", "PEM file with that certificate's key"),
	NUMBER("cluster.lease_s", cluster.lease_s, 3, 3600, "15",
		"With cluster.etcd: the owner renews its lease three times in this time; another "
		"server can take the store when it did not"),
	FLAG("cluster.enabled", cluster.enabled, "false",
		"Be a gateway of a cluster (docs/guide/cluster.md): several stores in Ceph RADOS, "
		"each owned by one gateway; every gateway answers for all of them"),
	TEXT("cluster.pool", cluster.pool, "",
		"Replicated pool in RADOS with the cluster's map, and logs and superblocks of its "
		"stores"),
	TEXT("cluster.data_pool", cluster.data_pool, "",
		"Pool for the bodies of objects; may be erasure coded; empty: cluster.pool"),
	TEXT("cluster.name", cluster.name, "nebulaio",
		"Name of the cluster: several can share a pool"),
	TEXT("cluster.gateway", cluster.gateway, "",
		"Name of this gateway, different on each; empty: the host's name"),
	TEXT("cluster.address", cluster.address, "127.0.0.1",
		"Address of this host at which other gateways reach the stores that this one "
		"owns; an address without a port"),
	NUMBER("cluster.stores", cluster.stores, 1, 64, "3",
		"How many stores the cluster has; a later start with more adds some, none is ever "
		"removed"),
	NUMBER("cluster.wait_s", cluster.wait_s, 1, 300, "30",
		"A request for a store without a serving owner waits this long for one, then gets "
		"503 SlowDown"),
	BYTES("cluster.memory_bytes", cluster.memory_bytes, 32 * MIB, 64 * GIB, "128MiB",
		"Memory of the gateway for bodies on their way; each store's process has "
		"memory.bytes of its own"),
	FLAG("cluster.tls", cluster.tls, "false",
		"Gateways and the stores' processes speak TLS, each with the cluster's "
		"certificate, which follows from the recovery key; the same on each gateway"),
	FLAG("cluster.spread", cluster.spread, "true",
		"A gateway that owns at least two stores more than another hands one over to it"),
	NUMBER("cluster.store", cluster.store, 0, 64, "0",
		"Set by a gateway for a store's process that it starts; not to be set by hand"),
	NUMBER("storage.scrub.interval_s", storage.scrub.interval_s, 0, 31536000, "604800",
		"Seconds from the end of a scrub to the start of the next, over restarts, too; a "
		"scrub reads all bodies on the volumes and repairs damage; 0: only when `nebulaio "
		"admin scrub` asks for one"),
	BYTES("storage.scrub.bytes_per_s", storage.scrub.bytes_per_s, 1 * MIB, 1 * TIB, "32MiB",
		"Maximum read rate of a scrub"),
	BYTES("storage.move.bytes_per_s", storage.move.bytes_per_s, 1 * MIB, 1 * TIB, "64MiB",
		"Maximum rate at which bodies move after volumes were added or removed"),
	BYTES("storage.discard.bytes_per_s", storage.discard.bytes_per_s, 0, 1 * TIB, "64MiB",
		"The server tells volumes that can deallocate (block devices, NVMe, also of "
		"other hosts) which space is free again, at most at this rate; 0: never"),
	FLAG("storage.discard.files", storage.discard.files, "false",
		"Also deallocate free space of volumes that are files. The space goes back to "
		"the file system. A later write there allocates it again, which takes time "
		"and fails when the file system is full"),
	FLAG("storage.protect_index", storage.protect_index, "false",
		"Also write the index to the volumes, so that a start with an empty data.dir "
		"and the same volumes rebuilds it"),
	TEXT("storage.recovery_key_file", storage.recovery_key_file, "",
		"File with a recovery key, 32 bytes in base64: with storage.protect_index, the "
		"server stores its key files in the volumes, sealed under that key, and makes "
		"them again from there when they are missing"),
	FLAG("storage.format", storage.format, "false",
		"Allow the store to take a volume that holds other data, which is destroyed; a "
		"volume that holds a store is never taken"),

	TEXT("http.address", http.address, "127.0.0.1:9000", "Address where S3 over HTTP listens"),
	NUMBER("http.idle_timeout_s", http.idle_timeout_s, 1, 3600, "75",
		"A connection without requests is closed after this time"),
	NUMBER("http.head_timeout_s", http.head_timeout_s, 1, 300, "15",
		"Time limit for a request's head to arrive; also for the TLS handshake before "
		"it"),
	NUMBER("http.stall_timeout_s", http.stall_timeout_s, 1, 600, "30",
		"A transfer of a body that makes no progress for this time is ended"),

	TEXT("https.address", https.address, "",
		"Address where S3 over HTTPS listens; empty: HTTPS is off (127.0.0.1:9443 in "
		"the development profile)"),
	TEXT("https.certificate", https.certificate, "",
		"PEM file with the server's certificate and its chain; read again on SIGHUP "
		"and when the file changes"),
	TEXT("https.key", https.key, "", "PEM file with the certificate's private key"),
	TEXT("https.client_ca", https.client_ca, "",
		"PEM file of certificate authorities: clients must have a certificate of one "
		"of them; empty: clients need no certificate"),
	TEXT("https.groups", https.groups, "auto",
		"Groups of TLS's key exchange, by OpenSSL's names, the preferred one first, "
		"separated by commas; auto: X25519MLKEM768 (hybrid post-quantum) where OpenSSL "
		"has it, X25519, P-256, P-384"),
	FLAG("https.kernel_tls", https.kernel_tls, "false",
		"The kernel encrypts what the server sends, if it can for the cipher of a "
		"connection (its module is called tls)"),

	TEXT("admin.address", admin.address, "127.0.0.1:9001",
		"Address where /metrics and /health listen; they need no keys; empty: off"),
	CHOICE("admin.minio_metrics", admin.minio_metrics, "token", "token|public|off",
		"Who may read MinIO's scrape paths (/minio/v2/metrics/cluster, node, bucket) where "
		"S3 listens: token: clients with a bearer token; public: everybody; off: nobody"),

	TEXT("console.address", console.address, "127.0.0.1:9002",
		"Address where the web console listens; empty: off"),
	FLAG("console.https", console.https, "false",
		"Serve the console over HTTPS, by https.certificate. Without it keys and "
		"cookies cross the network in clear: then leave the console on loopback, or "
		"behind a proxy that ends TLS"),
	NUMBER("console.session_s", console.session_s, 900, 43200, "43200",
		"A user of the console must sign in again after this time; with a role, after its "
		"MaxSessionDuration where that is less"),
	NUMBER("console.idle_timeout_s", console.idle_timeout_s, 1, 43200, "3600",
		"A user of the console who does nothing for this time is signed out"),
	TEXT("console.s3_url", console.s3_url, "",
		"Start of the console's share links, e.g. https://s3.example.com; empty: the "
		"host by which the console is reached, and S3's port"),
	TEXT("console.openid.issuer", console.openid.issuer, "",
		"URL of an OpenID Connect provider where users of the console may sign in; empty: "
		"none. auth.web_identity says where the server may connect to"),
	TEXT("console.openid.name", console.openid.name, "OpenID Connect",
		"Name of that provider on the page"),
	TEXT("console.openid.client_id", console.openid.client_id, "",
		"Client id of the console at that provider"),
	TEXT("console.openid.client_secret", console.openid.client_secret, "",
		"Its client secret; empty, and no file: a public client, with PKCE alone"),
	TEXT("console.openid.client_secret_file", console.openid.client_secret_file, "",
		"File whose first line is the client secret"),
	TEXT("console.openid.scopes", console.openid.scopes, "openid",
		"Scopes that the console asks for, separated by spaces"),
	TEXT("console.openid.role", console.openid.role, "",
		"ARN of the role that users who sign in there get"),
	TEXT("console.openid.role_claim", console.openid.role_claim, "",
		"Claim of the ID token that has that ARN, in place of console.openid.role"),
	TEXT("console.openid.ca_file", console.openid.ca_file, "",
		"Certificates of the authorities to trust for that provider; empty: the system's"),
	TEXT("console.openid.redirect_url", console.openid.redirect_url, "",
		"Where the provider sends browsers back to, e.g. "
		"https://console.example.com/openid/callback; empty: the host by which the "
		"console is reached"),

	TEXT("auth.root_user", auth.root_user, "", "Access key of the root user"),
	TEXT("auth.root_password", auth.root_password, "", "Secret key of the root user"),
	TEXT("auth.accounts_file", auth.accounts_file, "",
		"YAML or JSON file of the accounts, users and keys to create "
		"(docs/spec/admin.md); read at start"),
	TEXT("auth.secrets_key_file", auth.secrets_key_file, "",
		"File with the 32-byte key that encrypts secrets in the store; empty: "
		"secrets.key in the data folder, made at the first start of an empty store; "
		"later a start without the file fails"),
	CHOICE("auth.web_identity", auth.web_identity, "public", "none|public|any",
		"Which OpenID Connect issuers the server fetches keys from, for "
		"AssumeRoleWithWebIdentity: none; public: https:// outside private and local "
		"networks; any: also http://"),

	TEXT("s3.region", s3.region, "us-east-1", "Region name that clients see"),
	TEXT("s3.domain", s3.domain, "", "Domain for virtual-host style requests: bucket.DOMAIN"),
	TEXT("s3.website_domain", s3.website_domain, "",
		"Domain of bucket websites: bucket.DOMAIN; empty: no websites"),
	FLAG("s3.signature_v2", s3.signature_v2, "false",
		"Accept Signature Version 2, which old clients use for requests, URLs and "
		"forms. It does not sign the body, and it signs less of a request than "
		"Version 4"),
	CHOICE("s3.new_buckets", s3.new_buckets, "closed", "closed|open",
		"Settings of new buckets: closed, as at AWS since 2023 (BucketOwnerEnforced, "
		"public access blocked), or open, as before (access control lists count, "
		"nothing is blocked)"),
	CHOICE("s3.new_bucket_encryption", s3.new_bucket_encryption, "auto", "auto|AES256|none",
		"Default encryption of new buckets (SSE-S3), for writes that name none: auto: "
		"AES256 when encryption.key_file is set"),

	NUMBER("logging.flush_seconds", logging.flush_seconds, 1, 3600, "60",
		"How long server access log records are collected before they are written as "
		"an object"),

	TEXT("notification.targets", notification.targets, "",
		"Webhooks for bucket events: NAME=URL, separated by commas; a bucket refers "
		"to one by an ARN that ends in :NAME"),
	TEXT("notification.log_file", notification.log_file, "",
		"File for bucket events, one JSON line each; a bucket refers to it by an ARN "
		"that ends in :log; empty: none"),
	CHOICE("notification.topics", notification.topics, "public", "none|public|any",
		"Where the endpoints of topics that clients create by SNS calls may be: none: "
		"nowhere; public: outside private and local networks; any: anywhere the "
		"server reaches"),
	NUMBER("notification.queue_events", notification.queue_events, 1, 1000000, "10000",
		"Maximum number of events that wait for one target, kept in the store; "
		"further events are dropped"),
	BYTES("notification.queue_bytes", notification.queue_bytes, 64 * KIB, 1 * TIB, "64MiB",
		"Maximum bytes of events that wait for all targets together, in memory and in "
		"the store; one target, or all topics of one account, may use at most as "
		"much as remains free for the others, and all topics at most half if there "
		"are configured targets"),
	NUMBER("notification.retry_seconds", notification.retry_seconds, 1, 31536000, "86400",
		"How long the delivery of an event is retried before the event is dropped"),

	TEXT("encryption.key_file", encryption.key_file, "",
		"Master keys of encryption at rest, one line `ID BASE64` each; the first is "
		"used for new objects; empty: encryption.keys in data.dir, made at the first "
		"start"),
	TEXT("encryption.kms.keys", encryption.kms.keys, "",
		"Names of the keys for aws:kms, separated by commas; empty: none"),
	TEXT("encryption.kms.vault.address", encryption.kms.vault.address, "",
		"URL of a key service with the API of Vault's transit engine; empty: none"),
	TEXT("encryption.kms.vault.token_file", encryption.kms.vault.token_file, "",
		"File with the token for the key service; read at each call"),
	TEXT("encryption.kms.vault.mount", encryption.kms.vault.mount, "transit",
		"Path where the transit engine is mounted"),
	TEXT("encryption.kms.vault.keys", encryption.kms.vault.keys, "",
		"Names of the key service's keys for aws:kms, separated by commas; on equal "
		"names these are used, not encryption.kms.keys"),
	TEXT("encryption.kms.vault.ca_file", encryption.kms.vault.ca_file, "",
		"PEM file with the authorities of the key service's certificate; empty: the "
		"system's"),
	NUMBER("encryption.kms.vault.cache_seconds", encryption.kms.vault.cache_seconds, 1, 86400,
		"300", "How long a data key that the key service decrypted stays in memory"),
	TEXT("encryption.kms.default_key", encryption.kms.default_key, "",
		"Key for aws:kms writes that name no key; empty: such writes are refused"),

	NUMBER("lifecycle.day_seconds", lifecycle.day_seconds, 1, 86400, "86400",
		"Length of a day of a lifecycle rule; values below 86400 are for trying rules "
		"out"),

	NUMBER("replication.minute_seconds", replication.minute_seconds, 1, 60, "60",
		"Length of a minute of a replication rule's EventThreshold; values below 60 are "
		"for trying rules out"),

	NUMBER("fan_out.patience_s", fan_out.patience_s, 1, 60, "5",
		"How long the clients of a fan-out wait for one that stands still, before it falls "
		"out: docs/design/fan-out.md"),
	TEXT("fan_out.multicast", fan_out.multicast, "",
		"IPv4 multicast address, the first of 8 in a row, to send objects to clients of a "
		"fan-out that ask for multicast; empty: no multicast"),
	BYTES("fan_out.multicast_rate", fan_out.multicast_rate, FLOW_CAST_RATE_MIN, 128 * GIB,
		"1GiB", "Bytes a second, at most, of one object's multicast"),

	BYTES("memory.bytes", memory.bytes, 8 * MIB, LIMIT_REGION_BYTES_MAX, "512MiB",
		"Size of the unified region's data frames"),
	BYTES("memory.bytes_max", memory.bytes_max, 0, LIMIT_REGION_BYTES_MAX, "0",
		"The most that the region may have when it grows while the server runs, in steps "
		"of 64MiB or more; 0: it keeps its size"),
	FLAG("memory.adapt", memory.adapt, "true",
		"Grow the region when it is full and memory is free, and shrink it when memory is "
		"scarce; false: only when an operator asks"),
	BYTES_OR_AUTO("memory.cache_bytes", memory.cache_bytes, 0, 4 * TIB,
		"Part of the region that may hold cached objects; auto: half of what "
		"memory.buckets_bytes leaves, and half of what the region grows by; with tuning: "
		"auto, up to three quarters while transfers leave it"),
	BYTES("memory.buckets_bytes", memory.buckets_bytes, 0, 4 * TIB, "0",
		"Part of the region that memory buckets may have together; their objects end with "
		"the process; 0: no memory bucket can be made"),
	BYTES_OR_AUTO("memory.records_bytes", memory.records_bytes, 1 * MIB, 1 * TIB,
		"Limit of the in-memory table of object records, about 650 bytes for each object "
		"that is in use; auto: an eighth of the memory beside memory.bytes, at least "
		"64MiB"),
	BYTES_OR_AUTO("memory.index_cache_bytes", memory.index_cache_bytes, 1 * MIB, 1 * TIB,
		"Limit of the cache of the index's blocks, for records that are not in the table "
		"and for lists that are not in memory; auto: half of what auto is for "
		"memory.records_bytes, at least 64MiB"),
	BYTES_OR_AUTO("memory.list_bytes", memory.list_bytes, 0, 1 * TIB,
		"Limit of the keys that are kept in order in memory, for lists, about 110 bytes "
		"and the key for each object of a bucket that is listed; auto: a sixteenth of the "
		"memory beside memory.bytes; 0: lists always read the index"),
	FLAG("memory.huge_pages", memory.huge_pages, "true",
		"Use 2 MiB pages where they are available, for the region and the record table"),

	NUMBER("cpu.reactors", cpu.reactors, 0, LIMIT_CORES_MAX, "0",
		"Number of event loops; 0: one per processor, less one"),
	FLAG("cpu.pin", cpu.pin, "false", "Pin each event loop to a processor"),
	NUMBER_OR_AUTO("cpu.idle_spin_us", cpu.idle_spin_us, 0, 1000000,
		"How long an event loop without work spins before it sleeps; auto: 50 at the "
		"start, and with tuning: auto, 0 to 131 by the waits between its requests"),
	TEXT("numa.node", numa.node, "auto",
		"NUMA node whose processors and memory the server uses: its number; auto: the "
		"node of the RDMA device or of the interface where HTTP listens; none"),
	TEXT("numa.memory_node", numa.memory_node, "",
		"NUMA node of the memory region, with data in flight and the cache: its number, "
		"also that of a node without processors (CXL memory); empty: numa.node"),
	FLAG("numa.memory_only", numa.memory_only, "false",
		"The whole memory region is on numa.memory_node, or the server does not start; "
		"false: what does not fit there is on other nodes"),

	FLAG("rdma.enabled", rdma.enabled, "false", "Serve S3 over RDMA"),
	TEXT("rdma.address", rdma.address, "", "Address where RDMA listens; empty: any"),
	TEXT("rdma.paths", rdma.paths, "",
		"Further addresses where RDMA listens, on the same port, so that clients have "
		"several ways to this server: up to three, separated by commas: ADDRESS (by the "
		"card that has it), or ADDRESS=DEVICE"),
	FLAG("rdma.tell_paths", rdma.tell_paths, "true",
		"Tell clients with valid keys rdma.address and rdma.paths, so that a client that "
		"was given one of the addresses uses them all; false: only those that it was "
		"given, as where clients reach this server by other addresses than its own"),
	NUMBER("rdma.port", rdma.port, 0, 65535, "9100", "Port where RDMA listens"),
	TEXT("rdma.device_name", rdma.device_name, "auto",
		"RDMA device: a name such as mlx5_0; simulated; or auto: the card that has "
		"rdma.address (or the first whose port is up), and simulated on loopback or "
		"without a card"),
	NUMBER("rdma.ib_port", rdma.ib_port, 0, 254, "0",
		"Port of the device; 0: the first active one"),
	{.path = "rdma.gid_index",
		.type = CONFIG_I64,
		CONFIG_AT(rdma.gid_index),
		.min = -1,
		.max = 255,
		.preset = "-1",
		.help = "GID table index; -1: the server chooses, the GID of rdma.address if "
			"there is one"},
	LATER("rdma.enable_zero_copy", rdma.enable_zero_copy, "true",
		"Bodies move by one-sided READ and WRITE",
		"bodies always move without a copy here, there is nothing to switch off"),
	NUMBER("rdma.max_send_wr", rdma.max_send_wr, 8, 32768, "128",
		"Send work requests per queue pair"),
	NUMBER("rdma.max_recv_wr", rdma.max_recv_wr, 8, 32768, "128",
		"Receive work requests per queue pair"),
	NUMBER("rdma.max_sge", rdma.max_sge, 1, LIMIT_SGE_MAX, "4",
		"Scatter/gather entries per work request"),
	NUMBER("rdma.cq_size", rdma.cq_size, 16, 4194304, "256",
		"Minimum number of completion queue entries; the server adds more when the "
		"sessions need them"),
	NUMBER("rdma.max_inline_data", rdma.max_inline_data, 0, NATIVE_INLINE_WR_BYTES, "256",
		"Maximum bytes that a send work request carries inline, copied when it is "
		"posted"),
	NUMBER("rdma.path_mtu", rdma.path_mtu, 0, 4096, "0",
		"Maximum payload of a packet: 256, 512, 1024, 2048 or 4096; 0: the port's "
		"value. No effect on the simulated device"),
	NUMBER("rdma.service_level", rdma.service_level, 0, 15, "0",
		"Service level of connections; 0: the choice of the subnet manager or the "
		"kernel. No effect on the simulated device"),
	{.path = "rdma.traffic_class",
		.type = CONFIG_I64,
		CONFIG_AT(rdma.traffic_class),
		.min = -1,
		.max = 255,
		.preset = "-1",
		.help = "Traffic class (IPv4: TOS) of RoCE packets, including the ECN bits; -1: "
			"derived from network.dscp. No effect on the simulated device"},
	NUMBER("rdma.retry_count", rdma.retry_count, 0, 7, "7",
		"How many times an unacknowledged packet is sent again"),
	NUMBER("rdma.rnr_retry", rdma.rnr_retry, 0, 7, "7",
		"How many times a message is sent again when the receiver was not ready; 7: "
		"without limit"),
	NUMBER("rdma.timeout", rdma.timeout, 1, 24, "16",
		"How long to wait for an acknowledgement: 4.096 us * 2^N"),
	NUMBER("rdma.sessions_max", rdma.sessions_max, 1, LIMIT_RDMA_SESSIONS_MAX, "256",
		"Maximum number of sessions at a time; of the last eighth an access key gets one "
		"while it has no more than are left"),
	NUMBER("rdma.session_requests", rdma.session_requests, 0, LIMIT_SESSION_REQUESTS_MAX, "0",
		"Maximum number of requests in flight on one session; at most "
		"rdma.max_recv_wr less two; 0: half of rdma.max_recv_wr"),
	NUMBER("rdma.idle_timeout_s", rdma.idle_timeout_s, 1, 86400, "300",
		"A session without requests is closed after this time"),
	NUMBER("rdma.keepalive_s", rdma.keepalive_s, 0, 3600, "5",
		"When a client has been silent for this time, the server checks that its host "
		"still answers, and ends the session if it does not; 0: never"),
	NUMBER("rdma.request_timeout_s", rdma.request_timeout_s, 1, 9, "8",
		"A session whose transfers make no progress for this time, or whose client takes "
		"neither answers nor bodies, is ended. On the simulated device, answers and "
		"bodies before them have rdma.idle_timeout_s if that is longer"),
	CHOICE("rdma.encryption", rdma.encryption, "off", "off|required",
		"Encryption of sessions: required: of all sessions, and RDMA tokens, "
		"hipobj-rc-v2 and elbencho's sessions, which do not encrypt bodies, are off; "
		"off: only for clients that ask for it"),
	BYTES("rdma.lease_bytes", rdma.lease_bytes, 0, 1ull << 30, "4MiB",
		"Memory for copies of hot objects that a session's client may read by itself; "
		"0: none"),
	NUMBER("rdma.lease_seconds", rdma.lease_seconds, 1, 300, "20",
		"How long a client may read such a copy; shorter when the object or the "
		"client's rights change"),
	FLAG("rdma.strict_token", rdma.strict_token, "false",
		"Refuse RDMA tokens that have the two fields which older clients append"),
	CHOICE("rdma.decline", rdma.decline, "s3-error", "s3-error|aws-draft",
		"How the server answers a request whose RDMA token it cannot serve"),
	NUMBER("rdma.token_queue_pairs", rdma.token_queue_pairs, 1, LIMIT_TOKEN_QUEUE_PAIRS_MAX,
		"256",
		"Maximum number of queue pairs that clients connect by ?rdma-connect at a time; "
		"when all are taken, an idle one of the principal with the most gives way to "
		"another principal's"),
	NUMBER("rdma.token_timeout_s", rdma.token_timeout_s, 1, 9, "6",
		"Time limit of a transfer by RDMA token; the client gives up after 10 s"),
	CHOICE("rdma.token_checksum", rdma.token_checksum, "always", "always|asked|off",
		"Checksum in the answer to a GET with an RDMA token: always; asked: only with "
		"x-amz-checksum-mode: ENABLED; off. For clients that compare it with the empty "
		"HTTP body"),
	FLAG("rdma.token_elbencho", rdma.token_elbencho, "false",
		"Also serve RDMA tokens of sessions that clients connect by unsigned requests, as "
		"elbencho's library does"),
	NUMBER("rdma.dc_key", rdma.dc_key, 0, UINT64_MAX, "4293844428",
		"Access key of clients' DC targets; the common default is 0xffeeddcc"),
	FLAG("rdma.hipobj", rdma.hipobj, "true",
		"Serve clients that speak hipobj-rc-v2; off: they are told to use HTTP"),
	NUMBER("rdma.hipobj_sessions", rdma.hipobj_sessions, 1, LIMIT_HIPOBJ_SESSIONS_MAX, "256",
		"Maximum number of transfers by hipobj-rc-v2 at a time; half of them for one "
		"principal"),
	BYTES("rdma.hipobj_bytes", rdma.hipobj_bytes, 1ull << 20, 1ull << 40, "256MiB",
		"Memory for bodies that such clients write, beside memory.bytes; half of it for "
		"one principal"),
	NUMBER("rdma.hipobj_timeout_s", rdma.hipobj_timeout_s, 1, 300, "30",
		"How long such a transfer waits for its client, and how long its bytes may take"),
	FLAG("rdma.discovery", rdma.discovery, "true",
		"Answer `nebulaio discover` on the device's fabric"),
	TEXT("rdma.discovery_group", rdma.discovery_group, DISCOVERY_GROUP,
		"Multicast address where discovery listens"),
	TEXT("rdma.zone", rdma.zone, "", "Location of this server, as discovery reports it"),
	TEXT("rdma.note", rdma.note, "", "Free text that discovery reports"),

	FLAG("gpudirect.enabled", gpudirect.enabled, "false",
		"Bodies move directly to and from clients' GPU memory; at start the server "
		"logs what is missing for that"),
	FLAG("dpu.enabled", dpu.enabled, "false",
		"This host has a BlueField DPU; at start the server logs what is missing for "
		"it"),
	FLAG("dpu.enable_rdma", dpu.enable_rdma, "false",
		"RDMA uses the DPU's device; at start the server logs when it does not"),
	FLAG("dpu.enable_crypto", dpu.enable_crypto, "false",
		"The DPU encrypts RDMA traffic (IPsec, set up on the DPU); at start the "
		"server logs what it cannot verify of that"),
	FLAG("s3_express.enabled", s3_express.enabled, "false",
		"Allow directory buckets (S3 Express One Zone), in any zone"),

	FLAG("network.pfc.enabled", network.pfc.enabled, "false",
		"The RDMA device's interface must have priority flow control; at start the "
		"server logs when it has none"),
	NUMBER("network.pfc.priority", network.pfc.priority, 0, 7, "3",
		"Priority of RDMA traffic; used with network.pfc.enabled and "
		"network.ecn.enabled"),
	FLAG("network.ecn.enabled", network.ecn.enabled, "false",
		"The RDMA device's interface must have ECN for RoCE; at start the server logs "
		"when it has none"),
	NUMBER("network.ecn.threshold", network.ecn.threshold, 1, 1000000, "100",
		"ECN marking threshold of the switches, in packets; used with "
		"network.ecn.enabled"),
	NUMBER("network.dscp", network.dscp, 0, 63, "26",
		"DSCP of RDMA traffic; no effect on the simulated device"),
	NUMBER("network.mtu", network.mtu, 0, 65535, "0",
		"Minimum MTU of the RDMA device's interface; at start the server logs when it "
		"is smaller; 0: any"),
};
const size_t CONFIG_KEY_COUNT = ARRAY_LEN(CONFIG_KEYS);
