/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Services: at the client's own link, the address that it asks for becomes that of a backend. The last step before the client
 * gives answers the address that was asked for. So policies and the host's stack see the pods on both ends.
 */
#pragma once

#include "reject.h"

/* A place at which a Service is found. */
struct frontend_key {
	/* 0.0.0.0 or :: for a node port of that family. */
	struct address address;
	/* 0, with protocol 0, for a cluster IP itself. */
	__u16 port;
	__u16 protocol;
	__u32 unused;
};

struct frontend {
	/* The index of its words in `service_words`. */
	__u32 word;
	/* HAS_SOURCES, and the seconds for which a client keeps its backend; 0 without affinity. */
	__u32 affinity;
};

/* Of `affinity`: only the clients in `source_ranges` are served. */
#define HAS_SOURCES 0x80000000u
#define AFFINITY_SECONDS(frontend) ((frontend)->affinity & ~HAS_SOURCES)

/* A range of clients that a frontend serves. */
struct source_range {
	/* 32 bits of the word, and those of the address. */
	__u32 length;
	/* The first word of the frontend. Other ranges have another word. */
	__u32 word;
	struct address address;
};

/* The length of one client. */
#define SOURCE_BITS 160

/* The words of a frontend: for clients on the node, and for clients from outside. */
#define WORD_INSIDE 0
#define WORD_OUTSIDE 1
/* Of a word: the number of a table, the number of its backends, the size of the table, an action. */
#define WORD_TABLE(word) ((__u32)(word))
#define WORD_COUNT(word) ((__u32)((word) >> 32) & 0x3fff)
#define WORD_SIZE(word) ((__u32)((word) >> 48) & 0x3)
#define WORD_ACTION(word) ((__u32)((word) >> 56))

enum service_action {
	/* One of the backends. */
	SERVICE_CHOOSE,
	SERVICE_NO_ENDPOINTS,
	SERVICE_NO_LOCAL_ENDPOINTS,
	SERVICE_NO_SUCH_PORT,
	/* Not in a word: the client is outside the source ranges. */
	SERVICE_SOURCE_RANGE,
};

#define BACKENDS_SMALL 16
#define BACKENDS_MEDIUM 512
#define BACKENDS_LARGE 8192

struct backends_small {
	__u32 of[BACKENDS_SMALL];
};

struct backends_medium {
	__u32 of[BACKENDS_MEDIUM];
};

struct backends_large {
	__u32 of[BACKENDS_LARGE];
};

/* By number. Another backend gets the number of a removed one with another life. */
struct backend {
	struct address address;
	__u16 port;
	/* 0 for a backend that was removed. */
	__u16 is_present;
	__u32 life;
};

/* The choice for a client's connection. Its key has the client as `low` and the address that was asked for as `high`. */
struct choice {
	struct address address;
	__u16 port;
	/*
	 * The port towards the backend in place of the client's. 0 keeps it. For a client outside it is a port of the node,
	 * whose address is the source too.
	 */
	__u16 source_port;
	__u32 backend;
	__u32 life;
	/* CHOICE_TICK of the last packet. */
	__u32 seen;
};

/* The address that was asked for. Its key has the client as `low` and the backend as `high`. */
struct asked_address {
	struct address address;
	__u16 port;
	/* The port of the client, if packets to the backend have another one; 0 otherwise. */
	__u16 client_port;
	__u16 unused[2];
};

/* The ports of a fragmented packet, for its later fragments. */
struct fragment_ports {
	/* Of the first fragment, in nanoseconds since the boot. */
	__u64 seen;
	__u16 source_port;
	__u16 destination_port;
	/* At which it was translated. The packet has the same key at other links that it passes. */
	__u32 link;
};

/* The last choice for a client. Its key has the client as `low`, without a port, and the frontend as `high`. */
struct affinity {
	__u32 backend;
	__u32 life;
	/* Of the last choice, in nanoseconds since the boot. */
	__u64 seen;
};

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_HASH);
	MAP_TYPE(key, struct frontend_key);
	MAP_TYPE(value, struct frontend);
	MAP_NUMBER(max_entries, 1);
	MAP_NUMBER(map_flags, BPF_F_NO_PREALLOC);
} frontends SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_LPM_TRIE);
	MAP_TYPE(key, struct source_range);
	MAP_TYPE(value, __u32);
	MAP_NUMBER(max_entries, 1);
	MAP_NUMBER(map_flags, BPF_F_NO_PREALLOC);
} source_ranges SEC(".maps");

/* One store changes all of a frontend's choices. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, __u64);
	MAP_NUMBER(max_entries, 2);
} service_words SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct backends_small);
	MAP_NUMBER(max_entries, 1);
} backends_small SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct backends_medium);
	MAP_NUMBER(max_entries, 1);
} backends_medium SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct backends_large);
	MAP_NUMBER(max_entries, 1);
} backends_large SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct backend);
	MAP_NUMBER(max_entries, 1);
} backends SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_LRU_HASH);
	MAP_TYPE(key, struct flow_key);
	MAP_TYPE(value, struct choice);
	MAP_NUMBER(max_entries, 1);
} choices SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_LRU_HASH);
	MAP_TYPE(key, struct flow_key);
	MAP_TYPE(value, struct asked_address);
	MAP_NUMBER(max_entries, 1);
} asked_addresses SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_LRU_HASH);
	MAP_TYPE(key, struct flow_key);
	MAP_TYPE(value, struct affinity);
	MAP_NUMBER(max_entries, 1);
} affinities SEC(".maps");

/* Fragmented packets of pods to Services, and their answers. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_LRU_HASH);
	MAP_TYPE(key, struct fragment_key);
	MAP_TYPE(value, struct fragment_ports);
	MAP_NUMBER(max_entries, 1);
} service_fragments SEC(".maps");

/* Programs that continue where another one ends. It is empty without Services. */
enum stage {
	/* After `from_pod`: chooses the backend. */
	STAGE_TO_BACKEND,
	/* After it: judges the packet. */
	STAGE_JUDGE,
	/* After `to_pod`: restores the address that was asked for. */
	STAGE_FROM_BACKEND,
	/* After `to_wire`: the same for clients outside. */
	STAGE_TO_CLIENT,
	/* After the judging stage, for packets to a fast pod. */
	STAGE_TO_POD,
	/* After it too, for packets beyond the node. */
	STAGE_TO_WIRE,
	/* After `from_wire`, for packets to a fast pod. */
	STAGE_INTO_POD,
	/* After the judging stage or `from_wire`, for ICMP errors. */
	STAGE_ERROR,
	STAGES,
};

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_PROG_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, __u32);
	MAP_NUMBER(max_entries, STAGES);
} stages SEC(".maps");

static long (*tail_call)(struct __sk_buff *skb, void *programs, __u32 index) = (void *)BPF_FUNC_tail_call;
static __u32 (*random_number)(void) = (void *)BPF_FUNC_get_prandom_u32;
static long (*ip_checksum)(struct __sk_buff *skb, __u32 offset, __u64 from, __u64 to, __u64 size) =
	(void *)BPF_FUNC_l3_csum_replace;
static long (*segment_checksum)(struct __sk_buff *skb, __u32 offset, __u64 from, __u64 to, __u64 flags) =
	(void *)BPF_FUNC_l4_csum_replace;

/*
 * The source of a pod's packet to itself, as the pod receives it: a packet to its own address would not leave the pod. Its
 * answer leaves by the default route, so the IPv6 address is not link-local: it is of the discard-only prefix (RFC 6666).
 */
#define HAIRPIN_V4 0x012afea9u /* 169.254.42.1 */

static inline_always void hairpin_address(int is_v6, struct address *to)
{
	if (is_v6) {
		/* 100::2a:1 */
		to->high = 1;
		to->low = (__u64)0x01002a00u << 32;
	} else {
		map_v4(to, HAIRPIN_V4);
	}
}

/* The place of the checksum in the segment; 0 if the protocol has none over addresses. */
static inline_always __u32 checksum_at(__u32 protocol)
{
	return protocol == TCP ? 16 : protocol == UDP ? 6 : protocol == ICMPV6 ? 2 : 0;
}

/* Of a change of a segment's checksum: a UDP packet over IPv4 may have none. */
static inline_always __u32 checksum_flags(__u32 protocol)
{
	return protocol == UDP ? BPF_F_MARK_MANGLED_0 : 0;
}

/* The place of the checksum of TCP or UDP over IPv4 without options, from the start of the frame. */
static inline_always __u32 checksum_of_plain(__u32 protocol)
{
	return ETH_HEADER + sizeof(struct ipv4) + checksum_at(protocol);
}

/* The addresses and ports of TCP or UDP over IPv4 without options, from the checksum of the IP header on. */
struct plain_ends {
	__u16 checksum;
	/* Of the source and of the destination. */
	__u16 address[2][2];
	__u16 port[2];
};

/* The start of its frame. */
struct plain_start {
	__u8 macs[12];
	__u8 between[10];
	__u8 hop_limit;
	__u8 protocol;
	struct plain_ends ends;
};

/*
 * Changes one end in `ends`, and the checksum of the segment in the packet. `checksum` is its offset from the start of the frame.
 * The address and the port are in the order of the packet. Returns 0 if the checksum has changed.
 */
static inline_always int change_end(struct __sk_buff *skb, struct plain_ends *ends, int is_destination, __u32 address, __u16 port,
				    __u32 checksum, __u32 flags)
{
	__u16 *halves = ends->address[is_destination];
	__u32 old = halves[0] | (__u32)halves[1] << 16, sum = (__u16)~ends->checksum;
	__u16 old_port = ends->port[is_destination];

	if (old != address && segment_checksum(skb, checksum, old, address, flags | BPF_F_PSEUDO_HDR | 4))
		return -1;
	if (old_port != port && segment_checksum(skb, checksum, old_port, port, flags | 2))
		return -1;
	/* RFC 1624. */
	sum += (__u16)~old + (__u16)~(old >> 16) + (__u16)address + (address >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	ends->checksum = ~(sum + (sum >> 16));
	halves[0] = address;
	halves[1] = address >> 16;
	ends->port[is_destination] = port;
	return 0;
}

#define NOT_PLAIN 1

/* As `rewrite`, for TCP and UDP over IPv4 without options. Returns NOT_PLAIN if the packet's bytes are not at hand. */
checked_alone int rewrite_plain(struct __sk_buff *skb, const struct packet *packet, __u32 address, __u32 port, int is_source)
{
	const struct plain_start *frame = (const void *)(long)skb->data;
	struct plain_ends ends;
	__u32 checksum, flags;
	__u16 new_port = from_be16(port);

	if (!packet || (const void *)(frame + 1) > (const void *)(long)skb->data_end)
		return NOT_PLAIN;
	ends = frame->ends;
	checksum = checksum_of_plain(packet->protocol);
	flags = checksum_flags(packet->protocol);
	if (is_source ? change_end(skb, &ends, 0, address, new_port, checksum, flags)
		      : change_end(skb, &ends, 1, address, new_port, checksum, flags))
		return -1;
	/* One call that writes all is faster than one for each part. */
	return store(skb, ETH_HEADER + 10, &ends, sizeof(ends), 0) ? -1 : 0;
}

/*
 * Changes the source or the destination of a packet with an Ethernet header. An ICMP error and a later fragment have no ports,
 * so `port` does not matter. Returns 0 if the packet has changed.
 */
checked_alone int rewrite(struct __sk_buff *skb, const struct packet *packet, const struct address *to, __u32 port,
			  int is_source)
{
	int is_v6 = skb->protocol == from_be16(ETH_IPV6);
	__u32 segment, checksum, flags;
	struct address from, target;
	__u16 old_port, new_port = from_be16(port);

	if (!packet || !to)
		return -1;
	if (!is_v6 && packet->offset == sizeof(struct ipv4) && (packet->protocol == TCP || packet->protocol == UDP) && !packet->is_error) {
		int result = rewrite_plain(skb, packet, to->low >> 32, port, is_source);

		if (result != NOT_PLAIN)
			return result;
	}
	target = *to;
	from = is_source ? packet->source : packet->destination;
	old_port = from_be16(is_source ? packet->source_port : packet->destination_port);
	segment = ETH_HEADER + packet->offset;
	/* The checksum of a fragmented packet is in its first fragment. */
	checksum = packet->offset ? checksum_at(packet->ip_protocol) : 0;
	flags = checksum_flags(packet->protocol);
	if (is_v6) {
		__s64 sum = csum_diff((__u32 *)&from, sizeof(from), (__u32 *)&target, sizeof(target), 0);

		if (checksum && segment_checksum(skb, segment + checksum, 0, sum, flags | BPF_F_PSEUDO_HDR))
			return -1;
		if (store(skb, ETH_HEADER + (is_source ? 8 : 24), &target, sizeof(target), 0))
			return -1;
	} else {
		__u32 old = from.low >> 32, new = target.low >> 32;

		if (checksum && segment_checksum(skb, segment + checksum, old, new, flags | BPF_F_PSEUDO_HDR | 4))
			return -1;
		if (ip_checksum(skb, ETH_HEADER + 10, old, new, 4) ||
		    store(skb, ETH_HEADER + (is_source ? 12 : 16), &new, 4, 0))
			return -1;
	}
	if (old_port == new_port || !packet->offset || packet->protocol == ICMP)
		return 0;
	if (!checksum || segment_checksum(skb, segment + checksum, old_port, new_port, flags | 2))
		return -1;
	return store(skb, segment + (is_source ? 0 : 2), &new_port, 2, 0);
}

/* The number of one of a word's backends. */
static inline_always __u32 choose(__u64 word)
{
	__u32 table = WORD_TABLE(word), size = WORD_SIZE(word);
	/* At most 8191, so it is in the table. */
	__u32 at = (__u64)random_number() * WORD_COUNT(word) >> 32;

	if (size == 0) {
		struct backends_small *of = map_lookup(&backends_small, &table);

		return of ? of->of[at & (BACKENDS_SMALL - 1)] : ~0u;
	}
	if (size == 1) {
		struct backends_medium *of = map_lookup(&backends_medium, &table);

		return of ? of->of[at & (BACKENDS_MEDIUM - 1)] : ~0u;
	}
	struct backends_large *of = map_lookup(&backends_large, &table);

	return of ? of->of[at & (BACKENDS_LARGE - 1)] : ~0u;
}

/* The compiler knows nothing about the value, so it makes no branch of a calculation. */
#define hide(value) asm volatile("" : "+r"(value))

/*
 * The last place of a sorted table whose number is at most this one; 0 if there is none. Without branches the verifier has one
 * path for all steps. With them kernel 6.1 refuses the program. `half` is half of the places, which are a power of two.
 */
static inline_always __u32 place_of(const __u32 *of, __u32 half, __u32 count, __u32 number)
{
	__u32 at = 0, last = half * 2 - 1;

	for (__u32 step = half; step; step >>= 1) {
		__u64 is_used, is_found, next = at + step;

		/* The verifier needs the limit, which the compiler would leave out. */
		hide(next);
		next &= last;
		/* Both are negative if the place is in use and has such a number. */
		is_used = next - count;
		is_found = (__u64)of[next] - number - 1;
		hide(is_used);
		hide(is_found);
		at += step & -(__u32)(is_used >> 63 & is_found >> 63);
	}
	hide(at);
	return at & last;
}

/* True if the number is one of a word's backends. */
checked_alone int has_backend(__u64 word, __u32 number)
{
	__u32 table = WORD_TABLE(word), size = WORD_SIZE(word), count = WORD_COUNT(word);

	if (WORD_ACTION(word) != SERVICE_CHOOSE)
		return 0;
	if (size == 0) {
		struct backends_small *of = map_lookup(&backends_small, &table);

		return of && of->of[place_of(of->of, BACKENDS_SMALL / 2, count, number)] == number;
	}
	if (size == 1) {
		struct backends_medium *of = map_lookup(&backends_medium, &table);

		return of && of->of[place_of(of->of, BACKENDS_MEDIUM / 2, count, number)] == number;
	}
	struct backends_large *of = map_lookup(&backends_large, &table);

	return of && of->of[place_of(of->of, BACKENDS_LARGE / 2, count, number)] == number;
}

/* The connection as its client sees it, or the backend. */
static inline_always void key_of(const struct address *client, __u16 client_port, const struct address *other,
				 __u16 other_port, __u32 protocol, struct flow_key *key)
{
	key->low = *client;
	key->high = *other;
	key->ports = client_port | (__u32)other_port << 16 | (__u64)protocol << 32;
}

/* About milliseconds since the boot, in 2^20 ns. They start again after 52 days. */
#define CHOICE_TICK(now) ((__u32)((now) >> 20))
/* A connection without a packet for so long is over, and its client may get another backend: one minute. */
#define CHOICE_TIME 57220u
/* Another processor can have noted a later time: one second. */
#define CHOICE_LEAD 954u

static inline_always int is_recent(const struct choice *choice, __u64 now)
{
	return (__u32)(CHOICE_TICK(now) - choice->seen + CHOICE_LEAD) <= CHOICE_TIME + CHOICE_LEAD;
}

/* Notes the time of a packet. */
static inline_always void note_time(struct choice *choice, __u64 now)
{
	if (choice->seen != CHOICE_TICK(now))
		choice->seen = CHOICE_TICK(now);
}

/* True if the choice of an earlier packet counts for this one. */
static inline_always int is_chosen(const struct choice *choice, const struct packet *packet, __u64 now)
{
	struct backend *backend;
	__u32 number = choice->backend;

	/* An open TCP connection stays with its backend until one end closes it. */
	if (!is_start(packet))
		return 1;
	if (!is_recent(choice, now))
		return 0;
	backend = map_lookup(&backends, &number);
	return backend && backend->is_present && backend->life == choice->life;
}

/*
 * True if a choice that counts has to be in the table of its frontend: another Service may still have a backend that left this one.
 * Of the datagrams of one tick only the first is looked up.
 */
static inline_always int needs_table(const struct choice *choice, const struct packet *packet, __u64 now)
{
	return is_start(packet) && (packet->protocol == TCP || choice->seen != CHOICE_TICK(now));
}

/* What is to be done with a pod's packet. */
enum translated {
	NO_SERVICE,
	TRANSLATED,
	/* With the action of a word. */
	REFUSED,
	/* The maps or the packet cannot be changed. */
	UNTRANSLATED,
};

/* Variables for which the stack is too small. */
struct service_work {
	struct flow_key key;
	struct choice choice;
	struct asked_address asked;
	struct flow_key client;
	struct affinity affinity;
	__u32 action;
	/* The packet has another destination than its pod gave it. */
	__u32 is_translated;
};

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct service_work);
	MAP_NUMBER(max_entries, 1);
} service_works SEC(".maps");

/* Ports that a connection tries if another one of its client has the same ends. */
#define CLIENT_PORT_TRIES 8
/* As the kernel's default of net.ipv4.ip_local_port_range. */
#define FIRST_CLIENT_PORT 32768
#define CLIENT_PORTS 28232

/*
 * True if the row of `asked` belongs to another connection of the client, which asked for another address. It has this port
 * towards the backend in `choice` of `work`.
 */
static inline_always int is_taken(const struct asked_address *asked, const struct packet *packet, __u16 port,
				  struct service_work *work)
{
	__u16 client_port = asked->client_port;
	struct choice *other;

	key_of(&packet->source, client_port ? client_port : port, &asked->address, asked->port, packet->protocol,
	       &work->client);
	other = map_lookup(&choices, &work->client);
	return other && other->source_port == (client_port ? port : 0) && other->port == work->choice.port &&
	       is_equal(&other->address, &work->choice.address);
}

/*
 * Notes the address that was asked for, for answers of the chosen backend. Two connections of a client to one backend need
 * different ports there. The later one gets another port in `choice` of `work`, unless its protocol has a checksum over ports.
 */
static inline_always enum translated note_asked(const struct packet *packet, struct service_work *work)
{
	__u16 own = packet->source_port, port = work->choice.source_port ? work->choice.source_port : own;
	struct asked_address *asked;

	for (int i = 0; i < CLIENT_PORT_TRIES; i++) {
		__u16 client_port = port == own ? 0 : own;

		key_of(&packet->source, port, &work->choice.address, work->choice.port, packet->protocol, &work->key);
		asked = map_lookup(&asked_addresses, &work->key);
		work->choice.source_port = client_port ? port : 0;
		if (asked && asked->port == packet->destination_port && asked->client_port == client_port &&
		    is_equal(&asked->address, &packet->destination))
			return TRANSLATED;
		if (!asked || packet->protocol == SCTP || !is_taken(asked, packet, port, work)) {
			work->asked = (struct asked_address){ .address = packet->destination,
							      .port = packet->destination_port,
							      .client_port = client_port };
			if (map_update(&asked_addresses, &work->key, &work->asked, BPF_ANY))
				return UNTRANSLATED;
			return TRANSLATED;
		}
		port = FIRST_CLIENT_PORT + ((__u64)random_number() * CLIENT_PORTS >> 32);
	}
	return UNTRANSLATED;
}

/* The client's last choice, if the time of the affinity is not over and the backend exists. The key is in `work`. */
static inline_always struct affinity *affinity_of(const struct frontend *frontend, struct service_work *work,
						  __u64 now)
{
	struct affinity *affinity;
	struct backend *backend;
	__u32 number;

	if (!AFFINITY_SECONDS(frontend))
		return 0;
	affinity = map_lookup(&affinities, &work->client);
	if (!affinity || (__s64)(now - affinity->seen) > (__s64)AFFINITY_SECONDS(frontend) * 1000000000ll)
		return 0;
	number = affinity->backend;
	backend = map_lookup(&backends, &number);
	return backend && backend->life == affinity->life ? affinity : 0;
}

/*
 * Puts one of a frontend's backends into `choice` of `work`. `side` is that of the client, and `client` of `work` the key of its
 * affinity.
 */
static inline_always enum translated choose_backend(const struct frontend *frontend, struct service_work *work,
						    __u32 side, __u64 now)
{
	struct affinity *affinity;
	struct backend *backend;
	__u32 number, kept = ~0u;
	__u64 *word;

	number = frontend->word + side;
	word = map_lookup(&service_words, &number);
	if (!word)
		return UNTRANSLATED;
	affinity = affinity_of(frontend, work, now);
	if (affinity)
		kept = affinity->backend;
	backend = 0;
	/* A backend that was removed just now is not in the table of the next word. */
	for (int i = 0; i < 3 && !backend; i++) {
		/* One read: userspace may store another word meanwhile. */
		__u64 current = *(volatile __u64 *)word;

		work->action = WORD_ACTION(current);
		if (work->action != SERVICE_CHOOSE)
			return REFUSED;
		number = affinity && has_backend(current, kept) ? kept : choose(current);
		backend = map_lookup(&backends, &number);
		if (backend && !*(volatile __u16 *)&backend->is_present)
			backend = 0;
	}
	if (!backend)
		return UNTRANSLATED;
	work->choice = (struct choice){
		.address = backend->address,
		.port = backend->port,
		.backend = number,
		.life = backend->life,
		.seen = CHOICE_TICK(now),
	};
	if (affinity && number == kept) {
		affinity->seen = now;
	} else if (AFFINITY_SECONDS(frontend)) {
		work->affinity = (struct affinity){ .backend = number, .life = work->choice.life, .seen = now };
		/* Without room the client's next connection gets another backend. */
		map_update(&affinities, &work->client, &work->affinity, BPF_ANY);
	}
	return TRANSLATED;
}

/* Changes the address of a key to that of node ports of its family. */
static inline_always void node_ports(struct frontend_key *place)
{
	/* The half of a mapped IPv4 address that is not zero. */
	place->address.low = is_v4(&place->address) ? 0xffff0000u : 0;
	place->address.high = 0;
}

/* True for an address at which a client finds node ports; processes of the node find them at loopback too. */
static inline_always int has_node_ports(const struct address *address, int is_process)
{
	int is_loopback = is_v4(address) ? (__u8)(address->low >> 32) == 127
					 : !address->high && address->low == 1ull << 56;

	return (is_process && is_loopback) || is_own_address(address);
}

/* The frontend of a place. Without one, `action` is that of a cluster IP without the port, or SERVICE_CHOOSE. */
static inline_always struct frontend *frontend_of(struct frontend_key *place, int is_process, __u32 *action)
{
	struct frontend *frontend = map_lookup(&frontends, place);
	__u16 port = place->port, protocol = place->protocol;

	*action = SERVICE_CHOOSE;
	if (frontend)
		return frontend;
	place->port = 0;
	place->protocol = 0;
	if (map_lookup(&frontends, place)) {
		*action = SERVICE_NO_SUCH_PORT;
		return 0;
	}
	if (!has_node_ports(&place->address, is_process))
		return 0;
	node_ports(place);
	place->port = port;
	place->protocol = protocol;
	return map_lookup(&frontends, place);
}

/* True if a frontend serves the client. */
static inline_always int is_served(const struct frontend *frontend, const struct address *client)
{
	struct source_range range = { .length = SOURCE_BITS, .word = frontend->word, .address = *client };

	return !(frontend->affinity & HAS_SOURCES) || map_lookup(&source_ranges, &range);
}

/* True if a client that is refused gets no answer. */
static inline_always int is_silent(__u32 action)
{
	return action == SERVICE_NO_LOCAL_ENDPOINTS || action == SERVICE_SOURCE_RANGE;
}

/* The frontend that a packet asks for. Without one, `action` of the work is as that of `frontend_of`. */
static inline_always struct frontend *frontend_for(const struct packet *packet, struct service_work *work)
{
	struct frontend_key place = { .address = packet->destination,
				      .port = packet->destination_port,
				      .protocol = packet->protocol };

	return frontend_of(&place, 0, &work->action);
}

/* True if the frontend has the backend for these clients: WORD_INSIDE or WORD_OUTSIDE. */
static inline_always int is_in_table(const struct frontend *frontend, __u32 clients, __u32 backend)
{
	__u32 number = frontend->word + clients;
	__u64 *word = map_lookup(&service_words, &number);

	return word && has_backend(*(volatile __u64 *)word, backend);
}

/* A pod's connection asks for a Service at the address of a pod, which an earlier connection of these ends may have reached itself. */
static inline_always void end_direct(const struct packet *packet, struct service_work *work)
{
	struct flow *flow;

	if (!map_lookup(&fast_pods, &packet->destination))
		return;
	flow_of(packet, &work->key);
	flow = map_lookup(&flows, &work->key);
	if (flow && flow->path == PATH_POD)
		flow->wire = 0;
}

/* Chooses a backend for a packet of a pod. */
static inline_always enum translated choose_for(const struct packet *packet, struct service_work *work, __u64 now)
{
	struct frontend *frontend = frontend_for(packet, work);
	enum translated result;

	if (!frontend)
		return work->action == SERVICE_CHOOSE ? NO_SERVICE : REFUSED;
	if (!is_served(frontend, &packet->source)) {
		work->action = SERVICE_SOURCE_RANGE;
		return REFUSED;
	}
	if (AFFINITY_SECONDS(frontend))
		key_of(&packet->source, 0, &packet->destination, packet->destination_port, packet->protocol,
		       &work->client);
	result = choose_backend(frontend, work, WORD_INSIDE, now);
	if (result != TRANSLATED)
		return result;
	count(CHOSEN_FOR_POD);
	end_direct(packet, work);
	result = note_asked(packet, work);
	key_of(&packet->source, packet->source_port, &packet->destination, packet->destination_port, packet->protocol,
	       &work->key);
	if (result == TRANSLATED && map_update(&choices, &work->key, &work->choice, BPF_ANY))
		return UNTRANSLATED;
	return result;
}

/* True if the Service that a pod's packet asks for has this backend. */
checked_alone int is_backend_of(const struct packet *packet, __u32 backend)
{
	__u32 first = 0;
	struct service_work *work = map_lookup(&service_works, &first);
	struct frontend *frontend;

	if (!packet || !work)
		return 0;
	frontend = frontend_for(packet, work);
	return frontend && is_in_table(frontend, WORD_INSIDE, backend);
}

/* The same as `is_chosen`, for a pod. */
static inline_always int is_chosen_for_pod(const struct choice *choice, const struct packet *packet, __u64 now)
{
	return is_chosen(choice, packet, now) &&
	       (!needs_table(choice, packet, now) || is_backend_of(packet, choice->backend));
}

/* Gives a pod's packet the address of a backend. */
static inline_always enum translated to_backend(struct __sk_buff *skb, const struct packet *packet,
						struct service_work *work, __u64 now)
{
	enum translated result = TRANSLATED;
	struct choice *choice;

	/* The other direction of a packet to itself. */
	hairpin_address(skb->protocol == from_be16(ETH_IPV6), &work->key.low);
	if (is_equal(&packet->destination, &work->key.low))
		return rewrite(skb, packet, &packet->source, packet->destination_port, 0) ? UNTRANSLATED : TRANSLATED;
	key_of(&packet->source, packet->source_port, &packet->destination, packet->destination_port, packet->protocol,
	       &work->key);
	choice = map_lookup(&choices, &work->key);
	if (choice && is_chosen_for_pod(choice, packet, now)) {
		note_time(choice, now);
		work->choice = *choice;
		/* Meanwhile another connection may have had these ends. */
		if (is_start(packet)) {
			result = note_asked(packet, work);
			choice->source_port = work->choice.source_port;
		}
	} else if (is_start(packet)) {
		result = choose_for(packet, work, now);
	} else {
		/* Of a connection of the host's stack, such as one that netfilter translates. */
		return NO_SERVICE;
	}
	/* The client asks for the backend itself. An earlier connection of these ends may have asked for a Service. */
	if (result == NO_SERVICE && is_start(packet)) {
		map_delete(&asked_addresses, &work->key);
		/* Later packets of this connection may not follow an earlier one, whose Service is no longer served. */
		if (choice)
			map_delete(&choices, &work->key);
	}
	if (result != TRANSLATED)
		return result;
	if (work->choice.source_port && rewrite(skb, packet, &packet->source, work->choice.source_port, 1))
		return UNTRANSLATED;
	return rewrite(skb, packet, &work->choice.address, work->choice.port, 0) ? UNTRANSLATED : TRANSLATED;
}

/*
 * True for an answer whose client asked for another address. That address is then in `asked` of `work`.
 */
static inline_always int find_asked_address(struct __sk_buff *skb, const struct packet *packet, struct service_work *work)
{
	struct asked_address *asked;

	key_of(&packet->destination, packet->destination_port, &packet->source, packet->source_port, packet->protocol,
	       &work->key);
	asked = map_lookup(&asked_addresses, &work->key);
	if (asked) {
		work->asked = *asked;
		return 1;
	}
	if (!is_equal(&packet->source, &packet->destination))
		return 0;
	work->asked.port = packet->source_port;
	work->asked.client_port = 0;
	hairpin_address(skb->protocol == from_be16(ETH_IPV6), &work->asked.address);
	return 1;
}

/* Gives an answer the address in `asked` of `work`. Returns 0 if the packet has changed. */
static inline_always int restore(struct __sk_buff *skb, const struct packet *packet, struct service_work *work)
{
	const struct asked_address *asked = &work->asked;

	if (asked->client_port && rewrite(skb, packet, &packet->destination, asked->client_port, 0))
		return -1;
	return rewrite(skb, packet, &asked->address, asked->port, 1);
}
