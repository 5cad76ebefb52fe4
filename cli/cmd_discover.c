/* cli/cmd_discover.c: `nebulaio discover`: asks a multicast group of the fabric for its servers and
 * lists those that answer. */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "codec/discovery.h"
#include "rdma/datagram.h"
#include "remote.h"

#define SLOTS	     64u
#define SERVERS_MAX  1024u
#define ASK_EVERY_NS (250 * NS_PER_MS)
#define JOIN_WAIT_NS (5 * NS_PER_S)

static const char USAGE[] =
	"usage: nebulaio discover [OPTIONS]\n\n"
	"Lists the servers that answer on an RDMA device's fabric. An answer is a\n"
	"hint, not a proof: client and server authenticate when the client connects.\n\n"
	"      --device NAME      the device to use: an RDMA device, simulated, or auto (the\n"
	"                         default): the first card whose port is up, else simulated\n"
	"      --timeout SECONDS  how long to listen (default 1)\n"
	"      --count N          stop when N servers have answered\n"
	"      --group ADDRESS    multicast address (default " DISCOVERY_GROUP ")\n"
	"      --json             print one JSON object a line\n";

struct discover {
	struct rp_member member;
	uint64_t nonce;
	uint32_t count;
	struct discovery_wire servers[SERVERS_MAX];
};
struct discover_opts {
	const char *device_name, *group;
	uint64_t timeout_ns;
	uint32_t count_max;
	bool json;
};

static int group_wait(struct discover *discover)
{
	struct pollfd wait = {.fd = rp_cm_fd(discover->member.device), .events = POLLIN};
	uint64_t give_up_ns = clock_now_ns() + JOIN_WAIT_NS;

	while (clock_now_ns() < give_up_ns) {
		int joined = rp_member_joined(&discover->member);

		if (joined)
			return joined > 0 ? 0 : joined;
		poll(&wait, 1, 100);
	}
	return -ETIMEDOUT;
}

static int discover_open(struct discover *discover, const struct discover_opts *opts)
{
	const struct rp_member_opts member = {
		.device = {.device_name = opts->device_name, .gid_index = -1},
		.group = opts->group,
		.slot_count = SLOTS,
		.bytes = DISCOVERY_BYTES};
	/* Joins the group, because some fabrics let only members send to it. */
	int err = rp_member_open(&member, &discover->member);

	return err ? err : group_wait(discover);
}

static int ask(struct discover *discover)
{
	discovery_ask(discover->nonce, (void *)rp_member_out(&discover->member, SLOTS));
	return rp_member_ask(&discover->member);
}

static bool is_known(const struct discover *discover, const struct discovery_wire *server)
{
	for (uint32_t i = 0; i < discover->count; i++) {
		if (!memcmp(&discover->servers[i], server, sizeof(*server)))
			return true;
	}
	return false;
}

static void take(struct discover *discover, const struct rp_wc *wc)
{
	const uint8_t *in = rp_member_in(&discover->member, wc->wr_id) + RP_GRH_BYTES;
	struct discovery_wire server;

	if (wc->wr_id == SLOTS)
		return; /* the question has been sent */
	if (!wc->status && wc->byte_len >= RP_GRH_BYTES &&
		discovery_is_answer(in, wc->byte_len - RP_GRH_BYTES, discover->nonce, &server) &&
		discover->count < SERVERS_MAX && !is_known(discover, &server))
		discover->servers[discover->count++] = server;
	rp_member_post(&discover->member, wc->wr_id);
}

/* Repeats the question, because datagrams get lost, and takes answers until the time is over or
 * enough servers have answered. */
static int listen_for(struct discover *discover, const struct discover_opts *opts)
{
	uint64_t now_ns = clock_now_ns(), end_ns = now_ns + opts->timeout_ns, ask_ns = now_ns;
	struct pollfd wait = {.fd = rp_cq_fd(discover->member.cq), .events = POLLIN};

	for (; now_ns < end_ns && discover->count < opts->count_max; now_ns = clock_now_ns()) {
		struct rp_wc wc;
		int polled;

		if (now_ns >= ask_ns) {
			int err = ask(discover);

			if (err)
				return err;
			ask_ns = now_ns + ASK_EVERY_NS;
		}
		while ((polled = rp_cq_poll(discover->member.cq, &wc, 1)) > 0)
			take(discover, &wc);
		if (polled)
			return polled;
		if (discover->count < opts->count_max && rp_cq_arm(discover->member.cq))
			poll(&wait, 1, (int)((MIN(ask_ns, end_ns) - now_ns) / NS_PER_MS) + 1);
		rp_cq_disarm(discover->member.cq);
	}
	return 0;
}

/* ---- Output. ---- */

static void gid_text(const uint8_t gid[16], char text[INET6_ADDRSTRLEN])
{
	if (!inet_ntop(AF_INET6, gid, text, INET6_ADDRSTRLEN))
		snprintf(text, INET6_ADDRSTRLEN, "?");
}

static void print_json(const struct discover *discover)
{
	for (uint32_t i = 0; i < discover->count; i++) {
		const struct discovery_wire *server = &discover->servers[i];
		char gid[INET6_ADDRSTRLEN];
		const char *const pairs[][2] = {{"name", server->name},
			{"address", server->address}, {"device", server->device},
			{"transport", server->transport}, {"gid", gid},
			{"version", server->release}, {"zone", server->zone},
			{"note", server->note}};

		gid_text(server->gid, gid);
		printf("{\"port\": %u, \"http_port\": %u", server->rdma_port, server->http_port);
		for (size_t j = 0; j < ARRAY_LEN(pairs); j++) {
			printf(", \"%s\": ", pairs[j][0]);
			remote_print_json(stdout, pairs[j][1]);
		}
		printf("}\n");
	}
}

static void print_table(const struct discover *discover)
{
	if (discover->count)
		printf("%-16s %-26s %-12s %-12s %-8s %-40s %-10s %s\n", "NAME", "ADDRESS", "DEVICE",
			"TRANSPORT", "VERSION", "GID", "ZONE", "NOTE");
	for (uint32_t i = 0; i < discover->count; i++) {
		const struct discovery_wire *server = &discover->servers[i];
		bool colons = strchr(server->address, ':') != NULL;
		char gid[INET6_ADDRSTRLEN], address[80];

		gid_text(server->gid, gid);
		snprintf(address, sizeof(address), colons ? "[%s]:%u" : "%s:%u", server->address,
			server->rdma_port);
		printf("%-16s %-26s %-12s %-12s %-8s %-40s %-10s %s\n", server->name, address,
			server->device, server->transport, server->release, gid, server->zone,
			server->note);
	}
}

static int discover_all(const struct discover_opts *opts)
{
	struct discover *discover = calloc(1, sizeof(*discover));
	int err = discover ? 0 : -ENOMEM;
	int ret = CLI_OK;

	if (!err) {
		random_fill(&discover->nonce, sizeof(discover->nonce));
		err = discover_open(discover, opts);
	}
	if (!err)
		err = listen_for(discover, opts);
	if (err) {
		fprintf(stderr, "nebulaio discover: on %s: %s\n", opts->device_name,
			err == -EINVAL ? "not a device name, or not a multicast address"
				       : strerror(-err));
		ret = CLI_FAILED;
	} else if (opts->json) {
		print_json(discover);
	} else {
		print_table(discover);
	}
	if (!err && !discover->count) {
		fprintf(stderr, "nebulaio discover: no server answered on %s\n", opts->device_name);
		ret = CLI_NOT_FOUND;
	}
	if (discover)
		rp_member_close(&discover->member);
	free(discover);
	return ret;
}

static int discover_run(int argc, char **argv)
{
	static const struct option OPTIONS[] = {{"device", required_argument, NULL, 'd'},
		{"timeout", required_argument, NULL, 't'}, {"group", required_argument, NULL, 'g'},
		{"json", no_argument, NULL, 'j'}, {"count", required_argument, NULL, 'n'}, {0}};
	struct remote_opts defaults;
	char device[64];
	struct discover_opts opts = {
		.group = DISCOVERY_GROUP, .timeout_ns = NS_PER_S, .count_max = SERVERS_MAX};
	uint64_t count;
	int option;
	double seconds;
	char *end;

	remote_defaults(&defaults);
	opts.device_name = defaults.device_name;
	optind = 1;
	opterr = 0;
	while ((option = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1) {
		switch (option) {
		case 'd':
			opts.device_name = optarg;
			break;
		case 'g':
			opts.group = optarg;
			break;
		case 'j':
			opts.json = true;
			break;
		case 't':
			seconds = strtod(optarg, &end);
			if (end == optarg || *end || !(seconds > 0 && seconds <= 60))
				return cli_usage_error(&CLI_DISCOVER,
					"--timeout must be more than 0 and at most 60");
			opts.timeout_ns = (uint64_t)(seconds * (double)NS_PER_S);
			break;
		case 'n':
			if (slice_to_u64(slice_str(optarg), &count) || !count ||
				count > SERVERS_MAX)
				return cli_usage_error(
					&CLI_DISCOVER, "--count must be 1 to %u", SERVERS_MAX);
			opts.count_max = (uint32_t)count;
			break;
		default:
			return cli_usage_error(
				&CLI_DISCOVER, "'%s' is not an option", argv[optind - 1]);
		}
	}
	if (optind != argc)
		return cli_usage_error(&CLI_DISCOVER, "discover takes no operands");
	if (cli_device_find(opts.device_name, "", 0, true, device))
		return CLI_FAILED;
	opts.device_name = device;
	return discover_all(&opts);
}

const struct cli_command CLI_DISCOVER = {
	.name = "discover",
	.summary = "list the servers on an RDMA fabric",
	.usage = USAGE,
	.run = discover_run,
};
