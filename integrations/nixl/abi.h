/* integrations/nixl/abi.h: the binary interface between NIXL 1.5.1 and its storage backends, as far as this plugin meets
 * it. The package has no headers. The types, their order and their sizes are facts of its public sources; tests/e2e/nixl
 * compares the virtual functions with those of the package's own plugin.
 *
 * All of it is hidden in the plugin: NIXL calls an engine only through its table of virtual functions, and reads the
 * members below where they are. */
#ifndef NEBULAIO_NIXL_ABI_H
#define NEBULAIO_NIXL_ABI_H

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

enum nixl_mem_t { DRAM_SEG, VRAM_SEG, BLK_SEG, OBJ_SEG, FILE_SEG };
enum nixl_xfer_op_t { NIXL_READ, NIXL_WRITE };
enum nixl_status_t {
	NIXL_IN_PROG = 1,
	NIXL_SUCCESS = 0,
	NIXL_ERR_NOT_POSTED = -1,
	NIXL_ERR_INVALID_PARAM = -2,
	NIXL_ERR_BACKEND = -3,
	NIXL_ERR_NOT_FOUND = -4,
	NIXL_ERR_MISMATCH = -5,
	NIXL_ERR_NOT_ALLOWED = -6,
	NIXL_ERR_REPOST_ACTIVE = -7,
	NIXL_ERR_UNKNOWN = -8,
	NIXL_ERR_NOT_SUPPORTED = -9,
	NIXL_ERR_REMOTE_DISCONNECT = -10,
};
enum class nixl_cost_t { ANALYTICAL_BACKEND };
enum class nixl_thread_sync_t { NONE, STRICT, RW };

using nixl_params = std::unordered_map<std::string, std::string>;
using nixl_mem_list = std::vector<nixl_mem_t>;
using nixl_answers = std::vector<std::optional<nixl_params>>;
using nixl_notifs = std::vector<std::pair<std::string, std::string>>;

/* ---- Descriptors. Of an object: addr is the first byte, len the count, dev_id the number it was registered with. ---- */
class nixlBackendMD {
public:
	explicit nixlBackendMD(bool is_private) : isPrivateMD(is_private) {}
	virtual ~nixlBackendMD() = default;

protected:
	bool isPrivateMD;
};

struct nixlBasicDesc {
	uintptr_t addr;
	size_t len;
	uint64_t devId;
};

struct nixlMetaDesc : nixlBasicDesc {
	nixlBackendMD *metadataP;
};

struct nixlBlobDesc : nixlBasicDesc {
	std::string metaInfo; /* of an object: its key */
};

/* NIXL makes these; its own has virtual functions, none of which is called here. */
template <class T> struct nixlDescList {
	void *functions;
	nixl_mem_t type;
	std::vector<T> descs;
};
struct nixlRemoteMetaDesc;
static_assert(sizeof(nixlMetaDesc) == 32 && sizeof(nixlBlobDesc) == 56);
static_assert(sizeof(nixlDescList<nixlMetaDesc>) == 40);

/* ---- Engines. ---- */
struct nixlBackendInitParams {
	std::string localAgent;
	std::string type;
	nixl_params *customParams;
	bool enableProgTh;
	uint64_t pthrDelay;
	nixl_thread_sync_t syncMode;
	bool enableTelemetry_;
};

struct nixlBackendOptionalArgs;
struct nixlAgentOptionalArgs;

class nixlBackendReqH {
public:
	virtual ~nixlBackendReqH() = default;
};

struct nixlTelemetryEvent {
	uint64_t type, value;
};

class nixlBackendEngine {
private:
	std::string backendType;
	nixl_params customParams;
	std::vector<nixlTelemetryEvent> telemetryEvents_; /* stays empty here */
	std::mutex telemetryEventsMutex_;

protected:
	bool initErr = false;
	const std::string localAgent;
	const bool enableTelemetry_;

public:
	explicit nixlBackendEngine(const nixlBackendInitParams *params)
	    : backendType(params->type), customParams(params->customParams ? *params->customParams : nixl_params()),
	      localAgent(params->localAgent), enableTelemetry_(params->enableTelemetry_)
	{
	}
	nixlBackendEngine(const nixlBackendEngine &) = delete;
	void operator=(const nixlBackendEngine &) = delete;

	using metas = nixlDescList<nixlMetaDesc>;

	virtual ~nixlBackendEngine() = default;
	virtual bool supportsRemote() const = 0;
	virtual bool supportsLocal() const = 0;
	virtual bool supportsNotif() const = 0;
	virtual nixl_mem_list getSupportedMems() const = 0;
	virtual nixl_status_t registerMem(const nixlBlobDesc &, const nixl_mem_t &, nixlBackendMD *&) = 0;
	virtual nixl_status_t deregisterMem(nixlBackendMD *) = 0;
	virtual nixl_status_t connect(const std::string &) = 0;
	virtual nixl_status_t disconnect(const std::string &) = 0;
	virtual nixl_status_t unloadMD(nixlBackendMD *) = 0;
	virtual nixl_status_t prepXfer(const nixl_xfer_op_t &, const metas &, const metas &, const std::string &,
				       nixlBackendReqH *&, const nixlBackendOptionalArgs *) const = 0;
	virtual nixl_status_t postXfer(const nixl_xfer_op_t &, const metas &, const metas &, const std::string &,
				       nixlBackendReqH *&, const nixlBackendOptionalArgs *) const = 0;
	virtual nixl_status_t checkXfer(nixlBackendReqH *) const = 0;
	virtual nixl_status_t releaseReqH(nixlBackendReqH *) const = 0;
	virtual nixl_status_t prepMemView(const nixlDescList<nixlRemoteMetaDesc> &, void *&, const nixlBackendOptionalArgs *) const
	{
		return NIXL_ERR_NOT_SUPPORTED;
	}
	virtual nixl_status_t prepMemView(const metas &, void *&, const nixlBackendOptionalArgs *) const
	{
		return NIXL_ERR_NOT_SUPPORTED;
	}
	virtual void releaseMemView(void *) const {}
	virtual nixl_status_t getPublicData(const nixlBackendMD *, std::string &) const { return NIXL_ERR_BACKEND; }
	virtual nixl_status_t getConnInfo(std::string &) const { return NIXL_ERR_BACKEND; }
	virtual nixl_status_t loadRemoteConnInfo(const std::string &, const std::string &) { return NIXL_ERR_BACKEND; }
	virtual nixl_status_t loadRemoteMD(const nixlBlobDesc &, const nixl_mem_t &, const std::string &, nixlBackendMD *&)
	{
		return NIXL_ERR_BACKEND;
	}
	virtual nixl_status_t loadLocalMD(nixlBackendMD *, nixlBackendMD *&) { return NIXL_ERR_BACKEND; }
	virtual nixl_status_t getNotifs(nixl_notifs &) { return NIXL_ERR_BACKEND; }
	virtual nixl_status_t genNotif(const std::string &, const std::string &) const { return NIXL_ERR_BACKEND; }
	virtual nixl_status_t queryMem(const nixlDescList<nixlBlobDesc> &, nixl_answers &) const { return NIXL_ERR_NOT_SUPPORTED; }
	virtual nixl_status_t estimateXferCost(const nixl_xfer_op_t &, const metas &, const metas &, const std::string &,
					       nixlBackendReqH *const &, std::chrono::microseconds &, std::chrono::microseconds &,
					       nixl_cost_t &, const nixlAgentOptionalArgs *) const
	{
		return NIXL_ERR_NOT_SUPPORTED;
	}
};
/* As large as the base of the package's own engine for objects. */
static_assert(sizeof(nixlBackendEngine) == 208);

/* ---- The plugin. ---- */
#define NIXL_PLUGIN_API_VERSION 1

struct nixlBackendPlugin {
	int api_version;
	nixlBackendEngine *(*create_engine)(const nixlBackendInitParams *);
	void (*destroy_engine)(nixlBackendEngine *);
	const char *(*get_plugin_name)();
	const char *(*get_plugin_version)();
	nixl_params (*get_backend_options)();
	nixl_mem_list (*get_backend_mems)();
};

#endif
