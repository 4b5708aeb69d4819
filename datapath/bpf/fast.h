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

/* True if the stack would answer the packet with an error: its hop limit ends here, or it is too long for the link. */
static inline_always int has_error(struct __sk_buff *skb, const struct packet *packet, __u32 link)
{
	__u32 length = 0;

	if (packet->hop_limit <= 1)
		return 1;
	return skb->len > ETH_HEADER + SHORT && check_mtu(skb, link, &length, 0, BPF_MTU_CHK_SEGS);
}

/* The connection of a packet in the row of its ends, or null for a first packet. */
static inline_always struct flow *connection_in(struct flow *flow, const struct packet *packet, __u64 now)
{
	/* A start after the end of a connection is another connection. */
	if (!flow || is_expired(flow, packet->ip_protocol, now) ||
	    (packet->protocol == TCP && is_start(packet) &&
	     (flow->decision != ALLOW || (flow->tcp_flags & (TCP_FIN | TCP_RST)))))
		return 0;
	return flow;
}

static inline_always struct flow *connection_of(const struct packet *packet, const struct flow_key *key, __u64 now)
{
	return connection_in(find(key, now), packet, now);
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

/*
 * True if a packet takes the fast path to the pod in `receiver` of `work`. `flow` is the row of its connection, or null.
 */
static inline_always int is_fast(struct __sk_buff *skb, struct work *work, struct flow *flow, int from_low, __u64 now)
{
	struct packet *packet = &work->packet;
	struct fast_pod *from = map_lookup(&fast_pods, &packet->source);
	__u32 link = skb->ifindex;

	if (!from)
		return 0;
	learn_macs(skb, from);
	/* Packets of a pod to itself keep their way: the host gives them another source. */
	if (from->link != link || work->receiver.link == link || !(work->receiver.flags & HAS_MACS) ||
	    has_error(skb, packet, work->receiver.link) || is_held(packet, packet->source_port, &work->receiver.link))
		return 0;
	flow = connection_in(flow, packet, now);
	if (flow)
		return flow->path == PATH_POD &&
		       is_between(flow, flow->from_low != from_low, link, work->receiver.link);
	return has_fast_path() && is_first(packet, work, from, now) && is_ready(skb, work, now);
}

/*
 * Notes in the row of a connection between two pods whether they are a Service's client and backend, for the next packets. Messages of
 * DNS have further steps.
 */
static inline_always void note_service(struct flow *flow, const struct packet *packet, int is_reply, int is_translated, int is_restored)
{
	__u32 kind = 0;

	if (is_dns(packet))
		return;
	if (!is_translated && !is_restored)
		kind = WITHOUT_SERVICE;
	else if (is_reply ? !is_translated : !is_restored)
		kind = FOR_SERVICE;
	if (kind && flow->wire != kind)
		flow->wire = kind;
}

/* Lowers the hop limit in the start of a plain frame, as a router does, and gives the frame MACs. */
static inline_always void route_start(struct plain_start *start, const __u8 *macs)
{
	__u32 sum;

	__builtin_memcpy(start->macs, macs, sizeof(start->macs));
	start->hop_limit -= 1;
	/* The hop limit is the first byte of its word: RFC 1624. */
	sum = from_be16(start->ends.checksum) + 0x100;
	start->ends.checksum = from_be16((__u16)(sum + (sum >> 16)));
}

/*
 * Changes the source or the destination of a plain packet, and the frame as `route_start` does. `packet` has the protocol. Returns 0 if
 * the packet has changed.
 */
static inline_always int route_plain(struct __sk_buff *skb, const struct packet *packet, const __u8 *macs, const struct address *to,
				     __u16 port, int is_source)
{
	const struct plain_start *frame = (const void *)(long)skb->data;
	struct plain_start start;

	if ((const void *)(frame + 1) > (const void *)(long)skb->data_end)
		return -1;
	start = *frame;
	route_start(&start, macs);
	return change_end(skb, &start.ends, !is_source, to->low >> 32, from_be16(port), checksum_of_plain(packet->protocol),
			  checksum_flags(packet->protocol)) ||
	       store(skb, 0, &start, sizeof(start), 0);
}

/* Addresses a packet without IP options to a pod, as a router does. Returns 0 if the packet has changed. */
checked_alone int address(struct __sk_buff *skb, const struct packet *packet, const struct fast_pod *to)
{
	const struct plain_start *frame = (const void *)(long)skb->data;
	struct plain_start new;

	if (!packet || !to)
		return -1;
	if (is_v4(&packet->source) && (const void *)(frame + 1) <= (const void *)(long)skb->data_end) {
		new = *frame;
		route_start(&new, to->macs);
		/* One call is faster than three. */
		return store(skb, 0, &new, sizeof(new), 0);
	}
	return lower_hops(skb, packet->hop_limit) || store(skb, 0, to->macs, sizeof(to->macs), 0);
}

/* Gives a packet without IP options to the pod that receives it. */
static inline_always int put_into(struct __sk_buff *skb, const struct packet *packet, const struct fast_pod *to)
{
	if (address(skb, packet, to))
		return lose(NO_BACKEND);
	skb->tc_index = 0;
	return redirect_to_peer(to->link, 0);
}

/* The same. `is_restored` says that the packet gets the address in `asked` of `service`, which its client asked for. */
static inline_always int deliver(struct __sk_buff *skb, const struct packet *packet, const struct fast_pod *to,
				 struct service_work *service, int is_restored)
{
	return is_restored && restore(skb, packet, service) ? lose(NO_BACKEND) : put_into(skb, packet, to);
}

/* Gives a pod's packet of a connection to a Service the ends of the choice, in `packet` only. Returns 0 if none counts without further steps. */
static inline_always int find_backend(struct packet *packet, struct service_work *service, __u64 now)
{
	struct choice *choice;

	key_of(&packet->source, packet->source_port, &packet->destination, packet->destination_port, packet->protocol,
	       &service->key);
	choice = map_lookup(&choices, &service->key);
	if (!choice || !is_chosen(choice, packet, now) || needs_table(choice, packet, now))
		return 0;
	note_time(choice, now);
	packet->destination = choice->address;
	packet->destination_port = choice->port;
	if (choice->source_port)
		packet->source_port = choice->source_port;
	packet->key = packet->protocol << 16 | packet->destination_port;
	return 1;
}

/* Of `deliver_directly`: the packet is no answer to a client outside, so it takes all steps. */
#define ALL_STEPS 1000

/*
 * Gives a pod's packet of an open connection to the pod of the node that receives it. Returns TC_ACT_UNSPEC or ALL_STEPS for other packets:
 * they take all steps, which come to the same result for these ones.
 */
checked_alone int deliver_directly(struct __sk_buff *skb)
{
	__u32 first = 0, link = skb->ifindex, checksum, flags;
	struct work *work = work_of();
	struct service_work *service = map_lookup(&service_works, &first);
	struct fast_pod *from, *to;
	const struct plain_start *frame;
	struct plain_start start;
	struct packet *packet;
	struct flow *flow;
	int is_translated = 0, is_restored = 0, is_reply;
	__u64 now;

	if (!work || !service || (skb->tc_index & TICKET) || skb->vlan_present || skb->pkt_type != THIS_HOST)
		return TC_ACT_UNSPEC;
	packet = &work->packet;
	if (!parse_plain(skb, packet, 1) || is_dns(packet))
		return TC_ACT_UNSPEC;
	/* The first packet of a connection has the most steps, so it has none of these. */
	if (packet->protocol == TCP && is_start(packet))
		return ALL_STEPS;
	now = time_of(work);
	from = map_lookup(&fast_pods, &packet->source);
	if (!from || from->link != link || !(from->flags & HAS_MACS))
		return TC_ACT_UNSPEC;
	to = map_lookup(&fast_pods, &packet->destination);
	if (!to) {
		is_translated = find_backend(packet, service, now);
		if (is_translated)
			to = map_lookup(&fast_pods, &packet->destination);
	}
	if (!to || !(to->flags & HAS_MACS))
		return TC_ACT_UNSPEC;
	flow_of(packet, &work->key);
	flow = map_lookup(&flows, &work->key);
	if (!flow || flow->path != PATH_POD)
		return ALL_STEPS;
	is_reply = flow->from_low != is_lower(packet);
	if (flow->wire == FOR_SERVICE) {
		if (is_translated == is_reply)
			return ALL_STEPS;
		is_restored = is_reply;
	} else if (flow->wire != WITHOUT_SERVICE || is_translated) {
		return ALL_STEPS;
	}
	if (is_restored && !find_asked_address(skb, packet, service))
		return ALL_STEPS;
	if (!has_pod(link) || !has_pod(to->link) || has_error(skb, packet, to->link) ||
	    !follows(flow, packet, is_lower(packet), link, to->link, 0, 1, 0, generation(), now))
		return ALL_STEPS;
	frame = (const void *)(long)skb->data;
	if ((const void *)(frame + 1) > (const void *)(long)skb->data_end)
		return ALL_STEPS;
	start = *frame;
	route_start(&start, to->macs);
	checksum = checksum_of_plain(packet->protocol);
	flags = checksum_flags(packet->protocol);
	if (is_translated) {
		if (change_end(skb, &start.ends, 1, packet->destination.low >> 32, from_be16(packet->destination_port), checksum,
			       flags) ||
		    change_end(skb, &start.ends, 0, packet->source.low >> 32, from_be16(packet->source_port), checksum, flags))
			return lose(NO_BACKEND);
	} else if (is_restored) {
		const struct asked_address *asked = &service->asked;

		if (change_end(skb, &start.ends, 0, asked->address.low >> 32, from_be16(asked->port), checksum, flags) ||
		    (asked->client_port && change_end(skb, &start.ends, 1, packet->destination.low >> 32,
						      from_be16(asked->client_port), checksum, flags)))
			return lose(NO_BACKEND);
	}
	if (store(skb, 0, &start, sizeof(start), 0))
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

/*
 * Path and wire of a pod's packet to an end beyond the node, as in the word `how`; 0 or WAY_ONCE if it takes the stack. `flow` is the row
 * of its connection, or null.
 */
static inline_always __u32 way_to_wire(struct __sk_buff *skb, struct work *work, struct outside_work *outside, struct flow *flow,
				       int from_low, __u64 now)
{
	struct packet *packet = &work->packet;
	struct fast_pod *from = map_lookup(&fast_pods, &packet->source);
	__u32 link = skb->ifindex, way;

	if (!from || from->link != link)
		return 0;
	learn_macs(skb, from);
	/* Its answer takes the stack. */
	if (is_held(packet, packet->destination_port, &link))
		return 0;
	flow = connection_in(flow, packet, now);
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

/* True for a packet that `route_plain` changes, if it has no IP options. */
static inline_always int is_short(const struct packet *packet)
{
	return is_v4(&packet->source) && (packet->protocol == TCP || packet->protocol == UDP);
}

/*
 * Sends the answer in `work` to a client outside, whose row is in `flow` of the work for outside, from the address that the client
 * asked for.
 */
checked_alone int send_back(struct __sk_buff *skb)
{
	__u32 first = 0;
	struct work *work = work_of();
	struct outside_work *outside = map_lookup(&outside_works, &first);
	const struct packet *packet;
	const struct outside_flow *flow;

	if (!work || !outside)
		return TC_ACT_SHOT;
	packet = &work->packet;
	flow = &outside->flow;
	if (is_short(packet)) {
		if (route_plain(skb, packet, flow->macs, &flow->asked, flow->asked_port, 1))
			return lose(NO_BACKEND);
		skb->tc_index = FORWARDED;
		return redirect(flow->link, 0);
	}
	if (rewrite(skb, packet, &flow->asked, flow->asked_port, 1) || lower_hops(skb, packet->hop_limit))
		return lose(NO_BACKEND);
	return return_by(skb, flow);
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
	/*
	 * The row for answers may have been displaced. Answers note its time, so a look at it once in a tick is enough. All steps add it
	 * again.
	 */
	if ((packet->tcp_flags & TCP_FIN) || choice->seen != CHOICE_TICK(now)) {
		struct outside_flow *of;

		key_of(&packet->source, packet->source_port, &packet->destination, packet->destination_port, TCP,
		       &service->client);
		of = map_lookup(&outside_flows, &service->client);
		if (!of || of->link != skb->ifindex || of->asked_port != service->key.high_port ||
		    !is_equal(&of->asked, &service->key.high))
			return TC_ACT_UNSPEC;
		note_outside(of, packet, 0, now);
	}
	note_time(choice, now);
	if (route_plain(skb, packet, to->macs, &service->choice.address, service->choice.port, 0))
		return lose(NO_BACKEND);
	skb->tc_index = 0;
	return redirect_to_peer(to->link, 0);
}

/*
 * True for a pod's packet of an open connection of a client outside that has asked for a Service. `send_back` sends it. Other packets take all
 * steps.
 */
checked_alone int is_answer_of_open(struct __sk_buff *skb)
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
		return 0;
	packet = &work->packet;
	if (!parse_plain(skb, packet, 1) || is_dns(packet))
		return 0;
	flow_of(packet, &work->key);
	flow = map_lookup(&flows, &work->key);
	if (!flow || flow->path != PATH_CLIENT)
		return 0;
	from = map_lookup(&fast_pods, &packet->source);
	now = time_of(work);
	if (!from || from->link != link || !(from->flags & HAS_MACS) || !has_pod(link))
		return 0;
	asked = find_asked(work, outside, now);
	if (!asked || has_error(skb, packet, outside->flow.link) ||
	    !follows(flow, packet, is_lower(packet), link, 0, 0, 1, 0, generation(), now))
		return 0;
	note_outside(asked, packet, 1, now);
	return 1;
}

/* Gives a packet from outside to the program of fast pods. It returns if there is none. */
static inline_always void into_fast_pod(struct __sk_buff *skb, struct work *work)
{
	if (is_simple(skb, &work->packet) && find_receiver(work))
		tail_call(skb, &stages, STAGE_INTO_POD);
}
