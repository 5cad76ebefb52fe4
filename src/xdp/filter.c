/* xdp/filter.c: loads the packet filter into the kernel from the object embedded in this program,
 * attaches it by a link that ends with the process, and writes its rules into its maps. */
#include "xdp/xdp_priv.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/if_link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Written at build time from bpf/filter.bpf.c. */
extern const uint8_t xp_filter_object[];
extern const size_t xp_filter_object_bytes;
#ifdef XP_HARDWARE_TIMES /* see meson_options.txt */
extern const uint8_t xp_filter_stamped_object[];
extern const size_t xp_filter_stamped_object_bytes;
#endif

/* BPF_F_XDP_DEV_BOUND_ONLY, newer than the C library's headers. */
#define DEVICE_BOUND (1u << 6)

static pthread_once_t print_once = PTHREAD_ONCE_INIT;

static int __attribute__((format(printf, 2, 0)))
print_debug(enum libbpf_print_level level, const char *fmt, va_list args)
{
	char text[512];
	size_t len;

	if (level == LIBBPF_DEBUG)
		return 0;
	vsnprintf(text, sizeof(text), fmt, args);
	len = strcspn(text, "\n");
	text[len] = '\0';
	if (len)
		log_debug("xdp", "%s", text);
	return 0;
}

static void print_set(void)
{
	libbpf_set_print(print_debug);
}

static int map_fd(const struct xp_filter *filter, const char *name)
{
	return bpf_object__find_map_fd_by_name(filter->object, name);
}

static void load_refused(int error)
{
	if (error == -EPERM)
		log_error("xdp",
			"no permission to load the packet filter: run as root, or give CAP_BPF "
			"and CAP_NET_ADMIN");
	else
		log_error("xdp",
			"the kernel refuses the packet filter: %s; it needs Linux 5.18 or later "
			"with CONFIG_BPF_SYSCALL (log level debug shows the kernel's message)",
			strerror(-error));
}

/* NULL with errno. */
static struct bpf_object *object_open(bool stamped)
{
	LIBBPF_OPTS(bpf_object_open_opts, opts, .object_name = "nebulaio");

	if (!stamped)
		return bpf_object__open_mem(xp_filter_object, xp_filter_object_bytes, &opts);
#ifdef XP_HARDWARE_TIMES
	return bpf_object__open_mem(
		xp_filter_stamped_object, xp_filter_stamped_object_bytes, &opts);
#else
	errno = EOPNOTSUPP;
	return NULL;
#endif
}

int filter_load(struct xp_filter *filter, int ifindex)
{
	struct bpf_program *program;
	int ret;

	pthread_once(&print_once, print_set);
	filter->link_fd = -1;
	filter->stamped = ifindex > 0;
	filter->object = object_open(filter->stamped);
	if (!filter->object) {
		ret = -errno;
		if (!filter->stamped)
			load_refused(ret);
		return ret;
	}
	program = bpf_object__find_program_by_name(filter->object, "nebulaio_filter");
	CHECK(program != NULL);
	if (filter->stamped) {
		bpf_program__set_ifindex(program, (uint32_t)ifindex);
		bpf_program__set_flags(program, DEVICE_BOUND);
	}
	ret = bpf_object__load(filter->object);
	if (ret) {
		if (!filter->stamped)
			load_refused(ret);
		filter_unload(filter);
		return ret == -EPERM || ret == -ENOMEM ? ret : -EOPNOTSUPP;
	}
	filter->program_fd = bpf_program__fd(program);
	filter->config_fd = map_fd(filter, "filter_config");
	filter->rules_fd = map_fd(filter, "filter_rules");
	filter->counts_fd = map_fd(filter, "filter_counts");
	filter->sockets_fd = map_fd(filter, "filter_sockets");
	CHECK(filter->config_fd >= 0 && filter->rules_fd >= 0);
	CHECK(filter->counts_fd >= 0 && filter->sockets_fd >= 0);
	return 0;
}

int filter_attach(struct xp_filter *filter, int ifindex, enum xp_mode mode)
{
	LIBBPF_OPTS(bpf_link_create_opts, opts,
		.flags = mode == XP_GENERIC ? XDP_FLAGS_SKB_MODE : XDP_FLAGS_DRV_MODE);
	int fd = bpf_link_create(filter->program_fd, ifindex, BPF_XDP, &opts);

	if (fd < 0)
		return -errno;
	filter->link_fd = fd;
	return 0;
}

void filter_detach(struct xp_filter *filter)
{
	if (filter->link_fd >= 0)
		close(filter->link_fd);
	filter->link_fd = -1;
}

int filter_socket_set(struct xp_filter *filter, uint32_t queue_id, int fd)
{
	return bpf_map_update_elem(filter->sockets_fd, &queue_id, &fd, BPF_ANY) ? -errno : 0;
}

void filter_unload(struct xp_filter *filter)
{
	if (!filter->object)
		return;
	filter_detach(filter);
	bpf_object__close(filter->object);
	filter->object = NULL;
}

/* ---- Rules. ---- */

/* Masks for the first bits of an address, and the address under them. */
static int prefix_convert(
	const uint8_t addr[16], uint8_t bits, uint8_t family, uint32_t value[4], uint32_t mask[4])
{
	uint8_t mask_bytes[16] = {0};

	if (bits && (family == 0 || bits > (family == 4 ? 32 : 128)))
		return -EINVAL;
	for (uint32_t i = 0; i < bits; i++)
		mask_bytes[i / 8] |= (uint8_t)(0x80 >> i % 8);
	memcpy(mask, mask_bytes, sizeof(mask_bytes));
	memcpy(value, addr, sizeof(mask_bytes));
	for (uint32_t i = 0; i < 4; i++)
		value[i] &= mask[i];
	return 0;
}

static int rule_convert(const struct xp_rule *rule, struct filter_rule *ret_rule)
{
	struct filter_rule made = {
		.family = rule->family,
		.family_mask = rule->family ? UINT32_MAX : 0,
		.protocol = rule->protocol,
		.protocol_mask = rule->protocol ? UINT32_MAX : 0,
		.vlan = rule->vlan,
		.vlan_mask = rule->vlan_set ? UINT32_MAX : 0,
		.port_min = rule->port_min,
		.port_max = rule->port_max || rule->port_min ? rule->port_max : UINT32_MAX,
		.action = (uint32_t)rule->action,
	};
	int ret;

	if (rule->family != 0 && rule->family != 4 && rule->family != 6)
		return -EINVAL;
	if (made.port_min > made.port_max || (unsigned)rule->action > FILTER_REDIRECT)
		return -EINVAL;
	if (rule->vlan_set && rule->vlan > 4095 && rule->vlan != FILTER_VLAN_NONE)
		return -EINVAL;
	ret = prefix_convert(
		rule->source, rule->source_bits, rule->family, made.source, made.source_mask);
	if (!ret)
		ret = prefix_convert(
			rule->dest, rule->dest_bits, rule->family, made.dest, made.dest_mask);
	if (!ret)
		*ret_rule = made;
	return ret;
}

/* Writes a rule into a bank, its counts at 0. */
static int rule_write(const struct xp_filter *filter, uint32_t idx, const struct filter_rule *rule)
{
	int cpus = libbpf_num_possible_cpus();
	struct filter_count *zeros;
	int ret;

	if (cpus < 0)
		return cpus;
	zeros = calloc((size_t)cpus, sizeof(*zeros));
	if (!zeros)
		return -ENOMEM;
	ret = bpf_map_update_elem(filter->counts_fd, &idx, zeros, BPF_ANY) ? -errno : 0;
	if (!ret)
		ret = bpf_map_update_elem(filter->rules_fd, &idx, rule, BPF_ANY) ? -errno : 0;
	free(zeros);
	return ret;
}

int xp_rules_set(struct xp_port *port, const struct xp_rule *rules, uint32_t count)
{
	struct xp_filter *filter = &port->filter;
	struct filter_rule made[FILTER_RULES_MAX];
	uint32_t bank = !filter->bank, zero = 0, config = FILTER_CONFIG(bank, count);
	int ret = 0;

	if (count > FILTER_RULES_MAX)
		return -EINVAL;
	for (uint32_t i = 0; i < count && !ret; i++)
		ret = rule_convert(&rules[i], &made[i]);
	for (uint32_t i = 0; i < count && !ret; i++)
		ret = rule_write(filter, bank * FILTER_RULES_MAX + i, &made[i]);
	if (!ret && bpf_map_update_elem(filter->config_fd, &zero, &config, BPF_ANY))
		ret = -errno;
	if (ret)
		return ret;
	filter->bank = bank;
	filter->rule_count = count;
	return 0;
}

int xp_rule_count(const struct xp_port *port, uint32_t idx, struct filter_count *ret_count)
{
	const struct xp_filter *filter = &port->filter;
	uint32_t key = filter->bank * FILTER_RULES_MAX + idx;
	int cpus = libbpf_num_possible_cpus();
	struct filter_count sum = {0};
	struct filter_count *counts;
	int ret;

	if (idx >= filter->rule_count)
		return -ENOENT;
	if (cpus < 0)
		return cpus;
	counts = calloc((size_t)cpus, sizeof(*counts));
	if (!counts)
		return -ENOMEM;
	ret = bpf_map_lookup_elem(filter->counts_fd, &key, counts) ? -errno : 0;
	for (int i = 0; i < cpus && !ret; i++) {
		sum.packets += counts[i].packets;
		sum.bytes += counts[i].bytes;
	}
	free(counts);
	if (!ret)
		*ret_count = sum;
	return ret;
}
