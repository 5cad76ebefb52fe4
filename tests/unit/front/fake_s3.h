/* tests/unit/front/fake_s3.h: the S3 side of a front: one key, and answers that the test gives. */
#ifndef TESTS_UNIT_FRONT_FAKE_S3_H
#define TESTS_UNIT_FRONT_FAKE_S3_H

#include "front/front.h"

#define FAKE_ACCESS_KEY "AKTEST"
#define FAKE_SECRET_KEY "a secret of forty characters, more or less"

struct fake_s3 {
	void (*handle)(const struct s3_request *request, struct s3_reply *reply);
	void *arg; /* the test's */
	uint32_t calls;
	bool hold_keys;	      /* a look-up waits */
	struct fiber *waiter; /* the fiber that waits */
};
extern struct fake_s3 fake_s3;

void fake_s3_reset(void);
/* Lets the waiting look-up continue. */
void fake_s3_key_go(void);
/* Answers with a document. */
void fake_answer(struct s3_reply *reply, uint32_t status, struct slice text);
/* Reads the whole body into data; returns the number of bytes, or -errno. */
int64_t fake_body(const struct s3_request *request, uint8_t *data, size_t bytes_max);
/* Answers 200 with so many bytes of a pattern by the reply's sink, in pieces of piece_bytes, leased
 * or borrowed. */
int fake_send_bytes(struct flow_core *core, struct s3_reply *reply, uint64_t bytes,
	uint32_t piece_bytes, bool borrowed);
uint8_t fake_byte(uint64_t offset);
/* For a reply of HTTP whose answer has no body: drops a text, and has no sink. */
int fake_no_text(struct s3_reply *reply, struct slice text);
int fake_no_sink(struct s3_reply *reply, struct flow_sink **ret_sink);

#endif
