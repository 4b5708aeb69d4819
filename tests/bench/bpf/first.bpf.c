/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The programs, and two for repeated test runs: `to_pod` about first packets, and the part of it that is not `to_pod`. */
#include "../../../datapath/bpf/policy.bpf.c"
#include "pick.h"

SEC("classifier")
int first_packet(struct __sk_buff *skb)
{
	pick(skb);
	return at_pod(skb);
}

SEC("classifier")
int only_pick(struct __sk_buff *skb)
{
	pick(skb);
	return TC_ACT_UNSPEC;
}

/* The lookups of a verdict about a packet from another node, without its headers and its origin. */
SEC("classifier")
int only_lookups(struct __sk_buff *skb)
{
	__u32 address = 0;
	struct judged judged = { .half = generation() & 1 };
	struct work *work = work_of();
	struct row row;

	if (!work)
		return TC_ACT_SHOT;
	pick(skb);
	skb_load(skb, 12, &address, sizeof(address));
	map_v4(&judged.source, address);
	row_of(find_pod(skb->ifindex, &work->to), judged.half, &row);
	return (verdict(row.ingress, &judged, 0) & DECISION) == ALLOW ? TC_ACT_UNSPEC : TC_ACT_SHOT;
}
