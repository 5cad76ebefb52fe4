/* tests/unit/own.h: addresses that no other process has. Tests run side by side, and the simulated
 * device's groups and its one switch reach all processes of a network namespace. */
#ifndef TESTS_UNIT_OWN_H
#define TESTS_UNIT_OWN_H

#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#define OWN_GROUPS	8u /* in a row */
#define OWN_GROUP_BYTES 16u

/* The IPv4 group of that number. Returns the text. */
static inline const char *own_group(uint32_t idx, char text[OWN_GROUP_BYTES])
{
	uint32_t low = (uint32_t)getpid() * OWN_GROUPS + idx % OWN_GROUPS;

	snprintf(text, OWN_GROUP_BYTES, "239.%u.%u.%u", low >> 16 & 0xff, low >> 8 & 0xff,
		low & 0xff);
	return text;
}

/* The Ethernet address of that number. */
static inline void own_mac(uint8_t idx, uint8_t mac[6])
{
	uint32_t pid = (uint32_t)getpid();

	mac[0] = 2;
	mac[1] = (uint8_t)(pid >> 24);
	mac[2] = (uint8_t)(pid >> 16);
	mac[3] = (uint8_t)(pid >> 8);
	mac[4] = (uint8_t)pid;
	mac[5] = idx;
}

#endif
