/* tests/unit/s3/fake_frames.c: frames that never run short and belong to nobody, and one volume. */
#include <errno.h>
#include <string.h>

#include "fake.h"
#include "store/local.h"

struct flow_core fake_core;
bool fake_walks_refused;
uint32_t fake_walks;
uint32_t fake_joins;

void flow_lender_add(struct flow_core *core, struct flow_lender *lender,
	void (*call_in)(struct flow_lender *lender))
{
	(void)core;
	lender->call_in = call_in;
}

void flow_lender_remove(struct flow_lender *lender)
{
	(void)lender;
}

void region_copy(void *dst, const void *src, size_t bytes, enum region_copy_why why)
{
	(void)why;
	memcpy(dst, src, bytes);
}

uint16_t flow_share_of(const struct flow_budget *budget, struct slice principal)
{
	(void)budget;
	(void)principal;
	return FLOW_SHARE_OWN;
}

void fiber_group_set(uint16_t group)
{
	(void)group;
	fake_joins++;
}

bool flow_walk_begin(struct flow_budget *budget, uint16_t share)
{
	(void)budget;
	(void)share;
	fake_walks += !fake_walks_refused;
	return !fake_walks_refused;
}

void flow_walk_end(struct flow_budget *budget, uint16_t share)
{
	(void)budget;
	(void)share;
	CHECK(fake_walks > 0);
	fake_walks--;
}

void fiber_request_set(const char *id)
{
	(void)id;
}

uint32_t store_volumes(struct store *store, struct store_volume *ret_volumes, uint32_t max)
{
	(void)store;
	(void)ret_volumes;
	(void)max;
	return 0;
}

int store_volume_replace(struct store *store, uint32_t member, const char *path)
{
	(void)store;
	(void)member;
	(void)path;
	return -ENOENT; /* it has one volume */
}

int store_scrub_ask(struct store *store)
{
	(void)store;
	return -EALREADY;
}

void store_scrub_status(struct store *store, struct store_scrub *ret_status)
{
	(void)store;
	*ret_status = (struct store_scrub){0};
}
