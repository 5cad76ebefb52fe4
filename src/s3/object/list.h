/* s3/object/list.h: common parts of ListObjects, ListObjectsV2 and ListObjectVersions: parameters,
 * one walk of the store, entries as XML. */
#ifndef S3_LIST_H
#define S3_LIST_H

#include "iam/iam.h"
#include "s3/core/call.h"

/* An id and a name, each byte escaped. */
#define S3_OWNER_XML_MAX 1536u

struct s3_list {
	struct s3_call *call;
	struct slice prefix, delimiter, after, version_after;
	uint64_t keys_max;
	bool url;			  /* encoding-type=url */
	bool owner;			  /* entries name their owner */
	bool owner_of_all;		  /* the bucket's owner, for every writer */
	char owner_xml[S3_OWNER_XML_MAX]; /* <Owner>…</Owner>; empty when it is too long */
	size_t owner_xml_len;
	bool version; /* entries are versions */
	/* A marker inside a common prefix stands for it: the prefix was listed before, or is not
	 * wanted. In ListObjectsV2 it does not. */
	bool skips_prefix;
	/* Results of the walk. */
	struct buf entries, prefixes;
	uint64_t day_after;    /* of the previous entry, in days since 1970; 0: none */
	uint64_t second_after; /* the same, in seconds */
	char day_text[DATE_ISO_LEN];
	uint32_t count;
	bool more;
	char last_version[33]; /* empty: the last entry is a prefix */
	size_t last_len;       /* the last entry, key or prefix */
	char last[LIMIT_KEY_LEN_MAX];
};

/* The error of an encoding-type other than "url". */
const struct s3_error *s3_list_encoding_error(struct s3_call *call, struct slice value);

/* The parts that differ between the three documents: their functions read their own parameters and
 * write the start and the end of the page. */
struct s3_listing {
	const char *root;
	const struct s3_error *(*parse)(struct s3_call *call, struct s3_list *list, void *arg);
	void (*put)(const struct s3_list *list, void *arg, struct buf *xml);
};
/* The whole operation. arg is passed to the listing's functions. */
const struct s3_error *s3_list_answer(
	struct s3_call *call, const struct s3_listing *listing, void *arg);
/* <name>text</name>, encoded as the request asks. */
void s3_list_element(
	const struct s3_list *list, const char *name, struct slice text, struct buf *xml);

#endif
