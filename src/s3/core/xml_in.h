/* s3/core/xml_in.h: XML in: a small tree in the arena. */
#ifndef S3_CORE_XML_IN_H
#define S3_CORE_XML_IN_H

#include "s3/core/call.h"

#define S3_XML_DEPTH_MAX 16u
#define S3_XML_NODES_MAX 65536u /* 10,000 parts with their checksums */

struct s3_xml {
	struct slice name; /* without its prefix */
	struct slice text; /* character data directly inside, unchanged */
	struct s3_xml *child;
	struct s3_xml *next;
};
/* -EINVAL: not well-formed, a DTD, or beyond a limit (depth, elements, length); -ENOMEM. */
int s3_xml_parse(struct slice text, struct mem_arena *arena, struct s3_xml **ret_root);
/* The first child of that name, or NULL. */
const struct s3_xml *s3_xml_child(const struct s3_xml *node, const char *name);
/* The text of the first child of that name; empty when absent. */
struct slice s3_xml_text(const struct s3_xml *node, const char *name);
/* Puts a first child of that name with a random text into a node: rules that came without an id get
 * one, which is stored. -ENOMEM. */
int s3_xml_add_id(
	struct s3_xml *node, const char *name, struct mem_arena *arena, struct slice *ret_id);

#endif
