//! The environment of the runtime, including `CNI_ARGS`.

use super::judge;
use cni::{
    args::PodArgs,
    fault::Code,
    invocation::{Attachment, Verb},
};
use config_model::{PodKey, PodName, VethName};
use std::{
    ffi::OsString,
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
};

/// The lines are container ID, interface name, namespace and `CNI_ARGS`. The input is refused with code 4, or
/// arguments and key are the same after they are printed and read again.
pub fn run(data: &[u8]) {
    let mut lines = data.splitn(4, |byte| *byte == b'\n');
    let [container, ifname, netns, args] = [(); 4].map(|()| lines.next().map(<[u8]>::to_vec));
    let var = |name: &str| {
        let bytes = match name {
            "CNI_CONTAINERID" => &container,
            "CNI_IFNAME" => &ifname,
            "CNI_NETNS" => &netns,
            "CNI_ARGS" => &args,
            _ => &None,
        };
        bytes.clone().map(OsString::from_vec)
    };
    for verb in [Verb::Add, Verb::Del, Verb::Check] {
        match Attachment::of(verb, &var) {
            Err(fault) => judge(&fault, &[Code::InvalidEnvironment]),
            Ok(attachment) => {
                assert!(verb == Verb::Del || attachment.netns.is_some(), "{verb:?} without netns");
                assert!(verb != Verb::Add || attachment.pod.pod.is_some(), "ADD without a pod");
                assert_eq!(
                    attachment.container_id.as_bytes(),
                    var("CNI_CONTAINERID").unwrap_or_default().as_bytes()
                );
                round_trip(&attachment);
            }
        }
    }
}

fn round_trip(attachment: &Attachment) {
    let args = &attachment.pod;
    let none = || PodName { namespace: String::new(), name: String::new() };
    let PodName { namespace, name } = args.pod.clone().unwrap_or_else(none);
    let written = format!(
        "K8S_POD_UID={};K8S_POD_NAME={name};K8S_POD_NAMESPACE={namespace};\
         K8S_POD_INFRA_CONTAINER_ID={}",
        args.uid, args.infra_container_id
    );
    assert_eq!(PodArgs::parse(&written).as_ref(), Ok(args), "{written}");
    if let Some(pod) = &args.pod {
        let veth = VethName::of("eni", pod, 0);
        assert_eq!(veth.as_str().len(), 14, "{veth}");
    }
    if let Ok(key) = PodKey::new("aws-cni", &*attachment.container_id, &*attachment.ifname) {
        assert!(key.ifname.len() <= 15, "the interface name {:?} is too long", key.ifname);
        assert!(key.alias().len() < 256, "the alias {:?} is too long", key.alias());
        assert_eq!(PodKey::from_alias(&key.alias()).as_ref(), Some(&key));
    }
}
