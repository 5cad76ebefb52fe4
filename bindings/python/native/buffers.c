/* buffers.c: memory that is registered with the device. A Buffer is leased from its client's pool;
 * a Registration registers another object's memory. Both keep their client's session open. */
#include "abi.h"

#include <nebulaio/nebulaio.h>

#include <errno.h>

#include "native.h"

PyTypeObject *buffer_type, *registration_type;

/* ---- Buffer. ---- */

struct buffer {
	PyObject_HEAD PyObject *client;
	struct leftover *leftover; /* NULL: released */
	Py_ssize_t bytes;
	Py_ssize_t exports; /* number of views of it */
};

PyObject *buffer_make(PyObject *client, size_t bytes)
{
	struct leftover *leftover = PyMem_Calloc(1, sizeof(*leftover));
	struct buffer *self;
	struct neb_client *neb;
	int ret;

	if (!leftover)
		return PyErr_NoMemory();
	neb = client_enter(client);
	if (!neb) {
		PyMem_Free(leftover);
		return NULL;
	}
	ret = neb_buffer_alloc(neb, bytes, &leftover->pooled);
	if (ret == 0)
		client_adopt(client);
	client_leave(client);
	if (ret) {
		PyMem_Free(leftover);
		return client_raise(ret, "the pool (pool_bytes) has no room for the buffer");
	}
	self = (struct buffer *)PyType_GenericAlloc(buffer_type, 0);
	if (!self) {
		client_discard(client, leftover);
		return NULL;
	}
	Py_INCREF(client);
	self->client = client;
	self->leftover = leftover;
	self->bytes = (Py_ssize_t)bytes;
	return (PyObject *)self;
}

static void buffer_end(struct buffer *self)
{
	struct leftover *leftover = self->leftover;

	self->leftover = NULL;
	if (leftover)
		client_discard(self->client, leftover);
}

static void buffer_dealloc(struct buffer *self)
{
	buffer_end(self);
	Py_XDECREF(self->client);
	object_free((PyObject *)self);
}

static PyObject *buffer_release(struct buffer *self, PyObject *unused)
{
	(void)unused;
	if (self->exports) {
		PyErr_SetString(PyExc_BufferError, "there are views of this buffer");
		return NULL;
	}
	buffer_end(self);
	Py_RETURN_NONE;
}

static PyObject *buffer_enter(PyObject *self, PyObject *unused)
{
	(void)unused;
	Py_INCREF(self);
	return self;
}

/* An exception is not hidden by views, such as that of a request that it interrupted: the last one
 * gives the memory back. */
static PyObject *buffer_exit(struct buffer *self, PyObject *args)
{
	if (self->exports && exit_raises(args))
		Py_RETURN_NONE;
	return buffer_release(self, NULL);
}

static int buffer_get(struct buffer *self, Py_buffer *view, int flags)
{
	if (!self->leftover) {
		view->obj = NULL;
		PyErr_SetString(PyExc_ValueError, "the buffer was released");
		return -1;
	}
	if (PyBuffer_FillInfo(
		    view, (PyObject *)self, self->leftover->pooled, self->bytes, 0, flags))
		return -1;
	self->exports++;
	return 0;
}

static void buffer_put(struct buffer *self, Py_buffer *view)
{
	(void)view;
	self->exports--;
}

static Py_ssize_t buffer_length(struct buffer *self)
{
	return self->leftover ? self->bytes : 0;
}

static PyObject *buffer_address(struct buffer *self, void *closure)
{
	(void)closure;
	return PyLong_FromVoidPtr(self->leftover ? self->leftover->pooled : NULL);
}

static PyMethodDef buffer_methods[] = {
	{"release", (PyCFunction)buffer_release, METH_NOARGS,
		"Gives the memory back to the pool. BufferError while there are views of it."},
	{"__enter__", buffer_enter, METH_NOARGS, NULL},
	{"__exit__", (PyCFunction)buffer_exit, METH_VARARGS, NULL},
	{NULL, NULL, 0, NULL},
};

static PyGetSetDef buffer_getset[] = {
	{"address", (getter)buffer_address, NULL, "where the memory is; 0 once released", NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

/* Only a client makes objects of these types. */
static PyObject *no_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	(void)args;
	(void)kwargs;
	PyErr_Format(PyExc_TypeError, "cannot create %R: a client makes it", type);
	return NULL;
}

static PyType_Slot buffer_slots[] = {
	{Py_tp_doc, "Registered memory of a client's pool, page-aligned: memoryview(buffer), "
		    "numpy.frombuffer(buffer). Made by Client.alloc()."},
	{Py_tp_new, no_new},
	{Py_tp_dealloc, buffer_dealloc},
	{Py_tp_methods, buffer_methods},
	{Py_tp_getset, buffer_getset},
	{Py_sq_length, buffer_length},
	{Py_bf_getbuffer, buffer_get},
	{Py_bf_releasebuffer, buffer_put},
	{0, NULL},
};

/* ---- Registration. ---- */

struct registration {
	PyObject_HEAD PyObject *client;
	struct leftover *leftover; /* NULL: released */
};

PyObject *registration_make(PyObject *client, PyObject *object)
{
	struct leftover *leftover = PyMem_Calloc(1, sizeof(*leftover));
	struct registration *self = NULL;
	struct neb_client *neb = NULL;
	int ret = -ENOMEM;

	if (!leftover)
		return PyErr_NoMemory();
	leftover->registered = memory_take(object, true);
	if (leftover->registered)
		neb = client_enter(client);
	if (neb) {
		ret = neb_register(neb, leftover->registered->data, leftover->registered->bytes);
		if (ret == 0)
			client_adopt(client);
		client_leave(client);
		if (ret)
			client_raise(ret, ret == -EEXIST ? "the memory overlaps what is registered"
							 : "the memory cannot be registered");
	}
	if (ret) {
		memory_give(leftover->registered);
		PyMem_Free(leftover);
		return NULL;
	}
	self = (struct registration *)PyType_GenericAlloc(registration_type, 0);
	if (!self) {
		client_discard(client, leftover);
		return NULL;
	}
	Py_INCREF(client);
	self->client = client;
	self->leftover = leftover;
	return (PyObject *)self;
}

static void registration_end(struct registration *self)
{
	struct leftover *leftover = self->leftover;

	self->leftover = NULL;
	if (leftover)
		client_discard(self->client, leftover);
}

static void registration_dealloc(struct registration *self)
{
	registration_end(self);
	Py_XDECREF(self->client);
	object_free((PyObject *)self);
}

static PyObject *registration_release(struct registration *self, PyObject *unused)
{
	(void)unused;
	registration_end(self);
	Py_RETURN_NONE;
}

static PyObject *registration_exit(struct registration *self, PyObject *args)
{
	(void)args;
	return registration_release(self, NULL);
}

static PyMethodDef registration_methods[] = {
	{"release", (PyCFunction)registration_release, METH_NOARGS,
		"Ends the registration, once no request is in flight."},
	{"__enter__", buffer_enter, METH_NOARGS, NULL},
	{"__exit__", (PyCFunction)registration_exit, METH_VARARGS, NULL},
	{NULL, NULL, 0, NULL},
};

static PyType_Slot registration_slots[] = {
	{Py_tp_doc, "Memory of an object that the device knows. Made by Client.register()."},
	{Py_tp_new, no_new},
	{Py_tp_dealloc, registration_dealloc},
	{Py_tp_methods, registration_methods},
	{0, NULL},
};

int buffer_types_make(void)
{
	static PyType_Spec buffer_spec = {"nebulaio._native.Buffer", sizeof(struct buffer), 0,
		Py_TPFLAGS_DEFAULT, buffer_slots};
	static PyType_Spec registration_spec = {"nebulaio._native.Registration",
		sizeof(struct registration), 0, Py_TPFLAGS_DEFAULT, registration_slots};

	buffer_type = (PyTypeObject *)PyType_FromSpec(&buffer_spec);
	registration_type = (PyTypeObject *)PyType_FromSpec(&registration_spec);
	return buffer_type && registration_type ? 0 : -1;
}
