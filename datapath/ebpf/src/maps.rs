//! The maps of the programs, with the types of their keys and values.

use crate::{
    LoadError,
    classes::{CLASSES, Classes},
    reasons::COUNT,
    written::Written,
};
use aya::{
    Ebpf,
    maps::{
        Array, HashMap, LpmTrie, Map, MapData, MapError, MapInfo, PerCpuArray, PerCpuHashMap,
        RingBuf, lpm_trie::Key,
    },
    util::nr_cpus,
};
use config_settings::Connections;
use datapath_abi::{
    AddressKey, Endpoint, EndpointValue, FlowKey, FlowValue, Held, LargeTable, Limits, OWN_PLACES,
    PLACES, Place, PlaceValue, Row, RowValue, SetKey, Settings, SettingsValue, Share, ShareValue,
    SmallTable, Use, UseValue, Write, address, address_key, behind_nat, halves, halves_of,
    place_of_own, set_key, set_of, slot_entries, slot_rows,
};
use datapath_plan::{Address, Prefix};
use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    path::{Path, PathBuf},
    sync::{
        LazyLock,
        atomic::{Ordering, fence},
    },
};

type Halves = [u8; 16];

/// The maps. The programs and the pins hold them too.
pub(crate) struct Maps {
    places: Array<MapData, PlaceValue>,
    endpoints: HashMap<MapData, u32, EndpointValue>,
    active: Array<MapData, u64>,
    rows: Array<MapData, RowValue>,
    classes: Classes,
    prefixes: LpmTrie<MapData, AddressKey, Halves>,
    services: HashMap<MapData, AddressKey, Halves>,
    set_rows: HashMap<MapData, SetKey, u32>,
    small_tables: Array<MapData, SmallTable>,
    large_tables: Array<MapData, LargeTable>,
    rules: HashMap<MapData, u32, u64>,
    shares: Array<MapData, ShareValue>,
    settings: Array<MapData, SettingsValue>,
    own_addresses: HashMap<MapData, AddressKey, u32>,
    own_places: Array<MapData, u32>,
    node_address: Array<MapData, AddressKey>,
    flows: HashMap<MapData, FlowKey, FlowValue>,
    half_open: HashMap<MapData, FlowKey, FlowValue>,
    counters: PerCpuArray<MapData, u64>,
    uses: PerCpuHashMap<MapData, u32, UseValue>,
    wanted_events: Array<MapData, [u32; 2]>,
    events: Option<RingBuf<MapData>>,
    /// The pods to which NAT of the host leads datagrams, and their links: responders of connections that were added, and pods
    /// whose rows were marked.
    behind_nat: BTreeMap<Address, u32>,
}

/// A map that outlives a process: sizes of key and value in bytes, and the limit of its rows.
#[derive(Clone, Copy, Hash)]
pub(crate) struct Layout {
    pub(crate) name: &'static str,
    key: u32,
    value: u32,
    pub(crate) rows: u32,
}

/// As in `datapath/bpf/tables.h` and `names.h`. A setting changes the rows of `flows`.
const LAYOUTS: [Layout; 58] = [
    Layout::new("endpoints", 4, 104, 2048),
    Layout::new("places", 4, 64, PLACES),
    Layout::new("active", 4, 8, 1),
    Layout::new("rows", 4, 32, 4096),
    Layout::new(CLASSES, 4, 32, 16_384),
    Layout::new("prefixes", 20, 16, 65_536),
    Layout::new("services", 16, 16, 4096),
    Layout::new("set_rows", 24, 4, 32_768),
    Layout::new("small_tables", 4, 256, 2048),
    Layout::new("large_tables", 4, 8192, 64),
    Layout::new("rules", 4, 8, 8192),
    Layout::new("shares", 4, 16, 2048),
    Layout::new("settings", 4, 104, 1),
    Layout::new("own_addresses", 16, 4, 4096),
    Layout::new("own_places", 4, 4, OWN_PLACES),
    Layout::new("node_address", 4, 16, 2),
    Layout::new("flows", 40, 80, 131_072),
    Layout::new("half_open", 40, 80, 32_768),
    Layout::new("sent", 4, 64, 8192),
    Layout::new("sent_count", 4, 4, 1),
    Layout::new("works", 4, 880, 1),
    Layout::new("fragments", 40, 8, 4096),
    Layout::new("counters", 4, 8, COUNT),
    Layout::new("uses", 4, 32, 131_072),
    Layout::new("events", 0, 0, 1 << 20),
    Layout::new("wanted_events", 4, 8, 1),
    Layout::new("event_limits", 4, 8, 2049),
    Layout::new("names_pods", 4, 16, 2048),
    Layout::new("dns_queries", 24, 16, 4096),
    Layout::new("dns_hold", 4, 16, 1),
    Layout::new("dns_answers", 0, 0, 1_048_576),
    Layout::new("dns_frames", 4, 16_408, 1),
    Layout::new("names", 336, 8, 16_384),
    Layout::new("names_used", 16, 8, 16_384),
    Layout::new("names_counters", 4, 8, 6),
    Layout::new("frontends", 24, 8, 1),
    Layout::new(SOURCE_RANGES, 24, 4, 1),
    Layout::new("service_words", 4, 8, 2),
    Layout::new("backends_small", 4, 64, 1),
    Layout::new("backends_medium", 4, 2048, 1),
    Layout::new("backends_large", 4, 32_768, 1),
    Layout::new("backends", 4, 24, 1),
    Layout::new("choices", 40, 32, 1),
    Layout::new("asked_addresses", 40, 24, 1),
    Layout::new("affinities", 40, 16, 1),
    Layout::new("service_fragments", 40, 16, 1),
    Layout::new("service_works", 4, 160, 1),
    Layout::new(STAGES, 4, 4, 8),
    Layout::new(FAST_PODS, 16, 20, 1),
    Layout::new(KNOWN_WAYS, 32, 16, 1),
    Layout::new("node_namespace", 4, 8, 1),
    Layout::new("socket_choices", 32, 32, 1),
    Layout::new("socket_asked_addresses", 32, 32, 1),
    Layout::new(WIRES, 4, 64, 256),
    Layout::new("outside_choices", 40, 32, 1),
    Layout::new("outside_flows", 40, 64, 1),
    Layout::new("outside_fragments", 40, 16, 1),
    Layout::new("outside_works", 4, 352, 1),
];

/// The programs that continue where another one ends.
pub(crate) const STAGES: &str = "stages";

/// The addresses of links to other nodes.
pub(crate) const WIRES: &str = "wires";

/// The ways to other nodes that the stack has used.
const KNOWN_WAYS: &str = "known_ways";

/// The pods that the fast path can reach.
pub(crate) const FAST_PODS: &str = "fast_pods";

/// The clients that load balancer addresses serve.
pub(crate) const SOURCE_RANGES: &str = "source_ranges";

/// The rows of maps with Services.
const WITH_SERVICES: [(&str, u32); 18] = [
    ("frontends", 65_536),
    (SOURCE_RANGES, 8192),
    ("service_words", 131_072),
    ("backends_small", 32_768),
    ("backends_medium", 1024),
    ("backends_large", 32),
    ("backends", 131_072),
    ("choices", 65_536),
    ("asked_addresses", 65_536),
    ("affinities", 16_384),
    (FAST_PODS, 4096),
    (KNOWN_WAYS, 8192),
    ("service_fragments", 2048),
    ("socket_choices", 16_384),
    ("socket_asked_addresses", 16_384),
    ("outside_choices", 32_768),
    ("outside_flows", 32_768),
    ("outside_fragments", 2048),
];

/// The layouts of the maps that only Services use, and that processes share. Known ways are those of the programs of one release.
pub(crate) fn of_services(layouts: &[Layout]) -> impl Iterator<Item = &Layout> {
    let is_of_services = |layout: &&Layout| {
        WITH_SERVICES.iter().any(|of| of.0 == layout.name) && layout.name != KNOWN_WAYS
    };
    layouts.iter().filter(is_of_services)
}

/// The offset of the generation in `struct flow`.
const GENERATION: usize = 52;

/// The layouts of all new maps. The map of open connections starts with at most the limit of rows.
pub(crate) fn layouts(connections: &Connections) -> [Layout; LAYOUTS.len()] {
    LAYOUTS.map(|layout| match layout.name {
        "flows" => layout.with(layout.rows.min(connections.limit)),
        name => {
            let rows = WITH_SERVICES.iter().find(|(of, _)| connections.services && *of == name);
            rows.map_or(layout, |(_, rows)| layout.with(*rows))
        }
    })
}

/// The layouts of the maps in a folder, and those of `new` that have no pin there.
pub(crate) fn layouts_in(
    folder: &Path,
    new: [Layout; LAYOUTS.len()],
) -> Result<[Layout; LAYOUTS.len()], LoadError> {
    let mut layouts = new;
    for layout in layouts.iter_mut().filter(|layout| layout.grows()) {
        let pin = folder.join(layout.name);
        if pin.exists() {
            let found = MapInfo::from_pin(&pin);
            let found = found.map_err(|cause| LoadError::Map { name: layout.name, cause })?;
            layout.rows = layout.rows_of(found.max_entries());
        }
    }
    Ok(layouts)
}

/// The start of the name of each folder of maps with these layouts. A number follows, which counts their growth. With
/// Services, some maps have more rows.
pub(crate) fn layout_name(services: bool) -> String {
    let mut hasher = DefaultHasher::new();
    LAYOUTS.hash(&mut hasher);
    if services {
        WITH_SERVICES.hash(&mut hasher);
    }
    format!("maps-{:016x}", hasher.finish())
}

/// The folder of the next growth after this one.
pub(crate) fn folder_of(folder: &Path) -> PathBuf {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let next = match name.rsplit_once('+') {
        Some((name, number)) => format!("{name}+{}", number.parse::<u32>().unwrap_or(0) + 1),
        None => format!("{name}+1"),
    };
    folder.with_file_name(next)
}

/// The newest folder of maps with these layouts below the folder of all pins.
pub(crate) fn newest(pins: &Path, services: bool) -> PathBuf {
    let layout = layout_name(services);
    let number = |name: &str| match name.strip_prefix(&layout)?.strip_prefix('+') {
        Some(number) => number.parse().ok(),
        None => Some(0_u32),
    };
    let names = std::fs::read_dir(pins).into_iter().flatten().flatten();
    let numbers = names.filter_map(|entry| number(&entry.file_name().to_string_lossy()));
    match numbers.max() {
        None | Some(0) => pins.join(layout),
        Some(last) => pins.join(format!("{layout}+{last}")),
    }
}

impl Layout {
    const fn new(name: &'static str, key: u32, value: u32, rows: u32) -> Self {
        Self { name, key, value, rows }
    }

    pub(crate) fn with(self, rows: u32) -> Self {
        Self { rows, ..self }
    }

    /// The entries of the map.
    pub(crate) fn entries(&self) -> u32 {
        if self.name == CLASSES { slot_entries(self.rows) } else { self.rows }
    }

    /// The rows of a map with this number of entries.
    fn rows_of(&self, entries: u32) -> u32 {
        if self.name == CLASSES { slot_rows(entries) } else { entries }
    }

    /// True if it is replaced by a larger map when it would be full.
    fn grows(&self) -> bool {
        self.name == "flows" || Limits::default().of(self.name).is_some()
    }

    /// The memory of the map in bytes, by the kernel's structures. `used` are the rows of policies by map; other rows
    /// count at their limit.
    pub(crate) fn memory(&self, used: &BTreeMap<&str, u64>) -> u64 {
        let [key, value] = [self.key, self.value].map(|size| u64::from(size.next_multiple_of(8)));
        let rows = u64::from(self.rows);
        let used = |map| used.get(map).copied().unwrap_or(0);
        let hash = |used: u64, value: u64| {
            rows.next_power_of_two() * BUCKET + used.min(rows) * (HASH_ROW + key + value)
        };
        match self.name {
            "rules" | "set_rows" | "services" | "own_addresses" => hash(used(self.name), value),
            // A row can need an inner node.
            "prefixes" => used(self.name) * 2 * (HASH_ROW + key + value),
            SOURCE_RANGES => rows * 2 * (HASH_ROW + key + value),
            "uses" => hash(used("rules"), value * *PROCESSORS),
            "flows"
            | "half_open"
            | "fragments"
            | "endpoints"
            | "choices"
            | "asked_addresses"
            | "affinities"
            | "frontends"
            | "socket_choices"
            | "socket_asked_addresses"
            | "outside_choices"
            | "outside_flows"
            | FAST_PODS
            | KNOWN_WAYS
            | "service_fragments"
            | "outside_fragments"
            | WIRES => hash(rows, value),
            _ => u64::from(self.entries()) * value.max(1),
        }
    }

    /// Compares the layout with that of the pinned map.
    pub(crate) fn check(&self, pin: &Path) -> Result<(), LoadError> {
        let fault = |cause| LoadError::Map { name: self.name, cause };
        let found = MapInfo::from_pin(pin).map_err(fault)?;
        let found = (found.key_size(), found.value_size(), found.max_entries());
        if found == (self.key, self.value, self.entries()) {
            return Ok(());
        }
        Err(LoadError::Layout { name: self.name, found })
    }
}

/// Takes a map out of the loaded object.
pub(crate) fn typed<T: TryFrom<Map, Error = MapError>>(
    ebpf: &mut Ebpf,
    name: &'static str,
) -> Result<T, LoadError> {
    let map = ebpf.take_map(name).ok_or(LoadError::Absent(name))?;
    T::try_from(map).map_err(|cause| LoadError::Map { name, cause })
}

impl Maps {
    pub(crate) fn take(ebpf: &mut Ebpf) -> Result<Self, LoadError> {
        Ok(Self {
            endpoints: typed(ebpf, "endpoints")?,
            places: typed(ebpf, "places")?,
            active: typed(ebpf, "active")?,
            rows: typed(ebpf, "rows")?,
            classes: Classes::new(ebpf.take_map(CLASSES).ok_or(LoadError::Absent(CLASSES))?)?,
            prefixes: typed(ebpf, "prefixes")?,
            services: typed(ebpf, "services")?,
            set_rows: typed(ebpf, "set_rows")?,
            small_tables: typed(ebpf, "small_tables")?,
            large_tables: typed(ebpf, "large_tables")?,
            rules: typed(ebpf, "rules")?,
            shares: typed(ebpf, "shares")?,
            settings: typed(ebpf, "settings")?,
            own_addresses: typed(ebpf, "own_addresses")?,
            own_places: typed(ebpf, "own_places")?,
            node_address: typed(ebpf, "node_address")?,
            flows: typed(ebpf, "flows")?,
            half_open: typed(ebpf, "half_open")?,
            counters: typed(ebpf, "counters")?,
            uses: typed(ebpf, "uses")?,
            wanted_events: typed(ebpf, "wanted_events")?,
            events: Some(typed(ebpf, "events")?),
            behind_nat: BTreeMap::new(),
        })
    }

    /// Reads the maps.
    pub(crate) fn read(&self, layouts: &[Layout]) -> Result<Held, LoadError> {
        let mut held = Held::default();
        for layout in layouts {
            if let Some(limit) = held.limits.of(layout.name) {
                *limit = layout.rows;
            }
        }
        let at = |name| move |cause| LoadError::Map { name, cause };
        held.generation = self.active.get(&0, 0).map_err(at("active"))?;
        for row in self.endpoints.iter() {
            let (link, value) = row.map_err(at("endpoints"))?;
            // The programs do not find it as it is.
            if !self.place(link).map_err(at("places"))?.finds(link, &value) {
                continue;
            }
            held.endpoints.insert(link, Endpoint::from_bytes(&value));
        }
        for endpoint in held.endpoints.values() {
            for number in [endpoint.slot * 2, endpoint.slot * 2 + 1] {
                let row = self.rows.get(&number, 0).map_err(at("rows"))?;
                held.rows.insert(number, Row::from_bytes(&row));
            }
        }
        held.classes = self.classes.read();
        for row in self.prefixes.iter() {
            let (key, value) = row.map_err(at("prefixes"))?;
            let length = u8::try_from(key.prefix_len()).unwrap_or(u8::MAX);
            let prefix = Prefix { first: address(key.data()), length };
            held.prefixes.insert(prefix, halves_of(&value));
        }
        for row in self.services.iter() {
            let (key, value) = row.map_err(at("services"))?;
            held.services.insert(address(key), halves_of(&value));
        }
        for row in self.set_rows.iter() {
            let (key, table) = row.map_err(at("set_rows"))?;
            held.set_rows.insert(set_of(&key), table);
        }
        for row in self.rules.iter() {
            let (number, digest) = row.map_err(at("rules"))?;
            held.rules.insert(number, digest);
        }
        for row in self.own_addresses.iter() {
            let (key, _) = row.map_err(at("own_addresses"))?;
            if self.own_place(&key).map_err(at("own_places"))? > 0 {
                held.own_addresses.insert(address(key));
            }
        }
        for (family, place) in (0..).zip(&mut held.node) {
            *place = address(self.node_address.get(&family, 0).map_err(at("node_address"))?);
        }
        let small = |number| self.small_tables.get(&number, 0).map_err(at("small_tables"));
        let large = |number| self.large_tables.get(&number, 0).map_err(at("large_tables"));
        held.read_tables(small, large)?;
        Ok(held)
    }

    /// The name of the map if its row is another one than this.
    pub(crate) fn differs(&self, written: Written<'_>) -> Result<Option<&'static str>, LoadError> {
        fn is<V: PartialEq>(found: Result<V, MapError>, wanted: &V) -> Result<bool, MapError> {
            match found {
                Ok(found) => Ok(found == *wanted),
                Err(MapError::KeyNotFound) => Ok(false),
                Err(cause) => Err(cause),
            }
        }
        let (name, is_same) = match written {
            Written::Generation(of) => ("active", is(self.active.get(&0, 0), &of)),
            Written::Endpoint(link, of) => {
                let of = of.to_bytes();
                let is_same = is(self.endpoints.get(&link, 0), &of);
                let finds = || self.place(link).map(|place| place.finds(link, &of));
                ("endpoints", is_same.and_then(|is_same| Ok(is_same && finds()?)))
            }
            Written::Row(number, of) => ("rows", is(self.rows.get(&number, 0), &of.to_bytes())),
            Written::OwnAddress(at) => {
                let key = address_key(at);
                let is_same = is(self.own_addresses.get(&key, 0), &1);
                let finds = || self.own_place(&key).map(|count| count > 0);
                ("own_addresses", is_same.and_then(|is_same| Ok(is_same && finds()?)))
            }
            Written::Node(family, at) => {
                ("node_address", is(self.node_address.get(&family, 0), &address_key(at)))
            }
            Written::Service(at, of) => {
                ("services", is(self.services.get(&address_key(at), 0), &halves(of)))
            }
            Written::Class(at, of) => (CLASSES, Ok(self.classes.get(at) == Some(of))),
            Written::Prefix(prefix, of) => {
                ("prefixes", is(self.prefixes.get(&trie_key(prefix), 0), &halves(of)))
            }
            Written::SetRow(key, table) => {
                ("set_rows", is(self.set_rows.get(&set_key(key), 0), &table))
            }
            Written::SmallTable(number, of) => {
                ("small_tables", is(self.small_tables.get(&number, 0), of))
            }
            Written::LargeTable(number, of) => {
                ("large_tables", is(self.large_tables.get(&number, 0), of))
            }
            Written::Rule(number, of) => ("rules", is(self.rules.get(&number, 0), &of)),
        };
        let is_same = is_same.map_err(|cause| LoadError::Map { name, cause })?;
        Ok((!is_same).then_some(name))
    }

    /// Writes one row.
    pub(crate) fn write(&mut self, write: &Write) -> Result<(), LoadError> {
        let (name, written) = match write {
            Write::Rule(number, Some(digest)) => ("rules", self.rules.insert(number, digest, 0)),
            Write::Rule(number, None) => {
                let fault = |cause| LoadError::Map { name: "uses", cause };
                gone(self.uses.remove(number)).map_err(fault)?;
                ("rules", gone(self.rules.remove(number)))
            }
            Write::SmallTable(number, table) => {
                ("small_tables", self.small_tables.set(*number, **table, 0))
            }
            Write::LargeTable(number, table) => {
                ("large_tables", self.large_tables.set(*number, **table, 0))
            }
            Write::SetRow(key, Some(table)) => {
                ("set_rows", self.set_rows.insert(set_key(*key), table, 0))
            }
            Write::SetRow(key, None) => ("set_rows", gone(self.set_rows.remove(&set_key(*key)))),
            Write::Class(at, Some(of)) => return Ok(self.classes.insert(*at, *of)?),
            Write::Class(at, None) => {
                self.classes.remove(*at);
                return Ok(());
            }
            Write::Service(at, Some(of)) => {
                ("services", self.services.insert(address_key(*at), halves(*of), 0))
            }
            Write::Service(at, None) => ("services", gone(self.services.remove(&address_key(*at)))),
            Write::Prefix(prefix, Some(of)) => {
                ("prefixes", self.prefixes.insert(&trie_key(*prefix), halves(*of), 0))
            }
            Write::Prefix(prefix, None) => {
                ("prefixes", gone(self.prefixes.remove(&trie_key(*prefix))))
            }
            Write::Row(number, row) => ("rows", self.rows.set(*number, row.to_bytes(), 0)),
            Write::Share(slot) => ("shares", self.shares.set(*slot, [0; 16], 0)),
            Write::OwnAddress(at, true) => ("own_addresses", self.add_own(&address_key(*at))),
            Write::OwnAddress(at, false) => ("own_addresses", self.remove_own(&address_key(*at))),
            Write::Node(family, at) => {
                ("node_address", self.node_address.set(*family, address_key(*at), 0))
            }
            Write::Flip(generation) => {
                // A processor that reorders stores must not show the generation before the classes.
                fence(Ordering::SeqCst);
                ("active", self.active.set(0, generation, 0))
            }
            Write::Endpoint(link, Some(endpoint)) => {
                ("endpoints", self.add_endpoint(*link, endpoint))
            }
            Write::Endpoint(link, None) => ("endpoints", self.remove_endpoint(*link)),
        };
        written.map_err(|cause| LoadError::Map { name, cause })
    }

    pub(crate) fn classes(&mut self) -> &mut Classes {
        &mut self.classes
    }

    fn place(&self, link: u32) -> Result<Place, MapError> {
        self.places.get(&Place::of(link), 0).map(Place::from_bytes)
    }

    fn set_place(&mut self, link: u32, value: PlaceValue) -> Result<(), MapError> {
        // A processor that reorders stores must not show a link before its copy, or a row before its count.
        fence(Ordering::SeqCst);
        self.places.set(Place::of(link), value, 0)
    }

    /// The count at the place of an own address.
    fn own_place(&self, address: &AddressKey) -> Result<u32, MapError> {
        self.own_places.get(&place_of_own(address), 0)
    }

    /// A process that ends between the writes leaves a count that is too large. It is never too small.
    fn add_endpoint(&mut self, link: u32, endpoint: &Endpoint) -> Result<(), MapError> {
        let (endpoint, is_new) = (endpoint.to_bytes(), !has(self.endpoints.get(&link, 0))?);
        let mut place = self.place(link)?;
        if !is_new && place.count() == 0 {
            // Another process has changed it. There may be more rows at this place.
            let is_here = |other: &u32| Place::of(*other) == Place::of(link);
            place = place.with_count(count(self.endpoints.keys(), is_here)?);
        }
        let [before, after] = place.add(link, &endpoint, is_new);
        for value in before {
            self.set_place(link, value)?;
        }
        self.endpoints.insert(link, endpoint, 0)?;
        after.into_iter().try_for_each(|value| self.set_place(link, value))
    }

    fn remove_endpoint(&mut self, link: u32) -> Result<(), MapError> {
        if !has(self.endpoints.get(&link, 0))? {
            return Ok(());
        }
        let [before, after] = self.place(link)?.remove(link);
        self.set_place(link, before)?;
        gone(self.endpoints.remove(&link))?;
        self.set_place(link, after)
    }

    /// As for an endpoint, the count is never too small.
    fn add_own(&mut self, address: &AddressKey) -> Result<(), MapError> {
        let (place, was) = (place_of_own(address), self.own_place(address)?);
        let is_new = !has(self.own_addresses.get(address, 0))?;
        let is = match (is_new, was) {
            (true, _) => was.saturating_add(1),
            (false, 0) => count(self.own_addresses.keys(), |of| place_of_own(of) == place)?,
            (false, _) => was,
        };
        if is != was {
            self.own_places.set(place, is, 0)?;
        }
        self.own_addresses.insert(address, 1, 0)
    }

    fn remove_own(&mut self, address: &AddressKey) -> Result<(), MapError> {
        if !has(self.own_addresses.get(address, 0))? {
            return Ok(());
        }
        gone(self.own_addresses.remove(address))?;
        let count = self.own_place(address)?;
        self.own_places.set(place_of_own(address), count.saturating_sub(1), 0)
    }

    /// Writes the rows of one map.
    pub(crate) fn add_rows(&mut self, map: &str, held: &Held) -> Result<(), LoadError> {
        let mut writes: Vec<Write> = Vec::new();
        match map {
            "rules" => writes.extend(held.rules.iter().map(|(at, of)| Write::Rule(*at, Some(*of)))),
            "set_rows" => {
                writes.extend(held.set_rows.iter().map(|(at, of)| Write::SetRow(*at, Some(*of))));
            }
            "classes" => {
                writes.extend(held.classes.iter().map(|(at, of)| Write::Class(*at, Some(*of))));
            }
            "prefixes" => {
                writes.extend(held.prefixes.iter().map(|(at, of)| Write::Prefix(*at, Some(*of))));
            }
            "services" => {
                writes.extend(held.services.iter().map(|(at, of)| Write::Service(*at, Some(*of))));
            }
            "small_tables" => writes.extend(
                held.small_tables.iter().map(|(at, of)| Write::SmallTable(*at, Box::new(*of))),
            ),
            "large_tables" => writes.extend(
                held.large_tables.iter().map(|(at, of)| Write::LargeTable(*at, Box::new(*of))),
            ),
            _ => {}
        }
        writes.iter().try_for_each(|write| self.write(write))
    }

    /// Adds the connections of other maps that these do not have.
    pub(crate) fn add_flows_of(&mut self, other: &Self) -> Result<(), LoadError> {
        for flow in other.flows.iter() {
            match flow {
                Ok((key, flow)) => match self.add_flow(&key, &flow) {
                    // The others are judged again.
                    Err(LoadError::Map { cause: MapError::SyscallError(error), .. })
                        if error.io_error.raw_os_error() == Some(E2BIG) =>
                    {
                        return Ok(());
                    }
                    added => drop(added?),
                },
                // A program has removed it meanwhile.
                Err(MapError::KeyNotFound) => {}
                Err(cause) => return Err(LoadError::Map { name: "flows", cause }),
            }
        }
        Ok(())
    }

    /// Adds a connection. Returns false if its key has a row already, which stays.
    pub(crate) fn add_flow(&mut self, key: &FlowKey, flow: &FlowValue) -> Result<bool, LoadError> {
        match self.flows.insert(key, flow, NO_EXIST) {
            Ok(()) => {
                self.behind_nat.extend(behind_nat(key, flow));
                Ok(true)
            }
            Err(MapError::SyscallError(error)) if error.io_error.raw_os_error() == Some(EEXIST) => {
                Ok(false)
            }
            Err(cause) => Err(LoadError::Map { name: "flows", cause }),
        }
    }

    /// The pods to which NAT of the host leads datagrams, and their links.
    pub(crate) fn behind_nat(&self) -> &BTreeMap<Address, u32> {
        &self.behind_nat
    }

    /// Adds pods to which NAT of the host leads datagrams.
    pub(crate) fn add_behind_nat(&mut self, pods: BTreeMap<Address, u32>) {
        self.behind_nat.extend(pods);
    }

    /// Adds to the number of a slot's connections. A change by a program at the same time can be lost.
    pub(crate) fn charge(&mut self, slot: u32, flows: u64) -> Result<(), LoadError> {
        let fault = |cause| LoadError::Map { name: "shares", cause };
        let share = Share::from_bytes(&self.shares.get(&slot, 0).map_err(fault)?);
        let share = Share { flows: share.flows.saturating_add(flows), ..share };
        self.shares.set(slot, share.to_bytes(), 0).map_err(fault)
    }

    /// Sets the end of the window of a slot that has had none. A change of its connections by a program at the same time
    /// can be lost.
    pub(crate) fn open_window(&mut self, slot: u32, window_end: u64) -> Result<(), LoadError> {
        let fault = |cause| LoadError::Map { name: "shares", cause };
        let share = Share::from_bytes(&self.shares.get(&slot, 0).map_err(fault)?);
        if share.window_end != 0 {
            return Ok(());
        }
        self.shares.set(slot, Share { window_end, ..share }.to_bytes(), 0).map_err(fault)
    }

    /// Writes the settings if the map has others. Returns true if it wrote them.
    pub(crate) fn set(&mut self, settings: &Settings) -> Result<bool, LoadError> {
        let fault = |cause| LoadError::Map { name: "settings", cause };
        let bytes = settings.to_bytes();
        if self.settings.get(&0, 0).map_err(fault)? == bytes {
            return Ok(false);
        }
        self.settings.set(0, bytes, 0).map_err(fault)?;
        Ok(true)
    }

    /// Removes all connections.
    pub(crate) fn clear_flows(&mut self) -> Result<(), LoadError> {
        for (name, map) in [("flows", &mut self.flows), ("half_open", &mut self.half_open)] {
            let fault = |cause| LoadError::Map { name, cause };
            let keys: Vec<FlowKey> = map.keys().collect::<Result<_, _>>().map_err(fault)?;
            for key in keys {
                gone(map.remove(&key)).map_err(fault)?;
            }
        }
        Ok(())
    }

    /// Copies connections from the maps that another release pinned. Returns the number of those that are copied and of those
    /// without room, or `None` if their layout is another one.
    pub(crate) fn copy_flows(&mut self, pins: &Path) -> Result<Option<(usize, usize)>, LoadError> {
        let Some(others) = flows_of(pins)? else { return Ok(None) };
        let (mut copied, mut left) = (0, 0);
        for flow in others.iter() {
            let (key, mut flow) = flow.map_err(|cause| LoadError::Map { name: "flows", cause })?;
            // No generation of these maps has judged it.
            flow[GENERATION..GENERATION + 4].copy_from_slice(&u32::MAX.to_ne_bytes());
            match self.add_flow(&key, &flow) {
                Err(LoadError::Map { cause: MapError::SyscallError(error), .. })
                    if error.io_error.raw_os_error() == Some(E2BIG) =>
                {
                    left += 1;
                }
                added => copied += usize::from(added?),
            }
        }
        Ok(Some((copied, left)))
    }

    /// The use of rules, by their number.
    pub(crate) fn uses(&self) -> Result<BTreeMap<u32, Use>, LoadError> {
        let mut uses = BTreeMap::new();
        for row in self.uses.iter() {
            let (number, rows) = row.map_err(|cause| LoadError::Map { name: "uses", cause })?;
            let mut of = Use::default();
            rows.iter().for_each(|row| of.add(row));
            uses.insert(number, of);
        }
        Ok(uses)
    }

    /// The ring of events. `None` after the first call.
    pub(crate) fn take_events(&mut self) -> Option<RingBuf<MapData>> {
        self.events.take()
    }

    /// Sets the events that the programs send.
    pub(crate) fn want_events(&mut self, allowed: bool, limit: u32) -> Result<(), LoadError> {
        let set = self.wanted_events.set(0, [u32::from(allowed), limit], 0);
        set.map_err(|cause| LoadError::Map { name: "wanted_events", cause })
    }

    /// The counters, by the number of their reason.
    pub(crate) fn counters(&self) -> Result<BTreeMap<u32, u64>, LoadError> {
        let mut counters = BTreeMap::new();
        for reason in 0..self.counters.len() {
            let of = self.counters.get(&reason, 0);
            let of = of.map_err(|cause| LoadError::Map { name: "counters", cause })?;
            counters.insert(reason, of.iter().sum());
        }
        Ok(counters)
    }
}

/// The connections that another release pinned. `None` if their layout is another one.
fn flows_of(pins: &Path) -> Result<Option<HashMap<MapData, FlowKey, FlowValue>>, LoadError> {
    let pin = pins.join("flows");
    let fault = |cause| LoadError::Map { name: "flows", cause };
    let found = MapInfo::from_pin(&pin).map_err(fault)?;
    let sizes = (found.key_size() as usize, found.value_size() as usize);
    if sizes != (size_of::<FlowKey>(), size_of::<FlowValue>()) {
        return Ok(None);
    }
    let map = Map::from_map_data(MapData::from_pin(&pin).map_err(fault)?).map_err(fault)?;
    HashMap::try_from(map).map(Some).map_err(fault)
}

/// The number of connections that another release pinned; 0 if their layout is another one.
pub(crate) fn open_flows(pins: &Path) -> Result<u32, LoadError> {
    let Some(flows) = flows_of(pins)? else { return Ok(0) };
    let open = flows.keys().filter(Result::is_ok).count();
    Ok(u32::try_from(open).unwrap_or(u32::MAX))
}

fn trie_key(prefix: Prefix) -> Key<AddressKey> {
    Key::new(u32::from(prefix.length), address_key(prefix.first))
}

/// The number of these keys.
fn count<K>(
    keys: impl Iterator<Item = Result<K, MapError>>,
    is_one: impl Fn(&K) -> bool,
) -> Result<u32, MapError> {
    keys.map(|key| Ok(u32::from(is_one(&key?)))).sum()
}

/// True if a map has the row.
fn has<V>(found: Result<V, MapError>) -> Result<bool, MapError> {
    match found {
        Ok(_) => Ok(true),
        Err(MapError::KeyNotFound) => Ok(false),
        Err(cause) => Err(cause),
    }
}

/// A row that does not exist is removed.
pub(crate) fn gone(removed: Result<(), MapError>) -> Result<(), MapError> {
    match removed {
        Err(MapError::KeyNotFound) => Ok(()),
        Err(MapError::SyscallError(error)) if error.io_error.raw_os_error() == Some(2) => Ok(()),
        other => other,
    }
}

/// The processors that the machine can have. A map for each processor has a value for each of them.
static PROCESSORS: LazyLock<u64> =
    LazyLock::new(|| nr_cpus().ok().and_then(|count| count.try_into().ok()).unwrap_or(1));
/// `struct bucket` of kernel/bpf/hashtab.c.
const BUCKET: u64 = 16;
/// A row of a hash map without key and value: `struct htab_elem` and its place among objects of equal size.
const HASH_ROW: u64 = 64;
/// linux/bpf.h: BPF_NOEXIST
const NO_EXIST: u64 = 1;
/// asm-generic/errno-base.h
const EEXIST: i32 = 17;
/// asm-generic/errno-base.h: a hash map is full.
const E2BIG: i32 = 7;
