/* Fuzzes the entries of a cluster's map, and the messages about them: an entry that is taken is
 * written as it was read. */
#include "cluster/cluster.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char text[RV_TABLE_VALUE_BYTES];
	struct cluster_store store, again;
	struct slice bucket;

	(void)cluster_told(slice_of(data, size), &store, &bucket);
	if (cluster_store_parse(slice_of(data, size), &store) == 0) {
		cluster_store_text(&store, text);
		CHECK(cluster_store_parse(slice_str(text), &again) == 0);
		CHECK(again.state == store.state && again.generation == store.generation);
	}
	return 0;
}
