/* tests/unit/store/set_rig.h: a store over volumes in memory whose set changes: its keys, and what
 * a test waits for. */
#ifndef TESTS_STORE_SET_RIG_H
#define TESTS_STORE_SET_RIG_H

#include "memory_disk.h"
#include "rig.h"

#define SET_KEYS    40u
#define SET_LOOK_NS NS_PER_MS
#define SET_THREE   "memory://0,memory://1,memory://2"

/* The name of key i; puts it with a body of its own: 0 or -errno. */
void set_key_name(char key[32], uint32_t i);
int set_key_put(struct rig *rig, uint32_t i);
void set_keys_verify(struct rig *rig, uint32_t from, uint32_t to);
/* A bucket with SET_KEYS keys, whose moves are slow. */
void set_keys_put(struct rig *rig);
/* Both. */
void set_begin_keys(struct rig *rig);
struct store_set_status set_status(struct rig *rig);
/* Adds a volume, removes volumes. */
int set_ask(struct rig *rig, const char *add, uint64_t remove);
/* Until the change has ended, at full speed; until its note has these words; until a volume is in
 * that state; until the store takes writes. */
void set_end_await(struct rig *rig);
void set_note_await(struct rig *rig, const char *words);
void set_state_await(const struct rig *rig, uint32_t member, enum disk_member_state state);
void set_writable_await(struct rig *rig);
/* One bit each. */
uint64_t set_members(const struct rig *rig);
/* A test: a store over these volumes, one shard of parity, fn, and fsck. */
void set_run(rig_fn *fn, const char *volumes, uint32_t data, uint64_t bytes_max);

#endif
