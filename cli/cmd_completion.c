/* cli/cmd_completion.c: `nebulaio completion`: prints a script with which a shell completes our
 * commands. */
#include <stdio.h>
#include <string.h>

#include "cli.h"

static const char USAGE[] =
	"usage: nebulaio completion bash\n"
	"\n"
	"Prints a script. In ~/.bashrc: source <(nebulaio completion bash). The script reads\n"
	"the commands and options from `nebulaio help`, so they are always current.\n";

static const char BASH[] =
	"_nebulaio()\n"
	"{\n"
	"	local word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]}\n"
	"	if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
	"		COMPREPLY=($(compgen -W \"help "
	"$(nebulaio help | awk '/^  /{print $1}')\" -- "
	"\"$word\"))\n"
	"	elif [ \"$command\" = help ]; then\n"
	"		COMPREPLY=($(compgen -W \"$(nebulaio help | awk '/^  /{print $1}')\" -- "
	"\"$word\"))\n"
	"	elif [[ $word == -* ]]; then\n"
	"		COMPREPLY=($(compgen -W \"$(nebulaio help \"$command\" | grep -oE -- "
	"'(^|[ ,])--[a-z-]+' | tr -d ' ,')\" -- \"$word\"))\n"
	"	elif [ \"$COMP_CWORD\" -eq 2 ] && [[ $command == user || $command == admin ]]\n"
	"	then\n"
	"		COMPREPLY=($(compgen -W \"$(nebulaio help \"$command\" | awk '\n"
	"			/nebulaio .*OPTIONS/ {sub(/.*OPTIONS. /, \"\"); print}' | grep -oE "
	"'[a-z-]+')\" -- \"$word\"))\n"
	"	else\n"
	"		COMPREPLY=($(compgen -f -- \"$word\"))\n"
	"	fi\n"
	"}\n"
	"complete -o filenames -F _nebulaio nebulaio\n";

static int completion_run(int argc, char **argv)
{
	if (argc != 2 || strcmp(argv[1], "bash") != 0)
		return cli_usage_error(&CLI_COMPLETION, "expected `bash`");
	fputs(BASH, stdout);
	return CLI_OK;
}

const struct cli_command CLI_COMPLETION = {
	.name = "completion",
	.summary = "print a script that completes commands in bash",
	.usage = USAGE,
	.run = completion_run,
};
