/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Enforces policy at the host veths of pods and at the links to other nodes.
 *
 * Userspace decides, and the programs look up. The origin of a packet is the link by which it entered the node
 * (`ingress_ifindex`), never an address: 0 is a process of the node itself. Egress is judged where the destination is
 * final, so `from_pod` only notes which Service was asked for.
 */
#include "planted.h"
#include "names.h"
#include "service.h"

/* Of `tc_index`: the packet passed `from_pod`. The other bits are its place in `sent`. */
#define TICKET 0x8000u
/* Of `tc_index`: policies have judged the packet. */
#define JUDGED 0x4000u
/* Of `tc_index`: a program at ingress has sent the packet, or it is an answer that has its client's address. */
#define FORWARDED 0x2000u
/* A link by which no packet enters. */
#define UNKNOWN 0xffffffffu
#define SECOND 1000000000ull
/* The bits of generations that are compared. */
#define COMPARED (PLANTED_GENERATION ? 1u << 31 : ~0u)

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

checked_alone __u32 look_up_large(__u32 number, __u32 key)
{
	struct large_table *large = map_lookup(&large_tables, &number);

	return large ? search(large->intervals, LARGE, key) : FAULT_OF(NO_TABLE);
}

/* The value of a table for a key. Unused intervals at a table's end start at the highest number. */
static inline_always __u32 look_up(__u32 table, __u32 key)
{
	struct small_table *small;

	if (table & TABLE_LARGE)
		return look_up_large(table & ~TABLE_LARGE, key);
	small = map_lookup(&small_tables, &table);
	return small ? search(small->intervals, SMALL, key) : FAULT_OF(NO_TABLE);
}

/* Of a chain of words: another word leads to another sum. `datapath/ebpf/src/sums.rs` has the same. */
static inline_always __u64 mix(__u64 sum, __u64 word)
{
	sum = (sum ^ word) * 0x9e3779b97f4a7c15ull;
	return sum ^ sum >> 32;
}

/*
 * 0, computed from a value. A load from an address that depends on a value follows the load of this value, also on processors
 * that reorder loads.
 */
static inline_always __u64 after(__u64 value)
{
	asm volatile("%0 &= 0" : "+r"(value));
	return value;
}

/*
 * The slot of an address. `half` is that of the generation. One variable is on the stack: kernel 6.1 adds up the stacks of all
 * callers.
 */
static inline_always struct class_slot *slot_of(const struct address *address, __u32 half)
{
	__u32 entry = after(half), last;
	struct class_slot *slot = map_lookup(&classes, &entry);
	__u64 low = address->low, high = address->high, hash;

	if (!slot || low == SLOT_FREE || low == SLOT_GONE)
		return 0;
	last = slot->of[0];
	/* Each half of a word has a factor, so no two of them cancel out in the bits of the place. */
	hash = (__u32)low * slot->low + (low >> 32) * slot->high;
	hash += (__u32)high * slot->of[1] + (high >> 32) * (slot->low ^ slot->of[1] << 1);
	/* The first slot of a cache line. */
	entry = FIRST_SLOT + (hash >> 32 & last & ~1u);
	for (__u32 probe = 0; probe < PROBES; probe++) {
		__u64 found;

		slot = map_lookup(&classes, &entry);
		if (!slot)
			return 0;
		found = *(volatile __u64 *)&slot->low;
		slot = (void *)slot + after(found);
		if (found == low && slot->high == high)
			return slot;
		if (found == SLOT_FREE)
			return 0;
		entry = FIRST_SLOT + ((entry - FIRST_SLOT + 1) & last);
	}
	return 0;
}

/* The class of an address in one half of the state. The half is read again, so it takes no place on the stack. */
static inline_always __u64 class_of(const struct address *address, const volatile __u8 *half)
{
	struct class_slot *slot = slot_of(address, *half);
	__u32 in_force = *half & 1;
	struct halves *classes_of;

	if (slot && slot->of[in_force] != BY_PREFIX)
		return slot->of[in_force];
	struct prefix prefix = { .length = 128 };

	__builtin_memcpy(prefix.first, address, sizeof(prefix.first));
	classes_of = map_lookup(&prefixes, &prefix);
	return classes_of ? classes_of->of[*half & 1] : 0;
}

/* The class of a Service's address; 0 if it is none that a rule names. */
static inline_always __u64 service_of(const struct address *address, __u32 half)
{
	struct halves *service = map_lookup(&services, address);

	return service ? service->of[half & 1] : 0;
}

/* The class of the Service that a pod's packet asked for; 0 if it is none that a rule names. */
static inline_always __u64 service_asked(const struct sent *sent_as, __u32 half)
{
	if (sent_as->service)
		return sent_as->service;
	return service_of(sent_as->from_low ? &sent_as->key.high : &sent_as->key.low, half);
}

/* A packet as policies judge it. */
struct judged {
	struct address source;
	struct address destination;
	/* The class of the Service's address that was asked for. */
	__u64 service;
	/* The key of interval tables. */
	__u32 key;
	__u16 source_port;
	/* A Service may have been asked for, but it is not known which. */
	__u8 is_service_unknown : 1;
	/* For events: the packet is on the fast path. */
	__u8 is_fast : 1;
	__u8 half;
	/* For events: the links of both ends, or 0. */
	__u32 from;
	__u32 to;
	/* The verdicts of the sender's and the receiver's policies. */
	__u32 egress;
	__u32 ingress;
};

/* The verdict of a set about the other end. A set without rows drops: its writer failed. */
checked_alone __u32 verdict(__u64 set, const struct judged *judged, int is_egress)
{
	struct set_key key = { .set = set };
	struct address other;
	__u32 *table = 0;
	__u32 value;

	if (!set)
		return ALLOW;
	if (set == CLOSED || !judged)
		return is_egress ? FAULT_OF(EGRESS_CLOSED) : FAULT_OF(INGRESS_CLOSED);
	if (judged->is_service_unknown && (set & NAMES_SERVICES))
		return FAULT_OF(NO_TICKET);
	/* On the stack: kernel 6.1 accepts no key of a map in memory of the caller. */
	other = is_egress ? judged->destination : judged->source;
	key.class = class_of(&other, &judged->half) + PLANTED_KEY;
	if (judged->service && (set & NAMES_SERVICES)) {
		key.service = judged->service;
		table = map_lookup(&set_rows, &key);
		key.service = 0;
	}
	if (!table)
		table = map_lookup(&set_rows, &key);
	if (!table && key.class) {
		key.class = 0;
		if (judged->service && (set & NAMES_SERVICES)) {
			key.service = judged->service;
			table = map_lookup(&set_rows, &key);
			key.service = 0;
		}
		if (!table)
			table = map_lookup(&set_rows, &key);
	}
	if (!table)
		return FAULT_OF(NO_ROW);
	value = look_up(*table, judged->key);
	if (value & VALUE_BY_SOURCE)
		value = look_up(value & ~VALUE_BY_SOURCE, judged->source_port);
	return value;
}

static inline_always void row_of(const struct pod *pod, __u32 half, struct row *to)
{
	__u32 number;
	struct row *row;

	if (!pod) {
		*to = (struct row){};
		return;
	}
	number = pod->slot * 2 + half;
	row = map_lookup(&rows, &number);
	*to = row ? *row : (struct row){ CLOSED, CLOSED, CLOSED, CLOSED };
}

/* The generation that is in force. A packet is judged by one generation. */
static inline_always __u64 generation(void)
{
	__u32 first = 0;
	__u64 *value = map_lookup(&active, &first);

	return value ? *value : 0;
}

/* Judges a connection in its original direction. Notes both verdicts, and returns the decision. */
static inline_always __u32 judge(const struct row *initiator, const struct row *responder,
			       struct judged *judged, int is_hairpin)
{
	__u64 egress = is_hairpin ? initiator->hairpin_egress : initiator->egress;
	__u64 ingress = is_hairpin ? responder->hairpin_ingress : responder->ingress;

	judged->ingress = ALLOW;
	judged->egress = egress ? verdict(egress, judged, 1) : ALLOW;
	if ((judged->egress & DECISION) != ALLOW)
		return judged->egress & DECISION;
	judged->ingress = ingress ? verdict(ingress, judged, 0) : ALLOW;
	return judged->ingress & DECISION;
}

/* The reason for which a verdict denies. */
static inline_always __u32 reason_of(__u32 verdict, int is_egress)
{
	__u32 first = is_egress ? EGRESS_RULE : INGRESS_RULE;

	if (verdict & FAULT)
		return CAUSE(verdict);
	if (CAUSE(verdict) == ISOLATION)
		return first + EGRESS_ISOLATION - EGRESS_RULE;
	return (verdict & DECISION) == REJECT ? first + EGRESS_REJECT - EGRESS_RULE : first;
}

/* The reason for which a first packet is denied. */
static inline_always __u32 denial(const struct judged *judged)
{
	return (judged->egress & DECISION) != ALLOW ? reason_of(judged->egress, 1) : reason_of(judged->ingress, 0);
}

/* Counts the use of a verdict's rule. `length` is that of a denied packet, or 0 for an allowed connection. */
static inline_always void count_use(__u32 verdict, __u32 length, __u64 now)
{
	__u32 rule = CAUSE(verdict) - FIRST_RULE;
	struct use *use, new = {};

	if ((verdict & FAULT) || CAUSE(verdict) < FIRST_RULE)
		return;
	use = map_lookup(&uses, &rule);
	if (!use) {
		map_update(&uses, &rule, &new, BPF_NOEXIST);
		use = map_lookup(&uses, &rule);
	}
	if (!use) {
		count(NOT_COUNTED);
		return;
	}
	use->flows += !length;
	use->packets += !!length;
	use->bytes += length;
	use->last = now;
}

/* The pod of a link, or null. */
static inline_always struct pod *endpoint_of(__u32 link)
{
	struct endpoint *endpoint = map_lookup(&endpoints, &link);

	return endpoint ? &endpoint->pod : 0;
}

/* True if a link has a pod. */
static inline_always int has_pod(__u32 link)
{
	__u32 number = link & (PLACES - 1);
	struct place *place = map_lookup(&places, &number);

	/* Packets from other nodes enter by a link that has no pod. */
	return place && (place->link == link || (place->endpoints && endpoint_of(link)));
}

/*
 * Copies the pod of a link from `endpoints`. Returns 0 if the link has no pod.
 * Kernel 6.1 checks the callers with fewer instructions because this function is checked alone.
 */
checked_alone int copy_endpoint(__u32 link, struct pod *to)
{
	struct pod *pod = endpoint_of(link);

	if (!pod || !to)
		return 0;
	*to = *pod;
	return 1;
}

/* Copies the pod of a link. Returns the copy, or null if the link has no pod. */
static inline_always struct pod *find_pod(__u32 link, struct pod *to)
{
	__u32 number = link & (PLACES - 1), found;
	struct place *place = map_lookup(&places, &number);

	if (!place)
		return 0;
	found = *(volatile __u32 *)&place->link;
	place = (void *)place + after(found);
	if (found == link) {
		*to = place->pod;
		asm volatile("" ::: "memory");
		/* Otherwise another link has the place now, and the copy may have parts of both. */
		if (*(volatile __u32 *)&place->link == link)
			return to;
	}
	return place->endpoints && copy_endpoint(link, to) ? to : 0;
}

/* True if the pod of a link has an event left in this second. */
static inline_always int has_event(__u32 link, __u32 limit, __u64 now)
{
	struct pod *pod = endpoint_of(link);
	__u32 slot = pod ? pod->slot : ENDPOINTS, second = now / SECOND;
	struct sent_events *sent = map_lookup(&event_limits, &slot);

	if (!sent)
		return 0;
	if (sent->second != second) {
		sent->second = second;
		sent->count = 0;
	}
	sent->count += 1;
	return sent->count <= limit;
}

/* Counts the rules of a packet, and sends an event. The reason is REASONS for an allowed packet. */
checked_alone int report(struct __sk_buff *skb, const struct judged *judged, __u32 reason)
{
	__u32 first = 0, length = skb->len, is_allowed = reason == REASONS;
	struct wanted *wanted = map_lookup(&wanted_events, &first);
	__u64 now = ktime_coarse();
	struct event *event;

	if (!judged || !wanted)
		return 0;
	if (is_allowed) {
		count_use(judged->egress, 0, now);
		count_use(judged->ingress, 0, now);
		if (!((judged->egress | judged->ingress) & LOGGED) && !wanted->allowed)
			return 0;
	} else {
		count(reason);
		count_use((judged->egress & DECISION) != ALLOW ? judged->egress : judged->ingress, length, now);
	}
	if (!has_event((judged->egress & DECISION) != ALLOW || !judged->to ? judged->from : judged->to,
		       wanted->limit, now)) {
		count(EVENT_LIMIT);
		return 0;
	}
	event = ring_reserve(&events, sizeof(*event), 0);
	if (!event) {
		count(EVENT_LOST);
		return 0;
	}
	event->time = now;
	event->source = judged->source;
	event->destination = judged->destination;
	event->key = judged->key;
	event->from = judged->from;
	event->to = judged->to;
	event->egress = judged->egress;
	event->ingress = judged->ingress;
	event->length = length;
	event->reason = reason;
	event->source_port = judged->source_port;
	event->is_fast = judged->is_fast;
	ring_submit(event, 0);
	return 0;
}

/* Drops a packet. */
static inline_always int drop(struct __sk_buff *skb, const struct judged *judged, __u32 reason)
{
	report(skb, judged, reason);
	return TC_ACT_SHOT;
}

/* The reason for which a packet cannot be parsed. */
static inline_always __u32 unparsed(int parsed)
{
	return parsed < MALFORMED_V4 ? BAD_IPV4 : BAD_IPV4 + (parsed - MALFORMED_V4);
}

/* Counts a packet that cannot be parsed, and lets it continue. */
static inline_always int pass_unparsed(int parsed)
{
	if (parsed != LATER_FRAGMENT)
		count(NOT_PARSED);
	return TC_ACT_UNSPEC;
}

/* The packet in the other direction. */
static inline_always void turn(struct judged *judged, const struct packet *packet)
{
	struct address source = judged->source;

	judged->source = judged->destination;
	judged->destination = source;
	judged->service = 0;
	if (has_ports(packet->protocol)) {
		__u16 port = judged->source_port;

		judged->source_port = (__u16)judged->key;
		judged->key = packet->protocol << 16 | port;
	}
}

/* One of the timeouts, in nanoseconds. */
static inline_always __u64 timeout_of(__u32 number)
{
	__u32 first = 0;
	struct settings *of = map_lookup(&settings, &first);

	return of && number < TIMEOUTS ? of->timeouts[number] : 0;
}

/* The time after which a connection without a packet has ended, in nanoseconds. */
static inline_always __u64 lifetime(const struct flow *flow, __u32 protocol)
{
	__u32 number = flow->answered ? TIMEOUT_UDP_REPLIED : TIMEOUT_UDP;

	if (protocol == TCP) {
		number = flow->answered ? TIMEOUT_TCP : TIMEOUT_TCP_SYN;
		if (flow->tcp_flags & TCP_FIN)
			number = TIMEOUT_TCP_FIN;
		if (flow->tcp_flags & TCP_RST)
			number = TIMEOUT_TCP_RESET;
	} else if (protocol == SCTP) {
		number = flow->answered ? TIMEOUT_SCTP : TIMEOUT_SCTP_INIT;
	} else if (protocol == ICMP || protocol == ICMPV6) {
		number = TIMEOUT_ICMP;
	}
	return timeout_of(number);
}

/* The address that stands for the node. Its class is that of the node's processes. */
static inline_always void own_address(const struct address *of, struct address *to)
{
	__u32 family = is_v4(of) ? 0 : 1;
	struct address *address = map_lookup(&node_address, &family);

	if (address)
		*to = *address;
}

/* Judges a connection by this generation. Returns the decision. */
checked_alone __u32 judge_again(struct flow *flow, __u64 now_active)
{
	struct row initiator, responder;
	struct judged original = {};
	struct pod *from = 0, *to = 0;

	if (!flow)
		return DROP;
	original.source = flow->source;
	original.destination = flow->destination;
	original.service = flow->service;
	original.key = flow->key;
	original.source_port = flow->source_port;
	original.half = now_active & 1;
	if (flow->initiator)
		from = endpoint_of(flow->initiator);
	if (flow->responder)
		to = endpoint_of(flow->responder);
	/* An end that was a pod and is none now. */
	if ((flow->initiator && !from) || (flow->responder && !to)) {
		flow->verdict = FAULT_OF(REVOKED_ENDED);
		return DROP;
	}
	row_of(from, original.half, &initiator);
	row_of(to, original.half, &responder);
	flow->decision = flow->is_from_node ? ALLOW : judge(&initiator, &responder, &original, from && from == to);
	flow->verdict = (original.egress & DECISION) != ALLOW ? original.egress | BY_EGRESS : original.ingress;
	flow->generation = now_active;
	/* The Service may have another class in this generation. */
	flow->is_service_known = 0;
	return flow->decision;
}

/* The decision about a connection. It is judged again if the generation has changed. */
static inline_always __u32 decide(struct flow *flow, __u64 now_active)
{
	return (flow->generation ^ (__u32)now_active) & COMPARED ? judge_again(flow, now_active) : flow->decision;
}

/* Notes a packet of a connection. Processors share the row, so it is written only if it changes. */
static inline_always void note(struct flow *flow, const struct packet *packet, int is_reply, __u64 now)
{
	if (flow->seen != now)
		flow->seen = now;
	if (is_reply && !flow->answered)
		flow->answered = 1;
	if (packet->tcp_flags & ~flow->tcp_flags)
		flow->tcp_flags |= packet->tcp_flags;
}

/* Judges a packet without a connection in the order of its ends. Returns the decision. */
static inline_always __u32 judge_first(const struct row *source, const struct row *destination,
				     const struct packet *packet, struct judged *judged, struct judged *reverse,
				     int is_hairpin)
{
	__u32 decision = judge(source, destination, judged, is_hairpin);

	if (decision != ALLOW || is_start(packet))
		return decision;
	/* In the middle of a connection it is not known which end began it. */
	*reverse = *judged;
	turn(reverse, packet);
	decision = judge(destination, source, reverse, is_hairpin);
	judged->egress = reverse->egress;
	judged->ingress = reverse->ingress;
	return decision;
}

/* True if a packet is one of the initiator. Other packets than a TCP start and an echo can be of either end. */
static inline_always int has_direction(const struct packet *packet)
{
	__u32 type = packet->key >> 8 & 0xff;

	if (packet->protocol == ICMP)
		return type != ECHO_REPLY_V4 && type != ECHO_REPLY_V6;
	return packet->protocol == TCP && is_start(packet);
}

/* Copies the packet as its pod sent it. Returns 0 if it is not known any more. */
static inline_always int recall(struct __sk_buff *skb, struct sent *to)
{
	__u32 place = skb->tc_index & ~TICKET;
	struct sent *from = map_lookup(&sent, &place);

	if (!from)
		return 0;
	*to = *from;
	asm volatile("" ::: "memory");
	/* A later packet may have taken the place meanwhile. */
	if (PLANTED_TICKET)
		return 1;
	return to->nonce == skb->hash && *(volatile __u32 *)&from->nonce == to->nonce;
}

/* Leaves the packet for the hook where its destination is final. */
static inline_always void remember(struct __sk_buff *skb, __u32 link, __u64 service,
				   const struct packet *packet, const struct flow_key *key, int from_low)
{
	__u32 first = 0, cpu = processor(), place;
	__u32 *counter = map_lookup(&sent_count, &first);
	struct sent *to;

	if (!counter)
		return;
	*counter += 1;
	place = (cpu & (SENT / SENT_OF_CPU - 1)) * SENT_OF_CPU + (*counter & (SENT_OF_CPU - 1));
	to = map_lookup(&sent, &place);
	if (!to)
		return;
	/* Processors that share places have other nonces. It is never 0. */
	*(volatile __u32 *)&to->nonce = 0;
	to->link = link;
	to->service = service;
	to->key = *key;
	to->from_low = from_low;
	to->has_flow = packet->has_flow && !packet->is_error;
	to->is_answer = 0;
	*(volatile __u32 *)&to->nonce = *counter << 4 | (cpu / (SENT / SENT_OF_CPU) & 7) << 1 | 1;
	set_hash(skb, to->nonce);
	skb->tc_index = TICKET | place;
}

/*
 * Drops a packet, and answers it if it is rejected. The answer passes the host's stack as if the receiver had sent it, so
 * that NAT is undone. With flag 0 it leaves by the link itself: the packet has come from there.
 */
static inline_always int refuse(struct __sk_buff *skb, const struct packet *packet, const struct flow_key *key,
				__u32 decision, __u64 flags)
{
	struct sent *answer;
	__u32 place;

	if (decision != REJECT && decision != REJECT_PORT)
		return TC_ACT_SHOT;
	if (!make_answer(skb, packet, decision == REJECT_PORT))
		return lose(NOT_ANSWERED);
	remember(skb, skb->ifindex, 0, packet, key, 0);
	place = skb->tc_index & ~TICKET;
	answer = map_lookup(&sent, &place);
	if (!answer)
		return TC_ACT_SHOT;
	answer->is_answer = 1;
	count(REJECTED);
	return redirect(skb->ifindex, flags);
}

/* Refuses a packet of a connection that its policies deny. */
static inline_always int revoke(struct __sk_buff *skb, const struct packet *packet, const struct flow_key *key,
				struct judged *judged, const struct flow *flow, __u32 decision, __u64 flags)
{
	int is_egress = (flow->verdict & BY_EGRESS) != 0;
	__u32 reason = is_egress ? REVOKED_EGRESS : REVOKED_INGRESS;

	judged->egress = is_egress ? flow->verdict & ~BY_EGRESS : ALLOW;
	judged->ingress = is_egress ? ALLOW : flow->verdict;
	report(skb, judged, flow->verdict & FAULT ? CAUSE(flow->verdict) : reason);
	return refuse(skb, packet, key, decision, flags);
}

/* True if a connection has ended without a sign of that. Another processor may have written a later time. */
static inline_always int is_expired(const struct flow *flow, __u32 protocol, __u64 now)
{
	__s64 since = now - flow->seen;

	return since > 0 && since > (__s64)lifetime(flow, protocol);
}

/* The connection of a key, if it has not ended. */
static inline_always struct flow *find(const struct flow_key *key, __u64 now)
{
	struct flow *flow = map_lookup(&flows, key);

	if (!flow)
		flow = map_lookup(&half_open, key);
	return flow && !is_expired(flow, key->protocol, now) ? flow : 0;
}

static inline_always int is_same_key(const struct flow_key *one, const struct flow_key *other)
{
	return is_equal(&one->low, &other->low) && is_equal(&one->high, &other->high) &&
	       one->low_port == other->low_port && one->high_port == other->high_port &&
	       one->protocol == other->protocol;
}

static inline_always struct share *share_of(const struct pod *pod)
{
	__u32 slot;

	if (!pod)
		return 0;
	slot = pod->slot;
	return map_lookup(&shares, &slot);
}

/* Adds one to a pod's connections, or returns 0 if it has its share of them. */
static inline_always int charge(const struct pod *pod)
{
	__u32 first = 0;
	struct settings *of;
	struct share *share;

	if (!pod)
		return 1;
	of = map_lookup(&settings, &first);
	share = share_of(pod);
	/* Two processors that subtract at once can lead below 0. */
	if (!of || !share || (__s64)share->flows >= (__s64)of->flows_of_pod)
		return 0;
	__sync_fetch_and_add(&share->flows, 1);
	return 1;
}

static inline_always void refund(const struct pod *pod)
{
	struct share *share = share_of(pod);

	if (share && share->flows)
		__sync_fetch_and_add(&share->flows, -1);
}

/* True if a connection without a row may be older than the enforcement of this pod. */
static inline_always int is_in_window(const struct pod *pod, __u64 now)
{
	struct share *share = share_of(pod);

	return share && share->window_end && (__s64)(share->window_end - now) > 0;
}

/* Removes an open connection of these links. */
static inline_always void forget(const struct flow_key *key, __u32 initiator, __u32 responder)
{
	if (map_delete(&flows, key))
		return;
	refund(endpoint_of(initiator));
	if (responder != initiator)
		refund(endpoint_of(responder));
}

/* Moves a connection to those that no packet removes. */
static inline_always void establish(const struct flow_key *key, const struct flow *flow,
				    const struct pod *from, const struct pod *to)
{
	__u32 first = 0;
	struct settings *of = map_lookup(&settings, &first);

	/* A hairpin has one pod. */
	if (flow->initiator == flow->responder)
		to = 0;
	if (!charge(from)) {
		count(SHARE);
		return;
	}
	if (!charge(to)) {
		refund(from);
		count(SHARE);
		return;
	}
	/* Another processor may have done it. */
	if (map_update(&flows, key, flow, BPF_NOEXIST)) {
		refund(from);
		refund(to);
		if (!map_lookup(&flows, key)) {
			count(NOT_OPENED);
			return;
		}
	}
	/* Programs with the larger map find it there. */
	if (!of || !of->keeps_half_open)
		map_delete(&half_open, key);
}

/*
 * The last followed packet of a hook on this processor. A later packet of the same connection in the same tick and generation
 * has the same result, and needs no lookup: its row was noted in this tick.
 */
struct last {
	__u64 tick;
	__u64 generation;
	__u32 source;
	__u32 destination;
	/* Both ports as they are in the packet. */
	__u32 ports;
	__u32 link;
	__u32 ingress;
	__u32 protocol;
};

/* Variables of `at_destination`, for which the stack is too small. Softirqs are off, so one packet at a time uses them. */
struct work {
	struct packet packet;
	struct judged judged;
	struct flow_key key;
	struct row source;
	struct row destination;
	struct pod from;
	struct pod to;
	struct sent sent_as;
	struct judged original;
	struct flow new;
	struct fragment_key fragment;
	struct fragment_ports ports;
	/* The packet that an ICMP error quotes. */
	struct packet quoted;
	/* A packet as the client outside sends it, of the connection that an error or a later fragment belongs to. */
	struct packet request;
	/* The coarse time as of this tick. It is the same until the next tick. */
	__u64 tick;
	__u64 time;
	/* Of packets to a pod without a ticket, and of answers of a pod to other nodes. */
	struct last to_pod;
	struct last from_pod;
	/* Of packets from outside that ask for no Service. */
	struct last from_wire;
	/* The pod to which a packet takes the fast path. */
	struct fast_pod receiver;
	/* How the packet that is judged came here. */
	__u32 how;
	/* The next hop of a packet that leaves the node by the fast path. */
	struct address hop;
};

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct work);
	MAP_NUMBER(max_entries, 1);
} works SEC(".maps");

/* The coarse time, in nanoseconds since the boot. A call of the kernel for each packet would cost as much as a lookup. */
static inline_always __u64 time_of(struct work *work)
{
	__u64 tick = ticks();

	if (work->tick != tick) {
		work->tick = tick;
		work->time = ktime_coarse();
	}
	return work->time;
}

/* True for a plain packet like the last one of this hook that was followed. The start and the end of a connection are not. */
static inline_always int is_like(struct __sk_buff *skb, const struct last *last)
{
	const struct ethernet *frame = (const void *)(long)skb->data;
	const struct ipv4 *ip = (const void *)(frame + 1);
	const struct plain_segment *segment = (const void *)(ip + 1);
	__u32 differs;

	if ((const void *)&segment->tcp_flags + 1 > (const void *)(long)skb->data_end)
		return 0;
	differs = ((__u16)skb->protocol ^ from_be16(ETH_IPV4)) | (frame->type ^ from_be16(ETH_IPV4)) | (ip->version ^ 0x45) |
		  (ip->fragment & from_be16(0x3fff)) | (ip->protocol ^ last->protocol) | (ip->source ^ last->source) |
		  (ip->destination ^ last->destination) |
		  ((segment->source_port | (__u32)segment->destination_port << 16) ^ last->ports) |
		  (skb->ifindex ^ last->link) | (skb->ingress_ifindex ^ last->ingress);
	if (differs || from_be16(ip->length) < sizeof(*ip) + 14 || last->tick != ticks() || last->generation != generation())
		return 0;
	return ip->protocol != TCP || !(segment->tcp_flags & (TCP_SYN | TCP_FIN | TCP_RST));
}

/* Notes a followed packet, whose headers are plain. */
static inline_always void keep_last(struct __sk_buff *skb, struct last *last, const struct packet *packet, __u64 tick,
				    __u64 active_generation)
{
	last->tick = tick;
	last->generation = active_generation;
	last->source = packet->source.low >> 32;
	last->destination = packet->destination.low >> 32;
	last->ports = from_be16(packet->source_port) | (__u32)from_be16(packet->destination_port) << 16;
	last->link = skb->ifindex;
	last->ingress = skb->ingress_ifindex;
	last->protocol = packet->protocol;
}

/* True for a packet of this row, if the row is open and this generation allows it. Notes the packet. */
static inline_always int follows(struct flow *flow, const struct packet *packet, int from_low, __u32 sender, __u32 receiver,
				 int is_from_node, int is_sent, int is_answer, __u64 active_generation, __u64 now)
{
	int is_reply;

	if (!flow || !flow->is_open || flow->decision != ALLOW || flow->generation != (__u32)active_generation ||
	    (packet->protocol == TCP && is_start(packet)) || (receiver && packet->source_port == DNS) ||
	    is_expired(flow, packet->ip_protocol, now))
		return 0;
	is_reply = flow->from_low != from_low;
	if ((is_reply ? receiver : sender) != flow->initiator || (is_reply ? sender : receiver) != flow->responder)
		return 0;
	if (!is_reply &&
	    (is_answer || !is_equal(&flow->destination, &packet->destination) || flow->key != packet->key ||
	     flow->is_from_node != is_from_node || (is_sent && !flow->is_service_known)))
		return 0;
	note(flow, packet, is_reply, now);
	return 1;
}

/*
 * True for a packet of an open connection that this generation allows, and notes the packet. Most packets are such ones.
 * `judge_packet` comes to the same result in more steps, also for echoes. The key is that of the packet as its pod sent it, if it is known.
 */
static inline_always int is_followed(const struct packet *packet, const struct flow_key *key, int from_low, __u32 sender,
					     __u32 receiver, int is_from_node, int is_sent, int is_answer,
					     __u64 active_generation, __u64 now)
{
	return follows(map_lookup(&flows, key), packet, from_low, sender, receiver, is_from_node, is_sent, is_answer,
		       active_generation, now);
}

/*
 * True for a datagram that the stack should not have, because its connection has asked for a Service on the fast path. NAT of the
 * host has given it the same ends, as for a host port of the pod.
 */
static inline_always int is_of_nat(const struct flow *flow, const struct packet *packet)
{
	return flow && flow->path == PATH_CLIENT && packet->protocol == UDP && !packet->is_fragment;
}

/* The key of a fragmented packet. A literal would be on the stack first. */
static inline_always void fragment_of(const struct packet *packet, struct fragment_key *key)
{
	key->source = packet->source;
	key->destination = packet->destination;
	key->number = packet->fragment;
	key->protocol = packet->ip_protocol;
}

static inline_always struct work *work_of(void)
{
	__u32 first = 0;
	struct work *work = map_lookup(&works, &first);

	if (!work)
		count(NO_WORK);
	return work;
}

/* A packet as Services see it. */
enum served {
	/* Neither with ports nor about a packet with ports. */
	NOT_SERVED,
	SERVED,
	/* `parse_plain` has parsed it. */
	SERVED_PLAIN,
	/* An ICMP error about a packet of its receiver. */
	SERVED_ERROR,
	/* A fragment after the first, whose ports are 0. */
	SERVED_LATER,
};

/* Parses a packet to `work->packet`, for Services. */
static inline_always enum served parse_served(struct __sk_buff *skb, struct work *work, int is_ethernet)
{
	struct packet *packet = &work->packet;
	int from_low = 0, parsed;

	if (parse_plain(skb, packet, is_ethernet))
		return SERVED_PLAIN;
	__builtin_memset(packet, 0, sizeof(*packet));
	parsed = parse(skb, packet, &work->key, &from_low, is_ethernet);
	if (parsed == PARSED && packet->is_error)
		return packet->is_fragment ? NOT_SERVED : SERVED_ERROR;
	if (parsed != PARSED && parsed != LATER_FRAGMENT)
		packet->has_flow = 0;
	if (!has_ports(packet->protocol) || (parsed != PARSED && parsed != LATER_FRAGMENT))
		return NOT_SERVED;
	return parsed == PARSED ? SERVED : SERVED_LATER;
}

/* Notes the ports of a first fragment, for later ones. */
static inline_always void note_ports(struct __sk_buff *skb, struct work *work, void *of, __u64 now)
{
	if (!work->packet.is_fragment)
		return;
	fragment_of(&work->packet, &work->fragment);
	work->ports = (struct fragment_ports){
		.seen = now,
		.source_port = work->packet.source_port,
		.destination_port = work->packet.destination_port,
		.link = skb->ifindex,
	};
	map_update(of, &work->fragment, &work->ports, BPF_ANY);
}

/* Gives a later fragment the ports of the first one. Returns 0, or the reason for which it has none. */
static inline_always __u32 recall_ports(struct __sk_buff *skb, struct work *work, void *of, __u64 now)
{
	struct fragment_ports *ports;

	fragment_of(&work->packet, &work->fragment);
	ports = map_lookup(of, &work->fragment);
	if (!ports || ports->link != skb->ifindex)
		return FRAGMENT_UNKNOWN;
	if ((__s64)(now - ports->seen) >= (__s64)timeout_of(TIMEOUT_FRAGMENT))
		return FRAGMENT_LATE;
	work->packet.source_port = ports->source_port;
	work->packet.destination_port = ports->destination_port;
	return 0;
}

/* The connection of a packet as its pod sent it. Few variables of the caller fit on the stack. */
static inline_always struct flow *find_sent(struct work *work, __u64 now)
{
	struct flow *flow = 0;

	if (work->sent_as.has_flow != WITHOUT_ROW)
		flow = find(&work->sent_as.key, now);
	return flow;
}

/* How a packet came to the hook where its destination is final. */
#define HAS_TICKET 1u
/* Its ticket is in `work->sent_as`. */
#define IS_SENT 2u
/* It is in `work->packet`, and no ICMP error. */
#define IS_PLAIN 4u
/* It takes a fast path: it is at the link by which it has entered the node. Further bits are path and wire. */
#define IS_FAST 8u
#define WAY(path, wire) (IS_FAST | (__u32)(path) << 8 | (__u32)(wire) << 16)
#define PATH_OF(how) ((how) >> 8 & 7)
#define WIRE_OF(how) ((how) >> 16)
#define LAST_WIRE 0xffffu

/* The flags of the answer to a rejected packet: it enters the stack at the link of the receiver, or leaves by this link. */
static inline_always __u64 way_of_answer(const struct judged *judged)
{
	return judged->is_fast ? 0 : BPF_F_INGRESS;
}

/*
 * NAT of the host has changed the packet in `work`, which a pod has sent. Its answers take the stack. `receiver` is the link of the
 * pod that receives it, or 0.
 */
checked_alone int note_nat(__u32 receiver)
{
	struct work *work = work_of();
	struct flow *earlier;
	struct fast_pod *pod;

	if (!work)
		return 0;
	/* An earlier connection of these ends may have taken the fast path. */
	earlier = map_lookup(&flows, &work->key);
	if (!earlier)
		earlier = map_lookup(&half_open, &work->key);
	if (earlier && earlier->path)
		earlier->path = PATH_STACK;
	if (!receiver || work->packet.protocol != UDP)
		return 0;
	pod = map_lookup(&fast_pods, &work->packet.destination);
	if (pod && !(pod->flags & BEHIND_NAT))
		__sync_fetch_and_or(&pod->flags, BEHIND_NAT);
	return 0;
}

/*
 * Judges a packet where its destination is final: at a pod's host veth, at a link to other nodes, or at the link by which it has
 * entered the node if it takes the fast path. `ingress` is the link by which it entered, or 0. `receiver` is the link of the pod that receives it,
 * or 0. It is a function of its own, because the verifier of kernel 6.1 would check it anew for each combination of the
 * caller's values.
 */
checked_alone int judge_packet(struct __sk_buff *skb, __u32 ingress, __u32 how, __u32 receiver)
{
	struct work *work = work_of();
	struct pod *from, *to;
	struct flow *flow = 0;
	int parsed = PARSED, is_hairpin, is_sent = (how & IS_SENT) != 0, from_low = 0, has_flow, is_dns = 0;
	int is_older = 0, is_turned = 0, is_absent = 0;
	__u32 sender;
	__u64 now, active_generation;

	if (!work)
		return TC_ACT_SHOT;
	/* Few variables fit on the stack. */
	work->how = how;
	from = ingress ? find_pod(ingress, &work->from) : 0;
	sender = from ? ingress : 0;
	to = receiver ? find_pod(receiver, &work->to) : 0;
	/* A pod has ended meanwhile, or a packet has lost its origin. */
	if ((is_sent && !from) || (!ingress && (how & HAS_TICKET)) || (receiver && !to)) {
		work->judged = (struct judged){ .from = ingress, .to = receiver, .is_fast = (how & IS_FAST) != 0 };
		return drop(skb, &work->judged, is_sent || ingress ? ORIGIN_ENDED : NO_ORIGIN);
	}
	if (!sender && !receiver)
		return TC_ACT_UNSPEC;
	active_generation = generation();
	now = time_of(work);
	if (how & IS_PLAIN) {
		from_low = is_lower(&work->packet);
		flow_of(&work->packet, &work->key);
	} else {
		__builtin_memset(&work->packet, 0, sizeof(work->packet));
		parsed = parse(skb, &work->packet, &work->key, &from_low, receiver != 0);
		if (parsed == OTHER || parsed == NEIGHBOR)
			return TC_ACT_UNSPEC;
	}
	/* Where the kernel makes fragments of a forwarded IPv6 packet, they lose their origin, and have no socket. */
	if (!ingress && work->packet.is_fragment && !skb->sk)
		ingress = UNKNOWN;
	work->judged = (struct judged){
		.source = work->packet.source,
		.destination = work->packet.destination,
		.key = work->packet.key,
		.source_port = work->packet.source_port,
		.is_fast = (how & IS_FAST) != 0,
		.half = active_generation & 1,
		.from = sender,
		.to = receiver,
	};
	if (parsed != PARSED) {
		row_of(from, work->judged.half, &work->source);
		row_of(to, work->judged.half, &work->destination);
		if (!work->source.egress && !work->destination.ingress)
			return pass_unparsed(parsed);
	}
	if (work->packet.is_fragment && parsed == LATER_FRAGMENT) {
		__u64 *passed;

		fragment_of(&work->packet, &work->fragment);
		passed = map_lookup(&fragments, &work->fragment);

		if (!ingress || (passed && (__s64)(now - *passed) < (__s64)timeout_of(TIMEOUT_FRAGMENT)))
			return TC_ACT_UNSPEC;
		return drop(skb, &work->judged, passed ? FRAGMENT_LATE : FRAGMENT_UNKNOWN);
	}
	if (parsed != PARSED) {
		if (!ingress)
			return TC_ACT_UNSPEC;
		return drop(skb, &work->judged, unparsed(parsed));
	}
	is_hairpin = sender && sender == receiver;
	has_flow = work->packet.has_flow && !work->packet.is_error;
	if (from) {
		/* The sender is known, whatever address NAT has given to its packet. */
		work->judged.source = is_v4(&work->packet.source) ? from->v4 : from->v6;
		if (!(work->judged.source.high | work->judged.source.low))
			work->judged.source = work->packet.source;
		if (is_sent) {
			if (PLANTED_ADDRESS)
				work->judged.destination =
					work->sent_as.from_low ? work->sent_as.key.high : work->sent_as.key.low;
			if (has_flow && work->sent_as.has_flow)
				work->judged.source_port =
					work->sent_as.from_low ? work->sent_as.key.low_port : work->sent_as.key.high_port;
		}
		work->judged.is_service_unknown = !is_sent;
	}

	if (has_flow && is_sent && work->sent_as.has_flow) {
		flow = find_sent(work, now);
		is_absent = !flow;
		/* Where masquerading led an answer to an address of the node, `from_pod` has judged it as a request. */
		if (flow && sender && receiver && flow->initiator == sender && flow->responder != receiver)
			flow = 0;
		if (flow)
			from_low = work->sent_as.from_low;
	}
	if (flow) {
		work->key = work->sent_as.key;
	} else if (has_flow || work->packet.is_error) {
		/* Without NAT both keys are the same. */
		if (!is_absent || !is_same_key(&work->key, &work->sent_as.key))
			flow = find(&work->key, now);
		/* Its first packet had lost its ticket. Answers have the ends as the pod sends them. */
		if (flow && has_flow && is_sent && work->sent_as.has_flow && flow->from_low == from_low &&
		    !is_same_key(&work->key, &work->sent_as.key)) {
			/* Before the copy: neither row is on the fast path any longer. */
			note_nat(receiver);
			work->new = *flow;
			work->new.from_low = work->sent_as.from_low;
			work->new.is_service_known = 0;
			map_update(&half_open, &work->sent_as.key, &work->new, BPF_ANY);
		}
	}
	if (work->packet.is_error) {
		/*
		 * An error follows its flow while the policies that are in force allow it. Its receiver sent the quoted
		 * packet. A pod sends errors about its own flows only.
		 */
		int is_initiator = flow && flow->from_low == from_low;
		int is_own = flow && (is_initiator ? flow->initiator : flow->responder) == receiver &&
			     (!sender || (is_initiator ? flow->responder : flow->initiator) == sender);

		if (is_own && decide(flow, active_generation) == ALLOW)
			goto pass;
		if (flow)
			return drop(skb, &work->judged, is_own ? REVOKED_ERROR : STRAY_ERROR);
	}
	/* A start after the end of a connection is another connection. */
	if (flow && work->packet.protocol == TCP && is_start(&work->packet) &&
	    (flow->decision != ALLOW || (flow->tcp_flags & (TCP_FIN | TCP_RST))))
		flow = 0;
	if (flow) {
		int is_reply = flow->from_low != from_low;

		/* The address may have been that of an earlier pod. */
		if ((is_reply ? receiver : sender) != flow->initiator ||
		    (is_reply ? sender : receiver) != flow->responder)
			flow = 0;
		/* NAT may lead the same ends to another backend now. */
		else if (!is_reply && (!is_equal(&flow->destination, &work->packet.destination) ||
				       flow->key != work->packet.key || flow->is_from_node != !ingress))
			flow = 0;
		/* A request in the other direction is no answer. */
		else if (is_reply && (work->packet.protocol == ICMP
					      ? flow->key == work->packet.key
					      : work->packet.protocol == TCP && is_start(&work->packet)))
			flow = 0;
	}
	if (flow) {
		int is_reply = flow->from_low != from_low;

		/* Netfilter has to receive the answer too. */
		if (receiver && !(work->how & IS_FAST) && is_of_nat(flow, &work->packet))
			flow->path = PATH_STACK;

		/* The class of a Service's address changes with the rules that name the Service. */
		int is_asked = !is_reply && is_sent, is_as_sent = is_asked && is_same_key(&work->key, &work->sent_as.key);

		if (is_asked && (!flow->is_service_known || !is_as_sent || flow->generation != (__u32)active_generation)) {
			__u64 service = service_asked(&work->sent_as, work->judged.half);

			if (flow->service != service) {
				flow->service = service;
				flow->generation = ~(__u32)active_generation;
			}
		}
		if (is_reply && flow->service && flow->generation != (__u32)active_generation) {
			__u64 service = service_of(flow->from_low ? &work->key.high : &work->key.low,
						   work->judged.half);

			if (service)
				flow->service = service;
		}
		__u32 decision = decide(flow, active_generation);

		if (decision != ALLOW)
			return revoke(skb, &work->packet, &work->key, &work->judged, flow, decision,
				      way_of_answer(&work->judged));
		/* Of the key as sent only: another address that was asked for may lead to the same ends. */
		if (is_asked)
			flow->is_service_known = is_as_sent;
		note(flow, &work->packet, is_reply, now);
		/* The answer opens a connection; of TCP, the packet after it. */
		if (!flow->is_open && flow->answered &&
		    (work->packet.protocol != TCP || (!is_reply && !(work->packet.tcp_flags & (TCP_SYN | TCP_RST))))) {
			flow->is_open = 1;
			establish(&work->key, flow, from, to);
		}
		is_dns = to && is_reply && work->packet.source_port == DNS;
		goto pass;
	}
	row_of(from, work->judged.half, &work->source);
	row_of(to, work->judged.half, &work->destination);
	if (is_sent)
		work->judged.service = service_asked(&work->sent_as, work->judged.half);
	if (!ingress) {
		/*
		 * A process of the node. The policies of a pod do not apply to it. If the source is not an address of the
		 * node, NAT led a packet of the pod to the node, and this is the answer.
		 */
		if (!is_own_address(&work->packet.source) && has_flow && work->destination.egress) {
			work->original = work->judged;
			__u32 value;

			turn(&work->original, &work->packet);
			work->original.service = service_of(&work->packet.source, work->judged.half);
			own_address(&work->packet.source, &work->original.destination);
			value = verdict(work->destination.egress, &work->original, 1);
			if ((value & DECISION) != ALLOW) {
				work->judged.egress = value;
				return drop(skb, &work->judged, ANSWER_OF_NODE);
			}
			return TC_ACT_UNSPEC;
		}
	} else {
		/* A connection may be older than the enforcement of its pods. Then one allowed direction is enough. */
		if (has_flow && !has_direction(&work->packet) && (is_in_window(from, now) || is_in_window(to, now))) {
			int is_forward = judge(&work->source, &work->destination, &work->judged, is_hairpin) == ALLOW;

			work->original = work->judged;
			turn(&work->original, &work->packet);
			work->original.service = service_of(&work->packet.source, work->judged.half);
			work->original.is_service_unknown = 0;
			if (work->packet.protocol == ICMP)
				work->original.key = ICMP << 16 | (work->packet.ip_protocol == ICMPV6 ? ECHO_V6 : ECHO_V4) << 8;
			is_turned = judge(&work->destination, &work->source, &work->original, is_hairpin) == ALLOW;
			is_older = is_forward != is_turned && (is_turned || work->packet.protocol == TCP);
			is_turned &= is_older;
		}
		if (is_older) {
			count(WINDOW);
			/* Each request would look like an answer. A TCP connection needs a first packet. */
			if (work->packet.protocol != TCP && is_turned)
				goto pass;
		} else {
			__u32 decision = judge_first(&work->source, &work->destination, &work->packet, &work->judged,
						     &work->original, is_hairpin);

			if (decision != ALLOW) {
				report(skb, &work->judged, denial(&work->judged));
				return refuse(skb, &work->packet, &work->key, decision, way_of_answer(&work->judged));
			}
		}
	}
	/* Answers to the node's own processes pass `from_pod` only. A pod may get egress policies while they are open. */
	if (!has_flow || (!ingress && !is_start(&work->packet)))
		goto pass;
	work->new = (struct flow){
		.seen = now,
		.service = work->judged.service,
		.source = work->judged.source,
		.destination = work->judged.destination,
		.key = work->judged.key,
		.generation = active_generation,
		.initiator = sender,
		.responder = receiver,
		.source_port = work->judged.source_port,
		.tcp_flags = work->packet.tcp_flags,
		.is_from_node = !ingress,
		.is_service_known = is_sent && work->sent_as.has_flow,
		.path = PATH_OF(work->how),
		.wire = WIRE_OF(work->how),
	};

	work->new.from_low = from_low;
	/* A packet that is an answer has the ends of a first packet of its receiver. */
	if (is_sent && work->sent_as.has_flow && !(is_turned && to)) {
		if (!is_same_key(&work->key, &work->sent_as.key))
			note_nat(receiver);
		work->key = work->sent_as.key;
		work->new.from_low = work->sent_as.from_low;
	}
	if (is_turned) {
		work->new.from_low = !work->new.from_low;
		work->new.service = work->original.service;
		work->new.source = work->original.source;
		work->new.destination = work->original.destination;
		work->new.key = work->original.key;
		work->new.source_port = work->original.source_port;
		work->new.initiator = receiver;
		work->new.responder = sender;
		work->new.answered = 1;
		work->new.is_service_known = 0;
		work->judged.egress = work->original.egress;
		work->judged.ingress = work->original.ingress;
	}
	/* Otherwise an answer like the last one would not open this connection. */
	work->to_pod.tick = 0;
	work->from_pod.tick = 0;
	/* A row of an earlier connection has this key. */
	flow = is_sent && work->sent_as.has_flow == WITHOUT_ROW ? 0 : map_lookup(&flows, &work->key);
	if (flow)
		forget(&work->key, flow->initiator, flow->responder);
	if (map_update(&half_open, &work->key, &work->new, BPF_ANY)) {
		/* Pods without policies need no row. */
		if (work->source.ingress | work->source.egress | work->destination.ingress | work->destination.egress)
			return drop(skb, &work->judged, FLOWS_FULL);
		count(NOT_OPENED);
	}
	if (work->judged.is_fast)
		count(FAST_PATH);
	if (ingress)
		report(skb, &work->judged, REASONS);
pass:
	if (work->packet.is_fragment) {
		fragment_of(&work->packet, &work->fragment);
		map_update(&fragments, &work->fragment, &now, BPF_ANY);
	}
	if (!receiver)
		skb->tc_index = JUDGED;
	if (is_dns && hold_answer(skb, &work->packet, receiver))
		return TC_ACT_SHOT;
	return TC_ACT_UNSPEC;
}

checked_alone int learn_way(struct __sk_buff *skb);

/* As `judge_packet`. Notes the way of a packet that leaves the node. */
static inline_always int judge_last(struct __sk_buff *skb, __u32 ingress, __u32 how, __u32 receiver)
{
	int action = judge_packet(skb, ingress, how, receiver);

	if (!receiver && (how & IS_SENT) && action == TC_ACT_UNSPEC)
		learn_way(skb);
	return action;
}

/* As `judge_packet`. Packets of open connections end here. */
static inline_always int at_destination(struct __sk_buff *skb, struct work *work, int is_at_pod)
{
	__u32 ingress = skb->ingress_ifindex, how = 0, sender, receiver = is_at_pod ? skb->ifindex : 0;
	int is_sent = 0, is_followed_here;
	__u64 active_generation, now;

	if (skb->tc_index & TICKET) {
		how = HAS_TICKET;
		is_sent = recall(skb, &work->sent_as);
		/* It is no hash of the packet, and queues are selected by it. */
		clear_hash(skb);
		skb->tc_index = 0;
		if (is_sent && work->sent_as.is_answer)
			return TC_ACT_UNSPEC;
		if (is_sent) {
			how |= IS_SENT;
			ingress = work->sent_as.link;
		}
	} else if (is_at_pod && skb->tc_index == JUDGED) {
		/* `from_pod` judged it as an answer to another node. It has an origin. */
		how = HAS_TICKET;
	}
	sender = ingress && has_pod(ingress) ? ingress : 0;
	if (!receiver && !sender && !how)
		return TC_ACT_UNSPEC;
	active_generation = generation();
	now = time_of(work);
	if (!parse_plain(skb, &work->packet, is_at_pod))
		return judge_last(skb, ingress, how, receiver);
	how |= IS_PLAIN;
	if ((is_sent && !sender) || (how & HAS_TICKET && !ingress))
		return judge_last(skb, ingress, how, receiver);
	if (is_sent) {
		is_followed_here = work->sent_as.has_flow &&
				   is_followed(&work->packet, &work->sent_as.key, work->sent_as.from_low, sender, receiver,
					       0, 1, 0, active_generation, now);
	} else {
		struct flow *flow;

		flow_of(&work->packet, &work->key);
		flow = map_lookup(&flows, &work->key);
		is_followed_here = !is_of_nat(flow, &work->packet) &&
				   follows(flow, &work->packet, is_lower(&work->packet), sender, receiver, !ingress, 0, 0,
					   active_generation, now);
	}
	if (!is_followed_here)
		return judge_last(skb, ingress, how, receiver);
	if (!receiver)
		skb->tc_index = JUDGED;
	else if (how == IS_PLAIN)
		keep_last(skb, &work->to_pod, &work->packet, work->tick, active_generation);
	return TC_ACT_UNSPEC;
}

/* Judges a packet at a pod's host veth. */
static inline_always int at_pod(struct __sk_buff *skb)
{
	struct work *work = work_of();

	if (!work)
		return TC_ACT_SHOT;
	if (!skb->tc_index && is_like(skb, &work->to_pod))
		return TC_ACT_UNSPEC;
	return !has_pod(skb->ifindex) || is_released(skb) ? TC_ACT_UNSPEC : at_destination(skb, work, 1);
}

/* Judges a packet at a link to other nodes. */
static inline_always int at_wire(struct __sk_buff *skb)
{
	struct work *work;

	/* It has passed another link already: a VLAN is one of two. Or `from_pod` has judged it. */
	if (skb->tc_index == JUDGED)
		return TC_ACT_UNSPEC;
	work = work_of();
	return work ? at_destination(skb, work, 0) : TC_ACT_SHOT;
}

/* Egress of a pod's host veth: packets to the pod. */
SEC("classifier")
int to_pod(struct __sk_buff *skb)
{
	int action = at_pod(skb);

	if (action == TC_ACT_UNSPEC)
		tail_call(skb, &stages, STAGE_FROM_BACKEND);
	return action;
}

/* Egress of a link to other nodes. */
SEC("classifier")
int to_wire(struct __sk_buff *skb)
{
	int action;

	if (skb->tc_index == FORWARDED)
		return TC_ACT_UNSPEC;
	action = at_wire(skb);
	if (action == TC_ACT_UNSPEC)
		tail_call(skb, &stages, STAGE_TO_CLIENT);
	return action;
}

/* Judges a packet of a pod to its own node. No later hook sees it. */
static inline_always int at_own_node(struct __sk_buff *skb, const struct pod *from, int parsed,
				     const struct packet *packet, const struct flow_key *key, int from_low,
				     struct judged *judged)
{
	struct row source;
	struct flow *flow;
	__u64 now = ktime_coarse(), active_generation = generation();
	int is_older = 0;

	judged->half = active_generation & 1;
	row_of(from, judged->half, &source);
	if (!source.egress)
		return parsed == PARSED ? TC_ACT_UNSPEC : pass_unparsed(parsed);
	if (parsed != PARSED) {
		/* The stack joins fragments, and the first one is judged. */
		if (parsed == LATER_FRAGMENT)
			return TC_ACT_UNSPEC;
		return drop(skb, judged, unparsed(parsed));
	}
	if (packet->has_flow || packet->is_error) {
		int is_reply;

		flow = find(key, now);
		is_reply = flow && flow->responder == skb->ifindex &&
			   (packet->is_error ? flow->from_low == from_low : flow->from_low != from_low) &&
			   !(packet->protocol == TCP && !packet->is_error && is_start(packet)) &&
			   /* A request in the other direction is no answer. */
			   !(packet->protocol == ICMP && !packet->is_error && flow->key == packet->key);
		/*
		 * An answer to a process of the node, or an error about its packet. Or the sender's packet had an address
		 * of the node by masquerading: then the answer is judged where NAT is undone. Or the pod's own connection.
		 */
		if (is_reply || (flow && !packet->is_error && flow->initiator == skb->ifindex && !flow->responder &&
				 flow->from_low == from_low && flow->key == packet->key && !is_start(packet))) {
			__u32 decision = decide(flow, active_generation);

			if (decision != ALLOW)
				return revoke(skb, packet, key, judged, flow, decision, 0);
			note(flow, packet, is_reply, now);
			return TC_ACT_UNSPEC;
		}
	}
	judged->egress = verdict(source.egress, judged, 1);
	if ((judged->egress & DECISION) != ALLOW) {
		if (!packet->has_flow || packet->is_error || has_direction(packet) || !is_in_window(from, now)) {
			report(skb, judged, denial(judged));
			return refuse(skb, packet, key, judged->egress & DECISION, 0);
		}
		/* It may be an answer to a process of the node, which reaches each pod. */
		count(WINDOW);
		if (packet->protocol != TCP)
			return TC_ACT_UNSPEC;
		is_older = 1;
		judged->egress = ALLOW;
		turn(judged, packet);
	}
	if (packet->has_flow && !packet->is_error && (is_start(packet) || is_older)) {
		struct flow new = {
			.seen = now,
			.source = judged->source,
			.destination = judged->destination,
			.key = judged->key,
			.generation = active_generation,
			.initiator = is_older ? 0 : skb->ifindex,
			.responder = is_older ? skb->ifindex : 0,
			.source_port = judged->source_port,
			.from_low = is_older ? !from_low : from_low,
			.answered = is_older,
			.tcp_flags = packet->tcp_flags,
			.is_from_node = is_older,
		};

		map_update(&half_open, key, &new, BPF_ANY);
		report(skb, judged, REASONS);
	}
	return TC_ACT_UNSPEC;
}

/* The start of the fast path. */
#include "fast.h"

/*
 * Judges a packet of a pod where it leaves the pod. A Service's address has become that of a backend. `serves` says whether
 * there are Services.
 */
static inline_always int from_pod_to_backend(struct __sk_buff *skb, struct work *work, int serves)
{
	__u32 link = skb->ifindex;
	struct pod *from;
	struct packet *packet;
	const struct address *own;
	int parsed, from_low = 0, is_plain;
	__u32 stage = STAGES;
	__u64 active_generation;

	from = find_pod(link, &work->from);
	if (!from)
		return TC_ACT_UNSPEC;
	if (skb->tc_index & TICKET) {
		struct sent *answer = &work->sent_as;

		/* In the pod's name, `refuse` answers a packet to it. */
		if (recall(skb, answer) && answer->is_answer && answer->link == link)
			return TC_ACT_UNSPEC;
	}
	/* Nothing that the pod wrote there is a ticket. */
	skb->tc_index = 0;
	/* Not on the stack: that of kernel 6.1 is too small. */
	packet = &work->packet;
	is_plain = parse_plain(skb, packet, 1);
	if (is_plain) {
		parsed = PARSED;
		from_low = is_lower(packet);
		flow_of(packet, &work->key);
	} else {
		__builtin_memset(packet, 0, sizeof(*packet));
		parsed = parse(skb, packet, &work->key, &from_low, 1);
	}
	work->judged = (struct judged){
		.source = packet->source,
		.destination = packet->destination,
		.key = packet->key,
		.source_port = packet->source_port,
		.from = link,
	};
	if (parsed == OTHER && skb->protocol == from_be16(ETH_ARP) && !skb->vlan_present) {
		if (serves)
			learn_from_arp(skb, work);
		return TC_ACT_UNSPEC;
	}
	if (parsed == OTHER || skb->vlan_present) {
		/* The kernel removes further tags later, and what is in them would not be judged. */
		int is_tagged = skb->vlan_present || skb->protocol == from_be16(ETH_VLAN) ||
				skb->protocol == from_be16(ETH_OUTER_VLAN);

		return drop(skb, &work->judged, is_tagged ? TAGGED : NOT_IP);
	}
	active_generation = generation();
	own = is_v4(&packet->source) ? &from->v4 : &from->v6;
	/* Neighbor discovery is from a link-local or the unspecified address too. Bytes 0xfe 0x80 come first. */
	int is_local = parsed == NEIGHBOR && ((packet->source.high & 0xc0ff) == 0x80fe ||
					      (!packet->source.high && !packet->source.low));

	/* A pod without an address of the family has zeros there. */
	if (!is_local && !(own->high | own->low))
		return drop(skb, &work->judged, SPOOFED_FAMILY);
	if (!is_local && !is_equal(&packet->source, own))
		return drop(skb, &work->judged, own == &from->v4 ? SPOOFED_V4 : SPOOFED_V6);
	if (parsed == NEIGHBOR) {
		if (serves)
			learn_macs(skb, map_lookup(&fast_pods, &packet->source));
		return TC_ACT_UNSPEC;
	}
	if (is_own_address(&packet->destination)) {
		int action = at_own_node(skb, from, parsed, packet, &work->key, from_low, &work->judged);

		if (action != TC_ACT_UNSPEC)
			return action;
		if (serves)
			learn_macs(skb, map_lookup(&fast_pods, &packet->source));
	} else if (serves && parsed == PARSED && is_simple(skb, packet)) {
		stage = find_receiver(work) ? STAGE_TO_POD : STAGE_TO_WIRE;
	} else if (serves && parsed == PARSED && is_simple_error(skb, packet)) {
		stage = STAGE_ERROR;
	} else if (is_plain && is_followed(packet, &work->key, from_low, link, 0, 0, 0, 1, active_generation, time_of(work))) {
		/* An answer to another node is allowed wherever NAT leads it. A local pod has more checks at its link. */
		skb->tc_index = JUDGED;
		keep_last(skb, &work->from_pod, packet, work->tick, active_generation);
		return TC_ACT_UNSPEC;
	}
	if (parsed == PARSED && packet->protocol == UDP && !packet->is_error && packet->destination_port == DNS)
		note_query(skb, packet);
	if (stage != STAGES)
		tail_call(skb, &stages, stage);
	/* NAT may lead also a packet to the node's own address elsewhere. */
	remember(skb, link, 0, packet, &work->key, from_low);
	return TC_ACT_UNSPEC;
}

/* Ingress of a pod's host veth: packets from the pod. */
SEC("classifier")
int from_pod(struct __sk_buff *skb)
{
	struct work *work = work_of();

	if (!work)
		return TC_ACT_SHOT;
	/* A packet to a Service has other ends than a packet that was followed. */
	if (!(skb->tc_index & TICKET) && !skb->vlan_present && is_like(skb, &work->from_pod)) {
		skb->tc_index = JUDGED;
		return TC_ACT_UNSPEC;
	}
	tail_call(skb, &stages, STAGE_TO_BACKEND);
	return from_pod_to_backend(skb, work, 0);
}

/* The reason for which a Service refuses a packet. */
static inline_always __u32 refusal(__u32 action)
{
	switch (action) {
	case SERVICE_NO_LOCAL_ENDPOINTS:
		return NO_LOCAL_ENDPOINTS;
	case SERVICE_NO_SUCH_PORT:
		return NO_SUCH_PORT;
	case SERVICE_SOURCE_RANGE:
		return SOURCE_RANGE;
	default:
		return NO_ENDPOINTS;
	}
}

/* The calls of the node's own sockets. */
#include "sockets.h"

/* Clients outside. */
#include "outside.h"

/* ICMP errors and later fragments. */
#include "related.h"

/* Gives a pod's packet to a Service the address of a backend. */
static inline_always int translate(struct __sk_buff *skb, struct work *work, struct service_work *service)
{
	struct packet *packet = &work->packet;
	struct pod *from = find_pod(skb->ifindex, &work->from);
	const struct address *own;
	enum served served;
	__u64 now;

	/* An answer of `refuse` is not the pod's. */
	if (!from || (skb->tc_index & TICKET) || skb->vlan_present)
		return TC_ACT_UNSPEC;
	served = parse_served(skb, work, 1);
	if (served == NOT_SERVED)
		return TC_ACT_UNSPEC;
	own = is_v4(&packet->source) ? &from->v4 : &from->v6;
	/* It is dropped later. It may not take the place of a connection of another pod. */
	if (!is_equal(&packet->source, own))
		return TC_ACT_UNSPEC;
	work->judged = (struct judged){
		.source = packet->source,
		.destination = packet->destination,
		.key = packet->key,
		.source_port = packet->source_port,
		.from = skb->ifindex,
	};
	if (served == SERVED_ERROR || served == SERVED_LATER) {
		__u32 reason = related_from_pod(skb, served == SERVED_ERROR);

		return reason ? drop(skb, &work->judged, reason) : TC_ACT_UNSPEC;
	}
	now = time_of(work);
	switch (to_backend(skb, packet, service, now)) {
	case REFUSED:
		report(skb, &work->judged, refusal(service->action));
		if (is_silent(service->action))
			return TC_ACT_SHOT;
		flow_of(packet, &work->key);
		return refuse(skb, packet, &work->key, REJECT_PORT, 0);
	case UNTRANSLATED:
		return drop(skb, &work->judged, NO_BACKEND);
	case TRANSLATED:
		service->is_translated = 1;
		note_ports(skb, work, &service_fragments, now);
		return TC_ACT_UNSPEC;
	default:
		return TC_ACT_UNSPEC;
	}
}

/* A stage of `from_pod`. */
SEC("classifier")
int from_pod_service(struct __sk_buff *skb)
{
	__u32 first = 0;
	struct work *work = work_of();
	struct service_work *service = map_lookup(&service_works, &first);
	int action;

	if (!work || !service)
		return TC_ACT_SHOT;
	action = deliver_directly(skb);
	if (action == TC_ACT_UNSPEC) {
		if (is_answer_of_open(skb))
			return send_back(skb);
	} else if (action != ALL_STEPS) {
		return action;
	}
	service->is_translated = 0;
	action = translate(skb, work, service);
	if (action != TC_ACT_UNSPEC)
		return action;
	tail_call(skb, &stages, STAGE_JUDGE);
	return lose(NO_STAGE);
}

/* A stage of `from_pod`, and the last one of most packets. */
SEC("classifier")
int from_pod_judge(struct __sk_buff *skb)
{
	struct work *work = work_of();

	return work ? from_pod_to_backend(skb, work, 1) : TC_ACT_SHOT;
}

/* Judges a pod's packet in `work` at the pod's own link. The key of an earlier connection with a row is that of its packets too. */
static inline_always int judge_as_sent(struct __sk_buff *skb, struct work *work, __u32 way, __u32 receiver, int has_row)
{
	work->sent_as.link = skb->ifindex;
	work->sent_as.service = 0;
	work->sent_as.key = work->key;
	work->sent_as.from_low = is_lower(&work->packet);
	work->sent_as.has_flow = has_row ? 1 : WITHOUT_ROW;
	work->sent_as.is_answer = 0;
	return judge_packet(skb, skb->ifindex, HAS_TICKET | IS_SENT | IS_PLAIN | way, receiver);
}

/* The last stage of `from_pod` for a packet to a fast pod. `work` has the packet and its key. */
SEC("classifier")
int from_pod_to_pod(struct __sk_buff *skb)
{
	__u32 first = 0, link = skb->ifindex;
	struct work *work = work_of();
	struct service_work *service = map_lookup(&service_works, &first);
	struct packet *packet;
	struct flow *open, *flow;
	int from_low, is_restored;
	__u64 now;

	if (!work || !service)
		return TC_ACT_SHOT;
	packet = &work->packet;
	from_low = is_lower(packet);
	now = time_of(work);
	open = map_lookup(&flows, &work->key);
	flow = open ? open : map_lookup(&half_open, &work->key);
	if (flow && flow->path == PATH_POD &&
	    ((packet->protocol == TCP && is_start(packet)) || (service->is_translated && flow->wire == WITHOUT_SERVICE)))
		flow->wire = 0;
	if (!is_fast(skb, work, flow, from_low, now)) {
		remember(skb, link, 0, packet, &work->key, from_low);
		return TC_ACT_UNSPEC;
	}
	is_restored = packet->protocol != ICMP && find_asked_address(skb, packet, service);
	if (flow && flow->path == PATH_POD && packet->protocol != ICMP && !(packet->protocol == TCP && is_start(packet)))
		note_service(flow, packet, flow->from_low != from_low, service->is_translated, is_restored);
	if (packet->protocol == ICMP || !has_pod(work->receiver.link) ||
	    !follows(open, packet, from_low, link, work->receiver.link, 0, 1, 0, generation(), now)) {
		int action = judge_as_sent(skb, work, WAY(PATH_POD, 0), work->receiver.link, !!flow);

		if (action != TC_ACT_UNSPEC)
			return action;
	}
	return deliver(skb, packet, &work->receiver, service, is_restored);
}

/* The last stage of `from_pod` for a packet beyond the node. `work` has the packet and its key. */
SEC("classifier")
int from_pod_to_wire(struct __sk_buff *skb)
{
	__u32 first = 0, link = skb->ifindex, way;
	struct work *work = work_of();
	struct outside_work *outside = map_lookup(&outside_works, &first);
	struct packet *packet;
	struct flow *open, *flow;
	int from_low;
	__u64 now;

	if (!work || !outside)
		return TC_ACT_SHOT;
	packet = &work->packet;
	from_low = is_lower(packet);
	now = time_of(work);
	open = map_lookup(&flows, &work->key);
	flow = open ? open : map_lookup(&half_open, &work->key);
	way = way_to_wire(skb, work, outside, flow, from_low, now);
	if (packet->protocol == ICMP ||
	    !follows(open, packet, from_low, link, 0, 0, (way & IS_FAST) != 0, !(way & IS_FAST), generation(), now)) {
		int action;

		/* The pod may have been on this node. */
		if (flow && flow->path == PATH_POD && is_start(packet))
			flow->wire = 0;
		if (!(way & IS_FAST)) {
			remember(skb, link, 0, packet, &work->key, from_low);
			return TC_ACT_UNSPEC;
		}
		action = judge_as_sent(skb, work, way, 0, !!flow);
		if (action != TC_ACT_UNSPEC)
			return action;
	} else if (!(way & IS_FAST)) {
		/* An answer to another node is allowed wherever NAT leads it. */
		skb->tc_index = JUDGED;
		if (!way && is_v4(&packet->source))
			keep_last(skb, &work->from_pod, packet, work->tick, generation());
		return TC_ACT_UNSPEC;
	}
	if (PATH_OF(way) == PATH_CLIENT) {
		struct outside_flow *asked = map_lookup(&outside_flows, &outside->service.key);

		if (asked)
			note_outside(asked, packet, 1, now);
		return send_back(skb);
	}
	return send_on(skb, work, way);
}

/* The last stage of `to_pod`. */
SEC("classifier")
int to_pod_service(struct __sk_buff *skb)
{
	__u32 first = 0;
	struct work *work = work_of();
	struct service_work *service = map_lookup(&service_works, &first);
	enum served served;
	__u32 reason = 0;

	if (!work || !service)
		return TC_ACT_SHOT;
	served = parse_served(skb, work, 1);
	if (served == NOT_SERVED)
		return TC_ACT_UNSPEC;
	if (served == SERVED_ERROR || served == SERVED_LATER) {
		reason = related_to_pod(skb, served == SERVED_ERROR, skb->ifindex);
	} else if (find_asked_address(skb, &work->packet, service)) {
		if (restore(skb, &work->packet, service))
			reason = NO_BACKEND;
		else
			note_ports(skb, work, &service_fragments, time_of(work));
	}
	return reason ? lose(reason) : TC_ACT_UNSPEC;
}

/* Gives a packet from outside the address of a backend. */
static inline_always int from_outside(struct __sk_buff *skb, struct work *work, struct outside_work *outside)
{
	struct packet *packet = &work->packet;
	struct service_work *service = &outside->service;
	struct outside_flow *flow;
	struct choice *choice;
	struct frontend *frontend = 0;
	enum served served = parse_served(skb, work, 1);
	int fault = 0, begins = 0, is_first, has_row;
	__u64 now;

	service->is_translated = 0;
	if (served == NOT_SERVED) {
		into_fast_pod(skb, work);
		return TC_ACT_UNSPEC;
	}
	if (served == SERVED_ERROR || served == SERVED_LATER) {
		int action = related_from_wire(skb, served == SERVED_ERROR);

		if (action == TC_ACT_UNSPEC && served == SERVED_ERROR)
			tail_call(skb, &stages, STAGE_ERROR);
		return action;
	}
	now = time_of(work);
	if (is_to_source_port(packet) && is_own_address(&packet->destination)) {
		key_of(&packet->destination, packet->destination_port, &packet->source, packet->source_port,
		       packet->protocol, &service->key);
		flow = map_lookup(&outside_flows, &service->key);
		if (flow && !is_over(flow, packet->protocol, now)) {
			note_outside(flow, packet, 1, now);
			note_ports(skb, work, &outside_fragments, now);
			outside->flow = *flow;
			return return_to_client(skb, packet);
		}
	}
	work->judged = (struct judged){
		.source = packet->source,
		.destination = packet->destination,
		.key = packet->key,
		.source_port = packet->source_port,
	};
	key_of(&packet->source, packet->source_port, &packet->destination, packet->destination_port, packet->protocol,
	       &service->key);
	choice = map_lookup(&outside_choices, &service->key);
	has_row = !!choice;
	if (choice && !is_chosen(choice, packet, now))
		choice = 0;
	is_first = packet->protocol == TCP && is_start(packet);
	if (choice ? needs_table(choice, packet, now) : is_start(packet)) {
		frontend = frontend_for(packet, service);
		if (choice && !is_served_again(frontend, packet, choice))
			choice = 0;
	}
	if (choice) {
		service->choice = *choice;
		fault = continue_outside(skb, packet, outside, now);
		/* Another connection has taken the port meanwhile. */
		begins = fault == NO_SOURCE_PORT && is_start(packet);
		if (!fault)
			note_time(choice, now);
	} else if (packet->protocol == TCP && !is_first) {
		into_fast_pod(skb, work);
		/* Of a connection of the host's stack. */
		if (served == SERVED_PLAIN)
			keep_last(skb, &work->from_wire, packet, work->tick, generation());
		return TC_ACT_UNSPEC;
	} else {
		switch (choose_outside(frontend, packet, outside, now)) {
		case NO_SERVICE:
			/* The client asks for the backend itself. An earlier connection of these ends may have asked for a Service. */
			if (map_lookup(&outside_flows, &service->key))
				map_delete(&outside_flows, &service->key);
			/* Later packets of this connection may not follow an earlier one, whose Service is no longer served. */
			if (has_row)
				map_delete(&outside_choices, &service->key);
			into_fast_pod(skb, work);
			return TC_ACT_UNSPEC;
		case REFUSED:
			report(skb, &work->judged, refusal(service->action));
			if (is_silent(service->action))
				return TC_ACT_SHOT;
			if (!make_answer(skb, packet, 1))
				return lose(NOT_ANSWERED);
			count(REJECTED);
			skb->tc_index = FORWARDED;
			return redirect(skb->ifindex, 0);
		case UNTRANSLATED:
			return drop(skb, &work->judged, NO_BACKEND);
		default:
			/* Packets of these ends have had no Service so far. */
			work->from_wire.tick = 0;
			count(CHOSEN_FOR_OUTSIDE);
			begins = 1;
		}
	}
	if (begins)
		fault = begin_outside(skb, packet, outside, now);
	if (fault)
		return drop(skb, &work->judged, fault);
	note_ports(skb, work, &outside_fragments, now);
	if (service->choice.source_port)
		return send_out(skb, packet);
	if (rewrite(skb, packet, &service->choice.address, service->choice.port, 0))
		return drop(skb, &work->judged, NO_BACKEND);
	service->is_translated = 1;
	packet->destination = service->choice.address;
	packet->destination_port = service->choice.port;
	packet->key = packet->protocol << 16 | packet->destination_port;
	into_fast_pod(skb, work);
	return TC_ACT_UNSPEC;
}

/* Ingress of a link to other nodes, with Services. */
SEC("classifier")
int from_wire(struct __sk_buff *skb)
{
	__u32 first = 0;
	struct work *work = work_of();
	struct outside_work *outside = map_lookup(&outside_works, &first);
	int action;

	if (!work || !outside)
		return TC_ACT_SHOT;
	skb->tc_index = 0;
	/* Frames for another host are not of this node, and those of a VLAN are of another link. */
	if (skb->pkt_type != THIS_HOST || skb->vlan_present || is_like(skb, &work->from_wire))
		return TC_ACT_UNSPEC;
	action = deliver_asked(skb);
	if (action != TC_ACT_UNSPEC)
		return action;
	return from_outside(skb, work, outside);
}

/* The last stage of `from_wire` for a packet to a fast pod. `work` has the packet. */
SEC("classifier")
int from_wire_to_pod(struct __sk_buff *skb)
{
	__u32 first = 0, way;
	struct work *work = work_of();
	struct service_work *service = map_lookup(&service_works, &first);
	struct outside_work *outside = map_lookup(&outside_works, &first);
	struct packet *packet;
	int from_low, is_asked;
	__u64 now;

	if (!work || !service || !outside)
		return TC_ACT_SHOT;
	packet = &work->packet;
	is_asked = outside->service.is_translated != 0;
	from_low = is_lower(packet);
	flow_of(packet, &work->key);
	now = time_of(work);
	way = way_to_pod(skb, work, from_low, is_asked, now);
	if (!(way & IS_FAST)) {
		/* Of a connection of the host's stack. */
		if (!way && !is_asked && is_v4(&packet->source) && packet->protocol == TCP && !is_start(packet))
			keep_last(skb, &work->from_wire, packet, work->tick, generation());
		return TC_ACT_UNSPEC;
	}
	if (packet->protocol == ICMP || !has_pod(work->receiver.link) ||
	    !is_followed(packet, &work->key, from_low, 0, work->receiver.link, 0, 0, 0, generation(), now)) {
		int action = judge_packet(skb, skb->ifindex, IS_PLAIN | way, work->receiver.link);

		if (action != TC_ACT_UNSPEC)
			return action;
	}
	return deliver(skb, packet, &work->receiver, service, !is_asked && packet->protocol != ICMP && find_asked_address(skb, packet, service));
}

/*
 * The last stage of `from_pod` and `from_wire` for an ICMP error. It takes the path of the packet that it quotes: connection
 * tracking knows either both or none.
 */
SEC("classifier")
int error_on_path(struct __sk_buff *skb)
{
	__u32 link = skb->ifindex, sender = has_pod(link) ? link : 0, receiver, way = 0, reason;
	struct work *work = work_of();
	struct packet *packet;
	int from_low = 0, action;

	if (!work)
		return TC_ACT_SHOT;
	packet = &work->packet;
	/* `from_wire` may have changed it. */
	__builtin_memset(packet, 0, sizeof(*packet));
	if (parse(skb, packet, &work->key, &from_low, 1) != PARSED)
		return TC_ACT_UNSPEC;
	receiver = find_receiver(work) ? work->receiver.link : 0;
	if (is_simple_error(skb, packet) && (sender || receiver))
		way = way_of_error(skb, sender, receiver, from_low);
	if (!(way & IS_FAST)) {
		if (sender)
			remember(skb, link, 0, packet, &work->key, from_low);
		return TC_ACT_UNSPEC;
	}
	work->sent_as.link = link;
	work->sent_as.service = 0;
	work->sent_as.key = work->key;
	work->sent_as.from_low = from_low;
	work->sent_as.has_flow = 0;
	work->sent_as.is_answer = 0;
	action = judge_packet(skb, link, (sender ? HAS_TICKET | IS_SENT : 0) | way, receiver);
	if (action != TC_ACT_UNSPEC)
		return action;
	packet->hop_limit = hops_of(skb);
	if (receiver) {
		reason = related_to_pod(skb, 1, receiver);
		return reason ? lose(reason) : put_into(skb, packet, &work->receiver);
	}
	if (PATH_OF(way) == PATH_CLIENT)
		return lower_hops(skb, packet->hop_limit) ? lose(NO_BACKEND) : related_to_wire(skb, 1);
	return send_on(skb, work, way);
}

/* The last stage of `to_wire`: gives an answer the address that its client asked for. */
SEC("classifier")
int to_wire_service(struct __sk_buff *skb)
{
	__u32 first = 0;
	struct work *work = work_of();
	struct outside_work *outside = map_lookup(&outside_works, &first);
	struct packet *packet;
	struct outside_flow *flow;
	enum served served;
	__u64 now;

	if (!work || !outside)
		return TC_ACT_SHOT;
	packet = &work->packet;
	if (skb->vlan_present)
		return TC_ACT_UNSPEC;
	served = parse_served(skb, work, 0);
	if (served == NOT_SERVED)
		return TC_ACT_UNSPEC;
	if (served == SERVED_ERROR || served == SERVED_LATER)
		return related_to_wire(skb, served == SERVED_ERROR);
	key_of(&packet->destination, packet->destination_port, &packet->source, packet->source_port, packet->protocol,
	       &outside->service.key);
	flow = map_lookup(&outside_flows, &outside->service.key);
	now = time_of(work);
	/* The answer to a masqueraded connection enters the node again: a strict branch pod of this node has it as one of another node. */
	if (!flow || !is_equal(&flow->client, &packet->destination) || !has_ethernet(skb) || is_over(flow, packet->protocol, now))
		return TC_ACT_UNSPEC;
	note_outside(flow, packet, 1, now);
	note_ports(skb, work, &outside_fragments, now);
	outside->flow = *flow;
	if (rewrite(skb, packet, &outside->flow.asked, outside->flow.asked_port, 1))
		return lose(NO_BACKEND);
	return outside->flow.link == skb->ifindex ? TC_ACT_UNSPEC : return_by(skb, &outside->flow);
}

/*
 * For tests: `to_pod` and `to_wire` after `from_pod`. In `cb` are the class of the Service's address, the link of a later
 * packet that has taken the place, and the IPv4 address that was asked for, before NAT. 0 stands for none.
 */
checked_alone int as_sent(struct __sk_buff *skb)
{
	struct packet packet = {};
	struct flow_key key = {};
	int from_low = 0;
	__u64 service = (__u64)skb->cb[1] << 32 | skb->cb[0];

	__u32 later = skb->cb[2], asked = skb->cb[3], place;
	struct sent *taken;

	if (parse(skb, &packet, &key, &from_low, 0) != PARSED)
		return 0;
	if (asked)
		map_v4(from_low ? &key.high : &key.low, asked);
	remember(skb, skb->ingress_ifindex, service, &packet, &key, from_low);
	place = skb->tc_index & ~TICKET;
	taken = map_lookup(&sent, &place);
	if (taken && later) {
		taken->link = later;
		taken->nonce += 1 << 4;
	}
	return 0;
}

SEC("classifier")
int test_to_pod(struct __sk_buff *skb)
{
	as_sent(skb);
	return at_pod(skb);
}

SEC("classifier")
int test_to_wire(struct __sk_buff *skb)
{
	as_sent(skb);
	return at_wire(skb);
}

struct sweep {
	__u64 now;
	__u32 left;
};

static long sweep_one(void *map, const struct flow_key *key, struct flow *flow, struct sweep *sweep)
{
	(void)map;
	if ((__s64)(sweep->now - flow->seen) <= (__s64)lifetime(flow, key->protocol)) {
		__u64 *used = map_lookup(&names_used, &flow->destination);

		/* No end has closed it. */
		if (used && !(flow->tcp_flags & (TCP_FIN | TCP_RST)))
			*used = sweep->now;
		sweep->left += 1;
		return 0;
	}
	forget(key, flow->initiator, flow->responder);
	return 0;
}

/* Removes connections that have ended. Userspace runs it. Returns the number of those that are left. */
SEC("classifier")
int sweep_flows(struct __sk_buff *skb)
{
	(void)skb;
	struct sweep sweep = { .now = ktime_coarse() };

	for_each(&flows, sweep_one, &sweep, 0);
	return sweep.left;
}

/* The open connections of a pod's link, by path. */
struct path_counts {
	__u64 now;
	__u32 link;
	__u32 of[PATHS];
};

static long count_path(void *map, const struct flow_key *key, const struct flow *flow, struct path_counts *counts)
{
	__u32 path = flow->path;

	(void)map;
	if ((flow->initiator == counts->link || flow->responder == counts->link) && flow->decision == ALLOW &&
	    path < PATHS && !(flow->tcp_flags & (TCP_FIN | TCP_RST)) && !is_expired(flow, key->protocol, counts->now))
		counts->of[path] += 1;
	return 0;
}

/* Counts the open connections of the link in the first word of `cb`, to the others. Userspace runs it. */
SEC("classifier")
int count_paths(struct __sk_buff *skb)
{
	struct path_counts counts = { .now = ktime_coarse(), .link = skb->cb[0] };

	for_each(&flows, count_path, &counts, 0);
	skb->cb[1] = counts.of[PATH_STACK];
	skb->cb[2] = counts.of[PATH_POD];
	skb->cb[3] = counts.of[PATH_GATEWAY] + counts.of[PATH_LINK] + counts.of[PATH_CLIENT];
	return 0;
}

static long add_set_row(void *map, const struct set_key *key, const __u32 *value, __u64 *sum)
{
	(void)map;
	*sum += mix(mix(mix(mix(1, key->set), key->class), key->service), *value);
	return 0;
}

static long add_rule(void *map, const __u32 *key, const __u64 *value, __u64 *sum)
{
	(void)map;
	*sum += mix(mix(1, *key), *value);
	return 0;
}

/* Of key and row the words of 8 bytes. */
static long add_frontend(void *map, const struct frontend_key *key, const struct frontend *row, __u64 *sum)
{
	const __u64 *words = (const __u64 *)key;

	(void)map;
	*sum += mix(mix(mix(mix(1, words[0]), words[1]), words[2]), *(const __u64 *)row);
	return 0;
}

/*
 * Adds up all rows of a map: of `set_rows`, `rules` or `frontends`, by the number in `cb`. Userspace runs it and compares the
 * sum in `cb` with that of the rows that it has written.
 */
SEC("classifier")
int sum_rows(struct __sk_buff *skb)
{
	__u64 sum = 0;

	/* Kernel 6.1 refuses a call that has one of several maps, so the compiler may not merge the calls. */
	if (skb->cb[0] == 0) {
		for_each(&set_rows, add_set_row, &sum, 0);
		asm volatile("" ::"i"(0));
	} else if (skb->cb[0] == 1) {
		for_each(&rules, add_rule, &sum, 0);
		asm volatile("" ::"i"(1));
	} else {
		for_each(&frontends, add_frontend, &sum, 0);
		asm volatile("" ::"i"(2));
	}
	skb->cb[0] = sum;
	skb->cb[1] = sum >> 32;
	return 0;
}

char program_license[] SEC("license") = "Dual BSD/GPL";
