//! Results of a daemon, counted from outside and in the same way for both.

use super::setting::COOLDOWN;
use config_model::{EniId, Span, Time};
use ipnet::Ipv4Net;
use lab_cloud::{Action, CallError, Request, Response};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
};

/// The calls of one action.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Including throttled ones.
    pub made: u64,
    /// Calls that EC2 refused with `RequestLimitExceeded`.
    pub throttled: u64,
}

/// The results of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// EC2 calls by action.
    pub calls: BTreeMap<Action, Calls>,
    /// ADDs that ended without an address.
    pub failed_adds: u64,
    /// Time of each pod from its intended start until it had an address, sorted.
    pub waits: Vec<Span>,
    /// Pods without an address when they were deleted or the trace ended.
    pub unserved: u64,
    /// Time of each node from the intended start of its first pod until a pod had an address, sorted.
    pub first_pods: Vec<Span>,
    /// Address-milliseconds of attached addresses without a pod and without a cooldown.
    pub idle: u64,
    /// Address-milliseconds in cooldown.
    pub cooling: u64,
    /// Address-milliseconds in use by pods.
    pub in_use: u64,
}

impl Tally {
    /// EC2 calls of all actions.
    pub fn all_calls(&self) -> u64 {
        self.calls.values().map(|calls| calls.made).sum()
    }

    /// EC2 calls of all actions for every thousand pods that got an address.
    pub fn calls_per_thousand_pods(&self) -> f64 {
        1000.0 * self.all_calls() as f64 / self.waits.len() as f64
    }

    /// Throttled calls of all actions.
    pub fn throttled(&self) -> u64 {
        self.calls.values().map(|calls| calls.throttled).sum()
    }

    pub fn idle_hours(&self) -> f64 {
        hours(self.idle)
    }

    /// Idle address-hours for each address-hour in use. Unlike the sum, it does not penalize a daemon for
    /// serving a pod earlier.
    pub fn idle_share(&self) -> f64 {
        self.idle as f64 / self.in_use as f64
    }

    pub fn cooling_hours(&self) -> f64 {
        hours(self.cooling)
    }

    /// A percentile of the waits in seconds. A pod without an address counts as an infinite wait.
    pub fn wait(&self, percent: usize) -> f64 {
        let unserved = usize::try_from(self.unserved).unwrap_or(usize::MAX);
        quantile(&self.waits, self.waits.len() + unserved, percent)
    }

    /// A percentile of the times to the first pod in seconds, over the nodes that have pods.
    pub fn first_pod(&self, percent: usize) -> f64 {
        quantile(&self.first_pods, self.first_pods.len(), percent)
    }
}

fn hours(address_millis: u64) -> f64 {
    address_millis as f64 / 3_600_000.0
}

fn quantile(sorted: &[Span], of: usize, percent: usize) -> f64 {
    let at = (of * percent).div_ceil(100).saturating_sub(1);
    sorted.get(at).map_or(f64::INFINITY, |span| span.0 as f64 / 1000.0)
}

/// Counter of address-hours, calls and waits.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    tally: Tally,
    now: Time,
    /// Addresses of each ENI besides its primary address.
    on_enis: BTreeMap<EniId, u64>,
    attached: u64,
    assigned: u64,
    cooling: BTreeMap<Ipv4Addr, Time>,
    by_end: BTreeSet<(Time, Ipv4Addr)>,
    /// A line for each call. `None` if no log was requested.
    call_log: Option<Vec<String>>,
}

impl Meter {
    /// Address-hours count from `from` on; numbers of calls, pods and ADDs count from the start.
    pub(crate) fn new(from: Time) -> Self {
        Self { now: from, ..Self::default() }
    }

    /// Also keeps a line for each call.
    pub(crate) fn keep_call_log(&mut self) {
        self.call_log = Some(Vec::new());
    }

    /// The lines of the calls.
    pub(crate) fn take_call_log(&mut self) -> Vec<String> {
        self.call_log.take().unwrap_or_default()
    }

    /// Adds the elapsed time to each address's state.
    pub(crate) fn advance(&mut self, now: Time) {
        while let Some((end, address)) = self.by_end.first().copied().filter(|(end, _)| *end <= now)
        {
            self.pass(end);
            self.warm(address);
        }
        self.pass(now);
    }

    fn pass(&mut self, now: Time) {
        let span = now.since(self.now).0;
        let cooling = self.cooling.len() as u64;
        self.tally.cooling += cooling * span;
        self.tally.in_use += self.assigned * span;
        self.tally.idle += self.attached.saturating_sub(self.assigned + cooling) * span;
        self.now = self.now.max(now);
    }

    fn warm(&mut self, address: Ipv4Addr) {
        if let Some(end) = self.cooling.remove(&address) {
            self.by_end.remove(&(end, address));
        }
    }

    /// A pod has its address.
    pub(crate) fn served(&mut self, address: Ipv4Addr, wait: Span) {
        self.warm(address);
        self.assigned += 1;
        self.tally.waits.push(wait);
    }

    /// A pod's address was released.
    pub(crate) fn released(&mut self, address: Ipv4Addr) {
        self.assigned -= 1;
        let end = self.now + COOLDOWN;
        self.cooling.insert(address, end);
        self.by_end.insert((end, address));
    }

    pub(crate) fn failed(&mut self) {
        self.tally.failed_adds += 1;
    }

    pub(crate) fn unserved(&mut self) {
        self.tally.unserved += 1;
    }

    pub(crate) fn first_pod(&mut self, after: Span) {
        self.tally.first_pods.push(after);
    }

    /// An EC2 call has ended.
    pub(crate) fn called(
        &mut self,
        at: Time,
        node: usize,
        request: &Request,
        result: &Result<Response, CallError>,
    ) {
        let calls = self.tally.calls.entry(request.action()).or_default();
        calls.made += 1;
        match result {
            Ok(response) => self.count_addresses(request, response),
            Err(CallError::Refused(error)) if error.code == "RequestLimitExceeded" => {
                calls.throttled += 1;
            }
            Err(CallError::Refused(_) | CallError::ReplyLost) => {}
        }
        if self.call_log.is_some() {
            let line = self.words(at, node, request, result);
            self.call_log.get_or_insert_default().push(line);
        }
    }

    fn words(
        &self,
        at: Time,
        node: usize,
        request: &Request,
        result: &Result<Response, CallError>,
    ) -> String {
        let outcome = match result {
            Ok(_) => "",
            Err(CallError::Refused(error)) => error.code.as_str(),
            Err(CallError::ReplyLost) => "reply lost",
        };
        let (attached, pods, cooling) = (self.attached, self.assigned, self.cooling.len());
        format!(
            "{:9.3} s  node {node:<3} {:34} {outcome:24} {attached} addresses, {pods} of pods, \
             {cooling} cooling",
            at.0 as f64 / 1000.0,
            request.action().name(),
        )
    }

    fn count_addresses(&mut self, request: &Request, response: &Response) {
        if let Response::CreateNetworkInterface { network_interface: eni, .. } = response {
            let singles = eni.secondary_addresses().count();
            // A repeated client token returns the same ENI.
            self.change(&eni.id, count(singles, &eni.ipv4_prefixes), 0);
        }
        if let Response::AssignPrivateIpAddresses(given) = response {
            let has = self.on_enis.get(&given.network_interface_id).copied().unwrap_or(0);
            let more = count(given.private_ip_addresses.len(), &given.ipv4_prefixes);
            self.change(&given.network_interface_id, has + more, has);
        }
        if let Request::UnassignPrivateIpAddresses(unassign) = request
            && let Some(eni) = &unassign.network_interface_id
        {
            let has = self.on_enis.get(eni).copied().unwrap_or(0);
            let less = count(unassign.private_ip_addresses.len(), &unassign.ipv4_prefixes);
            self.change(eni, has.saturating_sub(less), has);
            for address in &unassign.private_ip_addresses {
                self.warm(*address);
            }
            for address in unassign.ipv4_prefixes.iter().flat_map(addresses) {
                self.warm(address);
            }
        }
        if let Request::DeleteNetworkInterface(delete) = request
            && let Some(eni) = &delete.network_interface_id
        {
            let had = self.on_enis.remove(eni).unwrap_or(0);
            self.attached -= had;
        }
    }

    fn change(&mut self, eni: &EniId, to: u64, from: u64) {
        let known = self.on_enis.insert(eni.clone(), to).unwrap_or(from);
        self.attached = self.attached + to - known;
    }

    /// The results.
    pub(crate) fn finish(mut self) -> Tally {
        self.tally.waits.sort();
        self.tally.first_pods.sort();
        self.tally
    }
}

fn count(singles: usize, prefixes: &[Ipv4Net]) -> u64 {
    (singles + prefixes.iter().flat_map(addresses).count()) as u64
}

fn addresses(prefix: &Ipv4Net) -> impl Iterator<Item = Ipv4Addr> + use<> {
    (u32::from(prefix.network())..=u32::from(prefix.broadcast())).map(Ipv4Addr::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab_cloud::{
        AssignPrivateIpAddresses, AssignedPrivateIpAddresses, UnassignPrivateIpAddresses,
    };

    fn address(last: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 0, 0, last)
    }

    fn assigned(meter: &mut Meter, last: std::ops::Range<u8>) {
        let given = AssignedPrivateIpAddresses {
            network_interface_id: "eni-1".into(),
            private_ip_addresses: last.map(address).collect(),
            ipv4_prefixes: Vec::new(),
        };
        let request = AssignPrivateIpAddresses::default().into();
        meter.called(Time(0), 0, &request, &Ok(Response::AssignPrivateIpAddresses(given)));
    }

    #[test]
    fn idle_is_what_neither_a_pod_has_nor_cools() {
        let mut meter = Meter::default();
        assigned(&mut meter, 0..4);
        meter.advance(Time(1000));
        meter.served(address(0), Span(5));
        meter.advance(Time(2000));
        meter.released(address(0));
        meter.advance(Time(100_000));
        let tally = meter.finish();
        assert_eq!(tally.cooling, 30_000);
        assert_eq!(tally.idle, 4 * 1000 + 3 * 1000 + 3 * 30_000 + 4 * 68_000);
    }

    #[test]
    fn an_address_that_is_removed_while_it_cools_leaves_the_meter() {
        let mut meter = Meter::default();
        assigned(&mut meter, 0..1);
        meter.served(address(0), Span(5));
        meter.released(address(0));
        meter.advance(Time(1000));
        let request = UnassignPrivateIpAddresses {
            network_interface_id: Some("eni-1".into()),
            private_ip_addresses: vec![address(0)],
            ..UnassignPrivateIpAddresses::default()
        };
        meter.called(Time(0), 0, &request.into(), &Ok(Response::UnassignPrivateIpAddresses));
        meter.advance(Time(50_000));
        let tally = meter.finish();
        assert_eq!((tally.idle, tally.cooling), (0, 1000));
        assert_eq!(tally.all_calls(), 2);
    }

    #[test]
    fn those_who_never_got_an_address_waited_longest() {
        let mut meter = Meter::default();
        for seconds in 1..=99 {
            meter.served(address(seconds), Span::seconds(seconds.into()));
        }
        meter.unserved();
        let tally = meter.finish();
        assert_eq!((tally.wait(50), tally.wait(99), tally.wait(100)), (50.0, 99.0, f64::INFINITY));
    }
}
