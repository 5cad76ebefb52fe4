/* rdma/simulated/move_dp.c: the simulated provider's one-sided moves: READ, WRITE and atomics.
 *
 * The initiator looks the remote key up in the responder's table and moves the bytes itself: by
 * memcpy within one process or through a mapped file, through the peer's /proc/PID/mem into any
 * other memory, and where that is not permitted by asking the responder, whose poll executes the
 * request from the assist area. While bytes move, the hazard field names the key, so that closing a
 * memory region can wait for moves that had already passed the check. */
#include <errno.h>
#include <sys/uio.h>

#include "rdma/simulated/qp_dp.h"

/* A consistent copy of a table entry. */
struct grant {
	uint64_t addr, bytes, backing_offset;
	uint32_t access, pd, qpn, backing;
};

static bool table_find(const struct sim_entry *table, uint32_t key, struct grant *ret)
{
	const struct sim_entry *entry = &table[sim_key_idx(key)];
	_Atomic uint32_t *entry_key = (_Atomic uint32_t *)(uintptr_t)&entry->key;

	if (!key || atomic_load_explicit(entry_key, memory_order_acquire) != key)
		return false;
	*ret = (struct grant){
		.addr = entry->addr,
		.bytes = entry->bytes,
		.backing_offset = entry->backing_offset,
		.access = entry->access,
		.pd = entry->pd,
		.qpn = entry->qpn,
		.backing = entry->backing,
	};
	__asm__ volatile("" ::: "memory");
	atomic_thread_fence(memory_order_acquire);
	return atomic_load_explicit(entry_key, memory_order_relaxed) == key;
}

/* Whether the key is good on this queue pair of the responder's. */
static bool grant_is_for(const struct grant *grant, uint32_t pd, uint32_t qpn)
{
	return grant->pd == pd && (!grant->qpn || grant->qpn == qpn);
}

static bool grant_covers(const struct grant *grant, uint64_t addr, uint64_t len)
{
	return addr >= grant->addr && len <= grant->bytes &&
	       addr - grant->addr <= grant->bytes - len;
}

bool sim_local_ok(const struct sim_qp *qp, const struct rp_sge *sge, uint32_t access)
{
	struct grant grant;

	return table_find(qp->device->table, sge->lkey, &grant) && grant.pd == qp->pd->num &&
	       (grant.access & access) == access && grant_covers(&grant, sge->addr, sge->length);
}

static uint32_t access_needed(uint8_t opcode)
{
	switch (opcode) {
	case RP_READ:
		return RP_ACCESS_REMOTE_READ;
	case RP_WRITE:
	case RP_WRITE_IMM:
		return RP_ACCESS_REMOTE_WRITE;
	default:
		return RP_ACCESS_REMOTE_ATOMIC;
	}
}

/* Where the remote bytes are in our own address space; NULL when they are not. */
static uint8_t *reach(
	struct sim_qp *qp, const struct grant *grant, uint64_t addr, uint32_t bytes, bool write)
{
	struct sim_peer *peer = qp->peer;
	struct sim_mapping *mapping;
	uint64_t offset;
	uint8_t *base;

	if (peer->same_process)
		return sim_ptr(addr);
	if (!grant->backing)
		return NULL;
	mapping = &peer->mappings[grant->backing % SIM_BACKINGS_MAX];
	base = atomic_load_explicit(&mapping->base, memory_order_acquire);
	if (SIM_UNLIKELY(!base || mapping->backing != grant->backing)) {
		sim_cm_catch_up(qp);
		base = atomic_load_explicit(&mapping->base, memory_order_acquire);
		if (!base || mapping->backing != grant->backing)
			return NULL;
	}
	/* The peer wrote offset and size: they are valid only inside the memory that is really
	 * mapped. */
	if (__builtin_add_overflow(grant->backing_offset, addr - grant->addr, &offset) ||
		offset > mapping->bytes || bytes > mapping->bytes - offset ||
		(write && !mapping->writable))
		return NULL;
	return base + offset;
}

/* ---- Through the kernel. ---- */

/* Moves through the peer's memory as the kernel has it; the result is in send->status. */
static void move_by_kernel(
	struct sim_qp *qp, struct sim_send *send, const struct rp_sge *sges, uint32_t bytes)
{
	struct sim_peer *peer = qp->peer;

	while (send->offset < bytes) {
		struct iovec local[LIMIT_SGE_MAX];
		off_t at = (off_t)(send->remote_addr + send->offset);
		uint32_t count = 0, left = bytes - send->offset, skip = send->cursor.offset;
		struct sim_cursor *cursor = &send->cursor;
		ssize_t moved;

		for (uint32_t i = cursor->idx; left && i < send->sge_count; i++, skip = 0) {
			uint32_t n = MIN(sges[i].length - skip, left);

			local[count++] = (struct iovec){sim_ptr(sges[i].addr) + skip, n};
			left -= n;
		}
		moved = send->opcode == RP_READ ? preadv(peer->mem_fd, local, (int)count, at)
						: pwritev(peer->mem_fd, local, (int)count, at);
		/* 0: that memory is gone: its process ended or executed another program. */
		if (moved <= 0) {
			send->status = moved ? RP_WC_REM_OP_ERR : RP_WC_RETRY_EXC_ERR;
			return;
		}
		send->offset += (uint32_t)moved;
		for (uint32_t n = (uint32_t)moved; n;) {
			uint32_t step = MIN(sges[cursor->idx].length - cursor->offset, n);

			cursor->offset += step;
			n -= step;
			if (cursor->offset == sges[cursor->idx].length)
				*cursor = (struct sim_cursor){cursor->idx + 1, 0};
		}
	}
}

/* ---- With the responder's help. ---- */

static uint32_t assist_op(uint8_t opcode)
{
	switch (opcode) {
	case RP_READ:
		return SIM_ASSIST_READ;
	case RP_CMP_SWAP:
		return SIM_ASSIST_CAS;
	case RP_FETCH_ADD:
		return SIM_ASSIST_ADD;
	default:
		return SIM_ASSIST_WRITE;
	}
}

/* One request at a time, each up to an assist area full. */
static int move_assisted(
	struct sim_qp *qp, struct sim_send *send, const struct rp_sge *sges, uint32_t bytes)
{
	struct sim_assist *area = qp->my_assist;
	struct sim_slot_head head = {.type = SIM_REC_ASSIST};
	uint32_t chunk = MIN(bytes - send->offset, SIM_ASSIST_BYTES);
	struct sim_slot *slot;
	uint32_t status;

	if (send->asked) {
		if (atomic_load_explicit(&qp->theirs->assisted, memory_order_acquire) !=
			qp->assist_asked)
			return -EAGAIN;
		sanitizer_acquire(qp->pairing);
		status = atomic_load_explicit(&qp->theirs->assist_status, memory_order_relaxed);
		send->asked = false;
		if (status) {
			send->status =
				(uint8_t)(status <= RP_WC_GENERAL_ERR ? status : RP_WC_GENERAL_ERR);
			return 0;
		}
		if (send->opcode != RP_WRITE && send->opcode != RP_WRITE_IMM)
			sim_scatter(area->data, sges, &send->cursor, chunk);
		send->offset += chunk;
		chunk = MIN(bytes - send->offset, SIM_ASSIST_BYTES);
		if (!chunk)
			return 0;
	}
	slot = sim_tx_slot(qp);
	if (!slot)
		return -EAGAIN;
	area->head = (struct sim_assist_head){
		.addr = send->remote_addr + send->offset,
		.compare_add = send->compare_add,
		.swap = send->swap,
		.len = chunk,
		.rkey = send->rkey,
		.op = assist_op(send->opcode),
	};
	if (area->head.op == SIM_ASSIST_WRITE)
		sim_gather(area->data, sges, &send->cursor, chunk);
	send->asked = true;
	qp->assist_asked++;
	qp->tally.assists++;
	sim_tx_publish(qp, slot, head);
	return -EAGAIN;
}

static uint64_t atomic_at(uint8_t *at, uint32_t op, uint64_t compare_add, uint64_t swap)
{
	uint64_t *word = (uint64_t *)(void *)at;
	uint64_t old = compare_add;

	if (op == SIM_ASSIST_ADD)
		return __atomic_fetch_add(word, compare_add, __ATOMIC_SEQ_CST);
	__atomic_compare_exchange_n(word, &old, swap, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	return old;
}

enum rp_status sim_assist_serve(struct sim_qp *qp)
{
	static const uint32_t access[] = {
		[SIM_ASSIST_WRITE] = RP_ACCESS_REMOTE_WRITE,
		[SIM_ASSIST_READ] = RP_ACCESS_REMOTE_READ,
		[SIM_ASSIST_CAS] = RP_ACCESS_REMOTE_ATOMIC,
		[SIM_ASSIST_ADD] = RP_ACCESS_REMOTE_ATOMIC,
	};
	struct sim_assist *area = qp->their_assist;
	struct sim_assist_head head = area->head;
	struct grant grant;
	uint64_t old;

	__asm__ volatile("" ::: "memory");
	if (head.op < SIM_ASSIST_WRITE || head.op > SIM_ASSIST_ADD || head.len > SIM_ASSIST_BYTES)
		return RP_WC_REM_INV_REQ_ERR;
	if (!table_find(qp->device->table, head.rkey, &grant) ||
		!grant_is_for(&grant, qp->pd->num, qp->base.num) ||
		!(grant.access & access[head.op]) || !grant_covers(&grant, head.addr, head.len))
		return RP_WC_REM_ACCESS_ERR;
	switch (head.op) {
	case SIM_ASSIST_WRITE:
		memcpy(sim_ptr(head.addr), area->data, head.len);
		break;
	case SIM_ASSIST_READ:
		memcpy(area->data, sim_ptr(head.addr), head.len);
		break;
	default:
		if (head.len != 8 || head.addr % 8)
			return RP_WC_REM_INV_REQ_ERR;
		old = atomic_at(sim_ptr(head.addr), head.op, head.compare_add, head.swap);
		memcpy(area->data, &old, sizeof(old));
		break;
	}
	return RP_WC_SUCCESS;
}

/* ---- All together. ---- */

static void move_mapped(
	struct sim_send *send, const struct rp_sge *sges, uint8_t *at, uint32_t bytes)
{
	uint64_t old;

	switch (send->opcode) {
	case RP_READ:
		sim_scatter(at, sges, &send->cursor, bytes);
		break;
	case RP_WRITE:
	case RP_WRITE_IMM:
		sim_gather(at, sges, &send->cursor, bytes);
		break;
	default:
		old = atomic_at(at, assist_op(send->opcode), send->compare_add, send->swap);
		sim_scatter((const uint8_t *)&old, sges, &send->cursor, sizeof(old));
		break;
	}
}

static void count_move(struct sim_qp *qp, const struct sim_send *send, uint32_t bytes)
{
	if (send->opcode == RP_READ)
		qp->tally.reads++;
	else if (send->opcode == RP_CMP_SWAP || send->opcode == RP_FETCH_ADD)
		qp->tally.atomics++;
	else
		qp->tally.writes++;
	qp->tally.bytes += bytes;
	qp->tally.wire_bytes += bytes;
}

/* Under the hazard: checks the grant and moves. As sim_move(), or -EPERM: the responder must
 * help. */
static int move_direct(
	struct sim_qp *qp, struct sim_send *send, const struct rp_sge *sges, uint32_t bytes)
{
	bool is_atomic = send->opcode == RP_CMP_SWAP || send->opcode == RP_FETCH_ADD;
	struct sim_peer *peer = qp->peer;
	struct grant grant;
	uint8_t *at;

	if (!table_find(peer->table, send->rkey, &grant) ||
		!grant_is_for(&grant, qp->peer_pd, qp->peer_qpn) ||
		!(grant.access & access_needed(send->opcode)) ||
		!grant_covers(&grant, send->remote_addr, send->total)) {
		send->status = RP_WC_REM_ACCESS_ERR;
		return 0;
	}
	if (is_atomic && send->remote_addr % 8) {
		send->status = RP_WC_REM_INV_REQ_ERR;
		return 0;
	}
	if (SIM_UNLIKELY(qp->device->faults.no_direct))
		return -EPERM;
	at = reach(qp, &grant, send->remote_addr, bytes, send->opcode != RP_READ);
	if (SIM_LIKELY(at)) {
		move_mapped(send, sges, at, bytes);
		return 0;
	}
	if (is_atomic || peer->mem_fd < 0)
		return -EPERM;
	move_by_kernel(qp, send, sges, bytes);
	return 0;
}

int sim_move(struct sim_qp *qp, struct sim_send *send, const struct rp_sge *sges, uint32_t bytes)
{
	_Atomic uint32_t *hazard = &qp->mine->hazard;
	int err = 0;

	if (SIM_LIKELY(bytes && !send->assisting)) {
		/* The exchange is the barrier for both: the peer's mr_close waits for the hazard,
		 * our own connection manager for moving. */
		atomic_store_explicit(&qp->moving, 1, memory_order_relaxed);
		atomic_exchange(hazard, send->rkey);
		err = move_direct(qp, send, sges, bytes);
		sanitizer_release(qp->pairing);
		atomic_store_explicit(hazard, 0, memory_order_release);
		atomic_store_explicit(&qp->moving, 0, memory_order_release);
		send->assisting = err == -EPERM;
	}
	if (SIM_UNLIKELY(send->assisting))
		err = move_assisted(qp, send, sges, bytes);
	if (!err && !send->status)
		count_move(qp, send, bytes);
	return err;
}

void sim_move_half(struct sim_qp *qp, struct sim_send *send)
{
	const struct rp_sge *sges = &qp->sq_sges[(qp->sq_exec & qp->sq_mask) * qp->sq_sge_max];

	sim_move(qp, send, sges, send->total / 2);
}
