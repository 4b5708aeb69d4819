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

/// A policy, and the nodes that need it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Needed {
    /// The generation of its spec.
    pub generation: i64,
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

/// Policies that changed since the last call.
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
    /// Starts to collect changes. All existing policies are the first ones.
    pub(crate) fn begin(&mut self, all: impl IntoIterator<Item = (String, PolicyKey)>) {
        let all = all.into_iter().map(|(uid, key)| (uid, Mark { key, moves: None }));
        self.marks = Some(all.collect());
    }

    pub(crate) fn end(&mut self) {
        self.marks = None;
    }

    pub(crate) fn are_collected(&self) -> bool {
        self.marks.is_some()
    }

    /// Marks a new policy, whose change contains everything.
    pub(crate) fn whole(&mut self, uid: &str, key: &PolicyKey) {
        if let Some(mark) = self.mark(uid, key) {
            mark.moves = None;
        }
    }

    /// Marks a policy that has changed or is gone, or whose nodes have moved.
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
