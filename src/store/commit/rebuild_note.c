/* store/commit/rebuild_note.c: while a volume is rebuilt, the index thread notes the rows of older
 * bodies that it writes, and check/rebuild.c looks at them again. */
#include "store/commit/index_apply.h"
#include "store/log/journal.h"
#include "store/object/record.h"
#include "store/state/state.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* The index thread waits while more than this is noted: otherwise rows could move faster than the
 * rebuild can look at them, and it would never end. */
#define NOTED_BYTES_GOAL  (1 * MIB)
#define NOTED_BYTES_FIRST 4096u

DEFINE_COUNTER(rows_noted, "nebulaio_store_rebuild_rows_noted_total", NULL,
	"Rows of older bodies that were written during a rebuild, and checked again.");

bool rebuild_row_counts(uint64_t data_id_first, struct slice key, struct slice value)
{
	return record_body(key, value) < data_id_first;
}

static int keys_add(struct rebuild_keys *keys, struct slice key)
{
	uint16_t len = (uint16_t)key.len;

	if (keys->cap - keys->len < sizeof(len) + len) {
		size_t cap = MAX(keys->cap * 2, (size_t)NOTED_BYTES_FIRST);
		void *grown = realloc(keys->bytes, cap);

		if (!grown)
			return -ENOMEM;
		keys->bytes = (uint8_t *)grown;
		keys->cap = cap;
	}
	memcpy(keys->bytes + keys->len, &len, sizeof(len));
	memcpy(keys->bytes + keys->len + sizeof(len), key.data, len);
	keys->len += sizeof(len) + len;
	return 0;
}

static void group_note(struct rebuild_noted *noted, const struct group *group)
{
	struct slice bytes = slice_of(group->bytes, group_head(group)->bytes);
	struct mutation mutation;
	size_t at = 0;

	while (group_next(bytes, &at, &mutation) == 1) {
		if (mutation.op != MUTATION_PUT ||
			!rebuild_row_counts(noted->data_id_first, mutation.key, mutation.value))
			continue;
		counter_add(&rows_noted, 1);
		if (keys_add(&noted->keys, mutation.key))
			noted->lost = true;
	}
}

void rebuild_note_begin(struct store *store, const struct group *first)
{
	struct rebuild_noted *noted = store->noted;

	pthread_mutex_lock(&noted->lock);
	while (noted->on && noted->keys.len > NOTED_BYTES_GOAL)
		pthread_cond_wait(&noted->room, &noted->lock);
	for (; noted->on && first; first = first->next)
		group_note(noted, first);
}

void rebuild_note_end(struct store *store)
{
	pthread_mutex_unlock(&store->noted->lock);
}

void rebuild_noted_init(struct rebuild_noted *noted)
{
	pthread_mutex_init(&noted->lock, NULL);
	pthread_cond_init(&noted->room, NULL);
}

void rebuild_noted_fini(struct rebuild_noted *noted)
{
	free(noted->keys.bytes);
	pthread_cond_destroy(&noted->room);
	pthread_mutex_destroy(&noted->lock);
}
