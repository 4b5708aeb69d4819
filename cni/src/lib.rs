//! ferrule-cni: one pod's veth, routes and rules.
