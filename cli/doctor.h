/* cli/doctor.h: the checks of `nebulaio doctor`, and the form of a finding. */
#ifndef CLI_DOCTOR_H
#define CLI_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>

enum finding_state {
	FINDING_OK,
	FINDING_INFO, /* good to know; nothing is wrong */
	FINDING_WARN, /* works, but slower or with less than it could */
	FINDING_FAIL, /* something that the user asked for will not work */
};

#define FINDING_TEXT_MAX 512
struct finding {
	enum finding_state state;
	const char *area; /* "memory", "rdma", … */
	char what[FINDING_TEXT_MAX];
	char why[FINDING_TEXT_MAX];  /* the consequence; may be empty */
	char fix[FINDING_TEXT_MAX];  /* a command to run as root, or empty */
	bool safe;		     /* --setup may run the fix, if the user agrees */
	char undo[FINDING_TEXT_MAX]; /* the command that undoes it; empty: there is none, or why
					describes it */
};

#define FINDINGS_MAX 256
struct doctor {
	struct finding findings[FINDINGS_MAX];
	size_t count;
	unsigned long long region_bytes; /* the memory that the server will lock */
	unsigned dscp;			 /* the DSCP of the server's packets */
	const char *sysfs;		 /* "/sys", or a copy */
	const char *root;		 /* "", or a folder with a copy of /boot and /proc */
};

/* Adds a finding; `what` is printf-style. Returns it for why and fix, never NULL. */
struct finding *doctor_note(struct doctor *doctor, enum finding_state state, const char *area,
	const char *what, ...) __attribute__((format(printf, 4, 5)));
/* Write a finding's why or fix. */
void doctor_why(struct finding *finding, const char *text, ...)
	__attribute__((format(printf, 2, 3)));
void doctor_fix(struct finding *finding, bool safe, const char *command, ...)
	__attribute__((format(printf, 3, 4)));

void doctor_undo(struct finding *finding, const char *command, ...)
	__attribute__((format(printf, 2, 3)));
struct config;
struct buf;
/* cmd_doctor.c: the findings about a configuration, for a server (server_doctor_fn). */
void doctor_tell(const struct config *config, struct buf *out);
/* doctor_setup.c: shows each safe fix with the command that undoes it, and runs it if the user
 * agrees: to all with yes, else on the terminal. Returns an enum cli_exit. */
int doctor_setup(const struct doctor *doctor, bool yes);

#define DOCTOR_PATH_BYTES 512
/* The first line of a file below sysfs, as file_line(). */
bool doctor_sysfs(const struct doctor *doctor, char *buf, size_t buf_bytes, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* Calls fn for each entry of a folder below sysfs, by name. */
typedef void doctor_each_fn(struct doctor *doctor, const char *name);
void doctor_each(struct doctor *doctor, const char *folder, doctor_each_fn *fn);

/* Whether the default route (IPv4) uses the interface. */
bool doctor_is_way_out(const struct doctor *doctor, const char *interface);

void doctor_check_memory(struct doctor *doctor);
void doctor_check_kernel(struct doctor *doctor);
void doctor_check_rdma(struct doctor *doctor);
void doctor_check_network(struct doctor *doctor);
void doctor_check_placement(struct doctor *doctor);
/* doctor_memory.c: persistent memory, and nodes of memory only. */
void doctor_check_extra_memory(struct doctor *doctor);
void doctor_check_disks(struct doctor *doctor);
void doctor_check_nvmeof(struct doctor *doctor);
void doctor_check_packages(struct doctor *doctor);

/* ---- The network below RDMA: doctor_wire.c. ---- */
/* Whether an RDMA device uses the interface. */
bool doctor_carries_rdma(const struct doctor *doctor, const char *interface);
void doctor_check_wire(struct doctor *doctor, const char *interface);
void doctor_check_ipsec(struct doctor *doctor);
/* associations: those of IPsec in this network namespace; offloaded: by a card, whole packets. */
void doctor_tell_ipsec(struct doctor *doctor, unsigned associations, unsigned offloaded);

/* ---- Settings that prevent the loss of an interface's packets: doctor_lossless.c. ---- */
struct hardware_dcb;
/* rdma: an RDMA device uses the interface, and packet loss harms it. */
void doctor_check_lossless(struct doctor *doctor, const char *interface, bool rdma);
/* The kernel's answer about priorities; err: the error of the query, or 0. */
void doctor_tell_dcb(struct doctor *doctor, const char *interface, bool rdma, int err,
	const struct hardware_dcb *dcb);
/* A counter that the driver keeps under its own name. */
struct doctor_counter {
	char name[33];
	unsigned long long value;
};
void doctor_tell_counters(struct doctor *doctor, const char *interface,
	const struct doctor_counter *counters, size_t count);

#endif
