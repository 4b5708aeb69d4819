//! The absences of ENIs and blocks. One is gone if IMDS and EC2 lack it, or two EC2 answers at a distance.

use super::EC2_INTERVAL;
use crate::Witness;
use config_model::{EniId, Time};
use ipnet::IpNet;
use std::collections::BTreeMap;

/// The object of an absence.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subject {
    Eni(EniId),
    Block(IpNet),
}

/// The witnesses that lack an object.
#[derive(Clone, Copy, Debug, Default)]
struct Absence {
    imds: bool,
    /// IMDS observations in a row without it.
    sweeps: u32,
    /// IMDS lacked it, and EC2 showed it.
    contradicted: bool,
    ec2_first: Option<Time>,
    /// The absence was handled and the object stays, so no further observation is needed.
    settled: bool,
}

#[derive(Debug, Default)]
pub(super) struct Absences {
    of: BTreeMap<Subject, Absence>,
    /// IMDS is the only witness.
    imds_only: bool,
}

/// The number of equal IMDS observations that count as two witnesses if IMDS is the only one.
const EQUAL_SWEEPS: u32 = 3;

impl Absences {
    pub(super) fn new(imds_only: bool) -> Self {
        Self { imds_only, ..Self::default() }
    }

    /// Notes that a witness lacks it. Returns true when that makes two witnesses.
    pub(super) fn record_absence(
        &mut self,
        subject: &Subject,
        witness: Witness,
        started: Time,
    ) -> bool {
        let absence = self.of.entry(subject.clone()).or_default();
        let repeated = match witness {
            Witness::Imds => {
                absence.imds = true;
                absence.sweeps = absence.sweeps.saturating_add(1);
                self.imds_only && absence.sweeps >= EQUAL_SWEEPS
            }
            Witness::Ec2 => {
                let first = *absence.ec2_first.get_or_insert(started);
                started >= first + EC2_INTERVAL
            }
        };
        let both = absence.imds && absence.ec2_first.is_some();
        (both || repeated) && !absence.settled
    }

    /// Notes that a witness shows it. EC2 overrides IMDS, not the reverse.
    pub(super) fn record_presence(&mut self, subject: &Subject, witness: Witness) {
        match witness {
            Witness::Ec2 => {
                if let Some(absence) = self.of.remove(subject)
                    && (absence.imds || absence.contradicted)
                {
                    let absence = Absence { contradicted: true, ..Absence::default() };
                    self.of.insert(subject.clone(), absence);
                }
            }
            Witness::Imds => {
                if let Some(absence) = self.of.get_mut(subject) {
                    absence.imds = false;
                    absence.contradicted = false;
                    absence.sweeps = 0;
                    if absence.ec2_first.is_none() {
                        self.of.remove(subject);
                    }
                }
            }
        }
    }

    /// Drops all absences but those of the selected objects.
    pub(super) fn keep(&mut self, stands: impl Fn(&Subject) -> bool) {
        self.of.retain(|subject, _| stands(subject));
    }

    /// Returns whether IMDS lacks it and EC2 has not been asked since.
    pub(super) fn is_new(&self, subject: &Subject) -> bool {
        let of = self.of.get(subject);
        of.is_some_and(|absence| {
            absence.imds && absence.ec2_first.is_none() && !absence.contradicted
        })
    }

    pub(super) fn forget(&mut self, subject: &Subject) {
        self.of.remove(subject);
    }

    pub(super) fn settle(&mut self, subject: &Subject) {
        if let Some(absence) = self.of.get_mut(subject) {
            absence.settled = true;
        }
    }

    pub(super) fn settled(&self, subject: &Subject) -> bool {
        self.of.get(subject).is_some_and(|absence| absence.settled)
    }

    /// The time of the second EC2 observation.
    pub(super) fn next_look(&self) -> Option<Time> {
        let open = self.of.values().filter(|absence| !absence.settled);
        open.filter_map(|absence| absence.ec2_first).min().map(|first| first + EC2_INTERVAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject() -> Subject {
        Subject::Block(std::net::IpAddr::from([10, 0, 0, 7]).into())
    }

    #[test]
    fn imds_alone_proves_no_absence() {
        let mut absences = Absences::default();
        for minute in 0..100 {
            assert!(!absences.record_absence(&subject(), Witness::Imds, Time(minute * 60_000)));
        }
    }

    #[test]
    fn without_ec2_three_answers_of_imds_prove_an_absence() {
        let mut absences = Absences::new(true);
        let record_absence = |absences: &mut Absences, at| {
            absences.record_absence(&subject(), Witness::Imds, Time(at))
        };
        assert_eq!(
            [record_absence(&mut absences, 0), record_absence(&mut absences, 1)],
            [false, false]
        );
        absences.record_presence(&subject(), Witness::Imds);
        assert_eq!(
            [record_absence(&mut absences, 2), record_absence(&mut absences, 3)],
            [false, false]
        );
        assert!(record_absence(&mut absences, 4));
    }

    #[test]
    fn imds_and_ec2_together_prove_an_absence() {
        let mut absences = Absences::default();
        assert!(!absences.record_absence(&subject(), Witness::Imds, Time(0)));
        assert!(absences.record_absence(&subject(), Witness::Ec2, Time(1)));
    }

    #[test]
    fn two_answers_of_ec2_half_a_minute_apart_prove_an_absence() {
        let mut absences = Absences::default();
        assert!(!absences.record_absence(&subject(), Witness::Ec2, Time(0)));
        assert!(!absences.record_absence(&subject(), Witness::Ec2, Time(29_999)));
        assert_eq!(absences.next_look(), Some(Time(30_000)));
        assert!(absences.record_absence(&subject(), Witness::Ec2, Time(30_000)));
    }

    #[test]
    fn an_absence_that_ec2_answered_is_not_new_until_imds_shows_the_object() {
        let mut absences = Absences::default();
        assert!(!absences.is_new(&subject()));
        absences.record_absence(&subject(), Witness::Imds, Time(0));
        assert!(absences.is_new(&subject()));
        absences.record_presence(&subject(), Witness::Ec2);
        absences.record_absence(&subject(), Witness::Imds, Time(60_000));
        assert!(!absences.is_new(&subject()));
        absences.record_presence(&subject(), Witness::Imds);
        absences.record_absence(&subject(), Witness::Imds, Time(120_000));
        assert!(absences.is_new(&subject()));
    }

    #[test]
    fn a_presence_ends_a_doubt() {
        let mut absences = Absences::default();
        absences.record_absence(&subject(), Witness::Ec2, Time(0));
        absences.record_presence(&subject(), Witness::Ec2);
        assert!(!absences.record_absence(&subject(), Witness::Ec2, Time(60_000)));
        absences.record_absence(&subject(), Witness::Imds, Time(60_000));
        absences.forget(&subject());
        absences.record_absence(&subject(), Witness::Imds, Time(0));
        absences.record_presence(&subject(), Witness::Imds);
        assert!(!absences.record_absence(&subject(), Witness::Ec2, Time(120_000)));
    }
}
