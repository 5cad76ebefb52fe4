/* integrations/nixl/plugin.cpp: what NIXL looks up in the plugin, and the table that it gets. */
#include "engine.h"

#include <exception>

using namespace nebulaio_nixl;

static nixlBackendEngine *create(const nixlBackendInitParams *params)
{
	try {
		return new Engine(params);
	} catch (const std::exception &error) {
		complain(std::string("no backend: ") + error.what());
		return nullptr;
	}
}

static void destroy(nixlBackendEngine *engine)
{
	delete engine;
}

static const char *name()
{
	return "NEBULA";
}

static const char *version()
{
	return "0.1.0";
}

extern "C" {

__attribute__((visibility("default"))) nixlBackendPlugin *nixl_plugin_init()
{
	static nixlBackendPlugin plugin = {NIXL_PLUGIN_API_VERSION, create, destroy, name, version, settings_known, memories};

	return version_is_tested(__builtin_return_address(0)) ? &plugin : nullptr;
}

__attribute__((visibility("default"))) void nixl_plugin_fini() {}

}
