/* xdp/bpf/filter.h: shared by the packet filter in the kernel and the program in user space: the
 * layout of its maps' entries and of the mark that it puts before a packet. Both sides include it,
 * so it has only fixed-width numbers. */
#ifndef XDP_BPF_FILTER_H
#define XDP_BPF_FILTER_H

#include <linux/types.h>

#define FILTER_RULES_MAX  64u
#define FILTER_QUEUES_MAX 64u

/* The program's action on a packet that a rule matches. Count goes on with the next rule. */
enum filter_action { FILTER_COUNT, FILTER_DROP, FILTER_PASS, FILTER_REDIRECT };

/* A packet matches when every masked field is equal and its destination port lies in the range; a
 * packet without ports (ICMP, a later fragment) has port 0. An IPv4 address is word 0. */
struct filter_rule {
	__u32 source[4], source_mask[4]; /* network byte order */
	__u32 dest[4], dest_mask[4];
	__u32 family, family_mask; /* 4, 6, 0: neither */
	__u32 protocol, protocol_mask;
	__u32 vlan, vlan_mask; /* FILTER_VLAN_NONE: untagged */
	__u32 port_min, port_max;
	__u32 action;
	__u32 reserved;
};
#define FILTER_VLAN_NONE 0xffffu

/* The rules are in two banks; one is active. Changing them fills the other, then writes this word:
 * no packet sees half of a change. */
#define FILTER_CONFIG(bank, count)  ((__u32)(bank) << 16 | (count))
#define FILTER_CONFIG_BANK(config)  ((config) >> 16 & 1)
#define FILTER_CONFIG_COUNT(config) ((config)&0xffff)

/* Per rule and processor. */
struct filter_count {
	__u64 packets;
	__u64 bytes;
};

/* Stands right before the first byte of a redirected packet, where the driver allows it. */
#define FILTER_MARK_MAGIC 0x6e656278u
struct filter_mark {
	__u32 magic;
	__u32 rule;
	__u64 time_ns;	   /* CLOCK_MONOTONIC, when the driver handed the packet in */
	__u64 hardware_ns; /* the card's clock, when the packet came; 0: not known */
};

#endif
