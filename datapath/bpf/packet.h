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

/* True for errors, whose data is the packet that caused them. */
static inline_always int is_icmp_error(int is_v6, __u8 type)
{
	return is_v6 ? type >= 1 && type <= 4 : type == 3 || type == 4 || type == 11 || type == 12;
}

/* Parses the header after IP. Of an ICMP error, `*quoted` becomes the offset of the packet in it. */
static inline_always enum parsed parse_segment(struct __sk_buff *skb, __u32 offset, int is_v6,
					       struct packet *packet, __u32 *quoted)
{
	__u8 start[4];
	__u8 protocol = packet->protocol;

	*quoted = 0;
	packet->ip_protocol = protocol;
	packet->offset = offset;
	packet->has_flow = 1;
	if (protocol == TCP || protocol == UDP || protocol == SCTP) {
		if (skb_load(skb, offset, start, 4))
			return MALFORMED_PORTS;
		packet->source_port = (__u16)start[0] << 8 | start[1];
		packet->destination_port = (__u16)start[2] << 8 | start[3];
		packet->key = (__u32)protocol << 16 | packet->destination_port;
		/* A quoted packet may end after 8 bytes. */
		if (protocol == TCP && !packet->is_error && skb_load(skb, offset + 13, &packet->tcp_flags, 1))
			return MALFORMED_PORTS;
		return PARSED;
	}
	if (protocol == (is_v6 ? ICMPV6 : ICMP)) {
		__u8 echo[2];

		if (skb_load(skb, offset, start, 4))
			return MALFORMED_ICMP;
		packet->protocol = ICMP;
		packet->key = (__u32)ICMP << 16 | (__u32)start[0] << 8 | start[1];
		/* Forwarded packets have a lower hop limit. */
		if (is_v6 && start[0] >= 133 && start[0] <= 137 && packet->hop_limit == 255)
			return NEIGHBOR;
		packet->has_flow = is_v6 ? start[0] == ECHO_V6 || start[0] == ECHO_REPLY_V6
					 : start[0] == ECHO_V4 || start[0] == ECHO_REPLY_V4;
		if (is_icmp_error(is_v6, start[0])) {
			*quoted = offset + 8;
			return PARSED;
		}
		if (skb_load(skb, offset + 4, echo, 2))
			return MALFORMED_ICMP;
		/* The identifier of an echo stands for both ports. */
		packet->source_port = (__u16)echo[0] << 8 | echo[1];
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

static inline_always enum parsed parse_v4(struct __sk_buff *skb, __u32 offset, struct packet *packet,
					  __u32 *quoted)
{
	struct ipv4 ip;
	__u32 length;

	if (skb_load(skb, offset, &ip, sizeof(ip)))
		return MALFORMED_V4;
	length = (ip.version & 0xf) * 4;
	if (ip.version >> 4 != 4 || length < sizeof(ip))
		return MALFORMED_V4;
	map_v4(&packet->source, ip.source);
	map_v4(&packet->destination, ip.destination);
	packet->protocol = ip.protocol;
	packet->ip_protocol = ip.protocol;
	packet->is_fragment = (from_be16(ip.fragment) & 0x3fff) != 0;
	packet->fragment = ip.id;
	if (from_be16(ip.fragment) & 0x1fff)
		return LATER_FRAGMENT;
	return parse_segment(skb, offset + length, 0, packet, quoted);
}

static inline_always enum parsed parse_v6(struct __sk_buff *skb, __u32 offset, struct packet *packet,
					  __u32 *quoted)
{
	struct ipv6 ip;
	__u8 next;
	__u32 at = offset + sizeof(ip);

	if (skb_load(skb, offset, &ip, sizeof(ip)) || (ip.version & 0xf0) != 0x60)
		return MALFORMED_V6;
	packet->source = ip.source;
	packet->destination = ip.destination;
	packet->hop_limit = ip.hops;
	next = ip.next;
#pragma unroll
	for (int i = 0; i < EXTENSIONS; i++) {
		__u8 header[4];

		/* Hop-by-hop options, routing, fragment, destination options, authentication. */
		if (next != 0 && next != 43 && next != 44 && next != 60 && next != 51)
			break;
		if (skb_load(skb, at, header, 4))
			return MALFORMED_EXTENSION;
		if (next == 44) {
			packet->protocol = header[0];
			packet->ip_protocol = header[0];
			packet->is_fragment = 1;
			if (skb_load(skb, at + 4, &packet->fragment, 4))
				return MALFORMED_EXTENSION;
			if (((__u16)header[2] << 8 | header[3]) & 0xfff8)
				return LATER_FRAGMENT;
			at += 8;
		} else if (next == 51) {
			at += ((__u32)header[1] + 2) * 4;
		} else {
			at += ((__u32)header[1] + 1) * 8;
		}
		next = header[0];
	}
	if (next == 0 || next == 43 || next == 44 || next == 60 || next == 51)
		return TOO_MANY_EXTENSIONS;
	packet->protocol = next;
	return parse_segment(skb, at, 1, packet, quoted);
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
	key->low_port = from_low ? packet->source_port : packet->destination_port;
	key->high_port = from_low ? packet->destination_port : packet->source_port;
	key->protocol = packet->ip_protocol;
}

static inline_always int is_equal(const struct address *one, const struct address *other)
{
	return one->high == other->high && one->low == other->low;
}

/*
 * Parses a packet. The flow of an ICMP error is that of the packet that it quotes, and `is_error` is set, if its receiver
 * sent that packet. `*from_low` says whether the packet, or the quoted one, is from the lower end of its flow.
 */
checked_alone int parse(struct __sk_buff *skb, struct packet *packet, struct flow_key *key,
			int *from_low)
{
	__u16 type = from_be16(skb->protocol);
	__u32 quoted = 0, unused = 0;
	struct packet inner = {};
	enum parsed parsed;

	if (!packet || !key || !from_low)
		return MALFORMED_V4;
	if (type == ETH_IPV4)
		parsed = parse_v4(skb, 0, packet, &quoted);
	else if (type == ETH_IPV6)
		parsed = parse_v6(skb, 0, packet, &quoted);
	else
		return OTHER;
	flow_of(packet, key);
	*from_low = is_lower(packet);
	if (parsed != PARSED || !quoted)
		return parsed;
	inner.is_error = 1;
	parsed = type == ETH_IPV4 ? parse_v4(skb, quoted, &inner, &unused)
				  : parse_v6(skb, quoted, &inner, &unused);
	/* If the quoted packet cannot be parsed, the error is a packet of its own. */
	if (parsed == PARSED && !unused && is_equal(&inner.source, &packet->destination)) {
		packet->is_error = 1;
		flow_of(&inner, key);
		*from_low = is_lower(&inner);
	}
	return PARSED;
}
