//! The passage of time: pending transitions take effect.

use crate::{AttachmentStatus, Cloud, EniStatus, InstanceState, transition::Transition};
use config_model::{AttachmentId, EniId, InstanceId, Span, Time};

/// EC2 shows a terminated instance for about an hour.
const TERMINATED_SHOWN: Span = Span::seconds(3600);

impl Cloud {
    /// Lets time pass. All that falls due happens at its own time, in order.
    pub(crate) fn advance(&mut self, now: Time) {
        let until = now.max(self.now);
        while let Some((at, transition)) = self.agenda.pop(until) {
            self.now = at.max(self.now);
            self.apply(transition);
        }
        self.now = until;
        // A freshly booted instance looks no further back than its boot, which is later anyway.
        self.state.forget_before(until - self.furthest_lag());
    }

    /// Lets happen what takes no time.
    pub(crate) fn settle(&mut self) {
        self.advance(self.now);
    }

    /// Time at which the next pending change becomes visible without further calls.
    pub fn next_change_at(&mut self, now: Time) -> Option<Time> {
        self.advance(now);
        self.agenda.next_at()
    }

    pub(crate) fn after(&mut self, delay: Span, transition: Transition) {
        self.agenda.add(self.now + delay, transition);
    }

    fn apply(&mut self, transition: Transition) {
        match transition {
            Transition::EniCreated(eni) => self.finish_creation(&eni),
            Transition::Attached(eni, attachment) => self.finish_attach(&eni, &attachment),
            Transition::Detached(eni, attachment) => self.finish_detach(&eni, &attachment),
            Transition::Running(id) => {
                self.finish_state(&id, InstanceState::Pending, InstanceState::Running);
            }
            Transition::Stopped(id) => {
                self.finish_state(&id, InstanceState::Stopping, InstanceState::Stopped);
            }
            Transition::Terminated(id) => {
                self.finish_state(&id, InstanceState::ShuttingDown, InstanceState::Terminated);
                self.drop_enis_of(&id);
                self.after(TERMINATED_SHOWN, Transition::Forgotten(id));
            }
            Transition::Forgotten(id) => self.edit(|state, stamp| {
                state.instances.remove(stamp, &id);
            }),
        }
    }

    fn finish_creation(&mut self, id: &EniId) {
        if self.state.enis.get(id).is_some_and(|eni| eni.status == EniStatus::Pending) {
            self.edit_eni(id, |eni| eni.status = EniStatus::Available);
        }
    }

    fn finish_attach(&mut self, id: &EniId, attachment: &AttachmentId) {
        if self.attachment_status(id, attachment) == Some(AttachmentStatus::Attaching) {
            self.edit_attachment(id, |a| a.status = AttachmentStatus::Attached);
        }
    }

    fn finish_detach(&mut self, id: &EniId, attachment: &AttachmentId) {
        if self.attachment_status(id, attachment) == Some(AttachmentStatus::Detaching) {
            self.edit_eni(id, |eni| {
                eni.attachment = None;
                eni.status = EniStatus::Available;
            });
        }
    }

    fn attachment_status(&self, id: &EniId, attachment: &AttachmentId) -> Option<AttachmentStatus> {
        let current = self.state.enis.get(id)?.attachment.as_ref()?;
        (current.id == *attachment).then_some(current.status)
    }

    fn finish_state(&mut self, id: &InstanceId, from: InstanceState, to: InstanceState) {
        if self.state.instances.get(id).is_some_and(|instance| instance.state == from) {
            self.edit(|state, stamp| state.instances.change(stamp, id, |i| i.state = to));
        }
    }

    /// The end of an instance: `DeleteOnTermination` decides if an ENI is deleted or becomes available.
    fn drop_enis_of(&mut self, id: &InstanceId) {
        let enis: Vec<(EniId, bool)> = self
            .state
            .enis_of(id)
            .iter()
            .filter_map(|eni| {
                Some((eni.id.clone(), eni.attachment.as_ref()?.delete_on_termination))
            })
            .collect();
        for (eni, goes) in enis {
            if goes {
                self.remove_eni(&eni);
            } else {
                self.edit_eni(&eni, |eni| {
                    eni.attachment = None;
                    eni.status = EniStatus::Available;
                });
            }
        }
    }
}
