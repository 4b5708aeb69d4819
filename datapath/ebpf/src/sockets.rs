//! Services for processes of the node: programs at a cgroup, which give the calls of sockets the address of a backend.
//!
//! The programs are those of `datapath/bpf/sockets.h`. A pin keeps the link of each, and the link its program.

use crate::{LoadError, Programs, pins::removed};
use aya::{
    maps::{Array, MapData},
    programs::{
        CgroupAttachMode, CgroupSockAddr,
        links::{FdLink, PinnedLink},
    },
};
use nix::{
    getsockopt_impl, libc,
    sys::socket::{AddressFamily, SockFlag, SockType, getsockopt, socket, sockopt::GetStruct},
};
use std::{
    fs::{File, create_dir_all, remove_dir_all, rename},
    path::{Path, PathBuf},
};

/// The folder of pinned links, beside the folders of maps.
pub(crate) const FOLDER: &str = "sockets";

impl Programs {
    /// Attaches the programs that are not attached yet, in the place of those of an earlier process. Repairs the map with
    /// the node's network namespace. `top` is the root of cgroup v2, or the folder with all cgroup trees. Returns the
    /// number of programs that it attached.
    ///
    /// # Errors
    /// If there is no cgroup v2, or the kernel refuses a program.
    pub fn attach_sockets(&mut self, top: &Path) -> Result<usize, LoadError> {
        let folder = self.sockets_folder().ok_or(LoadError::NoPins)?;
        let has_changed = self.set_namespace()?;
        let mut cgroup = None;
        let mut attached = 0;
        for name in PROGRAMS {
            let pin = folder.join(name);
            let id = self.socket_program(name)?.1;
            if program_of(&pin) == Some(id) {
                continue;
            }
            let cgroup = match &mut cgroup {
                Some(cgroup) => cgroup,
                new => new.insert(open_root(top)?),
            };
            if attached == 0 {
                let fault = |cause| LoadError::Folder { folder: folder.clone(), cause };
                create_dir_all(&folder).map_err(fault)?;
            }
            self.effect()?;
            let link = || top.display().to_string();
            let fault = |cause| LoadError::Attach { program: name, link: link(), cause };
            let (program, _) = self.socket_program(name)?;
            let id = program.attach(&*cgroup, CgroupAttachMode::Single).map_err(fault)?;
            let new = program.take_link(id).map_err(fault)?;
            let new =
                FdLink::try_from(new).map_err(|cause| LoadError::Link { link: link(), cause })?;
            // The earlier program is detached only now: each call has one of both, or both.
            let beside = folder.join(format!("{name}+new"));
            removed(std::fs::remove_file(&beside), &beside)?;
            new.pin(&beside).map_err(|cause| LoadError::Pin { name, cause })?;
            rename(&beside, &pin)
                .map_err(|cause| LoadError::Folder { folder: folder.clone(), cause })?;
            attached += 1;
        }
        if has_changed && attached == 0 {
            tracing::warn!(map = NAMESPACE, "a row of a map was changed by another process");
        }
        Ok(attached)
    }

    /// Detaches the programs, also those of an earlier process.
    pub(crate) fn detach_sockets(&self) -> Result<(), LoadError> {
        let Some(folder) = self.sockets_folder() else { return Ok(()) };
        removed(remove_dir_all(&folder), &folder)
    }

    /// A program with the kernel's id. It is loaded before its first use.
    fn socket_program(
        &mut self,
        name: &'static str,
    ) -> Result<(&mut CgroupSockAddr, u32), LoadError> {
        let fault = |cause| LoadError::Program { name, cause };
        let program = self.ebpf().program_mut(name).ok_or(LoadError::Absent(name))?;
        let program: &mut CgroupSockAddr = program.try_into().map_err(fault)?;
        if program.fd().is_err() {
            program.load().map_err(fault)?;
        }
        let id = program.info().map_err(fault)?.id();
        Ok((program, id))
    }

    /// Brings the map to the network namespace of this process, which is that of the node. Returns true if the map had
    /// another one.
    fn set_namespace(&mut self) -> Result<bool, LoadError> {
        let fault = |cause| LoadError::Map { name: NAMESPACE, cause };
        let cookie = namespace_cookie().map_err(|cause| LoadError::Namespace { cause })?;
        let map = self.ebpf().map_mut(NAMESPACE).ok_or(LoadError::Absent(NAMESPACE))?;
        let mut namespace: Array<&mut MapData, u64> = map.try_into().map_err(fault)?;
        if namespace.get(&0, 0).map_err(fault)? == cookie {
            return Ok(false);
        }
        namespace.set(0, cookie, 0).map_err(fault)?;
        Ok(true)
    }

    /// The folder of pinned links. `None` if programs are not pinned.
    fn sockets_folder(&self) -> Option<PathBuf> {
        Some(self.maps_folder()?.parent()?.join(FOLDER))
    }
}

/// The kernel's id of the program of a pinned link. `None` if the pin leads to no link.
fn program_of(pin: &Path) -> Option<u32> {
    let link = FdLink::from(PinnedLink::from_pin(pin).ok()?);
    Some(link.info().ok()?.program_id())
}

/// Opens the root of cgroup v2. With version 1 it is one of the trees in `top`.
fn open_root(top: &Path) -> Result<File, LoadError> {
    let is_root =
        |path: &PathBuf| rustix::fs::statfs(path).is_ok_and(|system| system.f_type == CGROUP2);
    let root = [top.to_owned(), top.join("unified")].into_iter().find(is_root);
    let root = root.ok_or_else(|| LoadError::NoCgroup { top: top.to_owned() })?;
    File::open(&root).map_err(|cause| LoadError::Folder { folder: root, cause })
}

getsockopt_impl!(NamespaceCookie, libc::SOL_SOCKET, libc::SO_NETNS_COOKIE, u64, GetStruct<u64>);

/// The kernel's number of the calling thread's network namespace.
fn namespace_cookie() -> nix::Result<u64> {
    let socket = socket(AddressFamily::Unix, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    getsockopt(&socket, NamespaceCookie)
}

#[derive(Clone, Copy)]
struct NamespaceCookie;

/// CGROUP2_SUPER_MAGIC in linux/magic.h.
const CGROUP2: rustix::fs::FsWord = 0x6367_7270;

/// The map with the network namespace of the node.
const NAMESPACE: &str = "node_namespace";

/// The programs at the cgroup. Programs of answers are attached first: no socket has a backend before them.
const PROGRAMS: [&str; 8] = [
    "socket_recvmsg4",
    "socket_recvmsg6",
    "socket_getpeername4",
    "socket_getpeername6",
    "socket_connect4",
    "socket_connect6",
    "socket_sendmsg4",
    "socket_sendmsg6",
];
