/* tests/e2e/xdp/xdp_load.c: a bounded load: different packets in order, never more ahead of the
 * receiver than the driving program allows. Reads from standard input the number of packets that
 * may be sent, one number a line; ends when all are sent, and prints their number.
 *
 * usage: xdp_load IFACE DEST_MAC SOURCE_MAC PORT COUNT LONG_EVERY LONG_BYTES
 *
 * Packet N is N in four bytes and then a run of 0, 1, … 255, 0, … from N mod 256 on. Its datagram
 * has 22 + N * 7919 mod 1437 bytes, so that packets are 64 to 1,500 bytes long; every LONG_EVERY-th
 * has up to LONG_BYTES. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BATCH	      64u
#define HEAD_BYTES    42u
#define PAYLOAD_MAX   9000u
#define PATTERN_BYTES (PAYLOAD_MAX + 256u)

struct load {
	int fd;
	uint32_t port, long_every, long_bytes;
	uint8_t macs[12];
	uint8_t pattern[PATTERN_BYTES];
	uint8_t heads[BATCH][HEAD_BYTES + 4];
	struct iovec iov[BATCH][2];
	struct mmsghdr messages[BATCH];
};

static int fail(const char *what)
{
	perror(what);
	return 1;
}

static void put16(uint8_t *at, uint32_t value)
{
	at[0] = (uint8_t)(value >> 8);
	at[1] = (uint8_t)value;
}

static uint32_t payload_bytes(const struct load *load, uint32_t number)
{
	if (load->long_every && number % load->long_every == 0)
		return 1459 + (uint32_t)((uint64_t)number * 7919 % (load->long_bytes - 1458));
	return 22 + (uint32_t)((uint64_t)number * 7919 % 1437);
}

/* From 10.9.0.2 to 10.9.0.1, without a UDP checksum. */
static void packet_make(struct load *load, uint32_t slot, uint32_t number)
{
	static const uint8_t ADDRESSES[8] = {10, 9, 0, 2, 10, 9, 0, 1};
	uint32_t payload = payload_bytes(load, number), sum = 0;
	uint8_t *head = load->heads[slot];

	memset(head, 0, HEAD_BYTES);
	memcpy(head, load->macs, sizeof(load->macs));
	put16(head + 12, ETH_P_IP);
	head[14] = 0x45;
	put16(head + 16, payload + 28);
	put16(head + 18, number);
	head[22] = 64;
	head[23] = IPPROTO_UDP;
	memcpy(head + 26, ADDRESSES, sizeof(ADDRESSES));
	for (uint32_t i = 14; i < 34; i += 2)
		sum += (uint32_t)(head[i] << 8 | head[i + 1]);
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	put16(head + 24, ~sum);
	put16(head + 34, 5555);
	put16(head + 36, load->port);
	put16(head + 38, payload + 8);
	put16(head + 42, number >> 16);
	put16(head + 44, number);
	load->iov[slot][0] = (struct iovec){head, HEAD_BYTES + 4};
	load->iov[slot][1] = (struct iovec){load->pattern + number % 256, payload - 4};
	load->messages[slot].msg_hdr = (struct msghdr){.msg_iov = load->iov[slot], .msg_iovlen = 2};
}

static int send_up_to(struct load *load, uint32_t *sent, uint32_t limit)
{
	while (*sent < limit) {
		uint32_t count = limit - *sent < BATCH ? limit - *sent : BATCH, done = 0;

		for (uint32_t i = 0; i < count; i++)
			packet_make(load, i, *sent + i);
		while (done < count) {
			int n = sendmmsg(load->fd, load->messages + done, count - done, 0);

			if (n < 0)
				return fail("xdp_load: sendmmsg");
			done += (uint32_t)n;
		}
		*sent += count;
	}
	return 0;
}

static int load_open(struct load *load, char **args)
{
	struct sockaddr_ll to = {.sll_family = AF_PACKET};
	const int one = 1;

	for (uint32_t i = 0; i < 12; i++) {
		unsigned byte = 0;

		sscanf(args[i < 6 ? 1 : 2] + 2 * (i % 6), "%2x", &byte);
		load->macs[i] = (uint8_t)byte;
	}
	for (uint32_t i = 0; i < PATTERN_BYTES; i++)
		load->pattern[i] = (uint8_t)i;
	load->port = (uint32_t)atoi(args[3]);
	load->long_every = (uint32_t)atoi(args[5]);
	load->long_bytes = (uint32_t)atoi(args[6]);
	load->fd = socket(AF_PACKET, SOCK_RAW, 0);
	to.sll_ifindex = (int)if_nametoindex(args[0]);
	if (load->long_bytes <= 1458 || load->long_bytes > PAYLOAD_MAX)
		errno = ERANGE;
	else if (load->fd >= 0 && to.sll_ifindex &&
		 !bind(load->fd, (const struct sockaddr *)&to, sizeof(to)) &&
		 !setsockopt(load->fd, SOL_PACKET, PACKET_QDISC_BYPASS, &one, sizeof(one)))
		return 0;
	return fail("xdp_load");
}

int main(int argc, char **argv)
{
	static struct load load;
	uint32_t sent = 0, count;
	char line[32];

	if (argc != 8) {
		fprintf(stderr, "usage: xdp_load IFACE DEST_MAC SOURCE_MAC PORT COUNT LONG_EVERY "
				"LONG_BYTES\n");
		return 2;
	}
	if (load_open(&load, argv + 1))
		return 1;
	count = (uint32_t)atoi(argv[5]);
	while (sent < count && fgets(line, sizeof(line), stdin)) {
		uint32_t limit = (uint32_t)strtoul(line, NULL, 10);

		if (send_up_to(&load, &sent, limit < count ? limit : count))
			return 1;
	}
	printf("%u\n", sent);
	close(load.fd);
	return sent == count ? 0 : 1;
}
