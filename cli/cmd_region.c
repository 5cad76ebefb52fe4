/* cli/cmd_region.c: `nebulaio region`: the unified region of a running process, seen from outside,
 * and its size, changed by a request to the server. */
#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "admin_call.h"
#include "cli.h"
#include "region/region.h"

static const char USAGE[] =
	"usage: nebulaio region dump [--pid PID] [--json]\n"
	"       nebulaio region [OPTIONS] size\n"
	"       nebulaio region [OPTIONS] grow | shrink [BYTES]\n"
	"\n"
	"dump maps the memory region of a running server read-only and shows its contents:\n"
	"layout, rings of each core, registered memory, targets, frames by owner. Without --pid\n"
	"it takes the only process of this host that has a region.\n"
	"\n"
	"size asks a server how large its region is. grow and shrink change that while it runs,\n"
	"between memory.bytes and memory.bytes_max, by BYTES (such as 1GiB) in whole steps, or by\n"
	"one step. shrink waits until transfers have left the memory. A user of the server's own\n"
	"account who may admin:Region may do this, too.\n" ADMIN_USAGE;

#define DUMP_BYTES_MAX (16 * MIB)

static int report_view_error(const struct cli_command *command, int pid, int error)
{
	if (error == -ENOENT && pid)
		fprintf(stderr,
			"nebulaio %s: process %d has no region: is it a running nebulaio "
			"server?\n",
			command->name, pid);
	else if (error == -ENOENT)
		fprintf(stderr,
			"nebulaio %s: no process here has a region; start `nebulaio serve`\n",
			command->name);
	else
		fprintf(stderr, "nebulaio %s: cannot look into process %d: %s%s\n", command->name,
			pid, strerror(-error),
			error == -EACCES || error == -EPERM
				? "; run it as the server's user or as root"
				: "");
	return error == -ENOENT ? CLI_NOT_FOUND : CLI_FAILED;
}

int cli_region_find(const struct cli_command *command, int *ret_pid)
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;
	int found = 0, error = -ENOENT;

	if (!proc)
		return report_view_error(command, 0, -errno);
	while ((entry = readdir(proc)) != NULL) {
		struct region_view *view;
		int pid = atoi(entry->d_name);
		int ret = pid > 0 && pid != getpid() ? region_view_open(pid, &view) : -ENOENT;

		if (ret == -ENOENT || ret == -EACCES || ret == -EPERM || ret == -ESRCH)
			continue;
		error = ret;
		if (ret == 0)
			region_view_close(view);
		if (found++)
			fprintf(stderr,
				"nebulaio %s: processes %d and %d both have a region; choose "
				"with --pid\n",
				command->name, *ret_pid, pid);
		if (found > 1)
			break;
		*ret_pid = pid;
	}
	closedir(proc);
	if (found == 1)
		return CLI_OK;
	return found ? CLI_USAGE : report_view_error(command, 0, error);
}

/* ---- The size of a server's region. ---- */

static uint64_t number(const json_t *json, const char *member)
{
	return (uint64_t)json_integer_value(json_object_get(json, member));
}

static void size_print(const struct admin *admin, const json_t *region)
{
	char now[32], least[32], most[32], step[32], retired[32];

	if (admin->opts.json) {
		admin_print_json(region);
		return;
	}
	printf("%s now; at least %s, at most %s, in steps of %s\n",
		remote_bytes_text(number(region, "bytes"), now),
		remote_bytes_text(number(region, "bytes_min"), least),
		remote_bytes_text(number(region, "bytes_max"), most),
		remote_bytes_text(number(region, "extension_bytes"), step));
	if (number(region, "retired_bytes"))
		printf("%s more go as soon as transfers have left them\n",
			remote_bytes_text(number(region, "retired_bytes"), retired));
	printf("it %s by itself\n",
		json_is_true(json_object_get(region, "adapts")) ? "adapts" : "does not change");
}

static int size_request(struct admin *admin, const struct admin_request *request)
{
	json_t *region;
	int ret = admin_request(admin, request, &region);

	if (!ret)
		size_print(admin, region);
	json_decref(region);
	return ret;
}

static int region_size(struct admin *admin, int count, char **arguments)
{
	const struct admin_request request = {.method = "GET", .parts = {"region"}};

	(void)count;
	(void)arguments;
	return size_request(admin, &request);
}

static int size_change(struct admin *admin, const char *how, int count, char **arguments)
{
	struct admin_request request = {.method = "POST", .parts = {"region", how}};
	char text[24];
	uint64_t bytes;

	if (count && (slice_to_bytes(slice_str(arguments[0]), &bytes) || bytes > INT64_MAX))
		return cli_usage_error(admin->command,
			"'%s': BYTES is a whole number, or one with KiB, MiB, GiB or TiB",
			arguments[0]);
	if (count) {
		snprintf(text, sizeof(text), "%llu", (unsigned long long)bytes);
		request.parts[2] = text;
	}
	return size_request(admin, &request);
}

static int region_grow(struct admin *admin, int count, char **arguments)
{
	return size_change(admin, "grow", count, arguments);
}

static int region_shrink(struct admin *admin, int count, char **arguments)
{
	return size_change(admin, "shrink", count, arguments);
}

/* ---- Seen from outside. ---- */

static int dump_run(int argc, char **argv)
{
	static const struct option OPTIONS[] = {
		{"pid", required_argument, NULL, 'p'},
		{"json", no_argument, NULL, 'j'},
		{0},
	};
	struct region_view *view;
	struct buf out;
	bool json = false;
	int pid = 0, option, ret;

	optind = 1;
	opterr = 0;
	while ((option = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1) {
		if (option == '?')
			return cli_usage_error(&CLI_REGION,
				"'%s' is not an option, or its value is missing", argv[optind - 1]);
		if (option == 'p' && (pid = atoi(optarg)) <= 0)
			return cli_usage_error(
				&CLI_REGION, "--pid: '%s' is not a process id", optarg);
		if (option == 'j')
			json = true;
	}
	if (optind != argc - 1 || strcmp(argv[optind], "dump"))
		return cli_usage_error(&CLI_REGION, "expected `dump`, `size`, `grow` or `shrink`");
	if (!pid) {
		ret = cli_region_find(&CLI_REGION, &pid);
		if (ret)
			return ret;
	}
	ret = region_view_open(pid, &view);
	if (ret)
		return report_view_error(&CLI_REGION, pid, ret);
	buf_init(&out, DUMP_BYTES_MAX);
	region_view_dump(view, json, &out);
	region_view_close(view);
	fwrite(out.data, 1, out.len, stdout);
	ret = out.failed ? CLI_FAILED : CLI_OK;
	buf_free(&out);
	return ret;
}

static int region_run(int argc, char **argv)
{
	static const struct admin_verb VERBS[] = {
		{"size", 0, 0, region_size},
		{"grow", 0, 1, region_grow},
		{"shrink", 0, 1, region_shrink},
	};
	const struct admin_verbs verbs = {&CLI_REGION, VERBS, ARRAY_LEN(VERBS), false};

	for (int i = 1; i < argc; i++)
		for (size_t v = 0; v < ARRAY_LEN(VERBS); v++)
			if (strcmp(argv[i], VERBS[v].name) == 0)
				return admin_run(&verbs, argc, argv);
	return dump_run(argc, argv);
}

const struct cli_command CLI_REGION = {
	.name = "region",
	.summary = "show the memory region of a running server, and change its size",
	.usage = USAGE,
	.run = region_run,
};
