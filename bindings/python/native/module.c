/* module.c: the extension module nebulaio._native. */
#include "abi.h"

#include <nebulaio/nebulaio.h>

#include <pthread.h>

#include "native.h"

static const struct {
	const char *name;
	int value;
} CONSTANTS[] = {
	{"GET_OBJECT", NEB_GET_OBJECT},
	{"PUT_OBJECT", NEB_PUT_OBJECT},
	{"DELETE_OBJECT", NEB_DELETE_OBJECT},
	{"HEAD_OBJECT", NEB_HEAD_OBJECT},
	{"CREATE_MULTIPART", NEB_CREATE_MULTIPART},
	{"UPLOAD_PART", NEB_UPLOAD_PART},
	{"COMPLETE_MULTIPART", NEB_COMPLETE_MULTIPART},
	{"ABORT_MULTIPART", NEB_ABORT_MULTIPART},
	{"COPY_OBJECT", NEB_COPY_OBJECT},
	{"CREATE_BUCKET", NEB_CREATE_BUCKET},
	{"DELETE_BUCKET", NEB_DELETE_BUCKET},
	{"HEAD_BUCKET", NEB_HEAD_BUCKET},
	{"S3", NEB_S3},
	{"PING", NEB_PING},
	{"CHECKSUM_CRC32", NEB_CHECKSUM_CRC32},
	{"CHECKSUM_CRC32C", NEB_CHECKSUM_CRC32C},
	{"CHECKSUM_CRC64NVME", NEB_CHECKSUM_CRC64NVME},
	{"CHECKSUM_SHA1", NEB_CHECKSUM_SHA1},
	{"CHECKSUM_SHA256", NEB_CHECKSUM_SHA256},
	{"CHECKSUM_MD5", NEB_CHECKSUM_MD5},
	{"CHECKSUM_SHA512", NEB_CHECKSUM_SHA512},
	{"CHECKSUM_XXHASH64", NEB_CHECKSUM_XXHASH64},
	{"CHECKSUM_XXHASH3", NEB_CHECKSUM_XXHASH3},
	{"CHECKSUM_XXHASH128", NEB_CHECKSUM_XXHASH128},
	{"PIECES_MAX", NEB_IOV_MAX},
};

static int add(PyObject *module, const char *name, PyTypeObject *type)
{
	Py_INCREF(type);
	if (PyModule_AddObject(module, name, (PyObject *)type) == 0)
		return 0;
	Py_DECREF(type);
	return -1;
}

static int fill(PyObject *module)
{
	for (size_t i = 0; i < sizeof(CONSTANTS) / sizeof(*CONSTANTS); i++)
		if (PyModule_AddIntConstant(module, CONSTANTS[i].name, CONSTANTS[i].value))
			return -1;
	return add(module, "Client", client_type) || add(module, "Buffer", buffer_type) ||
			       add(module, "Registration", registration_type) ||
			       add(module, "Result", result_type) ||
			       add(module, "Stats", stats_type) ||
			       add(module, "Mapper", mapper_type) || add(module, "Map", map_type) ||
			       add(module, "MapStats", map_stats_type) ||
			       add(module, "Minter", minter_type) ||
			       add(module, "Memory", memory_type)
		       ? -1
		       : 0;
}

PyMODINIT_FUNC PyInit__native(void)
{
	static struct PyModuleDef def = {
		PyModuleDef_HEAD_INIT,
		.m_name = "nebulaio._native",
		.m_doc = "libnebulaio for Python; use nebulaio.RDMAClient.",
		.m_size = -1,
	};
	PyObject *module;

	if (client_types_make() || result_type_make() || buffer_types_make() || map_types_make() ||
		minter_types_make())
		return NULL;
	if (pthread_atfork(NULL, NULL, client_forked)) {
		PyErr_SetString(PyExc_OSError, "pthread_atfork");
		return NULL;
	}
	module = PyModule_Create(&def);
	if (module && fill(module))
		Py_CLEAR(module);
	return module;
}
