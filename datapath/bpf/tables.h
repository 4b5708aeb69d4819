/* SPDX-License-Identifier: BSD-2-Clause */
/* Layout of the maps. `datapath/abi` has the same layouts in Rust; a test compares their sizes. */
#pragma once

#include "kernel.h"

/* An address of either family; IPv4 is mapped to ::ffff:0:0/96. */
struct address {
	__u64 high;
	__u64 low;
};

/* A pod's host link. */
struct endpoint {
	__u32 slot;
	__u32 unused;
	/* The pod's addresses; 0 if it has none of the family. */
	struct address v4;
	struct address v6;
};

/*
 * The sets of a pod. It is not changed while a slot refers to it. Set 0 allows everything. The set CLOSED has no rows, so it
 * drops everything: for a pod whose policies are not known.
 */
#define CLOSED 0xffffffffu

struct row {
	__u32 ingress;
	__u32 egress;
	__u32 hairpin_ingress;
	__u32 hairpin_egress;
};

struct prefix {
	__u32 length;
	__u8 first[16];
};

/* Class and service are 0 in the row of a set's default. */
struct set_key {
	__u32 set;
	__u32 class;
	__u32 service;
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
/* Of a verdict: the decision. The other bits are the reason. */
#define DECISION 0x3u
#define ALLOW 0
#define DROP 1
#define REJECT 2

/* Connections, by both ends in the order of (address, port). */
struct flow_key {
	struct address low;
	struct address high;
	__u16 low_port;
	__u16 high_port;
	__u32 protocol;
};

struct flow {
	/* Of the last packet, in nanoseconds since the boot. */
	__u64 seen;
	/* The policies of the two ends that allowed it; 0 for an end without an endpoint here. */
	__u32 initiator;
	__u32 responder;
	/* The class of the Service's address that was asked for. */
	__u32 service;
	/* The initiator is the lower end. */
	__u8 from_low;
	/* The responder has answered. */
	__u8 answered;
	/* TCP flags that were seen. */
	__u8 tcp_flags;
	/* These policies do not allow it any more. The row stays, so that no packet of it starts a new connection. */
	__u8 is_denied;
};

/* Reasons for which a packet is dropped or passes without a verdict, in `counters`. */
enum reason {
	POLICY_EGRESS,
	POLICY_INGRESS,
	SPOOFED,
	NOT_PARSED,
	/* Neither IP nor ARP, or tagged. */
	NOT_IP,
	/* From a pod, but its link is not known any more. */
	NO_ORIGIN,
	FRAGMENT,
	NO_ROW,
	FLOWS_FULL,
	REASONS,
};

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_HASH);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct endpoint);
	MAP_NUMBER(max_entries, 2048);
	MAP_NUMBER(map_flags, BPF_F_NO_PREALLOC);
} endpoints SEC(".maps");

/* By slot: the number of a row in the lower half, the generation in the upper half. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, __u64);
	MAP_NUMBER(max_entries, 2048);
	MAP_NUMBER(map_flags, BPF_F_MMAPABLE);
} current SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct row);
	MAP_NUMBER(max_entries, 4096);
} rows SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_HASH);
	MAP_TYPE(key, struct address);
	MAP_TYPE(value, __u32);
	MAP_NUMBER(max_entries, 131072);
	MAP_NUMBER(map_flags, BPF_F_NO_PREALLOC);
} classes SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_LPM_TRIE);
	MAP_TYPE(key, struct prefix);
	MAP_TYPE(value, __u32);
	MAP_NUMBER(max_entries, 65536);
	MAP_NUMBER(map_flags, BPF_F_NO_PREALLOC);
} prefixes SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_HASH);
	MAP_TYPE(key, struct address);
	MAP_TYPE(value, __u32);
	MAP_NUMBER(max_entries, 16384);
	MAP_NUMBER(map_flags, BPF_F_NO_PREALLOC);
} services SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_HASH);
	MAP_TYPE(key, struct set_key);
	MAP_TYPE(value, __u32);
	MAP_NUMBER(max_entries, 262144);
	MAP_NUMBER(map_flags, BPF_F_NO_PREALLOC);
} set_rows SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct small_table);
	MAP_NUMBER(max_entries, 8192);
} small_tables SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct large_table);
	MAP_NUMBER(max_entries, 256);
} large_tables SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_HASH);
	MAP_TYPE(key, struct flow_key);
	MAP_TYPE(value, struct flow);
	MAP_NUMBER(max_entries, 131072);
	MAP_NUMBER(map_flags, BPF_F_NO_PREALLOC);
} flows SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, __u64);
	MAP_NUMBER(max_entries, REASONS);
} counters SEC(".maps");
