/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Services for processes of the node: a call of a socket gets the address of a backend before a packet exists. The programs
 * are attached to a cgroup that also has the processes of pods. They act in the network namespace of the node only.
 */
#pragma once

#include "service.h"

/* A socket and the address of its peer. */
struct socket_key {
	/* The kernel's number of the socket. */
	__u64 cookie;
	struct address address;
	__u16 port;
	__u16 protocol;
	__u32 unused;
};

/* The address that a socket asked for. */
struct socket_asked {
	struct address address;
	__u16 port;
	__u16 unused[3];
	/* Of the last call, in nanoseconds since the boot. */
	__u64 seen;
};

/* The cookie of the node's network namespace; 0 before userspace has written it. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, __u64);
	MAP_NUMBER(max_entries, 1);
} node_namespace SEC(".maps");

/* The backend of an unconnected UDP socket, by the address that it asked for. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_LRU_HASH);
	MAP_TYPE(key, struct socket_key);
	MAP_TYPE(value, struct choice);
	MAP_NUMBER(max_entries, 1);
} socket_choices SEC(".maps");

/* The address that a socket asked for, by the backend. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_LRU_HASH);
	MAP_TYPE(key, struct socket_key);
	MAP_TYPE(value, struct socket_asked);
	MAP_NUMBER(max_entries, 1);
} socket_asked_addresses SEC(".maps");

static __u64 (*socket_cookie)(void *call) = (void *)BPF_FUNC_get_socket_cookie;
static __u64 (*namespace_cookie)(void *call) = (void *)BPF_FUNC_get_netns_cookie;
static int (*set_result)(int result) = (void *)BPF_FUNC_set_retval;

/* Of linux/errno.h. */
#define ERROR_NO_ROUTE 113
#define ERROR_REFUSED 111

/* Results of a program: with CALL_FAILS the call returns the error that was set. */
#define CALL_CONTINUES 1
#define CALL_FAILS 0

/*
 * Two programs of one call are this close: while one release replaces another one, both are attached, and the second one
 * sees the backend that the first one has chosen. In nanoseconds.
 */
#define SAME_CALL 100000000ull

static inline_always int is_of_node(struct bpf_sock_addr *call)
{
	__u32 first = 0;
	__u64 *of = map_lookup(&node_namespace, &first);

	return of && *of && *of == namespace_cookie(call);
}

/* The address and the port of a call. */
static inline_always void peer_of(struct bpf_sock_addr *call, int is_v6, struct socket_key *key)
{
	if (is_v6) {
		key->address.high = call->user_ip6[0] | (__u64)call->user_ip6[1] << 32;
		key->address.low = call->user_ip6[2] | (__u64)call->user_ip6[3] << 32;
	} else {
		map_v4(&key->address, call->user_ip4);
	}
	key->cookie = socket_cookie(call);
	key->port = from_be16((__u16)call->user_port);
	key->protocol = call->protocol;
	key->unused = 0;
}

static inline_always void set_peer(struct bpf_sock_addr *call, int is_v6, const struct address *to, __u16 port)
{
	if (is_v6) {
		call->user_ip6[0] = to->high;
		call->user_ip6[1] = to->high >> 32;
		call->user_ip6[2] = to->low;
		call->user_ip6[3] = to->low >> 32;
	} else {
		call->user_ip4 = to->low >> 32;
	}
	call->user_port = from_be16(port);
}

/* The choice of an earlier datagram to this address, as long as the frontend has its backend. */
static inline_always int has_choice(const struct frontend *frontend, const struct socket_key *asked, struct service_work *work,
				    __u64 now)
{
	struct choice *choice = map_lookup(&socket_choices, asked);
	struct backend *backend;
	__u32 number;

	if (!choice || !is_recent(choice, now))
		return 0;
	number = choice->backend;
	backend = map_lookup(&backends, &number);
	if (!backend || !backend->is_present || backend->life != choice->life ||
	    !is_in_table(frontend, WORD_INSIDE, number))
		return 0;
	note_time(choice, now);
	work->choice = *choice;
	return 1;
}

/* Refuses a call, and counts the reason. */
static inline_always int refuse_call(__u32 action)
{
	count(refusal(action));
	set_result(is_silent(action) ? -ERROR_NO_ROUTE : -ERROR_REFUSED);
	return CALL_FAILS;
}

/* True if a frontend serves processes of the node: the node's address of the family is the client. */
static inline_always int serves_node(const struct frontend *frontend, const struct address *to)
{
	__u32 family = !is_v4(to);
	struct address *of = map_lookup(&node_address, &family);

	return of && is_served(frontend, of);
}

/* Gives a call the address of a backend. */
static inline_always int ask(struct bpf_sock_addr *call, int is_v6, int is_connected)
{
	struct socket_key key;
	struct service_work work = {};
	struct socket_asked asked = {}, *known;
	struct frontend_key place = {};
	struct frontend *frontend;
	__u32 action;
	__u64 now;

	if (!is_of_node(call) || (call->protocol != TCP && call->protocol != UDP))
		return CALL_CONTINUES;
	peer_of(call, is_v6, &key);
	now = ktime_coarse();
	place.address = key.address;
	place.port = key.port;
	place.protocol = key.protocol;
	frontend = frontend_of(&place, 1, &action);
	if (!frontend) {
		if (action != SERVICE_CHOOSE)
			return refuse_call(action);
		/* The socket asks for the backend itself. Earlier it may have asked for a Service. */
		known = map_lookup(&socket_asked_addresses, &key);
		if (known && (__s64)(now - known->seen) > (__s64)SAME_CALL)
			map_delete(&socket_asked_addresses, &key);
		return CALL_CONTINUES;
	}
	if (is_connected || !has_choice(frontend, &key, &work, now)) {
		if (!serves_node(frontend, &key.address))
			return refuse_call(SERVICE_SOURCE_RANGE);
		/* All sockets of the node are one client. */
		work.client.high = key.address;
		work.client.ports = (__u32)key.port << 16 | (__u64)key.protocol << 32;
		switch (choose_backend(frontend, &work, WORD_INSIDE, now)) {
		case REFUSED:
			return refuse_call(work.action);
		case TRANSLATED:
			count(CHOSEN_FOR_PROCESS);
			break;
		default:
			count(NO_BACKEND);
			set_result(-ERROR_REFUSED);
			return CALL_FAILS;
		}
		/* Without room the next datagram gets another backend. */
		if (!is_connected)
			map_update(&socket_choices, &key, &work.choice, BPF_ANY);
	}
	asked.address = key.address;
	asked.port = key.port;
	asked.seen = now;
	key.address = work.choice.address;
	key.port = work.choice.port;
	known = map_lookup(&socket_asked_addresses, &key);
	if (known && known->port == asked.port && is_equal(&known->address, &asked.address)) {
		known->seen = now;
	} else if (map_update(&socket_asked_addresses, &key, &asked, BPF_ANY)) {
		count(NO_BACKEND);
		set_result(-ERROR_REFUSED);
		return CALL_FAILS;
	}
	set_peer(call, is_v6, &key.address, key.port);
	return CALL_CONTINUES;
}

/* Gives a call the address that the socket asked for, in place of the backend. */
static inline_always int answer(struct bpf_sock_addr *call, int is_v6)
{
	struct socket_key key;
	struct socket_asked *asked;

	if (!is_of_node(call))
		return CALL_CONTINUES;
	peer_of(call, is_v6, &key);
	asked = map_lookup(&socket_asked_addresses, &key);
	if (asked)
		set_peer(call, is_v6, &asked->address, asked->port);
	return CALL_CONTINUES;
}

SEC("cgroup/connect4")
int socket_connect4(struct bpf_sock_addr *call)
{
	return ask(call, 0, 1);
}

SEC("cgroup/connect6")
int socket_connect6(struct bpf_sock_addr *call)
{
	return ask(call, 1, 1);
}

SEC("cgroup/sendmsg4")
int socket_sendmsg4(struct bpf_sock_addr *call)
{
	return ask(call, 0, 0);
}

SEC("cgroup/sendmsg6")
int socket_sendmsg6(struct bpf_sock_addr *call)
{
	return ask(call, 1, 0);
}

SEC("cgroup/recvmsg4")
int socket_recvmsg4(struct bpf_sock_addr *call)
{
	return answer(call, 0);
}

SEC("cgroup/recvmsg6")
int socket_recvmsg6(struct bpf_sock_addr *call)
{
	return answer(call, 1);
}

SEC("cgroup/getpeername4")
int socket_getpeername4(struct bpf_sock_addr *call)
{
	return answer(call, 0);
}

SEC("cgroup/getpeername6")
int socket_getpeername6(struct bpf_sock_addr *call)
{
	return answer(call, 1);
}
