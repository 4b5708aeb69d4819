//! Is it gone? Only if IMDS and EC2 lack it, or EC2 twice with time in between.

use super::EC2_INTERVAL;
use crate::Witness;
use config_model::{EniId, Time};
use ipnet::IpNet;
use std::collections::BTreeMap;

/// What is doubted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subject {
    Eni(EniId),
    Block(IpNet),
}

/// Who lacks it since when.
#[derive(Clone, Copy, Debug, Default)]
struct Doubt {
    imds: bool,
    /// IMDS has lacked it so often in a row.
    sweeps: u32,
    /// IMDS lacked it, and EC2 showed it all the same.
    contradicted: bool,
    ec2_first: Option<Time>,
    /// It was judged and stays all the same; nobody need ask again.
    settled: bool,
}

#[derive(Debug, Default)]
pub(super) struct Doubts {
    of: BTreeMap<Subject, Doubt>,
    /// There is no other witness than IMDS.
    imds_only: bool,
}

/// Where IMDS is the only witness, it must say the same so often.
const EQUAL_SWEEPS: u32 = 3;

impl Doubts {
    pub(super) fn new(imds_only: bool) -> Self {
        Self { imds_only, ..Self::default() }
    }

    /// A witness lacks it. True when that makes two, for the first time.
    pub(super) fn raise(&mut self, subject: &Subject, witness: Witness, started: Time) -> bool {
        let doubt = self.of.entry(subject.clone()).or_default();
        let repeated = match witness {
            Witness::Imds => {
                doubt.imds = true;
                doubt.sweeps = doubt.sweeps.saturating_add(1);
                self.imds_only && doubt.sweeps >= EQUAL_SWEEPS
            }
            Witness::Ec2 => {
                let first = *doubt.ec2_first.get_or_insert(started);
                started >= first + EC2_INTERVAL
            }
        };
        let both = doubt.imds && doubt.ec2_first.is_some();
        (both || repeated) && !doubt.settled
    }

    /// A witness shows it. EC2 outweighs IMDS, not the other way round.
    pub(super) fn allay(&mut self, subject: &Subject, witness: Witness) {
        match witness {
            Witness::Ec2 => {
                if let Some(doubt) = self.of.remove(subject)
                    && (doubt.imds || doubt.contradicted)
                {
                    let doubt = Doubt { contradicted: true, ..Doubt::default() };
                    self.of.insert(subject.clone(), doubt);
                }
            }
            Witness::Imds => {
                if let Some(doubt) = self.of.get_mut(subject) {
                    doubt.imds = false;
                    doubt.contradicted = false;
                    doubt.sweeps = 0;
                    if doubt.ec2_first.is_none() {
                        self.of.remove(subject);
                    }
                }
            }
        }
    }

    /// Drops the doubts about all else.
    pub(super) fn keep(&mut self, stands: impl Fn(&Subject) -> bool) {
        self.of.retain(|subject, _| stands(subject));
    }

    /// Whether IMDS lacks it and EC2 has not been heard on it.
    pub(super) fn is_new(&self, subject: &Subject) -> bool {
        let of = self.of.get(subject);
        of.is_some_and(|doubt| doubt.imds && doubt.ec2_first.is_none() && !doubt.contradicted)
    }

    pub(super) fn forget(&mut self, subject: &Subject) {
        self.of.remove(subject);
    }

    pub(super) fn settle(&mut self, subject: &Subject) {
        if let Some(doubt) = self.of.get_mut(subject) {
            doubt.settled = true;
        }
    }

    pub(super) fn settled(&self, subject: &Subject) -> bool {
        self.of.get(subject).is_some_and(|doubt| doubt.settled)
    }

    /// When EC2 should be asked a second time.
    pub(super) fn next_look(&self) -> Option<Time> {
        let open = self.of.values().filter(|doubt| !doubt.settled);
        open.filter_map(|doubt| doubt.ec2_first).min().map(|first| first + EC2_INTERVAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject() -> Subject {
        Subject::Block(std::net::IpAddr::from([10, 0, 0, 7]).into())
    }

    #[test]
    fn imds_alone_is_never_believed() {
        let mut doubts = Doubts::default();
        for minute in 0..100 {
            assert!(!doubts.raise(&subject(), Witness::Imds, Time(minute * 60_000)));
        }
    }

    #[test]
    fn where_there_is_nobody_else_imds_is_believed_the_third_time_in_a_row() {
        let mut doubts = Doubts::new(true);
        let raise = |doubts: &mut Doubts, at| doubts.raise(&subject(), Witness::Imds, Time(at));
        assert_eq!([raise(&mut doubts, 0), raise(&mut doubts, 1)], [false, false]);
        doubts.allay(&subject(), Witness::Imds);
        assert_eq!([raise(&mut doubts, 2), raise(&mut doubts, 3)], [false, false]);
        assert!(raise(&mut doubts, 4));
    }

    #[test]
    fn imds_and_ec2_together_are_believed() {
        let mut doubts = Doubts::default();
        assert!(!doubts.raise(&subject(), Witness::Imds, Time(0)));
        assert!(doubts.raise(&subject(), Witness::Ec2, Time(1)));
    }

    #[test]
    fn ec2_is_believed_the_second_time_half_a_minute_later() {
        let mut doubts = Doubts::default();
        assert!(!doubts.raise(&subject(), Witness::Ec2, Time(0)));
        assert!(!doubts.raise(&subject(), Witness::Ec2, Time(29_999)));
        assert_eq!(doubts.next_look(), Some(Time(30_000)));
        assert!(doubts.raise(&subject(), Witness::Ec2, Time(30_000)));
    }

    #[test]
    fn what_ec2_has_been_heard_on_is_not_new_until_imds_shows_it() {
        let mut doubts = Doubts::default();
        assert!(!doubts.is_new(&subject()));
        doubts.raise(&subject(), Witness::Imds, Time(0));
        assert!(doubts.is_new(&subject()));
        doubts.allay(&subject(), Witness::Ec2);
        doubts.raise(&subject(), Witness::Imds, Time(60_000));
        assert!(!doubts.is_new(&subject()));
        doubts.allay(&subject(), Witness::Imds);
        doubts.raise(&subject(), Witness::Imds, Time(120_000));
        assert!(doubts.is_new(&subject()));
    }

    #[test]
    fn being_seen_ends_a_doubt() {
        let mut doubts = Doubts::default();
        doubts.raise(&subject(), Witness::Ec2, Time(0));
        doubts.allay(&subject(), Witness::Ec2);
        assert!(!doubts.raise(&subject(), Witness::Ec2, Time(60_000)));
        doubts.raise(&subject(), Witness::Imds, Time(60_000));
        doubts.forget(&subject());
        doubts.raise(&subject(), Witness::Imds, Time(0));
        doubts.allay(&subject(), Witness::Imds);
        assert!(!doubts.raise(&subject(), Witness::Ec2, Time(120_000)));
    }
}
