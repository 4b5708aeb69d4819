//! Pages of lists as API servers send them. Reads one item at a time and never builds a tree of a page.
//!
//! [`pods`], [`namespaces`] and [`network_policies`] borrow the fields that they need from the page;
//! [`objects`] reads items of any kind. An odd item is read as [`Object::read_as`] reads it. An item without a name,
//! or one that is not an object, is passed on as an error, and the other items stay valid. Only [`objects`] reports
//! notes on pods and namespaces.

mod borrowed;
mod cursor;
mod meta;
mod network_policy;
mod pod;
mod scan;

#[cfg(test)]
mod tests;

pub use borrowed::{
    OperatorView, PeerView, PolicyItem, PolicyView, RequirementView, RuleView, SelectorView,
    ValuesView,
};
pub use cursor::{Page, PageError};
pub use meta::{MetaView, NamespaceView};
pub use pod::{PodView, PortView};

use crate::{Kind, Object, Parsed, Protocol, ReadError};
use cursor::Cursor;
use scan::Scan;
use serde_json::Value;
use serde_json::value::RawValue;

/// Reads a page of pods. The views borrow from the page, so that a caller can collect them.
pub fn pods<'p, E>(page: &'p [u8], mut each: E) -> Result<Page, PageError>
where
    E: FnMut(Result<PodView<'p>, ReadError>),
{
    Cursor::new(page).walk(|cursor| {
        if let Some(view) = cursor.attempt(pod::pod) {
            each(Ok(view));
            return Ok(());
        }
        match slowly(Kind::Pod, cursor.take()?).map(|parsed| parsed.object) {
            Ok(Object::Pod(pod)) => each(Ok(PodView::from(&pod).into_owned())),
            Ok(_) => {}
            Err(error) => each(Err(error)),
        }
        Ok(())
    })
}

/// Reads a page of namespaces.
pub fn namespaces<'p, E>(page: &'p [u8], mut each: E) -> Result<Page, PageError>
where
    E: FnMut(Result<NamespaceView<'p>, ReadError>),
{
    Cursor::new(page).walk(|cursor| {
        if let Some(view) = cursor.attempt(meta::namespace) {
            each(Ok(view));
            return Ok(());
        }
        match slowly(Kind::Namespace, cursor.take()?).map(|parsed| parsed.object) {
            Ok(Object::Namespace(namespace)) => {
                each(Ok(NamespaceView::from(&namespace).into_owned()));
            }
            Ok(_) => {}
            Err(error) => each(Err(error)),
        }
        Ok(())
    })
}

/// Reads a page of NetworkPolicies: those without anything odd are borrowed.
pub fn network_policies<'p, E>(page: &'p [u8], mut each: E) -> Result<Page, PageError>
where
    E: FnMut(Result<PolicyItem<'p>, ReadError>),
{
    Cursor::new(page).walk(|cursor| {
        if let Some(view) = cursor.attempt(network_policy::policy) {
            each(Ok(PolicyItem::Borrowed(view)));
            return Ok(());
        }
        let read = slowly(Kind::NetworkPolicy, cursor.take()?);
        each(read.map(|parsed| PolicyItem::Read(Box::new(parsed))));
        Ok(())
    })
}

/// Reads a page of objects of a kind. NetworkPolicies as API servers write them are read without a
/// tree. An item without notes has an empty list, which allocates no memory.
pub fn objects<E>(kind: Kind, page: &[u8], mut each: E) -> Result<Page, PageError>
where
    E: FnMut(Result<Parsed, ReadError>),
{
    if kind == Kind::NetworkPolicy {
        return network_policies(page, |item| {
            each(item.map(|item| match item {
                PolicyItem::Borrowed(view) => {
                    Parsed { object: Object::NetworkPolicy(view.into()), notes: Vec::new() }
                }
                PolicyItem::Read(parsed) => *parsed,
            }));
        });
    }
    Cursor::new(page).walk(|cursor| {
        each(slowly(kind, cursor.take()?));
        Ok(())
    })
}

fn slowly(kind: Kind, raw: &RawValue) -> Result<Parsed, ReadError> {
    let value: Value =
        serde_json::from_str(raw.get()).map_err(|source| ReadError::NotJson { source })?;
    Object::read_as(kind, &value)
}

fn protocol(scan: &mut Scan<'_>) -> Option<Protocol> {
    if scan.null() {
        return Some(Protocol::Tcp);
    }
    match scan.text()? {
        "TCP" => Some(Protocol::Tcp),
        "UDP" => Some(Protocol::Udp),
        "SCTP" => Some(Protocol::Sctp),
        _ => None,
    }
}
