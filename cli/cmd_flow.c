/* cli/cmd_flow.c: `nebulaio flow`: packets of an interface into files or objects, from start to
 * ordered end. One reactor on the calling thread; a fiber for each body, one that reports, and a
 * poller for signals. */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "flow_cmd.h"

static const char USAGE[] =
	"usage: nebulaio flow --from xdp:IFACE,WHAT --to TARGET [options]\n"
	"\n"
	"Receives packets past the kernel's network stack (AF_XDP) and stores them. What WHAT\n"
	"does not name goes to the kernel as before.\n"
	"\n"
	"WHAT, separated by commas:\n"
	"  udp=PORT, tcp=PORT a destination port, a range A-B, or any\n"
	"  proto=NUMBER       an IP protocol\n"
	"  src=ADDR[/BITS], dst=ADDR[/BITS]\n"
	"  vlan=ID            as the packet carries it; none: untagged\n"
	"  all                every packet; the kernel sees none of them\n"
	"  queue=N, queues=N  first receive queue of the card, and how many (0, 1)\n"
	"  ring=N             packets that a queue can hold back (8192)\n"
	"  mode=zerocopy|native|generic   that way or not at all\n"
	"TARGET:\n"
	"  FILE.pcapng        every packet, with its time in nanoseconds\n"
	"  disk:PATH          the payloads of UDP datagrams of a multiple of 512 bytes, from the\n"
	"                     frame they came in to a file or block device, uncopied (IPv4)\n"
	"  s3://BUCKET/KEY    pcapng objects, uploaded while they grow\n"
	"  null:              nowhere: counts\n"
	"  %t in a name is the time (20260102T030405Z), %n the body's number, others as in\n"
	"  strftime(3).\n"
	"\n"
	"  --count N          end after so many packets\n"
	"  --seconds N        end after so long\n"
	"  --roll-bytes N     begin a new file or object after so many bytes\n"
	"  --roll-seconds N   … or so long after its first packet\n"
	"  --rules FILE       instead of WHAT: lines of count|drop|pass|redirect and matches;\n"
	"                     first match wins; SIGHUP reads it again\n"
	"  --force            replace existing files; write to block devices\n"
	"  --memory MIB       for what waits to be written (128)\n"
	"  -q, --quiet        no line a second\n"
	"  --json             the summary as JSON on standard output\n" REMOTE_USAGE "\n"
	"SIGINT and SIGTERM end it in order: what has been received is stored. SIGUSR1 asks for\n"
	"a line.\n";

enum form { FORM_FILE, FORM_DISK, FORM_S3, FORM_NULL };

struct flow_args {
	struct remote_opts remote;
	struct flow_spec spec;
	const char *from, *to, *rules_path;
	enum form form;
	char target[2048]; /* path, or "bucket\0key" */
	const char *key;
	uint64_t count, seconds, roll_bytes, roll_seconds, memory_mib;
	bool force, quiet, json;
};

struct job {
	struct flow_args *args;
	struct region *region;
	struct reactor *reactor;
	struct flow_core core;
	struct xp_port *port;
	struct flow_s3 *uploads;
	struct flow_capture *capture;
	struct reactor_poller signals;
	struct fiber *reporter;
	char name_last[1100];
	uint32_t name_repeats;
	bool fixed;
	uint32_t bodies_begun, bodies_stored, bodies_running;
	uint64_t start_ns, end_ns;
	double start_cpu_seconds;
	bool over;
	int exit_code;
};

/* ---- Signals: the handler notes and rings, the poller does. ---- */
static volatile sig_atomic_t signal_end, signal_reload, signal_report;
static int signal_fd = -1;

static void on_signal(int number)
{
	const uint64_t one = 1;
	int saved = errno;

	if (number == SIGHUP)
		signal_reload = 1;
	else if (number == SIGUSR1)
		signal_report = 1;
	else
		signal_end = 1;
	if (write(signal_fd, &one, sizeof(one)) < 0)
		errno = saved;
	errno = saved;
}

static void rules_reload(struct job *job)
{
	struct flow_args *args = job->args;
	char why[FLOW_WHY_BYTES];
	int ret;

	if (!args->rules_path)
		return;
	if (!flow_rules_load(args->rules_path, &args->spec, why)) {
		fprintf(stderr, "nebulaio flow: %s; the rules stay as they were\n", why);
		return;
	}
	ret = xp_rules_set(job->port, args->spec.rules, args->spec.rule_count);
	fprintf(stderr, "rules %s: %u\n", ret ? "refused" : "now", args->spec.rule_count);
}

/* ---- Reports. ---- */

static void report_line(const struct job *job, const struct flow_capture_stats *now,
	const struct flow_capture_stats *last, double seconds)
{
	char total[32], rate[32];

	fprintf(stderr, "%5.0f s  %llu packets  %.0f/s  %s  %s/s  lost %llu  bodies %u\n",
		(double)(clock_now_ns() - job->start_ns) / (double)NS_PER_S,
		(unsigned long long)now->packets, (double)(now->packets - last->packets) / seconds,
		remote_bytes_text(now->packet_bytes, total),
		remote_bytes_text(
			(uint64_t)((double)(now->packet_bytes - last->packet_bytes) / seconds),
			rate),
		(unsigned long long)now->lost, job->bodies_stored);
}

/* As the line of a second, with the rates since the start. */
static void report_now(const struct job *job)
{
	const struct flow_capture_stats none = {0};
	struct flow_capture_stats now;

	flow_capture_stats(job->capture, &now);
	report_line(
		job, &now, &none, (double)(clock_now_ns() - job->start_ns + 1) / (double)NS_PER_S);
}

static uint32_t signals_poll(void *arg)
{
	struct job *job = arg;
	uint64_t rung;

	if (!signal_end && !signal_reload && !signal_report)
		return 0;
	if (read(signal_fd, &rung, sizeof(rung)) < 0)
		return 0; /* the handler is about to ring */
	if (signal_reload) {
		signal_reload = 0;
		rules_reload(job);
	}
	if (signal_report) {
		signal_report = 0;
		report_now(job);
	}
	if (signal_end) {
		signal_end = 0;
		flow_capture_stop(job->capture);
	}
	return 1;
}

static bool signals_arm(void *arg)
{
	(void)arg;
	return !signal_end && !signal_reload && !signal_report;
}

static void signals_disarm(void *arg)
{
	(void)arg;
}

static int signals_open(struct job *job)
{
	const struct sigaction action = {.sa_handler = on_signal};

	signal_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (signal_fd < 0)
		return -errno;
	job->signals = (struct reactor_poller){
		.name = "signals",
		.poll = signals_poll,
		.arm = signals_arm,
		.disarm = signals_disarm,
		.arg = job,
		.event_fd = signal_fd,
	};
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
	sigaction(SIGUSR1, &action, NULL);
	reactor_poller_add(job->reactor, &job->signals);
	return 0;
}

/* ---- A sink that counts. ---- */
static int null_push(struct flow_sink *sink, struct flow_piece *piece)
{
	flow_piece_end(sink->core, piece, OWNER_APP);
	return 0;
}

static int null_finish(struct flow_sink *sink, bool failed)
{
	(void)failed;
	free(sink);
	return 0;
}

static const struct flow_sink_ops NULL_OPS = {
	.name = "null",
	.push = null_push,
	.finish = null_finish,
};

static int null_sink_open(struct flow_core *core, struct flow_sink **ret_sink)
{
	struct flow_sink *sink = calloc(1, sizeof(*sink));

	if (!sink)
		return -ENOMEM;
	*sink = (struct flow_sink){.ops = &NULL_OPS, .core = core, .deadline_ns = DEADLINE_NONE};
	*ret_sink = sink;
	return 0;
}

/* ---- Bodies. ---- */

/* The next body's name; two that begin in one second get different ones. */
static bool body_name(struct job *job, char *out, size_t out_bytes)
{
	const struct flow_args *args = job->args;
	const char *pattern = args->form == FORM_S3 ? args->key : args->target;
	char name[1024];
	const char *dot;
	int stem;

	if (!flow_name(pattern, clock_real_ns(), job->bodies_begun + 1, name, sizeof(name)))
		return false;
	if (strcmp(name, job->name_last)) {
		snprintf(job->name_last, sizeof(job->name_last), "%s", name);
		job->name_repeats = 0;
		return (size_t)snprintf(out, out_bytes, "%s", name) < out_bytes;
	}
	job->name_repeats++;
	dot = strrchr(name, '.');
	if (!dot || strchr(dot, '/'))
		dot = name + strlen(name);
	stem = (int)(dot - name);
	return (size_t)snprintf(out, out_bytes, "%.*s-%u%s", stem, name, job->name_repeats + 1,
		       dot) < out_bytes;
}

static void body_write_failed(void *arg)
{
	struct job *job = arg;

	flow_capture_stop(job->capture);
}

static int body_sink_open(struct job *job, const char *name, struct flow_sink **ret_sink)
{
	const struct flow_args *args = job->args;
	const struct flow_file_opts opts = {
		.path = name,
		.replace = args->force,
		.fixed = job->fixed,
		.unit = args->form == FORM_DISK ? XP_PAYLOAD_OFFSET : FRAME_BYTES,
		.failed = body_write_failed,
		.arg = job,
	};

	if (args->form == FORM_NULL)
		return null_sink_open(&job->core, ret_sink);
	if (args->form == FORM_S3)
		return flow_s3_sink_open(job->uploads, &job->core, args->target, name, ret_sink);
	return flow_file_sink_open(&job->core, &opts, ret_sink);
}

static void body_failed(struct job *job, const char *name, int error)
{
	if (error == -EEXIST)
		fprintf(stderr, "nebulaio flow: %s is there already; --force replaces it\n", name);
	else
		fprintf(stderr, "nebulaio flow: %s: %s\n", name, strerror(-error));
	job->exit_code = CLI_FAILED;
	flow_capture_stop(job->capture);
}

/* The body is ended unread, which ends the capture. */
static void body_refused(struct job *job, struct flow_source *source, const char *name, int error)
{
	body_failed(job, name, error);
	source->ops->close(source);
}

static void body_store(struct job *job)
{
	struct flow_source *source;
	struct flow_sink *sink;
	char name[1100];
	uint64_t bytes;
	int ret = flow_capture_source_open(job->capture, &source);

	if (ret) {
		body_failed(job, "the next body", ret);
		return;
	}
	if (!body_name(job, name, sizeof(name))) {
		body_refused(job, source, "the name", -ENAMETOOLONG);
		return;
	}
	job->bodies_begun++;
	ret = body_sink_open(job, name, &sink);
	if (ret) {
		body_refused(job, source, name, ret);
		return;
	}
	ret = flow_run(source, NULL, 0, sink, &bytes);
	if (ret) {
		body_failed(job, name, ret);
		return;
	}
	job->bodies_stored++;
	if (job->args->form != FORM_NULL && !job->args->quiet)
		fprintf(stderr, "stored %s, %llu bytes\n", name, (unsigned long long)bytes);
}

static void body_main(void *arg)
{
	struct job *job = arg;
	int ret = flow_capture_wait(job->capture);

	if (ret == 1)
		body_store(job);
	if (ret < 0) {
		fprintf(stderr,
			"nebulaio flow: the interface %s is gone; what came before is stored\n",
			job->args->spec.interface);
		job->exit_code = CLI_FAILED;
	}
	if (--job->bodies_running)
		return;
	job->over = true;
	job->end_ns = clock_now_ns();
	if (job->reporter)
		fiber_wake(job->reporter);
	reactor_stop(job->reactor);
}

/* The last body is being made durable; the next one begins at once. */
static void body_spawn(void *arg)
{
	struct job *job = arg;

	job->bodies_running++;
	if (fiber_spawn(job->reactor, "body", body_main, job) == 0)
		return;
	job->bodies_running--;
	fprintf(stderr, "nebulaio flow: no memory for another body\n");
	job->exit_code = CLI_FAILED;
	flow_capture_stop(job->capture);
}

static void report_main(void *arg)
{
	struct job *job = arg;
	struct flow_capture_stats last = {0}, now;
	uint64_t due_ns = job->start_ns, last_ns = job->start_ns;

	job->reporter = fiber_self();
	while (!job->over) {
		due_ns += NS_PER_S;
		while (!job->over && fiber_park_until(due_ns) == 0)
			;
		if (job->over)
			break;
		flow_capture_stats(job->capture, &now);
		report_line(
			job, &now, &last, (double)(clock_now_ns() - last_ns) / (double)NS_PER_S);
		last = now;
		last_ns = clock_now_ns();
	}
	job->reporter = NULL;
}

static double processor_seconds(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
	       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static void summary(const struct job *job)
{
	struct flow_capture_stats stats;
	double seconds = (double)(job->end_ns - job->start_ns) / (double)NS_PER_S;
	uint64_t copied = region_copy_bytes_all();
	const char *transport = job->uploads ? flow_s3_transport(job->uploads) : "none";
	uint64_t client_copied = job->uploads ? flow_s3_copied(job->uploads) : 0;
	char total[32], copies[32];

	flow_capture_stats(job->capture, &stats);
	if (job->args->json)
		printf("{\"packets\":%llu,\"packet_bytes\":%llu,\"body_bytes\":%llu,\"bodies\":%u,"
		       "\"lost\":%llu,\"unfit\":%llu,\"seconds\":%.3f,\"cpu_seconds\":%.3f,"
		       "\"copied_bytes\":%llu,\"client_copied_bytes\":%llu,\"transport\":\"%s\","
		       "\"mode\":\"%s\"}\n",
			(unsigned long long)stats.packets, (unsigned long long)stats.packet_bytes,
			(unsigned long long)stats.body_bytes, job->bodies_stored,
			(unsigned long long)stats.lost, (unsigned long long)stats.unfit, seconds,
			processor_seconds() - job->start_cpu_seconds, (unsigned long long)copied,
			(unsigned long long)client_copied, transport,
			xp_mode_name(xp_mode(job->port)));
	fprintf(stderr,
		"%llu packets, %s, in %u bodies, %.1f s; lost %llu; %s; %s copied by this "
		"process\n",
		(unsigned long long)stats.packets, remote_bytes_text(stats.packet_bytes, total),
		job->bodies_stored, seconds, (unsigned long long)stats.lost,
		xp_mode_name(xp_mode(job->port)),
		remote_bytes_text(copied + client_copied, copies));
	if (stats.unfit)
		fprintf(stderr,
			"%llu packets were not stored: no UDP payload of a multiple of %u bytes in "
			"an untagged IPv4 packet without options\n",
			(unsigned long long)stats.unfit, XP_PAYLOAD_OFFSET);
}

/* ---- Start and end. ---- */

static int port_open(struct job *job)
{
	struct flow_args *args = job->args;
	struct xp_opts opts = args->spec.port;
	int ret;

	opts.interface = args->spec.interface;
	ret = xp_open(job->region, &opts, &job->port);
	if (ret == -ENODEV)
		return CLI_NOT_FOUND;
	if (ret == -EPERM)
		return CLI_DENIED;
	if (ret == -EINVAL)
		return CLI_USAGE;
	return ret ? CLI_FAILED : CLI_OK;
}

static int devices_open(struct job *job)
{
	const struct flow_args *args = job->args;
	const struct xp_opts *port = &args->spec.port;
	const uint64_t ring_entries =
		port->ring_entries ? port->ring_entries : XP_RING_ENTRIES_DEFAULT;
	const struct region_opts region_opts = {
		.name = "flow",
		.bytes = args->memory_mib * MIB +
			 ring_entries * FRAME_BYTES * MAX(port->queue_count, 1u),
		.core_count = 1,
	};
	/* A capture is in no hurry: the rings hold back what comes while it sleeps. */
	const struct reactor_opts reactor_opts = {.cpu = -1, .idle_spin_ns = NS_PER_US};
	int ret = region_open(&region_opts, &job->region);

	if (!ret)
		ret = reactor_open(&reactor_opts, &job->reactor);
	if (!ret)
		ret = flow_core_open(job->reactor, job->region, &job->core);
	if (ret) {
		fprintf(stderr, "nebulaio flow: no memory region or io_uring: %s\n",
			strerror(-ret));
		return CLI_FAILED;
	}
	job->fixed = flow_file_register(job->reactor, job->region);
	ret = port_open(job);
	if (!ret && args->form == FORM_S3)
		ret = flow_s3_open(&args->remote, job->region, &job->uploads);
	return ret;
}

static int capture_open(struct job *job)
{
	const struct flow_args *args = job->args;
	const struct flow_capture_opts opts = {
		.form = args->form == FORM_DISK ? FLOW_CAPTURE_PAYLOAD : FLOW_CAPTURE_PCAPNG,
		.interface = args->spec.interface,
		.payload_unit = XP_PAYLOAD_OFFSET,
		.roll_bytes = args->roll_bytes,
		.roll_ns = args->roll_seconds * NS_PER_S,
		.packets_max = args->count,
		.deadline_ns =
			args->seconds ? clock_now_ns() + args->seconds * NS_PER_S : DEADLINE_NONE,
		.body_ended = body_spawn,
		.arg = job,
	};
	int ret = flow_capture_open(&job->core, job->port, &opts, &job->capture);

	if (!ret)
		ret = signals_open(job);
	if (!ret)
		ret = xp_rules_set(job->port, args->spec.rules, args->spec.rule_count);
	if (ret)
		fprintf(stderr, "nebulaio flow: %s\n", strerror(-ret));
	return ret ? CLI_FAILED : CLI_OK;
}

static void run(struct job *job)
{
	const struct flow_args *args = job->args;

	job->start_ns = clock_now_ns();
	job->start_cpu_seconds = processor_seconds();
	fprintf(stderr, "receiving on %s, %s\n", args->spec.interface,
		xp_mode_name(xp_mode(job->port)));
	body_spawn(job);
	if (!args->quiet)
		fiber_spawn(job->reactor, "report", report_main, job);
	reactor_run(job->reactor);
	summary(job);
}

static void job_close(struct job *job)
{
	flow_capture_close(job->capture);
	xp_close(job->port);
	if (job->signals.arg)
		reactor_poller_remove(job->reactor, &job->signals);
	flow_s3_close(job->uploads);
	flow_core_close(&job->core);
	reactor_close(job->reactor);
	region_close(job->region);
}

/* ---- The command line. ---- */

static bool amount_parse(const char *text, uint64_t *ret_amount)
{
	char *end;
	unsigned long long amount;

	errno = 0;
	amount = strtoull(text, &end, 10);
	if (errno || end == text || *text == '-' || amount == 0)
		return false;
	if (*end == 'K' || *end == 'M' || *end == 'G')
		amount <<= *end == 'K' ? 10 : *end == 'M' ? 20 : 30;
	if (*end && end[1])
		return false;
	*ret_amount = amount;
	return *end == '\0' || strchr("KMG", *end) != NULL;
}

static int target_parse(struct flow_args *args)
{
	const char *to = args->to, *bucket;

	snprintf(args->target, sizeof(args->target), "%s", to);
	if (strlen(to) >= sizeof(args->target))
		return cli_usage_error(&CLI_FLOW, "--to is too long");
	if (!strcmp(to, "null:")) {
		args->form = FORM_NULL;
	} else if (!strncmp(to, "disk:", 5)) {
		args->form = FORM_DISK;
		memmove(args->target, to + 5, strlen(to + 5) + 1);
	} else if (remote_is_url(to)) {
		args->form = FORM_S3;
		if (!remote_parse(args->target, &bucket, &args->key) || !args->key[0])
			return cli_usage_error(
				&CLI_FLOW, "'%s' is not of the form s3://BUCKET/KEY", to);
		memmove(args->target, bucket, strlen(bucket) + 1);
	} else {
		args->form = FORM_FILE;
	}
	if (!args->target[0])
		return cli_usage_error(&CLI_FLOW, "--to names no file");
	return CLI_OK;
}

static int args_check(struct flow_args *args)
{
	char why[FLOW_WHY_BYTES];

	if (!args->from || !args->to)
		return cli_usage_error(&CLI_FLOW, "--from and --to are needed");
	if (!flow_spec_parse(args->from, &args->spec, why))
		return cli_usage_error(&CLI_FLOW, "--from: %s", why);
	if (args->rules_path && args->spec.rule_count)
		return cli_usage_error(&CLI_FLOW,
			"what to take is said either in --from or in --rules, not in both");
	if (args->rules_path && !flow_rules_load(args->rules_path, &args->spec, why))
		return cli_usage_error(&CLI_FLOW, "--rules: %s", why);
	if (args->spec.rule_count == 0)
		return cli_usage_error(
			&CLI_FLOW, "--from does not say what to take: udp=PORT, src=…, or all");
	if (args->memory_mib < 16 || args->memory_mib > 65536)
		return cli_usage_error(&CLI_FLOW, "--memory: 16 to 65536");
	return target_parse(args);
}

enum {
	FLOW_FROM = REMOTE_OWN,
	FLOW_TO,
	FLOW_COUNT,
	FLOW_SECONDS,
	FLOW_ROLL_BYTES,
	FLOW_ROLL_SECONDS,
	FLOW_RULES,
	FLOW_FORCE,
	FLOW_MEMORY,
	FLOW_JSON,
};

static int option_take(struct flow_args *args, int option, char **argv)
{
	uint64_t *const amounts[] = {
		[FLOW_COUNT - FLOW_FROM] = &args->count,
		[FLOW_SECONDS - FLOW_FROM] = &args->seconds,
		[FLOW_ROLL_BYTES - FLOW_FROM] = &args->roll_bytes,
		[FLOW_ROLL_SECONDS - FLOW_FROM] = &args->roll_seconds,
		[FLOW_MEMORY - FLOW_FROM] = &args->memory_mib,
	};

	switch (option) {
	case FLOW_FROM:
		args->from = optarg;
		return CLI_OK;
	case FLOW_TO:
		args->to = optarg;
		return CLI_OK;
	case FLOW_RULES:
		args->rules_path = optarg;
		return CLI_OK;
	case FLOW_FORCE:
		args->force = true;
		return CLI_OK;
	case FLOW_JSON:
		args->json = true;
		return CLI_OK;
	case 'q':
		args->quiet = true;
		return CLI_OK;
	case FLOW_COUNT:
	case FLOW_SECONDS:
	case FLOW_ROLL_BYTES:
	case FLOW_ROLL_SECONDS:
	case FLOW_MEMORY:
		if (amount_parse(optarg, amounts[option - FLOW_FROM]))
			return CLI_OK;
		return cli_usage_error(&CLI_FLOW, "'%s' is not an amount", optarg);
	default:
		return remote_option(&CLI_FLOW, &args->remote, option, argv);
	}
}

static int flow_main(int argc, char **argv)
{
	static const struct option OPTIONS[] = {
		REMOTE_OPTIONS,
		{"from", required_argument, NULL, FLOW_FROM},
		{"to", required_argument, NULL, FLOW_TO},
		{"count", required_argument, NULL, FLOW_COUNT},
		{"seconds", required_argument, NULL, FLOW_SECONDS},
		{"roll-bytes", required_argument, NULL, FLOW_ROLL_BYTES},
		{"roll-seconds", required_argument, NULL, FLOW_ROLL_SECONDS},
		{"rules", required_argument, NULL, FLOW_RULES},
		{"force", no_argument, NULL, FLOW_FORCE},
		{"memory", required_argument, NULL, FLOW_MEMORY},
		{"json", no_argument, NULL, FLOW_JSON},
		{"quiet", no_argument, NULL, 'q'},
		{0},
	};
	static struct flow_args args;
	static struct job job;
	int option, ret;

	args.memory_mib = 128;
	remote_defaults(&args.remote);
	optind = 1;
	opterr = 0;
	while ((option = getopt_long(argc, argv, REMOTE_SHORT "q", OPTIONS, NULL)) != -1) {
		ret = option_take(&args, option, argv);
		if (ret)
			return ret;
	}
	if (optind != argc)
		return cli_usage_error(&CLI_FLOW, "'%s' is not understood", argv[optind]);
	ret = args_check(&args);
	if (ret)
		return ret;
	log_set_level(args.remote.verbose ? LOG_DEBUG : LOG_WARN);
	job.args = &args;
	ret = devices_open(&job);
	if (!ret)
		ret = capture_open(&job);
	if (!ret) {
		run(&job);
		ret = job.exit_code;
	}
	job_close(&job);
	return ret;
}

const struct cli_command CLI_FLOW = {
	.name = "flow",
	.summary = "store an interface's packets as files or objects",
	.usage = USAGE,
	.run = flow_main,
};
