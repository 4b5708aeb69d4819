//! Faults planted at the seams, to show that the simulation would find them. The product knows
//! nothing of them.

use std::{fmt, str::FromStr};

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// The core is told that addresses need no rest.
    CooldownNotCounted,
    /// What IMDS shows passes for an answer of EC2.
    ImdsTrustedAlone,
    /// Replies and calls leave before their records are on disk.
    CheckpointAfterReply,
    /// The core is told that the kernel is clean, whatever it shows.
    ReleasedBeforeClean,
    /// A DEL counts for whatever sandbox of that pod's name there is.
    LateDelFreesNext,
    /// The core is asked for the branch of whatever pod of that name it knows.
    BranchByName,
}

impl Planted {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::CooldownNotCounted,
        Self::ImdsTrustedAlone,
        Self::CheckpointAfterReply,
        Self::ReleasedBeforeClean,
        Self::LateDelFreesNext,
        Self::BranchByName,
    ];

    /// Its word on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::CooldownNotCounted => "cooldown-not-counted",
            Self::ImdsTrustedAlone => "imds-trusted-alone",
            Self::CheckpointAfterReply => "checkpoint-after-reply",
            Self::ReleasedBeforeClean => "released-before-clean",
            Self::LateDelFreesNext => "late-del-frees-next",
            Self::BranchByName => "branch-by-name",
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
        found.ok_or_else(|| format!("{text:?} is no fault; the faults are {}", names()))
    }
}
