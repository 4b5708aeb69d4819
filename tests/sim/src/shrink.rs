//! The reduction of a failing life to the incidents that break the same law.

use crate::{
    judge::Law,
    plan::{Incident, Plan, Step},
    planted::Planted,
    run::{RunOptions, run},
};
use config_model::Span;

/// The shortest plan found that breaks the same law, within a number of runs.
pub fn shrink(plan: &Plan, law: Law, planted: Option<Planted>, runs: u32) -> Plan {
    let mut search = Search { law, planted, left: runs };
    let mut best = plan.clone();
    loop {
        let before = best.steps.clone();
        search.drop_chunks(&mut best);
        search.weaken(&mut best);
        if best.steps == before || search.left == 0 {
            return best;
        }
    }
}

struct Search {
    law: Law,
    planted: Option<Planted>,
    left: u32,
}

impl Search {
    fn still_breaks(&mut self, plan: &Plan) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        let watching = RunOptions { planted: self.planted, ..RunOptions::default() };
        run(plan, watching).violation.is_some_and(|violation| violation.law == self.law)
    }

    /// Leaves out half of the steps, a quarter, down to single ones.
    fn drop_chunks(&mut self, best: &mut Plan) {
        let mut size = best.steps.len().div_ceil(2);
        while size > 0 {
            let mut at = 0;
            while at < best.steps.len() {
                let mut without = best.clone();
                without.steps.drain(at..(at + size).min(best.steps.len()));
                if self.still_breaks(&without) {
                    *best = without;
                } else {
                    at += size;
                }
            }
            size /= 2;
        }
    }

    /// Reduces pods, DELs and durations.
    fn weaken(&mut self, best: &mut Plan) {
        for at in 0..best.steps.len() {
            while let Some(incident) = best.steps.get(at).and_then(|step| weaker(&step.incident)) {
                let mut weakened = best.clone();
                weakened.steps[at] = Step { incident, ..weakened.steps[at].clone() };
                if !self.still_breaks(&weakened) {
                    break;
                }
                *best = weakened;
            }
        }
    }
}

/// A weaker form of the incident; `None` if there is none.
fn weaker(incident: &Incident) -> Option<Incident> {
    match incident.clone() {
        Incident::Start { first, count, apart, dies } if count > 1 => {
            Some(Incident::Start { first, count: count / 2, apart, dies })
        }
        Incident::Start { first, count, apart, dies: Some(_) } => {
            Some(Incident::Start { first, count, apart, dies: None })
        }
        Incident::Delete { first, count, dels } if dels.len() > 1 => {
            Some(Incident::Delete { first, count, dels: dels[..dels.len() - 1].to_vec() })
        }
        Incident::Delete { first, count, dels } if count > 1 => {
            Some(Incident::Delete { first, count: count / 2, dels })
        }
        Incident::Replace { first, count, after, dels } if dels.len() > 1 => {
            Some(Incident::Replace { first, count, after, dels: dels[..dels.len() - 1].to_vec() })
        }
        Incident::Replace { first, count, after, dels } if count > 1 => {
            Some(Incident::Replace { first, count: count / 2, after, dels })
        }
        Incident::Weather { how, lasts } if lasts > Span::seconds(1) => {
            Some(Incident::Weather { how, lasts: Span(lasts.0 / 2) })
        }
        _ => None,
    }
}
