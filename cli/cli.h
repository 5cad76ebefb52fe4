/* cli/cli.h: the one command `nebulaio`: a table of subcommands, each in its own file. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <stdbool.h>
#include <stdint.h>

/* Exit codes, the same for every subcommand (docs/guide/cli.md). */
enum cli_exit {
	CLI_OK = 0,
	CLI_FAILED = 1,	     /* the work could not be done, or not all of it */
	CLI_USAGE = 2,	     /* the command line was not understood */
	CLI_NOT_FOUND = 3,   /* no such bucket, key, file or process */
	CLI_DENIED = 4,	     /* keys or rights */
	CLI_UNREACHABLE = 5, /* no server answered, on any transport that was allowed */
	CLI_DAMAGED = 6,     /* fsck found damage; a checksum did not match */
};

struct cli_command {
	const char *name;
	const char *summary; /* one line */
	const char *usage;   /* printed whole for `nebulaio help NAME` */
	/* argv[0] is the subcommand's name. Returns an enum cli_exit. */
	int (*run)(int argc, char **argv);
};

extern const struct cli_command CLI_SERVE;
extern const struct cli_command CLI_MB;
extern const struct cli_command CLI_RB;
extern const struct cli_command CLI_LS;
extern const struct cli_command CLI_CP;
extern const struct cli_command CLI_MV;
extern const struct cli_command CLI_MIRROR;
extern const struct cli_command CLI_DIFF;
extern const struct cli_command CLI_FIND;
extern const struct cli_command CLI_DU;
extern const struct cli_command CLI_PRESIGN;
extern const struct cli_command CLI_TAG;
extern const struct cli_command CLI_VERSION;
extern const struct cli_command CLI_POLICY;
extern const struct cli_command CLI_ORIGIN;
extern const struct cli_command CLI_REPLICATE;
extern const struct cli_command CLI_COMPLETION;
extern const struct cli_command CLI_CAT;
extern const struct cli_command CLI_STAT;
extern const struct cli_command CLI_RM;
extern const struct cli_command CLI_BENCH;
extern const struct cli_command CLI_REGION;
extern const struct cli_command CLI_FSCK;
extern const struct cli_command CLI_VOLUME;
extern const struct cli_command CLI_TOP;
extern const struct cli_command CLI_USER;
extern const struct cli_command CLI_ADMIN;
extern const struct cli_command CLI_FLOW;
extern const struct cli_command CLI_DISCOVER;
extern const struct cli_command CLI_DOCTOR;
extern const struct cli_command CLI_CONFORMANCE;

/* cmd_region.c: finds the only process of this host that has a region: CLI_OK, or prints why and
 * returns the exit code. */
int cli_region_find(const struct cli_command *command, int *ret_pid);
/* Writes to buf the name of the RDMA device that wanted names. With NULL, "" or "auto": the device
 * that reaches the address, or with listens the one that has it. CLI_OK; CLI_FAILED, prints why
 * there is none. */
int cli_device_find(
	const char *wanted, const char *address, uint16_t port, bool listens, char buf[64]);

/* Writes out what was printed on standard output. 0; -EIO when some of it, now or before, could not
 * be written: prints why, once. */
int cli_output_flush(void);
/* Prints "nebulaio NAME: why" and how to get help; returns CLI_USAGE. */
int cli_usage_error(const struct cli_command *command, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

#endif
