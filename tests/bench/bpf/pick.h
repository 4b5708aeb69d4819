/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Makes the first packet of another connection out of the packet of a repeated test run. */
#pragma once

/* Offsets of an Ethernet frame with an IPv4 packet without options. */
#define SOURCE_ADDRESS 26
#define SOURCE_PORT 34

/* Of `cb`: the IPv4 address of the first peer in host order, the number of peers, and 1 if the packet has ports. */
static inline __attribute__((always_inline)) void pick(struct __sk_buff *skb)
{
	static __u32 (*random)(void) = (void *)BPF_FUNC_get_prandom_u32;
	static long (*write)(struct __sk_buff *, __u32, const void *, __u32, __u64) = (void *)BPF_FUNC_skb_store_bytes;
	__u32 peers = skb->cb[1] ? skb->cb[1] : 1;
	__u32 address = __builtin_bswap32(skb->cb[0] + random() % peers);
	__u16 port = random();

	write(skb, SOURCE_ADDRESS, &address, sizeof(address), 0);
	if (skb->cb[2])
		write(skb, SOURCE_PORT, &port, sizeof(port), 0);
}
