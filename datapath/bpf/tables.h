/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Layout of the maps. `datapath/abi` has the same layouts in Rust; a test compares their sizes. Maps of policies start small,
 * so that their buckets need little memory and few of the processor's caches. Userspace replaces a full one by a larger one.
 */
#pragma once

#include "kernel.h"

/* An address of either family; IPv4 is mapped to ::ffff:0:0/96. */
struct address {
	__u64 high;
	__u64 low;
};

/* The pod of a host link. */
struct pod {
	__u32 slot;
	__u32 unused;
	/* The pod's addresses; 0 if it has none of the family. */
	struct address v4;
	struct address v6;
};

/* A pod's host link. */
struct endpoint {
	struct pod pod;
	/* The UID of the pod, for userspace. */
	char uid[64];
};

/*
 * The numbers of sets and classes are hashes of their contents. So rows of `set_rows` never change while a set is in use.
 *
 * A state has two halves, even and odd, and the lowest bit of the generation in `active` selects one. Userspace writes the
 * half that is not in use. One store then changes all verdicts at once.
 */

/* Set 0 allows everything. The set CLOSED has no rows, so it drops everything: for a pod whose policies are not known. */
#define CLOSED 0xffffffffffffffffull
/* Of the number of a set: some of its rules name Services. */
#define NAMES_SERVICES 1ull

/* The sets of a pod. */
struct row {
	__u64 ingress;
	__u64 egress;
	__u64 hairpin_ingress;
	__u64 hairpin_egress;
};

/* The class of an address in both halves. */
struct halves {
	__u64 of[2];
};

/* Of the class of an address: it has no class of its own in this half. */
#define BY_PREFIX 0xffffffffffffffffull

struct prefix {
	__u32 length;
	__u8 first[16];
};

/*
 * A row is looked up by the class and the Service, then by the class alone, then by the Service alone. Class and Service are 0
 * in the row of a set's default.
 */
struct set_key {
	__u64 set;
	__u64 class;
	__u64 service;
};

/* An interval: its first key, and a verdict or a table over the source port. */
struct interval {
	__u32 start;
	__u32 value;
};

#define SMALL 32
#define LARGE 1024

struct small_table {
	struct interval intervals[SMALL];
};

struct large_table {
	struct interval intervals[LARGE];
};

/* Of the number of a table: it is in `large_tables`. */
#define TABLE_LARGE 0x80000000u
/* Of an interval's value: the rest is the number of a table over the source port. */
#define VALUE_BY_SOURCE 0x40000000u
/* Of a verdict: the decision. */
#define DECISION 0x3u
#define ALLOW 0
#define DROP 1
#define REJECT 2
/* No verdict: a Service refuses the packet. */
#define REJECT_PORT 3
/* Of a verdict: its rule asks for events. */
#define LOGGED 0x4u
/* Of a verdict: the cause is 0 for none, ISOLATION, or the number of a rule plus FIRST_RULE. */
#define CAUSE(verdict) (((verdict) & ~(FAULT | BY_EGRESS)) >> 3)
#define ISOLATION 1
#define FIRST_RULE 2
/* Of a verdict that no table has: the cause is one of `enum reason`. It is never an interval's value. */
#define FAULT 0x20000000u
#define FAULT_OF(reason) (FAULT | (reason) << 3 | DROP)
/* Of the verdict in a connection: the sender's policies decided. */
#define BY_EGRESS 0x80000000u

/* Connections, by both ends in the order of (address, port). */
struct flow_key {
	struct address low;
	struct address high;
	union {
		struct {
			__u16 low_port;
			__u16 high_port;
			__u32 protocol;
		};
		/* A word that is written in parts cannot be read before these writes have left the processor. */
		__u64 ports;
	};
};

/* The path of all packets of a connection. Each but the first is a fast path. */
enum path {
	PATH_STACK,
	/* Into another pod of the node. */
	PATH_POD,
	/* Between a pod and another node: by the gateway of the wire, or without one. */
	PATH_GATEWAY,
	PATH_LINK,
	/* Between a pod and a client outside that asked for a Service: answers leave by the link of the request. */
	PATH_CLIENT,
	PATHS,
};

/* Of `wire` in `struct flow`, between two pods: packets of both directions ask for no Service. */
#define WITHOUT_SERVICE 1
/* The initiator asks for a Service, and the answers get the address that it asked for. */
#define FOR_SERVICE 2

/*
 * A connection. Its key has the ends as one pod sees them: as the pod sent the packet, or as it receives the packet. NAT
 * may be between the pods, and the rest is behind it.
 */
struct flow {
	/* Of the last packet, in nanoseconds since the boot. */
	__u64 seen;
	/* The class of the Service's address that was asked for. */
	__u64 service;
	/* The first packet as it was judged. */
	struct address source;
	struct address destination;
	__u32 key;
	/* The generation whose policies judged it last. */
	__u32 generation;
	/* The links of both ends; 0 for an end without an endpoint here. */
	__u32 initiator;
	__u32 responder;
	__u16 source_port;
	/* The initiator is the lower end. */
	__u8 from_low;
	/* The responder has answered. */
	__u8 answered;
	/* TCP flags that were seen. */
	__u8 tcp_flags;
	/* The decision of these policies. A row that is not allowed stays, so that no packet of it starts a new connection. */
	__u8 decision;
	/* A process of the node is the initiator. */
	__u8 is_from_node;
	/* It is in `flows`, or its pod has its share of them. */
	__u8 is_open;
	/* The verdict that denied it. */
	__u32 verdict;
	/* `service` is that of a packet as its pod sent it. */
	__u8 is_service_known;
	/* One of `enum path`. */
	__u8 path;
	/*
	 * The link to other nodes by which its packets leave the node, or 0 if the stack routes them. Between two pods it is WITHOUT_SERVICE,
	 * FOR_SERVICE, or 0 if that is not known.
	 */
	__u16 wire;
};

/* No row has the ends, so none is looked up. */
#define WITHOUT_ROW 2

/* A packet as its pod sent it, for the hook where its destination is final. */
struct sent {
	/* Also in the packet's hash, so that a later packet in this place is recognized. */
	__u32 nonce;
	__u32 link;
	/* For tests: the class of the Service's address. It is 0 otherwise, because it follows from the key. */
	__u64 service;
	struct flow_key key;
	__u32 from_low;
	/* Its ends make a connection: 1, or WITHOUT_ROW. */
	__u16 has_flow;
	/* An answer to a rejected packet, which no policy is about. */
	__u16 is_answer;
};

/* Settings of userspace, in one row. */
enum timeout {
	/* Of a connection without an answer. */
	TIMEOUT_TCP_SYN,
	TIMEOUT_TCP,
	/* After the end of one direction or of both. */
	TIMEOUT_TCP_FIN,
	TIMEOUT_TCP_RESET,
	/* Also of protocols that are not named here. */
	TIMEOUT_UDP,
	TIMEOUT_UDP_REPLIED,
	TIMEOUT_ICMP,
	TIMEOUT_SCTP_INIT,
	TIMEOUT_SCTP,
	/* Of a fragmented packet. */
	TIMEOUT_FRAGMENT,
	TIMEOUTS,
};

struct settings {
	/* The times after which a connection without a packet has ended, in nanoseconds. */
	__u64 timeouts[TIMEOUTS];
	/* A pod has at most this many rows of `flows`. */
	__u64 flows_of_pod;
	/* Rows of `half_open` stay, because `flows` is being replaced by a larger map. */
	__u64 keeps_half_open;
	/* New connections may take the fast path. */
	__u64 has_fast_path;
};

/* A pod's part in connections, by slot. */
struct share {
	/* Its number of rows in `flows`. */
	__u64 flows;
	/*
	 * Until this time, in nanoseconds since the boot, connections may exist that are older than the pod's enforcement.
	 * 0 if there are none, or if they have rows.
	 */
	__u64 window_end;
};

/* A fragmented packet that passed. */
struct fragment_key {
	struct address source;
	struct address destination;
	__u32 number;
	__u32 protocol;
};

/* Reasons for which a packet is dropped or passes without a verdict, in `counters`. */
enum reason {
	/* The policies of the sender: a rule, a rule that rejects, isolation, or no known policies. */
	EGRESS_RULE,
	EGRESS_REJECT,
	EGRESS_ISOLATION,
	EGRESS_CLOSED,
	/* The policies of the receiver. */
	INGRESS_RULE,
	INGRESS_REJECT,
	INGRESS_ISOLATION,
	INGRESS_CLOSED,
	/* NAT led a packet of a pod to the node, and its policies do not allow that. This is the answer. */
	ANSWER_OF_NODE,
	/* Of a connection that policies do not allow any more. */
	REVOKED_EGRESS,
	REVOKED_INGRESS,
	/* Of a connection of a pod that has ended. */
	REVOKED_ENDED,
	/* The source is not the pod's address of the family, or the pod has none. */
	SPOOFED_V4,
	SPOOFED_V6,
	SPOOFED_FAMILY,
	/* Neither IP nor ARP. */
	NOT_IP,
	TAGGED,
	/* Headers that cannot be parsed. */
	BAD_IPV4,
	BAD_IPV6,
	BAD_EXTENSION,
	EXTENSIONS_LIMIT,
	BAD_PORTS,
	BAD_ICMP,
	/* From a pod, but its packet as it was sent is not known any more, or the pod has ended. */
	NO_ORIGIN,
	ORIGIN_ENDED,
	/* It is not known which Service was asked for. */
	NO_TICKET,
	/* The first fragment of its packet did not pass, or it passed too long ago. */
	FRAGMENT_UNKNOWN,
	FRAGMENT_LATE,
	/* The writer of the maps failed. */
	NO_ROW,
	NO_TABLE,
	NO_WORK,
	/* An ICMP error about a connection of other ends, a forged one, or one about a connection that policies do not allow. */
	STRAY_ERROR,
	REVOKED_ERROR,
	/* No connection can be added, and a policy depends on it. */
	FLOWS_FULL,
	/* A Service has no endpoint, none on the node, or no such port. */
	NO_ENDPOINTS,
	NO_LOCAL_ENDPOINTS,
	NO_SUCH_PORT,
	/* The client is outside the source ranges of a load balancer's address. */
	SOURCE_RANGE,
	/* A backend or a program of Services is missing, or the packet cannot be changed. */
	NO_BACKEND,
	NO_STAGE,
	/* All source ports to a backend on another node are in use. */
	NO_SOURCE_PORT,
	/* Not drops. Answered, or not: the packet counts for another reason too. */
	REJECTED,
	NOT_ANSWERED,
	/* It stays among the half-open connections, because the pod has its share of the others, or no row is left. */
	SHARE,
	NOT_OPENED,
	/* Events that were not sent: the pod has sent its share of this second, or userspace is behind. */
	EVENT_LIMIT,
	EVENT_LOST,
	/* The counters of a rule that has no row. */
	NOT_COUNTED,
	/* Passed, because its connection may be older than the enforcement of its pod. */
	WINDOW,
	/* Passed although it cannot be parsed: no policy is about its ends. */
	NOT_PARSED,
	/* Choices of backends: for packets of pods, calls of processes of the node, and packets from outside. */
	CHOSEN_FOR_POD,
	CHOSEN_FOR_PROCESS,
	CHOSEN_FOR_OUTSIDE,
	/* Source ports to backends on other nodes that connections have taken, and tries that found a port in use. */
	SOURCE_PORT_TAKEN,
	SOURCE_PORT_BUSY,
	/* The first packet of a connection that takes the fast path. */
	FAST_PATH,
	REASONS,
};

#define ENDPOINTS 2048

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_HASH);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct endpoint);
	MAP_NUMBER(max_entries, ENDPOINTS);
	MAP_NUMBER(map_flags, BPF_F_NO_PREALLOC);
} endpoints SEC(".maps");

/*
 * By the lowest bits of a link's number. One of the endpoints whose links have these bits has a copy here: a lookup of
 * `endpoints` costs a call of the kernel and more cache lines. A place is a cache line.
 */
struct place {
	/* The link of the copy; 0 if there is none. */
	__u32 link;
	/* At least the number of endpoints whose links have these bits. */
	__u32 endpoints;
	struct pod pod;
	__u64 unused[2];
};

#define PLACES 4096

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct place);
	MAP_NUMBER(max_entries, PLACES);
	MAP_NUMBER(map_flags, BPF_F_MMAPABLE);
} places SEC(".maps");

/* The generation. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, __u64);
	MAP_NUMBER(max_entries, 1);
} active SEC(".maps");

/* By slot, two rows each: the even half and the odd half. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct row);
	MAP_NUMBER(max_entries, 4096);
} rows SEC(".maps");

/* The node's own addresses. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_HASH);
	MAP_TYPE(key, struct address);
	MAP_TYPE(value, __u32);
	MAP_NUMBER(max_entries, 4096);
	MAP_NUMBER(map_flags, BPF_F_NO_PREALLOC);
} own_addresses SEC(".maps");

/* By `place_of_own`: at least the number of own addresses there. Most packets of pods are to other addresses. */
#define OWN_PLACES 4096

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, __u32);
	MAP_NUMBER(max_entries, OWN_PLACES);
} own_places SEC(".maps");

/* One of them for each family: IPv4, IPv6. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct address);
	MAP_NUMBER(max_entries, 2);
} node_address SEC(".maps");

/*
 * A hash table with open addressing: the kernel's hash map would need three cache lines for a row, and this needs one. A row
 * is in the first slot of its place that was free, or in one of the PROBES slots from there on. Userspace writes `low` last.
 * A slot that was in use gets another address only after a grace period.
 */
struct class_slot {
	/* SLOT_FREE, SLOT_GONE, or the second half of an address. Addresses with these halves are in `prefixes`. */
	__u64 low;
	__u64 high;
	/* The class in both halves of the state. */
	__u64 of[2];
};

/* No row of a place before this slot is in a slot behind it. */
#define SLOT_FREE 0
/* The row was removed. */
#define SLOT_GONE 0xffffffffffffffffull
#define PROBES 128
/*
 * The first entry is a header: `low`, `high` and `of[1]` are random factors of the hash, so that no tenant can choose addresses of one
 * place, and `of[0]` is the number of slots less 1. A pair of slots is a cache line, because the entries start at a page.
 */
#define FIRST_SLOT 2

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct class_slot);
	MAP_NUMBER(max_entries, 32768 + FIRST_SLOT);
	MAP_NUMBER(map_flags, BPF_F_MMAPABLE);
} classes SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_LPM_TRIE);
	MAP_TYPE(key, struct prefix);
	MAP_TYPE(value, struct halves);
	MAP_NUMBER(max_entries, 65536);
	MAP_NUMBER(map_flags, BPF_F_NO_PREALLOC);
} prefixes SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_HASH);
	MAP_TYPE(key, struct address);
	MAP_TYPE(value, struct halves);
	MAP_NUMBER(max_entries, 4096);
	MAP_NUMBER(map_flags, BPF_F_NO_PREALLOC);
} services SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_HASH);
	MAP_TYPE(key, struct set_key);
	MAP_TYPE(value, __u32);
	MAP_NUMBER(max_entries, 32768);
	MAP_NUMBER(map_flags, BPF_F_NO_PREALLOC);
} set_rows SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct small_table);
	MAP_NUMBER(max_entries, 2048);
} small_tables SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct large_table);
	MAP_NUMBER(max_entries, 64);
} large_tables SEC(".maps");

/* Connections that are open. No packet removes one. Userspace sets the number of rows. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_HASH);
	MAP_TYPE(key, struct flow_key);
	MAP_TYPE(value, struct flow);
	MAP_NUMBER(max_entries, 131072);
	MAP_NUMBER(map_flags, BPF_F_NO_PREALLOC);
} flows SEC(".maps");

/* Connections without an answer. A new one displaces the one that was used longest ago. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_LRU_HASH);
	MAP_TYPE(key, struct flow_key);
	MAP_TYPE(value, struct flow);
	MAP_NUMBER(max_entries, 32768);
} half_open SEC(".maps");

/* By slot. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct share);
	MAP_NUMBER(max_entries, 2048);
} shares SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct settings);
	MAP_NUMBER(max_entries, 1);
} settings SEC(".maps");

/* The digests of the rules' names by number, for userspace. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_HASH);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, __u64);
	MAP_NUMBER(max_entries, 8192);
	MAP_NUMBER(map_flags, BPF_F_NO_PREALLOC);
} rules SEC(".maps");

/* Each processor has SENT_OF_CPU places. */
#define SENT 8192
#define SENT_OF_CPU 64

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct sent);
	MAP_NUMBER(max_entries, SENT);
} sent SEC(".maps");

/* Number of packets in `sent` so far. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, __u32);
	MAP_NUMBER(max_entries, 1);
} sent_count SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_LRU_HASH);
	MAP_TYPE(key, struct fragment_key);
	MAP_TYPE(value, __u64);
	MAP_NUMBER(max_entries, 4096);
} fragments SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, __u64);
	MAP_NUMBER(max_entries, REASONS);
} counters SEC(".maps");

static inline_always void count_many(__u32 reason, __u64 times)
{
	__u64 *counter = map_lookup(&counters, &reason);

	if (counter)
		*counter += times;
}

static inline_always void count(__u32 reason)
{
	count_many(reason, 1);
}

/* Drops a packet without an event. */
static inline_always int lose(__u32 reason)
{
	count(reason);
	return TC_ACT_SHOT;
}

/* Use of a rule. */
struct use {
	/* Connections that it allowed. */
	__u64 flows;
	/* Packets that it denied, and their bytes. */
	__u64 packets;
	__u64 bytes;
	/* Of the last of both, in nanoseconds since the boot. */
	__u64 last;
};

/* By the number of the rule. A program adds the row, and userspace removes it with the rule. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_PERCPU_HASH);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct use);
	MAP_NUMBER(max_entries, 131072);
	MAP_NUMBER(map_flags, BPF_F_NO_PREALLOC);
} uses SEC(".maps");

/* A packet that was dropped, or the first one of a connection that was allowed. */
struct event {
	/* In nanoseconds since the boot. */
	__u64 time;
	/* The packet as it was judged. */
	struct address source;
	struct address destination;
	__u32 key;
	/* The links of both ends; 0 for an end without an endpoint here. */
	__u32 from;
	__u32 to;
	/* The verdicts of both policies. */
	__u32 egress;
	__u32 ingress;
	/* Of the packet, in bytes. */
	__u32 length;
	/* REASONS for an allowed packet. */
	__u16 reason;
	__u16 source_port;
	/* The packet is on the fast path. */
	__u32 is_fast;
};

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_RINGBUF);
	MAP_NUMBER(max_entries, 1 << 20);
} events SEC(".maps");

/* The events that userspace asks for. */
struct wanted {
	/* Each allowed connection. */
	__u32 allowed;
	/* The events of each pod in a second. */
	__u32 limit;
};

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct wanted);
	MAP_NUMBER(max_entries, 1);
} wanted_events SEC(".maps");

/* The events of a pod in this second. Two processors at once can send more. */
struct sent_events {
	__u32 second;
	__u32 count;
};

/* By slot. The last row is for packets of no known pod. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct sent_events);
	MAP_NUMBER(max_entries, ENDPOINTS + 1);
} event_limits SEC(".maps");

/* Of a fast pod: `macs` is known. */
#define HAS_MACS 1u
/* NAT of the host leads packets of other pods to it. A datagram from it may be an answer that the host has to translate. */
#define BEHIND_NAT 2u

/* A pod whose link is fit for the fast path. */
struct fast_pod {
	__u32 link;
	__u32 flags;
	/* The first bytes of a frame to it: its MAC, then that of its link. Its own frames have both. */
	__u8 macs[12];
};

/* By the pod's address. A row is new if the pod gets another link. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_HASH);
	MAP_TYPE(key, struct address);
	MAP_TYPE(value, struct fast_pod);
	MAP_NUMBER(max_entries, 1);
	MAP_NUMBER(map_flags, BPF_F_NO_PREALLOC);
} fast_pods SEC(".maps");

/* A pod, and another end that is not on the node. */
struct way_ends {
	struct address pod;
	struct address other;
};

/* The stack has sent a packet of these ends by this link, from the pod's own address to the one that it asked for. */
struct known_way {
	/* Of the last such packet, in nanoseconds since the boot. */
	__u64 seen;
	__u32 link;
	__u32 unused;
};

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_LRU_HASH);
	MAP_TYPE(key, struct way_ends);
	MAP_TYPE(value, struct known_way);
	MAP_NUMBER(max_entries, 1);
} known_ways SEC(".maps");

static inline_always int is_v4(const struct address *address)
{
	return !address->high && (__u32)address->low == 0xffff0000u;
}

/* True for an address of the node. */
static inline_always int is_own_address(const struct address *address)
{
	/* `datapath/abi/src/places.rs` has the same. */
	__u32 number = (address->low ^ address->high) * 0x9e3779b97f4a7c15ull >> 52;
	__u32 *count = map_lookup(&own_places, &number);

	return count && *count && map_lookup(&own_addresses, address);
}
