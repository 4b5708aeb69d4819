/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Traffic from outside: packets that enter by a link to other nodes and ask for a Service. A backend on this node receives them
 * with the address of their client, and the host's stack routes them. A backend on another node receives them from an address
 * of this node, so that the answer comes back here. Answers leave by the link of the request.
 */
#pragma once

#include "service.h"

/* The source ports of packets to other nodes. The kernel's default range of local ports ends before them. */
#define FIRST_SOURCE_PORT 61000
#define SOURCE_PORTS 4536
/* The ports that are tried for a new connection. */
#define SOURCE_PORT_TRIES 16
/* In nanoseconds. */
#define CLOSING_TIME 5000000000ull

/*
 * A link to other nodes. The addresses of its family from which packets are masqueraded, and those of its gateways on the fast
 * path; 0 without one.
 */
struct wire {
	struct address v4;
	struct address v6;
	struct address gateway_v4;
	struct address gateway_v6;
};

/*
 * A connection from outside, for its answers. Its key has the client as `low` and the backend as `high`. A masqueraded
 * connection has the node's address and port as `low`.
 */
struct outside_flow {
	struct address asked;
	struct address client;
	/* Of the last packet, in nanoseconds since the boot. */
	__u64 seen;
	/* The link of the request. */
	__u32 link;
	__u16 asked_port;
	__u16 client_port;
	/* The first bytes of an answer's frame: the sender of the request, then its receiver. */
	__u8 macs[12];
	/* TCP flags that were seen. */
	__u8 tcp_flags;
	__u8 is_answered;
	/* The client has sent a packet after the answer. Until then the row is that of a start, whoever answers. */
	__u8 is_open;
	__u8 unused;
};

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_HASH);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct wire);
	MAP_NUMBER(max_entries, 256);
	MAP_NUMBER(map_flags, BPF_F_NO_PREALLOC);
} wires SEC(".maps");

/* Choices for clients outside. They have no place among those of pods, which an outsider could displace. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_LRU_HASH);
	MAP_TYPE(key, struct flow_key);
	MAP_TYPE(value, struct choice);
	MAP_NUMBER(max_entries, 1);
} outside_choices SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_LRU_HASH);
	MAP_TYPE(key, struct flow_key);
	MAP_TYPE(value, struct outside_flow);
	MAP_NUMBER(max_entries, 1);
} outside_flows SEC(".maps");

/* Fragmented packets of clients outside, and their answers. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_LRU_HASH);
	MAP_TYPE(key, struct fragment_key);
	MAP_TYPE(value, struct fragment_ports);
	MAP_NUMBER(max_entries, 1);
} outside_fragments SEC(".maps");

/* Variables for which the stack is too small. */
struct outside_work {
	struct service_work service;
	struct outside_flow flow;
	struct wire wire;
	struct bpf_fib_lookup route;
};

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct outside_work);
	MAP_NUMBER(max_entries, 1);
} outside_works SEC(".maps");

static long (*fib_lookup)(void *skb, struct bpf_fib_lookup *route, int size, __u32 flags) = (void *)BPF_FUNC_fib_lookup;
static long (*redirect_to)(__u32 link, struct bpf_redir_neigh *to, int size, __u64 flags) =
	(void *)BPF_FUNC_redirect_neigh;

/* Of linux/socket.h. */
#define FAMILY_V4 2
#define FAMILY_V6 10

/* True if a packet from outside may be an answer of a backend on another node. */
static inline_always int is_to_source_port(const struct packet *packet)
{
	return packet->destination_port >= FIRST_SOURCE_PORT || packet->protocol == SCTP;
}

/* True if another connection may have the port of this one. */
static inline_always int is_over(const struct outside_flow *flow, __u32 protocol, __u64 now)
{
	struct flow of = { .tcp_flags = flow->tcp_flags, .answered = flow->is_open, .seen = flow->seen };

	return is_expired(&of, protocol, now);
}

/* True for the row of this packet's connection. */
static inline_always int is_of(const struct outside_flow *flow, const struct packet *packet)
{
	return flow->client_port == packet->source_port && flow->asked_port == packet->destination_port &&
	       is_equal(&flow->client, &packet->source) && is_equal(&flow->asked, &packet->destination);
}

/* Notes a packet of a connection. Processors share the row, so it is written only if it changes. */
static inline_always void note_outside(struct outside_flow *flow, const struct packet *packet, int is_answer, __u64 now)
{
	if (flow->seen != now)
		flow->seen = now;
	if (is_answer && !flow->is_answered)
		flow->is_answered = 1;
	/* A start after the end of a connection is another connection. */
	if (packet->protocol == TCP && !is_answer && is_start(packet)) {
		flow->tcp_flags = TCP_SYN;
		flow->is_answered = 0;
		flow->is_open = 0;
		return;
	}
	if (!is_answer && flow->is_answered && !flow->is_open && !(packet->tcp_flags & (TCP_SYN | TCP_RST)))
		flow->is_open = 1;
	if (packet->tcp_flags & ~flow->tcp_flags)
		flow->tcp_flags |= packet->tcp_flags;
}

/* True if the frame starts with an Ethernet header. */
static inline_always int has_ethernet(struct __sk_buff *skb)
{
	__u8 of_frame[12] __attribute__((aligned(4))), of_packet[12] __attribute__((aligned(4)));

	return !skb_load_frame(skb, ETH_HEADER, of_frame, 12) && !skb_load(skb, 0, of_packet, 12) &&
	       is_same(of_frame, of_packet);
}

/* The hop limit of a packet; 0 if it has no header. */
static inline_always __u8 hops_of(struct __sk_buff *skb)
{
	__u8 hops;

	return skb_load_frame(skb, ETH_HEADER + (skb->protocol == from_be16(ETH_IPV6) ? 7 : 8), &hops, 1) ? 0 : hops;
}

/* Lowers the hop limit, as a router does. Returns 0 if the packet has changed. */
static inline_always int lower_hops(struct __sk_buff *skb, __u8 hops)
{
	int is_v6 = skb->protocol == from_be16(ETH_IPV6);

	hops -= 1;
	/* The hop limit is the first byte of a word of the checksum. */
	if (!is_v6 && ip_checksum(skb, ETH_HEADER + 10, (__u16)(hops + 1), hops, 2))
		return -1;
	return store(skb, ETH_HEADER + (is_v6 ? 7 : 8), &hops, 1, 0);
}

/* Lowers the hop limit of a packet that is not at its last hop. Returns 0 if the packet may continue. */
static inline_always int next_hop(struct __sk_buff *skb)
{
	__u8 hops = hops_of(skb);

	return hops <= 1 ? -1 : lower_hops(skb, hops);
}

/* Sends an answer to its client, by the link of the request. */
static inline_always int return_by(struct __sk_buff *skb, const struct outside_flow *flow)
{
	if (store(skb, 0, flow->macs, sizeof(flow->macs), 0))
		return TC_ACT_SHOT;
	skb->tc_index = FORWARDED;
	return redirect(flow->link, 0);
}

/*
 * The link by which a packet leaves that has entered the node by the link `ingress`, or 0. Pods on this node have a route each,
 * and others are behind a gateway.
 */
static inline_always __u32 link_to(struct __sk_buff *skb, __u32 ingress, __u32 protocol, const struct address *from,
				   const struct address *to, struct bpf_fib_lookup *route)
{
	long result;

	__builtin_memset(route, 0, sizeof(*route));
	route->ifindex = ingress;
	route->l4_protocol = protocol;
	if (is_v4(to)) {
		route->family = FAMILY_V4;
		route->ipv4_src = from->low >> 32;
		route->ipv4_dst = to->low >> 32;
	} else {
		route->family = FAMILY_V6;
		__builtin_memcpy(route->ipv6_src, from, sizeof(*from));
		__builtin_memcpy(route->ipv6_dst, to, sizeof(*to));
	}
	result = fib_lookup(skb, route, sizeof(*route), 0);
	/* The next hop is resolved later. Packets of GSO are segmented there, and other large ones are dropped. */
	return result == BPF_FIB_LKUP_RET_SUCCESS || result == BPF_FIB_LKUP_RET_NO_NEIGH ||
			       result == BPF_FIB_LKUP_RET_FRAG_NEEDED
		       ? route->ifindex
		       : 0;
}

/* Where a packet to the backend goes. */
enum way {
	/* To this node: the host's stack routes it. */
	WAY_HERE,
	/* To another node, from the address in `wire`. */
	WAY_OUT,
	WAY_NONE,
};

static inline_always enum way way_to(struct __sk_buff *skb, const struct packet *packet, struct outside_work *work)
{
	const struct address *to = &work->service.choice.address;
	__u32 link = link_to(skb, skb->ifindex, packet->ip_protocol, &packet->source, to, &work->route);
	struct wire *wire;

	if (!link)
		return is_own_address(to) ? WAY_HERE : WAY_NONE;
	if (has_pod(link))
		return WAY_HERE;
	wire = map_lookup(&wires, &link);
	if (!wire)
		return WAY_HERE;
	work->wire = *wire;
	return WAY_OUT;
}

/* The node's address of the backend's family, at the link by which packets leave. */
static inline_always const struct address *source_of(const struct outside_work *work)
{
	return is_v4(&work->service.choice.address) ? &work->wire.v4 : &work->wire.v6;
}

/* The key of the answers of a backend to the node's address and this port. */
static inline_always void key_of_port(const struct packet *packet, struct outside_work *work, __u16 port)
{
	struct choice *choice = &work->service.choice;

	key_of(source_of(work), port, &choice->address, choice->port, packet->protocol, &work->service.client);
}

/* True if the last half of the tries may take the port: one end has closed the connection, and no packet follows. */
static inline_always int is_closing(const struct outside_flow *flow, __u64 now)
{
	return (flow->tcp_flags & (TCP_FIN | TCP_RST)) && (__s64)(now - flow->seen) > (__s64)CLOSING_TIME;
}

/*
 * Adds the row of a masqueraded connection, and returns its port; 0 if no port is free. `busy` is the number of tries that found
 * a port in use.
 */
static inline_always __u16 take_port(const struct packet *packet, struct outside_work *work, __u64 now, __u32 *busy)
{
	__u16 port = 0;

	for (int i = 0; i < SOURCE_PORT_TRIES; i++) {
		struct outside_flow *other;

		/* The checksum of SCTP cannot be changed, so its ports stay. */
		port = packet->protocol == SCTP ? packet->source_port
						: FIRST_SOURCE_PORT + (__u16)((__u64)random_number() * SOURCE_PORTS >> 32);
		key_of_port(packet, work, port);
		*busy = i;
		if (!map_update(&outside_flows, &work->service.client, &work->flow, BPF_NOEXIST))
			return port;
		other = map_lookup(&outside_flows, &work->service.client);
		if (other &&
		    (is_of(other, packet) || is_over(other, packet->protocol, now) ||
		     (i >= SOURCE_PORT_TRIES / 2 && is_closing(other, now))) &&
		    !map_update(&outside_flows, &work->service.client, &work->flow, BPF_ANY))
			return port;
	}
	*busy = SOURCE_PORT_TRIES;
	return 0;
}

/* The row of a new connection. */
static inline_always int describe(struct __sk_buff *skb, const struct packet *packet, struct outside_flow *flow, __u64 now)
{
	__u8 macs[12] __attribute__((aligned(4)));

	if (skb_load_frame(skb, 0, macs, sizeof(macs)))
		return -1;
	*flow = (struct outside_flow){
		.asked = packet->destination,
		.client = packet->source,
		.seen = now,
		.link = skb->ifindex,
		.asked_port = packet->destination_port,
		.client_port = packet->source_port,
		.tcp_flags = packet->tcp_flags,
	};
	__builtin_memcpy(flow->macs, macs + 6, 6);
	__builtin_memcpy(flow->macs + 6, macs, 6);
	return 0;
}

/* Chooses one of the frontend's backends for a new connection. The key of its choice is in `service.key`. */
static inline_always enum translated choose_outside(const struct frontend *frontend, const struct packet *packet,
						    struct outside_work *work, __u64 now)
{
	struct service_work *service = &work->service;

	if (!frontend)
		return service->action == SERVICE_CHOOSE ? NO_SERVICE : REFUSED;
	/* The kernel drops it: no packet from outside has an address of the node. */
	if (is_own_address(&packet->source))
		return NO_SERVICE;
	if (!is_served(frontend, &packet->source)) {
		service->action = SERVICE_SOURCE_RANGE;
		return REFUSED;
	}
	if (AFFINITY_SECONDS(frontend))
		key_of(&packet->source, 0, &packet->destination, packet->destination_port, packet->protocol,
		       &service->client);
	return choose_backend(frontend, service, WORD_OUTSIDE, now);
}

/* True if a new connection of the same ends, or a datagram, may have the backend of the last one. */
static inline_always int is_served_again(const struct frontend *frontend, const struct packet *packet,
					 const struct choice *choice)
{
	__u32 backend = choice->backend;

	return frontend && is_served(frontend, &packet->source) && is_in_table(frontend, WORD_OUTSIDE, backend);
}

/* Sends a packet to a backend on another node. */
checked_alone int send_out(struct __sk_buff *skb, const struct packet *packet)
{
	__u32 first = 0;
	struct outside_work *work = map_lookup(&outside_works, &first);
	struct bpf_redir_neigh to = {};
	struct address source;

	if (!work || !packet)
		return TC_ACT_SHOT;
	source = *source_of(work);
	if (rewrite(skb, packet, &work->service.choice.address, work->service.choice.port, 0) ||
	    rewrite(skb, packet, &source, work->service.choice.source_port, 1) || next_hop(skb))
		return lose(NO_BACKEND);
	to.nh_family = work->route.family;
	if (work->route.family == FAMILY_V4)
		to.ipv4_nh = work->route.ipv4_dst;
	else
		__builtin_memcpy(to.ipv6_nh, work->route.ipv6_dst, sizeof(to.ipv6_nh));
	skb->tc_index = FORWARDED;
	return redirect_to(work->route.ifindex, &to, sizeof(to), 0);
}

/* Sends the answer of a backend on another node to its client. */
checked_alone int return_to_client(struct __sk_buff *skb, const struct packet *packet)
{
	__u32 first = 0;
	struct outside_work *work = map_lookup(&outside_works, &first);

	if (!work || !packet)
		return TC_ACT_SHOT;
	if (rewrite(skb, packet, &work->flow.asked, work->flow.asked_port, 1) ||
	    rewrite(skb, packet, &work->flow.client, work->flow.client_port, 0) || next_hop(skb))
		return lose(NO_BACKEND);
	return return_by(skb, &work->flow);
}

/* The way of a packet of a connection that has a choice. */
static inline_always int continue_outside(struct __sk_buff *skb, const struct packet *packet, struct outside_work *work,
					  __u64 now)
{
	struct choice *choice = &work->service.choice;
	struct outside_flow *flow;

	if (!choice->source_port) {
		key_of(&packet->source, packet->source_port, &choice->address, choice->port, packet->protocol,
		       &work->service.client);
	} else {
		if (way_to(skb, packet, work) != WAY_OUT)
			return NO_BACKEND;
		key_of_port(packet, work, choice->source_port);
	}
	flow = map_lookup(&outside_flows, &work->service.client);
	if (flow && is_of(flow, packet) && flow->link == skb->ifindex) {
		note_outside(flow, packet, 0, now);
		return 0;
	}
	/* Another connection has the port. */
	if (flow && choice->source_port && !is_of(flow, packet) && !is_over(flow, packet->protocol, now))
		return NO_SOURCE_PORT;
	if (describe(skb, packet, &work->flow, now) ||
	    map_update(&outside_flows, &work->service.client, &work->flow, BPF_ANY))
		return NO_BACKEND;
	return 0;
}

/* True if the host routes the address to the link of a fast pod. Without an agent the row of a link stays when it is gone. */
static inline_always int is_at_fast_pod(struct __sk_buff *skb, const struct address *address)
{
	struct fast_pod *pod = map_lookup(&fast_pods, address);
	__u32 length = 0;

	return pod && check_mtu(skb, pod->link, &length, 0, BPF_MTU_CHK_SEGS) >= 0;
}

/* The way of the first packet of a connection. */
static inline_always int begin_outside(struct __sk_buff *skb, const struct packet *packet, struct outside_work *work,
				       __u64 now)
{
	struct choice *choice = &work->service.choice;
	/* A lookup of the route walks the rules of all pods. */
	enum way way = is_at_fast_pod(skb, &choice->address) ? WAY_HERE : way_to(skb, packet, work);

	if (way == WAY_NONE || describe(skb, packet, &work->flow, now))
		return NO_BACKEND;
	choice->source_port = 0;
	if (way == WAY_OUT) {
		const struct address *source = source_of(work);
		__u32 busy = 0;

		if (!(source->high | source->low))
			return NO_BACKEND;
		choice->source_port = take_port(packet, work, now, &busy);
		if (busy)
			count_many(SOURCE_PORT_BUSY, busy);
		if (!choice->source_port)
			return NO_SOURCE_PORT;
		count(SOURCE_PORT_TAKEN);
	} else {
		key_of(&packet->source, packet->source_port, &choice->address, choice->port, packet->protocol,
		       &work->service.client);
		if (map_update(&outside_flows, &work->service.client, &work->flow, BPF_ANY))
			return NO_BACKEND;
	}
	return map_update(&outside_choices, &work->service.key, choice, BPF_ANY) ? NO_BACKEND : 0;
}
