//! The loaded programs and their maps.

use aya::{
    Ebpf, EbpfError, EbpfLoader, Pod,
    maps::{Array, HashMap, LpmTrie, Map, MapError, MapInfo, lpm_trie::Key},
    programs::{
        Link as _, ProgramError, SchedClassifier, TcAttachType, TestRun as _, TestRunOptions,
        tc::{
            NlOptions, SchedClassifierLink, TcAttachOptions, TcError, TcHandle, qdisc_add_clsact,
        },
    },
};
use datapath_abi::{AddressKey, Endpoint, Maps, PrefixKey, Row, TooLong};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

/// A hook: the place at which a program judges packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// Ingress of a pod's host veth: packets from the pod.
    FromPod,
    /// Egress of a pod's host veth: packets to the pod.
    ToPod,
    /// Egress of a link to other nodes.
    ToWire,
}

/// The programs could not be loaded, or a map could not be written.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(
        "cannot load the eBPF programs: {0}; the node needs kernel 6.1 or later, CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON"
    )]
    Object(#[from] EbpfError),
    #[error("cannot load the program {name}: {cause}")]
    Program { name: &'static str, cause: ProgramError },
    #[error(
        "cannot attach or detach {program} at {link}: {cause}; the link and CAP_NET_ADMIN are needed"
    )]
    Attach { program: &'static str, link: String, cause: ProgramError },
    #[error("the object file has no {0}; use the file of this version")]
    Absent(&'static str),
    #[error(
        "cannot use the pinned map {name}: its layout (key, value, rows) is {found:?}; remove the folder of the pins"
    )]
    Layout { name: &'static str, found: (u32, u32, u32) },
    #[error(
        "cannot write {rows} rows to the map {name}: the limit is {limit}; the earlier state stays in force"
    )]
    Full { name: &'static str, rows: usize, limit: u32 },
    #[error("cannot write the map {name}: {cause}")]
    Map { name: &'static str, cause: MapError },
    #[error(transparent)]
    TooLong(#[from] TooLong),
}

/// The loaded programs with their maps. A drop removes maps and programs that are neither attached nor pinned.
pub struct Programs {
    ebpf: Ebpf,
    generation: u32,
    /// The slot of each link, by ifindex. A link keeps its slot.
    slots: BTreeMap<u32, u32>,
}

impl Programs {
    /// Loads the object file. Maps are pinned in the folder, which is on a bpffs; maps that an earlier process pinned
    /// there are used as they are. Without a folder the maps are new.
    ///
    /// # Errors
    /// If the kernel refuses a program or a map, or a pinned map has another layout.
    pub fn load(object: &Path, pins: Option<&Path>) -> Result<Self, LoadError> {
        let mut loader = EbpfLoader::new();
        for (layout, pins) in pins.iter().flat_map(|pins| LAYOUTS.iter().map(move |of| (of, pins)))
        {
            loader.map_pin_path(layout.name, pins.join(layout.name));
        }
        let mut ebpf = loader.load_file(object)?;
        // Before the programs: the verifier's refusal of another layout would hide the cause.
        for (layout, pins) in pins.iter().flat_map(|pins| LAYOUTS.iter().map(move |of| (of, pins)))
        {
            layout.check(&pins.join(layout.name))?;
        }
        for hook in [Hook::FromPod, Hook::ToPod, Hook::ToWire] {
            let name = hook.name();
            program(&mut ebpf, hook)?.load().map_err(|cause| LoadError::Program { name, cause })?;
        }
        let mut programs = Self { ebpf, generation: 0, slots: BTreeMap::new() };
        programs.generation = programs.last_generation()?;
        programs.slots = programs.observed_slots()?;
        Ok(programs)
    }

    /// The slots of an earlier process.
    fn observed_slots(&mut self) -> Result<BTreeMap<u32, u32>, LoadError> {
        let fault = |cause| LoadError::Map { name: "endpoints", cause };
        let map = map(&mut self.ebpf, "endpoints")?;
        let endpoints = HashMap::<_, u32, [u8; 40]>::try_from(map).map_err(fault)?;
        let mut slots = BTreeMap::new();
        for row in endpoints.iter() {
            let (link, value) = row.map_err(fault)?;
            let mut slot = [0; 4];
            slot.copy_from_slice(&value[..4]);
            slots.insert(link, u32::from_ne_bytes(slot));
        }
        Ok(slots)
    }

    /// The greatest generation in the maps: generations are not used twice.
    fn last_generation(&mut self) -> Result<u32, LoadError> {
        let fault = |cause| LoadError::Map { name: "current", cause };
        let current = Array::<_, u64>::try_from(map(&mut self.ebpf, "current")?).map_err(fault)?;
        let mut last = 0;
        for value in current.iter() {
            last = last.max(value.map_err(fault)? >> 32);
        }
        Ok(u32::try_from(last).unwrap_or(u32::MAX))
    }

    /// Attaches a program to a link of this network namespace, in place of an earlier one. It stays attached when this
    /// value is dropped.
    ///
    /// # Errors
    /// If there is no such link, or the kernel refuses.
    pub fn attach(&mut self, hook: Hook, link: &str) -> Result<(), LoadError> {
        let fault =
            |cause| LoadError::Attach { program: hook.name(), link: link.to_owned(), cause };
        let direction = hook.direction();
        let earlier = earlier(hook, link).map_err(|cause| fault(TcError::IoError(cause).into()))?;
        let program = program(&mut self.ebpf, hook)?;
        let attached = match program.attach_to_link(earlier) {
            Ok(attached) => attached,
            Err(_) => {
                // The link may have the queue already; if it has not and cannot have it, the next call fails.
                let _ = qdisc_add_clsact(link);
                let options = NlOptions { priority: PRIORITY, handle: HANDLE, classid: None };
                let options = TcAttachOptions::Netlink(options);
                program.attach_with_options(link, direction, options).map_err(fault)?
            }
        };
        // A drop of the link would detach it.
        std::mem::forget(program.take_link(attached).map_err(fault)?);
        Ok(())
    }

    /// Detaches a program from a link: its packets pass.
    ///
    /// # Errors
    /// If it is not attached there.
    pub fn detach(hook: Hook, link: &str) -> Result<(), LoadError> {
        let fault =
            |cause| LoadError::Attach { program: hook.name(), link: link.to_owned(), cause };
        let attached =
            earlier(hook, link).map_err(|cause| fault(TcError::IoError(cause).into()))?;
        attached.detach().map_err(fault)
    }

    /// Writes the contents of all maps and the current row of each endpoint. `endpoints` are the pods' host links by
    /// ifindex, each with the UID of its pod.
    ///
    /// # Errors
    /// If the contents do not fit: then nothing is written. If the kernel refuses a row, part of them is.
    pub fn write(
        &mut self,
        maps: &Maps,
        endpoints: &BTreeMap<u32, (String, Endpoint)>,
    ) -> Result<(), LoadError> {
        fits("small_tables", maps.small_tables.len())?;
        fits("large_tables", maps.large_tables.len())?;
        fits("set_rows", maps.set_rows.len())?;
        fits("classes", maps.classes.len())?;
        fits("prefixes", maps.prefixes.len())?;
        fits("services", maps.services.len())?;
        fits("endpoints", endpoints.len())?;
        self.array("small_tables", (0..).zip(maps.small_tables.iter().copied()))?;
        self.array("large_tables", (0..).zip(maps.large_tables.iter().copied()))?;
        self.hash("set_rows", maps.set_rows.iter().map(|(key, value)| (*key, *value)))?;
        self.hash("classes", maps.classes.iter().map(|(key, value)| (*key, *value)))?;
        self.hash("services", maps.services.iter().map(|(key, value)| (*key, *value)))?;
        self.prefixes(&maps.prefixes)?;
        self.generation += 1;
        let slots = self.slots_for(endpoints.keys());
        // A slot has two rows, and the generation selects one: the row in use is not changed.
        let row = |slot: u32| slot * 2 + self.generation % 2;
        let generation = u64::from(self.generation) << 32;
        let rows = endpoints.iter().zip(&slots).map(|((_, (uid, _)), slot)| {
            (row(*slot), maps.rows.get(uid).copied().unwrap_or(Row::CLOSED).to_bytes())
        });
        let rows: Vec<(u32, [u8; 16])> = rows.collect();
        let current: Vec<(u32, u64)> =
            slots.iter().map(|slot| (*slot, generation | u64::from(row(*slot)))).collect();
        self.array("rows", rows.into_iter())?;
        self.array("current", current.into_iter())?;
        // New links come last: their slots have rows now.
        let values = endpoints.iter().zip(&slots).map(|((link, (_, endpoint)), slot)| {
            (*link, Endpoint { slot: *slot, ..*endpoint }.to_bytes())
        });
        self.hash("endpoints", values)?;
        self.slots = endpoints.keys().copied().zip(slots).collect();
        Ok(())
    }

    /// The slots of these links: a known link keeps its own, and no other link has it yet.
    fn slots_for<'a>(&self, links: impl Iterator<Item = &'a u32>) -> Vec<u32> {
        let used: BTreeSet<u32> = self.slots.values().copied().collect();
        let mut free = (0..).filter(|slot| !used.contains(slot));
        let slot = |link: &u32| self.slots.get(link).copied().or_else(|| free.next());
        links.filter_map(slot).collect()
    }

    /// Runs a program on a packet without attaching it; `ifindex` is the hook's link and `ingress` the link by which the
    /// packet entered. Returns the action.
    ///
    /// # Errors
    /// If the kernel cannot run it.
    pub fn test(
        &mut self,
        hook: Hook,
        packet: &[u8],
        ifindex: u32,
        ingress: u32,
    ) -> Result<i32, LoadError> {
        // Of `struct __sk_buff`: ingress_ifindex and ifindex.
        let mut context = [0_u8; 192];
        context[36..40].copy_from_slice(&ingress.to_ne_bytes());
        context[40..44].copy_from_slice(&ifindex.to_ne_bytes());
        let options = TestRunOptions {
            data_in: Some(packet),
            ctx_in: Some(&context),
            ..TestRunOptions::default()
        };
        let run = program(&mut self.ebpf, hook)?.test_run(options);
        let done = run.map_err(|cause| LoadError::Program { name: hook.name(), cause })?;
        Ok(done.return_value.cast_signed())
    }

    /// Removes all connections: the next packet of each is judged as a first one.
    ///
    /// # Errors
    /// If the map cannot be read.
    pub fn clear_flows(&mut self) -> Result<(), LoadError> {
        self.hash("flows", std::iter::empty::<([u8; FLOW_KEY], [u8; FLOW])>())
    }

    fn prefixes(&mut self, prefixes: &BTreeMap<PrefixKey, u32>) -> Result<(), LoadError> {
        let fault = |cause| LoadError::Map { name: "prefixes", cause };
        let map = map(&mut self.ebpf, "prefixes")?;
        let mut trie = LpmTrie::<_, AddressKey, u32>::try_from(map).map_err(fault)?;
        let key = |(length, first): &(u32, AddressKey)| Key::new(*length, *first);
        let wanted: BTreeMap<(u32, AddressKey), u32> =
            prefixes.iter().map(|(key, class)| (split(key), *class)).collect();
        for (prefix, class) in &wanted {
            trie.insert(&key(prefix), class, 0).map_err(fault)?;
        }
        let there: Vec<Key<AddressKey>> = trie.keys().collect::<Result<_, _>>().map_err(fault)?;
        for key in there {
            if !wanted.contains_key(&(key.prefix_len(), key.data())) {
                trie.remove(&key).map_err(fault)?;
            }
        }
        Ok(())
    }

    fn array<V: Pod>(
        &mut self,
        name: &'static str,
        values: impl Iterator<Item = (u32, V)>,
    ) -> Result<(), LoadError> {
        let fault = |cause| LoadError::Map { name, cause };
        let mut array = Array::<_, V>::try_from(map(&mut self.ebpf, name)?).map_err(fault)?;
        for (index, value) in values {
            array.set(index, value, 0).map_err(fault)?;
        }
        Ok(())
    }

    /// Replaces the contents of a map.
    fn hash<K: Pod + Ord, V: Pod>(
        &mut self,
        name: &'static str,
        rows: impl Iterator<Item = (K, V)>,
    ) -> Result<(), LoadError> {
        let fault = |cause| LoadError::Map { name, cause };
        let mut hash = HashMap::<_, K, V>::try_from(map(&mut self.ebpf, name)?).map_err(fault)?;
        let rows: BTreeMap<K, V> = rows.collect();
        for (key, value) in &rows {
            hash.insert(key, value, 0).map_err(fault)?;
        }
        let there: Vec<K> = hash.keys().collect::<Result<_, _>>().map_err(fault)?;
        for key in there.iter().filter(|key| !rows.contains_key(key)) {
            hash.remove(key).map_err(fault)?;
        }
        Ok(())
    }
}

impl Hook {
    fn direction(self) -> TcAttachType {
        match self {
            Self::FromPod => TcAttachType::Ingress,
            Self::ToPod | Self::ToWire => TcAttachType::Egress,
        }
    }

    /// The program's name.
    fn name(self) -> &'static str {
        match self {
            Self::FromPod => "from_pod",
            Self::ToPod => "to_pod",
            Self::ToWire => "to_wire",
        }
    }
}

/// Priority and handle of the filters. They identify a filter of an earlier process.
const PRIORITY: u16 = 50;
const HANDLE: TcHandle = TcHandle::new(0, 1);

/// A map that outlives a process: sizes of key and value in bytes, and the limit of its rows.
struct Layout {
    name: &'static str,
    key: u32,
    value: u32,
    rows: u32,
}

/// As in `datapath/bpf/tables.h`.
const LAYOUTS: [Layout; 10] = [
    Layout::new("endpoints", 4, 40, 2048),
    Layout::new("current", 4, 8, 2048),
    Layout::new("rows", 4, 16, 4096),
    Layout::new("classes", 16, 4, 131_072),
    Layout::new("prefixes", 20, 4, 65_536),
    Layout::new("services", 16, 4, 16_384),
    Layout::new("set_rows", 12, 4, 262_144),
    Layout::new("small_tables", 4, 256, 8192),
    Layout::new("large_tables", 4, 8192, 256),
    Layout::new("flows", 40, 24, 131_072),
];

impl Layout {
    const fn new(name: &'static str, key: u32, value: u32, rows: u32) -> Self {
        Self { name, key, value, rows }
    }

    /// Compares the layout with that of the pinned map.
    fn check(&self, pin: &Path) -> Result<(), LoadError> {
        let fault = |cause| LoadError::Map { name: self.name, cause };
        let found = MapInfo::from_pin(pin).map_err(fault)?;
        let found = (found.key_size(), found.value_size(), found.max_entries());
        if found == (self.key, self.value, self.rows) {
            return Ok(());
        }
        Err(LoadError::Layout { name: self.name, found })
    }
}

/// Checks the number of rows before anything is written.
fn fits(name: &'static str, rows: usize) -> Result<(), LoadError> {
    let limit = LAYOUTS.iter().find(|layout| layout.name == name).map_or(0, |of| of.rows);
    match rows <= limit as usize {
        true => Ok(()),
        false => Err(LoadError::Full { name, rows, limit }),
    }
}

/// The filter that this hook's program has at the link, if there is one.
fn earlier(hook: Hook, link: &str) -> Result<SchedClassifierLink, std::io::Error> {
    SchedClassifierLink::attached(link, hook.direction(), PRIORITY, HANDLE, None)
}

/// Sizes of `struct flow_key` and `struct flow`.
const FLOW_KEY: usize = 40;
const FLOW: usize = 24;

/// The length and the first address of a prefix.
fn split(key: &PrefixKey) -> (u32, AddressKey) {
    let (mut length, mut first) = ([0; 4], [0; 16]);
    length.copy_from_slice(&key[..4]);
    first.copy_from_slice(&key[4..]);
    (u32::from_ne_bytes(length), first)
}

fn program(ebpf: &mut Ebpf, hook: Hook) -> Result<&mut SchedClassifier, LoadError> {
    let absent = || LoadError::Absent(hook.name());
    let program = ebpf.program_mut(hook.name()).ok_or_else(absent)?;
    program.try_into().map_err(|cause| LoadError::Program { name: hook.name(), cause })
}

fn map<'a>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut Map, LoadError> {
    ebpf.map_mut(name).ok_or(LoadError::Absent(name))
}
