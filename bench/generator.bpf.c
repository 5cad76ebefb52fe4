/* bench/generator.bpf.c: a packet generator inside the kernel: run again and again on packets that
 * the kernel makes for it, it sends each out of an interface without a socket, a system call or a
 * copy. So the sender never limits the rate. */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

const volatile __u32 generator_ifindex;

SEC("xdp")
int nebulaio_generator(struct xdp_md *ctx)
{
	(void)ctx;
	return (int)bpf_redirect(generator_ifindex, 0);
}

char LICENSE[] SEC("license") = "Apache-2.0";
