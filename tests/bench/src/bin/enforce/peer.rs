//! The program and the maps of aws-network-policy-agent for one pod.

use crate::{
    WIRE,
    verdicts::{Judge, REPEAT, cb},
    world::{self, World},
};
use anyhow::{Context as _, Result};
use aya::{
    Ebpf,
    maps::{HashMap, LpmTrie, MapData, lpm_trie::Key},
    programs::{SchedClassifier, TestRun as _, TestRunOptions},
};
use datapath_ebpf::memory_of_maps;
use std::{collections::BTreeMap, fs, path::Path};

/// A pod whose policies allow all traffic of these peers.
pub(crate) struct Peer {
    ebpf: Ebpf,
    _rows: LpmTrie<MapData, [u8; 4], Rules>,
    _states: HashMap<MapData, u32, u8>,
}

/// 24 rules of a protocol, a first port and a last port.
type Rules = [u8; 288];

impl Peer {
    /// Loads the object, and pins the maps in a folder of a bpffs.
    pub(crate) fn load(object: &Path, pins: &Path, peers: u32) -> Result<Self> {
        fs::create_dir(pins).context("create a folder of pins")?;
        let bytes = fs::read(object).context("read the peer's object")?;
        let mut ebpf = Ebpf::load(&bytes).context("load the peer's object")?;
        for name in ["ingress_map", "cp_ingress_map", "ingress_pod_state_map", SHARED, EVENTS] {
            ebpf.map(name).context("no map")?.pin(pins.join(name)).context("pin a map")?;
        }
        for name in ["first_packet", "only_pick"] {
            program(&mut ebpf, name)?.load().with_context(|| format!("load the peer's {name}"))?;
        }
        let mut rows = LpmTrie::try_from(ebpf.take_map("ingress_map").context("no map")?)?;
        let mut rules: Rules = [0; 288];
        rules[0] = ANY_PROTOCOL;
        for peer in 0..peers {
            rows.insert(&Key::new(32, world::address(peer, false).octets()), rules, 0)?;
        }
        let state = ebpf.take_map("ingress_pod_state_map").context("no map")?;
        let mut states = HashMap::try_from(state)?;
        // Of NetworkPolicies: they apply. Of cluster policies: there are none.
        states.insert(0, 0, 0)?;
        states.insert(1, 1, 0)?;
        Ok(Self { ebpf, _rows: rows, _states: states })
    }
}

impl Judge for Peer {
    fn run(&mut self, name: &'static str, packet: &[u8], peers: u32) -> Result<(i32, f64)> {
        // Of `struct __sk_buff`: ingress_ifindex, ifindex and cb.
        let mut context = [0; 192];
        context[36..40].copy_from_slice(&WIRE.to_ne_bytes());
        context[40..44].copy_from_slice(&world::link(0).ifindex.to_ne_bytes());
        context[48..64].copy_from_slice(&cb(packet, peers));
        let ran = program(&mut self.ebpf, name)?.test_run(TestRunOptions {
            data_in: Some(packet),
            ctx_in: Some(&context),
            repeat: REPEAT,
            ..TestRunOptions::default()
        })?;
        Ok((ran.return_value.cast_signed(), ran.duration.as_secs_f64() * 1e9))
    }
}

/// The memory of the maps of a node's pods for incoming packets, in bytes. Pods whose policies name as many peers have
/// the same maps, so one of them is loaded.
pub(crate) fn memory(object: &Path, pins: &Path, world: &World) -> Result<u64> {
    let mut sizes = BTreeMap::<u32, u64>::new();
    for pod in 0..world.pods {
        *sizes.entry(world.peers_of(pod)).or_default() += 1;
    }
    let mut bytes = 0;
    for (peers, pods) in sizes {
        let (of_pod, shared) = (pins.join(peers.to_string()), pins.join("shared"));
        fs::create_dir_all(&shared).context("create a folder of pins")?;
        let _peer = Peer::load(object, &of_pod, peers)?;
        for name in [SHARED, EVENTS] {
            fs::rename(of_pod.join(name), shared.join(name)).context("move a pin")?;
        }
        bytes += pods * memory_of_maps(&of_pod)?;
    }
    Ok(bytes + memory_of_maps(&pins.join("shared"))?)
}

fn program<'a>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut SchedClassifier> {
    let program = ebpf.program_mut(name).with_context(|| format!("the object lacks {name}"))?;
    Ok(program.try_into()?)
}

/// The maps that all pods of a node share.
const SHARED: &str = "aws_conntrack_map";
const EVENTS: &str = "policy_events";
const ANY_PROTOCOL: u8 = 254;
