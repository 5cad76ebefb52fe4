/* cli/cmd_mirror.c: `nebulaio mirror` and `nebulaio diff`: compare two folders or prefixes. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "tree.h"

static const char MIRROR_USAGE[] =
	"usage: nebulaio mirror [OPTIONS] FOLDER|s3://BUCKET[/PREFIX] FOLDER|s3://BUCKET[/PREFIX]\n"
	"\n"
	"Makes the second like the first: copies every name that is missing or differs. A name\n"
	"differs when the lengths differ. When both have ETags that are plain digests, the ETags\n"
	"decide. Otherwise it differs when the first is newer. A link to a file counts as the\n"
	"file; links to folders are skipped. Wildcards (*, ?, [...]) after the bucket limit what\n"
	"the first has; in the second they are plain characters.\n"
	"\n"
	"      --delete       also delete names that only the second has\n"
	"  -n, --dry-run      only print what mirror would do\n"
	"  -P, --parallel N   copy N files at a time (4)\n"
	"  -q, --quiet        print no names\n" REMOTE_USAGE;

static const char DIFF_USAGE[] =
	"usage: nebulaio diff [OPTIONS] FOLDER|s3://BUCKET[/PREFIX] FOLDER|s3://BUCKET[/PREFIX]\n"
	"\n"
	"Prints one line per difference: '<' only the first has the name, '>' only the second\n"
	"has it, '!' both have it and they differ (see mirror). Exit code 0: no difference; 1:\n"
	"at least one.\n"
	"\n" REMOTE_USAGE;

struct both {
	struct remote_opts opts;
	struct tree_copy copy;
	struct tree from, to;
	struct neb_client *client;
	bool delete, dry_run;
	uint64_t differences;
	int worst;
};

static int both_parse(const struct cli_command *command, struct both *both, int argc, char **argv)
{
	static const struct option OPTIONS[] = {REMOTE_OPTIONS, {"delete", no_argument, NULL, 'D'},
		{"dry-run", no_argument, NULL, 'n'}, {"parallel", required_argument, NULL, 'P'},
		{"quiet", no_argument, NULL, 'q'}, {0}};
	bool mirror = command == &CLI_MIRROR;
	int option, ret = CLI_OK;

	remote_defaults(&both->opts);
	both->copy.workers = 4;
	optind = 1;
	opterr = 0;
	while (!ret &&
		(option = getopt_long(argc, argv, REMOTE_SHORT "nP:q", OPTIONS, NULL)) != -1) {
		if (!mirror && strchr("DnPq", option < 256 ? option : '?'))
			return cli_usage_error(command, "'%s' is not an option", argv[optind - 1]);
		both->delete |= option == 'D';
		both->dry_run |= option == 'n';
		both->copy.quiet |= option == 'q';
		if (option == 'P')
			ret = tree_workers_parse(command, optarg, &both->copy.workers);
		else if (!strchr("Dnq", option < 256 ? option : '?'))
			ret = remote_option(command, &both->opts, option, argv);
	}
	if (ret)
		return ret;
	if (optind != argc - 2 || !tree_place_parse(argv[optind], true, &both->copy.from) ||
		!tree_target_parse(argv[optind + 1], &both->copy.to))
		return cli_usage_error(command, "expected two folders or s3:// addresses");
	if (!both->copy.from.bucket && !both->copy.to.bucket)
		return cli_usage_error(command, "neither side is an s3:// address");
	if (mirror && (tree_place_holds(&both->copy.from, &both->copy.to) ||
			      tree_place_holds(&both->copy.to, &both->copy.from)))
		return cli_usage_error(command,
			"of s3://%s/%s and s3://%s/%s, one is in the other; choose places apart",
			both->copy.from.bucket, remote_text(both->copy.from.prefix),
			both->copy.to.bucket, remote_text(both->copy.to.prefix));
	both->copy.opts = &both->opts;
	return CLI_OK;
}

/* A name that could not be read is not missing: its copy stays, and the others are copied. */
static int source_read(struct both *both)
{
	int ret = tree_read(both->client, &both->copy.from, false, &both->from);

	if (!both->from.incomplete)
		return ret;
	if (both->delete)
		fprintf(stderr, "nebulaio: %s: not all of it could be read: nothing is deleted\n",
			remote_text(both->copy.from.prefix));
	both->delete = false;
	both->worst = ret;
	return CLI_OK;
}

/* Both sides have names of the same form: below the prefix, without its '/'. */
static int both_run(const struct cli_command *command, struct both *both, tree_visit_fn *visit,
	char **argv, int argc)
{
	int ret = both_parse(command, both, argc, argv);

	if (!ret)
		ret = remote_open(&both->opts, &both->client);
	if (!ret)
		ret = source_read(both);
	if (!ret)
		ret = tree_read(both->client, &both->copy.to, true, &both->to);
	if (!ret) {
		both->copy.items = calloc(both->from.count + 1, sizeof(struct tree_item *));
		ret = both->copy.items ? tree_compare(&both->from, &both->to, visit, both)
				       : CLI_FAILED;
	}
	return ret;
}

static void both_end(struct both *both)
{
	free(both->copy.items);
	tree_free(&both->from);
	tree_free(&both->to);
	tree_place_free(&both->copy.from);
	tree_place_free(&both->copy.to);
	neb_client_close(both->client);
}

/* ---- mirror ---- */

static void print_action(const struct both *both, const char *action, const struct tree_item *item)
{
	if (!both->opts.json) {
		printf("%s %s\n", action, remote_text(item->name));
		return;
	}
	printf("{\"action\": \"%s\", \"name\": ", action);
	remote_print_json(stdout, item->name);
	printf("}\n");
}

static int mirror_visit(void *arg, enum tree_action action, const struct tree_item *item)
{
	struct both *both = arg;
	int ret;

	if (action == TREE_KEEP || (action == TREE_EXTRA && !both->delete))
		return 0;
	if (both->dry_run) {
		print_action(both, action == TREE_EXTRA ? "delete" : "copy", item);
		return 0;
	}
	if (action != TREE_EXTRA) {
		both->copy.items[both->copy.count++] = (struct tree_item *)(uintptr_t)item;
		return 0;
	}
	ret = tree_delete(both->client, &both->copy.to, item->name);
	both->worst = MAX(both->worst, ret);
	if (!ret && !both->copy.quiet)
		print_action(both, "deleted", item);
	return 0;
}

static int mirror_run(int argc, char **argv)
{
	struct both both = {0};
	int ret = both_run(&CLI_MIRROR, &both, mirror_visit, argv, argc);

	if (!ret && both.copy.count)
		ret = tree_copy(&both.copy);
	both_end(&both);
	return MAX(ret, both.worst);
}

/* ---- diff ---- */

static int diff_visit(void *arg, enum tree_action action, const struct tree_item *item)
{
	static const char MARKS[] = {[TREE_COPY] = '<', [TREE_EXTRA] = '>', [TREE_CHANGED] = '!'};
	struct both *both = arg;

	if (action == TREE_KEEP)
		return 0;
	both->differences++;
	if (both->opts.json) {
		printf("{\"state\": \"%c\", \"name\": ", MARKS[action]);
		remote_print_json(stdout, item->name);
		printf(", \"bytes\": %llu}\n", (unsigned long long)item->bytes);
	} else {
		printf("%c %s\n", MARKS[action], remote_text(item->name));
	}
	return 0;
}

static int diff_run(int argc, char **argv)
{
	struct both both = {0};
	int ret = both_run(&CLI_DIFF, &both, diff_visit, argv, argc);

	both_end(&both);
	return !ret && both.differences ? CLI_FAILED : MAX(ret, both.worst);
}

const struct cli_command CLI_MIRROR = {
	.name = "mirror",
	.summary = "make a folder or prefix like another",
	.usage = MIRROR_USAGE,
	.run = mirror_run,
};

const struct cli_command CLI_DIFF = {
	.name = "diff",
	.summary = "compare two folders or prefixes",
	.usage = DIFF_USAGE,
	.run = diff_run,
};
