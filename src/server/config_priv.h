/* server/config_priv.h: shared by the files that read the configuration. */
#ifndef SERVER_CONFIG_PRIV_H
#define SERVER_CONFIG_PRIV_H

#include <yaml.h>

#include "codec/capsule.h"
#include "server/config.h"

/* Writes the reason; returns -EINVAL. */
int config_refuse(struct config_error *error, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

enum config_flows_level {
	CONFIG_FLOWS_OUTSIDE,
	CONFIG_FLOWS_LIST,
	CONFIG_FLOWS_ONE,
	CONFIG_FLOWS_OPTIONS
};
struct config_flows_walk {
	struct config *config;
	struct config_error *error;
	enum config_flows_level level;
	char key[64]; /* the key whose value comes next; "": a key comes */
};
/* One event inside the list. where: "FILE:LINE". 0 or -EINVAL. */
int config_flows_event(
	struct config_flows_walk *walk, const yaml_event_t *event, const char *where);

#endif
