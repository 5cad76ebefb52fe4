// Stores a vector of numbers as an object and reads it back, without a copy on the way.
//
//	g++ -std=c++17 checkpoint.cpp -o checkpoint $(pkg-config --cflags --libs nebulaio)
//	NEBULAIO_ACCESS_KEY=minioadmin NEBULAIO_SECRET_KEY=minioadmin ./checkpoint 127.0.0.1 9100
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <numeric>

#include <nebulaio/rdma.h>

int main(int argc, char **argv)
try {
	nebulaio::RDMAContext ctx("simulated");
	const std::size_t count = 1 << 20;

	ctx.connect(argc > 1 ? argv[1] : "127.0.0.1",
		static_cast<std::uint16_t>(argc > 2 ? std::atoi(argv[2]) : 9100));
	try {
		ctx.create_bucket("checkpoints");
	} catch (const nebulaio::Error &error) {
		if (error.code() != "BucketAlreadyOwnedByYou")
			throw;
	}

	nebulaio::Buffer weights = ctx.allocate(count * sizeof(float));
	std::iota(weights.as<float>(), weights.as<float>() + count, 0.0f);
	ctx.rdma_write("checkpoints", "step-1", weights.data(), weights.size());

	nebulaio::Buffer restored = ctx.allocate(weights.size());
	nebulaio::Result result =
		ctx.rdma_read("checkpoints", "step-1", restored.data(), restored.size());
	bool same =
		std::equal(restored.as<float>(), restored.as<float>() + count, weights.as<float>());

	std::cout << result.bytes << " bytes by " << result.transport_name() << ", "
		  << ctx.stats().bytes_copied << " copied, " << (same ? "the same" : "different")
		  << "\n";
	return same ? 0 : 1;
} catch (const std::exception &error) {
	std::cerr << error.what() << "\n";
	return 1;
}
