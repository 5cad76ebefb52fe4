/* tests/unit/remote/test_hostile.c: an initiator that knows the secret and falsifies its messages
 * before it seals them: each command is answered or ends the lane, the volume and the initiator's
 * memory change only as a command says, and an ended lane leaves nothing behind. */
#include "target_rig.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../fuzz.h"
#include "remote/remote_priv.h"

#define CONTROL_AT	(3 * MIB)
#define CONTROL_BYTES	(64 * KIB)
#define RECVS		(REMOTE_DEPTH + REMOTE_SPARE_RECVS)
#define BURST_MAX	(REMOTE_DEPTH + 3)
#define DATA_BYTES	(2 * MIB)
#define GUARD_BYTES	4096u
#define SESSIONS	80u
#define BURSTS		10u
#define COMMAND_CONTENT ((uint32_t)offsetof(struct wire_command, op))
#define COMMAND_TAG	((uint32_t)offsetof(struct wire_command, tag))

/* ---- The target. ---- */

struct victim {
	struct target target;
	int fd; /* of its volume */
	uint64_t frames_idle;
};

static uint64_t frames_used(const struct victim *victim)
{
	struct region_usage usage;

	region_usage(victim->target.region, &usage);
	return usage.frames_total - usage.frames_by_owner[OWNER_FREE];
}

/* A lane's capsules are in frames: all frames are free when no lane is left. */
static void expect_idle(const struct victim *victim)
{
	uint64_t deadline_ns = clock_now_ns() + 60 * NS_PER_S;

	while (frames_used(victim) != victim->frames_idle) {
		assert_true(clock_now_ns() < deadline_ns);
		sched_yield();
	}
}

static int setup_for(void **state, uint64_t setup_ns)
{
	struct victim *victim = calloc(1, sizeof(*victim));

	victim->target.setup_ns = setup_ns;
	/* In memory: hundreds of sessions need not wait for a disk. */
	victim->fd = memfd_create("volume", 0);
	assert_true(victim->fd >= 0);
	snprintf(victim->target.path, sizeof(victim->target.path), "/proc/self/fd/%d", victim->fd);
	target_start(&victim->target, 0);
	victim->frames_idle = frames_used(victim);
	*state = victim;
	return 0;
}

static int setup(void **state)
{
	return setup_for(state, 0);
}

static int setup_short(void **state)
{
	return setup_for(state, 3 * NS_PER_S);
}

/* A new initiator is served, whatever happened before. */
static int teardown(void **state)
{
	struct victim *victim = *state;
	const struct remote_opts opts = {.device = {.device_name = "simulated", .gid_index = -1},
		.secret = SECRET,
		.setup_ns = SETUP_NS};
	char path[128], data[4096] __attribute__((aligned(4096)));
	struct disk_opts disk_opts = {.path = path};
	uint64_t deadline_ns = clock_now_ns() + 60 * NS_PER_S;
	struct remote *remote;
	struct disk *disk;
	int ret;

	snprintf(path, sizeof(path), "rdma://127.0.0.1:%u/shard", victim->target.port);
	assert_int_equal(remote_initiator_open(&opts, &remote), 0);
	/* This process may be stopped for longer than a short set-up. */
	do
		ret = disk_open(&disk_opts, &disk);
	while (ret && victim->target.setup_ns && clock_rest(deadline_ns));
	assert_int_equal(ret, 0);
	memset(data, 'f', sizeof(data));
	assert_int_equal(disk_write_now(disk, data, sizeof(data), 0), 0);
	memset(data, 0, sizeof(data));
	assert_int_equal(disk_read_now(disk, data, sizeof(data), 0), 0);
	assert_int_equal(data[4095], 'f');
	disk_close(disk);
	remote_initiator_close(remote);
	expect_idle(victim);
	target_end(&victim->target);
	close(victim->fd);
	free(victim);
	return 0;
}

/* ---- A bare initiator. ---- */

struct memory {
	union wire_capsule recvs[RECVS];
	union wire_capsule send;
	uint8_t data[DATA_BYTES];
	uint8_t guard[GUARD_BYTES]; /* the target may only read it */
};

/* A command without an answer. */
struct sent {
	uint16_t slot;
	int status; /* required status, or -1 */
	bool open;
};

struct peer {
	struct rp_device *device;
	struct rp_pd *pd;
	struct rp_cq *cq;
	struct rp_qp *qp;
	struct rp_mr *mr, *data, *guard;
	struct memory *memory;
	struct wire_hello hello;
	struct wire_keys keys;
	struct wire_identity identity;
	uint32_t depth;
	uint64_t counter_out, counter_in;
	const union wire_capsule *received;
	uint32_t received_bytes;
	bool gone;
	struct sent sent[BURST_MAX];
	uint32_t sent_count;
	bool lethal; /* it sent a message that ends the lane */
};

static void recv_post(struct peer *peer, uint64_t n)
{
	struct rp_sge sge = {
		(uintptr_t)&peer->memory->recvs[n], WIRE_RECV_BYTES, rp_mr_lkey(peer->mr)};
	struct rp_recv_wr wr = {.wr_id = n, .sg_list = &sge, .sge_count = 1};
	uint32_t posted;

	rp_post_recv(peer->qp, &wr, 1, &posted);
}

static struct rp_mr *mr_open(struct peer *peer, void *addr, size_t bytes, uint32_t access)
{
	struct rp_mr_opts opts = {.addr = addr, .bytes = bytes, .access = access, .fd = -1};
	struct rp_mr *mr;

	assert_int_equal(rp_mr_open(peer->pd, &opts, &mr), 0);
	return mr;
}

/* The next event of its connections. */
static struct rp_cm_event event_await(struct peer *peer)
{
	struct pollfd fd = {.fd = rp_cm_fd(peer->device), .events = POLLIN};
	uint64_t deadline_ns = clock_now_ns() + 60 * NS_PER_S;
	struct rp_cm_event event;

	while (rp_cm_poll(peer->device, &event) != 1) {
		assert_true(clock_now_ns() < deadline_ns);
		poll(&fd, 1, 100);
	}
	return event;
}

static enum rp_cm_type peer_connect(
	struct peer *peer, const struct target *target, uint32_t recvs, enum rp_qp_type type)
{
	const struct remote_private private = {.magic = WIRE_MAGIC, .version = WIRE_VERSION};
	struct rp_open_opts opts = {.device_name = "simulated", .gid_index = -1};
	struct rp_qp_attr attr = {.type = type,
		.cap = {.max_send_wr = 256,
			.max_recv_wr = RECVS,
			.max_send_sge = 1,
			.max_inline_data = 256,
			.max_recv_sge = 1}};
	void *memory = mmap(NULL, sizeof(struct memory), PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	*peer = (struct peer){.memory = memory};
	assert_int_equal(rp_open(&opts, &peer->device), 0);
	assert_int_equal(rp_pd_open(peer->device, &peer->pd), 0);
	assert_int_equal(rp_cq_open(peer->device, 1024, &peer->cq), 0);
	peer->mr = mr_open(peer, memory, offsetof(struct memory, data), RP_ACCESS_LOCAL_WRITE);
	peer->data = mr_open(peer, peer->memory->data, DATA_BYTES,
		RP_ACCESS_LOCAL_WRITE | RP_ACCESS_REMOTE_READ | RP_ACCESS_REMOTE_WRITE);
	peer->guard = mr_open(peer, peer->memory->guard, GUARD_BYTES,
		RP_ACCESS_LOCAL_WRITE | RP_ACCESS_REMOTE_READ);
	memset(peer->memory->guard, 'g', GUARD_BYTES);
	attr.send_cq = peer->cq;
	attr.recv_cq = peer->cq;
	assert_int_equal(rp_qp_open(peer->pd, &attr, &peer->qp), 0);
	for (uint64_t n = 0; n < recvs; n++)
		recv_post(peer, n);
	assert_int_equal(rp_connect(peer->qp, "127.0.0.1", target->port, &private, sizeof(private),
				 clock_now_ns() + 60 * NS_PER_S),
		0);
	return event_await(peer).type;
}

static void peer_open(struct peer *peer, const struct target *target, uint32_t recvs)
{
	assert_int_equal(peer_connect(peer, target, recvs, RP_QP_RC), RP_CM_ESTABLISHED);
}

static void peer_close(struct peer *peer)
{
	rp_qp_close(peer->qp);
	for (uint32_t i = 0; i < GUARD_BYTES; i++)
		assert_int_equal(peer->memory->guard[i], 'g');
	rp_mr_close(peer->mr);
	rp_mr_close(peer->data);
	rp_mr_close(peer->guard);
	rp_cq_close(peer->cq);
	rp_pd_close(peer->pd);
	rp_close(peer->device);
	munmap(peer->memory, sizeof(struct memory));
}

/* Polls once: true with a capsule. The flush reports the end. */
static bool peer_poll(struct peer *peer)
{
	struct rp_cm_event event;
	struct rp_wc wc;

	rp_cm_poll(peer->device, &event);
	if (peer->gone || rp_cq_poll(peer->cq, &wc, 1) != 1)
		return false;
	if (wc.status != RP_WC_SUCCESS) {
		peer->gone = true;
		return false;
	}
	if (wc.opcode != RP_RECV)
		return false;
	peer->received = &peer->memory->recvs[wc.wr_id];
	peer->received_bytes = wc.byte_len;
	return true;
}

/* Waits for a capsule (true) or for the lane's end (false). */
static bool peer_receive(struct peer *peer)
{
	uint64_t deadline_ns = clock_now_ns() + 60 * NS_PER_S;

	while (!peer_poll(peer)) {
		if (peer->gone)
			return false;
		assert_true(clock_now_ns() < deadline_ns);
		sched_yield();
	}
	return true;
}

static void peer_send(struct peer *peer, const void *data, uint32_t bytes)
{
	struct rp_sge sge = {(uintptr_t)&peer->memory->send, bytes, rp_mr_lkey(peer->mr)};
	struct rp_send_wr wr = {.opcode = RP_SEND,
		.flags = RP_SEND_SIGNALED | RP_SEND_INLINE,
		.sg_list = &sge,
		.sge_count = 1};
	uint32_t posted;

	memcpy(&peer->memory->send, data, bytes);
	if (rp_post_send(peer->qp, &wr, 1, &posted))
		peer->gone = true;
}

/* ---- Set-up, falsified in some sessions. ---- */

static uint8_t bent_byte(struct prng *prng)
{
	static const uint8_t EDGES[] = {0, 1, 2, 0x7f, 0x80, 0xff};

	return prng_below(prng, 2) ? EDGES[prng_below(prng, sizeof(EDGES))]
				   : (uint8_t)prng_next(prng);
}

/* One in so many. */
static bool one_in(struct prng *prng, uint64_t count)
{
	return prng_below(prng, count) == 0;
}

static uint32_t bent_length(struct prng *prng, uint32_t bytes)
{
	return one_in(prng, 12) ? 1 + (uint32_t)prng_below(prng, WIRE_RECV_BYTES) : bytes;
}

static void hello_send(struct peer *peer, struct prng *prng)
{
	union wire_capsule capsule = {.hello = {.name = "shard"}};
	struct wire_hello *hello = &capsule.hello;

	wire_head_fill(&hello->head, WIRE_HELLO, sizeof(*hello), 0);
	hello->flags = one_in(prng, 4) ? WIRE_HELLO_READ_ONLY : 0;
	hello->depth =
		(uint16_t)(1 + prng_below(prng, one_in(prng, 4) ? WIRE_DEPTH_MAX : REMOTE_DEPTH));
	hello->lane = (uint32_t)prng_below(prng, 4);
	prng_fill(prng, hello->nonce, sizeof(hello->nonce));
	if (one_in(prng, 4))
		capsule.room[prng_below(prng, sizeof(*hello))] = bent_byte(prng);
	peer->hello = *hello;
	peer_send(peer, &capsule, bent_length(prng, sizeof(*hello)));
}

/* A message other than the expected one. */
static void out_of_turn(struct peer *peer, struct prng *prng)
{
	union wire_capsule capsule;
	static const struct {
		enum wire_kind kind;
		uint16_t bytes;
	} WORDS[] = {{WIRE_HELLO, sizeof(struct wire_hello)},
		{WIRE_PROOF, sizeof(struct wire_proof)},
		{WIRE_COMMAND, sizeof(struct wire_command)},
		{WIRE_WELCOME, sizeof(struct wire_welcome)},
		{WIRE_RESPONSE, sizeof(struct wire_response)},
		{WIRE_REFUSE, sizeof(struct wire_refuse)}};
	uint64_t which = prng_below(prng, ARRAY_LEN(WORDS));

	prng_fill(prng, &capsule, sizeof(capsule));
	wire_head_fill(&capsule.head, WORDS[which].kind, WORDS[which].bytes, prng_below(prng, 2));
	if (which == 2) {
		/* Sealed although the lane has no keys yet. */
		capsule.command.op = WIRE_READ;
		wire_seal(&capsule, peer->keys.initiator);
	}
	peer_send(peer, &capsule, WORDS[which].bytes);
}

static void proof_send(struct peer *peer, struct prng *prng)
{
	union wire_capsule capsule = {0};

	wire_keys_make(&peer->keys, SLICE(SECRET), &peer->hello, &peer->received->challenge);
	wire_head_fill(&capsule.head, WIRE_PROOF, sizeof(capsule.proof), 0);
	wire_proof_make(&peer->keys, capsule.proof.proof);
	if (one_in(prng, 8))
		capsule.room[prng_below(prng, sizeof(capsule.proof))] ^=
			(uint8_t)(1u << prng_below(prng, 8));
	peer_send(peer, &capsule, bent_length(prng, sizeof(capsule.proof)));
}

/* False: refused, or ended. */
static bool heard(struct peer *peer, enum wire_kind kind)
{
	if (!peer_receive(peer))
		return false;
	if (wire_check(peer->received, peer->received_bytes, kind) == 0)
		return true;
	assert_int_equal(wire_check(peer->received, peer->received_bytes, WIRE_REFUSE), 0);
	assert_in_range(peer->received->refuse.reason, WIRE_MALFORMED, WIRE_FULL);
	return false;
}

/* True: the lane is open. */
static bool set_up(struct peer *peer, struct prng *prng)
{
	uint8_t proof[SHA256_BYTES];

	if (one_in(prng, 12))
		out_of_turn(peer, prng);
	hello_send(peer, prng);
	if (one_in(prng, 12))
		out_of_turn(peer, prng);
	if (!heard(peer, WIRE_CHALLENGE))
		return false;
	peer->depth = peer->received->challenge.depth;
	assert_in_range(peer->depth, 1, MIN(peer->hello.depth, (uint16_t)REMOTE_DEPTH));
	if (one_in(prng, 12))
		out_of_turn(peer, prng);
	proof_send(peer, prng);
	if (!heard(peer, WIRE_WELCOME))
		return false;
	peer->identity = peer->received->welcome.identity;
	wire_welcome_make(&peer->keys, &peer->identity, proof);
	assert_memory_equal(proof, peer->received->welcome.proof, sizeof(proof));
	for (uint64_t n = 0; n < 2; n++) /* of the challenge and the welcome */
		recv_post(peer, n);
	return true;
}

/* ---- Commands. ---- */

static struct wire_command command_make(const struct peer *peer, struct prng *prng)
{
	static const uint8_t OPS[] = {WIRE_READ, WIRE_READ, WIRE_READ, WIRE_WRITE, WIRE_WRITE,
		WIRE_WRITE, WIRE_FLUSH, WIRE_IDENTIFY, WIRE_DEALLOCATE, WIRE_ZERO, WIRE_GROW};
	static const uint32_t SIZES[] = {4096, 4096, 8192, 64 * KIB, WIRE_TRANSFER_MAX};
	struct wire_command command = {.op = OPS[prng_below(prng, ARRAY_LEN(OPS))],
		.slot = (uint16_t)prng_below(prng, WIRE_DEPTH_MAX),
		.rkey = rp_mr_rkey(peer->data),
		.bytes = SIZES[prng_below(prng, ARRAY_LEN(SIZES))]};

	command.offset = prng_below(prng, (BYTES - command.bytes) / 4096 + 1) * 4096;
	command.addr =
		(uintptr_t)peer->memory->data + prng_below(prng, DATA_BYTES - command.bytes + 1);
	/* Both commands wait for the medium. */
	if ((command.op == WIRE_FLUSH || command.op == WIRE_GROW) && !one_in(prng, 8))
		command.op = WIRE_IDENTIFY;
	if (command.op == WIRE_GROW)
		command.bytes = prng_below(prng, 3) * BYTES;
	return command;
}

static void command_bend(const struct peer *peer, struct prng *prng, struct wire_command *command)
{
	const uint64_t offsets[] = {1, 511, 512, BYTES - 512, BYTES, BYTES - command->bytes + 512,
		3 * BYTES, INT64_MAX, INT64_MAX - 4095, UINT64_MAX};
	const uint64_t counts[] = {1, 511, 512, 513, 4096, 0, BYTES, WIRE_TRANSFER_MAX + 1,
		INT64_MAX, INT64_MAX - 4095, UINT64_MAX};
	const uint64_t data = (uintptr_t)peer->memory->data;
	const uint64_t addrs[] = {0, data - 1, data + DATA_BYTES - 1, data + DATA_BYTES, UINT64_MAX,
		(uintptr_t)peer->memory->guard};

	switch (prng_below(prng, 8)) {
	case 0:
		command->op = one_in(prng, 20) ? bent_byte(prng)
					       : (uint8_t)(1 + prng_below(prng, WIRE_OP_END - 1));
		break;
	case 1:
	case 2:
		command->offset =
			offsets[prng_below(prng, ARRAY_LEN(offsets) - (one_in(prng, 20) ? 0 : 1))];
		break;
	case 3:
	case 4:
		command->bytes = counts[prng_below(prng, one_in(prng, 16) ? ARRAY_LEN(counts) : 5)];
		break;
	case 5:
		if (one_in(prng, 16))
			command->addr = addrs[prng_below(prng, ARRAY_LEN(addrs))];
		break;
	case 6:
		command->rkey = one_in(prng, 16) ? (uint32_t)prng_next(prng) : command->rkey;
		if (one_in(prng, 6)) {
			command->rkey = rp_mr_rkey(peer->guard);
			command->addr = (uintptr_t)peer->memory->guard;
		}
		break;
	default:
		if (one_in(prng, 6))
			((uint8_t *)command)[COMMAND_CONTENT +
					     prng_below(prng, COMMAND_TAG - COMMAND_CONTENT)] =
				bent_byte(prng);
	}
}

static bool changes(const struct wire_command *command)
{
	return command->op == WIRE_WRITE || command->op == WIRE_ZERO ||
	       command->op == WIRE_DEALLOCATE;
}

/* A valid command must not change the control block, nor fill the file system. */
static void command_tame(struct wire_command *command)
{
	if (changes(command) && command->offset < CONTROL_AT + CONTROL_BYTES &&
		command->bytes > CONTROL_AT - MIN(command->offset, (uint64_t)CONTROL_AT))
		command->op = WIRE_READ;
	if (command->op == WIRE_GROW && command->bytes > 4 * BYTES && command->bytes < 1ull << 60)
		command->bytes %= 4 * BYTES;
}

static bool within(uint64_t addr, uint64_t bytes, const uint8_t *from, uint64_t size)
{
	return addr >= (uintptr_t)from && addr - (uintptr_t)from <= size &&
	       bytes <= size - (addr - (uintptr_t)from);
}

/* Whether the data can be moved with the command's keys. */
static bool moves(const struct peer *peer, const struct wire_command *command)
{
	if (command->rkey == rp_mr_rkey(peer->data))
		return within(command->addr, command->bytes, peer->memory->data, DATA_BYTES);
	return command->rkey == rp_mr_rkey(peer->guard) && command->op == WIRE_WRITE &&
	       within(command->addr, command->bytes, peer->memory->guard, GUARD_BYTES);
}

/* The required status; -1: any, -2: the command ends the lane. */
static int foreseen(const struct peer *peer, const struct wire_command *command)
{
	bool transfers = command->op == WIRE_READ || command->op == WIRE_WRITE;

	if (command->op == WIRE_FLUSH || command->op == WIRE_IDENTIFY)
		return WIRE_OK;
	if (command->op != WIRE_READ && peer->hello.flags & WIRE_HELLO_READ_ONLY)
		return WIRE_READ_ONLY;
	if (command->op == WIRE_GROW)
		return command->bytes <= BYTES ? WIRE_OK : -1;
	if ((command->offset | command->bytes) % peer->identity.align || !command->bytes)
		return WIRE_INVALID;
	if (command->offset + command->bytes > 4 * BYTES)
		return WIRE_OUT_OF_RANGE;
	if (transfers && !moves(peer, command))
		return command->offset + command->bytes > BYTES ? -1 : -2;
	/* The file system decides whether a file supports it. */
	if (command->op == WIRE_DEALLOCATE || command->op == WIRE_ZERO ||
		command->offset + command->bytes > BYTES)
		return -1;
	return WIRE_OK;
}

static void foresee(struct peer *peer, const union wire_capsule *capsule, uint32_t bytes)
{
	struct sent *sent = &peer->sent[peer->sent_count];
	const struct wire_command *command = &capsule->command;
	bool right = wire_check_sealed(capsule, bytes, WIRE_COMMAND, peer->counter_out,
			     peer->keys.initiator) == 0;

	peer->sent_count++;
	*sent = (struct sent){.slot = command->slot,
		.status = right ? foreseen(peer, command) : -2,
		.open = true};
	if (sent->status == -2 || peer->sent_count > peer->depth ||
		(sent->status == -1 && !moves(peer, command)))
		peer->lethal = true;
	for (uint32_t i = 0; i + 1 < peer->sent_count; i++)
		if (peer->sent[i].slot == sent->slot)
			peer->sent[i].status = sent->status = -1;
}

static void command_send(struct peer *peer, struct prng *prng)
{
	union wire_capsule capsule = {.command = command_make(peer, prng)};
	uint32_t bytes = sizeof(capsule.command);

	if (one_in(prng, 3))
		command_bend(peer, prng, &capsule.command);
	command_tame(&capsule.command);
	wire_head_fill(&capsule.head, WIRE_COMMAND, sizeof(capsule.command), ++peer->counter_out);
	if (one_in(prng, 1000))
		capsule.head.counter += prng_below(prng, 2) ? 1 : UINT64_MAX;
	wire_seal(&capsule, peer->keys.initiator);
	if (one_in(prng, 1000))
		capsule.room[prng_below(prng, bytes)] ^= (uint8_t)(1u << prng_below(prng, 8));
	if (one_in(prng, 1000))
		bytes = bent_length(prng, bytes - 1);
	foresee(peer, &capsule, bytes);
	peer_send(peer, &capsule, bytes);
}

/* Checks that an answer belongs to a command without one, and has an allowed status. */
static void response_take(struct peer *peer)
{
	const struct wire_response *response = &peer->received->response;

	assert_int_equal(wire_check_sealed(peer->received, peer->received_bytes, WIRE_RESPONSE,
				 ++peer->counter_in, peer->keys.target),
		0);
	assert_true(response->bytes >= BYTES && response->bytes % BYTES == 0);
	for (uint32_t i = 0; i < peer->sent_count; i++) {
		struct sent *sent = &peer->sent[i];

		if (!sent->open || sent->slot != response->slot)
			continue;
		if (sent->status >= 0)
			assert_int_equal(response->status, sent->status);
		sent->open = false;
		recv_post(peer, (uint64_t)(peer->received - peer->memory->recvs));
		return;
	}
	fail_msg("an answer to slot %u, which has no command", response->slot);
}

/* Sends commands in parallel: all are answered, or the lane ends for a reason. Returns the number
 * of answers. */
static uint32_t burst(struct peer *peer, struct prng *prng)
{
	uint64_t count = 1 + prng_below(prng, one_in(prng, 30) ? BURST_MAX : peer->depth);
	uint32_t answered = 0;

	peer->sent_count = 0;
	for (uint64_t i = 0; i < count; i++)
		command_send(peer, prng);
	while (answered < peer->sent_count && peer_receive(peer)) {
		response_take(peer);
		answered++;
	}
	assert_true(!peer->gone || peer->lethal);
	return answered;
}

static void test_bent_commands(void **state)
{
	const struct victim *victim = *state;
	uint8_t *control = NULL, *now = NULL;
	uint32_t sessions = 0, opened = 0, answered = 0;
	uint64_t until_ns = 0;
	struct prng prng;
	struct peer peer;

	assert_int_equal(posix_memalign((void **)&control, 4096, CONTROL_BYTES), 0);
	assert_int_equal(posix_memalign((void **)&now, 4096, CONTROL_BYTES), 0);
	prng_seed(&prng, 7);
	prng_fill(&prng, control, CONTROL_BYTES);
	assert_int_equal(
		disk_write_now(victim->target.disk, control, CONTROL_BYTES, CONTROL_AT), 0);
	while (fuzz_next(&prng, SESSIONS, &until_ns)) {
		sessions++;
		peer_open(&peer, &victim->target, RECVS);
		if (set_up(&peer, &prng)) {
			opened++;
			for (uint32_t i = 0; i < BURSTS && !peer.gone; i++)
				answered += burst(&peer, &prng);
		}
		peer_close(&peer);
		expect_idle(victim);
	}
	print_message("# %u sessions, %u of them opened, %u commands answered\n", sessions, opened,
		answered);
	assert_int_equal(disk_read_now(victim->target.disk, now, CONTROL_BYTES, CONTROL_AT), 0);
	assert_memory_equal(now, control, CONTROL_BYTES);
	assert_true(opened > sessions / 4 && answered > 10 * opened);
	free(control);
	free(now);
}

/* Unexpected messages do not keep a lane open: the time limit of set-up starts with the connection.
 * The final refusal cannot reach an initiator without receives. */
static void test_talk_is_not_set_up(void **state)
{
	const struct victim *victim = *state;
	uint64_t deadline_ns = clock_now_ns() + 60 * NS_PER_S;
	const struct wire_proof word = {0};
	struct pollfd fd = {.events = POLLIN};
	struct peer peer;

	peer_open(&peer, &victim->target, 0);
	fd.fd = rp_cm_fd(peer.device);
	while (!peer.gone) {
		assert_true(clock_now_ns() < deadline_ns);
		peer_send(&peer, &word, sizeof(word));
		poll(&fd, 1, 100);
		while (peer_poll(&peer))
			continue;
	}
	peer_close(&peer);
	expect_idle(victim);
}

/* The target's queue pairs are RC and cannot accept this one: it is answered, and not left waiting.
 */
static void test_a_connection_that_cannot_be_accepted_is_rejected(void **state)
{
	const struct victim *victim = *state;
	struct peer peer;

	assert_int_equal(peer_connect(&peer, &victim->target, RECVS, RP_QP_UC), RP_CM_REJECTED);
	peer_close(&peer);
	expect_idle(victim);
}

#define FLOOD 500u

/* More connections than the target has places, from somebody without the secret: none of them is
 * rejected for want of room, and teardown's initiator finds a place. */
static void test_the_unproven_do_not_keep_others_out(void **state)
{
	const struct remote_private private = {.magic = WIRE_MAGIC, .version = WIRE_VERSION};
	struct rp_qp_attr attr = {.type = RP_QP_RC,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
	const struct victim *victim = *state;
	static struct rp_qp *flood[FLOOD];
	struct peer peer;

	peer_open(&peer, &victim->target, RECVS);
	attr.send_cq = attr.recv_cq = peer.cq;
	for (uint32_t i = 0; i < FLOOD; i++) {
		struct rp_cm_event event;

		assert_int_equal(rp_qp_open(peer.pd, &attr, &flood[i]), 0);
		assert_int_equal(rp_connect(flood[i], "127.0.0.1", victim->target.port, &private,
					 sizeof(private), clock_now_ns() + 60 * NS_PER_S),
			0);
		do {
			event = event_await(&peer);
			assert_int_not_equal(event.type, RP_CM_REJECTED);
		} while (event.type != RP_CM_ESTABLISHED || event.qp != flood[i]);
	}
	for (uint32_t i = 0; i < FLOOD; i++)
		rp_qp_close(flood[i]);
	peer_close(&peer);
	expect_idle(victim);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_bent_commands, setup, teardown),
		cmocka_unit_test_setup_teardown(test_talk_is_not_set_up, setup_short, teardown),
		cmocka_unit_test_setup_teardown(
			test_a_connection_that_cannot_be_accepted_is_rejected, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_the_unproven_do_not_keep_others_out, setup, teardown),
	};

	return fuzz_done(cmocka_run_group_tests(tests, NULL, NULL));
}
