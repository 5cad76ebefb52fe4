/* server/config.c: reads the configuration from its four places and refuses keys and values that it
 * does not know. */

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "server/config_priv.h"

#include "etcd/etcd.h"
#include "flow/fan_out.h"

#define CONFIG_DEPTH_MAX  8
#define IDLE_SPIN_NS_AUTO (50 * NS_PER_US)
#define ENV_PREFIX	  "NEBULAIO_"

int config_refuse(struct config_error *error, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(error->text, sizeof(error->text), fmt, args);
	va_end(args);
	return -EINVAL;
}

static const struct config_key *key_find(const char *path)
{
	for (size_t i = 0; i < CONFIG_KEY_COUNT; i++) {
		if (strcmp(CONFIG_KEYS[i].path, path) == 0)
			return &CONFIG_KEYS[i];
	}
	return NULL;
}

static bool parse_bool(const char *text, bool *ret_value)
{
	static const char *const YES[] = {"true", "yes", "on", "1"};
	static const char *const NO[] = {"false", "no", "off", "0"};

	for (size_t i = 0; i < ARRAY_LEN(YES); i++) {
		if (strcasecmp(text, YES[i]) == 0 || strcasecmp(text, NO[i]) == 0) {
			*ret_value = strcasecmp(text, YES[i]) == 0;
			return true;
		}
	}
	return false;
}

static bool same_bool(const char *a, const char *b)
{
	bool first, second;

	return parse_bool(a, &first) && parse_bool(b, &second) && first == second;
}

static bool in_choices(const char *choices, const char *value)
{
	struct slice rest = slice_str(choices);

	while (rest.data) {
		if (slice_eq(slice_split(&rest, '|'), slice_str(value)))
			return true;
	}
	return false;
}

static int set_number(void *at, const struct config_key *key, const char *value, const char *where,
	struct config_error *error)
{
	bool minus = key->type == CONFIG_I64 && value[0] == '-';
	uint64_t number;
	bool ok = key->type == CONFIG_BYTES ? slice_to_bytes(slice_str(value), &number) == 0
					    : slice_to_u64(slice_str(value + minus), &number) == 0;

	if (key->may_be_auto && strcmp(value, "auto") == 0) {
		*(uint64_t *)at = CONFIG_AUTO;
		return 0;
	}
	if (!ok)
		return config_refuse(error, "%s: %s: '%s' is not a %s", where, key->path, value,
			key->type == CONFIG_BYTES ? "size; write 65536, 64KiB, 512MiB or 2GiB"
						  : "number");
	if (minus ? -(int64_t)number < key->min
		  : number > key->max || (key->min > 0 && number < (uint64_t)key->min))
		return config_refuse(error, "%s: %s: %s is out of range; it takes %lld to %llu",
			where, key->path, value, (long long)key->min, (unsigned long long)key->max);
	if (key->type == CONFIG_I64)
		*(int64_t *)at = minus ? -(int64_t)number : (int64_t)number;
	else
		*(uint64_t *)at = number;
	return 0;
}

static int set_key(struct config *config, const struct config_key *key, const char *value,
	const char *where, struct config_error *error)
{
	void *at = (char *)config + key->offset;

	if (key->not_yet && !same_bool(value, key->preset))
		return config_refuse(error, "%s: %s cannot be set to '%s': %s", where, key->path,
			value, key->not_yet);
	switch (key->type) {
	case CONFIG_BOOL:
		if (!parse_bool(value, at))
			return config_refuse(error, "%s: %s: '%s' is neither true nor false", where,
				key->path, value);
		return 0;
	case CONFIG_TEXT:
		if (key->choices && !in_choices(key->choices, value))
			return config_refuse(error, "%s: %s: '%s' is not one of %s", where,
				key->path, value, key->choices);
		if (slice_copy_str(slice_str(value), at, key->size))
			return config_refuse(error, "%s: %s: longer than %zu bytes", where,
				key->path, key->size - 1);
		return 0;
	case CONFIG_U64:
	case CONFIG_I64:
	case CONFIG_BYTES:
		return set_number(at, key, value, where, error);
	}
	CHECK_FAIL("a config type without a reader");
}

int config_set(struct config *config, const char *path, const char *value, const char *where,
	struct config_error *ret_error)
{
	const struct config_key *key = key_find(path);

	if (!key)
		return config_refuse(ret_error,
			"%s: no key '%s'; `nebulaio serve --help-config` lists all keys", where,
			path);
	return set_key(config, key, value, where, ret_error);
}

void config_defaults(struct config *config)
{
	struct config_error error;

	memset(config, 0, sizeof(*config));
	for (size_t i = 0; i < CONFIG_KEY_COUNT; i++) {
		int ret =
			set_key(config, &CONFIG_KEYS[i], CONFIG_KEYS[i].preset, "default", &error);

		CHECK(ret == 0);
	}
}

#define CONFIG_KEYS_MAX 512u /* a test compares the table's size with it */

/* ---- YAML: nested mappings of scalars, and two lists. ---- */

struct yaml_walk {
	struct config *config;
	const char *file;
	char path[CONFIG_TEXT_MAX];
	size_t lens[CONFIG_DEPTH_MAX]; /* of the path at each depth */
	size_t depth;
	bool awaits_value;
	bool in_list;
	bool said[CONFIG_KEYS_MAX]; /* set by this file: a second value would win silently */
	struct config_flows_walk flows;
	char list[CONFIG_LIST_MAX]; /* its values, separated by commas */
	struct config_error *error;
};

static int path_push(struct yaml_walk *walk, const char *name, size_t line)
{
	size_t len = walk->depth ? walk->lens[walk->depth - 1] : 0;
	int n = snprintf(walk->path + len, sizeof(walk->path) - len, "%s%s", len ? "." : "", name);

	if (n < 0 || (size_t)n >= sizeof(walk->path) - len)
		return config_refuse(walk->error, "%s:%zu: the key is too long", walk->file, line);
	walk->awaits_value = true;
	return 0;
}

static int list_add(struct yaml_walk *walk, const char *text, size_t line)
{
	size_t len = strlen(walk->list);
	int n = snprintf(walk->list + len, sizeof(walk->list) - len, "%s%s", len ? "," : "", text);

	if (n < 0 || (size_t)n >= sizeof(walk->list) - len)
		return config_refuse(walk->error, "%s:%zu: the list is too long", walk->file, line);
	return strchr(text, ',') ? config_refuse(walk->error, "%s:%zu: a comma in a list's value",
					   walk->file, line)
				 : 0;
}

static int key_said(struct yaml_walk *walk, const char *where)
{
	const struct config_key *key = key_find(walk->path);
	size_t idx = key ? (size_t)(key - CONFIG_KEYS) : CONFIG_KEYS_MAX;

	if (idx >= CONFIG_KEYS_MAX)
		return 0; /* unknown: config_set refuses it by its name */
	if (walk->said[idx])
		return config_refuse(walk->error, "%s: %s appears twice in the file: remove one",
			where, walk->path);
	walk->said[idx] = true;
	return 0;
}

static int walk_scalar(struct yaml_walk *walk, const yaml_event_t *event)
{
	const char *text = (const char *)event->data.scalar.value;
	size_t line = event->start_mark.line + 1;
	char where[CONFIG_TEXT_MAX + 32];

	if (walk->depth == 0)
		return config_refuse(
			walk->error, "%s:%zu: expected 'key: value' lines", walk->file, line);
	if (!walk->awaits_value)
		return path_push(walk, text, line);
	if (walk->in_list)
		return list_add(walk, text, line);
	snprintf(where, sizeof(where), "%s:%zu", walk->file, line);
	walk->awaits_value = false;
	if (key_said(walk, where))
		return -EINVAL;
	return config_set(walk->config, walk->path, text, where, walk->error);
}

/* One key is a list of values, another one of mappings. */
static int list_begin(struct yaml_walk *walk, size_t line)
{
	if (walk->awaits_value && !walk->in_list && strcmp(walk->path, "flows") == 0) {
		walk->awaits_value = false;
		walk->config->flow_count = 0;
		walk->flows = (struct config_flows_walk){
			.config = walk->config, .error = walk->error, .level = CONFIG_FLOWS_LIST};
		return 0;
	}
	if (!walk->awaits_value || walk->in_list || strcmp(walk->path, "storage.volumes") != 0)
		return config_refuse(walk->error, "%s:%zu: lists and aliases are not allowed here",
			walk->file, line);
	walk->in_list = true;
	walk->list[0] = 0;
	return 0;
}

static int list_end(struct yaml_walk *walk, size_t line)
{
	char where[CONFIG_TEXT_MAX + 32];

	snprintf(where, sizeof(where), "%s:%zu", walk->file, line);
	walk->in_list = false;
	walk->awaits_value = false;
	return config_set(walk->config, walk->path, walk->list, where, walk->error);
}

static int walk_event(struct yaml_walk *walk, const yaml_event_t *event)
{
	size_t line = event->start_mark.line + 1;
	char where[CONFIG_TEXT_MAX + 32];

	if (walk->flows.level != CONFIG_FLOWS_OUTSIDE) {
		snprintf(where, sizeof(where), "%s:%zu", walk->file, line);
		return config_flows_event(&walk->flows, event, where);
	}

	switch (event->type) {
	case YAML_SCALAR_EVENT:
		return walk_scalar(walk, event);
	case YAML_MAPPING_START_EVENT:
		if (walk->in_list)
			return config_refuse(walk->error,
				"%s:%zu: expected a list of single values", walk->file, line);
		if (walk->depth == CONFIG_DEPTH_MAX)
			return config_refuse(
				walk->error, "%s:%zu: nested too deeply", walk->file, line);
		walk->lens[walk->depth++] = walk->awaits_value ? strlen(walk->path) : 0;
		walk->awaits_value = false;
		return 0;
	case YAML_MAPPING_END_EVENT:
		walk->depth--;
		return 0;
	case YAML_SEQUENCE_START_EVENT:
		return list_begin(walk, line);
	case YAML_SEQUENCE_END_EVENT:
		return list_end(walk, line);
	case YAML_ALIAS_EVENT:
		return config_refuse(walk->error, "%s:%zu: lists and aliases are not allowed here",
			walk->file, line);
	default:
		return 0;
	}
}

int config_load_file(struct config *config, const char *path, struct config_error *ret_error)
{
	struct yaml_walk walk = {.config = config, .file = path, .error = ret_error};
	yaml_parser_t parser;
	bool done = false;
	int ret = 0;
	FILE *file = fopen(path, "re");

	if (!file) {
		ret = -errno;
		snprintf(ret_error->text, sizeof(ret_error->text), "%s: cannot be read: %s", path,
			strerror(-ret));
		return ret;
	}
	if (!yaml_parser_initialize(&parser)) {
		fclose(file);
		return -ENOMEM;
	}
	yaml_parser_set_input_file(&parser, file);
	while (!ret && !done) {
		yaml_event_t event;

		if (!yaml_parser_parse(&parser, &event)) {
			ret = config_refuse(ret_error, "%s:%zu: not YAML: %s", path,
				parser.problem_mark.line + 1,
				parser.problem ? parser.problem : "it cannot be read");
			break;
		}
		done = event.type == YAML_STREAM_END_EVENT;
		ret = walk_event(&walk, &event);
		yaml_event_delete(&event);
	}
	yaml_parser_delete(&parser);
	fclose(file);
	return ret;
}

/* ---- Environment. ---- */

/* "rdma.device_name" matches "RDMA_DEVICE_NAME". */
static bool env_matches(const char *path, const char *name, size_t name_len)
{
	if (strlen(path) != name_len)
		return false;
	for (size_t i = 0; i < name_len; i++) {
		char want = path[i] == '.' ? '_' : (char)toupper((unsigned char)path[i]);

		if (name[i] != want)
			return false;
	}
	return true;
}

static const struct config_key *env_key(const char *name, size_t name_len)
{
	static const struct {
		const char *name;
		const char *path;
	} SHORT[] = {{"ROOT_USER", "auth.root_user"}, {"ROOT_PASSWORD", "auth.root_password"}};

	for (size_t i = 0; i < ARRAY_LEN(SHORT); i++) {
		if (slice_eq(slice_of(name, name_len), slice_str(SHORT[i].name)))
			return key_find(SHORT[i].path);
	}
	for (size_t i = 0; i < CONFIG_KEY_COUNT; i++) {
		if (env_matches(CONFIG_KEYS[i].path, name, name_len))
			return &CONFIG_KEYS[i];
	}
	return NULL;
}

/* The clients' own variables have the same prefix; the server ignores them. */
static bool env_is_clients(struct slice name)
{
	static const char *const NAMES[] = {"ENDPOINT", "ADMIN_ENDPOINT", "ACCESS_KEY",
		"SECRET_KEY", "SESSION_TOKEN", "PROFILE", "BUCKET", "CONNECT_TO",
		"REQUEST_TIMEOUT_S", "CONNECT_TIMEOUT_S", "TARGET_SECRET_KEY", "TARGET_REGION",
		"COMPARE_ACCESS_KEY", "COMPARE_SECRET_KEY", "RUNAI_ANY_VERSION", "COMPAT_DIR",
		"BUILD_DIR"};

	for (size_t i = 0; i < ARRAY_LEN(NAMES); i++) {
		if (slice_eq(name, slice_str(NAMES[i])))
			return true;
	}
	return slice_starts(name, SLICE("TEST_"));
}

int config_load_env(struct config *config, char *const *env, struct config_error *ret_error)
{
	for (; *env; env++) {
		const char *name = *env + strlen(ENV_PREFIX);
		const char *equals;
		const struct config_key *key;
		char where[CONFIG_TEXT_MAX];
		int ret;

		if (strncmp(*env, ENV_PREFIX, strlen(ENV_PREFIX)) != 0)
			continue;
		equals = strchr(name, '=');
		if (!equals || env_is_clients(slice_of(name, (size_t)(equals - name))))
			continue;
		snprintf(where, sizeof(where), "environment variable %.*s", (int)(equals - *env),
			*env);
		key = env_key(name, (size_t)(equals - name));
		if (!key)
			return config_refuse(ret_error, "%s: no such configuration key", where);
		ret = set_key(config, key, equals + 1, where, ret_error);
		if (ret)
			return ret;
	}
	return 0;
}

/* ---- Checks of all keys together. ---- */

#define HTTPS_DEVELOPMENT "127.0.0.1:9443"

void config_embed(struct config *config, bool development)
{
	snprintf(config->rdma.address, sizeof(config->rdma.address), "127.0.0.1");
	config->rdma.enabled = development;
	if (development)
		snprintf(config->https.address, sizeof(config->https.address), "%s",
			HTTPS_DEVELOPMENT);
}

/* Adds a broken rule to those found before it, as far as there is room. */
static void __attribute__((format(printf, 2, 3)))
complain(struct config_error *error, const char *fmt, ...)
{
	size_t len = strlen(error->text);
	va_list args;

	if (len) {
		snprintf(error->text + len, sizeof(error->text) - len, "\n  ");
		len += strlen(error->text + len);
	}
	va_start(args, fmt);
	vsnprintf(error->text + len, sizeof(error->text) - len, fmt, args);
	va_end(args);
}

uint64_t config_cache_bytes(const struct config *config)
{
	const uint64_t buckets = MIN(config->memory.buckets_bytes, config->memory.bytes);

	return config->memory.cache_bytes == CONFIG_AUTO ? (config->memory.bytes - buckets) / 2
							 : config->memory.cache_bytes;
}

uint64_t config_idle_spin_ns(const struct config *config)
{
	return config->cpu.idle_spin_us == CONFIG_AUTO
		       ? IDLE_SPIN_NS_AUTO
		       : MAX(config->cpu.idle_spin_us * NS_PER_US, 1);
}

bool config_tunes_spin(const struct config *config)
{
	return strcmp(config->tuning, "auto") == 0 && config->cpu.idle_spin_us == CONFIG_AUTO;
}

bool config_tunes_cache(const struct config *config)
{
	return strcmp(config->tuning, "auto") == 0 && config->memory.cache_bytes == CONFIG_AUTO;
}

bool config_encrypts_new_buckets(const struct config *config)
{
	if (strcmp(config->s3.new_bucket_encryption, "auto") == 0)
		return config->encryption.key_file[0];
	return strcmp(config->s3.new_bucket_encryption, "AES256") == 0;
}

uint32_t config_session_requests(const struct config *config)
{
	uint64_t requests = config->rdma.session_requests ? config->rdma.session_requests
							  : config->rdma.max_recv_wr / 2;

	return (uint32_t)MIN(requests, LIMIT_SESSION_REQUESTS_MAX);
}

/* True for ADDRESS:PORT or an address whose packets do not leave the host. */
bool config_is_loopback(const char *address)
{
	struct slice text = slice_str(address);
	struct in6_addr v6;
	struct in_addr v4;
	char host[64];

	if (slice_starts(text, SLICE("["))) {
		text = slice_from(text, 1);
		text = slice_split(&text, ']');
	} else if (memchr(text.data, ':', text.len) == memrchr(text.data, ':', text.len)) {
		text = slice_split(&text, ':');
	}
	if (slice_copy_str(text, host, sizeof(host)))
		return false;
	if (inet_pton(AF_INET, host, &v4) == 1)
		return ntohl(v4.s_addr) >> 24 == 127;
	if (inet_pton(AF_INET6, host, &v6) == 1)
		return IN6_IS_ADDR_LOOPBACK(&v6);
	return strcmp(host, "localhost") == 0;
}

bool config_path_next(struct slice *rest, struct slice *ret_address, struct slice *ret_device)
{
	struct slice word = SLICE_NONE;

	while (rest->len && !word.len)
		word = slice_trim(slice_split(rest, ','));
	*ret_address = slice_trim(slice_split(&word, '='));
	*ret_device = slice_trim(word);
	return ret_address->len > 0;
}

/* Why the text cannot be used. */
static bool paths_check(const char *text, char *why, size_t why_bytes)
{
	struct slice rest = slice_str(text), address, device;
	uint32_t count = 0;

	while (config_path_next(&rest, &address, &device)) {
		if (address.len >= CONFIG_PATH_ADDRESS_BYTES || device.len >= CONFIG_TEXT_MAX) {
			snprintf(why, why_bytes, "'%.*s' is not an address",
				SLICE_FMT(slice_to(address, 80)));
			return false;
		}
		count++;
	}
	if (rest.len) {
		snprintf(why, why_bytes, "'%.*s' is not ADDRESS or ADDRESS=DEVICE",
			SLICE_FMT(slice_to(rest, 80)));
		return false;
	}
	if (count > CONFIG_PATHS_MAX) {
		snprintf(why, why_bytes, "%u addresses; %u at most, beside rdma.address", count,
			CONFIG_PATHS_MAX);
		return false;
	}
	return true;
}

static bool paths_are_loopback(const char *text)
{
	struct slice rest = slice_str(text), address, device;
	char host[64];

	while (config_path_next(&rest, &address, &device))
		if (slice_copy_str(address, host, sizeof(host)) || !config_is_loopback(host))
			return false;
	return true;
}

/* Everybody knows the development keys, whether the configuration names them or not. */
static void check_exposed(
	const struct config *config, bool development, struct config_error *ret_error)
{
	const struct {
		const char *key, *address;
		bool on;
	} PLACES[] = {
		{"http.address", config->http.address, config->http.address[0]},
		{"https.address", config->https.address, config->https.address[0]},
		{"admin.address", config->admin.address, config->admin.address[0]},
		{"console.address", config->console.address, config->console.address[0]},
		{"rdma.address", config->rdma.address, config->rdma.enabled},
		{"rdma.paths", config->rdma.paths,
			config->rdma.enabled && !paths_are_loopback(config->rdma.paths)},
	};
	bool known = strcmp(config->auth.root_user, CONFIG_DEVELOPMENT_KEY) == 0 &&
		     strcmp(config->auth.root_password, CONFIG_DEVELOPMENT_KEY) == 0;
	char list[6 * CONFIG_TEXT_MAX] = "";
	size_t len = 0;

	for (size_t i = 0; i < ARRAY_LEN(PLACES); i++)
		if (PLACES[i].on && !config_is_loopback(PLACES[i].address) && len < sizeof(list))
			len += (size_t)snprintf(list + len, sizeof(list) - len, "%s%s '%s'",
				len ? ", " : "", PLACES[i].key, PLACES[i].address);
	if (len && (development || known))
		complain(ret_error,
			"the development keys %s/%s are public, so they work on loopback only, "
			"and these addresses are not loopback: %s: set NEBULAIO_ROOT_USER and "
			"NEBULAIO_ROOT_PASSWORD to your own keys, or the addresses to 127.0.0.1",
			CONFIG_DEVELOPMENT_KEY, CONFIG_DEVELOPMENT_KEY, list);
}

static void check_https(
	const struct config *config, bool development, struct config_error *ret_error)
{
	bool certificate = config->https.certificate[0], key = config->https.key[0];

	if (certificate != key)
		complain(ret_error, "https.%s is set, but https.%s is not: set both",
			certificate ? "certificate" : "key", certificate ? "key" : "certificate");
	if (config->https.address[0] && !certificate && !key && !development)
		complain(ret_error,
			"https.address is %s, but https.certificate and https.key are not set "
			"(only the development profile makes its own certificate)",
			config->https.address);
}

static bool is_url(const char *text)
{
	return strncmp(text, "http://", 7) == 0 || strncmp(text, "https://", 8) == 0;
}

static void check_console(
	const struct config *config, bool development, struct config_error *ret_error)
{
	const char *url = config->console.s3_url;

	if (config->console.https && !config->https.certificate[0] && !development)
		complain(ret_error,
			"console.https is true, but https.certificate and https.key are not set "
			"(only the development profile makes its own certificate)");
	if (url[0] && !is_url(url))
		complain(ret_error,
			"console.s3_url: '%s' is not a URL: it begins with http:// or https://",
			url);
}

static void check_openid(const struct config *config, struct config_error *ret_error)
{
	const char *issuer = config->console.openid.issuer, *reach = config->auth.web_identity;
	const char *back = config->console.openid.redirect_url;

	if (!issuer[0])
		return;
	if (!is_url(issuer) || (back[0] && !is_url(back)))
		complain(ret_error,
			"console.openid: '%s' is not a URL: it begins with http:// or https://",
			is_url(issuer) ? back : issuer);
	if (strcmp(reach, "none") == 0 || (strcmp(reach, "any") != 0 && issuer[4] == ':'))
		complain(ret_error,
			"console.openid.issuer: auth.web_identity is %s, so that the "
			"server may not connect to %s",
			reach, issuer);
	if (!config->console.openid.client_id[0])
		complain(ret_error, "console.openid.issuer needs console.openid.client_id");
	if (!config->console.openid.role[0] == !config->console.openid.role_claim[0])
		complain(ret_error, "console.openid.issuer needs console.openid.role or "
				    "console.openid.role_claim, and not both");
	if (config->console.openid.client_secret[0] && config->console.openid.client_secret_file[0])
		complain(ret_error,
			"console.openid.client_secret and console.openid.client_secret_file are "
			"both set: set only one of them");
}

static void check_multicast(const struct config *config, struct config_error *ret_error)
{
	const char *first = config->fan_out.multicast;
	struct in_addr address = {0};
	bool good = inet_pton(AF_INET, first, &address) == 1;
	uint64_t last = (uint64_t)ntohl(address.s_addr) + FLOW_CAST_GROUPS_MAX - 1;

	if (first[0] && (!good || ntohl(address.s_addr) >> 28 != 0xe || last >> 28 != 0xe))
		complain(ret_error,
			"fan_out.multicast: '%s' is not the first of %u IPv4 multicast addresses, "
			"such as 239.192.78.128",
			first, FLOW_CAST_GROUPS_MAX);
}

static void check_storage(const struct config *config, struct config_error *ret_error)
{
	if (config->storage.volume[0] && config->storage.volumes[0])
		complain(ret_error,
			"storage.volume and storage.volumes are both set: set only one of them");
	/* Ceph protects its objects itself, and the members of an array have one owner together,
	 * which only another mechanism than a lock for each could tell. */
	if (strstr(config->storage.volumes, "rados://"))
		complain(ret_error,
			"storage.volumes: a volume rados://… cannot be a member of an array: "
			"Ceph protects it; set storage.volume to that one alone");
	if (config->storage.log[0] && config->storage.volumes[0])
		complain(ret_error,
			"storage.log and storage.volumes are both set: several volumes have the "
			"log on themselves, as copies");
	if (config->storage.log[0] && config->storage.log[0] != '/' &&
		strncmp(config->storage.log, "dax:///", 7) != 0)
		complain(ret_error,
			"storage.log: '%s' is no whole path: /dev/dax0.0, dax:///PATH, /PATH",
			config->storage.log);
	if (config->storage.log[0] && strstr(config->storage.volume, "://") &&
		strncmp(config->storage.volume, "dax:///", 7) != 0)
		complain(ret_error,
			"storage.log needs bodies on this host, and storage.volume is %s",
			config->storage.volume);
	if (config->storage.erasure.parity >= config->storage.erasure.data)
		complain(ret_error,
			"storage.erasure.parity is %llu, but must be less than "
			"storage.erasure.data, which is %llu",
			(unsigned long long)config->storage.erasure.parity,
			(unsigned long long)config->storage.erasure.data);
}

/* Each volume of the list is one of another host: an exporter fences former owners. */
static bool all_remote(const char *list)
{
	struct slice rest = slice_str(list);

	while (rest.len)
		if (!slice_starts(slice_trim(slice_split(&rest, ',')), SLICE("rdma://")))
			return false;
	return true;
}

static void check_etcd(const struct config *config, struct config_error *ret_error)
{
	const char *volumes =
		config->storage.volumes[0] ? config->storage.volumes : config->storage.volume;

	if (!config->cluster.etcd[0])
		return;
	if (!etcd_endpoints_valid(config->cluster.etcd))
		complain(ret_error,
			"cluster.etcd: '%s' is not a list of at most 8 endpoints http://HOST:2379 "
			"or https://HOST:2379, separated by commas",
			config->cluster.etcd);
	if (config->cluster.enabled)
		complain(ret_error, "cluster.etcd and cluster.enabled are both set: gateways keep "
				    "their map in Ceph; set only one of them");
	if (!volumes[0] || !all_remote(volumes))
		complain(ret_error,
			"cluster.etcd: all volumes must be of other hosts (rdma://HOST:PORT/NAME), "
			"because each server that may own the store must reach them; volumes "
			"rados://… have their lease in Ceph");
	if (!config->storage.protect_index)
		complain(ret_error, "cluster.etcd needs storage.protect_index: true, so that the "
				    "next owner finds the index in the volumes");
	if (!config->cluster.etcd_certificate[0] != !config->cluster.etcd_key[0])
		complain(ret_error,
			"cluster.etcd_certificate and cluster.etcd_key: set both or none");
	if (strlen(config->cluster.etcd_prefix) > 128)
		complain(ret_error, "cluster.etcd_prefix has more than 128 characters");
}

static void check_numa(const struct config *config, struct config_error *ret_error)
{
	const char *node = config->numa.node;
	size_t digits = strspn(node, "0123456789");

	if (strcmp(node, "auto") == 0 || strcmp(node, "none") == 0 ||
		(digits && digits <= 4 && !node[digits]))
		return;
	complain(ret_error, "numa.node: '%s' is not a node: use a number, auto or none", node);
}

static void check_numa_memory(const struct config *config, struct config_error *ret_error)
{
	const char *node = config->numa.memory_node;
	size_t digits = strspn(node, "0123456789");

	if (node[digits] || digits > 4)
		complain(ret_error, "numa.memory_node: '%s' is not the number of a node", node);
	if (config->numa.memory_only && !node[0])
		complain(ret_error, "numa.memory_only needs numa.memory_node");
}

/* Checks beyond a number's bounds. */
static void check_rdma(const struct config *config, struct config_error *ret_error)
{
	uint64_t mtu = config->rdma.path_mtu;
	char why[160];

	if (!paths_check(config->rdma.paths, why, sizeof(why)))
		complain(ret_error, "rdma.paths: %s", why);
	if (config->rdma.paths[0] && !config->rdma.address[0])
		complain(ret_error,
			"rdma.paths: rdma.address is empty, so that RDMA listens on all addresses "
			"of one device: set it to one of the addresses");
	if (mtu && (mtu < 256 || (mtu & (mtu - 1))))
		complain(ret_error,
			"rdma.path_mtu: %llu is not an RDMA MTU; use 256, 512, 1024, 2048 or "
			"4096, or 0 for the port's",
			(unsigned long long)mtu);
	if (config_session_requests(config) + CAPSULE_SPARE_RECEIVES > config->rdma.max_recv_wr)
		complain(ret_error,
			"rdma.session_requests is %llu, and a session needs %u receives more: "
			"lower it to %llu, or raise rdma.max_recv_wr to %llu",
			(unsigned long long)config->rdma.session_requests, CAPSULE_SPARE_RECEIVES,
			(unsigned long long)config->rdma.max_recv_wr - CAPSULE_SPARE_RECEIVES,
			(unsigned long long)config->rdma.session_requests + CAPSULE_SPARE_RECEIVES);
}

static void check_memory(const struct config *config, struct config_error *ret_error)
{
	uint64_t most = config->memory.bytes / 4 * 3;

	if (config->memory.bytes_max && config->memory.bytes_max < config->memory.bytes + 64 * MIB)
		complain(ret_error,
			"memory.bytes_max: the region grows by 64MiB or more: set it to at least "
			"%lluMiB, or to 0 for a region that keeps its size",
			(unsigned long long)((config->memory.bytes + 64 * MIB) / MIB));
	if (config->memory.buckets_bytes > most ||
		(config->memory.buckets_bytes &&
			config_cache_bytes(config) + config->memory.buckets_bytes > most))
		complain(ret_error,
			"memory.buckets_bytes and the cache together are more than three quarters "
			"of memory.bytes (%llu MiB); transfers need the rest: raise memory.bytes, "
			"or lower memory.buckets_bytes or memory.cache_bytes",
			(unsigned long long)(config->memory.bytes / MIB));
	else if (config_cache_bytes(config) > most)
		complain(ret_error,
			"memory.cache_bytes is more than three quarters of memory.bytes (%llu "
			"MiB); transfers need the rest: lower it to %lluMiB or less, or remove it",
			(unsigned long long)(config->memory.bytes / MIB),
			(unsigned long long)(most / MIB));
}

int config_check(const struct config *config, bool development, struct config_error *ret_error)
{
	ret_error->text[0] = '\0';
	check_exposed(config, development, ret_error);
	check_https(config, development, ret_error);
	check_console(config, development, ret_error);
	check_openid(config, ret_error);
	check_multicast(config, ret_error);
	check_storage(config, ret_error);
	check_etcd(config, ret_error);
	check_rdma(config, ret_error);
	check_numa(config, ret_error);
	check_numa_memory(config, ret_error);
	check_memory(config, ret_error);
	if (!development &&
		(strlen(config->auth.root_user) < 3 || strlen(config->auth.root_password) < 8))
		complain(ret_error,
			"auth.root_user needs at least 3 and auth.root_password at least 8 "
			"characters; set them in the "
			"configuration or as NEBULAIO_ROOT_USER and NEBULAIO_ROOT_PASSWORD");
	if (!config->http.address[0] && !config->https.address[0] && !config->rdma.enabled)
		complain(ret_error,
			"http.address and https.address are empty and rdma.enabled is false: the "
			"server would listen nowhere");
	return ret_error->text[0] ? -EINVAL : 0;
}
