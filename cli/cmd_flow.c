/* cli/cmd_flow.c: `nebulaio flow`: the command line. Packets are flow_capture.c's, everything else
 * is flow_move.c's. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "flow_cmd.h"

static const char USAGE[] =
	"usage: nebulaio flow --from SOURCE --to TARGET [options]\n"
	"\n"
	"Moves bytes from one device to another through one memory region, uncopied where it can\n"
	"be: packets, RDMA streams, disks and objects.\n"
	"\n"
	"SOURCE:\n"
	"  xdp:IFACE,WHAT     packets, past the kernel's network stack (AF_XDP). What WHAT does\n"
	"                     not name goes to the kernel as before\n"
	"  rdma:HOST:PORT     a stream from another flow; rdma::PORT waits for one to connect\n"
	"  disk:PATH          a file, a block device or an NVMe namespace (/dev/ng0n1), or a\n"
	"                     run of it: disk:PATH,offset=N,bytes=N\n"
	"  s3://BUCKET/KEY    an object\n"
	"TARGET:\n"
	"  FILE.pcapng        every packet, with its time in nanoseconds; of other sources the\n"
	"                     bytes as they are\n"
	"  disk:PATH          the payloads of UDP datagrams of a multiple of 512 bytes, from the\n"
	"                     frame they came in to a file or device, uncopied (IPv4); of\n"
	"                     other sources the bytes as they are\n"
	"  rdma:HOST:PORT     a stream to another flow, of payloads; rdma::PORT waits for one\n"
	"  s3://BUCKET/KEY    objects, uploaded while they grow\n"
	"  null:              nowhere: counts\n"
	"  %t in a name is the time (20260102T030405Z), %n the body's number, others as in\n"
	"  strftime(3).\n"
	"WHAT, separated by commas:\n"
	"  udp=PORT, tcp=PORT a destination port, a range A-B, or any\n"
	"  proto=NUMBER       an IP protocol\n"
	"  src=ADDR[/BITS], dst=ADDR[/BITS]\n"
	"  vlan=ID            as the packet carries it; none: untagged\n"
	"  all                every packet; the kernel sees none of them\n"
	"  queue=N, queues=N  first receive queue of the card, and how many (0, 1)\n"
	"  ring=N             packets that a queue can hold back (8192)\n"
	"  mode=zerocopy|native|generic   that way or not at all\n"
	"  busy-poll=US       run the driver ourselves for so long before sleeping (0: never,\n"
	"                     up to 1000), busy-budget=N packets at once (64)\n"
	"  time=kernel        never the card's time of a packet, which is taken where there is\n"
	"                     one; time=hardware: not without a driver that can be asked for it\n"
	"Behind rdma:HOST:PORT, separated by commas:\n"
	"  listen             wait for a peer at this address, rather than connect to it\n"
	"  device=NAME        the RDMA device (--device)\n"
	"  record=BYTES       longest message, up to 1M, in multiples of 4K\n"
	"  wait=SECONDS       how long to try to connect (0: once)\n"
	"  timeout=SECONDS    a peer that is silent for so long is gone (30)\n"
	"\n"
	"  --transform aes256ctr:FILE   encrypts, or decrypts, in place; FILE holds the key\n"
	"                     (32 bytes) and the first counter (16)\n"
	"  --form pcapng|payload   of packets, when the target should not decide\n"
	"  --count N          end after so many packets\n"
	"  --seconds N        end after so long\n"
	"  --roll-bytes N     begin a new file or object after so many bytes\n"
	"  --roll-seconds N   … or so long after its first packet\n"
	"  --rules FILE       instead of WHAT: lines of count|drop|pass|redirect and matches;\n"
	"                     first match wins; SIGHUP reads it again\n"
	"  --force            replace existing files; write to block devices\n"
	"  --memory MIB       for what is on its way (128)\n"
	"  --status-fd N      counters a second to this descriptor, for who started it\n"
	"  -q, --quiet        no line a second\n" REMOTE_USAGE "\n"
	"SIGINT and SIGTERM end it in order: what has been received is stored. SIGUSR1 asks for\n"
	"a line.\n";

static int packets_check(struct flow_args *args)
{
	char why[FLOW_WHY_BYTES];

	args->from.kind = FLOW_XDP;
	if (!flow_spec_parse(args->from_text, &args->xdp, why))
		return cli_usage_error(&CLI_FLOW, "--from: %s", why);
	if (args->rules_path && args->xdp.rule_count)
		return cli_usage_error(&CLI_FLOW,
			"what to take is said either in --from or in --rules, not in both");
	if (args->rules_path && !flow_rules_load(args->rules_path, &args->xdp, why))
		return cli_usage_error(&CLI_FLOW, "--rules: %s", why);
	if (args->xdp.rule_count == 0)
		return cli_usage_error(
			&CLI_FLOW, "--from does not say what to take: udp=PORT, src=…, or all");
	if (args->transform.set)
		return cli_usage_error(&CLI_FLOW, "--transform does not go with packets");
	if (args->to.kind == FLOW_RDMA && (args->roll_bytes || args->roll_seconds))
		return cli_usage_error(&CLI_FLOW, "a stream is one body: it cannot be rolled");
	if (args->form == FLOW_FORM_PRESET)
		args->form = args->to.kind == FLOW_DISK || args->to.kind == FLOW_RDMA
				     ? FLOW_FORM_PAYLOAD
				     : FLOW_FORM_PCAPNG;
	return CLI_OK;
}

static int bytes_check(struct flow_args *args)
{
	char why[FLOW_WHY_BYTES];

	if (!flow_end_parse(args->from_text, true, &args->from, why))
		return cli_usage_error(&CLI_FLOW, "--from: %s", why);
	if (args->from.kind == FLOW_NULL)
		return cli_usage_error(&CLI_FLOW, "nothing comes from null:");
	if (args->rules_path || args->count || args->seconds || args->roll_bytes ||
		args->roll_seconds || args->form != FLOW_FORM_PRESET)
		return cli_usage_error(&CLI_FLOW,
			"--rules, --count, --seconds, --roll-… and --form go with xdp: sources "
			"only");
	return CLI_OK;
}

static int args_check(struct flow_args *args)
{
	char why[FLOW_WHY_BYTES];

	if (!args->from_text || !args->to_text)
		return cli_usage_error(&CLI_FLOW, "--from and --to are needed");
	if (!flow_end_parse(args->to_text, false, &args->to, why))
		return cli_usage_error(&CLI_FLOW, "--to: %s", why);
	if (args->memory_mib < 16 || args->memory_mib > 65536)
		return cli_usage_error(&CLI_FLOW, "--memory: 16 to 65536");
	return strncmp(args->from_text, "xdp:", 4) ? bytes_check(args) : packets_check(args);
}

enum {
	FLOW_OPT_FROM = REMOTE_OWN,
	FLOW_OPT_TO,
	FLOW_OPT_COUNT,
	FLOW_OPT_SECONDS,
	FLOW_OPT_ROLL_BYTES,
	FLOW_OPT_ROLL_SECONDS,
	FLOW_OPT_RULES,
	FLOW_OPT_FORCE,
	FLOW_OPT_MEMORY,
	FLOW_OPT_FORM,
	FLOW_OPT_TRANSFORM,
	FLOW_OPT_STATUS,
};

static int form_take(struct flow_args *args)
{
	if (strcmp(optarg, "pcapng") && strcmp(optarg, "payload"))
		return cli_usage_error(
			&CLI_FLOW, "--form: '%s' is neither pcapng nor payload", optarg);
	args->form = optarg[1] == 'c' ? FLOW_FORM_PCAPNG : FLOW_FORM_PAYLOAD;
	return CLI_OK;
}

static int option_take(struct flow_args *args, int option, char **argv)
{
	uint64_t *const amounts[] = {
		[FLOW_OPT_COUNT - FLOW_OPT_FROM] = &args->count,
		[FLOW_OPT_SECONDS - FLOW_OPT_FROM] = &args->seconds,
		[FLOW_OPT_ROLL_BYTES - FLOW_OPT_FROM] = &args->roll_bytes,
		[FLOW_OPT_ROLL_SECONDS - FLOW_OPT_FROM] = &args->roll_seconds,
		[FLOW_OPT_MEMORY - FLOW_OPT_FROM] = &args->memory_mib,
	};
	char why[FLOW_WHY_BYTES];

	switch (option) {
	case FLOW_OPT_FROM:
		args->from_text = optarg;
		return CLI_OK;
	case FLOW_OPT_TO:
		args->to_text = optarg;
		return CLI_OK;
	case FLOW_OPT_RULES:
		args->rules_path = optarg;
		return CLI_OK;
	case FLOW_OPT_FORCE:
		args->force = true;
		return CLI_OK;
	case REMOTE_JSON:
		args->json = true;
		return CLI_OK;
	case 'q':
		args->quiet = true;
		return CLI_OK;
	case FLOW_OPT_FORM:
		return form_take(args);
	case FLOW_OPT_STATUS:
		args->status_fd = atoi(optarg);
		if (args->status_fd > 2 && fcntl(args->status_fd, F_GETFD) >= 0)
			return CLI_OK;
		return cli_usage_error(&CLI_FLOW, "--status-fd: '%s' is not open", optarg);
	case FLOW_OPT_TRANSFORM:
		if (flow_transform_parse(optarg, &args->transform, why))
			return CLI_OK;
		return cli_usage_error(&CLI_FLOW, "--transform: %s", why);
	case FLOW_OPT_COUNT:
	case FLOW_OPT_SECONDS:
	case FLOW_OPT_ROLL_BYTES:
	case FLOW_OPT_ROLL_SECONDS:
	case FLOW_OPT_MEMORY:
		if (flow_amount_parse(optarg, amounts[option - FLOW_OPT_FROM]) &&
			*amounts[option - FLOW_OPT_FROM])
			return CLI_OK;
		return cli_usage_error(&CLI_FLOW, "'%s' is not an amount", optarg);
	default:
		return remote_option(&CLI_FLOW, &args->remote, option, argv);
	}
}

static int args_take(struct flow_args *args, int argc, char **argv)
{
	static const struct option OPTIONS[] = {
		REMOTE_OPTIONS,
		{"from", required_argument, NULL, FLOW_OPT_FROM},
		{"to", required_argument, NULL, FLOW_OPT_TO},
		{"count", required_argument, NULL, FLOW_OPT_COUNT},
		{"seconds", required_argument, NULL, FLOW_OPT_SECONDS},
		{"roll-bytes", required_argument, NULL, FLOW_OPT_ROLL_BYTES},
		{"roll-seconds", required_argument, NULL, FLOW_OPT_ROLL_SECONDS},
		{"rules", required_argument, NULL, FLOW_OPT_RULES},
		{"force", no_argument, NULL, FLOW_OPT_FORCE},
		{"memory", required_argument, NULL, FLOW_OPT_MEMORY},
		{"form", required_argument, NULL, FLOW_OPT_FORM},
		{"transform", required_argument, NULL, FLOW_OPT_TRANSFORM},
		{"status-fd", required_argument, NULL, FLOW_OPT_STATUS},
		{"quiet", no_argument, NULL, 'q'},
		{0},
	};
	int option, ret;

	*args = (struct flow_args){.memory_mib = 128};
	remote_defaults(&args->remote);
	optind = 1;
	opterr = 0;
	while ((option = getopt_long(argc, argv, REMOTE_SHORT "q", OPTIONS, NULL)) != -1) {
		ret = option_take(args, option, argv);
		if (ret)
			return ret;
	}
	if (optind != argc)
		return cli_usage_error(&CLI_FLOW, "'%s' is not understood", argv[optind]);
	return args_check(args);
}

int flow_args_check(int argc, char **argv)
{
	static struct flow_args args;

	return args_take(&args, argc, argv);
}

void flow_status(const struct flow_args *args, const struct flow_counts *counts)
{
	char line[FLOW_COUNT_COUNT * 21 + 1];
	size_t len = 0;

	if (!args->status_fd)
		return;
	for (uint32_t i = 0; i < FLOW_COUNT_COUNT; i++)
		len += (size_t)snprintf(line + len, sizeof(line) - len, "%llu%c",
			(unsigned long long)counts->of[i], i + 1 < FLOW_COUNT_COUNT ? ' ' : '\n');
	dprintf(args->status_fd, "%s", line);
}

static int flow_main(int argc, char **argv)
{
	static struct flow_args args;
	int ret = args_take(&args, argc, argv);

	if (ret)
		return ret;
	log_set_level(args.remote.verbose ? LOG_DEBUG : LOG_WARN);
	return args.from.kind == FLOW_XDP ? flow_capture_run(&args) : flow_move_run(&args);
}

const struct cli_command CLI_FLOW = {
	.name = "flow",
	.summary = "move packets, RDMA streams, disks and objects into one another",
	.usage = USAGE,
	.run = flow_main,
};
