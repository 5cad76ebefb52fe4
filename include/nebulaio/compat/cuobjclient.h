/* nebulaio/compat/cuobjclient.h: the class cuObjClient of NVIDIA's cuObject client library, for
 * programs that are built without a CUDA toolkit: libcuobjclient.so.1 of this project has its
 * functions (docs/guide/tokens.md). The names, the numbers and the order of arguments are those of
 * NVIDIA's public API specification. A program that was built with NVIDIA's own header needs
 * nothing of this file.
 *
 *	c++ -I/usr/include/nebulaio/compat program.cpp -L LIBDIR/nebulaio/compat -lcuobjclient */
#ifndef NEBULAIO_COMPAT_CUOBJCLIENT_H
#define NEBULAIO_COMPAT_CUOBJCLIENT_H
#ifdef __cplusplus

#include <cstddef>
#include <iosfwd>
#include <sys/types.h>

#define OBJ_RDMA_V1		  "CUOBJ"
#define CUOBJ_MAX_MEMORY_REG_SIZE (4ULL * 1024 * 1024 * 1024 - 64 * 1024)

enum cuObjErr_enum { CU_OBJ_SUCCESS = 0, CU_OBJ_FAIL = 1 };
typedef cuObjErr_enum cuObjErr_t;

/* Any is taken: a token names the queue pair that the device has. */
enum cuObjProto_enum { CUOBJ_PROTO_RDMA_DC_V1 = 1001, CUOBJ_PROTO_MAX = 1002 };
typedef cuObjProto_enum cuObjProto_t;

enum cuObjOpType_enum { CUOBJ_GET = 0, CUOBJ_PUT = 1, CUOBJ_INVALID = 9999 };
typedef cuObjOpType_enum cuObjOpType_t;

enum cuObjMemoryType_enum {
	CUOBJ_MEMORY_SYSTEM = 0,
	CUOBJ_MEMORY_CUDA_MANAGED = 1,
	CUOBJ_MEMORY_CUDA_DEVICE = 2,
	CUOBJ_MEMORY_UNKNOWN = 3,
	CUOBJ_MEMORY_INVALID = 4
};
typedef cuObjMemoryType_enum cuObjMemoryType_t;

/* cufile.h has it, too: include that first where there is one. */
#ifndef __CUFILE_H_
struct cufileRDMAInfo {
	int version;
	int desc_len; /* of the token, with its NUL */
	const char *desc_str;
};
typedef struct cufileRDMAInfo cufileRDMAInfo_t;
#endif

/* Both send the S3 request with the token in `x-amz-rdma-token`, and return the bytes that moved,
 * or a negative errno. info and its token are theirs until they return. */
struct CUObjIOOps {
	ssize_t (*get)(const void *handle, char *data, size_t bytes, loff_t offset,
		const cufileRDMAInfo_t *info);
	ssize_t (*put)(const void *handle, const char *data, size_t bytes, loff_t offset,
		const cufileRDMAInfo_t *info);
};
typedef CUObjIOOps CUObjOps_t;

class cuObjClient
{
      public:
	cuObjClient(CUObjOps_t &ops, cuObjProto_t proto = CUOBJ_PROTO_RDMA_DC_V1);
	cuObjClient(const cuObjClient &) = delete;
	cuObjClient &operator=(const cuObjClient &) = delete;
	~cuObjClient();

	/* False where no server answers, and standard error has the reason. */
	bool isConnected(void);

	/* Memory must be registered before a token or a transfer names it. */
	cuObjErr_t cuMemObjGetDescriptor(void *data, size_t bytes);
	cuObjErr_t cuMemObjPutDescriptor(void *data);
	/* The bytes that are registered from here on; -1: none. */
	ssize_t cuMemObjGetMaxRequestCallbackSize(void *data);

	/* A token stays valid after it was put back, until its memory is deregistered. With an
	 * error, all tokens of its queue pair end. */
	cuObjErr_t cuMemObjGetRDMAToken(
		void *data, size_t bytes, size_t offset, cuObjOpType_t op, char **ret_token);
	cuObjErr_t cuMemObjPutRDMAToken(char *token);
	cuObjErr_t cuMemObjPutRDMAToken(char *token, int error);

	/* The callback's result, after one call of it; 1: an argument is wrong; -EINVAL: the memory
	 * is not registered, or there is no callback. */
	ssize_t cuObjGet(
		void *ctx, void *data, size_t bytes, loff_t offset = 0, loff_t data_offset = 0);
	ssize_t cuObjPut(
		void *ctx, void *data, size_t bytes, loff_t offset = 0, loff_t data_offset = 0);
	/* ctx, in a callback. */
	static void *getCtx(const void *handle);

	static cuObjMemoryType_t getMemoryType(const void *data);

	/* Accepted, and without an effect. */
	static void setupTelemetry(bool otel, std::ostream *stream);
	static void shutdownTelemetry();
	static void setTelemFlags(unsigned flags);
	static void setTelemFlags(unsigned flags, unsigned op_flags);
	static void setOpFreq(unsigned get, unsigned put);

      private:
	/* 72 bytes, as NVIDIA's: programs allocate it themselves. Only the first is used. */
	void *impl_;
	void *reserved_[8];
};

#endif
#endif
