/* client/map_uffd.c: userfaultfd(2), as far as a mapper needs it: the kernel tells which absent
 * pages of a mapping were touched, and takes their bytes. Sources: userfaultfd(2),
 * ioctl_userfaultfd(2), Documentation/admin-guide/mm/userfaultfd.rst. */
#include "map_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define UFFD_FLAGS (O_CLOEXEC | O_NONBLOCK)

static int by_device(void)
{
	int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC), uffd;

	if (device < 0)
		return -1;
	uffd = ioctl(device, USERFAULTFD_IOC_NEW, UFFD_FLAGS);
	close(device);
	return uffd;
}

static const char *why_refused(int error)
{
	switch (error) {
	case ENOSYS:
		return "this kernel has no userfaultfd (CONFIG_USERFAULTFD), or a seccomp filter "
		       "hides it";
	case EINVAL:
		return "a kernel older than Linux 5.11 gives userfaultfd only to privileged "
		       "programs: set vm.unprivileged_userfaultfd to 1 by sysctl, or give the "
		       "program CAP_SYS_PTRACE";
	case EPERM:
	case EACCES:
		return "a seccomp filter refuses userfaultfd(2), as that of most containers does: "
		       "allow it there, or let the program open /dev/userfaultfd";
	default:
		return "userfaultfd(2) failed";
	}
}

int map_uffd_open(int *ret_uffd, bool *ret_kernel, const char **ret_why)
{
	struct uffdio_api api = {.api = UFFD_API};
	int uffd = (int)syscall(SYS_userfaultfd, UFFD_FLAGS), error;

	if (uffd < 0)
		uffd = by_device();
	*ret_kernel = uffd >= 0;
	if (uffd < 0)
		uffd = (int)syscall(SYS_userfaultfd, UFFD_FLAGS | UFFD_USER_MODE_ONLY);
	if (uffd < 0 || ioctl(uffd, UFFDIO_API, &api)) {
		error = errno;
		*ret_why = why_refused(error);
		if (uffd >= 0)
			close(uffd);
		return -error;
	}
	*ret_uffd = uffd;
	return 0;
}

int map_uffd_reserve(int uffd, uint64_t bytes, uint8_t **ret_data)
{
	struct uffdio_register range = {.mode = UFFDIO_REGISTER_MODE_MISSING};
	void *data =
		mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (data == MAP_FAILED)
		return -errno;
	range.range.start = (uintptr_t)data;
	range.range.len = bytes;
	/* A child would find zeros where no page is yet: it gets no mapping. */
	if ((uffd >= 0 && ioctl(uffd, UFFDIO_REGISTER, &range)) ||
		madvise(data, bytes, MADV_DONTFORK)) {
		int error = errno;

		munmap(data, bytes);
		return -error;
	}
	madvise(data, bytes, MADV_DONTDUMP);
	*ret_data = data;
	return 0;
}

int map_uffd_copy(const struct neb_mapper *mapper, uint8_t *to, const uint8_t *from, uint64_t bytes)
{
	uint64_t done = 0;

	while (done < bytes) {
		struct uffdio_copy copy = {.dst = (uintptr_t)(to + done),
			.src = (uintptr_t)(from + done),
			.len = bytes - done};

		if (ioctl(mapper->uffd, UFFDIO_COPY, &copy) == 0)
			return 0;
		if (copy.copy > 0) {
			done += (uint64_t)copy.copy;
		} else if (errno == EEXIST) {
			map_uffd_wake(mapper->uffd, to + done, mapper->page_bytes);
			done += mapper->page_bytes;
		} else if (errno == EAGAIN) {
			sched_yield(); /* the address space is changing */
		} else {
			return -errno;
		}
	}
	return 0;
}

void map_uffd_wake(int uffd, uint8_t *data, uint64_t bytes)
{
	struct uffdio_range range = {.start = (uintptr_t)data, .len = bytes};

	ioctl(uffd, UFFDIO_WAKE, &range);
}

/* A page of a file beyond its end raises SIGBUS (mmap(2)), in every kernel. Without a file the
 * mapping loses its rights, and a touch raises SIGSEGV. */
void map_uffd_bury(int uffd, uint8_t *data, uint64_t bytes)
{
	int file = memfd_create("nebulaio-map-ended", MFD_CLOEXEC);
	void *there = file < 0 ? MAP_FAILED
			       : mmap(data, bytes, PROT_READ, MAP_SHARED | MAP_FIXED, file, 0);

	if (there == MAP_FAILED)
		mmap(data, bytes, PROT_NONE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
	if (file >= 0)
		close(file);
	map_uffd_wake(uffd, data, bytes);
}
