/* minter.c: Minter: RDMA tokens for requests of other S3 libraries; Memory: an object's bytes, at a
 * fixed address while a token is valid. Any thread may use the library's minter, so the only lock
 * here is the interpreter's, which is released for each call. */
#include "abi.h"

#include <nebulaio/nebulaio.h>

#include <errno.h>
#include <string.h>

#include "native.h"

#define WHY_BYTES 200

PyTypeObject *minter_type, *memory_type;

struct minter {
	PyObject_HEAD struct neb_minter *neb; /* NULL: not open, or closed */
	bool closed;
	unsigned generation;
	uint32_t users; /* threads inside */
};

/* ---- Entering and leaving. ---- */

static struct neb_minter *minter_enter(struct minter *self)
{
	if (self->generation != fork_generation)
		return client_raise(-EPERM,
			"this minter was opened before a fork and belongs to the parent process: "
			"open a minter in each process");
	if (self->closed || !self->neb) {
		PyErr_SetString(PyExc_ValueError, "the minter is closed");
		return NULL;
	}
	self->users++;
	return self->neb;
}

/* The last thread that leaves a closed minter ends it. */
static void minter_end(struct minter *self)
{
	struct neb_minter *neb = self->neb;

	if (!self->closed || self->users || !neb)
		return;
	self->neb = NULL;
	Py_BEGIN_ALLOW_THREADS neb_minter_close(neb);
	Py_END_ALLOW_THREADS
}

static void minter_leave(struct minter *self)
{
	self->users--;
	minter_end(self);
}

/* The library calls this with the interpreter's lock released. */
static void log_deliver(void *arg, enum neb_log_level level, const char *text)
{
	static const int LEVELS[] = {10, 20, 30, 40};
	PyGILState_STATE state = PyGILState_Ensure();
	PyObject *errors = PyImport_ImportModule("nebulaio.errors");
	PyObject *done = errors ? PyObject_CallMethod(
					  errors, "log", "[(iN)]", LEVELS[level & 3], text_of(text))
				: NULL;

	(void)arg;
	if (!done)
		PyErr_WriteUnraisable(NULL);
	Py_XDECREF(done);
	Py_XDECREF(errors);
	PyGILState_Release(state);
}

/* ---- The minter's life. ---- */

static int minter_init(struct minter *self, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"endpoint", "access_key", "secret_key", "region", "device_name",
		"connect_timeout", "session_token", "bucket", NULL};
	struct neb_options options = {.log = log_deliver};
	double connect_timeout = 0;
	int ret;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "sss|$zzdzz", names, &options.endpoints,
		    &options.access_key, &options.secret_key, &options.region, &options.device_name,
		    &connect_timeout, &options.session_token, &options.token_bucket))
		return -1;
	if (!client_seconds(connect_timeout, &options.connect_timeout_ns))
		return -1;
	if (self->neb) {
		PyErr_SetString(PyExc_ValueError, "the minter is open");
		return -1;
	}
	self->generation = fork_generation;
	Py_BEGIN_ALLOW_THREADS ret = neb_minter_open(&options, &self->neb);
	Py_END_ALLOW_THREADS if (ret) client_raise(ret, "no minter: the log has the reason");
	return ret ? -1 : 0;
}

static PyObject *minter_close(struct minter *self, PyObject *unused)
{
	(void)unused;
	if (self->generation == fork_generation) {
		self->closed = true;
		minter_end(self);
	}
	Py_RETURN_NONE;
}

static void minter_dealloc(struct minter *self)
{
	Py_XDECREF(minter_close(self, NULL));
	object_free((PyObject *)self);
}

/* ---- Its methods. ---- */

static PyObject *minter_why_not(struct minter *self, PyObject *unused)
{
	struct neb_minter *neb = minter_enter(self);
	char why[WHY_BYTES];
	int ret;

	(void)unused;
	if (!neb)
		return NULL;
	Py_BEGIN_ALLOW_THREADS ret = neb_minter_available(neb, why, sizeof(why));
	Py_END_ALLOW_THREADS minter_leave(self);
	if (ret == 0)
		Py_RETURN_NONE;
	return PyUnicode_DecodeUTF8(why, (Py_ssize_t)strlen(why), "replace");
}

static PyObject *minter_register(struct minter *self, PyObject *args)
{
	unsigned long long address;
	struct neb_minter *neb;
	Py_ssize_t bytes;
	int ret;

	if (!PyArg_ParseTuple(args, "Kn", &address, &bytes) || !(neb = minter_enter(self)))
		return NULL;
	Py_BEGIN_ALLOW_THREADS ret =
		neb_minter_register(neb, (void *)(uintptr_t)address, (size_t)bytes);
	Py_END_ALLOW_THREADS minter_leave(self);
	if (ret)
		return client_raise(ret, ret == -EEXIST
						 ? "the memory is registered with another length"
						 : "the memory cannot be registered");
	Py_RETURN_NONE;
}

static PyObject *minter_unregister(struct minter *self, PyObject *args)
{
	unsigned long long address;
	struct neb_minter *neb;
	int ret;

	if (!PyArg_ParseTuple(args, "K", &address) || !(neb = minter_enter(self)))
		return NULL;
	Py_BEGIN_ALLOW_THREADS ret = neb_minter_unregister(neb, (void *)(uintptr_t)address);
	Py_END_ALLOW_THREADS minter_leave(self);
	if (ret)
		return client_raise(ret, "the memory is not registered");
	Py_RETURN_NONE;
}

static PyObject *minter_mint(struct minter *self, PyObject *args)
{
	char token[NEB_TOKEN_BYTES], why[WHY_BYTES + 32];
	unsigned long long address;
	struct neb_minter *neb;
	Py_ssize_t bytes;
	int op, ret;

	if (!PyArg_ParseTuple(args, "iKn", &op, &address, &bytes) || !(neb = minter_enter(self)))
		return NULL;
	Py_BEGIN_ALLOW_THREADS ret = neb_token_mint(
		neb, (enum neb_op)op, (void *)(uintptr_t)address, (size_t)bytes, token);
	Py_END_ALLOW_THREADS minter_leave(self);
	if (ret == 0)
		return PyUnicode_FromString(token);
	PyOS_snprintf(why, sizeof(why), "no RDMA token of %zd bytes: %s", bytes, strerror(-ret));
	return client_raise(ret, why);
}

/* Calls pass with a token of this minter. */
static PyObject *token_pass(
	struct minter *self, PyObject *args, int (*pass)(struct neb_minter *, const char *))
{
	struct neb_minter *neb;
	const char *token;
	int ret;

	if (!PyArg_ParseTuple(args, "s", &token) || !(neb = minter_enter(self)))
		return NULL;
	Py_BEGIN_ALLOW_THREADS ret = pass(neb, token);
	Py_END_ALLOW_THREADS minter_leave(self);
	if (ret)
		return client_raise(ret, "no such RDMA token is out");
	Py_RETURN_NONE;
}

static PyObject *minter_release(struct minter *self, PyObject *args)
{
	return token_pass(self, args, neb_token_release);
}

static PyObject *minter_failed(struct minter *self, PyObject *args)
{
	return token_pass(self, args, neb_token_failed);
}

static PyMethodDef minter_methods[] = {
	{"why_not", (PyCFunction)minter_why_not, METH_NOARGS,
		"None when tokens can be minted now, else the reason."},
	{"register", (PyCFunction)minter_register, METH_VARARGS, "Registers (address, size)."},
	{"unregister", (PyCFunction)minter_unregister, METH_VARARGS,
		"Ends the registration of the address."},
	{"mint", (PyCFunction)minter_mint, METH_VARARGS,
		"A token of (op, address, size) for one request."},
	{"release", (PyCFunction)minter_release, METH_VARARGS,
		"Releases a token whose request was answered."},
	{"failed", (PyCFunction)minter_failed, METH_VARARGS,
		"Reports a token whose request was not answered."},
	{"close", (PyCFunction)minter_close, METH_NOARGS,
		"Ends the minter with its tokens and registrations."},
	{NULL, NULL, 0, NULL},
};

static PyType_Slot minter_slots[] = {
	{Py_tp_doc, "RDMA tokens of memory by its address; use nebulaio.TokenMinter."},
	{Py_tp_init, minter_init},
	{Py_tp_dealloc, minter_dealloc},
	{Py_tp_methods, minter_methods},
	{0, NULL},
};

/* ---- Memory. ---- */

struct held {
	PyObject_HEAD struct memory *memory; /* NULL: released */
};

static int held_init(struct held *self, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"", "", NULL};
	struct memory *memory;
	PyObject *object;
	int writable = 1;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|p", names, &object, &writable))
		return -1;
	memory = memory_take(object, writable);
	if (!memory)
		return -1;
	memory_give(self->memory);
	self->memory = memory;
	return 0;
}

static PyObject *held_release(struct held *self, PyObject *unused)
{
	struct memory *memory = self->memory;

	(void)unused;
	self->memory = NULL;
	memory_give(memory);
	Py_RETURN_NONE;
}

static void held_dealloc(struct held *self)
{
	memory_give(self->memory);
	object_free((PyObject *)self);
}

static PyObject *held_address(struct held *self, void *closure)
{
	(void)closure;
	return PyLong_FromVoidPtr(self->memory ? self->memory->data : NULL);
}

static PyObject *held_size(struct held *self, void *closure)
{
	(void)closure;
	return PyLong_FromSize_t(self->memory ? self->memory->bytes : 0);
}

static PyMethodDef held_methods[] = {
	{"release", (PyCFunction)held_release, METH_NOARGS, "Lets the object go."},
	{NULL, NULL, 0, NULL},
};

static PyGetSetDef held_getset[] = {
	{"address", (getter)held_address, NULL, "where the bytes are; 0 once released", NULL},
	{"size", (getter)held_size, NULL, "how many there are; 0 once released", NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot held_slots[] = {
	{Py_tp_doc, "The bytes of an object with the buffer protocol or DLPack, held in place."},
	{Py_tp_init, held_init},
	{Py_tp_dealloc, held_dealloc},
	{Py_tp_methods, held_methods},
	{Py_tp_getset, held_getset},
	{0, NULL},
};

int minter_types_make(void)
{
	static PyType_Spec minter_spec = {"nebulaio._native.Minter", sizeof(struct minter), 0,
		Py_TPFLAGS_DEFAULT, minter_slots};
	static PyType_Spec held_spec = {
		"nebulaio._native.Memory", sizeof(struct held), 0, Py_TPFLAGS_DEFAULT, held_slots};

	minter_type = (PyTypeObject *)PyType_FromSpec(&minter_spec);
	memory_type = (PyTypeObject *)PyType_FromSpec(&held_spec);
	return minter_type && memory_type ? 0 : -1;
}
