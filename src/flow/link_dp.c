/* flow/link_dp.c: records and controls of streams. Receives are posted ahead, in order, as far as
 * frames are available; messages are sent as credits allow. Completions are callbacks on the
 * reactor's thread, and wake the fiber that runs the flow. Data path. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "flow/link_priv.h"

static struct region_sge sge_of(const struct flow_link *link, const void *data, uint32_t bytes)
{
	int arena = region_arena_of(link->core->region, data, bytes);

	CHECK(arena >= 0);
	return (struct region_sge){
		(uint64_t)(uintptr_t)data, bytes, link->fabric->arenas.lkeys[(uint32_t)arena]};
}

/* ---- The receiver: controls out. ---- */

/* Whether the sender waits for credits, or so many are new that a control is worth it. */
static bool grant_due(const struct flow_link *link)
{
	return link->posted - link->told >= link->window / 2 ||
	       (link->told == link->taken && link->posted != link->told) ||
	       link->acknowledged != link->acknowledged_told;
}

static void note_out_done(struct flow_io *io)
{
	struct link_note *note = CONTAINER_OF(io, struct link_note, io);
	struct flow_link *link = note->link;

	note->posted = false;
	if (io->error)
		link_fail(link, -EPIPE, "the peer is gone");
	else if (!link->opts.sends && !link->ended && grant_due(link))
		link_grant(link);
	link_wake(link);
}

static bool control_say(struct flow_link *link, const struct link_control *control)
{
	struct link_note *note = &link->note_out;
	struct region_wr wr = {.opcode = REGION_OP_SEND_IMM,
		.target = link->target,
		.sge_count = 1,
		.imm = LINK_IMM_CONTROL};

	if (note->posted || link->error || link->phase != LINK_OPEN)
		return false;
	*note->text = *control;
	note->io = (struct flow_io){.done = note_out_done};
	wr.sge[0] = sge_of(link, note->text, sizeof(*note->text));
	if (flow_io_try_wr(link->core, &note->io, &wr))
		return false;
	note->posted = true;
	link->said_ns = clock_now_ns();
	return true;
}

bool link_grant(struct flow_link *link)
{
	const struct link_control grant = {.magic = LINK_MAGIC,
		.kind = LINK_GRANT,
		.granted = link->posted,
		.records = link->records,
		.bytes = link->acknowledged};

	if (!control_say(link, &grant))
		return false;
	link->told = link->posted;
	link->acknowledged_told = link->acknowledged;
	return true;
}

bool link_done_say(struct flow_link *link, uint16_t status, const char *why)
{
	struct link_control done = {.magic = LINK_MAGIC,
		.kind = LINK_DONE,
		.status = status,
		.granted = link->posted,
		.records = link->records,
		.bytes = link->acknowledged,
		.crc = link->crc};

	snprintf(done.why, sizeof(done.why), "%s", why);
	return control_say(link, &done);
}

void flow_link_acknowledge(struct flow_link *link, uint64_t bytes)
{
	link->acknowledged = bytes;
	link_grant(link);
}

/* ---- The receiver: records in. ---- */

static void recv_done(struct flow_io *io)
{
	struct link_recv *recv = CONTAINER_OF(io, struct link_recv, io);
	struct flow_link *link = recv->link;

	if (io->error || link->phase == LINK_CLOSED) {
		link_fail(link, -EPIPE, "the stream broke off");
		return;
	}
	link->heard_ns = clock_now_ns();
	recv->bytes = (uint32_t)io->result;
	recv->control = io->imm == LINK_IMM_CONTROL;
	recv->arrived = true;
	recv->arrived_ns = link->heard_ns;
	link_wake(link);
}

static int recv_post(struct flow_link *link, bool wait)
{
	struct link_recv *recv = &link->recvs[link->posted % link->window];
	const uint32_t frames = link->record_bytes / FRAME_BYTES;
	struct flow_core *core = link->core;
	struct region_wr wr = {.opcode = REGION_OP_RECV, .target = link->target, .sge_count = 1};
	const struct flow_want want = {.frame_count = frames,
		.owner = OWNER_RDMA,
		.begun = true,
		.deadline_ns = DEADLINE_NONE};
	int ret;

	ret = wait ? flow_lease(core, &want, &recv->span)
		   : flow_lease_spare(core, &want, &recv->span);
	if (ret)
		return wait && ret == -ENOBUFS ? -ETIMEDOUT : ret;
	recv->link = link;
	recv->io = (struct flow_io){.done = recv_done};
	recv->arrived = false;
	wr.sge[0] = sge_of(link, recv->span.data, link->record_bytes);
	ret = flow_io_try_wr(core, &recv->io, &wr);
	if (ret) {
		region_give(core->region, recv->span, OWNER_RDMA);
		recv->span.data = NULL;
		return ret;
	}
	link->posted++;
	return 0;
}

/* Posts as many receives as frames are free; wait: at least one. */
int link_recvs_fill(struct flow_link *link, bool wait)
{
	int ret = 0;

	while (link->posted - link->taken < link->window && !ret)
		ret = recv_post(link, wait && link->posted == link->taken);
	return ret == -ENOBUFS || ret == -EAGAIN ? 0 : ret;
}

static void end_take(struct flow_link *link, const struct link_recv *recv)
{
	struct link_control end;

	if (link_control_decode(recv->span.data, recv->bytes, &end) || end.kind != LINK_END) {
		link_fail(link, -EPROTO, "the peer sent a malformed control");
		return;
	}
	link->ended = true;
	if (end.status != LINK_GOOD) {
		link->end_error = -EPIPE;
		snprintf(link->why, sizeof(link->why), "the sender failed%s%s",
			end.why[0] ? ": " : "", end.why);
	} else if (end.records != link->records || end.bytes != link->bytes ||
		   end.crc != link->crc) {
		link->end_error = -EBADMSG;
		snprintf(link->why, sizeof(link->why), "the totals or checksums differ");
	}
}

/* 1: it is a piece of the stream; 0: it was the end; -errno. */
static int record_take(struct flow_link *link, struct link_recv *recv, struct flow_piece *ret_piece)
{
	struct flow_core *core = link->core;
	bool last_was_odd = link->bytes % link->opts.unit != 0;

	link->taken++;
	if (recv->control) {
		end_take(link, recv);
	} else if (recv->bytes == 0 || last_was_odd) {
		link_fail(link, -EPROTO, "the peer sent a record of a wrong length");
	} else {
		region_switch(core->region, recv->span, OWNER_RDMA, OWNER_APP);
		*ret_piece = (struct flow_piece){.span = recv->span,
			.data = recv->span.data,
			.bytes = recv->bytes,
			.offset = link->bytes,
			.hold = FLOW_HOLD_LEASE};
		recv->span.data = NULL;
		link->source.arrived_ns = recv->arrived_ns;
		link->records++;
		link->bytes += recv->bytes;
		link->crc = crc64nvme_update(link->crc, ret_piece->data, recv->bytes);
		return 1;
	}
	region_give(core->region, recv->span, OWNER_RDMA);
	recv->span.data = NULL;
	return link->ended ? link->end_error : link->error;
}

static int link_next(struct flow_source *source, uint32_t bytes_max, struct flow_piece *ret_piece)
{
	struct flow_link *link = CONTAINER_OF(source, struct flow_link, source);
	int ret = 0;

	CHECK(bytes_max >= link->record_bytes);
	link->waiter = fiber_self();
	while (!ret && !link->ended) {
		struct link_recv *recv = &link->recvs[link->taken % link->window];

		if (link->taken != link->posted && recv->arrived) {
			ret = record_take(link, recv, ret_piece);
			continue;
		}
		ret = link->interrupted ? -ECANCELED : link->error;
		if (!ret)
			ret = link_recvs_fill(link, true);
		if (grant_due(link))
			link_grant(link);
		recv = &link->recvs[link->taken % link->window];
		if (!ret && !(link->taken != link->posted && recv->arrived))
			fiber_park();
	}
	link->waiter = NULL;
	if (ret > 0) {
		link_recvs_fill(link, false);
		if (grant_due(link))
			link_grant(link);
	}
	return ret;
}

/* The link outlives the run. */
static void link_source_close(struct flow_source *source)
{
	(void)source;
}

const struct flow_source_ops LINK_SOURCE_OPS = {
	.name = "rdma stream", .next = link_next, .close = link_source_close};

struct flow_source *flow_link_source(struct flow_link *link)
{
	CHECK(!link->opts.sends);
	link->source.bytes_total = link->bytes_total;
	return &link->source;
}

/* ---- The sender: controls in. ---- */

static int note_post(struct link_note *note);

static void control_heard(struct flow_link *link, const struct link_control *control)
{
	link->granted = control->granted;
	if (control->bytes > link->acknowledged && control->bytes <= link->bytes) {
		link->acknowledged = control->bytes;
		if (link->opts.acknowledged)
			link->opts.acknowledged(link->opts.arg, link->acknowledged);
	}
	if (control->kind == LINK_DONE) {
		link->done_heard = true;
		link->done = *control;
		/* The receiver posts no more receives: outstanding messages would wait for ever. */
		if (!link->end_queued)
			link_fail(link, -EPIPE, "");
	}
	link_pump(link);
	link_wake(link);
}

static void note_in_done(struct flow_io *io)
{
	struct link_note *note = CONTAINER_OF(io, struct link_note, io);
	struct flow_link *link = note->link;
	struct link_control control;

	note->posted = false;
	if (io->error || link->phase == LINK_CLOSED) {
		link_fail(link, -EPIPE, "the peer is gone");
		return;
	}
	if (io->imm != LINK_IMM_CONTROL ||
		link_control_decode(note->text, (uint32_t)io->result, &control) ||
		control.kind == LINK_END || control.granted - link->started > LINK_CREDITS_MAX) {
		link_fail(link, -EPROTO, "the peer sent a malformed control");
		return;
	}
	link->heard_ns = clock_now_ns();
	if (note_post(note))
		link_fail(link, -EIO, "a receive could not be posted");
	else
		control_heard(link, &control);
}

static int note_post(struct link_note *note)
{
	struct flow_link *link = note->link;
	struct region_wr wr = {.opcode = REGION_OP_RECV, .target = link->target, .sge_count = 1};
	int ret;

	note->io = (struct flow_io){.done = note_in_done};
	wr.sge[0] = sge_of(link, note->text, sizeof(*note->text));
	ret = flow_io_try_wr(link->core, &note->io, &wr);
	note->posted = ret == 0;
	return ret;
}

int link_notes_post(struct flow_link *link)
{
	int ret = 0;

	for (uint32_t i = 0; i < LINK_CONTROL_RECEIVES && !ret; i++)
		ret = note_post(&link->notes_in[i]);
	return ret;
}

/* ---- The sender: records out. ---- */

static void send_pieces_end(struct link_send *send)
{
	for (uint32_t i = 0; i < send->piece_count; i++)
		flow_piece_end(send->link->core, &send->pieces[i], OWNER_RDMA);
	send->piece_count = 0;
}

/* A completed message is in the peer's memory; messages complete in order. */
static void send_delivered(struct flow_link *link, const struct link_send *send)
{
	if (send->control)
		return;
	link->delivered += send->bytes;
	if (link->opts.delivered)
		link->opts.delivered(link->opts.arg, link->delivered);
}

static void send_done(struct flow_io *io)
{
	struct link_send *send = CONTAINER_OF(io, struct link_send, io);
	struct flow_link *link = send->link;

	send_pieces_end(send);
	link->completed++;
	if (io->error) {
		link_fail(link, -EPIPE, "the peer is gone");
	} else {
		send_delivered(link, send);
		link_pump(link);
	}
	link_wake(link);
}

static int send_start(struct flow_link *link, struct link_send *send)
{
	struct region_wr wr = {.opcode = send->control ? REGION_OP_SEND_IMM : REGION_OP_SEND,
		.target = link->target,
		.sge_count = (uint8_t)send->sge_count,
		.imm = send->control ? LINK_IMM_CONTROL : 0};

	memcpy(wr.sge, send->sges, send->sge_count * sizeof(*send->sges));
	send->io = (struct flow_io){.done = send_done};
	return flow_io_try_wr(link->core, &send->io, &wr);
}

/* A message with room for more is sent as soon as nothing else is in flight. */
static void filling_close(struct flow_link *link)
{
	if (!link->filling)
		return;
	link->filling = false;
	link->records += !link->sends[link->queued % LINK_SENDS_MAX].control;
	link->queued++;
}

void link_pump(struct flow_link *link)
{
	if (!link->opts.sends || link->phase != LINK_OPEN || link->error)
		return;
	if (link->filling && link->completed == link->queued)
		filling_close(link);
	while (link->started != link->queued && (int32_t)(link->granted - link->started) > 0) {
		if (send_start(link, &link->sends[link->started % LINK_SENDS_MAX])) {
			link->fabric->pump_again = true;
			return;
		}
		link->started++;
	}
}

/* An error of the peer or the device that ends the stream. */
static int sender_error(const struct flow_link *link)
{
	if (link->error)
		return link->error;
	return link->done_heard && !link->end_queued ? -EPIPE : 0;
}

/* The message that takes the next bytes; waits for a free place. NULL: the link failed. */
static struct link_send *filling_open(struct flow_link *link)
{
	struct link_send *send;

	while (link->queued - link->completed >= LINK_SENDS_MAX && !sender_error(link))
		fiber_park();
	if (sender_error(link))
		return NULL;
	send = &link->sends[link->queued % LINK_SENDS_MAX];
	if (!link->filling) {
		send->link = link;
		send->sge_count = 0;
		send->piece_count = 0;
		send->bytes = 0;
		send->control = false;
		link->filling = true;
	}
	return send;
}

static void piece_queue(struct flow_link *link, struct flow_piece *piece)
{
	uint32_t at = 0;

	while (at < piece->bytes) {
		struct link_send *send = filling_open(link);
		uint32_t bytes;

		if (!send) {
			/* Runs of it may be in flight in earlier messages, which must end first. */
			while (link->started != link->completed)
				fiber_park();
			flow_piece_end(link->core, piece, OWNER_RDMA);
			return;
		}
		bytes = MIN(piece->bytes - at, link->record_bytes - send->bytes);
		send->sges[send->sge_count++] = sge_of(link, piece->data + at, bytes);
		send->bytes += bytes;
		link->bytes += bytes;
		at += bytes;
		if (at == piece->bytes)
			send->pieces[send->piece_count++] = *piece;
		if (send->bytes == link->record_bytes || send->sge_count == LINK_PIECES_MAX)
			filling_close(link);
		link_pump(link);
	}
}

/* Bytes outside the region and shared ones are not leases and cannot be sent. */
static int link_push(struct flow_sink *sink, struct flow_piece *piece)
{
	struct flow_link *link = CONTAINER_OF(sink, struct flow_link, sink);
	int ret = sender_error(link);

	if (!ret && piece->hold == FLOW_HOLD_BORROWED)
		ret = -EFAULT;
	if (ret) {
		flow_piece_end(sink->core, piece, OWNER_APP);
		return ret;
	}
	link->crc = crc64nvme_update(link->crc, piece->data, piece->bytes);
	if (piece->hold == FLOW_HOLD_LEASE)
		region_switch(sink->core->region, piece->span, OWNER_APP, OWNER_RDMA);
	link->waiter = fiber_self();
	piece_queue(link, piece);
	link->waiter = NULL;
	return sender_error(link);
}

/* ---- The sender: the end. ---- */

static void end_queue(struct flow_link *link, bool failed)
{
	struct link_send *send;

	if (link->filling)
		filling_close(link);
	send = filling_open(link);
	if (!send)
		return;
	*link->note_out.text = (struct link_control){.magic = LINK_MAGIC,
		.kind = LINK_END,
		.status = failed ? LINK_FAILED : LINK_GOOD,
		.records = link->records,
		.bytes = link->bytes,
		.crc = link->crc};
	send->control = true;
	send->sges[send->sge_count++] =
		sge_of(link, link->note_out.text, sizeof(*link->note_out.text));
	link->end_queued = true;
	filling_close(link);
	link_pump(link);
}

static int done_judge(struct flow_link *link)
{
	const struct link_control *done = &link->done;

	if (done->status != LINK_GOOD) {
		snprintf(link->why, sizeof(link->why), "the receiver ended the stream%s%s",
			done->why[0] ? ": " : "", done->why);
		return done->status == LINK_NO_SPACE ? -ENOSPC : -EPIPE;
	}
	if (!link->end_queued || done->records != link->records || done->bytes != link->bytes ||
		done->crc != link->crc) {
		snprintf(link->why, sizeof(link->why), "the receiver's totals differ");
		return -EBADMSG;
	}
	link->acknowledged = done->bytes;
	return 0;
}

/* Drops work that was queued and never started. */
static void queued_drop(struct flow_link *link)
{
	if (link->filling)
		filling_close(link);
	for (; link->started != link->queued; link->started++, link->completed++)
		send_pieces_end(&link->sends[link->started % LINK_SENDS_MAX]);
}

static int link_finish(struct flow_sink *sink, bool failed)
{
	struct flow_link *link = CONTAINER_OF(sink, struct flow_link, sink);
	int ret;

	link->waiter = fiber_self();
	if (!sender_error(link))
		end_queue(link, failed);
	while (!link->error && !link->done_heard)
		fiber_park();
	ret = link->done_heard ? done_judge(link) : link->error;
	link_fail(link, -ECANCELED, ""); /* both ends know the outcome: the connection may end */
	while ((int32_t)(link->started - link->completed) > 0)
		fiber_park();
	queued_drop(link);
	link->waiter = NULL;
	return ret;
}

const struct flow_sink_ops LINK_SINK_OPS = {
	.name = "rdma stream", .push = link_push, .finish = link_finish};

struct flow_sink *flow_link_sink(struct flow_link *link)
{
	CHECK(link->opts.sends);
	return &link->sink;
}

/* ---- The end of a link. ---- */

bool link_idle(const struct flow_link *link)
{
	bool idle = !link->note_out.io.pending;

	for (uint32_t i = 0; i < LINK_CONTROL_RECEIVES; i++)
		idle &= !link->notes_in[i].io.pending;
	for (uint32_t i = 0; link->recvs && i < link->window; i++)
		idle &= !link->recvs[i].io.pending;
	for (uint32_t i = 0; link->sends && i < LINK_SENDS_MAX; i++)
		idle &= !link->sends[i].io.pending;
	return idle;
}

void link_release(struct flow_link *link)
{
	struct region *region = link->core->region;

	for (uint32_t i = 0; link->recvs && i < link->window; i++) {
		if (link->recvs[i].span.data)
			region_give(region, link->recvs[i].span, OWNER_RDMA);
	}
	if (link->sends)
		queued_drop(link);
	if (link->notes_span.data)
		region_give(region, link->notes_span, OWNER_RDMA);
}
