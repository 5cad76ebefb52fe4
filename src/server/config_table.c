/* server/config_table.c: every key of the configuration, once: its type, bounds, default and
 * meaning. */
#include "codec/discovery.h"
#include "server/config.h"

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
		"Least serious lines that are logged"),
	CHOICE("log_format", log_format, "text", "text|json",
		"Lines of text, or a JSON object for each"),

	TEXT("data.dir", data.dir, "./data", "Folder of the volume, its log and its index"),
	BYTES("data.reserve_bytes", data.reserve_bytes, 16 * MIB, TIB, "256MiB",
		"Free space kept on the file system; below it, writes answer that the disk is "
		"full"),
	BYTES("data.volume_bytes_max", data.volume_bytes_max, 0, 1024 * TIB, "0",
		"The volume grows no further; 0: as far as the file system goes"),
	BYTES_OR_AUTO("data.log_bytes", data.log_bytes, 1 * MIB, 1 * GIB,
		"Size of the log of a store that is made; auto: 64MiB. What one commit changes "
		"must fit half of it: it bounds how many parts an upload may have"),
	BYTES("data.inline_bytes_max", data.inline_bytes_max, 0, 16 * KIB, "2KiB",
		"Objects up to this size live in their index record"),

	TEXT("storage.volume", storage.volume, "",
		"Where objects lie: a file, a block device, an NVMe passthrough device "
		"(/dev/ng0n1), or a volume of another host (rdma://HOST:PORT/NAME); empty: a file "
		"in data.dir, or what an earlier start named"),
	TEXT("storage.volumes", storage.volumes, "",
		"Instead of one volume several, with erasure coding over them: a list, or their "
		"paths separated by commas"),
	NUMBER("storage.erasure.data", storage.erasure.data, 2, 16, "10",
		"Shards of data of a body, each on a volume of its own"),
	NUMBER("storage.erasure.parity", storage.erasure.parity, 1, 8, "4",
		"Shards of parity: so many volumes may be lost; less than data"),
	TEXT("storage.remote.secret_file", storage.remote.secret_file, "",
		"File with the secret that `nebulaio volume serve` on other hosts has, too; needed "
		"for volumes rdma://HOST:PORT/NAME"),
	TEXT("storage.remote.device_name", storage.remote.device_name, "",
		"RDMA device to reach them by; empty: rdma.device_name"),
	NUMBER("storage.scrub.interval_s", storage.scrub.interval_s, 0, 31536000, "604800",
		"So long after a scrub the next one begins, which reads all bodies and mends what "
		"is wrong; 0: only when asked by `nebulaio admin scrub`"),
	BYTES("storage.scrub.bytes_per_s", storage.scrub.bytes_per_s, 1 * MIB, 1 * TIB, "32MiB",
		"A scrub reads no faster"),
	BYTES("storage.discard.bytes_per_s", storage.discard.bytes_per_s, 0, 1 * TIB, "64MiB",
		"Volumes that can deallocate (block devices, NVMe, also of other hosts) are told "
		"which space is free again, no faster than this; 0: not at all"),
	FLAG("storage.discard.files", storage.discard.files, "false",
		"Volumes that are files, too: free space goes back to the file system, and what "
		"lies there later is allocated anew, which costs time, and fails when the file "
		"system is full"),
	FLAG("storage.format", storage.format, "false",
		"A new store may take a volume on which something else lies, and destroys that"),

	TEXT("http.address", http.address, "127.0.0.1:9000", "Where S3 over HTTP listens"),
	NUMBER("http.idle_timeout_s", http.idle_timeout_s, 1, 3600, "75",
		"A connection without requests is closed"),
	NUMBER("http.head_timeout_s", http.head_timeout_s, 1, 300, "15",
		"A request's head must have come; before it, a TLS handshake"),
	NUMBER("http.stall_timeout_s", http.stall_timeout_s, 1, 600, "30",
		"A body that makes no progress is given up"),

	TEXT("https.address", https.address, "",
		"Where S3 over HTTPS listens; empty: nowhere (127.0.0.1:9443 in the development "
		"profile)"),
	TEXT("https.certificate", https.certificate, "",
		"PEM file: the server's certificate and its chain, read again on SIGHUP and when "
		"it changes"),
	TEXT("https.key", https.key, "", "PEM file: the certificate's private key"),
	TEXT("https.client_ca", https.client_ca, "",
		"PEM file of authorities: clients must have a certificate of one; empty: anybody"),

	TEXT("admin.address", admin.address, "127.0.0.1:9001",
		"Where /metrics and /health listen, without keys; empty: nowhere"),

	TEXT("auth.root_user", auth.root_user, "", "Access key of the root user"),
	TEXT("auth.root_password", auth.root_password, "", "Secret key of the root user"),
	TEXT("auth.accounts_file", auth.accounts_file, "",
		"YAML or JSON file of accounts, users and keys that there are to be "
		"(docs/spec/admin.md); read at start"),
	TEXT("auth.secrets_key_file", auth.secrets_key_file, "",
		"File of 32 bytes that seal secrets in the store; empty: secrets.key in the data "
		"folder, made when absent"),
	CHOICE("auth.web_identity", auth.web_identity, "public", "none|public|any",
		"Which OpenID Connect issuers are asked for their keys, for "
		"AssumeRoleWithWebIdentity: none, https:// outside private and local networks, "
		"or any, also http://"),

	TEXT("s3.region", s3.region, "us-east-1", "Region told to clients"),
	TEXT("s3.domain", s3.domain, "", "Domain for virtual-host style requests: bucket.DOMAIN"),
	TEXT("s3.website_domain", s3.website_domain, "",
		"Domain of buckets' websites: bucket.DOMAIN; empty: none"),
	FLAG("s3.signature_v2", s3.signature_v2, "false",
		"Signature Version 2, of old clients and of URLs and forms that they signed, is "
		"accepted; it signs no body and less of a request than Version 4"),
	CHOICE("s3.new_buckets", s3.new_buckets, "closed", "closed|open",
		"What buckets are made with: closed, as at AWS since 2023 (BucketOwnerEnforced, "
		"public access blocked), or open, as before (lists count, nothing is blocked)"),
	CHOICE("s3.new_bucket_encryption", s3.new_bucket_encryption, "auto", "auto|AES256|none",
		"Whether new buckets encrypt what a write says nothing of (SSE-S3): auto does "
		"where encryption.key_file is set"),

	NUMBER("logging.flush_seconds", logging.flush_seconds, 1, 3600, "60",
		"Server access logs gather for so long before they are put"),

	TEXT("notification.targets", notification.targets, "",
		"Webhooks for buckets' events: NAME=URL, separated by commas; a bucket names one "
		"by an ARN that ends in :NAME"),
	TEXT("notification.log_file", notification.log_file, "",
		"File for buckets' events, a line of JSON each, its ARN ends in :log; empty: none"),
	CHOICE("notification.topics", notification.topics, "public", "none|public|any",
		"Where endpoints of topics may lie that clients make by SNS calls: nowhere, "
		"outside private and local networks, or anywhere the server reaches"),
	NUMBER("notification.queue_events", notification.queue_events, 1, 1000000, "10000",
		"So many events wait for each target, kept in the store; what comes beyond is "
		"dropped"),
	BYTES("notification.queue_bytes", notification.queue_bytes, 64 * KIB, 1 * TIB, "64MiB",
		"So much of events waits for all targets together, in memory and in the store; "
		"none has more than it leaves to others"),
	NUMBER("notification.retry_seconds", notification.retry_seconds, 1, 31536000, "86400",
		"An event is tried again for so long, then dropped"),

	TEXT("encryption.key_file", encryption.key_file, "",
		"Master keys of encryption at rest, a line `ID BASE64` each, the first in use; "
		"empty: encryption.keys in data.dir, made at the first start"),
	TEXT("encryption.kms.keys", encryption.kms.keys, "",
		"Names of keys for aws:kms, separated by commas; empty: none"),
	TEXT("encryption.kms.vault.address", encryption.kms.vault.address, "",
		"URL of a key service that speaks the API of Vault's transit engine; empty: none"),
	TEXT("encryption.kms.vault.token_file", encryption.kms.vault.token_file, "",
		"File with the token for it, read at each call"),
	TEXT("encryption.kms.vault.mount", encryption.kms.vault.mount, "transit",
		"Path that the transit engine is mounted at"),
	TEXT("encryption.kms.vault.keys", encryption.kms.vault.keys, "",
		"Names of its keys for aws:kms, separated by commas; they go before those of "
		"encryption.kms.keys"),
	TEXT("encryption.kms.vault.ca_file", encryption.kms.vault.ca_file, "",
		"PEM file of the authorities of its certificate; empty: the system's"),
	NUMBER("encryption.kms.vault.cache_seconds", encryption.kms.vault.cache_seconds, 1, 86400,
		"300", "How long a key that it opened stays in memory"),
	TEXT("encryption.kms.default_key", encryption.kms.default_key, "",
		"The one for aws:kms without a key id; empty: such writes are refused"),

	NUMBER("lifecycle.day_seconds", lifecycle.day_seconds, 1, 86400, "86400",
		"How long a day of a lifecycle rule is; less than 86400 is for trying rules out"),

	BYTES("memory.bytes", memory.bytes, 8 * MIB, 4 * TIB, "512MiB",
		"The unified region's data frames"),
	BYTES_OR_AUTO("memory.cache_bytes", memory.cache_bytes, 0, 4 * TIB,
		"Part of the region that may hold cached objects; auto: half of it"),
	BYTES("memory.records_bytes", memory.records_bytes, 1 * MIB, 1 * TIB, "64MiB",
		"In-memory table of object records"),
	FLAG("memory.huge_pages", memory.huge_pages, "true",
		"Use 2 MiB pages where there are some"),

	NUMBER("cpu.reactors", cpu.reactors, 0, LIMIT_CORES_MAX, "0",
		"Event loops; 0: one per processor, less one"),
	FLAG("cpu.pin", cpu.pin, "false", "Pin each event loop to a processor"),
	NUMBER("cpu.idle_spin_us", cpu.idle_spin_us, 0, 1000000, "50",
		"Spin this long without work before sleeping"),
	TEXT("numa.node", numa.node, "auto",
		"The NUMA node whose processors and memory the server uses: its number; auto, that "
		"of the RDMA device or of the interface that HTTP listens on; none"),

	FLAG("rdma.enabled", rdma.enabled, "false", "Serve S3 over RDMA"),
	TEXT("rdma.address", rdma.address, "", "Address that RDMA listens on; empty: any"),
	NUMBER("rdma.port", rdma.port, 0, 65535, "9100", "Port that RDMA listens on"),
	TEXT("rdma.device_name", rdma.device_name, "auto",
		"RDMA device: mlx5_0, simulated, or auto: the card that has rdma.address (or "
		"the first whose port is up), simulated on loopback or without a card"),
	NUMBER("rdma.ib_port", rdma.ib_port, 0, 254, "0",
		"Port of the device; 0: the first active"),
	{.path = "rdma.gid_index",
		.type = CONFIG_I64,
		CONFIG_AT(rdma.gid_index),
		.min = -1,
		.max = 255,
		.preset = "-1",
		.help = "GID table index; -1: choose"},
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
		"Completion queue entries, at least; grown to what the sessions need"),
	NUMBER("rdma.max_inline_data", rdma.max_inline_data, 0, 4096, "256",
		"Bytes that a send takes at post time"),
	NUMBER("rdma.path_mtu", rdma.path_mtu, 0, 4096, "0",
		"Payload of a packet at most: 256, 512, 1024, 2048 or 4096; 0: the port's. No "
		"effect on the simulated device"),
	NUMBER("rdma.service_level", rdma.service_level, 0, 15, "0",
		"Service level of connections; 0: as the subnet manager or the kernel says. No "
		"effect on the simulated device"),
	{.path = "rdma.traffic_class",
		.type = CONFIG_I64,
		CONFIG_AT(rdma.traffic_class),
		.min = -1,
		.max = 255,
		.preset = "-1",
		.help = "Traffic class (IPv4: TOS) of RoCE packets, with its ECN bits; -1: "
			"network.dscp's. No effect on the simulated device"},
	NUMBER("rdma.retry_count", rdma.retry_count, 0, 7, "7",
		"So often is sent again what nobody acknowledged"),
	NUMBER("rdma.rnr_retry", rdma.rnr_retry, 0, 7, "7",
		"So often is sent again what the receiver was not ready for; 7: for ever"),
	NUMBER("rdma.timeout", rdma.timeout, 1, 24, "16",
		"How long to wait for an acknowledgement: 4.096 us * 2^N"),
	NUMBER("rdma.sessions_max", rdma.sessions_max, 1, LIMIT_RDMA_SESSIONS_MAX, "256",
		"Sessions at a time"),
	NUMBER("rdma.session_requests", rdma.session_requests, 0, LIMIT_SESSION_REQUESTS_MAX, "0",
		"Requests that a session may have under way; two less than rdma.max_recv_wr at "
		"most; 0: half of it"),
	NUMBER("rdma.idle_timeout_s", rdma.idle_timeout_s, 1, 86400, "300",
		"A session without requests is closed"),
	NUMBER("rdma.keepalive_s", rdma.keepalive_s, 0, 3600, "5",
		"A session whose client has been silent for so long is asked whether its host is "
		"there, and ended when it is not; 0: never"),
	NUMBER("rdma.request_timeout_s", rdma.request_timeout_s, 1, 9, "8",
		"A transfer of which nothing moves for so long is given up"),
	CHOICE("rdma.encryption", rdma.encryption, "off", "off|required",
		"Encryption of sessions: required of all, or off: for clients that ask for it"),
	BYTES("rdma.lease_bytes", rdma.lease_bytes, 0, 1ull << 30, "4MiB",
		"Copies of hot objects that a session's client may read by itself; 0: none"),
	NUMBER("rdma.lease_seconds", rdma.lease_seconds, 1, 300, "20",
		"How long such a copy may be read; less when the object or rights change"),
	FLAG("rdma.strict_token", rdma.strict_token, "false",
		"Refuse RDMA tokens with the two fields that older clients append"),
	CHOICE("rdma.decline", rdma.decline, "s3-error", "s3-error|aws-draft",
		"How a request whose RDMA token cannot be served is answered"),
	NUMBER("rdma.token_queue_pairs", rdma.token_queue_pairs, 1, LIMIT_TOKEN_QUEUE_PAIRS_MAX,
		"256", "Queue pairs that clients may join by ?rdma-connect at a time"),
	NUMBER("rdma.token_timeout_s", rdma.token_timeout_s, 1, 9, "6",
		"A transfer by RDMA token takes no longer: its client gives up after 10 s"),
	NUMBER("rdma.dc_key", rdma.dc_key, 0, UINT64_MAX, "4293844428",
		"Access key of clients' DC targets; 0xffeeddcc by common default"),
	FLAG("rdma.discovery", rdma.discovery, "true",
		"Answer `nebulaio discover` on the device's fabric"),
	TEXT("rdma.discovery_group", rdma.discovery_group, DISCOVERY_GROUP,
		"Multicast address that discovery listens to"),
	TEXT("rdma.zone", rdma.zone, "", "Where this server stands, as discovery tells it"),
	TEXT("rdma.note", rdma.note, "", "Anything else that discovery shall tell"),

	FLAG("gpudirect.enabled", gpudirect.enabled, "false",
		"Bodies move straight to and from clients' GPU memory; says at start what is "
		"missing for it"),
	FLAG("dpu.enabled", dpu.enabled, "false",
		"This host has a BlueField DPU; says at start what is missing for it"),
	FLAG("dpu.enable_rdma", dpu.enable_rdma, "false",
		"RDMA goes by the DPU's device; says at start when it does not"),
	FLAG("dpu.enable_crypto", dpu.enable_crypto, "false",
		"The DPU encrypts RDMA traffic (IPsec, set up on it); says at start what of that "
		"cannot be seen"),
	FLAG("s3_express.enabled", s3_express.enabled, "false",
		"Directory buckets (S3 Express One Zone) can be made and used, of any zone"),

	FLAG("network.pfc.enabled", network.pfc.enabled, "false",
		"The RDMA device's interface must have priority flow control; says at start when "
		"it has not"),
	NUMBER("network.pfc.priority", network.pfc.priority, 0, 7, "3",
		"Priority of RDMA traffic; goes with network.pfc.enabled and network.ecn.enabled"),
	FLAG("network.ecn.enabled", network.ecn.enabled, "false",
		"The RDMA device's interface must have ECN for RoCE; says at start when it has "
		"not"),
	NUMBER("network.ecn.threshold", network.ecn.threshold, 1, 1000000, "100",
		"Packets, on the switches; goes with network.ecn.enabled"),
	NUMBER("network.dscp", network.dscp, 0, 63, "26",
		"DSCP of RDMA traffic; no effect on the simulated device"),
	NUMBER("network.mtu", network.mtu, 0, 65535, "0",
		"MTU that the RDMA device's interface must have; says at start when it has less; "
		"0: any"),
};
const size_t CONFIG_KEY_COUNT = ARRAY_LEN(CONFIG_KEYS);
