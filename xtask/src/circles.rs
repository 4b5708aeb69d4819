//! Circles of files within a crate.
//!
//! The graph of a crate has one vertex per file and one edge per path from a file to an item of another file. Test code
//! (`#[cfg(test)]`) is left out. A name that a module imports or re-exports counts for the file that defines it. A circle
//! is a strongly connected component of two or more files.
//!
//! A circle is allowed if it is a family. One file of a family is an ancestor module of all others. Without that file the
//! others form no circle, or only families. A child module is a part of its parent and may use the parent's items.

use anyhow::{Context as _, Result};
use cargo_metadata::Metadata;
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

/// A module path within a crate; the root is empty.
type ModulePath = Vec<String>;

/// A set of files that use each other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Circle {
    /// Relative to the crate's folder `src`, sorted.
    files: Vec<String>,
}

/// Circles that stay: crate, files, reason.
const ALLOWED: &[(&str, &[&str], &str)] = &[(
    "ipamd-cloud",
    &["ec2/calls.rs", "ec2/create.rs"],
    "the client dispatches each call, and each call uses the client",
)];

/// Crates with circles that are still to be removed, with the number of files in them. The number may only fall; an entry
/// without a circle is a fault.
const NOT_YET: &[(&str, usize)] = &[("ipamd-core", 34)];

#[derive(Debug, Default)]
struct Module {
    file: PathBuf,
    /// Items that the module defines, child modules excluded.
    items: BTreeSet<String>,
    /// Names that the module imports, with their absolute paths within the crate.
    imports: BTreeMap<String, ModulePath>,
    /// Modules whose items the module imports with `*`.
    globs: Vec<ModulePath>,
    /// Absolute paths that the module's code uses.
    uses: BTreeSet<ModulePath>,
}

/// The faults of all crates but those of `tests`.
pub(crate) fn faults(metadata: &Metadata) -> Result<Vec<String>> {
    let mut found: Vec<(String, Circle)> = Vec::new();
    for package in metadata.workspace_packages() {
        let name = package.name.to_string();
        if name.starts_with("tests-") {
            continue;
        }
        let src = package.manifest_path.with_file_name("src");
        for target in package.targets.iter().filter(|target| target.src_path.starts_with(&src)) {
            let read = Crate::read(target.src_path.as_std_path()).context(name.clone())?;
            found.extend(
                read.circles(src.as_std_path()).into_iter().map(|circle| (name.clone(), circle)),
            );
        }
    }
    Ok(judge(&found, ALLOWED, NOT_YET))
}

/// Compares circles with the two lists.
fn judge(
    found: &[(String, Circle)],
    allowed: &[(&str, &[&str], &str)],
    not_yet: &[(&str, usize)],
) -> Vec<String> {
    let is_circle = |of: &str, files: &[&str]| {
        found.iter().any(|(name, circle)| name == of && circle.files == files)
    };
    let mut faults: Vec<String> = allowed
        .iter()
        .filter(|(name, files, _)| !is_circle(name, files))
        .map(|(name, files, _)| {
            format!("{name}: {} is no longer a circle; remove it from ALLOWED", files.join(", "))
        })
        .collect();
    let is_allowed = |name: &str, circle: &Circle| {
        allowed.iter().any(|(of, files, _)| *of == name && circle.files == *files)
    };
    let mut rest: BTreeMap<&str, Vec<&Circle>> = BTreeMap::new();
    for (name, circle) in found.iter().filter(|(name, circle)| !is_allowed(name, circle)) {
        rest.entry(name).or_default().push(circle);
    }
    for (name, circles) in &rest {
        let count: usize = circles.iter().map(|circle| circle.files.len()).sum();
        let limit = not_yet.iter().find(|(of, _)| of == name).map_or(0, |(_, limit)| *limit);
        if count > limit {
            let shown: Vec<String> =
                circles.iter().map(|circle| circle.files.join(" <-> ")).collect();
            faults.push(format!(
                "{name}: these files use each other: {}; move what they share to a file of its own",
                shown.join("; ")
            ));
        }
    }
    let gone = not_yet.iter().filter(|(name, _)| !rest.contains_key(name));
    faults.extend(gone.map(|(name, _)| format!("{name} has no circle; remove it from NOT_YET")));
    faults
}

/// All modules of one crate root (`lib.rs` or `main.rs`).
#[derive(Debug, Default)]
struct Crate {
    modules: BTreeMap<ModulePath, Module>,
}

/// A path as the source has it, before it is made absolute.
#[derive(Debug)]
struct Import {
    path: Vec<String>,
    alias: Option<String>,
    glob: bool,
}

impl Crate {
    /// Reads the module tree below a root file.
    fn read(root: &Path) -> io::Result<Self> {
        let mut read = Self::default();
        let folder = root.parent().unwrap_or(Path::new(""));
        read.file(root, folder, &[])?;
        Ok(read)
    }

    /// `folder` holds the files of the module's children.
    fn file(&mut self, file: &Path, folder: &Path, path: &[String]) -> io::Result<()> {
        let text = fs::read_to_string(file).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot read {}: {error}", file.display()))
        })?;
        let tokens = text.parse::<TokenStream>().map_err(|error| {
            io::Error::other(format!("cannot parse {}: {error}", file.display()))
        })?;
        self.body(tokens, file, folder, path)
    }

    fn body(
        &mut self,
        tokens: TokenStream,
        file: &Path,
        folder: &Path,
        path: &[String],
    ) -> io::Result<()> {
        let trees = without_tests(tokens);
        self.modules.insert(path.to_vec(), Module { file: file.to_owned(), ..Module::default() });
        let mut children = Vec::new();
        let mut rest = Vec::new();
        let mut at = 0;
        while let Some(tree) = trees.get(at) {
            let name = |offset: usize| trees.get(at + offset).and_then(ident);
            match (ident(tree).as_deref(), name(1), trees.get(at + 2)) {
                (Some("mod"), Some(child), Some(TokenTree::Punct(_))) => {
                    // A `#[path]` module belongs to another folder.
                    if folder.join(format!("{child}.rs")).exists() {
                        children.push((child, None));
                    }
                    at += 3;
                }
                (Some("mod"), Some(child), Some(TokenTree::Group(body))) => {
                    children.push((child, Some(body.stream())));
                    at += 3;
                }
                (
                    Some(
                        "fn" | "struct" | "enum" | "trait" | "type" | "const" | "static" | "union"
                        | "macro_rules",
                    ),
                    name,
                    next,
                ) => {
                    let module = self.module(path);
                    module.items.extend(name);
                    // `macro_rules! name`
                    module.items.extend(next.and_then(ident));
                    rest.push(tree.clone());
                    at += 1;
                }
                _ => {
                    rest.push(tree.clone());
                    at += 1;
                }
            }
        }
        let names: BTreeSet<String> = children.iter().map(|(name, _)| name.clone()).collect();
        for (child, body) in children {
            let below: Vec<String> = path.iter().cloned().chain([child.clone()]).collect();
            let folder_below = folder.join(&child);
            match body {
                Some(body) => self.body(body, file, &folder_below, &below)?,
                None => {
                    let file = folder.join(format!("{child}.rs"));
                    self.file(&file, &folder_below, &below)?;
                }
            }
        }
        let module = self.module(path);
        paths(&rest, path, &names, module);
        Ok(())
    }

    fn module(&mut self, path: &[String]) -> &mut Module {
        self.modules.entry(path.to_vec()).or_default()
    }

    /// The module whose file defines the item of an absolute path; `None` if the path names a module only.
    fn defines(&self, path: &[String], depth: usize) -> Option<&Module> {
        let mut at = ModulePath::new();
        for (index, segment) in path.iter().enumerate() {
            let module = self.modules.get(&at)?;
            let is_last = index + 1 == path.len();
            if is_last && module.items.contains(segment) {
                return Some(module);
            }
            let below: ModulePath = at.iter().cloned().chain([segment.clone()]).collect();
            if self.modules.contains_key(&below) {
                at = below;
                continue;
            }
            if depth == 0 || module.items.contains(segment) {
                return Some(module);
            }
            if let Some(import) = module.imports.get(segment) {
                let whole: ModulePath =
                    import.iter().chain(path.iter().skip(index + 1)).cloned().collect();
                return self.defines(&whole, depth - 1);
            }
            let from_glob = module.globs.iter().find_map(|glob| {
                let whole: ModulePath = glob.iter().chain([segment]).cloned().collect();
                let found = self.defines(&whole, depth - 1)?;
                found.items.contains(segment).then_some(found)
            });
            return from_glob.or(Some(module));
        }
        None
    }

    /// The edges between files.
    fn edges(&self) -> BTreeMap<&Path, BTreeSet<&Path>> {
        let mut edges: BTreeMap<&Path, BTreeSet<&Path>> = BTreeMap::new();
        for module in self.modules.values() {
            let from = edges.entry(&module.file).or_default();
            let targets = module.uses.iter().filter_map(|path| self.defines(path, 8));
            from.extend(targets.map(|target| &*target.file).filter(|file| *file != module.file));
        }
        edges
    }

    /// The circles that are no families.
    fn circles(&self, src: &Path) -> Vec<Circle> {
        let edges = self.edges();
        let paths: BTreeMap<&Path, &ModulePath> =
            self.modules.iter().rev().map(|(path, module)| (&*module.file, path)).collect();
        let all = edges.keys().copied().collect();
        let mut circles = Vec::new();
        without_families(&all, &edges, &paths, &mut circles);
        let name = |file: &&Path| file.strip_prefix(src).unwrap_or(file).display().to_string();
        circles.iter().map(|files| Circle { files: files.iter().map(name).collect() }).collect()
    }
}

/// Adds the components within `of` that have no common ancestor; a component with one is searched without it.
fn without_families<'a>(
    of: &BTreeSet<&'a Path>,
    edges: &BTreeMap<&'a Path, BTreeSet<&'a Path>>,
    paths: &BTreeMap<&Path, &ModulePath>,
    circles: &mut Vec<BTreeSet<&'a Path>>,
) {
    for mut files in components(edges, of) {
        let ancestor =
            |file: &&&Path| files.iter().all(|other| paths[other].starts_with(paths[**file]));
        match files.iter().find(ancestor).copied() {
            Some(parent) => {
                files.remove(parent);
                without_families(&files, edges, paths, circles);
            }
            None => circles.push(files),
        }
    }
}

/// Strongly connected components of two or more vertices, within `of`.
fn components<'a>(
    edges: &BTreeMap<&'a Path, BTreeSet<&'a Path>>,
    of: &BTreeSet<&'a Path>,
) -> Vec<BTreeSet<&'a Path>> {
    // The graphs have at most a hundred vertices: two files are in one component if each reaches the other.
    let reached: BTreeMap<&Path, BTreeSet<&Path>> = of
        .iter()
        .map(|start| {
            let mut seen = BTreeSet::new();
            let mut open = vec![*start];
            while let Some(file) = open.pop() {
                let next = edges.get(file).into_iter().flatten();
                open.extend(next.copied().filter(|to| of.contains(to) && seen.insert(*to)));
            }
            (*start, seen)
        })
        .collect();
    let mut found = BTreeSet::new();
    for (start, targets) in &reached {
        if targets.contains(start) {
            found.insert(
                targets
                    .iter()
                    .copied()
                    .filter(|to| reached[to].contains(start))
                    .collect::<BTreeSet<_>>(),
            );
        }
    }
    found.into_iter().filter(|files| files.len() > 1).collect()
}

fn ident(tree: &TokenTree) -> Option<String> {
    match tree {
        TokenTree::Ident(ident) => Some(ident.to_string()),
        TokenTree::Group(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => None,
    }
}

fn is_punct(tree: Option<&TokenTree>, wanted: char) -> bool {
    matches!(tree, Some(TokenTree::Punct(punct)) if punct.as_char() == wanted)
}

/// The tokens of a level without the items behind `#[cfg(test)]`.
fn without_tests(tokens: TokenStream) -> Vec<TokenTree> {
    let mut kept = Vec::new();
    let mut trees = tokens.into_iter().peekable();
    while let Some(tree) = trees.next() {
        let attribute = match trees.peek() {
            Some(TokenTree::Group(group)) if is_punct(Some(&tree), '#') => {
                Some(group.stream().to_string().replace(' ', ""))
            }
            _ => None,
        };
        if attribute.as_deref() != Some("cfg(test)") {
            kept.push(tree);
            continue;
        }
        trees.next();
        for skipped in trees.by_ref() {
            let is_body = matches!(&skipped, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace);
            if is_body || is_punct(Some(&skipped), ';') {
                break;
            }
        }
    }
    kept
}

/// Collects imports and paths of a module's tokens, groups included.
fn paths(trees: &[TokenTree], of: &[String], children: &BTreeSet<String>, module: &mut Module) {
    let mut statements = Vec::new();
    let mut code = Vec::new();
    split(trees, &mut statements, &mut code);
    let mut imports = Vec::new();
    for statement in &statements {
        import_tree(statement, &[], &mut imports);
    }
    for import in imports {
        let Some(path) = absolute(&import.path, of, children, &BTreeMap::new()) else { continue };
        if import.glob {
            module.globs.push(path);
            continue;
        }
        let name = import.alias.or_else(|| path.last().cloned()).unwrap_or_default();
        module.uses.insert(path.clone());
        module.imports.insert(name, path);
    }
    for path in code {
        module.uses.extend(absolute(&path, of, children, &module.imports));
    }
}

/// Separates `use` statements from the paths of the remaining code.
fn split(trees: &[TokenTree], statements: &mut Vec<Vec<TokenTree>>, code: &mut Vec<Vec<String>>) {
    let mut at = 0;
    while let Some(tree) = trees.get(at) {
        match tree {
            TokenTree::Group(group) => {
                split(&without_tests(group.stream()), statements, code);
                at += 1;
            }
            TokenTree::Ident(name) if name == "use" => {
                let end = trees.iter().skip(at).position(|tree| is_punct(Some(tree), ';'));
                let end = end.map_or(trees.len(), |end| at + end);
                statements.push(trees.get(at + 1..end).unwrap_or_default().to_vec());
                at = end + 1;
            }
            TokenTree::Ident(name) => {
                let mut path = vec![name.to_string()];
                at += 1;
                while is_punct(trees.get(at), ':') && is_punct(trees.get(at + 1), ':') {
                    let Some(next) = trees.get(at + 2).and_then(ident) else { break };
                    path.push(next);
                    at += 3;
                }
                if path.len() > 1 {
                    code.push(path);
                }
            }
            TokenTree::Punct(_)
                if is_punct(Some(tree), ':') && is_punct(trees.get(at + 1), ':') =>
            {
                // `::name` of another crate, or `<T>::name`: skip the name.
                at += 3;
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => at += 1,
        }
    }
}

/// Expands `a::{b, c as d, e::*}`.
fn import_tree(trees: &[TokenTree], prefix: &[String], imports: &mut Vec<Import>) {
    for part in trees.split(|tree| is_punct(Some(tree), ',')) {
        let mut path = prefix.to_vec();
        let mut alias = None;
        let mut nested = false;
        let mut glob = false;
        let mut part = part.iter();
        while let Some(tree) = part.next() {
            match tree {
                TokenTree::Ident(name) if name == "as" => alias = part.next().and_then(ident),
                TokenTree::Ident(name) if name == "self" && !path.is_empty() => {}
                TokenTree::Ident(name) => path.push(name.to_string()),
                TokenTree::Group(group) => {
                    nested = true;
                    let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                    import_tree(&inner, &path, imports);
                }
                TokenTree::Punct(punct) => glob |= punct.as_char() == '*',
                TokenTree::Literal(_) => {}
            }
        }
        if !nested && path.len() > prefix.len() || glob || alias.is_some() {
            imports.push(Import { path, alias, glob });
        } else if !nested && !path.is_empty() {
            // `a::{self}`
            imports.push(Import { path, alias, glob });
        }
    }
}

/// The path from the crate's root; `None` for a path of another crate.
fn absolute(
    path: &[String],
    of: &[String],
    children: &BTreeSet<String>,
    imports: &BTreeMap<String, ModulePath>,
) -> Option<ModulePath> {
    let first = path.first()?;
    let mut rest = path;
    let mut base = of.to_vec();
    match first.as_str() {
        "crate" => {
            base.clear();
            rest = rest.get(1..)?;
        }
        "self" => rest = rest.get(1..)?,
        "super" => {
            while rest.first().is_some_and(|segment| segment == "super") {
                base.pop()?;
                rest = rest.get(1..)?;
            }
        }
        name if children.contains(name) => {}
        name => {
            base = imports.get(name)?.clone();
            rest = rest.get(1..)?;
        }
    }
    base.extend(rest.iter().cloned());
    Some(base)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;

    /// The circles of a crate that consists of these files.
    fn circles(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let file = folder.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        let read = Crate::read(&folder.path().join("lib.rs")).unwrap();
        read.circles(folder.path()).into_iter().map(|circle| circle.files).collect()
    }

    #[test]
    fn two_files_that_use_each_other_are_a_circle() {
        let planted = circles(&[
            ("lib.rs", "mod a;\nmod b;\npub use a::A;"),
            ("a.rs", "use crate::b::B;\npub struct A(B);"),
            ("b.rs", "pub struct B;\nfn f() -> super::a::A { todo!() }"),
        ]);
        assert_eq!(planted, [["a.rs", "b.rs"]]);
    }

    #[test]
    fn a_reexport_counts_for_the_file_that_defines_the_item() {
        let planted = circles(&[
            ("lib.rs", "mod a;\nmod b;\npub use a::A;\npub use b::*;"),
            ("a.rs", "use crate::B;\npub struct A(B);"),
            ("b.rs", "pub struct B;\nfn f() { println!(\"{:?}\", crate::A::new()) }"),
        ]);
        assert_eq!(planted, [["a.rs", "b.rs"]]);
    }

    #[test]
    fn a_circle_through_a_module_name_is_found() {
        let planted = circles(&[
            ("lib.rs", "mod a;\nmod b;"),
            ("a.rs", "use crate::b;\npub fn f() { b::g() }"),
            ("b.rs", "use super::{a::{self, f as h}};\npub fn g() { h(); a::f() }"),
        ]);
        assert_eq!(planted, [["a.rs", "b.rs"]]);
    }

    #[test]
    fn a_parent_and_its_children_are_no_circle() {
        let family = circles(&[
            ("lib.rs", "mod a;\nstruct Root;"),
            ("a.rs", "mod b;\nmod c;\nuse crate::Root;\npub struct A;\nfn f() { b::g(); c::h() }"),
            ("a/b.rs", "use super::A;\npub fn g() {}"),
            ("a/c.rs", "use super::{A, b::g};\npub fn h() {}"),
        ]);
        assert!(family.is_empty(), "{family:?}");
    }

    #[test]
    fn siblings_in_a_circle_are_found_within_a_family() {
        let planted = circles(&[
            ("lib.rs", "mod a;"),
            ("a.rs", "mod b;\nmod c;\npub struct A;\nfn f() { b::g(); c::h() }"),
            ("a/b.rs", "use super::{A, c::h};\npub fn g() {}"),
            ("a/c.rs", "use super::b::g;\npub fn h() {}"),
        ]);
        assert_eq!(planted, [["a/b.rs", "a/c.rs"]]);
    }

    #[test]
    fn a_file_outside_the_family_makes_a_circle_of_it() {
        let planted = circles(&[
            ("lib.rs", "mod a;\nmod d;"),
            ("a.rs", "mod b;\npub struct A;\nfn f() { b::g() }"),
            ("a/b.rs", "use crate::d::D;\npub fn g() {}"),
            ("d.rs", "use crate::a::A;\npub struct D;"),
        ]);
        assert_eq!(planted, [["a/b.rs", "a.rs", "d.rs"]]);
    }

    #[test]
    fn tests_and_texts_are_left_out() {
        let none = circles(&[
            ("lib.rs", "mod a;\nmod b;"),
            ("a.rs", "use crate::b::B;\npub struct A(B);"),
            (
                "b.rs",
                "/// See crate::a::A.\npub struct B;\nconst TEXT: &str = \"crate::a::A\";\n\
                 #[cfg(test)]\nmod tests { use crate::a::A; }\n#[cfg(test)]\nuse crate::a::A;",
            ),
        ]);
        assert!(none.is_empty(), "{none:?}");
    }

    #[test]
    fn lists_excuse_circles_and_must_shrink_with_them() {
        let circle = |files: &[&str]| Circle {
            files: files.iter().map(|file| (*file).to_owned()).collect(),
        };
        let found = [
            ("one".to_owned(), circle(&["a.rs", "b.rs"])),
            ("one".to_owned(), circle(&["c.rs", "d.rs", "e.rs"])),
        ];
        let allowed: &[(&str, &[&str], &str)] = &[("one", &["a.rs", "b.rs"], "a reason")];
        assert_eq!(judge(&found, allowed, &[("one", 3)]), Vec::<String>::new());
        assert_eq!(judge(&found, allowed, &[("one", 2)]).len(), 1);
        assert_eq!(judge(&found, &[], &[("one", 3)]).len(), 1);
        assert_eq!(judge(&found, allowed, &[]).len(), 1);
        assert_eq!(judge(&found, allowed, &[("one", 3), ("two", 1)]).len(), 1);
        assert_eq!(judge(&found[1..], allowed, &[("one", 3)]).len(), 1);
        assert_eq!(judge(&[], &[], &[]), Vec::<String>::new());
    }

    #[test]
    fn each_exception_has_a_reason() {
        assert!(ALLOWED.iter().all(|(.., reason)| reason.split_whitespace().count() > 3));
    }
}
