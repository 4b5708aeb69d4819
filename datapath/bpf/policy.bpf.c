/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Enforces policy at the host veths of pods and at the links to other nodes.
 *
 * Userspace decides, and the programs look up. The origin of a packet is the link by which it entered the node
 * (`ingress_ifindex`), never an address: 0 is a process of the node itself. Egress is judged where the destination is
 * final, so `from_pod` only notes which Service was asked for.
 */
#include "packet.h"

/* Of `tc_index`: the packet passed `from_pod`, which put the class of the Service's address in the other bits. */
#define TICKET 0x8000u

static inline_always void count(__u32 reason)
{
	__u64 *counter = map_lookup(&counters, &reason);

	if (counter)
		*counter += 1;
}

static inline_always __u32 search(const struct interval *intervals, __u32 length, __u32 key)
{
	__u32 at = 0;

#pragma unroll
	for (__u32 step = length / 2; step; step /= 2) {
		__u32 next = at + step;

		if (next < length && intervals[next & (length - 1)].start <= key)
			at = next;
	}
	return intervals[at & (length - 1)].value;
}

/* The value of a table for a key. Unused intervals at a table's end start at the highest number. */
checked_alone __u32 look_up(__u32 table, __u32 key)
{
	__u32 number = table & ~TABLE_LARGE;

	if (table & TABLE_LARGE) {
		struct large_table *large = map_lookup(&large_tables, &number);

		return large ? search(large->intervals, LARGE, key) : DROP;
	}
	struct small_table *small = map_lookup(&small_tables, &number);

	return small ? search(small->intervals, SMALL, key) : DROP;
}

static inline_always __u32 class_of(const struct address *address)
{
	__u32 *class = map_lookup(&classes, address);

	if (class)
		return *class;
	struct prefix prefix = { .length = 128 };

	__builtin_memcpy(prefix.first, address, sizeof(prefix.first));
	class = map_lookup(&prefixes, &prefix);
	return class ? *class : 0;
}

/* The verdict of a set about the other end. A set without rows drops: its writer failed. */
checked_alone __u32 verdict(__u32 set, const struct address *other, __u32 service, __u32 traffic,
			    __u32 source_port)
{
	struct set_key key = { .set = set };
	__u32 *table = 0;
	__u32 value;

	if (!set)
		return ALLOW;
	if (!other)
		return DROP;
	key.class = class_of(other);
	if (service) {
		key.service = service;
		table = map_lookup(&set_rows, &key);
		key.service = 0;
	}
	if (!table)
		table = map_lookup(&set_rows, &key);
	if (!table && key.class) {
		key.class = 0;
		table = map_lookup(&set_rows, &key);
	}
	if (!table) {
		count(NO_ROW);
		return DROP;
	}
	value = look_up(*table, traffic);
	if (value & VALUE_BY_SOURCE)
		value = look_up(value & ~VALUE_BY_SOURCE, source_port);
	return value;
}

/* A pod's end of a connection. */
struct end {
	/* The generation of its policies; 0 if the end is no endpoint. */
	__u32 generation;
	struct row row;
};

static inline_always void end_of(const struct endpoint *endpoint, struct end *end)
{
	__u64 *now;
	__u32 number;
	struct row *row;

	if (!endpoint)
		return;
	end->row = (struct row){ CLOSED, CLOSED, CLOSED, CLOSED };
	number = endpoint->slot;
	now = map_lookup(&current, &number);
	if (!now)
		return;
	end->generation = *now >> 32;
	number = (__u32)*now;
	row = map_lookup(&rows, &number);
	if (row)
		end->row = *row;
}

/* Judges a connection in its original direction. */
static inline_always int judge(const struct end *initiator, const struct end *responder,
			       const struct packet *packet, __u32 service, int is_hairpin)
{
	__u32 value;

	value = verdict(is_hairpin ? initiator->row.hairpin_egress : initiator->row.egress,
			&packet->destination, service, packet->key, packet->source_port);
	if ((value & DECISION) != ALLOW) {
		count(POLICY_EGRESS);
		return 0;
	}
	value = verdict(is_hairpin ? responder->row.hairpin_ingress : responder->row.ingress,
			&packet->source, service, packet->key, packet->source_port);
	if ((value & DECISION) != ALLOW) {
		count(POLICY_INGRESS);
		return 0;
	}
	return 1;
}

/* The packet in the other direction. */
static inline_always void turn(struct packet *packet)
{
	struct address source = packet->source;
	__u16 port = packet->source_port;

	packet->source = packet->destination;
	packet->destination = source;
	packet->source_port = packet->destination_port;
	packet->destination_port = port;
	if (packet->protocol == TCP || packet->protocol == UDP || packet->protocol == SCTP)
		packet->key = packet->protocol << 16 | packet->destination_port;
	/* The answer to an echo is about the echo, and the reverse. */
	if (packet->ip_protocol == ICMP && packet->has_flow)
		packet->key ^= (ECHO_V4 ^ ECHO_REPLY_V4) << 8;
	if (packet->ip_protocol == ICMPV6 && packet->has_flow)
		packet->key ^= (ECHO_V6 ^ ECHO_REPLY_V6) << 8;
}

#define TCP_FIN 0x1
#define TCP_SYN 0x2
#define TCP_RST 0x4
#define TCP_ACK 0x10

#define SECOND 1000000000ull

/* The time after which a connection without a packet has ended, in nanoseconds. */
static inline_always __u64 lifetime(const struct flow *flow, __u32 protocol)
{
	if (protocol == TCP) {
		if (flow->tcp_flags & TCP_RST)
			return 10 * SECOND;
		/* The end of one direction or of both. */
		if (flow->tcp_flags & TCP_FIN)
			return 120 * SECOND;
		return flow->answered ? 21600 * SECOND : 30 * SECOND;
	}
	if (protocol == SCTP)
		return flow->answered ? 18000 * SECOND : 30 * SECOND;
	return flow->answered ? 180 * SECOND : 30 * SECOND;
}

/* True if the packet asks for a connection. Other protocols than TCP have no sign of that. */
static inline_always int is_start(const struct packet *packet)
{
	return packet->protocol != TCP || (packet->tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_SYN;
}

/* Judges a packet without a connection in the order of its ends. */
static inline_always int judge_first(const struct end *source, const struct end *destination,
				     const struct packet *packet, __u32 service, int is_hairpin)
{
	struct packet reverse = *packet;

	if (!judge(source, destination, packet, service, is_hairpin))
		return 0;
	if (is_start(packet))
		return 1;
	/* In the middle of a connection it is not known which end began it. */
	turn(&reverse);
	return judge(destination, source, &reverse, 0, is_hairpin);
}

/*
 * Judges a packet at the hook where its destination is final. `to` is the endpoint of that hook, or null at a link to
 * other nodes.
 */
static inline_always int at_destination(struct __sk_buff *skb, struct endpoint *to)
{
	struct packet packet = {};
	struct flow_key key = {};
	struct end source = {}, destination = {};
	struct endpoint *from = 0;
	__u32 ingress = skb->ingress_ifindex, service = 0;
	struct flow *flow;
	int parsed, is_hairpin, from_low = 0, allowed;
	__u64 now;

	if (!ingress && (skb->tc_index & TICKET)) {
		count(NO_ORIGIN);
		return TC_ACT_SHOT;
	}
	if (ingress)
		from = map_lookup(&endpoints, &ingress);
	if (!from && !to)
		return TC_ACT_UNSPEC;
	parsed = parse(skb, &packet, &key, &from_low);
	if (parsed == OTHER || parsed == NEIGHBOR)
		return TC_ACT_UNSPEC;
	is_hairpin = from && to && ingress == skb->ifindex;
	end_of(from, &source);
	/* The policies of a pod do not apply to processes of its own node. */
	if (ingress)
		end_of(to, &destination);
	if (parsed != PARSED) {
		if (!source.row.egress && !destination.row.ingress)
			return TC_ACT_UNSPEC;
		count(parsed == LATER_FRAGMENT ? FRAGMENT : NOT_PARSED);
		return TC_ACT_SHOT;
	}
	if (from && (skb->tc_index & TICKET))
		service = skb->tc_index & ~TICKET;

	now = ktime_coarse();
	flow = packet.has_flow || packet.is_error ? map_lookup(&flows, &key) : 0;
	/* Another processor may have written a later time. */
	if (flow && (__s64)(now - flow->seen) > (__s64)lifetime(flow, key.protocol))
		flow = 0;
	if (packet.is_error && flow) {
		/*
		 * An error follows its flow while the policies of both ends are those that allowed it. Its receiver sent
		 * the quoted packet. A pod sends errors about its own flows only.
		 */
		int is_initiator = flow->from_low == from_low;
		__u32 receiver = is_initiator ? flow->initiator : flow->responder;
		__u32 sender = is_initiator ? flow->responder : flow->initiator;

		if (flow->is_denied || receiver != destination.generation ||
		    (from && sender != source.generation)) {
			count(POLICY_INGRESS);
			return TC_ACT_SHOT;
		}
		return TC_ACT_UNSPEC;
	}
	/* A start after the end of a connection is another connection. */
	if (flow && packet.protocol == TCP && is_start(&packet) &&
	    (flow->is_denied || (flow->tcp_flags & (TCP_FIN | TCP_RST))))
		flow = 0;
	if (flow) {
		int is_reply = flow->from_low != from_low;
		struct end *initiator = is_reply ? &destination : &source;
		struct end *responder = is_reply ? &source : &destination;

		if (!is_reply && (skb->tc_index & TICKET))
			flow->service = service;
		if (flow->initiator != initiator->generation ||
		    flow->responder != responder->generation) {
			struct packet original = packet;

			if (is_reply)
				turn(&original);
			flow->is_denied =
				!judge(initiator, responder, &original, flow->service, is_hairpin);
			flow->initiator = initiator->generation;
			flow->responder = responder->generation;
		}
		if (flow->is_denied) {
			count(POLICY_INGRESS);
			return TC_ACT_SHOT;
		}
		flow->seen = now;
		flow->answered |= is_reply;
		flow->tcp_flags |= packet.tcp_flags;
		return TC_ACT_UNSPEC;
	}
	allowed = judge_first(&source, &destination, &packet, service, is_hairpin);
	if (!allowed)
		return TC_ACT_SHOT;
	/* Answers to the node's own processes pass no hook. */
	if (!ingress || !packet.has_flow || packet.is_error)
		return TC_ACT_UNSPEC;
	struct flow new = {
		.seen = now,
		.initiator = source.generation,
		.responder = destination.generation,
		.service = service,
		.from_low = from_low,
		.tcp_flags = packet.tcp_flags,
	};

	if (map_update(&flows, &key, &new, BPF_ANY)) {
		count(FLOWS_FULL);
		/* Pods without policies need no row. */
		if (source.row.ingress | source.row.egress | destination.row.ingress | destination.row.egress)
			return TC_ACT_SHOT;
	}
	return TC_ACT_UNSPEC;
}

/* Egress of a pod's host veth: packets to the pod. */
SEC("classifier")
int to_pod(struct __sk_buff *skb)
{
	__u32 link = skb->ifindex;
	struct endpoint *to = map_lookup(&endpoints, &link);

	return to ? at_destination(skb, to) : TC_ACT_UNSPEC;
}

/* Egress of a link to other nodes. */
SEC("classifier")
int to_wire(struct __sk_buff *skb)
{
	return at_destination(skb, 0);
}

/* Ingress of a pod's host veth: packets from the pod. */
SEC("classifier")
int from_pod(struct __sk_buff *skb)
{
	__u32 link = skb->ifindex;
	struct endpoint *from = map_lookup(&endpoints, &link);
	struct packet packet = {};
	struct flow_key key = {};
	struct address *own;
	int parsed, from_low = 0;
	__u32 *service;

	if (!from)
		return TC_ACT_UNSPEC;
	/* Nothing that the pod wrote there is a ticket. */
	skb->tc_index = 0;
	parsed = parse(skb, &packet, &key, &from_low);
	if (parsed == OTHER && skb->protocol == from_be16(ETH_ARP) && !skb->vlan_present)
		return TC_ACT_UNSPEC;
	if (parsed == OTHER || skb->vlan_present) {
		/* The kernel removes further tags later, and what is in them would not be judged. */
		count(NOT_IP);
		return TC_ACT_SHOT;
	}
	own = packet.source.high || (__u32)packet.source.low != 0xffff0000u ? &from->v6 : &from->v4;
	/* Neighbor discovery is from a link-local or the unspecified address too. Bytes 0xfe 0x80 come first. */
	int is_local = parsed == NEIGHBOR && ((packet.source.high & 0xc0ff) == 0x80fe ||
					      (!packet.source.high && !packet.source.low));

	/* A pod without an address of the family has zeros there. */
	if (!is_local && (!(own->high | own->low) || !is_equal(&packet.source, own))) {
		count(SPOOFED);
		return TC_ACT_SHOT;
	}
	service = map_lookup(&services, &packet.destination);
	skb->tc_index = TICKET | (service ? *service & ~TICKET : 0);
	return TC_ACT_UNSPEC;
}

char program_license[] SEC("license") = "Dual BSD/GPL";
