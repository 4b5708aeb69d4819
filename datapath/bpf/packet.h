/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Parses a packet to its ends, its key for interval tables and its flow. */
#pragma once

#include "tables.h"

#define ETH_HEADER 14
#define ETH_IPV4 0x0800
#define ETH_IPV6 0x86dd
#define ICMP 1
#define TCP 6
#define UDP 17
#define ICMPV6 58
#define SCTP 132
/* An IPv6 packet has seldom more than two extension headers; more than this many are not parsed. */
#define EXTENSIONS 6

enum parsed {
	/* A packet with a verdict. */
	PARSED,
	/* Not IP: ARP for one. */
	OTHER,
	/* Neighbor discovery, which no policy is about. */
	NEIGHBOR,
	/* A fragment after the first, without ports. */
	LATER_FRAGMENT,
	/* Headers that cannot be parsed. */
	MALFORMED_V4,
	MALFORMED_V6,
	MALFORMED_EXTENSION,
	TOO_MANY_EXTENSIONS,
	MALFORMED_PORTS,
	MALFORMED_ICMP,
};

struct packet {
	struct address source;
	struct address destination;
	/* The key of interval tables: protocol << 16 | destination port, or 1 << 16 | type << 8 | code; else 0. */
	__u32 key;
	/* The protocol within IP; ICMPv6 counts as ICMP. */
	__u32 protocol;
	/* The number in the IP header. */
	__u32 ip_protocol;
	/* Of the segment, from the IP header on. */
	__u32 offset;
	__u16 source_port;
	__u16 destination_port;
	__u8 tcp_flags;
	/* An ICMP error about a flow, or a packet that one quotes. */
	__u8 is_error;
	__u8 hop_limit;
	/* Packets of these ends make a connection. Of ICMP only echo does. */
	__u8 has_flow;
	/* Part of a fragmented packet. */
	__u8 is_fragment;
	/* Of a fragment: the number that all fragments of its packet have. */
	__u32 fragment;
};

#define ETH_ARP 0x0806
#define ETH_VLAN 0x8100
#define ETH_OUTER_VLAN 0x88a8
#define ECHO_V4 8
#define ECHO_REPLY_V4 0
#define ECHO_V6 128
#define ECHO_REPLY_V6 129

static inline_always void map_v4(struct address *to, __u32 v4)
{
	to->high = 0;
	/* In network order: two bytes 0xff before the address. */
	to->low = ((__u64)v4 << 32) | 0xffff0000u;
}

/* The start of an Ethernet frame. */
struct ethernet {
	__u8 destination[6];
	__u8 source[6];
	__u16 type;
};

/* No offset of an IP header: its bytes are not read directly. */
#define UNKNOWN_START 0x10000u
/* The verifier knows the largest offset of a byte that is read directly. */
#define DIRECT 0x8000u

/*
 * The offset of the IP header, if it can be read directly. A link without Ethernet frames has other bytes before it, or
 * none. Then the first four bits are those of an IP header, or there is no type.
 */
static inline_always __u32 start_of(struct __sk_buff *skb, int is_ethernet)
{
	const struct ethernet *frame = (const void *)(long)skb->data;
	__u8 version;

	if ((const void *)(frame + 1) > (const void *)(long)skb->data_end || frame->type != (__u16)skb->protocol)
		return UNKNOWN_START;
	version = frame->destination[0] >> 4;
	return !is_ethernet && (version == 4 || version == 6) ? UNKNOWN_START : sizeof(*frame);
}

/* Copies bytes of the packet. `at` counts from the IP header, which is at `start`. Bytes that are not in the linear part
 * are copied by the helper. Returns 0 if the packet has all of them. */
#define read(skb, start, at, to)                                                                                       \
	({                                                                                                             \
		__u32 place = (start) + (at);                                                                          \
		long failed = -1;                                                                                      \
                                                                                                                       \
		if (place < DIRECT) {                                                                                  \
			const typeof(*(to)) *from = (const void *)(long)(skb)->data + place;                           \
                                                                                                                       \
			if ((const void *)(from + 1) <= (const void *)(long)(skb)->data_end) {                         \
				*(to) = *from;                                                                         \
				failed = 0;                                                                            \
			}                                                                                              \
		}                                                                                                      \
		if (failed)                                                                                            \
			failed = skb_load(skb, at, to, sizeof(*(to)));                                                 \
		failed;                                                                                                \
	})

/* True for protocols whose segments start with two ports. */
static inline_always int has_ports(__u32 protocol)
{
	return protocol == TCP || protocol == UDP || protocol == SCTP;
}

/* True for errors, whose data is the packet that caused them. */
static inline_always int is_icmp_error(int is_v6, __u8 type)
{
	return is_v6 ? type >= 1 && type <= 4 : type == 3 || type == 4 || type == 11 || type == 12;
}

struct ports {
	__u16 source;
	__u16 destination;
};

struct icmp_start {
	__u8 type;
	__u8 code;
	__u16 checksum;
};

/* Parses the header after IP. Of an ICMP error, `*quoted` becomes the offset of the packet in it. */
static inline_always enum parsed parse_segment(struct __sk_buff *skb, __u32 start, __u32 offset, int is_v6,
					       struct packet *packet, __u32 *quoted)
{
	struct ports ports;
	__u8 protocol = packet->protocol;

	*quoted = 0;
	packet->ip_protocol = protocol;
	packet->offset = offset;
	packet->has_flow = 1;
	if (has_ports(protocol)) {
		if (read(skb, start, offset, &ports))
			return MALFORMED_PORTS;
		packet->source_port = from_be16(ports.source);
		packet->destination_port = from_be16(ports.destination);
		packet->key = (__u32)protocol << 16 | packet->destination_port;
		/* A quoted packet may end after 8 bytes. */
		if (protocol == TCP && !packet->is_error && read(skb, start, offset + 13, &packet->tcp_flags))
			return MALFORMED_PORTS;
		return PARSED;
	}
	if (protocol == (is_v6 ? ICMPV6 : ICMP)) {
		struct icmp_start icmp;
		__u16 echo;

		if (read(skb, start, offset, &icmp))
			return MALFORMED_ICMP;
		packet->protocol = ICMP;
		packet->key = (__u32)ICMP << 16 | (__u32)icmp.type << 8 | icmp.code;
		/* Forwarded packets have a lower hop limit. */
		if (is_v6 && icmp.type >= 133 && icmp.type <= 137 && packet->hop_limit == 255)
			return NEIGHBOR;
		packet->has_flow = is_v6 ? icmp.type == ECHO_V6 || icmp.type == ECHO_REPLY_V6
					 : icmp.type == ECHO_V4 || icmp.type == ECHO_REPLY_V4;
		if (is_icmp_error(is_v6, icmp.type)) {
			*quoted = offset + 8;
			return PARSED;
		}
		if (read(skb, start, offset + 4, &echo))
			return MALFORMED_ICMP;
		/* The identifier of an echo stands for both ports. */
		packet->source_port = from_be16(echo);
		packet->destination_port = packet->source_port;
		return PARSED;
	}
	packet->key = 0;
	return PARSED;
}

struct ipv4 {
	__u8 version;
	__u8 tos;
	__u16 length;
	__u16 id;
	__u16 fragment;
	__u8 ttl;
	__u8 protocol;
	__u16 checksum;
	__u32 source;
	__u32 destination;
};

struct ipv6 {
	__u32 version;
	__u16 length;
	__u8 next;
	__u8 hops;
	struct address source;
	struct address destination;
};

struct extension {
	__u8 next;
	__u8 length;
	/* The offset of a fragment. */
	__u16 fragment;
};

static inline_always enum parsed parse_v4(struct __sk_buff *skb, __u32 start, __u32 offset, struct packet *packet,
					  __u32 *quoted)
{
	struct ipv4 ip;
	__u32 length;

	if (read(skb, start, offset, &ip))
		return MALFORMED_V4;
	length = (ip.version & 0xf) * 4;
	if (ip.version >> 4 != 4 || length < sizeof(ip))
		return MALFORMED_V4;
	map_v4(&packet->source, ip.source);
	map_v4(&packet->destination, ip.destination);
	packet->protocol = ip.protocol;
	packet->ip_protocol = ip.protocol;
	packet->hop_limit = ip.ttl;
	packet->is_fragment = (from_be16(ip.fragment) & 0x3fff) != 0;
	packet->fragment = ip.id;
	if (from_be16(ip.fragment) & 0x1fff)
		return LATER_FRAGMENT;
	return parse_segment(skb, start, offset + length, 0, packet, quoted);
}

static inline_always enum parsed parse_v6(struct __sk_buff *skb, __u32 start, __u32 offset, struct packet *packet,
					  __u32 *quoted)
{
	struct ipv6 ip;
	__u8 next;
	__u32 at = offset + sizeof(ip);

	if (read(skb, start, offset, &ip) || (ip.version & 0xf0) != 0x60)
		return MALFORMED_V6;
	packet->source = ip.source;
	packet->destination = ip.destination;
	packet->hop_limit = ip.hops;
	next = ip.next;
#pragma unroll
	for (int i = 0; i < EXTENSIONS; i++) {
		struct extension header;

		/* Hop-by-hop options, routing, fragment, destination options, authentication. */
		if (next != 0 && next != 43 && next != 44 && next != 60 && next != 51)
			break;
		if (skb_load(skb, at, &header, sizeof(header)))
			return MALFORMED_EXTENSION;
		if (next == 44) {
			packet->protocol = header.next;
			packet->ip_protocol = header.next;
			packet->is_fragment = 1;
			if (skb_load(skb, at + 4, &packet->fragment, 4))
				return MALFORMED_EXTENSION;
			if (from_be16(header.fragment) & 0xfff8)
				return LATER_FRAGMENT;
			at += 8;
		} else if (next == 51) {
			at += ((__u32)header.length + 2) * 4;
		} else {
			at += ((__u32)header.length + 1) * 8;
		}
		next = header.next;
	}
	if (next == 0 || next == 43 || next == 44 || next == 60 || next == 51)
		return TOO_MANY_EXTENSIONS;
	packet->protocol = next;
	/* Packets with extension headers are few, and each further way of reading costs the verifier much. */
	if (at != offset + sizeof(ip))
		start = UNKNOWN_START;
	return parse_segment(skb, start, at, 1, packet, quoted);
}

static inline_always int is_lower(const struct packet *packet)
{
	if (packet->source.high != packet->destination.high)
		return packet->source.high < packet->destination.high;
	if (packet->source.low != packet->destination.low)
		return packet->source.low < packet->destination.low;
	return packet->source_port <= packet->destination_port;
}

/* Both directions of a connection have one key. */
static inline_always void flow_of(const struct packet *packet, struct flow_key *key)
{
	int from_low = is_lower(packet);

	key->low = from_low ? packet->source : packet->destination;
	key->high = from_low ? packet->destination : packet->source;
	key->ports = from_low ? packet->source_port | (__u32)packet->destination_port << 16
			      : packet->destination_port | (__u32)packet->source_port << 16;
	key->ports |= (__u64)packet->ip_protocol << 32;
}

static inline_always int is_equal(const struct address *one, const struct address *other)
{
	return one->high == other->high && one->low == other->low;
}

/* The start of a TCP or UDP header. */
struct plain_segment {
	__u16 source_port;
	__u16 destination_port;
	__u32 unused[2];
	__u8 offset;
	__u8 tcp_flags;
};

/*
 * Parses TCP and UDP over IPv4, in a frame without options and fragments, as `parse` does except for its flow. Most packets
 * are such ones, and a call costs as much as this. Returns 0 for any other packet, and leaves `packet` as it is.
 */
static inline_always int parse_plain(struct __sk_buff *skb, struct packet *packet, int is_ethernet)
{
	const struct ethernet *frame = (const void *)(long)skb->data;
	const struct ipv4 *ip = (const void *)(frame + 1);
	const struct plain_segment *segment = (const void *)(ip + 1);
	__u8 first;

	if ((const void *)&segment->tcp_flags + 1 > (const void *)(long)skb->data_end ||
	    (__u16)skb->protocol != from_be16(ETH_IPV4) || frame->type != from_be16(ETH_IPV4))
		return 0;
	first = frame->destination[0] >> 4;
	if (!is_ethernet && (first == 4 || first == 6))
		return 0;
	/* The bytes behind the packet's own length are not of its header. */
	if (from_be16(ip->length) < sizeof(*ip) + 14)
		return 0;
	if (ip->version != 0x45 || (ip->fragment & from_be16(0x3fff)) || (ip->protocol != TCP && ip->protocol != UDP))
		return 0;
	map_v4(&packet->source, ip->source);
	map_v4(&packet->destination, ip->destination);
	packet->protocol = ip->protocol;
	packet->ip_protocol = ip->protocol;
	packet->offset = sizeof(*ip);
	packet->source_port = from_be16(segment->source_port);
	packet->destination_port = from_be16(segment->destination_port);
	packet->key = packet->protocol << 16 | packet->destination_port;
	packet->tcp_flags = ip->protocol == TCP ? segment->tcp_flags : 0;
	packet->is_error = 0;
	packet->hop_limit = ip->ttl;
	packet->has_flow = 1;
	packet->is_fragment = 0;
	packet->fragment = 0;
	return 1;
}

/*
 * Parses the packet that an ICMP error quotes, at this offset from the error's IP header. Returns 0 if the quoted packet is no
 * error.
 */
static inline_always int parse_inner(struct __sk_buff *skb, __u32 at, struct packet *inner)
{
	__u32 quoted = 0;
	enum parsed parsed = from_be16(skb->protocol) == ETH_IPV4 ? parse_v4(skb, UNKNOWN_START, at, inner, &quoted)
								  : parse_v6(skb, UNKNOWN_START, at, inner, &quoted);

	return parsed == PARSED && !quoted ? 0 : -1;
}

/*
 * Parses a packet. The flow of an ICMP error is that of the packet that it quotes, and `is_error` is set, if its receiver
 * sent that packet. `*from_low` says whether the packet, or the quoted one, is from the lower end of its flow.
 * `is_ethernet` says that the link has Ethernet frames; it is 0 if that is not known.
 */
checked_alone int parse(struct __sk_buff *skb, struct packet *packet, struct flow_key *key, int *from_low,
			int is_ethernet)
{
	__u16 type = from_be16(skb->protocol);
	__u32 quoted = 0, start;
	struct packet inner;
	enum parsed parsed;

	if (!packet || !key || !from_low)
		return MALFORMED_V4;
	start = start_of(skb, is_ethernet);
	if (type == ETH_IPV4)
		parsed = parse_v4(skb, start, 0, packet, &quoted);
	else if (type == ETH_IPV6)
		parsed = parse_v6(skb, start, 0, packet, &quoted);
	else
		return OTHER;
	flow_of(packet, key);
	*from_low = is_lower(packet);
	if (parsed != PARSED || !quoted)
		return parsed;
	inner = (struct packet){ .is_error = 1 };
	/* If the quoted packet cannot be parsed, the error is a packet of its own. */
	if (!parse_inner(skb, quoted, &inner) && is_equal(&inner.source, &packet->destination)) {
		packet->is_error = 1;
		flow_of(&inner, key);
		*from_low = is_lower(&inner);
	}
	return PARSED;
}
