/* cli/profile.h: named sets of option values, from $XDG_CONFIG_HOME/nebulaio/config or
 * ~/.config/nebulaio/config:
 *
 *	[default]
 *	endpoint = rdma://10.0.0.1:9100,http://10.0.0.1:9000
 *	access_key = …
 *	secret_key = …
 *	region = us-east-1
 *	device = mlx5_0
 *	transport = auto
 *	admin = http://10.0.0.1:9001
 */
#ifndef CLI_PROFILE_H
#define CLI_PROFILE_H

enum profile_key {
	PROFILE_ENDPOINT,
	PROFILE_ACCESS_KEY,
	PROFILE_SECRET_KEY,
	PROFILE_REGION,
	PROFILE_DEVICE,
	PROFILE_TRANSPORT,
	PROFILE_ADMIN,
	PROFILE_KEYS
};

struct profile {
	char text[PROFILE_KEYS][512];
	const char *values[PROFILE_KEYS]; /* point into text; NULL: not set */
};

/* name NULL: "default", which may be missing. CLI_OK, CLI_NOT_FOUND (no such profile) or CLI_USAGE
 * (an invalid line); prints why. */
int profile_read(const char *name, struct profile *ret_profile);

#endif
