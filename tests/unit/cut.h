/* tests/unit/cut.h: the end of a network path, without root. */
#ifndef TESTS_UNIT_CUT_H
#define TESTS_UNIT_CUT_H

#include "unit.h"

#include <linux/filter.h>
#include <sys/socket.h>

/* A filter drops all that arrives for the socket, so its kernel does not answer either. */
static inline void cut(int fd)
{
	struct sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
	const struct sock_fprog program = {1, &drop};

	assert_int_equal(
		setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)), 0);
}

#endif
