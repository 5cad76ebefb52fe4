/* cli/cmd_region.c: `nebulaio region dump`: the unified region of a running process, seen from
 * outside. */
#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "region/region.h"

static const char USAGE[] =
	"usage: nebulaio region dump [--pid PID] [--json]\n"
	"\n"
	"Maps the memory region of a running server read-only and shows its contents: layout,\n"
	"rings of each core, registered memory, targets, frames by owner. Without --pid it takes\n"
	"the only process of this host that has a region.\n";

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

static int region_run(int argc, char **argv)
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
		return cli_usage_error(&CLI_REGION, "expected `dump`");
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

const struct cli_command CLI_REGION = {
	.name = "region",
	.summary = "show the memory region of a running server",
	.usage = USAGE,
	.run = region_run,
};
