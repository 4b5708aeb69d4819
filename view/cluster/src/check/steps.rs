//! The text of a test, and the next step if it fails.

use super::{Column, How, Try};

pub(super) fn words(what: &Try) -> String {
    let to = &what.to;
    match what.how {
        How::Tcp => format!("TCP to {to}"),
        How::Http => format!("HTTP to {to}"),
        How::Udp => format!("UDP to {to}"),
        How::Large => format!("large packets to {to}"),
        How::Dns => format!("the name {to}"),
    }
}

pub(super) fn next_step(column: Column) -> &'static str {
    match column {
        Column::SameNode => {
            "both pods' routes and rules are on this node; run `ferrule doctor` there and `ferrule status`"
        }
        Column::OtherNodes => {
            "check the nodes' security groups, the VPC's route tables and \
             network ACLs, and policies that hold in every namespace (`ferrule policy lint`)"
        }
        Column::Mtu => {
            "compare the MTU with that of the way, which is smaller through gateways, VPNs and peered regions; admit ICMP \
             type 3 code 4 (IPv6: type 2) in security groups and network ACLs, or set AWS_VPC_ENI_MTU"
        }
        Column::Ipv6 => {
            "check that the subnets have IPv6 CIDR blocks, and that security groups, network ACLs and route tables admit \
             IPv6"
        }
        Column::HostPort => {
            "check that the plugin portmap is in the node's folder of plugins, and that security groups admit the port"
        }
        Column::Service => {
            "with FERRULE_SERVICES=ebpf run `ferrule service` on the node; otherwise check that kube-proxy runs there, \
             and its log"
        }
        Column::NodePort => {
            "with FERRULE_SERVICES=ebpf run `ferrule service` on the node; otherwise check that kube-proxy runs, and \
             AWS_VPC_CNI_NODE_PORT_SUPPORT; check that security groups admit node ports; `ferrule doctor` finds strict \
             rp_filter"
        }
        Column::ExternalIp | Column::LoadBalancer => {
            "with FERRULE_SERVICES=ebpf run `ferrule service` on the node; otherwise check that kube-proxy runs there, \
             and its log; policies that deny egress outside the cluster also apply to this address"
        }
        Column::HostNetwork => {
            "with FERRULE_SERVICES=ebpf run `ferrule service` on the node, and read the log of the container `agent` \
             (`cannot serve processes of the node`); otherwise check that kube-proxy runs there; if the pod cannot have \
             its port, name another one with --host-network"
        }
        Column::Host => "check the node's firewall, and policies that deny egress to nodes",
        Column::Dns => {
            "check that the cluster's DNS runs (kubectl -n kube-system get pods -l k8s-app=kube-dns) and that \
             security groups let pods reach it on port 53, UDP and TCP"
        }
        Column::Internet => {
            "check the subnet's route to a NAT or internet gateway, and AWS_VPC_K8S_CNI_EXTERNALSNAT: without \
             SNAT only a NAT gateway translates pods' addresses"
        }
    }
}

pub(super) const NO_PROBE: &str =
    "run kubectl describe on the pod; `ferrule status` shows the node's problems";
