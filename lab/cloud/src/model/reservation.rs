//! Subnet CIDR reservations.

use config_model::SubnetId;
use ipnet::Ipv4Net;
use serde::Serialize;

/// Purpose of reserved addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReservationKind {
    /// EC2 gives them as prefixes.
    Prefix,
    /// EC2 gives them to those who name them.
    Explicit,
}

impl ReservationKind {
    /// The word that EC2 uses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Prefix => "prefix",
            Self::Explicit => "explicit",
        }
    }
}

/// A reservation. Earlier assignments keep their addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reservation {
    /// Its id, `scr-…`.
    pub id: String,
    pub subnet_id: SubnetId,
    /// The addresses.
    pub cidr: Ipv4Net,
    pub kind: ReservationKind,
    /// The account.
    pub owner_id: String,
    /// Free text.
    pub description: String,
}
