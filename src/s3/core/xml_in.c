/* s3/core/xml_in.c: parses request documents into a small tree, by expat, with limits on length,
 * depth and number of elements. A document type declaration is an error, so a document cannot
 * define entities. */
#include <errno.h>
#include <expat.h>

#include "s3/core/xml_in.h"

struct parse {
	XML_Parser parser;
	struct mem_arena *arena;
	struct s3_xml *root;
	struct s3_xml *open[S3_XML_DEPTH_MAX];
	struct s3_xml *last_child[S3_XML_DEPTH_MAX];
	uint32_t depth;
	uint32_t nodes;
	int error;
};

static void stop(struct parse *parse, int error)
{
	if (!parse->error)
		parse->error = error;
	XML_StopParser(parse->parser, XML_FALSE);
}

static void start_doctype(void *arg, const XML_Char *name, const XML_Char *system_id,
	const XML_Char *public_id, int has_internal_subset)
{
	(void)name;
	(void)system_id;
	(void)public_id;
	(void)has_internal_subset;
	stop(arg, -EINVAL);
}

static void start_element(void *arg, const XML_Char *name, const XML_Char **attributes)
{
	const char *colon = strrchr(name, ':');
	struct parse *parse = arg;
	struct s3_xml *node;

	(void)attributes;
	if (parse->depth == S3_XML_DEPTH_MAX || parse->nodes == S3_XML_NODES_MAX) {
		stop(parse, -EINVAL);
		return;
	}
	node = mem_arena_get(parse->arena, sizeof(*node));
	if (node)
		*node = (struct s3_xml){
			.name = mem_arena_copy(parse->arena, slice_str(colon ? colon + 1 : name))};
	if (!node || !node->name.data) {
		stop(parse, -ENOMEM);
		return;
	}
	if (parse->depth == 0)
		parse->root = node;
	else if (parse->last_child[parse->depth - 1])
		parse->last_child[parse->depth - 1]->next = node;
	else
		parse->open[parse->depth - 1]->child = node;
	if (parse->depth)
		parse->last_child[parse->depth - 1] = node;
	parse->open[parse->depth] = node;
	parse->last_child[parse->depth] = NULL;
	parse->depth++;
	parse->nodes++;
}

static void end_element(void *arg, const XML_Char *name)
{
	struct parse *parse = arg;

	(void)name;
	if (!parse->error)
		parse->depth--;
}

/* Joins the pieces of one text; expat splits at every entity and line end. Joining many pieces
 * costs arena memory quadratic in their number, so blank text between elements is skipped. */
static void character_data(void *arg, const XML_Char *data, int len)
{
	struct parse *parse = arg;
	struct s3_xml *node;
	char *joined;

	if (parse->error || !parse->depth || len <= 0)
		return;
	node = parse->open[parse->depth - 1];
	if (node->child)
		return;
	if (node->text.data && node->text.data + node->text.len == parse->arena->at &&
		parse->arena->end - parse->arena->at >= len) {
		memcpy(parse->arena->at, data, (size_t)len);
		parse->arena->at += len;
		node->text.len += (size_t)len;
		return;
	}
	joined = mem_arena_get(parse->arena, 2 * node->text.len + (size_t)len);
	if (!joined) {
		stop(parse, -ENOMEM);
		return;
	}
	if (node->text.len)
		memcpy(joined, node->text.data, node->text.len);
	memcpy(joined + node->text.len, data, (size_t)len);
	node->text = slice_of(joined, node->text.len + (size_t)len);
	/* Appends the next piece to the rest of the allocation. */
	parse->arena->at = joined + node->text.len;
}

int s3_xml_parse(struct slice text, struct mem_arena *arena, struct s3_xml **ret_root)
{
	struct parse parse = {.arena = arena};
	enum XML_Status status;

	if (text.len > LIMIT_XML_BODY_BYTES_MAX)
		return -EINVAL;
	parse.parser = XML_ParserCreate(NULL);
	if (!parse.parser)
		return -ENOMEM;
	XML_SetUserData(parse.parser, &parse);
	XML_SetElementHandler(parse.parser, start_element, end_element);
	XML_SetCharacterDataHandler(parse.parser, character_data);
	XML_SetStartDoctypeDeclHandler(parse.parser, start_doctype);
	status = XML_Parse(parse.parser, text.data, (int)text.len, XML_TRUE);
	XML_ParserFree(parse.parser);
	if (parse.error)
		return parse.error;
	if (status != XML_STATUS_OK || !parse.root)
		return -EINVAL;
	*ret_root = parse.root;
	return 0;
}

const struct s3_xml *s3_xml_child(const struct s3_xml *node, const char *name)
{
	struct slice wanted = slice_str(name);

	for (const struct s3_xml *child = node->child; child; child = child->next)
		if (slice_eq(child->name, wanted))
			return child;
	return NULL;
}

struct slice s3_xml_text(const struct s3_xml *node, const char *name)
{
	const struct s3_xml *child = s3_xml_child(node, name);

	return child ? child->text : SLICE_NONE;
}

int s3_xml_add_id(
	struct s3_xml *node, const char *name, struct mem_arena *arena, struct slice *ret_id)
{
	struct s3_xml *id = mem_arena_get(arena, sizeof(*id));
	uint8_t random[12];
	char *text = mem_arena_get(arena, 2 * sizeof(random));

	if (!id || !text)
		return -ENOMEM;
	random_fill(random, sizeof(random));
	hex_encode(random, sizeof(random), text);
	*id = (struct s3_xml){.name = slice_str(name),
		.text = slice_of(text, 2 * sizeof(random)),
		.next = node->child};
	node->child = id;
	*ret_id = id->text;
	return 0;
}
