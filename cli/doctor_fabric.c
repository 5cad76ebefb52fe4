/* cli/doctor_fabric.c: RDMA devices, their ports and addresses, and the network below them. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rdma/rdma.h"
#include "base/base.h"
#include "doctor.h"

#define GIDS_SHOWN_MAX 16

static const char *link_name(const struct ibv_port_attr *port)
{
	return port->link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand";
}

static unsigned mtu_bytes(enum ibv_mtu mtu)
{
	return 128u << mtu;
}

/* Lists a port's GIDs; an index is what rdma.gid_index takes. */
static void check_gids(struct doctor *doctor, struct ibv_context *context, const char *device,
	uint8_t port, const struct ibv_port_attr *attr)
{
	unsigned shown = 0, version2 = 0;

	for (int i = 0; i < attr->gid_tbl_len && shown < GIDS_SHOWN_MAX; i++) {
		char type[64], text[48];
		union ibv_gid gid;
		size_t len = 0;

		if (ibv_query_gid(context, port, i, &gid) ||
			(!gid.global.subnet_prefix && !gid.global.interface_id))
			continue;
		if (!doctor_sysfs(doctor, type, sizeof(type),
			    "class/infiniband/%s/ports/%u/gid_attrs/types/%d", device, port, i))
			snprintf(type, sizeof(type), "type unknown");
		for (unsigned b = 0; b < 16; b += 2)
			len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%02x%02x",
				b ? ":" : "", gid.raw[b], gid.raw[b + 1]);
		doctor_note(doctor, FINDING_INFO, "rdma", "%s port %u GID %d: %s (%s)", device,
			port, i, text, type);
		version2 += strstr(type, "v2") != NULL;
		shown++;
	}
	if (shown && !version2 && attr->link_layer == IBV_LINK_LAYER_ETHERNET) {
		struct finding *finding = doctor_note(doctor, FINDING_WARN, "rdma",
			"%s port %u has no RoCE v2 GID", device, port);

		doctor_why(finding, "give its network interface an IP address; RoCE v1 does not "
				    "cross routers");
	}
}

static void check_port(
	struct doctor *doctor, struct ibv_context *context, const char *device, uint8_t number)
{
	struct ibv_port_attr port;
	struct finding *finding;

	if (ibv_query_port(context, number, &port))
		return;
	if (port.state == IBV_PORT_ACTIVE) {
		doctor_note(doctor, FINDING_OK, "rdma", "%s port %u is active: %s, MTU %u", device,
			number, link_name(&port), mtu_bytes(port.active_mtu));
		if (port.active_mtu < port.max_mtu) {
			finding = doctor_note(doctor, FINDING_WARN, "rdma",
				"%s port %u sends %u bytes a packet; it supports %u", device,
				number, mtu_bytes(port.active_mtu), mtu_bytes(port.max_mtu));
			doctor_fix(finding, false,
				"ip link set dev INTERFACE mtu 9000   # on both ends and the "
				"switch");
		}
	} else {
		finding = doctor_note(doctor, FINDING_FAIL, "rdma", "%s port %u is %s", device,
			number, ibv_port_state_str(port.state));
		doctor_why(finding, "no session can use this port");
		doctor_fix(finding, false, "ip link set dev INTERFACE up   # and check the cable");
	}
	check_gids(doctor, context, device, number, &port);
}

static void check_device(struct doctor *doctor, struct ibv_device *device)
{
	const char *name = ibv_get_device_name(device);
	struct ibv_context *context = ibv_open_device(device);
	struct ibv_device_attr attr;
	struct finding *finding;

	if (!context) {
		finding = doctor_note(doctor, FINDING_FAIL, "rdma", "%s cannot be opened: %s", name,
			strerror(errno));
		doctor_fix(finding, false, "ls -l /dev/infiniband   # you must be in its group");
		return;
	}
	if (ibv_query_device(context, &attr) == 0) {
		doctor_note(doctor, FINDING_OK, "rdma",
			"device %s: firmware %s, %d queue pairs, %d work requests each", name,
			attr.fw_ver[0] ? attr.fw_ver : "(none)", attr.max_qp, attr.max_qp_wr);
		for (uint8_t port = 1; port <= attr.phys_port_cnt; port++)
			check_port(doctor, context, name, port);
	}
	ibv_close_device(context);
}

static void check_module(struct doctor *doctor, const char *name, const char *what_for)
{
	char path[128];
	struct finding *finding;

	snprintf(path, sizeof(path), "/sys/module/%s", name);
	if (access(path, F_OK) == 0) {
		doctor_note(doctor, FINDING_OK, "rdma", "module %s is loaded", name);
		return;
	}
	finding = doctor_note(
		doctor, FINDING_INFO, "rdma", "module %s is not loaded (%s)", name, what_for);
	doctor_fix(finding, true, "modprobe %s", name);
}

void doctor_check_rdma(struct doctor *doctor)
{
	struct ibv_device **devices;
	struct finding *finding;
	int count = 0;

	check_module(doctor, "ib_uverbs", "RDMA from programs");
	check_module(doctor, "rdma_ucm", "connecting by IP address");
	devices = ibv_get_device_list(&count);
	for (int i = 0; devices && i < count; i++)
		check_device(doctor, devices[i]);
	if (devices)
		ibv_free_device_list(devices);
	if (count)
		return;
	if (rp_lacking()) {
		finding = doctor_note(doctor, FINDING_INFO, "rdma",
			"programs cannot use RDMA cards: %s", rp_lacking());
		doctor_fix(finding, true, "apt install libibverbs1 librdmacm1 ibverbs-providers");
		return;
	}
	finding = doctor_note(doctor, FINDING_INFO, "rdma", "this host has no RDMA device");
	doctor_why(finding,
		"the device `simulated` works between processes of this host; soft-RoCE turns any "
		"network card into a real RDMA device");
	doctor_fix(finding, false,
		"modprobe rdma_rxe && rdma link add rxe0 type rxe netdev INTERFACE");
}
