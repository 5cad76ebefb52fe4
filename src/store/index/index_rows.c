/* store/index/index_rows.c: reads of the index that are built from its other calls, and so are
 * independent of the database behind it. */
#include "store/index/index.h"
#include "store/log/key.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int index_state_read(struct index *index, struct state_record *ret_state)
{
	struct key key;
	char *value;
	size_t len;
	int ret;

	key_state(&key);
	ret = index_get(index, &key, true, &value, &len);
	if (ret < 0)
		return ret;
	if (ret == 0)
		return -ENOENT;
	ret = len == sizeof(*ret_state) ? 0 : -EUCLEAN;
	if (!ret)
		memcpy(ret_state, value, len);
	free(value);
	return ret;
}

int index_visit(struct index *index, struct slice prefix, index_visit_fn *visit, void *arg)
{
	struct index_walk *walk;
	struct slice key, value;
	int ret = index_walk_open(index, prefix, SLICE_NONE, &walk);

	if (ret)
		return ret;
	while (index_walk_get(walk, &key, &value) && slice_starts(key, prefix) &&
		visit(key, value, arg))
		index_walk_next(walk);
	ret = index_walk_error(walk);
	index_walk_close(walk);
	return ret;
}
