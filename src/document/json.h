/* document/json.h: members of JSON objects, by their names; what is not there, or of another kind,
 * is empty or 0. */
#ifndef DOCUMENT_JSON_H
#define DOCUMENT_JSON_H

#include <jansson.h>

#include "base/base.h"

/* A text of an object; empty when it has none. */
struct slice json_member_text(const json_t *object, const char *name);
int64_t json_member_number(const json_t *object, const char *name);
/* A member that is an object (or a list); made when it is missing. NULL: no memory. */
json_t *json_member_object(json_t *object, const char *name);
json_t *json_member_list(json_t *object, const char *name);
/* 0, or -ENOMEM. */
int json_member_set_text(json_t *object, const char *name, struct slice value);
/* Where a text stands in a list of texts; false: nowhere. */
bool json_list_find_text(const json_t *list, struct slice text, size_t *ret_idx);
/* Whether JSON opens at most so many brackets inside each other: what may be given to a parser that
 * calls itself. */
bool json_is_flat(struct slice text, uint32_t depth_max);

#endif
