/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The kernel's helpers and constants that the programs use. Numbers are those of the kernel's uapi/linux/bpf.h. */
#pragma once

#include <linux/bpf.h>
#include <linux/pkt_cls.h>

#define SEC(name) __attribute__((section(name), used))
/* A function that the verifier checks once, apart from its callers. It returns a number; its pointers may be null. */
#define checked_alone __attribute__((noinline))
#define inline_always inline __attribute__((always_inline))

/* Fields of a map definition, as loaders read them from BTF. */
#define MAP_NUMBER(name, value) int (*name)[value]
#define MAP_TYPE(name, value) value *name

static void *(*map_lookup)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static long (*map_update)(void *map, const void *key, const void *value, __u64 flags) =
	(void *)BPF_FUNC_map_update_elem;
static long (*map_delete)(void *map, const void *key) = (void *)BPF_FUNC_map_delete_elem;
static __u64 (*ktime_coarse)(void) = (void *)BPF_FUNC_ktime_get_coarse_ns;
/* The kernel's count of ticks. The verifier replaces the call by a read. */
static __u64 (*ticks)(void) = (void *)BPF_FUNC_jiffies64;
static __u32 (*processor)(void) = (void *)BPF_FUNC_get_smp_processor_id;
static long (*set_hash)(struct __sk_buff *skb, __u32 hash) = (void *)BPF_FUNC_set_hash;
static long (*clear_hash)(struct __sk_buff *skb) = (void *)BPF_FUNC_set_hash_invalid;
static __s64 (*csum_diff)(__u32 *from, __u32 from_size, __u32 *to, __u32 to_size, __u32 seed) =
	(void *)BPF_FUNC_csum_diff;
static long (*change_tail)(struct __sk_buff *skb, __u32 length, __u64 flags) =
	(void *)BPF_FUNC_skb_change_tail;
static long (*store)(struct __sk_buff *skb, __u32 offset, const void *from, __u32 length, __u64 flags) =
	(void *)BPF_FUNC_skb_store_bytes;
static long (*redirect)(__u32 link, __u64 flags) = (void *)BPF_FUNC_redirect;
static long (*redirect_to_peer)(__u32 link, __u64 flags) = (void *)BPF_FUNC_redirect_peer;
static long (*check_mtu)(void *skb, __u32 link, __u32 *length, __s32 more, __u64 flags) = (void *)BPF_FUNC_check_mtu;
static void *(*ring_reserve)(void *ring, __u64 size, __u64 flags) = (void *)BPF_FUNC_ringbuf_reserve;
static void (*ring_submit)(void *data, __u64 flags) = (void *)BPF_FUNC_ringbuf_submit;
static long (*for_each)(void *map, void *call, void *context, __u64 flags) =
	(void *)BPF_FUNC_for_each_map_elem;
static long (*skb_load_frame)(const void *skb, __u32 offset, void *to, __u32 length) =
	(void *)BPF_FUNC_skb_load_bytes;
static long (*skb_load_from)(const void *skb, __u32 offset, void *to, __u32 length, __u32 start) =
	(void *)BPF_FUNC_skb_load_bytes_relative;

/* Bytes of the packet from its IP header on. Links without Ethernet frames have no other header. */
static inline_always long skb_load(const void *skb, __u32 offset, void *to, __u32 length)
{
	return skb_load_from(skb, offset, to, length, BPF_HDR_START_NET);
}

static inline_always __u16 from_be16(__u16 value)
{
	return __builtin_bswap16(value);
}
