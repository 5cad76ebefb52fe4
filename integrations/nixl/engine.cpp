/* integrations/nixl/engine.cpp: transfers. Each descriptor is one request of the worker's client; a transfer is over when
 * all its requests have their results. */
#include "engine.h"

#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <set>
#include <stdexcept>

namespace nebulaio_nixl {

/* ---- Settings. ---- */

/* The names are those of NIXL's backend OBJ where it has them. */
static const char *const SETTINGS[] = {"endpoint", "endpoint_override", "scheme", "bucket", "access_key", "secret_key", "region", "device",
	"transport", "one_sided"};
/* Settings of OBJ that say how its own library sends requests. */
static const char *const OF_OBJ[] = {"use_virtual_addressing", "req_checksum", "num_threads", "crtMinLimit"};

nixl_params settings_known()
{
	nixl_params known;

	for (const char *name : SETTINGS)
		known[name] = "";
	return known;
}

nixl_mem_list memories()
{
	return {DRAM_SEG, VRAM_SEG, OBJ_SEG};
}

static std::string setting(const nixl_params &params, const char *name, std::initializer_list<const char *> variables)
{
	auto found = params.find(name);

	if (found != params.end() && !found->second.empty())
		return found->second;
	for (const char *variable : variables) {
		const char *value = getenv(variable);

		if (value && *value)
			return value;
	}
	return "";
}

static std::string endpoints_of(const nixl_params &params)
{
	std::string own = setting(params, "endpoint", {"NEBULAIO_ENDPOINT"});
	std::string theirs = setting(params, "endpoint_override", {"AWS_ENDPOINT_URL"});

	if (!own.empty())
		return own;
	if (!theirs.empty() && theirs.find("://") == std::string::npos) {
		std::string scheme = setting(params, "scheme", {});

		theirs = (scheme.empty() ? "https" : scheme) + "://" + theirs;
	}
	return theirs;
}

static void check_names(const nixl_params &params)
{
	std::set<std::string> known(std::begin(SETTINGS), std::end(SETTINGS));

	known.insert(std::begin(OF_OBJ), std::end(OF_OBJ));
	for (const auto &one : params)
		if (!known.count(one.first))
			throw std::invalid_argument("the setting " + one.first + " is unknown");
}

static void need(const std::string &value, const char *what)
{
	if (value.empty())
		throw std::invalid_argument(std::string("no ") + what);
}

bool Engine::open(const nixl_params &params)
{
	std::string endpoints = endpoints_of(params), region = setting(params, "region", {"AWS_REGION", "AWS_DEFAULT_REGION"});
	std::string access = setting(params, "access_key", {"NEBULAIO_ACCESS_KEY", "AWS_ACCESS_KEY_ID"});
	std::string secret = setting(params, "secret_key", {"NEBULAIO_SECRET_KEY", "AWS_SECRET_ACCESS_KEY"});
	std::string device = setting(params, "device", {"NEBULAIO_RDMA_DEVICE_NAME"}), way = setting(params, "transport", {});
	std::string one_sided = setting(params, "one_sided", {});
	struct neb_options options = {};

	check_names(params);
	bucket = setting(params, "bucket", {"AWS_DEFAULT_BUCKET"});
	need(bucket, "bucket: the setting bucket, or AWS_DEFAULT_BUCKET");
	need(endpoints, "endpoint: the setting endpoint or endpoint_override, NEBULAIO_ENDPOINT, or AWS_ENDPOINT_URL");
	need(access, "access key: the setting access_key, or AWS_ACCESS_KEY_ID");
	need(secret, "secret key: the setting secret_key, or AWS_SECRET_ACCESS_KEY");
	if (!way.empty() && neb_transport_parse(way.c_str(), &options.transport))
		throw std::invalid_argument("transport " + way + ": it is auto, rdma, http or strict");
	if (!one_sided.empty() && one_sided != "true" && one_sided != "false")
		throw std::invalid_argument("one_sided " + one_sided + ": it is true or false");
	options.endpoints = endpoints.c_str();
	options.access_key = access.c_str();
	options.secret_key = secret.c_str();
	options.region = region.empty() ? nullptr : region.c_str();
	options.device_name = device.empty() ? nullptr : device.c_str();
	options.one_sided_reads = one_sided != "false";
	worker = std::make_unique<Worker>();
	int ret = worker->open(options);

	if (ret)
		throw std::runtime_error("no client for " + endpoints + ": " + strerror(-ret));
	return true;
}

Engine::Engine(const nixlBackendInitParams *params) : nixlBackendEngine(params)
{
	try {
		open(params->customParams ? *params->customParams : nixl_params());
	} catch (const std::exception &error) {
		complain(error.what());
		initErr = true;
	}
}

/* ---- What is registered. ---- */

struct Memory : nixlBackendMD {
	Memory(void *where, bool is_registered) : nixlBackendMD(true), data(where), registered(is_registered) {}
	void *data;
	bool registered;
};

struct Object : nixlBackendMD {
	explicit Object(std::string name) : nixlBackendMD(true), key(std::move(name)) {}
	const std::string key;
	/* A read of its beginning found more bytes behind it; the worker's thread alone uses it. */
	bool is_longer = false;
};

nixl_status_t Engine::registerMem(const nixlBlobDesc &desc, const nixl_mem_t &memory, nixlBackendMD *&out)
{
	if (memory == OBJ_SEG) {
		out = new Object(desc.metaInfo.empty() ? std::to_string(desc.devId) : desc.metaInfo);
		return NIXL_SUCCESS;
	}
	if (memory != DRAM_SEG && memory != VRAM_SEG)
		return NIXL_ERR_NOT_SUPPORTED;
	void *data = reinterpret_cast<void *>(desc.addr);
	int ret = worker->call([&](struct neb_client *client) { return neb_register(client, data, desc.len); });

	/* Memory that no device can register, of a GPU or without RDMA, is staged or copied by the client. */
	if (ret && ret != -EEXIST && ret != -ENODEV && ret != -ENOTSUP)
		complain("memory of " + std::to_string(desc.len) + " bytes is not registered, and copied: " + strerror(-ret));
	out = new Memory(data, ret == 0);
	return NIXL_SUCCESS;
}

nixl_status_t Engine::deregisterMem(nixlBackendMD *data)
{
	auto *memory = dynamic_cast<Memory *>(data);

	if (memory && memory->registered)
		worker->call([&](struct neb_client *client) { return neb_unregister(client, memory->data); });
	delete data;
	return NIXL_SUCCESS;
}

/* ---- Transfers. ---- */

struct Transfer;

struct Item {
	Transfer *transfer;
	Object *object;
	void *data;
	size_t bytes;
	uint64_t offset;
	bool whole; /* asked for without a range: only such reads are one-sided */
};

struct Transfer : nixlBackendReqH {
	std::string bucket;
	nixl_xfer_op_t operation = NIXL_READ;
	std::vector<Item> items;
	std::mutex mutex;
	std::condition_variable ended;
	size_t left = 0;
	nixl_status_t status = NIXL_ERR_NOT_POSTED;
	bool posted = false;
};

static nixl_status_t status_of(int error)
{
	switch (error) {
	case 0:
		return NIXL_SUCCESS;
	case -ENOENT:
		return NIXL_ERR_NOT_FOUND;
	case -EACCES:
		return NIXL_ERR_NOT_ALLOWED;
	case -ERANGE:
	case -EMSGSIZE:
		return NIXL_ERR_MISMATCH;
	case -EINVAL:
		return NIXL_ERR_INVALID_PARAM;
	case -ECONNREFUSED:
	case -ECONNRESET:
	case -ETIMEDOUT:
	case -EHOSTUNREACH:
	case -ENETDOWN:
		return NIXL_ERR_REMOTE_DISCONNECT;
	default:
		return NIXL_ERR_BACKEND;
	}
}

/* One result. The transfer may be gone when this returns. */
static void finish(Item *item, nixl_status_t status, const char *why)
{
	Transfer *transfer = item->transfer;
	bool first = false;
	std::string what;

	if (status != NIXL_SUCCESS)
		what = std::string(transfer->operation == NIXL_WRITE ? "PUT" : "GET") + " of " + std::to_string(item->bytes) +
		       " bytes, s3://" + transfer->bucket + "/" + item->object->key + ": " + why;
	{
		std::lock_guard<std::mutex> lock(transfer->mutex);

		first = status != NIXL_SUCCESS && transfer->status == NIXL_SUCCESS;
		if (first)
			transfer->status = status;
		if (--transfer->left == 0)
			transfer->ended.notify_all();
	}
	if (first)
		complain(what);
}

static void start(struct neb_client *client, Item *item);

static void on_done(void *arg, const struct neb_result *result)
{
	auto *started = static_cast<std::pair<struct neb_client *, Item *> *>(arg);
	auto [client, item] = *started;
	bool is_read = item->transfer->operation == NIXL_READ;

	delete started;
	if (result->error == -EMSGSIZE && item->whole) {
		item->object->is_longer = true;
		start(client, item);
	} else if (result->error == 0 && is_read && result->bytes != item->bytes) {
		finish(item, NIXL_ERR_MISMATCH, ("only " + std::to_string(result->bytes) + " bytes are there").c_str());
	} else {
		finish(item, status_of(result->error), result->message[0] ? result->message : strerror(-result->error));
	}
}

static void start(struct neb_client *client, Item *item)
{
	struct neb_iov memory = {item->data, item->bytes};
	struct neb_request request = {};

	request.bucket = item->transfer->bucket.c_str();
	request.key = item->object->key.c_str();
	request.done = on_done;
	if (item->transfer->operation == NIXL_WRITE) {
		request.op = NEB_PUT_OBJECT;
		request.body = &memory;
		request.body_count = 1;
	} else {
		request.op = NEB_GET_OBJECT;
		request.into = &memory;
		request.into_count = 1;
		item->whole = item->offset == 0 && !item->object->is_longer;
		if (!item->whole) {
			request.range_offset = item->offset;
			request.range_bytes = item->bytes;
		}
	}
	auto *started = new std::pair<struct neb_client *, Item *>(client, item);

	request.user_data = started;
	int ret = neb_submit(client, &request, nullptr);

	if (ret) {
		delete started;
		finish(item, status_of(ret), strerror(-ret));
	}
}

nixl_status_t Engine::prepXfer(const nixl_xfer_op_t &operation, const metas &local, const metas &remote, const std::string &,
			       nixlBackendReqH *&handle, const nixlBackendOptionalArgs *) const
{
	if ((local.type != DRAM_SEG && local.type != VRAM_SEG) || remote.type != OBJ_SEG || local.descs.size() != remote.descs.size())
		return NIXL_ERR_INVALID_PARAM;
	auto transfer = std::make_unique<Transfer>();

	transfer->bucket = bucket;
	transfer->operation = operation;
	for (size_t i = 0; i < local.descs.size(); i++) {
		const nixlMetaDesc &ours = local.descs[i], &theirs = remote.descs[i];
		auto *object = dynamic_cast<Object *>(theirs.metadataP);

		if (!object || ours.len != theirs.len || (operation == NIXL_READ && !ours.len)) {
			complain("a descriptor names no registered object, another length than its memory's, or no bytes to read");
			return NIXL_ERR_INVALID_PARAM;
		}
		if (operation == NIXL_WRITE && theirs.addr) {
			complain("s3://" + bucket + "/" + object->key + " is written as a whole: not at " + std::to_string(theirs.addr));
			return NIXL_ERR_INVALID_PARAM;
		}
		transfer->items.push_back({transfer.get(), object, reinterpret_cast<void *>(ours.addr), ours.len, theirs.addr, false});
	}
	handle = transfer.release();
	return NIXL_SUCCESS;
}

nixl_status_t Engine::postXfer(const nixl_xfer_op_t &, const metas &, const metas &, const std::string &, nixlBackendReqH *&handle,
			       const nixlBackendOptionalArgs *) const
{
	auto *transfer = static_cast<Transfer *>(handle);
	{
		std::lock_guard<std::mutex> lock(transfer->mutex);

		if (transfer->left)
			return NIXL_ERR_REPOST_ACTIVE;
		transfer->left = transfer->items.size();
		transfer->status = NIXL_SUCCESS;
	}
	worker->post([transfer, count = transfer->items.size()](struct neb_client *client) {
		Item *items = transfer->items.data();

		/* The last one may end the transfer before this returns. */
		for (size_t i = 0; i < count; i++)
			start(client, &items[i]);
	});
	return NIXL_IN_PROG;
}

nixl_status_t Engine::checkXfer(nixlBackendReqH *handle) const
{
	auto *transfer = static_cast<Transfer *>(handle);
	std::lock_guard<std::mutex> lock(transfer->mutex);

	return transfer->left ? NIXL_IN_PROG : transfer->status;
}

/* Requests in flight are waited for: the server may still write to their memory. */
nixl_status_t Engine::releaseReqH(nixlBackendReqH *handle) const
{
	auto *transfer = static_cast<Transfer *>(handle);
	{
		std::unique_lock<std::mutex> lock(transfer->mutex);

		transfer->ended.wait(lock, [transfer] { return !transfer->left; });
	}
	delete transfer;
	return NIXL_SUCCESS;
}

/* ---- Which objects there are. ---- */

struct Query {
	std::mutex mutex;
	std::condition_variable ended;
	size_t left;
	nixl_status_t status = NIXL_SUCCESS;
	nixl_answers *answers;
};

static void on_head(void *arg, const struct neb_result *result)
{
	auto *asked = static_cast<std::pair<Query *, size_t> *>(arg);
	auto [query, idx] = *asked;

	delete asked;
	std::lock_guard<std::mutex> lock(query->mutex);

	if (result->error == 0)
		(*query->answers)[idx] = nixl_params{{"size", std::to_string(result->object_bytes)}};
	else if (result->error != -ENOENT && query->status == NIXL_SUCCESS)
		query->status = status_of(result->error);
	if (--query->left == 0)
		query->ended.notify_all();
}

nixl_status_t Engine::queryMem(const nixlDescList<nixlBlobDesc> &descs, nixl_answers &answers) const
{
	Query query;

	answers.assign(descs.descs.size(), std::nullopt);
	query.left = descs.descs.size();
	query.answers = &answers;
	if (!query.left)
		return NIXL_SUCCESS;
	worker->post([&, this](struct neb_client *client) {
		/* The last answer may end the query before this returns. */
		const size_t count = descs.descs.size();
		const nixlBlobDesc *all = descs.descs.data();
		const char *of = bucket.c_str();
		Query *asked = &query;

		for (size_t i = 0; i < count; i++) {
			struct neb_request request = {};

			request.op = NEB_HEAD_OBJECT;
			request.bucket = of;
			request.key = all[i].metaInfo.c_str();
			request.done = on_head;
			request.user_data = new std::pair<Query *, size_t>(asked, i);
			int ret = neb_submit(client, &request, nullptr);

			if (ret) {
				struct neb_result refused = {};

				refused.error = ret;
				on_head(request.user_data, &refused);
			}
		}
	});
	std::unique_lock<std::mutex> lock(query.mutex);

	query.ended.wait(lock, [&] { return !query.left; });
	if (query.status != NIXL_SUCCESS)
		complain("which objects of s3://" + bucket + " are there: the server did not tell");
	return query.status;
}

}
