/* rdma/verbs/hello.c: the private data by which two ends of a connection introduce themselves.
 *
 * Two bytes are our own. The first one has the length, because InfiniBand pads private data, and
 * whether the queue pair is UC, because rdma_cm's exchange knows only RC. The last one has the path
 * MTU that the sender is limited to. */
#include "rdma/verbs/verbs_priv.h"

#define PRIVATE_UC   0x80u
#define PRIVATE_OURS 0x40u /* set always: a peer that sends nothing sends padding of zeros */
#define PRIVATE_LEN  0x3fu

_Static_assert(RP_PRIVATE_BYTES_MAX <= PRIVATE_LEN, "the length leaves the flags' bits free");

uint8_t verbs_hello_pack(const struct verbs_device *device, enum rp_qp_type type, struct slice data,
	uint8_t out[VERBS_HELLO_BYTES])
{
	CHECK(data.len <= RP_PRIVATE_BYTES_MAX);
	out[0] = (uint8_t)(data.len | PRIVATE_OURS | (type == RP_QP_UC ? PRIVATE_UC : 0));
	if (data.len)
		memcpy(out + 1, data.data, data.len);
	out[data.len + 1] = (uint8_t)device->mtu_limit;
	return (uint8_t)(data.len + 2);
}

/* False: a peer of ours does not send these bytes. */
bool verbs_hello_unpack(struct slice data, struct rp_cm_event *ret_event, enum rp_qp_type *ret_type,
	enum ibv_mtu *ret_mtu)
{
	uint8_t first, len, mtu;

	if (!data.len)
		return false;
	first = (uint8_t)data.data[0];
	len = first & PRIVATE_LEN;
	if (!(first & PRIVATE_OURS) || len > RP_PRIVATE_BYTES_MAX || len > data.len - 1)
		return false;
	ret_event->private_len = len;
	memcpy(ret_event->private_data, data.data + 1, len);
	mtu = data.len > len + 1u ? (uint8_t)data.data[len + 1] : 0;
	*ret_mtu = mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? mtu : 0;
	*ret_type = first & PRIVATE_UC ? RP_QP_UC : RP_QP_RC;
	return true;
}
