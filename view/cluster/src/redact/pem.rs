//! Private keys in the text form of PEM, also within a JSON string and without their start or end.

/// Returns offset and length of the key's body if the first line of a private key starts here.
pub(super) fn body(text: &str) -> Option<(usize, usize)> {
    let label = text.strip_prefix(BEGIN)?;
    let label = label.split_at_checked(label.find(DASHES)?)?.0;
    if !is_private(label) {
        return None;
    }
    let start = BEGIN.len() + label.len() + DASHES.len();
    let after = text.split_at_checked(start)?.1;
    let length = match after.find(END) {
        Some(end) if end <= LONGEST => end,
        // The end is missing: a text of another kind follows.
        Some(_) | None => after.find(|it| !is_of_body(it)).unwrap_or(after.len()),
    };
    Some((start, length))
}

/// Returns start and end of a key's body whose first line is missing, because the start of the text was cut off.
pub(super) fn torn(text: &str) -> Option<(usize, usize)> {
    let end = text.match_indices(END).map(|(at, _)| at).find(|at| {
        let label = text.split_at(*at).1.strip_prefix(END).unwrap_or_default();
        label.split_once(DASHES).is_some_and(|(label, _)| is_private(label))
    })?;
    let before = text.split_at(end).0;
    if before.contains(BEGIN) {
        return None;
    }
    // The lines of a body have no spaces.
    let lines = before.trim_end_matches(['\n', '\r']);
    let start = lines
        .rfind(|it: char| !is_of_body(it) || it == ' ')
        .map_or(0, |at| at + lines.split_at(at).1.chars().next().map_or(1, char::len_utf8));
    Some((start, lines.len())).filter(|(start, end)| start < end)
}

fn is_private(label: &str) -> bool {
    label.len() <= LABEL && label.contains("PRIVATE KEY")
}

/// Base64, ends of lines and the headers of an encrypted key.
fn is_of_body(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "+/=\\:,- \t\r\n".contains(letter)
}

const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";
const DASHES: &str = "-----";
/// The longest label, such as `ENCRYPTED PRIVATE KEY`.
const LABEL: usize = 64;
/// Longer than an RSA key of 16384 bits.
const LONGEST: usize = 32 * 1024;
