//! A life that breaks a law, with all left out that the law is broken without.

use crate::{
    judge::Law,
    plan::{Deed, Plan, Step},
    planted::Planted,
    run::{Watching, run},
};
use config_model::Span;

/// The shortest plan found that breaks the same law, within so many runs.
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
        let watching = Watching { planted: self.planted, ..Watching::default() };
        run(plan, watching).violation.is_some_and(|violation| violation.law == self.law)
    }

    /// Half of it, a quarter of it, down to single steps.
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

    /// Fewer pods, fewer DELs, shorter spells.
    fn weaken(&mut self, best: &mut Plan) {
        for at in 0..best.steps.len() {
            while let Some(deed) = best.steps.get(at).and_then(|step| weaker(&step.deed)) {
                let mut weakened = best.clone();
                weakened.steps[at] = Step { deed, ..weakened.steps[at].clone() };
                if !self.still_breaks(&weakened) {
                    break;
                }
                *best = weakened;
            }
        }
    }
}

/// The same with less of it; `None` if there is no less.
fn weaker(deed: &Deed) -> Option<Deed> {
    match deed.clone() {
        Deed::Start { first, count, apart, dies } if count > 1 => {
            Some(Deed::Start { first, count: count / 2, apart, dies })
        }
        Deed::Start { first, count, apart, dies: Some(_) } => {
            Some(Deed::Start { first, count, apart, dies: None })
        }
        Deed::Delete { first, count, dels } if dels.len() > 1 => {
            Some(Deed::Delete { first, count, dels: dels[..dels.len() - 1].to_vec() })
        }
        Deed::Delete { first, count, dels } if count > 1 => {
            Some(Deed::Delete { first, count: count / 2, dels })
        }
        Deed::Replace { first, count, after, dels } if dels.len() > 1 => {
            Some(Deed::Replace { first, count, after, dels: dels[..dels.len() - 1].to_vec() })
        }
        Deed::Replace { first, count, after, dels } if count > 1 => {
            Some(Deed::Replace { first, count: count / 2, after, dels })
        }
        Deed::Weather { how, lasts } if lasts > Span::seconds(1) => {
            Some(Deed::Weather { how, lasts: Span(lasts.0 / 2) })
        }
        _ => None,
    }
}
