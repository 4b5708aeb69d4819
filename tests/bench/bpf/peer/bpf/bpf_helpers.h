/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The part of libbpf's header that the programs of aws-network-policy-agent use. */
#pragma once

#define SEC(name) __attribute__((section(name), used))
#undef __always_inline
#define __always_inline inline __attribute__((always_inline))

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static long (*bpf_map_update_elem)(void *map, const void *key, const void *value, __u64 flags) =
	(void *)BPF_FUNC_map_update_elem;
static long (*bpf_map_delete_elem)(void *map, const void *key) = (void *)BPF_FUNC_map_delete_elem;
static long (*bpf_ringbuf_output)(void *ring, void *data, __u64 size, __u64 flags) =
	(void *)BPF_FUNC_ringbuf_output;
