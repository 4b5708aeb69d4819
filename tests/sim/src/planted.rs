//! Planted faults at the seams, which the simulation must find. The production code does not know them.

use std::{fmt, str::FromStr};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// The core gets a cooldown of zero.
    CooldownNotCounted,
    /// IMDS observations are passed to the core as EC2's.
    ImdsTrustedAlone,
    /// Replies and calls leave before their records are on disk.
    CheckpointAfterReply,
    /// The core always gets observations of a clean kernel.
    ReleasedBeforeClean,
    /// A DEL releases whatever sandbox has the pod's name.
    LateDelFreesNext,
    /// The core gets the branch of any pod of that name.
    BranchByName,
    /// The core does not see that two pods have one host veth, and the plugin deletes a link by its name.
    VethByName,
}

impl Planted {
    pub const ALL: [Self; 7] = [
        Self::CooldownNotCounted,
        Self::ImdsTrustedAlone,
        Self::CheckpointAfterReply,
        Self::ReleasedBeforeClean,
        Self::LateDelFreesNext,
        Self::BranchByName,
        Self::VethByName,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::CooldownNotCounted => "cooldown-not-counted",
            Self::ImdsTrustedAlone => "imds-trusted-alone",
            Self::CheckpointAfterReply => "checkpoint-after-reply",
            Self::ReleasedBeforeClean => "released-before-clean",
            Self::LateDelFreesNext => "late-del-frees-next",
            Self::BranchByName => "branch-by-name",
            Self::VethByName => "veth-by-name",
        }
    }
}

impl fmt::Display for Planted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Planted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = || Self::ALL.map(Self::name).join(", ");
        let found = Self::ALL.iter().find(|planted| planted.name() == text).copied();
        found.ok_or_else(|| format!("unknown fault {text:?}; the faults are {}", names()))
    }
}
