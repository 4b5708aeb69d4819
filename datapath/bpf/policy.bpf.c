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
}

#define SECOND 1000000000ull

/* The time after which a connection without a packet has ended, in nanoseconds. */
static inline_always __u64 lifetime(const struct flow *flow, __u32 protocol)
{
	if (protocol == TCP) {
		/* A reset, or the end of both directions. */
		if (flow->tcp_flags & 0x4)
			return 10 * SECOND;
		if (flow->tcp_flags & 0x1)
			return 120 * SECOND;
		return flow->answered ? 21600 * SECOND : 30 * SECOND;
	}
	if (protocol == SCTP)
		return flow->answered ? 18000 * SECOND : 30 * SECOND;
	return flow->answered ? 180 * SECOND : 30 * SECOND;
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
	enum parsed parsed;
	int is_hairpin, from_low, allowed;
	__u64 now;

	if (ingress)
		from = map_lookup(&endpoints, &ingress);
	if (!from && !to)
		return TC_ACT_UNSPEC;
	parsed = parse(skb, &packet, &key);
	if (parsed == OTHER || parsed == NEIGHBOR)
		return TC_ACT_UNSPEC;
	is_hairpin = from && to && from->slot == to->slot;
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
	from_low = is_lower(&packet);
	flow = map_lookup(&flows, &key);
	if (flow && now - flow->seen > lifetime(flow, packet.protocol))
		flow = 0;
	if (packet.is_error) {
		/* An error follows its flow. Without one it is judged like any packet, and starts no flow. */
		if (flow)
			return TC_ACT_UNSPEC;
		return judge(&source, &destination, &packet, service, is_hairpin) ? TC_ACT_UNSPEC
										    : TC_ACT_SHOT;
	}
	if (flow) {
		int is_reply = flow->from_low != from_low;
		struct end *initiator = is_reply ? &destination : &source;
		struct end *responder = is_reply ? &source : &destination;

		if (flow->initiator != initiator->generation ||
		    flow->responder != responder->generation) {
			struct packet original = packet;

			if (is_reply)
				turn(&original);
			if (!judge(initiator, responder, &original, flow->service, is_hairpin)) {
				map_delete(&flows, &key);
				return TC_ACT_SHOT;
			}
			flow->initiator = initiator->generation;
			flow->responder = responder->generation;
		}
		flow->seen = now;
		flow->answered |= is_reply;
		flow->tcp_flags |= packet.tcp_flags;
		return TC_ACT_UNSPEC;
	}
	allowed = judge(&source, &destination, &packet, service, is_hairpin);
	if (!allowed)
		return TC_ACT_SHOT;
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
	enum parsed parsed;
	__u32 *service;

	if (!from)
		return TC_ACT_UNSPEC;
	parsed = parse(skb, &packet, &key);
	if (parsed == OTHER || parsed == NEIGHBOR)
		return TC_ACT_UNSPEC;
	if (parsed != MALFORMED) {
		struct address *own = packet.source.high || (__u32)packet.source.low != 0xffff0000u
					      ? &from->v6
					      : &from->v4;

		if (packet.source.high != own->high || packet.source.low != own->low) {
			count(SPOOFED);
			return TC_ACT_SHOT;
		}
	}
	service = map_lookup(&services, &packet.destination);
	skb->tc_index = TICKET | (service ? *service & ~TICKET : 0);
	return TC_ACT_UNSPEC;
}

char program_license[] SEC("license") = "Dual BSD/GPL";
