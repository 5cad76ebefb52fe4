/* unified-rdma-test.c: RDMA, packets and storage over one memory region, shown in three steps
 * between a server and a client. Every step moves real bytes from one device to another through the
 * same frames, and compares checksums at both ends.
 *
 *   unified-rdma-test [IFACE] [RDMA_DEV] [NVME] [server|ADDRESS]
 */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "unified-rdma-test.h"

static const char USAGE[] =
	"usage: unified-rdma-test [IFACE] [RDMA_DEV] [NVME] [server|ADDRESS] [options]\n"
	"\n"
	"Three steps between a server and a client, each through frames of one memory region:\n"
	"  1. network -> NVMe   packets that the client sends are written where they arrived\n"
	"  2. RDMA -> NVMe      a stream of the client's is written where it landed\n"
	"  3. NVMe -> RDMA      and is read back and served to the client\n"
	"\n"
	"  IFACE     interface to take packets from (lo)\n"
	"  RDMA_DEV  RDMA device (simulated)\n"
	"  NVME      where the server stores: a device or a file (./unified-rdma-test.volume);\n"
	"            its first 64 MiB are overwritten. A client uses none\n"
	"  server    or the server's address (server)\n"
	"\n"
	"  --seconds N  client: repeats for so long (0: each step once)\n"
	"  --port N     RDMA port; packets go to UDP port N + 1 (9200)\n"
	"  --once       server: ends with its first client\n"
	"  --force      server: overwrite a device that is not blank\n";

/* The client's description of its packets, in a record of its own. */
struct note {
	char magic[8];
	uint32_t packets, last;
	uint64_t crc;
};
#define NOTE_MAGIC "uniftest"

static struct machine machine = {.interface = "lo",
	.device = "simulated",
	.storage = "./unified-rdma-test.volume",
	.role = "server",
	.port = 9200};

/* ---- The once-a-second line. ---- */

static void counts_now(struct counts *ret_counts)
{
	struct flow_link_stats stats;

	*ret_counts = machine.total;
	if (!machine.link)
		return;
	flow_link_stats(machine.link, &stats);
	if (flow_link_sends(machine.link)) {
		ret_counts->rdma_tx += stats.records;
		ret_counts->rdma_tx_bytes += stats.bytes;
	} else {
		ret_counts->rdma_rx += stats.records;
		ret_counts->rdma_rx_bytes += stats.bytes;
	}
}

static double mib(uint64_t bytes)
{
	return (double)bytes / (double)MIB;
}

static uint64_t moved(const struct counts *counts)
{
	return counts->rdma_tx_bytes + counts->rdma_rx_bytes + counts->packet_bytes;
}

static void line_print(const struct counts *now, const struct counts *last, double seconds)
{
	printf("[%3.0f s] RDMA TX %llu msg %.1f MiB, RX %llu msg %.1f MiB | network %llu pkt %.1f "
	       "MiB | storage W %.1f MiB, R %.1f MiB | errors %llu | %.0f msg/s %.0f pkt/s %.1f "
	       "MiB/s\n",
		(double)(clock_now_ns() - machine.start_ns) / (double)NS_PER_S,
		(unsigned long long)now->rdma_tx, mib(now->rdma_tx_bytes),
		(unsigned long long)now->rdma_rx, mib(now->rdma_rx_bytes),
		(unsigned long long)now->packets, mib(now->packet_bytes), mib(now->storage_written),
		mib(now->storage_read), (unsigned long long)now->errors,
		(double)(now->rdma_tx + now->rdma_rx - last->rdma_tx - last->rdma_rx) / seconds,
		(double)(now->packets - last->packets) / seconds,
		mib(moved(now) - moved(last)) / seconds);
	fflush(stdout);
}

static void report_main(void *arg)
{
	struct counts last = {0}, now;
	uint64_t due_ns = clock_now_ns();

	(void)arg;
	machine.reporter = fiber_self();
	while (!machine.over) {
		due_ns += NS_PER_S;
		while (!machine.over && fiber_park_until(due_ns) == 0)
			;
		if (machine.over)
			break;
		counts_now(&now);
		line_print(&now, &last, 1.0);
		last = now;
	}
	machine.reporter = NULL;
}

static int summary(int error)
{
	const struct counts *total = &machine.total;
	const struct counts none = {0};
	double seconds = (double)(clock_now_ns() - machine.start_ns) / (double)NS_PER_S;
	struct region_usage usage;

	region_usage(machine.region, &usage);
	printf("\n==== Summary: %s, %.1f s, %u rounds ====\n", machine.server ? "server" : "client",
		seconds, machine.rounds);
	line_print(total, &none, MAX(seconds, 0.001));
	printf("copied by this process: %llu bytes; frames leased at the end: %llu of %llu\n",
		(unsigned long long)region_copy_bytes_all(),
		(unsigned long long)(usage.frames_total - usage.frames_by_owner[OWNER_FREE] -
				     usage.frames_by_owner[OWNER_XDP]),
		(unsigned long long)usage.frames_total);
	if (error || total->errors || !machine.rounds) {
		printf("FAILED: %s\n", error		? strerror(-error)
				       : machine.rounds ? "errors"
							: "nothing was done");
		return 1;
	}
	printf("PASSED: every checksum was equal at both ends\n");
	return 0;
}

static void step_print(int step, const char *what, uint64_t bytes, int error)
{
	if (error)
		machine.total.errors++;
	if (machine.rounds == 0 || error)
		printf("step %d: %-16s %6.1f MiB  %s\n", step, what, mib(bytes),
			error ? strerror(-error) : "checksums equal, 0 bytes copied");
	fflush(stdout);
}

/* ---- Links. ---- */

static void link_done(struct flow_link *link)
{
	struct counts now;

	counts_now(&now);
	machine.total = now;
	machine.link = NULL;
	flow_link_close(link);
}

static int link_open(bool sends, struct flow_link **ret_link)
{
	const struct flow_link_opts opts = {
		.sends = sends, .unit = machine.server && !sends ? 512 : FRAME_BYTES};
	uint64_t deadline_ns = clock_now_ns() + 10 * NS_PER_S;
	int ret = -EBUSY;

	if (machine.server)
		ret = flow_link_accept(machine.listener, &opts, ret_link);
	/* Between two steps a server is busy for a moment. */
	while (!machine.server &&
		(ret = flow_link_connect(
			 machine.fabric, &opts, machine.role, machine.port, ret_link)) == -EBUSY &&
		clock_now_ns() < deadline_ns)
		fiber_sleep_ns(5 * NS_PER_MS);
	if (ret && ret != -ECANCELED)
		fprintf(stderr, "unified-rdma-test: no connection: %s\n",
			machine.server ? strerror(-ret) : flow_fabric_why(machine.fabric));
	if (!ret)
		machine.link = *ret_link;
	return ret;
}

static int storage_sink(uint64_t offset, struct flow_sink **ret_sink)
{
	const struct flow_volume volume = {.disk = machine.disk,
		.target = machine.target,
		.offset = offset,
		.bytes = STORAGE_BYTES - RDMA_AT};

	return flow_volume_sink_open(&machine.core, &volume, ret_sink);
}

/* ---- The server's steps. ---- */

struct network {
	struct packets *packets;
	struct flow_checksum sum;
	uint64_t bytes;
	int error;
	bool over;
	struct fiber *waiter;
};

static void network_main(void *arg)
{
	struct network *network = arg;
	struct flow_stage *stages[1] = {&network->sum.stage};
	struct flow_source *source;
	struct flow_sink *sink;

	flow_checksum_init(&network->sum, CHECKSUM_CRC64NVME);
	network->error = packets_source(network->packets, PACKETS, &source);
	if (!network->error) {
		network->error = storage_sink(NETWORK_AT, &sink);
		if (network->error)
			flow_source_close(source);
		else
			network->error = flow_run(source, stages, 1, sink, &network->bytes);
	}
	network->over = true;
	if (network->waiter)
		fiber_wake(network->waiter);
}

static void network_wait(struct network *network, uint64_t deadline_ns)
{
	network->waiter = fiber_self();
	while (!network->over && fiber_park_until(deadline_ns) == 0)
		;
	if (!network->over)
		packets_over(network->packets);
	while (!network->over)
		fiber_park();
	network->waiter = NULL;
}

/* The note comes by RDMA, so that the server knows which packets the network should have
 * brought. */
static int note_take(struct flow_link *link, struct note *ret_note)
{
	struct flow_source *source = flow_link_source(link);
	struct flow_piece piece;
	int ret = flow_source_next(source, FLOW_PIECE_BYTES_MAX, &piece);

	if (ret <= 0)
		return ret ? ret : -EPROTO;
	if (piece.bytes < sizeof(*ret_note) || memcmp(piece.data, NOTE_MAGIC, 8))
		ret = -EPROTO;
	else
		memcpy(ret_note, piece.data, sizeof(*ret_note));
	flow_piece_end(&machine.core, &piece, OWNER_APP);
	if (ret > 0)
		ret = flow_source_next(source, FLOW_PIECE_BYTES_MAX, &piece);
	return ret;
}

/* Checks that the stored bytes are those that the network brought. */
static int storage_compare(uint64_t bytes, uint64_t crc)
{
	const struct flow_volume volume = {.disk = machine.disk,
		.target = machine.target,
		.offset = NETWORK_AT,
		.bytes = bytes};
	struct flow_checksum sum;
	struct flow_stage *stages[1] = {&sum.stage};
	struct flow_source *source;
	struct flow_sink *sink;
	uint64_t got;
	int ret;

	flow_checksum_init(&sum, CHECKSUM_CRC64NVME);
	ret = flow_volume_source_open(&machine.core, &volume, &source);
	if (ret)
		return ret;
	ret = flow_null_sink_open(&machine.core, &sink);
	if (ret) {
		flow_source_close(source);
		return ret;
	}
	ret = flow_run(source, stages, 1, sink, &got);
	machine.total.storage_read += got;
	return !ret && sum.checksum.as.crc != crc ? -EBADMSG : ret;
}

static int serve_network(struct packets *packets, bool *ret_last)
{
	struct network network = {.packets = packets};
	struct flow_link *link;
	struct note note;
	int ret = fiber_spawn(machine.reactor, "network", network_main, &network);

	if (ret)
		return ret;
	ret = link_open(false, &link);
	if (ret) {
		network_wait(&network, 0);
		return ret;
	}
	ret = note_take(link, &note);
	network_wait(&network, ret ? 0 : clock_now_ns() + 2 * NS_PER_S);
	machine.total.packets += network.bytes / PACKET_BYTES;
	machine.total.packet_bytes += network.bytes;
	machine.total.storage_written += network.bytes;
	if (!ret)
		ret = network.error;
	if (!ret && (network.bytes != (uint64_t)note.packets * PACKET_BYTES ||
			    network.sum.checksum.as.crc != note.crc))
		ret = -EBADMSG;
	if (!ret)
		ret = storage_compare(network.bytes, note.crc);
	*ret_last = !ret && note.last;
	flow_link_end(link, ret);
	link_done(link);
	step_print(1, "network -> NVMe", network.bytes, ret);
	return ret;
}

static int serve_rdma_in(void)
{
	struct flow_link *link;
	struct flow_sink *sink;
	uint64_t bytes = 0;
	int ret = link_open(false, &link);

	if (ret)
		return ret;
	ret = storage_sink(RDMA_AT, &sink);
	if (!ret)
		ret = flow_run(flow_link_source(link), NULL, 0, sink, &bytes);
	machine.total.storage_written += bytes;
	flow_link_end(link, ret);
	link_done(link);
	step_print(2, "RDMA -> NVMe", bytes, ret);
	return ret;
}

static int serve_rdma_out(void)
{
	const struct flow_volume volume = {.disk = machine.disk,
		.target = machine.target,
		.offset = RDMA_AT,
		.bytes = STREAM_BYTES};
	struct flow_link *link;
	struct flow_source *source;
	uint64_t bytes = 0;
	int ret = link_open(true, &link);

	if (ret)
		return ret;
	ret = flow_volume_source_open(&machine.core, &volume, &source);
	if (!ret)
		ret = flow_run(source, NULL, 0, flow_link_sink(link), &bytes);
	machine.total.storage_read += bytes;
	link_done(link);
	step_print(3, "NVMe -> RDMA", bytes, ret);
	return ret;
}

static int serve(void)
{
	struct packets *packets;
	bool last = false;
	int ret = packets_open(&machine, &packets);

	if (ret)
		return ret;
	printf("server: packets by %s, UDP port %u%s\n", packets_way(packets), machine.port + 1u,
		packets_copied_by_kernel(packets) ? " (copied once, by the kernel)" : "");
	printf("server: RDMA on %s, port %u; storage %s: %s\nready\n",
		flow_fabric_name(machine.fabric), flow_link_port(machine.listener), machine.storage,
		disk_describe(machine.disk));
	fflush(stdout);
	while (!ret && !machine.stop && !(last && machine.once)) {
		ret = serve_network(packets, &last);
		if (!ret)
			ret = serve_rdma_in();
		if (!ret)
			ret = serve_rdma_out();
		machine.rounds += !ret;
		/* A client that failed is counted; the next one is served. */
		if (ret && ret != -ECANCELED && !machine.once)
			ret = 0;
	}
	packets_close(packets);
	return ret == -ECANCELED && machine.stop ? 0 : ret;
}

/* ---- The client's steps. ---- */

static struct flow_piece piece_new(uint32_t bytes)
{
	const struct flow_want want = {.frame_count = region_frames_for(bytes),
		.owner = OWNER_APP,
		.deadline_ns = DEADLINE_NONE};
	struct flow_piece piece = {.bytes = bytes};

	flow_piece_lease(&machine.core, &want, &piece);
	return piece;
}

/* Bytes that differ in every round and place. */
static void pattern(uint8_t *data, uint32_t bytes, uint64_t seed)
{
	for (uint32_t at = 0; at + 8 <= bytes; at += 8) {
		uint64_t word = (seed + at + 1) * 0x9e3779b97f4a7c15ull;

		memcpy(data + at, &word, sizeof(word));
	}
}

static int packets_send(struct note *note)
{
	struct sockaddr_in to = {
		.sin_family = AF_INET, .sin_port = htons((uint16_t)(machine.port + 1))};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), ret = 0;
	uint8_t data[PACKET_BYTES];

	if (fd < 0)
		return -errno;
	if (inet_pton(AF_INET, machine.role, &to.sin_addr) != 1)
		ret = -EINVAL;
	for (uint32_t i = 0; i < PACKETS && !ret; i++) {
		pattern(data, sizeof(data), (uint64_t)machine.rounds << 32 | i << 12);
		if (sendto(fd, data, sizeof(data), 0, (struct sockaddr *)&to, sizeof(to)) < 0)
			ret = -errno;
		note->crc = crc64nvme_update(note->crc, data, sizeof(data));
		note->packets++;
		if (i % 64 == 63) /* no faster than a short ring empties */
			fiber_sleep_ns(2 * NS_PER_MS);
	}
	machine.total.packets += note->packets;
	machine.total.packet_bytes += (uint64_t)note->packets * PACKET_BYTES;
	close(fd);
	return ret;
}

static int ask_network(bool last)
{
	struct note note = {.magic = NOTE_MAGIC, .last = last};
	struct flow_link *link;
	struct flow_sink *sink;
	struct flow_piece piece = {0};
	int ret = link_open(true, &link), finished;

	if (ret)
		return ret;
	sink = flow_link_sink(link);
	ret = packets_send(&note);
	if (!ret)
		piece = piece_new(FRAME_BYTES);
	if (!ret && !piece.data)
		ret = -ENOBUFS;
	if (!ret) {
		memset(piece.data, 0, FRAME_BYTES);
		memcpy(piece.data, &note, sizeof(note));
		ret = flow_sink_push(sink, &piece);
	}
	finished = flow_sink_finish(sink, ret != 0);
	link_done(link);
	step_print(
		1, "network -> NVMe", (uint64_t)note.packets * PACKET_BYTES, ret ? ret : finished);
	return ret ? ret : finished;
}

static int ask_rdma_in(uint64_t *ret_crc)
{
	struct flow_link *link;
	struct flow_link_stats stats;
	struct flow_sink *sink;
	int ret = link_open(true, &link), finished;

	if (ret)
		return ret;
	sink = flow_link_sink(link);
	for (uint64_t at = 0; at < STREAM_BYTES && !ret; at += FLOW_PIECE_BYTES_MAX) {
		struct flow_piece piece = piece_new(FLOW_PIECE_BYTES_MAX);

		if (!piece.data) {
			ret = -ENOBUFS;
			break;
		}
		pattern(piece.data, piece.bytes, (uint64_t)machine.rounds << 40 | at);
		ret = flow_sink_push(sink, &piece);
	}
	finished = flow_sink_finish(sink, ret != 0);
	flow_link_stats(link, &stats);
	*ret_crc = stats.crc64nvme;
	link_done(link);
	step_print(2, "RDMA -> NVMe", stats.bytes, ret ? ret : finished);
	return ret ? ret : finished;
}

static int ask_rdma_out(uint64_t crc)
{
	struct flow_link *link;
	struct flow_link_stats stats;
	struct flow_sink *sink;
	uint64_t bytes = 0;
	int ret = link_open(false, &link);

	if (ret)
		return ret;
	ret = flow_null_sink_open(&machine.core, &sink);
	if (!ret)
		ret = flow_run(flow_link_source(link), NULL, 0, sink, &bytes);
	flow_link_stats(link, &stats);
	if (!ret && (stats.crc64nvme != crc || bytes != STREAM_BYTES))
		ret = -EBADMSG;
	flow_link_end(link, ret);
	link_done(link);
	step_print(3, "NVMe -> RDMA", bytes, ret);
	return ret;
}

static int ask(void)
{
	uint64_t end_ns = clock_now_ns() + machine.seconds * NS_PER_S, crc = 0;
	bool last = false;
	int ret = 0;

	while (!ret && !last) {
		last = machine.stop || clock_now_ns() >= end_ns;
		ret = ask_network(last);
		if (!ret)
			ret = ask_rdma_in(&crc);
		if (!ret)
			ret = ask_rdma_out(crc);
		machine.rounds += !ret;
	}
	return ret;
}

/* ---- Start and end. ---- */

static int result;

static void main_fiber(void *arg)
{
	(void)arg;
	result = machine.server ? serve() : ask();
	flow_link_listener_close(machine.listener);
	machine.listener = NULL;
	flow_fabric_end(machine.fabric);
	machine.over = true;
	if (machine.reporter)
		fiber_wake(machine.reporter);
	reactor_stop(machine.reactor);
}

static volatile sig_atomic_t signalled;
static int signal_fd = -1;

static void on_signal(int number)
{
	const uint64_t one = 1;
	int saved = errno;

	(void)number;
	signalled = 1;
	if (write(signal_fd, &one, sizeof(one)) < 0)
		errno = saved;
	errno = saved;
}

static uint32_t signals_poll(void *arg)
{
	uint64_t rung;

	(void)arg;
	if (!signalled || read(signal_fd, &rung, sizeof(rung)) < 0)
		return 0;
	signalled = 0;
	machine.stop = true;
	if (machine.listener)
		flow_link_cancel(machine.listener);
	return 1;
}

static bool signals_arm(void *arg)
{
	(void)arg;
	return !signalled;
}

static void signals_disarm(void *arg)
{
	(void)arg;
}

static void signals_open(void)
{
	static struct reactor_poller poller = {.name = "signals",
		.poll = signals_poll,
		.arm = signals_arm,
		.disarm = signals_disarm};
	const struct sigaction action = {.sa_handler = on_signal};

	signal_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	poller.event_fd = signal_fd;
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	reactor_poller_add(machine.reactor, &poller);
}

static int storage_open(void)
{
	struct disk_opts opts = {.path = machine.storage,
		.bytes_min = STORAGE_BYTES,
		.step_bytes = MIB,
		.create = true};
	char what[128] = "something that cannot be read";
	int ret = disk_open(&opts, &machine.disk);

	if (!ret && disk_kind(machine.disk) != DISK_FILE && !machine.force &&
		disk_foreign(machine.disk, what, sizeof(what))) {
		fprintf(stderr,
			"unified-rdma-test: %s: there is %s on it: not touched; --force "
			"gives that up\n",
			machine.storage, what);
		return -EEXIST;
	}
	if (!ret)
		ret = disk_attach(machine.disk, machine.reactor, machine.region);
	if (!ret)
		ret = disk_target(machine.disk, machine.region, &machine.target);
	if (ret)
		fprintf(stderr, "unified-rdma-test: %s: %s\n", machine.storage, strerror(-ret));
	return ret;
}

static int devices_open(void)
{
	const struct region_opts region_opts = {
		.name = "unified-test", .bytes = 192 * MIB, .core_count = 1};
	const struct reactor_opts reactor_opts = {.cpu = -1, .idle_spin_ns = 20 * NS_PER_US};
	int ret = region_open(&region_opts, &machine.region);

	if (!ret)
		ret = reactor_open(&reactor_opts, &machine.reactor);
	if (!ret)
		ret = flow_core_open(machine.reactor, machine.region, &machine.core);
	if (!ret)
		ret = flow_fabric_open(&machine.core, machine.device, &machine.fabric);
	if (ret) {
		fprintf(stderr, "unified-rdma-test: region, io_uring or RDMA device: %s\n",
			strerror(-ret));
		return ret;
	}
	region_timed_set(machine.region, true);
	if (!machine.server)
		return 0;
	ret = storage_open();
	if (!ret) {
		ret = flow_link_listen(machine.fabric, "", machine.port, &machine.listener);
		if (ret)
			fprintf(stderr, "unified-rdma-test: port %u: %s\n", machine.port,
				strerror(-ret));
	}
	return ret;
}

static void devices_close(void)
{
	flow_link_listener_close(machine.listener);
	flow_fabric_close(machine.fabric);
	disk_close(machine.disk);
	if (machine.core.region)
		flow_core_close(&machine.core);
	reactor_close(machine.reactor);
	region_close(machine.region);
}

static bool number_take(const char *text, uint64_t max, uint64_t *ret_number)
{
	char *end;

	errno = 0;
	*ret_number = strtoull(text, &end, 10);
	return !errno && end != text && !*end && *text != '-' && *ret_number <= max;
}

static bool arguments_take(int argc, char **argv)
{
	static const struct option OPTIONS[] = {{"seconds", required_argument, NULL, 's'},
		{"port", required_argument, NULL, 'p'}, {"once", no_argument, NULL, 'o'},
		{"force", no_argument, NULL, 'f'}, {"help", no_argument, NULL, 'h'}, {0}};
	const char **const places[] = {
		&machine.interface, &machine.device, &machine.storage, &machine.role};
	uint64_t port = machine.port;
	int option;

	while ((option = getopt_long(argc, argv, "h", OPTIONS, NULL)) != -1) {
		if (option == 's' && number_take(optarg, 1000000, &machine.seconds))
			continue;
		if (option == 'p' && number_take(optarg, 65534, &port) && port)
			continue;
		if (option != 'o' && option != 'f')
			return false;
		machine.once |= option == 'o';
		machine.force |= option == 'f';
	}
	machine.port = (uint16_t)port;
	if (argc - optind > 4)
		return false;
	for (int i = optind; i < argc; i++)
		*places[i - optind] = argv[i];
	machine.server = !strcmp(machine.role, "server");
	return true;
}

int main(int argc, char **argv)
{
	int ret;

	if (!arguments_take(argc, argv)) {
		fputs(USAGE, stderr);
		return 2;
	}
	log_set_level(LOG_WARN);
	ret = devices_open();
	if (!ret) {
		signals_open();
		machine.start_ns = clock_now_ns();
		printf("unified-rdma-test: %s; interface %s, RDMA %s: one region of %u MiB\n",
			machine.server ? "server" : "client", machine.interface,
			flow_fabric_name(machine.fabric), 192);
		fiber_spawn(machine.reactor, "main", main_fiber, NULL);
		fiber_spawn(machine.reactor, "report", report_main, NULL);
		reactor_run(machine.reactor);
		ret = summary(result);
	} else {
		ret = 1;
	}
	devices_close();
	return ret;
}
