//! The backend behind the agent's seam.

use crate::{
    LoadError, Programs,
    compare::Comparison,
    draining::has_open,
    events::{self, Events, RuleNames},
    existing::{Existing, monotonic},
    fast::{FastPods, Fit, fast_pods},
    grace::GRACE,
    grow::{Growth, budget, check_growth, check_memory, enlarged},
    kernel,
    links::Links,
    lookup::look_up,
    maps::{FAST_PODS, WIRES},
    memory::memory_of_maps,
    names::{Resolver, nanoseconds},
    pins::removed,
    pods::Pods,
    reasons::{CHOICES, SOURCE_PORTS},
    serving::Serving,
    starting::{is_starting, starting},
    tcx::Method,
    upgrade::{self, Opened, copy_flows},
    wires::Wires,
};
use async_trait::async_trait;
use config_model::{Span, causes};
use config_settings::Connections;
use control_wire::{KnownId, ObjectId};
use datapath_abi::{
    Held, Numbers, Own, Plan, Pod, Row, Scope, Target, cleanup, plan, plan_started, sizes,
};
use datapath_backend::{Backend, BackendError, Figures, ServiceFigures};
use datapath_names::Wanted;
use datapath_node::{
    Applied, BackendEvent, Desired, Endpoint, Endpoints, Looked, Observed, Paths, Probe, Results,
    Retire, RuleUse, Trace,
};
use datapath_plan::{Compilation, Names};
use routing_netlink::{Monitor, Socket, SocketError};
use routing_plan::{IfIndex, Link};
use service_core::HealthChecks;
use service_objects::ObjectName;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::{
    task::{JoinHandle, spawn_blocking, yield_now},
    time::{Instant, sleep, sleep_until},
};

/// The eBPF backend. Its maps and filters stay in force when it is dropped.
pub struct EbpfBackend {
    programs: Programs,
    pins: PathBuf,
    names: Resolver,
    /// Pins of other releases. They are removed once the programs of this one are attached.
    others: Vec<PathBuf>,
    /// Folders of `others` whose programs may add connections until they are replaced.
    earlier: Vec<PathBuf>,
    held: Held,
    numbers: Numbers,
    revision: u64,
    /// The state that was applied last.
    goal: Option<Goal>,
    /// The rows that may differ from the goal, or whose halves may differ; `None`: all.
    scope: Option<Scope>,
    /// True if rows are to be removed to which nothing in force refers.
    is_unclean: bool,
    /// True once it is logged that the kernel tracks no connections.
    is_untracked_logged: bool,
    /// True once it is logged that the map of connections cannot grow.
    is_limit_logged: bool,
    method: Method,
    /// The links to which the programs could not be attached after a map had grown, each with the cause. They may have the
    /// programs with the earlier map. Their pods are closed.
    outdated: BTreeMap<u32, String>,
    /// True if the programs are to be attached to all links before the next rows are written.
    is_outdated: bool,
    /// True if the last state is not in force. Then the earlier one stays, with the programs of its pods.
    is_refused: bool,
    /// The last flip. Programs that started before it may use the earlier half.
    flipped: Instant,
    connections: Connections,
    /// `None` without Services.
    serving: Option<Serving>,
    /// As they were observed last.
    wires: Wires,
    fit: Fit,
    /// As they are in force.
    fast: FastPods,
    monitor: Option<Monitor>,
    /// Sockets of earlier passes. A new socket needs five calls of the kernel.
    sockets: Vec<Socket>,
    /// The next check of links and filters, after an event.
    check_at: Option<Instant>,
    /// The list of links for the next check. With many pods that start it takes seconds.
    listing: Option<JoinHandle<Result<Links, SocketError>>>,
    /// The check that is under way.
    checking: Option<Check>,
    sweep_at: Instant,
    /// The next comparison of pins and rows.
    compare_at: Instant,
    comparison: Comparison,
    /// The last fault of a comparison, which is logged once.
    compare_fault: Option<String>,
    events: Events,
    /// The names of the rules of the state that was compiled last.
    rules: RuleNames,
}

/// A state that was applied.
struct Goal {
    compilation: Compilation,
    target: Target,
    pods: BTreeMap<u32, Pod>,
    own: Own,
    node: Vec<IpAddr>,
    /// The links that existed, with the addresses that the host routed to each.
    links: BTreeMap<u32, BTreeSet<IpAddr>>,
    /// The links whose hooks could not be attached, each with the cause.
    failed: BTreeMap<u32, String>,
    results: Arc<Results>,
}

impl EbpfBackend {
    /// Loads the programs, and finds the maps and filters that an earlier process left. `pins` is a folder on a bpffs.
    ///
    /// Without Services, open connections that an earlier process with Services has translated continue. New ones are those of
    /// the host's stack.
    ///
    /// # Errors
    /// If the kernel is too old, refuses the programs or has no TCX, or the folder or the maps cannot be used.
    pub fn open(
        object: &Path,
        pins: &Path,
        connections: Connections,
        method: Method,
    ) -> Result<Self, LoadError> {
        kernel::require(&kernel::release(), method)?;
        let drains = !connections.services && has_open(pins);
        let connections = Connections {
            map_memory: budget(connections.map_memory),
            services: connections.services || drains,
            // netfilter translates new connections, so it has to receive their answers.
            fast_path: connections.fast_path && !drains,
            ..connections
        };
        let Opened { mut programs, folder, others, earlier, has_smaller } =
            upgrade::open(object, pins, &connections)?;
        if drains {
            programs.drain_services()?;
            tracing::info!(
                "open connections to Services keep their backends until the agent starts after a day without their packets"
            );
        }
        let mut backend = Self { method, ..Self::over(programs, &folder, connections)? };
        if drains {
            backend.serving = None;
        }
        // Maps exist already. A state that needs more is refused when it comes.
        if let Err(error) = backend.check_memory(&Plan::default()) {
            tracing::error!(why = causes(&error), "maps are larger than their limit");
        }
        if has_smaller {
            backend.renew_links()?;
        }
        (backend.others, backend.earlier) = (others, earlier);
        backend.others.extend(backend.programs.others());
        Ok(backend)
    }

    /// Starts over programs that are loaded already, as a process that has just loaded them.
    ///
    /// # Errors
    /// If a map cannot be read.
    pub fn over(
        mut programs: Programs,
        pins: &Path,
        connections: Connections,
    ) -> Result<Self, LoadError> {
        // An earlier process may have had listeners.
        programs.want_events(false, EVENTS_OF_POD)?;
        let events = programs.take_events();
        let held = programs.read()?;
        let numbers = held.numbers();
        let now = Instant::now();
        let monitor = subscribe(connections.services);
        let names = Resolver::new(programs.names())?;
        Ok(Self {
            programs,
            names,
            pins: pins.to_owned(),
            others: Vec::new(),
            earlier: Vec::new(),
            held,
            numbers,
            revision: 0,
            goal: None,
            scope: None,
            is_unclean: false,
            is_untracked_logged: false,
            is_limit_logged: false,
            method: Method::Filters,
            outdated: BTreeMap::new(),
            is_outdated: false,
            is_refused: false,
            flipped: now,
            connections,
            serving: connections.services.then(|| Serving::new(None)),
            wires: Wires::new(),
            fit: Fit::new(),
            fast: FastPods::new(),
            monitor,
            sockets: Vec::new(),
            check_at: None,
            listing: None,
            checking: None,
            sweep_at: now + time(connections.sweep),
            compare_at: now + COMPARE_EVERY,
            comparison: Comparison::default(),
            compare_fault: None,
            events,
            rules: RuleNames::new(),
        })
    }

    /// Serves processes of the node too, if the backend serves Services; otherwise removes what an earlier process left
    /// for that. `cgroup` is the root of cgroup v2, or the folder with all cgroup trees.
    ///
    /// # Errors
    /// If the programs of an earlier process cannot be removed.
    pub fn with_sockets(mut self, cgroup: &Path) -> Result<Self, LoadError> {
        match &mut self.serving {
            Some(serving) => *serving = Serving::new(Some(cgroup.to_owned())),
            None => self.programs.detach_sockets()?,
        }
        Ok(self)
    }

    /// For tests: the programs.
    pub fn programs(&mut self) -> &mut Programs {
        &mut self.programs
    }

    /// Ends the backend and returns its programs. Maps and filters stay.
    pub fn into_programs(self) -> Programs {
        self.programs
    }

    /// Removes filters and the rows of pods: all pods are open.
    ///
    /// # Errors
    /// If the kernel refuses a removal.
    pub fn clear(&mut self) -> Result<(), LoadError> {
        let mut links = Links::observe(&[], self.method, false)?;
        let mut filters = 0;
        for link in links.links.keys().copied().collect::<Vec<_>>() {
            filters += links.detach(&self.programs, link)?;
        }
        self.fast = FastPods::new();
        self.programs.set_fast_pods(&self.fast)?;
        let pods = self.held.endpoints.len();
        let nothing = (Target::default(), BTreeMap::new(), Own::default());
        let empty = plan(&self.held, &nothing.0, &nothing.1, &nothing.2, None)?;
        self.programs.write(&mut self.held, empty.writes())?;
        let unused = cleanup(&self.held, &nothing.0, None);
        self.programs.write(&mut self.held, &unused)?;
        self.programs.clear_flows()?;
        self.names.clear()?;
        (self.goal, self.scope) = (None, None);
        tracing::warn!(filters, pods, "enforcement is removed: the pods of this node are open");
        Ok(())
    }

    /// Removes rows to which nothing in force refers. No program judges by the earlier state any longer.
    fn clean(&mut self) -> Result<(), LoadError> {
        if !std::mem::take(&mut self.is_unclean) {
            return Ok(());
        }
        let Some(goal) = &mut self.goal else {
            self.held.release(&mut self.numbers);
            return Ok(());
        };
        let has_set_rows = self.scope.as_ref().is_none_or(Scope::has_set_rows);
        if has_set_rows {
            let rules = goal.target.prune();
            if let Some(scope) = &mut self.scope {
                scope.extend_rules(rules);
            }
        }
        let unused = cleanup(&self.held, &goal.target, self.scope.as_ref());
        self.programs.write(&mut self.held, &unused)?;
        if has_set_rows {
            self.held.release(&mut self.numbers);
        }
        match &mut self.scope {
            Some(scope) => scope.settle(&self.held, &goal.target),
            None => self.scope = Some(Scope::of(&self.held, &goal.target)),
        }
        Ok(())
    }

    /// Compiles a state: all of it, or the difference to the earlier one. The last result is true if each pod has the sets
    /// of the earlier state.
    fn compile(
        &mut self,
        desired: &Desired,
        names: &Names,
        earlier: Option<&mut Goal>,
    ) -> Result<(Compilation, Target, bool), LoadError> {
        let changed = desired.changed.as_ref().filter(|of| of.since == self.revision);
        if let (Some(goal), Some(changed)) = (earlier, changed) {
            let mut compilation = std::mem::take(&mut goal.compilation);
            let mut target = std::mem::take(&mut goal.target);
            let known = compilation.tables().rules.len();
            if let Some(delta) = compilation.update(&desired.state, names, &changed.objects) {
                let new = compilation.tables().rules.iter().skip(known);
                self.rules.extend(new.map(|name| (name.digest(), name.clone())));
                let had_refused = target.has_refused();
                let later = target.update(compilation.tables(), &delta, &mut self.numbers)?;
                let is_same = delta.pods.is_empty() && !had_refused && !target.has_refused();
                if let Some(scope) = &mut self.scope {
                    scope.extend(later);
                }
                return Ok((compilation, target, is_same));
            }
        }
        self.scope = None;
        let compilation = Compilation::new(&desired.state, names);
        let rules = compilation.tables().rules.iter();
        self.rules = rules.map(|name| (name.digest(), name.clone())).collect();
        let target = Target::of(compilation.tables(), &mut self.numbers)?;
        Ok((compilation, target, false))
    }

    async fn put_into_force(&mut self, desired: &Desired) -> Result<Arc<Results>, LoadError> {
        if self.is_unclean {
            sleep_until(self.flipped + GRACE).await;
            self.clean()?;
        }
        if desired.changed.is_none() {
            // Numbers that were released just now count as free below.
            sleep(GRACE).await;
            self.programs.remove_lost_classes();
            self.held = self.programs.read()?;
            self.numbers = self.held.numbers();
        }
        let queues = self.begin_queues(desired)?;
        let keeps_pods = self.goal.is_some() && self.keeps_pods(desired);
        if !keeps_pods {
            let wanted = Wanted::of(&desired.state);
            let pods = links_with_names(desired, &wanted);
            self.names.prepare(wanted, pods)?;
        }
        let (version, names) = self.names.resolved();
        let node = desired.state.node.as_deref().unwrap_or_default().to_vec();
        let mut earlier = self.goal.take().filter(|_| desired.changed.is_some());
        let (compilation, target, keeps_rows) = self.compile(desired, &names, earlier.as_mut())?;
        let touched = desired.changed.as_ref().map(|changed| &changed.endpoints);
        let is_same = touched.is_some_and(BTreeSet::is_empty)
            && earlier.as_ref().is_some_and(|goal| goal.node == node);
        if let Some(goal) = earlier.take_if(|_| keeps_pods && keeps_rows && is_same) {
            let goal = Goal { compilation, target, ..goal };
            self.write(&goal.target, &goal.pods, &goal.own)?;
            let results = Arc::clone(&goal.results);
            self.goal = Some(goal);
            self.names.finish(version)?;
            return Ok(results);
        }
        // Without a change of endpoints the links are those of the earlier state. Events report other changes.
        let reported = match (&earlier, touched) {
            (Some(goal), Some(touched)) if goal.node == node && !is_same => {
                self.reported(desired, touched, goal)?
            }
            _ => None,
        };
        let is_reported = reported.is_some();
        if !is_same
            && !is_reported
            && (self.listing.take().is_some() | self.checking.take().is_some())
        {
            // Their list is older than that of this pass.
            self.check_at.get_or_insert(Instant::now() + CHECK_AFTER);
        }
        let mut links = match reported {
            _ if is_same => None,
            Some(links) => Some(links),
            None => Some(Links::observe(&node, self.method, self.connections.services)?),
        };
        if links.is_some() && self.has_outdated() {
            self.renew_links()?;
        }
        if let Some(links) = links.as_ref().filter(|_| !is_reported) {
            self.programs.forget_links(&links.links.keys().copied().collect())?;
            self.set_wires(links.wires.clone())?;
            self.fit.clone_from(&links.fit);
        }
        let (known, own) = match (&links, &earlier) {
            (None, Some(goal)) => (goal.links.clone(), goal.own.clone()),
            (Some(links), _) => (links.routed.clone(), links.own.clone()),
            (None, None) => Default::default(),
        };
        let mut pods = Pods::default();
        let mut results = Results::new();
        for (uid, endpoint) in desired.endpoints.iter() {
            let row = self.row(desired, endpoint, &target);
            let result = match &row {
                Ok(row) => pods.add(uid, endpoint, &known, *row),
                Err((previous, why)) => {
                    let _ = pods.add(uid, endpoint, &known, *previous);
                    Err(why.clone())
                }
            };
            results.insert(uid.clone(), result);
        }
        let Pods { by_link: mut pods, conflicts, .. } = pods;
        results.extend(conflicts.into_iter().map(|(uid, why)| (uid, Err(why))));
        // A pod that has ended is closed as long as its link exists: its processes may still run.
        for (link, endpoint) in &self.held.endpoints {
            if known.contains_key(link) && !pods.contains_key(link) {
                let datapath_abi::Endpoint { v4, v6, uid, .. } = endpoint.clone();
                // The links of a pod that was not observed yet are not known.
                let is_unseen = desired.endpoints.get(&uid).is_some_and(|of| of.links.is_empty());
                let row = Some(endpoint).filter(|_| is_unseen);
                let row = row.and_then(|endpoint| self.held.row_of(endpoint));
                pods.insert(*link, Pod { uid, row: row.unwrap_or(Row::CLOSED), v4, v6 });
            }
        }
        for link in self.outdated.keys() {
            if let Some(pod) = pods.get_mut(link) {
                pod.row = Row::CLOSED;
            }
        }
        if let Some(scope) = &mut self.scope {
            scope.extend_pods();
        }
        self.write(&target, &pods, &own)?;
        let mut failed = BTreeMap::new();
        if let Some(links) = &mut links {
            if let Some(queues) = queues
                && let Ok(Ok((socket, added))) = queues.await
            {
                self.sockets.push(socket);
                links.set_queued(added);
            }
            if desired.changed.is_none() {
                let unguarded = links.unguarded(&self.programs, pods.keys().copied());
                let limit = self.connections.limit as usize / 4;
                let existing = Existing::of(unguarded.clone(), &pods, &own, &target, limit);
                let started = started(&desired.endpoints);
                self.add_existing(existing, &(&unguarded - &started))?;
            }
            // A pod's link is attached again if it is new, if its use has changed, or if it failed. A full pass has
            // all links. Otherwise the new links of no pod follow with the next check: the pods of a burst wait.
            let is_known = |link: u32| {
                let goal = earlier.as_ref()?;
                let (was, is) = (goal.pods.get(&link), pods.get(&link));
                let is_same = was.map(|pod| &pod.uid) == is.map(|pod| &pod.uid);
                let is_touched =
                    is.is_some_and(|pod| touched.is_some_and(|of| of.contains(&pod.uid)));
                let is_good = goal.links.contains_key(&link) && !goal.failed.contains_key(&link);
                (is_same && is_good && !is_touched).then_some(())
            };
            let is_of_pod = |link: u32| {
                let was_of_pod = earlier.as_ref().is_some_and(|goal| goal.pods.contains_key(&link));
                was_of_pod || pods.contains_key(&link)
            };
            let outdated = self.outdated.clone();
            let is_due = |link: u32| {
                (earlier.is_none() || is_of_pod(link))
                    && is_known(link).is_none()
                    && !outdated.contains_key(&link)
            };
            self.copy_earlier();
            failed = self.attach(links, &pods, is_due)?;
            self.copy_earlier();
            if let Some(goal) = &earlier {
                let is_left = |link: u32| {
                    let was_due = is_of_pod(link) && links.links.contains_key(&link);
                    known.contains_key(&link) && !was_due
                };
                let left = goal.failed.iter().filter(|(link, _)| is_left(**link));
                failed.extend(left.map(|(link, why)| (*link, why.clone())));
                self.check_at.get_or_insert(Instant::now() + CHECK_AFTER);
            }
            failed.extend(outdated);
        } else if let Some(goal) = &earlier {
            failed.clone_from(&goal.failed);
        }
        for (link, why) in &failed {
            if let Some(pod) = pods.get(link) {
                // The link of an earlier sandbox does not count for the pod that runs now.
                let endpoint = desired.endpoints.get(&pod.uid);
                if endpoint.is_some_and(|of| of.links.iter().any(|of| of.ifindex == *link)) {
                    results.insert(pod.uid.clone(), Err(why.clone()));
                }
                continue;
            }
            // Packets of pods to other nodes leave by it without a verdict.
            for pod in pods.values().filter(|pod| pod.row.0[1] != 0) {
                let why = format!("its packets to other nodes are not judged: {why}");
                if let Some(result) = results.get_mut(&pod.uid).filter(|result| result.is_ok()) {
                    *result = Err(why);
                }
            }
        }
        // A failed list may have answers that are not read.
        self.sockets.extend(links.filter(|_| failed.is_empty()).map(Links::into_socket));
        self.sockets.truncate(SOCKETS);
        let results = Arc::new(results);
        let goal = Goal { compilation, target, pods, own, node, links: known, failed, results };
        let results = Arc::clone(&goal.results);
        self.goal = Some(goal);
        self.programs.set_wires(&self.wires_in_use())?;
        self.set_fast(desired.changed.is_none())?;
        self.names.finish(version)?;
        let others = match self.has_outdated() {
            true => Vec::new(),
            false => {
                self.earlier.clear();
                std::mem::take(&mut self.others)
            }
        };
        for folder in others {
            if let Err(error) = std::fs::remove_dir_all(&folder) {
                tracing::warn!(folder = %folder.display(), why = causes(&error), "cannot remove old pins");
            }
        }
        Ok(results)
    }

    /// Copies the connections that started under the programs of another release.
    fn copy_earlier(&mut self) {
        let earlier = std::mem::take(&mut self.earlier);
        self.earlier = copy_flows(&mut self.programs, earlier);
    }

    /// Puts the Services of a state into force. Returns those that are not, each with the cause.
    async fn serve(&mut self, desired: &Desired) -> BTreeMap<ObjectName, String> {
        match &mut self.serving {
            Some(serving) => serving.apply(&mut self.programs, desired).await,
            None => BTreeMap::new(),
        }
    }

    /// Adds queues to the links of the pods that a change starts, while the state is compiled and written. On an otherwise
    /// idle node that takes as long as the rest of the pass. Links of the earlier state may have TCX, and get no queue here.
    fn begin_queues(&mut self, desired: &Desired) -> Result<Option<Queues>, LoadError> {
        let touched = desired.changed.as_ref().map(|changed| &changed.endpoints);
        let goal = self.goal.as_ref().filter(|_| self.method == Method::Filters);
        let (Some(touched), Some(goal)) = (touched, goal) else { return Ok(None) };
        let started = touched.iter().filter_map(|uid| desired.endpoints.get(uid));
        let links = started.flat_map(|endpoint| &endpoint.links);
        let new = links.filter(|link| !goal.links.contains_key(&link.ifindex));
        let new: Vec<_> = new.map(|link| (link.name.clone(), IfIndex(link.ifindex))).collect();
        if new.is_empty() {
            return Ok(None);
        }
        self.programs.effect()?;
        let mut socket = self.socket()?;
        // A link without a new queue gets it in its turn, or its fault is reported there.
        Ok(Some(spawn_blocking(move || {
            let mut added = BTreeSet::new();
            for (name, link) in new {
                if socket.index_of(&name)? == Some(link) && socket.add_clsact(link)? {
                    added.insert(link.0);
                }
            }
            Ok((socket, added))
        })))
    }

    /// A socket of an earlier pass, or a new one.
    fn socket(&mut self) -> Result<Socket, SocketError> {
        self.sockets.pop().map_or_else(Socket::open, Ok)
    }

    /// The links of the pods that a change starts. `None` if it has other changes of endpoints: those need all links.
    fn reported(
        &mut self,
        desired: &Desired,
        touched: &BTreeSet<String>,
        goal: &Goal,
    ) -> Result<Option<Links>, LoadError> {
        let mut new = Vec::new();
        for uid in touched {
            match desired.endpoints.get(uid) {
                Some(endpoint) if !endpoint.links.is_empty() => new.extend(&endpoint.links),
                Some(_) | None => return Ok(None),
            }
        }
        if self.has_outdated() || new.is_empty() {
            return Ok(None);
        }
        let (socket, known) = (self.socket()?, goal.links.clone());
        Ok(Links::reported(socket, new, known, goal.own.clone(), self.method)?)
    }

    /// True if a change has neither pods, endpoints nor policies: each pod keeps its sets, addresses and names.
    fn keeps_pods(&self, desired: &Desired) -> bool {
        desired.changed.as_ref().is_some_and(|changed| {
            changed.since == self.revision
                && changed.endpoints.is_empty()
                && changed.objects.iter().all(|(id, _)| is_without_pods(id))
        })
    }

    /// Writes the rows by which the target comes into force.
    fn write(
        &mut self,
        target: &Target,
        pods: &BTreeMap<u32, Pod>,
        own: &Own,
    ) -> Result<(), LoadError> {
        let plan = plan(&self.held, target, pods, own, self.scope.as_ref())?;
        let (before, after) = (sizes(&self.held, &Plan::default()), sizes(&self.held, &plan));
        if before.iter().zip(&after).any(|((_, before), (_, after))| after > before) {
            self.check_memory(&plan)?;
        }
        if let Some(scope) = &mut self.scope {
            scope.extend_writes(plan.writes());
        }
        self.is_unclean = self.scope.as_ref().is_none_or(|scope| *scope != Scope::default());
        self.programs.write(&mut self.held, plan.writes())?;
        if plan.flip.is_some() {
            self.flipped = Instant::now();
        }
        Ok(())
    }

    /// The sets of an endpoint. On an error the earlier ones stay in force, or the pod is closed.
    fn row(
        &self,
        desired: &Desired,
        endpoint: &Endpoint,
        target: &Target,
    ) -> Result<Row, (Row, String)> {
        let pod = &endpoint.pod.pod;
        let mut links = endpoint.links.iter();
        let previous = links.find_map(|link| {
            let known = self.held.endpoints.get(&link.ifindex).filter(|of| of.uid == pod.uid)?;
            self.held.row_of(known)
        });
        let entry = desired.state.entry(&pod.uid, &pod.namespace, &pod.name);
        // The plugin holds the pod back until its policies are known, unless the mode is standard: then it starts open.
        let Some(entry) = entry else { return Ok(previous.unwrap_or_default()) };
        match target.rows.get(&entry.uid) {
            Some(Ok(row)) => Ok(*row),
            Some(Err(fault)) => Err((previous.unwrap_or(Row::CLOSED), fault.to_string())),
            None => {
                Err((previous.unwrap_or(Row::CLOSED), "it has no compiled policies".to_owned()))
            }
        }
    }

    /// Adds the connections that pods have before programs guard them. The pods of a process that starts can have some;
    /// a pod that starts has none. Where the kernel tracks no connections, the links `older` get a window instead.
    fn add_existing(
        &mut self,
        existing: Existing<'_>,
        older: &BTreeSet<u32>,
    ) -> Result<(), LoadError> {
        if existing.add(&mut self.programs, &self.held)? {
            return Ok(());
        }
        let window = self.connections.untracked_window;
        let slots = older.iter().filter_map(|link| self.held.endpoints.get(link)).map(|of| of.slot);
        let slots: Vec<u32> = slots.filter(|_| window.0 > 0).collect();
        let end = monotonic().saturating_add(window.0.saturating_mul(1_000_000));
        for slot in &slots {
            self.programs.open_window(*slot, end)?;
        }
        if !std::mem::replace(&mut self.is_untracked_logged, true) {
            tracing::warn!(
                pods = slots.len(),
                seconds = window.0 / 1000,
                "the kernel tracks no connections: a packet of a connection that these pods may have passes for this \
                 time if policies allow one of its directions; other connections are cut"
            );
        }
        Ok(())
    }

    /// Attaches the hooks of the links that `is_due` selects. Returns the links that failed, each with the cause.
    fn attach(
        &mut self,
        links: &mut Links,
        pods: &BTreeMap<u32, Pod>,
        is_due: impl Fn(u32) -> bool,
    ) -> Result<BTreeMap<u32, String>, LoadError> {
        let mut failed = BTreeMap::new();
        let hooks = links.hooks(|link| pods.contains_key(&link));
        let hooks = hooks.filter(|(link, _)| is_due(link.index.0));
        let hooks: Vec<_> = hooks.map(|(link, hooks)| (link.clone(), hooks)).collect();
        for (link, hooks) in hooks {
            let index = link.index.0;
            match links.attach(&mut self.programs, &link, hooks) {
                Ok(()) => {}
                Err(LoadError::Stopped) => return Err(LoadError::Stopped),
                Err(error) => {
                    let why = causes(&error);
                    // A link that was removed meanwhile has no packets.
                    if !pods.contains_key(&index) {
                        if !links.still_exists(&link)? {
                            continue;
                        }
                        let link = link.name.as_str();
                        tracing::warn!(link, why, "cannot attach the program of a link");
                    }
                    failed.insert(index, why);
                }
            }
        }
        Ok(failed)
    }

    /// Continues the check of links and filters, or starts one. Returns the first difference from the state that was
    /// applied. New links of no pod get their program.
    fn check(&mut self) -> Result<Option<String>, LoadError> {
        // Before the hooks that use them.
        if let Some(check) = &self.checking
            && self.goal.is_some()
            && check.links.wires != self.wires
        {
            self.set_wires(check.links.wires.clone())?;
        }
        if let Some(check) = &self.checking
            && self.goal.is_some()
            && check.links.fit != self.fit
        {
            self.fit.clone_from(&check.links.fit);
            self.set_fast(false)?;
        }
        let Some(goal) = &self.goal else {
            if self.has_outdated() {
                self.renew_links()?;
            } else if self.is_refused {
                self.attach_all()?;
            }
            return Ok(None);
        };
        let Some(mut check) = self.checking.take() else {
            let (socket, node, method) = (Socket::open()?, goal.node.clone(), self.method);
            let serves = self.connections.services;
            let list = move || Links::observe_with(socket, &node, method, serves);
            self.listing = Some(spawn_blocking(list));
            return Ok(None);
        };
        for link in check.next() {
            let is_pod = goal.pods.contains_key(&link.index.0);
            let hooks = check.links.hooks_of(&link, is_pod);
            // A link that failed is tried again by the next full pass: its own events must not start one.
            if goal.failed.contains_key(&link.index.0) {
                continue;
            }
            match check.links.is_attached(&self.programs, link.index.0, hooks) {
                Ok(true) => continue,
                // A link that was removed in the meantime needs no filters.
                _ if !check.links.still_exists(&link)? => continue,
                Ok(false) => {}
                Err(error) => return Err(error.into()),
            }
            if is_pod {
                return Ok(Some(format!(
                    "the link {} lacks its filters, or others are before them",
                    link.name
                )));
            }
            if let Err(error) = check.links.attach(&mut self.programs, &link, hooks)
                && check.links.still_exists(&link)?
            {
                let (link, why) = (&link.name, causes(&error));
                return Ok(Some(format!("the link {link} cannot have its filters: {why}")));
            }
        }
        if !check.is_complete() {
            self.checking = Some(check);
        } else if check.links.own != goal.own {
            return self.move_node(check.links.own);
        }
        Ok(None)
    }

    /// Writes the links to other nodes.
    fn set_wires(&mut self, wires: Wires) -> Result<(), LoadError> {
        self.wires = wires;
        self.programs.set_wires(&self.wires_in_use()).map(drop)
    }

    /// The links to other nodes. A link that lacks a program has no gateway: the fast path needs the programs of both directions.
    fn wires_in_use(&self) -> Wires {
        let mut wires = self.wires.clone();
        let failed = self.goal.iter().flat_map(|goal| goal.failed.keys());
        for link in failed {
            if let Some(wire) = wires.get_mut(link) {
                wire.gateways = [None; 2];
            }
        }
        wires
    }

    /// Writes the pods that the fast path can reach. A pod that starts follows with the next check: plugins of the runtime may
    /// give its link a queue after its ADD.
    fn set_fast(&mut self, is_full: bool) -> Result<(), LoadError> {
        let Some(goal) = self.goal.as_ref().filter(|_| self.connections.services) else {
            return Ok(());
        };
        let fast = fast_pods(&goal.pods, &self.fit);
        if is_full || fast != self.fast {
            self.fast = fast;
            self.programs.set_fast_pods(&self.fast)?;
            self.find_macs()?;
        }
        Ok(())
    }

    /// Lets the kernel ask the pods that have sent nothing for their MACs, which the programs read from the answers.
    fn find_macs(&mut self) -> Result<(), LoadError> {
        let silent = self.programs.silent_pods()?;
        if silent.is_empty() {
            return Ok(());
        }
        // Their first connections take the stack, and show the MACs too.
        let asked = Socket::open().and_then(|mut socket| socket.resolve(&silent));
        if let Err(error) = asked {
            let pods = silent.len();
            tracing::debug!(
                pods,
                why = causes(&error),
                "cannot ask all silent pods for their MACs"
            );
        }
        Ok(())
    }

    /// The links cannot be listed: the next check follows.
    fn postpone(&mut self, why: &str) {
        tracing::warn!(why, "cannot list links to check their filters");
        self.check_at.get_or_insert(Instant::now() + CHECK_AFTER);
    }

    /// True if the check that is under way continues, or if the next one starts.
    fn is_check_due(&mut self) -> bool {
        let is_due = |at: &mut Instant| *at <= Instant::now();
        self.checking.is_some()
            || (self.listing.is_none() && self.check_at.take_if(is_due).is_some())
    }

    /// The node's own addresses have changed. A failure is the difference that a full pass repairs.
    fn move_node(&mut self, own: Own) -> Result<Option<String>, LoadError> {
        let Some(mut goal) = self.goal.take() else { return Ok(None) };
        goal.own = own;
        let written = self.write(&goal.target, &goal.pods, &goal.own);
        self.goal = Some(goal);
        match written {
            Err(LoadError::Stopped) => Err(LoadError::Stopped),
            Err(error) => {
                let why = causes(&error);
                Ok(Some(format!("the new addresses of the node are not in force: {why}")))
            }
            Ok(()) => Ok(None),
        }
    }
}

/// The links to which queues were added, and the socket for the next pass.
type Queues = JoinHandle<Result<(Socket, BTreeSet<u32>), SocketError>>;

/// A check of all links, in steps: pods that start wait for a step, not for the check.
struct Check {
    links: Links,
    /// The links that follow.
    left: VecDeque<Link>,
}

impl Check {
    fn of(links: Links) -> Self {
        Self { left: links.links.values().cloned().collect(), links }
    }

    /// The links of the next step.
    fn next(&mut self) -> Vec<Link> {
        let count = self.left.len().min(CHECK_LINKS);
        self.left.drain(..count).collect()
    }

    fn is_complete(&self) -> bool {
        self.left.is_empty()
    }
}

/// The links of pods that the plugin reported. Such a pod starts under the agent, so it has no earlier connection.
fn started(endpoints: &Endpoints) -> BTreeSet<u32> {
    let started = endpoints.values().filter(|endpoint| !endpoint.pod.container.is_empty());
    started.flat_map(|endpoint| &endpoint.links).map(|link| link.ifindex).collect()
}

/// True if a change of the object changes no pod, policy or endpoint.
fn is_without_pods(id: &ObjectId) -> bool {
    match id.known() {
        Some(KnownId::Address(_) | KnownId::Service(_) | KnownId::Slice(_)) => true,
        Some(KnownId::Policy(_) | KnownId::Applied(_) | KnownId::Pod(_) | KnownId::Node) | None => {
            false
        }
    }
}

fn time(span: Span) -> Duration {
    Duration::from_millis(span.0)
}

/// Subscribes to changes of links. With Services the gateways of links and the routes to pods count too.
fn subscribe(serves: bool) -> Option<Monitor> {
    let monitor = Monitor::of_filters(serves);
    let monitor = monitor.inspect_err(|error| {
        tracing::warn!(why = causes(error), "cannot subscribe to changes of links");
    });
    monitor.ok()
}

/// The UIDs of the pods whose rules have names, by link.
fn links_with_names(desired: &Desired, wanted: &Wanted) -> BTreeMap<u32, String> {
    let with_names = wanted.pods();
    let mut links = BTreeMap::new();
    if with_names.is_empty() {
        return links;
    }
    for endpoint in desired.endpoints.values() {
        let pod = &endpoint.pod.pod;
        let entry = desired.state.entry(&pod.uid, &pod.namespace, &pod.name);
        let Some(entry) = entry.filter(|entry| with_names.contains(entry.uid.as_str())) else {
            continue;
        };
        links.extend(endpoint.links.iter().map(|link| (link.ifindex, entry.uid.clone())));
    }
    links
}

#[async_trait]
impl Backend for EbpfBackend {
    fn name(&self) -> &'static str {
        "ebpf"
    }

    async fn observe(&mut self) -> Result<Observed, BackendError> {
        let unreadable = |error: LoadError| BackendError::Unreadable { cause: causes(&error) };
        let held = self.programs.read().map_err(unreadable)?;
        let node = self.goal.as_ref().map(|goal| goal.node.clone()).unwrap_or_default();
        let mut links =
            Links::observe(&node, self.method, false).map_err(|error| unreadable(error.into()))?;
        let mut drift = Vec::new();
        let mut endpoints: BTreeSet<String> = BTreeSet::new();
        let mut incomplete: BTreeSet<String> = BTreeSet::new();
        let is_closed =
            |endpoint: &datapath_abi::Endpoint| held.row_of(endpoint) == Some(Row::CLOSED);
        for (link, endpoint) in held.endpoints.iter().filter(|(_, endpoint)| !is_closed(endpoint)) {
            let hooks = crate::links::POD.as_slice();
            let is_attached = links.is_attached(&self.programs, *link, hooks);
            if is_attached.map_err(|error| unreadable(error.into()))? {
                endpoints.insert(endpoint.uid.clone());
            } else {
                incomplete.insert(endpoint.uid.clone());
                if links.links.contains_key(link) && self.goal.is_some() {
                    drift.push(format!(
                        "link {link} of pod {} lacks its filters, or others are before them",
                        endpoint.uid
                    ));
                }
            }
        }
        if let Some(goal) = &self.goal {
            match plan(&held, &goal.target, &goal.pods, &goal.own, None) {
                Ok(plan) if plan.is_empty() => {}
                Ok(plan) => {
                    let count = plan.writes().count();
                    drift.push(format!("{count} rows of the maps differ"));
                }
                Err(full) => drift.push(full.to_string()),
            }
            drift.extend(self.names.drift().map_err(unreadable)?);
        }
        Ok(Observed { endpoints: &endpoints - &incomplete, drift })
    }

    async fn apply(&mut self, desired: &Desired) -> Applied {
        if desired.revision < self.revision {
            return Applied::older(desired.revision, self.revision);
        }
        // Before programs without any Service are attached in the place of those of another release.
        let first = match self.goal {
            None => Some(self.serve(desired).await),
            Some(_) => None,
        };
        let mut result = self.put_into_force(desired).await;
        // Each turn makes a map larger, up to the budget.
        while let Err(LoadError::Full(full)) = &result {
            match self.grow(full.map, full.needed) {
                Ok(()) => {}
                // The larger map has no room for a row either. A still larger one may have it.
                Err(LoadError::Full(later)) if later.limit > full.limit => {
                    result = Err(later.into());
                    continue;
                }
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
            result = self.put_into_force(&Desired { changed: None, ..desired.clone() }).await;
        }
        self.is_refused = result.is_err();
        if result.as_ref().is_err_and(|error| !matches!(error, LoadError::Stopped))
            && let Err(error) = self.close_started(desired)
        {
            tracing::error!(why = causes(&error), "cannot close the pods that start");
        }
        // Also in a state whose policies are not in force.
        let services = match first {
            Some(services) => services,
            None => self.serve(desired).await,
        };
        match result {
            Ok(endpoints) => {
                self.revision = desired.revision;
                let policies = self.names.failing();
                Applied { in_force: Ok(()), endpoints, policies, services }
            }
            Err(error) => Applied { services, ..Applied::failed(causes(&error)) },
        }
    }

    async fn event(&mut self) -> BackendEvent {
        loop {
            if self.monitor.is_none() {
                self.monitor = subscribe(self.connections.services);
                // A change before the subscription has no event.
                self.check_at.get_or_insert(Instant::now() + CHECK_AFTER);
            }
            let serve_at = self.serving.as_ref().and_then(Serving::wake_at);
            let others = self.sweep_at.min(self.compare_at);
            let others = serve_at.map_or(others, |at| at.min(others));
            let check_at = match self.checking {
                Some(_) => Instant::now(),
                None if self.listing.is_some() => others,
                None => self.check_at.map_or(others, |at| at.min(others)),
            };
            let clean_at = self.is_unclean.then_some(self.flipped + GRACE);
            let wake_at = clean_at.map_or(check_at, |at| at.min(check_at));
            let monitor = &mut self.monitor;
            let changed = async {
                match monitor {
                    Some(monitor) => monitor.changed().await,
                    None => std::future::pending().await,
                }
            };
            let listing = &mut self.listing;
            let listed = async {
                match listing {
                    Some(listing) => listing.await,
                    None => std::future::pending().await,
                }
            };
            let is_changed = tokio::select! {
                is_good = changed => Some(is_good),
                links = listed => {
                    self.listing = None;
                    match links.map_err(|error| causes(&error)) {
                        Ok(Ok(links)) => self.checking = Some(Check::of(links)),
                        Ok(Err(error)) => self.postpone(&causes(&error)),
                        Err(why) => self.postpone(&why),
                    }
                    continue;
                }
                () = self.names.changed() => return BackendEvent::Names,
                () = sleep_until(wake_at) => None,
                event = self.events.wait() => {
                    return BackendEvent::Flow(events::flow(&event, &self.held, &self.rules));
                }
            };
            match is_changed {
                Some(is_good) => {
                    if !is_good {
                        self.monitor = None;
                    }
                    self.check_at.get_or_insert(Instant::now() + CHECK_AFTER);
                    continue;
                }
                None if clean_at.is_some_and(|at| at <= Instant::now()) => {
                    if let Err(error) = self.clean() {
                        return BackendEvent::Drift(causes(&error));
                    }
                }
                None if self.is_check_due() => match self.check() {
                    // The agent may have work in the meantime.
                    Ok(None) => yield_now().await,
                    Ok(Some(drift)) => return BackendEvent::Drift(drift),
                    Err(error) => {
                        tracing::warn!(why = causes(&error), "cannot check the filters of links");
                    }
                },
                None => {}
            }
            if serve_at.is_some_and(|at| at <= Instant::now())
                && let Some(serving) = &mut self.serving
                && serving.step(&mut self.programs)
            {
                return BackendEvent::Services;
            }
            if Instant::now() >= self.compare_at {
                self.compare_at = Instant::now() + COMPARE_EVERY;
                if let Some(drift) = self.compare() {
                    return BackendEvent::Drift(drift);
                }
            }
            if Instant::now() >= self.sweep_at {
                self.sweep_at = Instant::now() + time(self.connections.sweep);
                let started = nanoseconds();
                let swept = self.programs.sweep();
                let expired = self.names.expire(started);
                match expired.and(swept).map(|open| self.grow_flows(open)) {
                    Ok(None) => {}
                    Ok(Some(drift)) => return BackendEvent::Drift(drift),
                    Err(error) => {
                        tracing::warn!(why = causes(&error), "cannot remove ended connections");
                    }
                }
            }
        }
    }

    fn health_checks(&self) -> Option<Arc<HealthChecks>> {
        self.serving.as_ref()?.health_checks()
    }

    fn map_memory(&self) -> u64 {
        let bytes = memory_of_maps(&self.pins);
        let bytes = bytes.inspect_err(|error| {
            tracing::debug!(why = causes(error), "cannot read the memory of maps");
        });
        bytes.unwrap_or_default()
    }

    fn figures(&mut self) -> Figures {
        let counters = self.programs.counters().and_then(|mut counters| {
            counters.extend(self.names.counters()?);
            Ok(counters)
        });
        let counters = counters.inspect_err(|error| {
            tracing::warn!(why = causes(error), "cannot read the counters of packets");
        });
        let mut packets = counters.unwrap_or_default();
        let mut of = |names: &[(&'static str, &'static str)]| -> BTreeMap<&'static str, u64> {
            names.iter().filter_map(|(name, of)| Some((*of, packets.remove(name)?))).collect()
        };
        let (choices, source_ports) = (of(&CHOICES), of(&SOURCE_PORTS));
        let services = self.serving.as_mut().map(|serving| ServiceFigures {
            choices,
            source_ports,
            ..serving.figures()
        });
        Figures { packets, services }
    }

    async fn listen(&mut self, allowed: bool) -> Result<(), BackendError> {
        let wanted = self.programs.want_events(allowed, EVENTS_OF_POD);
        wanted.map_err(|error| BackendError::Unreadable { cause: causes(&error) })
    }

    async fn uses(&mut self) -> Result<Vec<RuleUse>, BackendError> {
        let uses = self.programs.uses();
        let uses = uses.map_err(|error| BackendError::Unreadable { cause: causes(&error) })?;
        let named = uses.into_iter().filter_map(|(number, of)| {
            let name = self.held.rules.get(&number).and_then(|digest| self.rules.get(digest))?;
            let datapath_abi::Use { flows, packets, bytes, last } = of;
            let last = events::wall(last);
            Some(RuleUse { rule: events::id(name), flows, packets, bytes, last })
        });
        Ok(named.collect())
    }

    async fn look_up(&mut self, probe: &Probe) -> Result<Vec<Looked>, BackendError> {
        let held = self.programs.read();
        let held = held.map_err(|error| BackendError::Unreadable { cause: causes(&error) })?;
        Ok(look_up(&held, &self.rules, probe))
    }

    async fn paths(&mut self, uid: &str) -> Result<Option<Paths>, BackendError> {
        let links = self.held.endpoints.iter().filter(|(_, of)| of.uid == uid);
        let links: Vec<u32> = links.map(|(link, _)| *link).collect();
        let mut paths = None;
        for link in links {
            let of_link = self.programs.paths(link);
            let of_link =
                of_link.map_err(|error| BackendError::Unreadable { cause: causes(&error) })?;
            paths = Some(paths.unwrap_or(Paths::default()) + of_link);
        }
        Ok(paths)
    }

    async fn trace(&mut self, _: &Trace) -> Result<(), BackendError> {
        Err(BackendError::Unsupported { backend: "ebpf", operation: "trace packets" })
    }

    async fn retire(&mut self, retire: Retire) -> Result<(), BackendError> {
        match retire {
            Retire::Keep => Ok(()),
            Retire::Remove => {
                self.remove().map_err(|error| BackendError::NotRemoved { cause: causes(&error) })
            }
        }
    }
}

impl EbpfBackend {
    /// Closes the pods that start under a state that is not in force, in the directions for which it has rules.
    fn close_started(&mut self, desired: &Desired) -> Result<(), LoadError> {
        if !desired.endpoints.values().any(|endpoint| is_starting(&self.held, endpoint)) {
            return Ok(());
        }
        let compilation = Compilation::new(&desired.state, &self.names.resolved().1);
        let node = desired.state.node.as_deref().unwrap_or_default();
        let mut links = Links::observe(node, self.method, false)?;
        let sets = &compilation.tables().pods;
        let pods = starting(&self.held, desired, sets, &links.routed);
        let plan = plan_started(&self.held, &pods)?;
        self.programs.write(&mut self.held, plan.writes())?;
        for (link, why) in self.attach(&mut links, &pods, |link| pods.contains_key(&link))? {
            tracing::error!(link, why, "cannot close a pod that starts");
        }
        let closed = pods.values().filter(|pod| pod.row != Row::default()).count();
        if closed > 0 {
            tracing::warn!(
                closed,
                "the state is not in force: pods that start are closed in the directions for which they have rules"
            );
        }
        Ok(())
    }

    /// Replaces a map by a larger one, without an effect on packets. The links that failed are in [`Self::outdated`].
    fn grow(&mut self, map: &'static str, needed: u32) -> Result<(), LoadError> {
        let layout = self.programs.layouts().iter().find(|layout| layout.name == map);
        let rows = layout.map_or(0, |layout| layout.rows);
        let (is_flows, limit) = (map == "flows", self.connections.limit);
        // A map of fixed size.
        if !is_flows && datapath_abi::Limits::default().of(map).is_none() {
            return Err(datapath_abi::Full { map, limit: rows, needed }.into());
        }
        let larger = enlarged(rows, needed);
        let larger = if is_flows { larger.min(limit) } else { larger };
        let used = sizes(&self.held, &Plan::default());
        let growth = Growth { map, rows: larger, needed };
        check_growth(self.programs.layouts(), &used, growth, self.connections.map_memory)?;
        let programs = self.programs.with_larger(map, larger, &self.held)?;
        let mut earlier = std::mem::replace(&mut self.programs, programs);
        self.events = self.programs.take_events();
        if let Some(folder) = self.programs.maps_folder() {
            self.pins = folder.to_owned();
        }
        if let Some(limit) = self.held.limits.of(map) {
            *limit = larger;
        }
        self.numbers = self.held.numbers();
        // The larger map is in use. Each step is done, whatever another one returns.
        let attached = self.renew_links();
        let copied = if is_flows { self.programs.add_flows_of(&earlier) } else { Ok(()) };
        let released = if is_flows { self.programs.hold_half_open(false) } else { Ok(()) };
        // The next process sees by the earlier pins that links may have the earlier programs.
        let removed = match (self.has_outdated(), earlier.maps_folder()) {
            (true, Some(folder)) => {
                self.others.push(folder.to_owned());
                Ok(())
            }
            _ => earlier.remove_pins(),
        };
        attached.and(copied).and(released).and(removed)?;
        tracing::info!(map, rows = larger, "a map is larger now");
        Ok(())
    }

    /// Fails if the maps would need more memory than is allowed after a plan.
    fn check_memory(&self, plan: &Plan) -> Result<(), LoadError> {
        let used = sizes(&self.held, plan);
        check_memory(self.programs.layouts(), used, self.connections.map_memory)
    }

    /// True if links may have the programs with the earlier map.
    fn has_outdated(&self) -> bool {
        self.is_outdated || !self.outdated.is_empty()
    }

    /// Attaches the programs to all links after a map has grown.
    fn renew_links(&mut self) -> Result<(), LoadError> {
        self.is_outdated = true;
        self.outdated = self.attach_all()?;
        self.is_outdated = false;
        Ok(())
    }

    /// Attaches the programs to all links, in the place of earlier ones. Returns the links that have other programs, each
    /// with the cause.
    fn attach_all(&mut self) -> Result<BTreeMap<u32, String>, LoadError> {
        let node = self.goal.as_ref().map(|goal| goal.node.clone()).unwrap_or_default();
        let mut links = Links::observe(&node, self.method, self.connections.services)?;
        self.set_wires(links.wires.clone())?;
        let pods: BTreeSet<u32> = self.held.endpoints.keys().copied().collect();
        let hooks = links.hooks(|link| pods.contains(&link));
        let hooks: Vec<_> = hooks.map(|(link, hooks)| (link.clone(), hooks)).collect();
        let mut failed = BTreeMap::new();
        for (link, hooks) in hooks {
            let Err(error) = links.attach(&mut self.programs, &link, hooks) else { continue };
            if matches!(error, LoadError::Stopped) {
                return Err(error);
            }
            // It has the programs.
            if error.is_behind() {
                continue;
            }
            let index = link.index.0;
            if links.still_exists(&link)? && !links.is_attached(&self.programs, index, hooks)? {
                let (link, why) = (link.name, causes(&error));
                tracing::warn!(link, why, "cannot attach the programs of the state in force");
                failed.insert(index, why);
            }
        }
        Ok(failed)
    }

    /// Makes the map of open connections larger if it is nearly full and not at its limit. Returns the cause of a full
    /// pass, if one is needed.
    fn grow_flows(&mut self, open: u32) -> Option<String> {
        let flows = self.programs.layouts().iter().find(|layout| layout.name == "flows");
        let rows = flows.map_or(0, |layout| layout.rows);
        if open < rows / 4 * 3 || rows >= self.connections.limit {
            return None;
        }
        let grown = self.grow("flows", rows.saturating_add(1));
        let why = grown.err().map(|error| causes(&error));
        if self.has_outdated() {
            let links = self.outdated.len();
            let why = why.or_else(|| self.outdated.values().next().cloned()).unwrap_or_default();
            return Some(format!(
                "the map of connections is larger, and {links} links may have the programs with the earlier one: {why}"
            ));
        }
        if let Some(why) = why
            && !std::mem::replace(&mut self.is_limit_logged, true)
        {
            tracing::warn!(why, open, rows, "the map of connections stays as it is");
        }
        None
    }

    /// Recreates pins, and compares rows. Returns the first difference of rows.
    fn compare(&mut self) -> Option<String> {
        let repaired = self.programs.repair().inspect(|pins| {
            if !pins.is_empty() {
                tracing::warn!(
                    ?pins,
                    "pins or settings were changed by another process, and are recreated"
                );
            }
        });
        let repaired = repaired.and_then(|_| {
            // Before the first state the rows are those of an earlier process.
            let is_known = self.goal.is_some() && self.connections.services;
            if is_known && self.programs.set_wires(&self.wires_in_use())? {
                tracing::warn!(map = WIRES, "a row of a map was changed by another process");
                if let Some(serving) = &mut self.serving {
                    serving.repaired("rows");
                }
            }
            if is_known && self.programs.set_fast_pods(&self.fast)? {
                tracing::warn!(map = FAST_PODS, "a row of a map was changed by another process");
            }
            Ok(())
        });
        let differs = match (repaired, &self.goal) {
            (Ok(()), Some(_)) => self.comparison.step(&self.held, &mut self.programs),
            (Ok(()), None) => Ok(None),
            (Err(error), _) => Err(error),
        };
        let fault = differs.as_ref().err().map(|error| causes(error));
        if let Some(why) = &fault
            && fault != self.compare_fault
        {
            tracing::error!(why, "cannot compare pins and rows with the state in force");
        }
        self.compare_fault = fault;
        if let Some(link) = self.changed_link() {
            return Some(format!("the TCX link of link {link} was changed by another process"));
        }
        let map = differs.ok().flatten()?;
        Some(format!("a row of the map {map} was changed by another process"))
    }

    /// The first link of a pod whose TCX link was removed or changed.
    fn changed_link(&mut self) -> Option<u32> {
        let goal = self.goal.as_ref()?;
        let pods = goal.pods.keys().filter(|link| !goal.failed.contains_key(link));
        let hooks = pods.map(|link| (*link, crate::links::POD.as_slice()));
        let changed = self.programs.changed_link(hooks, self.method == Method::Tcx);
        // No event reports the links of others.
        if self.programs.has_links() {
            self.check_at.get_or_insert_with(Instant::now);
        }
        changed
            .inspect_err(|error| tracing::error!(why = causes(error), "cannot check a TCX link"))
            .ok()?
    }

    /// Removes filters, TCX links, rows, and the pins of all releases.
    fn remove(&mut self) -> Result<(), LoadError> {
        self.clear()?;
        let others = std::mem::take(&mut self.others);
        let folders = others.into_iter().chain(self.programs.links_folder());
        for folder in folders.chain([self.pins.clone()]) {
            removed(std::fs::remove_dir_all(&folder), &folder)?;
        }
        Ok(())
    }
}

/// The time for which events are gathered before filters are checked.
const CHECK_AFTER: Duration = Duration::from_millis(300);
/// The links of one step of a check. A link takes up to five calls, each of which waits for the kernel's network lock.
const CHECK_LINKS: usize = 8;
/// Two of them are within the time of a repair, which is 2 s.
const COMPARE_EVERY: Duration = Duration::from_secs(1);
/// The sockets that are kept for the next pass.
const SOCKETS: usize = 2;
/// The events of a pod in a second.
const EVENTS_OF_POD: u32 = 200;
