/* cli/doctor_lossless.c: checks the settings that prevent packet loss on an interface: pause
 * frames, priority flow control, ECN, the priority of each DSCP; and the driver's counters of
 * them. */
#include <errno.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base.h"
#include "doctor.h"
#include "server/hardware.h"

/* ---- Priorities: IEEE 802.1Qaz and 802.1Qbb, by any driver that has dcbnl. ---- */

static void tell_pfc(struct doctor *doctor, const char *name, bool rdma, uint8_t priorities)
{
	struct finding *finding;

	if (priorities) {
		doctor_note(doctor, FINDING_OK, "network",
			"%s: priority flow control, mask of priorities 0x%02x", name, priorities);
		return;
	}
	/* Reports only where packet loss does harm. */
	if (!rdma)
		return;
	finding =
		doctor_note(doctor, FINDING_WARN, "network", "%s: no priority flow control", name);
	doctor_why(finding,
		"when a switch's buffer is full, it drops RoCE packets, and they are sent "
		"again");
	doctor_fix(finding, true, "dcb pfc set dev %s prio-pfc 3:on   # and on the switch", name);
	doctor_undo(finding, "dcb pfc set dev %s prio-pfc 3:off", name);
}

static void tell_pfc_frames(struct doctor *doctor, const char *name, const struct hardware_dcb *dcb)
{
	for (unsigned i = 0; i < HARDWARE_PRIORITIES; i++) {
		struct finding *finding;

		if (!dcb->pfc_sent[i] && !dcb->pfc_received[i])
			continue;
		finding = doctor_note(doctor, FINDING_INFO, "network",
			"%s: priority %u was paused: %llu frames received, %llu sent", name, i,
			(unsigned long long)dcb->pfc_received[i],
			(unsigned long long)dcb->pfc_sent[i]);
		doctor_why(finding,
			"received: the switch has no room, because a receiver behind it is slow; "
			"sent: this host accepts packets more slowly than they arrive");
		doctor_fix(finding, false,
			dcb->pfc_sent[i] > dcb->pfc_received[i]
				? "ethtool -G %s rx 4096   # more receive descriptors; and the "
				  "server on the card's NUMA node"
				: "dcb pfc show dev %s requests indications   # on every "
				  "host: the host that sends them is slow",
			name);
	}
}

/* Writes "26:3 46:6 ", the form that dcb(8) takes. */
static void dscp_text(const struct hardware_dcb *dcb, char *text, size_t text_bytes)
{
	size_t len = 0;

	text[0] = '\0';
	for (unsigned i = 0; i < HARDWARE_DSCPS && len + 8 < text_bytes; i++) {
		if (dcb->dscp_priority[i] >= 0)
			len += (size_t)snprintf(
				text + len, text_bytes - len, " %u:%d", i, dcb->dscp_priority[i]);
	}
}

static void tell_dscp(
	struct doctor *doctor, const char *name, bool rdma, const struct hardware_dcb *dcb)
{
	char text[8 * HARDWARE_DSCPS + 1];
	int priority = dcb->dscp_priority[doctor->dscp % HARDWARE_DSCPS];
	struct finding *finding;

	if (dcb->dscp_count) {
		dscp_text(dcb, text, sizeof(text));
		doctor_note(doctor, FINDING_INFO, "network", "%s: priority by DSCP:%s", name, text);
	}
	if (!rdma)
		return;
	if (priority < 0) {
		finding = doctor_note(doctor, FINDING_WARN, "network",
			"%s: DSCP %u, which the server sends, has no priority of its own", name,
			doctor->dscp);
		doctor_why(finding,
			"its packets share the default priority, and priority flow control does "
			"not protect them");
		doctor_fix(finding, true, "dcb app add dev %s dscp-prio %u:3   # and on the switch",
			name, doctor->dscp);
		doctor_undo(finding, "dcb app del dev %s dscp-prio %u:3", name, doctor->dscp);
	} else if (dcb->pfc_told && !(dcb->pfc_priorities & 1u << priority)) {
		finding = doctor_note(doctor, FINDING_WARN, "network",
			"%s: DSCP %u, which the server sends, has priority %d, which has no flow "
			"control",
			name, doctor->dscp, priority);
		doctor_why(finding, "its packets are dropped when a buffer in the network is full");
		doctor_fix(finding, true, "dcb pfc set dev %s prio-pfc %d:on   # and on the switch",
			name, priority);
		doctor_undo(finding, "dcb pfc set dev %s prio-pfc %d:off", name, priority);
	} else if (dcb->pfc_told) {
		doctor_note(doctor, FINDING_OK, "network",
			"%s: DSCP %u, which the server sends, has priority %d, with flow control",
			name, doctor->dscp, priority);
	}
}

void doctor_tell_dcb(struct doctor *doctor, const char *interface, bool rdma, int err,
	const struct hardware_dcb *dcb)
{
	if (!err && !dcb->pfc_told)
		err = -EOPNOTSUPP;
	if (err && rdma)
		doctor_note(doctor, FINDING_INFO, "network",
			"%s: its driver does not report whether it has priority flow control: %s",
			interface, strerror(-err));
	else if (!err)
		tell_pfc(doctor, interface, rdma, dcb->pfc_priorities);
	if (dcb) {
		tell_pfc_frames(doctor, interface, dcb);
		tell_dscp(doctor, interface, rdma, dcb);
	}
}

/* ---- NVIDIA's own files. ---- */

/* NVIDIA's files, one for each priority: the notification point sends congestion packets, and the
 * reaction point obeys them. */
static void check_ecn(struct doctor *doctor, const char *name)
{
	static const char *const POINTS[] = {"roce_np", "roce_rp"};

	for (size_t i = 0; i < ARRAY_LEN(POINTS); i++) {
		char mask[9] = "........", text[16];
		struct finding *finding;
		bool told = false;

		for (unsigned priority = 0; priority < 8; priority++) {
			if (!doctor_sysfs(doctor, text, sizeof(text),
				    "class/net/%s/ecn/%s/enable/%u", name, POINTS[i], priority))
				continue;
			told = true;
			if (text[0] == '1')
				mask[priority] = (char)('0' + priority);
		}
		if (!told)
			continue;
		if (strcmp(mask, "........") != 0) {
			doctor_note(doctor, FINDING_OK, "network",
				"%s: ECN for RoCE (%s) is on for priorities %s", name, POINTS[i],
				mask);
			continue;
		}
		finding = doctor_note(doctor, FINDING_WARN, "network",
			"%s: ECN for RoCE (%s) is off for every priority", name, POINTS[i]);
		doctor_why(finding, "under congestion RoCE drops packets and sends them again");
		doctor_fix(finding, true, "echo 1 > %s/class/net/%s/ecn/%s/enable/3", doctor->sysfs,
			name, POINTS[i]);
		doctor_undo(finding, "echo 0 > %s/class/net/%s/ecn/%s/enable/3", doctor->sysfs,
			name, POINTS[i]);
	}
}

/* A file of MLNX_OFED; other drivers report this to `dcb app show`. */
static void check_trust(struct doctor *doctor, const char *name)
{
	char trust[32];
	struct finding *finding;

	if (!doctor_sysfs(doctor, trust, sizeof(trust), "class/net/%s/qos/trust", name))
		return;
	if (!strcmp(trust, "dscp")) {
		doctor_note(doctor, FINDING_OK, "network",
			"%s: a packet's DSCP decides its priority", name);
		return;
	}
	finding = doctor_note(doctor, FINDING_WARN, "network",
		"%s: a packet's priority comes from %s, not from its DSCP", name, trust);
	doctor_why(finding, "network.dscp has no effect on this card's queues");
	doctor_fix(finding, true, "mlnx_qos -i %s --trust dscp", name);
	doctor_undo(finding, "mlnx_qos -i %s --trust %s", name, trust);
}

/* ---- Counters, by each driver's own names. ---- */

enum kind { KIND_DISCARD, KIND_ECN, KIND_PFC, KIND_PAUSE, KIND_COUNT };

static const struct {
	enum finding_state state;
	const char *what, *why, *fix;
} KINDS[KIND_COUNT] = {
	[KIND_DISCARD] = {FINDING_WARN, "packets were dropped because no buffer was free",
		"RoCE sends them and all later packets again; counted since the driver was "
		"loaded: check whether it grows",
		"ethtool -G %s rx 4096   # more receive descriptors; and priority flow control, "
		"here and on the switch"},
	[KIND_ECN] = {FINDING_INFO, "packets were marked as congested, or senders were notified",
		"the path is congested, and its ends slow down as they should; counted since the "
		"driver was loaded: check whether it grows",
		"rdma statistic show link; ethtool -S %s   # which end is notified; then move "
		"load, or raise the switch's marking threshold"},
	[KIND_PFC] = {FINDING_INFO, "pause frames of one priority",
		"rx: the switch has no room, because a receiver behind it is slow; tx: this host "
		"accepts packets more slowly than they arrive",
		"ethtool -S %s | grep -i -e prio -e pfc   # where tx grows: ethtool -G, and run "
		"the server on the card's NUMA node"},
	[KIND_PAUSE] = {FINDING_INFO, "pause frames that stop the whole link",
		"every priority waits for the slowest; with priority flow control they must be "
		"off at both ends",
		"ethtool -A %s autoneg off rx off tx off   # where priority flow control is on"},
};

/* The kind of the counter with this name; KIND_COUNT: none of these. */
static enum kind kind_of(const char *name)
{
	bool pause = strcasestr(name, "pause") || strcasestr(name, "xoff");

	if (strcasestr(name, "discard"))
		return KIND_DISCARD;
	if (strcasestr(name, "ecn_") || strcasestr(name, "_ecn") || strcasestr(name, "cnp"))
		return KIND_ECN;
	if (strcasestr(name, "pfc") || (pause && strcasestr(name, "prio")))
		return KIND_PFC;
	return pause ? KIND_PAUSE : KIND_COUNT;
}

static void tell_kind(struct doctor *doctor, const char *interface, enum kind kind,
	const struct doctor_counter *counters, size_t count)
{
	unsigned found = 0;
	char text[256] = "";
	struct finding *finding;
	size_t len = 0;

	for (size_t i = 0; i < count; i++) {
		if (!counters[i].value || kind_of(counters[i].name) != kind)
			continue;
		found++;
		if (len + 64 < sizeof(text))
			len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%s %llu",
				len ? ", " : "", counters[i].name, counters[i].value);
	}
	if (!found)
		return;
	finding = doctor_note(doctor, KINDS[kind].state, "network", "%s: %s: %s%s", interface,
		KINDS[kind].what, text, len + 64 >= sizeof(text) ? ", …" : "");
	doctor_why(finding, "%s", KINDS[kind].why);
	doctor_fix(finding, false, KINDS[kind].fix, interface);
}

void doctor_tell_counters(struct doctor *doctor, const char *interface,
	const struct doctor_counter *counters, size_t count)
{
	unsigned known = 0, grown = 0;

	for (size_t i = 0; i < count; i++) {
		bool is_known = kind_of(counters[i].name) != KIND_COUNT;

		known += is_known;
		grown += is_known && counters[i].value;
	}
	if (!known)
		doctor_note(doctor, FINDING_INFO, "network",
			"%s: its driver counts no pause frames, discards or ECN marks", interface);
	else if (!grown)
		doctor_note(doctor, FINDING_OK, "network",
			"%s: %u counters of pause frames, discards and ECN marks, all 0", interface,
			known);
	for (enum kind kind = 0; kind < KIND_COUNT; kind++)
		tell_kind(doctor, interface, kind, counters, count);
}

/* ---- Reading counters: ethtool's ioctl. ---- */

/* mlx5 has some thousand counters; all past this number are ignored. */
#define COUNTERS_MAX 16384u

struct ethtool {
	int fd;
	struct ifreq request;
};

static int ethtool_ask(struct ethtool *ethtool, void *question)
{
	ethtool->request.ifr_data = question;
	return ioctl(ethtool->fd, SIOCETHTOOL, &ethtool->request) ? -errno : 0;
}

static int ethtool_count(struct ethtool *ethtool, uint32_t *ret_count)
{
	union {
		struct ethtool_sset_info info;
		uint8_t room[sizeof(struct ethtool_sset_info) + sizeof(uint32_t)];
	} question = {.info = {.cmd = ETHTOOL_GSSET_INFO, .sset_mask = 1ull << ETH_SS_STATS}};
	int ret = ethtool_ask(ethtool, &question);

	if (ret == 0)
		*ret_count = question.info.sset_mask ? question.info.data[0] : 0;
	return ret;
}

/* Copies a name that the driver chose. */
static void name_take(struct doctor_counter *counter, const uint8_t name[ETH_GSTRING_LEN])
{
	size_t len = 0;

	while (len < ETH_GSTRING_LEN && name[len] > ' ' && name[len] < 0x7f) {
		counter->name[len] = (char)name[len];
		len++;
	}
	counter->name[len] = '\0';
}

/* Allocates twice the room: the kernel writes as many as exist at that moment. */
static int counters_read(struct ethtool *ethtool, uint32_t count, struct doctor_counter *counters)
{
	struct ethtool_gstrings *names =
		calloc(1, sizeof(*names) + 2 * (size_t)count * ETH_GSTRING_LEN);
	struct ethtool_stats *values =
		calloc(1, sizeof(*values) + 2 * (size_t)count * sizeof(uint64_t));
	int ret = names && values ? 0 : -ENOMEM;

	if (ret == 0) {
		names->cmd = ETHTOOL_GSTRINGS;
		names->string_set = ETH_SS_STATS;
		names->len = count;
		ret = ethtool_ask(ethtool, names);
	}
	if (ret == 0) {
		values->cmd = ETHTOOL_GSTATS;
		values->n_stats = count;
		ret = ethtool_ask(ethtool, values);
	}
	if (ret == 0 && (names->len != count || values->n_stats != count))
		ret = -EAGAIN;
	for (uint32_t i = 0; ret == 0 && i < count; i++) {
		name_take(&counters[i], names->data + (size_t)i * ETH_GSTRING_LEN);
		counters[i].value = values->data[i];
	}
	free(names);
	free(values);
	return ret;
}

static int counters_tell(struct doctor *doctor, struct ethtool *ethtool, const char *interface)
{
	struct doctor_counter *counters;
	uint32_t count;
	int ret = ethtool_count(ethtool, &count);

	if (ret)
		return ret;
	if (count > COUNTERS_MAX)
		return -E2BIG;
	counters = calloc(count ? count : 1, sizeof(*counters));
	if (!counters)
		return -ENOMEM;
	ret = count ? counters_read(ethtool, count, counters) : 0;
	if (ret == 0)
		doctor_tell_counters(doctor, interface, counters, count);
	free(counters);
	return ret;
}

static void check_counters(struct doctor *doctor, const char *interface)
{
	struct ethtool ethtool = {.fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
	int ret = ethtool.fd < 0 ? -errno
				 : slice_copy_str(slice_str(interface), ethtool.request.ifr_name,
					   sizeof(ethtool.request.ifr_name));

	if (ret == 0)
		ret = counters_tell(doctor, &ethtool, interface);
	if (ret)
		doctor_note(doctor, FINDING_INFO, "network",
			"%s: its driver does not report its counters (ethtool -S): %s", interface,
			strerror(-ret));
	if (ethtool.fd >= 0)
		close(ethtool.fd);
}

void doctor_check_lossless(struct doctor *doctor, const char *interface, bool rdma)
{
	struct hardware_dcb dcb;
	int err = hardware_dcb(interface, &dcb);

	doctor_tell_dcb(doctor, interface, rdma, err, err ? NULL : &dcb);
	check_ecn(doctor, interface);
	check_trust(doctor, interface);
	check_counters(doctor, interface);
}
