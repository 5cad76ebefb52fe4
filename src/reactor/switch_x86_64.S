/* reactor/switch_x86_64.S: the context switch for x86_64 (System V ABI): saves what a callee must
 * keep (rbx, rbp, r12 to r15 and the two floating-point control words), swaps stacks, restores. */
#if defined(__x86_64__) && !defined(REACTOR_UCONTEXT)

/* void reactor_switch(void **save_sp, void *load_sp)
 * The saved frame, from the stack pointer up: mxcsr and x87 control word, r15, r14, r13, r12, rbx,
 * rbp, return address. switch.h builds the same frame for a new fiber. */
	.text
	.p2align 4
	.globl reactor_switch
	.hidden reactor_switch
	.type reactor_switch, @function
reactor_switch:
	.cfi_startproc
	pushq %rbp
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset rbp, 0
	pushq %rbx
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset rbx, 0
	pushq %r12
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset r12, 0
	pushq %r13
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset r13, 0
	pushq %r14
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset r14, 0
	pushq %r15
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset r15, 0
	subq $8, %rsp
	.cfi_adjust_cfa_offset 8
	stmxcsr (%rsp)
	fnstcw 4(%rsp)
	movq %rsp, (%rdi)
	/* From here on the frame is the other side's, of the same shape: the unwind rules stay true. */
	movq %rsi, %rsp
	ldmxcsr (%rsp)
	fldcw 4(%rsp)
	addq $8, %rsp
	.cfi_adjust_cfa_offset -8
	popq %r15
	.cfi_adjust_cfa_offset -8
	.cfi_restore r15
	popq %r14
	.cfi_adjust_cfa_offset -8
	.cfi_restore r14
	popq %r13
	.cfi_adjust_cfa_offset -8
	.cfi_restore r13
	popq %r12
	.cfi_adjust_cfa_offset -8
	.cfi_restore r12
	popq %rbx
	.cfi_adjust_cfa_offset -8
	.cfi_restore rbx
	popq %rbp
	.cfi_adjust_cfa_offset -8
	.cfi_restore rbp
	/* Not "ret": the return predictor would be wrong each time, an indirect jump often is not. */
	popq %rcx
	.cfi_adjust_cfa_offset -8
	.cfi_register rip, rcx
	jmpq *%rcx
	.cfi_endproc
	.size reactor_switch, . - reactor_switch

/* Where a new fiber's first switch lands: r12 is the entry, r13 its argument. It has no caller, and
 * says so to unwinders both ways (CFI and a zero frame pointer). */
	.p2align 4
	.globl reactor_switch_start
	.hidden reactor_switch_start
	.type reactor_switch_start, @function
reactor_switch_start:
	.cfi_startproc
	.cfi_undefined rip
	xorl %ebp, %ebp
	movq %r13, %rdi
	callq *%r12
	ud2
	.cfi_endproc
	.size reactor_switch_start, . - reactor_switch_start

#endif
#if defined(__linux__) && defined(__ELF__)
	.section .note.GNU-stack, "", %progbits
#endif
