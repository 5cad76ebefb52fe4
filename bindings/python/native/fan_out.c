/* fan_out.c: Client.get_fan_out: one object, read together with other clients, with the
 * interpreter's lock released meanwhile. */
#include "abi.h"

#include <nebulaio/nebulaio.h>

#include "native.h"

static PyObject *told_add(PyObject *result, const struct neb_multicast *told)
{
	PyObject *value = Py_BuildValue("(KKN)", (unsigned long long)told->bytes,
		(unsigned long long)told->bytes_read, text_of(told->why));

	if (value) {
		Py_DECREF(PyStructSequence_GetItem(result, RESULT_MULTICAST));
		PyStructSequence_SetItem(result, RESULT_MULTICAST, value);
	} else {
		Py_CLEAR(result);
	}
	return result;
}

static PyObject *read_together(PyObject *client, struct neb_fan_out *asked, bool multicast,
	PyObject *bucket, PyObject *key)
{
	struct neb_client *neb = client_enter(client);
	struct neb_multicast told = {0};
	struct neb_result result;
	PyThreadState *thread;
	PyObject *made;

	if (!neb)
		return NULL;
	asked->multicast = multicast ? &told : NULL;
	asked->keep_on = batch_keep_on;
	asked->arg = &thread;
	thread = PyEval_SaveThread();
	neb_get_fan_out(neb, asked, &result);
	PyEval_RestoreThread(thread);
	client_leave(client);
	if (PyErr_Occurred())
		return NULL;
	if (result.error)
		return client_raise_from(&result, NEB_GET_OBJECT, bucket, key);
	made = result_make(&result, true);
	return made && multicast ? told_add(made, &told) : made;
}

PyObject *client_get_fan_out(PyObject *client, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {
		"bucket", "key", "into", "name", "members", "wait", "member", "multicast", NULL};
	PyObject *bucket, *key, *into, *result;
	struct neb_fan_out asked = {0};
	struct memory *memory;
	unsigned long long member = 0;
	double wait = 0;
	int multicast = 0;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "UUOsI|dKp", names, &bucket, &key, &into,
		    &asked.name, &asked.members, &wait, &member, &multicast) ||
		!client_seconds(wait, &asked.wait_ns))
		return NULL;
	asked.member = member;
	asked.bucket = client_text(bucket);
	asked.key = asked.bucket ? client_text(key) : NULL;
	memory = asked.key ? memory_take(into, true) : NULL;
	if (!memory)
		return NULL;
	asked.data = memory->data;
	asked.data_bytes = memory->bytes;
	result = read_together(client, &asked, multicast != 0, bucket, key);
	memory_give(memory);
	return result;
}
