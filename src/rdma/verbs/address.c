/* rdma/verbs/address.c: numeric addresses of IPv4 and IPv6, and their texts. */
#include "rdma/verbs/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

int verbs_address_parse(const char *text, uint16_t port, union verbs_address *ret_address)
{
	struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_PASSIVE};
	struct addrinfo *found;

	if (getaddrinfo(text[0] ? text : "0.0.0.0", NULL, &hints, &found))
		return -EINVAL;
	memset(ret_address, 0, sizeof(*ret_address));
	memcpy(ret_address, found->ai_addr, found->ai_addrlen);
	freeaddrinfo(found);
	/* Both families keep the port in the same place. */
	ret_address->in.sin_port = htons(port);
	return 0;
}

void verbs_peer_text(struct rdma_cm_id *id, char text[64])
{
	const union verbs_address *peer = (const union verbs_address *)rdma_get_peer_addr(id);
	char host[INET6_ADDRSTRLEN] = "?";

	if (peer->any.sa_family == AF_INET6)
		inet_ntop(AF_INET6, &peer->in6.sin6_addr, host, sizeof(host));
	else
		inet_ntop(AF_INET, &peer->in.sin_addr, host, sizeof(host));
	snprintf(text, 64, peer->any.sa_family == AF_INET6 ? "[%s]:%u" : "%s:%u", host,
		ntohs(rdma_get_dst_port(id)));
}
