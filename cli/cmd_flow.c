/* cli/cmd_flow.c: `nebulaio flow`: the command line. flow_capture.c runs packet flows, flow_move.c
 * all others. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "flow_cmd.h"

static const char USAGE[] =
	"usage: nebulaio flow --from SOURCE --to TARGET [options]\n"
	"\n"
	"Moves bytes from one device to another through one memory region, without copies where\n"
	"possible: packets, RDMA streams, disks and objects.\n"
	"\n"
	"SOURCE:\n"
	"  xdp:IFACE,FILTER   packets that FILTER selects, taken before the kernel's network\n"
	"                     stack (AF_XDP). All other packets go to the kernel as before\n"
	"  rdma:HOST:PORT     a stream from another flow; rdma::PORT waits for one to connect\n"
	"  ud:GROUP           a stream of RDMA datagrams (UD) to a multicast address. ud:\n"
	"                     receives on a queue pair of its own, and prints its address\n"
	"  raw:MAC            a stream of Ethernet frames to this address, by a raw queue pair\n"
	"  disk:PATH          a file, a block device or an NVMe namespace (/dev/ng0n1), or a\n"
	"                     part of it: disk:PATH,offset=N,bytes=N\n"
	"  s3://BUCKET/KEY    an object\n"
	"TARGET:\n"
	"  FILE.pcapng        every packet, with its time in nanoseconds; from other sources:\n"
	"                     the bytes unchanged\n"
	"  disk:PATH          the payloads of UDP datagrams (IPv4) whose length is a multiple of\n"
	"                     512 bytes, written without copies from the receive frame to a file\n"
	"                     or device; from other sources: the bytes unchanged\n"
	"  rdma:HOST:PORT     a stream of payloads to another flow; rdma::PORT waits for one\n"
	"  ud:GROUP, ud:GID/NUMBER   datagrams to a multicast group, or to one queue pair\n"
	"  raw:MAC            Ethernet frames to this address\n"
	"  s3://BUCKET/KEY    objects, uploaded while they grow\n"
	"  null:              nothing is stored, only counted\n"
	"  In a name, %t is the time (20260102T030405Z) and %n the number of the file or object;\n"
	"  others as in strftime(3). Captures pass over numbers whose names are taken.\n"
	"FILTER, separated by commas:\n"
	"  udp=PORT, tcp=PORT a destination port, a range A-B, or any\n"
	"  proto=NUMBER       an IP protocol\n"
	"  src=ADDR[/BITS], dst=ADDR[/BITS]\n"
	"  vlan=ID            as the packet carries it; none: untagged\n"
	"  all                every packet; the kernel sees none of them\n"
	"  queue=N, queues=N  first receive queue of the card, and how many (0, 1)\n"
	"  ring=N             packets that a queue can hold back (8192)\n"
	"  mode=zerocopy|native|generic   use this AF_XDP mode, or fail\n"
	"  busy-poll=US       poll the driver for US microseconds before sleeping (0: never, up\n"
	"                     to 1000), busy-budget=N packets at once (64)\n"
	"  time=kernel        use the kernel's time of a packet; the default is the card's time\n"
	"                     where the card has one. time=hardware: fail without the card's\n"
	"After rdma:HOST:PORT, separated by commas:\n"
	"  listen             wait for a peer at this address, rather than connect to it\n"
	"  device=NAME        the RDMA device (--device)\n"
	"  record=BYTES       longest message, up to 1M, in multiples of 4K\n"
	"  wait=SECONDS       how long to try to connect (0: one try)\n"
	"  timeout=SECONDS    end when the peer has been silent for this time (30)\n"
	"After ud: and raw:, separated by commas:\n"
	"  device=NAME        the RDMA device (--device)\n"
	"  rate=BYTES         target: send at most so many bytes a second (nothing slows it down\n"
	"                     otherwise, and what a receiver cannot take is lost)\n"
	"  loss=accept        source: datagrams may get lost; else their loss is an error\n"
	"  timeout=SECONDS    source: end when the sender has been silent for this time (30)\n"
	"  vlan=ID            raw: the VLAN (1 to 4094); priority=N its priority (0 to 7, target)\n"
	"  type=HEX           raw: the frames' type (88b5)\n"
	"\n"
	"  --transform NAME[:OPTIONS]   change the bytes on their way; give it up to 8 times,\n"
	"                     in order. From packets, it changes what they become: the pcapng\n"
	"                     file, or the payloads, then of any length. NAME:\n"
	"       aes256gcm:KEYFILE   encrypt with authentication; the file holds 32 random bytes\n"
	"       aes256gcm-decrypt:KEYFILE   decrypt what aes256gcm encrypted\n"
	"       aes256ctr:KEYFILE   encrypt (or decrypt) in place, without authentication; the\n"
	"                     file holds the key (32 bytes) and the first counter (16 bytes),\n"
	"                     and serves one stream: not with --roll-…, nor in the server\n"
	"       zstd[:level=N]     compress, level 1 to 19 (3)\n"
	"       unzstd             decompress\n"
	"       filter:lines,has=TEXT, filter:lines,lacks=TEXT   keep these lines\n"
	"       filter:record=N,offset=M,is=HEX, …,not=HEX   keep these records of N bytes\n"
	"       snap:N             of packets, before all others: keep the first N bytes of each\n"
	"       ./FILE.so[:OPTIONS]   a shared object (nebulaio/transform.h); its code runs in\n"
	"                     this process\n"
	"  --form pcapng|payload   how packets are written (default: by the target)\n"
	"  --count N          end after N packets\n"
	"  --seconds N        end after N seconds\n"
	"  --roll-bytes N     begin a new file or object after N bytes\n"
	"  --roll-seconds N   … or N seconds after its first packet\n"
	"  --rules FILE       instead of FILTER: lines of count|drop|pass|redirect and matches;\n"
	"                     the first match wins; SIGHUP reads the file again\n"
	"  --force            replace existing files and objects; write to block devices\n"
	"  --sync-bytes N     make a file or device durable after each N bytes (64M)\n"
	"  --memory MIB       memory for data in transit (128)\n"
	"  --status-fd N      write the counters to this descriptor each second\n"
	"  -q, --quiet        print no line each second\n" REMOTE_USAGE "\n"
	"On SIGINT and SIGTERM the flow stores all packets and datagrams that it has received,\n"
	"then ends. From another source, a file keeps the acknowledged bytes, and an object is\n"
	"not stored. On SIGUSR1 it prints a line.\n";

int flow_args_check(int argc, char **argv)
{
	static struct flow_args args;
	int ret = flow_args_take(&CLI_FLOW, &args, argc, argv);

	if (!ret && flow_args_have_counter(&args))
		return cli_usage_error(&CLI_FLOW,
			"--transform aes256ctr: each start would begin at the key file's counter, "
			"and two runs with one key stream hide nothing: in the server use "
			"aes256gcm:KEYFILE, which makes a key for each body");
	return ret;
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
	.summary = "move bytes between packets, RDMA streams, disks and objects",
	.usage = USAGE,
	.run = flow_main,
};
