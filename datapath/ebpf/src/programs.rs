//! The loaded programs.

use crate::{
    Events, LoadError,
    classes::CLASSES,
    fast::{FastPods, behind_nat, plan, silent},
    maps::{Layout, Maps, SOURCE_RANGES, STAGES, layouts, layouts_in, typed},
    names::NamesMaps,
    pins::{PinnedMaps, repair_program},
    reasons::REASONS,
    services::ServiceMaps,
    settings::settings,
    sums::{FRONTENDS_NUMBER, Summed, sum_of_frontends},
    wires::Wires,
};
use aya::{
    Ebpf, EbpfLoader,
    maps::{MapData, ProgramArray},
    programs::{
        ProgramError, SchedClassifier, TcAttachType, TestRun as _, TestRunOptions,
        tc::{NlOptions, SchedClassifierLink, TcAttachOptions, TcError, TcHandle},
    },
};
use config_settings::Connections;
use datapath_abi::{Flow, FlowKey, Held, Settings, Use, Write};
use datapath_node::Paths;
use routing_netlink::{BpfFilter, Filters, OtherFilters, Side};
use routing_plan::IfIndex;
use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    net::{IpAddr, Ipv4Addr},
    os::fd::{AsFd as _, BorrowedFd},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

/// A hook: the place at which a program judges packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hook {
    /// Ingress of a pod's host veth: packets from the pod.
    FromPod,
    /// Egress of a pod's host veth: packets to the pod.
    ToPod,
    /// Egress of a link to other nodes.
    ToWire,
    /// Ingress of a link to other nodes, with Services.
    FromWire,
    /// [`Self::ToPod`] for a test: the packet counts as sent by the pod of its ingress link.
    TestToPod,
    /// [`Self::ToWire`] for a test.
    TestToWire,
}

/// For tests: a packet as a pod sent it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentAs {
    /// The class of the Service's address that was asked for; 0 for none.
    pub service: u64,
    /// The link of a later packet, which has taken the place of this one; 0 for none.
    pub later: u32,
    /// The address that was asked for; `None` if it is the destination.
    pub asked: Option<Ipv4Addr>,
}

/// The loaded programs with their maps. A drop removes maps and programs that are neither attached nor pinned.
pub struct Programs {
    ebpf: Ebpf,
    maps: Maps,
    stages: ProgramArray<MapData>,
    services: ServiceMaps,
    names: Arc<Mutex<NamesMaps>>,
    /// The folder of their pins.
    folder: Option<PathBuf>,
    /// The pinned maps, and the settings that they have.
    pinned_maps: Option<PinnedMaps>,
    settings: Settings,
    object: PathBuf,
    connections: Connections,
    layouts: Vec<Layout>,
    /// Programs of an earlier process with the same object and maps.
    pinned: BTreeMap<&'static str, SchedClassifier>,
    /// The kernel's ids of the programs.
    ids: BTreeMap<Hook, u32>,
    effects: Arc<Effects>,
}

/// For tests: counts writes to maps and changes of filters, and ends a process after some of them.
#[derive(Debug, Default)]
pub struct Effects {
    done: AtomicUsize,
    /// The number of further effects that are carried out, plus 1; 0 for no limit.
    left: AtomicUsize,
}

impl Effects {
    /// The number of effects so far.
    pub fn done(&self) -> usize {
        self.done.load(Ordering::SeqCst)
    }

    /// Fails each effect after this number of further ones.
    pub fn stop_after(&self, effects: Option<usize>) {
        self.left.store(effects.map_or(0, |effects| effects + 1), Ordering::SeqCst);
    }

    /// Counts an effect before it is carried out.
    fn count(&self) -> Result<(), LoadError> {
        match self.left.load(Ordering::SeqCst) {
            0 => {}
            1 => return Err(LoadError::Stopped),
            left => self.left.store(left - 1, Ordering::SeqCst),
        }
        self.done.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

impl Programs {
    /// Loads the object file. Maps are pinned in the folder, which is on a bpffs; maps that an earlier process pinned
    /// there are used as they are. Without a folder the maps are new. `connections` is written to the map `settings`.
    ///
    /// # Errors
    /// If the kernel refuses a program or a map, or a pinned map has another layout.
    pub fn load(
        object: &Path,
        pins: Option<&Path>,
        connections: &Connections,
    ) -> Result<Self, LoadError> {
        Self::load_with(object, pins, connections, None)
    }

    /// `larger` is a map with its number of rows.
    pub(crate) fn load_with(
        object: &Path,
        pins: Option<&Path>,
        connections: &Connections,
        larger: Option<(&str, u32)>,
    ) -> Result<Self, LoadError> {
        let mut layouts = layouts(connections);
        for layout in &mut layouts {
            if let Some((_, rows)) = larger.filter(|(name, _)| *name == layout.name) {
                layout.rows = rows;
            }
        }
        if let Some(folder) = pins {
            layouts = layouts_in(folder, layouts)?;
        }
        let mut loader = EbpfLoader::new();
        for layout in &layouts {
            loader.map_max_entries(layout.name, layout.entries());
        }
        let unreadable = |cause| LoadError::File { file: object.to_owned(), cause };
        let bytes = std::fs::read(object).map_err(unreadable)?;
        if let Some(folder) = pins {
            let fault = |cause| LoadError::Folder { folder: folder.to_owned(), cause };
            std::fs::create_dir_all(folder).map_err(fault)?;
            let system = rustix::fs::statfs(folder).map_err(|errno| fault(errno.into()))?;
            if system.f_type != BPFFS {
                return Err(fault(std::io::Error::other("it is not on a bpffs")));
            }
        }
        for (layout, pins) in pins.iter().flat_map(|pins| layouts.iter().map(move |of| (of, pins)))
        {
            loader.map_pin_path(layout.name, pins.join(layout.name));
        }
        // Programs that are pinned use the maps that were pinned with them.
        let is_whole =
            pins.is_none_or(|pins| layouts.iter().all(|layout| pins.join(layout.name).exists()));
        if let (Some(pins), false) = (pins, is_whole) {
            let _ = std::fs::remove_dir_all(pins.join(program_folder(&bytes)));
        }
        let mut ebpf = loader.load(&bytes)?;
        // Before the programs: the verifier's refusal of another layout would hide the cause.
        for (layout, pins) in pins.iter().flat_map(|pins| layouts.iter().map(move |of| (of, pins)))
        {
            layout.check(&pins.join(layout.name))?;
        }
        let maps_folder = pins;
        let pins = pins.map(|folder| folder.join(program_folder(&bytes)));
        let mut pinned = BTreeMap::new();
        for name in Hook::ATTACHED.map(Hook::name).into_iter().chain(RUN) {
            let fault = |cause| LoadError::Program { name, cause };
            let pin = pins.as_ref().map(|folder| folder.join(name));
            // The program of an earlier process has the same instructions and maps.
            let earlier = pin.as_ref().filter(|pin| pin.exists()).map(SchedClassifier::from_pin);
            if let Some(Ok(program)) = earlier {
                pinned.insert(name, program);
                continue;
            }
            let program = program(&mut ebpf, name)?;
            program.load().map_err(fault)?;
            if let (Some(pin), Some(folder)) = (&pin, &pins) {
                let fault = |cause| LoadError::Folder { folder: folder.clone(), cause };
                std::fs::create_dir_all(folder).map_err(fault)?;
                let _ = std::fs::remove_file(pin);
                program.pin(pin).map_err(|cause| LoadError::Pin { name, cause })?;
            }
        }
        let mut maps = Maps::take(&mut ebpf)?;
        let flows = layouts.iter().find(|layout| layout.name == "flows");
        let settings = settings(connections, flows.map_or(0, |flows| flows.rows));
        maps.set(&settings)?;
        let pinned_maps = maps_folder.map(|folder| PinnedMaps::open(folder, &layouts));
        let names = Arc::new(Mutex::new(NamesMaps::take(&mut ebpf)?));
        let services = ServiceMaps::take(&mut ebpf, &layouts)?;
        let stages = typed(&mut ebpf, STAGES)?;
        let mut programs = Self {
            ebpf,
            folder: pins,
            pinned_maps: pinned_maps.transpose()?,
            settings,
            object: object.to_owned(),
            connections: *connections,
            layouts: layouts.to_vec(),
            pinned,
            maps,
            stages,
            services,
            names,
            ids: BTreeMap::new(),
            effects: Arc::default(),
        };
        programs.set_stages()?;
        for hook in Hook::ATTACHED {
            let name = hook.name();
            let info = programs.program(name)?.info();
            let id = info.map_err(|cause| LoadError::Program { name, cause })?.id();
            programs.ids.insert(hook, id);
        }
        Ok(programs)
    }

    /// Recreates the pins that are missing or lead to other maps or programs, and writes settings that differ. Returns the
    /// names of both.
    pub(crate) fn repair(&mut self) -> Result<Vec<&'static str>, LoadError> {
        let Some(folder) = self.folder.clone() else { return Ok(Vec::new()) };
        let mut repaired = match (&self.pinned_maps, folder.parent()) {
            (Some(maps), Some(of_maps)) => maps.repair(of_maps)?,
            _ => Vec::new(),
        };
        for name in Hook::ATTACHED.map(Hook::name).into_iter().chain(RUN) {
            let program = self.program(name)?;
            let id = program.info().map_err(|cause| LoadError::Program { name, cause })?.id();
            if repair_program(&folder, name, id, |pin| program.pin(pin))? {
                repaired.push(name);
            }
        }
        let settings = self.settings;
        if self.maps.set(&settings)? {
            repaired.push("settings");
        }
        if self.maps.classes().repair_header() {
            repaired.push(CLASSES);
        }
        Ok(repaired)
    }

    /// Serves no new connections. Open TCP connections to Services keep their rows.
    pub(crate) fn drain_services(&mut self) -> Result<(), LoadError> {
        self.effect()?;
        self.services.drain()
    }

    /// Removes the pins of maps and programs. Filters keep their programs.
    pub(crate) fn remove_pins(&mut self) -> Result<(), LoadError> {
        self.pinned_maps = None;
        let Some(folder) = self.maps_folder() else { return Ok(()) };
        let fault = |cause| LoadError::Folder { folder: folder.to_owned(), cause };
        std::fs::remove_dir_all(folder).map_err(fault)
    }

    /// Gives the hooks the programs of Services. Without Services the hooks have none.
    fn set_stages(&mut self) -> Result<(), LoadError> {
        if !self.connections.services {
            return Ok(());
        }
        for (index, name) in (0..).zip(STAGE_PROGRAMS) {
            let program = self.program(name)?;
            let fd = program.fd().map_err(|cause| LoadError::Program { name, cause })?;
            let fd = fd.try_clone();
            let fd = fd.map_err(|cause| LoadError::Program { name, cause: cause.into() })?;
            let stages = &mut self.stages;
            stages.set(index, &fd, 0).map_err(|cause| LoadError::Map { name: STAGES, cause })?;
        }
        Ok(())
    }

    /// The folder of the pinned maps.
    pub(crate) fn maps_folder(&self) -> Option<&Path> {
        self.folder.as_deref().and_then(Path::parent)
    }

    /// The object with the programs that are not of links.
    pub(crate) fn ebpf(&mut self) -> &mut Ebpf {
        &mut self.ebpf
    }

    pub(crate) fn layouts(&self) -> &[Layout] {
        &self.layouts
    }

    /// Loads the same object with pins in another folder, and with other rows of a map that is not pinned there.
    pub(crate) fn load_beside(
        &self,
        folder: &Path,
        larger: (&'static str, u32),
    ) -> Result<Self, LoadError> {
        self.effect()?;
        let programs =
            Self::load_with(&self.object, Some(folder), &self.connections, Some(larger))?;
        Ok(Self { effects: Arc::clone(&self.effects), ..programs })
    }

    /// Gives the folder of maps its final name: it is complete.
    pub(crate) fn rename_maps(&mut self, begun: &Path, folder: &Path) -> Result<(), LoadError> {
        let fault = |cause| LoadError::Folder { folder: folder.to_owned(), cause };
        std::fs::rename(begun, folder).map_err(fault)?;
        let name = self.folder.as_ref().and_then(|folder| folder.file_name());
        self.folder = name.map(|name| folder.join(name));
        Ok(())
    }

    /// Writes the rows of one map.
    pub(crate) fn add_rows(&mut self, map: &str, held: &Held) -> Result<(), LoadError> {
        self.effect()?;
        self.maps.add_rows(map, held)
    }

    /// Adds the connections of other programs that these do not have.
    pub(crate) fn add_flows_of(&mut self, other: &Self) -> Result<(), LoadError> {
        self.maps.add_flows_of(&other.maps)
    }

    /// Sets whether connections stay among the half-open ones after their answer.
    pub(crate) fn hold_half_open(&mut self, keeps: bool) -> Result<(), LoadError> {
        self.settings.keeps_half_open = keeps;
        self.maps.set(&self.settings).map(drop)
    }

    /// The sum of a map's rows.
    pub(crate) fn sum(&mut self, map: Summed) -> Result<u64, LoadError> {
        match map.number() {
            Some(number) => self.run_sum(number),
            None => Ok(self.maps.classes().sum()),
        }
    }

    /// Runs the program that adds up the rows of a map.
    fn run_sum(&mut self, number: u32) -> Result<u64, LoadError> {
        let [low, high, ..] = self.run_with(SUM, number)?;
        Ok(u64::from(high) << 32 | u64::from(low))
    }

    /// Counts the open connections of a pod's link by path.
    ///
    /// # Errors
    /// If the kernel cannot run the program.
    pub fn paths(&mut self, link: u32) -> Result<Paths, LoadError> {
        let [_, stack, pods, nodes, _] = self.run_with(PATHS, link)?.map(u64::from);
        Ok(Paths { stack, pods, nodes })
    }

    /// Runs a program with a number in the packet's control block, and returns the block.
    fn run_with(&mut self, name: &'static str, number: u32) -> Result<[u32; 5], LoadError> {
        // Of `struct __sk_buff`: cb.
        let (mut context, mut after) = ([0_u8; 192], [0_u8; 192]);
        context[48..52].copy_from_slice(&number.to_ne_bytes());
        let options = TestRunOptions {
            data_in: Some(&[0; 64]),
            ctx_in: Some(&context),
            ctx_out: Some(&mut after),
            ..TestRunOptions::default()
        };
        let run = self.program(name)?.test_run(options);
        run.map_err(|cause| LoadError::Program { name, cause })?;
        let mut words = [0; 5];
        for (word, bytes) in words.iter_mut().zip(after[48..68].as_chunks::<4>().0) {
            *word = u32::from_ne_bytes(*bytes);
        }
        Ok(words)
    }

    pub(crate) fn maps(&self) -> &Maps {
        &self.maps
    }

    /// The folders of programs of other object files, in the folder of the maps.
    pub(crate) fn others(&self) -> Vec<PathBuf> {
        let Some(own) = &self.folder else { return Vec::new() };
        let entries = own.parent().map(std::fs::read_dir).into_iter().flatten().flatten();
        let folders = entries.flatten().map(|entry| entry.path());
        folders.filter(|folder| folder.is_dir() && folder != own).collect()
    }

    pub(crate) fn program(
        &mut self,
        name: &'static str,
    ) -> Result<&mut SchedClassifier, LoadError> {
        match self.pinned.get_mut(name) {
            Some(program) => Ok(program),
            None => program(&mut self.ebpf, name),
        }
    }

    /// Removes the rows of `classes` that no program finds. Another process has broken the order of the slots.
    pub(crate) fn remove_lost_classes(&mut self) {
        self.maps.classes().remove_lost();
    }

    /// Reads the maps.
    ///
    /// # Errors
    /// If a map cannot be read.
    pub fn read(&self) -> Result<Held, LoadError> {
        self.maps.read(&self.layouts)
    }

    /// Writes rows in their order.
    ///
    /// # Errors
    /// If the kernel refuses a row: the earlier ones are written.
    pub fn write<'a>(
        &mut self,
        held: &mut Held,
        writes: impl IntoIterator<Item = &'a Write>,
    ) -> Result<(), LoadError> {
        for write in writes {
            self.effect()?;
            self.maps.write(write)?;
            held.apply(write);
        }
        Ok(())
    }

    /// Reads the maps of Services.
    ///
    /// # Errors
    /// If a map cannot be read.
    pub fn read_services(&self) -> Result<service_abi::Held, LoadError> {
        self.services.read()
    }

    /// Reads the maps of Services, and removes the rows that no release writes.
    pub(crate) fn find_services(&mut self) -> Result<service_abi::Held, LoadError> {
        self.services.remove_foreign()?;
        self.services.read()
    }

    /// Writes rows of Services in their order.
    ///
    /// # Errors
    /// If the kernel refuses a row: the earlier ones are written.
    pub fn write_services(&mut self, writes: &[service_abi::Write]) -> Result<(), LoadError> {
        for write in writes {
            self.effect()?;
            self.services.write(write)?;
        }
        Ok(())
    }

    /// Brings the addresses of links to other nodes to these. Returns true if the map had others.
    ///
    /// # Errors
    /// If the map cannot be read or written.
    pub fn set_wires(&mut self, wires: &Wires) -> Result<bool, LoadError> {
        if self.services.has_wires(wires)? {
            return Ok(false);
        }
        self.effect()?;
        self.services.set_wires(wires)?;
        Ok(true)
    }

    /// Brings the pods that the fast path can reach to these. Returns true if the map had others.
    ///
    /// # Errors
    /// If the map cannot be read or written.
    pub fn set_fast_pods(&mut self, pods: &FastPods) -> Result<bool, LoadError> {
        let rows = self.services.fast_rows()?;
        // A pod keeps its mark while its row is missing: its link may be unfit for a time.
        self.maps.add_behind_nat(behind_nat(&rows));
        let writes = plan(&rows, pods, self.maps.behind_nat());
        if writes.is_empty() {
            return Ok(false);
        }
        self.effect()?;
        self.services.write_fast(&writes)?;
        Ok(true)
    }

    /// The fast pods that have sent no packet since their rows exist, with their links.
    ///
    /// # Errors
    /// If the map cannot be read.
    pub fn silent_pods(&self) -> Result<Vec<(IfIndex, IpAddr)>, LoadError> {
        Ok(silent(&self.services.fast_rows()?))
    }

    /// True if a Service led a socket of the node to a backend.
    pub(crate) fn has_asked(&self, key: &service_abi::SocketKey) -> Result<bool, LoadError> {
        self.services.has_asked(key)
    }

    /// Compares the rows of Services after the first `from` ones with those in the maps, the sum of all frontends and all
    /// source ranges.
    /// Returns the map of the first row that differs.
    pub(crate) fn compare_services(
        &mut self,
        held: &service_abi::Held,
        from: usize,
        rows: usize,
    ) -> Result<Option<&'static str>, LoadError> {
        if self.run_sum(FRONTENDS_NUMBER)? != sum_of_frontends(held) {
            return Ok(Some("frontends"));
        }
        if !self.services.has_sources(held)? {
            return Ok(Some(SOURCE_RANGES));
        }
        for row in held.rows().skip(from).take(rows) {
            if let Some(map) = self.services.differs(row)? {
                return Ok(Some(map));
            }
        }
        Ok(None)
    }

    /// The hooks' filters of a link without filters, each with its program.
    pub(crate) fn first_filters(
        &self,
        hooks: &[Hook],
        dev: IfIndex,
    ) -> Result<Vec<(BpfFilter, BorrowedFd<'_>)>, LoadError> {
        let of = |hook: &Hook| {
            let name = hook.name();
            let program = match self.pinned.get(name) {
                Some(program) => program,
                None => loaded(&self.ebpf, name)?,
            };
            let fd = program.fd().map_err(|cause| LoadError::Program { name, cause })?.as_fd();
            let filter = BpfFilter {
                dev,
                side: hook.side(),
                chain: 0,
                priority: PRIORITY,
                protocol: ETH_P_ALL,
                handle: FIRST_HANDLE,
                name: name.to_owned(),
                program: None,
            };
            Ok((filter, fd))
        };
        hooks.iter().map(of).collect()
    }

    /// Attaches the hook's program to a link of this network namespace, before the programs of others and in place of an
    /// earlier one of ours. The link has a queue `clsact` already, or another one that excludes it. `filters` are those of
    /// the link in the hook's direction. The program stays attached when this value is dropped. Returns the priority and
    /// the handle of the earlier filter that has the program now; the others of ours are to be removed.
    ///
    /// # Errors
    /// If there is no such link, or the kernel refuses, or the program of another owner stays before ours.
    pub fn attach(
        &mut self,
        hook: Hook,
        link: &str,
        filters: &Filters,
    ) -> Result<Option<(u16, u32)>, LoadError> {
        let first = first(filters).filter(|filter| is_ours(filter));
        if let Some(earlier) = first {
            self.replace(hook, link, earlier)?;
            return Ok(Some((earlier.priority, earlier.handle)));
        }
        self.effect()?;
        let fault =
            |cause| LoadError::Attach { program: hook.name(), link: link.to_owned(), cause };
        let program = self.program(hook.name())?;
        // The kernel runs the newest filter of a priority first.
        match program.attach_with_options(link, hook.direction(), free(filters, PRIORITY)) {
            // A drop of the link would detach it.
            Ok(id) => std::mem::forget(program.take_link(id).map_err(fault)?),
            // Filters of other kinds have the first priority.
            Err(cause) => return self.attach_later(hook, link, filters, cause),
        }
        Ok(None)
    }

    /// Attaches at the later priority, in place of an earlier filter of ours. `cause` is the refusal of the first priority.
    /// Behind the filters of another owner it judges the packets that these let continue.
    fn attach_later(
        &mut self,
        hook: Hook,
        link: &str,
        filters: &Filters,
        cause: ProgramError,
    ) -> Result<Option<(u16, u32)>, LoadError> {
        let fault =
            |cause| LoadError::Attach { program: hook.name(), link: link.to_owned(), cause };
        let ours = filters.bpf.iter().find(|filter| is_ours(filter));
        if let Some(earlier) = ours {
            self.replace(hook, link, earlier)?;
        } else {
            let program = self.program(hook.name())?;
            match program.attach_with_options(link, hook.direction(), free(filters, LATER)) {
                Ok(id) => std::mem::forget(program.take_link(id).map_err(fault)?),
                Err(_) => return Err(fault(cause)),
            }
        }
        let place = ours.map(|filter| (filter.priority, filter.handle));
        let later = place.map_or(LATER, |(priority, _)| priority);
        match foreign_before(filters, later) {
            Some(other) => {
                Err(LoadError::Behind { link: link.to_owned(), other, cause: Box::new(cause) })
            }
            None => Ok(place),
        }
    }

    /// Puts the hook's program into an earlier filter of ours, if this one has another program.
    fn replace(&mut self, hook: Hook, link: &str, earlier: &BpfFilter) -> Result<(), LoadError> {
        if self.is_current(hook, earlier) {
            return Ok(());
        }
        self.effect()?;
        let fault =
            |cause| LoadError::Attach { program: hook.name(), link: link.to_owned(), cause };
        let (priority, handle) = (earlier.priority, TcHandle::from(earlier.handle));
        let earlier = SchedClassifierLink::attached(link, hook.direction(), priority, handle, None)
            .map_err(|cause| fault(TcError::IoError(cause).into()))?;
        let program = self.program(hook.name())?;
        let id = program.attach_to_link(earlier).map_err(fault)?;
        // A drop of the link would detach it.
        std::mem::forget(program.take_link(id).map_err(fault)?);
        Ok(())
    }

    /// The kernel's id of a hook's program.
    pub(crate) fn id(&self, hook: Hook) -> Option<&u32> {
        self.ids.get(&hook)
    }

    /// True if a filter has this hook's program with these maps.
    pub fn is_current(&self, hook: Hook, filter: &BpfFilter) -> bool {
        is_ours(filter)
            && filter.program.is_some()
            && filter.program.as_ref() == self.ids.get(&hook)
    }

    /// Removes connections that have ended, and returns the number of the others that were answered.
    ///
    /// # Errors
    /// If the kernel cannot run the program.
    pub fn sweep(&mut self) -> Result<u32, LoadError> {
        let options = TestRunOptions { data_in: Some(&[0; 64]), ..TestRunOptions::default() };
        let run = self.program(SWEEP)?.test_run(options);
        let run = run.map_err(|cause| LoadError::Program { name: SWEEP, cause })?;
        Ok(run.return_value)
    }

    /// The maps of names.
    pub(crate) fn names(&self) -> Arc<Mutex<NamesMaps>> {
        Arc::clone(&self.names)
    }

    /// Copies connections from the maps that another release pinned. Returns the number of those that are copied and of those
    /// without room, or `None` if their layout is another one.
    pub(crate) fn copy_flows(&mut self, pins: &Path) -> Result<Option<(usize, usize)>, LoadError> {
        self.maps.copy_flows(pins)
    }

    /// Adds a connection. Returns false if its key has a row already, which stays.
    pub(crate) fn add_flow(&mut self, key: &FlowKey, flow: &Flow) -> Result<bool, LoadError> {
        self.effect()?;
        self.maps.add_flow(key, &flow.to_bytes())
    }

    /// Adds to the number of a slot's connections.
    pub(crate) fn charge(&mut self, slot: u32, flows: u64) -> Result<(), LoadError> {
        self.effect()?;
        self.maps.charge(slot, flows)
    }

    /// Sets the end of the window of a slot that has had none.
    pub(crate) fn open_window(&mut self, slot: u32, window_end: u64) -> Result<(), LoadError> {
        self.effect()?;
        self.maps.open_window(slot, window_end)
    }

    /// The counters by the name of their reason.
    ///
    /// # Errors
    /// If the map cannot be read.
    pub fn counters(&self) -> Result<BTreeMap<&'static str, u64>, LoadError> {
        let counters = self.maps.counters()?;
        let named = counters
            .into_iter()
            .filter_map(|(reason, count)| Some((*REASONS.get(reason as usize)?, count)));
        Ok(named.collect())
    }

    /// The use of rules, by their number.
    ///
    /// # Errors
    /// If the map cannot be read.
    pub fn uses(&self) -> Result<BTreeMap<u32, Use>, LoadError> {
        self.maps.uses()
    }

    /// The ring of events. It is empty after the first call.
    pub fn take_events(&mut self) -> Events {
        Events(self.maps.take_events())
    }

    /// Sets the events that the programs send: those of allowed connections, and the limit of each pod in a second.
    ///
    /// # Errors
    /// If the map cannot be written.
    pub fn want_events(&mut self, allowed: bool, limit: u32) -> Result<(), LoadError> {
        self.maps.want_events(allowed, limit)
    }

    /// For tests: runs a program on a packet without attaching it. `ifindex` is the hook's link and `ingress` the link by
    /// which the packet entered. `service` is the class of the Service's address that its pod asked for, or 0. Returns
    /// the action.
    ///
    /// # Errors
    /// If the kernel cannot load or run it.
    pub fn test(
        &mut self,
        hook: Hook,
        packet: &[u8],
        ifindex: u32,
        ingress: u32,
        service: u64,
    ) -> Result<i32, LoadError> {
        self.test_as(hook, packet, ifindex, ingress, &SentAs { service, ..SentAs::default() })
    }

    /// [`Self::test`] for a packet that a pod sent in another way.
    ///
    /// # Errors
    /// If the kernel cannot run the program.
    pub fn test_as(
        &mut self,
        hook: Hook,
        packet: &[u8],
        ifindex: u32,
        ingress: u32,
        sent_as: &SentAs,
    ) -> Result<i32, LoadError> {
        let SentAs { service, later, asked } = sent_as;
        let mut cb = [0; 16];
        cb[..8].copy_from_slice(&service.to_ne_bytes());
        cb[8..12].copy_from_slice(&later.to_ne_bytes());
        cb[12..].copy_from_slice(&asked.map_or([0; 4], |address| address.octets()));
        Ok(self.time(hook.name(), packet, [ifindex, ingress], cb, 1)?.0)
    }

    /// For tests: runs a program of the object many times on a packet. `links` are those of the hook and of the packet's
    /// entry, and `cb` starts the packet's control block. Returns the action and the mean duration of a run.
    ///
    /// # Errors
    /// If the kernel cannot load or run it.
    pub fn time(
        &mut self,
        name: &'static str,
        packet: &[u8],
        links: [u32; 2],
        cb: [u8; 16],
        repeat: u32,
    ) -> Result<(i32, Duration), LoadError> {
        let fault = |cause| LoadError::Program { name, cause };
        let [ifindex, ingress] = links;
        // Of `struct __sk_buff`: ingress_ifindex, ifindex and four words of cb.
        let mut context = [0_u8; 192];
        context[36..40].copy_from_slice(&ingress.to_ne_bytes());
        context[40..44].copy_from_slice(&ifindex.to_ne_bytes());
        context[48..64].copy_from_slice(&cb);
        let options = TestRunOptions {
            data_in: Some(packet),
            ctx_in: Some(&context),
            repeat,
            ..TestRunOptions::default()
        };
        let program = self.program(name)?;
        match program.load() {
            Ok(()) | Err(ProgramError::AlreadyLoaded) => {}
            Err(cause) => return Err(fault(cause)),
        }
        let ran = program.test_run(options).map_err(fault)?;
        Ok((ran.return_value.cast_signed(), ran.duration))
    }

    /// For tests: the number of instructions that the kernel's verifier processed, by program. Loops and branches count
    /// each time. The verifier refuses a program after a million. `None` before Linux 5.16.
    ///
    /// # Errors
    /// If the kernel has no information about a program.
    pub fn verified_instructions(
        &mut self,
    ) -> Result<BTreeMap<&'static str, Option<u32>>, LoadError> {
        let names = Hook::ATTACHED.map(Hook::name).into_iter().chain(RUN);
        let counts = names.map(|name| {
            let info = self.program(name)?.info();
            let info = info.map_err(|cause| LoadError::Program { name, cause })?;
            Ok((name, info.verified_instruction_count()))
        });
        counts.collect()
    }

    /// For tests: the number of rows for which a map has room.
    pub fn rows(&self, map: &str) -> Option<u32> {
        self.layouts.iter().find(|layout| layout.name == map).map(|layout| layout.rows)
    }

    /// For tests: removes all connections, so that the next packet of each is judged as a first one.
    ///
    /// # Errors
    /// If the map cannot be read.
    pub fn clear_flows(&mut self) -> Result<(), LoadError> {
        self.maps.clear_flows()
    }

    /// For tests: counts the effects in this value.
    pub fn count_in(&mut self, effects: Arc<Effects>) {
        self.effects = effects;
    }

    pub(crate) fn effect(&self) -> Result<(), LoadError> {
        self.effects.count()
    }
}

impl Hook {
    /// The hooks at which programs are attached.
    const ATTACHED: [Self; 4] = [Self::FromPod, Self::ToPod, Self::ToWire, Self::FromWire];

    /// The hook of an attached program with this name.
    pub(crate) fn of(name: &str, side: Side) -> Option<Self> {
        Self::ATTACHED.into_iter().find(|hook| hook.name() == name && hook.side() == side)
    }

    /// The side of the link at which the hook's program is attached.
    pub fn side(self) -> Side {
        match self {
            Self::FromPod | Self::FromWire => Side::Ingress,
            Self::ToPod | Self::ToWire | Self::TestToPod | Self::TestToWire => Side::Egress,
        }
    }

    pub(crate) fn direction(self) -> TcAttachType {
        direction(self.side())
    }

    /// The program's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::FromPod => "from_pod",
            Self::ToPod => "to_pod",
            Self::ToWire => "to_wire",
            Self::FromWire => "from_wire",
            Self::TestToPod => "test_to_pod",
            Self::TestToWire => "test_to_wire",
        }
    }
}

pub(crate) fn direction(side: Side) -> TcAttachType {
    match side {
        Side::Ingress => TcAttachType::Ingress,
        Side::Egress => TcAttachType::Egress,
    }
}

/// The filter whose program the kernel runs first. `None` if a filter of another kind is before it.
pub(crate) fn first(filters: &Filters) -> Option<&BpfFilter> {
    let first = filters.bpf.iter().find(|filter| filter.chain == 0)?;
    other_before(filters, first.priority).is_none().then_some(first)
}

/// The first filters of another kind that the kernel runs before this priority. A priority has one kind.
fn other_before(filters: &Filters, priority: u16) -> Option<&OtherFilters> {
    filters.others.iter().find(|other| other.chain == 0 && other.priority < priority)
}

/// The first filter of another owner that the kernel runs before ours of this priority.
fn foreign_before(filters: &Filters, priority: u16) -> Option<String> {
    if let Some(OtherFilters { kind, priority, .. }) = other_before(filters, priority) {
        return Some(format!("{kind} filter of priority {priority}"));
    }
    let mut before = filters.bpf.iter().take_while(|filter| !is_ours(filter));
    let other = before.find(|other| other.chain == 0 && other.priority <= priority)?;
    Some(format!("program {:?} of priority {}", other.name, other.priority))
}

/// The place of a new filter. It is the first of its priority.
fn free(filters: &Filters, priority: u16) -> TcAttachOptions {
    let others = filters.bpf.iter().filter(|filter| filter.priority == priority);
    let used: BTreeSet<u32> = others.map(|filter| filter.handle).collect();
    let handle = (FIRST_HANDLE..).find(|handle| !used.contains(handle)).unwrap_or(FIRST_HANDLE);
    let handle = TcHandle::from(handle);
    TcAttachOptions::Netlink(NlOptions { priority, handle, classid: None })
}

/// True for a filter of ours, also of an earlier release: others have other names or another priority.
pub(crate) fn is_ours(filter: &BpfFilter) -> bool {
    [PRIORITY, LATER].contains(&filter.priority) && Hook::of(&filter.name, filter.side).is_some()
}

/// BPF_FS_MAGIC in linux/magic.h.
const BPFFS: rustix::fs::FsWord = 0xcafe_4a11;

/// The priority of the filters: the kernel runs it first.
const PRIORITY: u16 = 1;

/// The priority of earlier releases, and of links whose first priority has filters of another kind.
const LATER: u16 = 50;

/// Packets of all protocols, in linux/if_ether.h.
const ETH_P_ALL: u16 = 3;

/// Others have handle 1. aws-network-policy-agent removes a filter of this handle of any priority.
const FIRST_HANDLE: u32 = 2;

/// The program that removes connections that have ended.
const SWEEP: &str = "sweep_flows";

/// The program that adds up the rows of a map.
const SUM: &str = "sum_rows";

/// The program that counts the connections of a pod.
const PATHS: &str = "count_paths";

/// The programs that are not attached.
const RUN: [&str; 11] = [
    SWEEP,
    SUM,
    PATHS,
    STAGE_PROGRAMS[0],
    STAGE_PROGRAMS[1],
    STAGE_PROGRAMS[2],
    STAGE_PROGRAMS[3],
    STAGE_PROGRAMS[4],
    STAGE_PROGRAMS[5],
    STAGE_PROGRAMS[6],
    STAGE_PROGRAMS[7],
];

/// The programs of the stages, in the order of `enum stage` in `datapath/bpf/service.h`.
const STAGE_PROGRAMS: [&str; 8] = [
    "from_pod_service",
    "from_pod_judge",
    "to_pod_service",
    "to_wire_service",
    "from_pod_to_pod",
    "from_pod_to_wire",
    "from_wire_to_pod",
    "error_on_path",
];

/// The name of the folder for the programs of an object file.
fn program_folder(object: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    object.hash(&mut hasher);
    format!("programs-{:016x}", hasher.finish())
}

fn loaded<'a>(ebpf: &'a Ebpf, name: &'static str) -> Result<&'a SchedClassifier, LoadError> {
    let program = ebpf.program(name).ok_or(LoadError::Absent(name))?;
    program.try_into().map_err(|cause| LoadError::Program { name, cause })
}

fn program<'a>(
    ebpf: &'a mut Ebpf,
    name: &'static str,
) -> Result<&'a mut SchedClassifier, LoadError> {
    let program = ebpf.program_mut(name).ok_or(LoadError::Absent(name))?;
    program.try_into().map_err(|cause| LoadError::Program { name, cause })
}
