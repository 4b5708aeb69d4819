//! The pod's network namespace.

use crate::{
    attachment::Call,
    fault::{Code, Fault},
};
use config_model::causes;
use routing_netlink::{Netns, Socket};
use routing_plan::SysctlName;
use std::{
    os::fd::{AsFd, BorrowedFd},
    path::Path,
};

/// The network namespace that ADD or CHECK is for, held open.
#[derive(Debug)]
pub(crate) struct Sandbox {
    netns: Netns,
}

impl Sandbox {
    /// Opens it.
    ///
    /// # Errors
    /// With code 8, if there is none, or it is the plugin's own and that was not allowed.
    pub(crate) fn of(call: &Call) -> Result<Self, Fault> {
        let path = call.attachment.netns.as_deref().unwrap_or(Path::new(""));
        let netns = Netns::open(path).map_err(|error| invalid(path, &causes(&error)))?;
        refuse_own(call, &netns)?;
        Ok(Self { netns })
    }

    /// The path that the runtime gave.
    pub(crate) fn path(&self) -> String {
        self.netns.path().display().to_string()
    }

    /// A socket within it.
    ///
    /// # Errors
    /// With code 8, if it is no network namespace.
    pub(crate) fn socket(&self) -> Result<Socket, Fault> {
        self.netns.socket().map_err(|error| invalid(self.netns.path(), &causes(&error)))
    }

    /// Sets files below `/proc/sys` as they are within it.
    ///
    /// # Errors
    /// The first that cannot be written; those that are not there do not count.
    pub(crate) fn write_sysctls(&self, settings: &[(SysctlName, &str)]) -> std::io::Result<()> {
        self.netns.write_sysctls(settings)
    }

    /// Checks that the path still leads to this namespace. A deleted pod's namespace exists as long as the file is
    /// open, but no other process can find it.
    ///
    /// # Errors
    /// With code 8, if it does not.
    pub(crate) fn ensure_current(&self) -> Result<(), Fault> {
        let path = self.netns.path();
        let now = Netns::open(path).map_err(|error| invalid(path, &causes(&error)))?;
        match now.is_same(&self.netns) {
            Ok(true) => Ok(()),
            Ok(false) => Err(invalid(path, "another one has taken its place")),
            Err(error) => Err(invalid(path, &error.to_string())),
        }
    }
}

impl AsFd for Sandbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.netns.as_fd()
    }
}

/// Refuses a DEL whose namespace is the plugin's own; one that is gone is no obstacle.
///
/// # Errors
/// With code 8.
pub(crate) fn refuse_own_for_del(call: &Call) -> Result<(), Fault> {
    match call.attachment.netns.as_deref().map(Netns::open) {
        Some(Ok(netns)) => refuse_own(call, &netns),
        Some(Err(_)) | None => Ok(()),
    }
}

fn refuse_own(call: &Call, netns: &Netns) -> Result<(), Fault> {
    if call.attachment.netns_override {
        return Ok(());
    }
    let own = Netns::current().map_err(|error| invalid(netns.path(), &causes(&error)))?;
    match own.is_same(netns) {
        Ok(false) => Ok(()),
        Ok(true) => Err(invalid(
            netns.path(),
            "it is the plugin's own, and CNI_NETNS_OVERRIDE does not allow that",
        )),
        Err(error) => Err(invalid(netns.path(), &error.to_string())),
    }
}

fn invalid(path: &Path, why: &str) -> Fault {
    Fault::new(
        Code::InvalidNamespace,
        format!("network namespace {} cannot be used: {why}", path.display()),
        "the container runtime must give the path of the sandbox's network namespace in CNI_NETNS",
    )
}
