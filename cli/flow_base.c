/* cli/flow_base.c: the parts of every job of `nebulaio flow`: region, reactor, devices, client,
 * signals, and the links that it opens. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "flow_cmd.h"

#define RETRY_NS (100 * NS_PER_MS)

/* ---- Signals: the handler sets a flag and writes the eventfd; the poller acts. ---- */
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

static uint32_t signals_poll(void *arg)
{
	struct flow_base *base = arg;
	uint64_t rung;

	if (!signal_end && !signal_reload && !signal_report)
		return 0;
	if (read(signal_fd, &rung, sizeof(rung)) < 0)
		return 0; /* the handler is about to write the eventfd */
	if (signal_reload) {
		signal_reload = 0;
		base->on.reload(base->on.arg);
	}
	if (signal_report) {
		signal_report = 0;
		base->on.report(base->on.arg);
	}
	if (signal_end) {
		signal_end = 0;
		base->on.end(base->on.arg);
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

int flow_base_signals(struct flow_base *base)
{
	const struct sigaction action = {.sa_handler = on_signal};

	signal_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (signal_fd < 0)
		return -errno;
	base->signals = (struct reactor_poller){
		.name = "signals",
		.poll = signals_poll,
		.arm = signals_arm,
		.disarm = signals_disarm,
		.arg = base,
		.event_fd = signal_fd,
	};
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
	sigaction(SIGUSR1, &action, NULL);
	reactor_poller_add(base->reactor, &base->signals);
	return 0;
}

double flow_cpu_seconds(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
	       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

/* ---- Latency of bytes. ---- */

#define TOOK_METRIC "nebulaio_flow_latency_seconds"
#define TOOK_HELP   "How long bytes of flows took."
static struct counter_hist took_counted[FLOW_TOOK_COUNT] = {
	[FLOW_TOOK_DURABLE] = {.name = TOOK_METRIC, .labels = "to=\"durable\"", .help = TOOK_HELP},
	[FLOW_TOOK_PEER] = {.name = TOOK_METRIC, .labels = "to=\"peer\"", .help = TOOK_HELP},
};

const char *flow_took_name(enum flow_took took)
{
	return took == FLOW_TOOK_DURABLE ? "durable" : "peer";
}

static void took_open(struct flow_base *base)
{
	for (uint32_t i = 0; i < FLOW_TOOK_COUNT; i++) {
		if (!took_counted[i].number)
			counter_hist_register(&took_counted[i]);
		flow_latency_init(&base->took[i], &took_counted[i]);
	}
}

static void took_bucket(uint64_t value_ns, uint32_t count, void *arg)
{
	bool *first = arg;

	printf("%s[%llu,%u]", *first ? "" : ",", (unsigned long long)value_ns, count);
	*first = false;
}

void flow_took_json(const struct flow_base *base)
{
	printf("\"latency\":{");
	for (uint32_t i = 0; i < FLOW_TOOK_COUNT; i++) {
		const struct hist *hist = &base->took[i].hist;
		bool first = true;

		printf("%s\"%s\":{\"count\":%llu,\"p50_us\":%.1f,\"p99_us\":%.1f,\"max_us\":%.1f,"
		       "\"histogram_ns\":[",
			i ? "," : "", flow_took_name((enum flow_took)i),
			(unsigned long long)hist->count, (double)hist_quantile(hist, 0.5) / 1e3,
			(double)hist_quantile(hist, 0.99) / 1e3,
			hist->count ? (double)hist->max / 1e3 : 0.0);
		hist_visit(hist, took_bucket, &first);
		printf("]}");
	}
	printf("},");
}

void flow_took_lines(const struct flow_base *base)
{
	static const char *const WHAT[] = {"durable", "in the peer's memory"};

	for (uint32_t i = 0; i < FLOW_TOOK_COUNT; i++) {
		const struct hist *hist = &base->took[i].hist;

		if (hist->count)
			fprintf(stderr,
				"%s after %.3f ms (median), %.3f ms (p99), %.3f ms (maximum)\n",
				WHAT[i], (double)hist_quantile(hist, 0.5) / 1e6,
				(double)hist_quantile(hist, 0.99) / 1e6, (double)hist->max / 1e6);
	}
}

/* ---- Links. ---- */

static int link_connect(struct flow_fabric *fabric, const struct flow_end_spec *end,
	const struct flow_link_opts *opts, struct flow_link **ret_link)
{
	const uint64_t deadline_ns = clock_now_ns() + end->wait_ns;
	int ret;

	do {
		ret = flow_link_connect(fabric, opts, end->address, end->port, ret_link);
		if ((ret != -ECONNREFUSED && ret != -EBUSY) || clock_now_ns() >= deadline_ns)
			break;
		fiber_sleep_ns(RETRY_NS);
	} while (true);
	if (ret)
		fprintf(stderr, "nebulaio flow: no stream with %s:%u: %s\n", end->address,
			end->port, flow_fabric_why(fabric));
	return ret;
}

int flow_link_for(struct flow_fabric *fabric, const struct flow_end_spec *end,
	const struct flow_link_opts *opts, struct flow_listener **listener,
	struct flow_link **ret_link)
{
	struct flow_link_opts full = *opts;
	int ret;

	full.record_bytes = end->record_bytes ? end->record_bytes : opts->record_bytes;
	full.timeout_ns = end->timeout_ns;
	if (!end->listen) {
		ret = link_connect(fabric, end, &full, ret_link);
	} else {
		ret = flow_link_listen(fabric, end->address, end->port, listener);
		if (ret) {
			fprintf(stderr, "nebulaio flow: cannot listen on %s:%u: %s\n",
				end->address[0] ? end->address : "*", end->port, strerror(-ret));
			return ret;
		}
		fprintf(stderr, "listening on %s:%u, %s\n", end->address[0] ? end->address : "*",
			flow_link_port(*listener), flow_fabric_name(fabric));
		ret = flow_link_accept(*listener, &full, ret_link);
		flow_link_listener_close(*listener);
		*listener = NULL;
	}
	if (!ret)
		fprintf(stderr, "%s %s, %s\n", opts->sends ? "sending to" : "receiving from",
			flow_link_peer(*ret_link), flow_fabric_name(fabric));
	return ret;
}

int flow_datagram_for(struct flow_fabric *fabric, const struct flow_end_spec *end,
	const struct flow_datagram_opts *opts, struct flow_datagram **ret_datagram)
{
	struct flow_datagram_opts full = *opts;
	int ret;

	full.raw = end->kind == FLOW_RAW;
	snprintf(full.to, sizeof(full.to), "%s", end->address);
	memcpy(full.mac, end->mac, sizeof(full.mac));
	full.ether_type = end->ether_type;
	full.vlan = end->vlan;
	full.priority = end->priority;
	full.rate = end->rate;
	full.timeout_ns = end->timeout_ns;
	full.accept_loss = end->accept_loss;
	ret = flow_datagram_open(fabric, &full, ret_datagram);
	if (ret)
		fprintf(stderr, "nebulaio flow: no datagrams by %s: %s\n", flow_fabric_name(fabric),
			ret == -EOPNOTSUPP ? "this device has no such queue pairs"
					   : flow_fabric_why(fabric));
	else
		fprintf(stderr, "%s %s, %s\n", opts->sends ? "sending to" : "receiving at",
			flow_datagram_name(*ret_datagram), flow_fabric_name(fabric));
	return ret;
}

/* ---- Opening and closing. ---- */

static int device_of(const struct flow_args *args, const struct flow_end_spec *end, char buf[64])
{
	const char *wanted = end->device[0] ? end->device : args->remote.device_name;

	buf[0] = '\0';
	if (!flow_end_has_fabric(end))
		return CLI_OK;
	if (flow_end_is_datagrams(end))
		return cli_device_find(wanted, "", 0, true, buf);
	return cli_device_find(wanted, end->address, end->port, end->listen, buf);
}

static int fabric_open(struct flow_base *base, const char *device, struct flow_fabric **ret_fabric)
{
	int ret = flow_fabric_open(&base->core, device, ret_fabric);

	if (ret)
		fprintf(stderr, "nebulaio flow: the RDMA device %s cannot be used: %s\n", device,
			strerror(-ret));
	return ret ? CLI_FAILED : CLI_OK;
}

static int fabrics_open(struct flow_base *base)
{
	const struct flow_args *args = base->args;
	char from[64], to[64];
	int ret = device_of(args, &args->from, from);

	if (!ret)
		ret = device_of(args, &args->to, to);
	if (ret)
		return ret;
	if (flow_end_has_fabric(&args->from))
		ret = fabric_open(base, from, &base->fabric_from);
	if (ret || !flow_end_has_fabric(&args->to))
		return ret;
	if (base->fabric_from && !strcmp(from, to)) {
		base->fabric_to = base->fabric_from;
		return CLI_OK;
	}
	return fabric_open(base, to, &base->fabric_to);
}

static bool volume_blank(struct disk *disk, const char *path)
{
	char what[128] = "data that cannot be read";

	if (disk_foreign(disk, what, sizeof(what)) == 0)
		return true;
	fprintf(stderr, "nebulaio flow: %s: it holds %s: not changed; --force overwrites it\n",
		path, what);
	return false;
}

/* Opens a device as a volume. A file is no volume: it ends with its last byte. */
static int volume_open(struct flow_base *base, const struct flow_end_spec *end, bool is_source,
	struct flow_volume *volume)
{
	const struct disk_opts opts = {
		.path = end->path, .bytes_min = MIB, .step_bytes = MIB, .read_only = is_source};
	enum disk_kind kind;
	int ret;

	if (end->kind != FLOW_DISK || disk_kind_of(end->path, &kind) || kind == DISK_FILE)
		return CLI_OK;
	ret = disk_open(&opts, &volume->disk);
	if (ret) {
		fprintf(stderr, "nebulaio flow: %s: %s\n", end->path, strerror(-ret));
		return ret == -EACCES || ret == -EPERM ? CLI_DENIED : CLI_FAILED;
	}
	if (!is_source && !base->args->force && !volume_blank(volume->disk, end->path))
		return CLI_FAILED;
	ret = disk_attach(volume->disk, base->reactor, base->region);
	if (!ret)
		ret = disk_target(volume->disk, base->region, &volume->target);
	if (ret) {
		fprintf(stderr, "nebulaio flow: %s: %s\n", end->path, strerror(-ret));
		return CLI_FAILED;
	}
	volume->offset = end->offset;
	volume->bytes = end->bytes;
	fprintf(stderr, "%s: %s\n", end->path, disk_describe(volume->disk));
	return CLI_OK;
}

int flow_base_open(
	struct flow_base *base, struct flow_args *args, uint64_t extra_bytes, uint64_t idle_spin_ns)
{
	const struct region_opts region_opts = {
		.name = "flow",
		.bytes = args->memory_mib * MIB + extra_bytes,
		.core_count = 1,
	};
	const struct reactor_opts reactor_opts = {.cpu = -1, .idle_spin_ns = idle_spin_ns};
	int ret;

	took_open(base);
	base->args = args;
	ret = region_open(&region_opts, &base->region);
	if (!ret)
		ret = reactor_open(&reactor_opts, &base->reactor);
	if (!ret)
		ret = flow_core_open(base->reactor, base->region, &base->core);
	if (ret) {
		fprintf(stderr, "nebulaio flow: no memory region or io_uring: %s\n",
			strerror(-ret));
		return CLI_FAILED;
	}
	region_timed_set(base->region, true);
	base->fixed = flow_file_register(base->reactor, base->region);
	ret = volume_open(base, &args->from, true, &base->volume_from);
	if (!ret)
		ret = volume_open(base, &args->to, false, &base->volume_to);
	if (!ret)
		ret = fabrics_open(base);
	if (!ret && (args->from.kind == FLOW_S3 || args->to.kind == FLOW_S3))
		ret = flow_s3_open(&args->remote, base->region, &base->client);
	return ret;
}

void flow_base_end(struct flow_base *base)
{
	if (base->fabric_from)
		flow_fabric_end(base->fabric_from);
	if (base->fabric_to && base->fabric_to != base->fabric_from)
		flow_fabric_end(base->fabric_to);
}

void flow_base_close(struct flow_base *base)
{
	if (base->signals.arg)
		reactor_poller_remove(base->reactor, &base->signals);
	flow_s3_close(base->client);
	if (base->fabric_to != base->fabric_from)
		flow_fabric_close(base->fabric_to);
	flow_fabric_close(base->fabric_from);
	disk_close(base->volume_from.disk);
	disk_close(base->volume_to.disk);
	flow_core_close(&base->core);
	reactor_close(base->reactor);
	region_close(base->region);
}
