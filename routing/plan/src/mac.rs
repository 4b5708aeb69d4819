//! Ethernet addresses of pod interfaces.

use config_model::{Mac, PodKey};

/// The Ethernet addresses of a pod interface: host end, pod's end. They are derived from the key, so no randomness is
/// needed and a packet capture shows the pod. Since they are locally administered, udev does not change them.
pub fn mac_addresses(key: &PodKey) -> [Mac; 2] {
    let digest = key.digest();
    let byte = |at: usize| u8::from_str_radix(&digest[2 * at..2 * at + 2], 16).unwrap_or(0);
    [0, 6].map(|from| {
        let mut bytes: [u8; 6] = std::array::from_fn(|at| byte(from + at));
        bytes[0] = (bytes[0] & 0xfc) | 0x02;
        Mac(bytes)
    })
}
