/* cli/backup.c: `nebulaio admin backup`: copies a running store to a folder or a bucket. A backup
 * stores what the target does not have: chunks of rows, named by what is in them, and bodies, which
 * never change. Its manifest, the last file, makes it a backup. So one that was cut short at any
 * place goes on where it was, and costs only what is missing. */
#include "backup.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backup_priv.h"

#define MANIFEST_BYTES	(1024 * MIB)
#define PASSES_IDLE_MAX 3u /* sessions that end without anything new */

/* ---- A pass: all rows of one session. ---- */

static int strange(struct backup *backup)
{
	fprintf(stderr, "nebulaio: %s: the answer is no page of rows\n", backup->opts.endpoints);
	return CLI_FAILED;
}

/* Takes the page's rows; cursor gets that of the next page. */
static int page_take(struct backup *backup, struct slice text, struct buf *cursor)
{
	struct store_backup_page head;
	struct store_backup_row row;
	struct slice rest, key, value;
	int ret = CLI_OK, more;

	if (text.len < sizeof(head))
		return strange(backup);
	memcpy(&head, text.data, sizeof(head));
	if (memcmp(head.magic, STORE_BACKUP_PAGE_MAGIC, sizeof(head.magic)) != 0) {
		fprintf(stderr,
			"nebulaio: %s: the server sends rows in a form that this program does not "
			"know: use the nebulaio of the server's version\n",
			backup->opts.endpoints);
		return CLI_FAILED;
	}
	if (head.cursor_len > text.len - sizeof(head))
		return strange(backup);
	rest = slice_from(text, sizeof(head));
	buf_reset(cursor);
	buf_put_slice(cursor, slice_to(rest, head.cursor_len));
	rest = slice_from(rest, head.cursor_len);
	while (!ret) {
		const char *from = rest.data;

		more = store_backup_row_next(&rest, &row, &key, &value);
		if (more <= 0)
			break;
		ret = backup_row_take(
			backup, &row, key, slice_of(from, sizeof(row) + key.len + value.len));
		head.rows--;
	}
	return ret ? ret : head.rows ? strange(backup) : CLI_OK;
}

static int pass(struct backup *backup)
{
	char path[64];
	struct buf cursor, page;
	int ret;

	buf_init(&cursor, STORE_BACKUP_KEY_MAX + 64);
	buf_init(&page, BACKUP_ANSWER_BYTES);
	snprintf(path, sizeof(path), "/admin/v1/backups/%llu/rows",
		(unsigned long long)backup->session);
	do {
		ret = backup_ask(backup, "POST", path, buf_slice(&cursor));
		if (ret)
			break;
		/* Bodies are fetched meanwhile, into the same memory. */
		buf_reset(&page);
		buf_put(&page, backup->answer, backup->answer_bytes);
		ret = page.failed ? CLI_FAILED : page_take(backup, buf_slice(&page), &cursor);
	} while (!ret && cursor.len);
	buf_free(&page);
	buf_free(&cursor);
	return ret ? ret : backup_chunk_end(backup);
}

static void pass_begin(struct backup *backup)
{
	buf_reset(&backup->rows);
	buf_reset(&backup->pack);
	buf_reset(&backup->entries);
	buf_reset(&backup->batch);
	backup->batch_count = 0;
	backup->batch_bytes = 0;
	backup->small_bytes = backup->sent_in_pass = 0;
	backup->known_from = backup->known_to = backup->known_count = 0;
	backup->head.rows = backup->head.bodies = backup->head.body_bytes = 0;
	backup->head.chunks = 0;
}

/* ---- The whole. ---- */

static int manifest_put(struct backup *backup)
{
	struct backup_manifest_head *head = &backup->head;
	char name[BACKUP_NAME_BYTES];
	struct slice parts[3];
	int ret = target_sync(&backup->target);

	if (ret)
		return ret;
	head->ended_ns = clock_real_ns();
	head->kept_bytes = (uint32_t)strlen(backup->kept);
	parts[0] = slice_of(
		(const char *)head + sizeof(head->head), sizeof(*head) - sizeof(head->head));
	parts[1] = slice_str(backup->kept);
	parts[2] = buf_slice(&backup->entries);
	backup_head_fill(&head->head, BACKUP_MAGIC_MANIFEST, parts, ARRAY_LEN(parts));
	parts[0] = slice_of(head, sizeof(*head));
	backup_manifest_name(head->number, name);
	ret = target_put_new(&backup->target, name, parts, ARRAY_LEN(parts));
	return ret ? ret : target_sync(&backup->target);
}

static int passes(struct backup *backup)
{
	uint32_t idle = 0;
	int ret;

	for (;;) {
		progress_start(&backup->progress, "backup", backup->head.store.used_bytes);
		pass_begin(backup);
		ret = pass(backup);
		progress_end(&backup->progress);
		if (ret != BACKUP_AGAIN)
			return ret;
		backup->session = 0;
		idle = backup->sent_in_pass ? 0 : idle + 1;
		if (idle == PASSES_IDLE_MAX) {
			fprintf(stderr,
				"nebulaio: the server ended the backup's session %u times before "
				"anything new was copied: give it longer (--pin), or make room in "
				"the store\n",
				PASSES_IDLE_MAX);
			return CLI_FAILED;
		}
		if (!backup->quiet)
			fprintf(stderr, "nebulaio: the server ended the backup's session; going on "
					"with a later moment\n");
		ret = backup_session_begin(backup);
		if (ret)
			return ret;
	}
}

static void print_done(const struct backup *backup)
{
	const struct backup_manifest_head *head = &backup->head;
	char bytes[32], sent[32];

	if (backup->opts.json)
		printf("{\"number\": %llu, \"rows\": %llu, \"bodies\": %llu, \"bytes\": %llu, "
		       "\"sent_bytes\": %llu}\n",
			(unsigned long long)head->number, (unsigned long long)head->rows,
			(unsigned long long)head->bodies, (unsigned long long)head->body_bytes,
			(unsigned long long)head->sent_bytes);
	else if (!backup->quiet)
		printf("backup %llu is complete: %llu bodies, %s; %s were new\n",
			(unsigned long long)head->number, (unsigned long long)head->bodies,
			remote_bytes_text(head->body_bytes, bytes),
			remote_bytes_text(head->sent_bytes, sent));
}

static int run(struct backup *backup, const char *place)
{
	struct backup_numbers numbers = {0};
	int ret = target_open(&backup->target, place, &backup->target_opts, true);

	if (!ret)
		ret = backup_numbers_read(&backup->target, &numbers);
	if (!ret)
		ret = backup_session_begin(backup);
	if (!ret && numbers.count)
		ret = backup_old_open(backup, numbers.list[numbers.count - 1]);
	if (!ret) {
		backup->head.number = numbers.count ? numbers.list[numbers.count - 1] + 1 : 1;
		backup->head.begun_ns = clock_real_ns();
		ret = passes(backup);
	}
	if (!ret)
		ret = manifest_put(backup);
	backup_session_end(backup);
	if (!ret)
		print_done(backup);
	free(numbers.list);
	return ret;
}

static void backup_free(struct backup *backup)
{
	backup_manifest_free(&backup->old);
	free(backup->old_order);
	free(backup->known);
	free(backup->places);
	free(backup->kept);
	free(backup->answer);
	free(backup->body);
	buf_free(&backup->rows);
	buf_free(&backup->pack);
	buf_free(&backup->entries);
	buf_free(&backup->batch);
	neb_client_close(backup->client);
	target_close(&backup->target);
	free(backup);
}

static struct backup *backup_alloc(const struct cli_command *command)
{
	struct backup *backup = calloc(1, sizeof(*backup));

	if (!backup)
		return NULL;
	backup->command = command;
	backup->target.lock_fd = -1;
	backup->pin_s = 600;
	backup->answer = malloc(BACKUP_ANSWER_BYTES);
	backup->body = malloc(STORE_BACKUP_BODY_MAX);
	buf_init(&backup->rows, BACKUP_CHUNK_MAX / 2);
	buf_init(&backup->pack, BACKUP_PACK_BYTES + BACKUP_PACKED_BYTES_MAX);
	buf_init(&backup->entries, MANIFEST_BYTES);
	buf_init(&backup->batch, 2 * MIB + 16 * KIB);
	return backup;
}

/* ---- The command line. ---- */

enum { OPT_ENDPOINT = REMOTE_OWN, OPT_TARGET_ENDPOINT, OPT_TARGET_PROFILE, OPT_KEEP, OPT_PIN };

static const struct option OPTIONS[] = {
	{"endpoint", required_argument, NULL, OPT_ENDPOINT},
	{"target-endpoint", required_argument, NULL, OPT_TARGET_ENDPOINT},
	{"target-profile", required_argument, NULL, OPT_TARGET_PROFILE},
	{"keep", required_argument, NULL, OPT_KEEP},
	{"pin", required_argument, NULL, OPT_PIN},
	{"quiet", no_argument, NULL, 'q'},
	{"access-key", required_argument, NULL, REMOTE_ACCESS},
	{"secret-key", required_argument, NULL, REMOTE_SECRET},
	{"profile", required_argument, NULL, REMOTE_PROFILE},
	{"json", no_argument, NULL, REMOTE_JSON},
	{0},
};

static int option_take(struct backup *backup, int option, const char **endpoint, char **argv)
{
	switch (option) {
	case OPT_ENDPOINT:
		*endpoint = optarg;
		return CLI_OK;
	case OPT_TARGET_ENDPOINT:
		backup->target_opts.endpoint = optarg;
		return CLI_OK;
	case OPT_TARGET_PROFILE:
		backup->target_opts.profile = optarg;
		return CLI_OK;
	case OPT_KEEP:
		if (slice_to_u64(slice_str(optarg), &backup->keep) || !backup->keep)
			return cli_usage_error(
				backup->command, "--keep: '%s' is not a number from 1 on", optarg);
		return CLI_OK;
	case OPT_PIN:
		if (slice_to_u64(slice_str(optarg), &backup->pin_s) || !backup->pin_s ||
			backup->pin_s > STORE_BACKUP_PIN_S_MAX)
			return cli_usage_error(backup->command,
				"--pin: '%s' is not a number of seconds from 1 to 86400", optarg);
		return CLI_OK;
	case 'q':
		backup->quiet = true;
		return CLI_OK;
	default:
		return remote_option(backup->command, &backup->opts, option, argv);
	}
}

/* *ret_place: the only operand. */
static int options_read(struct backup *backup, int argc, char **argv, const char **ret_place)
{
	const char *endpoint = NULL;
	int option, ret = CLI_OK;

	remote_defaults(&backup->opts);
	optind = 1;
	opterr = 0;
	while (!ret && (option = getopt_long(argc, argv, "q", OPTIONS, NULL)) != -1)
		ret = option_take(backup, option, &endpoint, argv);
	if (ret)
		return ret;
	if (optind != argc - 1 || !*argv[optind])
		return cli_usage_error(
			backup->command, "%s: expected one folder or s3:// address", argv[0]);
	backup->opts.endpoints = endpoint ? endpoint : backup->opts.admin_endpoint;
	backup->opts.transport = NEB_HTTP;
	*ret_place = argv[optind];
	return CLI_OK;
}

int backup_run(const struct cli_command *command, int argc, char **argv)
{
	struct backup *backup = backup_alloc(command);
	const char *place;
	int ret;

	if (!backup || !backup->answer || !backup->body) {
		fprintf(stderr, "nebulaio: no memory\n");
		return CLI_FAILED;
	}
	ret = options_read(backup, argc, argv, &place);
	if (!ret)
		ret = remote_open(&backup->opts, &backup->client);
	if (!ret)
		ret = run(backup, place);
	if (!ret && backup->keep)
		ret = backup_prune(&backup->target, backup->keep);
	backup_free(backup);
	return ret;
}

int backup_list_run(const struct cli_command *command, int argc, char **argv)
{
	struct backup *backup = backup_alloc(command);
	const char *place;
	int ret;

	if (!backup)
		return CLI_FAILED;
	ret = options_read(backup, argc, argv, &place);
	if (!ret)
		ret = target_open(&backup->target, place, &backup->target_opts, false);
	if (!ret)
		ret = backup_list_print(&backup->target, backup->opts.json);
	backup_free(backup);
	return ret;
}
