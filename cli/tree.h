/* cli/tree.h: the contents of a folder or a prefix as a sorted list of names, and many transfers at
 * a time between two such places. */
#ifndef CLI_TREE_H
#define CLI_TREE_H

#include <stdbool.h>
#include <stdint.h>

#include "remote.h"
#include "transfer.h"

#define TREE_WORKERS_MAX 32u

struct tree_item {
	char *name; /* below the place: what follows the prefix, or the path in the folder */
	uint64_t bytes;
	int64_t time_s; /* last change */
	char etag[84];	/* empty for files */
};

/* A folder of this host, or a prefix of a bucket. */
struct tree_place {
	const char *bucket; /* NULL: a folder */
	const char *prefix; /* of the keys; with a folder its path */
	const char *glob;   /* of the whole key, or NULL: fnmatch(3), where '*' takes '/' too */
};

struct tree {
	struct tree_item *items;
	size_t count, cap;
};

/* Whether text has one of glob's characters. */
bool tree_is_glob(const char *text);
/* Takes a command's argument apart; a glob's prefix is what stands before it. With whole_names a
 * prefix is a folder: it gets its '/', and a glob's ends with one. text is changed and kept, the
 * prefix may be a copy that nobody frees. False: an s3:// address without a bucket. */
bool tree_place_parse(char *text, bool whole_names, struct tree_place *ret_place);
/* All that lies there, in order of name. Folders that links lead to are not entered. Exit code. */
int tree_read(struct neb_client *client, const struct tree_place *place, struct tree *ret_tree);
void tree_free(struct tree *tree);

/* The work to do for one name. */
enum tree_action { TREE_KEEP, TREE_COPY, TREE_CHANGED, TREE_EXTRA };
typedef int tree_visit_fn(void *arg, enum tree_action action, const struct tree_item *item);
/* Walks both in order: COPY, only in from; EXTRA, only in to; CHANGED, in both and different, KEEP
 * not. item is of from, but for EXTRA. Different: another length; other ETags that are plain
 * digests; else, unless the ETags are equal, from is the younger. Ends when visit does not return
 * 0. */
int tree_compare(const struct tree *from, const struct tree *to, tree_visit_fn *visit, void *arg);

struct tree_copy {
	const struct remote_opts *opts;
	struct tree_place from, to;
	struct tree_item **items; /* borrowed */
	size_t count;
	unsigned workers;
	bool move;				/* delete each source when it is copied */
	const struct transfer_headers *headers; /* this and the next two as transfer.h's */
	bool md5;
	bool resume;
	bool quiet;	      /* do not print each name */
	uint64_t bytes, done; /* out */
};
/* -P's value. CLI_OK; CLI_USAGE (said why). */
int tree_workers_parse(const struct cli_command *command, const char *text, unsigned *ret_workers);
/* Each worker is a thread with a client of its own. All are tried; the exit code is of the worst.
 */
int tree_copy(struct tree_copy *copy);
/* Deletes names below the place. Exit code. */
int tree_delete(struct neb_client *client, const struct tree_place *place, const char *name);

#endif
