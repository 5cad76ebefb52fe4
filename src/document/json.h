/* document/json.h: members of JSON objects, by name. A member that is missing or of another type
 * reads as empty or 0. */
#ifndef DOCUMENT_JSON_H
#define DOCUMENT_JSON_H

#include <jansson.h>

#include "base/base.h"

/* A text member of an object; empty without one. */
struct slice json_member_text(const json_t *object, const char *name);
int64_t json_member_number(const json_t *object, const char *name);
/* A member that is an object (or a list); created if it is missing. NULL: no memory. */
json_t *json_member_object(json_t *object, const char *name);
json_t *json_member_list(json_t *object, const char *name);
/* 0, or -ENOMEM. */
int json_member_set_text(json_t *object, const char *name, struct slice value);
/* Finds a text in a list of texts; false: not in the list. */
bool json_list_find_text(const json_t *list, struct slice text, size_t *ret_idx);
/* Whether JSON nests at most this many brackets: a check before it is given to a recursive parser.
 */
bool json_is_flat(struct slice text, uint32_t depth_max);

#endif
