/* s3/core/judged.h: what the decision about a call's rights saw of an object: its tags, its access
 * control list, or that there is none. Another call may change these before the first one opens,
 * edits, replaces or deletes the object, which is then refused. */
#ifndef S3_CORE_JUDGED_H
#define S3_CORE_JUDGED_H

#include "s3/core/call.h"

/* Notes that the decision depended on a hidden header of that object. headers: the object's; data
 * NULL: there is no such object. They and the name live as long as the call. -ENOMEM. */
int s3_judged_note(struct s3_call *call, const struct store_name *name, struct slice headers,
	struct slice header);
/* Whether the object of that name still has all that was noted of it. current: it, or NULL. Any
 * thread, while the call waits. */
bool s3_judged_still(const struct s3_judged *judged, const struct store_name *name,
	const struct store_meta *current);
/* The answer when it has not. */
const struct s3_error *s3_judged_changed(struct s3_call *call);

#endif
