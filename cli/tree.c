/* cli/tree.c: reads and compares the contents of a folder or a prefix. */
#include "tree.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PATH_BYTES 8192

bool tree_is_glob(const char *text)
{
	return strpbrk(text, "*?[") != NULL;
}

/* A folder, or a bucket with the whole key as the prefix. */
static bool place_begin(char *text, struct tree_place *ret_place)
{
	size_t len = strlen(text);

	*ret_place = (struct tree_place){0};
	if (remote_is_url(text))
		return remote_parse(text, &ret_place->bucket, &ret_place->prefix);
	if (!len)
		return false;
	while (len > 1 && text[len - 1] == '/')
		text[--len] = '\0';
	ret_place->prefix = text;
	return true;
}

/* Makes the prefix of a bucket a folder. */
static bool prefix_end(struct tree_place *place)
{
	size_t len = strlen(place->prefix);
	char *end;

	if (!place->bucket || !len || place->prefix[len - 1] == '/')
		return true;
	end = malloc(len + 2);
	if (!end)
		return false;
	memcpy(end, place->prefix, len);
	memcpy(end + len, "/", 2);
	place->prefix = place->owned = end;
	return true;
}

bool tree_target_parse(char *text, struct tree_place *ret_place)
{
	return place_begin(text, ret_place) && prefix_end(ret_place);
}

bool tree_place_parse(char *text, bool whole_names, struct tree_place *ret_place)
{
	const char *key;
	char *end;

	if (!place_begin(text, ret_place))
		return false;
	key = ret_place->prefix;
	if (!ret_place->bucket || !tree_is_glob(key))
		return !whole_names || prefix_end(ret_place);
	ret_place->glob = key;
	/* The prefix is a copy, because the glob needs the rest of the text. */
	end = strndup(key, strcspn(key, "*?["));
	if (!end)
		return false;
	if (whole_names) {
		char *slash = strrchr(end, '/');

		*(slash ? slash + 1 : end) = '\0';
	}
	ret_place->prefix = ret_place->owned = end;
	return true;
}

void tree_place_free(struct tree_place *place)
{
	free(place->owned);
}

bool tree_place_holds(const struct tree_place *outer, const struct tree_place *inner)
{
	return outer->bucket && inner->bucket && !strcmp(outer->bucket, inner->bucket) &&
	       !strncmp(inner->prefix, outer->prefix, strlen(outer->prefix));
}

/* ---- Reading. ---- */

static struct tree_item *tree_add(struct tree *tree, const char *name)
{
	struct tree_item *item;

	if (tree->count == tree->cap) {
		size_t cap = tree->cap ? 2 * tree->cap : 256;
		struct tree_item *items = realloc(tree->items, cap * sizeof(*items));

		if (!items)
			return NULL;
		tree->items = items;
		tree->cap = cap;
	}
	item = &tree->items[tree->count];
	*item = (struct tree_item){.name = strdup(name)};
	if (!item->name)
		return NULL;
	tree->count++;
	return item;
}

struct reading {
	const struct tree_place *place;
	struct tree *tree;
	bool no_memory;
};

static int64_t time_parse(const char *text)
{
	struct tm tm = {0};

	return text && strptime(text, "%Y-%m-%dT%H:%M:%S", &tm) ? timegm(&tm) : 0;
}

static bool take_entry(void *arg, const struct neb_entry *entry)
{
	struct reading *reading = arg;
	size_t prefix_len = strlen(reading->place->prefix);
	struct tree_item *item;

	/* The server may be anybody's. */
	if (strncmp(entry->key, reading->place->prefix, prefix_len) != 0)
		return true;
	if (reading->place->glob && fnmatch(reading->place->glob, entry->key, 0))
		return true;
	item = tree_add(reading->tree, entry->key + prefix_len);
	reading->no_memory = !item;
	if (!item)
		return false;
	item->bytes = entry->bytes;
	item->time_s = time_parse(entry->last_modified);
	snprintf(item->etag, sizeof(item->etag), "%s", entry->etag ? entry->etag : "");
	return true;
}

/* ---- A folder. ---- */

struct walk {
	struct tree *tree;
	bool source;
	size_t skip; /* of a path, to the name in the tree */
	int ret;
	char path[PATH_BYTES];
};

static void walk_failed(struct walk *walk, int error)
{
	fprintf(stderr, "nebulaio: %s: %s\n", remote_text(walk->path), strerror(error));
	walk->tree->incomplete = true;
	walk->ret = CLI_FAILED;
}

/* The state of a link becomes that of the file to which it leads. False: it leads to none. */
static bool walk_link(struct walk *walk, struct stat *st)
{
	if (stat(walk->path, st) == 0)
		return true;
	/* In a target it is a name that a file can replace. */
	if (walk->source)
		walk_failed(walk, errno);
	return false;
}

static void walk_folder(struct walk *walk, size_t len);

/* The path is an entry's of a folder. */
static void walk_entry(struct walk *walk, size_t len)
{
	struct tree_item *item;
	struct stat st;
	bool link;

	if (lstat(walk->path, &st)) {
		walk_failed(walk, errno);
		return;
	}
	link = S_ISLNK(st.st_mode);
	if (link && !walk_link(walk, &st))
		return;
	if (S_ISDIR(st.st_mode) && !link) {
		walk_folder(walk, len);
		return;
	}
	if (!S_ISREG(st.st_mode)) {
		if (walk->source)
			fprintf(stderr, "nebulaio: %s: %s: skipped\n", remote_text(walk->path),
				S_ISDIR(st.st_mode) ? "a link to a folder" : "not a file");
		return;
	}
	item = tree_add(walk->tree, walk->path + walk->skip);
	if (!item) {
		walk_failed(walk, ENOMEM);
		return;
	}
	item->bytes = (uint64_t)st.st_size;
	item->time_s = st.st_mtime;
}

/* Not by fts(3): a folder whose reading fails half way would look like a short one. */
static void walk_folder(struct walk *walk, size_t len)
{
	DIR *dir = opendir(walk->path);
	struct dirent *entry;

	if (!dir) {
		walk_failed(walk, errno);
		return;
	}
	while (errno = 0, (entry = readdir(dir)) != NULL) {
		const char *slash = walk->path[len - 1] == '/' ? "" : "/";
		int added;

		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		added = snprintf(
			walk->path + len, sizeof(walk->path) - len, "%s%s", slash, entry->d_name);
		if ((size_t)added < sizeof(walk->path) - len)
			walk_entry(walk, len + (size_t)added);
		else
			walk_failed(walk, ENAMETOOLONG);
		walk->path[len] = '\0';
	}
	if (errno)
		walk_failed(walk, errno);
	closedir(dir);
}

/* A place that is no folder is an error: mirror would delete all that an empty one lacks. */
static int read_folder(const char *path, bool may_be_absent, struct tree *tree)
{
	struct walk walk = {.tree = tree, .source = !may_be_absent};
	size_t len = strlen(path);
	struct stat st;
	int error;

	if (stat(path, &st))
		error = errno == ENOENT && may_be_absent ? 0 : errno;
	else if (!S_ISDIR(st.st_mode))
		error = ENOTDIR;
	else if (len >= sizeof(walk.path))
		error = ENAMETOOLONG;
	else {
		memcpy(walk.path, path, len + 1);
		walk.skip = len + (path[len - 1] != '/');
		walk_folder(&walk, len);
		return walk.ret;
	}
	if (error)
		fprintf(stderr, "nebulaio: %s: %s\n", remote_text(path), strerror(error));
	if (error == ENOENT)
		return CLI_NOT_FOUND;
	return error ? CLI_FAILED : CLI_OK;
}

static int item_order(const void *a, const void *b)
{
	return strcmp(((const struct tree_item *)a)->name, ((const struct tree_item *)b)->name);
}

int tree_read(struct neb_client *client, const struct tree_place *place, bool may_be_absent,
	struct tree *ret_tree)
{
	struct reading reading = {.place = place, .tree = ret_tree};
	struct neb_list list = {.bucket = place->bucket,
		.prefix = place->prefix,
		.visit = take_entry,
		.arg = &reading};
	struct neb_result result = {0};
	int ret = CLI_OK;

	*ret_tree = (struct tree){0};
	if (!place->bucket) {
		ret = read_folder(place->prefix, may_be_absent, ret_tree);
	} else if (neb_list(client, &list, &result)) {
		ret = remote_failed(place->bucket, &result);
	} else if (reading.no_memory) {
		fprintf(stderr, "nebulaio: not enough memory for the names\n");
		ret = CLI_FAILED;
	}
	/* Not every server's list is in order. */
	if (ret_tree->count)
		qsort(ret_tree->items, ret_tree->count, sizeof(*ret_tree->items), item_order);
	return ret;
}

void tree_free(struct tree *tree)
{
	for (size_t i = 0; i < tree->count; i++)
		free(tree->items[i].name);
	free(tree->items);
	*tree = (struct tree){0};
}

const struct tree_item *tree_clash(const struct tree *tree, const struct tree_place *from,
	const struct tree_place *to, const struct tree_item **ret_replaced)
{
	size_t from_len = strlen(from->prefix);
	char key[PATH_BYTES];

	if (!tree_place_holds(from, to) && !tree_place_holds(to, from))
		return NULL;
	for (size_t i = 0; i < tree->count; i++) {
		const struct tree_item copied = {.name = key + from_len};

		/* A key that does not fit is refused when it is copied. */
		if (snprintf(key, sizeof(key), "%s%s", to->prefix, tree->items[i].name) >=
				(int)sizeof(key) ||
			strncmp(key, from->prefix, from_len) != 0)
			continue;
		*ret_replaced = bsearch(
			&copied, tree->items, tree->count, sizeof(*tree->items), item_order);
		if (*ret_replaced)
			return &tree->items[i];
	}
	return NULL;
}

/* ---- Comparing. ---- */

/* Equal ETags mean equal bytes. Different ones mean different bytes only when both are plain
 * digests: an ETag with a '-' depends on the sizes of the parts. */
static bool etag_is_plain(const char *etag)
{
	return *etag && !strchr(etag, '-');
}

static bool differs(const struct tree_item *from, const struct tree_item *to)
{
	if (from->bytes != to->bytes)
		return true;
	if (*from->etag && !strcmp(from->etag, to->etag))
		return false;
	if (etag_is_plain(from->etag) && etag_is_plain(to->etag))
		return true;
	return from->time_s > to->time_s;
}

int tree_compare(const struct tree *from, const struct tree *to, tree_visit_fn *visit, void *arg)
{
	size_t i = 0, j = 0;
	int ret = 0;

	while (!ret && (i < from->count || j < to->count)) {
		int order;

		if (i == from->count)
			order = 1;
		else if (j == to->count)
			order = -1;
		else
			order = strcmp(from->items[i].name, to->items[j].name);
		if (order < 0) {
			ret = visit(arg, TREE_COPY, &from->items[i++]);
		} else if (order > 0) {
			ret = visit(arg, TREE_EXTRA, &to->items[j++]);
		} else {
			ret = visit(arg,
				differs(&from->items[i], &to->items[j]) ? TREE_CHANGED : TREE_KEEP,
				&from->items[i]);
			i++;
			j++;
		}
	}
	return ret;
}
