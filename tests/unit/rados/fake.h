/* tests/unit/rados/fake.h: a stand-in for librados: pools of objects in memory, with failures. */
#ifndef TESTS_RADOS_FAKE_H
#define TESTS_RADOS_FAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAKE_OBJECTS 64u
#define FAKE_POOLS   2u /* "front", "body" */

struct fake_object {
	bool used;
	uint32_t pool;
	char space[64], oid[32];
	char *data;
	size_t bytes;
	struct {
		char name[16], value[600];
	} attrs[4];
};

struct fake {
	struct fake_object objects[FAKE_OBJECTS];
	int fail;	     /* every operation on an object of data from now on */
	int fail_submit;     /* the call that starts an operation */
	char fail_oid[32];   /* only this object; "": all */
	int fail_lock;	     /* of the head's lock */
	uint32_t fail_locks; /* so often; 0: from now on */
	bool unconnected;
	bool lacking; /* the library */
	bool whole;   /* the pools take no overwrites */
	uint32_t reads, writes, removes, zeroes;
	bool locked;
	char lock_cookie[64];
	char blocklisted[128];
	void (*on_blocklist)(void); /* called once */
	uint32_t waits;		    /* for the newest map */
};
extern struct fake fake;

void fake_reset(void);
/* NULL: there is none. */
struct fake_object *fake_find(uint32_t pool, const char *space, const char *oid);
struct fake_object *fake_make(uint32_t pool, const char *space, const char *oid);
void fake_attr_set(struct fake_object *object, const char *name, const char *value, size_t len);
const char *fake_attr(const struct fake_object *object, const char *name);

#endif
