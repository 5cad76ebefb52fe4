/* libregion/region_xdp.c: the region's network interfaces and their queues: packets in the region's
 * own frames. */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include "libregion/region_lib.h"

#ifdef NEBULAIO_XDP

#define LOOK_NS                                                                                  \
	NS_PER_MS /* interval of looking for packets; the rings hold those that arrive meanwhile \
		   */

_Static_assert(NEB_QUEUES_MAX == XP_QUEUES_MAX, "as the header says");

static struct xp_port *port_of(const struct neb_region *region, uint32_t interface)
{
	return interface < region->port_count ? region->ports[interface].port : NULL;
}

/* Up to half of the free frames wait in the rings for packets. */
static uint32_t ring_entries(const struct neb_region *region, uint32_t queue_count)
{
	struct region_usage usage;
	uint32_t entries = 64;

	region_usage(region->region, &usage);
	while (entries < XP_RING_ENTRIES_DEFAULT &&
		4ull * entries * queue_count <= usage.frames_by_owner[OWNER_FREE])
		entries *= 2;
	return entries;
}

static int attach_check(const struct neb_region *region, const char *interface,
	const struct neb_xdp_options *options)
{
	if (options->port_max < options->port_min || (!options->port_min && options->port_max) ||
		options->queue_count > NEB_QUEUES_MAX)
		return -EINVAL;
	for (uint32_t i = 0; i < region->port_count; i++) {
		if (strcmp(xp_interface(region->ports[i].port), interface) == 0)
			return -EEXIST;
	}
	return region->port_count == NEB_INTERFACES_MAX ? -ENOSPC : 0;
}

int neb_attach_xdp_queues(struct neb_region *region, const char *interface,
	const struct neb_xdp_options *options, uint32_t *ret_interface)
{
	struct xp_opts opts = {.interface = interface,
		.queue_first = options->queue_first,
		.queue_count = MAX(options->queue_count, 1u)};
	const struct xp_rule rule = {.action = FILTER_REDIRECT,
		.protocol = IPPROTO_UDP,
		.port_min = options->port_min,
		.port_max = options->port_max};
	struct lib_port *slot = &region->ports[region->port_count];
	int ret = attach_check(region, interface, options);

	if (ret)
		return ret;
	opts.ring_entries = ring_entries(region, opts.queue_count);
	ret = xp_open(region->region, &opts, &slot->port);
	if (ret)
		return ret;
	ret = xp_rules_set(slot->port, &rule, options->port_min ? 1 : 0);
	if (ret) {
		xp_close(slot->port);
		slot->port = NULL;
		return ret;
	}
	*ret_interface = region->port_count++;
	return 0;
}

const char *neb_xdp_interface_mode(const struct neb_region *region, uint32_t interface)
{
	const struct xp_port *port = port_of(region, interface);

	return port ? xp_mode_name(xp_mode(port)) : "";
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

static uint32_t queue_take(struct neb_region *region, uint32_t interface, uint32_t queue,
	struct neb_packet *packets, uint32_t packets_max)
{
	struct xp_packet got[64];
	uint32_t count = xp_receive(xp_queue(region->ports[interface].port, queue), got,
		MIN(packets_max, (uint32_t)ARRAY_LEN(got)));

	for (uint32_t i = 0; i < count; i++) {
		packets[i] = (struct neb_packet){.span = neb_span_of(got[i].span),
			.data = got[i].data,
			.bytes = got[i].bytes,
			.received_ns = got[i].received_ns,
			.interface = interface,
			.queue = queue};
		if (!got[i].more)
			payload_find(&packets[i]);
	}
	return count;
}

/* Chooses the queue after the one that was looked at. */
static void turn_next(struct neb_region *region)
{
	if (++region->queue_turn < xp_queue_count(region->ports[region->port_turn].port))
		return;
	region->queue_turn = 0;
	region->port_turn = (region->port_turn + 1) % region->port_count;
}

/* Looks at each queue once at most; the next call begins where this one ended. */
static uint32_t packets_take(
	struct neb_region *region, struct neb_packet *packets, uint32_t packets_max)
{
	uint32_t queues = 0, count = 0;

	for (uint32_t i = 0; i < region->port_count; i++)
		queues += xp_queue_count(region->ports[i].port);
	while (queues-- && count < packets_max) {
		count += queue_take(region, region->port_turn, region->queue_turn, packets + count,
			packets_max - count);
		turn_next(region);
	}
	return count;
}

static int ports_health(const struct neb_region *region)
{
	int ret = 0;

	for (uint32_t i = 0; i < region->port_count && !ret; i++)
		ret = xp_health(region->ports[i].port);
	return ret;
}

int neb_xdp_receive(struct neb_region *region, struct neb_packet *packets, uint32_t packets_max,
	uint64_t timeout_ns)
{
	uint64_t deadline_ns = lib_deadline(timeout_ns), now_ns;
	uint32_t count;

	if (!region->port_count)
		return -ENODEV;
	reactor_turn(region->reactor);
	while ((count = packets_take(region, packets, packets_max)) == 0) {
		int ret = ports_health(region);

		if (ret)
			return ret;
		now_ns = clock_now_ns();
		if (now_ns >= deadline_ns)
			break;
		reactor_turn_wait(region->reactor, MIN(deadline_ns, now_ns + LOOK_NS));
	}
	return (int)count;
}

int neb_xdp_queue_target(
	struct neb_region *region, uint32_t interface, uint32_t queue, uint16_t *ret_target)
{
	struct xp_port *port = port_of(region, interface);
	struct lib_port *slot;
	int ret = 0;

	if (!port || queue >= xp_queue_count(port))
		return -ENODEV;
	slot = &region->ports[interface];
	if (!slot->sends[queue])
		ret = xp_target(xp_queue(port, queue), region->reactor, &slot->targets[queue]);
	if (ret)
		return ret;
	slot->sends[queue] = true;
	*ret_target = slot->targets[queue];
	region->packet_targets[*ret_target] = true;
	return 0;
}

bool lib_xdp_sends(const struct neb_region *region, uint16_t target)
{
	return target < ARRAY_LEN(region->packet_targets) && region->packet_targets[target];
}

uint64_t neb_xdp_interface_lost(const struct neb_region *region, uint32_t interface)
{
	const struct xp_port *port = port_of(region, interface);
	struct xp_stats stats;

	if (!port)
		return 0;
	xp_stats(port, &stats);
	return stats.dropped + stats.ring_full;
}

void lib_xdp_close(struct neb_region *region)
{
	while (region->port_count)
		xp_close(region->ports[--region->port_count].port);
}

#else

int neb_attach_xdp_queues(struct neb_region *region, const char *interface,
	const struct neb_xdp_options *options, uint32_t *ret_interface)
{
	(void)region;
	(void)interface;
	(void)options;
	(void)ret_interface;
	return -ENOSYS;
}

const char *neb_xdp_interface_mode(const struct neb_region *region, uint32_t interface)
{
	(void)region;
	(void)interface;
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

uint64_t neb_xdp_interface_lost(const struct neb_region *region, uint32_t interface)
{
	(void)region;
	(void)interface;
	return 0;
}

int neb_xdp_queue_target(
	struct neb_region *region, uint32_t interface, uint32_t queue, uint16_t *ret_target)
{
	(void)region;
	(void)interface;
	(void)queue;
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

int neb_attach_xdp(
	struct neb_region *region, const char *interface, uint16_t port_min, uint16_t port_max)
{
	const struct neb_xdp_options options = {.port_min = port_min, .port_max = port_max};
	uint32_t idx;

	return neb_attach_xdp_queues(region, interface, &options, &idx);
}

const char *neb_xdp_mode(const struct neb_region *region)
{
	return neb_xdp_interface_mode(region, 0);
}

uint64_t neb_xdp_lost(const struct neb_region *region)
{
	uint64_t lost = 0;

	for (uint32_t i = 0; i < NEB_INTERFACES_MAX; i++)
		lost += neb_xdp_interface_lost(region, i);
	return lost;
}

int neb_xdp_target(struct neb_region *region, uint16_t *ret_target)
{
	return neb_xdp_queue_target(region, 0, 0, ret_target);
}
