/* cli/cmd_find.c: `nebulaio find` and `nebulaio du`: select and sum the objects below a prefix. */
#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tree.h"

static const char FIND_USAGE[] =
	"usage: nebulaio find [OPTIONS] s3://BUCKET[/PREFIX or /GLOB]\n"
	"\n"
	"Prints the address of each object that meets all of these conditions:\n"
	"\n"
	"      --name GLOB    the last part of the key matches GLOB\n"
	"      --larger SIZE  more bytes than SIZE: a number, with K, M, G or T (powers of 1024)\n"
	"      --smaller SIZE fewer bytes than SIZE\n"
	"      --older AGE    changed more than AGE ago: a number with s, m, h or d\n"
	"      --newer AGE    changed less than AGE ago\n" REMOTE_USAGE;

static const char DU_USAGE[] = "usage: nebulaio du [OPTIONS] s3://BUCKET[/PREFIX or /GLOB]\n"
			       "\n"
			       "Prints the bytes and the number of objects below PREFIX.\n"
			       "\n" REMOTE_USAGE;

enum { FIND_NAME = REMOTE_OWN, FIND_LARGER, FIND_SMALLER, FIND_OLDER, FIND_NEWER };

struct wanted {
	const char *name;
	uint64_t larger, smaller; /* 0: no such condition */
	int64_t before_s, after_s;
	bool has_larger;
};

/* Parses a number and a unit, where units[i] means factors[i]. */
static bool number_parse(
	const char *text, const char *units, const uint64_t *factors, uint64_t *ret_number)
{
	const char *unit;
	char *end;

	errno = 0;
	*ret_number = strtoull(text, &end, 10);
	if (end == text || errno || *text == '-')
		return false;
	if (!*end)
		return true;
	unit = strchr(units, *end);
	return unit && !end[1] &&
	       !__builtin_mul_overflow(*ret_number, factors[unit - units], ret_number);
}

static int wanted_option(struct wanted *wanted, int option)
{
	static const uint64_t BYTES[] = {1ull << 10, 1ull << 20, 1ull << 30, 1ull << 40};
	static const uint64_t SECONDS[] = {1, 60, 3600, 86400};
	bool is_age = option == FIND_OLDER || option == FIND_NEWER;
	uint64_t number;

	if (option == FIND_NAME) {
		wanted->name = optarg;
		return CLI_OK;
	}
	if (!(is_age ? number_parse(optarg, "smhd", SECONDS, &number)
		     : number_parse(optarg, "KMGT", BYTES, &number)) ||
		number > INT64_MAX)
		return cli_usage_error(&CLI_FIND, "'%s' is not %s", optarg,
			is_age ? "an age: 90s, 15m, 2h, 7d" : "a size: 100, 4K, 1G");
	if (option == FIND_LARGER) {
		wanted->larger = number;
		wanted->has_larger = true;
	} else if (option == FIND_SMALLER) {
		wanted->smaller = number;
	} else {
		*(option == FIND_OLDER ? &wanted->before_s : &wanted->after_s) =
			(int64_t)time(NULL) - (int64_t)number;
	}
	return CLI_OK;
}

static bool matches(const struct wanted *wanted, const struct tree_item *item, const char *key)
{
	const char *slash = strrchr(key, '/');

	return (!wanted->name || !fnmatch(wanted->name, slash ? slash + 1 : key, 0)) &&
	       (!wanted->has_larger || item->bytes > wanted->larger) &&
	       (!wanted->smaller || item->bytes < wanted->smaller) &&
	       (!wanted->before_s || item->time_s < wanted->before_s) &&
	       (!wanted->after_s || item->time_s > wanted->after_s);
}

static void print_item(const struct remote_opts *opts, const struct tree_place *place,
	const struct tree_item *item, const char *key)
{
	if (!opts->json) {
		printf("s3://%s/%s\n", place->bucket, remote_text(key));
		return;
	}
	printf("{\"bucket\": ");
	remote_print_json(stdout, place->bucket);
	printf(", \"key\": ");
	remote_print_json(stdout, key);
	printf(", \"bytes\": %llu, \"etag\": ", (unsigned long long)item->bytes);
	remote_print_json(stdout, item->etag);
	printf("}\n");
}

static void print_found(const struct remote_opts *opts, const struct tree_place *place,
	const struct tree *tree, const struct wanted *wanted)
{
	for (size_t i = 0; i < tree->count; i++) {
		char key[8192];

		snprintf(key, sizeof(key), "%s%s", place->prefix, tree->items[i].name);
		if (matches(wanted, &tree->items[i], key))
			print_item(opts, place, &tree->items[i], key);
	}
}

static void print_sum(const struct remote_opts *opts, const struct tree *tree)
{
	unsigned long long bytes = 0;
	char text[32];

	for (size_t i = 0; i < tree->count; i++)
		bytes += tree->items[i].bytes;
	if (opts->json)
		printf("{\"bytes\": %llu, \"objects\": %zu}\n", bytes, tree->count);
	else
		printf("%llu bytes (%s) in %zu objects\n", bytes, remote_bytes_text(bytes, text),
			tree->count);
}

static int run(const struct cli_command *command, int argc, char **argv)
{
	static const struct option OPTIONS[] = {REMOTE_OPTIONS,
		{"name", required_argument, NULL, FIND_NAME},
		{"larger", required_argument, NULL, FIND_LARGER},
		{"smaller", required_argument, NULL, FIND_SMALLER},
		{"older", required_argument, NULL, FIND_OLDER},
		{"newer", required_argument, NULL, FIND_NEWER}, {0}};
	bool find = command == &CLI_FIND;
	struct wanted wanted = {0};
	struct remote_opts opts;
	struct tree_place place = {0};
	struct neb_client *client = NULL;
	struct tree tree = {0};
	int option, ret;

	remote_defaults(&opts);
	optind = 1;
	opterr = 0;
	while ((option = getopt_long(argc, argv, REMOTE_SHORT, OPTIONS, NULL)) != -1) {
		if (!find && option >= REMOTE_OWN)
			return cli_usage_error(
				command, "'%s' is an option of find only", argv[optind - 1]);
		ret = option >= REMOTE_OWN ? wanted_option(&wanted, option)
					   : remote_option(command, &opts, option, argv);
		if (ret)
			return ret;
	}
	if (optind != argc - 1 || !tree_place_parse(argv[optind], false, &place) || !place.bucket)
		ret = cli_usage_error(command, "expected one s3://BUCKET[/PREFIX]");
	else
		ret = remote_open(&opts, &client);
	if (ret)
		goto out;
	ret = tree_read(client, &place, false, &tree);
	if (!ret && find)
		print_found(&opts, &place, &tree, &wanted);
	else if (!ret)
		print_sum(&opts, &tree);
out:
	tree_free(&tree);
	tree_place_free(&place);
	neb_client_close(client);
	return ret;
}

static int find_run(int argc, char **argv)
{
	return run(&CLI_FIND, argc, argv);
}

static int du_run(int argc, char **argv)
{
	return run(&CLI_DU, argc, argv);
}

const struct cli_command CLI_FIND = {
	.name = "find",
	.summary = "find objects by name, size and age",
	.usage = FIND_USAGE,
	.run = find_run,
};

const struct cli_command CLI_DU = {
	.name = "du",
	.summary = "sum up the objects below a prefix",
	.usage = DU_USAGE,
	.run = du_run,
};
