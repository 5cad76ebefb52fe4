/* client/compat/memory.c: the type of memory, as CUDA's driver knows it. It is asked only where the
 * program has loaded it: without it, all memory is the host's. */
#include "compat.h"

#include <dlfcn.h>
#include <stdint.h>

int compat_memory_type(const void *data)
{
	enum { MEMORY_TYPE = 2, IS_MANAGED = 8, TYPE_DEVICE = 2 }; /* cuda.h's numbers */
	int (*attribute)(void *value, int which, uint64_t address) = NULL;
	void *cuda = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	unsigned type = 0, managed = 0;

	if (cuda)
		*(void **)&attribute = dlsym(cuda, "cuPointerGetAttribute");
	if (attribute && attribute(&managed, IS_MANAGED, (uintptr_t)data))
		managed = 0;
	if (attribute && attribute(&type, MEMORY_TYPE, (uintptr_t)data))
		type = 0;
	if (cuda)
		dlclose(cuda);
	if (managed)
		return 1;
	return type == TYPE_DEVICE ? 2 : 0;
}
