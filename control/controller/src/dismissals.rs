//! Order in which a stopping replica ends its streams.

/// A round over the nodes in the order of their names.
#[derive(Debug, Default)]
pub(crate) struct Dismissals {
    /// The last dismissed node.
    last: Option<String>,
}

impl Dismissals {
    /// Returns the next nodes, at most `at_once`. A node whose stream does not end blocks no other node: it is dismissed
    /// again after the last one.
    pub(crate) fn next(&mut self, mut followers: Vec<String>, at_once: usize) -> Vec<String> {
        followers.sort();
        let is_behind = |node: &String| self.last.as_ref().is_none_or(|last| node > last);
        if !followers.last().is_some_and(is_behind) {
            self.last = None;
        }
        followers.retain(|node| self.last.as_ref().is_none_or(|last| node > last));
        followers.truncate(at_once);
        self.last = followers.last().cloned();
        followers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_blocked_stream_blocks_no_other() {
        let nodes: Vec<String> = (0..20).map(|number| format!("n{number:02}")).collect();
        // The streams of the first nodes never end; these are as many as are dismissed at once.
        let (blocked, mut others): (Vec<_>, BTreeSet<_>) =
            (nodes[..4].to_vec(), nodes[4..].iter().cloned().collect());
        let (mut dismissals, mut dismissed) = (Dismissals::default(), Vec::new());
        for _ in 0..nodes.len() / 4 {
            let followers: Vec<String> = others.iter().chain(&blocked).cloned().collect();
            let next = dismissals.next(followers, 4);
            assert!(next.len() <= 4, "{next:?}");
            others.retain(|node| !next.contains(node));
            dismissed.extend(next);
        }
        assert!(others.is_empty(), "{others:?}");
        assert_eq!(dismissed, nodes, "each node once");
    }

    #[test]
    fn the_first_nodes_are_dismissed_again_after_the_last() {
        let nodes = ["a", "b", "c"].map(str::to_owned);
        let mut dismissals = Dismissals::default();
        let mut next = || dismissals.next(nodes.to_vec(), 2);
        assert_eq!([next(), next(), next()].concat(), ["a", "b", "c", "a", "b"]);
        assert!(dismissals.next(Vec::new(), 2).is_empty());
    }
}
