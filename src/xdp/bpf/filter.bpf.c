/* xdp/bpf/filter.bpf.c: the packet filter: runs in the kernel, on every packet of an interface,
 * before the network stack sees it. Reads addresses, protocol, port and VLAN, walks the rules in
 * order and takes the action of the first match; a packet without a match goes to the kernel as if
 * this program were absent. Uses nothing of the kernel but its stable interface, so one object runs
 * on every kernel from 5.18 on, whatever its configuration (the one that asks for the card's time:
 * from 6.3 on). */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "xdp/bpf/filter.h"

#define VLAN_TAGS_MAX	 2
#define IPV6_HEADERS_MAX 4
#define IPV4_OFFSET_MASK 0x1fff

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} filter_config SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * FILTER_RULES_MAX);
	__type(key, __u32);
	__type(value, struct filter_rule);
} filter_rules SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2 * FILTER_RULES_MAX);
	__type(key, __u32);
	__type(value, struct filter_count);
} filter_counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, FILTER_QUEUES_MAX);
	__type(key, __u32);
	__type(value, __u32);
} filter_sockets SEC(".maps");

/* The parsed fields of a packet. */
struct key {
	__u32 source[4];
	__u32 dest[4];
	__u32 family;
	__u32 protocol;
	__u32 vlan;
	__u32 port;
};

struct vlan_tag {
	__be16 tci;
	__be16 type;
};

struct ports {
	__be16 source;
	__be16 dest;
};

/* The protocols whose header begins with two ports. */
static __always_inline void read_port(struct key *key, void *at, void *end)
{
	struct ports *ports = at;

	if (key->protocol != IPPROTO_UDP && key->protocol != IPPROTO_TCP &&
		key->protocol != IPPROTO_SCTP && key->protocol != IPPROTO_UDPLITE)
		return;
	if ((void *)(ports + 1) <= end)
		key->port = bpf_ntohs(ports->dest);
}

static __always_inline void read_ipv4(struct key *key, void *at, void *end)
{
	struct iphdr *ip = at;
	__u32 head_bytes;

	if ((void *)(ip + 1) > end)
		return;
	head_bytes = ip->ihl * 4;
	if (head_bytes < sizeof(*ip))
		return;
	key->family = 4;
	key->protocol = ip->protocol;
	key->source[0] = ip->saddr;
	key->dest[0] = ip->daddr;
	if (!(ip->frag_off & bpf_htons(IPV4_OFFSET_MASK)))
		read_port(key, at + head_bytes, end);
}

static __always_inline void read_ipv6(struct key *key, void *at, void *end)
{
	struct ipv6hdr *ip = at;
	__u32 next;

	if ((void *)(ip + 1) > end)
		return;
	key->family = 6;
	__builtin_memcpy(key->source, &ip->saddr, sizeof(key->source));
	__builtin_memcpy(key->dest, &ip->daddr, sizeof(key->dest));
	next = ip->nexthdr;
	at = ip + 1;
#pragma unroll
	for (int i = 0; i < IPV6_HEADERS_MAX; i++) {
		__u8 *head = at;

		if (next != IPPROTO_HOPOPTS && next != IPPROTO_ROUTING && next != IPPROTO_DSTOPTS &&
			next != IPPROTO_FRAGMENT)
			break;
		if ((void *)(head + 8) > end)
			return;
		if (next == IPPROTO_FRAGMENT && ((head[2] << 8 | head[3]) & 0xfff8)) {
			/* A later fragment: its protocol is known, its port is not. */
			key->protocol = head[0];
			return;
		}
		at = head + (next == IPPROTO_FRAGMENT ? 8 : (head[1] + 1) * 8);
		next = head[0];
	}
	key->protocol = next;
	read_port(key, at, end);
}

static __always_inline void read_key(struct key *key, void *at, void *end)
{
	struct ethhdr *eth = at;
	__be16 type;

	key->vlan = FILTER_VLAN_NONE;
	if ((void *)(eth + 1) > end)
		return;
	type = eth->h_proto;
	at = eth + 1;
#pragma unroll
	for (int i = 0; i < VLAN_TAGS_MAX; i++) {
		struct vlan_tag *tag = at;

		if (type != bpf_htons(ETH_P_8021Q) && type != bpf_htons(ETH_P_8021AD))
			break;
		if ((void *)(tag + 1) > end)
			return;
		if (i == 0)
			key->vlan = bpf_ntohs(tag->tci) & 0xfff;
		type = tag->type;
		at = tag + 1;
	}
	if (type == bpf_htons(ETH_P_IP))
		read_ipv4(key, at, end);
	else if (type == bpf_htons(ETH_P_IPV6))
		read_ipv6(key, at, end);
}

/* Has no branches, so that the verifier has one path to follow for each rule. */
static __always_inline __u32 differs(const struct key *key, const struct filter_rule *rule)
{
	__u32 differs = ((key->family ^ rule->family) & rule->family_mask) |
			((key->protocol ^ rule->protocol) & rule->protocol_mask) |
			((key->vlan ^ rule->vlan) & rule->vlan_mask);

#pragma unroll
	for (int i = 0; i < 4; i++) {
		differs |= (key->source[i] & rule->source_mask[i]) ^ rule->source[i];
		differs |= (key->dest[i] & rule->dest_mask[i]) ^ rule->dest[i];
	}
	return differs;
}

/* The card's own time of a packet. Only a program that is loaded for one interface may ask its
 * driver, so this file is compiled twice: with FILTER_STAMPED for interfaces whose driver knows. */
#ifdef FILTER_STAMPED
extern int bpf_xdp_metadata_rx_timestamp(const struct xdp_md *ctx, __u64 *timestamp) __ksym;

static __always_inline __u64 hardware_time(struct xdp_md *ctx)
{
	__u64 time_ns = 0;

	return bpf_xdp_metadata_rx_timestamp(ctx, &time_ns) == 0 ? time_ns : 0;
}
#else
static __always_inline __u64 hardware_time(struct xdp_md *ctx)
{
	(void)ctx;
	return 0;
}
#endif

/* Marks the packet with its time and rule, and sends it to its queue's socket; to the kernel when
 * the queue has none. */
static __always_inline int redirect(struct xdp_md *ctx, __u32 rule)
{
	__u64 now_ns = bpf_ktime_get_ns(), hardware_ns = hardware_time(ctx);
	struct filter_mark *mark;

	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*mark)) == 0) {
		mark = (void *)(long)ctx->data_meta;
		if ((void *)(mark + 1) <= (void *)(long)ctx->data) {
			mark->magic = FILTER_MARK_MAGIC;
			mark->rule = rule;
			mark->time_ns = now_ns;
			mark->hardware_ns = hardware_ns;
		}
	}
	return bpf_redirect_map(&filter_sockets, ctx->rx_queue_index, XDP_PASS);
}

SEC("xdp.frags")
int nebulaio_filter(struct xdp_md *ctx)
{
	struct key key = {0};
	__u64 packet_bytes = bpf_xdp_get_buff_len(ctx);
	__u32 zero = 0, bank, count;
	__u32 *config = bpf_map_lookup_elem(&filter_config, &zero);

	if (!config)
		return XDP_PASS;
	bank = FILTER_CONFIG_BANK(*config) * FILTER_RULES_MAX;
	count = FILTER_CONFIG_COUNT(*config);
	read_key(&key, (void *)(long)ctx->data, (void *)(long)ctx->data_end);
	for (__u32 i = 0; i < FILTER_RULES_MAX && i < count; i++) {
		__u32 idx = bank + i;
		struct filter_rule *rule = bpf_map_lookup_elem(&filter_rules, &idx);
		struct filter_count *counted;

		if (!rule)
			return XDP_PASS;
		if (differs(&key, rule) || key.port < rule->port_min || key.port > rule->port_max)
			continue;
		counted = bpf_map_lookup_elem(&filter_counts, &idx);
		if (counted) {
			counted->packets++;
			counted->bytes += packet_bytes;
		}
		if (rule->action == FILTER_REDIRECT)
			return redirect(ctx, i);
		if (rule->action == FILTER_DROP)
			return XDP_DROP;
		if (rule->action == FILTER_PASS)
			return XDP_PASS;
	}
	return XDP_PASS;
}

/* The kernel lets only programs under this license ask a driver. */
#ifdef FILTER_STAMPED
char LICENSE[] SEC("license") = "Dual MIT/GPL";
#else
char LICENSE[] SEC("license") = "Apache-2.0";
#endif
