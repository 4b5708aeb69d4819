//! The network namespaces of a node's pods, made and deleted as a container runtime would.

use crate::{
    FabricError, Node,
    namespace::{self, Kind, NamespaceSet},
    process, state, tool,
};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

const NETNS: &str = "/run/netns";

impl Node {
    /// Makes the network namespace of a pod, with `lo` up, as a runtime does; returns its path as
    /// the node sees it, `/run/netns/<pod>`.
    ///
    /// # Errors
    /// When the node is off or has one of that name.
    pub fn add_pod(&self, pod: &str) -> Result<PathBuf, FabricError> {
        let path = self.pod_path(pod)?;
        let lo_up = || tool::ip_batch("link set lo up\n", "bring lo up");
        self.in_node(|| {
            if path.exists() {
                let (node, pod) = (self.name().to_owned(), pod.to_owned());
                return Err(FabricError::PodExists { node, pod });
            }
            state::make_folder(Path::new(NETNS))?;
            namespace::create(&format!("pod {pod}"), &[(Kind::Net, path.clone())], lo_up)
        })?;
        Ok(path)
    }

    /// Kills what runs in the pod's namespace and removes it; absence is success.
    ///
    /// # Errors
    /// When the node is off or a process cannot be ended.
    pub fn remove_pod(&self, pod: &str) -> Result<(), FabricError> {
        let path = self.pod_path(pod)?;
        self.in_node(|| {
            process::kill_in_namespaces(&process::inodes([&path]))?;
            namespace::unpin(&path)
        })
    }

    /// The pods' namespaces, by name.
    ///
    /// # Errors
    /// When the node is off.
    pub fn pods(&self) -> Result<Vec<String>, FabricError> {
        self.in_node(|| state::folder_names(Path::new(NETNS)))
    }

    /// As [`Node::inside`], in the network namespace of a pod.
    ///
    /// # Errors
    /// When the node is off or has no such pod.
    pub fn inside_pod<T: Send>(
        &self,
        pod: &str,
        task: impl FnOnce() -> T + Send,
    ) -> Result<T, FabricError> {
        let path = self.pod_path(pod)?;
        let known = self.in_node(|| Ok(namespace::is_pinned(&path)))?;
        if !known {
            let (node, pod) = (self.name().to_owned(), pod.to_owned());
            return Err(FabricError::NoPod { node, pod });
        }
        self.pod_place(pod).run(task)
    }

    pub(crate) fn pod_place(&self, pod: &str) -> NamespaceSet {
        NamespaceSet {
            name: format!("pod {pod} of node {}", self.name()),
            pod: Some(Path::new(NETNS).join(pod)),
            ..self.place()
        }
    }

    /// The inodes of all pods' namespaces.
    pub(crate) fn pod_inodes(&self) -> Result<BTreeSet<u64>, FabricError> {
        self.place().try_run(|| {
            let names = state::folder_names(Path::new(NETNS))?;
            let paths: Vec<PathBuf> =
                names.iter().map(|name| Path::new(NETNS).join(name)).collect();
            Ok(process::inodes(&paths))
        })
    }

    fn pod_path(&self, pod: &str) -> Result<PathBuf, FabricError> {
        if pod.is_empty() || pod == "." || pod == ".." || pod.contains('/') {
            return Err(FabricError::Inconsistent(format!("{pod:?} cannot name a namespace")));
        }
        Ok(Path::new(NETNS).join(pod))
    }

    fn in_node<T: Send>(
        &self,
        task: impl FnOnce() -> Result<T, FabricError> + Send,
    ) -> Result<T, FabricError> {
        self.require_up()?;
        self.place().try_run(task)
    }
}
