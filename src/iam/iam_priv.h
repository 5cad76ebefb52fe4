/* iam/iam_priv.h: the table of identities: shared by iam.c and the other files here. */
#ifndef IAM_PRIV_H
#define IAM_PRIV_H

#include <pthread.h>
#include <stdatomic.h>

#include "iam/iam.h"
#include "reactor/waiter.h"

#define IAM_SLOTS 4096u
/* Calls that tell other stores of a change, and may wait for each: helpers are shared with the
 * store. */
#define IAM_TELLS_MAX 2u

/* The kinds of names that identify an owner. */
enum iam_name_kind { IAM_OWNER_ID, IAM_ACCOUNT, IAM_EMAIL, IAM_USER_ID };
struct iam_name {
	struct iam_name *next;
	enum iam_name_kind kind;
	char text[256];
	struct iam_owner owner;
};

struct iam_account {
	char number[IAM_ACCOUNT_LEN_MAX + 1];
	json_t *doc;
};

/* lock guards all but the mutex, and the keys, which never change. Chains are short: tens of
 * thousands of keys. */
struct iam {
	struct store *store;
	struct iam_share share;
	struct fiber_mutex telling[IAM_TELLS_MAX]; /* each of one call of share.changed */
	_Atomic uint32_t tells;
	struct fiber_mutex changes; /* from the check of a change to its installation */
	pthread_rwlock_t lock;
	struct iam_account accounts[IAM_ACCOUNTS_MAX]; /* by number */
	uint32_t account_count;
	struct iam_credential *credentials[IAM_SLOTS];
	struct iam_name *names[IAM_SLOTS];
	uint8_t key[IAM_SECRETS_KEY_BYTES];
	uint64_t root_mark; /* of the root's secret */
	char root_access_key[LIMIT_ACCESS_KEY_LEN_MAX + 1];
};

#endif
