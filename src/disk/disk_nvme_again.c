/* disk/disk_nvme_again.c: repeats commands that a controller could not do at the moment. The kernel
 * does that for its own commands, and leaves those of passthrough to the program: without it a
 * drive that is busy with itself for a second would count as one that failed.
 *
 * Source: NVM Express Base Specification 2.0, 3.3.3.2.1 (Do Not Retry), 4.6 (statuses). */
#include "disk/disk_nvme.h"

#include <errno.h>

#define STATUS_DO_NOT_RETRY 0x4000u
/* With the rests between them, about 3 s. */
#define TRIES_MAX 5u
#define REST_NS	  (100 * NS_PER_MS)

DEFINE_COUNTER(repeated, "nebulaio_disk_nvme_repeated_total", NULL,
	"Commands that were sent again because the controller could not do them at the moment.");

/* Reads and writes at fixed places may be done twice, as may all other commands that we send. */
static bool passes(int32_t status)
{
	return status > 0 && !((uint32_t)status & STATUS_DO_NOT_RETRY) &&
	       nvme_status_errno((uint32_t)status) == -EIO;
}

static uint64_t rest_until_ns(uint32_t tries)
{
	return clock_now_ns() + (REST_NS << (tries - 1));
}

static void rested(struct reactor_timer *timer, void *arg)
{
	struct nvme_command *command = (struct nvme_command *)arg;

	(void)timer;
	/* It counts again from here on. */
	command->io->split.pending--;
	nvme_send(command->self, command);
}

bool nvme_again(struct nvme_core *self, struct nvme_command *command, int32_t status)
{
	if (!passes(status) || command->tries == TRIES_MAX)
		return false;
	counter_add(&repeated, 1);
	command->tries++;
	command->self = self;
	command->rest = (struct reactor_timer){.fn = rested, .arg = command};
	reactor_timer_set(self->core->reactor, &command->rest, rest_until_ns(command->tries));
	return true;
}

int nvme_now(struct disk *disk, const struct nvme_command *command)
{
	int ret = disk->nvme->transport->now(disk, command);

	for (uint32_t tries = 1; passes(ret) && tries <= TRIES_MAX; tries++) {
		uint64_t until_ns = rest_until_ns(tries);

		while (clock_rest(until_ns))
			;
		counter_add(&repeated, 1);
		ret = disk->nvme->transport->now(disk, command);
	}
	return ret;
}
