/* cli/cmd_doctor.c: `nebulaio doctor`: checks whether this host has what the server needs, and
 * prints the command that changes it. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "codec/codec.h"
#include "doctor.h"
#include "remote.h"
#include "server/server.h"
#include "server/config.h"
#include "server/hardware.h"

static const char USAGE[] =
	"usage: nebulaio doctor [--json] [--setup [--yes]] [--config FILE] [--sysfs DIR]\n"
	"                       [--root DIR]\n"
	"\n"
	"Checks the host: memory limits, huge pages, NUMA placement, kernel, clock, io_uring,\n"
	"RDMA devices, ports, GIDs and error counters, network interfaces (PFC, DSCP maps, ECN,\n"
	"counters of pause frames and discards), the network below RDMA (its own or shared,\n"
	"VLAN, MACsec, IPsec), AF_XDP, NVMe passthrough, missing tools. For each finding,\n"
	"doctor prints what it means and which command changes it.\n"
	"Exit code 1 when something is broken.\n"
	"\n"
	"  --config FILE   check against this configuration (and the NEBULAIO_* environment):\n"
	"                  its memory.bytes, and its requirements for GPUs, DPU and network\n"
	"  --setup         run the safe fixes, as root: limits, modules, and for the interfaces\n"
	"                  of RDMA cards flow control, ECN, DSCP and MTU. Shows each command\n"
	"                  and its reverse, and asks at the terminal first\n"
	"  --yes           with --setup: agree to all of them\n"
	"  --json          print an array of findings\n"
	"  --sysfs DIR     read device attributes from DIR instead of /sys: another host's copy\n"
	"  --root DIR      read boot/config-RELEASE, proc/config.gz and proc/net/route from DIR\n";

static const char *const STATE_NAMES[] = {"ok", "info", "warn", "FAIL"};

static void print_text(const struct doctor *doctor)
{
	for (size_t i = 0; i < doctor->count; i++) {
		const struct finding *finding = &doctor->findings[i];

		printf("%-5s %-8s %s\n", STATE_NAMES[finding->state], finding->area, finding->what);
		if (finding->why[0])
			printf("%15s%s\n", "", finding->why);
		if (finding->fix[0])
			printf("%15sfix: %s\n", "", finding->fix);
	}
}

static void print_json(FILE *out, const struct doctor *doctor)
{
	fprintf(out, "[\n");
	for (size_t i = 0; i < doctor->count; i++) {
		const struct finding *finding = &doctor->findings[i];

		fprintf(out, "{\"state\": \"%s\", \"area\": \"%s\", \"what\": ",
			finding->state == FINDING_FAIL ? "fail" : STATE_NAMES[finding->state],
			finding->area);
		remote_print_json(out, finding->what);
		fprintf(out, ", \"why\": ");
		remote_print_json(out, finding->why);
		fprintf(out, ", \"fix\": ");
		remote_print_json(out, finding->fix);
		fprintf(out, "}%s\n", i + 1 < doctor->count ? "," : "");
	}
	fprintf(out, "]\n");
}

static int load(struct config *config, const char *file)
{
	struct config_error error;

	config_defaults(config);
	if (file && (config_load_file(config, file, &error) ||
			    config_load_env(config, environ, &error))) {
		fprintf(stderr, "nebulaio doctor: %s\n", error.text);
		return CLI_USAGE;
	}
	return CLI_OK;
}

static void note_hardware(void *arg, const struct hardware_finding *found)
{
	struct finding *finding = doctor_note(arg, found->met ? FINDING_OK : FINDING_WARN, "config",
		"%s: %s", found->key, found->what);

	bool own = found->interface[0] && doctor_is_way_out(arg, found->interface);

	if (found->fix[0])
		doctor_fix(finding, found->undo[0] && !own, "%s", found->fix);
	if (found->undo[0])
		doctor_undo(finding, "%s", found->undo);
	if (own)
		doctor_why(finding,
			"this host's default route uses it: change it by hand, on a console that "
			"works without the network");
}

/* The device that "auto" means on this host, for the checks of the configuration. */
static void note_device(struct config *config, struct doctor *doctor)
{
	char why[256];

	if (server_device_settle(config, why, sizeof(why)))
		doctor_note(doctor,
			strcmp(config->rdma.device_name, "simulated") == 0 &&
					!config_is_loopback(config->rdma.address)
				? FINDING_WARN
				: FINDING_OK,
			"config", "rdma.device_name: auto: %s: %s", config->rdma.device_name, why);
}

/* The sizes of the region that the configuration asks for. */
static void note_region(const struct config *config, struct doctor *doctor)
{
	const unsigned long long now = config->memory.bytes / MIB;
	const unsigned long long most = config->memory.bytes_max / MIB;

	if (most <= now)
		doctor_note(doctor, FINDING_INFO, "memory",
			"the memory region has %llu MiB and keeps its size (memory.bytes_max)",
			now);
	else
		doctor_note(doctor, FINDING_INFO, "memory",
			"the memory region begins with %llu MiB and may grow to %llu MiB%s; a "
			"running server's: nebulaio region size",
			now, most, config->memory.adapt ? ", by itself too" : "");
}

/* Changes nothing of the host; settles the configuration's device. */
static void check(struct doctor *doctor, struct config *config)
{
	doctor->region_bytes = config->memory.bytes;
	doctor->dscp = config->rdma.traffic_class >= 0 ? (unsigned)config->rdma.traffic_class >> 2
						       : (unsigned)config->network.dscp;
	doctor_check_memory(doctor);
	note_region(config, doctor);
	doctor_check_kernel(doctor);
	doctor_check_rdma(doctor);
	doctor_check_network(doctor);
	doctor_check_placement(doctor);
	doctor_check_extra_memory(doctor);
	doctor_check_disks(doctor);
	doctor_check_nvmeof(doctor);
	doctor_check_packages(doctor);
	note_device(config, doctor);
	hardware_check(config, doctor->sysfs, note_hardware, doctor);
}

void doctor_tell(const struct config *config, struct buf *out)
{
	struct doctor *doctor = calloc(1, sizeof(*doctor));
	struct config *own = malloc(sizeof(*own));
	char *text = NULL;
	size_t text_bytes = 0;
	FILE *file = doctor && own ? open_memstream(&text, &text_bytes) : NULL;

	if (file) {
		*doctor = (struct doctor){.sysfs = "/sys", .root = ""};
		*own = *config;
		check(doctor, own);
		print_json(file, doctor);
	}
	out->failed |= !file || fclose(file);
	if (!out->failed) {
		buf_put_str(out, "{\"findings\":");
		buf_put(out, text, text_bytes);
		buf_put_str(out, "}");
	}
	if (own)
		secret_wipe(own, sizeof(*own));
	free(text);
	free(own);
	free(doctor);
}

static int doctor_run(int argc, char **argv)
{
	static const struct option OPTIONS[] = {
		{"json", no_argument, NULL, 'j'},
		{"setup", no_argument, NULL, 's'},
		{"yes", no_argument, NULL, 'y'},
		{"config", required_argument, NULL, 'c'},
		{"sysfs", required_argument, NULL, 'f'},
		{"root", required_argument, NULL, 'r'},
		{0},
	};
	static struct doctor doctor = {.sysfs = "/sys", .root = ""};
	static struct config config;
	bool json = false, set_up = false, yes = false;
	const char *file = NULL;
	int option, ret;

	optind = 1;
	opterr = 0;
	while ((option = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1) {
		if (option == '?')
			return cli_usage_error(&CLI_DOCTOR,
				"'%s' is not an option, or its value is missing", argv[optind - 1]);
		json |= option == 'j';
		set_up |= option == 's';
		yes |= option == 'y';
		if (option == 'c')
			file = optarg;
		if (option == 'f')
			doctor.sysfs = optarg;
		if (option == 'r')
			doctor.root = optarg;
	}
	if (optind < argc)
		return cli_usage_error(&CLI_DOCTOR, "unexpected argument '%s'", argv[optind]);
	ret = load(&config, file);
	if (ret)
		return ret;
	check(&doctor, &config);
	if (json)
		print_json(stdout, &doctor);
	else
		print_text(&doctor);
	if (set_up)
		return doctor_setup(&doctor, yes);
	for (size_t i = 0; i < doctor.count; i++) {
		if (doctor.findings[i].state == FINDING_FAIL)
			ret = CLI_FAILED;
	}
	return ret;
}

const struct cli_command CLI_DOCTOR = {
	.name = "doctor",
	.summary = "check this host and print how to repair it",
	.usage = USAGE,
	.run = doctor_run,
};
