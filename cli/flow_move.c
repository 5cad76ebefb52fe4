/* cli/flow_move.c: a run of bytes from any source but packets into any sink, from start to ordered
 * end: one fiber that moves, one that reports. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "flow_cmd.h"

#define RELAY_UNIT  512u /* records are forwarded in multiples of this */
#define FILE_UNIT   512u
#define MEMORY_UNIT FRAME_BYTES

/* Counts the bytes that pass, and ends the flow on request. */
struct gate {
	struct flow_stage stage;
	uint64_t bytes;
	const bool *stop;
};

struct move {
	struct flow_base base;
	struct flow_link *link_in, *link_out;
	struct flow_datagram *datagram_in, *datagram_out;
	struct flow_listener *listener;
	struct flow_checksum sum_in, sum_out;
	struct gate gate_in, gate_out; /* before and behind the transforms */
	bool stop;
	struct flow_transforms *transforms; /* NULL: none */
	char target[1100];
	struct flow_marker marker;
	uint64_t bytes, bytes_out, acknowledged;
	struct flow_link_stats in, out;
	struct flow_datagram_stats dropped; /* of datagram_in */
	char why[FLOW_TRANSFORM_WHY_BYTES];
	struct fiber *reporter;
	uint64_t end_ns;
	uint32_t ends_asked;
	int result;
	bool running, over;
};

static int gate_piece(struct flow_stage *stage, const struct flow_piece *piece)
{
	struct gate *gate = CONTAINER_OF(stage, struct gate, stage);

	if (*gate->stop)
		return -ECANCELED;
	gate->bytes += piece->bytes;
	return 0;
}

static const struct flow_stage_ops GATE_OPS = {.name = "gate", .piece = gate_piece};

/* ---- Tasks during the run. ---- */

/* The sink has failed: ends a source that waits for its peer. */
static void sink_failed(void *arg)
{
	struct move *move = arg;

	if (move->link_in)
		flow_link_interrupt(move->link_in);
	if (move->datagram_in)
		flow_datagram_interrupt(move->datagram_in);
	move->stop = true;
}

static void sink_durable(void *arg, uint64_t bytes)
{
	struct move *move = arg;

	flow_marks_reached(&move->marker.durable, bytes, clock_now_ns());
	/* When transforms change the length, the target's bytes do not tell the source's. */
	if (move->transforms && !flow_transforms_same_length(move->transforms))
		return;
	move->acknowledged = bytes;
	if (move->link_in)
		flow_link_acknowledge(move->link_in, bytes);
}

static void sink_delivered(void *arg, uint64_t bytes)
{
	struct move *move = arg;

	flow_marks_reached(&move->marker.delivered, bytes, clock_now_ns());
}

/* The first request ends the flow in order, the second at once. A sender of datagrams never learns
 * of the end, so the datagrams that have come are stored; another source still has its bytes, or
 * learns from its link which ones are not stored. */
static void end_asked(void *arg)
{
	struct move *move = arg;

	if (move->datagram_in)
		flow_datagram_cut(move->datagram_in);
	else
		move->stop = true;
	if (move->listener)
		flow_link_cancel(move->listener);
	if (move->link_in)
		flow_link_interrupt(move->link_in);
	if (++move->ends_asked > 1 && move->link_out)
		flow_link_stop(move->link_out);
	if (move->ends_asked > 1 && move->link_in)
		flow_link_stop(move->link_in);
}

static void nothing(void *arg)
{
	(void)arg;
}

static void report_line(const struct move *move, uint64_t bytes, double seconds)
{
	char total[32], rate[32], acknowledged[32];

	fprintf(stderr, "%5.0f s  %s  %s/s  acknowledged %s\n",
		(double)(clock_now_ns() - move->base.start_ns) / (double)NS_PER_S,
		remote_bytes_text(move->gate_in.bytes, total),
		remote_bytes_text((uint64_t)((double)bytes / seconds), rate),
		remote_bytes_text(move->acknowledged, acknowledged));
}

static void report_now(void *arg)
{
	const struct move *move = arg;

	report_line(move, move->gate_in.bytes,
		(double)(clock_now_ns() - move->base.start_ns + 1) / (double)NS_PER_S);
}

static void report_main(void *arg)
{
	struct move *move = arg;
	uint64_t due_ns = move->base.start_ns, last_ns = due_ns, last = 0;

	move->reporter = fiber_self();
	while (!move->over) {
		due_ns += NS_PER_S;
		while (!move->over && fiber_park_until(due_ns) == 0)
			;
		if (move->over)
			break;
		flow_status(
			&move->base, &(struct flow_counts){.of[FLOW_BYTES] = move->gate_in.bytes});
		if (!move->base.args->quiet)
			report_line(move, move->gate_in.bytes - last,
				(double)(clock_now_ns() - last_ns) / (double)NS_PER_S);
		last = move->gate_in.bytes;
		last_ns = clock_now_ns();
	}
	move->reporter = NULL;
}

/* ---- Ends. ---- */

static void end_failed(struct move *move, const char *what, int error)
{
	if (error == -EEXIST)
		snprintf(move->why, sizeof(move->why), "%.120s exists already; --force replaces it",
			what);
	else
		snprintf(move->why, sizeof(move->why), "%.120s: %s", what, strerror(-error));
}

static int volume_sink_open(struct move *move, struct flow_sink **ret_sink)
{
	struct flow_volume volume = move->base.volume_to;
	int ret;

	volume.failed = sink_failed;
	volume.sync_bytes = move->base.args->sync_bytes;
	volume.durable = sink_durable;
	volume.arg = move;
	ret = flow_volume_sink_open(&move->base.core, &volume, ret_sink);
	if (ret)
		end_failed(move, move->target, ret);
	return ret;
}

/* Sources whose pieces come from the network, in records. */
static bool has_records(const struct flow_end_spec *from)
{
	return flow_end_has_fabric(from);
}

static int datagram_sink_open(struct move *move, struct flow_sink **ret_sink)
{
	const struct flow_datagram_opts opts = {.sends = true, .failed = sink_failed, .arg = move};
	int ret = flow_datagram_for(
		move->base.fabric_to, &move->base.args->to, &opts, &move->datagram_out);

	if (!ret)
		*ret_sink = flow_datagram_sink(move->datagram_out);
	return ret;
}

static int datagram_source_open(struct move *move, struct flow_source **ret_source)
{
	const struct flow_datagram_opts opts = {0};
	int ret = flow_datagram_for(
		move->base.fabric_from, &move->base.args->from, &opts, &move->datagram_in);

	if (!ret)
		*ret_source = flow_datagram_source(move->datagram_in);
	return ret;
}

static int sink_open(struct move *move, uint64_t bytes_total, struct flow_sink **ret_sink)
{
	struct flow_base *base = &move->base;
	const struct flow_args *args = base->args;
	const struct flow_end_spec *to = &args->to;
	const struct flow_s3_target object = {
		.bucket = to->path, .key = move->target, .replace = args->force, .look = true};
	const struct flow_file_opts file = {.path = move->target,
		.replace = args->force,
		.fixed = base->fixed,
		.unit = has_records(&args->from) ? FILE_UNIT : MEMORY_UNIT,
		.failed = sink_failed,
		.sync_bytes = args->sync_bytes,
		.durable = sink_durable,
		.arg = move};
	const struct flow_link_opts link = {.sends = true,
		.unit = has_records(&args->from) ? RELAY_UNIT : MEMORY_UNIT,
		.bytes_total = bytes_total,
		.acknowledged = sink_durable,
		.delivered = sink_delivered,
		.failed = sink_failed,
		.arg = move};
	int ret;

	switch (to->kind) {
	case FLOW_NULL:
		return flow_null_sink_open(&base->core, ret_sink);
	case FLOW_S3:
		ret = flow_s3_sink_open(base->client, &base->core, &object, ret_sink);
		if (ret)
			end_failed(move, move->target, ret);
		return ret;
	case FLOW_RDMA:
		ret = flow_link_for(base->fabric_to, to, &link, &move->listener, &move->link_out);
		if (!ret)
			*ret_sink = flow_link_sink(move->link_out);
		return ret;
	case FLOW_UD:
	case FLOW_RAW:
		return datagram_sink_open(move, ret_sink);
	default:
		if (base->volume_to.disk)
			return volume_sink_open(move, ret_sink);
		ret = flow_file_sink_open(&base->core, &file, ret_sink);
		if (ret)
			end_failed(move, move->target, ret);
		return ret;
	}
}

static int source_open(struct move *move, struct flow_source **ret_source)
{
	struct flow_base *base = &move->base;
	const struct flow_args *args = base->args;
	const struct flow_end_spec *from = &args->from;
	const struct flow_file_range range = {.path = from->path,
		.fixed = base->fixed,
		.offset = from->offset,
		.bytes = from->bytes};
	const struct flow_link_opts link = {
		.unit = args->to.kind == FLOW_S3 || args->to.kind == FLOW_NULL ? 1 : RELAY_UNIT};
	int ret;

	switch (from->kind) {
	case FLOW_S3:
		ret = flow_s3_source_open(
			base->client, &base->core, from->path, from->key, ret_source);
		if (ret)
			end_failed(move, from->key, ret);
		return ret;
	case FLOW_RDMA:
		ret = flow_link_for(
			base->fabric_from, from, &link, &move->listener, &move->link_in);
		if (!ret)
			*ret_source = flow_link_source(move->link_in);
		return ret;
	case FLOW_UD:
	case FLOW_RAW:
		return datagram_source_open(move, ret_source);
	default:
		ret = base->volume_from.disk
			      ? flow_volume_source_open(&base->core, &base->volume_from, ret_source)
			      : flow_file_source_open(&base->core, &range, ret_source);
		if (ret == -ERANGE)
			snprintf(move->why, sizeof(move->why),
				"%.120s is shorter than offset and bytes", from->path);
		else if (ret)
			end_failed(move, from->path, ret);
		return ret;
	}
}

/* Opens a target before it waits for a peer, so that an error of the target shows at once; but
 * opens it after a source that knows its length. */
static int ends_open(struct move *move, struct flow_source **source, struct flow_sink **sink)
{
	const bool sink_first = has_records(&move->base.args->from);
	int ret = sink_first ? sink_open(move, UINT64_MAX, sink) : source_open(move, source);

	if (ret)
		return ret;
	ret = sink_first ? source_open(move, source)
			 : sink_open(move, (*source)->bytes_total, sink);
	if (ret && sink_first)
		flow_sink_finish(*sink, true);
	else if (ret)
		flow_source_close(*source);
	return ret;
}

/* ---- The run. ---- */

/* Whether the end of a flow means that its target has the bytes. */
static bool stores(const struct flow_end_spec *to)
{
	return to->kind != FLOW_NULL && !flow_end_is_datagrams(to);
}

/* The stages that count and check bytes on each side of the transforms. */
struct sides {
	struct flow_stage *in[4], *out[4];
	uint32_t in_count, out_count;
};

static void sides_set(struct move *move, struct sides *sides)
{
	*sides = (struct sides){.in_count = 0};
	move->gate_in = (struct gate){.stage.ops = &GATE_OPS, .stop = &move->stop};
	move->gate_out = move->gate_in;
	sides->in[sides->in_count++] = &move->gate_in.stage;
	flow_checksum_init(&move->sum_in, CHECKSUM_CRC64NVME);
	flow_checksum_init(&move->sum_out, CHECKSUM_CRC64NVME);
	if (!move->link_in)
		sides->in[sides->in_count++] = &move->sum_in.stage;
	if (!move->transforms) {
		sides->in[sides->in_count++] = &move->marker.stage;
		return;
	}
	sides->out[sides->out_count++] = &move->gate_out.stage;
	sides->out[sides->out_count++] = &move->marker.stage;
	if (!move->link_out)
		sides->out[sides->out_count++] = &move->sum_out.stage;
}

/* The source of the bytes that leave the transforms. */
static int transforms_enter(
	struct move *move, const struct sides *sides, struct flow_source **source)
{
	const struct flow_transform_opts opts = {.stages = sides->in,
		.stage_count = sides->in_count,
		.unit = MEMORY_UNIT,
		.prompt = move->link_in || move->datagram_in};

	return flow_transform_source_open(*source, move->transforms, &opts, source);
}

static void link_leave(struct flow_link **link, struct flow_link_stats *ret_stats)
{
	if (!*link)
		return;
	flow_link_stats(*link, ret_stats);
	flow_link_close(*link);
	*link = NULL;
}

static void why_note(struct move *move)
{
	const struct flow_link *blamed = move->link_in;

	if (move->transforms && flow_transforms_why(move->transforms)[0]) {
		snprintf(move->why, sizeof(move->why), "%s", flow_transforms_why(move->transforms));
		return;
	}
	if (move->link_out && flow_link_why(move->link_out)[0])
		blamed = move->link_out;
	if (move->why[0])
		return;
	if (move->ends_asked && move->result != -EBADMSG)
		snprintf(move->why, sizeof(move->why), "ended by a signal");
	else if (move->datagram_in && flow_datagram_why(move->datagram_in)[0])
		snprintf(move->why, sizeof(move->why), "%.95s: %.130s",
			flow_datagram_name(move->datagram_in),
			flow_datagram_why(move->datagram_in));
	else if (move->datagram_out && flow_datagram_why(move->datagram_out)[0])
		snprintf(move->why, sizeof(move->why), "%.95s: %.130s",
			flow_datagram_name(move->datagram_out),
			flow_datagram_why(move->datagram_out));
	else if (blamed && flow_link_why(blamed)[0])
		snprintf(move->why, sizeof(move->why), "%.63s: %.130s", flow_link_peer(blamed),
			flow_link_why(blamed));
	else
		end_failed(move, move->target, move->result);
}

static int ends_run(struct move *move, struct flow_source *source, struct flow_sink *sink)
{
	struct sides sides;
	int ret;

	sides_set(move, &sides);
	move->base.start_ns = clock_now_ns();
	ret = move->transforms ? transforms_enter(move, &sides, &source) : 0;
	if (ret) {
		flow_sink_finish(sink, true);
		return ret;
	}
	flow_marker_init(&move->marker, source, &move->base.took[FLOW_TOOK_DURABLE],
		&move->base.took[FLOW_TOOK_PEER]);
	if (move->transforms)
		ret = flow_run(source, sides.out, sides.out_count, sink, &move->bytes_out);
	else
		ret = flow_run(source, sides.in, sides.in_count, sink, &move->bytes_out);
	if (!ret && stores(&move->base.args->to))
		flow_marks_reached(&move->marker.durable, UINT64_MAX, clock_now_ns());
	return ret;
}

static void datagrams_leave(struct flow_datagram **datagram, struct flow_datagram_stats *ret_stats)
{
	if (*datagram)
		flow_datagram_stats(*datagram, ret_stats);
	flow_datagram_close(*datagram);
	*datagram = NULL;
}

static void move_bytes(struct move *move)
{
	struct flow_datagram_stats sent = {0};
	struct flow_source *source;
	struct flow_sink *sink;

	move->result = ends_open(move, &source, &sink);
	if (!move->result)
		move->result = ends_run(move, source, sink);
	move->bytes = move->transforms ? move->gate_in.bytes : move->bytes_out;
	if (move->result && (flow_end_has_fabric(&move->base.args->from) ||
				    flow_end_has_fabric(&move->base.args->to)))
		why_note(move);
	if (move->link_in)
		flow_link_end(move->link_in, move->result);
	if (!move->result && !flow_end_is_datagrams(&move->base.args->to))
		move->acknowledged = move->bytes;
	link_leave(&move->link_in, &move->in);
	link_leave(&move->link_out, &move->out);
	datagrams_leave(&move->datagram_in, &move->dropped);
	move->in.records += move->dropped.datagrams;
	datagrams_leave(&move->datagram_out, &sent);
	move->out.records += sent.datagrams;
	/* All that came is stored, but not all that its sender will send. */
	if (!move->result && move->dropped.cut)
		snprintf(move->why, sizeof(move->why), "ended by a signal");
}

static void move_main(void *arg)
{
	struct move *move = arg;

	move_bytes(move);
	if (move->result && !move->why[0])
		why_note(move);
	move->end_ns = clock_now_ns();
	flow_base_end(&move->base);
	move->over = true;
	if (move->reporter)
		fiber_wake(move->reporter);
	reactor_stop(move->base.reactor);
}

/* ---- The summary. ---- */

static const char *kind_name(enum flow_kind kind)
{
	static const char *const NAMES[] = {[FLOW_XDP] = "xdp",
		[FLOW_RDMA] = "rdma",
		[FLOW_DISK] = "disk",
		[FLOW_FILE] = "file",
		[FLOW_S3] = "s3",
		[FLOW_NULL] = "null",
		[FLOW_UD] = "ud",
		[FLOW_RAW] = "raw"};

	return NAMES[kind];
}

static bool succeeded(const struct move *move)
{
	return !move->result && !move->dropped.cut;
}

static void summary_json(const struct move *move, uint64_t crc_in, uint64_t crc_out)
{
	const struct flow_base *base = &move->base;
	const struct flow_args *args = base->args;

	printf("{\"from\":\"%s\",\"to\":\"%s\",\"bytes\":%llu,\"bytes_out\":%llu,"
	       "\"acknowledged\":%llu,\"lost\":%llu,\"late\":%llu,\"strange\":%llu,"
	       "\"records_in\":%llu,\"records_out\":%llu,"
	       "\"crc64nvme_in\":\"%016llx\",\"crc64nvme_out\":\"%016llx\","
	       "\"seconds\":%.3f,\"cpu_seconds\":%.3f,"
	       "\"copied_bytes\":%llu,\"client_copied_bytes\":%llu,\"transport\":\"%s\",",
		kind_name(args->from.kind), kind_name(args->to.kind),
		(unsigned long long)move->bytes, (unsigned long long)move->bytes_out,
		(unsigned long long)move->acknowledged, (unsigned long long)move->dropped.lost,
		(unsigned long long)move->dropped.late, (unsigned long long)move->dropped.strange,
		(unsigned long long)move->in.records, (unsigned long long)move->out.records,
		(unsigned long long)crc_in, (unsigned long long)crc_out,
		(double)(move->end_ns - base->start_ns) / (double)NS_PER_S,
		flow_cpu_seconds() - base->start_cpu_seconds,
		(unsigned long long)region_copy_bytes_all(),
		(unsigned long long)(base->client ? flow_s3_copied(base->client) : 0),
		base->client ? flow_s3_transport(base->client) : "none");
	flow_took_json(base);
	printf("\"error\":");
	if (succeeded(move))
		printf("null");
	else
		remote_print_json(stdout, move->why);
	printf("}\n");
	(void)fflush(stdout); /* whole, before what standard error has */
}

static void summary(const struct move *move)
{
	const struct flow_base *base = &move->base;
	uint64_t crc_in = base->args->from.kind == FLOW_RDMA ? move->in.crc64nvme
							     : move->sum_in.checksum.as.crc;
	uint64_t crc_out = base->args->to.kind == FLOW_RDMA ? move->out.crc64nvme
			   : move->transforms		    ? move->sum_out.checksum.as.crc
							    : crc_in;
	uint64_t copied =
		region_copy_bytes_all() + (base->client ? flow_s3_copied(base->client) : 0);
	double seconds = (double)(move->end_ns - base->start_ns) / (double)NS_PER_S;
	char total[32], copies[32], out[48] = "";

	if (move->bytes_out != move->bytes)
		snprintf(out, sizeof(out), ", %llu bytes out", (unsigned long long)move->bytes_out);
	flow_status(base, &(struct flow_counts){.of[FLOW_BYTES] = move->bytes,
				  .of[FLOW_LOST] = move->dropped.lost,
				  .of[FLOW_BODIES] = !move->result});
	if (base->args->json)
		summary_json(move, crc_in, crc_out);
	fprintf(stderr,
		"%llu bytes (%s)%s, %.1f s; CRC-64/NVME in %016llx, out %016llx; "
		"acknowledged %llu; %s copied by this process\n",
		(unsigned long long)move->bytes, remote_bytes_text(move->bytes, total), out,
		seconds, (unsigned long long)crc_in, (unsigned long long)crc_out,
		(unsigned long long)move->acknowledged, remote_bytes_text(copied, copies));
	if (move->dropped.lost || move->dropped.late || move->dropped.strange)
		fprintf(stderr,
			"datagrams: %llu lost, %llu late or twice, %llu of others or malformed\n",
			(unsigned long long)move->dropped.lost,
			(unsigned long long)move->dropped.late,
			(unsigned long long)move->dropped.strange);
	flow_took_lines(base);
	if (!succeeded(move))
		fprintf(stderr, "nebulaio flow: %s\n", move->why);
}

static int exit_code(const struct move *move)
{
	switch (move->result) {
	case 0:
		return succeeded(move) ? CLI_OK : CLI_FAILED;
	case -ENOENT:
		return CLI_NOT_FOUND;
	case -EACCES:
	case -EPERM:
		return CLI_DENIED;
	case -ECONNREFUSED:
	case -EBUSY:
	case -EHOSTUNREACH:
		return CLI_UNREACHABLE;
	case -EBADMSG:
		return CLI_DAMAGED;
	default:
		return CLI_FAILED;
	}
}

static int run(struct move *move)
{
	struct flow_base *base = &move->base;

	base->start_ns = clock_now_ns();
	base->start_cpu_seconds = flow_cpu_seconds();
	if (fiber_spawn(base->reactor, "move", move_main, move))
		return CLI_FAILED;
	if (!base->args->quiet || base->args->status_fd)
		fiber_spawn(base->reactor, "report", report_main, move);
	reactor_run(base->reactor);
	summary(move);
	return exit_code(move);
}

int flow_move_run(struct flow_args *args)
{
	static struct move move;
	const struct flow_end_spec *to = &args->to;
	char why[FLOW_TRANSFORM_WHY_BYTES];
	int ret;

	if (args->transform_count && flow_transforms_open(args->transforms, args->transform_count,
					     &move.transforms, why)) {
		fprintf(stderr, "nebulaio flow: --transform: %s\n", why);
		return CLI_USAGE;
	}
	if (move.transforms && flow_transforms_of_packets(move.transforms)) {
		fprintf(stderr,
			"nebulaio flow: --transform: %s works on packets: it needs an xdp: "
			"source\n",
			args->transforms[0]);
		flow_transforms_close(move.transforms);
		return CLI_USAGE;
	}
	if (!flow_end_has_fabric(to) && to->kind != FLOW_NULL &&
		!flow_name(to->kind == FLOW_S3 ? to->key : to->path, clock_real_ns(), 1,
			move.target, sizeof(move.target))) {
		fprintf(stderr, "nebulaio flow: the name of the target is too long\n");
		return CLI_USAGE;
	}
	ret = flow_base_open(&move.base, args, 0, 20 * NS_PER_US);
	if (!ret) {
		move.base.on.end = end_asked;
		move.base.on.reload = nothing;
		move.base.on.report = report_now;
		move.base.on.arg = &move;
		if (flow_base_signals(&move.base))
			ret = CLI_FAILED;
	}
	if (!ret)
		ret = run(&move);
	flow_transforms_close(move.transforms);
	flow_base_close(&move.base);
	return ret;
}
