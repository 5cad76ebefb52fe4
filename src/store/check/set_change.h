/* store/check/set_change.h: changes of the set of volumes, and the moving of bodies that follows.
 */
#ifndef STORE_SET_CHANGE_H
#define STORE_SET_CHANGE_H

#include "store/local.h"

#include <stdbool.h>

struct volume_opts;

/* ---- set_change.c; fiber calls of the array monitor. ---- */
/* Makes the store ready to change its set of volumes. -ENOMEM. */
int set_change_open(struct store *store);
/* Waits until the mover of a store that quiesces has ended. */
void set_change_await(struct store *store);
/* Undoes open, after the reactors. Takes a store without. */
void set_change_close(struct store *store);
/* Begins or cancels a change that was asked for, starts the mover, ends a change whose bodies have
 * all moved. Does nothing while another fiber is in it. */
void set_change_step(struct store *store);
/* Takes the change back that an administrator cancelled while too few volumes are left, if no space
 * of the newer geometry is in use; then the store needs only the volumes of before. */
void set_change_withdraw(struct store *store);
/* Blocks of each volume that bodies of the geometry that ends still use; 0: none ends. Any thread.
 */
uint64_t set_change_blocks_left(const struct store *store);
/* Notes the result of the mover's last pass: 0 or -errno, and how many bodies it could not
 * read. */
void set_change_note(struct store *store, int error, uint64_t failed);

/* ---- array_monitor.c ---- */
/* Fiber call: attaches the disk to all reactors of the store. */
int array_attach_all(struct store *store, struct disk *disk);
/* Fiber call of the monitor: grows a disk to the array's length, which may take hours, and looks
 * after the array's volumes meanwhile. -EAGAIN: the store takes no writes now, or ends: others have
 * to be done first; errors of disk_grow. */
int array_grow_to(struct store *store, struct disk *disk);

/* ---- move.c ---- */
/* Moves bodies until none is left or the store quiesces. Fiber call. */
void store_move(struct store *store);

#endif
