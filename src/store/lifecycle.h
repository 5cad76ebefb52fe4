/* store/lifecycle.h: the interface between a job that walks a bucket's versions and the code that
 * knows the bucket's rules: the job's questions and its reports. job asks and s3 answers; neither
 * depends on the other. */
#ifndef STORE_LIFECYCLE_H
#define STORE_LIFECYCLE_H

#include "store/api.h"

struct store_lifecycle_version {
	struct slice key;
	const struct store_meta *meta;
	bool whole; /* meta has the stored headers */
	bool current;
	bool alone;		/* its key has no other version */
	uint64_t noncurrent_ns; /* time since which it is not current */
	uint32_t newer;		/* number of newer versions that are not current */
};
enum store_lifecycle_verdict {
	STORE_LIFECYCLE_KEEP,
	STORE_LIFECYCLE_LOOK, /* ask again with the complete version */
	STORE_LIFECYCLE_EXPIRE,
	STORE_LIFECYCLE_DELETE_VERSION,
	STORE_LIFECYCLE_RECLASS
};
/* The action on a version. */
struct store_lifecycle_action {
	enum store_lifecycle_verdict verdict;
	struct slice key;
	const struct store_meta *meta; /* of the version, as it is */
	struct store_flags flags;      /* …_RECLASS: what is set */
};

#endif
