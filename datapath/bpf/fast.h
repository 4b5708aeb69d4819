/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The fast path between two pods of the node: packets are judged at the link of their sender, and enter the pod that receives
 * them without the host's stack. The first packet of a connection chooses the path of all packets of both directions, because
 * the kernel's connection tracking has to receive all of them or none. A single packet that needs the stack takes it.
 */
#pragma once

#include "outside.h"

/* Of `pkt_type`, in linux/if_packet.h. */
#define THIS_HOST 0
/* A packet of at most this many bytes fits every link. */
#define SHORT 576

/* Copies the row of a packet's destination. Returns 0 if it is no fast pod. */
static inline_always int find_receiver(struct work *work)
{
	struct fast_pod *to = map_lookup(&fast_pods, &work->packet.destination);

	if (!to)
		return 0;
	work->receiver = *to;
	return 1;
}

/* True for packets that the stack would only route: it checks fragments, options and frames for others. */
static inline_always int is_simple(struct __sk_buff *skb, const struct packet *packet)
{
	return packet->has_flow && !packet->is_error && !packet->is_fragment && skb->pkt_type == THIS_HOST &&
	       packet->offset == (is_v4(&packet->source) ? sizeof(struct ipv4) : sizeof(struct ipv6));
}

/* Notes the MACs of a pod, whose frame this is. */
static inline_always void learn_macs(struct __sk_buff *skb, struct fast_pod *pod)
{
	const struct ethernet *frame = (const void *)(long)skb->data;

	if (!pod || (pod->flags & HAS_MACS) || pod->link != skb->ifindex || skb->pkt_type != THIS_HOST ||
	    (const void *)(frame + 1) > (const void *)(long)skb->data_end)
		return;
	__builtin_memcpy(pod->macs, frame->source, 6);
	__builtin_memcpy(pod->macs + 6, frame->destination, 6);
	/* An atomic operation whose earlier value is used orders the stores. */
	asm volatile("" ::"r"(__sync_fetch_and_or(&pod->flags, HAS_MACS)));
}

/*
 * True if the stack would answer the packet with an error: its hop limit ends here, or it is too long for the link. Notes the
 * hop limit.
 */
static inline_always int has_error(struct __sk_buff *skb, struct packet *packet, __u32 link)
{
	__u32 length = 0;

	packet->hop_limit = hops_of(skb);
	if (packet->hop_limit <= 1)
		return 1;
	return skb->len > ETH_HEADER + SHORT && check_mtu(skb, link, &length, 0, BPF_MTU_CHK_SEGS);
}

/* True if a packet without a connection can be the first one of a connection on the fast path. */
static inline_always int is_first(struct __sk_buff *skb, const struct packet *packet, struct work *work,
				  const struct fast_pod *from, __u64 now)
{
	__u32 first = 0, length = 0;
	struct settings *of = map_lookup(&settings, &first);

	if (!of || !of->has_fast_path)
		return 0;
	/* Without an agent the row of a link stays when the link is gone. */
	if (check_mtu(skb, work->receiver.link, &length, 0, BPF_MTU_CHK_SEGS) < 0)
		return 0;
	/* An answer of a connection whose first packet is not known goes the way of that packet. */
	if (packet->protocol == UDP ? (from->flags & BEHIND_NAT) != 0 : !has_direction(packet))
		return 0;
	/* In this time it may be of an older connection, which netfilter knows. */
	return !is_in_window(&work->from, now) && find_pod(work->receiver.link, &work->to) && !is_in_window(&work->to, now);
}

/* True if a packet takes the fast path to the pod in `receiver` of `work`. */
static inline_always int is_fast(struct __sk_buff *skb, struct work *work, int from_low, __u64 now)
{
	struct packet *packet = &work->packet;
	struct fast_pod *from = map_lookup(&fast_pods, &packet->source);
	__u32 link = skb->ifindex;
	struct flow *flow;

	if (!from)
		return 0;
	learn_macs(skb, from);
	/* Packets of a pod to itself keep their way: the host gives them another source. */
	if (from->link != link || work->receiver.link == link || !(work->receiver.flags & HAS_MACS) ||
	    has_error(skb, packet, work->receiver.link))
		return 0;
	/* Userspace may hold it, and sends it to the pod with the MACs that it has in the stack. */
	if (packet->protocol == UDP && packet->source_port == DNS && map_lookup(&names_pods, &work->receiver.link))
		return 0;
	flow = find(&work->key, now);
	/* A start after the end of a connection is another connection. */
	if (flow && packet->protocol == TCP && is_start(packet) &&
	    (flow->decision != ALLOW || (flow->tcp_flags & (TCP_FIN | TCP_RST))))
		flow = 0;
	if (flow) {
		int is_reply = flow->from_low != from_low;

		return flow->is_fast && (is_reply ? work->receiver.link : link) == flow->initiator &&
		       (is_reply ? link : work->receiver.link) == flow->responder;
	}
	return is_first(skb, packet, work, from, now);
}

/* Gives a packet to the pod that receives it, as a router does. The last step restores the address that was asked for. */
static inline_always int deliver(struct __sk_buff *skb, const struct packet *packet, const struct fast_pod *to,
				 struct service_work *service)
{
	if (lower_hops(skb, packet->hop_limit) || store(skb, 0, to->macs, sizeof(to->macs), 0) ||
	    (packet->protocol != ICMP && from_backend(skb, packet, service) == UNTRANSLATED))
		return lose(NO_BACKEND);
	skb->tc_index = 0;
	return redirect_to_peer(to->link, 0);
}
