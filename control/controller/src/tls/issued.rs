//! Issue of authorities and certificates.

use super::plan::{Authority, EARLIER, Kept, Lives, Pair, Retired, Step};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, Error, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};
use std::time::Duration;

/// Executes a step. `None` if there is nothing to do.
pub(super) fn take(
    step: Step,
    kept: Option<Kept>,
    server_name: &str,
    lives: &Lives,
    now: u64,
) -> Result<Option<Kept>, Error> {
    let Some(mut kept) = kept.filter(|_| step != Step::Begin) else {
        let signing = authority(lives, now)?;
        let serving = certificate(&signing, server_name, lives, now)?;
        let server_name = server_name.to_owned();
        return Ok(Some(Kept { signing, next: None, retired: Vec::new(), serving, server_name }));
    };
    match step {
        Step::Announce => kept.next = Some(authority(lives, now)?),
        Step::Promote => {
            if let Some(next) = kept.next.take() {
                let Pair { certificate, ends, .. } =
                    std::mem::replace(&mut kept.signing, next).pair;
                kept.retired.push(Retired { certificate, ends });
            }
            kept.serving = certificate(&kept.signing, server_name, lives, now)?;
            server_name.clone_into(&mut kept.server_name);
        }
        Step::Renew => {
            kept.serving = certificate(&kept.signing, server_name, lives, now)?;
            server_name.clone_into(&mut kept.server_name);
        }
        Step::Forget | Step::Begin => {}
        Step::Rest => return Ok(None),
    }
    kept.retired.retain(|retired| retired.ends > now);
    Ok(Some(kept))
}

fn authority(lives: &Lives, now: u64) -> Result<Authority, Error> {
    let key = KeyPair::generate()?;
    let name = format!("ferrule-controller-ca-{now}");
    let (made, ends) = (now, now + lives.authority);
    let certificate = authority_params(&name, made, ends)?.self_signed(&key)?.pem();
    Ok(Authority { name, pair: Pair { certificate, key: key.serialize_pem(), made, ends } })
}

fn authority_params(name: &str, made: u64, ends: u64) -> Result<CertificateParams, Error> {
    let mut params = params(Vec::new(), name, made, ends)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

fn certificate(by: &Authority, server_name: &str, lives: &Lives, now: u64) -> Result<Pair, Error> {
    let Authority { name, pair } = by;
    let signing = KeyPair::from_pem(&pair.key)?;
    let issuer = Issuer::new(authority_params(name, pair.made, pair.ends)?, signing);
    let (made, ends) = (now, (now + lives.certificate).min(pair.ends));
    let names: Vec<String> = server_name.split(',').map(str::to_owned).collect();
    let first = names.first().cloned().unwrap_or_default();
    let mut params = params(names, &first, made, ends)?;
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, &issuer)?.pem();
    Ok(Pair { certificate, key: key.serialize_pem(), made, ends })
}

fn params(
    names: Vec<String>,
    name: &str,
    made: u64,
    ends: u64,
) -> Result<CertificateParams, Error> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let at = |seconds: u64| date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds);
    params.not_before = at(made.saturating_sub(EARLIER));
    params.not_after = at(ends);
    Ok(params)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;
    use crate::tls::plan::step;
    use rustls::{
        RootCertStore,
        client::{WebPkiServerVerifier, danger::ServerCertVerifier as _},
        pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _},
    };
    use std::sync::Arc;

    const NAME: &str = "ferrule-controller";
    const LIVES: Lives = Lives { certificate: 100, authority: 1_200 };
    const START: u64 = 1_800_000_000;

    /// True if a node with this bundle accepts the serving certificate.
    fn accepts(bundle: &str, kept: &Kept, now: u64) -> bool {
        let mut roots = RootCertStore::empty();
        for root in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
            roots.add(root.unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
        let verifier = verifier.build().unwrap();
        let shown = CertificateDer::from_pem_slice(kept.serving.certificate.as_bytes()).unwrap();
        let name = ServerName::try_from(NAME).unwrap();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(now));
        verifier.verify_server_cert(&shown, &[], &name, &[], now).is_ok()
    }

    /// Executes all steps until there is none, and returns them.
    fn settle(kept: &mut Option<Kept>, now: u64) -> Vec<Step> {
        let mut steps = Vec::new();
        loop {
            let next = step(kept.as_ref(), NAME, &LIVES, now);
            let Some(done) = take(next, kept.clone(), NAME, &LIVES, now).unwrap() else {
                return steps;
            };
            *kept = Some(done);
            steps.push(next);
            assert!(steps.len() < 4, "no end at {now}: {steps:?}");
        }
    }

    #[test]
    fn nodes_with_an_old_bundle_accept_the_certificate_through_all_changes() {
        let mut kept = None;
        assert_eq!(settle(&mut kept, START), [Step::Begin]);
        // A node's bundle is up to 90 s old.
        let mut bundles = vec![kept.clone().unwrap().bundle()];
        let mut steps = Vec::new();
        for now in (START..START + 4_000).step_by(10) {
            steps.extend(settle(&mut kept, now));
            let kept = kept.as_ref().unwrap();
            bundles.push(kept.bundle());
            for bundle in bundles.iter().rev().take(9) {
                assert!(accepts(bundle, kept, now), "after {} s", now - START);
            }
            assert!(kept.retired.len() <= 1);
        }
        for expected in [Step::Announce, Step::Promote, Step::Renew] {
            assert!(steps.iter().filter(|step| **step == expected).count() >= 2, "{expected:?}");
        }
    }

    #[test]
    fn an_expired_authority_is_replaced() {
        let mut kept = None;
        settle(&mut kept, START);
        assert_eq!(settle(&mut kept, START + 10_000), [Step::Begin]);
        assert!(accepts(&kept.clone().unwrap().bundle(), &kept.unwrap(), START + 10_000));
    }

    #[test]
    fn what_a_replica_with_a_wrong_clock_has_made_is_replaced() {
        let (ahead, day) = (START + 400 * 86_400, 86_400);
        let lives = Lives { certificate: 90 * day, authority: 3_650 * day };
        for wrong in [Step::Renew, Step::Announce, Step::Begin] {
            let mut kept = take(Step::Begin, None, NAME, &lives, START).unwrap();
            kept = take(wrong, kept, NAME, &lives, ahead).unwrap();
            for _ in 0..4 {
                let next = step(kept.as_ref(), NAME, &lives, START);
                if next == Step::Rest {
                    break;
                }
                kept = take(next, kept, NAME, &lives, START).unwrap();
            }
            let kept = kept.unwrap();
            assert_eq!(step(Some(&kept), NAME, &lives, START), Step::Rest, "{wrong:?}");
            assert!(accepts(&kept.bundle(), &kept, START), "{wrong:?}");
        }
    }

    #[test]
    fn another_server_name_gets_another_certificate() {
        let mut kept = None;
        settle(&mut kept, START);
        let next = step(kept.as_ref(), "other", &LIVES, START);
        assert_eq!(next, Step::Renew);
        let kept = take(next, kept, "other", &LIVES, START).unwrap().unwrap();
        assert!(!accepts(&kept.bundle(), &kept, START));
    }

    #[test]
    fn no_private_key_is_in_the_bundle_or_in_debug_output() {
        let mut kept = None;
        settle(&mut kept, START);
        let kept = kept.unwrap();
        assert!(!format!("{kept:?}").contains("PRIVATE"));
        assert!(!kept.bundle().contains("PRIVATE"));
    }
}
