// nebulaio/rdma.h: the C++ interface of libnebulaio: reads and writes objects over RDMA, with
// owning types that release their resources. Header only, C++17; link with
// `pkg-config --libs nebulaio`.
//
//	nebulaio::RDMAContext ctx("mlx5_0", 1);
//	ctx.connect("192.168.100.1", 9100);
//	void *buffer = ctx.alloc_mr(1024 * 1024);
//	nebulaio::Result result = ctx.rdma_read("my-bucket", "data.bin", buffer, 1024 * 1024);
//	ctx.rdma_write("my-bucket", "output.bin", buffer, result.bytes);
//	ctx.free_mr(buffer);
//
// ERRORS are exceptions of class nebulaio::Error: the errno, S3's status, code and message, the
// request id and the transport.
//
// THREADS. One thread at a time uses a context with its buffers and registrations. Open one for
// each thread.
//
// MEMORY. Any memory may be the source or the target; memory of alloc_mr(), allocate() or
// register_memory() is never copied on the way. It must stay allocated until the call returns, or
// for submit() until its result has come. A Buffer or a Registration keeps the connection alive as
// long as it lives itself.
//
// ENVIRONMENT, so that a program written for one machine runs on another:
//
//	NEBULAIO_RDMA_DEVICE_NAME   wins over the device that the program names; "simulated" needs
//	                            no card and reaches servers of this host
//	NEBULAIO_CONNECT_TO         "HOST:PORT=HOST:PORT", several with commas: a connection to the
//	                            first address goes to the second
//	NEBULAIO_ACCESS_KEY, NEBULAIO_SECRET_KEY, or else AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY:
//	                            the keys of a program that names none
#ifndef NEBULAIO_RDMA_H
#define NEBULAIO_RDMA_H

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <nebulaio/nebulaio.h>

namespace nebulaio
{

// The result of a request.
struct Result {
	std::uint64_t bytes = 0; // of the answer's body, in your memory
	std::uint64_t object_bytes =
		0;	     // length that the answer announced: with head() the object's
	unsigned status = 0; // S3's
	neb_transport transport = NEB_NONE;
	std::string etag;
	std::string request_id;
	std::string fallback; // why a request that should use RDMA used HTTP; else empty
	std::string headers;  // "name: value\n" lines, if the request asked for them

	Result() = default;
	explicit Result(const neb_result &from)
	    : bytes(from.bytes), object_bytes(from.object_bytes), status(from.status),
	      transport(from.transport), etag(from.etag), request_id(from.request_id),
	      fallback(from.fallback), headers(from.headers)
	{
	}
	const char *transport_name() const
	{
		return neb_transport_name(transport);
	}
	// The value of one of the headers, by its name in lower case; "" if it is not there.
	std::string header(const std::string &name) const
	{
		const std::string line = "\n" + name + ": ";
		const std::size_t at = ("\n" + headers).find(line);

		if (at == std::string::npos)
			return "";
		const std::size_t from = at + line.size() - 1;
		return headers.substr(from, headers.find('\n', from) - from);
	}
};

// A request that failed, or could not be made: error() is a negative errno, as nebulaio.h lists
// them; status() is 0 when no answer came.
class Error : public std::runtime_error
{
      public:
	Error(const std::string &what, int error) : Error(what, error, neb_result{})
	{
	}
	Error(const std::string &what, int error, const neb_result &result)
	    : std::runtime_error(text(what, error, result)), error_(error), status_(result.status),
	      code_(result.code), message_(result.message), request_id_(result.request_id),
	      transport_(result.status ? result.transport : NEB_NONE)
	{
	}
	int error() const noexcept
	{
		return error_;
	}
	unsigned status() const noexcept
	{
		return status_;
	}
	const std::string &code() const noexcept // "NoSuchKey"
	{
		return code_;
	}
	const std::string &message() const noexcept
	{
		return message_;
	}
	const std::string &request_id() const noexcept
	{
		return request_id_;
	}
	neb_transport transport() const noexcept
	{
		return transport_;
	}

      private:
	static std::string text(const std::string &what, int error, const neb_result &result)
	{
		std::string text = what + ": ";

		if (result.code[0])
			text += std::string(result.code) + ": ";
		text += result.message[0] ? result.message : std::strerror(-error);
		if (result.status)
			text += " (status " + std::to_string(result.status) + ", request " +
				result.request_id + ", by " + neb_transport_name(result.transport) +
				")";
		return text;
	}

	int error_;
	unsigned status_;
	std::string code_, message_, request_id_;
	neb_transport transport_;
};

namespace detail
{

using Client = std::shared_ptr<neb_client>;

inline std::string environment(const char *name, const char *other = nullptr)
{
	const char *value = std::getenv(name);

	if ((!value || !*value) && other)
		value = std::getenv(other);
	return value ? value : "";
}

inline std::string address(const std::string &host, std::uint16_t port)
{
	bool bare_v6 = host.find(':') != std::string::npos && host.front() != '[';

	return (bare_v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

} // namespace detail

// Memory registered with the device; data() is page-aligned. Can be moved, not copied.
class Buffer
{
      public:
	Buffer() = default;
	Buffer(detail::Client client, std::size_t bytes) : client_(std::move(client)), bytes_(bytes)
	{
		int ret = neb_buffer_alloc(client_.get(), bytes, &data_);

		if (ret)
			throw Error("a buffer of " + std::to_string(bytes) + " bytes", ret);
	}
	Buffer(Buffer &&other) noexcept
	    : client_(std::move(other.client_)), data_(std::exchange(other.data_, nullptr)),
	      bytes_(std::exchange(other.bytes_, 0))
	{
	}
	Buffer &operator=(Buffer &&other) noexcept
	{
		std::swap(client_, other.client_);
		std::swap(data_, other.data_);
		std::swap(bytes_, other.bytes_);
		return *this;
	}
	Buffer(const Buffer &) = delete;
	Buffer &operator=(const Buffer &) = delete;
	~Buffer()
	{
		if (data_)
			neb_buffer_free(client_.get(), data_);
	}
	void *data() const noexcept
	{
		return data_;
	}
	std::size_t size() const noexcept
	{
		return bytes_;
	}
	template <typename T> T *as() const noexcept
	{
		return static_cast<T *>(data_);
	}

      private:
	detail::Client client_;
	void *data_ = nullptr;
	std::size_t bytes_ = 0;
};

// Registers the caller's memory with the device, until this object ends. Can be moved, not copied.
class Registration
{
      public:
	Registration() = default;
	Registration(detail::Client client, void *data, std::size_t bytes)
	    : client_(std::move(client))
	{
		int ret = neb_register(client_.get(), data, bytes);

		if (ret)
			throw Error("registering " + std::to_string(bytes) + " bytes", ret);
		data_ = data;
	}
	Registration(Registration &&other) noexcept
	    : client_(std::move(other.client_)), data_(std::exchange(other.data_, nullptr))
	{
	}
	Registration &operator=(Registration &&other) noexcept
	{
		std::swap(client_, other.client_);
		std::swap(data_, other.data_);
		return *this;
	}
	Registration(const Registration &) = delete;
	Registration &operator=(const Registration &) = delete;
	~Registration()
	{
		if (data_)
			neb_unregister(client_.get(), data_);
	}

      private:
	detail::Client client_;
	void *data_ = nullptr;
};

// One entry of a listing: a key, or with a delimiter a common prefix; or a bucket.
struct Entry {
	std::string key;
	bool is_prefix;
	std::uint64_t bytes;
	std::string etag;
	std::string last_modified;
};

// A group of clients that read one large object together; all give the same name and number.
struct FanOut {
	std::string name; // 1 to 64 letters, digits, '.', '_' and '-'
	std::uint32_t members;
	std::uint64_t wait_ns = 0; // the first one waits so long for the others; 0: 10 s
	std::uint64_t member = 0;  // a number of this client's own; 0: drawn at random
	// Yours: by multicast where that is possible, and then it says what came by it, or why not.
	neb_multicast *multicast = nullptr;
};

// The options of a context. Everything has a default; the environment has the keys if none are
// given.
struct Options {
	// "mlx5_0", "mlx5_0:1", "mlx5_0:1:3", "simulated"; "auto": the device with a route
	// to the server.
	std::string device_name = "auto";
	std::string access_key;
	std::string secret_key;
	std::string region;
	// Of temporary credentials. Empty: the environment's NEBULAIO_SESSION_TOKEN or
	// AWS_SESSION_TOKEN, if access_key is the one beside it. Such credentials are for HTTP, and
	// for "?rdma" and "?rdma=hipobj".
	std::string session_token;
	// Of a TokenMinter whose endpoint is a gateway of a cluster: the bucket of the requests.
	std::string token_bucket;
	neb_transport transport = NEB_AUTO;
	std::uint64_t pool_bytes = 0; // 0, here and below: nebulaio.h's default
	std::uint32_t requests_max = 0;
	std::uint64_t connect_timeout_ns = 0; // over RDMA alone, as for a request: 30 s
	std::uint64_t request_timeout_ns = 0;
	std::uint64_t spin_ns = 0;
	bool require_encryption = false;
	bool one_sided_reads = false;
	std::uint64_t registration_cache_bytes = 0; // with it, call forget() before memory is freed
};

namespace detail
{

// Takes what the environment has: the device that wins, and keys where there are none.
inline void complete(Options &options)
{
	const std::string device = environment("NEBULAIO_RDMA_DEVICE_NAME");

	if (!device.empty())
		options.device_name = device;
	if (options.access_key.empty())
		options.access_key = environment("NEBULAIO_ACCESS_KEY", "AWS_ACCESS_KEY_ID");
	if (options.secret_key.empty())
		options.secret_key = environment("NEBULAIO_SECRET_KEY", "AWS_SECRET_ACCESS_KEY");
	if (options.access_key.empty() || options.secret_key.empty())
		throw Error("no keys: set NEBULAIO_ACCESS_KEY and NEBULAIO_SECRET_KEY", -EINVAL);
}

// The C form; its strings are those of the arguments.
inline neb_options native(const Options &options, const std::string &endpoints)
{
	neb_options to{};

	to.endpoints = endpoints.c_str();
	to.access_key = options.access_key.c_str();
	to.secret_key = options.secret_key.c_str();
	to.region = options.region.empty() ? nullptr : options.region.c_str();
	if (!options.session_token.empty())
		to.session_token = options.session_token.c_str();
	to.transport = options.transport;
	to.device_name = options.device_name.c_str();
	to.pool_bytes = options.pool_bytes;
	to.requests_max = options.requests_max;
	to.connect_timeout_ns = options.connect_timeout_ns;
	to.request_timeout_ns = options.request_timeout_ns;
	to.spin_ns = options.spin_ns;
	to.require_encryption = options.require_encryption;
	to.one_sided_reads = options.one_sided_reads;
	to.registration_cache_bytes = options.registration_cache_bytes;
	to.token_bucket = options.token_bucket.c_str();
	return to;
}

} // namespace detail

// An object as read-only memory, whose bytes come when they are touched: see nebulaio.h, "Objects
// as memory". Can be moved, not copied; keeps its mapper. A Mapper makes it.
class Map
{
      public:
	Map() = default;
	Map(std::shared_ptr<neb_mapper> mapper, const std::string &bucket, const std::string &key,
		const std::string &version_id)
	    : mapper_(std::move(mapper))
	{
		neb_result result;
		int ret = neb_map(mapper_.get(), bucket.c_str(), key.c_str(),
			version_id.empty() ? nullptr : version_id.c_str(), &map_, &result);

		if (ret)
			throw Error("mapping " + bucket + "/" + key, ret, result);
	}
	Map(Map &&other) noexcept
	    : mapper_(std::move(other.mapper_)), map_(std::exchange(other.map_, nullptr))
	{
	}
	Map &operator=(Map &&other) noexcept
	{
		std::swap(mapper_, other.mapper_);
		std::swap(map_, other.map_);
		return *this;
	}
	Map(const Map &) = delete;
	Map &operator=(const Map &) = delete;
	~Map()
	{
		neb_unmap(map_);
	}
	const void *data() const noexcept
	{
		return map_ ? neb_map_data(map_) : nullptr;
	}
	template <typename T> const T *as() const noexcept
	{
		return static_cast<const T *>(data());
	}
	std::uint64_t size() const noexcept
	{
		return map_ ? neb_map_bytes(map_) : 0;
	}
	// Brings bytes before they are touched; 0 bytes: up to the end. With a timeout it returns
	// when they are there.
	void prefetch(
		std::uint64_t offset = 0, std::uint64_t bytes = 0, std::uint64_t timeout_ns = 0)
	{
		int ret = neb_map_prefetch(native(), offset, bytes, timeout_ns);

		if (ret)
			throw Error("prefetching " + std::to_string(bytes) + " bytes", ret);
	}
	struct neb_map_stats stats() const
	{
		struct neb_map_stats stats;

		neb_map_stats(native(), &stats);
		return stats;
	}
	// For calls that this header does not wrap.
	struct neb_map *native() const
	{
		if (!map_)
			throw Error("no map", -EINVAL);
		return map_;
	}

      private:
	std::shared_ptr<neb_mapper> mapper_;
	struct neb_map *map_ = nullptr;
};

// Maps objects of endpoints, in nebulaio.h's form. Any thread may use it. Throws with -EPERM or
// -ENOSYS when this host refuses userfaultfd; the log says what to change.
class Mapper
{
      public:
	explicit Mapper(const std::string &endpoints, Options options = Options(),
		const neb_mapper_options &more = neb_mapper_options())
	{
		neb_mapper *mapper = nullptr;

		detail::complete(options);
		const neb_options native = detail::native(options, endpoints);
		int ret = neb_mapper_open(&native, &more, &mapper);

		if (ret)
			throw Error("mapping objects of " + endpoints, ret);
		mapper_ = std::shared_ptr<neb_mapper>(mapper, neb_mapper_close);
	}
	Map map(const std::string &bucket, const std::string &key,
		const std::string &version_id = "")
	{
		return Map(mapper_, bucket, key, version_id);
	}

      private:
	std::shared_ptr<neb_mapper> mapper_;
};

// A connection to a server, and its requests. Can be moved, not copied.
class RDMAContext
{
      public:
	// The device and its port, counted from 1.
	explicit RDMAContext(const std::string &device_name, int port = 1)
	    : RDMAContext(with_device(device_name, port))
	{
	}
	// The device with a route to the server.
	RDMAContext() : RDMAContext(Options())
	{
	}
	explicit RDMAContext(Options options) : options_(std::move(options))
	{
		detail::complete(options_);
	}
	RDMAContext(RDMAContext &&) noexcept = default;
	RDMAContext &operator=(RDMAContext &&) noexcept = default;
	RDMAContext(const RDMAContext &) = delete;
	RDMAContext &operator=(const RDMAContext &) = delete;

	// Connects to one server, over RDMA only. Throws when it does not answer within the
	// connect timeout, or refuses the keys. Connecting again ends the earlier connection and
	// its memory from alloc_mr().
	void connect(const std::string &host, std::uint16_t port)
	{
		open("rdma://" + detail::address(host, port), NEB_RDMA);
	}
	// Connects to endpoints in nebulaio.h's form, by the transport of the options: with
	// NEB_AUTO over RDMA where possible, else over HTTP.
	void connect(const std::string &endpoints)
	{
		open(endpoints, options_.transport);
	}
	void disconnect() noexcept
	{
		client_.reset();
	}
	bool connected() const noexcept
	{
		return client_ != nullptr;
	}

	// The RDMA device in use, "mlx5_0:1", "simulated", or "" without one; and the reason for
	// this device, or for none.
	std::string device() const
	{
		return neb_client_device(native());
	}
	std::string device_why() const
	{
		return neb_client_device_why(native());
	}

	// ---- Memory. ----

	// Call it before you free memory that requests have used: see
	// Options::registration_cache_bytes.
	void forget(const void *data, std::size_t bytes)
	{
		int ret = neb_memory_forget(native(), data, bytes);

		if (ret)
			throw Error("forget of " + std::to_string(bytes) + " bytes", ret);
	}
	// Memory from the registered pool; lives until free_mr() or the connection's end.
	void *alloc_mr(std::size_t bytes)
	{
		void *data = nullptr;
		int ret = neb_buffer_alloc(native(), bytes, &data);

		if (ret)
			throw Error("alloc_mr of " + std::to_string(bytes) + " bytes", ret);
		return data;
	}
	void free_mr(void *data) // takes nullptr
	{
		neb_buffer_free(native(), data);
	}
	Buffer allocate(std::size_t bytes)
	{
		native();
		return Buffer(client_, bytes);
	}
	Registration register_memory(void *data, std::size_t bytes)
	{
		native();
		return Registration(client_, data, bytes);
	}

	// ---- Objects. ----

	// Reads an object into memory. Throws with -EMSGSIZE when the object is longer than bytes.
	Result rdma_read(
		const std::string &bucket, const std::string &key, void *data, std::size_t bytes)
	{
		neb_result result;
		int ret = neb_get(native(), bucket.c_str(), key.c_str(), data, bytes, &result);

		return checked("GET " + bucket + "/" + key, ret, result);
	}
	// Stores memory as an object.
	Result rdma_write(const std::string &bucket, const std::string &key, const void *data,
		std::size_t bytes)
	{
		neb_result result;
		int ret = neb_put(native(), bucket.c_str(), key.c_str(), data, bytes, &result);

		return checked("PUT " + bucket + "/" + key, ret, result);
	}
	// Reads a part of an object: bytes from offset on, or as many as there are. Throws with
	// -EINVAL for 0 bytes: no request reads an empty range.
	Result read_range(const std::string &bucket, const std::string &key, std::uint64_t offset,
		void *data, std::size_t bytes)
	{
		const neb_iov into = {data, bytes};
		neb_request request{};

		if (!bytes)
			throw Error("GET " + bucket + "/" + key + ": a range of 0 bytes", -EINVAL);
		request.op = NEB_GET_OBJECT;
		request.bucket = bucket.c_str();
		request.key = key.c_str();
		request.into = &into;
		request.into_count = 1;
		request.range_offset = offset;
		request.range_bytes = bytes;
		return perform(request);
	}
	// Reads many small objects or ranges by one call; items name a bucket of their own or get
	// this one. Does not throw for an item that fails: its error tells. Returns how many
	// failed.
	std::size_t read_batch(const std::string &bucket, std::vector<neb_batch_item> &items,
		std::uint32_t window = 0, std::uint64_t timeout_ns = 0)
	{
		neb_batch batch{};
		std::size_t failed = 0;

		batch.bucket = bucket.c_str();
		batch.items = items.data();
		batch.item_count = items.size();
		batch.window = window;
		batch.timeout_ns = timeout_ns;
		if (neb_get_batch(native(), &batch) == -EINVAL && window > NEB_BATCH_WINDOW_MAX)
			throw Error("reading a batch: the window is out of bounds", -EINVAL);
		for (const neb_batch_item &item : items)
			failed += item.error != 0;
		return failed;
	}
	// Reads a whole object as one of a group of clients that need it at the same time: the
	// server reads each part of it once for all of them. The result's
	// header(NEB_FAN_OUT_HEADER) is "member; members=COUNT", or why it was served alone.
	Result read_fan_out(const std::string &bucket, const std::string &key, void *data,
		std::size_t bytes, const FanOut &group)
	{
		neb_fan_out asked{};
		neb_result result;
		int ret;

		asked.name = group.name.c_str();
		asked.members = group.members;
		asked.wait_ns = group.wait_ns;
		asked.member = group.member;
		asked.multicast = group.multicast;
		asked.bucket = bucket.c_str();
		asked.key = key.c_str();
		asked.data = data;
		asked.data_bytes = bytes;
		ret = neb_get_fan_out(native(), &asked, &result);
		return checked("GET " + bucket + "/" + key, ret, result);
	}
	Result head(const std::string &bucket, const std::string &key)
	{
		neb_result result;
		int ret = neb_head(native(), bucket.c_str(), key.c_str(), &result);

		return checked("HEAD " + bucket + "/" + key, ret, result);
	}
	Result remove(const std::string &bucket, const std::string &key)
	{
		neb_result result;
		int ret = neb_delete(native(), bucket.c_str(), key.c_str(), &result);

		return checked("DELETE " + bucket + "/" + key, ret, result);
	}

	// ---- Buckets and listings. ----

	Result create_bucket(const std::string &bucket)
	{
		neb_result result{};
		int ret = neb_bucket_create(native(), bucket.c_str(), &result);

		return checked("creating bucket " + bucket, ret, result);
	}
	Result remove_bucket(const std::string &bucket)
	{
		neb_result result{};
		int ret = neb_bucket_delete(native(), bucket.c_str(), &result);

		return checked("deleting bucket " + bucket, ret, result);
	}
	// Calls visit for every key that starts with prefix, in order, until it returns false. It
	// may throw, and may not use this context.
	void list(const std::string &bucket, const std::string &prefix,
		const std::string &delimiter, const std::function<bool(const neb_entry &)> &visit)
	{
		Visit context{visit, nullptr};
		const struct neb_list query = {bucket.c_str(), prefix.c_str(), delimiter.c_str(),
			nullptr, &Visit::call, &context, 0};
		neb_result result{};
		int ret = neb_list(native(), &query, &result);

		if (context.thrown)
			std::rethrow_exception(context.thrown);
		checked("listing " + bucket, ret, result);
	}
	std::vector<Entry> list(const std::string &bucket, const std::string &prefix = "",
		const std::string &delimiter = "")
	{
		std::vector<Entry> entries;

		list(bucket, prefix, delimiter, [&](const neb_entry &entry) {
			entries.push_back(entry_of(entry));
			return true;
		});
		return entries;
	}
	std::vector<Entry> list_buckets()
	{
		std::vector<Entry> entries;
		const std::function<bool(const neb_entry &)> keep = [&](const neb_entry &entry) {
			entries.push_back(entry_of(entry));
			return true;
		};
		Visit context{keep, nullptr};
		neb_result result{};
		int ret = neb_list_buckets(native(), &Visit::call, &context, &result);

		if (context.thrown)
			std::rethrow_exception(context.thrown);
		checked("listing the buckets", ret, result);
		return entries;
	}

	// ---- Any request, at once or in flight with others. ----

	Result perform(const neb_request &request)
	{
		neb_result result;
		int ret = neb_perform(native(), &request, &result);

		return checked(name(request), ret, result);
	}
	// The id that its result will carry.
	std::uint64_t submit(const neb_request &request)
	{
		std::uint64_t id = 0;
		int ret = neb_submit(native(), &request, &id);

		if (ret)
			throw Error(name(request), ret);
		return id;
	}
	// Waits for at least one of the requests in flight and adds the results that are there to
	// the vector, good and bad: look at each one's error. Throws with -ETIMEDOUT; adds nothing
	// when nothing is in flight.
	void wait(std::vector<neb_result> &results, std::uint64_t timeout_ns = UINT64_MAX)
	{
		std::size_t before = results.size();
		int count;

		results.resize(before + RESULTS_MAX);
		count = neb_wait(native(), &results[before], RESULTS_MAX, timeout_ns);
		results.resize(before + static_cast<std::size_t>(count > 0 ? count : 0));
		if (count < 0)
			throw Error("waiting for results", count);
	}

	neb_stats stats() const
	{
		neb_stats stats;

		neb_client_stats(native(), &stats);
		return stats;
	}
	// For calls that this header does not wrap. The context owns it: do not close it.
	neb_client *native() const
	{
		if (!client_)
			throw Error("no connection: call connect() first", -ENOTCONN);
		return client_.get();
	}

      private:
	static constexpr std::uint32_t RESULTS_MAX = 16;

	// C calls this, so no exception may leave it.
	struct Visit {
		const std::function<bool(const neb_entry &)> &visit;
		std::exception_ptr thrown;

		static bool call(void *arg, const neb_entry *entry) noexcept
		{
			Visit *self = static_cast<Visit *>(arg);

			try {
				return self->visit(*entry);
			} catch (...) {
				self->thrown = std::current_exception();
				return false;
			}
		}
	};

	static Entry entry_of(const neb_entry &entry)
	{
		return {entry.key, entry.is_prefix, entry.bytes, entry.etag, entry.last_modified};
	}
	static Options with_device(const std::string &device_name, int port)
	{
		Options options;

		if (port < 1)
			throw Error("port " + std::to_string(port) + " of " + device_name, -EINVAL);
		options.device_name = device_name == "simulated" || device_name == "auto"
					      ? device_name
					      : device_name + ":" + std::to_string(port);
		return options;
	}
	static std::string name(const neb_request &request)
	{
		return "request " + std::to_string(request.op) + " of " +
		       (request.bucket ? request.bucket : "") + "/" +
		       (request.key ? request.key : "");
	}
	static Result checked(const std::string &what, int ret, const neb_result &result)
	{
		if (ret)
			throw Error(what, ret, result);
		return Result(result);
	}
	void open(const std::string &endpoints, neb_transport transport)
	{
		neb_client *client = nullptr;
		neb_request ping{};
		neb_options options = detail::native(options_, endpoints);
		neb_result result;
		int ret;

		options.transport = transport;
		client_.reset();
		ret = neb_client_open(&options, &client);
		if (ret)
			throw Error("connecting to " + endpoints, ret);
		client_ = detail::Client(client, neb_client_close);
		ping.op = NEB_PING;
		ping.timeout_ns = options_.connect_timeout_ns;
		ret = neb_perform(client, &ping, &result);
		if (ret) {
			client_.reset();
			throw Error("connecting to " + endpoints, ret, result);
		}
	}

	Options options_;
	detail::Client client_;
};

} // namespace nebulaio

#endif
