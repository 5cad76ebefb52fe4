/* Fuzzes the names of volumes nvmeof://…: what is taken fits the kernel's option string. */
#include <string.h>

#include "nvmeof/nvmeof.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct nvmeof_name name;
	char path[2048], why[64];

	if (slice_copy_str(slice_of(data, size), path, sizeof(path)))
		return 0;
	if (nvmeof_name_parse(path, &name, why, sizeof(why))) {
		CHECK(strlen(why) < sizeof(why));
		return 0;
	}
	CHECK(name.address_count >= 1 && name.address_count <= NVMEOF_PATHS_MAX);
	CHECK(nvmeof_nqn_valid(slice_str(name.nqn)) && !strchr(name.nqn, ','));
	CHECK(!strpbrk(name.host_nqn, ", ") && !strpbrk(name.host_id, ", "));
	return 0;
}
