//! Pods that start and end here.

use super::*;
use crate::waiting::{WAIT, WAITING_MAX};
use config_model::EnforcingMode;

impl Node {
    /// A pod starts: it waits until policy holds for it, and every replica is to know its addresses.
    pub fn admit(&mut self, local: LocalPod, mode: EnforcingMode, now: Time) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let one = Waiting { pod: local.pod.clone(), mode, until: now + WAIT, needs: None };
        if self.waiting.len() >= WAITING_MAX || !self.room_for(&local.pod.uid) {
            let why = "this node has more pods that start than it can follow".to_owned();
            self.effects.push(Effect::Answer { ticket, answer: one.given_up(why) });
            return ticket;
        }
        self.effects.push(Effect::Announce(local.clone()));
        self.waiting.insert(ticket, one);
        // Somebody waits: a backend that is well again is not left alone for its whole pause.
        self.retry_at = self.retry_at.map(|at| at.min(now + RETRY_FIRST));
        if self.local.get(&local.pod.uid) == Some(&local) {
            self.entries();
            self.settle(now);
            return ticket;
        }
        self.effects.push(Effect::Keep(vec![Record::Started(local.clone())]));
        Arc::make_mut(&mut self.local).insert(local.pod.uid.clone(), local);
        self.changed(now);
        ticket
    }

    /// A pod's sandbox has ended: by the pod's UID or, where that is not known, by its name. Where a container ID is
    /// said, a pod that has started anew in another sandbox is none of it.
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
        let local = Arc::make_mut(&mut self.local);
        gone.iter().for_each(|uid| _ = local.remove(uid));
        let records = gone.into_iter().map(|uid| Record::Ended { uid });
        self.effects.push(Effect::Keep(records.collect()));
        self.changed(now);
    }

    /// Room for one more pod; one of which the controller knows nothing makes room.
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
        self.effects.push(Effect::Keep(vec![Record::Ended { uid }]));
        true
    }

    /// Who waits and has an entry now needs this state; who has none any more needs one anew.
    pub(super) fn entries(&mut self) {
        for one in self.waiting.values_mut() {
            let PodId { uid, namespace, name } = &one.pod;
            let entry = self.held.entry(uid, namespace, name);
            one.needs = entry.map(|_| one.needs.unwrap_or(self.revision));
        }
    }

    /// What this node was told of a pod. A static pod is known here by another UID than in the API.
    fn entry(&self, pod: &PodId) -> Option<&control_wire::told::Pod> {
        self.held.entry(&pod.uid, &pod.namespace, &pod.name)
    }

    /// Answers those for whom policy holds, and those who have waited long enough.
    pub(super) fn settle(&mut self, now: Time) {
        let mut answers = Vec::new();
        for (ticket, one) in &self.waiting {
            let in_force = one.needs.is_some_and(|needs| needs <= self.applied);
            let answer = match in_force && self.fails(&one.pod).is_none() {
                true => Some(Answer::Enforced),
                false if now >= one.until => Some(one.given_up(self.why(one))),
                false => None,
            };
            answers.extend(answer.map(|answer| (*ticket, answer)));
        }
        for (ticket, answer) in answers {
            self.waiting.remove(&ticket);
            self.effects.push(Effect::Answer { ticket, answer });
        }
    }

    /// A policy about this pod that is not in force, and why.
    fn fails(&self, pod: &PodId) -> Option<String> {
        if self.failing.is_empty() {
            return None;
        }
        let uid = &self.entry(pod)?.uid;
        policies_of(&self.held, uid).into_iter().find_map(|policy| {
            let why = self.failing.get(&policy.uid)?;
            Some(format!("{} is not in force: {why}", policy.key))
        })
    }

    /// What this one still waits for.
    pub(super) fn why(&self, one: &Waiting) -> String {
        let pod = &one.pod;
        let Some(needs) = one.needs else {
            let contact = match &self.contact {
                Contact::With { at, .. } => format!("the replica at {at} has not told of it"),
                Contact::None(why) => format!("no replica of the controller is followed: {why}"),
            };
            let alike = |entry: &&control_wire::told::Pod| {
                (&entry.namespace, &entry.name) == (&pod.namespace, &pod.name)
            };
            let other = self.held.pods.values().find(alike);
            let other = other.map(|entry| format!("; it knows UID {} of that name", entry.uid));
            return format!(
                "this node was not told which policies are about pod {pod}: {contact}{}",
                other.unwrap_or_default()
            );
        };
        if let Some(why) = &self.trouble {
            return format!("what policy says of pod {pod} is not in force: {why}");
        }
        match self.fails(pod) {
            Some(why) if needs <= self.applied => format!("of pod {pod}: {why}"),
            Some(_) | None => {
                format!("what policy says of pod {pod} is being put into force still")
            }
        }
    }
}
