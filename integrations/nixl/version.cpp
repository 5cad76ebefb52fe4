/* integrations/nixl/version.cpp: which NIXL has opened this plugin. The interface has a number, which stays the same when
 * virtual functions move; the version is in the name of the package's folder. */
#include "engine.h"

#include <dlfcn.h>
#include <glob.h>

namespace nebulaio_nixl {

static const char TESTED[] = "1.5.1";
static const char LIBRARIES[] = ".mesonpy.libs";

/* Of ".../site-packages/.nixl_cu12.mesonpy.libs/libnixl.so": the version in the name of
 * ".../site-packages/nixl_cu12-VERSION.dist-info". Empty: there is none. */
static std::string version_beside(const std::string &library)
{
	size_t file = library.rfind('/'), folder = file == std::string::npos || file == 0 ? file : library.rfind('/', file - 1);
	glob_t found;

	if (file == std::string::npos || folder == std::string::npos)
		return "";
	std::string name = library.substr(folder + 1, file - folder - 1);
	size_t end = name.find(LIBRARIES);

	if (end == std::string::npos || name[0] != '.')
		return "";
	std::string start = library.substr(0, folder + 1) + name.substr(1, end - 1) + "-";
	std::string version;

	if (glob((start + "*.dist-info").c_str(), 0, nullptr, &found) == 0) {
		std::string path = found.gl_pathv[0];

		version = path.substr(start.size(), path.rfind('.') - start.size());
		globfree(&found);
	}
	return version;
}

bool version_is_tested(const void *caller)
{
	Dl_info info = {};
	std::string library = dladdr(caller, &info) && info.dli_fname ? info.dli_fname : "";
	std::string version = version_beside(library);

	if (version == TESTED)
		return true;
	complain("NIXL " + (version.empty() ? "of an unknown version, in " + library : version) +
		 ": this plugin was tested with " + TESTED + " of the package registry, whose binary interface others need not have");
	return false;
}

}
