//! The schedule of observations: when IMDS and EC2 are asked next for all ENIs of the instance.

use crate::{
    Action, CloudFault, Effect, Severity, Topic, Witness,
    budget::{LONG_CALM, is_throttling},
    ctx::Ctx,
};
use config_model::{Span, Time};

/// The time for which an answer can lag behind a change. A difference within it proves nothing.
pub(crate) const SETTLING: Span = Span::seconds(60);
/// The interval of IMDS observations.
const SWEEP_INTERVAL: Span = Span::seconds(60);
/// The least interval between two questions to IMDS.
const IMDS_INTERVAL: Span = Span::seconds(1);
/// The least interval between two questions to EC2. Two answers at this distance count as two witnesses.
pub(crate) const EC2_INTERVAL: Span = Span::seconds(30);
/// The EC2 interval doubles up to this while the answers change nothing.
const LONGEST_EC2_INTERVAL: Span = Span::seconds(900);
/// The pause after a witness that did not answer. It doubles up to [`SWEEP_INTERVAL`].
const SILENCE_PAUSE: Span = Span::seconds(1);

#[derive(Debug)]
pub(crate) struct Schedule {
    imds: WitnessSchedule,
    ec2: WitnessSchedule,
    /// EC2 is never asked.
    imds_only: bool,
    ec2_seen: bool,
    ec2_interval: Span,
}

/// The schedule of one witness.
#[derive(Debug, Default)]
struct WitnessSchedule {
    asked: Option<Time>,
    in_flight: bool,
    next: Option<Time>,
    /// Failures in a row.
    silences: u32,
}

impl WitnessSchedule {
    fn want(&mut self, at: Time) {
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }
}

impl Schedule {
    pub(crate) fn new(imds_only: bool, now: Time) -> Self {
        let first = || WitnessSchedule { next: Some(now), ..WitnessSchedule::default() };
        Self {
            imds: first(),
            ec2: if imds_only { WitnessSchedule::default() } else { first() },
            imds_only,
            ec2_seen: false,
            ec2_interval: EC2_INTERVAL,
        }
    }

    /// Returns whether EC2 has answered since the start. The planner changes nothing in EC2 before that.
    pub(crate) fn ec2_seen(&self) -> bool {
        self.ec2_seen
    }

    /// Schedules IMDS as soon as its interval allows.
    pub(crate) fn want_imds(&mut self, at: Time) {
        self.imds.want(self.imds.asked.map_or(at, |asked| at.max(asked + IMDS_INTERVAL)));
    }

    /// Schedules EC2 as soon as its current interval allows.
    pub(crate) fn want_ec2(&mut self, now: Time) {
        self.want_ec2_after(now, self.ec2_interval);
    }

    /// Schedules EC2 at that time, even if its interval has grown.
    pub(crate) fn want_ec2_at(&mut self, at: Time) {
        self.want_ec2_after(at, EC2_INTERVAL);
    }

    fn want_ec2_after(&mut self, at: Time, interval: Span) {
        if !self.imds_only {
            self.ec2.want(self.ec2.asked.map_or(at, |asked| at.max(asked + interval)));
        }
    }

    /// A witness has answered with the node's ENIs.
    pub(crate) fn answered(&mut self, witness: Witness, now: Time) {
        let turn = self.turn(witness);
        turn.in_flight = false;
        turn.silences = 0;
        match witness {
            Witness::Imds => self.imds.want(now + SWEEP_INTERVAL),
            Witness::Ec2 => self.ec2_seen = true,
        }
    }

    /// Adapts the EC2 interval to whether its last answer changed anything.
    pub(crate) fn ec2_changed(&mut self, changed: bool) {
        let doubled = Span((self.ec2_interval.0 * 2).min(LONGEST_EC2_INTERVAL.0));
        self.ec2_interval = if changed { EC2_INTERVAL } else { doubled };
    }

    fn turn(&mut self, witness: Witness) -> &mut WitnessSchedule {
        match witness {
            Witness::Imds => &mut self.imds,
            Witness::Ec2 => &mut self.ec2,
        }
    }
}

impl Ctx {
    /// Asks each witness that is due.
    pub(crate) fn observe_due(&mut self) {
        self.expire_removals();
        for witness in [Witness::Imds, Witness::Ec2] {
            let turn = self.schedule.turn(witness);
            let Some(next) = turn.next.filter(|_| !turn.in_flight) else { continue };
            if !self.reached(next) {
                continue;
            }
            if witness == Witness::Ec2 {
                // The last answer is good enough for the planner.
                if self.schedule.ec2_seen && self.delay_for_throttling(LONG_CALM).is_some() {
                    continue;
                }
                if !self.may(Action::Describe) {
                    continue;
                }
                self.budgets.take(Action::Describe, self.now);
            }
            let turn = self.schedule.turn(witness);
            turn.next = None;
            turn.in_flight = true;
            turn.asked = Some(self.now);
            self.push(Effect::Look { witness });
        }
    }

    /// Schedules a witness again, with a growing pause.
    pub(crate) fn ask_again(&mut self, witness: Witness) {
        let turn = self.schedule.turn(witness);
        turn.in_flight = false;
        turn.silences += 1;
        let pause = (SILENCE_PAUSE.0 << (turn.silences - 1).min(10)).min(SWEEP_INTERVAL.0);
        let pause = self.budgets.jittered(Span(pause));
        self.schedule.turn(witness).want(self.now + pause);
    }

    pub(crate) fn look_failed(&mut self, witness: Witness, fault: &CloudFault) {
        if witness == Witness::Ec2 && is_throttling(fault) {
            // The budget gives the time of the next question.
            let now = self.now;
            let turn = self.schedule.turn(witness);
            turn.in_flight = false;
            turn.want(now);
            let started = turn.asked.unwrap_or(now);
            self.learn(Action::Describe, fault, started);
        } else {
            self.ask_again(witness);
        }
        let (object, next_step) = match witness {
            Witness::Imds => ("IMDS", "check that the node's metadata service answers"),
            Witness::Ec2 => ("EC2", "allow ec2:DescribeNetworkInterfaces to the node's role"),
        };
        self.report(Severity::Warning, Topic::WitnessSilent, object, fault.to_string(), next_step);
    }
}
