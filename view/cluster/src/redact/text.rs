//! Detection of credentials in text.

use super::{REDACTED, pem};

/// Removes everything that looks like a credential.
pub fn redact_text(text: &str) -> String {
    if let Some((start, end)) = pem::torn(text) {
        let (head, rest) = text.split_at_checked(start).unwrap_or_default();
        let tail = rest.split_at_checked(end - start).unwrap_or_default().1;
        return redact_text(head) + REDACTED + &redact_text(tail);
    }
    let mut redacted = String::with_capacity(text.len());
    let (mut rest, mut before) = (text, None);
    while let Some(letter) = rest.chars().next() {
        let (kept, hidden) = credential(rest, before).unwrap_or((letter.len_utf8(), 0));
        let (keep, after) = rest.split_at_checked(kept).unwrap_or((rest, ""));
        let (hide, after) = after.split_at_checked(hidden).unwrap_or((after, ""));
        redacted.push_str(keep);
        if !hide.is_empty() {
            redacted.push_str(REDACTED);
        }
        before = hide.chars().last().or_else(|| keep.chars().last());
        rest = after;
    }
    redacted
}

/// Returns true if a key of this name has a secret value.
pub(super) fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_NAMES.iter().any(|word| name.ends_with(word))
}

/// Returns offset and length if a credential starts here.
fn credential(text: &str, before: Option<char>) -> Option<(usize, usize)> {
    if let Some(found) = pem::body(text) {
        return Some(found);
    }
    if let Some(place) = text.strip_prefix("://") {
        let end = place.find(|it: char| "@/?#<>\\\"'".contains(it) || it.is_whitespace())?;
        let user = end > 0 && place.split_at(end).1.starts_with('@');
        return user.then_some((3, end));
    }
    let begins = !before.is_some_and(|it| it.is_ascii_alphanumeric());
    bare(text, before).filter(|_| begins).or_else(|| named(text))
}

/// Recognizes a credential by its form.
fn bare(text: &str, before: Option<char>) -> Option<(usize, usize)> {
    let known = PREFIXES.iter().any(|it| text.starts_with(it));
    let whole = !before.is_some_and(in_token);
    // The length of a run is computed once.
    let long = match known || whole {
        true => text.find(|it| !in_token(it)).unwrap_or(text.len()),
        false => return None,
    };
    let run = text.split_at(long).0;
    let key = || {
        run.contains(|it: char| it.is_ascii_uppercase())
            && run.contains(|it: char| it.is_ascii_lowercase())
            && run.contains(|it: char| it.is_ascii_digit())
    };
    let secret = (known && long >= SHORTEST) || (whole && long == SECRET_KEY && key());
    secret.then_some((0, long))
}

/// Recognizes a credential after its name.
fn named(text: &str) -> Option<(usize, usize)> {
    let is = |word: &str| {
        let head = text.split_at_checked(word.len());
        head.filter(|(head, _)| head.eq_ignore_ascii_case(word)).map(|(_, after)| after)
    };
    let scheme = SCHEMES.iter().find_map(|word| is(word));
    let after = match scheme {
        Some(after) => after.trim_start_matches(' '),
        None => {
            let after = SECRET_NAMES.iter().find_map(|word| is(word))?;
            let after = after.trim_start_matches(QUOTES).trim_start();
            after.strip_prefix([':', '='])?.trim_start_matches([' ', '\t'])
        }
    };
    let value = after.trim_start_matches(QUOTES);
    let quoted = value.len() < after.len();
    // The value of a header can have several words.
    let whole = is("authorization").is_some();
    let ends = |it: char| match it {
        '"' | '\'' | '\\' | '\n' => true,
        _ if quoted || whole => false,
        ',' | ';' | '&' | '(' | ')' | '{' | '}' | '[' | ']' => true,
        it => it.is_whitespace(),
    };
    let long = value.find(ends).unwrap_or(value.len());
    let short = scheme.is_some() && long < SHORTEST;
    (long > 0 && !short).then_some((text.len() - value.len(), long))
}

fn in_token(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "+/=_.-%".contains(letter)
}

/// Access keys and session tokens of STS. In base64: JSON tokens, and private keys in the forms RSA, EC, PKCS#8, encrypted
/// PKCS#8 and OpenSSH.
const PREFIXES: [&str; 10] = [
    "AKIA",
    "ASIA",
    "IQoJ",
    "FwoG",
    "eyJ",
    "LS0tLS1CRUdJTiBSU0Eg",
    "LS0tLS1CRUdJTiBFQy",
    "LS0tLS1CRUdJTiBQUklWQVRF",
    "LS0tLS1CRUdJTiBFTkNSWVBU",
    "LS0tLS1CRUdJTiBPUEVOU1NI",
];
const SCHEMES: [&str; 2] = ["bearer ", "basic "];
/// Longer names come before their prefixes.
const SECRET_NAMES: [&str; 9] = [
    "secret_access_key",
    "secret-access-key",
    "secretaccesskey",
    "secret",
    "token",
    "password",
    "passwd",
    "signature",
    "authorization",
];
const QUOTES: [char; 3] = ['"', '\'', '\\'];
/// The length of an AWS secret access key.
const SECRET_KEY: usize = 40;
/// The shortest known token.
const SHORTEST: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_is_found_at_any_position() {
        let key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
        for (text, wanted) in [
            // Daemons log one JSON document per line.
            (
                r#"{"time":"2026-01-01T00:00:00Z","level":"WARN","key":"AKIAIOSFODNN7EXAMPLE","node":"n1"}"#,
                r#"{"time":"2026-01-01T00:00:00Z","level":"WARN","key":"REDACTED","node":"n1"}"#,
            ),
            (
                r#"{"message":"it said {\"token\":\"abc\",\"a\":1}"}"#,
                r#"{"message":"it said {\"token\":\"REDACTED\",\"a\":1}"}"#,
            ),
            ("token=eyJhbGciOiJSUzI1NiIs next", "token=REDACTED next"),
            (
                "GET /?X-Amz-Credential=ASIAIOSFODNN7EXAMPLE%2F2026&X-Amz-Signature=ab12&x=1",
                "GET /?X-Amz-Credential=REDACTED&X-Amz-Signature=REDACTED&x=1",
            ),
            ("a\tAKIAIOSFODNN7EXAMPLE\tb", "a\tREDACTED\tb"),
            ("session IQoJb3JpZ2luX2VjEAAaCXVz FwoGZXIvYXdzEBYaDDYw", "session REDACTED REDACTED"),
            (
                "Authorization: AWS4-HMAC-SHA256 Credential=x, Signature=y",
                "Authorization: REDACTED",
            ),
            ("authorization: Bearer abc\nnext", "authorization: REDACTED\nnext"),
            ("sent Bearer 0123456789abcdef0123", "sent Bearer REDACTED"),
            ("https://user:pw@proxy:3128/x", "https://REDACTED@proxy:3128/x"),
            ("aws_secret_access_key = abc", "aws_secret_access_key = REDACTED"),
            ("Password: 'two words', ok", "Password: 'REDACTED', ok"),
        ] {
            assert_eq!(redact_text(text), wanted);
        }
        assert_eq!(redact_text(&format!("it is {key}.")), format!("it is {key}."), "41 letters");
        assert_eq!(redact_text(&format!("it is {key} ")), format!("it is {REDACTED} "));
    }

    /// The first and the last line of a PEM document.
    fn marks(label: &str) -> (String, String) {
        (["-----BEGIN ", label, "-----"].concat(), ["-----END ", label, "-----"].concat())
    }

    #[test]
    fn the_body_of_a_private_key_is_hidden_in_each_form() {
        let body = "MIIEowIBAAKCAQEAabc+/\nDEF0123456789\nxyz==";
        for label in
            ["PRIVATE KEY", "RSA PRIVATE KEY", "ENCRYPTED PRIVATE KEY", "OPENSSH PRIVATE KEY"]
        {
            let (begin, end) = marks(label);
            let key = format!("{begin}\n{body}\n{end}");
            let hidden = format!("{begin}REDACTED{end}");
            assert_eq!(redact_text(&format!("ä {key}\nnext")), format!("ä {hidden}\nnext"));
            // Within a string of a JSON document, once and twice.
            for escape in ["\\n", "\\\\n"] {
                let line = format!("{{\"a\":\"{}\",\"b\":1}}", key.replace('\n', escape));
                assert_eq!(redact_text(&line), format!("{{\"a\":\"{hidden}\",\"b\":1}}"));
            }
            // Without its end, as in a text that was cut off.
            let (cut, _) = key.split_once("xyz").unwrap_or_default();
            assert_eq!(redact_text(cut), format!("{begin}REDACTED"));
            let line = format!("{{\"a\":\"{}\"}}", cut.replace('\n', "\\n"));
            assert_eq!(redact_text(&line), format!("{{\"a\":\"{begin}REDACTED\"}}"));
            // Without its start.
            let (_, cut) = key.split_once("AKCAQ").unwrap_or_default();
            assert_eq!(redact_text(cut), format!("REDACTED\n{end}"));
            let (before, _) = cut.split_once("xyz").unwrap_or_default();
            assert!(!redact_text(&format!("a line\n{cut}")).contains(before));
        }
        let encrypted = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nabc\n-----END RSA PRIVATE KEY-----";
        assert!(!redact_text(encrypted).contains("abc"));
        let base64 = "LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVktLS0tLQpNSUlFb3dJQkFBS0NBUUVB";
        assert_eq!(redact_text(&format!("key: {base64}")), "key: REDACTED");
    }

    #[test]
    fn a_log_line_with_the_start_of_a_key_hides_no_later_lines() {
        let log = "{\"a\":\"-----BEGIN PRIVATE KEY-----\"}\n{\"b\":\"a later line\"}\n";
        assert!(redact_text(log).contains("a later line"), "{}", redact_text(log));
    }

    #[test]
    fn certificates_and_public_keys_stay() {
        for label in ["CERTIFICATE", "PUBLIC KEY"] {
            let (begin, end) = marks(label);
            let text = format!("{begin}\nMIIE\n{end}\n");
            assert_eq!(redact_text(&text), text);
        }
    }

    #[test]
    fn text_without_credentials_stays() {
        for text in [
            "",
            "ENI eni-0123456789abcdef0 of ä has 10.0.0.7/32",
            "https://sqs.eu-west-1.amazonaws.com/x?a@b",
            "image sha256:0123456789abcdef0123456789abcdef01234567",
            "commit 0123456789abcdef0123456789abcdef01234567",
            "secretName: web, tokenExpirationSeconds: 3600",
            "a bearer of news",
            r#"{"token":{"audience":"x"}}"#,
        ] {
            assert_eq!(redact_text(text), text);
        }
    }
}
