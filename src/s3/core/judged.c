/* s3/core/judged.c: what the decision about a call's rights saw of an object. */
#include "s3/core/judged.h"

#include <errno.h>

#include "s3/core/stored.h"

struct s3_judged {
	struct s3_judged *next;
	struct store_name name;
	bool missing;
	struct slice header, value;
};

int s3_judged_note(struct s3_call *call, const struct store_name *name, struct slice headers,
	struct slice header)
{
	struct s3_judged *judged = mem_arena_get(&call->arena, sizeof(*judged));

	if (!judged)
		return -ENOMEM;
	*judged = (struct s3_judged){.next = call->judged,
		.name = *name,
		.missing = !headers.data,
		.header = header,
		.value = s3_meta_hidden(headers, header)};
	call->judged = judged;
	return 0;
}

static bool is_same(const struct store_name *a, const struct store_name *b)
{
	return slice_eq(a->key, b->key) && slice_eq(a->bucket, b->bucket) &&
	       slice_eq(a->version_id, b->version_id);
}

bool s3_judged_still(const struct s3_judged *judged, const struct store_name *name,
	const struct store_meta *current)
{
	bool missing = !current || current->delete_marker;
	struct slice headers =
		missing ? SLICE_NONE : slice_of(current->headers, current->headers_len);

	for (; judged; judged = judged->next)
		if (is_same(&judged->name, name) &&
			(judged->missing != missing ||
				!slice_eq(s3_meta_hidden(headers, judged->header), judged->value)))
			return false;
	return true;
}

const struct s3_error *s3_judged_changed(struct s3_call *call)
{
	return s3_fail(call, S3_E_SLOW_DOWN,
		"The object was changed while the request was authorized. Please try again.");
}
