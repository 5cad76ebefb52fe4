/* memory.c: finds a Python object's bytes, by the buffer protocol or by DLPack, and the range to
 * read into them; makes bytes objects to receive in. */
#include "abi.h"

#include "native.h"

/* DLPack's interchange structures, in the layout of its specification. */
struct dl_tensor {
	void *data;
	int32_t device_type;
	int32_t device_id;
	int32_t ndim;
	uint8_t type_code;
	uint8_t type_bits;
	uint16_t type_lanes;
	int64_t *shape;
	int64_t *strides; /* in elements; NULL: C order without gaps */
	uint64_t byte_offset;
};
struct dl_managed_tensor {
	struct dl_tensor tensor;
	void *manager;
	void (*deleter)(struct dl_managed_tensor *self); /* or NULL */
};
#define DL_CPU		1
#define DL_CUDA		2
#define DL_CUDA_HOST	3 /* host memory that is registered with a GPU */
#define DL_ROCM_HOST	11
#define DL_CUDA_MANAGED 13
#define DL_NDIM_MAX	64

enum hold { HOLD_VIEW, HOLD_TENSOR, HOLD_OBJECT };
struct held_memory {
	struct memory memory;
	enum hold hold;
	union {
		Py_buffer view;
		struct dl_managed_tensor *tensor;
		PyObject *object;
	};
};

static struct held_memory *memory_new(enum hold hold)
{
	struct held_memory *held = PyMem_Calloc(1, sizeof(*held));

	if (held)
		held->hold = hold;
	else
		PyErr_NoMemory();
	return held;
}

static struct memory *take_view(PyObject *object, bool writable)
{
	struct held_memory *held = memory_new(HOLD_VIEW);

	if (!held)
		return NULL;
	if (PyObject_GetBuffer(
		    object, &held->view, PyBUF_ANY_CONTIGUOUS | (writable ? PyBUF_WRITABLE : 0))) {
		PyMem_Free(held);
		return NULL;
	}
	held->memory.data = held->view.buf;
	held->memory.bytes = (size_t)held->view.len;
	return &held->memory;
}

/* Whether the elements have no gaps, in C's order, or with reversed axes in Fortran's. */
static bool is_compact(const struct dl_tensor *tensor, bool reversed)
{
	int64_t expected = 1;

	for (int32_t i = 0; i < tensor->ndim; i++) {
		int32_t axis = reversed ? i : tensor->ndim - 1 - i;

		if (tensor->shape[axis] != 1 && tensor->strides[axis] != expected)
			return false;
		expected *= tensor->shape[axis];
	}
	return true;
}

static int tensor_check(const struct dl_tensor *tensor, size_t *ret_bytes)
{
	uint64_t bits = (uint64_t)tensor->type_bits * tensor->type_lanes;
	uint64_t bytes = (bits + 7) / 8;

	switch (tensor->device_type) {
	case DL_CPU:
	case DL_CUDA: /* the library accesses it directly, or stages it */
	case DL_CUDA_HOST:
	case DL_CUDA_MANAGED:
	case DL_ROCM_HOST:
		break;
	default:
		PyErr_Format(PyExc_BufferError,
			"the tensor is in a device's memory (DLPack type %d): only a host's and "
			"CUDA's can be moved",
			(int)tensor->device_type);
		return -1;
	}
	if (tensor->ndim < 0 || tensor->ndim > DL_NDIM_MAX) {
		PyErr_SetString(PyExc_BufferError, "a tensor of so many dimensions");
		return -1;
	}
	for (int32_t i = 0; i < tensor->ndim; i++)
		if (tensor->shape[i] < 0 ||
			__builtin_mul_overflow(bytes, (uint64_t)tensor->shape[i], &bytes)) {
			PyErr_SetString(PyExc_BufferError, "the tensor's shape is impossible");
			return -1;
		}
	if (bytes && tensor->strides && !is_compact(tensor, false) && !is_compact(tensor, true)) {
		PyErr_SetString(PyExc_BufferError, "the tensor is not contiguous");
		return -1;
	}
	*ret_bytes = bytes;
	return 0;
}

/* Takes an unversioned DLPack tensor, which every producer supports. That form cannot mark memory
 * as read-only, and producers refuse to export such memory. */
static struct memory *take_tensor(PyObject *object)
{
	struct held_memory *held = memory_new(HOLD_TENSOR);
	PyObject *capsule = held ? PyObject_CallMethod(object, "__dlpack__", NULL) : NULL;
	struct dl_managed_tensor *tensor =
		capsule ? PyCapsule_GetPointer(capsule, "dltensor") : NULL;

	if (!tensor || tensor_check(&tensor->tensor, &held->memory.bytes) ||
		PyCapsule_SetName(capsule, "used_dltensor")) {
		Py_XDECREF(capsule);
		PyMem_Free(held);
		return NULL;
	}
	Py_DECREF(capsule);
	held->memory.data = (char *)tensor->tensor.data + tensor->tensor.byte_offset;
	held->tensor = tensor;
	return &held->memory;
}

struct memory *memory_take(PyObject *object, bool writable)
{
	if (PyObject_CheckBuffer(object))
		return take_view(object, writable);
	if (PyObject_HasAttrString(object, "__dlpack__"))
		return take_tensor(object);
	PyErr_Format(PyExc_TypeError,
		"%R has neither the buffer protocol nor DLPack: its memory cannot be reached",
		Py_TYPE(object));
	return NULL;
}

/* A bytes object caches its hash right before its bytes, and -1 means that there is none yet. The
 * stable ABI does not promise this, so it is tried once. */
static Py_hash_t *hash_place(PyObject *bytes)
{
	return (Py_hash_t *)(void *)PyBytes_AsString(bytes) - 1;
}

static bool hash_is_there(void)
{
	static int known; /* 1: it is there; -1: it is not */
	PyObject *bytes = known ? NULL : PyBytes_FromString("NebulaIO");

	if (bytes) {
		bool fresh = *hash_place(bytes) == -1;
		Py_hash_t hash = PyObject_Hash(bytes);

		known = fresh && *hash_place(bytes) == hash ? 1 : -1;
		Py_DECREF(bytes);
	}
	return known > 0;
}

/* The constructor of bytes would write a long object of a subclass twice. */
PyObject *bytes_make(PyTypeObject *type, ptrdiff_t bytes)
{
	PyObject *object;

	if (!PyType_IsSubtype(type, &PyBytes_Type) || bytes < 0) {
		PyErr_SetString(PyExc_TypeError, "not a subclass of bytes, or a negative length");
		return NULL;
	}
	if (type == &PyBytes_Type)
		return PyBytes_FromStringAndSize(NULL, bytes);
	if (!hash_is_there())
		return PyObject_CallMethod((PyObject *)&PyBytes_Type, "__new__", "On", type, bytes);
	object = PyType_GenericAlloc(type, bytes);
	if (object)
		*hash_place(object) = -1;
	return object;
}

struct memory *memory_take_fresh(PyObject *bytes)
{
	struct held_memory *held = memory_new(HOLD_OBJECT);

	if (!held)
		return NULL;
	Py_INCREF(bytes);
	held->object = bytes;
	held->memory.data = PyBytes_AsString(bytes);
	held->memory.bytes = (size_t)PyBytes_Size(bytes);
	return &held->memory;
}

void memory_give(struct memory *memory)
{
	struct held_memory *held = (struct held_memory *)memory;

	if (!held)
		return;
	if (held->hold == HOLD_VIEW)
		PyBuffer_Release(&held->view);
	else if (held->hold == HOLD_OBJECT)
		Py_DECREF(held->object);
	else if (held->tensor->deleter)
		held->tensor->deleter(held->tensor);
	PyMem_Free(held);
}

bool range_take(PyObject *offset, PyObject *length, size_t room_bytes, uint64_t *ret_offset,
	uint64_t *ret_bytes)
{
	bool whole = !length || length == Py_None;
	Py_ssize_t from = 0, bytes = 0;

	if (offset && offset != Py_None)
		from = PyNumber_AsSsize_t(offset, PyExc_OverflowError);
	if (!whole && !PyErr_Occurred())
		bytes = PyNumber_AsSsize_t(length, PyExc_OverflowError);
	if (PyErr_Occurred())
		return false;
	if (whole && from > 0)
		bytes = (Py_ssize_t)room_bytes;
	if (from < 0 || bytes < 0 || (!bytes && (from || !whole))) {
		PyErr_SetString(PyExc_ValueError, "offset or length is out of bounds");
		return false;
	}
	*ret_offset = (uint64_t)from;
	*ret_bytes = (uint64_t)bytes;
	return true;
}
