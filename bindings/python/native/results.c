/* results.c: Result: the outcome of a request, as Python sees it. */
#include "abi.h"

#include <nebulaio/nebulaio.h>

#include "native.h"

PyTypeObject *result_type;

static PyStructSequence_Field RESULT_FIELDS[] = {
	{"bytes", "of the answer's body, in your memory"},
	{"object_bytes", "length that the answer announced: HEAD's object"},
	{"status", "S3's HTTP status"},
	{"transport", "'rdma' or 'http'"},
	{"fallback", "why it went by HTTP though RDMA was wanted, or None"},
	{"etag", "without quotes; may be empty"},
	{"request_id", "the server's"},
	{"headers", "dict of the answer's headers by lower-case name, where they were wanted"},
	{"multicast", "of get_fan_out: bytes that came by multicast and over the session, and why "
		      "it was not used or ended early; else None"},
	{NULL, NULL},
};

PyObject *text_make(const char *text, size_t len)
{
	return PyUnicode_DecodeUTF8(text, (Py_ssize_t)len, "replace");
}

PyObject *text_of(const char *text)
{
	return text_make(text, strlen(text));
}

static PyObject *headers_make(const char *text)
{
	PyObject *headers = PyDict_New();

	while (headers && *text) {
		const char *end = strchr(text, '\n');
		const char *colon = strchr(text, ':');

		if (!end || !colon || colon > end)
			break;
		PyObject *name = text_make(text, (size_t)(colon - text));
		PyObject *lower = name ? PyObject_CallMethod(name, "lower", NULL) : NULL;
		const char *begin = colon + 1 + (colon[1] == ' ');
		PyObject *value = text_make(begin, (size_t)(end - begin));

		if (!lower || !value || PyDict_SetItem(headers, lower, value))
			Py_CLEAR(headers);
		Py_XDECREF(name);
		Py_XDECREF(lower);
		Py_XDECREF(value);
		text = end + 1;
	}
	return headers;
}

static PyObject *none(void)
{
	Py_INCREF(Py_None);
	return Py_None;
}

PyObject *result_make(const struct neb_result *from, bool want_headers)
{
	PyObject *result = PyStructSequence_New(result_type);

	if (!result)
		return NULL;
	PyStructSequence_SetItem(result, 0, PyLong_FromUnsignedLongLong(from->bytes));
	PyStructSequence_SetItem(result, 1, PyLong_FromUnsignedLongLong(from->object_bytes));
	PyStructSequence_SetItem(result, 2, PyLong_FromUnsignedLong(from->status));
	PyStructSequence_SetItem(
		result, 3, PyUnicode_FromString(neb_transport_name(from->transport)));
	PyStructSequence_SetItem(result, 4, from->fallback[0] ? text_of(from->fallback) : none());
	PyStructSequence_SetItem(result, 5, text_of(from->etag));
	PyStructSequence_SetItem(result, 6, text_of(from->request_id));
	PyStructSequence_SetItem(result, 7, want_headers ? headers_make(from->headers) : none());
	PyStructSequence_SetItem(result, RESULT_MULTICAST, none());
	if (PyErr_Occurred())
		Py_CLEAR(result);
	return result;
}

int result_type_make(void)
{
	static PyStructSequence_Desc desc = {
		"nebulaio.Result", "What came of a request.", RESULT_FIELDS, 8};

	result_type = PyStructSequence_NewType(&desc);
	return result_type ? 0 : -1;
}
