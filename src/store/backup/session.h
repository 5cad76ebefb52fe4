/* store/backup/session.h: sessions of backups, for the life of a store. */
#ifndef STORE_BACKUP_SESSION_H
#define STORE_BACKUP_SESSION_H

struct store;
/* Wakes the fiber of store_backup_run(), which ends because the store quiesces. */
void backups_wake(struct store *store);
/* Ends all sessions. After the reactors; before the index is closed. */
void backups_close(struct store *store);

#endif
