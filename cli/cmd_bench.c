/* cli/cmd_bench.c: `nebulaio bench`: reads the options, runs bench/, and returns its outcome. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "bench/bench.h"
#include "remote.h"

#define USAGE                                                                                      \
	"usage: nebulaio bench [--quick] [--only TEXT] [--json FILE] [OPTIONS]\n"                  \
	"       nebulaio bench --endpoint URLS [--metrics ADDR:PORT] [--pid PID] [OPTIONS]\n"      \
	"\n"                                                                                       \
	"Measures operations over RDMA and HTTP, and the limits of this machine (anchors).\n"      \
	"It measures them in turn, so that the ratios hold when other programs run too.\n"         \
	"It starts its own server on one processor and runs the client on another one. With\n"     \
	"--endpoint it measures a running server, in a new bucket. docs/guide/bench.md\n"          \
	"explains every column.\n"                                                                 \
	"\n"                                                                                       \
	"  --quick             only the rows that the marks (targets) need; about a minute\n"      \
	"  --only TEXT         the rows with TEXT in their name, e.g. \"get 4KiB\" or \"cold\";\n" \
	"                      if a row has exactly this name, only that row; \"dialects\": GET\n" \
	"                      and PUT by each dialect of S3 over RDMA, and by HTTP\n"             \
	"  --list              print the names of the rows and measure nothing\n"                  \
	"  --json FILE         also write all results to FILE\n"                                   \
	"  --dir DIR           folder for the server's data and the raw log, on the disk\n"        \
	"                      to be measured (default ./build, TMPDIR or here, whichever\n"       \
	"                      is on a disk)\n"                                                    \
	"  --repetitions N     number of slices per row (default 5, at most 64)\n"                 \
	"  --slice MS          length of a slice (default 200)\n"                                  \
	"  --rate N            open loop: N starts a second; latency counts from the moment\n"     \
	"                      when each request was due\n"                                        \
	"  --verify N          check the CRC of every Nth answer (default 64)\n"                   \
	"  --list-keys N       number of keys to list (default 100000; --quick: 10000)\n"          \
	"  --objects N         number of objects of the rows of many (default 1000000)\n"          \
	"  --idle poll|default poll: keep idle processors awake (used where permitted);\n"         \
	"                      default: let them sleep\n"                                          \
	"  --priority high|normal  high: run before other processes (used where permitted)\n"      \
	"  --set KEY=VALUE     configuration of the server that bench starts\n"                    \
	"  --endpoint URLS     measure this server: rdma://HOST:PORT,http://HOST:PORT\n"           \
	"  --metrics ADDR:PORT its metrics address: for the counts of copies and flushes\n"        \
	"  --pid PID           its process: for processor time, cycles, context switches\n"        \
	"  --device NAME       RDMA device to use (default: the one that leads to the server)\n"   \
	"  --compare HOST:PORT run the HTTP rows against this S3 server, too, in turns\n"          \
	"  --compare-access-key KEY, --compare-secret-key KEY\n"                                   \
	"                      its keys (or NEBULAIO_COMPARE_ACCESS_KEY, ..._SECRET_KEY);\n"       \
	"                      without them its requests are not signed\n"                         \
	"  --compare-pid PID   its process: for processor time\n"                                  \
	"  --access-key KEY, --secret-key KEY\n"                                                   \
	"                      its keys\n"                                                         \
	"\n"                                                                                       \
	"Exit code 1: a row could not be measured or had errors. A missed mark is reported but\n"  \
	"does not change the exit code.\n"

enum {
	OPT_QUICK = REMOTE_OWN,
	OPT_ONLY,
	OPT_LIST,
	OPT_DIR,
	OPT_REPETITIONS,
	OPT_SLICE,
	OPT_RATE,
	OPT_VERIFY,
	OPT_LIST_KEYS,
	OPT_OBJECTS,
	OPT_IDLE,
	OPT_PRIORITY,
	OPT_SET,
	OPT_METRICS,
	OPT_PID,
	OPT_COMPARE,
	OPT_COMPARE_ACCESS,
	OPT_COMPARE_SECRET,
	OPT_COMPARE_PID
};
static const struct option OPTIONS[] = {
	{"endpoint", required_argument, NULL, REMOTE_ENDPOINT},
	{"device", required_argument, NULL, REMOTE_DEVICE},
	{"access-key", required_argument, NULL, REMOTE_ACCESS},
	{"secret-key", required_argument, NULL, REMOTE_SECRET},
	{"json", required_argument, NULL, REMOTE_JSON},
	{"quick", no_argument, NULL, OPT_QUICK},
	{"only", required_argument, NULL, OPT_ONLY},
	{"list", no_argument, NULL, OPT_LIST},
	{"dir", required_argument, NULL, OPT_DIR},
	{"repetitions", required_argument, NULL, OPT_REPETITIONS},
	{"slice", required_argument, NULL, OPT_SLICE},
	{"rate", required_argument, NULL, OPT_RATE},
	{"verify", required_argument, NULL, OPT_VERIFY},
	{"list-keys", required_argument, NULL, OPT_LIST_KEYS},
	{"objects", required_argument, NULL, OPT_OBJECTS},
	{"idle", required_argument, NULL, OPT_IDLE},
	{"priority", required_argument, NULL, OPT_PRIORITY},
	{"set", required_argument, NULL, OPT_SET},
	{"metrics", required_argument, NULL, OPT_METRICS},
	{"pid", required_argument, NULL, OPT_PID},
	{"compare", required_argument, NULL, OPT_COMPARE},
	{"compare-access-key", required_argument, NULL, OPT_COMPARE_ACCESS},
	{"compare-secret-key", required_argument, NULL, OPT_COMPARE_SECRET},
	{"compare-pid", required_argument, NULL, OPT_COMPARE_PID},
	{0},
};

/* Parses a number within bounds; CLI_USAGE, prints why. */
static int number(const char *name, uint64_t min, uint64_t max, uint64_t *ret_number)
{
	uint64_t value;

	if (slice_to_u64(slice_str(optarg), &value) || value < min || value > max)
		return cli_usage_error(&CLI_BENCH, "%s: '%s' is not a number from %llu to %llu",
			name, optarg, (unsigned long long)min, (unsigned long long)max);
	*ret_number = value;
	return CLI_OK;
}

static int numeric_option(struct bench_opts *opts, int option)
{
	uint64_t value = 0;
	int ret;

	switch (option) {
	case OPT_REPETITIONS:
		ret = number("--repetitions", 1, BENCH_REPETITIONS_MAX, &value);
		opts->repetitions = (uint32_t)value;
		return ret;
	case OPT_SLICE:
		ret = number("--slice", 10, 60000, &value);
		opts->slice_ns = value * NS_PER_MS;
		return ret;
	case OPT_RATE:
		return number("--rate", 1, 100000000, &opts->rate);
	case OPT_VERIFY:
		ret = number("--verify", 1, UINT32_MAX, &value);
		opts->verify_every = (uint32_t)value;
		return ret;
	case OPT_LIST_KEYS:
		ret = number("--list-keys", 1, 100000000, &value);
		opts->list_keys = (uint32_t)value;
		return ret;
	case OPT_OBJECTS:
		ret = number("--objects", 1, 99999999, &value);
		opts->objects = (uint32_t)value;
		return ret;
	case OPT_COMPARE_PID:
		ret = number("--compare-pid", 1, 1 << 22, &value);
		opts->compare_pid = (int)value;
		return ret;
	default:
		ret = number("--pid", 1, 1 << 22, &value);
		opts->server_pid = (int)value;
		return ret;
	}
}

/* The other server. */
static int compare_option(struct bench_opts *opts, int option)
{
	if (option == OPT_COMPARE)
		opts->compare = optarg;
	else if (option == OPT_COMPARE_ACCESS)
		opts->compare_access_key = optarg;
	else if (option == OPT_COMPARE_SECRET)
		opts->compare_secret_key = optarg;
	else
		return numeric_option(opts, option);
	return CLI_OK;
}

static int compare_check(struct bench_opts *opts)
{
	if (!opts->compare &&
		(opts->compare_access_key || opts->compare_secret_key || opts->compare_pid))
		return cli_usage_error(&CLI_BENCH, "--compare-access-key, --compare-secret-key and "
						   "--compare-pid need --compare");
	if (!opts->compare)
		return CLI_OK;
	if (!strncmp(opts->compare, "https://", 8))
		return cli_usage_error(&CLI_BENCH, "--compare: bench asks by HTTP, not HTTPS");
	if (!strncmp(opts->compare, "http://", 7))
		opts->compare += 7;
	if (!opts->compare_access_key)
		opts->compare_access_key = getenv("NEBULAIO_COMPARE_ACCESS_KEY");
	if (!opts->compare_secret_key)
		opts->compare_secret_key = getenv("NEBULAIO_COMPARE_SECRET_KEY");
	if (!opts->compare_access_key != !opts->compare_secret_key)
		return cli_usage_error(
			&CLI_BENCH, "--compare: an access key and a secret key belong together");
	return CLI_OK;
}

static int own_option(struct bench_opts *opts, int option)
{
	switch (option) {
	case OPT_QUICK:
		opts->quick = true;
		return CLI_OK;
	case OPT_ONLY:
		opts->only = optarg;
		return CLI_OK;
	case OPT_LIST:
		opts->list_rows = true;
		return CLI_OK;
	case OPT_DIR:
		opts->dir = optarg;
		return CLI_OK;
	case OPT_METRICS:
		opts->metrics_address = optarg;
		return CLI_OK;
	case OPT_IDLE:
		opts->idle_default = !strcmp(optarg, "default");
		if (opts->idle_default || !strcmp(optarg, "poll"))
			return CLI_OK;
		return cli_usage_error(
			&CLI_BENCH, "--idle: '%s' is neither poll nor default", optarg);
	case OPT_PRIORITY:
		opts->priority_normal = !strcmp(optarg, "normal");
		if (opts->priority_normal || !strcmp(optarg, "high"))
			return CLI_OK;
		return cli_usage_error(
			&CLI_BENCH, "--priority: '%s' is neither high nor normal", optarg);
	case OPT_SET:
		if (opts->server_set_count == BENCH_SERVER_SETS_MAX)
			return cli_usage_error(
				&CLI_BENCH, "--set: at most %u times", BENCH_SERVER_SETS_MAX);
		opts->server_sets[opts->server_set_count++] = optarg;
		return CLI_OK;
	default:
		return option >= OPT_COMPARE ? compare_option(opts, option)
					     : numeric_option(opts, option);
	}
}

static int parse(struct bench_opts *opts, struct remote_opts *remote, int argc, char **argv)
{
	bool endpoint = false, list_keys = false;
	int option, ret;

	optind = 1;
	opterr = 0;
	while ((option = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1) {
		if (option == REMOTE_JSON) {
			opts->json_path = optarg;
			continue;
		}
		endpoint = endpoint || option == REMOTE_ENDPOINT;
		list_keys = list_keys || option == OPT_LIST_KEYS;
		ret = option >= REMOTE_OWN ? own_option(opts, option)
					   : remote_option(&CLI_BENCH, remote, option, argv);
		if (ret)
			return ret;
	}
	if (optind < argc)
		return cli_usage_error(&CLI_BENCH, "unexpected argument '%s'", argv[optind]);
	if (endpoint) {
		opts->endpoints = remote->endpoints;
		opts->access_key = remote->access_key;
		opts->secret_key = remote->secret_key;
		opts->region = remote->region;
		opts->device_name = remote->device_name;
		if (opts->server_set_count)
			return cli_usage_error(&CLI_BENCH,
				"--set needs a server that bench starts, not --endpoint");
	} else if (opts->metrics_address || opts->server_pid) {
		return cli_usage_error(&CLI_BENCH, "--metrics and --pid need --endpoint");
	}
	if (opts->quick && !list_keys)
		opts->list_keys = 10000;
	return compare_check(opts);
}

static int bench_command(int argc, char **argv)
{
	struct bench_opts opts;
	struct remote_opts remote;
	struct bench_outcome outcome;
	int ret;

	bench_defaults(&opts);
	remote_defaults(&remote);
	ret = parse(&opts, &remote, argc, argv);
	if (ret)
		return ret;
	ret = bench_run(&opts, &outcome);
	if (ret == -EINVAL)
		return CLI_USAGE;
	if (ret == -EHOSTUNREACH)
		return CLI_UNREACHABLE;
	if (opts.list_rows)
		return ret ? CLI_FAILED : CLI_OK;
	if (outcome.rows)
		printf("\n%u rows, %u not measured or with errors; "
		       "first marks: %u reached, %u missed\n",
			outcome.rows, outcome.rows_failed, outcome.marks - outcome.marks_missed,
			outcome.marks_missed);
	return ret || outcome.rows_failed ? CLI_FAILED : CLI_OK;
}

const struct cli_command CLI_BENCH = {
	.name = "bench",
	.summary = "measure a server and compare it with the limits of its machine",
	.usage = USAGE,
	.run = bench_command,
};
