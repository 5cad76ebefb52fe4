#include "sysfs.h"

#include <errno.h>
#include <linux/dcbnl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/hardware.h"

static struct config config;
static char said[8192]; /* one line for each finding: "+key: what" or "-key: what | fix" */

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

static int setup(void **state)
{
	config_defaults(&config);
	return sysfs_make(state);
}

static void test_a_plain_server_has_no_findings(void **state)
{
	(void)state;
	check();
	assert_string_equal(said, "");
}

static void test_numa(void **state)
{
	(void)state;
	sysfs_put("devices/system/node/online", "0\n");
	set("numa.node", "0");
	check();
	assert_string_equal(
		said, "+numa.node: 0: this host has one NUMA node: no placement needed | \n");
	set("numa.node", "7");
	check();
	assert_said("-numa.node: no node 7");
	assert_said("| numa.node: auto\n");
}

static void test_gpudirect(void **state)
{
	(void)state;
	set("gpudirect.enabled", "true");
	check();
	assert_said("-gpudirect.enabled: GPUDirect needs RDMA, which is off");
	set("rdma.enabled", "true");
	set("rdma.device_name", "simulated:seed=1");
	check();
	assert_said("-gpudirect.enabled: the simulated device does not reach GPU memory");
	set("rdma.device_name", "mlx5_0");
	check();
	assert_string_equal(said,
		"+gpudirect.enabled: bodies move by mlx5_0 directly to and from the "
		"memory of clients, including GPU memory | \n");
	sysfs_put("module/nvidia/version", "1\n");
	check();
	assert_said("| modprobe nvidia-peermem\n");
	sysfs_put("module/nvidia_peermem/refcnt", "0\n");
	check();
	assert_said("+gpudirect.enabled: module nvidia_peermem is loaded");
}

static void test_dpu(void **state)
{
	(void)state;
	set("rdma.device_name", "mlx5_0");
	set("dpu.enable_rdma", "true");
	check();
	assert_said("-dpu.enabled: dpu.enabled is false");
	set("dpu.enabled", "true");
	set("dpu.enable_crypto", "true");
	set("rdma.enabled", "true");
	sysfs_put("bus/pci/devices/0000:01:00.0/vendor", "0x8086\n");
	sysfs_put("bus/pci/devices/0000:01:00.0/device", "0xa2d6\n");
	check();
	assert_said("-dpu.enabled: no BlueField DPU");
	assert_said("-dpu.enable_rdma: RDMA device mlx5_0 does not belong to a DPU");
	assert_said("-dpu.enable_crypto: no DPU encrypts RDMA traffic");
	sysfs_put("bus/pci/devices/0000:03:00.0/vendor", "0x15b3\n");
	sysfs_put("bus/pci/devices/0000:03:00.0/device", "0xa2d6\n");
	sysfs_put("class/infiniband/mlx5_0/device/vendor", "0x15b3\n");
	sysfs_put("class/infiniband/mlx5_0/device/device", "0xa2d6\n");
	check();
	assert_said("+dpu.enabled: BlueField-2 at 0000:03:00.0");
	assert_said("+dpu.enable_rdma: RDMA device mlx5_0 belongs to the BlueField-2");
	/* A setting that cannot be read is never reported as met. */
	assert_said("-dpu.enable_crypto: the server cannot see whether the BlueField-2 encrypts");
}

static void test_network(void **state)
{
	(void)state;
	set("rdma.device_name", "mlx5_0");
	set("network.mtu", "9000");
	check();
	assert_said(
		"-network.mtu: network.pfc, ecn and mtu apply to the network below RoCE, and RDMA "
		"is off");
	set("rdma.enabled", "true");
	check();
	assert_said("-network.mtu: no network interface belongs to mlx5_0");
	sysfs_put("class/infiniband/mlx5_0/device/net/none0/mtu", "");
	sysfs_put("class/net/none0/mtu", "1500\n");
	check();
	assert_said(
		"-network.mtu: none0 has MTU 1500, less than network.mtu | ip link set dev none0 "
		"mtu 9000\n");
	sysfs_put("class/net/none0/mtu", "9000\n");
	check();
	assert_string_equal(said, "+network.mtu: none0 has MTU 9000 | \n");
	set("network.pfc.enabled", "true");
	set("network.ecn.enabled", "true");
	sysfs_put("class/net/none0/ecn/roce_np/enable/3", "1\n");
	check();
	assert_said("-network.pfc.enabled: none0: cannot find out whether priority 3 has flow "
		    "control: ");
	assert_said(
		"| mlnx_qos -i none0 --pfc 0,0,0,1,0,0,0,0   # or: dcb pfc set dev none0 prio-pfc "
		"3:on\n");
	assert_said("+network.ecn.enabled: none0: ECN (roce_np) is on for priority 3");
	assert_said("-network.ecn.enabled: none0: its driver does not report whether ECN "
		    "(roce_rp) is on");
	assert_said("-network.ecn.threshold: the ECN marking threshold (100 packets)");
	sysfs_put("class/net/none0/ecn/roce_rp/enable/3", "0\n");
	check();
	assert_said("| echo 1 > /sys/class/net/none0/ecn/roce_rp/enable/3\n");
	/* A GID's interface is preferred to the card's first one. */
	sysfs_put("class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0", "vlan7\n");
	check();
	assert_said("vlan7: cannot find out whether priority 3");
	set("rdma.device_name", "simulated");
	check();
	assert_said(
		"-network.pfc.enabled: network.pfc, ecn and mtu apply to the network below RoCE, "
		"and the simulated device has none");
}

/* ---- The kernel's answer about priorities. ---- */

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

static size_t attr_put(size_t at, uint16_t type, const void *value, size_t bytes)
{
	size_t end = attr_begin(at, type);

	memcpy(answer + end, value, bytes);
	attr_end(at, end + bytes);
	return at + RTA_ALIGN(sizeof(struct rtattr) + bytes);
}

/* The kernel's answer for a card with priority 3 lossless for DSCP 26. */
static size_t answer_build(bool pfc_told)
{
	static const struct dcb_app APPS[] = {{IEEE_8021QAZ_APP_SEL_DSCP, 3, 26},
		{IEEE_8021QAZ_APP_SEL_ETHERTYPE, 5, 0x8915}, {IEEE_8021QAZ_APP_SEL_DSCP, 6, 46},
		{IEEE_8021QAZ_APP_SEL_DSCP, 1, 46},  /* the higher one is used */
		{IEEE_8021QAZ_APP_SEL_DSCP, 3, 64},  /* an invalid DSCP, */
		{IEEE_8021QAZ_APP_SEL_DSCP, 8, 10}}; /* an invalid priority */
	const struct ieee_pfc pfc = {
		.pfc_cap = 8, .pfc_en = 0x88, .requests = {[3] = 7}, .indications = {[3] = 9}};
	struct nlmsghdr *head = (void *)answer;
	size_t name = NLMSG_HDRLEN + NLMSG_ALIGN(sizeof(struct dcbmsg));
	size_t ieee, table, at;

	memset(answer, 0, sizeof(answer));
	ieee = attr_put(name, DCB_ATTR_IFNAME, "eth0", 5);
	at = attr_begin(ieee, DCB_ATTR_IEEE);
	if (pfc_told)
		at = attr_put(at, DCB_ATTR_IEEE_PFC, &pfc, sizeof(pfc));
	table = at;
	at = attr_begin(table, DCB_ATTR_IEEE_APP_TABLE);
	for (size_t i = 0; i < sizeof(APPS) / sizeof(APPS[0]); i++)
		at = attr_put(at, DCB_ATTR_IEEE_APP, &APPS[i], sizeof(APPS[i]));
	attr_end(table, at);
	attr_end(ieee, at);
	head->nlmsg_type = RTM_GETDCB;
	head->nlmsg_len = (uint32_t)at;
	return at;
}

static void test_dcb_answer(void **state)
{
	size_t bytes = answer_build(true);
	struct nlmsghdr *head = (void *)answer;
	struct hardware_dcb dcb;

	(void)state;
	assert_int_equal(hardware_dcb_parse(answer, bytes, &dcb), 0);
	assert_true(dcb.pfc_told);
	assert_int_equal(dcb.pfc_priorities, 0x88);
	assert_int_equal(dcb.pfc_sent[3], 7);
	assert_int_equal(dcb.pfc_received[3], 9);
	assert_int_equal(dcb.pfc_received[4], 0);
	assert_int_equal(dcb.dscp_count, 2);
	assert_int_equal(dcb.dscp_priority[26], 3);
	assert_int_equal(dcb.dscp_priority[46], 6);
	assert_int_equal(dcb.dscp_priority[10], -1);
	/* A truncated answer is refused; with a shorter length in its header, it is not read past
	 * that. */
	for (size_t cut = 0; cut < bytes; cut++)
		assert_int_equal(hardware_dcb_parse(answer, cut, &dcb), -EBADMSG);
	for (size_t cut = sizeof(*head); cut < bytes; cut++) {
		head->nlmsg_len = (uint32_t)cut;
		assert_true(hardware_dcb_parse(answer, bytes, &dcb) < 0);
	}
	bytes = answer_build(false);
	assert_int_equal(hardware_dcb_parse(answer, bytes, &dcb), 0);
	assert_false(dcb.pfc_told);
	assert_int_equal(dcb.dscp_count, 2);
}

static void test_dcb_refusal(void **state)
{
	size_t bytes = answer_build(true);
	struct nlmsghdr *head = (void *)answer;
	struct nlmsgerr *error = NLMSG_DATA(head);
	struct hardware_dcb dcb;

	(void)state;
	head->nlmsg_type = NLMSG_ERROR;
	error->error = -ENODEV;
	assert_int_equal(hardware_dcb_parse(answer, bytes, &dcb), -ENODEV);
	error->error = 0;
	assert_int_equal(hardware_dcb_parse(answer, bytes, &dcb), -EBADMSG);
	head->nlmsg_type = RTM_NEWLINK;
	assert_int_equal(hardware_dcb_parse(answer, bytes, &dcb), -EBADMSG);
}

static void test_dcb_of_an_interface(void **state)
{
	struct hardware_dcb dcb;

	(void)state;
	assert_int_equal(hardware_dcb("an-interface-with-a-long-name", &dcb), -EINVAL);
	/* A driver without the data, or a missing interface: an error, never an invented answer. */
	assert_true(hardware_dcb("none0", &dcb) < 0);
	assert_true(hardware_dcb("lo", &dcb) < 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			test_a_plain_server_has_no_findings, setup, sysfs_remove),
		cmocka_unit_test_setup_teardown(test_numa, setup, sysfs_remove),
		cmocka_unit_test_setup_teardown(test_gpudirect, setup, sysfs_remove),
		cmocka_unit_test_setup_teardown(test_dpu, setup, sysfs_remove),
		cmocka_unit_test_setup_teardown(test_network, setup, sysfs_remove),
		cmocka_unit_test(test_dcb_answer),
		cmocka_unit_test(test_dcb_refusal),
		cmocka_unit_test(test_dcb_of_an_interface),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
