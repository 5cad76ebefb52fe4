/* cli/cmd_admin.c: `nebulaio admin`: accounts, managed policies, quotas of buckets, and the state
 * of the store and its volumes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "admin_call.h"
#include "admin_replicate.h"
#include "admin_volume.h"
#include "backup.h"
#include "backup_target.h"
#include "base/clock.h"

#define MOVE_S_MAX 300u

static const char USAGE[] =
	"usage: nebulaio admin [OPTIONS] info | health | buckets | accounts | policies\n"
	"       nebulaio admin [OPTIONS] account-create NUMBER [DISPLAY-NAME]\n"
	"       nebulaio admin [OPTIONS] account-show | account-key NUMBER\n"
	"       nebulaio admin [OPTIONS] account-remove NUMBER [force]\n"
	"       nebulaio admin [OPTIONS] bucket-show | bucket-quota-remove NAME\n"
	"       nebulaio admin [OPTIONS] bucket-quota NAME BYTES [OBJECTS]\n"
	"       nebulaio admin [OPTIONS] policy-put NAME FILE\n"
	"       nebulaio admin [OPTIONS] policy-remove NAME\n"
	"       nebulaio admin [OPTIONS] scrub | scrub-status | log\n"
	"       nebulaio admin [OPTIONS] volume list | cancel | erasure DATA+PARITY\n"
	"       nebulaio admin [OPTIONS] volume add PATH... [DATA+PARITY]\n"
	"       nebulaio admin [OPTIONS] volume remove NUMBER... [DATA+PARITY]\n"
	"       nebulaio admin [OPTIONS] volume-replace NUMBER PATH\n"
	"       nebulaio admin [OPTIONS] targets | target-remove NAME [force]\n"
	"       nebulaio admin [OPTIONS] resync BUCKET [all]\n"
	"       nebulaio admin [OPTIONS] target-put NAME ENDPOINTS BUCKET ACCESS-KEY [ACCOUNTS]\n"
	"       nebulaio admin [OPTIONS] cluster\n"
	"       nebulaio admin [OPTIONS] store-move NUMBER GATEWAY\n"
	"       nebulaio admin backup | backup-list | backup-verify [OPTIONS] PLACE\n"
	"       nebulaio admin restore [OPTIONS] PLACE [SERVE-OPTIONS]\n"
	"\n"
	"health prints the state of each volume; its exit code is 1 when a volume is not good.\n"
	"bucket-quota sets the most that a bucket holds, noncurrent versions included: BYTES is\n"
	"a size such as 10GiB, OBJECTS a number; 0 is no limit. bucket-show prints what it holds.\n"
	"account-key makes a key for the account's own root user. account-remove refuses while\n"
	"the account owns buckets; in a cluster, whose other stores are not asked, it needs\n"
	"force. policies, policy-put and policy-remove act on the account of --account; FILE is a\n"
	"policy as JSON. scrub starts to read all bodies; it finds damage and repairs it.\n"
	"scrub-status prints the progress; its exit code is 6 when the scrub found damage that it\n"
	"cannot repair. volume-replace replaces one of several volumes by the volume at PATH on\n"
	"the server. PATH must be blank; the server rebuilds the volume's contents there. volume\n"
	"add and volume remove change the set of several volumes while the server runs: all\n"
	"bodies move to the new set in the background, and then the removed volumes are free.\n"
	"DATA+PARITY are the shards of a body, one for each volume; without them parity stays.\n"
	"volume erasure changes only these. volume list prints the volumes and the progress,\n"
	"volume cancel goes back to the set before. A user who may admin:Volumes may do these,\n"
	"too. log prints the latest 200 lines of the server's log, but none of the flows'; a user\n"
	"who may admin:ConsoleLog may, too.\n"
	"target-put registers a bucket of another S3 server, to which buckets of this one may be\n"
	"replicated (`nebulaio replicate`), or from which they may fetch (`nebulaio origin`):\n"
	"ENDPOINTS as --endpoint of other commands has them. The secret key of ACCESS-KEY is\n"
	"NEBULAIO_TARGET_SECRET_KEY, or else the first line of standard input; its region is\n"
	"NEBULAIO_TARGET_REGION, or else us-east-1. ACCOUNTS whose buckets may name the target:\n"
	"numbers, separated by commas, or all; without them only the server's own account.\n"
	"targets prints what waits for each. target-remove refuses while rules or the origin of\n"
	"a bucket name the target; force: what waits for it then says FAILED. resync replicates\n"
	"what BUCKET had before its rules, and what FAILED; all: also what was replicated before.\n"
	"cluster asks a gateway which gateway owns which store. store-move hands a store over to\n"
	"another gateway, and waits until it serves there.\n"
	"\n"
	"backup copies the whole running store: buckets and their configuration, objects with\n"
	"all versions, uploads in progress, accounts and policies, as they are at one moment.\n"
	"It sends nothing again that the target has already, and a backup that was cut short\n"
	"goes on when it is run again. A user of the server's own account who may admin:Backup\n"
	"may run it, too.\n"
	"PLACE is FOLDER or s3://BUCKET[/PREFIX]. backup-list prints the backups that it has,\n"
	"backup-verify reads one whole and compares it with its checksums. restore makes a store\n"
	"from one, on this host, while no server runs on it; SERVE-OPTIONS are those of\n"
	"`nebulaio serve`, and say where (--data DIR, --volume PATH, --config FILE, --set\n"
	"KEY=VALUE). Their own options stand behind the verb:\n"
	"  --keep N           backup: then remove all but the last N, and what only they need\n"
	"  --pin SECONDS      backup: how long the store holds one moment (600); a longer backup\n"
	"                     goes on from a later moment\n"
	"  --number N         restore, backup-verify: that backup (default the last)\n"
	"  --overwrite        restore: destroy the store that is there\n"
	"  -q, --quiet        print nothing but errors\n" TARGET_USAGE "\n" ADMIN_USAGE;

static int get(struct admin *admin, const char *what, json_t **ret_json)
{
	const struct admin_request request = {.method = "GET", .parts = {what}};

	return admin_request(admin, &request, ret_json);
}

static uint64_t number(const json_t *json, const char *member)
{
	return (uint64_t)json_integer_value(json_object_get(json, member));
}

/* Adds the server's answer about that to info, by the same name; nothing from a server that has
 * none. */
static void told_add(struct admin *admin, json_t *info, const char *name)
{
	const struct admin_request request = {
		.method = "GET", .parts = {name}, .may_be_missing = true};
	json_t *told;

	if (admin_request(admin, &request, &told) == CLI_OK)
		json_object_set_new(info, name, told);
	else
		json_decref(told);
}

static void tuning_print(const json_t *tuning)
{
	const json_t *spin = json_object_get(tuning, "spin"),
		     *cache = json_object_get(tuning, "cache");
	size_t count = json_array_size(json_object_get(spin, "cores")), idx;
	const char *comma = "";
	json_t *core;
	char now[32];

	printf("tuning %s: event loop%s spin%s", admin_text(tuning, "mode"), REMOTE_S(count),
		count == 1 ? "s " : " ");
	json_array_foreach(json_object_get(spin, "cores"), idx, core)
	{
		printf("%s%.0f", comma, (double)number(core, "idle_spin_ns") / 1e3);
		comma = ", ";
	}
	printf(" us without work (%s); at most %s of cache (%s)\n",
		json_is_true(json_object_get(spin, "follows")) ? "follows the load" : "fixed",
		remote_bytes_text(number(cache, "bytes_max"), now),
		json_is_true(json_object_get(cache, "follows")) ? "follows the load" : "fixed");
}

static void region_print(const json_t *region)
{
	char now[32], least[32], most[32];
	size_t open = 0, idx;
	json_t *extension;

	json_array_foreach(json_object_get(region, "extensions"), idx, extension) open +=
		!strcmp(admin_text(extension, "state"), "open");
	printf("memory region of %s (%s to %s), %zu of %zu extension%s open\n",
		remote_bytes_text(number(region, "bytes"), now),
		remote_bytes_text(number(region, "bytes_min"), least),
		remote_bytes_text(number(region, "bytes_max"), most), open,
		json_array_size(json_object_get(region, "extensions")),
		REMOTE_S(json_array_size(json_object_get(region, "extensions"))));
}

static int admin_info(struct admin *admin, int count, char **arguments)
{
	char used[32], whole[32], cache[32];
	uint64_t objects, buckets, accounts;
	json_t *info, *store;
	int ret = get(admin, "info", &info);
	size_t volumes;

	(void)count;
	(void)arguments;
	if (ret)
		return ret;
	store = json_object_get(info, "store");
	objects = number(store, "objects");
	buckets = number(store, "buckets");
	accounts = number(info, "accounts");
	volumes = json_array_size(json_object_get(info, "volumes"));
	told_add(admin, info, "region");
	told_add(admin, info, "tuning");
	if (admin->opts.json) {
		admin_print_json(info);
	} else {
		printf("%s of %s used, %s of cache\n%llu object%s in %llu bucket%s of %llu "
		       "account%s, including the server's own documents\n",
			remote_bytes_text(number(store, "used_bytes"), used),
			remote_bytes_text(number(store, "volume_bytes"), whole),
			remote_bytes_text(number(store, "cache_bytes"), cache),
			(unsigned long long)objects, REMOTE_S(objects), (unsigned long long)buckets,
			REMOTE_S(buckets), (unsigned long long)accounts, REMOTE_S(accounts));
		if (json_object_get(info, "region"))
			region_print(json_object_get(info, "region"));
		if (json_object_get(info, "tuning"))
			tuning_print(json_object_get(info, "tuning"));
		printf("%zu volume%s\n", volumes, REMOTE_S(volumes));
	}
	json_decref(info);
	return CLI_OK;
}

static int admin_health(struct admin *admin, int count, char **arguments)
{
	json_t *info, *volume;
	size_t idx;
	int ret = get(admin, "info", &info);

	(void)count;
	(void)arguments;
	if (ret)
		return ret;
	json_array_foreach(json_object_get(info, "volumes"), idx, volume)
	{
		char bytes[32];

		if (strcmp(admin_text(volume, "state"), "good") != 0)
			ret = CLI_FAILED;
		if (admin->opts.json)
			admin_print_json(volume);
		else
			printf("volume %llu  %-10s  %s\n",
				(unsigned long long)number(volume, "number"),
				admin_text(volume, "state"),
				remote_bytes_text(number(volume, "bytes"), bytes));
	}
	json_decref(info);
	return ret;
}

static int scrub_print(const struct admin *admin, const json_t *scrub)
{
	char bytes[32], at[32], all[32];
	uint64_t damaged = number(scrub, "damaged");

	if (admin->opts.json)
		admin_print_json(scrub);
	else if (json_is_true(json_object_get(scrub, "running")))
		printf("running: %s of about %s\n",
			remote_bytes_text(number(scrub, "done_bytes"), at),
			remote_bytes_text(number(scrub, "all_bytes"), all));
	if (!admin->opts.json)
		printf("%llu runs, %s read: repaired %llu pieces and %llu shards of parity, %llu "
		       "places cannot be repaired\n",
			(unsigned long long)number(scrub, "runs"),
			remote_bytes_text(number(scrub, "bytes"), bytes),
			(unsigned long long)number(scrub, "mended"),
			(unsigned long long)number(scrub, "parity_mended"),
			(unsigned long long)damaged);
	return damaged ? CLI_DAMAGED : CLI_OK;
}

static int admin_scrub_status(struct admin *admin, int count, char **arguments)
{
	json_t *json;
	int ret = get(admin, "scrub", &json);

	(void)count;
	(void)arguments;
	if (!ret)
		ret = scrub_print(admin, json);
	json_decref(json);
	return ret;
}

static int admin_scrub(struct admin *admin, int count, char **arguments)
{
	const struct admin_request request = {.method = "POST", .parts = {"scrub"}};

	(void)count;
	(void)arguments;
	return admin_request(admin, &request, NULL);
}

static int admin_volume_replace(struct admin *admin, int count, char **arguments)
{
	json_t *body = json_pack("{s:s}", "path", arguments[1]);
	const struct admin_request request = {
		.method = "PUT", .parts = {"volumes", arguments[0]}, .body = body};
	int ret = admin_request(admin, &request, NULL);

	(void)count;
	json_decref(body);
	return ret;
}

/* Prints each element of a list on a line, as JSON or by two of its members. */
static void list_print(
	const struct admin *admin, const json_t *list, const char *first, const char *second)
{
	const json_t *entry;
	size_t idx;

	json_array_foreach((json_t *)list, idx, entry)
	{
		if (admin->opts.json)
			admin_print_json(entry);
		else
			printf("%-24s %s\n", admin_shown(entry, first), admin_shown(entry, second));
	}
}

static int admin_buckets(struct admin *admin, int count, char **arguments)
{
	json_t *json;
	int ret = get(admin, "buckets", &json);

	(void)count;
	(void)arguments;
	if (!ret)
		list_print(admin, json_object_get(json, "buckets"), "name", "account_id");
	json_decref(json);
	return ret;
}

/* ---- What a bucket holds, and its quota. ---- */

static const char *limit_text(uint64_t limit, const char *text)
{
	return limit ? text : "no limit";
}

static void bucket_print(const struct admin *admin, const json_t *bucket)
{
	const json_t *quota = json_object_get(bucket, "quota");
	uint64_t bytes_max = number(quota, "bytes"), objects_max = number(quota, "objects");
	const json_t *memory = json_object_get(bucket, "memory");
	char used[32], most[32], objects[32], memory_objects[32];

	if (admin->opts.json) {
		admin_print_json(bucket);
		return;
	}
	snprintf(objects, sizeof(objects), "%llu", (unsigned long long)objects_max);
	snprintf(memory_objects, sizeof(memory_objects), "%llu",
		(unsigned long long)number(memory, "objects"));
	remote_bytes_text(bytes_max, most);
	printf("bucket   %s\naccount  %s\nholds    %s in %llu object%s and versions\n"
	       "quota    %s, objects: %s\n",
		admin_text(bucket, "name"), admin_text(bucket, "account_id"),
		remote_bytes_text(number(bucket, "bytes"), used),
		(unsigned long long)number(bucket, "objects"), REMOTE_S(number(bucket, "objects")),
		limit_text(bytes_max, most), limit_text(objects_max, objects));
	if (memory)
		printf("memory   %s, objects: %s, ttl: %llu s, when full: %s\n",
			remote_bytes_text(number(memory, "bytes"), most),
			number(memory, "objects") ? memory_objects : "no limit",
			(unsigned long long)number(memory, "ttl_s"), admin_text(memory, "full"));
}

static int bucket_show(struct admin *admin, int count, char **arguments)
{
	const struct admin_request request = {.method = "GET", .parts = {"buckets", arguments[0]}};
	json_t *bucket;
	int ret = admin_request(admin, &request, &bucket);

	(void)count;
	if (!ret)
		bucket_print(admin, bucket);
	json_decref(bucket);
	return ret;
}

static int bucket_quota(struct admin *admin, int count, char **arguments)
{
	struct admin_request request = {
		.method = "PUT", .parts = {"buckets", arguments[0], "quota"}};
	uint64_t bytes, objects = 0;
	json_t *body, *bucket;
	int ret;

	if (slice_to_bytes(slice_str(arguments[1]), &bytes) || bytes > INT64_MAX)
		return cli_usage_error(admin->command,
			"'%s': BYTES is a whole number, or one with KiB, MiB, GiB or TiB",
			arguments[1]);
	if (count > 2 && (slice_to_u64(slice_str(arguments[2]), &objects) || objects > INT64_MAX))
		return cli_usage_error(
			admin->command, "'%s': OBJECTS is a whole number", arguments[2]);
	body = json_pack("{s:I, s:I}", "bytes", (json_int_t)bytes, "objects", (json_int_t)objects);
	request.body = body;
	ret = admin_request(admin, &request, &bucket);
	if (!ret)
		bucket_print(admin, bucket);
	json_decref(bucket);
	json_decref(body);
	return ret;
}

static int bucket_quota_remove(struct admin *admin, int count, char **arguments)
{
	const struct admin_request request = {
		.method = "DELETE", .parts = {"buckets", arguments[0], "quota"}};

	(void)count;
	return admin_request(admin, &request, NULL);
}

static int admin_accounts(struct admin *admin, int count, char **arguments)
{
	json_t *json;
	int ret = get(admin, "accounts", &json);

	(void)count;
	(void)arguments;
	if (!ret)
		list_print(admin, json_object_get(json, "accounts"), "account_id", "display_name");
	json_decref(json);
	return ret;
}

/* ---- Accounts. ---- */

static int account_get(
	struct admin *admin, const char *account, bool may_be_missing, json_t **ret_json)
{
	const struct admin_request request = {
		.method = "GET", .parts = {"accounts", account}, .may_be_missing = may_be_missing};

	return admin_request(admin, &request, ret_json);
}

static void account_print(const struct admin *admin, const json_t *account)
{
	if (admin->opts.json) {
		admin_print_json(account);
		return;
	}
	printf("account   %s\nid        %s\nname      %s\nusers     %zu\n",
		admin_text(account, "account_id"), admin_text(account, "id"),
		admin_shown(account, "display_name"),
		json_array_size(json_object_get(account, "users")));
	admin_print_keys(admin, account);
}

static int account_show(struct admin *admin, int count, char **arguments)
{
	json_t *account;
	int ret = account_get(admin, arguments[0], false, &account);

	(void)count;
	if (!ret)
		account_print(admin, account);
	json_decref(account);
	return ret;
}

static int account_create(struct admin *admin, int count, char **arguments)
{
	json_t *body = json_object(), *account = NULL;
	const struct admin_request request = {
		.method = "PUT", .parts = {"accounts", arguments[0]}, .body = body};
	int ret = account_get(admin, arguments[0], true, NULL);

	if (ret == CLI_OK) {
		fprintf(stderr, "nebulaio: account %s exists already\n", arguments[0]);
		ret = CLI_FAILED;
	} else if (ret == CLI_NOT_FOUND) {
		if (count > 1)
			json_object_set_new(body, "display_name", json_string(arguments[1]));
		ret = admin_request(admin, &request, &account);
		if (!ret)
			account_print(admin, account);
	}
	json_decref(account);
	json_decref(body);
	return ret;
}

static int account_key(struct admin *admin, int count, char **arguments)
{
	const char *const parts[ADMIN_PARTS_MAX + 1] = {"accounts", arguments[0], "keys"};
	json_t *also = json_pack("{s:s}", "account", arguments[0]);
	int ret = admin_key_make(admin, parts, also);

	(void)count;
	json_decref(also);
	return ret;
}

static int account_remove(struct admin *admin, int count, char **arguments)
{
	const struct admin_request request = {.parts = {"accounts", arguments[0]}};

	return admin_remove(admin, "account-remove", &request, count, arguments);
}

/* ---- Managed policies. ---- */

static int admin_policies(struct admin *admin, int count, char **arguments)
{
	bool root = strcmp(admin->account, "root") == 0;
	json_t *account;
	int ret = account_get(admin, admin->account, root, &account);

	(void)count;
	(void)arguments;
	if (ret == CLI_NOT_FOUND && root)
		return CLI_OK; /* there is none yet */
	if (!ret)
		list_print(admin, json_object_get(account, "policies"), "name", "path");
	json_decref(account);
	return ret;
}

static int policy_put(struct admin *admin, int count, char **arguments)
{
	json_error_t error;
	json_t *document, *body;
	struct admin_request request = {
		.method = "PUT", .parts = {"accounts", admin->account, "policies", arguments[0]}};
	int ret;

	(void)count;
	errno = 0;
	document = json_load_file(arguments[1], JSON_REJECT_DUPLICATES, &error);
	if (!document) {
		fprintf(stderr, "nebulaio: %s: line %d: %s\n", arguments[1], error.line,
			error.text);
		return errno == ENOENT ? CLI_NOT_FOUND : CLI_FAILED;
	}
	body = json_pack("{s:o}", "document", document);
	request.body = body;
	ret = admin_request(admin, &request, NULL);
	json_decref(body);
	return ret;
}

static int policy_remove(struct admin *admin, int count, char **arguments)
{
	const struct admin_request request = {.method = "DELETE",
		.parts = {"accounts", admin->account, "policies", arguments[0]}};

	(void)count;
	return admin_request(admin, &request, NULL);
}

static int admin_log(struct admin *admin, int count, char **arguments)
{
	json_t *json, *line;
	size_t idx;
	int ret = get(admin, "log", &json);

	(void)count;
	(void)arguments;
	if (ret)
		return ret;
	if (admin->opts.json)
		admin_print_json(json);
	json_array_foreach(json_object_get(json, "lines"), idx, line)
	{
		const char *request = admin_text(line, "request_id");

		if (!admin->opts.json)
			printf("%s %-5s %s: %s%s%s%s\n", admin_shown(line, "time"),
				admin_text(line, "level"), admin_shown(line, "component"),
				request[0] ? "[" : "", remote_text(request), request[0] ? "] " : "",
				admin_shown(line, "message"));
	}
	json_decref(json);
	return CLI_OK;
}

/* ---- Gateways and their stores. ---- */

static const char *or_dash(const char *text)
{
	return text[0] ? text : "-";
}

static int admin_cluster(struct admin *admin, int count, char **arguments)
{
	json_t *cluster, *item;
	int ret = get(admin, "cluster", &cluster);
	size_t idx;

	(void)count;
	(void)arguments;
	if (ret)
		return ret;
	if (admin->opts.json) {
		admin_print_json(cluster);
		json_decref(cluster);
		return CLI_OK;
	}
	printf("%-6s %-8s %-20s %-22s %-22s %-10s %-10s %s\n", "store", "state", "owner", "http",
		"rdma", "volume", "used", "admin, here");
	json_array_foreach(json_object_get(cluster, "stores"), idx, item)
	{
		const char *next = admin_text(item, "next");
		char bytes[32], used[32];

		printf("%-6llu %-8s %-20s %-22s %-22s %-10s %-10s %s%s%s\n",
			(unsigned long long)number(item, "store"), admin_text(item, "state"),
			or_dash(admin_shown(item, "owner")), or_dash(admin_shown(item, "http")),
			or_dash(admin_text(item, "rdma")),
			remote_bytes_text(number(item, "volume_bytes"), bytes),
			remote_bytes_text(number(item, "used_bytes"), used),
			or_dash(admin_shown(item, "admin")), next[0] ? "  goes to " : "",
			remote_text(next));
	}
	printf("\n%-20s %s\n", "gateway", "state");
	json_array_foreach(json_object_get(cluster, "gateways"), idx, item)
	{
		printf("%-20s %s\n", admin_shown(item, "gateway"),
			json_is_true(json_object_get(item, "alive")) ? "lives" : "gone");
	}
	json_decref(cluster);
	return CLI_OK;
}

/* Whether the store serves at that gateway; its state and owner for the user. */
static bool serves_at(const json_t *cluster, uint64_t store, const char *gateway)
{
	const json_t *item = json_array_get(json_object_get(cluster, "stores"), store);

	return item && strcmp(admin_text(item, "state"), "serving") == 0 &&
	       strcmp(admin_text(item, "owner"), gateway) == 0;
}

static int admin_store_move(struct admin *admin, int count, char **arguments)
{
	const struct admin_request request = {.method = "POST",
		.parts = {"cluster", "stores", arguments[0], "move", arguments[1]}};
	uint64_t deadline_ns = clock_now_ns() + MOVE_S_MAX * NS_PER_S, store;
	json_t *json = NULL;
	bool there = false;
	int ret;

	(void)count;
	if (slice_to_u64(slice_str(arguments[0]), &store))
		return cli_usage_error(
			admin->command, "'%s' is not the number of a store", arguments[0]);
	ret = admin_request(admin, &request, &json);
	json_decref(json);
	while (!ret && !there && clock_now_ns() < deadline_ns) {
		ret = get(admin, "cluster", &json);
		there = !ret && serves_at(json, store, arguments[1]);
		if (!ret)
			json_decref(json);
		if (!ret && !there)
			nanosleep(&(struct timespec){.tv_nsec = 200 * NS_PER_MS}, NULL);
	}
	if (ret)
		return ret;
	if (!there) {
		fprintf(stderr,
			"nebulaio admin: store %s does not serve at %s yet: `nebulaio admin "
			"cluster` shows its state\n",
			arguments[0], arguments[1]);
		return CLI_FAILED;
	}
	if (!admin->opts.json)
		printf("store %s serves at %s\n", arguments[0], arguments[1]);
	return CLI_OK;
}

/* These verbs come first, because their options are their own. */
static int verb_first(struct admin *admin, int count, char **arguments)
{
	(void)count;
	(void)arguments;
	return cli_usage_error(admin->command,
		"backup, backup-list, backup-verify and restore come before their options");
}

static int admin_command_run(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(const struct cli_command *command, int argc, char **argv);
	} WHOLE[] = {{"backup", backup_run}, {"backup-list", backup_list_run},
		{"backup-verify", backup_verify_run}, {"restore", restore_run}};
	static const struct admin_verb VERBS[] = {
		{"info", 0, 0, admin_info},
		{"health", 0, 0, admin_health},
		{"buckets", 0, 0, admin_buckets},
		{"bucket-show", 1, 1, bucket_show},
		{"bucket-quota", 2, 3, bucket_quota},
		{"bucket-quota-remove", 1, 1, bucket_quota_remove},
		{"scrub", 0, 0, admin_scrub},
		{"scrub-status", 0, 0, admin_scrub_status},
		{"log", 0, 0, admin_log},
		{"volume", 1, 32, admin_volume},
		{"volume-replace", 2, 2, admin_volume_replace},
		{"accounts", 0, 0, admin_accounts},
		{"account-create", 1, 2, account_create},
		{"account-show", 1, 1, account_show},
		{"account-key", 1, 1, account_key},
		{"account-remove", 1, 2, account_remove},
		{"policies", 0, 0, admin_policies},
		{"policy-put", 2, 2, policy_put},
		{"policy-remove", 1, 1, policy_remove},
		{"targets", 0, 0, admin_targets},
		{"target-put", 4, 5, admin_target_put},
		{"target-remove", 1, 2, admin_target_remove},
		{"resync", 1, 2, admin_resync},
		{"cluster", 0, 0, admin_cluster},
		{"store-move", 2, 2, admin_store_move},
		{"backup", 0, 1, verb_first},
		{"backup-list", 0, 1, verb_first},
		{"backup-verify", 0, 1, verb_first},
		{"restore", 0, 1, verb_first},
	};
	const struct admin_verbs verbs = {&CLI_ADMIN, VERBS, ARRAY_LEN(VERBS), false};

	for (size_t i = 0; argc > 1 && i < ARRAY_LEN(WHOLE); i++)
		if (strcmp(argv[1], WHOLE[i].name) == 0)
			return WHOLE[i].run(&CLI_ADMIN, argc - 1, argv + 1);
	return admin_run(&verbs, argc, argv);
}

const struct cli_command CLI_ADMIN = {
	.name = "admin",
	.summary = "accounts, managed policies, the store's health, backups",
	.usage = USAGE,
	.run = admin_command_run,
};
