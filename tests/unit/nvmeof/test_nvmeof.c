/* tests/unit/nvmeof/test_nvmeof.c: names of volumes, this host's name, what sysfs tells, and the
 * steps of an export; the kernel's part is in tests/e2e/vm/fabrics.py. */
#include "../unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nvmeof/nvmeof_priv.h"

#define NQN "nqn.2026-11.org.example:disk"

/* ---- Names. ---- */

static void names_are_read(void **state)
{
	struct nvmeof_name name;
	char why[512];

	(void)state;
	assert_int_equal(nvmeof_name_parse("nvmeof://192.0.2.1/" NQN, &name, why, sizeof(why)), 0);
	assert_int_equal(name.address_count, 1);
	assert_string_equal(name.addresses[0].host, "192.0.2.1");
	assert_int_equal(name.addresses[0].port, NVMEOF_PORT);
	assert_string_equal(name.nqn, NQN);
	assert_int_equal(name.transport, NVMEOF_RDMA);
	assert_int_equal(name.nsid, 1);
	assert_int_equal(name.ctrl_loss_tmo, -1);
	assert_int_equal(nvmeof_name_parse("nvmeof://a:1,[fe80::1]:65535+b/" NQN
					   "?transport=tcp&nsid=7&ctrl_loss_tmo=60&queue_size=64"
					   "&hostnqn=nqn.2014-08.org.x:h"
					   "&dhchap_secret_file=/etc/nvme/secret",
				 &name, why, sizeof(why)),
		0);
	assert_int_equal(name.address_count, 3);
	assert_int_equal(name.addresses[0].port, 1);
	assert_string_equal(name.addresses[1].host, "fe80::1");
	assert_int_equal(name.addresses[1].port, 65535);
	assert_string_equal(name.addresses[2].host, "b");
	assert_int_equal(name.transport, NVMEOF_TCP);
	assert_int_equal(name.nsid, 7);
	assert_int_equal(name.ctrl_loss_tmo, 60);
	assert_int_equal(name.queue_size, 64);
	assert_string_equal(name.host_nqn, "nqn.2014-08.org.x:h");
	assert_string_equal(name.secret_file, "/etc/nvme/secret");
}

/* The reason names the wrong part. */
static void names_are_refused(void **state)
{
	static const struct {
		const char *path, *why;
	} NAMES[] = {
		{"rdma://a/" NQN, "does not begin"},
		{"nvmeof://a", "no NQN follows"},
		{"nvmeof://a/", "is no NQN"},
		{"nvmeof:///" NQN, "is no address"},
		{"nvmeof://a,/" NQN, "is no address"},
		{"nvmeof://a:0/" NQN, "is no port"},
		{"nvmeof://a:65536/" NQN, "is no port"},
		{"nvmeof://a:/" NQN, "is no port"},
		{"nvmeof://[::1/" NQN, "is no address"},
		{"nvmeof://[::1]x/" NQN, "is no address"},
		{"nvmeof://a,b,c,d,e/" NQN, "more than 4"},
		{"nvmeof://a/disk", "is no NQN"},
		{"nvmeof://a/nqn.x,transport=tcp", "is no NQN"},
		{"nvmeof://a/nqn.x y", "is no NQN"},
		{"nvmeof://a/" NQN "?", "is no option"},
		{"nvmeof://a/" NQN "?transport=udp", "it is rdma or tcp"},
		{"nvmeof://a/" NQN "?nsid=0", "it is a number from 1"},
		{"nvmeof://a/" NQN "?nsid=x", "it is a number from 1"},
		{"nvmeof://a/" NQN "?ctrl_loss_tmo=-2", "it is -1, or 0"},
		{"nvmeof://a/" NQN "?queue_size=8", "it is a number from 16"},
		{"nvmeof://a/" NQN "?hostnqn=x", "not a valid value"},
		{"nvmeof://a/" NQN "?hostid=1", "not a valid value"},
		{"nvmeof://a/" NQN "?dhchap_secret_file=x", "not a valid value"},
		{"nvmeof://a/" NQN "?dhchap_ctrl_secret_file=/x", "needs dhchap_secret_file"},
		{"nvmeof://a/" NQN "?colour=red", "is no option"},
	};
	struct nvmeof_name name;
	char why[512], path[1024];

	(void)state;
	for (size_t i = 0; i < sizeof(NAMES) / sizeof(*NAMES); i++) {
		assert_int_equal(
			nvmeof_name_parse(NAMES[i].path, &name, why, sizeof(why)), -EINVAL);
		if (!strstr(why, NAMES[i].why))
			fail_msg("%s: %s", NAMES[i].path, why);
	}
	/* 223 bytes are the most. */
	snprintf(path, sizeof(path), "nvmeof://a/nqn.%0219d", 1);
	assert_int_equal(nvmeof_name_parse(path, &name, why, sizeof(why)), 0);
	snprintf(path, sizeof(path), "nvmeof://a/nqn.%0220d", 1);
	assert_int_equal(nvmeof_name_parse(path, &name, why, sizeof(why)), -EINVAL);
}

/* ---- A copy of the kernel's files. ---- */

struct tree {
	char root[512];
	char sys[600], dev[600], run[600], etc[600];
	struct nvmeof_place place;
};

static void file_put(const struct tree *tree, const char *path, const char *text)
{
	char full[1200], *slash;
	int fd;

	snprintf(full, sizeof(full), "%s/%s", tree->root, path);
	for (slash = full + strlen(tree->root) + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = '\0';
		(void)mkdir(full, 0700);
		*slash = '/';
	}
	fd = open(full, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static int tree_make(void **state)
{
	struct tree *tree = calloc(1, sizeof(*tree));
	const char *base = getenv("TMPDIR");

	snprintf(tree->root, sizeof(tree->root), "%s/nebulaio-nvmeof-XXXXXX", base ? base : "/tmp");
	assert_non_null(mkdtemp(tree->root));
	snprintf(tree->sys, sizeof(tree->sys), "%s/sys", tree->root);
	snprintf(tree->dev, sizeof(tree->dev), "%s/dev", tree->root);
	snprintf(tree->run, sizeof(tree->run), "%s/run", tree->root);
	snprintf(tree->etc, sizeof(tree->etc), "%s/etc", tree->root);
	tree->place = (struct nvmeof_place){tree->sys, tree->dev, tree->run, tree->etc};
	assert_int_equal(mkdir(tree->run, 0700), 0);
	*state = tree;
	return 0;
}

static int tree_end(void **state)
{
	struct tree *tree = *state;
	char command[600];

	snprintf(command, sizeof(command), "rm -r '%s'", tree->root);
	assert_int_equal(system(command), 0);
	free(tree);
	return 0;
}

static void controller_put(
	const struct tree *tree, const char *name, const char *address, const char *state)
{
	const char *const NAMES[] = {"subsysnqn", "transport", "state", "address"};
	const char *const VALUES[] = {NQN "\n", "tcp\n", state, address};
	char path[200];

	for (size_t i = 0; i < 4; i++) {
		snprintf(path, sizeof(path), "sys/class/nvme/%s/%s", name, NAMES[i]);
		file_put(tree, path, VALUES[i]);
	}
}

static void this_host_has_a_name(void **state)
{
	const struct tree *tree = *state;
	struct nvmeof_host host, again;

	assert_int_equal(nvmeof_host_find(&tree->place, &host), -ENOENT);
	file_put(tree, "etc/machine-id", "0123456789abcdef0123456789abcdef\n");
	assert_int_equal(nvmeof_host_find(&tree->place, &host), 0);
	assert_true(host.derived && nvmeof_nqn_valid(slice_str(host.nqn)));
	assert_int_equal(nvmeof_host_find(&tree->place, &again), 0);
	assert_string_equal(host.nqn, again.nqn);
	assert_non_null(strstr(host.nqn, host.id));
	file_put(tree, "etc/nvme/hostnqn", "nonsense\n");
	assert_int_equal(nvmeof_host_find(&tree->place, &host), -EINVAL);
	file_put(tree, "etc/nvme/hostnqn",
		"nqn.2014-08.org.nvmexpress:uuid:5a1e0c1e-0001-4000-8000-000000000001\n");
	assert_int_equal(nvmeof_host_find(&tree->place, &host), 0);
	assert_false(host.derived);
	assert_string_equal(host.id, "5a1e0c1e-0001-4000-8000-000000000001");
	file_put(tree, "etc/nvme/hostid", "5a1e0c1e-0001-4000-8000-000000000002\n");
	assert_int_equal(nvmeof_host_find(&tree->place, &host), 0);
	assert_string_equal(host.id, "5a1e0c1e-0001-4000-8000-000000000002");
}

/* A connection that is there is used, and not ended by us. */
static void a_connection_is_used(void **state)
{
	const struct tree *tree = *state;
	struct nvmeof *link;

	controller_put(tree, "nvme0", "traddr=127.0.0.2,trsvcid=4420\n", "live\n");
	controller_put(
		tree, "nvme1", "traddr=127.0.0.1,trsvcid=4420,src_addr=127.0.0.1\n", "live\n");
	file_put(tree, "sys/block/nvme1c1n1/nsid", "1\n");
	file_put(tree, "sys/block/nvme1n1/nsid", "1\n");
	file_put(tree, "sys/block/nvme1n1/device/subsysnqn", NQN "\n");
	file_put(tree, "sys/block/nvme1n2/nsid", "2\n");
	file_put(tree, "sys/block/nvme1n2/device/subsysnqn", NQN "\n");
	file_put(tree, "sys/block/nvme2n2/nsid", "2\n");
	file_put(tree, "sys/block/nvme2n2/device/subsysnqn", "nqn.other\n");
	file_put(tree, "dev/nvme1n2", "");
	assert_int_equal(nvmeof_open("nvmeof://127.0.0.1/" NQN "?transport=tcp&nsid=2",
				 &tree->place, false, &link),
		0);
	assert_non_null(strstr(nvmeof_node(link), "/dev/nvme1n2"));
	assert_true(nvmeof_live(link));
	controller_put(tree, "nvme0", "traddr=127.0.0.2,trsvcid=4420\n", "connecting\n");
	assert_true(nvmeof_live(link));
	controller_put(tree, "nvme1", "traddr=127.0.0.1,trsvcid=4420\n", "resetting\n");
	assert_false(nvmeof_live(link));
	nvmeof_close(link);
	/* Another port is another path; it cannot be connected here. */
	assert_int_equal(nvmeof_open("nvmeof://127.0.0.1:4421/" NQN
				     "?transport=tcp&hostnqn=nqn.2014-08.org.x:h",
				 &tree->place, false, &link),
		-ENODEV);
	/* Several paths need the kernel's multipath. */
	assert_int_equal(nvmeof_open("nvmeof://127.0.0.1,127.0.0.2/" NQN
				     "?transport=tcp&hostnqn=nqn.2014-08.org.x:h",
				 &tree->place, false, &link),
		-EOPNOTSUPP);
}

/* A process uses the path, which then becomes another one, and ends: the text is the one that it
 * has written to the controller. */
static void path_end(const struct tree *tree, const char *nqn, const char *address, char *ret_text)
{
	struct nvmeof *link;
	char path[700];
	int status, fd;
	ssize_t len;
	pid_t pid;

	controller_put(tree, "nvme1", "traddr=127.0.0.1,trsvcid=4420\n", "live\n");
	file_put(tree, "sys/class/nvme/nvme1/delete_controller", "");
	file_put(tree, "sys/block/nvme1n1/nsid", "1\n");
	file_put(tree, "sys/block/nvme1n1/device/subsysnqn", NQN "\n");
	file_put(tree, "dev/nvme1n1", "");
	/* A killed process has left it, so it is taken over. */
	file_put(tree, "run/nebulaio-nvmeof.nvme1", NQN);
	(void)fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		if (nvmeof_open(
			    "nvmeof://127.0.0.1/" NQN "?transport=tcp", &tree->place, false, &link))
			_exit(1);
		nvmeof_close(link);
		file_put(tree, "sys/class/nvme/nvme1/subsysnqn", nqn);
		file_put(tree, "sys/class/nvme/nvme1/address", address);
		exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	snprintf(path, sizeof(path), "%s/class/nvme/nvme1/delete_controller", tree->sys);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	len = read(fd, ret_text, 7);
	close(fd);
	ret_text[len > 0 ? len : 0] = '\0';
	snprintf(path, sizeof(path), "%s/nebulaio-nvmeof.nvme1", tree->run);
	assert_int_equal(access(path, F_OK), -1);
}

/* A path that was removed leaves its number to the next one that anybody connects. */
static void a_path_of_somebody_else_is_not_ended(void **state)
{
	const struct tree *tree = *state;
	char text[8];

	path_end(tree, NQN "\n", "traddr=127.0.0.1,trsvcid=4420\n", text);
	assert_string_equal(text, "1");
	path_end(tree, "nqn.2026-11.org.example:other\n", "traddr=127.0.0.1,trsvcid=4420\n", text);
	assert_string_equal(text, "");
	path_end(tree, NQN "\n", "traddr=127.0.0.1,trsvcid=4421\n", text);
	assert_string_equal(text, "");
}

static struct nvmeof_export export = {.nqn = NQN, .device = "/dev/sdx"};

static void an_export_is_shown(void **state)
{
	static const char *const HOSTS[] = {"nqn.2014-08.org.x:a", "nqn.2014-08.org.x:b"};
	const struct tree *tree = *state;
	struct nvmeof_target_opts opts = {.root = tree->sys,
		.transport = NVMEOF_TCP,
		.address = "192.0.2.1",
		.port = 4420,
		.exports = &export,
		.export_count = 1,
		.hosts = HOSTS,
		.host_count = 2};
	struct buf out;

	file_put(tree, "sys/ports/19968/addr_traddr", "");
	buf_init(&out, MIB);
	assert_int_equal(nvmeof_target_show(&opts, &out), 0);
	buf_put(&out, "", 1);
	assert_non_null(strstr(out.data, "allowed_hosts/nqn.2014-08.org.x:b\n"));
	assert_null(strstr(out.data, "allow_any"));
	assert_non_null(strstr(out.data, "'/dev/sdx' > "));
	/* A port that is there is not touched. */
	assert_null(strstr(out.data, "ports/19968"));
	assert_non_null(strstr(out.data, "'192.0.2.1' > "));
	assert_non_null(strstr(out.data, "/ports/19969/subsystems/" NQN "\n"));
	buf_reset(&out);
	opts.allow_any = true;
	opts.host_count = 0;
	assert_int_equal(nvmeof_target_show(&opts, &out), 0);
	buf_put(&out, "", 1);
	assert_non_null(strstr(out.data, "'1' > "));
	assert_non_null(strstr(out.data, "/attr_allow_any_host\n"));
	buf_free(&out);
}

/* A subsystem of somebody else, or of a living process, is not touched. */
static void foreign_exports_stay(void **state)
{
	const struct tree *tree = *state;
	struct nvmeof_target_opts opts = {.root = tree->sys,
		.address = "192.0.2.1",
		.port = 4420,
		.exports = &export,
		.export_count = 1,
		.allow_any = true};
	struct nvmeof_target *target;
	char path[1200];
	int fd;

	assert_int_equal(nvmeof_target_open(&opts, &target), -ENODEV);
	file_put(tree, "sys/subsystems/" NQN "/attr_model", "Linux\n");
	assert_int_equal(nvmeof_target_open(&opts, &target), -EEXIST);
	assert_int_equal(nvmeof_target_clear(tree->sys), 0);
	file_put(tree, "sys/subsystems/" NQN "/attr_model", NVMEOF_MODEL "\n");
	snprintf(path, sizeof(path), "%s/sys/subsystems/" NQN, tree->root);
	fd = open(path, O_RDONLY | O_DIRECTORY);
	assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
	assert_int_equal(nvmeof_target_open(&opts, &target), -EBUSY);
	assert_int_equal(nvmeof_target_clear(tree->sys), 0);
	assert_int_equal(access(path, F_OK), 0);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_are_read),
		cmocka_unit_test(names_are_refused),
		cmocka_unit_test_setup_teardown(this_host_has_a_name, tree_make, tree_end),
		cmocka_unit_test_setup_teardown(a_connection_is_used, tree_make, tree_end),
		cmocka_unit_test_setup_teardown(
			a_path_of_somebody_else_is_not_ended, tree_make, tree_end),
		cmocka_unit_test_setup_teardown(an_export_is_shown, tree_make, tree_end),
		cmocka_unit_test_setup_teardown(foreign_exports_stay, tree_make, tree_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
