/* tests/unit/reactor/test_uring.c: operations through the ring: results, deadlines, more operations
 * than the ring holds, and buffers that the kernel has released. */
#include "rig.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "reactor/reactor_priv.h"

struct io {
	int fd;
	void *data;
	uint32_t len;
	uint64_t offset;
};

static void prep_read(struct io_uring_sqe *sqe, void *arg)
{
	struct io *io = arg;

	io_uring_prep_read(sqe, io->fd, io->data, io->len, io->offset);
}

static void prep_write(struct io_uring_sqe *sqe, void *arg)
{
	struct io *io = arg;

	io_uring_prep_write(sqe, io->fd, io->data, io->len, io->offset);
}

static void prep_recv(struct io_uring_sqe *sqe, void *arg)
{
	struct io *io = arg;

	io_uring_prep_recv(sqe, io->fd, io->data, io->len, 0);
}

static void prep_send_zc(struct io_uring_sqe *sqe, void *arg)
{
	struct io *io = arg;

	io_uring_prep_send_zc(sqe, io->fd, io->data, io->len, 0, 0);
}

static int temporary_file(void)
{
	char path[] = "/tmp/test_reactor_uring.XXXXXX";
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	unlink(path);
	return fd;
}

static void file_io(void *arg)
{
	char out[64] = "the bytes that were written";
	char in[64] = {0};
	struct io write_io = {*(int *)arg, out, sizeof(out), 8192};
	struct io read_io = {*(int *)arg, in, sizeof(in), 8192};

	assert_int_equal(fiber_uring(prep_write, &write_io, DEADLINE_NONE), sizeof(out));
	assert_int_equal(
		fiber_uring(prep_read, &read_io, clock_now_ns() + 60 * NS_PER_S), sizeof(in));
	assert_memory_equal(in, out, sizeof(in));
	read_io.offset = 1 << 20;
	assert_int_equal(fiber_uring(prep_read, &read_io, DEADLINE_NONE), 0);
	read_io.fd = -1;
	assert_int_equal(fiber_uring(prep_read, &read_io, DEADLINE_NONE), -EBADF);
	note('f');
}

static void test_reads_and_writes_a_file(void **state)
{
	int fd = temporary_file();

	(void)state;
	rig_spawn(file_io, &fd);
	rig_run();
	assert_string_equal(journal, "f");
	close(fd);
}

/* Two fibers send a byte to each other over a socket pair. */
#define THROWS 1000

static void thrower(void *arg)
{
	int fd = *(int *)arg;
	char byte = 0;
	struct io io = {fd, &byte, 1, 0};

	for (int i = 0; i < THROWS; i++) {
		assert_int_equal(fiber_uring(prep_write, &io, DEADLINE_NONE), 1);
		assert_int_equal(fiber_uring(prep_recv, &io, DEADLINE_NONE), 1);
		assert_int_equal(byte, (char)(i + 1));
	}
}

static void catcher(void *arg)
{
	int fd = *(int *)arg;
	char byte;
	struct io io = {fd, &byte, 1, 0};

	for (int i = 0; i < THROWS; i++) {
		assert_int_equal(fiber_uring(prep_recv, &io, DEADLINE_NONE), 1);
		byte++;
		assert_int_equal(fiber_uring(prep_write, &io, DEADLINE_NONE), 1);
	}
}

static void test_fibers_talk_over_a_socket_pair(void **state)
{
	int fds[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	rig_spawn(thrower, &fds[0]);
	rig_spawn(catcher, &fds[1]);
	rig_run();
	assert_int_equal(rig_stats().fibers, 0);
	close(fds[0]);
	close(fds[1]);
}

/* After the deadline the buffer is the caller's again: a byte that comes later must not reach it.
 */
static void times_out(void *arg)
{
	const int *fds = arg;
	char data[16];
	struct io io = {fds[0], data, sizeof(data), 0};
	uint64_t begin_ns = clock_now_ns();

	memset(data, '.', sizeof(data));
	assert_int_equal(fiber_uring(prep_read, &io, begin_ns + 5 * NS_PER_MS), -ETIMEDOUT);
	assert_true(clock_now_ns() - begin_ns >= 5 * NS_PER_MS);
	assert_int_equal(write(fds[1], "late", 4), 4);
	for (int i = 0; i < 10; i++)
		fiber_yield();
	for (size_t i = 0; i < sizeof(data); i++)
		assert_int_equal(data[i], '.');
	/* The byte is still there for another read. */
	assert_int_equal(fiber_uring(prep_read, &io, begin_ns + 60 * NS_PER_S), 4);
	assert_memory_equal(data, "late", 4);
	/* A deadline in the past still asks the kernel first. */
	assert_int_equal(fiber_uring(prep_read, &io, 1), -ETIMEDOUT);
	note('t');
}

static void test_a_deadline_cancels_and_frees_the_buffer(void **state)
{
	int fds[2];

	(void)state;
	assert_int_equal(pipe(fds), 0);
	rig_spawn(times_out, fds);
	rig_run();
	assert_string_equal(journal, "t");
	close(fds[0]);
	close(fds[1]);
}

static struct fiber *reader;

static void reads_then_parks(void *arg)
{
	char byte;
	struct io io = {*(int *)arg, &byte, 1, 0};

	reader = fiber_self();
	assert_int_equal(fiber_uring(prep_read, &io, DEADLINE_NONE), 1);
	note('r');
	fiber_park();
	note('p');
}

static void wakes_then_writes(void *arg)
{
	fiber_wake(reader);
	fiber_yield();
	note('w');
	assert_int_equal(write(*(int *)arg, "x", 1), 1);
}

static void test_a_wake_during_an_operation_is_remembered(void **state)
{
	int fds[2];

	(void)state;
	assert_int_equal(pipe(fds), 0);
	rig_spawn(reads_then_parks, &fds[0]);
	rig_spawn(wakes_then_writes, &fds[1]);
	rig_run();
	assert_string_equal(journal, "wrp");
	close(fds[0]);
	close(fds[1]);
}

/* A zero-copy send completes twice; the call returns with the first result after the second. */
static void sends_zero_copy(void *arg)
{
	const int *fds = arg;
	static char out[32768], in[32768];
	struct io send_io = {fds[0], out, sizeof(out), 0};
	struct io recv_io = {fds[1], in, sizeof(in), 0};
	uint32_t got = 0;

	memset(out, 'z', sizeof(out));
	assert_int_equal(fiber_uring(prep_send_zc, &send_io, DEADLINE_NONE), sizeof(out));
	while (got < sizeof(in)) {
		int bytes;

		recv_io.data = in + got;
		recv_io.len = (uint32_t)sizeof(in) - got;
		bytes = fiber_uring(prep_recv, &recv_io, DEADLINE_NONE);
		assert_true(bytes > 0);
		got += (uint32_t)bytes;
	}
	assert_memory_equal(in, out, sizeof(in));
	note('z');
}

static void loopback_pair(int fds[2])
{
	struct sockaddr_storage addr;
	socklen_t len = sizeof(addr);
	int listener = socket(AF_INET, SOCK_STREAM, 0);

	assert_true(listener >= 0);
	assert_int_equal(listen(listener, 1), 0); /* unbound: the kernel picks a port */
	assert_int_equal(getsockname(listener, (struct sockaddr *)&addr, &len), 0);
	fds[0] = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(connect(fds[0], (struct sockaddr *)&addr, len), 0);
	fds[1] = accept(listener, NULL, NULL);
	assert_true(fds[1] >= 0);
	close(listener);
}

static void test_a_zero_copy_send_returns_when_the_buffer_is_free(void **state)
{
	int fds[2];

	(void)state;
	loopback_pair(fds);
	rig_spawn(sends_zero_copy, fds);
	rig_run();
	assert_string_equal(journal, "z");
	close(fds[0]);
	close(fds[1]);
}

static uint32_t nops_done;

static void nop_done(struct uring_op *op, int result, uint32_t cqe_flags)
{
	assert_ptr_equal(op->arg, &nops_done);
	assert_int_equal(result, 0);
	assert_int_equal(cqe_flags, 0);
	nops_done++;
}

/* Far more than the eight entries of the ring and its completions. */
static void test_more_operations_than_the_ring_holds(void **state)
{
	struct uring_op op = {.done = nop_done, .arg = &nops_done};

	(void)state;
	reactor_close(rig);
	rig_open_with((struct reactor_opts){.uring_entries = 8});
	nops_done = 0;
	for (int i = 0; i < 1000; i++)
		io_uring_prep_nop(reactor_sqe(rig, &op));
	while (nops_done < 1000)
		reactor_turn_wait(rig, DEADLINE_NONE);
	/* The mailbox still wakes us, though completions overflowed. */
	reactor_stop(rig);
	reactor_run(rig);
	assert_int_equal(nops_done, 1000);
}

static void fixed_write(struct io_uring_sqe *sqe, void *arg)
{
	struct io *io = arg;

	io_uring_prep_write_fixed(sqe, io->fd, io->data, io->len, io->offset, 0);
}

static void writes_fixed(void *arg)
{
	char in[4096];
	struct io *io = arg;

	memset(io->data, 'F', io->len);
	assert_int_equal(fiber_uring(fixed_write, io, DEADLINE_NONE), io->len);
	assert_int_equal(pread(io->fd, in, sizeof(in), 0), sizeof(in));
	assert_memory_equal(in, io->data, sizeof(in));
	note('f');
}

static void test_buffers_register_before_the_first_turn(void **state)
{
	struct io io = {temporary_file(), NULL, 4096, 0};
	struct iovec iov;

	(void)state;
	io.data = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(io.data != MAP_FAILED);
	iov = (struct iovec){io.data, 4096};
	assert_int_equal(io_uring_register_buffers(reactor_uring(rig), &iov, 1), 0);
	rig_spawn(writes_fixed, &io);
	rig_run();
	assert_string_equal(journal, "f");
	close(io.fd);
	munmap(io.data, 4096);
}

/* Like an older kernel: the same work with each smaller set of features. */
static void test_lesser_rings_do_the_same(void **state)
{
	(void)state;
	for (uint32_t set = 0; set < URING_FEATURE_SETS; set++) {
		int file = temporary_file();
		int fds[2];

		reactor_close(rig);
		rig_open_with((struct reactor_opts){.uring_big = set == 1});
		io_uring_queue_exit(&rig->ring);
		assert_int_equal(uring_open(rig, set), 0);
		assert_int_equal(!!(rig->ring.flags & IORING_SETUP_SQE128), set == 1);
		assert_int_equal(pipe(fds), 0);
		rig_spawn(file_io, &file);
		rig_spawn(times_out, fds);
		rig_run();
		/* In either order: the time may be over before the file is written. */
		assert_int_equal(strlen(journal), 2);
		assert_non_null(strchr(journal, 'f'));
		assert_non_null(strchr(journal, 't'));
		close(file);
		close(fds[0]);
		close(fds[1]);
	}
}

static int said_fd;

/* Like container runtimes. The exit code is the error. */
static void open_forbidden(void)
{
	struct reactor_opts opts = {.cpu = -1};
	struct reactor *reactor;

	dup2(said_fd, STDERR_FILENO);
	rig_forbid(__NR_io_uring_setup, -1, 0, EPERM);
	_exit(-reactor_open(&opts, &reactor));
}

static void test_open_says_how_to_permit_io_uring(void **state)
{
	char said[2048] = {0};
	int fds[2], status;

	(void)state;
	assert_int_equal(pipe(fds), 0);
	said_fd = fds[1];
	status = rig_in_child(open_forbidden);
	close(fds[1]);
	assert_true(read(fds[0], said, sizeof(said) - 1) > 0);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), EPERM);
	assert_non_null(
		strstr(said, reactor_uring_disabled("") ? "kernel.io_uring_disabled=0"
							: "a seccomp profile forbids io_uring"));
	close(fds[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(test_reads_and_writes_a_file),
		RIG_TEST(test_fibers_talk_over_a_socket_pair),
		RIG_TEST(test_a_deadline_cancels_and_frees_the_buffer),
		RIG_TEST(test_a_wake_during_an_operation_is_remembered),
		RIG_TEST(test_a_zero_copy_send_returns_when_the_buffer_is_free),
		RIG_TEST(test_more_operations_than_the_ring_holds),
		RIG_TEST(test_buffers_register_before_the_first_turn),
		RIG_TEST(test_lesser_rings_do_the_same),
		RIG_TEST(test_open_says_how_to_permit_io_uring),
	};

	return cmocka_run_group_tests_name("uring", tests, NULL, NULL);
}
