/* bench/wire.c: packets from a generator in the kernel over a veth pair, received by AF_XDP or by
 * recvmmsg. Everything is in namespaces without a name, which end with their descriptors. */
#include "bench/wire.h"

#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/if_ether.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <linux/veth.h>
#include <net/if.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base.h"
#include "bench/child.h"
#include "bench/flows.h"
#include "bench/plan.h"

#define NEAR	       "near0"
#define FAR	       "far0"
#define NEAR_ADDRESS   0x0a090001u
#define FAR_ADDRESS    0x0a090002u
#define PORT	       9999u
#define PORT_TEXT      "9999"
#define HEAD_BYTES     42u
#define LIVE_FRAMES    (1u << 1) /* BPF_F_TEST_XDP_LIVE_FRAMES */
#define LIVE_BATCH     64u
#define FIRST_PACKETS  100000u /* to learn the rate */
#define RECEIVE_BATCH  64u
#define RECEIVE_BUFFER (32u << 20)
#define PATIENCE_US    20000
#define SUMMARY_BYTES  (64 * KIB)

/* Written at build time from generator.bpf.c. */
extern const uint8_t bench_generator_object[];
extern const size_t bench_generator_object_bytes;

struct bench_wire {
	const char *program;
	struct bench_cpus cpus;
	int home, near, far; /* namespaces */
	struct bpf_object *object;
	int generator_fd;
	uint8_t near_mac[ETH_ALEN], far_mac[ETH_ALEN];
	double rates[2]; /* packets a second that were sent last: to ingest, to recvmmsg */
};

/* A process that could leave a namespace can return to it. */
static void go_back(int home)
{
	int ret = setns(home, CLONE_NEWNET);

	CHECK(ret == 0);
}

const char *bench_wire_refused(void)
{
	int home = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	const char *why = NULL;

	if (home < 0)
		return "no network namespaces";
	if (geteuid() != 0)
		why = "packet rows need root";
	else if (unshare(CLONE_NEWNET))
		why = "not permitted to make a network namespace";
	else
		go_back(home);
	close(home);
	return why;
}

static void go_home(const struct bench_wire *wire)
{
	go_back(wire->home);
}

/* ---- The pair. ---- */

static int namespace_make(int *ret_fd)
{
	if (unshare(CLONE_NEWNET))
		return -errno;
	*ret_fd = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	return *ret_fd < 0 ? -errno : 0;
}

/* A request to the kernel with attributes within attributes. */
struct request {
	struct nlmsghdr head;
	struct ifinfomsg info;
	uint8_t rest[256];
};

static void *request_put(struct request *request, const void *data, size_t bytes)
{
	void *at = (uint8_t *)request + NLMSG_ALIGN(request->head.nlmsg_len);

	CHECK(NLMSG_ALIGN(request->head.nlmsg_len) + bytes <= sizeof(*request));
	memcpy(at, data, bytes);
	request->head.nlmsg_len = (uint32_t)(NLMSG_ALIGN(request->head.nlmsg_len) + bytes);
	return at;
}

static struct rtattr *attribute_open(
	struct request *request, uint16_t type, const void *data, size_t bytes)
{
	const struct rtattr head = {.rta_type = type, .rta_len = (uint16_t)RTA_LENGTH(bytes)};
	struct rtattr *at = request_put(request, &head, sizeof(head));

	if (bytes)
		request_put(request, data, bytes);
	return at;
}

static void attribute_end(struct request *request, struct rtattr *at)
{
	at->rta_len = (uint16_t)((uint8_t *)request + request->head.nlmsg_len - (uint8_t *)at);
}

/* near0 in this namespace, far0 in the other. */
static int pair_make(int far)
{
	struct request request = {
		.head = {.nlmsg_len = NLMSG_LENGTH(sizeof(struct ifinfomsg)),
			.nlmsg_type = RTM_NEWLINK,
			.nlmsg_flags = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK},
	};
	const struct ifinfomsg peer = {0};
	struct {
		struct nlmsghdr head;
		struct nlmsgerr error;
		uint8_t rest[512];
	} answer;
	struct rtattr *info, *data, *other;
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE), ret = 0;

	if (fd < 0)
		return -errno;
	attribute_open(&request, IFLA_IFNAME, NEAR, sizeof(NEAR));
	info = attribute_open(&request, IFLA_LINKINFO, NULL, 0);
	attribute_open(&request, IFLA_INFO_KIND, "veth", 4);
	data = attribute_open(&request, IFLA_INFO_DATA, NULL, 0);
	other = attribute_open(&request, VETH_INFO_PEER, &peer, sizeof(peer));
	attribute_open(&request, IFLA_IFNAME, FAR, sizeof(FAR));
	attribute_open(&request, IFLA_NET_NS_FD, &far, sizeof(far));
	attribute_end(&request, other);
	attribute_end(&request, data);
	attribute_end(&request, info);
	if (send(fd, &request, request.head.nlmsg_len, 0) < 0 ||
		recv(fd, &answer, sizeof(answer), 0) <
			(ssize_t)NLMSG_LENGTH(sizeof(answer.error.error)))
		ret = -EIO;
	else if (answer.head.nlmsg_type == NLMSG_ERROR)
		ret = answer.error.error;
	close(fd);
	return ret;
}

/* Brings the interface up, with an address where there is one, and reads its MAC address. */
static int link_up(const char *name, uint32_t address, uint8_t mac[ETH_ALEN])
{
	/* The kernel hands packets of the generator to interfaces that gather them (GRO). */
	struct ethtool_value gro = {.cmd = ETHTOOL_SGRO, .data = 1};
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(address)};
	struct ifreq request = {0};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), ret = 0;

	if (fd < 0)
		return -errno;
	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
	if (ioctl(fd, SIOCGIFHWADDR, &request))
		ret = -errno;
	memcpy(mac, request.ifr_hwaddr.sa_data, ETH_ALEN);
	memcpy(&request.ifr_addr, &at, sizeof(at));
	if (!ret && address && ioctl(fd, SIOCSIFADDR, &request))
		ret = -errno;
	request.ifr_data = (void *)&gro;
	if (!ret && ioctl(fd, SIOCETHTOOL, &request))
		ret = -errno;
	request.ifr_flags = IFF_UP | IFF_RUNNING;
	if (!ret && ioctl(fd, SIOCSIFFLAGS, &request))
		ret = -errno;
	close(fd);
	return ret;
}

static int pair_open(struct bench_wire *wire)
{
	int ret = namespace_make(&wire->far);

	if (!ret)
		ret = namespace_make(&wire->near);
	if (!ret)
		ret = pair_make(wire->far);
	if (!ret)
		ret = link_up(NEAR, NEAR_ADDRESS, wire->near_mac);
	if (!ret && setns(wire->far, CLONE_NEWNET))
		ret = -errno;
	if (!ret)
		ret = link_up(FAR, 0, wire->far_mac);
	return ret;
}

/* ---- The generator; in the far namespace. ---- */

static int generator_load(struct bench_wire *wire)
{
	LIBBPF_OPTS(bpf_object_open_opts, opts, .object_name = "nebulaio_bench");
	const uint32_t ifindex = if_nametoindex(FAR);
	struct bpf_program *program;
	int ret;

	wire->object =
		bpf_object__open_mem(bench_generator_object, bench_generator_object_bytes, &opts);
	if (!wire->object)
		return -errno;
	ret = bpf_map__set_initial_value(
		bpf_object__next_map(wire->object, NULL), &ifindex, sizeof(ifindex));
	if (!ret)
		ret = bpf_object__load(wire->object);
	if (ret)
		return ret;
	program = bpf_object__find_program_by_name(wire->object, "nebulaio_generator");
	CHECK(program != NULL);
	wire->generator_fd = bpf_program__fd(program);
	return 0;
}

static void put16(uint8_t *at, uint32_t value)
{
	at[0] = (uint8_t)(value >> 8);
	at[1] = (uint8_t)value;
}

/* A UDP datagram from far to near, without a checksum of its own. */
static void packet_make(const struct bench_wire *wire, uint8_t *packet, uint32_t bytes)
{
	const uint32_t addresses[] = {htonl(FAR_ADDRESS), htonl(NEAR_ADDRESS)};
	uint32_t sum = 0;

	memset(packet, 0, bytes);
	memcpy(packet, wire->near_mac, ETH_ALEN);
	memcpy(packet + ETH_ALEN, wire->far_mac, ETH_ALEN);
	put16(packet + 12, ETH_P_IP);
	packet[14] = 0x45;
	put16(packet + 16, bytes - ETH_HLEN);
	packet[22] = 64;
	packet[23] = IPPROTO_UDP;
	memcpy(packet + 26, addresses, sizeof(addresses));
	for (uint32_t i = 14; i < 34; i += 2)
		sum += (uint32_t)(packet[i] << 8 | packet[i + 1]);
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	put16(packet + 24, ~sum);
	put16(packet + 34, PORT);
	put16(packet + 36, PORT);
	put16(packet + 38, bytes - ETH_HLEN - 20);
}

static uint64_t thread_ns(void)
{
	struct timespec used;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
	return (uint64_t)used.tv_sec * NS_PER_S + (uint64_t)used.tv_nsec;
}

/* Adds the time to *elapsed_ns. -EINTR: the process was stopped and continued, and the kernel ended
 * the run and does not say how many packets it sent. The time that counts is then the thread's
 * processor time, which is all of the rest because the generator never waits. */
static int generate(struct bench_wire *wire, uint32_t bytes, uint64_t count, uint64_t *elapsed_ns)
{
	uint8_t packet[BENCH_WIRE_BYTES_MAX];
	LIBBPF_OPTS(bpf_test_run_opts, opts, .data_in = packet, .data_size_in = bytes,
		.repeat = (int)count, .flags = LIVE_FRAMES, .batch_size = LIVE_BATCH);
	uint64_t start_ns, start_thread_ns;
	int ret;

	packet_make(wire, packet, bytes);
	if (setns(wire->far, CLONE_NEWNET))
		return -errno;
	start_ns = clock_now_ns();
	start_thread_ns = thread_ns();
	ret = bpf_prog_test_run_opts(wire->generator_fd, &opts);
	*elapsed_ns += ret == -EINTR ? thread_ns() - start_thread_ns : clock_now_ns() - start_ns;
	go_home(wire);
	return ret == -EINVAL ? -EOPNOTSUPP : ret;
}

/* Sends as many packets as fill the time, by the rate that was measured before; after a stop, the
 * rest. A run takes some time by itself, so a short one tells no rate. */
static int generate_for(struct bench_wire *wire, uint32_t bytes, uint64_t budget_ns, double *rate,
	struct bench_wire_result *result)
{
	while (result->elapsed_ns < budget_ns - budget_ns / 8) {
		uint64_t left_ns = budget_ns - result->elapsed_ns, took_ns = 0;
		uint64_t count = *rate > 0 ? (uint64_t)(*rate * (double)left_ns / NS_PER_S) + 1
					   : FIRST_PACKETS;
		int ret = generate(wire, bytes, count, &took_ns);

		result->elapsed_ns += took_ns;
		if (ret && ret != -EINTR)
			return ret;
		if (!ret && (*rate == 0 || took_ns > budget_ns / 4))
			*rate = (double)count * NS_PER_S / (double)MAX(took_ns, 1u);
	}
	return 0;
}

/* ---- Receiving. ---- */

static double summary_number(const char *summary, const char *name)
{
	const char *at = strstr(summary, name);

	return at ? strtod(at + strlen(name), NULL) : 0;
}

static int summary_read(const char *line, bool durable, struct bench_wire_result *result)
{
	result->received = (uint64_t)summary_number(line, "\"packets\":");
	result->cpu_ns = (uint64_t)(summary_number(line, "\"cpu_seconds\":") * 1e9);
	result->copied_bytes = (uint64_t)summary_number(line, "\"copied_bytes\":");
	return durable ? bench_flow_took(line, "durable", result->took) : 0;
}

int bench_wire_ingest(struct bench_wire *wire, const char *path, uint32_t bytes, uint64_t budget_ns,
	struct bench_wire_result *ret_result)
{
	char line[SUMMARY_BYTES], sync[40], to[4200];
	const char *argv[] = {wire->program, "flow", "--from", "xdp:" NEAR ",udp=" PORT_TEXT,
		"--to", to, "--quiet", "--json", "--force", path ? sync : NULL, NULL};
	const struct bench_child_opts opts = {
		.argv = argv, .cpu = wire->cpus.server, .log_path = NULL};
	struct bench_wire_result result = {.took = ret_result->took};
	struct bench_child child;
	int ret;

	snprintf(to, sizeof(to), "%s%s", path ? "disk:" : "null:", path ? path : "");
	snprintf(
		sync, sizeof(sync), "--sync-bytes=%llu", (unsigned long long)BENCH_FLOW_SYNC_BYTES);

	if (setns(wire->near, CLONE_NEWNET))
		return -errno;
	ret = bench_child_start(&opts, &child);
	go_home(wire);
	if (ret)
		return ret;
	ret = bench_child_await(&child, "receiving on", line, sizeof(line));
	if (!ret)
		ret = generate_for(wire, bytes, budget_ns, &wire->rates[0], &result);
	kill(child.pid, SIGTERM);
	if (!ret)
		ret = bench_child_await(&child, "{", line, sizeof(line));
	bench_child_stop(&child);
	if (ret == -ECHILD)
		fprintf(stderr, "nebulaio bench: nebulaio flow ended early: %s\n", line);
	if (!ret)
		ret = summary_read(line, path != NULL, &result);
	if (!ret)
		*ret_result = result;
	return ret;
}

struct receiver {
	int fd, cpu;
	atomic_bool stop;
	uint64_t received, cpu_ns;
};

/* Receives as a plain program does: batches into the same few buffers, and nothing more. */
static void *receiver_main(void *arg)
{
	static uint8_t packets[RECEIVE_BATCH][BENCH_WIRE_BYTES_MAX];
	struct receiver *receiver = arg;
	struct mmsghdr messages[RECEIVE_BATCH] = {0};
	struct iovec iov[RECEIVE_BATCH];
	struct timespec used;
	int got = 0;

	bench_cpu_pin(receiver->cpu);
	for (uint32_t i = 0; i < RECEIVE_BATCH; i++) {
		iov[i] = (struct iovec){packets[i], sizeof(packets[i])};
		messages[i].msg_hdr = (struct msghdr){.msg_iov = &iov[i], .msg_iovlen = 1};
	}
	/* The packets that remain in the socket at the end count as well. */
	while (!atomic_load_explicit(&receiver->stop, memory_order_relaxed) || got > 0) {
		got = recvmmsg(receiver->fd, messages, RECEIVE_BATCH, MSG_WAITFORONE, NULL);
		if (got > 0)
			receiver->received += (uint64_t)got;
	}
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
	receiver->cpu_ns = (uint64_t)used.tv_sec * NS_PER_S + (uint64_t)used.tv_nsec;
	return NULL;
}

/* In the near namespace, where it stays. */
static int receiver_socket(struct bench_wire *wire)
{
	const struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(PORT)};
	const struct timeval patience = {.tv_usec = PATIENCE_US};
	const int buffer_bytes = RECEIVE_BUFFER;
	int fd, ret = 0;

	if (setns(wire->near, CLONE_NEWNET))
		return -errno;
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || bind(fd, (const struct sockaddr *)&at, sizeof(at)) ||
		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) ||
		setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer_bytes, sizeof(buffer_bytes)))
		ret = -errno;
	go_home(wire);
	if (ret && fd >= 0)
		close(fd);
	return ret ? ret : fd;
}

int bench_wire_recvmmsg(struct bench_wire *wire, uint32_t bytes, uint64_t budget_ns,
	struct bench_wire_result *ret_result)
{
	struct receiver receiver = {.fd = receiver_socket(wire), .cpu = wire->cpus.server};
	struct bench_wire_result result = {0};
	pthread_t thread;
	int ret;

	if (receiver.fd < 0)
		return receiver.fd;
	ret = -pthread_create(&thread, NULL, receiver_main, &receiver);
	if (!ret) {
		ret = generate_for(wire, bytes, budget_ns, &wire->rates[1], &result);
		atomic_store(&receiver.stop, true);
		pthread_join(thread, NULL);
	}
	close(receiver.fd);
	if (ret)
		return ret;
	result.received = receiver.received;
	result.cpu_ns = receiver.cpu_ns;
	*ret_result = result;
	return 0;
}

/* ---- Opening and closing. ---- */

int bench_wire_open(
	const char *program, const struct bench_cpus *cpus, struct bench_wire **ret_wire)
{
	struct bench_wire *wire = calloc(1, sizeof(*wire));
	int ret = 0;

	if (!wire)
		return -ENOMEM;
	*wire = (struct bench_wire){.program = program ? program : "/proc/self/exe",
		.cpus = *cpus,
		.home = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC),
		.near = -1,
		.far = -1};
	if (wire->home < 0)
		ret = -errno;
	if (!ret)
		ret = pair_open(wire);
	if (!ret)
		ret = generator_load(wire);
	if (wire->home >= 0)
		go_home(wire);
	if (ret) {
		bench_wire_close(wire);
		return ret;
	}
	*ret_wire = wire;
	return 0;
}

void bench_wire_close(struct bench_wire *wire)
{
	if (!wire)
		return;
	bpf_object__close(wire->object);
	if (wire->far >= 0)
		close(wire->far);
	if (wire->near >= 0)
		close(wire->near);
	if (wire->home >= 0)
		close(wire->home);
	free(wire);
}
