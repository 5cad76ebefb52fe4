/* rados/head.c: the head, the object that describes a volume. Its attributes are the volume's
 * layout, which never changes, its length, and its owner (owner.c). docs/spec/disk.md, "RADOS".
 * Blocks. */
#include "rados/rv_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LAYOUT_VERSION 1u
#define TEXT_BYTES     256u

/* An attribute as a string. */
static int attr_read(struct rv_volume *volume, const char *name, char ret_text[TEXT_BYTES])
{
	int len = rados_getxattr(volume->front, RV_HEAD, name, ret_text, TEXT_BYTES - 1);

	ret_text[MAX(len, 0)] = '\0';
	return MIN(len, 0);
}

static int layout_parse(struct rv_volume *volume, const char *text)
{
	unsigned version;
	unsigned long long object_bytes, front_bytes;
	char pool[RV_NAME_MAX + 2];

	if (sscanf(text, "%u %llu %llu %64s", &version, &object_bytes, &front_bytes, pool) != 4 ||
		version != LAYOUT_VERSION || object_bytes != RV_OBJECT_BYTES ||
		front_bytes % RV_OBJECT_BYTES || strlen(pool) > RV_NAME_MAX) {
		log_error("rados",
			"%s: its head has the layout '%s', which this program does not know: a "
			"later version made it",
			volume->path, text);
		return -EUCLEAN;
	}
	if (strcmp(pool, "-") == 0)
		pool[0] = '\0';
	if (volume->body_pool[0] && strcmp(volume->body_pool, pool) != 0) {
		log_error("rados",
			"%s: this volume was made with its bodies in pool %s, and that cannot "
			"change",
			volume->path, pool[0] ? pool : volume->pool);
		return -EINVAL;
	}
	memcpy(volume->body_pool, pool, strlen(pool) + 1);
	volume->front_bytes = front_bytes;
	return 0;
}

int rv_head_read(struct rv_volume *volume)
{
	char text[TEXT_BYTES], *end;
	int ret = attr_read(volume, "layout", text);

	if (ret == -ENODATA)
		log_error("rados",
			"%s: the object %s in namespace %s of pool %s is not of a volume: choose "
			"another name",
			volume->path, RV_HEAD, volume->name, volume->pool);
	if (ret)
		return ret == -ENODATA ? -EUCLEAN : ret;
	ret = layout_parse(volume, text);
	if (!ret)
		ret = attr_read(volume, "bytes", text);
	if (ret)
		return ret;
	atomic_store(&volume->bytes, strtoull(text, &end, 10));
	if (*end || end == text || atomic_load(&volume->bytes) % RV_ALIGN_BYTES) {
		log_error("rados", "%s: its head has a length of '%s'", volume->path, text);
		return -EUCLEAN;
	}
	return 0;
}

/* 0: no object has this namespace. */
static int namespace_check(const struct rv_volume *volume, rados_ioctx_t pool, const char *name)
{
	rados_list_ctx_t list;
	const char *entry = "";
	int ret = rados_nobjects_list_open(pool, &list);

	if (ret)
		return ret;
	ret = rados_nobjects_list_next(list, &entry, NULL, NULL);
	if (ret == 0) {
		log_error("rados",
			"%s: pool %s has objects in the namespace %s that are of no volume, such "
			"as %s: not changed; choose another name, or remove them",
			volume->path, name, volume->name, entry);
		ret = -EUCLEAN;
	} else if (ret == -ENOENT) {
		ret = 0;
	}
	rados_nobjects_list_close(list);
	return ret;
}

int rv_head_make(struct rv_volume *volume)
{
	char layout[TEXT_BYTES];
	rados_write_op_t op;
	int ret = namespace_check(volume, volume->front, volume->pool);

	if (!ret && volume->body_pool[0])
		ret = namespace_check(volume, volume->body, volume->body_pool);
	if (ret)
		return ret;
	volume->front_bytes = ALIGN_UP(volume->rv->opts.front_bytes, (uint64_t)RV_OBJECT_BYTES);
	snprintf(layout, sizeof(layout), "%u %llu %llu %s", LAYOUT_VERSION,
		(unsigned long long)RV_OBJECT_BYTES, (unsigned long long)volume->front_bytes,
		volume->body_pool[0] ? volume->body_pool : "-");
	op = rados_create_write_op();
	rados_write_op_create(op, LIBRADOS_CREATE_EXCLUSIVE, NULL);
	rados_write_op_setxattr(op, "layout", layout, strlen(layout));
	rados_write_op_setxattr(op, "bytes", "0", 1);
	rados_write_op_setxattr(op, "owner", "-", 1);
	ret = rados_write_op_operate(op, volume->front, RV_HEAD, NULL, 0);
	rados_release_write_op(op);
	if (!ret)
		log_info("rados", "%s: made", volume->path);
	/* Another server made it at the same time. */
	return ret == -EEXIST ? rv_head_read(volume) : ret;
}

/* Only the owner changes the length. */
int rv_head_grow(struct rv_volume *volume, uint64_t bytes)
{
	char text[32];
	rados_write_op_t op = rados_create_write_op();
	int ret;

	snprintf(text, sizeof(text), "%llu", (unsigned long long)bytes);
	rados_write_op_cmpxattr(
		op, "owner", LIBRADOS_CMPXATTR_OP_EQ, volume->owner, strlen(volume->owner));
	rados_write_op_setxattr(op, "bytes", text, strlen(text));
	ret = rados_write_op_operate(op, volume->front, RV_HEAD, NULL, 0);
	rados_release_write_op(op);
	if (!ret)
		atomic_store(&volume->bytes, bytes);
	return ret;
}
