/* base/process.h: which process on which host this is, and whether such a process has ended. For
 * the records by which servers on several hosts tell each other who owns what. */
#ifndef BASE_PROCESS_H
#define BASE_PROCESS_H

#include <stdbool.h>

struct process {
	char host[80];
	char boot[48]; /* the host's, since its last start; empty: unknown */
	char pids[48]; /* its namespace of process ids; empty: unknown */
	unsigned long long pid, start;
};

void process_self(struct process *ret_process);
/* Whether that process certainly has ended: it ran on this host, since its last start. */
bool process_dead(const struct process *process);
/* Whether SIGTERM or SIGINT waits for this process. One that blocks these signals and waits for its
 * turn looks for them. */
bool process_asked_to_end(void);

#endif
