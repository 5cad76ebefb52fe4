/* cli/volume.h: shared by the verbs of `nebulaio volume`: volumes of this host with names, on one
 * reactor and one region, until a signal. */
#ifndef CLI_VOLUME_H
#define CLI_VOLUME_H

#include "cli.h"
#include "disk/disk.h"
#include "reactor/reactor.h"
#include "region/region.h"

#define VOLUMES_MAX	     64u
#define VOLUME_NAME_LEN_MAX  63u
#define VOLUME_MEMORY_MIN    (16 * MIB)
#define VOLUME_MEMORY_PRESET (64 * MIB)

struct remote;

struct volume_host {
	const struct cli_command *command; /* which usage errors name */
	uint64_t memory_bytes;
	uint32_t fibers_max; /* 0: as reactors have */
	struct disk *disks[VOLUMES_MAX];
	const char *paths[VOLUMES_MAX]; /* of the command line */
	char names[VOLUMES_MAX][VOLUME_NAME_LEN_MAX + 1];
	uint32_t count;
	struct region *region;
	struct reactor *reactor;
	/* In a fiber, after SIGTERM or SIGINT: ends what uses the volumes. */
	void (*drain)(void *arg);
	void *arg;
	struct reactor_msg end;
	_Atomic bool failed;
};

/* Each returns an exit code, and has printed why. */

/* Opens the volume of "NAME=PATH"; opts has all but the path. */
int volume_take(struct volume_host *host, const char *pair, const struct disk_opts *opts);
/* Takes --memory's value. */
int volume_memory_take(struct volume_host *host, const char *mib);
/* Takes --bytes' value: the volume is made, of that size. */
int volume_bytes_take(struct volume_host *host, const char *bytes, struct disk_opts *disk);
/* Takes --log-level's value. */
int volume_log_take(struct volume_host *host, const char *level);

/* Opens access to volumes of other hosts, with their common secret. wanted: the RDMA device; NULL,
 * "" or "auto": the first card whose port is up, else the simulated device. 0 or -errno, which is
 * logged. */
int volume_remote_open(const char *secret_file, const char *wanted, struct remote **ret_remote);
void volume_remote_close(struct remote *remote); /* takes NULL */
/* Opens the region and the reactor, and attaches the volumes. 0 or -errno, which is logged. */
int volume_host_open(struct volume_host *host);
/* Prints the line, which begins with "ready", and works until a signal. An exit code. */
int volume_host_run(struct volume_host *host, const char *ready);
/* Ends volume_host_run(), as a signal does, with CLI_FAILED. Any thread. */
void volume_host_fail(struct volume_host *host);
/* Takes a half-built one. */
void volume_host_close(struct volume_host *host);

/* The verbs: argv[0] is the verb. */
int volume_serve_run(const struct cli_command *command, int argc, char **argv);
int volume_nvmeof_run(const struct cli_command *command, int argc, char **argv);
int volume_nbd_run(const struct cli_command *command, int argc, char **argv);

#endif
