/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * DNS answers to pods whose rules have names. Userspace reads them in a ring. It sends those over UDP to the pod, once
 * the addresses in them are in force, by a packet socket whose packets have a mark.
 */
#pragma once

#include "reject.h"

#define DNS 53
/* The longest frame that userspace reads. */
#define CAPTURE 16384
/* The time for which an answer to a query counts, in nanoseconds. */
#define QUERY_TIME 30000000000ull
/* A query that is sent more often has so many answers. */
#define ANSWERS 8
/* In each window of this many nanoseconds, a pod has so many queries and so many answers in the ring. */
#define DNS_WINDOW 100000000ull
#define DNS_UNITS 128

static long (*ring_output)(void *ring, void *data, __u64 size, __u64 flags) = (void *)BPF_FUNC_ringbuf_output;

/* A pod whose rules have names, by its link. */
struct names_pod {
	/* The start of the window. */
	__u64 since;
	__u32 queries;
	/* An answer counts once more for each KiB. */
	__u32 answers;
};

/* A query of a pod over UDP. */
struct dns_query {
	struct address server;
	__u32 link;
	/* The pod's port. */
	__u16 port;
	/* The number in the message. */
	__u16 id;
};

/* A frame that goes to a pod. */
struct dns_answer {
	/* Nanoseconds since the boot. */
	__u64 at;
	__u32 link;
	/* The number of bytes. */
	__u32 length;
	/* The offset of the UDP or TCP header in them. */
	__u32 segment;
	__u16 is_udp;
	/* The pod gets it from userspace only. */
	__u16 is_held;
	__u8 bytes[CAPTURE];
};

#define ANSWER_HEADER 24

/* A row of userspace: it keeps names across its restarts. */
struct name_key {
	struct address address;
	/* The UID of the pod. */
	char pod[64];
	char name[256];
};

/* In `names_counters`. */
enum names_reason {
	/* Over UDP, to no query of the pod. */
	DNS_UNASKED,
	/* A fragment, or too long. */
	DNS_UNREADABLE,
	/* More than a pod may have. */
	DNS_RATE,
	DNS_RING_FULL,
	/* It passed, because userspace does not run. */
	DNS_UNHELD,
	DNS_HELD,
	NAMES_REASONS,
};

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_HASH);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct names_pod);
	MAP_NUMBER(max_entries, 2048);
	MAP_NUMBER(map_flags, BPF_F_NO_PREALLOC);
} names_pods SEC(".maps");

/* A query that is sent again has the same number. */
struct asked {
	/* Of the last time. */
	__u64 at;
	/* The number of answers that count. */
	__u64 left;
};

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_LRU_HASH);
	MAP_TYPE(key, struct dns_query);
	MAP_TYPE(value, struct asked);
	MAP_NUMBER(max_entries, 4096);
} dns_queries SEC(".maps");

/* Of userspace while it runs. */
struct dns_hold {
	/* Answers are held until this time. */
	__u64 until;
	/* The mark of the answers that userspace sends. It is random, or 0 before the first. */
	__u32 mark;
	__u32 unused;
};

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct dns_hold);
	MAP_NUMBER(max_entries, 1);
} dns_hold SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_RINGBUF);
	MAP_NUMBER(max_entries, 1048576);
} dns_answers SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct dns_answer);
	MAP_NUMBER(max_entries, 1);
} dns_frames SEC(".maps");

/* The expiry of each name, in milliseconds since the boot. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_HASH);
	MAP_TYPE(key, struct name_key);
	MAP_TYPE(value, __u64);
	MAP_NUMBER(max_entries, 16384);
	MAP_NUMBER(map_flags, BPF_F_NO_PREALLOC);
} names SEC(".maps");

/* The addresses of names: the last time at which a sweep found an open connection to each. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_HASH);
	MAP_TYPE(key, struct address);
	MAP_TYPE(value, __u64);
	MAP_NUMBER(max_entries, 16384);
	MAP_NUMBER(map_flags, BPF_F_NO_PREALLOC);
} names_used SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, __u64);
	MAP_NUMBER(max_entries, NAMES_REASONS);
} names_counters SEC(".maps");

static inline_always void count_names(__u32 reason)
{
	__u64 *counter = map_lookup(&names_counters, &reason);

	if (counter)
		*counter += 1;
}

/* Processors that race here grant a pod some more. */
static inline_always void open_window(struct names_pod *pod, __u64 now)
{
	if (now - pod->since < DNS_WINDOW)
		return;
	pod->since = now;
	pod->queries = 0;
	pod->answers = 0;
}

/* True for an answer that userspace sends. A pod's packet has an origin, and loses its mark on the way to the node. */
static inline_always int is_released(struct __sk_buff *skb)
{
	__u32 first = 0;
	struct dns_hold *hold;

	if (!skb->mark || skb->ingress_ifindex)
		return 0;
	hold = map_lookup(&dns_hold, &first);
	return hold && hold->mark == skb->mark;
}

/* Notes the query of a pod. */
checked_alone int note_query(struct __sk_buff *skb, const struct packet *packet)
{
	struct dns_query query = {};
	struct names_pod *pod;
	__u64 now = ktime_coarse();
	struct asked asked = { now, 1 }, *earlier;
	__u32 link = skb->ifindex;

	if (!packet)
		return 0;
	pod = map_lookup(&names_pods, &link);
	if (!pod)
		return 0;
	open_window(pod, now);
	if (pod->queries >= DNS_UNITS) {
		count_names(DNS_RATE);
		return 0;
	}
	pod->queries += 1;
	query.server = packet->destination;
	query.link = link;
	query.port = packet->source_port;
	if (skb_load(skb, packet->offset + 8, &query.id, sizeof(query.id)))
		return 0;
	earlier = map_lookup(&dns_queries, &query);
	if (earlier && now - earlier->at < QUERY_TIME && earlier->left < ANSWERS)
		asked.left = earlier->left + 1;
	map_update(&dns_queries, &query, &asked, BPF_ANY);
	return 0;
}

/*
 * Gives userspace an answer of a connection that the pod of this link began and that policies allow. Returns 1 if
 * userspace sends it to the pod, or 0 if it passes.
 */
checked_alone int hold_answer(struct __sk_buff *skb, const struct packet *packet, __u32 link)
{
	__u32 length = skb->len, first = 0, segment, is_udp;
	__u64 now = ktime_coarse();
	struct dns_hold *hold;
	struct dns_query query = {};
	struct dns_answer *to;
	struct names_pod *pod;

	if (!packet)
		return 0;
	pod = map_lookup(&names_pods, &link);
	if (!pod)
		return 0;
	is_udp = packet->protocol == UDP;
	if (packet->is_fragment || (is_udp && skb->gso_segs > 1) || length > CAPTURE || length < ETH_HEADER) {
		count_names(DNS_UNREADABLE);
		return 0;
	}
	segment = ETH_HEADER + packet->offset;
	if (is_udp) {
		struct asked *asked;

		query.server = packet->source;
		query.link = link;
		query.port = packet->destination_port;
		if (skb_load(skb, packet->offset + 8, &query.id, sizeof(query.id)))
			return 0;
		asked = map_lookup(&dns_queries, &query);
		if (!asked || !asked->left || now - asked->at > QUERY_TIME) {
			count_names(DNS_UNASKED);
			return 0;
		}
		asked->left -= 1;
	} else {
		__u8 header;

		/* A segment without payload only matters at the start and the end. */
		if (skb_load(skb, packet->offset + 12, &header, 1))
			return 0;
		if (!(packet->tcp_flags & (TCP_SYN | TCP_FIN | TCP_RST)) && segment + (header >> 4) * 4 >= length)
			return 0;
	}
	open_window(pod, now);
	if (pod->answers >= DNS_UNITS) {
		count_names(DNS_RATE);
		return 0;
	}
	pod->answers += 1 + (length >> 10);
	to = map_lookup(&dns_frames, &first);
	hold = map_lookup(&dns_hold, &first);
	if (!to || !hold)
		return 0;
	to->at = now;
	to->link = link;
	to->length = length;
	to->segment = segment;
	to->is_udp = is_udp;
	to->is_held = is_udp && (__s64)(hold->until - now) > 0;
	/* The verifier does not know the limit of a value that the compiler moved to another register. */
	asm volatile("" : "+r"(length));
	if (length > CAPTURE || length < ETH_HEADER || skb_load_frame(skb, 0, to->bytes, length))
		return 0;
	if (ring_output(&dns_answers, to, ANSWER_HEADER + length, 0)) {
		count_names(DNS_RING_FULL);
		return 0;
	}
	if (is_udp)
		count_names(to->is_held ? DNS_HELD : DNS_UNHELD);
	return to->is_held;
}
