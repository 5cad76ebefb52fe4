// tests/e2e/token/cuobj_user.cpp: a program that was built for cuObject, linked with our libcuobjclient.so.1. It obeys the
// orders of shim_user.c; two more make a transfer by callbacks, whose request is its parent's:
//
//   get BYTES OFFSET, put_object BYTES OFFSET   → ok TOKEN, in the callback; the next line is the callback's result
//                                               → ok RESULT, of the whole call
//   put_failed TOKEN                            puts a token back with an error
//   wrong                                       → ok 0: everything that must be refused was refused
#include <cuobjclient.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <new>
#include <sys/mman.h>
#include <sys/stat.h>

static_assert(sizeof(cuObjClient) == 72, "the size that programs of NVIDIA's header allocate");

static char *memory;
static size_t memory_bytes;
static char *token;
static const char ctx[] = "ours";

static ssize_t ask(const void *handle, const void *data, const cufileRDMAInfo_t *info)
{
	long moved = -5;
	char line[64];

	if (cuObjClient::getCtx(handle) != ctx || data < memory || info->desc_len != 82 ||
		std::strlen(info->desc_str) != 81)
		return -22;
	std::printf("ok %s\n", info->desc_str);
	std::fflush(stdout);
	if (std::fgets(line, sizeof(line), stdin))
		moved = std::atol(line);
	return moved;
}

static ssize_t on_get(const void *handle, char *data, size_t, loff_t, const cufileRDMAInfo_t *info)
{
	return ask(handle, data, info);
}

static ssize_t on_put(const void *handle, const char *data, size_t, loff_t, const cufileRDMAInfo_t *info)
{
	return ask(handle, data, info);
}

// Whether all invalid calls are refused.
static bool refuses(cuObjClient &client)
{
	static char other[4096];
	CUObjOps_t none = {nullptr, nullptr};
	cuObjClient without(none);
	char *text = nullptr;
	const bool refused = client.cuMemObjGetDescriptor(nullptr, 1) == CU_OBJ_FAIL &&
		client.cuMemObjGetDescriptor(memory, 0) == CU_OBJ_FAIL &&
		client.cuMemObjGetDescriptor(memory, CUOBJ_MAX_MEMORY_REG_SIZE + 1) == CU_OBJ_FAIL &&
		client.cuMemObjPutDescriptor(nullptr) == CU_OBJ_SUCCESS &&
		client.cuMemObjGetMaxRequestCallbackSize(other) == -1 &&
		client.cuMemObjGetRDMAToken(other, 16, 0, CUOBJ_GET, &text) == CU_OBJ_FAIL &&
		client.cuMemObjGetRDMAToken(memory, memory_bytes, 1, CUOBJ_GET, &text) == CU_OBJ_FAIL &&
		client.cuMemObjGetRDMAToken(memory, 0, 0, CUOBJ_GET, &text) == CU_OBJ_FAIL &&
		client.cuMemObjGetRDMAToken(memory, 16, 0, CUOBJ_INVALID, &text) == CU_OBJ_FAIL &&
		client.cuMemObjGetRDMAToken(memory, 16, SIZE_MAX, CUOBJ_GET, &text) == CU_OBJ_FAIL &&
		client.cuMemObjGetRDMAToken(memory, 16, 0, CUOBJ_GET, nullptr) == CU_OBJ_FAIL && !text &&
		client.cuMemObjPutRDMAToken(other) == CU_OBJ_FAIL &&
		client.cuObjGet(nullptr, memory, 16) == CU_OBJ_FAIL && client.cuObjPut((void *)ctx, nullptr, 16) == CU_OBJ_FAIL &&
		client.cuObjGet((void *)ctx, memory, 0) == CU_OBJ_FAIL && client.cuObjGet((void *)ctx, memory, 16, -1) == CU_OBJ_FAIL &&
		client.cuObjGet((void *)ctx, other, 16) < 0 && without.cuObjGet((void *)ctx, memory, 16) < 0 &&
		cuObjClient::getCtx(nullptr) == nullptr && cuObjClient::getMemoryType(nullptr) == CUOBJ_MEMORY_INVALID &&
		cuObjClient::getMemoryType(memory) == CUOBJ_MEMORY_SYSTEM;

	cuObjClient::setupTelemetry(false, nullptr);
	cuObjClient::setTelemFlags(1);
	cuObjClient::setTelemFlags(1, 1);
	cuObjClient::setOpFreq(1, 1);
	cuObjClient::shutdownTelemetry();
	return refused;
}

static long obey(cuObjClient &client, const char *order, const char *rest)
{
	size_t bytes = 0, offset = 0;
	int is_put = 0;
	const int given = std::sscanf(rest, "%zu %zu %d", &bytes, &offset, &is_put);

	if (!std::strcmp(order, "ready"))
		return client.isConnected();
	if (!std::strcmp(order, "register"))
		return client.cuMemObjGetDescriptor(memory, memory_bytes);
	if (!std::strcmp(order, "deregister"))
		return client.cuMemObjGetMaxRequestCallbackSize(memory) < 0 ? -1 : client.cuMemObjPutDescriptor(memory);
	if (!std::strcmp(order, "room"))
		return client.cuMemObjGetMaxRequestCallbackSize(memory + bytes);
	if (!std::strcmp(order, "token") && given == 3)
		return -static_cast<long>(client.cuMemObjGetRDMAToken(memory, bytes, offset, is_put ? CUOBJ_PUT : CUOBJ_GET, &token));
	if (!std::strcmp(order, "put") || !std::strcmp(order, "put_failed")) {
		if (!token || std::strcmp(rest, token))
			return -1;
		return order[3] ? client.cuMemObjPutRDMAToken(token, -5) : client.cuMemObjPutRDMAToken(token);
	}
	if (!std::strcmp(order, "get") && given == 2)
		return client.cuObjGet((void *)ctx, memory + offset, bytes);
	if (!std::strcmp(order, "put_object") && given == 2)
		return client.cuObjPut((void *)ctx, memory, bytes, 0, static_cast<loff_t>(offset));
	if (!std::strcmp(order, "wrong"))
		return refuses(client) ? 0 : -1;
	return -1;
}

int main(int argc, char **argv)
{
	alignas(cuObjClient) static unsigned char place[4096];
	CUObjOps_t ops = {on_get, on_put};
	char line[256], order[16], rest[200];
	struct stat st;
	const int fd = argc == 2 ? open(argv[1], O_RDWR) : -1;

	if (fd < 0 || fstat(fd, &st))
		return 2;
	memory_bytes = static_cast<size_t>(st.st_size);
	memory = static_cast<char *>(mmap(nullptr, memory_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
	std::memset(place, 0xa5, sizeof(place));
	cuObjClient *client = new (place) cuObjClient(ops);
	while (std::fgets(line, sizeof(line), stdin)) {
		rest[0] = '\0';
		if (std::sscanf(line, "%15s %199[^\n]", order, rest) < 1)
			continue;
		const long ret = obey(*client, order, rest);
		if (ret < 0 && std::strcmp(order, "get"))
			std::printf("error\n");
		else if (!std::strcmp(order, "token"))
			std::printf("ok %s\n", token);
		else
			std::printf("ok %ld\n", ret);
		std::fflush(stdout);
	}
	client->~cuObjClient();
	// Only the first pointer of the object is ours.
	for (size_t i = sizeof(void *); i < sizeof(place); i++)
		if (place[i] != 0xa5)
			return 3;
	return 0;
}
