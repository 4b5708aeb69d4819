//! The node's pod CIDRs: blocks of the address book that no ENI has.

use crate::{
    Severity, Topic,
    book::{BlockState, pod_offsets},
    ctx::Ctx,
};
use ipnet::IpNet;
use std::collections::BTreeSet;

#[derive(Debug, Default)]
pub(crate) struct NodeCidrs {
    /// The node's current list, of both families.
    desired: BTreeSet<IpNet>,
    /// Desired CIDRs that are not used. Each is reported once.
    refused: BTreeSet<IpNet>,
}

impl NodeCidrs {
    pub(crate) fn new(cidrs: Vec<IpNet>) -> Self {
        let mut all = Self::default();
        all.replace(cidrs);
        all
    }

    /// Takes the node's current list.
    pub(crate) fn replace(&mut self, cidrs: Vec<IpNet>) {
        self.desired = cidrs.into_iter().map(|cidr| cidr.trunc()).collect();
        self.refused.retain(|cidr| self.desired.contains(cidr));
    }

    /// Makes the book's blocks follow the list. A CIDR with a used address stays until the address is free.
    pub(crate) fn settle(&mut self, ctx: &mut Ctx) {
        // First, because a new CIDR may overlap the one that it replaces.
        let known = ctx.book.node_cidrs().iter().map(|(cidr, _)| cidr);
        let removed: Vec<IpNet> = known.filter(|cidr| !self.desired.contains(cidr)).collect();
        for cidr in removed {
            retire(ctx, cidr);
        }
        let mut fit = BTreeSet::new();
        for cidr in &self.desired {
            if !ctx.config.family.includes(*cidr) {
                continue;
            }
            let Some(fault) = fault_of(ctx, *cidr) else {
                self.refused.remove(cidr);
                fit.insert(*cidr);
                continue;
            };
            if self.refused.insert(*cidr) {
                let cause = format!("cannot use the node's pod CIDR: {fault}");
                let next_step = "give the node a pod CIDR outside the VPC";
                ctx.report(Severity::Error, Topic::NodeCidrRefused, cidr, cause, next_step);
            }
        }
        let known: Vec<IpNet> = ctx.book.node_cidrs().iter().map(|(cidr, _)| cidr).collect();
        for cidr in known.iter().filter(|cidr| !fit.contains(cidr)) {
            retire(ctx, *cidr);
        }
        for cidr in fit {
            if !ctx.book.add_node_cidr(cidr, ctx.now) {
                ctx.book.set_block_state(cidr, BlockState::Stays);
            }
        }
    }
}

/// The reason why pods cannot get addresses of the CIDR, or `None`.
fn fault_of(ctx: &Ctx, cidr: IpNet) -> Option<String> {
    if pod_offsets(cidr).is_none() {
        return Some("it has no address for pods".to_owned());
    }
    let overlaps = |net: IpNet| net.contains(&cidr) || cidr.contains(&net);
    let of_enis = ctx.book.enis().map(|eni| (eni.facts.subnet_cidr, eni.facts.subnet_cidr_v6));
    let own = (ctx.node.subnet_cidr, ctx.node.subnet_cidr_v6);
    let mut subnets =
        of_enis.chain([own]).flat_map(|(v4, v6)| [v4.map(IpNet::V4), v6.map(IpNet::V6)]).flatten();
    if let Some(subnet) = subnets.find(|net| overlaps(*net)) {
        return Some(format!("it overlaps subnet {subnet}"));
    }
    let mut others = ctx.book.overlapping(cidr).filter(|(net, _)| *net != cidr);
    let (net, source) = others.next()?;
    Some(format!("it overlaps block {net} of {source}"))
}

/// Takes a CIDR out of use. Its used addresses stay, and the block with them.
fn retire(ctx: &mut Ctx, cidr: IpNet) {
    let Some(block) = ctx.book.node_cidrs().get(cidr) else { return };
    let known = block.lost().is_some();
    if block.used() == 0 {
        ctx.book.remove_block(cidr);
        return;
    }
    ctx.book.set_block_state(cidr, BlockState::Lost { since: ctx.now });
    if let Some(key) = ctx.book.holder_within(cidr).filter(|_| !known) {
        let cause = format!("the pod CIDR is out of use while {key} holds an address of it");
        let next_step = "delete the pods with its addresses, so that they get other addresses";
        ctx.report(Severity::Error, Topic::NodeCidrRemoved, cidr, cause, next_step);
    }
}
