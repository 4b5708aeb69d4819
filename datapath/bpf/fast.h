/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The fast path: packets of pods are judged at the link by which they enter the node, and leave it, or enter the pod that
 * receives them, without the host's stack. The first packet of a connection chooses the path of all packets of both directions,
 * because the kernel's connection tracking has to receive all of them or none. A single packet that needs the stack takes it.
 *
 * Beyond the node the stack shows the way: a connection takes the fast path if the stack has sent a packet of the same two
 * addresses a short time before, and has changed neither of them.
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
static inline_always int is_only_routed(struct __sk_buff *skb, const struct packet *packet)
{
	return !packet->is_fragment && skb->pkt_type == THIS_HOST &&
	       packet->offset == (is_v4(&packet->source) ? sizeof(struct ipv4) : sizeof(struct ipv6));
}

/* True for such a packet of a connection. */
static inline_always int is_simple(struct __sk_buff *skb, const struct packet *packet)
{
	return packet->has_flow && !packet->is_error && is_only_routed(skb, packet);
}

/* True for such an ICMP error about a packet of its receiver. */
static inline_always int is_simple_error(struct __sk_buff *skb, const struct packet *packet)
{
	return packet->is_error && is_only_routed(skb, packet);
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

/* The start of an ARP packet, and of its answer, for IPv4 over Ethernet. */
struct arp {
	__u8 kinds[8];
	__u8 sender_mac[6];
	__u32 sender;
} __attribute__((packed));

/* The same of an ARP packet. The host asks for the MAC of a pod that has sent nothing else. */
static inline_always void learn_from_arp(struct __sk_buff *skb, struct work *work)
{
	const struct ethernet *frame = (const void *)(long)skb->data;
	const struct arp *arp = (const void *)(frame + 1);

	if ((const void *)(arp + 1) > (const void *)(long)skb->data_end)
		return;
	map_v4(&work->packet.source, arp->sender);
	learn_macs(skb, map_lookup(&fast_pods, &work->packet.source));
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

/* The connection of a packet, or null for a first packet. */
static inline_always struct flow *connection_of(const struct packet *packet, const struct flow_key *key, __u64 now)
{
	struct flow *flow = find(key, now);

	/* A start after the end of a connection is another connection. */
	if (flow && packet->protocol == TCP && is_start(packet) &&
	    (flow->decision != ALLOW || (flow->tcp_flags & (TCP_FIN | TCP_RST))))
		return 0;
	return flow;
}

static inline_always int is_dns(const struct packet *packet)
{
	return packet->source_port == DNS || packet->destination_port == DNS;
}

/* True if userspace may hold a datagram, and send it to the pod by the stack later. */
static inline_always int is_held(const struct packet *packet, __u16 port, __u32 *receiver)
{
	return packet->protocol == UDP && port == DNS && map_lookup(&names_pods, receiver);
}

/* True for a packet of a row whose links these are. */
static inline_always int is_between(const struct flow *flow, int is_reply, __u32 sender, __u32 receiver)
{
	return (is_reply ? receiver : sender) == flow->initiator && (is_reply ? sender : receiver) == flow->responder;
}

/* True if new connections may take the fast path. */
static inline_always int has_fast_path(void)
{
	__u32 first = 0;
	struct settings *of = map_lookup(&settings, &first);

	return of && of->has_fast_path;
}

/*
 * True if a packet of a pod without a connection is the first one of a connection: an answer of a connection whose first packet
 * is not known goes the way of that packet. In the window it may be of an older connection, which netfilter knows.
 */
static inline_always int is_first(const struct packet *packet, const struct work *work, const struct fast_pod *from, __u64 now)
{
	if (packet->protocol == UDP ? (from->flags & BEHIND_NAT) != 0 : !has_direction(packet))
		return 0;
	return !is_in_window(&work->from, now);
}

/* True if a first packet can enter the pod in `receiver` of `work`. Without an agent the row of a link stays when it is gone. */
static inline_always int is_ready(struct __sk_buff *skb, struct work *work, __u64 now)
{
	__u32 length = 0;

	return check_mtu(skb, work->receiver.link, &length, 0, BPF_MTU_CHK_SEGS) >= 0 &&
	       find_pod(work->receiver.link, &work->to) && !is_in_window(&work->to, now);
}

/* True if a packet takes the fast path to the pod in `receiver` of `work`. */
static inline_always int is_fast(struct __sk_buff *skb, struct work *work, const struct service_work *service, int from_low,
				 __u64 now)
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
	    has_error(skb, packet, work->receiver.link) || is_held(packet, packet->source_port, &work->receiver.link))
		return 0;
	flow = connection_of(packet, &work->key, now);
	if (flow) {
		/* Another processor can have set it after `end_direct`. */
		if (service->is_translated && flow->path == PATH_POD && flow->wire)
			flow->wire = 0;
		return flow->path == PATH_POD &&
		       is_between(flow, flow->from_low != from_low, link, work->receiver.link);
	}
	return has_fast_path() && is_first(packet, work, from, now) && is_ready(skb, work, now);
}

/*
 * The packet in `work` is neither to a Service nor an answer of one: notes that in the row of its connection. Messages of DNS have
 * further steps.
 */
checked_alone int note_direct(void)
{
	struct work *work = work_of();
	struct flow *flow;

	if (!work || is_dns(&work->packet))
		return 0;
	flow = map_lookup(&flows, &work->key);
	if (flow && flow->path == PATH_POD && flow->wire != WITHOUT_SERVICE)
		flow->wire = WITHOUT_SERVICE;
	return 0;
}

/*
 * Gives a packet to the pod that receives it. The last step restores the address that was asked for. `is_direct` says that a pod of
 * the node has sent it, and not to a Service.
 */
static inline_always int deliver(struct __sk_buff *skb, const struct packet *packet, const struct fast_pod *to,
				 struct service_work *service, int is_direct)
{
	if (lower_hops(skb, packet->hop_limit) || store(skb, 0, to->macs, sizeof(to->macs), 0))
		return lose(NO_BACKEND);
	if (packet->protocol != ICMP) {
		enum translated result = from_backend(skb, packet, service);

		if (result == UNTRANSLATED)
			return lose(NO_BACKEND);
		if (is_direct && result == NO_SERVICE)
			note_direct();
	}
	skb->tc_index = 0;
	return redirect_to_peer(to->link, 0);
}

/* The bytes of a frame with an IPv4 packet that a router changes. */
struct plain_start {
	__u8 macs[12];
	__u8 between[10];
	__u8 hop_limit;
	__u8 protocol;
	__u16 checksum;
} __attribute__((packed));

/* Addresses a plain packet to the pod that receives it, and lowers its hop limit, as a router does. One call is faster than three. */
static inline_always int address_plain(struct __sk_buff *skb, const struct fast_pod *to)
{
	const struct plain_start *frame = (const void *)(long)skb->data;
	struct plain_start new;
	__u32 sum;

	if ((const void *)(frame + 1) > (const void *)(long)skb->data_end)
		return -1;
	new = *frame;
	__builtin_memcpy(new.macs, to->macs, sizeof(new.macs));
	new.hop_limit -= 1;
	/* The hop limit is the first byte of its word: RFC 1624. */
	sum = from_be16(new.checksum) + 0x100;
	new.checksum = from_be16((__u16)(sum + (sum >> 16)));
	return store(skb, 0, &new, sizeof(new), 0);
}

/*
 * Gives a pod's packet of an open connection without a Service to the pod that receives it. Returns TC_ACT_UNSPEC for other packets: they
 * take all steps, which come to the same result for these ones.
 */
checked_alone int deliver_directly(struct __sk_buff *skb)
{
	__u32 link = skb->ifindex;
	struct work *work = work_of();
	struct fast_pod *from, *to;
	struct packet *packet;
	struct flow *flow;

	if (!work || (skb->tc_index & TICKET) || skb->vlan_present || skb->pkt_type != THIS_HOST)
		return TC_ACT_UNSPEC;
	packet = &work->packet;
	if (!parse_plain(skb, packet, 1) || is_dns(packet))
		return TC_ACT_UNSPEC;
	to = map_lookup(&fast_pods, &packet->destination);
	if (!to || !(to->flags & HAS_MACS))
		return TC_ACT_UNSPEC;
	from = map_lookup(&fast_pods, &packet->source);
	if (!from || from->link != link || !(from->flags & HAS_MACS))
		return TC_ACT_UNSPEC;
	flow_of(packet, &work->key);
	flow = map_lookup(&flows, &work->key);
	if (!flow || flow->path != PATH_POD || flow->wire != WITHOUT_SERVICE || !has_pod(link) || !has_pod(to->link) ||
	    has_error(skb, packet, to->link) ||
	    !follows(flow, packet, is_lower(packet), link, to->link, 0, 1, 0, generation(), time_of(work)))
		return TC_ACT_UNSPEC;
	if (address_plain(skb, to))
		return lose(NO_BACKEND);
	skb->tc_index = 0;
	return redirect_to_peer(to->link, 0);
}

/* After a minute the stack sends a first packet again: its NAT may be another one. */
#define WAY_TIME 60000000000ull
/* A way that the stack has used is noted once in a second. */
#define WAY_NOTED 1000000000ull

/*
 * Notes the way of the pod's packet in `work`, which leaves by this link after the stack has routed it, if NAT has not changed it.
 */
checked_alone int learn_way(struct __sk_buff *skb)
{
	struct work *work = work_of();
	struct packet *packet;
	struct fast_pod *pod;
	struct way_ends key;
	struct known_way *known, new = { .link = skb->ifindex };

	if (!work || !map_lookup(&wires, &new.link))
		return 0;
	packet = &work->packet;
	if (!packet->has_flow || packet->is_error || packet->is_fragment || !work->sent_as.has_flow)
		return 0;
	flow_of(packet, &work->key);
	if (!is_same_key(&work->key, &work->sent_as.key))
		return 0;
	pod = map_lookup(&fast_pods, &packet->source);
	if (!pod || pod->link != work->sent_as.link)
		return 0;
	key.pod = packet->source;
	key.other = packet->destination;
	new.seen = time_of(work);
	known = map_lookup(&known_ways, &key);
	if (!known || known->link != new.link || new.seen - known->seen > WAY_NOTED)
		map_update(&known_ways, &key, &new, BPF_ANY);
	return 0;
}

/*
 * Path and wire of a new connection between the pod of a link and an end beyond the node, as in the word `how`; 0 if the stack has
 * it. The packet in `work` is from the pod, or to it.
 */
checked_alone __u32 way_of(struct __sk_buff *skb, __u32 link, int is_from_pod)
{
	__u32 first = 0, out, number;
	struct work *work = work_of();
	struct outside_work *outside = map_lookup(&outside_works, &first);
	struct bpf_fib_lookup *route;
	struct packet *packet;
	struct wire *wire;
	struct way_ends key;
	struct known_way *way;

	if (!work || !outside || !has_fast_path())
		return 0;
	packet = &work->packet;
	key.pod = is_from_pod ? packet->source : packet->destination;
	key.other = is_from_pod ? packet->destination : packet->source;
	/* It may be an answer of a connection whose client has asked for a Service. */
	key_of(&packet->destination, packet->destination_port, &packet->source, packet->source_port, packet->protocol,
	       &outside->service.key);
	if (is_from_pod && map_lookup(&outside_flows, &outside->service.key))
		return 0;
	way = map_lookup(&known_ways, &key);
	if (!way || time_of(work) - way->seen > WAY_TIME || way->link > LAST_WIRE)
		return 0;
	number = way->link;
	wire = map_lookup(&wires, &number);
	if (!wire)
		return 0;
	route = &outside->route;
	/* The other end may be a pod of this node now. */
	out = link_to(skb, link, packet->ip_protocol, &key.pod, &key.other, route);
	if (out != number) {
		/* Netfilter has marked the packet for the table of another link, which has one route. */
		if (!out || !map_lookup(&wires, &out))
			return 0;
	} else if (is_v4(&key.other)) {
		if (route->ipv4_dst == (__u32)(key.other.low >> 32))
			return WAY(PATH_LINK, number);
		if (route->ipv4_dst != (__u32)(wire->gateway_v4.low >> 32))
			return 0;
	} else {
		struct address hop;

		__builtin_memcpy(&hop, route->ipv6_dst, sizeof(hop));
		if (is_equal(&hop, &key.other))
			return WAY(PATH_LINK, number);
		if (!is_equal(&hop, &wire->gateway_v6))
			return 0;
	}
	return WAY(PATH_GATEWAY, number);
}

/* Path and wire of a connection that has a row, as in the word `how`; 0 if the stack has it. */
static inline_always __u32 way_of_row(const struct flow *flow)
{
	return flow->path < PATH_GATEWAY ? 0 : WAY(flow->path, flow->wire);
}

/* Puts the next hop of a packet on this way into `work`. Returns 0 if there is none. */
static inline_always int find_hop(struct work *work, __u32 way)
{
	__u32 number = WIRE_OF(way);
	struct wire *wire = map_lookup(&wires, &number);

	if (!wire)
		return 0;
	/* An answer has its client's own way. */
	if (PATH_OF(way) == PATH_CLIENT)
		return 0;
	if (PATH_OF(way) == PATH_LINK)
		work->hop = work->packet.destination;
	else
		work->hop = is_v4(&work->packet.destination) ? wire->gateway_v4 : wire->gateway_v6;
	return (work->hop.high | work->hop.low) != 0;
}

/*
 * The row of a connection from outside to a Service, for an answer of the pod in `work`. Its copy is in `flow` of `outside`. Null if it
 * is over.
 */
static inline_always struct outside_flow *find_asked(struct work *work, struct outside_work *outside, __u64 now)
{
	struct packet *packet = &work->packet;
	struct outside_flow *flow;

	key_of(&packet->destination, packet->destination_port, &packet->source, packet->source_port, packet->protocol,
	       &outside->service.key);
	flow = map_lookup(&outside_flows, &outside->service.key);
	if (!flow || is_over(flow, packet->protocol, now))
		return 0;
	outside->flow = *flow;
	return flow;
}

/* True for an address that a client can have: the stack drops packets from others before it looks up a route. */
static inline_always int is_of_host(const struct address *address)
{
	__u8 start = address->low >> 32;

	if (is_v4(address))
		return start != 0 && start != 127 && start < 224;
	/* Not multicast, link-local, loopback or unspecified. */
	return address->high && (__u8)address->high != 0xff && (address->high & 0xc0ff) != 0x80fe;
}

/*
 * Path and wire of a new connection from outside to a Service, whose backend is the pod in `receiver` of `work`, as in the word `how`; 0
 * if the stack has it. The host has to route packets to the client by a link to other nodes.
 */
checked_alone __u32 way_of_client(struct __sk_buff *skb)
{
	__u32 first = 0, out, number = skb->ifindex;
	struct work *work = work_of();
	struct outside_work *outside = map_lookup(&outside_works, &first);
	struct packet *packet;

	if (!work || !outside || !has_fast_path())
		return 0;
	packet = &work->packet;
	if (number > LAST_WIRE || !map_lookup(&wires, &number) || !is_of_host(&packet->source))
		return 0;
	out = link_to(skb, work->receiver.link, packet->ip_protocol, &packet->destination, &packet->source, &outside->route);
	return out && map_lookup(&wires, &out) ? WAY(PATH_CLIENT, number) : 0;
}

/* The packet takes the stack, and the connection has another path. */
#define WAY_ONCE 1u

/* Path and wire of a pod's packet to an end beyond the node, as in the word `how`; 0 or WAY_ONCE if it takes the stack. */
static inline_always __u32 way_to_wire(struct __sk_buff *skb, struct work *work, struct outside_work *outside, int from_low,
				       __u64 now)
{
	struct packet *packet = &work->packet;
	struct fast_pod *from = map_lookup(&fast_pods, &packet->source);
	__u32 link = skb->ifindex, way;
	struct flow *flow;

	if (!from || from->link != link)
		return 0;
	learn_macs(skb, from);
	/* Its answer takes the stack. */
	if (is_held(packet, packet->destination_port, &link))
		return 0;
	flow = connection_of(packet, &work->key, now);
	if (flow)
		way = is_between(flow, flow->from_low != from_low, link, 0) ? way_of_row(flow) : 0;
	else
		way = is_first(packet, work, from, now) ? way_of(skb, link, 1) : 0;
	if (!way)
		return 0;
	if (PATH_OF(way) == PATH_CLIENT) {
		if (find_asked(work, outside, now))
			return has_error(skb, packet, outside->flow.link) ? WAY_ONCE : way;
		/* The next packet of the client adds the row again. */
		if (flow)
			flow->wire = 0;
		return WAY_ONCE;
	}
	return !has_error(skb, packet, WIRE_OF(way)) && find_hop(work, way) ? way : WAY_ONCE;
}

/* The same for a packet from beyond the node to the pod in `receiver` of `work`. `is_asked` says that it has asked for a Service. */
static inline_always __u32 way_to_pod(struct __sk_buff *skb, struct work *work, int from_low, int is_asked, __u64 now)
{
	struct packet *packet = &work->packet;
	__u32 way;
	struct flow *flow;

	if (is_held(packet, packet->source_port, &work->receiver.link))
		return 0;
	flow = connection_of(packet, &work->key, now);
	if (flow) {
		way = is_between(flow, flow->from_low != from_low, 0, work->receiver.link) ? way_of_row(flow) : 0;
		/* The same ends may ask for a Service first now, or by another link. Netfilter has received none of their packets. */
		if (way && is_asked) {
			flow->path = PATH_CLIENT;
			flow->wire = skb->ifindex;
			way = WAY(PATH_CLIENT, skb->ifindex);
		}
		/* They ask for the pod itself now. */
		if (!is_asked && PATH_OF(way) == PATH_CLIENT)
			return 0;
	} else if (is_asked) {
		if ((packet->protocol != UDP && !has_direction(packet)) || !is_ready(skb, work, now))
			return 0;
		way = way_of_client(skb);
	} else {
		/* A datagram may be an answer that NAT of the host translates. */
		if (packet->protocol == UDP || !has_direction(packet) || !is_ready(skb, work, now))
			return 0;
		way = way_of(skb, work->receiver.link, 0);
		/* Its answers leave by the link of the request. */
		if (WIRE_OF(way) != skb->ifindex)
			return 0;
	}
	if (!way)
		return 0;
	return (work->receiver.flags & HAS_MACS) && !has_error(skb, packet, work->receiver.link) ? way : WAY_ONCE;
}

/* Sends a pod's packet to the next hop in `work`, as a router does. */
static inline_always int send_on(struct __sk_buff *skb, struct work *work, __u32 way)
{
	struct bpf_redir_neigh to = {};

	if (lower_hops(skb, work->packet.hop_limit))
		return lose(NO_BACKEND);
	if (is_v4(&work->hop)) {
		to.nh_family = FAMILY_V4;
		to.ipv4_nh = work->hop.low >> 32;
	} else {
		to.nh_family = FAMILY_V6;
		__builtin_memcpy(to.ipv6_nh, &work->hop, sizeof(work->hop));
	}
	skb->tc_index = FORWARDED;
	return redirect_to(WIRE_OF(way), &to, sizeof(to), 0);
}

/* True for a packet that `rewrite_plain` changes, if it is routed only. */
static inline_always int is_short(const struct packet *packet)
{
	return is_v4(&packet->source) && (packet->protocol == TCP || packet->protocol == UDP);
}

/* Sends an answer to a client outside, whose row is in `flow` of `outside`, from the address that the client asked for. */
static inline_always int send_back(struct __sk_buff *skb, const struct packet *packet, const struct outside_work *outside)
{
	const struct outside_flow *flow = &outside->flow;

	if (is_short(packet)) {
		if (rewrite_plain(skb, packet, &flow->asked, flow->asked_port, 1, 1, flow->macs))
			return lose(NO_BACKEND);
		skb->tc_index = FORWARDED;
		return redirect(flow->link, 0);
	}
	if (rewrite(skb, packet, &flow->asked, flow->asked_port, 1) || lower_hops(skb, packet->hop_limit))
		return lose(NO_BACKEND);
	return return_by(skb, flow);
}

/* Gives a packet from outside to the pod that receives it. */
static inline_always int put_into(struct __sk_buff *skb, const struct packet *packet, const struct fast_pod *to)
{
	if (is_short(packet) ? address_plain(skb, to)
			     : lower_hops(skb, packet->hop_limit) || store(skb, 0, to->macs, sizeof(to->macs), 0))
		return lose(NO_BACKEND);
	skb->tc_index = 0;
	return redirect_to_peer(to->link, 0);
}

/*
 * Path and wire of the ICMP error in `work` and `key`, as in the word `how`: those of the connection whose packet it quotes. 0 if it
 * takes the stack. A pod's error about a connection of others has a path too, and is dropped where it is judged. `sender` is the
 * link of the pod that has sent it, or 0, and `receiver` that of the fast pod that receives it, or 0.
 */
checked_alone __u32 way_of_error(struct __sk_buff *skb, __u32 sender, __u32 receiver, int from_low)
{
	struct work *work = work_of();
	struct packet *packet;
	struct flow *flow;
	__u32 way;

	if (!work)
		return 0;
	packet = &work->packet;
	flow = find(&work->key, time_of(work));
	if (!flow || flow->path == PATH_STACK)
		return 0;
	way = flow->path == PATH_POD ? WAY(PATH_POD, 0) : way_of_row(flow);
	if (sender) {
		struct fast_pod *from = map_lookup(&fast_pods, &packet->source);

		if (!from || from->link != sender || (flow->path == PATH_POD && !receiver))
			return 0;
	} else if (flow->path == PATH_POD || !is_between(flow, flow->from_low == from_low, 0, receiver)) {
		/* The quoted packet is one of the receiver. */
		return 0;
	}
	if (receiver)
		return (work->receiver.flags & HAS_MACS) && !has_error(skb, packet, receiver) ? way : 0;
	if (has_error(skb, packet, WIRE_OF(way)))
		return 0;
	return PATH_OF(way) == PATH_CLIENT || find_hop(work, way) ? way : 0;
}

/*
 * Gives a packet from outside to the pod that receives it, if it is of an open connection that has asked for a Service. Returns TC_ACT_UNSPEC for
 * other packets: they take all steps, which come to the same result for these ones.
 */
checked_alone int deliver_asked(struct __sk_buff *skb)
{
	__u32 first = 0;
	struct work *work = work_of();
	struct outside_work *outside = map_lookup(&outside_works, &first);
	struct service_work *service;
	struct choice *choice;
	struct packet *packet;
	struct fast_pod *to;
	struct flow *flow;
	__u64 now;

	if (!work || !outside)
		return TC_ACT_UNSPEC;
	packet = &work->packet;
	service = &outside->service;
	/* A datagram may need another backend. An answer of another node comes to a port of this one. */
	if (!parse_plain(skb, packet, 1) || packet->protocol != TCP || (packet->tcp_flags & (TCP_SYN | TCP_RST)) ||
	    is_to_source_port(packet))
		return TC_ACT_UNSPEC;
	key_of(&packet->source, packet->source_port, &packet->destination, packet->destination_port, TCP, &service->key);
	choice = map_lookup(&outside_choices, &service->key);
	if (!choice)
		return TC_ACT_UNSPEC;
	service->choice = *choice;
	if (service->choice.source_port)
		return TC_ACT_UNSPEC;
	to = map_lookup(&fast_pods, &service->choice.address);
	if (!to || !(to->flags & HAS_MACS))
		return TC_ACT_UNSPEC;
	packet->destination = service->choice.address;
	packet->destination_port = service->choice.port;
	packet->key = TCP << 16 | packet->destination_port;
	flow_of(packet, &work->key);
	flow = map_lookup(&flows, &work->key);
	now = time_of(work);
	if (!flow || flow->path != PATH_CLIENT || flow->wire != skb->ifindex || !has_pod(to->link) ||
	    has_error(skb, packet, to->link) ||
	    !follows(flow, packet, is_lower(packet), 0, to->link, 0, 0, 0, generation(), now))
		return TC_ACT_UNSPEC;
	note_time(choice, now);
	/* Answers note the time of the other row. */
	if (packet->tcp_flags & TCP_FIN) {
		struct outside_flow *of;

		key_of(&packet->source, packet->source_port, &packet->destination, packet->destination_port, TCP,
		       &service->client);
		of = map_lookup(&outside_flows, &service->client);
		if (of)
			note_outside(of, packet, 0, now);
	}
	if (rewrite_plain(skb, packet, &service->choice.address, service->choice.port, 0, 1, to->macs))
		return lose(NO_BACKEND);
	skb->tc_index = 0;
	return redirect_to_peer(to->link, 0);
}

/* The same for an answer of a pod to a client outside. */
checked_alone int answer_directly(struct __sk_buff *skb)
{
	__u32 first = 0, link = skb->ifindex;
	struct work *work = work_of();
	struct outside_work *outside = map_lookup(&outside_works, &first);
	struct outside_flow *asked;
	struct packet *packet;
	struct fast_pod *from;
	struct flow *flow;
	__u64 now;

	if (!work || !outside || (skb->tc_index & TICKET) || skb->vlan_present || skb->pkt_type != THIS_HOST)
		return TC_ACT_UNSPEC;
	packet = &work->packet;
	if (!parse_plain(skb, packet, 1) || is_dns(packet))
		return TC_ACT_UNSPEC;
	flow_of(packet, &work->key);
	flow = map_lookup(&flows, &work->key);
	if (!flow || flow->path != PATH_CLIENT)
		return TC_ACT_UNSPEC;
	from = map_lookup(&fast_pods, &packet->source);
	now = time_of(work);
	if (!from || from->link != link || !(from->flags & HAS_MACS) || !has_pod(link))
		return TC_ACT_UNSPEC;
	asked = find_asked(work, outside, now);
	if (!asked || has_error(skb, packet, outside->flow.link) ||
	    !follows(flow, packet, is_lower(packet), link, 0, 0, 1, 0, generation(), now))
		return TC_ACT_UNSPEC;
	note_outside(asked, packet, 1, now);
	return send_back(skb, packet, outside);
}

/* Gives a packet from outside to the program of fast pods. It returns if there is none. */
static inline_always void into_fast_pod(struct __sk_buff *skb, struct work *work)
{
	if (is_simple(skb, &work->packet) && find_receiver(work))
		tail_call(skb, &stages, STAGE_INTO_POD);
}
