/* tests/unit/cli/test_written.c: no file of a run replaces another of it, and a file that a file
 * system finds by another name is noticed. */
#include "../unit.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "cli/written.h"

static char folder[] = "/tmp/test-written-XXXXXX";

/* In the place of the C library's: a folder that ignores case finds a file by names that it does
 * not list. Here these are links to the file, which are not listed. */
static const char *unlisted;

struct dirent *readdir(DIR *dir)
{
	struct dirent *(*real)(DIR *) = (struct dirent * (*)(DIR *)) dlsym(RTLD_NEXT, "readdir");
	struct dirent *entry;

	do
		entry = real(dir);
	while (entry && unlisted && !strcmp(entry->d_name, unlisted));
	return entry;
}

static const char *below(const char *name)
{
	static char paths[4][256];
	static unsigned next;
	char *path = paths[next++ % ARRAY_LEN(paths)];

	snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
	return path;
}

static void make(const char *name)
{
	int fd = open(below(name), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);

	assert_true(fd >= 0);
	assert_int_equal(close(fd), 0);
}

static int setup(void **state)
{
	(void)state;
	assert_non_null(mkdtemp(folder));
	assert_int_equal(mkdir(below("one"), 0777), 0);
	assert_int_equal(symlink("one", below("two")), 0);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	unlink(below("two"));
	rmdir(below("one"));
	return rmdir(folder);
}

static void a_file_of_the_run_is_not_replaced(void **state)
{
	struct written written;
	struct stat first, now;

	(void)state;
	assert_int_equal(written_open(&written, 4), 0);
	make("a");
	make("b");
	make("one/old");
	make("c");
	assert_int_equal(symlink("x", below("one/link")), 0);
	assert_int_equal(written_rename(&written, below("a"), below("one/x")), 0);
	assert_int_equal(stat(below("one/x"), &first), 0);
	assert_int_equal(written_rename(&written, below("b"), below("two/x")), -EEXIST);
	assert_int_equal(stat(below("one/x"), &now), 0);
	assert_int_equal(now.st_ino, first.st_ino);
	assert_int_equal(written_rename(&written, below("b"), below("two/old")), 0);
	assert_int_equal(written_rename(&written, below("c"), below("one/link")), 0);
	assert_int_equal(written_rename(&written, below("none"), below("two/y")), -ENOENT);
	written_close(&written);
	assert_int_equal(unlink(below("one/x")), 0);
	assert_int_equal(unlink(below("one/link")), 0);
	assert_int_equal(unlink(below("one/old")), 0);
}

static void many_files_are_known(void **state)
{
	enum { FILES = 300 };
	struct written written;
	char name[32];

	(void)state;
	assert_int_equal(written_open(&written, FILES), 0);
	for (unsigned pass = 0; pass < 2; pass++) {
		for (unsigned i = 0; i < FILES; i++) {
			make("part");
			snprintf(name, sizeof(name), "%s/%u", pass ? "two" : "one", i);
			assert_int_equal(written_rename(&written, below("part"), below(name)),
				pass ? -EEXIST : 0);
			assert_int_equal(access(below("part"), F_OK), pass ? 0 : -1);
			unlink(below("part"));
		}
	}
	written_close(&written);
	for (unsigned i = 0; i < FILES; i++) {
		snprintf(name, sizeof(name), "one/%u", i);
		assert_int_equal(unlink(below(name)), 0);
	}
}

/* How much of the name, to its end, is another's; 0: nothing. */
static size_t foreign(const char *name)
{
	size_t len = 0;
	char path[256];
	bool own;

	snprintf(path, sizeof(path), "%s", below(name));
	own = written_name_is_own(path, strlen(folder), &len);
	assert_int_equal(own, len == 0);
	assert_string_equal(path, below(name));
	return len ? len - strlen(folder) - 1 : 0;
}

static void another_name_of_a_file_is_noticed(void **state)
{
	(void)state;
	make("one/IMG.JPG");
	assert_int_equal(link(below("one/IMG.JPG"), below("one/img.jpg")), 0);
	assert_int_equal(foreign("one/img.jpg"), 0); /* two links, both of them listed */
	unlisted = "img.jpg";
	assert_int_equal(foreign("one/img.jpg"), strlen("one/img.jpg"));
	assert_int_equal(foreign("one/IMG.JPG"), 0);
	assert_int_equal(foreign("one/none.jpg"), 0);
	assert_int_equal(unlink(below("one/img.jpg")), 0);
	assert_int_equal(foreign("one/img.jpg"), 0);
	assert_int_equal(symlink("one", below("ONE")), 0);
	unlisted = NULL;
	assert_int_equal(foreign("ONE/IMG.JPG"), 0); /* a link of its own */
	assert_int_equal(unlink(below("ONE")), 0);
	assert_int_equal(unlink(below("one/IMG.JPG")), 0);
}

static void a_name_without_letters_is_looked_up(void **state)
{
	static const char NAME[] = "one/\xc3\xa9\xc3\xa9";

	(void)state;
	make(NAME);
	assert_int_equal(foreign(NAME), 0);
	unlisted = NAME + strlen("one/");
	assert_int_equal(foreign(NAME), strlen(NAME));
	assert_int_equal(unlink(below(NAME)), 0);
	make("one/12");
	unlisted = "12"; /* no case can make another of it */
	assert_int_equal(foreign("one/12"), 0);
	assert_int_equal(unlink(below("one/12")), 0);
	unlisted = NULL;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_file_of_the_run_is_not_replaced),
		cmocka_unit_test(many_files_are_known),
		cmocka_unit_test(another_name_of_a_file_is_noticed),
		cmocka_unit_test(a_name_without_letters_is_looked_up),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
