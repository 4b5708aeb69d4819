//! Programs on links whose queue `ingress` excludes `clsact`: each is attached by a TCX link, which is pinned.
//!
//! A pin keeps its link, and the link its program. A link whose device has ended stays pinned until [`Programs::forget_links`].

use crate::{Hook, LoadError, Programs, grace::GRACE, pins::removed};
use aya::programs::{
    LinkOrder, ProgramError, SchedClassifier,
    links::{FdLink, LinkError, PinnedLink},
    tc::{SchedClassifierLink, TcAttachOptions},
};
use routing_netlink::Side;
use routing_plan::Link;
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

/// The folder of pinned links, beside the folders of maps.
pub(crate) const FOLDER: &str = "links";

/// The method by which programs are attached to links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Filters of a `clsact` queue. TCX where a link has it already, or has a queue that excludes `clsact`.
    Filters,
    /// TCX on all links: the plugin `bandwidth` adds a queue that excludes `clsact`.
    Tcx,
}

pub(crate) fn side_name(side: Side) -> &'static str {
    match side {
        Side::Ingress => "ingress",
        Side::Egress => "egress",
    }
}

fn is(error: &ProgramError, number: i32) -> bool {
    matches!(error, ProgramError::SyscallError(error) if error.io_error.raw_os_error() == Some(number))
}

/// linux/errno.h: the device of the link has ended.
const ENOLINK: i32 = 67;
/// asm-generic/errno-base.h: the device has the program already.
const EEXIST: i32 = 17;
/// Attempts to attach a program, [`GRACE`] apart. The kernel detaches the program of a removed pin after a grace period.
const ATTEMPTS: u32 = 20;

impl Programs {
    /// The folder of pinned links. `None` if programs are not pinned.
    pub(crate) fn links_folder(&self) -> Option<PathBuf> {
        Some(self.maps_folder()?.parent()?.join(FOLDER))
    }

    /// True if a link is pinned.
    pub(crate) fn has_links(&self) -> bool {
        let entries = self.links_folder().map(std::fs::read_dir);
        entries.is_some_and(|entries| entries.is_ok_and(|mut entries| entries.next().is_some()))
    }

    fn link_pin(&self, link: u32, side: Side) -> Option<PathBuf> {
        Some(self.links_folder()?.join(format!("{link}-{}", side_name(side))))
    }

    /// Attaches the program of a hook to a link, in the place of an earlier one of ours and before all others.
    pub(crate) fn attach_tcx(&mut self, hook: Hook, link: &Link) -> Result<(), LoadError> {
        let pin = self.link_pin(link.index.0, hook.side()).ok_or(LoadError::NoPins)?;
        if pin.exists() && self.update(hook, &link.name, &pin)? {
            return Ok(());
        }
        self.effect()?;
        let folder = pin.parent().unwrap_or(&pin).to_owned();
        std::fs::create_dir_all(&folder).map_err(|cause| LoadError::Folder { folder, cause })?;
        let name = hook.name();
        let fault = |cause| LoadError::Attach { program: name, link: link.name.clone(), cause };
        let program: &mut SchedClassifier = self.program(name)?;
        let mut attempt = 1;
        let id = loop {
            let options = TcAttachOptions::TcxOrder(LinkOrder::first());
            match program.attach_with_options(&link.name, hook.direction(), options) {
                Err(error) if is(&error, EEXIST) && attempt < ATTEMPTS => {
                    attempt += 1;
                    std::thread::sleep(GRACE);
                }
                result => break result.map_err(fault)?,
            }
        };
        let attached = program.take_link(id).map_err(fault)?;
        let attached = FdLink::try_from(attached);
        let attached =
            attached.map_err(|cause| LoadError::Link { link: link.name.clone(), cause })?;
        attached.pin(&pin).map_err(|cause| LoadError::Pin { name, cause })?;
        Ok(())
    }

    /// Puts the program of a hook into a pinned link. Returns false, and removes the pin, if the link has ended.
    fn update(&mut self, hook: Hook, link: &str, pin: &Path) -> Result<bool, LoadError> {
        let name = hook.name();
        let fault =
            |cause: ProgramError| LoadError::Attach { program: name, link: link.to_owned(), cause };
        let unusable = |cause| LoadError::Link { link: link.to_owned(), cause };
        let found = match PinnedLink::from_pin(pin) {
            Ok(found) => FdLink::from(found),
            // Another process has put it there.
            Err(_) => {
                remove(pin)?;
                return Ok(false);
            }
        };
        let is_current = found.info().is_ok_and(|info| Some(&info.program_id()) == self.id(hook));
        if !is_current {
            self.effect()?;
        }
        let Ok(found) = SchedClassifierLink::try_from(found) else {
            remove(pin)?;
            return Ok(false);
        };
        let program: &mut SchedClassifier = self.program(name)?;
        match program.attach_to_link(found) {
            // The pin keeps it.
            Ok(id) => {
                let attached = program.take_link(id).map_err(fault)?;
                drop(FdLink::try_from(attached).map_err(unusable)?);
                Ok(true)
            }
            Err(error) if is(&error, ENOLINK) => {
                remove(pin)?;
                Ok(false)
            }
            Err(error) => Err(fault(error)),
        }
    }

    /// True if the pinned link of this side has the program of the hook.
    pub(crate) fn is_current_tcx(&self, hook: Hook, link: u32) -> bool {
        let Some(pin) = self.link_pin(link, hook.side()) else { return false };
        let program = || -> Result<u32, LinkError> {
            Ok(FdLink::from(PinnedLink::from_pin(&pin)?).info()?.program_id())
        };
        pin.exists() && program().is_ok_and(|program| Some(&program) == self.id(hook))
    }

    /// True if a link of this side is pinned.
    pub(crate) fn has_tcx(&self, link: u32, side: Side) -> bool {
        self.link_pin(link, side).is_some_and(|pin| pin.exists())
    }

    /// True if a link of any device is pinned.
    fn has_any_tcx(&self) -> bool {
        let entries = self.links_folder().and_then(|folder| std::fs::read_dir(folder).ok());
        entries.is_some_and(|mut entries| entries.next().is_some())
    }

    /// Removes a link. Returns false if there is none.
    pub(crate) fn detach_tcx(&self, link: u32, side: Side) -> Result<bool, LoadError> {
        let Some(pin) = self.link_pin(link, side).filter(|pin| pin.exists()) else {
            return Ok(false);
        };
        self.effect()?;
        remove(&pin)?;
        Ok(true)
    }

    /// Checks the TCX links of these links. Returns the first link of which another process removed or changed one. If
    /// `is_required` is false, a link without one on either side is attached by filters.
    pub(crate) fn changed_link<'a>(
        &mut self,
        links: impl Iterator<Item = (u32, &'a [Hook])>,
        is_required: bool,
    ) -> Result<Option<u32>, LoadError> {
        // Most nodes have no such link. A look for the pins of each link would cost more than the rest of the check.
        if !is_required && !self.has_any_tcx() {
            return Ok(None);
        }
        for (link, hooks) in links {
            let has_any = hooks.iter().any(|hook| self.has_tcx(link, hook.side()));
            if !is_required && !has_any {
                continue;
            }
            for hook in hooks {
                let pin = self.link_pin(link, hook.side()).ok_or(LoadError::NoPins)?;
                if !self.is_current_tcx(*hook, link)
                    || !self.update(*hook, &link.to_string(), &pin)?
                {
                    return Ok(Some(link));
                }
            }
        }
        Ok(None)
    }

    /// Removes the pins of links to devices that do not exist.
    pub(crate) fn forget_links(&self, exist: &BTreeSet<u32>) -> Result<(), LoadError> {
        let Some(folder) = self.links_folder().filter(|folder| folder.exists()) else {
            return Ok(());
        };
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let link = name.to_str().and_then(|name| name.split_once('-')?.0.parse().ok());
            if link.is_some_and(|link: u32| !exist.contains(&link)) {
                self.effect()?;
                if let Err(error) = remove(&entry.path()) {
                    tracing::warn!(why = config_model::causes(&error), "cannot remove an old pin");
                }
            }
        }
        Ok(())
    }
}

fn remove(pin: &Path) -> Result<(), LoadError> {
    removed(std::fs::remove_file(pin), pin)
}
