/* region/view_priv.h: shared by the files that map a region's view and report on it. */
#ifndef REGION_VIEW_PRIV_H
#define REGION_VIEW_PRIV_H

#include "region/shared_priv.h"

struct region_view {
	const uint8_t *base; /* arena 0, read-only; the owner goes on writing */
	uint64_t bytes;
	struct region_header header; /* our copy, checked */
};

/* Maps and checks the first arena behind fd, which stays the caller's. -EPROTO: its header is
 * inconsistent. */
int region_view_map(int fd, struct region_view **ret_view);

#endif
