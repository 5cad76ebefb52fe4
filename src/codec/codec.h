/* codec/codec.h: includes every header of codec, which turns bytes into bytes. There is no I/O, no
 * clock, and no heap unless a call says so. Every function may be called from any thread; a context
 * belongs to one thread at a time. Nothing here logs, because only the caller knows what a refusal
 * means. */
#ifndef CODEC_CODEC_H
#define CODEC_CODEC_H

#include "codec/aead.h"
#include "codec/checksum.h"
#include "codec/crc.h"
#include "codec/ctr.h"
#include "codec/date.h"
#include "codec/ec.h"
#include "codec/elbencho.h"
#include "codec/hash.h"
#include "codec/hipobj.h"
#include "codec/signing.h"
#include "codec/text.h"
#include "codec/token.h"

#endif
