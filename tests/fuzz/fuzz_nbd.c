/* tests/fuzz/fuzz_nbd.c: the bytes of a client of network block devices, from its flags to its last
 * request. The first byte is the size of the pieces in which they arrive. Every frame must be given
 * back. */
#include "../unit/nbd/rig.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct rig rig;
	uint8_t none;

	if (!size)
		return 0;
	if (!rig.reactor) {
		log_set_level(LOG_ERROR);
		rig_open(&rig, NULL);
	}
	rig_talk(&rig, slice_of(data + 1, size - 1), 1 + data[0], &none, 0);
	return 0;
}
