/* rdma/verbs/address.h: numeric addresses of IPv4 and IPv6, as connections use them. */
#ifndef RDMA_VERBS_ADDRESS_H
#define RDMA_VERBS_ADDRESS_H

#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>

union verbs_address {
	struct sockaddr any;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
	struct sockaddr_storage storage;
};
/* A numeric address; "" or "0.0.0.0" or "::" is any. */
int verbs_address_parse(const char *text, uint16_t port, union verbs_address *ret_address);
/* "192.0.2.1:9100" or "[2001:db8::1]:9100": where the peer of an identifier is. */
void verbs_peer_text(struct rdma_cm_id *id, char text[64]);

#endif
