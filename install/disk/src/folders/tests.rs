#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use config_settings::Settings;
use install_plan::{CONFLIST, aside};
use std::{cell::RefCell, os::unix::fs::MetadataExt as _};
use tempfile::TempDir;

/// A disk that ends after some steps, as if its process were killed: what was done stays.
#[derive(Default)]
struct Ending {
    left: Option<usize>,
    done: RefCell<Vec<String>>,
}

impl Ending {
    fn step<T>(&self, what: String, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        if self.left == Some(self.done.borrow().len()) {
            return Err(io::Error::other("killed"));
        }
        self.done.borrow_mut().push(what);
        act()
    }
}

fn base(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

impl Disk for &Ending {
    fn create(&self, path: &Path) -> io::Result<File> {
        self.step(format!("create {}", base(path)), || RealDisk.create(path))
    }
    fn append(&self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        // A kill may also fall into the middle of a write.
        let (first, rest) = bytes.split_at(bytes.len() / 2);
        self.step("append".to_owned(), || RealDisk.append(file, first))?;
        self.step("append".to_owned(), || RealDisk.append(file, rest))
    }
    fn set_mode(&self, file: &File, mode: u32) -> io::Result<()> {
        self.step(format!("mode {mode:o}"), || RealDisk.set_mode(file, mode))
    }
    fn sync(&self, file: &File) -> io::Result<()> {
        self.step("sync".to_owned(), || RealDisk.sync(file))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let what = format!("rename {} {}", base(from), base(to));
        self.step(what, || RealDisk.rename(from, to))
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.step(format!("remove {}", base(path)), || RealDisk.remove(path))
    }
    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        self.step(format!("sync {}", base(path)), || RealDisk.sync_folder(path))
    }
}

struct Node(TempDir);

impl Node {
    fn new() -> Self {
        let node = Self(tempfile::tempdir().unwrap());
        for folder in ["image", "bin", "net.d"] {
            fs::create_dir(node.path(folder)).unwrap();
        }
        // The head of this very program is that of one that runs here.
        for name in BROUGHT {
            fs::write(node.path("image").join(name), program(name)).unwrap();
        }
        node
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn on<D: Disk>(&self, disk: D) -> Folders<D> {
        Folders::on(disk, &self.path("image"), &self.path("bin"), &self.path("net.d"))
    }

    /// The files of a folder, without the lock's.
    fn holds(&self, folder: &str) -> BTreeMap<String, (u32, Vec<u8>)> {
        let files = files(&self.path(folder)).unwrap().into_iter();
        let files = files.filter(|(name, _)| name != LOCK_FILE);
        let state = |path: &Path| (mode(path), fs::read(path).unwrap());
        files.map(|(name, path)| (name, state(&path))).collect()
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

fn program(name: &str) -> Vec<u8> {
    [header(Path::new("/proc/self/exe")).unwrap(), name.repeat(20_000).into_bytes()].concat()
}

fn desired() -> Conflist {
    crate::conflist(&Settings::defaults())
}

fn install<D: Disk>(folders: &Folders<D>) -> Result<Vec<String>, InstallError> {
    let done = RefCell::new(Vec::new());
    let say = |op: &Op| done.borrow_mut().push(op.to_string());
    let locked = folders.lock()?;
    locked.bring_programs(say)?;
    locked.make_network(&desired(), say)?;
    drop(locked);
    Ok(done.into_inner())
}

fn uninstall<D: Disk>(folders: &Folders<D>) -> Result<(), InstallError> {
    folders.lock()?.remove(false, |_| ()).map(drop)
}

const AWS: &str = r#"{"cniVersion":"0.4.0","name":"aws-cni","plugins":[{"type":"aws-cni"}]}"#;

/// A node of another network, with leftovers of an installer that was killed and an edited conflist.
fn another_networks_node() -> Node {
    let node = Node::new();
    for (name, text) in [
        ("00-early.conf", "{}"),
        ("10-aws.conflist", AWS),
        ("87-podman.conflist", "{}"),
        (".05-ferrule.conflist.ferrule-new", "{\"cni"),
    ] {
        fs::write(node.path("net.d").join(name), text).unwrap();
    }
    fs::write(node.path("bin/aws-cni"), "theirs").unwrap();
    fs::write(node.path("bin/ferrule-cni"), "an older one").unwrap();
    node
}

#[test]
fn installed_programs_and_network_are_complete_executable_and_readable() {
    let node = another_networks_node();
    let done = install(&node.on(RealDisk)).unwrap();
    assert_eq!(done.len(), 6, "{done:?}");
    for name in BROUGHT {
        let there = node.path("bin").join(name);
        assert_eq!((mode(&there), fs::read(&there).unwrap()), (0o755, program(name)));
    }
    assert_eq!(mode(&node.path("net.d").join(CONFLIST)), 0o644);
    let names: Vec<_> = node.holds("net.d").into_keys().collect();
    let away = ["00-early.conf", "10-aws.conflist"].map(aside);
    assert_eq!(names, [&away[0], CONFLIST, &away[1], "87-podman.conflist"]);
    // A second run changes nothing.
    assert_eq!(install(&node.on(RealDisk)).unwrap(), Vec::<String>::new());
    // A mode that somebody has changed is put right.
    let plugin = node.path("bin/ferrule-cni");
    fs::set_permissions(&plugin, fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(install(&node.on(RealDisk)).unwrap(), ["install program ferrule-cni"]);
    assert_eq!(mode(&plugin), 0o755);
}

#[test]
fn a_file_has_its_mode_and_is_durable_before_it_has_its_name() {
    let (node, disk) = (Node::new(), Ending::default());
    install(&node.on(&disk)).unwrap();
    let steps = disk.done.into_inner();
    let of = |name: &str| {
        let start = steps.iter().position(|step| *step == format!("create .{name}.ferrule-new"));
        let rest = steps.iter().skip(start.unwrap());
        rest.filter(|step| *step != "append").take(5).cloned().collect::<Vec<_>>()
    };
    for (name, mode, folder) in
        [("ferrule-cni", "755", "bin"), ("ferrule", "755", "bin"), (CONFLIST, "644", "net.d")]
    {
        let expected = [
            format!("create .{name}.ferrule-new"),
            format!("mode {mode}"),
            "sync".to_owned(),
            format!("rename .{name}.ferrule-new {name}"),
            format!("sync {folder}"),
        ];
        assert_eq!(of(name), expected);
    }
    // The network comes when all it needs is there.
    let at = |what: String| steps.iter().position(|step| *step == what).unwrap();
    assert!(at(format!("create .{CONFLIST}.ferrule-new")) > at("sync bin".to_owned()));
}

/// At every step: no partial file under a final name, never no network, and no foreign file lost.
fn judge(node: &Node, before: &BTreeMap<String, (u32, Vec<u8>)>, moment: &str) {
    let (bin, confs) = (node.holds("bin"), node.holds("net.d"));
    let old = ["an older one".as_bytes().to_vec()];
    for name in BROUGHT {
        let Some((_, bytes)) = bin.get(name) else { continue };
        assert!(*bytes == program(name) || old.contains(bytes), "{moment}: half of {name}");
        assert!(old.contains(bytes) || mode(&node.path("bin").join(name)) == 0o755, "{moment}");
    }
    if let Some((_, bytes)) = confs.get(CONFLIST) {
        let text = String::from_utf8(bytes.clone()).unwrap();
        assert!(text.ends_with("}\n"), "{moment}: half a conflist: {text}");
        assert!(bin.contains_key(PLUGIN), "{moment}: a conflist without its plugin");
    }
    for (name, state) in before.iter().filter(|(name, _)| !name.contains("ferrule")) {
        let there = confs.get(name).or_else(|| confs.get(&aside(name)));
        assert_eq!(there, Some(state), "{moment}: {name}");
    }
    let read = |name: &String| name.ends_with(".conflist") || name.ends_with(".conf");
    assert!(confs.keys().any(read), "{moment}: no network");
    assert_eq!(bin.get("aws-cni").map(|(_, bytes)| &bytes[..]), Some(&b"theirs"[..]), "{moment}");
}

#[test]
fn an_installer_killed_before_any_step_continues_and_uninstall_restores_the_node() {
    let (whole, full) = (another_networks_node(), Ending::default());
    install(&whole.on(&full)).unwrap();
    let steps = full.done.into_inner().len();
    assert!(steps > 30, "{steps}");
    for left in 0..steps {
        let moment = format!("killed before step {left}");
        for goes_on in [true, false] {
            let node = another_networks_node();
            let before = node.holds("net.d");
            let disk = Ending { left: Some(left), ..Ending::default() };
            let error = install(&node.on(&disk)).unwrap_err();
            assert!(matches!(error, InstallError::Step { .. }), "{moment}: {error}");
            judge(&node, &before, &moment);
            if goes_on {
                install(&node.on(RealDisk)).unwrap();
                assert_eq!(node.holds("net.d"), whole.holds("net.d"), "{moment}");
                assert_eq!(node.holds("bin"), whole.holds("bin"), "{moment}");
            } else {
                uninstall(&node.on(RealDisk)).unwrap();
                assert_is_clean(&node, &before, &moment);
            }
        }
    }
}

#[test]
fn an_uninstall_killed_before_any_step_continues_and_may_run_twice() {
    let (node, full) = (another_networks_node(), Ending::default());
    install(&node.on(RealDisk)).unwrap();
    uninstall(&node.on(&full)).unwrap();
    let steps = full.done.into_inner().len();
    assert!(steps > 8, "{steps}");
    for left in 0..steps {
        let moment = format!("killed before step {left}");
        let node = another_networks_node();
        let before = node.holds("net.d");
        install(&node.on(RealDisk)).unwrap();
        let disk = Ending { left: Some(left), ..Ending::default() };
        uninstall(&node.on(&disk)).unwrap_err();
        judge(&node, &before, &moment);
        for _ in 0..2 {
            uninstall(&node.on(RealDisk)).unwrap();
            assert_is_clean(&node, &before, &moment);
        }
    }
}

/// As before, without anything of ours.
fn assert_is_clean(node: &Node, before: &BTreeMap<String, (u32, Vec<u8>)>, moment: &str) {
    let mut others = before.clone();
    others.retain(|name, _| !name.contains("ferrule"));
    assert_eq!(node.holds("net.d"), others, "{moment}");
    assert_eq!(node.holds("bin").into_keys().collect::<Vec<_>>(), ["aws-cni"], "{moment}");
}

#[test]
fn a_missing_folder_is_named_with_its_setting_and_changes_nothing() {
    for (folder, setting) in [("bin", BIN_SETTING), ("net.d", CONF_SETTING)] {
        let node = Node::new();
        fs::remove_dir(node.path(folder)).unwrap();
        let message = install(&node.on(RealDisk)).unwrap_err().to_string();
        assert!(message.contains(setting) && message.contains("is not a folder"), "{message}");
        assert!(!node.path(folder).exists());
        let other = if folder == "bin" { "net.d" } else { "bin" };
        assert!(node.holds(other).is_empty(), "something was done");
    }
}

#[test]
fn a_program_of_another_machine_or_a_truncated_one_is_refused_without_a_change() {
    let header = header(Path::new("/proc/self/exe")).unwrap();
    let mut other = header.clone();
    other[18] ^= 0xff;
    for (bytes, why) in
        [(&other[..], "was built for"), (&header[..12], "is not a complete program")]
    {
        let node = Node::new();
        fs::write(node.path("image/ferrule-cni"), bytes).unwrap();
        let message = install(&node.on(RealDisk)).unwrap_err().to_string();
        assert!(message.contains(why) && message.contains("ferrule-cni"), "{message}");
        assert!(node.holds("bin").is_empty() && node.holds("net.d").is_empty());
    }
    let node = Node::new();
    fs::remove_file(node.path("image/ferrule-cni")).unwrap();
    let message = install(&node.on(RealDisk)).unwrap_err().to_string();
    assert!(message.contains("ferrule-cni is not beside"), "{message}");
}

#[test]
fn missing_plugins_of_the_image_are_installed_and_stay_after_uninstall() {
    let node = Node::new();
    let fallback = node.path("plugins");
    let folders = || node.on(RealDisk).with_fallback(&fallback);
    // An image without them is as good.
    folders().lock().unwrap().bring_programs(|_| ()).unwrap();
    fs::create_dir(&fallback).unwrap();
    for name in ["loopback", "portmap"] {
        fs::write(fallback.join(name), program(name)).unwrap();
    }
    fs::write(node.path("bin/portmap"), "theirs").unwrap();
    let done = install(&folders()).unwrap();
    assert_eq!(done[0], "install plugin loopback, which the node lacks");
    assert_eq!(mode(&node.path("bin/loopback")), 0o755);
    assert_eq!(fs::read(node.path("bin/loopback")).unwrap(), program("loopback"));
    assert_eq!(fs::read(node.path("bin/portmap")).unwrap(), b"theirs");
    assert_eq!(install(&folders()).unwrap(), Vec::<String>::new());
    uninstall(&folders()).unwrap();
    assert_eq!(node.holds("bin").into_keys().collect::<Vec<_>>(), ["loopback", "portmap"]);
}

#[test]
fn a_dangling_link_of_a_network_is_set_aside_unchanged() {
    let node = Node::new();
    let link = node.path("net.d/00-link.conflist");
    std::os::unix::fs::symlink("/nowhere", &link).unwrap();
    install(&node.on(RealDisk)).unwrap();
    assert!(!link.is_symlink());
    uninstall(&node.on(RealDisk)).unwrap();
    assert_eq!(fs::read_link(&link).unwrap(), Path::new("/nowhere"));
}

#[test]
fn two_installers_wait_for_each_other() {
    let node = Node::new();
    let folders = node.on(RealDisk);
    let file = node.path("net.d").join(LOCK_FILE);
    let first = folders.lock().unwrap();
    let refusal = folders.try_lock().err().unwrap();
    assert!(matches!(refusal, InstallError::Locked { .. }), "{refusal:?}");
    let message = refusal.to_string();
    assert!(message.contains(&*file.to_string_lossy()) && message.contains("lslocks"), "{message}");
    assert_eq!(mode(&file), 0o600);
    thread::scope(|scope| {
        let second = scope.spawn(|| folders.lock().map(drop));
        drop(first);
        second.join().unwrap().unwrap();
    });
}

#[test]
fn a_lock_on_the_folders_stops_no_installer() {
    let node = Node::new();
    // Each process that can read the folders can do this.
    let _locks = ["net.d", "bin"].map(|name| {
        let folder = File::open(node.path(name)).unwrap();
        folder.try_lock().unwrap();
        folder
    });
    node.on(RealDisk).try_lock().unwrap();
    install(&node.on(RealDisk)).unwrap();
}

#[test]
fn a_lock_file_that_everybody_can_open_is_closed_to_others() {
    let node = Node::new();
    let file = node.path("net.d").join(LOCK_FILE);
    fs::write(&file, "").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    drop(node.on(RealDisk).try_lock().unwrap());
    assert_eq!(mode(&file), 0o600);
    fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink(node.path("bin"), &file).unwrap();
    let refusal = node.on(RealDisk).try_lock().err().unwrap();
    assert!(matches!(refusal, InstallError::NoLock { .. }), "{refusal:?}");
}

#[test]
fn an_installer_that_waits_during_a_removal_excludes_later_ones() {
    let node = Node::new();
    let folders = node.on(RealDisk);
    let file = node.path("net.d").join(LOCK_FILE);
    for _ in 0..200 {
        let first = folders.lock().unwrap();
        let old = File::open(&file).unwrap();
        first.remove(false, |_| ()).unwrap();
        assert!(!file.exists());
        // The removed file is unlocked now, and locks nothing.
        old.try_lock().unwrap();
        let second = folders.try_lock().unwrap();
        assert!(folders.try_lock().is_err());
        drop(second);
    }
    let count = std::sync::atomic::AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let locked = folders.lock().unwrap();
                    let before = count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    assert_eq!(before, 0, "two installers at once");
                    count.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                    locked.remove(false, |_| ()).unwrap();
                }
            });
        }
    });
}
