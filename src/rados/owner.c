/* rados/owner.c: a volume has one owner, the only server that writes to it. docs/design/cluster.md
 * has the argument.
 *
 * The head has the owner's record, which is changed only by compare-and-write, and a lock with a
 * duration, which the owner renews. A server that gets the lock does not have the volume yet: it
 * reads the record, has the cluster refuse everything that the process named there still sends
 * (blocklist), waits until its own operations carry that decision, and then puts its record in the
 * place of that one. So the lock decides only when a volume may be taken, and no clock decides who
 * may write. Clocks decide who may read: the taker waits until the former owner's last
 * renewal is too old for it to answer (life.c). */
#include "base/process.h"
#include "rados/rv_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

#define RECORD_NONE "-"
/* An owner that sleeps longer than this and then goes on to write is not refused any more. */
#define BLOCKLIST_S (30u * 24 * 3600)
/* The lease ends for its holder this part earlier than the lock does in the cluster. */
#define MARGIN_PART 4u
#define REST_NS	    (200 * NS_PER_MS)

/* An owner is a process on a host. */
struct record {
	char addr[128];
	struct process process;
};

static int record_make(struct rv_volume *volume)
{
	struct process self;
	char *addrs = NULL;
	int ret = rados_getaddrs(volume->rv->cluster, &addrs);

	if (ret)
		return ret;
	process_self(&self);
	ret = (size_t)snprintf(volume->owner, sizeof(volume->owner), "1 %s %s %s %s %llu %llu %s",
		      addrs, self.host, self.boot[0] ? self.boot : "-",
		      self.pids[0] ? self.pids : "-", self.pid, self.start,
		      volume->cookie) < sizeof(volume->owner)
		      ? 0
		      : -ENAMETOOLONG;
	rados_buffer_free(addrs);
	return ret;
}

static int record_parse(const char *text, struct record *ret_record)
{
	struct process *process = &ret_record->process;
	int count = sscanf(text, "1 %127s %79s %47s %47s %llu %llu", ret_record->addr,
		process->host, process->boot, process->pids, &process->pid, &process->start);

	return count == 6 ? 0 : -EUCLEAN;
}

/* "[v2:10.0.0.1:0/7,v1:10.0.0.1:0/7]" or one address without a kind: the cluster refuses a client
 * by each of its addresses, and they differ only in the kind. */
static void addr_bare(const char *addrs, char *ret_addr, size_t cap)
{
	bool several = strncmp(addrs, "[v", 2) == 0 || strncmp(addrs, "[any", 4) == 0;
	const char *at = addrs + several;

	if (strncmp(at, "v1:", 3) == 0 || strncmp(at, "v2:", 3) == 0)
		at += 3;
	else if (strncmp(at, "any:", 4) == 0)
		at += 4;
	snprintf(ret_addr, cap, "%s", at);
	ret_addr[strcspn(ret_addr, ",")] = '\0';
	if (several && ret_addr[0] && ret_addr[strlen(ret_addr) - 1] == ']')
		ret_addr[strlen(ret_addr) - 1] = '\0';
}

/* From here on, nothing that the former owner still sends takes effect on an object that we have
 * used. */
static int fence(struct rv_volume *volume, const struct record *record)
{
	char addr[128];
	int ret;

	addr_bare(record->addr, addr, sizeof(addr));
	ret = rados_blocklist_add(volume->rv->cluster, addr, BLOCKLIST_S);
	if (!ret)
		ret = rados_wait_for_latest_osdmap(volume->rv->cluster);
	if (ret)
		log_error("rados",
			"%s: its last owner was %s (process %llu, %s), which did not give it up, "
			"and cannot be put on the cluster's blocklist: %s%s",
			volume->path, record->process.host, record->process.pid, addr,
			strerror(-ret),
			ret == -EACCES || ret == -EPERM ? ": the Ceph user needs mon 'profile rbd'"
							: "");
	else
		log_info("rados",
			"%s: its last owner was %s (process %llu, %s), which did not give it up: "
			"the cluster refuses what it still sends",
			volume->path, record->process.host, record->process.pid, addr);
	return ret;
}

static int lock(struct rv_volume *volume, bool renew)
{
	struct timeval duration = {.tv_sec = (time_t)volume->rv->opts.lease_s};
	uint64_t begun_ns = clock_boot_ns();
	int ret = rados_lock_exclusive(volume->front, RV_HEAD, RV_LOCK, volume->cookie, "nebulaio",
		&duration, renew ? LIBRADOS_LOCK_FLAG_MAY_RENEW : 0);

	if (!ret)
		volume->lease_begun_ns = begun_ns;
	return ret;
}

/* From the last renewal on. */
static void lease_set(struct rv_volume *volume)
{
	uint64_t lease_ns = (uint64_t)volume->rv->opts.lease_s * NS_PER_S;
	uint64_t until_ns = volume->lease_begun_ns + lease_ns - lease_ns / MARGIN_PART;

	atomic_store(&volume->lease_until_ns, until_ns);
	life_renew(&volume->life, until_ns);
}

/* One operation: our record in the place of the one seen. -ECANCELED: it changed meanwhile. */
static int record_swap(struct rv_volume *volume, const struct rv_seen *seen, uint64_t quiet_ns)
{
	char life[RV_LIFE_BYTES];
	rados_write_op_t op = rados_create_write_op();
	int ret;

	if (quiet_ns)
		rv_life_quiet(volume, quiet_ns, life);
	else
		rv_life_write(volume, life);
	rados_write_op_cmpxattr(
		op, "owner", LIBRADOS_CMPXATTR_OP_EQ, seen->owner, strlen(seen->owner));
	rados_write_op_setxattr(op, "owner", volume->owner, strlen(volume->owner));
	rados_write_op_setxattr(op, "life", life, strlen(life));
	ret = rados_write_op_operate(op, volume->front, RV_HEAD, NULL, 0);
	rados_release_write_op(op);
	return ret;
}

/* With the lock: takes the last owner's place. ret_quiet_ns: it may answer reads until then. */
static int record_take(struct rv_volume *volume, struct rv_seen *seen, uint64_t *ret_quiet_ns)
{
	struct record record;
	char fenced[sizeof(seen->owner)];
	bool owned, dead = false;
	int ret = rv_seen_read(volume, seen);

	*ret_quiet_ns = 0;
	if (ret)
		return ret;
	memcpy(fenced, seen->owner, sizeof(fenced));
	owned = strcmp(seen->owner, RECORD_NONE) != 0;
	if (owned) {
		ret = record_parse(seen->owner, &record);
		if (ret) {
			log_error("rados", "%s: its owner's record cannot be read: %s",
				volume->path, seen->owner);
			return ret;
		}
		dead = process_dead(&record.process);
		ret = fence(volume, &record);
	} else {
		/* An owner before the last one may have been fenced. */
		ret = rados_wait_for_latest_osdmap(volume->rv->cluster);
	}
	/* From the fence on, the owner renews no more: this is its last renewal. */
	if (!ret && owned)
		ret = rv_seen_read(volume, seen);
	/* Another taker was faster, and its record is of a process that is not fenced. */
	if (!ret && owned && strcmp(seen->owner, fenced) != 0)
		ret = -ECANCELED;
	if (!ret && owned)
		ret = rv_seen_until(volume, seen, dead, ret_quiet_ns);
	return ret ? ret : record_swap(volume, seen, *ret_quiet_ns);
}

/* We are the owner, and answer nothing before the former one certainly does not any more. */
static int quiet_wait(struct rv_volume *volume, uint64_t until_ns)
{
	uint64_t pause_ns = (uint64_t)volume->rv->opts.lease_s * NS_PER_S / 3;
	uint64_t now_ns = clock_boot_ns();
	int ret = 0;

	/* Taking it may have lasted longer than the lock. */
	if (!until_ns)
		return now_ns - volume->lease_begun_ns < pause_ns ? 0 : rv_life_renew(volume);
	if (now_ns < until_ns)
		log_info("rados",
			"%s: it is served in %llu ms: its last owner may answer reads until then",
			volume->path, (unsigned long long)((until_ns - now_ns) / NS_PER_MS));
	while (!ret && now_ns < until_ns) {
		uint64_t rest_ns = MIN(until_ns - now_ns, REST_NS);

		nanosleep(&(struct timespec){.tv_nsec = (long)rest_ns}, NULL);
		now_ns = clock_boot_ns();
		if (now_ns - volume->lease_begun_ns >= pause_ns)
			ret = lock(volume, true);
	}
	return ret ? ret : rv_life_renew(volume);
}

/* Ends the lock of a process that has ended, instead of waiting until it runs out. Another taker
 * may have done so, and have the lock by now: a record ends with its lock's cookie. */
static int lock_break(struct rv_volume *volume, const char *owner)
{
	const char *cookie = strrchr(owner, ' ');
	char tag[64], clients[128], cookies[128], addrs[256];
	size_t tag_len = sizeof(tag), clients_len = sizeof(clients), cookies_len = sizeof(cookies),
	       addrs_len = sizeof(addrs);
	int exclusive;
	ssize_t count = rados_list_lockers(volume->front, RV_HEAD, RV_LOCK, &exclusive, tag,
		&tag_len, clients, &clients_len, cookies, &cookies_len, addrs, &addrs_len);

	if (count <= 0)
		return (int)count;
	if (!cookie || strcmp(cookies, cookie + 1) != 0)
		return -EBUSY;
	return rados_break_lock(volume->front, RV_HEAD, RV_LOCK, clients, cookies);
}

/* The lock is another's. 0: it may be tried again at once. */
static int busy(struct rv_volume *volume, struct rv_seen *seen, struct record *ret_record)
{
	int ret = rv_seen_read(volume, seen);

	*ret_record = (struct record){.process = {.host = "another server"}};
	if (ret || record_parse(seen->owner, ret_record) || !process_dead(&ret_record->process))
		return -EBUSY;
	ret = fence(volume, ret_record);
	if (!ret)
		ret = lock_break(volume, seen->owner);
	return ret == -ENOENT ? 0 : ret;
}

struct wait {
	uint64_t deadline_ns;
	bool told;
};

/* -ECANCELED: a signal ends the wait. */
static int wait_canceled(const struct rv_volume *volume)
{
	if (!process_asked_to_end())
		return 0;
	log_info("rados", "%s: a signal ends the wait for it", volume->path);
	return -ECANCELED;
}

/* -EBUSY: it has waited long enough; -ECANCELED. */
static int wait_more(struct rv_volume *volume, struct wait *wait, const struct record *record)
{
	bool over = !volume->rv->opts.standby && clock_now_ns() >= wait->deadline_ns;
	int ret = wait_canceled(volume);

	if (ret)
		return ret;
	if (over) {
		log_error("rados",
			"%s: %s (process %llu, %s) has this volume open: stop that server, or "
			"start this one with cluster.standby: true, and it waits",
			volume->path, record->process.host, record->process.pid, record->addr);
		return -EBUSY;
	}
	if (!wait->told)
		log_info("rados", "%s: %s (process %llu, %s) has it; %s", volume->path,
			record->process.host, record->process.pid, record->addr,
			volume->rv->opts.standby ? "standing by until it has no owner"
						 : "waiting for the end of its lease");
	wait->told = true;
	nanosleep(&(struct timespec){.tv_nsec = (long)REST_NS}, NULL);
	return 0;
}

static void cookie_draw(struct rv_volume *volume)
{
	uint8_t id[16];

	random_fill(id, sizeof(id));
	for (uint32_t i = 0; i < sizeof(id); i++)
		snprintf(&volume->cookie[2 * i], 3, "%02x", id[i]);
}

int rv_own(struct rv_volume *volume, uint64_t wait_ns)
{
	struct wait wait = {.deadline_ns = clock_now_ns() + wait_ns};
	struct rv_seen seen = {0};
	int ret;

	cookie_draw(volume);
	ret = record_make(volume);
	while (!ret && !volume->owns) {
		struct record record;
		uint64_t quiet_ns;

		ret = lock(volume, false);
		/* A standby outlasts a cluster that does not answer. A lock that was granted
		 * nevertheless is given back below. */
		if (ret == -ETIMEDOUT && volume->rv->opts.standby) {
			ret = wait_canceled(volume);
			continue;
		}
		if (!ret)
			ret = record_take(volume, &seen, &quiet_ns);
		if (!ret) {
			ret = quiet_wait(volume, quiet_ns);
			if (ret)
				return ret == -EBUSY || ret == -ECANCELED ? -ESHUTDOWN : ret;
			volume->owns = true;
			lease_set(volume);
		} else if (ret == -EBUSY) {
			ret = busy(volume, &seen, &record);
			if (ret == -EBUSY)
				ret = wait_more(volume, &wait, &record);
		} else if (ret == -ECANCELED || ret == -EEXIST) {
			/* We were too slow: another server took it after our lock had run out. */
			(void)rados_unlock(volume->front, RV_HEAD, RV_LOCK, volume->cookie);
			ret = 0;
		}
	}
	return ret;
}

/* All our writes have ended. */
void rv_disown(struct rv_volume *volume)
{
	rados_write_op_t op;
	int ret;

	if (!volume->owns || atomic_load(&volume->lost))
		return;
	op = rados_create_write_op();
	rados_write_op_cmpxattr(
		op, "owner", LIBRADOS_CMPXATTR_OP_EQ, volume->owner, strlen(volume->owner));
	rados_write_op_setxattr(op, "owner", RECORD_NONE, strlen(RECORD_NONE));
	ret = rados_write_op_operate(op, volume->front, RV_HEAD, NULL, 0);
	rados_release_write_op(op);
	if (!ret)
		ret = rados_unlock(volume->front, RV_HEAD, RV_LOCK, volume->cookie);
	if (ret)
		log_warn("rados",
			"%s: it could not be given up (%s): the next owner waits until the lease "
			"is over",
			volume->path, strerror(-ret));
	volume->owns = false;
}

int rv_renew(struct rv_volume *volume)
{
	int ret = rv_life_renew(volume);

	if (ret == -ECANCELED)
		ret = -ESHUTDOWN;
	if (ret == -ESHUTDOWN) {
		rv_lost(volume);
	} else if (ret && !volume->renew_told) {
		log_warn("rados", "%s: its lease cannot be renewed: %s", volume->path,
			strerror(-ret));
		volume->renew_told = true;
	} else if (!ret) {
		lease_set(volume);
		volume->renew_told = false;
	}
	return ret;
}

void rv_lost(struct rv_volume *volume)
{
	if (atomic_exchange(&volume->lost, true))
		return;
	atomic_store(&volume->lease_until_ns, 0);
	life_renew(&volume->life, 0);
	log_error("rados",
		"%s: another server has taken this volume, because this one did not renew its "
		"lease: nothing more is written from here",
		volume->path);
	if (volume->rv->opts.lost)
		volume->rv->opts.lost(volume->rv->opts.lost_arg);
}
