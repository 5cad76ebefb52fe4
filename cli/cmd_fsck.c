/* cli/cmd_fsck.c: `nebulaio fsck DIR`: checks a store that no server has open. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "cli.h"
#include "rados/rados.h"
#include "remote/remote.h"
#include "store/local.h"
#include "volume.h"

static const char USAGE[] =
	"usage: nebulaio fsck [--deep] [--salvage] [--json]\n"
	"                     [--secret-file FILE [--device NAME]]\n"
	"                     [--ceph-conf FILE] [--ceph-user NAME] DIR\n"
	"\n"
	"Verifies the log, every record, and that extents neither overlap nor leave the volume.\n"
	"--deep also reads every extent and verifies its checksums. No server may run on DIR.\n"
	"fsck replays the log, as a start does; it changes nothing else. Exit code 0: clean; 6:\n"
	"damage was found.\n"
	"\n"
	"  --salvage           for a damaged log: drop the unreadable groups, apply all others,\n"
	"                      keep the damaged part in DIR/damaged-log.*, print the losses,\n"
	"                      then check. Exit code 0: the rest is clean\n"
	"  --secret-file FILE  the secret of volumes on other hosts (rdma://…)\n"
	"  --device NAME       the RDMA device that reaches those hosts (default: the first card\n"
	"                      whose port is up; simulated on a host without one)\n"
	"  --ceph-conf FILE    ceph.conf of the cluster of a volume rados://… (default\n"
	"                      $CEPH_CONF, else /etc/ceph/ceph.conf)\n"
	"  --ceph-user NAME    the Ceph user, without `client.` (default admin)\n";

#define FINDINGS_BYTES_MAX (64 * MIB)

static void print_salvaged(const struct store_fsck_report *report)
{
	if (report->groups_lost)
		printf("salvaged: %llu groups of the log are lost; as a result, %llu objects and "
		       "%llu rows were removed, and %llu buckets made\n",
			(unsigned long long)report->groups_lost,
			(unsigned long long)report->objects_removed,
			(unsigned long long)report->rows_removed,
			(unsigned long long)report->buckets_remade);
}

static void print_report(const struct store_fsck_report *report, bool clean, bool json)
{
	const char *format =
		json ? "{\"clean\": %s, \"buckets\": %llu, \"objects\": %llu, \"extents\": %llu, "
		       "\"bytes\": %llu, \"bad_records\": %llu, \"bad_checksums\": %llu, "
		       "\"overlaps\": %llu, "
		       "\"lost_bytes\": %llu, \"repairable\": %llu, \"image_bytes\": %llu, "
		       "\"unknown_rows\": %llu, "
		       "\"opened\": %s, \"groups_lost\": %llu, \"objects_removed\": %llu, "
		       "\"rows_removed\": %llu, \"buckets_remade\": %llu}\n"
		     : "%s: %llu buckets, %llu objects, %llu extents, %llu bytes; bad records "
		       "%llu, bad checksums "
		       "%llu, overlaps %llu, lost bytes %llu; pieces that other volumes "
		       "can repair %llu; bytes of the index in the volumes %llu; rows of a "
		       "later version, not checked %llu\n";

	if (!json)
		print_salvaged(report);
	if (!json && !report->opened) {
		printf("DAMAGED: fsck checked nothing else\n");
		return;
	}
	printf(format, json ? (clean ? "true" : "false") : (clean ? "clean" : "DAMAGED"),
		(unsigned long long)report->buckets, (unsigned long long)report->objects,
		(unsigned long long)report->extents, (unsigned long long)report->bytes,
		(unsigned long long)report->bad_records, (unsigned long long)report->bad_checksums,
		(unsigned long long)report->overlaps, (unsigned long long)report->lost_bytes,
		(unsigned long long)report->repairable, (unsigned long long)report->image_bytes,
		(unsigned long long)report->unknown_rows, report->opened ? "true" : "false",
		(unsigned long long)report->groups_lost,
		(unsigned long long)report->objects_removed,
		(unsigned long long)report->rows_removed,
		(unsigned long long)report->buckets_remade);
}

static int fsck_run(int argc, char **argv)
{
	static const struct option OPTIONS[] = {
		{"deep", no_argument, NULL, 'd'},
		{"json", no_argument, NULL, 'j'},
		{"salvage", no_argument, NULL, 'S'},
		{"secret-file", required_argument, NULL, 's'},
		{"device", required_argument, NULL, 'v'},
		{"ceph-conf", required_argument, NULL, 'c'},
		{"ceph-user", required_argument, NULL, 'u'},
		{0},
	};
	struct store_fsck_report report = {0};
	const char *secret_file = NULL, *device = NULL;
	struct rv_opts ceph = {.conf_file = "", .user = ""};
	struct remote *remote = NULL;
	struct rv *rados = NULL;
	struct buf findings;
	bool deep = false, json = false, salvage = false;
	int option, ret;

	/* RocksDB may write files to the index, which only the owner may read, as in a server. */
	umask(077);
	optind = 1;
	opterr = 0;
	while ((option = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1) {
		if (option == '?')
			return cli_usage_error(
				&CLI_FSCK, "'%s' is not an option", argv[optind - 1]);
		if (option == 'd')
			deep = true;
		else if (option == 'j')
			json = true;
		else if (option == 'S')
			salvage = true;
		else if (option == 's')
			secret_file = optarg;
		else if (option == 'c')
			ceph.conf_file = optarg;
		else if (option == 'u')
			ceph.user = optarg;
		else
			device = optarg;
	}
	if (optind != argc - 1)
		return cli_usage_error(&CLI_FSCK, "expected one folder");
	if (secret_file && volume_remote_open(secret_file, device, &remote))
		return CLI_FAILED;
	if (rv_open(&ceph, &rados))
		return CLI_FAILED;
	buf_init(&findings, FINDINGS_BYTES_MAX);
	ret = (salvage ? store_salvage : store_fsck)(argv[optind], deep, &report, &findings);
	if (findings.len)
		fwrite(findings.data, 1, findings.len, json ? stderr : stdout);
	buf_free(&findings);
	remote_initiator_close(remote);
	rv_close(rados);
	if (ret && ret != -EUCLEAN) {
		fprintf(stderr, "nebulaio fsck: %s: %s%s\n", argv[optind], strerror(-ret),
			ret == -EBUSY ? "; a server runs on it, stop it first" : "");
		return ret == -ENOENT ? CLI_NOT_FOUND : CLI_FAILED;
	}
	print_report(&report, ret == 0, json);
	return ret ? CLI_DAMAGED : CLI_OK;
}

const struct cli_command CLI_FSCK = {
	.name = "fsck",
	.summary = "check the store of a server that is not running",
	.usage = USAGE,
	.run = fsck_run,
};
