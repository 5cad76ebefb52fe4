/* libregion/region_xdp.c: the region's interface: packets in the region's own frames. */
#include <errno.h>
#include <netinet/in.h>

#include "libregion/region_lib.h"

#ifdef NEBULAIO_XDP

#define LOOK_NS                                                                           \
	NS_PER_MS /* packets are looked for so often; the rings hold what comes meanwhile \
		   */

int neb_attach_xdp(
	struct neb_region *region, const char *interface, uint16_t port_min, uint16_t port_max)
{
	struct xp_opts opts = {.interface = interface, .ring_entries = 64};
	struct region_usage usage;
	const struct xp_rule rule = {.action = FILTER_REDIRECT,
		.protocol = IPPROTO_UDP,
		.port_min = port_min,
		.port_max = port_max};
	int ret;

	if (region->port)
		return -EEXIST;
	if (port_max < port_min || (!port_min && port_max))
		return -EINVAL;
	/* Up to half of the region waits in the rings for packets. */
	region_usage(region->region, &usage);
	while (opts.ring_entries < XP_RING_ENTRIES_DEFAULT &&
		4 * opts.ring_entries <= usage.frames_total)
		opts.ring_entries *= 2;
	ret = xp_open(region->region, &opts, &region->port);
	if (ret)
		return ret;
	ret = xp_rules_set(region->port, &rule, port_min ? 1 : 0);
	if (ret)
		lib_xdp_close(region);
	return ret;
}

const char *neb_xdp_mode(const struct neb_region *region)
{
	return region->port ? xp_mode_name(xp_mode(region->port)) : "";
}

/* The payload of a whole datagram in an untagged IPv4 packet without options. */
static void payload_find(struct neb_packet *packet)
{
	uint8_t *ip = (uint8_t *)packet->data + XP_ETHERNET_BYTES;
	uint32_t udp_bytes;

	if (packet->bytes < XP_ETHERNET_BYTES + 28 || ip[-2] != 8 || ip[-1] != 0 || ip[0] != 0x45 ||
		ip[9] != IPPROTO_UDP || ((ip[6] << 8 | ip[7]) & 0x3fff) != 0)
		return;
	udp_bytes = (uint32_t)(ip[24] << 8 | ip[25]);
	if (udp_bytes < 8 || udp_bytes > packet->bytes - XP_ETHERNET_BYTES - 20)
		return;
	packet->payload = ip + 28;
	packet->payload_bytes = udp_bytes - 8;
}

static uint32_t packets_take(
	struct neb_region *region, struct neb_packet *packets, uint32_t packets_max)
{
	struct xp_packet got[64];
	uint32_t count = xp_receive(xp_queue(region->port, 0), got, MIN(packets_max, 64u));

	for (uint32_t i = 0; i < count; i++) {
		packets[i] = (struct neb_packet){.span = neb_span_of(got[i].span),
			.data = got[i].data,
			.bytes = got[i].bytes,
			.received_ns = got[i].received_ns};
		if (!got[i].more)
			payload_find(&packets[i]);
	}
	return count;
}

int neb_xdp_receive(struct neb_region *region, struct neb_packet *packets, uint32_t packets_max,
	uint64_t timeout_ns)
{
	uint64_t deadline_ns = lib_deadline(timeout_ns), now_ns;
	uint32_t count;

	if (!region->port)
		return -ENODEV;
	reactor_turn(region->reactor);
	while ((count = packets_take(region, packets, packets_max)) == 0) {
		int ret = xp_health(region->port);

		if (ret)
			return ret;
		now_ns = clock_now_ns();
		if (now_ns >= deadline_ns)
			break;
		reactor_turn_wait(region->reactor, MIN(deadline_ns, now_ns + LOOK_NS));
	}
	return (int)count;
}

int neb_xdp_target(struct neb_region *region, uint16_t *ret_target)
{
	int ret = 0;

	if (!region->port)
		return -ENODEV;
	if (!region->port_sends)
		ret = xp_target(xp_queue(region->port, 0), region->reactor, &region->port_target);
	if (ret)
		return ret;
	region->port_sends = true;
	*ret_target = region->port_target;
	return 0;
}

bool lib_xdp_sends(const struct neb_region *region, uint16_t target)
{
	return region->port_sends && region->port_target == target;
}

uint64_t neb_xdp_lost(const struct neb_region *region)
{
	struct xp_stats stats;

	if (!region->port)
		return 0;
	xp_stats(region->port, &stats);
	return stats.dropped + stats.ring_full;
}

void lib_xdp_close(struct neb_region *region)
{
	xp_close(region->port);
	region->port = NULL;
	region->port_sends = false;
}

#else

int neb_attach_xdp(
	struct neb_region *region, const char *interface, uint16_t port_min, uint16_t port_max)
{
	(void)region;
	(void)interface;
	(void)port_min;
	(void)port_max;
	return -ENOSYS;
}

const char *neb_xdp_mode(const struct neb_region *region)
{
	(void)region;
	return "";
}

int neb_xdp_receive(struct neb_region *region, struct neb_packet *packets, uint32_t packets_max,
	uint64_t timeout_ns)
{
	(void)region;
	(void)packets;
	(void)packets_max;
	(void)timeout_ns;
	return -ENODEV;
}

uint64_t neb_xdp_lost(const struct neb_region *region)
{
	(void)region;
	return 0;
}

int neb_xdp_target(struct neb_region *region, uint16_t *ret_target)
{
	(void)region;
	(void)ret_target;
	return -ENODEV;
}

bool lib_xdp_sends(const struct neb_region *region, uint16_t target)
{
	(void)region;
	(void)target;
	return false;
}

void lib_xdp_close(struct neb_region *region)
{
	(void)region;
}

#endif
