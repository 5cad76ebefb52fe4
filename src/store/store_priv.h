/* store/store_priv.h: all of store, for what stands on top of its rooms, and for its tests. */
#ifndef STORE_PRIV_H
#define STORE_PRIV_H

#include "store/store.h"

#include "store/applier.h"
#include "store/body.h"
#include "store/cache.h"
#include "store/check.h"
#include "store/coalesce.h"
#include "store/commit.h"
#include "store/committer.h"
#include "store/index.h"
#include "store/journal.h"
#include "store/key.h"
#include "store/object.h"
#include "store/record.h"
#include "store/space.h"
#include "store/state.h"
#include "store/table.h"
#include "store/volume.h"
#include "store/waiter.h"

#endif
