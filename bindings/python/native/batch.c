/* batch.c: Client.get_batch: many reads by one call of the library, with the interpreter's lock
 * released from the first request to the last answer. */
#include "abi.h"

#include <nebulaio/nebulaio.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "native.h"

/* An item's request as Python gave it, and the parts of its result that the library's item lacks.
 */
struct asked {
	PyObject *bucket, *key; /* borrowed from the sequence */
	struct memory *memory;
	char request_id[sizeof(((struct neb_result *)0)->request_id)];
	struct neb_result *more; /* of an item that failed or used HTTP instead; or NULL */
};

struct batch {
	PyObject *sequence; /* of the requests: keeps their strings alive */
	Py_ssize_t count;
	struct neb_batch_item *items;
	struct asked *asked;
	PyThreadState *thread;
};

static void batch_free(struct batch *batch)
{
	for (Py_ssize_t i = 0; batch->asked && i < batch->count; i++) {
		memory_give(batch->asked[i].memory);
		free(batch->asked[i].more);
	}
	PyMem_Free(batch->asked);
	PyMem_Free(batch->items);
	Py_XDECREF(batch->sequence);
}

static int request_take(struct asked *asked, struct neb_batch_item *item, PyObject *request)
{
	PyObject *memory, *offset = NULL, *length = NULL;

	if (!PyTuple_Check(request)) {
		PyErr_SetString(PyExc_TypeError, "a request is no tuple");
		return -1;
	}
	if (!PyArg_ParseTuple(
		    request, "UUO|OO", &asked->bucket, &asked->key, &memory, &offset, &length))
		return -1;
	item->bucket = client_text(asked->bucket);
	item->key = item->bucket ? client_text(asked->key) : NULL;
	asked->memory = item->key ? memory_take(memory, true) : NULL;
	if (!asked->memory)
		return -1;
	item->data = asked->memory->data;
	item->data_bytes = asked->memory->bytes;
	return range_take(offset, length, item->data_bytes, &item->range_offset, &item->range_bytes)
		       ? 0
		       : -1;
}

static int requests_take(struct batch *batch, PyObject *requests)
{
	batch->sequence = PySequence_Tuple(requests);
	if (!batch->sequence)
		return -1;
	batch->count = PyTuple_Size(batch->sequence);
	batch->items = PyMem_Calloc((size_t)batch->count + 1, sizeof(*batch->items));
	batch->asked = PyMem_Calloc((size_t)batch->count + 1, sizeof(*batch->asked));
	if (!batch->items || !batch->asked) {
		PyErr_NoMemory();
		return -1;
	}
	for (Py_ssize_t i = 0; i < batch->count; i++)
		if (request_take(&batch->asked[i], &batch->items[i],
			    PyTuple_GetItem(batch->sequence, i)))
			return -1;
	return 0;
}

/* Without the interpreter's lock. */
static bool on_done(void *arg, struct neb_batch_item *item, const struct neb_result *result)
{
	struct batch *batch = arg;
	struct asked *asked = &batch->asked[item - batch->items];

	memcpy(asked->request_id, result->request_id, sizeof(asked->request_id));
	if (result->error || result->fallback[0])
		asked->more = malloc(sizeof(*asked->more));
	if (asked->more)
		*asked->more = *result;
	return true;
}

bool batch_keep_on(void *arg)
{
	PyThreadState **thread = arg;
	bool keep_on;

	PyEval_RestoreThread(*thread);
	keep_on = !PyErr_Occurred() && PyErr_CheckSignals() == 0;
	*thread = PyEval_SaveThread();
	return keep_on;
}

static bool on_wait(void *arg)
{
	struct batch *batch = arg;

	return batch_keep_on(&batch->thread);
}

static PyObject *outcome_make(const struct batch *batch, Py_ssize_t idx)
{
	const struct neb_batch_item *item = &batch->items[idx];
	const struct asked *asked = &batch->asked[idx];
	struct neb_result result = {.error = item->error,
		.status = item->status,
		.transport = item->transport,
		.bytes = item->bytes_read,
		.object_bytes = item->object_bytes};
	const struct neb_result *from = asked->more ? asked->more : &result;

	memcpy(result.etag, item->etag, sizeof(result.etag));
	memcpy(result.request_id, asked->request_id, sizeof(result.request_id));
	return item->error ? client_error_of(from, NEB_GET_OBJECT, asked->bucket, asked->key)
			   : result_make(from, false);
}

static PyObject *outcomes_make(const struct batch *batch)
{
	PyObject *outcomes = PyList_New(batch->count);

	for (Py_ssize_t i = 0; outcomes && i < batch->count; i++) {
		PyObject *outcome = outcome_make(batch, i);

		if (outcome)
			PyList_SetItem(outcomes, i, outcome);
		else
			Py_CLEAR(outcomes);
	}
	return outcomes;
}

PyObject *client_get_batch(PyObject *client, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"requests", "window", "timeout", NULL};
	struct batch batch = {0};
	struct neb_batch asked = {.done = on_done, .keep_on = on_wait, .arg = &batch};
	struct neb_client *neb = NULL;
	PyObject *requests, *outcomes = NULL;
	double timeout = 0;
	unsigned window = 0;
	int ret;

	if (!PyArg_ParseTupleAndKeywords(
		    args, kwargs, "O|Id", names, &requests, &window, &timeout) ||
		!client_seconds(timeout, &asked.timeout_ns))
		return NULL;
	if (requests_take(&batch, requests) == 0)
		neb = client_enter(client);
	if (!neb) {
		batch_free(&batch);
		return NULL;
	}
	asked.items = batch.items;
	asked.item_count = (uint64_t)batch.count;
	asked.window = window;
	batch.thread = PyEval_SaveThread();
	ret = neb_get_batch(neb, &asked);
	PyEval_RestoreThread(batch.thread);
	client_leave(client);
	if (ret == -EINVAL && batch.count && !batch.items[0].error && !batch.items[0].status)
		client_raise(ret, "the window is out of bounds");
	if (!PyErr_Occurred())
		outcomes = outcomes_make(&batch);
	batch_free(&batch);
	return outcomes;
}
