/* cli/doctor_link.c: checks below RDMA and AF_XDP: network interfaces, the RDMA ports' counters of
 * lost packets, the NUMA node of a device. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "doctor.h"

#define NAME_BYTES 64

/* ---- Interfaces. ---- */

/* The driver of the interface's device; false: there is none. */
static bool driver_of(const struct doctor *doctor, const char *interface, char name[NAME_BYTES])
{
	char path[DOCTOR_PATH_BYTES], target[DOCTOR_PATH_BYTES];
	ssize_t len;

	snprintf(path, sizeof(path), "%s/class/net/%s/device/driver", doctor->sysfs, interface);
	len = readlink(path, target, sizeof(target) - 1);
	if (len <= 0)
		return false;
	target[len] = '\0';
	return slice_copy_str(slice_str(basename(target)), name, NAME_BYTES) == 0;
}

/* Looks the driver up in a list, of Linux 6.1: to ask the interface itself, one must attach a
 * program to it.
 */
static const char *af_xdp_way(const char *driver)
{
	static const char *const zero_copy[] = {"i40e", "ice", "igc", "ixgbe", "mlx5_core", "nfp"};
	static const char *const native[] = {"bnxt_en", "ena", "igb", "ixgbevf", "mlx4_en", "qede",
		"sfc", "virtio_net", "vmxnet3"};

	for (size_t i = 0; i < ARRAY_LEN(zero_copy); i++) {
		if (!strcmp(driver, zero_copy[i]))
			return "its driver supports zero-copy mode";
	}
	for (size_t i = 0; i < ARRAY_LEN(native); i++) {
		if (!strcmp(driver, native[i]))
			return "its driver supports native mode, with a copy";
	}
	return "generic mode; doctor does not know this driver's modes";
}

static unsigned rx_queues(const struct doctor *doctor, const char *name)
{
	char path[DOCTOR_PATH_BYTES];
	unsigned count = 0;

	do
		snprintf(path, sizeof(path), "%s/class/net/%s/queues/rx-%u", doctor->sysfs, name,
			count);
	while (access(path, F_OK) == 0 && ++count < 1024);
	return count;
}

static void check_interface(struct doctor *doctor, const char *name)
{
	char driver[NAME_BYTES], mtu[32], state[32];
	bool has_driver, rdma;

	if (!strcmp(name, "lo") ||
		!doctor_sysfs(doctor, mtu, sizeof(mtu), "class/net/%s/mtu", name))
		return;
	if (!doctor_sysfs(doctor, state, sizeof(state), "class/net/%s/operstate", name))
		snprintf(state, sizeof(state), "unknown");
	has_driver = driver_of(doctor, name, driver);
	doctor_note(doctor, FINDING_INFO, "network", "%s: %s, MTU %s, driver %s", name, state, mtu,
		has_driver ? driver : "none (virtual)");
	doctor_note(doctor, FINDING_INFO, "network", "%s: AF_XDP: %s; %u receive queues", name,
		af_xdp_way(has_driver ? driver : ""), rx_queues(doctor, name));
	rdma = doctor_carries_rdma(doctor, name);
	doctor_check_lossless(doctor, name, rdma);
	if (rdma)
		doctor_check_wire(doctor, name);
}

void doctor_check_network(struct doctor *doctor)
{
	doctor_each(doctor, "class/net", check_interface);
	doctor_check_ipsec(doctor);
}

/* ---- Counters of ports. ---- */

/* One count is no error, but these show problems on the path. */
static const struct {
	const char *file, *why;
} COUNTERS[] = {
	{"counters/link_downed", "the link went down: cable, transceiver or switch"},
	{"counters/symbol_error", "the cable or transceiver is bad"},
	{"counters/port_rcv_errors", "corrupted packets arrived: cable or transceiver"},
	{"counters/port_xmit_discards",
		"packets could not be sent: the switch does not accept them"},
	{"hw_counters/out_of_sequence", "packets were lost in the network: PFC or ECN is missing"},
	{"hw_counters/packet_seq_err", "the peer lost our packets: PFC or ECN is missing"},
	{"hw_counters/local_ack_timeout_err", "the peer did not answer in time, see rdma.timeout"},
	{"hw_counters/rnr_nak_retry_err", "a receiver was never ready: its process hangs"},
	{"hw_counters/out_of_buffer", "no receive was posted in time"},
	{"hw_counters/np_ecn_marked_roce_packets",
		"switches marked packets: the path is congested"},
	{"hw_counters/rp_cnp_handled",
		"the network asked this host to slow down: the path is congested"},
	{"hw_counters/retry_exceeded_err", "the peer did not answer: it died, or packets are lost"},
	{"hw_counters/rcvd_seq_err", "packets were lost in the network"},
	{"hw_counters/send_rnr_err", "no receive was posted in time"},
};

static void check_port_counters(struct doctor *doctor, const char *device, unsigned port)
{
	unsigned seen = 0, shown = 0;

	for (size_t i = 0; i < ARRAY_LEN(COUNTERS); i++) {
		char text[32];
		uint64_t value;

		if (!doctor_sysfs(doctor, text, sizeof(text), "class/infiniband/%s/ports/%u/%s",
			    device, port, COUNTERS[i].file) ||
			slice_to_u64(slice_str(text), &value))
			continue;
		seen++;
		if (!value)
			continue;
		shown++;
		doctor_why(
			doctor_note(doctor, FINDING_INFO, "rdma", "%s port %u: %s is %llu", device,
				port, strchr(COUNTERS[i].file, '/') + 1, (unsigned long long)value),
			"%s; counted since the driver was loaded: check whether it grows",
			COUNTERS[i].why);
	}
	if (seen && !shown)
		doctor_note(doctor, FINDING_OK, "rdma",
			"%s port %u: %u counters of errors and congestion, all 0", device, port,
			seen);
}

static void check_counters(struct doctor *doctor, const char *device)
{
	char text[32];

	for (unsigned port = 1; doctor_sysfs(doctor, text, sizeof(text),
		     "class/infiniband/%s/ports/%u/state", device, port);
		port++) {
		char rate[48];

		if (doctor_sysfs(doctor, rate, sizeof(rate), "class/infiniband/%s/ports/%u/rate",
			    device, port))
			doctor_note(doctor, strstr(text, "ACTIVE") ? FINDING_OK : FINDING_INFO,
				"rdma", "%s port %u: %s, link speed %s", device, port, text, rate);
		check_port_counters(doctor, device, port);
	}
}

/* A virtual function's device links to its physical function; that one counts its own. */
static void tell_virtual(struct doctor *doctor, const char *device)
{
	char path[DOCTOR_PATH_BYTES], text[32];

	snprintf(path, sizeof(path), "%s/class/infiniband/%s/device/physfn", doctor->sysfs, device);
	if (access(path, F_OK) == 0)
		doctor_why(doctor_note(doctor, FINDING_INFO, "rdma",
				   "%s is an SR-IOV virtual function", device),
			"it shares its card's ports and rate with others; the host sets its MTU, "
			"flow control and trust mode on the physical function");
	else if (doctor_sysfs(doctor, text, sizeof(text), "class/infiniband/%s/device/sriov_numvfs",
			 device) &&
		 strcmp(text, "0") != 0)
		doctor_note(doctor, FINDING_INFO, "rdma",
			"%s shares its card with %s SR-IOV virtual functions", device, text);
}

/* ---- NUMA. ---- */

static void tell_node(struct doctor *doctor, const char *kind, const char *name)
{
	char node[16], cpus[128];

	if (!doctor_sysfs(doctor, node, sizeof(node), "class/%s/%s/device/numa_node", kind, name) ||
		node[0] == '-')
		return;
	if (!doctor_sysfs(doctor, cpus, sizeof(cpus), "devices/system/node/node%s/cpulist", node))
		snprintf(cpus, sizeof(cpus), "unknown");
	doctor_why(doctor_note(doctor, FINDING_INFO, "memory", "%s is on NUMA node %s", name, node),
		"its processors: %s; numa.node: %s runs the server there; numa.node: auto does so "
		"when the server uses this RDMA device",
		cpus, node);
}

static void tell_rdma_node(struct doctor *doctor, const char *name)
{
	tell_node(doctor, "infiniband", name);
}

static void tell_nvme_node(struct doctor *doctor, const char *name)
{
	tell_node(doctor, "nvme", name);
}

void doctor_check_placement(struct doctor *doctor)
{
	char nodes[64];

	doctor_each(doctor, "class/infiniband", check_counters);
	doctor_each(doctor, "class/infiniband", tell_virtual);
	if (!doctor_sysfs(doctor, nodes, sizeof(nodes), "devices/system/node/online") ||
		!strcmp(nodes, "0")) {
		doctor_note(doctor, FINDING_OK, "memory", "one NUMA node: no placement needed");
		return;
	}
	doctor_note(doctor, FINDING_INFO, "memory",
		"NUMA nodes %s: keep the server on the node of its RDMA device", nodes);
	doctor_each(doctor, "class/infiniband", tell_rdma_node);
	doctor_each(doctor, "class/nvme", tell_nvme_node);
}
