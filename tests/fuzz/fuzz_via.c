/* Fuzzes the reader of the gateways' header: without the secret nothing is taken. */
#include "base/base.h"
#include "codec/via.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint8_t secret[VIA_SECRET_BYTES] = "the fuzzer's";
	struct via via;

	CHECK(via_read(secret, slice_of(data, size), SLICE("GET"), SLICE("/"), 0, &via) < 0);
	return 0;
}
