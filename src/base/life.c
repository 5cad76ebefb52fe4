/* base/life.c: see life.h. */
#include "base/life.h"

#include <pthread.h>

_Atomic uint64_t life_until_ns = LIFE_FOREVER;

static pthread_mutex_t lives_lock = PTHREAD_MUTEX_INITIALIZER;
static struct life *lives;

static void earliest_set(void)
{
	uint64_t until_ns = LIFE_FOREVER;

	for (const struct life *life = lives; life; life = life->next)
		until_ns = life->until_ns < until_ns ? life->until_ns : until_ns;
	atomic_store(&life_until_ns, until_ns);
}

void life_renew(struct life *life, uint64_t until_ns)
{
	pthread_mutex_lock(&lives_lock);
	life->until_ns = until_ns;
	if (!life->bound) {
		life->next = lives;
		lives = life;
		life->bound = true;
	}
	earliest_set();
	pthread_mutex_unlock(&lives_lock);
}

void life_end(struct life *life)
{
	pthread_mutex_lock(&lives_lock);
	for (struct life **at = &lives; life->bound && *at; at = &(*at)->next) {
		if (*at != life)
			continue;
		*at = life->next;
		life->bound = false;
		break;
	}
	earliest_set();
	pthread_mutex_unlock(&lives_lock);
}
