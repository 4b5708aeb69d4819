//! Pods of this node that start and end.

use super::*;
use crate::waiting::{WAIT, WAITING_MAX};
use config_model::EnforcingMode;
use config_model::HostLink;

impl Node {
    /// A pod starts with these links: it waits until its policies are in force on it, and its addresses are announced to
    /// every replica.
    pub fn admit(
        &mut self,
        local: LocalPod,
        links: Vec<HostLink>,
        mode: EnforcingMode,
        now: Time,
    ) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let one = Waiting { pod: local.pod.clone(), mode, until: now + WAIT, needs: None };
        if self.waiting.len() >= WAITING_MAX || !self.room_for(&local.pod.uid) {
            let why = "too many pods start on this node at once".to_owned();
            self.effects.push(Effect::Answer { ticket, answer: one.answer_at_end(why) });
            return ticket;
        }
        self.effects.push(Effect::Announce(local.clone()));
        self.waiting.insert(ticket, one);
        // A pod waits: the retry comes soon, in case the backend works again.
        self.retry_at = self.retry_at.map(|at| at.min(now + RETRY_FIRST));
        let uid = local.pod.uid.clone();
        let is_kept = self.local.get(&uid) == Some(&local);
        let known = self.endpoints.get(&uid).filter(|_| is_kept);
        // A plugin of an earlier release sends no links: those that were observed stay.
        if known.is_some_and(|known| links.is_empty() || known.links == links) {
            self.entries();
            self.settle(now);
            return ticket;
        }
        if !is_kept {
            self.effects.push(Effect::Persist(vec![Record::Started(local.clone())]));
            Arc::make_mut(&mut self.local).insert(uid.clone(), local.clone());
        }
        // The result of an earlier sandbox or link does not count.
        self.lose(&uid);
        self.set_endpoint(uid, Endpoint { pod: local, links });
        self.changed(now);
        ticket
    }

    /// A pod's sandbox has ended: the pod is found by UID or, if it is empty, by name. With a container ID, a pod that
    /// has started again in another sandbox stays.
    pub fn forget(&mut self, pod: &PodId, container: &str, now: Time) {
        let is_named = |local: &PodId| match pod.uid.is_empty() {
            true => (&local.namespace, &local.name) == (&pod.namespace, &pod.name),
            false => local.uid == pod.uid,
        };
        let is_in = |local: &LocalPod| {
            container.is_empty() || local.container.is_empty() || local.container == container
        };
        let gone = self.local.values().filter(|local| is_named(&local.pod) && is_in(local));
        let gone: Vec<String> = gone.map(|local| local.pod.uid.clone()).collect();
        if gone.is_empty() {
            return;
        }
        for uid in &gone {
            Arc::make_mut(&mut self.local).remove(uid);
            self.remove_endpoint(uid);
        }
        let records = gone.into_iter().map(|uid| Record::Ended { uid });
        self.effects.push(Effect::Persist(records.collect()));
        self.changed(now);
    }

    /// Makes room for one more pod, if necessary by removing one that the controller does not know.
    fn room_for(&mut self, uid: &str) -> bool {
        if self.local.len() < START_LIMIT || self.local.contains_key(uid) {
            return true;
        }
        let is_forgotten = |local: &&LocalPod| {
            let uid = &local.pod.uid;
            self.entry(&local.pod).is_none() && self.waiting.values().all(|w| w.pod.uid != *uid)
        };
        let forgotten = self.local.values().find(is_forgotten).map(|local| local.pod.uid.clone());
        let Some(uid) = forgotten else { return false };
        Arc::make_mut(&mut self.local).remove(&uid);
        self.remove_endpoint(&uid);
        self.effects.push(Effect::Persist(vec![Record::Ended { uid }]));
        true
    }

    /// Sets the revision that each waiting pod needs: this one from the moment that the pod has an entry.
    pub(super) fn entries(&mut self) {
        for one in self.waiting.values_mut() {
            let PodId { uid, namespace, name } = &one.pod;
            let entry = self.held.entry(uid, namespace, name);
            one.needs = entry.map(|_| one.needs.unwrap_or(self.revision));
        }
    }

    /// The pod's entry. The runtime knows a static pod by another UID than the API.
    pub(super) fn entry(&self, pod: &PodId) -> Option<&control_wire::model::Pod> {
        self.held.entry(&pod.uid, &pod.namespace, &pod.name)
    }

    /// Answers the pods whose policies are in force, and those whose wait has ended.
    pub(super) fn settle(&mut self, now: Time) {
        let mut answers = Vec::new();
        for (ticket, one) in &self.waiting {
            let in_force = one.needs.is_some_and(|needs| needs <= self.applied);
            let answer = match in_force && self.fails(&one.pod).is_none() {
                true => Some(Answer::Enforced),
                false if now >= one.until => Some(one.answer_at_end(self.why(one))),
                false => None,
            };
            answers.extend(answer.map(|answer| (*ticket, answer)));
        }
        for (ticket, answer) in answers {
            self.waiting.remove(&ticket);
            self.effects.push(Effect::Answer { ticket, answer });
        }
    }

    /// Returns the reason why the pod's own endpoint, or a policy that applies to it, is not in force.
    fn fails(&self, pod: &PodId) -> Option<String> {
        if !self.in_force.contains(&pod.uid) {
            let why =
                self.failing_endpoints.get(&pod.uid).map_or("it is being applied", String::as_str);
            return Some(format!("its endpoint is not in force: {why}"));
        }
        if self.failing.is_empty() {
            return None;
        }
        let uid = &self.entry(pod)?.uid;
        policies_of(&self.held, uid).into_iter().find_map(|policy| {
            let why = self.failing.get(&policy.uid)?;
            Some(format!("{} is not in force: {why}", policy.key))
        })
    }

    /// The cause of the wait.
    pub(super) fn why(&self, one: &Waiting) -> String {
        let pod = &one.pod;
        let Some(needs) = one.needs else {
            let contact = match &self.contact {
                Contact::With { at, .. } => format!("the replica at {at} has not sent its entry"),
                Contact::None(why) => format!("no replica of the controller is followed: {why}"),
            };
            let alike = |entry: &&Arc<control_wire::model::Pod>| {
                (&entry.namespace, &entry.name) == (&pod.namespace, &pod.name)
            };
            let other = self.held.pods.values().find(alike);
            let other =
                other.map(|entry| format!("; the replica knows UID {} under this name", entry.uid));
            return format!(
                "the policies of pod {pod} are not known: {contact}{}",
                other.unwrap_or_default()
            );
        };
        if let Some(why) = &self.fault {
            return format!("the policies of pod {pod} are not in force: {why}");
        }
        match self.fails(pod) {
            Some(why) if needs <= self.applied => format!("pod {pod}: {why}"),
            Some(_) | None => {
                format!("the policies of pod {pod} are being applied")
            }
        }
    }
}
