//! The contract suite of the fake kernel against the real kernel, each case in a new namespace.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "skipped and executed cases are listed")]

use config_model::{Mac, PodKey, PodName, RuleLayout, TableId, VethName, registry};
use nix::{
    sched::{CloneFlags, unshare},
    unistd::Uid,
};
use routing_netlink::{Kernel as _, LinuxKernel, Monitor, Netns, Socket, SocketError, With};
use routing_plan::{
    Action, Applied, Errno, IfIndex, LinkRef, Neighbor, Observed, Op, Route, RulePattern, Subject,
    SysctlName,
    pod::{HostEnd, PodNet, VethEnd, VethPair, check, removal},
};
use std::{
    collections::BTreeSet,
    os::fd::AsFd as _,
    thread,
    time::{Duration, Instant},
};
use tests_support::kernel_contract::{TestKernel, cases, run};
use tokio::runtime::Runtime;

/// A node's namespace, and another namespace for the peers of its links.
struct Real {
    runtime: Runtime,
    kernel: LinuxKernel,
    socket: Socket,
    outside: Netns,
    made: u8,
}

impl Real {
    /// Creates both namespaces. The calling thread stays in the node's namespace.
    fn new() -> Self {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        let outside = Netns::current().unwrap();
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        // The kernel adds link-local addresses asynchronously, also between two observations.
        std::fs::write("/proc/sys/net/ipv6/conf/default/addr_gen_mode", "1").unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let kernel = {
            let _inside = runtime.enter();
            LinuxKernel::open("/proc/sys", BTreeSet::new()).unwrap()
        };
        Self { runtime, kernel, socket: Socket::open().unwrap(), outside, made: 0 }
    }

    fn add_veth(&mut self, name: &str, mac: Mac) -> IfIndex {
        self.made += 1;
        let far = Mac([0x0a, 0, 0, 1, 0, self.made]);
        let pair = VethPair {
            host: VethEnd { name: name.to_owned(), mac, mtu: 1500 },
            host_index: None,
            pod: VethEnd { name: format!("far{}", self.made), mac: far, mtu: 9001 },
        };
        self.socket.create_veth(&pair, self.outside.as_fd()).unwrap();
        self.socket.link_named(name).unwrap().unwrap().index
    }
}

impl TestKernel for Real {
    fn observe(&mut self) -> Observed {
        let seen = self.runtime.block_on(self.kernel.observe()).unwrap();
        // Both observers must return the same.
        assert_eq!(self.socket.observe(With::Nothing).unwrap(), seen);
        seen
    }

    fn apply(&mut self, ops: &[Op]) -> Applied {
        self.runtime.block_on(self.kernel.apply(ops))
    }

    fn add_eni(&mut self, name: &str, mac: Mac) -> IfIndex {
        let index = self.add_veth(name, mac);
        self.set_down(index);
        index
    }

    fn add_pod_veth(&mut self, name: &str, alias: Option<&str>) -> IfIndex {
        let index = self.add_veth(name, Mac([0x0a, 0, 0, 2, 0, self.made]));
        let link = LinkRef { index, name: name.to_owned() };
        let ops: Vec<Op> = alias
            .map(|alias| Op::new(Subject::Node, Action::SetAlias(link, alias.to_owned())))
            .into_iter()
            .collect();
        assert_eq!(self.apply(&ops).refused, []);
        index
    }

    fn set_down(&mut self, index: IfIndex) {
        self.runtime.block_on(async {
            let (connection, handle, _events) = rtnetlink::new_connection().unwrap();
            let connection = tokio::spawn(connection);
            let down = rtnetlink::LinkUnspec::new_with_index(index.0).down().build();
            handle.link().set(down).execute().await.unwrap();
            connection.abort();
        });
    }
}

/// Runs `body` on a new thread, which may change its namespace.
fn in_own_thread(name: &str, body: impl FnOnce() + Send + 'static) -> bool {
    thread::Builder::new().name(name.to_owned()).spawn(body).unwrap().join().is_ok()
}

fn needs_root() -> bool {
    let root = Uid::effective().is_root();
    if !root {
        println!("SKIP kernel: needs root");
    }
    root
}

#[test]
fn the_real_kernel_keeps_the_contract() {
    if !needs_root() {
        return;
    }
    let mut failed = Vec::new();
    for case in cases() {
        let (family, (name, _)) = case;
        let passed = in_own_thread(name, move || run(case, &mut Real::new()));
        println!("{} {family:?} {name}", if passed { "ok  " } else { "FAIL" });
        failed.extend((!passed).then_some((family, name)));
    }
    assert_eq!(failed, []);
}

/// A pod's namespace and the host's, with the objects of an ADD.
struct Pod {
    net: PodNet,
    host: Socket,
    inside: Socket,
    netns: Netns,
}

const HOST_MAC: Mac = Mac([0x0a, 1, 1, 1, 1, 1]);
const POD_MAC: Mac = Mac([0x0a, 2, 2, 2, 2, 2]);

impl Pod {
    /// Creates both namespaces. The calling thread stays in the host's namespace.
    fn new() -> Self {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        let netns = Netns::current().unwrap();
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        let name = PodName { namespace: "default".to_owned(), name: "web-0".to_owned() };
        let net = PodNet {
            key: PodKey::new(registry::CNI_NETWORK, "a1b2c3", "eth0").unwrap(),
            veth: VethName::of("eni", &name, 0),
            address: "10.0.1.7".parse().unwrap(),
            table: TableId(2),
            layout: RuleLayout::PerPod,
            host_end: HostEnd::Routed,
            number: 0,
            mtu: 9001,
            branch: None,
        };
        let (host, inside) = (Socket::open().unwrap(), netns.socket().unwrap());
        Self { net, host, inside, netns }
    }

    fn build(&mut self) -> IfIndex {
        let pair = self.net.veth_pair(HOST_MAC, POD_MAC);
        self.host.create_veth(&pair, self.netns.as_fd()).unwrap();
        let host_end = self.host.link_named(self.net.veth.as_str()).unwrap().unwrap();
        let pod_end = self.inside.link_named("eth0").unwrap().unwrap();
        assert_eq!(self.inside.index_of("eth0").unwrap(), Some(pod_end.index));
        assert_eq!(self.host.index_of("eth0").unwrap(), None);
        assert_eq!((host_end.mac, pod_end.mac), (Some(HOST_MAC), Some(POD_MAC)));
        assert!(host_end.up && !pod_end.up);
        let inside = self.inside.run(&self.net.pod_batch(pod_end.index, HOST_MAC)).unwrap();
        assert_eq!((inside.changed, inside.refused), (5, Vec::new()));
        let outside = self.host.run(&self.net.host_batch(host_end.index)).unwrap();
        assert_eq!((outside.changed, outside.refused), (4, Vec::new()));
        host_end.index
    }

    fn check(&mut self) -> Vec<String> {
        let inside = self.inside.observe(With::Neighbors).unwrap();
        let host = self.host.observe(With::Nothing).unwrap();
        check(&self.net, &inside, &host).iter().map(ToString::to_string).collect()
    }
}

#[test]
fn a_pod_is_built_in_place_checked_and_removed() {
    if !needs_root() {
        return;
    }
    let passed = in_own_thread("pod", || {
        let mut pod = Pod::new();
        let host_end = pod.build();
        assert_eq!(pod.check(), Vec::<String>::new());
        let seen = pod.host.observe(With::Nothing).unwrap();
        assert_eq!(seen.links[&host_end].key().as_ref(), Some(&pod.net.key));
        assert_eq!(routing_plan::addresses_in_use(&seen), BTreeSet::from([pod.net.address]));

        let gone = pod.host.run(&removal(pod.net.address, Some(host_end))).unwrap();
        assert_eq!((gone.changed, gone.already, gone.refused), (3, 1, Vec::new()));
        let again = pod.host.run(&removal(pod.net.address, Some(host_end))).unwrap();
        assert_eq!((again.changed, again.already, again.refused), (0, 4, Vec::new()));
        let undone = pod.host.run(&pod.net.undo_batch(Some(host_end))).unwrap();
        assert_eq!((undone.changed, undone.already), (1, 2));
        assert_eq!(pod.inside.link_named("eth0").unwrap(), None, "the pod's end is left");
    });
    assert!(passed);
}

#[test]
fn check_names_each_difference() {
    if !needs_root() {
        return;
    }
    let passed = in_own_thread("check", || {
        let mut pod = Pod::new();
        assert_eq!(
            pod.check(),
            [
                "no link eni0d7763386da on the host",
                "no rule pref 512 to 10.0.1.7 lookup main",
                "no rule pref 1536 from 10.0.1.7 lookup 2",
                "no link eth0 in the pod",
            ]
        );
        let host_end = pod.build();
        let pod_end = pod.inside.link_named("eth0").unwrap().unwrap();
        let op = |action| Op::new(Subject::Node, action);
        let from = RulePattern::From { pref: registry::PREF_FROM_POD, address: pod.net.address };
        let host_link = LinkRef { index: host_end, name: String::new() };
        let host = [op(Action::PurgeRules(from)), op(Action::SetMtu(host_link, 1500))];
        let moved = Neighbor {
            dev: pod_end.index,
            address: pod.net.gateway(),
            mac: Some(POD_MAC),
            permanent: true,
        };
        let default =
            routing_plan::Route::default_via(TableId::MAIN, pod.net.gateway(), pod_end.index);
        let inside = [op(Action::SetNeighbor(moved)), op(Action::DeleteRoute(default))];
        assert_eq!(pod.host.run(&host).unwrap().changed, 2);
        assert_eq!(pod.inside.run(&inside).unwrap().changed, 2);
        assert_eq!(
            pod.check(),
            [
                "link eni0d7763386da on the host has MTU 1500, not 9001",
                "no rule pref 1536 from 10.0.1.7 lookup 2",
                "no route default via 169.254.1.1 dev eth0 in the pod",
                "neighbor 169.254.1.1 in the pod is at 0a:02:02:02:02:02, permanent; \
                 it should be at 0a:01:01:01:01:01, permanent",
            ]
        );
    });
    assert!(passed);
}

#[test]
fn a_batch_reports_each_refusal_by_its_operation() {
    if !needs_root() {
        return;
    }
    let passed = in_own_thread("batch", || {
        let mut pod = Pod::new();
        let host_end = pod.build();
        let pair = pod.net.veth_pair(HOST_MAC, POD_MAC);
        let taken = pod.host.create_veth(&pair, pod.netns.as_fd());
        let errno = match taken {
            Err(SocketError::CreateVeth { errno, .. }) => errno,
            other => panic!("{other:?}"),
        };
        assert_eq!(errno, Errno::EEXIST);
        // Routes and neighbors are replaced; rules and addresses exist already.
        let again = pod.host.run(&pod.net.host_batch(host_end)).unwrap();
        assert_eq!((again.changed, again.already, again.refused.len()), (2, 2, 0));
        // The middle operation of a batch is applied although the first and the last one fail.
        let nowhere = LinkRef { index: IfIndex(9999), name: "nowhere".to_owned() };
        let ops = [
            Op::new(Subject::Node, Action::SetUp(nowhere.clone())),
            Op::new(
                Subject::Reap,
                Action::SetMtu(LinkRef { index: host_end, name: String::new() }, 1400),
            ),
            Op::new(Subject::Node, Action::SetMtu(nowhere, 1400)),
        ];
        let applied = pod.host.run(&ops).unwrap();
        assert_eq!(applied.changed, 1);
        let refused: Vec<(&Op, Errno)> = applied.refused.iter().map(|r| (&r.op, r.errno)).collect();
        assert_eq!(refused, [(&ops[0], Errno::ENODEV), (&ops[2], Errno::ENODEV)]);
        assert_eq!(pod.host.link_named(pod.net.veth.as_str()).unwrap().unwrap().mtu, 1400);
        assert!(Netns::open("/run/netns/ferrule-no-such").unwrap_err().is_missing());
        assert!(!pod.netns.is_same(&Netns::current().unwrap()).unwrap());
    });
    assert!(passed);
}

#[test]
fn every_kind_of_change_is_noticed() {
    if !needs_root() {
        return;
    }
    let passed = in_own_thread("monitor", || {
        let mut real = Real::new();
        let mut monitor = {
            let _inside = real.runtime.enter();
            Monitor::open().unwrap()
        };
        let dev = real.add_veth("eth0", Mac([0x0a, 0, 0, 3, 0, 0]));
        let link = LinkRef { index: dev, name: "eth0".to_owned() };
        let far: std::net::IpAddr = "10.9.9.9".parse().unwrap();
        let rule = routing_plan::Rule::ours(512, routing_plan::Selector::to(far), TableId::MAIN);
        let route = routing_plan::Route::on_link(TableId(2), far, dev);
        for action in [
            Action::SetMtu(link.clone(), 1400),
            Action::AddRoute(route.clone()),
            Action::DeleteRoute(route),
            Action::AddRule(rule.clone()),
            Action::DeleteRule(rule),
            Action::SetIpv4(link, routing_plan::Ipv4Conf::RpFilter, 1),
        ] {
            // Events of earlier changes may still arrive, so wait until there are none.
            while let Ok(true) = real.runtime.block_on(async {
                tokio::time::timeout(Duration::from_millis(50), monitor.changed()).await
            }) {}
            assert_eq!(real.apply(&[Op::new(Subject::Node, action.clone())]).changed, 1);
            let noticed = real.runtime.block_on(async {
                tokio::time::timeout(Duration::from_secs(10), monitor.changed()).await
            });
            assert_eq!(noticed, Ok(true), "{action}");
        }
    });
    assert!(passed);
}

#[test]
fn lists_are_whole_while_others_change_them() {
    if !needs_root() {
        return;
    }
    let passed = in_own_thread("lists", || {
        let mut real = Real::new();
        let home = Netns::current().unwrap();
        let permanent: Vec<Op> = (0..200_u8).map(|i| rule_op(1000, i, true)).collect();
        assert_eq!(real.apply(&permanent).changed, 200);
        let disturb = thread::spawn(move || {
            let mut socket = home.socket().unwrap();
            let until = Instant::now() + Duration::from_secs(2);
            while Instant::now() < until {
                for add in [true, false] {
                    let ops: Vec<Op> = (0..50_u8).map(|i| rule_op(900, i, add)).collect();
                    socket.run(&ops).unwrap();
                }
            }
        });
        let mut seen = 0;
        while !disturb.is_finished() {
            // A list that changes too often is an error. The observation is never a partial list.
            if let Ok(observed) = real.runtime.block_on(real.kernel.observe()) {
                let permanent = observed.rules.iter().filter(|rule| rule.pref == 1000).count();
                assert_eq!(permanent, 200);
                seen += 1;
            }
        }
        disturb.join().unwrap();
        assert!(seen > 0, "no complete list in two seconds");
    });
    assert!(passed);
}

#[test]
fn routes_of_a_link_are_read_alone_and_a_queue_is_added_once() {
    if !needs_root() {
        return;
    }
    let passed = in_own_thread("link", || {
        let mut real = Real::new();
        let [one, other] =
            [1, 2].map(|n| real.add_veth(&format!("pod{n}"), Mac([10, 0, 0, 2, 0, n])));
        let addresses: [[std::net::IpAddr; 2]; 2] = [
            ["10.1.1.1".parse().unwrap(), "fd00::1".parse().unwrap()],
            ["10.1.1.2".parse().unwrap(), "fd00::2".parse().unwrap()],
        ];
        let routes = [(one, addresses[0]), (other, addresses[1])];
        let ops: Vec<Op> = routes
            .iter()
            .flat_map(|(link, of)| of.map(|address| Route::on_link(TableId::MAIN, address, *link)))
            .map(|route| Op::new(Subject::Node, Action::AddRoute(route)))
            .collect();
        assert_eq!(real.apply(&ops).refused, []);
        for (link, of) in routes {
            let observed = real.socket.routes_to(link).unwrap();
            assert!(observed.routes.iter().all(|route| route.dev == Some(link)), "{observed:?}");
            assert_eq!(observed.routed_to(link), of.into_iter().collect());
        }
        // Both ways of reading agree.
        let all = real.socket.routes().unwrap();
        assert_eq!(all.routed_to(one), real.socket.routes_to(one).unwrap().routed_to(one));
        let absent = IfIndex(9999);
        assert_eq!(real.socket.routes_to(absent).unwrap().routes, []);
        assert!(real.socket.add_clsact(one).unwrap());
        assert!(!real.socket.add_clsact(one).unwrap(), "the link has a queue");
        assert!(!real.socket.add_clsact(absent).unwrap(), "no such link");
        assert!(real.socket.add_clsact(other).unwrap(), "the socket works after a refusal");
    });
    assert!(passed);
}

fn rule_op(pref: u32, host: u8, add: bool) -> Op {
    let address = std::net::IpAddr::from([10, 1, 1, host]);
    let rule = routing_plan::Rule::ours(pref, routing_plan::Selector::from(address), TableId(2));
    let action = if add { Action::AddRule(rule) } else { Action::DeleteRule(rule) };
    Op::new(Subject::Address(address), action)
}

#[test]
fn settings_that_are_files_are_read_and_written_below_the_named_root() {
    if !needs_root() {
        return;
    }
    let passed = in_own_thread("sysctl", || {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _inside = runtime.enter();
        let forward = SysctlName::new("net/ipv4/ip_forward").unwrap();
        let watched = BTreeSet::from([forward.clone()]);
        let mut kernel = LinuxKernel::open("/proc/sys", watched).unwrap();
        for value in ["1", "0"] {
            let action = Action::WriteSysctl(forward.clone(), value.to_owned());
            let op = Op::new(Subject::Sysctl(forward.clone()), action);
            let applied = runtime.block_on(kernel.apply(&[op]));
            assert_eq!((applied.changed, applied.refused), (1, Vec::new()));
            let seen = runtime.block_on(kernel.observe()).unwrap();
            assert_eq!(seen.sysctls[&forward], value);
            assert_eq!(kernel.sysctls().unwrap()[&forward], value);
        }
        let missing = SysctlName::new("net/ipv4/no_such_thing").unwrap();
        let action = Action::WriteSysctl(missing.clone(), "1".to_owned());
        let applied = runtime.block_on(kernel.apply(&[Op::new(Subject::Sysctl(missing), action)]));
        assert_eq!(applied.refused[0].errno, Errno::ENOENT);
    });
    assert!(passed);
}
