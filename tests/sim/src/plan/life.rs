//! The incidents of a life, drawn from the seed.

use super::{Death, Incident, Mode, Setup, Step, Weather, setup::Targets};
use crate::random::Rng;
use config_model::Span;

/// The number of pod names.
pub(crate) const NAMES: u16 = 40;

/// The frequency of faults. Each kind is frequent in some lives and absent in others.
struct FaultRates {
    weather: u64,
    crashes: u64,
    reboots: u64,
    outsiders: u64,
    tenants: u64,
    kernel: u64,
    deaths: u64,
    late_dels: u64,
    settings: u64,
}

impl FaultRates {
    fn draw(rng: &mut Rng) -> Self {
        let mut often = |often: u64| if rng.percent(45) { 0 } else { 1 + rng.below(often) };
        Self {
            weather: often(30),
            crashes: often(20),
            reboots: often(4),
            outsiders: often(6),
            tenants: often(12),
            kernel: often(8),
            deaths: often(30),
            late_dels: often(60),
            settings: often(5),
        }
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Pods,
    Weather,
    Crash,
    Reboot,
    Outsider,
    Tenant,
    Kernel,
    Settings,
}

/// Draws the steps and the start of the quiet phase.
pub(super) fn draw(setup: &Setup, seed: u64) -> (Vec<Step>, Span) {
    let mut rng = Rng::new(seed, "life");
    let climate = FaultRates::draw(&mut rng);
    let count = rng.between(8, 70);
    // Some lives are dense, others have long pauses.
    let pace = rng.pick(&[2_000, 8_000, 30_000]);
    let mut steps = Vec::new();
    let mut at = rng.below(8_000);
    for _ in 0..count {
        at += rng.skewed(1, pace * 3);
        let incident = incident(setup, &climate, &mut rng);
        steps.push(Step { at: Span(at), incident });
    }
    (steps, Span(at + 1000))
}

fn incident(setup: &Setup, climate: &FaultRates, rng: &mut Rng) -> Incident {
    let kinds = [
        (60, Kind::Pods),
        (climate.weather, Kind::Weather),
        (climate.crashes, Kind::Crash),
        (climate.reboots, Kind::Reboot),
        (climate.outsiders, Kind::Outsider),
        (climate.tenants, Kind::Tenant),
        (climate.kernel, Kind::Kernel),
        (climate.settings, Kind::Settings),
    ];
    match weighted(&kinds, rng) {
        Kind::Pods if setup.mode == Mode::Unschedulable && rng.percent(12) => {
            Incident::Schedulable(rng.percent(50))
        }
        Kind::Pods if setup.mode == Mode::Trunk && rng.percent(8) => {
            Incident::ControllerAway { lasts: Span(rng.skewed(500, 120_000)) }
        }
        Kind::Pods if setup.mode == Mode::NodeCidr && rng.percent(10) => {
            Incident::NodeCidr(rng.percent(60))
        }
        Kind::Pods => pods(climate, rng),
        Kind::Weather => {
            let how = weather(rng);
            // IMDS answers may be arbitrarily old, because the core never trusts IMDS alone.
            let old = matches!(how, Weather::ImdsLags { .. });
            let longest = if old { 1_800_000 } else { 180_000 };
            Incident::Weather { how, lasts: Span(rng.skewed(500, longest)) }
        }
        Kind::Crash => crash(rng),
        Kind::Reboot => Incident::Reboot { down: Span(rng.between(1_000, 60_000)) },
        Kind::Outsider => outsider(rng),
        Kind::Tenant => tenant(rng),
        Kind::Kernel => kernel(rng),
        Kind::Settings => {
            let toggled = setup.mode == Mode::Prefixes && rng.percent(50);
            Incident::Reconfigure {
                targets: Targets::draw(rng),
                prefixes: setup.prefixes ^ toggled,
            }
        }
    }
}

fn weighted<T: Copy>(kinds: &[(u64, T)], rng: &mut Rng) -> T {
    let mut left = rng.below(kinds.iter().map(|(weight, _)| weight).sum());
    for (weight, kind) in kinds {
        if left < *weight {
            return *kind;
        }
        left -= weight;
    }
    kinds[0].1
}

fn pods(climate: &FaultRates, rng: &mut Rng) -> Incident {
    let first = number(rng, 0, NAMES - 1);
    let count = few(rng, 14);
    match rng.below(10) {
        0..=4 => {
            let dies = rng.percent(climate.deaths).then(|| {
                use Death::{Building, Built, Confirmed, Reserved, Waiting};
                rng.pick(&[Waiting, Reserved, Building, Built, Confirmed])
            });
            Incident::Start { first, count, apart: Span(rng.skewed(0, 800)), dies }
        }
        5..=7 => Incident::Delete { first, count, dels: dels(climate, rng) },
        _ => {
            let after = Span(rng.skewed(20, 30_000));
            Incident::Replace { first, count: count.min(6), after, dels: dels(climate, rng) }
        }
    }
}

/// The first DEL usually comes soon; the kubelet repeats it.
fn dels(climate: &FaultRates, rng: &mut Rng) -> Vec<Span> {
    let latest = if rng.percent(climate.late_dels) { 90_000 } else { 300 };
    let mut at = rng.skewed(5, latest);
    let mut dels = vec![Span(at)];
    let more = if rng.percent(climate.late_dels) { rng.below(4) } else { rng.below(2) };
    for _ in 0..more {
        at += rng.skewed(100, 120_000);
        dels.push(Span(at));
    }
    dels
}

fn weather(rng: &mut Rng) -> Weather {
    match rng.below(12) {
        0 | 1 => Weather::Throttled { nth: number(rng, 1, 4).into() },
        2 => failing(rng),
        3 | 4 => Weather::RepliesLost { times: few(rng, 20).into() },
        5 => Weather::CallsLost { percent: percent(rng, 10) },
        6 => Weather::Slow { latency: Span(rng.skewed(500, 14_000)) },
        7 => Weather::ReadsLag { lag: Span(rng.skewed(500, 50_000)) },
        8 | 9 => Weather::ImdsLags { lag: Span(rng.skewed(1_000, 1_800_000)) },
        10 => Weather::ImdsSilent,
        _ => Weather::AttachesHang,
    }
}

fn failing(rng: &mut Rng) -> Weather {
    use lab_cloud::Action;
    let code = rng.pick(&["InternalError", "Unavailable", "UnauthorizedOperation"]);
    let action = rng.pick(&[
        Action::AssignPrivateIpAddresses,
        Action::AttachNetworkInterface,
        Action::CreateNetworkInterface,
        Action::DeleteNetworkInterface,
        Action::DescribeNetworkInterfaces,
        Action::DetachNetworkInterface,
        Action::ModifyNetworkInterfaceAttribute,
        Action::UnassignPrivateIpAddresses,
    ]);
    Weather::Failing { code, action: rng.percent(70).then_some(action) }
}

fn crash(rng: &mut Rng) -> Incident {
    let down = Span(rng.skewed(50, 40_000));
    if rng.percent(20) {
        Incident::Stop { down }
    } else {
        Incident::Kill { after: number(rng, 0, 12).into(), down }
    }
}

fn outsider(rng: &mut Rng) -> Incident {
    let nth = number(rng, 0, 99);
    match rng.below(3) {
        0 => Incident::PullEni { nth },
        1 => Incident::TakeAddress { nth },
        _ => Incident::ForeignEni { addresses: number(rng, 0, 2) },
    }
}

fn tenant(rng: &mut Rng) -> Incident {
    match rng.below(4) {
        0 | 1 => {
            Incident::TenantsCome { percent: percent(rng, 10), piece: rng.pick(&[1, 1, 3, 10, 25]) }
        }
        2 => Incident::TenantsGo { percent: percent(rng, 20) },
        _ => Incident::OthersCall { calls: number(rng, 20, 150) },
    }
}

fn kernel(rng: &mut Rng) -> Incident {
    match rng.below(3) {
        0 => Incident::KernelRefuses { lasts: Span(rng.skewed(500, 100_000)) },
        1 => Incident::KernelDrifts { nth: number(rng, 0, 60) },
        _ => Incident::DiskIsSlow {
            write: Span(rng.skewed(20, 3_000)),
            lasts: Span(rng.skewed(500, 30_000)),
        },
    }
}

fn number(rng: &mut Rng, low: u16, high: u16) -> u16 {
    u16::try_from(rng.between(low.into(), high.into())).unwrap_or(high)
}

/// At least one, usually few.
fn few(rng: &mut Rng, most: u16) -> u16 {
    u16::try_from(rng.skewed(1, most.into())).unwrap_or(most)
}

fn percent(rng: &mut Rng, least: u8) -> u8 {
    u8::try_from(rng.between(least.into(), 100)).unwrap_or(100)
}
