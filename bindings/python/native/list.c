/* list.c: listings. Collects the entries with the interpreter's lock released, and makes Python
 * objects of them when the listing is complete. */
#include "abi.h"

#include <nebulaio/nebulaio.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "native.h"

struct entry {
	size_t key, etag, modified; /* offsets in text */
	uint64_t bytes;
	bool is_prefix;
};

struct entries {
	struct entry *entries;
	size_t count, room, count_max;
	char *text;
	size_t text_bytes, text_room;
	bool failed; /* no memory */
};

/* Makes room for more elements, by malloc, because the interpreter's lock is not held. */
static void *grow(void *data, size_t wanted, size_t *room, size_t element_bytes)
{
	size_t more = *room ? *room : 64;
	void *grown;

	while (more < wanted)
		more *= 2;
	if (more == *room)
		return data;
	grown = realloc(data, more * element_bytes);
	if (grown)
		*room = more;
	return grown;
}

static size_t text_keep(struct entries *all, const char *text)
{
	size_t bytes = strlen(text) + 1, at = all->text_bytes;
	char *grown = grow(all->text, at + bytes, &all->text_room, 1);

	if (!grown) {
		all->failed = true;
		return 0;
	}
	all->text = grown;
	memcpy(grown + at, text, bytes);
	all->text_bytes += bytes;
	return at;
}

static bool keep(void *arg, const struct neb_entry *from)
{
	struct entries *all = arg;
	struct entry *grown = grow(all->entries, all->count + 1, &all->room, sizeof(*grown));

	if (!grown) {
		all->failed = true;
		return false;
	}
	all->entries = grown;
	grown[all->count++] = (struct entry){
		.key = text_keep(all, from->key),
		.etag = text_keep(all, from->etag),
		.modified = text_keep(all, from->last_modified),
		.bytes = from->bytes,
		.is_prefix = from->is_prefix,
	};
	return !all->failed && all->count < all->count_max;
}

static void entries_free(struct entries *all)
{
	free(all->entries);
	free(all->text);
}

static PyObject *entry_make(const struct entries *all, const struct entry *entry, bool bucket)
{
	const char *text = all->text;

	if (bucket)
		return Py_BuildValue("ss", text + entry->key, text + entry->modified);
	return Py_BuildValue("sNKss", text + entry->key, PyBool_FromLong(entry->is_prefix),
		(unsigned long long)entry->bytes, text + entry->etag, text + entry->modified);
}

/* Takes the collected entries. */
static PyObject *entries_make(struct entries *all, bool buckets)
{
	PyObject *list = all->failed ? PyErr_NoMemory() : PyList_New((Py_ssize_t)all->count);

	for (size_t i = 0; list && i < all->count; i++) {
		PyObject *entry = entry_make(all, &all->entries[i], buckets);

		if (entry)
			PyList_SetItem(list, (Py_ssize_t)i, entry);
		else
			Py_CLEAR(list);
	}
	entries_free(all);
	return list;
}

PyObject *list_objects(PyObject *client, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"bucket", "prefix", "delimiter", "after", "limit", NULL};
	struct entries all = {.count_max = SIZE_MAX};
	struct neb_list list = {.visit = keep, .arg = &all};
	struct neb_result result = {.transport = NEB_NONE};
	PyObject *bucket;
	struct neb_client *neb;
	Py_ssize_t limit = PY_SSIZE_T_MAX;
	int ret;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "U|zzzn", names, &bucket, &list.prefix,
		    &list.delimiter, &list.after, &limit))
		return NULL;
	if (limit <= 0)
		return PyList_New(0);
	all.count_max = (size_t)limit;
	list.bucket = client_text(bucket);
	neb = list.bucket ? client_enter(client) : NULL;
	if (!neb)
		return NULL;
	Py_BEGIN_ALLOW_THREADS ret = neb_list(neb, &list, &result);
	Py_END_ALLOW_THREADS client_leave(client);
	if (ret == 0)
		return entries_make(&all, false);
	entries_free(&all);
	result.error = ret;
	return client_raise_from(&result, NEB_LIST_OBJECTS, bucket, NULL);
}

PyObject *list_buckets(PyObject *client, PyObject *unused)
{
	struct entries all = {.count_max = SIZE_MAX};
	struct neb_result result = {.transport = NEB_NONE};
	struct neb_client *neb = client_enter(client);
	int ret;

	(void)unused;
	if (!neb)
		return NULL;
	Py_BEGIN_ALLOW_THREADS ret = neb_list_buckets(neb, keep, &all, &result);
	Py_END_ALLOW_THREADS client_leave(client);
	if (ret == 0)
		return entries_make(&all, true);
	entries_free(&all);
	result.error = ret;
	return client_raise_from(&result, NEB_LIST_BUCKETS, NULL, NULL);
}
