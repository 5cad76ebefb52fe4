/* store/store_priv.h: all headers of store, for its top-level files and its tests. */
#ifndef STORE_PRIV_H
#define STORE_PRIV_H

#include "store/local.h"

#include "reactor/waiter.h"
#include "store/call/call.h"
#include "store/check/check.h"
#include "store/commit/body.h"
#include "store/commit/commit.h"
#include "store/commit/committer.h"
#include "store/commit/index_apply.h"
#include "store/image/image.h"
#include "store/index/index.h"
#include "store/index/merge.h"
#include "store/log/journal.h"
#include "store/log/key.h"
#include "store/object/cache.h"
#include "store/object/object.h"
#include "store/object/record.h"
#include "store/space/space.h"
#include "store/state/state.h"
#include "store/table/list_table.h"
#include "store/table/row_tree.h"
#include "store/table/table.h"
#include "store/volume/volume.h"

#endif
