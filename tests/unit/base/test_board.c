#include "../unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "base/board.h"

static uint64_t value_of(const struct board_entry *entries, int count, const char *name)
{
	for (int i = 0; i < count; i++) {
		if (!strcmp(entries[i].name, name))
			return entries[i].value;
	}
	fail_msg("%s is not on the board", name);
	return 0;
}

static void test_a_count_is_seen(void **state)
{
	struct board_entry entries[BOARD_ENTRIES_MAX];
	_Atomic uint64_t *apples = board_place("nebulaio_apples_total"), *pears;
	int count;

	(void)state;
	pears = board_place("nebulaio_pears_total{kind=\"williams\"}");
	assert_ptr_equal(board_place("nebulaio_apples_total"), apples);
	assert_ptr_not_equal(apples, pears);
	board_add(apples, 3);
	board_add(apples, 4);
	board_set(pears, 11);
	count = board_read(getpid(), entries, ARRAY_LEN(entries));
	assert_int_equal(count, 2);
	assert_int_equal(value_of(entries, count, "nebulaio_apples_total"), 7);
	assert_int_equal(value_of(entries, count, "nebulaio_pears_total{kind=\"williams\"}"), 11);
	assert_int_equal(board_read(getpid(), entries, 1), 1);
}

static void test_no_board(void **state)
{
	struct board_entry entry;
	int status;
	pid_t child = fork();

	(void)state;
	if (child == 0)
		_exit(0);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(board_read(child, &entry, 1), -ESRCH);
	assert_int_equal(board_read(1 << 22, &entry, 1), -ESRCH);
}

/* A descriptor that has a board's name but is not a board is ignored. */
static void test_false_boards(void **state)
{
	struct board_entry entries[BOARD_ENTRIES_MAX];
	int before = board_read(getpid(), entries, ARRAY_LEN(entries));
	int unsealed = memfd_create(BOARD_FD_PREFIX, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int wrong = memfd_create(BOARD_FD_PREFIX, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int small = memfd_create(BOARD_FD_PREFIX, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	uint8_t bytes[4 * FRAME_BYTES];

	(void)state;
	memset(bytes, 0xff, sizeof(bytes));
	memcpy(bytes, "nebbrd01", 8);
	assert_int_equal(write(unsealed, bytes, sizeof(bytes)), sizeof(bytes));
	assert_int_equal(write(small, bytes, 100), 100);
	bytes[0] = 'x';
	assert_int_equal(write(wrong, bytes, sizeof(bytes)), sizeof(bytes));
	assert_int_equal(fcntl(small, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	assert_int_equal(fcntl(wrong, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	assert_int_equal(board_read(getpid(), entries, ARRAY_LEN(entries)), before);
	/* Sealed and with the right magic, but with more entries than possible, without text. */
	bytes[0] = 'n';
	assert_int_equal(pwrite(wrong, bytes, sizeof(bytes), 0), sizeof(bytes));
	assert_in_range(
		board_read(getpid(), entries, ARRAY_LEN(entries)), before, ARRAY_LEN(entries));
	for (uint32_t i = 0; i < ARRAY_LEN(entries); i++)
		assert_non_null(memchr(entries[i].name, 0, sizeof(entries[i].name)));
	close(unsealed);
	close(wrong);
	close(small);
}

static void test_a_full_board(void **state)
{
	struct board_entry entries[BOARD_ENTRIES_MAX + 1];
	char name[BOARD_NAME_BYTES + 1];
	_Atomic uint64_t *place;

	(void)state;
	for (uint32_t i = 0; i < BOARD_ENTRIES_MAX + 10; i++) {
		snprintf(name, sizeof(name), "nebulaio_filler_%u_total", i);
		place = board_place(name);
		assert_non_null(place);
		board_set(place, 1);
	}
	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	assert_non_null(board_place(name));
	assert_int_equal(board_read(getpid(), entries, ARRAY_LEN(entries)), (int)BOARD_ENTRIES_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_count_is_seen),
		cmocka_unit_test(test_no_board),
		cmocka_unit_test(test_false_boards),
		cmocka_unit_test(test_a_full_board),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
