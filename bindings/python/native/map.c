/* map.c: Mapper and Map: objects as memory. A thread of the library brings the pages that Python
 * code touches, which may hold the interpreter's lock meanwhile: so nothing here takes that lock
 * from the library's thread. */
#include "abi.h"

#include <nebulaio/nebulaio.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "native.h"

PyTypeObject *mapper_type, *map_type, *map_stats_type;

/* ---- Mapper. ---- */

struct mapper {
	PyObject_HEAD struct neb_mapper *neb; /* NULL: not open */
	bool opened;
	unsigned generation;
	char why[200]; /* it could not be opened */
};

static void log_keep(void *arg, enum neb_log_level level, const char *text)
{
	struct mapper *self = arg;

	if (!self->opened)
		PyOS_snprintf(self->why, sizeof(self->why), "%s", text);
	else if (level >= NEB_LOG_WARN)
		fprintf(stderr, "nebulaio: %s\n", text);
}

static int mapper_init(struct mapper *self, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"endpoints", "access_key", "secret_key", "region", "transport",
		"device_name", "pool_bytes", "connect_timeout", "request_timeout",
		"require_encryption", "session_token", "bytes_max", NULL};
	struct neb_options options = {.log = log_keep, .log_arg = self};
	struct neb_mapper_options more = {0};
	const char *transport = "auto";
	unsigned long long pool_bytes = 0, bytes_max = 0;
	double connect_timeout = 0, request_timeout = 0;
	int ret, encrypted = 0;

	if (self->neb) {
		PyErr_SetString(PyExc_RuntimeError, "the mapper is open already");
		return -1;
	}
	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "sss|$zszKddpzK", names, &options.endpoints,
		    &options.access_key, &options.secret_key, &options.region, &transport,
		    &options.device_name, &pool_bytes, &connect_timeout, &request_timeout,
		    &encrypted, &options.session_token, &bytes_max) ||
		!client_seconds(connect_timeout, &options.connect_timeout_ns) ||
		!client_seconds(request_timeout, &options.request_timeout_ns))
		return -1;
	if (neb_transport_parse(transport, &options.transport)) {
		PyErr_Format(PyExc_ValueError, "transport %s is not auto, rdma, http or strict",
			transport);
		return -1;
	}
	options.pool_bytes = pool_bytes;
	options.require_encryption = encrypted != 0;
	more.resident_bytes_max = bytes_max;
	self->generation = fork_generation;
	Py_BEGIN_ALLOW_THREADS ret = neb_mapper_open(&options, &more, &self->neb);
	Py_END_ALLOW_THREADS self->opened = ret == 0;
	/* An EPERM of Python's is a fork's. */
	if (ret)
		client_raise(ret == -EPERM ? -EACCES : ret, self->why);
	return ret ? -1 : 0;
}

/* No map is left: each holds a reference. After a fork the thread is the parent's. */
static void mapper_dealloc(struct mapper *self)
{
	struct neb_mapper *neb = self->generation == fork_generation ? self->neb : NULL;

	Py_BEGIN_ALLOW_THREADS neb_mapper_close(neb);
	Py_END_ALLOW_THREADS object_free((PyObject *)self);
}

/* ---- Map. ---- */

struct map {
	PyObject_HEAD struct mapper *mapper;
	struct neb_map *neb; /* NULL: closed */
	PyObject *bucket, *key;
	Py_ssize_t exports; /* number of views of it */
	uint32_t users;	    /* threads inside a wait */
};

static bool forked(const struct mapper *mapper)
{
	if (mapper->generation == fork_generation)
		return false;
	client_raise(-EPERM, "this map was made before a fork and belongs to the parent process: "
			     "map the object in each process");
	return true;
}

static struct neb_map *map_get(struct map *self)
{
	if (forked(self->mapper))
		return NULL;
	if (!self->neb)
		PyErr_SetString(PyExc_ValueError, "the map is closed");
	return self->neb;
}

static PyObject *mapper_map(struct mapper *mapper, PyObject *args)
{
	PyObject *bucket, *key;
	const char *version_id = NULL, *names[2];
	struct neb_map *neb = NULL;
	struct neb_result result;
	struct map *self;
	int ret;

	if (!PyArg_ParseTuple(args, "UU|z", &bucket, &key, &version_id) || forked(mapper))
		return NULL;
	names[0] = client_text(bucket);
	names[1] = names[0] ? client_text(key) : NULL;
	self = names[1] ? (struct map *)PyType_GenericAlloc(map_type, 0) : NULL;
	if (!self)
		return NULL;
	Py_INCREF(mapper);
	Py_INCREF(bucket);
	Py_INCREF(key);
	self->mapper = mapper;
	self->bucket = bucket;
	self->key = key;
	Py_BEGIN_ALLOW_THREADS ret =
		neb_map(mapper->neb, names[0], names[1], version_id, &neb, &result);
	Py_END_ALLOW_THREADS self->neb = neb;
	if (ret) {
		client_raise_from(&result, NEB_HEAD_OBJECT, bucket, key);
		Py_DECREF(self);
		return NULL;
	}
	return (PyObject *)self;
}

static void map_end(struct map *self)
{
	struct neb_map *neb = self->mapper->generation == fork_generation ? self->neb : NULL;

	self->neb = NULL;
	Py_BEGIN_ALLOW_THREADS neb_unmap(neb);
	Py_END_ALLOW_THREADS
}

static void map_dealloc(struct map *self)
{
	map_end(self);
	Py_XDECREF(self->mapper);
	Py_XDECREF(self->bucket);
	Py_XDECREF(self->key);
	object_free((PyObject *)self);
}

static PyObject *map_close(struct map *self, PyObject *unused)
{
	(void)unused;
	if (self->exports || self->users) {
		PyErr_SetString(PyExc_BufferError, "there are views of this map, or calls of it");
		return NULL;
	}
	map_end(self);
	Py_RETURN_NONE;
}

static PyObject *map_enter(PyObject *self, PyObject *unused)
{
	(void)unused;
	Py_INCREF(self);
	return self;
}

/* An exception is not hidden by views: the map ends with the last one. */
static PyObject *map_exit(struct map *self, PyObject *args)
{
	if ((self->exports || self->users) && exit_raises(args))
		Py_RETURN_NONE;
	return map_close(self, NULL);
}

static int map_view(struct map *self, Py_buffer *view, int flags)
{
	struct neb_map *neb = map_get(self);

	view->obj = NULL;
	if (!neb || PyBuffer_FillInfo(view, (PyObject *)self, (void *)(uintptr_t)neb_map_data(neb),
			    (Py_ssize_t)neb_map_bytes(neb), 1, flags))
		return -1;
	self->exports++;
	return 0;
}

static void map_view_end(struct map *self, Py_buffer *view)
{
	(void)view;
	self->exports--;
}

static Py_ssize_t map_length(struct map *self)
{
	return self->neb ? (Py_ssize_t)neb_map_bytes(self->neb) : 0;
}

static PyObject *map_prefetch(struct map *self, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"offset", "length", "timeout", NULL};
	unsigned long long offset = 0, length = 0;
	uint64_t timeout_ns;
	double timeout = 0;
	struct neb_result result;
	struct neb_map *neb;
	int ret;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|KKd", names, &offset, &length, &timeout) ||
		!client_seconds(timeout, &timeout_ns) || !(neb = map_get(self)))
		return NULL;
	self->users++;
	Py_BEGIN_ALLOW_THREADS ret = neb_map_prefetch(neb, offset, length, timeout_ns);
	Py_END_ALLOW_THREADS self->users--;
	if (!ret)
		Py_RETURN_NONE;
	if (neb_map_error(neb, &result))
		return client_raise_from(&result, NEB_GET_OBJECT, self->bucket, self->key);
	return client_raise(ret, ret == -ERANGE	  ? "the range is beyond the object's end"
				 : ret == -EAGAIN ? "too many ranges wait already"
						  : "the bytes did not come in time");
}

static PyObject *map_stats(struct map *self, PyObject *unused)
{
	struct neb_map *neb = map_get(self);
	struct neb_map_stats stats;
	PyObject *made;

	(void)unused;
	if (!neb)
		return NULL;
	neb_map_stats(neb, &stats);
	made = PyStructSequence_New(map_stats_type);
	if (!made)
		return NULL;
	const uint64_t values[] = {stats.faults, stats.fetches, stats.bytes_fetched,
		stats.bytes_dropped, stats.bytes_resident, stats.retries, stats.fetches_rdma};
	for (Py_ssize_t i = 0; i < (Py_ssize_t)(sizeof(values) / sizeof(*values)); i++)
		PyStructSequence_SetItem(made, i, PyLong_FromUnsignedLongLong(values[i]));
	if (PyErr_Occurred())
		Py_CLEAR(made);
	return made;
}

static PyObject *map_etag(struct map *self, void *closure)
{
	struct neb_map *neb = map_get(self);

	(void)closure;
	return neb ? text_of(neb_map_etag(neb)) : NULL;
}

/* ---- The types. ---- */

static PyObject *no_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	(void)args;
	(void)kwargs;
	PyErr_Format(PyExc_TypeError, "cannot create %R: a mapper makes it", type);
	return NULL;
}

static PyMethodDef mapper_methods[] = {
	{"map", (PyCFunction)mapper_map, METH_VARARGS, "A Map of an object."},
	{NULL, NULL, 0, NULL},
};

static PyType_Slot mapper_slots[] = {
	{Py_tp_doc, "Maps objects as memory. nebulaio.RDMAClient.map() is what programs use."},
	{Py_tp_new, PyType_GenericNew},
	{Py_tp_init, mapper_init},
	{Py_tp_dealloc, mapper_dealloc},
	{Py_tp_methods, mapper_methods},
	{0, NULL},
};

static PyMethodDef map_methods[] = {
	{"prefetch", (PyCFunction)(void (*)(void))map_prefetch, METH_VARARGS | METH_KEYWORDS,
		"prefetch(offset=0, length=0, timeout=0): brings bytes before they are touched; "
		"with length 0 up to the end. With a timeout it returns when they are there."},
	{"stats", (PyCFunction)map_stats, METH_NOARGS, "What was fetched, and why."},
	{"close", (PyCFunction)map_close, METH_NOARGS,
		"Ends the map. BufferError while there are views of it."},
	{"__enter__", map_enter, METH_NOARGS, NULL},
	{"__exit__", (PyCFunction)map_exit, METH_VARARGS, NULL},
	{NULL, NULL, 0, NULL},
};

static PyGetSetDef map_getset[] = {
	{"etag", (getter)map_etag, NULL, "of the version that is mapped", NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot map_slots[] = {
	{Py_tp_doc,
		"An object as read-only memory: memoryview(map), numpy.frombuffer(map). Its bytes "
		"come when they are touched. Made by RDMAClient.map()."},
	{Py_tp_new, no_new},
	{Py_tp_dealloc, map_dealloc},
	{Py_tp_methods, map_methods},
	{Py_tp_getset, map_getset},
	{Py_sq_length, map_length},
	{Py_bf_getbuffer, map_view},
	{Py_bf_releasebuffer, map_view_end},
	{0, NULL},
};

static PyStructSequence_Field STATS_FIELDS[] = {
	{"faults", "touches that waited"},
	{"fetches", "requests that brought bytes"},
	{"bytes_fetched", "each was copied once, into its page"},
	{"bytes_dropped", "for map_bytes_max"},
	{"bytes_resident", "in memory now"},
	{"retries", NULL},
	{"fetches_rdma", "of fetches"},
	{NULL, NULL},
};

int map_types_make(void)
{
	static PyStructSequence_Desc stats_desc = {
		"nebulaio.MapStats", "What a map did.", STATS_FIELDS, 7};
	static PyType_Spec mapper_spec = {"nebulaio._native.Mapper", sizeof(struct mapper), 0,
		Py_TPFLAGS_DEFAULT, mapper_slots};
	static PyType_Spec map_spec = {
		"nebulaio._native.Map", sizeof(struct map), 0, Py_TPFLAGS_DEFAULT, map_slots};

	mapper_type = (PyTypeObject *)PyType_FromSpec(&mapper_spec);
	map_type = (PyTypeObject *)PyType_FromSpec(&map_spec);
	map_stats_type = PyStructSequence_NewType(&stats_desc);
	return mapper_type && map_type && map_stats_type ? 0 : -1;
}
