/* rdma/verbs/gid.c: parses names of verbs devices, and says how good a GID of a port is for
 * connections. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>

#include "rdma/verbs/verbs_priv.h"

/* A decimal up to max; empty: absent, -1. */
static int parse_part(struct slice text, uint64_t max, int *ret_value)
{
	uint64_t value;

	if (slice_to_u64(text, &value) || value > max)
		return -EINVAL;
	*ret_value = (int)value;
	return 0;
}

int verbs_name_parse(const char *text, struct verbs_name *ret_name)
{
	struct slice rest = slice_str(text);
	struct verbs_name name = {.gid_index = -1};
	int port = 0;

	if (slice_copy_str(slice_split(&rest, ':'), name.device, sizeof(name.device)) ||
		!name.device[0])
		return -EINVAL;
	if (rest.data) {
		if (parse_part(slice_split(&rest, ':'), UINT8_MAX, &port) || port == 0)
			return -EINVAL;
		name.port = (uint8_t)port;
	}
	if (rest.data && parse_part(rest, UINT16_MAX, &name.gid_index))
		return -EINVAL;
	*ret_name = name;
	return 0;
}

static bool is_ipv4(const union ibv_gid *gid)
{
	static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};

	return !memcmp(gid->raw, prefix, sizeof(prefix));
}

static bool is_link_local(const union ibv_gid *gid)
{
	return gid->raw[0] == 0xfe && (gid->raw[1] & 0xc0) == 0x80;
}

bool verbs_gid_of(const char *address, union ibv_gid *ret_gid)
{
	union verbs_address parsed;
	union ibv_gid gid = {.raw = {[10] = 0xff, [11] = 0xff}};

	if (!address || !address[0] || verbs_address_parse(address, 0, &parsed))
		return false;
	if (parsed.any.sa_family == AF_INET6)
		memcpy(gid.raw, &parsed.in6.sin6_addr, sizeof(gid.raw));
	else
		memcpy(gid.raw + 12, &parsed.in.sin_addr, sizeof(parsed.in.sin_addr));
	*ret_gid = gid;
	return true;
}

uint32_t verbs_gid_score(const struct ibv_gid_entry *entry, bool link_up, bool asked_for)
{
	uint32_t score = 1;

	/* RoCE v1 does not cross a router, and v1 and v2 do not interoperate. */
	if (entry->gid_type == IBV_GID_TYPE_ROCE_V2)
		score += 200;
	/* Before a link that is up: this one may come up later. */
	if (asked_for)
		score += 80;
	if (link_up)
		score += 50;
	/* rdma_cm finds a device by address, and no route leads to a link-local one. */
	if (is_ipv4(&entry->gid))
		score += 20;
	else if (!is_link_local(&entry->gid))
		score += 10;
	return score;
}

void verbs_gid_text(const union ibv_gid *gid, char *text, size_t text_bytes)
{
	const void *addr = is_ipv4(gid) ? gid->raw + 12 : gid->raw;

	if (!inet_ntop(is_ipv4(gid) ? AF_INET : AF_INET6, addr, text, (socklen_t)text_bytes))
		snprintf(text, text_bytes, "?");
}

bool verbs_gid_address(
	const struct verbs_device *device, int family, union verbs_address *ret_address)
{
	char text[INET6_ADDRSTRLEN];

	if (!device->has_gid || device->port.link_layer == IBV_LINK_LAYER_INFINIBAND)
		return false;
	verbs_gid_text(&device->gid.gid, text, sizeof(text));
	return !verbs_address_parse(text, 0, ret_address) && ret_address->any.sa_family == family &&
	       !(family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&ret_address->in6.sin6_addr));
}
