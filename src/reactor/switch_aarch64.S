/* reactor/switch_aarch64.S: the context switch for aarch64 (AAPCS64): saves what a callee must keep
 * (x19 to x30, the low halves of v8 to v15, and fpcr), swaps stacks, restores. */
#if defined(__aarch64__) && !defined(REACTOR_UCONTEXT)

/* void reactor_switch(void **save_sp, void *load_sp)
 * The saved frame, from the stack pointer up: d8 to d15, x19 to x28, x29, x30, fpcr, padding.
 * switch.h builds the same frame for a new fiber. */
	.text
	.p2align 4
	.globl reactor_switch
	.hidden reactor_switch
	.type reactor_switch, %function
reactor_switch:
	.cfi_startproc
	sub sp, sp, #176
	.cfi_adjust_cfa_offset 176
	stp d8, d9, [sp, #0]
	stp d10, d11, [sp, #16]
	stp d12, d13, [sp, #32]
	stp d14, d15, [sp, #48]
	stp x19, x20, [sp, #64]
	stp x21, x22, [sp, #80]
	stp x23, x24, [sp, #96]
	stp x25, x26, [sp, #112]
	stp x27, x28, [sp, #128]
	stp x29, x30, [sp, #144]
	.cfi_rel_offset x29, 144
	.cfi_rel_offset x30, 152
	mrs x9, fpcr
	str x9, [sp, #160]
	mov x10, sp
	str x10, [x0]
	/* From here on the frame is the other side's, of the same shape: the unwind rules stay true. */
	mov sp, x1
	/* Writing fpcr drains the pipeline on some cores, and it hardly ever differs. */
	ldr x10, [sp, #160]
	cmp x9, x10
	b.eq 1f
	msr fpcr, x10
1:
	ldp d8, d9, [sp, #0]
	ldp d10, d11, [sp, #16]
	ldp d12, d13, [sp, #32]
	ldp d14, d15, [sp, #48]
	ldp x19, x20, [sp, #64]
	ldp x21, x22, [sp, #80]
	ldp x23, x24, [sp, #96]
	ldp x25, x26, [sp, #112]
	ldp x27, x28, [sp, #128]
	ldp x29, x30, [sp, #144]
	add sp, sp, #176
	.cfi_adjust_cfa_offset -176
	.cfi_restore x29
	.cfi_restore x30
	ret
	.cfi_endproc
	.size reactor_switch, . - reactor_switch

/* Where a new fiber's first switch lands: x19 is the entry, x20 its argument. It has no caller, and
 * says so to unwinders both ways (CFI and a zero frame pointer). */
	.p2align 4
	.globl reactor_switch_start
	.hidden reactor_switch_start
	.type reactor_switch_start, %function
reactor_switch_start:
	.cfi_startproc
	.cfi_undefined x30
	mov x29, xzr
	mov x30, xzr
	mov x0, x20
	blr x19
	brk #1
	.cfi_endproc
	.size reactor_switch_start, . - reactor_switch_start

#endif
#if defined(__linux__) && defined(__ELF__)
	.section .note.GNU-stack, "", %progbits
#endif
