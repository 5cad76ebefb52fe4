/* base/probe.h: static user-space probes (USDT) at the data path's stations, for bpftrace and perf.
 * One costs a no-op instruction until a tracer attaches; without <sys/sdt.h> at build time there
 * are none. docs/guide/troubleshooting.md lists them. */
#ifndef BASE_PROBE_H
#define BASE_PROBE_H

#if __has_include(<sys/sdt.h>)
#include <sys/sdt.h>
#define PROBE1(name, a)	      DTRACE_PROBE1(nebulaio, name, a)
#define PROBE2(name, a, b)    DTRACE_PROBE2(nebulaio, name, a, b)
#define PROBE3(name, a, b, c) DTRACE_PROBE3(nebulaio, name, a, b, c)
#else
#define PROBE1(name, a)	      ((void)(a))
#define PROBE2(name, a, b)    ((void)(a), (void)(b))
#define PROBE3(name, a, b, c) ((void)(a), (void)(b), (void)(c))
#endif

#endif
