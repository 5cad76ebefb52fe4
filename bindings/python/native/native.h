/* native.h: shared by the files of the extension module nebulaio._native.
 *
 *   abi.h      Python's stable ABI
 *   module.c   the module: types, constants
 *   client.c   Client: requests and waits
 *   batch.c    its reads of many objects by one call
 *   fan_out.c  its read of an object together with other clients
 *   list.c     its listings
 *   results.c  Result
 *   buffers.c  Buffer and Registration: memory that is registered with the device
 *   map.c      Mapper and Map: objects as memory
 *   memory.c   finds a Python object's bytes and the range to read into them, makes bytes objects
 *   minter.c   Minter: RDMA tokens; Memory: the memory that they name
 *
 * Call everything here with the interpreter's lock held. A Client has its own lock, and takes it
 * with the interpreter's lock released: one thread at a time is inside the library. */
#ifndef NEBULAIO_NATIVE_H
#define NEBULAIO_NATIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct _object;	    /* Python's PyObject */
struct _typeobject; /* Python's PyTypeObject */
struct neb_client;  /* libnebulaio's */
struct neb_result;

/* ---- memory.c ---- */

/* Bytes of a Python object, at a fixed address until memory_give(). */
struct memory {
	void *data;
	size_t bytes;
};
/* Takes the bytes of an object with the buffer protocol or DLPack, if they are contiguous. NULL
 * with an exception. */
struct memory *memory_take(struct _object *object, bool writable);
/* Makes an object of bytes or of a subclass. Its contents are undefined or zeros. */
struct _object *bytes_make(struct _typeobject *type, ptrdiff_t bytes);
/* memory_take for such an object, which is being filled and which no other code has seen. */
struct memory *memory_take_fresh(struct _object *bytes);
void memory_give(struct memory *memory); /* takes NULL */
/* The range of an object that is read into room_bytes of memory. offset and length: Python's
 * numbers, or NULL or None. Without a length, a read from an offset above 0 takes at most what the
 * memory holds, and one from 0 takes the whole object, a range of 0 bytes. false with an exception:
 * a negative offset, a length of 0 or less, or an offset and no memory. */
bool range_take(struct _object *offset, struct _object *length, size_t room_bytes,
	uint64_t *ret_offset, uint64_t *ret_bytes);

/* ---- client.c ---- */

extern struct _typeobject *client_type, *stats_type;
int client_types_make(void);
/* Runs in a forked child, which must not use the sessions of its parent. */
void client_forked(void);
extern unsigned fork_generation; /* how many forks led to this process */
/* Seconds as nanoseconds; false with an exception. */
bool client_seconds(double seconds, uint64_t *ret_ns);

/* Enters the library; waits for the thread inside. NULL with an exception when the client is
 * closed, or was opened before a fork. */
struct neb_client *client_enter(struct _object *client);
void client_leave(struct _object *client);

/* An object of the library that must be given back after its Python object has gone. Its maker
 * zeroes it. From client_adopt() until client_discard(), which takes it, the client's session stays
 * open, even after close(). */
struct leftover {
	struct leftover *next;
	void *pooled;		   /* of neb_buffer_alloc, or NULL */
	struct memory *registered; /* of neb_register, or NULL */
};
void client_adopt(struct _object *client);
void client_discard(struct _object *client, struct leftover *leftover);

/* A str's text, valid as long as the str. NULL with an exception: it is no str, or has a NUL.
 */
const char *client_text(struct _object *string);

/* Raise the exception of nebulaio.errors for a failed request, or for an errno. Return NULL. */
void *client_raise_from(
	const struct neb_result *result, int op, struct _object *bucket, struct _object *key);
void *client_raise(int error, const char *what);

/* The exception for a failed request, as a new reference, or NULL with an exception. */
struct _object *client_error_of(
	const struct neb_result *result, int op, struct _object *bucket, struct _object *key);

/* ---- results.c ---- */

extern struct _typeobject *result_type;
int result_type_make(void);
struct _object *result_make(const struct neb_result *from, bool want_headers);
/* A str of a text from outside: bytes that are not UTF-8, or are cut within a character, become
 * U+FFFD. */
struct _object *text_make(const char *text, size_t len);
struct _object *text_of(const char *text);
#define RESULT_MULTICAST 8 /* its hidden field, which only has a name */

/* ---- batch.c: a method of Client. ---- */

struct _object *client_get_batch(
	struct _object *client, struct _object *args, struct _object *kwargs);

/* A neb_batch_keep_fn: false when a signal handler raised an exception. arg: a PyThreadState **,
 * the thread that waits with the interpreter's lock released. */
bool batch_keep_on(void *arg);

/* ---- fan_out.c: a method of Client. ---- */

struct _object *client_get_fan_out(
	struct _object *client, struct _object *args, struct _object *kwargs);

/* ---- list.c: methods of Client. ---- */

struct _object *list_objects(struct _object *client, struct _object *args, struct _object *kwargs);
struct _object *list_buckets(struct _object *client, struct _object *unused);

/* ---- buffers.c ---- */

extern struct _typeobject *buffer_type, *registration_type;
int buffer_types_make(void);
struct _object *buffer_make(struct _object *client, size_t bytes);
struct _object *registration_make(struct _object *client, struct _object *object);

/* ---- map.c ---- */

extern struct _typeobject *mapper_type, *map_type, *map_stats_type;
int map_types_make(void);

/* ---- minter.c ---- */

extern struct _typeobject *minter_type, *memory_type;
int minter_types_make(void);

#endif
