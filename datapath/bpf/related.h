/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * ICMP errors about connections to Services, and later fragments of their packets. An error has the ports of the packet that
 * it quotes, and a later fragment those of the first one. Rows of earlier packets have their addresses. Neither changes a row
 * of a connection.
 *
 * An error quotes a packet as it was where the error comes from. The receiver of the error has sent that packet with other
 * addresses. So the quoted packet gets these again, and the error too where an end is the same one.
 *
 * Such packets are few, so the functions are apart from the programs: each further path of a program costs the verifier much.
 */
#pragma once

#include "fast.h"

/* Largest offset of a quoted packet from the IP header of its error. */
#define LAST_QUOTED 0x7fffu

/* Parses the packet that the ICMP error in `work` quotes. Returns 0 if it is one with ports. */
checked_alone int parse_quoted(struct __sk_buff *skb)
{
	struct work *work = work_of();

	if (!work)
		return -1;
	__builtin_memset(&work->quoted, 0, sizeof(work->quoted));
	/* It may end before the flags of TCP. */
	work->quoted.is_error = 1;
	/* The verifier needs the limit. */
	if (parse_inner(skb, (work->packet.offset + 8) & LAST_QUOTED, &work->quoted))
		return -1;
	return has_ports(work->quoted.protocol) ? 0 : -1;
}

/* An end of a quoted packet, and the checksum of its segment. */
struct quoted_end {
	struct address address;
	__u16 port;
	__u16 checksum;
	__u32 unused;
};

/* The end of the IP packet, from its header on. */
static inline_always __u32 end_of(struct __sk_buff *skb, int is_v6)
{
	__u16 length;

	if (skb_load(skb, is_v6 ? 4 : 2, &length, sizeof(length)))
		return 0;
	return from_be16(length) + (is_v6 ? sizeof(struct ipv6) : 0);
}

/*
 * Changes the source or the destination of the packet that an ICMP error quotes. Both packets are in `work`, and the frame has
 * an Ethernet header. Returns 0 if the quoted packet has changed.
 */
checked_alone int requote(struct __sk_buff *skb, const struct address *to, __u32 port, int is_source)
{
	struct work *work = work_of();
	struct quoted_end old = {}, new = {};
	int is_v6 = skb->protocol == from_be16(ETH_IPV6);
	__u32 header, segment, at;
	__u16 before = 0;
	__s64 sum;

	if (!work || !to)
		return -1;
	old.address = is_source ? work->quoted.source : work->quoted.destination;
	old.port = from_be16(is_source ? work->quoted.source_port : work->quoted.destination_port);
	new.address = *to;
	new.port = from_be16(port);
	header = ETH_HEADER + work->packet.offset + 8;
	segment = ETH_HEADER + work->quoted.offset;
	at = checksum_at(work->quoted.protocol);
	/* The quoted packet may end before its checksum, and UDP may have none. */
	if (at && work->quoted.offset + at + 2 <= end_of(skb, is_v6) && !skb_load_frame(skb, segment + at, &before, 2) &&
	    (before || work->quoted.protocol == TCP)) {
		/* IPv4 addresses are mapped, and the words before them are the same. */
		sum = csum_diff((__u32 *)&old, sizeof(old), (__u32 *)&new, sizeof(new), (__u16)~before);
		new.checksum = fold(sum);
		if (!new.checksum && work->quoted.protocol == UDP)
			new.checksum = 0xffff;
		old.checksum = before;
		if (store(skb, segment + at, &new.checksum, 2, 0))
			return -1;
	}
	if (is_v6) {
		if (store(skb, header + (is_source ? 8 : 24), &new.address, sizeof(new.address), 0))
			return -1;
	} else {
		__u32 from = old.address.low >> 32, target = new.address.low >> 32;

		if (ip_checksum(skb, header + 10, from, target, 4) ||
		    store(skb, header + (is_source ? 12 : 16), &target, 4, 0))
			return -1;
		/* For the checksum of the error, the checksum of the quoted IPv4 header has made up for the address. */
		new.address = old.address;
	}
	if (old.port != new.port && store(skb, segment + (is_source ? 0 : 2), &new.port, 2, 0))
		return -1;
	sum = csum_diff((__u32 *)&old, sizeof(old), (__u32 *)&new, sizeof(new), 0);
	return segment_checksum(skb, ETH_HEADER + work->packet.offset + 2, 0, (__u32)sum, 0);
}

/* True if a pod of this node has sent the packet. */
static inline_always int is_of_pod(struct __sk_buff *skb)
{
	return skb->ingress_ifindex && has_pod(skb->ingress_ifindex);
}

/* True for a later fragment to a cluster IP. The host's stack has no use for it. */
static inline_always int is_to_cluster_ip(const struct packet *packet)
{
	struct frontend_key place = { .address = packet->destination };

	return map_lookup(&frontends, &place) != 0;
}

/*
 * Gives a pod's error about an answer of a Service, or its later fragment to a Service, the address of the backend. The packet
 * in `work` has the pod's source. Returns 0, or the reason for which the packet is dropped.
 */
checked_alone __u32 related_from_pod(struct __sk_buff *skb, int is_error)
{
	__u32 first = 0, reason;
	struct work *work = work_of();
	struct service_work *service = map_lookup(&service_works, &first);
	struct packet *packet, *quoted;
	struct choice *choice;

	if (!work || !service)
		return NO_WORK;
	packet = &work->packet;
	quoted = &work->quoted;
	if (is_error) {
		/* A pod sends errors about packets to itself only. */
		if (parse_quoted(skb) || !is_equal(&quoted->destination, &packet->source))
			return 0;
		key_of(&quoted->destination, quoted->destination_port, &quoted->source, quoted->source_port,
		       quoted->protocol, &service->key);
	} else {
		reason = recall_ports(skb, work, &service_fragments, time_of(work));
		if (reason)
			return is_to_cluster_ip(packet) ? reason : 0;
		key_of(&packet->source, packet->source_port, &packet->destination, packet->destination_port,
		       packet->protocol, &service->key);
	}
	hairpin_address(skb->protocol == from_be16(ETH_IPV6), &service->choice.address);
	if (is_equal(&service->key.high, &service->choice.address)) {
		/* The other direction of a packet to itself. */
		service->choice.address = packet->source;
		service->choice.port = service->key.high_port;
	} else {
		choice = map_lookup(&choices, &service->key);
		if (!choice)
			return is_error ? 0 : NO_BACKEND;
		service->choice = *choice;
		if (is_error && choice->source_port && requote(skb, &quoted->destination, choice->source_port, 0))
			return NO_BACKEND;
	}
	if (is_error && requote(skb, &service->choice.address, service->choice.port, 1))
		return NO_BACKEND;
	return rewrite(skb, packet, &service->choice.address, 0, 0) ? NO_BACKEND : 0;
}

/*
 * Gives an error about a pod's packet to a Service, or a later fragment of an answer, the address that the pod asked for.
 * `receiver` is the pod's link. Returns 0, or the reason for which the packet is dropped.
 */
checked_alone __u32 related_to_pod(struct __sk_buff *skb, int is_error, __u32 receiver)
{
	__u32 first = 0;
	struct work *work = work_of();
	struct service_work *service = map_lookup(&service_works, &first);
	struct packet *packet, *quoted;
	struct asked_address *asked;
	struct choice *choice;
	int is_of_backend;

	if (!work || !service)
		return NO_WORK;
	packet = &work->packet;
	quoted = &work->quoted;
	if (is_error) {
		if (parse_quoted(skb))
			return 0;
		key_of(&quoted->source, quoted->source_port, &quoted->destination, quoted->destination_port,
		       quoted->protocol, &service->key);
	} else {
		if (recall_ports(skb, work, &service_fragments, time_of(work)))
			return 0;
		key_of(&packet->destination, packet->destination_port, &packet->source, packet->source_port,
		       packet->protocol, &service->key);
	}
	is_of_backend = is_equal(&packet->source, &service->key.high);
	asked = map_lookup(&asked_addresses, &service->key);
	if (asked) {
		service->asked = *asked;
	} else if (is_equal(&service->key.low, &service->key.high)) {
		hairpin_address(skb->protocol == from_be16(ETH_IPV6), &service->asked.address);
		service->asked.port = service->key.high_port;
		service->asked.client_port = 0;
	} else {
		/*
		 * The pod's packets have the address of the backend behind its link, so an error from there quotes that
		 * one. An answer of `refuse` comes from the link itself.
		 */
		choice = is_error && skb->ingress_ifindex != receiver ? map_lookup(&choices, &service->key) : 0;
		return choice && is_chosen(choice, quoted, time_of(work)) ? STRAY_ERROR : 0;
	}
	/* Another pod is not on the way to the backend. */
	if (!is_of_backend && is_of_pod(skb))
		return 0;
	if (is_error && service->asked.client_port && requote(skb, &quoted->source, service->asked.client_port, 1))
		return NO_BACKEND;
	if (is_error && requote(skb, &service->asked.address, service->asked.port, 0))
		return NO_BACKEND;
	/* A router has its own address. */
	if (!is_of_backend)
		return 0;
	return rewrite(skb, packet, &service->asked.address, 0, 1) ? NO_BACKEND : 0;
}

/* True if a link has this address, from which packets are masqueraded. */
static inline_always int is_of_wire(__u32 link, const struct address *address)
{
	struct wire *wire = map_lookup(&wires, &link);

	return wire && is_equal(is_v4(address) ? &wire->v4 : &wire->v6, address);
}

/*
 * Finds the connection of a packet from the node to a backend on another node, and puts its row into `flow` of `outside`.
 * Returns 0 if there is one.
 */
static inline_always int find_masqueraded(const struct packet *request, struct outside_work *outside, __u64 now)
{
	struct outside_flow *flow;

	key_of(&request->source, request->source_port, &request->destination, request->destination_port,
	       request->protocol, &outside->service.key);
	flow = map_lookup(&outside_flows, &outside->service.key);
	if (!flow || is_over(flow, request->protocol, now) || is_equal(&flow->client, &request->source))
		return -1;
	outside->flow = *flow;
	return 0;
}

/* The other direction of a packet's ends. */
static inline_always void turn_ends(const struct packet *packet, struct packet *to)
{
	to->source = packet->destination;
	to->destination = packet->source;
	to->source_port = packet->destination_port;
	to->destination_port = packet->source_port;
	to->protocol = packet->protocol;
	to->ip_protocol = packet->ip_protocol;
}

/*
 * Finds the choice for a connection of a client outside, and puts it into `service` of `outside`. For a backend on another node
 * the way there is put into `outside` too. `request` is a packet of the client. Returns 0 if there is one.
 */
static inline_always int find_choice(struct __sk_buff *skb, const struct packet *request, struct outside_work *outside,
				     __u64 now)
{
	struct service_work *service = &outside->service;
	struct outside_flow *flow;
	struct choice *choice;

	key_of(&request->source, request->source_port, &request->destination, request->destination_port,
	       request->protocol, &service->key);
	choice = map_lookup(&outside_choices, &service->key);
	if (!choice)
		return -1;
	service->choice = *choice;
	if (service->choice.source_port) {
		if (way_to(skb, request, outside) != WAY_OUT)
			return -1;
		key_of_port(request, outside, service->choice.source_port);
	} else {
		key_of(&request->source, request->source_port, &service->choice.address, service->choice.port,
		       request->protocol, &service->client);
	}
	flow = map_lookup(&outside_flows, &service->client);
	if (!flow || !is_of(flow, request) || flow->link != skb->ifindex || is_over(flow, request->protocol, now))
		return -1;
	return 0;
}

/* Translates an error or a later fragment from outside, as `from_wire` does with other packets. */
checked_alone int related_from_wire(struct __sk_buff *skb, int is_error)
{
	__u32 first = 0;
	struct work *work = work_of();
	struct outside_work *outside = map_lookup(&outside_works, &first);
	struct packet *packet, *request;
	struct address source;
	__u64 now;

	if (!work || !outside)
		return TC_ACT_SHOT;
	packet = &work->packet;
	request = &work->request;
	now = time_of(work);
	if (is_error) {
		if (parse_quoted(skb))
			return TC_ACT_UNSPEC;
		/* About a packet from the node to a backend. The VPC delivers it to the link with that address. */
		if (is_of_wire(skb->ifindex, &packet->destination) && !find_masqueraded(&work->quoted, outside, now)) {
			if (requote(skb, &outside->flow.client, outside->flow.client_port, 1) ||
			    requote(skb, &outside->flow.asked, outside->flow.asked_port, 0))
				return lose(NO_BACKEND);
			/* Also an error of a router gets the asked address: the VPC drops a router's address from this link. */
			return return_to_client(skb, packet);
		}
		turn_ends(&work->quoted, request);
	} else {
		if (recall_ports(skb, work, &outside_fragments, now))
			return TC_ACT_UNSPEC;
		turn_ends(packet, request);
		if (is_own_address(&packet->destination) && !find_masqueraded(request, outside, now))
			return return_to_client(skb, packet);
		*request = *packet;
	}
	if (find_choice(skb, request, outside, now))
		return TC_ACT_UNSPEC;
	if (is_error && requote(skb, &outside->service.choice.address, outside->service.choice.port, 1))
		return lose(NO_BACKEND);
	if (!outside->service.choice.source_port)
		return rewrite(skb, packet, &outside->service.choice.address, 0, 0) ? lose(NO_BACKEND) : TC_ACT_UNSPEC;
	source = *source_of(outside);
	if (is_error && requote(skb, &source, outside->service.choice.source_port, 0))
		return lose(NO_BACKEND);
	return send_out(skb, packet);
}

/* Translates an error about a packet of a client outside to a backend here, or a later fragment of the backend's answer. */
checked_alone int related_to_wire(struct __sk_buff *skb, int is_error)
{
	__u32 first = 0;
	struct work *work = work_of();
	struct outside_work *outside = map_lookup(&outside_works, &first);
	struct packet *packet, *quoted;
	struct outside_flow *flow;
	struct flow_key *key;
	int is_of_backend;
	__u64 now;

	if (!work || !outside)
		return TC_ACT_SHOT;
	packet = &work->packet;
	quoted = &work->quoted;
	key = &outside->service.key;
	now = time_of(work);
	if (is_error) {
		if (parse_quoted(skb))
			return TC_ACT_UNSPEC;
		key_of(&quoted->source, quoted->source_port, &quoted->destination, quoted->destination_port,
		       quoted->protocol, key);
	} else {
		if (recall_ports(skb, work, &outside_fragments, now))
			return TC_ACT_UNSPEC;
		key_of(&packet->destination, packet->destination_port, &packet->source, packet->source_port,
		       packet->protocol, key);
	}
	is_of_backend = is_equal(&packet->source, &key->high);
	/* Another pod is not on the way to the backend. */
	if (!is_of_backend && is_of_pod(skb))
		return TC_ACT_UNSPEC;
	flow = map_lookup(&outside_flows, key);
	if (!flow || !is_equal(&flow->client, &key->low) || is_over(flow, key->protocol, now) || !has_ethernet(skb))
		return TC_ACT_UNSPEC;
	outside->flow = *flow;
	if (is_error && requote(skb, &outside->flow.asked, outside->flow.asked_port, 0))
		return lose(NO_BACKEND);
	/* The stack has sent it from an address of this link. */
	if (!is_of_backend)
		return TC_ACT_UNSPEC;
	if (rewrite(skb, packet, &outside->flow.asked, 0, 1))
		return lose(NO_BACKEND);
	return outside->flow.link == skb->ifindex ? TC_ACT_UNSPEC : return_by(skb, &outside->flow);
}
