/* server/identities.c: the accounts' file from YAML to JSON, and the file of the key that seals
 * secrets. */
#include "server/identities.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yaml.h>

#define FILE_BYTES_MAX (4 * MIB)
#define DEPTH_MAX      24
/* Each alias stands for its whole node, so few of them could expand to any size. */
#define PARTS_MAX 100000u

static int refuse(struct config_error *error, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static int refuse(struct config_error *error, int code, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(error->text, sizeof(error->text), fmt, args);
	va_end(args);
	return code;
}

/* Plain true and false are booleans. All else is text, so that an account's number keeps its
 * zeros. */
static json_t *scalar(const yaml_node_t *node)
{
	const char *text = (const char *)node->data.scalar.value;

	if (node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE) {
		if (strcmp(text, "true") == 0)
			return json_true();
		if (strcmp(text, "false") == 0)
			return json_false();
	}
	return json_stringn(text, node->data.scalar.length);
}

struct reading {
	yaml_document_t document;
	uint32_t parts; /* that were read, aliases expanded */
};

static json_t *to_json(struct reading *reading, int index, int depth);

static json_t *sequence(struct reading *reading, const yaml_node_t *node, int depth)
{
	json_t *list = json_array();

	for (yaml_node_item_t *at = node->data.sequence.items.start;
		at < node->data.sequence.items.top; at++)
		if (json_array_append_new(list, to_json(reading, *at, depth + 1))) {
			json_decref(list);
			return NULL;
		}
	return list;
}

static json_t *mapping(struct reading *reading, const yaml_node_t *node, int depth)
{
	json_t *object = json_object();

	for (yaml_node_pair_t *at = node->data.mapping.pairs.start;
		at < node->data.mapping.pairs.top; at++) {
		const yaml_node_t *key = yaml_document_get_node(&reading->document, at->key);
		const char *name = NULL;

		if (key && key->type == YAML_SCALAR_NODE)
			name = (const char *)key->data.scalar.value;
		if (!name || json_object_get(object, name) ||
			json_object_set_new(object, name, to_json(reading, at->value, depth + 1))) {
			json_decref(object);
			return NULL;
		}
	}
	return object;
}

/* NULL: nested too deeply (an alias can reach itself), too many parts, a key that comes twice or is
 * no text, or not UTF-8. */
static json_t *to_json(struct reading *reading, int index, int depth)
{
	const yaml_node_t *node = yaml_document_get_node(&reading->document, index);

	if (!node || depth > DEPTH_MAX || ++reading->parts > PARTS_MAX)
		return NULL;
	switch (node->type) {
	case YAML_SCALAR_NODE:
		return scalar(node);
	case YAML_SEQUENCE_NODE:
		return sequence(reading, node, depth);
	case YAML_MAPPING_NODE:
		return mapping(reading, node, depth);
	default:
		return NULL;
	}
}

static int read_document(
	FILE *file, const char *path, json_t **ret_root, struct config_error *ret_error)
{
	struct reading reading = {.parts = 0};
	yaml_parser_t parser;
	int ret = 0;

	if (!yaml_parser_initialize(&parser))
		return refuse(ret_error, -ENOMEM, "%s: no memory", path);
	yaml_parser_set_input_file(&parser, file);
	if (!yaml_parser_load(&parser, &reading.document)) {
		ret = refuse(ret_error, -EINVAL, "%s:%zu: not YAML: %s", path,
			parser.problem_mark.line + 1,
			parser.problem ? parser.problem : "it cannot be read");
		yaml_parser_delete(&parser);
		return ret;
	}
	*ret_root = to_json(&reading, 1, 0);
	if (!*ret_root && reading.parts > PARTS_MAX)
		ret = refuse(ret_error, -EINVAL, "%s: it has too many parts", path);
	else if (!*ret_root)
		ret = refuse(ret_error, -EINVAL,
			"%s: it is empty, nests too deeply, or has a key twice or one that is no "
			"text",
			path);
	yaml_document_delete(&reading.document);
	yaml_parser_delete(&parser);
	return ret;
}

int identities_load(const char *path, char **ret_json, struct config_error *ret_error)
{
	FILE *file = fopen(path, "re");
	json_t *root = NULL;
	struct stat info;
	int ret;

	if (!file || fstat(fileno(file), &info)) {
		ret = refuse(ret_error, -errno, "%s: cannot be read: %s", path, strerror(errno));
		if (file)
			fclose(file);
		return ret;
	}
	if ((uint64_t)info.st_size > FILE_BYTES_MAX)
		ret = refuse(
			ret_error, -EFBIG, "%s: an accounts file may have at most 4 MiB", path);
	else
		ret = read_document(file, path, &root, ret_error);
	fclose(file);
	if (ret)
		return ret;
	*ret_json = json_dumps(root, JSON_COMPACT);
	json_decref(root);
	return *ret_json ? 0 : refuse(ret_error, -ENOMEM, "%s: no memory", path);
}

/* The file is complete and durable before it gets its name: without the key all secrets are
 * lost. */
static int make_key(const char *path, uint8_t ret_key[IDENTITIES_KEY_BYTES])
{
	char made[CONFIG_TEXT_MAX + 64];
	int fd, ret = 0;

	/* One that was left by a process that was killed may have this one's number. */
	snprintf(made, sizeof(made), "%s.%d", path, (int)getpid());
	unlink(made);
	fd = open(made, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	random_fill(ret_key, IDENTITIES_KEY_BYTES);
	if (write(fd, ret_key, IDENTITIES_KEY_BYTES) != (ssize_t)IDENTITIES_KEY_BYTES || fsync(fd))
		ret = errno ? -errno : -EIO;
	close(fd);
	/* Unlike rename, link never replaces a key that another process made meanwhile. */
	if (!ret && link(made, path))
		ret = -errno;
	unlink(made);
	return ret ? ret : file_parent_sync(path);
}

int identities_key(const char *path, bool fresh, uint8_t ret_key[IDENTITIES_KEY_BYTES],
	struct config_error *ret_error)
{
	uint8_t bytes[IDENTITIES_KEY_BYTES + 1];
	ssize_t got;
	int ret, fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 && errno == ENOENT && !fresh)
		return refuse(ret_error, -ENOKEY,
			"%s is missing, and the store has data: without this file the server "
			"cannot read any account's keys. Restore it from your copy. If you have "
			"none, those keys are lost; to make new ones: (umask 077; head -c 32 "
			"/dev/urandom > %s)",
			path, path);
	if (fd < 0 && errno == ENOENT) {
		ret = make_key(path, ret_key);
		return ret ? refuse(ret_error, ret, "%s: cannot create it: %s", path,
				     strerror(-ret))
			   : 0;
	}
	if (fd < 0)
		return refuse(ret_error, -errno, "%s: cannot be read: %s", path, strerror(errno));
	got = read(fd, bytes, sizeof(bytes));
	close(fd);
	if (got != (ssize_t)IDENTITIES_KEY_BYTES)
		return refuse(ret_error, -EINVAL, "%s: the file must have exactly %u bytes", path,
			IDENTITIES_KEY_BYTES);
	memcpy(ret_key, bytes, IDENTITIES_KEY_BYTES);
	return 0;
}
