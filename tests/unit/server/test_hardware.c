#include "../unit.h"

#include <errno.h>
#include <ftw.h>
#include <linux/dcbnl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/hardware.h"

static struct config config;
static char sysfs[] = "/tmp/nebulaio-sysfs-XXXXXX";
static char said[8192]; /* one line a finding: "+key: what" or "-key: what | fix" */

static void keep(void *arg, const struct hardware_finding *finding)
{
	size_t len = strlen(said);

	(void)arg;
	snprintf(said + len, sizeof(said) - len, "%c%s: %s | %s\n", finding->met ? '+' : '-',
		finding->key, finding->what, finding->fix);
}

static void check(void)
{
	said[0] = '\0';
	hardware_check(&config, sysfs, keep, NULL);
}

static void set(const char *path, const char *value)
{
	struct config_error error;

	assert_int_equal(config_set(&config, path, value, "test", &error), 0);
}

static void assert_said(const char *part)
{
	if (!strstr(said, part))
		fail_msg("it said \"%s\", not \"%s\"", said, part);
}

/* A file of the fake sysfs, with its folders. */
static void put(const char *path, const char *text)
{
	char full[512];
	FILE *file;

	snprintf(full, sizeof(full), "%s/%s", sysfs, path);
	for (char *slash = full + strlen(sysfs) + 1; (slash = strchr(slash, '/')) != NULL;
		slash++) {
		*slash = '\0';
		assert_true(mkdir(full, 0700) == 0 || errno == EEXIST);
		*slash = '/';
	}
	file = fopen(full, "we");
	assert_non_null(file);
	fputs(text, file);
	assert_int_equal(fclose(file), 0);
}

static int drop(const char *path, const struct stat *stat, int type, struct FTW *ftw)
{
	(void)stat;
	(void)type;
	(void)ftw;
	return remove(path);
}

static int setup(void **state)
{
	(void)state;
	config_defaults(&config);
	strcpy(sysfs + sizeof(sysfs) - 7, "XXXXXX");
	return mkdtemp(sysfs) ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	return nftw(sysfs, drop, 8, FTW_DEPTH | FTW_PHYS);
}

static void test_nothing_asked_nothing_said(void **state)
{
	(void)state;
	check();
	assert_string_equal(said, "");
}

static void test_gpudirect(void **state)
{
	(void)state;
	set("gpudirect.enabled", "true");
	check();
	assert_said("-gpudirect.enabled: GPUDirect goes by RDMA, which is off");
	set("rdma.enabled", "true");
	set("rdma.device_name", "simulated:seed=1");
	check();
	assert_said("-gpudirect.enabled: the simulated device does not reach GPU memory");
	set("rdma.device_name", "mlx5_0");
	check();
	assert_string_equal(said,
		"+gpudirect.enabled: bodies move by mlx5_0 straight to and from the "
		"memory that clients name, a GPU's too | \n");
	put("module/nvidia/version", "1\n");
	check();
	assert_said("| modprobe nvidia-peermem\n");
	put("module/nvidia_peermem/refcnt", "0\n");
	check();
	assert_said("+gpudirect.enabled: module nvidia_peermem is loaded");
}

static void test_dpu(void **state)
{
	(void)state;
	set("dpu.enable_rdma", "true");
	check();
	assert_said("-dpu.enabled: dpu.enabled is false");
	set("dpu.enabled", "true");
	set("dpu.enable_crypto", "true");
	set("rdma.enabled", "true");
	put("bus/pci/devices/0000:01:00.0/vendor", "0x8086\n");
	put("bus/pci/devices/0000:01:00.0/device", "0xa2d6\n");
	check();
	assert_said("-dpu.enabled: no BlueField DPU");
	assert_said("-dpu.enable_rdma: RDMA device mlx5_0 is no DPU's");
	assert_said("-dpu.enable_crypto: RDMA traffic is not encrypted by any DPU");
	put("bus/pci/devices/0000:03:00.0/vendor", "0x15b3\n");
	put("bus/pci/devices/0000:03:00.0/device", "0xa2d6\n");
	put("class/infiniband/mlx5_0/device/vendor", "0x15b3\n");
	put("class/infiniband/mlx5_0/device/device", "0xa2d6\n");
	check();
	assert_said("+dpu.enabled: BlueField-2 at 0000:03:00.0");
	assert_said("+dpu.enable_rdma: RDMA device mlx5_0 is the BlueField-2's");
	/* What cannot be seen is never called met. */
	assert_said("-dpu.enable_crypto: whether the BlueField-2 encrypts");
}

static void test_network(void **state)
{
	(void)state;
	set("network.mtu", "9000");
	check();
	assert_said(
		"-network.mtu: network.pfc, ecn and mtu are about the wire below RoCE, and RDMA is "
		"off");
	set("rdma.enabled", "true");
	check();
	assert_said("-network.mtu: no network interface belongs to mlx5_0");
	put("class/infiniband/mlx5_0/device/net/none0/mtu", "");
	put("class/net/none0/mtu", "1500\n");
	check();
	assert_said(
		"-network.mtu: none0 has MTU 1500, less than was asked for | ip link set dev none0 "
		"mtu 9000\n");
	put("class/net/none0/mtu", "9000\n");
	check();
	assert_string_equal(said, "+network.mtu: none0 has MTU 9000 | \n");
	set("network.pfc.enabled", "true");
	set("network.ecn.enabled", "true");
	put("class/net/none0/ecn/roce_np/enable/3", "1\n");
	check();
	assert_said(
		"-network.pfc.enabled: none0: whether priority 3 has flow control is not told: ");
	assert_said(
		"| mlnx_qos -i none0 --pfc 0,0,0,1,0,0,0,0   # or: dcb pfc set dev none0 prio-pfc "
		"3:on\n");
	assert_said("+network.ecn.enabled: none0: ECN (roce_np) is on for priority 3");
	assert_said("-network.ecn.enabled: none0: its driver does not tell whether ECN "
		    "(roce_rp) is on");
	assert_said("-network.ecn.threshold: from how many queued packets on (100)");
	put("class/net/none0/ecn/roce_rp/enable/3", "0\n");
	check();
	assert_said("| echo 1 > /sys/class/net/none0/ecn/roce_rp/enable/3\n");
	/* A GID's interface is nearer than the card's first. */
	put("class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0", "vlan7\n");
	check();
	assert_said("vlan7: whether priority 3");
	set("rdma.device_name", "simulated");
	check();
	assert_said(
		"-network.pfc.enabled: network.pfc, ecn and mtu are about the wire below RoCE, and "
		"the simulated device has none");
}

/* ---- The kernel's answer about flow control. ---- */

static char answer[512] __attribute__((aligned(8)));

static size_t attr_begin(size_t at, uint16_t type)
{
	((struct rtattr *)(void *)(answer + at))->rta_type = type;
	return at + sizeof(struct rtattr);
}

static void attr_end(size_t at, size_t end)
{
	((struct rtattr *)(void *)(answer + at))->rta_len = (unsigned short)(end - at);
}

static size_t answer_build(uint8_t enabled)
{
	struct nlmsghdr *head = (void *)answer;
	size_t name = NLMSG_HDRLEN + NLMSG_ALIGN(sizeof(struct dcbmsg));
	size_t ieee, at, end;
	struct ieee_pfc pfc = {.pfc_cap = 8, .pfc_en = enabled};

	memset(answer, 0, sizeof(answer));
	at = attr_begin(name, DCB_ATTR_IFNAME);
	attr_end(name, at + 5); /* padded to 8 */
	ieee = name + RTA_ALIGN(sizeof(struct rtattr) + 5);
	at = attr_begin(ieee, DCB_ATTR_IEEE);
	end = attr_begin(at, DCB_ATTR_IEEE_PFC);
	memcpy(answer + end, &pfc, sizeof(pfc));
	end += sizeof(pfc);
	attr_end(at, end);
	attr_end(ieee, end);
	head->nlmsg_type = RTM_GETDCB;
	head->nlmsg_len = (uint32_t)end;
	return end;
}

static void test_pfc_answer(void **state)
{
	size_t bytes = answer_build(0x88);
	struct nlmsghdr *head = (void *)answer;
	struct nlmsgerr *error = NLMSG_DATA(head);
	uint8_t enabled = 0;

	(void)state;
	assert_int_equal(hardware_pfc_parse(answer, bytes, &enabled), 0);
	assert_int_equal(enabled, 0x88);
	/* Cut anywhere, with the length in the head as it was or as it is now, it is refused. */
	for (size_t cut = 0; cut < bytes; cut++)
		assert_int_equal(hardware_pfc_parse(answer, cut, &enabled), -EBADMSG);
	for (size_t cut = sizeof(*head); cut < bytes; cut++) {
		head->nlmsg_len = (uint32_t)cut;
		assert_true(hardware_pfc_parse(answer, bytes, &enabled) < 0);
	}
	bytes = answer_build(0);
	head->nlmsg_type = NLMSG_ERROR;
	error->error = -ENODEV;
	assert_int_equal(hardware_pfc_parse(answer, bytes, &enabled), -ENODEV);
	error->error = 0;
	assert_int_equal(hardware_pfc_parse(answer, bytes, &enabled), -EBADMSG);
	head->nlmsg_type = RTM_NEWLINK;
	assert_int_equal(hardware_pfc_parse(answer, bytes, &enabled), -EBADMSG);
}

static void test_pfc_of_an_interface(void **state)
{
	uint8_t enabled;

	(void)state;
	assert_int_equal(hardware_pfc("an-interface-with-a-long-name", &enabled), -EINVAL);
	/* No driver that tells, or no such interface: never a made-up answer. */
	assert_true(hardware_pfc("none0", &enabled) < 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_nothing_asked_nothing_said, setup, teardown),
		cmocka_unit_test_setup_teardown(test_gpudirect, setup, teardown),
		cmocka_unit_test_setup_teardown(test_dpu, setup, teardown),
		cmocka_unit_test_setup_teardown(test_network, setup, teardown),
		cmocka_unit_test(test_pfc_answer),
		cmocka_unit_test(test_pfc_of_an_interface),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
