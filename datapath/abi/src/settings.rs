//! Settings and shares as bytes.

/// `struct settings`.
pub type SettingsValue = [u8; 104];
/// `struct share`.
pub type ShareValue = [u8; 16];

/// The settings of the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// In nanoseconds, in the order of `enum timeout`.
    pub timeouts: [u64; 10],
    /// The most open connections of a pod.
    pub flows_of_pod: u64,
    /// Rows of `half_open` stay, because `flows` is being replaced by a larger map.
    pub keeps_half_open: bool,
    /// New connections may take the fast path.
    pub has_fast_path: bool,
}

impl Settings {
    /// `struct settings`.
    pub fn to_bytes(&self) -> SettingsValue {
        let mut bytes = [0; 104];
        let [keeps, fast] = [self.keeps_half_open, self.has_fast_path].map(u64::from);
        let words = self.timeouts.iter().chain([&self.flows_of_pod, &keeps, &fast]);
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }
}

/// A pod's part in connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// The number of its open connections.
    pub flows: u64,
    /// The end of the time in which connections may be older than the pod's enforcement, in nanoseconds of the kernel's
    /// monotonic clock; 0 for none.
    pub window_end: u64,
}

impl Share {
    /// `struct share`.
    pub fn to_bytes(self) -> ShareValue {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.flows.to_ne_bytes());
        bytes[8..].copy_from_slice(&self.window_end.to_ne_bytes());
        bytes
    }

    pub fn from_bytes(bytes: &ShareValue) -> Self {
        let [flows, window_end] = [0, 8].map(|at| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_ne_bytes(word)
        });
        Self { flows, window_end }
    }
}
