/* replicate/change.c: a change of tags, of a retention or of a hold, as the request that brings the
 * replica to what the source's version has now. */
#include <errno.h>

#include "codec/codec.h"
#include "replicate/replicate_priv.h"

/* "tagging", and the version that it is about. */
static int query_make(struct slice version, const char *what, struct change *change)
{
	struct buf text;
	int ret;

	buf_init(&text, CHANGE_QUERY_BYTES - 1);
	buf_printf(&text, "%s=", what);
	if (version.len && !slice_eq(version, SLICE(REPLICATE_NO_VERSION))) {
		buf_put_str(&text, "&versionId=");
		uri_encode(version, 0, &text);
	}
	ret = text.failed ? -ENOMEM
			  : slice_copy_str(buf_slice(&text), change->query, sizeof(change->query));
	buf_free(&text);
	return ret;
}

static int tags_make(const struct s3_replicate_job *job, struct change *change)
{
	struct slice tags = job->tags;

	if (!tags.len) {
		change->method = "DELETE";
		return query_make(job->target_version, "tagging", change);
	}
	buf_put_str(&change->xml, "<Tagging><TagSet>");
	while (tags.len) {
		struct slice value = slice_split(&tags, '&'), key = slice_split(&value, '=');
		char text[4 * KIB];
		size_t len;

		buf_put_str(&change->xml, "<Tag><Key>");
		if (!uri_decode(key, 0, text, sizeof(text), &len))
			xml_escape(slice_of(text, len), &change->xml);
		buf_put_str(&change->xml, "</Key><Value>");
		if (!uri_decode(value, 0, text, sizeof(text), &len))
			xml_escape(slice_of(text, len), &change->xml);
		buf_put_str(&change->xml, "</Value></Tag>");
	}
	buf_put_str(&change->xml, "</TagSet></Tagging>");
	return query_make(job->target_version, "tagging", change);
}

static int hold_make(const struct s3_replicate_job *job, struct change *change)
{
	bool on = slice_eq(job->hold, SLICE("ON"));

	change->takes_away = !on;
	buf_printf(&change->xml, "<LegalHold><Status>%s</Status></LegalHold>", on ? "ON" : "OFF");
	return query_make(job->target_version, "legal-hold", change);
}

/* The target refuses a retention that is over. The replica's own has ended with it, too, unless it
 * is a GOVERNANCE one, which may have been made shorter: it is taken away. */
static int retention_make(const struct s3_replicate_job *job, struct change *change)
{
	bool holds = job->lock_mode.len && !job->lock_over;

	if (job->lock_over && slice_eq(job->lock_mode, SLICE("COMPLIANCE"))) {
		change->method = NULL;
		return 0;
	}
	change->takes_away = !holds;
	change->bypass = true;
	buf_put_str(&change->xml, "<Retention>");
	if (holds)
		buf_printf(&change->xml, "<Mode>%.*s</Mode><RetainUntilDate>%.*s</RetainUntilDate>",
			SLICE_FMT(job->lock_mode), SLICE_FMT(job->lock_until));
	buf_put_str(&change->xml, "</Retention>");
	return query_make(job->target_version, "retention", change);
}

int change_make(
	const struct s3_replicate_job *job, enum s3_replicate_kind kind, struct change *ret_change)
{
	int ret;

	*ret_change = (struct change){.method = "PUT"};
	buf_init(&ret_change->xml, 64 * KIB);
	if (kind == S3_REPLICATE_TAGS)
		ret = tags_make(job, ret_change);
	else if (kind == S3_REPLICATE_HOLD)
		ret = hold_make(job, ret_change);
	else
		ret = retention_make(job, ret_change);
	if (!ret && ret_change->xml.len)
		buf_put(&ret_change->xml, "", 1);
	return ret_change->xml.failed ? -ENOMEM : ret;
}

void change_free(struct change *change)
{
	buf_free(&change->xml);
}
