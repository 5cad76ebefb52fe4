/* rdma/simulated/qp_dp.c: the simulated provider's data path: posting, executing, receiving,
 * polling.
 *
 * A send executes in order, at post time when nothing holds it back: its payload goes into slots of
 * the ring to the peer (SEND), or its bytes are moved at once (one-sided, simulated/move_dp.c). A
 * poll receives the records in the rings, acknowledges them, continues sends that had to wait, and
 * retires sends in order. No system call happens here unless the peer sleeps. */
#include <errno.h>
#include <unistd.h>

#include "rdma/simulated/qp_dp.h"

/* A poll reads the peer's control line only after this many spins without a record, and then ever
 * more rarely. Its values ride along with records, and reading the line takes it away from the
 * peer, which then pays for the next write. They are not urgent unless a send must go on or be
 * completed. */
#define SPINS_BEFORE_REFRESH 64u
#define SPINS_UNHURRIED	     2048u
#define SPINS_PER_TALLY	     4096u
#define BUSY_VISITS	     4u
#define POLLS_PER_SWEEP	     64u
#define MESSAGE_LINES	     3u /* of most messages: a request, a small answer */

/* ---- Bells. ---- */

void sim_wake(struct sim_bell *bell, int event_fd)
{
	const uint64_t one = 1;

	if (!atomic_exchange(&bell->armed, 0))
		return;
	/* Fails only when the counter is full, and then the sleeper wakes as well. */
	if (write(event_fd, &one, sizeof(one)) < 0)
		LOG(LOG_TRACE, "rdma", "simulated: eventfd is full");
}

void sim_ring(struct sim_qp *qp)
{
	/* Either the peer sees what we wrote before it sleeps, or we see that it is armed. */
	atomic_thread_fence(memory_order_seq_cst);
	for (uint32_t i = 0; i < qp->bell_count; i++) {
		struct sim_bell_ref *ref = &qp->bells[i];

		if (atomic_load_explicit(&ref->bell->by_bell, memory_order_relaxed)) {
			atomic_fetch_or(&ref->bell->words[ref->bit / 64], 1ull << (ref->bit % 64));
			atomic_fetch_or(&ref->bell->summary, 1ull << (ref->bit / 64));
		}
		if (SIM_UNLIKELY(atomic_load(&ref->bell->armed)))
			sim_wake(ref->bell, ref->event_fd);
	}
}

void sim_cq_push(struct sim_cq *cq, const struct rp_wc *wc)
{
	if (SIM_UNLIKELY(cq->tail - cq->head >= cq->cqe_count)) {
		sim_cq_check(cq);
		sim_cq_overrun(cq);
		return;
	}
	cq->wcs[cq->tail++ & cq->mask] = *wc;
	if (SIM_UNLIKELY(atomic_load_explicit(&cq->bell->armed, memory_order_relaxed)))
		sim_wake(cq->bell, cq->event_fd);
}

/* ---- Values from the peer. ---- */

/* Takes over control values, and ignores values older than those we know. False: they are
 * impossible. */
static bool absorb(struct sim_qp *qp, uint32_t acked, uint32_t posted, uint32_t consumed)
{
	if ((int32_t)(acked - qp->acked) > 0) {
		if ((int32_t)(qp->sent - acked) < 0)
			return false;
		qp->acked = acked;
		qp->retire_due = true;
	}
	if ((int32_t)(consumed - qp->tx_freed) > 0) {
		if ((int32_t)(qp->tx_next - consumed) < 0)
			return false;
		qp->tx_freed = consumed;
	}
	if ((int32_t)(posted - qp->peer_posted) > 0)
		qp->peer_posted = posted;
	return true;
}

/* Reads the peer's control line. */
void sim_refresh(struct sim_qp *qp)
{
	struct sim_side *theirs = qp->theirs;
	uint32_t state = atomic_load_explicit(&theirs->state, memory_order_acquire);
	uint32_t nak = atomic_load_explicit(&theirs->nak, memory_order_acquire);

	if (!absorb(qp, atomic_load_explicit(&theirs->acked, memory_order_acquire),
		    atomic_load_explicit(&theirs->posted, memory_order_relaxed),
		    atomic_load_explicit(&theirs->consumed, memory_order_relaxed))) {
		sim_qp_fail(qp, "the peer's control line is damaged");
		return;
	}
	sanitizer_acquire(qp->pairing);
	qp->peer_srq = state == SIM_SIDE_UP_SRQ;
	qp->retire_due |= nak != 0;
	if (SIM_UNLIKELY(nak))
		qp->nak = nak <= RP_WC_GENERAL_ERR ? nak : RP_WC_GENERAL_ERR;
	if (SIM_UNLIKELY(state == SIM_SIDE_ERROR))
		atomic_store_explicit(&qp->gone, 1, memory_order_relaxed);
}

/* ---- Receiving. ---- */

static void publish_control(struct sim_qp *qp)
{
	sanitizer_release(qp->pairing);
	atomic_store_explicit(&qp->mine->consumed, qp->rx_next, memory_order_relaxed);
	atomic_store_explicit(&qp->mine->acked, qp->rx_acked, memory_order_release);
	sim_ring(qp);
}

/* The current message cannot be received: tells both ends and fails the queue pair. */
static __attribute__((cold)) void refuse(
	struct sim_qp *qp, enum rp_status ours, enum rp_status theirs)
{
	struct rp_wc wc = {
		.wr_id = qp->rx_recv.wr_id,
		.status = ours,
		.opcode = RP_RECV,
		.qpn = qp->base.num,
	};

	qp->rx_busy = false;
	sim_cq_push(qp->recv_cq, &wc);
	sanitizer_release(qp->pairing);
	atomic_store_explicit(&qp->mine->acked, qp->rx_acked, memory_order_release);
	atomic_store_explicit(&qp->mine->nak, theirs, memory_order_release);
	sim_qp_fail(qp, NULL);
}

/* A message waits for the shared receive queue: the next post visits the queue pair again, and the
 * sender counts its retries. */
static __attribute__((cold)) void stall(struct sim_qp *qp)
{
	if (list_empty(&qp->stalled))
		list_push_back(&qp->srq->stalled, &qp->stalled);
	if (!atomic_exchange(&qp->mine->stalled, 1))
		sim_ring(qp);
}

/* UC: whether a message can be received; one that cannot is dropped silently. */
static bool can_receive(const struct sim_qp *qp, uint32_t bytes)
{
	const struct sim_rq *rq = qp->srq ? &qp->srq->rq : &qp->rq;
	const struct sim_recv *recv = &rq->recvs[rq->head & rq->mask];
	uint64_t room = 0;

	if (rq->head == rq->tail)
		return false;
	for (uint32_t i = 0; i < recv->sge_count; i++)
		room += rq->sges[recv->sge_first + i].length;
	return bytes <= room;
}

/* Takes the next posted receive for a message. 0, -EAGAIN: there is none, -EIO: failed. */
static int begin_receive(struct sim_qp *qp)
{
	struct sim_rq *rq = qp->srq ? &qp->srq->rq : &qp->rq;
	const struct sim_recv *recv = &rq->recvs[rq->head & rq->mask];

	if (rq->head == rq->tail) {
		if (qp->srq)
			stall(qp);
		return -EAGAIN;
	}
	sim_rq_check(rq);
	CHECK(!qp->rx_busy);
	CHECK(recv->sge_count <= rq->sge_max);
	if (qp->srq)
		atomic_store_explicit(&qp->mine->stalled, 0, memory_order_relaxed);
	qp->rx_recv = *recv;
	for (uint32_t i = 0; i < recv->sge_count; i++)
		qp->rx_sges[i] = rq->sges[recv->sge_first + i];
	rq->head++;
	qp->rx_busy = true;
	qp->rx_cursor = (struct sim_cursor){0, 0};
	qp->rx_len = 0;
	qp->rx_room = 0;
	for (uint32_t i = 0; i < qp->rx_recv.sge_count; i++) {
		if (!sim_local_ok(qp, &qp->rx_sges[i], RP_ACCESS_LOCAL_WRITE)) {
			refuse(qp, RP_WC_LOC_PROT_ERR, RP_WC_REM_OP_ERR);
			return -EIO;
		}
		qp->rx_room += qp->rx_sges[i].length;
	}
	return 0;
}

static void end_receive(struct sim_qp *qp, const struct sim_slot_head *head)
{
	bool imm_only = head->type == SIM_REC_IMM;
	struct rp_wc wc = {
		.wr_id = qp->rx_recv.wr_id,
		.status = RP_WC_SUCCESS,
		.opcode = imm_only ? RP_RECV_WRITE_IMM : RP_RECV,
		.byte_len = imm_only ? head->total : qp->rx_len,
		.imm = head->imm,
		.has_imm = head->flags & SIM_F_IMM,
		.qpn = qp->base.num,
		.src_qpn = qp->peer_qpn,
	};

	CHECK(qp->rx_busy);
	CHECK(qp->rx_len <= qp->rx_room);
	qp->rx_busy = false;
	if (SIM_LIKELY(qp->base.type == RP_QP_RC))
		qp->rx_acked++;
	sim_cq_push(qp->recv_cq, &wc);
}

static int receive_piece(
	struct sim_qp *qp, const struct sim_slot *slot, const struct sim_slot_head *head)
{
	int err;

	if (SIM_UNLIKELY(qp->base.type == RP_QP_UC) && !qp->rx_busy) {
		if (head->flags & SIM_F_FIRST)
			qp->rx_dropping = !can_receive(qp, head->total);
		if (qp->rx_dropping)
			return 0;
	}
	if (head->len > SIM_SLOT_PAYLOAD_BYTES || !(head->flags & SIM_F_FIRST) != qp->rx_busy) {
		sim_qp_fail(qp, "a damaged message");
		return -EPROTO;
	}
	if (!qp->rx_busy) {
		err = begin_receive(qp);
		if (err)
			return err;
	}
	if (head->len > qp->rx_room - qp->rx_len) {
		refuse(qp, RP_WC_LOC_LEN_ERR, RP_WC_REM_INV_REQ_ERR);
		return -EIO;
	}
	sim_scatter(slot->payload, qp->rx_sges, &qp->rx_cursor, head->len);
	qp->rx_len += head->len;
	if (head->flags & SIM_F_LAST)
		end_receive(qp, head);
	return 0;
}

/* 0: taken; -EAGAIN: must wait; other: the queue pair is in error. */
static int receive_record(
	struct sim_qp *qp, const struct sim_slot *slot, const struct sim_slot_head *head)
{
	int err;

	if (SIM_UNLIKELY(!absorb(qp, head->acked, head->posted, head->consumed))) {
		sim_qp_fail(qp, "a record with damaged control values");
		return -EPROTO;
	}
	switch (head->type) {
	case SIM_REC_SEND:
		return receive_piece(qp, slot, head);
	case SIM_REC_IMM:
		if (qp->rx_busy)
			break;
		if (SIM_UNLIKELY(qp->base.type == RP_QP_UC) && !can_receive(qp, 0))
			return 0;
		err = begin_receive(qp);
		if (!err)
			end_receive(qp, head);
		return err;
	case SIM_REC_ASSIST:
		if (qp->rx_busy)
			break;
		atomic_store_explicit(
			&qp->mine->assist_status, sim_assist_serve(qp), memory_order_relaxed);
		sanitizer_release(qp->pairing);
		atomic_store_explicit(&qp->mine->assisted, ++qp->rx_assisted, memory_order_release);
		return 0;
	default:
		break;
	}
	sim_qp_fail(qp, "a record out of place");
	return -EPROTO;
}

/* Fetches the next record's lines from the peer's cache while this one is put in place. Only for a
 * record that is there: lines that the peer is about to write stay in its cache. */
static inline void fetch_record(const struct sim_qp *qp, uint32_t record)
{
	const struct sim_slot *slot = &qp->rx[record % SIM_SLOTS];

	if (!sim_slot_is_full(qp, slot, record))
		return;
	for (uint32_t line = 1; line < MESSAGE_LINES; line++)
		__builtin_prefetch((const uint8_t *)slot + line * 64);
}

void sim_receive(struct sim_qp *qp)
{
	uint32_t taken = 0;

	while (taken < SIM_SLOTS) {
		struct sim_slot *slot = &qp->rx[qp->rx_next % SIM_SLOTS];
		struct sim_slot_head head;

		if (!sim_slot_is_full(qp, slot, qp->rx_next))
			break;
		fetch_record(qp, qp->rx_next + 1);
		head = slot->head;
		/* From here on only the copy counts, whatever the peer does to the slot. */
		__asm__ volatile("" ::: "memory");
		if (receive_record(qp, slot, &head))
			break;
		qp->rx_next++;
		taken++;
	}
	if (taken)
		publish_control(qp);
}

/* ---- Sending. ---- */

/* Waits for a posted receive at the peer and numbers the message: 0, -EAGAIN or -EIO (failed). */
static int claim_receive(struct sim_qp *qp, struct sim_send *send)
{
	if (send->needs_ack || SIM_UNLIKELY(qp->base.type == RP_QP_UC))
		return 0;
	if (!qp->peer_srq && (int32_t)(qp->peer_posted - qp->sent) <= 0) {
		sim_refresh(qp);
		if (!qp->peer_srq && (int32_t)(qp->peer_posted - qp->sent) <= 0)
			return sim_rnr_step(qp, send);
	}
	send->needs_ack = true;
	send->msn = ++qp->sent;
	return 0;
}

static struct sim_slot *tx_slot_wait(struct sim_qp *qp)
{
	struct sim_slot *slot = sim_tx_slot(qp);

	if (SIM_LIKELY(slot))
		return slot;
	sim_refresh(qp);
	return sim_tx_slot(qp);
}

static int execute_send(struct sim_qp *qp, struct sim_send *send, const struct rp_sge *sges)
{
	int err = claim_receive(qp, send);

	if (err)
		return err;
	do {
		struct sim_slot *slot = tx_slot_wait(qp);
		struct sim_slot_head head = {
			.type = SIM_REC_SEND, .imm = send->imm, .total = send->total};

		if (!slot)
			return -EAGAIN;
		head.len = MIN(send->total - send->offset, SIM_SLOT_PAYLOAD_BYTES);
		sim_gather(slot->payload, sges, &send->cursor, head.len);
		if (!send->asked)
			head.flags |= SIM_F_FIRST;
		send->asked = true;
		send->offset += head.len;
		if (send->offset == send->total)
			head.flags |= SIM_F_LAST;
		if (send->opcode == RP_SEND_IMM)
			head.flags |= SIM_F_IMM;
		sim_tx_publish(qp, slot, head);
	} while (send->offset < send->total);
	qp->tally.sends++;
	qp->tally.bytes += send->total;
	qp->tally.wire_bytes += send->total;
	return 0;
}

/* How a move ended. Refused transfers of UC report no error. */
static int moved_status(const struct sim_qp *qp, struct sim_send *send)
{
	if (SIM_UNLIKELY(qp->base.type == RP_QP_UC))
		send->status = 0;
	return send->status ? -EIO : 0;
}

static int execute_write_imm(struct sim_qp *qp, struct sim_send *send, const struct rp_sge *sges)
{
	struct sim_slot_head head = {.type = SIM_REC_IMM, .imm = send->imm};
	struct sim_slot *slot;
	int err = claim_receive(qp, send);

	if (err)
		return err;
	if (!send->moved) {
		bool refused;

		err = sim_move(qp, send, sges, send->total);
		if (err)
			return err;
		refused = send->status != 0;
		err = moved_status(qp, send);
		if (err || refused)
			return err;
		send->moved = true;
	}
	slot = tx_slot_wait(qp);
	if (!slot)
		return -EAGAIN;
	head.flags = SIM_F_FIRST | SIM_F_LAST | SIM_F_IMM;
	head.total = send->total;
	sim_tx_publish(qp, slot, head);
	return 0;
}

/* The local side of a send, once, when its turn has come. */
static bool begin_send(struct sim_qp *qp, struct sim_send *send, const struct rp_sge *sges)
{
	bool lands_here = send->opcode == RP_READ || send->opcode == RP_CMP_SWAP ||
			  send->opcode == RP_FETCH_ADD;

	send->phase = SIM_BEGUN;
	if (send->flags & RP_SEND_INLINE)
		return true;
	for (uint32_t i = 0; i < send->sge_count; i++) {
		if (!sim_local_ok(qp, &sges[i], lands_here ? RP_ACCESS_LOCAL_WRITE : 0)) {
			send->status = RP_WC_LOC_PROT_ERR;
			return false;
		}
	}
	return true;
}

static int execute_one(struct sim_qp *qp, struct sim_send *send)
{
	const struct rp_sge *sges = &qp->sq_sges[(qp->sq_exec & qp->sq_mask) * qp->sq_sge_max];
	int err;

	CHECK(send->phase != SIM_DONE);
	CHECK(send->offset <= send->total);
	if (send->phase == SIM_QUEUED && !begin_send(qp, send, sges))
		return -EIO;
	if (SIM_UNLIKELY(qp->device->faults.any)) {
		err = sim_fault_step(qp, send);
		if (err)
			return MIN(err, 0);
	}
	if (SIM_UNLIKELY(qp->dgram != NULL))
		return sim_dgram_send(qp, send, sges);
	switch (send->opcode) {
	case RP_SEND:
	case RP_SEND_IMM:
		return execute_send(qp, send, sges);
	case RP_WRITE_IMM:
		return execute_write_imm(qp, send, sges);
	default:
		err = sim_move(qp, send, sges, send->total);
		return err ? err : moved_status(qp, send);
	}
}

void sim_retire(struct sim_qp *qp)
{
	qp->retire_due = false;
	while (qp->sq_head != qp->sq_exec) {
		struct sim_send *send = &qp->sq[qp->sq_head & qp->sq_mask];
		struct rp_wc wc;

		CHECK(send->phase == SIM_DONE);
		if (send->needs_ack && (int32_t)(qp->acked - send->msn) < 0 && !send->status) {
			if (SIM_LIKELY(!qp->nak || send->msn != qp->acked + 1))
				return;
			send->status = (uint8_t)qp->nak;
		}
		qp->sq_head++;
		qp->signaled -= send->flags & RP_SEND_SIGNALED;
		if ((send->flags & RP_SEND_SIGNALED) || send->status) {
			wc = (struct rp_wc){
				.wr_id = send->wr_id,
				.status = send->status,
				.opcode = send->opcode,
				.byte_len = send->total,
				.qpn = qp->base.num,
			};
			sim_cq_push(qp->send_cq, &wc);
		}
		if (SIM_UNLIKELY(send->status)) {
			sim_qp_fail(qp, rp_status_str((enum rp_status)send->status));
			return;
		}
	}
}

/* The peer read the next slot's lines when it was last used; most messages fill three. The peer
 * reads the first one all the time, so requesting that one is of no use. */
static inline void own_next_slot(const struct sim_qp *qp)
{
	const struct sim_slot *slot = &qp->tx[qp->tx_next % SIM_SLOTS];

	for (uint32_t line = 1; line < MESSAGE_LINES; line++)
		sim_own((const uint8_t *)slot + line * 64);
}

/* Continues the send queue and retires completed sends. */
static void sim_execute(struct sim_qp *qp)
{
	qp->timing = false;
	while (qp->sq_exec != qp->sq_tail && !qp->broken) {
		struct sim_send *send = &qp->sq[qp->sq_exec & qp->sq_mask];
		int err = execute_one(qp, send);

		if (err == -EAGAIN)
			break;
		/* A fault, or damage found on the way, may have flushed everything. */
		if (atomic_load_explicit(&qp->state, memory_order_relaxed) != RP_QPS_RTS)
			return;
		send->phase = SIM_DONE;
		qp->sq_exec++;
		qp->broken = err != 0;
	}
	if (qp->bell_due) {
		qp->bell_due = false;
		sim_ring(qp);
		own_next_slot(qp);
	}
	sim_retire(qp);
}

/* Keeps the queue pair among those that the completion queue visits without a bell. */
static void note_busy(struct sim_qp *qp)
{
	bool busy = qp->sq_head != qp->sq_tail;

	if (!qp->send_cq->by_bell)
		return;
	if (!busy)
		list_remove(&qp->busy);
	else if (list_empty(&qp->busy))
		list_push_back(&qp->send_cq->busy, &qp->busy);
}

/* Where the next send goes. An empty queue begins at its first entries again, as a completion queue
 * does. */
static uint32_t next_send(struct sim_qp *qp)
{
	if (qp->sq_head == qp->sq_tail)
		qp->sq_head = qp->sq_exec = qp->sq_tail = 0;
	return qp->sq_tail & qp->sq_mask;
}

static void put_send(struct sim_qp *qp, const struct rp_send_wr *wr, uint32_t total)
{
	uint32_t idx = next_send(qp);
	struct sim_send *send = &qp->sq[idx];
	struct rp_sge *sges = &qp->sq_sges[idx * qp->sq_sge_max];
	uint32_t count = 0;

	*send = (struct sim_send){
		.wr_id = wr->wr_id,
		.remote_addr = wr->remote_addr,
		.compare_add = wr->compare_add,
		.swap = wr->swap,
		.rkey = wr->rkey,
		.imm = wr->imm,
		.total = total,
		.opcode = (uint8_t)wr->opcode,
		.flags = (uint8_t)wr->flags,
	};
	if (SIM_UNLIKELY(qp->base.type == RP_QP_UD)) {
		send->remote_addr = (uintptr_t)wr->ah;
		send->rkey = wr->remote_qpn;
		send->compare_add = wr->remote_qkey;
	}
	for (uint32_t i = 0; i < wr->sge_count; i++) {
		if (wr->sg_list[i].length)
			sges[count++] = wr->sg_list[i];
	}
	if (wr->flags & RP_SEND_INLINE) {
		uint8_t *data = &qp->sq_inline[(size_t)idx * qp->base.cap.max_inline_data];
		struct sim_cursor cursor = {0, 0};

		sim_gather(data, sges, &cursor, total);
		sges[0] = (struct rp_sge){(uintptr_t)data, total, 0};
		count = total ? 1 : 0;
	}
	send->sge_count = (uint8_t)count;
	qp->signaled += wr->flags & RP_SEND_SIGNALED;
	qp->sq_tail++;
	sim_qp_check(qp);
}

/* Operations that only a reliable connection has, and the needs of datagrams. */
static __attribute__((noinline)) bool type_takes(
	const struct sim_qp *qp, const struct rp_send_wr *wr, uint64_t total)
{
	switch (qp->base.type) {
	case RP_QP_UC:
		return wr->opcode <= RP_WRITE_IMM;
	case RP_QP_UD:
		return wr->opcode <= RP_SEND_IMM && wr->ah && total <= SIM_MTU;
	default:
		return wr->opcode == RP_SEND && total >= SIM_FRAME_BYTES_MIN &&
		       total <= SIM_FRAME_BYTES_MAX;
	}
}

/* The bytes of a well-formed request, or -EINVAL. */
static int64_t send_bytes(const struct sim_qp *qp, const struct rp_send_wr *wr)
{
	uint64_t total = 0;
	bool is_atomic = wr->opcode == RP_CMP_SWAP || wr->opcode == RP_FETCH_ADD;

	if (wr->opcode > RP_FETCH_ADD || wr->sge_count > qp->base.cap.max_send_sge ||
		wr->flags > (RP_SEND_FENCE << 1) - 1)
		return -EINVAL;
	for (uint32_t i = 0; i < wr->sge_count; i++)
		total += wr->sg_list[i].length;
	if (total > SIM_MESSAGE_BYTES_MAX)
		return -EINVAL;
	if (SIM_UNLIKELY(qp->base.type != RP_QP_RC) && !type_takes(qp, wr, total))
		return -EINVAL;
	if (is_atomic && (wr->sge_count != 1 || total != 8))
		return -EINVAL;
	if ((wr->flags & RP_SEND_INLINE) &&
		(is_atomic || wr->opcode == RP_READ || total > qp->base.cap.max_inline_data))
		return -EINVAL;
	return (int64_t)total;
}

/* Before a full queue is reported, sends that were acknowledged silently are retired. */
static bool sq_full(struct sim_qp *qp)
{
	if (SIM_LIKELY(qp->sq_tail - qp->sq_head < qp->base.cap.max_send_wr))
		return false;
	if (atomic_load_explicit(&qp->state, memory_order_relaxed) == RP_QPS_RTS && !qp->dgram) {
		sim_refresh(qp);
		sim_retire(qp);
	}
	return qp->sq_tail - qp->sq_head >= qp->base.cap.max_send_wr;
}

int sim_post_send(
	struct rp_qp *base, const struct rp_send_wr *wrs, uint32_t count, uint32_t *ret_posted)
{
	struct sim_qp *qp = CONTAINER_OF(base, struct sim_qp, base);
	uint32_t state = atomic_load_explicit(&qp->state, memory_order_acquire);
	uint32_t posted = 0;
	int err = 0;

	if (SIM_UNLIKELY(state == RP_QPS_INIT)) {
		*ret_posted = 0;
		return -ENOTCONN;
	}
	if (SIM_UNLIKELY(!qp->started && state == RP_QPS_RTS && !qp->dgram))
		sim_qp_start(qp);
	for (; posted < count; posted++) {
		int64_t total = send_bytes(qp, &wrs[posted]);

		err = total < 0 ? (int)total : 0;
		if (!err && SIM_UNLIKELY(sq_full(qp)))
			err = -ENOMEM;
		if (err)
			break;
		put_send(qp, &wrs[posted], (uint32_t)total);
	}
	if (SIM_LIKELY(state == RP_QPS_RTS)) {
		sim_execute(qp);
		note_busy(qp);
	} else {
		sim_qp_fail(qp, NULL);
	}
	*ret_posted = posted;
	return err;
}

/* ---- Posting receives. ---- */

static int put_recvs(
	struct sim_rq *rq, const struct rp_recv_wr *wrs, uint32_t count, uint32_t *ret_posted)
{
	uint32_t posted;

	sim_rq_check(rq);
	*ret_posted = 0;
	for (posted = 0; posted < count; posted++) {
		const struct rp_recv_wr *wr = &wrs[posted];
		struct sim_recv *recv = &rq->recvs[rq->tail & rq->mask];
		uint32_t first = (rq->tail & rq->mask) * rq->sge_max;
		uint32_t used = 0;

		if (wr->sge_count > rq->sge_max)
			return -EINVAL;
		if (rq->tail - rq->head >= rq->wr_max)
			return -ENOMEM;
		for (uint32_t i = 0; i < wr->sge_count; i++) {
			if (wr->sg_list[i].length)
				rq->sges[first + used++] = wr->sg_list[i];
		}
		*recv = (struct sim_recv){wr->wr_id, used, first};
		rq->tail++;
		*ret_posted = posted + 1;
	}
	return 0;
}

int sim_post_recv(
	struct rp_qp *base, const struct rp_recv_wr *wrs, uint32_t count, uint32_t *ret_posted)
{
	struct sim_qp *qp = CONTAINER_OF(base, struct sim_qp, base);
	uint32_t state = atomic_load_explicit(&qp->state, memory_order_acquire);
	int err;

	*ret_posted = 0;
	if (qp->srq)
		return -EINVAL;
	err = put_recvs(&qp->rq, wrs, count, ret_posted);
	if (SIM_UNLIKELY(state == RP_QPS_ERR)) {
		sim_qp_fail(qp, NULL);
		return err;
	}
	if (SIM_LIKELY(qp->started)) {
		/* At once: a sender may be waiting for just this, and we may not poll again. */
		atomic_store_explicit(&qp->mine->posted, qp->rq.tail, memory_order_release);
		sim_ring(qp);
	} else if (state == RP_QPS_RTS && !qp->dgram) {
		sim_qp_start(qp);
	}
	return err;
}

int sim_srq_post(
	struct rp_srq *base, const struct rp_recv_wr *wrs, uint32_t count, uint32_t *ret_posted)
{
	struct sim_srq *srq = CONTAINER_OF(base, struct sim_srq, base);
	int err = put_recvs(&srq->rq, wrs, count, ret_posted);
	struct list *link;

	while (*ret_posted && (link = list_pop(&srq->stalled)))
		sim_qp_kick(CONTAINER_OF(link, struct sim_qp, stalled));
	return err;
}

/* ---- Polling. ---- */

static __attribute__((noinline)) void visit_slow(struct sim_qp *qp)
{
	sim_refresh(qp);
	if (!(qp->spins % SPINS_PER_TALLY))
		sim_tally_flush(qp);
}

/* The message at the head may have met an empty shared receive queue: that wait has its limit. */
static __attribute__((cold)) void await_shared_queue(struct sim_qp *qp)
{
	struct sim_send *send = &qp->sq[qp->sq_head & qp->sq_mask];

	if (qp->rnr_retry_count == 7 || !send->needs_ack ||
		!atomic_load_explicit(&qp->theirs->stalled, memory_order_relaxed) ||
		sim_rnr_step(qp, send) != -EIO)
		return;
	if (qp->sq_head == qp->sq_exec) {
		send->phase = SIM_DONE;
		qp->sq_exec++;
	}
	qp->broken = true;
	sim_execute(qp);
}

static inline bool refresh_due(const struct sim_qp *qp)
{
	uint32_t spins = qp->spins;

	if (!(spins % SPINS_UNHURRIED))
		return spins != 0;
	/* At 64, 128, 256, ... */
	return !(spins & (spins - 1)) && spins >= SPINS_BEFORE_REFRESH &&
	       (qp->signaled || qp->sq_exec != qp->sq_tail);
}

/* Sends that wait for a time; their sockets are handled elsewhere. */
static __attribute__((noinline)) void visit_dgram(struct sim_qp *qp)
{
	if (atomic_load_explicit(&qp->gone, memory_order_acquire))
		sim_qp_fail(qp, NULL);
	else if (qp->sq_head != qp->sq_tail)
		sim_execute(qp);
}

static inline void visit(struct sim_qp *qp, bool rung)
{
	struct sim_slot *slot;

	if (SIM_UNLIKELY(!qp->started)) {
		if (qp->dgram)
			visit_dgram(qp);
		else if (atomic_load_explicit(&qp->state, memory_order_acquire) == RP_QPS_RTS)
			sim_qp_start(qp);
		return;
	}
	if (SIM_UNLIKELY(atomic_load_explicit(&qp->state, memory_order_relaxed) != RP_QPS_RTS))
		return;
	slot = &qp->rx[qp->rx_next % SIM_SLOTS];
	qp->spins++;
	if (sim_slot_is_full(qp, slot, qp->rx_next)) {
		qp->spins = 0;
		sim_receive(qp);
	}
	if (SIM_UNLIKELY(rung || refresh_due(qp)))
		visit_slow(qp);
	if (qp->sq_exec != qp->sq_tail)
		sim_execute(qp);
	else if (qp->retire_due)
		sim_retire(qp);
	if (SIM_UNLIKELY(qp->peer_srq) && qp->sq_head != qp->sq_tail)
		await_shared_queue(qp);
	if (SIM_UNLIKELY(atomic_load_explicit(&qp->gone, memory_order_acquire)))
		sim_qp_gone(qp);
}

/* Visits the queue pairs that were rung, some that wait, and now and then one more: a peer that
 * clears another peer's bell only delays it. */
static void progress_by_bell(struct sim_cq *cq)
{
	uint64_t words = 0;
	struct list *link;

	if (atomic_load_explicit(&cq->bell->summary, memory_order_relaxed))
		words = atomic_exchange(&cq->bell->summary, 0);
	while (words) {
		uint32_t word = (uint32_t)__builtin_ctzll(words);
		uint64_t bits = atomic_exchange(&cq->bell->words[word], 0);

		words &= words - 1;
		for (; bits; bits &= bits - 1) {
			uint32_t bit = word * 64 + (uint32_t)__builtin_ctzll(bits);
			struct sim_qp *qp = bit < cq->qp_slots ? cq->qps[bit] : NULL;

			if (!qp)
				continue;
			visit(qp, true);
			note_busy(qp);
		}
	}
	for (uint32_t i = 0; i < BUSY_VISITS && (link = list_pop(&cq->busy)); i++) {
		struct sim_qp *qp = CONTAINER_OF(link, struct sim_qp, busy);

		visit(qp, true);
		note_busy(qp);
	}
	if (!(++cq->sweep % POLLS_PER_SWEEP) && cq->qp_slots) {
		struct sim_qp *qp = cq->qps[(cq->sweep / POLLS_PER_SWEEP) % cq->qp_slots];

		if (qp) {
			visit(qp, true);
			note_busy(qp);
		}
	}
}

static inline void progress(struct sim_cq *cq, bool rung)
{
	if (SIM_UNLIKELY(!list_empty(&cq->dgrams)))
		sim_dgram_receive(cq);
	if (cq->by_bell) {
		progress_by_bell(cq);
		return;
	}
	for (uint32_t i = 0; i < cq->qp_slots; i++) {
		if (cq->qps[i])
			visit(cq->qps[i], rung);
	}
}

int sim_cq_poll(struct rp_cq *base, struct rp_wc *wcs, uint32_t max)
{
	struct sim_cq *cq = CONTAINER_OF(base, struct sim_cq, base);
	uint32_t count;

	if (cq->tail - cq->head < max)
		progress(cq, false);
	sim_cq_check(cq);
	count = MIN(cq->tail - cq->head, max);
	for (uint32_t i = 0; i < count; i++)
		wcs[i] = cq->wcs[cq->head++ & cq->mask];
	/* An empty queue begins at its first entries again, which are in the processor's cache: a
	 * large one would take a new line for each completion. */
	if (cq->head == cq->tail)
		cq->head = cq->tail = 0;
	if (SIM_UNLIKELY(cq->overrun) && !count)
		return -EIO;
	return (int)count;
}

static bool anyone_timing(const struct sim_cq *cq)
{
	if (cq->by_bell) {
		LIST_FOR_EACH (link, &cq->busy) {
			if (CONTAINER_OF(link, struct sim_qp, busy)->timing)
				return true;
		}
		return false;
	}
	for (uint32_t i = 0; i < cq->qp_slots; i++) {
		if (cq->qps[i] && cq->qps[i]->timing)
			return true;
	}
	return false;
}

bool sim_cq_arm(struct rp_cq *base)
{
	struct sim_cq *cq = CONTAINER_OF(base, struct sim_cq, base);

	atomic_store(&cq->bell->armed, 1);
	atomic_thread_fence(memory_order_seq_cst);
	if (SIM_UNLIKELY(!list_empty(&cq->dgrams)))
		sim_dgram_arm(cq, true);
	progress(cq, true);
	if (cq->tail == cq->head && !anyone_timing(cq) && !cq->overrun)
		return true;
	sim_cq_disarm(base);
	return false;
}

void sim_cq_disarm(struct rp_cq *base)
{
	struct sim_cq *cq = CONTAINER_OF(base, struct sim_cq, base);
	uint64_t count;

	if (SIM_UNLIKELY(!list_empty(&cq->dgrams)))
		sim_dgram_arm(cq, false);
	/* Already 0: a peer woke us, so its event is in the eventfd, or soon will be: then one wake
	 * is for nothing. */
	if (!atomic_exchange(&cq->bell->armed, 0) && read(cq->event_fd, &count, sizeof(count)) < 0)
		LOG(LOG_TRACE, "rdma", "simulated: the event is yet to come");
}
