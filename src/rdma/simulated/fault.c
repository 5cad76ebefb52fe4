/* rdma/simulated/fault.c: the simulated provider's seeded faults, its waits for receivers that are
 * not ready, and its counters. Nothing here runs on the fast path. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "rdma/simulated/simulated_priv.h"

DEFINE_COUNTER(sends, "nebulaio_rdma_simulated_operations_total", "op=\"send\"",
	"Operations of the simulated provider.");
DEFINE_COUNTER(reads, "nebulaio_rdma_simulated_operations_total", "op=\"read\"",
	"Operations of the simulated provider.");
DEFINE_COUNTER(writes, "nebulaio_rdma_simulated_operations_total", "op=\"write\"",
	"Operations of the simulated provider.");
DEFINE_COUNTER(atomics, "nebulaio_rdma_simulated_operations_total", "op=\"atomic\"",
	"Operations of the simulated provider.");
DEFINE_COUNTER(bytes, "nebulaio_rdma_simulated_bytes_total", NULL,
	"Payload bytes moved by operations of the simulated provider.");
DEFINE_COUNTER(wire_bytes, "nebulaio_rdma_simulated_wire_bytes_total", NULL,
	"Bytes that the processor copied instead of a network.");
DEFINE_COUNTER(retries, "nebulaio_rdma_simulated_retries_total", NULL,
	"Transmissions repeated after an injected loss.");
DEFINE_COUNTER(rnr_waits, "nebulaio_rdma_simulated_rnr_total", NULL,
	"Waits because the receiver had posted no receive.");
DEFINE_COUNTER(assists, "nebulaio_rdma_simulated_assists_total", NULL,
	"One-sided requests that the responder's processor had to execute.");
DEFINE_COUNTER(errors, "nebulaio_rdma_simulated_errors_total", NULL,
	"Queue pairs that went to the error state with work outstanding.");

void sim_tally_flush(struct sim_qp *qp)
{
	struct sim_tally *tally = &qp->tally;

	counter_add(&sends, tally->sends);
	counter_add(&reads, tally->reads);
	counter_add(&writes, tally->writes);
	counter_add(&atomics, tally->atomics);
	counter_add(&bytes, tally->bytes);
	counter_add(&wire_bytes, tally->wire_bytes);
	counter_add(&retries, tally->retries);
	counter_add(&rnr_waits, tally->rnr_waits);
	counter_add(&assists, tally->assists);
	counter_add(&errors, tally->errors);
	*tally = (struct sim_tally){0};
}

/* ---- The device name. ---- */

struct fault_key {
	const char *name;
	size_t offset;
	enum { KEY_PROBABILITY, KEY_COUNT, KEY_MICROSECONDS, KEY_SWITCH_OFF } type;
};

static const struct fault_key fault_keys[] = {
	{"seed", offsetof(struct sim_faults, seed), KEY_COUNT},
	{"delay_us", offsetof(struct sim_faults, delay_ns), KEY_MICROSECONDS},
	{"drop", offsetof(struct sim_faults, drop), KEY_PROBABILITY},
	{"rnr", offsetof(struct sim_faults, rnr), KEY_PROBABILITY},
	{"bad_rkey", offsetof(struct sim_faults, bad_rkey), KEY_PROBABILITY},
	{"qp_error", offsetof(struct sim_faults, qp_error), KEY_PROBABILITY},
	{"half_write", offsetof(struct sim_faults, half_write), KEY_PROBABILITY},
	{"peer_death", offsetof(struct sim_faults, peer_death), KEY_PROBABILITY},
	{"vanish", offsetof(struct sim_faults, vanish), KEY_COUNT},
	{"fatal", offsetof(struct sim_faults, fatal), KEY_COUNT},
	{"direct", offsetof(struct sim_faults, no_direct), KEY_SWITCH_OFF},
};

static int parse_value(const struct fault_key *key, struct slice value, struct sim_faults *faults)
{
	void *field = (char *)faults + key->offset;
	char text[32], *end;
	uint64_t number;
	double chance;

	if (!value.len || slice_copy_str(value, text, sizeof(text)))
		return -EINVAL;
	if (key->type == KEY_PROBABILITY) {
		chance = strtod(text, &end);
		if (*end || !(chance >= 0 && chance <= 1))
			return -EINVAL;
		*(uint64_t *)field = (uint64_t)(chance * 0x1p32);
		return 0;
	}
	if (slice_to_u64(value, &number))
		return -EINVAL;
	if (key->type == KEY_SWITCH_OFF) {
		if (number > 1)
			return -EINVAL;
		*(bool *)field = !number;
	} else if (key->type == KEY_MICROSECONDS) {
		if (number > NS_PER_S)
			return -EINVAL;
		*(uint64_t *)field = number * NS_PER_US;
	} else {
		*(uint64_t *)field = number;
	}
	return 0;
}

int sim_faults_parse(const char *device_name, struct sim_faults *ret_faults)
{
	struct slice rest = slice_str(device_name);
	struct sim_faults faults = {.seed = 1};

	slice_split(&rest, ':');
	while (rest.len) {
		struct slice value = slice_split(&rest, ',');
		struct slice name = slice_split(&value, '=');
		const struct fault_key *key = NULL;

		for (size_t i = 0; i < ARRAY_LEN(fault_keys) && !key; i++) {
			if (slice_eq(name, slice_str(fault_keys[i].name)))
				key = &fault_keys[i];
		}
		if (!key) {
			log_error("rdma", "device \"%s\": no such key: \"%.*s\"", device_name,
				SLICE_FMT(name));
			return -EINVAL;
		}
		if (parse_value(key, value, &faults)) {
			log_error("rdma", "device \"%s\": %s cannot be \"%.*s\"", device_name,
				key->name, SLICE_FMT(value));
			return -EINVAL;
		}
	}
	faults.any = faults.delay_ns || faults.drop || faults.rnr || faults.bad_rkey ||
		     faults.qp_error || faults.half_write || faults.peer_death || faults.vanish ||
		     faults.fatal;
	*ret_faults = faults;
	return 0;
}

/* ---- Drawing. ---- */

static bool one_sided(const struct sim_send *send)
{
	return send->opcode != RP_SEND && send->opcode != RP_SEND_IMM;
}

/* One draw gives at most one fault: the same seed and the same operations give the same faults at
 * any speed of the clock. */
static enum sim_fault draw(struct sim_qp *qp)
{
	const struct sim_faults *faults = &qp->device->faults;
	const uint64_t chances[] = {faults->drop, faults->rnr, faults->bad_rkey, faults->qp_error,
		faults->half_write, faults->peer_death};
	uint64_t at = prng_next(&qp->prng) >> 32, before = qp->transmitted++;

	if (faults->fatal && before >= faults->fatal)
		return SIM_FAULT_FATAL;
	if (faults->vanish && before >= faults->vanish)
		return SIM_FAULT_DROP;
	for (size_t i = 0; i < ARRAY_LEN(chances); i++) {
		if (at < chances[i])
			return (enum sim_fault)(SIM_FAULT_DROP + i);
		at -= chances[i];
	}
	return SIM_FAULT_NONE;
}

/* Begins the wait unless it has begun; true when it is over. */
static bool waited(struct sim_qp *qp, struct sim_send *send, uint64_t wait_ns)
{
	uint64_t now_ns = clock_now_ns();

	if (!send->not_before_ns)
		send->not_before_ns = now_ns + wait_ns;
	qp->timing = true;
	if (now_ns < send->not_before_ns)
		return false;
	send->not_before_ns = 0;
	return true;
}

static bool is_reliable(const struct sim_qp *qp)
{
	return qp->base.type == RP_QP_RC;
}

static int fail(struct sim_send *send, enum rp_status status)
{
	send->status = (uint8_t)status;
	return -EIO;
}

int sim_rnr_step(struct sim_qp *qp, struct sim_send *send)
{
	/* A peer that has not yet seen the connection come up does not count as not ready. */
	if (atomic_load_explicit(&qp->theirs->state, memory_order_acquire) == SIM_SIDE_NEW)
		return -EAGAIN;
	if (!send->not_before_ns)
		qp->tally.rnr_waits++;
	if (qp->rnr_retry_count == 7) {
		send->not_before_ns = 1;
		return -EAGAIN;
	}
	if (!waited(qp, send, SIM_RNR_WAIT_NS))
		return -EAGAIN;
	if (send->rnr_tries++ < qp->rnr_retry_count)
		return -EAGAIN;
	return fail(send, RP_WC_RNR_RETRY_EXC_ERR);
}

/* An injected loss or unready receiver: another wait and another draw, up to the retry count. */
static int step_again(struct sim_qp *qp, struct sim_send *send)
{
	bool rnr = send->fault == SIM_FAULT_RNR;
	uint8_t tries_max = rnr ? qp->rnr_retry_count : qp->retry_count;
	uint8_t *tries = rnr ? &send->rnr_tries : &send->tries;

	if (!waited(qp, send, rnr ? SIM_RNR_WAIT_NS : qp->timeout_ns))
		return -EAGAIN;
	if (rnr)
		qp->tally.rnr_waits++;
	else
		qp->tally.retries++;
	if (!(rnr && tries_max == 7) && (*tries)++ >= tries_max)
		return fail(send, rnr ? RP_WC_RNR_RETRY_EXC_ERR : RP_WC_RETRY_EXC_ERR);
	send->fault_drawn = false;
	return 1;
}

/* An operation without acknowledgement is lost without an error: 1; 0: this fault does not apply to
 * it. */
static int lose(struct sim_qp *qp, struct sim_send *send)
{
	switch (send->fault) {
	case SIM_FAULT_BAD_RKEY:
		return one_sided(send);
	case SIM_FAULT_HALF_WRITE:
		if (!one_sided(send))
			return 0;
		sim_move_half(qp, send);
		send->status = 0;
		return 1;
	default:
		return 1;
	}
}

int sim_fault_step(struct sim_qp *qp, struct sim_send *send)
{
	const struct sim_faults *faults = &qp->device->faults;
	int err;

	/* An operation that has begun to move gets no more faults. */
	if (send->asked || send->moved || send->needs_ack || send->assisting)
		return 0;
	if (faults->delay_ns && !send->delayed) {
		if (!waited(qp, send, faults->delay_ns))
			return -EAGAIN;
		send->delayed = true;
	}
	do {
		if (!send->fault_drawn)
			send->fault = (uint8_t)draw(qp);
		send->fault_drawn = true;
		if (!is_reliable(qp) && send->fault != SIM_FAULT_NONE &&
			send->fault != SIM_FAULT_QP_ERROR && send->fault != SIM_FAULT_PEER_DEATH &&
			send->fault != SIM_FAULT_FATAL)
			return lose(qp, send);
		switch (send->fault) {
		case SIM_FAULT_DROP:
		case SIM_FAULT_RNR:
			err = step_again(qp, send);
			break;
		case SIM_FAULT_BAD_RKEY:
			return one_sided(send) ? fail(send, RP_WC_REM_ACCESS_ERR) : 0;
		case SIM_FAULT_QP_ERROR:
			sim_qp_fail(qp, "injected fault: queue pair error");
			return -EIO;
		case SIM_FAULT_HALF_WRITE:
			if (send->opcode != RP_WRITE && send->opcode != RP_WRITE_IMM)
				return 0;
			sim_move_half(qp, send);
			return fail(send, RP_WC_RETRY_EXC_ERR);
		case SIM_FAULT_PEER_DEATH:
			sim_cm_cut(qp);
			sim_qp_fail(qp, "injected fault: peer death");
			return -EIO;
		case SIM_FAULT_FATAL:
			sim_cm_fail(qp->device);
			sim_qp_fail(qp, "injected fault: the device failed");
			return -EIO;
		default:
			return 0;
		}
	} while (err == 1);
	return err;
}
