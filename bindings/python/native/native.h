/* native.h: what the files of the extension module nebulaio._native share.
 *
 *   module.c   the module: types, constants
 *   client.c   Client: requests and waits
 *   list.c     its listings
 *   buffers.c  Buffer and Registration: memory that the device knows
 *   memory.c   where a Python object keeps its bytes
 *
 * Everything here is called with the interpreter's lock held. A Client has a lock of its own, which
 * is taken with the interpreter's lock released: one thread at a time is inside the library. */
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

/* Bytes of a Python object, which stay where they are until memory_give(). */
struct memory {
	void *data;
	size_t bytes;
};
/* Of anything with the buffer protocol, or else with DLPack, whose bytes are contiguous and in host
 * memory. NULL with an exception. */
struct memory *memory_take(struct _object *object, bool writable);
/* Of a bytes object that nobody else has seen: it is being filled. */
struct memory *memory_take_fresh(struct _object *bytes);
void memory_give(struct memory *memory); /* takes NULL */

/* ---- client.c ---- */

extern struct _typeobject *client_type, *result_type, *stats_type;
int client_types_make(void);
/* Forked processes share what the library's sessions cannot share. */
void client_forked(void);

/* Enters the library: waits for the thread that is in it. NULL with an exception when the client is
 * closed, or was opened before a fork. */
struct neb_client *client_enter(struct _object *client);
void client_leave(struct _object *client);

/* An object of the library that must be given back some time after its Python object is gone.
 * Zeroed by its maker; from client_adopt() on the client knows of it, and stays open behind its
 * close() until client_discard(), which takes it over. */
struct leftover {
	struct leftover *next;
	void *pooled;		   /* of neb_buffer_alloc, or NULL */
	struct memory *registered; /* of neb_register, or NULL */
};
void client_adopt(struct _object *client);
void client_discard(struct _object *client, struct leftover *leftover);

/* A str's text, which lives as long as the str. NULL with an exception: it is no str, or has a NUL.
 */
const char *client_text(struct _object *string);

/* Raise what nebulaio.errors makes of a request's failure, or of an errno alone. Return NULL. */
void *client_raise_from(
	const struct neb_result *result, int op, struct _object *bucket, struct _object *key);
void *client_raise(int error, const char *what);

/* ---- list.c: methods of Client. ---- */

struct _object *list_objects(struct _object *client, struct _object *args, struct _object *kwargs);
struct _object *list_buckets(struct _object *client, struct _object *unused);

/* ---- buffers.c ---- */

extern struct _typeobject *buffer_type, *registration_type;
int buffer_types_make(void);
struct _object *buffer_make(struct _object *client, size_t bytes);
struct _object *registration_make(struct _object *client, struct _object *object);

#endif
