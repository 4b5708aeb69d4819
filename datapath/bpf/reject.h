/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Answers a rejected packet: TCP by a reset, other protocols by ICMP "administratively prohibited", or "port unreachable" where
 * a Service has no backend.
 */
#pragma once

#include "packet.h"

#define TCP_FIN 0x1
#define TCP_SYN 0x2
#define TCP_RST 0x4
#define TCP_ACK 0x10

/* True if the packet asks for a connection. Other protocols than TCP have no sign of that. */
static inline_always int is_start(const struct packet *packet)
{
	return packet->protocol != TCP || (packet->tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_SYN;
}

struct tcp {
	__u16 source;
	__u16 destination;
	__u32 sequence;
	__u32 acknowledgment;
	__u8 offset;
	__u8 flags;
	__u16 window;
	__u16 checksum;
	__u16 urgent;
};

struct icmp {
	__u8 type;
	__u8 code;
	__u16 checksum;
	__u32 unused;
};

#define QUOTED_V4 (sizeof(struct ipv4) + 8)
#define QUOTED_V6 (sizeof(struct ipv6) + 8)

/* The segment of an answer. */
union segment {
	struct tcp tcp;
	struct {
		struct icmp icmp;
		__u8 quoted[QUOTED_V6];
	};
};

static inline_always __u16 fold(__s64 sum)
{
	__u64 value = (__u32)sum;

	value = (value & 0xffff) + (value >> 16);
	value = (value & 0xffff) + (value >> 16);
	return ~(__u16)value;
}

/* The addresses of the answer are those of the packet, exchanged. */
static inline_always __s64 pseudo_header(const struct packet *packet, int is_v6, __u32 length, __u32 protocol)
{
	struct {
		struct address source;
		struct address destination;
		__u32 length;
		__u32 protocol;
	} v6 = { packet->destination, packet->source, __builtin_bswap32(length),
		 __builtin_bswap32(protocol) };
	struct {
		__u32 source;
		__u32 destination;
		__u8 zero;
		__u8 protocol;
		__u16 length;
	} v4 = { packet->destination.low >> 32, packet->source.low >> 32, 0, protocol, from_be16(length) };

	return is_v6 ? csum_diff(0, 0, (__u32 *)&v6, sizeof(v6), 0)
		     : csum_diff(0, 0, (__u32 *)&v4, sizeof(v4), 0);
}

static inline_always int is_same(const __u8 *one, const __u8 *other)
{
	return *(const __u32 *)one == *(const __u32 *)other &&
	       *(const __u32 *)(one + 4) == *(const __u32 *)(other + 4) &&
	       *(const __u32 *)(one + 8) == *(const __u32 *)(other + 8);
}

/* The length of a TCP segment's data, with its SYN and FIN. */
static inline_always __u32 segment_length(struct __sk_buff *skb, const struct packet *packet, int is_v6,
					  const struct tcp *tcp)
{
	__u16 total;
	__u32 end;

	if (skb_load(skb, is_v6 ? 4 : 2, &total, 2))
		return 0;
	end = from_be16(total) + (is_v6 ? sizeof(struct ipv6) : 0);
	return end - packet->offset - (tcp->offset >> 4) * 4 + !!(tcp->flags & TCP_SYN) +
	       !!(tcp->flags & TCP_FIN);
}

/*
 * Turns the packet into an answer to its sender. Returns 0 if there is none: for an answer, an error, or a part of a
 * packet.
 */
checked_alone int make_answer(struct __sk_buff *skb, const struct packet *packet, int is_port)
{
	union segment segment = {};
	__u8 macs[12] __attribute__((aligned(4))), exchanged[12] __attribute__((aligned(4)));
	int is_v6 = skb->protocol == from_be16(ETH_IPV6);
	__u32 length = sizeof(struct tcp), header = is_v6 ? sizeof(struct ipv6) : sizeof(struct ipv4);
	__u8 protocol = TCP;

	if (!packet || packet->is_error || packet->is_fragment)
		return 0;
	if (packet->protocol == TCP) {
		struct tcp tcp;

		if (skb_load(skb, packet->offset, &tcp, sizeof(tcp)) || (tcp.flags & TCP_RST))
			return 0;
		segment.tcp.source = tcp.destination;
		segment.tcp.destination = tcp.source;
		segment.tcp.offset = sizeof(struct tcp) / 4 << 4;
		if (tcp.flags & TCP_ACK) {
			segment.tcp.sequence = tcp.acknowledgment;
			segment.tcp.flags = TCP_RST;
		} else {
			segment.tcp.acknowledgment = __builtin_bswap32(
				__builtin_bswap32(tcp.sequence) + segment_length(skb, packet, is_v6, &tcp));
			segment.tcp.flags = TCP_RST | TCP_ACK;
		}
	} else {
		if (packet->ip_protocol == ICMP || packet->ip_protocol == ICMPV6) {
			__u8 type;

			if (skb_load(skb, packet->offset, &type, 1) || is_icmp_error(is_v6, type))
				return 0;
		}
		protocol = is_v6 ? ICMPV6 : ICMP;
		segment.icmp.type = is_v6 ? 1 : 3;
		segment.icmp.code = is_v6 ? (is_port ? 4 : 1) : (is_port ? 3 : 13);
		if (is_v6) {
			length = sizeof(struct icmp) + QUOTED_V6;
			if (skb_load(skb, 0, segment.quoted, QUOTED_V6))
				return 0;
		} else {
			length = sizeof(struct icmp) + QUOTED_V4;
			/* With IP options the segment starts later. */
			if (packet->offset != sizeof(struct ipv4) ||
			    skb_load(skb, 0, segment.quoted, QUOTED_V4))
				return 0;
		}
	}
	/* Both loads read the same bytes if the packet has an Ethernet header. */
	if (skb_load_frame(skb, ETH_HEADER, macs, 12) || skb_load(skb, 0, exchanged, 12) ||
	    !is_same(macs, exchanged) || skb_load_frame(skb, 0, macs, sizeof(macs)))
		return 0;
	__builtin_memcpy(exchanged, macs + 6, 6);
	__builtin_memcpy(exchanged + 6, macs, 6);

	__s64 sum = protocol == ICMP ? 0 : pseudo_header(packet, is_v6, length, protocol);

	sum = csum_diff(0, 0, (__u32 *)&segment,
			protocol == TCP	 ? sizeof(struct tcp)
			: is_v6		 ? sizeof(struct icmp) + QUOTED_V6
					 : sizeof(struct icmp) + QUOTED_V4,
			sum);
	if (protocol == TCP)
		segment.tcp.checksum = fold(sum);
	else
		segment.icmp.checksum = fold(sum);
	if (change_tail(skb, ETH_HEADER + header + length, 0) || store(skb, 0, exchanged, sizeof(exchanged), 0))
		return 0;
	if (is_v6) {
		struct ipv6 ip = {
			.version = __builtin_bswap32(6u << 28),
			.length = from_be16(length),
			.next = protocol,
			.hops = 64,
			.source = packet->destination,
			.destination = packet->source,
		};

		if (store(skb, ETH_HEADER, &ip, sizeof(ip), 0))
			return 0;
	} else {
		struct ipv4 ip = {
			.version = 0x45,
			.length = from_be16(sizeof(ip) + length),
			.ttl = 64,
			.protocol = protocol,
			.source = packet->destination.low >> 32,
			.destination = packet->source.low >> 32,
		};

		ip.checksum = fold(csum_diff(0, 0, (__u32 *)&ip, sizeof(ip), 0));
		if (store(skb, ETH_HEADER, &ip, sizeof(ip), 0))
			return 0;
	}
	if (protocol == TCP)
		return !store(skb, ETH_HEADER + header, &segment, sizeof(struct tcp), 0);
	if (is_v6)
		return !store(skb, ETH_HEADER + header, &segment, sizeof(struct icmp) + QUOTED_V6, 0);
	return !store(skb, ETH_HEADER + header, &segment, sizeof(struct icmp) + QUOTED_V4, 0);
}
