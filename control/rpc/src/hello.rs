//! The first message of a node.

use control_hub::ClientState;
use control_wire::{Digest, ObjectId, ObjectKind, VERSIONS, proto::Hello};
use std::collections::{BTreeMap, BTreeSet};
use tonic::Status;

/// Returns the newest common version.
pub(crate) fn version(hello: &Hello) -> Result<u32, Status> {
    let theirs = hello.versions.unwrap_or_default();
    let newest = theirs.newest.min(*VERSIONS.end());
    if newest >= theirs.oldest.max(*VERSIONS.start()) {
        return Ok(newest);
    }
    Err(Status::failed_precondition(format!(
        "no common version: the node speaks {} to {}, this replica {} to {}",
        theirs.oldest,
        theirs.newest,
        VERSIONS.start(),
        VERSIONS.end()
    )))
}

/// Returns the content that the node reports.
pub(crate) fn client_state(hello: &Hello) -> Result<ClientState, Status> {
    let kinds: BTreeSet<ObjectKind> = hello.kinds.iter().copied().map(ObjectKind).collect();
    if kinds.is_empty() {
        // Such a node would conclude that it holds everything, and start pods without their policies.
        return Err(Status::invalid_argument(
            "the agent's Hello names no kinds of object; upgrade the agent",
        ));
    }
    let mut holds = BTreeMap::new();
    for digest in &hello.holds {
        let bad =
            |what: String| Status::invalid_argument(format!("invalid digest in Hello: {what}"));
        let id = digest.id.as_ref().ok_or_else(|| bad("no object id".to_owned()))?;
        let id = ObjectId::read(id).map_err(|why| bad(why.to_string()))?;
        let hash = digest.hash.as_slice().try_into();
        let hash = hash.map_err(|_| bad("not 32 bytes".to_owned()))?;
        holds.insert(id, Digest(hash));
    }
    let reached = hello.reached.iter().map(|reached| (reached.kind.clone(), reached.version));
    Ok(ClientState {
        epoch: hello.epoch.clone(),
        generation: hello.generation,
        reached: reached.collect(),
        holds,
        take_behind: hello.take_behind,
        kinds,
        features: hello.features.iter().copied().collect(),
    })
}
