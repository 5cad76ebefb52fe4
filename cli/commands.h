/* cli/commands.h: all subcommands, in the order of the help text. Included once, by main.c. */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

#include "cli.h"

static const struct cli_command *const COMMANDS[] = {
	&CLI_SERVE,
	&CLI_MB,
	&CLI_RB,
	&CLI_LS,
	&CLI_CP,
	&CLI_MV,
	&CLI_CAT,
	&CLI_STAT,
	&CLI_RM,
	&CLI_MIRROR,
	&CLI_DIFF,
	&CLI_FIND,
	&CLI_DU,
	&CLI_PRESIGN,
	&CLI_TAG,
	&CLI_VERSION,
	&CLI_POLICY,
	&CLI_REPLICATE,
	&CLI_ORIGIN,
	&CLI_USER,
	&CLI_ADMIN,
	&CLI_FLOW,
	&CLI_BENCH,
	&CLI_TOP,
	&CLI_REGION,
	&CLI_FSCK,
	&CLI_VOLUME,
	&CLI_DISCOVER,
	&CLI_DOCTOR,
	&CLI_CONFORMANCE,
	&CLI_COMPLETION,
};

#endif
