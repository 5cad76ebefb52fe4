/* abi.h: Python's stable ABI of 3.9, so that one build of the extension is for every later version.
 *
 * Declared here: functions that 3.9 and 3.10 have, but whose names entered the stable ABI later
 * (the buffer protocol in 3.11, PyUnicode_AsUTF8AndSize in 3.10). They are the same in all of these
 * versions. */
#ifndef NEBULAIO_ABI_H
#define NEBULAIO_ABI_H

#define PY_SSIZE_T_CLEAN
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x03090000
#endif
#include <Python.h>
#include <stdbool.h>

#if Py_LIMITED_API < 0x030a0000
PyAPI_FUNC(const char *) PyUnicode_AsUTF8AndSize(PyObject *string, Py_ssize_t *bytes);
#endif

#if Py_LIMITED_API < 0x030b0000
typedef struct {
	void *buf;
	PyObject *obj;
	Py_ssize_t len;
	Py_ssize_t itemsize;
	int readonly;
	int ndim;
	char *format;
	Py_ssize_t *shape;
	Py_ssize_t *strides;
	Py_ssize_t *suboffsets;
	void *internal;
} Py_buffer;

PyAPI_FUNC(int) PyObject_CheckBuffer(PyObject *object);
PyAPI_FUNC(int) PyObject_GetBuffer(PyObject *object, Py_buffer *view, int flags);
PyAPI_FUNC(int) PyBuffer_FillInfo(
	Py_buffer *view, PyObject *object, void *data, Py_ssize_t bytes, int readonly, int flags);
PyAPI_FUNC(void) PyBuffer_Release(Py_buffer *view);

#define PyBUF_SIMPLE	     0
#define PyBUF_WRITABLE	     0x1
#define PyBUF_ND	     0x8
#define PyBUF_STRIDES	     (0x10 | PyBUF_ND)
#define PyBUF_ANY_CONTIGUOUS (0x80 | PyBUF_STRIDES)

#ifndef Py_bf_getbuffer
#define Py_bf_getbuffer	    1
#define Py_bf_releasebuffer 2
#endif
#endif

/* Whether the block that __exit__(args) ends has raised an exception. */
static inline bool exit_raises(PyObject *args)
{
	return PyTuple_Size(args) > 0 && PyTuple_GetItem(args, 0) != Py_None;
}

/* Frees an object of one of our types, or of a subclass, after its contents. */
static inline void object_free(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);
	freefunc free_slot = (freefunc)PyType_GetSlot(type, Py_tp_free);

	free_slot(self);
	Py_DECREF(type);
}

#endif
