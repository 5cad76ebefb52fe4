/* s3/sse/sse.h: encryption at rest. Every encrypted body has a data key of its own, which is stored
 * with the object, sealed by AES-256-GCM: under the server's master key (SSE-S3), under a named key
 * derived from it or held by a key service (SSE-KMS), or under a key that the client sends each
 * time and the server does not store (SSE-C). The body is AES-256-GCM under the data key, piece by
 * piece; docs/spec/disk.md has the record.
 *
 * Source: S3 User Guide, "Protecting data with server-side encryption". */
#ifndef S3_SSE_H
#define S3_SSE_H

#include "s3/core/call.h"
#include "s3/core/named.h"
#include "s3/core/stored.h"
#include "s3/vault.h"
#include "store/crypt.h"

#define S3_SSE_HEADER	    S3_HIDDEN_PREFIX "sse"
#define S3_SSE_KEY_BYTES    32u
#define S3_SSE_MASTERS_MAX  8u
#define S3_SSE_ID_LEN_MAX   16u
#define S3_SSE_KMS_NAME_MAX 256u

enum s3_sse_kind { S3_SSE_NONE, S3_SSE_S3, S3_SSE_KMS, S3_SSE_CUSTOMER };

/* The server's keys: the first seals, all open. */
struct s3_keyring {
	uint32_t master_count;
	struct {
		char id[S3_SSE_ID_LEN_MAX + 1];
		uint8_t key[S3_SSE_KEY_BYTES];
	} masters[S3_SSE_MASTERS_MAX];
	char kms_names[4096]; /* separated by commas */
	char kms_default[S3_SSE_KMS_NAME_MAX + 1];
	struct s3_vault *vault; /* keys that a key service holds; NULL: none */
};
int s3_keyring_open(const struct s3_opts *opts, struct s3_keyring **ret_keyring);
void s3_keyring_close(struct s3_keyring *keyring); /* wipes; takes NULL */

struct s3_sse {
	enum s3_sse_kind kind;
	bool authenticated; /* the body is authenticated; false: put before bodies were */
	uint8_t key[S3_SSE_KEY_BYTES]; /* the data key */
	struct slice kms_key;
	bool vault; /* the key service holds the key */
	bool bucket_key;
	struct slice customer_md5; /* base64 */
};
/* The encryption of a write, from its headers or its bucket's default: kind S3_SSE_NONE without
 * either. *ret_record: the value for S3_SSE_HEADER, in the arena. */
const struct s3_error *s3_sse_begin(
	struct s3_call *call, struct s3_sse *ret_sse, struct slice *ret_record);
/* The same for a copy: an encrypted source stays encrypted unless the request asks otherwise. */
const struct s3_error *s3_sse_begin_copy(
	struct s3_call *call, bool encrypted, struct s3_sse *ret_sse, struct slice *ret_record);
/* The headers with a client's own key: the object's, and those of a copy's source. */
#define S3_SSE_CLIENT	   "x-amz-server-side-encryption-customer-"
#define S3_SSE_COPY_CLIENT "x-amz-copy-source-server-side-encryption-customer-"
struct s3_sse_names {
	struct slice algorithm, key, md5;
};
extern const struct s3_sse_names s3_sse_names, s3_sse_copy_names;
/* Opens the data key of a stored object. headers: the stored ones. */
const struct s3_error *s3_sse_open(struct s3_call *call, struct slice headers,
	const struct s3_sse_names *names, struct s3_sse *ret_sse);
/* The stored encryption data, except for the data key, which stays encrypted. */
void s3_sse_describe(struct slice headers, struct s3_sse *ret_sse);
/* True when a header concerns encryption. */
bool s3_sse_asked(const struct s3_call *call);
/* For a read, which may only name a client's own key: the encryption that the object needs to be
 * read, in the arena; NULL: none. */
const struct s3_error *s3_sse_of_read(
	struct s3_call *call, const struct store_meta *meta, const struct s3_sse **ret_sse);
static inline struct store_crypt_key s3_sse_key(const struct s3_sse *sse)
{
	return (struct store_crypt_key){.key = sse->key, .authenticated = sse->authenticated};
}
/* The headers of an answer. */
void s3_sse_answer(struct s3_call *call, const struct s3_sse *sse);
/* An ETag that reveals nothing about the body, for kinds whose ETag is not its MD5. */
void s3_sse_etag(const struct s3_sse *sse, char etag[2 * MD5_BYTES + 1]);
/* Adds the record to headers that are to be stored, and the flag. */
const struct s3_error *s3_sse_keep(
	struct s3_call *call, struct slice record, struct store_meta *meta);
/* Opens a source of an object's bytes. They are decrypted, by crypt, which must live as long,
 * unless sse is NULL or of kind none. */
int s3_sse_source_in(struct flow_core *core, const struct s3_sse *sse, struct store_get *get,
	struct s3_range range, struct store_crypt_source *crypt, struct flow_source **ret_source);
/* The same, with crypt in the call's arena. */
int s3_sse_source(struct s3_call *call, const struct s3_sse *sse, struct store_get *get,
	uint64_t offset, uint64_t bytes, struct flow_source **ret_source);

struct s3_sse_default {
	bool kms, bucket_key;
	struct slice kms_key;
};

#endif
