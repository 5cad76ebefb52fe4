/* cli/backup.h: the verbs of `nebulaio admin` that copy a whole store; argv[0] is the verb. */
#ifndef CLI_BACKUP_H
#define CLI_BACKUP_H

#include "cli.h"

int backup_run(const struct cli_command *command, int argc, char **argv);
int backup_list_run(const struct cli_command *command, int argc, char **argv);
int backup_verify_run(const struct cli_command *command, int argc, char **argv);
int restore_run(const struct cli_command *command, int argc, char **argv);

struct config;
/* cmd_serve.c: what the options of `nebulaio serve` say, without checks that need a server. An exit
 * code; prints why. */
int serve_configure(struct config *config, int argc, char **argv);

#endif
