/* xdp/show.c: publishes a port's counters on the process's board. */
#include <stdio.h>

#include "base/board.h"
#include "xdp/xdp_priv.h"

static void put(struct xp_port *port, uint32_t idx, const char *what, uint64_t value)
{
	char name[BOARD_NAME_BYTES];

	CHECK(idx < XP_SHOWN_COUNT);
	if (!port->shown[idx]) {
		snprintf(name, sizeof(name), "nebulaio_xdp_%s_total{interface=\"%s\"}", what,
			port->interface);
		port->shown[idx] = board_place(name);
	}
	board_set(port->shown[idx], value);
}

static void put_rule(struct xp_port *port, uint32_t rule, bool bytes, uint64_t value)
{
	char name[BOARD_NAME_BYTES];

	if (!port->rules_shown[rule][bytes]) {
		snprintf(name, sizeof(name),
			"nebulaio_xdp_rule_%s_total{interface=\"%s\",rule=\"%u\"}",
			bytes ? "bytes" : "packets", port->interface, rule + 1);
		port->rules_shown[rule][bytes] = board_place(name);
	}
	board_set(port->rules_shown[rule][bytes], value);
}

void xp_show(struct xp_port *port)
{
	struct filter_count count;
	struct xp_stats stats;

	xp_stats(port, &stats);
	put(port, 0, "received", stats.received);
	put(port, 1, "received_bytes", stats.received_bytes);
	put(port, 2, "sent", stats.sent);
	put(port, 3, "ring_full", stats.ring_full);
	put(port, 4, "fill_empty", stats.fill_empty);
	put(port, 5, "dropped", stats.dropped);
	put(port, 6, "invalid_rx", stats.invalid_rx);
	put(port, 7, "invalid_tx", stats.invalid_tx);
	put(port, 8, "unmarked", stats.unmarked);
	put(port, 9, "hardware_time", stats.stamped);
	for (uint32_t i = 0; i < FILTER_RULES_MAX; i++) {
		if (xp_rule_count(port, i, &count)) {
			if (!port->rules_shown[i][false])
				continue;
			count = (struct filter_count){0}; /* there is no such rule any more */
		}
		put_rule(port, i, false, count.packets);
		put_rule(port, i, true, count.bytes);
	}
}
