/* tests/unit/server/test_key_files.c: the key files: made and made again, also when a start was
 * killed meanwhile, and what the log says of their sealed copies. The store is a stand-in. */
#include "../log_catch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "codec/codec.h"
#include "server/identities.h"
#include "server/recovery.h"

#define RECOVERY_KEY "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
#define SECRETS	     "the thirty-two bytes of the key."

/* ---- The store. ---- */

static struct {
	int is_protected;
	uint8_t text[8192];
	size_t len;
} kept;

int store_protected(const struct store *store)
{
	(void)store;
	return kept.is_protected;
}

int store_keep(struct store *store, const char *name, struct slice text)
{
	(void)store;
	assert_string_equal(name, "secrets.key");
	assert_true(text.len <= sizeof(kept.text));
	memcpy(kept.text, text.data, text.len);
	kept.len = text.len;
	return 0;
}

int store_kept(struct store *store, const char *name, struct buf *out)
{
	(void)store;
	assert_string_equal(name, "secrets.key");
	if (!kept.len)
		return -ENOENT;
	buf_put(out, kept.text, kept.len);
	return 0;
}

/* ---- A folder with the recovery key. ---- */

struct folder {
	char path[128], secrets[160];
	struct config config;
	struct recovery_file file;
};

static void write_text(const char *path, const char *text)
{
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
}

static void folder_make(struct folder *folder)
{
	char key[160];

	memset(folder, 0, sizeof(*folder));
	memset(&kept, 0, sizeof(kept));
	snprintf(folder->path, sizeof(folder->path), "%s/nebulaio-keys-XXXXXX",
		getenv("TMPDIR") ? getenv("TMPDIR") : ".");
	assert_non_null(mkdtemp(folder->path));
	snprintf(folder->secrets, sizeof(folder->secrets), "%s/secrets.key", folder->path);
	snprintf(key, sizeof(key), "%s/recovery.key", folder->path);
	write_text(key, RECOVERY_KEY "\n");
	snprintf(folder->config.storage.recovery_key_file,
		sizeof(folder->config.storage.recovery_key_file), "%s", key);
	folder->file = (struct recovery_file){"secrets.key", folder->secrets};
}

static void folder_remove(const struct folder *folder)
{
	char command[400];

	snprintf(command, sizeof(command), "rm -r '%s'", folder->path);
	assert_int_equal(system(command), 0);
}

/* The log lines of fn. */
static int logged(struct folder *folder, int (*fn)(struct folder *folder), char text[4096])
{
	int ret;

	log_catch();
	ret = fn(folder);
	snprintf(text, 4096, "%s", log_caught());
	return ret;
}

static int keep(struct folder *folder)
{
	return recovery_keep(&folder->config, NULL, &folder->file, 1);
}

static int restore(struct folder *folder)
{
	return recovery_restore(&folder->config, NULL, &folder->file, 1);
}

/* ---- Tests. ---- */

/* A process of a container has the number of the one that was killed. */
static void test_made_after_a_kill(void **state)
{
	uint8_t key[IDENTITIES_KEY_BYTES], again[IDENTITIES_KEY_BYTES];
	struct config_error error;
	struct folder folder;
	char part[350];

	(void)state;
	folder_make(&folder);
	snprintf(part, sizeof(part), "%s.%d", folder.secrets, (int)getpid());
	write_text(part, "half");
	assert_int_equal(identities_key(folder.secrets, true, key, &error), 0);
	assert_int_equal(access(part, F_OK), -1);
	assert_int_equal(identities_key(folder.secrets, false, again, &error), 0);
	assert_memory_equal(key, again, sizeof(key));
	folder_remove(&folder);
}

static void test_made_again_after_a_kill(void **state)
{
	char part[350], text[4096];
	struct folder folder;
	struct stat info;

	(void)state;
	folder_make(&folder);
	kept.is_protected = 1;
	write_text(folder.secrets, SECRETS);
	assert_int_equal(logged(&folder, keep, text), 0);
	assert_non_null(strstr(text, "has a sealed copy in the volumes"));
	assert_int_equal(unlink(folder.secrets), 0);
	snprintf(part, sizeof(part), "%s.part", folder.secrets);
	write_text(part, "half");
	assert_int_equal(logged(&folder, restore, text), 0);
	assert_int_equal(access(part, F_OK), -1);
	assert_int_equal(stat(folder.secrets, &info), 0);
	assert_int_equal(info.st_size, strlen(SECRETS));
	assert_int_equal(info.st_mode & 0777, 0600);
	folder_remove(&folder);
}

/* The copy is in memory, and nothing is in the volumes. */
static void test_no_room_is_told(void **state)
{
	struct folder folder;
	char text[4096];

	(void)state;
	folder_make(&folder);
	write_text(folder.secrets, SECRETS);
	assert_int_equal(logged(&folder, keep, text), 0);
	assert_null(strstr(text, "has a sealed copy"));
	assert_non_null(strstr(text, "has no sealed copy in the volumes yet"));
	folder_remove(&folder);
}

/* The file stays missing, so that nothing is made in its place. */
static void test_another_recovery_key(void **state)
{
	struct folder folder;
	char text[4096];

	(void)state;
	folder_make(&folder);
	kept.is_protected = 1;
	write_text(folder.secrets, SECRETS);
	assert_int_equal(logged(&folder, keep, text), 0);
	assert_int_equal(unlink(folder.secrets), 0);
	write_text(folder.config.storage.recovery_key_file,
		"ABECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n");
	assert_int_equal(logged(&folder, restore, text), -EBADMSG);
	assert_non_null(strstr(text, "is not the key that it was sealed under"));
	assert_int_equal(access(folder.secrets, F_OK), -1);
	folder_remove(&folder);
}

/* ---- The accounts' file. ---- */

static int accounts_read(const char *text, char **ret_json, struct config_error *ret_error)
{
	char path[] = "/tmp/nebulaio-accounts-XXXXXX";
	int fd = mkstemp(path), ret;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
	ret = identities_load(path, ret_json, ret_error);
	unlink(path);
	return ret;
}

/* A part that cannot be read refuses the file: a denial may stand behind it. */
static void test_accounts_are_read_whole_or_refused(void **state)
{
	static const char *const BAD[] = {"? [a, b]\n: c\nStatement: deny\n",
		"first: 1\n? {a: b}\n: c\nStatement: deny\n", "a: 1\na: 2\n", ""};
	char bomb[1024] = "a0: &a0 [x, x]\n", *json = NULL;
	struct config_error error;

	(void)state;
	assert_int_equal(accounts_read("a: [true, '1', 01]\nb: {c: d}\n", &json, &error), 0);
	assert_string_equal(json, "{\"a\":[true,\"1\",\"01\"],\"b\":{\"c\":\"d\"}}");
	free(json);
	for (size_t i = 0; i < ARRAY_LEN(BAD); i++)
		assert_int_equal(accounts_read(BAD[i], &json, &error), -EINVAL);
	/* Two million parts of twenty lines. */
	for (uint32_t i = 1; i < 20; i++)
		snprintf(bomb + strlen(bomb), sizeof(bomb) - strlen(bomb),
			"a%u: &a%u [*a%u, *a%u]\n", i, i, i - 1, i - 1);
	assert_int_equal(accounts_read(bomb, &json, &error), -EINVAL);
	assert_non_null(strstr(error.text, "too many parts"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_made_after_a_kill),
		cmocka_unit_test(test_made_again_after_a_kill),
		cmocka_unit_test(test_no_room_is_told),
		cmocka_unit_test(test_another_recovery_key),
		cmocka_unit_test(test_accounts_are_read_whole_or_refused),
	};

	return cmocka_run_group_tests_name("key_files", tests, NULL, NULL);
}
