/* cli/restore.c: `nebulaio admin restore`: makes a store from a backup, while no server runs on it,
 * and `nebulaio admin backup-verify`, which only reads it. Both read and compare everything; a body
 * is checked by the sums that its row has. */
#include "backup.h"

#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backup_file.h"
#include "rados/rados.h"
#include "server/config.h"
#include "server/recovery.h"
#include "server/volumes.h"
#include "transfer.h"
#include "volume.h"

struct restore {
	const struct cli_command *command;
	struct target_opts target_opts;
	struct target target;
	uint64_t number;
	bool overwrite, quiet, verifies;
	struct config config;
	struct remote *remote;
	struct rv *rados;
	struct backup_manifest manifest;
	struct store_restore *store; /* NULL: the backup is only verified */
	uint8_t *body;		     /* STORE_BACKUP_BODY_MAX */
	/* The pack that was read last. */
	char pack_name[BACKUP_NAME_BYTES];
	struct buf pack;
	struct progress progress;
};

/* ---- Bodies. ---- */

/* The bytes of the body: in the pack, or in restore->body. */
static int body_read(
	struct restore *restore, const struct backup_place *place, const uint8_t **ret_body)
{
	const struct target_range range = {.offset = place->offset, .bytes = place->bytes};
	char name[BACKUP_NAME_BYTES];
	int ret;

	backup_body_name(place, name);
	if (strncmp(name, "packs/", 6) != 0) {
		*ret_body = restore->body;
		ret = target_read(&restore->target, name, &range, restore->body);
		return ret == CLI_NOT_FOUND
			       ? backup_damaged(&restore->target, name, "it is missing")
			       : ret;
	}
	if (strcmp(name, restore->pack_name) != 0) {
		restore->pack_name[0] = '\0';
		buf_reset(&restore->pack);
		ret = target_get(&restore->target, name, &restore->pack);
		if (ret == CLI_NOT_FOUND)
			return backup_damaged(&restore->target, name, "it is missing");
		if (!ret)
			ret = backup_head_check(&restore->target, name, buf_slice(&restore->pack),
				BACKUP_MAGIC_BODIES, false);
		if (ret)
			return ret;
		memcpy(restore->pack_name, name, sizeof(name));
	}
	if (place->offset > restore->pack.len || place->bytes > restore->pack.len - place->offset)
		return backup_damaged(&restore->target, name, "it is cut short");
	*ret_body = (const uint8_t *)restore->pack.data + place->offset;
	return CLI_OK;
}

static int row_failed(struct restore *restore, const char *where, int error)
{
	if (error == -EUCLEAN)
		return backup_damaged(&restore->target, where,
			"it is damaged: a row or a body is not what its checksum says");
	fprintf(stderr, "nebulaio admin restore: %s: %s%s\n", restore->config.data.dir,
		strerror(-error),
		error == -ENOSPC ? "; make room and run it again: it goes on from here" : "");
	return CLI_FAILED;
}

static int row_restore(struct restore *restore, const char *chunk_name,
	const struct store_backup_row *row, const struct slice *key_value,
	const struct backup_place *place)
{
	char name[BACKUP_NAME_BYTES];
	const uint8_t *body = NULL;
	int ret = CLI_OK;

	if (restore->store && store_restore_has(restore->store, key_value[0]))
		return CLI_OK;
	if (place)
		ret = body_read(restore, place, &body);
	if (ret)
		return ret;
	if (restore->store)
		ret = store_restore_row(restore->store, row, key_value[0], key_value[1], body);
	else
		ret = store_backup_row_check(row, key_value[0], key_value[1], body);
	if (place)
		backup_body_name(place, name);
	return ret ? row_failed(restore, place && ret == -EUCLEAN ? name : chunk_name, ret)
		   : CLI_OK;
}

/* ---- Rows. ---- */

static bool place_is(const struct backup_place *place, const struct store_backup_row *row)
{
	return place->data_id == row->data_id && place->segment == row->segment &&
	       place->sum == row->sum && place->bytes == row->bytes;
}

static int chunk_restore(struct restore *restore, const uint8_t hash[SHA256_BYTES])
{
	struct store_backup_row row;
	struct backup_chunk chunk;
	struct slice key_value[2];
	char name[BACKUP_NAME_BYTES];
	uint32_t at = 0;
	int more, ret = backup_chunk_read(&restore->target, hash, &chunk);

	if (ret)
		return ret;
	backup_chunk_name(hash, name);
	while ((more = store_backup_row_next(&chunk.rows, &row, &key_value[0], &key_value[1])) ==
		1) {
		const struct backup_place *place = NULL;

		if (row.flags & STORE_BACKUP_HAS_BODY) {
			if (at == chunk.place_count || !place_is(&chunk.places[at], &row)) {
				more = -EUCLEAN;
				break;
			}
			place = &chunk.places[at++];
		}
		ret = row_restore(restore, name, &row, key_value, place);
		if (ret)
			break;
		progress_add(&restore->progress, row.bytes);
	}
	if (!ret && more < 0)
		ret = backup_damaged(&restore->target, name, "its rows do not fit its bodies");
	backup_chunk_free(&chunk);
	return ret;
}

static int rows_restore(struct restore *restore)
{
	int ret = CLI_OK;

	progress_start(&restore->progress, restore->store ? "restore" : "verify",
		restore->manifest.head.body_bytes);
	for (uint32_t i = 0; i < restore->manifest.head.chunks && !ret; i++) {
		struct backup_entry entry;
		struct slice anchor;

		backup_entry_get(&restore->manifest, i, &entry, &anchor);
		ret = chunk_restore(restore, entry.hash);
	}
	progress_end(&restore->progress);
	return ret;
}

/* ---- The key files. ---- */

static int sealed_get(void *arg, const char *name, struct buf *out)
{
	const char *text = json_string_value(json_object_get(arg, name));
	size_t len;
	char *bytes;
	int ret;

	if (!text)
		return -ENOENT;
	bytes = malloc(strlen(text) + 1);
	if (!bytes)
		return -ENOMEM;
	ret = base64_decode(slice_str(text), bytes, strlen(text), &len);
	if (!ret)
		buf_put(out, bytes, len);
	free(bytes);
	return ret;
}

/* The key files come from the backup, sealed; or the operator puts them there. */
static int keys_restore(struct restore *restore)
{
	struct recovery_paths paths;
	json_t *kept = json_loadb(restore->manifest.kept.data, restore->manifest.kept.len, 0, NULL);
	int ret;

	recovery_paths(&restore->config, &paths);
	ret = recovery_restore_from(&restore->config, &paths, sealed_get, kept);
	json_decref(kept);
	if (ret) {
		fprintf(stderr, "nebulaio admin restore: without the key files nothing is "
				"restored: run it again with the right recovery key, or without "
				"one and put your copies of the files there\n");
		return CLI_FAILED;
	}
	for (size_t i = 0; i < ARRAY_LEN(paths.files); i++)
		if (access(paths.files[i].path, F_OK) && !restore->quiet)
			fprintf(stderr,
				"nebulaio admin restore: put your copy of %s there before you "
				"start the server\n",
				paths.files[i].path);
	return CLI_OK;
}

/* ---- The whole. ---- */

static int volumes_open(struct restore *restore)
{
	const struct config *config = &restore->config;
	const char *device = config->storage.remote.device_name;

	if (config->storage.remote.secret_file[0] &&
		volume_remote_open(config->storage.remote.secret_file,
			device[0] ? device : config->rdma.device_name, &restore->remote))
		return CLI_FAILED;
	return volumes_rados_open(config, &restore->rados) ? CLI_FAILED : CLI_OK;
}

static int store_make(struct restore *restore)
{
	const struct store_backup_head *head = &restore->manifest.head.store;
	struct store_opts store_opts;
	char name[128], uuid[2 * sizeof(head->uuid) + 1];
	const struct store_restore_opts opts = {
		.store = &store_opts, .head = head, .name = name, .overwrite = restore->overwrite};
	int ret;

	volumes_store_opts(&restore->config, &store_opts);
	hex_encode(head->uuid, sizeof(head->uuid), uuid);
	snprintf(name, sizeof(name), "%.*s-%llu", (int)(2 * sizeof(head->uuid)), uuid,
		(unsigned long long)restore->manifest.head.number);
	ret = store_restore_open(&opts, &restore->store);
	if (!ret)
		return CLI_OK;
	fprintf(stderr, "nebulaio admin restore: %s: %s\n", restore->config.data.dir,
		ret == -EEXIST	? "nothing was changed"
		: ret == -EBUSY ? "a server runs on it, stop it first"
		: ret == -EUCLEAN && !restore->overwrite
			? "nothing was changed; --overwrite, before the backup's place, "
			  "destroys what is there"
			: strerror(-ret));
	return CLI_FAILED;
}

static int manifest_find(struct restore *restore)
{
	struct backup_numbers numbers;
	int ret;

	if (restore->number)
		return backup_manifest_read(&restore->target, restore->number, &restore->manifest);
	ret = backup_numbers_read(&restore->target, &numbers);
	if (ret)
		return ret;
	if (numbers.count) {
		ret = backup_manifest_read(
			&restore->target, numbers.list[numbers.count - 1], &restore->manifest);
	} else {
		fprintf(stderr, "nebulaio: the backup %s: there is none that is complete\n",
			remote_text(restore->target.text));
		ret = CLI_NOT_FOUND;
	}
	free(numbers.list);
	return ret;
}

static int run(struct restore *restore, const char *place)
{
	char bytes[32];
	int ret = target_open(&restore->target, place, &restore->target_opts, false);

	if (!ret)
		ret = manifest_find(restore);
	if (!ret)
		ret = volumes_open(restore);
	if (!ret)
		ret = store_make(restore);
	if (!ret)
		ret = keys_restore(restore);
	if (!ret)
		ret = rows_restore(restore);
	if (!ret && store_restore_finish(restore->store)) {
		fprintf(stderr, "nebulaio admin restore: %s: the end cannot be written\n",
			restore->config.data.dir);
		ret = CLI_FAILED;
	}
	store_restore_close(restore->store);
	if (!ret && !restore->quiet)
		printf("%s has backup %llu: %llu bodies, %s\n", restore->config.data.dir,
			(unsigned long long)restore->manifest.head.number,
			(unsigned long long)restore->manifest.head.bodies,
			remote_bytes_text(restore->manifest.head.body_bytes, bytes));
	return ret;
}

static int verify(struct restore *restore, const char *place)
{
	char bytes[32];
	int ret = target_open(&restore->target, place, &restore->target_opts, false);

	if (!ret)
		ret = manifest_find(restore);
	if (!ret)
		ret = rows_restore(restore);
	if (!ret && !restore->quiet)
		printf("backup %llu is sound: %llu bodies, %s\n",
			(unsigned long long)restore->manifest.head.number,
			(unsigned long long)restore->manifest.head.bodies,
			remote_bytes_text(restore->manifest.head.body_bytes, bytes));
	return ret;
}

/* ---- The command line. ---- */

enum { OPT_TARGET_ENDPOINT = REMOTE_OWN, OPT_TARGET_PROFILE, OPT_NUMBER, OPT_OVERWRITE };

static const struct option OPTIONS[] = {
	{"target-endpoint", required_argument, NULL, OPT_TARGET_ENDPOINT},
	{"target-profile", required_argument, NULL, OPT_TARGET_PROFILE},
	{"number", required_argument, NULL, OPT_NUMBER},
	{"overwrite", no_argument, NULL, OPT_OVERWRITE},
	{"quiet", no_argument, NULL, 'q'},
	{0},
};

static int options_read(struct restore *restore, int argc, char **argv, const char **ret_place)
{
	int option;

	optind = 1;
	opterr = 0;
	while ((option = getopt_long(argc, argv, "+q", OPTIONS, NULL)) != -1) {
		if (option == OPT_TARGET_ENDPOINT)
			restore->target_opts.endpoint = optarg;
		else if (option == OPT_TARGET_PROFILE)
			restore->target_opts.profile = optarg;
		else if (option == OPT_OVERWRITE)
			restore->overwrite = true;
		else if (option == 'q')
			restore->quiet = true;
		else if (option != OPT_NUMBER ||
			 slice_to_u64(slice_str(optarg), &restore->number) || !restore->number)
			return cli_usage_error(restore->command,
				"'%s' is not an option, or its value is wrong", argv[optind - 1]);
	}
	if (optind == argc || !*argv[optind])
		return cli_usage_error(
			restore->command, "%s: expected a folder or an s3:// address", argv[0]);
	*ret_place = argv[optind];
	if (restore->verifies)
		return optind + 1 == argc ? CLI_OK
					  : cli_usage_error(restore->command,
						    "backup-verify: too many arguments");
	/* The rest is what `nebulaio serve` takes; argv[0] is then the address. */
	return serve_configure(&restore->config, argc - optind, argv + optind);
}

static int whole_run(const struct cli_command *command, int argc, char **argv, bool verifies)
{
	struct restore *restore = calloc(1, sizeof(*restore));
	const char *place = NULL;
	int ret;

	if (!restore)
		return CLI_FAILED;
	restore->command = command;
	restore->verifies = verifies;
	restore->target.lock_fd = -1;
	restore->body = malloc(STORE_BACKUP_BODY_MAX);
	buf_init(&restore->pack, BACKUP_PACK_BYTES + 2 * BACKUP_PACKED_BYTES_MAX);
	umask(077);
	ret = restore->body ? options_read(restore, argc, argv, &place) : CLI_FAILED;
	if (!ret)
		ret = (verifies ? verify : run)(restore, place);
	backup_manifest_free(&restore->manifest);
	volume_remote_close(restore->remote);
	rv_close(restore->rados);
	target_close(&restore->target);
	buf_free(&restore->pack);
	free(restore->body);
	free(restore);
	return ret;
}

int restore_run(const struct cli_command *command, int argc, char **argv)
{
	return whole_run(command, argc, argv, false);
}

int backup_verify_run(const struct cli_command *command, int argc, char **argv)
{
	return whole_run(command, argc, argv, true);
}
