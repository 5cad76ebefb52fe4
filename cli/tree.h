/* cli/tree.h: reads the contents of a folder or a prefix as a sorted list of names, and runs many
 * transfers at a time between two such places. */
#ifndef CLI_TREE_H
#define CLI_TREE_H

#include <stdbool.h>
#include <stdint.h>

#include "remote.h"
#include "transfer.h"

#define TREE_WORKERS_MAX 32u

struct tree_item {
	char *name; /* below the place: the key after the prefix, or the path in the folder */
	uint64_t bytes;
	int64_t time_s; /* last change */
	char etag[84];	/* empty for files */
};

/* A folder of this host, or a prefix of a bucket. */
struct tree_place {
	const char *bucket; /* NULL: a folder */
	const char *prefix; /* of the keys; for a folder its path */
	const char *glob; /* of the whole key, or NULL; as fnmatch(3), where '*' matches '/', too */
	char *owned;	  /* the prefix if it is a copy */
};

struct tree {
	struct tree_item *items;
	size_t count, cap;
	bool incomplete; /* names below the place could not be read; this has been printed */
};

/* Whether text has a special character of globs. */
bool tree_is_glob(const char *text);
/* Parses a command's source; the text before a glob is its prefix. With whole_names a prefix is a
 * folder: it gets its '/', and a glob's prefix ends with one. Changes and keeps text; the place
 * is freed after use. False: an s3:// address without a bucket, or an empty text. */
bool tree_place_parse(char *text, bool whole_names, struct tree_place *ret_place);
/* The same for a target with whole names. A target is never a glob: the special characters are part
 * of its prefix. */
bool tree_target_parse(char *text, struct tree_place *ret_place);
void tree_place_free(struct tree_place *place);
/* Whether inner is a prefix of the same bucket that is outer's or begins with it. */
bool tree_place_holds(const struct tree_place *outer, const struct tree_place *inner);
/* Reads all names in the place, sorted. may_be_absent: it is a target, and a folder that does not
 * exist is empty.
 * Links are followed to files, and to a folder only from the place itself. Exit code; the tree may
 * be incomplete if it is not CLI_OK. */
int tree_read(struct neb_client *client, const struct tree_place *place, bool may_be_absent,
	struct tree *ret_tree);
void tree_free(struct tree *tree);
/* The first item of tree, which was read from `from`, whose copy below `to` would replace an item
 * of tree; NULL: none would. *ret_replaced: that item. */
const struct tree_item *tree_clash(const struct tree *tree, const struct tree_place *from,
	const struct tree_place *to, const struct tree_item **ret_replaced);

/* The work to do for one name. */
enum tree_action { TREE_KEEP, TREE_COPY, TREE_CHANGED, TREE_EXTRA };
typedef int tree_visit_fn(void *arg, enum tree_action action, const struct tree_item *item);
/* Walks both in order: COPY, only in from; EXTRA, only in to; CHANGED, in both and different; KEEP,
 * in both and equal. item is from's, except for EXTRA. Two items differ if their lengths differ, or
 * their ETags differ and are plain digests; else, unless the ETags are equal, if from's is younger.
 * Ends when visit does not return 0. */
int tree_compare(const struct tree *from, const struct tree *to, tree_visit_fn *visit, void *arg);

struct tree_copy {
	const struct remote_opts *opts;
	struct tree_place from, to;
	struct tree_item **items; /* borrowed */
	size_t count;
	unsigned workers;
	bool move;				/* delete each source after the copy */
	const struct transfer_headers *headers; /* this and the next two as in transfer.h */
	bool md5;
	bool resume;
	bool quiet;	     /* do not print each name */
	const char *fan_out; /* as in transfer.h */
	const struct neb_fan_out *multicast;
	uint64_t bytes, done; /* out */
};
/* -P's value. CLI_OK; CLI_USAGE, prints why. */
int tree_workers_parse(const struct cli_command *command, const char *text, unsigned *ret_workers);
/* Each worker is a thread with its own client. Tries all items; returns the exit code of the worst.
 */
int tree_copy(struct tree_copy *copy);
/* Deletes names below the place. Exit code. */
int tree_delete(struct neb_client *client, const struct tree_place *place, const char *name);

#endif
