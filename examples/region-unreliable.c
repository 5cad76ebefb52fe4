/* examples/region-unreliable.c: messages that nobody acknowledges, numbered so that the receiver
 * can tell how many were lost: by an unreliable connection, to a multicast group, or as Ethernet
 * frames.
 *
 *   region-unreliable DEVICE uc ADDRESS:PORT send|receive COUNT
 *   region-unreliable DEVICE group ADDRESS send|receive COUNT
 *   region-unreliable DEVICE frames MAC send|receive COUNT
 *
 * A frame is for the receiver's MAC address. */
#include "example.h"

#define HEAD_BYTES    14u     /* of Ethernet */
#define ETHER_TYPE    0x88b5u /* for experiments (IEEE 802) */
#define MESSAGE_BYTES 256u
#define RECEIVES      64u

static struct neb_region *region;
static uint16_t peer;
static uint32_t head; /* bytes before a message: in a receive */
static uint8_t mac[6];

static void open_connection(char *where, bool receives, const struct neb_rdma_options *options)
{
	char *colon = strrchr(where, ':');
	uint16_t port;

	check(colon ? 0 : -EINVAL, where);
	*colon = '\0';
	port = (uint16_t)atoi(colon + 1);
	if (!receives) {
		check(neb_rdma_connect(region, where, port, options, &peer), where);
		return;
	}
	check(neb_rdma_listen(region, where, &port), where);
	printf("listening on %s:%u\n", where, port);
	fflush(stdout);
	check(neb_rdma_accept(region, options, &peer), "a peer");
}

static void open_frames(const char *where, bool receives, const struct neb_rdma_options *options)
{
	struct neb_rdma_frames take = {.ether_type = ETHER_TYPE, .mac = {2}};

	if (sscanf(where, "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx", &mac[0], &mac[1], &mac[2], &mac[3],
		    &mac[4], &mac[5]) != 6)
		check(-EINVAL, where);
	if (receives)
		memcpy(take.mac, mac, sizeof(mac));
	check(neb_rdma_raw(region, &take, options, &peer), "a raw queue pair");
	head = HEAD_BYTES;
}

static void open_way(const char *kind, char *where, bool receives)
{
	const struct neb_rdma_options options = {.type = NEB_UC,
		.receives = receives ? RECEIVES : !strcmp(kind, "uc"),
		.receive_bytes = NEB_FRAME_BYTES,
		.timeout_ns = PATIENCE};

	if (!strcmp(kind, "uc")) {
		open_connection(where, receives, &options);
	} else if (!strcmp(kind, "group")) {
		check(neb_rdma_join(region, where, &options, &peer), where);
		head = receives ? NEB_DATAGRAM_HEAD : 0;
	} else {
		open_frames(where, receives, &options);
	}
}

static void send_all(uint32_t count)
{
	for (uint32_t i = 1; i <= count; i++) {
		struct neb_work work = {.op = NEB_SEND, .target = peer};
		struct neb_done done;
		uint8_t *data;

		check(neb_span_lease(region, NEB_FRAME_BYTES, &work.span), "a span");
		data = work.span.data;
		memset(data, 0, head + MESSAGE_BYTES);
		if (head) {
			memcpy(data, mac, sizeof(mac));
			data[6] = 2;
			data[12] = ETHER_TYPE >> 8;
			data[13] = ETHER_TYPE & 0xff;
		}
		memcpy(data + head, &i, sizeof(i));
		work.bytes = head + MESSAGE_BYTES;
		check(neb_work_submit(region, &work), "a message");
		do {
			done = reap_one(region);
			neb_span_give(region, &done.span);
		} while (done.op != NEB_SEND);
	}
	printf("sent %u\n", count);
}

/* A sender that is done before the other end has accepted it is taken for one that went away: it
 * waits for this. */
static void say_ready(void)
{
	struct neb_work work = {.op = NEB_SEND, .target = peer, .bytes = 1};

	check(neb_span_lease(region, NEB_FRAME_BYTES, &work.span), "a span");
	check(neb_work_submit(region, &work), "a message");
}

static void wait_ready(void)
{
	struct neb_done done = reap_one(region);

	neb_span_give(region, &done.span);
}

/* Ends with the last number, which arrives unless it is the one that is lost. */
static void receive_all(uint32_t count)
{
	uint32_t number = 0, seen = 0;

	printf("ready\n");
	fflush(stdout);
	while (number < count) {
		struct neb_done done = reap_one(region);
		struct neb_work again = {.op = NEB_RECV, .target = peer, .span = done.span};

		if (done.op == NEB_SEND) {
			neb_span_give(region, &done.span);
			continue;
		}
		if (done.result != (int32_t)(head + MESSAGE_BYTES))
			check(-EPROTO, "a message");
		memcpy(&number, (uint8_t *)done.span.data + head, sizeof(number));
		seen++;
		check(neb_work_submit(region, &again), "a receive");
	}
	printf("received %u, lost %u\n", seen, seen < number ? number - seen : 0);
}

int main(int argc, char **argv)
{
	bool receives = argc == 6 && !strcmp(argv[4], "receive");

	if (argc != 6)
		return 2;
	region = region_new();
	check(neb_attach_rdma(region, argv[1]), argv[1]);
	open_way(argv[2], argv[3], receives);
	if (!strcmp(argv[2], "uc"))
		receives ? say_ready() : wait_ready();
	if (receives)
		receive_all((uint32_t)atoi(argv[5]));
	else
		send_all((uint32_t)atoi(argv[5]));
	neb_rdma_disconnect(region, peer);
	reap_rest(region);
	region_end(region, receives ? "received" : "sent", 0);
	return 0;
}
