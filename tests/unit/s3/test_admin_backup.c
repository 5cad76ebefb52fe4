/* Covers s3/identity/admin_backup.c: lists of bodies that are refused before a session is looked
 * for. The session of these requests does not exist: 410. */
#include "../unit.h"

#include <stdlib.h>

#include "fake.h"
#include "s3/identity/admin.h"
#include "store/backup.h"

/* The status of a request for bodies of these lengths. */
static uint32_t bodies(const uint32_t *bytes, uint32_t count)
{
	struct admin_answer answer = {0};
	struct fake_call asked;
	struct s3_call call = {.magic = S3_CALL_MAGIC,
		.s3 = fake_s3,
		.request = &asked.request,
		.reply = &asked.reply,
		.operation = s3_operation_at(S3_OPERATION_SERVICE),
		.identity = &fake_root};
	struct buf text;

	buf_init(&text, KIB);
	for (uint32_t i = 0; i < count; i++) {
		const uint32_t head[2] = {3, bytes[i]};

		buf_put(&text, head, sizeof(head));
		buf_put(&text, "key", 3);
	}
	fake_call_init(&asked, "POST", "/admin/v1/backups/7/bodies", "");
	fake_call_body(&asked, buf_slice(&text));
	mem_arena_init(&call.arena);
	assert_false(s3_admin_backup(&call, SLICE("7/bodies"), &answer));
	mem_arena_free(&call.arena);
	fake_call_free(&asked);
	buf_free(&text);
	return answer.status;
}

static void test_bodies_are_answered_whole_or_refused(void **state)
{
	const uint32_t max = STORE_BACKUP_READ_BYTES;

	(void)state;
	assert_int_equal(bodies((const uint32_t[]){max}, 1), 410);
	assert_int_equal(bodies((const uint32_t[]){max - 1, 1}, 2), 410);
	assert_int_equal(bodies((const uint32_t[]){max + 1}, 1), 400);
	assert_int_equal(bodies((const uint32_t[]){UINT32_MAX}, 1), 400);
	assert_int_equal(bodies((const uint32_t[]){max, 1}, 2), 400);
}

static int tests_run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			test_bodies_are_answered_whole_or_refused, fake_open, fake_close),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
	return fake_main(tests_run);
}
