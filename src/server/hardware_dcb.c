/* server/hardware_pfc.c: asks the kernel which priorities of an interface are lossless. */
#include <errno.h>
#include <linux/dcbnl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "server/hardware.h"

#define ANSWER_BYTES_MAX 16384u

struct question {
	struct nlmsghdr head;
	struct dcbmsg dcb;
	struct rtattr name;
	char interface[IFNAMSIZ];
};

/* The attribute of a kind among those in data, or an empty slice. */
static struct slice attribute(struct slice data, unsigned type)
{
	struct rtattr attr;

	while (data.len >= sizeof(attr)) {
		memcpy(&attr, data.data, sizeof(attr));
		if (attr.rta_len < sizeof(attr) || attr.rta_len > data.len)
			break;
		if ((attr.rta_type & NLA_TYPE_MASK) == type)
			return slice_of(data.data + sizeof(attr), attr.rta_len - sizeof(attr));
		data = slice_from(data, MIN(RTA_ALIGN((size_t)attr.rta_len), data.len));
	}
	return SLICE_NONE;
}

static int answer_error(struct slice data)
{
	struct nlmsgerr error;

	if (data.len < sizeof(error))
		return -EBADMSG;
	memcpy(&error, data.data, sizeof(error));
	return error.error < 0 ? error.error : -EBADMSG;
}

int hardware_pfc_parse(const void *answer, size_t bytes, uint8_t *ret_priorities)
{
	struct slice data = slice_of(answer, bytes);
	struct nlmsghdr head;
	struct ieee_pfc pfc;

	if (bytes < sizeof(head))
		return -EBADMSG;
	memcpy(&head, data.data, sizeof(head));
	if (head.nlmsg_len < sizeof(head) || head.nlmsg_len > bytes)
		return -EBADMSG;
	data = slice_of(data.data + sizeof(head), head.nlmsg_len - sizeof(head));
	if (head.nlmsg_type == NLMSG_ERROR)
		return answer_error(data);
	if (head.nlmsg_type != RTM_GETDCB || data.len < sizeof(struct dcbmsg))
		return -EBADMSG;
	data = attribute(slice_from(data, NLMSG_ALIGN(sizeof(struct dcbmsg))), DCB_ATTR_IEEE);
	data = attribute(data, DCB_ATTR_IEEE_PFC);
	if (data.len < sizeof(pfc))
		return -EOPNOTSUPP;
	memcpy(&pfc, data.data, sizeof(pfc));
	*ret_priorities = pfc.pfc_en;
	return 0;
}

int hardware_pfc(const char *interface, uint8_t *ret_priorities)
{
	const struct timeval patience = {.tv_sec = 1};
	struct question question = {
		.head = {.nlmsg_len = sizeof(question),
			.nlmsg_type = RTM_GETDCB,
			.nlmsg_flags = NLM_F_REQUEST,
			.nlmsg_seq = 1},
		.dcb = {.dcb_family = AF_UNSPEC, .cmd = DCB_CMD_IEEE_GET},
		.name = {.rta_len = sizeof(struct rtattr) + IFNAMSIZ, .rta_type = DCB_ATTR_IFNAME},
	};
	char answer[ANSWER_BYTES_MAX];
	ssize_t bytes;
	int fd, ret;

	if (slice_copy_str(slice_str(interface), question.interface, sizeof(question.interface)))
		return -EINVAL;
	fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (send(fd, &question, sizeof(question), 0) < 0) {
		ret = -errno;
	} else {
		bytes = recv(fd, answer, sizeof(answer), 0);
		ret = bytes < 0 ? -errno
				: hardware_pfc_parse(answer, (size_t)bytes, ret_priorities);
	}
	close(fd);
	return ret;
}
