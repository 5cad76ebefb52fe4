/* tests/unit/rados/fake.c: see fake.h. It defines the functions of librados that src/rados calls;
 * an operation is done when it is started, and reported at once. */
#include "fake.h"

#include <errno.h>
#include <rados/librados.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rados/load.h"

struct fake fake;

struct pool {
	uint32_t idx;
	char space[64];
};
enum kind { CREATE, COMPARE, SET, WRITE, ZERO, REMOVE, READ, LOCK };
struct step {
	enum kind kind;
	char name[16];
	const char *in;
	char *out;
	size_t len;
	uint64_t offset;
	int exclusive;
	size_t *got;
	int *result;
};
struct op {
	struct step steps[80];
	uint32_t count;
};
/* librados's functions have more parameters than this project's style allows. */
struct completion {
	void *arg;
	rados_callback_t done;
	int result;
};

void fake_reset(void)
{
	for (uint32_t i = 0; i < FAKE_OBJECTS; i++)
		free(fake.objects[i].data);
	memset(&fake, 0, sizeof(fake));
}

struct fake_object *fake_find(uint32_t pool, const char *space, const char *oid)
{
	for (uint32_t i = 0; i < FAKE_OBJECTS; i++) {
		struct fake_object *object = &fake.objects[i];

		if (object->used && object->pool == pool && strcmp(object->space, space) == 0 &&
			strcmp(object->oid, oid) == 0)
			return object;
	}
	return NULL;
}

struct fake_object *fake_make(uint32_t pool, const char *space, const char *oid)
{
	for (uint32_t i = 0; i < FAKE_OBJECTS; i++) {
		struct fake_object *object = &fake.objects[i];

		if (object->used)
			continue;
		*object = (struct fake_object){.used = true, .pool = pool};
		snprintf(object->space, sizeof(object->space), "%s", space);
		snprintf(object->oid, sizeof(object->oid), "%s", oid);
		return object;
	}
	abort();
}

void fake_attr_set(struct fake_object *object, const char *name, const char *value, size_t len)
{
	for (uint32_t i = 0; i < 4; i++)
		if (!object->attrs[i].name[0] || strcmp(object->attrs[i].name, name) == 0) {
			snprintf(object->attrs[i].name, 16, "%s", name);
			snprintf(object->attrs[i].value, 600, "%.*s", (int)len, value);
			return;
		}
	abort();
}

const char *fake_attr(const struct fake_object *object, const char *name)
{
	for (uint32_t i = 0; i < 4; i++)
		if (strcmp(object->attrs[i].name, name) == 0)
			return object->attrs[i].value;
	return NULL;
}

/* ---- The cluster. ---- */

const char *rv_lacking(void)
{
	return fake.lacking ? "it is not there" : NULL;
}

int rados_create2(rados_t *cluster, const char *name, const char *user, uint64_t flags)
{
	(void)name;
	(void)user;
	(void)flags;
	*cluster = &fake;
	return 0;
}

int rados_conf_read_file(rados_t cluster, const char *path)
{
	(void)cluster;
	return path && strcmp(path, "/nowhere") == 0 ? -ENOENT : 0;
}

int rados_conf_set(rados_t cluster, const char *option, const char *value)
{
	(void)cluster;
	(void)option;
	(void)value;
	return 0;
}

int rados_connect(rados_t cluster)
{
	(void)cluster;
	return fake.unconnected ? -ETIMEDOUT : 0;
}

void rados_shutdown(rados_t cluster)
{
	(void)cluster;
}

int rados_getaddrs(rados_t cluster, char **addrs)
{
	(void)cluster;
	*addrs = strdup("[v2:10.0.0.1:0/7,v1:10.0.0.1:0/7]");
	return 0;
}

int rados_blocklist_add(rados_t cluster, char *address, uint32_t seconds)
{
	void (*then)(void) = fake.on_blocklist;

	(void)cluster;
	(void)seconds;
	snprintf(fake.blocklisted, sizeof(fake.blocklisted), "%s", address);
	fake.on_blocklist = NULL;
	if (then)
		then();
	return 0;
}

int rados_wait_for_latest_osdmap(rados_t cluster)
{
	(void)cluster;
	fake.waits++;
	return 0;
}

#define COMMAND_PARAMS                                                                        \
	rados_t cluster, const char **cmd, size_t cmdlen, const char *inbuf, size_t inbuflen, \
		char **outbuf, size_t *outbuflen, char **outs, size_t *outslen
int rados_mon_command(COMMAND_PARAMS)
{
	(void)cluster;
	(void)cmd;
	(void)cmdlen;
	(void)inbuf;
	(void)inbuflen;
	*outbuf = strdup("HEALTH_ERR 1 full osd(s)\n");
	*outbuflen = strlen(*outbuf);
	*outs = strdup("");
	*outslen = 0;
	return 0;
}

void rados_buffer_free(char *buf)
{
	free(buf);
}

int rados_ioctx_create(rados_t cluster, const char *name, rados_ioctx_t *ret_pool)
{
	struct pool *pool = (struct pool *)calloc(1, sizeof(*pool));

	(void)cluster;
	pool->idx = strcmp(name, "body") == 0;
	*ret_pool = pool;
	if (pool->idx || strcmp(name, "front") == 0)
		return 0;
	free(pool);
	return -ENOENT;
}

void rados_ioctx_destroy(rados_ioctx_t io)
{
	free(io);
}

void rados_ioctx_set_namespace(rados_ioctx_t io, const char *space)
{
	snprintf(((struct pool *)io)->space, 64, "%s", space);
}

int rados_ioctx_pool_requires_alignment2(rados_ioctx_t io, int *req)
{
	(void)io;
	*req = fake.whole;
	return 0;
}

int rados_nobjects_list_open(rados_ioctx_t io, rados_list_ctx_t *ctx)
{
	*ctx = io;
	return 0;
}

int rados_nobjects_list_next(
	rados_list_ctx_t ctx, const char **entry, const char **key, const char **space)
{
	const struct pool *pool = (const struct pool *)ctx;

	(void)key;
	(void)space;
	for (uint32_t i = 0; i < FAKE_OBJECTS; i++)
		if (fake.objects[i].used && fake.objects[i].pool == pool->idx &&
			strcmp(fake.objects[i].space, pool->space) == 0) {
			*entry = fake.objects[i].oid;
			return 0;
		}
	return -ENOENT;
}

void rados_nobjects_list_close(rados_list_ctx_t ctx)
{
	(void)ctx;
}

int rados_getxattr(rados_ioctx_t io, const char *oid, const char *name, char *buf, size_t len)
{
	const struct pool *pool = (const struct pool *)io;
	const struct fake_object *object = fake_find(pool->idx, pool->space, oid);
	const char *value = object ? fake_attr(object, name) : NULL;

	if (!value)
		return object ? -ENODATA : -ENOENT;
	if (strlen(value) > len)
		return -ERANGE;
	memcpy(buf, value, strlen(value));
	return (int)strlen(value);
}

/* ---- The lock. ---- */

static int lock_fails(void)
{
	int ret = fake.fail_lock;

	if (fake.fail_locks && --fake.fail_locks == 0)
		fake.fail_lock = 0;
	return ret;
}

#define LOCK_PARAMS                                                                                \
	rados_ioctx_t io, const char *oid, const char *name, const char *cookie, const char *desc, \
		struct timeval *duration, uint8_t flags
int rados_lock_exclusive(LOCK_PARAMS)
{
	int ret;

	(void)io;
	(void)oid;
	(void)name;
	(void)desc;
	(void)duration;
	ret = lock_fails();
	if (ret)
		return ret;
	if (fake.locked && strcmp(fake.lock_cookie, cookie) != 0)
		return -EBUSY;
	if (fake.locked && !flags)
		return -EEXIST;
	fake.locked = true;
	snprintf(fake.lock_cookie, sizeof(fake.lock_cookie), "%s", cookie);
	return 0;
}

int rados_unlock(rados_ioctx_t io, const char *oid, const char *name, const char *cookie)
{
	(void)io;
	(void)oid;
	(void)name;
	if (!fake.locked || strcmp(fake.lock_cookie, cookie) != 0)
		return -ENOENT;
	fake.locked = false;
	return 0;
}

#define LOCKERS_PARAMS                                                                  \
	rados_ioctx_t io, const char *oid, const char *name, int *exclusive, char *tag, \
		size_t *tag_len, char *clients, size_t *clients_len, char *cookies,     \
		size_t *cookies_len, char *addrs, size_t *addrs_len
ssize_t rados_list_lockers(LOCKERS_PARAMS)
{
	(void)io;
	(void)oid;
	(void)name;
	(void)tag;
	(void)tag_len;
	(void)addrs;
	(void)addrs_len;
	*exclusive = 1;
	snprintf(clients, *clients_len, "client.1");
	snprintf(cookies, *cookies_len, "%s", fake.lock_cookie);
	return fake.locked;
}

int rados_break_lock(
	rados_ioctx_t io, const char *oid, const char *name, const char *client, const char *cookie)
{
	(void)client;
	return rados_unlock(io, oid, name, cookie);
}

/* ---- Operations. ---- */

static struct step *step_add(void *op, enum kind kind)
{
	struct op *all = (struct op *)op;

	if (all->count == 80)
		abort();
	all->steps[all->count].kind = kind;
	return &all->steps[all->count++];
}

rados_write_op_t rados_create_write_op(void)
{
	return calloc(1, sizeof(struct op));
}

void rados_release_write_op(rados_write_op_t op)
{
	free(op);
}

rados_read_op_t rados_create_read_op(void)
{
	return calloc(1, sizeof(struct op));
}

void rados_release_read_op(rados_read_op_t op)
{
	free(op);
}

void rados_write_op_create(rados_write_op_t op, int exclusive, const char *category)
{
	(void)category;
	step_add(op, CREATE)->exclusive = exclusive;
}

void rados_write_op_cmpxattr(
	rados_write_op_t op, const char *name, uint8_t comparison, const char *value, size_t len)
{
	struct step *step = step_add(op, COMPARE);

	if (comparison != LIBRADOS_CMPXATTR_OP_EQ)
		abort();
	snprintf(step->name, sizeof(step->name), "%s", name);
	step->in = value;
	step->len = len;
}

void rados_write_op_setxattr(rados_write_op_t op, const char *name, const char *value, size_t len)
{
	struct step *step = step_add(op, SET);

	snprintf(step->name, sizeof(step->name), "%s", name);
	step->in = value;
	step->len = len;
}

/* Only the lock's renewal. */
#define EXEC_PARAMS                                                                   \
	rados_write_op_t op, const char *cls, const char *method, const char *in_buf, \
		size_t in_len, int *prval
void rados_write_op_exec(EXEC_PARAMS)
{
	struct step *step = step_add(op, LOCK);

	(void)prval;
	if (strcmp(cls, "lock") != 0 || strcmp(method, "lock") != 0)
		abort();
	step->in = in_buf;
	step->len = in_len;
}

void rados_write_op_write(rados_write_op_t op, const char *buffer, size_t len, uint64_t offset)
{
	struct step *step = step_add(op, WRITE);

	step->in = buffer;
	step->len = len;
	step->offset = offset;
	fake.writes++;
}

void rados_write_op_zero(rados_write_op_t op, uint64_t offset, uint64_t len)
{
	struct step *step = step_add(op, ZERO);

	step->len = len;
	step->offset = offset;
	fake.zeroes++;
}

void rados_write_op_remove(rados_write_op_t op)
{
	step_add(op, REMOVE);
	fake.removes++;
}

void rados_read_op_read(rados_read_op_t op, uint64_t offset, size_t len, char *buffer,
	size_t *bytes_read, int *prval)
{
	struct step *step = step_add(op, READ);

	step->offset = offset;
	step->len = len;
	step->out = buffer;
	step->got = bytes_read;
	step->result = prval;
	fake.reads++;
}

static void object_write(struct fake_object *object, const char *data, size_t len, uint64_t offset)
{
	if (offset + len > object->bytes) {
		object->data = (char *)realloc(object->data, offset + len);
		memset(object->data + object->bytes, 0, offset + len - object->bytes);
		object->bytes = offset + len;
	}
	if (data)
		memcpy(object->data + offset, data, len);
	else
		memset(object->data + offset, 0, len);
}

static size_t object_read(const struct fake_object *object, char *data, size_t len, uint64_t offset)
{
	size_t there = offset < object->bytes ? object->bytes - offset : 0;

	there = there < len ? there : len;
	if (there)
		memcpy(data, object->data + offset, there);
	return there;
}

/* The encoded parameters: version, oldest, length; name, type, cookie. */
static int lock_renew(const char *in, size_t len)
{
	uint32_t name_len, cookie_len;

	memcpy(&name_len, in + 6, 4);
	memcpy(&cookie_len, in + 6 + 4 + name_len + 1, 4);
	in += 6 + 4 + name_len + 1 + 4;
	if (name_len > len || cookie_len > len || cookie_len >= sizeof(fake.lock_cookie))
		abort();
	if (fake.fail_lock)
		return fake.fail_lock;
	if (fake.locked && strncmp(fake.lock_cookie, in, cookie_len) != 0)
		return -EBUSY;
	fake.locked = true;
	snprintf(fake.lock_cookie, sizeof(fake.lock_cookie), "%.*s", (int)cookie_len, in);
	return 0;
}

static int step_do(const struct pool *pool, const char *oid, const struct step *step)
{
	struct fake_object *object = fake_find(pool->idx, pool->space, oid);
	const char *value = object ? fake_attr(object, step->name) : NULL;

	if (step->kind == CREATE && step->exclusive && object)
		return -EEXIST;
	if (step->kind == LOCK)
		return lock_renew(step->in, step->len);
	if (step->kind == COMPARE)
		return value && strlen(value) == step->len &&
				       memcmp(value, step->in, step->len) == 0
			       ? 0
			       : -ECANCELED;
	if (!object && (step->kind == REMOVE || step->kind == READ))
		return -ENOENT;
	if (!object && step->kind == ZERO)
		return 0;
	if (!object)
		object = fake_make(pool->idx, pool->space, oid);
	if (step->kind == SET) {
		fake_attr_set(object, step->name, step->in, step->len);
	} else if (step->kind == WRITE) {
		object_write(object, step->in, step->len, step->offset);
	} else if (step->kind == ZERO && step->offset < object->bytes) {
		object_write(object, NULL,
			step->len < object->bytes - step->offset ? step->len
								 : object->bytes - step->offset,
			step->offset);
	} else if (step->kind == REMOVE) {
		free(object->data);
		*object = (struct fake_object){0};
	} else if (step->kind == READ) {
		*step->got = object_read(object, step->out, step->len, step->offset);
		*step->result = 0;
	}
	return 0;
}

static bool fails(const char *oid)
{
	return fake.fail && strcmp(oid, "head") != 0 &&
	       (!fake.fail_oid[0] || strcmp(oid, fake.fail_oid) == 0);
}

static int op_do(const struct op *op, rados_ioctx_t io, const char *oid)
{
	int ret = fails(oid) ? fake.fail : 0;

	for (uint32_t i = 0; i < op->count && !ret; i++)
		ret = step_do((const struct pool *)io, oid, &op->steps[i]);
	return ret;
}

int rados_read(rados_ioctx_t io, const char *oid, char *buf, size_t len, uint64_t off)
{
	const struct pool *pool = (const struct pool *)io;
	const struct fake_object *object = fake_find(pool->idx, pool->space, oid);

	if (fails(oid))
		return fake.fail;
	return object ? (int)object_read(object, buf, len, off) : -ENOENT;
}

int rados_write_op_operate(
	rados_write_op_t op, rados_ioctx_t io, const char *oid, time_t *mtime, int flags)
{
	(void)mtime;
	(void)flags;
	return op_do((const struct op *)op, io, oid);
}

int rados_aio_create_completion2(void *arg, rados_callback_t done, rados_completion_t *ret)
{
	struct completion *completion = (struct completion *)calloc(1, sizeof(*completion));

	completion->arg = arg;
	completion->done = done;
	*ret = completion;
	return 0;
}

int rados_aio_get_return_value(rados_completion_t c)
{
	return ((struct completion *)c)->result;
}

void rados_aio_release(rados_completion_t c)
{
	free(c);
}

static int aio_do(const void *op, rados_ioctx_t io, rados_completion_t c, const char *oid)
{
	struct completion *completion = (struct completion *)c;

	if (fake.fail_submit)
		return fake.fail_submit;
	completion->result = op_do((const struct op *)op, io, oid);
	completion->done(c, completion->arg);
	return 0;
}

int rados_aio_write_op_operate(rados_write_op_t op, rados_ioctx_t io, rados_completion_t c,
	const char *oid, time_t *mtime, int flags)
{
	(void)mtime;
	(void)flags;
	return aio_do(op, io, c, oid);
}

int rados_aio_read_op_operate(
	rados_read_op_t op, rados_ioctx_t io, rados_completion_t c, const char *oid, int flags)
{
	(void)flags;
	return aio_do(op, io, c, oid);
}
