/* tests/unit/client/program.h: the program itself as a child, which serves S3 and simulated RDMA to
 * a client's test. PROGRAM_UNDER_TEST names it. */
#ifndef TESTS_CLIENT_PROGRAM_H
#define TESTS_CLIENT_PROGRAM_H

#include <stdint.h>
#include <sys/types.h>

struct program {
	pid_t pid;
	char dir[64];
	char rdma[64], http[64], both[160]; /* endpoints */
	char multicast[32];		    /* its fan_out.multicast */
};
/* cmocka's set-up and tear-down of a group: *state is a struct program. The keys are the rig's. */
int program_open(void **state);
int program_close(void **state);
/* Returns when every thread of it stands: SIGSTOP is told to one, and the others still serve until
 * the kernel has run that one. */
void program_stop(const struct program *child);
void program_go_on(const struct program *child);
/* A free port below the kernel's ephemeral range, so that it stays free meanwhile. */
uint16_t program_port_free(void);

#endif
