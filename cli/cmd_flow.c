/* cli/cmd_flow.c: `nebulaio flow`: the command line. Packets are flow_capture.c's, everything else
 * is flow_move.c's. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "flow_cmd.h"

static const char USAGE[] =
	"usage: nebulaio flow --from SOURCE --to TARGET [options]\n"
	"\n"
	"Moves bytes from one device to another through one memory region, uncopied where it can\n"
	"be: packets, RDMA streams, disks and objects.\n"
	"\n"
	"SOURCE:\n"
	"  xdp:IFACE,WHAT     packets, past the kernel's network stack (AF_XDP). What WHAT does\n"
	"                     not name goes to the kernel as before\n"
	"  rdma:HOST:PORT     a stream from another flow; rdma::PORT waits for one to connect\n"
	"  disk:PATH          a file, a block device or an NVMe namespace (/dev/ng0n1), or a\n"
	"                     run of it: disk:PATH,offset=N,bytes=N\n"
	"  s3://BUCKET/KEY    an object\n"
	"TARGET:\n"
	"  FILE.pcapng        every packet, with its time in nanoseconds; of other sources the\n"
	"                     bytes as they are\n"
	"  disk:PATH          the payloads of UDP datagrams of a multiple of 512 bytes, from the\n"
	"                     frame they came in to a file or device, uncopied (IPv4); of\n"
	"                     other sources the bytes as they are\n"
	"  rdma:HOST:PORT     a stream to another flow, of payloads; rdma::PORT waits for one\n"
	"  s3://BUCKET/KEY    objects, uploaded while they grow\n"
	"  null:              nowhere: counts\n"
	"  %t in a name is the time (20260102T030405Z), %n the body's number, others as in\n"
	"  strftime(3).\n"
	"WHAT, separated by commas:\n"
	"  udp=PORT, tcp=PORT a destination port, a range A-B, or any\n"
	"  proto=NUMBER       an IP protocol\n"
	"  src=ADDR[/BITS], dst=ADDR[/BITS]\n"
	"  vlan=ID            as the packet carries it; none: untagged\n"
	"  all                every packet; the kernel sees none of them\n"
	"  queue=N, queues=N  first receive queue of the card, and how many (0, 1)\n"
	"  ring=N             packets that a queue can hold back (8192)\n"
	"  mode=zerocopy|native|generic   that way or not at all\n"
	"  busy-poll=US       run the driver ourselves for so long before sleeping (0: never,\n"
	"                     up to 1000), busy-budget=N packets at once (64)\n"
	"  time=kernel        never the card's time of a packet, which is taken where there is\n"
	"                     one; time=hardware: not without a driver that can be asked for it\n"
	"Behind rdma:HOST:PORT, separated by commas:\n"
	"  listen             wait for a peer at this address, rather than connect to it\n"
	"  device=NAME        the RDMA device (--device)\n"
	"  record=BYTES       longest message, up to 1M, in multiples of 4K\n"
	"  wait=SECONDS       how long to try to connect (0: once)\n"
	"  timeout=SECONDS    a peer that is silent for so long is gone (30)\n"
	"\n"
	"  --transform aes256ctr:FILE   encrypts, or decrypts, in place; FILE holds the key\n"
	"                     (32 bytes) and the first counter (16)\n"
	"  --form pcapng|payload   of packets, when the target should not decide\n"
	"  --count N          end after so many packets\n"
	"  --seconds N        end after so long\n"
	"  --roll-bytes N     begin a new file or object after so many bytes\n"
	"  --roll-seconds N   … or so long after its first packet\n"
	"  --rules FILE       instead of WHAT: lines of count|drop|pass|redirect and matches;\n"
	"                     first match wins; SIGHUP reads it again\n"
	"  --force            replace existing files; write to block devices\n"
	"  --memory MIB       for what is on its way (128)\n"
	"  --status-fd N      counters a second to this descriptor, for who started it\n"
	"  -q, --quiet        no line a second\n" REMOTE_USAGE "\n"
	"SIGINT and SIGTERM end it in order: what has been received is stored. SIGUSR1 asks for\n"
	"a line.\n";

int flow_args_check(int argc, char **argv)
{
	static struct flow_args args;

	return flow_args_take(&CLI_FLOW, &args, argc, argv);
}

static int flow_main(int argc, char **argv)
{
	static struct flow_args args;
	int ret = flow_args_take(&CLI_FLOW, &args, argc, argv);

	if (ret)
		return ret;
	log_set_level(args.remote.verbose ? LOG_DEBUG : LOG_WARN);
	return args.from.kind == FLOW_XDP ? flow_capture_run(&args) : flow_move_run(&args);
}

const struct cli_command CLI_FLOW = {
	.name = "flow",
	.summary = "move packets, RDMA streams, disks and objects into one another",
	.usage = USAGE,
	.run = flow_main,
};
