//! Laws, whatever happens in whatever order. The world checks after every event that no address
//! is held twice, handed out too early, dropped under a pod, and that no limit is passed.

use crate::world::{Fault, World};
use config_model::Span;
use ipamd_core::{PoolConfig, Witness};
use proptest::{collection::vec, option, prelude::*};

#[derive(Clone, Debug)]
enum Step {
    Reserve(u32),
    Confirm(u32),
    Release(u32),
    ReleaseKernelLater(u32),
    Abandon,
    Pass(u64),
    Faults(Vec<Option<Fault>>),
    Lag(u64, u64),
    DieAfter(u32),
    Restart,
    Reboot,
    PluginsFinish(bool),
    AttachNeverCompletes(bool),
    SubnetLoses(usize),
    SubnetGets(usize),
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        Just(Fault::Throttle),
        Just(Fault::LoseReply),
        Just(Fault::LoseCall),
        Just(Fault::Deny)
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..12_u32).prop_map(Step::Reserve),
        2 => (0..12_u32).prop_map(Step::Confirm),
        8 => (0..12_u32).prop_map(Step::Release),
        3 => (0..12_u32).prop_map(Step::ReleaseKernelLater),
        1 => Just(Step::Abandon),
        12 => (0..60_000_u64).prop_map(Step::Pass),
        2 => vec(option::of(fault()), 1..6).prop_map(Step::Faults),
        1 => (0..20_000_u64, 0..30_000_u64).prop_map(|(ec2, imds)| Step::Lag(ec2, imds)),
        3 => (0..12_u32).prop_map(Step::DieAfter),
        1 => Just(Step::Restart),
        1 => Just(Step::Reboot),
        1 => any::<bool>().prop_map(Step::PluginsFinish),
        1 => any::<bool>().prop_map(Step::AttachNeverCompletes),
        1 => (0..4000_usize).prop_map(Step::SubnetLoses),
        1 => (0..30_usize).prop_map(Step::SubnetGets),
    ]
}

fn config() -> impl Strategy<Value = PoolConfig> {
    let target = || option::of(0..6_u32);
    (0..3_u32, target(), target(), option::of(1..5_u32), 5..20_u32).prop_map(
        |(warm_eni_target, warm_ip_target, minimum_ip_target, max_eni, max_pods)| PoolConfig {
            warm_eni_target,
            warm_ip_target,
            minimum_ip_target,
            max_eni,
            max_pods,
            ..PoolConfig::default()
        },
    )
}

fn run(world: &mut World, steps: Vec<Step>) {
    let mut last = None;
    let mut spare = Vec::new();
    for step in steps {
        match step {
            Step::Reserve(pod) => last = Some(world.reserve(pod)),
            Step::Confirm(pod) => {
                world.confirm(pod);
            }
            Step::Release(pod) => {
                world.release(pod);
            }
            Step::ReleaseKernelLater(pod) => {
                world.release_only(pod);
            }
            Step::Abandon => {
                if let Some(ticket) = last {
                    world.tell(ipamd_core::Event::Abandoned { ticket });
                }
            }
            Step::Pass(millis) => world.pass(Span::millis(millis)),
            Step::Faults(faults) => world.cloud.any_faults = faults.into(),
            Step::Lag(ec2, imds) => {
                world.cloud.lag.insert(Witness::Ec2, Span::millis(ec2));
                world.cloud.lag.insert(Witness::Imds, Span::millis(imds));
            }
            Step::DieAfter(effects) => world.dies_after = Some(effects),
            Step::Restart => world.restart(),
            Step::Reboot => world.reboot(),
            Step::PluginsFinish(finish) => world.plugins_finish = finish,
            Step::AttachNeverCompletes(never) => world.cloud.attaches_never_complete = never,
            Step::SubnetLoses(count) => {
                let left = world.cloud.subnet.len().saturating_sub(count);
                spare.extend(world.cloud.subnet.split_off(left));
            }
            Step::SubnetGets(count) => {
                let at = spare.len().saturating_sub(count);
                world.cloud.subnet.extend(spare.split_off(at));
            }
        }
    }
    world.cloud.subnet.extend(spare);
}

/// Each runs an hour and more of a node's life.
const CASES: u32 = 96;

/// The faults end; attaches that hang are given up in time.
fn mend(world: &mut World) {
    world.cloud.any_faults.clear();
    world.cloud.lag.clear();
    world.cloud.attaches_never_complete = false;
    world.plugins_finish = true;
    world.dies_after = None;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, ..ProptestConfig::default() })]

    #[test]
    fn once_all_is_quiet_the_pool_is_right_and_rests_and_nothing_is_left_behind(
        config in config(),
        steps in vec(step(), 1..60),
    ) {
        let mut world = World::new(config.clone(), 4, 5, 2);
        run(&mut world, steps);
        mend(&mut world);
        world.pass(Span::seconds(2 * 3600));
        let calls = world.cloud.log.len();
        world.pass(Span::seconds(3600));
        prop_assert_eq!(&world.cloud.log[calls..], &[], "it does not rest");
        let counts = world.core.counts();
        let attached = world.cloud.attached().len();
        prop_assert_eq!(world.cloud.enis.len(), attached, "a detached ENI is left");
        prop_assert_eq!(counts.cooling, 0);
        prop_assert_eq!(counts.usable, counts.free);
        let in_cloud: usize = world.split().iter().sum();
        prop_assert_eq!(usize::try_from(counts.total).unwrap(), in_cloud);
        let full = in_cloud == 4 * usize::try_from(counts.max_enis).unwrap();
        let warm = config.warm_ip_target.unwrap_or(0);
        let minimum = config.minimum_ip_target.unwrap_or(0);
        let reached = if warm == 0 && minimum == 0 {
            counts.free >= u64::from(4 * config.warm_eni_target).max(1)
        } else {
            counts.free >= u64::from(warm) && counts.total >= u64::from(minimum)
        };
        prop_assert!(
            reached || full || counts.total >= u64::from(config.max_pods),
            "{:?} {:?}", counts, world.snapshot().waiting
        );
        for eni in world.cloud.attached().iter().skip(1) {
            let attachment = eni.seen.attachment.as_ref().unwrap();
            prop_assert_eq!(attachment.delete_on_termination, Some(true));
        }
    }

    #[test]
    fn every_pod_that_fits_is_served_once_all_is_well(steps in vec(step(), 1..40)) {
        let mut world = World::new(PoolConfig::default(), 4, 5, 2);
        run(&mut world, steps);
        mend(&mut world);
        world.pass(Span::seconds(3600));
        for pod in 0..12 {
            world.release(pod);
        }
        world.pass(Span::seconds(60));
        let tickets = world.reserve_all(100..116);
        world.pass(Span::seconds(45));
        for ticket in tickets {
            prop_assert!(world.served(ticket), "{:?}", world.answers.get(&ticket));
        }
    }
}
