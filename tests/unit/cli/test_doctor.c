#include "../unit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/doctor.h"
#include "server/hardware.h"

/* Data of cards that this host does not have. */
static struct doctor doctor;

static int setup(void **state)
{
	(void)state;
	memset(&doctor, 0, sizeof(doctor));
	doctor.sysfs = "/nowhere";
	doctor.dscp = 26;
	return 0;
}

/* Expects a finding of this state whose text starts like this, with why and fix if given. */
static void assert_found(
	enum finding_state state, const char *what, const char *why, const char *fix)
{
	for (size_t i = 0; i < doctor.count; i++) {
		const struct finding *finding = &doctor.findings[i];

		if (strncmp(finding->what, what, strlen(what)) != 0)
			continue;
		assert_int_equal(finding->state, state);
		assert_string_equal(finding->area, "network");
		assert_non_null(strstr(finding->why, why));
		assert_non_null(strstr(finding->fix, fix));
		return;
	}
	fail_msg("nothing found begins with \"%s\"", what);
}

static void assert_not_found(const char *part)
{
	for (size_t i = 0; i < doctor.count; i++)
		assert_null(strstr(doctor.findings[i].what, part));
}

static struct hardware_dcb dcb_of(uint8_t pfc_priorities)
{
	struct hardware_dcb dcb = {.pfc_told = true, .pfc_priorities = pfc_priorities};

	memset(dcb.dscp_priority, -1, sizeof(dcb.dscp_priority));
	return dcb;
}

static void test_priorities_as_they_should_be(void **state)
{
	struct hardware_dcb dcb = dcb_of(0x08);

	(void)state;
	dcb.dscp_count = 2;
	dcb.dscp_priority[26] = 3;
	dcb.dscp_priority[46] = 6;
	doctor_tell_dcb(&doctor, "card0", true, 0, &dcb);
	assert_found(FINDING_OK, "card0: priority flow control, mask of priorities 0x08", "", "");
	assert_found(FINDING_INFO, "card0: priority by DSCP: 26:3 46:6", "", "");
	assert_found(FINDING_OK,
		"card0: DSCP 26, which the server sends, has priority 3, with flow control", "",
		"");
	assert_int_equal(doctor.count, 3);
}

static void test_dscp_without_flow_control(void **state)
{
	struct hardware_dcb dcb = dcb_of(0x10);

	(void)state;
	dcb.dscp_count = 1;
	dcb.dscp_priority[26] = 3;
	doctor_tell_dcb(&doctor, "card0", true, 0, &dcb);
	assert_found(FINDING_WARN,
		"card0: DSCP 26, which the server sends, has priority 3, which has no flow control",
		"dropped", "dcb pfc set dev card0 prio-pfc 3:on");
}

static void test_dscp_without_priority(void **state)
{
	struct hardware_dcb dcb = dcb_of(0);

	(void)state;
	doctor_tell_dcb(&doctor, "card0", true, 0, &dcb);
	assert_found(FINDING_WARN, "card0: no priority flow control", "it drops RoCE packets",
		"dcb pfc set dev card0 prio-pfc 3:on");
	assert_found(FINDING_WARN,
		"card0: DSCP 26, which the server sends, has no priority of its own",
		"does not protect", "dcb app add dev card0 dscp-prio 26:3");
	assert_not_found("by DSCP:");
}

static void test_paused_priorities(void **state)
{
	struct hardware_dcb dcb = dcb_of(0x28);

	(void)state;
	dcb.pfc_received[3] = 12;
	dcb.pfc_sent[5] = 7;
	doctor_tell_dcb(&doctor, "card0", false, 0, &dcb);
	assert_found(FINDING_INFO, "card0: priority 3 was paused: 12 frames received, 0 sent",
		"a receiver behind it is slow", "dcb pfc show dev card0");
	assert_found(FINDING_INFO, "card0: priority 5 was paused: 0 frames received, 7 sent",
		"this host accepts packets more slowly", "ethtool -G card0 rx 4096");
	/* Missing features of a plain interface are not reported as faults. */
	assert_not_found("DSCP");
}

static void test_nothing_told(void **state)
{
	struct hardware_dcb dcb = dcb_of(0);

	(void)state;
	doctor_tell_dcb(&doctor, "card0", false, -EOPNOTSUPP, NULL);
	assert_int_equal(doctor.count, 0);
	doctor_tell_dcb(&doctor, "card0", true, -EOPNOTSUPP, NULL);
	assert_found(FINDING_INFO,
		"card0: its driver does not report whether it has priority flow control: Operation "
		"not supported",
		"", "");
	dcb.pfc_told = false;
	dcb.dscp_count = 1;
	dcb.dscp_priority[26] = 3;
	doctor_tell_dcb(&doctor, "card1", true, 0, &dcb);
	assert_found(FINDING_INFO, "card1: its driver does not report", "", "");
	assert_found(FINDING_INFO, "card1: priority by DSCP: 26:3", "", "");
	assert_int_equal(doctor.count, 3);
}

/* The counters' names in mlx5, bnxt, ice and e1000e. */
static void test_counters(void **state)
{
	static const struct doctor_counter COUNTERS[] = {
		{"rx_packets", 1000},
		{"rx_discards_phy", 77},
		{"rx_prio3_buf_discard", 0},
		{"rx_ecn_mark", 5},
		{"rx_prio3_pause", 12},
		{"tx_priority_5_xoff.nic", 1},
		{"rx_pfc_ena_frames_pri3", 3},
		{"rx_pause_ctrl_phy", 0},
		{"tx_flow_control_xoff", 9},
		{"rx_second_queue", 4},
	};

	(void)state;
	doctor_tell_counters(&doctor, "card0", COUNTERS, sizeof(COUNTERS) / sizeof(COUNTERS[0]));
	assert_found(FINDING_WARN,
		"card0: packets were dropped because no buffer was free: rx_discards_phy 77",
		"grows", "ethtool -G card0 rx 4096");
	assert_found(FINDING_INFO,
		"card0: packets were marked as congested, or senders were notified: rx_ecn_mark 5",
		"congested", "ethtool -S card0");
	assert_found(FINDING_INFO,
		"card0: pause frames of one priority: rx_prio3_pause 12, "
		"tx_priority_5_xoff.nic 1, rx_pfc_ena_frames_pri3 3",
		"a receiver behind it is slow", "ethtool -S card0");
	assert_found(FINDING_INFO,
		"card0: pause frames that stop the whole link: tx_flow_control_xoff 9",
		"every priority", "ethtool -A card0 autoneg off rx off tx off");
	assert_int_equal(doctor.count, 4);
	assert_not_found("rx_second_queue");
}

static void test_quiet_counters(void **state)
{
	static const struct doctor_counter COUNTERS[] = {
		{"rx_packets", 1000}, {"rx_pause", 0}, {"tx_discards", 0}};

	(void)state;
	doctor_tell_counters(&doctor, "card0", COUNTERS, 3);
	assert_found(FINDING_OK, "card0: 2 counters of pause frames, discards and ECN marks, all 0",
		"", "");
	doctor_tell_counters(&doctor, "card1", COUNTERS, 1);
	assert_found(FINDING_INFO,
		"card1: its driver counts no pause frames, discards or ECN marks", "", "");
	assert_int_equal(doctor.count, 2);
}

/* More than fit in a line: the line says so. */
static void test_many_counters(void **state)
{
	struct doctor_counter counters[64];

	(void)state;
	for (size_t i = 0; i < 64; i++) {
		snprintf(counters[i].name, sizeof(counters[i].name), "rx_queue_%02zu_discards", i);
		counters[i].value = UINT64_MAX;
	}
	doctor_tell_counters(&doctor, "card0", counters, 64);
	assert_int_equal(doctor.count, 1);
	assert_non_null(
		strstr(doctor.findings[0].what, "rx_queue_00_discards 18446744073709551615,"));
	assert_non_null(strstr(doctor.findings[0].what, ", …"));
}

/* Interfaces of this host, whose drivers do not report these data. */
static void test_ipsec(void **state)
{
	(void)state;
	doctor_tell_ipsec(&doctor, 0, 0);
	assert_found(FINDING_INFO, "IPsec: no security associations", "", "");
	doctor_tell_ipsec(&doctor, 4, 0);
	assert_found(
		FINDING_INFO, "IPsec: 4 security associations, 0 of them", "offload packet", "");
	doctor_tell_ipsec(&doctor, 2, 2);
	assert_found(FINDING_INFO, "IPsec: 2 security associations, 2 of them", "", "");
}

static void test_here(void **state)
{
	(void)state;
	doctor_check_lossless(&doctor, "lo", false);
	assert_int_equal(doctor.count, 1);
	assert_found(FINDING_INFO, "lo: its driver ", "", "");
	doctor_check_lossless(&doctor, "none0", true);
	assert_found(FINDING_INFO,
		"none0: its driver does not report whether it has priority flow control: No such "
		"device",
		"", "");
	assert_found(FINDING_INFO,
		"none0: its driver does not report its counters (ethtool -S): No such device", "",
		"");
	doctor_check_lossless(&doctor, "an-interface-with-a-long-name", true);
	assert_found(
		FINDING_INFO, "an-interface-with-a-long-name: its driver does not report", "", "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_priorities_as_they_should_be, setup),
		cmocka_unit_test_setup(test_dscp_without_flow_control, setup),
		cmocka_unit_test_setup(test_dscp_without_priority, setup),
		cmocka_unit_test_setup(test_paused_priorities, setup),
		cmocka_unit_test_setup(test_nothing_told, setup),
		cmocka_unit_test_setup(test_counters, setup),
		cmocka_unit_test_setup(test_quiet_counters, setup),
		cmocka_unit_test_setup(test_many_counters, setup),
		cmocka_unit_test_setup(test_ipsec, setup),
		cmocka_unit_test_setup(test_here, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
