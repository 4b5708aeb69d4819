use crate::{Block, DomainName, FqdnPattern, Labels, Operator, PortRange, Requirement, Selector};
use std::collections::BTreeSet;

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn requires(operator: Operator) -> Selector {
    Selector { requirements: BTreeSet::from([Requirement { key: "a".to_owned(), operator }]) }
}

fn values(values: &[&str]) -> BTreeSet<String> {
    values.iter().map(|value| (*value).to_owned()).collect()
}

#[test]
fn a_selector_matches_labels_by_all_its_requirements() {
    let (none, one, other) = (labels(&[]), labels(&[("a", "1")]), labels(&[("a", "3")]));
    for (operator, expected) in [
        (Operator::In(values(&["1", "2"])), [false, true, false]),
        (Operator::NotIn(values(&["1", "2"])), [true, false, true]),
        (Operator::Exists, [false, true, true]),
        (Operator::DoesNotExist, [true, false, false]),
    ] {
        let selector = requires(operator);
        let matches = [&none, &one, &other].map(|labels| selector.matches(labels));
        assert_eq!(matches, expected, "{selector:?}");
    }
    assert!(Selector::default().matches(&none));
    let mut both = Selector::equal("a", "1");
    both.requirements.extend(Selector::equal("b", "1").requirements);
    assert!(!both.matches(&one));
    assert!(both.matches(&labels(&[("a", "1"), ("b", "1"), ("c", "1")])));
}

#[test]
fn a_block_has_its_range_without_the_holes_and_only_its_family() {
    let except = vec!["10.1.0.0/16".parse().expect("a range")];
    let block = Block { cidr: "10.0.0.0/8".parse().expect("a range"), except };
    for (address, expected) in [
        ("10.0.0.1", true),
        ("10.1.0.1", false),
        ("11.0.0.1", false),
        ("::ffff:10.0.0.1", true),
        ("::a00:1", false),
        ("2001:db8::1", false),
    ] {
        assert_eq!(block.contains(address.parse().expect("an address")), expected, "{address}");
    }
}

#[test]
fn a_range_of_ports_has_both_ends() {
    let range = PortRange { first: 32_000, last: 32_768 };
    let in_it = [31_999, 32_000, 32_768, 32_769].map(|port| range.contains(port));
    assert_eq!(in_it, [false, true, true, false]);
}

#[test]
fn a_domain_name_is_itself_or_whole_labels_before_it() {
    let exact = DomainName::Exact("www.example.com".to_owned());
    let below = DomainName::Below("example.com".to_owned());
    for (name, is, is_below) in [
        ("www.example.com", true, true),
        ("WWW.Example.com.", true, true),
        ("a.b.example.com", false, true),
        ("example.com", false, false),
        ("badexample.com", false, false),
        (".example.com", false, false),
        ("a..example.com", false, false),
        ("example.com.evil.org", false, false),
        ("", false, false),
    ] {
        assert_eq!((exact.matches(name), below.matches(name)), (is, is_below), "{name}");
    }
}

#[test]
fn a_star_stands_for_any_characters_anywhere() {
    for (pattern, name, expected) in [
        ("www.example.com", "WWW.example.com", true),
        ("www.example.com", "www.example.com.", false),
        ("*.example.com", "a.b.example.com", true),
        ("*.example.com", "example.com", false),
        ("*foobar.com", "foobar.com", true),
        ("*foobar.com", "my-foobar.com", true),
        ("a*b*c", "a-b-b-c", true),
        ("a*b*c", "a-b-b-cd", false),
        ("*", "", true),
        ("**", "anything.at.all", true),
        ("", "", true),
        ("", "a", false),
        ("a*", "b", false),
    ] {
        assert_eq!(FqdnPattern(pattern.to_owned()).matches(name), expected, "{pattern} {name}");
    }
}

#[test]
fn a_pattern_of_many_stars_is_decided_at_once() {
    let pattern = FqdnPattern("*a".repeat(60) + "b");
    assert!(!pattern.matches(&"a".repeat(250)));
}
