#![expect(clippy::unwrap_used, reason = "a failing test panics with its line")]

use super::*;

#[test]
fn release_file_system_and_capabilities_are_read_from_the_nodes_files() {
    let node = tempfile::tempdir().unwrap();
    let (proc, sys) = (node.path().join("proc"), node.path().join("sys"));
    let write = |at: &str, text: &str| {
        let path = proc.join(at);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("sys/kernel/osrelease", "6.1.0-18-amd64\n");
    write("7/status", "Name:\tferrule-agent\nCapPrm:\t0\nCapEff:\t000000c000001000\n");
    write("8/status", "Name:\tferrule-ipamd\nCapEff:\t0000000000003000\n");
    fs::create_dir_all(sys.join("fs/bpf")).unwrap();
    let seen = observe(&proc, &sys, Path::new("/sys/fs/bpf/ferrule/maps"));
    assert_eq!(seen.release, Ok("6.1.0-18-amd64".to_owned()));
    assert_eq!(seen.agents, Ok(vec![0xc0_0000_1000]));
    assert_eq!(seen.has_bpffs, Ok(false), "the folder is on the disk");
    assert_eq!(seen.pins, "/sys/fs/bpf/ferrule/maps");
    let missing = observe(&node.path().join("none"), &sys, Path::new("/"));
    assert!(missing.release.is_err() && missing.agents.is_err());
}
