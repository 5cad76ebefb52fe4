/* integrations/nixl/engine.h: the storage backend NEBULA: objects of one bucket from and into registered memory. */
#ifndef NEBULAIO_NIXL_ENGINE_H
#define NEBULAIO_NIXL_ENGINE_H

#include <atomic>
#include <memory>

#include "abi.h"
#include "worker.h"

namespace nebulaio_nixl {

/* Whether the caller of the plugin is a NIXL that it was tested with; else says why not. */
bool version_is_tested(const void *caller);
nixl_params settings_known();
nixl_mem_list memories();

class Engine : public nixlBackendEngine {
public:
	explicit Engine(const nixlBackendInitParams *params);

	bool supportsRemote() const override { return false; }
	bool supportsLocal() const override { return true; }
	bool supportsNotif() const override { return false; }
	nixl_mem_list getSupportedMems() const override { return memories(); }
	nixl_status_t registerMem(const nixlBlobDesc &desc, const nixl_mem_t &memory, nixlBackendMD *&out) override;
	nixl_status_t deregisterMem(nixlBackendMD *data) override;
	nixl_status_t connect(const std::string &) override { return NIXL_SUCCESS; }
	nixl_status_t disconnect(const std::string &) override { return NIXL_SUCCESS; }
	nixl_status_t loadLocalMD(nixlBackendMD *input, nixlBackendMD *&output) override
	{
		output = input;
		return NIXL_SUCCESS;
	}
	nixl_status_t unloadMD(nixlBackendMD *) override { return NIXL_SUCCESS; }
	nixl_status_t prepXfer(const nixl_xfer_op_t &operation, const metas &local, const metas &remote, const std::string &agent,
			       nixlBackendReqH *&handle, const nixlBackendOptionalArgs *) const override;
	nixl_status_t postXfer(const nixl_xfer_op_t &operation, const metas &local, const metas &remote, const std::string &agent,
			       nixlBackendReqH *&handle, const nixlBackendOptionalArgs *) const override;
	nixl_status_t checkXfer(nixlBackendReqH *handle) const override;
	nixl_status_t releaseReqH(nixlBackendReqH *handle) const override;
	nixl_status_t queryMem(const nixlDescList<nixlBlobDesc> &descs, nixl_answers &answers) const override;

private:
	bool open(const nixl_params &params);

	std::string bucket;
	std::unique_ptr<Worker> worker;
};

}

#endif
