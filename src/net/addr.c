/* net/addr.c: addresses as text and back. */
#include "net/net_priv.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>

int net_name_parse(const char *address, struct net_name *ret_name)
{
	struct slice text = slice_str(address), host, port;
	struct net_name name = {0};
	uint64_t port_number;

	if (slice_starts(text, SLICE("["))) {
		ptrdiff_t end = slice_find(text, SLICE("]:"));

		if (end < 2)
			return -EINVAL;
		host = slice_of(text.data + 1, (size_t)end - 1);
		port = slice_from(text, (size_t)end + 2);
	} else {
		host = slice_split(&text, ':');
		port = text;
	}
	/* Digits only: a second colon, a sign or a space is refused with the rest. */
	if (slice_to_u64(port, &port_number) || port_number > UINT16_MAX)
		return -EINVAL;
	if (slice_copy_str(host, name.host, sizeof(name.host)))
		return -EINVAL;
	name.port = (uint16_t)port_number;
	*ret_name = name;
	return 0;
}

int net_addr_numeric(const struct net_name *name, union net_addr *ret_addr, socklen_t *ret_len)
{
	const char *host = name->host;
	union net_addr addr = {0};

	if (!strcmp(host, "localhost"))
		host = "127.0.0.1";
	if (inet_pton(AF_INET, host, &addr.v4.sin_addr) == 1) {
		addr.v4.sin_family = AF_INET;
		addr.v4.sin_port = htons(name->port);
	} else if (!*host || inet_pton(AF_INET6, host, &addr.v6.sin6_addr) == 1) {
		if (!*host)
			addr.v6.sin6_addr = in6addr_any;
		addr.v6.sin6_family = AF_INET6;
		addr.v6.sin6_port = htons(name->port);
	} else {
		return -EINVAL;
	}
	*ret_addr = addr;
	*ret_len = net_addr_len(&addr);
	return 0;
}

int net_addr_resolve(const struct net_name *name, union net_addr *ret_addrs, uint32_t *ret_count)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
	struct addrinfo *found;
	uint32_t count = 0;
	int err;

	err = getaddrinfo(name->host, NULL, &hints, &found);
	if (err)
		return err == EAI_MEMORY ? -ENOMEM : -EHOSTUNREACH;
	for (struct addrinfo *it = found; it && count < NET_ADDRESSES_MAX; it = it->ai_next) {
		union net_addr *addr = &ret_addrs[count];

		if (it->ai_addrlen > sizeof(*addr))
			continue;
		memcpy(addr, it->ai_addr, it->ai_addrlen);
		if (addr->any.sa_family == AF_INET)
			addr->v4.sin_port = htons(name->port);
		else if (addr->any.sa_family == AF_INET6)
			addr->v6.sin6_port = htons(name->port);
		else
			continue;
		count++;
	}
	freeaddrinfo(found);
	if (!count)
		return -EHOSTUNREACH;
	*ret_count = count;
	return 0;
}

socklen_t net_addr_len(const union net_addr *addr)
{
	return addr->any.sa_family == AF_INET ? sizeof(addr->v4) : sizeof(addr->v6);
}

void net_addr_print(const union net_addr *addr, char *buf, size_t buf_bytes)
{
	char host[INET6_ADDRSTRLEN];

	if (addr->any.sa_family == AF_INET) {
		inet_ntop(AF_INET, &addr->v4.sin_addr, host, sizeof(host));
		snprintf(buf, buf_bytes, "%s:%u", host, ntohs(addr->v4.sin_port));
	} else if (addr->any.sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&addr->v6.sin6_addr)) {
		inet_ntop(AF_INET, &addr->v6.sin6_addr.s6_addr[12], host, sizeof(host));
		snprintf(buf, buf_bytes, "%s:%u", host, ntohs(addr->v6.sin6_port));
	} else if (addr->any.sa_family == AF_INET6) {
		inet_ntop(AF_INET6, &addr->v6.sin6_addr, host, sizeof(host));
		snprintf(buf, buf_bytes, "[%s]:%u", host, ntohs(addr->v6.sin6_port));
	} else {
		snprintf(buf, buf_bytes, "local");
	}
}
