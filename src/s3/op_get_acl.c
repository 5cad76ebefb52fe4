/* s3/op_get_acl.c: GetBucketAcl and GetObjectAcl: all is the owner's, in full. */
#include "s3/s3_priv.h"

const struct s3_error *s3_op_get_acl(struct s3_call *call)
{
	const struct s3_error *error;
	struct store_bucket bucket;
	struct store_get *get;
	struct buf xml;

	if (call->key.len)
		error = s3_open_object(call, call->bucket, call->key, &get);
	else
		error = s3_call_bucket(call, &bucket);
	if (error)
		return error;
	if (call->key.len)
		store_get_close(get);
	s3_xml_begin(&xml, "AccessControlPolicy");
	s3_xml_owner(&xml, "Owner");
	buf_put_str(&xml, "<AccessControlList><Grant>"
			  "<Grantee xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" "
			  "xsi:type=\"CanonicalUser\">");
	xml_element("ID", slice_str(s3_owner_id), &xml);
	xml_element("DisplayName", SLICE(S3_OWNER_NAME), &xml);
	buf_put_str(&xml, "</Grantee><Permission>FULL_CONTROL</Permission>"
			  "</Grant></AccessControlList>");
	s3_xml_end(&xml, "AccessControlPolicy");
	return s3_answer_xml(call, 200, &xml);
}
