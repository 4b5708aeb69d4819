//! Which policies have changed, or which nodes need them: for who says how far they are enforced.

use policy_core::PolicyKey;
use std::collections::BTreeMap;

/// How many nodes that came or went are remembered of one policy; beyond that all of its nodes are told.
const MOVES: usize = 32;

/// What has become of a policy since this was asked last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyChange {
    /// Its UID, as nodes are told it.
    pub uid: String,
    /// Its name.
    pub key: PolicyKey,
    /// What it is now; `None`: it is gone.
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
    /// Those that need it now and did not, or did and do not.
    Moved(BTreeMap<String, bool>),
}

/// Policies of which there is something to be asked.
#[derive(Debug, Default)]
pub(crate) struct PolicyChanges {
    /// `None`: nobody asks.
    marks: Option<BTreeMap<String, Mark>>,
}

#[derive(Debug)]
pub(crate) struct Mark {
    pub(crate) key: PolicyKey,
    /// `None`: all of its nodes are told.
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

    /// A policy is new: all is to be told of it.
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
