/* flow/transform.c: finds transforms by their texts: built-in ones, and shared objects, which are
 * loaded only from the path that the operator names. */
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "flow/transform_priv.h"

static const struct neb_transform *const BUILT_IN[] = {
	&FLOW_TRANSFORM_CTR,
	&FLOW_TRANSFORM_SEAL,
	&FLOW_TRANSFORM_UNSEAL,
	&FLOW_TRANSFORM_COMPRESS,
	&FLOW_TRANSFORM_DECOMPRESS,
	&FLOW_TRANSFORM_FILTER,
	&FLOW_TRANSFORM_SNAP,
};

struct parts {
	char name[1024]; /* or the path */
	const char *options;
	const struct neb_transform *built_in; /* NULL: a path */
};

/* ---- Texts. ---- */

static __attribute__((format(printf, 2, 3))) int refuse(
	char why[FLOW_TRANSFORM_WHY_BYTES], const char *what, ...)
{
	va_list values;

	va_start(values, what);
	vsnprintf(why, FLOW_TRANSFORM_WHY_BYTES, what, values);
	va_end(values);
	return -EINVAL;
}

/* A text with a slash before its first colon is a path. */
static int parts_of(const char *text, struct parts *parts, char why[FLOW_TRANSFORM_WHY_BYTES])
{
	size_t len = strcspn(text, ":");

	if (!len || len >= sizeof(parts->name))
		return refuse(why, "'%.100s' is not of the form NAME[:OPTIONS]", text);
	snprintf(parts->name, sizeof(parts->name), "%.*s", (int)len, text);
	parts->options = text[len] ? text + len + 1 : "";
	parts->built_in = NULL;
	for (size_t i = 0; i < sizeof(BUILT_IN) / sizeof(*BUILT_IN); i++) {
		if (!strcmp(BUILT_IN[i]->name, parts->name))
			parts->built_in = BUILT_IN[i];
	}
	if (parts->built_in || strchr(parts->name, '/'))
		return 0;
	return refuse(why,
		"there is no transform '%.60s': aes256ctr, aes256gcm, aes256gcm-decrypt, zstd, "
		"unzstd, filter, snap, or a shared object by a path with a slash, ./%.60s",
		parts->name, parts->name);
}

/* ---- Shared objects. ---- */

static int file_check(const char *path, char why[FLOW_TRANSFORM_WHY_BYTES])
{
	struct stat st;

	if (stat(path, &st))
		return refuse(why, "%.150s: %s", path, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return refuse(why, "%.150s is not a file", path);
	return 0;
}

static int transform_check(
	const struct neb_transform *transform, const char *path, char why[FLOW_TRANSFORM_WHY_BYTES])
{
	if (transform->version != NEB_TRANSFORM_VERSION)
		return refuse(why,
			"%.120s is made for version %u of nebulaio/transform.h, this program for "
			"version %u: build it again with this one's header",
			path, transform->version, NEB_TRANSFORM_VERSION);
	if (!transform->name || !transform->change == !transform->convert)
		return refuse(
			why, "%.150s: its neb_transform needs a name, and change or convert", path);
	if (transform->flags & ~(NEB_TRANSFORM_SAME_LENGTH | NEB_TRANSFORM_PACKETS) ||
		(transform->flags && !transform->change))
		return refuse(why, "%.150s: its neb_transform has flags 0x%x, which mean nothing",
			path, transform->flags);
	return 0;
}

static int library_load(const char *path, void **ret_library,
	const struct neb_transform **ret_transform, char why[FLOW_TRANSFORM_WHY_BYTES])
{
	const struct neb_transform *transform;
	void *library;
	int ret = file_check(path, why);

	if (ret)
		return ret;
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library)
		return refuse(why, "%.200s", dlerror());
	transform = dlsym(library, "neb_transform");
	ret = transform ? transform_check(transform, path, why)
			: refuse(why,
				  "%.150s has no symbol neb_transform: it is no transform "
				  "(nebulaio/transform.h)",
				  path);
	if (ret) {
		dlclose(library);
		return ret;
	}
	*ret_library = library;
	*ret_transform = transform;
	return 0;
}

/* ---- Opening. ---- */

static bool of_packets(const struct neb_transform *transform)
{
	return transform->flags & NEB_TRANSFORM_PACKETS;
}

bool flow_transforms_of_packets(const struct flow_transforms *self)
{
	flow_transforms_check(self);
	return self->count && of_packets(self->items[0].ops);
}

int flow_transforms_add(struct flow_transforms *self, const struct neb_transform *transform,
	const char *options, char why[FLOW_TRANSFORM_WHY_BYTES])
{
	struct flow_transform_item *item;
	char said[FLOW_TRANSFORM_WHY_BYTES / 2] = "";
	int ret = 0;

	flow_transforms_check(self);
	CHECK(!self->segment_count);
	if (self->count == FLOW_TRANSFORMS_MAX) {
		refuse(why, "at most %u transforms stand one behind the other",
			FLOW_TRANSFORMS_MAX);
		return -E2BIG;
	}
	if (self->count && of_packets(transform) != flow_transforms_of_packets(self))
		return refuse(why,
			"%s works on %s, the transforms before it on %s: those of packets come "
			"first, and only behind an xdp: source",
			transform->name, of_packets(transform) ? "packets" : "bytes",
			of_packets(transform) ? "bytes" : "packets");
	item = &self->items[self->count];
	*item = (struct flow_transform_item){.ops = transform};
	snprintf(item->name, sizeof(item->name), "%.31s", transform->name);
	if (transform->open)
		ret = transform->open(options, said, sizeof(said), &item->state);
	said[sizeof(said) - 1] = '\0';
	if (ret) {
		refuse(why, "%s: %s", item->name, said[0] ? said : strerror(abs(ret)));
		return ret < 0 && ret > -4096 ? ret : -EINVAL;
	}
	self->count++;
	return 0;
}

/* *ret_library: NULL for a built-in one; otherwise the caller closes it. */
static int transform_find(const char *text, struct parts *parts, void **ret_library,
	const struct neb_transform **ret_transform, char why[FLOW_TRANSFORM_WHY_BYTES])
{
	int ret = parts_of(text, parts, why);

	*ret_library = NULL;
	if (ret)
		return ret;
	*ret_transform = parts->built_in;
	return parts->built_in ? 0 : library_load(parts->name, ret_library, ret_transform, why);
}

int flow_transform_of_packets(
	const char *text, bool *ret_packets, char why[FLOW_TRANSFORM_WHY_BYTES])
{
	const struct neb_transform *transform;
	struct parts parts;
	void *library;
	int ret = transform_find(text, &parts, &library, &transform, why);

	if (ret)
		return ret;
	*ret_packets = of_packets(transform);
	if (library)
		dlclose(library);
	return 0;
}

static int text_add(
	struct flow_transforms *self, const char *text, char why[FLOW_TRANSFORM_WHY_BYTES])
{
	const struct neb_transform *transform;
	struct parts parts;
	void *library;
	int ret = transform_find(text, &parts, &library, &transform, why);

	if (ret)
		return ret;
	ret = flow_transforms_add(self, transform, parts.options, why);
	if (!ret)
		self->items[self->count - 1].library = library;
	else if (library)
		dlclose(library);
	return ret;
}

static struct flow_transforms *chain_make(void)
{
	struct flow_transforms *self = calloc(1, sizeof(*self));

	if (self)
		self->magic = FLOW_TRANSFORMS_MAGIC;
	return self;
}

int flow_transforms_open(const char *const *texts, uint32_t count, struct flow_transforms **ret,
	char why[FLOW_TRANSFORM_WHY_BYTES])
{
	struct flow_transforms *self = chain_make();
	int error = self ? 0 : -ENOMEM;

	if (error)
		refuse(why, "%s", strerror(ENOMEM));
	for (uint32_t i = 0; i < count && !error; i++)
		error = text_add(self, texts[i], why);
	if (error) {
		flow_transforms_close(self);
		return error;
	}
	*ret = self;
	return 0;
}

int flow_transforms_open_one(const struct neb_transform *transform, const char *options,
	struct flow_transforms **ret, char why[FLOW_TRANSFORM_WHY_BYTES])
{
	struct flow_transforms *self;
	int error = flow_transforms_open(NULL, 0, &self, why);

	if (!error)
		error = flow_transforms_add(self, transform, options, why);
	else
		self = NULL;
	if (error) {
		flow_transforms_close(self);
		return error;
	}
	*ret = self;
	return 0;
}

void flow_transforms_close(struct flow_transforms *self)
{
	if (!self)
		return;
	flow_transforms_check(self);
	for (uint32_t i = 0; i < self->count; i++) {
		struct flow_transform_item *item = &self->items[i];

		if (item->ops->close)
			item->ops->close(item->state);
		if (item->library)
			dlclose(item->library);
	}
	for (uint32_t i = 0; i < self->segment_count; i++)
		free(self->segments[i].buffer);
	magic_clear(&self->magic);
	free(self);
}

bool flow_transform_check(const char *text, char why[FLOW_TRANSFORM_WHY_BYTES])
{
	struct flow_transforms *self;
	struct parts parts;

	if (parts_of(text, &parts, why))
		return false;
	if (!parts.built_in)
		return file_check(parts.name, why) == 0;
	if (flow_transforms_open_one(parts.built_in, parts.options, &self, why))
		return false;
	flow_transforms_close(self);
	return true;
}

/* ---- Key files of built-in transforms. ---- */

int flow_transform_key(
	const char *path, uint8_t *ret_key, size_t key_bytes, char *why, size_t why_bytes)
{
	FILE *file = *path ? fopen(path, "re") : NULL;
	bool whole;

	if (!file) {
		int error = *path ? errno : EINVAL;

		snprintf(why, why_bytes, "the key file '%.80s': %s", path,
			*path ? strerror(error) : "it needs a name, behind a colon");
		return -error;
	}
	whole = fread(ret_key, key_bytes, 1, file) == 1 && fgetc(file) == EOF;
	fclose(file);
	if (whole)
		return 0;
	secret_wipe(ret_key, key_bytes);
	snprintf(why, why_bytes,
		"the key file '%.80s' must hold %zu bytes: head -c %zu /dev/urandom", path,
		key_bytes, key_bytes);
	return -EINVAL;
}
