/* cli/doctor_wire.c: checks whether RDMA has a network of its own, and the protection of packets
 * there: VLAN, MACsec, IPsec. */
#include <dirent.h>
#include <errno.h>
#include <linux/netlink.h>
#include <linux/xfrm.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/base.h"
#include "doctor.h"

#define ANSWER_BYTES (64 * KIB)
#define WAIT_S	     2
#ifndef XFRM_OFFLOAD_PACKET
#define XFRM_OFFLOAD_PACKET 4
#endif

bool doctor_carries_rdma(const struct doctor *doctor, const char *interface)
{
	char path[DOCTOR_PATH_BYTES], name[64];
	struct dirent *entry;
	bool found;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/class/net/%s/device/infiniband", doctor->sysfs, interface);
	found = access(path, F_OK) == 0;
	snprintf(path, sizeof(path), "%s/class/infiniband", doctor->sysfs);
	dir = opendir(path);
	while (dir && !found && (entry = readdir(dir)) != NULL)
		found = entry->d_name[0] != '.' &&
			doctor_sysfs(doctor, name, sizeof(name),
				"class/infiniband/%s/ports/1/gid_attrs/ndevs/0", entry->d_name) &&
			!strcmp(name, interface);
	if (dir)
		closedir(dir);
	return found;
}

/* The kernel's word for the kind of a virtual interface; "" for others. */
static void kind_of(const struct doctor *doctor, const char *interface, char kind[16])
{
	char path[DOCTOR_PATH_BYTES], line[128];
	FILE *file;

	kind[0] = '\0';
	snprintf(path, sizeof(path), "%s/class/net/%s/uevent", doctor->sysfs, interface);
	file = fopen(path, "re");
	while (file && !kind[0] && fgets(line, sizeof(line), file))
		if (sscanf(line, "DEVTYPE=%15s", kind) != 1)
			kind[0] = '\0';
	if (file)
		fclose(file);
}

static void tell_upper(struct doctor *doctor, const char *interface, const char *upper)
{
	char kind[16];

	kind_of(doctor, upper, kind);
	if (!strcmp(kind, "vlan"))
		doctor_why(doctor_note(doctor, FINDING_INFO, "network", "%s: %s is a VLAN of it",
				   interface, upper),
			"RDMA uses the VLAN when rdma.address is an address of %s", upper);
	else if (!strcmp(kind, "macsec"))
		doctor_why(doctor_note(doctor, FINDING_INFO, "network", "%s: MACsec by %s",
				   interface, upper),
			"RoCE packets pass it only where the card does MACsec by itself; "
			"rdma.encryption: required protects sessions on any network");
}

static void tell_uppers(struct doctor *doctor, const char *interface)
{
	char path[DOCTOR_PATH_BYTES];
	struct dirent *entry;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/class/net/%s", doctor->sysfs, interface);
	dir = opendir(path);
	while (dir && (entry = readdir(dir)) != NULL)
		if (!strncmp(entry->d_name, "upper_", 6))
			tell_upper(doctor, interface, entry->d_name + 6);
	if (dir)
		closedir(dir);
}

void doctor_check_wire(struct doctor *doctor, const char *interface)
{
	char kind[16];

	kind_of(doctor, interface, kind);
	if (doctor_is_way_out(doctor, interface))
		doctor_why(doctor_note(doctor, FINDING_INFO, "network",
				   "%s: RDMA shares it with the default route", interface),
			"RDMA belongs on a network of its own, of cables or by VLAN: flow control "
			"for it stops other traffic too, and others could send to its ports");
	else
		doctor_note(doctor, FINDING_OK, "network",
			"%s: RDMA does not share it with the default route%s", interface,
			!strcmp(kind, "vlan")	  ? "; it is a VLAN"
			: !strcmp(kind, "macsec") ? "; it is MACsec"
						  : "");
	tell_uppers(doctor, interface);
}

/* ---- IPsec. ---- */

void doctor_tell_ipsec(struct doctor *doctor, unsigned associations, unsigned offloaded)
{
	struct finding *finding;

	if (!associations) {
		doctor_note(doctor, FINDING_INFO, "network", "IPsec: no security associations");
		return;
	}
	finding = doctor_note(doctor, FINDING_INFO, "network",
		"IPsec: %u security associations, %u of them done by a card for whole packets",
		associations, offloaded);
	if (!offloaded)
		doctor_why(finding,
			"packets of an RDMA card do not pass the kernel: only offload packet "
			"protects them; rdma.encryption: required protects sessions without it");
}

static bool is_offloaded(struct nlmsghdr *message)
{
	const char *at =
		(const char *)NLMSG_DATA(message) + NLMSG_ALIGN(sizeof(struct xfrm_usersa_info));
	const char *end = (const char *)message + message->nlmsg_len;

	while (at + NLA_HDRLEN <= end) {
		const struct nlattr *attr = (const struct nlattr *)at;
		const struct xfrm_user_offload *offload =
			(const struct xfrm_user_offload *)(at + NLA_HDRLEN);

		if (attr->nla_len < NLA_HDRLEN || at + attr->nla_len > end)
			break;
		if ((attr->nla_type & NLA_TYPE_MASK) == XFRMA_OFFLOAD_DEV &&
			attr->nla_len >= NLA_HDRLEN + sizeof(*offload))
			return offload->flags & XFRM_OFFLOAD_PACKET;
		at += NLA_ALIGN(attr->nla_len);
	}
	return false;
}

/* Reads one answer. 0: more follow; 1: it was the last; or -errno. */
static int answer_read(int fd, unsigned *associations, unsigned *offloaded)
{
	_Alignas(struct nlmsghdr) static char answer[ANSWER_BYTES];
	ssize_t len = recv(fd, answer, sizeof(answer), 0);
	unsigned left = len > 0 ? (unsigned)len : 0;

	if (len <= 0)
		return len ? -errno : -EPROTO;
	for (struct nlmsghdr *message = (struct nlmsghdr *)answer; NLMSG_OK(message, left);
		message = NLMSG_NEXT(message, left)) {
		if (message->nlmsg_type == NLMSG_DONE)
			return 1;
		if (message->nlmsg_type == NLMSG_ERROR)
			return ((struct nlmsgerr *)NLMSG_DATA(message))->error ?: -EPROTO;
		if (message->nlmsg_type != XFRM_MSG_NEWSA ||
			message->nlmsg_len < NLMSG_SPACE(sizeof(struct xfrm_usersa_info)))
			continue;
		(*associations)++;
		*offloaded += is_offloaded(message);
	}
	return 0;
}

static int ipsec_read(unsigned *associations, unsigned *offloaded)
{
	const struct timeval wait = {.tv_sec = WAIT_S};
	const struct nlmsghdr ask = {.nlmsg_len = NLMSG_LENGTH(0),
		.nlmsg_type = XFRM_MSG_GETSA,
		.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP};
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_XFRM), ret;

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
	ret = send(fd, &ask, sizeof(ask), 0) == sizeof(ask) ? 0 : -errno;
	while (ret == 0)
		ret = answer_read(fd, associations, offloaded);
	close(fd);
	return ret < 0 ? ret : 0;
}

void doctor_check_ipsec(struct doctor *doctor)
{
	unsigned associations = 0, offloaded = 0;
	int ret = ipsec_read(&associations, &offloaded);

	if (ret == 0)
		doctor_tell_ipsec(doctor, associations, offloaded);
	else
		doctor_note(doctor, FINDING_INFO, "network",
			"IPsec: the kernel does not tell its security associations: %s%s",
			strerror(-ret), ret == -EPERM ? " (root may ask)" : "");
}
