/* cli/flow_capture.c: `nebulaio flow --from xdp:…`: packets of an interface into files, objects or
 * a stream, from start to ordered end. A fiber for each body, one that reports. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "flow_cmd.h"

#define STREAM_RECORD_BYTES (16 * KIB) /* a few packets each */

/* A body that is being written. */
struct body {
	struct job *job;
	struct flow_marker marker;
	struct flow_transforms *transforms; /* of its bytes; NULL: none */
};

struct job {
	struct flow_base base;
	struct xp_port *port;
	struct flow_capture *capture;
	struct flow_transforms *packet_transforms;
	/* The texts of the transforms of bytes, which each body opens anew. */
	const char *const *texts;
	uint32_t text_count;
	bool resized; /* these change lengths */
	char why[FLOW_TRANSFORM_WHY_BYTES];
	struct flow_link *link;		/* to RDMA: the link of the only body */
	struct flow_datagram *datagram; /* or its datagrams */
	struct body *streamed;		/* that body, while it is being written */
	struct flow_listener *listener;
	struct flow_link_stats link_stats;
	struct fiber *reporter;
	char name_last[1100];
	uint64_t named_ns; /* the time in the last name */
	uint32_t name_repeats;
	uint32_t bodies_begun, bodies_stored, bodies_running;
	uint32_t number; /* of the next body's name */
	bool looking;	 /* for a number whose name is free */
	struct fiber *number_waiter;
	uint64_t end_ns;
	bool taking, over;
	int exit_code;
};

/* ---- Signals. ---- */

static void rules_reload(void *arg)
{
	struct job *job = arg;
	struct flow_args *args = job->base.args;
	char why[FLOW_WHY_BYTES];
	int ret;

	if (!args->rules_path)
		return;
	if (!flow_rules_load(args->rules_path, &args->xdp, why)) {
		fprintf(stderr, "nebulaio flow: %s; the old rules stay in force\n", why);
		return;
	}
	ret = job->taking ? xp_rules_set(job->port, args->xdp.rules, args->xdp.rule_count) : 0;
	fprintf(stderr, "rules %s: %u\n", ret ? "refused" : "now", args->xdp.rule_count);
}

/* ---- Reports. ---- */

static void report_line(const struct job *job, const struct flow_capture_stats *now,
	const struct flow_capture_stats *last, double seconds)
{
	char total[32], rate[32];

	fprintf(stderr, "%5.0f s  %llu packets  %.0f/s  %s  %s/s  lost %llu  bodies %u\n",
		(double)(clock_now_ns() - job->base.start_ns) / (double)NS_PER_S,
		(unsigned long long)now->packets, (double)(now->packets - last->packets) / seconds,
		remote_bytes_text(now->packet_bytes, total),
		remote_bytes_text(
			(uint64_t)((double)(now->packet_bytes - last->packet_bytes) / seconds),
			rate),
		(unsigned long long)now->lost, job->bodies_stored);
}

static void status_tell(const struct job *job, const struct flow_capture_stats *now)
{
	struct flow_counts counts = {.of = {[FLOW_BYTES] = now->packet_bytes,
					     [FLOW_PACKETS] = now->packets,
					     [FLOW_LOST] = now->lost,
					     [FLOW_BODIES] = job->bodies_stored}};
	struct filter_count matched;
	struct xp_stats stats;

	xp_stats(job->port, &stats);
	counts.of[FLOW_RING_FULL] = stats.ring_full;
	counts.of[FLOW_FILL_EMPTY] = stats.fill_empty;
	counts.of[FLOW_DROPPED] = stats.dropped;
	counts.of[FLOW_INVALID] = stats.invalid_rx + stats.invalid_tx;
	counts.of[FLOW_STAMPED] = stats.stamped;
	for (uint32_t i = 0; xp_rule_count(job->port, i, &matched) == 0; i++)
		counts.of[FLOW_MATCHED] += matched.packets;
	xp_show(job->port);
	flow_status(&job->base, &counts);
}

/* Publishes the counts and prints the line of a second at once, with the rates since the start. */
static void report_now(void *arg)
{
	const struct job *job = arg;
	const struct flow_capture_stats none = {0};
	struct flow_capture_stats now;

	flow_capture_stats(job->capture, &now);
	status_tell(job, &now);
	report_line(job, &now, &none,
		(double)(clock_now_ns() - job->base.start_ns + 1) / (double)NS_PER_S);
}

static void end_asked(void *arg)
{
	struct job *job = arg;

	if (job->listener)
		flow_link_cancel(job->listener);
	flow_capture_stop(job->capture);
}

/* ---- Bodies. ---- */

static const char *name_pattern(const struct flow_args *args)
{
	return args->to.kind == FLOW_S3 ? args->to.key : args->to.path;
}

/* Whether the name that a body of this number would get is another's already. */
static bool number_taken(void *arg, uint32_t number)
{
	struct job *job = arg;
	const struct flow_args *args = job->base.args;
	char name[1024];

	if (!flow_name(name_pattern(args), job->named_ns, number, name, sizeof(name)))
		return false;
	if (args->to.kind == FLOW_S3)
		return flow_s3_taken(job->base.client, &job->base.core, args->to.path, name);
	return access(name, F_OK) == 0;
}

/* Whether the names' numbers that are taken are passed over. */
static bool skips_numbers(const struct flow_args *args)
{
	return !args->force &&
	       (args->to.kind == FLOW_S3 || args->to.kind == FLOW_FILE ||
		       args->to.kind == FLOW_DISK) &&
	       flow_name_counts(name_pattern(args));
}

/* A capture that is started again counts from 1: passes over the names of bodies from before. */
static void number_look(struct job *job)
{
	uint32_t number = flow_number_free(job->number, number_taken, job);

	if (number != job->number)
		fprintf(stderr, "nebulaio flow: %u name%s from number %u on %s taken: skipped\n",
			number - job->number, REMOTE_S(number - job->number), job->number,
			number - job->number == 1 ? "is" : "are");
	job->number = number;
}

static void fiber_end(struct job *job);

static void look_main(void *arg)
{
	struct job *job = arg;

	number_look(job);
	job->looking = false;
	if (job->number_waiter)
		fiber_wake(job->number_waiter);
	fiber_end(job);
}

/* Looks for the number of the body after this one, while packets come into this one. */
static void number_advance(struct job *job)
{
	job->number++;
	if (!skips_numbers(job->base.args) ||
		(!job->base.args->roll_bytes && !job->base.args->roll_seconds))
		return;
	job->bodies_running++;
	job->looking = fiber_spawn(job->base.reactor, "number", look_main, job) == 0;
	job->bodies_running -= !job->looking;
}

/* Before the first packet is taken: 0, or -EEXIST, because the only name is an object's. */
static int name_look(struct job *job)
{
	const struct flow_args *args = job->base.args;

	job->named_ns = clock_real_ns();
	job->number = 1;
	if (skips_numbers(args))
		number_look(job);
	else if (!args->force && args->to.kind == FLOW_S3 && number_taken(job, 1))
		return -EEXIST;
	return 0;
}

/* Makes the next body's name; two bodies that begin in one second get different names. */
static bool body_name(struct job *job, char *out, size_t out_bytes)
{
	const struct flow_args *args = job->base.args;
	char name[1024];
	const char *dot;
	int stem;

	/* A clock that is set back must not bring back a name. */
	job->named_ns = MAX(job->named_ns, clock_real_ns());
	job->number_waiter = fiber_self();
	while (job->looking)
		fiber_park();
	job->number_waiter = NULL;
	if (!flow_name(name_pattern(args), job->named_ns, job->number, name, sizeof(name)))
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
	struct body *body = arg;

	flow_capture_stop(body->job->capture);
}

static void body_durable(void *arg, uint64_t bytes)
{
	struct body *body = arg;

	flow_marks_reached(&body->marker.durable, bytes, clock_now_ns());
}

static void link_failed(void *arg)
{
	struct job *job = arg;

	flow_capture_stop(job->capture);
}

static void link_acknowledged(void *arg, uint64_t bytes)
{
	struct job *job = arg;

	if (job->streamed)
		body_durable(job->streamed, bytes);
}

static void link_delivered(void *arg, uint64_t bytes)
{
	struct job *job = arg;

	if (job->streamed)
		flow_marks_reached(&job->streamed->marker.delivered, bytes, clock_now_ns());
}

static bool payloads(const struct flow_args *args)
{
	return args->form == FLOW_FORM_PAYLOAD;
}

/* The size that pieces are multiples of. */
static uint32_t piece_unit(const struct job *job)
{
	return payloads(job->base.args) && !job->resized ? XP_PAYLOAD_OFFSET : FRAME_BYTES;
}

static struct flow_sink *stream_sink(const struct job *job)
{
	return job->link ? flow_link_sink(job->link) : flow_datagram_sink(job->datagram);
}

static const char *stream_name(const struct job *job)
{
	return job->link ? flow_link_peer(job->link) : flow_datagram_name(job->datagram);
}

static int body_sink_open(struct body *body, const char *name, struct flow_sink **ret_sink)
{
	struct job *job = body->job;
	const struct flow_args *args = job->base.args;
	const struct flow_s3_target object = {
		.bucket = args->to.path, .key = name, .replace = args->force};
	const struct flow_file_opts opts = {
		.path = name,
		.replace = args->force,
		.fixed = job->base.fixed,
		.unit = piece_unit(job),
		.failed = body_write_failed,
		.sync_bytes = args->sync_bytes,
		.durable = body_durable,
		.arg = body,
	};

	if (job->link || job->datagram) {
		*ret_sink = stream_sink(job);
		return 0;
	}
	if (job->base.volume_to.disk) {
		struct flow_volume volume = job->base.volume_to;

		volume.failed = body_write_failed;
		volume.sync_bytes = args->sync_bytes;
		volume.durable = body_durable;
		volume.arg = body;
		return flow_volume_sink_open(&job->base.core, &volume, ret_sink);
	}
	if (args->to.kind == FLOW_NULL)
		return flow_null_sink_open(&job->base.core, ret_sink);
	if (args->to.kind == FLOW_S3)
		return flow_s3_sink_open(job->base.client, &job->base.core, &object, ret_sink);
	return flow_file_sink_open(&job->base.core, &opts, ret_sink);
}

static void body_failed(struct job *job, const char *name, int error)
{
	if (job->why[0])
		fprintf(stderr, "nebulaio flow: %s: %s\n", name, job->why);
	else if (job->link && flow_link_why(job->link)[0])
		fprintf(stderr, "nebulaio flow: %s: %s; %llu bytes are acknowledged\n",
			flow_link_peer(job->link), flow_link_why(job->link),
			(unsigned long long)job->link_stats.acknowledged);
	else if (error == -EEXIST)
		fprintf(stderr, "nebulaio flow: %s exists already; --force replaces it\n", name);
	else
		fprintf(stderr, "nebulaio flow: %s: %s\n", name, strerror(-error));
	job->exit_code = error == -EBADMSG ? CLI_DAMAGED : CLI_FAILED;
	flow_capture_stop(job->capture);
}

/* Closes the body unread, which ends the capture. */
static void body_refused(struct job *job, struct flow_source *source, const char *name, int error)
{
	body_failed(job, name, error);
	flow_source_close(source);
}

/* The source of the bytes that leave the transforms. With an error the sources are closed. */
static int transforms_enter(struct body *body, struct flow_source **source)
{
	struct job *job = body->job;
	const struct flow_transform_opts opts = {
		.unit = piece_unit(job), .prompt = job->link || job->datagram};
	int ret;

	if (!job->text_count)
		return 0;
	ret = flow_transforms_open(job->texts, job->text_count, &body->transforms, job->why);
	if (ret)
		flow_source_close(*source);
	else
		ret = flow_transform_source_open(*source, body->transforms, &opts, source);
	return ret;
}

static int body_run(
	struct body *body, struct flow_source *source, struct flow_sink *sink, uint64_t *ret_bytes)
{
	struct job *job = body->job;
	struct flow_stage *stages[] = {&body->marker.stage};
	int ret = transforms_enter(body, &source);

	if (ret) {
		flow_sink_finish(sink, true);
		return ret;
	}
	flow_marker_init(&body->marker, source, &job->base.took[FLOW_TOOK_DURABLE],
		&job->base.took[FLOW_TOOK_PEER]);
	job->streamed = job->link ? body : NULL;
	ret = flow_run(source, stages, 1, sink, ret_bytes);
	job->streamed = NULL;
	if (!ret && job->base.args->to.kind != FLOW_NULL && !job->datagram)
		body_durable(body, UINT64_MAX);
	if (body->transforms && flow_transforms_why(body->transforms)[0])
		snprintf(job->why, sizeof(job->why), "%s", flow_transforms_why(body->transforms));
	flow_transforms_close(body->transforms);
	return ret;
}

static void body_store(struct job *job, struct body *body)
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
	body->job = job;
	if (job->link || job->datagram)
		snprintf(name, sizeof(name), "%s", stream_name(job));
	else if (!body_name(job, name, sizeof(name))) {
		body_refused(job, source, "the name", -ENAMETOOLONG);
		return;
	}
	job->bodies_begun++;
	number_advance(job);
	ret = body_sink_open(body, name, &sink);
	if (ret) {
		body_refused(job, source, name, ret);
		return;
	}
	ret = body_run(body, source, sink, &bytes);
	if (job->link)
		flow_link_stats(job->link, &job->link_stats);
	if (ret) {
		body_failed(job, name, ret);
		return;
	}
	job->bodies_stored++;
	if (job->base.args->to.kind != FLOW_NULL && !job->base.args->quiet)
		fprintf(stderr, "stored %s, %llu bytes\n", name, (unsigned long long)bytes);
}

/* Starts taking packets; to RDMA, not before a receiver has connected. */
static int taking_start(struct job *job)
{
	const struct flow_args *args = job->base.args;
	const struct flow_link_opts link = {.sends = true,
		.record_bytes = payloads(args) && !job->resized ? STREAM_RECORD_BYTES : 0,
		.unit = piece_unit(job),
		.bytes_total = UINT64_MAX,
		.acknowledged = link_acknowledged,
		.delivered = link_delivered,
		.failed = link_failed,
		.arg = job};
	const struct flow_datagram_opts datagrams = {
		.sends = true, .failed = link_failed, .arg = job};
	int ret = 0;

	if (job->taking)
		return 0;
	if (args->to.kind == FLOW_RDMA)
		ret = flow_link_for(
			job->base.fabric_to, &args->to, &link, &job->listener, &job->link);
	if (flow_end_is_datagrams(&args->to))
		ret = flow_datagram_for(job->base.fabric_to, &args->to, &datagrams, &job->datagram);
	if (ret)
		return ret;
	job->taking = true;
	ret = xp_rules_set(job->port, args->xdp.rules, args->xdp.rule_count);
	if (ret)
		fprintf(stderr, "nebulaio flow: %s\n", strerror(-ret));
	fprintf(stderr, "receiving on %s, %s\n", args->xdp.interface,
		xp_mode_name(xp_mode(job->port)));
	return ret;
}

static void job_end(struct job *job)
{
	flow_link_close(job->link);
	flow_datagram_close(job->datagram);
	job->link = NULL;
	job->datagram = NULL;
	flow_base_end(&job->base);
	job->over = true;
	job->end_ns = clock_now_ns();
	if (job->reporter)
		fiber_wake(job->reporter);
	reactor_stop(job->base.reactor);
}

static void fiber_end(struct job *job)
{
	if (--job->bodies_running == 0)
		job_end(job);
}

/* No packet came. */
static void stream_end(struct job *job)
{
	int ret = flow_sink_finish(stream_sink(job), false);

	if (ret)
		body_failed(job, stream_name(job), ret);
}

static void capture_failed(struct job *job, int error)
{
	const struct flow_transforms *transforms = job->packet_transforms;

	if (transforms && flow_transforms_why(transforms)[0])
		fprintf(stderr, "nebulaio flow: %s; all earlier packets are stored\n",
			flow_transforms_why(transforms));
	else
		fprintf(stderr,
			"nebulaio flow: the interface %s is gone; all earlier packets are stored\n",
			job->base.args->xdp.interface);
	job->exit_code = error == -EBADMSG ? CLI_DAMAGED : CLI_FAILED;
}

static void body_main(void *arg)
{
	struct job *job = arg;
	struct body *body = NULL;
	int ret = job->taking ? 0 : name_look(job);

	if (ret)
		body_failed(job, name_pattern(job->base.args), ret);
	else
		ret = taking_start(job);
	if (ret) {
		job->exit_code = ret == -ECONNREFUSED ? CLI_UNREACHABLE : CLI_FAILED;
		fiber_end(job);
		return;
	}
	ret = flow_capture_wait(job->capture);
	if (ret == 0 && (job->link || job->datagram) && !job->bodies_begun)
		stream_end(job);
	if (ret == 1)
		body = calloc(1, sizeof(*body));
	if (ret == 1 && !body)
		body_failed(job, "the next body", -ENOMEM);
	else if (ret == 1)
		body_store(job, body);
	free(body);
	if (ret < 0)
		capture_failed(job, ret);
	fiber_end(job);
}

/* Starts the next body at once, while the last one becomes durable. */
static void body_spawn(void *arg)
{
	struct job *job = arg;

	job->bodies_running++;
	if (fiber_spawn(job->base.reactor, "body", body_main, job) == 0)
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
	uint64_t due_ns = job->base.start_ns, last_ns = job->base.start_ns;

	job->reporter = fiber_self();
	while (!job->over) {
		due_ns += NS_PER_S;
		while (!job->over && fiber_park_until(due_ns) == 0)
			;
		if (job->over)
			break;
		flow_capture_stats(job->capture, &now);
		status_tell(job, &now);
		if (!job->base.args->quiet)
			report_line(job, &now, &last,
				(double)(clock_now_ns() - last_ns) / (double)NS_PER_S);
		last = now;
		last_ns = clock_now_ns();
	}
	job->reporter = NULL;
}

/* Which clock gave the capture's times. */
static const char *times_text(const struct flow_capture_stats *stats, char buf[64])
{
	if (!stats->stamped || stats->stamped == stats->packets)
		return stats->stamped ? "the card" : "the kernel";
	snprintf(buf, 64, "the card for %llu, the kernel for the others",
		(unsigned long long)stats->stamped);
	return buf;
}

static void unfit_line(const struct job *job, uint64_t unfit)
{
	fprintf(stderr, "%llu packets were not stored: each must ", (unsigned long long)unfit);
	if (!payloads(job->base.args))
		fprintf(stderr, job->packet_transforms ? "lie in one frame\n" : "be whole\n");
	else if (job->resized)
		fprintf(stderr, "lie in one frame and be a UDP datagram with a payload\n");
	else
		fprintf(stderr,
			"be an untagged IPv4 packet without options, with a UDP payload of a "
			"multiple of %u bytes\n",
			XP_PAYLOAD_OFFSET);
}

static void summary(const struct job *job)
{
	struct flow_capture_stats stats;
	double seconds = (double)(job->end_ns - job->base.start_ns) / (double)NS_PER_S;
	uint64_t copied = region_copy_bytes_all();
	const char *transport = job->base.client ? flow_s3_transport(job->base.client) : "none";
	uint64_t client_copied = job->base.client ? flow_s3_copied(job->base.client) : 0;
	char total[32], copies[32], times[64];

	flow_capture_stats(job->capture, &stats);
	status_tell(job, &stats);
	if (job->base.args->json) {
		printf("{");
		flow_took_json(&job->base);
		printf("\"packets\":%llu,\"packet_bytes\":%llu,\"body_bytes\":%llu,\"bodies\":%u,"
		       "\"lost\":%llu,\"unfit\":%llu,\"removed\":%llu,"
		       "\"seconds\":%.3f,\"cpu_seconds\":%.3f,"
		       "\"copied_bytes\":%llu,\"client_copied_bytes\":%llu,\"transport\":\"%s\","
		       "\"mode\":\"%s\",\"hardware_times\":%llu,\"acknowledged\":%llu,"
		       "\"records_out\":%llu,"
		       "\"crc64nvme_out\":\"%016llx\"}\n",
			(unsigned long long)stats.packets, (unsigned long long)stats.packet_bytes,
			(unsigned long long)stats.body_bytes, job->bodies_stored,
			(unsigned long long)stats.lost, (unsigned long long)stats.unfit,
			(unsigned long long)stats.removed, seconds,
			flow_cpu_seconds() - job->base.start_cpu_seconds,
			(unsigned long long)copied, (unsigned long long)client_copied, transport,
			xp_mode_name(xp_mode(job->port)), (unsigned long long)stats.stamped,
			(unsigned long long)job->link_stats.acknowledged,
			(unsigned long long)job->link_stats.records,
			(unsigned long long)job->link_stats.crc64nvme);
		(void)fflush(stdout); /* whole, before what standard error has */
	}
	fprintf(stderr,
		"%llu packets, %s, in %u bodies, %.1f s; lost %llu; %s, times by %s; %s "
		"copied by this process\n",
		(unsigned long long)stats.packets, remote_bytes_text(stats.packet_bytes, total),
		job->bodies_stored, seconds, (unsigned long long)stats.lost,
		xp_mode_name(xp_mode(job->port)), times_text(&stats, times),
		remote_bytes_text(copied + client_copied, copies));
	flow_took_lines(&job->base);
	if (stats.removed)
		fprintf(stderr, "%llu packets were dropped by transforms\n",
			(unsigned long long)stats.removed);
	if (stats.unfit)
		unfit_line(job, stats.unfit);
}

/* ---- Start and end. ---- */

static int port_open(struct job *job)
{
	struct flow_args *args = job->base.args;
	struct xp_opts opts = args->xdp.port;
	int ret;

	opts.interface = args->xdp.interface;
	ret = xp_open(job->base.region, &opts, &job->port);
	if (ret == -ENODEV)
		return CLI_NOT_FOUND;
	if (ret == -EPERM)
		return CLI_DENIED;
	if (ret == -EINVAL)
		return CLI_USAGE;
	if (ret)
		return CLI_FAILED;
	if (args->xdp.hardware_time && !xp_asks_hardware_time(job->port)) {
		fprintf(stderr,
			"nebulaio flow: %s has no hardware timestamps: they need Linux 6.3, a "
			"driver that reports them, and a build with -Dhardware_times=true\n",
			args->xdp.interface);
		return CLI_FAILED;
	}
	return CLI_OK;
}

static int devices_open(struct job *job, struct flow_args *args)
{
	const struct xp_opts *port = &args->xdp.port;
	const uint64_t ring_entries =
		port->ring_entries ? port->ring_entries : XP_RING_ENTRIES_DEFAULT;
	/* A capture may sleep: the rings hold the packets that come meanwhile. */
	int ret = flow_base_open(&job->base, args,
		ring_entries * FRAME_BYTES * MAX(port->queue_count, 1u), NS_PER_US);

	return ret ? ret : port_open(job);
}

static int capture_open(struct job *job)
{
	const struct flow_args *args = job->base.args;
	const struct flow_capture_opts opts = {
		.form = payloads(args) ? FLOW_CAPTURE_PAYLOAD : FLOW_CAPTURE_PCAPNG,
		.interface = args->xdp.interface,
		.payload_unit = job->resized ? 1 : XP_PAYLOAD_OFFSET,
		.transforms = job->packet_transforms,
		.roll_bytes = args->roll_bytes,
		.roll_ns = args->roll_seconds * NS_PER_S,
		.kernel_time = args->xdp.kernel_time,
		.packets_max = args->count,
		.deadline_ns =
			args->seconds ? clock_now_ns() + args->seconds * NS_PER_S : DEADLINE_NONE,
		.body_ended = flow_end_has_fabric(&args->to) || job->base.volume_to.disk
				      ? NULL
				      : body_spawn,
		.arg = job,
	};
	int ret = flow_capture_open(&job->base.core, job->port, &opts, &job->capture);

	job->base.on.end = end_asked;
	job->base.on.reload = rules_reload;
	job->base.on.report = report_now;
	job->base.on.arg = job;
	if (!ret)
		ret = flow_base_signals(&job->base);
	if (ret)
		fprintf(stderr, "nebulaio flow: %s\n", strerror(-ret));
	return ret ? CLI_FAILED : CLI_OK;
}

/* Opens the transforms of packets, and tries those of bytes. */
static int transforms_open(struct job *job, const struct flow_args *args)
{
	struct flow_transforms *tried;
	uint32_t packets = 0;
	bool of_packets = true;
	int ret = 0;

	while (!ret && of_packets && packets < args->transform_count) {
		ret = flow_transform_of_packets(args->transforms[packets], &of_packets, job->why);
		packets += !ret && of_packets;
	}
	if (!ret && packets)
		ret = flow_transforms_open(
			args->transforms, packets, &job->packet_transforms, job->why);
	job->texts = &args->transforms[packets];
	job->text_count = args->transform_count - packets;
	if (!ret && job->text_count) {
		ret = flow_transforms_open(job->texts, job->text_count, &tried, job->why);
		job->resized = !ret && !flow_transforms_same_length(tried);
		if (!ret)
			flow_transforms_close(tried);
	}
	if (ret)
		fprintf(stderr, "nebulaio flow: --transform: %s\n", job->why);
	return ret ? CLI_USAGE : CLI_OK;
}

static void run(struct job *job)
{
	job->base.start_ns = clock_now_ns();
	job->base.start_cpu_seconds = flow_cpu_seconds();
	body_spawn(job);
	fiber_spawn(job->base.reactor, "report", report_main, job);
	reactor_run(job->base.reactor);
	summary(job);
}

int flow_capture_run(struct flow_args *args)
{
	static struct job job;
	int ret = transforms_open(&job, args);

	if (!ret)
		ret = devices_open(&job, args);
	if (!ret)
		ret = capture_open(&job);
	if (!ret) {
		run(&job);
		ret = job.exit_code;
	}
	flow_capture_close(job.capture);
	flow_transforms_close(job.packet_transforms);
	xp_close(job.port);
	flow_base_close(&job.base);
	return ret;
}
