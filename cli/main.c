/* cli/main.c: finds the subcommand and runs it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cli.h"
#include "commands.h"

#define VERSION NEBULAIO_VERSION

static const struct cli_command *find(const char *name)
{
	for (size_t i = 0; i < sizeof(COMMANDS) / sizeof(COMMANDS[0]); i++) {
		if (strcmp(COMMANDS[i]->name, name) == 0)
			return COMMANDS[i];
	}
	return NULL;
}

static void print_help(FILE *out)
{
	fprintf(out,
		"nebulaio %s: an S3 object store that speaks RDMA\n\nusage: nebulaio COMMAND "
		"[ARGUMENTS]\n\n",
		VERSION);
	for (size_t i = 0; i < sizeof(COMMANDS) / sizeof(COMMANDS[0]); i++)
		fprintf(out, "  %-11s %s\n", COMMANDS[i]->name, COMMANDS[i]->summary);
	fprintf(out, "\n`nebulaio help COMMAND` prints the help of a command.\n");
}

static int help(int argc, char **argv)
{
	const struct cli_command *command;

	if (argc < 3) {
		print_help(stdout);
		return CLI_OK;
	}
	command = find(argv[2]);
	if (!command) {
		fprintf(stderr, "nebulaio: no command '%s'; `nebulaio help` lists the commands\n",
			argv[2]);
		return CLI_USAGE;
	}
	printf("%s: %s\n\n%s", command->name, command->summary, command->usage);
	return CLI_OK;
}

/* Makes a success a failure when its output could not be written: a full disk must not look like a
 * short answer. */
static int output_end(int code)
{
	if (cli_output_flush())
		return code == CLI_OK ? CLI_FAILED : code;
	return code;
}

/* For programs that read the commands' standard error. A server's configuration may change the
 * format later. */
static void log_format_take(const char *tag)
{
	const char *name = getenv("NEBULAIO_LOG_FORMAT");
	enum log_format format;

	if (name && log_format_parse(name, &format))
		log_set_format(format, tag);
}

int main(int argc, char **argv)
{
	const struct cli_command *command;

	if (argc < 2) {
		print_help(stderr);
		return CLI_USAGE;
	}
	if (!strcmp(argv[1], "help") || !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))
		return output_end(help(argc, argv));
	if ((argc == 2 && !strcmp(argv[1], "version")) || !strcmp(argv[1], "--version")) {
		printf("nebulaio %s\n", VERSION);
		return output_end(CLI_OK);
	}
	command = find(argv[1]);
	if (!command) {
		fprintf(stderr, "nebulaio: no command '%s'; `nebulaio help` lists the commands\n",
			argv[1]);
		return CLI_USAGE;
	}
	for (int i = 2; i < argc && strcmp(argv[i], "--"); i++) {
		if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
			printf("%s: %s\n\n%s", command->name, command->summary, command->usage);
			return output_end(CLI_OK);
		}
	}
	log_format_take(command->name);
	return output_end(command->run(argc - 1, argv + 1));
}
