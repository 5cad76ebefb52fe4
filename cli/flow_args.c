/* cli/flow_args.c: the command line of `nebulaio flow`, read and checked; and the figures for a
 * caller that passed --status-fd. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "flow_cmd.h"

#define SYNC_BYTES (64 * MIB)

static int packets_check(struct flow_args *args)
{
	char why[FLOW_WHY_BYTES];

	args->from.kind = FLOW_XDP;
	if (!flow_spec_parse(args->from_text, &args->xdp, why))
		return cli_usage_error(args->command, "--from: %s", why);
	if (args->rules_path && args->xdp.rule_count)
		return cli_usage_error(
			args->command, "both --from and --rules have a filter: use one");
	if (args->rules_path && !flow_rules_load(args->rules_path, &args->xdp, why))
		return cli_usage_error(args->command, "--rules: %s", why);
	if (args->xdp.rule_count == 0)
		return cli_usage_error(
			args->command, "--from has no filter: add udp=PORT, src=…, or all");
	if (flow_end_has_fabric(&args->to) && (args->roll_bytes || args->roll_seconds))
		return cli_usage_error(args->command,
			"a stream is one body: --roll-bytes and --roll-seconds do not apply");
	if (args->form == FLOW_FORM_PRESET)
		args->form = args->to.kind == FLOW_DISK || flow_end_has_fabric(&args->to)
				     ? FLOW_FORM_PAYLOAD
				     : FLOW_FORM_PCAPNG;
	return CLI_OK;
}

static int bytes_check(struct flow_args *args)
{
	char why[FLOW_WHY_BYTES];

	if (!flow_end_parse(args->from_text, true, &args->from, why))
		return cli_usage_error(args->command, "--from: %s", why);
	if (args->from.kind == FLOW_NULL)
		return cli_usage_error(args->command, "null: cannot be a source");
	if (args->rules_path || args->count || args->seconds || args->roll_bytes ||
		args->roll_seconds || args->form != FLOW_FORM_PRESET)
		return cli_usage_error(args->command,
			"--rules, --count, --seconds, --roll-… and --form work with xdp: sources "
			"only");
	return CLI_OK;
}

bool flow_args_have_counter(const struct flow_args *args)
{
	static const char NAME[] = "aes256ctr:";

	for (uint32_t i = 0; i < args->transform_count; i++)
		if (!strncmp(args->transforms[i], NAME, strlen(NAME)))
			return true;
	return false;
}

static int args_check(struct flow_args *args)
{
	char why[FLOW_WHY_BYTES];
	int ret;

	if (!args->from_text || !args->to_text)
		return cli_usage_error(args->command, "--from and --to are needed");
	if (!flow_end_parse(args->to_text, false, &args->to, why))
		return cli_usage_error(args->command, "--to: %s", why);
	if (args->sync_bytes && args->to.kind != FLOW_FILE && args->to.kind != FLOW_DISK)
		return cli_usage_error(
			args->command, "--sync-bytes works with files and devices only");
	if (!args->sync_bytes)
		args->sync_bytes = SYNC_BYTES;
	if (args->memory_mib < 16 || args->memory_mib > 65536)
		return cli_usage_error(args->command, "--memory: must be 16 to 65536");
	ret = strncmp(args->from_text, "xdp:", 4) ? bytes_check(args) : packets_check(args);
	if (!ret && args->remote.encrypted &&
		(flow_end_has_fabric(&args->from) || flow_end_has_fabric(&args->to)))
		return cli_usage_error(args->command,
			"--encrypted is for s3:// only: a stream by rdma:, ud: or raw: is not "
			"encrypted; leave it out, and encrypt the bytes by --transform "
			"aes256gcm:KEYFILE");
	if (!ret && (args->roll_bytes || args->roll_seconds) && flow_args_have_counter(args))
		return cli_usage_error(args->command,
			"--transform aes256ctr: each body would begin at the key file's counter, "
			"and bodies with one key stream hide nothing: with --roll-… use "
			"aes256gcm:KEYFILE, which makes a key for each body");
	return ret;
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
	FLOW_OPT_SYNC,
};

static int form_take(struct flow_args *args)
{
	if (strcmp(optarg, "pcapng") && strcmp(optarg, "payload"))
		return cli_usage_error(
			args->command, "--form: '%s' is neither pcapng nor payload", optarg);
	args->form = optarg[1] == 'c' ? FLOW_FORM_PCAPNG : FLOW_FORM_PAYLOAD;
	return CLI_OK;
}

/* Several transforms form a chain in this order. */
static int transform_take(struct flow_args *args)
{
	char why[FLOW_TRANSFORM_WHY_BYTES];

	if (args->transform_count == FLOW_TRANSFORMS_MAX)
		return cli_usage_error(
			args->command, "--transform: at most %u", FLOW_TRANSFORMS_MAX);
	if (!flow_transform_check(optarg, why))
		return cli_usage_error(args->command, "--transform: %s", why);
	args->transforms[args->transform_count++] = optarg;
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
		[FLOW_OPT_SYNC - FLOW_OPT_FROM] = &args->sync_bytes,
	};

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
		return cli_usage_error(args->command, "--status-fd: '%s' is not open", optarg);
	case FLOW_OPT_TRANSFORM:
		return transform_take(args);
	case FLOW_OPT_COUNT:
	case FLOW_OPT_SECONDS:
	case FLOW_OPT_ROLL_BYTES:
	case FLOW_OPT_ROLL_SECONDS:
	case FLOW_OPT_MEMORY:
	case FLOW_OPT_SYNC:
		if (flow_amount_parse(optarg, amounts[option - FLOW_OPT_FROM]) &&
			*amounts[option - FLOW_OPT_FROM])
			return CLI_OK;
		return cli_usage_error(args->command, "'%s' is not a number", optarg);
	default:
		return remote_option(args->command, &args->remote, option, argv);
	}
}

int flow_args_take(const struct cli_command *command, struct flow_args *args, int argc, char **argv)
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
		{"sync-bytes", required_argument, NULL, FLOW_OPT_SYNC},
		{"quiet", no_argument, NULL, 'q'},
		{0},
	};
	int option, ret;

	*args = (struct flow_args){.command = command, .memory_mib = 128};
	remote_defaults(&args->remote);
	optind = 1;
	opterr = 0;
	while ((option = getopt_long(argc, argv, REMOTE_SHORT "q", OPTIONS, NULL)) != -1) {
		ret = option_take(args, option, argv);
		if (ret)
			return ret;
	}
	if (optind != argc)
		return cli_usage_error(args->command, "'%s' is not an option", argv[optind]);
	return args_check(args);
}

void flow_status(const struct flow_base *base, const struct flow_counts *counts)
{
	char line[FLOW_STATUS_LINE_BYTES];
	uint64_t numbers[FLOW_STATUS_NUMBERS];
	size_t len = 0;

	if (!base->args->status_fd)
		return;
	memcpy(numbers, counts->of, sizeof(counts->of));
	for (uint32_t i = 0; i < FLOW_TOOK_COUNT; i++)
		counter_hist_read(base->took[i].counted,
			&numbers[FLOW_COUNT_COUNT + i * COUNTER_HIST_PLACES]);
	for (uint32_t i = 0; i < FLOW_STATUS_NUMBERS; i++)
		len += (size_t)snprintf(line + len, sizeof(line) - len, "%llu%c",
			(unsigned long long)numbers[i], i + 1 < FLOW_STATUS_NUMBERS ? ' ' : '\n');
	/* Never blocks: if this line is lost, the next one has the same counters. */
	if (write(base->args->status_fd, line, len) < 0)
		log_debug("flow", "nobody reads the counters: %s", strerror(errno));
}
