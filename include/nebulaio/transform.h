/* nebulaio/transform.h: what a shared object provides so that `nebulaio flow --transform` can load
 * it, and its manual: a transform changes the bytes of a flow between its source and its target.
 *
 *	#include <nebulaio/transform.h>
 *
 *	static int invert(void *state, uint8_t *data, size_t *bytes, size_t capacity)
 *	{
 *		for (size_t i = 0; i < *bytes; i++)
 *			data[i] ^= 0xff;
 *		return 0;
 *	}
 *
 *	const struct neb_transform neb_transform = {
 *		.version = NEB_TRANSFORM_VERSION,
 *		.flags = NEB_TRANSFORM_SAME_LENGTH,
 *		.name = "invert",
 *		.change = invert,
 *	};
 *
 *	cc -shared -fPIC -o invert.so invert.c
 *	nebulaio flow --from disk:in --to disk:out --transform ./invert.so
 *
 * The shared object links nothing of NebulaIO. The program loads it by its path and takes the one
 * symbol neb_transform. examples/transform-downsample.c is a whole transform.
 *
 * PIECES. A flow is a stream of bytes that comes in pieces of 1 byte to 1 MiB. Where one piece ends
 * and the next begins means nothing: records of the stream may lie across pieces, and a transform
 * that needs whole records keeps the first part of one until the rest comes. Several transforms
 * form a chain: each gets the output of the one before it.
 *
 * KINDS. A transform has either change or convert. change works in place, on the frames in which
 * the piece came: it may alter the bytes, make them fewer (0 drops the piece), or make them more up
 * to the capacity, which may be no more than the piece has. convert takes from one buffer and gives
 * into another, and may keep bytes between calls: it grows, shrinks, joins and splits.
 *
 * PACKETS. A transform with NEB_TRANSFORM_PACKETS works on the packets of an xdp: source, before
 * anything is made of them: each call of change has one whole packet, from its Ethernet header on,
 * in the frame in which it arrived. It may rewrite the packet, shorten it, or drop it (0 bytes). It
 * has one state for the whole flow, flush is not called, and such transforms come first in the
 * chain. Packets longer than a frame (about 3,600 bytes) do not pass them; they are counted. A
 * transform without the flag gets the bytes of the file, object or stream that the packets become.
 *
 * TRUST. A transform runs inside the process, with all of its rights and memory. The program checks
 * every length that a transform returns against its bounds and ends the flow with an error when one
 * is impossible. It cannot check a transform's writes: a write outside of the given buffers damages
 * the process. Load only code that you would run.
 *
 * THREADS. Calls for one state come one at a time, in the order of the stream, but not always from
 * the same thread. The stack has about 1 MiB. A call may take as long as its work does; the flow
 * waits for it, and meanwhile devices go on with work under way. States of several flows in
 * one process may be called at the same time: keep your data in the state.
 *
 * ERRORS. A function that fails returns a negative errno and may give the reason in words. The flow
 * then ends with an error: what its target has made durable stays, and flush is not called.
 * -EBADMSG is for input that is damaged: `nebulaio flow` then exits as for damaged data. After an
 * error only why and close are called. */
#ifndef NEBULAIO_TRANSFORM_H
#define NEBULAIO_TRANSFORM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of this interface. A program loads a transform of its own version and no other. */
#define NEB_TRANSFORM_VERSION 1u

/* ---- Flags. ---- */
/* Each piece leaves as long as it came, and flush gives nothing. Only with change. Such a flow
 * acknowledges durable bytes to its sender piece by piece; other flows acknowledge nothing before
 * their end. */
#define NEB_TRANSFORM_SAME_LENGTH 1u
/* It works on packets, one whole packet in each call. Only with change. */
#define NEB_TRANSFORM_PACKETS 2u

/* ---- Results of convert and flush, beside 0 and a negative errno. ---- */
/* There is more to give than there was room for: the next call comes with new room. */
#define NEB_TRANSFORM_MORE 1

/* convert and flush always have at least this much room. */
#define NEB_TRANSFORM_ROOM (128u << 10)

/* ---- Buffers. ---- */
struct neb_transform_in {
	const uint8_t *data;
	size_t bytes;
	size_t taken; /* 0 at the call; set it. The rest comes again with the next call */
};
struct neb_transform_out {
	uint8_t *data;
	size_t capacity; /* NEB_TRANSFORM_ROOM or more */
	size_t bytes;	 /* 0 at the call; set it */
};

/* ---- A transform. ---- */
struct neb_transform {
	uint32_t version; /* NEB_TRANSFORM_VERSION */
	uint32_t flags;	  /* NEB_TRANSFORM_SAME_LENGTH, NEB_TRANSFORM_PACKETS, or 0 */
	const char *name; /* for messages; up to 31 characters */
	/* Once for each flow, before its first piece. options: the text after the colon behind the
	 * path, "" when there is none; valid during the call. On failure *ret_state stays as it is,
	 * and why, of why_bytes, may say in words how to mend it. NULL: there is no state. */
	int (*open)(const char *options, char *why, size_t why_bytes, void **ret_state);
	/* In place: *bytes of data, on entry as they came, on return as they go on, at most
	 * capacity. Returns 0. */
	int (*change)(void *state, uint8_t *data, size_t *bytes, size_t capacity);
	/* Takes from in and gives to out. Returns 0 when it can go on only with more input or,
	 * where it left some of in, with new room; NEB_TRANSFORM_MORE when it has more to give
	 * without any input: it is then called again, in->bytes may be 0. A call that neither takes
	 * nor gives anything while there is input ends the flow. */
	int (*convert)(void *state, struct neb_transform_in *in, struct neb_transform_out *out);
	/* After the last piece: gives the rest. Returns 0 at the end, NEB_TRANSFORM_MORE to be
	 * called again. A stream that must not end here is an error: -EBADMSG. NULL: nothing is
	 * left. */
	int (*flush)(void *state, struct neb_transform_out *out);
	/* The error in words, after an error; valid until close. NULL: the errno's words. */
	const char *(*why)(void *state);
	/* Once for each open that succeeded. NULL: there is nothing to release. */
	void (*close)(void *state);
};

/* The one symbol that the shared object defines. */
#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
extern const struct neb_transform neb_transform;

#ifdef __cplusplus
}
#endif
#endif
