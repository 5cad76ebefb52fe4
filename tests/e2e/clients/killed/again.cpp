// Stores 64 MiB, or fetches them, again and again until it is killed: again put|get HOST PORT.
#include <nebulaio/rdma.h>

#include <cstdlib>
#include <string>

int main(int argc, char **argv)
{
	constexpr std::size_t bytes = 64u << 20;
	if (argc != 4)
		return 2;
	nebulaio::Options options;
	options.device_name = "simulated";
	options.connect_timeout_ns = 180000000000; // only a hang takes so long
	nebulaio::RDMAContext context(options);
	context.connect(argv[2], static_cast<std::uint16_t>(std::atoi(argv[3])));
	void *memory = context.alloc_mr(bytes);
	for (;;)
		if (std::string(argv[1]) == "put")
			context.rdma_write("killed", "object", memory, bytes);
		else
			context.rdma_read("killed", "object", memory, bytes);
}
