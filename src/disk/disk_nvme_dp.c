/* disk/disk_nvme_dp.c: turns operations into NVMe commands, split by the size limit of one command,
 * submits them to the core's own ring of large entries, and takes completions. Data path. */
#include "disk/disk_nvme.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

DEFINE_COUNTER(commands_total, "nebulaio_disk_nvme_commands_total", NULL,
	"Commands sent to NVMe controllers by passthrough.");
DEFINE_COUNTER(polled_total, "nebulaio_disk_nvme_polled_total", NULL,
	"Of these, commands whose completion was polled.");
DEFINE_COUNTER(statuses_total, "nebulaio_disk_nvme_errors_total", NULL,
	"Commands that an NVMe controller ended with an error status.");

void nvme_words(const struct nvme *nvme, struct nvme_command *command, uint8_t opcode,
	uint64_t offset, uint64_t bytes)
{
	uint64_t lba = offset >> nvme->lba_shift;

	memset(&command->words, 0, sizeof(command->words));
	command->vectored = false;
	command->tries = 0;
	command->bytes = (uint32_t)bytes;
	command->words.opcode = opcode;
	command->words.nsid = nvme->nsid;
	if (opcode == NVME_FLUSH || opcode == NVME_DATASET)
		return;
	command->words.cdw10 = (uint32_t)lba;
	command->words.cdw11 = (uint32_t)(lba >> 32);
	command->words.cdw12 = (uint32_t)(bytes >> nvme->lba_shift) - 1;
}

/* No controller accepts data as one run when it ends within a page and goes on elsewhere. */
static bool joins(const struct iovec *before, const struct iovec *after)
{
	return !(((uintptr_t)before->iov_base + before->iov_len) % NVME_PAGE_BYTES ||
		 (uintptr_t)after->iov_base % NVME_PAGE_BYTES);
}

/* Takes as many whole pieces as fit one command, or as much of one as does. */
static void transfer_words(
	const struct nvme *nvme, struct disk_io *io, struct nvme_command *command)
{
	uint32_t first = io->split.iov_idx, last = first;
	uint64_t bytes = io->iov[first].iov_len - io->split.at;
	uint32_t segments = nvme_segments_of(io->iov[first].iov_base, bytes);

	while (io->split.at == 0 && last + 1 < io->iov_count &&
		bytes + io->iov[last + 1].iov_len <= nvme->transfer_bytes_max &&
		joins(&io->iov[last], &io->iov[last + 1])) {
		const struct iovec *next = &io->iov[last + 1];

		segments += nvme_segments_of(next->iov_base, next->iov_len);
		if (segments > nvme->segments_max)
			break;
		bytes += next->iov_len;
		last++;
	}
	bytes = MIN(bytes, (uint64_t)nvme->transfer_bytes_max);
	nvme_words(nvme, command, io->op == DISK_READ ? NVME_READ : NVME_WRITE,
		io->offset + io->moved, bytes);
	io->moved += bytes;
	if (last > first) {
		command->vectored = true;
		command->words.addr = (uint64_t)(uintptr_t)&io->iov[first];
		command->words.data_len = last - first + 1;
		io->split.iov_idx = last + 1;
	} else {
		command->words.addr =
			(uint64_t)(uintptr_t)((char *)io->iov[first].iov_base + io->split.at);
		command->words.data_len = (uint32_t)bytes;
		io->split.at += bytes;
		if (io->split.at == io->iov[first].iov_len) {
			io->split.at = 0;
			io->split.iov_idx++;
		}
	}
	io->split.issued = io->split.iov_idx == io->iov_count;
}

static void run_words(const struct nvme *nvme, struct disk_io *io, struct nvme_command *command)
{
	uint64_t left = io->bytes - io->split.at;
	uint64_t offset = io->offset + io->split.at;
	uint64_t bytes;

	if (io->op == DISK_ZERO) {
		bytes = MIN(left, (uint64_t)nvme->transfer_bytes_max);
		nvme_words(nvme, command, NVME_WRITE_ZEROES, offset, bytes);
	} else {
		bytes = MIN(left, GIB);
		nvme_words(nvme, command, NVME_DATASET, offset, 0);
		command->range = (struct nvme_range){.first_lba = offset >> nvme->lba_shift,
			.lbas = (uint32_t)(bytes >> nvme->lba_shift)};
		command->words.addr = (uint64_t)(uintptr_t)&command->range;
		command->words.data_len = sizeof(command->range);
		command->words.cdw11 = NVME_DEALLOCATE;
	}
	command->bytes = (uint32_t)bytes;
	io->split.at += bytes;
	io->split.issued = io->split.at == io->bytes;
}

static void command_build(const struct nvme *nvme, struct disk_io *io, struct nvme_command *command)
{
	command->io = io;
	if (io->op == DISK_READ || io->op == DISK_WRITE) {
		transfer_words(nvme, io, command);
	} else if (io->op == DISK_FLUSH) {
		nvme_words(nvme, command, NVME_FLUSH, 0, 0);
		io->split.issued = true;
	} else {
		run_words(nvme, io, command);
	}
}

static struct nvme_ring *ring_of(struct nvme_core *self, const struct nvme_command *command)
{
	bool transfer = command->words.opcode == NVME_READ || command->words.opcode == NVME_WRITE;

	return transfer && self->polled.open ? &self->polled : &self->plain;
}

void nvme_send(struct nvme_core *self, struct nvme_command *command)
{
	bool transfer = command->words.opcode == NVME_READ || command->words.opcode == NVME_WRITE;
	struct nvme_ring *ring = ring_of(self, command);
	struct io_uring_sqe *sqe = io_uring_get_sqe(&ring->ring);
	int arena = -1;

	/* A ring has as many entries as there are commands. */
	CHECK(sqe != NULL);
	if (ring->registered && transfer && !command->vectored)
		arena = region_arena_of(self->core->region, (void *)(uintptr_t)command->words.addr,
			command->words.data_len);
	command->fixed = arena >= 0;
	self->disk->nvme->transport->prep(self->disk, sqe, command, arena);
	io_uring_sqe_set_data(sqe, command);
	command->io->split.pending++;
	ring->in_flight++;
	counter_add(&commands_total, 1);
	if (ring->polled)
		counter_add(&polled_total, 1);
}

static void pump(struct nvme_core *self)
{
	while (self->first && self->free) {
		struct disk_io *io = self->first;
		struct nvme_command *command = self->free;

		self->free = command->next_free;
		command_build(self->disk->nvme, io, command);
		nvme_send(self, command);
		if (io->split.issued) {
			self->first = io->split.next;
			if (!self->first)
				self->last = NULL;
		}
	}
}

static void refused_done(struct uring_op *op, int result, uint32_t cqe_flags)
{
	struct disk_io *io = CONTAINER_OF(op, struct disk_io, uring);

	(void)result;
	(void)cqe_flags;
	disk_io_finish(io, -EOPNOTSUPP);
}

void nvme_issue(struct disk_io *io, const struct disk_core *core)
{
	const struct nvme *nvme = io->disk->nvme;
	struct nvme_core *self = core->nvme;

	memset(&io->split, 0, sizeof(io->split));
	if ((io->op == DISK_DISCARD && !nvme->deallocates) ||
		(io->op == DISK_ZERO && !nvme->zeroes)) {
		/* The call's own done must not run inside the call. */
		io->uring.done = refused_done;
		io_uring_prep_nop(reactor_sqe(core->reactor, &io->uring));
		return;
	}
	if (self->last)
		self->last->split.next = io;
	else
		self->first = io;
	self->last = io;
	pump(self);
}

static __attribute__((noinline, cold)) void command_failed(
	const struct nvme_command *command, int32_t result)
{
	struct disk_io *io = command->io;

	if (result > 0) {
		counter_add(&statuses_total, 1);
		io->split.status = (uint32_t)result;
		result = nvme_status_errno((uint32_t)result);
	}
	if (!io->split.error)
		io->split.error = result;
}

/* Older kernels (6.1) count the whole rest of a registered buffer as segments of the command, and
 * refuse the command when the rest is large. After the first refusal, this core's commands use
 * plain buffers. */
static __attribute__((noinline, cold)) void fixed_refused(
	struct nvme_core *self, struct nvme_ring *ring)
{
	if (ring->registered)
		log_info("disk",
			"%s: core %u: this kernel takes no passthrough commands from registered "
			"buffers of this size: using plain ones, which costs some processor time",
			self->disk->path, reactor_core_idx(self->core->reactor));
	ring->registered = false;
}

/* True when a transfer runs again after the kernel (-EINVAL) or the controller (invalid field)
 * refused it for its form. The cause is a limit that we do not know; it says nothing of the
 * medium. */
static __attribute__((noinline, cold)) bool form_refused(
	struct nvme_core *self, struct nvme_command *command, int32_t result)
{
	if (result != -EINVAL && (result < 0 || nvme_status_errno((uint32_t)result) != -EINVAL))
		return false;
	if (command->fixed) {
		fixed_refused(self, ring_of(self, command));
		command->io->split.pending--;
		nvme_send(self, command);
		return true;
	}
	if (command->words.opcode != NVME_READ && command->words.opcode != NVME_WRITE)
		return false;
	nvme_pieces_start(self, command);
	return true;
}

static void command_end(struct nvme_core *self, struct nvme_command *command, int32_t result)
{
	struct disk_io *io = command->io;

	if (__builtin_expect(result != 0, 0))
		command_failed(command, result);
	command->next_free = self->free;
	self->free = command;
	if (--io->split.pending || !io->split.issued)
		return;
	if (__builtin_expect(io->fault != 0, 0))
		disk_io_finish(io, io->fault);
	else if (__builtin_expect(io->split.error != 0, 0))
		disk_io_finish(io, io->split.error);
	else
		disk_io_finish(io, (int32_t)MIN(io->moved, (uint64_t)INT32_MAX));
}

void nvme_command_late(struct nvme_core *self, struct nvme_command *command, int32_t result)
{
	command_end(self, command, result);
	pump(self);
}

static void command_done(struct nvme_core *self, struct nvme_command *command, int32_t res)
{
	int32_t result;

	if (__builtin_expect(res == -EAGAIN || res == -EINTR, 0)) {
		command->io->split.pending--;
		nvme_send(self, command);
		return;
	}
	result = self->disk->nvme->transport->result(self->disk, command, res);
	if (__builtin_expect(result != 0, 0) &&
		(form_refused(self, command, result) || nvme_again(self, command, result)))
		return;
	command_end(self, command, result);
}

static bool must_enter(const struct nvme_ring *ring)
{
	return ring->polled || (__atomic_load_n(ring->ring.sq.kflags, __ATOMIC_RELAXED) &
				       (IORING_SQ_CQ_OVERFLOW | IORING_SQ_TASKRUN));
}

static uint32_t ring_turn(struct nvme_core *self, struct nvme_ring *ring)
{
	struct io_uring_cqe *cqe;
	uint32_t count = 0;
	unsigned head;
	int ret;

	if (!ring->in_flight)
		return 0;
	if (io_uring_sq_ready(&ring->ring)) {
		ret = io_uring_submit(&ring->ring);
		/* Short of memory, or completions are waiting: the next turn tries again. */
		CHECK(ret >= 0 || ret == -EINTR || ret == -EAGAIN || ret == -EBUSY);
	}
	if (must_enter(ring))
		io_uring_get_events(&ring->ring);
	io_uring_for_each_cqe(&ring->ring, head, cqe)
	{
		struct nvme_command *command = (struct nvme_command *)io_uring_cqe_get_data(cqe);
		int32_t res = cqe->res;

		io_uring_cq_advance(&ring->ring, 1);
		ring->in_flight--;
		command_done(self, command, res);
		if (++count == NVME_CORE_COMMANDS)
			break;
	}
	return count;
}

uint32_t nvme_poll(void *arg)
{
	struct nvme_core *self = (struct nvme_core *)arg;
	uint32_t count = ring_turn(self, &self->plain) + ring_turn(self, &self->polled);

	if (count)
		pump(self);
	return count;
}

/* A polled completion wakes no reactor, and an entry that is not submitted never ends. */
bool nvme_arm(void *arg)
{
	struct nvme_core *self = (struct nvme_core *)arg;

	return !self->polled.in_flight &&
	       (!self->plain.in_flight || (!io_uring_sq_ready(&self->plain.ring) &&
						  !io_uring_cq_ready(&self->plain.ring)));
}

void nvme_disarm(void *arg)
{
	struct nvme_core *self = (struct nvme_core *)arg;
	uint64_t count;
	ssize_t len = read(self->event_fd, &count, sizeof(count));

	CHECK(len == (ssize_t)sizeof(count) || errno == EAGAIN);
}
