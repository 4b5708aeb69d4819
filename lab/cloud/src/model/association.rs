//! Branches of trunks.

use config_model::EniId;
use serde::Serialize;

/// A branch of a trunk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TrunkAssociation {
    /// Its id, `trunk-assoc-…`.
    pub id: String,
    pub branch: EniId,
    pub trunk: EniId,
    /// The VLAN that carries the branch's packets on the trunk.
    pub vlan: u16,
}
