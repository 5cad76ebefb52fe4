/* nvmeof/nvmeof_priv.h: shared by the files of nvmeof. */
#ifndef NVMEOF_NVMEOF_PRIV_H
#define NVMEOF_NVMEOF_PRIV_H

#include "nvmeof/nvmeof.h"

#define CONTROLLER_NAME_BYTES 32u
#define PATH_BYTES	      512u

/* A controller as sysfs shows it: one path to a subsystem. */
struct controller {
	char name[CONTROLLER_NAME_BYTES]; /* "nvme3" */
	char nqn[NVMEOF_NQN_BYTES];
	char transport[16];
	char state[24];
	char address[256]; /* "traddr=192.0.2.1,trsvcid=4420", and more */
};
/* In no order; true from fn ends the walk, and is returned. */
typedef bool controller_fn(const struct controller *controller, void *arg);
bool controllers_walk(const char *sys, controller_fn *fn, void *arg);
bool controller_is_at(const struct controller *controller, const char *address, uint16_t port);
/* Whether a live one leads to the subsystem. ret_state: of one of them, "" when there is none. */
bool controllers_live(const char *sys, const char *nqn, char ret_state[24]);
/* The block devices of a subsystem, "nvme1n1". nsid 0: every one. */
typedef bool namespace_fn(const char *name, void *arg);
bool namespaces_walk(const char *sys, const char *nqn, uint64_t nsid, namespace_fn *fn, void *arg);
bool controllers_multipath(const char *sys);

static inline const char *place_sys(const struct nvmeof_place *place)
{
	return place && place->sys ? place->sys : "/sys";
}
static inline const char *place_dev(const struct nvmeof_place *place)
{
	return place && place->dev ? place->dev : "/dev";
}
static inline const char *place_run(const struct nvmeof_place *place)
{
	return place && place->run ? place->run : "/run";
}
static inline const char *place_etc(const struct nvmeof_place *place)
{
	return place && place->etc ? place->etc : "/etc";
}

#endif
