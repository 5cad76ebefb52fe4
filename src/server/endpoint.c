/* server/endpoint.c: why an address cannot be listened on. */
#include "server/endpoint.h"

#include <errno.h>
#include <string.h>

#include "base/base.h"

void endpoint_refused(const char *section, const char *address, int ret)
{
	if (ret == -EADDRINUSE)
		log_error("server",
			"%s.address: %s is in use by another process (`ss -ltnp` shows which): "
			"stop it, or give %s.address another port, --set %s.address=ADDR:PORT "
			"(make run ARGS=\"--set ...\")",
			section, address, section, section);
	else if (ret == -EINVAL)
		log_error("server", "%s.address: '%s' is not an address; write ADDR:PORT", section,
			address);
	else
		log_error("server", "%s.address: cannot listen on %s: %s", section, address,
			strerror(-ret));
}
