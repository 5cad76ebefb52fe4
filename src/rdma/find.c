/* rdma/find.c: finds the RDMA device that leads to an address by the host's routes. It sends
 * nothing, so only a connection attempt shows whether a server answers.
 *
 * A route has a source address, and a card's device is the one that has that address: the kernel's
 * connection manager knows it for InfiniBand, RoCE and iWARP alike, over bonds and VLANs too. */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <rdma/rdma_cma.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rdma/rdma.h"
#include "rdma/simulated/packet.h"
#include "rdma/verbs/address.h"

#define CARDS	  "/sys/class/infiniband"
#define SOCKETS	  "/proc/net/unix"
#define SIMULATED "simulated"
#define CARDS_MAX 64
#define FIND_PORT 9 /* of a socket that never sends */

/* ---- Cards of this host. ---- */

static bool cards_there(void)
{
	DIR *dir = opendir(CARDS);
	struct dirent *entry;
	bool found = false;

	while (dir && !found && (entry = readdir(dir)) != NULL)
		found = entry->d_name[0] != '.';
	if (dir)
		closedir(dir);
	return found;
}

/* A server of this network namespace listens there on the simulated device. */
static bool simulated_listens(const char *address, uint16_t port)
{
	char line[512];
	bool found = false;
	FILE *file = fopen(SOCKETS, "re");

	while (file && !found && fgets(line, sizeof(line), file)) {
		const char *name = strchr(line, '@');

		for (int any = 0; name && any < 2 && !found; any++) {
			struct sockaddr_un addr;
			size_t len = sim_address(any ? "" : address, port, &addr) -
				     offsetof(struct sockaddr_un, sun_path) - 1;

			found = !strncmp(name + 1, addr.sun_path + 1, len) &&
				(name[1 + len] == '\n' || !name[1 + len]);
		}
	}
	if (file)
		fclose(file);
	return found;
}

/* ---- Routes. ---- */

static bool is_loopback(const union verbs_address *address)
{
	if (address->any.sa_family == AF_INET6)
		return IN6_IS_ADDR_LOOPBACK(&address->in6.sin6_addr);
	return ntohl(address->in.sin_addr.s_addr) >> 24 == 127;
}

static bool is_same(const union verbs_address *a, const union verbs_address *b)
{
	if (a->any.sa_family != b->any.sa_family)
		return false;
	if (a->any.sa_family == AF_INET6)
		return IN6_ARE_ADDR_EQUAL(&a->in6.sin6_addr, &b->in6.sin6_addr);
	return a->in.sin_addr.s_addr == b->in.sin_addr.s_addr;
}

/* The source address of packets to that address. */
static int route_source(const union verbs_address *to, union verbs_address *ret_from)
{
	socklen_t len = sizeof(*ret_from);
	int fd = socket(to->any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int err = 0;

	if (fd < 0)
		return -errno;
	if (connect(fd, &to->any, sizeof(*to)) || getsockname(fd, &ret_from->any, &len))
		err = -errno;
	close(fd);
	ret_from->in.sin_port = 0; /* in the same place in both families */
	return err;
}

/* The device that has the address, "mlx5_0:1", when its port is up. */
static int card_of(const union verbs_address *from, char *ret_name, size_t name_bytes)
{
	union verbs_address address = *from;
	struct ibv_port_attr port;
	struct rdma_cm_id *id;
	int err = 0;

	if (rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP))
		return -errno;
	if (rdma_bind_addr(id, &address.any))
		err = -errno;
	else if (!id->verbs)
		err = -ENODEV;
	else if (ibv_query_port(id->verbs, id->port_num, &port) || port.state != IBV_PORT_ACTIVE)
		err = -ENETDOWN;
	if (!err)
		snprintf(ret_name, name_bytes, "%s:%u", ibv_get_device_name(id->verbs->device),
			id->port_num);
	rdma_destroy_id(id);
	return err;
}

static void address_text(const union verbs_address *address, char text[INET6_ADDRSTRLEN])
{
	const void *bytes = address->any.sa_family == AF_INET6
				    ? (const void *)&address->in6.sin6_addr
				    : (const void *)&address->in.sin_addr;

	if (!inet_ntop(address->any.sa_family, bytes, text, INET6_ADDRSTRLEN))
		snprintf(text, INET6_ADDRSTRLEN, "?");
}

/* ---- The choice. ---- */

static int chosen(struct rp_found *ret_found, const char *device, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static int chosen(struct rp_found *ret_found, const char *device, const char *fmt, ...)
{
	va_list args;

	snprintf(ret_found->device_name, sizeof(ret_found->device_name), "%s", device);
	va_start(args, fmt);
	vsnprintf(ret_found->why, sizeof(ret_found->why), fmt, args);
	va_end(args);
	return device[0] ? 0 : -ENODEV;
}

int rp_find(const char *address, uint16_t port, struct rp_found *ret_found)
{
	union verbs_address to, from = {0};
	char leaves[INET6_ADDRSTRLEN], card[sizeof(ret_found->device_name)];
	bool cards = cards_there(), local;
	int err;

	if (strcmp(address, "localhost") == 0)
		address = "127.0.0.1"; /* the simulated device knows the address, not the name */
	if (verbs_address_parse(address, port ? port : FIND_PORT, &to))
		return chosen(ret_found, "", "'%s' is not an address", address);
	err = route_source(&to, &from);
	if (err)
		return chosen(ret_found, "", "no route leads to %s: %s", address, strerror(-err));
	local = is_loopback(&to) || is_same(&to, &from);
	if (local && (!cards || simulated_listens(address, port)))
		return chosen(ret_found, SIMULATED, "%s is an address of this host%s", address,
			cards ? ", and a server listens there on the simulated device"
			      : ", which has no RDMA card");
	if (!cards)
		return chosen(ret_found, "",
			"this host has no RDMA card, and %s is another host's address", address);
	if (rp_lacking())
		return chosen(ret_found, local ? SIMULATED : "",
			"this host has an RDMA card, but not its library: %.128s", rp_lacking());
	address_text(&from, leaves);
	err = card_of(&from, card, sizeof(card));
	if (!err)
		return chosen(ret_found, card,
			"packets to %s leave from %s, which is the card's address", address,
			leaves);
	if (local)
		return chosen(ret_found, SIMULATED,
			"%s is an address of this host, and no RDMA card has it", address);
	return chosen(ret_found, "",
		"packets to %s leave from %s, and no RDMA card with an active port has that "
		"address (%s; see `rdma link`)",
		address, leaves, strerror(-err));
}

int rp_source(const char *address, char ret_source[RP_ADDRESS_TEXT_BYTES])
{
	union verbs_address to, from = {0};
	char text[INET6_ADDRSTRLEN];
	int err = verbs_address_parse(address, FIND_PORT, &to);

	if (!err)
		err = route_source(&to, &from);
	if (err)
		return err;
	address_text(&from, text);
	snprintf(ret_source, RP_ADDRESS_TEXT_BYTES, "%s", text);
	return 0;
}

/* The first card with an active port, "mlx5_0:1". */
static bool card_active(char *ret_name, size_t name_bytes)
{
	int count = 0;
	struct ibv_device **devices = ibv_get_device_list(&count);
	bool found = false;

	for (int i = 0; devices && i < MIN(count, CARDS_MAX) && !found; i++) {
		struct ibv_context *context = ibv_open_device(devices[i]);
		struct ibv_device_attr attr;
		struct ibv_port_attr port;
		uint8_t ports =
			context && !ibv_query_device(context, &attr) ? attr.phys_port_cnt : 0;

		for (uint8_t number = 1; number <= ports && !found; number++) {
			found = !ibv_query_port(context, number, &port) &&
				port.state == IBV_PORT_ACTIVE;
			if (found)
				snprintf(ret_name, name_bytes, "%s:%u",
					ibv_get_device_name(devices[i]), number);
		}
		if (context)
			ibv_close_device(context);
	}
	if (devices)
		ibv_free_device_list(devices);
	return found;
}

int rp_find_listening(const char *address, struct rp_found *ret_found)
{
	union verbs_address at = {0};
	char card[sizeof(ret_found->device_name)];
	bool any;
	int err;

	if (verbs_address_parse(address, 0, &at))
		return chosen(ret_found, "", "'%s' is not an address", address);
	any = at.any.sa_family == AF_INET6 ? IN6_IS_ADDR_UNSPECIFIED(&at.in6.sin6_addr)
					   : !at.in.sin_addr.s_addr;
	if (is_loopback(&at))
		return chosen(
			ret_found, SIMULATED, "only processes of this host can reach %s", address);
	if (!cards_there())
		return chosen(ret_found, SIMULATED,
			"this host has no RDMA card: other hosts cannot reach it by RDMA");
	if (rp_lacking())
		return chosen(ret_found, SIMULATED,
			"this host has an RDMA card, but not its library: %.128s", rp_lacking());
	if (any)
		return card_active(card, sizeof(card))
			       ? chosen(ret_found, card, "the first RDMA card whose port is up")
			       : chosen(ret_found, SIMULATED,
					 "no RDMA card's port is up (see `rdma link`): other "
					 "hosts cannot reach it by RDMA");
	err = card_of(&at, card, sizeof(card));
	if (!err)
		return chosen(ret_found, card, "it has %s", address);
	return chosen(ret_found, SIMULATED,
		"no RDMA card with an active port has %s (%s; see `rdma link`): other hosts "
		"cannot reach it by RDMA",
		address, strerror(-err));
}
