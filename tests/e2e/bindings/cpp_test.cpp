// tests/e2e/bindings/cpp_test.cpp: nebulaio/rdma.h against a running server; run-bindings-cpp
// compiles and starts it. NEBULAIO_TEST_RDMA and NEBULAIO_TEST_HTTP are the server's addresses. One
// TAP line per fact.
#include <nebulaio/rdma.h>
#include <nebulaio/tokens.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

static int count, failed;

static void check(bool ok, const char *name)
{
	failed += !ok;
	std::printf("%s %d - %s\n", ok ? "ok" : "not ok", ++count, name);
	std::fflush(stdout);
}

template <typename Call> static nebulaio::Error error_of(Call call)
{
	try {
		call();
	} catch (const nebulaio::Error &error) {
		return error;
	}
	return nebulaio::Error("nothing was thrown", 0);
}

template <typename T>
constexpr bool only_moves =
	std::is_nothrow_move_constructible_v<T> &&std::is_nothrow_move_assignable_v<T> &&
	!std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T>;
static_assert(only_moves<nebulaio::RDMAContext>);
static_assert(only_moves<nebulaio::Buffer>);
static_assert(only_moves<nebulaio::Registration>);
static_assert(only_moves<nebulaio::TokenMinter>);
static_assert(only_moves<nebulaio::TokenMemory>);
static_assert(only_moves<nebulaio::Token>);

static std::string host, endpoints;
static std::uint16_t port;

static void test_objects(nebulaio::RDMAContext &ctx)
{
	const std::size_t bytes = 3000000;
	nebulaio::Buffer from = ctx.allocate(bytes), to = ctx.allocate(bytes);
	std::uint64_t copied = ctx.stats().bytes_copied;

	for (std::size_t i = 0; i < bytes; i++)
		from.as<unsigned char>()[i] = static_cast<unsigned char>(i * 31 >> 3);
	nebulaio::Result put = ctx.rdma_write("cpp", "three megabytes", from.data(), bytes);
	nebulaio::Result get = ctx.rdma_read("cpp", "three megabytes", to.data(), bytes);
	check(put.status == 200 && put.transport == NEB_RDMA && !put.etag.empty(), "write: result");
	check(get.status == 200 && get.bytes == bytes && get.transport == NEB_RDMA &&
			get.etag == put.etag && !get.request_id.empty(),
		"read: result");
	check(std::equal(from.as<char>(), from.as<char>() + bytes, to.as<char>()),
		"read: the bytes that were written");
	check(ctx.stats().bytes_copied == copied, "buffers are not copied");

	get = ctx.read_range("cpp", "three megabytes", 1000, to.data(), 4096);
	check(get.status == 206 && get.bytes == 4096 &&
			std::equal(to.as<char>(), to.as<char>() + 4096, from.as<char>() + 1000),
		"a range");
	check(error_of([&] {
		ctx.read_range("cpp", "three megabytes", 0, to.data(), 0);
	}).error() == -EINVAL,
		"a range of 0 bytes is refused");
	check(ctx.head("cpp", "three megabytes").object_bytes == bytes, "head tells the length");
	check(ctx.remove("cpp", "three megabytes").status == 204, "remove");
}

static void test_batch(nebulaio::RDMAContext &ctx)
{
	const std::size_t count = 2000, bytes = 1000;
	nebulaio::Buffer room = ctx.allocate(count * bytes);
	const std::string body(bytes, 'b');
	std::vector<neb_batch_item> items(count);
	std::uint64_t copied;
	bool same = true;

	ctx.rdma_write("cpp", "batched", body.data(), body.size());
	for (std::size_t i = 0; i < count; i++) {
		items[i].key = i == 77 ? "missing" : "batched";
		items[i].data = room.as<char>() + i * bytes;
		items[i].data_bytes = i == 78 ? bytes - 1 : bytes;
	}
	copied = ctx.stats().bytes_copied;
	check(ctx.read_batch("cpp", items, 32) == 2 && items[77].error == -ENOENT &&
			items[78].error == -EMSGSIZE,
		"a batch: two of 2,000 items fail");
	for (std::size_t i = 0; i < count; i++)
		same &= i == 77 || i == 78 ||
			(items[i].bytes_read == bytes &&
				std::equal(body.begin(), body.end(), room.as<char>() + i * bytes));
	check(same && ctx.stats().bytes_copied == copied, "a batch: every byte, without a copy");
	check(error_of([&] { ctx.read_batch("cpp", items, 9999); }).error() == -EINVAL,
		"a batch: a window out of bounds");
	ctx.remove("cpp", "batched");
}

/* Two contexts that read an object in step. */
static void test_fan_out(nebulaio::RDMAContext &ctx)
{
	std::vector<char> body(36 * 1024 * 1024 + 5), room(body.size()), other(body.size());
	const nebulaio::FanOut group{"cpp-1", 2, 60000000000};
	nebulaio::Result first, second;

	for (std::size_t i = 0; i < body.size(); i++)
		body[i] = static_cast<char>(i * 31 + i / 4096);
	ctx.rdma_write("cpp", "weights", body.data(), body.size());
	std::thread thread([&] {
		nebulaio::RDMAContext mine("mlx5_0", 1);

		mine.connect(host, port);
		second = mine.read_fan_out("cpp", "weights", other.data(), other.size(), group);
	});
	first = ctx.read_fan_out("cpp", "weights", room.data(), room.size(), group);
	thread.join();
	check(first.header(NEB_FAN_OUT_HEADER) == "member; members=2" &&
			second.header(NEB_FAN_OUT_HEADER) == "member; members=2" &&
			first.bytes == body.size() && first.header("not-there").empty(),
		"fan-out: two members");
	check(room == body && other == body, "fan-out: every byte");
	neb_multicast told{};
	std::fill(room.begin(), room.end(), 0);
	ctx.read_fan_out("cpp", "weights", room.data(), room.size(), {"cpp-2", 1, 0, 0, &told});
	check(room == body && !told.used && told.why[0],
		"fan-out: a server without multicast says so");
	check(error_of([&] {
		ctx.read_fan_out("cpp", "weights", room.data(), 5, {"one", 1});
	}).error() == -EMSGSIZE &&
			error_of([&] {
				ctx.read_fan_out(
					"cpp", "weights", room.data(), room.size(), {"one", 0});
			}).error() == -EINVAL,
		"fan-out: what is wrong is told");
	ctx.remove("cpp", "weights");
}

/* An object as memory: its pages come when they are touched, and with its mapper's end they stay.
 */
static void test_map(nebulaio::RDMAContext &ctx)
{
	std::vector<char> body(5 * 1024 * 1024 + 5);
	nebulaio::Options options;
	nebulaio::Map map;

	for (std::size_t i = 0; i < body.size(); i++)
		body[i] = static_cast<char>(i * 31 + i / 4096);
	ctx.rdma_write("cpp", "mapped", body.data(), body.size());
	{
		nebulaio::Mapper mapper("rdma://" + host + ":" + std::to_string(port), options);

		map = mapper.map("cpp", "mapped");
		check(error_of([&] { mapper.map("cpp", "missing"); }).code() == "NoSuchKey" ||
				error_of([&] { mapper.map("cpp", "missing"); }).error() == -ENOENT,
			"map: no such key");
	}
	check(map.size() == body.size() && map.stats().bytes_fetched == 0, "map: its length");
	map.prefetch(1024 * 1024, 65536, 60000000000);
	check(std::equal(body.begin() + 1024 * 1024, body.begin() + 1024 * 1024 + 65536,
		      map.as<char>() + 1024 * 1024) &&
			map.stats().bytes_fetched == 65536,
		"map: what was prefetched, and no more");
	check(std::equal(body.begin(), body.end(), map.as<char>()), "map: every byte");
	check(error_of([&] { map.prefetch(body.size() + 1); }).error() == -ERANGE &&
			error_of([&] { nebulaio::Map().stats(); }).error() == -EINVAL,
		"map: what is wrong is told");
	nebulaio::Map other = std::move(map);
	check(!map.data() && other.as<char>()[7] == body[7], "map: moved");
	ctx.remove("cpp", "mapped");
}

static void test_registration(nebulaio::RDMAContext &ctx)
{
	std::vector<char> from(1 << 20, 'r'), to(1 << 20);
	nebulaio::Registration one = ctx.register_memory(from.data(), from.size());
	nebulaio::Registration two;
	std::uint64_t registrations = ctx.stats().registrations;

	two = ctx.register_memory(to.data(), to.size());
	ctx.rdma_write("cpp", "registered", from.data(), from.size());
	ctx.rdma_read("cpp", "registered", to.data(), to.size());
	check(from == to, "registered memory: the bytes");
	check(ctx.stats().registrations == registrations,
		"registered memory is not registered again");
	check(error_of([&] { ctx.register_memory(from.data(), 10); }).error() == -EEXIST,
		"registered memory cannot be registered again");
	ctx.remove("cpp", "registered");
}

static void test_errors(nebulaio::RDMAContext &ctx)
{
	char room[16];
	nebulaio::Error error =
		error_of([&] { ctx.rdma_read("cpp", "missing", room, sizeof(room)); });

	check(error.error() == -ENOENT && error.status() == 404 && error.code() == "NoSuchKey" &&
			!error.message().empty() && !error.request_id().empty() &&
			error.transport() == NEB_RDMA,
		"a missing key: errno, status, code, message, request id, transport");
	check(std::string(error.what()).find("cpp/missing") != std::string::npos,
		"what() names the object");
	ctx.rdma_write("cpp", "long", std::string(1000, 'x').data(), 1000);
	check(error_of([&] { ctx.rdma_read("cpp", "long", room, sizeof(room)); }).error() ==
			-EMSGSIZE,
		"an object longer than the memory");
	ctx.remove("cpp", "long");
	check(error_of([&] { ctx.alloc_mr(std::size_t(1) << 40); }).error() == -ENOMEM,
		"a buffer larger than the pool");
	nebulaio::RDMAContext fresh("simulated");
	check(error_of([&] { fresh.alloc_mr(1); }).error() == -ENOTCONN, "no connection yet");
	check(!fresh.connected() &&
			error_of([&] { fresh.connect("127.0.0.1", 1); }).status() == 0 &&
			!fresh.connected(),
		"an address without a server");
	nebulaio::Options options;
	options.access_key = "somebody";
	options.secret_key = "else-entirely";
	nebulaio::RDMAContext stranger(options);
	check(error_of([&] { stranger.connect(host, port); }).error() == -EACCES, "wrong keys");
	check(error_of([] { nebulaio::RDMAContext("simulated", 0); }).error() == -EINVAL, "port 0");
}

static void test_listings(nebulaio::RDMAContext &ctx)
{
	std::vector<std::string> keys;
	int seen = 0;

	for (const char *key : {"a/1", "a/2", "b"})
		ctx.rdma_write("cpp", key, "12345", 5);
	for (const nebulaio::Entry &entry : ctx.list("cpp"))
		keys.push_back(entry.key + "=" + std::to_string(entry.bytes));
	check(keys == std::vector<std::string>{"a/1=5", "a/2=5", "b=5"}, "list");
	std::vector<nebulaio::Entry> top = ctx.list("cpp", "", "/");
	check(std::count_if(top.begin(), top.end(),
		      [](const nebulaio::Entry &entry) { return entry.is_prefix; }) == 1 &&
			top.size() == 2,
		"list with a delimiter");
	ctx.list("cpp", "", "", [&](const neb_entry &) { return ++seen < 2; });
	check(seen == 2, "a listing that is ended early");
	bool thrown = false;
	try {
		ctx.list("cpp", "", "", [](const neb_entry &) -> bool { throw 7; });
	} catch (int number) {
		thrown = number == 7;
	}
	check(thrown, "an exception of the visitor comes through");
	std::vector<nebulaio::Entry> buckets = ctx.list_buckets();
	check(std::any_of(buckets.begin(), buckets.end(),
		      [](const nebulaio::Entry &entry) { return entry.key == "cpp"; }),
		"the bucket among the buckets");
	for (const char *key : {"a/1", "a/2", "b"})
		ctx.remove("cpp", key);
}

static void test_in_flight(nebulaio::RDMAContext &ctx)
{
	nebulaio::Buffer buffer = ctx.allocate(100 * 4096);
	std::map<std::uint64_t, int> open;
	std::vector<neb_result> results;

	for (int i = 0; i < 100; i++) {
		const std::string key = "flight-" + std::to_string(i);
		const neb_iov body = {buffer.as<char>() + i * 4096, 4096};
		neb_request request{};

		request.op = NEB_PUT_OBJECT;
		request.bucket = "cpp";
		request.key = key.c_str();
		request.body = &body;
		request.body_count = 1;
		open[ctx.submit(request)] = i;
	}
	while (results.size() < 100)
		ctx.wait(results);
	for (const neb_result &result : results)
		if (result.error == 0)
			open.erase(result.id);
	check(open.empty() && results.size() == 100, "a hundred requests in flight");
	results.clear();
	ctx.wait(results);
	check(results.empty(), "nothing to wait for");
	for (int i = 0; i < 100; i++)
		ctx.remove("cpp", "flight-" + std::to_string(i));
}

static void test_lives()
{
	nebulaio::Buffer survivor;
	{
		nebulaio::RDMAContext ctx("simulated");

		ctx.connect(host, port);
		nebulaio::RDMAContext other = std::move(ctx);
		survivor = other.allocate(4096);
		check(other.connected() && !ctx.connected(), "a context moves");
		void *data = other.alloc_mr(100);
		other.free_mr(data);
		other.free_mr(nullptr);
	}
	std::fill(survivor.as<char>(), survivor.as<char>() + survivor.size(), 'b');
	check(survivor.size() == 4096, "a buffer outlives its context");
}

static void test_hybrid()
{
	nebulaio::RDMAContext ctx("simulated");
	char room[8] = "";

	ctx.connect("rdma://127.0.0.1:1," + endpoints);
	nebulaio::Result put = ctx.rdma_write("cpp", "hybrid", "by http", 7);
	check(put.transport == NEB_HTTP && !put.fallback.empty(),
		"HTTP while RDMA cannot be had, and why");
	ctx.connect(host, port);
	check(ctx.rdma_read("cpp", "hybrid", room, 7).transport == NEB_RDMA &&
			std::string(room) == "by http",
		"written over HTTP, read over RDMA");
	ctx.remove("cpp", "hybrid");
}

static neb_stats after_reads(nebulaio::RDMAContext &ctx, char *room)
{
	ctx.connect(host, port);
	for (int i = 0; i < 100; i++)
		ctx.rdma_read("cpp", "hot", room, 3);
	return ctx.stats();
}

/* The options of a context besides its transports. */
static void test_options()
{
	nebulaio::Options options;
	char room[4] = "";

	options.one_sided_reads = true;
	nebulaio::RDMAContext reads(options);
	reads.connect(host, port);
	check(reads.device() == "simulated" && !reads.device_why().empty(), "the device is told");
	reads.rdma_write("cpp", "hot", "hot", 3);
	check(after_reads(reads, room).one_sided_reads > 0 && std::string(room) == "hot",
		"one-sided reads");
	options.require_encryption = true;
	nebulaio::RDMAContext sealed(options);
	check(after_reads(sealed, room).one_sided_reads == 0 && std::string(room) == "hot",
		"encrypted, nothing is read one-sidedly");
	options = nebulaio::Options();
	options.registration_cache_bytes = 64 << 20;
	nebulaio::RDMAContext keeps(options);
	std::string memory(1 << 20, 'm');
	keeps.connect(host, port);
	for (int i = 0; i < 3; i++)
		keeps.rdma_write("cpp", "hot", memory.data(), memory.size());
	check(keeps.stats().registration_hits == 2, "registrations are kept");
	keeps.forget(memory.data(), memory.size());
	keeps.rdma_write("cpp", "hot", memory.data(), memory.size());
	check(keeps.stats().registration_misses == 2, "until they are forgotten");
	keeps.remove("cpp", "hot");
}

// A request of another S3 library: here by HTTP, without a body, with the token's header.
static nebulaio::Result send(nebulaio::RDMAContext &http, const char *method,
	const std::string &path, const nebulaio::Token &token, const char *range = nullptr)
{
	const neb_header headers[] = {
		{nebulaio::Token::header(), token.text().c_str()}, {"range", range}};
	neb_request request{};

	request.op = NEB_S3;
	request.method = method;
	request.path = path.c_str();
	request.headers = headers;
	request.header_count = range ? 2 : 1;
	return http.perform(request);
}

static void test_tokens()
{
	std::vector<char> memory(300000), back(300000);
	nebulaio::Options options;
	nebulaio::RDMAContext http;
	std::string why = "old";

	http.connect(endpoints);
	for (std::size_t i = 0; i < memory.size(); i++)
		memory[i] = static_cast<char>(i * 7 >> 3);
	nebulaio::TokenMinter minter(endpoints);
	check(minter.available(&why) && why.empty(), "tokens: there are some");
	{
		nebulaio::Token put = minter.mint(NEB_PUT_OBJECT, memory.data(), memory.size());
		check(put.text().size() == NEB_TOKEN_BYTES - 1 &&
				send(http, "PUT", "/cpp/minted", put).status == 200,
			"tokens: a PUT of this program's memory");
	}
	http.rdma_read("cpp", "minted", back.data(), back.size());
	check(back == memory, "tokens: the object has its bytes");
	back.assign(back.size(), 0);
	nebulaio::TokenMemory registered = minter.register_memory(back.data(), back.size());
	nebulaio::Token get = minter.mint(NEB_GET_OBJECT, back.data() + 4096, 70000);
	check(send(http, "GET", "/cpp/minted", get, "bytes=1000-70999").status == 206 &&
			std::equal(
				back.begin() + 4096, back.begin() + 74096, memory.begin() + 1000) &&
			!back[4095] && !back[74096],
		"tokens: a range into a part of registered memory");
	get = minter.mint(NEB_GET_OBJECT, back.data(), 16);
	get.failed();
	check(error_of([&] { send(http, "GET", "/cpp/minted", get, "bytes=0-15"); }).error() != 0,
		"tokens: the server reaches nothing by one that failed");
	nebulaio::TokenMinter moved = std::move(minter);
	check(error_of([&] { minter.mint(NEB_GET_OBJECT, back.data(), 1); }).error() == -EINVAL,
		"tokens: a minter that was moved away");
	check(error_of([&] { moved.mint(NEB_GET_OBJECT, back.data(), 0); }).error() == -EINVAL &&
			error_of([&] { moved.mint(NEB_HEAD_OBJECT, back.data(), 1); }).error() ==
				-EINVAL,
		"tokens: no window, and no such operation");
	check(error_of([&] { nebulaio::TokenMinter wrong("rdma://" + host); }).error() == -EINVAL,
		"tokens: an endpoint that is not of HTTP");
	options.require_encryption = true;
	check(error_of([&] { nebulaio::TokenMinter open(endpoints, options); }).error() == -EINVAL,
		"tokens: none where everything must be encrypted");
	options.require_encryption = false;
	options.access_key = options.secret_key = "nobody at all";
	nebulaio::TokenMinter stranger(endpoints, options);
	check(!stranger.available(&why) && !why.empty() && error_of([&] {
		stranger.mint(NEB_GET_OBJECT, back.data(), 1);
	}).error() == -EACCES,
		"tokens: keys that nobody knows");
	http.remove("cpp", "minted");
}

/* NEBULAIO_TEST_SESSION has temporary keys and their token. */
static void test_temporary_keys()
{
	std::istringstream words(std::getenv("NEBULAIO_TEST_SESSION"));
	const std::string body = "temporary";
	nebulaio::Options options;
	std::string token;

	options.device_name = "simulated";
	words >> options.access_key >> options.secret_key >> token;
	nebulaio::RDMAContext without(options);
	check(error_of([&] { without.connect(endpoints); }).error() == -EACCES,
		"temporary keys: without their token");
	options.session_token = token;
	nebulaio::RDMAContext http(options);
	http.connect(endpoints);
	check(http.rdma_write("cpp", "temporary", body.data(), body.size()).status == 200 &&
			http.remove("cpp", "temporary").status == 204,
		"temporary keys: with it");
	nebulaio::RDMAContext rdma(options);
	check(error_of([&] { rdma.connect(host, port); }).error() == -EOPNOTSUPP,
		"temporary keys: not for sessions over RDMA");
}

int main()
{
	const std::string rdma = std::getenv("NEBULAIO_TEST_RDMA");

	host = rdma.substr(0, rdma.rfind(':'));
	port = static_cast<std::uint16_t>(std::stoi(rdma.substr(rdma.rfind(':') + 1)));
	endpoints = std::string("http://") + std::getenv("NEBULAIO_TEST_HTTP");
	try {
		nebulaio::RDMAContext ctx("mlx5_0", 1);

		ctx.connect(host, port);
		check(true, "NEBULAIO_RDMA_DEVICE_NAME wins over the program's device");
		ctx.create_bucket("cpp");
		test_objects(ctx);
		test_batch(ctx);
		test_fan_out(ctx);
		test_map(ctx);
		test_registration(ctx);
		test_errors(ctx);
		test_listings(ctx);
		test_in_flight(ctx);
		test_lives();
		test_hybrid();
		test_options();
		test_tokens();
		test_temporary_keys();
		check(ctx.remove_bucket("cpp").status == 204, "the bucket is empty again");
	} catch (const std::exception &error) {
		std::printf("# %s\n", error.what());
		check(false, "no exception");
	}
	std::printf("1..%d\n", count);
	return failed ? 1 : 0;
}
