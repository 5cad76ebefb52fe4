/* rados/life.c: the former owner's lease, as a taker sees it. docs/design/cluster.md has the
 * argument.
 *
 * The head's attribute `life` is "NUMBER MS": the owner's renewal, and how long it may answer reads
 * after that. Each renewal that is tried has its own number, and the operation that writes it
 * compares the record and renews the lock. So a taker that has once read a text knows: the renewal
 * of that text was sent before. 0: this owner has not renewed yet, because one before it may still
 * answer. */
#include "rados/rv_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LIFE_MS_MAX (3600u * 1000)

static int attr_read(struct rv_volume *volume, const char *name, char *ret_text, size_t cap)
{
	int len = rados_getxattr(volume->front, RV_HEAD, name, ret_text, cap - 1);

	ret_text[MAX(len, 0)] = '\0';
	return MIN(len, 0);
}

int rv_seen_read(struct rv_volume *volume, struct rv_seen *seen)
{
	struct rv_seen now = {0};
	int ret = attr_read(volume, "life", now.life, sizeof(now.life));

	/* A volume that no owner of this kind has had. */
	if (ret == -ENODATA)
		ret = 0;
	if (!ret)
		ret = attr_read(volume, "owner", now.owner, sizeof(now.owner));
	if (ret)
		return ret;
	now.since_ns = clock_boot_ns();
	if (!seen->since_ns || strcmp(now.owner, seen->owner) != 0 ||
		strcmp(now.life, seen->life) != 0)
		*seen = now;
	return 0;
}

int rv_seen_until(const struct rv_volume *volume, const struct rv_seen *seen, bool dead,
	uint64_t *ret_until_ns)
{
	unsigned long long number = 1, life_ms = volume->rv->opts.lease_s * 1000ull;

	if (seen->life[0] && (sscanf(seen->life, "%llu %llu", &number, &life_ms) != 2 ||
				     life_ms > LIFE_MS_MAX)) {
		log_error("rados", "%s: its head has a life of '%s'", volume->path, seen->life);
		return -EUCLEAN;
	}
	*ret_until_ns = dead && number ? 0 : seen->since_ns + life_ms * NS_PER_MS;
	return 0;
}

void rv_life_write(struct rv_volume *volume, char ret_life[RV_LIFE_BYTES])
{
	snprintf(ret_life, RV_LIFE_BYTES, "%llu %llu", (unsigned long long)++volume->renewals,
		(unsigned long long)volume->rv->opts.lease_s * 1000);
}

void rv_life_quiet(struct rv_volume *volume, uint64_t until_ns, char ret_life[RV_LIFE_BYTES])
{
	uint64_t now_ns = clock_boot_ns();
	uint64_t left_ns = until_ns > now_ns ? until_ns - now_ns : 0;
	uint64_t own_ms = (uint64_t)volume->rv->opts.lease_s * 1000;

	/* Rounded up. */
	snprintf(ret_life, RV_LIFE_BYTES, "0 %llu",
		(unsigned long long)MAX(own_ms, left_ns / NS_PER_MS + 1));
}

/* ---- The parameters of the method `lock` of Ceph's object class `lock`, in Ceph's encoding. ----
 */

struct encoded {
	uint8_t data[512];
	uint32_t len;
};

static void put(struct encoded *out, const void *data, uint32_t len)
{
	CHECK(len <= sizeof(out->data) - out->len);
	memcpy(out->data + out->len, data, len);
	out->len += len;
}

static void put_u8(struct encoded *out, uint8_t value)
{
	put(out, &value, 1);
}

static void put_u32(struct encoded *out, uint32_t value)
{
	const uint8_t bytes[] = {(uint8_t)value, (uint8_t)(value >> 8), (uint8_t)(value >> 16),
		(uint8_t)(value >> 24)};

	put(out, bytes, sizeof(bytes));
}

static void put_text(struct encoded *out, const char *text)
{
	put_u32(out, (uint32_t)strlen(text));
	put(out, text, (uint32_t)strlen(text));
}

static void lock_encode(const struct rv_volume *volume, struct encoded *out)
{
	struct encoded body = {.len = 0};

	put_text(&body, RV_LOCK);
	put_u8(&body, 1); /* exclusive */
	put_text(&body, volume->cookie);
	put_text(&body, ""); /* tag */
	put_text(&body, "nebulaio");
	put_u32(&body, volume->rv->opts.lease_s);
	put_u32(&body, 0); /* nanoseconds */
	put_u8(&body, LIBRADOS_LOCK_FLAG_MAY_RENEW);
	out->len = 0;
	put_u8(out, 1); /* version, and the oldest that reads it */
	put_u8(out, 1);
	put_u32(out, body.len);
	put(out, body.data, body.len);
}

int rv_life_renew(struct rv_volume *volume)
{
	char life[RV_LIFE_BYTES];
	struct encoded in;
	rados_write_op_t op = rados_create_write_op();
	uint64_t begun_ns = clock_boot_ns();
	int ret;

	rv_life_write(volume, life);
	lock_encode(volume, &in);
	rados_write_op_cmpxattr(
		op, "owner", LIBRADOS_CMPXATTR_OP_EQ, volume->owner, strlen(volume->owner));
	rados_write_op_setxattr(op, "life", life, strlen(life));
	rados_write_op_exec(op, "lock", "lock", (const char *)in.data, in.len, NULL);
	/* It takes no room, so a full cluster does it, too: reads go on there. */
	ret = rados_write_op_operate(op, volume->front, RV_HEAD, NULL, LIBRADOS_OPERATION_FULL_TRY);
	rados_release_write_op(op);
	if (!ret)
		volume->lease_begun_ns = begun_ns;
	return ret;
}
