//! Metadata of every object, and namespaces, which have no other fields.

use super::scan::{Once, Scan};
use crate::{LOGGING, Labels, Meta, NAME_LABEL, Namespace};
use std::borrow::Cow;

/// The identity of an object, borrowed by a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaView<'a> {
    /// Its namespace; empty for kinds of the cluster.
    pub namespace: Cow<'a, str>,
    pub name: Cow<'a, str>,
    pub uid: Cow<'a, str>,
    /// Its labels, sorted by key, each key once.
    pub labels: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    pub created: Cow<'a, str>,
    /// Counts changes of its spec.
    pub generation: i64,
}

/// A namespace, borrowed by a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceView<'a> {
    /// Its identity; among the labels is its name.
    pub meta: MetaView<'a>,
    /// Its annotation `networkpolicy.antrea.io/enable-logging`.
    pub logging: Option<Cow<'a, str>>,
}

/// Reads `metadata`; other keys than those of every kind go to `more`.
pub(super) fn meta<'p>(
    scan: &mut Scan<'p>,
    namespaced: bool,
    mut more: impl FnMut(&mut Scan<'p>, &'p str) -> Option<()>,
) -> Option<MetaView<'p>> {
    let mut seen = Once::default();
    let (mut namespace, mut name, mut uid, mut created) = ("", "", "", "");
    let (mut labels, mut generation) = (Vec::new(), 0);
    scan.object(|scan, key| {
        match key {
            "name" => {
                seen.see(0)?;
                name = scan.some_text()?;
            }
            "namespace" => {
                seen.see(1)?;
                namespace = scan.some_text()?;
            }
            "uid" => {
                seen.see(2)?;
                uid = scan.some_text()?;
            }
            "labels" => {
                seen.see(3)?;
                labels = texts(scan)?;
            }
            "creationTimestamp" => {
                seen.see(4)?;
                created = scan.some_text()?;
            }
            "generation" => {
                seen.see(5)?;
                generation = scan.count()?;
            }
            _ => more(scan, key)?,
        }
        Some(())
    })?;
    (!name.is_empty() && namespace.is_empty() != namespaced).then_some(MetaView {
        namespace: Cow::Borrowed(namespace),
        name: Cow::Borrowed(name),
        uid: Cow::Borrowed(uid),
        labels,
        created: Cow::Borrowed(created),
        generation,
    })
}

/// Reads one of an object's annotations.
pub(super) fn annotation<'p>(
    scan: &mut Scan<'p>,
    wanted: &str,
    into: &mut Option<Cow<'p, str>>,
) -> Option<()> {
    let mut seen = Once::default();
    scan.some_object(|scan, key| {
        if key != wanted {
            return scan.skip();
        }
        seen.see(0)?;
        *into = Some(Cow::Borrowed(scan.text()?));
        Some(())
    })
}

fn texts<'p>(scan: &mut Scan<'p>) -> Option<Vec<(Cow<'p, str>, Cow<'p, str>)>> {
    let mut texts = Vec::new();
    scan.some_object(|scan, key| {
        texts.push((Cow::Borrowed(key), Cow::Borrowed(scan.text()?)));
        Some(())
    })?;
    let ascend = |texts: &[(Cow<'_, str>, Cow<'_, str>)]| texts.is_sorted_by(|a, b| a.0 < b.0);
    if !ascend(&texts) {
        texts.sort_unstable();
    }
    ascend(&texts).then_some(texts)
}

/// Reads a namespace.
pub(super) fn namespace<'p>(scan: &mut Scan<'p>) -> Option<NamespaceView<'p>> {
    let mut seen = Once::default();
    let (mut read, mut logging) = (None, None);
    scan.object(|scan, key| {
        if key != "metadata" {
            return scan.skip();
        }
        seen.see(0)?;
        read = Some(meta(scan, false, |scan, key| {
            if key != "annotations" {
                return scan.skip();
            }
            seen.see(1)?;
            annotation(scan, LOGGING, &mut logging)
        })?);
        Some(())
    })?;
    let mut meta: MetaView<'p> = read?;
    let name = meta.name.clone();
    match meta.labels.binary_search_by(|(key, _)| key.as_ref().cmp(NAME_LABEL)) {
        Ok(at) => meta.labels[at].1 = name,
        Err(at) => meta.labels.insert(at, (Cow::Borrowed(NAME_LABEL), name)),
    }
    Some(NamespaceView { meta, logging })
}

impl<'a> From<&'a Meta> for MetaView<'a> {
    fn from(meta: &'a Meta) -> Self {
        let labels = meta.labels.iter();
        Self {
            namespace: Cow::Borrowed(&meta.namespace),
            name: Cow::Borrowed(&meta.name),
            uid: Cow::Borrowed(&meta.uid),
            labels: labels.map(|(key, value)| (key.into(), value.into())).collect(),
            created: Cow::Borrowed(&meta.created),
            generation: meta.generation,
        }
    }
}

impl MetaView<'_> {
    pub(super) fn into_owned(self) -> MetaView<'static> {
        let labels = self.labels.into_iter();
        MetaView {
            namespace: owned(self.namespace),
            name: owned(self.name),
            uid: owned(self.uid),
            labels: labels.map(|(key, value)| (owned(key), owned(value))).collect(),
            created: owned(self.created),
            generation: self.generation,
        }
    }
}

pub(super) fn owned(text: Cow<'_, str>) -> Cow<'static, str> {
    Cow::Owned(text.into_owned())
}

impl NamespaceView<'_> {
    pub(super) fn into_owned(self) -> NamespaceView<'static> {
        NamespaceView { meta: self.meta.into_owned(), logging: self.logging.map(owned) }
    }
}

impl From<MetaView<'_>> for Meta {
    fn from(view: MetaView<'_>) -> Self {
        let labels = view.labels.into_iter();
        Self {
            namespace: view.namespace.into_owned(),
            name: view.name.into_owned(),
            uid: view.uid.into_owned(),
            labels: labels.map(|(key, value)| (key.into_owned(), value.into_owned())).collect(),
            annotations: Labels::new(),
            created: view.created.into_owned(),
            generation: view.generation,
        }
    }
}

impl<'a> From<&'a Namespace> for NamespaceView<'a> {
    fn from(namespace: &'a Namespace) -> Self {
        let logging = namespace.meta.annotations.get(LOGGING);
        Self { meta: MetaView::from(&namespace.meta), logging: logging.map(Cow::from) }
    }
}

impl From<NamespaceView<'_>> for Namespace {
    fn from(view: NamespaceView<'_>) -> Self {
        let mut meta = Meta::from(view.meta);
        if let Some(logging) = view.logging {
            meta.annotations.insert(LOGGING.to_owned(), logging.into_owned());
        }
        Self { meta }
    }
}
