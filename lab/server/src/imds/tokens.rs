//! Session tokens: who got which, and until when.

use config_model::InstanceId;
use std::{
    collections::BTreeMap,
    fs::File,
    io::Read,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// All tokens that are not over.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    given: Mutex<BTreeMap<String, TokenEntry>>,
}

#[derive(Debug)]
struct TokenEntry {
    instance: InstanceId,
    until: Instant,
}

impl Tokens {
    /// A new token of this instance.
    pub(super) fn make(
        &self,
        instance: &InstanceId,
        ttl_seconds: u32,
        now: Instant,
    ) -> std::io::Result<String> {
        let token = random_text()?;
        let until = now + Duration::from_secs(u64::from(ttl_seconds));
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        given.retain(|_, token| token.until > now);
        given.insert(token.clone(), TokenEntry { instance: instance.clone(), until });
        Ok(token)
    }

    /// True if the token belongs to this instance and has not expired.
    pub(super) fn fits(&self, token: &str, instance: &InstanceId, now: Instant) -> bool {
        let given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        given.get(token).is_some_and(|given| given.until > now && given.instance == *instance)
    }
}

/// As long as EC2's tokens, 56 characters, and no less random.
fn random_text() -> std::io::Result<String> {
    let mut bytes = [0; 56];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    let text = bytes.map(|byte| char::from(ALPHABET[usize::from(byte % 64)]));
    Ok(text.iter().collect())
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn a_token_ends_with_its_time_and_serves_one_instance() {
        let (tokens, now) = (Tokens::default(), Instant::now());
        let (ours, other) = (InstanceId::from("i-1"), InstanceId::from("i-2"));
        let token = tokens.make(&ours, 10, now).unwrap();
        assert_ne!(token, tokens.make(&ours, 10, now).unwrap());
        assert!(tokens.fits(&token, &ours, now + Duration::from_secs(9)));
        assert!(!tokens.fits(&token, &ours, now + Duration::from_secs(10)));
        assert!(!tokens.fits(&token, &other, now));
        assert!(!tokens.fits("", &ours, now));
    }
}
