//! The removal of enforcement from a node on which no agent runs. It needs neither the programs nor their maps.

use crate::{
    LoadError, kernel,
    links::is_misplaced,
    pins::{folders_of_maps, removed},
    programs::{Hook, direction, is_ours},
    sockets,
    tcx::{self, Method},
};
use aya::programs::SchedClassifier;
use routing_netlink::{BpfFilter, Side, Socket, With};
use routing_plan::IfIndex;
use std::{
    fs::{read_dir, remove_dir, remove_dir_all, remove_file},
    io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

/// The number of this backend's objects on a node, of any release.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attachments {
    /// Filters of links.
    pub filters: usize,
    /// Pinned TCX links.
    pub tcx_links: usize,
    /// Folders of pinned maps and programs, and of links.
    pub folders: usize,
}

impl Attachments {
    /// True if the node has none: all pods are open.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Counts those of the calling thread's network namespace, with the pins below this folder.
    ///
    /// # Errors
    /// If links, filters or pins cannot be listed.
    pub fn observe(pins: &Path) -> Result<Self, LoadError> {
        Ok(Found::observe(pins)?.count())
    }

    /// Removes them and returns their number: all pods are open. A repetition continues an interrupted removal.
    ///
    /// # Errors
    /// If the kernel refuses a removal, or another process attaches programs meanwhile.
    pub fn remove(pins: &Path) -> Result<Self, LoadError> {
        let found = Found::observe(pins)?;
        found.remove()?;
        found.wait_for_tcx();
        // The folder of all pins; another process can have files there.
        let _ = remove_dir(pins);
        let left = Found::observe(pins)?;
        let Attachments { filters, tcx_links, folders } = left.count();
        let left = filters + tcx_links + folders + found.attached_sides().count();
        if left > 0 {
            return Err(LoadError::Reattached { left });
        }
        Ok(found.count())
    }
}

struct Found {
    /// In the order of their removal: without `from_pod`, `to_pod` and `to_wire` would judge packets without their Service.
    filters: Vec<BpfFilter>,
    /// In the same order.
    tcx_links: Vec<PathBuf>,
    /// The link and the side of each.
    tcx_sides: Vec<(String, Side)>,
    folders: Vec<PathBuf>,
}

impl Found {
    fn observe(pins: &Path) -> Result<Self, LoadError> {
        let mut socket = Socket::open()?;
        let links = socket.observe(With::Nothing)?.links;
        let mut filters = Vec::new();
        for side in SIDES {
            for link in links.keys() {
                let all = socket.bpf_filters(*link, side)?;
                filters.extend(all.into_iter().filter(|of| is_ours(of) || is_misplaced(of)));
            }
        }
        let mut tcx_links = entries(&pins.join(tcx::FOLDER))?;
        tcx_links.sort_by_key(|pin| !pin.to_string_lossy().ends_with(tcx::side_name(Side::Egress)));
        let side = |pin: &PathBuf| {
            let (link, side) = pin.file_name()?.to_str()?.split_once('-')?;
            let side = SIDES.into_iter().find(|of| tcx::side_name(*of) == side)?;
            Some((links.get(&IfIndex(link.parse().ok()?))?.name.clone(), side))
        };
        let tcx_sides = tcx_links.iter().filter_map(side).collect();
        let mut folders = folders_of_maps(pins);
        let of_links = [tcx::FOLDER, sockets::FOLDER].map(|folder| pins.join(folder));
        folders.extend(of_links.into_iter().filter(|folder| folder.is_dir()));
        Ok(Self { filters, tcx_links, tcx_sides, folders })
    }

    fn count(&self) -> Attachments {
        let Self { filters, tcx_links, folders, .. } = self;
        Attachments { filters: filters.len(), tcx_links: tcx_links.len(), folders: folders.len() }
    }

    fn remove(&self) -> Result<(), LoadError> {
        let mut socket = Socket::open()?;
        for filter in &self.filters {
            socket.delete_bpf_filter(filter)?;
        }
        for pin in &self.tcx_links {
            removed(remove_file(pin), pin)?;
        }
        self.folders.iter().try_for_each(|folder| removed(remove_dir_all(folder), folder))
    }

    /// The TCX links that the kernel has not ended yet. A device that has ended has none.
    fn attached_sides(&self) -> impl Iterator<Item = &(String, Side)> {
        self.tcx_sides.iter().filter(|(link, side)| {
            let programs = tcx_programs(link, *side).unwrap_or_default();
            programs.iter().any(|name| Hook::of(name, *side).is_some())
        })
    }

    /// The kernel ends a TCX link after an RCU grace period of its last pin.
    fn wait_for_tcx(&self) {
        let deadline = Instant::now() + TCX_ENDS;
        while self.attached_sides().next().is_some() && Instant::now() < deadline {
            thread::sleep(PAUSE);
        }
    }
}

/// The names of the programs that a link has by TCX on one side, in the kernel's order. The kernel runs them before all
/// filters. Empty on a kernel without TCX.
///
/// # Errors
/// If the kernel has no information about the link or a program.
pub fn tcx_programs(link: &str, side: Side) -> Result<Vec<String>, LoadError> {
    if kernel::require(&kernel::release(), Method::Tcx).is_err() {
        return Ok(Vec::new());
    }
    let programs = SchedClassifier::query_tcx(link, direction(side));
    let fault = |cause| LoadError::Query { link: link.to_owned(), cause };
    let (_, programs) = programs.map_err(fault)?;
    let names = programs.iter().map(|program| program.name_as_str().unwrap_or_default().to_owned());
    Ok(names.collect())
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, LoadError> {
    match read_dir(folder) {
        Ok(entries) => Ok(entries.flatten().map(|entry| entry.path()).collect()),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(cause) => Err(LoadError::Folder { folder: folder.to_owned(), cause }),
    }
}

/// In the order of the removal.
const SIDES: [Side; 2] = [Side::Egress, Side::Ingress];
/// Much longer than a grace period, also on a busy machine.
const TCX_ENDS: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);
