/* server/job/job.h: background jobs, one fiber each, which yields between its steps. Functions of
 * the caller implement the S3 rules, because job uses only the store. */
#ifndef SERVER_JOB_JOB_H
#define SERVER_JOB_JOB_H

#include "base/base.h"
#include "reactor/reactor.h"
#include "store/lifecycle.h"
#include "store/local.h"

/* ---- Lifecycle: walks all versions of the buckets that have rules, again and again. ---- */
/* Called on the job's fiber. They may block, except judge, may_delete and is_current, which run in
 * a commit, too. */
struct job_lifecycle_ops {
	/* A bucket's rules. -ENOENT: it has none. */
	int (*open)(void *arg, struct slice bucket, void **ret_rules);
	void (*close)(void *rules);
	/* Takes the rules as they are now, if they changed: before each decision. -ENOENT: the
	 * bucket has none any more. */
	int (*renew)(void *rules);
	/* Whether the rules are still those that renew took. */
	bool (*is_current)(const void *rules);
	enum store_lifecycle_verdict (*judge)(void *rules,
		const struct store_lifecycle_version *version, struct store_flags *ret_flags);
	bool (*may_delete)(const struct store_meta *version);
	/* Prepares the event of the coming change: the commit includes the outbox row; NULL: no
	 * event. Called between open and close. */
	struct store_outbox_row *(*tell_begin)(
		void *rules, const struct store_lifecycle_action *action);
	void (*tell_end)(void *rules, const struct store_outcome *outcome);
	/* Aborts uploads that were abandoned in the bucket. */
	int (*abort_uploads)(void *rules, uint32_t *ret_count);
};
struct job_lifecycle_opts {
	struct store *store;
	uint64_t interval_ns; /* from the end of one walk to the next */
	const struct job_lifecycle_ops *ops;
	void *arg;
};
struct job_lifecycle;
/* Starts its fiber on the reactor. -ENOMEM, -EAGAIN. */
int job_lifecycle_open(struct reactor *reactor, const struct job_lifecycle_opts *opts,
	struct job_lifecycle **ret_job);
/* Fiber call on that reactor: ends the fiber after the step it is in. Takes NULL. */
void job_lifecycle_close(struct job_lifecycle *job);

/* Starts the jobs that need only the store: rebuilding, the end of objects of memory buckets that
 * are too old, and of sessions of backups. As job_rebuild_start. */
int job_store_start(struct reactor *reactor, struct store *store);

/* ---- Rebuilding: volumes of the store that came back or were replaced. ---- */
/* Runs until the store quiesces. Call it before the reactor runs, or on it. -ENOMEM, -EAGAIN. */
int job_rebuild_start(struct reactor *reactor, struct store *store);

/* ---- Discarding of free space. ---- */
struct job_discard_opts {
	struct store *store;
	uint64_t bytes_per_s; /* 0: no limit */
};
/* As above; opts is borrowed until the store quiesces. */
int job_discard_start(struct reactor *reactor, const struct job_discard_opts *opts);

/* ---- Scrub. ---- */
struct job_scrub_opts {
	struct store *store;
	struct store_scrub_opts scrub;
};
/* Runs until the store quiesces; opts is borrowed until then. Errors as above. */
int job_scrub_start(struct reactor *reactor, const struct job_scrub_opts *opts);

#endif
