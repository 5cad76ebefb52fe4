/* libregion/region_datagram.c: queue pairs without connections: datagrams to groups, raw Ethernet
 * frames. */
#include <errno.h>
#include <string.h>

#include "libregion/region_lib.h"

#define JOIN_NS (10 * NS_PER_S)

int neb_rdma_join(struct neb_region *region, const char *group,
	const struct neb_rdma_options *options, uint16_t *ret_target)
{
	uint64_t deadline_ns = lib_deadline(options->timeout_ns ? options->timeout_ns : JOIN_NS);
	struct lib_conn *conn;
	int ret = lib_conn_open(region, RP_QP_UD, options, &conn);

	if (ret)
		return ret;
	ret = rp_group_join(conn->qp, group, &conn->group);
	if (ret) {
		lib_conn_close(conn);
		return ret;
	}
	ret = lib_conn_wait(conn, deadline_ns, ret_target);
	if (!ret)
		rp_target_aim(conn->qp, rp_group_ah(conn->group), RP_GROUP_QPN, RP_GROUP_QKEY);
	return ret;
}

uint32_t neb_rdma_datagram_bytes(const struct neb_region *region)
{
	return region->device ? region->device_attr.active_mtu : 0;
}

int neb_rdma_raw(struct neb_region *region, const struct neb_rdma_frames *take,
	const struct neb_rdma_options *options, uint16_t *ret_target)
{
	struct rp_flow_rule rule = {
		.everything = take->everything, .ether_type = take->ether_type, .vlan = take->vlan};
	struct lib_conn *conn;
	int ret = lib_conn_open(region, RP_QP_RAW, options, &conn);

	if (ret)
		return ret;
	memcpy(rule.dst_mac, take->mac, sizeof(rule.dst_mac));
	ret = rp_flow_open(conn->qp, &rule, &conn->flow);
	if (ret) {
		lib_conn_close(conn);
		return ret;
	}
	conn->connected = true;
	*ret_target = conn->target;
	return 0;
}
