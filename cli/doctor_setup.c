/* cli/doctor_setup.c: `nebulaio doctor --setup`: runs the safe fixes. It shows each fix and the
 * command that undoes it, and runs it only after confirmation. */
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli.h"
#include "doctor.h"

static bool agreed(const struct finding *finding, bool yes)
{
	char answer[16];

	printf("%s: %s\nrun: %s\n", finding->area, finding->what, finding->fix);
	if (finding->undo[0])
		printf("     undo: %s\n", finding->undo);
	fflush(stdout);
	if (yes)
		return true;
	printf("     [y/N] ");
	fflush(stdout);
	return fgets(answer, sizeof(answer), stdin) && (answer[0] == 'y' || answer[0] == 'Y');
}

/* Uses the shell, which finds dcb, ip, sysctl and similar programs on its path. */
static int run_command(const char *command)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		execl("/bin/sh", "sh", "-c", command, (char *)NULL);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int doctor_setup(const struct doctor *doctor, bool yes)
{
	unsigned shown = 0, failed = 0;

	if (geteuid() != 0) {
		fprintf(stderr, "nebulaio doctor: --setup changes this host: run it as root\n");
		return CLI_DENIED;
	}
	if (!yes && !isatty(STDIN_FILENO)) {
		fprintf(stderr,
			"nebulaio doctor: --setup asks at a terminal, and there is none: nothing "
			"was run; --yes agrees to all fixes\n");
		return CLI_USAGE;
	}
	for (size_t i = 0; i < doctor->count; i++) {
		const struct finding *finding = &doctor->findings[i];
		int ret;

		if (!finding->fix[0] || !finding->safe)
			continue;
		shown++;
		if (!agreed(finding, yes)) {
			printf("     not changed\n");
			continue;
		}
		ret = run_command(finding->fix);
		if (ret) {
			failed++;
			fprintf(stderr,
				"nebulaio doctor: that failed (%d); doctor goes on with the "
				"others\n",
				ret);
		}
	}
	if (!shown)
		printf("nothing needs a fix\n");
	return failed ? CLI_FAILED : CLI_OK;
}
