/* server/hardware_dcb.c: asks the kernel how an interface tells packets apart and which of them are
 * lossless. */
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

/* Splits the first attribute off; false: no whole one is left. */
static bool attribute_next(struct slice *data, unsigned *ret_type, struct slice *ret_value)
{
	struct rtattr attr;

	if (data->len < sizeof(attr))
		return false;
	memcpy(&attr, data->data, sizeof(attr));
	if (attr.rta_len < sizeof(attr) || attr.rta_len > data->len)
		return false;
	*ret_type = attr.rta_type & NLA_TYPE_MASK;
	*ret_value = slice_of(data->data + sizeof(attr), attr.rta_len - sizeof(attr));
	*data = slice_from(*data, MIN(RTA_ALIGN((size_t)attr.rta_len), data->len));
	return true;
}

/* The first of a kind, or an empty slice. */
static struct slice attribute(struct slice data, unsigned wanted)
{
	struct slice value;
	unsigned type;

	while (attribute_next(&data, &type, &value)) {
		if (type == wanted)
			return value;
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

static void pfc_take(struct slice value, struct hardware_dcb *dcb)
{
	struct ieee_pfc pfc;

	if (value.len < sizeof(pfc))
		return;
	memcpy(&pfc, value.data, sizeof(pfc));
	dcb->pfc_told = true;
	dcb->pfc_priorities = pfc.pfc_en;
	for (unsigned i = 0; i < HARDWARE_PRIORITIES; i++) {
		dcb->pfc_sent[i] = pfc.requests[i];
		dcb->pfc_received[i] = pfc.indications[i];
	}
}

/* Of several priorities for one DSCP the kernel takes the highest. */
static void dscp_take(struct slice table, struct hardware_dcb *dcb)
{
	struct slice value;
	struct dcb_app app;
	unsigned type;

	while (attribute_next(&table, &type, &value)) {
		if (type != DCB_ATTR_IEEE_APP || value.len < sizeof(app))
			continue;
		memcpy(&app, value.data, sizeof(app));
		if (app.selector != IEEE_8021QAZ_APP_SEL_DSCP || app.protocol >= HARDWARE_DSCPS ||
			app.priority >= HARDWARE_PRIORITIES)
			continue;
		if (dcb->dscp_priority[app.protocol] < 0)
			dcb->dscp_count++;
		dcb->dscp_priority[app.protocol] =
			(int8_t)MAX(dcb->dscp_priority[app.protocol], (int8_t)app.priority);
	}
}

int hardware_dcb_parse(const void *answer, size_t bytes, struct hardware_dcb *ret_dcb)
{
	struct slice data = slice_of(answer, bytes);
	struct hardware_dcb dcb = {.dscp_count = 0};
	struct nlmsghdr head;

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
	if (!data.len)
		return -EOPNOTSUPP;
	memset(dcb.dscp_priority, -1, sizeof(dcb.dscp_priority));
	pfc_take(attribute(data, DCB_ATTR_IEEE_PFC), &dcb);
	dscp_take(attribute(data, DCB_ATTR_IEEE_APP_TABLE), &dcb);
	*ret_dcb = dcb;
	return 0;
}

int hardware_dcb(const char *interface, struct hardware_dcb *ret_dcb)
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
		ret = bytes < 0 ? -errno : hardware_dcb_parse(answer, (size_t)bytes, ret_dcb);
	}
	close(fd);
	return ret;
}
