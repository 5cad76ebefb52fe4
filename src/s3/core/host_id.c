/* s3/core/host_id.c: the id that distinguishes this host's answers from others': a digest of its
 * name. */
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "codec/codec.h"
#include "s3/s3.h"

void s3_host_id(char ret_id[S3_HOST_ID_LEN + 1])
{
	char host[256] = "";
	uint8_t digest[SHA256_BYTES];
	size_t len;

	gethostname(host, sizeof(host) - 1);
	sha256_of(host, strlen(host), digest);
	len = base64_encode(digest, sizeof(digest), ret_id);
	CHECK(len == S3_HOST_ID_LEN);
	ret_id[len] = '\0';
}
