//! The four data sets.

/// A data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// 25,000 namespaces of 4 pods and 3 policies.
    SmallNamespaces,
    /// 100 namespaces of 1,000 pods and 101 policies.
    LargeNamespaces,
    /// One namespace of 10,000 pods and 10,000 policies that all select all pods.
    SelectAll,
    /// One namespace of 10,000 pods and as many policies, of one pod each.
    OnePodEach,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    Full,
    /// A hundredth, for tests.
    Small,
}

/// Amount of data in an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectForm {
    /// As in Antrea's benchmark: a pod has its identity, one label, a node, a container, a condition and an
    /// address.
    Lean,
    /// As on a cluster: pods with all fields that a Deployment, the scheduler and the kubelet set, with
    /// managedFields; policies as kubectl applies them.
    Full,
}

impl ObjectForm {
    pub(super) fn namespace(self) -> &'static str {
        match self {
            Self::Lean => include_str!("lean/namespace.json"),
            Self::Full => include_str!("full/namespace.json"),
        }
    }

    pub(super) fn pod(self) -> &'static str {
        match self {
            Self::Lean => include_str!("lean/pod.json"),
            Self::Full => include_str!("full/pod.json"),
        }
    }

    pub(super) fn policy(self) -> &'static str {
        match self {
            Self::Lean => include_str!("lean/network_policy.json"),
            Self::Full => include_str!("full/network_policy.json"),
        }
    }
}

impl Size {
    pub const ALL: [Self; 4] =
        [Self::SmallNamespaces, Self::LargeNamespaces, Self::SelectAll, Self::OnePodEach];

    /// Prefix of the figures' names.
    pub fn name(self) -> &'static str {
        match self {
            Self::SmallNamespaces => "small_namespaces",
            Self::LargeNamespaces => "large_namespaces",
            Self::SelectAll => "select_all",
            Self::OnePodEach => "one_pod_each",
        }
    }

    /// The size with this name.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|size| size.name() == name)
    }

    /// Targets for lean objects: milliseconds, and megabytes of peak resident memory.
    pub fn targets(self) -> (f64, f64) {
        match self {
            Self::SmallNamespaces => (700.0, 150.0),
            Self::LargeNamespaces => (500.0, 120.0),
            Self::SelectAll => (200.0, 60.0),
            Self::OnePodEach => (100.0, 50.0),
        }
    }

    pub(super) fn namespaces(self, scale: Scale) -> usize {
        match (self, scale) {
            (Self::SmallNamespaces, Scale::Full) => 25_000,
            (Self::SmallNamespaces, Scale::Small) => 250,
            (Self::LargeNamespaces, Scale::Full) => 100,
            (Self::LargeNamespaces, Scale::Small) => 2,
            (Self::SelectAll | Self::OnePodEach, _) => 1,
        }
    }

    /// The label of each pod of a namespace.
    pub(super) fn pods(self, scale: Scale) -> Vec<(String, String)> {
        let scaled = |name: usize| (format!("app-{name}"), format!("scale-{name}"));
        let alone = |name: usize| ("app".to_owned(), format!("scale-{name}"));
        match self {
            Self::SmallNamespaces => [1, 1, 2, 2].map(scaled).into(),
            Self::LargeNamespaces => (0..1000).map(|pod| scaled(pod / 10)).collect(),
            Self::SelectAll => vec![scaled(1); count(scale)],
            Self::OnePodEach => (0..count(scale)).map(alone).collect(),
        }
    }

    /// The label of the subject and of the allowed source of each policy of a namespace. `None` is a policy
    /// that isolates all pods.
    pub(super) fn policies(self, scale: Scale) -> Vec<Option<[(String, String); 2]>> {
        let own = |name: usize| {
            let label = (format!("app-{name}"), format!("scale-{name}"));
            Some([label.clone(), label])
        };
        match self {
            Self::SmallNamespaces => vec![None, own(1), own(2)],
            Self::LargeNamespaces => [None].into_iter().chain((0..100).map(own)).collect(),
            Self::SelectAll => vec![own(1); count(scale)],
            Self::OnePodEach => {
                let label = |name: usize| ("app".to_owned(), format!("scale-{name}"));
                (0..count(scale)).map(|pod| Some([label(pod), label(pod ^ 1)])).collect()
            }
        }
    }
}

fn count(scale: Scale) -> usize {
    match scale {
        Scale::Full => 10_000,
        Scale::Small => 100,
    }
}
