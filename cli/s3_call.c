/* cli/s3_call.c: sends any request to S3, and reads XML answers. */
#include "s3_call.h"

#include <errno.h>
#include <expat.h>
#include <stdlib.h>
#include <string.h>

#include "codec/codec.h"

int s3_call(struct neb_client *client, const struct s3_call *call, struct buf *answer,
	struct neb_result *ret_result)
{
	struct neb_header header = {"content-type", call->content_type};
	struct neb_iov body = {(void *)(uintptr_t)call->body, call->body_bytes};
	size_t room = MIN(answer->bytes_max, 4 * MIB);
	struct neb_iov into = {malloc(room), room};
	struct neb_request request = {.op = NEB_S3,
		.method = call->method,
		.query = call->query,
		.headers = &header,
		.header_count = call->content_type != NULL,
		.body = &body,
		.body_count = call->body_bytes > 0,
		.into = &into,
		.into_count = 1};
	struct neb_result result = {0};
	struct buf path;
	int ret = CLI_FAILED;

	buf_init(&path, 8192);
	buf_put_str(&path, "/");
	uri_encode(slice_str(call->bucket), 0, &path);
	if (call->key)
		buf_put_str(&path, "/");
	uri_encode(slice_str(call->key), URI_KEEP_SLASH, &path);
	buf_put(&path, "", 1);
	request.path = path.data;
	if (path.failed || !into.data) {
		fprintf(stderr, "nebulaio: no memory for the request\n");
	} else {
		ret = neb_perform(client, &request, &result);
		if (ret && call->may_be_missing && result.status == 404)
			ret = CLI_NOT_FOUND;
		else if (ret)
			ret = remote_failed(call->key	   ? call->key
					    : call->bucket ? call->bucket
							   : "the server",
				&result);
		buf_put(answer, into.data, result.bytes);
		buf_put(answer, "", 1);
	}
	if (ret_result)
		*ret_result = result;
	buf_free(&path);
	free(into.data);
	return ret;
}

int s3_setting(const struct remote_opts *opts, const char *bucket, const char *query, bool delete,
	const struct buf *document)
{
	bool reads = !delete &&!document->len;
	const struct s3_call call = {.method = delete  ? "DELETE"
					       : reads ? "GET"
						       : "PUT",
		.bucket = bucket,
		.query = query,
		.body = document->data,
		.body_bytes = document->len};
	struct neb_client *client;
	struct buf answer;
	int ret = remote_open(opts, &client);

	if (ret)
		return ret;
	buf_init(&answer, 4 * MIB);
	ret = s3_call(client, &call, &answer, NULL);
	if (!ret && reads)
		printf("%s\n", answer.data);
	buf_free(&answer);
	neb_client_close(client);
	return ret;
}

/* ---- XML. ---- */

struct reading {
	xml_fn *fn;
	void *arg;
	struct buf text;
};

static const char *local_name(const char *name)
{
	const char *colon = strrchr(name, ':');

	return colon ? colon + 1 : name;
}

static void on_start(void *arg, const XML_Char *name, const XML_Char **attributes)
{
	struct reading *reading = arg;

	(void)attributes;
	buf_reset(&reading->text);
	reading->fn(reading->arg, XML_BEGIN, local_name(name), "");
}

static void on_end(void *arg, const XML_Char *name)
{
	struct reading *reading = arg;

	buf_put(&reading->text, "", 1);
	reading->fn(reading->arg, XML_END, local_name(name),
		reading->text.failed ? "" : reading->text.data);
	buf_reset(&reading->text);
}

static void on_text(void *arg, const XML_Char *text, int len)
{
	buf_put(&((struct reading *)arg)->text, text, (size_t)len);
}

int xml_read(const char *xml, size_t bytes, xml_fn *fn, void *arg)
{
	struct reading reading = {.fn = fn, .arg = arg};
	XML_Parser parser = XML_ParserCreate("UTF-8");
	int ret;

	if (!parser)
		return -ENOMEM;
	buf_init(&reading.text, 64 * KIB);
	XML_SetUserData(parser, &reading);
	XML_SetElementHandler(parser, on_start, on_end);
	XML_SetCharacterDataHandler(parser, on_text);
	ret = XML_Parse(parser, xml, (int)bytes, XML_TRUE) == XML_STATUS_OK ? 0 : -EBADMSG;
	XML_ParserFree(parser);
	buf_free(&reading.text);
	return ret;
}
