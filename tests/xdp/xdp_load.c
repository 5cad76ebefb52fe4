/* tests/xdp/xdp_load.c: sends UDP packets on an interface as fast as one thread can, or receives
 * them as a plain program does, with recvmmsg: the anchor for AF_XDP's rate.
 *
 * usage: xdp_load send IFACE DEST_MAC SOURCE_MAC PORT PAYLOAD_BYTES SECONDS
 *        xdp_load receive PORT SECONDS */
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
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BATCH	   64
#define PACKET_MAX 2048
#define HEAD_BYTES 42

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static int fail(const char *what)
{
	perror(what);
	return 1;
}

static void mac_parse(const char *hex, uint8_t mac[6])
{
	for (unsigned i = 0; i < 6; i++) {
		unsigned byte = 0;

		sscanf(hex + 2 * i, "%2x", &byte);
		mac[i] = (uint8_t)byte;
	}
}

static void put16(uint8_t *at, unsigned value)
{
	at[0] = (uint8_t)(value >> 8);
	at[1] = (uint8_t)value;
}

/* From 10.9.0.2 to 10.9.0.1, without a UDP checksum. */
static void packet_build(uint8_t *packet, char **macs, unsigned port, unsigned payload)
{
	static const uint8_t ADDRESSES[8] = {10, 9, 0, 2, 10, 9, 0, 1};
	uint32_t sum = 0;

	memset(packet, 0, PACKET_MAX);
	mac_parse(macs[0], packet);
	mac_parse(macs[1], packet + 6);
	put16(packet + 12, ETH_P_IP);
	packet[14] = 0x45;
	put16(packet + 16, payload + 28);
	packet[22] = 64;
	packet[23] = IPPROTO_UDP;
	memcpy(packet + 26, ADDRESSES, sizeof(ADDRESSES));
	for (unsigned i = 14; i < 34; i += 2)
		sum += (uint32_t)(packet[i] << 8 | packet[i + 1]);
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	put16(packet + 24, ~sum & 0xffff);
	put16(packet + 34, 5555);
	put16(packet + 36, port);
	put16(packet + 38, payload + 8);
}

static int send_main(char **args)
{
	struct sockaddr_ll to = {.sll_family = AF_PACKET, .sll_protocol = 0};
	unsigned payload = (unsigned)atoi(args[4]);
	static uint8_t packet[PACKET_MAX];
	struct iovec iov = {packet, HEAD_BYTES + payload};
	struct mmsghdr messages[BATCH] = {0};
	uint64_t end_ns, sent = 0;
	const int one = 1;
	int fd = socket(AF_PACKET, SOCK_RAW, 0);

	to.sll_ifindex = (int)if_nametoindex(args[0]);
	if (fd < 0 || !to.sll_ifindex || HEAD_BYTES + payload > PACKET_MAX ||
		bind(fd, (const struct sockaddr *)&to, sizeof(to)) ||
		setsockopt(fd, SOL_PACKET, PACKET_QDISC_BYPASS, &one, sizeof(one)))
		return fail("xdp_load: send");
	packet_build(packet, &args[1], (unsigned)atoi(args[3]), payload);
	for (unsigned i = 0; i < BATCH; i++)
		messages[i].msg_hdr = (struct msghdr){.msg_iov = &iov, .msg_iovlen = 1};
	end_ns = now_ns() + (uint64_t)atoi(args[5]) * 1000000000u;
	while (now_ns() < end_ns) {
		int n = sendmmsg(fd, messages, BATCH, 0);

		/* The other side's ring is full: that packet is lost, as on a wire. */
		if (n < 0 && errno != ENOBUFS && errno != EAGAIN)
			return fail("xdp_load: sendmmsg");
		if (n > 0)
			sent += (uint64_t)n;
	}
	printf("%llu\n", (unsigned long long)sent);
	close(fd);
	return 0;
}

static int receive_main(char **args)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(args[0]))};
	static uint8_t packets[BATCH][PACKET_MAX];
	struct mmsghdr messages[BATCH] = {0};
	struct iovec iov[BATCH];
	const struct timeval patience = {.tv_usec = 100000};
	const int buffer_bytes = 32 << 20;
	uint64_t end_ns, received = 0;
	struct rusage usage;
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	if (fd < 0 || bind(fd, (const struct sockaddr *)&at, sizeof(at)) ||
		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) ||
		setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer_bytes, sizeof(buffer_bytes)))
		return fail("xdp_load: receive");
	for (unsigned i = 0; i < BATCH; i++) {
		iov[i] = (struct iovec){packets[i], PACKET_MAX};
		messages[i].msg_hdr = (struct msghdr){.msg_iov = &iov[i], .msg_iovlen = 1};
	}
	printf("ready\n");
	fflush(stdout);
	end_ns = now_ns() + (uint64_t)atoi(args[1]) * 1000000000u;
	while (now_ns() < end_ns) {
		int n = recvmmsg(fd, messages, BATCH, MSG_WAITFORONE, NULL);

		if (n > 0)
			received += (uint64_t)n;
	}
	getrusage(RUSAGE_SELF, &usage);
	printf("%llu %.3f\n", (unsigned long long)received,
		(double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
			(double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6);
	close(fd);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 8 && !strcmp(argv[1], "send"))
		return send_main(&argv[2]);
	if (argc == 4 && !strcmp(argv[1], "receive"))
		return receive_main(&argv[2]);
	fprintf(stderr, "usage: xdp_load send IFACE DEST_MAC SOURCE_MAC PORT PAYLOAD SECONDS\n"
			"       xdp_load receive PORT SECONDS\n");
	return 2;
}
