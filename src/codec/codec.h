/* codec/codec.h: the one face of codec: pure bytes to bytes. No I/O, no clock, no heap but where a
 * call says so; every function may be called from any thread, and a context belongs to one thread
 * at a time. Nothing here logs: the caller knows what a refusal means. */
#ifndef CODEC_CODEC_H
#define CODEC_CODEC_H

#include "codec/aead.h"
#include "codec/checksum.h"
#include "codec/crc.h"
#include "codec/ctr.h"
#include "codec/date.h"
#include "codec/ec.h"
#include "codec/hash.h"
#include "codec/signing.h"
#include "codec/text.h"
#include "codec/token.h"

#endif
