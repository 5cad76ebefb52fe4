/* client/log.c: writes a client's messages to its program's log. */
#include "client_priv.h"

#include <stdarg.h>
#include <stdio.h>

void client_log(struct neb_client *client, enum neb_log_level level, const char *fmt, ...)
{
	char text[512];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	client->log(client->log_arg, level, text);
}
