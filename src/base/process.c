/* base/process.c: see process.h. */
#include "base/process.h"

#include "base/file.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

/* When a process began, in the kernel's ticks since boot; 0: it is not there. */
static unsigned long long process_start(unsigned long long pid)
{
	char path[64], text[1024], *at;
	unsigned long long start = 0;

	snprintf(path, sizeof(path), "/proc/%llu/stat", pid);
	file_line(path, text, sizeof(text));
	/* After the name, which may contain anything: fields 3 to 22. */
	at = strrchr(text, ')');
	for (int field = 2; at && field < 22; field++) {
		at = strchr(at, ' ');
		at = at ? at + 1 : NULL;
	}
	if (at)
		start = strtoull(at, NULL, 10);
	return start;
}

static void here_fill(struct process *process)
{
	ssize_t len;

	file_line("/proc/sys/kernel/random/boot_id", process->boot, sizeof(process->boot));
	len = readlink("/proc/self/ns/pid", process->pids, sizeof(process->pids) - 1);
	process->pids[len > 0 ? len : 0] = '\0';
}

void process_self(struct process *ret_process)
{
	*ret_process = (struct process){.pid = (unsigned long long)getpid()};
	here_fill(ret_process);
	gethostname(ret_process->host, sizeof(ret_process->host) - 1);
	ret_process->start = process_start(ret_process->pid);
}

bool process_dead(const struct process *process)
{
	struct process here = {.pid = 0};

	here_fill(&here);
	return here.boot[0] && here.pids[0] && strcmp(here.boot, process->boot) == 0 &&
	       strcmp(here.pids, process->pids) == 0 && process->start &&
	       process_start(process->pid) != process->start;
}

bool process_asked_to_end(void)
{
	sigset_t pending;

	return sigpending(&pending) == 0 &&
	       (sigismember(&pending, SIGTERM) == 1 || sigismember(&pending, SIGINT) == 1);
}
