/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The programs, and two for repeated test runs: `to_pod` about first packets, and the part of it that is not `to_pod`. */
#include "../../../datapath/bpf/policy.bpf.c"
#include "pick.h"

SEC("classifier")
int first_packet(struct __sk_buff *skb)
{
	__u32 link = skb->ifindex;
	struct endpoint *to;

	pick(skb);
	to = map_lookup(&endpoints, &link);
	if (to && is_released(skb))
		return TC_ACT_UNSPEC;
	return to ? at_destination(skb, to) : TC_ACT_UNSPEC;
}

SEC("classifier")
int only_pick(struct __sk_buff *skb)
{
	pick(skb);
	return TC_ACT_UNSPEC;
}
