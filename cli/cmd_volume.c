/* cli/cmd_volume.c: `nebulaio volume`: what it can do, by verb. */
#include <string.h>

#include "volume.h"

static const char USAGE[] =
	"usage: nebulaio volume serve --secret-file FILE [OPTIONS] NAME=PATH...\n"
	"       nebulaio volume serve --nvmeof --allow-host NQN [OPTIONS] NAME=PATH...\n"
	"       nebulaio volume nbd [OPTIONS] NAME=PATH...\n"
	"\n"
	"serve: exports volumes to servers on other hosts, over RDMA. Each PATH is a file (made\n"
	"when absent), a block device or an NVMe passthrough device. One server at a time uses\n"
	"it under its NAME; that server's storage.volumes has rdma://HOST:PORT/NAME.\n"
	"\n"
	"  --secret-file FILE   file with a secret of 16 to 256 characters; the server has the\n"
	"                       same one (storage.remote.secret_file)\n"
	"  --listen ADDR:PORT   address to listen on (default 0.0.0.0:9110); port 0: any free\n"
	"  --device NAME        RDMA device (default auto: the card that has the address, else\n"
	"                       simulated)\n"
	"  --state DIR          where the epochs of owners are stored, if servers have their\n"
	"                       lease in etcd (default: beside each file, PATH.epoch)\n"
	"  --reserve MIB        what volumes that are files leave free on their file systems\n"
	"                       when they grow (default 256)\n"
	"\n"
	"serve --nvmeof: exports files and block devices through the kernel's target of NVMe\n"
	"over Fabrics, to every initiator of the standard; a server's storage.volume has\n"
	"nvmeof://HOST:PORT/NQN. It prints each volume's NQN. As root.\n"
	"\n"
	"  --allow-host NQN     a host that may read and write the volumes, by its NQN; once for\n"
	"                       each host\n"
	"  --allow-any          every host that reaches the address may\n"
	"  --transport NAME     rdma (default) or tcp\n"
	"  --listen ADDR:PORT   numeric address to listen on (default 0.0.0.0:4420)\n"
	"  --nqn NQN            of the only volume (default: one that follows from this machine\n"
	"                       and NAME)\n"
	"  --bytes SIZE         make files that are absent, and grow smaller ones to SIZE bytes\n"
	"  --show               print the commands that would make the exports, and do nothing\n"
	"  --clear              end the exports that killed processes left, and do nothing else\n"
	"\n"
	"nbd: exports volumes as network block devices, which the kernel (nbd-client), QEMU and\n"
	"libnbd use as disks. Each PATH is a file, a block device, an NVMe passthrough device,\n"
	"rdma://HOST:PORT/NAME, a volume that another host serves, or nvmeof://HOST:PORT/NQN.\n"
	"\n"
	"  --listen unix:PATH   a socket for this user's processes alone, or\n"
	"  --listen ADDR:PORT   an address (default unix:/run/nebulaio-nbd.sock); an address\n"
	"                       demands clients with a certificate, unless --anyone\n"
	"  --tls-certificate FILE, --tls-key FILE\n"
	"                       PEM: this server's certificate and key\n"
	"  --tls-client-ca FILE PEM: the authorities whose certificates clients must have\n"
	"  --anyone             whoever reaches the address may read and write the volumes\n"
	"  --bytes SIZE         make files that are absent, and grow smaller ones to SIZE bytes\n"
	"  --read-only          clients cannot write; the volumes are not locked\n"
	"  --trim               files give the space of discarded blocks back\n"
	"  --secret-file FILE, --device NAME\n"
	"                       for rdma:// volumes, as with serve\n"
	"\n"
	"  --memory MIB         memory for data in transit (default 64)\n"
	"  --log-level LEVEL    trace, debug, info, warn or error\n"
	"\n"
	"All run until SIGTERM or SIGINT, and print one line that begins with \"ready\" when\n"
	"they accept work.\n";

static bool by_nvmeof(int argc, char **argv)
{
	for (int i = 2; i < argc; i++)
		if (strcmp(argv[i], "--nvmeof") == 0)
			return true;
	return false;
}

static int volume_run(int argc, char **argv)
{
	const char *verb = argc > 1 ? argv[1] : "";

	if (strcmp(verb, "serve") == 0 && by_nvmeof(argc, argv))
		return volume_nvmeof_run(&CLI_VOLUME, argc - 1, argv + 1);
	if (strcmp(verb, "serve") == 0)
		return volume_serve_run(&CLI_VOLUME, argc - 1, argv + 1);
	if (strcmp(verb, "nbd") == 0)
		return volume_nbd_run(&CLI_VOLUME, argc - 1, argv + 1);
	return cli_usage_error(&CLI_VOLUME, "expected 'serve' or 'nbd'");
}

const struct cli_command CLI_VOLUME = {
	.name = "volume",
	.summary = "export volumes: over RDMA to a server on another host, NVMe-oF, block devices",
	.usage = USAGE,
	.run = volume_run,
};
