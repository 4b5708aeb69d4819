//! Policies that changed, or whose set of nodes changed. The status component reads them for its report.

use policy_core::PolicyKey;
use std::collections::BTreeMap;

/// Maximum number of remembered node moves of one policy. Beyond it the change contains all of its nodes.
const MOVES: usize = 32;

/// Change of one policy since the last call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyChange {
    /// UID, in the form that nodes receive.
    pub uid: String,
    pub key: PolicyKey,
    /// Current state; `None` if the policy is gone.
    pub now: Option<Needed>,
}

/// A policy, and who needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Needed {
    /// Of its spec.
    pub generation: i64,
    /// By whom.
    pub by: NeededBy,
}

/// The nodes that need a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NeededBy {
    /// All of them.
    All(Vec<String>),
    /// Nodes that have started (true) or stopped (false) to need the policy.
    Moved(BTreeMap<String, bool>),
}

/// Policies of which there is something to be asked.
#[derive(Debug, Default)]
pub(crate) struct PolicyChanges {
    /// `None` if changes are not collected.
    marks: Option<BTreeMap<String, Mark>>,
}

#[derive(Debug)]
pub(crate) struct Mark {
    pub(crate) key: PolicyKey,
    /// `None` if the change contains all nodes of the policy.
    pub(crate) moves: Option<BTreeMap<String, bool>>,
}

impl PolicyChanges {
    /// Somebody asks from now on: of all of these, first.
    pub(crate) fn begin(&mut self, all: impl IntoIterator<Item = (String, PolicyKey)>) {
        let all = all.into_iter().map(|(uid, key)| (uid, Mark { key, moves: None }));
        self.marks = Some(all.collect());
    }

    pub(crate) fn end(&mut self) {
        self.marks = None;
    }

    pub(crate) fn are_asked_for(&self) -> bool {
        self.marks.is_some()
    }

    /// Marks a new policy, whose change contains everything.
    pub(crate) fn whole(&mut self, uid: &str, key: &PolicyKey) {
        if let Some(mark) = self.mark(uid, key) {
            mark.moves = None;
        }
    }

    /// A policy has changed or is gone, or nodes have come and gone.
    pub(crate) fn moved(
        &mut self,
        uid: &str,
        key: &PolicyKey,
        entered: &[String],
        left: &[String],
    ) {
        let Some(mark) = self.mark(uid, key) else { return };
        let Some(moves) = &mut mark.moves else { return };
        moves.extend(left.iter().map(|node| (node.clone(), false)));
        moves.extend(entered.iter().map(|node| (node.clone(), true)));
        if moves.len() > MOVES {
            mark.moves = None;
        }
    }

    pub(crate) fn pop(&mut self) -> Option<(String, Mark)> {
        self.marks.as_mut()?.pop_first()
    }

    fn mark(&mut self, uid: &str, key: &PolicyKey) -> Option<&mut Mark> {
        let marks = self.marks.as_mut()?;
        if !marks.contains_key(uid) {
            let mark = Mark { key: key.clone(), moves: Some(BTreeMap::new()) };
            marks.insert(uid.to_owned(), mark);
        }
        marks.get_mut(uid)
    }
}
