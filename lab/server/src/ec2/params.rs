//! The parameters of an EC2 Query request: a flat form whose dots and numbers spell a tree.

use std::collections::BTreeMap;

/// Defect of a parameter; EC2 has a code for each.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ParamError {
    /// A parameter that the action does not have.
    #[error("The parameter {0} is not recognized (by the lab's EC2; AWS may know it)")]
    Unknown(String),
    /// A parameter that the action cannot do without.
    #[error("The request must contain the parameter {0}")]
    Missing(String),
    /// Text that is not of the parameter's type.
    #[error("Value ({value}) for parameter {name} is invalid. {wanted}")]
    Invalid {
        /// The parameter.
        name: String,
        value: String,
        /// The expected value, as a sentence.
        wanted: &'static str,
    },
}

impl ParamError {
    /// EC2's own code for it.
    pub(super) fn code(&self) -> &'static str {
        match self {
            Self::Unknown(_) => "UnknownParameter",
            Self::Missing(_) => "MissingParameter",
            Self::Invalid { .. } => "InvalidParameterValue",
        }
    }
}

/// A set of parameters that shrinks as they are taken, so that what is left was not understood.
#[derive(Debug, Default)]
pub(super) struct Params {
    prefix: String,
    values: BTreeMap<String, String>,
}

impl Params {
    /// Reads an `application/x-www-form-urlencoded` text.
    pub(super) fn parse(form: &[u8]) -> Self {
        let values = form_urlencoded::parse(form).into_owned().collect();
        Self { prefix: String::new(), values }
    }

    /// Takes a text that may be absent.
    pub(super) fn text(&mut self, name: &str) -> Option<String> {
        self.values.remove(name)
    }

    /// Takes a text that must be there.
    ///
    /// # Errors
    /// [`ParamError::Missing`].
    pub(super) fn required(&mut self, name: &str) -> Result<String, ParamError> {
        self.text(name).ok_or_else(|| ParamError::Missing(self.full(name)))
    }

    /// Takes anything that has a text form.
    ///
    /// # Errors
    /// [`ParamError::Invalid`] with `wanted` when the text does not parse.
    pub(super) fn parsed<T: std::str::FromStr>(
        &mut self,
        name: &str,
        wanted: &'static str,
    ) -> Result<Option<T>, ParamError> {
        self.text(name).map(|value| parse(&self.full(name), value, wanted)).transpose()
    }

    /// Takes a flag; absent is `None`.
    ///
    /// # Errors
    /// [`ParamError::Invalid`] for anything but `true` and `false`.
    pub(super) fn flag(&mut self, name: &str) -> Result<Option<bool>, ParamError> {
        let lower = self.text(name).map(|value| value.to_ascii_lowercase());
        lower.map(|value| parse(&self.full(name), value, "It must be true or false.")).transpose()
    }

    /// Takes `name.1`, `name.2`, … in the order of their numbers.
    pub(super) fn list(&mut self, name: &str) -> Vec<String> {
        self.structs(name).into_iter().filter_map(|mut item| item.text("")).collect()
    }

    /// Takes a list whose members have a text form.
    ///
    /// # Errors
    /// [`ParamError::Invalid`] for the first member that does not parse.
    pub(super) fn parsed_list<T: std::str::FromStr>(
        &mut self,
        name: &str,
        wanted: &'static str,
    ) -> Result<Vec<T>, ParamError> {
        let full = self.full(name);
        self.list(name).into_iter().map(|value| parse(&full, value, wanted)).collect()
    }

    /// Takes `name.1.…`, `name.2.…`, each as a set of its own, in the order of their numbers.
    pub(super) fn structs(&mut self, name: &str) -> Vec<Self> {
        let mut members: BTreeMap<u32, Self> = BTreeMap::new();
        for (rest, value) in self.below(name) {
            let (number, field) = rest.split_once('.').unwrap_or((&rest, ""));
            let Ok(index) = number.parse() else {
                self.values.insert(format!("{name}.{rest}"), value);
                continue;
            };
            let prefix = format!("{}.{number}", self.full(name));
            let member = members.entry(index).or_insert(Self { prefix, values: BTreeMap::new() });
            member.values.insert(field.to_owned(), value);
        }
        members.into_values().collect()
    }

    /// Takes `name.…` as a set of its own; `None` when there is nothing below the name.
    pub(super) fn nested(&mut self, name: &str) -> Option<Self> {
        let values = self.below(name);
        (!values.is_empty()).then(|| Self { prefix: self.full(name), values })
    }

    /// Forgets the signature that a GET carries among its parameters.
    pub(super) fn drop_signature(&mut self) {
        self.values.retain(|name, _| !name.starts_with("X-Amz-"));
    }

    /// Ends the reading.
    ///
    /// # Errors
    /// [`ParamError::Unknown`] with the first parameter that was not read.
    pub(super) fn finish(self) -> Result<(), ParamError> {
        match self.values.keys().next() {
            Some(name) => Err(ParamError::Unknown(self.full(name))),
            None => Ok(()),
        }
    }

    fn below(&mut self, name: &str) -> BTreeMap<String, String> {
        let dotted = format!("{name}.");
        let keys: Vec<String> =
            self.values.keys().filter(|key| key.starts_with(&dotted)).cloned().collect();
        keys.into_iter()
            .filter_map(|key| Some((key[dotted.len()..].to_owned(), self.values.remove(&key)?)))
            .collect()
    }

    fn full(&self, name: &str) -> String {
        match (self.prefix.is_empty(), name.is_empty()) {
            (true, _) => name.to_owned(),
            (false, true) => self.prefix.clone(),
            (false, false) => format!("{}.{name}", self.prefix),
        }
    }
}

fn parse<T: std::str::FromStr>(
    name: &str,
    value: String,
    wanted: &'static str,
) -> Result<T, ParamError> {
    value.parse().map_err(|_| ParamError::Invalid { name: name.to_owned(), value, wanted })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn members_of_a_list_are_in_the_order_of_their_numbers() {
        let mut params = Params::parse(b"InstanceId.10=j&InstanceId.2=b&InstanceId.1=a");
        assert_eq!(params.list("InstanceId"), ["a", "b", "j"]);
        params.finish().unwrap();
    }

    #[test]
    fn a_list_of_structures_becomes_sets_of_their_own() {
        let mut params = Params::parse(
            b"Filter.1.Name=tag%3Acluster%2Fname&Filter.1.Value.1=a+b&Filter.1.Value.2=c&Filter.2.Name=x",
        );
        let mut filters = params.structs("Filter");
        assert_eq!(filters.len(), 2);
        assert_eq!(filters[0].text("Name").as_deref(), Some("tag:cluster/name"));
        assert_eq!(filters[0].list("Value"), ["a b", "c"]);
        params.finish().unwrap();
    }

    #[test]
    fn an_unknown_parameter_is_reported_by_its_full_name() {
        let mut params = Params::parse(b"Filter.1.Nmae=x");
        let filter = params.structs("Filter").remove(0);
        assert_eq!(filter.finish(), Err(ParamError::Unknown("Filter.1.Nmae".into())));
        let params = Params::parse(b"Color=red");
        assert_eq!(params.finish(), Err(ParamError::Unknown("Color".into())));
    }

    #[test]
    fn a_value_of_the_wrong_type_is_named() {
        let mut params = Params::parse(b"MaxResults=ten&DryRun=TRUE&Force=yes");
        let err = params.parsed::<u32>("MaxResults", "It must be a number.").unwrap_err();
        assert!(err.to_string().contains("(ten) for parameter MaxResults"), "{err}");
        assert_eq!(params.flag("DryRun"), Ok(Some(true)));
        assert_eq!(params.flag("Force").unwrap_err().code(), "InvalidParameterValue");
        assert_eq!(params.required("Gone").unwrap_err().code(), "MissingParameter");
    }
}
