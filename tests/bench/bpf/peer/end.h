/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Follows tc.v4ingress.bpf.c of aws-network-policy-agent: the maps that its agent defines in v4events.bpf.c, and two
 * programs for repeated test runs.
 */
struct bpf_map_def_pvt SEC("maps") aws_conntrack_map = {
	.type = BPF_MAP_TYPE_LRU_HASH,
	.key_size = sizeof(struct conntrack_key),
	.value_size = sizeof(struct conntrack_value),
	.max_entries = 512 * 1024,
};

struct bpf_map_def_pvt SEC("maps") policy_events = {
	.type = BPF_MAP_TYPE_RINGBUF,
	.max_entries = 512 * 1024,
};

#include "pick.h"

SEC("classifier")
int first_packet(struct __sk_buff *skb)
{
	pick(skb);
	return handle_ingress(skb);
}

SEC("classifier")
int only_pick(struct __sk_buff *skb)
{
	pick(skb);
	return BPF_OK;
}
