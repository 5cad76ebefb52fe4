/* disk/disk_nvme_status.c: the statuses of NVMe commands: their names, and the errno of each. */
#include "disk/disk_nvme.h"

#include <errno.h>

#define STATUS_MASK 0x7ffu /* type and code; above it are hints about retries */

static const struct {
	uint16_t status;
	uint16_t error;
	const char *name;
} STATUSES[] = {
	{0x001, EOPNOTSUPP, "invalid command opcode"},
	{0x002, EINVAL, "invalid field in command"},
	{0x004, EIO, "data transfer error"},
	{0x005, EIO, "aborted: power loss"},
	{0x006, EIO, "internal error"},
	{0x007, EIO, "aborted by request"},
	{0x008, EIO, "aborted: submission queue deleted"},
	{0x00b, ENODEV, "invalid namespace or format"},
	{0x013, EINVAL, "invalid PRP offset"},
	{0x015, EACCES, "operation denied"},
	{0x01c, EIO, "sanitize failed"},
	{0x01d, EBUSY, "sanitize in progress"},
	{0x020, EROFS, "namespace is write protected"},
	{0x021, EIO, "command interrupted"},
	{0x022, EIO, "transient transport error"},
	{0x080, ERANGE, "LBA out of range"},
	{0x081, ENOSPC, "capacity exceeded"},
	{0x082, EIO, "namespace not ready"},
	{0x083, EBUSY, "reservation conflict"},
	{0x084, EBUSY, "format in progress"},
	{0x180, EINVAL, "conflicting attributes"},
	{0x181, EINVAL, "invalid protection information"},
	{0x182, EROFS, "attempted write to read-only range"},
	{0x183, EINVAL, "command size limit exceeded"},
	{0x280, EIO, "write fault"},
	{0x281, EIO, "unrecovered read error"},
	{0x282, EIO, "end-to-end guard check error"},
	{0x283, EIO, "end-to-end application tag check error"},
	{0x284, EIO, "end-to-end reference tag check error"},
	{0x285, EIO, "compare failure"},
	{0x286, EACCES, "access denied"},
	{0x287, EIO, "deallocated or unwritten logical block"},
	{0x300, EIO, "internal path error"},
	{0x301, EIO, "asymmetric access persistent loss"},
	{0x302, EIO, "asymmetric access inaccessible"},
	{0x303, EIO, "asymmetric access transition"},
	{0x360, EIO, "controller pathing error"},
	{0x370, EIO, "host pathing error"},
	{0x371, EIO, "aborted by the host"},
};

int nvme_status_errno(uint32_t status)
{
	if (!(status & STATUS_MASK))
		return 0;
	for (size_t i = 0; i < ARRAY_LEN(STATUSES); i++)
		if (STATUSES[i].status == (status & STATUS_MASK))
			return -(int)STATUSES[i].error;
	return -EIO;
}

const char *nvme_status_name(uint32_t status)
{
	for (size_t i = 0; i < ARRAY_LEN(STATUSES); i++)
		if (STATUSES[i].status == (status & STATUS_MASK))
			return STATUSES[i].name;
	return "an unknown status";
}
