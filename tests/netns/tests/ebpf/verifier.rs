//! The work of the kernel's verifier. It differs between kernels, and the verifier refuses programs that need too much.

use crate::{Kernel, object};

/// Instructions after which the verifier refuses a program.
const LIMIT: u32 = 1_000_000;

#[test]
fn the_verifier_needs_less_than_a_quarter_of_its_limit() {
    let name = "the_verifier_needs_less_than_a_quarter_of_its_limit";
    let Some(object) = object(name) else { return };
    let mut kernel = Kernel::load(&object, None);
    let counts = kernel.programs.verified_instructions().unwrap();
    let counts: Vec<(&str, u32)> =
        counts.into_iter().map(|(name, count)| (name, count.unwrap())).collect();
    let listed: Vec<String> =
        counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
    let version = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    println!("verified instructions: {} on {}", listed.join(", "), version.trim());
    assert!(counts.iter().all(|(_, count)| *count < LIMIT / 4), "{counts:?}");
}
