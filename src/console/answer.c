/* console/answer.c: writes the console's own answers, with the headers that keep its pages safe,
 * and reads requests' headers, cookies and bodies. */
#include "console/console_priv.h"

#include <errno.h>
#include <stdlib.h>

#include "document/document.h"
#include "document/json.h"

/* ---- Answers. ---- */

static const struct s3_header SAFETY[] = {
	{SLICE("X-Content-Type-Options"), SLICE("nosniff")},
	{SLICE("X-Frame-Options"), SLICE("DENY")},
	{SLICE("Referrer-Policy"), SLICE("no-referrer")},
	{SLICE("Cross-Origin-Opener-Policy"), SLICE("same-origin")},
	{SLICE("Cross-Origin-Resource-Policy"), SLICE("same-origin")},
	{SLICE("Permissions-Policy"), SLICE("camera=(), geolocation=(), microphone=()")},
	{SLICE("Content-Security-Policy"),
		SLICE("default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' "
		      "blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
		      "frame-ancestors 'none'; require-trusted-types-for 'script'; "
		      "trusted-types xml")},
};

void console_answer(struct console_visit *visit, const struct console_answer *answer)
{
	struct s3_header headers[ARRAY_LEN(SAFETY) + ARRAY_LEN(answer->more) + 1];
	uint32_t count = 0;

	for (uint32_t i = 0; i < ARRAY_LEN(SAFETY); i++)
		headers[count++] = SAFETY[i];
	if (answer->type.len)
		headers[count++] = (struct s3_header){SLICE("Content-Type"), answer->type};
	for (uint32_t i = 0; i < answer->more_count; i++)
		headers[count++] = answer->more[i];
	if (visit->reply->ops->head(
		    visit->reply, answer->status, headers, count, answer->body.len) == 0 &&
		answer->body.len && visit->request->method != S3_HEAD)
		visit->reply->ops->text(visit->reply, answer->body);
}

/* Takes the reference over. */
void console_answer_json(
	struct console_visit *visit, uint32_t status, json_t *json, const struct s3_header *more)
{
	char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
	struct console_answer answer = {.status = text ? status : 503,
		.type = SLICE("application/json"),
		.body = slice_str(text ? text : "{\"error\":\"Out of memory.\"}"),
		.more = {{SLICE("Cache-Control"), SLICE("no-store")}},
		.more_count = 1};

	if (more)
		answer.more[answer.more_count++] = *more;
	console_answer(visit, &answer);
	if (text)
		secret_wipe(text, strlen(text));
	free(text);
	json_decref(json);
}

void console_answer_error(struct console_visit *visit, uint32_t status, const char *text)
{
	console_answer_json(visit, status, json_pack("{s:s}", "error", text), NULL);
}

/* ---- Reading a request. ---- */

struct slice console_header(const struct s3_request *request, struct slice name)
{
	for (uint32_t i = 0; i < request->header_count; i++)
		if (slice_eq_nocase(request->headers[i].name, name))
			return request->headers[i].value;
	return SLICE_NONE;
}

struct slice console_cookie(const struct s3_request *request, struct slice name)
{
	struct slice rest = console_header(request, SLICE("cookie"));

	while (rest.len) {
		struct slice value = slice_trim(slice_split(&rest, ';'));

		if (slice_eq(slice_split(&value, '='), name))
			return value;
	}
	return SLICE_NONE;
}

struct console_now console_now_get(void)
{
	return (struct console_now){
		.mono_ns = clock_now_ns(), .real_ms = (int64_t)(clock_real_ns() / NS_PER_MS)};
}

/* The JSON object of a small body; NULL: answered. */
json_t *console_read_json(struct console_visit *visit)
{
	const struct s3_chunk_signing plain = {.payload = S3_PAYLOAD_UNSIGNED};
	struct s3_body *body = visit->request->body;
	struct flow_source *source;
	json_t *json = NULL;
	struct buf text;
	int ret = -EINVAL;

	buf_init(&text, 4 * CONSOLE_FORM_BYTES_MAX);
	if (body->bytes && body->bytes <= 4 * CONSOLE_FORM_BYTES_MAX)
		ret = body->ops->open(body, &plain, &source);
	if (!ret)
		ret = document_read_source(visit->request->core, source, &text);
	if (!ret && json_is_flat(buf_slice(&text), 4))
		json = json_loadb(text.data, text.len, 0, NULL);
	if (text.data)
		secret_wipe(text.data, text.len);
	buf_free(&text);
	if (json_is_object(json))
		return json;
	json_decref(json);
	console_answer_error(
		visit, ret == -ENOBUFS ? 503 : 400, "The request's body is not understood.");
	return NULL;
}
