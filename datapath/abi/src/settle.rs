//! The rows that are as the target is, in both halves.

use crate::{held::Held, scope::Scope, target::Target};

impl Scope {
    /// The rows of these maps that are not settled.
    pub fn of(held: &Held, target: &Target) -> Self {
        let classes = held.classes.keys().chain(target.classes.keys());
        let services = held.services.keys().chain(target.services.keys());
        let set_rows = held.set_rows.keys().chain(target.set_rows.keys());
        let rules = held.rules.keys().chain(target.rules.keys());
        let mut scope = Self {
            classes: classes.copied().collect(),
            services: services.copied().collect(),
            prefixes: true,
            set_rows: set_rows.copied().collect(),
            rules: rules.copied().collect(),
            pods: true,
        };
        scope.settle(held, target);
        scope
    }

    /// Removes the rows that are settled. The rows of pods in force are those of the last plan.
    pub fn settle(&mut self, held: &Held, target: &Target) {
        fn is_settled(held: Option<&[u64; 2]>, target: Option<&u64>) -> bool {
            match (held, target) {
                (Some([even, odd]), Some(class)) => even == odd && even == class,
                (None, None) => true,
                (Some(_), None) | (None, Some(_)) => false,
            }
        }
        self.classes.retain(|at| !is_settled(held.classes.get(at), target.classes.get(at)));
        self.services.retain(|at| !is_settled(held.services.get(at), target.services.get(at)));
        self.set_rows.retain(|key| held.set_rows.get(key) != target.set_rows.get(key));
        self.rules.retain(|number| held.rules.get(number) != target.rules.get(number));
        self.prefixes = self.prefixes
            && (held
                .prefixes
                .iter()
                .any(|(at, of)| !is_settled(Some(of), target.prefixes.get(at)))
                || target.prefixes.keys().any(|at| !held.prefixes.contains_key(at)));
        let row = |slot, half| held.rows.get(&Held::row_number(slot, half));
        let mut slots = held.endpoints.values().map(|endpoint| endpoint.slot);
        self.pods = self.pods && slots.any(|slot| row(slot, 0) != row(slot, 1));
    }
}
