//! Hashes of tokens, so that no token stays in memory.

use super::judge::Refusal;
use rustls::crypto::ring::default_provider;

/// SHA-256 of a token.
pub(crate) type TokenHash = [u8; 32];

/// Returns the SHA-256 of a token. The hash is that of the TLS provider.
pub(crate) fn hash(token: &str) -> Result<TokenHash, Refusal> {
    let provider = default_provider();
    let suites = provider.cipher_suites.iter();
    let hashes = suites.filter_map(|suite| suite.tls13().map(|suite| suite.common.hash_provider));
    let mut found = hashes.filter(|hash| hash.output_len() == 32);
    let hash = found.next().map(|hash| hash.hash(token.as_bytes()));
    let bytes = hash.and_then(|hash| <[u8; 32]>::try_from(hash.as_ref()).ok());
    bytes.ok_or_else(|| Refusal::Unreviewed("the TLS provider has no SHA-256".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_that_differ_have_different_hashes() {
        assert_ne!(hash("a"), hash("b"));
        assert_eq!(hash("a"), hash("a"));
    }
}
