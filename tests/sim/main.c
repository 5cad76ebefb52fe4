/* tests/sim/main.c: runs seeds: each in a folder of its own, and each of its lives in a process of
 * its own. For a seed that failed, it prints how to repeat it. */
#include "world.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <malloc.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static const char USAGE[] =
	"usage: simulation [--seeds N] [--from SEED] [--verbose]\n"
	"\n"
	"Runs the whole server in simulated worlds, one for each seed, and holds what its clients\n"
	"saw against what they had been promised. A seed replays bit for bit.\n"
	"\n"
	"  --seeds N     so many seeds (100)\n"
	"  --from SEED   from this one on (1)\n"
	"  --hash        what happened, as one number for each life\n"
	"  --break NAME  a server that leaves something out now and then; it is to be found out\n"
	"  --sweep KIND  instead: the nth call fails, for each n: memory, mapping, descriptor,\n"
	"                disk, net; --from says the first n, --step how far it is to the next\n"
	"  --verbose     the server's log, and how each life ended\n"
	"  --trace       everything that happens\n";

#define LOG_LINES  16u
#define LIFE_S_MAX 300u /* only for a life that hangs */

static bool verbose;
static const struct world_sweep *sweep; /* NULL: lives that end by a loss of power */
static char log_path[300];

/* Memory has the same addresses in every run. */
static void settle_addresses(char **argv)
{
	int now = personality(0xffffffff);

	if (now == -1 || now & ADDR_NO_RANDOMIZE)
		return;
	if (personality((unsigned long)now | ADDR_NO_RANDOMIZE) == -1)
		return;
	execv("/proc/self/exe", argv);
}

static void folder_remove(const char *dir)
{
	struct dirent *entry;
	DIR *listing = opendir(dir);
	char path[5000];

	while (listing && (entry = readdir(listing))) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name);
		if (unlink(path) && errno == EISDIR)
			folder_remove(path);
	}
	if (listing)
		closedir(listing);
	rmdir(dir);
}

/* One thread runs at a time, so all stay on one processor: a thread that gives its turn to another
 * need not wake a processor. */
static void stay_here(void)
{
	cpu_set_t here;
	int cpu = sched_getcpu();

	CPU_ZERO(&here);
	if (cpu >= 0) {
		CPU_SET(cpu, &here);
		sched_setaffinity(0, sizeof(here), &here);
	}
}

static void life_run(struct world_shared *shared, const char *dir, uint64_t seed, uint32_t life)
{
	alarm(LIFE_S_MAX);
	stay_here();
	/* Logging takes time, so it is done in every run, whether its output is shown or not. */
	if (!verbose && !freopen(log_path, "a", stderr))
		_exit(WORLD_END_FAULT);
	/* Large blocks come from the heap, too. */
	mallopt(M_MMAP_THRESHOLD, INT_MAX);
	mallopt(M_TRIM_THRESHOLD, INT_MAX);
	world_begin(seed * 16 + life);
	if (sweep)
		world_load_sweep(shared, dir, life, sweep);
	else
		world_load_run(shared, dir, life);
	world_end(WORLD_END_CLEAN);
}

/* Prints the end of the log of a seed's lives. */
static void log_show(void)
{
	char line[1024], lines[LOG_LINES][1024];
	FILE *log = fopen(log_path, "r");
	uint32_t count = 0;

	while (log && fgets(line, sizeof(line), log))
		memcpy(lines[count++ % LOG_LINES], line, sizeof(line));
	for (uint32_t i = count > LOG_LINES ? count - LOG_LINES : 0; i < count; i++)
		printf("#   %s", lines[i % LOG_LINES]);
	if (log)
		fclose(log);
}

/* Returns whether the seed passed, and the number of calls of a sweep's kind. */
static bool seed_run(uint64_t seed, const char *dir, uint64_t *ret_seen)
{
	struct world_shared *shared = world_shared_new(seed);
	const char *wrong = NULL;
	char text[128];

	folder_remove(dir);
	for (uint32_t life = 0; life < (sweep ? 2 : WORLD_LIVES) && !wrong; life++) {
		pid_t pid = fork();
		int status;

		CHECK(pid >= 0);
		if (pid == 0)
			life_run(shared, dir, seed, life);
		CHECK(waitpid(pid, &status, 0) == pid);
		if (verbose)
			fprintf(stderr, "seed %llu life %u: %s %d\n", (unsigned long long)seed,
				life, WIFEXITED(status) ? "exit" : "signal",
				WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
		if (!WIFEXITED(status) || (WEXITSTATUS(status) != WORLD_END_POWER &&
						  WEXITSTATUS(status) != WORLD_END_CLEAN)) {
			snprintf(text, sizeof(text), "life %u ended by %s %d", life,
				WIFEXITED(status) ? "status" : "signal",
				WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
			wrong = text;
		}
	}
	if (!wrong)
		wrong = world_load_judge(shared);
	*ret_seen = world_sweep_seen(shared);
	world_shared_free(shared);
	if (wrong && sweep)
		printf("# %s %llu: %s\n", WORLD_FAULTS[sweep->kind], (unsigned long long)sweep->nth,
			wrong);
	else if (wrong)
		printf("# seed %llu: %s\n", (unsigned long long)seed, wrong);
	if (wrong && !verbose)
		log_show();
	unlink(log_path);
	folder_remove(dir);
	return !wrong;
}

/* Fails each call of a kind from one number on, or every step-th; returns 0 if all passed. */
static int sweep_run(const char *name, uint64_t from, uint64_t step, const char *dir)
{
	struct world_sweep one = {.kind = 0};
	uint64_t calls, seen, runs = 0, failed = 0;

	while (one.kind < WORLD_FAULT_COUNT && strcmp(WORLD_FAULTS[one.kind], name))
		one.kind++;
	if (one.kind == WORLD_FAULT_COUNT) {
		fputs(USAGE, stderr);
		return 2;
	}
	sweep = &one;
	failed += !seed_run(1, dir, &calls);
	for (one.nth = from; one.nth <= calls; one.nth += step, runs++)
		failed += !seed_run(1, dir, &seen);
	printf("# %llu of %llu calls failed one by one (%s), %llu badly\n",
		(unsigned long long)runs, (unsigned long long)calls, name,
		(unsigned long long)failed);
	return failed ? 1 : 0;
}

int main(int argc, char **argv)
{
	static const struct option OPTIONS[] = {{"seeds", required_argument, NULL, 'n'},
		{"from", required_argument, NULL, 'f'}, {"hash", no_argument, NULL, 'h'},
		{"break", required_argument, NULL, 'b'}, {"verbose", no_argument, NULL, 'v'},
		{"trace", no_argument, NULL, 't'}, {"sweep", required_argument, NULL, 's'},
		{"step", required_argument, NULL, 'p'}, {NULL, 0, NULL, 0}};
	uint64_t count = 100, from = 1, step = 1, failed = 0, seen;
	const char *kind = NULL;
	char dir[256];
	int option;

	settle_addresses(argv);
	while ((option = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1) {
		if (option == 'n')
			count = strtoull(optarg, NULL, 10);
		else if (option == 'f')
			from = strtoull(optarg, NULL, 10);
		else if (option == 'b' && world_break_set(optarg) == 0)
			continue;
		else if (option == 's')
			kind = optarg;
		else if (option == 'p')
			step = strtoull(optarg, NULL, 10);
		else if (option == 'h')
			world_hash_wanted = true;
		else if (option == 'v')
			world_history_wanted = verbose = true;
		else if (option == 't')
			world_trace_wanted = verbose = true;
		else {
			fputs(USAGE, stderr);
			return 2;
		}
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	snprintf(dir, sizeof(dir), "%s/nebulaio-sim-%d",
		access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm", (int)getpid());
	snprintf(log_path, sizeof(log_path), "%s.log", dir);
	if (kind)
		return sweep_run(kind, from, MAX(step, 1u), dir);
	for (uint64_t seed = from; seed < from + count; seed++)
		failed += !seed_run(seed, dir, &seen);
	printf("# %llu seeds from %llu on, %llu failed\n", (unsigned long long)count,
		(unsigned long long)from, (unsigned long long)failed);
	return failed ? 1 : 0;
}
